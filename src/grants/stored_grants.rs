//! Content of the grants file: grants with their project, sandbox tier and expiry.

use posse_actors::event::{Grant, SandboxTier, Scope};
use posse_actors::ports::GrantTime;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::failure::{ErrorCode, Exit, Failure};
use crate::grants::GrantSettings;
use crate::hex::hex;
use crate::project::Identity;

/// Maximum number of stored grants. A further one is refused.
const GRANTS_MAX: usize = 1000;
/// Maximum size of a grant's target in bytes. A grant with a larger one is refused.
const TARGET_BYTES_MAX: usize = 16 << 10;
/// Tolerated backward step of the clock in milliseconds.
const SLACK_MS: u64 = 5 * 60 * 1000;
const VERSION: u32 = 1;

/// Content of the grants file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantFile {
    v: u32,
    /// Number that grows with every change. A running process rejects a file with a lower number
    /// than it has seen.
    pub generation: u64,
    /// Time of the latest change in milliseconds since 1970: the current time cannot be earlier.
    pub seen_ms: u64,
    /// Grants in the order in which they were given. A grant that is given again moves to the end.
    pub grants: Vec<StoredGrant>,
}

/// Grant with its project, sandbox tier and validity.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredGrant {
    /// Id, derived from operation, target and project: a grant that is given again has the same id.
    pub id: String,
    /// Operation, target and scope.
    #[serde(flatten)]
    pub grant: Grant,
    /// Project in which the grant is valid. `None`: all projects.
    pub project: Option<Identity>,
    /// Sandbox tier when a grant for commands was given. `None` for other grants.
    pub tier: Option<SandboxTier>,
    /// Time at which the grant was given, in milliseconds since 1970.
    pub granted_ms: u64,
    /// Expiry in milliseconds since 1970, by the lifetime that was configured when the grant was
    /// given. A lifetime that is shorter now takes precedence.
    pub expires_ms: u64,
}

impl GrantFile {
    pub(super) fn parse(text: &str) -> Option<GrantFile> {
        let stored: GrantFile = serde_json::from_str(text).ok()?;
        (stored.v == VERSION).then_some(stored)
    }

    pub(super) fn read(text: Option<&str>) -> Result<GrantFile, Failure> {
        let Some(text) = text else { return Ok(GrantFile::default()) };
        GrantFile::parse(text).ok_or_else(|| {
            refused("the file was written by another version of posse, or is damaged")
        })
    }

    /// Returns the text of the changed file, with a higher generation. `time` is the time of the
    /// change in milliseconds since 1970.
    pub(super) fn changed(mut self, time: u64) -> String {
        self.v = VERSION;
        self.seen_ms = self.seen_ms.max(time);
        // A cleared file is also newer than the one before.
        self.generation = self.generation.saturating_add(1).max(self.seen_ms);
        serde_json::to_string_pretty(&self).unwrap_or_default()
    }

    pub(super) fn add(&mut self, kept: StoredGrant) -> Result<(), Failure> {
        if kept.grant.target.len() > TARGET_BYTES_MAX {
            return Err(refused("it covers too much to be remembered word for word"));
        }
        self.grants.retain(|known| known.id != kept.id);
        if self.grants.len() >= GRANTS_MAX {
            let what = format!("{GRANTS_MAX} permissions are kept already");
            return Err(refused(&what).fix("`posse grants list` shows them, `revoke` ends some"));
        }
        self.grants.push(kept);
        Ok(())
    }
}

impl StoredGrant {
    pub(super) fn new(
        grant: Grant,
        project: Option<Identity>,
        granted_ms: u64,
        settings: &GrantSettings,
    ) -> StoredGrant {
        let mut hash = Sha256::new();
        let parts = (&grant.operation, &grant.target, &project);
        hash.update(serde_json::to_vec(&parts).unwrap_or_default());
        let id = format!("g{}", hex(&hash.finalize()[..4]));
        let expires_ms = granted_ms.saturating_add(settings.ttl_ms);
        let tier = (grant.operation == "execute").then(|| settings.tier.clone());
        StoredGrant { id, grant, project, tier, granted_ms, expires_ms }
    }

    /// True if the grant is valid under `tier`: a grant for commands does not apply in a weaker
    /// sandbox than the one in which it was given.
    pub(super) fn counts_within(&self, tier: &SandboxTier) -> bool {
        self.tier.as_ref().is_none_or(|given| tier.is_at_least(given))
    }

    /// Returns the time at which the grant expires, in milliseconds since 1970. A configured
    /// lifetime `ttl_ms` can only shorten the stored one.
    pub(super) fn ends_ms(&self, ttl_ms: u64) -> u64 {
        self.expires_ms.min(self.granted_ms.saturating_add(ttl_ms))
    }

    pub(super) fn counts_in(&self, project: Option<&Identity>) -> bool {
        match self.grant.scope {
            Scope::Global => true,
            Scope::Project => {
                let projects = self.project.as_ref().zip(project);
                projects.is_some_and(|(given, here)| given.is_still(here, self.granted_ms))
            }
            Scope::Once | Scope::Agent | Scope::Session => false,
        }
    }
}

/// Returns the time for expiry checks in milliseconds since 1970, which a clock that is set back
/// does not reduce: the latest of `now.wall_ms`, `began.wall_ms` plus the uptime since `began`, and
/// the last change of the file. An error if the first two are more than [`SLACK_MS`] before that
/// change.
pub(super) fn time(stored: &GrantFile, began: GrantTime, now: GrantTime) -> Result<u64, String> {
    let passed = now.uptime.saturating_sub(began.uptime).as_millis();
    let watched = began.wall_ms.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
    let time = now.wall_ms.max(watched);
    if time.saturating_add(SLACK_MS) < stored.seen_ms {
        return Err(
            "the clock is behind the time at which permissions were last changed, so none \
                    that were kept count; set the clock, or `posse grants clear`"
                .to_owned(),
        );
    }
    Ok(time.max(stored.seen_ms))
}

pub(super) fn refused(what: &str) -> Failure {
    Failure::new(ErrorCode::GrantsUnreadable, Exit::Session, what)
}
