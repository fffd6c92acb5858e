//! Tools with which a model starts subagents, queries their state, and reads their answers.

use std::fmt::Write as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::conversation::{CallId, InvocationId};
use crate::cost::dollars;
use crate::delegation::handoff::{DelegateInput, Handoff, HandoffSources, cut, part};
use crate::delegation::outcome::refusal;
use crate::delegation::references::{REFERENCES_MAX, Reference};
use crate::delegation::tool_names::{DELEGATE, READER, RESULT, STATUS};
use crate::delegation::{
    DelegationHandle, DelegationRequest, DetachedSubagent, NotStarted, StartRequest,
    StartedSubagent, Subagent, SubagentInfo, depth_of, spec,
};
use crate::digest::digest_of;
use crate::event::Origin;
use crate::mailbox::Report;
use crate::outcome::SubagentOutcome;
use crate::ports::{
    Action, CallContext, Clock, IsolatedWorkspace, IsolatedWorkspaces, Operation, OutputDelta,
    PermittedCall, PortFuture, Prepared, RunContext, Tool, ToolError, ToolOutput, ToolSpec,
    Toolbox,
};

/// Maximum bytes of an answer, or of a list of subagents, in one result, without headings and
/// notes.
const PAGE_BYTES: usize = 24 << 10;
/// Maximum wait for the end of a subagent, in seconds. A longer requested wait is shortened to it.
const WAIT_SECONDS_MAX: u64 = 600;
/// Interval between checks for the end of a subagent while a call waits for it.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Registers the tools `delegate_agent`, `agent_status` and `agent_result` in `toolbox`. If a name
/// is taken, the existing tool stays.
pub(crate) fn register(
    toolbox: &mut Toolbox,
    handle: &Arc<DelegationHandle>,
    clock: &Arc<dyn Clock>,
) {
    let delegation = &handle.delegation;
    let names: Vec<&str> = delegation.subagents.iter().map(|one| one.name.as_str()).collect();
    let spec = delegate_spec(&names, delegation.workplaces.is_some());
    let clock = Arc::clone(clock);
    let handle = || Arc::clone(handle);
    let look = |spec| LookTool { spec, handle: handle(), clock: Arc::clone(&clock) };
    let known = toolbox.iter().map(|tool| tool.spec().name.clone()).collect();
    let reader = toolbox.get(READER).cloned();
    let tools: [Arc<dyn Tool>; 3] = [
        Arc::new(DelegateTool { spec, handle: handle(), known, reader }),
        Arc::new(look(status_spec())),
        Arc::new(look(result_spec())),
    ];
    for tool in tools {
        toolbox.register(tool).ok();
    }
}

/// Descriptions of the tools `agent_status`, `agent_result` and `delegate_agent` for a list.
/// `names`: agents that can be called; `isolates`: true if they can work in a worktree.
pub fn specs(names: &[&str], isolates: bool) -> [ToolSpec; 3] {
    [status_spec(), result_spec(), delegate_spec(names, isolates)]
}

fn delegate_spec(names: &[&str], isolates: bool) -> ToolSpec {
    let texts =
        |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
    let mut properties = json!({
        "agent": {"type": "string", "enum": names, "description": "Who does it."},
        "task": {"type": "string", "description": "What is to be done, so that somebody who knows \
            nothing of this conversation can do it."},
        "context": {"type": "string", "description": "What you know that helps: findings, decisions."},
        "contextRefs": {"type": "array", "items": {"type": "string"}, "maxItems": REFERENCES_MAX,
            "description": "Texts that it gets with the task: output:ID of an earlier call, agent:ID \
            of an agent of yours that has answered, or the path of a file."},
        "relevantFiles": texts("Paths worth looking at."),
        "constraints": texts("What must hold."),
        "expectedOutput": {"type": "string", "description": "What the answer should look like."},
        "returnMode": {"type": "string", "enum": [BRIEF, NORMAL], "description": "brief: it answers \
            in a few lines. Default: normal."},
        "maxTurns": {"type": "integer", "description": "Fewer replies of its model than it may have."},
        "wait": {"type": "boolean", "description": "false: it works beside you, and its answer comes \
            as a message; agent_status and agent_result look at it. Default: true."},
        "resume": {"type": "string", "description": "The id of an agent of yours that has ended, or was \
            stopped: it goes on with all it knows, and this task is the next thing it reads."},
    });
    if isolates {
        properties["isolation"] = json!({
            "type": "string", "enum": [WORKTREE],
            "description": "It works in a copy of the workspace: agent_diff shows what it changed, and \
                agent_merge takes that over. For agents that write beside you or one another.",
        });
    }
    let about = "Gives a bounded task to another agent, and returns its answer. It sees nothing but \
        what you write here, and works with its own tools. Several calls in one turn run side by \
        side. The answer is a report: check what matters.";
    spec(DELEGATE, about, &properties, &["agent", "task"])
}

