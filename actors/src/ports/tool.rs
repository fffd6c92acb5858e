//! Tool port: a call is first prepared, which describes its exact effect, and run after it was
//! permitted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::conversation::{CallId, ContentPart, InvocationId, SessionId};
use crate::event::{Event, Origin};
use crate::ports::{PermittedCall, PortFuture, Prepared};

/// A tool for models.
///
/// [`prepare`](Tool::prepare) turns arguments into a [`Prepared`] value: canonical operations,
/// resolved descriptors, the bytes to write. [`run`](Tool::run) accepts only a [`PermittedCall`],
/// which contains that value, so exactly what was judged runs.
pub trait Tool: Send + Sync + 'static {
    /// Name, description and schema, as the model sees them.
    fn spec(&self) -> &ToolSpec;

    /// The tool that this one wraps, if any. The defaults of the other methods forward to it, so a
    /// wrapper overrides only the methods that it changes.
    fn inner(&self) -> Option<&dyn Tool> {
        None
    }

    /// Background work of calls of `origin`, one line each with the way to query it. Shown to an
    /// agent whose history no longer contains its start.
    fn background_work(&self, origin: &Origin) -> Vec<String> {
        self.inner().map_or_else(Vec::new, |inner| inner.background_work(origin))
    }

    /// Computes the effect of a call without performing it. `arguments` match the schema.
    fn prepare(
        &self,
        arguments: Value,
        context: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>>;

    /// Does it. Dropping the future cancels: processes die with it.
    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput>;

    /// Advice for the model after a denial, if any.
    fn denial_advice(&self) -> Option<&str> {
        self.inner().and_then(|inner| inner.denial_advice())
    }

    /// The history was compacted: the model may no longer see earlier output.
    fn history_shortened(&self) {
        if let Some(inner) = self.inner() {
            inner.history_shortened();
        }
    }

    /// Stops background work of calls. Completes when no process of it is left.
    fn stop_background(&self, what: &BackgroundScope) -> PortFuture<()> {
        match self.inner() {
            Some(inner) => inner.stop_background(what),
            None => Box::pin(std::future::ready(())),
        }
    }
}

/// Scope of background work to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackgroundScope {
    /// Work of this call, on request of a person.
    Call(CallId),
    /// Work of a subagent that has ended.
    Invocation(InvocationId),
    /// All work, because a person stopped everything.
    All,
    /// All work, because the session ends.
    Session,
}

/// Message about a call after its end, from its background work.
#[derive(Debug, Clone, PartialEq)]
pub enum PostCallMessage {
    /// Happened in its name.
    Fact(Box<Event>),
    /// For the agent that made the call: delivered at its next safe point, without starting a run.
    Notice(Vec<ContentPart>),
}

/// Sends messages about a finished call. Holds only weak references, so it does not keep the
/// session alive.
#[derive(Clone)]
pub struct PostCallSink(Arc<dyn Fn(PostCallMessage) + Send + Sync>);

impl PostCallSink {
    /// Delivers messages to `hear`.
    pub fn new(hear: impl Fn(PostCallMessage) + Send + Sync + 'static) -> PostCallSink {
        PostCallSink(Arc::new(hear))
    }

    /// Sends a message.
    pub fn send(&self, message: PostCallMessage) {
        (self.0)(message);
    }
}

impl fmt::Debug for PostCallSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aftermath").finish_non_exhaustive()
    }
}

/// Description of a tool for the model and the runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Stable, snake case.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments: an object with `properties` and `required`.
    pub parameters: Value,
    /// Its side effects.
    pub side_effect: SideEffect,
    /// Its source: `builtin`, `user`, `project`, `programmatic`.
    pub source: String,
    /// Facts for permissions, hooks and agents. Not sent to models.
    pub annotations: ToolAnnotations,
}

/// Facts about a tool on which permissions, hooks and agents depend, so that they need no list of
/// tool names. The default is a tool about which nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolAnnotations {
    /// What it accesses.
    pub access: Access,
    /// Name in permission rules that it shares with similar tools, such as `Edit`.
    pub rule_group: Option<String>,
    /// Other tools and groups whose ask and deny rules also apply to it.
    pub restricted_by: Vec<String>,
    /// True if a call reads or changes the one file that its `path` argument names.
    pub opens_file: bool,
    /// The tool together with which an agent sees it; `None`: it is selected by its own name.
    pub visible_with: Option<String>,
}

impl ToolAnnotations {
    /// Annotations of a tool with that access and no others.
    pub fn new(access: Access) -> ToolAnnotations {
        ToolAnnotations { access, ..ToolAnnotations::default() }
    }

    /// Annotations of a tool whose `path` argument names the one file that a call opens.
    #[must_use]
    pub fn opening_file(self) -> ToolAnnotations {
        ToolAnnotations { opens_file: true, ..self }
    }

