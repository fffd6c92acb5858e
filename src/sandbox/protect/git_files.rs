//! Checks of single files and folders of git that a command created or changed.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use posse_base::protected;

use crate::protect::baseline::{Baseline, BaselineItem};
use crate::protect::check::name_of;
use crate::protect::finding::{ProtectAction, ProtectedChange, failed};
use crate::protect::gitconfig;
use crate::protect::index::{self, IndexPaths};
use crate::protect::packed_refs::{self, is_replacement};
use crate::protect::place::{self, PlaceKind, Stat};
use crate::protect::references;
use crate::protect::sort::Sort;
use crate::protect::state::State;
use crate::protect::{GuardState, ProtectedPath, git_folder, steps};

/// Maximum number of entries of `objects` that are read: one folder for each first byte, and a few more.
const OBJECT_FOLDERS_MAX: usize = 300;

/// Maximum number of entries of a folder in which settings of mise are looked for.
const ENTRIES_MAX: usize = 10_000;

impl GuardState {
    /// Removes everything from the git file or folder at `key` that may run programs: hooks,
    /// settings, rebase steps, and references to other repositories. Moves it to the quarantine as
    /// a whole if it cannot be cleaned. Does nothing if it is exempt.
    pub(super) fn clean(&mut self, key: &ProtectedPath, current: &BaselineItem) {
        let path = self.path(key);
        if self.lifted.covers(&path) {
            return;
        }
        let Ok((folder, name)) = self.roots[key.0].root.open_parent(&key.1) else { return };
        if self.clean_state_of_git(key, current, &folder, name) {
            return;
        }
        match (current.sort, &current.state) {
            (Sort::Hooks | Sort::Remotes, Some(State::Folder { entries, .. })) => {
                let Ok(opened) = self.roots[key.0].root.open_folder(&key.1) else { return };
                for (hook, state) in entries {
                    // git ignores hooks with this suffix.
                    let is_sample = current.sort == Sort::Hooks
                        && hook.extension().is_some_and(|ending| ending == "sample");
                    if !is_sample || state.is_folder() {
                        self.move_aside(&opened, hook, &path.join(hook), ProtectedChange::Created);
                    }
                }
            }
            // In a repository of the user it could send what is pushed elsewhere.
            (Sort::Settings, Some(State::File { copy: Some(bytes), .. }))
                if name_of(key) == b"config.worktree"
                    && !self.is_born(current.parent)
                    && !gitconfig::is_of_sparse_checkout(bytes) =>
            {
                self.move_aside(&folder, name, &path, ProtectedChange::Created);
            }
            (Sort::Settings, Some(State::File { copy: Some(bytes), .. })) => {
                let repository = key.1.parent().unwrap_or(&key.1);
                let may_be_tree = |tree: &str| self.may_be_work_tree(key.0, repository, tree);
                let Some(cleaned) = gitconfig::clean(bytes, may_be_tree) else {
                    self.move_aside(&folder, name, &path, ProtectedChange::Settings(Vec::new()));
                    return;
                };
                if !cleaned.removed.is_empty() {
                    let change = ProtectedChange::Settings(cleaned.removed);
                    self.rewrite(&folder, name, &path, (bytes, &cleaned.text), change);
                }
            }
            (Sort::Common, _) if self.is_of_linked_worktree(key) => {}
            (Sort::Pointer, _) if self.points_to_protected(key, Sort::Pointer) => {}
            (Sort::WorktreePath, _) if self.leads_to_worktree(key) => {}
            (Sort::Common | Sort::Pointer | Sort::WorktreePath, _) => {
                self.move_aside(&folder, name, &path, ProtectedChange::LeadsOutside);
            }
            _ => self.move_aside(&folder, name, &path, ProtectedChange::Created),
        }
    }

