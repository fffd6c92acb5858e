//! Secrets stay hidden when they or the folders above them are renamed.

use std::os::unix::fs::MetadataExt;

use super::*;

const SECRETS: [(&str, &str); 5] = [
    (".streamlit/secrets.toml", "KEY=1"),
    (".docker/config.json", "{}"),
    ("app/.env", "KEY=2"),
    (".env", "KEY=3"),
    ("deploy/.aws/credentials", "KEY=4"),
];

fn world() -> ProtectedWorkspace {
    ProtectedWorkspace::with(|root| {
        for (path, text) in SECRETS {
            write(root, path, text);
        }
        write(root, "app/main.py", "print()");
        write(root, "vendor/lib/lib.go", "package lib");
    })
}

fn rename(root: &Path, from: &str, to: &str) {
    let to = root.join(to);
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::rename(root.join(from), to).unwrap();
}

impl ProtectedWorkspace {
    /// Hidden paths below the root.
    fn hidden(&self) -> Vec<String> {
        let survey = self.protection.survey();
        assert!(survey.complete);
        let hidden = self.names(&survey.hidden);
        self.protection.check_after(survey);
        assert_eq!(self.names(&self.protection.secrets_inside()), hidden);
        hidden
    }

    fn is_registered(&self, path: &str) -> bool {
        self.protection.secret_files.contains(&fs::metadata(self.root.join(path)).unwrap())
    }
}

#[test]
fn secrets_in_renamed_folders_stay_hidden() {
    let world = world();
    let findings = world.after(|root| {
        rename(root, ".streamlit", "st");
        rename(root, ".docker", "a/dk");
        rename(root, "app", "vendor/app");
        rename(root, "deploy", "node_modules/deploy");
    });
    assert_eq!(findings, []);
    let moved = [
        ".env",
        "a/dk/config.json",
        "node_modules/deploy/.aws",
        "st/secrets.toml",
        "vendor/app/.env",
    ];
    assert_eq!(world.hidden(), moved);
    world.after(|root| rename(root, "st", "deep/er/st2"));
    assert!(world.hidden().contains(&"deep/er/st2/secrets.toml".to_owned()));
    assert!(!world.is_registered("vendor/app/main.py"));
}

#[test]
fn renamed_secret_file_and_folder_stay_hidden() {
    let world = world();
    world.after(|root| {
        rename(root, ".env", "x.txt");
        rename(root, "deploy/.aws", "notes");
        write(root, "notes/id_rsa", "KEY=5");
    });
    let moved = [".docker/config.json", ".streamlit/secrets.toml", "app/.env", "notes", "x.txt"];
    assert_eq!(world.hidden(), moved);
    world.after(|root| {
        rename(root, "x.txt", ".env.example");
        rename(root, "notes", "src/notes");
    });
    let hidden = world.hidden();
    assert!(hidden.contains(&".env.example".to_owned()), "{hidden:?}");
    assert!(hidden.contains(&"src/notes".to_owned()), "{hidden:?}");
    assert!(world.is_registered("src/notes") && !world.is_registered("src"));
}

#[test]
fn secret_in_an_unscanned_folder_of_git_stays_hidden() {
    let world = world();
    world.after(|root| {
        rename(root, ".docker", ".git/objects/aa/b/dk");
        rename(root, ".streamlit", ".git/refs/st");
    });
    for _ in 0..2 {
        let hidden = world.hidden();
        assert!(hidden.contains(&".git/objects/aa/b/dk/config.json".to_owned()), "{hidden:?}");
        assert!(hidden.contains(&".git/refs/st/secrets.toml".to_owned()), "{hidden:?}");
    }
    world.after(|root| rename(root, ".git/objects/aa/b/dk", "dk"));
    assert!(world.hidden().contains(&"dk/config.json".to_owned()));
}

#[test]
fn secret_folder_that_becomes_a_repository_is_cleaned() {
    let world = world();
    world.after(|root| {
        repository(&root.join("src/.aws"));
        write(root, "src/.aws/config", "[core]\n\tfsmonitor = ./evil\n");
    });
    assert!(world.hidden().contains(&"src/.aws".to_owned()));
    let findings = world.after(|root| rename(root, "src/.aws", "src/.git"));
    assert!(!world.read("src/.git/config").contains("fsmonitor"), "{findings:?}");
    assert!(world.hidden().contains(&"src/.git".to_owned()));
}

#[test]
fn secret_is_known_again_when_it_returns() {
    let world = world();
    world.hidden();
    let aside = world.quarantine.parent().unwrap().parent().unwrap().join("aside");
    fs::rename(world.root.join(".docker"), &aside).unwrap();
    assert!(!world.hidden().iter().any(|path| path.contains("config.json")));
    fs::rename(&aside, world.root.join("src/dk")).unwrap();
    assert!(world.hidden().contains(&"src/dk/config.json".to_owned()));
}

