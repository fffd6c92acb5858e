//! Scripted tools for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::conversation::CallId;
use crate::event::UserRequest;
use crate::ports::{
    Action, CallContext, CommandDeletions, Operation, PermittedCall, PortFuture, Prepared,
    RunContext, SideEffect, Tool, ToolAnnotations, ToolError, ToolOutput, ToolSpec,
};

fn spec(name: &str, side_effect: SideEffect) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: format!("{name} for tests"),
        parameters: json!({
            "type": "object",
            "properties": { "text": { "type": "string" } },
            "required": [],
        }),
        side_effect,
        source: "programmatic".to_owned(),
        annotations: ToolAnnotations::default(),
    }
}

fn prepared(tool: &str, arguments: &Value) -> Prepared {
    let text = arguments["text"].as_str().unwrap_or_default().to_owned();
    let operation = Operation::Execute {
        command: text.clone(),
        cwd: "/project".to_owned(),
        links: Vec::new(),
        replaces: Vec::new(),
        deletions: CommandDeletions::default(),
        in_trial: false,
        secrets: crate::ports::CommandSecrets::default(),
    };
    let action = Action {
        tool: tool.to_owned(),
        operations: vec![operation],
        summary: format!("{tool} {text}"),
        detail: text.clone(),
        digest: format!("{tool}:{text}"),
    };
    Prepared { action, payload: Box::new(text) }
}

fn text_of(call: PermittedCall) -> String {
    call.into_payload().downcast::<String>().map(|text| *text).unwrap_or_default()
}

type PrepareResult = PortFuture<Result<Prepared, ToolError>>;

/// Counters of the runs of a tool. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct RunCounter {
    /// Number of runs that began.
    pub began: Arc<AtomicU32>,
    /// Number of runs that were dropped before they ended; only [`HangingTool`] counts them.
    pub dropped: Arc<AtomicU32>,
}

/// Tool without side effects that returns its argument `text`.
#[derive(Debug)]
pub struct EchoTool(ToolSpec);

impl EchoTool {
    /// Creates the tool `echo`.
    #[expect(clippy::new_without_default, reason = "a tool is made by name")]
    pub fn new() -> EchoTool {
        EchoTool(spec("echo", SideEffect::None))
    }
}

impl Tool for EchoTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PrepareResult {
        Box::pin(async move { Ok(prepared("echo", &arguments)) })
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        Box::pin(async move { ToolOutput::text(text_of(call)) })
    }
}

/// Tool that is declared to change files, but only counts its runs and returns `wrote` with its
/// argument `text`.
#[derive(Debug)]
pub struct WritingTool(ToolSpec, RunCounter);

impl WritingTool {
    /// Creates the tool `write`, which counts its runs in `run_counter`.
    pub fn new(run_counter: RunCounter) -> WritingTool {
        WritingTool(spec("write", SideEffect::Workspace), run_counter)
    }
}

impl Tool for WritingTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PrepareResult {
        Box::pin(async move { Ok(prepared("write", &arguments)) })
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        self.1.began.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { ToolOutput::text(format!("wrote {}", text_of(call))) })
    }
}

/// Tool that is declared to run processes: outputs `begun`, and then never ends by itself.
#[derive(Debug)]
pub struct HangingTool(ToolSpec, RunCounter);

impl HangingTool {
    /// Creates the tool `hang`, which counts its runs in `run_counter`.
    pub fn new(run_counter: RunCounter) -> HangingTool {
        HangingTool(spec("hang", SideEffect::Process), run_counter)
    }
}

struct DropCount(Arc<AtomicU32>);

impl Drop for DropCount {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Tool for HangingTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PrepareResult {
        Box::pin(async move { Ok(prepared("hang", &arguments)) })
    }

    fn run(&self, _: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        self.1.began.fetch_add(1, Ordering::SeqCst);
        let guard = DropCount(Arc::clone(&self.1.dropped));
        Box::pin(async move {
            let _guard = guard;
            let begun = crate::ports::OutputDelta { text: "begun".to_owned() };
            context.output.send(begun).await.ok();
            std::future::pending().await
        })
    }
}

/// Tool that panics when it runs.
#[derive(Debug)]
pub struct PanickingTool(ToolSpec);

impl PanickingTool {
    /// Creates the tool `panic` with this side effect.
    pub fn new(side_effect: SideEffect) -> PanickingTool {
        PanickingTool(spec("panic", side_effect))
    }
}

