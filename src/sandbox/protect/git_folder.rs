//! Names in the folders of git: those that git's ordinary commands create, and those whose content
//! git obeys. Everything else in a `.git` is foreign: git or a program beside it may act on it.
//!
//! The lists follow gitrepository-layout(7) and the sources of git.

use posse_base::protected::{Class, fold};

use crate::protect::place::PlaceKind;
use crate::protect::quarantine::MOVED_ASIDE;
use crate::protect::sort::Sort;

/// Folder of a repository whose entries are judged by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitPart {
    /// The repository itself.
    Top,
    /// `info`.
    Info,
    /// `refs`, without the folders below it.
    Refs,
    /// `rebase-merge`.
    RebaseMerge,
    /// `rebase-apply`.
    RebaseApply,
    /// `sequencer`.
    Sequencer,
    /// `worktrees`.
    Worktrees,
    /// A folder in `worktrees`, which git takes for that of a linked worktree by its `gitdir` alone.
    Worktree,
    /// A folder that may contain any names, such as `objects`, or one below it.
    Open,
}

/// Names that count as foreign in a folder of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignNames {
    /// All but the known names: in a `.git` and in the repositories in it.
    AllOthers,
    /// All files but those with known names: in any other repository as git creates it. Work trees
    /// may be beside its files.
    OtherFiles,
    /// Only names that git is known to act on: in a folder that only looks like a repository, which
    /// may contain files of the user.
    Dangerous,
}

/// Files that git creates in a repository. Those of the locks of files end with `.lock`.
const TOP_FILES: [&str; 24] = [
    "ADD_EDIT.patch",
    "AUTO_MERGE",
    "COMMIT_EDITMSG",
    "EDIT_DESCRIPTION",
    "HEAD",
    "MERGE_MODE",
    "MERGE_MSG",
    "NOTES_EDITMSG",
    "NOTES_MERGE_PARTIAL",
    "NOTES_MERGE_REF",
    "SQUASH_MSG",
    "TAG_EDITMSG",
    "addp-hunk-edit.diff",
    "description",
    "fsmonitor--daemon.ipc",
    "gc.log",
    "gc.pid",
    "gitdir",
    "index",
    "locked",
    "packed-refs",
    "packed-refs.new",
    "rebased-patches",
    "shallow",
];

/// Beginnings of the names of files that git creates in a repository.
const TOP_BEGINNINGS: [&str; 6] =
    ["BISECT_", "index.stash.", "next-index-", "shallow_", "sharedindex.", "sharedindex_"];

/// Folders that git, and well-known programs that keep data but no programs in a repository, create
/// there. `config`, `hooks` and the like have checks of their own.
const TOP_FOLDERS: [&str; 15] = [
    "NOTES_MERGE_WORKTREE",
    "annex",
    "fsmonitor--daemon",
    "info",
    "lfs",
    "logs",
    "modules",
    "objects",
    "rebase-apply",
    "rebase-merge",
    "refs",
    "reftable",
    "sequencer",
    "sl",
    "worktrees",
];

const INFO_FILES: [&str; 5] = ["attributes", "exclude", "packs", "refs", "sparse-checkout"];

const REBASE_MERGE_FILES: [&str; 43] = [
    "abort-safety",
    "advise-skip",
    "allow_rerere_autoupdate",
    "amend",
    "author-script",
    "cdate_is_adate",
    "current-fixups",
    "done",
    "drop_redundant_commits",
    "dropped",
    "end",
    "force-rebase",
    "git-rebase-todo",
    "git-rebase-todo.backup",
    "gpg_sign_opt",
    "head-name",
    "ignore_date",
    "interactive",
    "keep_redundant_commits",
    "message",
    "message-fixup",
    "message-squash",
    "msgnum",
    "no-reschedule-failed-exec",
    "onto",
    "orig-head",
    "patch",
    "quiet",
    "rebase-root",
    "refs-to-delete",
    "reschedule-failed-exec",
    "rewritten",
    "rewritten-list",
    "rewritten-pending",
    "root",
    "signoff",
    "squash-onto",
    "stopped-sha",
    "strategy",
    "strategy_opts",
    "trailer",
    "update-refs",
    "verbose",
];

