//! Sessions resumed from any prefix of their journal: nothing is lost and nothing happens twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use posse_actors::conversation::{CallId, ContentPart, Message, Prompt, SessionId, text_of};
use posse_actors::event::{Branch, Event, MessageKind, Scope, StoredRecord};
use posse_actors::outcome::Ending;
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::ports::{Action, AnswerSource, PermissionQuestion, Policy, Situation, Verdict};
use posse_actors::replay::{OUTCOME_UNKNOWN, replay};
use posse_actors::root_session::{PromptError, Resumption, SessionEnding, TurnOutcome};
use posse_actors::testing::{
    GuardedTool, MemoryStore, ModelStep, PolicyFn, RunningSession, SessionBuilder, history_error,
    test_confinement, types,
};
use tokio::sync::Notify;

use crate::support::{check_pairs, soon};

/// Number of executions of each call with side effects, in all processes.
pub(crate) type RunCounts = Arc<Mutex<BTreeMap<CallId, u32>>>;

/// A policy that asks about side effects, unless a grant covers them.
pub(crate) fn careful() -> Arc<dyn Policy> {
    Arc::new(PolicyFn(|action: &Action, situation: &Situation<'_>| {
        let covered = situation.grants.iter().any(|grant| grant.operation == action.tool);
        if action.tool != "guarded" || covered {
            return Verdict::Allow(test_confinement());
        }
        Verdict::Ask(PermissionQuestion {
            reason: "it has effects".to_owned(),
            scopes: vec![Scope::Once, Scope::Session],
            grant: Some(posse_actors::event::Grant {
                operation: action.tool.clone(),
                target: String::new(),
                scope: Scope::Session,
                agent: None,
            }),
            grants_part: false,
            grant_text: Box::default(),
            yes_covers: true,
            rule: None,
            confinement: test_confinement(),
        })
    }))
}

fn bench(steps: Vec<ModelStep>, runs: &RunCounts) -> SessionBuilder {
    let runs = Arc::clone(runs);
    let count = move |id: &CallId| *runs.lock().unwrap().entry(id.clone()).or_default() += 1;
    let mut bench = SessionBuilder::new(steps).tool(GuardedTool::with_effect(count));
    bench.policy = careful();
    bench
}

/// A second process on the journal of `records`.
fn second(records: &[StoredRecord], steps: Vec<ModelStep>, runs: &RunCounts) -> SessionBuilder {
    let mut bench = bench(steps, runs);
    bench.journal = Arc::new(MemoryStore::of(records.to_vec()));
    bench.process = 2;
    bench.resumption =
        Some(Resumption { replayed: replay(records, None), ..Resumption::default() });
    bench
}

/// A model that has nothing to add.
pub(crate) fn done() -> Vec<ModelStep> {
    (0..4).map(|_| ModelStep::say("done")).collect()
}

fn say(text: &str) -> Vec<ContentPart> {
    vec![ContentPart::text(text)]
}

/// Waits for the outcome, and allows every permission request meanwhile.
pub(crate) async fn agree(
    stage: &mut RunningSession,
    outcome: impl Future<Output = Option<TurnOutcome>>,
    scope: Scope,
) -> TurnOutcome {
    let mut outcome = std::pin::pin!(outcome);
    soon("the run", async {
        loop {
            tokio::select! {
                biased;
                announcement = stage.events.next() => {
                    let announcement = announcement.unwrap();
                    stage.seen.push(Arc::clone(&announcement));
                    if let Event::PermissionRequested { request_id, .. } = announcement.event() {
                        let yes = HumanDecision::Allow(scope);
                        stage.session.answer(request_id.clone(), yes).await.unwrap();
                    }
                }
                outcome = &mut outcome => return outcome.unwrap(),
            }
        }
    })
    .await
}

