//! Surroundings of programs that posse starts outside of the sandbox: without places that commands
//! can write, so that a command cannot leave a program or a module there that then runs unconfined.
//!
//! What a command left in a workspace stays there after its session. So the roots of all workspaces
//! are recorded in the state folder, and hold in every process of posse: in a session of another
//! folder, and in a client of `posse attach`.

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name of the record of roots in the state folder: paths, each followed by a NUL byte.
const RECORD: &str = "writable-folders";

/// Size of the record, in bytes, from which roots that no longer exist are dropped.
const RECORD_BYTES: u64 = 256 << 10;

/// Maximum number of links in the path of a program; the kernel follows 40.
const LINKS_MAX: usize = 40;

/// Maximum number of paths that are looked for in the value of an environment variable. A variable
/// with more is removed.
const PATHS_MAX: usize = 256;

/// Bytes that end a path in the value of an environment variable.
const SEPARATORS: &[u8] = b":;,= \t\n\"'";

static ROOTS: Mutex<Roots> = Mutex::new(Roots {
    paths: BTreeSet::new(),
    folders: None,
    state: None,
    is_read: false,
    error: None,
});

/// The roots of all workspaces: folders that commands may write, or could in an earlier session.
struct Roots {
    paths: BTreeSet<PathBuf>,
    /// Roots by device and inode, because a folder can have several names (bind mounts). `None` until
    /// needed.
    folders: Option<HashMap<(u64, u64), PathBuf>>,
    /// The state folder; `None` if roots are not recorded.
    state: Option<PathBuf>,
    /// True if the record has been read.
    is_read: bool,
    /// Why the record cannot be read. Then every folder counts as one that commands may write.
    error: Option<String>,
}

fn roots() -> MutexGuard<'static, Roots> {
    let mut roots = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    roots.read();
    roots
}

/// Uses the record of roots in the state folder `state`. Reads it when it is needed. Only the first
/// call has an effect.
pub fn record_workspaces_in(state: &Path) {
    let mut roots = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    roots.state.get_or_insert_with(|| state.to_owned());
}

/// Registers and records roots that commands may write. Fails if the record cannot be read or
/// written: another process would then trust what commands leave there.
pub(crate) fn add_roots(new: &[PathBuf]) -> io::Result<()> {
    let mut roots = roots();
    if let Some(error) = &roots.error {
        return Err(io::Error::other(error.clone()));
    }
    let new: Vec<PathBuf> =
        new.iter().filter(|path| !roots.paths.contains(*path)).cloned().collect();
    if new.is_empty() {
        return Ok(());
    }
    roots.folders = None;
    roots.paths.extend(new.iter().cloned());
    roots.append(&new)
}

impl Roots {
    /// Reads the record, once.
    fn read(&mut self) {
        let Some(state) = &self.state else { return };
        if std::mem::replace(&mut self.is_read, true) {
            return;
        }
        let record = state.join(RECORD);
        let bytes = match fs::read(&record) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                let text = format!("{} cannot be read: {error}", record.display());
                tracing::warn!("{text}; no program is started outside of the sandbox");
                self.error = Some(text);
                return;
            }
        };
        let size = bytes.len() as u64;
        // An entry that a full disk has cut off has no NUL byte after it.
        let mut entries: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
        entries.pop();
        self.paths.extend(entries.into_iter().map(|path| PathBuf::from(OsStr::from_bytes(path))));
        if size > RECORD_BYTES {
            self.paths.retain(|path| path.symlink_metadata().is_ok());
            self.rewrite(&record);
        }
    }

    fn append(&self, new: &[PathBuf]) -> io::Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o700).create(state)?;
        let mut file =
            OpenOptions::new().append(true).create(true).mode(0o600).open(state.join(RECORD))?;
        file.write_all(&entries(new))
    }

    /// Replaces the record. A failure leaves the old one, which names more roots.
    fn rewrite(&self, record: &Path) {
        let temporary = record.with_extension(format!("{}.tmp", std::process::id()));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(&entries(&self.paths)))
            .and_then(|()| fs::rename(&temporary, record));
        if let Err(error) = written {
            fs::remove_file(&temporary).ok();
            tracing::warn!("{} cannot be shortened: {error}", record.display());
        }
    }

    /// True if commands may write below `resolved`, an existing path without links: a root is it or
    /// above it, by name or as the same folder under another name.
    fn contain(&mut self, resolved: &Path) -> bool {
        let cwd = env::current_dir().ok();
        if self.error.is_some()
            || self.paths.iter().chain(&cwd).any(|root| resolved.starts_with(root))
        {
            return true;
        }
        let identity =
            |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let paths = &self.paths;
        let folders = self.folders.get_or_insert_with(|| {
            paths.iter().filter_map(|root| Some((identity(root)?, root.clone()))).collect()
        });
        let is_root = |folder: &Path| {
            let Some(found) = identity(folder) else { return true };
            // A root that was removed may have left its number to another folder.
            folders.get(&found).is_some_and(|root| identity(root) == Some(found))
        };
        !folders.is_empty() && resolved.ancestors().any(is_root)
    }
}

