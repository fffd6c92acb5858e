//! Way of a person through the hunks of an edit: each is taken, left out, or replaced by a text.

use std::path::Path;

use posse_actors::event::{EditHunk, HunkAnswer};
use posse_actors::permission_coordinator::HumanDecision;

/// Maximum length of the extension of a file that an editor opens.
const EXTENSION_CHARS_MAX: usize = 16;

/// The hunks of a permission request, with the answers so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HunkWalk {
    hunks: Vec<EditHunk>,
    /// Part of the diff about each hunk, which begins with its header.
    parts: Vec<String>,
    extension: String,
    /// Answers about the first hunks.
    answers: Vec<HunkAnswer>,
}

impl HunkWalk {
    /// Begins with the first of `hunks`. `detail`: the diff of the request. `None` if there are no
    /// hunks, or if the diff does not show exactly these.
    pub fn new(detail: &str, hunks: &[EditHunk]) -> Option<HunkWalk> {
        let mut parts: Vec<String> = Vec::new();
        let mut names = detail.split_inclusive('\n');
        let (old, new) = (names.next()?, names.next()?);
        if !old.starts_with("--- ") || !new.starts_with("+++ ") {
            return None;
        }
        for line in names {
            match parts.last_mut() {
                _ if line.starts_with("@@ -") => parts.push(line.to_owned()),
                Some(part) => part.push_str(line),
                None => return None,
            }
        }
        let are_these = parts.len() == hunks.len()
            && parts.iter().zip(hunks).all(|(part, hunk)| part.starts_with(&header(hunk)));
        (are_these && !hunks.is_empty()).then(|| HunkWalk {
            hunks: hunks.to_vec(),
            parts,
            extension: extension(new.trim_end()),
            answers: Vec::new(),
        })
    }

    /// Position of the current hunk: `hunk 2 of 3`.
    pub fn title(&self) -> String {
        format!("hunk {} of {}", self.answers.len() + 1, self.hunks.len())
    }

    /// Diff of the current hunk, which begins with its header.
    pub fn diff(&self) -> &str {
        self.parts.get(self.answers.len()).map_or("", String::as_str)
    }

    /// Text of the current hunk for an editor: its lines after the change.
    pub fn draft(&self) -> &str {
        self.hunks.get(self.answers.len()).map_or("", |hunk| &hunk.new_text)
    }

    /// Extension of the edited file, without the dot: letters and digits.
    pub fn extension(&self) -> &str {
        &self.extension
    }

    /// Takes the current hunk as it is. Returns the decision after the last one.
    pub fn take(&mut self) -> Option<HumanDecision> {
        self.answer(HunkAnswer::Yes)
    }

    /// Leaves out the current hunk. Returns the decision after the last one.
    pub fn leave(&mut self) -> Option<HumanDecision> {
        self.answer(HunkAnswer::No)
    }

    /// Takes the current hunk with the text that the person has edited; an unchanged one takes it as
    /// it is. Returns the decision after the last one. `Err`: the text cannot be used, for this
    /// reason, and the hunk stays the current one.
    pub fn replace(&mut self, text: String) -> Result<Option<HumanDecision>, String> {
        let answer = self.replacement(text);
        let mut answers = self.answers.clone();
        answers.push(answer.clone());
        HunkAnswer::check(answers.len(), &answers)?;
        Ok(self.answer(answer))
    }

    /// Takes the current hunk and all after it.
    pub fn take_rest(&mut self) -> HumanDecision {
        let mut answers = std::mem::take(&mut self.answers);
        answers.resize(self.hunks.len(), HunkAnswer::Yes);
        HumanDecision::Hunks(answers)
    }

    fn replacement(&self, mut text: String) -> HunkAnswer {
        let draft = self.draft();
        // Editors end a file with a line break.
        if !draft.ends_with('\n') && text.ends_with('\n') {
            text.pop();
        }
        if text == draft { HunkAnswer::Yes } else { HunkAnswer::Replace(text) }
    }

    fn answer(&mut self, answer: HunkAnswer) -> Option<HumanDecision> {
        self.answers.push(answer);
        let is_last = self.answers.len() >= self.hunks.len();
        is_last.then(|| HumanDecision::Hunks(std::mem::take(&mut self.answers)))
    }
}

