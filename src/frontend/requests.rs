//! Carries out instructions of client programs that need nothing but the session. All front ends
//! that take instructions use it.

use std::pin::Pin;
use std::time::Duration;

use posse_actors::conversation::{InvocationId, MessageId, SessionId, text_of};
use posse_actors::event::{Announcement, Event, PermissionMode};
use posse_actors::ledger::{Account, Accounts};
use posse_actors::permission_coordinator::{AnswerError, HumanDecision};
use posse_actors::root_session::{PromptError, SessionHandle};
use posse_actors::subscription::Subscription;
use posse_base::failure::{ErrorCode, Exit, Failure};
use serde_json::{Value, json};

use crate::commands::{COMMANDS, ShellCommand};
use crate::context::NOTHING_TO_COMPACT;
use crate::instruction::{Instruction, SessionRequest};
use crate::jobs::Jobs;
use crate::own_call;
use crate::queue::{Queue, Requeue};
use crate::response::InstructionResult;

/// Maximum time for reading the records of a session.
const READ_MAX: Duration = Duration::from_secs(20);

/// Maximum time between an effect and its events.
const LAST_EVENTS_MAX: Duration = Duration::from_secs(1);

/// Answer of [`SessionRequests::handle`].
pub enum InstructionAnswer {
    /// The result.
    Now(InstructionResult),
    /// The result at the end of work that has begun. Further instructions may be handled meanwhile.
    Later(Pin<Box<dyn Future<Output = InstructionResult> + Send>>),
    /// The instruction starts a run or needs the owner of the session: the caller carries it out.
    OfCaller(Instruction),
}

impl std::fmt::Debug for InstructionAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            InstructionAnswer::Now(result) => f.debug_tuple("Now").field(result).finish(),
            InstructionAnswer::Later(_) => f.write_str("Later"),
            InstructionAnswer::OfCaller(instruction) => {
                f.debug_tuple("OfCaller").field(instruction).finish()
            }
        }
    }
}

/// Carries out instructions for one client of a session.
#[derive(Debug)]
pub struct SessionRequests {
    session: SessionHandle,
    /// Name of the attached client; `None` for the front end that owns the session.
    by: Option<String>,
    /// Name of the reasoning effort; `None` if it is not known here.
    thinking: Option<&'static str>,
    /// State that the records of the session show; `None` until it is needed.
    folded: Option<FoldedSession>,
    /// Changes of the queue whose records may still be written.
    expected: Vec<QueueChange>,
}

/// Change of the queue by an instruction.
#[derive(Debug, PartialEq, Eq)]
enum QueueChange {
    Queued(MessageId),
    Withdrawn(MessageId),
}

impl SessionRequests {
    /// Creates a handler for the instructions of a client, `by`: its name if it is attached.
    pub fn new(session: SessionHandle, by: Option<String>) -> SessionRequests {
        SessionRequests { session, by, thinking: None, folded: None, expected: Vec::new() }
    }

    /// Sets the name of the reasoning effort, which `state` contains.
    #[must_use]
    pub fn with_thinking(self, thinking: &'static str) -> SessionRequests {
        SessionRequests { thinking: Some(thinking), ..self }
    }

    /// Registers a message that the caller has delivered, so that `queue` and `state` include it.
    pub fn delivered(&mut self, id: MessageId) {
        self.expected.push(QueueChange::Queued(id));
    }

