//! The world of a session that runs again: its model and its tools answer from the record.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use posse_actors::conversation::{CallId, InvocationId, MessageId, QuestionId};
use posse_actors::ports::{
    Action, CallContext, Clock, Completion, Confinement, DeltaSender, Ids, Policy, PortFuture,
    Prepared, Provider, ProviderError, ProviderInfo, Request, RunContext, SideEffect, Situation,
    Tool, ToolError, ToolOutput, ToolSpec, Verdict,
};
use posse_actors::record::RecordId;
use posse_actors::root_session::SessionHandle;
use posse_actors::tool_call::PermittedCall;
use serde_json::{Value, json};

use crate::replaying::recording::{Message, Recording, Reply};

/// What the actors on the stage have in common.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    recording: Recording,
    /// What is left of the current prompt.
    replies: Mutex<VecDeque<Reply>>,
    failure: Mutex<Option<String>>,
    calls: Mutex<VecDeque<CallId>>,
    session: OnceLock<SessionHandle>,
    count: AtomicU32,
}

impl Stage {
    /// A stage for `recording`, whose turns were taken out.
    pub(crate) fn new(mut recording: Recording) -> Stage {
        let calls = Mutex::new(std::mem::take(&mut recording.calls));
        Stage { recording, calls, ..Stage::default() }
    }

    /// The session, as soon as it runs.
    pub(crate) fn enter(&self, session: SessionHandle) {
        self.session.set(session).ok();
    }

    /// The next prompt begins.
    pub(crate) fn begin(&self, replies: VecDeque<Reply>, failure: Option<String>) {
        *lock(&self.replies) = replies;
        *lock(&self.failure) = failure;
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
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says what was said.
#[derive(Debug)]
pub(crate) struct RecordedModel(pub(crate) Arc<Stage>);

impl Provider for RecordedModel {
    fn info(&self) -> ProviderInfo {
        let Recording { provider, model, .. } = &self.0.recording;
        ProviderInfo {
            profile: provider.clone(),
            model: model.clone(),
            endpoint: "record:".to_owned(),
        }
    }

    fn complete(
        &self,
        _: Request,
        _: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let stage = Arc::clone(&self.0);
        Box::pin(async move {
            let next = lock(&stage.replies).pop_front();
            let Some(Reply { completion, messages }) = next else {
                let failure = lock(&stage.failure).take();
                return match failure.as_deref().and_then(|class| class.strip_prefix("provider.")) {
                    Some(class) => Err(ProviderError::of_class(class, "as it is recorded".into())),
                    None => stage.stop().await,
                };
            };
            // What was said while it worked is said before it goes on.
            stage.say(messages).await;
            Ok(completion)
        })
    }
}

/// Returns what a tool returned, and does nothing.
#[derive(Debug)]
pub(crate) struct RecordedTool {
    spec: ToolSpec,
    stage: Arc<Stage>,
}

impl RecordedTool {
    /// A tool of that name. `known` is how it looks today, if there still is one.
    pub(crate) fn new(name: &str, known: Option<&ToolSpec>, stage: Arc<Stage>) -> RecordedTool {
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
        let action = Action {
            tool: self.spec.name.clone(),
            operations: Vec::new(),
            summary: format!("{} (recorded)", self.spec.name),
            detail: String::new(),
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

/// What was refused is recorded as a result; everything else may run, for nothing does anything.
#[derive(Debug)]
pub(crate) struct EverythingAllowed;

impl Policy for EverythingAllowed {
    fn judge(&self, _: &Action, _: &Situation<'_>) -> Verdict {
        Verdict::Allow(Confinement {
            profile: "record".to_owned(),
            writable_roots: Vec::new(),
            network: false,
        })
    }
}

/// Time as it was when the session began; it does not pass.
#[derive(Debug)]
pub(crate) struct StillClock(pub(crate) Arc<Stage>);

impl Clock for StillClock {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn wall_ms(&self) -> u64 {
        self.0.recording.started_ms
    }

    fn sleep(&self, duration: Duration) -> PortFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn jitter(&self) -> f64 {
        0.0
    }
}

/// Calls get the ids that they had; everything else is counted.
#[derive(Debug)]
pub(crate) struct RecordedIds(pub(crate) Arc<Stage>);

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
