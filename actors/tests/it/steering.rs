//! Messages that arrive during a run: delivered exactly once, at the next safe point.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use posse_actors::conversation::{ContentPart, Message, Prompt, text_of};
use posse_actors::event::{Event, MessageKind};
use posse_actors::outcome::Ending;
use posse_actors::root_session::DeliverError;
use posse_actors::testing::{
    GatedTool, ModelStep, RunCounter, SessionBuilder, WritingTool, ask_all,
};
use tokio::sync::{Notify, Semaphore};

use crate::support::{Do, count, end, play, soon};

/// A history in short: who said what.
fn told(history: &[Arc<Message>]) -> Vec<String> {
    let line = |message: &Arc<Message>| match &**message {
        Message::System { .. } => "system".to_owned(),
        Message::User { content } => format!("user {}", text_of(content)),
        Message::Assistant(said) => match &said.content {
            Some(text) => format!("assistant {text}"),
            None => format!("assistant calls {}", said.tool_calls.len()),
        },
        Message::Tool { content, .. } => format!("tool {}", text_of(content)),
    };
    history.iter().map(line).collect()
}

fn said(text: &str) -> Vec<ContentPart> {
    vec![ContentPart::text(text)]
}

#[tokio::test]
async fn steering_message_arrives_during_a_reply() {
    let gate = Arc::new(Notify::new());
    let script = vec![
        ModelStep::after(&gate, ModelStep::calls("echo", &["a", "b"])),
        ModelStep::say("done"),
    ];
    let bench = SessionBuilder::new(script);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    stage.until(|event| matches!(event, Event::ModelRequest { .. })).await;
    stage.session.deliver(MessageKind::Steer, said("left")).await.unwrap();
    gate.notify_one();
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    end(&bench, stage).await;
    assert_eq!(
        told(&bench.model.requests()[1]),
        [
            "system",
            "user go",
            "assistant calls 2",
            "tool Skipped: the user sent a message.",
            "tool Skipped: the user sent a message.",
            "user left",
        ]
    );
}

#[tokio::test]
async fn steering_message_arrives_after_running_calls() {
    let (run_counter, gate) = (RunCounter::default(), Arc::new(Semaphore::new(0)));
    let mut calls: Vec<_> =
        ["a", "b", "c"].map(|text| ("gated".to_owned(), format!(r#"{{"text":"{text}"}}"#))).into();
    calls.push(("write".to_owned(), "{}".to_owned()));
    let wrote = RunCounter::default();
    let mut bench = SessionBuilder::new(vec![ModelStep::Call(calls), ModelStep::say("done")])
        .tool(GatedTool::new(run_counter.clone(), Arc::clone(&gate)))
        .tool(WritingTool::new(wrote.clone()));
    bench.limits.parallel_calls_max = 2;
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    for _ in 0..2 {
        stage.until(|event| matches!(event, Event::ToolStarted { .. })).await;
    }
    stage.session.deliver(MessageKind::Steer, said("left")).await.unwrap();
    stage.session.deliver(MessageKind::FollowUp, said("and then")).await.unwrap();
    gate.add_permits(10);
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 2);
    assert_eq!(wrote.began.load(Ordering::SeqCst), 0);
    assert_eq!((count(&seen, "message.queued"), count(&seen, "message.delivered")), (2, 2));
    let sent = bench.model.requests();
    assert_eq!(
        told(&sent[1]),
        [
            "system",
            "user go",
            "assistant calls 4",
            "tool a",
            "tool b",
            "tool Skipped: the user sent a message.",
            "tool Skipped: the user sent a message.",
            "user left",
        ]
    );
    assert_eq!(told(&sent[2])[8..], ["assistant done", "user and then"]);
}

#[tokio::test]
async fn steering_message_arrives_during_a_permission_request() {
    let run_counter = RunCounter::default();
    let mut bench =
        SessionBuilder::new(vec![ModelStep::calls("write", &["a", "b"]), ModelStep::say("done")])
            .tool(WritingTool::new(run_counter.clone()));
    bench.policy = ask_all();
    let mut stage = bench.start().await;
    let habits = &[("permission.requested", Do::Steer), ("message.queued", Do::FollowUp)];
    let session = stage.session.clone();
    let answering = tokio::spawn({
        let mut events = session.subscribe();
        async move {
            let mut asked = None;
            while let Some(seen) = events.next().await {
                match seen.event() {
                    Event::PermissionRequested { request_id, .. } => {
                        asked = Some(request_id.clone());
                    }
                    Event::MessageQueued { kind: MessageKind::FollowUp, .. } => {
                        use posse_actors::event::Scope;
                        use posse_actors::permission_coordinator::HumanDecision;
                        let yes = HumanDecision::Allow(Scope::Once);
                        session.answer(asked.clone().unwrap(), yes).await.unwrap();
                    }
                    _ => {}
                }
            }
        }
    });
    let outcome = play(&mut stage, "go", habits).await.unwrap();
    assert!(matches!(outcome.ending, Ending::Answered(_)));
    end(&bench, stage).await;
    soon("the other observer", answering).await.unwrap();
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 1, "the second was skipped");
    let sent = bench.model.requests();
    assert_eq!(
        told(&sent[1])[3..],
        ["tool wrote a", "tool Skipped: the user sent a message.", "user steer"]
    );
    assert_eq!(told(&sent[2])[6..], ["assistant done", "user follow-up"]);
}

#[tokio::test]
async fn late_message_precedes_the_next_prompt() {
    let bench = SessionBuilder::new(vec![ModelStep::Hang(String::new()), ModelStep::say("fine")]);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    stage.until(|event| matches!(event, Event::ModelRequest { .. })).await;
    stage.session.deliver(MessageKind::FollowUp, said("and then")).await.unwrap();
    stage.session.interrupt();
    soon("stopping", running.outcome()).await.unwrap();
    play(&mut stage, "again", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "message.delivered"), 1);
    assert_eq!(
        told(&bench.model.requests()[1]),
        ["system", "user go", "user and then", "user again"]
    );
}

