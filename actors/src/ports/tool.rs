//! Tool port: a call is first prepared, which describes its exact effect, and runs after it was
//! permitted.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::conversation::{CallId, ContentPart, InvocationId, SessionId};
use crate::event::{EditHunk, Event, HunkAnswer, Origin, TriedChange, UserReply, UserRequest};
use crate::ports::{Confinement, ConnectionAsker, PermittedCall, PortFuture, Prepared};

/// A tool that models can call.
///
/// [`prepare`](Tool::prepare) turns arguments into a [`Prepared`] value: canonical operations,
/// resolved descriptors, the bytes to write. [`run`](Tool::run) accepts only a [`PermittedCall`],
/// which contains that value, so exactly the judged effect is performed.
pub trait Tool: Send + Sync + 'static {
    /// Name, description and schema for the model; side effects, source and annotations for posse.
    fn spec(&self) -> &ToolSpec;

    /// The tool that this one wraps; `None` if it wraps none. The default implementations of the
    /// optional methods forward to it.
    fn inner(&self) -> Option<&dyn Tool> {
        None
    }

    /// Running background work of calls of the agent `origin`, one line each with the way to query
    /// it. Shown to an agent whose history no longer contains the start of the work.
    fn background_work(&self, origin: &Origin) -> Vec<String> {
        self.inner().map_or_else(Vec::new, |inner| inner.background_work(origin))
    }

    /// Computes the effect of a call without performing it. `arguments` match the schema of the
    /// tool. `Err`: the call is refused as invalid, and the model reads the error.
    fn prepare(
        &self,
        arguments: Value,
        context: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>>;

    /// Returns the request that the call makes to the user before it runs. `arguments`: as for
    /// [`prepare`](Tool::prepare). `None`: it makes none. The run gets the answer in
    /// [`RunContext::answer`].
    fn user_request(&self, arguments: &Value) -> Option<UserRequest> {
        self.inner().and_then(|inner| inner.user_request(arguments))
    }

    /// Performs the prepared effect. Dropping the future cancels the call and kills its processes.
    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput>;

    /// True if [`try_call`](Tool::try_call) can run this prepared call, which would run within
    /// `confinement`.
    fn can_try(&self, prepared: &Prepared, confinement: &Confinement) -> bool {
        self.inner().is_some_and(|inner| inner.can_try(prepared, confinement))
    }

    /// Runs the call in a trial: in a throw-away view of the workspace, without network. Dropping the
    /// future, or the result, drops the changes. `Err`: nothing was run, for this reason.
    fn try_call(
        &self,
        call: PermittedCall,
        context: RunContext,
    ) -> PortFuture<Result<CallTrial, String>> {
        if let Some(inner) = self.inner() {
            return inner.try_call(call, context);
        }
        let reason = "calls of this tool cannot be tried".to_owned();
        Box::pin(std::future::ready(Err(reason)))
    }

    /// Hunks of the prepared change of a text file, in the order of the file and of the diff in the
    /// detail of its action. A person can answer about each of them. At most
    /// [`HUNKS_MAX`](crate::event::HUNKS_MAX); empty if the call can only be answered as a whole.
    fn hunks(&self, prepared: &Prepared) -> Vec<EditHunk> {
        self.inner().map_or_else(Vec::new, |inner| inner.hunks(prepared))
    }

    /// Reduces a prepared effect to some of its [`hunks`](Tool::hunks). `payload`: that of the
    /// prepared call; `answers`: one for each hunk. `Err`: the effect has no such hunks, and nothing
    /// is done.
    fn choose_hunks(
        &self,
        payload: Box<dyn Any + Send>,
        answers: Vec<HunkAnswer>,
    ) -> PortFuture<Result<ChosenHunks, ToolError>> {
        if let Some(inner) = self.inner() {
            return inner.choose_hunks(payload, answers);
        }
        let error =
            ToolError::new("EDT008", "calls of this tool have no hunks; nothing was changed");
        Box::pin(std::future::ready(Err(error)))
    }

    /// True if the tool itself takes a checkpoint before its effect, so that none is needed before
    /// its calls.
    fn takes_checkpoint(&self) -> bool {
        self.inner().is_some_and(<dyn Tool>::takes_checkpoint)
    }

    /// Advice for the model that is added to the result of a denied call; `None` if there is none.
    fn denial_advice(&self) -> Option<&str> {
        self.inner().and_then(|inner| inner.denial_advice())
    }

    /// Tells the tool that a history was compacted, so the model may no longer see earlier output.
    fn history_shortened(&self) {
        if let Some(inner) = self.inner() {
            inner.history_shortened();
        }
    }

    /// Stops the background work in the scope `what`. Completes when its processes are gone.
    fn stop_background(&self, what: &BackgroundScope) -> PortFuture<()> {
        match self.inner() {
            Some(inner) => inner.stop_background(what),
            None => Box::pin(std::future::ready(())),
        }
    }
}

