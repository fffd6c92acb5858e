//! The real clock, and unique ids.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use posse_actors::event::RecordId;
use posse_actors::ports::{Clock, Ids, PortFuture};

use crate::config::Environment;

/// A 64-bit random number that differs between processes. Not for secrets.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Wall-clock time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The current date in the user's time zone, or in UTC if the zone is unknown, as `2026-01-31`.
///
/// Without `TZ` the zone is read from its file: a library would search the whole time zone database
/// for its name, which takes longer than the rest of the start.
pub(crate) fn today(environment: &Environment) -> String {
    let zone = if environment.get("TZ").is_some() {
        TimeZone::system()
    } else {
        let file = std::fs::read("/etc/localtime").ok();
        file.and_then(|file| TimeZone::tzif("Local", &file).ok()).unwrap_or(TimeZone::UTC)
    };
    Timestamp::now().to_zoned(zone).strftime("%Y-%m-%d").to_string()
}

/// The clock of the machine.
#[derive(Debug)]
pub(crate) struct RealClock {
    started: Instant,
}

impl RealClock {
    pub(crate) fn new() -> RealClock {
        RealClock { started: Instant::now() }
    }
}

impl Clock for RealClock {
    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        now_ms()
    }

    fn sleep(&self, duration: Duration) -> PortFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn jitter(&self) -> f64 {
        // The upper 32 bits, as a fraction of their range.
        f64::from(u32::try_from(random() >> 32).unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Ids that are unique in a process. They are very likely unique in a session, too, because each
/// contains a random number of the process.
#[derive(Debug)]
pub(crate) struct RealIds {
    process: u32,
    next: AtomicU32,
    records: AtomicU32,
}

impl RealIds {
    pub(crate) fn new(process: u32) -> RealIds {
        RealIds { process, next: AtomicU32::new(1), records: AtomicU32::new(1) }
    }
}

impl Ids for RealIds {
    fn new_id(&self, kind: &str) -> String {
        let nth = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{kind}{:06x}-{nth}", self.process & 0x00ff_ffff)
    }

    fn record(&self) -> RecordId {
        let count = self.records.fetch_add(1, Ordering::Relaxed);
        RecordId { process: self.process, count }
    }
}
