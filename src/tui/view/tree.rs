//! Agents that work for another one, as a tree: what each is asked for, what it does or waits for,
//! for how long, and what it took.

use std::time::Duration;

use posse_actors::conversation::{InvocationId, QuestionId, Usage};
use posse_actors::delegation::SubagentOutcome;
use posse_actors::event::{Event, Origin};
use posse_actors::ledger::usd;

use crate::talk::outcome::clock_time;
use crate::talk::workers;
use crate::tui::status::short;
use crate::tui::text::{Row, clipped, harmless, row, width};
use crate::tui::theme::{Role, Theme};
use crate::tui::view::drawing::countdown;
use crate::tui::view::tool::age;
use crate::tui::view::{Block, turn};

/// Agents that are shown; of the others their number is.
const SHOWN_MAX: usize = 12;

/// Columns of a task in the line that stays.
const TASK_COLUMNS_MAX: usize = 40;

/// How often a row changes while nothing but its age does.
const PULSE: Duration = Duration::from_secs(1);

/// One agent at work.
#[derive(Debug, Clone)]
struct Node {
    id: InvocationId,
    path: String,
    /// What it was asked for, in a line.
    task: String,
    since: Duration,
    usage: Usage,
    cost_nano_usd: Option<u64>,
    doing: Doing,
    /// Questions of it that are open.
    questions: Vec<QuestionId>,
    /// Whom it works for.
    caller: Option<InvocationId>,
    /// It is a model that is asked beside the conversation, for a summary or a title: nobody asked
    /// for it as a tool, so nobody is told that it has ended.
    aside: bool,
}

/// What it is at.
#[derive(Debug, Clone)]
enum Doing {
    Something(String),
    /// Its provider is away.
    Waiting {
        until: Duration,
        cause: String,
    },
    /// A reply is due, and nothing is heard of it.
    Silent {
        since: Duration,
    },
}

