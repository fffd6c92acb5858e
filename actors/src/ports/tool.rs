//! A tool: first it says exactly what a call would do, then, if that was permitted, it does that.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::conversation::{CallId, ContentPart, InvocationId, SessionId};
use crate::event::{Event, Origin};
use crate::ports::PortFuture;
use crate::tool_call::PermittedCall;

/// What a model may ask for.
///
/// [`prepare`](Tool::prepare) turns arguments into a [`Prepared`] value: canonical operations,
/// resolved descriptors, the bytes that would be written. [`run`](Tool::run) accepts nothing but
/// a [`PermittedCall`], which carries that value, so what runs is what was judged.
pub trait Tool: Send + Sync + 'static {
    /// Name, description and schema, as the model sees them.
    fn spec(&self) -> &ToolSpec;

    /// What calls of `origin` have left at work, a line each that says how it can be reached: told
    /// to an agent that cannot read any more how it began.
    fn background_work(&self, _origin: &Origin) -> Vec<String> {
        Vec::new()
    }

    /// Finds out what a call would do, without doing it. `arguments` fit the schema.
    fn prepare(
        &self,
        arguments: Value,
        context: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>>;

    /// Does it. Dropping the future cancels: processes die with it.
    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput>;

    /// What the model can do where a call is denied, if it can do anything.
    fn if_denied(&self) -> Option<&str> {
        None
    }

    /// The history was made shorter: the model may no longer see what it was shown before.
    fn history_shortened(&self) {}

    /// Ends what calls have left at work, and is done when nothing of it lives.
    fn stop_background(&self, _: &Release) -> PortFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// Whose work that outlives its call has to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// That of this call, because a person said so.
    Call(CallId),
    /// That of an agent which has ended.
    Invocation(InvocationId),
    /// Everything: a person stopped everybody.
    All,
    /// Everything: the session ends.
    Session,
}

/// What is said of a call after it has ended, by something that it left at work.
#[derive(Debug, Clone, PartialEq)]
pub enum After {
    /// Happened in its name.
    Fact(Box<Event>),
    /// For the agent that made the call: enters at its next safe point, and wakes nobody.
    Notice(Vec<ContentPart>),
}

/// The way to say it. Whoever holds it keeps nothing alive that it says something to.
#[derive(Clone)]
pub struct PostCallSink(Arc<dyn Fn(After) + Send + Sync>);

impl PostCallSink {
    /// Says it to `hear`.
    pub fn new(hear: impl Fn(After) + Send + Sync + 'static) -> PostCallSink {
        PostCallSink(Arc::new(hear))
    }

    /// Nobody hears it.
    pub fn unheard() -> PostCallSink {
        PostCallSink::new(drop)
    }

    /// Says it.
    pub fn say(&self, after: After) {
        (self.0)(after);
    }
}

impl fmt::Debug for PostCallSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aftermath").finish_non_exhaustive()
    }
}

/// How the model sees a tool, and what the runtime must know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSpec {
    /// Stable, snake case.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments: an object with `properties` and `required`.
    pub parameters: Value,
    /// What it can touch.
    pub side_effect: SideEffect,
    /// Who brought it: `builtin`, `user`, `project`, `programmatic`.
    pub source: String,
}

/// What a tool can touch. Calls without an effect may run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideEffect {
    /// Nothing.
    None,
    /// Files.
    Workspace,
    /// Processes.
    Process,
    /// The network.
    Network,
    /// Anything else.
    External,
}

/// Whose call this is.
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
    /// A call of a main agent that works alone.
    pub fn of_main(
        session: impl Into<Arc<str>>,
        call: impl Into<Arc<str>>,
        agent: &str,
    ) -> CallContext {
        let origin = Origin {
            invocation_id: InvocationId::new("main"),
            parent_invocation_id: None,
            agent: agent.to_owned(),
            agent_path: agent.to_owned(),
        };
        CallContext {
            session_id: SessionId::new(session),
            call_id: CallId::new(call),
            agent: agent.to_owned(),
            origin: Arc::new(origin),
        }
    }

    /// Whose memory a call belongs to: the main agent's conversation goes on from prompt to prompt,
    /// that of an agent that works for another is its own.
    pub fn reader(&self) -> &str {
        match &self.origin.parent_invocation_id {
            None => &self.agent,
            Some(_) => self.origin.invocation_id.as_str(),
        }
    }
}

