//! Recorded attempts at a reply: the model that was asked, the output that arrived, and the end of
//! the attempt.

use std::collections::VecDeque;

use posse_actors::conversation::{CallId, Prompt, Usage};
use posse_actors::cost::Billing;
use posse_actors::event::{CompactionCause, Event};
use posse_actors::ledger::LOST_REPLY;
use posse_actors::ports::{Abilities, Completion, ProviderError};

use crate::replaying::recording::Message;

/// Largest rank of a given-up model. A rank orders the times at which such models are asked again.
const RANKS: usize = 50;

/// [`FailureReaction::GivenUp`] with a placeholder for `away`, which [`rank`] computes later.
const GIVEN_UP: FailureReaction = FailureReaction::GivenUp { away: 0.0 };

/// Model that the session could use: its own, or a fallback.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedModelRoute {
    pub(crate) profile: String,
    pub(crate) model: String,
    /// Abilities of the model. Only those that it lacks are recorded, as the reason for skipping
    /// it; the others are unknown.
    pub(crate) abilities: Abilities,
}

/// One run of the main agent: its prompt and its attempts.
#[derive(Debug)]
pub(crate) struct RecordedPrompt {
    /// The user's prompt. `None`: the run continued unfinished work.
    pub(crate) prompt: Option<Prompt>,
    pub(crate) attempts: VecDeque<RecordedAttempt>,
}

/// One attempt at a reply.
#[derive(Debug)]
pub(crate) struct RecordedAttempt {
    /// Index of the model that was asked, in `Recording::contacts`.
    pub(crate) who: usize,
    /// Text received before the attempt failed or was interrupted. Empty for a reply.
    pub(crate) text: String,
    /// Usage of an attempt without a reply. `None` for a reply, or if the provider reported none.
    pub(crate) usage: Option<Usage>,
    pub(crate) end: AttemptEnd,
}

/// End of an attempt.
#[derive(Debug)]
pub(crate) enum AttemptEnd {
    Reply {
        completion: Box<Completion>,
        /// Messages of the user that were delivered after this reply, except those sent during a
        /// call.
        messages: Vec<Message>,
        /// True if so much time passed after the reply that a model of higher preference was asked
        /// again.
        rested: bool,
    },
    Failed {
        class: String,
        cause: String,
        then: FailureReaction,
    },
    /// Interrupted by the user.
    Interrupted,
}

/// Reaction of the session to a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FailureReaction {
    /// Retry with the same model after a wait.
    Retried,
    /// The model was not asked again at once, or not at all. `away`: rank in `0.0..1.0`; the
    /// higher, the later it was asked again.
    GivenUp { away: f64 },
    /// The run was parked, because patience was exhausted. `known`: true if the time of the next
    /// retry was known.
    Parked { known: bool },
}

impl RecordedPrompt {
    pub(crate) fn of(prompt: Option<Prompt>) -> RecordedPrompt {
        RecordedPrompt { prompt, attempts: VecDeque::new() }
    }

    /// Adds a message of the user to the last reply. Without a reply, drops the message.
    pub(crate) fn add_user_message(&mut self, message: Message) {
        if let Some(messages) = self.replies().find_map(|end| match end {
            AttemptEnd::Reply { messages, .. } => Some(messages),
            AttemptEnd::Failed { .. } | AttemptEnd::Interrupted => None,
        }) {
            messages.push(message);
        }
    }

    /// Ends of the attempts, the last one first.
    fn replies(&mut self) -> impl Iterator<Item = &mut AttemptEnd> {
        self.attempts.iter_mut().rev().map(|attempt| &mut attempt.end)
    }
}

/// Collects the attempts of a session from its events.
#[derive(Debug, Default)]
pub(crate) struct AttemptRecorder {
    /// Runs so far, added by the caller. New attempts belong to the last one.
    pub(crate) turns: Vec<RecordedPrompt>,
    contacts: Vec<RecordedModelRoute>,
    /// Provider profile of the session, which a resume may change. Its model always has the index
    /// 0.
    home: String,
    /// Index of the model that was asked and has not answered; it stays set while a failed attempt
    /// waits to be retried. `None`: nothing is open, and a failure or reply without request is
    /// ignored.
    asked: Option<usize>,
    /// Index of the model that answered last.
    answered: usize,
    text: Option<(String, String)>,
    usage: Option<Usage>,
    parked: bool,
    waited_when_parked: bool,
}

