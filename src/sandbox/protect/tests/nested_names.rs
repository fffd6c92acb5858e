//! Protected names in folders with protected names, which one scan does not find all.

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

/// Levels of protected folders, more than there once were rounds of a check.
const LEVELS: usize = 12;

/// Writes files below `folder` that programs of the host would obey.
fn plant(root: &Path, folder: &str) {
    repository(&root.join(folder).join("app/.git"));
    write(root, &format!("{folder}/app/.git/config"), "[core]\n\tfsmonitor = ./evil\n");
    repository(&root.join(folder).join("bare"));
    write(root, &format!("{folder}/bare/config"), "[core]\n\tfsmonitor = ./evil\n");
    write(root, &format!("{folder}/app/.envrc"), "./evil\n");
    write(root, &format!("{folder}/app/CLAUDE.md"), "evil\n");
    write(root, &format!("{folder}/app/main.rs"), "fn main() {}\n");
}

/// Names of all files below `folder`, however deep.
fn names_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        names.push(entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            names.extend(names_below(&entry.path()));
        }
    }
    names
}

#[test]
fn protected_names_below_a_folder_that_is_renamed_in_place_are_renamed() {
    let world = ProtectedWorkspace::new();
    // Nothing can be moved to a quarantine that is a file.
    write(world.quarantine.parent().unwrap(), "quarantine", "");
    let chain = ".vscode/".repeat(LEVELS);
    let findings = world.after(|root| {
        plant(root, &format!("s/{chain}"));
        mkfifo(&root.join("s").join(&chain).join("pipe"), Mode::S_IRWXU).unwrap();
        write(root, "s/moved-aside-1-vscode/taken", "");
    });
    let names = names_below(&world.root.join("s"));
    for name in [".vscode", ".git", ".envrc", "CLAUDE.md", "HEAD"] {
        assert!(!names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    // The rest keeps its name, and nothing is removed.
    for name in ["main.rs", "pipe", "taken", "config"] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    assert!(
        findings.iter().any(|finding| finding.path == world.root.join("s/.vscode")),
        "{findings:?}"
    );
    let keeps_changing = |finding: &Finding| finding.what == ProtectedChange::KeepsChanging;
    assert!(!findings.iter().any(keeps_changing), "{findings:?}");
    assert_eq!(world.after(|_| {}), []);
}

#[test]
fn names_behind_a_chain_of_links_that_each_round_makes_longer_are_found() {
    let world = ProtectedWorkspace::new();
    write(world.quarantine.parent().unwrap(), "quarantine", "");
    let findings = world.after(|root| {
        // In the folder of a package manager a name counts only behind a link in an ordinary folder.
        for level in 0..LEVELS {
            let folder = root.join(format!("node_modules/z{level}/.vscode"));
            fs::create_dir_all(&folder).unwrap();
            mkfifo(&folder.join("pipe"), Mode::S_IRWXU).unwrap();
            symlink(format!("../../z{}", level + 1), folder.join("next")).unwrap();
        }
        write(root, &format!("node_modules/z{LEVELS}/.envrc"), "./evil\n");
        symlink("node_modules/z0", root.join("start")).unwrap();
    });
    assert!(!world.exists(&format!("node_modules/z{LEVELS}/.envrc")), "{findings:?}");
    let keeps_changing = |finding: &Finding| finding.what == ProtectedChange::KeepsChanging;
    assert!(!findings.iter().any(keeps_changing), "{findings:?}");
}

#[test]
fn quarantine_contains_no_protected_names() {
    let world = ProtectedWorkspace::new();
    world.after(|root| plant(root, "s/.vscode"));
    let names = names_below(&world.quarantine);
    assert!(names.iter().any(|name| name == "main.rs"), "{names:?}");
    for name in [".git", ".envrc", "CLAUDE.md", "HEAD"] {
        assert!(!names.iter().any(|found| found == name), "{name}: {names:?}");
    }
}

#[test]
fn names_of_what_is_renamed_in_place_cannot_be_foreseen() {
    let moved = || {
        let world = ProtectedWorkspace::new();
        write(world.quarantine.parent().unwrap(), "quarantine", "");
        world.after(|root| write(root, "s/.envrc", "./evil\n"));
        names_below(&world.root.join("s"))
    };
    let (one, other) = (moved(), moved());
    assert!(one[0].starts_with("moved-aside-") && one[0].ends_with("-envrc"), "{one:?}");
    assert_ne!(one, other);
}

#[test]
fn foreign_entries_of_a_git_folder_that_cannot_be_quarantined_are_renamed_once() {
    let world = ProtectedWorkspace::new();
    write(world.quarantine.parent().unwrap(), "quarantine", "");
    let findings = world.after(|root| {
        mkfifo(&root.join(".git/evil"), Mode::S_IRWXU).unwrap();
        write(root, ".git/glab-cli/aliases.yml", "evil\n");
    });
    assert!(!world.exists(".git/evil") && !world.exists(".git/glab-cli"), "{findings:?}");
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert_eq!(world.after(|_| {}), []);
}

#[test]
fn environment_that_settings_above_the_root_load_is_moved_aside() {
    let is_moved = |loader: &str, repository: &str| {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let root = base.join("project/app");
        fs::create_dir_all(&root).unwrap();
        super::repository(&base.join(repository).join(".git"));
        write(&base, loader, "");
        let protection = Protection::new(
            std::slice::from_ref(&root),
            Vec::new(),
            None,
            Vec::new(),
            base.join("session/quarantine"),
        );
        let protection = Arc::new(protection.unwrap());
        let survey = protection.survey();
        write(&root, ".env", "BASH_ENV=./evil\n");
        protection.check_after(survey);
        !root.join(".env").exists()
    };
    for (loader, repository, expected) in [
        ("project/.envrc", "project", true),
        ("project/mise.test.toml", "project", true),
        ("project/.config/mise/conf.d/a.toml", "project", true),
        ("project/app/.mise.dev.toml", "project", true),
        ("project/.config/mise.dev.toml", "project", true),
        ("project/mise/config.dev.toml", "project", true),
        ("project/other.toml", "project", false),
        // Above the work tree, and in no work tree.
        (".envrc", "project", false),
        ("project/.envrc", "project/app", false),
        ("project/.envrc", "elsewhere", false),
    ] {
        assert_eq!(is_moved(loader, repository), expected, "{loader} {repository}");
    }
}

#[test]
fn folder_of_replaced_objects_hides_no_protected_names() {
    let world = ProtectedWorkspace::new();
    let hidden = ["x/refs/replace/app", "x/worktrees/w/replace/app", "c/.git/refs/replace/app"];
    let findings = world.after(|root| {
        repository(&root.join("x"));
        repository(&root.join("c/.git"));
        write(root, "x/worktrees/w/HEAD", "ref: refs/heads/w\n");
        write(root, "x/worktrees/w/commondir", "../..\n");
        for (nth, folder) in hidden.iter().enumerate() {
            write(root, &format!("{folder}/.envrc"), "./evil\n");
            write(root, &format!("{folder}/main.rs"), "");
            symlink(folder, root.join(format!("app{nth}"))).unwrap();
        }
    });
    for folder in hidden {
        let path = format!("{folder}/.envrc");
        let is_named = findings.iter().any(|finding| finding.path.ends_with(&path));
        assert!(is_named || !world.exists(&path), "{path}: {findings:?}");
    }
}

#[test]
fn links_in_a_row_through_folders_of_packages_are_followed_to_the_end() {
    for levels in [1, 5, 6, 40] {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| {
            for level in 0..levels {
                let folder = root.join(format!("node_modules/z{level}"));
                fs::create_dir_all(&folder).unwrap();
                symlink(format!("../z{}", level + 1), folder.join("next")).unwrap();
            }
            write(root, &format!("node_modules/z{levels}/.envrc"), "./evil\n");
            symlink("node_modules/z0", root.join("start")).unwrap();
        });
        let path = format!("node_modules/z{levels}/.envrc");
        assert!(!world.exists(&path), "{levels}: {findings:?}");
        assert_eq!(handled(&findings), 1, "{levels}: {findings:?}");
    }
}

#[test]
fn repository_of_another_name_that_loses_a_part_is_reported() {
    for (from, to) in [("HEAD", None), ("refs", Some("refs2")), ("objects", Some("kept"))] {
        let world = ProtectedWorkspace::with(|root| repository(&root.join("repo.git")));
        let part = world.root.join("repo.git").join(from);
        let findings = world.after(|root| match to {
            Some(name) => fs::rename(&part, root.join("repo.git").join(name)).unwrap(),
            None => fs::remove_file(&part).unwrap(),
        });
        let is_told = |finding: &Finding| {
            finding.path == world.root.join("repo.git")
                && matches!(finding.action, ProtectAction::Failed(_))
        };
        assert!(findings.iter().any(is_told), "{from}: {findings:?}");
    }
    // Without settings, and beneath a folder that was renamed before.
    for (folder, name) in [("lib", "lib"), ("lib", "other")] {
        let world = ProtectedWorkspace::with(|root| {
            repository(&root.join("lib/repo.git"));
            fs::remove_file(root.join("lib/repo.git/config")).unwrap();
        });
        let findings = world.after(|root| {
            if folder != name {
                fs::rename(root.join(folder), root.join(name)).unwrap();
            }
            fs::remove_file(root.join(name).join("repo.git/HEAD")).unwrap();
        });
        let is_told = |finding: &Finding| matches!(finding.action, ProtectAction::Failed(_));
        assert!(findings.iter().any(is_told), "{name}: {findings:?}");
    }
    // A folder that is deleted as a whole is a folder like any other.
    let world = ProtectedWorkspace::with(|root| repository(&root.join("repo.git")));
    assert_eq!(world.after(|root| fs::remove_dir_all(root.join("repo.git")).unwrap()), []);
}

#[test]
fn link_whose_way_is_too_long_to_resolve_is_followed() {
    let (name, levels) = ("d".repeat(200), 24);
    let half = vec![name.as_str(); levels / 2].join("/");
    // The last one is in another root.
    for target in ["node_modules/app", "../other/node_modules/app"] {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let roots = [base.join("ws"), base.join("other")];
        for root in &roots {
            fs::create_dir(root).unwrap();
        }
        let root = &roots[0];
        let quarantine = base.join("session/quarantine");
        let protection = Protection::new(&roots, Vec::new(), None, Vec::new(), quarantine);
        let protection = Arc::new(protection.unwrap());
        let survey = protection.survey();
        write(root, &format!("{target}/.envrc"), "./evil\n");
        fs::create_dir_all(root.join(&half)).unwrap();
        // The second half of the folders has a path that no system call takes.
        let mut folder = fs::File::open(root.join(&half)).unwrap();
        for _ in 0..levels / 2 {
            nix::sys::stat::mkdirat(&folder, &*name, Mode::S_IRWXU).unwrap();
            let opened = nix::fcntl::openat(&folder, &*name, place::FOLDER, Mode::empty()).unwrap();
            folder = opened.into();
        }
        let way = format!("{}{target}", "../".repeat(levels));
        nix::unistd::symlinkat(&*way, &folder, "last").unwrap();
        symlink(format!("{half}/last"), root.join(&half).join("middle")).unwrap();
        symlink(format!("{half}/middle"), root.join("app")).unwrap();
        let findings = protection.check_after(survey);
        assert!(root.join("app/").exists(), "the link leads somewhere");
        assert!(!root.join(target).join(".envrc").exists(), "{target}: {findings:?}");
    }
}

#[test]
fn link_to_a_part_of_git_does_not_take_its_meaning_from_it() {
    let steps = |linked: Option<&str>| {
        let world = ProtectedWorkspace::new();
        world.after(|root| {
            let folder = ".git/rebase-merge";
            write(root, &format!("{folder}/git-rebase-todo"), "exec ./evil\n");
            write(root, ".git/refs/replace/1234", "5678\n");
            write(root, ".git/worktrees/w/gitdir", "/elsewhere/.git\n");
            write(root, ".git/info/grafts", "1234\n");
            if let Some(part) = linked {
                symlink(format!(".git/{part}"), root.join("nice")).unwrap();
            }
        });
        let text = world.read(".git/rebase-merge/git-rebase-todo");
        let is_there = |path: &str| world.exists(path);
        let others = [".git/refs/replace/1234", ".git/info/grafts"].map(is_there);
        (text, others, world.read(".git/worktrees/w/gitdir"))
    };
    let expected = steps(None);
    for part in ["rebase-merge", "refs", "refs/replace", "worktrees", "worktrees/w", "info"] {
        assert_eq!(steps(Some(part)), expected, "{part}");
    }
}

#[test]
fn link_is_followed_although_there_are_more_folders_than_are_scanned() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let root = base.join("ws");
    fs::create_dir(&root).unwrap();
    let quarantine = base.join("session/quarantine");
    let protection =
        Protection::new(std::slice::from_ref(&root), Vec::new(), None, Vec::new(), quarantine);
    let bounds = ScanBounds { folders: 20, ..ScanBounds::default() };
    let protection = Arc::new(Protection { bounds, ..protection.unwrap() });
    let survey = protection.survey();
    for number in 0..200 {
        fs::create_dir_all(root.join(format!("z/{number}"))).unwrap();
    }
    write(&root, "node_modules/app/.envrc", "./evil\n");
    symlink("node_modules/app", root.join("app")).unwrap();
    let findings = protection.check_after(survey);
    assert!(!root.join("node_modules/app/.envrc").exists(), "{findings:?}");
    assert!(findings.iter().any(|finding| finding.what == ProtectedChange::TooMuch));
}

