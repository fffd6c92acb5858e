//! Findings and restoration without a sandbox.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::baseline::MOUNTS_MAX;
use super::place::Root;
use super::scan::Scan;
use super::*;

mod git_folder;
mod hidden_places;
mod large_folders;
mod linked_worktrees;
mod look_alikes;
mod moved_names;
mod nested_names;
mod pointed;
mod renamed_secrets;
mod two_sessions;
mod work_trees;
mod written;

/// Workspace with a repository, a nested repository, and files of all kinds.
struct ProtectedWorkspace {
    root: PathBuf,
    quarantine: PathBuf,
    protection: Arc<Protection>,
    _folder: TempDir,
}

/// Number of findings that were not only reported.
fn handled(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.action != ProtectAction::Left).count()
}

impl ProtectedWorkspace {
    fn new() -> ProtectedWorkspace {
        ProtectedWorkspace::with(|_| {})
    }

    fn with(prepare: impl FnOnce(&Path)) -> ProtectedWorkspace {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (root, quarantine) = (base.join("ws"), base.join("session/quarantine"));
        fs::create_dir(&root).unwrap();
        repository(&root.join(".git"));
        repository(&root.join("a/b/inner/.git"));
        write(&root, "AGENTS.md", "the user's words\n");
        write(&root, ".vscode/tasks.json", "{}\n");
        write(&root, "src/main.rs", "fn main() {}\n");
        prepare(&root);
        let protection = Protection::new(
            std::slice::from_ref(&root),
            Vec::new(),
            None,
            Vec::new(),
            quarantine.clone(),
        );
        let protection = Arc::new(protection.unwrap());
        ProtectedWorkspace { root, quarantine, protection, _folder: folder }
    }

    /// Findings after `act` changed files as a command would.
    fn after(&self, act: impl FnOnce(&Path)) -> Vec<Finding> {
        self.after_held(ProtectionMethod::ByCheck, act)
    }

    fn after_held(&self, held: ProtectionMethod, act: impl FnOnce(&Path)) -> Vec<Finding> {
        let mut survey = self.protection.survey();
        assert!(survey.complete);
        survey.held = held;
        act(&self.root);
        self.protection.check_after(survey)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_else(|error| format!("<{error}>"))
    }

    fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.root.join(path)).is_ok()
    }

    fn names(&self, paths: &[PathBuf]) -> Vec<String> {
        let shown = |path: &PathBuf| path.strip_prefix(&self.root).map(|p| p.display().to_string());
        paths.iter().filter_map(|path| shown(path).ok()).collect()
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A repository like `git init` creates it.
fn repository(at: &Path) {
    write(at, "HEAD", "ref: refs/heads/main\n");
    write(at, "config", "[core]\n\tbare = false\n");
    write(at, "hooks/pre-commit.sample", "#!/bin/sh\n");
    write(at, "objects/info/packs", "");
    write(at, "refs/heads/main", "0000\n");
}

#[test]
fn finds_existing_and_unrenamable_paths() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".env", "KEY=1\n");
        write(root, ".env.example", "KEY=\n");
        write(root, "certs/public.pem", "-----BEGIN CERTIFICATE-----\n");
        write(root, "certs/both.pem", "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n");
        write(root, "node_modules/x/AGENTS.md", "x");
        write(root, "node_modules/x/.env", "x");
        repository(&root.join("bare-one"));
    });
    let survey = world.protection.survey();
    let read_only = world.names(&survey.read_only);
    for path in [
        ".git/config",
        ".git/hooks",
        "a/b/inner/.git/config",
        "a/b/inner/.git/hooks",
        "bare-one/config",
        "AGENTS.md",
        ".vscode",
    ] {
        assert!(read_only.contains(&path.to_owned()), "{path}: {read_only:?}");
    }
    assert_eq!(read_only.len(), 8, "{read_only:?}");
    let pinned = world.names(&survey.pinned);
    assert_eq!(pinned, [".git", "a", "a/b", "a/b/inner", "a/b/inner/.git", "bare-one"]);
    assert_eq!(world.names(&survey.hidden), [".env", "certs/both.pem"]);
    assert_eq!(world.protection.secrets_inside(), survey.hidden);
}