impl Tool for PanickingTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PrepareResult {
        Box::pin(async move { Ok(prepared("panic", &arguments)) })
    }

    fn run(&self, _: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        Box::pin(async move { panic!("the tool panics") })
    }
}

/// Tool without side effects that counts its runs, waits for its gate, and returns its argument
/// `text`.
#[derive(Debug)]
pub struct GatedTool(ToolSpec, RunCounter, Arc<Semaphore>);

impl GatedTool {
    /// Creates the tool `gated`, which counts its runs in `run_counter`. Each permit of `gate` lets
    /// one run end.
    pub fn new(run_counter: RunCounter, gate: Arc<Semaphore>) -> GatedTool {
        GatedTool(spec("gated", SideEffect::None), run_counter, gate)
    }
}

impl Tool for GatedTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PrepareResult {
        Box::pin(async move { Ok(prepared("gated", &arguments)) })
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        self.1.began.fetch_add(1, Ordering::SeqCst);
        let gate = Arc::clone(&self.2);
        Box::pin(async move {
            if let Ok(permit) = gate.acquire().await {
                permit.forget();
            }
            ToolOutput::text(text_of(call))
        })
    }
}

/// Tool that is declared to change files, whose prepared effect changes with each of the first
/// preparations and then stays the same. Its result is the digest of the effect that ran.
#[derive(Debug)]
pub struct ChangingTool(ToolSpec, RunCounter, AtomicU32, u32);

impl ChangingTool {
    /// Creates the tool `change`, whose effect stays the same after `changes` changes.
    pub fn new(run_counter: RunCounter, changes: u32) -> ChangingTool {
        ChangingTool(spec("change", SideEffect::Workspace), run_counter, AtomicU32::new(0), changes)
    }
}

impl Tool for ChangingTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PrepareResult {
        let nth = self.2.fetch_add(1, Ordering::SeqCst).min(self.3);
        Box::pin(async move {
            let mut prepared = prepared("change", &arguments);
            prepared.action.digest = format!("version {nth}");
            Ok(prepared)
        })
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        self.1.began.fetch_add(1, Ordering::SeqCst);
        let digest = call.action().digest.clone();
        Box::pin(async move { ToolOutput::text(digest) })
    }
}

/// Function that a [`GuardedTool`] calls with the id of each call that runs.
type Guard = Arc<dyn Fn(&CallId) + Send + Sync>;

/// Tool that calls a function when a call runs, and returns its argument `text`.
pub struct GuardedTool(ToolSpec, Guard);

impl GuardedTool {
    /// Creates the tool `guarded` without side effects, which calls `guard`.
    pub fn new(guard: impl Fn(&CallId) + Send + Sync + 'static) -> GuardedTool {
        GuardedTool(spec("guarded", SideEffect::None), Arc::new(guard))
    }

    /// Creates the tool `guarded` with a side effect, which calls `guard`.
    pub fn with_effect(guard: impl Fn(&CallId) + Send + Sync + 'static) -> GuardedTool {
        GuardedTool(spec("guarded", SideEffect::Workspace), Arc::new(guard))
    }

    /// Sets the name of the tool.
    #[must_use]
    pub fn named(mut self, name: &str) -> GuardedTool {
        name.clone_into(&mut self.0.name);
        self
    }
}

impl std::fmt::Debug for GuardedTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuardedTool")
    }
}

impl Tool for GuardedTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PrepareResult {
        Box::pin(async move { Ok(prepared("guarded", &arguments)) })
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        (self.1)(&context.call.call_id);
        Box::pin(async move { ToolOutput::text(text_of(call)) })
    }
}

/// Tool that asks the user, and returns the answer as text.
#[derive(Debug)]
pub struct AskingTool(ToolSpec, UserRequest);

impl AskingTool {
    /// Creates the tool `ask` without side effects, whose calls make `request`.
    pub fn new(request: UserRequest) -> AskingTool {
        AskingTool(spec("ask", SideEffect::None), request)
    }
}

impl Tool for AskingTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PrepareResult {
        Box::pin(async move { Ok(prepared("ask", &arguments)) })
    }

    fn user_request(&self, _: &Value) -> Option<UserRequest> {
        Some(self.1.clone())
    }

    fn run(&self, _: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        Box::pin(async move { ToolOutput::text(format!("{:?}", context.answer)) })
    }
}
