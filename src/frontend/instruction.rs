//! Instructions of a client program to a session: parsing and writing of lines with one JSON object
//! each. Pure.

mod line;

use posse_actors::conversation::{CallId, ContentPart, MessageId, QuestionId};
use posse_actors::event::{HunkAnswer, PermissionMode, Scope, UserReply};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::text::clipped;
use posse_base::failure::{ErrorCode, Exit, Failure, did_you_mean};
use serde_json::{Map, Value, json};

use crate::commands::ShellCommand;
use crate::queue::QueueEdit;
use crate::remote_session::Revert;
use crate::{Listing, RewindExtent, Selectable, rewind_extents};

use line::{AnswerDecision, InstructionLine, TYPES};

/// Maximum characters of an id that is a text.
const ID_CHARS_MAX: usize = 200;

/// Maximum bytes of a line, including images. The newline counts only in the input of a headless
/// run, not on an attach connection.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// Maximum characters of an error message, which may quote a part of the line. A longer message
/// gets an ellipsis in addition.
const ERROR_CHARS_MAX: usize = 300;

/// An instruction to a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Instruction {
    /// Start a run with this prompt.
    Message(Vec<ContentPart>),
    /// Deliver this steering message to the model before its next step.
    Steer(Vec<ContentPart>),
    /// Deliver this follow-up to the model after its answer.
    FollowUp(Vec<ContentPart>),
    /// Stop the run. The session continues.
    Interrupt {
        /// True if all subagents and background jobs stop as well; false if those in the background
        /// continue.
        all: bool,
    },
    /// Compact the history. The text names what to keep; `None`: no preference.
    Compact(Option<String>),
    /// Announce the token usage of the parts of the context, in a `ContextUsed` event.
    Context,
    /// Change the permission mode of the session.
    PermissionMode(PermissionMode),
    /// Return to an earlier state.
    Revert(Revert),
    /// Answer this permission request with this decision.
    Answer(QuestionId, HumanDecision),
    /// Carry out this request, whose result the response contains.
    Request(SessionRequest),
    /// Carry out this request in the front end that owns the session.
    OwnerRequest(OwnerRequest),
}

/// Request that a session can carry out by itself.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionRequest {
    /// State of the session.
    State,
    /// History of the conversation.
    Messages,
    /// Usage, cost and context.
    Stats,
    /// Give the session this title.
    Rename(String),
    /// Give this label to a prompt: id of the session (`None`: this one), number, and label, which
    /// may be empty.
    Label(Option<String>, u32, String),
    /// Run this command as the user.
    Bash(ShellCommand),
    /// Queued messages.
    Queue,
    /// Delete this queued message.
    Withdraw(MessageId),
    /// Change this queued message.
    EditQueued(MessageId, QueueEdit),
    /// Running background jobs.
    Jobs,
    /// Stop this background job.
    StopJob(CallId),
    /// Slash commands of a person.
    Commands,
}

/// Request for which the front end that owns the session is needed, because it replaces the session
/// or reads settings and files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerRequest {
    /// Continue the conversation with these values of settings.
    Select(Vec<(Selectable, String)>),
    /// Start a new session.
    New,
    /// Resume the stored session whose id begins with this text.
    Resume(String),
    /// Continue in a copy of the session with this id, or of the current one, which ends before the
    /// prompt with this number, counted from 1. `None`: of the whole session.
    Fork(Option<String>, Option<usize>),
    /// Branches of the conversation.
    Tree,
    /// Start a run with this skill and task.
    Skill(String, String),
    /// Prompts to which the session can return.
    Prompts,
    /// Write the session to this file as a document.
    Export(Option<String>),
    /// A list of what can be used.
    List(Listing),
}

/// A line of a client program.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientLine {
    /// Id that the response repeats: a text or a number. `None` if the line has none, or one of
    /// another kind.
    pub id: Option<Value>,
    /// Value of `type`; `None` if there is none.
    pub command: Option<String>,
    /// The instruction, or the first fault of the line.
    pub instruction: Result<Instruction, Failure>,
}

/// Form of an answer about a hunk, for errors.
const HUNK_FORM: &str = r#"use "yes", "no" or {"replace": "TEXT"}"#;

