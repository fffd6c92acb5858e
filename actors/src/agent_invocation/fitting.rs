//! Before a request: whether the history fits, and what is done if it does not. After one that was
//! refused for its size: once smaller, once again, and then the run ends and says why.
//!
//! What is made smaller is a record first and a view from then on. Asking a model for the summary
//! may fail or take long; then the rules alone decide.

use std::sync::Arc;

use ractor::{ActorProcessingErr, ActorRef};
use tokio::task::JoinError;

use crate::agent_invocation::agent_loop::Input;
use crate::agent_invocation::aside::Aside;
use crate::agent_invocation::walking::Contacts;
use crate::agent_invocation::{AgentInvocation, Ending, Msg, State};
use crate::compaction::{Compacted, Goal, compact, history_text, size_of, summary_instruction};
use crate::context::{ContextBudget, ContextSettings, Meter, Reading, bytes_in};
use crate::conversation::{InvocationId, Message};
use crate::event::{Event, Origin};
use crate::mailbox::{Beside, beside, panic_text};
use crate::provider_client;
use crate::tool_call::Services;

/// Compacting goes for this part of what the threshold leaves for the history, so that it is not
/// needed again at once.
const AIM: u64 = 2;

/// After it, the history grows by this part of the threshold before it is looked at again.
const PAUSE: u64 = 8;

/// What saves less than this part of a request is not worth another one.
const WORTH: u64 = 10;

