//! Effects of slash commands that need the session or the environment.

use posse_actors::event::{Announcement, Event, SessionEndReason};
use posse_base::failure::{Exit, Failure, printable};
use posse_frontend::commands::{QueryAnswer, ReportRequest, SessionQuery, SessionSwitch};
use posse_frontend::remote_session::{Revert, RevertRequest};
use posse_frontend::session_records::changes;
use posse_frontend::{
    BackgroundJob, LoadedSession, Rewind, RewindExtent, Selectable, SessionSelection, Task,
    is_default,
};

use crate::TuiEnvironment;
use crate::running::session::{LookupResult, RequestResult};
use crate::running::{SHUTDOWN_MAX, Tui, internal, messages};
use crate::theme::Role;

/// Progress text of lookups that read stored sessions, or the current one for an undo. Submitted
/// text waits for them.
pub(super) const READING_SESSIONS: &str = "reading sessions";
/// Progress text of other lookups, such as reports. Submitted text does not wait for them.
pub(super) const COLLECTING: &str = "collecting data";

impl Tui<'_> {
    async fn select(&mut self, what: Selectable, name: String) {
        let default = is_default(&name, || self.environment.names(what));
        if default && let Err(failure) = self.environment.forget(what) {
            self.app.view.failures(&[failure]);
            return;
        }
        let choice = self.choice.with(what, (!default).then(|| name.clone()));
        let same_conversation = self.current.is_some();
        if !self.reopen(choice, same_conversation).await {
            return;
        }
        if what == Selectable::Thinking {
            let text = format!("thinking: {}", self.app.view.status.effort.unwrap_or("default"));
            self.app.view.note(Role::Dim, text);
        } else {
            let lines = messages::selection(&self.app);
            self.app.view.push_lines(lines);
        }
        if what.is_saved() {
            self.unsaved = (!default).then_some((what, name));
        }
        if self.unsaved.is_some() {
            let text = format!("(saved for later starts once the {} has answered)", what.word());
            self.app.view.note(Role::Dim, text);
        }
    }

    /// Saves the selected provider or model if the event is its first answer.
    pub(super) fn save_selection(&mut self, announcement: &Announcement) {
        let is_main =
            announcement.origin().is_some_and(|origin| origin.parent_invocation_id.is_none());
        if !matches!(announcement.event(), Event::ModelReply { .. }) || !is_main {
            return;
        }
        let status = &self.app.view.status;
        // After a failover another model has answered.
        let answered = |(what, name): &mut (Selectable, String)| match what {
            Selectable::Provider => *name == status.provider,
            Selectable::Model => *name == status.model,
            Selectable::Agent | Selectable::Thinking => false,
        };
        if let Some((what, name)) = self.unsaved.take_if(answered)
            && let Err(failure) = self.environment.remember(what, &name)
        {
            self.app.view.failures(&[failure]);
        }
    }

    /// Replaces the current session. `same_conversation`: true to continue the conversation, false
    /// to begin a new one. Returns false on failure: the current session stays if the new one
    /// cannot be assembled, and the UI exits if it cannot be started.
    async fn reopen(&mut self, choice: SessionSelection, same_conversation: bool) -> bool {
        let mut opened =
            match self.print_above(|environment| environment.open(&choice, same_conversation)) {
                Ok(opened) => opened,
                Err(failures) => {
                    self.app.view.failures(&failures);
                    return false;
                }
            };
        if let Some(mut before) = self.current.take() {
            if same_conversation {
                opened.continue_conversation(&before.session).await;
            }
            let mode = before.session.permission_mode();
            opened.keep_permission_mode(mode, &self.app.view.status.agent);
            let reason = if same_conversation {
                SessionEndReason::Switched
            } else {
                SessionEndReason::Completed
            };
            before.end(reason, Exit::Done, SHUTDOWN_MAX).await;
            self.app.view.forget_agents();
        }
        self.enter(opened).await;
        self.choice = choice;
        self.current.is_some()
    }

    /// Switches to a stored session that was loaded, and continues its unfinished work. If the
    /// session cannot be assembled, the current one stays and the errors are shown. `fork`: true if
    /// the session is a new one with a copy of the history.
    async fn resume(&mut self, ready: LoadedSession, fork: bool) {
        let (mut opened, unfinished) =
            match self.print_above(|environment| environment.resume(ready)) {
                Ok(opened) => opened,
                Err(failures) => return self.app.view.failures(&failures),
            };
        if let Some(mut before) = self.current.take() {
            if fork {
                opened.restrict_permission_mode(before.session.permission_mode());
            }
            before.end(SessionEndReason::Completed, Exit::Done, SHUTDOWN_MAX).await;
        }
        self.enter(opened).await;
        (self.choice, self.unsaved) = (SessionSelection::default(), None);
        self.app.begin();
        (self.app.view.status.cwd, self.folder) = self.environment.folder();
        self.app.view.status.folder = self.folder.to_string_lossy().into_owned();
        self.notifier.set_folder(&self.folder);
        self.finder = None;
        self.forget_branch();
        let word = if fork { "a copy of the session" } else { "a stored session" };
        let text = format!("({word}: {})", self.app.session);
        self.app.view.note(Role::Dim, text);
        if unfinished {
            self.work(Task::Continue);
        }
    }

    /// Prepares a return that the user wants, in a lookup.
    pub(super) fn prepare_rewind(&mut self, number: usize, extent: RewindExtent) {
        let ready = self.environment.rewind(&self.app.session, number, extent);
        let to = move |rewind| LookupResult::Rewind(number, extent, rewind);
        self.look_up(READING_SESSIONS, ready, to);
    }

    /// Begins a return that the user wants: asks first if it replaces changes of the user.
    async fn begin_rewind(&mut self, number: usize, extent: RewindExtent, rewind: Rewind) {
        match self.confirmation.missing("", &rewind) {
            Some(replaced) => self.app.confirm_rewind(number, extent, &replaced),
            None => self.rewind(rewind).await,
        }
    }

    /// Restores files, then switches to the copy of the session, if there is one.
    async fn rewind(&mut self, Rewind { session, call, prompt, .. }: Rewind) {
        match (call, session) {
            (Some(call), session) => {
                if let Some(current) = &mut self.current {
                    current.is_restored = false;
                }
                self.follows_restore = session.map(|session| (session, prompt));
                self.call(call);
            }
            (None, Some(session)) => self.switch_to_copy(session, &prompt).await,
            (None, None) => self.app.view.note(Role::Dim, "(no file was changed since)"),
        }
    }

    /// Switches to the copy of the session that waits for the restore of files, when the restore has
    /// ended. If no file was restored, the conversation stays as well.
    pub(super) async fn finish_rewind(&mut self) {
        if self.app.busy {
            return;
        }
        let Some((session, prompt)) = self.follows_restore.take() else { return };
        if self.current.as_ref().is_some_and(|current| current.is_restored) {
            self.switch_to_copy(session, &prompt).await;
        } else {
            let text = "(the files were not restored, so the conversation stays as it is as well)";
            self.app.view.note(Role::Warn, text);
        }
        self.dirty = true;
        self.submit_undelivered();
    }

    /// Switches to a copy of the session and puts the prompt back.
    async fn switch_to_copy(&mut self, session: LoadedSession, prompt: &str) {
        self.resume(session, true).await;
        if self.current.is_some() && !prompt.is_empty() {
            self.app.composer.restore_text(prompt);
        }
    }

    /// Carries out the request of an attached client to return to an earlier state. The prompt of
    /// this front end stays as it is.
    pub(super) fn revert_elsewhere(&mut self, request: RevertRequest) {
        if request.is_abandoned() {
            return;
        }
        if self.app.busy {
            let why = "something runs: wait for its end, or stop it";
            return request.answer(Err(why.to_owned()));
        }
        let session = &self.app.session;
        let job = match request.revert {
            Revert::LastChange => Rewind::of_call(self.environment.undo(session, None)),
            Revert::ToCheckpoint(id) => Rewind::of_call(self.environment.undo(session, Some(id))),
            Revert::ToPrompt(prompt, extent) => self.environment.rewind(session, prompt, extent),
        };
        let text = format!("({}: {})", printable(&request.client), request.revert);
        self.app.view.note(Role::Dim, text);
        self.start_lookup(READING_SESSIONS, async move {
            let ready = run_blocking(job).await;
            Ok(LookupResult::RevertElsewhere(request, ready))
        });
    }

    /// Answers an attached client, and begins the return that it asked for.
    async fn begin_revert(&mut self, request: RevertRequest, ready: Result<Rewind, Vec<Failure>>) {
        let rewind = match ready {
            Ok(rewind) => rewind,
            Err(failures) => {
                self.app.view.failures(&failures);
                return request.refuse(&failures);
            }
        };
        if let Some(replaced) = self.confirmation.missing(&request.client, &rewind) {
            return request.ask(&replaced);
        }
        request.answer(match rewind {
            Rewind { session: None, call: None, .. } => Err("no file was changed since".to_owned()),
            _ => Ok(()),
        });
        self.rewind(Rewind { prompt: String::new(), ..rewind }).await;
    }

    /// Removes the live region and runs `work`, so that text which `work` prints appears above the
    /// live region.
    fn print_above<T>(&mut self, work: impl FnOnce(&mut dyn TuiEnvironment) -> T) -> T {
        // The live region must be removed before anything is printed on the main screen.
        let bytes = self.withdraw_frame();
        nix::unistd::write(std::io::stdout(), &bytes).ok();
        let done = work(self.environment);
        self.dirty = true;
        done
    }

    pub(super) async fn switch_session(&mut self, to: SessionSwitch) {
        match to {
            SessionSwitch::New => {
                if self.reopen(self.choice.clone(), false).await {
                    self.app.begin();
                    let session = self.app.session.clone();
                    self.app.view.note(Role::Dim, format!("(a new session: {session})"));
                }
            }
            SessionSwitch::Resume(id) => self.find_session(&id, false),
            SessionSwitch::Fork => self.find_session(&self.app.session.clone(), true),
            SessionSwitch::With(what, name) => self.select(what, name).await,
        }
    }

    pub(super) fn run_skill(&mut self, name: &str, task: &str) {
        match self.environment.skill(name, task) {
            Ok(prompt) => self.work(Task::Prompt(prompt)),
            Err(failures) => {
                let line = format!("/skill {name} {task}");
                self.app.view.push_user_input(line.trim_end().to_owned());
                self.app.view.failures(&failures);
            }
        }
    }

    pub(super) fn find_session(&mut self, id: &str, fork: bool) {
        let job = self.environment.find_session(id, fork);
        let ready = move |ready| LookupResult::LoadedSession(ready, fork);
        self.look_up(READING_SESSIONS, job, ready);
    }

    /// Starts a lookup that compares the files with the start of the conversation, and then shows the
    /// differences.
    pub(super) fn show_changes(&mut self) {
        if self.has_session()
            && let Some(current) = &self.current
        {
            let session = current.session.clone();
            let net = self.environment.net_changes(&self.app.session);
            self.start_lookup(COLLECTING, async move {
                let net = run_blocking(net).await?;
                Ok(LookupResult::Changes(changes(&session, net).await))
            });
        }
    }

    /// Renders a report in a lookup; the report is then shown with its appendix.
    pub(super) fn report(&mut self, request: ReportRequest) {
        let ReportRequest { report, title, is_list, appendix } = request;
        let job = self.environment.report(report, &self.app.session);
        let session = self.current.as_ref().map(|current| current.session.clone());
        self.start_lookup(COLLECTING, async move {
            let mut text = run_blocking(job).await?;
            if let (Some(query), Some(session)) = (appendix, session) {
                text += &query.answer(session).await.into_text();
            }
            Ok(LookupResult::Report(title, is_list, text))
        });
    }

    /// Queries the session and shows the answer, unless an event announces the answer as well.
    pub(super) fn query(&mut self, query: SessionQuery) {
        if self.has_session() {
            self.request(|session| async move {
                match query.answer(session).await {
                    QueryAnswer::Text(text) => Some(RequestResult::Answer(text)),
                    QueryAnswer::Announced(_) => None,
                }
            });
        }
    }

    /// Starts a lookup that runs `job` on a blocking thread. `found` wraps the result of the job.
    pub(super) fn look_up<T: Send + 'static>(
        &mut self,
        what: &'static str,
        job: BackgroundJob<T>,
        found: impl FnOnce(T) -> LookupResult + Send + 'static,
    ) {
        self.start_lookup(what, async { run_blocking(job).await.map(found) });
    }

    /// Starts a lookup in an asynchronous task, unless too many are running. Keys are handled
    /// meanwhile.
    fn start_lookup(
        &mut self,
        what: &'static str,
        work: impl Future<Output = Result<LookupResult, Vec<Failure>>> + Send + 'static,
    ) {
        self.lookups += 1;
        let (nth, now) = (self.lookups, self.now());
        // The session must not change while the journal is read for another session or an undo.
        if !self.app.start_lookup(nth, what, what == READING_SESSIONS, now) {
            return;
        }
        let results = self.results.clone();
        tokio::spawn(async move {
            let looked = work.await;
            results.send(RequestResult::LookupResult(nth, looked)).await.ok();
        });
    }

    /// Shows the result of a lookup, or acts on it.
    pub(super) async fn apply_lookup(&mut self, looked: Result<LookupResult, Vec<Failure>>) {
        match looked {
            Err(failures) => self.app.view.failures(&failures),
            Ok(LookupResult::Changes(changes)) => self.app.show_changes(changes),
            Ok(LookupResult::Report(title, is_list, text)) => {
                self.app.answer(title, is_list, text);
            }
            Ok(LookupResult::Job(job, output)) => self.app.show_job(&job, output),
            Ok(LookupResult::Setup(found)) => {
                self.app.view.push_lines(messages::setup_report(&found));
            }
            Ok(LookupResult::Stored(stored)) => {
                self.app.choose_session(stored);
                if let Some(id) = self.app.wanted_preview() {
                    self.preview(id);
                }
            }
            Ok(LookupResult::LoadedSession(ready, fork)) => self.resume(ready, fork).await,
            Ok(LookupResult::Undo(wanted)) => self.call(wanted),
            Ok(LookupResult::RewindPoints(points)) => self.app.choose_rewind_point(points),
            Ok(LookupResult::Tree(rows)) => self.app.open_tree(&rows),
            Ok(LookupResult::TreeRow(rows, number, label)) => {
                self.use_tree_row(&rows, number, label);
            }
            Ok(LookupResult::RewindExtents(number, points)) => {
                self.app.choose_rewind_extent_of(number, &points);
            }
            Ok(LookupResult::Rewind(number, extent, rewind)) => {
                self.begin_rewind(number, extent, rewind).await;
            }
            Ok(LookupResult::RevertElsewhere(request, ready)) => {
                self.begin_revert(request, ready).await;
            }
        }
    }
}

/// Runs a job on a blocking thread and waits for the result.
async fn run_blocking<T: Send + 'static>(job: BackgroundJob<T>) -> Result<T, Vec<Failure>> {
    let failed = |error| Err(vec![internal(format!("the lookup crashed: {error}"))]);
    tokio::task::spawn_blocking(job).await.unwrap_or_else(failed)
}
