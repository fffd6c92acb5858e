//! Failover: requests a reply from one model after another, in the order of the fallback policy,
//! until one answers or patience ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::agent_invocation::Ending;
use crate::agent_invocation::ending::{no_provider, parked, unanswered};
use crate::agent_invocation::fallback::{
    CandidateChoice, FallbackPolicy, FallbackVerdict, Needs, verdict,
};
use crate::conversation::{ContentPart, Message};
use crate::event::{Event, Origin};
use crate::ledger::{MeteredReply, TokenCalibration};
use crate::limits::Limits;
use crate::mailbox::SupervisedRef;
use crate::ports::{Abilities, ProviderError, ProviderInfo, Request};
use crate::provider_client::{self, Deadline, PartialReply, Unanswered, keep_partial};
use crate::tool_call::Services;

/// Bytes of text that are a token, at a cautious guess.
const BYTES_A_TOKEN: usize = 3;

/// Estimated tokens of an image.
const TOKENS_AN_IMAGE: u64 = 1500;

/// One model that may be asked.
#[derive(Clone)]
pub(crate) struct ModelRoute {
    /// Client of the account.
    pub(crate) client: SupervisedRef<provider_client::Msg>,
    /// Index of the model within that client.
    pub(crate) model: usize,
    pub(crate) info: ProviderInfo,
    pub(crate) abilities: Abilities,
}

/// Models that may be used, in configured order, and their known state.
#[derive(Clone)]
pub(crate) struct ModelRoutes {
    all: Arc<[ModelRoute]>,
    known: Arc<Mutex<FallbackState>>,
}

/// Shared by all invocations; survives their crashes.
struct FallbackState {
    chain: FallbackPolicy,
}

/// A request and its accounting.
pub(super) struct ModelCall {
    pub(super) services: Arc<Services>,
    pub(super) origin: Arc<Origin>,
    pub(super) request: Request,
    pub(super) turn: u32,
    pub(super) draft: PartialReply,
    pub(super) gauge: TokenCalibration,
}

impl ModelRoutes {
    pub(crate) fn new(all: Vec<ModelRoute>) -> ModelRoutes {
        let chain = FallbackPolicy::new(all.iter().skip(1).map(|contact| contact.abilities));
        let known = FallbackState { chain };
        ModelRoutes { all: all.into(), known: Arc::new(Mutex::new(known)) }
    }

    /// The model that is used next, as far as known.
    pub(crate) fn info(&self) -> Option<ProviderInfo> {
        let at = self.known().chain.at();
        self.all.get(at).map(|contact| contact.info.clone())
    }

    /// Sends a message to every client.
    pub(crate) fn tell(&self, message: impl Fn() -> provider_client::Msg) {
        for contact in &*self.all {
            contact.client.tell(message());
        }
    }

    /// Retry on request of the user: if no other model is available, unavailable ones are tried
    /// once.
    pub(crate) fn retry_now(&self, now: Duration, limits: &Limits) {
        if self.known().chain.retry_now(now, limits) {
            self.tell(|| provider_client::Msg::Relent);
        }
    }

    fn known(&self) -> MutexGuard<'_, FallbackState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks until one answers. Dropping the future stops every wait.
    pub(super) async fn ask(self, inquiry: ModelCall) -> Result<MeteredReply, Ending> {
        let mut outwaits = inquiry.services.limits.outwaits_once;
        loop {
            let ending = match self.ask_around(&inquiry).await {
                Ok(answered) => return Ok(answered),
                Err(ending) => ending,
            };
            let Ending::Parked { class, cause, next_try_ms } = &ending else { return Err(ending) };
            let parked = Event::SessionParked {
                cause: cause.clone(),
                class: Some(class.clone()),
                next_try_ms: *next_try_ms,
            };
            inquiry.note(parked);
            let Some(at) = next_try_ms.filter(|_| std::mem::take(&mut outwaits)) else {
                return Err(ending);
            };
            let clock = &inquiry.services.clock;
            clock.sleep(Duration::from_millis(at.saturating_sub(clock.wall_ms()))).await;
        }
    }

    /// Sends a request that the run does not depend on: unavailable models are not waited for.
    pub(super) async fn ask_once(self, inquiry: ModelCall) -> Result<MeteredReply, Ending> {
        self.ask_around(&inquiry).await
    }

    /// Asks until patience ends, once.
    async fn ask_around(&self, inquiry: &ModelCall) -> Result<MeteredReply, Ending> {
        let ModelCall { services, request, .. } = inquiry;
        let (limits, clock) = (&services.limits, &services.clock);
        let needs = if self.all.len() == 1 { Needs::default() } else { needs(request) };
        let deadline = Deadline::at(clock.monotonic() + limits.patience);
        let mut last: Option<(usize, ProviderError)> = None;
        loop {
            let now = clock.monotonic();
            let choice = self.known().chain.choose(needs, now, deadline.get(), limits);
            let (link, until) = match (choice, last.take()) {
                (CandidateChoice::Ask { link, until }, failed) => {
                    self.announce(link, failed.as_ref(), needs, inquiry);
                    (link, until)
                }
                (CandidateChoice::GiveUp { next_try }, Some((_, error))) => {
                    return Err(self.give_up(&error, next_try, inquiry));
                }
                // All models failed in earlier turns; try anyway.
                (CandidateChoice::GiveUp { .. }, None) => (self.known().chain.at(), None),
            };
            let Some(contact) = self.all.get(link) else { return Err(no_provider()) };
            let Unanswered { error, next_try } = match contact.ask(inquiry, &deadline, until).await
            {
                None if self.all.len() == 1 => return Err(no_provider()),
                None => gone(),
                Some(Ok(answered)) => {
                    self.settle(link, inquiry);
                    return Ok(answered);
                }
                Some(Err(unanswered)) => unanswered,
            };
            if verdict(&error) == FallbackVerdict::Final {
                return Err(unanswered(&error));
            }
            let now = clock.monotonic();
            self.known().chain.failed(link, &error, next_try, now, limits);
            if self.all.len() == 1 {
                return Err(self.give_up(&error, next_try, inquiry));
            }
            last = Some((link, error));
        }
    }

