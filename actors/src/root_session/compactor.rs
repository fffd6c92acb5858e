//! Context size of the main conversation, and compaction between prompts.

use std::sync::Arc;

use ractor::RpcReplyPort;
use tokio::task::JoinError;

use crate::agent_invocation::{
    ContextFitter, ModelRoutes, Summary, compacted_event, without_summary,
};
use crate::compaction::{
    CompactedHistory, CompactionGoal, FileTools, compact, messages_since_reply, size_of,
};
use crate::context::{ContextMeter, ContextReading};
use crate::conversation::{InvocationId, Message};
use crate::event::{CompactionCause, ContextUse, Event};
use crate::mailbox::{OwnedTask, answer, panic_text, spawn_task};
use crate::provider_client;
use crate::root_session::supervised::clients::Clients;
use crate::root_session::{Msg, PromptError, SessionBase, State};

/// Reply channel for the result of a requested compaction; `Ok(None)`: nothing, or too little,
/// could be removed.
pub(super) type CompactReply = RpcReplyPort<Result<Option<CompactedHistory>, PromptError>>;

/// Messages about compaction between prompts, and about the size of the context.
#[derive(strum::IntoStaticStr)]
pub(super) enum CompactorMsg {
    /// Compact the history; the text is the topic that the user wants to keep (`None`: no topic).
    Compact(Option<String>, CompactReply),
    /// The request for a summary has ended, with the summary or the reason of its failure.
    Summarised(Result<Result<String, String>, JoinError>),
    /// Return the composition of the context to the caller; without a reply channel, announce it to
    /// all observers.
    Context(Option<RpcReplyPort<ContextUse>>),
}

/// A compaction between prompts that waits for its summary from a model.
struct PendingCompaction {
    goal: CompactionGoal,
    reply: CompactReply,
    /// Invocation id under which the summary is requested.
    id: InvocationId,
    _work: OwnedTask,
}

/// Token estimate of the main conversation, and its compaction between prompts.
pub(super) struct Compactor {
    /// Route to the model that writes summaries; `None`: rules make them (see `compaction.rs`).
    summariser: Option<ModelRoutes>,
    /// Compaction that waits for its summary; `None` if there is none.
    pending: Option<PendingCompaction>,
    /// Token estimate of the main agent's history.
    meter: ContextMeter,
}

impl Compactor {
    pub(super) fn new(summariser: Option<ModelRoutes>) -> Compactor {
        Compactor { summariser, pending: None, meter: ContextMeter::default() }
    }

    /// True while a requested compaction waits for its summary from a model.
    pub(super) fn is_busy(&self) -> bool {
        self.pending.is_some()
    }
}

impl State {
    pub(super) fn handle_compactor(&mut self, msg: CompactorMsg) {
        match msg {
            CompactorMsg::Compact(keep, reply) => self.compact(keep, reply),
            CompactorMsg::Summarised(summary) => self.summarised(summary),
            CompactorMsg::Context(Some(reply)) => answer(reply, self.context()),
            CompactorMsg::Context(None) => self.announce_context(),
        }
    }

    /// Compacts the history between prompts, and replies with the result. If a model writes the
    /// summary, the reply follows when the summary has arrived. Refused during a run, a tool call of
    /// the user or another compaction, and if the session is ending.
    pub(super) fn compact(&mut self, keep: Option<String>, reply: CompactReply) {
        if self.end.is_ending() {
            return answer(reply, Err(PromptError::Ended));
        }
        if self.main_run.is_busy() || self.compactor.is_busy() {
            return answer(reply, Err(PromptError::Busy));
        }
        let budget = &self.base.settings.limits.context_main;
        let turns = budget.recent_turns_min;
        let quarter = CompactionGoal::quarter(&self.main_run.history, turns, budget.summary_tokens);
        let origin = self.base.new_origin();
        let beside = self.base.services.background_work(&origin);
        let files = FileTools::of(&self.base.specs);
        let todos = self.base.services.todos.lines(&origin);
        let goal = CompactionGoal { keep, beside, todos, files, ..quarter };
        let has_summariser = self.compactor.summariser.is_some();
        let large = budget.inline_result_tokens;
        let plan = plan(&self.main_run.history, &goal, large, has_summariser);
        let (goal, gone) = match plan {
            CompactionPlan::Nothing => return answer(reply, Ok(None)),
            CompactionPlan::Apply(compacted) => {
                let applied = self.apply(compacted, None);
                return answer(reply, Ok(Some(applied)));
            }
            CompactionPlan::Summarise(goal, gone) => (goal, gone),
        };
        let Some(summariser) = &self.compactor.summariser else { return };
        let gone = self.main_run.history[..gone].to_vec();
        let settings = &self.base.settings.context;
        let summary = Summary::new(&self.base.services, summariser, settings, &origin, &goal);
        let id = summary.id();
        let work = spawn_task(&self.base.me, summary.of(gone), |said| {
            Msg::Compactor(CompactorMsg::Summarised(said))
        });
        self.compactor.pending = Some(PendingCompaction { goal, reply, id, _work: work });
    }