fn status_spec() -> ToolSpec {
    let about = "Says what the agents do that you have started, and those that they have started.";
    spec(STATUS, about, &json!({}), &[])
}

fn result_spec() -> ToolSpec {
    let properties = json!({
        "id": {"type": "string", "description": "The agent's id, as delegate_agent or agent_status \
            gave it."},
        "from": {"type": "integer", "description": "Byte to read from; default 0."},
        "waitSeconds": {"type": "integer", "description": "Waits so long for it to end; default 0."},
    });
    let about = "Reads what an agent answered that you have started, or how else it ended.";
    spec(RESULT, about, &properties, &["id"])
}

type PreparedFuture = PortFuture<Result<Prepared, ToolError>>;

fn ready(prepared: Result<Prepared, ToolError>) -> PreparedFuture {
    Box::pin(std::future::ready(prepared))
}

#[derive(Clone)]
struct DelegateTool {
    spec: ToolSpec,
    handle: Arc<DelegationHandle>,
    /// Names of the other tools of the session.
    known: Vec<String>,
    /// The tool that reads files and earlier outputs; `None` if the session has none.
    reader: Option<Arc<dyn Tool>>,
}

/// Data of a prepared call of `delegate_agent`.
struct DelegateCall {
    start: StartRequest,
    references: Vec<Reference>,
}

/// Value of the argument `returnMode` for a brief answer, of which a quarter of the usual bytes is
/// shown to the caller.
const BRIEF: &str = "brief";
/// Default of the argument `returnMode`.
const NORMAL: &str = "normal";

fn input_of(arguments: Value) -> Result<DelegateInput, ToolError> {
    let mut input: DelegateInput = serde_json::from_value(arguments)
        .map_err(|error| ToolError::new("ARG001", error.to_string()))?;
    if input.task.trim().is_empty() {
        let why = "task: it is empty; say what is to be done, and what the answer has to tell you";
        return Err(ToolError::new("ARG001", why));
    }
    input.resume = input.resume.filter(|id| !id.is_empty());
    Ok(input)
}

/// Error about a task of which a hand-off can contain only `room` bytes.
fn task_too_long(input: &DelegateInput, room: usize) -> ToolError {
    let bytes = input.task.len();
    let why =
        format!("the task has {bytes} bytes, and may have {room}; give it in files or in parts");
    ToolError::new("DLG004", why)
}

/// Lines of a permission request about the isolation, the resumed subagent and the references.
fn lines_about(resume: Option<&str>, references: &[Reference], isolated: bool) -> String {
    let mut lines = String::new();
    if isolated {
        lines.push_str("isolation: a worktree of its own\n");
    }
    if let Some(id) = resume {
        lines.extend(["resumes with its history: ", id, "\n"]);
    }
    let named: Vec<&str> = references.iter().map(Reference::name).collect();
    if !named.is_empty() {
        lines.extend(["with the text of: ", &named.join(", "), "\n"]);
    }
    lines
}

/// True if the call asks for a brief answer. `Err` if the argument is invalid.
fn is_brief(input: &DelegateInput) -> Result<bool, ToolError> {
    match input.return_mode.as_deref() {
        None | Some("" | NORMAL) => Ok(false),
        Some(BRIEF) => Ok(true),
        Some(_) => Err(ToolError::new("ARG001", "returnMode: must be \"brief\" or \"normal\"")),
    }
}

