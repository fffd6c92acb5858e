//! Folders of the user that look like a repository, and secrets that are not plain files at short
//! paths.

use nix::sys::stat::Mode;

use super::*;

impl ProtectedWorkspace {
    fn all_hidden(&self) -> Vec<PathBuf> {
        let survey = self.protection.survey();
        let hidden = survey.hidden.clone();
        self.protection.check_after(survey);
        hidden
    }
}

/// Files that a user can have in a project, at places that steer git in a repository.
fn user_files(root: &Path) {
    for path in ["app/config/db.yml", "app/hooks/use.ts", "app/branches/x", "app/index/y"] {
        write(root, path, "the user's\n");
    }
    write(root, "app/config/master.key", "KEY=1");
    write(root, "app/hooks/.env", "KEY=2");
    write(root, "app/data/real.txt", "KEY=3");
    symlink("data/real.txt", root.join("app/.env")).unwrap();
}

#[test]
fn secrets_in_a_folder_that_looks_like_a_repository_are_hidden() {
    let expected = ["app/config/master.key", "app/data/real.txt", "app/hooks/.env"];
    for parts in [&["HEAD", "commondir"][..], &["HEAD", "objects/x", "refs/x"], &["head", "refs"]] {
        let world = ProtectedWorkspace::with(|root| {
            user_files(root);
            for part in parts {
                write(root, &format!("app/{part}"), "");
            }
        });
        assert_eq!(world.names(&world.all_hidden()), expected, "{parts:?}");
    }
}

#[test]
fn repository_that_a_command_makes_around_files_of_the_user_is_taken_apart() {
    for moves_in in [false, true] {
        let world = ProtectedWorkspace::with(|root| {
            user_files(root);
            write(root, "parts/HEAD", "ref: refs/heads/main\n");
            write(root, "app/refs/x", "the user's\n");
        });
        // The clock of the file system must advance by more than its tick.
        std::thread::sleep(Duration::from_millis(60));
        let findings = world.after(|root| {
            write(root, "app/objects/x", "");
            if moves_in {
                fs::rename(root.join("parts/HEAD"), root.join("app/HEAD")).unwrap();
            } else {
                write(root, "app/HEAD", "");
                write(root, "app/commondir", "..");
            }
            write(root, "app/hooks/new.ts", "the model's\n");
        });
        let moved = |finding: &Finding| matches!(finding.action, ProtectAction::MovedAside(_));
        assert_eq!(findings.iter().filter(|finding| moved(finding)).count(), 1, "{findings:?}");
        assert!(["app/HEAD", "app/objects"].iter().any(|part| !world.exists(part)));
        for path in ["config/db.yml", "config/master.key", "hooks/use.ts", "hooks/new.ts", "refs/x"]
        {
            assert!(world.exists(&format!("app/{path}")), "{path}: {findings:?}");
        }
    }
}

#[test]
fn repository_of_a_command_is_cleaned_also_around_an_older_name() {
    let world = ProtectedWorkspace::with(|root| write(root, "app/description", "x"));
    std::thread::sleep(Duration::from_millis(60));
    world.after(|root| {
        repository(&root.join("app"));
        write(root, "app/config", "[core]\n\tfsmonitor = ./evil\n");
    });
    let config = world.read("app/config");
    assert!(!config.contains("fsmonitor") || !world.exists("app/HEAD"), "{config}");
}

#[test]
fn folders_with_the_names_of_a_repository_are_no_repository() {
    let world = ProtectedWorkspace::with(user_files);
    let findings = world.after(|root| {
        for name in ["head", "objects", "refs"] {
            fs::create_dir(root.join("app").join(name)).unwrap();
        }
    });
    assert_eq!(findings, []);
    assert!(world.exists("app/config/db.yml") && world.exists("app/head"));
}