#[tokio::test]
async fn queued_message_survives_a_crash_and_is_delivered_once() {
    for kind in [MessageKind::Steer, MessageKind::FollowUp] {
        let gate = Arc::new(Notify::new());
        let script = vec![
            ModelStep::after(&gate, ModelStep::say("lost")),
            ModelStep::say("one"),
            ModelStep::say("two"),
        ];
        let bench = SessionBuilder::new(script);
        bench.fail.arm("AgentInvocation", "Replied", 1);
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        stage.until(|event| matches!(event, Event::ModelRequest { .. })).await;
        stage.session.deliver(kind, said("left")).await.unwrap();
        gate.notify_one();
        soon("the run", running.outcome()).await.unwrap();
        let seen = end(&bench, stage).await;
        assert_eq!(count(&seen, "message.delivered"), 1);
        let last = bench.model.requests().pop().unwrap();
        let times = told(&last).iter().filter(|line| *line == "user left").count();
        assert_eq!(times, 1, "{:?}", told(&last));
    }
}

#[tokio::test]
async fn steering_is_refused_when_idle_or_full() {
    let mut bench = SessionBuilder::new(vec![ModelStep::Hang(String::new())]);
    bench.limits.queued_messages_max = 2;
    let stage = bench.start().await;
    let session = &stage.session;
    let deliver = async || session.deliver(MessageKind::Steer, said("x")).await.map(|_| ());
    assert_eq!(deliver().await, Err(DeliverError::Idle));
    let running = session.prompt(Prompt::text("go")).await.unwrap();
    assert_eq!(deliver().await, Ok(()));
    assert_eq!(deliver().await, Ok(()));
    assert_eq!(deliver().await, Err(DeliverError::Full));
    session.interrupt();
    soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(deliver().await, Err(DeliverError::Idle));
    end(&bench, stage).await;
}

