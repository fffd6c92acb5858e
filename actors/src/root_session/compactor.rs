//! Context size of the conversation, and compaction between prompts.

use std::sync::Arc;

use ractor::{ActorRef, RpcReplyPort};
use tokio::task::JoinError;

use crate::agent_invocation::{
    ContextFitter, ModelRoutes, Summary, compacted_event, without_summary,
};
use crate::compaction::{CompactedHistory, CompactionGoal, compact, said_last, size_of};
use crate::context::{ContextMeter, ContextReading};
use crate::conversation::{InvocationId, Message};
use crate::event::{AnnouncedEvent, ContextUse, Event};
use crate::mailbox::{OwnedTask, answer, panic_text, spawn_task};
use crate::provider_client;
use crate::root_session::supervised::clients::Clients;
use crate::root_session::{Msg, PromptError, RootSession, State};

/// Reply channel for the result of a compaction.
pub(super) type CompactReply = RpcReplyPort<Result<Option<CompactedHistory>, PromptError>>;

/// Messages about the size of the context.
pub(super) enum CompactorMsg {
    /// Compact, with the user's words about text to keep.
    Compact(Option<String>, CompactReply),
    /// Result of the summary request.
    Summarised(Result<Result<String, String>, JoinError>),
    /// Composition of the context, for the caller or for every observer.
    Context(Option<RpcReplyPort<ContextUse>>),
}

impl CompactorMsg {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            CompactorMsg::Compact(..) => "Compact",
            CompactorMsg::Summarised(_) => "Summarised",
            CompactorMsg::Context(_) => "Context",
        }
    }
}

/// A summary being written between prompts.
struct PendingCompaction {
    goal: CompactionGoal,
    reply: CompactReply,
    /// Invocation id of the model request.
    id: InvocationId,
    _work: OwnedTask,
}

/// Context size and compaction of the conversation.
pub(super) struct Compactor {
    /// Route to the summary model, if configured.
    summariser: Option<ModelRoutes>,
    /// A compaction in progress.
    pending: Option<PendingCompaction>,
    /// Token state of the history.
    meter: ContextMeter,
}

impl Compactor {
    pub(super) fn new(summariser: Option<ModelRoutes>) -> Compactor {
        Compactor { summariser, pending: None, meter: ContextMeter::default() }
    }

    /// True while a model writes a summary.
    pub(super) fn is_busy(&self) -> bool {
        self.pending.is_some()
    }
}

impl RootSession {
    pub(super) fn handle_compactor(
        &self,
        me: &ActorRef<Msg>,
        msg: CompactorMsg,
        state: &mut State,
    ) {
        match msg {
            CompactorMsg::Compact(keep, reply) => self.compact(me, keep, reply, state),
            CompactorMsg::Summarised(summary) => self.summarised(summary, state),
            CompactorMsg::Context(Some(reply)) => answer(reply, self.context(state)),
            CompactorMsg::Context(None) => self.announce_context(state),
        }
    }

    /// Context limits of the main agent.
    pub(super) fn fitter(&self, state: &State) -> ContextFitter {
        ContextFitter {
            budget: self.settings.limits.context_main.clone(),
            settings: self.settings.context.clone(),
            meter: state.compactor.meter.clone(),
            summariser: state.compactor.summariser.clone(),
        }
    }

    /// Context limits of a subagent.
    pub(super) fn child_fitter(&self, clients: &Clients) -> ContextFitter {
        ContextFitter {
            budget: self.settings.limits.context_child.clone(),
            settings: self.settings.context.clone(),
            meter: ContextMeter::default(),
            summariser: clients.of_role(self.settings.context.compact.as_ref()),
        }
    }

    /// Compacts the history between prompts. If a model writes the summary, the caller is answered
    /// when it is done.
    pub(super) fn compact(
        &self,
        me: &ActorRef<Msg>,
        keep: Option<String>,
        reply: CompactReply,
        state: &mut State,
    ) {
        if state.end.is_ending() {
            return answer(reply, Err(PromptError::Ended));
        }
        if state.main_run.is_running() || state.compactor.is_busy() {
            return answer(reply, Err(PromptError::Busy));
        }
        let budget = &self.settings.limits.context_main;
        let turns = budget.recent_turns_min;
        let quarter =
            CompactionGoal::quarter(state.main_run.history(), turns, budget.summary_tokens);
        let origin = self.new_origin();
        let goal =
            CompactionGoal { keep, beside: self.services.background_work(&origin), ..quarter };
        let Some((goal, compacted)) = shortened(state.main_run.history(), goal) else {
            return answer(reply, Ok(None));
        };
        let Some(summariser) =
            state.compactor.summariser.as_ref().filter(|_| compacted.messages_removed > 0)
        else {
            let applied = self.apply(compacted, None, state);
            return answer(reply, Ok(Some(applied)));
        };
        let gone = state.main_run.history()[..compacted.messages_removed].to_vec();
        let settings = &self.settings.context;
        let summary = Summary::new(&self.services, summariser, settings, &origin, &goal);
        let id = summary.id();
        let work =
            spawn_task(me, summary.of(gone), |said| Msg::Compactor(CompactorMsg::Summarised(said)));
        state.compactor.pending = Some(PendingCompaction { goal, reply, id, _work: work });
    }

