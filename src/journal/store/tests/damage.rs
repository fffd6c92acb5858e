//! A journal of 64 KB with every kind of damage at every position.
//!
//! Every position is tried on the scanner, which decides the end of a journal. Every line and a
//! sample of positions are tried on real files, which are opened, folded, continued and verified.

use std::collections::BTreeSet;
use std::ops::Range;

use super::*;
use crate::format::{HashChain, append_line};
use crate::scan::{Damage, Scanner};

const RECORDS: u64 = 230;

/// A whole journal, the start offsets of its lines (the last one is its end), and its hashes.
fn journal() -> (Vec<u8>, Vec<usize>, Vec<HashChain>) {
    let (mut bytes, mut starts) = (Vec::new(), vec![0]);
    let mut chains = vec![HashChain::start("s")];
    for number in 1..=RECORDS {
        let text = "some text ".repeat(usize::try_from(number % 17).unwrap());
        let chain = append_line(&mut bytes, chains.last().unwrap(), &record(number, &text));
        chains.push(chain.unwrap());
        starts.push(bytes.len());
    }
    assert!((60_000..80_000).contains(&bytes.len()), "{}", bytes.len());
    (bytes, starts, chains)
}

/// Index of the line that contains byte `at`, from 0.
fn line_of(starts: &[usize], at: usize) -> usize {
    starts.partition_point(|start| *start <= at) - 1
}

/// Scans from the line before `line`. Returns the number of valid lines and the next step.
fn scan_near(bytes: &[u8], starts: &[usize], chains: &[HashChain], line: usize) -> (usize, Stop) {
    let first = line.saturating_sub(1);
    let number = first as u64 + 1;
    let rest = &bytes[starts[first].min(bytes.len())..];
    let (offset, chain) = (starts[first] as u64, chains[first]);
    let mut scanner = Scanner::new(rest, Mark { record: number, segment: 1, offset, chain });
    let mut fit = first;
    loop {
        match scanner.step().unwrap() {
            Ok(_) => fit += 1,
            Err(stop) => return (fit, stop),
        }
    }
}

#[test]
fn every_truncation_keeps_all_whole_lines() {
    let (bytes, starts, chains) = journal();
    for length in 0..bytes.len() {
        let line = line_of(&starts, length);
        let (fit, stop) = scan_near(&bytes[..length], &starts, &chains, line);
        let expected = if starts[line] == length { Stop::End } else { Stop::Torn };
        assert_eq!((fit, stop), (line, expected), "cut at {length}");
    }
}

#[test]
fn every_flipped_bit_ends_the_journal_before_its_line() {
    let (mut bytes, starts, chains) = journal();
    for bit in [0x01, 0x20, 0x80] {
        for at in 0..bytes.len() {
            bytes[at] ^= bit;
            let line = line_of(&starts, at);
            let (fit, stop) = scan_near(&bytes, &starts, &chains, line);
            assert_eq!(fit, line, "byte {at} ^ {bit:#x}");
            // Only the very last newline can be taken for an incomplete line.
            let last = at + 1 == bytes.len();
            assert!(matches!(stop, Stop::Damaged(_)) || (last && stop == Stop::Torn), "{stop:?}");
            bytes[at] ^= bit;
        }
    }
}

/// A damaged journal and the expected result.
struct DamageCase {
    name: String,
    bytes: Vec<u8>,
    /// Records before the damage.
    kept: u64,
    kind: &'static str,
}

