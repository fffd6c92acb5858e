//! Tests of instructions: every type is read and written, and faults are described.

use posse_actors::event::QuestionAnswer;

use super::*;

fn parse(line: &[u8]) -> Result<Instruction, String> {
    ClientLine::read(line).instruction.map_err(|failure| failure.what)
}

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
                HumanDecision::Reply(UserReply::Plan { mode: PermissionMode::Edits, plan: None }),
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
fn error_of_an_unknown_type_names_the_types_of_the_reference() {
    let line = ClientLine::read(br#"{"type":"nope","id":7}"#);
    assert_eq!((line.id, line.command.as_deref()), (Some(json!(7)), Some("nope")));
    let failure = line.instruction.unwrap_err();
    assert_eq!(
        (failure.code, &*failure.what),
        (ErrorCode::InstructionUnknown, "unknown type `nope`")
    );
    let fix = failure.fix.unwrap();
    assert!(fix.starts_with("the types are message, "), "{fix}");
    // The parser knows exactly these.
    let known = serde_json::from_str::<InstructionLine>(r#"{"type":"nope"}"#);
    let known = known.map(|_| ()).unwrap_err().to_string();
    let known: Vec<&str> = known.split('`').skip(3).step_by(2).collect();
    assert_eq!(known, TYPES);
    let reference = include_str!("../../../docs/reference/instructions.md");
    for name in TYPES {
        assert!(fix.contains(name), "{name}: {fix}");
        assert!(reference.contains(&format!("### `{name}`\n")), "{name} is not in the reference");
    }
    let guide = include_str!("../../../docs/guide/scripting.md");
    let section = guide.split("## Instruction stream").nth(1).unwrap();
    let rows = section.lines().filter_map(|row| row.strip_prefix("| `{\"type\":\""));
    let rows: Vec<&str> = rows.filter_map(|row| row.split('"').next()).collect();
    assert!(rows.len() > 20, "{rows:?}");
    for name in rows {
        assert!(TYPES.contains(&name), "{name}");
    }
}

#[test]
fn ids_are_numbers_or_short_texts() {
    let long = "x".repeat(ID_CHARS_MAX + 1);
    let table = [
        (json!(7), true),
        (json!(-0.5), true),
        (json!(""), true),
        (json!(long[1..]), true),
        (json!(long), false),
        (json!(null), false),
        (json!([]), false),
        (json!({}), false),
    ];
    for (id, is_valid) in table {
        let line = json!({"type": "state", "id": id}).to_string();
        let read = ClientLine::read(line.as_bytes());
        assert_eq!(read.id, is_valid.then_some(id), "{line}");
        assert_eq!(read.instruction.is_ok(), is_valid, "{line}");
        assert_eq!(read.command.as_deref(), Some("state"));
    }
    let nonsense = ClientLine::read(b"nonsense");
    assert_eq!((nonsense.id, nonsense.command), (None, None));
}

#[test]
fn requests_are_written_and_read() {
    let select = |chosen: &[(Selectable, &str)]| {
        let chosen = chosen.iter().map(|(what, name)| (*what, (*name).to_owned()));
        OwnerRequest::Select(chosen.collect())
    };
    let owner = [
        select(&[(Selectable::Model, "m")]),
        select(&[(Selectable::Provider, "p")]),
        select(&[(Selectable::Provider, "p"), (Selectable::Model, "m")]),
        select(&[(Selectable::Agent, "a")]),
        select(&[(Selectable::Thinking, "high")]),
        OwnerRequest::New,
        OwnerRequest::Resume("2026".to_owned()),
        OwnerRequest::Fork(None, None),
        OwnerRequest::Fork(Some("s".to_owned()), Some(2)),
        OwnerRequest::Tree,
        OwnerRequest::Skill("s".to_owned(), String::new()),
        OwnerRequest::Prompts,
        OwnerRequest::Export(None),
        OwnerRequest::Export(Some("a.html".to_owned())),
        OwnerRequest::List(Listing::Tools),
        OwnerRequest::List(Listing::Agents),
        OwnerRequest::List(Listing::Models),
        OwnerRequest::List(Listing::Skills),
        OwnerRequest::List(Listing::Sessions),
    ];
    let shell = |is_private| ShellCommand { line: "ls".to_owned(), is_private };
    let own = [
        SessionRequest::State,
        SessionRequest::Messages,
        SessionRequest::Stats,
        SessionRequest::Rename("t".to_owned()),
        SessionRequest::Label(None, 2, "l".to_owned()),
        SessionRequest::Bash(shell(true)),
        SessionRequest::Bash(shell(false)),
        SessionRequest::Queue,
        SessionRequest::Withdraw(MessageId::new("m")),
        SessionRequest::EditQueued(MessageId::new("m"), QueueEdit::Text("t".to_owned())),
        SessionRequest::EditQueued(MessageId::new("m"), QueueEdit::MoveTo(2)),
        SessionRequest::Jobs,
        SessionRequest::StopJob(CallId::new("c")),
        SessionRequest::Commands,
    ];
    let all = owner.map(Instruction::OwnerRequest).into_iter();
    for instruction in all.chain(own.map(Instruction::Request)) {
        let line = line_of(&instruction);
        assert_eq!(parse(&line), Ok(instruction), "{}", String::from_utf8_lossy(&line));
    }
}

#[test]
fn describes_errors_of_a_line() {
    let table = [
        ("nonsense", "not valid JSON: expected ident at column 2"),
        (r#"{"type":"interrupt""#, "not valid JSON: EOF while parsing an object at column 19"),
        ("[]", "invalid type: sequence, expected a map"),
        ("{}", "missing field `type`"),
        (r#"{"type":"bash","command":" "}"#, "command is empty"),
        (r#"{"type":"edit_queued","messageId":"m"}"#, "exactly one of `text` and `position`"),
        (r#"{"type":"set_model"}"#, "missing field `model` or `provider`"),
        (r#"{"type":"mesage","content":"x"}"#, "unknown type `mesage`; did you mean \"message\"?"),
        (r#"{"type":"message"}"#, "missing field `content`"),
        (r#"{"type":"message","content":" "}"#, "content is empty"),
        (r#"{"type":"message","content":[]}"#, "content is empty"),
        (r#"{"type":"message","content":7}"#, "neither a text"),
        (r#"{"type":"message","content":[{"type":"video"}]}"#, "content[0]: unknown variant"),
        (r#"{"type":"message","content":[{"type":"image_url","url":"/etc/x"}]}"#, "content[0]"),
        (r#"{"type":"permission.mode","mode":"yolo"}"#, "unknown permission mode `yolo`"),
        (r#"{"type":"permission.answer","requestId":"q","decision":"maybe"}"#, "`maybe`"),
        (r#"{"type":"question.answer","requestId":"q"}"#, "missing field `answers`"),
        (r#"{"type":"question.answer","requestId":"q","answers":[{"choice":"a"}]}"#, "`choice`"),
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
