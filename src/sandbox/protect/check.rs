//! Finds the effects of a command on protected names, and restores, moves aside, cleans or reports
//! them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::openat;
use nix::sys::stat::Mode;
use posse_base::protected;

use crate::protect::baseline::{Baseline, BaselineItem, is_covered};
use crate::protect::exemptions::Lifted;
use crate::protect::finding::{Finding, ProtectAction, ProtectedChange, add_findings, failed};
use crate::protect::git_files::{has_known_options, has_only_comments, unsafe_index};
use crate::protect::gitconfig;
use crate::protect::harmless;
use crate::protect::linked_worktrees::POINTER_BYTES_MAX;
use crate::protect::new_worktrees;
use crate::protect::place::{self, FOLDER, Identity, PlaceKind, Stat};
use crate::protect::references;
use crate::protect::scan::ScanBounds;
use crate::protect::sort::{ProtectedItem, Sort};
use crate::protect::state::{self, State};
use crate::protect::tool_writes::Log;
use crate::protect::{GuardState, ProtectedPath, ProtectionMethod, Watched};

/// Maximum number of rounds of a check. A round follows if the previous one changed something,
/// because processes may still be running. The first one is repeated with enlarged scan limits if
/// its scan is incomplete and the one before the command was complete.
const ROUNDS_MAX: usize = 8;

/// Maximum number of times that a check moves repositories back and scans again. A moved repository
/// may contain others, whose places are known only after the scan.
const MOVES_MAX: usize = 64;

/// Maximum number of entries of a hooks folder that are examined. With more entries, the repository
/// counts as one with hooks.
const HOOKS_MAX: usize = 100;

impl GuardState {
    /// Compares the protected names with the baseline, and handles the differences in at most
    /// [`ROUNDS_MAX`] rounds. Discards the baseline if no command is running. Returns the findings.
    pub(super) fn handle_differences(
        &mut self,
        held: ProtectionMethod,
        bounds: ScanBounds,
        log: &Log,
    ) -> Vec<Finding> {
        let Some(baseline) = self.baseline.clone() else { return Vec::new() };
        let mut findings: Vec<Finding> = Vec::new();
        let mut bounds = bounds;
        let mut is_settled = false;
        for round in 0..ROUNDS_MAX {
            let mut found = self.check_round(&baseline, held, bounds, log);
            if round == 0 && baseline.is_complete && !self.is_complete {
                // A command must not hide files by creating more than the scan limit.
                bounds = bounds.enlarged();
                found.extend(self.check_round(&baseline, held, bounds, log));
            }
            is_settled = found
                .iter()
                .all(|finding| finding.action == ProtectAction::Left || findings.contains(finding));
            add_findings(&mut findings, found);
            if is_settled {
                break;
            }
        }
        if !is_settled {
            self.is_complete = false;
            let roots = self.roots.iter().filter(|watched| !watched.is_out_of_reach);
            let paths: Vec<PathBuf> = roots.map(|watched| watched.root.path.clone()).collect();
            for path in paths {
                let change = ProtectedChange::KeepsChanging;
                findings.push(Finding::new(path, change, ProtectAction::Left));
            }
        }
        if self.running == 0 {
            self.baseline = None;
            self.owed = None;
            self.lifted = Lifted::default();
            self.were_several = false;
        }
        findings
    }