impl DelegateTool {
    fn prepared(
        &self,
        input: &DelegateInput,
        references: Vec<Reference>,
        context: &CallContext,
    ) -> Result<Prepared, ToolError> {
        let origin = &context.origin;
        let (nth, subagent) = self.may_call(origin, &input.agent)?;
        let isolated = self.wants_isolation(input, subagent)?;
        let brief = is_brief(input)?;
        let (request, caps) = (self.handle.user_request(), self.handle.handoff_caps());
        let info = self.handle.info_of(subagent);
        // A resumed subagent has it already.
        let memory = match &input.resume {
            None => self.handle.memory_of(subagent, &info.profile),
            Some(_) => String::new(),
        };
        let isolated_work = isolated || self.had_workspace(input);
        let cwd = self.folder_text(input, isolated, isolated_work);
        let tools = match &input.resume {
            None => self.tools_of(subagent, origin, isolated_work),
            Some(_) => Vec::new(),
        };
        let sources = HandoffSources {
            caller: &origin.agent,
            user_request: &request,
            cwd: &cwd,
            memory: &memory,
            conversation: &self.handle.conversation_of(origin),
            tools: &tools,
            brief,
        };
        let handoff =
            Handoff::new(input, &sources, &caps).map_err(|room| task_too_long(input, room))?;
        let (agent, provider) = (subagent.name.clone(), info.profile.clone());
        let mut operations = vec![Operation::Invoke { agent, provider }];
        operations.extend(references.iter().flat_map(Reference::operations).cloned());
        let read: Vec<String> = references.iter().map(Reference::digest).collect();
        let background = input.wait == Some(false);
        let place = format!("{} ({}, {})", info.profile, info.model, info.endpoint);
        let resume = input.resume.as_deref();
        let action = Action {
            tool: DELEGATE.to_owned(),
            operations,
            summary: format!("call {} via {}: {}", subagent.name, info.profile, handoff.task),
            detail: format!(
                "agent: {}\nprovider: {place}\n{}it will receive:\n{}",
                subagent.name,
                lines_about(resume, &references, isolated_work),
                handoff.text
            ),
            digest: digest_of(&[
                &subagent.name,
                &place,
                &handoff.text,
                &background.to_string(),
                resume.unwrap_or_default(),
                if isolated { WORKTREE } else { "" },
                &read.join(" "),
            ]),
        };
        let start = StartRequest {
            call_id: context.call_id.clone(),
            origin: Arc::clone(origin),
            subagent: nth,
            handoff,
            background,
            brief,
            turns_max: input.max_turns,
            resume: resume.map(InvocationId::new),
            queued: None,
            wanted: Weak::new(),
            isolated,
            workplace: None,
        };
        Ok(Prepared { action, payload: Box::new(DelegateCall { start, references }) })
    }

    /// The working directory of the subagent in words. `isolated`: it gets a new isolated workspace;
    /// `isolated_work`: it has one.
    fn folder_text(&self, input: &DelegateInput, isolated: bool, isolated_work: bool) -> String {
        let cwd = &self.handle.cwd;
        match (isolated, isolated_work) {
            (true, _) => workspace_text(&format!("a copy of {cwd} as it is now")),
            (false, true) => self.resumed_workspace_text(input, cwd),
            (false, false) => cwd.clone(),
        }
    }

    /// Names of the tools that `subagent`, called by `origin`, will see.
    fn tools_of(&self, subagent: &Subagent, origin: &Origin, isolated: bool) -> Vec<String> {
        let known = |name: &&String| self.known.contains(name);
        let mut tools: Vec<String> = subagent.tools.iter().filter(known).cloned().collect();
        let depth = depth_of(origin) + 1;
        if !isolated && self.handle.delegates(&subagent.calls, depth) {
            tools.push(DELEGATE.to_owned());
        }
        tools
    }

