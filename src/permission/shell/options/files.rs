//! Programs that list or read files. Sources: the manuals of coreutils 9.1, file 5.44 and tree 2.1.
//!
//! Left out: options that read names of files from a file (`--files0-from` of `wc` and `du`, `-f`
//! of `file`, `--fromfile` of `tree`) or patterns (`-X` of `du`, `-m` of `file`, `--gitfile`); that
//! follow links in folders (`-L` of `du`, `-l` of `tree`); that write (`-C` of `file`, `-o` and
//! `-R` of `tree`) or decompress (`-z` of `file`); `--retry` and `-F` of `tail`, which open a name
//! again.

use super::Operands::{Data, Nothing, Words};
use super::{FILES, NAMES, Spec, TREES, reads};

/// Options of `head` and `tail`.
const ENDS: &str = "\
    -q -v -z --quiet --silent --verbose --zero-terminated --help --version -n: -c: --lines: \
    --bytes:";

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    Spec {
        inert: true,
        others: Some(""),
        ..reads(
            &["ls"],
            NAMES,
            &["-1 -A -a -B -b -C -c -d -D -F -f -G -g -H -h -i -k -l -m -N -n -o -p -Q -q -r -S \
                -s -t -U -u -v -X -x -Z -R^ --recursive^ -L> --dereference> --all --almost-all \
                --author --escape --ignore-backups --directory --dired --file-type --full-time \
                --group-directories-first --no-group --human-readable --si --inode --kibibytes \
                --dereference-command-line --dereference-command-line-symlink-to-dir --literal \
                --numeric-uid-gid --hide-control-chars --show-control-chars --quote-name \
                --reverse --size --context --zero --help --version -w: --width: -T: --tabsize: \
                --block-size: --sort: --time: --format: --quoting-style: --indicator-style: \
                -I:text --ignore:text --hide:text --time-style:text --color? --hyperlink? \
                --classify?"],
        )
    },
    Spec {
        inert: true,
        others: Some(""),
        ..reads(
            &["cat"],
            FILES,
            &["-A -b -e -E -n -s -t -T -u -v --show-all --number-nonblank --show-ends --number \
                --squeeze-blank --show-tabs --show-nonprinting --help --version"],
        )
    },
    Spec { inert: true, numbers: true, others: Some(""), ..reads(&["head"], FILES, &[ENDS]) },
    Spec {
        inert: true,
        numbers: true,
        others: Some("--retry --debug"),
        ..reads(
            &["tail"],
            FILES,
            &[
                ENDS,
                "-f --follow --follow=descriptor --pid: -s: --sleep-interval: \
                --max-unchanged-stats:",
            ],
        )
    },
    Spec {
        others: Some("--files0-from --debug"),
        ..reads(
            &["wc"],
            FILES,
            &["-l -w -c -m -L --lines --words --bytes --chars --max-line-length --help --version \
                --total:"],
        )
    },
    Spec {
        inert: true,
        others: Some(""),
        ..reads(
            &["stat"],
            NAMES,
            &["-L -t -f --dereference --terse --file-system --help --version --cached: -c:text \
                --format:text --printf:text"],
        )
    },
    reads(
        &["file"],
        NAMES,
        &["-b -i -L -h -k -n -N -0 -r -v --brief --mime --mime-type --mime-encoding --extension \
            --apple --dereference --no-dereference --keep-going --no-buffer --no-pad --print0 \
            --raw --help --version -e: --exclude: -F:text --separator:text"],
    ),
    Spec {
        others: Some("--files0-from --exclude-from --dereference"),
        ..reads(
            &["du"],
            TREES,
            &["-0 -a -b -c -D -H -h -k -l -m -P -S -s -x --null --all --apparent-size --bytes \
                --total --dereference-args --human-readable --inodes --count-links \
                --no-dereference --separate-dirs --si --summarize --one-file-system --help \
                --version -B: --block-size: -d: --max-depth: -t: --threshold: --exclude:text \
                --time-style:text --time?"],
        )
    },
    Spec {
        others: Some("--sync"),
        ..reads(
            &["df"],
            NAMES,
            &["-a -H -h -i -k -l -P -T -v --all --human-readable --si --inodes --local --no-sync \
                --portability --print-type --total --help --version -B: --block-size: -t: \
                --type: -x: --exclude-type: --output?"],
        )
    },
    reads(
        &["tree"],
        TREES,
        &["-a -d -f -x -q -N -Q -p -u -g -s -h -D -F -v -t -c -U -r -i -A -S -n -C -X -J \
            --gitignore --ignore-case --matchdirs --metafirst --prune --noreport --si --du \
            --inodes --device --dirsfirst --filesfirst --version --help -L: -I:text -P:text \
            --filelimit: --charset: --sort: --timefmt:text"],
    ),
    reads(&["pwd"], Nothing, &["-L -P"]),
    reads(&["true"], Nothing, &[]),
    reads(&["false"], Nothing, &[]),
    reads(&["whoami"], Nothing, &["--help --version"]),
    reads(
        &["uname"],
        Nothing,
        &["-a -s -n -r -v -m -p -i -o --all --kernel-name --nodename --kernel-release \
            --kernel-version --machine --processor --hardware-platform --operating-system --help \
            --version"],
    ),
    reads(&["which"], Data, &["-a"]),
    reads(&["echo"], Words, &[]),
];
