//! Memory of subagents within a session: extracts from their reports, which the next subagent of
//! the same name, provider and folder receives.
//!
//! The extracts are made by rules without a model and have maximum sizes. They are the same whether
//! they are collected live or read from the journal. Pure.

use std::fmt::Write as _;

use crate::conversation::{Message, ToolCall};
use crate::delegation::handoff::{one_line, shortened};
use crate::outcome::{Memories, Memory, SubagentOutcome, SubagentReport};

/// Maximum number of latest reports that are kept with a preview of the answer.
const RESULTS_MAX: usize = 3;
/// Maximum number of older reports, which are kept as a single line each.
const EARLIER_MAX: usize = 8;
/// Maximum number of findings, of decisions, and of open questions.
const POINTS_MAX: usize = 12;
/// Maximum number of remembered files.
const FILES_MAX: usize = 20;
/// Maximum characters of a finding, decision or open question; longer ones are shortened.
const POINT_CHARS_MAX: usize = 200;
/// Maximum characters of the preview of a report.
const PREVIEW_CHARS_MAX: usize = 300;
/// Maximum characters of the task, and of the preview, in the line of an older report.
const BRIEF_CHARS_MAX: usize = 80;

/// Part of the memory of subagents that is to be deleted.
#[derive(Debug)]
pub(crate) enum Forget {
    Nothing,
    /// The memory of all subagents of this name.
    Of(String),
    Everything,
}

/// Report of a subagent that has ended, as input of the memory.
pub(crate) struct FinishedTask<'a> {
    pub(crate) agent: &'a str,
    pub(crate) provider: &'a str,
    pub(crate) cwd: &'a str,
    pub(crate) task: &'a str,
    pub(crate) outcome: &'a SubagentOutcome,
    pub(crate) said: &'a str,
    pub(crate) files: &'a [String],
}

impl Memories {
    /// Adds the report of a subagent to the memory of its name, provider and folder. Ignored if it
    /// gave neither a complete nor a partial answer. Returns the changed memory.
    pub(crate) fn add_report(&mut self, learnt: &FinishedTask<'_>) -> Option<&Memory> {
        let FinishedTask { agent, provider, cwd, task, outcome, said, files } = *learnt;
        if !matches!(outcome, SubagentOutcome::Done | SubagentOutcome::Partial { .. }) {
            return None;
        }
        let same = |one: &Memory| one.agent == agent && one.provider == provider && one.cwd == cwd;
        let nth = self.0.iter().position(same).unwrap_or_else(|| {
            let (agent, provider, cwd) = (agent.to_owned(), provider.to_owned(), cwd.to_owned());
            self.0.push(Memory { agent, provider, cwd, ..Memory::default() });
            self.0.len() - 1
        });
        self.0[nth].add(task, outcome, said, files);
        self.0.get(nth)
    }

    /// Deletes the part `what`. Returns the number of deleted memories.
    pub(crate) fn forget(&mut self, what: &Forget) -> usize {
        let before = self.0.len();
        match what {
            Forget::Nothing => {}
            Forget::Of(agent) => self.0.retain(|one| one.agent != *agent),
            Forget::Everything => self.0.clear(),
        }
        before - self.0.len()
    }

    /// Text of the memory for the next subagent of this name, provider and folder; empty if no
    /// report is remembered.
    pub(crate) fn text(&self, agent: &str, provider: &str, cwd: &str) -> String {
        let same = |one: &&Memory| one.agent == agent && one.provider == provider && one.cwd == cwd;
        self.0.iter().find(same).map(Memory::text).unwrap_or_default()
    }
}

