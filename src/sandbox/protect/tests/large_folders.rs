//! Protected folders that are too large or too deep to be stored.

use super::*;

fn deep(levels: usize) -> String {
    let folders: Vec<String> = (0..levels).map(|level| level.to_string()).collect();
    format!(".vscode/{}/x", folders.join("/"))
}

#[test]
fn change_in_a_deep_folder_is_reported() {
    let path = deep(17);
    let world = ProtectedWorkspace::with(|root| write(root, &path, "the user's\n"));
    assert_eq!(world.after(|_| {}), []);
    let findings = world.after(|root| {
        write(root, &path, "evil\n");
        write(root, ".vscode/tasks.json", "evil\n");
    });
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings.iter().any(|finding| finding.action == ProtectAction::Left), "{findings:?}");
    // The stored entries are restored beside it.
    assert_eq!(world.read(".vscode/tasks.json"), "{}\n");
    let created = world.after(|root| write(root, &format!("{path}2"), "evil\n"));
    assert_eq!(created.len(), 1, "{created:?}");
    let removed = world.after(|root| fs::remove_file(root.join(&path)).unwrap());
    assert_eq!(removed.len(), 1, "{removed:?}");
    assert_eq!(world.after(|_| {}), []);
}

#[test]
fn large_folder_is_never_replaced_by_a_part_of_it() {
    let world = ProtectedWorkspace::with(|root| {
        for number in 0..5001 {
            write(root, &format!(".claude/worktrees/a/{number}"), "x");
        }
        write(root, ".claude/settings.json", "the user's\n");
    });
    assert_eq!(world.after(|_| {}), []);
    let findings = world.after(|root| write(root, ".claude/worktrees/a/17", "changed"));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].action, ProtectAction::Left);
    assert_eq!(findings[0].path, world.root.join(".claude/worktrees/a"));
    assert_eq!(world.read(".claude/worktrees/a/17"), "changed");
    let left = || fs::read_dir(world.root.join(".claude/worktrees/a")).unwrap().count();
    assert_eq!(left(), 5001);
    // A command cannot avoid the restoration of small files by filling the folder.
    world.after(|root| {
        for number in 0..5001 {
            write(root, &format!(".claude/b/{number}"), "x");
        }
        write(root, ".claude/settings.json", "evil\n");
    });
    assert_eq!(world.read(".claude/settings.json"), "the user's\n");
    assert_eq!(left(), 5001);
    // A removed one cannot be restored; that is said.
    let findings = world.after(|root| fs::remove_dir_all(root.join(".claude/worktrees")).unwrap());
    let is_failed = |finding: &Finding| matches!(finding.action, ProtectAction::Failed(_));
    assert!(!findings.is_empty() && findings.iter().all(is_failed), "{findings:?}");
}
