//! Protection of protected files and secrets while one command runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use posse_actors::event::SandboxTier;
use posse_base::secrets::files::SecretFiles;
use posse_base::secrets::readable::ReadableSecrets;
use posse_base::secrets::{HOME_STORES, is_secret};
use posse_base::threads;
use tokio::sync::watch;

use crate::plan::Plan;
use crate::protect::{
    CoveredSecret, Finding, Protection, ProtectionMethod, ScanBounds, Survey, ToolWrites, Whose,
    marks_folder,
};
use crate::run::CommandPlace;
use crate::temporary::SessionTemporary;
use crate::trial::HiddenPlaces;
use crate::{RunError, Sandbox, Surroundings};

/// Time after a kill at which all processes of a command are assumed to be gone.
const DYING_MAX: Duration = Duration::from_millis(2500);

/// Maximum number of surveys in a row while they are incomplete. Folders are cached, so each survey
/// gets further.
const SURVEYS_MAX: usize = 3;

/// Cache of the [`Protection`]s of a sandbox. Commands with the same roots and unreachable roots
/// share one.
#[derive(Debug, Default)]
pub(crate) struct Protections {
    known: Mutex<HashMap<Reach, Arc<Protection>>>,
    bounds: ScanBounds,
    /// Registry of writes by posse's own tools, which a check does not attribute to commands.
    pub(crate) written: ToolWrites,
    /// Registry of the secrets that scans have found.
    secret_files: SecretFiles,
}

/// Cache key of a protection: all roots, and those among them that its commands cannot write to.
/// The second list is empty for commands that can write to no root.
type Reach = (Vec<PathBuf>, Vec<PathBuf>);

/// Exemptions of one command that a person approved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exemptions {
    /// Protected paths that the command may change: absolute and resolved, each including its
    /// contents.
    pub unprotected: Vec<PathBuf>,
    /// True if the command may run although the survey is incomplete, because the workspace is too
    /// large; false if it then does not run.
    pub unsurveyed: bool,
}

/// Error text for a command that does not run because the survey is incomplete.
const TOO_MUCH: &str = "the workspace has more folders than are scanned, or more repositories than can be protected, so protected and \
     secret files in the rest are not protected from the command; run it again, and the user is asked about it";

/// Error about secrets that are moved while they are looked for.
const UNSETTLED: &str = "hidden files were moved or removed while the command was prepared, so they could not be covered; \
     run the command again";

/// Receiver of findings that no outcome contains, because the command was cancelled or its end is
/// an error. It is called on any thread, also after the future of the command was dropped, and must
/// not block.
#[derive(Clone)]
pub struct LateFindings(Arc<dyn Fn(Vec<Finding>) + Send + Sync>);

impl LateFindings {
    /// Creates a receiver that calls `hear` with findings, which are never empty.
    pub fn new(hear: impl Fn(Vec<Finding>) + Send + Sync + 'static) -> LateFindings {
        LateFindings(Arc::new(hear))
    }

    pub(crate) fn report(&self, findings: Vec<Finding>) {
        if !findings.is_empty() {
            (self.0)(findings);
        }
    }
}

impl Default for LateFindings {
    /// Creates a receiver that writes findings to the log.
    fn default() -> LateFindings {
        LateFindings::new(|findings| {
            for finding in findings {
                tracing::warn!(%finding, "a protected file was changed");
            }
        })
    }
}

impl fmt::Debug for LateFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateFindings").finish_non_exhaustive()
    }
}

/// Number of checks of cancelled commands whose findings are not reported yet. One for the process:
/// a session has a sandbox for each isolated workspace, and waits for all of them.
static PENDING_CHECKS: LazyLock<watch::Sender<usize>> = LazyLock::new(watch::Sender::default);

/// Guard that counts a check in `PENDING_CHECKS` while it exists.
struct PendingCheck;

impl PendingCheck {
    fn begin() -> PendingCheck {
        PENDING_CHECKS.send_modify(|pending| *pending += 1);
        PendingCheck
    }
}

impl Drop for PendingCheck {
    fn drop(&mut self) {
        PENDING_CHECKS.send_modify(|pending| *pending -= 1);
    }
}

/// Waits until the first check of each cancelled command is reported, at most for `time`; logs a
/// warning if that is over.
pub async fn cancelled_checks(time: Duration) {
    let mut pending = PENDING_CHECKS.subscribe();
    let none_left = pending.wait_for(|pending| *pending == 0);
    if tokio::time::timeout(time, none_left).await.is_err() {
        tracing::warn!("what a cancelled command did to protected files is not known yet");
    }
}

