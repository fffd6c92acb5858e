//! Permitted writes of posse's own tools during commands are expected afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

impl ProtectedWorkspace {
    /// Writes as a tool with permission.
    fn allowed(&self, path: &str, text: &str) {
        let mut writing = self.protection.written.begin_write();
        write(&self.root, "unnamed", text);
        let (from, to) = (self.root.join("unnamed"), self.root.join(path));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(from, &to).unwrap();
        let metadata = fs::metadata(&to).unwrap();
        writing.wrote(&to, &metadata, metadata.permissions().mode(), text.as_bytes());
    }

    fn allowed_to_remove(&self, path: &str) {
        let mut writing = self.protection.written.begin_write();
        fs::remove_file(self.root.join(path)).unwrap();
        writing.removed(&self.root.join(path));
    }
}

/// Paths and kinds of findings, without their handling.
fn told(findings: &[Finding], root: &Path) -> Vec<(String, ProtectedChange)> {
    let below = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
    findings.iter().map(|finding| (below(&finding.path), finding.what.clone())).collect()
}

#[test]
fn user_change_stays() {
    for held in [ProtectionMethod::ByCheck, ProtectionMethod::ByMounts] {
        let world = ProtectedWorkspace::with(|root| {
            write(root, ".git/config", "[core]\n\thooksPath = tools/hooks\n");
            write(root, "tools/hooks/pre-push", "one\n");
        });
        let findings = world.after_held(held, |_| {
            world.allowed("CLAUDE.md", "first\n");
            world.allowed("CLAUDE.md", "second\n");
            world.allowed("AGENTS.md", "other words\n");
            world.allowed(".vscode/settings.json", "{}\n");
            world.allowed(".vscode/deep/er/x.json", "{}\n");
            world.allowed(".claude/commands/do.md", "do it\n");
            world.allowed("web/.cursor/rules/a.mdc", "be kind\n");
            world.allowed("tools/hooks/pre-push", "two\n");
            world.allowed("src/main.rs", "fn main() { }\n");
            world.allowed_to_remove(".vscode/tasks.json");
            world.allowed(".cursor/rules/a.mdc", "be kind\n");
            world.allowed_to_remove(".cursor/rules/a.mdc");
        });
        assert_eq!(findings, [], "{held:?}");
        for (path, text) in [
            ("CLAUDE.md", "second\n"),
            ("AGENTS.md", "other words\n"),
            (".vscode/settings.json", "{}\n"),
            (".vscode/deep/er/x.json", "{}\n"),
            (".claude/commands/do.md", "do it\n"),
            ("web/.cursor/rules/a.mdc", "be kind\n"),
            ("tools/hooks/pre-push", "two\n"),
        ] {
            assert_eq!(world.read(path), text, "{held:?}");
        }
        assert!(!world.exists(".vscode/tasks.json") && !world.quarantine.exists(), "{held:?}");
        // From now on it is protected like every other file.
        let findings = world.after(|root| write(root, "CLAUDE.md", "planted\n"));
        assert_eq!(
            told(&findings, &world.root),
            [("CLAUDE.md".to_owned(), ProtectedChange::Changed)]
        );
        assert_eq!(world.read("CLAUDE.md"), "second\n");
    }
}

/// With mounts on the old file: the replaced file behaves the same.
fn on(
    act: impl Fn(&ProtectedWorkspace),
    told_of: &[(&str, ProtectedChange)],
    then: &[(&str, &str)],
) {
    for held in [ProtectionMethod::ByCheck, ProtectionMethod::ByMounts] {
        let world = ProtectedWorkspace::new();
        let findings = world.after_held(held, |_| act(&world));
        let wanted = told_of.iter().map(|(at, what)| ((*at).to_owned(), what.clone()));
        assert_eq!(told(&findings, &world.root), wanted.collect::<Vec<_>>(), "{held:?}");
        for (path, text) in then {
            if text.is_empty() {
                assert!(!world.exists(path), "{held:?} {path}");
            } else {
                assert_eq!(world.read(path), *text, "{held:?} {path}");
            }
        }
    }
}

#[test]
fn user_change_is_restored_after_a_command_changes_it() {
    on(
        |world| {
            world.allowed("AGENTS.md", "allowed\n");
            write(&world.root, "AGENTS.md", "planted\n");
        },
        &[("AGENTS.md", ProtectedChange::Changed)],
        &[("AGENTS.md", "allowed\n")],
    );
    on(
        |world| {
            world.allowed("CLAUDE.md", "allowed\n");
            fs::remove_file(world.root.join("CLAUDE.md")).unwrap();
        },
        &[("CLAUDE.md", ProtectedChange::Removed)],
        &[("CLAUDE.md", "allowed\n")],
    );
    on(
        |world| {
            world.allowed("CLAUDE.md", "allowed\n");
            let run = fs::Permissions::from_mode(0o755);
            fs::set_permissions(world.root.join("CLAUDE.md"), run).unwrap();
        },
        &[("CLAUDE.md", ProtectedChange::Changed)],
        &[("CLAUDE.md", "allowed\n")],
    );
    // A file removed with permission must not be created by a command.
    on(
        |world| {
            world.allowed_to_remove("AGENTS.md");
            write(&world.root, "AGENTS.md", "planted\n");
        },
        &[("AGENTS.md", ProtectedChange::Created)],
        &[("AGENTS.md", "")],
    );
    // A permitted write over a planted file is permitted.
    on(
        |world| {
            write(&world.root, "CLAUDE.md", "planted\n");
            world.allowed("CLAUDE.md", "allowed\n");
        },
        &[],
        &[("CLAUDE.md", "allowed\n")],
    );
}