    /// Carries out an instruction, or begins to.
    pub async fn handle(&mut self, instruction: Instruction) -> InstructionAnswer {
        InstructionAnswer::Now(match instruction {
            Instruction::Interrupt { all: true } => {
                self.session.interrupt_all();
                Ok(json!({}))
            }
            Instruction::Interrupt { all: false } => {
                self.session.interrupt();
                Ok(json!({}))
            }
            Instruction::Compact(keep) => {
                let work = compact(self.session.clone(), keep);
                return InstructionAnswer::Later(Box::pin(work));
            }
            Instruction::Context => {
                self.session.announce_context();
                Ok(json!({}))
            }
            Instruction::PermissionMode(mode) => self.set_mode(mode).await,
            Instruction::Answer(id, decision) => {
                let answered = self.session.answer_by(id, decision, self.by.clone()).await;
                answered.map(|()| json!({})).map_err(|error| not_answered(&error))
            }
            Instruction::Request(SessionRequest::Bash(command)) => {
                let work = run_command(self.session.clone(), command);
                return InstructionAnswer::Later(Box::pin(work));
            }
            Instruction::Request(request) => self.request(request).await,
            other => return InstructionAnswer::OfCaller(other),
        })
    }

    async fn set_mode(&self, mode: PermissionMode) -> InstructionResult {
        let changed = self.session.set_permission_mode(mode, self.by.clone()).await;
        changed.map_err(|error| refused(error.to_string()))?;
        Ok(json!({"mode": self.session.requested_permission_mode()}))
    }

    async fn request(&mut self, request: SessionRequest) -> InstructionResult {
        let session = self.session.clone();
        Ok(match request {
            SessionRequest::State => self.state().await?,
            SessionRequest::Messages => json!({"messages": session.history().await}),
            SessionRequest::Stats => stats(&session).await,
            SessionRequest::Rename(title) => match session.rename(title).await {
                Some(title) => json!({"title": title}),
                None => return Err(refused("the title has no visible character")),
            },
            SessionRequest::Label(of, prompt, label) => {
                let of = of.map_or_else(|| session.id().clone(), SessionId::new);
                json!({"label": session.label_prompt(of, prompt, &label)})
            }
            SessionRequest::Bash(_) => return Err(refused("the command did not begin")),
            SessionRequest::Queue => json!({"queue": self.folded().await?.queue.list()}),
            SessionRequest::Withdraw(id) => {
                let Some(content) = session.withdraw(id.clone()).await else {
                    let what = format!("no message `{id}` of the user is queued");
                    return Err(refused(what).fix("`queue` lists them"));
                };
                self.expected.push(QueueChange::Withdrawn(id));
                json!({"content": content})
            }
            SessionRequest::EditQueued(id, edit) => {
                let requeue = self.folded().await?.queue.requeue(&id, &edit);
                let missing = || {
                    let what = format!("no message `{id}` of the user is queued");
                    refused(what).fix("`queue` lists them")
                };
                let Requeue { old, new } = requeue.ok_or_else(missing)?;
                let ids = session.requeue(old.clone(), new).await.ok_or_else(missing)?;
                self.expected.extend(old.into_iter().map(QueueChange::Withdrawn));
                self.expected.extend(ids.into_iter().map(QueueChange::Queued));
                json!({"queue": self.folded().await?.queue.list()})
            }
            SessionRequest::Jobs => json!({"jobs": self.folded().await?.jobs.list()}),
            SessionRequest::StopJob(id) => {
                if !self.folded().await?.jobs.has(id.as_str()) {
                    let what = format!("no background job `{id}` is running");
                    return Err(refused(what).fix("`jobs` lists them"));
                }
                session.stop_job(id);
                json!({})
            }
            SessionRequest::Commands => {
                let listed = COMMANDS.iter().map(|command| {
                    json!({"name": command.name, "argument": command.argument, "help": command.help})
                });
                json!({"commands": listed.collect::<Vec<_>>()})
            }
        })
    }

    /// State of the session for a program.
    pub async fn state(&mut self) -> InstructionResult {
        let session = self.session.clone();
        let (title, idle) = (session.title().await, session.is_idle().await);
        let thinking = self.thinking;
        let folded = self.folded().await?;
        Ok(json!({
            "thinking": thinking,
            "sessionId": session.id(),
            "title": title,
            "agent": folded.agent,
            "provider": folded.provider,
            "model": folded.model,
            "cwd": folded.cwd,
            "permissionMode": session.permission_mode(),
            "idle": idle,
            "queued": folded.queue.list().len(),
            "jobs": folded.jobs.count(),
            "records": session.last_record(),
        }))
    }

