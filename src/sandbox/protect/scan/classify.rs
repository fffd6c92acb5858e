//! Sorts the entries of a folder: protected names, secrets, and the folders to scan.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use posse_base::protected::{self, Class};
use posse_base::secrets;

use crate::protect::git_folder::{self, ForeignNames, GitPart};
use crate::protect::known_secrets::KnownSecrets;
use crate::protect::place::{self, Listed, PlaceKind};
use crate::protect::scan::ScannedFolder;
use crate::protect::sort::{ProtectedItem, Sort};

/// Role of a folder: determines the names in it that are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderRole {
    /// Ordinary folder.
    Plain,
    /// Folder of third-party or generated files, such as `node_modules` or `target`, or a folder
    /// below one (see `is_vendored` in `src/base/protected.rs`).
    Vendored,
    /// Folder below a `.git`, and the names that are foreign in it, or in a repository that it is.
    Inside(GitPart, ForeignNames),
    /// Folder with a meaning for git in a repository that is not below a `.git`, such as `info`. Like
    /// an ordinary folder otherwise.
    Bare(GitPart, ForeignNames),
    /// Folder that is protected as a whole. It is scanned for secrets only.
    Held,
    /// Folder of a repository that is judged as a whole, but may stay. It is scanned for secrets only,
    /// unless a link leads there.
    HeldByGit,
    /// `.git`, in any notation that a file system treats as equal, such as `GIT~1`.
    Git,
}

impl FolderRole {
    /// True if the folder is judged as a whole, with all that is in it.
    fn is_held(self) -> bool {
        matches!(self, FolderRole::Held | FolderRole::HeldByGit)
    }
}

/// Folders in which protected names count, seen from one folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameScope {
    /// They do not count, except for repositories and, in folders of package managers, `.posse` and
    /// `.agents`.
    Nowhere,
    /// They count in the folder, but not in the folders below it.
    Here,
    /// They count in the folder and in all folders below it.
    Below,
}

/// Names by which git recognises a repository, folded, and true if the name may be a folder.
pub(in crate::protect) const REPOSITORY_PARTS: [(&[u8], bool); 4] =
    [(b"head", false), (b"commondir", false), (b"refs", true), (b"objects", true)];

/// Sorts the entries `listed` of the folder `path` in `root` into the lists of `folder`: protected names,
/// secrets (by name, or in `known`), links, folders to scan, and inodes of what is not secret. An
/// entry may be in several. Also sets `is_repository`. `role` and `names` must be set before.
pub(super) fn classify_content(
    root: &Path,
    path: &Arc<Path>,
    opened: &OwnedFd,
    listed: Vec<Listed>,
    known: &KnownSecrets,
    folder: &mut ScannedFolder,
) {
    let is_root = path.as_os_str().is_empty();
    let above = if is_root { root.file_name() } else { path.file_name() }.unwrap_or_default();
    // In a root with the name of a protected folder, everything is protected.
    let class_of_root = if is_root { protected::class_of_folder(root) } else { None };
    let is_repository = folder.role == FolderRole::Git || looks_like_repository(&listed);
    folder.is_repository = is_repository;
    let foreign = match folder.role {
        FolderRole::Git => ForeignNames::AllOthers,
        FolderRole::Inside(_, foreign) => foreign,
        _ if is_repository && is_whole_repository(&listed) => ForeignNames::OtherFiles,
        _ => ForeignNames::Dangerous,
    };
    let repository = is_repository.then_some(foreign);
    let mut named = String::new();
    let mut inodes = Vec::with_capacity(listed.len());
    if is_repository {
        folder.items.push(ProtectedItem { path: Arc::clone(path), sort: Sort::Repository });
    }
    for Listed { name, kind, inode } in listed {
        let child: Arc<Path> = path.join(&name).into();
        let scope = (folder.role, folder.names);
        let sort =
            classify_entry(scope, repository, above, &name, kind).or(class_of_root.map(Sort::Name));
        if let Some(sort) = sort.filter(|sort| *sort != Sort::Repository) {
            folder.items.push(ProtectedItem { path: Arc::clone(&child), sort });
        }
        let is_ordinary = folder.names == NameScope::Below;
        if is_ordinary && kind == PlaceKind::Link && !protected::is_vendored(name.as_bytes()) {
            let text = place::link_target(opened, Path::new(&name)).unwrap_or_default();
            folder.links.push((Arc::clone(&child), text.into()));
        }
        // A name may be both, such as `.npmrc`: then it is hidden and protected. So may any file in a
        // folder of the user that looks like a repository.
        let visible = is_ordinary || folder.role.is_held();
        if visible && secret(above, is_root, &name, &mut named)
            || known.contains(opened, Path::new(&name), inode)
        {
            // A folder is still scanned for protected names: a command may have made it, or its name.
            folder.secrets.push(Arc::clone(&child));
        } else if kind != PlaceKind::Link {
            inodes.push(inode);
        }
        if kind == PlaceKind::Folder
            && let Some((role, names)) = role_below(scope, repository, &name, sort)
        {
            folder.below.push((child, role, names));
        }
    }
    folder.inodes = inodes.into();
}

