//! Workspace roots, and resolution of paths to locations below them.
//!
//! Every path is resolved beneath the open descriptor of its root. Every later access uses that
//! descriptor, too, and follows no link: a path that has become a link meanwhile is refused. The
//! policy decides about permission.

mod entry;
pub mod links;
pub(crate) mod names;
mod repositories;
mod syntax;
pub(crate) mod walk;

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, mkdirat};
use posse_actors::ports::{FilePath, Operation, ToolError};
use posse_base::failure::{ErrorCode, Exit, Failure, printable};
use posse_base::path_globs::PathGlobs;
use posse_base::paths::normalise;
use posse_base::secrets::files::SecretFiles;
use posse_base::secrets::is_secret;
use posse_base::secrets::readable::ReadableSecrets;
use posse_sandbox::GitReferences;

use crate::committed_secrets::CommittedSecrets;
use crate::workspace::links::{Linked, SecretLinks};

pub use entry::{FileKind, FileStatus};
pub use repositories::RepositoryParts;
pub use walk::{FOLDER, open_beneath};

/// Root folders that tools may access. The first is the working directory.
#[derive(Debug, Clone)]
pub struct Workspace {
    roots: Arc<[Root]>,
    links: Arc<SecretLinks>,
    /// Finder of the paths to which git's settings refer.
    git: Arc<Mutex<GitReferences>>,
}

/// One root folder of a workspace, held open.
#[derive(Debug)]
struct Root {
    /// Descriptor of the folder, only for resolving names below it.
    directory: OwnedFd,
    /// Real path of the folder, without links.
    path: PathBuf,
}

impl Workspace {
    /// Opens `cwd` and the `extra` folders, which are relative to it or absolute, and resolves
    /// their real paths. A folder that is named twice counts once. Fails with `CFG014` if one of
    /// them cannot be opened, its path is not UTF-8, or its name leads through one of the other
    /// folders to a place outside of it: an earlier command may have made that link.
    pub fn open(cwd: &Path, extra: &[PathBuf]) -> Result<Workspace, Failure> {
        let mut roots = vec![Root::open(cwd)?];
        let mut named = Vec::new();
        for path in extra {
            // Without `..`, which would lead elsewhere behind a link.
            let path = normalise(&roots[0].path.join(path));
            let root = Root::open(&path)?;
            named.push((path, root.path.clone()));
            if roots.iter().all(|known| known.path != root.path) {
                roots.push(root);
            }
        }
        if !named.is_empty() {
            named.push((cwd.to_owned(), roots[0].path.clone()));
        }
        for (path, real) in &named {
            refuse_led_out(path, real, &roots)?;
        }
        let paths = roots.iter().map(|root| root.path.clone()).collect();
        let links = SecretLinks::new(paths, SecretFiles::default(), ReadableSecrets::default());
        let git = Arc::new(Mutex::new(GitReferences::new(None, None)));
        Ok(Workspace { roots: roots.into(), links: Arc::new(links), git })
    }

    /// Returns this workspace with a detector that refuses the files in `registry`, the secrets
    /// that scans for commands have found, under other names. Files with the name of a secret are
    /// left to the policy, except those that may be read by `readable` only under another name.
    #[must_use]
    pub fn with_secret_files(
        mut self,
        registry: SecretFiles,
        readable: ReadableSecrets,
    ) -> Workspace {
        let paths = self.roots().map(Path::to_owned).collect();
        self.links = Arc::new(SecretLinks::new(paths, registry, readable));
        self
    }

    /// Returns this workspace with a finder that knows the user's own settings of git: files to which
    /// they refer control git.
    #[must_use]
    pub fn with_git_settings(mut self, git: GitReferences) -> Workspace {
        self.git = Arc::new(Mutex::new(git));
        self
    }

    /// Resolved path of the working directory.
    pub fn cwd(&self) -> &Path {
        &self.roots[0].path
    }