/// How a request ends that the provider refused for its size.
const CONTEXT_FULL: &str = "provider.context_full";

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
        let Some((goal, compacted)) = smaller(history, &reading, budget, &self.stays()) else {
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

    /// What stays whatever else goes.
    fn stays(&self) -> Stays {
        let keeps_task = self.origin.parent_invocation_id.is_some();
        Stays { beside: self.services.beside(&self.origin), keeps_task }
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
        let stays = || self.stays();
        let smaller =
            (!tried && budget.compacts).then(|| squeezed(history, &reading, budget, stays()));
        let Some(compacted) = smaller.flatten() else {
            // The next prompt is another beginning.
            state.overflows = 0;
            return Some(Input::Unanswered(too_large(ending, &reading, tried)));
        };
        self.apply(compacted, &reading, "overflow", None, state);
        self.clear_way(me, state);
        None
    }

    fn summarise(
        &self,
        me: &ActorRef<Msg>,
        summariser: &Contacts,
        gone: Vec<Arc<Message>>,
        goal: Goal,
        cause: &'static str,
    ) -> Fitting {
        let asked =
            Summary::new(&self.services, summariser, &self.fitter.settings, &self.origin, &goal);
        let id = asked.id();
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
                let message = without_summary(&why);
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

/// What is said where a model was to write a summary and did not.
pub(crate) fn without_summary(why: &str) -> String {
    format!("the model for summaries gave none ({why}); the history was made smaller without it")
}

/// One summary, asked of a model in as many pieces as it takes.
pub(crate) struct Summary {
    aside: Aside,
    chunk_bytes: usize,
    keep: Option<String>,
}

impl Summary {
    /// One for `goal`, asked on behalf of `above`.
    pub(crate) fn new(
        services: &Arc<Services>,
        summariser: &Contacts,
        settings: &ContextSettings,
        above: &Origin,
        goal: &Goal,
    ) -> Summary {
        let window = summariser.info().and_then(|info| settings.window(&info));
        let bounds = (goal.summary_tokens, settings.compact_thinking);
        Summary {
            aside: Aside::new(services, summariser, above, "compact", bounds),
            // A quarter is for its own words and for what the estimate is off by.
            chunk_bytes: bytes_in(window.unwrap_or(SUMMARISER_WINDOW) / 2),
            keep: goal.keep.clone(),
        }
    }

    /// Under whose name the model is asked.
    pub(crate) fn id(&self) -> InvocationId {
        self.aside.id()
    }

    /// Each piece is read with the summary of those before it.
    pub(crate) async fn of(self, gone: Vec<Arc<Message>>) -> Result<String, String> {
        let chunks = history_text(&gone, self.chunk_bytes);
        let left_out = chunks.len().saturating_sub(CHUNKS_MAX);
        let mut summary = String::new();
        for (turn, chunk) in (1..).zip(&chunks[left_out..]) {
            let earlier = if summary.is_empty() {
                String::new()
            } else {
                format!("The summary of what came before:\n{summary}\n\n")
            };
            let text = format!("{earlier}The part to summarise:\n{chunk}");
            let system = summary_instruction(self.keep.as_deref());
            summary = self.aside.ask(turn, system, text).await?;
        }
        Ok(summary)
    }
}

/// What was said: a history without what the agent is told.
fn spoken(history: &[Arc<Message>]) -> &[Arc<Message>] {
    let told = history.iter().take_while(|message| matches!(***message, Message::System { .. }));
    &history[told.count()..]
}

/// What stays whatever else goes.
#[derive(Debug, Clone, Default)]
struct Stays {
    beside: Vec<String>,
    keeps_task: bool,
}

fn goal(budget: &ContextBudget, tokens_max: u64, turns_kept: usize, stays: Stays) -> Goal {
    let Stays { beside, keeps_task } = stays;
    Goal {
        tokens_max,
        turns_kept,
        summary_tokens: budget.summary_tokens,
        keep: None,
        summary: None,
        clip_latest: None,
        beside,
        keeps_task,
    }
}

/// `history` made clearly smaller than the threshold, with as many of the latest turns as that
/// allows; if it is not possible, as small as it gets, if that is worth it.
fn smaller(
    history: &[Arc<Message>],
    reading: &Reading,
    budget: &ContextBudget,
    stays: &Stays,
) -> Option<(Goal, Compacted)> {
    let room = reading.threshold.saturating_sub(reading.fixed);
    let (limit, aim) = (reading.guessed(room), reading.guessed(room / AIM));
    let mut best: Option<(Goal, Compacted)> = None;
    for turns in (budget.recent_turns_min..=budget.recent_turns.max(budget.recent_turns_min)).rev()
    {
        let goal = goal(budget, aim, turns, stays.clone());
        let Some(compacted) = compact(history, &goal) else { continue };
        if compacted.tokens_after <= aim {
            return Some((goal, compacted));
        }
        if best.as_ref().is_none_or(|(_, best)| compacted.tokens_after < best.tokens_after) {
            best = Some((goal, compacted));
        }
    }
    let worth = size_of(history) / WORTH;
    let is_worth = |one: &Compacted| {
        one.tokens_after <= limit || one.tokens_before - one.tokens_after >= worth
    };
    best.filter(|(_, one)| is_worth(one))
}

/// `history` made clearly smaller than what was refused. Outputs of the latest turns stay as long
/// as it is possible.
fn squeezed(
    history: &[Arc<Message>],
    reading: &Reading,
    budget: &ContextBudget,
    stays: Stays,
) -> Option<Compacted> {
    let tokens = (reading.total / AIM).min(reading.threshold / AIM);
    let tokens_max = reading.guessed(tokens.saturating_sub(reading.fixed));
    let usual = goal(budget, tokens_max, budget.recent_turns_min, stays);
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
    let tried = if tried {
        "it was made smaller once, and is still too large"
    } else {
        "there is nothing in it that could be left out"
    };
    let cause = format!(
        "about {} tokens do not fit{window}, {} of them instructions and tools; {tried}: {cause}",
        reading.total, reading.fixed
    );
    Ending::Failed { class, cause }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conversation::{AssistantMessage, CallId, ContentPart, ToolCall};

    /// One turn: a call whose output has about so many bytes, and perhaps an answer and a prompt.
    fn turn(history: &mut Vec<Arc<Message>>, nth: usize, bytes: usize, prompts: bool) {
        let (id, name) = (CallId::new(format!("c{nth}")), "read_file".to_owned());
        let arguments = format!(r#"{{"path":"f{nth}"}}"#);
        let call = ToolCall { id: id.clone(), provider_id: None, name: name.clone(), arguments };
        let said = AssistantMessage { tool_calls: vec![call], ..AssistantMessage::default() };
        history.push(Arc::new(Message::Assistant(said)));
        let content = vec![ContentPart::text("word ".repeat(bytes / 5))];
        let result = Message::Tool { tool_call_id: id, name, content, is_error: false };
        history.push(Arc::new(result));
        if prompts {
            let content = Some("so ".repeat(40));
            let said = AssistantMessage { content, ..AssistantMessage::default() };
            history.push(Arc::new(Message::Assistant(said)));
            let content = vec![ContentPart::text(format!("and {nth}? {}", "why ".repeat(40)))];
            history.push(Arc::new(Message::User { content }));
        }
    }

    /// Plays turns as an invocation would, and counts how often it made the history smaller, and
    /// how much each time was gone.
    fn play(budget: &ContextBudget, fixed: usize, turns: &[usize], prompts: bool) -> Vec<u64> {
        let (meter, settings) = (Meter::default(), ContextSettings::default());
        let mut history = vec![
            Arc::new(Message::System { content: "x".repeat(fixed) }),
            Arc::new(Message::User { content: vec![ContentPart::text("Go.")] }),
        ];
        let mut freed = Vec::new();
        for (nth, bytes) in turns.iter().enumerate() {
            turn(&mut history, nth, *bytes, prompts);
            let reading = meter.read(&history, &[], budget, &settings, None);
            let grown = |floor| reading.total >= floor + reading.threshold / PAUSE;
            if reading.total <= reading.threshold || !reading.floor.is_none_or(grown) {
                continue;
            }
            let stays = Stays::default();
            let Some((_, compacted)) = smaller(spoken(&history), &reading, budget, &stays) else {
                meter.settled();
                continue;
            };
            freed.push(compacted.tokens_before - compacted.tokens_after);
            history.truncate(1);
            history.extend(compacted.history);
            meter.compacted(&history);
        }
        freed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Each compaction frees at least a fifth of what the threshold leaves for the history, as
        /// long as single turns are small against that: so N turns of a size need no more
        /// compactions than what they add is larger than that.
        #[test]
        fn a_small_budget_is_not_compacted_again_before_real_growth(
            tokens_max in 4_000u64..40_000,
            fixed in 0usize..4,
            share in 8usize..40,
            count in 40usize..160,
            prompts: bool,
        ) {
            let budget = ContextBudget {
                tokens_max: Some(tokens_max),
                summary_tokens: tokens_max / 20,
                ..ContextBudget::main()
            };
            let threshold = usize::try_from(budget.threshold(None)).unwrap();
            // Up to three eighths of the threshold are instructions.
            let fixed = threshold * 4 / 8 * fixed / 4;
            let room = threshold - fixed / 4;
            let bytes = room * 4 / share;
            let freed = play(&budget, fixed, &vec![bytes; count], prompts);
            let least = u64::try_from(room / 5).unwrap();
            prop_assert!(freed.iter().all(|freed| *freed >= least), "{least}: {freed:?}");
            let added = u64::try_from(count * (bytes / 4 + 160)).unwrap();
            prop_assert!(freed.len() as u64 <= added / least + 1, "{freed:?}");
        }
    }

    #[test]
    fn what_is_made_smaller_is_made_clearly_smaller() {
        let budget = ContextBudget { tokens_max: Some(12_000), ..ContextBudget::child() };
        // Six turns of 1,500 tokens are above 8,400; three of them would not be far below.
        let freed = play(&budget, 0, &[6000; 60], false);
        assert!(freed.len() <= 20 && freed.iter().all(|freed| *freed >= 4200), "{freed:?}");
    }
}
