//! Slash commands in the terminal UI. A command that needs only the UI state is carried out here;
//! the others become effects.

use posse_actors::event::{ContextUse, MessageKind};
use posse_base::failure::Exit;
use posse_frontend::RewindExtent;
use posse_frontend::clipboard;
use posse_frontend::commands::{
    Choice, Command, CommandContext, Page, ReportRequest, SessionQuery, SessionSwitch,
};
use posse_frontend::jobs::Jobs;
use posse_frontend::session_records::Changes;

use crate::app::{App, Effect, help};
use crate::theme::Role;
use crate::viewer::Viewer;

/// Maximum lines of an answer in the transcript; longer ones open in the viewer.
const LINES_MAX: usize = 40;

/// Command context of the terminal UI.
struct AppCommand<'a> {
    app: &'a mut App,
    /// The submitted line.
    line: &'a str,
}

impl AppCommand<'_> {
    /// Shows the submitted line in the transcript. Operations that always open a list or the
    /// viewer, `run_skill` and `exit` do not call this.
    fn echo(&mut self) -> &mut App {
        self.app.view.push_user_input(self.line.trim().to_owned());
        self.app
    }

    fn push(&mut self, effect: Effect) {
        self.app.effects.push(effect);
    }
}

impl CommandContext for AppCommand<'_> {
    fn show(&mut self, page: Page) {
        let lines = match page {
            Page::Help => return self.app.open_help(false),
            Page::Keys => return self.app.open_help(true),
            Page::Status => help::status(self.app),
            Page::Changes => return self.push(Effect::ShowChanges),
        };
        self.echo().view.push_lines(lines);
    }

    fn query(&mut self, query: SessionQuery) {
        self.echo().effects.push(Effect::Query(query));
    }

    fn report(&mut self, request: ReportRequest) {
        if !request.is_list {
            self.echo();
        }
        self.push(Effect::Report(request));
    }

    fn choose(&mut self, choice: Choice) {
        match choice {
            Choice::Setting(what) => self.push(Effect::Choose(what)),
            Choice::StoredSession => self.push(Effect::ListSessions),
            Choice::RewindPoint => self.push(Effect::ListRewindPoints),
            Choice::RewindExtent(number) => self.push(Effect::ListRewindExtents(number)),
            Choice::Branch => self.push(Effect::ListTree),
            Choice::QueuedMessage => self.app.open_queue(),
        }
    }

    fn switch(&mut self, to: SessionSwitch) {
        self.echo().effects.push(Effect::Switch(to));
    }

    fn prompt(&mut self, text: String) {
        self.push(Effect::Say(text, MessageKind::Steer));
    }

    fn choose_permission_mode(&mut self) {
        // A permission request covers selectors.
        if self.app.prompts.is_open() {
            return self.query(posse_frontend::commands::permission_modes_query());
        }
        self.app.choose_permission_mode();
    }

    fn run_skill(&mut self, name: &str, task: &str) {
        self.push(Effect::RunSkill(name.to_owned(), task.to_owned()));
    }

    fn undo(&mut self, checkpoint: Option<u64>) {
        self.echo().effects.push(Effect::Undo(checkpoint));
    }

    fn rewind(&mut self, prompt: usize, extent: RewindExtent) {
        self.app.rewind(prompt, extent);
    }

    fn tree(&mut self, row: usize, label: Option<String>) {
        self.echo().effects.push(Effect::Tree(row, label));
    }

    fn withdraw(&mut self, number: &str) {
        self.echo().withdraw(number);
    }

    fn copy_answer(&mut self) {
        self.echo().copy();
    }

    fn theme(&mut self, name: Option<&str>) {
        match name {
            Some(name) => self.echo().use_theme(name),
            None => self.app.choose_theme(),
        }
    }

    fn change_keys(&mut self) {
        self.app.open_keymap();
    }

    fn toggle_vim(&mut self) {
        self.echo().toggle_vim();
    }

    fn stop(&mut self, all: bool) {
        if all && self.app.is_input_blocked() {
            // The lookup may replace the session whose agents would be stopped.
            return self.app.wait_for_lookup(self.line);
        }
        let app = self.echo();
        let is_idle = !app.busy && (all || !app.cancel_lookups());
        if is_idle && all && app.view.tree.agents() > 0 {
            app.view.note(Role::Dim, "(stopping background agents)");
        } else if is_idle {
            app.view.note(Role::Dim, "(nothing runs)");
        }
        app.stopping = app.busy;
        app.exit_warned &= !all;
        if all {
            self.push(Effect::InterruptAll);
        } else if app.busy {
            self.push(Effect::Interrupt);
        }
    }

    fn exit(&mut self) {
        if self.app.busy {
            self.push(Effect::Leave(Exit::Done));
        } else {
            self.app.request_exit();
        }
    }

    fn list_jobs(&mut self) {
        if self.app.jobs.count() > 0 {
            return self.app.open_jobs();
        }
        self.tell("No job runs in the background.\n".to_owned());
    }

    fn jobs(&self) -> Jobs {
        self.app.jobs.clone()
    }
}

impl App {
    /// Runs a command. `line`: the submitted line, for the transcript.
    pub(super) fn command(&mut self, command: &Command, line: &str, argument: Option<&str>) {
        self.uses.add(command);
        (command.run)(&mut AppCommand { app: self, line }, argument);
    }

    /// Resets the view and the list of background jobs for another conversation; the transcript
    /// stays.
    pub(crate) fn begin(&mut self) {
        self.view.begin();
        self.jobs = Jobs::default();
        self.view.status.jobs = 0;
    }

    /// Shows the tokens and the context budget of a measurement in the status bar.
    pub(crate) fn set_context_usage(&mut self, used: &ContextUse) {
        (self.view.status.context, self.view.status.limit) =
            (Some(used.total), Some(used.tokens_max));
    }

    fn copy(&mut self) {
        let said = match self.view.last_reply() {
            Ok("") => "(there is no answer yet)".to_owned(),
            Ok(reply) => {
                self.effects.push(Effect::Copy(reply.to_owned()));
                "(copied, if the terminal allows it)".to_owned()
            }
            Err(bytes) => format!("({})", clipboard::too_long(bytes)),
        };
        self.view.note(Role::Dim, said);
    }

    /// Shows file changes in the viewer; if there are none, shows a note.
    pub(crate) fn show_changes(&mut self, changes: Changes) {
        if changes.diffs.is_empty() {
            self.view.push_user_input("/diff".to_owned());
            let text = changes.text();
            let (sentence, remark) = text.split_once('\n').unwrap_or((&text, ""));
            self.view.note(Role::Dim, format!("({sentence})"));
            if !remark.is_empty() {
                self.view.note(Role::Dim, remark.trim_end().to_owned());
            }
            return;
        }
        if !changes.remark.is_empty() {
            self.view.note(Role::Dim, changes.remark.clone());
        }
        self.viewer = Viewer::of_changes(changes);
    }

    /// Shows the answer to a command in the transcript. An answer of more than [`LINES_MAX`] lines,
    /// or a list that users search, is shown in the viewer instead, with the heading `title`.
    pub(crate) fn answer(&mut self, title: &str, is_list: bool, text: String) {
        if is_list || text.lines().count() > LINES_MAX {
            self.viewer = Some(Viewer::of_text(title, text));
        } else {
            self.view.note(Role::Text, text);
        }
    }
}

#[cfg(test)]
mod tests;