    /// Resolved paths of all roots; the working directory is the first.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|root| root.path.as_path())
    }

    /// Resolves `path`, a path from the model. The file need not exist.
    ///
    /// Relative paths start at the working directory; all paths must lie in a root. Symbolic links
    /// are followed as long as they stay in a root. `@name` means `name` if only the latter exists.
    /// A quoted name, as lists show it, means the unquoted name if that exists. An existing path
    /// that ends with `/` must be a folder.
    pub fn locate(&self, path: &str) -> Result<Located, ToolError> {
        if path.len() <= syntax::PATH_BYTES_MAX
            && let Some(named) = names::read_back(path)
            && let Ok(place) = self.resolve(&named)
            && place.entry.is_some()
        {
            return Ok(place);
        }
        syntax::check(path)?;
        let found = self.resolve(Path::new(path));
        if let Some(bare) = path.strip_prefix('@').filter(|bare| !bare.is_empty())
            && found.as_ref().map_or(true, |place| place.entry.is_none())
            && let Ok(place) = self.resolve(Path::new(bare))
            && place.entry.is_some()
        {
            return Ok(place);
        }
        let place = found?;
        if place.entry.is_none() && path.contains('\\') {
            return Err(syntax::windows(path));
        }
        Ok(place)
    }

    fn resolve(&self, path: &Path) -> Result<Located, ToolError> {
        let shown = || names::shown(path);
        let absolute = normalise(&self.cwd().join(path));
        let (root, beneath) =
            walk::root_of(&self.roots, &absolute).ok_or_else(|| self.outside(&shown()))?;
        let place = walk::resolve(&self.roots, root, beneath).map_err(|error| match error {
            walk::WalkError::Outside => self.outside(&shown()),
            walk::WalkError::System(errno) => refused(&shown(), errno),
        })?;
        let folder_named = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if folder_named && place.entry.is_some_and(|entry| entry.kind != FileKind::Folder) {
            return Err(ToolError::new("ARG002", format!("{} is not a folder", shown())));
        }
        let root = &self.roots[place.root].path;
        let is_root = place.relative.as_os_str().is_empty();
        let named = place.relative.to_string_lossy();
        let way = |(root, below): &(usize, PathBuf)| FilePath {
            path: self.roots[*root].path.join(below).display().to_string(),
            relative: below.display().to_string(),
        };
        Ok(Located {
            roots: Arc::clone(&self.roots),
            links: Arc::clone(&self.links),
            git: Arc::clone(&self.git),
            root: place.root,
            absolute: if is_root { root.clone() } else { root.join(&place.relative) },
            has_secret_link: place.names_secret && !is_secret(&named),
            ways: place.ways.iter().map(way).collect(),
            relative: if is_root { ".".to_owned() } else { named.into_owned() },
            beneath: place.relative,
            entry: place.entry,
            folder_named,
        })
    }

    /// Descriptor of the root with this index, for resolving names below it.
    pub fn root_directory(&self, root: usize) -> Option<&OwnedFd> {
        self.roots.get(root).map(|root| &root.directory)
    }

    /// True if the file `opened` is, or may be, a secret under another name: a hard link of one, or
    /// one that was renamed after a scan had found it. May scan the workspace.
    pub fn may_be_renamed_secret(&self, opened: &OwnedFd) -> bool {
        let status = FileStatus::of(opened);
        status.map_or(true, |status| self.links.judge(&status, opened) != Linked::Open)
    }

    /// Returns the detector of secret files with other names in this workspace.
    pub(crate) fn secret_links(&self) -> Arc<SecretLinks> {
        Arc::clone(&self.links)
    }

    fn outside(&self, path: &str) -> ToolError {
        let roots: Vec<String> = self.roots().map(|root| root.display().to_string()).collect();
        let (path, roots) = (printable(path), printable(&roots.join(", ")));
        let mut what = format!(
            "{path} is outside the workspace; reachable is what lies below {roots}; the user can \
             add a folder with --add-dir"
        );
        if path.starts_with("/tmp/") {
            what.push_str("; commands have a /tmp of their own: use bash, such as `cat`");
        }
        ToolError::new("ARG003", what)
    }
}

