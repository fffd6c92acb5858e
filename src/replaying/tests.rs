//! Sessions with fake models and tools, replayed from their records.

use posse_actors::conversation::{ContentPart, Prompt, StopReason, Usage};
use posse_actors::event::{Event, MessageKind, Scope};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::ports::{Abilities, ProviderError};
use posse_actors::testing::{
    GatedTool, HangingTool, ModelStep as Said, RunCounter, SessionBuilder, WritingTool,
};

use super::*;

/// A bench with a tool that writes and one that hangs.
fn bench(steps: Vec<Said>) -> SessionBuilder {
    let mut bench = SessionBuilder::new(steps)
        .tool(WritingTool::new(RunCounter::default()))
        .tool(HangingTool::new(RunCounter::default()));
    bench.asking = AnswerSource::Yes;
    bench.limits.patience = Duration::ZERO;
    bench
}

async fn records(bench: &SessionBuilder) -> Vec<StoredRecord> {
    bench.journal.read(1, u64::MAX).await.unwrap()
}

/// Runs prompts and returns the records.
async fn recorded(bench: &SessionBuilder, prompts: &[&str]) -> Vec<StoredRecord> {
    let mut stage = bench.start().await;
    for prompt in prompts {
        stage.play(prompt).await;
    }
    stage.end().await;
    records(bench).await
}

/// First difference of a replay from the record.
async fn compared(records: &[StoredRecord]) -> Option<Difference> {
    let specs: Vec<ToolSpec> = Vec::new();
    let played = play("session", Recording::of(records), &specs);
    let again = tokio::time::timeout(Duration::from_mins(1), played).await;
    let again = again.expect("it comes to its end").unwrap();
    steps::difference(&steps::steps(records), &steps::steps(&again))
}

