//! The world of a session that runs again: its model and its tools answer from the record.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use posse_actors::context::ContextBudget;
use posse_actors::conversation::{CallId, InvocationId, MessageId, QuestionId};
use posse_actors::event::{Event, Scope};
use posse_actors::limits::Limits;
use posse_actors::ports::{
    Action, CallContext, Clock, Completion, Confinement, Delta, DeltaSender, Ids,
    PermissionQuestion, Policy, PortFuture, Prepared, Provider, ProviderError, ProviderInfo,
    Request, RunContext, SideEffect, Situation, Tool, ToolError, ToolOutput, ToolSpec, Verdict,
};
use posse_actors::record::RecordId;
use posse_actors::root_session::SessionHandle;
use posse_actors::tool_call::PermittedCall;
use serde_json::{Value, json};

use crate::replaying::attempts::{self, Attempt, AttemptEnd, Then};
use crate::replaying::questions::RecordedAnswer as AnswerEnd;
use crate::replaying::recording::{Message, Recording};

/// A wait before somebody is asked again, in the time of the stage.
const AGAIN: Duration = Duration::from_hours(1);
/// How long nobody is asked who was given up: longer than one is waited for while another may be
/// asked, which is longer than a few waits.
const AWAY: Duration = Duration::from_hours(10);
const WORTH_WAITING: Duration = Duration::from_hours(9);
/// Long enough for everybody to be asked again.
const RESTED: Duration = Duration::from_hours(20_000);
const PATIENCE: Duration = Duration::from_hours(1_000_000);
/// Waits that are longer take no time: below are those for more of a reply.
const REAL_MAX: Duration = Duration::from_millis(500);
/// More failures in a row than any session has.
const FAILURES_MAX: u32 = 1_000_000;

/// How long things take on the stage: waits are told apart by what followed them, not by how long
/// they were.
pub(crate) fn limits() -> Limits {
    Limits {
        patience: PATIENCE,
        backoff_first: AWAY,
        backoff_max: AWAY,
        retry_after_max: PATIENCE,
        breaker_failures: FAILURES_MAX,
        probe_interval: AWAY,
        failover_wait: WORTH_WAITING,
        failback_after: RESTED / 20,
        silence_hint: PATIENCE,
        // How large a request is depends on what the stage does not know.
        context_main: ContextBudget { compacts: false, ..ContextBudget::main() },
        ..Limits::default()
    }
}

/// What the actors on the stage have in common.
#[derive(Debug, Default)]
pub(crate) struct ReplayContext {
    recording: Recording,
    /// What is left of the current prompt.
    attempts: Mutex<VecDeque<Attempt>>,
    calls: Mutex<VecDeque<CallId>>,
    session: OnceLock<SessionHandle>,
    count: AtomicU32,
    /// Time that has passed.
    passed: Mutex<Duration>,
    /// How long the next wait is, in `0.0..1.0`.
    jitter: Mutex<f64>,
}

impl ReplayContext {
    /// A stage for `recording`, whose turns were taken out.
    pub(crate) fn new(mut recording: Recording) -> ReplayContext {
        let calls = Mutex::new(std::mem::take(&mut recording.calls));
        ReplayContext { recording, calls, ..ReplayContext::default() }
    }

    /// The session, as soon as it runs. Its questions are answered as they were.
    pub(crate) fn enter(self: &Arc<Self>, session: SessionHandle) {
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
                    // The answer to another question is on its way.
                    Some((None, Some(AnswerEnd::Covered))) => {}
                    Some((None, _)) | None => answering.interrupt(),
                }
            }
        });
    }

    /// The next prompt begins.
    pub(crate) fn begin(&self, attempts: VecDeque<Attempt>) {
        *lock(&self.attempts) = attempts;
    }

    /// Says what the user said at this point.
    async fn say(&self, messages: Vec<Message>) {
        if let Some(session) = self.session.get() {
            for (kind, content) in messages {
                session.deliver(kind, content).await.ok();
            }
        }
    }

    /// The record goes no further: whoever runs is stopped, as it was then.
    async fn stop<T>(&self) -> T {
        if let Some(session) = self.session.get() {
            session.interrupt();
        }
        std::future::pending().await
    }

    fn count(&self) -> u32 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn pass(&self, time: Duration) {
        let mut passed = lock(&self.passed);
        *passed = passed.saturating_add(time);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says what was said, and fails as it failed.
#[derive(Debug)]
pub(crate) struct RecordedModel {
    /// Which of the contacts of the record.
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
                Some(next) if next.who != who => Err(stage.somebody_else(next.who)),
                Some(next) => stage.attempt(next, &deltas).await,
            }
        })
    }
}