    /// Cleans a file or folder that git changes in the course of its operations. False if it is of
    /// another kind. First gives a file of git an inode of its own.
    fn clean_state_of_git(
        &mut self,
        key: &ProtectedPath,
        current: &BaselineItem,
        folder: &OwnedFd,
        name: &Path,
    ) -> bool {
        let path = self.path(key);
        if let Some(State::File { stat, .. }) = &current.state
            && stat.links > 1
            && !matches!(current.sort, Sort::Foreign | Sort::Volatile)
        {
            self.separate(folder, name, &path, stat);
        }
        match (current.sort, &current.state) {
            (Sort::Foreign, _) if self.may_be_of_the_user(key) => {}
            (Sort::Volatile, _) if name_of(key) == b"replace" && self.is_in_born(key) => {}
            (Sort::Exclude, Some(State::File { copy: Some(bytes), .. }))
                if has_only_comments(bytes) => {}
            (Sort::Exclude, Some(State::File { .. })) if self.is_in_born(key) => {
                self.found(&path, ProtectedChange::Excludes, ProtectAction::Left);
            }
            (Sort::Interrupted, _) if !self.is_born(current.parent) => self.left_unfinished(&path),
            (Sort::Interrupted, _) => {}
            (Sort::Origin, _) => self.check_origin(key, current),
            (Sort::PackedRefs, Some(State::File { .. })) if self.is_in_born(key) => {}
            (Sort::PackedRefs, Some(State::File { copy, .. })) => {
                self.check_packed_refs(key, folder, name, copy.as_deref());
            }
            (Sort::Strategy, Some(State::File { copy: Some(bytes), .. }))
                if has_known_options(&name_of(key), bytes) => {}
            (Sort::Index, Some(State::File { .. })) => {
                if let Some(change) = unsafe_index(folder, name, &path) {
                    self.move_aside(folder, name, &path, change);
                }
            }
            (Sort::Todo, Some(State::File { copy: Some(bytes), .. })) => {
                self.check_steps(key, current, (folder, name), bytes);
            }
            _ => return false,
        }
        true
    }

    /// True if a folder above `key` is a repository that a command of this session created.
    pub(super) fn is_in_born(&self, key: &ProtectedPath) -> bool {
        let scan = &self.roots[key.0].scan;
        key.1.ancestors().skip(1).any(|folder| self.is_born(scan.identity(folder)))
    }

    /// Gives a file with several hard links an inode of its own, because git writes some files in
    /// place, such as `COMMIT_EDITMSG`, and reports it as `path`.
    pub(super) fn separate(&mut self, folder: &OwnedFd, name: &Path, path: &Path, stat: &Stat) {
        let bytes = place::read(folder, name, index::BYTES_MAX);
        let written = bytes.and_then(|bytes| {
            let bytes = bytes.ok_or(Errno::EFBIG)?;
            place::replace_file(folder, name, &bytes, stat.mode)
        });
        let action = match written {
            Ok(()) => ProtectAction::Restored(None),
            Err(Errno::ENOENT) => return,
            Err(errno) => failed(errno),
        };
        self.found(path, ProtectedChange::Linked, action);
    }

    /// Reports that a command began an operation of git in the folder `path` and left it unfinished.
    pub(super) fn left_unfinished(&mut self, path: &Path) {
        if !self.lifted.covers(path) {
            self.found(path, ProtectedChange::Interrupted, ProtectAction::Left);
        }
    }

    /// Reports a file with the commits of an interrupted operation that a command created or changed
    /// at `key`, unless the operation is new, which is reported, too.
    pub(super) fn check_origin(&mut self, key: &ProtectedPath, current: &BaselineItem) {
        if self.is_of_known_operation(key, current)
            && let Some(folder) = key.1.parent()
        {
            let path = self.path(&(key.0, folder.into()));
            self.left_unfinished(&path);
        }
    }

    /// True if the file `current` at `key` belongs to an operation of git that had begun before.
    fn is_of_known_operation(&self, key: &ProtectedPath, current: &BaselineItem) -> bool {
        let Some(folder) = key.1.parent() else { return false };
        let operation: ProtectedPath = (key.0, folder.into());
        let known = self.baseline.as_ref().and_then(|baseline| baseline.items.get(&operation));
        known.is_some_and(|known| Some(known.identity) == current.parent)
    }