impl Root {
    fn open(path: &Path) -> Result<Root, Failure> {
        let failure = |why: String| {
            let what = "cannot use a folder as workspace";
            Failure::new(ErrorCode::WorkspaceRootUnusable, Exit::Configuration, what)
                .at(path.display().to_string())
                .because(why)
                .fix("name a folder that exists and that you may read")
        };
        let directory =
            open(path, FOLDER, Mode::empty()).map_err(|errno| failure(errno.desc().to_owned()))?;
        let real = entry::real_path(&directory)
            .or_else(|_| std::fs::canonicalize(path))
            .map_err(|error| failure(error.to_string()))?;
        if real.to_str().is_none() {
            return Err(failure("its path is not UTF-8".to_owned()));
        }
        Ok(Root { directory, path: real })
    }
}

/// Maximum number of links that are followed on the way to a root.
const LINKS_MAX: usize = 40;

/// Real paths of the folders in which the system looks up the names on the way to `path`, also behind
/// links. `None` after [`LINKS_MAX`] links, or if one of the names cannot be looked up.
fn folders_on_the_way(path: &Path) -> Option<Vec<PathBuf>> {
    let mut folders = Vec::new();
    let mut links_left = LINKS_MAX;
    let mut rest: Vec<OsString> = path.iter().rev().map(ToOwned::to_owned).collect();
    let mut here = PathBuf::from("/");
    while let Some(name) = rest.pop() {
        match Path::new(&name).components().next()? {
            Component::RootDir | Component::Prefix(_) => here = PathBuf::from("/"),
            Component::CurDir => {}
            Component::ParentDir => drop(here.pop()),
            Component::Normal(name) => {
                folders.push(here.clone());
                let next = here.join(name);
                if next.symlink_metadata().ok()?.is_symlink() {
                    links_left = links_left.checked_sub(1)?;
                    let target = std::fs::read_link(&next).ok()?;
                    rest.extend(target.iter().rev().map(ToOwned::to_owned));
                } else {
                    here = next;
                }
            }
        }
    }
    Some(folders)
}

/// Fails if a name on the way to `path`, whose real path is `real`, is looked up in one of `roots`, and
/// `real` lies in none of those.
fn refuse_led_out(path: &Path, real: &Path, roots: &[Root]) -> Result<(), Failure> {
    let what = "a folder of the workspace leads out of another one";
    let failure = |why: String| {
        Failure::new(ErrorCode::WorkspaceRootUnusable, Exit::Configuration, what)
            .at(path.display().to_string())
            .because(why)
            .fix(format!("remove the link, or name {} itself", real.display()))
    };
    let Some(folders) = folders_on_the_way(path) else {
        return Err(failure("the links on the way to it cannot be followed".to_owned()));
    };
    let recorded = posse_sandbox::recorded_workspaces();
    let known = || roots.iter().map(|root| &root.path).chain(&recorded);
    for folder in folders {
        let mut around = known().filter(|root| folder.starts_with(root)).peekable();
        let Some(outer) = around.peek().map(|root| root.display().to_string()) else {
            continue;
        };
        if !around.any(|root| real.starts_with(root)) {
            return Err(failure(format!(
                "it leads through the workspace folder {outer} to {}; a command may have made the \
                 link",
                real.display()
            )));
        }
    }
    Ok(())
}

/// A resolved path below a root. The file need not exist.
#[derive(Debug, Clone)]
pub struct Located {
    roots: Arc<[Root]>,
    links: Arc<SecretLinks>,
    git: Arc<Mutex<GitReferences>>,
    root: usize,
    /// Path relative to the root, for opening; empty for the root itself.
    beneath: PathBuf,
    /// Path relative to the root as text, for the policy; `.` for the root itself.
    relative: String,
    absolute: PathBuf,
    entry: Option<FileStatus>,
    folder_named: bool,
    /// True if a link with the name of a secret is on the way to the path, which itself has none.
    has_secret_link: bool,
    /// Paths by which the caller names this path, if links lead from them to it.
    ways: Vec<FilePath>,
}

