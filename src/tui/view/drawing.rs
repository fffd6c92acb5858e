//! What is followed, as rows: what is finished, what goes on, and what is true for the moment.

use std::time::Duration;

use ratatui_core::text::Line;

use crate::tui::text::{Row, clipped, harmless, row, span};
use crate::tui::theme::{Role, Theme};
use crate::tui::view::block::{Block, Kind, TURN, apart, turn};
use crate::tui::view::tool::age;
use crate::tui::view::{Banner, Parked, View};

impl View {
    /// Rows of what is finished, at most `rows_max`. What is given once is not given again.
    pub(in crate::tui) fn take_finished(
        &mut self,
        columns: usize,
        rows_max: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<Row> {
        while self.ready.len() < rows_max
            && let Some(block) = self.blocks.pop_front_if(|block| !block.is_open())
        {
            let kind = block.kind();
            if self.before.is_some_and(|before| apart(before, kind)) {
                self.ready.push_back(Line::default());
            }
            self.ready.extend(block.rows(columns, theme, now));
            self.before = Some(if kind == Kind::CodeGoesOn { Kind::Text } else { kind });
        }
        let count = self.ready.len().min(rows_max);
        self.ready.drain(..count).collect()
    }

    /// Whether something is finished that was not taken yet.
    pub(in crate::tui) fn has_finished(&self) -> bool {
        !self.ready.is_empty() || self.blocks.front().is_some_and(|block| !block.is_open())
    }

    /// Rows of what goes on, the last `rows_max` of them.
    pub(in crate::tui) fn live_rows(
        &self,
        columns: usize,
        rows_max: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<Row> {
        let rest = self.stream.rest().map(Block::Text);
        // Whoever works for a call stands in the tree.
        let elsewhere = |block: &&Block| matches!(block, Block::Tool(tool) if tool.is_elsewhere());
        let blocks = || {
            let blocks = self.blocks.iter().filter(move |block| !elsewhere(block));
            blocks.chain(rest.as_ref()).rev()
        };
        // What stands before each of them, the last one first.
        let before = blocks().skip(1).map(Block::kind).map(Some).chain([self.before]);
        let mut parts = vec![self.tree.rows(columns, theme, now)];
        // Beside the calls that sent them off, and apart from anything else.
        let last = blocks().next().map(Block::kind).or(self.before);
        if !parts[0].is_empty() && last.is_some_and(|last| last != Kind::Tool) {
            parts[0].insert(0, Line::default());
        }
        let mut taken = parts[0].len();
        // From the end, as what waits to be handed on may be long.
        for (block, before) in blocks().zip(before) {
            if taken >= rows_max {
                break;
            }
            let mut rows = block.rows(columns, theme, now);
            if before.is_some_and(|before| apart(before, block.kind())) {
                rows.insert(0, Line::default());
            }
            taken += rows.len();
            parts.push(rows);
        }
        parts.into_iter().rev().flatten().skip(taken.saturating_sub(rows_max)).collect()
    }

    /// What is true for the moment, in a row or two.
    pub(in crate::tui) fn banner(&self, columns: usize, theme: Theme, now: Duration) -> Vec<Row> {
        let mut rows = Vec::new();
        match &self.banner {
            Some(Banner::Waiting { provider, until, patience, cause }) => {
                let left = countdown(until.saturating_sub(now));
                let text = format!(
                    "⏸ {}: next try in {left} (patience after that: {}); Esc stops it",
                    harmless(provider),
                    rough(*patience)
                );
                rows.push(row(theme, Role::Warn, clipped(&text, columns)));
                if !cause.is_empty() {
                    let text = format!("  {}", harmless(cause).replace('\n', " "));
                    rows.push(row(theme, Role::Dim, clipped(&text, columns)));
                }
            }
            Some(Banner::Silent { provider, since }) => {
                let text =
                    format!("⏸ {}: nothing heard for {}", harmless(provider), age(now, *since));
                rows.push(row(theme, Role::Warn, clipped(&text, columns)));
            }
            None => (),
        }
        let parked = self.parked.as_ref();
        if let Some(Parked { cause, next: Some(until) }) = parked
            && self.running.is_some()
        {
            let left = countdown(until.saturating_sub(now));
            let text = format!("⏸ parked: next try in {left} · Esc stops it");
            rows.push(row(theme, Role::Warn, clipped(&text, columns)));
            let text = format!("  {}", cause.replace('\n', " "));
            rows.push(row(theme, Role::Dim, clipped(&text, columns)));
        } else if let Some(since) = self.running() {
            let thought = self.thought.lines().rev().find(|line| !line.trim().is_empty());
            let what = if thought.is_some() { "thinking" } else { "working" };
            let mut text = format!("{what} · {} · Esc stops it", age(now, since));
            if let Some(thought) = thought {
                text = format!("{text} · {}", harmless(thought.trim()));
            }
            let mark = span(theme, Role::Accent, format!("{} ", turn(now)));
            let text = span(theme, Role::Dim, clipped(&text, columns.saturating_sub(2)));
            rows.push(Line::from(vec![mark, text]));
        } else if let Some(Parked { cause, .. }) = parked {
            let text = format!("⏸ parked: {}", cause.replace('\n', " "));
            rows.push(row(theme, Role::Warn, clipped(&text, columns)));
        }
        rows
    }

    /// How often something on the screen changes with the time alone; `None`: nothing does.
    pub(in crate::tui) fn pulse(&self) -> Option<Duration> {
        let turns = self.running.is_some() || self.banner.is_some();
        // Who waits for long watches seconds go by, and nothing that turns.
        let waits = self.parked.as_ref().is_some_and(|parked| parked.next.is_some());
        match (turns, waits) {
            (true, true) => Some(Duration::from_secs(1)),
            (true, false) => Some(TURN),
            (false, _) => self.tree.pulse(),
        }
    }
}

/// A time, as exactly as somebody who waits wants to know it.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// What is left of a wait, so exactly that it is seen to go by. It is over when it says 0.
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

    use crate::tui::testing::{Stage, ms, text_of_row};
    use crate::tui::theme::Theme;

    /// What waits to be handed on is not drawn with every frame: its end is.
    #[test]
    fn the_end_of_what_waits_is_the_same_however_much_waits() {
        let mut stage = Stage::at_work();
        for nth in 0..50 {
            stage.happens(Event::Warning { message: format!("first {nth}") });
            stage.says(&format!("text {nth}\n\n```\ncode {nth}\nmore\n```\n\n"));
        }
        let rows = |max: usize| -> Vec<String> {
            let rows = stage.app.view.live_rows(60, max, Theme::Plain, ms(0));
            rows.iter().map(text_of_row).collect()
        };
        let all = rows(usize::MAX);
        assert!(all.len() > 300, "{}", all.len());
        for max in [0, 1, 2, 7, 50, all.len()] {
            assert_eq!(rows(max), all[all.len() - max..], "{max} rows");
        }
    }
}
