//! Carries out the effects that the UI state requests.

use posse_actors::conversation::{CallId, ContentPart, MessageId, Prompt, QuestionId, text_of};
use posse_actors::event::MessageKind;
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::root_session::{DeliverError, PromptError, SessionHandle, UserCall};
use posse_base::failure::{ErrorCode, Failure};
use posse_frontend::agent_mentions::with_mentioned_agents;
use posse_frontend::commands::ShellCommand;
use posse_frontend::files::Finder;
use posse_frontend::{RewindConfirmation, Selectable, Task, clipboard, own_call};

use crate::app::Effect;
use crate::running::Tui;
use crate::running::commands::{COLLECTING, READING_SESSIONS};
use crate::running::session::{LookupResult, RequestResult, steered};
use crate::theme::Role;

impl Tui<'_> {
    pub(super) async fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.dirty = true;
            match effect {
                Effect::Say(text, kind) => self.show_message(text, kind),
                Effect::Run(command) => self.run_own(&command),
                Effect::InterruptAll => {
                    if let Some(current) = &self.current {
                        current.session.interrupt_all();
                    }
                }
                Effect::Withdraw { id, back } => self.withdraw(id, back),
                Effect::Edit => self.edit().await,
                Effect::EditPlan(plan) => self.edit_plan(plan).await,
                Effect::EditHunk(draft) => self.edit_hunk(draft).await,
                Effect::StopJob(id) => self.stop_job(id),
                Effect::ViewJob(id) => self.view_job(id),
                Effect::PasteImage => self.paste_image(),
                Effect::Preview(id) => self.preview(id),
                Effect::Attach(name) => self.attach(name),
                Effect::Find(query) => self.find(&query),
                Effect::Interrupt => {
                    if let Some(current) = &self.current {
                        current.session.interrupt();
                    }
                }
                Effect::Answer(id, decision) => self.answer(id, decision),
                Effect::Choose(what) => self.choose(what),
                Effect::Query(query) => self.query(query),
                Effect::Report(request) => self.report(request),
                Effect::SaveKeys(changes) => self.save_keys(&changes),
                Effect::ShowChanges => self.show_changes(),
                Effect::ListSessions => {
                    let stored = self.environment.stored();
                    self.look_up(READING_SESSIONS, stored, LookupResult::Stored);
                }
                Effect::Switch(to) => self.switch_session(to).await,
                Effect::RunSkill(name, task) => self.run_skill(&name, &task),
                Effect::Undo(checkpoint) => {
                    let call = self.environment.undo(&self.app.session, checkpoint);
                    self.look_up(READING_SESSIONS, call, LookupResult::Undo);
                }
                Effect::ListRewindPoints => {
                    let points = self.environment.rewind_points(&self.app.session);
                    self.look_up(READING_SESSIONS, points, LookupResult::RewindPoints);
                }
                Effect::ListTree => self.look_up_tree(LookupResult::Tree),
                Effect::Tree(row, label) => {
                    self.look_up_tree(move |rows| LookupResult::TreeRow(rows, row, label));
                }
                Effect::ListRewindExtents(number) => {
                    let points = self.environment.rewind_points(&self.app.session);
                    let to = move |points| LookupResult::RewindExtents(number, points);
                    self.look_up(READING_SESSIONS, points, to);
                }
                Effect::Rewind(prompt, extent) => {
                    // A list that the user has seen before and not confirmed does not count.
                    self.confirmation = RewindConfirmation::default();
                    self.prepare_rewind(prompt, extent);
                }
                Effect::ConfirmedRewind(prompt, extent) => self.prepare_rewind(prompt, extent),
                Effect::Copy(text) => self.terminal.write(clipboard::sequence(&text)),
                Effect::Redraw => self.invalidate(),
                Effect::Suspend => self.suspend().await,
                Effect::Leave(exit) => self.leaving = Some(exit),
            }
        }
    }

    fn stop_job(&self, id: CallId) {
        if let Some(current) = &self.current {
            current.session.stop_job(id);
        }
    }

    /// Calls `ask` with the current session and runs the returned future in an asynchronous task.
    /// Its result, if any, is sent to the event loop. Does nothing without a session.
    pub(super) fn request<F>(&self, ask: impl FnOnce(SessionHandle) -> F)
    where
        F: Future<Output = Option<RequestResult>> + Send + 'static,
    {
        let Some(current) = &self.current else { return };
        let (answer, results) = (ask(current.session.clone()), self.results.clone());
        tokio::spawn(async move {
            if let Some(result) = answer.await {
                results.send(result).await.ok();
            }
        });
    }

    /// Sends the user's answer to a permission request to the session.
    pub(super) fn answer(&self, id: QuestionId, decision: HumanDecision) {
        self.request(|session| async move {
            let error = session.answer(id, decision).await.err()?;
            Some(RequestResult::Note(format!("({error})")))
        });
    }

    /// Saves the numbers of uses of slash commands, on another thread, if a command was used.
    pub(super) fn save_command_uses(&mut self) {
        if let Some(save) = self.app.uses.save() {
            tokio::task::spawn_blocking(save);
        }
    }

    /// Returns `true` if there is a session; otherwise shows a note.
    pub(super) fn has_session(&mut self) -> bool {
        if self.current.is_none() {
            let text = "There is no model yet: /provider selects a provider, /exit exits.";
            self.app.view.note(Role::Warn, text);
        }
        self.current.is_some()
    }

    fn show_message(&mut self, text: String, kind: MessageKind) {
        #[cfg(debug_assertions)]
        panic_if_requested(&text);
        self.history.add(&text);
        let text = with_mentioned_agents(text, &self.app.agents);
        let mut content = vec![ContentPart::text(text)];
        content.extend(self.app.composer.take_images());
        if !self.app.busy {
            return self.work(Task::Prompt(Prompt { content }));
        }
        self.request(|session| async move {
            match session.deliver(kind, content.clone()).await {
                Ok(_) => None,
                Err(DeliverError::Idle) => Some(RequestResult::Undelivered(content)),
                Err(error @ DeliverError::Full) => Some(RequestResult::Note(format!("({error})"))),
            }
        });
    }

    fn withdraw(&mut self, id: MessageId, back: bool) {
        if let Some(content) = self.take_undelivered(&id) {
            if back {
                self.restore_text(&content);
            }
            return;
        }
        self.request(move |session| async move {
            match session.withdraw(id).await {
                None => Some(RequestResult::Note("(too late: it was already sent)".to_owned())),
                Some(content) => back.then_some(RequestResult::Withdrawn(content)),
            }
        });
    }

    /// Runs a shell command of the user.
    fn run_own(&mut self, command: &ShellCommand) {
        self.history.add(&command.to_string());
        self.call(own_call(command));
    }

    /// Runs a tool call of the user, if there is a session.
    pub(super) fn call(&mut self, wanted: UserCall) {
        if self.has_session() {
            self.app.busy = true;
            self.request(|session| async move {
                Some(match session.call(wanted).await {
                    Ok(running) => RequestResult::Runs(running),
                    Err(error) => RequestResult::Refused(error.to_string()),
                })
            });
        }
    }

    /// Reads an image on another thread; the event loop then attaches it.
    fn attach(&mut self, name: String) {
        let read = match self.environment.images() {
            Ok(read) => read,
            Err(failure) => return self.attached(&name, Err(failure)),
        };
        let results = self.results.clone();
        tokio::task::spawn_blocking(move || {
            let image = read(&name);
            results.blocking_send(RequestResult::Attached(name, image)).ok();
        });
    }

    /// Reads the image in the clipboard on another thread.
    fn paste_image(&mut self) {
        let read = match self.environment.clipboard_image() {
            Ok(read) => read,
            Err(failure) => return self.app.view.failures(&[failure]),
        };
        let results = self.results.clone();
        tokio::task::spawn_blocking(move || {
            results.blocking_send(RequestResult::ClipboardImage(read())).ok();
        });
    }

    fn clipboard_image(&mut self, image: Result<(ContentPart, String), Vec<Failure>>) {
        match image {
            Ok(image) => self.attached("clipboard", Ok(image)),
            Err(failures) => self.app.view.failures(&failures),
        }
    }

    fn attached(&mut self, name: &str, image: Result<(ContentPart, String), Failure>) {
        match image {
            Ok((image, about)) => {
                if self.app.composer.attach(name, image) {
                    self.app.view.note(Role::Dim, format!("(image {about})"));
                } else {
                    let text = "(not attached: too many images)";
                    self.app.view.note(Role::Warn, text);
                }
            }
            Err(failure) => {
                // Otherwise the text only looks like the file name of an image.
                if failure.code != ErrorCode::ImageUnreadable {
                    self.app.view.failures(&[failure]);
                }
                self.app.composer.paste(name);
            }
        }
    }

    /// Puts the text of a message back into the prompt. Images are lost; a note says so.
    fn restore_text(&mut self, content: &[ContentPart]) {
        self.app.composer.restore_text(&text_of(content));
        if content.iter().any(|part| matches!(part, ContentPart::ImageUrl { .. })) {
            self.app.view.note(Role::Warn, "(attach its images again)");
        }
    }

    /// Saves keys in the user's configuration, on another thread, and says so.
    fn save_keys(&self, changes: &[(String, String)]) {
        let (save, results) = (self.environment.save_keys(changes), self.results.clone());
        tokio::task::spawn_blocking(move || {
            let text = match save() {
                Ok(()) => "(saved in ui.keybindings of your configuration)".to_owned(),
                Err(failures) => {
                    let why = failures.first().map(|failure| failure.what.clone());
                    format!("(not saved: {})", why.unwrap_or_default())
                }
            };
            results.blocking_send(RequestResult::Note(text)).ok();
        });
    }

    /// Reads the output of a background job in a lookup, and shows it.
    fn view_job(&mut self, id: String) {
        let output = self.environment.job_output(&id);
        self.look_up(COLLECTING, output, move |text| LookupResult::Job(id, text));
    }

    /// Opens the selector of a setting. For a model, the provider is asked for its list meanwhile.
    fn choose(&mut self, what: Selectable) {
        self.app.choose(what, self.environment.listed(what));
        let provider = self.app.view.status.provider.clone();
        if what != Selectable::Model || provider.is_empty() {
            return;
        }
        self.app.expect_live_models();
        let (ask, results) = (self.environment.live_models(), self.results.clone());
        tokio::task::spawn_blocking(move || {
            let why = |failures: Vec<Failure>| {
                failures.first().map_or_else(String::new, |failure| failure.what.clone())
            };
            let models = ask().map_err(why);
            results.blocking_send(RequestResult::LiveModels(provider, models)).ok();
        });
    }

    /// Reads the last messages of a stored session on another thread, one session at a time.
    pub(super) fn preview(&mut self, id: String) {
        if std::mem::replace(&mut self.is_previewing, true) {
            return;
        }
        let (read, results) = (self.environment.preview(&id), self.results.clone());
        tokio::task::spawn_blocking(move || {
            let lines = read().unwrap_or_default();
            results.blocking_send(RequestResult::Preview(id, lines)).ok();
        });
    }

    fn show_preview(&mut self, id: &str, lines: Vec<String>) {
        self.is_previewing = false;
        if let Some(selected) = self.app.show_preview(id, lines) {
            self.preview(selected);
        }
    }

    /// Finds files for a completion query on another thread.
    fn find(&mut self, query: &str) {
        if self.finder.is_none() {
            let results = self.results.clone();
            let answer = move |query, names| {
                results.blocking_send(RequestResult::Found(query, names)).ok();
            };
            // Without a finder there is no completion.
            self.finder = Finder::start(self.folder.clone(), answer).ok();
        }
        if let Some(finder) = &self.finder {
            finder.find(query);
        }
    }

    pub(super) fn work(&mut self, task: Task) {
        let content = match &task {
            Task::Prompt(prompt) => Some(prompt.content.clone()),
            Task::Continue => None,
        };
        if !self.has_session() {
            return content.iter().for_each(|content| self.restore_text(content));
        }
        self.app.busy = true;
        self.request(|session| async move {
            Some(match task.begin(&session).await {
                Ok(running) => RequestResult::Runs(running),
                Err(PromptError::Busy) => RequestResult::Refused(steered(&session, content).await),
                Err(error) => RequestResult::Refused(format!("{error}; /new starts a new session")),
            })
        });
    }

    pub(super) async fn apply_result(&mut self, result: RequestResult) {
        self.dirty = true;
        match result {
            RequestResult::Runs(running) => {
                if let Some(current) = &mut self.current {
                    current.runs(running, self.started.elapsed());
                }
            }
            RequestResult::Refused(text) => {
                self.app.finish_task();
                self.app.view.note(Role::Warn, text);
            }
            RequestResult::Note(text) => self.app.view.note(Role::Dim, text),
            RequestResult::Withdrawn(content) => self.restore_text(&content),
            RequestResult::Attached(name, image) => self.attached(&name, image),
            RequestResult::ClipboardImage(image) => self.clipboard_image(image),
            RequestResult::Found(query, names) => self.app.show_found_files(&query, &names),
            RequestResult::LiveModels(provider, models) => {
                self.app.add_live_models(&provider, models);
            }
            RequestResult::Preview(id, lines) => self.show_preview(&id, lines),
            RequestResult::Past(id, past) => self.show_past(&id, past),
            RequestResult::JobOutput(job, output) => self.show_job_output(&job, output),
            RequestResult::Branch(branch) => self.show_branch(branch),
            RequestResult::StatusLine(output) => self.show_status_line(output),
            RequestResult::Answer(text) => self.app.answer("", false, text),
            RequestResult::Measured(id, used) => {
                if id.as_str() == self.app.session {
                    self.app.set_context_usage(&used);
                }
            }
            // The result of a cancelled lookup is dropped.
            RequestResult::LookupResult(nth, looked) => {
                if self.app.finish_lookup(nth) {
                    self.apply_lookup(looked).await;
                }
            }
            // The task has just ended, or is a command of the user: the message becomes the next one.
            RequestResult::Undelivered(content) => {
                self.keep_undelivered(content);
                self.submit_undelivered();
            }
        }
    }

    /// Keeps a message that the session does not queue, and shows it as queued.
    fn keep_undelivered(&mut self, content: Vec<ContentPart>) {
        self.undelivered_count += 1;
        let id = MessageId::new(format!("undelivered-{}", self.undelivered_count));
        self.app.view.show_queued(id.clone(), &content);
        self.undelivered.push_back((id, content));
    }

    /// Sends the oldest message that is kept, unless a task runs.
    pub(super) fn submit_undelivered(&mut self) {
        if !self.app.busy
            && let Some((id, content)) = self.undelivered.pop_front()
        {
            self.app.view.remove_queued(&id);
            self.work(Task::Prompt(Prompt { content }));
        }
    }

    /// Removes a message that is kept, and returns it.
    fn take_undelivered(&mut self, id: &MessageId) -> Option<Vec<ContentPart>> {
        let at = self.undelivered.iter().position(|(kept, _)| kept == id)?;
        self.app.view.remove_queued(id);
        self.undelivered.remove(at).map(|(_, content)| content)
    }

    /// Puts the messages that are kept back into the prompt, because the user stopped the command
    /// that they waited for.
    pub(super) fn return_undelivered(&mut self) {
        for (id, content) in std::mem::take(&mut self.undelivered).into_iter().rev() {
            self.app.view.remove_queued(&id);
            self.restore_text(&content);
        }
    }
}

/// Panics if a test requests it, while the terminal is in raw mode. Debug builds only.
#[cfg(debug_assertions)]
fn panic_if_requested(said: &str) {
    let word = std::env::var("POSSE_TEST_PANIC");
    assert!(word.as_deref() != Ok(said), "a test said so");
}