#[test]
fn ordinary_git_changes_are_not_reported() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, "a/b/inner/.git/refs/heads/other", "0000\n");
    });
    let findings = world.after(|root| {
        write(root, ".git/objects/ab/cdef", "x");
        write(root, ".git/refs/heads/feature/AGENTS.md", "0000\n");
        write(root, ".git/logs/refs/heads/feature/.vscode", "x");
        fs::write(root.join(".git/index"), [&b"DIRC\0\0\0\x02\0\0\0\0"[..], &[0; 20]].concat())
            .unwrap();
        write(root, ".git/HEAD", "ref: refs/heads/feature/AGENTS.md\n");
        write(root, "src/main.rs", "fn main() { }\n");
        write(root, "node_modules/p/CLAUDE.md", "x");
        write(root, "node_modules/p/.vscode/tasks.json", "x");
        fs::remove_file(root.join("a/b/inner/.git/refs/heads/other")).unwrap();
    });
    assert_eq!(findings, []);
}

#[test]
fn created_protected_names_are_moved_aside_anywhere() {
    for path in [
        "CLAUDE.md",
        "deep/er/agents.MD",
        ".mcp.json",
        ".posse/config.jsonc",
        "sub/.agents/x",
        ".envrc",
        ".claude/settings.json",
        ".git/hooks/pre-commit",
        "a/b/inner/.git/hooks/post-checkout",
        ".git/info/attributes",
        ".git/config.worktree",
        ".git/commondir",
        ".vscode/launch.json",
        ".npmrc",
        "packages/a/.npmrc",
        ".yarnrc.yml",
        ".pnpmfile.cjs",
        "x/.GITCONFIG",
        "AGENT\u{17f}.md",
        ".husky/pre-push",
        ".github/workflows/x.yml",
        "line\nbreak/CLAUDE.md",
    ] {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| write(root, path, "[evil]\nrun = x\n"));
        assert_eq!(findings.len(), 1, "{path}: {findings:?}");
        assert!(!world.exists(path) || world.read(path) == "[evil]\n", "{path}");
        assert!(fs::read_dir(&world.quarantine).unwrap().count() == 1, "{path}");
        assert!(!findings[0].to_string().contains('\n'));
        // Nothing is left for the next command.
        assert_eq!(world.after(|_| {}), [], "{path}");
    }
}

/// A secret that configures package managers is hidden where possible, and protected in any case.
#[test]
fn path_can_be_secret_and_protected() {
    let world = ProtectedWorkspace::with(|root| write(root, ".npmrc", "//host/:_authToken=x\n"));
    let survey = world.protection.survey();
    assert_eq!(world.names(&survey.hidden), [".npmrc"]);
    assert!(!world.names(&survey.read_only).contains(&".npmrc".to_owned()));
    drop(survey);
    let findings = world.after(|root| write(root, ".npmrc", "script-shell=./evil\n"));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(world.read(".npmrc"), "//host/:_authToken=x\n");
    let findings = world.after(|root| fs::remove_file(root.join(".npmrc")).unwrap());
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(world.read(".npmrc"), "//host/:_authToken=x\n");
}

#[test]
fn changed_and_removed_files_are_restored() {
    let world = ProtectedWorkspace::new();
    let config = world.read(".git/config");
    let findings = world.after(|root| {
        write(root, "AGENTS.md", "obey me\n");
        fs::remove_dir_all(root.join(".vscode")).unwrap();
        write(root, ".git/config", "[core]\nfsmonitor = ./x\n");
        fs::remove_dir_all(root.join(".git/hooks")).unwrap();
        let hook = root.join("a/b/inner/.git/hooks/pre-commit.sample");
        fs::set_permissions(hook, fs::Permissions::from_mode(0o777)).unwrap();
    });
    assert_eq!(findings.len(), 5, "{findings:?}");
    assert_eq!(world.read("AGENTS.md"), "the user's words\n");
    assert_eq!(world.read(".vscode/tasks.json"), "{}\n");
    assert_eq!(world.read(".git/config"), config);
    assert!(world.exists(".git/hooks/pre-commit.sample"));
    let taken: Vec<String> = fs::read_dir(&world.quarantine)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    assert!(taken.contains(&"obey me\n".to_owned()), "{taken:?}");
}