    /// State that the records of the session show, up to date.
    async fn folded(&mut self) -> Result<&FoldedSession, Failure> {
        let folded = self.folded.get_or_insert_with(|| FoldedSession::new(&self.session));
        folded.catch_up(&self.session, std::mem::take(&mut self.expected)).await?;
        Ok(folded)
    }
}

/// State of a session that its records show. Reads only the records that were added since the last
/// time.
#[derive(Debug)]
struct FoldedSession {
    records: Subscription,
    /// Number of the last record that was read.
    last: u64,
    /// Changes whose records were not read yet.
    expected: Vec<QueueChange>,
    queue: Queue,
    jobs: Jobs,
    agent: String,
    provider: String,
    model: String,
    cwd: String,
}

impl FoldedSession {
    fn new(session: &SessionHandle) -> FoldedSession {
        FoldedSession {
            records: session.subscribe_after(0),
            last: 0,
            expected: Vec::new(),
            queue: Queue::default(),
            jobs: Jobs::default(),
            agent: String::new(),
            provider: String::new(),
            model: String::new(),
            cwd: String::new(),
        }
    }

    /// Reads the records that exist now, and those of the `expected` changes, which are written
    /// soon.
    async fn catch_up(
        &mut self,
        session: &SessionHandle,
        mut expected: Vec<QueueChange>,
    ) -> Result<(), Failure> {
        let until = session.last_record();
        self.expected.append(&mut expected);
        let read = async {
            while self.last < until {
                let Some(announced) = self.records.next().await else { return };
                self.follow(&announced);
            }
        };
        let read = tokio::time::timeout(READ_MAX, read).await;
        read.map_err(|_| refused("the records of the session could not be read in time"))?;
        let rest = async {
            while !self.expected.is_empty() {
                let Some(announced) = self.records.next().await else { return };
                self.follow(&announced);
            }
        };
        tokio::time::timeout(LAST_EVENTS_MAX, rest).await.ok();
        self.expected.clear();
        Ok(())
    }

    fn follow(&mut self, announced: &Announcement) {
        self.last = announced.record().unwrap_or(self.last);
        let event = announced.event();
        self.queue.follow(event);
        self.jobs.follow(event);
        let change = match event {
            Event::MessageQueued { message_id, .. } => {
                Some(QueueChange::Queued(message_id.clone()))
            }
            Event::MessageWithdrawn { message_id } => {
                Some(QueueChange::Withdrawn(message_id.clone()))
            }
            _ => None,
        };
        self.expected.retain(|expected| Some(expected) != change.as_ref());
        let (agent, provider, model, cwd) = match event {
            Event::SessionStarted { agent, provider, model, cwd, .. } => {
                (agent, provider, model, cwd)
            }
            Event::SessionResumed { with: Some(with), .. } => {
                (&with.agent, &with.provider, &with.model, &with.cwd)
            }
            _ => return,
        };
        (self.agent, self.provider) = (agent.clone(), provider.clone());
        (self.model, self.cwd) = (model.clone(), cwd.clone());
    }
}

async fn compact(session: SessionHandle, keep: Option<String>) -> InstructionResult {
    match session.compact_keeping(keep).await {
        Ok(Some(done)) => {
            Ok(json!({"tokensBefore": done.tokens_before, "tokensAfter": done.tokens_after}))
        }
        Ok(None) => Err(refused(NOTHING_TO_COMPACT)),
        Err(error) => Err(not_begun(&error)),
    }
}