impl AttemptRecorder {
    /// Updates the collection with `event`.
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::SessionStarted { provider, model, .. } => {
                self.home.clone_from(provider);
                let contact = RecordedModelRoute {
                    profile: provider.clone(),
                    model: model.clone(),
                    ..RecordedModelRoute::default()
                };
                self.contacts = vec![contact];
            }
            Event::SessionResumed { with, .. } => {
                if let Some(with) = with {
                    self.home.clone_from(&with.provider);
                }
                self.forget();
            }
            Event::InvocationStarted { .. } | Event::UserMessage { message_id: None, .. } => {
                self.forget();
            }
            Event::ModelRequest { provider, model, .. } => self.on_request(provider, model),
            Event::ModelPartial { text, cause, .. } => {
                self.text = Some((text.clone(), cause.clone()));
            }
            // The purpose of the request without a reply is not recorded.
            Event::ModelUsage { billing: Some(billing), .. } if billing.outcome == LOST_REPLY => {}
            Event::ModelUsage { usage, billing, .. } => {
                self.on_usage(*usage, billing.as_deref());
            }
            Event::InvocationCancelled { .. } => {
                if let Some((text, _)) = self.text.take() {
                    self.push_attempt(text, AttemptEnd::Interrupted);
                }
                self.forget();
            }
            Event::ModelReply { .. } => self.on_reply(event),
            event => self.on_failure(event),
        }
    }

    fn on_request(&mut self, provider: &str, model: &str) {
        let who = self.contact(provider, model);
        // A probe of an unavailable model is given up without an event.
        let class = self.text.as_ref().map_or("overloaded", |(_, cause)| cause).to_owned();
        self.push_failure(&class, "", GIVEN_UP);
        if who < self.answered
            && let Some(AttemptEnd::Reply { rested, .. }) =
                self.turns.iter_mut().rev().find_map(|turn| turn.replies().next())
        {
            *rested = true;
        }
        self.waited_when_parked |= self.parked;
        self.asked = Some(who);
    }

    /// Adds the attempt that `event` ends without a reply.
    fn on_failure(&mut self, event: &Event) {
        match event {
            Event::ProviderRetry { class, cause, .. } => {
                let who = self.asked;
                self.push_failure(class, cause, FailureReaction::Retried);
                self.asked = who;
            }
            Event::ProviderFailover { from, from_model, to, to_model, class, cause, skipped }
                if class != "recovered" =>
            {
                self.contact(from, from_model);
                for skipped in skipped {
                    self.skipped_model(skipped);
                }
                self.contact(to, to_model);
                self.push_failure(class, cause, GIVEN_UP);
            }
            Event::SessionParked { cause, class: Some(class), next_try_ms } => {
                let known = next_try_ms.is_some();
                self.push_failure(attempt_class(class), cause, FailureReaction::Parked { known });
                self.parked = true;
            }
            Event::ContextCompacted { cause: Some(CompactionCause::Overflow), .. } => {
                self.push_failure("context_full", "", GIVEN_UP);
            }
            Event::InvocationFailed { class, cause, .. } if class.starts_with("provider.") => {
                self.push_failure(attempt_class(class), cause, GIVEN_UP);
            }
            _ => (),
        }
    }

    /// Finishes the collection. Returns the prompts, the models that the session could use, and
    /// true if a run with exhausted patience waited for the next attempt.
    pub(crate) fn end(mut self) -> (Vec<RecordedPrompt>, Vec<RecordedModelRoute>, bool) {
        // The journal ends between the output and the reaction to it.
        if let Some((_, cause)) = &self.text
            && is_class(cause)
        {
            let class = cause.clone();
            self.push_failure(&class, "", FailureReaction::Retried);
        }
        rank(&mut self.turns);
        (self.turns, self.contacts, self.waited_when_parked)
    }

    fn forget(&mut self) {
        (self.asked, self.text, self.usage, self.parked) = (None, None, None, false);
    }

    fn contact(&mut self, profile: &str, model: &str) -> usize {
        if profile == self.home {
            return 0;
        }
        let known = self.contacts.iter().skip(1).position(|contact| contact.profile == profile);
        if let Some(at) = known.map(|at| at + 1) {
            if !model.is_empty() {
                model.clone_into(&mut self.contacts[at].model);
            }
            return at;
        }
        let (profile, model) = (profile.to_owned(), model.to_owned());
        self.contacts.push(RecordedModelRoute { profile, model, ..RecordedModelRoute::default() });
        self.contacts.len() - 1
    }

    /// Records the ability that a skipped model lacks. `skipped`: its profile and the reason,
    /// separated by a colon. Any reason other than tools or images counts as a context window that
    /// is too small. A text without a colon is ignored.
    fn skipped_model(&mut self, skipped: &str) {
        let Some((profile, why)) = skipped.rsplit_once(": ") else { return };
        let at = self.contact(profile, "");
        let abilities = &mut self.contacts[at].abilities;
        match why {
            "it calls no tools" => abilities.tools = Some(false),
            "it sees no images" => abilities.images = Some(false),
            _ => abilities.window = Some(0),
        }
    }

    fn on_usage(&mut self, usage: Usage, billing: Option<&Billing>) {
        let answered = billing.is_none_or(|billing| billing.outcome == "answered");
        if !answered {
            // Usage of a broken attempt is not part of the reply before it.
            self.usage = (usage != Usage::default()).then_some(usage);
            return;
        }
        let claimed = billing.and_then(|billing| billing.claimed).unwrap_or(usage);
        let last = self.turns.last_mut().and_then(|turn| turn.replies().next());
        // A discarded reply has a cost, but is not part of the reply before it.
        if let Some(AttemptEnd::Reply { completion, .. }) = last
            && (completion.usage.is_none() || billing.is_none())
        {
            completion.usage.get_or_insert_with(Usage::default).add(&claimed);
        }
    }

    fn on_reply(&mut self, event: &Event) {
        let Event::ModelReply { message, stop_reason, model, .. } = event else { return };
        let mut message = message.clone();
        for call in &mut message.tool_calls {
            call.id = CallId::new(call.provider_id.take().unwrap_or_default());
        }
        let (stop_reason, model) = (*stop_reason, model.clone());
        let completion = Box::new(Completion { message, stop_reason, usage: None, model });
        self.answered = self.asked.unwrap_or(self.answered);
        self.asked = Some(self.answered);
        self.text = None;
        let end = AttemptEnd::Reply { completion, messages: Vec::new(), rested: false };
        self.push_attempt(String::new(), end);
    }

    fn push_failure(&mut self, class: &str, cause: &str, then: FailureReaction) {
        let text = self.text.take().map(|(text, _)| text).unwrap_or_default();
        let (class, cause) = (class.to_owned(), cause.to_owned());
        self.push_attempt(text, AttemptEnd::Failed { class, cause, then });
    }

    fn push_attempt(&mut self, text: String, end: AttemptEnd) {
        let usage = self.usage.take();
        if let (Some(who), Some(turn)) = (self.asked.take(), self.turns.last_mut()) {
            turn.attempts.push_back(RecordedAttempt { who, text, usage, end });
        }
    }
}

