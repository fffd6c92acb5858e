//! Calls that open, change or examine a file by its path, in the crates that work below roots where
//! commands of a model run at the same time.
//!
//! A path that was checked or resolved can lead elsewhere when it is used again: a command puts a
//! link there. Such a call needs a reason for which that is harmless.

use super::{assert_none, code, read, rust_files};

/// Folders of the crates and modules that work below roots.
const FOLDERS: [&str; 7] = [
    "src/agents",
    "src/checkpoint",
    "src/hooks",
    "src/images",
    "src/sandbox",
    "src/tools",
    "src/wiring",
];

const CALLS: [&str; 25] = [
    "canonicalize(",
    "symlink_metadata(",
    "fs::metadata(",
    "fs::copy(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::read_dir(",
    "fs::write(",
    "fs::rename(",
    "fs::hard_link(",
    "fs::set_permissions(",
    "fs::remove_file(",
    "fs::remove_dir(",
    "fs::remove_dir_all(",
    "fs::create_dir(",
    "fs::create_dir_all(",
    "File::open(",
    "File::create(",
    "File::create_new(",
    "File::options(",
    "OpenOptions::new(",
    "DirBuilder::new(",
    "WalkBuilder::new(",
    ".read_dir()",
    ".exists()",
];

const OWN: &str = "posse's own folders, in which commands cannot write";
const SYSTEM: &str = "files of the system, outside of all roots";
const STATUS: &str = "status or existence only; nothing is opened because of the answer";
const FOLLOWED_UP: &str = "what is resolved here is opened without links, or compared, later";
const PROTECTS: &str = "only adds to what is protected, or is examined again when the command ends";

/// Number of such calls in each file outside of its tests, and why they are harmless.
const REASONS: &[(&str, usize, &str)] = &[
    ("src/agents/folder.rs", 2, FOLLOWED_UP),
    ("src/agents/found_files.rs", 2, STATUS),
    ("src/agents/instructions.rs", 1, STATUS),
    ("src/agents/skills.rs", 3, FOLLOWED_UP),
    ("src/checkpoint/cache.rs", 3, OWN),
    ("src/checkpoint/git.rs", 9, OWN),
    ("src/checkpoint/record.rs", 7, OWN),
    ("src/checkpoint/repositories.rs", 8, OWN),
    ("src/checkpoint/store.rs", 3, OWN),
    ("src/checkpoint/store/retention.rs", 7, OWN),
    ("src/checkpoint/walk.rs", 1, STATUS),
    (
        "src/hooks/command.rs",
        3,
        "the program of a hook runs in the sandbox, and its output is in the state directory",
    ),
    ("src/images/lib.rs", 1, "an image that the user names"),
    (
        "src/sandbox/bubblewrap.rs",
        11,
        "bubblewrap itself, the running program compared by identity, and the kinds of paths in \
         the read-only tree",
    ),
    ("src/sandbox/capture.rs", 2, OWN),
    ("src/sandbox/committed_files.rs", 1, OWN),
    ("src/sandbox/guard.rs", 4, FOLLOWED_UP),
    (
        "src/sandbox/helper.rs",
        6,
        "the working directory, compared by identity; files of the kernel",
    ),
    (
        "src/sandbox/landlock/rule_sources.rs",
        4,
        "folders outside of the writable ones; these are opened as resolved paths",
    ),
    ("src/sandbox/memory.rs", 6, SYSTEM),
    ("src/sandbox/namespaces.rs", 24, "files of the kernel, and mounts in the own mount namespace"),
    ("src/sandbox/planning.rs", 1, FOLLOWED_UP),
    ("src/sandbox/probe.rs", 9, OWN),
    ("src/sandbox/process_tree.rs", 5, SYSTEM),
    ("src/sandbox/protect.rs", 1, STATUS),
    ("src/sandbox/protect/committed.rs", 5, "status only, and copies in the session's folder"),
    ("src/sandbox/protect/exemptions.rs", 1, PROTECTS),
    ("src/sandbox/protect/folder_watch.rs", 2, SYSTEM),
    ("src/sandbox/protect/git_files.rs", 4, STATUS),
    ("src/sandbox/protect/harmless.rs", 1, PROTECTS),
    ("src/sandbox/protect/linked_worktrees.rs", 1, PROTECTS),
    ("src/sandbox/protect/place.rs", 2, "only in tests"),
    ("src/sandbox/protect/pointers.rs", 1, PROTECTS),
    ("src/sandbox/protect/quarantine.rs", 2, OWN),
    ("src/sandbox/protect/references.rs", 5, PROTECTS),
    ("src/sandbox/protect/running_marks.rs", 9, OWN),
    ("src/sandbox/protect/scan/link_walk.rs", 1, PROTECTS),
    ("src/sandbox/protect/search_path.rs", 4, PROTECTS),
    ("src/sandbox/protect/state.rs", 1, "only in tests"),
    ("src/sandbox/protect/stores.rs", 6, PROTECTS),
    ("src/sandbox/protect/tool_writes.rs", 2, STATUS),
    ("src/sandbox/protect/watched.rs", 1, STATUS),
    ("src/sandbox/root_places.rs", 2, FOLLOWED_UP),
    ("src/sandbox/run.rs", 1, "the working directory, compared by identity in the sandbox"),
    ("src/sandbox/seccomp.rs", 1, STATUS),
    (
        "src/sandbox/temporary.rs",
        13,
        "the session's folder; of what is in it, sizes and removals that follow no links",
    ),
    ("src/sandbox/trial.rs", 12, OWN),
    ("src/sandbox/trial/obstacles.rs", 1, SYSTEM),
    ("src/sandbox/watchdog.rs", 2, SYSTEM),
    (
        "src/sandbox/unsandboxed.rs",
        10,
        "the record in the state folder, and paths that count only if they resolve outside of all \
         roots",
    ),
    ("src/tools/atomic_write.rs", 4, OWN),
    (
        "src/tools/bash/links.rs",
        5,
        "a judgement before the command, which the sandbox confines in any case",
    ),
    (
        "src/tools/bash/links/resolver.rs",
        1,
        "a judgement before the command, which the sandbox confines in any case",
    ),
    (
        "src/tools/bash/secrets.rs",
        1,
        "a judgement before the command, to which the sandbox shows what it decides itself",
    ),
    ("src/tools/committed_secrets.rs", 1, STATUS),
    ("src/tools/jobs/page.rs", 1, OWN),
    ("src/tools/listing.rs", 1, STATUS),
    ("src/tools/read_file.rs", 1, OWN),
    ("src/tools/workspace.rs", 2, "the roots, when a session begins"),
    (
        "src/tools/workspace/links.rs",
        1,
        "a search for names of secrets, beside those that are registered by identity",
    ),
    ("src/tools/workspace/repositories.rs", 1, STATUS),
    ("src/tools/worktree.rs", 9, OWN),
    (
        "src/tools/worktree/changes.rs",
        1,
        "names, each of which is looked up beneath the descriptor of the worktree",
    ),
    ("src/tools/worktree/git.rs", 7, FOLLOWED_UP),
    ("src/tools/worktree/merged_state.rs", 4, OWN),
    ("src/tools/worktree/snapshot.rs", 8, "the new worktree, in which no command runs yet"),
    ("src/wiring/authority.rs", 1, STATUS),
    ("src/wiring/clock.rs", 1, SYSTEM),
    ("src/wiring/isolated_workspaces.rs", 3, FOLLOWED_UP),
];

