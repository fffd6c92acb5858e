//! Paths to which git's settings refer: folders of hooks, and included files with further settings.
//!
//! The settings are read as git does, without running it: those of the system and the user, then
//! those of a repository, also if it lies outside the workspace. An include with a condition counts
//! always. A work tree that the settings name counts beside the one that was found.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::libc;
use posse_base::protected;

use crate::protect::gitconfig::{self, PathSetting};
use crate::protect::place::is_timestamp_final;

/// Maximum depth of includes, as in git.
const INCLUDE_DEPTH_MAX: usize = 10;

/// Maximum number of settings files that are read for one repository. Git has no such limit.
const FILES_MAX: usize = 200;

/// Maximum number of entries of a hooks folder that are examined for links, and of repositories of
/// worktrees and submodules in one repository.
const ENTRIES_MAX: usize = 500;

/// Maximum size of `.git` or `commondir`, files that contain one path.
const POINTER_BYTES_MAX: u64 = 8 << 10;

/// Number of cached settings files from which the cache is emptied.
const KNOWN_MAX: usize = 4096;

/// Maximum number of links on the way to a file, as in Linux.
const LINKS_MAX: usize = 40;

/// Maximum depth of submodules whose repositories are in the folder `modules` of another one.
const MODULE_DEPTH_MAX: usize = 6;

/// Names of hooks that git runs.
const HOOKS: [&str; 29] = [
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "p4-prepare-changelist",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "sendemail-validate",
    "update",
    "pre-solve-refs",
];

/// Repository, as git finds it from a work tree or by its own folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GitRepository {
    /// Folder with `HEAD`, such as `.git`.
    pub(super) folder: PathBuf,
    /// Folder with the settings and hooks. It differs from `folder` for a linked worktree.
    pub(super) common: PathBuf,
    /// Work tree. `None` if the repository was found by its own folder, and is not called `.git`.
    tree: Option<PathBuf>,
    /// Links on the way from the work tree to `folder`, and from there to `common`.
    links: Vec<PathBuf>,
}

impl GitRepository {
    /// Repository of the work tree `tree`, to which its `.git` leads. `None` if there is none.
    pub(super) fn of_tree(tree: &Path) -> Option<GitRepository> {
        let dot_git = tree.join(".git");
        let (folder, path) = if dot_git.is_dir() {
            (dot_git.clone(), dot_git)
        } else {
            let bytes = read(&dot_git, POINTER_BYTES_MAX)?;
            let path = tree.join(pointer_text(&bytes, true)?);
            (resolve(&path), path)
        };
        let mut found = GitRepository::at(&folder, Some(tree))?;
        found.links.extend(links_on_the_way(&path));
        Some(found)
    }

    /// Repository in `folder`. `None` if git would not accept it as one.
    pub(super) fn of_folder(folder: &Path) -> Option<GitRepository> {
        let is_dot_git = folder.file_name().is_some_and(|name| name == ".git");
        GitRepository::at(folder, folder.parent().filter(|_| is_dot_git))
    }

    fn at(folder: &Path, tree: Option<&Path>) -> Option<GitRepository> {
        let exists = |name: &str| {
            let name = if name == "head" { "HEAD" } else { name };
            folder.join(name).symlink_metadata().is_ok()
        };
        if !protected::is_repository(exists) {
            return None;
        }
        let (common, links) = match read_path(&folder.join("commondir")) {
            Some(text) => {
                let path = folder.join(text);
                (resolve(&path), links_on_the_way(&path))
            }
            None => (folder.to_owned(), Vec::new()),
        };
        let (folder, tree) = (folder.to_owned(), tree.map(Path::to_owned));
        Some(GitRepository { folder, common, tree, links })
    }

    /// Returns the repositories that git may find in `folder` or above it, the innermost first.
    pub(super) fn around(folder: &Path) -> Vec<GitRepository> {
        let found = |folder| {
            GitRepository::of_tree(folder).into_iter().chain(GitRepository::of_folder(folder))
        };
        folder.ancestors().flat_map(found).collect()
    }