impl Memory {
    fn add(&mut self, task: &str, outcome: &SubagentOutcome, said: &str, files: &[String]) {
        self.tasks = self.tasks.saturating_add(1);
        let points = points(said);
        for (kept, new) in [
            (&mut self.findings, points.findings),
            (&mut self.decisions, points.decisions),
            (&mut self.open_questions, points.open_questions),
            (&mut self.relevant_files, files.to_vec()),
        ] {
            for point in new {
                // A repeated point counts as the newest.
                kept.retain(|known| *known != point);
                kept.push(point);
            }
        }
        for kept in [&mut self.findings, &mut self.decisions, &mut self.open_questions] {
            keep_last(kept, POINTS_MAX);
        }
        keep_last(&mut self.relevant_files, FILES_MAX);
        let (task, outcome) = (task.to_owned(), outcome.to_string());
        let preview = shortened(said, PREVIEW_CHARS_MAX);
        self.last_results.push(SubagentReport { task, outcome, preview });
        while self.last_results.len() > RESULTS_MAX {
            let SubagentReport { task, preview, .. } = self.last_results.remove(0);
            let line = format!(
                "{}: {}",
                shortened(&task, BRIEF_CHARS_MAX),
                shortened(&preview, BRIEF_CHARS_MAX)
            );
            self.summary.push(line);
        }
        keep_last(&mut self.summary, EARLIER_MAX);
    }

    /// The memory as text, for the next subagent and for display.
    pub fn text(&self) -> String {
        let mut text = format!("tasks so far: {}\n", self.tasks);
        let mut part = |name: &str, lines: &[String]| {
            if lines.is_empty() {
                return;
            }
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(text, "{name}:");
            for line in lines {
                let _: std::fmt::Result = writeln!(text, "- {line}");
            }
        };
        let report = |report: &SubagentReport| {
            let SubagentReport { task, outcome, preview } = report;
            format!("{task} ({outcome}): {preview}")
        };
        let results: Vec<String> = self.last_results.iter().rev().map(report).collect();
        part("last results", &results);
        part("open questions", &self.open_questions);
        part("decisions", &self.decisions);
        part("findings", &self.findings);
        part("relevant files", &self.relevant_files);
        part("earlier", &self.summary);
        text
    }
}

pub(super) fn keep_last(lines: &mut Vec<String>, max: usize) {
    let over = lines.len().saturating_sub(max);
    lines.drain(..over);
}

/// Findings, decisions and open questions of a text.
#[derive(Default)]
pub(super) struct Points {
    pub(super) findings: Vec<String>,
    pub(super) decisions: Vec<String>,
    pub(super) open_questions: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Findings,
    Decisions,
    Questions,
    Other,
}

/// Findings, decisions and open questions of a report: list items below headings of these names.
/// Lines outside these sections count as findings if they name a location such as `src/a.rs:3`.
pub(super) fn points(said: &str) -> Points {
    let mut points = Points::default();
    let mut section = Section::Other;
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(next) = heading(line) {
            section = next;
            continue;
        }
        let bullet = bullet(line);
        let text = shortened(bullet.unwrap_or(line), POINT_CHARS_MAX);
        let list = match section {
            Section::Findings => &mut points.findings,
            Section::Decisions => &mut points.decisions,
            Section::Questions => &mut points.open_questions,
            Section::Other if names_a_place(&text) => &mut points.findings,
            Section::Other => continue,
        };
        if bullet.is_some() || section == Section::Other {
            list.push(text);
        }
    }
    points
}

/// The section that begins with the heading `line`: `Other` for an unknown heading. `None` if the
/// line is not a heading.
fn heading(line: &str) -> Option<Section> {
    let marked = line.starts_with('#') || line.ends_with(':') || line.ends_with(":**");
    if !marked || bullet(line).is_some() {
        return None;
    }
    let name = line.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    Some(match name.as_str() {
        name if name.starts_with("finding") => Section::Findings,
        name if name.starts_with("decision") => Section::Decisions,
        name if name.starts_with("open question") || name.starts_with("question") => {
            Section::Questions
        }
        _ => Section::Other,
    })
}

/// Text after the list marker of `line`; `None` if it has none.
fn bullet(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
        return Some(rest.trim_start());
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = line.get(digits..).filter(|_| digits > 0)?;
    rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") ")).map(str::trim_start)
}

/// True if a word of `line` is a path with a line number: a text with a `.`, then `:` and a digit.
fn names_a_place(line: &str) -> bool {
    line.split(|c: char| c.is_whitespace() || matches!(c, '`' | '(' | ')' | ',')).any(|word| {
        word.split_once(':').is_some_and(|(path, rest)| {
            let is_path = path.contains('.') && !path.starts_with("http");
            is_path && rest.starts_with(|c: char| c.is_ascii_digit())
        })
    })
}

