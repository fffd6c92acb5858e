//! Built-in tool made of two functions on shared state.

use std::any::Any;
use std::future::ready;
use std::sync::Arc;

use posse_actors::event::{EditHunk, HunkAnswer, Origin, UserRequest};
use posse_actors::ports::{
    CallContext, ChosenHunks, PermittedCall, PortFuture, Prepared, RunContext, Tool, ToolError,
    ToolOutput, ToolSpec,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{parsed, refusal};

/// Output of a call, or the error for the model.
pub type RunResult = Result<ToolOutput, ToolError>;

/// A tool made of two functions with shared state `S`. `prepare` gets the parsed arguments `A`, and
/// `run` the payload `P` that `prepare` attached to the call. A call that `prepare` turned into a
/// refusal (see `refusal.rs`) fails without `run`.
#[derive(Debug)]
pub struct BuiltinTool<S, A, P, F, G> {
    spec: ToolSpec,
    state: Arc<S>,
    prepare: fn(Arc<S>, A, CallContext) -> F,
    run: fn(Arc<S>, P, RunContext) -> G,
    /// Advice for the model after a denial, if any. See [`Tool::denial_advice`].
    pub(crate) if_denied: Option<&'static str>,
    /// Called after a compaction of the history. See [`Tool::history_shortened`].
    pub(crate) history_shortened: fn(&S),
    /// Lists the background work of an agent. See [`Tool::background_work`].
    pub(crate) background_work: fn(&S, &Origin) -> Vec<String>,
    /// Request to the user that a call with these arguments makes. See [`Tool::user_request`].
    pub(crate) user_request: fn(&Value) -> Option<UserRequest>,
    /// Hunks of the effect in this payload. See [`Tool::hunks`].
    pub(crate) hunks: fn(&P) -> Vec<EditHunk>,
    /// Reduces the effect in this payload to some of its hunks. See [`Tool::choose_hunks`].
    pub(crate) choose_hunks: ChooseHunks<P>,
}

/// Function that reduces the effect in a payload `P` to some of its hunks.
type ChooseHunks<P> = fn(P, Vec<HunkAnswer>) -> PortFuture<Result<ChosenHunks, ToolError>>;

impl<S, A, P, F, G> BuiltinTool<S, A, P, F, G> {
    /// Creates a tool that has no background work, asks the user nothing, has no hunks, gives no
    /// advice after a denial and does nothing after a compaction.
    pub fn new(
        spec: ToolSpec,
        state: Arc<S>,
        prepare: fn(Arc<S>, A, CallContext) -> F,
        run: fn(Arc<S>, P, RunContext) -> G,
    ) -> Self {
        let (history_shortened, background_work) = (|_: &S| {}, |_: &S, _: &Origin| Vec::new());
        Self {
            spec,
            state,
            prepare,
            run,
            if_denied: None,
            history_shortened,
            background_work,
            user_request: |_| None,
            hunks: |_| Vec::new(),
            choose_hunks: |_, _| Box::pin(ready(Err(no_hunks()))),
        }
    }
}

/// Error for an effect that has no hunks.
fn no_hunks() -> ToolError {
    ToolError::new("EDT008", "the call has no hunks; nothing was changed")
}

impl<S, A, P, F, G> Tool for BuiltinTool<S, A, P, F, G>
where
    S: Send + Sync + 'static,
    A: DeserializeOwned + 'static,
    P: 'static,
    F: Future<Output = Result<Prepared, ToolError>> + Send + 'static,
    G: Future<Output = RunResult> + Send + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn background_work(&self, origin: &Origin) -> Vec<String> {
        (self.background_work)(&self.state, origin)
    }

    fn prepare(
        &self,
        arguments: Value,
        call: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>> {
        match parsed(arguments) {
            Ok(arguments) => Box::pin((self.prepare)(Arc::clone(&self.state), arguments, call)),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn user_request(&self, arguments: &Value) -> Option<UserRequest> {
        (self.user_request)(arguments)
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        let running = refusal::payload(call)
            .map(|payload| (self.run)(Arc::clone(&self.state), payload, context));
        Box::pin(async move {
            let output = match running {
                Ok(running) => running.await,
                Err(refused) => Err(refused),
            };
            output.unwrap_or_else(|error| ToolOutput::error(error.to_string()))
        })
    }

    fn hunks(&self, prepared: &Prepared) -> Vec<EditHunk> {
        prepared.payload.downcast_ref().map_or_else(Vec::new, self.hunks)
    }

    fn choose_hunks(
        &self,
        payload: Box<dyn Any + Send>,
        answers: Vec<HunkAnswer>,
    ) -> PortFuture<Result<ChosenHunks, ToolError>> {
        match payload.downcast::<P>() {
            Ok(payload) => (self.choose_hunks)(*payload, answers),
            Err(_) => Box::pin(ready(Err(no_hunks()))),
        }
    }

    fn denial_advice(&self) -> Option<&str> {
        self.if_denied
    }

    fn history_shortened(&self) {
        (self.history_shortened)(&self.state);
    }
}
