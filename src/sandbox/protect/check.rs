//! Finds the effects of a command on protected names, and restores, moves aside, cleans or reports
//! them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use posse_base::protected;

use crate::protect::baseline::{Baseline, BaselineItem, is_covered};
use crate::protect::exemptions::Lifted;
use crate::protect::finding::{Finding, ProtectAction, ProtectedChange, add_findings};
use crate::protect::git_files::has_head;
use crate::protect::gitconfig;
use crate::protect::harmless;
use crate::protect::look_alikes::steers;
use crate::protect::new_worktrees;
use crate::protect::place::{Identity, PlaceKind, Stat};
use crate::protect::scan::ScanBounds;
use crate::protect::sort::{ProtectedItem, Sort};
use crate::protect::state::State;
use crate::protect::tool_writes::Log;
use crate::protect::{GuardState, ProtectedPath, ProtectionMethod, RanBeside};

/// Number of rounds that a check has in any case. A round follows if the previous one changed
/// something: what it moved may have hidden more, and processes may still be running. The first one
/// is repeated with enlarged scan limits if its scan is incomplete and the one before the command was
/// complete.
const ROUNDS_MIN: usize = 8;

/// Longest time in which further rounds begin. A command can nest what it hides in many levels, of
/// which a round finds one.
const ROUNDS_TIME: Duration = Duration::from_secs(30);

/// The same while other commands run, which may change something each time.
const ROUNDS_TIME_BESIDE: Duration = Duration::from_secs(5);

/// Longest time by which the clock of a file system lags behind.
pub(super) const CLOCK_TICK: Duration = Duration::from_millis(20);

/// Maximum number of times that a check moves repositories back and scans again. A moved repository
/// may contain others, whose places are known only after the scan.
const MOVES_MAX: usize = 64;

