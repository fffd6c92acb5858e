//! Session driven by another program: prompts, steering, interrupts and answers on standard input,
//! events on standard output.
//!
//! The session ends when nothing runs and standard input has ended.

use std::pin::Pin;

use posse_actors::conversation::{ContentPart, Prompt, QuestionId};
use posse_actors::event::{Announcement, Event, MessageKind};
use posse_actors::permission_coordinator::{AnswerError, HumanDecision};
use posse_actors::root_session::{DeliverError, RunningPrompt, SessionHandle, TurnOutcome};
use posse_base::failure::Exit;
use posse_base::or_pending;
use posse_frontend::Task;
use posse_frontend::context::NOTHING_TO_COMPACT;
use posse_frontend::instruction::Instruction;

use tokio::sync::mpsc::Receiver;

use crate::driver::{Numbered, instructions};
use crate::headless::shutdown_signals::SignalEffect;
use crate::headless::{Front, RunOptions, no_deadline, stop_deadline};
use crate::output::when_read;

/// Maximum number of warnings about lines that could not be carried out; further ones are omitted.
const COMPLAINTS_MAX: u32 = 1000;

/// Reason of a denial after the end of standard input.
const NOBODY: &str = "no user can be asked: standard input has ended";

type RunFuture = Pin<Box<dyn Future<Output = Option<TurnOutcome>>>>;

/// Carries out the instructions on standard input until it has ended and nothing runs, or until a
/// signal or a lost reader stops the run. Starts `task` first, if there is one. Ends the session
/// and returns the exit code, which is `Exit::Usage` if there was neither a task nor a message.
pub async fn drive(session: SessionHandle, task: Option<Task>, manner: RunOptions) -> Exit {
    let mut driven = Driven {
        front: Front::new(session, manner),
        driver: Some(instructions()),
        running: None,
        open: Vec::new(),
        unanswered: 0,
        complaints: 0,
        last: None,
        began: false,
    };
    if let Some(task) = task {
        driven.begin(task).await;
    }
    let finished = driven.work().await;
    let Driven { front, last, unanswered, began, .. } = driven;
    if !began && front.stopped.is_none() {
        return front.finish_without_prompt().await;
    }
    let last = last.filter(|_| finished).map(|mut outcome| {
        outcome.unanswered += unanswered;
        outcome
    });
    front.finish(last).await
}

/// An open permission request, or a request of the model.
struct OpenRequest {
    id: QuestionId,
    is_permission: bool,
}

struct Driven {
    front: Front,
    /// Instructions from standard input; `None` after its end.
    driver: Option<Receiver<Numbered>>,
    running: Option<RunFuture>,
    /// Ids of the open permission requests.
    open: Vec<OpenRequest>,
    /// Number of permission requests denied because standard input had ended.
    unanswered: u32,
    complaints: u32,
    last: Option<TurnOutcome>,
    began: bool,
}

