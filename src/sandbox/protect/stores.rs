//! Secrets that a command must not read: secret files found by the scan, credential stores in the
//! home folder, and posse's own folders.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::openat;
use nix::sys::stat::Mode;
use posse_base::secrets;

use crate::protect::committed::root_around;
use crate::protect::known_secrets::{FoundSecrets, nearest_accessible};
use crate::protect::links;
use crate::protect::place::{self, Identity, PlaceKind, Root, Stat};
use crate::protect::{GuardState, HiddenPaths, Protection, Watched};

/// Maximum size in bytes of a `.pem` file that is searched for a private key. A larger file counts
/// as a secret.
const KEY_FILE_BYTES_MAX: u64 = 256 << 10;

/// Folders with programs and devices of the system. Without them commands do not run, and they contain
/// no secrets.
const SYSTEM_FOLDERS: [&str; 8] =
    ["/bin", "/dev", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"];

/// Maximum length of a hidden path in bytes. Covers are mounted below another folder, and the kernel
/// accepts 4095 bytes.
const HIDDEN_BYTES_MAX: usize = 3 << 10;

/// Maximum number of entries and of levels of a secret folder in which links are looked for. Folders
/// with keys are small; those of browsers are not, and contain none.
const LOOKED_AT_MAX: usize = 200;
const LEVELS_MAX: usize = 3;

/// Cache of examined `.pem` files: time of the last change, and true if the file is public.
#[derive(Debug, Default)]
pub(super) struct Keys(HashMap<Identity, ((i64, i64), bool)>);

impl Keys {
    /// Identity of the file at `path` if it is a `.pem` file with a certificate and without a private
    /// key. `None` in doubt.
    fn public_file(&mut self, root: &Root, path: &Path) -> Option<Identity> {
        path.extension().filter(|ending| ending.eq_ignore_ascii_case("pem"))?;
        let (folder, name) = root.open_parent(path).ok()?;
        let is_single = |stat: &Stat| stat.kind == PlaceKind::File && stat.links == 1;
        let stat = Stat::at(&folder, name).ok().filter(is_single)?;
        if let Some((changed, is_public)) = self.0.get(&stat.identity)
            && *changed == stat.changed
        {
            return is_public.then_some(stat.identity);
        }
        // Another file may be there by now.
        let file = File::from(openat(&folder, name, place::FILE, Mode::empty()).ok()?);
        let stat = Stat::of_open(&file).ok().filter(is_single)?;
        let mut bytes = Vec::new();
        let length = file.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        let has = |needle: &[u8]| memchr::memmem::find(&bytes, needle).is_some();
        let is_public = length as u64 <= KEY_FILE_BYTES_MAX
            && has(b"BEGIN CERTIFICATE")
            && !has(b"PRIVATE KEY");
        self.0.insert(stat.identity, (stat.changed, is_public));
        is_public.then_some(stat.identity)
    }
}

/// Secrets that were found.
#[derive(Default)]
struct FoundPaths {
    hidden: BTreeSet<PathBuf>,
    identities: BTreeMap<PathBuf, Identity>,
    seen: HashSet<Identity>,
}

impl FoundPaths {
    /// Adds a path to hide. `identity`: that of the file or folder, if it is known.
    fn add(&mut self, path: PathBuf, identity: Option<Identity>) {
        self.seen.extend(identity);
        self.identities.extend(identity.map(|identity| (path.clone(), identity)));
        self.hidden.insert(path);
    }
}

impl Protection {
    /// Returns and sorts every existing path to hide: secrets among `found`, credential stores, and posse's
    /// own folders; and folders that cannot be listed, which may contain secrets. Public
    /// certificates, files that are as in their commit, and secrets that the user lets commands read, are left
    /// out. The files and folders among `found` are registered by identity; if the scan was
    /// complete, registered ones that it did not find are searched for.
    pub(super) fn hidden(
        &self,
        inner: &mut GuardState,
        found: &[(usize, Arc<Path>)],
        mut is_complete: bool,
    ) -> HiddenPaths {
        let mut secrets = FoundPaths::default();
        let mut linked = Vec::new();
        let stores = self.stores();
        let registered = self.register_stores(&stores, inner);
        for (path, stat) in &registered {
            secrets.add(path.clone(), Some(stat.identity));
        }
        linked.extend(registered.into_values().filter(has_other_names));
        let mut folders = stores.clone();
        folders.retain(|store| !self.own.iter().any(|own| store.starts_with(own)));
        let may_move = inner.running > 1 || inner.beside.others;
        // Renamed secret folders are scanned, but their content needs no cover of its own.
        let known: HashSet<(usize, &Path)> =
            found.iter().map(|(at, path)| (*at, &**path)).collect();
        // A root in a hidden folder stays visible.
        let roots_below: HashSet<(usize, PathBuf)> = inner.nested_paths().collect();
        let is_covered = |at: usize, path: &Path| {
            let above = path.ancestors().skip(1);
            let mut above =
                above.take_while(|path| !roots_below.contains(&(at, path.to_path_buf())));
            above.any(|path| known.contains(&(at, path)))
        };
        for (at, path) in found {
            let GuardState { roots, stores, committed, .. } = &mut *inner;
            let root = &roots[*at].root;
            if let Some(public) = stores.public_file(root, path) {
                self.secret_files.forget(public.numbers());
                continue;
            }
            let whole = root.path.join(path);
            let stat = match root.stat(path) {
                Ok(stat) => stat,
                // Another command has moved or removed it since the scan: the command does not run.
                Err(Errno::ENOENT | Errno::ENOTDIR) if may_move => {
                    secrets.hidden.insert(whole);
                    continue;
                }
                Err(Errno::ENOENT | Errno::ENOTDIR) => continue,
                // A command could make the folder accessible again.
                Err(_) => {
                    secrets.hidden.extend(nearest_accessible(root, path));
                    is_complete = false;
                    continue;
                }
            };
            secrets.seen.insert(stat.identity);
            folders.extend((stat.kind == PlaceKind::Folder).then(|| whole.clone()));
            if stat.kind == PlaceKind::Link {
                self.add_target(roots, &whole, &mut secrets);
            } else if !self.is_shown_file(root, path, &stat) {
                if !committed.is_as_committed(&whole, &stat) {
                    self.register(root, path, &stat);
                }
                if !is_covered(*at, path) {
                    secrets.add(whole, Some(stat.identity));
                }
            }
            linked.extend(Some(stat).filter(has_other_names));
        }
        for link in folders.iter().flat_map(|folder| links_in(folder)) {
            self.add_target(&inner.roots, &link, &mut secrets);
        }
        let FoundPaths { mut hidden, mut identities, seen } = secrets;
        inner.find_other_names(&linked, may_move);
        let missing = self.search_missing(&inner.roots, &seen, is_complete, may_move);
        hidden.extend(self.add_elsewhere(inner, missing, &mut identities));
        hidden.extend(inner.roots.iter().flat_map(Watched::unlisted_folders));
        hidden.extend(stores.iter().cloned());
        // Those with an identity were found not to be shown, whatever is there by now.
        hidden.retain(|path| identities.contains_key(path) || !self.is_shown(path));
        inner.shorten(&mut hidden, &mut identities);
        let GuardState { roots, committed, .. } = inner;
        let may_show = |path: &Path| !stores.iter().any(|store| path.starts_with(store));
        let sorted = committed.sort(roots, hidden.into_iter().collect(), may_show);
        HiddenPaths { identities, ..sorted }
    }

    /// Returns the paths of secrets that the scan did not find by their own names: `missing` ones, those
    /// behind links and under other names. Adds their identities.
    fn add_elsewhere(
        &self,
        inner: &mut GuardState,
        missing: FoundSecrets,
        identities: &mut BTreeMap<PathBuf, Identity>,
    ) -> Vec<PathBuf> {
        let mut hidden = self.secret_files.targets();
        hidden.extend(missing.unreadable);
        inner.is_unsettled = missing.is_unsettled;
        let pairs = self.linked_pairs(&inner.roots).into_iter();
        let pairs = pairs.filter_map(|path| {
            let identity = self.registered(&inner.roots, &path)?;
            Some((path, identity))
        });
        let linked = inner.linked_names.iter().map(|(path, identity)| (path.clone(), *identity));
        let linked = linked.filter(|(path, _)| !self.is_shown(path));
        for (path, identity) in missing.secrets.into_iter().chain(linked).chain(pairs) {
            // Otherwise two secrets changed places while they were looked for.
            let known = identities.insert(path.clone(), identity);
            inner.is_unsettled |= known.is_some_and(|known| known != identity);
            hidden.push(path);
        }
        hidden
    }

    /// Registers the file or folder `target` below the roots, to which a link with the name of a secret
    /// leads, unless the user lets commands read it. Returns its identity.
    fn registered(&self, roots: &[Watched], target: &Path) -> Option<Identity> {
        let (root, below) = root_around(roots, target)?;
        let stat = root.stat(below).ok()?;
        if self.is_shown_file(root, below, &stat) {
            return None;
        }
        self.register(root, below, &stat);
        Some(stat.identity)
    }

    /// True if the user lets commands read the file at `path`, which has the status `stat`. Notes
    /// that.
    fn is_shown_file(&self, root: &Root, path: &Path, stat: &Stat) -> bool {
        if !self.is_readable(&root.path.join(path)) {
            return false;
        }
        let opened = root.open_parent(path).ok();
        let found = opened.and_then(|(folder, name)| place::metadata(&folder, name));
        // Another file may be there by now.
        let is_same = |found: &Metadata| (found.dev(), found.ino()) == stat.identity.numbers();
        let Some(found) = found.filter(is_same) else { return false };
        self.secret_files.show(&found);
        !self.secret_files.is_withheld(&found)
    }

    /// Registers those of `stores` below the roots, so that they stay hidden when a folder above them is
    /// moved. Returns their status.
    fn register_stores(&self, stores: &[PathBuf], inner: &GuardState) -> BTreeMap<PathBuf, Stat> {
        let hidden = stores.iter().filter(|path| !self.is_shown(path));
        let places = hidden.filter_map(|path| Some((path, inner.place_of(path)?)));
        let registered = places.filter_map(|(path, (at, below))| {
            let root = &inner.roots[at].root;
            let stat = root.stat(&below).ok()?;
            (stat.kind != PlaceKind::Link).then(|| {
                self.register(root, &below, &stat);
                (path.clone(), stat)
            })
        });
        registered.collect()
    }

    /// Existing credential stores of the home folder, and folders and configuration files of posse. Of
    /// a link, its target.
    fn stores(&self) -> Vec<PathBuf> {
        let home = self.home.iter();
        let stores = home.flat_map(|home| secrets::HOME_STORES.map(|name| home.join(name)));
        let exists = |path: &PathBuf| fs::symlink_metadata(path).is_ok();
        let stores = stores.chain(self.own.iter().cloned()).filter(exists);
        stores.filter_map(|path| fs::canonicalize(path).ok()).collect()
    }

    /// True if the user lets commands read the secret `path`.
    fn is_readable(&self, path: &Path) -> bool {
        self.readable.covers(path) && !self.own.iter().any(|own| path.starts_with(own))
    }

    /// True if the user lets commands read the secret that is at `path` now. A secret that was hidden
    /// before it was moved there stays hidden: the user did not name it.
    fn is_shown(&self, path: &Path) -> bool {
        let is_withheld = || {
            let found = fs::symlink_metadata(path);
            found.is_ok_and(|found| self.secret_files.is_withheld(&found))
        };
        self.is_readable(path) && !is_withheld()
    }

    /// Targets of paths that are secret by two names, of which the first is that of a link, such as
    /// `.docker/config.json` behind a link `.docker`.
    fn linked_pairs(&self, roots: &[Watched]) -> Vec<PathBuf> {
        let mut targets = Vec::new();
        for watched in roots {
            for link in watched.scan.links() {
                let name = link.file_name().unwrap_or_default();
                let pairs = secrets::SECRET_PAIRS.iter();
                for (_, secret) in pairs.filter(|(folder, _)| name.eq_ignore_ascii_case(folder)) {
                    let path = watched.root.path.join(link).join(secret);
                    targets.extend(self.linked_to(roots, &path));
                }
            }
        }
        targets
    }

    /// Adds the target of a link that is secret by its name or its folder. One below the roots is
    /// registered.
    fn add_target(&self, roots: &[Watched], link: &Path, secrets: &mut FoundPaths) {
        if let Some(target) = self.linked_to(roots, link) {
            let known = self.registered(roots, &target);
            secrets.add(target, known);
        }
    }

    /// Returns the target of a link that is named like a secret. `None` if it is a device, a folder
    /// around a root or the home folder, or a part of the system ([`SYSTEM_FOLDERS`]). Registers a
    /// target outside the roots.
    fn linked_to(&self, roots: &[Watched], link: &Path) -> Option<PathBuf> {
        let target = fs::canonicalize(link).ok()?;
        let found = fs::metadata(&target).ok()?;
        let in_roots = roots.iter().any(|watched| target.starts_with(&watched.root.path));
        let in_home = self.home.as_ref().is_some_and(|home| target.starts_with(home));
        let is_system = || {
            found.is_dir() && target.components().count() <= 2
                || SYSTEM_FOLDERS.iter().any(|folder| target.starts_with(folder))
        };
        let mut kept = roots.iter().map(|watched| &watched.root.path).chain(&self.home);
        let may_hide = if found.is_dir() {
            !kept.any(|folder| folder.starts_with(&target))
        } else {
            found.is_file() || found.file_type().is_fifo()
        };
        if !may_hide || !in_roots && !in_home && is_system() {
            return None;
        }
        if !in_roots && !self.is_readable(&target) {
            self.secret_files.register_target(target.clone());
        }
        Some(target)
    }
}

impl GuardState {
    /// Replaces each of the paths `hidden` that is too long for a mount by the nearest folder above it
    /// that is not.
    fn shorten(
        &mut self,
        hidden: &mut BTreeSet<PathBuf>,
        identities: &mut BTreeMap<PathBuf, Identity>,
    ) {
        let is_long = |path: &Path| path.as_os_str().len() > HIDDEN_BYTES_MAX;
        for path in hidden.extract_if(.., |path| is_long(path)).collect::<Vec<_>>() {
            identities.remove(&path);
            let above = path.ancestors().find(|above| !is_long(above));
            let found = above.and_then(|above| {
                let (root, below) = root_around(&self.roots, above)?;
                Some((above.to_owned(), root.stat(below).ok()?.identity))
            });
            let Some((above, identity)) = found else {
                self.is_unsettled = true;
                continue;
            };
            let known = identities.insert(above.clone(), identity);
            self.is_unsettled |= known.is_some_and(|known| known != identity);
            hidden.insert(above);
        }
    }

    /// Looks for all names of `files`, which have several hard links. If `may_move`, because other
    /// commands run, those that are not found any more stay if the file has more names than were found.
    fn find_other_names(&mut self, files: &[Stat], may_move: bool) {
        let found = links::names(files, &self.roots);
        let names_of = |file: &Identity| found.values().filter(|found| *found == file).count();
        let has_more = |file: &Identity| {
            let known = files.iter().find(|stat| stat.identity == *file);
            known.is_some_and(|stat| stat.links > names_of(file) as u64)
        };
        self.linked_names
            .retain(|path, file| may_move && !found.contains_key(path) && has_more(file));
        self.linked_names.extend(found);
    }
}

/// Paths of the links in `folder`, within [`LOOKED_AT_MAX`] entries and [`LEVELS_MAX`] levels. Empty if
/// it is no folder.
fn links_in(folder: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut level = vec![folder.to_owned()];
    let mut left = LOOKED_AT_MAX;
    for _ in 0..LEVELS_MAX {
        let mut below = Vec::new();
        for folder in level {
            for entry in fs::read_dir(folder).into_iter().flatten().take(left).flatten() {
                left -= 1;
                match entry.file_type() {
                    Ok(kind) if kind.is_symlink() => links.push(entry.path()),
                    Ok(kind) if kind.is_dir() => below.push(entry.path()),
                    _ => {}
                }
            }
        }
        level = below;
    }
    links
}

fn has_other_names(stat: &Stat) -> bool {
    stat.kind == PlaceKind::File && stat.links > 1
}
