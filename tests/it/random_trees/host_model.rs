//! Model of the programs of the host: which files below a workspace git and programs that look for
//! names would read, without asking those programs.
//!
//! git as documented in gitrepository-layout(5), git-config(1), githooks(5) and in the discovery
//! described by git(1); cargo, direnv and agents look in the folder and all folders above it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
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

/// A folder in which a person or a program may be started.
#[derive(Debug)]
pub(super) struct WorkingDirectory {
    /// Path below the root.
    pub(super) path: PathBuf,
    /// Path below the root, with links resolved.
    pub(super) real: PathBuf,
    names: HashSet<OsString>,
}

/// Working directories: all folders below `root`, through links too, except in the folders of package
/// managers and in `.git`.
pub(super) fn working_directories(root: &Path) -> Vec<WorkingDirectory> {
    let mut found: Vec<WorkingDirectory> = Vec::new();
    let mut due = vec![(PathBuf::new(), true)];
    while let Some((path, is_link)) = due.pop() {
        // A path without links below a real path is real.
        let above = path.parent().and_then(|above| found.iter().find(|known| known.path == above));
        let real = match (above, path.file_name()) {
            (Some(above), Some(name)) if !is_link => above.real.join(name),
            _ => {
                let Some(real) = real_folder(root, &path) else { continue };
                real
            }
        };
        let is_known = found
            .iter()
            .any(|known| known.real == real && known.path.file_name() == path.file_name());
        if is_known || path.components().count() > DEPTH_MAX {
            continue;
        }
        let mut names = HashSet::new();
        let mut below = Vec::new();
        for entry in fs::read_dir(root.join(&path)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            names.insert(name.clone());
            let kind = entry.file_type().unwrap();
            if name != ".git" && !protected::is_vendored(name.as_encoded_bytes()) && !kind.is_file()
            {
                below.push((path.join(name), kind.is_symlink()));
            }
        }
        below.sort();
        due.extend(below);
        found.push(WorkingDirectory { path, real, names });
    }
    found
}

/// Everything planted that programs would read in any of the working directories.
pub(super) fn readings(root: &Path) -> BTreeSet<Reading> {
    let mut found = BTreeSet::new();
    let mut listed: HashMap<PathBuf, HashSet<OsString>> = HashMap::new();
    let mut seen = HashSet::new();
    for folder in working_directories(root) {
        let has = |names: &HashSet<OsString>, name: &str| {
            names.contains(OsStr::new(name.split('/').next().unwrap()))
        };
        for name in CONTROL_FILES.iter().filter(|name| has(&folder.names, name)) {
            found.extend(tokens_in(root, &folder.path.join(name), "published name"));
        }
        if !seen.insert(folder.real.clone()) {
            continue;
        }
        for above in folder.real.ancestors() {
            let names = listed.entry(above.to_owned()).or_insert_with(|| {
                let entries = fs::read_dir(root.join(above)).into_iter().flatten().flatten();
                entries.map(|entry| entry.file_name()).collect()
            });
            for name in UPWARD.iter().filter(|name| has(names, name)) {
                found.extend(tokens_in(root, &above.join(name), "published name, from below"));
            }
        }
        let may_be_repository = folder.real.ancestors().any(|above| {
            listed.get(above).is_some_and(|names| has(names, ".git") || has(names, "HEAD"))
        });
        if may_be_repository {
            found.extend(read_by_git(root, &folder.real));
        }
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
