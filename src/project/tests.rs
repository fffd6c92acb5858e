//! Worktrees that are one, and those that only say so.

use std::os::unix::fs::symlink;

use super::*;

struct ProjectFolders {
    dir: tempfile::TempDir,
}

impl ProjectFolders {
    fn new() -> ProjectFolders {
        ProjectFolders { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Result of `git worktree add ../tree` in `main`.
    fn worktree() -> ProjectFolders {
        let place = ProjectFolders::new();
        let tree = place.path("tree/.git").display().to_string();
        place.write("main/.git/worktrees/tree/gitdir", &format!("{tree}\n"));
        place.write("main/.git/worktrees/tree/commondir", "../..\n");
        let entry = place.path("main/.git/worktrees/tree").display().to_string();
        place.write("tree/.git", &format!("gitdir: {entry}\n"));
        place
    }

    fn main_of(&self, tree: &str) -> Option<PathBuf> {
        main_repository(&self.path(tree))
    }
}

#[test]
fn registered_worktree_shares_the_project() {
    let place = ProjectFolders::worktree();
    assert_eq!(place.main_of("tree"), Some(place.path("main")));
    assert_eq!(place.main_of("main"), None);
    let shared = shared_identity(&place.path("tree")).unwrap();
    assert_eq!(shared, Identity::of(&place.path("main")).unwrap());
    assert_ne!(shared, Identity::of(&place.path("tree")).unwrap());
    // Relative pointers, as newer versions of git write them.
    place.write("tree/.git", "gitdir: ../main/.git/worktrees/tree\n");
    place.write("main/.git/worktrees/tree/gitdir", "../../../../tree/.git\n");
    assert_eq!(place.main_of("tree"), Some(place.path("main")));
}

#[test]
fn trust_identity_what_only_says_that_it_is_a_worktree() {
    type Trick = fn(&ProjectFolders);
    let table: [(&str, Trick); 9] = [
        ("points at a real worktree of another user", |place| {
            place.write("evil/.git", &fs::read_to_string(place.path("tree/.git")).unwrap());
        }),
        ("a link to the pointer", |place| {
            fs::create_dir(place.path("evil")).unwrap();
            symlink(place.path("tree/.git"), place.path("evil/.git")).unwrap();
        }),
        ("a commondir of its own", |place| {
            place.write("evil/.git/commondir", &place.path("main/.git").display().to_string());
            place.write("evil/.git/HEAD", "ref: refs/heads/main\n");
        }),
        ("points at the repository itself", |place| {
            place.write("evil/.git", &format!("gitdir: {}\n", place.path("main/.git").display()));
        }),
        ("a repository of its own inside", |place| {
            let entry = place.path("evil/fake/.git/worktrees/x");
            let tree = place.path("evil/.git").display().to_string();
            place.write("evil/fake/.git/worktrees/x/gitdir", &tree);
            place.write("evil/.git", &format!("gitdir: {}\n", entry.display()));
        }),
        ("two lines", |place| {
            let entry = place.path("main/.git/worktrees/tree").display().to_string();
            place.write("evil/.git", &format!("gitdir: {entry}\ngitdir: {entry}\n"));
        }),
        ("nothing there", |place| place.write("evil/.git", "gitdir: /nowhere/.git/worktrees/x\n")),
        ("a list that names another folder", |place| {
            let other = place.path("other/.git").display().to_string();
            place.write("main/.git/worktrees/evil/gitdir", &other);
            let entry = place.path("main/.git/worktrees/evil").display().to_string();
            place.write("evil/.git", &format!("gitdir: {entry}\n"));
        }),
        ("a list that everybody may write", |place| {
            use std::os::unix::fs::PermissionsExt;
            let tree = place.path("evil/.git").display().to_string();
            place.write("main/.git/worktrees/evil/gitdir", &tree);
            let entry = place.path("main/.git/worktrees/evil");
            place.write("evil/.git", &format!("gitdir: {}\n", entry.display()));
            fs::set_permissions(entry, fs::Permissions::from_mode(0o777)).unwrap();
        }),
    ];
    for (name, trick) in table {
        let place = ProjectFolders::worktree();
        trick(&place);
        assert_eq!(place.main_of("evil"), None, "{name}");
        let evil = Identity::of(&place.path("evil")).unwrap();
        assert_eq!(shared_identity(&place.path("evil")).unwrap(), evil, "{name}");
    }
}

#[test]
fn path_identity_another_folder_at_the_path_is_another_project() {
    let place = ProjectFolders::new();
    fs::create_dir(place.path("a")).unwrap();
    let before = Identity::of(&place.path("a")).unwrap();
    fs::rename(place.path("a"), place.path("b")).unwrap();
    fs::create_dir(place.path("a")).unwrap();
    assert_ne!(Identity::of(&place.path("a")).unwrap(), before);
    assert_ne!(Identity::of(&place.path("b")).unwrap(), before, "the same folder elsewhere");
    symlink(place.path("b"), place.path("c")).unwrap();
    let (b, c) = (Identity::of(&place.path("b")).unwrap(), Identity::of(&place.path("c")).unwrap());
    assert_eq!(b, c, "a link is no folder of its own");
}

#[test]
fn finds_the_project_root() {
    let place = ProjectFolders::new();
    place.write("p/.git/HEAD", "");
    fs::create_dir_all(place.path("p/a/b")).unwrap();
    assert_eq!(root_of(&place.path("p/a/b")), place.path("p"));
    assert_eq!(root_of(Path::new("/nowhere/at/all")), Path::new("/nowhere/at/all"));
}

/// Only root can give a folder to another user.
#[test]
fn repository_of_another_user_above_is_not_the_project() {
    if !geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().canonicalize().unwrap();
    let cwd = shared.join("mine");
    fs::create_dir_all(&cwd).unwrap();
    fs::create_dir(shared.join(".git")).unwrap();
    assert_eq!(root_of(&cwd), shared);
    std::os::unix::fs::chown(shared.join(".git"), Some(12_345), None).unwrap();
    assert_eq!(root_of(&cwd), cwd);
    // A working directory of that user belongs to it, and so does the repository in it.
    std::os::unix::fs::chown(&cwd, Some(12_345), None).unwrap();
    assert_eq!(root_of(&cwd), shared);
    assert_eq!(root_of(&shared), shared);
}

#[test]
fn stored_identity_belongs_to_one_folder_only() {
    const STORED_MS: u64 = 1_000_000;
    let identity = |inode: u64, birth_ns: Option<u64>| Identity {
        path: "/p".to_owned(),
        device: 1,
        inode,
        birth_ns,
    };
    let before = Some(STORED_MS * 1_000_000 - 1);
    let after = Some((STORED_MS + 1) * 1_000_000);
    for (stored, present, expected) in [
        (identity(2, before), identity(2, before), true),
        (identity(2, before), identity(3, before), false),
        // The inode number was used again.
        (identity(2, before), identity(2, after), false),
        (identity(2, before), identity(2, None), false),
        // Stored by an earlier version.
        (identity(2, None), identity(2, before), true),
        (identity(2, None), identity(2, after), false),
        (identity(2, None), identity(3, before), false),
        // A file system without creation times.
        (identity(2, None), identity(2, None), true),
    ] {
        assert_eq!(stored.is_still(&present, STORED_MS), expected, "{stored:?} {present:?}");
    }
    let elsewhere = Identity { path: "/q".to_owned(), ..identity(2, before) };
    assert!(!identity(2, before).is_still(&elsewhere, STORED_MS));
    // The creation time is that of the file system.
    let place = ProjectFolders::new();
    let folder = Identity::of(&place.path("")).unwrap();
    let created = fs::metadata(place.path("")).unwrap().created().ok();
    let age = created.map(|created| created.duration_since(UNIX_EPOCH).unwrap().as_nanos());
    assert_eq!(folder.birth_ns.map(u128::from), age);
    let old = r#"{"path":"/p","device":1,"inode":2}"#;
    assert_eq!(serde_json::from_str::<Identity>(old).unwrap(), identity(2, None));
    assert_eq!(serde_json::to_string(&identity(2, None)).unwrap(), old);
    let text = serde_json::to_string(&identity(2, Some(3))).unwrap();
    assert_eq!(text, r#"{"path":"/p","device":1,"inode":2,"birthNs":3}"#);
}