#[test]
fn pipe_with_the_name_of_a_secret_is_hidden() {
    let world = ProtectedWorkspace::with(|root| {
        nix::unistd::mkfifo(&root.join(".env"), Mode::S_IRWXU).unwrap();
    });
    assert_eq!(world.names(&world.all_hidden()), [".env"]);
    world.after(|root| fs::rename(root.join(".env"), root.join("x")).unwrap());
    assert_eq!(world.names(&world.all_hidden()), ["x"]);
}

/// Moves the folder `app` so deep that its path is longer than the kernel accepts.
fn bury(root: &Path, below: &str, depth: usize) {
    let name = "d".repeat(200);
    let folders: PathBuf = std::iter::repeat_n(name.as_str(), depth).collect();
    let (one, two) = (root.join("one"), root.join(below));
    fs::create_dir_all(one.join(&folders)).unwrap();
    fs::create_dir_all(two.join(&folders)).unwrap();
    fs::rename(root.join("app"), one.join(&folders).join("app")).unwrap();
    fs::rename(one, two.join(&folders).join("one")).unwrap();
}

#[test]
fn secret_below_a_path_that_is_too_long_is_hidden_with_a_folder_above_it() {
    for depth in [8, 9, 10, 11, 14] {
        let world = ProtectedWorkspace::with(|root| write(root, "app/.env", "KEY=1"));
        assert_eq!(world.names(&world.all_hidden()), ["app/.env"]);
        world.after(|root| bury(root, "two", depth));
        for _ in 0..2 {
            let hidden = world.all_hidden();
            let [path] = &hidden[..] else { panic!("{hidden:?}") };
            assert!(path.starts_with(world.root.join("two")) && path.as_os_str().len() < 4000);
            assert!(fs::metadata(path).is_ok());
        }
    }
}

#[test]
fn no_command_starts_while_a_secret_exists_at_an_unknown_place() {
    let world = ProtectedWorkspace::with(|root| write(root, "app/.env", "KEY=1"));
    world.all_hidden();
    let aside = world.quarantine.parent().unwrap().parent().unwrap().to_owned();
    fs::rename(world.root.join("app"), aside.join("app")).unwrap();
    bury(&aside, "two", 14);
    assert!(world.protection.survey().is_unsettled);
}

#[test]
fn targets_outside_of_the_workspace_are_hidden_unless_they_are_parts_of_the_system() {
    let world = ProtectedWorkspace::new();
    let aside = world.quarantine.parent().unwrap().parent().unwrap().join("aside");
    write(&aside, "plain.txt", "KEY=1");
    write(&aside, "aws/credentials", "KEY=2");
    let links = [
        (".env", aside.join("plain.txt")),
        (".aws", aside.join("aws")),
        ("a/.env", PathBuf::from("/dev/null")),
        ("b/.env", PathBuf::from("/bin/sh")),
        ("c/.env", PathBuf::from("/")),
        ("d/.env", aside.parent().unwrap().to_owned()),
    ];
    for (link, target) in links {
        write(&world.root, link, "");
        fs::remove_file(world.root.join(link)).unwrap();
        symlink(target, world.root.join(link)).unwrap();
    }
    assert_eq!(world.all_hidden(), [aside.join("aws"), aside.join("plain.txt")]);
}

#[test]
fn repositories_in_the_hooks_of_each_other_do_not_use_up_the_rounds() {
    let folder = |depth: usize| (0..depth).map(|_| "d/hooks/").collect::<String>() + "d";
    let world = ProtectedWorkspace::with(|root| {
        for depth in 0..12 {
            let config = format!("{}/config", folder(depth));
            write(root, &config, "[core]\n\tfsmonitor = ./evil\n");
        }
    });
    std::thread::sleep(Duration::from_millis(60));
    let findings = world.after(|root| {
        for depth in 0..12 {
            for part in ["HEAD", "objects/x", "refs/x", ".envrc"] {
                write(root, &format!("{}/{part}", folder(depth)), "");
            }
        }
    });
    for depth in 0..12 {
        let at = folder(depth);
        let is_repository = world.exists(&format!("{at}/HEAD"));
        let config = world.read(&format!("{at}/config"));
        assert!(!is_repository || !config.contains("fsmonitor"), "{depth}: {findings:?}");
        assert!(!world.exists(&format!("{at}/.envrc")), "{depth}: {findings:?}");
    }
}

