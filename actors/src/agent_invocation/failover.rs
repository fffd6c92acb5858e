//! Failover: requests a reply from one model after another, as the fallback policy decides, until
//! one answers or patience is exhausted.

use std::sync::Arc;
use std::time::Duration;

use crate::agent_invocation::ending::{no_provider, no_server, parked, unanswered};
use crate::agent_invocation::fallback::{CandidateChoice, FallbackPolicy, Needs, may_fall_back};
use crate::context::{ContextMeter, ContextSettings, WindowCheck};
use crate::conversation::{ContentPart, Message};
use crate::event::{Event, Origin};
use crate::guarded::Guarded;
use crate::ledger::TokenCalibration;
use crate::limits::Limits;
use crate::mailbox::SupervisedRef;
use crate::outcome::Ending;
use crate::ports::{Abilities, ProviderError, ProviderInfo, Request};
use crate::provider_client::{
    self, Deadline, MeteredReply, PartialReply, Unanswered, keep_partial,
};
use crate::tool_call::Services;

/// Bytes of text per token; a low value, so that the number of tokens is rather overestimated.
const BYTES_A_TOKEN: usize = 3;

/// Estimated tokens of an image.
const TOKENS_AN_IMAGE: u64 = 1500;

/// A model that may be used, and the client that reaches it.
#[derive(Clone)]
pub(crate) struct ModelRoute {
    /// Client of the model's account.
    pub(crate) client: SupervisedRef<provider_client::Msg>,
    /// Index of the model within that client.
    pub(crate) model: usize,
    pub(crate) info: ProviderInfo,
    pub(crate) abilities: Abilities,
}

/// Models that may be used, in configured order, with what is known about their availability.
#[derive(Clone)]
pub(crate) struct ModelRoutes {
    all: Arc<[ModelRoute]>,
    /// Fallback policy, which knows the availability of the models. All clones share it, so it
    /// survives crashes of invocations.
    policy: Arc<Guarded<FallbackPolicy>>,
}

/// A model request of an invocation, in the form that can be sent to any of the models.
pub(super) struct ModelCall {
    pub(super) services: Arc<Services>,
    pub(super) origin: Arc<Origin>,
    pub(super) request: Request,
    pub(super) turn: u32,
    pub(super) draft: PartialReply,
    pub(super) calibration: TokenCalibration,
    /// Estimated size of the request, and settings that give the windows of the models; `None`: the
    /// size is unknown.
    pub(super) size: Option<(ContextMeter, ContextSettings)>,
}

impl ModelRoutes {
    pub(crate) fn new(all: Vec<ModelRoute>) -> ModelRoutes {
        let policy = FallbackPolicy::new(all.iter().skip(1).map(|route| route.abilities));
        ModelRoutes { all: all.into(), policy: Arc::new(Guarded::new(policy)) }
    }

    /// The current model: the one that answered last, or to which a failover has switched since; at
    /// first the configured one. `None` if there are no models.
    pub(crate) fn info(&self) -> Option<ProviderInfo> {
        let at = self.policy.lock().at();
        self.all.get(at).map(|route| route.info.clone())
    }

    /// Sends a message to the client of every model.
    pub(crate) fn send_to_all(&self, message: impl Fn() -> provider_client::Msg) {
        for route in &*self.all {
            route.client.tell(message());
        }
    }

    /// Ends waits because the user wants an attempt: if all models are unavailable, or there is
    /// only one, each may be tried now.
    pub(crate) fn retry_now(&self, now: Duration, limits: &Limits) {
        if self.policy.lock().retry_now(now, limits) {
            self.send_to_all(|| provider_client::Msg::RetryNow);
        }
    }

    /// Requests a reply from one model after another until one answers. When patience is exhausted,
    /// records that the session is parked; if `Limits::outwaits_once` is set, waits once for the
    /// next useful attempt and tries again. Dropping the future cancels the request and every wait.
    pub(super) async fn ask(self, model_call: ModelCall) -> Result<MeteredReply, Ending> {
        let mut outwaits = model_call.services.limits.outwaits_once;
        loop {
            let ending = match self.ask_once(&model_call).await {
                Ok(answered) => return Ok(answered),
                Err(ending) => ending,
            };
            let Ending::Parked { class, cause, next_try_ms } = &ending else { return Err(ending) };
            let parked = Event::SessionParked {
                cause: cause.clone(),
                class: Some(class.clone()),
                next_try_ms: *next_try_ms,
            };
            model_call.note(parked);
            let Some(at) = next_try_ms.filter(|_| std::mem::take(&mut outwaits)) else {
                return Err(ending);
            };
            let clock = &model_call.services.clock;
            clock.sleep(Duration::from_millis(at.saturating_sub(clock.wall_ms()))).await;
        }
    }