    /// Returns the repositories of the linked worktrees and submodules of this one.
    fn parts(&self) -> Vec<GitRepository> {
        let mut parts = Vec::new();
        for folder in entries(&self.common.join("worktrees")) {
            // The file contains the path of the `.git` of the worktree.
            let dot_git = read_path(&folder.join("gitdir"));
            let tree = dot_git.and_then(|path| Some(resolve(folder.join(path).parent()?)));
            parts.extend(GitRepository::at(&folder, tree.as_deref()));
        }
        // A submodule may be called `a/b`.
        let mut level = vec![self.common.join("modules")];
        for _ in 0..MODULE_DEPTH_MAX {
            let mut next = Vec::new();
            for folder in level.iter().flat_map(|folder| entries(folder)) {
                match GitRepository::of_folder(&folder) {
                    Some(found) => {
                        next.push(found.common.join("modules"));
                        parts.push(found);
                    }
                    None => next.push(folder),
                }
            }
            next.truncate(ENTRIES_MAX);
            level = next;
        }
        parts.truncate(ENTRIES_MAX);
        parts
    }
}

/// Settings of a file that refer to paths, with the state of the file when it was read.
#[derive(Debug)]
struct KnownFile {
    state: (u64, u64, i64, i64),
    settings: Vec<PathSetting>,
}

/// Finder of the paths to which git's settings refer. Caches unchanged settings files.
#[derive(Debug, Default)]
pub struct GitReferences {
    home: Option<PathBuf>,
    /// Settings files of the system and the user.
    user: Vec<PathBuf>,
    known: HashMap<PathBuf, KnownFile>,
}

impl GitReferences {
    /// Creates a finder for a user with the folder `home` and the configuration folder
    /// `config_home` (`XDG_CONFIG_HOME`; `None` means `.config` in `home`).
    pub fn new(home: Option<PathBuf>, config_home: Option<PathBuf>) -> GitReferences {
        let config_home = config_home.or_else(|| Some(home.as_ref()?.join(".config")));
        let user = [
            Some(PathBuf::from("/etc/gitconfig")),
            config_home.map(|folder| folder.join("git/config")),
            home.as_ref().map(|home| home.join(".gitconfig")),
        ];
        let user = user.into_iter().flatten().collect();
        GitReferences { home, user, known: HashMap::new() }
    }

    /// Returns the work tree, or else the folder, of a repository in or above `path` or one of
    /// `roots`, whose settings or hooks refer to `path` or a folder above it; also for the worktrees
    /// and submodules of such a repository. `None` if there is none.
    pub fn repository_that_obeys(&mut self, path: &Path, roots: &[&Path]) -> Option<PathBuf> {
        let starts = path.parent().into_iter().chain(roots.iter().copied());
        let found: BTreeSet<GitRepository> = starts.flat_map(GitRepository::around).collect();
        let parts: Vec<GitRepository> = found.iter().flat_map(GitRepository::parts).collect();
        let all: BTreeSet<GitRepository> = found.into_iter().chain(parts).collect();
        let obeys = |paths: &BTreeSet<PathBuf>| paths.iter().any(|known| path.starts_with(known));
        let found = all.into_iter().find(|repository| obeys(&self.of(repository, roots)))?;
        Some(found.tree.unwrap_or(found.folder))
    }

