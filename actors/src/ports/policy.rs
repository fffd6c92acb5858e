//! What may run: a pure function of what a call would do and the situation it is in.
//!
//! A policy asks nobody, waits for nothing and looks nothing up. "Ask a human" is a value. That
//! makes the whole permission system a table test.

use std::time::Duration;

use crate::event::{Grant, Scope};
use crate::ports::tool::Action;

/// Decides what may run.
pub trait Policy: Send + Sync + 'static {
    /// Judges `action` exactly as it would run: after every hook has had its say.
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict;
}

/// Everything besides the action that a judgement depends on.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The agent that asks, after those that it works for: names from the root, separated by `/`.
    pub agent: &'a str,
    /// What the user has allowed so far.
    pub grants: &'a [Grant],
    /// Who could be asked.
    pub asking: Asking,
    /// Milliseconds since 1970, for grants that expire.
    pub now_ms: u64,
    /// Time since the process started.
    pub uptime: Duration,
    /// Whether processes are confined: `none`, `reduced` or `full`.
    pub tier: &'a str,
}

/// Who answers a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// A human.
    Human,
    /// `--yes`, for what it covers.
    Yes,
    /// Nobody: a question is a denial.
    Nobody,
}

/// What a [`Policy`] thinks of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Run it within this confinement.
    Allow(Confinement),
    /// A human has to decide; if they agree, it runs within the question's confinement.
    Ask(PermissionQuestion),
    /// Tell the model why not.
    Deny {
        /// For the model and the user.
        reason: String,
        /// The rule that says so.
        rule: String,
    },
}

/// What a human is asked, and what they may answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionQuestion {
    /// Why it is asked.
    pub reason: String,
    /// Scopes that may be offered, `Once` first.
    pub scopes: Vec<Scope>,
    /// What an answer of a wider scope than `Once` grants.
    pub grant: Option<Grant>,
    /// Whether `--yes` is an answer to this.
    pub yes_covers: bool,
    /// The rule in the user's configuration that would have allowed it, as JSON text.
    pub rule: Option<String>,
    /// What it runs within, if it may.
    pub confinement: Confinement,
}

/// What a call runs within: the name of a file in `sandbox-profiles/`, and the roots that it is
/// opened for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The profile.
    pub profile: String,
    /// Absolute paths that it may write below.
    pub writable_roots: Vec<String>,
    /// Whether it may reach the network.
    pub network: bool,
}
