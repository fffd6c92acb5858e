//! User-visible errors and exit codes.

mod codes;
mod exit;

use std::fmt;

pub use codes::{ErrorCode, RESULT_CODES};
pub use exit::Exit;

/// User-visible error: `error[CODE]: what`, then `where:`, `why:` and `fix:`.
///
/// All texts may be untrusted: control and invisible characters are escaped when displayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Error code, such as `CFG001`.
    pub code: ErrorCode,
    /// Error in one line.
    pub what: String,
    /// Location of the error: `file:line:column`, or a flag. Text after a newline is an excerpt,
    /// which is shown below the location.
    pub place: Option<String>,
    /// Reason, which is shown as `why:`.
    pub why: Option<String>,
    /// Advice to the user, which is shown as `fix:`.
    pub fix: Option<String>,
    /// Exit code if the error ends posse.
    pub exit: Exit,
}

/// Converts one failure to a list, so that `?` works in functions that return several failures.
impl From<Failure> for Vec<Failure> {
    fn from(failure: Failure) -> Vec<Failure> {
        vec![failure]
    }
}

/// Returns the values of all results. If any result is a failure, returns all failures instead of
/// the first only.
pub fn all_or_failures<T>(
    results: impl Iterator<Item = Result<T, Failure>>,
) -> Result<Vec<T>, Vec<Failure>> {
    let (mut values, mut failures) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() { Ok(values) } else { Err(failures) }
}

impl Failure {
    /// Creates an error without location, reason and advice.
    pub fn new(code: ErrorCode, exit: Exit, what: impl Into<String>) -> Failure {
        Failure { code, what: what.into(), place: None, why: None, fix: None, exit }
    }

