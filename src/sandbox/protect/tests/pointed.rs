//! Paths to which git's settings and links refer, and the meaning that the root's name gives.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

/// Folder with a home, in which each test makes repositories, and the protection of some roots in
/// it.
struct Place {
    base: PathBuf,
    _folder: TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        fs::create_dir(base.join("home")).unwrap();
        Place { base, _folder: folder }
    }

    /// Findings after `act` in the workspace of these roots, as paths below the place.
    fn after(&self, roots: &[&str], act: impl FnOnce(&Path)) -> Vec<String> {
        let roots: Vec<PathBuf> = roots.iter().map(|root| self.base.join(root)).collect();
        let home = Some(self.base.join("home"));
        let quarantine = self.base.join("quarantine");
        let protection = Protection::new(&roots, Vec::new(), home, Vec::new(), quarantine);
        let protection = Arc::new(protection.unwrap());
        let survey = protection.survey();
        act(&self.base);
        let findings = protection.check_after(survey);
        let mut paths: Vec<String> = findings
            .iter()
            .map(|finding| finding.path.strip_prefix(&self.base).unwrap().display().to_string())
            .collect();
        paths.sort();
        assert_eq!(protection.check_after(protection.survey()), [], "nothing is left over");
        paths
    }
}

#[test]
fn settings_outside_the_root_are_obeyed() {
    let place = Place::new();
    repository(&place.base.join("main/.git"));
    write(
        &place.base,
        "main/.git/config",
        "[core]\nhooksPath = hk\n[include]\npath = ../sub/inc\n",
    );
    write(&place.base, "main/.git/worktrees/wt/HEAD", "ref: refs/heads/wt\n");
    write(&place.base, "main/.git/worktrees/wt/commondir", "../..\n");
    write(&place.base, "wt/.git", "gitdir: ../main/.git/worktrees/wt\n");
    write(&place.base, "home/.gitconfig", "[core] hooksPath = ~/../wt/user\n");
    write(&place.base, "main/sub/inc", "[user]\nname = me\n");
    let found = place.after(&["wt"], |base| {
        write(base, "wt/hk/pre-commit", "evil");
        write(base, "wt/user/pre-commit", "evil");
    });
    assert_eq!(found, ["wt/hk", "wt/user"]);
    // In a folder of the repository.
    let found = place.after(&["main/sub"], |base| {
        write(base, "main/sub/inc", "[core]\nfsmonitor = evil\n");
    });
    assert_eq!(found, ["main/sub/inc"]);
}

#[test]
fn hooks_belong_to_each_work_tree() {
    let place = Place::new();
    repository(&place.base.join("w/.git"));
    write(&place.base, "w/.git/config", "[core]\nhooksPath = hk\n[include]\npath = one\n");
    write(&place.base, "w/.git/one", "[include]\npath = ../two\n");
    write(&place.base, "w/two", "[core]\nhooksPath = ~/../w/three\n");
    write(&place.base, "w/.git/worktrees/wt/HEAD", "ref: refs/heads/wt\n");
    write(&place.base, "w/.git/worktrees/wt/commondir", "../..\n");
    write(&place.base, "w/wt/.git", "gitdir: ../.git/worktrees/wt\n");
    repository(&place.base.join("w/.git/modules/sub"));
    let config = "[core]\nworktree = ../../../sub\nhooksPath = tools\n";
    write(&place.base, "w/.git/modules/sub/config", config);
    write(&place.base, "w/sub/.git", "gitdir: ../.git/modules/sub\n");
    let found = place.after(&["w"], |base| {
        for file in ["wt/hk/pre-commit", "sub/tools/pre-push", "three/pre-commit"] {
            write(base, &format!("w/{file}"), "evil");
        }
        write(base, "w/two", "[core]\nfsmonitor = evil\n");
        write(base, "w/tools/pre-push", "an ordinary file");
    });
    assert_eq!(found, ["w/sub/tools", "w/three", "w/two", "w/wt/hk"]);
}