const REBASE_APPLY_FILES: [&str; 39] = [
    "abort-safety",
    "allow_rerere_autoupdate",
    "apply-opt",
    "applying",
    "author-script",
    "committer-date-is-author-date",
    "dirtyindex",
    "final-commit",
    "gpg_sign_opt",
    "head-name",
    "ignore-date",
    "info",
    "interactive",
    "keep",
    "keepcr",
    "last",
    "messageid",
    "msg",
    "msg-clean",
    "next",
    "no_inbody_headers",
    "onto",
    "orig-head",
    "original-commit",
    "patch",
    "patch-merge-index",
    "quiet",
    "quoted-cr",
    "rebasing",
    "rerere-autoupdate",
    "rewritten",
    "scissors",
    "sign",
    "signoff",
    "sha1",
    "strategy",
    "threeway",
    "utf8",
    "verbose",
];

const SEQUENCER_FILES: [&str; 4] = ["abort-safety", "head", "opts", "todo"];

/// Returns the kind of the entry `name`, which is `folded` in the canonical form of names, in a
/// folder of git. `None` for names without a check. Links are not judged here.
pub(super) fn sort_of(
    part: GitPart,
    foreign: ForeignNames,
    name: &[u8],
    folded: &[u8],
    kind: PlaceKind,
) -> Option<Sort> {
    if let Some(sort) = dangerous(part, folded) {
        return Some(sort);
    }
    if matches!(part, GitPart::Open | GitPart::Worktrees | GitPart::Worktree) {
        return None;
    }
    if let Some(sort) = checked(part, name, kind) {
        return Some(sort);
    }
    let is_foreign = match foreign {
        ForeignNames::AllOthers => true,
        ForeignNames::OtherFiles => part != GitPart::Top || kind != PlaceKind::Folder,
        ForeignNames::Dangerous => false,
    };
    (is_foreign && !is_known(part, name, kind)).then_some(Sort::Foreign)
}

/// True if git is known to act on an entry of this name, which is in the canonical form of names, in
/// a part of a repository.
pub(super) fn is_dangerous(folded: &[u8]) -> bool {
    [GitPart::Top, GitPart::Info, GitPart::Refs, GitPart::RebaseMerge, GitPart::RebaseApply]
        .into_iter()
        .any(|part| dangerous(part, folded).is_some())
}

/// True if git creates or obeys an entry of this name directly in a repository, or a program beside
/// git obeys it there. `folded`: the name in the canonical form of names; `is_file`: false of a folder.
pub fn is_entry_of_git(folded: &[u8], is_file: bool) -> bool {
    let is_same = |known: &&str| *fold(known.as_bytes()) == *folded;
    let kind = if is_file { PlaceKind::File } else { PlaceKind::Folder };
    settings_of_repository(folded, kind).is_some()
        || dangerous(GitPart::Top, folded).is_some()
        || TOP_FOLDERS.iter().any(is_same)
        || (is_file && is_file_of_git(folded))
}

fn is_file_of_git(folded: &[u8]) -> bool {
    let name = folded.strip_suffix(b".lock").unwrap_or(folded);
    TOP_FILES.iter().any(|known| *fold(known.as_bytes()) == *name)
        || TOP_BEGINNINGS.iter().any(|beginning| name.starts_with(&fold(beginning.as_bytes())))
        || name.ends_with(b"_head")
        || matches!(name, b"config" | b"config.worktree")
}