    /// True if the call must create an isolated workspace: the caller or the definition of the
    /// subagent requires it. False for a resumed subagent: the session reopens or replaces its
    /// workspace. `Err` if isolated workspaces are not available, or the argument is invalid.
    fn wants_isolation(
        &self,
        input: &DelegateInput,
        subagent: &Subagent,
    ) -> Result<bool, ToolError> {
        if input.resume.is_some() {
            return Ok(false);
        }
        let asked = match input.isolation.as_deref() {
            None | Some("") => false,
            Some(WORKTREE) => true,
            Some(_) => return Err(ToolError::new("ARG001", "isolation: must be \"worktree\"")),
        };
        let isolated = asked || subagent.isolated;
        if isolated && self.handle.delegation.workplaces.is_none() {
            return Err(workspace_error(subagent, "the workspace is in no git repository"));
        }
        Ok(isolated)
    }

    /// True if the call resumes a subagent that has had an isolated workspace.
    fn had_workspace(&self, input: &DelegateInput) -> bool {
        let id = input.resume.as_deref().map(InvocationId::new);
        id.is_some_and(|id| self.handle.isolated.lock().contains(&id))
    }

    /// Text that tells a resumed subagent if its isolated workspace still exists or is replaced by
    /// a new one.
    fn resumed_workspace_text(&self, input: &DelegateInput, cwd: &str) -> String {
        let id = InvocationId::new(input.resume.as_deref().unwrap_or_default());
        let workplaces = self.handle.delegation.workplaces.as_ref();
        if workplaces.is_some_and(|workplaces| workplaces.is_there(&id)) {
            return workspace_text(&format!("your copy of {cwd}, with what you left in it"));
        }
        workspace_text(&format!(
            "a new copy of {cwd} as it is now. The one that you had is gone: what you changed there is \
             in this one only if it was taken over. It is a copy"
        ))
    }

    /// The subagent with this name and its index in the configuration, if `origin` may call it.
    /// `Err` says why not.
    fn may_call(&self, origin: &Origin, name: &str) -> Result<(usize, &Subagent), ToolError> {
        let callable = self.handle.callable(origin);
        if origin.agent == name {
            let what = format!("{name} cannot call itself; do it yourself");
            return Err(ToolError::new("DLG002", what));
        }
        if origin.agent_path.split('/').any(|agent| agent == name) {
            let what = format!("{name} waits for you already: {} -> {name}", origin.agent_path);
            return Err(ToolError::new("DLG002", what));
        }
        let depth_max = self.handle.delegation.limits.depth_max;
        if depth_of(origin) >= depth_max {
            let what =
                format!("delegation.maxDepth ({depth_max}) is reached: 0 left; do it yourself");
            return Err(ToolError::new("DLG003", what));
        }
        let known = self.handle.subagent(name).filter(|_| callable.iter().any(|one| one == name));
        known.ok_or_else(|| {
            let what =
                format!("{name:?} cannot be called from here; callable: {}", callable.join(", "));
            ToolError::new("DLG001", what)
        })
    }
}

