//! Sessions that are played with stand-ins, and run again from their records.

use posse_actors::conversation::{ContentPart, Prompt, StopReason};
use posse_actors::event::{Event, MessageKind};
use posse_actors::ports::ProviderError;
use posse_actors::testing::{Bench, GatedTool, HangingTool, Journaled, Step as Said, WritingTool};

use super::*;

/// A bench with a tool that writes and one that hangs.
fn bench(steps: Vec<Said>) -> Bench {
    let mut bench = Bench::new(steps)
        .tool(WritingTool::new(Journaled::default()))
        .tool(HangingTool::new(Journaled::default()));
    bench.asking = Asking::Yes;
    bench.limits.patience = Duration::ZERO;
    bench
}

async fn records(bench: &Bench) -> Vec<StoredRecord> {
    bench.journal.read(1, u64::MAX).await.unwrap()
}

/// Plays prompts, and returns the records of that.
async fn recorded(bench: &Bench, prompts: &[&str]) -> Vec<StoredRecord> {
    let mut stage = bench.start().await;
    for prompt in prompts {
        stage.play(prompt).await;
    }
    stage.end().await;
    records(bench).await
}

/// What a new run has other than the record.
async fn compared(records: &[StoredRecord]) -> Option<Difference> {
    let specs: Vec<ToolSpec> = Vec::new();
    let again = play("session", Recording::of(records), &specs).await.unwrap();
    steps::difference(&steps::steps(records), &steps::steps(&again))
}

#[tokio::test]
async fn a_session_with_calls_and_several_prompts_is_the_same_again() {
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
    let results = all.iter().filter(|step| matches!(step, Step::Result { .. })).count();
    assert_eq!((all.len(), results), (12, 4), "{all:?}");
    assert_eq!(compared(&records).await, None);
}

#[tokio::test]
async fn what_a_provider_refused_and_what_a_limit_cut_is_the_same_again() {
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
async fn what_was_interrupted_is_interrupted_again() {
    // Once while the model thinks, once while a tool runs.
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
async fn what_was_said_meanwhile_enters_at_the_same_place() {
    let gate = Journaled::default();
    let bench = Bench::new(vec![
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
async fn what_an_agent_did_before_another_with_fewer_tools_took_over_is_the_same_again() {
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
async fn what_was_said_while_a_call_ran_leaves_the_call_its_result() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let bench = Bench::new(vec![
        Said::call("gated", r#"{"text":"x"}"#),
        Said::say("as you say"),
        Said::say("and the follow-up"),
    ])
    .tool(GatedTool::new(Journaled::default(), Arc::clone(&gate)));
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
async fn a_record_that_was_changed_is_different_where_it_was() {
    let bench = bench(vec![Said::call("echo", r#"{"text":"a"}"#), Said::say("done")]);
    let records = recorded(&bench, &["one"]).await;
    // A reply in the middle is gone: the kernel cannot come to the same history.
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
async fn every_beginning_of_a_record_can_run_again() {
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