fn rows() -> Vec<DamageCase> {
    let (whole, starts, _) = journal();
    let line = |number: usize| starts[number]..starts[number + 1];
    let with =
        |at: usize, middle: &[u8], from: usize| [&whole[..at], middle, &whole[from..]].concat();
    let mut rows = Vec::new();
    let mut row = |name: String, bytes: Vec<u8>, kept: usize, kind: &'static str| {
        rows.push(DamageCase { name, bytes, kept: kept as u64, kind });
    };
    for number in [0, 1, 7, 100, starts.len() - 2] {
        let Range { start, end } = line(number);
        let middle = start + (end - start) / 2;
        let cut = with(middle, b"", whole.len());
        row(format!("cut in line {number}"), cut, number, "torn");
        let mut flipped = whole.clone();
        flipped[middle] ^= 4;
        row(format!("flip in line {number}"), flipped, number, "hash");
        for zeros in [1, 100, 4096] {
            let run = vec![0; zeros];
            let name = format!("{zeros} zeros before line {number}");
            row(name, with(start, &run, start), number, "zeros");
            let name = format!("{zeros} zeros in line {number}");
            row(name, with(middle, &run, middle), number, "zeros");
        }
        let name = format!("zeros from line {number} to the end");
        row(name, [&whole[..start], &vec![0; whole.len() - start]].concat(), number, "zeros");
        let twice = with(end, &whole[start..end], end);
        row(format!("line {number} twice"), twice, number + 1, "repeated");
        if number + 2 < starts.len() {
            let next = line(number + 1);
            let swapped = [&whole[next.clone()], &whole[start..end]].concat();
            row(format!("line {number} swapped"), with(start, &swapped, next.end), number, "gap");
            row(format!("line {number} taken out"), with(start, b"", end), number, "gap");
        }
        let foreign = b"{\"some\":\"other program\"}\n";
        row(format!("foreign line at {number}"), with(start, foreign, start), number, "no_record");
        let stranger = {
            let mut line = Vec::new();
            append_line(&mut line, &HashChain::start("t"), &record(number as u64 + 1, "x"))
                .unwrap();
            line
        };
        let name = format!("line {number} of another session");
        row(name, with(start, &stranger, end), number, "hash");
        let crlf = [&whole[start..end - 1], b"\r\n"].concat();
        let name = format!("CR LF at line {number}");
        row(name, with(start, &crlf, end), number, "carriage_return");
        row(format!("blank line at {number}"), with(start, b"\n", start), number, "no_record");
    }
    let text = String::from_utf8(whole.clone()).unwrap().replace('\n', "\r\n");
    row("CR LF everywhere".to_owned(), text.into_bytes(), 0, "carriage_return");
    row("a mark of byte order".to_owned(), with(0, "\u{feff}".as_bytes(), 0), 0, "no_record");
    for at in (0..whole.len()).step_by(977) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        row(format!("flip at {at}"), bytes, line_of(&starts, at), "");
        row(format!("cut at {at}"), whole[..at].to_vec(), line_of(&starts, at), "");
    }
    rows
}

/// Bytes of all quarantined files, in the order of their creation.
fn quarantined(room: &JournalFolder) -> Vec<u8> {
    let names = room.names().into_iter().filter(|name| name.contains(".damaged-"));
    names.flat_map(|name| fs::read(room.path(&name)).unwrap()).collect()
}

