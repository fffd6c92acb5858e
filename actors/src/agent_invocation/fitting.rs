//! Before a request: whether the history fits, and what is done if it does not. After one that was
//! refused for its size: once smaller, once again, and then the run ends and says why.
//!
//! What is made smaller is a record first and a view from then on. Asking a model for the summary
//! may fail or take long; then the rules alone decide.

use std::sync::Arc;

use ractor::{ActorProcessingErr, ActorRef};
use tokio::task::JoinError;

use crate::agent_invocation::agent_loop::Input;
use crate::agent_invocation::walking::{Contacts, Inquiry};
use crate::agent_invocation::{AgentInvocation, Ending, Msg, State};
use crate::compaction::{Compacted, Goal, compact, history_text, size_of, summary_instruction};
use crate::context::{ContextBudget, ContextSettings, Meter, Reading, bytes_in};
use crate::conversation::{ContentPart, InvocationId, Message};
use crate::event::{Event, Origin};
use crate::ledger::Gauge;
use crate::mailbox::{Beside, beside, panic_text};
use crate::ports::Request;
use crate::provider_client::{self, Draft};
use crate::tool_call::Services;

/// Compacting goes for this part of the threshold, so that it is not needed again at once.
const AIM: u64 = 2;

/// After it, the history grows by this part of the threshold before it is looked at again.
const PAUSE: u64 = 8;

/// What saves less than this part of a request is not worth another one.
const WORTH: u64 = 10;

/// How a request ends that the provider refused for its size.
const CONTEXT_FULL: &str = "provider.context_full";

/// Bytes of a summary by a model.
const SUMMARY_BYTES_MAX: usize = 64 << 10;

/// Requests that one summary may need.
const CHUNKS_MAX: usize = 8;

/// A window that nobody knows, for whoever summarises. Tokens.
const SUMMARISER_WINDOW: u64 = 32_000;

/// What an invocation may read, and who helps where that is too much.
#[derive(Clone)]
pub(crate) struct Fitter {
    pub(crate) budget: ContextBudget,
    pub(crate) settings: ContextSettings,
    pub(crate) meter: Meter,
    /// Who summarises, if a model does.
    pub(crate) summariser: Option<Contacts>,
}

/// A summary that is being written.
pub(super) struct Fitting {
    goal: Goal,
    cause: &'static str,
    /// Under whose name the model is asked.
    id: InvocationId,
    _work: Beside,
}

/// What is recorded of a history that became smaller.
pub(crate) fn compacted_event(
    compacted: Compacted,
    (tokens_before, tokens_after): (u64, u64),
    cause: &str,
    summarised_by: Option<String>,
) -> Event {
    let Compacted { history, bytes_before, bytes_after, turns_removed, outputs_removed, .. } =
        compacted;
    Event::ContextCompacted {
        bytes_before,
        bytes_after,
        turns_removed,
        outputs_removed,
        tokens_before: Some(tokens_before),
        tokens_after: Some(tokens_after),
        cause: Some(cause.to_owned()),
        summarised_by,
        history,
    }
}

impl AgentInvocation {
    /// Makes the history smaller if the next request would be too large. `false` says that a model
    /// is summarising first.
    pub(super) fn fit(&self, me: &ActorRef<Msg>, state: &mut State) -> bool {
        let reading = self.reading(state);
        let Fitter { budget, meter, .. } = &self.fitter;
        let grown = |floor| reading.total >= floor + reading.threshold / PAUSE;
        let is_due = reading.total > reading.threshold && reading.floor.is_none_or(grown);
        if !budget.compacts || !is_due {
            return true;
        }
        let history = spoken(state.agent_loop.history());
        let Some((goal, compacted)) = smaller(history, &reading, budget) else {
            // It is as small as it gets; it is not looked at again at each turn.
            meter.settled();
            return true;
        };
        match &self.fitter.summariser {
            Some(summariser) if compacted.messages_removed > 0 => {
                let gone = history[..compacted.messages_removed].to_vec();
                state.fitting = Some(self.summarise(me, summariser, gone, goal, "threshold"));
                false
            }
            _ => {
                self.apply(compacted, &reading, "threshold", None, state);
                true
            }
        }
    }

    fn reading(&self, state: &State) -> Reading {
        let Fitter { budget, settings, meter, .. } = &self.fitter;
        let info = self.contacts.info();
        meter.read(state.agent_loop.history(), &self.tools, budget, settings, info.as_ref())
    }