impl Located {
    /// Path of the root that contains this path.
    pub fn root(&self) -> &Path {
        &self.roots[self.root].path
    }

    /// Path relative to the root, separated by `/`; `.` for the root itself. Invalid UTF-8 is
    /// replaced.
    pub fn relative(&self) -> &str {
        &self.relative
    }

    /// Path relative to the root; empty for the root itself.
    pub(crate) fn below_root(&self) -> &Path {
        &self.beneath
    }

    /// Absolute path, without links.
    pub fn absolute(&self) -> &Path {
        &self.absolute
    }

    /// Metadata of the file when the path was resolved; `None` if it did not exist.
    pub fn entry(&self) -> Option<&FileStatus> {
        self.entry.as_ref()
    }

    /// Name of the path for the model, quoted if it is ambiguous: relative for a path below the
    /// working directory, `.` for the working directory itself, otherwise absolute.
    pub fn shown(&self) -> String {
        match self.root {
            0 if self.beneath.as_os_str().is_empty() => ".".to_owned(),
            0 => names::shown(&self.beneath),
            _ => names::shown(&self.absolute),
        }
    }

    /// Name for the model of `path`, which is relative to this folder; of an empty `path`, that of
    /// the folder.
    pub(crate) fn shown_below(&self, path: &Path) -> String {
        match self.root {
            _ if path.as_os_str().is_empty() => self.shown(),
            0 => names::shown(&self.beneath.join(path)),
            _ => names::shown(&self.absolute.join(path)),
        }
    }

    /// Creates the operation of reading this path, for the policy.
    pub fn read(&self) -> Operation {
        let (path, relative, root) = self.names();
        Operation::Read { path, relative, root, is_committed: false, ways: self.ways.clone() }
    }

    /// As [`Located::read`], for `file`, which was opened at this path.
    pub(crate) fn read_open(&self, file: impl AsFd, committed: &CommittedSecrets) -> Operation {
        let (path, relative, root) = self.names();
        let is_named = is_secret(&path) || is_secret(&relative);
        let is_committed = is_named && committed.contain(&self.absolute, file.as_fd());
        Operation::Read { path, relative, root, is_committed, ways: self.ways.clone() }
    }

    /// True if the path is that of a secret.
    pub(crate) fn has_secret_name(&self) -> bool {
        is_secret(&self.relative)
    }

    /// Creates the operation of writing this path, for the policy.
    pub fn write(&self) -> Operation {
        self.write_with(&RepositoryParts::default())
    }

    /// Creates the operation of writing this path in a call that also writes other paths below
    /// the same root, of which `written` are parts of repositories. If this path controls git, the operation names the
    /// repository: the one that the files on disk and the written ones form together, or one whose
    /// settings or hooks refer to the path.
    pub fn write_with(&self, written: &RepositoryParts) -> Operation {
        let (path, relative, root) = self.names();
        let repository =
            written.controlled(self.root(), &self.beneath).or_else(|| self.repository_that_obeys());
        Operation::Write { path, relative, root, repository, ways: self.ways.clone() }
    }

    /// Returns the repository whose settings or hooks refer to this path, as for
    /// [`Operation::Write`].
    fn repository_that_obeys(&self) -> Option<String> {
        let roots: Vec<&Path> = self.roots.iter().map(|root| root.path.as_path()).collect();
        let mut git = self.git.lock().unwrap_or_else(PoisonError::into_inner);
        let found = git.repository_that_obeys(&self.absolute, &roots)?;
        let below = found.strip_prefix(self.root()).unwrap_or(&found).display().to_string();
        Some(if below.is_empty() { ".".to_owned() } else { below })
    }

    /// Creates the operation of listing the parent folder, for the policy. `None` for `/`. Must not
    /// be called for a root: its parent is outside the workspace.
    pub fn read_parent(&self) -> Option<Operation> {
        let relative = Path::new(&self.relative).parent()?.to_str()?;
        Some(Operation::Read {
            path: self.absolute.parent()?.display().to_string(),
            relative: if relative.is_empty() { "." } else { relative }.to_owned(),
            root: self.root().display().to_string(),
            is_committed: false,
            ways: Vec::new(),
        })
    }