/// Survey of protected files for one command. [`Guard::check_effects`] consumes it after the
/// command. If the guard is dropped instead, the effects are checked in the background.
pub(crate) struct Guard {
    protection: Arc<Protection>,
    survey: Option<Survey>,
    /// Temporary folder of the session. It exists until the check is done.
    temporary: Arc<SessionTemporary>,
    /// Receiver of the findings if the guard is dropped. `None`: the next check reports them.
    pub(crate) late: Option<LateFindings>,
    /// True for a command in a trial. It cannot change the workspace, so changes there are made by
    /// others and there is no check.
    is_of_trial: bool,
    /// Places of the secrets that are hidden from a command in a trial.
    places: Option<HiddenPlaces>,
}

impl Sandbox {
    /// Surveys protected files and secrets, and adds them to `plan`. Returns `None` without a
    /// sandbox, where nothing is protected. Fails if the survey is incomplete after [`SURVEYS_MAX`]
    /// attempts and `besides` does not permit that, or if a root cannot be opened.
    pub(crate) async fn guard(
        &self,
        plan: &mut Plan,
        place: CommandPlace<'_>,
        besides: Exemptions,
    ) -> Result<Option<Guard>, RunError> {
        let temporary = place.temporary;
        if plan.tier == SandboxTier::None {
            return Ok(None);
        }
        let failed = |what: String| RunError::NotPrepared { reason: not_looked_for(&what) };
        let protection = self
            .protections
            .of(&self.surroundings, &plan.writable, place.scratch)
            .map_err(|errno| failed(errno.desc().to_owned()))?;
        let surveyor = Arc::clone(&protection);
        let Exemptions { unprotected, unsurveyed } = besides;
        let survey = Arc::new(move || {
            let mut survey = surveyor.survey_without(&unprotected);
            for _ in 1..SURVEYS_MAX {
                if survey.complete || (unsurveyed && survey.exhausted.is_none()) {
                    break;
                }
                surveyor.take_back(survey);
                survey = surveyor.survey_without(&unprotected);
            }
            survey
        });
        let first = Arc::clone(&survey);
        let found = run_scan(&protection, move || first()).await;
        let mut found = found.map_err(|error| failed(error.to_owned()))?;
        let undecided = std::mem::take(&mut found.undecided);
        // On the reduced tier the files of the workspace stay visible.
        if !undecided.is_empty() && plan.tier == SandboxTier::Full {
            let hidden = std::mem::take(&mut found.hidden);
            protection.take_back(found);
            let committed = self.committed(undecided, place, &hidden).await;
            let decider = Arc::clone(&protection);
            let again = threads::run(move || {
                decider.decide(committed);
                survey()
            });
            found = again.await.map_err(|_| failed("the scan crashed".to_owned()))?;
        }
        let mut survey = found;
        if let Some(reason) = obstacle(&survey, unsurveyed) {
            protection.take_back(survey);
            return Err(RunError::NotPrepared { reason });
        }
        let writable = |path: &&PathBuf| plan.writable.iter().any(|root| path.starts_with(root));
        let read_only: Vec<PathBuf> = survey.read_only.iter().filter(writable).cloned().collect();
        let pinned: Vec<PathBuf> = survey.pinned.iter().filter(writable).cloned().collect();
        plan.read_only.extend(read_only);
        plan.pinned.extend(pinned);
        cover_secrets(plan, &mut survey);
        let is_of_trial = !plan.overlays.is_empty();
        let places = match watched_places(plan) {
            Ok(places) => places,
            Err(reason) => {
                protection.take_back(survey);
                return Err(RunError::NotPrepared { reason });
            }
        };
        let temporary = Arc::clone(temporary);
        let survey = Some(survey);
        Ok(Some(Guard { protection, survey, temporary, late: None, is_of_trial, places }))
    }

    /// Limits the number of folders that one scan visits below one root to `folders`. A number
    /// above the default has no effect.
    #[must_use]
    pub fn with_scan_limit(mut self, folders: usize) -> Sandbox {
        let bounds = ScanBounds::default();
        self.protections.bounds = ScanBounds { folders: folders.min(bounds.folders), ..bounds };
        self
    }

    /// Uses `written` as the registry of writes by posse's own tools, which a check does not
    /// attribute to commands.
    #[must_use]
    pub fn tracking(mut self, written: ToolWrites) -> Sandbox {
        self.protections.written = written;
        self
    }

    /// Uses `secret_files` as the registry of the secrets that scans find, instead of one of its
    /// own.
    #[must_use]
    pub fn registering(mut self, secret_files: SecretFiles) -> Sandbox {
        self.protections.secret_files = secret_files;
        self
    }

