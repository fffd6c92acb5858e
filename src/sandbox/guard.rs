//! Protection of control files and secrets during one run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::sandbox::plan::{Plan, Tier};
use crate::sandbox::protect::{Bounds, Finding, Held, Protection, Survey, Written};
use crate::sandbox::scratch::Scratch;
use crate::sandbox::{RunError, Sandbox, Surroundings};

/// Maximum time for killed processes to disappear.
const DYING_MAX: Duration = Duration::from_millis(2500);

/// Number of attempts for an incomplete scan. Each attempt continues where the previous one
/// stopped.
const SURVEYS_MAX: usize = 3;

/// Protections of a session: one per set of roots and unreachable roots, shared by commands.
#[derive(Debug, Default)]
pub(crate) struct Protections {
    known: Mutex<HashMap<Reach, Arc<Protection>>>,
    bounds: Bounds,
    /// Files that our own tools write at the same time.
    pub(crate) written: Written,
}

/// Roots, and the roots that no command can write to.
type Reach = (Vec<PathBuf>, Vec<PathBuf>);

/// Exemptions from protection for one command, granted by the user in a permission request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Besides {
    /// Protected paths that the command may change: absolute, resolved, each with its content.
    pub unprotected: Vec<PathBuf>,
    /// Permits the run although the workspace has more folders than are scanned.
    pub unsurveyed: bool,
}

/// Error when a scan is incomplete and the user has not permitted the run.
const TOO_MUCH: &str = "the workspace has more folders than are looked at, so what is protected or \
     secret in the rest is not held; run it again, and the user is asked about it";

/// Scan made for a run, kept until the run is over.
pub(crate) struct Guard {
    protection: Arc<Protection>,
    survey: Option<Survey>,
    /// Temporary folder of the command, kept until it has been checked.
    scratch: Arc<Scratch>,
}

impl Sandbox {
    /// Adds the protected paths to `plan`. A plan without confinement has no protection.
    pub(crate) async fn guard(
        &self,
        plan: &mut Plan,
        scratch: &Arc<Scratch>,
        besides: Besides,
    ) -> Result<Option<Guard>, RunError> {
        if plan.tier == Tier::None {
            return Ok(None);
        }
        let failed = |what: String| RunError::NotPrepared {
            reason: format!("cannot scan the workspace for protected files: {what}"),
        };
        let own = scratch.path().parent().unwrap_or(scratch.path());
        let protection = self
            .protections
            .of(&self.surroundings, &plan.writable, own)
            .map_err(|errno| failed(errno.desc().to_owned()))?;
        let surveyor = Arc::clone(&protection);
        let Besides { unprotected, unsurveyed } = besides;
        let survey = move || {
            let mut survey = surveyor.survey_without(&unprotected);
            for _ in 1..SURVEYS_MAX {
                if survey.complete || unsurveyed {
                    break;
                }
                surveyor.take_back(survey);
                survey = surveyor.survey_without(&unprotected);
            }
            survey
        };
        let survey = look(&protection, survey).await;
        let mut survey = survey.map_err(|error| failed(error.to_string()))?;
        if !survey.complete && !unsurveyed {
            protection.take_back(survey);
            return Err(RunError::NotPrepared { reason: TOO_MUCH.to_owned() });
        }
        let writable = |path: &&PathBuf| plan.writable.iter().any(|root| path.starts_with(root));
        let read_only: Vec<PathBuf> = survey.read_only.iter().filter(writable).cloned().collect();
        let pinned: Vec<PathBuf> = survey.pinned.iter().filter(writable).cloned().collect();
        plan.read_only.extend(read_only);
        plan.pinned.extend(pinned);
        let known = |path: &&PathBuf| !plan.hidden.contains(path);
        let hidden: Vec<PathBuf> = survey.hidden.iter().filter(known).cloned().collect();
        plan.hidden.extend(hidden);
        survey.held_by(if plan.tier == Tier::Full { Held::ByMounts } else { Held::ByCheck });
        Ok(Some(Guard { protection, survey: Some(survey), scratch: Arc::clone(scratch) }))
    }
}

impl Sandbox {
    /// Lowers the maximum number of scanned folders to `folders`.
    #[must_use]
    pub fn surveying_at_most(mut self, folders: usize) -> Sandbox {
        let bounds = Bounds::default();
        self.protections.bounds = Bounds { folders: folders.min(bounds.folders), ..bounds };
        self
    }

    /// Uses `written` to tell changes by our own tools from changes by a command.
    #[must_use]
    pub fn beside(mut self, written: Written) -> Sandbox {
        self.protections.written = written;
        self
    }