#[tokio::test]
async fn withdrawn_message_is_never_delivered() {
    for kind in [MessageKind::Steer, MessageKind::FollowUp] {
        let gate = Arc::new(Notify::new());
        let bench = SessionBuilder::new(vec![
            ModelStep::after(&gate, ModelStep::say("one")),
            ModelStep::say("two"),
        ]);
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        stage.until(|event| matches!(event, Event::ModelRequest { .. })).await;
        let id = stage.session.deliver(kind, said("left")).await.unwrap();
        let taken = stage.session.withdraw(id.clone()).await;
        assert_eq!(taken, Some(said("left")));
        assert_eq!(stage.session.withdraw(id).await, None, "only once");
        gate.notify_one();
        soon("the run", running.outcome()).await.unwrap();
        let seen = end(&bench, stage).await;
        assert_eq!((count(&seen, "message.withdrawn"), count(&seen, "message.delivered")), (1, 0));
        assert_eq!(bench.model.requests().len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn requeued_messages_are_delivered_in_their_new_order() {
    let gate = Arc::new(Notify::new());
    let bench = SessionBuilder::new(vec![
        ModelStep::after(&gate, ModelStep::say("one")),
        ModelStep::say("two"),
        ModelStep::say("three"),
    ]);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    stage.until(|event| matches!(event, Event::ModelRequest { .. })).await;
    let kind = MessageKind::FollowUp;
    let first = stage.session.deliver(kind, said("a")).await.unwrap();
    let second = stage.session.deliver(kind, said("b")).await.unwrap();
    let new = || vec![(kind, said("c")), (kind, said("a"))];
    let ids = stage.session.requeue(vec![first.clone(), second], new()).await.unwrap();
    assert_eq!(ids.len(), 2);
    let gone = vec![ids[0].clone(), first];
    assert_eq!(stage.session.requeue(gone, new()).await, None, "one is not queued any more");
    gate.notify_one();
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    let counts = ["message.queued", "message.withdrawn", "message.delivered"];
    assert_eq!(counts.map(|kind| count(&seen, kind)), [4, 2, 2]);
    let told = told(&bench.model.requests()[2]);
    let users: Vec<&str> = told.iter().filter_map(|line| line.strip_prefix("user ")).collect();
    assert_eq!(users, ["go", "c", "a"]);
}

#[tokio::test]
async fn late_message_can_be_withdrawn() {
    let bench = SessionBuilder::new(vec![ModelStep::Hang(String::new()), ModelStep::say("fine")]);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    stage.until(|event| matches!(event, Event::ModelRequest { .. })).await;
    let id = stage.session.deliver(MessageKind::FollowUp, said("and then")).await.unwrap();
    stage.session.interrupt();
    soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(stage.session.withdraw(id).await, Some(said("and then")));
    play(&mut stage, "again", &[]).await.unwrap();
    end(&bench, stage).await;
    assert_eq!(told(&bench.model.requests()[1]), ["system", "user go", "user again"]);
}

/// Says `kind` after the `nth` event of a run with calls side by side, and returns what was
/// announced; `None` if the run has fewer events.
async fn said_after(nth: usize, kind: MessageKind) -> Option<()> {
    let bench = SessionBuilder::new(vec![
        ModelStep::calls("echo", &["a", "b"]),
        ModelStep::calls("echo", &["c"]),
        ModelStep::say("one"),
        ModelStep::say("two"),
        ModelStep::say("three"),
    ]);
    let mut stage = bench.start().await;
    let session = stage.session.clone();
    let running = session.prompt(Prompt::text("go")).await.unwrap();
    let mut outcome = std::pin::pin!(running.outcome());
    let mut delivered = None;
    for event in 0.. {
        tokio::select! {
            biased;
            next = stage.events.next() => stage.seen.push(next.unwrap()),
            // The run has ended before so many events came.
            _ = &mut outcome => break,
        }
        if event == nth {
            delivered = Some(session.deliver(kind, said("left")).await);
            soon("the run", outcome).await.unwrap();
            break;
        }
    }
    let taken = match delivered {
        Some(Ok(_)) => 1,
        Some(Err(DeliverError::Idle)) => 0,
        Some(Err(error)) => panic!("{error}"),
        None => {
            end(&bench, stage).await;
            return None;
        }
    };
    // What came too late for this run is said before the next prompt.
    play(&mut stage, "again", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    let last = told(&bench.model.requests().pop().unwrap());
    let times = last.iter().filter(|line| *line == "user left").count();
    assert_eq!(times, taken, "{kind:?} after event {nth}: {last:?}");
    assert_eq!((count(&seen, "message.queued"), count(&seen, "message.delivered")), (taken, taken));
    Some(())
}

#[tokio::test]
async fn message_at_any_moment_is_delivered_exactly_once() {
    for kind in [MessageKind::Steer, MessageKind::FollowUp] {
        let mut moments = 0;
        while said_after(moments, kind).await.is_some() {
            moments += 1;
        }
        assert!(moments > 10, "{moments} moments were tried");
    }
}
