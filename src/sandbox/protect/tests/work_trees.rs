//! Work trees that a setting of git names, and links in their place.

use super::*;

/// Settings of a repository with its work tree at `path`.
fn with_tree(path: &str) -> String {
    format!("[core]\n\tbare = false\n\tworktree = {path}\n")
}

/// A repository of a submodule at `git`, whose work tree is `path` from there.
fn submodule(root: &Path, git: &str, path: &str) {
    repository(&root.join(git));
    write(root, &format!("{git}/config"), &with_tree(path));
    let tree = root.join(git).join(path);
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join(".git"), format!("gitdir: {}\n", root.join(git).display())).unwrap();
}

#[test]
fn new_repository_names_no_work_tree_elsewhere() {
    for path in ["../../lnk", "../../tree", "../../src/../lnk", ".."] {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| {
            symlink("/tmp", root.join("lnk")).unwrap();
            fs::create_dir(root.join("tree")).unwrap();
            repository(&root.join("sub/.git"));
            write(root, "sub/.git/config", &with_tree(path));
        });
        assert_eq!(world.read("sub/.git/config"), "[core]\n\tbare = false\n", "{findings:?}");
        assert_eq!(findings.len(), 1, "{findings:?}");
    }
}

#[test]
fn work_tree_of_a_new_submodule_stays_without_a_link_on_the_way() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        repository(&root.join("n/.git"));
        submodule(root, "n/.git/modules/s", "../../../s");
        submodule(root, "n/.git/modules/d/e", "../../../../d/e");
        submodule(root, "n/.git/modules/s/modules/t", "../../../../../s/t");
    });
    assert!(findings.iter().all(|finding| finding.action == ProtectAction::Left), "{findings:?}");
    assert!(world.read("n/.git/modules/s/config").contains("worktree"));
    assert!(world.read("n/.git/modules/d/e/config").contains("worktree"));
    assert!(world.read("n/.git/modules/s/modules/t/config").contains("worktree"));
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        repository(&root.join("n/.git"));
        symlink("/tmp", root.join("n/s")).unwrap();
        repository(&root.join("n/.git/modules/s"));
        write(root, "n/.git/modules/s/config", &with_tree("../../../s"));
    });
    assert!(!world.read("n/.git/modules/s/config").contains("worktree"), "{findings:?}");
}

#[test]
fn link_in_place_of_a_work_tree_is_moved_aside_if_it_leads_elsewhere() {
    for target in ["/tmp", "../.git", "other", "src"] {
        for is_new in [true, false] {
            let prepare = |root: &Path| {
                repository(&root.join("n/.git"));
                submodule(root, "n/.git/modules/s", "../../../d/s");
            };
            let world = ProtectedWorkspace::with(|root| {
                symlink("/", root.join("other")).unwrap();
                if !is_new {
                    prepare(root);
                }
            });
            if is_new {
                world.after(prepare);
            }
            let findings = world.after(|root| {
                fs::remove_dir_all(root.join("n/d/s")).unwrap();
                fs::remove_dir(root.join("n/d")).unwrap();
                symlink(root.join(target), root.join("n/d")).unwrap();
            });
            let is_there = world.exists("n/d");
            assert_eq!(is_there, target == "src", "{target} {findings:?}");
            if !is_there {
                let path = world.root.join("n/d");
                let is_found = |finding: &Finding| {
                    finding.path == path && matches!(finding.action, ProtectAction::MovedAside(_))
                };
                assert!(findings.iter().any(is_found), "{target} {findings:?}");
            }
        }
    }
}

#[test]
fn link_of_the_user_to_a_work_tree_stays() {
    let world = ProtectedWorkspace::with(|root| {
        symlink("/tmp", root.join("lnk")).unwrap();
        repository(&root.join("sub/.git"));
        write(root, "sub/.git/config", &with_tree("../../lnk"));
    });
    assert_eq!(world.after(|root| write(root, "src/x", "")), []);
    assert!(world.exists("lnk"));
    let findings = world.after(|root| {
        fs::remove_file(root.join("lnk")).unwrap();
        symlink("/var", root.join("lnk")).unwrap();
    });
    assert!(!world.exists("lnk"), "{findings:?}");
}

#[test]
fn link_on_the_way_from_a_pointer_is_moved_aside_if_it_leads_outside() {
    let elsewhere = tempfile::tempdir().unwrap();
    repository(&elsewhere.path().join("r"));
    for path in [".git/worktrees/a", "real/r"] {
        let world = ProtectedWorkspace::with(|root| {
            repository(&root.join(path));
            write(root, "p/.git", &format!("gitdir: ../{path}\n"));
            write(root, "q/.git", "gitdir: ../.git/worktrees/q\n");
            write(root, ".git/worktrees/q/HEAD", "ref: refs/heads/main\n");
            write(root, ".git/worktrees/q/commondir", "../..\n");
            let dot_git = format!("{}\n", root.join("q/.git").display());
            write(root, ".git/worktrees/q/gitdir", &dot_git);
        });
        let findings = world.after(|root| {
            if path == "real/r" {
                fs::rename(root.join("real"), root.join("old")).unwrap();
                symlink(elsewhere.path(), root.join("real")).unwrap();
            }
            fs::rename(root.join("q"), root.join("old-q")).unwrap();
            symlink(elsewhere.path(), root.join("q")).unwrap();
        });
        assert!(!world.exists("q"), "{path} {findings:?}");
        let is_real = |target: PathBuf| target == elsewhere.path();
        assert!(!fs::read_link(world.root.join("real")).is_ok_and(is_real), "{path} {findings:?}");
    }
}
