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
    let world = ProtectedWorkspace::new();
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
