//! Stopping, wherever a run is: at once, with nothing left running, and the session goes on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posse_actors::conversation::{ContentPart, Message, Prompt, text_of};
use posse_actors::event::Event;
use posse_actors::outcome::Ending;
use posse_actors::ports::ProviderError;
use posse_actors::replay::replay;
use posse_actors::testing::{
    HangingTool, ManualClock, ModelStep, RunCounter, RunningSession, SessionBuilder, WritingTool,
    ask_all,
};

use crate::support::{count, end, play, quick, soon};

/// Interrupts once `when` has been seen, measures how long it takes, and prompts again.
async fn stop_at(
    bench: &SessionBuilder,
    when: impl Fn(&Event) -> bool,
) -> (RunningSession, Duration) {
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("the moment", stage.until(when)).await;
    let pressed = tokio::time::Instant::now();
    stage.session.interrupt();
    let outcome = soon("stopping", running.outcome()).await.unwrap();
    let took = pressed.elapsed();
    assert_eq!(outcome.ending, Ending::Interrupted);
    let next = play(&mut stage, "again", &[]).await.unwrap();
    assert_eq!(next.ending, Ending::Answered("fine".to_owned()));
    (stage, took)
}

/// Ten times what is promised, for slow machines.
const PROMPT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn stops_a_stream_and_keeps_the_partial_reply() {
    let mut bench =
        SessionBuilder::new(vec![ModelStep::Hang("half an".to_owned()), ModelStep::say("fine")]);
    bench.limits = quick();
    let (stage, took) = stop_at(&bench, |event| matches!(event, Event::TextDelta { .. })).await;
    assert!(took < PROMPT, "{took:?}");
    let seen = end(&bench, stage).await;
    assert_eq!(bench.model.dropped(), 1);
    assert_eq!(count(&seen, "model.text.partial"), 1);
    let sent = bench.model.requests();
    let [.., partial, note, again] = &sent[1][..] else { panic!("{:?}", sent[1]) };
    assert!(
        matches!(&**partial, Message::Assistant(said) if said.content.as_deref() == Some("half an"))
    );
    let Message::User { content } = &**note else { panic!("{note:?}") };
    assert!(text_of(content).contains("cut off here"), "{note:?}");
    assert_eq!(**again, Message::User { content: vec![ContentPart::text("again")] });
    assert_eq!(sent[1].len(), sent[0].len() + 3);
    // The journal gives the same history.
    let replayed = replay(&bench.journal.records(), None).messages;
    assert_eq!(replayed[..replayed.len() - 1], sent[1][1..]);
}

#[tokio::test]
async fn partial_reply_is_sent_after_a_resume() {
    let mut bench = SessionBuilder::new(vec![ModelStep::Hang("half an".to_owned())]);
    bench.limits = quick();
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("a delta", stage.until(|event| matches!(event, Event::TextDelta { .. }))).await;
    stage.session.interrupt();
    soon("stopping", running.outcome()).await.unwrap();
    end(&bench, stage).await;
    let replayed = replay(&bench.journal.records(), None);
    let [.., partial, note] = &replayed.messages[..] else { panic!("{replayed:?}") };
    assert!(
        matches!(&**partial, Message::Assistant(said) if said.content.as_deref() == Some("half an"))
    );
    assert!(matches!(&**note, Message::User { .. }));
}

#[tokio::test]
async fn stops_a_tool_and_discards_its_result() {
    let run_counter = RunCounter::default();
    let calls = vec![
        ("hang".to_owned(), "{}".to_owned()),
        ("echo".to_owned(), "{}".to_owned()),
        ("write".to_owned(), "{}".to_owned()),
    ];
    let bench = SessionBuilder::new(vec![ModelStep::Call(calls), ModelStep::say("fine")])
        .tool(HangingTool::new(run_counter.clone()))
        .tool(WritingTool::new(run_counter.clone()));
    let (stage, took) =
        stop_at(&bench, |event| matches!(event, Event::ToolOutputDelta { .. })).await;
    assert!(took < PROMPT, "{took:?}");
    let seen = end(&bench, stage).await;
    assert_eq!(run_counter.dropped.load(Ordering::SeqCst), 1);
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 1, "what waited did not begin");
    assert_eq!(count(&seen, "tool.failed"), 3);
    let text = format!("{:?}", bench.model.requests()[1]);
    assert!(text.contains("Cancelled while it ran"), "{text}");
    assert!(text.contains("The end of its output until then"), "{text}");
    assert!(text.contains("Not run: the run was stopped."), "{text}");
}