/// Everybody who works for somebody else, each behind whom it works for.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    /// Follows an event. Returns the line that stays when an agent has ended.
    pub(super) fn follow(
        &mut self,
        event: &Event,
        origin: Option<&Origin>,
        (now, wall_ms): (Duration, u64),
    ) -> Option<Block> {
        self.end_asides(event, origin);
        let origin = origin?;
        match event {
            Event::InvocationRequested { child_invocation_id, target, task, .. } => {
                let path = format!("{}/{target}", origin.agent_path);
                let caller = Some(&origin.invocation_id);
                self.add((child_invocation_id, caller), &path, task, now);
                self.is_agent(child_invocation_id);
            }
            Event::DelegationEnded { child_invocation_id, outcome, cost_nano_usd, .. } => {
                let at = self.nodes.iter().position(|node| node.id == *child_invocation_id)?;
                let mut node = self.nodes.remove(at);
                node.cost_nano_usd = cost_nano_usd.or(node.cost_nano_usd);
                return Some(node.ended(outcome, now));
            }
            // Its caller is told next.
            Event::InvocationCompleted { .. }
            | Event::InvocationFailed { .. }
            | Event::InvocationCancelled { .. } => (),
            other if origin.parent_invocation_id.is_some() => {
                let id = &origin.invocation_id;
                if is_work(other) && self.nodes.iter().all(|node| node.id != *id) {
                    let caller = origin.parent_invocation_id.as_ref();
                    self.add((id, caller), &origin.agent_path, "", now);
                }
                if matches!(other, Event::InvocationStarted { .. } | Event::ToolStarted { .. }) {
                    self.is_agent(id);
                }
                let node = self.nodes.iter_mut().find(|node| node.id == *id)?;
                node.follow(other, now, wall_ms);
            }
            _ => (),
        }
        None
    }

    /// An agent says itself how it ended.
    fn is_agent(&mut self, id: &InvocationId) {
        if let Some(node) = self.nodes.iter_mut().find(|node| node.id == *id) {
            node.aside = false;
        }
    }

    /// What was asked beside has ended: it was answered and paid for, or what it was for came about
    /// with it or without.
    fn end_asides(&mut self, event: &Event, origin: Option<&Origin>) {
        let id = origin.map(|origin| &origin.invocation_id);
        match event {
            Event::ModelUsage { .. } => {
                self.nodes.retain(|node| !node.aside || Some(&node.id) != id);
            }
            Event::ContextCompacted { .. }
            | Event::SessionTitled { .. }
            | Event::Warning { .. }
            | Event::InvocationCompleted { .. }
            | Event::InvocationFailed { .. }
            | Event::InvocationCancelled { .. } => {
                let is_theirs = |node: &Node| {
                    id.is_none() || Some(&node.id) == id || node.caller.as_ref() == id
                };
                self.nodes.retain(|node| !node.aside || !is_theirs(node));
            }
            _ => (),
        }
    }

    /// Agents at work, without what is asked beside.
    pub(super) fn agents(&self) -> usize {
        self.nodes.iter().filter(|node| !node.aside).count()
    }

    fn add(
        &mut self,
        (id, caller): (&InvocationId, Option<&InvocationId>),
        path: &str,
        task: &str,
        now: Duration,
    ) {
        if self.nodes.iter().any(|node| node.id == *id) {
            return;
        }
        let path = harmless(path).replace('\n', " ");
        let above = caller.cloned();
        // Below whom it works for, behind who else does.
        let caller = self.nodes.iter().position(|node| Some(&node.id) == caller);
        let place = caller.map_or(self.nodes.len(), |at| {
            let depth = self.nodes[at].depth();
            let below = self.nodes[at + 1..].iter().take_while(|node| node.depth() > depth);
            at + 1 + below.count()
        });
        let node = Node {
            id: id.clone(),
            path,
            task: harmless(task).split_whitespace().collect::<Vec<_>>().join(" "),
            since: now,
            usage: Usage::default(),
            cost_nano_usd: None,
            doing: Doing::Something("starts".to_owned()),
            questions: Vec::new(),
            caller: above,
            aside: true,
        };
        self.nodes.insert(place, node);
    }

    /// How often its rows change by themselves; `None`: nobody is at work.
    pub(super) fn pulse(&self) -> Option<Duration> {
        (!self.nodes.is_empty()).then_some(PULSE)
    }

    /// The rows of those at work.
    pub(super) fn rows(&self, columns: usize, theme: Theme, now: Duration) -> Vec<Row> {
        let labels: Vec<String> = self.nodes.iter().map(|node| node.label(columns / 5)).collect();
        let mut rows: Vec<Row> = Vec::new();
        for (node, label) in self.nodes.iter().zip(&labels).take(SHOWN_MAX) {
            let alike = labels.iter().filter(|other| *other == label).count() > 1;
            let label = if alike { format!("{label} #{}", node.tag()) } else { label.clone() };
            // Even the deepest has half of the row for what it does.
            let indent = " ".repeat((2 * node.depth()).min(columns / 6));
            let (role, mark, what) = node.state(now);
            let facts = format!("{}{}", age(now, node.since), node.spent(columns < 80));
            let text = format!("{indent}{mark} {label} · {facts} · {what}");
            rows.push(row(theme, role, clipped(&text, columns)));
        }
        if self.nodes.len() > SHOWN_MAX {
            let text = format!("… and {} more", self.nodes.len() - SHOWN_MAX);
            rows.push(row(theme, Role::Dim, clipped(&text, columns)));
        }
        rows
    }
}

/// Whether whoever does this is at work.
fn is_work(event: &Event) -> bool {
    matches!(
        event,
        Event::InvocationStarted { .. }
            | Event::ModelRequest { .. }
            | Event::TextDelta { .. }
            | Event::ThinkingDelta { .. }
            | Event::ProviderWaiting { .. }
            | Event::ProviderSilent { .. }
            | Event::ToolRequested { .. }
            | Event::ToolStarted { .. }
            | Event::PermissionRequested { .. }
    )
}

impl Node {
    /// Agents between it and the main one.
    fn depth(&self) -> usize {
        self.path.matches('/').count().saturating_sub(1)
    }

    /// Its name, and what it was asked for in at most so many columns.
    fn label(&self, columns: usize) -> String {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let task = clipped(&self.task, columns.clamp(8, TASK_COLUMNS_MAX));
        if width(&task) == 0 { name.to_owned() } else { format!("{name} “{task}”") }
    }

    /// What tells it from another one of its name and task.
    fn tag(&self) -> String {
        harmless(workers::short(&self.id))
    }