    /// Scans the roots that commands can write. Returns the protected items that exist, with those
    /// of the baseline to which settings point, and the keys of those that are protected only because
    /// settings of new repositories point to them. Stores whether the scan was complete.
    fn current_items(
        &mut self,
        baseline: &Baseline,
        held: ProtectionMethod,
        bounds: ScanBounds,
    ) -> (BTreeMap<ProtectedPath, BaselineItem>, HashSet<ProtectedPath>) {
        let mut items: Vec<(usize, ProtectedItem)> = Vec::new();
        self.is_complete = true;
        let scanned = self.scan_roots(|at, watched| {
            let was_so = |path: &Arc<Path>, changed| {
                let before = baseline.unreadable.get(&(at, Arc::clone(path)));
                before.is_some_and(|before| *before == changed)
            };
            (!watched.is_out_of_reach).then(|| watched.run_scan_after(bounds, was_so))
        });
        for (at, found) in scanned {
            self.is_complete &= found.is_complete;
            items.extend(found.items.into_iter().map(|item| (at, item)));
        }
        items.extend(baseline.pointed.iter().cloned());
        let is_new = |(at, item): &(usize, ProtectedItem)| {
            matches!(item.sort, Sort::Repository | Sort::Pointer | Sort::Common)
                && !baseline.items.contains_key(&(*at, Arc::clone(&item.path)))
        };
        let referenced =
            if items.iter().any(is_new) { self.referenced(&items) } else { Vec::new() };
        let key_of = |(at, item): &(usize, ProtectedItem)| (*at, Arc::clone(&item.path));
        // A repository itself is an item without content.
        let is_entry = |(_, item): &&(usize, ProtectedItem)| item.sort != Sort::Repository;
        let by_name: HashSet<ProtectedPath> = items.iter().filter(is_entry).map(key_of).collect();
        let newly_pointed: HashSet<ProtectedPath> =
            referenced.iter().map(key_of).filter(|key| !by_name.contains(key)).collect();
        items.extend(referenced);
        let mut now: BTreeMap<ProtectedPath, BaselineItem> = BTreeMap::new();
        for (at, item) in items {
            let key = (at, Arc::clone(&item.path));
            let before = baseline.items.get(&key);
            let is_held = held == ProtectionMethod::ByMounts
                && before.is_some_and(|before| {
                    before.is_mounted && !before.state.as_ref().is_some_and(State::has_links)
                });
            self.reader.reads_again = !is_held;
            let before = before.and_then(|before| before.state.as_ref());
            if !is_covered(now.get(&key), &item)
                && let Some(current) = self.item_state(at, &item, before)
            {
                now.insert(key, current);
            }
        }
        self.reader.reads_again = false;
        (now, newly_pointed)
    }

    /// Moves repositories back until none is elsewhere, at most [`MOVES_MAX`] times. Returns the
    /// result of `current_items` after that, and the baseline with the writes of posse's own tools,
    /// if there are any.
    fn items_after_moves(
        &mut self,
        baseline: &Baseline,
        held: ProtectionMethod,
        bounds: ScanBounds,
        log: &Log,
    ) -> (BTreeMap<ProtectedPath, BaselineItem>, HashSet<ProtectedPath>, Option<Baseline>) {
        let (mut now, mut newly_pointed) = self.current_items(baseline, held, bounds);
        // Changes by our own tools since then are part of the expected state.
        let mut amended = self.with_written(baseline, log, &now);
        let mut failed_moves = Vec::new();
        for _ in 0..MOVES_MAX {
            let found = self.move_back(amended.as_ref().unwrap_or(baseline), &now);
            let is_restored =
                |finding: &Finding| matches!(finding.action, ProtectAction::Restored(_));
            let (moved, failed): (Vec<_>, Vec<_>) = found.into_iter().partition(is_restored);
            failed_moves = failed;
            if moved.is_empty() {
                break;
            }
            self.findings.extend(moved);
            // Names may lead elsewhere now, and a move that failed may succeed.
            (now, newly_pointed) = self.current_items(baseline, held, bounds);
            amended = self.with_written(baseline, log, &now);
        }
        self.findings.extend(failed_moves);
        (now, newly_pointed, amended)
    }

