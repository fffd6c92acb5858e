//! State of subagents according to the records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::{CallId, InvocationId, Usage};
use crate::delegation::{ActionLog, Caps, FinishedTask, SubagentEnd, follow_files, notice_id};
use crate::event::{Event, MessageKind, Origin, StoredRecord};
use crate::outcome::{Memories, SubagentOutcome, WorktreeSummary};
use crate::replay::Replayed;

/// A subagent that was started, with its state according to the records.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "facts that come one by one, as records do")]
pub struct Delegated {
    /// Origin of the subagent.
    pub origin: Arc<Origin>,
    /// Origin of its caller.
    pub caller: Arc<Origin>,
    /// The call that last started or resumed it.
    pub call_id: CallId,
    /// Name of the provider profile with which it was last started.
    pub provider: String,
    /// Working directory of the session when the subagent was last started.
    pub cwd: String,
    /// Its latest task in one line.
    pub task: String,
    /// True if the caller does not wait for its end.
    pub background: bool,
    /// True if the caller wants a brief answer.
    #[serde(default)]
    pub brief: bool,
    /// Number of starts of the subagent; more than one if its caller resumed it.
    pub starts: u32,
    /// True if its task, the first user message, is recorded since the last start.
    pub briefed: bool,
    /// True if `agent.invocation.started` is recorded since the last start; false while the
    /// subagent is only requested.
    pub began: bool,
    /// Paths that its calls named in the argument `path`, newest last, at most 20.
    pub files: Vec<String>,
    /// Number of its calls since its first start, with the latest that may have changed something.
    #[serde(default, rename = "deeds")]
    pub actions: ActionLog,
    /// Running time since its last start in milliseconds, without the time between processes.
    #[serde(default)]
    pub worked_ms: u64,
    /// Time up to which `worked_ms` counts, in milliseconds since 1970; `None` if no process runs
    /// the subagent.
    #[serde(default)]
    since_ms: Option<u64>,
    /// True if its report was deleted from the memory of subagents.
    pub forgotten: bool,
    /// Last text of its model, or its final answer.
    pub said: String,
    /// Number of its model replies since its first start.
    pub replies: u32,
    /// Number of its model replies since the last start.
    pub turns: u32,
    /// Tokens of its model requests since the last start.
    pub usage: Usage,
    /// Tokens of its model requests since its first start.
    pub used: Usage,
    /// Known cost since its first start, in billionths of a dollar.
    pub nano_usd: u64,
    /// Known cost since the last start, in billionths of a dollar.
    pub run_nano_usd: u64,
    /// Outcome of the subagent; `None` while no end is recorded.
    pub ended: Option<SubagentOutcome>,
    /// True if its end is recorded for its caller (`agent.delegation.ended`).
    pub announced: bool,
    /// True if a message about its end was queued for its caller.
    pub noticed: bool,
    /// Working directory of its isolated workspace; `None` if it has none.
    #[serde(default)]
    pub workplace: Option<String>,
    /// State of the isolated workspace at the end of the subagent; `None` if not recorded.
    #[serde(default)]
    pub remains: Option<WorktreeSummary>,
}

impl Memories {
    /// Memory of subagents according to a fold: first the memory that a fork took over, then the
    /// reports of this session.
    pub fn of(replayed: &Replayed) -> Memories {
        let Replayed { inherited, delegated, .. } = replayed;
        let mut memories = inherited.clone();
        for one in delegated.iter().filter(|one| !one.forgotten) {
            if let Some(outcome) = &one.ended {
                memories.add_report(&FinishedTask {
                    agent: &one.origin.agent,
                    provider: &one.provider,
                    cwd: &one.cwd,
                    task: &one.task,
                    outcome,
                    said: &one.said,
                    files: &one.files,
                });
            }
        }
        memories
    }
}

impl Delegated {
    /// Invocation id of the subagent.
    pub fn id(&self) -> &InvocationId {
        &self.origin.invocation_id
    }

    /// True if the main agent called it.
    pub fn called_by_main(&self) -> bool {
        self.caller.parent_invocation_id.is_none()
    }