#[test]
fn paths_that_commands_can_swap_are_opened_by_descriptor() {
    let mut offences = Vec::new();
    let files = FOLDERS.into_iter().flat_map(rust_files).map(|path| path.display().to_string());
    for file in files.filter(|file| !is_test(file)) {
        let text = read(&file);
        let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let calls = |line: &str| CALLS.iter().map(|call| line.matches(call).count()).sum::<usize>();
        let lines: Vec<_> = code(text).filter(|(_, line)| calls(line) > 0).collect();
        let found: usize = lines.iter().map(|(_, line)| calls(line)).sum();
        let expected = REASONS.iter().find(|(name, ..)| *name == file).map_or(0, |row| row.1);
        if found != expected {
            offences.push(format!("{file}: {found} calls instead of {expected}"));
            let shown = |(number, line): &(usize, &str)| format!("    {number}: {}", line.trim());
            offences.extend(lines.iter().map(shown));
        }
    }
    let is_gone = |file: &&str| !super::root().join(file).exists();
    let gone = REASONS.iter().map(|(file, ..)| *file).filter(is_gone);
    offences.extend(gone.map(|file| format!("{file} does not exist")));
    assert_none(
        &offences,
        "Use `posse_base::resolved_path` (`open`, `open_beneath`), `Located` of the workspace, or \
         `Root` of `src/sandbox/protect/place.rs`, and examine the opened file. If a call by name \
         is harmless, give its file a row with the reason in `tests/it/tidy/by_name.rs`.",
    );
}

fn is_test(file: &str) -> bool {
    file.contains("/tests/") || file.ends_with("/tests.rs") || file.ends_with("/testing.rs")
}
