//! Agents that work for another one, as a tree: what each does, for how long, for how many tokens.

use std::time::Duration;

use posse_actors::conversation::{InvocationId, QuestionId, Usage};
use posse_actors::event::{Event, Origin};

use crate::talk::workers::labelled;
use crate::tui::text::{Row, clipped, harmless, row};
use crate::tui::theme::{Role, Theme};
use crate::tui::view::tool::age;
use crate::tui::view::{Block, turn};

/// Agents that are shown; of the others their number is.
const SHOWN_MAX: usize = 12;

/// One agent at work.
#[derive(Debug, Clone)]
struct Node {
    id: InvocationId,
    path: String,
    since: Duration,
    usage: Usage,
    /// What it did last.
    last: String,
    /// Questions of it that are open.
    questions: Vec<QuestionId>,
}

/// Everybody who works for somebody else.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    /// Follows an event of a child. Returns the line that stays when it has ended.
    pub(super) fn follow(
        &mut self,
        event: &Event,
        origin: &Origin,
        now: Duration,
    ) -> Option<Block> {
        let at = self.nodes.iter().position(|node| node.id == origin.invocation_id);
        let at = at.unwrap_or_else(|| {
            let path = harmless(&labelled(&origin.agent_path, &origin.invocation_id));
            // Beside its siblings, below its parent.
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let under = |node: &Node| node.path.starts_with(parent);
            let place = self.nodes.iter().rposition(under).map_or(self.nodes.len(), |at| at + 1);
            let node = Node {
                id: origin.invocation_id.clone(),
                path,
                since: now,
                usage: Usage::default(),
                last: "starts".to_owned(),
                questions: Vec::new(),
            };
            self.nodes.insert(place, node);
            place
        });
        let node = &mut self.nodes[at];
        let how = match event {
            Event::ModelUsage { usage, .. } => {
                node.usage.add(usage);
                return None;
            }
            Event::InvocationCompleted { .. } => (Role::Good, "•", "done".to_owned()),
            Event::InvocationFailed { cause, .. } => {
                (Role::Bad, "✗", format!("failed: {}", harmless(cause).replace('\n', " ")))
            }
            Event::InvocationCancelled { .. } => (Role::Warn, "✗", "stopped".to_owned()),
            other => {
                node.follow(other);
                return None;
            }
        };
        let node = self.nodes.remove(at);
        let (role, mark, how) = how;
        let text =
            format!("{mark} {} · {how} · {}{}", node.path, age(now, node.since), node.spent());
        Some(Block::Note(role, text))
    }

    /// The rows of those at work.
    pub(super) fn rows(&self, columns: usize, theme: Theme, now: Duration) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for node in self.nodes.iter().take(SHOWN_MAX) {
            let depth = node.path.matches('/').count().saturating_sub(1).min(8);
            let name = node.path.rsplit('/').next().unwrap_or_default();
            let indent = "  ".repeat(depth);
            let (role, mark, what) = if node.questions.is_empty() {
                (Role::Dim, turn(now), node.last.as_str())
            } else {
                (Role::Warn, "?", "waits for your answer")
            };
            let text = format!(
                "{indent}{mark} {name} · {}{} · {what}",
                age(now, node.since),
                node.spent()
            );
            rows.push(row(theme, role, clipped(&text, columns)));
        }
        if self.nodes.len() > SHOWN_MAX {
            let text = format!("… and {} more", self.nodes.len() - SHOWN_MAX);
            rows.push(row(theme, Role::Dim, text));
        }
        rows
    }
}

impl Node {
    fn follow(&mut self, event: &Event) {
        match event {
            Event::ModelRequest { .. } => "asks its model".clone_into(&mut self.last),
            Event::ToolStarted { summary, .. } => {
                self.last = harmless(summary).replace('\n', " ");
            }
            Event::ProviderWaiting { cause, .. } => {
                self.last =
                    format!("waits for its provider: {}", harmless(cause).replace('\n', " "));
            }
            Event::PermissionRequested { request_id, .. } => {
                self.questions.push(request_id.clone());
            }
            Event::PermissionGranted { request_id, .. }
            | Event::PermissionDenied { request_id, .. }
            | Event::PermissionWithdrawn { request_id, .. } => {
                self.questions.retain(|open| open != request_id);
            }
            _ => (),
        }
    }

    fn spent(&self) -> String {
        let read = self.usage.input_tokens.unwrap_or_default();
        let written = self.usage.output_tokens.unwrap_or_default();
        match read + written {
            0 => String::new(),
            tokens => format!(" · {} tokens", crate::tui::status::short(tokens)),
        }
    }
}