#[test]
fn change_under_a_mount_came_from_outside() {
    let world = ProtectedWorkspace::new();
    let findings = world.after_held(ProtectionMethod::ByMounts, |root| {
        write(root, "AGENTS.md", "the user's new words\n");
        write(root, "CLAUDE.md", "planted\n");
    });
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(world.read("AGENTS.md"), "the user's new words\n");
    assert!(!world.exists("CLAUDE.md"));
}

#[test]
fn links_replacing_files_are_reverted() {
    let world =
        ProtectedWorkspace::with(|root| symlink("AGENTS.md", root.join("CLAUDE.md")).unwrap());
    let outside = world.root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    write(&outside, "pre-commit", "untouched");
    let findings = world.after(|root| {
        fs::rename(root.join(".git/hooks"), root.join("old-hooks")).unwrap();
        symlink(&outside, root.join(".git/hooks")).unwrap();
        fs::remove_file(root.join("CLAUDE.md")).unwrap();
        symlink("/etc/passwd", root.join("CLAUDE.md")).unwrap();
        fs::remove_file(root.join("AGENTS.md")).unwrap();
        fs::create_dir(root.join("AGENTS.md")).unwrap();
    });
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert!(fs::symlink_metadata(world.root.join(".git/hooks")).unwrap().is_dir());
    assert_eq!(fs::read_link(world.root.join("CLAUDE.md")).unwrap(), Path::new("AGENTS.md"));
    assert_eq!(world.read("AGENTS.md"), "the user's words\n");
    assert_eq!(fs::read_to_string(outside.join("pre-commit")).unwrap(), "untouched");
}

#[test]
fn renamed_folder_moves_only_its_own_entries() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        fs::rename(root.join("a/b"), root.join("moved")).unwrap();
        write(root, "a/b/inner/.git/HEAD", "x");
        write(root, "a/b/inner/.git/hooks/pre-commit", "evil");
    });
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(!world.exists("a/b/inner/.git/hooks/pre-commit"));
    assert!(world.exists("moved/inner/.git/hooks/pre-commit.sample"));
    let findings = world.after(|root| {
        fs::rename(root.join("moved"), root.join("again")).unwrap();
        write(root, "again/inner/.git/hooks/pre-commit", "evil");
    });
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(!world.exists("again/inner/.git/hooks/pre-commit"));
}

#[test]
fn created_repository_works_without_executing_settings() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        repository(&root.join("clone/.git"));
        write(root, "clone/.git/hooks/post-checkout", "evil");
        write(root, "clone/.git/config", "[core]\n\tbare = false\n\tfsmonitor = ./evil\n");
        write(root, "clone/.claude/settings.json", "project words");
        write(root, "clone/.gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = ../x\n");
    });
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert_eq!(world.read("clone/.git/config"), "[core]\n\tbare = false\n");
    assert!(!world.exists("clone/.git/hooks/post-checkout"));
    assert!(world.exists("clone/.git/hooks/pre-commit.sample"));
    assert!(world.exists("clone/.claude") && world.exists("clone/.gitmodules"));
    // It belongs to the command: no mounts, and harmless settings may change.
    let mut survey = world.protection.survey();
    survey.held = ProtectionMethod::ByMounts;
    let held = world.names(&survey.read_only);
    assert!(!held.iter().any(|path| path.starts_with("clone/.git/")), "{held:?}");
    write(&world.root, "clone/.git/config", "[user]\n\tname = me\n[alias]\n\tst = !evil\n");
    let findings = world.protection.check_after(survey);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(world.read("clone/.git/config"), "[user]\n\tname = me\n[alias]\n");
    let findings = world.after(|root| fs::remove_dir_all(root.join("clone")).unwrap());
    assert_eq!(findings, []);
}

