//! What is in the file, as values.

use posse_actors::event::{Grant, Scope};
use posse_actors::ports::Now;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::failure::{Exit, Failure};
use crate::hex::hex;
use crate::project::Identity;

/// Grants that are kept at once.
const GRANTS_MAX: usize = 1000;
/// Bytes of what a grant covers.
const TARGET_BYTES_MAX: usize = 16 << 10;
/// By how much a clock may go back without that meaning anything.
const SLACK_MS: u64 = 5 * 60 * 1000;
const VERSION: u32 = 1;
/// From nothing to everything.
const TIERS: [&str; 3] = ["none", "reduced", "full"];

/// Everything that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Book {
    v: u32,
    /// Counts changes: an older version cannot be put back while somebody looks.
    pub generation: u64,
    /// The latest time at which it was changed: it is not earlier than that.
    pub seen_ms: u64,
    /// In the order in which they were given.
    pub grants: Vec<StoredGrant>,
}

/// A grant with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredGrant {
    /// Tells it from others; the same grant given again has the same one.
    pub id: String,
    /// What is allowed.
    #[serde(flatten)]
    pub grant: Grant,
    /// Where, if not everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Identity>,
    /// What confined commands when it was given, if it is about commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// When it was given: milliseconds since 1970.
    pub granted_ms: u64,
    /// When it ends.
    pub expires_ms: u64,
}

impl Book {
    pub(super) fn parse(text: &str) -> Option<Book> {
        let book: Book = serde_json::from_str(text).ok()?;
        (book.v == VERSION).then_some(book)
    }

    pub(super) fn read(text: Option<&str>) -> Result<Book, Failure> {
        let Some(text) = text else { return Ok(Book::default()) };
        Book::parse(text).ok_or_else(|| {
            refused("the file was written by another version of posse, or is damaged")
        })
    }

    /// The text of a new version.
    pub(super) fn changed(mut self, time: u64) -> String {
        self.v = VERSION;
        self.seen_ms = self.seen_ms.max(time);
        // Also a book that begins anew is newer than the one before.
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
        now_ms: u64,
        ttl_ms: u64,
    ) -> StoredGrant {
        let mut hash = Sha256::new();
        let parts = (&grant.operation, &grant.target, &project);
        hash.update(serde_json::to_vec(&parts).unwrap_or_default());
        let id = format!("g{}", hex(&hash.finalize()[..4]));
        let expires_ms = now_ms.saturating_add(ttl_ms);
        StoredGrant { id, grant, project, tier: None, granted_ms: now_ms, expires_ms }
    }

    /// Given where this confines commands.
    pub(super) fn within(mut self, tier: &str) -> StoredGrant {
        self.tier = (self.grant.operation == "execute").then(|| tier.to_owned());
        self
    }

    /// Whether it counts where `tier` confines commands: what was allowed to run within a sandbox
    /// was not allowed to run without one.
    pub(super) fn counts_within(&self, tier: &str) -> bool {
        let rank = |name: &str| TIERS.iter().position(|tier| *tier == name);
        self.tier.as_deref().is_none_or(|given| rank(tier) >= rank(given))
    }

    /// When it ends, if the user wants grants to count for no longer than `ttl_ms`.
    pub(super) fn ends_ms(&self, ttl_ms: u64) -> u64 {
        self.expires_ms.min(self.granted_ms.saturating_add(ttl_ms))
    }

    pub(super) fn counts_in(&self, project: Option<&Identity>) -> bool {
        match self.grant.scope {
            Scope::Global => true,
            Scope::Project => self.project.is_some() && self.project.as_ref() == project,
            Scope::Once | Scope::Session => false,
        }
    }
}

/// What time it is at least: the wall clock, unless that was set back while this process watched.
/// An error if it was set back before.
pub(super) fn time(book: &Book, began: Now, now: Now) -> Result<u64, String> {
    let passed = now.uptime.saturating_sub(began.uptime).as_millis();
    let watched = began.wall_ms.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
    let time = now.wall_ms.max(watched);
    if time.saturating_add(SLACK_MS) < book.seen_ms {
        return Err(
            "the clock is behind the time at which permissions were last changed, so none \
                    that were kept count; set the clock, or `posse grants clear`"
                .to_owned(),
        );
    }
    Ok(time.max(book.seen_ms))
}

pub(super) fn refused(what: &str) -> Failure {
    Failure::new("GRT001", Exit::Session, what)
}
