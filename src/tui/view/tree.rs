//! Tree of running subagents: task, activity or wait, duration and usage of each.

use std::time::Duration;

use posse_actors::conversation::{InvocationId, QuestionId, Usage};
use posse_actors::cost::dollars;
use posse_actors::event::{Event, Origin};
use posse_actors::outcome::SubagentOutcome;
use posse_frontend::end_line::count_text;
use posse_frontend::outcome::clock_time;
use posse_frontend::subagents;

use crate::text::{TextRow, clipped, row, sanitize, width};
use crate::theme::{Role, Theme};
use crate::view::drawing::countdown;
use crate::view::tool::age;
use crate::view::{Block, spinner};

/// Maximum number of subagents and auxiliary requests that are shown; the others are only counted.
const SHOWN_MAX: usize = 12;

/// Maximum columns of a task.
const TASK_COLUMNS_MAX: usize = 40;

/// Interval at which the duration in a row changes.
const PULSE: Duration = Duration::from_secs(1);

/// A running subagent or auxiliary request.
#[derive(Debug, Clone)]
struct SubagentNode {
    id: InvocationId,
    path: String,
    /// Task in one line.
    task: String,
    since: Duration,
    usage: Usage,
    cost_nano_usd: Option<u64>,
    activity: Activity,
    /// Ids of the open permission requests of the subagent.
    questions: Vec<QuestionId>,
    /// Invocation of the caller; `None` if it is unknown.
    caller: Option<InvocationId>,
    /// True for an auxiliary request for a summary or a title, for which no `DelegationEnded`
    /// follows. Assumed for a new node until an event shows that it is a subagent.
    auxiliary: bool,
}

/// Activity of a subagent. Times are counted from the start of the UI.
#[derive(Debug, Clone)]
enum Activity {
    Something(String),
    /// The provider is unavailable. `until`: time of the next attempt.
    Waiting {
        until: Duration,
        cause: String,
    },
    /// The provider sends nothing. `since`: time of the last data.
    Silent {
        since: Duration,
    },
}

/// Running subagents and auxiliary requests, each below its caller.
#[derive(Debug, Clone, Default)]
pub(crate) struct SubagentTree {
    nodes: Vec<SubagentNode>,
}

impl SubagentTree {
    /// Updates the tree from an event. Returns the final line of a subagent if the event is its
    /// end. `wall_ms`: time of the event in milliseconds since 1970.
    pub(super) fn follow(
        &mut self,
        event: &Event,
        origin: Option<&Origin>,
        (now, wall_ms): (Duration, u64),
    ) -> Option<Block> {
        self.end_auxiliary(event, origin);
        let origin = origin?;
        match event {
            Event::InvocationRequested { child_invocation_id, target, task, .. } => {
                let path = format!("{}/{target}", origin.agent_path);
                let caller = Some(&origin.invocation_id);
                self.add((child_invocation_id, caller), &path, task, now);
                self.node(child_invocation_id)?.auxiliary = false;
            }
            Event::DelegationEnded { child_invocation_id, outcome, cost_nano_usd, .. } => {
                let at = self.nodes.iter().position(|node| node.id == *child_invocation_id)?;
                let mut node = self.nodes.remove(at);
                node.cost_nano_usd = cost_nano_usd.or(node.cost_nano_usd);
                return Some(node.ended(outcome, now));
            }
            // `DelegationEnded` follows for the caller.
            Event::InvocationCompleted { .. }
            | Event::InvocationFailed { .. }
            | Event::InvocationCancelled { .. } => (),
            other if origin.parent_invocation_id.is_some() => {
                let id = &origin.invocation_id;
                if is_work(other) {
                    let caller = origin.parent_invocation_id.as_ref();
                    self.add((id, caller), &origin.agent_path, "", now);
                }
                let node = self.node(id)?;
                // The end of a subagent is reported by an event.
                node.auxiliary &=
                    !matches!(other, Event::InvocationStarted { .. } | Event::ToolStarted { .. });
                node.follow(other, now, wall_ms);
            }
            _ => (),
        }
        None
    }

