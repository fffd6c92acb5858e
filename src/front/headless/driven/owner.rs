//! Instructions that replace the session, return to an earlier state, or need settings and files.

use std::time::Duration;

use posse_actors::event::{Event, SessionEndReason};
use posse_actors::root_session::{RunningPrompt, SessionEnding};
use posse_base::failure::{ErrorCode, Exit, Failure};
use posse_frontend::instruction::OwnerRequest;
use posse_frontend::remote_session::Revert;
use posse_frontend::requests::{SessionRequests, busy, not_begun, refused};
use posse_frontend::response::{Caller, InstructionResult};
use posse_frontend::{
    BackgroundJob, ExportTarget, LoadedSession, OpenedSession, Rewind, RewindExtent, Selectable,
    SessionSelection, Task, is_default, session_tree,
};
use serde_json::{Value, json};

use crate::headless::driven::{Driven, LAST_EVENTS_MAX, PendingRestore, start};

/// Time limit for the end of a session that is replaced.
const END_MAX: Duration = Duration::from_secs(30);

impl Driven<'_> {
    /// Carries out a request of the owner of the session.
    pub(super) async fn own(&mut self, request: OwnerRequest) -> InstructionResult {
        let id = self.front.session.id().to_string();
        match request {
            OwnerRequest::Select(chosen) => self.select(chosen).await,
            OwnerRequest::New => {
                self.needs_idle()?;
                let opened = self.sessions.open(&self.choice, false).map_err(first)?;
                self.replace(opened, SessionEndReason::Completed).await?;
                self.requests.state().await
            }
            OwnerRequest::Resume(prefix) => {
                self.needs_idle()?;
                let found = self.run_job(self.sessions.find_session(&prefix, false)).await?;
                self.continue_in(found, false).await
            }
            OwnerRequest::Fork(of, None) => {
                self.needs_idle()?;
                let copy = self.sessions.find_session(&of.unwrap_or(id), true);
                let copy = self.run_job(copy).await?;
                self.continue_in(copy, true).await
            }
            OwnerRequest::Fork(of, Some(number)) => {
                self.needs_idle()?;
                let of = of.unwrap_or(id);
                let copy = self.sessions.rewind(&of, number, RewindExtent::Conversation);
                let Rewind { session, prompt, .. } = self.run_job(copy).await?;
                let session = session.ok_or_else(|| refused("there is no copy of the session"))?;
                let mut result = self.continue_in(session, true).await?;
                result["prompt"] = json!(prompt);
                Ok(result)
            }
            OwnerRequest::Tree => {
                let rows = self.run_job(self.sessions.tree(&id)).await?;
                Ok(json!({"tree": session_tree::json(&rows)}))
            }
            OwnerRequest::Skill(name, task) => {
                self.needs_idle()?;
                let prompt = self.sessions.skill(&name, &task).map_err(first)?;
                self.begin(Task::Prompt(prompt)).await
            }
            OwnerRequest::Prompts => {
                let points = self.run_job(self.sessions.rewind_points(&id)).await?;
                let prompts = points.into_iter();
                let prompts = prompts.map(|(number, text)| json!({"prompt": number, "text": text}));
                Ok(json!({"prompts": prompts.collect::<Vec<_>>()}))
            }
            OwnerRequest::Export(file) => {
                let target = ExportTarget::named(file.as_deref());
                let path = self.run_job(self.sessions.export(target, &id)).await?;
                Ok(json!({"path": path}))
            }
            OwnerRequest::List(list) => self.run_job(self.sessions.listing(list)).await,
        }
    }

    fn needs_idle(&self) -> Result<(), Failure> {
        if self.is_busy() {
            let failure = busy("something is running");
            return Err(failure.fix("wait for its end, or send `interrupt`"));
        }
        Ok(())
    }

    /// Runs `job` on another thread. A signal stops the run and gives the job up.
    async fn run_job<T: Send + 'static>(&mut self, job: BackgroundJob<T>) -> Result<T, Failure> {
        let done = tokio::task::spawn_blocking(job);
        tokio::select! {
            biased;
            signal = self.front.signals.next() => {
                self.front.on_signal(signal).await;
                Err(refused("a signal stopped it"))
            }
            done = done => match done {
                Ok(done) => done.map_err(first),
                Err(error) => Err(refused(format!("it ended in the middle: {error}"))),
            },
        }
    }

    /// Continues the conversation with other values of settings, which later processes do not use.
    async fn select(&mut self, chosen: Vec<(Selectable, String)>) -> InstructionResult {
        self.needs_idle()?;
        let mut choice = self.choice.clone();
        for (what, name) in chosen {
            if name.trim().is_empty() || name.contains(char::is_whitespace) {
                let text = format!("{}: a name is not empty and has no white space", what.word());
                return Err(Failure::new(ErrorCode::InstructionInvalid, Exit::Usage, text));
            }
            let default = is_default(&name, || self.sessions.names(what));
            choice = choice.with(what, (!default).then_some(name));
        }
        let mut opened = self.sessions.open(&choice, true).map_err(first)?;
        let before = self.front.session.clone();
        opened.continue_conversation(&before).await;
        opened.keep_permission_mode(before.permission_mode(), &self.agent);
        self.replace(opened, SessionEndReason::Switched).await?;
        self.choice = choice;
        self.requests.state().await
    }

    /// Ends the session and continues in a stored one that was loaded. `fork`: true if that is a
    /// copy of the current session.
    async fn continue_in(&mut self, session: LoadedSession, fork: bool) -> InstructionResult {
        let (mut opened, unfinished) = self.sessions.resume(session).map_err(first)?;
        if fork {
            opened.restrict_permission_mode(self.front.session.permission_mode());
        }
        self.replace(opened, SessionEndReason::Completed).await?;
        self.choice = SessionSelection::default();
        if unfinished {
            self.begin(Task::Continue).await?;
        }
        self.requests.state().await
    }

    /// Ends the session with its last event, and starts another one in its place. If that cannot be
    /// started, the process ends.
    async fn replace(
        &mut self,
        opened: OpenedSession,
        reason: SessionEndReason,
    ) -> Result<(), Failure> {
        let ending = SessionEnding { reason, exit_code: 0, result: None, error: None };
        let ended = tokio::time::timeout(END_MAX, self.front.session.end(ending)).await.is_ok();
        while let Some(announcement) =
            if ended { self.front.events.next().await } else { self.front.events.try_next() }
        {
            self.announce(&announcement).await;
        }
        self.attach_socket.close().await;
        self.agent.clone_from(&opened.settings.agent);
        let (session, attach_socket, thinking) = match start(opened).await {
            Ok(started) => started,
            Err(failure) => {
                self.front.stopped = Some(Exit::Internal);
                return Err(failure);
            }
        };
        self.attach_socket = attach_socket;
        self.requests = SessionRequests::new(session.clone(), None).with_thinking(thinking);
        self.front.enter(session);
        self.read_start().await;
        Ok(())
    }

    /// Shows the events of a new session up to the record of its start, so that `state` includes it.
    async fn read_start(&mut self) {
        let mut limit = std::pin::pin!(tokio::time::sleep(LAST_EVENTS_MAX));
        loop {
            let announcement = tokio::select! {
                biased;
                announcement = self.front.events.next() => announcement,
                () = &mut limit => return,
            };
            let Some(announcement) = announcement else { return };
            self.announce(&announcement).await;
            let event = announcement.event();
            if matches!(event, Event::SessionStarted { .. } | Event::SessionResumed { .. }) {
                return;
            }
        }
    }

    /// Returns to an earlier state. `None` if the response comes when files have been restored.
    pub(super) async fn revert(
        &mut self,
        caller: &Caller,
        revert: Revert,
    ) -> Result<Option<Value>, Failure> {
        self.needs_idle()?;
        let id = self.front.session.id().to_string();
        let job = match revert {
            Revert::LastChange => Rewind::of_call(self.sessions.undo(&id, None)),
            Revert::ToCheckpoint(of) => Rewind::of_call(self.sessions.undo(&id, Some(of))),
            Revert::ToPrompt(number, extent) => self.sessions.rewind(&id, number, extent),
        };
        let rewind = self.run_job(job).await?;
        if let Some(replaced) = self.confirmation.missing("", &rewind) {
            let what = "the return replaces what the user has changed since; nothing was restored";
            return Err(refused(what)
                .because(replaced.lines.join(", "))
                .fix("the same instruction again restores the files"));
        }
        let Rewind { session, call, prompt, .. } = rewind;
        let restore = PendingRestore { caller: caller.clone(), session, prompt };
        let Some(call) = call else {
            return self.return_conversation(restore, false).await.map(Some);
        };
        (self.is_restored, self.is_told) = (false, false);
        let running = self.front.session.call(call).await.map_err(|error| not_begun(&error))?;
        self.running = Some(Box::pin(RunningPrompt::outcome(running)));
        self.restore = Some(restore);
        Ok(None)
    }

    /// Continues a return when its call has ended, and writes the response. If no file was restored,
    /// the conversation stays as well.
    pub(super) async fn finish_restore(&mut self, restore: PendingRestore) {
        let caller = restore.caller.clone();
        let result = if self.is_restored {
            self.return_conversation(restore, true).await
        } else {
            let what = "the files were not restored, so the conversation stays as it is as well";
            Err(refused(what).fix("see the events of the call"))
        };
        self.respond(caller, result).await;
    }

    async fn return_conversation(
        &mut self,
        PendingRestore { session, prompt, .. }: PendingRestore,
        restored: bool,
    ) -> InstructionResult {
        let Some(session) = session else { return Ok(json!({"restored": restored})) };
        let mut result = self.continue_in(session, true).await?;
        result["restored"] = json!(restored);
        result["prompt"] = json!(prompt);
        Ok(result)
    }
}

/// The first of several failures, with the number of the others.
fn first(failures: Vec<Failure>) -> Failure {
    let more = failures.len().saturating_sub(1);
    let mut failures = failures.into_iter();
    let Some(mut failure) = failures.next() else { return refused("it failed") };
    if more > 0 {
        failure.what = format!("{} (and {more} more)", failure.what);
    }
    failure
}
