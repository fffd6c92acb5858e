//! `gitdir` of linked worktrees.

use super::git_folder::git;
use super::*;

/// Workspace with a repository of real git, which has a linked worktree in the workspace and another
/// one beside it.
fn workspace() -> ProtectedWorkspace {
    ProtectedWorkspace::with(|root| {
        fs::remove_dir_all(root.join(".git")).unwrap();
        fs::remove_dir_all(root.join("a")).unwrap();
        assert!(git(root, &["init", "-q", "-b", "main"]));
        assert!(git(root, &["commit", "-qm", "c", "--allow-empty"]));
        assert!(git(root, &["worktree", "add", "-q", "inside"]));
        assert!(git(root, &["worktree", "add", "-q", "../outside"]));
    })
}

fn paths(findings: &[Finding], root: &Path) -> Vec<String> {
    let shown = |finding: &Finding| finding.path.strip_prefix(root).unwrap().display().to_string();
    let mut paths: Vec<String> = findings.iter().map(shown).collect();
    paths.sort();
    paths
}

/// Path of a `gitdir` below the workspace.
fn path_of(worktree: &str) -> String {
    format!(".git/worktrees/{worktree}/gitdir")
}

#[test]
fn changed_path_of_a_linked_worktree_is_put_back() {
    for worktree in ["inside", "outside"] {
        let world = workspace();
        let before = world.read(&path_of(worktree));
        let victim = world.root.with_file_name("victim");
        fs::create_dir(&victim).unwrap();
        let findings = world.after(|root| {
            write(root, &path_of(worktree), &format!("{}/.git\n", victim.display()));
        });
        assert_eq!(paths(&findings, &world.root), [path_of(worktree)]);
        assert!(matches!(findings[0].action, ProtectAction::Restored(Some(_))), "{findings:?}");
        assert_eq!(world.read(&path_of(worktree)), before);
        let findings = world.after(|root| fs::remove_file(root.join(path_of(worktree))).unwrap());
        assert_eq!(paths(&findings, &world.root), [path_of(worktree)]);
        assert_eq!(world.read(&path_of(worktree)), before);
        assert!(git(&world.root, &["worktree", "repair"]));
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    }
}

#[test]
fn worktree_outside_is_not_replaced_by_one_in_the_workspace() {
    let world = workspace();
    let before = world.read(&path_of("outside"));
    let findings = world.after(|root| {
        write(root, &path_of("outside"), &format!("{}/forged/.git\n", root.display()));
        let back = root.join(".git/worktrees/outside");
        write(root, "forged/.git", &format!("gitdir: {}\n", back.display()));
    });
    assert_eq!(paths(&findings, &world.root), [path_of("outside")]);
    assert_eq!(world.read(&path_of("outside")), before);
}

#[test]
fn path_of_a_new_worktree_must_lead_to_one_that_leads_back() {
    let world = workspace();
    let base = world.root.parent().unwrap().to_owned();
    let at = |path: &str| base.join(path).display().to_string();
    fs::create_dir(base.join("victim")).unwrap();
    write(&base, "victim2/.git", &format!("gitdir: {}\n", at("ws/.git/worktrees/k")));
    symlink(base.join("victim2"), world.root.join("link")).unwrap();
    fs::create_dir(world.root.join("plain")).unwrap();
    let mut texts = vec![
        at("victim/.git"),
        at("victim2/.git"),
        at("ws/link/.git"),
        at("ws/link/../victim2/.git"),
        at("ws/plain/.git"),
        at("ws/inside/.git"),
        at("ws/../victim2/.git"),
        "../../../../victim2/.git".to_owned(),
        at("ws/good"),
        format!("{} ", at("ws/good/.git")),
        format!("{}\n{}", at("victim2"), at("ws/good/.git")),
        String::new(),
    ];
    let forged = ".git/worktrees/k/gitdir";
    for with_head in [false, true] {
        for text in &texts {
            let findings = world.after(|root| {
                if with_head {
                    write(root, ".git/worktrees/k/HEAD", "ref: refs/heads/main\n");
                    write(root, ".git/worktrees/k/commondir", "../..\n");
                }
                write(root, forged, &format!("{text}\n"));
                let back = root.join(".git/worktrees/k");
                write(root, "good/.git", &format!("gitdir: {}\n", back.display()));
            });
            assert_eq!(paths(&findings, &world.root), [forged], "{text}");
            assert!(matches!(findings[0].action, ProtectAction::MovedAside(_)), "{findings:?}");
            assert!(!world.exists(forged), "{text}");
        }
    }
    texts = vec![at("ws/good/.git"), "../../../good/.git".to_owned()];
    for text in texts {
        assert_eq!(world.after(|root| write(root, forged, &format!("{text}\n"))), [], "{text}");
        fs::remove_file(world.root.join(forged)).unwrap();
    }
}

#[test]
fn forged_worktree_of_a_repository_of_another_name_is_moved_aside() {
    let world = ProtectedWorkspace::with(|root| {
        repository(&root.join("bare"));
        repository(&root.join(".git/modules/sub"));
    });
    for folder in ["bare/worktrees/k", ".git/worktrees/refs", ".git/modules/sub/worktrees/k"] {
        let findings = world.after(|root| {
            write(root, ".git/worktrees/HEAD", "ref: refs/heads/main\n");
            write(root, ".git/worktrees/objects/x", "");
            write(root, &format!("{folder}/gitdir"), "/home/victim/.git\n");
        });
        let found = paths(&findings, &world.root);
        assert!(found.contains(&format!("{folder}/gitdir")), "{found:?}");
        assert!(!world.exists(&format!("{folder}/gitdir")), "{folder}");
    }
}

#[test]
fn commands_of_git_for_worktrees_work_unreported() {
    let world = workspace();
    let temporary = world.root.with_file_name("tmp");
    fs::create_dir(&temporary).unwrap();
    world.protection.also_scan(temporary);
    for command in [
        &["add", "-q", "new"][..],
        &["add", "-q", "../tmp/t"],
        &["move", "new", "new2"],
        &["move", "inside", "inside2"],
        &["move", "../tmp/t", "t2"],
        &["lock", "new2"],
        &["unlock", "new2"],
        &["repair"],
        &["remove", "new2"],
        &["remove", "inside2"],
    ] {
        let findings = world.after(|root| {
            assert!(git(root, &[&["worktree"], command].concat()), "{command:?}");
        });
        assert_eq!(findings, [], "{command:?}");
    }
    let findings = world.after(|root| {
        fs::remove_dir_all(root.join("t2")).unwrap();
        assert!(git(root, &["worktree", "prune"]));
    });
    assert_eq!(findings, []);
    assert!(!world.exists(".git/worktrees/t") && world.exists(".git/worktrees/outside"));
}