#[tokio::test]
async fn damaged_files_are_repaired_reported_and_kept() {
    let mut kinds = BTreeSet::new();
    for row in rows() {
        let DamageCase { name, bytes, kept, kind } = row;
        let room = JournalFolder::new();
        fs::create_dir_all(room.dir()).unwrap();
        fs::write(room.path(ACTIVE), &bytes).unwrap();
        let before = room.verify();
        assert_eq!(before.records, kept, "{name}");
        // An empty file is reported as damage, but a journal can start in it.
        let empty = bytes.is_empty();
        let whole = before.problem.is_none() || empty;
        if empty {
            assert_eq!(before.problem.map(|problem| problem.kind), Some("empty".to_owned()));
        } else if let Some(problem) = &before.problem {
            assert_eq!((problem.record, problem.line), (kept + 1, kept + 1), "{name}");
            assert!(kind.is_empty() || problem.kind == kind, "{name}: {problem:?}");
            kinds.insert(problem.kind.clone());
        }
        let good = usize::try_from(before.bytes).unwrap();

        let store = room.store();
        // Both ways of opening repair the same, except if no record is valid.
        let repaired = if kept == 0 && !whole {
            let error = store.replayed().unwrap_err();
            assert!(matches!(error, JournalError::Damaged { .. }), "{name}: {error:?}");
            assert_eq!(fs::read(room.path(ACTIVE)).unwrap(), bytes, "{name}");
            None
        } else if kept % 2 == 0 {
            let folded = store.replayed().unwrap();
            assert_eq!(folded.replay.finish().last_record, kept, "{name}");
            folded.repaired
        } else {
            None
        };
        let opened = store.open().await.unwrap();
        assert_eq!(opened.last_record, kept, "{name}");
        let repaired = repaired.or(opened.repaired.clone());
        assert_eq!(repaired.is_none(), whole, "{name}: {repaired:?}");
        if let Some(line) = repaired {
            let place = format!("in session.jsonl at byte {good}; ");
            assert!(line.contains(&place) && line.contains("damaged-1"), "{name}: {line}");
        }
        assert_eq!(quarantined(&room), bytes[good..], "{name}");
        assert_eq!(fs::read(room.path(ACTIVE)).unwrap(), bytes[..good], "{name}");
        submit(&opened, kept + 1..=kept + 2, Durability::Synced).await.unwrap();
        drop((opened, store));
        let after = room.verify();
        assert_eq!((after.records, after.problem), (kept + 2, None), "{name}");
    }
    let all = ["carriage_return", "gap", "hash", "no_record", "repeated", "torn", "zeros"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
}

/// A journal of forty records in several segments, with the number of closed ones.
async fn segmented() -> (JournalFolder, u32) {
    let room = JournalFolder::new();
    let store = room.small_segments();
    let opened = store.open().await.unwrap();
    for number in 1..=40 {
        submit(&opened, number..=number, Durability::Written).await.unwrap();
    }
    drop((opened, store));
    let closed = room.verify().segments - 1;
    assert!(closed >= 3, "{closed}");
    (room, closed)
}

/// Number of records in the first `count` closed segments.
fn records_in(room: &JournalFolder, count: u32) -> u64 {
    let name = |number: u32| room.path(&format!("session-{number:06}.jsonl"));
    (1..=count).map(|number| newlines(&fs::read(name(number)).unwrap()) as u64).sum()
}

#[tokio::test]
async fn a_missing_segment_is_reported_and_ends_the_journal() {
    for missing in 1..=3 {
        let (room, closed) = segmented().await;
        let name = format!("session-{missing:06}.jsonl");
        let kept = records_in(&room, missing - 1);
        fs::remove_file(room.path(&name)).unwrap();
        let left: u64 = (missing + 1..=closed)
            .map(|number| room.path(&format!("session-{number:06}.jsonl")))
            .chain([room.path(ACTIVE)])
            .map(|path| fs::metadata(path).unwrap().len())
            .sum();
        let problem = room.verify().problem;
        // For the last closed segment only the chain shows the gap.
        let (what, kind) = if missing == closed {
            (format!("record {} where", records_in(&room, missing - 1) + 1), "gap")
        } else {
            (format!("{name} is missing"), "missing")
        };
        let problem = problem.unwrap();
        assert_eq!((problem.kind.as_str(), problem.record), (kind, kept + 1), "{problem:?}");
        assert!(kind == "gap" || problem.what == what, "{problem:?}");
        let store = room.small_segments();
        let opened = store.open().await.unwrap();
        assert_eq!(opened.last_record, kept, "{missing}");
        let line = opened.repaired.clone().unwrap();
        assert!(line.contains(if kind == "gap" { "where record" } else { &what }), "{line}");
        assert_eq!(quarantined(&room).len() as u64, left, "{line}");
        submit(&opened, kept + 1..=kept + 1, Durability::Synced).await.unwrap();
        drop((opened, store));
        assert_eq!((room.verify().records, room.verify().problem), (kept + 1, None));
    }
}

#[tokio::test]
async fn damage_in_a_closed_segment_is_found_by_the_fold_and_truncated_there() {
    for segment in 1..=3 {
        let (room, _) = segmented().await;
        let path = room.path(&format!("session-{segment:06}.jsonl"));
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let kept = records_in(&room, segment - 1) + newlines(&bytes[..middle]) as u64;
        fs::write(&path, &bytes).unwrap();
        let all: u64 = room
            .names()
            .iter()
            .filter(|name| Path::new(name).extension().is_some_and(|end| end == "jsonl"))
            .map(|name| fs::metadata(room.path(name)).unwrap().len())
            .sum();
        let good = room.verify().bytes;
        // A fold cache written when a segment was closed would skip the damage.
        fs::remove_file(room.path("fold-cache.json")).ok();
        let store = room.small_segments();
        let folded = store.replayed().unwrap();
        assert_eq!((folded.read, folded.spared), (kept, 0));
        let line = folded.repaired.unwrap();
        assert!(line.contains(&format!("in session-{segment:06}.jsonl at byte ")), "{line}");
        let opened = store.open().await.unwrap();
        // The fold has already reported it.
        assert_eq!((opened.last_record, &opened.repaired), (kept, &None));
        submit(&opened, kept + 1..=kept + 1, Durability::Synced).await.unwrap();
        drop((opened, store));
        assert_eq!((room.verify().records, room.verify().problem), (kept + 1, None));
        assert_eq!(quarantined(&room).len() as u64, all - good);
    }
}

#[test]
fn names_every_kind_of_damage_in_one_word() {
    let all = [
        Damage::Hash,
        Damage::NoRecord,
        Damage::Zeros,
        Damage::CarriageReturn,
        Damage::Repeated { found: 1 },
        Damage::Gap { found: 3, expected: 2 },
        Damage::TooLong,
        Damage::Torn,
        Damage::Missing { name: "session-000001.jsonl".to_owned() },
    ];
    let kinds: BTreeSet<&str> = all.iter().map(Damage::kind).collect();
    assert_eq!(kinds.len(), all.len());
    for damage in all {
        assert!(!damage.to_string().is_empty());
    }
}
