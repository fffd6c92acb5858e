//! Slash commands. Those that the UI state can answer are answered here; the others become effects.

use posse_actors::event::ContextUse;
use posse_base::failure::Exit;
use posse_frontend::clipboard;
use posse_frontend::commands::Command;
use posse_frontend::jobs::Jobs;
use posse_frontend::session_queries::Changes;

use crate::app::{App, Effect, help};
use crate::theme::Role;
use crate::viewer::Viewer;

/// Maximum lines of an answer in the transcript; longer ones open in the viewer.
const LINES_MAX: usize = 40;

impl App {
    pub(super) fn command(&mut self, command: Command) -> Vec<Effect> {
        match command {
            Command::Help => self.view.push_lines(help::help()),
            Command::Keys => self.view.push_lines(help::keys()),
            Command::Status => self.view.push_lines(help::status(self)),
            Command::Copy => return self.copy(),
            Command::Theme(name) => self.choose_theme(name.as_deref()),
            Command::Queue(which) => return self.queue(which.as_deref()),
            Command::StopAll => {
                self.stopping = self.busy;
                if !self.busy {
                    let text = match self.view.agents() {
                        0 => "(nothing runs)",
                        _ => "(stopping background agents)",
                    };
                    self.view.note(Role::Dim, text);
                }
                return vec![Effect::InterruptAll];
            }
            Command::Stop if self.busy => return self.stop(),
            Command::Stop => {
                if !self.cancel_lookups() {
                    self.view.note(Role::Dim, "(nothing runs)");
                }
            }
            Command::Exit if self.busy => return vec![Effect::Leave(Exit::Done)],
            Command::Exit => return self.leave(),
            Command::Select(what, None) => return vec![Effect::Choose(what, None)],
            Command::Select(what, Some(name)) => return vec![Effect::Select(what, name)],
            command @ (Command::New
            | Command::Resume(_)
            | Command::Fork
            | Command::Agents
            | Command::Compact(_)
            | Command::Context(_)
            | Command::Cost
            | Command::Permissions
            | Command::Sandbox
            | Command::Diff
            | Command::Undo
            | Command::Export(_)
            | Command::Config
            | Command::Tools
            | Command::Skills
            | Command::Skill(..)
            | Command::Jobs(_)
            | Command::Memory
            | Command::Forget(_)
            | Command::Doctor) => return vec![Effect::Do(command)],
        }
        Vec::new()
    }

    /// Resets the state for another conversation.
    pub(crate) fn begin(&mut self) {
        self.view.begin();
        self.jobs = Jobs::default();
        self.status.jobs = 0;
        self.status.context = None;
    }

    /// Records a measurement of the context.
    pub(crate) fn set_context_usage(&mut self, used: &ContextUse) {
        self.view.context = Some(used.total);
        (self.status.context, self.status.limit) = (Some(used.total), Some(used.tokens_max));
    }

    fn copy(&mut self) -> Vec<Effect> {
        let said = match self.view.last_reply() {
            Ok("") => "(there is no answer yet)".to_owned(),
            Ok(reply) => {
                let reply = reply.to_owned();
                self.view.note(Role::Dim, "(copied, if the terminal allows it)");
                return vec![Effect::Copy(reply)];
            }
            Err(bytes) => format!("({})", clipboard::too_long(bytes)),
        };
        self.view.note(Role::Dim, said);
        Vec::new()
    }

    /// Shows file changes in the viewer.
    pub(crate) fn show_changes(&mut self, changes: Changes) {
        if changes.diffs.is_empty() {
            self.view.push_user_input("/diff".to_owned());
            self.view.note(Role::Dim, format!("({})", changes.text().trim_end()));
            return;
        }
        if !changes.remark.is_empty() {
            self.view.note(Role::Dim, changes.remark);
        }
        self.viewer = Viewer::of_diffs(changes.diffs);
    }

    /// Shows the answer to a command, in the transcript or in the viewer.
    pub(crate) fn answer(&mut self, title: &str, text: String) {
        // Lists that users search are always shown in the viewer.
        let is_list = ["settings", "doctor", "tools", "skills"].contains(&title);
        if is_list || text.lines().count() > LINES_MAX {
            self.viewer = Some(Viewer::of_text(title, text));
        } else {
            self.view.note(Role::Text, text);
        }
    }
}

#[cfg(test)]
mod tests;