#[test]
fn links_to_and_fro_between_roots_are_followed_to_the_end() {
    for levels in [1, 7, 8, 20] {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let roots = [base.join("ws"), base.join("other")];
        for root in &roots {
            fs::create_dir(root).unwrap();
        }
        let quarantine = base.join("session/quarantine");
        let protection = Protection::new(&roots, Vec::new(), None, Vec::new(), quarantine);
        let protection = Arc::new(protection.unwrap());
        let survey = protection.survey();
        let at = |level: usize| roots[level % 2].join(format!("node_modules/z{level}"));
        for level in 0..levels {
            fs::create_dir_all(at(level)).unwrap();
            symlink(at(level + 1), at(level).join("next")).unwrap();
        }
        fs::create_dir_all(at(levels)).unwrap();
        fs::write(at(levels).join(".envrc"), "./evil\n").unwrap();
        symlink(at(0), roots[0].join("start")).unwrap();
        let findings = protection.check_after(survey);
        assert!(!at(levels).join(".envrc").exists(), "{levels}: {findings:?}");
        assert_eq!(handled(&findings), 1, "{levels}: {findings:?}");
    }
}

#[test]
fn links_that_lead_elsewhere_for_other_processes_or_later_are_followed() {
    for text in [
        "/proc/self/cwd/../node_modules/app",
        "/proc/self/cwd/node_modules/app",
        "later/../node_modules/app",
        "cwd/../node_modules/app",
    ] {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| {
            write(root, "node_modules/app/.envrc", "./evil\n");
            fs::create_dir(root.join("sub")).unwrap();
            symlink("/proc/self/cwd", root.join("sub/cwd")).unwrap();
            symlink(text, root.join("sub/app")).unwrap();
        });
        assert!(!world.exists("node_modules/app/.envrc"), "{text}: {findings:?}");
    }
    // A link that leads nowhere in an ordinary folder says nothing about a package.
    let world = ProtectedWorkspace::new();
    assert_eq!(
        world.after(|root| {
            write(root, "node_modules/app/.envrc", "of the package\n");
            symlink("gone/app", root.join("app")).unwrap();
        }),
        []
    );
}