/// Text, two parallel reads, a confirmed call with a side effect, steering, a second prompt after a
/// compaction, and a grant.
async fn story(runs: &RunCounts) -> Vec<StoredRecord> {
    let gate = Arc::new(Notify::new());
    let steps = vec![
        ModelStep::calls("echo", &["a", "b"]),
        ModelStep::calls("guarded", &["one", "two"]),
        ModelStep::after(&gate, ModelStep::calls("echo", &["c"])),
        ModelStep::say("first answer"),
        ModelStep::say("answer to what came later"),
        ModelStep::calls("guarded", &["three"]),
        ModelStep::say("second answer"),
    ];
    let bench = bench(steps, runs);
    let mut stage = bench.start().await;
    let session = stage.session.clone();
    let running = session.prompt(Prompt::text("first")).await.unwrap();
    let steering = async {
        let outcome = running.outcome();
        tokio::pin!(outcome);
        let mut steered = false;
        loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => return outcome,
                () = tokio::task::yield_now() => {
                    if !steered && bench.model.requests().len() == 3 {
                        steered = true;
                        session.deliver(MessageKind::Steer, say("steered")).await.unwrap();
                        session.deliver(MessageKind::FollowUp, say("later")).await.unwrap();
                        gate.notify_one();
                    }
                }
            }
        }
    };
    agree(&mut stage, steering, Scope::Once).await;
    session.compact().await.unwrap();
    let running = session.prompt(Prompt::text("second")).await.unwrap();
    agree(&mut stage, running.outcome(), Scope::Session).await;
    stage.end().await;
    bench.journal.records()
}

/// Texts of user messages in a history.
pub(crate) fn users(history: &[Arc<Message>]) -> Vec<String> {
    let text = |message: &Arc<Message>| match &**message {
        Message::User { content } => Some(text_of(content)),
        _ => None,
    };
    history.iter().filter_map(text).collect()
}

/// Recorded texts of users in `records`.
fn acknowledged(records: &[StoredRecord]) -> Vec<String> {
    let text = |record: &StoredRecord| match &record.event {
        Event::UserMessage { content, message_id: None } | Event::MessageQueued { content, .. } => {
            Some(text_of(content))
        }
        _ => None,
    };
    records.iter().filter_map(text).collect()
}

/// Calls whose intent is in `records`, and those of them without an end.
pub(crate) fn started(records: &[StoredRecord]) -> (Vec<CallId>, Vec<CallId>) {
    let (mut started, mut open) = (Vec::new(), Vec::new());
    for record in records {
        match &record.event {
            Event::ToolStarted { call_id, effect: true, .. } => {
                started.push(call_id.clone());
                open.push(call_id.clone());
            }
            Event::ToolCompleted { call_id, .. }
            | Event::ToolFailed { call_id, .. }
            | Event::ToolOutcomeUnknown { call_id, .. } => open.retain(|open| open != call_id),
            _ => {}
        }
    }
    (started, open)
}

#[tokio::test]
async fn resumes_from_every_prefix_without_loss_or_repetition() {
    let whole = story(&RunCounts::default()).await;
    for length in 0..=whole.len() {
        let prefix = &whole[..length];
        let (ran_before, open) = started(prefix);
        let runs = RunCounts::default();
        let bench = second(prefix, done(), &runs);
        let unfinished = bench.resumption.as_ref().unwrap().is_unfinished();
        let mut stage = bench.start().await;
        let begun = match stage.session.resume().await {
            Ok(running) => {
                assert!(unfinished, "{length}: goes on with nothing");
                running
            }
            Err(error) => {
                assert_eq!(
                    (error, unfinished),
                    (PromptError::NothingUnfinished, false),
                    "{length}"
                );
                stage.session.prompt(Prompt::text("and now")).await.unwrap()
            }
        };
        let outcome = agree(&mut stage, begun.outcome(), Scope::Once).await;
        assert!(matches!(outcome.ending, Ending::Answered(_)), "{length}: {:?}", outcome.ending);
        stage.end().await;
        let records = bench.journal.records();
        assert!(records.starts_with(prefix), "{length}: what was written stays");
        for (nth, request) in bench.model.requests().iter().enumerate() {
            assert_eq!(history_error(request), None, "{length}: request {nth}");
        }
        let after = replay(&records, None);
        assert_eq!(history_error(&after.messages), None, "{length}");
        assert_eq!(
            (&after.open_calls[..], &after.open_questions[..]),
            (&[][..], &[][..]),
            "{length}"
        );
        // A started call never starts again, and an unknown result is reported once.
        for (id, count) in runs.lock().unwrap().iter() {
            assert!(!ran_before.contains(id) && *count == 1, "{length}: {id} ran {count} times");
        }
        for id in &open {
            let told = records.iter().filter(|record| {
                matches!(&record.event, Event::ToolOutcomeUnknown { call_id, .. } if call_id == id)
            });
            assert_eq!(told.count(), 1, "{length}: {id}");
        }
        // Each user message is there once, unless a compaction removed it.
        let compacted = records.iter().any(|r| matches!(r.event, Event::ContextCompacted { .. }));
        let mut said = acknowledged(&records);
        let mut heard = users(&after.messages);
        said.sort();
        heard.sort();
        if !compacted {
            assert_eq!(heard, said, "{length}");
        }
        check_pairs(&records);
    }
}

