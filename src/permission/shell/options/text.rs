//! Programs that sort, cut, compare, hash or print text. Sources: the manuals of coreutils 9.1,
//! diffutils 3.8, util-linux 2.38 (`column`, `hexdump`, `rev`), binutils 2.40 (`strings`), vim 9.0
//! (`xxd`), sed 4.9, gawk 5.2, mawk 1.3.4 and jq 1.7.
//!
//! Left out: options that write (`-o` of `sort` and `shuf`, `-i` of `sed` and `gawk`, `-r` of
//! `xxd`), that run a program (`--compress-program` of `sort`, `-l` of `diff`), that read scripts,
//! names of files or formats from a file (`-f` of `sed`, `awk`, `jq` and `hexdump`,
//! `--files0-from` of `sort`, `-c` of the programs that compute checksums, `-X` and `--from-file`
//! of `diff`, `@FILE` of `strings`), that load code (`-L` of `jq`, `-l` of `gawk`) or read other
//! files (`--slurpfile` and `--rawfile` of `jq`, `--random-source` of `sort` and `shuf`), and
//! `-T` of `sort`, a folder for files.

use super::Operands::{Data, Folders, Script};
use super::scripts::ScriptLanguage;
use super::{FILES, OptionSyntax, Spec, reads};

/// Options of the programs that compute checksums.
const CHECKSUM: &str = "\
    -b -t -z --binary --text --tag --untagged --zero --help --version -l: --length: -a: \
    --algorithm: -r -s --sysv --raw --base64";