impl ClientLine {
    /// Parses a line. A permission answer without a scope allows once. An id is a text of at most
    /// 200 characters, or a number.
    pub fn read(line: &[u8]) -> ClientLine {
        let invalid = |what: String| Failure::new(ErrorCode::InstructionInvalid, Exit::Usage, what);
        let mut read =
            ClientLine { id: None, command: None, instruction: Err(invalid(String::new())) };
        let mut members: Map<String, Value> = match serde_json::from_slice(line) {
            Ok(members) => members,
            Err(error) => {
                let fix = r#"write one JSON object a line, such as {"type":"state","id":1}"#;
                read.instruction = Err(invalid(json_error(&error)).fix(fix));
                return read;
            }
        };
        read.command = members.get("type").and_then(Value::as_str).map(str::to_owned);
        let id = members.remove("id");
        read.id = id.clone().filter(is_id);
        read.instruction = match (read.id.is_some() || id.is_none(), &read.command) {
            (false, _) => Err(invalid("`id` is neither a number nor a text".to_owned())
                .fix(format!("use a number, or a text of at most {ID_CHARS_MAX} characters"))),
            (_, Some(name)) if !TYPES.contains(&name.as_str()) => Err(unknown_type(name)),
            _ => instruction(Value::Object(members)).map_err(|what| {
                let fix = "`posse help instructions` describes the fields of each type";
                invalid(what).fix(fix)
            }),
        };
        read
    }

    /// The error of a line that is longer than [`LINE_BYTES_MAX`].
    pub fn too_long() -> ClientLine {
        let what = format!("is longer than {LINE_BYTES_MAX} bytes");
        let failure = Failure::new(ErrorCode::InstructionInvalid, Exit::Usage, what);
        let failure = failure.fix("send a large text in several messages, or name a file");
        ClientLine { id: None, command: None, instruction: Err(failure) }
    }
}

fn is_id(id: &Value) -> bool {
    match id {
        Value::Number(_) => true,
        Value::String(text) => text.chars().count() <= ID_CHARS_MAX,
        _ => false,
    }
}

/// JSON Schema of the lines, without the member `id`.
#[cfg(feature = "testing")]
pub fn line_schema() -> Value {
    line::schema()
}