/// Adds the paths that `calls` name in their argument `path` to `files`, except `.`: newest last,
/// each once. Keeps the newest 20.
pub(crate) fn follow_files(files: &mut Vec<String>, calls: &[ToolCall]) {
    for call in calls {
        let Ok(arguments) = serde_json::from_str::<serde_json::Value>(&call.arguments) else {
            continue;
        };
        if let Some(path) = arguments.get("path").and_then(serde_json::Value::as_str)
            && !matches!(path, "" | ".")
        {
            let path = one_line(path);
            files.retain(|known| *known != path);
            files.push(path);
        }
    }
    keep_last(files, FILES_MAX);
}

/// The paths that the calls of a history name in their argument `path`, except `.`: newest last,
/// each once, at most 20.
pub(crate) fn files_of(history: &[std::sync::Arc<Message>]) -> Vec<String> {
    let mut files = Vec::new();
    for message in history {
        if let Message::Assistant(said) = &**message {
            follow_files(&mut files, &said.tool_calls);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn add_report(memories: &mut Memories, task: &str, said: &str, files: &[&str]) {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        memories.add_report(&FinishedTask {
            agent: "explore",
            provider: "p",
            cwd: "/w",
            task,
            outcome: &SubagentOutcome::Done,
            said,
            files: &files,
        });
    }

    #[test]
    fn keeps_findings_locations_files_and_last_answers() {
        let mut memories = Memories::default();
        let said = "It is slow.\n\n## Findings\n- the index is missing\n- the pool is small\n\n\
                    **Open questions:**\n1. who owns the table?\n\nDecisions:\n* keep the pool\n\n\
                    ## Places\n- `src/db.rs:12` opens it\n- nothing else\n";
        add_report(&mut memories, "find why", said, &["src/db.rs", "src/a.rs"]);
        add_report(&mut memories, "look again", "The same: src/a.rs:3.", &["src/db.rs"]);
        insta::assert_snapshot!(memories.text("explore", "p", "/w"), @r"
        tasks so far: 2
        last results:
        - look again (done): The same: src/a.rs:3.
        - find why (done): It is slow. ## Findings - the index is missing - the pool is small **Open questions:** 1. who owns the table? Decisions: * keep the pool ## Places - `src/db.rs:12` opens it - nothing else
        open questions:
        - who owns the table?
        decisions:
        - keep the pool
        findings:
        - the index is missing
        - the pool is small
        - `src/db.rs:12` opens it
        - The same: src/a.rs:3.
        relevant files:
        - src/a.rs
        - src/db.rs
        ");
        assert_eq!(memories.text("explore", "other", "/w"), "", "each provider has its own");
        assert_eq!(memories.text("explore", "p", "/elsewhere"), "");
        assert_eq!(memories.forget(&Forget::Of("worker".to_owned())), 0);
        assert_eq!(memories.forget(&Forget::Of("explore".to_owned())), 1);
        assert_eq!(memories, Memories::default());
    }

    #[test]
    fn only_answers_enter_the_memory() {
        let mut memories = Memories::default();
        for outcome in [
            SubagentOutcome::Cancelled,
            SubagentOutcome::silent(),
            SubagentOutcome::Waiting { until_ms: None },
        ] {
            memories.add_report(&FinishedTask {
                agent: "explore",
                provider: "p",
                cwd: "/w",
                task: "t",
                outcome: &outcome,
                said: "half",
                files: &[],
            });
        }
        assert_eq!(memories, Memories::default());
    }

    proptest! {
        /// For any number of reports a memory stays small and contains the last answer.
        #[test]
        fn stays_bounded(said in proptest::collection::vec("(- |## Findings\n|a.rs:1 |é|[a-z ]{0,40}|\n){0,60}", 1..40)) {
            let mut memories = Memories::default();
            for (nth, said) in said.iter().enumerate() {
                add_report(&mut memories, &format!("task {nth}"), said, &[&format!("f{nth}.rs")]);
            }
            let text = memories.text("explore", "p", "/w");
            prop_assert!(text.len() < 16_000, "{}", text.len());
            let last = format!("task {}", said.len() - 1);
            prop_assert!(text.contains(&last));
            let files = format!("f{}.rs", said.len() - 1);
            prop_assert!(text.contains(&files));
        }
    }
}