/// What a call would do: as much as a policy needs to judge it and a human to understand it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The tool.
    pub tool: String,
    /// What it would touch, canonically.
    pub operations: Vec<Operation>,
    /// One line: `write src/main.rs (+3 -1)`.
    pub summary: String,
    /// Everything a human should see: the whole command, or the diff.
    pub detail: String,
    /// Hash of exactly what would happen, 64 hex digits.
    pub digest: String,
}

/// One thing a call would touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Operation {
    /// Reads a file, lists a folder or searches below it.
    Read {
        /// Absolute, resolved.
        path: String,
        /// Relative to `root`, with `/`.
        relative: String,
        /// The workspace root it was reached through.
        root: String,
    },
    /// Creates, changes or replaces a file.
    Write {
        /// Absolute, resolved.
        path: String,
        /// Relative to `root`, with `/`.
        relative: String,
        /// The workspace root it was reached through.
        root: String,
    },
    /// Runs a command in a shell.
    Execute {
        /// The whole command.
        command: String,
        /// Absolute, resolved.
        cwd: String,
    },
    /// Starts another agent, and sends what it is given to that one's provider.
    Invoke {
        /// The agent.
        agent: String,
        /// The provider profile.
        provider: String,
    },
}

/// What a tool found out about a call.
pub struct Prepared {
    /// The part that is judged and shown.
    pub action: Action,
    /// The tool's own half: descriptors, bytes, parsed arguments.
    pub payload: Box<dyn Any + Send>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("action", &self.action).finish_non_exhaustive()
    }
}

/// Why a call could not be prepared. The text is for the model: what is wrong and what to do.
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

/// A piece of live output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputDelta {
    /// Valid UTF-8; control characters are the observer's to escape.
    pub text: String,
}

/// What a running call may use.
#[derive(Clone)]
pub struct RunContext {
    /// Whose call this is.
    pub call: CallContext,
    /// Live output. Bounded; `try_send` and drop what does not fit, it is only for watching.
    pub output: mpsc::Sender<OutputDelta>,
    /// Facts to record, such as [`Event::SandboxEnforced`]. Bounded.
    pub facts: mpsc::Sender<Event>,
    /// For what goes on when the call has ended.
    pub aftermath: PostCallSink,
    /// Bytes of text the model may get; more is cut to head and tail, and spilled.
    pub output_bytes_max: usize,
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("call", &self.call).finish_non_exhaustive()
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// What the model gets to read.
    pub content: Vec<ContentPart>,
    /// Whether it failed. A command that exits with 1 has not failed: it has an exit code.
    pub is_error: bool,
    /// What a program gets to read: exit code, diff, counts.
    pub metadata: Value,
    /// How long it ran, as the tool measured it.
    pub duration: Duration,
}

impl ToolOutput {
    /// A good end with one text.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput {
            content: vec![ContentPart::text(text)],
            is_error: false,
            metadata: Value::Null,
            duration: Duration::ZERO,
        }
    }

    /// A bad end with one text for the model.
    pub fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_error: true, ..ToolOutput::text(text) }
    }

    /// The same, with something for programs.
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
    /// Adds `tool`. A name that is taken stays with whoever had it, and the newcomer comes back.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), Arc<dyn Tool>> {
        match self.tools.entry(tool.spec().name.clone()) {
            std::collections::btree_map::Entry::Occupied(_) => Err(tool),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(tool);
                Ok(())
            }
        }
    }

    /// The same, with those of `others` in place of those with their names.
    #[must_use]
    pub fn with(&self, others: &Toolbox) -> Toolbox {
        let mut tools = self.tools.clone();
        tools.extend(others.tools.iter().map(|(name, tool)| (name.clone(), Arc::clone(tool))));
        Toolbox { tools }
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
