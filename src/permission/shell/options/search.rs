//! Programs that search in files. Sources: the manuals of grep 3.8 and ripgrep 13 and 14.
//!
//! Left out of grep: `-R` follows links; `-d recurse` is written as `-r`; `--exclude-from` reads a
//! file and changes what `--include` means; `-D`, because devices are not read otherwise. Left out
//! of ripgrep: `--pre` and `--hostname-bin` run programs and `-z` decompressors; `-.`, `--hidden`
//! and `-uu` read hidden files, `--ignore-file` may do so; `-L` follows links.

use super::Operands::{Expression, Pattern};
use super::{Spec, reads};

const GREP: &str = "\
    -i -y -v -w -x -c -n -H -h -l -L -o -q -s -E -F -G -P -I -a -b -T -U -u -V -Z -z -r^ \
    --recursive^ --color? --colour? --line-number --ignore-case --no-ignore-case --invert-match \
    --word-regexp --line-regexp --count --files-with-matches --files-without-match \
    --only-matching --quiet --silent --no-messages --extended-regexp --fixed-strings \
    --basic-regexp --perl-regexp --text --binary --byte-offset --initial-tab --null --null-data \
    --with-filename --no-filename --line-buffered --no-group-separator --unix-byte-offsets \
    --help --version -A: -B: -C: -m: --max-count: --context: --after-context: --before-context: \
    --binary-files: --directories=skip --directories=read --label:text --group-separator:text \
    -e:pattern --regexp:pattern -f:patterns --file:patterns --include:files --exclude:text \
    --exclude-dir:text";
const RIPGREP: &str = "\
    -i -v -w -x -c -n -N -H -I -l -o -q -s -S -F -P -U -a -b -p -0 -h -V -u! --unrestricted! \
    --auto-hybrid-regex --no-auto-hybrid-regex --binary --no-binary --block-buffered \
    --no-block-buffered --byte-offset --no-byte-offset --case-sensitive --column --no-column \
    --count --count-matches --crlf --no-crlf --debug --files-with-matches --files-without-match \
    --fixed-strings --no-fixed-strings --glob-case-insensitive --no-glob-case-insensitive \
    --heading --no-heading --help --no-hidden --ignore-case --ignore-file-case-insensitive \
    --no-ignore-file-case-insensitive --include-zero --no-include-zero --invert-match \
    --no-invert-match --json --no-json --line-buffered --no-line-buffered --line-number \
    --no-line-number --line-regexp --max-columns-preview --no-max-columns-preview --messages \
    --no-messages --mmap --no-mmap --multiline --no-multiline --multiline-dotall \
    --no-multiline-dotall --no-config --no-follow --no-context-separator --no-filename \
    --no-ignore --ignore --no-ignore-dot --ignore-dot --no-ignore-exclude --ignore-exclude \
    --no-ignore-files --ignore-files --no-ignore-global --ignore-global --no-ignore-messages \
    --ignore-messages --no-ignore-parent --ignore-parent --no-ignore-vcs --ignore-vcs --no-pre \
    --no-require-git --require-git --no-search-zip --no-unicode --unicode --null --null-data \
    --one-file-system --no-one-file-system --only-matching --passthru --passthrough --pcre2 \
    --no-pcre2 --pcre2-unicode --no-pcre2-unicode --pcre2-version+ --pretty --quiet --smart-case \
    --sort-files --no-sort-files --stats --no-stats --stop-on-nonmatch --text --no-text --trace \
    --trim --no-trim --files+ --type-list+ --version --vimgrep --with-filename --word-regexp -A: \
    -B: -C: -E: -M: -d: -j: -m: -t: -T: --after-context: --before-context: --context: --color: \
    --colors: --dfa-size-limit: --encoding: --engine: --generate: --max-columns: --max-count: \
    --max-depth: --maxdepth: --max-filesize: --regex-size-limit: --sort: --sortr: --threads: \
    --type: --type-not: --type-clear: --hyperlink-format: -r:text --replace:text \
    --context-separator:text --field-context-separator:text --field-match-separator:text \
    --path-separator:text --type-add:type -e:pattern --regexp:pattern -f:patterns --file:patterns \
    -g:hidden --glob:hidden --iglob:hidden";

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    Spec {
        numbers: true,
        others: Some(
            "--dereference-recursive --directories --devices --exclude-from \
            --fixed-regexp",
        ),
        ..reads(&["grep"], Pattern, &[GREP])
    },
    reads(&["rg"], Pattern, &[RIPGREP]),
    reads(&["find"], Expression, &[]),
];
