//! Automatic compaction: checks before each request that the history fits into the context budget,
//! and compacts it otherwise. If the provider rejects a request for its size, the history is
//! compacted and the request sent once more; if that fails too, the run ends.
//!
//! A compaction is recorded, and models see the new history from then on. If a model cannot write
//! the summary, the rules alone make it.

use std::sync::Arc;

use ractor::ActorProcessingErr;
use tokio::task::JoinError;

use crate::agent_invocation::agent_loop::LoopInput;
use crate::agent_invocation::auxiliary_request::AuxiliaryRequest;
use crate::agent_invocation::failover::ModelRoutes;
use crate::agent_invocation::{Msg, State};
use crate::compaction::{
    CompactedHistory, CompactionGoal, FileTools, bytes_of, compact, history_text,
    messages_since_reply, size_of, summary_instruction,
};
use crate::context::{
    ContextBudget, ContextMeter, ContextReading, ContextSettings, WindowSource, assumed_window,
    bytes_in,
};
use crate::conversation::{InvocationId, Message};
use crate::delegation::{LedgeredHistory, with_ledger};
use crate::event::{CompactionCause, Event, Origin};
use crate::mailbox::{OwnedTask, panic_text, spawn_task};
use crate::outcome::Ending;
use crate::ports::ProviderInfo;
use crate::provider_client;
use crate::tool_call::Services;

/// Divisor for the target size of a compaction: it aims at half of the space that the threshold
/// leaves to the conversation, so that it is not repeated soon.
const AIM: u64 = 2;

/// Divisor for the minimum saving of a compaction: a saving below a tenth of the history is not
/// worth a request.
const WORTH: u64 = 10;

/// Divisor for the minimum saving that justifies the removal of the latest turns: a third of the
/// history.
const SACRIFICE: u64 = 3;

/// Failure class of a run whose request the provider rejected for its size.
pub(super) const CONTEXT_FULL: &str = "provider.context_full";

/// Maximum number of model requests for one summary.
const CHUNKS_MAX: usize = 8;

/// Assumed context window of a summary model if it is unknown, in tokens.
const SUMMARISER_WINDOW: u64 = 32_000;

/// Context budget of an invocation, its token estimate, and the summary model.
#[derive(Clone)]
pub(crate) struct ContextFitter {
    pub(crate) budget: ContextBudget,
    pub(crate) settings: ContextSettings,
    pub(crate) meter: ContextMeter,
    /// Route to the model that writes summaries; `None`: the rules make them.
    pub(crate) summariser: Option<ModelRoutes>,
}

/// A compaction that waits for its summary from a model.
pub(super) struct PendingSummary {
    goal: CompactionGoal,
    cause: CompactionCause,
    /// Invocation id under which the summary is requested.
    id: InvocationId,
    _work: OwnedTask,
}

/// Event that records a compaction. The token counts are those of a request before and after.
pub(crate) fn compacted_event(
    compacted: CompactedHistory,
    (tokens_before, tokens_after): (u64, u64),
    cause: CompactionCause,
    summarised_by: Option<String>,
) -> Event {
    let CompactedHistory { history, bytes_before, bytes_after, turns_removed, .. } = compacted;
    let CompactedHistory { outputs_removed, prompts_removed, .. } = compacted;
    Event::ContextCompacted {
        bytes_before,
        bytes_after,
        turns_removed,
        outputs_removed,
        prompts_removed,
        tokens_before: Some(tokens_before),
        tokens_after: Some(tokens_after),
        cause: Some(cause),
        summarised_by,
        history,
    }
}

/// Warning that instructions and tools leave little space for the conversation, with advice.
fn low_context_warning(reading: &ContextReading, whose: &str) -> String {
    format!(
        "instructions and tools take {} of the {} tokens beyond which the conversation is made \
         shorter, so it has little room; raise context.{whose}.maxContextTokens, or take a model \
         with a larger context",
        reading.fixed, reading.threshold
    )
}

