//! What became of each attempt at a reply: who was asked, what arrived, and how it ended.

use std::collections::VecDeque;

use posse_actors::conversation::{CallId, Prompt, Usage};
use posse_actors::event::Event;
use posse_actors::ledger::Billing;
use posse_actors::ledger::LOST_REPLY;
use posse_actors::ports::{Abilities, Completion, ProviderError};

use crate::replaying::recording::Message;

/// What the next question to somebody who is away is put off by, compared with others.
const RANKS: usize = 50;

/// Somebody who could be asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contact {
    pub(crate) profile: String,
    pub(crate) model: String,
    /// What it was passed over for.
    pub(crate) abilities: Abilities,
}

/// One prompt, and what was answered to it.
#[derive(Debug)]
pub(crate) struct RecordedPrompt {
    /// `None`: what was left unfinished went on.
    pub(crate) prompt: Option<Prompt>,
    pub(crate) attempts: VecDeque<Attempt>,
}

/// One attempt at a reply.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Who was asked: the place among the contacts.
    pub(crate) who: usize,
    /// What had arrived when it broke off.
    pub(crate) text: String,
    /// What the provider had counted by then.
    pub(crate) usage: Option<Usage>,
    pub(crate) end: AttemptEnd,
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum AttemptEnd {
    Reply {
        completion: Box<Completion>,
        /// What the user said before the next one.
        messages: Vec<Message>,
        /// So much time passed after it that somebody who was away was asked again.
        rested: bool,
    },
    Failed {
        class: String,
        cause: String,
        then: Then,
    },
    /// The user stopped it.
    Hung,
}

/// What followed a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Then {
    /// The same one was asked again after a wait.
    Again,
    /// It was given up. `away`: in `0.0..1.0`, the higher the later it is asked again.
    Over { away: f64 },
    /// Patience was over. `known`: when it is worth another try.
    Parked { known: bool },
}

impl RecordedPrompt {
    pub(crate) fn of(prompt: Option<Prompt>) -> RecordedPrompt {
        RecordedPrompt { prompt, attempts: VecDeque::new() }
    }

    /// The user said something after the last reply.
    pub(crate) fn say(&mut self, message: Message) {
        if let Some(messages) = self.replies().find_map(|end| match end {
            AttemptEnd::Reply { messages, .. } => Some(messages),
            AttemptEnd::Failed { .. } | AttemptEnd::Hung => None,
        }) {
            messages.push(message);
        }
    }

    /// The last first.
    fn replies(&mut self) -> impl Iterator<Item = &mut AttemptEnd> {
        self.attempts.iter_mut().rev().map(|attempt| &mut attempt.end)
    }
}

/// Listens to the record.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    contacts: Vec<Contact>,
    /// The profile of the session, whatever it was when the session began.
    home: String,
    /// Who is asked and has not answered.
    asked: Option<usize>,
    /// Who answered last.
    answered: usize,
    text: Option<(String, String)>,
    usage: Option<Usage>,
    parked: bool,
    outwaits: bool,
}

