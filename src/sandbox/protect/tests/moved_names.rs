//! Protected files and repositories that get another place or name.

use super::*;

/// Findings about `path`, below the root.
fn about<'a>(world: &ProtectedWorkspace, findings: &'a [Finding], path: &str) -> Vec<&'a Finding> {
    findings.iter().filter(|finding| finding.path == world.root.join(path)).collect()
}

#[test]
fn many_moved_repositories_hide_no_other_change() {
    const COUNT: usize = 12;
    let world = ProtectedWorkspace::with(|root| {
        for at in 0..COUNT {
            repository(&root.join(format!("n{at:02}/.git")));
        }
    });
    let findings = world.after(|root| {
        // Each repository is inside the previous one, so that it is found only when that is back.
        for at in (1..COUNT).rev() {
            let inside = root.join(format!("n{:02}/.git/x", at - 1));
            fs::rename(root.join(format!("n{at:02}/.git")), inside).unwrap();
        }
        fs::rename(root.join("n00/.git"), root.join("old")).unwrap();
        write(root, ".git/hooks/pre-commit", "evil\n");
        write(root, ".vscode/settings.json", "evil\n");
        write(root, "CLAUDE.md", "evil\n");
    });
    for at in 0..COUNT {
        let path = format!("n{at:02}/.git");
        assert!(world.exists(&format!("{path}/HEAD")), "{path}");
        let about = about(&world, &findings, &path);
        assert_eq!(about.len(), 1, "{about:?}");
        assert!(matches!(about[0].action, ProtectAction::Restored(_)), "{about:?}");
    }
    for path in [".git/hooks/pre-commit", ".vscode/settings.json", "CLAUDE.md"] {
        assert!(!world.exists(path), "{path}");
    }
    assert_eq!(world.after(|_| {}), []);
}

/// Only git's own name makes a checked-in repository one that git finds.
#[test]
fn hostile_repository_that_gets_the_name_dot_git_is_cleaned() {
    for to in ["fixtures/.git", "fixtures/.GIT"] {
        let world = ProtectedWorkspace::with(|root| {
            repository(&root.join("fixtures/bare"));
            write(root, "fixtures/bare/config", "[core]\n\tfsmonitor = evil\n");
            write(root, "fixtures/bare/hooks/pre-commit", "evil\n");
            write(root, "fixtures/bare/rebase-merge/git-rebase-todo", "exec evil\n");
        });
        let findings = world.after(|root| {
            fs::rename(root.join("fixtures/bare"), root.join(to)).unwrap();
        });
        assert_eq!(world.read(&format!("{to}/config")), "[core]\n", "{findings:?}");
        assert!(!world.exists(&format!("{to}/hooks/pre-commit")), "{findings:?}");
        assert_eq!(world.read(&format!("{to}/rebase-merge/git-rebase-todo")), "", "{findings:?}");
    }
    // With another name it stays what it was.
    let world = ProtectedWorkspace::with(|root| {
        repository(&root.join("fixtures/bare"));
        write(root, "fixtures/bare/config", "[core]\n\tfsmonitor = evil\n");
    });
    let findings = world.after(|root| {
        fs::rename(root.join("fixtures/bare"), root.join("fixtures/other")).unwrap();
    });
    assert_eq!(findings, []);
}

#[test]
fn protected_file_that_gets_another_protected_name_is_moved_aside() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, "home/.bashrc", "the user's\n");
        write(root, "home/.cargo/config.toml", "the user's\n");
        write(root, "home/.bundle/config", "the user's\n");
    });
    let findings = world.after(|root| {
        fs::rename(root.join("home/.bashrc"), root.join("home/.zshrc")).unwrap();
        fs::rename(root.join("home/.bundle"), root.join("home/.sl")).unwrap();
    });
    assert!(!world.exists("home/.zshrc") && !world.exists("home/.sl/config"), "{findings:?}");
    assert_eq!(world.read("home/.bashrc"), "the user's\n");
    assert_eq!(world.read("home/.bundle/config"), "the user's\n");
}

