//! Slash commands of line mode, with text output on standard error. Commands that need a screen say
//! so and name an alternative.

use std::pin::Pin;

use posse_actors::event::{Announcement, Event, MessageKind, SessionEndReason};
use posse_actors::root_session::UserCall;
use posse_actors::subscription::Subscription;

use posse_base::failure::{Exit, printable};
use posse_frontend::commands::{
    Availability, COMMANDS, Choice, Command, CommandContext, Page, ParsedLine, ReportRequest,
    SessionQuery, SessionSwitch, parse, unknown,
};
use posse_frontend::jobs::Jobs;
use posse_frontend::remote_session::{Revert, RevertRequest};
use posse_frontend::session_records::changes;
use posse_frontend::{
    BackgroundJob, LoadedSession, Rewind, RewindExtent, SessionSelection, Task, clipboard,
    own_call, replaced_text, rewind_extents_text, rewind_points_text,
};

use crate::plain::{LineMode, PATIENT_END};

/// Output of `/keys`.
const KEYS: &str = "  Enter           send; a backslash at the end of a line continues it\n\
    \x20 Up, Down        what was typed before; Ctrl+R looks for it\n\
    \x20 Ctrl+C          stop what runs; twice within two seconds: leave\n\
    \x20 Ctrl+D          leave, on an empty line\n\
    \x20 Pasted lines stay together. Other keys are those of your shell's line editor.\n";

/// Answer to `/theme`.
const NO_THEMES: &str = "Line mode has no themes: NO_COLOR=1 in the environment turns colours off, \
                         and `ui.theme` is for `posse tui`.\n";

/// Answer to `/rewind` if there is nothing to restore.
const NO_FILE_CHANGED: &str = "No file was changed since.";

/// Note about a return of files and conversation whose restore was denied or failed.
const NOT_RETURNED: &str =
    "The files were not restored, so the conversation stays as it is as well.\n";

/// Answer to a command that is not possible while a task runs.
pub(super) const HAS_TO_WAIT: &str = "(that has to wait until nothing runs; /stop stops it)\n";

/// Output of `/help`.
fn help() -> String {
    let line = |entry: &Command| {
        let name = format!("/{} {}", entry.name, entry.argument);
        format!("  {name:<18} {}\n", entry.help)
    };
    let mut text: String = COMMANDS.iter().map(line).collect();
    text.push_str(
        "  !COMMAND           run a command yourself, under the same rules; the model is told of it\n  \
         !!COMMAND          the same, and the model is not told of it\n  \
         Everything else is a task. While one is worked on, it is said to the model at its next \
         step.\n",
    );
    text
}

/// Asynchronous work of a command, carried out on the line mode after the command has returned.
type Step =
    Box<dyn for<'m, 's> FnOnce(&'m mut LineMode<'s>) -> Pin<Box<dyn Future<Output = ()> + 'm>>>;

/// Command context of line mode: stores the work that a command requests; line mode awaits it
/// later.
struct LineCommand {
    /// True if a task is running.
    busy: bool,
    jobs: Jobs,
    step: Option<Step>,
}

impl LineCommand {
    fn run(
        &mut self,
        step: impl for<'m, 's> FnOnce(&'m mut LineMode<'s>) -> Pin<Box<dyn Future<Output = ()> + 'm>>
        + 'static,
    ) {
        self.step = Some(Box::new(step));
    }
}

impl CommandContext for LineCommand {
    fn show(&mut self, page: Page) {
        self.run(move |mode| Box::pin(mode.show_page(page)));
    }

    fn query(&mut self, query: SessionQuery) {
        self.run(|mode| Box::pin(mode.query(query)));
    }

    fn report(&mut self, request: ReportRequest) {
        self.run(|mode| Box::pin(mode.report(request)));
    }

    fn choose(&mut self, choice: Choice) {
        let busy = self.busy;
        self.run(move |mode| Box::pin(mode.list_choices(choice, busy)));
    }

    fn switch(&mut self, to: SessionSwitch) {
        self.run(|mode| Box::pin(mode.switch_session(to)));
    }