    /// Announces a switch of models and records it.
    fn announce(
        &self,
        link: usize,
        failed: Option<&(usize, ProviderError)>,
        needs: Needs,
        inquiry: &ModelCall,
    ) {
        let at = self.known().chain.at();
        // One that was away is only looked at; whether it is back is known when it answers.
        if let Some((_, error)) = failed
            && link > at
        {
            let skipped = (at + 1..link).filter_map(|nth| {
                let why = self.known().chain.unfit(nth, needs)?;
                Some(format!("{}: {why}", self.all.get(nth)?.info.profile))
            });
            let (class, cause) = (error.class(), error.chain());
            inquiry.note_failover(&self.all, (at, link), class, cause, skipped.collect());
            self.known().chain.switch(link);
        }
        if let Some(contact) = self.all.get(link) {
            inquiry.note_request(&contact.info);
        }
    }

    fn settle(&self, link: usize, inquiry: &ModelCall) {
        let before = self.known().chain.answered(link);
        if let Some(before) = before {
            let cause = "it answers again".to_owned();
            inquiry.note_failover(&self.all, (before, link), "recovered", cause, Vec::new());
        }
    }

    fn give_up(
        &self,
        error: &ProviderError,
        next_try: Option<Duration>,
        inquiry: &ModelCall,
    ) -> Ending {
        let strange =
            matches!(error, ProviderError::Broken { .. } | ProviderError::NotTheProvider { .. });
        // Nothing that time would heal.
        if strange && self.all.len() == 1 {
            return unanswered(error);
        }
        parked(error, next_try, &inquiry.services)
    }
}

impl ModelRoute {
    /// `None`: its client is gone for good.
    async fn ask(
        &self,
        inquiry: &ModelCall,
        deadline: &Deadline,
        until: Option<Duration>,
    ) -> Option<Result<MeteredReply, Unanswered>> {
        let ModelCall { services, origin, request, turn, draft, gauge } = inquiry;
        // When the provider's client crashes with our request, no tool ran for it: ask again.
        let question = |report| {
            keep_partial(draft, &services.transcript, origin, *turn, "crashed");
            provider_client::Msg::Complete(provider_client::ModelRequest {
                model: self.model,
                request: request.clone(),
                origin: Arc::clone(origin),
                turn: *turn,
                deadline: deadline.clone(),
                until,
                draft: draft.clone(),
                gauge: gauge.clone(),
                report,
            })
        };
        self.client.call_until_answered(question).await
    }
}

impl ModelCall {
    fn note(&self, event: Event) {
        self.services.transcript.note(Some(&self.origin), event);
    }

    fn note_request(&self, info: &ProviderInfo) {
        self.note(Event::ModelRequest {
            turn: self.turn,
            provider: info.profile.clone(),
            model: info.model.clone(),
            messages: self.request.messages.len(),
        });
    }

    fn note_failover(
        &self,
        all: &[ModelRoute],
        (from, to): (usize, usize),
        class: &str,
        cause: String,
        skipped: Vec<String>,
    ) {
        let (Some(from), Some(to)) = (all.get(from), all.get(to)) else { return };
        self.note(Event::ProviderFailover {
            from: from.info.profile.clone(),
            from_model: from.info.model.clone(),
            to: to.info.profile.clone(),
            to_model: to.info.model.clone(),
            class: class.to_owned(),
            cause,
            skipped,
        });
    }
}

/// The client exceeded its restart budget.
fn gone() -> Unanswered {
    let source = "the part that reaches it crashed too often".into();
    Unanswered { error: ProviderError::Unreachable { source }, next_try: Some(Duration::MAX) }
}

/// Capabilities that `request` needs from a model.
fn needs(request: &Request) -> Needs {
    let (mut bytes, mut images) = (0, 0);
    for message in &request.messages {
        let content = match &**message {
            Message::User { content } | Message::Tool { content, .. } => content.as_slice(),
            Message::System { content } => {
                bytes += content.len();
                continue;
            }
            Message::Assistant(said) => {
                bytes += said.content.as_deref().map_or(0, str::len);
                bytes += said.tool_calls.iter().map(|call| call.arguments.len()).sum::<usize>();
                continue;
            }
        };
        for part in content {
            match part {
                ContentPart::Text { text } => bytes += text.len(),
                ContentPart::ImageUrl { .. } => images += 1,
            }
        }
    }
    let tokens = u64::try_from(bytes / BYTES_A_TOKEN).unwrap_or(u64::MAX);
    Needs {
        tools: !request.tools.is_empty(),
        images: images > 0,
        tokens: tokens.saturating_add(images * TOKENS_AN_IMAGE),
    }
}