    /// Registry in which tools record workspace files that they change while commands run.
    pub fn written(&self) -> Written {
        self.protections.written.clone()
    }

    /// Returns `true` if the last scan of the workspace, before or after a command, was incomplete.
    /// Protected files and secrets in the rest are not protected.
    pub fn has_lost_sight(&self) -> bool {
        let known = self.protections.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().any(|protection| !protection.is_complete())
    }

    /// Returns `true` if everything below `root` can be scanned. Reads folders for up to some
    /// seconds.
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

    /// Secrets that commands could read: on the reduced tier, those inside the session's roots.
    /// `scratch` is the folder of the commands' temporary folders. Reads folders.
    pub fn exposed_secrets(&self, scratch: &Path) -> std::io::Result<Vec<PathBuf>> {
        if self.backend().tier() != Tier::Reduced {
            return Ok(Vec::new());
        }
        let protection = self.protections.of(&self.surroundings, &[], scratch)?;
        Ok(protection.secrets_inside())
    }
}

/// Scans folders: on this thread if recent scans were very short, because switching threads takes
/// longer than that; otherwise on a blocking thread.
async fn look<T: Send + 'static>(
    protection: &Protection,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    if protection.looks_quickly() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

impl Guard {
    /// Checks the command's changes after all its processes have ended.
    pub(crate) async fn settle(mut self) -> Vec<Finding> {
        let Some(survey) = self.survey.take() else { return Vec::new() };
        let protection = Arc::clone(&self.protection);
        let checker = Arc::clone(&self.protection);
        let found = look(&checker, move || protection.check_after(survey)).await;
        found.unwrap_or_else(|error| {
            tracing::error!(%error, "protected files could not be checked after a command");
            Vec::new()
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.survey.take().is_none() {
            return;
        }
        let protection = Arc::clone(&self.protection);
        let scratch = Arc::clone(&self.scratch);
        // The command was just killed and its last processes may still be running. A command that
        // starts meanwhile performs this check first.
        let check = move || {
            protection.check_given_up(false);
            std::thread::sleep(DYING_MAX);
            protection.check_given_up(true);
            drop(scratch);
        };
        if let Err(error) = std::thread::Builder::new().name("posse-check".into()).spawn(check) {
            tracing::debug!(%error, "check postponed to the next command");
        }
    }
}

impl Protections {
    /// Protection of the writable folders of a command and of the session's roots.
    fn of(
        &self,
        surroundings: &Surroundings,
        writable: &[PathBuf],
        scratch: &Path,
    ) -> Result<Arc<Protection>, nix::errno::Errno> {
        let resolved = |path: &PathBuf| std::fs::canonicalize(path).ok();
        let mut roots: Vec<PathBuf> =
            surroundings.roots.iter().filter_map(resolved).chain(writable.to_vec()).collect();
        // The command's temporary folder is deleted with its content.
        let temporary = std::fs::canonicalize(scratch).unwrap_or_else(|_| scratch.to_owned());
        let lasts = |root: &&PathBuf| !root.starts_with(&temporary);
        roots.retain(|root| lasts(&root));
        roots.sort();
        roots.dedup();
        let reached: Vec<&PathBuf> = writable.iter().filter(lasts).collect();
        let meets = |root: &PathBuf| {
            reached.iter().any(|path| path.starts_with(root) || root.starts_with(path))
        };
        // A command without write access scans all roots: no other mechanism may protect them.
        let beyond = roots.iter().filter(|root| !reached.is_empty() && !meets(root));
        let beyond: Vec<PathBuf> = beyond.cloned().collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (roots, beyond);
        if let Some(protection) = known.get(&key) {
            protection.looks_into(temporary);
            return Ok(Arc::clone(protection));
        }
        let Surroundings { own, home, readable_secrets, .. } = surroundings;
        let base = surroundings.roots.first();
        let readable = readable_secrets.iter().filter_map(|name| {
            let path = match (name.strip_prefix("~"), home) {
                (Ok(below), Some(home)) => home.join(below),
                _ => base.map_or_else(|| PathBuf::from(name), |base| base.join(name)),
            };
            std::fs::canonicalize(path).ok()
        });
        let (roots, beyond) = &key;
        let protection = Protection::new(
            roots,
            own.clone(),
            home.clone(),
            readable.collect(),
            scratch.with_file_name("quarantine"),
        )?;
        let protection = protection.within(self.bounds).beside(self.written.clone());
        let protection = Arc::new(protection.out_of_reach(beyond));
        protection.looks_into(temporary);
        known.insert(key, Arc::clone(&protection));
        Ok(protection)
    }
}
