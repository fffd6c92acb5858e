//! Any prefix of any session must replay to a valid history.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::conversation::{AssistantMessage, Reasoning, SessionId, StopReason};
use crate::event::{FORMAT_VERSION, PermissionTarget};

/// Builds the records of a session.
#[derive(Default)]
struct Session(Vec<StoredRecord>);

impl Session {
    fn add_from(&mut self, origin: Option<Origin>, event: Event) -> &mut Session {
        let record = self.0.len() as u64 + 1;
        self.0.push(StoredRecord {
            v: FORMAT_VERSION,
            record,
            ts: record,
            id: RecordId { process: 1, count: u32::try_from(record).unwrap() },
            session_id: SessionId::new("s"),
            origin: origin.map(Arc::new),
            event,
        });
        self
    }

    fn add(&mut self, event: Event) -> &mut Session {
        self.add_from(Some(origin("main", None)), event)
    }

    fn replay(&self) -> Replayed {
        replay(&self.0, None)
    }
}

fn origin(id: &str, parent: Option<&str>) -> Origin {
    Origin {
        invocation_id: InvocationId::new(id),
        parent_invocation_id: parent.map(InvocationId::new),
        agent: "build".to_owned(),
        agent_path: "build".to_owned(),
    }
}

fn text(text: &str) -> Vec<ContentPart> {
    vec![ContentPart::text(text)]
}

fn user(words: &str) -> Event {
    Event::UserMessage { content: text(words), message_id: None }
}

fn reply(words: &str, calls: &[&str]) -> Event {
    let tool_calls = calls.iter().map(|id| ToolCall {
        id: CallId::new(*id),
        provider_id: None,
        name: "bash".to_owned(),
        arguments: "{}".to_owned(),
    });
    let message = AssistantMessage {
        content: (!words.is_empty()).then(|| words.to_owned()),
        reasoning: None,
        tool_calls: tool_calls.collect(),
    };
    let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    Event::ModelReply { turn: 1, message, stop_reason, model: None }
}

fn started(id: &str, effect: bool) -> Event {
    Event::ToolStarted {
        call_id: CallId::new(id),
        name: "bash".to_owned(),
        summary: "run".to_owned(),
        digest: "d".to_owned(),
        effect,
        coerced: Vec::new(),
    }
}

fn completed(id: &str, words: &str) -> Event {
    Event::ToolCompleted {
        call_id: CallId::new(id),
        name: "bash".to_owned(),
        content: text(words),
        metadata: Value::Null,
        duration_ms: 1,
    }
}

fn failed(id: &str, words: &str) -> Event {
    Event::ToolFailed {
        call_id: CallId::new(id),
        name: "bash".to_owned(),
        content: text(words),
        class: crate::event::ToolFailureClass::Failed,
        metadata: Value::Null,
        duration_ms: 1,
    }
}

fn asked(id: &str, call: &str) -> Event {
    Event::PermissionRequested {
        user_request: None,
        trial: None,
        grant: None,
        grants_part: false,
        grant_text: String::new(),
        hunks: Vec::new(),
        target: PermissionTarget::default(),
        request_id: QuestionId::new(id),
        call_id: CallId::new(call),
        tool: "bash".to_owned(),
        summary: "run".to_owned(),
        detail: "run it".to_owned(),
        reason: "it writes".to_owned(),
        scopes: vec![Scope::Once],
        digest: format!("digest of {call}"),
        cwd: "/project".to_owned(),
        binding: format!("binding of {call}"),
    }
}

fn granted(id: &str, scope: Scope) -> Event {
    let target = "src".to_owned();
    let grant = Grant { operation: "write".to_owned(), target, scope, agent: None };
    Event::PermissionGranted {
        reply: None,
        target: PermissionTarget::default(),
        request_id: QuestionId::new(id),
        by: crate::event::DecisionSource::User,
        scope,
        grants_part: false,
        keeps_trial: false,
        hunks: Vec::new(),
        grant: (scope != Scope::Once).then_some(grant),
        binding: String::new(),
        answered_by: None,
    }
}

fn usage(tokens: u64) -> Event {
    let usage = Usage { input_tokens: Some(tokens), ..Usage::default() };
    Event::ModelUsage { turn: 1, usage, billing: None }
}

