//! State of all protected names before a command, and the mounts that hold them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use posse_base::protected;

use crate::protect::moved_repositories::RepositoryContents;
use crate::protect::place::{Identity, Stat};
use crate::protect::running_marks::Stamp;
use crate::protect::search_path::HidingPrograms;
use crate::protect::sort::{ProtectedItem, Sort};
use crate::protect::state::State;
use crate::protect::tool_writes::{Log, Since};
use crate::protect::watched::{FolderChange, Watched};
use crate::protect::{GuardState, ProtectedPath, harmless, links, new_worktrees, pointed};

/// Maximum number of protected names that are mounted read-only for a command, without those that
/// git obeys. Further names are only checked afterwards. Other hard links of mounted files come in
/// addition, and as many entries of folders that are split around exempt paths.
pub(super) const MOUNTS_MAX: usize = 400;

/// Maximum number of names that git obeys, such as `config` and `hooks`, that are mounted read-only
/// for a command. Git of the user may read them while the command runs, so with more of them the
/// scan counts as incomplete.
pub(super) const GIT_MOUNTS_MAX: usize = 4_000;

/// State of all protected names before a command.
#[derive(Debug, Clone)]
pub(super) struct Baseline {
    pub(super) items: HashMap<ProtectedPath, BaselineItem>,
    /// For each root, the number of the scan from which the baseline was made.
    pub(super) scans: Vec<u64>,
    /// Paths to which git settings, `commondir` files and protected links refer, existing or not,
    /// with the index of the root.
    pub(super) pointed: Vec<(usize, ProtectedItem)>,
    /// Ways from items to the places to which they lead git, as in [`GuardState::ways`].
    pub(super) ways: HashMap<ProtectedPath, Vec<PathBuf>>,
    /// True if the scan was complete.
    pub(super) is_complete: bool,
    /// Folders that could not be read, with the index of the root, and their last change.
    pub(super) unreadable: HashMap<ProtectedPath, FolderChange>,
    /// Parts, commit and branches of each `.git` folder, which a command may delete.
    pub(super) contents: HashMap<ProtectedPath, RepositoryContents>,
    /// Links of which the scan could not tell where they will lead, with their texts.
    pub(super) uncertain_links: HashMap<ProtectedPath, PathBuf>,
    /// Programs in folders of the search path that commands can write.
    pub(super) hiding_programs: HidingPrograms,
    /// True if mounts can hold everything that git obeys.
    pub(super) holds_git: bool,
    /// Position in the log of tool writes at the time of the scan.
    pub(super) since: Since,
    /// Time after the scan. Everything that the scan found was created before it.
    pub(super) time: SystemTime,
}

impl Baseline {
    /// True if it has the file or folder of `item` at `key`, with the same content. False for a
    /// repository whose creation time is unknown, because its inode number may be reused.
    pub(super) fn has(&self, key: &ProtectedPath, item: &BaselineItem) -> bool {
        let known = self.items.get(key).filter(|known| known.sort == item.sort);
        known.is_some_and(|known| {
            let is_dated = item.sort != Sort::Repository || item.birth.is_some();
            let states = known.state.as_ref().zip(item.state.as_ref());
            is_dated
                && (known.identity, known.birth) == (item.identity, item.birth)
                && states.is_none_or(|(known, now)| known.is_same(now))
        })
    }
}

/// State of one protected name in a baseline.
#[derive(Debug, Clone)]
pub(super) struct BaselineItem {
    pub(super) sort: Sort,
    /// State for comparison and restoration. `None` for repositories, whose contents may change.
    pub(super) state: Option<State>,
    pub(super) identity: Identity,
    /// Creation time of a repository, because its inode number may be reused. `None` for other
    /// items, or if the file system does not store it.
    pub(super) birth: Option<SystemTime>,
    pub(super) parent: Option<Identity>,
    /// Folder around the parent folder, if the name of the parent folder gives the item its
    /// meaning, as for `.cargo/config.toml`. `None` for other items.
    pub(super) above: Option<Identity>,
    pub(super) is_mounted: bool,
    /// True if a command of another session may have made it, so that it is not restored.
    pub(super) is_doubtful: bool,
}