    /// Takes the steps out of the list `name` of an interrupted operation that run commands, and those
    /// that an operation which had begun before did not have. `bytes`: the list.
    pub(super) fn check_steps(
        &mut self,
        key: &ProtectedPath,
        current: &BaselineItem,
        (folder, name): (&OwnedFd, &Path),
        bytes: &[u8],
    ) {
        let before = (self.is_of_known_operation(key, current) && !self.is_in_born(key))
            .then(|| self.text_before(key));
        let text = String::from_utf8_lossy(bytes);
        let (kept, taken) = steps::divided(&text, before.as_deref());
        if !taken.is_empty() {
            let path = self.path(key);
            let change = ProtectedChange::Steps(taken);
            self.rewrite(folder, name, &path, (bytes, kept.as_bytes()), change);
        }
    }

    /// Text of the file at `key` before the command; empty if there was none.
    fn text_before(&self, key: &ProtectedPath) -> String {
        let known = self.baseline.as_ref().and_then(|baseline| baseline.items.get(key));
        match known.and_then(|known| known.state.as_ref()) {
            Some(State::File { copy: Some(bytes), .. }) => {
                String::from_utf8_lossy(bytes).into_owned()
            }
            _ => String::new(),
        }
    }

    /// Takes those references out of `packed-refs` that replace objects and did not exist before,
    /// packed or not. `lines`: the references of this kind in it; `None` if they are unknown.
    pub(super) fn check_packed_refs(
        &mut self,
        key: &ProtectedPath,
        folder: &OwnedFd,
        name: &Path,
        lines: Option<&[u8]>,
    ) {
        let path = self.path(key);
        let known = self.baseline.clone().map(|baseline| known_replacements(&baseline, key));
        let known = known.unwrap_or_default();
        let is_new = |line: &[u8]| {
            is_replacement(line) && !known.iter().any(|known| known == line.trim_ascii_end())
        };
        let Some(lines) = lines else {
            let why = "it is too large to be checked, or cannot be read".to_owned();
            let change = ProtectedChange::Replacements(Vec::new());
            self.found(&path, change, ProtectAction::Failed(why));
            return;
        };
        let new = lines.split(|byte| *byte == b'\n').filter(|line| is_new(line));
        let removed: Vec<String> =
            new.map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        if removed.is_empty() {
            return;
        }
        let Ok(Some(bytes)) = place::read(folder, name, packed_refs::BYTES_MAX) else { return };
        let mut kept = Vec::with_capacity(bytes.len());
        let mut is_dropped = false;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // The object to which a tag leads is in the line after it.
            is_dropped = if line.starts_with(b"^") { is_dropped } else { is_new(line) };
            if !is_dropped {
                kept.extend_from_slice(line);
            }
        }
        self.rewrite(folder, name, &path, (&bytes, &kept), ProtectedChange::Replacements(removed));
    }

    /// True if the foreign entry at `key` may be a file of the user: it is in a folder that existed
    /// before, and was no repository before as git creates it.
    pub(super) fn may_be_of_the_user(&self, key: &ProtectedPath) -> bool {
        let Some(baseline) = &self.baseline else { return false };
        let name = key.1.file_name().unwrap_or_default().as_encoded_bytes();
        let scan = &self.roots[key.0].scan;
        let repository = key.1.ancestors().skip(1).find(|folder| scan.is_repository(folder));
        let identity = repository.and_then(|folder| scan.identity(folder));
        let is_old = identity.filter(|found| scan.existed(*found, baseline.scans[key.0]));
        let Some(identity) = is_old else { return false };
        if git_folder::is_dangerous(&protected::fold(name)) {
            return false;
        }
        let mut before = baseline.items.iter();
        let before =
            before.find(|(_, item)| item.sort == Sort::Repository && item.identity == identity);
        let Some(((at, path), _)) = before else { return true };
        let has = |name: &str| baseline.items.contains_key(&(*at, path.join(name).into()));
        // Also below a `.git`, as in a git folder of a submodule, only git has files.
        let mut parts = path.components().map(|part| part.as_os_str().as_encoded_bytes());
        !parts.any(protected::is_dot_git) && !has("commondir") && (!has("config") || has(".git"))
    }

    /// True if a program may load the `.env` file at `key`: settings of one that does are beside it or
    /// in a folder above it, up to the work tree of git around the root, or else up to the root.
    pub(super) fn is_loaded(&self, key: &ProtectedPath) -> bool {
        let root = &self.roots[key.0].root.path;
        let exists = |below: &Path| {
            let known = self
                .baseline
                .as_ref()
                .is_some_and(|baseline| baseline.items.contains_key(&(key.0, below.into())));
            known || root.join(below).symlink_metadata().is_ok()
        };
        let loaders = protected::ENVIRONMENT_LOADERS;
        let mut folders = key.1.ancestors().skip(1);
        folders.any(|folder| {
            loaders.iter().any(|name| exists(&folder.join(name)))
                || has_settings_of_mise(&root.join(folder))
        }) || above_root(root).any(|folder| {
            loaders.iter().any(|name| folder.join(name).symlink_metadata().is_ok())
                || has_settings_of_mise(folder)
        })
    }
}