#[test]
fn folder_that_a_job_moved_is_not_held_by_mounts() {
    for comes_back in [true, false] {
        let world = ProtectedWorkspace::with(|root| write(root, "app/.envrc", "mine"));
        let mut job = world.protection.survey();
        job.held = ProtectionMethod::ByMounts;
        // The command of the next call, or the job itself, moves the folder.
        fs::rename(world.root.join("app"), world.root.join("aside")).unwrap();
        let mut command = world.protection.survey();
        command.held = ProtectionMethod::ByMounts;
        // Its mounts are those of the paths at its start.
        assert!(!world.names(&command.read_only).contains(&"app/.envrc".to_owned()));
        write(&world.root, "aside/.envrc", "planted");
        if comes_back {
            fs::rename(world.root.join("aside"), world.root.join("app")).unwrap();
        }
        let path = if comes_back { "app/.envrc" } else { "aside/.envrc" };
        let findings = world.protection.check_after(command);
        if comes_back {
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert_eq!(world.read(path), "mine");
        } else {
            // At another path, the restored file is one that a command created.
            assert_eq!(findings.len(), 2, "{findings:?}");
            assert!(!world.exists(path));
        }
        assert_eq!(world.protection.check_after(job), []);
    }
}

#[test]
fn user_may_change_protected_files_while_commands_run() {
    let world = ProtectedWorkspace::with(|root| write(root, "app/.envrc", "mine"));
    std::thread::sleep(Duration::from_millis(50));
    let mut surveys = [world.protection.survey(), world.protection.survey()];
    for survey in &mut surveys {
        survey.held = ProtectionMethod::ByMounts;
    }
    for path in ["AGENTS.md", "app/.envrc"] {
        write(&world.root, path, "new words");
    }
    for survey in surveys {
        assert_eq!(world.protection.check_after(survey), []);
    }
    assert_eq!(world.read("AGENTS.md"), "new words");
}

#[test]
fn new_repository_around_known_files_exempts_nothing() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        repository(&root.join("src/.git"));
        write(root, "src/CLAUDE.md", "planted");
    });
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(!world.exists("src/CLAUDE.md"));
}

#[test]
fn pointers_must_stay_inside() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        write(root, "one/.git", "gitdir: ../.git\n");
        write(root, "two/.git", "gitdir: /tmp/elsewhere\n");
        write(root, "three/.git", "gitdir: ../../outside\n");
        symlink("/", root.join("slash")).unwrap();
        write(root, "four/.git", "gitdir: ../slash/tmp\n");
        fs::create_dir(root.join("five")).unwrap();
        symlink("../../outside", root.join("five/.git")).unwrap();
    });
    assert_eq!(findings.len(), 4, "{findings:?}");
    assert!(world.exists("one/.git"));
    for path in ["two/.git", "three/.git", "four/.git", "five/.git"] {
        assert!(!world.exists(path), "{path}");
    }
}

#[test]
fn files_referenced_by_settings_are_protected() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".git/config", "[core]\nhooksPath = tools/hooks\n[include]\npath = ../extra\n");
        write(root, "extra", "[user]\nname = me\n");
    });
    let survey = world.protection.survey();
    assert!(world.names(&survey.read_only).contains(&"extra".to_owned()));
    drop(survey);
    let findings = world.after(|root| {
        write(root, "extra", "[core]\nfsmonitor = evil\n");
        write(root, "tools/hooks/pre-commit", "evil");
    });
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert_eq!(world.read("extra"), "[user]\nname = me\n");
    assert!(!world.exists("tools/hooks/pre-commit"));
}

