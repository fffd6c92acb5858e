//! Accessible and denied paths, in pairs.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;
#[cfg(target_os = "linux")]
use crate::testing::{SetOnDrop, exchange};

struct Fixture {
    folder: TempDir,
    workspace: Workspace,
}

/// `work/{a.txt,sub/b.txt}`, `extra/c.txt` and, not reachable, `outside/secret`.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path();
    for (path, text) in [
        ("work/a.txt", "a"),
        ("work/sub/b.txt", "b"),
        ("extra/c.txt", "c"),
        ("outside/secret", "secret"),
    ] {
        fs::create_dir_all(base.join(path).parent().unwrap()).unwrap();
        fs::write(base.join(path), text).unwrap();
    }
    let workspace = Workspace::open(&base.join("work"), &[base.join("extra")]).unwrap();
    Fixture { folder, workspace }
}

impl Fixture {
    fn base(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    fn link(&self, target: impl AsRef<Path>, name: &str) {
        symlink(target, self.base().join("work").join(name)).unwrap();
    }

    /// The root and the relative path, or the code of the error.
    fn find(&self, path: &str) -> String {
        match self.workspace.locate(path) {
            Ok(place) => {
                let root = place.root().file_name().unwrap().to_str().unwrap();
                let missing = if place.entry().is_some() { "" } else { " (missing)" };
                assert_eq!(place.absolute(), place.root().join(place.relative()).as_path());
                format!("{root}: {}{missing}", place.relative())
            }
            Err(error) => error.code.to_owned(),
        }
    }

    fn content(&self, path: &str) -> Result<String, ToolError> {
        let file = self.workspace.locate(path)?.open_file(OFlag::O_RDONLY)?;
        let mut text = String::new();
        fs::File::from(file).read_to_string(&mut text).unwrap();
        Ok(text)
    }
}

#[test]
fn folder_that_leads_out_of_another_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    for path in ["ws/lib", "ws/a", "real/lib", "home/bin", "ws2"] {
        fs::create_dir_all(base.join(path)).unwrap();
    }
    // The user's own links, outside of the workspace.
    symlink(base.join("real"), base.join("mine")).unwrap();
    symlink(base.join("ws"), base.join("into")).unwrap();
    // As a command can make them.
    symlink(base.join("home/bin"), base.join("ws/a/lib")).unwrap();
    symlink(base.join("home"), base.join("ws/b")).unwrap();
    symlink(base.join("ws/lib"), base.join("ws/inner")).unwrap();
    // A link of the user to a folder that a command has replaced.
    symlink(base.join("ws/b"), base.join("data")).unwrap();
    let open = |cwd: &str, extra: &[&str]| {
        let extra: Vec<PathBuf> = extra.iter().map(PathBuf::from).collect();
        Workspace::open(&base.join(cwd), &extra)
    };
    for (cwd, extra) in [
        ("ws", &["lib"][..]),
        ("ws", &["../ws2", "../mine/lib", "../mine"]),
        ("ws", &["../into/lib", "inner"]),
        ("ws2", &["../ws", "../ws/lib"]),
        // The outer folder is a root, too.
        ("ws/lib", &["../../ws", "../a"]),
        // Commands cannot write in `ws`, which is no root here, so the link is the user's.
        ("ws2", &["../ws/b/bin"]),
        ("ws/a/lib", &[]),
    ] {
        open(cwd, extra).unwrap_or_else(|error| panic!("{cwd} {extra:?}: {error:?}"));
    }
    for (cwd, extra) in [
        ("ws", &["a/lib"][..]),
        ("ws", &["b/bin"]),
        ("ws", &["../into/b/bin"]),
        ("ws", &["../data"]),
        ("ws2", &["../ws/a/lib", "../ws"]),
        // The working directory is the link.
        ("ws/a/lib", &["../../ws"]),
    ] {
        let error = open(cwd, extra).expect_err(&format!("{cwd} {extra:?}"));
        assert_eq!(error.code, ErrorCode::WorkspaceRootUnusable);
        assert!(error.why.unwrap().contains("a command may have made the link"));
    }
}

#[test]
fn equivalent_paths_resolve_equally() {
    let fixture = fixture();
    let base = fixture.base().display().to_string();
    fs::write(fixture.base().join("work/@odd"), "").unwrap();
    for (path, expected) in [
        ("a.txt", "work: a.txt"),
        ("./sub//b.txt", "work: sub/b.txt"),
        ("sub/../a.txt", "work: a.txt"),
        ("sub/", "work: sub"),
        ("new/deep/x", "work: new/deep/x (missing)"),
        ("@a.txt", "work: a.txt"),
        ("@odd", "work: @odd"),
        ("@new", "work: @new (missing)"),
        ("../extra/c.txt", "extra: c.txt"),
        (&[base.as_str(), "work", "sub", "b.txt"].join("/"), "work: sub/b.txt"),
        (&format!("{base}/extra/c.txt"), "extra: c.txt"),
        (&format!("{base}/extra/new"), "extra: new (missing)"),
    ] {
        assert_eq!(fixture.find(path), expected, "{path}");
    }
    let root = fixture.workspace.locate(".").unwrap();
    assert_eq!((root.relative(), root.entry().unwrap().kind), (".", FileKind::Folder));
}

