//! Rendering of the view: finished rows, live rows and the banner.

use std::time::Duration;

use posse_actors::event::TodoStatus;
use posse_frontend::end_line::count_text;
use ratatui::text::Line;

use crate::text::{TextRow, clipped, row, sanitize, span};
use crate::theme::{Role, Theme};
use crate::view::block::{Block, BlockKind, SPINNER_INTERVAL, needs_blank_row, spinner};
use crate::view::tool::age;
use crate::view::{Banner, Parked, View};

impl View {
    /// Takes at most `rows_max` rows of finished blocks. Each row is returned once.
    pub(crate) fn take_finished(
        &mut self,
        columns: usize,
        rows_max: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<TextRow> {
        while self.ready.len() < rows_max && self.is_front_finished() {
            let kind = self.blocks[0].kind();
            if self.before.is_some_and(|before| needs_blank_row(before, kind)) {
                self.ready.push_back(Line::default());
            }
            let count = self.folded_from(0).max(1);
            let rows = self.rows_of(0..count, columns, theme, now);
            self.ready.extend(rows);
            self.blocks.drain(..count);
            self.before =
                Some(if kind == BlockKind::CodeContinued { BlockKind::Text } else { kind });
        }
        let count = self.ready.len().min(rows_max);
        self.ready.drain(..count).collect()
    }

    /// Returns `true` if there are finished rows that [`View::take_finished`] has not returned yet.
    pub(crate) fn has_finished(&self) -> bool {
        !self.ready.is_empty() || self.is_front_finished()
    }

    /// Returns `true` if the first block is finished. A read may still be folded with the next one.
    fn is_front_finished(&self) -> bool {
        self.blocks.front().is_some_and(|block| !block.is_open()) && !self.waits_for_more_reads()
    }

    /// The last `rows_max` rows of the blocks that [`View::take_finished`] has not taken, of the
    /// streamed text and of the subagent tree. Calls that the tree shows are left out.
    pub(crate) fn live_rows(
        &self,
        columns: usize,
        rows_max: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<TextRow> {
        let rest = self.stream.unfinished_tail().map(Block::Text);
        // Delegated calls are shown in the tree, and those that wait for an answer in the request.
        let elsewhere = |block: &&Block| matches!(block, Block::Tool(tool) if tool.is_shown_in_tree() || tool.waits_for_user());
        let runs = || self.runs_of_blocks().into_iter().rev();
        let runs = || runs().filter(|run| !elsewhere(&&self.blocks[run.start]));
        // Kinds of the text that streams and of the blocks, last first.
        let kinds = || {
            let kinds = runs().map(|run| self.blocks[run.start].kind());
            rest.iter().map(Block::kind).chain(kinds)
        };
        let mut before = kinds().skip(1).map(Some).chain([self.before]);
        let mut parts = vec![self.tree.rows(columns, theme, now)];
        // The tree follows calls directly, and other blocks after a blank row.
        let last = kinds().next().or(self.before);
        if !parts[0].is_empty() && last.is_some_and(|last| last != BlockKind::Tool) {
            parts[0].insert(0, Line::default());
        }
        let mut taken = parts[0].len();
        // From the end, because the backlog may be long.
        let streamed = rest.iter().map(|rest| (rest.kind(), None));
        let of_blocks = runs().map(|run| (self.blocks[run.start].kind(), Some(run)));
        for (kind, run) in streamed.chain(of_blocks) {
            if taken >= rows_max {
                break;
            }
            let mut rows = match (run, &rest) {
                (Some(run), _) => self.rows_of(run, columns, theme, now),
                (None, Some(rest)) => rest.rows(columns, theme, now),
                (None, None) => Vec::new(),
            };
            if before.next().flatten().is_some_and(|before| needs_blank_row(before, kind)) {
                rows.insert(0, Line::default());
            }
            taken += rows.len();
            parts.push(rows);
        }
        parts.into_iter().rev().flatten().skip(taken.saturating_sub(rows_max)).collect()
    }

    /// Rows about the state of the provider and of the run; empty if nothing runs, waits or is
    /// parked.
    pub(crate) fn banner(&self, columns: usize, theme: Theme, now: Duration) -> Vec<TextRow> {
        let mut rows = Vec::new();
        let mut add = |role, text: String| rows.push(row(theme, role, clipped(&text, columns)));
        match &self.banner {
            Some(Banner::Waiting(wait)) => {
                add(Role::Warn, wait.text(self.failed_count(), columns, now));
            }
            Some(Banner::Silent { provider, since }) => {
                let (provider, time) = (sanitize(provider), age(now, *since));
                add(Role::Warn, format!("⏸ {provider}: no response for {time}"));
            }
            Some(Banner::Checkpoint { files, total }) => {
                add(Role::Dim, format!("checkpoint: {files} of {total} files are stored"));
            }
            None => (),
        }
        match (&self.parked, self.running) {
            (Some(Parked { cause, next: Some(until) }), Some(_)) => {
                let left = countdown(until.saturating_sub(now));
                add(Role::Warn, format!("⏸ parked: retry in {left} · Esc stops it"));
                add(Role::Dim, format!("  {}", cause.replace('\n', " ")));
            }
            (_, Some(since)) => {
                let thought = self.thought.lines().rev().find(|line| !line.trim().is_empty());
                let what = if thought.is_some() { "thinking" } else { "working" };
                let current = self.todos.iter().find(|item| item.status == TodoStatus::InProgress);
                let task = current.map(|item| sanitize(&item.content).replace('\n', " "));
                // The time and the key stay visible.
                let what = task.map_or_else(|| what.to_owned(), |task| clipped(&task, columns / 2));
                let mut text = format!("{what} · {} · Esc stops it", age(now, since));
                if self.output_tokens > 0 {
                    text = format!("{text} · {} tokens written", count_text(self.output_tokens));
                }
                if let Some(thought) = thought.filter(|_| !self.hides_thinking) {
                    text = format!("{text} · {}", sanitize(thought.trim()));
                }
                let mark = span(theme, Role::Accent, format!("{} ", spinner(now)));
                let text = span(theme, Role::Dim, clipped(&text, columns.saturating_sub(2)));
                rows.push(Line::from(vec![mark, text]));
            }
            (Some(Parked { cause, .. }), None) => {
                add(Role::Warn, format!("⏸ parked: {}", cause.replace('\n', " ")));
            }
            (None, None) => {
                if let Some(since) = self.own_call_since {
                    let text = format!("running · {} · Esc stops it", age(now, since));
                    let mark = span(theme, Role::Accent, format!("{} ", spinner(now)));
                    let text = span(theme, Role::Dim, clipped(&text, columns.saturating_sub(2)));
                    rows.push(Line::from(vec![mark, text]));
                }
            }
        }
        rows
    }

    /// Interval at which the screen changes without an event; `None` if it does not.
    pub(crate) fn animation_interval(&self) -> Option<Duration> {
        let turns =
            self.running.is_some() || self.own_call_since.is_some() || self.banner.is_some();
        // A long wait needs only a countdown of seconds, no spinner.
        let waits = self.parked.as_ref().is_some_and(|parked| parked.next.is_some());
        match (turns, waits) {
            (true, true) => Some(Duration::from_secs(1)),
            (true, false) => Some(SPINNER_INTERVAL),
            (false, _) => self.tree.animation_interval(),
        }
    }
}

/// Formats the remaining time of a wait, rounded up, so that it reaches 0 only at the end.
pub(super) fn countdown(left: Duration) -> String {
    match left.as_millis().div_ceil(1000) {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::event::Event;

    use crate::testing::{TestScreen, ms, text_of_row};
    use crate::theme::Theme;

    /// The backlog is not drawn with every frame, only its end.
    #[test]
    fn end_of_the_backlog_is_drawn_the_same_at_any_length() {
        let mut stage = TestScreen::with_task();
        for nth in 0..50 {
            stage.happens(Event::Warning { message: format!("first {nth}") });
            stage.says(&format!("text {nth}\n\n```\ncode {nth}\nmore\n```\n\n"));
        }
        let rows = |max: usize| -> Vec<String> {
            let rows = stage.app.view.live_rows(60, max, Theme::PLAIN, ms(0));
            rows.iter().map(text_of_row).collect()
        };
        let all = rows(usize::MAX);
        assert!(all.len() > 300, "{}", all.len());
        for max in [0, 1, 2, 7, 50, all.len()] {
            assert_eq!(rows(max), all[all.len() - max..], "{max} rows");
        }
    }
}
