//! Scripted model for tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::conversation::{AssistantMessage, CallId, Message, StopReason, ToolCall, Usage};
use crate::ports::{
    Clock, Completion, Delta, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo,
    Request,
};
use crate::testing::clock::ManualClock;

/// Function that computes a step from the messages of a request.
type StepFn = dyn Fn(&[Arc<Message>]) -> ModelStep + Send;

/// Behaviour of a [`ScriptedModel`] in one attempt.
pub enum ModelStep {
    /// Streams these pieces of text, then ends the reply.
    Say(Vec<String>),
    /// Requests tool calls, given by name and arguments as JSON text, without visible text.
    Call(Vec<(String, String)>),
    /// Streams this piece of text, unless it is empty, then fails with the error.
    Fail(String, ProviderError),
    /// Streams this piece of text, then stays silent.
    Hang(String),
    /// Fails each attempt as overloaded until this monotonic time of the clock. Then the next step
    /// follows, which must not be `Away`. Only as a step of the script, not inside another step.
    Away(Arc<ManualClock>, Duration),
    /// Panics during the attempt, like an adapter with a bug.
    Panic,
    /// Ends the reply with this reason and this text, without streaming.
    End(StopReason, String),
    /// Returns this reply unchanged.
    Reply(Completion),
    /// Reports these token counts, then performs the step.
    Counted(Usage, Box<ModelStep>),
    /// Waits for the notification, then performs the step.
    After(Arc<Notify>, Box<ModelStep>),
    /// Performs the step that the function returns for the messages of the request. Only as a step
    /// of the script, not inside another step.
    Computed(Box<StepFn>),
}

impl ModelStep {
    /// Step that replies with `text` in one piece.
    pub fn say(text: &str) -> ModelStep {
        ModelStep::Say(vec![text.to_owned()])
    }

    /// Step that calls the tool `name` once for each text, with the argument `text`.
    pub fn calls(name: &str, texts: &[&str]) -> ModelStep {
        let call = |text: &&str| (name.to_owned(), format!(r#"{{"text":{text:?}}}"#));
        ModelStep::Call(texts.iter().map(call).collect())
    }

    /// Step that waits for `gate`, then performs `step`.
    pub fn after(gate: &Arc<Notify>, step: ModelStep) -> ModelStep {
        ModelStep::After(Arc::clone(gate), Box::new(step))
    }

    /// Step that calls the tool `name` once, with `arguments` as JSON text.
    pub fn call(name: &str, arguments: &str) -> ModelStep {
        ModelStep::Call(vec![(name.to_owned(), arguments.to_owned())])
    }
}

impl std::fmt::Debug for ModelStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ModelStep")
    }
}

/// Provider that performs one step per attempt, in order, and stores the messages of each attempt.
/// After the last step it replies with `(the script is over)`.
#[derive(Debug)]
pub struct ScriptedModel {
    steps: Mutex<VecDeque<ModelStep>>,
    name: String,
    model: String,
    requests: Arc<Mutex<Vec<Vec<Arc<Message>>>>>,
    streamed: Mutex<Vec<bool>>,
    dropped: Arc<Mutex<u32>>,
    probes: Mutex<Vec<Duration>>,
}

impl ScriptedModel {
    /// Creates a model that performs `steps`.
    pub fn new(steps: Vec<ModelStep>) -> ScriptedModel {
        ScriptedModel {
            steps: Mutex::new(steps.into()),
            name: "scripted".to_owned(),
            model: "script-1".to_owned(),
            requests: Arc::default(),
            streamed: Mutex::default(),
            dropped: Arc::default(),
            probes: Mutex::default(),
        }
    }

    /// Sets the name of the profile, and `{name}-1` as the model.
    #[must_use]
    pub fn named(self, name: &str) -> ScriptedModel {
        ScriptedModel { name: name.to_owned(), model: format!("{name}-1"), ..self }
    }

