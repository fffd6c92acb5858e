//! Built-in guards: a call that is always denied is rejected before hooks of the user run, and
//! again after a hook has changed it. Fail closed.
//!
//! The policy makes the same decision for every call, with or without hooks.

use std::sync::Arc;
use std::time::Duration;

use posse_actors::ports::{
    Action, AnswerSource, HookReport, HookResult, HookedCall, Operation, Policy, Situation, Verdict,
};
use serde_json::Value;

use crate::secrets::is_secret;

const COMMAND_TOOL: &str = "bash";
const WRITE_TOOLS: [&str; 3] = ["write_file", "edit_file", "multi_edit"];

/// Checks before the user's hooks, and after each that changed something.
pub(super) struct Guards {
    pub(super) policy: Arc<dyn Policy>,
    pub(super) cwd: String,
    pub(super) tier: String,
}

impl Guards {
    /// A rejection of the call, if it is always denied.
    pub(super) fn judge(&self, used: &HookedCall, agent: &str) -> Option<HookReport> {
        if used.tool == COMMAND_TOOL {
            let command = used.input["command"].as_str().unwrap_or_default();
            return self.dangerous(command, agent).map(|why| report("block-dangerous-bash", why));
        }
        let path = used.input["path"].as_str().unwrap_or_default();
        let secret = WRITE_TOOLS.contains(&used.tool.as_str()) && is_secret(path);
        let why = || format!("{path} is a secret file, which no tool may write");
        secret.then(|| report("protect-env-files", why()))
    }

    /// The reason for which the policy denies `command`, if it does.
    fn dangerous(&self, command: &str, agent: &str) -> Option<String> {
        let cwd = self.cwd.clone();
        let action = Action {
            tool: COMMAND_TOOL.to_owned(),
            operations: vec![Operation::Execute { command: command.to_owned(), cwd }],
            summary: String::new(),
            detail: command.to_owned(),
            digest: String::new(),
        };
        // No grant or trust that could permit the call may count here.
        let situation = Situation {
            agent,
            grants: &[],
            asking: AnswerSource::Nobody,
            now_ms: 0,
            uptime: Duration::ZERO,
            tier: &self.tier,
        };
        match self.policy.judge(&action, &situation) {
            Verdict::Deny { reason, rule } => Some(format!("{reason} (rule: {rule})")),
            Verdict::Allow(_) | Verdict::Ask(_) => None,
        }
    }
}

pub(super) fn report(hook: &str, message: String) -> HookReport {
    HookReport {
        hook: hook.to_owned(),
        says: HookResult::Block,
        message: Some(message),
        metadata: Value::Null,
        duration: Duration::ZERO,
    }
}