#[test]
fn links_in_protected_folders_protect_their_targets() {
    let place = Place::new();
    repository(&place.base.join("w/.git"));
    let link = |target: &str, path: &str| {
        let path = place.base.join("w").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    };
    for file in ["scripts/pre-commit", "scripts/h2", "ci.yml", "tasks.json", "more/x", "end"] {
        write(&place.base, &format!("w/{file}"), "the user's\n");
    }
    link("../../scripts/pre-commit", ".git/hooks/pre-commit");
    link("../../scripts/missing", ".git/hooks/pre-push");
    link("../../middle", ".git/hooks/pre-merge-commit");
    link("end", "middle");
    link("../scripts/h2", ".husky/pre-push");
    link("../../ci.yml", ".github/workflows/ci.yml");
    link("../tasks.json", ".vscode/tasks.json");
    link("../more", ".vscode/more");
    link("..", ".vscode/root");
    let found = place.after(&["w"], |base| {
        for file in ["scripts/pre-commit", "scripts/h2", "ci.yml", "tasks.json", "more/x"] {
            write(base, &format!("w/{file}"), "evil\n");
        }
        write(base, "w/scripts/missing", "evil\n");
        fs::remove_file(base.join("w/middle")).unwrap();
        write(base, "w/middle", "evil\n");
        write(base, "w/scripts/free", "ordinary\n");
    });
    let expected = [
        "w/ci.yml",
        "w/middle",
        "w/more/x",
        "w/scripts/h2",
        "w/scripts/missing",
        "w/scripts/pre-commit",
        "w/tasks.json",
    ];
    assert_eq!(found, expected);
    assert_eq!(fs::read(place.base.join("w/scripts/h2")).unwrap(), b"the user's\n");
}

#[test]
fn link_in_place_of_the_hooks_protects_its_target() {
    let place = Place::new();
    repository(&place.base.join("w/.git"));
    fs::remove_dir_all(place.base.join("w/.git/hooks")).unwrap();
    symlink("../hk", place.base.join("w/.git/hooks")).unwrap();
    write(&place.base, "w/hk/pre-push", "the user's\n");
    let found = place.after(&["w"], |base| {
        write(base, "w/hk/pre-push", "evil\n");
        write(base, "w/hk/pre-commit", "evil\n");
    });
    assert_eq!(found, ["w/hk/pre-commit", "w/hk/pre-push"]);
}

#[test]
fn link_into_another_root_is_scanned_through() {
    let place = Place::new();
    write(&place.base, "r1/a", "");
    write(&place.base, "r2/vendor/lib/x", "");
    let found = place.after(&["r1", "r2"], |base| {
        symlink(base.join("r2/vendor/lib"), base.join("r1/lib")).unwrap();
        write(base, "r2/vendor/lib/.cargo/config.toml", "evil");
        write(base, "r2/vendor/lib/.envrc", "evil");
    });
    assert_eq!(found, ["r1/lib", "r2/vendor/lib/.cargo/config.toml", "r2/vendor/lib/.envrc"]);
    // An existing link protects existing files.
    write(&place.base, "r2/vendor/lib/.envrc", "the user's");
    let found = place.after(&["r1", "r2"], |base| write(base, "r2/vendor/lib/.envrc", "evil"));
    assert_eq!(found, ["r2/vendor/lib/.envrc"]);
}

