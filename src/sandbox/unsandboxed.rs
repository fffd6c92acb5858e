//! Programs that posse starts outside of the sandbox. Places that commands can write are kept from
//! them, so that a command cannot leave a program or a module there that then runs unconfined.
//!
//! Files that a command left in a workspace stay there after its session. So the roots of all workspaces
//! are recorded in the state folder, and hold in every process of posse: in a session of another
//! folder, and in a client of `posse attach`.

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name of the record of roots in the state folder: paths, each between two NUL bytes.
const RECORD: &str = "writable-folders";

/// Maximum number of paths in one text whose beginning exists. A text with more counts as one that
/// leads into a workspace.
const PATHS_MAX: usize = 4096;

/// Maximum number of separators in one path.
const PATH_SEPARATORS_MAX: usize = 16;

/// Bytes that may end a path in an argument or in the value of an environment variable.
const SEPARATORS: &[u8] = b":;,= \t\n\"'`()[]{}&|<>!?*@#%";

/// Variables whose values shells expand and run at their start.
const SHELL_VARIABLES: [&str; 2] = ["BASH_ENV", "ENV"];

static ROOTS: Mutex<Roots> = Mutex::new(Roots {
    paths: BTreeSet::new(),
    recorded: BTreeSet::new(),
    folders: None,
    state: None,
    records: false,
    read: None,
    error: None,
});

/// The roots of all workspaces: folders that commands may write, or could in an earlier session.
#[derive(Default)]
struct Roots {
    paths: BTreeSet<PathBuf>,
    /// Those of them that are in the record.
    recorded: BTreeSet<PathBuf>,
    /// Roots by device and inode, because a folder can have several names (bind mounts). `None` until
    /// needed.
    folders: Option<HashMap<(u64, u64), PathBuf>>,
    /// The state folder; `None` if there is no record.
    state: Option<PathBuf>,
    /// True if new roots are added to the record.
    records: bool,
    /// Size and time of the last change of the record when it was read; `None` if it was missing.
    read: Option<(u64, i64, i64)>,
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

/// Records `new`, the roots of a session that begins, and from now on all roots of this process.
/// Fails if the record cannot be read or written.
pub fn record_workspaces(new: &[PathBuf]) -> io::Result<()> {
    ROOTS.lock().unwrap_or_else(PoisonError::into_inner).records = true;
    add_roots(new)
}

/// The roots of all workspaces, also those of earlier sessions: a link in one may be the work of a
/// command.
pub fn recorded_workspaces() -> Vec<PathBuf> {
    roots().paths.iter().cloned().collect()
}

/// Registers roots that commands and file tools may write, and records them if this process has a
/// session. Fails if the record cannot be read or written: another process would then trust what is
/// left there.
pub(crate) fn add_roots(new: &[PathBuf]) -> io::Result<()> {
    roots().add(new)
}

impl Roots {
    fn add(&mut self, new: &[PathBuf]) -> io::Result<()> {
        if let Some(error) = &self.error {
            return Err(io::Error::other(error.clone()));
        }
        if self.records {
            let missing: Vec<PathBuf> =
                new.iter().filter(|path| !self.recorded.contains(*path)).cloned().collect();
            if !missing.is_empty() {
                self.append(&missing)?;
                self.recorded.extend(missing);
            }
        }
        if new.iter().any(|path| !self.paths.contains(path)) {
            self.folders = None;
            self.paths.extend(new.iter().cloned());
        }
        Ok(())
    }

    /// Reads the record if it has changed: another process may have added a root. Roots are never
    /// removed.
    fn read(&mut self) {
        let Some(state) = &self.state else { return };
        let record = state.join(RECORD);
        let found = match fs::metadata(&record) {
            Ok(found) => Some((found.len(), found.mtime(), found.mtime_nsec())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return self.refuse(&record, &error),
        };
        if found == self.read && self.error.is_none() {
            return;
        }
        if found.is_none() {
            // It was removed: roots are recorded again.
            self.recorded.clear();
            (self.read, self.error) = (None, None);
            return;
        }
        match fs::read(&record) {
            Ok(bytes) => {
                self.recorded.extend(recorded(&bytes));
                self.paths.extend(self.recorded.iter().cloned());
                (self.read, self.folders, self.error) = (found, None, None);
            }
            Err(error) => self.refuse(&record, &error),
        }
    }

    fn refuse(&mut self, record: &Path, error: &io::Error) {
        let text = format!("{} cannot be read: {error}", record.display());
        tracing::warn!("{text}; no program is started outside of the sandbox");
        self.error = Some(text);
    }

    fn append(&self, new: &[PathBuf]) -> io::Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o700).create(state)?;
        let mut file =
            OpenOptions::new().append(true).create(true).mode(0o600).open(state.join(RECORD))?;
        file.write_all(&entries(new))
    }