    fn next_step(&self) -> Option<ModelStep> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ModelStep::Away(clock, until)) = steps.front() {
            let now = clock.monotonic();
            if now < *until {
                self.probes.lock().unwrap_or_else(PoisonError::into_inner).push(now);
                let source = "busy".into();
                let error = ProviderError::Overloaded {
                    kind: crate::ports::OverloadKind::Overload,
                    retry_after: None,
                    source,
                };
                return Some(ModelStep::Fail(String::new(), error));
            }
            steps.pop_front();
        }
        steps.pop_front()
    }

    /// Monotonic times, by the clock of the step, of the attempts that failed because of
    /// [`ModelStep::Away`].
    pub fn probes(&self) -> Vec<Duration> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The messages of each attempt so far.
    pub fn requests(&self) -> Vec<Vec<Arc<Message>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For each attempt so far, true if it asked for a stream.
    pub fn streamed(&self) -> Vec<bool> {
        self.streamed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of attempts that were dropped before they ended, or panicked.
    pub fn dropped(&self) -> u32 {
        *self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of an attempt, which counts it if it is dropped before it has ended.
struct Attempt {
    ended: bool,
    dropped: Arc<Mutex<u32>>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.ended {
            *self.dropped.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
    }
}

impl Provider for ScriptedModel {
    fn info(&self) -> ProviderInfo {
        ProviderInfo {
            profile: self.name.clone(),
            model: self.model.clone(),
            endpoint: "nowhere".to_owned(),
        }
    }

    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let step = match self.next_step() {
            Some(ModelStep::Computed(tell)) => Some(tell(&request.messages)),
            step => step,
        };
        self.streamed.lock().unwrap_or_else(PoisonError::into_inner).push(request.stream);
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.messages);
        let mut attempt = Attempt { ended: false, dropped: Arc::clone(&self.dropped) };
        Box::pin(async move {
            // The whole of it, so that it is dropped with this future and not before.
            let attempt = &mut attempt;
            let step = step.unwrap_or_else(|| ModelStep::say("(the script is over)"));
            let result = play(step, &deltas).await;
            attempt.ended = true;
            result
        })
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only what comes before another step matters")]
async fn play(mut step: ModelStep, deltas: &DeltaSender) -> Result<Completion, ProviderError> {
    loop {
        step = match step {
            ModelStep::After(gate, then) => {
                gate.notified().await;
                *then
            }
            ModelStep::Counted(usage, then) => {
                deltas.send(Delta::Usage(usage)).await.ok();
                *then
            }
            step => break play_now(step, deltas).await,
        };
    }
}

async fn play_now(step: ModelStep, deltas: &DeltaSender) -> Result<Completion, ProviderError> {
    let say = async |text: &str| {
        deltas.send(Delta::Text(text.to_owned())).await.ok();
    };
    match step {
        ModelStep::After(..)
        | ModelStep::Counted(..)
        | ModelStep::Away(..)
        | ModelStep::Computed(_) => {
            unreachable!("gates and absences are behind us")
        }
        ModelStep::Reply(completion) => Ok(completion),
        ModelStep::Say(pieces) => {
            for piece in &pieces {
                say(piece).await;
            }
            Ok(completion(Some(pieces.concat()), Vec::new(), StopReason::EndTurn))
        }
        ModelStep::Call(calls) => Ok(completion(None, calls, StopReason::ToolUse)),
        ModelStep::Fail(text, error) => {
            if !text.is_empty() {
                say(&text).await;
            }
            Err(error)
        }
        ModelStep::Hang(text) => {
            say(&text).await;
            std::future::pending().await
        }
        ModelStep::Panic => panic!("the scripted model panics"),
        ModelStep::End(reason, text) => Ok(completion(Some(text), Vec::new(), reason)),
    }
}

fn completion(
    content: Option<String>,
    calls: Vec<(String, String)>,
    stop_reason: StopReason,
) -> Completion {
    // Every reply numbers its calls from one, as some models do.
    let call = |(nth, (name, arguments)): (usize, (String, String))| ToolCall {
        id: CallId::new(format!("{}", nth + 1)),
        provider_id: None,
        name,
        arguments,
    };
    let tool_calls = calls.into_iter().enumerate().map(call).collect();
    let usage = Usage { input_tokens: Some(10), output_tokens: Some(2), ..Usage::default() };
    Completion {
        message: AssistantMessage { content, reasoning: None, tool_calls },
        stop_reason,
        usage: Some(usage),
        model: None,
    }
}