impl ReplayContext {
    async fn attempt(
        &self,
        attempt: Attempt,
        deltas: &DeltaSender,
    ) -> Result<Completion, ProviderError> {
        let Attempt { who: _, text, usage, end } = attempt;
        if matches!(end, AttemptEnd::Failed { then: Then::Parked { .. }, .. }) {
            // Before anything arrives: patience does not run out while it does.
            self.pass(PATIENCE * 2);
        }
        if let Some(usage) = usage {
            deltas.send(Delta::Usage(usage)).await.ok();
        }
        if !text.is_empty() {
            deltas.send(Delta::Text(text)).await.ok();
        }
        match end {
            AttemptEnd::Reply { completion, messages, rested } => {
                // What was said while it worked is said before it goes on.
                self.say(messages).await;
                if rested {
                    self.pass(RESTED);
                }
                Ok(*completion)
            }
            AttemptEnd::Hung => self.stop().await,
            // Which of several is back first, and when, the record does not say.
            AttemptEnd::Failed { then: Then::Parked { .. }, .. }
                if self.recording.contacts.len() > 1 =>
            {
                self.stop().await
            }
            AttemptEnd::Failed { class, cause, then } => {
                let (jitter, wait) = match then {
                    Then::Again => (0.0, Some(AGAIN)),
                    // A tenth is below all that is told apart, the rest is the order.
                    Then::Over { away } => (0.95 + 0.04 * away, Some(AWAY)),
                    Then::Parked { known } => (0.95, known.then_some(AWAY)),
                };
                *lock(&self.jitter) = jitter;
                Err(attempts::failure(&class, &cause, wait))
            }
        }
    }

    fn somebody_else(&self, who: usize) -> ProviderError {
        let profile = self.recording.contacts.get(who).map_or("nobody", |contact| &contact.profile);
        let source = format!("the record says that {profile} was asked").into();
        ProviderError::Rejected { source }
    }
}

/// Returns what a tool returned, and does nothing.
#[derive(Debug)]
pub(crate) struct RecordedTool {
    spec: ToolSpec,
    stage: Arc<ReplayContext>,
}

impl RecordedTool {
    /// A tool of that name. `known` is how it looks today, if there still is one.
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
            let said = stage.recording.said.get(&context.call.call_id);
            stage.say(said.cloned().unwrap_or_default()).await;
            match stage.recording.outcomes.get(&context.call.call_id) {
                Some(output) => output.clone(),
                None => stage.stop().await,
            }
        })
    }
}

/// Asks where it was asked. What a rule refused is recorded as a result; everything else may run,
/// for nothing does anything.
#[derive(Debug)]
pub(crate) struct RecordedPolicy(pub(crate) Arc<ReplayContext>);

impl Policy for RecordedPolicy {
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict {
        let confinement = Confinement {
            profile: "record".to_owned(),
            writable_roots: Vec::new(),
            network: false,
        };
        let asked = self.0.recording.asked.get(&CallId::new(action.digest.clone()));
        let Some(asked) = asked else { return Verdict::Allow(confinement) };
        if asked.end == Some(AnswerEnd::Covered) && !situation.grants.is_empty() {
            return Verdict::Allow(confinement);
        }
        Verdict::Ask(PermissionQuestion {
            reason: asked.reason.clone(),
            scopes: vec![Scope::Once, Scope::Session],
            grant: asked.grant.clone(),
            yes_covers: false,
            rule: None,
            confinement,
        })
    }
}

/// Time passes only where something waits for it, and then at once.
#[derive(Debug)]
pub(crate) struct StageClock(pub(crate) Arc<ReplayContext>);

impl Clock for StageClock {
    fn monotonic(&self) -> Duration {
        *lock(&self.0.passed)
    }

    fn wall_ms(&self) -> u64 {
        self.0.recording.started_ms
    }

    fn sleep(&self, duration: Duration) -> PortFuture<()> {
        let stage = Arc::clone(&self.0);
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
            let mut passed = lock(&stage.passed);
            *passed = until.max(*passed);
        })
    }

    fn jitter(&self) -> f64 {
        *lock(&self.0.jitter)
    }
}

/// Calls get the ids that they had; everything else is counted.
#[derive(Debug)]
pub(crate) struct RecordedIds(pub(crate) Arc<ReplayContext>);

impl Ids for RecordedIds {
    fn call(&self) -> CallId {
        let next = lock(&self.0.calls).pop_front();
        next.unwrap_or_else(|| CallId::new(format!("new-{}", self.0.count())))
    }

    fn invocation(&self) -> InvocationId {
        InvocationId::new(format!("i{}", self.0.count()))
    }

    fn question(&self) -> QuestionId {
        QuestionId::new(format!("q{}", self.0.count()))
    }

    fn message(&self) -> MessageId {
        MessageId::new(format!("m{}", self.0.count()))
    }

    fn record(&self) -> RecordId {
        RecordId { process: 0, count: self.0.count() }
    }
}