/// Each check takes a folder apart once, in one scan, whatever spellings there are.
#[test]
fn decoys_and_other_control_files_do_not_keep_a_repository() {
    for with_root in [false, true] {
        let at = |path: &str| if with_root { path.to_owned() } else { format!("d/{path}") };
        let world = ProtectedWorkspace::with(|root| {
            write(root, &at("hooks/x"), "");
            write(root, &at("config"), "[core]\n\tfsmonitor = ./evil\n");
            write(root, "old", "ref: refs/heads/main\n");
        });
        std::thread::sleep(Duration::from_millis(60));
        let findings = world.after(|root| {
            fs::create_dir_all(root.join(at("objects"))).unwrap();
            fs::create_dir_all(root.join(at("refs/heads"))).unwrap();
            fs::rename(root.join("old"), root.join(at("HEAD"))).unwrap();
            for name in 1..16u8 {
                let letter = |(nth, c): (usize, char)| {
                    if name & (1 << nth) == 0 { c } else { c.to_ascii_lowercase() }
                };
                let name: String = "HEAD".chars().enumerate().map(letter).collect();
                write(root, &at(&name), "");
            }
            write(root, &at(".envrc"), "evil");
            write(root, &at("lib/.vscode/settings.json"), "{}");
        });
        for path in [at(".envrc"), at("lib/.vscode/settings.json")] {
            assert!(!world.exists(&path), "{path}: {findings:?}");
        }
        let is_repository = world.exists(&at("HEAD")) && world.exists(&at("refs"));
        let config = world.read(&at("config"));
        assert!(!is_repository || !config.contains("fsmonitor"), "{findings:?}");
        let is_unsettled =
            |finding: &Finding| matches!(finding.what, ProtectedChange::KeepsChanging);
        assert!(!findings.iter().any(is_unsettled), "{findings:?}");
    }
}

#[test]
fn new_repository_that_is_moved_into_the_workspace_is_cleaned() {
    let world = ProtectedWorkspace::new();
    let aside = world.quarantine.parent().unwrap().parent().unwrap().join("new");
    repository(&aside);
    write(&aside, "config", "[core]\n\tfsmonitor = ./evil\n");
    std::thread::sleep(Duration::from_millis(60));
    let findings = world.after(|root| fs::rename(&aside, root.join("new")).unwrap());
    assert!(world.exists("new/HEAD") && world.exists("new/refs"), "{findings:?}");
    assert!(!world.read("new/config").contains("fsmonitor"), "{findings:?}");
}

#[test]
fn targets_of_links_in_secret_folders_are_hidden() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let (root, home) = (base.join("ws"), base.join("home"));
    write(&root, "data/real", "KEY=1");
    write(&root, ".env/plain", "KEY=2");
    write(&home, "store/key", "KEY=3");
    write(&home, "store/open", "text");
    write(&home, ".ssh/known_hosts", "");
    symlink("../data/real", root.join(".env/prod")).unwrap();
    symlink("../store/key", home.join(".ssh/id_work")).unwrap();
    write(&home, "store/deep", "KEY=4");
    write(&home, ".aws/sso/x/plain", "");
    symlink("../../../store/deep", home.join(".aws/sso/x/token")).unwrap();
    symlink("../store/gone", home.join(".ssh/id_gone")).unwrap();
    let protection = Protection::new(
        std::slice::from_ref(&root),
        Vec::new(),
        Some(home.clone()),
        Vec::new(),
        base.join("session/quarantine"),
    );
    let survey = Arc::new(protection.unwrap()).survey();
    let of_home = [".aws", ".ssh", "store/deep", "store/key"].map(|path| home.join(path));
    let of_root = [".env", "data/real"].map(|path| root.join(path));
    assert_eq!(survey.hidden, [of_home.to_vec(), of_root.to_vec()].concat());
}