/// Returns the kind of a name that steers git in every repository.
pub(super) fn settings_of_repository(folded: &[u8], kind: PlaceKind) -> Option<Sort> {
    match folded {
        b"hooks" => Some(Sort::Hooks),
        b"remotes" | b"branches" => Some(Sort::Remotes),
        b"config" | b"config.worktree" => Some(Sort::Settings),
        b"commondir" => Some(Sort::Common),
        b"info" if kind == PlaceKind::Link => Some(Sort::Attributes),
        b"lazygit.yml" => Some(Sort::Name(Class::Git)),
        name if kind != PlaceKind::Link
            && (name == b"index" || name.starts_with(b"sharedindex.")) =>
        {
            Some(Sort::Index)
        }
        _ => None,
    }
}

fn dangerous(part: GitPart, folded: &[u8]) -> Option<Sort> {
    match (part, folded) {
        // Recorded resolutions of conflicts: git writes them over any path that is listed.
        // Settings of git-svn, and histories that git takes for another one.
        // `worktrees` may itself look like a repository.
        (GitPart::Top, b"merge_rr" | b"rr-cache" | b"svn")
        | (GitPart::Info | GitPart::Worktree, b"grafts") => Some(Sort::Foreign),
        // Changes that git applies at the end of an operation, and objects that it takes for others.
        (GitPart::Top, b"merge_autostash")
        | (GitPart::RebaseMerge | GitPart::RebaseApply | GitPart::Worktree, b"autostash")
        | (GitPart::Refs | GitPart::Worktree, b"replace") => Some(Sort::Volatile),
        _ => None,
    }
}

/// Returns the kind of an entry whose content is checked.
fn checked(part: GitPart, name: &[u8], kind: PlaceKind) -> Option<Sort> {
    match (part, name) {
        (GitPart::Top, b"rebase-merge" | b"rebase-apply" | b"sequencer")
            if kind == PlaceKind::Folder =>
        {
            Some(Sort::Interrupted)
        }
        (GitPart::Top, b"packed-refs") if kind == PlaceKind::File => Some(Sort::PackedRefs),
        (GitPart::RebaseMerge, b"git-rebase-todo") | (GitPart::Sequencer, b"todo")
            if kind == PlaceKind::File =>
        {
            Some(Sort::Todo)
        }
        (GitPart::RebaseMerge, b"strategy" | b"msgnum" | b"end")
        | (GitPart::RebaseApply, b"next" | b"last" | b"apply-opt")
        | (GitPart::Sequencer, b"opts") => Some(Sort::Strategy),
        (GitPart::RebaseMerge | GitPart::RebaseApply, b"orig-head" | b"head-name" | b"onto")
        | (GitPart::Sequencer, b"head") => Some(Sort::Origin),
        // The patches that `git am --continue` applies.
        (GitPart::RebaseApply, name)
            if kind == PlaceKind::File && name.iter().all(u8::is_ascii_digit) =>
        {
            Some(Sort::Origin)
        }
        _ => None,
    }
}

/// True if git's ordinary commands create an entry of this name and kind, or posse has given it a
/// name that git does not read.
fn is_known(part: GitPart, name: &[u8], kind: PlaceKind) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    if name.starts_with(MOVED_ASIDE) {
        return true;
    }
    let name = match name.strip_suffix(".lock") {
        Some(locked) if kind == PlaceKind::File => locked,
        _ => name,
    };
    let is_folder = kind == PlaceKind::Folder;
    match part {
        // In `refs`, branches of any name are possible below, and old versions of git keep some here.
        GitPart::Open | GitPart::Refs | GitPart::Worktrees | GitPart::Worktree => true,
        GitPart::Top if is_folder => TOP_FOLDERS.contains(&name),
        GitPart::Top => {
            TOP_FILES.contains(&name)
                || TOP_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
                || is_reference(name)
                // Locks of files with a check of their own.
                || matches!(name, "config" | "config.worktree")
        }
        GitPart::Info => !is_folder && INFO_FILES.contains(&name),
        GitPart::RebaseMerge => !is_folder && REBASE_MERGE_FILES.contains(&name),
        GitPart::RebaseApply => !is_folder && REBASE_APPLY_FILES.contains(&name),
        GitPart::Sequencer => !is_folder && SEQUENCER_FILES.contains(&name),
    }
}

