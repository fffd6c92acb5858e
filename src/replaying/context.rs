//! Test doubles for a replayed session: model, tools and permission answers from the recording, and
//! a simulated clock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use posse_actors::context::ContextBudget;
use posse_actors::conversation::CallId;
use posse_actors::event::{Event, RecordId, Scope};
use posse_actors::limits::Limits;
use posse_actors::ports::{
    Action, CallContext, Clock, Completion, Confinement, Delta, DeltaSender, Ids, NetworkAccess,
    PermissionQuestion, PermittedCall, Policy, PortFuture, Prepared, Provider, ProviderError,
    ProviderInfo, Request, RunContext, SideEffect, Situation, Tool, ToolAnnotations, ToolError,
    ToolOutput, ToolSpec, Verdict,
};
use posse_actors::root_session::SessionHandle;
use serde_json::{Value, json};

use crate::replaying::attempts::{self, AttemptEnd, FailureReaction, RecordedAttempt};
use crate::replaying::questions::RecordedAnswer;
use crate::replaying::recording::{Message, Recording};

/// Wait before an attempt is retried with the same model, in simulated time.
const RETRY_WAIT: Duration = Duration::from_hours(1);
/// Time for which a given-up model is not asked, in simulated time. The actual wait is at least
/// 95 % of it: longer than [`WORTH_WAITING`], so that a fallback takes over.
const UNAVAILABLE_TIME: Duration = Duration::from_hours(10);
/// Longest wait for a model while a fallback is available. Longer than several [`RETRY_WAIT`]s.
const WORTH_WAITING: Duration = Duration::from_hours(9);
/// Simulated time after which every given-up model may be asked again.
const RECOVERY_TIME: Duration = Duration::from_hours(20_000);
/// Patience that only a parked attempt exhausts.
const PATIENCE: Duration = Duration::from_hours(1_000_000);
/// Waits shorter than this take real time: they wait for more of a reply. Longer ones take none,
/// except that a wait of at least [`PATIENCE`] never ends.
const REAL_MAX: Duration = Duration::from_millis(500);
/// More consecutive failures than any session has: no circuit breaker opens.
const FAILURES_MAX: u32 = 1_000_000;

/// Limits of the kernel in a replay: the recorded events determine the length of a simulated wait,
/// not the recorded time. Circuit breakers do not open, and nothing is compacted automatically.
pub(crate) fn limits() -> Limits {
    Limits {
        patience: PATIENCE,
        backoff_first: UNAVAILABLE_TIME,
        backoff_max: UNAVAILABLE_TIME,
        retry_after_max: PATIENCE,
        absent_attempts_max: None,
        breaker_failures: FAILURES_MAX,
        probe_interval: UNAVAILABLE_TIME,
        failover_wait: WORTH_WAITING,
        failback_after: RECOVERY_TIME / 20,
        silence_hint: PATIENCE,
        // The size of a request depends on data that is not recorded.
        context_main: ContextBudget { compacts: false, ..ContextBudget::main() },
        ..Limits::default()
    }
}

/// State shared by the test doubles of a replay.
#[derive(Debug, Default)]
pub(crate) struct ReplayContext {
    recording: Recording,
    /// Remaining attempts of the current prompt.
    attempts: Mutex<VecDeque<RecordedAttempt>>,
    calls: Mutex<VecDeque<CallId>>,
    session: OnceLock<SessionHandle>,
    count: AtomicU32,
    /// Simulated time that has passed.
    passed: Arc<Mutex<Duration>>,
    /// Value that [`Clock::jitter`] returns, in `0.0..1.0`. Determines the length of the next wait.
    jitter: Mutex<f64>,
}

impl ReplayContext {
    /// Creates the state for `recording`, whose prompts (`turns`) the caller has taken out;
    /// [`ReplayContext::begin`] gets their attempts.
    pub(crate) fn new(mut recording: Recording) -> ReplayContext {
        let calls = Mutex::new(std::mem::take(&mut recording.calls));
        ReplayContext { recording, calls, ..ReplayContext::default() }
    }

    /// Sets the session, and answers its permission requests as recorded, in a task of its own. A
    /// request that another answer covered is left open. Any other request without a recorded
    /// answer interrupts the run.
    pub(crate) fn set_session(self: &Arc<Self>, session: SessionHandle) {
        let mut events = session.subscribe();
        let stage = Arc::clone(self);
        let answering = session.clone();
        self.session.set(session).ok();
        tokio::spawn(async move {
            while let Some(announced) = events.next().await {
                let Event::PermissionRequested { request_id, call_id, .. } = announced.event()
                else {
                    continue;
                };
                let asked = stage.recording.asked.get(call_id);
                match asked.map(|asked| (asked.decision(), &asked.end)) {
                    Some((Some(decision), _)) => {
                        answering.answer(request_id.clone(), decision).await.ok();
                    }
                    // The answer to another request covers this one.
                    Some((None, Some(RecordedAnswer::Covered))) => {}
                    Some((None, _)) | None => answering.interrupt(),
                }
            }
        });
    }