    fn check_round(
        &mut self,
        baseline: &Baseline,
        held: ProtectionMethod,
        bounds: ScanBounds,
        log: &Log,
    ) -> Vec<Finding> {
        let (now, newly_pointed, amended) = self.items_after_moves(baseline, held, bounds, log);
        let baseline = amended.as_ref().unwrap_or(baseline);
        let before_by_identity: HashMap<Identity, (&ProtectedPath, &BaselineItem)> =
            baseline.items.iter().map(|(key, before)| (before.identity, (key, before))).collect();
        let pointed: HashSet<ProtectedPath> =
            baseline.pointed.iter().map(|(at, item)| (*at, Arc::clone(&item.path))).collect();
        // The treatment of a new repository must not depend on the order of names.
        let (repositories, others): (Vec<_>, Vec<_>) =
            now.iter().partition(|(_, current)| current.sort == Sort::Repository);
        for (key, current) in repositories {
            if !self.is_known_repository(baseline, key) && !self.was_out_of_sight(baseline, key) {
                self.born.insert(current.identity, key.clone());
            }
        }
        self.note_new_worktrees(baseline, &now);
        for (key, current) in others {
            let known = baseline.items.get(key).filter(|before| before.sort == current.sort);
            // A folder that was made anew may contain the same as the old one.
            let is_same_content = |before: &BaselineItem| {
                let states = before.state.as_ref().zip(current.state.as_ref());
                matches!(current.sort, Sort::Name(_))
                    && states.is_some_and(|(old, new)| old.is_same(new))
            };
            let same_place = known.filter(|before| {
                let is_same_operation =
                    current.sort != Sort::Interrupted || before.identity == current.identity;
                is_same_operation && (before.parent == current.parent || is_same_content(before))
            });
            // A parent may have been renamed, which moved this name. It must not have got another
            // meaning by that, and a pointer must not lead elsewhere.
            let carried = before_by_identity.get(&current.identity).filter(|(old, before)| {
                let is_pointer = matches!(current.sort, Sort::Pointer | Sort::Common);
                // At a place where a program reads another file, it is another file.
                let is_taken = matches!(current.sort, Sort::Name(_))
                    && (known.is_some() || pointed.contains(key));
                !is_taken
                    && before.parent == current.parent
                    && before.above == current.above
                    && before.sort == current.sort
                    && has_same_role(&old.1, &key.1, current.sort)
                    && (!is_pointer || self.points_to_protected(key, current.sort))
            });
            let carried = carried.map(|(_, before)| *before);
            // Without its work tree it is a file like any other that a command created.
            let has_no_place = self.new_worktrees.was_left(current.identity)
                && !self.is_in_new_worktree(key.0, &key.1);
            match same_place.or(carried).filter(|_| !has_no_place) {
                Some(before) => self.changed(key, before, current, held),
                None if self.was_out_of_sight(baseline, key) => {}
                // It may have been an ordinary file of the user. Links add nothing: their targets
                // are reported, too.
                None if newly_pointed.contains(key) => {
                    if !matches!(current.state, Some(State::Link { .. })) {
                        self.left(key, current, ProtectedChange::CameWithRepository);
                    }
                }
                None => self.created(key, current),
            }
        }
        for (key, before) in &baseline.items {
            if !now.contains_key(key) && before.sort != Sort::Repository {
                self.removed(key, before);
            }
        }
        let mut findings = std::mem::take(&mut self.findings);
        findings.extend(self.lost(baseline, &now));
        findings
    }

    /// True if the repository at `key` is in the baseline, at any path, or the last scan found no
    /// folder at `key`.
    fn is_known_repository(&self, baseline: &Baseline, key: &ProtectedPath) -> bool {
        let Some(identity) = self.roots[key.0].scan.identity(&key.1) else { return true };
        let mut repositories =
            baseline.items.values().filter(|before| before.sort == Sort::Repository);
        repositories.any(|before| before.identity == identity)
    }

    /// True if the incomplete scan before the command may have missed `key`, so that the file may
    /// be the user's.
    pub(super) fn was_out_of_sight(&self, baseline: &Baseline, key: &ProtectedPath) -> bool {
        let around = key.1.parent().unwrap_or(Path::new(""));
        let scan = &self.roots[key.0].scan;
        !baseline.is_complete && !scan.was_there(around, baseline.scans[key.0])
    }

    /// True if the folder `parent` is a repository that a command of this session created.
    pub(super) fn is_born(&self, parent: Option<Identity>) -> bool {
        parent.is_some_and(|parent| self.born.contains_key(&parent))
    }

