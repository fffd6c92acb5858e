//! Model of the programs of the host: which files below a workspace git and programs that look for
//! names would read, without asking those programs.
//!
//! git as documented in gitrepository-layout(5), git-config(1), githooks(5) and in the discovery
//! described by git(1); cargo, direnv and agents look in the folder and all folders above it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use posse::protected;

use super::pieces::CONTROL_FILES;

/// Files that their programs also look for in every folder above the working directory.
const UPWARD: [&str; 5] =
    [".cargo/config.toml", ".cargo/config", ".envrc", "CLAUDE.md", "AGENTS.md"];

/// Longest path below the root, in folders.
const DEPTH_MAX: usize = 6;

/// A planted text that a program of the host would read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reading {
    /// The number of the planted text, such as `EVIL-7-`.
    pub(super) token: String,
    /// Path below the root, as the program reaches the file.
    pub(super) path: PathBuf,
    /// Path below the root, with links resolved.
    pub(super) real_path: PathBuf,
    pub(super) reader: String,
}

/// Folders in which a person or a program may be started: all below `root`, through links too,
/// except in the folders of package managers and in `.git`. Paths below the root.
pub(super) fn working_directories(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut due = vec![PathBuf::new()];
    while let Some(folder) = due.pop() {
        let Some(real) = real_folder(root, &folder) else { continue };
        let is_known = found.iter().any(|(other, known): &(PathBuf, PathBuf)| {
            *known == real && other.file_name() == folder.file_name()
        });
        if is_known || folder.components().count() > DEPTH_MAX {
            continue;
        }
        let mut entries: Vec<_> =
            fs::read_dir(root.join(&folder)).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            if name != ".git" && !protected::is_vendored(name.as_encoded_bytes()) {
                due.push(folder.join(name));
            }
        }
        found.push((folder, real));
    }
    found.into_iter().map(|(folder, _)| folder).collect()
}

/// Everything planted that programs would read in any of the working directories.
pub(super) fn readings(root: &Path) -> BTreeSet<Reading> {
    let mut found = BTreeSet::new();
    for folder in working_directories(root) {
        let Some(real) = real_folder(root, &folder) else { continue };
        for name in CONTROL_FILES {
            found.extend(tokens_in(root, &folder.join(name), "published name"));
        }
        for above in real.ancestors() {
            for name in UPWARD {
                found.extend(tokens_in(root, &above.join(name), "published name, from below"));
            }
        }
        found.extend(read_by_git(root, &real));
    }
    found
}

/// Planted texts in the file at `path`, below `root`.
fn tokens_in(root: &Path, path: &Path, reader: &str) -> Vec<Reading> {
    let Ok(real) = fs::canonicalize(root.join(path)) else { return Vec::new() };
    let Ok(real_path) = real.strip_prefix(root) else { return Vec::new() };
    let text =
        if real.is_file() { fs::read_to_string(&real).unwrap_or_default() } else { String::new() };
    let reading = |token| Reading {
        token,
        path: path.to_owned(),
        real_path: real_path.to_owned(),
        reader: reader.to_owned(),
    };
    tokens(&text).into_iter().map(reading).collect()
}

/// Numbers of the planted texts in `text`.
pub(super) fn tokens(text: &str) -> BTreeSet<String> {
    let starts = text.match_indices("EVIL-");
    let token = |(at, word): (usize, &str)| {
        let rest = &text[at + word.len()..];
        let end = rest.find('-')?;
        Some(format!("EVIL-{}-", &rest[..end]))
    };
    starts.filter_map(token).collect()
}

/// Path below `root` with links resolved, of a folder.
fn real_folder(root: &Path, folder: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(root.join(folder)).ok().filter(|real| real.is_dir())?;
    real.strip_prefix(root).map(Path::to_owned).ok()
}

/// Settings and hooks that git reads in the working directory `folder`.
fn read_by_git(root: &Path, folder: &Path) -> Vec<Reading> {
    let Some(repository) = discover(root, folder) else { return Vec::new() };
    let common = common_folder(&repository);
    let relative = |path: &Path| path.strip_prefix(root).map(Path::to_owned).ok();
    let mut found = Vec::new();
    let mut settings = vec![common.join("config")];
    let has_own = fs::read_to_string(common.join("config")).unwrap_or_default();
    if has_own.contains("worktreeConfig = true") {
        settings.push(repository.join("config.worktree"));
    }
    for path in settings.iter().filter_map(|path| relative(path)) {
        found.extend(tokens_in(root, &path, "git config"));
    }
    for hook in fs::read_dir(common.join("hooks")).into_iter().flatten().flatten() {
        let path = hook.path();
        let is_sample = path.extension().is_some_and(|ending| ending == "sample");
        let is_executable =
            fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
        if is_executable
            && !is_sample
            && let Some(path) = relative(&path)
        {
            found.extend(tokens_in(root, &path, "git hook"));
        }
    }
    found
}

/// The repository that git finds from `folder`, below `root`, as an absolute path.
fn discover(root: &Path, folder: &Path) -> Option<PathBuf> {
    for above in folder.ancestors() {
        let above = root.join(above);
        let dot_git = above.join(".git");
        match fs::metadata(&dot_git) {
            Ok(found) if found.is_file() => {
                // An invalid pointer is an error for git, not a reason to look further.
                let text = fs::read_to_string(&dot_git).ok()?;
                let target = text.strip_prefix("gitdir: ")?.trim_end_matches(['\n', '\r']);
                return Some(above.join(target)).filter(|target| is_repository(target));
            }
            Ok(found) if found.is_dir() && is_repository(&dot_git) => return Some(dot_git),
            _ => {}
        }
        if is_repository(&above) {
            return Some(above);
        }
    }
    None
}

fn is_repository(folder: &Path) -> bool {
    let head = folder.join("HEAD");
    let is_valid = match fs::read_link(&head) {
        Ok(target) => target.starts_with("refs"),
        Err(_) => fs::read_to_string(&head).is_ok_and(|text| {
            text.strip_prefix("ref:").is_some_and(|rest| rest.trim_start().starts_with("refs/"))
        }),
    };
    let common = common_folder(folder);
    is_valid && common.join("objects").exists() && common.join("refs").exists()
}

fn common_folder(repository: &Path) -> PathBuf {
    match fs::read_to_string(repository.join("commondir")) {
        Ok(text) => repository.join(text.trim_end_matches(['\n', '\r'])),
        Err(_) => repository.to_owned(),
    }
}