    /// True if deny rules cover `below`, a path relative to this folder, by its own name or by one
    /// through the links by which the caller names this folder.
    pub(crate) fn denies(&self, denied: &PathGlobs, below: &Path) -> bool {
        !denied.is_empty()
            && (denied.covers(&self.absolute.join(below), &self.beneath.join(below))
                || denies_way(denied, &self.ways, below))
    }

    /// Paths by which the caller names this path, if links lead from them to it.
    pub(crate) fn ways(&self) -> &[FilePath] {
        &self.ways
    }

    /// Metadata of the file when the path was resolved, or an error if it did not exist.
    pub fn existing(&self) -> Result<&FileStatus, ToolError> {
        self.entry.as_ref().ok_or_else(|| refused(&self.shown(), Errno::ENOENT))
    }

    /// Opens the located regular file. Refuses folders, devices, pipes, sockets, secret files with
    /// other names, files with several names if a limit keeps them unknown, and a file that has
    /// replaced the located one.
    pub fn open_file(&self, flags: OFlag) -> Result<OwnedFd, ToolError> {
        let entry = self.existing()?;
        entry.require(FileKind::File, &self.shown())?;
        // A pipe may have replaced the file: opening it must not wait for a writer.
        let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        self.refuse_secret_link()?;
        let is_open = !is_secret(&self.relative);
        let file = if is_open && self.links.has_secret_folders() {
            self.open_outside_secret_folders(flags)?
        } else {
            self.open(flags)?
        };
        self.same(&file)?;
        if is_open {
            self.refuse_linked_secret(entry, &file)?;
        } else if self.links.is_withheld(&self.absolute, &file) {
            let message =
                format!("{} was hidden as a secret before it was moved there", self.shown());
            return Err(ToolError::new("ARG003", message));
        }
        Ok(file)
    }

    /// Fails if a link with the name of a secret leads to the path. Paths that are secret by their
    /// own names are judged by the policy.
    fn refuse_secret_link(&self) -> Result<(), ToolError> {
        if !self.has_secret_link || self.links.is_readable(&self.absolute) {
            return Ok(());
        }
        let shown = self.shown();
        let message =
            format!("{shown} holds secrets: a link with the name of a secret leads to it");
        Err(ToolError::new("ARG003", message))
    }

    /// Opens the file. Fails if it is below a renamed secret folder.
    fn open_outside_secret_folders(&self, flags: OFlag) -> Result<OwnedFd, ToolError> {
        let root = &self.roots[self.root].directory;
        let above = self.beneath.parent().unwrap_or(Path::new(""));
        let name = Path::new(self.beneath.file_name().unwrap_or_default());
        let folder = open_beneath(root, above, FOLDER);
        let folder = folder.map_err(|errno| refused(&self.shown(), errno))?;
        let file = open_beneath(&folder, name, flags);
        let file = file.map_err(|errno| refused(&self.shown(), errno))?;
        // The folder is examined afterwards: the file is in it, wherever it is moved meanwhile.
        if self.links.is_in_secret_folder(&folder) {
            let message = format!("{} is in a secret folder that was renamed", self.shown());
            return Err(ToolError::new("ARG003", message));
        }
        Ok(file)
    }

    fn refuse_linked_secret(&self, entry: &FileStatus, file: &OwnedFd) -> Result<(), ToolError> {
        let why = match self.links.judge(entry, file) {
            Linked::Open => return Ok(()),
            Linked::Secret => "is a secret file under another name, or a file of posse",
            Linked::Unknown => {
                "has several names, and there are too many files to say whether one of them is \
                 that of a secret; a copy of it can be read"
            }
        };
        Err(ToolError::new("ARG003", format!("{} {why}", self.shown())))
    }