/// A call that was run in a trial. Texts are bounded and without control characters.
pub struct CallTrial {
    /// Exit state and number of changes, in one line.
    pub summary: String,
    /// Exit code of the command; `None` if it has none.
    pub exit_code: Option<i32>,
    /// Output of the call.
    pub output: String,
    /// Changes of files; a long list is cut.
    pub changes: Vec<TriedChange>,
    /// The changes as text for the person.
    pub diff: String,
    /// Payload of a prepared call that keeps these changes instead of running again. `None`: they
    /// cannot be kept.
    pub kept: Option<Box<dyn Any + Send>>,
}

impl fmt::Debug for CallTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTrial").field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// Effect of a prepared call that is reduced to the hunks that a person has chosen.
pub struct ChosenHunks {
    /// One-line description of the reduced effect.
    pub summary: String,
    /// Payload of a prepared call with the reduced effect.
    pub payload: Box<dyn Any + Send>,
}

impl fmt::Debug for ChosenHunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChosenHunks").field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// Scope of background work to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackgroundScope {
    /// Work of this call, stopped by a person.
    Call(CallId),
    /// Work of a subagent that has ended.
    Invocation(InvocationId),
    /// All work, because a person stopped it or the session was parked.
    All,
    /// All work, because the session ends.
    Session,
}

/// Message of background work about its call, after the call has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum PostCallMessage {
    /// Event of the call, to be recorded.
    Fact(Box<Event>),
    /// Text for the agent that made the call, delivered before the agent's next model request. It
    /// starts no run. Dropped if the agent is a subagent that has ended, or the session is ending.
    Notice(Vec<ContentPart>),
}

/// Sender of messages about a call that has ended. Its implementation must not keep the session
/// alive.
#[derive(Clone)]
pub struct PostCallSink(Arc<dyn Fn(PostCallMessage) + Send + Sync>);

impl PostCallSink {
    /// Creates a sender that calls `hear` with each message.
    pub fn new(hear: impl Fn(PostCallMessage) + Send + Sync + 'static) -> PostCallSink {
        PostCallSink(Arc::new(hear))
    }

    /// Passes `message` to the function of this sender.
    pub fn send(&self, message: PostCallMessage) {
        (self.0)(message);
    }
}

impl fmt::Debug for PostCallSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostCallSink").finish_non_exhaustive()
    }
}

/// Description of a tool for the model and the runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Name of the tool, in snake case.
    pub name: String,
    /// Description of the tool, which the model reads.
    pub description: String,
    /// JSON Schema of the arguments: an object with `properties` and `required`.
    pub parameters: Value,
    /// Kind of side effects that a call of the tool can have.
    pub side_effect: SideEffect,
    /// Origin of the tool: `builtin`, `user`, `project`, `programmatic`.
    pub source: String,
    /// Resource, names in rules and visibility of the tool, for permissions, hooks and agents. Not
    /// sent to models.
    pub annotations: ToolAnnotations,
}

/// Accessed resource, names in permission rules, and visibility of a tool. Permissions, hooks and
/// agents use them, so that they need no list of tool names. The default describes a tool about
/// which nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolAnnotations {
    /// Resource that the tool accesses.
    pub access: Access,
    /// Name that the tool shares with similar tools in permission rules, such as `Edit`; `None`:
    /// only its own name.
    pub rule_group: Option<String>,
    /// Further names of tools and groups whose ask and deny rules also apply to this tool.
    pub restricted_by: Vec<String>,
    /// True if a call reads or changes the one file that its argument `path` names.
    pub opens_file: bool,
    /// Name of another tool: an agent that may use that tool sees this one too. `None`: an agent
    /// selects this tool by its own name.
    pub visible_with: Option<String>,
}

impl ToolAnnotations {
    /// Annotations with this access and otherwise default values.
    pub fn new(access: Access) -> ToolAnnotations {
        ToolAnnotations { access, ..ToolAnnotations::default() }
    }

    /// Sets [`opens_file`](ToolAnnotations::opens_file): the argument `path` names the one file
    /// that a call reads or changes.
    #[must_use]
    pub fn opening_file(self) -> ToolAnnotations {
        ToolAnnotations { opens_file: true, ..self }
    }

    /// Sets the name that the tool shares with similar tools in permission rules.
    #[must_use]
    pub fn in_rules(mut self, group: &str) -> ToolAnnotations {
        self.rule_group = Some(group.to_owned());
        self
    }
}

