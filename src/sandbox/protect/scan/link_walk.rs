//! Resolution of links step by step. The path that the kernel resolves does not show whether the link
//! may lead elsewhere in another process, or later.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use posse_base::protected;

/// Maximum number of links on a way, as in the kernel (`MAXSYMLINKS` in `include/linux/namei.h`).
const LINKS_MAX: usize = 40;

/// Result of following a link.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LinkWay {
    /// Absolute path of the target, without links. A part that does not exist and is followed by `..`
    /// counts as a folder. `None` if the way ends before.
    pub(super) target: Option<PathBuf>,
    /// True if the target exists.
    pub(super) exists: bool,
    /// If the way leads through `/proc` or `/dev/fd`, or through a missing part that is followed by
    /// `..`: the rest of the way behind that part. Then the link may lead elsewhere for another
    /// process, or later.
    pub(super) uncertain: Option<PathBuf>,
    /// True if the way is longer than the system accepts at once, or in links.
    pub(super) is_too_long: bool,
    /// True if the way leads through a folder of package managers or git. What is there may be replaced
    /// at any time.
    pub(super) passes_packages: bool,
}

/// Follows the link at `link`, an absolute path below `root` of which only the last part may be a link,
/// with the target `text`.
pub(super) fn way_of(root: &Path, link: &Path, text: &Path) -> LinkWay {
    let mut way = LinkWay { exists: true, ..LinkWay::default() };
    let mut at = link.parent().unwrap_or(Path::new("/")).to_owned();
    let mut due: VecDeque<OsString> = VecDeque::new();
    push_front(&mut due, &mut at, text);
    let mut links = 1;
    while let Some(part) = due.pop_front() {
        if part == ".." {
            if !way.exists {
                way.uncertain = Some(PathBuf::new());
                way.exists = true;
            } else if let Some(end) = &mut way.uncertain {
                *end = PathBuf::new();
            }
            at.pop();
            continue;
        }
        if let Some(end) = &mut way.uncertain {
            end.push(&part);
        }
        let is_of_packages = is_of_packages(&part);
        at.push(part);
        // The folders around the root are not part of the workspace.
        way.passes_packages |= is_of_packages && !root.starts_with(&at);
        if is_of_process(&at) {
            way.uncertain = Some(end_in_process(&at, due));
            way.exists = false;
            return way;
        }
        if !way.exists {
            continue;
        }
        match std::fs::symlink_metadata(&at) {
            Ok(found) if found.is_symlink() => {
                let text = std::fs::read_link(&at).ok().filter(|_| links < LINKS_MAX);
                let Some(text) = text else {
                    (way.is_too_long, way.exists) = (true, false);
                    return way;
                };
                links += 1;
                at.pop();
                if let Some(end) = &mut way.uncertain {
                    end.pop();
                    if text.is_absolute() {
                        *end = PathBuf::new();
                    }
                }
                push_front(&mut due, &mut at, &text);
            }
            Ok(_) => {}
            Err(error) if is_too_long(&error) => {
                way.is_too_long = true;
                return way;
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                way.uncertain = Some(due.iter().collect());
                way.exists = false;
                return way;
            }
            Err(_) => way.exists = false,
        }
    }
    way.target = Some(at);
    way
}

/// Puts the parts of a link's text before the rest of the way, and goes to the root if it is absolute.
fn push_front(due: &mut VecDeque<OsString>, at: &mut PathBuf, text: &Path) {
    for part in text.components().rev() {
        match part {
            Component::Normal(name) => due.push_front(name.to_owned()),
            Component::ParentDir => due.push_front("..".into()),
            Component::RootDir => *at = PathBuf::from("/"),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

/// True for the name of a folder of package managers, build tools or git.
fn is_of_packages(name: &OsStr) -> bool {
    protected::is_vendored(name.as_bytes()) || protected::is_dot_git(name.as_bytes())
}

fn is_of_process(path: &Path) -> bool {
    ["/proc", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"]
        .iter()
        .any(|of| path == Path::new(of))
}

/// The way behind the folder of a process: behind `/proc/PROCESS/FOLDER` or `/dev/fd/NUMBER`, and
/// behind the last `..`.
fn end_in_process(at: &Path, due: VecDeque<OsString>) -> PathBuf {
    let skipped = if at == Path::new("/proc") { 2 } else { 1 };
    let rest: Vec<OsString> = due.into_iter().skip(skipped).collect();
    let behind = rest.iter().rposition(|part| part == "..").map_or(0, |last| last + 1);
    rest[behind..].iter().collect()
}

fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENAMETOOLONG as i32)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Text of a link `sub/link`, and its way: target below the root, whether it exists, and the
    /// uncertain end.
    type Row = (&'static str, Option<&'static str>, bool, Option<&'static str>);

    #[test]
    fn ways_of_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("pkg/app")).unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        symlink("pkg", root.join("l")).unwrap();
        symlink("gone/..", root.join("back")).unwrap();
        symlink("/proc/self", root.join("p")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let table: &[Row] = &[
            ("../pkg/app", Some("pkg/app"), true, None),
            ("../l/app", Some("pkg/app"), true, None),
            ("../pkg/./app/..", Some("pkg"), true, None),
            ("../pkg/gone/x", Some("pkg/gone/x"), false, None),
            ("../gone/../l/app", Some("pkg/app"), true, Some("pkg/app")),
            ("gone/../../pkg/none", Some("pkg/none"), false, Some("pkg/none")),
            ("../back/pkg/app", Some("pkg/app"), true, Some("pkg/app")),
            ("../back", Some(""), true, Some("")),
            ("../p/cwd/pkg/app", None, false, Some("pkg/app")),
            ("/proc/self/cwd/../pkg/app", None, false, Some("pkg/app")),
            ("/proc", None, false, Some("")),
            ("/dev/../dev/fd/3/pkg", None, false, Some("pkg")),
            ("../loop/x", None, false, None),
        ];
        for (text, target, exists, uncertain) in table {
            let way = way_of(&root, &root.join("sub/link"), Path::new(text));
            let found = way.target.as_deref().map(|path| path.strip_prefix(&root).unwrap());
            assert_eq!(found, target.map(Path::new), "{text}");
            assert_eq!(way.exists, *exists, "{text}");
            assert_eq!(way.uncertain.as_deref(), uncertain.map(Path::new), "{text}");
        }
        // A workspace may be below a folder that is called like one of packages.
        let inner = root.join("target/ws");
        fs::create_dir_all(inner.join("src/node_modules")).unwrap();
        for (text, passes) in [("target/ws/src", false), ("target/ws/src/node_modules", true)] {
            let way = way_of(&inner, &inner.join("link"), &root.join(text));
            assert_eq!((way.exists, way.passes_packages), (true, passes), "{text}");
        }
        let up = "../".repeat(40) + "proc/self/cwd/pkg";
        let way = way_of(&root, &root.join("sub/link"), Path::new(&up));
        assert_eq!(way.uncertain.as_deref(), Some(Path::new("pkg")));
    }
}
