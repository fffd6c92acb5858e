//! Instructions of a client program to a session: parsing and writing of lines with one JSON object
//! each. Pure.

use posse_actors::conversation::{ContentPart, QuestionId};
use posse_actors::event::{HunkAnswer, PermissionMode, QuestionAnswer, Scope, UserReply};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::text::clipped;
use posse_base::failure::did_you_mean;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::remote_session::Revert;
use crate::{RewindExtent, rewind_extents};

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
}

/// All values of `type`, for errors.
const TYPES: [&str; 12] = [
    "message",
    "steer",
    "follow_up",
    "interrupt",
    "compact",
    "context",
    "permission.mode",
    "undo",
    "rewind",
    "permission.answer",
    "question.answer",
    "plan.answer",
];

#[derive(Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase", deny_unknown_fields)]
enum InstructionLine {
    #[serde(rename = "message")]
    Message { content: Value },
    #[serde(rename = "steer")]
    Steer { content: Value },
    #[serde(rename = "follow_up")]
    FollowUp { content: Value },
    #[serde(rename = "interrupt")]
    Interrupt {
        #[serde(default)]
        all: bool,
    },
    #[serde(rename = "compact")]
    Compact {
        #[serde(default)]
        keep: Option<String>,
    },
    #[serde(rename = "context")]
    Context {},
    #[serde(rename = "permission.mode")]
    Mode { mode: String },
    #[serde(rename = "undo")]
    Undo {},
    #[serde(rename = "rewind")]
    Rewind {
        prompt: usize,
        /// Name of a [`RewindExtent`].
        what: String,
    },
    #[serde(rename = "permission.answer")]
    Answer {
        request_id: QuestionId,
        decision: AnswerDecision,
        #[serde(default)]
        scope: Option<Scope>,
        #[serde(default)]
        reason: Option<String>,
        /// Must be `global` if a call is allowed with the scope `global`; otherwise ignored.
        #[serde(default)]
        confirm: Option<Scope>,
        /// Answers about the hunks of the request, for the decision `hunks` alone.
        #[serde(default)]
        hunks: Option<Vec<Value>>,
    },
    #[serde(rename = "question.answer")]
    QuestionAnswer { request_id: QuestionId, answers: Vec<QuestionAnswer> },
    #[serde(rename = "plan.answer")]
    PlanAnswer {
        request_id: QuestionId,
        mode: String,
        /// The plan as the user has changed it.
        #[serde(default)]
        plan: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum AnswerDecision {
    Allow,
    Deny,
    /// Run the call in a trial first; the request returns with the result.
    Try,
    /// Keep the changes of the trial.
    Keep,
    /// Make only chosen hunks of the change.
    Hunks,
}

/// Form of an answer about a hunk, for errors.
const HUNK_FORM: &str = r#"use "yes", "no" or {"replace": "TEXT"}"#;

/// Parses a line. A permission answer without a scope allows once. The error describes the first
/// fault of the line.
pub fn parse(line: &[u8]) -> Result<Instruction, String> {
    let wire: InstructionLine = serde_json::from_slice(line)
        .map_err(|error| unknown_type(line).unwrap_or_else(|| json_error(&error)))?;
    Ok(match wire {
        InstructionLine::Message { content } => Instruction::Message(parts(content)?),
        InstructionLine::Steer { content } => Instruction::Steer(parts(content)?),
        InstructionLine::FollowUp { content } => Instruction::FollowUp(parts(content)?),
        InstructionLine::Interrupt { all } => Instruction::Interrupt { all },
        InstructionLine::Compact { keep } => Instruction::Compact(keep),
        InstructionLine::Context {} => Instruction::Context,
        InstructionLine::Mode { mode } => Instruction::PermissionMode(mode_named(&mode)?),
        InstructionLine::Undo {} => Instruction::Revert(Revert::LastChange),
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
    })
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

/// Error of a line whose type is unknown; `None` for other lines. It names all types: the list of the
/// parser would be cut.
fn unknown_type(line: &[u8]) -> Option<String> {
    const NAME_CHARS_MAX: usize = 40;
    let value: Value = serde_json::from_slice(line).ok()?;
    let name = value.get("type")?.as_str().filter(|name| !TYPES.contains(name))?;
    let meant = did_you_mean(name, TYPES).map(|meant| format!("; {meant}")).unwrap_or_default();
    let name = clipped(name, NAME_CHARS_MAX, "…");
    Some(format!("unknown type `{name}`{meant}; the types are {}", TYPES.join(", ")))
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
    };
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> Vec<QuestionAnswer> {
        vec![
            QuestionAnswer { selected: vec!["a".to_owned()], text: None },
            QuestionAnswer { selected: Vec::new(), text: Some("b".to_owned()) },
        ]
    }

    fn hunks() -> Vec<HunkAnswer> {
        vec![HunkAnswer::Yes, HunkAnswer::No, HunkAnswer::Replace("x\n".to_owned())]
    }

    #[test]
    fn extents_of_a_rewind_are_known_by_name() {
        for (name, _, extent) in rewind_extents() {
            let instruction = Instruction::Revert(Revert::ToPrompt(2, extent));
            let line = format!("{{\"type\":\"rewind\",\"prompt\":2,\"what\":\"{name}\"}}");
            assert_eq!(parse(line.as_bytes()), Ok(instruction.clone()));
            assert_eq!(parse(&line_of(&instruction)), Ok(instruction));
        }
        let unknown = parse(br#"{"type":"rewind","prompt":2,"what":"x"}"#).unwrap_err();
        assert!(unknown.contains("expected one of both, files"), "{unknown}");
        assert!(parse(br#"{"type":"rewind","prompt":-1,"what":"all"}"#).is_err());
    }

    #[test]
    fn understands_every_instruction() {
        let text = |text: &str| vec![ContentPart::text(text)];
        let id = QuestionId::new("q1");
        let table = [
            (r#"{"type":"message","content":"hi"}"#, Instruction::Message(text("hi"))),
            (
                r#"{"type":"message","content":[{"type":"text","text":"hi"}]}"#,
                Instruction::Message(text("hi")),
            ),
            (r#"{"type":"steer","content":"left"}"#, Instruction::Steer(text("left"))),
            (r#"{"content":"more","type":"follow_up"}"#, Instruction::FollowUp(text("more"))),
            (r#"{"type":"context"}"#, Instruction::Context),
            (
                r#"{"type":"permission.mode","mode":"plan"}"#,
                Instruction::PermissionMode(PermissionMode::Plan),
            ),
            (r#"{"type":"compact"}"#, Instruction::Compact(None)),
            (
                r#"{"type":"compact","keep":"the port"}"#,
                Instruction::Compact(Some("the port".to_owned())),
            ),
            (r#"{"type":"interrupt"}"#, Instruction::Interrupt { all: false }),
            (r#"{"type":"interrupt","all":true}"#, Instruction::Interrupt { all: true }),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"allow"}"#,
                Instruction::Answer(id.clone(), HumanDecision::Allow(Scope::Once)),
            ),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"allow","scope":"session"}"#,
                Instruction::Answer(id.clone(), HumanDecision::Allow(Scope::Session)),
            ),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"allow","scope":"global","confirm":"global"}"#,
                Instruction::Answer(id.clone(), HumanDecision::Allow(Scope::Global)),
            ),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"try"}"#,
                Instruction::Answer(id.clone(), HumanDecision::Try),
            ),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"keep"}"#,
                Instruction::Answer(id.clone(), HumanDecision::Keep),
            ),
            (
                r#"{"type":"question.answer","requestId":"q1","answers":[{"selected":["a"]},{"text":"b"}]}"#,
                Instruction::Answer(
                    id.clone(),
                    HumanDecision::Reply(UserReply::Questions { answers: answers() }),
                ),
            ),
            (
                r#"{"type":"plan.answer","requestId":"q1","mode":"edits"}"#,
                Instruction::Answer(
                    id.clone(),
                    HumanDecision::Reply(UserReply::Plan {
                        mode: PermissionMode::Edits,
                        plan: None,
                    }),
                ),
            ),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"deny","reason":"no"}"#,
                Instruction::Answer(id, HumanDecision::Deny { reason: Some("no".to_owned()) }),
            ),
        ];
        for (line, meant) in table {
            assert_eq!(parse(line.as_bytes()), Ok(meant), "{line}");
        }
    }

    #[test]
    fn understands_answers_about_hunks() {
        let line = r#"{"type":"permission.answer","requestId":"q1","decision":"hunks","hunks":["yes","no",{"replace":"x\n"}]}"#;
        let meant = Instruction::Answer(QuestionId::new("q1"), HumanDecision::Hunks(hunks()));
        assert_eq!(parse(line.as_bytes()), Ok(meant));
    }

    #[test]
    fn error_of_an_unknown_type_names_the_types_of_the_guide() {
        let error = parse(br#"{"type":"nope"}"#).unwrap_err();
        assert!(error.starts_with("unknown type `nope`; the types are message, "), "{error}");
        // The parser knows exactly these.
        let known = serde_json::from_str::<InstructionLine>(r#"{"type":"nope"}"#);
        let known = known.map(|_| ()).unwrap_err().to_string();
        let known: Vec<&str> = known.split('`').skip(3).step_by(2).collect();
        assert_eq!(known, TYPES);
        let guide = include_str!("../../docs/guide/scripting.md");
        let section = guide.split("## Instruction stream").nth(1).unwrap();
        for name in TYPES {
            assert!(error.contains(name), "{name}: {error}");
            assert!(
                section.contains(&format!("`{{\"type\":\"{name}\"")),
                "{name} is not in the guide"
            );
        }
        let rows = section.lines().take_while(|line| !line.starts_with("- "));
        for row in rows.filter_map(|row| row.strip_prefix("| `{\"type\":\"")) {
            let name = row.split('"').next().unwrap();
            assert!(TYPES.contains(&name), "{name}");
        }
    }

    #[test]
    fn describes_errors_of_a_line() {
        let table = [
            ("nonsense", "not valid JSON: expected ident at column 2"),
            (r#"{"type":"interrupt""#, "not valid JSON: EOF while parsing an object at column 19"),
            ("[]", "missing field `type`"),
            (
                r#"{"type":"mesage","content":"x"}"#,
                "unknown type `mesage`; did you mean \"message\"?",
            ),
            (r#"{"type":"message"}"#, "missing field `content`"),
            (r#"{"type":"message","content":" "}"#, "content is empty"),
            (r#"{"type":"message","content":[]}"#, "content is empty"),
            (r#"{"type":"message","content":7}"#, "neither a text"),
            (r#"{"type":"message","content":[{"type":"video"}]}"#, "content[0]: unknown variant"),
            (r#"{"type":"message","content":[{"type":"image_url","url":"/etc/x"}]}"#, "content[0]"),
            (r#"{"type":"permission.mode","mode":"yolo"}"#, "unknown permission mode `yolo`"),
            (r#"{"type":"permission.answer","requestId":"q","decision":"maybe"}"#, "`maybe`"),
            (r#"{"type":"question.answer","requestId":"q"}"#, "missing field `answers`"),
            (
                r#"{"type":"question.answer","requestId":"q","answers":[{"choice":"a"}]}"#,
                "`choice`",
            ),
            (r#"{"type":"plan.answer","requestId":"q","mode":"yolo"}"#, "unknown permission mode"),
            (r#"{"type":"permission.answer","decision":"allow"}"#, "requestId"),
            (
                r#"{"type":"permission.answer","requestId":"q","decision":"hunks"}"#,
                r#"hunks: missing; give one answer for each hunk: use "yes", "no" or {"replace""#,
            ),
            (
                r#"{"type":"permission.answer","requestId":"q","decision":"hunks","hunks":["yes","maybe"]}"#,
                r#"hunks[1]: use "yes", "no" or {"replace": "TEXT"}"#,
            ),
            (
                r#"{"type":"permission.answer","requestId":"q","decision":"hunks","hunks":[{"replace":7}]}"#,
                "hunks[0]: use",
            ),
            (
                r#"{"type":"permission.answer","requestId":"q","decision":"allow","hunks":["no"]}"#,
                r#"hunks: they belong to "decision": "hunks" only"#,
            ),
            (
                r#"{"type":"permission.answer","requestId":"q","decision":"allow","scope":"global"}"#,
                "needs \"confirm\": \"global\"",
            ),
        ];
        for (line, part) in table {
            let error = parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
            assert!(!error.contains("at line"), "{line}: {error}");
        }
        let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(10_000));
        assert!(parse(long.as_bytes()).unwrap_err().chars().count() <= ERROR_CHARS_MAX + 2);
    }

    #[test]
    fn written_instructions_parse_back() {
        let text = || vec![ContentPart::text("a \"b\"\n\u{1b}")];
        let id = || QuestionId::new("q1");
        let scopes = [Scope::Once, Scope::Session, Scope::Project, Scope::Global];
        let allowed = scopes.map(|scope| Instruction::Answer(id(), HumanDecision::Allow(scope)));
        let denied = [None, Some("no".to_owned())]
            .map(|reason| Instruction::Answer(id(), HumanDecision::Deny { reason }));
        let replies = [
            UserReply::Questions { answers: answers() },
            UserReply::Plan { mode: PermissionMode::Auto, plan: Some("1. x\n".to_owned()) },
        ];
        let replies = replies.map(|reply| Instruction::Answer(id(), HumanDecision::Reply(reply)));
        let said = [Instruction::Message, Instruction::Steer, Instruction::FollowUp];
        let said = said.map(|said| said(text()));
        let trials = [HumanDecision::Try, HumanDecision::Keep, HumanDecision::Hunks(hunks())];
        let trials = trials.map(|decision| Instruction::Answer(id(), decision));
        let stops = [true, false].map(|all| Instruction::Interrupt { all });
        let modes = PermissionMode::KNOWN.map(Instruction::PermissionMode);
        let answers = allowed.into_iter().chain(denied).chain(trials).chain(replies);
        for meant in answers.chain(said).chain(stops).chain(modes) {
            let line = line_of(&meant);
            assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
            assert_eq!(parse(&line), Ok(meant));
        }
    }
}