    fn node(&mut self, id: &InvocationId) -> Option<&mut SubagentNode> {
        self.nodes.iter_mut().find(|node| node.id == *id)
    }

    /// Removes auxiliary requests that have ended: after their usage report, or after an event that
    /// ends their purpose, such as a compaction, a title, a warning, or the end of the caller.
    fn end_auxiliary(&mut self, event: &Event, origin: Option<&Origin>) {
        let id = origin.map(|origin| &origin.invocation_id);
        match event {
            Event::ModelUsage { .. } => {
                self.nodes.retain(|node| !node.auxiliary || Some(&node.id) != id);
            }
            Event::ContextCompacted { .. }
            | Event::SessionTitled { .. }
            | Event::Warning { .. }
            | Event::InvocationCompleted { .. }
            | Event::InvocationFailed { .. }
            | Event::InvocationCancelled { .. } => {
                let is_theirs = |node: &SubagentNode| {
                    id.is_none() || Some(&node.id) == id || node.caller.as_ref() == id
                };
                self.nodes.retain(|node| !node.auxiliary || !is_theirs(node));
            }
            _ => (),
        }
    }

    /// Number of running subagents, without auxiliary requests.
    pub(crate) fn agents(&self) -> usize {
        self.nodes.iter().filter(|node| !node.auxiliary).count()
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
        let path = sanitize(path).replace('\n', " ");
        let above = caller.cloned();
        // Below its caller, after the caller's other subagents.
        let caller = self.nodes.iter().position(|node| Some(&node.id) == caller);
        let place = caller.map_or(self.nodes.len(), |at| {
            let depth = self.nodes[at].depth();
            let below = self.nodes[at + 1..].iter().take_while(|node| node.depth() > depth);
            at + 1 + below.count()
        });
        let node = SubagentNode {
            id: id.clone(),
            path,
            task: sanitize(task).split_whitespace().collect::<Vec<_>>().join(" "),
            since: now,
            usage: Usage::default(),
            cost_nano_usd: None,
            activity: Activity::Something("starting".to_owned()),
            questions: Vec::new(),
            caller: above,
            auxiliary: true,
        };
        self.nodes.insert(place, node);
    }

    /// Interval at which the rows change by themselves; `None` if the tree is empty.
    pub(super) fn animation_interval(&self) -> Option<Duration> {
        (!self.nodes.is_empty()).then_some(PULSE)
    }