/// Links, as pairs of path and text, and the paths of those that are reported.
/// A program of the workspace that hides another one of the search path is reported once, and not
/// if posse's user made it.
#[test]
fn program_that_hides_another_one_of_the_search_path_is_reported() {
    let world = ProtectedWorkspace::new();
    let system = tempfile::tempdir().unwrap();
    let program = |folder: &Path, name: &str, text: &str| {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    program(system.path(), "git", "");
    program(system.path(), "python", "");
    let bin = world.root.join(".venv/bin");
    program(&bin, "python", "of the user");
    let path = env::join_paths([&bin, system.path()]).unwrap();
    let roots = [world.root.clone()];
    world.protection.lock().search_path = SearchPath::new(&path, &roots);
    let findings = world.after(|_| {
        program(&bin, "git", "of a command");
        program(&bin, "pytest", "hides nothing");
    });
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((&finding.path, &finding.what), (&bin.join("git"), &ProtectedChange::HidesProgram));
    assert!(finding.to_string().contains("in a folder of your PATH"), "{finding}");
    assert_eq!(world.after(|root| write(root, "other", "")), []);
    let findings = world.after(|_| program(&bin, "python", "changed"));
    assert_eq!(findings.len(), 1, "{findings:?}");
}

type UncertainLinks<'t> = (&'t [(&'t str, &'t str)], &'t [&'t str]);

