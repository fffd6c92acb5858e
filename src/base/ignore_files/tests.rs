//! Rules of ignore files, and hostile ignore files.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

/// Maximum duration of a walk of a small folder, however hostile its ignore files are.
const QUICK: Duration = Duration::from_secs(10);

/// Creates a folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        put(folder.path(), path, text);
    }
    folder
}

fn put(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Files of a walk, sorted, from the serial and the parallel walk, which must be equal.
fn files(root: &Path, scope: IgnoreScope) -> Vec<String> {
    let begin = Instant::now();
    let shown = |entry: &DirEntry| {
        let is_file = entry.depth() > 0 && !entry.file_type().unwrap().is_dir();
        is_file.then(|| entry.path().strip_prefix(root).unwrap().display().to_string())
    };
    let walk = walk(root, scope, |entry| entry.file_name() != ".git");
    let mut serial: Vec<String> = walk.build().filter_map(|entry| shown(&entry.unwrap())).collect();
    let parallel = Mutex::new(Vec::new());
    walk.build_parallel().run(|| {
        Box::new(|entry| {
            parallel.lock().unwrap().extend(shown(&entry.unwrap()));
            ignore::WalkState::Continue
        })
    });
    let mut parallel = parallel.into_inner().unwrap();
    serial.sort();
    parallel.sort();
    assert_eq!(serial, parallel);
    assert!(begin.elapsed() < QUICK, "{:?}", begin.elapsed());
    serial
}

/// Files of a walk by the crate `ignore` alone, which reads the ignore files itself.
fn files_of_crate(root: &Path, scope: IgnoreScope) -> Vec<String> {
    let mut walk = WalkBuilder::new(root);
    let is_git = scope == IgnoreScope::Repository;
    walk.require_git(false).hidden(scope == IgnoreScope::Visible).git_global(false);
    walk.ignore(!is_git).parents(!is_git).filter_entry(|entry| entry.file_name() != ".git");
    // A pattern that is not valid is an error, after which the walk continues.
    let entries = walk.build().flatten().filter(|entry| !entry.path().is_dir());
    let mut files: Vec<String> = entries
        .map(|entry| entry.path().strip_prefix(root).unwrap().display().to_string())
        .collect();
    files.sort();
    files
}

#[test]
fn walks_obey_the_same_rules_as_the_crate() {
    let folder = folder(&[
        (".gitignore", "\u{feff}*.log\r\n/top\nbuilt/\n!.shown\n# a comment\n\n[z-a\n\\#literal\n"),
        (".ignore", "!kept.log\n*.tmp\n"),
        (".git/info/exclude", "*.mine\n"),
        ("a.log", ""),
        ("kept.log", ""),
        ("#literal", ""),
        (".shown", ""),
        (".hidden", ""),
        ("a.tmp", ""),
        ("a.mine", ""),
        ("top/a", ""),
        ("built/a", ""),
        ("sub/top/a", ""),
        ("sub/built", ""),
        ("sub/.gitignore", "!b.log\n/deep/*\n!/deep/kept\n*.mine\n"),
        ("sub/.ignore", "!*.mine\n"),
        ("sub/a.log", ""),
        ("sub/b.log", ""),
        ("sub/b.tmp", ""),
        ("sub/b.mine", ""),
        ("sub/deep/a", ""),
        ("sub/deep/kept", ""),
        // A nested repository, which the rules above it concern too.
        ("sub/nested/.git/info/exclude", "*.own\n"),
        ("sub/nested/.gitignore", "!c.log\nbad \u{1}\n"),
        ("sub/nested/a.log", ""),
        ("sub/nested/c.log", ""),
        ("sub/nested/c.own", ""),
        ("sub/nested/e.mine", ""),
        ("other/x.own", ""),
    ]);
    let top = folder.path().canonicalize().unwrap();
    for root in ["", "sub", "sub/nested", "sub/deep", "top", "built", "other"] {
        for scope in [IgnoreScope::Workspace, IgnoreScope::Visible, IgnoreScope::Repository] {
            let root = if root.is_empty() { top.clone() } else { top.join(root) };
            let (found, expected) = (files(&root, scope), files_of_crate(&root, scope));
            assert_eq!(found, expected, "{} {scope:?}", root.display());
        }
    }
    let found = files(&top.join("sub"), IgnoreScope::Visible);
    assert_eq!(
        found,
        ["b.log", "b.mine", "built", "deep/kept", "nested/c.log", "nested/e.mine", "top/a"]
    );
}

#[test]
fn rules_apply_below_a_root_that_is_a_link() {
    let folder = folder(&[("real/.gitignore", "/a\n"), (".gitignore", "real/b\n")]);
    for name in ["a", "b", "c"] {
        put(folder.path(), &format!("real/{name}"), "");
    }
    symlink("real", folder.path().join("link")).unwrap();
    let found = files(&folder.path().join("link"), IgnoreScope::Workspace);
    assert_eq!(found, [".gitignore", "c"]);
}

#[test]
fn excludes_of_a_repository_apply_in_its_worktree() {
    let folder = folder(&[
        ("main/.git/info/exclude", "*.o\n"),
        ("main/.git/worktrees/w/commondir", "../..\n"),
        ("w/a.o", ""),
        ("w/a.c", ""),
    ]);
    let git = folder.path().join("main/.git/worktrees/w");
    for pointer in
        [format!("gitdir: {}\n", git.display()), "gitdir: ../main/.git/worktrees/w".into()]
    {
        put(folder.path(), "w/.git", &pointer);
        assert_eq!(files(&folder.path().join("w"), IgnoreScope::Workspace), ["a.c"], "{pointer}");
    }
}

#[test]
fn a_link_to_an_ignore_file_is_followed() {
    let folder = folder(&[("rules", "*.log\n"), ("a.log", ""), ("a.rs", "")]);
    symlink("rules", folder.path().join(".ignore")).unwrap();
    assert_eq!(files(folder.path(), IgnoreScope::Workspace), [".ignore", "a.rs", "rules"]);
}

#[test]
fn hostile_ignore_files_have_no_effect() {
    let names = [".gitignore", ".ignore", ".git/info/exclude", ".git", "common/commondir"];
    for below in ["", "sub/"] {
        for (name, kind) in names.iter().flat_map(|name| (0..5).map(move |kind| (name, kind))) {
            let folder = folder(&[("sub/a.log", ""), ("sub/b.rs", "")]);
            let file = folder.path().join(format!("{below}{name}"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            if *name == "common/commondir" {
                let pointer = folder.path().join(format!("{below}.git"));
                fs::write(pointer, "gitdir: common\n").unwrap();
            }
            match kind {
                0 => symlink("/dev/zero", &file).unwrap(),
                1 => mkfifo(&file, Mode::S_IRWXU).unwrap(),
                2 => File::create(&file).unwrap().set_len(200 << 30).unwrap(),
                3 => fs::create_dir(&file).unwrap(),
                _ => fs::write(&file, b"\xff\n*.log\n").unwrap(),
            }
            let scopes = [IgnoreScope::Workspace, IgnoreScope::Visible, IgnoreScope::Repository];
            for scope in scopes {
                let found = files(folder.path(), scope);
                let is_plain = |name: &&str| ["sub/a.log", "sub/b.rs"].contains(name);
                let found: Vec<&str> = found.iter().map(String::as_str).filter(is_plain).collect();
                assert_eq!(found, ["sub/a.log", "sub/b.rs"], "{} {kind} {scope:?}", file.display());
            }
        }
    }
}

#[test]
fn many_large_ignore_files_end_at_the_budget() {
    let folder = folder(&[(".gitignore", "*.log\n"), ("a.log", ""), ("a.rs", "")]);
    let text = "a*b?c[d-f]*g\n".repeat(80_000);
    for number in 0..20 {
        put(folder.path(), &format!("d{number:02}/.gitignore"), &text);
        put(folder.path(), &format!("d{number:02}/f"), "");
    }
    let found = files(folder.path(), IgnoreScope::Workspace);
    assert!(!found.contains(&"a.log".to_owned()) && found.contains(&"d19/f".to_owned()));
}

#[test]
fn texts_have_the_rules_of_their_files() {
    let texts = [
        ("", "/data/\n*.db\n!keep.db\n\nsub/deep\n"),
        ("sub", "\u{feff}!b.db\r\nx/\n# y\n"),
        ("sub/x", "!*\n"),
    ];
    let rules = |texts: &[(&str, &str)]| {
        IgnoreTexts::new(texts.iter().map(|(folder, text)| (folder.into(), (*text).into())))
    };
    let ignoring = rules(&texts);
    for (path, expected) in [
        ("data/a", true),
        ("data", false),
        ("sub/data/a", false),
        ("a.db", true),
        ("keep.db", false),
        ("sub/a.db", true),
        ("sub/b.db", false),
        ("sub/c/b.db", false),
        ("sub/deep/a", true),
        // Files below an ignored folder are ignored.
        ("sub/x/a", true),
        ("sub/y", false),
        ("other/x/a", false),
    ] {
        assert_eq!(ignoring.is_ignored(Path::new(path)), expected, "{path}");
    }
    assert!(!rules(&[]).is_ignored(Path::new("data/a")));
    let large = "a\n".repeat(1 << 20);
    assert!(!rules(&[("", &large)]).is_ignored(Path::new("a")));
}
