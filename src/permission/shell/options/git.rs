//! Commands of git that read the repository. Source: the manuals of git 2.47.
//!
//! Left out: `--output` writes; `--ext-diff`, `--textconv`, `--show-signature` and the format `%G`
//! run programs; `--remerge-diff` writes objects; `--alternate-refs` may run a program;
//! `--submodule=diff` runs git with the settings of a submodule; `--stdin` prints what it reads in
//! errors; `--help` opens a viewer; `--exclude-per-directory`, `--pathspec-from-file` and the
//! interactive options of `git add`. Options before the subcommand are no part of a grant.

use super::Operands::{Nothing, Versions};
use super::{Spec, configured, spec};

/// Options of every command of git that shows changes.
pub(super) const PATCH: &str = "\
    -p -u --patch -s --no-patch --raw --patch-with-raw --patch-with-stat --numstat --shortstat \
    --summary --compact-summary --cumulative -z --name-only --name-status --check --minimal \
    --patience --histogram -w -b --ignore-all-space --ignore-space-change --ignore-space-at-eol \
    --ignore-cr-at-eol --ignore-blank-lines --no-renames --rename-empty --no-rename-empty \
    --full-index --binary -a --text -t -r --no-ext-diff --no-textconv --cc --dd -R --no-prefix \
    --default-prefix --pickaxe-regex --pickaxe-all --no-color --no-color-moved --no-color-moved-ws \
    --no-relative -W --function-context --find-copies-harder -D --irreversible-delete \
    --indent-heuristic --no-indent-heuristic --exit-code --quiet --ita-invisible-in-index \
    --ita-visible-in-index --no-diff-merges --combined-all-paths --submodule --submodule=short \
    --submodule=log -U? --unified? --diff-filter: --abbrev? --no-abbrev --diff-algorithm: \
    --diff-merges=off --diff-merges=none --diff-merges=on --diff-merges=first-parent \
    --diff-merges=1 --diff-merges=separate --diff-merges=m --diff-merges=combined --diff-merges=c \
    --diff-merges=dense-combined --diff-merges=cc --inter-hunk-context: -l: --color-moved-ws: \
    --ws-error-highlight: --find-object: -S:text -G:text -I:text --ignore-matching-lines:text \
    --anchored:text --word-diff-regex:text --src-prefix:text --dst-prefix:text --line-prefix:text \
    --output-indicator-new:text --output-indicator-old:text --output-indicator-context:text \
    --skip-to:text --rotate-to:text -O:path --stat? --stat-width: --stat-name-width: --stat-count: \
    --stat-graph-width: --dirstat? -X? --dirstat-by-file? --color? --word-diff? --color-words?text \
    --color-moved? --ignore-submodules? -M? -C? -B?text --break-rewrites?text --find-renames? \
    --find-copies? --relative?text";
/// Further options of `git diff`. Both files of `--no-index` are read as they are, or all files of
/// two folders.
const DIFF: &str = "\
    --cached --staged --merge-base --base --ours --theirs -q --no-index^";