    /// True if the main agent started it without waiting, and it has not ended.
    pub(crate) fn runs_in_background(&self) -> bool {
        self.background && self.called_by_main() && self.ended.is_none()
    }

    /// End of the subagent with the given outcome, and answer, usage and actions according to the
    /// records. Isolated workspaces below it are not listed.
    pub(crate) fn ending(&self, outcome: SubagentOutcome) -> SubagentEnd {
        SubagentEnd {
            id: self.id().clone(),
            agent: self.origin.agent.clone(),
            outcome,
            said: self.said.clone(),
            turns: self.turns,
            usage: self.usage,
            cost_nano_usd: (self.run_nano_usd > 0).then_some(self.run_nano_usd),
            actions: Some(self.actions.clone()),
            workplace: self
                .remains
                .clone()
                .or_else(|| self.workplace.clone().map(WorktreeSummary::unknown)),
            unmerged_below: Vec::new(),
            brief: self.brief,
        }
    }

    /// Result for the call that started it, if the process ended while the call waited: the outcome
    /// of the subagent, or a text that calls it unknown.
    pub(super) fn cut_off(&self) -> String {
        match &self.ended {
            Some(outcome) => self.ending(outcome.clone()).compact(Caps::default().answer_bytes_max),
            None => format!(
                "The session broke off while agent {} ({}) worked on this call. Whether it got done is \
                 not known. {}\n{}Look at how things are before it is done again.",
                self.origin.agent,
                self.id(),
                self.actions,
                self.workspace_clause()
            ),
        }
    }

    /// Sentence that names the isolated workspace and says that its changes are not in the
    /// workspace of the caller; empty if the subagent has none.
    fn workspace_clause(&self) -> String {
        self.workplace.as_ref().map_or_else(String::new, |cwd| {
            format!(
                "All of that was in a worktree of its own, and none of it is in the workspace: {}\n",
                cwd.escape_debug()
            )
        })
    }

    /// Adds the running time up to `ts` (milliseconds since 1970) and continues to measure from
    /// there. Without a start of the measurement, only starts it.
    fn count_time(&mut self, ts: u64) {
        if let Some(since) = self.since_ms.replace(ts) {
            self.worked_ms = self.worked_ms.saturating_add(ts.saturating_sub(since));
        }
    }

    /// True if the main agent started it without waiting, it was not cancelled, and no message has
    /// reported its end; also true while it runs. A cancelled one is reported to the agent that
    /// stopped it.
    pub(crate) fn is_unreported(&self) -> bool {
        // The agent that stopped it is informed.
        let quiet = self.noticed || matches!(self.ended, Some(SubagentOutcome::Cancelled));
        self.background && self.called_by_main() && !quiet
    }
}

/// Updates the states of all subagents in `all` with the next record; a requested subagent is
/// added. `cwd`: working directory of the session.
pub(super) fn follow(all: &mut Vec<Delegated>, cwd: &str, record: &StoredRecord) {
    match (&record.event, &record.origin) {
        (Event::InvocationRequested { .. }, Some(caller)) => {
            requested(all, cwd, caller, record);
        }
        (
            Event::DelegationEnded {
                child_invocation_id, outcome, turns, usage, workplace, ..
            },
            _,
        ) => {
            if let Some(one) = find(all, child_invocation_id) {
                one.remains.clone_from(workplace);
                (one.ended, one.announced) = (Some(outcome.clone()), true);
                (one.turns, one.usage) = (*turns, *usage);
                one.replies = one.replies.max(*turns);
            }
        }
        (Event::MemoryForgotten { agent }, _) => {
            let theirs = |one: &&mut Delegated| {
                one.ended.is_some() && agent.as_ref().is_none_or(|agent| one.origin.agent == *agent)
            };
            all.iter_mut().filter(theirs).for_each(|one| one.forgotten = true);
        }
        (Event::MessageQueued { message_id, kind: MessageKind::Notice, .. }, _) => {
            let is = |one: &&mut Delegated| *message_id == notice_id(one.id(), &one.call_id);
            if let Some(one) = all.iter_mut().rev().find(is) {
                one.noticed = true;
            }
        }
        (event, Some(origin)) if origin.parent_invocation_id.is_some() => {
            if let Some(one) = find(all, &origin.invocation_id) {
                if one.ended.is_none() {
                    one.count_time(record.ts);
                }
                one.note_activity(event);
            }
        }
        _ => (),
    }
}