#[test]
fn hard_links_of_a_protected_file_are_protected() {
    let world = ProtectedWorkspace::with(|root| {
        fs::hard_link(root.join("AGENTS.md"), root.join("src/innocent")).unwrap();
        write(root, ".env", "KEY=1");
        fs::hard_link(root.join(".env"), root.join("src/visible")).unwrap();
    });
    let survey = world.protection.survey();
    assert!(world.names(&survey.read_only).contains(&"src/innocent".to_owned()));
    assert!(world.names(&survey.hidden).contains(&"src/visible".to_owned()));
    write(&world.root, "src/innocent", "obey me\n");
    let findings = world.protection.check_after(survey);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(world.read("AGENTS.md"), "the user's words\n");
}

#[test]
fn change_during_other_commands_is_not_attributed_to_the_user() {
    let world = ProtectedWorkspace::new();
    let first = world.protection.survey();
    write(&world.root, "CLAUDE.md", "planted");
    let second = world.protection.survey();
    assert!(!world.names(&second.read_only).contains(&"CLAUDE.md".to_owned()));
    assert_eq!(world.protection.check_after(first).len(), 1);
    assert!(!world.exists("CLAUDE.md"));
    assert_eq!(world.protection.check_after(second), []);
    assert!(!world.exists("CLAUDE.md"));
}

#[test]
fn abandoned_command_is_checked_by_the_next_scan() {
    let world = ProtectedWorkspace::new();
    let survey = world.protection.survey();
    write(&world.root, ".mcp.json", "{}");
    drop(survey);
    let survey = world.protection.survey();
    assert!(!world.exists(".mcp.json"));
    assert_eq!(world.protection.check_after(survey).len(), 1);
}

#[test]
fn exceeded_limit_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for number in 0..20 {
        fs::create_dir(root.join(format!("d{number}"))).unwrap();
    }
    let protection =
        Protection::new(std::slice::from_ref(&root), Vec::new(), None, Vec::new(), root.join("q"))
            .unwrap();
    let bounds = ScanBounds { folders: 10, entries: 1000, time: Duration::from_mins(1) };
    let protection = Arc::new(Protection { bounds, ..protection });
    let survey = protection.survey();
    assert!(!survey.complete);
    let findings = protection.check_after(survey);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].what, ProtectedChange::TooMuch);
}

#[test]
fn moved_repository_is_moved_back() {
    type Act = fn(&Path);
    let acts: [(&str, Act); 5] = [
        ("renamed", |root| fs::rename(root.join(".git"), root.join("old")).unwrap()),
        ("moved deeper", |root| {
            fs::create_dir_all(root.join("x/y")).unwrap();
            fs::rename(root.join(".git"), root.join("x/y/z")).unwrap();
        }),
        ("replaced by another", |root| {
            fs::rename(root.join(".git"), root.join("old")).unwrap();
            repository(&root.join(".git"));
            write(root, ".git/hooks/pre-commit", "evil\n");
        }),
        ("replaced by a link", |root| {
            fs::rename(root.join(".git"), root.join("old")).unwrap();
            symlink("old", root.join(".git")).unwrap();
        }),
        ("moved and spoiled", |root| {
            fs::rename(root.join(".git"), root.join("old")).unwrap();
            write(root, "old/hooks/post-merge", "evil\n");
        }),
    ];
    for (name, act) in acts {
        let world = ProtectedWorkspace::new();
        let before = fs::metadata(world.root.join(".git")).unwrap();
        let config = world.read(".git/config");
        let findings = world.after(act);
        let after = fs::symlink_metadata(world.root.join(".git"));
        let inode = |found: &fs::Metadata| std::os::unix::fs::MetadataExt::ino(found);
        assert_eq!(after.as_ref().ok().map(inode), Some(inode(&before)), "{name}: {findings:?}");
        assert_eq!(world.read(".git/config"), config, "{name}");
        assert!(!world.exists("old") && !world.exists(".git/hooks/post-merge"), "{name}");
        let first = &findings[0];
        assert_eq!(first.path, world.root.join(".git"), "{name}: {findings:?}");
        assert!(matches!(first.action, ProtectAction::Restored(_)), "{name}: {findings:?}");
    }
    // An emptied repository is moved back as well.
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        fs::rename(root.join(".git"), root.join("old")).unwrap();
        fs::remove_file(root.join("old/HEAD")).unwrap();
    });
    assert!(world.exists(".git/refs/heads/main") && !world.exists("old"), "{findings:?}");
    // Renaming a parent folder is ordinary work.
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| fs::rename(root.join("a"), root.join("b")).unwrap());
    assert!(findings.is_empty() && world.exists("b/b/inner/.git/config"), "{findings:?}");
}

