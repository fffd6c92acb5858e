//! Commands of git that list branches, tags, objects, remotes and settings, and its search. Source:
//! the manuals of git 2.47.
//!
//! Left out: `-O` and `--open-files-in-pager` of `git grep` run a program, `--textconv`,
//! `--filters` and `%(signature)` as well; `--no-index`, `--untracked` and
//! `--recurse-submodules` read more than the repository's files; `-v` of `git tag` checks a
//! signature; operands of `git branch`, `git tag` and `git remote` create or change; a second
//! operand of `git symbolic-ref` and `git config` is written; `--batch` reads names of objects;
//! `--file` and `--list` of `git config` print credentials.

use super::Operands::{Data, GitKeys, Nothing, PatternVersions, Versions};
use super::git::{LOG, PATCH};
use super::{Spec, configured};

/// Options of `git branch` that list.
const BRANCH: &str = "\
    -a -r -v -q -i --all --remotes --verbose --quiet --ignore-case --show-current --no-color \
    --no-column --no-abbrev --omit-empty --abbrev? --color? --column? --sort:format --format:format";
/// Options of `git tag` that list.
const TAG: &str = "\
    -n? -i --ignore-case --no-column --omit-empty --color? --column? --sort:format \
    --format:format";
/// Options of the commands that read one setting.
const SETTING: &str = "\
    --local --global --system --worktree --includes --no-includes --name-only --show-origin \
    --show-scope -z --null --bool --int --path --type: --default:text";

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    configured(&["git", "branch"], Nothing, &[BRANCH]),
    configured(&["git", "branch", "--list"], Data, &[BRANCH]),
    // Earlier versions create a branch with `-l NAME`.
    configured(&["git", "branch", "-l"], Nothing, &[BRANCH]),
    configured(&["git", "branch", "--merged"], Versions, &[BRANCH]),
    configured(&["git", "branch", "--no-merged"], Versions, &[BRANCH]),
    configured(&["git", "branch", "--contains"], Versions, &[BRANCH]),
    configured(&["git", "branch", "--no-contains"], Versions, &[BRANCH]),
    configured(&["git", "branch", "--points-at"], Versions, &[BRANCH]),
    configured(&["git", "tag"], Nothing, &["-l --list", TAG]),
    configured(&["git", "tag", "--list"], Data, &[TAG]),
    configured(&["git", "tag", "-l"], Data, &[TAG]),
    configured(&["git", "tag", "--merged"], Versions, &[TAG]),
    configured(&["git", "tag", "--contains"], Versions, &[TAG]),
    configured(&["git", "tag", "--points-at"], Versions, &[TAG]),
    configured(&["git", "remote"], Nothing, &["-v --verbose"]),
    configured(&["git", "remote", "get-url"], Data, &["--all --push"]),
    configured(
        &["git", "stash", "show"],
        Versions,
        &[PATCH, "--include-untracked --only-untracked"],
    ),
    Spec {
        numbers: true,
        ..configured(
            &["git", "grep"],
            PatternVersions,
            &["-a -I -i -w -v -h -H -E -G -P -F -n -l -L -z -o -c -p -W -q --text \
                --ignore-case --word-regexp --invert-match --full-name --extended-regexp \
                --basic-regexp --perl-regexp --fixed-strings --line-number --column \
                --files-with-matches --name-only --files-without-match --null --only-matching \
                --count --no-color --break --heading --show-function --function-context \
                --all-match --and --or --not --quiet --cached --no-textconv --no-recursive \
                --recursive -A: -B: -C: -m: --max-count: --max-depth: --context: \
                --after-context: --before-context: --threads: --color? -e:pattern"],
        )
    },
    configured(
        &["git", "ls-tree"],
        Versions,
        &["-d -r -t -l -z --long --name-only --name-status --object-only --full-name --full-tree \
            --abbrev?"],
    ),
    configured(&["git", "cat-file"], Versions, &["-e -p -t -s"]),
    Spec { numbers: true, ..configured(&["git", "reflog"], Nothing, &[LOG]) },
    Spec { numbers: true, ..configured(&["git", "reflog", "show"], Versions, &[LOG]) },
    Spec {
        numbers: true,
        ..configured(&["git", "rev-list"], Versions, &[LOG, "--count --objects --no-object-names"])
    },
    configured(
        &["git", "for-each-ref"],
        Data,
        &["--ignore-case --omit-empty --include-root-refs --count: --color? --sort:format \
            --format:format --merged?text --no-merged?text --contains?text --no-contains?text \
            --points-at?text"],
    ),
    configured(
        &["git", "show-ref"],
        Data,
        &["--head --tags --heads --branches -d --dereference --verify --exists -q --quiet -s \
            --hash? --abbrev?"],
    ),
    Spec {
        operands_max: Some(1),
        ..configured(&["git", "symbolic-ref"], Versions, &["-q --quiet --short --recurse"])
    },
    configured(
        &["git", "check-ignore"],
        Versions,
        &["-q -v -n --quiet --verbose --non-matching --no-index"],
    ),
    configured(&["git", "count-objects"], Nothing, &["-v -H --verbose --human-readable"]),
    configured(&["git", "worktree", "list"], Nothing, &["-v -z --verbose --porcelain"]),
    configured(
        &["git", "name-rev"],
        Versions,
        &["--tags --name-only --always --no-undefined --refs:text --exclude:text"],
    ),
    configured(&["git", "cherry"], Versions, &["-v --abbrev?"]),
    configured(&["git", "version"], Nothing, &["--build-options"]),
    Spec { operands_max: Some(1), ..configured(&["git", "config"], GitKeys, &[SETTING]) },
    Spec { operands_max: Some(1), ..configured(&["git", "config", "--get"], GitKeys, &[SETTING]) },
    Spec {
        operands_max: Some(1),
        ..configured(&["git", "config", "--get-all"], GitKeys, &[SETTING])
    },
];

/// Sections of git's settings without credentials.
const SECTIONS: [&str; 18] = [
    "alias", "blame", "branch", "color", "commit", "core", "diff", "fetch", "gc", "init", "log",
    "merge", "pull", "push", "rebase", "status", "tag", "user",
];

/// True for a key of a section without credentials, and for the address of a remote, which `git
/// remote -v` prints as well.
pub(super) fn is_open_key(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    let Some((section, name)) = lower.split_once('.') else { return false };
    let variable = name.rsplit('.').next().unwrap_or_default();
    let is_address = section == "remote" && matches!(variable, "url" | "pushurl");
    SECTIONS.contains(&section) || is_address
}