/// True for a name such as `MERGE_HEAD`, which stands for a commit.
fn is_reference(name: &str) -> bool {
    name.strip_suffix("_HEAD").is_some_and(|begin| {
        !begin.is_empty() && begin.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    })
}

/// Returns the part that the folder `folded` of a repository is.
pub(super) fn part_of(folded: &[u8]) -> GitPart {
    match folded {
        b"info" => GitPart::Info,
        b"refs" => GitPart::Refs,
        b"rebase-merge" => GitPart::RebaseMerge,
        b"rebase-apply" => GitPart::RebaseApply,
        b"sequencer" => GitPart::Sequencer,
        b"worktrees" => GitPart::Worktrees,
        _ => GitPart::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(part: GitPart, foreign: ForeignNames, name: &str, kind: PlaceKind) -> Option<Sort> {
        let folded = fold(name.as_bytes());
        sort_of(part, foreign, name.as_bytes(), &folded, kind)
    }

    #[test]
    fn only_known_names_are_not_foreign() {
        use ForeignNames::AllOthers;
        use GitPart::{Info, Open, RebaseApply, RebaseMerge, Refs, Sequencer, Top};
        use PlaceKind::{File, Folder, Other};
        for (part, name, kind, expected) in [
            (Top, "HEAD", File, None),
            (Top, "CHERRY_PICK_HEAD", File, None),
            (Top, "HEAD.lock", File, None),
            (Top, "config.lock", File, None),
            (Top, "BISECT_LOG", File, None),
            (Top, "objects", Folder, None),
            (Top, "fsmonitor--daemon.ipc", Other, None),
            (Top, "objects", File, Some(Sort::Foreign)),
            (Top, "head", File, Some(Sort::Foreign)),
            (Top, "_HEAD", File, Some(Sort::Foreign)),
            (Top, "MERGE_RR", File, Some(Sort::Foreign)),
            (Top, "rr-cache", Folder, Some(Sort::Foreign)),
            (Top, "glab-cli", Folder, Some(Sort::Foreign)),
            (Top, "MERGE_AUTOSTASH", File, Some(Sort::Volatile)),
            (Top, "packed-refs", File, Some(Sort::PackedRefs)),
            (Top, "rebase-apply", Folder, Some(Sort::Interrupted)),
            (Info, "exclude", File, None),
            (Info, "sparse-checkout.lock", File, None),
            (Info, "grafts", File, Some(Sort::Foreign)),
            (Refs, "stash", File, None),
            (Refs, "Replace", Folder, Some(Sort::Volatile)),
            (RebaseMerge, "author-script", File, None),
            (RebaseMerge, "autostash", File, Some(Sort::Volatile)),
            (RebaseMerge, "orig-head", File, Some(Sort::Origin)),
            (RebaseMerge, "evil", File, Some(Sort::Foreign)),
            (RebaseApply, "0012", File, Some(Sort::Origin)),
            (RebaseApply, "apply-opt", File, Some(Sort::Strategy)),
            (Sequencer, "todo", File, Some(Sort::Todo)),
            (Sequencer, "todo", Folder, Some(Sort::Foreign)),
            (Open, "replace", Folder, None),
        ] {
            assert_eq!(judged(part, AllOthers, name, kind), expected, "{part:?} {name}");
        }
    }

    #[test]
    fn files_beside_a_repository_of_the_user_are_not_foreign() {
        use PlaceKind::{File, Folder};
        for (foreign, name, kind, expected) in [
            (ForeignNames::OtherFiles, "main", Folder, None),
            (ForeignNames::OtherFiles, "evil", File, Some(Sort::Foreign)),
            (ForeignNames::Dangerous, "main.rs", File, None),
            (ForeignNames::Dangerous, "rr-cache", Folder, Some(Sort::Foreign)),
            (ForeignNames::Dangerous, "MERGE_RR", File, Some(Sort::Foreign)),
        ] {
            assert_eq!(judged(GitPart::Top, foreign, name, kind), expected, "{name}");
        }
    }
}
