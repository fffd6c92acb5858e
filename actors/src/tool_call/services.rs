//! Ports and shared state of a session that its tool calls use.

use std::sync::Arc;

use serde_json::Value;

use crate::conversation::{SessionId, ToolCall};
use crate::delegation::DelegationHandle;
use crate::event::{Origin, SandboxTier};
use crate::hook_events::{self, HookOutcome};
use crate::limits::Limits;
use crate::mailbox::SupervisedRef;
use crate::permission_coordinator::{self as permission, GrantView, ModeView};
use crate::ports::{
    AnswerSource, Clock, Hook, HookInvocation, HookPayload, HookedCall, Ids, Policy, Toolbox,
};
use crate::testing_seam::FailPoints;
use crate::tool_call::checkpoints::Checkpoints;
use crate::tool_call::post_call::Notices;
use crate::tool_call::todo_lists::TodoLists;
use crate::transcript_writer::Transcript;

/// Maximum number of lines in a list of background work.
const LINES_MAX: usize = 32;

/// Ports and shared state that the calls and invocations of a session use.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) session_id: SessionId,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) hooks: Arc<dyn Hook>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) transcript: Transcript,
    pub(crate) permissions: SupervisedRef<permission::Msg>,
    pub(crate) book: GrantView,
    /// Permission mode of the session.
    pub(crate) mode: ModeView,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) notices: Notices,
    pub(crate) todos: TodoLists,
    pub(crate) asking: AnswerSource,
    pub(crate) tier: SandboxTier,
    pub(crate) cwd: String,
    pub(crate) limits: Arc<Limits>,
    /// Delegation handle; `None` in single-agent mode.
    pub(crate) delegation_handle: Option<Arc<DelegationHandle>>,
    pub(crate) fail: FailPoints,
}

impl Services {
    /// The call with the arguments `input`, in the form that hooks receive. An unknown tool has
    /// default annotations.
    pub(crate) fn hooked(&self, call: &ToolCall, input: Value) -> HookedCall {
        let tool = self.tools.get(&call.name);
        let annotations = tool.map(|tool| tool.spec().annotations.clone()).unwrap_or_default();
        HookedCall { call_id: call.id.clone(), tool: call.name.clone(), annotations, input }
    }

    /// Runs the hooks for an event. To be called only if [`Hook::has_hook`] returned true.
    pub(crate) fn fire(
        &self,
        origin: Option<&Arc<Origin>>,
        moment: HookPayload,
    ) -> impl Future<Output = HookOutcome> + Send + 'static {
        let occasion = HookInvocation {
            session_id: self.session_id.clone(),
            permission_mode: self.mode.current(),
            origin: origin.cloned(),
            moment,
        };
        let (hooks, transcript) = (Arc::clone(&self.hooks), self.transcript.clone());
        hook_events::fire(hooks, transcript, occasion, self.limits.result_bytes_max)
    }

    /// Running background work of `origin`, at most 32 lines: subagents, jobs, and open permission
    /// requests of subagents below it. An agent needs it when the start was removed from its
    /// history.
    pub(crate) fn background_work(&self, origin: &Origin) -> Vec<String> {
        let agents = self
            .delegation_handle
            .iter()
            .flat_map(|delegation_handle| delegation_handle.background_work(origin));
        let work = self.tools.iter().flat_map(|tool| tool.background_work(origin));
        let open = self.book.open_below(origin);
        agents.chain(work).chain(open).take(LINES_MAX).collect()
    }
}
