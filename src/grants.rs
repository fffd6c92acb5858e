//! Grants that outlive a session. They are stored in a signed file of the state directory. Each use
//! checks if the file has changed, and verifies it then; a file that fails is not used.
//!
//! A grant expires by the wall clock; setting the clock back does not restore it. Verification is
//! in `src/signed_store.rs`; ADR 0009 describes its limits.

pub mod commands;
mod stored_grants;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posse_actors::event::{Grant, SandboxTier, Scope};
use posse_actors::ports::{ActiveGrants, BoxError, GrantStore, GrantTime, PortFuture};

use crate::failure::Failure;
use crate::project::Identity;
use crate::signed_store::{FileStamp, SignedStore};
use crate::threads;

pub use stored_grants::{GrantFile, StoredGrant};

/// Name of the grants file in the signed store.
pub(crate) const FILE: &str = "grants";

/// Settings of stored grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantSettings {
    /// Widest scope that is offered and that a stored grant may have in order to apply. `Session`:
    /// no grant is stored, and stored ones do not apply.
    pub widest: Scope,
    /// Maximum lifetime of a grant in milliseconds, also of grants that are stored already. 0: no
    /// grant is stored, and stored ones do not apply.
    pub ttl_ms: u64,
    /// Sandbox tier of commands on this host. A grant for commands that was given in a stronger
    /// tier does not apply.
    pub tier: SandboxTier,
}

/// Stored grants for one session: those of its project, and global ones.
#[derive(Debug, Clone)]
pub struct Grants {
    shared: Arc<GrantsState>,
}

#[derive(Debug)]
struct GrantsState {
    store: SignedStore,
    /// Project of the session. `None`: it could not be identified, so no grant of a project is
    /// valid.
    project: Option<Identity>,
    settings: GrantSettings,
    seen: Mutex<LastRead>,
}

/// Result of the last reading of the grants file.
#[derive(Debug, Default)]
struct LastRead {
    stamp: Option<FileStamp>,
    /// Content of the file. Empty if verification failed.
    stored: GrantFile,
    /// Reason why verification failed. `None` if it succeeded.
    tamper_error: Option<String>,
    /// Highest generation of the file that was verified so far.
    generation: u64,
    /// Time of the first use, by the wall clock and the monotonic clock.
    began: Option<GrantTime>,
    /// Valid grants, and the time in milliseconds since 1970 until which the list is valid.
    standing: (Arc<[Grant]>, u64),
    /// Alarm at the last use: verification failed, or the clock was set back. It is not reported
    /// again. `None`: there was no alarm.
    said: Option<String>,
}

impl Grants {
    /// Creates the grants of a session in `project`. Nothing is read yet.
    pub fn new(store: SignedStore, project: Option<Identity>, settings: GrantSettings) -> Grants {
        let seen = Mutex::default();
        Grants { shared: Arc::new(GrantsState { store, project, settings, seen }) }
    }
}

impl GrantStore for Grants {
    fn active_grants(&self, now: GrantTime) -> ActiveGrants {
        if self.widest_scope() <= Scope::Session {
            return ActiveGrants::default();
        }
        self.shared.active_grants(now)
    }

    fn widest_scope(&self) -> Scope {
        if self.shared.settings.ttl_ms == 0 {
            return Scope::Session;
        }
        self.shared.settings.widest
    }

    fn keep(&self, grant: Grant, now: GrantTime) -> PortFuture<Result<(), BoxError>> {
        let shared = Arc::clone(&self.shared);
        // Writing to a disk can block.
        let kept = threads::run(move || shared.keep(grant, now));
        Box::pin(async move {
            let kept = kept.await.map_err(|_| "storing the grant crashed")?;
            Ok(kept.map_err(|failure| in_one_line(&failure))?)
        })
    }
}

impl GrantsState {
    fn active_grants(&self, now: GrantTime) -> ActiveGrants {
        let mut seen = self.last_read();
        let alarm = self.reload_if_changed(&mut seen).err();
        let time = seen.time(now);
        // Without stored grants, a clock that was set back does no harm.
        let kept = !seen.stored.grants.is_empty();
        let alarm = alarm.or_else(|| time.clone().err().filter(|_| kept));
        let grants = match (&alarm, time) {
            (None, Ok(time)) => self.current(&mut seen, time),
            _ => Arc::default(),
        };
        ActiveGrants { grants, alarm: seen.report_once(alarm) }
    }

    /// Reads the file again if it has changed. An error is an alarm: the file is not trusted.
    fn reload_if_changed(&self, seen: &mut LastRead) -> Result<(), String> {
        let stamp = self.store.stamp(FILE);
        if seen.stamp != Some(stamp) {
            seen.standing = (Arc::default(), 0);
            (seen.stamp, seen.stored) = (Some(stamp), GrantFile::default());
            seen.tamper_error = self.read(seen).err();
        }
        seen.tamper_error.clone().map_or(Ok(()), Err)
    }