    fn changed(
        &mut self,
        key: &ProtectedPath,
        before: &BaselineItem,
        current: &BaselineItem,
        held: ProtectionMethod,
    ) {
        let (Some(old), Some(new)) = (&before.state, &current.state) else { return };
        if old.is_same(new) {
            return;
        }
        let is_born =
            self.is_born(current.parent) || (current.sort == Sort::Exclude && self.is_in_born(key));
        match current.sort {
            // It was left because it may be a file of the user.
            Sort::Foreign if is_born => return,
            Sort::Origin => {
                self.check_origin(key, current);
                return;
            }
            Sort::Todo | Sort::Strategy | Sort::Index | Sort::PackedRefs => {
                self.clean(key, current);
                return;
            }
            Sort::WorktreePath if self.is_moved_worktree(key, before, current) => return,
            Sort::Name(_) | Sort::Environment => {}
            _ if is_born => {
                self.clean(key, current);
                return;
            }
            _ => {}
        }
        if self.is_in_new_worktree(key.0, &key.1) {
            self.left(key, current, ProtectedChange::Changed);
            return;
        }
        // Through another name it can be changed at any time, also under a mount.
        let is_linked = new.is_linked_since(old);
        if !is_linked && self.may_change(key, before, (old, new), held) {
            return;
        }
        let path = self.path(key);
        if before.is_doubtful {
            // The check of the other session may restore it.
            self.found(&path, ProtectedChange::Changed, ProtectAction::Left);
            return;
        }
        let Ok((folder, name)) = self.roots[key.0].root.open_parent(&key.1) else { return };
        self.restore(&folder, name, old, Some(new), &path);
    }

    /// True if the change of the protected name from the state `old` to `new` is harmless, or another
    /// program made it.
    fn may_change(
        &self,
        key: &ProtectedPath,
        before: &BaselineItem,
        (old, new): (&State, &State),
        held: ProtectionMethod,
    ) -> bool {
        if before.sort == Sort::Environment {
            return !self.is_loaded(key);
        }
        if let (State::File { copy: Some(old), .. }, State::File { copy: Some(new), .. }) =
            (old, new)
            && before.sort == Sort::Settings
            && gitconfig::only_registers(old, new)
        {
            return true;
        }
        // It was on a mount that the command could not write, so another program did this; unless
        // the command knew the file by another name.
        let is_held = before.is_mounted
            && held == ProtectionMethod::ByMounts
            && !old.has_links()
            && !new.has_links();
        (is_held && !self.lifted.reaches_into(&self.path(key)))
            || (harmless::is_judged(&name_of(key)) && self.is_harmless_text(key))
    }

    /// Restores the state `old` of `name` and reports it as `path`. The command's version `new`
    /// goes to the quarantine; `None` if the command removed it. Folders are restored entry by
    /// entry. Does nothing if `path` is exempt.
    fn restore(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        old: &State,
        new: Option<&State>,
        path: &Path,
    ) {
        if self.lifted.covers(path) {
            return;
        }
        if let (State::Folder { entries: old, .. }, Some(State::Folder { entries: new, .. })) =
            (old, new)
            && let Ok(opened) = place::make_folder(folder, name, 0o700)
        {
            self.restore_entries(&opened, old, new, path);
            return;
        }
        if old.is_folder() && new.is_some_and(State::is_folder) && !old.is_stored() {
            // The copy lacks parts, and must not replace the folder.
            self.found(path, ProtectedChange::Changed, ProtectAction::Left);
            return;
        }
        let taken = match new {
            Some(_) => match self.quarantine.take(folder, name) {
                Ok(to) => Some(to),
                Err(Errno::ENOENT) => None,
                Err(errno) => {
                    self.found(path, ProtectedChange::Changed, failed(errno));
                    return;
                }
            },
            None => None,
        };
        let what = if new.is_some() { ProtectedChange::Changed } else { ProtectedChange::Removed };
        let action = match state::restore(folder, name, old) {
            Ok(()) => ProtectAction::Restored(taken),
            Err(Errno::EFBIG) => {
                let replaced =
                    if taken.is_some() { "; what replaced it was moved aside" } else { "" };
                let why = format!("not all of it was kept, because it was too large{replaced}");
                ProtectAction::Failed(why)
            }
            Err(errno) => failed(errno),
        };
        self.found(path, what, action);
    }