#[test]
fn invalid_path_is_refused() {
    let fixture = fixture();
    for path in [
        "",
        "  ",
        "~",
        "~/a.txt",
        "~root/a",
        "file:///etc/passwd",
        "https://x/y",
        r"C:\a",
        "c:/a",
        r"\\host\share",
        r"sub\b.txt",
        r"..\x",
        "a\0b",
        "a\nb",
        "a.txt/",
        "\u{1b}[2J",
    ] {
        assert_eq!(fixture.find(path), "ARG002", "{path:?}");
    }
    assert_eq!(fixture.find(&"x/".repeat(3000)), "ARG002");
    assert_eq!(fixture.find(&"x".repeat(300)), "ARG002");
}

#[test]
fn path_outside_is_refused_with_the_roots() {
    let fixture = fixture();
    for path in ["/etc/passwd", "..", "../outside/secret", "sub/../../outside/secret", "/"] {
        assert_eq!(fixture.find(path), "ARG003", "{path}");
    }
    let error = fixture.workspace.locate("../outside/secret").unwrap_err();
    let base = fixture.base().display().to_string();
    assert_eq!(
        error.to_string(),
        format!(
            "ARG003 ../outside/secret is outside the workspace; reachable is what lies below \
             {base}/work, {base}/extra; the user can add a folder with --add-dir"
        )
    );
}

#[test]
fn inner_links_are_followed_and_outer_links_refused() {
    let fixture = fixture();
    let base = fixture.base();
    fixture.link("sub/b.txt", "inside");
    fixture.link("../extra/c.txt", "beside");
    fixture.link("../outside/secret", "leaving");
    fixture.link(base.join("work/a.txt"), "absolute");
    fixture.link(base.join("extra"), "other");
    fixture.link(base.join("outside"), "gone");
    fixture.link("sub", "folder");
    fixture.link("loop", "loop");
    fixture.link("sub/new", "dangling");
    fixture.link("/etc/no-such-file", "dangling-out");
    fixture.link("/proc/self/root", "magic");
    for (path, expected) in [
        ("inside", "work: sub/b.txt"),
        ("folder/b.txt", "work: sub/b.txt"),
        ("absolute", "work: a.txt"),
        ("other/c.txt", "extra: c.txt"),
        ("dangling", "work: sub/new (missing)"),
        ("leaving", "ARG003"),
        ("beside", "ARG003"),
        ("gone/secret", "ARG003"),
        ("gone/new", "ARG003"),
        ("dangling-out", "ARG003"),
        ("magic/etc/passwd", "ARG003"),
        ("loop", "ARG003"),
    ] {
        assert_eq!(fixture.find(path), expected, "{path}");
    }
}

#[test]
fn file_behind_a_link_with_the_name_of_a_secret_is_not_opened() {
    let fixture = fixture();
    let work = fixture.base().join("work");
    for folder in ["data/sso", "c", ".env.d"] {
        fs::create_dir_all(work.join(folder)).unwrap();
    }
    for file in ["data/real", "data/sso/token", "data/config.json", "c/real"] {
        fs::write(work.join(file), "secret").unwrap();
    }
    fixture.link("data/real", ".env");
    fixture.link("data", ".aws");
    fixture.link("data", ".docker");
    fixture.link(".env", "x");
    fixture.link(work.join(".env"), "absolute");
    fixture.link("sub/../.docker/config.json", "pair");
    fixture.link("c", "c.env");
    fixture.link("sub/b.txt", "plain");
    fixture.link(".", "here");
    symlink(work.join(".env"), fixture.base().join("extra/y")).unwrap();
    let refused = |path: &str| {
        let place = fixture.workspace.locate(path).unwrap();
        let is_folder = place.entry().unwrap().kind == FileKind::Folder;
        let flags = OFlag::O_RDONLY;
        let opened = if is_folder { place.open_dir() } else { place.open_file(flags) };
        opened.is_err_and(|error| error.message.contains("a link with the name of a secret"))
    };
    let extra = fixture.base().join("extra/y").display().to_string();
    for path in [
        ".env",
        "x",
        "here/x",
        "absolute",
        "pair",
        ".aws",
        ".aws/real",
        ".aws/sso/token",
        ".aws/sso",
        ".docker/config.json",
        "here/.docker/config.json",
        "c.env",
        "c.env/real",
        &extra,
    ] {
        assert!(refused(path), "{path}");
    }
    // Without a link, the policy judges the path.
    for path in ["plain", "here/plain", "data/real", "c", "here", ".docker", ".env.d", "a.txt"] {
        assert!(!refused(path), "{path}");
    }
}