impl Tool for DelegateTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: Value, context: CallContext) -> PreparedFuture {
        let input = match input_of(arguments) {
            Ok(input) => input,
            Err(error) => return ready(Err(error)),
        };
        if input.context_refs.is_empty() {
            return ready(self.prepared(&input, Vec::new(), &context));
        }
        let tool = self.clone();
        Box::pin(async move {
            let (handle, reader) = (&tool.handle, tool.reader.as_ref());
            let references =
                Reference::prepare(handle, reader, &input.context_refs, &context).await?;
            tool.prepared(&input, references, &context)
        })
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        let (handle, reader) = (Arc::clone(&self.handle), self.reader.clone());
        let (wanted, permit) = call.into_payload_and_reads();
        let wanted = wanted.downcast::<DelegateCall>();
        Box::pin(async move {
            let Ok(wanted) = wanted else { return session_ended() };
            let DelegateCall { mut start, references } = *wanted;
            if !references.is_empty() {
                let subagent = handle.delegation.subagents.get(start.subagent);
                let max = subagent.map_or(0, |subagent| handle.references_bytes_max(subagent));
                match Reference::texts(references, &permit, reader.as_ref(), &context, max).await {
                    Ok(texts) => start.handoff.text.push_str(&texts),
                    Err(why) => return ToolOutput::error(format!("No agent was started. {why}")),
                }
            }
            let mut unused = None;
            if start.isolated {
                match open_workspace(&handle, &start).await {
                    Ok((workplace, guard)) => {
                        (start.workplace, unused) = (Some(workplace), Some(guard));
                    }
                    Err(refused) => return refused,
                }
            }
            let ((told, queued), alive) = (oneshot::channel(), Arc::new(()));
            (start.queued, start.wanted) = (Some(told), Arc::downgrade(&alive));
            let answer = ask(&handle, |report| DelegationRequest::Start(Box::new(start), report));
            let mut answer = std::pin::pin!(answer);
            let answer = tokio::select! {
                biased;
                answer = &mut answer => answer,
                Ok(places) = queued => {
                    let text = format!("{}\n", waiting_for(places));
                    // Live output only; the result does not depend on it.
                    context.output.try_send(OutputDelta { text }).ok();
                    answer.await
                }
            };
            drop(alive);
            match answer {
                Some(Ok(started)) => {
                    if let Some(unused) = unused {
                        unused.keep();
                    }
                    result_of(&handle, &context.call.origin, started).await
                }
                Some(Err(NotStarted::Limit(refused))) => refusal(&refused),
                Some(Err(NotStarted::Cannot(why))) => ToolOutput::error(why),
                None => session_ended(),
            }
        })
    }
}

/// Text for the state of a subagent that waits for a concurrency slot, of which there are `places`.
pub(crate) fn waiting_for(places: u32) -> String {
    format!("waiting for a place (limit {places})")
}

/// Value of the argument `isolation` that requests an isolated workspace.
const WORKTREE: &str = "worktree";

/// Text that tells a subagent about its isolated workspace. `copy`: description of the copy; the
/// path is in the system prompt of the subagent.
fn workspace_text(copy: &str) -> String {
    format!(
        "{copy}, which is yours alone. What you change there is taken over by \
         whoever called you: do not commit, and change nothing elsewhere"
    )
}

/// Error for a subagent without the required isolated workspace, with the reason `why`. posse never
/// falls back to the session's own workspace.
fn workspace_error(subagent: &Subagent, why: &str) -> ToolError {
    let way = if subagent.isolated {
        format!("{} always works in one: call another agent, or do it yourself", subagent.name)
    } else {
        "leave isolation out, and it works in the workspace itself".to_owned()
    };
    ToolError::new("DLG005", format!("there is no worktree for it: {why}; {way}"))
}

/// Guard that discards a new isolated workspace on drop, unless a subagent has started in it.
struct UnusedWorkspace(Option<(Arc<dyn IsolatedWorkspaces>, InvocationId)>);