    fn prompt(&mut self, text: String) {
        let prompt = posse_actors::conversation::Prompt::text(text);
        self.run(|mode| Box::pin(mode.work(Task::Prompt(prompt))));
    }

    fn run_skill(&mut self, name: &str, task: &str) {
        let (name, task) = (name.to_owned(), task.to_owned());
        self.run(|mode| Box::pin(mode.run_skill(name, task)));
    }

    fn undo(&mut self, checkpoint: Option<u64>) {
        self.run(move |mode| Box::pin(mode.undo(checkpoint)));
    }

    fn rewind(&mut self, prompt: usize, extent: RewindExtent) {
        self.run(move |mode| Box::pin(mode.rewind(prompt, extent)));
    }

    fn tree(&mut self, row: usize, label: Option<String>) {
        self.run(move |mode| Box::pin(mode.tree(row, label)));
    }

    fn withdraw(&mut self, number: &str) {
        let number = number.to_owned();
        self.run(|mode| Box::pin(mode.withdraw(number)));
    }

    fn copy_answer(&mut self) {
        self.run(|mode| Box::pin(mode.copy_answer()));
    }

    fn theme(&mut self, _name: Option<&str>) {
        self.run(|mode| Box::pin(mode.print(NO_THEMES)));
    }

    fn stop(&mut self, all: bool) {
        match (self.busy, all) {
            (true, false) => self.run(|mode| Box::pin(mode.stop())),
            (true, true) => self.run(|mode| {
                mode.current.session.interrupt_all();
                Box::pin(std::future::ready(()))
            }),
            (false, _) => self.run(move |mode| Box::pin(mode.stop_idle(all))),
        }
    }

    fn exit(&mut self) {
        let busy = self.busy;
        self.run(move |mode| {
            if busy {
                mode.exit_when_done();
                mode.current.session.interrupt();
            } else {
                mode.leaving = Some(if mode.interactive { Exit::Done } else { mode.last });
            }
            Box::pin(std::future::ready(()))
        });
    }

    fn jobs(&self) -> Jobs {
        self.jobs.clone()
    }
}