    /// Sets the location.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Failure {
        self.place = Some(place.into());
        self
    }

    /// Sets the reason.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Failure {
        self.why = Some(why.into());
        self
    }

    /// Sets the reason to the text of `error.source()`. Removes the reason if there is no source.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn std::error::Error) -> Failure {
        self.why = error.source().map(ToString::to_string);
        self
    }

    /// Sets the advice to the user, which is shown as `fix:`.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Failure {
        self.fix = Some(fix.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, clean_error_text(&self.what))?;
        if let Some(place) = &self.place {
            // The place may contain the source line and a caret below it.
            write!(f, "\n  where: {}", printable_lines(place).replace('\n', "\n    "))?;
        }
        for (label, text) in [("why", &self.why), ("fix", &self.fix)] {
            if let Some(text) = text {
                write!(f, "\n  {label}: {}", clean_error_text(text))?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Escapes `text` as [`printable`] does, and removes the error numbers that Rust appends to system
/// errors.
fn clean_error_text(text: &str) -> String {
    let mut words = printable(text);
    while let Some(at) = words.find(" (os error ") {
        let Some(end) = words[at..].find(')') else { break };
        words.replace_range(at..=at + end, "");
    }
    words
}

/// Formats `items`, each followed by a newline.
pub fn lines<T: fmt::Display>(items: &[T]) -> String {
    items.iter().fold(String::new(), |text, item| format!("{text}{item}\n"))
}

/// Escapes control and invisible characters, such as direction overrides, so that `text` cannot
/// control a terminal. Newlines become `\n`, tabs stay.
pub fn printable(text: &str) -> String {
    escape(text, false)
}

/// Like [`printable`], but keeps newlines.
pub fn printable_lines(text: &str) -> String {
    escape(text, true)
}

fn escape(text: &str, newlines: bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => safe.push(c),
            '\n' if newlines => safe.push(c),
            c if c.is_control() || is_invisible(c) => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    safe
}

/// Returns the name in `known` that is most similar to `given`, ignoring case. `None` if no name is
/// similar enough, or if `given` is empty or longer than 64 characters.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer than any name; bounds the table for hostile input.
    const LENGTH_MAX: usize = 64;
    let given: Vec<char> = given.to_lowercase().chars().take(LENGTH_MAX + 1).collect();
    if given.is_empty() || given.len() > LENGTH_MAX {
        return None;
    }
    let mut best: Option<((usize, usize), &str)> = None;
    for name in known {
        let letters: Vec<char> = name.to_lowercase().chars().collect();
        // A typo in four letters; more make another word of it, as of `init` and `exit`.
        let typos_max = (given.len().max(letters.len()) / 4).max(1);
        let typos = typos_between(&given, &letters);
        // Of two equally close names, swapped letters win over a missing one.
        let distance = (typos, given.len().abs_diff(letters.len()));
        let beats = |(least, _)| distance < least;
        if typos <= typos_max && typos < letters.len() && best.is_none_or(beats) {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Returns the advice `did you mean "NAME"?` with the name that [`nearest`] finds in `known`.
/// `None` if it finds none.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(given, known).map(|meant| format!("did you mean \"{meant}\"?"))
}

/// Edit distance: minimum number of insertions, removals and replacements of a letter and of swaps
/// of adjacent letters that turn `a` into `b`.
fn typos_between(a: &[char], b: &[char]) -> usize {
    let width = b.len() + 1;
    let mut table: Vec<usize> = vec![0; (a.len() + 1) * width];
    for (column, cell) in table.iter_mut().enumerate().take(width) {
        *cell = column;
    }
    for row in 1..=a.len() {
        table[row * width] = row;
        for column in 1..=b.len() {
            let above = table[(row - 1) * width + column] + 1;
            let before = table[row * width + column - 1] + 1;
            let replaced = usize::from(a[row - 1] != b[column - 1]);
            let mut fewest =
                above.min(before).min(table[(row - 1) * width + column - 1] + replaced);
            let swapped =
                row > 1 && column > 1 && a[row - 1] == b[column - 2] && a[row - 2] == b[column - 1];
            if swapped {
                fewest = fewest.min(table[(row - 2) * width + column - 2] + 1);
            }
            table[row * width + column] = fewest;
        }
    }
    table[a.len() * width + b.len()]
}

/// True for characters that reorder or hide text: bidirectional controls, zero-width characters,
/// blank letters, line separators, tags, and variation selectors other than U+FE00 to U+FE0F.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_error_numbers_are_omitted() {
        let failure = Failure::new(ErrorCode::ImageUnreadable, Exit::Usage, "gone (os error 2)")
            .because("a (os error 13) and b (os error 5): no (os error");
        let text = failure.to_string();
        assert_eq!(text, "error[IMG001]: gone\n  why: a and b: no (os error");
    }

    #[test]
    fn each_part_is_on_its_own_line() {
        let failure =
            Failure::new(ErrorCode::ConfigUnknownKey, Exit::Configuration, "unknown key \"modle\"")
                .at("config.json:3:5")
                .fix("did you mean \"model\"?");
        insta::assert_snapshot!(failure, @r#"
        error[CFG002]: unknown key "modle"
          where: config.json:3:5
          fix: did you mean "model"?
        "#);
    }

    #[test]
    fn suggestions_are_close_matches_only() {
        let known = ["run", "demo", "sessions", "config", "mode", "model", "maxTurns"];
        let table = [
            ("rnu", Some("run")),
            ("session", Some("sessions")),
            ("modle", Some("model")),
            ("maxturns", Some("maxTurns")),
            ("conifg", Some("config")),
            ("sesions", Some("sessions")),
            ("fix", None),
            // Half of the letters differ.
            ("mood", None),
            ("rm", None),
            ("login", None),
            ("x", None),
            ("", None),
        ];
        for (given, meant) in table {
            assert_eq!(nearest(given, known), meant, "{given}");
        }
        assert_eq!(nearest(&"a".repeat(1 << 20), known), None);
    }

    #[test]
    fn error_text_cannot_control_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{202e}"), "a\\u{1b}[2Jb\\nc\\u{202e}");
    }
}
