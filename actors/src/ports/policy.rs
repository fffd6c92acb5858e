//! Permission policy: a pure function of an action and its situation.
//!
//! A policy performs no I/O and waits for nothing; asking a person is a value. The whole permission
//! system is therefore testable by tables.

use std::time::Duration;

use crate::event::{Grant, SandboxTier, Scope};
use crate::ports::Action;
use crate::ports::tool::ToolAnnotations;

/// Decides what may run.
pub trait Policy: Send + Sync + 'static {
    /// Judges `action` exactly as it would run, after changes by hooks.
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict;
}

/// Everything besides the action that a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// Annotations of the tool.
    pub tool: &'a ToolAnnotations,
    /// The agent that asks, after those that it works for: names from the root, separated by `/`.
    pub agent: &'a str,
    /// Grants of the user so far.
    pub grants: &'a [Grant],
    /// Source of answers to permission requests.
    pub asking: AnswerSource,
    /// Milliseconds since 1970, for grants that expire.
    pub now_ms: u64,
    /// Time since the process started.
    pub uptime: Duration,
    /// Sandbox tier of processes: `none`, `reduced` or `full`.
    pub tier: &'a SandboxTier,
}

/// Source of answers to permission requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerSource {
    /// A human.
    Human,
    /// `--yes`, for requests that it covers.
    Yes,
    /// None: a permission request is a denial.
    Nobody,
}

/// Decision of a [`Policy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Run it within this confinement.
    Allow(Confinement),
    /// A human has to decide; if they agree, it runs within the question's confinement.
    Ask(PermissionQuestion),
    /// Deny, with a reason for the model.
    Deny {
        /// For the model and the user.
        reason: String,
        /// The matching rule.
        rule: String,
    },
}

/// Permission request: text for a person and possible answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionQuestion {
    /// Why it is asked.
    pub reason: String,
    /// Scopes that may be offered, `Once` first.
    pub scopes: Vec<Scope>,
    /// Grant for an answer with a wider scope than `Once`.
    pub grant: Option<Grant>,
    /// True if `--yes` answers this.
    pub yes_covers: bool,
    /// The rule in the user's configuration that would have allowed it, as JSON text.
    pub rule: Option<String>,
    /// Confinement if it is permitted.
    pub confinement: Confinement,
}

/// Confinement of a call: name of a file in `sandbox-profiles/`, and the roots it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The profile.
    pub profile: String,
    /// Absolute paths that it may write below.
    pub writable_roots: Vec<String>,
    /// True if network access is permitted.
    pub network: bool,
}