#[tokio::test]
async fn a_session_with_calls_and_prompts_replays_identically() {
    let bench = bench(vec![
        Said::Call(vec![
            ("echo".to_owned(), r#"{"text":"a"}"#.to_owned()),
            ("nobody".to_owned(), "{}".to_owned()),
            ("echo".to_owned(), "{broken".to_owned()),
        ]),
        Said::call("write", r#"{"text":"b"}"#),
        Said::say("first"),
        Said::say("second"),
    ]);
    let records = recorded(&bench, &["one", "two"]).await;
    let all = steps::steps(&records);
    let results = all.iter().filter(|step| matches!(step, ReplayStep::Result { .. })).count();
    assert_eq!((all.len(), results), (12, 4), "{all:?}");
    assert_eq!(compared(&records).await, None);
}

#[tokio::test]
async fn subagents_are_named_as_not_replayed() {
    use posse_actors::conversation::InvocationId;
    use posse_actors::event::Origin;

    let call = r#"{"text":"b"}"#;
    let bench = bench(vec![Said::call("write", call), Said::say("first")]);
    let mut records = recorded(&bench, &["one"]).await;
    let said = |records: &[StoredRecord], difference: Option<&Difference>| {
        let not_replayed = NotReplayed::of(records);
        let report = ReplayReport {
            v: 1,
            r#type: "replay",
            session_id: "s",
            identical: difference.is_none() && not_replayed.is_nothing(),
            prompts: 1,
            replies: 2,
            calls: 1,
            difference,
            not_replayed,
        };
        let mut out = Vec::new();
        write(&report, &[], OutputFormat::Text, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(said(&records, None), "identical: 1 prompt, 2 replies, 1 result\n");
    let child = Arc::new(Origin {
        invocation_id: InvocationId::new("child"),
        parent_invocation_id: Some(InvocationId::new("main")),
        agent: "worker".to_owned(),
        agent_path: "build/worker".to_owned(),
    });
    let of_child =
        |record: &StoredRecord| StoredRecord { origin: Some(Arc::clone(&child)), ..record.clone() };
    let copies: Vec<StoredRecord> = records.iter().map(of_child).collect();
    records.extend(copies);
    assert_eq!(
        said(&records, None),
        "no difference in what was replayed: 1 prompt, 2 replies, 1 result\n  \
         not replayed: 1 subagent (2 replies, 1 result)\n"
    );
    let difference = Difference { step: 1, recorded: "a".to_owned(), replayed: "b".to_owned() };
    let text = said(&records, Some(&difference));
    assert!(text.ends_with("\n  not replayed: 1 subagent (2 replies, 1 result)\n"), "{text}");
}

#[tokio::test]
async fn refusals_and_limits_replay_identically() {
    let refused = || Said::Fail(String::new(), ProviderError::Rejected { source: "no".into() });
    let bench = bench(vec![
        refused(),
        Said::say("fine"),
        Said::End(StopReason::MaxTokens, "half".to_owned()),
        Said::End(StopReason::ContentFilter, String::new()),
    ]);
    let records = recorded(&bench, &["one", "two", "three", "four"]).await;
    assert_eq!(compared(&records).await, None);

    let mut bench = self::bench((0..9).map(|_| Said::call("echo", r#"{"text":"a"}"#)).collect());
    bench.limits.turns_max = 3;
    let records = recorded(&bench, &["one"]).await;
    assert!(records.iter().any(|record| matches!(record.event, Event::LimitReached { .. })));
    assert_eq!(compared(&records).await, None);
}

#[tokio::test]
async fn interruptions_replay_identically() {
    // Once while the model replies, once while a tool runs.
    let thinking = vec![Said::say("a"), Said::Hang(String::new())];
    let running = vec![Said::say("a"), Said::call("hang", r#"{"text":"x"}"#)];
    for (thinks, steps) in [(true, thinking), (false, running)] {
        let bench = bench(steps);
        let mut stage = bench.start().await;
        stage.play("one").await;
        let second = stage.session.prompt(Prompt::text("two")).await.unwrap();
        let is_waiting = |event: &Event| match event {
            Event::ToolStarted { .. } => true,
            Event::ModelRequest { messages, .. } => thinks && *messages > 2,
            _ => false,
        };
        stage.until(is_waiting).await;
        stage.session.interrupt();
        second.outcome().await.unwrap();
        stage.end().await;
        assert_eq!(compared(&records(&bench).await).await, None);
    }
}

#[tokio::test]
async fn queued_messages_are_replayed_at_the_same_position() {
    let gate = RunCounter::default();
    let bench = SessionBuilder::new(vec![
        Said::call("hang", r#"{"text":"x"}"#),
        Said::say("nothing more"),
        Said::say("and the follow-up"),
    ])
    .tool(HangingTool::new(gate));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("one")).await.unwrap();
    stage.until(|event| matches!(event, Event::ToolStarted { .. })).await;
    let part = |text: &str| vec![ContentPart::text(text)];
    stage.session.deliver(MessageKind::Steer, part("hurry")).await.unwrap();
    stage.session.deliver(MessageKind::FollowUp, part("then this")).await.unwrap();
    stage.session.interrupt();
    running.outcome().await.unwrap();
    stage.end().await;
    assert_eq!(compared(&records(&bench).await).await, None);
}

#[tokio::test]
async fn a_change_of_agent_with_fewer_tools_replays_identically() {
    let bench =
        bench(vec![Said::call("echo", r#"{"text":"a"}"#), Said::say("done"), Said::say("planned")]);
    let mut records = recorded(&bench, &["one", "two"]).await;
    let started = records.iter_mut().rev().find_map(|record| match &mut record.event {
        Event::InvocationStarted { tools, .. } => Some(tools),
        _ => None,
    });
    *started.unwrap() = vec!["write".to_owned()];
    assert_eq!(compared(&records).await, None);
}

#[tokio::test]
async fn a_message_during_a_call_keeps_the_result_of_the_call() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let bench = SessionBuilder::new(vec![
        Said::call("gated", r#"{"text":"x"}"#),
        Said::say("as you say"),
        Said::say("and the follow-up"),
    ])
    .tool(GatedTool::new(RunCounter::default(), Arc::clone(&gate)));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("one")).await.unwrap();
    stage.until(|event| matches!(event, Event::ToolStarted { .. })).await;
    let part = |text: &str| vec![ContentPart::text(text)];
    stage.session.deliver(MessageKind::Steer, part("hurry")).await.unwrap();
    stage.session.deliver(MessageKind::FollowUp, part("then this")).await.unwrap();
    gate.add_permits(1);
    running.outcome().await.unwrap();
    stage.end().await;
    let records = records(&bench).await;
    let completed = |record: &StoredRecord| matches!(record.event, Event::ToolCompleted { .. });
    assert!(records.iter().any(completed));
    assert_eq!(compared(&records).await, None);
}

#[tokio::test]
async fn a_changed_record_is_reported_at_its_step() {
    let bench = bench(vec![Said::call("echo", r#"{"text":"a"}"#), Said::say("done")]);
    let records = recorded(&bench, &["one"]).await;
    // A reply in the middle is missing: the kernel cannot reach the same history.
    let without: Vec<StoredRecord> = records
        .iter()
        .filter(|record| !matches!(record.event, Event::ToolCompleted { .. }))
        .cloned()
        .collect();
    assert!(compared(&without).await.is_some());
    let mut other = records.clone();
    for record in &mut other {
        if let Event::ModelRequest { messages, turn: 2, .. } = &mut record.event {
            *messages += 1;
        }
    }
    let difference = compared(&other).await.unwrap();
    assert_eq!(difference.step, 4, "{difference:?}");
    assert!(difference.recorded.contains("\"messages\":5"), "{difference:?}");
    assert!(difference.replayed.contains("\"messages\":4"), "{difference:?}");
}

#[tokio::test]
async fn every_prefix_of_a_record_can_be_replayed() {
    let bench = bench(vec![
        Said::call("echo", r#"{"text":"a"}"#),
        Said::call("write", r#"{"text":"b"}"#),
        Said::say("done"),
    ]);
    let records = recorded(&bench, &["one"]).await;
    for length in 1..records.len() {
        assert_eq!(compared(&records[..length]).await, None, "{length} records");
    }
}

fn fails(text: &str, class: &str) -> Said {
    let error = ProviderError::of_class(class, format!("{class}, it said").into());
    Said::Fail(text.to_owned(), error)
}

/// Short waits, without a limit on their number.
fn with_short_waits(mut bench: SessionBuilder) -> SessionBuilder {
    bench.limits.patience = Duration::from_mins(1);
    bench.limits.backoff_first = Duration::from_millis(2);
    bench.limits.backoff_max = Duration::from_millis(4);
    bench.limits.probe_interval = Duration::from_millis(4);
    bench
}

fn kinds(records: &[StoredRecord], wanted: fn(&Event) -> bool) -> usize {
    records.iter().filter(|record| wanted(&record.event)).count()
}

#[tokio::test]
async fn retries_replay_identically() {
    let counted = Usage { input_tokens: Some(9), ..Usage::default() };
    let bench = with_short_waits(bench(vec![
        fails("", "overloaded"),
        fails("I will lo", "cut"),
        fails("", "unreachable"),
        Said::call("echo", r#"{"text":"a"}"#),
        Said::Counted(counted, Box::new(fails("Don", "broken_reply"))),
        fails("", "rate_limited"),
        fails("", "overloaded"),
        fails("", "overloaded"),
        fails("", "overloaded"),
        Said::say("Done."),
        fails("", "quota"),
    ]));
    let records = recorded(&bench, &["one", "two", "three"]).await;
    let retries = kinds(&records, |event| matches!(event, Event::ProviderRetry { .. }));
    let partial = kinds(&records, |event| matches!(event, Event::ModelPartial { .. }));
    let parked = kinds(&records, |event| matches!(event, Event::SessionParked { .. }));
    assert_eq!((retries, partial, parked), (8, 2, 1));
    assert_eq!(compared(&records).await, None);
    // The comparison covers this, too.
    let mut other = records.clone();
    for record in &mut other {
        if let Event::ProviderRetry { attempt: attempt @ 3, .. } = &mut record.event {
            *attempt = 7;
        }
    }
    let difference = compared(&other).await.unwrap();
    assert!(difference.recorded.contains("\"attempt\":7"), "{difference:?}");
    for length in 1..records.len() {
        assert_eq!(compared(&records[..length]).await, None, "{length} records");
    }
}

#[tokio::test]
async fn exhausted_patience_replays_identically() {
    let mut bench = with_short_waits(bench(
        (0..40).map(|_| fails("", "unreachable")).chain([Said::say("no")]).collect(),
    ));
    bench.limits.patience = Duration::from_millis(60);
    bench.limits.probe_interval = Duration::from_millis(10);
    let records = recorded(&bench, &["one"]).await;
    assert_eq!(kinds(&records, |event| matches!(event, Event::SessionParked { .. })), 1);
    assert!(steps::steps(&records).iter().any(|step| matches!(step, ReplayStep::Parked { .. })));
    assert_eq!(compared(&records).await, None);
}

#[tokio::test]
async fn invalid_replies_until_the_end_replay_identically() {
    for class in ["broken_reply", "empty_reply", "not_the_provider"] {
        let mut bench = with_short_waits(bench((0..400).map(|_| fails("", class)).collect()));
        bench.limits.patience = Duration::from_millis(60);
        bench.limits.absent_attempts_max = None;
        let records = recorded(&bench, &["one"]).await;
        let ended = kinds(&records, |event| matches!(event, Event::InvocationFailed { .. }));
        let retries = kinds(&records, |event| matches!(event, Event::ProviderRetry { .. }));
        assert!(ended == 1 && retries > 3, "{class}: {ended} {retries}");
        assert_eq!(compared(&records).await, None, "{class}");
    }
}

/// Also a wait that has ended when the client looks at its timers, as on a busy machine.
#[tokio::test]
async fn each_failed_attempt_is_recorded_without_a_wait() {
    for class in ["overloaded", "broken_reply"] {
        let steps = (0..5).map(|_| fails("", class)).chain([Said::say("done")]).collect();
        let mut bench = with_short_waits(bench(steps));
        (bench.limits.backoff_first, bench.limits.backoff_max) = (Duration::ZERO, Duration::ZERO);
        (bench.limits.probe_interval, bench.limits.absent_attempts_max) = (Duration::ZERO, None);
        let records = recorded(&bench, &["one"]).await;
        let retries = kinds(&records, |event| matches!(event, Event::ProviderRetry { .. }));
        assert_eq!(retries, 5, "{class}");
        assert_eq!(compared(&records).await, None, "{class}");
    }
}

#[tokio::test]
async fn failover_replays_identically() {
    let mut bench = with_short_waits(bench(vec![
        fails("wor", "cut"),
        fails("", "overloaded"),
        fails("", "overloaded"),
        fails("", "overloaded"),
        Said::say("I am back"),
    ]));
    bench.limits.failover_wait = Duration::from_millis(200);
    bench.limits.probe_interval = Duration::from_millis(300);
    bench.limits.failback_after = Duration::from_millis(20);
    let scripted = |name: &str, steps: Vec<Said>, abilities: Abilities| {
        let model = posse_actors::testing::ScriptedModel::new(steps).named(name);
        Fallback { provider: Arc::new(model), abilities, price: None }
    };
    let toolless = Abilities { tools: Some(false), ..Abilities::default() };
    bench.fallbacks = vec![
        scripted("toolless", vec![], toolless),
        scripted("gone", vec![fails("", "quota")], Abilities::default()),
        scripted(
            "other",
            vec![fails("", "cut"), Said::call("echo", r#"{"text":"a"}"#), Said::say("done")],
            Abilities::default(),
        ),
    ];
    let mut stage = bench.start().await;
    stage.play("one").await;
    // Until every model would be asked again.
    tokio::time::sleep(Duration::from_millis(400)).await;
    stage.play("two").await;
    stage.end().await;
    let records = records(&bench).await;
    let switches: Vec<String> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ProviderFailover { from, to, class, skipped, .. } => {
                Some(format!("{from} {to} {class} {}", skipped.join("; ")))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        switches,
        [
            "scripted gone overloaded toolless: it calls no tools",
            "gone other quota ",
            "other scripted recovered ",
        ]
    );
    assert_eq!(compared(&records).await, None);
    for length in 1..records.len() {
        assert_eq!(compared(&records[..length]).await, None, "{length} records");
    }
    // Another model would be another session.
    let mut other = records.clone();
    for record in &mut other {
        if let Event::ProviderFailover { to, .. } = &mut record.event
            && to == "other"
        {
            "gone".clone_into(to);
        }
    }
    assert!(compared(&other).await.is_some());
}

#[tokio::test]
async fn permission_requests_replay_identically() {
    let mut bench = bench(vec![
        Said::call("write", r#"{"text":"a"}"#),
        Said::call("write", r#"{"text":"b"}"#),
        Said::calls("write", &["c", "d"]),
        Said::say("done"),
        Said::call("write", r#"{"text":"e"}"#),
    ]);
    bench.asking = AnswerSource::Human;
    bench.policy = posse_actors::testing::ask_all();
    let mut stage = bench.start().await;
    let answers = [
        HumanDecision::Allow(Scope::Once),
        HumanDecision::Deny { reason: Some("not today".to_owned()) },
        HumanDecision::Allow(Scope::Once),
        HumanDecision::Deny { reason: None },
    ];
    let running = stage.session.prompt(Prompt::text("one")).await.unwrap();
    for (nth, answer) in answers.into_iter().enumerate() {
        let seen = stage.seen.len();
        stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
        let id = stage.seen[seen..].iter().rev().find_map(|seen| match seen.event() {
            Event::PermissionRequested { request_id, .. } => Some(request_id.clone()),
            _ => None,
        });
        stage.session.answer(id.unwrap_or_else(|| panic!("question {nth}")), answer).await.unwrap();
    }
    running.outcome().await.unwrap();
    // A request that is never answered.
    let running = stage.session.prompt(Prompt::text("two")).await.unwrap();
    stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
    stage.session.interrupt();
    running.outcome().await.unwrap();
    stage.end().await;
    let records = records(&bench).await;
    assert_eq!(kinds(&records, |event| matches!(event, Event::PermissionDenied { .. })), 2);
    assert_eq!(compared(&records).await, None);
    let all = steps::steps(&records);
    let asked = |step: &&ReplayStep| matches!(step, ReplayStep::Result { asked: Some(_), .. });
    assert_eq!(all.iter().filter(asked).count(), 5, "{all:?}");
    for length in 1..records.len() {
        assert_eq!(compared(&records[..length]).await, None, "{length} records");
    }
    let mut other = records.clone();
    for record in &mut other {
        if let Event::PermissionDenied { reason, .. } = &mut record.event
            && reason == "not today"
        {
            "never".clone_into(reason);
        }
    }
    let difference = compared(&other).await.unwrap();
    assert!(difference.replayed.contains("never"), "{difference:?}");
}

#[tokio::test]
async fn a_compacted_history_is_replayed_uncompacted() {
    let long = "word ".repeat(4000);
    let mut bench = bench(
        (0..8)
            .map(|_| Said::calls("echo", &[&long]))
            .chain([Said::say("done"), Said::say("and on")])
            .collect(),
    );
    bench.limits.context_main.tokens_max = Some(12_000);
    bench.limits.context_main.recent_turns = 2;
    let records = recorded(&bench, &["one", "two"]).await;
    let shorter = kinds(&records, |event| matches!(event, Event::ContextCompacted { .. }));
    assert!(shorter > 0, "{:?}", steps::steps(&records));
    assert_eq!(compared(&records).await, None);
    // Refused for its size and retried with less: the result is not recorded.
    let mut bench = self::bench(vec![
        Said::calls("echo", &[&long]),
        Said::calls("echo", &[&long]),
        Said::calls("echo", &[&long]),
        fails("", "context_full"),
        Said::say("done"),
        Said::say("and on"),
    ]);
    bench.limits.context_main.tokens_max = Some(1_000_000);
    let records = recorded(&bench, &["one", "two"]).await;
    assert_eq!(kinds(&records, |event| matches!(event, Event::ContextCompacted { .. })), 1);
    assert_eq!(compared(&records).await, None);
}
