//! Session that another program drives: instructions on standard input, events and responses on
//! standard output.

mod owner;

use std::pin::Pin;
use std::time::Duration;

use posse_actors::conversation::{ContentPart, Prompt, QuestionId};
use posse_actors::event::{Announcement, Event, MessageKind};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::root_session::{DeliverError, RunningPrompt, SessionHandle, TurnOutcome};
use posse_base::failure::{ErrorCode, Exit, Failure};
use posse_base::or_pending;
use posse_frontend::instruction::{ClientLine, Instruction};
use posse_frontend::remote_session::AttachSocket;
use posse_frontend::requests::{
    InstructionAnswer, SessionRequests, busy, in_one_line, not_begun, refused, refused_by_user,
};
use posse_frontend::response::{Caller, InstructionResult};
use posse_frontend::{
    LoadedSession, OpenedSession, RewindConfirmation, SessionSelection, Sessions, Task,
    thinking_name,
};
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use crate::driver::{Numbered, instructions};
use crate::headless::shutdown_signals::SignalEffect;
use crate::headless::{Front, RunOptions, no_deadline, stop_deadline};
use crate::output::when_read;

/// Maximum number of warnings about lines that could not be carried out; further ones are omitted.
const COMPLAINTS_MAX: u32 = 1000;

/// Reason of a denial after the end of standard input.
const NOBODY: &str = "no user can be asked: standard input has ended";

/// Maximum time between the outcome of a call and its last events.
const LAST_EVENTS_MAX: Duration = Duration::from_secs(1);

type RunFuture = Pin<Box<dyn Future<Output = Option<TurnOutcome>>>>;

/// Starts `opened` and carries out the instructions on standard input until it has ended and nothing
/// runs, or until a signal or a lost reader stops the run. Starts `task` first, if there is one.
/// Ends the session and returns the exit code, which is `Exit::Usage` if there was neither a task
/// nor a request. Fails if the session cannot be started.
pub async fn drive(
    sessions: &mut dyn Sessions,
    opened: OpenedSession,
    task: Option<Task>,
    manner: RunOptions,
) -> Result<Exit, Failure> {
    let agent = opened.settings.agent.clone();
    let (session, attach_socket, thinking) = start(opened).await?;
    let mut driven = Driven {
        sessions,
        choice: SessionSelection::default(),
        agent,
        confirmation: RewindConfirmation::default(),
        attach_socket,
        requests: SessionRequests::new(session.clone(), None).with_thinking(thinking),
        front: Front::new(session, manner),
        driver: Some(instructions()),
        running: None,
        pending: JoinSet::new(),
        restore: None,
        is_restored: false,
        is_told: false,
        open: Vec::new(),
        unanswered: 0,
        complaints: 0,
        last: None,
        began: false,
    };
    if let Some(task) = task
        && let Err(failure) = driven.begin(task).await
    {
        driven.front.session.warn(in_one_line(&failure));
    }
    let finished = driven.work().await;
    let Driven { front, last, unanswered, began, mut attach_socket, .. } = driven;
    let exit = if !began && front.stopped.is_none() {
        front.finish_without_prompt().await
    } else {
        let last = last.filter(|_| finished).map(|mut outcome| {
            outcome.unanswered += unanswered;
            outcome
        });
        match (last, finished) {
            // Requests alone are no task that could fail.
            (None, true) if front.stopped.is_none() => front.finish_without_task().await,
            (last, _) => front.finish(last).await,
        }
    };
    attach_socket.close().await;
    Ok(exit)
}

/// Starts a session. Returns it with its attach socket and the name of its reasoning effort.
async fn start(
    opened: OpenedSession,
) -> Result<(SessionHandle, AttachSocket, &'static str), Failure> {
    let OpenedSession { ports, settings, session_server, .. } = opened;
    let thinking = thinking_name(&settings);
    let session = SessionHandle::start(ports, settings).await.map_err(|error| {
        Failure::new(ErrorCode::InternalFailure, Exit::Internal, error.to_string())
    })?;
    let attach_socket = session_server.start(&session);
    Ok((session, attach_socket, thinking))
}

/// An open permission request, or a request of the model.
struct OpenRequest {
    id: QuestionId,
    is_permission: bool,
}

/// Return to an earlier state that continues when the files have been restored.
struct PendingRestore {
    caller: Caller,
    /// Copy of the session that ends before the prompt; `None` if the conversation stays.
    session: Option<LoadedSession>,
    /// Text of the prompt.
    prompt: String,
}

