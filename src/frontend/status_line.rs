//! The status line command of the user: its input, and the times at which it runs.
//!
//! The command gets the names that status line scripts for Claude Code read, as far as posse has
//! such facts, and those of posse beside them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

/// Minimum time between two starts of the command.
pub const INTERVAL: Duration = Duration::from_millis(300);

/// Runs the command of the user with a JSON object on its standard input, and returns the first line
/// of its output or a reason why there is none. Blocks for at most a few seconds.
#[derive(Clone)]
pub struct StatusLineCommand(pub Arc<dyn Fn(String) -> Result<String, String> + Send + Sync>);

impl fmt::Debug for StatusLineCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatusLineCommand")
    }
}

/// Facts about a session for the command. Empty texts and `None` are unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatusFacts {
    /// Id of the session.
    pub session: String,
    /// The working directory.
    pub cwd: String,
    /// Name of the provider profile.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// Reasoning effort.
    pub effort: Option<&'static str>,
    /// Name of the main agent.
    pub agent: String,
    /// Permission mode.
    pub permission_mode: Option<&'static str>,
    /// Network access of commands: `open`, `ask` or `closed`.
    pub network: Option<&'static str>,
    /// Git branch or commit.
    pub branch: Option<String>,
    /// Tokens of the context.
    pub context: Option<u64>,
    /// Maximum tokens of the context.
    pub limit: Option<u64>,
    /// Cost in nano-USD.
    pub cost: Option<u64>,
    /// Number of running background jobs.
    pub jobs: usize,
}

impl StatusFacts {
    /// The JSON object for the command.
    pub fn to_json(&self) -> String {
        let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        let percent = match (self.context, self.limit) {
            (Some(used), Some(limit)) if limit > 0 => json!(used.saturating_mul(100) / limit),
            _ => Value::Null,
        };
        #[expect(clippy::cast_precision_loss, reason = "a cost for display")]
        let dollars = self.cost.map(|nano| nano as f64 / 1e9);
        json!({
            "hook_event_name": "Status",
            "session_id": text(&self.session),
            "version": env!("CARGO_PKG_VERSION"),
            "cwd": text(&self.cwd),
            "workspace": {"current_dir": text(&self.cwd)},
            "model": {"id": text(&self.model), "display_name": text(&self.model)},
            "provider": text(&self.provider),
            "effort": self.effort,
            "agent": text(&self.agent),
            "permission_mode": self.permission_mode,
            "network": self.network,
            "branch": self.branch,
            "jobs": self.jobs,
            "cost": {"total_cost_usd": dollars},
            "context_window": {
                "used_tokens": self.context,
                "context_window_size": self.limit,
                "used_percentage": percent,
            },
        })
        .to_string()
    }
}

/// Decides when the command runs: after a change of the facts, one run at a time, and at most once
/// in [`INTERVAL`]. It has no clock.
#[derive(Debug, Default)]
pub struct StatusLineSchedule {
    facts: Option<StatusFacts>,
    /// True if the facts have changed since the last start.
    is_stale: bool,
    is_running: bool,
    started: Option<Duration>,
}

impl StatusLineSchedule {
    /// Adopts the current facts.
    pub fn observe(&mut self, facts: StatusFacts) {
        if self.facts.as_ref() != Some(&facts) {
            self.facts = Some(facts);
            self.is_stale = true;
        }
    }

    /// Time until the command may start; `None` if it need not, or runs.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        let next = self.started.map_or(Duration::ZERO, |started| started + INTERVAL);
        (self.is_stale && !self.is_running).then(|| next.saturating_sub(now))
    }

    /// Returns the input of the command if it is due, and counts it as started.
    pub fn start(&mut self, now: Duration) -> Option<String> {
        if self.wait(now) != Some(Duration::ZERO) {
            return None;
        }
        (self.is_stale, self.is_running, self.started) = (false, true, Some(now));
        self.facts.as_ref().map(StatusFacts::to_json)
    }

    /// Registers the end of the command.
    pub fn ended(&mut self) {
        self.is_running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn facts(context: u64) -> StatusFacts {
        StatusFacts { context: Some(context), limit: Some(200), ..StatusFacts::default() }
    }

    #[test]
    fn command_runs_after_changes_one_at_a_time_and_not_too_often() {
        let mut schedule = StatusLineSchedule::default();
        assert_eq!((schedule.wait(ms(0)), schedule.start(ms(0))), (None, None));
        schedule.observe(facts(1));
        assert!(schedule.start(ms(10)).is_some());
        schedule.observe(facts(2));
        assert_eq!(schedule.wait(ms(1000)), None, "it runs");
        schedule.ended();
        assert_eq!(schedule.wait(ms(110)), Some(ms(200)));
        assert_eq!(schedule.start(ms(309)), None);
        assert!(schedule.start(ms(310)).unwrap().contains("\"used_tokens\":2"));
        schedule.ended();
        schedule.observe(facts(2));
        assert_eq!(schedule.wait(ms(5000)), None, "nothing has changed");
    }

    #[test]
    fn facts_have_the_names_that_scripts_read() {
        let facts = StatusFacts {
            model: "large".to_owned(),
            cost: Some(1_500_000_000),
            permission_mode: Some("plan"),
            ..facts(50)
        };
        let json: Value = serde_json::from_str(&facts.to_json()).unwrap();
        assert_eq!(json["model"]["display_name"], "large");
        assert_eq!(json["cost"]["total_cost_usd"], 1.5);
        assert_eq!(json["context_window"]["used_percentage"], 25);
        assert_eq!(json["permission_mode"], "plan");
        assert_eq!(json["branch"], Value::Null);
    }
}
