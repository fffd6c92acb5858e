//! Built-in guards: a command that the policy denies, and a write to a secret file, are rejected
//! before hooks of the user run, and again after a hook has changed the call.
//!
//! The policy makes the same decision for every call, with or without hooks.

use std::sync::Arc;
use std::time::Duration;

use posse_actors::event::{PermissionMode, SandboxTier};
use posse_actors::ports::{
    Access, Action, AnswerSource, Caller, CommandDeletions, HookReport, HookResult, HookedCall,
    Operation, Policy, Situation, Verdict,
};

use crate::hooks::report;
use crate::secrets::is_secret;

/// Built-in checks of a call, made before the user's hooks and after each hook that changed the
/// call: the command must not be one that the policy denies, and the written file not a secret
/// file.
pub(super) struct Guards {
    pub(super) policy: Arc<dyn Policy>,
    pub(super) cwd: String,
    pub(super) tier: SandboxTier,
}

impl Guards {
    /// Returns a denial if the policy denies the command of a call that runs one, or if the
    /// argument `path` of a call that writes has the name of a secret file; otherwise `None`.
    /// `agent`: path of the calling agent.
    pub(super) fn judge(&self, used: &HookedCall, agent: &str) -> Option<HookReport> {
        if used.annotations.access == Access::Process {
            return self.dangerous(used, agent).map(|why| denial("block-dangerous-bash", why));
        }
        let path = used.input["path"].as_str().unwrap_or_default();
        let secret = used.annotations.access == Access::Write && is_secret(path);
        let why = || format!("{path} is a secret file, which no tool may write");
        secret.then(|| denial("protect-env-files", why()))
    }

    /// Reason for which the policy denies the command of `used`. `None`: the policy does not deny
    /// it.
    fn dangerous(&self, used: &HookedCall, agent: &str) -> Option<String> {
        let command = used.input["command"].as_str().unwrap_or_default();
        let cwd = self.cwd.clone();
        let action = Action {
            tool: used.tool.clone(),
            operations: vec![Operation::Execute {
                command: command.to_owned(),
                cwd,
                links: Vec::new(),
                replaces: Vec::new(),
                deletions: CommandDeletions::default(),
                in_trial: false,
                secrets: posse_actors::ports::CommandSecrets::default(),
            }],
            summary: String::new(),
            detail: command.to_owned(),
            digest: String::new(),
        };
        // No grant or trust that could permit the call may count here.
        let situation = Situation {
            tool: &used.annotations,
            caller: Caller::Agent,
            agent,
            grants: &[],
            asking: AnswerSource::Nobody,
            mode: PermissionMode::default(),
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

fn denial(hook: &str, message: String) -> HookReport {
    report(hook, HookResult::Block, Some(message))
}
