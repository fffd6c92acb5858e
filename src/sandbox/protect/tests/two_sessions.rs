//! Commands of two sessions in one workspace.

use super::*;
use crate::protect::place::next_tick;

/// Two sessions in one workspace.
fn two_sessions() -> (ProtectedWorkspace, Arc<Protection>) {
    let mut world = ProtectedWorkspace::with(|root| write(root, ".envrc", "the user's\n"));
    let (first, second) = (another(&world, "one"), another(&world, "two"));
    world.protection = first;
    next_tick(world.root.parent().unwrap());
    (world, second)
}

/// Another session in the workspace of `world`.
fn another(world: &ProtectedWorkspace, name: &str) -> Arc<Protection> {
    let base = world.root.parent().unwrap();
    let quarantine = base.join(name).join("quarantine");
    let roots = std::slice::from_ref(&world.root);
    let protection = Protection::new(roots, Vec::new(), None, Vec::new(), quarantine).unwrap();
    Arc::new(protection.marking(base.join("running")))
}

#[test]
fn file_made_by_a_command_of_another_session_is_not_restored() {
    let (world, second) = two_sessions();
    let theirs = second.survey();
    write(&world.root, "d/evil", "evil");
    symlink("d", world.root.join(".hg")).unwrap();
    write(&world.root, ".mcp.json", "evil");
    write(&world.root, ".git/config", "[alias]\n\tstatus = !evil\n");
    let ours = world.protection.survey();
    let found = second.check_after(theirs);
    assert_eq!(found.len(), 3, "{found:?}");
    write(&world.root, ".vscode/tasks.json", "changed by our command");
    let found = world.protection.check_after(ours);
    let paths: Vec<PathBuf> = found.iter().map(|finding| finding.path.clone()).collect();
    assert!(!world.exists(".hg") && !world.exists(".mcp.json"), "{found:?}");
    assert!(!world.read(".git/config").contains("evil"), "{found:?}");
    // An item that did not change while the other command ran is restored.
    assert!(paths.contains(&world.root.join(".vscode/tasks.json")), "{found:?}");
    assert_eq!(world.read(".vscode/tasks.json"), "{}\n");
    // Without a running command elsewhere, every item is restored.
    next_tick(world.root.parent().unwrap());
    let found = world.after(|root| fs::remove_file(root.join(".envrc")).unwrap());
    assert_eq!((found.len(), world.exists(".envrc")), (1, true), "{found:?}");
}

#[test]
fn folder_that_another_session_moves_is_not_held_by_mounts() {
    for ends_before in [false, true] {
        let (world, second) = two_sessions();
        write(&world.root, "app/.envrc", "mine");
        next_tick(world.root.parent().unwrap());
        let mut ours = world.protection.survey();
        ours.held = ProtectionMethod::ByMounts;
        // It begins after our survey. Our mounts come when the folder is away.
        let mut theirs = second.survey();
        theirs.held = ProtectionMethod::ByMounts;
        fs::rename(world.root.join("app"), world.root.join("aside")).unwrap();
        write(&world.root, "aside/.envrc", "planted");
        fs::rename(world.root.join("aside"), world.root.join("app")).unwrap();
        let mut findings = Vec::new();
        if ends_before {
            findings.extend(second.check_after(theirs));
            findings.extend(world.protection.check_after(ours));
        } else {
            findings.extend(world.protection.check_after(ours));
            findings.extend(second.check_after(theirs));
        }
        assert_eq!(world.read("app/.envrc"), "mine", "{findings:?}");
        assert!(!findings.is_empty());
    }
}

#[test]
fn repository_that_another_session_moves_back_stays_there() {
    let (world, second) = two_sessions();
    let theirs = second.survey();
    fs::rename(world.root.join(".git"), world.root.join("a/.git")).unwrap();
    let ours = world.protection.survey();
    second.check_after(theirs);
    assert!(world.exists(".git") && !world.exists("a/.git"));
    let found = world.protection.check_after(ours);
    assert!(world.exists(".git") && !world.exists("a/.git"), "{found:?}");
}

#[test]
fn change_of_what_another_session_may_have_made_is_reported() {
    let (world, second) = two_sessions();
    let theirs = second.survey();
    write(&world.root, ".envrc", "of the user or of the other command\n");
    let ours = world.protection.survey();
    write(&world.root, ".envrc", "of our command\n");
    let found = world.protection.check_after(ours);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (&found[0].what, &found[0].action),
        (&ProtectedChange::Changed, &ProtectAction::Left)
    );
    second.check_after(theirs);
    assert_eq!(world.read(".envrc"), "the user's\n");
}

#[test]
fn removal_of_what_another_session_may_have_made_is_reported() {
    for removed in [".mcp.json", ".cargo"] {
        let (world, second) = two_sessions();
        let theirs = second.survey();
        write(&world.root, ".mcp.json", "of the user or of the other command\n");
        write(&world.root, ".cargo/config.toml", "of the user or of the other command\n");
        let ours = world.protection.survey();
        let path = world.root.join(removed);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
        let found = world.protection.check_after(ours);
        assert_eq!(found.len(), 1, "{removed}: {found:?}");
        assert!(found[0].path.starts_with(&path), "{found:?}");
        assert_eq!(
            (&found[0].what, &found[0].action),
            (&ProtectedChange::Removed, &ProtectAction::Left)
        );
        assert!(!world.exists(removed), "{found:?}");
        second.check_after(theirs);
    }
}