/// Header of the hunk in a unified diff.
fn header(hunk: &EditHunk) -> String {
    let range = |start: u64, lines: u64| {
        if lines == 1 { start.to_string() } else { format!("{start},{lines}") }
    };
    let EditHunk { old_start, old_lines, new_start, new_lines, .. } = hunk;
    format!("@@ -{} +{} @@\n", range(*old_start, *old_lines), range(*new_start, *new_lines))
}

/// Extension of a file name from a diff. Other characters than letters and digits give `txt`.
fn extension(name: &str) -> String {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    let is_plain = |text: &&str| {
        text.len() <= EXTENSION_CHARS_MAX && text.chars().all(|c| c.is_ascii_alphanumeric())
    };
    extension.filter(is_plain).unwrap_or("txt").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETAIL: &str = "--- a/src/x.rs\n+++ b/src/x.rs\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n@@ -9 +9,0 @@\n\
                          -i\n@@ -20,0 +20 @@\n+@@ -1 +1 @@\n\\ No newline at end of file\n";

    fn hunks() -> Vec<EditHunk> {
        let hunk = |[old_start, old_lines, new_start, new_lines]: [u64; 4], new_text: &str| {
            let (old_text, new_text) = (String::new(), new_text.to_owned());
            EditHunk { old_start, old_lines, new_start, new_lines, old_text, new_text }
        };
        vec![
            hunk([1, 2, 1, 2], "a\nB\n"),
            hunk([9, 1, 9, 0], ""),
            hunk([20, 0, 20, 1], "@@ -1 +1 @@"),
        ]
    }

    #[test]
    fn each_hunk_is_shown_with_its_part_of_the_diff() {
        let mut walk = HunkWalk::new(DETAIL, &hunks()).unwrap();
        assert_eq!((walk.title().as_str(), walk.extension()), ("hunk 1 of 3", "rs"));
        assert_eq!(walk.diff(), "@@ -1,2 +1,2 @@\n a\n-b\n+B\n");
        assert_eq!(walk.take(), None);
        assert_eq!((walk.title().as_str(), walk.diff()), ("hunk 2 of 3", "@@ -9 +9,0 @@\n-i\n"));
        assert_eq!(walk.leave(), None);
        assert!(walk.diff().ends_with("\n+@@ -1 +1 @@\n\\ No newline at end of file\n"));
        let decision = walk.replace("x\n".to_owned()).unwrap();
        let answers = [HunkAnswer::Yes, HunkAnswer::No, HunkAnswer::Replace("x".to_owned())];
        assert_eq!(decision, Some(HumanDecision::Hunks(answers.to_vec())));
    }

    #[test]
    fn unchanged_text_takes_the_hunk() {
        let mut walk = HunkWalk::new(DETAIL, &hunks()).unwrap();
        assert_eq!(walk.replace("a\nB\n".to_owned()), Ok(None));
        assert_eq!(walk.replace("\n".to_owned()), Ok(None));
        // An editor has added the line break.
        let decision = walk.replace("@@ -1 +1 @@\n".to_owned()).unwrap();
        assert_eq!(decision, Some(HumanDecision::Hunks(vec![HunkAnswer::Yes; 3])));
    }

    #[test]
    fn text_that_cannot_be_used_leaves_the_hunk_open() {
        let mut walk = HunkWalk::new(DETAIL, &hunks()).unwrap();
        assert!(walk.replace("\0".to_owned()).unwrap_err().contains("NUL"));
        assert!(walk.replace("x".repeat(1 << 20)).unwrap_err().contains("256 KiB"));
        assert_eq!(walk.title(), "hunk 1 of 3");
        walk.leave();
        let answers = vec![HunkAnswer::No, HunkAnswer::Yes, HunkAnswer::Yes];
        assert_eq!(walk.take_rest(), HumanDecision::Hunks(answers));
    }

    #[test]
    fn other_diffs_have_no_hunks_to_walk_through() {
        let cut = DETAIL.replace("@@ -20,0 +20 @@\n", "");
        for (detail, count) in
            [("", 3), ("a command\n", 3), (DETAIL, 2), (DETAIL, 0), (cut.as_str(), 3)]
        {
            assert_eq!(HunkWalk::new(detail, &hunks()[..count]), None, "{detail} {count}");
        }
        let mut other = hunks();
        other[1].old_start = 8;
        assert_eq!(HunkWalk::new(DETAIL, &other), None);
        let names =
            [("a/b.tar.gz", "gz"), ("Makefile", "txt"), ("x.$(id)", "txt"), (".env", "txt")];
        for (name, expected) in names {
            assert_eq!(extension(name), expected, "{name}");
        }
    }
}