/// Runs a command as the user, to its end.
async fn run_command(session: SessionHandle, command: ShellCommand) -> InstructionResult {
    let mut events = session.subscribe_after(u64::MAX);
    let running = session.call(own_call(&command)).await.map_err(|error| not_begun(&error))?;
    let id = running.invocation().clone();
    let mut result = json!({"callId": null, "status": "unknown", "output": ""});
    let mut ended = std::pin::pin!(running.outcome());
    loop {
        tokio::select! {
            biased;
            announced = events.next() => match announced {
                Some(announced) => add_to_result(&mut result, &announced, &id),
                None => break,
            },
            _ = &mut ended => break,
        }
    }
    // The outcome may come before the last events of the call.
    let rest = async {
        while result["callId"].is_null()
            && let Some(announced) = events.next().await
        {
            add_to_result(&mut result, &announced, &id);
        }
    };
    tokio::time::timeout(LAST_EVENTS_MAX, rest).await.ok();
    Ok(result)
}

fn add_to_result(result: &mut Value, announced: &Announcement, call: &InvocationId) {
    if announced.origin().is_none_or(|origin| origin.invocation_id != *call) {
        return;
    }
    let (id, status, content, metadata) = match announced.event() {
        Event::ToolCompleted { call_id, content, metadata, .. } => {
            (call_id, "completed", content, metadata)
        }
        Event::ToolFailed { call_id, content, metadata, .. } => {
            (call_id, "failed", content, metadata)
        }
        Event::ToolOutcomeUnknown { call_id, .. } => {
            result["callId"] = json!(call_id);
            return;
        }
        _ => return,
    };
    *result = json!({
        "callId": id, "status": status, "output": text_of(content), "metadata": metadata,
    });
}

async fn stats(session: &SessionHandle) -> Value {
    let Accounts { total, models, agents, .. } = session.accounts().await.unwrap_or_default();
    let with = |account: &Account, names: &[(&str, &str)]| {
        let mut value = json!(account);
        value["costNanoUsd"] = json!(account.known_cost());
        for (key, name) in names {
            value[*key] = json!(name);
        }
        value
    };
    let models = models.iter().map(|((provider, model), account)| {
        with(account, &[("provider", provider), ("model", model)])
    });
    let agents = agents.iter().map(|(agent, account)| with(account, &[("agentPath", agent)]));
    json!({
        "total": with(&total, &[]),
        "models": models.collect::<Vec<_>>(),
        "agents": agents.collect::<Vec<_>>(),
        "context": session.context().await,
    })
}

/// The error of an instruction that the session did not carry out.
pub fn refused(what: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::InstructionRefused, Exit::Usage, what)
}

/// The error of an instruction that has to wait.
pub fn busy(what: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::InstructionBusy, Exit::Usage, what)
}

/// The error of an instruction that only the owner of the session can carry out.
pub fn elsewhere(what: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::InstructionElsewhere, Exit::Usage, what)
}

/// The error of work that the session did not begin.
pub fn not_begun(error: &PromptError) -> Failure {
    match error {
        PromptError::Busy => busy(error.to_string()).fix("wait for its end, or send `interrupt`"),
        other => refused(other.to_string()),
    }
}

/// The error of an answer that had no effect, in the words of the input format.
fn not_answered(error: &AnswerError) -> Failure {
    match error {
        AnswerError::ScopeNotOffered(scope) => {
            let name = serde_json::to_value(scope).unwrap_or_default();
            let name = name.as_str().unwrap_or_default();
            refused(format!(
                "the question does not offer the scope `{name}`; its `scopes` are what it does"
            ))
        }
        other => refused(other.to_string()),
    }
}

/// Text of an error in one line: what failed, and what to do.
pub fn in_one_line(failure: &Failure) -> String {
    let parts = [Some(&failure.what), failure.why.as_ref(), failure.fix.as_ref()];
    parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("; ")
}

/// Says in the reason of a refused permission request that a user refuses.
pub fn refused_by_user(words: &str) -> HumanDecision {
    HumanDecision::Deny { reason: Some(format!("the user said no: {words}")) }
}