fn entries<'path>(paths: impl IntoIterator<Item = &'path PathBuf>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for path in paths {
        bytes.extend_from_slice(path.as_os_str().as_bytes());
        bytes.push(0);
    }
    bytes
}

/// Resolves a folder whose content commands cannot change. `None` if they may write there, or if it
/// cannot be resolved.
fn trusted_folder(folder: &Path) -> Option<PathBuf> {
    let resolved = folder.canonicalize().ok()?;
    (folder.is_absolute() && !roots().contain(&resolved)).then_some(resolved)
}

/// The folders of the search path `path` that commands cannot write, resolved: no part of their
/// paths can be replaced by a command.
fn trusted_folders(path: &OsStr) -> Vec<PathBuf> {
    env::split_paths(path).filter_map(|folder| trusted_folder(&folder)).collect()
}

/// True if `program` is an executable file, and neither it nor a link on the way to it is in a place
/// that commands can write.
fn is_trusted_program(program: &Path) -> bool {
    let mut path = program.to_owned();
    for _ in 0..LINKS_MAX {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let Some(folder) = trusted_folder(folder) else { return false };
        path = folder.join(name);
        if let Ok(target) = fs::read_link(&path) {
            path = folder.join(target);
            continue;
        }
        let is_executable = fs::metadata(&path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
        // A root can be a file.
        return is_executable && !roots().contain(&path);
    }
    false
}

/// Finds the program `name` in the folders of the search path `path` that commands cannot write. A
/// program that a link there takes from a workspace is not used.
pub fn find_trusted_program(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    let mut programs = trusted_folders(path).into_iter().map(|folder| folder.join(name));
    programs.find(|program| is_trusted_program(program))
}

/// The path of the program `name` for a start outside of the sandbox: as given if it is absolute,
/// else from the search path. The error says why it is not started.
pub(crate) fn program(name: &str) -> io::Result<PathBuf> {
    let path = Path::new(name);
    let missing = |text: String| io::Error::new(io::ErrorKind::NotFound, text);
    if path.is_absolute() {
        // Another error than its own would hide that it is missing.
        fs::metadata(path)?;
        if is_trusted_program(path) {
            return Ok(path.to_owned());
        }
        let text = "commands can change it, because it is in a workspace: move it elsewhere";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if name.contains('/') {
        return Err(missing("a path must be absolute".to_owned()));
    }
    let searched = env::var_os("PATH").unwrap_or_default();
    find_trusted_program(OsStr::new(name), &searched).ok_or_else(|| {
        missing("No such file in PATH, whose folders in workspaces are not searched".to_owned())
    })
}

/// True if the value of an environment variable contains a path that commands can write.
fn leads_into_workspace(value: &OsStr) -> bool {
    let bytes = value.as_bytes();
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for (count, start) in starts.enumerate() {
        if count == PATHS_MAX {
            return true;
        }
        let end = bytes[start..].iter().position(|byte| SEPARATORS.contains(byte));
        let path = &bytes[start..end.map_or(bytes.len(), |length| start + length)];
        if is_below_root(Path::new(OsStr::from_bytes(path))) {
            return true;
        }
    }
    // A path may contain a separator.
    let path = Path::new(value);
    path.is_absolute() && is_below_root(path)
}

/// True if commands may write at `path`, which need not exist, or if it cannot be resolved.
fn is_below_root(path: &Path) -> bool {
    for existing in path.ancestors() {
        match existing.canonicalize() {
            Ok(resolved) => return roots().contain(&resolved),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Below a file is nothing.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(_) => return true,
        }
    }
    true
}

/// Takes places that commands can write out of the surroundings of a program: its search path, each
/// variable that names such a place, and its working directory, which becomes the home folder or
/// `/`.
#[expect(clippy::disallowed_types, reason = "it prepares a process outside of the sandbox")]
pub(crate) fn prepare(command: &mut std::process::Command) {
    for (name, value) in env::vars_os() {
        if name == "PATH" {
            let path = env::join_paths(trusted_folders(&value)).unwrap_or_default();
            command.env(name, path);
        } else if leads_into_workspace(&value) {
            command.env_remove(name);
        }
    }
    let home = env::var_os("HOME").and_then(|home| trusted_folder(Path::new(&home)));
    command.current_dir(home.filter(|home| home.is_dir()).unwrap_or_else(|| PathBuf::from("/")));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn executable(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn programs_of_a_workspace_are_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (root, outside) = (base.join("ws"), base.join("bin"));
        executable(&root.join(".venv/bin/tool"));
        executable(&outside.join("tool"));
        executable(&base.join("real/other"));
        symlink(root.join(".venv/bin"), base.join("link")).unwrap();
        symlink(root.join(".venv/bin/tool"), outside.join("linked")).unwrap();
        symlink(base.join("real/other"), root.join("hop")).unwrap();
        symlink(root.join("hop"), outside.join("through")).unwrap();
        symlink(base.join("real/other"), outside.join("fine")).unwrap();
        let path = [root.join(".venv/bin"), base.join("link"), "bin".into(), outside.clone()];
        let path = env::join_paths(path).unwrap();
        let find = |name: &str| find_trusted_program(OsStr::new(name), &path);
        assert_eq!(find("tool"), Some(root.join(".venv/bin/tool")), "the root is not known yet");
        add_roots(std::slice::from_ref(&root)).unwrap();
        assert_eq!(trusted_folders(&path), std::slice::from_ref(&outside));
        assert_eq!(find("tool"), Some(outside.join("tool")));
        assert_eq!(find("fine"), Some(outside.join("fine")));
        // A link into a workspace, and one that passes a link there.
        assert_eq!((find("linked"), find("through")), (None, None));
        let refused = |path: &Path| program(path.to_str().unwrap()).unwrap_err().kind();
        assert_eq!(refused(&root.join(".venv/bin/tool")), io::ErrorKind::PermissionDenied);
        assert_eq!(refused(&outside.join("linked")), io::ErrorKind::PermissionDenied);
        assert_eq!(refused(&outside.join("missing")), io::ErrorKind::NotFound);
        assert_eq!(program("bin/tool").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// The path of the link is longer than `PATH_MAX` once resolved, and the kernel still follows it.
    #[test]
    fn folder_that_cannot_be_resolved_is_not_searched() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir(base.join("bin")).unwrap();
        symlink("/nonexistent".repeat(300), base.join("long")).unwrap();
        let path = env::join_paths([base.join("long"), base.join("missing"), base.join("bin")]);
        assert_eq!(trusted_folders(&path.unwrap()), [base.join("bin")]);
    }

    #[test]
    fn variables_that_name_a_workspace_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let root = base.join("ws");
        fs::create_dir(&root).unwrap();
        symlink(&root, base.join("proj")).unwrap();
        add_roots(std::slice::from_ref(&root)).unwrap();
        let (root, link, base) = (root.display(), base.join("proj"), base.display());
        let link = link.display();
        for (value, expected) in [
            (format!("{root}"), true),
            (format!("{link}/missing/deeper"), true),
            (format!("/usr/lib/libm.so.6 {root}/m.so"), true),
            (format!("-I{link}/lib"), true),
            (format!("--require={root}/x.js"), true),
            (format!("/usr/share/?.lua;{root}/?.lua"), true),
            (format!("{base}/elsewhere"), false),
            ("en_US.UTF-8".to_owned(), false),
            ("unix:path=/run/user/0/bus".to_owned(), false),
            ("xterm/256".to_owned(), false),
            ("/".repeat(1000), true),
        ] {
            assert_eq!(leads_into_workspace(OsStr::new(&value)), expected, "{value}");
        }
    }

    #[test]
    fn record_is_read_appended_and_shortened() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (kept, gone) = (dir.path().join("a\nb"), dir.path().join("gone"));
        fs::create_dir(&kept).unwrap();
        let fresh = || Roots {
            paths: BTreeSet::new(),
            folders: None,
            state: Some(state.clone()),
            is_read: false,
            error: None,
        };
        let read = || {
            let mut roots = fresh();
            roots.read();
            roots
        };
        assert!(read().error.is_none(), "a missing record is empty");
        read().append(&[kept.clone(), gone.clone()]).unwrap();
        let record = state.join(RECORD);
        assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read().paths, [kept.clone(), gone.clone()].into());
        assert!(read().contain(&kept) && !read().contain(Path::new("/usr")));
        // An entry without an end is not complete.
        OpenOptions::new().append(true).open(&record).unwrap().write_all(b"/cut").unwrap();
        assert_eq!(read().paths.len(), 2);
        let mut long = entries([&kept]);
        while (long.len() as u64) <= RECORD_BYTES {
            long.extend(entries([&gone.join(long.len().to_string())]));
        }
        fs::write(&record, long).unwrap();
        assert_eq!(read().paths, [kept.clone()].into());
        assert_eq!(fs::read(&record).unwrap(), entries([&kept]));
        fs::remove_file(&record).unwrap();
        fs::create_dir(&record).unwrap();
        assert!(read().contain(Path::new("/usr")), "nothing is trusted without the record");
    }
}