    /// Returns the paths to which the settings and hooks of `repository` refer: included files,
    /// folders of hooks, files in place of a folder that is a work tree or contains one of `roots`,
    /// and all links on the way to them and to the repository. They need not exist.
    pub(super) fn of(&mut self, repository: &GitRepository, roots: &[&Path]) -> BTreeSet<PathBuf> {
        let GitRepository { folder, common, tree, links } = repository;
        let mut own = vec![common.join("config"), folder.join("config.worktree")];
        if folder != common {
            own.push(folder.join("config"));
        }
        let mut paths: BTreeSet<PathBuf> = links.iter().cloned().collect();
        let mut hooks = vec![common.join("hooks")];
        let mut trees: BTreeSet<PathBuf> = tree.iter().cloned().collect();
        let mut values = Vec::new();
        let mut left = FILES_MAX;
        let user = self.user.iter().cloned();
        let mut level: Vec<(PathBuf, bool)> = user.map(|path| (path, false)).collect();
        level.extend(own.into_iter().map(|path| (path, true)));
        let mut read = BTreeSet::new();
        for depth in 0..=INCLUDE_DEPTH_MAX {
            let mut next = Vec::new();
            for (file, is_own) in std::mem::take(&mut level) {
                if depth > 0 {
                    paths.extend(way(&file));
                }
                left = left.saturating_sub(1);
                if left == 0 {
                    break;
                }
                for setting in self.settings(&file) {
                    match setting {
                        PathSetting::Include(path) => {
                            let Some(path) = self.expand(&path) else { continue };
                            let around = file.parent().unwrap_or(Path::new("/"));
                            next.push((around.join(path), is_own));
                        }
                        PathSetting::Hooks(path) => values.extend(self.expand(&path)),
                        // Only that of the repository counts.
                        PathSetting::WorkTree(path) if is_own => {
                            trees.insert(resolve(&folder.join(path)));
                        }
                        PathSetting::WorkTree(_) => {}
                    }
                }
            }
            next.retain(|(path, _)| read.insert(path.clone()));
            level = next;
        }
        for path in values {
            // Git runs some hooks in its own folder.
            let bases = trees.iter().chain([folder]);
            hooks.extend(bases.map(|base| base.join(&path)));
        }
        for (at, hooks) in hooks.into_iter().enumerate() {
            let end = resolve(&hooks);
            let is_around = |path: &Path| path.starts_with(&end) || resolve(path).starts_with(&end);
            let is_default = at == 0;
            if is_default {
                let mut links = way(&hooks);
                links.retain(|path| *path != hooks);
                paths.extend(links);
            } else if trees.iter().chain([folder, common]).any(|path| is_around(path))
                || roots.iter().any(|root| is_around(root))
            {
                // Work tree and repository cannot be protected as a whole.
                paths.extend(links_on_the_way(&hooks));
                paths.extend(HOOKS.iter().flat_map(|name| way(&hooks.join(name))));
                continue;
            } else {
                paths.extend(way(&hooks));
            }
            for link in links_in(&hooks) {
                paths.extend(way(&link).into_iter().filter(|path| *path != link));
            }
        }
        paths
    }

    /// Expands `~/` and removes `:(optional)`, as git does. `None` for a path that depends on the
    /// installation of git or on another user.
    fn expand(&self, path: &str) -> Option<PathBuf> {
        let path = path.strip_prefix(":(optional)").unwrap_or(path);
        match path.strip_prefix('~') {
            Some(rest) => Some(self.home.as_ref()?.join(rest.strip_prefix('/')?)),
            None => (!path.is_empty() && !path.starts_with("%(")).then(|| PathBuf::from(path)),
        }
    }

