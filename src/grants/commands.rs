//! `posse grants list`, `revoke` and `clear`.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use posse_actors::event::Scope;
use posse_actors::ports::GrantTime;
use serde_json::json;

use crate::failure::{ErrorCode, Exit, Failure, nearest, printable};
use crate::grants::stored_grants::{self, GrantFile, StoredGrant};
use crate::grants::{FILE, GrantSettings};
use crate::project::Identity;
use crate::signed_store::{SignedStore, TamperError};

/// The commands `posse grants …`, with their store, settings and output format.
#[derive(Debug)]
pub struct GrantCommands {
    /// Store that contains the grants file.
    pub store: SignedStore,
    /// Project of the working directory. `None` if it cannot be identified.
    pub project: Option<Identity>,
    /// Settings of stored grants.
    pub settings: GrantSettings,
    /// Current time in milliseconds since 1970.
    pub now_ms: u64,
    /// True for output as JSON, false for text.
    pub json: bool,
}

impl GrantCommands {
    fn stored(&self) -> Result<GrantFile, Failure> {
        let opened = self.store.read(FILE).map_err(TamperError::failure)?;
        GrantFile::read(opened.text.as_deref())
    }

    /// Returns the current time in milliseconds since 1970, or the time of the last change of the
    /// file if that is later. An error if the clock is more than 5 minutes before that change.
    fn time(&self, stored: &GrantFile) -> Result<u64, String> {
        let now = GrantTime { wall_ms: self.now_ms, uptime: Duration::ZERO };
        stored_grants::time(stored, now, now)
    }

    /// Writes the grants of this project and global ones to `out`; with `all`, also those of other
    /// projects. Leaves out expired ones. If the clock was set back, expired ones are listed, too,
    /// and the text ends with the reason that no grant is valid. Returns [`Exit::Failed`] if `out`
    /// cannot be written.
    pub fn list(&self, all: bool, out: &mut dyn Write) -> Result<Exit, Failure> {
        let stored = self.stored()?;
        let time = self.time(&stored);
        let ends = |kept: &StoredGrant| kept.ends_ms(self.settings.ttl_ms);
        let here = |kept: &StoredGrant| kept.counts_in(self.project.as_ref());
        let alive = |kept: &StoredGrant| time.as_ref().is_ok_and(|time| ends(kept) > *time);
        let listed = |kept: &&StoredGrant| (all || here(kept)) && (time.is_err() || alive(kept));
        let shown: Vec<&StoredGrant> = stored.grants.iter().filter(listed).collect();
        let mut text = String::new();
        if self.json {
            let rows = shown.iter().map(|kept| {
                let counts = kept.grant.scope <= self.settings.widest
                    && here(kept)
                    && alive(kept)
                    && kept.counts_within(&self.settings.tier);
                row(kept, ends(kept), counts)
            });
            text = format!("{:#}\n", rows.collect::<serde_json::Value>());
        } else if shown.is_empty() {
            text.push_str(if all { "no grants\n" } else { "no grants for this project\n" });
        } else {
            for kept in shown {
                line(&mut text, kept, time.as_ref().ok().map(|time| ends(kept) - time), all);
            }
        }
        if let Some(why) = time.as_ref().err().filter(|_| !self.json) {
            text.extend([why, "\n"]);
        }
        Ok(write(&text, out))
    }

    /// Revokes the grants with these ids and writes them to `out`. Revokes none, and fails, if an
    /// id is unknown or given twice. Returns [`Exit::Failed`] if `out` cannot be written; the
    /// grants are revoked then.
    pub fn revoke(&self, ids: &[String], out: &mut dyn Write) -> Result<Exit, Failure> {
        let mut revoked = Vec::new();
        self.store.update(FILE, |text| {
            let mut stored = GrantFile::read(text)?;
            for id in ids {
                let Some(at) = stored.grants.iter().position(|kept| kept.id == *id) else {
                    return Err(unknown(id, &stored));
                };
                revoked.push(stored.grants.remove(at));
            }
            Ok(Some(stored.changed(self.now_ms)))
        })?;
        Ok(self.ended("revoked", &revoked, None, out))
    }