#[test]
fn name_of_the_root_gives_names_their_meaning() {
    for (root, file, found) in [
        (".github", "workflows/ci.yml", ".github/workflows"),
        (".config", "systemd/user/x.service", ".config/systemd"),
        (".config", "git/config", ".config/git"),
        (".cargo", "config.toml", ".cargo/config.toml"),
        (".claude", "settings.json", ".claude/settings.json"),
        (".config/autostart", "x.desktop", ".config/autostart/x.desktop"),
    ] {
        let place = Place::new();
        fs::create_dir_all(place.base.join(root)).unwrap();
        let file = format!("{root}/{file}");
        assert_eq!(place.after(&[root], |base| write(base, &file, "evil")), [found]);
        write(&place.base, &file, "the user's");
        place.after(&[root], |base| write(base, &file, "evil"));
        assert_eq!(fs::read(place.base.join(&file)).unwrap(), b"the user's", "{file}");
    }
    let place = Place::new();
    write(&place.base, ".claude/worktrees/a/x", "");
    let found = place.after(&[".claude/worktrees/a"], |base| {
        write(base, ".claude/worktrees/a/src/main.rs", "work");
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn rebase_in_a_repository_of_another_name_is_cleaned() {
    let place = Place::new();
    repository(&place.base.join("w/.bare"));
    write(&place.base, "w/.git", "gitdir: ./.bare\n");
    write(&place.base, "w/.bare/worktrees/main/HEAD", "ref: refs/heads/main\n");
    write(&place.base, "w/.bare/worktrees/main/commondir", "../..\n");
    let todo = "w/.bare/worktrees/main/rebase-merge/git-rebase-todo";
    write(&place.base, todo, "pick 1\n");
    let found = place.after(&["w"], |base| {
        write(base, todo, "pick 1\nexec evil\n");
        repository(&base.join("w/src/r"));
        write(base, "w/src/r/config", "[core]\n\tworktree = .\n");
        write(base, "w/src/r/rebase-merge/git-rebase-todo", "exec evil\n");
        write(base, "w/src/r/sequencer/opts", "[options]\n\tstrategy = evil\n");
        write(base, "w/src/r/rebase-merge/CLAUDE.md", "evil\n");
    });
    let expected = [
        todo,
        "w/src/r/config",
        "w/src/r/rebase-merge/CLAUDE.md",
        "w/src/r/rebase-merge/git-rebase-todo",
        "w/src/r/sequencer/opts",
    ];
    assert_eq!(found, expected);
    assert_eq!(fs::read(place.base.join(todo)).unwrap(), b"pick 1\n");
}

#[test]
fn addresses_of_the_old_format_are_moved_aside() {
    let place = Place::new();
    repository(&place.base.join("w/.git"));
    let found = place.after(&["w"], |base| {
        write(base, "w/.git/remotes/origin", "URL: /w/.git/objects/aa/e.git\n");
        write(base, "w/.git/branches/origin", "/w/.git/objects/aa/e.git\n");
        fs::create_dir_all(base.join("w/new/.git/branches")).unwrap();
        repository(&base.join("w/new/.git"));
    });
    assert_eq!(found, ["w/.git/branches/origin", "w/.git/remotes/origin"]);
}

/// A push to it would run its hooks, also through a file that refers to it.
#[test]
fn repository_among_loose_objects_is_cleaned() {
    let place = Place::new();
    repository(&place.base.join("w/.git"));
    let found = place.after(&["w"], |base| {
        write(base, "w/.git/objects/aa/0123", "an object");
        repository(&base.join("w/.git/objects/aa/e.git"));
        write(base, "w/.git/objects/aa/e.git/hooks/post-receive", "evil");
        write(base, "w/upstream", "gitdir: .git/objects/aa/e.git\n");
    });
    assert_eq!(found, ["w/.git/objects/aa/e.git/hooks/post-receive"]);
}

#[test]
fn secrets_with_names_that_are_no_text_are_hidden() {
    let place = Place::new();
    let root = place.base.join("w");
    let names: [&[u8]; 4] = [b"caf\xe9/.env", b"caf\xe9/id_rsa", b"\xff.pem", b"caf\xe9/x"];
    let names = names.map(|name| root.join(OsStr::from_bytes(name)));
    for path in &names {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "-----BEGIN PRIVATE KEY-----\n").unwrap();
    }
    let roots = std::slice::from_ref(&root);
    let protection = Protection::new(roots, Vec::new(), None, Vec::new(), place.base.join("q"));
    let survey = Arc::new(protection.unwrap()).survey();
    assert_eq!(survey.hidden, names[..3]);
}

/// A `..` leads to the folder around the target of a link, not to the one around the link.
#[test]
fn parents_of_link_targets_count() {
    let place = Place::new();
    let base = &place.base;
    repository(&base.join("w/.git"));
    fs::create_dir_all(base.join("w/deep/er/x")).unwrap();
    fs::create_dir_all(base.join("w/hk")).unwrap();
    symlink("deep/er/x", base.join("w/lnk")).unwrap();
    let config = "[core]\n\thooksPath = lnk/../hk\n[include]\n\tpath = ../lnk/../inc\n";
    write(base, "w/.git/config", config);
    let found = place.after(&["w"], |base| {
        write(base, "w/deep/er/hk/pre-commit", "evil\n");
        write(base, "w/deep/er/inc", "[core]\n\tfsmonitor = evil\n");
        write(base, "w/hk/pre-commit", "ordinary\n");
    });
    assert_eq!(found, ["w/deep/er/hk", "w/deep/er/inc"]);
    // The link itself decides where the settings lead.
    let found = place.after(&["w"], |base| {
        fs::remove_file(base.join("w/lnk")).unwrap();
        symlink("deep", base.join("w/lnk")).unwrap();
    });
    assert_eq!(found, ["w/lnk"]);
}

#[test]
fn pointers_through_links_are_not_accepted() {
    let place = Place::new();
    let base = &place.base;
    repository(&base.join("w/.git"));
    repository(&base.join("w/.git/modules/good"));
    repository(&base.join("w/deep/fx"));
    write(base, "w/deep/fx/hooks/pre-commit", "evil\n");
    fs::create_dir_all(base.join("w/deep/x")).unwrap();
    symlink("deep/x", base.join("w/lnk")).unwrap();
    symlink(".git/modules", base.join("w/mods")).unwrap();
    // By text these lead to `w/.git/modules/good`.
    let found = place.after(&["w"], |base| {
        write(base, "w/one/.git", "gitdir: ../.git/modules/good\n");
        write(base, "w/two/.git", "gitdir: ../lnk/../fx\n");
        write(base, "w/three/.git", "gitdir: ../mods/good\n");
    });
    assert_eq!(found, ["w/three/.git", "w/two/.git"]);
    assert!(base.join("w/one/.git").exists());
    // A pointer of the user may lead through a link, which is protected then.
    write(base, "w/mine/.git", "gitdir: ../mods/good\n");
    let found = place.after(&["w"], |base| {
        fs::remove_file(base.join("w/mods")).unwrap();
        symlink("deep", base.join("w/mods")).unwrap();
    });
    assert_eq!(found, ["w/mods"]);
}

/// Writes settings and a hook that run programs to the repository.
fn arm(repository: &Path) {
    let settings = "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = evil\n";
    write(repository, "config", settings);
    write(repository, "hooks/pre-commit", "evil");
    write(repository, "info/attributes", "* text\n");
}

/// Adds the folder of a linked worktree to the repository, as `git worktree add` does.
fn link_worktree(repository: &Path, tree: &Path) {
    let folder = repository.join("worktrees/w");
    write(&folder, "HEAD", "ref: refs/heads/w\n");
    write(&folder, "commondir", "../..\n");
    write(&folder, "gitdir", &format!("{}/.git\n", tree.display()));
    write(tree, ".git", &format!("gitdir: {}\n", folder.display()));
}

#[test]
fn a_new_repository_with_a_linked_worktree_is_cleaned() {
    let place = Place::new();
    fs::create_dir(place.base.join("w")).unwrap();
    let found = place.after(&["w"], |base| {
        for name in ["evil/.git", "bare.git"] {
            let repository = base.join("w").join(name);
            self::repository(&repository);
            arm(&repository);
            link_worktree(&repository, &base.join("w").join(format!("{name}-tree")));
        }
    });
    let expected = ["bare.git", "evil/.git"].map(|repository| {
        ["config", "hooks/pre-commit", "info/attributes"]
            .map(|file| format!("w/{repository}/{file}"))
    });
    assert_eq!(found, expected.concat());
    for name in ["evil/.git", "bare.git"] {
        let repository = place.base.join("w").join(name);
        let settings = fs::read_to_string(repository.join("config")).unwrap();
        assert!(!settings.contains("evil"), "{settings}");
        assert!(!repository.join("hooks/pre-commit").exists());
        assert!(!repository.join("info/attributes").exists());
        assert!(repository.join("worktrees/w/commondir").exists(), "{name}");
    }
}

#[test]
fn a_linked_worktree_lets_no_hooks_into_a_repository_of_the_user() {
    let place = Place::new();
    repository(&place.base.join("w/.git"));
    fs::remove_dir_all(place.base.join("w/.git/hooks")).unwrap();
    let found = place.after(&["w"], |base| {
        write(base, "w/.git/hooks/pre-commit", "evil");
        write(base, "w/.git/info/attributes", "* text\n");
        link_worktree(&base.join("w/.git"), &base.join("w/tree"));
    });
    assert_eq!(found, ["w/.git/hooks/pre-commit", "w/.git/info/attributes"]);
    assert!(!place.base.join("w/.git/hooks/pre-commit").exists());
    assert!(!place.base.join("w/.git/info/attributes").exists());
}

/// The user names a folder of packages, or one in a secret folder, as a root beside the one around it.
#[test]
fn names_in_a_root_below_another_root_are_protected() {
    for inner in ["vendor/lib", ".ssh/work"] {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (outer, root) = (base.join("ws"), base.join("ws").join(inner));
        repository(&root.join(".git"));
        write(&root, ".envrc", "use words\n");
        write(&root, ".env", "A=1\n");
        write(&root, "deep/AGENTS.md", "words\n");
        let roots = [root.clone(), outer];
        let protection = Protection::new(&roots, Vec::new(), None, Vec::new(), base.join("q"));
        let protection = Arc::new(protection.unwrap());
        for _ in 0..2 {
            let mut survey = protection.survey();
            assert!(survey.complete);
            assert!(survey.hidden.contains(&root.join(".env")), "{:?}", survey.hidden);
            survey.held = ProtectionMethod::ByCheck;
            write(&root, ".envrc", "evil\n");
            write(&root, "deep/AGENTS.md", "evil\n");
            write(&root, ".git/hooks/post-checkout", "evil\n");
            write(&root, ".vscode/tasks.json", "evil\n");
            let findings = protection.check_after(survey);
            assert_eq!(findings.len(), 4, "{inner}: {findings:?}");
            assert_eq!(fs::read_to_string(root.join(".envrc")).unwrap(), "use words\n");
            assert_eq!(fs::read_to_string(root.join("deep/AGENTS.md")).unwrap(), "words\n");
            assert!(!root.join(".git/hooks/post-checkout").exists());
            assert!(!root.join(".vscode/tasks.json").exists());
        }
    }
}

/// A command gives a folder the name of a secret, which would cover its content.
#[test]
fn names_in_a_new_folder_with_the_name_of_a_secret_are_found() {
    for name in [".aws", "sub/.ssh", "x.pem", ".env", ".AWS", ".docker/config.json"] {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| {
            write(root, &format!("{name}/.envrc"), "evil\n");
            write(root, &format!("{name}/deep/.vscode/tasks.json"), "evil\n");
        });
        for path in [".envrc", "deep/.vscode/tasks.json"] {
            assert!(!world.exists(&format!("{name}/{path}")), "{name} {path}: {findings:?}");
        }
        let findings = world.after(|root| {
            repository(&root.join(name).join(".git"));
            write(root, &format!("{name}/.git/config"), "[core]\n\tfsmonitor = evil\n");
            write(root, &format!("{name}/.git/hooks/post-checkout"), "evil\n");
        });
        assert!(!world.read(&format!("{name}/.git/config")).contains("evil"), "{findings:?}");
        assert!(!world.exists(&format!("{name}/.git/hooks/post-checkout")), "{findings:?}");
    }
}

/// The workspace itself may have the name of a secret.
#[test]
fn secrets_in_a_root_with_the_name_of_a_secret_are_hidden() {
    for name in ["dev.env", "my.key", ".kube", ".ssh", "plain"] {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let root = base.join(name);
        for file in [".env", "id_rsa", "sub/tls.key", "src/main.rs", "README.md"] {
            write(&root, file, "x\n");
        }
        let roots = std::slice::from_ref(&root);
        let protection = Protection::new(roots, Vec::new(), None, Vec::new(), base.join("q"));
        let hidden = Arc::new(protection.unwrap()).survey().hidden.clone();
        let expected = [".env", "id_rsa", "sub/tls.key"].map(|file| root.join(file));
        assert_eq!(hidden, expected, "{name}");
    }
}

#[test]
fn secrets_in_a_folder_that_looks_like_a_repository_are_hidden() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, "app/prod.key", "x\n");
        write(root, "app/.env", "x\n");
        repository(&root.join("app"));
    });
    let survey = world.protection.survey();
    for file in ["app/prod.key", "app/.env"] {
        assert!(survey.hidden.contains(&world.root.join(file)), "{:?}", survey.hidden);
    }
}
