//! The protection of control files and secrets around one run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::sandbox::plan::{Plan, Tier};
use crate::sandbox::protect::{Finding, Held, Protection, Survey};
use crate::sandbox::{RunError, Sandbox, Surroundings};

/// How long what was killed may still be at work.
const DYING_MAX: Duration = Duration::from_millis(2500);

/// The protections of a session, one for each set of roots; commands share them.
#[derive(Debug, Default)]
pub(crate) struct Protections(Mutex<HashMap<Vec<PathBuf>, Arc<Protection>>>);

/// A survey that was made for a run, until the run is over.
pub(crate) struct Guard {
    protection: Arc<Protection>,
    survey: Option<Survey>,
}

impl Sandbox {
    /// Adds to `plan` what is there to be protected. Nothing is protected where nothing confines.
    pub(crate) async fn guard(
        &self,
        plan: &mut Plan,
        scratch: &Path,
    ) -> Result<Option<Guard>, RunError> {
        if plan.tier == Tier::None {
            return Ok(None);
        }
        let failed = |what: String| RunError::NotPrepared {
            reason: format!("protected files could not be looked for: {what}"),
        };
        let protection = self
            .protections
            .of(&self.surroundings, &plan.writable, scratch)
            .map_err(|errno| failed(errno.desc().to_owned()))?;
        let surveyor = Arc::clone(&protection);
        let survey = tokio::task::spawn_blocking(move || surveyor.survey()).await;
        let mut survey = survey.map_err(|error| failed(error.to_string()))?;
        let writable = |path: &&PathBuf| plan.writable.iter().any(|root| path.starts_with(root));
        let read_only: Vec<PathBuf> = survey.read_only.iter().filter(writable).cloned().collect();
        let pinned: Vec<PathBuf> = survey.pinned.iter().filter(writable).cloned().collect();
        plan.read_only.extend(read_only);
        plan.pinned.extend(pinned);
        let known = |path: &&PathBuf| !plan.hidden.contains(path);
        let hidden: Vec<PathBuf> = survey.hidden.iter().filter(known).cloned().collect();
        plan.hidden.extend(hidden);
        survey.held_by(if plan.tier == Tier::Full { Held::ByMounts } else { Held::ByCheck });
        Ok(Some(Guard { protection, survey: Some(survey) }))
    }
}

impl Sandbox {
    /// Secrets that commands could read here: on the reduced tier, those inside the session's
    /// roots. `scratch` is where the temporary folders of its commands are made. Reads folders.
    pub fn exposed_secrets(&self, scratch: &Path) -> std::io::Result<Vec<PathBuf>> {
        if self.backend().tier() != Tier::Reduced {
            return Ok(Vec::new());
        }
        let protection = self.protections.of(&self.surroundings, &[], scratch)?;
        Ok(protection.secrets_inside())
    }
}

impl Guard {
    /// Finds what the command did, when nothing of it lives any more.
    pub(crate) async fn settle(mut self) -> Vec<Finding> {
        let Some(survey) = self.survey.take() else { return Vec::new() };
        let protection = Arc::clone(&self.protection);
        let found = tokio::task::spawn_blocking(move || protection.check_after(survey)).await;
        found.unwrap_or_else(|error| {
            tracing::error!(%error, "what a command did to protected files is not known");
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
        // The command was killed a moment ago, and its last processes are still dying. A command
        // that starts meanwhile looks after what this one did before anything else.
        let check = move || {
            protection.check_given_up(false);
            std::thread::sleep(DYING_MAX);
            protection.check_given_up(true);
        };
        if let Err(error) = std::thread::Builder::new().name("posse-check".into()).spawn(check) {
            tracing::debug!(%error, "the next command is checked for this one");
        }
    }
}

impl Protections {
    /// The protection of everything that a command may write, and of the session's roots.
    fn of(
        &self,
        surroundings: &Surroundings,
        writable: &[PathBuf],
        scratch: &Path,
    ) -> Result<Arc<Protection>, nix::errno::Errno> {
        let resolved = |path: &PathBuf| std::fs::canonicalize(path).ok();
        let mut roots: Vec<PathBuf> =
            surroundings.roots.iter().filter_map(resolved).chain(writable.to_vec()).collect();
        // What is in the command's own temporary folder goes with it.
        let own = std::fs::canonicalize(scratch).unwrap_or_else(|_| scratch.to_owned());
        roots.retain(|root| !root.starts_with(&own));
        roots.sort();
        roots.dedup();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(protection) = known.get(&roots) {
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
        let protection = Protection::new(
            &roots,
            own.clone(),
            home.clone(),
            readable.collect(),
            scratch.with_file_name("quarantine"),
        )?;
        let protection = Arc::new(protection);
        known.insert(roots, Arc::clone(&protection));
        Ok(protection)
    }
}
