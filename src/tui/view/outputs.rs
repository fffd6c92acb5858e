//! Whole outputs of calls, to be looked at. Bounded: the oldest go first.

use std::collections::VecDeque;

/// Bytes of all outputs that are kept.
const BYTES_MAX: usize = 8 << 20;

/// What a call gave.
#[derive(Debug, Clone)]
pub(in crate::tui) struct Output {
    /// What it did, in a line.
    pub(in crate::tui) title: String,
    /// What the model got to read.
    pub(in crate::tui) text: String,
    /// What it changed.
    pub(in crate::tui) diff: Option<String>,
}

/// What calls gave, oldest first.
#[derive(Debug, Default)]
pub(in crate::tui) struct Outputs {
    kept: VecDeque<Output>,
    bytes: usize,
}

impl Outputs {
    pub(super) fn add(&mut self, title: String, text: &str, diff: Option<&str>) {
        let output = Output { title, text: text.to_owned(), diff: diff.map(str::to_owned) };
        self.bytes += bytes_of(&output);
        self.kept.push_back(output);
        while self.bytes > BYTES_MAX && self.kept.len() > 1 {
            let gone = self.kept.pop_front().as_ref().map_or(0, bytes_of);
            self.bytes -= gone;
        }
    }

    /// Oldest first.
    pub(in crate::tui) fn iter(&self) -> impl DoubleEndedIterator<Item = &Output> {
        self.kept.iter()
    }
}

fn bytes_of(output: &Output) -> usize {
    output.title.len() + output.text.len() + output.diff.as_deref().map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let mut outputs = Outputs::default();
        for nth in 0..20 {
            outputs.add(nth.to_string(), &"x".repeat(1 << 20), None);
        }
        let titles: Vec<&str> = outputs.iter().map(|output| output.title.as_str()).collect();
        assert_eq!(titles, ["13", "14", "15", "16", "17", "18", "19"]);
        outputs.add("huge".to_owned(), &"x".repeat(BYTES_MAX), None);
        assert_eq!(outputs.iter().count(), 1, "the last one is always there");
    }
}