    /// Returns the registry of the secrets that scans have found, for the file tools.
    pub fn secret_files(&self) -> SecretFiles {
        self.protections.secret_files.clone()
    }

    /// Returns the registry in which tools record their writes to workspace files.
    pub fn written(&self) -> ToolWrites {
        self.protections.written.clone()
    }

    /// True if the last scan of any set of roots, before or after a command, was incomplete:
    /// protected files and secrets in folders that were not scanned are not guarded. False before
    /// the first scan, and after one that lacked descriptors or memory: the next one may succeed.
    pub fn scan_incomplete(&self) -> bool {
        let known = self.protections.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().any(|protection| !protection.is_complete())
    }

    /// True if one of at most three surveys in a row covers all folders below `root` within the
    /// scan limits. `scratch`: temporary folder of the session, which is left out. Reads folders,
    /// which blocks for some seconds. Fails if `root` cannot be opened.
    pub fn sees_all_of(&self, root: &Path, scratch: &Path) -> std::io::Result<bool> {
        let surroundings = Surroundings { roots: vec![root.to_owned()], ..Surroundings::default() };
        let protection = self.protections.of(&surroundings, &[], scratch)?;
        let mut looked = (0..SURVEYS_MAX).map(|_| {
            let survey = protection.survey();
            let is_complete = survey.complete;
            protection.take_back(survey);
            is_complete
        });
        Ok(looked.any(|is_complete| is_complete))
    }

    /// True if the sandbox of this host hides `path` from commands because its name below a root is
    /// that of a secret, or because it is a credential store of the home folder. False for paths
    /// below such a store, if `path` is one of the readable secrets or matches a pattern of them, and for a tracked
    /// file that the last command saw because it is as in the commit
    /// ([`Sandbox::decide_tracked`]).
    pub fn hides(&self, path: &Path) -> bool {
        let Surroundings { roots, home, readable_secrets, .. } = &self.surroundings;
        let tier = self.backend().tier();
        if ReadableSecrets::new(readable_secrets.iter().cloned()).contains(path) {
            let found = path.symlink_metadata();
            return found.is_ok_and(|found| self.protections.secret_files.is_withheld(&found));
        }
        let below_root = roots.iter().find_map(|root| path.strip_prefix(root).ok());
        let below_home = home.as_ref().and_then(|home| path.strip_prefix(home).ok());
        let in_root = below_root.is_some_and(|path| is_secret(&path.to_string_lossy()));
        let in_home =
            below_home.is_some_and(|path| HOME_STORES.iter().any(|store| path == Path::new(store)));
        let is_shown = || {
            let known = self.protections.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.values().any(|protection| protection.shows(path))
        };
        match tier {
            SandboxTier::Full => in_home || (in_root && !is_shown()),
            SandboxTier::Reduced => in_home && below_root.is_none(),
            SandboxTier::None | SandboxTier::Unknown(_) => false,
        }
    }

    /// True if `file`, which was found at `path` and has the name of a secret, is as in the commit,
    /// so that commands see it as it is, as of the last decision ([`Sandbox::decide_tracked`]). False
    /// below the full tier.
    pub fn shows_committed(&self, path: &Path, file: BorrowedFd<'_>) -> bool {
        let known = self.protections.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.backend().tier() == SandboxTier::Full
            && known.values().any(|protection| protection.shows_open_file(path, file))
    }

    /// As [`Sandbox::shows_committed`], for the file that is at `path` now.
    pub fn shows_committed_at(&self, path: &Path) -> bool {
        let known = self.protections.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.backend().tier() == SandboxTier::Full
            && known.values().any(|protection| protection.shows(path))
    }

    /// As [`Sandbox::hides`], but false for a file whose registry settings commands see without the
    /// credentials in it, as of the last command.
    pub fn hides_registry(&self, path: &Path) -> bool {
        let known = || self.protections.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = self.backend().tier() == SandboxTier::Full;
        let is_shown = || known().values().any(|protection| protection.shows_registry(path));
        self.hides(path) && !(is_full && is_shown())
    }

    /// Returns the secrets and posse folders inside the session's roots that commands can read,
    /// because the reduced tier cannot hide them. Empty on any other tier, even without a sandbox.
    /// `scratch` is the temporary folder of the session. Reads folders, which blocks. Fails if a root cannot be opened.
    pub fn exposed_secrets(&self, scratch: &Path) -> std::io::Result<Vec<PathBuf>> {
        if self.backend().tier() != SandboxTier::Reduced {
            return Ok(Vec::new());
        }
        let protection = self.protections.of(&self.surroundings, &[], scratch)?;
        let Surroundings { roots, own, .. } = &self.surroundings;
        let inside = |path: &&PathBuf| roots.iter().any(|root| path.starts_with(root));
        let mut exposed = protection.secrets_inside();
        exposed.extend(own.iter().filter(inside).cloned());
        Ok(exposed)
    }
}