/// Folders above `root` up to the work tree of git around it. None if `root` is one, or in none.
fn above_root(root: &Path) -> impl Iterator<Item = &Path> {
    let is_tree = |folder: &Path| folder.join(".git").symlink_metadata().is_ok();
    let levels = root.ancestors().position(is_tree).unwrap_or(0);
    root.ancestors().skip(1).take(levels)
}

/// True if `folder` has settings of mise for an environment, such as `mise.test.toml` and
/// `.config/mise/config.test.toml`.
fn has_settings_of_mise(folder: &Path) -> bool {
    let places = [
        ("", "mise."),
        ("", ".mise."),
        (".config", "mise."),
        (".config/mise", "config."),
        (".mise", "config."),
        ("mise", "config."),
    ];
    places.iter().any(|(below, begin)| {
        let entries = std::fs::read_dir(folder.join(below)).into_iter().flatten();
        entries.take(ENTRIES_MAX).flatten().any(|entry| {
            let name = entry.file_name();
            let name = protected::fold(name.as_encoded_bytes());
            name.starts_with(begin.as_bytes()) && name.ends_with(b".toml")
        })
    })
}

/// The lines, without their ends, of references that replaced objects before in the repository whose
/// `packed-refs` is at `key`, packed or not.
fn known_replacements(baseline: &Baseline, key: &ProtectedPath) -> Vec<Vec<u8>> {
    let state = |key: &ProtectedPath| baseline.items.get(key).and_then(|item| item.state.as_ref());
    let mut known = Vec::new();
    if let Some(State::File { copy: Some(lines), .. }) = state(key) {
        let lines = lines.split(|byte| *byte == b'\n');
        known.extend(lines.map(|line| line.trim_ascii_end().to_vec()));
    }
    let loose: ProtectedPath = (key.0, key.1.with_file_name("refs/replace").into());
    if let Some(State::Folder { entries, .. }) = state(&loose) {
        for (name, state) in entries {
            if let State::File { copy: Some(object), .. } = state {
                let name = name.as_os_str().as_encoded_bytes();
                known.push([object.trim_ascii(), b" refs/replace/", name].concat());
            }
        }
    }
    known
}

/// Returns what is wrong with the paths of the index `name` in the repository `folder`. `None` if
/// git writes nothing but files of the work tree from it.
pub(super) fn unsafe_index(folder: &OwnedFd, name: &Path, path: &Path) -> Option<ProtectedChange> {
    let config = references::settings_of(path.parent().unwrap_or(path));
    let bytes = references::read(&config, gitconfig::BYTES_MAX);
    let formats = bytes.and_then(|bytes| gitconfig::values(&bytes, "extensions", "objectformat"));
    let name_bytes = match formats.as_deref().unwrap_or_default() {
        [] => Some(20),
        [format] if format == "sha1" => Some(20),
        [format] if format == "sha256" => Some(32),
        // git takes the last of several, and refuses another one.
        _ => None,
    };
    let found = match (name_bytes, place::read(folder, name, index::BYTES_MAX)) {
        (Some(name_bytes), Ok(Some(bytes))) => index::check(&bytes, name_bytes),
        (_, Err(Errno::ENOENT)) => IndexPaths::Safe,
        (None, _) | (_, Ok(None) | Err(_)) => IndexPaths::Unknown,
    };
    match found {
        IndexPaths::Safe => None,
        IndexPaths::Unsafe(path) => {
            Some(ProtectedChange::IndexPath(String::from_utf8_lossy(&path).into_owned()))
        }
        IndexPaths::Unknown => Some(ProtectedChange::IndexPath(String::new())),
    }
}