    /// Opens the located folder, for listing and for resolving names in it. Fails if the path is
    /// not a folder, a link with the name of a secret leads to it, or another folder has replaced
    /// the located one.
    pub fn open_dir(&self) -> Result<OwnedFd, ToolError> {
        self.existing()?.require(FileKind::Folder, &self.shown())?;
        self.refuse_secret_link()?;
        let folder = self.open(OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        self.same(&folder)?;
        Ok(folder)
    }

    /// Opens the parent folder of this path and returns it with the last name of the path. If
    /// `create` is true, missing folders are created; otherwise a missing folder is the error
    /// `FIL001`. Fails for a root, for a path with a trailing `/`, and for one that is not UTF-8.
    pub fn open_parent(&self, create: bool) -> Result<(OwnedFd, OsString), ToolError> {
        let path = self.beneath.as_path();
        let Some(Component::Normal(name)) = path.components().next_back() else {
            return Err(ToolError::new("ARG002", "the path is a workspace root, not a file"));
        };
        if path.to_str().is_none() {
            let message = format!("{}: its name is not UTF-8; change it with bash", self.shown());
            return Err(ToolError::new("ARG002", message));
        }
        if self.folder_named {
            let message = format!("{}/ names a folder, not a file", self.shown());
            return Err(ToolError::new("ARG002", message));
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        let root = &self.roots[self.root].directory;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let opened = match open_beneath(root, parent, flags) {
            Err(Errno::ENOENT) if create => {
                make_folders(root, parent).and_then(|()| open_beneath(root, parent, flags))
            }
            opened => opened,
        };
        let parent = opened.map_err(|errno| refused(&self.shown(), errno))?;
        Ok((parent, name.to_owned()))
    }

    fn open(&self, flags: OFlag) -> Result<OwnedFd, ToolError> {
        open_beneath(&self.roots[self.root].directory, &self.beneath, flags)
            .map_err(|errno| refused(&self.shown(), errno))
    }

    fn same(&self, opened: &OwnedFd) -> Result<(), ToolError> {
        let there = self.status(opened)?;
        if self.entry.is_none_or(|entry| entry.identity() != there.identity()) {
            let message = format!("{} was replaced while it was opened; try again", self.shown());
            return Err(ToolError::new("EDT004", message));
        }
        Ok(())
    }

    /// Reads the metadata of the open file `opened`. An error names this path.
    pub(crate) fn status(&self, opened: impl AsFd) -> Result<FileStatus, ToolError> {
        FileStatus::of(opened).map_err(|errno| refused(&self.shown(), errno))
    }

    fn names(&self) -> (String, String, String) {
        (
            self.absolute.display().to_string(),
            self.relative.clone(),
            self.root().display().to_string(),
        )
    }
}

/// True if deny rules cover the path `below` in a folder, by one of the `ways` to the folder.
pub(crate) fn denies_way(denied: &PathGlobs, ways: &[FilePath], below: &Path) -> bool {
    ways.iter().any(|way| {
        denied.covers(&Path::new(&way.path).join(below), &Path::new(&way.relative).join(below))
    })
}

/// Creates the folder `path` and its missing parents beneath `root`.
fn make_folders(root: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let mut above = root.try_clone().map_err(|_| Errno::EMFILE)?;
    for name in path.components() {
        let name = Path::new(name.as_os_str());
        match mkdirat(&above, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
        above = open_beneath(&above, name, FOLDER)?;
    }
    Ok(())
}

/// Converts a system error about `path` to an error for the model.
pub(crate) fn refused(path: &str, errno: Errno) -> ToolError {
    let path = printable(path);
    match errno {
        Errno::ENOENT => ToolError::new("FIL001", format!("{path} does not exist")),
        Errno::ENOTDIR => {
            ToolError::new("FIL001", format!("{path}: a folder on the way is not a folder"))
        }
        Errno::ENAMETOOLONG => ToolError::new("ARG002", "the path or a name in it is too long"),
        Errno::ELOOP => ToolError::new("ARG003", format!("{path}: too many links, or a new one")),
        errno => ToolError::new("FIL002", format!("{path}: {}", errno.desc())),
    }
}

#[cfg(test)]
mod tests;