/// True if git would accept a folder with these entries as a repository. It reads `HEAD` and
/// `commondir`, so these are no folders (`is_git_directory` in git's `setup.c`).
fn looks_like_repository(listed: &[Listed]) -> bool {
    let mut seen: HashSet<&[u8]> = HashSet::new();
    for entry in listed {
        let name = entry.name.as_bytes();
        if name.len() > 12 {
            continue;
        }
        let folded = protected::fold(name);
        let mut known = REPOSITORY_PARTS.into_iter();
        if let Some((known, may_be_folder)) = known.find(|(known, _)| *known == &*folded)
            && (may_be_folder || entry.kind != PlaceKind::Folder)
        {
            seen.insert(known);
        }
    }
    let has = |name: &[u8]| seen.contains(name);
    protected::is_repository(|name| has(name.as_bytes()))
}

/// True if a folder with these entries has what git creates in each repository, in git's spelling,
/// and no `.git`: then it is no folder with other files that only looks like a repository.
fn is_whole_repository(listed: &[Listed]) -> bool {
    let has =
        |name: &str, kind| listed.iter().any(|entry| entry.name == name && entry.kind == kind);
    let has_dot_git = listed.iter().any(|entry| protected::is_dot_git(entry.name.as_bytes()));
    has("HEAD", PlaceKind::File)
        && has("config", PlaceKind::File)
        && has("objects", PlaceKind::Folder)
        && has("refs", PlaceKind::Folder)
        && !has_dot_git
}

/// Returns the kind of the entry `name` of a folder. `repository`: the names that are foreign in the
/// folder, if it is a repository.
fn classify_entry(
    (role, names): (FolderRole, NameScope),
    repository: Option<ForeignNames>,
    above: &OsStr,
    name: &OsStr,
    kind: PlaceKind,
) -> Option<Sort> {
    let folded = protected::fold(name.as_bytes());
    if repository.is_some()
        && let Some(sort) = git_folder::settings_of_repository(&folded, kind)
    {
        return Some(sort);
    }
    let part = match role {
        FolderRole::Inside(part, foreign) | FolderRole::Bare(part, foreign) => {
            Some((part, foreign))
        }
        _ => None,
    };
    let is_of_git = repository.is_some()
        || matches!(role, FolderRole::Git | FolderRole::Inside(..))
        || part.is_some_and(|(part, _)| part != GitPart::Refs);
    let is_part = |wanted| part.is_some_and(|(part, _)| part == wanted);
    if is_part(GitPart::Worktree) && &*folded == b"gitdir" {
        return Some(Sort::WorktreePath);
    }
    // `HEAD` may be a link, in old repositories.
    if is_of_git && kind == PlaceKind::Link && &*folded != b"head" {
        return Some(Sort::InnerLink);
    }
    if (is_part(GitPart::Info) || is_part(GitPart::Worktree)) && &*folded == b"attributes" {
        return Some(Sort::Attributes);
    }
    if is_part(GitPart::Info) && &*folded == b"exclude" {
        return Some(Sort::Exclude);
    }
    if role.is_held() {
        return None;
    }
    let top = repository.map(|foreign| (GitPart::Top, foreign));
    let mut places = [part, top].into_iter().flatten();
    let of_git = places.find_map(|(part, foreign)| {
        git_folder::sort_of(part, foreign, name.as_bytes(), &folded, kind)
    });
    if of_git.is_some_and(|sort| sort != Sort::Foreign) {
        return of_git;
    }
    named_sort((role, names), above, name, &folded, kind).or(of_git)
}

/// Returns the kind of a name that programs other than git read, or of a repository.
fn named_sort(
    (role, names): (FolderRole, NameScope),
    above: &OsStr,
    name: &OsStr,
    folded: &[u8],
    kind: PlaceKind,
) -> Option<Sort> {
    let mut class = protected::class_of(above.as_bytes(), name.as_bytes());
    if kind == PlaceKind::Link {
        // A name in the folder that it leads to would become a protected one.
        class = class.or_else(|| protected::names_in(folded).next().map(|(_, class)| class));
    }
    if kind != PlaceKind::Folder && folded == b".venv" {
        // A file contains the name of the environment that some shells activate.
        class = Some(Class::Start);
    }
    let Some(class) = class else {
        let is_read = names == NameScope::Below && kind != PlaceKind::Folder;
        return (is_read && protected::is_environment_file(folded)).then_some(Sort::Environment);
    };
    let is_dot_git = protected::is_dot_git(name.as_bytes());
    match (class, role) {
        (Class::Git, _) if is_dot_git && kind == PlaceKind::Folder => Some(Sort::Repository),
        (Class::Git, _) if is_dot_git => Some(Sort::Pointer),
        (Class::Authority, FolderRole::Vendored) if is_own(folded) => Some(Sort::Name(class)),
        _ if names != NameScope::Nowhere => Some(Sort::Name(class)),
        _ => None,
    }
}