#[test]
fn new_file_with_the_inode_of_a_removed_secret_is_not_hidden() {
    let world = world();
    world.hidden();
    let secret = fs::metadata(world.root.join(".env")).unwrap();
    fs::remove_file(world.root.join(".env")).unwrap();
    // The clock of the file system must advance.
    std::thread::sleep(Duration::from_millis(20));
    let names: Vec<String> = (0..200).map(|number| format!("src/{number}")).collect();
    for name in &names {
        write(&world.root, name, "x");
    }
    let reused = names
        .iter()
        .find(|name| fs::metadata(world.root.join(name)).unwrap().ino() == secret.ino());
    let hidden = world.hidden();
    assert!(!hidden.iter().any(|path| path.starts_with("src")), "{hidden:?}");
    if let Some(name) = reused {
        assert!(!world.is_registered(name));
    }
}

#[test]
fn removed_secret_is_searched_once() {
    let world = world();
    world.hidden();
    fs::remove_dir_all(world.root.join(".docker")).unwrap();
    let missing = |world: &ProtectedWorkspace| {
        let found = |id: &(u64, u64)| {
            let path = SECRETS.iter().map(|(path, _)| world.root.join(path));
            path.filter_map(|path| fs::metadata(path).ok())
                .chain(fs::metadata(world.root.join("deploy/.aws")))
                .any(|metadata| (metadata.dev(), metadata.ino()) == *id)
        };
        world.protection.secret_files.missing(world.protection.scanner, found).len()
    };
    assert_eq!(missing(&world), 1);
    assert_eq!(world.hidden().len(), 4);
    assert_eq!(missing(&world), 0);
}

#[test]
fn hard_link_in_a_folder_read_before_stays_hidden_without_the_secret() {
    let world = ProtectedWorkspace::with(|root| write(root, "docs/a/x", "KEY=1"));
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(world.hidden(), [""; 0]);
    world.after(|root| fs::hard_link(root.join("docs/a/x"), root.join(".env")).unwrap());
    assert_eq!(world.hidden(), [".env", "docs/a/x"]);
    world.after(|root| fs::remove_file(root.join(".env")).unwrap());
    assert_eq!(world.hidden(), ["docs/a/x"]);
}

#[test]
fn file_of_the_home_folder_stays_hidden_when_the_link_to_it_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let (home, root) = (base.join("home"), base.join("ws"));
    write(&home, "dotfiles/docker.json", "{}");
    write(&root, "shared.txt", "x");
    fs::create_dir(root.join(".docker")).unwrap();
    symlink(home.join("dotfiles/docker.json"), root.join(".docker/config.json")).unwrap();
    symlink("shared.txt", root.join(".env")).unwrap();
    let roots = std::slice::from_ref(&root);
    let protection =
        Protection::new(roots, Vec::new(), Some(home.clone()), Vec::new(), base.join("q"));
    let protection = Arc::new(protection.unwrap());
    let target = home.join("dotfiles/docker.json");
    assert_eq!(protection.survey().hidden, [target.clone(), root.join("shared.txt")]);
    rename(&root, ".docker", "dk");
    fs::remove_file(root.join(".env")).unwrap();
    // A command could remove the link, too.
    assert_eq!(protection.survey().hidden, [target, root.join("shared.txt")]);
}

#[test]
fn registry_is_shared_between_protections() {
    let world = world();
    let registry = SecretFiles::default();
    let make = |roots: &[PathBuf]| {
        let made = Protection::new(roots, Vec::new(), None, Vec::new(), world.quarantine.clone());
        Arc::new(made.unwrap().registering(registry.clone()))
    };
    let (inner, outer) = (make(&[world.root.join("src")]), make(std::slice::from_ref(&world.root)));
    let hidden = |protection: &Arc<Protection>| protection.secrets_inside();
    assert!(hidden(&inner).is_empty());
    assert_eq!(hidden(&outer).len(), 5);
    rename(&world.root, ".docker", "src/dk");
    assert_eq!(hidden(&inner), [world.root.join("src/dk/config.json")]);
    // A scan of other roots forgets nothing.
    rename(&world.root, ".streamlit", "st");
    assert_eq!(hidden(&inner).len(), 1);
    assert!(hidden(&outer).contains(&world.root.join("st/secrets.toml")));
}

#[test]
fn ordinary_and_permitted_files_are_not_hidden_after_a_rename() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let root = base.join("ws");
    write(&root, "certs/public.pem", "-----BEGIN CERTIFICATE-----\n");
    write(&root, "certs/private.pem", "-----BEGIN PRIVATE KEY-----\n");
    write(&root, ".env.test", "x");
    write(&root, ".env.example", "x");
    write(&root, ".docker/Dockerfile", "x");
    let readable = vec![root.join(".env.test")];
    let roots = std::slice::from_ref(&root);
    let protection = Protection::new(roots, Vec::new(), None, readable, base.join("q"));
    let protection = Arc::new(protection.unwrap());
    assert_eq!(protection.survey().hidden, [root.join("certs/private.pem")]);
    for (from, to) in [
        ("certs/public.pem", "public.crt"),
        ("certs/private.pem", "private.txt"),
        (".env.test", "test.txt"),
        (".env.example", "example.txt"),
        (".docker", "docker"),
    ] {
        rename(&root, from, to);
    }
    assert_eq!(protection.secrets_inside(), [root.join("private.txt")]);
}

