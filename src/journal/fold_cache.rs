//! A fold cache stores the folded state of all records before a position in the journal.
//!
//! `fold-cache.json` is one line in the format of the journal. Its hash continues the hash of the
//! record before its position, so it belongs to exactly one journal and record. If it is missing or
//! does not fit, the whole journal is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use posse_actors::event::RecordId;
use posse_actors::ledger::Accounts;
use posse_actors::replay::Replay;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::format::{self, HashChain};
use crate::scan::open_to_read;
use crate::segments::{Mark, chain_before};
use crate::walk::{open_segment, start_of};

const NAME: &str = "fold-cache.json";
const FRESH: &str = "fold-cache.json.new";
/// Version of the format of the fold cache file.
const VERSION: u32 = 1;
/// Maximum bytes of the JSON of a fold cache, before its hash is appended. A larger one is not
/// written.
const BYTES_MAX: usize = 16 << 20;

/// Folded state of all records before the position `place`.
#[derive(Debug)]
pub(crate) struct FoldCache {
    pub(crate) place: Mark,
    /// Ids of the last records before `place`, for the detection of duplicates.
    pub(crate) recent_ids: Vec<RecordId>,
    pub(crate) replay: Replay,
}

/// Serialised form of a fold cache, without its hash.
#[derive(Serialize, Deserialize)]
struct FoldCacheLine<I, R> {
    v: u32,
    /// Version of the fold. A fold cache of another version is not used.
    fold: u32,
    /// Version of posse that wrote the fold cache. It must match too, because a release can change
    /// the fold without changing the version of the fold.
    posse: String,
    record: u64,
    segment: u32,
    offset: u64,
    chain: String,
    ids: I,
    state: R,
}

impl FoldCache {
    /// Reads the fold cache in `dir`. `None` if it is missing or invalid, of another version of
    /// posse, or does not fit the journal files of session `id`.
    pub(crate) fn read(dir: &Path, id: &str) -> Option<FoldCache> {
        let (FoldCacheLine { posse, ids, state, .. }, place) = read_line(dir)?;
        let fits = posse == env!("CARGO_PKG_VERSION") && matches(dir, id, place).unwrap_or(false);
        fits.then_some(FoldCache { place, recent_ids: ids, replay: state })
    }

    /// Reads the accounts of cost in the fold cache of `dir`, and the number of the first record
    /// after the fold cache. `None` if the fold cache is missing, invalid, or of another version of
    /// the format or fold. The journal is not examined: it may have lost the records that the
    /// fold cache covers.
    pub(crate) fn last_accounts(dir: &Path) -> Option<(u64, Accounts)> {
        let (FoldCacheLine { state, .. }, place) = read_line::<Value>(dir)?;
        let accounts = Accounts::deserialize(state.pointer("/replayed/accounts")?).ok()?;
        Some((place.record, accounts))
    }

    /// Replaces the fold cache in `dir`. Fails, and keeps the old fold cache, if the new one
    /// exceeds `BYTES_MAX` or cannot be written. The file is not synced: if it is half-written
    /// after a power cut, its hash check fails.
    pub(crate) fn write(
        dir: &Path,
        place: Mark,
        recent_ids: &[RecordId],
        replay: &Replay,
    ) -> io::Result<()> {
        let mut bytes = Bounded(Vec::new());
        let line = FoldCacheLine {
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
        // The closing brace is appended again after the hash.
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

/// Reads the fold cache in `dir` and its position. `None` if it is missing, its hash is wrong, or
/// its format or fold has another version. The journal is not examined.
fn read_line<R: DeserializeOwned>(dir: &Path) -> Option<(FoldCacheLine<Vec<RecordId>, R>, Mark)> {
    let mut bytes = Vec::new();
    let limit = (BYTES_MAX + format::SUFFIX_LEN) as u64;
    open_to_read(&dir.join(NAME)).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    let (body, claimed) = format::split(&bytes)?;
    let line: FoldCacheLine<Vec<RecordId>, R> = serde_json::from_slice(&bytes).ok()?;
    let chain = HashChain::parse(&line.chain)?;
    let fits = line.v == VERSION && line.fold == Replay::VERSION && chain.next(body) == claimed;
    let (record, segment, offset) = (line.record, line.segment, line.offset);
    fits.then_some((line, Mark { record, segment, offset, chain }))
}

/// Returns true if a line of the journal of session `id` ends at the position `place` and contains
/// the hash `place.chain`; the hash is only read, not verified. The start of the journal matches
/// too.
fn matches(dir: &Path, id: &str, place: Mark) -> io::Result<bool> {
    if place.segment == 0 || place.record == 0 {
        return Ok(false);
    }
    let before = match (place.offset, place.segment) {
        (0, 1) => return Ok(place == start_of(id)),
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

/// Buffer whose writes fail above the size limit of a fold cache.
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