impl State {
    /// Compacts the history if the next request would exceed the threshold. Returns true if the
    /// request can be sent now; false if a model writes the summary first.
    pub(super) fn fit(&mut self) -> bool {
        if self.begins_prompt() {
            self.keep_ledger(true);
        }
        let mut reading = self.reading();
        if let Some(message) = self.window_notice(&reading) {
            self.note(Event::Warning { message });
        }
        let budget = &self.fitter.budget;
        if !budget.compacts || !reading.is_due() {
            return true;
        }
        if self.keep_ledger(false) {
            reading = self.reading();
            if !reading.is_due() {
                return true;
            }
        }
        let ContextFitter { budget, meter, .. } = &self.fitter;
        if reading.is_cramped() && meter.take_first_report() {
            let whose =
                if self.origin.parent_invocation_id.is_some() { "subAgent" } else { "main" };
            let message = low_context_warning(&reading, whose);
            self.note(Event::Warning { message });
        }
        let history = conversation(self.agent_loop.history());
        let Some((goal, compacted)) = shrink(history, &reading, budget, &self.retained()) else {
            // It is as small as it gets; it is not looked at again at each turn.
            meter.mark_incompressible();
            return true;
        };
        match &self.fitter.summariser {
            Some(summariser) if compacted.messages_removed > 0 => {
                let gone = history[..compacted.messages_removed].to_vec();
                self.fitting =
                    Some(self.summarise(summariser, gone, goal, CompactionCause::Threshold));
                false
            }
            _ => {
                self.apply(compacted, &reading, CompactionCause::Threshold, None);
                true
            }
        }
    }

    /// True before the first request for a prompt.
    fn begins_prompt(&self) -> bool {
        self.agent_loop.turns() == 0 && self.prompt.is_some()
    }

    /// Replaces older results of subagents by a ledger and records the new history. `worthwhile`: only
    /// if this saves at least half of the ledger's size, because the provider then processes the
    /// history again from the first replaced result on. Returns true if something was replaced.
    fn keep_ledger(&mut self, worthwhile: bool) -> bool {
        let ContextFitter { budget, meter, .. } = &self.fitter;
        let Some(ledger) = budget.ledger.filter(|_| budget.compacts) else { return false };
        let history = self.agent_loop.history();
        let Some(LedgeredHistory { history: smaller, changed, saved }) =
            with_ledger(history, ledger)
        else {
            return false;
        };
        if worthwhile && saved < ledger.tokens / 2 {
            return false;
        }
        let (before, bytes_before) = (self.reading(), bytes_of(conversation(history)));
        meter.replaced(&smaller);
        self.agent_loop.replace_history(smaller);
        let kept = conversation(self.agent_loop.history()).to_vec();
        self.note(Event::ContextCompacted {
            bytes_before,
            bytes_after: bytes_of(&kept),
            turns_removed: 0,
            outputs_removed: changed,
            prompts_removed: 0,
            tokens_before: Some(before.total),
            tokens_after: Some(self.reading().total),
            cause: Some(CompactionCause::Delegates),
            summarised_by: None,
            history: kept,
        });
        true
    }

    /// Warning that the context window is assumed or was reported by the server, with the setting
    /// that changes it. `Some` once, when a request of the main agent reaches half of the size at
    /// which it is compacted.
    fn window_notice(&self, reading: &ContextReading) -> Option<String> {
        let ContextFitter { budget, meter, settings, .. } = &self.fitter;
        let info = self.model_routes.info()?;
        let ProviderInfo { model, profile, .. } = &info;
        let is_main = self.origin.parent_invocation_id.is_none();
        if !is_main || budget.tokens_max.is_some() || reading.total <= reading.threshold / 2 {
            return None;
        }
        let text = match (reading.window, settings.window_source(&info)) {
            (Some(window), WindowSource::Server) => format!(
                "the server reports a context window of {window} tokens for {model}: set \
                 providers.{profile}.contextWindow if that is wrong"
            ),
            (None, WindowSource::Settings | WindowSource::Server) => format!(
                "the context window of {model} is unknown; {} tokens are assumed: set \
                 providers.{profile}.contextWindow to the right number",
                assumed_window(&info)
            ),
            (Some(_), WindowSource::Settings) | (_, WindowSource::Asking) => return None,
        };
        meter.take_window_report().then_some(text)
    }

