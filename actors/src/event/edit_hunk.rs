//! Hunks of the change of a text file in a permission request, and the answers to them.

use serde::{Deserialize, Serialize};

/// Maximum number of hunks that a permission request offers.
pub const HUNKS_MAX: usize = 100;

/// Maximum bytes of the texts of a person in one answer, together.
pub const HUNK_TEXTS_BYTES_MAX: usize = 256 << 10;

/// Hunk of the change of a text file: consecutive lines with some unchanged ones around them, as in
/// the unified diff of the change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EditHunk {
    /// Number of its first line in the file before the change, from 1. If `oldLines` is 0, number
    /// of the line after which it begins.
    pub old_start: u64,
    /// Number of its lines before the change.
    pub old_lines: u64,
    /// Number of its first line in the file after the whole change, from 1. If `newLines` is 0,
    /// number of the line after which it begins.
    pub new_start: u64,
    /// Number of its lines after the change.
    pub new_lines: u64,
    /// Its lines before the change, unchanged ones included.
    pub old_text: String,
    /// Its lines after the change, unchanged ones included.
    pub new_text: String,
}

/// Answer of a person about one hunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum HunkAnswer {
    /// The hunk is made.
    Yes,
    /// The hunk is left out: its lines stay as they are.
    No,
    /// This text takes the place of `oldText` of the hunk.
    Replace(String),
}

impl HunkAnswer {
    /// Checks that `answers` answer a request with this number of hunks. The error names the place and
    /// the fix.
    pub fn check(hunks: usize, answers: &[HunkAnswer]) -> Result<(), String> {
        if hunks == 0 {
            return Err("hunks: the request offers none; answer it as a whole".to_owned());
        }
        if answers.len() != hunks {
            return Err(format!(
                "hunks: {} for {hunks} hunks; give one answer for each hunk: \"yes\", \"no\" or \
                 {{\"replace\": \"TEXT\"}}",
                answers.len()
            ));
        }
        let mut bytes = 0;
        for (nth, answer) in answers.iter().enumerate() {
            let HunkAnswer::Replace(text) = answer else { continue };
            bytes += text.len();
            if text.contains('\0') {
                return Err(format!(
                    "hunks[{nth}].replace: it contains a NUL character; remove it"
                ));
            }
            if bytes > HUNK_TEXTS_BYTES_MAX {
                return Err(format!(
                    "hunks[{nth}].replace: the texts have more than {} KiB together; make them shorter, \
                     or change the file yourself",
                    HUNK_TEXTS_BYTES_MAX >> 10
                ));
            }
        }
        Ok(())
    }

    /// Number of the hunks that `answers` make, as they are or with another text.
    pub fn made(answers: &[HunkAnswer]) -> usize {
        answers.iter().filter(|answer| **answer != HunkAnswer::No).count()
    }

    /// Number of made hunks in words: `2 of 3 hunks`, `2 of 3 hunks, 1 of them changed`.
    pub fn summary(answers: &[HunkAnswer]) -> String {
        let changed = answers.iter().filter(|one| matches!(one, HunkAnswer::Replace(_))).count();
        let noun = if answers.len() == 1 { "hunk" } else { "hunks" };
        let text = format!("{} of {} {noun}", HunkAnswer::made(answers), answers.len());
        if changed == 0 { text } else { format!("{text}, {changed} of them changed") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_words_or_a_text_in_json() {
        let answers =
            vec![HunkAnswer::Yes, HunkAnswer::No, HunkAnswer::Replace("a\r\n\u{1b}".to_owned())];
        let json = serde_json::to_string(&answers).unwrap();
        assert_eq!(json, r#"["yes","no",{"replace":"a\r\n\u001b"}]"#);
        assert_eq!(serde_json::from_str::<Vec<HunkAnswer>>(&json).unwrap(), answers);
        for wrong in [r#"["maybe"]"#, r#"[{"replace":1}]"#, r#"[{"yes":null,"no":null}]"#, "[1]"] {
            assert!(serde_json::from_str::<Vec<HunkAnswer>>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn answer_that_does_not_fit_names_the_place_and_the_fix() {
        let replace = |text: &str| HunkAnswer::Replace(text.to_owned());
        let half = "x".repeat(HUNK_TEXTS_BYTES_MAX / 2);
        for (hunks, answers, place, fix) in [
            (0, vec![HunkAnswer::Yes], "hunks:", "as a whole"),
            (2, vec![HunkAnswer::Yes], "hunks: 1 for 2 hunks", "for each hunk"),
            (1, vec![HunkAnswer::Yes, HunkAnswer::No], "hunks: 2 for 1 hunks", "for each hunk"),
            (2, vec![HunkAnswer::Yes, replace("a\0")], "hunks[1].replace", "remove it"),
            (3, vec![replace(&half), replace(&half), replace("x")], "hunks[2].replace", "shorter"),
        ] {
            let error = HunkAnswer::check(hunks, &answers).unwrap_err();
            assert!(error.starts_with(place) && error.contains(fix), "{error}");
        }
        for answers in [vec![replace(&half), replace(&half)], vec![replace(""), HunkAnswer::No]] {
            assert_eq!(HunkAnswer::check(2, &answers), Ok(()));
        }
    }

    #[test]
    fn made_hunks_are_counted() {
        let (yes, no, other) =
            (HunkAnswer::Yes, HunkAnswer::No, HunkAnswer::Replace(String::new()));
        assert_eq!(HunkAnswer::summary(&[yes.clone(), no.clone()]), "1 of 2 hunks");
        assert_eq!(HunkAnswer::summary(&[other, no, yes]), "2 of 3 hunks, 1 of them changed");
        assert_eq!(HunkAnswer::summary(&[HunkAnswer::Yes]), "1 of 1 hunk");
    }
}