#[test]
fn repository_in_a_temporary_folder_is_moved_back() {
    let world = ProtectedWorkspace::new();
    let temporary = world.root.with_file_name("tmp");
    world.protection.also_scan(temporary.clone());
    for is_replaced in [false, true] {
        fs::create_dir_all(temporary.join("t1/deep")).unwrap();
        let findings = world.after(|root| {
            fs::rename(root.join(".git"), temporary.join("t1/deep/x")).unwrap();
            if is_replaced {
                repository(&root.join(".git"));
                write(root, ".git/refs/heads/main", "another\n");
            }
        });
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].path, world.root.join(".git"));
        let ProtectAction::Restored(taken) = &findings[0].action else { panic!("{findings:?}") };
        assert_eq!(world.read(".git/refs/heads/main"), "0000\n");
        assert!(!temporary.join("t1/deep/x").exists());
        let other = taken.as_ref().map(|taken| fs::read(taken.join("refs/heads/main")).unwrap());
        assert_eq!(other, is_replaced.then(|| b"another\n".to_vec()));
        assert_eq!(world.after(|_| {}), []);
    }
}

#[test]
fn unparsable_settings_are_reported() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| write(root, ".GIT/config", "{}"));
    let text = findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n");
    assert!(text.contains("/.GIT/config is not understood as settings of git"), "{text}");
    assert!(!text.contains("()"), "{text}");
}

/// It cannot be restored, so it is reported, once.
#[test]
fn removed_repository_is_reported() {
    type Act = fn(&Path);
    let acts: [(ProtectedChange, &str, Act); 5] = [
        (ProtectedChange::Removed, ".git", |root| fs::remove_dir_all(root.join(".git")).unwrap()),
        (ProtectedChange::Replaced, ".git", |root| {
            fs::remove_dir_all(root.join(".git")).unwrap();
            repository(&root.join(".git"));
        }),
        (ProtectedChange::Replaced, ".git", |root| {
            fs::remove_dir_all(root.join(".git")).unwrap();
            write(root, ".git", "gitdir: a/b/inner/.git\n");
        }),
        (ProtectedChange::Removed, ".git", |root| {
            fs::rename(root.join(".git"), root.with_file_name("outside")).unwrap();
        }),
        (ProtectedChange::Removed, "a/b/inner/.git", |root| {
            fs::remove_dir_all(root.join("a")).unwrap();
        }),
    ];
    for (what, path, act) in acts {
        let world = ProtectedWorkspace::new();
        let findings = world.after(act);
        assert_eq!(findings.len(), 1, "{what:?} {findings:?}");
        assert_eq!((&findings[0].what, &findings[0].path), (&what, &world.root.join(path)));
        assert!(matches!(findings[0].action, ProtectAction::Failed(_)), "{findings:?}");
        assert_eq!(world.after(|_| {}), [], "{what:?}");
    }
    // Exempt paths, and folders of package managers.
    let world = ProtectedWorkspace::with(|root| repository(&root.join("vendor/lib/.git")));
    let survey = world.protection.survey_without(&[world.root.join(".git")]);
    fs::remove_dir_all(world.root.join(".git")).unwrap();
    fs::remove_dir_all(world.root.join("vendor/lib")).unwrap();
    assert_eq!(world.protection.check_after(survey), []);
}