#[test]
fn user_file_is_restored_with_its_folder_and_removed_with_it() {
    on(
        |world| {
            world.allowed(".claude/settings.json", "{}\n");
            write(&world.root, ".claude/settings.json", "planted\n");
            write(&world.root, ".claude/hooks.json", "planted\n");
        },
        &[
            (".claude/hooks.json", ProtectedChange::Created),
            (".claude/settings.json", ProtectedChange::Changed),
        ],
        &[(".claude/settings.json", "{}\n"), (".claude/hooks.json", "")],
    );
    on(
        |world| {
            world.allowed(".claude/settings.json", "{}\n");
            fs::remove_dir_all(world.root.join(".claude")).unwrap();
        },
        &[(".claude", ProtectedChange::Removed)],
        &[(".claude/settings.json", "{}\n")],
    );
    on(
        |world| {
            world.allowed("web/CLAUDE.md", "allowed\n");
            fs::rename(world.root.join("web"), world.root.join("site")).unwrap();
        },
        &[],
        &[("site/CLAUDE.md", "allowed\n")],
    );
}

#[test]
fn large_user_file_is_not_stored() {
    let big = "x".repeat(2 << 20);
    on(|world| world.allowed("CLAUDE.md", &big), &[], &[("CLAUDE.md", &big)]);
    // There is no copy to restore.
    on(
        |world| {
            world.allowed("CLAUDE.md", &big);
            write(&world.root, "CLAUDE.md", "planted\n");
        },
        &[("CLAUDE.md", ProtectedChange::Changed), ("CLAUDE.md", ProtectedChange::Removed)],
        &[("CLAUDE.md", "")],
    );
}

#[test]
fn user_change_applies_to_concurrent_commands_only() {
    let world = ProtectedWorkspace::new();
    let first = world.protection.survey();
    world.allowed("CLAUDE.md", "allowed\n");
    let second = world.protection.survey();
    assert_eq!(world.protection.check_after(second), []);
    write(&world.root, "GEMINI.md", "planted\n");
    let findings = world.protection.check_after(first);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].whose, Whose::AnyOfSeveral);
    assert!(findings[0].to_string().contains(
        "GEMINI.md is protected and was created while this command ran, and others did, so it may \
         be the work of any; it was moved to "
    ));
    assert_eq!(world.read("CLAUDE.md"), "allowed\n");
    // The user may remove it.
    fs::remove_file(world.root.join("CLAUDE.md")).unwrap();
    let findings = world.after(|root| write(root, "GEMINI.md", "planted\n"));
    assert_eq!(told(&findings, &world.root), [("GEMINI.md".to_owned(), ProtectedChange::Created)]);
    assert_eq!(findings[0].whose, Whose::This);
    assert!(!world.exists("CLAUDE.md"));
}

#[test]
fn user_change_survives_abandoned_commands() {
    let world = ProtectedWorkspace::new();
    let survey = world.protection.survey();
    drop(survey);
    world.allowed("CLAUDE.md", "allowed\n");
    world.protection.check_given_up(false);
    world.allowed("AGENTS.md", "allowed\n");
    write(&world.root, "GEMINI.md", "planted\n");
    world.protection.check_given_up(true);
    let findings = world.after(|_| {});
    assert_eq!(told(&findings, &world.root), [("GEMINI.md".to_owned(), ProtectedChange::Created)]);
    assert_eq!(findings[0].whose, Whose::Earlier);
    assert_eq!((world.read("CLAUDE.md"), world.read("AGENTS.md")), {
        let text = || "allowed\n".to_owned();
        (text(), text())
    });
}

/// Concurrent writers and commands: no scan sees a change without its record.
#[test]
fn user_change_is_never_removed_temporarily() {
    let world = ProtectedWorkspace::new();
    let is_over = AtomicBool::new(false);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let commands = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut findings = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    findings.extend(world.after(|_| std::thread::yield_now()));
                }
                findings
            })
        });
        for number in 0..300 {
            let text = format!("{number}\n");
            for path in ["AGENTS.md", "CLAUDE.md", ".claude/settings.json"] {
                world.allowed(path, &text);
            }
            if number % 3 == 0 {
                world.allowed_to_remove("CLAUDE.md");
                world.allowed_to_remove(".claude/settings.json");
                world.allowed("CLAUDE.md", &text);
                world.allowed(".claude/settings.json", &text);
            }
            for path in ["AGENTS.md", "CLAUDE.md", ".claude/settings.json"] {
                assert_eq!(world.read(path), text);
            }
            assert!(begin.elapsed() < Duration::from_mins(1), "{number}");
        }
        is_over.store(true, Ordering::Relaxed);
        for command in commands {
            assert_eq!(command.join().unwrap(), []);
        }
    });
    assert!(!world.quarantine.exists());
}

/// A command that turns its folder into a repository gives an ordinary file, which was written
/// without a question, another meaning.
#[test]
fn ordinary_file_does_not_become_a_permitted_setting() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        world.allowed("sub/config", "[core]\n\tfsmonitor = evil\n");
        fs::create_dir_all(root.join("sub/refs")).unwrap();
        fs::create_dir(root.join("sub/objects")).unwrap();
        write(root, "sub/HEAD", "ref: refs/heads/main\n");
        write(root, "proj/.git", "gitdir: ../sub\n");
    });
    assert_eq!(world.read("sub/config"), "[core]\n", "{findings:?}");
}
