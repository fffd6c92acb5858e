//! Permission policy: decides about an action from its description and the situation.
//!
//! A policy performs no I/O and does not wait: a permission request is a value that it returns. The
//! permission system can therefore be tested with tables.

use std::time::Duration;

use serde_json::Value;

use crate::event::{Grant, Origin, PermissionMode, SandboxTier, Scope};
use crate::ports::Action;
use crate::ports::tool::ToolAnnotations;

/// Permission policy: decides which calls may run.
pub trait Policy: Send + Sync + 'static {
    /// Judges `action`, which describes the exact effect of a call after changes by hooks.
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict;

    /// Restriction of `mode` on this machine, in words, for the user: a mode may allow less without
    /// a full sandbox. `None`: it means what it says.
    fn restriction(&self, mode: PermissionMode, tier: &SandboxTier) -> Option<String> {
        let _: (PermissionMode, &SandboxTier) = (mode, tier);
        None
    }
}

/// Facts besides the action on which a decision depends: tool, calling agent, grants, the party
/// that answers permission requests, permission mode, time and sandbox tier.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// Annotations of the called tool.
    pub tool: &'a ToolAnnotations,
    /// Caller of the tool.
    pub caller: Caller,
    /// Path of the calling agent, or of the main agent for a call of the user: the names of the
    /// agents from the main agent down to it, separated
    /// by `/`.
    pub agent: &'a str,
    /// Valid grants that count for the caller: those of this session, without those for other
    /// agents, and those that outlive sessions.
    pub grants: &'a [Grant],
    /// Source of answers to permission requests.
    pub asking: AnswerSource,
    /// Permission mode of the session.
    pub mode: PermissionMode,
    /// Wall clock in milliseconds since 1970.
    pub now_ms: u64,
    /// Monotonic time since a fixed moment.
    pub uptime: Duration,
    /// Sandbox tier of processes: `none`, `reduced` or `full`.
    pub tier: &'a SandboxTier,
}

/// Caller of a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caller {
    /// An agent.
    #[default]
    Agent,
    /// A person at a front end, by a command such as `/undo`, or `!` and a shell command.
    User,
}

impl Caller {
    /// The calling agent, if `origin` is that of the call; `None` for a call of the user.
    pub(crate) fn agent(self, origin: &Origin) -> Option<&Origin> {
        (self == Caller::Agent).then_some(origin)
    }
}

/// Source of answers to permission requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerSource {
    /// A person answers permission requests.
    Human,
    /// The flag `--yes` allows the requests that it covers; others are denied.
    Yes,
    /// No person can be asked: every permission request is denied.
    Nobody,
}

/// Decision of a [`Policy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run within this confinement.
    Allow(Confinement),
    /// The answer to this permission request decides. A call that it allows runs within the
    /// confinement of the question.
    Ask(PermissionQuestion),
    /// The call does not run, and the model reads the reason.
    Deny {
        /// Reason, for the model and the user.
        reason: String,
        /// The rule that denies the call.
        rule: String,
    },
}

/// Permission request: the reason and the possible answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionQuestion {
    /// Reason why permission is needed, which the person reads.
    pub reason: String,
    /// Scopes that the policy accepts for an answer, `Once` first. The permission coordinator
    /// removes those that are wider than the grant store offers, and adds `Agent` where `Session`
    /// is accepted and would include other agents.
    pub scopes: Vec<Scope>,
    /// Grant that an answer with a wider scope than `Once` creates. `None`: only `Once` is
    /// possible.
    pub grant: Option<Grant>,
    /// True if `grant` covers only a part of the call: an answer that creates it does not allow the
    /// call yet, and the other parts are asked about next.
    pub grants_part: bool,
    /// Description for a person of the calls that an answer with `grant` allows. Empty: the person is not told, or there
    /// is no such answer.
    pub grant_text: Box<str>,
    /// True if the flag `--yes` allows the call.
    pub yes_covers: bool,
    /// Rule that would allow the call if the user configured it; `None` if there is no such rule.
    pub rule: Option<Value>,
    /// Confinement of the call if it is allowed.
    pub confinement: Confinement,
}

impl PermissionQuestion {
    /// The reason, followed by what a saved answer allows.
    pub fn full_reason(&self) -> String {
        let (reason, grant) = (&self.reason, &self.grant_text);
        if grant.is_empty() { reason.clone() } else { format!("{reason}; {grant}") }
    }
}

/// Confinement of a call: the sandbox profile and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// Name of the sandbox profile: a file in `sandbox-profiles/` without its extension.
    pub profile: String,
    /// Absolute paths of folders that the call may write, including everything below.
    pub writable_roots: Vec<String>,
    /// Network access of the processes of the call.
    pub network: NetworkAccess,
}

/// Network access of the processes of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkAccess {
    /// None.
    #[default]
    Denied,
    /// To domains that are decided one by one, through a proxy. None without a sandbox that has a
    /// network namespace.
    Domains,
    /// That of the host.
    Host,
}