#[tokio::test]
async fn stops_at_a_permission_request_and_withdraws_it() {
    let run_counter = RunCounter::default();
    let mut bench =
        SessionBuilder::new(vec![ModelStep::call("write", "{}"), ModelStep::say("fine")])
            .tool(WritingTool::new(run_counter.clone()));
    bench.policy = ask_all();
    let (stage, took) =
        stop_at(&bench, |event| matches!(event, Event::PermissionRequested { .. })).await;
    assert!(took < PROMPT, "{took:?}");
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.withdrawn"), 1);
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    let text = format!("{:?}", bench.model.requests()[1]);
    assert!(text.contains("Cancelled before it ran"), "{text}");
}

#[tokio::test]
async fn stops_a_wait_for_the_provider() {
    let busy = ProviderError::Overloaded {
        kind: posse_actors::ports::OverloadKind::Overload,
        retry_after: None,
        source: "busy".into(),
    };
    let mut bench =
        SessionBuilder::new(vec![ModelStep::Fail(String::new(), busy), ModelStep::say("fine")]);
    bench.clock = Arc::new(ManualClock::default());
    bench.limits.delta_interval = Duration::ZERO;
    let clock = Arc::new(ManualClock::default());
    bench.clock = Arc::clone(&clock) as Arc<dyn posse_actors::ports::Clock>;
    let (stage, took) =
        stop_at(&bench, |event| matches!(event, Event::ProviderWaiting { .. })).await;
    assert!(took < PROMPT, "{took:?}");
    end(&bench, stage).await;
    assert_eq!(clock.sleepers(), 0, "nobody sleeps on");
    assert_eq!(bench.model.requests().len(), 2);
}

#[tokio::test]
async fn stops_during_history_replay_after_a_crash() {
    let mut bench = SessionBuilder::new(vec![
        ModelStep::say("lost"),
        ModelStep::say("fine"),
        ModelStep::say("one too many"),
    ]);
    bench.limits = quick();
    bench.fail.arm("AgentInvocation", "Replied", 1);
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    bench.journal.block_writes();
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("the crash", async {
        while bench.fail.left() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stage.session.interrupt();
    bench.journal.release();
    let outcome = soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    assert_eq!(bench.model.requests().len(), 1, "it is not asked again");
    let next = play(&mut stage, "again", &[]).await.unwrap();
    assert_eq!(next.ending, Ending::Answered("fine".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "agent.invocation.cancelled"), 1);
}

#[tokio::test]
async fn no_event_follows_the_last_record() {
    let mut bench = SessionBuilder::new(vec![ModelStep::Hang("half".to_owned())]);
    bench.limits = quick();
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    stage.until(|event| matches!(event, Event::TextDelta { .. })).await;
    // Ending interrupts what runs.
    let seen = end(&bench, stage).await;
    assert_eq!(running.outcome().await.unwrap().ending, Ending::Interrupted);
    assert!(matches!(seen.last().unwrap().event(), Event::SessionEnded { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permission_request_is_withdrawn_before_the_last_record() {
    for crash in [false, true] {
        for _ in 0..20 {
            let mut bench = SessionBuilder::new(vec![ModelStep::calls("echo", &["a", "b", "c"])]);
            bench.policy = ask_all();
            if crash {
                bench.fail.arm("PermissionCoordinator", "Settle", 1);
            }
            let mut stage = bench.start().await;
            stage.session.prompt(Prompt::text("go")).await.unwrap();
            for _ in 0..3 {
                stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
            }
            let seen = end(&bench, stage).await;
            assert_eq!(count(&seen, "permission.withdrawn"), 3);
            assert!(matches!(seen.last().unwrap().event(), Event::SessionEnded { .. }));
        }
    }
}