/// True for `.posse` and `.agents`, which are protected even in folders of package managers.
fn is_own(folded: &[u8]) -> bool {
    matches!(folded, b".posse" | b".agents")
}

/// Returns the role of the folder `name` in a parent of this `role`, and the scope of protected
/// names in it. `repository`: as for [`classify_entry`]; `sort`: kind of `name` if it is protected.
/// `None`: it is not scanned.
fn role_below(
    (role, names): (FolderRole, NameScope),
    repository: Option<ForeignNames>,
    name: &OsStr,
    sort: Option<Sort>,
) -> Option<(FolderRole, NameScope)> {
    let folded = protected::fold(name.as_bytes());
    match sort {
        Some(Sort::Repository) => return Some((FolderRole::Git, NameScope::Here)),
        Some(Sort::Name(_)) => return Some((FolderRole::Held, NameScope::Nowhere)),
        // In a new repository it stays. Like all of `refs`, it can contain any names.
        Some(Sort::Volatile) if *folded == *b"replace" => {}
        Some(Sort::Foreign | Sort::Volatile) => {
            return Some((FolderRole::HeldByGit, NameScope::Nowhere));
        }
        Some(Sort::Interrupted) | None => {}
        // It may be a folder of the user that only looks like one of git: scanned for secrets.
        Some(_) if !matches!(role, FolderRole::Git | FolderRole::Inside(..)) => {
            return Some((FolderRole::HeldByGit, NameScope::Nowhere));
        }
        Some(_) => return None,
    }
    let names = match names {
        // The first part of a protected name of two parts, such as `.cargo/config.toml`.
        NameScope::Here if protected::names_in(&folded).next().is_some() => NameScope::Here,
        NameScope::Here | NameScope::Nowhere => NameScope::Nowhere,
        NameScope::Below => NameScope::Below,
    };
    match (role, repository) {
        (FolderRole::Inside(GitPart::Worktrees, foreign), _) => {
            return Some((FolderRole::Inside(GitPart::Worktree, foreign), names));
        }
        (FolderRole::Bare(GitPart::Worktrees, foreign), _) => {
            return Some((FolderRole::Bare(GitPart::Worktree, foreign), names));
        }
        (FolderRole::Git | FolderRole::Inside(..), Some(foreign)) => {
            let part = git_folder::part_of(&folded);
            let is_judged = part != GitPart::Open || &*folded == b"modules";
            let foreign = if is_judged { foreign } else { ForeignNames::Dangerous };
            return Some((FolderRole::Inside(part, foreign), names));
        }
        (FolderRole::Inside(GitPart::Open, foreign), None) => {
            return Some((FolderRole::Inside(GitPart::Open, foreign), names));
        }
        (FolderRole::Git | FolderRole::Inside(..), None) => {
            return Some((FolderRole::Inside(GitPart::Open, ForeignNames::Dangerous), names));
        }
        (_, Some(foreign)) if git_folder::part_of(&folded) != GitPart::Open => {
            return Some((FolderRole::Bare(git_folder::part_of(&folded), foreign), names));
        }
        _ => {}
    }
    let role = if matches!(role, FolderRole::Bare(..)) { FolderRole::Plain } else { role };
    match role {
        FolderRole::Plain if protected::is_vendored(name.as_bytes()) => {
            Some((FolderRole::Vendored, NameScope::Nowhere))
        }
        same => Some((same, names)),
    }
}

/// True if `name` is named like a secret in the folder `above`. False if the name of `above` is
/// itself that of a secret, which covers its content, unless it is a root (`is_root`), which is never
/// covered. Of names that are not UTF-8, the parts that are count. A pipe counts, too: programs that
/// keep secrets offer them as pipes. `named` is a scratch buffer.
fn secret(above: &OsStr, is_root: bool, name: &OsStr, named: &mut String) -> bool {
    let (above, name) = (above.to_string_lossy(), name.to_string_lossy());
    named.clear();
    named.push_str(&above);
    named.push('/');
    // A folder with the name of its parent would match its content twice.
    named.push_str(&name);
    // Below a root with the name of a secret folder, every path would count.
    let own = if is_root && secrets::is_secret(&above) { &*name } else { named.as_str() };
    let below_secret = !is_root && secrets::is_secret(&above);
    !below_secret && secrets::is_secret(own)
}