struct Driven<'a> {
    sessions: &'a mut dyn Sessions,
    choice: SessionSelection,
    /// Name of the main agent.
    agent: String,
    confirmation: RewindConfirmation,
    attach_socket: AttachSocket,
    requests: SessionRequests,
    front: Front,
    /// Instructions from standard input; `None` after its end.
    driver: Option<Receiver<Numbered>>,
    /// The run, or the call that restores files.
    running: Option<RunFuture>,
    /// Instructions whose work has begun and that wait for their response.
    pending: JoinSet<(Caller, InstructionResult)>,
    /// Return for which `running` restores files.
    restore: Option<PendingRestore>,
    /// True if files were restored since this was last reset.
    is_restored: bool,
    /// True if a message about a call of the user was queued since this was last reset.
    is_told: bool,
    /// Ids of the open permission requests.
    open: Vec<OpenRequest>,
    /// Number of permission requests denied because standard input had ended.
    unanswered: u32,
    complaints: u32,
    last: Option<TurnOutcome>,
    /// True if a task was begun, or a request was received.
    began: bool,
}

impl Driven<'_> {
    /// Handles signals, events and instructions. Returns true when no run is active and either the
    /// input has ended or a signal or a lost reader has stopped the run. Returns false if the
    /// session ended unexpectedly, or if a stopped run did not end in time or got a second signal.
    async fn work(&mut self) -> bool {
        let mut deadline = std::pin::pin!(tokio::time::sleep(no_deadline()));
        loop {
            let idle = !self.is_busy();
            if idle && (self.driver.is_none() || self.front.stopped.is_some()) {
                return true;
            }
            let was_stopped = self.front.stopped.is_some();
            let Driven { front, driver, running, pending, .. } = self;
            tokio::select! {
                biased;
                signal = front.signals.next() => match front.on_signal(signal).await {
                    SignalEffect::GoOn | SignalEffect::Stop => (),
                    SignalEffect::Leave => return false,
                },
                () = &mut deadline, if front.stopped.is_some() => {
                    front.hurried = true;
                    return false;
                }
                announcement = when_read([&front.stdout, &front.stderr], front.events.next()) => match announcement {
                    Some(announcement) => self.announce(&announcement).await,
                    None => return false,
                },
                outcome = or_pending(running.as_mut()) => {
                    self.running = None;
                    if !self.run_ended(outcome).await {
                        return false;
                    }
                }
                Some(ended) = pending.join_next() => {
                    if let Ok((caller, result)) = ended {
                        self.respond(caller, result).await;
                    }
                }
                // The first line is about the session.
                numbered = or_pending(driver.as_mut().map(Receiver::recv)), if front.lines > 0 => match numbered {
                    Some(numbered) => self.follow(numbered).await,
                    None => self.controller_left().await,
                },
            }
            self.front.check_readers().await;
            if !was_stopped && self.front.stopped.is_some() {
                deadline.as_mut().reset(stop_deadline());
            }
        }
    }

    /// True if a run, a call of the user or a compaction is in progress.
    fn is_busy(&self) -> bool {
        self.running.is_some() || !self.pending.is_empty()
    }

    async fn announce(&mut self, announcement: &std::sync::Arc<Announcement>) {
        self.front.follow(announcement).await;
        match announcement.event() {
            Event::PermissionRequested { request_id, user_request, .. }
                if self.open.iter().all(|open| open.id != *request_id) =>
            {
                let (id, is_permission) = (request_id.clone(), user_request.is_none());
                self.open.push(OpenRequest { id, is_permission });
                if self.driver.is_none() {
                    self.controller_left().await;
                }
            }
            Event::CheckpointRestored { .. } => self.is_restored = true,
            Event::MessageQueued { kind: MessageKind::Aside, .. } => self.is_told = true,
            event => self.open.retain(|open| Some(&open.id) != event.closed_question()),
        }
    }

    async fn controller_left(&mut self) {
        self.driver = None;
        for OpenRequest { id, is_permission } in std::mem::take(&mut self.open) {
            let reason = is_permission.then(|| NOBODY.to_owned());
            let decision = HumanDecision::Deny { reason };
            if self.front.session.answer(id, decision).await.is_ok() {
                self.unanswered += u32::from(is_permission);
            }
        }
    }

    /// Handles the end of the run, or of the call that restores files. Returns false if the session
    /// ended unexpectedly.
    async fn run_ended(&mut self, outcome: Option<TurnOutcome>) -> bool {
        let Some(outcome) = outcome else { return false };
        match self.restore.take() {
            None => self.last = Some(outcome),
            Some(restore) => {
                self.read_last_events().await;
                Box::pin(self.finish_restore(restore)).await;
            }
        }
        true
    }

    /// Shows the events of a call of the user up to the message that tells the model about it, which
    /// is the last one.
    async fn read_last_events(&mut self) {
        let mut limit = std::pin::pin!(tokio::time::sleep(LAST_EVENTS_MAX));
        while !self.is_told {
            let announcement = tokio::select! {
                biased;
                announcement = self.front.events.next() => announcement,
                () = &mut limit => return,
            };
            let Some(announcement) = announcement else { return };
            self.announce(&announcement).await;
        }
    }

    async fn follow(&mut self, Numbered { line, what }: Numbered) {
        let ClientLine { id, command, instruction } = what;
        let caller = Caller { line, id, command };
        let result = match instruction {
            Ok(instruction) => match self.carry_out_instruction(&caller, instruction).await {
                Some(result) => result,
                None => return,
            },
            Err(failure) => Err(failure),
        };
        self.respond(caller, result).await;
    }

    /// Writes the response. A line without an id that failed is also reported by a warning, as in
    /// versions without responses.
    async fn respond(&mut self, caller: Caller, result: InstructionResult) {
        let place = format!("standard input, line {}", caller.line);
        if let Err(failure) = &result
            && caller.id.is_none()
        {
            self.complaints += 1;
            if self.complaints <= COMPLAINTS_MAX {
                self.front.session.warn(format!("{place}: {}", in_one_line(failure)));
            }
        }
        self.front.respond(caller, result.map_err(|failure| failure.at(place))).await;
    }

    /// Carries out an instruction. `None` if its response comes later.
    async fn carry_out_instruction(
        &mut self,
        caller: &Caller,
        instruction: Instruction,
    ) -> Option<InstructionResult> {
        let instruction = match instruction {
            Instruction::Answer(id, decision) => {
                Instruction::Answer(id.clone(), self.worded(&id, decision))
            }
            other => other,
        };
        let is_request =
            matches!(instruction, Instruction::Request(_) | Instruction::OwnerRequest(_));
        self.began |= is_request;
        Some(match self.requests.handle(instruction).await {
            InstructionAnswer::Now(result) => result,
            InstructionAnswer::Later(work) => {
                let caller = caller.clone();
                self.pending.spawn(async move { (caller, work.await) });
                return None;
            }
            InstructionAnswer::OfCaller(Instruction::Message(content))
                if self.running.is_none() =>
            {
                self.begin(Task::Prompt(Prompt { content })).await
            }
            InstructionAnswer::OfCaller(Instruction::Message(_)) => Err(busy(
                "a prompt is being worked on: send `steer` or `follow_up`, or wait for its end",
            )),
            InstructionAnswer::OfCaller(Instruction::Steer(content)) => {
                self.deliver(MessageKind::Steer, content).await
            }
            InstructionAnswer::OfCaller(Instruction::FollowUp(content)) => {
                self.deliver(MessageKind::FollowUp, content).await
            }
            InstructionAnswer::OfCaller(Instruction::Revert(revert)) => {
                return Box::pin(self.revert(caller, revert)).await.transpose();
            }
            InstructionAnswer::OfCaller(Instruction::OwnerRequest(request)) => {
                Box::pin(self.own(request)).await
            }
            InstructionAnswer::OfCaller(_) => Err(refused("the instruction cannot be carried out")),
        })
    }

    /// Says in the reason of a refused permission request who refuses, as the other front ends do. The
    /// words about a question or a plan of the model stay.
    fn worded(&self, id: &QuestionId, decision: HumanDecision) -> HumanDecision {
        let is_permission = self.open.iter().any(|open| open.id == *id && open.is_permission);
        match decision {
            HumanDecision::Deny { reason: Some(words) } if is_permission => refused_by_user(&words),
            other => other,
        }
    }

    /// Queues a message for the running prompt. If no prompt runs, the message becomes a prompt; the
    /// outcome of a prompt that has just ended is then stored in `last`. Fails if the queue is full.
    async fn deliver(&mut self, kind: MessageKind, content: Vec<ContentPart>) -> InstructionResult {
        match self.front.session.deliver(kind, content.clone()).await {
            Ok(id) => {
                self.requests.delivered(id.clone());
                Ok(json!({"messageId": id}))
            }
            Err(DeliverError::Full) => Err(refused(DeliverError::Full.to_string())),
            Err(DeliverError::Idle) => {
                // It ended just before; its output comes first.
                if let Some(running) = self.running.take() {
                    let outcome = running.await;
                    self.run_ended(outcome).await;
                }
                self.begin(Task::Prompt(Prompt { content })).await
            }
        }
    }

    async fn begin(&mut self, task: Task) -> InstructionResult {
        self.began = true;
        let running = task.begin(&self.front.session).await.map_err(|error| not_begun(&error))?;
        let id = running.invocation().clone();
        self.running = Some(Box::pin(RunningPrompt::outcome(running)));
        Ok(json!({"invocationId": id}))
    }
}
