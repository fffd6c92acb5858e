//! Subagents of a session: a fold over its records, and the text of `/agents`.

use posse_actors::conversation::{InvocationId, QuestionId, Usage};
use posse_actors::cost::dollars;
use posse_actors::event::{Event, GrantedAgent, Origin};
use posse_actors::text::clipped;
use posse_base::failure::printable;

use crate::table::table;

/// Maximum number of subagents in the table; the latest are shown.
const SHOWN_MAX: usize = 40;

/// Maximum characters of a task or a state in the table, without the ellipsis of a longer one.
const TASK_CHARS_MAX: usize = 60;

/// Row of one subagent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SubagentRow {
    id: InvocationId,
    agent: String,
    provider: String,
    task: String,
    background: bool,
    usage: Usage,
    nano_usd: u64,
    /// True if the price of at least one of its attempts is unknown.
    unpriced: bool,
    /// Ids of the open permission requests of the subagent.
    questions: Vec<QuestionId>,
    /// Outcome; `None` if the subagent has not ended.
    ended: Option<String>,
}

/// Subagents in the order of their delegation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SubagentTable(Vec<SubagentRow>);

impl SubagentTable {
    /// Updates the table from an event. `origin`: invocation in which the event happened; `None`
    /// for an event of the session itself.
    pub(crate) fn follow(&mut self, event: &Event, origin: Option<&Origin>) {
        match event {
            Event::InvocationRequested {
                child_invocation_id: id,
                target,
                provider,
                task,
                background,
                ..
            } => {
                if self.0.iter().all(|worker| worker.id != *id) {
                    self.0.push(SubagentRow {
                        id: id.clone(),
                        agent: target.clone(),
                        provider: provider.clone(),
                        task: task.clone(),
                        background: *background,
                        ..SubagentRow::default()
                    });
                }
                return;
            }
            Event::DelegationEnded { child_invocation_id: id, outcome, .. } => {
                if let Some(worker) = self.0.iter_mut().find(|worker| worker.id == *id) {
                    worker.ended = Some(outcome.to_string());
                }
                return;
            }
            _ => (),
        }
        let Some(origin) = origin else { return };
        let known = self.0.iter_mut().find(|worker| worker.id == origin.invocation_id);
        if let Some(worker) = known {
            worker.follow(event);
        }
    }

    /// Formats the table with a heading; earlier subagents beyond the maximum are only counted. A
    /// sentence says so if there is no subagent. Control characters are escaped.
    pub(crate) fn table(&self) -> String {
        if self.0.is_empty() {
            return "No subagent was started in this conversation.\n".to_owned();
        }
        let from = self.0.len().saturating_sub(SHOWN_MAX);
        let head = ["ID", "AGENT", "STATE", "TOKENS", "COST", "TASK"].map(str::to_owned);
        let rows: Vec<[String; 6]> =
            std::iter::once(head).chain(self.0[from..].iter().map(SubagentRow::row)).collect();
        let text = table(&rows);
        if from == 0 { text } else { format!("{text}and {from} earlier ones\n") }
    }
}

impl SubagentRow {
    fn follow(&mut self, event: &Event) {
        match event {
            Event::ModelUsage { usage, billing, .. } => {
                self.usage.add(usage);
                let cost = billing.as_ref().and_then(|billing| billing.cost_nano_usd);
                self.nano_usd = self.nano_usd.saturating_add(cost.unwrap_or_default());
                self.unpriced |= cost.is_none();
            }
            Event::PermissionRequested { request_id, .. } => {
                self.questions.push(request_id.clone());
            }
            _ => self.questions.retain(|open| Some(open) != event.closed_question()),
        }
    }

    fn row(&self) -> [String; 6] {
        let state = match (&self.ended, self.questions.is_empty(), self.background) {
            (Some(how), ..) => how.lines().next().unwrap_or_default().to_owned(),
            (None, false, _) => "waiting for your answer".to_owned(),
            (None, true, true) => "running in the background".to_owned(),
            (None, true, false) => "running".to_owned(),
        };
        let tokens = match (self.usage.input_tokens, self.usage.output_tokens) {
            (None, None) => "-".to_owned(),
            (read, written) => (read.unwrap_or_default() + written.unwrap_or_default()).to_string(),
        };
        let cost = match (self.nano_usd, self.unpriced) {
            (0, true) => "?".to_owned(),
            (0, false) => "-".to_owned(),
            (nano_usd, true) => format!(">={}", dollars(nano_usd)),
            (nano_usd, false) => dollars(nano_usd),
        };
        let task = self.task.split_whitespace().collect::<Vec<_>>().join(" ");
        let agent = format!("{} via {}", label_with_id(&self.agent, &self.id), self.provider);
        [
            self.id.to_string(),
            printable(&agent),
            printable(&cut(&state)),
            tokens,
            cost,
            printable(&cut(&task)),
        ]
    }
}

fn cut(text: &str) -> String {
    clipped(text, TASK_CHARS_MAX, " …")
}

/// Name of an agent with the counter of its invocation id, such as `NAME #3`, to distinguish agents
/// of the same name.
pub fn label_with_id(name: &str, id: &InvocationId) -> String {
    format!("{name} #{}", short_id(id))
}

/// Label of the agent of a grant, such as `build/worker #3`; of the main agent its path.
pub fn granted_agent(agent: &GrantedAgent) -> String {
    let GrantedAgent { agent_path, invocation_id } = agent;
    match invocation_id {
        Some(id) => label_with_id(agent_path, id),
        None => agent_path.clone(),
    }
}

/// Counter at the end of an invocation id; the whole id if it has none.
pub fn short_id(id: &InvocationId) -> &str {
    id.as_str().rsplit_once('-').map_or(id.as_str(), |(_, nth)| nth)
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::CallId;
    use posse_actors::outcome::SubagentOutcome;

    use super::*;

    fn requested(id: &str, task: &str, background: bool) -> Event {
        Event::InvocationRequested {
            child_invocation_id: InvocationId::new(id),
            target: "explore".to_owned(),
            call_id: CallId::new("c1"),
            provider: "local".to_owned(),
            task: task.to_owned(),
            background,
            brief: false,
            workplace: None,
        }
    }

    fn origin(id: &str) -> Origin {
        Origin {
            invocation_id: InvocationId::new(id),
            parent_invocation_id: Some(InvocationId::new("i0-1")),
            agent: "explore".to_owned(),
            agent_path: "build/explore".to_owned(),
        }
    }

    #[test]
    fn table_shows_state_and_cost_of_each() {
        let mut workers = SubagentTable::default();
        workers.follow(&requested("i00ab12-3", "look at\nthe\u{1b}[2J tests", false), None);
        workers.follow(&requested("i00ab12-4", &"long ".repeat(30), true), None);
        workers.follow(&requested("i00ab12-4", "again", true), None);
        let usage = Usage { input_tokens: Some(900), output_tokens: Some(100), ..Usage::default() };
        let used = Event::ModelUsage { turn: 1, usage, billing: None };
        workers.follow(&used, Some(&origin("i00ab12-3")));
        workers.follow(&used, Some(&origin("i00ab12-9")));
        workers.follow(
            &Event::DelegationEnded {
                child_invocation_id: InvocationId::new("i00ab12-3"),
                target: "explore".to_owned(),
                outcome: SubagentOutcome::Done,
                turns: 1,
                usage: Usage::default(),
                cost_nano_usd: None,
                workplace: None,
            },
            None,
        );
        insta::assert_snapshot!(workers.table());
    }
}