    /// Records it first; from then on models see it.
    fn apply(
        &self,
        compacted: Compacted,
        before: &Reading,
        cause: &str,
        summarised_by: Option<String>,
        state: &mut State,
    ) {
        let history = state.agent_loop.history();
        let told = history.len() - spoken(history).len();
        let mut smaller = history[..told].to_vec();
        smaller.extend(compacted.history.iter().cloned());
        self.fitter.meter.compacted(&smaller);
        state.agent_loop.replace_history(smaller);
        self.services.tools.iter().for_each(|tool| tool.history_shortened());
        let tokens = (before.total, self.reading(state).total);
        let event = compacted_event(compacted, tokens, cause, summarised_by);
        self.services.transcript.note(Some(&self.origin), event);
    }

    /// The provider would not take a request of this size. One that is clearly smaller is worth
    /// another try, once; `None` says that it is on its way.
    pub(super) fn refused(
        &self,
        me: &ActorRef<Msg>,
        ending: Ending,
        state: &mut State,
    ) -> Option<Input> {
        let reading = self.reading(state);
        let tried = state.overflows > 0;
        state.overflows += 1;
        self.fitter.meter.refused();
        let history = spoken(state.agent_loop.history());
        let budget = &self.fitter.budget;
        let smaller = (!tried && budget.compacts).then(|| squeezed(history, &reading, budget));
        match smaller.flatten() {
            Some(compacted) => {
                self.apply(compacted, &reading, "overflow", None, state);
                self.clear_way(me, state);
                None
            }
            None => {
                // The next prompt is another beginning.
                state.overflows = 0;
                Some(Input::Unanswered(too_large(ending, &reading, tried)))
            }
        }
    }

    fn summarise(
        &self,
        me: &ActorRef<Msg>,
        summariser: &Contacts,
        gone: Vec<Arc<Message>>,
        goal: Goal,
        cause: &'static str,
    ) -> Fitting {
        let window = summariser.info().and_then(|info| self.fitter.settings.window(&info));
        let asked = Summary {
            contacts: summariser.clone(),
            services: Arc::clone(&self.services),
            origin: Arc::new(Origin {
                invocation_id: self.services.ids.invocation(),
                parent_invocation_id: Some(self.origin.invocation_id.clone()),
                agent: "compact".to_owned(),
                agent_path: format!("{}/compact", self.origin.agent_path),
            }),
            tokens_max: goal.summary_tokens,
            // A quarter is for its own words and for what the estimate is off by.
            chunk_bytes: bytes_in(window.unwrap_or(SUMMARISER_WINDOW) / 2),
            keep: goal.keep.clone(),
        };
        let id = asked.origin.invocation_id.clone();
        let work = beside(me, asked.of(gone), Msg::Summarised);
        Fitting { goal, cause, id, _work: work }
    }

    /// Goes on with the summary, or without one.
    pub(super) fn summarised(
        &self,
        me: &ActorRef<Msg>,
        summary: Result<Result<String, String>, JoinError>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        // A run that was stopped does not go on.
        let Some(Fitting { mut goal, cause, .. }) = state.fitting.take() else { return Ok(()) };
        let by = self.fitter.summariser.as_ref().and_then(Contacts::info).map(|info| info.model);
        match summary.map_err(panic_text)? {
            Ok(text) => goal.summary = Some(text),
            Err(why) => {
                let message = format!(
                    "the model for summaries gave none ({why}); the history was made smaller \
                     without it"
                );
                self.services.transcript.note(Some(&self.origin), Event::Warning { message });
            }
        }
        let reading = self.reading(state);
        let history = spoken(state.agent_loop.history());
        let by = by.filter(|_| goal.summary.is_some());
        if let Some(compacted) = compact(history, &goal) {
            self.apply(compacted, &reading, cause, by, state);
        } else {
            self.fitter.meter.settled();
        }
        self.ask_model(me, state);
        Ok(())
    }

    /// Stops whoever writes a summary.
    pub(super) fn give_up_fitting(&self, state: &mut State) {
        if let Some(Fitting { id, .. }) = state.fitting.take()
            && let Some(summariser) = &self.fitter.summariser
        {
            summariser.tell(|| provider_client::Msg::Cancel(id.clone()));
        }
    }
}

/// One summary, asked of a model in as many pieces as it takes.
struct Summary {
    contacts: Contacts,
    services: Arc<Services>,
    origin: Arc<Origin>,
    tokens_max: u64,
    chunk_bytes: usize,
    keep: Option<String>,
}

impl Summary {
    /// Each piece is read with the summary of those before it.
    async fn of(self, gone: Vec<Arc<Message>>) -> Result<String, String> {
        let chunks = history_text(&gone, self.chunk_bytes);
        let left_out = chunks.len().saturating_sub(CHUNKS_MAX);
        let mut summary = String::new();
        for (turn, chunk) in (1..).zip(&chunks[left_out..]) {
            let earlier = match summary.is_empty() {
                true => String::new(),
                false => format!("The summary of what came before:\n{summary}\n\n"),
            };
            let text = format!("{earlier}The part to summarise:\n{chunk}");
            summary = self.ask(turn, text).await?;
        }
        Ok(summary)
    }

