//! Full outputs of calls for the viewer. Bounded: the oldest are dropped first.

use std::collections::VecDeque;

/// Maximum bytes of all outputs together, unless the last output alone is longer.
const BYTES_MAX: usize = 8 << 20;

/// Output of a call.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// Summary of the call in one line.
    pub(crate) title: String,
    /// Text of the recorded result. A hook may give the model another one.
    pub(crate) text: String,
    /// File change as a diff; `None` if the call changed no file.
    pub(crate) diff: Option<String>,
}

/// Outputs of calls, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
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

    /// Inserts `earlier` outputs before these ones.
    pub(super) fn add_before(&mut self, mut earlier: Outputs) {
        for output in std::mem::take(&mut self.kept) {
            earlier.add(output.title, &output.text, output.diff.as_deref());
        }
        *self = earlier;
    }

    /// Outputs that were not dropped, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Output> {
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
    fn oldest_are_dropped_first() {
        let mut outputs = Outputs::default();
        for nth in 0..20 {
            outputs.add(nth.to_string(), &"x".repeat(1 << 20), None);
        }
        let titles: Vec<&str> = outputs.iter().map(|output| output.title.as_str()).collect();
        assert_eq!(titles, ["13", "14", "15", "16", "17", "18", "19"]);
        outputs.add("huge".to_owned(), &"x".repeat(BYTES_MAX), None);
        assert_eq!(outputs.iter().count(), 1, "the last one is always kept");
    }
}
