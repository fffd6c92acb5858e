//! The corpora of commands, scored: `tests/corpus/`.

use serde::Deserialize;

use super::*;

/// Commands handed down with the specification, as they were.
const GIVEN: &str = include_str!("../../../tests/corpus/bash-commands.jsonl");
/// Commands of our own, for each rule and each way around it that is known.
const OWN: &str = include_str!("../../../tests/corpus/bash-commands-own.jsonl");
/// What the user has granted.
pub(super) const GRANTED: [&str; 6] =
    ["git status", "git log", "npm test", "cargo test", "ls", "cat"];

#[derive(Deserialize)]
struct CorpusRow {
    command: String,
    expect: String,
    why: String,
}

/// What went wrong, by kind, and how many rows could have gone wrong that way.
#[derive(Debug, Default)]
struct Score {
    rows: usize,
    allow: usize,
    ask: usize,
    deny: usize,
    unsafe_allows: Vec<String>,
    weak_denies: Vec<String>,
    friction_misses: Vec<String>,
    over_blocks: Vec<String>,
}

pub(super) fn grants(prefixes: &[&str]) -> Vec<Grant> {
    prefixes.iter().map(|prefix| command_grant(prefix).unwrap()).collect()
}

fn score(corpus: &str) -> Score {
    let policy = policy(&[]);
    let granted = grants(&GRANTED);
    let mut score = Score::default();
    for line in corpus.lines() {
        let row: CorpusRow = serde_json::from_str(line).unwrap();
        let checked = policy.check(&row.command, ROOT, &granted);
        let shown: String = row.command.chars().take(160).collect();
        let miss = format!("{shown:?} ({}): {} ({})", row.why, checked.decision, checked.reason);
        let expected = row.expect.split(['-', ':']).next().unwrap();
        score.rows += 1;
        match expected {
            "allow" => score.allow += 1,
            "ask" => score.ask += 1,
            "deny" => score.deny += 1,
            other => panic!("{other} is no expectation"),
        }
        match (expected, checked.decision) {
            (expected, decision) if expected == decision => {}
            (_, "allow") => score.unsafe_allows.push(miss),
            ("deny", _) => score.weak_denies.push(miss),
            ("allow", _) => score.friction_misses.push(miss),
            _ => score.over_blocks.push(miss),
        }
    }
    score
}

#[track_caller]
fn assert_passes(score: &Score) {
    assert!(score.unsafe_allows.is_empty(), "{:#?}", score.unsafe_allows);
    assert!(score.weak_denies.is_empty(), "{:#?}", score.weak_denies);
    let friction = &score.friction_misses;
    assert!(friction.len() * 20 <= score.allow, "{friction:#?}");
    assert!(score.over_blocks.len() * 50 <= score.ask, "{:#?}", score.over_blocks);
}

#[test]
fn passes_the_given_corpus() {
    let score = score(GIVEN);
    assert_eq!(score.rows, 184);
    assert_passes(&score);
}

#[test]
fn passes_its_own_corpus() {
    let score = score(OWN);
    assert!(score.rows >= 300, "{} rows", score.rows);
    assert!(score.allow >= 60 && score.ask >= 100 && score.deny >= 100, "{score:?}");
    assert_passes(&score);
    let misses = score.friction_misses.len() + score.over_blocks.len();
    assert_eq!(misses, 0, "{:#?} {:#?}", score.friction_misses, score.over_blocks);
}