    fn state(&self, now: Duration) -> (Role, &'static str, String) {
        if !self.questions.is_empty() {
            return (Role::Warn, "?", "waits for your answer".to_owned());
        }
        match &self.doing {
            Doing::Something(what) => (Role::Dim, turn(now), what.clone()),
            Doing::Waiting { until, cause } => {
                let left = countdown(until.saturating_sub(now));
                let what = format!("provider away, next try in {left}: {cause}");
                (Role::Warn, "⏸", what)
            }
            Doing::Silent { since } => {
                let what = format!("provider silent for {}", age(now, *since));
                (Role::Warn, "⏸", what)
            }
        }
    }

    fn follow(&mut self, event: &Event, now: Duration, wall_ms: u64) {
        let doing = match event {
            Event::ModelUsage { usage, billing, .. } => {
                self.usage.add(usage);
                let cost = billing.as_ref().and_then(|billing| billing.cost_nano_usd);
                if let Some(cost) = cost {
                    let before = self.cost_nano_usd.unwrap_or_default();
                    self.cost_nano_usd = Some(before.saturating_add(cost));
                }
                return;
            }
            Event::ModelRequest { .. } => Doing::Something("asks its model".to_owned()),
            Event::ThinkingDelta { .. } => Doing::Something("thinks".to_owned()),
            Event::TextDelta { .. } => Doing::Something("writes".to_owned()),
            Event::ToolStarted { summary, .. } => {
                Doing::Something(harmless(summary).replace('\n', " "))
            }
            Event::ProviderWaiting { wait_ms, cause, .. } => Doing::Waiting {
                until: now + Duration::from_millis(*wait_ms),
                cause: harmless(cause).replace('\n', " "),
            },
            Event::SessionParked { cause, next_try_ms: Some(at), .. } => Doing::Waiting {
                until: now + Duration::from_millis(at.saturating_sub(wall_ms)),
                cause: harmless(cause).replace('\n', " "),
            },
            Event::ProviderSilent { silent_ms, .. } => {
                Doing::Silent { since: now.saturating_sub(Duration::from_millis(*silent_ms)) }
            }
            Event::PermissionRequested { request_id, .. } => {
                self.questions.push(request_id.clone());
                return;
            }
            Event::PermissionGranted { request_id, .. }
            | Event::PermissionDenied { request_id, .. }
            | Event::PermissionWithdrawn { request_id, .. } => {
                self.questions.retain(|open| open != request_id);
                return;
            }
            _ => return,
        };
        self.doing = doing;
    }

    /// The line that stays of it.
    fn ended(&self, outcome: &SubagentOutcome, now: Duration) -> Block {
        let flat = |text: &str| harmless(text).replace('\n', " ");
        let (role, mark, how) = match outcome {
            SubagentOutcome::Done => (Role::Good, "•", "done".to_owned()),
            SubagentOutcome::Partial { turns, limit } => (
                Role::Warn,
                "•",
                format!("stopped by the limit {} after {turns} replies", flat(limit)),
            ),
            SubagentOutcome::Waiting { until_ms: Some(until) } => {
                let at = clock_time(*until);
                (Role::Warn, "✗", format!("its provider is away until {at}"))
            }
            SubagentOutcome::Waiting { until_ms: None } => {
                (Role::Warn, "✗", "its provider is away".to_owned())
            }
            SubagentOutcome::Failed { cause, .. } => {
                (Role::Bad, "✗", format!("failed: {}", flat(cause)))
            }
            SubagentOutcome::Cancelled => (Role::Warn, "✗", "stopped".to_owned()),
            SubagentOutcome::Refused { limit } => {
                (Role::Warn, "✗", format!("refused: the limit {}", flat(limit)))
            }
        };
        let (parent, _) = self.path.rsplit_once('/').unwrap_or_default();
        let label = self.label(TASK_COLUMNS_MAX);
        let facts = format!("{}{}", age(now, self.since), self.spent(false));
        Block::Note(role, format!("{mark} {parent}/{label} · {how} · {facts}"))
    }

    fn spent(&self, briefly: bool) -> String {
        let read = self.usage.input_tokens.unwrap_or_default();
        let tokens = read + self.usage.output_tokens.unwrap_or_default();
        let mut spent = String::new();
        if tokens > 0 {
            let unit = if briefly { "" } else { " tokens" };
            spent = format!(" · {}{unit}", short(tokens));
        }
        if let Some(cost) = self.cost_nano_usd.filter(|cost| *cost > 0) {
            spent = format!("{spent} · ${:.2}", usd(cost));
        }
        spent
    }
}

#[cfg(test)]
mod tests;