    /// Compacts with the summary, or without it if the model failed, and replies to the caller.
    pub(super) fn summarised(&mut self, summary: Result<Result<String, String>, JoinError>) {
        // The compaction was cancelled.
        let Some(PendingCompaction { goal, reply, .. }) = self.compactor.pending.take() else {
            return;
        };
        let model = self.compactor.summariser.as_ref().and_then(ModelRoutes::info);
        let summary = summary.unwrap_or_else(|died| Err(panic_text(died)));
        let summarised =
            summarise(&self.main_run.history, goal, summary, model.map(|info| info.model));
        if let Some(message) = summarised.warning {
            self.base.transcript.note(None, Event::Warning { message });
        }
        let by = summarised.by;
        let compacted = summarised.compacted.map(|compacted| self.apply(compacted, by));
        answer(reply, Ok(compacted));
    }

    /// Cancels the request for a summary, if there is one, and compacts without it.
    pub(super) fn give_up_summary(&mut self) {
        let Some(PendingCompaction { id, .. }) = &self.compactor.pending else { return };
        let id = id.clone();
        if let Some(summariser) = &self.compactor.summariser {
            summariser.send_to_all(|| provider_client::Msg::Cancel(id.clone()));
        }
        self.summarised(Ok(Err("it was stopped".to_owned())));
    }

    /// Makes the compacted history the current one, records the compaction, and informs the tools.
    /// An interrupted run of an earlier process is dropped. `by`: model that wrote the summary;
    /// `None`: the rules made it.
    fn apply(&mut self, compacted: CompactedHistory, by: Option<String>) -> CompactedHistory {
        self.drop_unfinished();
        let before = self.reading().total;
        self.main_run.history.clone_from(&compacted.history);
        self.compactor.meter.compacted(&self.full_history());
        self.base.ports.tools.iter().for_each(|tool| tool.history_shortened());
        let tokens = (before, self.reading().total);
        let event = compacted_event(compacted.clone(), tokens, CompactionCause::Request, by);
        self.base.transcript.note(None, event);
        compacted
    }

    /// Composition of the main agent's next request in tokens; during a run, of its last request.
    pub(super) fn context(&self) -> ContextUse {
        let (budget, settings) =
            (&self.base.settings.limits.context_main, &self.base.settings.context);
        let info = &self.base.provider_info;
        if !self.main_run.is_running() {
            self.reading();
        }
        self.compactor.meter.last(budget, settings, info)
    }

    pub(super) fn announce_context(&self) {
        let event = Event::ContextUsed { used: self.context() };
        self.base.feed.publish(self.base.ephemeral(event));
    }

    fn reading(&self) -> ContextReading {
        let (budget, settings) =
            (&self.base.settings.limits.context_main, &self.base.settings.context);
        let info = Some(&self.base.provider_info);
        self.compactor.meter.read(&self.full_history(), &self.base.specs, budget, settings, info)
    }

    /// The history of the main agent with the system message at its beginning.
    fn full_history(&self) -> Vec<Arc<Message>> {
        let system = Message::System { content: self.base.settings.system_prompt.clone() };
        let mut history = Vec::with_capacity(self.main_run.history.len() + 1);
        history.push(Arc::new(system));
        history.extend(self.main_run.history.iter().cloned());
        history
    }
}

impl SessionBase {
    /// Context budget of the main agent, its token estimate, and the summary model.
    pub(super) fn fitter(&self, compactor: &Compactor) -> ContextFitter {
        ContextFitter {
            budget: self.settings.limits.context_main.clone(),
            settings: self.settings.context.clone(),
            meter: compactor.meter.clone(),
            summariser: compactor.summariser.clone(),
        }
    }

