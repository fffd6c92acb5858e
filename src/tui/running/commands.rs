//! Effects of slash commands that need the session or the environment.

use posse_actors::event::SessionEndReason;
use posse_base::failure::{ErrorCode, Exit, Failure};
use posse_frontend::commands::{QueryAnswer, ReportRequest, SessionQuery, SessionSwitch};
use posse_frontend::session_records::changes;
use posse_frontend::{
    BackgroundJob, LoadedSession, Selectable, SessionSelection, Task, is_default,
};

use crate::TuiEnvironment;
use crate::running::effects::NO_SESSION;
use crate::running::session::{CurrentSession, LookupResult, RequestResult};
use crate::running::{SHUTDOWN_MAX, Tui, messages};
use crate::theme::Role;

/// Descriptions of lookups.
const READING_SESSIONS: &str = "reading sessions";
const COLLECTING: &str = "collecting data";

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
        let lines = messages::selection(&self.app);
        self.app.view.push_lines(lines);
        if !default && let Err(failure) = self.environment.remember(what, &name) {
            self.app.view.failures(&[failure]);
        }
    }

    /// Switches to another session: the same conversation, or a new one. If the session cannot be
    /// assembled, the current one stays.
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
                opened.settings.history = before.session.history().await;
                // One budget covers the whole conversation.
                opened.settings.accounts = before.session.accounts().await.unwrap_or_default();
            }
            let reason = if same_conversation {
                SessionEndReason::Switched
            } else {
                SessionEndReason::Completed
            };
            before.end(reason, Exit::Done, SHUTDOWN_MAX).await;
            self.app.view.forget_agents();
        }
        let started = CurrentSession::start(opened).await;
        self.enter(started);
        self.choice = choice;
        self.current.is_some()
    }

    /// Switches to a stored session, or to a new one that branches off it.
    async fn resume(&mut self, ready: LoadedSession, fork: bool) {
        let (opened, unfinished) = match self.print_above(|environment| environment.resume(ready)) {
            Ok(opened) => opened,
            Err(failures) => return self.app.view.failures(&failures),
        };
        if let Some(mut before) = self.current.take() {
            before.end(SessionEndReason::Completed, Exit::Done, SHUTDOWN_MAX).await;
        }
        let started = CurrentSession::start(opened).await;
        self.enter(started);
        self.choice = SessionSelection::default();
        self.app.begin();
        (self.app.status.cwd, self.options.folder) = self.environment.folder();
        self.finder = None;
        let word = if fork { "a copy of the session" } else { "a stored session" };
        let text = format!("({word}: {})", self.app.session);
        self.app.view.note(Role::Dim, text);
        if unfinished {
            self.work(Task::Continue);
        }
    }

    /// Runs `work` with the live region removed, so that what it prints appears above.
    fn print_above<T>(&mut self, work: impl FnOnce(&mut dyn TuiEnvironment) -> T) -> T {
        self.follow_size();
        let mut bytes = self.painter.withdraw();
        if self.terminal.alternate_screen {
            // The output belongs to the main screen.
            bytes.extend(self.switch(false));
            bytes.extend(self.painter.withdraw());
        }
        // The live region must be removed before anything is printed.
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

    pub(super) fn list_sessions(&mut self) {
        let job = self.environment.stored();
        self.start_lookup(READING_SESSIONS, async {
            LookupResult::Stored(run_blocking(job).await)
        });
    }

    pub(super) fn undo(&mut self) {
        let job = self.environment.undo(&self.app.session);
        self.start_lookup(READING_SESSIONS, async { LookupResult::Undo(run_blocking(job).await) });
    }

    /// Collects facts about this machine, for a user without a model.
    pub(super) fn look_up_setup_facts(&mut self) {
        let job = self.environment.setup_facts();
        self.start_lookup(COLLECTING, async { LookupResult::Setup(run_blocking(job).await) });
    }

    pub(super) fn run_skill(&mut self, name: &str, task: &str) {
        match self.environment.skill(name, task) {
            Ok(prompt) => self.prompt(prompt),
            Err(failures) => {
                self.app
                    .view
                    .push_user_input(format!("/skill {name} {task}").trim_end().to_owned());
                self.app.view.failures(&failures);
            }
        }
    }

    fn find_session(&mut self, id: &str, fork: bool) {
        let job = self.environment.find_session(id, fork);
        self.start_lookup(READING_SESSIONS, async move {
            LookupResult::LoadedSession(run_blocking(job).await, fork)
        });
    }

    /// Shows all file changes of the conversation.
    pub(super) fn show_changes(&mut self) {
        let Some(current) = &self.current else {
            return self.app.view.note(Role::Warn, NO_SESSION);
        };
        let session = current.session.clone();
        self.start_lookup(
            COLLECTING,
            async move { LookupResult::Changes(changes(&session).await) },
        );
    }

    /// Shows a report and its appendix.
    pub(super) fn report(&mut self, request: ReportRequest) {
        let ReportRequest { report, title, is_list, appendix } = request;
        let job = self.environment.report(report, &self.app.session);
        let session = self.current.as_ref().map(|current| current.session.clone());
        self.start_lookup(COLLECTING, async move {
            let text = match (run_blocking(job).await, appendix, session) {
                (Ok(text), Some(query), Some(session)) => {
                    Ok(text + &query.answer(session).await.into_text())
                }
                (text, ..) => text,
            };
            LookupResult::Report(title, is_list, text)
        });
    }

    /// Queries the session in a separate task and shows the answer.
    pub(super) fn query(&mut self, query: SessionQuery) {
        let Some(current) = &self.current else {
            return self.app.view.note(Role::Warn, NO_SESSION);
        };
        let (session, results) = (current.session.clone(), self.results.clone());
        tokio::spawn(async move {
            if let QueryAnswer::Text(text) = query.answer(session).await {
                results.send(RequestResult::Answer(text)).await.ok();
            }
        });
    }

    /// Starts a lookup in a separate task. Keys are handled meanwhile.
    fn start_lookup(
        &mut self,
        what: &'static str,
        work: impl Future<Output = LookupResult> + Send + 'static,
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

    /// Applies the result of a lookup.
    pub(super) async fn apply_lookup(&mut self, looked: LookupResult) {
        let failures = match looked {
            LookupResult::Changes(changes) => return self.app.show_changes(changes),
            LookupResult::Report(title, is_list, Ok(text)) => {
                return self.app.answer(title, is_list, text);
            }
            LookupResult::Setup(Ok(found)) => {
                return self.app.view.push_lines(messages::setup_report(&found));
            }
            LookupResult::Stored(Ok(stored)) => return self.app.choose_session(stored),
            LookupResult::LoadedSession(Ok(ready), fork) => return self.resume(ready, fork).await,
            LookupResult::Undo(Ok(wanted)) => return self.call(wanted),
            LookupResult::Report(.., Err(failures))
            | LookupResult::Setup(Err(failures))
            | LookupResult::Stored(Err(failures))
            | LookupResult::LoadedSession(Err(failures), _)
            | LookupResult::Undo(Err(failures)) => failures,
        };
        self.app.view.failures(&failures);
    }
}

/// Runs a job on a blocking thread.
async fn run_blocking<T: Send + 'static>(job: BackgroundJob<T>) -> Result<T, Vec<Failure>> {
    let failed = |error: tokio::task::JoinError| {
        vec![Failure::new(
            ErrorCode::InternalFailure,
            Exit::Internal,
            format!("the lookup crashed: {error}"),
        )]
    };
    tokio::task::spawn_blocking(job).await.unwrap_or_else(|error| Err(failed(error)))
}
