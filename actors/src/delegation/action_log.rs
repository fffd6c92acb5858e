//! Log of a subagent's calls, which its caller reads unless the subagent has completed its task.
//! Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::conversation::CallId;
use crate::delegation::handoff::one_line;
use crate::event::{Event, ToolFailureClass};

/// Maximum number of listed changes; older ones are only counted.
const CHANGES_MAX: usize = 12;

/// Calls of a subagent, with the latest ones that may have changed something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionLog {
    /// Number of calls that started.
    pub calls: u32,
    /// Number of calls that started and may have changed something.
    pub changing: u32,
    /// The latest calls that may have changed something, at most 12, newest last.
    pub changes: Vec<LoggedChange>,
}

/// A call that may have changed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedChange {
    /// Id of the call.
    pub call_id: CallId,
    /// One-line description of the change that the call announced, at most 120 characters.
    pub summary: String,
    /// True if the call succeeded, false if it failed. `None` while it runs, and if it was stopped
    /// or its end is unknown.
    pub ended_well: Option<bool>,
}

impl ActionLog {
    /// Logs the start of a call. `summary`: description of the possible change; `None` for a call
    /// without side effects.
    pub(crate) fn began(&mut self, call_id: &CallId, summary: Option<&str>) {
        self.calls = self.calls.saturating_add(1);
        let Some(summary) = summary else { return };
        self.changing = self.changing.saturating_add(1);
        if self.changes.len() == CHANGES_MAX {
            self.changes.remove(0);
        }
        let (call_id, summary) = (call_id.clone(), one_line(summary));
        self.changes.push(LoggedChange { call_id, summary, ended_well: None });
    }

    /// Logs the end of a call, if the call is among the listed changes. `well`: true if it
    /// succeeded.
    pub(crate) fn ended(&mut self, call_id: &CallId, well: bool) {
        if let Some(change) = self.changes.iter_mut().rev().find(|one| one.call_id == *call_id) {
            change.ended_well = Some(well);
        }
    }

    /// Updates the log with the next record of the subagent: starts and ends of calls count, other
    /// records do not.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only what calls did matters")]
    pub(crate) fn follow(&mut self, event: &Event) {
        match event {
            Event::ToolStarted { call_id, effect, summary, .. } => {
                self.began(call_id, effect.then_some(summary));
            }
            Event::ToolCompleted { call_id, .. } => self.ended(call_id, true),
            // A call that was stopped while it ran did not finish.
            Event::ToolFailed { call_id, class, .. } if *class != ToolFailureClass::Cancelled => {
                self.ended(call_id, false);
            }
            _ => (),
        }
    }
}

impl fmt::Display for ActionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ActionLog { calls, changing, changes } = self;
        if *calls == 0 {
            return f.write_str("It had made no call.");
        }
        let calls = if *calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
        if *changing == 0 {
            return write!(f, "It had made {calls}, none of which changes anything.");
        }
        write!(f, "It had made {calls}; {changing} of them may have changed something")?;
        let left_out = usize::try_from(*changing).unwrap_or(usize::MAX) - changes.len();
        if left_out > 0 {
            write!(f, ", the last {} of which are", changes.len())?;
        }
        f.write_str(":")?;
        for LoggedChange { summary, ended_well, .. } in changes {
            let how = match ended_well {
                Some(true) => "done",
                Some(false) => "ended with an error",
                None => "cut off: whether it took effect is not known",
            };
            write!(f, "\n- {summary} ({how})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_changes_and_calls_with_unknown_result() {
        let mut actions = ActionLog::default();
        assert_eq!(actions.to_string(), "It had made no call.");
        actions.began(&CallId::new("1"), None);
        assert_eq!(actions.to_string(), "It had made 1 call, none of which changes anything.");
        for (id, well) in [("2", Some(true)), ("3", Some(false)), ("4", None)] {
            actions.began(&CallId::new(id), Some(&format!("write\n {id}.txt")));
            if let Some(well) = well {
                actions.ended(&CallId::new(id), well);
            }
        }
        assert_eq!(
            actions.to_string(),
            "It had made 4 calls; 3 of them may have changed something:\n\
             - write 2.txt (done)\n\
             - write 3.txt (ended with an error)\n\
             - write 4.txt (cut off: whether it took effect is not known)"
        );
        for nth in 0..40 {
            actions.began(&CallId::new(format!("n{nth}")), Some("bash make"));
        }
        let text = actions.to_string();
        assert!(text.contains("43 of them may have changed something, the last 12 of"), "{text}");
        assert_eq!(text.matches("\n- ").count(), 12);
    }
}