    /// Deletes all grants, of every project and global ones, and writes them to `out`. A file that
    /// fails verification or cannot be parsed is moved aside first. The time of the last change
    /// becomes the current time, even if the clock was set back.
    pub fn clear(&self, out: &mut dyn Write) -> Result<Exit, Failure> {
        let (mut cleared, mut aside) = (Vec::new(), None);
        if self.stored().is_err() {
            aside = Some(self.store.set_aside(FILE, &format!("bad-{}", self.now_ms))?);
        }
        self.store.update(FILE, |text| {
            let mut stored = GrantFile::read(text)?;
            cleared = std::mem::take(&mut stored.grants);
            // A time ahead of the clock would end every new grant at once.
            stored.seen_ms = 0;
            Ok(Some(stored.changed(self.now_ms)))
        })?;
        Ok(self.ended("cleared", &cleared, aside.as_deref(), out))
    }

    fn ended(
        &self,
        word: &str,
        ended: &[StoredGrant],
        aside: Option<&std::path::Path>,
        out: &mut dyn Write,
    ) -> Exit {
        if self.json {
            let ids: Vec<&str> = ended.iter().map(|kept| kept.id.as_str()).collect();
            let aside = aside.map(|path| path.display().to_string());
            return write(&format!("{:#}\n", json!({ word: ids, "movedAside": aside })), out);
        }
        let mut text = String::new();
        for kept in ended {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(text, "{word} {} {}", kept.id, grant_text(kept));
        }
        if let Some(aside) = aside {
            let path = printable(&aside.display().to_string());
            let _: std::fmt::Result = writeln!(text, "moved the untrusted file to {path}");
        } else if ended.is_empty() {
            text.push_str("no grants to revoke\n");
        }
        write(&text, out)
    }
}

fn unknown(id: &str, stored: &GrantFile) -> Failure {
    let what = format!("no grant has the id `{id}`");
    let meant = nearest(id, stored.grants.iter().map(|kept| kept.id.as_str()));
    let fix = meant.map(|meant| format!("did you mean `{meant}`?"));
    let fix = fix.unwrap_or_else(|| "`posse grants list --all` shows them".to_owned());
    Failure::new(ErrorCode::GrantUnknown, Exit::Usage, what).fix(fix)
}

fn row(kept: &StoredGrant, ends_ms: u64, counts: bool) -> serde_json::Value {
    json!({
        "id": kept.id,
        "scope": kept.grant.scope,
        "operation": kept.grant.operation,
        "target": kept.grant.target,
        "tier": kept.tier,
        "project": kept.project.as_ref().map(|project| &project.path),
        "grantedMs": kept.granted_ms,
        "expiresMs": ends_ms,
        "counts": counts,
    })
}

fn line(text: &mut String, kept: &StoredGrant, left_ms: Option<u64>, all: bool) {
    let scope = if kept.grant.scope == Scope::Global { "global" } else { "project" };
    let left = left_ms.map_or_else(|| "-".to_owned(), remaining_time);
    let place = kept.project.as_ref().filter(|_| all).map(|project| &project.path);
    let place = place.map(|path| format!("  in {}", printable(path))).unwrap_or_default();
    let _: std::fmt::Result =
        writeln!(text, "{}  {scope:<7}  {left:>7}  {}{place}", kept.id, grant_text(kept));
}

fn grant_text(kept: &StoredGrant) -> String {
    format!("{} {}", printable(&kept.grant.operation), printable(&kept.grant.target))
}

/// Remaining time in short form: `6d 23h`, `2h 5m`, `5m`. Rounded up to minutes; of a day or more,
/// the minutes are left out.
fn remaining_time(ms: u64) -> String {
    let minutes = ms.div_ceil(60_000);
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

fn write(text: &str, out: &mut dyn Write) -> Exit {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_or(Exit::Failed, |()| Exit::Done)
}