    fn restore_entries(
        &mut self,
        folder: &OwnedFd,
        old: &BTreeMap<PathBuf, State>,
        new: &BTreeMap<PathBuf, State>,
        path: &Path,
    ) {
        for (name, current) in new {
            match old.get(name) {
                Some(old) if old.is_same(current) => {}
                Some(old) => {
                    self.restore(folder, name, old, Some(current), &path.join(name));
                }
                None => {
                    let path = path.join(name);
                    if self.lifted.reaches_into(&path)
                        && let State::Folder { entries, .. } = current
                        && let Ok(opened) = openat(folder, name, FOLDER, Mode::empty())
                    {
                        self.restore_entries(&opened, &BTreeMap::new(), entries, &path);
                    } else {
                        self.move_aside(folder, name, &path, ProtectedChange::Created);
                    }
                }
            }
        }
        for (name, state) in old {
            if !new.contains_key(name) {
                self.restore(folder, name, state, None, &path.join(name));
            }
        }
    }

    fn removed(&mut self, key: &ProtectedPath, before: &BaselineItem) {
        let Some(state) = &before.state else { return };
        let is_progress = matches!(
            before.sort,
            Sort::Todo
                | Sort::Strategy
                | Sort::Index
                | Sort::PackedRefs
                | Sort::Volatile
                | Sort::Interrupted
                | Sort::Origin
                | Sort::Environment
        );
        if self.new_worktrees.was_left(before.identity) || is_progress {
            return;
        }
        // Without its parent there is nothing to protect: the parent was removed or renamed. A
        // folder in its place is the same for programs, and so is one that only holds protected
        // names.
        let Ok((folder, name)) = self.parent_of_removed(key, before) else { return };
        let parent = Stat::at(&folder, Path::new("")).ok().map(|stat| stat.identity);
        let is_there = Stat::at(&folder, name).is_ok();
        let is_theirs = self.is_born(parent) || self.is_in_new_worktree(key.0, &key.1);
        let is_replaced = parent != before.parent && !matches!(before.sort, Sort::Name(_));
        if is_replaced || is_there || is_theirs {
            return;
        }
        // An incomplete `.git` is handled together with its contents.
        let is_inside = !matches!(before.sort, Sort::Name(_) | Sort::Pointer);
        let is_in_info = matches!(before.sort, Sort::Attributes | Sort::Exclude);
        if is_inside && !is_in_info && !has_head(&folder) {
            return;
        }
        let path = self.path(key);
        if before.is_doubtful {
            // The command of another session may have made the item, and the check of that session
            // removed it.
            self.found(&path, ProtectedChange::Removed, ProtectAction::Left);
            return;
        }
        self.restore(&folder, name, state, None, &path);
    }