    /// Context budget of a subagent, an empty token estimate, and the summary model.
    pub(super) fn child_fitter(&self, clients: &Clients) -> ContextFitter {
        ContextFitter {
            budget: self.settings.limits.context_child.clone(),
            settings: self.settings.context.clone(),
            meter: ContextMeter::default(),
            summariser: clients.of_role(self.settings.context.compact.as_ref()),
        }
    }
}

/// Plan for a requested compaction.
#[derive(Debug, PartialEq)]
enum CompactionPlan {
    /// The history contains nothing that can be removed, or too little
    /// ([`CompactedHistory::is_worthwhile`]).
    Nothing,
    /// Use this result of the rules.
    Apply(CompactedHistory),
    /// Let a model summarise this number of messages at the beginning, then compact to this goal.
    Summarise(CompactionGoal, usize),
}

/// Plans the compaction of `history` to `goal`. `large`: size in tokens from which an output of the
/// latest turns counts as large.
fn plan(
    history: &[Arc<Message>],
    goal: &CompactionGoal,
    large: u64,
    has_summariser: bool,
) -> CompactionPlan {
    // After a failed run, the history may be what the provider rejects: then it is compacted for
    // any gain.
    let at_rest = matches!(history.last().map(|last| &**last), Some(Message::Assistant(_)));
    match compacted_to(history, goal, large) {
        None => CompactionPlan::Nothing,
        Some((_, compacted)) if at_rest && !compacted.is_worthwhile() => CompactionPlan::Nothing,
        Some((goal, compacted)) if has_summariser && compacted.messages_removed > 0 => {
            CompactionPlan::Summarise(goal, compacted.messages_removed)
        }
        Some((_, compacted)) => CompactionPlan::Apply(compacted),
    }
}

/// Result of a compaction after the request for a summary.
#[derive(Debug, PartialEq)]
struct SummarisedHistory {
    compacted: Option<CompactedHistory>,
    /// Name of the model that wrote the summary; `None`: the rules made it.
    by: Option<String>,
    /// Warning that the model wrote no summary, with the reason; `None` if it wrote one.
    warning: Option<String>,
}

/// Compacts `history` to `goal` with the summary of a model, or by the rules alone if `summary` is
/// an error.
fn summarise(
    history: &[Arc<Message>],
    mut goal: CompactionGoal,
    summary: Result<String, String>,
    model: Option<String>,
) -> SummarisedHistory {
    let warning = summary.as_ref().err().map(|why| without_summary(why));
    goal.summary = summary.ok();
    let by = model.filter(|_| goal.summary.is_some());
    SummarisedHistory { compacted: compact(history, &goal), by, warning }
}

