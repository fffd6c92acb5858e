//! Hunks of an edit at a terminal, answered line by line.

use std::collections::VecDeque;

use posse_actors::event::HUNK_TEXTS_BYTES_MAX;
use posse_actors::permission_coordinator::HumanDecision;
use posse_frontend::hunk_walk::HunkWalk;

use super::draft_file::DraftFile;
use super::pages::{QuestionPage, pages};

/// Meaning of a line while hunks are answered.
#[derive(Debug)]
pub(super) enum HunkLine {
    /// All hunks are answered.
    Decided(HumanDecision),
    /// The next hunk is shown.
    Next,
    /// The person wants to answer the request as a whole.
    Back,
    /// The line decides nothing: this text says why.
    Unclear(String),
}

/// Hunks of a request that a person answers one by one.
#[derive(Debug)]
pub(super) struct HunkForm {
    walk: HunkWalk,
    /// File in which the person changes the current hunk; `None` before the person asks for it.
    file: Option<DraftFile>,
    /// Pages of the request that were not shown before.
    rest: VecDeque<QuestionPage>,
}

impl HunkForm {
    /// Begins with the first hunk. `rest`: pages of the request that were not shown yet.
    pub(super) fn new(walk: HunkWalk, rest: VecDeque<QuestionPage>) -> HunkForm {
        HunkForm { walk, file: None, rest }
    }

    /// Pages of the request that were not shown before the hunks were.
    pub(super) fn into_rest(self) -> VecDeque<QuestionPage> {
        self.rest
    }

    /// Pages of the current hunk.
    pub(super) fn pages(&self) -> VecDeque<QuestionPage> {
        let mut all = pages(self.walk.diff());
        if let Some(first) = all.front_mut() {
            first.text.insert_str(0, &format!("\n  {}\n", self.walk.title()));
        }
        all
    }

    /// The possible answers, for the line on which the person types one. `is_seen`: the whole hunk
    /// was shown.
    pub(super) fn keys(&self, is_seen: bool) -> String {
        if !is_seen {
            return "  [Enter] more  [n] leave  [q] back: ".to_owned();
        }
        let edit = if self.file.is_some() { "[y] take it as saved" } else { "[y] take" };
        format!("  {edit}  [n] leave  [e] editor  [a] take this and the rest  [q] back: ")
    }

    /// True if `line` looks like an answer about a hunk.
    pub(super) fn looks_like_answer(line: &str) -> bool {
        matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "n" | "e" | "a" | "q" | "")
    }

    /// Interprets a line as an answer about the current hunk. `is_seen`: the whole hunk was shown.
    pub(super) fn line(&mut self, line: &str, is_seen: bool) -> HunkLine {
        let not_seen = || HunkLine::Unclear(format!("  {}\n", super::NOT_SEEN));
        match line.trim().to_ascii_lowercase().as_str() {
            "q" => HunkLine::Back,
            "n" | "no" => {
                let decision = self.walk.leave();
                self.next(decision)
            }
            "y" | "yes" | "e" | "a" if !is_seen => not_seen(),
            // The rest is taken only if the person has seen it before.
            "a" if !self.rest.is_empty() => not_seen(),
            "y" | "yes" => match self.take() {
                Ok(decision) => self.next(decision),
                Err(why) => HunkLine::Unclear(format!("  {why}\n")),
            },
            "a" => match self.take() {
                Ok(decision) => {
                    HunkLine::Decided(decision.unwrap_or_else(|| self.walk.take_rest()))
                }
                Err(why) => HunkLine::Unclear(format!("  {why}\n")),
            },
            "e" => HunkLine::Unclear(self.edit()),
            _ => HunkLine::Unclear("  that is no answer; type a key in brackets\n".to_owned()),
        }
    }

    fn next(&mut self, decision: Option<HumanDecision>) -> HunkLine {
        self.file = None;
        decision.map_or(HunkLine::Next, HunkLine::Decided)
    }

    /// Takes the current hunk, with the text that the person has saved if there is one.
    fn take(&mut self) -> Result<Option<HumanDecision>, String> {
        match &self.file {
            Some(file) => self.walk.replace(file.saved()?),
            None => Ok(self.walk.take()),
        }
    }

    /// Creates the file for the current hunk, and returns a message with its path.
    fn edit(&mut self) -> String {
        let (extension, draft) = (self.walk.extension(), self.walk.draft());
        let file = self
            .file
            .take()
            .map_or_else(|| DraftFile::create("hunk", extension, draft, HUNK_TEXTS_BYTES_MAX), Ok);
        match file {
            Ok(file) => {
                let text = format!(
                    "  change the hunk in {} and save it; then take it here\n",
                    file.place()
                );
                self.file = Some(file);
                text
            }
            Err(error) => format!("  cannot create a file for the hunk: {error}\n"),
        }
    }
}

#[cfg(test)]
mod tests;