    /// Opens the folder in which the removed name was. If the folder was removed, and its name gave
    /// the removed name its meaning, it is made again; unless the item is doubtful, which is only
    /// reported.
    fn parent_of_removed<'a>(
        &mut self,
        key: &'a ProtectedPath,
        before: &BaselineItem,
    ) -> Result<(OwnedFd, &'a Path), Errno> {
        let root = &self.roots[key.0].root;
        let opened = root.open_parent(&key.1);
        if opened.is_ok() || !matches!(before.sort, Sort::Name(_)) || before.above.is_none() {
            return opened;
        }
        let name = key.1.file_name().ok_or(Errno::EINVAL)?;
        let parent = key.1.parent().ok_or(Errno::EINVAL)?;
        let (around, folder) = root.open_parent(parent)?;
        let identity = Stat::at(&around, Path::new(""))?.identity;
        let path = self.path(key);
        if before.above != Some(identity) || self.lifted.covers(&path) {
            return Err(Errno::ENOENT);
        }
        if before.is_doubtful {
            self.found(&path, ProtectedChange::Removed, ProtectAction::Left);
            return Err(Errno::ENOENT);
        }
        Ok((place::make_folder(&around, folder, 0o755)?, Path::new(name)))
    }

    fn created(&mut self, key: &ProtectedPath, current: &BaselineItem) {
        match current.sort {
            Sort::Name(_) => {}
            Sort::Environment if self.is_loaded(key) => {}
            Sort::Environment => return,
            _ => {
                self.clean(key, current);
                return;
            }
        }
        let path = self.path(key);
        if harmless::is_judged(&name_of(key)) && self.is_harmless_text(key) {
            if let Some(State::File { stat, .. }) = &current.state
                && stat.links > 1
                && let Ok((folder, name)) = self.roots[key.0].root.open_parent(&key.1)
            {
                self.separate(&folder, name, &path, stat);
            }
            return;
        }
        if self.lifted.covers(&path) {
            return;
        }
        if self.is_in_new_worktree(key.0, &key.1) {
            self.left(key, current, ProtectedChange::CameWithRepository);
            return;
        }
        let Ok((folder, name)) = self.roots[key.0].root.open_parent(&key.1) else { return };
        if self.lifted.reaches_into(&path)
            && let Some(State::Folder { entries, .. }) = &current.state
            && let Ok(opened) = self.roots[key.0].root.open_folder(&key.1)
        {
            self.restore_entries(&opened, &BTreeMap::new(), entries, &path);
            return;
        }
        self.move_aside(&folder, name, &path, ProtectedChange::Created);
    }

    /// Leaves a protected file because it belongs to a new work tree, records its identity, and
    /// reports it.
    fn left(&mut self, key: &ProtectedPath, current: &BaselineItem, what: ProtectedChange) {
        self.new_worktrees.note_left(current.identity);
        self.found(&self.path(key), what, ProtectAction::Left);
    }

    /// Removes everything from the git file or folder at `key` that may run programs: hooks,
    /// settings, rebase steps, and references to other repositories. Moves it to the quarantine as
    /// a whole if it cannot be cleaned. Does nothing if it is exempt.
    fn clean(&mut self, key: &ProtectedPath, current: &BaselineItem) {
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
                let depth = key.1.components().count().saturating_sub(1);
                let Some(cleaned) = gitconfig::clean(bytes, depth) else {
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

    /// True if the `commondir` at `key` is that of a linked worktree and leads to the repository
    /// around it. Any other one replaces the settings and hooks of its repository.
    fn is_of_linked_worktree(&self, key: &ProtectedPath) -> bool {
        let mut above = key.1.ancestors().skip(2);
        let is_worktrees = |path: &Path| path.file_name().is_some_and(|name| name == "worktrees");
        above.next().is_some_and(is_worktrees)
            && self.points_to_protected(key, Sort::Common)
            && self
                .pointer_target(key)
                .is_some_and(|(at, target)| at == key.0 && above.next() == Some(&*target))
    }

    /// Replaces the content `bytes` of a file by `text`, which lacks what `change` says. Stores
    /// `bytes` in the quarantine.
    pub(super) fn rewrite(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        path: &Path,
        (bytes, text): (&[u8], &[u8]),
        change: ProtectedChange,
    ) {
        let kept = self.quarantine.keep(name, bytes);
        let written =
            kept.and_then(|to| place::replace_file(folder, name, text, 0o644).map(|()| to));
        let action = written.map_or_else(failed, ProtectAction::Cleaned);
        self.found(path, change, action);
    }

    /// True if the pointer file or `commondir` at `key` leads to a scanned folder that is safe: a
    /// `.git`, or a worktree or module in one; a repository that a command created, which is
    /// cleaned; or a repository whose settings and hooks run no program.
    ///
    /// The target of a `commondir` must be a repository: git does not look for a `HEAD` there, so
    /// it would use the settings in any other folder, too.
    pub(super) fn points_to_protected(&self, key: &ProtectedPath, sort: Sort) -> bool {
        let Some((at, target)) = self.pointer_target(key) else { return false };
        if self.leads_through_link(key) {
            return false;
        }
        let scan = &self.roots[at].scan;
        if sort == Sort::Common && !scan.is_repository(&target) {
            return false;
        }
        let is_dot_git =
            |name: Option<&OsStr>| name.is_some_and(|name| protected::is_dot_git(name.as_bytes()));
        let is_part = target.ancestors().skip(1).any(|repository| {
            let part = target.strip_prefix(repository).ok().and_then(|below| below.iter().next());
            is_dot_git(repository.file_name())
                && part.is_some_and(|part| part == "worktrees" || part == "modules")
        });
        is_part
            || is_dot_git(target.file_name())
            || self.is_born(scan.identity(&target))
            || self.has_harmless_settings(at, &target)
    }

    /// True if the repository has neither hooks, nor settings that run programs, nor old files with
    /// addresses. False in doubt.
    fn has_harmless_settings(&self, at: usize, repository: &Path) -> bool {
        let Ok(folder) = self.roots[at].root.open_folder(repository) else { return false };
        let depth = repository.components().count();
        let is_harmless = ["config", "config.worktree"].into_iter().all(|name| {
            match place::read(&folder, Path::new(name), gitconfig::BYTES_MAX) {
                Ok(Some(bytes)) => gitconfig::clean(&bytes, depth)
                    .is_some_and(|cleaned| cleaned.removed.is_empty()),
                Err(Errno::ENOENT) => true,
                Ok(None) | Err(_) => false,
            }
        });
        let has_files = |name: &str| match openat(&folder, name, FOLDER, Mode::empty()) {
            Ok(files) => place::list(&files, HOOKS_MAX).map_or(true, |(listed, is_whole)| {
                let is_sample =
                    |file: &OsStr| name == "hooks" && file.as_bytes().ends_with(b".sample");
                !is_whole || listed.iter().any(|entry| !is_sample(&entry.name))
            }),
            Err(errno) => errno != Errno::ENOENT,
        };
        is_harmless && !["hooks", "remotes", "branches"].into_iter().any(has_files)
    }

    /// Returns the scanned folder to which the pointer file or `commondir` at `key` leads. `None`
    /// if it leads elsewhere, to a root itself, or cannot be read.
    pub(super) fn pointer_target(&self, key: &ProtectedPath) -> Option<ProtectedPath> {
        let real = std::fs::canonicalize(self.pointer_path(key)?).ok()?;
        self.roots.iter().enumerate().find_map(|(at, Watched { root, scan, .. })| {
            let below = real.strip_prefix(&root.path).ok()?;
            let is_scanned = !below.as_os_str().is_empty() && scan.identity(below).is_some();
            is_scanned.then(|| (at, below.into()))
        })
    }

    /// Returns the path in the pointer file or `commondir` at `key`, absolute and not normalised:
    /// links on the way decide where a `..` leads.
    fn pointer_path(&self, key: &ProtectedPath) -> Option<PathBuf> {
        let (folder, name) = self.roots[key.0].root.open_parent(&key.1).ok()?;
        let bytes = place::read(&folder, name, POINTER_BYTES_MAX).ok()??;
        let is_pointer =
            key.1.file_name().is_some_and(|name| protected::is_dot_git(name.as_bytes()));
        let target = references::pointer_text(&bytes, is_pointer)?;
        Some(self.path(key).with_file_name("").join(target))
    }

    /// True if there is a link below a root on the way to the target of the pointer file or
    /// `commondir` at `key`: a later command could let it lead elsewhere.
    fn leads_through_link(&self, key: &ProtectedPath) -> bool {
        let Some(path) = self.pointer_path(key) else { return true };
        let is_inside =
            |link: &PathBuf| self.roots.iter().any(|watched| link.starts_with(&watched.root.path));
        references::links_on_the_way(&path).iter().any(is_inside)
    }

    /// True if the content of the file at `key`, whose name [`harmless::is_judged`], is harmless.
    fn is_harmless_text(&self, key: &ProtectedPath) -> bool {
        let Ok((folder, name)) = self.roots[key.0].root.open_parent(&key.1) else { return false };
        let bytes = place::read(&folder, name, gitconfig::BYTES_MAX).ok().flatten();
        let name = name_of(key);
        bytes.is_some_and(|bytes| {
            harmless::is_harmless(&name, &bytes)
                && (name != b"hgrc" || self.has_harmless_sources(key, &bytes))
        })
    }

    /// True if no repository below a root whose path is in the Mercurial settings `bytes` has
    /// settings that run programs: Mercurial reads those of a repository on this machine that it
    /// pulls from.
    fn has_harmless_sources(&self, key: &ProtectedPath, bytes: &[u8]) -> bool {
        let whole = self.path(key);
        let Some(tree) = whole.parent().and_then(Path::parent) else { return false };
        harmless::local_addresses(bytes).into_iter().all(|address| {
            let path = references::resolve(&tree.join(address));
            let mut roots = self.roots.iter();
            let below = roots.find_map(|watched| path.strip_prefix(&watched.root.path).ok());
            // In folders of package managers later settings would not be found.
            let is_vendored =
                |below: &Path| below.iter().any(|part| protected::is_vendored(part.as_bytes()));
            below.is_none_or(|below| {
                !is_vendored(below) && harmless::has_only_addresses_in(&path.join(".hg"))
            })
        })
    }

    fn move_aside(&mut self, folder: &OwnedFd, name: &Path, path: &Path, what: ProtectedChange) {
        if self.lifted.covers(path) {
            return;
        }
        let action = match self.quarantine.take(folder, name) {
            Ok(to) => ProtectAction::MovedAside(to),
            // It does not exist any more.
            Err(Errno::ENOENT) => return,
            Err(errno) => failed(errno),
        };
        self.found(path, what, action);
    }

    pub(super) fn found(&mut self, path: &Path, what: ProtectedChange, action: ProtectAction) {
        self.findings.push(Finding::new(path.to_owned(), what, action));
    }

    pub(super) fn path(&self, key: &ProtectedPath) -> PathBuf {
        self.roots[key.0].root.path.join(&key.1)
    }
}

fn name_of(key: &ProtectedPath) -> Vec<u8> {
    let name = key.1.file_name().unwrap_or_default();
    protected::fold(name.as_encoded_bytes()).into_owned()
}

/// True if the protected name at `new` means the same as it did at `old`: programs that read a name
/// do not read any other, and git finds a repository by the name `.git`.
fn has_same_role(old: &Path, new: &Path, sort: Sort) -> bool {
    let part = |path: &Path, up: usize| {
        let name = path.iter().rev().nth(up).unwrap_or_default();
        protected::fold(name.as_bytes()).into_owned()
    };
    let is_same_name = part(old, 0) == part(new, 0);
    let has_named_parent = |path: &Path| new_worktrees::is_named_by_parent(path);
    match sort {
        Sort::Name(_) if has_named_parent(old) || has_named_parent(new) => {
            is_same_name && part(old, 1) == part(new, 1)
        }
        Sort::Name(_) | Sort::Pointer | Sort::Environment => is_same_name,
        // The folder of the repository, or one in it, is around these files.
        _ => {
            let is_dot_git = |path, up| part(path, up) == b".git";
            // A repository in another one may be a submodule.
            let is_inside =
                |path: &Path| path.iter().any(|part| protected::is_dot_git(part.as_bytes()));
            is_same_name
                && is_inside(old) == is_inside(new)
                && (1..=2).all(|up| is_dot_git(old, up) == is_dot_git(new, up))
        }
    }
}

fn has_head(repository: &OwnedFd) -> bool {
    Stat::at(repository, Path::new("HEAD")).is_ok_and(|stat| stat.kind != PlaceKind::Folder)
}