impl UnusedWorkspace {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for UnusedWorkspace {
    fn drop(&mut self) {
        if let Some((workplaces, id)) = self.0.take() {
            workplaces.discard(&id);
        }
    }
}

/// Creates the isolated workspace for a subagent that is about to start, with the guard that
/// discards it. `Err` is the result of the call.
async fn open_workspace(
    handle: &DelegationHandle,
    start: &StartRequest,
) -> Result<((InvocationId, IsolatedWorkspace), UnusedWorkspace), ToolOutput> {
    let subagent = handle.delegation.subagents.get(start.subagent).ok_or_else(session_ended)?;
    let refused = |why: &str| {
        let outcome = SubagentOutcome::Refused { limit: "isolation".to_owned() };
        let text = format!("{outcome}: no agent was started. {}.", workspace_error(subagent, why));
        let metadata = serde_json::to_value(&outcome).unwrap_or_default();
        ToolOutput::error(text).with_metadata(metadata)
    };
    let workplaces = handle.delegation.workplaces.as_ref();
    let workplaces = workplaces.ok_or_else(|| refused("the workspace is in no git repository"))?;
    let id = handle.ids.invocation();
    // If the call is cancelled at this point, the drop guard removes the workspace.
    let unused = UnusedWorkspace(Some((Arc::clone(workplaces), id.clone())));
    let place = workplaces.open(&id, &subagent.name, &start.origin).await;
    Ok(((id, place.map_err(|why| refused(&why))?), unused))
}

/// Result of the delegation call: returned at once if the caller does not wait, otherwise when the
/// subagent has ended.
async fn result_of(
    handle: &DelegationHandle,
    caller: &Origin,
    StartedSubagent { id, background, ended }: StartedSubagent,
) -> ToolOutput {
    if background {
        let text = format!(
            "It works as {id}. Its answer comes as a message; agent_status and \
             agent_result {{\"id\": \"{id}\"}} look at it before that. It is stopped when the session \
             ends: where there is only one task, with your answer to it."
        );
        return ToolOutput::text(text).with_metadata(json!({"invocationId": id}));
    }
    match ended.await {
        Ok(ended) => ended.output(handle.answer_bytes_max(caller)),
        Err(_) => session_ended(),
    }
}

/// Waits again for the subagent that `call` had started before a crash or resume, and returns the
/// result of the call: an error if the session knows no such subagent.
pub(crate) async fn reattach(
    handle: &DelegationHandle,
    call: CallId,
    caller: Arc<Origin>,
) -> ToolOutput {
    let origin = Arc::clone(&caller);
    match ask(handle, |report| DelegationRequest::Attach(call, caller, report)).await.flatten() {
        Some(started) => result_of(handle, &origin, started).await,
        None => session_ended(),
    }
}

/// Result of a delegation call that was stopped, with the state of its subagent. `None` if none was
/// started.
pub(crate) async fn stopped_call_output(
    handle: &DelegationHandle,
    call: CallId,
    caller: Arc<Origin>,
) -> Option<ToolOutput> {
    let origin = Arc::clone(&caller);
    match ask(handle, |report| DelegationRequest::Detach(call, caller, report)).await.flatten()? {
        DetachedSubagent::Ended(ended) => Some(ended.output(handle.answer_bytes_max(&origin))),
        DetachedSubagent::Running(id, agent) => Some(ToolOutput::error(format!(
            "Cancelled while agent {agent} ({id}) worked on it: that one is stopped, too. What it did \
             until then comes as a message. Its effects may be partial; look before relying on them."
        ))),
    }
}

/// Error result of a call that cannot be served, because the session is ending or does not know the
/// subagent.
fn session_ended() -> ToolOutput {
    ToolOutput::error("failed(session): the session is ending; no agent works for this call.")
}

async fn ask<T: Send + 'static>(
    handle: &DelegationHandle,
    request: impl FnOnce(Report<T>) -> DelegationRequest,
) -> Option<T> {
    let (report, answer) = Report::channel();
    handle.send(request(report));
    answer.await.ok()?.ok()
}

pub(super) async fn query_status(
    handle: &DelegationHandle,
    origin: &Arc<Origin>,
) -> Vec<SubagentInfo> {
    ask(handle, |report| DelegationRequest::Query(Arc::clone(origin), report))
        .await
        .unwrap_or_default()
}

/// Prepared call of a query, which has no operations and so needs no permission.
fn looking(tool: &str, summary: String, payload: StatusQuery) -> Prepared {
    let action = Action {
        tool: tool.to_owned(),
        operations: Vec::new(),
        digest: digest_of(&[tool, &summary]),
        detail: summary.clone(),
        summary,
    };
    Prepared { action, payload: Box::new(payload) }
}