    /// Content that compactions of this invocation keep: the list of its background work, its task
    /// list and, for a subagent, its task. Also the number of messages that they may shorten.
    fn retained(&self) -> RetainedContent {
        let keeps_task = self.origin.parent_invocation_id.is_some();
        let unanswered = unanswered_before(self.agent_loop.history(), self.prompt.as_ref());
        RetainedContent {
            beside: self.services.background_work(&self.origin),
            todos: self.services.todos.lines(&self.origin),
            keeps_task,
            unanswered,
            files: FileTools::of(&self.tools),
        }
    }

    fn reading(&self) -> ContextReading {
        let ContextFitter { budget, settings, meter, .. } = &self.fitter;
        let info = self.model_routes.info();
        meter.read(self.agent_loop.history(), &self.tools, budget, settings, info.as_ref())
    }

    /// Makes the compacted history the current one and records it.
    fn apply(
        &mut self,
        compacted: CompactedHistory,
        before: &ContextReading,
        cause: CompactionCause,
        summarised_by: Option<String>,
    ) {
        let history = self.agent_loop.history();
        let told = history.len() - conversation(history).len();
        let mut smaller = history[..told].to_vec();
        smaller.extend(compacted.history.iter().cloned());
        self.fitter.meter.compacted(&smaller);
        self.agent_loop.replace_history(smaller);
        self.services.tools.iter().for_each(|tool| tool.history_shortened());
        let tokens = (before.total, self.reading().total);
        self.note(compacted_event(compacted, tokens, cause.clone(), summarised_by));
        if self.origin.parent_invocation_id.is_some() {
            let (tokens_before, tokens_after) = tokens;
            self.note(Event::SubagentCompacted { tokens_before, tokens_after, cause });
        }
    }

    /// Event that describes the context of the request for the reply number `turn`.
    pub(super) fn compiled_event(&self, turn: u32) -> Event {
        let ContextReading { total, fixed, threshold, window, .. } = self.reading();
        Event::ContextCompiled {
            turn,
            messages: self.agent_loop.history().len(),
            tokens: total,
            fixed_tokens: fixed,
            compacts_at: threshold,
            window,
        }
    }

    /// Handles a request that the provider rejected for its size: compacts the history and sends
    /// the request once more, if this was not tried before and saves enough. Returns `None` then;
    /// otherwise the input that ends the run.
    pub(super) fn refused(&mut self, ending: Ending) -> Option<LoopInput> {
        let reading = self.reading();
        let tried = self.overflows > 0;
        self.overflows += 1;
        self.fitter.meter.refused();
        let history = conversation(self.agent_loop.history());
        let budget = &self.fitter.budget;
        let stays = || self.retained();
        let smaller =
            (!tried && budget.compacts).then(|| fit_rejected(history, &reading, budget, stays()));
        let Some(compacted) = smaller.flatten() else {
            let why = if !self.fitter.budget.compacts {
                "nothing was left out, because `compression` is \"none\""
            } else if tried {
                "it was made smaller once, and is still too large"
            } else {
                "there is nothing in it that could be left out"
            };
            // The next prompt is another beginning.
            self.overflows = 0;
            return Some(LoopInput::Unanswered(too_large(ending, &reading, why)));
        };
        self.apply(compacted, &reading, CompactionCause::Overflow, None);
        self.clear_way();
        None
    }