    /// Returns the settings in `file` that refer to paths; none if it cannot be read.
    fn settings(&mut self, file: &Path) -> Vec<PathSetting> {
        let state =
            |found: &Metadata| (found.dev(), found.ino(), found.ctime(), found.ctime_nsec());
        let Ok(found) = fs::metadata(file) else { return Vec::new() };
        if let Some(known) = self.known.get(file).filter(|known| known.state == state(&found)) {
            return known.settings.clone();
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // A running command may have swapped a folder above it, so this can be another file.
        let Some((opened, found)) = open_regular(file) else { return Vec::new() };
        let state = state(&found);
        let Some(bytes) = read_up_to(opened, gitconfig::BYTES_MAX) else { return Vec::new() };
        let settings = gitconfig::path_settings(&bytes);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        if is_timestamp_final((state.2, state.3), now) {
            let known = KnownFile { state, settings: settings.clone() };
            self.known.insert(file.to_owned(), known);
        }
        settings
    }
}

/// Returns the links on the way to `path`, which is absolute, and the path to which they lead in the
/// end. It need not exist.
pub(super) fn way(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut at = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = parts_of(path).collect();
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let Ok(target) = fs::read_link(&next) else {
            at = next;
            continue;
        };
        found.push(next);
        if found.len() > LINKS_MAX {
            return found;
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for part in parts_of(&target).collect::<Vec<_>>().into_iter().rev() {
            rest.push_front(part);
        }
    }
    found.push(at);
    found
}

/// Returns the path to which `path`, which is absolute, leads in the end, with all links on the way
/// followed; a `..` leads to the folder around the target of a link. It need not exist.
pub(super) fn resolve(path: &Path) -> PathBuf {
    way(path).pop().unwrap_or_default()
}

/// Returns the path to which `path` leads as [`resolve`] does. `None` if a link on the way is below
/// one of the resolved `roots`.
pub(super) fn resolve_outside(path: &Path, roots: &[PathBuf]) -> Option<PathBuf> {
    let mut links = way(path);
    let end = links.pop()?;
    let is_inside = |link: &PathBuf| roots.iter().any(|root| link.starts_with(root));
    (!links.iter().any(is_inside)).then_some(end)
}

/// Returns the links on the way to `path`, which is absolute.
pub(super) fn links_on_the_way(path: &Path) -> Vec<PathBuf> {
    let mut found = way(path);
    found.pop();
    found
}

/// Returns the path in the content `bytes` of a `commondir`, or of a `.git` file, which
/// `is_dot_git` tells, exactly as git reads it: a `commondir` has no prefix, and that of a `.git`
/// file ends with one space. `None` if git refuses it, or would end the path at a NUL.
pub(super) fn pointer_text(bytes: &[u8], is_dot_git: bool) -> Option<&Path> {
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
    let text = &bytes[..end];
    let path = if is_dot_git { text.strip_prefix(b"gitdir: ")? } else { text };
    (!path.is_empty() && !path.contains(&0)).then(|| Path::new(OsStr::from_bytes(path)))
}

fn parts_of(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

/// Returns the links in a folder of hooks.
fn links_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(listed) = fs::read_dir(folder) else { return Vec::new() };
    let links = listed.take(ENTRIES_MAX).flatten();
    let links = links.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.map(|entry| entry.path()).collect()
}

/// Returns the folders in `folder`.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(listed) = fs::read_dir(folder) else { return Vec::new() };
    let folders = listed.take(ENTRIES_MAX).flatten();
    let folders = folders.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Returns the path of the settings that git reads for the repository in `folder`, which may be that
/// of a linked worktree.
pub(super) fn settings_of(folder: &Path) -> PathBuf {
    let common = read_path(&folder.join("commondir"));
    common.map_or_else(|| folder.to_owned(), |common| folder.join(common)).join("config")
}

/// Reads a file with one path, such as a `commondir`.
fn read_path(path: &Path) -> Option<PathBuf> {
    pointer_text(&read(path, POINTER_BYTES_MAX)?, false).map(Path::to_owned)
}

/// Reads a regular file of at most `bytes_max` bytes.
pub(super) fn read(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    read_up_to(open_regular(path)?.0, bytes_max)
}

/// Opens a regular file, and returns its own metadata.
fn open_regular(path: &Path) -> Option<(File, Metadata)> {
    let mut options = File::options();
    let file =
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    let found = file.metadata().ok().filter(Metadata::is_file)?;
    Some((file, found))
}

fn read_up_to(file: File, bytes_max: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = file.take(bytes_max + 1).read_to_end(&mut bytes).ok()?;
    (length as u64 <= bytes_max).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn repository(at: &Path, config: &str) {
        write(at, "HEAD", "ref: refs/heads/main\n");
        write(at, "objects/x", "");
        write(at, "refs/x", "");
        write(at, "config", config);
    }

    /// Paths below `base` that the repository of `tree` obeys.
    fn obeyed(base: &Path, tree: &str) -> Vec<String> {
        let mut finder = GitReferences::new(Some(base.join("home")), None);
        let found = GitRepository::of_tree(&base.join(tree)).unwrap();
        let paths = finder.of(&found, &[]).into_iter();
        let below = paths.filter_map(|path| Some(path.strip_prefix(base).ok()?.to_owned()));
        below.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn settings_of_user_repository_and_includes_count() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        write(&base, "home/.gitconfig", "[include] path = w/one\n[core]\nworktree = ../no\n");
        write(&base, "home/.config/git/config", "[core]\nhooksPath = ~/w/user-hooks\n");
        write(&base, "home/w/one", "[includeIf \"gitdir:/x\"]\npath = two\n");
        write(&base, "home/w/two", "[core]\nhooksPath = shared\n");
        let config = "[include]\npath = ../conf\npath = %(prefix)/x\npath = :(optional)opt\n";
        repository(&base.join("home/w/r/.git"), config);
        let paths = obeyed(&base, "home/w/r");
        let expected = [
            "home/w/one",
            "home/w/r/.git/opt",
            "home/w/r/.git/shared",
            "home/w/r/conf",
            "home/w/r/shared",
            "home/w/two",
            "home/w/user-hooks",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn hooks_of_each_work_tree_and_links_count() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        repository(&base.join("m/.git"), "[core]\nhooksPath = hk\n");
        write(&base, "m/.git/worktrees/a/HEAD", "x");
        write(&base, "m/.git/worktrees/a/commondir", "../..\n");
        let tree = base.join("a/.git");
        write(&base, "m/.git/worktrees/a/gitdir", &format!("{}\n", tree.display()));
        write(&base, "a/.git", "gitdir: ../m/.git/worktrees/a\n");
        assert_eq!(obeyed(&base, "a"), ["a/hk", "m/.git/worktrees/a/hk"]);
        write(&base, "scripts/x", "");
        fs::create_dir(base.join("m/.git/hooks")).unwrap();
        symlink("../../../middle", base.join("m/.git/hooks/pre-push")).unwrap();
        symlink("scripts/missing", base.join("middle")).unwrap();
        let paths = obeyed(&base, "m");
        assert_eq!(paths, ["m/.git/hk", "m/hk", "middle", "scripts/missing"]);
        // From the file: a worktree is known by its repository.
        let mut finder = GitReferences::new(None, None);
        let roots = [base.join("m")];
        let roots: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
        let mut found = |path: &str| finder.repository_that_obeys(&base.join(path), &roots);
        assert_eq!(found("a/hk/pre-commit"), Some(base.join("a")));
        assert_eq!(found("scripts/missing"), Some(base.join("m")));
        assert_eq!(found("scripts/x"), None);
    }

    #[test]
    fn work_tree_is_not_protected_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        repository(&base.join("r/.git"), "[core]\nhooksPath = .\n");
        let paths = obeyed(&base, "r");
        assert!(paths.contains(&"r/pre-commit".to_owned()), "{paths:?}");
        assert!(!paths.contains(&"r".to_owned()), "{paths:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn cached_settings_are_those_of_the_file_with_the_stored_status() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::{Duration, Instant};

        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        write(base.path(), "a/conf", "[core]\nhooksPath = /one\n");
        write(base.path(), "b/conf", "[core]\nhooksPath = /other\n");
        let first = fs::metadata(at("a/conf")).unwrap().ino();
        std::thread::sleep(Duration::from_millis(30));
        let is_done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            // A running command swaps the folders.
            threads.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let exchange = RenameFlags::RENAME_EXCHANGE;
                    renameat2(AT_FDCWD, &at("a"), AT_FDCWD, &at("b"), exchange).unwrap();
                }
            });
            let begin = Instant::now();
            let mut wrong = 0;
            while begin.elapsed() < Duration::from_millis(500) {
                let mut references = GitReferences::new(None, None);
                references.settings(&at("a/conf"));
                let known = references.known.get(&at("a/conf")).unwrap();
                let expected = if known.state.1 == first { "/one" } else { "/other" };
                let PathSetting::Hooks(path) = &known.settings[0] else { panic!() };
                wrong += usize::from(path != expected);
            }
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(wrong, 0);
        });
    }
}
