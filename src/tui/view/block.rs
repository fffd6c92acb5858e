//! The parts that a conversation is shown in, each as rows of its own.

use std::time::Duration;

use ratatui_core::text::Span;

use crate::tui::markdown::{self, Piece};
use crate::tui::text::{Row, hanging, harmless, span, wrap};
use crate::tui::theme::{Role, Theme};
use crate::tui::view::tool::Tool;

/// What turns while something goes on.
const TURNS: [&str; 8] = ["⠋", "⠙", "⠹", "⠸", "⠴", "⠦", "⠇", "⠏"];

/// How long each of them stands there.
pub(super) const TURN: Duration = Duration::from_millis(125);

/// A part of what is shown.
#[derive(Debug, Clone)]
pub(in crate::tui) enum Block {
    /// What the user said.
    User(String),
    /// A part of an answer.
    Text(Piece),
    /// A call.
    Tool(Box<Tool>),
    /// A line or more about what goes on.
    Note(Role, String),
    /// Rows that are as they should be: lists and help.
    Lines(Vec<(Role, String)>),
}

/// What decides where a blank row stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    User,
    Text,
    CodeGoesOn,
    Tool,
    Note,
}

impl Block {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Block::User(_) => Kind::User,
            Block::Text(Piece::Code { begins: false, .. }) => Kind::CodeGoesOn,
            Block::Text(_) => Kind::Text,
            Block::Tool(_) => Kind::Tool,
            Block::Note(..) | Block::Lines(_) => Kind::Note,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Block::Tool(tool) if tool.is_open())
    }

    pub(in crate::tui) fn rows(&self, columns: usize, theme: Theme, now: Duration) -> Vec<Row> {
        let mark = [span(theme, Role::User, "❯ ")];
        let under = [Span::raw("  ")];
        match self {
            Block::User(text) => {
                let mut rows = Vec::new();
                for (at, line) in harmless(text).split('\n').enumerate() {
                    let first = if at == 0 { &mark } else { &under };
                    rows.extend(wrap(&[span(theme, Role::User, line)], columns, first, &under));
                }
                rows
            }
            Block::Text(piece) => markdown::piece_rows(piece, columns, theme),
            Block::Tool(tool) => tool.rows(columns, theme, now, turn(now)),
            Block::Note(role, text) => {
                let lines = harmless(text);
                let lines = lines.trim_end_matches('\n').split('\n');
                lines
                    .flat_map(|line| {
                        wrap(&[span(theme, *role, line)], columns, &[], &hanging(line, columns))
                    })
                    .collect()
            }
            Block::Lines(lines) => lines
                .iter()
                .flat_map(|(role, line)| {
                    wrap(
                        &[span(theme, *role, harmless(line))],
                        columns,
                        &[],
                        &hanging(line, columns),
                    )
                })
                .collect(),
        }
    }
}

/// Whether a blank row stands between two.
pub(super) fn apart(before: Kind, after: Kind) -> bool {
    let together = matches!(
        (before, after),
        (_, Kind::CodeGoesOn) | (Kind::Tool, Kind::Tool | Kind::Note) | (Kind::Note, Kind::Note)
    );
    !together
}

/// What turns, at that time.
pub(in crate::tui) fn turn(now: Duration) -> &'static str {
    let nth = (now.as_millis() / TURN.as_millis()) % TURNS.len() as u128;
    TURNS[usize::try_from(nth).unwrap_or_default()]
}