    fn summarise(
        &self,
        summariser: &ModelRoutes,
        gone: Vec<Arc<Message>>,
        goal: CompactionGoal,
        cause: CompactionCause,
    ) -> PendingSummary {
        let asked =
            Summary::new(&self.services, summariser, &self.fitter.settings, &self.origin, &goal);
        let id = asked.id();
        let work = spawn_task(&self.me, asked.of(gone), Msg::Summarised);
        PendingSummary { goal, cause, id, _work: work }
    }

    /// Compacts with the summary, or without it if the model failed, and sends the request that
    /// waited.
    pub(super) fn summarised(
        &mut self,
        summary: Result<Result<String, String>, JoinError>,
    ) -> Result<(), ActorProcessingErr> {
        // A stopped run ignores the summary.
        let Some(PendingSummary { mut goal, cause, .. }) = self.fitting.take() else {
            return Ok(());
        };
        let by = self.fitter.summariser.as_ref().and_then(ModelRoutes::info).map(|info| info.model);
        match summary.map_err(panic_text)? {
            Ok(text) => goal.summary = Some(text),
            Err(why) => {
                let message = without_summary(&why);
                self.note(Event::Warning { message });
            }
        }
        let reading = self.reading();
        let history = conversation(self.agent_loop.history());
        let by = by.filter(|_| goal.summary.is_some());
        if let Some(compacted) = compact(history, &goal) {
            self.apply(compacted, &reading, cause, by);
        } else {
            self.fitter.meter.mark_incompressible();
        }
        self.ask_model();
        Ok(())
    }

    /// Cancels the request for a summary, if there is one.
    pub(super) fn cancel_fitting(&mut self) {
        if let Some(PendingSummary { id, .. }) = self.fitting.take()
            && let Some(summariser) = &self.fitter.summariser
        {
            summariser.send_to_all(|| provider_client::Msg::Cancel(id.clone()));
        }
    }
}

/// Warning that the model wrote no summary, with the reason.
pub(crate) fn without_summary(why: &str) -> String {
    format!("the model for summaries gave none ({why}); the history was made smaller without it")
}

/// Request for a summary, in several chunks if the messages are long.
pub(crate) struct Summary {
    aside: AuxiliaryRequest,
    chunk_bytes: usize,
    keep: Option<String>,
}

impl Summary {
    /// Creates a request for the compaction `goal`, on behalf of the agent `above`.
    pub(crate) fn new(
        services: &Arc<Services>,
        summariser: &ModelRoutes,
        settings: &ContextSettings,
        above: &Origin,
        goal: &CompactionGoal,
    ) -> Summary {
        let window = summariser.info().and_then(|info| settings.window(&info));
        let bounds = (goal.summary_tokens, settings.compact_thinking);
        Summary {
            aside: AuxiliaryRequest::new(services, summariser, above, "compact", bounds),
            // Half of the window is left for the prompt, the earlier summary, the reply, and
            // estimation errors.
            chunk_bytes: bytes_in(window.unwrap_or(SUMMARISER_WINDOW) / 2),
            keep: goal.keep.clone(),
        }
    }

    /// Invocation id under which the summary is requested.
    pub(crate) fn id(&self) -> InvocationId {
        self.aside.id()
    }