    /// Requests a reply from one model after another until one answers, patience is exhausted, or
    /// an error occurs that another model cannot avoid.
    pub(super) async fn ask_once(&self, model_call: &ModelCall) -> Result<MeteredReply, Ending> {
        let ModelCall { services, request, .. } = model_call;
        let (limits, clock) = (&services.limits, &services.clock);
        let needs = if self.all.len() == 1 { Needs::default() } else { needs(request) };
        let deadline = Deadline::at(clock.monotonic() + limits.patience);
        let mut last: Option<(usize, Unanswered)> = None;
        loop {
            let now = clock.monotonic();
            let choice = self.policy.lock().choose(needs, now, deadline.get(), limits);
            let (candidate, until) = match (choice, last.take()) {
                (CandidateChoice::Ask { candidate, until }, failed) => {
                    self.announce(candidate, failed.as_ref(), needs, model_call);
                    (candidate, until)
                }
                (CandidateChoice::GiveUp { next_try }, Some((_, failed))) => {
                    return Err(self.give_up(&Unanswered { next_try, ..failed }, model_call));
                }
                // All models failed in earlier turns; try anyway.
                (CandidateChoice::GiveUp { .. }, None) => (self.policy.lock().at(), None),
            };
            let Some(route) = self.all.get(candidate) else { return Err(no_provider()) };
            // A request that does not fit the window is not sent.
            if let Some(error) = route.overflow(model_call) {
                return Err(unanswered(&error));
            }
            model_call.note_request(&route.info);
            let failed = match route.ask(model_call, &deadline, until).await {
                None if self.all.len() == 1 => return Err(no_provider()),
                None => client_lost(),
                Some(Ok(answered)) => {
                    self.settle(candidate, model_call);
                    return Ok(answered);
                }
                Some(Err(unanswered)) => unanswered,
            };
            if !may_fall_back(&failed.error) {
                return Err(unanswered(&failed.error));
            }
            let now = clock.monotonic();
            self.policy.lock().failed(candidate, &failed.error, failed.next_try, now, limits);
            if self.all.len() == 1 {
                return Err(self.give_up(&failed, model_call));
            }
            last = Some((candidate, failed));
        }
    }

    /// Records a switch to the model `candidate` after a failure, if there is one.
    fn announce(
        &self,
        candidate: usize,
        failed: Option<&(usize, Unanswered)>,
        needs: Needs,
        model_call: &ModelCall,
    ) {
        let at = self.policy.lock().at();
        // A return to an earlier model is announced when that model answers.
        if let Some((_, Unanswered { error, .. })) = failed
            && candidate > at
        {
            let skipped = (at + 1..candidate).filter_map(|nth| {
                let why = self.policy.lock().unsuitable_reason(nth, needs)?;
                Some(format!("{}: {why}", self.all.get(nth)?.info.profile))
            });
            let (class, cause) = (error.class(), error.chain());
            model_call.note_failover(&self.all, (at, candidate), class, cause, skipped.collect());
            self.policy.lock().switch(candidate);
        }
    }

    fn settle(&self, candidate: usize, model_call: &ModelCall) {
        let before = self.policy.lock().answered(candidate);
        if let Some(before) = before {
            let cause = "it answers again".to_owned();
            model_call.note_failover(
                &self.all,
                (before, candidate),
                "recovered",
                cause,
                Vec::new(),
            );
        }
    }

    fn give_up(&self, failed: &Unanswered, model_call: &ModelCall) -> Ending {
        let error = &failed.error;
        let is_invalid = matches!(
            error,
            ProviderError::Broken { .. }
                | ProviderError::Empty { .. }
                | ProviderError::Repeating { .. }
                | ProviderError::NotTheProvider { .. }
        );
        // It was retried for as long as patience, or a limit of its own, allows.
        if is_invalid && self.all.len() == 1 {
            return unanswered(error);
        }
        let limits = &model_call.services.limits;
        let is_absent = matches!(error, ProviderError::NoServer { .. });
        if is_absent && model_call.begins() && limits.absent_attempts_max.is_some() {
            return no_server(error);
        }
        parked(failed, &model_call.services)
    }
}

impl ModelRoute {
    /// The error of a request whose size exceeds the known window of the model.
    fn overflow(&self, model_call: &ModelCall) -> Option<ProviderError> {
        self.window_check(model_call)?.overflow()
    }

    fn window_check(&self, ModelCall { size, .. }: &ModelCall) -> Option<WindowCheck> {
        let (meter, settings) = size.clone()?;
        Some(WindowCheck { meter, settings, info: self.info.clone() })
    }

    /// Sends the model request to the client, and again after a crash of the client. `until`
    /// (monotonic): time from which a fallback is preferred. Returns `None` if the client has
    /// exceeded its restart budget.
    async fn ask(
        &self,
        model_call: &ModelCall,
        deadline: &Deadline,
        until: Option<Duration>,
    ) -> Option<Result<MeteredReply, Unanswered>> {
        let ModelCall { services, origin, request, turn, draft, calibration, .. } = model_call;
        // If the client crashes, the request is sent again: no tool has run for it.
        let question = |report| {
            keep_partial(draft, &services.transcript, origin, *turn, "crashed", false);
            provider_client::Msg::Complete(provider_client::ModelRequest {
                model: self.model,
                request: request.clone(),
                origin: Arc::clone(origin),
                turn: *turn,
                deadline: deadline.clone(),
                until,
                draft: draft.clone(),
                calibration: calibration.clone(),
                window_check: self.window_check(model_call),
                report,
            })
        };
        self.client.call_until_answered(question).await
    }
}

impl ModelCall {
    /// True for the first request of a run of the main agent.
    fn begins(&self) -> bool {
        self.turn == 1 && self.origin.parent_invocation_id.is_none()
    }

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

/// Failure of a model request whose client has exceeded its restart budget: no time of another
/// attempt is useful.
fn client_lost() -> Unanswered {
    let source = "the provider client crashed too often".into();
    Unanswered {
        error: ProviderError::Unreachable { source },
        next_try: Some(Duration::MAX),
        attempts: None,
    }
}

/// Capabilities and context size that `request` needs from a model.
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