    /// Sets the recorded attempts of the next prompt.
    pub(crate) fn begin(&self, attempts: VecDeque<RecordedAttempt>) {
        *lock(&self.attempts) = attempts;
    }

    /// Sends recorded messages of the user to the session, in order. A message that the session
    /// does not take is dropped.
    async fn send_messages(&self, messages: Vec<Message>) {
        if let Some(session) = self.session.get() {
            for (kind, content) in messages {
                session.deliver(kind, content).await.ok();
            }
        }
    }

    /// Interrupts the run, because it was interrupted in the recording, or the recording does not
    /// say how it goes on. Never returns: the interruption drops the future.
    async fn stop<T>(&self) -> T {
        if let Some(session) = self.session.get() {
            session.interrupt();
        }
        std::future::pending().await
    }

    fn next_number(&self) -> u32 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn advance(&self, time: Duration) {
        let mut passed = lock(&self.passed);
        *passed = passed.saturating_add(time);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Model that replies and fails as recorded. An attempt that the recording attributes to another
/// model is rejected with an error; an attempt beyond the recorded ones interrupts the run.
#[derive(Debug)]
pub(crate) struct RecordedModel {
    /// Index of the model in `Recording::contacts`.
    pub(crate) who: usize,
    pub(crate) stage: Arc<ReplayContext>,
}

impl Provider for RecordedModel {
    fn info(&self) -> ProviderInfo {
        let contact = self.stage.recording.contacts.get(self.who);
        let (profile, model) =
            contact.map(|c| (c.profile.clone(), c.model.clone())).unwrap_or_default();
        ProviderInfo { profile, model, endpoint: "record:".to_owned() }
    }

    fn complete(
        &self,
        _: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let stage = Arc::clone(&self.stage);
        let who = self.who;
        Box::pin(async move {
            let next = lock(&stage.attempts).pop_front();
            match next {
                None => stage.stop().await,
                Some(next) if next.who != who => Err(stage.another_model(next.who)),
                Some(next) => stage.attempt(next, &deltas).await,
            }
        })
    }
}

impl ReplayContext {
    async fn attempt(
        &self,
        attempt: RecordedAttempt,
        deltas: &DeltaSender,
    ) -> Result<Completion, ProviderError> {
        let RecordedAttempt { who: _, text, usage, end } = attempt;
        if self.exhausts_patience(&end) {
            // Before any output arrives: patience does not run out during output.
            self.advance(PATIENCE * 2);
        }
        if let Some(usage) = usage {
            deltas.send(Delta::Usage(usage)).await.ok();
        }
        if !text.is_empty() {
            deltas.send(Delta::Text(text)).await.ok();
        }
        match end {
            AttemptEnd::Reply { completion, messages, rested } => {
                // Messages sent during the call are delivered before its result.
                self.send_messages(messages).await;
                if rested {
                    self.advance(RECOVERY_TIME);
                }
                Ok(*completion)
            }
            AttemptEnd::Interrupted => self.stop().await,
            // The recording does not contain which of several models recovers first, and when.
            AttemptEnd::Failed { then: FailureReaction::Parked { .. }, .. }
                if self.recording.contacts.len() > 1 =>
            {
                self.stop().await
            }
            AttemptEnd::Failed { class, cause, then } => {
                let (jitter, wait) = match then {
                    FailureReaction::Retried => (0.0, Some(RETRY_WAIT)),
                    // The top of the range; `away` orders the models within it.
                    FailureReaction::GivenUp { away } => {
                        (0.95 + 0.04 * away, Some(UNAVAILABLE_TIME))
                    }
                    FailureReaction::Parked { known } => (0.95, known.then_some(UNAVAILABLE_TIME)),
                };
                *lock(&self.jitter) = jitter;
                Err(attempts::failure(&class, &cause, wait))
            }
        }
    }

    /// True if the recorded session made no further attempt after this one because patience was
    /// exhausted. Without a fallback, nothing else ends the attempts after an invalid reply.
    fn exhausts_patience(&self, end: &AttemptEnd) -> bool {
        let AttemptEnd::Failed { class, then, .. } = end else { return false };
        let is_invalid =
            matches!(class.as_str(), "broken_reply" | "empty_reply" | "not_the_provider");
        match then {
            FailureReaction::Parked { .. } => true,
            FailureReaction::GivenUp { .. } => is_invalid && self.recording.contacts.len() == 1,
            FailureReaction::Retried => false,
        }
    }

    fn another_model(&self, who: usize) -> ProviderError {
        let profile = self.recording.contacts.get(who).map_or("nobody", |contact| &contact.profile);
        let source = format!("the record says that {profile} was asked").into();
        ProviderError::Rejected { source }
    }
}

/// Tool that returns the recorded result and has no effect. A call without a recorded result
/// interrupts the run.
#[derive(Debug)]
pub(crate) struct RecordedTool {
    spec: ToolSpec,
    stage: Arc<ReplayContext>,
}

impl RecordedTool {
    /// Creates the tool `name`. `known`: its current definition. `None`: the tool no longer exists,
    /// and a definition without description and parameters takes its place.
    pub(crate) fn new(
        name: &str,
        known: Option<&ToolSpec>,
        stage: Arc<ReplayContext>,
    ) -> RecordedTool {
        let spec = known.cloned().unwrap_or_else(|| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            parameters: json!({ "type": "object" }),
            side_effect: SideEffect::External,
            source: "record".to_owned(),
            annotations: ToolAnnotations::default(),
        });
        RecordedTool { spec, stage }
    }
}

impl Tool for RecordedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, _: Value, context: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let asked = self.stage.recording.asked.get(&context.call_id);
        let action = Action {
            tool: self.spec.name.clone(),
            operations: Vec::new(),
            summary: asked.map_or_else(
                || format!("{} (recorded)", self.spec.name),
                |asked| asked.summary.clone(),
            ),
            detail: asked.map(|asked| asked.detail.clone()).unwrap_or_default(),
            digest: context.call_id.to_string(),
        };
        Box::pin(std::future::ready(Ok(Prepared { action, payload: Box::new(()) })))
    }

    fn run(&self, _: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        let stage = Arc::clone(&self.stage);
        Box::pin(async move {
            let said = stage.recording.user_messages.get(&context.call.call_id);
            stage.send_messages(said.cloned().unwrap_or_default()).await;
            match stage.recording.outcomes.get(&context.call.call_id) {
                Some(output) => output.clone(),
                None => stage.stop().await,
            }
        })
    }
}