    /// Requests a summary of the messages `gone`: one request per chunk, each with the summary of
    /// the previous chunks. If there are too many chunks, only the last ones are used. `Err`: the
    /// reason.
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

/// `history` without the system messages at its beginning.
fn conversation(history: &[Arc<Message>]) -> &[Arc<Message>] {
    let told = history.iter().take_while(|message| matches!(***message, Message::System { .. }));
    &history[told.count()..]
}

/// Number of user messages after the last reply and before `prompt`: prompts of earlier runs that
/// were never answered. 0 if `prompt` is `None` or precedes the last reply.
fn unanswered_before(history: &[Arc<Message>], prompt: Option<&Arc<Message>>) -> usize {
    let said = messages_since_reply(history);
    let waiting = &history[history.len() - said..];
    let is_it = |one: &Arc<Message>| prompt.is_some_and(|prompt| Arc::ptr_eq(one, prompt));
    waiting.iter().position(is_it).unwrap_or_default()
}

/// Content that a compaction keeps (`beside`: list of background work; `todos`: task list; `keeps_task`:
/// true to keep a subagent's task), and number of messages that it may shorten.
#[derive(Debug, Clone, Default)]
struct RetainedContent {
    beside: Vec<String>,
    todos: Vec<String>,
    keeps_task: bool,
    /// Number of unanswered user messages of earlier runs, which may be shortened.
    unanswered: usize,
    files: FileTools,
}

fn goal(
    budget: &ContextBudget,
    tokens_max: u64,
    turns_kept: usize,
    stays: RetainedContent,
) -> CompactionGoal {
    let RetainedContent { beside, todos, keeps_task, files, .. } = stays;
    let summary_tokens = budget.summary_tokens;
    CompactionGoal {
        tokens_max,
        turns_kept,
        summary_tokens,
        beside,
        todos,
        files,
        keeps_task,
        ..CompactionGoal::default()
    }
}

/// Compacts `history` to the target size, keeping as many of the latest turns as this allows. If
/// the target cannot be reached, returns the smallest result if it is below the threshold or saves
/// a tenth; otherwise `None`. If the provider has rejected a request and the result exceeds the
/// threshold, unanswered prompts of earlier runs are shortened as well. If the result does not fit
/// into a known context window, fewer turns stay than `recent_turns_min`.
fn shrink(
    history: &[Arc<Message>],
    reading: &ContextReading,
    budget: &ContextBudget,
    stays: &RetainedContent,
) -> Option<(CompactionGoal, CompactedHistory)> {
    let room = reading.threshold.saturating_sub(reading.fixed);
    let (limit, aim) = (reading.guessed(room), reading.guessed(room / AIM));
    let mut best: Option<(CompactionGoal, CompactedHistory)> = None;
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
    // A request that was rejected is not sent again unchanged.
    let fits = best.as_ref().is_some_and(|(_, best)| best.tokens_after <= limit);
    if !fits && stays.unanswered > 0 && reading.refused.is_some() {
        let usual = goal(budget, aim, budget.recent_turns_min, stays.clone());
        let without = CompactionGoal { unanswered: stays.unanswered, ..usual };
        best = compact(history, &without).map(|compacted| (without, compacted)).or(best);
    }
    if let Some(bound) = upper_bound(reading, budget) {
        let left = best.as_ref().map_or_else(|| size_of(history), |(_, best)| best.tokens_after);
        if left > bound {
            best = fit_window(history, bound, budget, stays).or(best);
        }
    }
    let worth = size_of(history) / WORTH;
    let is_worth = |one: &CompactedHistory| {
        one.tokens_after <= limit || one.tokens_before - one.tokens_after >= worth
    };
    best.filter(|(_, one)| is_worth(one))
}

/// Maximum size of a history, as an uncalibrated estimate, with which a request fits into the
/// configured budget and the context window; `None` if neither is known.
fn upper_bound(reading: &ContextReading, budget: &ContextBudget) -> Option<u64> {
    let known = reading.window.or(budget.tokens_max)?;
    let tokens_max = budget.tokens_max(reading.window, known);
    Some(reading.guessed(tokens_max.saturating_sub(reading.fixed)))
}

/// Compacts `history` to `bound`, because a larger request does not fit into the budget or the known
/// window: they come before the number of turns that stay. Keeps as many turns as fit, then removes
/// large outputs of the last one. Returns the smallest result if none fits; `None` if nothing can
/// be removed.
fn fit_window(
    history: &[Arc<Message>],
    bound: u64,
    budget: &ContextBudget,
    stays: &RetainedContent,
) -> Option<(CompactionGoal, CompactedHistory)> {
    let usual = |turns| goal(budget, bound, turns, stays.clone());
    let fewer = (1..budget.recent_turns_min).rev().map(usual);
    let clipped = CompactionGoal { clip_latest: Some(budget.inline_result_tokens), ..usual(1) };
    let small = CompactionGoal {
        clip_latest: Some(0),
        summary_tokens: clipped.summary_tokens.min(bound / AIM),
        ..clipped.clone()
    };
    let mut best: Option<(CompactionGoal, CompactedHistory)> = None;
    for goal in fewer.chain([clipped, small]) {
        let Some(compacted) = compact(history, &goal) else { continue };
        if compacted.tokens_after <= bound {
            return Some((goal, compacted));
        }
        if best.as_ref().is_none_or(|(_, best)| compacted.tokens_after < best.tokens_after) {
            best = Some((goal, compacted));
        }
    }
    best
}

/// Compacts `history` after a rejection, if possible to half of the rejected size or of the
/// threshold, whichever is smaller: first by shortening unanswered prompts of earlier runs, then
/// also by removing large outputs of the latest turns, finally by removing these turns. The last
/// message is kept. `None` if the saving is too small.
fn fit_rejected(
    history: &[Arc<Message>],
    reading: &ContextReading,
    budget: &ContextBudget,
    stays: RetainedContent,
) -> Option<CompactedHistory> {
    let bounds = reading.threshold > reading.fixed;
    let total = if bounds { reading.total.min(reading.threshold) } else { reading.total };
    let tokens_max = reading.guessed(total.saturating_sub(reading.fixed) / AIM);
    let unanswered = stays.unanswered;
    let usual = goal(budget, tokens_max, budget.recent_turns_min, stays);
    let without = CompactionGoal { unanswered, ..usual };
    let clipped =
        CompactionGoal { clip_latest: Some(budget.inline_result_tokens), ..without.clone() };
    let summary_tokens = without.summary_tokens.min(tokens_max / AIM);
    let last = CompactionGoal { replies_go: true, summary_tokens, ..clipped.clone() };
    let enough = |one: &CompactedHistory| one.tokens_after <= tokens_max;
    let saves = |one: &CompactedHistory| one.tokens_before - one.tokens_after;
    let mut best: Option<CompactedHistory> = None;
    // An unanswered prompt may be the part that no provider accepts, so it is removed before
    // answered ones.
    for goal in [without, clipped] {
        let Some(compacted) = compact(history, &goal) else { continue };
        if enough(&compacted) {
            return Some(compacted);
        }
        if best.as_ref().is_none_or(|best| compacted.tokens_after < best.tokens_after) {
            best = Some(compacted);
        }
    }
    let last = compact(history, &last);
    if last.as_ref().is_some_and(enough) {
        return last;
    }
    let size = size_of(history);
    best.filter(|one| saves(one) >= (size / WORTH).max(1))
        // The latest turns are not given for a prompt that is most of it.
        .or(last.filter(|one| saves(one) >= size / SACRIFICE))
}

/// True if the ending means that the provider rejected a request for its size.
pub(super) fn is_too_large(ending: &Ending) -> bool {
    matches!(ending, Ending::Failed { class, .. } if class == CONTEXT_FULL)
}

/// The ending with token counts in its cause. `why`: reason why the request is not made smaller.
fn too_large(ending: Ending, reading: &ContextReading, why: &str) -> Ending {
    let Ending::Failed { class, cause } = ending else { return ending };
    let window = match reading.window {
        Some(window) => format!(" into a window of {window}"),
        None => String::new(),
    };
    let cause = format!(
        "about {} tokens do not fit{window}, {} of them instructions and tools; {why}: {cause}",
        reading.total, reading.fixed
    );
    Ending::Failed { class, cause }
}

#[cfg(test)]
mod tests;
