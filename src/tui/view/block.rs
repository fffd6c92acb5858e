//! Blocks of the transcript and their rendering.

use std::time::Duration;

use ratatui::text::Span;

use crate::markdown::{self, Piece};
use crate::text::{TextRow, sanitize, span, text_rows, wrap};
use crate::theme::{Role, Theme};
use crate::view::tool::ToolCallView;

/// Frames of the spinner.
const SPINNER_FRAMES: [&str; 8] = ["⠋", "⠙", "⠹", "⠸", "⠴", "⠦", "⠇", "⠏"];

/// Duration of a spinner frame.
pub(super) const SPINNER_INTERVAL: Duration = Duration::from_millis(125);

/// A block of the transcript.
#[derive(Debug, Clone)]
pub(crate) enum Block {
    /// An input of the user.
    User(String),
    /// A piece of a reply.
    Text(Piece),
    /// A tool call.
    Tool(Box<ToolCallView>),
    /// Notes, each of one or more lines.
    Note(Vec<(Role, String)>),
}

/// Kind of a block, which determines the spacing between blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    User,
    Text,
    CodeContinued,
    Tool,
    Note,
}

impl Block {
    pub(super) fn kind(&self) -> BlockKind {
        match self {
            Block::User(_) => BlockKind::User,
            Block::Text(Piece::Code { begins: false, .. }) => BlockKind::CodeContinued,
            Block::Text(_) => BlockKind::Text,
            Block::Tool(_) => BlockKind::Tool,
            Block::Note(_) => BlockKind::Note,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Block::Tool(tool) if tool.is_open())
    }

    pub(crate) fn rows(&self, columns: usize, theme: Theme, now: Duration) -> Vec<TextRow> {
        let mark = [span(theme, Role::User, "❯ ")];
        let under = [Span::raw("  ")];
        match self {
            Block::User(text) => {
                let band = theme.style(Role::Band);
                // Without a background, bold text distinguishes the input.
                let role = if band.bg.is_some() { Role::Text } else { Role::User };
                let mut rows = Vec::new();
                for (at, line) in sanitize(text).split('\n').enumerate() {
                    let first = if at == 0 { &mark } else { &under };
                    rows.extend(wrap(&[span(theme, role, line)], columns, first, &under));
                }
                rows.into_iter().map(|row| row.style(band)).collect()
            }
            Block::Text(piece) => markdown::piece_rows(piece, columns, theme),
            Block::Tool(tool) => tool.rows(columns, theme, now, spinner(now)),
            Block::Note(notes) => {
                let rows = |(role, text): &(Role, String)| {
                    text_rows(theme, *role, sanitize(text).trim_end_matches('\n'), columns)
                };
                notes.iter().flat_map(rows).collect()
            }
        }
    }
}

/// Returns `true` if a blank row separates two blocks.
pub(super) fn needs_blank_row(before: BlockKind, after: BlockKind) -> bool {
    let together = matches!(
        (before, after),
        (_, BlockKind::CodeContinued)
            | (BlockKind::Tool, BlockKind::Tool | BlockKind::Note)
            | (BlockKind::Note, BlockKind::Note)
    );
    !together
}

/// The spinner frame at that time.
pub(crate) fn spinner(now: Duration) -> &'static str {
    let nth = (now.as_millis() / SPINNER_INTERVAL.as_millis()) % SPINNER_FRAMES.len() as u128;
    SPINNER_FRAMES[usize::try_from(nth).unwrap_or_default()]
}