impl GuardState {
    /// Creates a baseline of the current state of `items` and of the paths to which they refer.
    /// Forgets repositories created by commands, and files left in new work trees, that are gone.
    /// `others_since`: result of [`GuardState::mark_running`] before the scan.
    pub(super) fn new_baseline(
        &mut self,
        items: Vec<(usize, ProtectedItem)>,
        is_complete: bool,
        log: &Log,
        others_since: Option<Stamp>,
    ) -> Arc<Baseline> {
        // The inode number of a removed folder is reused.
        let roots = &self.roots;
        self.born.retain(|identity, (at, path)| roots[*at].scan.identity(path) == Some(*identity));
        let unreadable = self.roots.iter().enumerate().flat_map(|(at, watched)| {
            watched.unreadable().map(move |(path, changed)| ((at, path), changed))
        });
        let unreadable = unreadable.collect();
        let mut baseline = Baseline {
            items: HashMap::with_capacity(items.len()),
            scans: self.roots.iter().map(|watched| watched.scan.number()).collect(),
            pointed: Vec::new(),
            ways: HashMap::new(),
            is_complete,
            unreadable,
            contents: HashMap::new(),
            uncertain_links: self
                .uncertain_links()
                .map(|(key, text)| (key, text.clone()))
                .collect(),
            hiding_programs: self.search_path.hiding_programs(),
            holds_git: true,
            since: log.since(),
            time: SystemTime::now(),
        };
        let mut due = self.referenced(&items);
        baseline.pointed.clone_from(&due);
        due.splice(0..0, items);
        for _ in 0..=pointed::LINK_ROUNDS_MAX {
            let keys: Vec<ProtectedPath> =
                due.iter().map(|(at, item)| (*at, Arc::clone(&item.path))).collect();
            for (at, item) in due {
                let key = (at, Arc::clone(&item.path));
                if !is_covered(baseline.items.get(&key), &item)
                    && let Some(before) = self.item_state(at, &item, None)
                {
                    baseline.items.insert(key, before);
                }
            }
            due = self.link_targets(&baseline, &keys);
            if due.is_empty() {
                break;
            }
            baseline.pointed.extend(due.iter().cloned());
        }
        baseline.ways = self.ways(&baseline.items);
        self.retain_left(&baseline);
        limit_mounts(&mut baseline);
        baseline.contents = self.repository_contents(&baseline);
        let is_disturbed = self.note_doubtful(&mut baseline, others_since);
        let baseline = Arc::new(baseline);
        if !is_disturbed {
            self.undisturbed = Some(Arc::clone(&baseline));
        }
        baseline
    }

    /// Links of which the last scan could not tell where they will lead, with their texts.
    pub(super) fn uncertain_links(&self) -> impl Iterator<Item = (ProtectedPath, &PathBuf)> {
        self.roots.iter().enumerate().flat_map(|(at, watched)| {
            let links = watched.scan.uncertain_links();
            links.iter().map(move |(path, text)| ((at, Arc::clone(path)), text))
        })
    }

    /// Returns the current state of an item, to the extent of its earlier state `before`. `None` if
    /// the item does not exist or cannot be examined.
    pub(super) fn item_state(
        &mut self,
        at: usize,
        item: &ProtectedItem,
        before: Option<&State>,
    ) -> Option<BaselineItem> {
        let Watched { root, scan, .. } = &self.roots[at];
        if matches!(item.sort, Sort::Repository | Sort::Interrupted) {
            let identity = scan.identity(&item.path)?;
            let parent = item.path.parent().and_then(|above| scan.identity(above));
            let (sort, birth) = (item.sort, scan.creation_time_of(&item.path));
            let (state, above) = (None, None);
            let (is_mounted, is_doubtful) = (false, false);
            return Some(BaselineItem {
                sort,
                state,
                identity,
                birth,
                parent,
                above,
                is_mounted,
                is_doubtful,
            });
        }
        let (folder, name) = root.open_parent(&item.path).ok()?;
        let stat = Stat::at(&folder, name).ok()?;
        let identity = stat.identity;
        let parent = Stat::at(&folder, Path::new("")).ok().map(|stat| stat.identity);
        let is_born = self.is_born(parent)
            || self.is_in_new_worktree(at, &item.path)
            || (item.sort == Sort::Exclude && self.is_in_born(&(at, Arc::clone(&item.path))));
        let state = match item.sort {
            // It may be large, and is judged without its earlier content.
            Sort::Index => State::File { stat, copy: None },
            Sort::PackedRefs => {
                State::File { stat, copy: self.reader.replacements(&folder, name, stat) }
            }
            _ => self.reader.state(&folder, name, before)?,
        };
        let is_kept = matches!(
            item.sort,
            Sort::Name(_)
                | Sort::Pointer
                | Sort::Hooks
                | Sort::Remotes
                | Sort::Settings
                | Sort::Attributes
                | Sort::Exclude
                | Sort::InnerLink
                | Sort::Common
                | Sort::Foreign
        );
        let is_mounted = !is_born
            && is_kept
            && !harmless::is_replaced_in_place(&protected::fold(name.as_os_str().as_bytes()))
            && (state.is_folder() || matches!(state, State::File { .. }));
        let above = depends_on_parent(item).then(|| root.identity_above(&item.path)).flatten();
        let (sort, state) = (item.sort, Some(state));
        let (birth, is_doubtful) = (None, false);
        Some(BaselineItem { sort, state, identity, birth, parent, above, is_mounted, is_doubtful })
    }