    /// Rows of the tree: one for each of the first [`SHOWN_MAX`] nodes, and one with the number of
    /// the others.
    pub(super) fn rows(&self, columns: usize, theme: Theme, now: Duration) -> Vec<TextRow> {
        let labels: Vec<String> = self.nodes.iter().map(|node| node.label(columns / 5)).collect();
        let mut rows: Vec<TextRow> = Vec::new();
        for (node, label) in self.nodes.iter().zip(&labels).take(SHOWN_MAX) {
            let alike = labels.iter().filter(|other| *other == label).count() > 1;
            let label = if alike { format!("{label} #{}", node.tag()) } else { label.clone() };
            // Even the deepest row keeps half of the width for its activity.
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

/// Returns `true` for events that show that an agent is running.
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

impl SubagentNode {
    /// Number of agents between this agent and the main agent.
    fn depth(&self) -> usize {
        self.path.matches('/').count().saturating_sub(1)
    }

    /// Name and task. The task takes at most `columns` columns, but the limit is at least 8 and at
    /// most [`TASK_COLUMNS_MAX`].
    fn label(&self, columns: usize) -> String {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let task = clipped(&self.task, columns.clamp(8, TASK_COLUMNS_MAX));
        if width(&task) == 0 { name.to_owned() } else { format!("{name} “{task}”") }
    }

    /// Counter of the invocation id. It distinguishes agents of the same name and task.
    fn tag(&self) -> String {
        sanitize(subagents::short_id(&self.id))
    }

    fn state(&self, now: Duration) -> (Role, &'static str, String) {
        if !self.questions.is_empty() {
            return (Role::Warn, "?", "waiting for your answer".to_owned());
        }
        match &self.activity {
            Activity::Something(what) => (Role::Dim, spinner(now), what.clone()),
            Activity::Waiting { until, cause } => {
                let left = countdown(until.saturating_sub(now));
                let what = format!("provider unavailable, retry in {left}: {cause}");
                (Role::Warn, "⏸", what)
            }
            Activity::Silent { since } => {
                let what = format!("provider silent for {}", age(now, *since));
                (Role::Warn, "⏸", what)
            }
        }
    }

    fn follow(&mut self, event: &Event, now: Duration, wall_ms: u64) {
        let waiting = |wait_ms: u64, cause: &str| Activity::Waiting {
            until: now + Duration::from_millis(wait_ms),
            cause: sanitize(cause).replace('\n', " "),
        };
        let activity = match event {
            Event::ModelUsage { usage, billing, .. } => {
                self.usage.add(usage);
                let cost = billing.as_ref().and_then(|billing| billing.cost_nano_usd);
                if let Some(cost) = cost {
                    let before = self.cost_nano_usd.unwrap_or_default();
                    self.cost_nano_usd = Some(before.saturating_add(cost));
                }
                return;
            }
            Event::ModelRequest { .. } => Activity::Something("waiting for its model".to_owned()),
            Event::ThinkingDelta { .. } => Activity::Something("thinking".to_owned()),
            Event::TextDelta { .. } => Activity::Something("writing".to_owned()),
            Event::ToolStarted { summary, .. } => {
                Activity::Something(sanitize(summary).replace('\n', " "))
            }
            Event::ProviderWaiting { wait_ms, cause, .. } => waiting(*wait_ms, cause),
            Event::SessionParked { cause, next_try_ms: Some(at), .. } => {
                waiting(at.saturating_sub(wall_ms), cause)
            }
            Event::ProviderSilent { silent_ms, .. } => {
                Activity::Silent { since: now.saturating_sub(Duration::from_millis(*silent_ms)) }
            }
            Event::PermissionRequested { request_id, .. } => {
                self.questions.push(request_id.clone());
                return;
            }
            _ => return self.questions.retain(|open| Some(open) != event.closed_question()),
        };
        self.activity = activity;
    }

    /// Final line of a subagent, with outcome, duration and usage.
    fn ended(&self, outcome: &SubagentOutcome, now: Duration) -> Block {
        let flat = |text: &str| sanitize(text).replace('\n', " ");
        let (role, mark, how) = match outcome {
            SubagentOutcome::Done => (Role::Good, "•", "done".to_owned()),
            SubagentOutcome::Partial { turns, limit } => (
                Role::Warn,
                "•",
                format!("stopped by the limit {} after {turns} replies", flat(limit)),
            ),
            SubagentOutcome::Waiting { until_ms } => {
                let until = until_ms.map(|at| format!(" until {}", clock_time(at)));
                let until = until.unwrap_or_default();
                (Role::Warn, "✗", format!("its provider is unavailable{until}"))
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
        Block::Note(vec![(role, format!("{mark} {parent}/{label} · {how} · {facts}"))])
    }

    fn spent(&self, briefly: bool) -> String {
        let read = self.usage.input_tokens.unwrap_or_default();
        let tokens = read + self.usage.output_tokens.unwrap_or_default();
        let mut spent = String::new();
        if tokens > 0 {
            let unit = if briefly { "" } else { " tokens" };
            spent = format!(" · {}{unit}", count_text(tokens));
        }
        if let Some(cost) = self.cost_nano_usd.filter(|cost| *cost > 0) {
            spent = format!("{spent} · {}", dollars(cost));
        }
        spent
    }
}

#[cfg(test)]
mod tests;