impl GuardState {
    /// Compares the protected names with the baseline, and handles the differences in rounds until
    /// one changes nothing, for at most [`ROUNDS_TIME`]. Discards the baseline if no command is
    /// running. Returns the findings.
    pub(super) fn handle_differences(
        &mut self,
        held: ProtectionMethod,
        bounds: ScanBounds,
        log: &Log,
    ) -> Vec<Finding> {
        let Some(baseline) = self.baseline.clone() else { return Vec::new() };
        self.beside.others |=
            self.marks.as_ref().is_some_and(|marks| marks.others_since().is_some());
        let mut findings: Vec<Finding> = Vec::new();
        let mut bounds = bounds;
        let mut is_settled = false;
        self.rounds = 0;
        let begin = Instant::now();
        let time_max = if self.running == 0 { ROUNDS_TIME } else { ROUNDS_TIME_BESIDE };
        for round in 0.. {
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
            if is_settled || (round + 1 >= ROUNDS_MIN && begin.elapsed() > time_max) {
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
        let is_known = |key: &ProtectedPath, text: &PathBuf| {
            baseline.uncertain_links.get(key).is_some_and(|before| before == text)
        };
        let links = self.uncertain_links().filter(|(key, text)| !is_known(key, text));
        let links = links.map(|(key, _)| {
            let change = ProtectedChange::UncertainLink;
            Finding::new(self.path(&key), change, ProtectAction::Left)
        });
        add_findings(&mut findings, links.collect());
        let programs = self.search_path.hiding_programs().into_iter();
        let new = programs.filter(|(path, now)| baseline.hiding_programs.get(path) != Some(now));
        let new = new.map(|(path, _)| {
            Finding::new(path, ProtectedChange::HidesProgram, ProtectAction::Left)
        });
        add_findings(&mut findings, new.collect());
        if self.running == 0 {
            self.baseline = None;
            self.owed = None;
            self.lifted = Lifted::default();
            self.beside = RanBeside::default();
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
            let is_held = before.is_some_and(|before| {
                self.is_held(&key, before, (baseline, held))
                    && !before.state.as_ref().is_some_and(State::has_links)
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
        let (repositories, mut others): (Vec<_>, Vec<_>) =
            now.iter().partition(|(_, current)| current.sort == Sort::Repository);
        let dismantled = self.note_new_repositories(baseline, &now, &repositories);
        self.rounds += 1;
        self.note_new_worktrees(baseline, &now);
        // The next round judges what is protected without the repository.
        others.retain(|((root, path), current)| {
            let mut around = dismantled.iter().filter(|(at, _)| at == root);
            !around.any(|(_, folder)| steers(current.sort) && is_in(path, folder))
        });
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
                Some(before) => self.changed(key, before, current, (baseline, held)),
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
        self.check_ways(baseline, &now);
        let mut findings = std::mem::take(&mut self.findings);
        findings.extend(self.lost(baseline, &now));
        findings
    }

    /// Records those of `repositories` that are new. Returns those that are no longer repositories,
    /// because they were folders of the user.
    fn note_new_repositories(
        &mut self,
        baseline: &Baseline,
        now: &BTreeMap<ProtectedPath, BaselineItem>,
        repositories: &[(&ProtectedPath, &BaselineItem)],
    ) -> Vec<ProtectedPath> {
        let mut dismantled = Vec::new();
        for (key, current) in repositories {
            if self.is_known_repository(baseline, key) || self.was_out_of_sight(baseline, key) {
                continue;
            }
            if self.rounds == 0 && self.dismantle(baseline, now, key) {
                dismantled.push((*key).clone());
            } else {
                self.born.insert(current.identity, (*key).clone());
            }
        }
        dismantled
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
        during: (&Baseline, ProtectionMethod),
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
        if !is_linked && self.may_change(key, before, (old, new), during) {
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

    /// True if no command since `baseline` could write the file of `before` at `key`: each had it mounted
    /// read-only. Of several commands, also of other sessions, one may have moved a folder around it
    /// while another started, which then had no mount there.
    fn is_held(
        &self,
        key: &ProtectedPath,
        before: &BaselineItem,
        (baseline, held): (&Baseline, ProtectionMethod),
    ) -> bool {
        before.is_mounted
            && held == ProtectionMethod::ByMounts
            && !((self.beside.own || self.beside.others) && self.may_have_moved(key, baseline.time))
    }

    /// True if a folder between the root and `key` may have been renamed or replaced since `time`.
    fn may_have_moved(&self, key: &ProtectedPath, time: SystemTime) -> bool {
        let time = time.checked_sub(CLOCK_TICK).unwrap_or(time);
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let begin = (since.as_secs().cast_signed(), i64::from(since.subsec_nanos()));
        let root = &self.roots[key.0].root;
        let mut above = key.1.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
        above.any(|path| {
            let opened = root.open_parent(path);
            let stat = opened.and_then(|(folder, name)| Stat::at(&folder, name));
            // A folder that is renamed counts as changed itself.
            stat.map_or(true, |stat| stat.kind != PlaceKind::Folder || stat.changed >= begin)
        })
    }

    /// True if the change of the protected name from the state `old` to `new` is harmless, or another
    /// program made it.
    fn may_change(
        &self,
        key: &ProtectedPath,
        before: &BaselineItem,
        (old, new): (&State, &State),
        during: (&Baseline, ProtectionMethod),
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
        let is_held = self.is_held(key, before, during) && !old.has_links() && !new.has_links();
        (is_held && !self.lifted.reaches_into(&self.path(key)))
            || (harmless::is_judged(&name_of(key)) && self.is_harmless_text(key))
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

    pub(super) fn found(&mut self, path: &Path, what: ProtectedChange, action: ProtectAction) {
        self.findings.push(Finding::new(path.to_owned(), what, action));
    }

    pub(super) fn path(&self, key: &ProtectedPath) -> PathBuf {
        self.roots[key.0].root.path.join(&key.1)
    }
}

/// True if `path` is directly in the repository `folder`, or in a folder there, such as `info`.
fn is_in(path: &Path, folder: &Path) -> bool {
    path.strip_prefix(folder).is_ok_and(|rest| rest.components().count() <= 2)
}

/// Name of the file at `key`, folded as file systems may treat it.
pub(super) fn name_of(key: &ProtectedPath) -> Vec<u8> {
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