/// Kind of resource that a tool accesses. The default permission of its calls depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// The tool reads files.
    Read,
    /// The tool changes files. A call that only reports why a change cannot be made counts as
    /// reading.
    Write,
    /// The tool runs commands.
    Process,
    /// The tool itself accesses servers.
    Network,
    /// The tool queries or controls only what the session owns and has already permitted: jobs,
    /// subagents and skills.
    Session,
    /// The resource is not known. A call is asked about unless a rule decides.
    #[default]
    Unknown,
}

impl Access {
    /// Name of the access in lists.
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Process => "process",
            Access::Network => "network",
            Access::Session => "session",
            Access::Unknown => "unknown",
        }
    }

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
    /// A call has no side effects itself; a subagent that it starts may have some.
    None,
    /// A call changes files.
    Workspace,
    /// A call runs processes.
    Process,
    /// A call accesses servers.
    Network,
    /// A call has other or unknown side effects.
    External,
}

/// Ids of a call and its session, and the calling agent.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// Id of the session.
    pub session_id: SessionId,
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the calling agent.
    pub agent: String,
    /// Invocation of the calling agent.
    pub origin: Arc<Origin>,
    /// True if the user makes the call at a front end, on behalf of the main agent.
    pub by_user: bool,
}

impl CallContext {
    /// Key under which a tool remembers the files that the caller has read: the agent name for the
    /// main agent, whose invocation id changes with each prompt, and the invocation id for a
    /// subagent.
    pub fn reader(&self) -> &str {
        match &self.origin.parent_invocation_id {
            None => &self.agent,
            Some(_) => self.origin.invocation_id.as_str(),
        }
    }
}

/// Failure to validate the arguments of a call or to prepare it. The text is for the model and
/// contains the error and its fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} {message}")]
pub struct ToolError {
    /// Error code: `ARG002`, `EDT001`, …
    pub code: &'static str,
    /// Short text that says how to fix the call, without details of the host.
    pub message: String,
}

impl ToolError {
    /// Creates an error with this code and text.
    pub fn new(code: &'static str, message: impl Into<String>) -> ToolError {
        ToolError { code, message: message.into() }
    }
}

/// Piece of output of a running call, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputDelta {
    /// The text. It may contain control characters, which the observer has to escape.
    pub text: String,
}

/// Ids, channels and limits for a running call.
#[derive(Clone)]
pub struct RunContext {
    /// Ids of the call and its session, and the calling agent.
    pub call: CallContext,
    /// Channel for live output, which is for display only. It is bounded: use `try_send` and drop
    /// output that does not fit.
    pub output: mpsc::Sender<OutputDelta>,
    /// Channel for events to record, such as [`Event::SandboxEnforced`]. It is bounded: sending
    /// waits while it is full. Events are lost if the journal cannot be written.
    pub facts: mpsc::Sender<Event>,
    /// Sender of events and notices for background work that continues after the call has ended.
    pub post_call: PostCallSink,
    /// Asks a person about connections of the call's processes.
    pub connections: ConnectionAsker,
    /// Maximum bytes of text that a tool should return. The tool itself cuts longer text or spills
    /// it to a file; the kernel cuts only at `Limits::result_bytes_max`.
    pub output_bytes_max: usize,
    /// Bytes of text that the context budget of the agent leaves for the result. At least
    /// `output_bytes_max`, which is lower if little is left. Tools that return more than
    /// `output_bytes_max` on request, such as pages of a file, return at most this.
    pub room_bytes: usize,
    /// Answer of the user to [`Tool::user_request`]; `None` if the call has asked nothing.
    pub answer: Option<UserAnswer>,
}

/// Answer to a request of a tool to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserAnswer {
    /// The user replied.
    Replied(UserReply),
    /// The user refused to answer, or did not accept the plan. The text is what the user said about
    /// it; `None` if the user said nothing.
    Refused(Option<String>),
    /// The time for the answer has passed.
    TimedOut,
    /// The user cannot be asked. The text is the reason.
    Unavailable(String),
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("call", &self.call).finish_non_exhaustive()
    }
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// Result that the model gets: text and images.
    pub content: Vec<ContentPart>,
    /// True if the call failed. A command that exits with code 1 has not failed: the exit code is
    /// its result.
    pub is_error: bool,
    /// Data for programs: exit code, diff, counts; `Null` if there are none.
    pub metadata: Value,
}

impl ToolOutput {
    /// Successful result with one text for the model.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput {
            content: vec![ContentPart::text(text)],
            is_error: false,
            metadata: Value::Null,
        }
    }

    /// Failed result with one text for the model.
    pub fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_error: true, ..ToolOutput::text(text) }
    }

    /// Replaces the data for programs by `metadata`.
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

    /// A copy with the tools of `others` added. They replace tools with the same names.
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

    /// The tool with this name; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// All tools in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.values()
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.keys()).finish()
    }
}