/// Options of the commands of git that select commits and show them.
pub(super) const LOG: &str = "\
    --oneline --graph --all --follow --reverse --merges --no-merges --first-parent \
    --exclude-first-parent-only --abbrev-commit --no-abbrev-commit -i --regexp-ignore-case -E \
    --extended-regexp -F --fixed-strings -P --perl-regexp --basic-regexp --all-match \
    --invert-grep --topo-order --date-order --author-date-order --left-right --cherry \
    --cherry-pick --cherry-mark --boundary --simplify-by-decoration --simplify-merges \
    --full-history --source --no-decorate -g --walk-reflogs --reflog --parents --children \
    --use-mailmap --no-use-mailmap --mailmap --no-mailmap --relative-date --do-walk --not \
    --no-notes --standard-notes --no-standard-notes --full-diff --show-pulls --left-only \
    --right-only --dense --sparse --no-graph --clear-decorations -c -m --merge --bisect \
    --ignore-missing --single-worktree --remove-empty --log-size --no-min-parents \
    --no-max-parents --no-expand-tabs --no-show-signature --no-follow -n: --max-count: --skip: \
    --min-parents? --max-parents? --encoding: --exclude-hidden: --max-age? --min-age? --since:text --until:text \
    --after:text --before:text --author:text --committer:text --grep:text --grep-reflog:text \
    -L:lines --decorate-refs:text --decorate-refs-exclude:text --exclude:text --glob:text \
    --since-as-filter:text --date:text --decorate? --branches?text --tags?text --remotes?text \
    --ancestry-path?text --no-walk? --notes?text --show-notes?text --expand-tabs? \
    --show-linear-break?text --pretty?format --format?format";

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    Spec {
        others: Some(
            "--no-verbose --no-short --no-branch --no-show-stash --no-porcelain --no-long \
            --no-null --no-untracked-files --no-ignored --no-ignore-submodules --help",
        ),
        ..configured(
            &["git", "status"],
            Versions,
            &["-s --short -b --branch --show-stash --long -v --verbose -z --null --no-column \
                --ahead-behind --no-ahead-behind --renames --no-renames --porcelain? -u? \
                --untracked-files? --ignored? --ignore-submodules? --column? --find-renames? -M?"],
        )
    },
    Spec { numbers: true, ..configured(&["git", "log"], Versions, &[PATCH, LOG]) },
    Spec {
        numbers: true,
        ..configured(
            &["git", "shortlog"],
            Versions,
            &["-n -s -e -c --numbered --summary --email --committer -w?text --group:format", LOG],
        )
    },
    Spec { numbers: true, ..configured(&["git", "diff"], Versions, &[PATCH, DIFF, LOG]) },
    Spec { numbers: true, ..configured(&["git", "show"], Versions, &[PATCH, LOG]) },
    configured(
        &["git", "blame"],
        Versions,
        &["-w -s -e -l -t -f -n -p -c -b -h --porcelain --line-porcelain --incremental \
            --show-email --show-name --show-number --show-stats --score-debug --root --reverse \
            --first-parent --progress --no-progress --color-lines --color-by-age --minimal \
            --abbrev: --encoding: --date:text --ignore-rev:text -L:lines --since:text \
            --contents:path --ignore-revs-file:path -S:path -M? -C?"],
    ),
    configured(
        &["git", "rev-parse"],
        Versions,
        &["--verify --show-toplevel --show-prefix --show-cdup --show-superproject-working-tree \
            --is-inside-work-tree --is-inside-git-dir --is-bare-repository \
            --is-shallow-repository --git-dir --absolute-git-dir --git-common-dir -q --quiet \
            --all --symbolic --symbolic-full-name --revs-only --no-revs --flags --no-flags --not \
            --sq --local-env-vars --show-object-format --shared-index-path --short? \
            --abbrev-ref? --branches?text --tags?text --remotes?text HEAD"],
    ),
    Spec {
        others: Some(
            "--recurse-submodules --resolve-undo --exclude-per-directory --with-tree \
            --format --no-cached --no-deleted --no-modified --no-others --help",
        ),
        ..configured(
            &["git", "ls-files"],
            Versions,
            &["-c -d -m -o -i -s -u -k -t -v -f -z --cached --deleted --modified --others \
                --ignored --stage --unmerged --killed --directory --empty-directory \
                --no-empty-directory --deduplicate --eol --debug --sparse --exclude-standard \
                --full-name --error-unmatch --abbrev? -x:text --exclude:text -X:path \
                --exclude-from:path"],
        )
    },
    Spec {
        others: Some("--no-contains --no-debug --no-all --no-tags --help"),
        ..configured(
            &["git", "describe"],
            Versions,
            &["--all --tags --contains --long --always --exact-match --first-parent --debug \
                --candidates: --match:text --exclude:text --abbrev? --dirty? --broken?"],
        )
    },
    configured(&["git", "stash", "list"], Nothing, &[LOG]),
    configured(&["git", "remote", "-v"], Nothing, &[]),
    configured(
        &["git", "merge-base"],
        Versions,
        &["--all -a --octopus --independent --is-ancestor --fork-point"],
    ),
    spec(
        &["git", "add"],
        Versions,
        &["-A --all -u --update -n --dry-run -v --verbose -N --intent-to-add"],
    ),
    configured(&["git", "--version"], Nothing, &[]),
];