/// An exempt path may change; nothing beside it may.
#[test]
fn approved_change_stays_and_others_are_reverted() {
    for held in [ProtectionMethod::ByCheck, ProtectionMethod::ByMounts] {
        let world = ProtectedWorkspace::new();
        let at = |path: &str| world.root.join(path);
        let lifted = [".git/config", ".vscode/tasks.json", ".idea/run.xml", "CLAUDE.md"].map(at);
        let mut survey = world.protection.survey_without(&lifted);
        let read_only = world.names(&survey.read_only);
        assert!(!read_only.iter().any(|path| path == ".git/config" || path == ".vscode"));
        assert!(read_only.contains(&".git/hooks".to_owned()), "{read_only:?}");
        assert!(world.names(&survey.pinned).contains(&".vscode".to_owned()));
        survey.held = held;
        write(&world.root, ".git/config", "[core]\n\tfsmonitor = mine\n");
        write(&world.root, ".vscode/tasks.json", "[1]\n");
        write(&world.root, ".vscode/settings.json", "{}\n");
        write(&world.root, ".idea/run.xml", "<x/>\n");
        write(&world.root, ".idea/other.xml", "<x/>\n");
        write(&world.root, "CLAUDE.md", "new\n");
        write(&world.root, "GEMINI.md", "new\n");
        write(&world.root, ".git/hooks/post-merge", "new\n");
        if held == ProtectionMethod::ByCheck {
            write(&world.root, "AGENTS.md", "changed\n");
        }
        let findings = world.protection.check_after(survey);
        let mut found: Vec<PathBuf> = findings.iter().map(|found| found.path.clone()).collect();
        found.sort();
        let mut expected = vec![".idea/other.xml", ".vscode/settings.json", "GEMINI.md"];
        if held == ProtectionMethod::ByCheck {
            expected.extend([".git/hooks/post-merge", "AGENTS.md"]);
        }
        expected.sort_unstable();
        assert_eq!(world.names(&found), expected, "{held:?} {findings:?}");
        assert!(world.read(".git/config").contains("fsmonitor"));
        assert_eq!(world.read(".vscode/tasks.json"), "[1]\n");
        assert_eq!(world.read(".idea/run.xml"), "<x/>\n");
        assert_eq!(world.read("CLAUDE.md"), "new\n");
        assert_eq!(world.read("AGENTS.md"), "the user's words\n");
        assert!(!world.exists("GEMINI.md") && !world.exists(".idea/other.xml"));
        // The next command has no exemption.
        let findings = world.after(|root| {
            write(root, ".git/config", "[core]\n\tfsmonitor = evil\n");
            write(root, "CLAUDE.md", "evil\n");
        });
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(world.read(".git/config").contains("mine"));
        assert_eq!(world.read("CLAUDE.md"), "new\n");
    }
}

/// A fully scanned folder that a command enlarges beyond the limits.
#[test]
fn command_exceeding_the_scan_limit_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("src")).unwrap();
    let protection =
        Protection::new(std::slice::from_ref(&root), Vec::new(), None, Vec::new(), root.join("q"))
            .unwrap();
    let bounds = ScanBounds { folders: 10, entries: 1000, time: Duration::from_mins(1) };
    let protection = Arc::new(Protection { bounds, ..protection });
    // Beyond the normal scan limit, within the extended one.
    let survey = protection.survey();
    assert!(survey.complete);
    for number in 0..20 {
        fs::create_dir(root.join(format!("a{number}"))).unwrap();
    }
    write(&root, "src/deep/.mcp.json", "{}");
    let findings = protection.check_after(survey);
    assert!(!root.join("src/deep/.mcp.json").exists(), "{findings:?}");
    assert!(protection.is_complete());
    // The next scan is incomplete, because there are more files than before.
    let survey = protection.survey();
    assert!(!survey.complete && !protection.is_complete());
    protection.take_back(survey);
    for number in 0..20 {
        fs::remove_dir(root.join(format!("a{number}"))).unwrap();
    }
    // Beyond the extended limit.
    let survey = protection.survey();
    assert!(survey.complete && protection.is_complete());
    for number in 0..100 {
        fs::create_dir(root.join(format!("a{number}"))).unwrap();
    }
    let findings = protection.check_after(survey);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].what, ProtectedChange::TooMuch);
    assert!(!protection.is_complete());
}