/// Ends the measurement of running time, because a process or the records ended. `ts`: time of the
/// last record, in milliseconds since 1970.
pub(super) fn end_process(all: &mut [Delegated], ts: u64) {
    for one in all.iter_mut().filter(|one| one.ended.is_none()) {
        one.count_time(ts);
        one.since_ms = None;
    }
}

/// Adds a subagent that was requested. A resumed one moves to the end of the list, so that its
/// latest caller precedes it.
fn requested(all: &mut Vec<Delegated>, cwd: &str, caller: &Arc<Origin>, record: &StoredRecord) {
    let Event::InvocationRequested {
        child_invocation_id,
        target,
        call_id,
        provider,
        task,
        background,
        brief,
        workplace,
    } = &record.event
    else {
        return;
    };
    let known = all.iter().position(|one| one.id() == child_invocation_id);
    let known = known.map(|nth| all.remove(nth)).unwrap_or_default();
    // The state of earlier starts that is kept.
    let Delegated { starts, replies, nano_usd, used, files, actions, .. } = known;
    let origin = Origin {
        invocation_id: child_invocation_id.clone(),
        parent_invocation_id: Some(caller.invocation_id.clone()),
        agent: target.clone(),
        agent_path: format!("{}/{target}", caller.agent_path),
    };
    all.push(Delegated {
        origin: Arc::new(origin),
        caller: Arc::clone(caller),
        call_id: call_id.clone(),
        provider: provider.clone(),
        cwd: cwd.to_owned(),
        task: task.clone(),
        background: *background,
        brief: *brief,
        since_ms: Some(record.ts),
        workplace: workplace.clone(),
        starts: starts + 1,
        replies,
        nano_usd,
        used,
        files,
        actions,
        ..Delegated::default()
    });
}

fn find<'a>(all: &'a mut [Delegated], id: &InvocationId) -> Option<&'a mut Delegated> {
    all.iter_mut().rev().find(|one| one.id() == id)
}

impl Delegated {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only beginnings, replies and ends matter")]
    fn note_activity(&mut self, event: &Event) {
        self.actions.follow(event);
        match event {
            Event::UserMessage { .. } => self.briefed = true,
            Event::InvocationStarted { .. } => self.began = true,
            Event::ModelReply { message, .. } => {
                self.turns = self.turns.saturating_add(1);
                self.replies = self.replies.saturating_add(1);
                follow_files(&mut self.files, &message.tool_calls);
                if let Some(text) = message.content.as_ref().filter(|text| !text.is_empty()) {
                    self.said.clone_from(text);
                }
            }
            Event::ModelUsage { usage, billing, .. } => {
                self.usage.add(usage);
                self.used.add(usage);
                let cost = billing.as_ref().and_then(|billing| billing.cost_nano_usd);
                self.nano_usd = self.nano_usd.saturating_add(cost.unwrap_or_default());
                self.run_nano_usd = self.run_nano_usd.saturating_add(cost.unwrap_or_default());
            }
            Event::InvocationCompleted { result, .. } => {
                self.said.clone_from(result);
                self.ended = Some(if result.trim().is_empty() {
                    SubagentOutcome::silent()
                } else {
                    SubagentOutcome::Done
                });
            }
            Event::InvocationFailed { class, cause, .. } => {
                let (class, cause) = (class.clone(), cause.clone());
                self.ended = Some(SubagentOutcome::Failed { class, cause });
            }
            Event::InvocationCancelled { .. } => self.ended = Some(SubagentOutcome::Cancelled),
            _ => (),
        }
    }
}