#[test]
fn strategies_are_read_as_git_reads_them() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".git/rebase-merge/done", "");
        write(root, ".git/sequencer/todo", "");
    });
    for (file, text, is_kept) in [
        ("rebase-merge/strategy", "ort\n", true),
        ("rebase-merge/strategy", "ort", true),
        ("rebase-merge/strategy", "evil\n", false),
        ("rebase-merge/strategy", "x=y/../../evil\n", false),
        ("rebase-merge/strategy", "strategy = ort\n", false),
        ("rebase-merge/strategy", "ort\nort\n", false),
        ("rebase-merge/strategy", " ort\n", false),
        ("sequencer/opts", "[options]\n\tedit = true\n\tstrategy = recursive\n", true),
        ("sequencer/opts", "[options] strategy = evil\n", false),
        ("sequencer/opts", "[options]\n\tstrategy = ort\n\tstrategy = evil\n", false),
        ("sequencer/opts", "[options]\nstrategy = \"evi\\\nl\"\n", false),
        ("sequencer/opts", "[OPTIONS]\nStrategy=evil\n", false),
        ("sequencer/opts", "[options]\nstrategy = ort/evil\n", false),
        ("sequencer/opts", "[options]\nstrategy = or\\x\n", false),
    ] {
        let path = format!(".git/{file}");
        let findings = world.after(|root| write(root, &path, text));
        assert_eq!(findings.is_empty(), is_kept, "{text:?} {findings:?}");
        assert_eq!(world.exists(&path), is_kept, "{text:?} {findings:?}");
        if is_kept {
            fs::remove_file(world.root.join(&path)).unwrap();
        }
    }
}

/// An entry for `path` in an index of git, version 2.
fn index_of(path: &str) -> Vec<u8> {
    let mut bytes = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
    bytes.extend([0; 24]);
    bytes.extend(0o100_755_u32.to_be_bytes());
    bytes.extend([1; 32]);
    bytes.extend(u16::try_from(path.len()).unwrap().to_be_bytes());
    bytes.extend(path.as_bytes());
    bytes.extend(vec![0; 8 - (62 + path.len()) % 8]);
    bytes.extend([0; 20]);
    bytes
}

#[test]
fn index_with_a_path_outside_the_work_tree_is_moved_aside() {
    let world = ProtectedWorkspace::with(|root| {
        fs::write(root.join(".git/index"), index_of("src/main.rs")).unwrap();
        write(root, ".git/worktrees/wt/HEAD", "ref: refs/heads/wt\n");
        write(root, ".git/worktrees/wt/commondir", "../..\n");
    });
    for file in [".git/index", ".git/worktrees/wt/index", ".git/sharedindex.0123"] {
        for path in [".git/hooks/post-checkout", "../home/.bashrc", "/etc/x"] {
            let findings = world.after(|root| fs::write(root.join(file), index_of(path)).unwrap());
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert_eq!(findings[0].what, ProtectedChange::IndexPath(path.to_owned()));
            assert!(!world.exists(file));
        }
        let findings = world.after(|root| fs::write(root.join(file), b"DIRC").unwrap());
        assert_eq!(findings[0].what, ProtectedChange::IndexPath(String::new()));
        let findings =
            world.after(|root| fs::write(root.join(file), index_of("README.md")).unwrap());
        assert_eq!(findings, [], "an ordinary one stays");
        assert!(world.exists(file));
    }
}

/// The prompt of git shows these numbers, and a shell expands what its prompt contains.
#[test]
fn numbers_of_steps_are_numbers() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".git/rebase-merge/done", "");
        write(root, ".git/rebase-apply/info", "");
    });
    for file in
        ["rebase-merge/msgnum", "rebase-merge/end", "rebase-apply/next", "rebase-apply/last"]
    {
        let path = format!(".git/{file}");
        assert_eq!(world.after(|root| write(root, &path, "12\n")), []);
        let findings = world.after(|root| write(root, &path, "$(evil)\n"));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(!world.exists(&path));
    }
}

#[test]
fn links_in_repositories_of_any_place_are_moved_aside() {
    let world = ProtectedWorkspace::with(|root| {
        repository(&root.join(".git/modules/sub"));
        repository(&root.join("store"));
        repository(&root.join("fixtures/evil"));
        write(root, "mine/.git", "gitdir: ../store\n");
        write(root, "rb/git-rebase-todo", "exec evil\n");
    });
    let links = [
        (".git/modules/sub/rebase-merge", "../../../rb"),
        (".git/modules/other", "../../fixtures/evil"),
        ("store/rebase-merge", "../rb"),
    ];
    let findings = world.after(|root| {
        for (link, target) in links {
            symlink(target, root.join(link)).unwrap();
        }
    });
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert!(links.iter().all(|(link, _)| !world.exists(link)), "{findings:?}");
}

/// Its old content is that of another file: programs read it at its new place only now.
#[test]
fn swapped_parent_folder_does_not_carry_protected_files() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".git/config", "[include]\n\tpath = ../conf/inc\n");
        write(root, "conf/inc", "[user]\n\tname = me\n");
        write(root, "pkg/.envrc", "the user's\n");
        write(root, "fixtures/pkg/.envrc", "evil\n");
        write(root, "fixtures/.envrc/x", "evil\n");
        repository(&root.join("fixtures/modules/f"));
        write(root, "fixtures/modules/f/config", "[core]\n\tfsmonitor = evil\n");
        fs::create_dir(root.join(".git/modules")).unwrap();
    });
    let findings = world.after(|root| {
        fs::rename(root.join("pkg"), root.join("old")).unwrap();
        fs::rename(root.join("fixtures/pkg"), root.join("pkg")).unwrap();
        fs::rename(root.join("fixtures/modules/f"), root.join(".git/modules/f")).unwrap();
    });
    assert_eq!(world.read("pkg/.envrc"), "the user's\n", "{findings:?}");
    assert_eq!(world.read(".git/modules/f/config"), "[core]\n", "{findings:?}");
    assert!(!about(&world, &findings, "pkg/.envrc").is_empty(), "{findings:?}");
}