    /// Sets the name that it shares with similar tools in permission rules.
    #[must_use]
    pub fn in_rules(mut self, group: &str) -> ToolAnnotations {
        self.rule_group = Some(group.to_owned());
        self
    }
}

/// Access of a tool, on which the default permission of its calls depends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// Reads files.
    Read,
    /// Changes files. A call that only reports why a change does not fit reads them.
    Write,
    /// Runs commands.
    Process,
    /// Uses the network.
    Network,
    /// Queries or controls only what the session owns and has permitted before: its jobs, subagents
    /// and skills.
    Session,
    /// Unknown.
    #[default]
    Unknown,
}

impl Access {
    /// The usual side effect of a tool with this access.
    pub fn side_effect(self) -> SideEffect {
        match self {
            Access::Read | Access::Session => SideEffect::None,
            Access::Write => SideEffect::Workspace,
            Access::Process => SideEffect::Process,
            Access::Network => SideEffect::Network,
            Access::Unknown => SideEffect::External,
        }
    }
}

/// Side effects of a tool. Calls without side effects may run in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideEffect {
    /// None.
    None,
    /// Files.
    Workspace,
    /// Processes.
    Process,
    /// The network.
    Network,
    /// Any other.
    External,
}

/// Origin of a call.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The session.
    pub session_id: SessionId,
    /// The call.
    pub call_id: CallId,
    /// The agent that asks.
    pub agent: String,
    /// Its invocation, and those above it.
    pub origin: Arc<Origin>,
}

impl CallContext {
    /// Key of the file-read table: one for the main agent's conversation over all prompts, one per
    /// subagent.
    pub fn reader(&self) -> &str {
        match &self.origin.parent_invocation_id {
            None => &self.agent,
            Some(_) => self.origin.invocation_id.as_str(),
        }
    }
}

/// Failed preparation. The text is for the model: the error and its fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} {message}")]
pub struct ToolError {
    /// `ARG002`, `EDT001`, …
    pub code: &'static str,
    /// Short, actionable, without details of the host.
    pub message: String,
}

impl ToolError {
    /// An error the model can act on.
    pub fn new(code: &'static str, message: impl Into<String>) -> ToolError {
        ToolError { code, message: message.into() }
    }
}

/// Piece of live output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputDelta {
    /// Valid UTF-8; control characters are the observer's to escape.
    pub text: String,
}

/// Resources of a running call.
#[derive(Clone)]
pub struct RunContext {
    /// Origin of the call.
    pub call: CallContext,
    /// Live output. Bounded; use `try_send` and drop what does not fit, it is for display only.
    pub output: mpsc::Sender<OutputDelta>,
    /// Facts to record, such as [`Event::SandboxEnforced`]. Bounded.
    pub facts: mpsc::Sender<Event>,
    /// For background work after the call has ended.
    pub post_call: PostCallSink,
    /// Bytes of text that a tool should return. The tool itself cuts and spills more than that; the
    /// kernel cuts at `Limits::result_bytes_max`.
    pub output_bytes_max: usize,
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("call", &self.call).finish_non_exhaustive()
    }
}

/// Result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// Content for the model.
    pub content: Vec<ContentPart>,
    /// True if it failed. A command that exits with 1 has not failed: it has an exit code.
    pub is_error: bool,
    /// Data for programs: exit code, diff, counts.
    pub metadata: Value,
}

impl ToolOutput {
    /// A good end with one text.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput {
            content: vec![ContentPart::text(text)],
            is_error: false,
            metadata: Value::Null,
        }
    }

    /// A bad end with one text for the model.
    pub fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_error: true, ..ToolOutput::text(text) }
    }

    /// Adds data for programs.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Value) -> ToolOutput {
        self.metadata = metadata;
        self
    }
}

/// The tools of a session, by name.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, Arc<dyn Tool>>,
}

impl Toolbox {
    /// Adds `tool`. If the name is taken, the existing tool stays and the new one is returned.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), Arc<dyn Tool>> {
        match self.tools.entry(tool.spec().name.clone()) {
            std::collections::btree_map::Entry::Occupied(_) => Err(tool),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(tool);
                Ok(())
            }
        }
    }

    /// A copy in which tools of `others` replace those with the same names.
    #[must_use]
    pub fn with(&self, others: &Toolbox) -> Toolbox {
        let mut tools = self.tools.clone();
        tools.extend(others.tools.iter().map(|(name, tool)| (name.clone(), Arc::clone(tool))));
        Toolbox { tools }
    }

    /// A copy in which `wrap` wraps each tool.
    #[must_use]
    pub fn map(&self, wrap: impl Fn(&Arc<dyn Tool>) -> Arc<dyn Tool>) -> Toolbox {
        Toolbox {
            tools: self.tools.iter().map(|(name, tool)| (name.clone(), wrap(tool))).collect(),
        }
    }

    /// The tool of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// Every tool, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.values()
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.keys()).finish()
    }
}