#[test]
fn secret_that_is_moved_to_a_readable_path_stays_hidden() {
    let mut world = world();
    write(&world.root, "pub/y.pem", "readable");
    write(&world.root, "priv/x.pem", "hidden");
    let entries = ["pub/*.pem", "deploy/**/id_rsa", "app/.env"].map(|path| world.root.join(path));
    let quarantine = world.root.parent().unwrap().join("readable");
    let roots = std::slice::from_ref(&world.root);
    world.protection =
        Arc::new(Protection::new(roots, Vec::new(), None, entries.to_vec(), quarantine).unwrap());
    let before = world.hidden();
    assert!(before.contains(&"priv/x.pem".to_owned()), "{before:?}");
    assert!(!before.contains(&"pub/y.pem".to_owned()) && !before.contains(&"app/.env".to_owned()));
    world.after(|root| {
        rename(root, "pub", "o/pub");
        rename(root, "priv", "pub");
        rename(root, "app", "app.old");
        fs::create_dir(root.join("app")).unwrap();
        rename(root, ".env", "app/.env");
    });
    for _ in 0..2 {
        let hidden = world.hidden();
        for path in ["pub/x.pem", "o/pub/y.pem", "app/.env", "app.old/.env"] {
            assert!(hidden.contains(&path.to_owned()), "{path}: {hidden:?}");
        }
    }
    // A secret that could be read under its name before can be read there again.
    world.after(|root| {
        rename(root, "pub", "priv");
        rename(root, "o/pub", "pub");
    });
    assert!(!world.hidden().contains(&"pub/y.pem".to_owned()));
    // A new file is no secret that was hidden.
    world.after(|root| write(root, "pub/new.pem", "made by a command"));
    assert!(!world.hidden().contains(&"pub/new.pem".to_owned()));
}

#[test]
fn paths_that_settings_name_are_held_in_their_place() {
    let mut world = world();
    for (path, text) in [
        ("conf/x/settings.json", "{\"key\": 1}"),
        ("share/fish/fish_history", "secret"),
        ("test/.env", "KEY=6"),
        ("certs/dev/a.pem", "KEY=7"),
        ("libs/one/a.rs", ""),
    ] {
        write(&world.root, path, text);
    }
    let at = |path: &str| world.root.join(path);
    let own = vec![at("conf/x/settings.json"), at("no/such")];
    let readable = vec![at("test/.env"), at("certs/dev/*.pem")];
    let quarantine = world.root.parent().unwrap().join("placed");
    let roots = [world.root.clone(), at("libs/one")];
    // The home folder is around the workspace, which is `~/.local`.
    let home = world.root.parent().unwrap().join("home");
    fs::create_dir(&home).unwrap();
    symlink(&world.root, home.join(".local")).unwrap();
    let protection = Protection::new(&roots, own, Some(home), readable, quarantine).unwrap();
    world.protection = Arc::new(protection);
    let survey = world.protection.survey();
    for folder in ["conf", "conf/x", "libs"] {
        assert!(survey.pinned.contains(&at(folder)), "{folder}: {:?}", survey.pinned);
    }
    for folder in ["", "test", "certs/dev"] {
        assert!(!survey.pinned.contains(&at(folder)), "{folder}: {:?}", survey.pinned);
    }
    world.protection.check_after(survey);
    // Without mounts, the check puts the settings back, and the moved ones stay hidden.
    let findings = world.after(|root| {
        rename(root, "conf", "c2");
        write(root, "conf/x/settings.json", "{\"sandbox\": \"off\"}");
        rename(root, "share", "s2");
    });
    assert_eq!(world.read("conf/x/settings.json"), "{\"key\": 1}", "{findings:?}");
    let hidden = world.hidden();
    for path in ["c2/x/settings.json", "conf/x/settings.json", "s2/fish/fish_history"] {
        assert!(hidden.contains(&path.to_owned()), "{path}: {hidden:?}");
    }
    let findings = world.after(|root| fs::remove_file(root.join("conf/x/settings.json")).unwrap());
    assert_eq!(world.read("conf/x/settings.json"), "{\"key\": 1}", "{findings:?}");
}

/// A configuration file of posse is hidden under each of its names, also from the first command.
#[test]
fn hard_link_of_a_configuration_file_of_posse_is_hidden() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (config, link) = (root.join("conf/my.json"), root.join("hl"));
    fs::create_dir(root.join("conf")).unwrap();
    fs::write(&config, "{}").unwrap();
    fs::hard_link(&config, &link).unwrap();
    let quarantine = root.join("../quarantine");
    let roots = [root.clone()];
    let protection =
        Protection::new(&roots, vec![config.clone()], None, Vec::new(), quarantine).unwrap();
    assert_eq!(protection.secrets_inside(), [config, link]);
}