    /// Continues with the summary, or without one.
    pub(super) fn summarised(
        &self,
        summary: Result<Result<String, String>, JoinError>,
        state: &mut State,
    ) {
        // The compaction was cancelled.
        let Some(PendingCompaction { mut goal, reply, .. }) = state.compactor.pending.take() else {
            return;
        };
        let by =
            state.compactor.summariser.as_ref().and_then(ModelRoutes::info).map(|info| info.model);
        match summary.unwrap_or_else(|died| Err(panic_text(died))) {
            Ok(text) => goal.summary = Some(text),
            Err(why) => {
                let message = without_summary(&why);
                self.transcript.note(None, Event::Warning { message });
            }
        }
        let by = by.filter(|_| goal.summary.is_some());
        let compacted = compact(state.main_run.history(), &goal);
        answer(reply, Ok(compacted.map(|compacted| self.apply(compacted, by, state))));
    }

    /// Cancels the summary request; the rules alone decide.
    pub(super) fn give_up_summary(&self, state: &mut State) {
        let Some(PendingCompaction { id, .. }) = &state.compactor.pending else { return };
        let id = id.clone();
        if let Some(summariser) = &state.compactor.summariser {
            summariser.tell(|| provider_client::Msg::Cancel(id.clone()));
        }
        self.summarised(Ok(Err("it was stopped".to_owned())), state);
    }

    /// Records the compaction first; afterwards it is the history.
    fn apply(
        &self,
        compacted: CompactedHistory,
        by: Option<String>,
        state: &mut State,
    ) -> CompactedHistory {
        self.drop_unfinished(state);
        let before = self.reading(state).total;
        state.main_run.set_history(compacted.history.clone());
        state.compactor.meter.compacted(&self.told(state));
        self.ports.tools.iter().for_each(|tool| tool.history_shortened());
        let tokens = (before, self.reading(state).total);
        let event = compacted_event(compacted.clone(), tokens, "request", by);
        self.transcript.note(None, event);
        compacted
    }

    /// Composition of the next request; during a run, of the last one.
    pub(super) fn context(&self, state: &State) -> ContextUse {
        let (budget, settings) = (&self.settings.limits.context_main, &self.settings.context);
        let info = &self.provider_info;
        if !state.main_run.is_running() {
            self.reading(state);
        }
        state.compactor.meter.last(budget, settings, info)
    }

    pub(super) fn announce_context(&self, state: &State) {
        self.feed.publish(AnnouncedEvent::Ephemeral {
            ts: self.ports.clock.wall_ms(),
            session_id: self.settings.session_id.clone(),
            origin: None,
            event: Event::ContextUsed { used: self.context(state) },
        });
    }

    fn reading(&self, state: &State) -> ContextReading {
        let (budget, settings) = (&self.settings.limits.context_main, &self.settings.context);
        let info = Some(&self.provider_info);
        state.compactor.meter.read(&self.told(state), &self.specs, budget, settings, info)
    }

    /// The history with the system message in front.
    fn told(&self, state: &State) -> Vec<Arc<Message>> {
        let system = Message::System { content: self.settings.system_prompt.clone() };
        let mut history = Vec::with_capacity(state.main_run.history().len() + 1);
        history.push(Arc::new(system));
        history.extend(state.main_run.history().iter().cloned());
        history
    }
}

/// Compacts `history` to `goal`. The last user message stays; earlier unanswered ones are removed
/// if they would dominate the rest.
fn shortened(
    history: &[Arc<Message>],
    goal: CompactionGoal,
) -> Option<(CompactionGoal, CompactedHistory)> {
    let usual = compact(history, &goal);
    let left = usual.as_ref().map_or_else(|| size_of(history), |usual| usual.tokens_after);
    let unanswered = said_last(history).saturating_sub(1);
    let without = CompactionGoal { unanswered, ..goal.clone() };
    let shorter = compact(history, &without).filter(|one| one.tokens_after <= left / 2);
    shorter.map(|shorter| (without, shorter)).or(usual.map(|usual| (goal, usual)))
}