#[test]
fn known_file_that_a_command_of_another_session_changed_and_moved_back_is_not_restored() {
    let (world, second) = two_sessions();
    let at = |name: &str| world.root.join(name);
    write(&world.root, ".cargo/config.toml", "the user's\n");
    next_tick(world.root.parent().unwrap());
    assert_eq!(world.after(|_| {}), []);
    // The file has no protected name at the moment of the check.
    let theirs = second.survey();
    fs::rename(at(".cargo"), at("old")).unwrap();
    fs::write(at("old/config.toml"), "evil").unwrap();
    second.check_after(theirs);
    assert_eq!(world.read(".cargo/config.toml"), "the user's\n");
    next_tick(world.root.parent().unwrap());
    let theirs = second.survey();
    fs::rename(at(".cargo"), at("gone")).unwrap();
    fs::rename(at("old"), at(".cargo")).unwrap();
    let ours = world.protection.survey();
    second.check_after(theirs);
    assert_eq!(world.read(".cargo/config.toml"), "the user's\n");
    let found = world.protection.check_after(ours);
    assert_eq!(world.read(".cargo/config.toml"), "the user's\n", "{found:?}");
}

#[test]
fn known_git_files_are_restored_although_another_session_changes_their_folder() {
    let (world, second) = two_sessions();
    // A survey from before the other command.
    assert_eq!(world.after(|_| {}), []);
    next_tick(world.root.parent().unwrap());
    let theirs = second.survey();
    write(&world.root, ".git/index.lock", "");
    fs::remove_file(world.root.join(".git/index.lock")).unwrap();
    let found = world.after(|root| {
        write(root, ".git/config", "[alias]\n\tstatus = !evil\n");
        write(root, ".git/hooks/post-commit", "evil");
    });
    assert!(!world.read(".git/config").contains("evil"), "{found:?}");
    assert!(!world.exists(".git/hooks/post-commit"), "{found:?}");
    let found = world.after(|root| fs::rename(root.join(".git"), root.join("a/.git")).unwrap());
    assert!(world.exists(".git") && !world.exists("a/.git"), "{found:?}");
    // A folder that was moved there has the times of its old place.
    write(&world.root, "old/config.toml", "of the user or of the other command\n");
    second.check_after(theirs);
    assert_eq!(world.after(|_| {}), []);
    next_tick(world.root.parent().unwrap());
    let theirs = second.survey();
    fs::rename(world.root.join("old"), world.root.join(".cargo")).unwrap();
    let ours = world.protection.survey();
    second.check_after(theirs);
    assert!(!world.exists(".cargo/config.toml"));
    world.protection.check_after(ours);
    assert!(!world.exists(".cargo/config.toml"));
}

#[test]
fn command_that_was_not_checked_because_posse_was_killed_is_reported_by_the_next_session() {
    let (mut world, second) = two_sessions();
    write(&world.root, "old/config.toml", "[alias]\nb = \"!evil\"\n");
    next_tick(world.root.parent().unwrap());
    let theirs = second.survey();
    write(&world.root, ".git/hooks/post-commit", "evil");
    // As each command of git does.
    write(&world.root, ".git/index.lock", "");
    fs::remove_file(world.root.join(".git/index.lock")).unwrap();
    write(&world.root, "app/.envrc", "evil");
    fs::rename(world.root.join("old"), world.root.join(".cargo")).unwrap();
    // As if the process had been killed: nothing is checked, and the lock is free.
    let Survey { protection, .. } = &theirs;
    assert!(protection.is_some());
    second.lock().marks = None;
    drop((theirs, second));
    // A session that is killed before its first check reports nothing, and loses nothing.
    let next = another(&world, "three");
    let killed = std::mem::replace(&mut world.protection, next);
    let survey = killed.survey();
    killed.lock().marks = None;
    drop((survey, killed));
    let survey = world.protection.survey();
    let found = world.protection.check_after(survey);
    let mut reported: Vec<&Path> = found
        .iter()
        .filter(|finding| finding.what == ProtectedChange::Unchecked)
        .map(|finding| finding.path.strip_prefix(&world.root).unwrap())
        .collect();
    reported.sort();
    let expected = [".cargo/config.toml", ".git", ".git/hooks", "app/.envrc"];
    assert_eq!(reported, expected.map(Path::new), "{found:?}");
    assert_eq!(found.len(), reported.len(), "{found:?}");
    assert!(world.exists("app/.envrc"), "its earlier state is unknown");
    let text = found.last().unwrap().to_string();
    let expected = "app/.envrc has changed since a command started that was not checked, because \
                    posse ended before: check it before a program is started in that folder";
    assert!(text.ends_with(expected), "{text}");
    // Once is enough.
    assert_eq!(world.after(|_| {}), []);
    let again = another(&world, "four");
    let survey = again.survey();
    assert_eq!(again.check_after(survey), []);
}