#[test]
fn path_walk_agrees_with_the_kernel() {
    let fixture = fixture();
    fixture.link("sub/../sub/b.txt", "inside");
    for path in ["a.txt", "sub/b.txt", "sub", "", "inside"] {
        let roots = &fixture.workspace.roots;
        let walk = |path| walk::resolve_stepwise(roots, 0, Path::new(path)).ok().unwrap();
        let place = walk::resolve(roots, 0, Path::new(path)).ok().unwrap();
        let stepwise = walk(path);
        assert_eq!(stepwise.relative, place.relative, "{path}");
        assert_eq!(stepwise.entry, place.entry, "{path}");
    }
}

#[test]
fn only_files_are_opened_without_blocking() {
    let fixture = fixture();
    let work = fixture.base().join("work");
    mkfifo(&work.join("pipe"), Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(work.join("socket")).unwrap();
    assert_eq!(fixture.content("a.txt").as_deref(), Ok("a"));
    for (path, expected) in [
        ("pipe", "ARG003 pipe is a pipe"),
        ("socket", "ARG003 socket is a socket"),
        ("sub", "ARG003 sub is a folder; list_dir shows what is in it"),
        ("none", "FIL001 none does not exist"),
        ("a.txt/none", "FIL001 a.txt/none: a folder on the way is not a folder"),
    ] {
        assert_eq!(fixture.content(path).unwrap_err().to_string(), expected);
    }
    let file = fixture.workspace.locate("a.txt").unwrap();
    assert_eq!(file.open_dir().unwrap_err().to_string(), "ARG003 a.txt is a file, not a folder");
}

#[test]
fn replaced_file_is_not_opened() {
    let fixture = fixture();
    let work = fixture.base().join("work");
    let replaced = fixture.workspace.locate("a.txt").unwrap();
    fs::rename(work.join("sub/b.txt"), work.join("a.txt")).unwrap();
    assert_eq!(replaced.open_file(OFlag::O_RDONLY).unwrap_err().code, "EDT004");

    let linked = fixture.workspace.locate("a.txt").unwrap();
    fs::remove_file(work.join("a.txt")).unwrap();
    fixture.link("../outside/secret", "a.txt");
    assert_eq!(linked.open_file(OFlag::O_RDONLY).unwrap_err().code, "ARG003");
}

#[test]
fn missing_folders_are_created_on_request_only() {
    let fixture = fixture();
    let place = fixture.workspace.locate("x/y/z.txt").unwrap();
    assert_eq!(place.open_parent(false).unwrap_err().code, "FIL001");
    assert!(!fixture.base().join("work/x").exists());
    let (_, name) = place.open_parent(true).unwrap();
    assert_eq!(name, "z.txt");
    assert!(fixture.base().join("work/x/y").is_dir());
    assert_eq!(
        fixture.workspace.locate(".").unwrap().open_parent(true).unwrap_err().code,
        "ARG002"
    );

    // A link that appears in place of a new folder is not followed.
    let place = fixture.workspace.locate("p/q/r.txt").unwrap();
    fixture.link("../outside", "p");
    assert!(place.open_parent(true).is_err());
    assert!(!fixture.base().join("outside/q").exists());
}

/// Alternates `work/x` between a folder and a link to the folder outside, while `attempt` runs.
#[cfg(target_os = "linux")]
fn race(attempt: impl Fn(&Fixture)) {
    let fixture = fixture();
    let work = fixture.base().join("work");
    fs::create_dir(work.join("x")).unwrap();
    fs::write(work.join("x/secret"), "harmless").unwrap();
    symlink("../outside", work.join("y")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                exchange(&work, "x", "y");
            }
        });
        let _done = SetOnDrop(&done);
        for _ in 0..5_000 {
            attempt(&fixture);
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn swapped_link_never_escapes_when_reading() {
    let (read, refused) = (AtomicBool::new(false), AtomicBool::new(false));
    race(|fixture| match fixture.content("x/secret") {
        Ok(text) => {
            assert_eq!(text, "harmless");
            read.store(true, Ordering::Relaxed);
        }
        Err(_) => refused.store(true, Ordering::Relaxed),
    });
    assert!(read.into_inner() && refused.into_inner(), "the race took place");
}

#[cfg(target_os = "linux")]
#[test]
fn swapped_link_never_escapes_when_writing() {
    let written = AtomicBool::new(false);
    race(|fixture| {
        let place = fixture.workspace.locate("x/new/file");
        if let Ok((folder, name)) = place.and_then(|place| place.open_parent(true)) {
            written.store(true, Ordering::Relaxed);
            let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_NOFOLLOW;
            drop(nix::fcntl::openat(folder, name.as_os_str(), flags, Mode::S_IRWXU));
        }
        assert!(!fixture.base().join("outside/new").exists());
    });
    assert!(written.into_inner(), "writing where it is allowed works");
}