impl Listener {
    /// Enters what `event` says of an attempt into the last of `turns`.
    pub(crate) fn hear(&mut self, event: &Event, turns: &mut [RecordedPrompt]) {
        match event {
            Event::SessionStarted { provider, model, .. } => {
                self.home.clone_from(provider);
                let contact = Contact {
                    profile: provider.clone(),
                    model: model.clone(),
                    ..Contact::default()
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
            Event::ModelRequest { provider, model, .. } => self.requested(provider, model, turns),
            Event::ModelPartial { text, cause, .. } => {
                self.text = Some((text.clone(), cause.clone()));
            }
            // What it was for is lost.
            Event::ModelUsage { billing: Some(billing), .. } if billing.outcome == LOST_REPLY => {}
            Event::ModelUsage { usage, billing, .. } => {
                self.counted(*usage, billing.as_deref(), turns);
            }
            Event::InvocationCancelled { .. } => {
                if let Some((text, _)) = self.text.take() {
                    self.ends(text, AttemptEnd::Hung, turns);
                }
                self.forget();
            }
            Event::ModelReply { .. } => self.replied(event, turns),
            event => self.failed(event, turns),
        }
    }

    fn requested(&mut self, provider: &str, model: &str, turns: &mut [RecordedPrompt]) {
        let who = self.contact(provider, model);
        // One that is only looked at is given up without a word.
        let class = self.text.as_ref().map_or("overloaded", |(_, cause)| cause).to_owned();
        self.fails(&class, "", Then::Over { away: 0.0 }, turns);
        if who < self.answered
            && let Some(AttemptEnd::Reply { rested, .. }) =
                turns.iter_mut().rev().find_map(|turn| turn.replies().next())
        {
            *rested = true;
        }
        self.outwaits |= self.parked;
        self.asked = Some(who);
    }

    /// What became of an attempt that brought no reply.
    fn failed(&mut self, event: &Event, turns: &mut [RecordedPrompt]) {
        match event {
            Event::ProviderRetry { class, cause, .. } => {
                let who = self.asked;
                self.fails(class, cause, Then::Again, turns);
                self.asked = who;
            }
            Event::ProviderFailover { from, from_model, to, to_model, class, cause, skipped }
                if class != "recovered" =>
            {
                self.contact(from, from_model);
                for skipped in skipped {
                    self.passed_over(skipped);
                }
                self.contact(to, to_model);
                self.fails(class, cause, Then::Over { away: 0.0 }, turns);
            }
            Event::SessionParked { cause, class: Some(class), next_try_ms } => {
                let known = next_try_ms.is_some();
                self.fails(short(class), cause, Then::Parked { known }, turns);
                self.parked = true;
            }
            Event::ContextCompacted { cause: Some(cause), .. } if cause == "overflow" => {
                self.fails("context_full", "", Then::Over { away: 0.0 }, turns);
            }
            Event::InvocationFailed { class, cause, .. } if class.starts_with("provider.") => {
                self.fails(short(class), cause, Then::Over { away: 0.0 }, turns);
            }
            _ => (),
        }
    }

    /// Everything was heard. Returns who could be asked, and whether a run that was out of patience
    /// waited once.
    pub(crate) fn end(mut self, turns: &mut [RecordedPrompt]) -> (Vec<Contact>, bool) {
        // The record ends between what arrived and what was done about it.
        if let Some((_, cause)) = &self.text
            && is_class(cause)
        {
            let class = cause.clone();
            self.fails(&class, "", Then::Again, turns);
        }
        rank(turns);
        (self.contacts, self.outwaits)
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
        self.contacts.push(Contact { profile, model, ..Contact::default() });
        self.contacts.len() - 1
    }

    /// Somebody that could not do it, and why, in the words of the record.
    fn passed_over(&mut self, skipped: &str) {
        let Some((profile, why)) = skipped.rsplit_once(": ") else { return };
        let at = self.contact(profile, "");
        let abilities = &mut self.contacts[at].abilities;
        match why {
            "it calls no tools" => abilities.tools = Some(false),
            "it sees no images" => abilities.images = Some(false),
            _ => abilities.window = Some(0),
        }
    }

    fn counted(&mut self, usage: Usage, billing: Option<&Billing>, turns: &mut [RecordedPrompt]) {
        let answered = billing.is_none_or(|billing| billing.outcome == "answered");
        if !answered {
            // What broke off is no part of the reply before it.
            self.usage = (usage != Usage::default()).then_some(usage);
            return;
        }
        let claimed = billing.and_then(|billing| billing.claimed).unwrap_or(usage);
        let last = turns.last_mut().and_then(|turn| turn.replies().next());
        // A reply that was discarded has cost something, and is no part of the one before it.
        if let Some(AttemptEnd::Reply { completion, .. }) = last
            && (completion.usage.is_none() || billing.is_none())
        {
            completion.usage.get_or_insert_with(Usage::default).add(&claimed);
        }
    }

    fn replied(&mut self, event: &Event, turns: &mut [RecordedPrompt]) {
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
        self.ends(String::new(), end, turns);
    }

    fn fails(&mut self, class: &str, cause: &str, then: Then, turns: &mut [RecordedPrompt]) {
        let text = self.text.take().map(|(text, _)| text).unwrap_or_default();
        let (class, cause) = (class.to_owned(), cause.to_owned());
        self.ends(text, AttemptEnd::Failed { class, cause, then }, turns);
    }

    fn ends(&mut self, text: String, end: AttemptEnd, turns: &mut [RecordedPrompt]) {
        let usage = self.usage.take();
        if let (Some(who), Some(turn)) = (self.asked.take(), turns.last_mut()) {
            turn.attempts.push_back(Attempt { who, text, usage, end });
        }
    }
}

/// The class of a failure of the provider, as attempts name it.
fn short(class: &str) -> &str {
    class.strip_prefix("provider.").unwrap_or(class)
}

/// Whether an attempt can fail like that.
pub(crate) fn is_class(cause: &str) -> bool {
    ProviderError::of_class(cause, "".into()).class() == cause
}

/// Whoever is asked again sooner is away for a shorter time.
fn rank(turns: &mut [RecordedPrompt]) {
    let asked: Vec<usize> =
        turns.iter().flat_map(|turn| turn.attempts.iter().map(|a| a.who)).collect();
    let attempts = turns.iter_mut().flat_map(|turn| &mut turn.attempts);
    for (at, attempt) in attempts.enumerate() {
        if let AttemptEnd::Failed { then: Then::Over { away }, .. } = &mut attempt.end {
            let next = asked[at + 1..].iter().position(|who| *who == attempt.who);
            let rank = next.unwrap_or(RANKS).min(RANKS);
            *away = f64::from(u8::try_from(rank).unwrap_or(u8::MAX)) / 51.0;
        }
    }
}

/// The failure that `class` and `cause` tell of, so that it says the same again. `wait`: what the
/// server asks everybody to wait, where a class has that.
pub(crate) fn failure(
    class: &str,
    cause: &str,
    wait: Option<std::time::Duration>,
) -> ProviderError {
    let said = format!("{}: ", ProviderError::of_class(class, "".into()));
    let source = cause.strip_prefix(&said).unwrap_or(cause).to_owned().into();
    match ProviderError::of_class(class, source) {
        ProviderError::QuotaExhausted { source, .. } => {
            ProviderError::QuotaExhausted { retry_after: wait, source }
        }
        other => other,
    }
}