    /// Returns the paths to mount read-only, including all hard links of a file, and the folders
    /// above those that control git, up to but without the root, which must not be renamed.
    pub(super) fn mounts(&self, baseline: &Baseline) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let mut keys: Vec<&ProtectedPath> = baseline
            .items
            .iter()
            .filter(|(_, before)| before.is_mounted)
            .map(|(key, _)| key)
            .collect();
        keys.sort_by_key(|(at, path)| (path.components().count(), *at, Arc::clone(path)));
        let pointed: HashSet<ProtectedPath> =
            baseline.pointed.iter().map(|(at, item)| (*at, Arc::clone(&item.path))).collect();
        let mut read_only = Vec::new();
        let mut pinned = BTreeSet::new();
        for key in keys {
            let (at, path) = (key.0, &key.1);
            let root = &self.roots[at].root.path;
            read_only.push(root.join(path));
            let controls_git =
                !matches!(baseline.items[key].sort, Sort::Name(_)) || pointed.contains(key);
            if controls_git {
                // Renaming a parent folder would allow replacing it.
                let above = path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
                pinned.extend(above.map(|path| root.join(path)));
            }
        }
        let linked = baseline.items.values().filter_map(|before| {
            let State::File { stat, .. } = before.state.as_ref()? else { return None };
            (before.is_mounted && stat.links > 1).then_some(*stat)
        });
        for twin in links::names(&linked.collect::<Vec<_>>(), &self.roots).into_keys() {
            if !read_only.contains(&twin) {
                read_only.push(twin);
            }
        }
        (read_only, pinned.into_iter().collect())
    }
}

/// Takes the mounts beyond the limits back: [`GIT_MOUNTS_MAX`] for what git obeys, and [`MOUNTS_MAX`] for other
/// names.
fn limit_mounts(baseline: &mut Baseline) {
    let pointed: HashSet<ProtectedPath> =
        baseline.pointed.iter().map(|(at, item)| (*at, Arc::clone(&item.path))).collect();
    let mut mounted: Vec<(&ProtectedPath, &mut BaselineItem)> =
        baseline.items.iter_mut().filter(|(_, before)| before.is_mounted).collect();
    // Names nearest to the root have priority, but commands can create any number of files whose
    // content is judged.
    mounted.sort_by_key(|((at, path), _)| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let is_judged = harmless::is_judged(&protected::fold(name));
        (is_judged, path.components().count(), *at, Arc::clone(path))
    });
    let mut left = [GIT_MOUNTS_MAX, MOUNTS_MAX];
    for (key, before) in mounted {
        let controls_git = !matches!(before.sort, Sort::Name(_)) || pointed.contains(key);
        let left = &mut left[usize::from(!controls_git)];
        before.is_mounted = *left > 0;
        baseline.holds_git &= !controls_git || before.is_mounted;
        *left = left.saturating_sub(1);
    }
}

/// True if `item` is protected only in a folder of a certain kind, such as `.cargo/config.toml`, or
/// the `hooks` of a repository.
pub(super) fn depends_on_parent(item: &ProtectedItem) -> bool {
    match item.sort {
        Sort::Name(_) => new_worktrees::is_named_by_parent(&item.path),
        Sort::Repository
        | Sort::Pointer
        | Sort::PackedRefs
        | Sort::Interrupted
        | Sort::Environment => false,
        _ => true,
    }
}

/// True if `item` is a repository, and `known`, the baseline item at its path, is not one: the path
/// is protected as a whole, such as `.vscode`.
pub(super) fn is_covered(known: Option<&BaselineItem>, item: &ProtectedItem) -> bool {
    item.sort == Sort::Repository && known.is_some_and(|known| known.sort != Sort::Repository)
}