#[test]
fn folders_around_referenced_files_are_pinned() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".git/config", "[include]\n\tpath = ../conf/inc\n");
        write(root, "conf/inc", "[user]\n\tname = me\n");
    });
    let survey = world.protection.survey();
    assert!(world.names(&survey.pinned).contains(&"conf".to_owned()), "{:?}", survey.pinned);
}

#[test]
fn hooks_of_new_repositories_are_reported() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".git/config", "[core]\n\thooksPath = tools/hooks\n");
    });
    let findings = world.after(|root| {
        write(root, ".git/worktrees/wt/HEAD", "ref: refs/heads/wt\n");
        write(root, ".git/worktrees/wt/commondir", "../..\n");
        write(root, ".git/worktrees/wt/gitdir", "../../../wt/.git\n");
        write(root, "wt/.git", "gitdir: ../.git/worktrees/wt\n");
        write(root, "wt/tools/hooks/pre-commit", "evil\n");
    });
    let about = about(&world, &findings, "wt/tools/hooks");
    assert_eq!(about.len(), 1, "{findings:?}");
    assert_eq!(about[0].action, ProtectAction::Left);
}

#[test]
fn mercurial_pulls_from_no_folder_of_packages() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        write(root, "node_modules/evil/.hg/hgrc", "[extensions]\ne = e.py\n");
        write(root, ".hg/hgrc", "[paths]\ndefault = node_modules/evil\n");
        write(root, ".hg/store/journal.backupfiles", "2\nplain\0hgrc\0x1\x000\0\n");
        write(root, ".hg/store/undo.backupfiles", "2\nplain\0dirstate\0undo.d\x000\0\n");
    });
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(world.exists(".hg/store/undo.backupfiles"));
}

#[test]
fn mercurial_pulls_from_no_folder_in_which_its_settings_do_not_count() {
    for address in [
        "../.git/objects/evil",
        "../.git/modules/evil",
        "../.GIT/lfs/evil",
        "$ROOT/.git/objects/evil",
        "../sub/node_modules#branch",
        // A later command can replace the folder or the link, or a variable be set.
        "../node_modules/evil",
        "../src/../evil",
        "../$X/evil",
    ] {
        let world =
            ProtectedWorkspace::with(|root| symlink("src", root.join("node_modules")).unwrap());
        let address = address.replace("$ROOT", &world.root.display().to_string());
        let settings = format!("[paths]\ndefault = {address}\n");
        let findings = world.after(|root| write(root, "h/.hg/hgrc", &settings));
        assert!(!world.exists("h/.hg/hgrc"), "{address} {findings:?}");
    }
    for address in ["../evil", "../src/evil#branch", "../../elsewhere", "/srv/.git/a", "$ROOT/evil"]
    {
        let world = ProtectedWorkspace::new();
        let address = address.replace("$ROOT", &world.root.display().to_string());
        let settings = format!("[paths]\ndefault = {address}\n");
        assert_eq!(world.after(|root| write(root, "h/.hg/hgrc", &settings)), [], "{address}");
    }
}

/// A user's git folder of a submodule without its repository, into which a command puts a `.git`.
#[test]
fn control_file_in_a_git_folder_with_a_git_of_its_own_is_found() {
    let world = ProtectedWorkspace::with(|root| {
        repository(&root.join(".git/modules/m"));
        write(root, "sub/.git", "gitdir: ../.git/modules/m\n");
    });
    let first = world.after(|root| {
        write(root, ".git/modules/m/.git/config", "[core]\n\tfsmonitor = evil\n");
    });
    assert!(!first.is_empty());
    let findings = world.after(|root| {
        write(root, "data/x.txt", "[alias]\nb = \"evil\"\n");
        fs::create_dir_all(root.join(".git/modules/m/.cargo")).unwrap();
        symlink(root.join("data/x.txt"), root.join(".git/modules/m/.cargo/config.toml")).unwrap();
    });
    assert!(!world.exists(".git/modules/m/.cargo/config.toml"), "{findings:?}");
    let findings = world.after(|root| {
        fs::create_dir_all(root.join(".git/modules/m/.cargo")).unwrap();
        write(root, ".git/modules/m/.cargo/config.toml", "evil\n");
        symlink(".git", root.join("deep")).unwrap();
    });
    assert!(!world.exists(".git/modules/m/.cargo/config.toml"), "{findings:?}");
}