/// Compacts `history` to `goal` by the rules. Unanswered user messages before the last one are
/// shortened only if this at least halves the result. If more than half of the history is left,
/// fewer of the latest turns stay than the goal says, finally without their large outputs: the user
/// has asked for a shorter history. Returns the goal that was used with the result; `None` if
/// nothing can be removed.
fn compacted_to(
    history: &[Arc<Message>],
    goal: &CompactionGoal,
    large: u64,
) -> Option<(CompactionGoal, CompactedHistory)> {
    let usual = compact(history, goal);
    let left = usual.as_ref().map_or_else(|| size_of(history), |usual| usual.tokens_after);
    let unanswered = messages_since_reply(history).saturating_sub(1);
    let without = CompactionGoal { unanswered, ..goal.clone() };
    let shorter = compact(history, &without).filter(|one| one.tokens_after <= left / 2);
    let mut best =
        shorter.map(|shorter| (without, shorter)).or(usual.map(|usual| (goal.clone(), usual)));
    let half = size_of(history) / 2;
    let fewer = (1..goal.turns_kept)
        .rev()
        .map(|turns_kept| CompactionGoal { turns_kept, ..goal.clone() })
        .chain([CompactionGoal { turns_kept: 1, clip_latest: Some(large), ..goal.clone() }]);
    for goal in fewer {
        let left = best.as_ref().map_or_else(|| size_of(history), |(_, best)| best.tokens_after);
        if left <= half {
            break;
        }
        if let Some(compacted) = compact(history, &goal).filter(|one| one.tokens_after < left) {
            best = Some((goal, compacted));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{AssistantMessage, CallId, ContentPart, ToolCall};

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::User { content: vec![ContentPart::text(text)] })
    }

    fn says(text: &str) -> Arc<Message> {
        let content = Some(text.to_owned());
        Arc::new(Message::Assistant(AssistantMessage { content, ..AssistantMessage::default() }))
    }

    /// Ten answered prompts with long texts.
    fn long() -> Vec<Arc<Message>> {
        let word = "word ".repeat(400);
        (0..10).flat_map(|_| [user(&word), says(&word)]).collect()
    }

    /// Two short turns and a long one, of which only the short ones can be removed.
    fn little() -> Vec<Arc<Message>> {
        let short = "word ".repeat(100);
        let long = "word ".repeat(4000);
        vec![user(&short), says(&short), user(&short), says(&short), user(&long), says(&long)]
    }

    #[test]
    fn model_summarises_only_if_messages_are_removed() {
        let table = [
            (vec![], true, "nothing"),
            (vec![user("a")], true, "nothing"),
            (long(), false, "apply"),
            (long(), true, "summarise"),
            // A compaction would remove less than a tenth.
            (little(), true, "nothing"),
            (little(), false, "nothing"),
            // The provider may have rejected this history.
            ([little(), vec![user("and now?")]].concat(), false, "apply"),
            // Only the beginning of an unanswered prompt stays; no reply is removed.
            (vec![user(&"word ".repeat(4000)), user("b")], true, "apply"),
        ];
        for (at, (history, has_summariser, expected)) in table.into_iter().enumerate() {
            let goal = CompactionGoal::quarter(&history, 1, 100);
            let seen = match plan(&history, &goal, 2000, has_summariser) {
                CompactionPlan::Nothing => "nothing",
                CompactionPlan::Apply(compacted) => {
                    assert!(compacted.tokens_after < compacted.tokens_before, "row {at}");
                    "apply"
                }
                CompactionPlan::Summarise(_, gone) => {
                    assert!((1..history.len()).contains(&gone), "row {at}: {gone}");
                    "summarise"
                }
            };
            assert_eq!(seen, expected, "row {at}");
        }
    }

    #[test]
    fn failed_summary_is_a_warning_and_the_rules_decide() {
        let history = long();
        let goal = CompactionGoal::quarter(&history, 1, 100);
        let model = || Some("small".to_owned());
        let written = summarise(&history, goal.clone(), Ok("It was long.".to_owned()), model());
        assert_eq!((written.by, written.warning), (model(), None));
        let failed = summarise(&history, goal.clone(), Err("no".to_owned()), model());
        assert_eq!((failed.by, failed.warning), (None, Some(without_summary("no"))));
        assert_eq!(failed.compacted, compact(&history, &goal));
        let said =
            |compacted: Option<CompactedHistory>| format!("{:?}", compacted.unwrap().history);
        assert!(said(written.compacted).contains("It was long."));
        assert!(!said(failed.compacted).contains("It was long."));
    }

    #[test]
    fn requested_compaction_goes_beyond_the_turns_that_usually_stay() {
        let call = |nth: usize, bytes: usize| {
            let (id, name) = (CallId::new(format!("c{nth}")), "read_file".to_owned());
            let arguments = "{}".to_owned();
            let call =
                ToolCall { id: id.clone(), provider_id: None, name: name.clone(), arguments };
            let said = AssistantMessage { tool_calls: vec![call], ..AssistantMessage::default() };
            let content = vec![ContentPart::text("word ".repeat(bytes / 5))];
            let result = Message::Tool { tool_call_id: id, name, content, is_error: false };
            [Arc::new(Message::Assistant(said)), Arc::new(result)]
        };
        let history = |sizes: &[usize]| {
            let calls = sizes.iter().enumerate().flat_map(|(nth, bytes)| call(nth, *bytes));
            std::iter::once(user("Go.")).chain(calls).collect::<Vec<_>>()
        };
        // Sizes of the outputs, the most tokens that are left, and the turns that stay.
        let table = [
            // The latest turns are small: they stay.
            (vec![60_000, 60_000, 200, 200], 2000, 2),
            // They are most of the history.
            (vec![200, 60_000, 400], 2000, 1),
            (vec![200, 400, 60_000], 2000, 1),
        ];
        for (row, (sizes, left, stays)) in table.into_iter().enumerate() {
            let history = history(&sizes);
            let goal = CompactionGoal::quarter(&history, 2, 100);
            let (goal, compacted) = compacted_to(&history, &goal, 2000).unwrap();
            assert!(compacted.tokens_after <= left, "row {row}: {}", compacted.tokens_after);
            assert_eq!(goal.turns_kept, stays, "row {row}");
        }
    }
}