/// A second break: the records of a resumed run are cut, and it is resumed again.
#[tokio::test]
async fn resumes_from_every_prefix_of_a_resumed_run() {
    let whole = story(&RunCounts::default()).await;
    let asked = |record: &StoredRecord| matches!(record.event, Event::PermissionRequested { .. });
    let cut = whole.iter().position(asked).unwrap() + 1;
    let runs = RunCounts::default();
    let bench = second(
        &whole[..cut],
        vec![ModelStep::calls("echo", &["x"]), ModelStep::say("done")],
        &runs,
    );
    let mut stage = bench.start().await;
    let running = stage.session.resume().await.unwrap();
    agree(&mut stage, running.outcome(), Scope::Once).await;
    stage.end().await;
    let resumed = bench.journal.records();
    for length in cut..=resumed.len() {
        let prefix = &resumed[..length];
        let (ran_before, _) = started(prefix);
        let runs = RunCounts::default();
        let mut bench = second(prefix, done(), &runs);
        bench.process = 3;
        let mut stage = bench.start().await;
        let begun = match stage.session.resume().await {
            Ok(running) => running,
            Err(_) => stage.session.prompt(Prompt::text("and now")).await.unwrap(),
        };
        agree(&mut stage, begun.outcome(), Scope::Once).await;
        stage.end().await;
        for request in bench.model.requests() {
            assert_eq!(history_error(&request), None, "{length}");
        }
        for (id, count) in runs.lock().unwrap().iter() {
            assert!(!ran_before.contains(id) && *count == 1, "{length}: {id} ran {count} times");
        }
        check_pairs(&bench.journal.records());
    }
}

fn position(records: &[StoredRecord], wanted: impl Fn(&Event) -> bool) -> usize {
    records.iter().position(|record| wanted(&record.event)).unwrap() + 1
}

#[tokio::test]
async fn asks_again_under_the_same_id() {
    let whole = story(&RunCounts::default()).await;
    let cut = position(&whole, |event| matches!(event, Event::PermissionRequested { .. }));
    let Event::PermissionRequested { request_id: before, .. } = &whole[cut - 1].event else {
        unreachable!()
    };
    let runs = RunCounts::default();
    let bench = second(&whole[..cut], vec![ModelStep::say("done")], &runs);
    let mut stage = bench.start().await;
    let running = stage.session.resume().await.unwrap();
    let asked = stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
    let Event::PermissionRequested { request_id, .. } = asked.event() else { unreachable!() };
    assert_eq!(request_id, before);
    let yes = HumanDecision::Allow(Scope::Session);
    stage.session.answer(request_id.clone(), yes).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    let seen = types(&stage.end().await);
    assert_eq!(seen[0], "session.resumed");
    assert!(!seen.contains(&"permission.withdrawn".to_owned()), "{seen:?}");
    assert_eq!(runs.lock().unwrap().len(), 2, "both calls of the reply ran");
}