    /// True if commands may write below `resolved`, an existing path without links: a root is it or
    /// above it, by name or as the same folder under another name.
    fn contain(&mut self, resolved: &Path) -> bool {
        if self.error.is_some() || self.paths.iter().any(|root| resolved.starts_with(root)) {
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

/// The paths in a record. An entry that a full disk has cut off stays one of its own, because each
/// begins with a NUL byte; the root folder can only be the beginning of another path.
fn recorded(bytes: &[u8]) -> impl Iterator<Item = PathBuf> {
    let entries = bytes.split(|byte| *byte == 0).filter(|path| path.len() > 1);
    entries.map(|path| PathBuf::from(OsStr::from_bytes(path)))
}

fn entries(paths: &[PathBuf]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for path in paths {
        bytes.push(0);
        bytes.extend_from_slice(path.as_os_str().as_bytes());
        bytes.push(0);
    }
    bytes
}

/// Resolves `path` if commands cannot change what is there. `None` if they may write there, or if it
/// cannot be resolved.
fn trusted(path: &Path) -> Option<PathBuf> {
    let resolved = path.canonicalize().ok()?;
    (path.is_absolute() && !roots().contain(&resolved)).then_some(resolved)
}

/// The folders of the search path `path` that commands cannot write, resolved: no part of their
/// paths can be replaced by a command.
fn trusted_folders(path: &OsStr) -> Vec<PathBuf> {
    env::split_paths(path).filter_map(|folder| trusted(&folder)).collect()
}

/// Resolves an executable file that commands cannot change.
fn trusted_program(program: &Path) -> Option<PathBuf> {
    let resolved = trusted(program)?;
    let found = fs::metadata(&resolved).ok()?;
    (found.is_file() && found.permissions().mode() & 0o111 != 0).then_some(resolved)
}

/// Finds the program `name` in the folders of the search path `path`. Returns its resolved path, of
/// which commands can change no part: a program in a workspace, or behind a link to one, is not used.
pub fn find_trusted_program(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    let mut programs = trusted_folders(path).into_iter().map(|folder| folder.join(name));
    programs.find_map(|program| trusted_program(&program))
}

/// Creates the command `argv` for a start outside of the sandbox, in surroundings without places that
/// commands can write: its program and arguments, its search path and other variables, and its
/// working directory, which is the home folder or `/`. A name without a slash is looked up in `PATH`.
/// The error says why it is not started.
#[expect(clippy::disallowed_types, reason = "it prepares a process outside of the sandbox")]
pub(crate) fn command(argv: &[String]) -> io::Result<std::process::Command> {
    let [name, arguments @ ..] = argv else { return Err(io::Error::other("it is empty")) };
    if let Some(argument) = arguments.iter().find(|text| leads_into_workspace(OsStr::new(text))) {
        let text = format!(
            "its argument `{argument}` names a place in a workspace, where commands can change \
             files: move the file elsewhere"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let mut command = std::process::Command::new(program(name)?);
    // Some programs do what their name says, and are linked under several names.
    command.arg0(name).args(arguments);
    for (variable, value) in env::vars_os() {
        if variable == "PATH" {
            let path = env::join_paths(trusted_folders(&value)).unwrap_or_default();
            command.env(variable, path);
        } else if SHELL_VARIABLES.iter().any(|name| variable == *name)
            || leads_into_workspace(&value)
        {
            command.env_remove(variable);
        }
    }
    let home = env::var_os("HOME").and_then(|home| trusted(Path::new(&home)));
    command.current_dir(home.filter(|home| home.is_dir()).unwrap_or_else(|| PathBuf::from("/")));
    Ok(command)
}

/// The resolved path of the program `name`.
fn program(name: &str) -> io::Result<PathBuf> {
    let path = Path::new(name);
    let missing = |text: &str| io::Error::new(io::ErrorKind::NotFound, text);
    if path.is_absolute() {
        let found = fs::metadata(path)?;
        if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not executable"));
        }
        let refused = "it is in a workspace, where commands can change it: move it elsewhere";
        return trusted_program(path)
            .ok_or_else(|| io::Error::new(io::ErrorKind::PermissionDenied, refused));
    }
    if name.contains('/') {
        return Err(missing("a path must be absolute"));
    }
    let searched = env::var_os("PATH").unwrap_or_default();
    find_trusted_program(OsStr::new(name), &searched).ok_or_else(|| {
        missing("No such file in PATH, of which folders in workspaces are not searched")
    })
}

/// True if an argument or the value of a variable contains a path that commands can write: absolute,
/// relative to the home folder, in which the program starts, or with a variable such as `$HOME`.
fn leads_into_workspace(text: &OsStr) -> bool {
    let home = env::var_os("HOME").unwrap_or_default();
    if contains_path(text.as_bytes(), &home) {
        return true;
    }
    let plain = text.to_string_lossy();
    if !plain.contains(['$', '"', '\'', '\\']) {
        return false;
    }
    let value = |name: &str| env::var(name).ok();
    let spellings = [
        plain.to_string(),
        expanded(&plain, value, Expansion::Values),
        expanded(&plain, value, Expansion::Defaults),
    ];
    spellings.iter().any(|text| {
        let unquoted: String = text.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
        contains_path(text.as_bytes(), &home) || contains_path(unquoted.as_bytes(), &home)
    })
}

/// Each text from the beginning of a word or a slash to a separator, or to the end, may be a path,
/// because paths may contain separators.
fn contains_path(bytes: &[u8], home: &OsStr) -> bool {
    let is_separator = |at: usize| bytes.get(at).is_none_or(|byte| SEPARATORS.contains(byte));
    let begins = |at: usize| {
        let is_word = !is_separator(at) && (at == 0 || is_separator(at - 1));
        is_word || bytes[at] == b'/'
    };
    let mut count = 0;
    for start in (0..bytes.len()).filter(|at| begins(*at)) {
        let ends = (start + 1..=bytes.len()).filter(|at| is_separator(*at));
        for end in ends.take(PATH_SEPARATORS_MAX + 1) {
            let text = Path::new(OsStr::from_bytes(&bytes[start..end]));
            let path = if let Ok(below) = text.strip_prefix("~") {
                Path::new(home).join(below)
            } else {
                // An absolute path stays as it is.
                Path::new(home).join(text)
            };
            if !path.is_absolute() || !begins_to_exist(&path, home) {
                continue;
            }
            count += 1;
            if count > PATHS_MAX || is_below_root(&path) {
                return true;
            }
        }
    }
    false
}

/// True if the first part of `path`, below the home folder or `/`, exists. Most words of a text are no
/// paths, and this is the cheapest way to tell.
fn begins_to_exist(path: &Path, home: &OsStr) -> bool {
    let base = if path.starts_with(home) { Path::new(home) } else { Path::new("/") };
    let first = path.strip_prefix(base).ok().and_then(|below| below.components().next());
    first.is_none_or(|first| base.join(first).symlink_metadata().is_ok())
}

/// The text that replaces an expansion such as `${NAME:-text}`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expansion {
    /// The value of the variable.
    Values,
    /// The text after the operator, in which variables are replaced as well.
    Defaults,
}

/// The text with the values of its variables: `$NAME`, `${NAME}`, and `${NAME` with an operator. An
/// unknown variable stays, unless it has an operator.
fn expanded(text: &str, value: impl Fn(&str) -> Option<String>, how: Expansion) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let (name, behind) = match after.strip_prefix('{') {
            Some(inner) => split_name(inner),
            None => split_name(after),
        };
        let (is_braced, closing) = (after.starts_with('{'), behind.find('}'));
        let value = value(name);
        rest = match (is_braced, value, closing) {
            (false, Some(value), _) => {
                expanded.push_str(&value);
                behind
            }
            // Without an operator, the value is all that it can be.
            (true, Some(value), Some(at)) if at == 0 || how == Expansion::Values => {
                expanded.push_str(&value);
                &behind[at + 1..]
            }
            // The closing brace separates the text from what follows.
            (true, _, Some(1..)) => behind.trim_start_matches([':', '-', '=', '+', '?']),
            _ => {
                expanded.push('$');
                after
            }
        };
    }
    expanded.push_str(rest);
    expanded
}

/// The name of a variable at the beginning of `text`, and the text behind it.
fn split_name(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
}

/// True if commands may write at `path`, which need not exist, or if it cannot be resolved.
fn is_below_root(path: &Path) -> bool {
    for existing in path.ancestors() {
        match existing.canonicalize() {
            Ok(resolved) => return roots().contain(&resolved),
            // Below a file is nothing, and no file has so long a name.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::NotADirectory
                        | io::ErrorKind::InvalidFilename
                ) => {}
            Err(_) => return true,
        }
    }
    true
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
        record_workspaces(std::slice::from_ref(&root)).unwrap();
        assert_eq!(trusted_folders(&path), std::slice::from_ref(&outside));
        assert_eq!(find("tool"), Some(outside.join("tool")));
        // The resolved path is started, so that a link on the way can be changed without an effect.
        let other = Some(base.join("real/other"));
        assert_eq!((find("linked"), find("through"), find("fine")), (None, other.clone(), other));
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
        let root = base.join("w, s");
        fs::create_dir(&root).unwrap();
        symlink(&root, base.join("proj")).unwrap();
        record_workspaces(std::slice::from_ref(&root)).unwrap();
        let (root, link, base) = (root.display(), base.join("proj"), base.display());
        let link = link.display();
        for (value, expected) in [
            (format!("{root}"), true),
            (format!("{link}/missing/deeper"), true),
            (format!("/usr/lib/libm.so.6 {root}/m.so"), true),
            (format!("-I{link}/lib"), true),
            (format!("--require={root}/x.js"), true),
            (format!("/usr/share/?.lua;{root}/?.lua"), true),
            (format!(":{root}/src"), true),
            (format!("{base}/elsewhere"), false),
            ("en_US.UTF-8".to_owned(), false),
            ("unix:path=/run/user/0/bus".to_owned(), false),
            ("xterm/256".to_owned(), false),
            ("/usr:".repeat(5000), true),
            ("one two three four ".repeat(200), false),
        ] {
            assert_eq!(leads_into_workspace(OsStr::new(&value)), expected, "{value}");
        }
    }

    #[test]
    fn record_is_read_again_when_another_process_has_added_a_root() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (first, second) = (dir.path().join("a\nb"), dir.path().join("gone"));
        let fresh = || Roots { state: Some(state.clone()), records: true, ..Roots::default() };
        let read = || {
            let mut roots = fresh();
            roots.read();
            roots
        };
        let mut early = read();
        assert!(early.error.is_none() && early.paths.is_empty(), "a missing record is empty");
        early.add(std::slice::from_ref(&first)).unwrap();
        let record = state.join(RECORD);
        assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
        early.read();
        assert_eq!(early.paths, [first.clone()].into());
        // A full disk has cut off an entry.
        OpenOptions::new().append(true).open(&record).unwrap().write_all(b"\0/cut").unwrap();
        read().add(std::slice::from_ref(&second)).unwrap();
        early.read();
        assert_eq!(early.paths, [first.clone(), "/cut".into(), second.clone()].into());
        assert!(early.contain(&second.join("bin")) && !early.contain(Path::new("/usr")));
        fs::remove_file(&record).unwrap();
        fs::create_dir(&record).unwrap();
        assert!(read().contain(Path::new("/usr")), "nothing is trusted without the record");
    }

    #[test]
    fn command_has_no_argument_in_a_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("w s");
        fs::create_dir(&root).unwrap();
        record_workspaces(std::slice::from_ref(&root)).unwrap();
        let started = |arguments: &[&str]| {
            let argv: Vec<String> =
                ["/bin/sh"].iter().chain(arguments).map(|part| (*part).to_owned()).collect();
            command(&argv).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(started(&["-c", "jq -r '.model.id'"]), Ok(()));
        let script = format!("{}/status.sh", root.display());
        assert!(started(&[&script]).unwrap_err().contains("names a place in a workspace"));
        assert!(started(&["-c", &format!("cat '{script}'")]).is_err());
        let home = dir.path().as_os_str();
        let names = |text: &str| contains_path(text.as_bytes(), home);
        for text in ["w s/status.sh", "cd w s && ./x", "~/w s/x", "--file=w s/x"] {
            assert!(names(text), "{text}");
        }
        assert!(!names("jq -r .model w") && !names("other/x") && !names(""));
        let value = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
        for (text, values, defaults) in [
            ("sh $HOME/a ${HOME}/b", "sh /home/me/a /home/me/b", "sh /home/me/a /home/me/b"),
            ("${D:-$HOME/d}/x", "/home/me/d}/x", "/home/me/d}/x"),
            ("${HOME:-/}/d", "/home/me/d", "/}/d"),
            (": ${D:=$HOME/d}; $D/x", ": /home/me/d}; $D/x", ": /home/me/d}; $D/x"),
            ("$1 ${HOME $", "$1 ${HOME $", "$1 ${HOME $"),
            ("plain", "plain", "plain"),
        ] {
            assert_eq!(expanded(text, value, Expansion::Values), values);
            assert_eq!(expanded(text, value, Expansion::Defaults), defaults);
        }
        for text in ["`w s/x`", "{w s/x}", "[ -e w s/x ]"] {
            assert!(names(text), "{text}");
        }
        assert_eq!(command(&[]).unwrap_err().to_string(), "it is empty");
    }
}