/// Data of a prepared call of `agent_status` or `agent_result`.
struct StatusQuery {
    origin: Arc<Origin>,
    /// Part of an answer to read; `None`: query the state of all subagents.
    wanted: Option<ResultPage>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResultPage {
    id: String,
    from: Option<u64>,
    wait_seconds: Option<u64>,
}

/// The tools `agent_status` and `agent_result`.
struct LookTool {
    spec: ToolSpec,
    handle: Arc<DelegationHandle>,
    clock: Arc<dyn Clock>,
}

impl Tool for LookTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: Value, context: CallContext) -> PreparedFuture {
        let origin = context.origin;
        if self.spec.name == STATUS {
            let query = StatusQuery { origin, wanted: None };
            return ready(Ok(looking(STATUS, "look at the agents".to_owned(), query)));
        }
        let wanted: Result<ResultPage, _> = serde_json::from_value(arguments);
        ready(match wanted {
            Ok(wanted) => {
                let summary = format!("read what agent {} answered", wanted.id);
                Ok(looking(RESULT, summary, StatusQuery { origin, wanted: Some(wanted) }))
            }
            Err(error) => Err(ToolError::new("ARG001", error.to_string())),
        })
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        let (handle, clock) = (Arc::clone(&self.handle), Arc::clone(&self.clock));
        let query = call.into_payload().downcast::<StatusQuery>();
        Box::pin(async move {
            let Ok(query) = query else { return session_ended() };
            let StatusQuery { origin, wanted } = *query;
            match wanted {
                None => status_text(&query_status(&handle, &origin).await),
                Some(wanted) => read_answer(&handle, &*clock, &origin, &wanted).await,
            }
        })
    }
}

/// Result with the state of the subagents `all`, one line each, shortened to about `PAGE_BYTES`
/// bytes.
fn status_text(all: &[SubagentInfo]) -> ToolOutput {
    if all.is_empty() {
        return ToolOutput::text("You have started no agent.");
    }
    let mut text = String::new();
    for SubagentInfo { id, path, state, task, took, cost_nano_usd, .. } in all {
        let cost = cost_nano_usd.filter(|cost| *cost > 0);
        let cost = cost.map(|cost| format!(", {}", dollars(cost))).unwrap_or_default();
        // Writing to a string cannot fail.
        let _: std::fmt::Result =
            writeln!(text, "{id}  {path}  {state}, {} s{cost}  {task}", took.as_secs());
    }
    ToolOutput::text(cut(&text, PAGE_BYTES))
}

/// Result with a page of a subagent's answer; an error if `origin` has not started it. Waits up to
/// the requested time, at most 600 seconds, for the end of the subagent. If it is still running
/// then, the result is its status.
async fn read_answer(
    handle: &DelegationHandle,
    clock: &dyn Clock,
    origin: &Arc<Origin>,
    wanted: &ResultPage,
) -> ToolOutput {
    let wait = wanted.wait_seconds.unwrap_or_default().min(WAIT_SECONDS_MAX);
    let until = clock.monotonic() + Duration::from_secs(wait);
    loop {
        let all = query_status(handle, origin).await;
        let Some(seen) = all.into_iter().find(|seen| seen.id.as_str() == wanted.id) else {
            return ToolOutput::error(format!(
                "You have started no agent {:?}; agent_status lists yours.",
                wanted.id
            ));
        };
        match seen.ended {
            Some(ended) => return page(&ended, wanted.from.unwrap_or_default()),
            None if clock.monotonic() >= until => {
                return ToolOutput::text(format!("agent {}: {}", seen.id, seen.state));
            }
            None => clock.sleep(LOOK_INTERVAL).await,
        }
    }
}

/// Result with the page of an answer that begins at the byte `from`, rounded up to a character: at
/// most `PAGE_BYTES` bytes of it, none if `from` is behind its end. The result is an error unless
/// the subagent is done.
fn page(ended: &crate::delegation::SubagentEnd, from: u64) -> ToolOutput {
    let whole = &ended.said;
    let from = whole.ceil_char_boundary(usize::try_from(from).unwrap_or(usize::MAX));
    let to = whole.floor_char_boundary(from.saturating_add(PAGE_BYTES));
    let mut text = format!("agent {} ({}): {}\n", ended.agent, ended.id, ended.outcome);
    text.push_str(&part("agent-answer", &whole[from..to]));
    if to < whole.len() {
        // Writing to a string cannot fail.
        let _: std::fmt::Result =
            write!(text, "{} of {} bytes; continue from {to}.", to, whole.len());
    }
    let mut output = ended.output(0);
    output.content = vec![crate::conversation::ContentPart::text(text)];
    output
}