/// A file that was not scanned before may be the user's.
#[test]
fn unscanned_existing_file_is_not_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for number in 0..20 {
        fs::create_dir(root.join(format!("d{number}"))).unwrap();
    }
    repository(&root.join("d9/lib/.git"));
    write(&root, "d9/lib/AGENTS.md", "the user's words\n");
    let protection =
        Protection::new(std::slice::from_ref(&root), Vec::new(), None, Vec::new(), root.join("q"))
            .unwrap();
    let bounds = ScanBounds { folders: 22, entries: 1000, time: Duration::from_mins(1) };
    let protection = Arc::new(Protection { bounds, ..protection });
    let survey = protection.survey();
    assert!(!survey.complete);
    // Now the limit suffices for the files not seen before.
    for number in 10..20 {
        fs::remove_dir(root.join(format!("d{number}"))).unwrap();
    }
    write(&root, ".mcp.json", "{}");
    let findings = protection.check_after(survey);
    assert!(!root.join(".mcp.json").exists(), "{findings:?}");
    assert!(root.join("d9/lib/AGENTS.md").exists(), "{findings:?}");
    assert!(root.join("d9/lib/.git/hooks").exists(), "{findings:?}");
}

#[test]
fn home_credentials_are_hidden_unless_the_user_allows_them() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let (home, root, state) = (base.join("home"), base.join("ws"), base.join("state"));
    for path in [".ssh/id_ed25519", ".aws/credentials", ".netrc", "notes.txt"] {
        write(&home, path, "x");
    }
    write(&root, ".env", "x");
    write(&root, ".env.test", "x");
    write(&state, "sessions/x", "x");
    let readable = vec![home.join(".netrc"), root.join(".env.test"), state.clone()];
    let protection = Protection::new(
        std::slice::from_ref(&root),
        vec![state.clone()],
        Some(home.clone()),
        readable,
        base.join("q"),
    );
    let survey = Arc::new(protection.unwrap()).survey();
    assert_eq!(survey.hidden, [home.join(".aws"), home.join(".ssh"), state, root.join(".env")]);
}

#[test]
fn link_in_place_of_a_readable_secret_uncovers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let (home, root) = (base.join("home"), base.join("ws"));
    for path in [".aws/credentials", "dotfiles/netrc"] {
        write(&home, path, "x");
    }
    write(&root, "plain/.env", "x");
    // Links of the repository or of a command, and one of the user outside the workspace.
    symlink(home.join(".aws/credentials"), root.join(".env")).unwrap();
    symlink(home.join(".aws"), root.join("sub")).unwrap();
    symlink(home.join("dotfiles/netrc"), home.join(".netrc")).unwrap();
    symlink(&root, base.join("to-ws")).unwrap();
    let names = [
        "ws/**",
        "to-ws/**",
        "ws/sub/*",
        "ws/.env",
        "ws/sub/credentials",
        "to-ws/plain/.env",
        "home/.netrc",
    ];
    let protection = Protection::new(
        std::slice::from_ref(&root),
        Vec::new(),
        Some(home.clone()),
        names.map(|name| base.join(name)).to_vec(),
        base.join("q"),
    );
    let survey = Arc::new(protection.unwrap()).survey();
    assert_eq!(survey.hidden, [home.join(".aws"), home.join(".aws/credentials")]);
}

#[test]
fn only_folders_that_changed_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    for number in 0..50 {
        write(&path, &format!("d{number}/e/f.txt"), "x");
    }
    let root = Root::open(&path).unwrap();
    let mut scan = Scan::default();
    assert_eq!(scan.run(&root, ScanBounds::default()).folders_read, 101);
    // The file system clock has to advance before a time stamp is reliable.
    let mut read = usize::MAX;
    for _ in 0..2000 {
        read = scan.run(&root, ScanBounds::default()).folders_read;
        if read == 0 {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(read, 0);
    write(&path, "d7/e/AGENTS.md", "x");
    let found = scan.run(&root, ScanBounds::default());
    assert_eq!((found.folders_read, found.items.len()), (1, 1));
}