/// True if the file `name` of an interrupted operation lets git run no program: the merge strategies
/// are those of git itself, the options of `git apply` change no other file, and the number of a
/// step is one, because a shell may run another text in its prompt. False for a text that git may
/// read in another way.
fn has_known_options(name: &[u8], bytes: &[u8]) -> bool {
    const STRATEGIES: [&str; 6] = ["ort", "recursive", "resolve", "octopus", "ours", "subtree"];
    if name == b"opts" {
        return gitconfig::values(bytes, "options", "strategy")
            .is_some_and(|names| names.iter().all(|name| STRATEGIES.contains(&name.as_str())));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let text = text.trim_end_matches(['\n', '\r']);
    match name {
        b"strategy" => STRATEGIES.contains(&text),
        b"apply-opt" => text.trim_start().is_empty() || has_known_apply_options(text),
        _ => text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// True if git reads no pattern from these contents of an `info/exclude`, as from git's template.
fn has_only_comments(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte == b'\n').all(|line| line.is_empty() || line.starts_with(b"#"))
}

/// True if the text contains only options that `git am` passes to `git apply`, each in single
/// quotes.
fn has_known_apply_options(text: &str) -> bool {
    const PREFIXES: [&str; 4] = ["--whitespace=", "--exclude=", "--include=", "--directory="];
    const WHOLE: [&str; 4] = ["--ignore-space-change", "--ignore-whitespace", "--reject", "--3way"];
    let is_known = |option: &str| {
        let number = option.strip_prefix("-p").or_else(|| option.strip_prefix("-C"));
        let is_number = number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        is_number
            || WHOLE.contains(&option)
            || PREFIXES.iter().any(|prefix| option.starts_with(prefix))
    };
    text.trim_start().split(' ').all(|quoted| {
        let option = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        option.is_some_and(|option| !option.contains(['\'', '\\', '\n', '\r']) && is_known(option))
    })
}

pub(super) fn has_head(repository: &OwnedFd) -> bool {
    Stat::at(repository, Path::new("HEAD")).is_ok_and(|stat| stat.kind != PlaceKind::Folder)
}

/// Parts of a repository that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contents {
    /// Without `HEAD`, `refs` or `objects`, git takes it for no repository.
    Incomplete,
    WithoutObjects,
    Complete,
}

/// Finds out which parts of `repository` exist.
pub(super) fn contents(repository: &OwnedFd) -> Contents {
    let is_there = |name: &str| Stat::at(repository, Path::new(name)).is_ok();
    if !has_head(repository) || !is_there("refs") || !is_there("objects") {
        return Contents::Incomplete;
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let has = |folder: &str, wanted: &dyn Fn(&[u8]) -> bool| {
        let opened = openat(repository, folder, flags, Mode::empty());
        let listed = opened.and_then(|opened| place::list(&opened, OBJECT_FOLDERS_MAX));
        listed.is_ok_and(|(listed, _)| listed.iter().any(|entry| wanted(entry.name.as_bytes())))
    };
    if has("objects", &|name| name.len() == 2)
        || has("objects/pack", &|name| name.ends_with(b".pack"))
    {
        Contents::Complete
    } else {
        Contents::WithoutObjects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_apply_that_write_other_files_are_unknown() {
        for (text, expected) in [
            ("", true),
            ("\n", true),
            (" '--whitespace=fix' '-p2'\n", true),
            ("'-C3' '--ignore-whitespace'", true),
            ("'--build-fake-ancestor=/home/u/.profile' '--reject'", false),
            ("--reject", false),
            ("'--unsafe-paths'", false),
            ("'-p1''--unsafe-paths'", false),
            ("'-p'", false),
        ] {
            assert_eq!(has_known_options(b"apply-opt", text.as_bytes()), expected, "{text:?}");
        }
    }
}