impl LineMode<'_> {
    /// Handles a line that was typed while nothing runs.
    pub(super) async fn follow_line(&mut self, line: &str) {
        match parse(line) {
            ParsedLine::Blank => (),
            ParsedLine::Text(text) => {
                let prompt = posse_actors::conversation::Prompt::text(text);
                self.work(Task::Prompt(prompt)).await;
            }
            ParsedLine::Shell(command) => self.call(own_call(&command)).await,
            ParsedLine::Command(command, argument) => {
                if command.when != Availability::Immediate {
                    self.catch_up().await;
                }
                self.run_command(command, argument.as_deref(), false).await;
            }
            ParsedLine::Unknown(name, meant) => self.print(&(unknown(&name, meant) + "\n")).await,
        }
    }

    /// Runs a command and waits for its work. `busy`: true if a task is running; a command that
    /// needs an idle session is then refused with [`HAS_TO_WAIT`].
    pub(super) async fn run_command(
        &mut self,
        command: &Command,
        argument: Option<&str>,
        busy: bool,
    ) {
        if busy && command.when == Availability::Idle {
            return self.print(HAS_TO_WAIT).await;
        }
        let mut context = LineCommand { busy, jobs: self.current.jobs.clone(), step: None };
        (command.run)(&mut context, argument);
        if let Some(step) = context.step {
            step(self).await;
        }
    }

    async fn show_page(&mut self, page: Page) {
        let text = match page {
            Page::Help => help(),
            Page::Keys => KEYS.to_owned(),
            Page::Status => self.status().await,
            Page::Changes => {
                let session = &self.current.session;
                let net = self.sessions.net_changes(session.id().as_str());
                let Some(net) = self.run_job(net).await else { return };
                changes(&self.current.session, net).await.text()
            }
        };
        self.print_lines(text).await;
    }

    async fn query(&mut self, query: SessionQuery) {
        let text = query.answer(self.current.session.clone()).await.into_text();
        self.print_lines(text).await;
    }

    async fn report(&mut self, request: ReportRequest) {
        let ReportRequest { report, appendix, .. } = request;
        let errand = self.sessions.report(report, self.current.session.id().as_str());
        let Some(mut text) = self.run_job(errand).await else { return };
        if let Some(query) = appendix {
            text += &query.answer(self.current.session.clone()).await.into_text();
        }
        self.print_lines(text).await;
    }

    /// Prints `text`, and a newline if it does not end with one.
    async fn print_lines(&mut self, text: String) {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        self.print(&(text + end)).await;
    }

    pub(super) async fn list_choices(&mut self, choice: Choice, busy: bool) {
        match choice {
            Choice::Setting(what) => self.show_names(what).await,
            Choice::StoredSession => self.show_stored().await,
            Choice::RewindPoint => self.show_rewind_points().await,
            Choice::RewindExtent(prompt) => {
                let id = self.current.session.id().to_string();
                let points = self.run_job(self.sessions.rewind_points(&id)).await;
                if let Some(points) = points {
                    self.print(&rewind_extents_text(prompt, &points)).await;
                }
            }
            Choice::Branch => self.show_tree().await,
            Choice::QueuedMessage => {
                let table = self.current.queue.table(busy);
                self.print(&table).await;
            }
        }
    }

    async fn switch_session(&mut self, to: SessionSwitch) {
        match to {
            SessionSwitch::New => self.clear().await,
            SessionSwitch::Resume(id) => self.resume(&id, false).await,
            SessionSwitch::Fork => {
                let id = self.current.session.id().to_string();
                self.resume(&id, true).await;
            }
            SessionSwitch::With(what, name) => self.select(what, name).await,
        }
    }

    async fn run_skill(&mut self, name: String, task: String) {
        match self.sessions.skill(&name, &task) {
            Ok(prompt) => self.work(Task::Prompt(prompt)).await,
            Err(failures) => self.failed(&failures).await,
        }
    }

    async fn undo(&mut self, checkpoint: Option<u64>) {
        let errand = self.sessions.undo(self.current.session.id().as_str(), checkpoint);
        if let Some(wanted) = self.run_job(errand).await {
            self.call(wanted).await;
        }
    }

    /// Handles `/stop` while no task runs: with `all`, stops subagents in the background and
    /// background jobs; otherwise says that nothing runs.
    async fn stop_idle(&mut self, all: bool) {
        self.catch_up().await;
        if all {
            self.current.session.interrupt_all();
            self.print("(agents in the background are told to stop)\n").await;
        } else {
            self.print("Nothing runs.\n").await;
        }
    }

    /// Runs a tool call that the user requested, and shows it to its end.
    async fn call(&mut self, wanted: UserCall) {
        self.catch_up().await;
        match self.current.session.call(wanted).await {
            Ok(running) => self.show_task(running).await,
            Err(error) => self.print(&format!("{error}\n")).await,
        }
    }

    /// Runs `errand` on another thread and returns its value. `None` if it failed or a signal came
    /// first: a failure and Ctrl+C are printed, any other signal ends line mode. The thread is not
    /// stopped.
    pub(super) async fn run_job<T: Send + 'static>(
        &mut self,
        errand: BackgroundJob<T>,
    ) -> Option<T> {
        let done = tokio::task::spawn_blocking(errand);
        tokio::select! {
            biased;
            signal = self.signals.next() => {
                if signal == Exit::Interrupt {
                    self.current.session.interrupt();
                    self.print("\n(given up)\n").await;
                } else {
                    self.leaving = Some(signal);
                }
                None
            }
            done = done => match done {
                Ok(Ok(value)) => Some(value),
                Ok(Err(failures)) => {
                    self.failed(&failures).await;
                    None
                }
                Err(error) => {
                    self.print(&format!("! it ended in the middle: {error}\n")).await;
                    None
                }
            },
        }
    }

    async fn withdraw(&mut self, number: String) {
        let Some(id) = self.current.queue.own_message(&number).cloned() else {
            let number = printable(&number);
            let text = format!("No message {number} of yours waits; /queue lists them.\n");
            return self.print(&text).await;
        };
        let text = match self.current.session.withdraw(id).await {
            Some(_) => "(deleted)\n",
            None => "(too late: it was said already)\n",
        };
        self.print(text).await;
    }

    async fn copy_answer(&mut self) {
        let text = match self.last_reply.len() {
            0 => "(there is no answer yet)\n".to_owned(),
            _ if !self.clipboard => {
                "(only a terminal has a clipboard; /export FILE writes the conversation)\n"
                    .to_owned()
            }
            bytes if bytes > clipboard::BYTES_MAX => format!("({})\n", clipboard::too_long(bytes)),
            _ => {
                let sequence = clipboard::sequence(&self.last_reply);
                self.stderr.write_sequence(sequence).await;
                "(copied, if the terminal allows it)\n".to_owned()
            }
        };
        self.print(&text).await;
    }

    async fn show_stored(&mut self) {
        let Some(stored) = self.run_job(self.sessions.stored()).await else { return };
        let own = self.current.session.id().to_string();
        let mut text = String::new();
        for (id, what) in stored.iter().filter(|(id, _)| *id != own) {
            text.extend([id, "  ", what, "\n"]);
        }
        text.push_str(if text.is_empty() {
            "There is no other conversation here.\n"
        } else {
            "/resume ID resumes one; the beginning of an id is enough.\n"
        });
        self.print(&text).await;
    }

    async fn show_rewind_points(&mut self) {
        let id = self.current.session.id().to_string();
        let Some(points) = self.run_job(self.sessions.rewind_points(&id)).await else { return };
        self.print(&rewind_points_text(points)).await;
    }

    async fn rewind(&mut self, number: usize, extent: RewindExtent) {
        let id = self.current.session.id().to_string();
        self.rewind_of(&id, number, extent).await;
    }

    /// Returns to the state of the session `id` before a prompt. Restores the files first: if that is
    /// not done, the conversation stays as well.
    pub(super) async fn rewind_of(&mut self, id: &str, number: usize, extent: RewindExtent) {
        let errand = self.sessions.rewind(id, number, extent);
        let Some(rewind) = self.run_job(errand).await else { return };
        if let Some(replaced) = self.confirmation.missing("", &rewind) {
            let revert = Revert::ToPrompt(number, extent);
            return self.print(&replaced_text(&replaced, &revert)).await;
        }
        let Rewind { session, call, prompt, .. } = rewind;
        match call {
            Some(call) => {
                self.current.is_restored = false;
                self.call(call).await;
                if session.is_some() && !self.current.is_restored {
                    return self.print(NOT_RETURNED).await;
                }
            }
            None if extent == RewindExtent::Conversation => {}
            None => self.print(&format!("{NO_FILE_CHANGED}\n")).await,
        }
        if let Some(session) = session.filter(|_| self.leaving.is_none()) {
            self.continue_in(session, true).await;
            if self.leaving.is_some() {
                return;
            }
            let prompt: Vec<String> = prompt.lines().map(printable).collect();
            self.print(&format!("the prompt was: {}\n", prompt.join("\n"))).await;
        }
    }

    /// Carries out the request of an attached client to return to an earlier state, while nothing
    /// runs and the editor waits for a line. The restore of files is shown where it was asked for.
    pub(super) async fn revert_elsewhere(&mut self, request: RevertRequest) {
        if request.is_abandoned() {
            return;
        }
        let id = self.current.session.id().to_string();
        let errand: BackgroundJob<Rewind> = match request.revert {
            Revert::LastChange => Rewind::of_call(self.sessions.undo(&id, None)),
            Revert::ToCheckpoint(of) => Rewind::of_call(self.sessions.undo(&id, Some(of))),
            Revert::ToPrompt(prompt, extent) => self.sessions.rewind(&id, prompt, extent),
        };
        let refused = match tokio::task::spawn_blocking(errand).await {
            Ok(Ok(Rewind { session: None, call: None, .. })) => NO_FILE_CHANGED.to_owned(),
            Ok(Ok(rewind)) => {
                if let Some(replaced) = self.confirmation.missing(&request.client, &rewind) {
                    return request.ask(&replaced);
                }
                let Rewind { session, call, .. } = rewind;
                let text = format!("\n({}: {})\n", printable(&request.client), request.revert);
                self.print(&text).await;
                match (self.begin_revert(call).await, session) {
                    (Err(error), _) => request.answer(Err(error)),
                    (Ok(_), None) => request.answer(Ok(())),
                    (Ok(events), Some(session)) => {
                        // The connection of the client ends with this session.
                        request.answer(Ok(()));
                        self.follow_revert(session, events).await;
                    }
                }
                return;
            }
            Ok(Err(failures)) => return request.refuse(&failures),
            Err(error) => error.to_string(),
        };
        request.answer(Err(refused));
    }

    /// Begins `call`. Returns the events from its beginning, or `None` without a call. The error, which
    /// is printed too, says why the call did not begin.
    async fn begin_revert(
        &mut self,
        call: Option<UserCall>,
    ) -> Result<Option<Subscription>, String> {
        let Some(call) = call else { return Ok(None) };
        let events = self.current.session.subscribe_after(u64::MAX);
        let begun = self.current.session.call(call).await;
        let begun = begun.map(|_| Some(events)).map_err(|error| error.to_string());
        if let Err(error) = &begun {
            self.print(&format!("{error}\n")).await;
        }
        begun
    }

    /// Continues in `session` as soon as the call with these events has restored the files. A signal
    /// stops the call.
    async fn follow_revert(&mut self, session: LoadedSession, mut events: Option<Subscription>) {
        let mut is_restored = events.is_none();
        while let Some(events) = &mut events {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    self.current.session.interrupt();
                    if signal != Exit::Interrupt {
                        self.leaving = Some(signal);
                        return;
                    }
                }
                announcement = events.next() => match announcement.as_deref().map(Announcement::event) {
                    Some(Event::CheckpointRestored { .. }) => is_restored = true,
                    // The last message of a call of the user tells the model about it.
                    Some(Event::MessageQueued { kind: MessageKind::Aside, .. }) | None => break,
                    Some(_) => {}
                },
            }
        }
        if is_restored {
            self.continue_in(session, true).await;
        } else {
            self.print(NOT_RETURNED).await;
        }
    }

    /// Switches to the stored session whose id begins with `id`, or to a fork of it, and continues
    /// its unfinished work. If the session cannot be found or assembled, prints the reason and
    /// keeps the current session; if it cannot be started, ends line mode.
    pub(super) async fn resume(&mut self, id: &str, fork: bool) {
        let Some(ready) = self.run_job(self.sessions.find_session(id, fork)).await else { return };
        self.continue_in(ready, fork).await;
    }

    /// Switches to a loaded session, as [`LineMode::resume`] does. `fork`: true if it is a copy of the
    /// current session.
    async fn continue_in(&mut self, ready: LoadedSession, fork: bool) {
        let (mut opened, unfinished) = match self.sessions.resume(ready) {
            Ok(opened) => opened,
            Err(failures) => return self.failed(&failures).await,
        };
        if fork {
            opened.restrict_permission_mode(self.current.session.permission_mode());
        }
        self.current.end(SessionEndReason::Completed, Exit::Done, PATIENT_END).await;
        self.enter(opened, SessionSelection::default()).await;
        if self.leaving.is_some() {
            return;
        }
        self.last_reply.clear();
        let text = format!("session {}\n{}", self.current.session.id(), self.selection());
        self.print(&text).await;
        if unfinished {
            self.work(Task::Continue).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command() {
        for entry in COMMANDS {
            assert!(help().contains(&format!("/{} ", entry.name)), "{}", entry.name);
        }
    }
}
