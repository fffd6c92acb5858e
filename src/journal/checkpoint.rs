//! A checkpoint: what the records up to some place come to, beside the journal.
//!
//! `checkpoint.json` is one line like those of the journal: its hash continues that of the record
//! before its place, so it belongs to this journal, at that record, or to none. It is a cache.
//! Without it, or with one that does not fit, everything is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use posse_actors::ledger::Accounts;
use posse_actors::record::{RecordId, Replay};
use serde::{Deserialize, Serialize};

use crate::journal::format::{self, HashChain};
use crate::journal::scan::open_to_read;
use crate::journal::segments::{Mark, chain_before};
use crate::journal::walk::{beginning, open_segment};

const NAME: &str = "checkpoint.json";
const FRESH: &str = "checkpoint.json.new";
/// Version of this file.
const VERSION: u32 = 1;
/// Bytes of a checkpoint. What comes to more is read again each time.
const BYTES_MAX: usize = 16 << 20;

/// What the records before `place` come to.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) place: Mark,
    /// Ids of the last records before it.
    pub(crate) recent_ids: Vec<RecordId>,
    pub(crate) replay: Replay,
}

/// The line, as it is written and read.
#[derive(Serialize, Deserialize)]
struct CheckpointLine<I, R> {
    v: u32,
    /// Version of the fold: another one may have come to something else.
    fold: u32,
    /// What made it: a fold may change without anybody thinking of its version.
    posse: String,
    record: u64,
    segment: u32,
    offset: u64,
    chain: String,
    ids: I,
    state: R,
}

impl Checkpoint {
    /// The checkpoint in `dir`, if there is one that belongs to session `id`, as its files are.
    pub(crate) fn read(dir: &Path, id: &str) -> Option<Checkpoint> {
        let mut bytes = Vec::new();
        let limit = BYTES_MAX as u64 + 1;
        open_to_read(&dir.join(NAME)).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
        let (body, claimed) = format::split(&bytes)?;
        let line: CheckpointLine<Vec<RecordId>, serde::de::IgnoredAny> =
            serde_json::from_slice(&bytes).ok()?;
        let chain = HashChain::parse(&line.chain)?;
        let fits = line.v == VERSION
            && line.fold == Replay::VERSION
            && line.posse == env!("CARGO_PKG_VERSION")
            && chain.next(body) == claimed;
        let CheckpointLine { record, segment, offset, ids, .. } = line;
        let place = Mark { record, segment, offset, chain };
        if !fits || !belongs(dir, id, place).unwrap_or(false) {
            return None;
        }
        let line: CheckpointLine<serde::de::IgnoredAny, Replay> =
            serde_json::from_slice(&bytes).ok()?;
        Some(Checkpoint { place, recent_ids: ids, replay: line.state })
    }

    /// What the session in `dir` had spent where its checkpoint stands, and the record after that,
    /// also if the journal does not reach it any more.
    pub(crate) fn beside(dir: &Path) -> Option<(u64, Accounts)> {
        let mut bytes = Vec::new();
        let limit = BYTES_MAX as u64 + 1;
        open_to_read(&dir.join(NAME)).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
        let (body, claimed) = format::split(&bytes)?;
        let line: CheckpointLine<serde::de::IgnoredAny, Replay> =
            serde_json::from_slice(&bytes).ok()?;
        let fits = line.v == VERSION
            && line.fold == Replay::VERSION
            && HashChain::parse(&line.chain)?.next(body) == claimed;
        fits.then(|| (line.record, line.state.accounts().clone()))
    }

    /// Writes a checkpoint into `dir`, in place of the one before. Not synced: one that a power
    /// cut leaves half written does not fit.
    pub(crate) fn write(
        dir: &Path,
        place: Mark,
        recent_ids: &[RecordId],
        replay: &Replay,
    ) -> io::Result<()> {
        let mut bytes = Bounded(Vec::new());
        let line = CheckpointLine {
            v: VERSION,
            fold: Replay::VERSION,
            posse: env!("CARGO_PKG_VERSION").to_owned(),
            record: place.record,
            segment: place.segment,
            offset: place.offset,
            chain: place.chain.as_str().to_owned(),
            ids: recent_ids,
            state: replay,
        };
        serde_json::to_writer(&mut bytes, &line)?;
        let mut bytes = bytes.0;
        // The closing brace comes again after the hash.
        bytes.pop();
        format::append_hash(&mut bytes, 0, &place.chain);
        let fresh = dir.join(FRESH);
        let written =
            write_private(&fresh, &bytes).and_then(|()| std::fs::rename(&fresh, dir.join(NAME)));
        if written.is_err() {
            std::fs::remove_file(&fresh).ok();
        }
        written
    }
}

/// Whether the line before `place` ends there and has its hash.
fn belongs(dir: &Path, id: &str, place: Mark) -> io::Result<bool> {
    if place.segment == 0 || place.record == 0 {
        return Ok(false);
    }
    let before = match (place.offset, place.segment) {
        (0, 1) => return Ok(place == beginning(id)),
        (0, segment) => open_segment(dir, segment - 1)?.filter(|(_, closed)| *closed),
        (_, segment) => open_segment(dir, segment)?,
    };
    let Some((mut file, _)) = before else { return Ok(false) };
    let length = file.metadata()?.len();
    let end = if place.offset == 0 { length } else { place.offset };
    Ok(end <= length && chain_before(&mut file, end)? == Some(place.chain))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    file.write_all(bytes)
}

/// Takes as much as a checkpoint may have.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