/// Policy that asks about a call if the recording has a permission request for it, unless another
/// answer covered that request and a grant is active. A denial by a rule is recorded as a result;
/// all other calls may run, because no tool has an effect.
impl Policy for ReplayContext {
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict {
        let confinement = Confinement {
            profile: "record".to_owned(),
            writable_roots: Vec::new(),
            network: NetworkAccess::Denied,
        };
        let asked = self.recording.asked.get(&CallId::new(action.digest.clone()));
        let Some(asked) = asked else { return Verdict::Allow(confinement) };
        if asked.end == Some(RecordedAnswer::Covered) && !situation.grants.is_empty() {
            return Verdict::Allow(confinement);
        }
        Verdict::Ask(PermissionQuestion {
            reason: asked.reason.clone(),
            scopes: vec![Scope::Once, Scope::Session],
            grant: asked.grant.clone(),
            grants_part: false,
            grant_text: Box::default(),
            yes_covers: false,
            rule: None,
            confinement,
        })
    }
}

/// Clock that advances by waits, most of which take no real time, and by jumps of attempts. A wait
/// of at least [`PATIENCE`] never ends. The wall clock stands still at the start of the recorded
/// session.
impl Clock for ReplayContext {
    fn monotonic(&self) -> Duration {
        *lock(&self.passed)
    }

    fn wall_ms(&self) -> u64 {
        self.recording.started_ms
    }

    fn sleep(&self, duration: Duration) -> PortFuture<()> {
        let clock = Arc::clone(&self.passed);
        let until = self.monotonic().saturating_add(duration);
        Box::pin(async move {
            if duration >= PATIENCE {
                return std::future::pending().await;
            }
            if duration < REAL_MAX {
                tokio::time::sleep(duration).await;
            } else {
                tokio::task::yield_now().await;
            }
            let mut passed = lock(&clock);
            *passed = until.max(*passed);
        })
    }

    fn jitter(&self) -> f64 {
        *lock(&self.jitter)
    }
}

/// Hands out the recorded call ids in their order, then new ones; all other ids are counted.
impl Ids for ReplayContext {
    fn new_id(&self, kind: &str) -> String {
        format!("{kind}{}", self.next_number())
    }

    fn call(&self) -> CallId {
        let next = lock(&self.calls).pop_front();
        next.unwrap_or_else(|| CallId::new(self.new_id("new-")))
    }

    fn record(&self) -> RecordId {
        RecordId { process: 0, count: self.next_number() }
    }
}