impl Driven {
    /// Handles signals, events and instructions. Returns true when no run is active and either the
    /// input has ended or a signal or a lost reader has stopped the run. Returns false if the
    /// session ended unexpectedly, or if a stopped run did not end in time or got a second signal.
    async fn work(&mut self) -> bool {
        let mut deadline = std::pin::pin!(tokio::time::sleep(no_deadline()));
        loop {
            let idle = self.running.is_none();
            if idle && (self.driver.is_none() || self.front.stopped.is_some()) {
                return true;
            }
            let Driven { front, driver, running, .. } = self;
            tokio::select! {
                biased;
                signal = front.signals.next() => match front.on_signal(signal).await {
                    SignalEffect::GoOn => (),
                    SignalEffect::Stop => deadline.as_mut().reset(stop_deadline()),
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
                    match outcome {
                        Some(outcome) => self.last = Some(outcome),
                        None => return false,
                    }
                }
                numbered = or_pending(driver.as_mut().map(Receiver::recv)) => match numbered {
                    Some(numbered) => self.follow(numbered).await,
                    None => self.controller_left().await,
                },
            }
            if self.front.check_readers().await == SignalEffect::Stop {
                deadline.as_mut().reset(stop_deadline());
            }
        }
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

    async fn follow(&mut self, Numbered { line, what }: Numbered) {
        let result = match what {
            Ok(instruction) => self.carry_out_instruction(instruction).await,
            Err(wrong) => Err(wrong),
        };
        if let Err(wrong) = result {
            self.complaints += 1;
            if self.complaints <= COMPLAINTS_MAX {
                self.front.session.warn(format!("standard input, line {line}: {wrong}"));
            }
        }
    }

    async fn carry_out_instruction(&mut self, instruction: Instruction) -> Result<(), String> {
        let content = match instruction {
            Instruction::Message(content) if self.running.is_none() => content,
            Instruction::Message(_) => {
                return Err(
                    "a prompt is being worked on: send `steer` or `follow_up`, or wait for \
                            its end"
                        .to_owned(),
                );
            }
            // If nothing runs any more, the message becomes a prompt.
            Instruction::Steer(content) => {
                let Some(content) = self.deliver(MessageKind::Steer, content).await? else {
                    return Ok(());
                };
                content
            }
            Instruction::FollowUp(content) => {
                let Some(content) = self.deliver(MessageKind::FollowUp, content).await? else {
                    return Ok(());
                };
                content
            }
            Instruction::Interrupt { all: true } => {
                self.front.session.interrupt_all();
                return Ok(());
            }
            Instruction::Interrupt { all: false } => {
                self.front.session.interrupt();
                return Ok(());
            }
            Instruction::Compact(keep) => {
                return match self.front.session.compact_keeping(keep).await {
                    Ok(Some(_)) => Ok(()),
                    Ok(None) => Err(NOTHING_TO_COMPACT.to_owned()),
                    Err(error) => Err(error.to_string()),
                };
            }
            Instruction::Context => {
                self.front.session.announce_context();
                return Ok(());
            }
            Instruction::PermissionMode(mode) => {
                let changed = self.front.session.set_permission_mode(mode, None).await;
                return changed.map(|_| ()).map_err(|error| error.to_string());
            }
            Instruction::Revert(_) => {
                return Err("this front end cannot revert changes: use `posse undo` or \
                            `posse checkpoints restore`, or resume the session in line mode"
                    .to_owned());
            }
            Instruction::Answer(id, decision) => {
                let decision = self.worded(&id, decision);
                let answered = self.front.session.answer(id, decision).await;
                return answered.map_err(|error| refused(&error));
            }
        };
        self.begin(Task::Prompt(Prompt { content })).await;
        Ok(())
    }

    /// Says in the reason of a refused permission request who refuses, as the other front ends do. The
    /// words about a question or a plan of the model stay.
    fn worded(&self, id: &QuestionId, decision: HumanDecision) -> HumanDecision {
        let is_permission = self.open.iter().any(|open| open.id == *id && open.is_permission);
        match decision {
            HumanDecision::Deny { reason: Some(words) } if is_permission => {
                HumanDecision::Deny { reason: Some(format!("the user said no: {words}")) }
            }
            other => other,
        }
    }

    /// Queues a message for the running prompt and returns `None`. Returns the content if no prompt
    /// runs; the outcome of a prompt that has just ended is then stored in `last`. Fails if the
    /// queue is full.
    async fn deliver(
        &mut self,
        kind: MessageKind,
        content: Vec<ContentPart>,
    ) -> Result<Option<Vec<ContentPart>>, String> {
        match self.front.session.deliver(kind, content.clone()).await {
            Ok(_) => Ok(None),
            Err(DeliverError::Full) => Err(DeliverError::Full.to_string()),
            Err(DeliverError::Idle) => {
                // It ended just before; its output comes first.
                if let Some(running) = self.running.take() {
                    self.last = running.await.or(self.last.take());
                }
                Ok(Some(content))
            }
        }
    }

    async fn begin(&mut self, task: Task) {
        self.began = true;
        match task.begin(&self.front.session).await {
            Ok(running) => self.running = Some(Box::pin(RunningPrompt::outcome(running))),
            Err(error) => self.front.session.warn(error.to_string()),
        }
    }
}

/// Error message for an answer that had no effect. It uses the words of the input format.
fn refused(error: &AnswerError) -> String {
    match error {
        AnswerError::ScopeNotOffered(scope) => {
            let name = serde_json::to_value(scope).unwrap_or_default();
            let name = name.as_str().unwrap_or_default();
            format!("the question does not offer the scope `{name}`; its `scopes` are what it does")
        }
        other => other.to_string(),
    }
}