    fn read(&self, seen: &mut LastRead) -> Result<(), String> {
        let opened = self.store.read(FILE).map_err(|error| error.line())?;
        seen.stamp = Some(opened.stamp);
        let tampered = |what: &str| {
            let path = self.store.path(FILE).display().to_string();
            format!("CFG010: refusing to trust {path}: {what}; `posse grants clear` starts over")
        };
        let Some(text) = opened.text else {
            // Posse empties the file and never removes it.
            return if seen.generation == 0 {
                Ok(())
            } else {
                Err(tampered("it was removed while a session used it"))
            };
        };
        let stored = GrantFile::parse(&text).ok_or_else(|| tampered("it is damaged"))?;
        if stored.generation < seen.generation {
            return Err(tampered("an older version was put in its place"));
        }
        seen.generation = stored.generation;
        seen.stored = stored;
        Ok(())
    }

    /// Returns the grants that are valid at `time`, and removes expired ones from the file.
    fn current(&self, seen: &mut LastRead, time: u64) -> Arc<[Grant]> {
        let (grants, until) = &seen.standing;
        if time < *until {
            return Arc::clone(grants);
        }
        let ttl = self.settings.ttl_ms;
        if seen.stored.grants.iter().any(|kept| kept.ends_ms(ttl) <= time) {
            // An expired grant must not return with another clock. If the removal cannot be
            // written, it stays invalid in this process.
            self.remove_expired(time).ok();
            seen.stored.grants.retain(|kept| kept.ends_ms(ttl) > time);
        }
        let until = seen.stored.grants.iter().map(|kept| kept.ends_ms(ttl)).min();
        let here = |kept: &&StoredGrant| kept.counts_in(self.project.as_ref());
        let counts = |kept: &&StoredGrant| here(kept) && kept.counts_within(&self.settings.tier);
        let grants = seen.stored.grants.iter().filter(counts).map(|kept| kept.grant.clone());
        let grants: Arc<[Grant]> =
            grants.filter(|grant| grant.scope <= self.settings.widest).collect();
        seen.standing = (Arc::clone(&grants), until.unwrap_or(u64::MAX));
        grants
    }

    fn remove_expired(&self, time: u64) -> Result<(), Failure> {
        let ttl = self.settings.ttl_ms;
        self.store.update(FILE, |text| {
            let mut stored = GrantFile::read(text)?;
            let before = stored.grants.len();
            stored.grants.retain(|kept| kept.ends_ms(ttl) > time);
            Ok((stored.grants.len() != before).then(|| stored.changed(time)))
        })?;
        Ok(())
    }

    fn keep(&self, grant: Grant, now: GrantTime) -> Result<(), Failure> {
        let project = self.project.clone().filter(|_| grant.scope == Scope::Project);
        if grant.scope == Scope::Project && project.is_none() {
            return Err(stored_grants::refused("cannot determine the project's folder"));
        }
        let ttl = self.settings.ttl_ms;
        let (began, generation) = {
            let mut seen = self.last_read();
            // A notice that was not shown yet is shown at the next use.
            self.reload_if_changed(&mut seen).map_err(|alarm| stored_grants::refused(&alarm))?;
            (*seen.began.get_or_insert(now), seen.generation)
        };
        self.store.update(FILE, |text| {
            let mut stored = GrantFile::read(text)?;
            if stored.generation < generation {
                return Err(stored_grants::refused("an older version of it was put in its place"));
            }
            let time = stored_grants::time(&stored, began, now)
                .map_err(|why| stored_grants::refused(&why))?;
            stored.grants.retain(|kept| kept.ends_ms(ttl) > time);
            stored.add(StoredGrant::new(grant, project, time, &self.settings))?;
            Ok(Some(stored.changed(time)))
        })?;
        Ok(())
    }

    fn last_read(&self) -> MutexGuard<'_, LastRead> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LastRead {
    /// Returns the time for expiry checks in milliseconds since 1970, as [`stored_grants::time`]
    /// computes it. An error if the clock was set back.
    fn time(&mut self, now: GrantTime) -> Result<u64, String> {
        let began = *self.began.get_or_insert(now);
        stored_grants::time(&self.stored, began, now)
    }

    /// Returns the alarm if it differs from that of the last use, so that a lasting one is reported
    /// once.
    fn report_once(&mut self, alarm: Option<String>) -> Option<String> {
        if alarm == self.said {
            return None;
        }
        self.said.clone_from(&alarm);
        alarm
    }
}

fn in_one_line(failure: &Failure) -> String {
    let parts = [Some(&failure.what), failure.why.as_ref(), failure.fix.as_ref()];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests;
