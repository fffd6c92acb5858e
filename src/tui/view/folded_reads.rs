//! Folding of calls that only read: several in a row are shown as one list of what they read.

use std::ops::Range;
use std::time::Duration;

use ratatui::text::Span;

use crate::text::{TextRow, span, wrap};
use crate::theme::{Role, Theme};
use crate::view::tool::ToolCallView;
use crate::view::{Block, View};

/// Maximum number of calls in one list, so that a long series appears piece by piece.
const FOLDED_MAX: usize = 30;

impl View {
    /// Number of calls from `from` on that are shown as one list; 0 or 1 if none are folded.
    pub(super) fn folded_from(&self, from: usize) -> usize {
        let blocks = self.blocks.iter().skip(from);
        blocks.take_while(|block| foldable(block).is_some()).take(FOLDED_MAX).count()
    }

    /// Returns `true` if the first block begins a list to which the run may add more calls.
    pub(super) fn waits_for_more_reads(&self) -> bool {
        let count = self.folded_from(0);
        if count == 0 || count == FOLDED_MAX || self.running.is_none() {
            return false;
        }
        match self.blocks.get(count) {
            Some(Block::Tool(tool)) => tool.may_become_foldable(),
            Some(_) => false,
            None => self.stream.unfinished_tail().is_none(),
        }
    }

    /// The blocks in runs that are shown together.
    pub(super) fn runs_of_blocks(&self) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut from = 0;
        while from < self.blocks.len() {
            let to = from + self.folded_from(from).max(1);
            runs.push(from..to);
            from = to;
        }
        runs
    }

    /// Rows of the blocks in a run.
    pub(super) fn rows_of(
        &self,
        run: Range<usize>,
        columns: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<TextRow> {
        let calls: Vec<&ToolCallView> =
            self.blocks.range(run.clone()).filter_map(foldable).collect();
        if calls.len() > 1 {
            return list(&calls, columns, theme);
        }
        self.blocks.range(run).flat_map(|block| block.rows(columns, theme, now)).collect()
    }
}

fn foldable(block: &Block) -> Option<&ToolCallView> {
    match block {
        Block::Tool(tool) if tool.is_foldable() => Some(tool),
        _ => None,
    }
}

/// A list of what calls read: one entry for each series of calls with the same verb.
fn list(calls: &[&ToolCallView], columns: usize, theme: Theme) -> Vec<TextRow> {
    let mark = [span(theme, Role::Good, "• ")];
    let mut rows = wrap(&[span(theme, Role::Strong, "explore")], columns, &mark, &[]);
    let mut entries: Vec<(String, Vec<String>)> = Vec::new();
    for call in calls {
        let title = call.title();
        let (verb, object) = title.split_once(' ').unwrap_or((&title, ""));
        match entries.last_mut() {
            Some((last, objects)) if last == verb => {
                // The same file may be read in parts.
                if objects.last().is_none_or(|last| last != object) {
                    objects.push(object.to_owned());
                }
            }
            _ => entries.push((verb.to_owned(), vec![object.to_owned()])),
        }
    }
    for (at, (verb, objects)) in entries.iter().enumerate() {
        let first = span(theme, Role::Dim, if at == 0 { "  └ " } else { "    " });
        let text = [
            span(theme, Role::Accent, verb),
            span(theme, Role::Dim, format!(" {}", objects.join(", "))),
        ];
        rows.extend(wrap(&text, columns, &[first], &[Span::raw("      ")]));
    }
    rows
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::{CallId, ContentPart};
    use posse_actors::event::Event;
    use serde_json::json;

    use crate::testing::TestScreen;

    fn starts(stage: &mut TestScreen, id: &str, summary: &str, effect: bool) {
        let (call_id, name) = (CallId::new(id), "any".to_owned());
        let arguments = "{}".to_owned();
        stage.happens(Event::ToolRequested {
            call_id: call_id.clone(),
            name: name.clone(),
            arguments,
        });
        let (summary, digest) = (summary.to_owned(), String::new());
        stage.happens(Event::ToolStarted {
            call_id,
            name,
            summary,
            digest,
            effect,
            coerced: Vec::new(),
        });
    }

    fn ends(stage: &mut TestScreen, id: &str) {
        stage.happens(Event::ToolCompleted {
            call_id: CallId::new(id),
            name: "any".to_owned(),
            content: vec![ContentPart::text("1\tx")],
            metadata: json!(null),
            duration_ms: 1,
        });
    }

    fn reads(stage: &mut TestScreen, calls: &[&str]) {
        for (nth, summary) in calls.iter().enumerate() {
            let id = format!("{summary}{nth}");
            starts(stage, &id, summary, false);
            ends(stage, &id);
        }
    }

    #[test]
    fn reads_in_a_row_are_one_list() {
        let mut stage = TestScreen::with_task();
        reads(&mut stage, &["read src/a.rs", "read src/b.rs", "read src/b.rs", "search src for x"]);
        // More may follow.
        let live = stage.screen(60, 24);
        insta::assert_snapshot!(live);
        assert!(!stage.app.view.has_finished());
        starts(&mut stage, "c1", "run make", true);
        let with_command = stage.screen(60, 24);
        assert!(!stage.app.view.has_finished(), "the list is in the scrollback");
        insta::assert_snapshot!(with_command);
    }

    #[test]
    fn one_read_is_shown_as_a_call_and_the_end_of_the_run_shows_the_list() {
        let mut stage = TestScreen::with_task();
        reads(&mut stage, &["read src/a.rs"]);
        let screen = stage.screen(60, 24);
        assert!(screen.contains("• read src/a.rs") && !screen.contains("explore"), "{screen}");
        reads(&mut stage, &["list src"]);
        stage.replied("Done.");
        let screen = stage.screen(60, 24);
        assert!(!stage.app.view.has_finished());
        assert!(screen.contains("└ read src/a.rs\n    list src\n\nDone."), "{screen}");
    }

    #[test]
    fn long_series_appear_piece_by_piece() {
        let mut stage = TestScreen::with_task();
        let names: Vec<String> = (0..70).map(|nth| format!("read f{nth}")).collect();
        reads(&mut stage, &names.iter().map(String::as_str).collect::<Vec<_>>());
        let screen = stage.screen(200, 60);
        assert_eq!(screen.matches("• explore").count(), 3, "{screen}");
    }

    #[test]
    fn failed_read_is_shown_on_its_own() {
        let mut stage = TestScreen::with_task();
        reads(&mut stage, &["read a", "read b"]);
        starts(&mut stage, "c9", "read missing", false);
        stage.happens(Event::ToolFailed {
            call_id: CallId::new("c9"),
            name: "any".to_owned(),
            content: vec![ContentPart::text("FILE001: there is no file")],
            class: "failed".to_owned().into(),
            metadata: json!(null),
            duration_ms: 0,
        });
        let screen = stage.screen(60, 24);
        assert!(screen.contains("└ read a, b\n✗ read missing"), "{screen}");
    }
}