/// Class of a provider failure without the prefix `provider.`, as attempts use it.
fn attempt_class(class: &str) -> &str {
    class.strip_prefix("provider.").unwrap_or(class)
}

/// True if `cause` is the class of a provider failure, such as `overloaded`.
pub(crate) fn is_class(cause: &str) -> bool {
    ProviderError::of_class(cause, "".into()).class() == cause
}

/// Computes `away` of all given-up models: the fewer attempts of any model follow until this one is
/// asked again, the smaller it is. From [`RANKS`] attempts on, or if the model is not asked again,
/// it has its maximum.
fn rank(turns: &mut [RecordedPrompt]) {
    let asked: Vec<usize> =
        turns.iter().flat_map(|turn| turn.attempts.iter().map(|a| a.who)).collect();
    let attempts = turns.iter_mut().flat_map(|turn| &mut turn.attempts);
    for (at, attempt) in attempts.enumerate() {
        if let AttemptEnd::Failed { then: FailureReaction::GivenUp { away }, .. } = &mut attempt.end
        {
            let next = asked[at + 1..].iter().position(|who| *who == attempt.who);
            let rank = next.unwrap_or(RANKS).min(RANKS);
            *away = f64::from(u8::try_from(rank).unwrap_or(u8::MAX)) / 51.0;
        }
    }
}

/// Recreates the failure with `class` and `cause`, so that its text is the same. `wait`: time until
/// the quota is available again, used only for an exhausted quota.
pub(crate) fn failure(
    class: &str,
    cause: &str,
    wait: Option<std::time::Duration>,
) -> ProviderError {
    let said = format!("{}: ", ProviderError::of_class(class, "".into()));
    let source = cause.strip_prefix(&said).unwrap_or(cause).to_owned().into();
    let mut error = ProviderError::of_class(class, source);
    if let ProviderError::QuotaExhausted { retry_after, .. } = &mut error {
        *retry_after = wait;
    }
    error
}