/// Converts the members of a line. The error describes the first fault.
fn instruction(members: Value) -> Result<Instruction, String> {
    let wire: InstructionLine =
        serde_json::from_value(members).map_err(|error| json_error(&error))?;
    Ok(match wire {
        InstructionLine::Message { content } => Instruction::Message(parts(content)?),
        InstructionLine::Steer { content } => Instruction::Steer(parts(content)?),
        InstructionLine::FollowUp { content } => Instruction::FollowUp(parts(content)?),
        InstructionLine::Interrupt { all } => Instruction::Interrupt { all },
        InstructionLine::Compact { keep } => Instruction::Compact(keep),
        InstructionLine::Context {} => Instruction::Context,
        InstructionLine::Mode { mode } => Instruction::PermissionMode(mode_named(&mode)?),
        InstructionLine::Undo { checkpoint } => {
            let revert = checkpoint.map_or(Revert::LastChange, Revert::ToCheckpoint);
            Instruction::Revert(revert)
        }
        InstructionLine::Rewind { prompt, what } => {
            Instruction::Revert(Revert::ToPrompt(prompt, extent_named(&what)?))
        }
        InstructionLine::QuestionAnswer { request_id, answers } => {
            let reply = UserReply::Questions { answers };
            Instruction::Answer(request_id, HumanDecision::Reply(reply))
        }
        InstructionLine::PlanAnswer { request_id, mode, plan } => {
            let reply = UserReply::Plan { mode: mode_named(&mode)?, plan };
            Instruction::Answer(request_id, HumanDecision::Reply(reply))
        }
        InstructionLine::Answer { request_id, decision: AnswerDecision::Hunks, hunks, .. } => {
            Instruction::Answer(request_id, HumanDecision::Hunks(hunk_answers(hunks)?))
        }
        // The call would not be made in part, as the sender expects.
        InstructionLine::Answer { hunks: Some(_), .. } => {
            return Err(r#"hunks: they belong to "decision": "hunks" only"#.to_owned());
        }
        InstructionLine::Answer {
            decision: AnswerDecision::Allow,
            scope: Some(Scope::Global),
            confirm,
            ..
        } if confirm != Some(Scope::Global) => {
            return Err(r#"the scope global needs "confirm": "global" as well"#.to_owned());
        }
        InstructionLine::Answer { request_id, decision: AnswerDecision::Allow, scope, .. } => {
            Instruction::Answer(request_id, HumanDecision::Allow(scope.unwrap_or(Scope::Once)))
        }
        InstructionLine::Answer { request_id, decision: AnswerDecision::Deny, reason, .. } => {
            Instruction::Answer(request_id, HumanDecision::Deny { reason })
        }
        InstructionLine::Answer { request_id, decision: AnswerDecision::Try, .. } => {
            Instruction::Answer(request_id, HumanDecision::Try)
        }
        InstructionLine::Answer { request_id, decision: AnswerDecision::Keep, .. } => {
            Instruction::Answer(request_id, HumanDecision::Keep)
        }
        other => Instruction::of_request(other)?,
    })
}

impl Instruction {
    /// Converts a line that asks for a result.
    fn of_request(line: InstructionLine) -> Result<Instruction, String> {
        let request = match line {
            InstructionLine::State {} => SessionRequest::State,
            InstructionLine::Messages {} => SessionRequest::Messages,
            InstructionLine::Stats {} => SessionRequest::Stats,
            InstructionLine::Rename { title } => SessionRequest::Rename(title),
            InstructionLine::Label { session, prompt, label } => {
                SessionRequest::Label(session, prompt, label)
            }
            InstructionLine::Bash { command, private } => {
                SessionRequest::Bash(shell_command(&command, private)?)
            }
            InstructionLine::Queue {} => SessionRequest::Queue,
            InstructionLine::Withdraw { message_id } => SessionRequest::Withdraw(message_id),
            InstructionLine::EditQueued { message_id, text, position } => {
                let edit = match (text, position) {
                    (Some(text), None) if !text.trim().is_empty() => QueueEdit::Text(text),
                    (None, Some(position)) => QueueEdit::MoveTo(position),
                    _ => return Err("exactly one of `text` and `position` is needed".to_owned()),
                };
                SessionRequest::EditQueued(message_id, edit)
            }
            InstructionLine::Jobs {} => SessionRequest::Jobs,
            InstructionLine::StopJob { call_id } => SessionRequest::StopJob(call_id),
            InstructionLine::Commands {} => SessionRequest::Commands,
            other => return Instruction::of_owner_request(other),
        };
        Ok(Instruction::Request(request))
    }

    fn of_owner_request(line: InstructionLine) -> Result<Instruction, String> {
        let select = |what, name| OwnerRequest::Select(vec![(what, name)]);
        let request = match line {
            InstructionLine::SetModel { model, provider } => {
                // A provider first: selecting it resets the model.
                let provider = provider.map(|name| (Selectable::Provider, name));
                let chosen =
                    provider.into_iter().chain(model.map(|name| (Selectable::Model, name)));
                let chosen: Vec<_> = chosen.collect();
                if chosen.is_empty() {
                    return Err("missing field `model` or `provider`".to_owned());
                }
                OwnerRequest::Select(chosen)
            }
            InstructionLine::SetAgent { agent } => select(Selectable::Agent, agent),
            InstructionLine::SetThinking { thinking } => select(Selectable::Thinking, thinking),
            InstructionLine::NewSession {} => OwnerRequest::New,
            InstructionLine::SwitchSession { session } => OwnerRequest::Resume(session),
            InstructionLine::Fork { session, prompt } => OwnerRequest::Fork(session, prompt),
            InstructionLine::Tree {} => OwnerRequest::Tree,
            InstructionLine::Skill { name, task } => OwnerRequest::Skill(name, task),
            InstructionLine::Prompts {} => OwnerRequest::Prompts,
            InstructionLine::Export { file } => OwnerRequest::Export(file),
            InstructionLine::Tools {} => OwnerRequest::List(Listing::Tools),
            InstructionLine::Agents {} => OwnerRequest::List(Listing::Agents),
            InstructionLine::Models {} => OwnerRequest::List(Listing::Models),
            InstructionLine::Skills {} => OwnerRequest::List(Listing::Skills),
            InstructionLine::Sessions {} => OwnerRequest::List(Listing::Sessions),
            _ => return Err("the type has no instruction".to_owned()),
        };
        Ok(Instruction::OwnerRequest(request))
    }
}

/// The command of a line `bash`, as if the user had typed it.
fn shell_command(command: &str, is_private: bool) -> Result<ShellCommand, String> {
    let line = command.trim();
    if line.is_empty() {
        return Err("command is empty".to_owned());
    }
    Ok(ShellCommand { line: line.to_owned(), is_private })
}

/// Parses the answers about hunks. The error names the place and the fix.
fn hunk_answers(hunks: Option<Vec<Value>>) -> Result<Vec<HunkAnswer>, String> {
    let Some(hunks) = hunks else {
        return Err(format!("hunks: missing; give one answer for each hunk: {HUNK_FORM}"));
    };
    let answer = |(nth, hunk)| {
        serde_json::from_value(hunk).map_err(|_| format!("hunks[{nth}]: {HUNK_FORM}"))
    };
    hunks.into_iter().enumerate().map(answer).collect()
}

/// Parses the name of a permission mode.
fn mode_named(name: &str) -> Result<PermissionMode, String> {
    let known = PermissionMode::KNOWN.map(PermissionMode::as_str).join(", ");
    PermissionMode::named(name).ok_or_else(|| {
        without_line(&format!("unknown permission mode `{name}`, expected one of {known}"))
    })
}

/// Parses the name of an extent of a return to an earlier prompt.
fn extent_named(name: &str) -> Result<RewindExtent, String> {
    let known = rewind_extents().map(|(name, ..)| name).collect::<Vec<_>>().join(", ");
    RewindExtent::named(name)
        .ok_or_else(|| without_line(&format!("unknown extent `{name}`, expected one of {known}")))
}

/// Parses `content`: a text or a list of parts. Fails if it is anything else, if it has neither
/// text nor an image, or if an image is not an http(s) or `data:image/` URL.
fn parts(content: Value) -> Result<Vec<ContentPart>, String> {
    let parts: Vec<ContentPart> = match content {
        Value::String(text) => vec![ContentPart::text(text)],
        Value::Array(parts) => {
            let part = |(nth, part): (usize, Value)| {
                let wrong =
                    |error: serde_json::Error| without_line(&format!("content[{nth}]: {error}"));
                serde_json::from_value(part).map_err(wrong)
            };
            parts.into_iter().enumerate().map(part).collect::<Result<_, String>>()?
        }
        _ => return Err("content is neither a text nor a list of parts".to_owned()),
    };
    let says = |part: &ContentPart| match part {
        ContentPart::Text { text } => !text.trim().is_empty(),
        ContentPart::ImageUrl { .. } => true,
    };
    if !parts.iter().any(says) {
        return Err("content is empty".to_owned());
    }
    let address = |url: &str| {
        ["https://", "http://", "data:image/"].iter().any(|beginning| url.starts_with(beginning))
    };
    for (nth, part) in parts.iter().enumerate() {
        match part {
            ContentPart::ImageUrl { url, .. } if !address(url) => {
                return Err(format!("content[{nth}]: an image is an http(s) or data:image/ URL"));
            }
            ContentPart::ImageUrl { .. } | ContentPart::Text { .. } => (),
        }
    }
    Ok(parts)
}

/// Error of a line with an unknown type. It names all types.
fn unknown_type(name: &str) -> Failure {
    const NAME_CHARS_MAX: usize = 40;
    let meant = did_you_mean(name, TYPES).map(|meant| format!("; {meant}")).unwrap_or_default();
    let what = format!("unknown type `{}`{meant}", clipped(name, NAME_CHARS_MAX, "…"));
    Failure::new(ErrorCode::InstructionUnknown, Exit::Usage, what)
        .fix(format!("the types are {}", TYPES.join(", ")))
}

/// Text of a JSON error without its line number, which is always 1 because each line is parsed
/// alone. The column stays only if the line is not valid JSON. Cut like every error of [`parse`].
fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let said = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    if error.is_data() {
        return without_line(said);
    }
    without_line(&format!("not valid JSON: {said} at column {}", error.column()))
}

/// Cuts an error message to [`ERROR_CHARS_MAX`] characters and an ellipsis.
fn without_line(error: &str) -> String {
    clipped(error, ERROR_CHARS_MAX, " …")
}

/// Encodes an instruction as one line, with a newline at the end.
pub fn line_of(instruction: &Instruction) -> Vec<u8> {
    let value = match instruction {
        Instruction::Message(content) => json!({"type": "message", "content": content}),
        Instruction::Steer(content) => json!({"type": "steer", "content": content}),
        Instruction::FollowUp(content) => json!({"type": "follow_up", "content": content}),
        Instruction::Interrupt { all } => json!({"type": "interrupt", "all": all}),
        Instruction::Compact(keep) => json!({"type": "compact", "keep": keep}),
        Instruction::Context => json!({"type": "context"}),
        Instruction::Revert(Revert::LastChange) => json!({"type": "undo"}),
        Instruction::Revert(Revert::ToCheckpoint(id)) => json!({"type": "undo", "checkpoint": id}),
        Instruction::Revert(Revert::ToPrompt(prompt, extent)) => {
            json!({"type": "rewind", "prompt": prompt, "what": extent.name()})
        }
        Instruction::PermissionMode(mode) => json!({"type": "permission.mode", "mode": mode}),
        Instruction::Answer(id, HumanDecision::Allow(scope)) => {
            let mut line = json!({
                "type": "permission.answer", "requestId": id, "decision": "allow", "scope": scope,
            });
            if *scope == Scope::Global {
                line["confirm"] = json!(scope);
            }
            line
        }
        Instruction::Answer(id, HumanDecision::Deny { reason }) => json!({
            "type": "permission.answer", "requestId": id, "decision": "deny", "reason": reason,
        }),
        Instruction::Answer(id, HumanDecision::Try) => {
            json!({"type": "permission.answer", "requestId": id, "decision": "try"})
        }
        Instruction::Answer(id, HumanDecision::Keep) => {
            json!({"type": "permission.answer", "requestId": id, "decision": "keep"})
        }
        Instruction::Answer(id, HumanDecision::Hunks(hunks)) => json!({
            "type": "permission.answer", "requestId": id, "decision": "hunks", "hunks": hunks,
        }),
        Instruction::Answer(id, HumanDecision::Reply(UserReply::Questions { answers })) => {
            json!({"type": "question.answer", "requestId": id, "answers": answers})
        }
        Instruction::Answer(id, HumanDecision::Reply(UserReply::Plan { mode, plan })) => {
            json!({"type": "plan.answer", "requestId": id, "mode": mode, "plan": plan})
        }
        Instruction::Request(request) => request.line(),
        Instruction::OwnerRequest(request) => request.line(),
    };
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

impl SessionRequest {
    fn line(&self) -> Value {
        match self {
            SessionRequest::State => json!({"type": "state"}),
            SessionRequest::Messages => json!({"type": "messages"}),
            SessionRequest::Stats => json!({"type": "stats"}),
            SessionRequest::Rename(title) => json!({"type": "rename", "title": title}),
            SessionRequest::Label(session, prompt, label) => {
                json!({"type": "label", "session": session, "prompt": prompt, "label": label})
            }
            SessionRequest::Bash(ShellCommand { line, is_private }) => {
                json!({"type": "bash", "command": line, "private": is_private})
            }
            SessionRequest::Queue => json!({"type": "queue"}),
            SessionRequest::Withdraw(id) => json!({"type": "withdraw", "messageId": id}),
            SessionRequest::EditQueued(id, QueueEdit::Text(text)) => {
                json!({"type": "edit_queued", "messageId": id, "text": text})
            }
            SessionRequest::EditQueued(id, QueueEdit::MoveTo(position)) => {
                json!({"type": "edit_queued", "messageId": id, "position": position})
            }
            SessionRequest::Jobs => json!({"type": "jobs"}),
            SessionRequest::StopJob(id) => json!({"type": "stop_job", "callId": id}),
            SessionRequest::Commands => json!({"type": "commands"}),
        }
    }
}

impl OwnerRequest {
    fn line(&self) -> Value {
        match self {
            OwnerRequest::Select(chosen) => {
                let mut line = json!({});
                for (what, name) in chosen {
                    line["type"] = json!(match what {
                        Selectable::Model | Selectable::Provider => "set_model",
                        Selectable::Agent => "set_agent",
                        Selectable::Thinking => "set_thinking",
                    });
                    line[what.word()] = json!(name);
                }
                line
            }
            OwnerRequest::New => json!({"type": "new_session"}),
            OwnerRequest::Resume(session) => json!({"type": "switch_session", "session": session}),
            OwnerRequest::Fork(session, prompt) => {
                json!({"type": "fork", "session": session, "prompt": prompt})
            }
            OwnerRequest::Tree => json!({"type": "tree"}),
            OwnerRequest::Skill(name, task) => json!({"type": "skill", "name": name, "task": task}),
            OwnerRequest::Prompts => json!({"type": "prompts"}),
            OwnerRequest::Export(file) => json!({"type": "export", "file": file}),
            OwnerRequest::List(list) => json!({"type": list.word()}),
        }
    }
}

#[cfg(test)]
mod tests;