    async fn ask(&self, turn: u32, text: String) -> Result<String, String> {
        let content = summary_instruction(self.keep.as_deref());
        let request = Request {
            messages: vec![
                Arc::new(Message::System { content }),
                Arc::new(Message::User { content: vec![ContentPart::text(text)] }),
            ],
            tools: Arc::new([]),
            stream: false,
            tokens_max: Some(self.tokens_max),
            temperature: None,
            thinking: None,
        };
        let inquiry = Inquiry {
            services: Arc::clone(&self.services),
            origin: Arc::clone(&self.origin),
            request,
            turn,
            draft: Draft::default(),
            gauge: Gauge::default(),
        };
        match self.contacts.clone().ask_once(inquiry).await {
            Err(ending) => Err(cause_of(&ending)),
            Ok(answered) => {
                let said = answered.completion.message.content.clone().unwrap_or_default();
                answered.receipt.file();
                let said = said.trim();
                if said.is_empty() {
                    return Err("it said nothing".to_owned());
                }
                Ok(said[..said.floor_char_boundary(SUMMARY_BYTES_MAX)].to_owned())
            }
        }
    }
}

/// What was said: a history without what the agent is told.
fn spoken(history: &[Arc<Message>]) -> &[Arc<Message>] {
    let told = history.iter().take_while(|message| matches!(***message, Message::System { .. }));
    &history[told.count()..]
}

fn goal(reading: &Reading, budget: &ContextBudget, tokens: u64, turns_kept: usize) -> Goal {
    Goal {
        tokens_max: reading.guessed(tokens.saturating_sub(reading.fixed)),
        turns_kept,
        summary_tokens: budget.summary_tokens,
        keep: None,
        summary: None,
        clip_latest: None,
    }
}

/// `history` made small enough, if that is possible; else as small as it gets, if that is worth it.
fn smaller(
    history: &[Arc<Message>],
    reading: &Reading,
    budget: &ContextBudget,
) -> Option<(Goal, Compacted)> {
    let limit = reading.guessed(reading.threshold.saturating_sub(reading.fixed));
    let mut best = None;
    for turns in [budget.recent_turns, budget.recent_turns_min] {
        let goal = goal(reading, budget, reading.threshold / AIM, turns);
        let Some(compacted) = compact(history, &goal) else { continue };
        if compacted.tokens_after <= limit {
            return Some((goal, compacted));
        }
        best = Some((goal, compacted));
    }
    let worth = size_of(history) / WORTH;
    best.filter(|(_, one)| one.tokens_before - one.tokens_after >= worth)
}

/// `history` made clearly smaller than what was refused. Outputs of the latest turns stay as long
/// as it is possible.
fn squeezed(
    history: &[Arc<Message>],
    reading: &Reading,
    budget: &ContextBudget,
) -> Option<Compacted> {
    let tokens = (reading.total / AIM).min(reading.threshold / AIM);
    let usual = goal(reading, budget, tokens, budget.recent_turns_min);
    let clipped = Goal { clip_latest: Some(budget.inline_result_tokens), ..usual.clone() };
    let worth = (size_of(history) / WORTH).max(1);
    let enough = |one: &Compacted| one.tokens_after <= usual.tokens_max;
    let is_worth = |one: &Compacted| one.tokens_before - one.tokens_after >= worth;
    let first = compact(history, &usual);
    if first.as_ref().is_some_and(enough) {
        return first;
    }
    compact(history, &clipped).or(first).filter(is_worth)
}

/// Whether a run ended because the provider would not take a request of that size.
pub(super) fn is_too_large(ending: &Ending) -> bool {
    matches!(ending, Ending::Failed { class, .. } if class == CONTEXT_FULL)
}

/// The same in the figures that help.
fn too_large(ending: Ending, reading: &Reading, tried: bool) -> Ending {
    let Ending::Failed { class, cause } = ending else { return ending };
    let window = match reading.window {
        Some(window) => format!(" into a window of {window}"),
        None => String::new(),
    };
    let tried = match tried {
        true => "it was made smaller once, and is still too large",
        false => "there is nothing in it that could be left out",
    };
    let cause = format!(
        "about {} tokens do not fit{window}, {} of them instructions and tools; {tried}: {cause}",
        reading.total, reading.fixed
    );
    Ending::Failed { class, cause }
}

fn cause_of(ending: &Ending) -> String {
    match ending {
        Ending::Failed { cause, .. } | Ending::Parked { cause, .. } => cause.clone(),
        Ending::OverBudget(_) => "the budget is used up".to_owned(),
        Ending::Limited { limit, .. } => format!("the limit {limit} was reached"),
        Ending::Answered(_) | Ending::Interrupted => "it was stopped".to_owned(),
    }
}