/// The history, one message a line.
fn told(replayed: &Replayed) -> String {
    use crate::conversation::text_of;
    let lines = replayed.messages.iter().map(|message| match &**message {
        Message::System { content } => format!("system {content}"),
        Message::User { content } => format!("user {}", text_of(content)),
        Message::Assistant(said) => {
            let calls: Vec<&str> = said.tool_calls.iter().map(|call| call.id.as_str()).collect();
            format!("assistant {:?} {calls:?}", said.content)
        }
        Message::Tool { tool_call_id, content, is_error, .. } => {
            format!("tool {tool_call_id} {is_error} {}", text_of(content))
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Checks of a strict provider.
fn assert_valid(messages: &[Arc<Message>]) {
    let mut open: Vec<CallId> = Vec::new();
    let mut all = HashSet::new();
    for message in messages {
        match &**message {
            Message::Tool { tool_call_id, .. } => {
                assert_eq!(open.first(), Some(tool_call_id), "a result out of order");
                open.remove(0);
            }
            Message::Assistant(said) => {
                assert!(open.is_empty(), "a reply before the results");
                assert!(said.content.is_some() || !said.tool_calls.is_empty(), "an empty reply");
                for call in &said.tool_calls {
                    assert!(all.insert(call.id.clone()), "a call id twice");
                    open.push(call.id.clone());
                }
            }
            Message::System { .. } | Message::User { .. } => {
                assert!(open.is_empty(), "a message before the results");
            }
        }
    }
    assert!(open.is_empty(), "a call without a result");
}

#[test]
fn results_follow_the_order_of_the_calls() {
    let mut session = Session::default();
    session
        .add(user("fix it"))
        .add(reply("looking", &["a", "b"]))
        .add(started("a", false))
        .add(started("b", false))
        .add(completed("b", "second"))
        .add(completed("a", "first"))
        .add(completed("a", "first, as a hook left it"))
        .add(reply("done", &[]));
    let replayed = session.replay();
    insta::assert_snapshot!(told(&replayed), @r#"
    user fix it
    assistant Some("looking") ["a", "b"]
    tool a false first, as a hook left it
    tool b false second
    assistant Some("done") []
    "#);
    assert_eq!((replayed.turns, replayed.last_record), (2, 8));
    assert_eq!(replayed.open_calls, []);
}

#[test]
fn call_with_chosen_hunks_is_not_started_again() {
    let mut answer = granted("q", Scope::Once);
    if let Event::PermissionGranted { hunks, .. } = &mut answer {
        *hunks = vec![crate::event::HunkAnswer::Yes, crate::event::HunkAnswer::No];
    }
    let mut session = Session::default();
    session.add(user("fix it")).add(reply("", &["edit"])).add(asked("q", "edit")).add(answer);
    let replayed = session.replay();
    let open = &replayed.open_calls[0];
    assert_eq!((open.chosen, open.can_start(), &open.approved), (true, false, &None));
    assert!(told(&replayed).contains(NOT_RUN_CHOSEN));
    assert_valid(&replayed.messages);
}

#[test]
fn open_calls_get_substitute_results() {
    let mut session = Session::default();
    session
        .add(user("fix it"))
        .add(reply("", &["ended", "ran", "read", "waited", "idle"]))
        .add(started("ended", true))
        .add(failed("ended", "exit code 1"))
        .add(started("ran", true))
        .add(started("read", false))
        .add(asked("q", "waited"))
        .add(granted("q", Scope::Once));
    let replayed = session.replay();
    insta::assert_snapshot!(told(&replayed), @r#"
    user fix it
    assistant None ["ended", "ran", "read", "waited", "idle"]
    tool ended true exit code 1
    tool ran true The session broke off while this call was running. Whether it took effect is not known. Look before doing it again. It was `run`, begun at 1970-01-01 00:00:00 UTC.
    tool read true The session broke off while this call was running. It changes nothing, so it can be made again.
    tool waited true This call was not run: the session broke off before it started.
    tool idle true This call was not run: the session broke off before it started.
    "#);
    let open: Vec<_> = replayed
        .open_calls
        .iter()
        .map(|open| (open.call.id.as_str(), open.started, open.effect, open.message))
        .collect();
    let expected = [
        ("ran", true, true, 3),
        ("read", true, false, 4),
        ("waited", false, false, 5),
        ("idle", false, false, 6),
    ];
    assert_eq!(open, expected);
    assert_eq!(replayed.open_calls[2].approved.as_deref(), Some("digest of waited"));
    assert!(replayed.open_calls.iter().all(|open| !open.chosen));

    session.add(user("go on"));
    assert_eq!(session.replay().open_calls, []);
    assert_valid(&session.replay().messages);
}

#[test]
fn keeps_permission_requests_grants_and_queued_messages() {
    let queued = |id: &str| Event::MessageQueued {
        message_id: MessageId::new(id),
        kind: MessageKind::Steer,
        content: text(id),
    };
    let delivered = |id: &str| Event::MessageDelivered { message_id: MessageId::new(id) };
    let mut session = Session::default();
    session
        .add(user("fix it"))
        .add(reply("", &["a", "b", "c"]))
        .add(asked("q1", "a"))
        .add(asked("q2", "b"))
        .add(asked("q3", "c"))
        .add(asked("q2", "b"))
        .add(granted("q1", Scope::Session))
        .add(granted("q1", Scope::Agent))
        .add(granted("q4", Scope::Agent))
        .add(granted("q5", Scope::Project))
        .add(failed("c", "cancelled"))
        .add(queued("m1"))
        .add(queued("m2"))
        .add(queued("m3"))
        .add(delivered("m1"))
        .add(Event::UserMessage { content: text("m1"), message_id: Some(MessageId::new("m1")) })
        .add(Event::UserMessage { content: text("m2"), message_id: Some(MessageId::new("m2")) })
        .add(delivered("m2"));
    let replayed = session.replay();
    let questions: Vec<_> = replayed.open_questions.iter().map(|q| q.request_id.as_str()).collect();
    assert_eq!(questions, ["q2"]);
    let scopes: Vec<_> = replayed.grants.iter().map(|grant| grant.scope).collect();
    assert_eq!(scopes, [Scope::Session, Scope::Agent], "once each");
    let waiting: Vec<_> = replayed.queued.iter().map(|queued| queued.id.as_str()).collect();
    assert_eq!(waiting, ["m3"]);
    let users = told(&replayed).lines().filter(|line| line.starts_with("user")).count();
    assert_eq!(users, 3);
    assert_valid(&replayed.messages);
}

#[test]
fn separates_invocations() {
    let mut session = Session::default();
    let child = || Some(origin("child", Some("main")));
    session
        .add_from(
            None,
            Event::SessionStarted {
                posse: "1".to_owned(),
                cwd: "/p".to_owned(),
                agent: "build".to_owned(),
                provider: "openai".to_owned(),
                model: "m".to_owned(),
                mode: "multi-agent".to_owned(),
                tier: SandboxTier::default(),
                permission_mode: None,
                instructions: String::new(),
                budget: Budget::default(),
                prompt: PromptOverrides::default(),
                forked_from: None,
            },
        )
        .add(user("fix it"))
        .add(reply("asking", &["hand-off"]))
        .add(usage(10))
        .add_from(child(), user("look"))
        .add_from(child(), reply("seen", &[]))
        .add_from(child(), usage(5));
    let main = session.replay();
    assert_eq!(main.started.as_ref().map(|started| started.model.as_str()), Some("m"));
    assert_eq!((main.turns, main.usage.input_tokens), (1, Some(15)));
    let child = replay(&session.0, Some(&InvocationId::new("child")));
    insta::assert_snapshot!(told(&child), @r#"
    user look
    assistant Some("seen") []
    "#);
    assert_eq!((child.turns, child.usage.input_tokens), (1, Some(5)));
}

#[test]
fn knows_whether_the_session_ended() {
    let ended = Event::SessionEnded {
        reason: crate::event::SessionEndReason::Interrupted,
        exit_code: 130,
        usage: Usage::default(),
        cost_usd: None,
        cost_nano_usd: None,
        unpriced_requests: 0,
        turns: 0,
        result: None,
        error: None,
    };
    let mut session = Session::default();
    session.add(user("fix it")).add_from(None, ended);
    assert_eq!(session.replay().ended.as_deref(), Some("interrupted"));
    session.add_from(None, Event::SessionResumed { records: 2, with: None, changed: Vec::new() });
    assert_eq!(session.replay().ended, None);
}

#[test]
fn ignores_duplicate_records() {
    let mut session = Session::default();
    session.add(user("fix it")).add(reply("done", &[]));
    let once = session.replay();
    let mut again = session.0[1].clone();
    again.record = 3;
    session.0.push(again);
    assert_eq!(session.replay(), Replayed { last_record: 3, ..once });
}

/// Signed or encrypted thinking is useless if one byte is lost.
#[test]
fn keeps_opaque_provider_data() {
    let opaque = serde_json::json!({
        "profile": "p",
        "items": [{"type": "thinking", "thinking": "a\u{0}\n✓", "signature": "EqoB+/=="}, 7, null],
    });
    let reasoning = Reasoning { text: String::new(), field: None, opaque: Some(opaque) };
    let mut said = reply("looking", &["a"]);
    if let Event::ModelReply { message, .. } = &mut said {
        message.reasoning = Some(reasoning.clone());
    }
    let mut session = Session::default();
    session.add(user("fix it")).add(said).add(completed("a", "done"));
    // The stored form.
    let text = serde_json::to_string(&session.0[1]).unwrap();
    session.0[1] = serde_json::from_str(&text).unwrap();
    let replayed = session.replay();
    let Message::Assistant(kept) = &*replayed.messages[1] else { panic!("{replayed:?}") };
    assert_eq!(kept.reasoning.as_ref(), Some(&reasoning));
}

/// Any event, with few ids, so that they collide.
fn any_event() -> impl Strategy<Value = Event> {
    let id = || prop::sample::select(vec!["a", "b", "c", "d"]);
    prop_oneof![
        "[a-z]{0,4}".prop_map(|words| user(&words)),
        ("[a-z]{0,2}", prop::collection::vec(id(), 0..4))
            .prop_map(|(words, calls)| reply(&words, &calls)),
        (id(), any::<bool>()).prop_map(|(id, effect)| started(id, effect)),
        id().prop_map(|id| completed(id, "ok")),
        id().prop_map(|id| failed(id, "no")),
        (id(), id()).prop_map(|(question, call)| asked(question, call)),
        id().prop_map(|id| granted(id, Scope::Session)),
        id().prop_map(|id| Event::MessageQueued {
            message_id: MessageId::new(id),
            kind: MessageKind::FollowUp,
            content: text("queued"),
        }),
        id().prop_map(|id| Event::MessageDelivered { message_id: MessageId::new(id) }),
        id().prop_map(|id| Event::ToolOutcomeUnknown {
            call_id: CallId::new(id),
            name: "bash".to_owned(),
            content: text("unknown"),
            begun: None,
        }),
        Just(Event::Unknown),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_prefix_of_any_events_is_a_valid_history(
        events in prop::collection::vec((any_event(), any::<bool>()), 0..24),
    ) {
        let mut session = Session::default();
        for (event, ours) in events {
            let origin = if ours { origin("main", None) } else { origin("child", Some("main")) };
            session.add_from(Some(origin), event);
        }
        for length in 0..=session.0.len() {
            let prefix = &session.0[..length];
            for invocation in [None, Some(InvocationId::new("child"))] {
                let replayed = replay(prefix, invocation.as_ref());
                assert_valid(&replayed.messages);
                for open in &replayed.open_calls {
                    let message = &*replayed.messages[open.message];
                    let answers = matches!(message,
                        Message::Tool { tool_call_id, .. } if *tool_call_id == open.call.id);
                    prop_assert!(answers);
                }
                prop_assert_eq!(&replay(prefix, invocation.as_ref()), &replayed);
                let twice: Vec<_> = prefix.iter().chain(prefix).cloned().collect();
                prop_assert_eq!(&replay(&twice, invocation.as_ref()), &replayed);
            }
        }
    }
}

#[test]
fn each_agent_has_its_last_task_list() {
    use crate::event::{TodoItem, TodoStatus};
    let todos =
        |content: &str| vec![TodoItem { content: content.to_owned(), status: TodoStatus::Pending }];
    let mut session = Session::default();
    session.add(Event::TodosUpdated { todos: todos("first") });
    session
        .add_from(Some(origin("i2", Some("main"))), Event::TodosUpdated { todos: todos("below") });
    session.add(Event::TodosUpdated { todos: todos("last") });
    assert_eq!(session.replay().todos, todos("last"));
    let below = replay(&session.0, Some(&InvocationId::new("i2")));
    assert_eq!(below.todos, todos("below"));
    session.add(Event::TodosUpdated { todos: Vec::new() });
    assert!(session.replay().todos.is_empty());
}