#[tokio::test]
async fn withdraws_the_request_of_a_call_that_is_allowed_now() {
    let whole = story(&RunCounts::default()).await;
    let cut = position(&whole, |event| matches!(event, Event::PermissionRequested { .. }));
    let runs = RunCounts::default();
    let mut bench = second(&whole[..cut], vec![ModelStep::say("done")], &runs);
    bench.policy = posse_actors::testing::allow_all();
    let mut stage = bench.start().await;
    let running = stage.session.resume().await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    let withdrawn = stage.until(|event| matches!(event, Event::PermissionWithdrawn { .. })).await;
    let of_request = |event: &Event| match event {
        Event::PermissionRequested { target, .. } | Event::PermissionWithdrawn { target, .. } => {
            target.clone()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(of_request(withdrawn.event()), of_request(&whole[cut - 1].event));
    stage.end().await;
    check_pairs(&bench.journal.records());
}

#[tokio::test]
async fn new_prompt_drops_the_unfinished_run() {
    let whole = story(&RunCounts::default()).await;
    let cut = position(&whole, |event| matches!(event, Event::PermissionRequested { .. }));
    let runs = RunCounts::default();
    let bench = second(&whole[..cut], vec![ModelStep::say("as you like")], &runs);
    let mut stage = bench.start().await;
    let outcome = stage.play("do something else").await;
    assert_eq!(outcome.turns, 1);
    stage.end().await;
    assert!(runs.lock().unwrap().is_empty());
    let request = &bench.model.requests()[0];
    assert_eq!(users(request), ["first", "do something else"]);
    check_pairs(&bench.journal.records());
}

#[tokio::test]
async fn unknown_outcome_is_reported_to_model_and_user() {
    let whole = story(&RunCounts::default()).await;
    let cut = position(&whole, |event| matches!(event, Event::ToolStarted { effect: true, .. }));
    let runs = RunCounts::default();
    let bench = second(&whole[..cut], vec![ModelStep::say("I shall look")], &runs);
    let mut stage = bench.start().await;
    let unknown = stage.until(|event| matches!(event, Event::ToolOutcomeUnknown { .. })).await;
    let (Event::ToolOutcomeUnknown { begun: Some(begun), .. }, intent) =
        (unknown.event(), &whole[cut - 1])
    else {
        panic!("{unknown:?}");
    };
    let Event::ToolStarted { summary, .. } = &intent.event else { panic!("{intent:?}") };
    assert_eq!((&begun.summary, begun.started_ms), (summary, intent.ts));
    let was = format!("{OUTCOME_UNKNOWN} It was {begun}.");
    assert_eq!(unknown.record(), Some(cut as u64 + 2), "right after session.resumed");
    let running = stage.session.resume().await.unwrap();
    let outcome = agree(&mut stage, running.outcome(), Scope::Once).await;
    // The turns of the earlier run count.
    assert_eq!((outcome.ending, outcome.turns), (Ending::Answered("I shall look".to_owned()), 3));
    stage.end().await;
    let told = bench.model.requests()[0].iter().any(|message| {
        matches!(&**message, Message::Tool { content, is_error: true, .. }
            if text_of(content) == was)
    });
    assert!(told, "the model is told");
    assert_eq!(runs.lock().unwrap().len(), 1, "only the call that had not started runs");
}

#[tokio::test]
async fn session_grants_hold_only_in_the_same_directory() {
    let whole = story(&RunCounts::default()).await;
    let ended = whole.len();
    for (cwd, asked) in [("/project", false), ("/elsewhere", true)] {
        let runs = RunCounts::default();
        let steps = vec![ModelStep::calls("guarded", &["again"]), ModelStep::say("done")];
        let mut bench = second(&whole[..ended], steps, &runs);
        bench.cwd = cwd.to_owned();
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("once more")).await.unwrap();
        agree(&mut stage, running.outcome(), Scope::Once).await;
        let seen = types(&stage.end().await);
        assert_eq!(seen.contains(&"permission.requested".to_owned()), asked, "{cwd}");
        assert_eq!(runs.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn fork_leaves_the_original_unchanged() {
    let whole = story(&RunCounts::default()).await;
    let cut = position(&whole, |event| matches!(event, Event::ToolStarted { effect: true, .. }));
    let runs = RunCounts::default();
    let mut bench = bench(vec![ModelStep::say("another way")], &runs);
    bench.process = 2;
    let branch = Branch { session: SessionId::new("parent"), record: cut as u64 };
    bench.resumption = Some(Resumption {
        replayed: replay(&whole[..cut], None),
        branch: Some(branch.clone()),
        ..Resumption::default()
    });
    let stage = bench.start().await;
    let running = stage.session.resume().await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    stage.end().await;
    assert!(runs.lock().unwrap().is_empty(), "a call belongs to the session that it began in");
    let records = bench.journal.records();
    match &records[0].event {
        Event::SessionStarted { forked_from, .. } => {
            assert_eq!(forked_from.as_ref(), Some(&branch));
        }
        other => panic!("{other:?}"),
    }
    let after = replay(&records, None);
    assert_eq!(history_error(&after.messages), None);
    assert_eq!(users(&after.messages), ["first"]);
    assert_eq!(after.forked_from, Some(branch));
    assert_eq!(after.prompts, 1, "that of the original counts");
    assert_eq!(after.usage.input_tokens, whole_usage(&records), "it pays only for itself");
    check_pairs(&records);
}

fn whole_usage(records: &[StoredRecord]) -> Option<u64> {
    let used = |record: &StoredRecord| match &record.event {
        Event::ModelUsage { usage, .. } => usage.input_tokens,
        _ => None,
    };
    records.iter().filter_map(used).reduce(|a, b| a + b)
}

#[tokio::test]
async fn earlier_usage_is_counted_once() {
    let whole = story(&RunCounts::default()).await;
    let cut = position(&whole, |event| matches!(event, Event::ToolStarted { effect: true, .. }));
    let runs = RunCounts::default();
    let bench = second(&whole[..cut], vec![ModelStep::say("done")], &runs);
    let mut stage = bench.start().await;
    let running = stage.session.resume().await.unwrap();
    agree(&mut stage, running.outcome(), Scope::Once).await;
    stage.end().await;
    let records = bench.journal.records();
    let Some(Event::SessionEnded { usage, turns, .. }) = records.last().map(|r| r.event.clone())
    else {
        panic!("the last record says how it ended")
    };
    assert_eq!((usage.input_tokens, turns), (whole_usage(&records), 3));
}

/// A run that was parked or interrupted has ended: another one continues with its history.
#[tokio::test]
async fn continues_after_an_interruption_in_the_same_process() {
    let gate = Arc::new(Notify::new());
    let bench = SessionBuilder::new(vec![
        ModelStep::after(&gate, ModelStep::say("never")),
        ModelStep::say("done"),
    ]);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    stage.until(|event| matches!(event, Event::ModelRequest { .. })).await;
    stage.session.interrupt();
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    let running = stage.session.resume().await.unwrap();
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let again = stage.session.resume().await;
    assert_eq!(again.err(), Some(PromptError::NothingUnfinished));
    stage.end().await;
    check_pairs(&bench.journal.records());
}

/// An invocation that crashes after a rebuild is rebuilt again, with its earlier state.
#[tokio::test]
async fn resumed_run_that_crashes_is_rebuilt() {
    let whole = story(&RunCounts::default()).await;
    let cut = position(&whole, |event| matches!(event, Event::ToolStarted { effect: true, .. }));
    let runs = RunCounts::default();
    let mut bench =
        second(&whole[..cut], vec![ModelStep::say("one"), ModelStep::say("two")], &runs);
    bench.asking = AnswerSource::Yes;
    bench.fail.arm("AgentInvocation", "Replied", 1);
    let stage = bench.start().await;
    let running = stage.session.resume().await.unwrap();
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert!(matches!(outcome.ending, Ending::Answered(_)), "{:?}", outcome.ending);
    stage
        .session
        .end(SessionEnding {
            reason: posse_actors::event::SessionEndReason::Completed,
            exit_code: 0,
            result: None,
            error: None,
        })
        .await;
    for request in bench.model.requests() {
        assert_eq!(history_error(&request), None);
        assert_eq!(users(&request)[0], "first");
    }
    check_pairs(&bench.journal.records());
}