/// The target that such a link has after a later step of the user was not checked.
#[test]
fn new_links_that_may_lead_elsewhere_later_are_reported() {
    let deep = "../".repeat(30) + "proc/self/cwd/node_modules/app";
    let table: &[UncertainLinks<'_>] = &[
        (&[("node_modules/l", "."), ("x", "target/../node_modules/l/app")], &["x"]),
        (&[("up", "target/.."), ("x", "up/node_modules/app")], &["up", "x"]),
        (&[("node_modules/l", "app"), ("x", "target/../node_modules/l")], &["x"]),
        (&[("sub/x", &deep)], &["sub/x"]),
        (&[("sub/x", "/tmp/../proc/self/cwd/node_modules/app")], &["sub/x"]),
        (&[("p", "/proc/self"), ("sub/x", "../p/cwd/node_modules/app")], &["p", "sub/x"]),
        (&[("node_modules/l", "."), ("sub/x", "/proc/self/cwd/../node_modules/l/app")], &["sub/x"]),
        (&[("x", "node_modules/pkg")], &["x"]),
        (&[("x", "/dev/fd/3/app")], &["x"]),
        (&[("node_modules/l", "l"), ("x", "node_modules/l")], &["x"]),
        (&[("target", "gone"), ("x", "target/../../node_modules/app")], &["x"]),
        (&[("x", "/mnt/gone/node_modules/app")], &["x"]),
        (&[("own", "own"), ("y", "node_modules")], &["own", "y"]),
        (&[("x", "gone"), ("sub/x", "../gone/app")], &[]),
    ];
    for (links, expected) in table {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| {
            write(root, "node_modules/app/readme", "of the package\n");
            fs::create_dir(root.join("sub")).unwrap();
            for (link, text) in *links {
                symlink(text, root.join(link)).unwrap();
            }
        });
        let reported: Vec<&Path> = findings
            .iter()
            .filter(|finding| finding.what == ProtectedChange::UncertainLink)
            .map(|finding| finding.path.strip_prefix(&world.root).unwrap())
            .collect();
        let expected: Vec<&Path> = expected.iter().map(Path::new).collect();
        assert_eq!(reported, expected, "{links:?}: {findings:?}");
        // A link is reported once, and links of the user are not.
        assert_eq!(world.after(|root| write(root, "other", "")), [], "{links:?}");
    }
}