/// Runs `work`, which scans folders, on this thread if recent scans were shorter than a switch of
/// threads takes; otherwise on another one.
async fn run_scan<T: Send + 'static>(
    protection: &Protection,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, &'static str> {
    if protection.is_scan_fast() {
        return Ok(work());
    }
    threads::run(work).await.map_err(|_| "the scan crashed")
}

impl Guard {
    /// Returns the secrets that the command does not see as they are, once.
    pub(crate) fn take_covered(&mut self) -> Vec<CoveredSecret> {
        self.survey.as_mut().map(|survey| std::mem::take(&mut survey.covered)).unwrap_or_default()
    }

    /// Ends the protection of a command that does not run.
    pub(crate) fn take_back(mut self) {
        if let Some(survey) = self.survey.take() {
            self.protection.take_back(survey);
        }
    }

    /// Returns a secret, or a folder above one, that was moved or changed while the command ran in a
    /// trial.
    pub(crate) fn moved_secret(&self) -> Option<&Path> {
        self.places.as_ref()?.changed()
    }

    /// Checks protected files after the command, reacts to changes, and returns them. All processes
    /// of the command must be gone. Empty also if the check failed, which is logged.
    pub(crate) async fn check_effects(mut self) -> Vec<Finding> {
        let Some(survey) = self.survey.take() else { return Vec::new() };
        if self.is_of_trial {
            self.protection.take_back(survey);
            return Vec::new();
        }
        let protection = Arc::clone(&self.protection);
        let checker = Arc::clone(&self.protection);
        let found = run_scan(&checker, move || protection.check_after(survey)).await;
        found.unwrap_or_else(|error| {
            tracing::error!(%error, "what a command did to protected files is not known");
            Vec::new()
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(survey) = self.survey.take() else { return };
        if self.is_of_trial {
            self.protection.take_back(survey);
            return;
        }
        let held = survey.held;
        // Makes a check due.
        drop(survey);
        let protection = Arc::clone(&self.protection);
        let temporary = Arc::clone(&self.temporary);
        let late = self.late.take();
        let pending = late.is_some().then(PendingCheck::begin);
        // The command was killed just before, and its last processes are still ending. A command
        // that starts meanwhile first checks the effects of this one.
        let check = move || {
            if let Some(late) = late {
                check_cancelled(&protection, held, |findings| late.report(findings), pending);
            } else {
                protection.check_given_up(false);
                std::thread::sleep(DYING_MAX);
                protection.check_given_up(true);
            }
            drop(temporary);
        };
        if let Err(error) = std::thread::Builder::new().name("posse-check".into()).spawn(check) {
            tracing::debug!(%error, "the next command is checked for this one");
        }
    }
}

/// Checks the effects of a cancelled command and reports the findings: at once, which ends
/// `pending`, and again when its last processes are gone.
fn check_cancelled(
    protection: &Arc<Protection>,
    held: ProtectionMethod,
    report: impl Fn(Vec<Finding>),
    pending: Option<PendingCheck>,
) {
    // The first survey makes the check that is due, unless other commands are running. The second
    // one keeps its baseline for the processes that are still ending.
    let surveys = [protection.survey(), protection.survey()];
    let [first, second] = surveys.map(|mut survey| {
        survey.held = held;
        survey
    });
    let check = |survey| {
        let findings = protection.check_after(survey).into_iter();
        report(findings.map(|finding| Finding { whose: Whose::Earlier, ..finding }).collect());
    };
    check(first);
    drop(pending);
    std::thread::sleep(DYING_MAX);
    check(second);
}

impl Protections {
    /// Returns the protection of the session's roots and of the `writable` folders, from the cache
    /// if possible. The folder `scratch`, the temporary folder of the session, is left out; it is
    /// only searched for moved repositories. Fails if a root cannot be opened.
    fn of(
        &self,
        surroundings: &Surroundings,
        writable: &[PathBuf],
        scratch: &Path,
    ) -> Result<Arc<Protection>, nix::errno::Errno> {
        let resolved = |path: &PathBuf| std::fs::canonicalize(path).ok();
        let mut roots: Vec<PathBuf> =
            surroundings.roots.iter().filter_map(resolved).chain(writable.to_vec()).collect();
        // The temporary folder is removed with the session.
        let temporary = std::fs::canonicalize(scratch).unwrap_or_else(|_| scratch.to_owned());
        let lasts = |root: &&PathBuf| !root.starts_with(&temporary);
        roots.retain(|root| lasts(&root));
        roots.sort();
        roots.dedup();
        let reached: Vec<&PathBuf> = writable.iter().filter(lasts).collect();
        let meets = |root: &PathBuf| {
            reached.iter().any(|path| path.starts_with(root) || root.starts_with(path))
        };
        // A read-only command is surveyed everywhere, because no mount may hold anything else.
        let beyond = roots.iter().filter(|root| !reached.is_empty() && !meets(root));
        let beyond: Vec<PathBuf> = beyond.cloned().collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (roots, beyond);
        if let Some(protection) = known.get(&key) {
            protection.also_scan(temporary);
            return Ok(Arc::clone(protection));
        }
        let Surroundings { own, home, readable_secrets, .. } = surroundings;
        let base = surroundings.roots.first();
        let readable = readable_secrets.iter().map(|name| match (name.strip_prefix("~"), home) {
            (Ok(below), Some(home)) => home.join(below),
            _ => base.map_or_else(|| PathBuf::from(name), |base| base.join(name)),
        });
        let (roots, beyond) = &key;
        let mut protection = Protection::new(
            roots,
            own.clone(),
            home.clone(),
            readable.collect(),
            scratch.with_file_name("quarantine"),
        )?;
        (protection.bounds, protection.written) = (self.bounds, self.written.clone());
        let protection = protection.registering(self.secret_files.clone());
        let protection = protection.with_config_home(surroundings.config_home.clone());
        let mut protection = protection.for_read_only_roots(beyond);
        if let Some(state) = surroundings.projects.as_ref().and_then(|projects| projects.parent()) {
            protection = protection.marking(marks_folder(state));
        }
        let protection = Arc::new(protection);
        protection.also_scan(temporary);
        known.insert(key, Arc::clone(&protection));
        Ok(protection)
    }
}

/// Adds the secrets of `survey`, and what commands see in their places, to `plan`.
fn cover_secrets(plan: &mut Plan, survey: &mut Survey) {
    // Those of the survey exist; the others may not.
    let in_reach = |path: &Path| plan.writable.iter().any(|root| path.starts_with(root));
    plan.hidden.retain(|path| !in_reach(path) || path.symlink_metadata().is_ok());
    let known = |path: &&PathBuf| !plan.hidden.contains(path);
    let hidden: Vec<PathBuf> = survey.hidden.iter().filter(known).cloned().collect();
    plan.hidden.extend(hidden);
    if plan.tier == SandboxTier::Full {
        survey.held = ProtectionMethod::ByMounts;
        plan.replaced = std::mem::take(&mut survey.replaced);
        let is_replaced = |path: &PathBuf| plan.replaced.iter().any(|file| file.target == *path);
        plan.hidden.retain(|path| !is_replaced(path));
        let targets = plan.replaced.iter().map(|file| &file.target);
        let covered: BTreeSet<&PathBuf> = plan.hidden.iter().chain(targets).collect();
        let known = survey.identities.iter().filter(|(path, _)| covered.contains(path));
        plan.identities = known.map(|(path, found)| (path.clone(), found.numbers())).collect();
    } else {
        survey.covered.clear();
    }
}

/// Watches the secrets below the overlays of a trial, in which the files have other numbers. The others
/// are compared when they are covered.
fn watched_places(plan: &mut Plan) -> Result<Option<HiddenPlaces>, String> {
    let in_trial = |path: &Path| plan.overlays.iter().any(|layer| path.starts_with(&layer.root));
    let (watched, compared): (BTreeMap<_, _>, BTreeMap<_, _>) =
        std::mem::take(&mut plan.identities).into_iter().partition(|(path, _)| in_trial(path));
    plan.identities = compared;
    HiddenPlaces::of(&watched, &plan.writable)
}

/// Reason for which a command cannot run with this survey. `unsurveyed`: it may be incomplete.
fn obstacle(survey: &Survey, unsurveyed: bool) -> Option<String> {
    if let Some(errno) = survey.exhausted {
        return Some(not_looked_for(errno.desc()));
    }
    if !survey.complete && !unsurveyed {
        return Some(TOO_MUCH.to_owned());
    }
    survey.is_unsettled.then(|| UNSETTLED.to_owned())
}

fn not_looked_for(why: &str) -> String {
    format!("protected files could not be looked for: {why}")
}

#[cfg(test)]
mod tests;
