//! Random trees: commands make repositories, pointers, links and control files out of pieces, and
//! nothing planted may be left that a program of the host would read without a report.

mod host_model;
mod pieces;
mod programs;
mod sandboxed;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse::sandbox::{Finding, ProtectAction, ProtectedChange, Protection};
use proptest::prelude::*;

use host_model::Reading;
use pieces::Piece;

/// Number of trees without `POSSE_CASES`, and the maximum with it.
const TREES: u32 = 400;
const TREES_MAX: u32 = 20_000;

/// Texts that were reported to the person, each with the path at which it was.
#[derive(Debug, Default)]
struct Reports {
    left: Vec<(String, PathBuf)>,
}

impl Reports {
    /// Notes what the findings say about the readings.
    fn note(&mut self, root: &Path, findings: &[Finding], readings: &BTreeSet<Reading>) {
        for finding in findings {
            // The loss of a repository says nothing about what is in its place.
            let is_loss =
                matches!(finding.what, ProtectedChange::Removed | ProtectedChange::Replaced);
            let is_told = finding.action == ProtectAction::Left
                || (matches!(finding.action, ProtectAction::Failed(_)) && !is_loss);
            let Ok(told) = finding.path.strip_prefix(root) else { continue };
            if !is_told {
                continue;
            }
            // A report about the whole workspace would cover everything.
            assert!(!told.as_os_str().is_empty(), "the scan was incomplete");
            for reading in readings {
                if ways(root, reading).iter().any(|way| way.starts_with(told)) {
                    self.left.push((reading.token.clone(), reading.real_path.clone()));
                }
            }
        }
    }

    /// True if the reading was reported: at its path, or at its path within a work tree that was
    /// moved since.
    fn cover(&self, root: &Path, reading: &Reading) -> bool {
        let at = &reading.real_path;
        self.left.iter().filter(|(token, _)| *token == reading.token).any(|(_, told)| {
            told == at
                || at.ancestors().skip(1).any(|worktree| {
                    let below = at.strip_prefix(worktree).unwrap_or(at);
                    root.join(worktree).join(".git").symlink_metadata().is_ok()
                        && told.ends_with(below)
                })
        })
    }
}

/// Paths below the root that lead to the file of a reading: its own, with links resolved up to each
/// folder on the way, and as a whole.
fn ways(root: &Path, reading: &Reading) -> Vec<PathBuf> {
    let path = &reading.path;
    let resolved = path.ancestors().skip(1).filter_map(|above| {
        let real = fs::canonicalize(root.join(above)).ok()?;
        Some(real.strip_prefix(root).ok()?.join(path.strip_prefix(above).ok()?))
    });
    resolved.chain([path.clone(), reading.real_path.clone()]).collect()
}

/// In memory where that is possible: thousands of trees would wait for the journal of a disk.
fn temporary_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Runs the commands on the tree of a user, and fails with the readings that were not reported.
fn unreported(parts: u16, commands: &[Vec<Piece>]) -> Result<(), String> {
    let folder = temporary_folder();
    let base = folder.path().canonicalize().unwrap();
    let root = base.join("ws");
    fs::create_dir(&root).unwrap();
    for operation in pieces::user_tree(parts) {
        operation.apply(&root);
    }
    let quarantine = base.join("quarantine");
    let protection =
        Protection::new(std::slice::from_ref(&root), Vec::new(), None, Vec::new(), quarantine);
    let protection = Arc::new(protection.unwrap());
    let mut reports = Reports::default();
    let mut serial = 0;
    let mut log = Vec::new();
    for command in commands {
        let survey = protection.survey();
        for piece in command {
            for operation in piece.operations(&mut serial) {
                operation.apply(&root);
                log.push(format!("{operation:?}"));
            }
        }
        let findings = protection.check_after(survey);
        let readings = host_model::readings(&root);
        reports.note(&root, &findings, &readings);
        log.extend(findings.iter().map(|finding| format!("-- {finding}")));
        let missed: Vec<&Reading> =
            readings.iter().filter(|reading| !reports.cover(&root, reading)).collect();
        if !missed.is_empty() {
            return Err(format!("{missed:#?}\n{}", log.join("\n")));
        }
    }
    Ok(())
}

/// Number of cases that `POSSE_CASES` requests.
fn cases() -> Option<u32> {
    std::env::var("POSSE_CASES").ok()?.parse().ok()
}

/// Number of trees of one of the `shares` tests that run beside each other.
fn trees(shares: u32) -> u32 {
    cases().map_or(TREES, |cases| cases.min(TREES_MAX)) / shares
}

proptest! {
    #![proptest_config(ProptestConfig { cases: trees(2), max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_planted_is_read_without_a_report(
        parts in any::<u16>(),
        commands in pieces::commands(),
    ) {
        unreported(parts, &commands).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn nothing_planted_in_a_whole_tree_is_read_without_a_report(commands in pieces::commands()) {
        unreported(u16::MAX, &commands).map_err(TestCaseError::fail)?;
    }
}
