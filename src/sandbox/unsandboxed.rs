//! Surroundings of programs that posse starts outside of the sandbox: without folders that commands
//! can write, so that a command cannot leave a program or a module there that then runs unconfined.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Roots of all workspaces of this process. A root stays one: what a command left there stays, too.
static ROOTS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Variables with folders or files from which interpreters and the loader take code.
const CODE_VARIABLES: [&str; 14] = [
    "BASH_ENV",
    "ENV",
    "GEM_PATH",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LUA_PATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PYTHONHOME",
    "PYTHONPATH",
    "RUBYLIB",
];

/// Registers the roots that commands may write.
pub(crate) fn add_roots(roots: &[PathBuf]) {
    ROOTS.lock().unwrap_or_else(PoisonError::into_inner).extend(roots.iter().cloned());
}

/// Returns `true` if commands of this process may write below `path`: it is in a workspace, or in the
/// working directory.
pub fn is_in_workspace(path: &Path) -> bool {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_below = |root: &Path| resolved.starts_with(root) || path.starts_with(root);
    let roots = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    roots.iter().any(|root| is_below(root)) || env::current_dir().is_ok_and(|cwd| is_below(&cwd))
}

/// The folders of `path`, a search path, that are absolute and in no workspace.
pub(crate) fn trusted_folders(path: &OsString) -> Vec<PathBuf> {
    let folders = env::split_paths(path);
    folders.filter(|folder| folder.is_absolute() && !is_in_workspace(folder)).collect()
}

/// Takes places that commands can write out of the surroundings of a program: its search path, the
/// variables from which interpreters take code, and its working directory, which becomes the home
/// folder or `/`.
#[expect(clippy::disallowed_types, reason = "it prepares a process outside of the sandbox")]
pub(crate) fn prepare(command: &mut std::process::Command) {
    let path = env::var_os("PATH").unwrap_or_default();
    if let Ok(path) = env::join_paths(trusted_folders(&path)) {
        command.env("PATH", path);
    }
    for name in CODE_VARIABLES {
        let is_trusted = |value: OsString| {
            env::split_paths(&value).all(|part| part.is_absolute() && !is_in_workspace(&part))
        };
        if !env::var_os(name).is_none_or(is_trusted) {
            command.env_remove(name);
        }
    }
    let home = env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute() && home.is_dir() && !is_in_workspace(home));
    command.current_dir(home.unwrap_or_else(|| PathBuf::from("/")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_a_workspace_are_not_searched() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("ws");
        std::fs::create_dir_all(root.join(".venv/bin")).unwrap();
        std::os::unix::fs::symlink(root.join(".venv/bin"), dir.path().join("link")).unwrap();
        let outside = dir.path().join("bin");
        std::fs::create_dir(&outside).unwrap();
        let path = [root.join(".venv/bin"), dir.path().join("link"), "bin".into(), outside.clone()];
        let path = env::join_paths(path).unwrap();
        assert_eq!(trusted_folders(&path).len(), 3, "the root is not known yet");
        add_roots(std::slice::from_ref(&root));
        assert_eq!(trusted_folders(&path), [outside]);
        assert!(is_in_workspace(&root.join("missing")) && !is_in_workspace(dir.path()));
    }
}