/// Options of `base64` and `base32`.
const ENCODING: &str = "-d -D -i --decode --ignore-garbage --help --version -w: --wrap:";

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    reads(
        &["sort"],
        FILES,
        &["-b -d -f -g -i -h -M -n -r -R -V -c -C -m -s -u -z --ignore-leading-blanks \
            --dictionary-order --ignore-case --general-numeric-sort --ignore-nonprinting \
            --human-numeric-sort --month-sort --numeric-sort --random-sort --reverse \
            --version-sort --check --check=silent --check=quiet --check=diagnose-first --merge \
            --stable --unique --zero-terminated --debug --help --version -k: --key: -t:text \
            --field-separator:text -S: --buffer-size: --parallel: --batch-size: --sort:"],
    ),
    Spec {
        operands_max: Some(1),
        ..reads(
            &["uniq"],
            FILES,
            &["-c -d -D -i -u -z --count --repeated --ignore-case --unique --zero-terminated \
                --all-repeated? --group? --help --version -f: --skip-fields: -s: --skip-chars: \
                -w: --check-chars:"],
        )
    },
    reads(
        &["cut"],
        FILES,
        &[
            "-n -s -z --complement --only-delimited --zero-terminated --help --version -b: --bytes: \
            -c: --characters: -f: --fields: -d:text --delimiter:text --output-delimiter:text",
        ],
    ),
    reads(
        &["tr"],
        Data,
        &["-c -C -d -s -t --complement --delete --squeeze-repeats --truncate-set1 --help \
            --version"],
    ),
    reads(
        &["comm"],
        FILES,
        &["-1 -2 -3 -z --check-order --nocheck-order --total --zero-terminated --help --version \
            --output-delimiter:text"],
    ),
    reads(
        &["join"],
        FILES,
        &["-i -z --ignore-case --header --check-order --nocheck-order --zero-terminated --help \
            --version -1: -2: -a: -j: -v: -o: -e:text -t:text"],
    ),
    reads(
        &["paste"],
        FILES,
        &["-s -z --serial --zero-terminated --help --version -d:text --delimiters:text"],
    ),
    reads(
        &["nl"],
        FILES,
        &["-p --no-renumber --help --version -b:text --body-numbering:text -d:text \
            --section-delimiter:text -f:text --footer-numbering:text -h:text \
            --header-numbering:text -i: --line-increment: -l: --join-blank-lines: -n: \
            --number-format: -s:text --number-separator:text -v: --starting-line-number: -w: \
            --number-width:"],
    ),
    Spec {
        numbers: true,
        ..reads(&["fold"], FILES, &["-b -s --bytes --spaces --help --version -w: --width:"])
    },
    reads(
        &["fmt"],
        FILES,
        &["-c -s -t -u --crown-margin --split-only --tagged-paragraph --uniform-spacing --help \
            --version -w: --width: -g: --goal: -p:text --prefix:text"],
    ),
    reads(&["tac"], FILES, &["-b -r --before --regex --help --version -s:text --separator:text"]),
    reads(&["rev"], FILES, &["-0 -h -V --zero --help --version"]),
    reads(&["expand"], FILES, &["-i --initial --help --version -t: --tabs:"]),
    reads(&["unexpand"], FILES, &["-a --all --first-only --help --version -t: --tabs:"]),
    reads(
        &["od"],
        FILES,
        &[
            "-a -b -c -d -f -h -i -l -o -s -x -v --output-duplicates --traditional --help --version \
            -A: --address-radix: -j: --skip-bytes: -N: --read-bytes: -t: --format: -w? --width? \
            -S: --strings? --endian:",
        ],
    ),
    reads(&["hexdump"], FILES, &["-b -c -C -d -o -x -v -h -V -n: -s: -e:text --canonical"]),
    reads(&["hd"], FILES, &["-v -n: -s:"]),
    Spec {
        style: OptionSyntax::Whole,
        operands_max: Some(1),
        options_first: true,
        ..reads(
            &["xxd"],
            FILES,
            &["-a -b -C -d -E -e -h -i -p -ps -plain -postscript -u -v -c: -g: -l: -o: -s: -n:"],
        )
    },
    Spec {
        style: OptionSyntax::Argparse,
        ..reads(
            &["strings"],
            FILES,
            &[
                "-a -f -w -v -h --all --print-file-name --help --version -n: --bytes: -t: --radix: -e: \
            --encoding:",
            ],
        )
    },
    reads(
        &["column"],
        FILES,
        &["-t -x -e -L -d -J --table --json --fillrows --keep-empty-lines --table-noheadings -h \
            -V --help --version -c: --output-width: -s:text --separator:text -o:text \
            --output-separator:text -N:text --table-columns:text -R:text --table-right:text \
            -l: --table-columns-limit:"],
    ),
    reads(&["md5sum"], FILES, &[CHECKSUM]),
    reads(&["sha1sum"], FILES, &[CHECKSUM]),
    reads(&["sha224sum"], FILES, &[CHECKSUM]),
    reads(&["sha256sum"], FILES, &[CHECKSUM]),
    reads(&["sha384sum"], FILES, &[CHECKSUM]),
    reads(&["sha512sum"], FILES, &[CHECKSUM]),
    reads(&["b2sum"], FILES, &[CHECKSUM]),
    reads(&["cksum"], FILES, &[CHECKSUM]),
    reads(&["sum"], FILES, &[CHECKSUM]),
    reads(&["base64"], FILES, &[ENCODING]),
    reads(&["base32"], FILES, &[ENCODING]),
    reads(
        &["cmp"],
        FILES,
        &["-b -l -s --print-bytes --verbose --quiet --silent --help --version -i: \
            --ignore-initial: -n: --bytes:"],
    ),
    // Of two folders, all files are compared.
    reads(
        &["diff"],
        Folders,
        &["-a -b -B -c -d -e -E -H -i -n -N -p -P -q -r -s -t -T -u -v -w -y -Z --normal \
                --brief --report-identical-files --ed --rcs --side-by-side --left-column \
                --suppress-common-lines --show-c-function --expand-tabs --initial-tab \
                --suppress-blank-empty --recursive --no-dereference --new-file \
                --unidirectional-new-file --ignore-file-name-case --no-ignore-file-name-case \
                --ignore-case --ignore-tab-expansion --ignore-trailing-space \
                --ignore-space-change --ignore-all-space --ignore-blank-lines --text \
                --strip-trailing-cr --minimal --speed-large-files --help --version -C: -U: \
                --context? --unified? -W: --width: --tabsize: --horizon-lines: --color? \
                --palette:text -F:text --show-function-line:text -I:text \
                --ignore-matching-lines:text --label:text -L:text -x:text --exclude:text"],
    ),
    reads(
        &["shuf"],
        FILES,
        &["-r -z --repeat --zero-terminated --help --version -n: --head-count: -i: --input-range:"],
    ),
    reads(
        &["numfmt"],
        Data,
        &["-z --debug --grouping --header --zero-terminated --help --version -d:text \
            --delimiter:text --field: --format:text --from: --from-unit: --invalid: --padding: \
            --round: --suffix: --to: --to-unit:"],
    ),
    reads(
        &["sed"],
        Script(ScriptLanguage::Sed),
        &["-n -E -r -s -u -z --quiet --silent --regexp-extended --separate --unbuffered \
            --null-data --zero-terminated --posix --debug --sandbox --help -e:sed \
            --expression:sed -l: --line-length:"],
    ),
    Spec { options_first: true, ..reads(&["awk"], Script(ScriptLanguage::Awk), &["-F:text -v:"]) },
    reads(
        &["jq"],
        Script(ScriptLanguage::Jq),
        &["-a -c -C -e -h -j -M -n -r -R -s -S -V --ascii-output --compact-output --color-output \
            --exit-status --help --join-output --monochrome-output --null-input --raw-output \
            --raw-output0 --raw-input --slurp --sort-keys --tab --seq --stream --stream-errors \
            --unbuffered --version --indent:"],
    ),
];
