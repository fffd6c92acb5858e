//! Tool calls made by the user: judged and recorded like calls of the agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use posse_actors::conversation::{Message, text_of};
use posse_actors::event::{Event, Scope};
use posse_actors::outcome::Ending;
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::replay::replay;
use posse_actors::root_session::{PromptError, Resumption, UserCall};
use posse_actors::testing::{
    HangingTool, MemoryStore, ModelStep, RunCounter, SessionBuilder, WritingTool, ask_all,
};

use crate::support::{count, end, play, soon};

fn call(tool: &str) -> UserCall {
    let arguments = r#"{"text":"a"}"#.to_owned();
    UserCall { tool: tool.to_owned(), arguments, said: "I ran this myself.".to_owned() }
}

fn users(history: &[Arc<Message>]) -> Vec<String> {
    let user = |message: &Arc<Message>| match &**message {
        Message::User { content } => Some(text_of(content)),
        _ => None,
    };
    history.iter().filter_map(user).collect()
}

#[tokio::test]
async fn user_call_is_confirmed_and_reported_with_the_next_prompt() {
    for allowed in [true, false] {
        let run_counter = RunCounter::default();
        let mut bench = SessionBuilder::new(vec![ModelStep::say("fine")])
            .tool(WritingTool::new(run_counter.clone()));
        bench.policy = ask_all();
        let mut stage = bench.start().await;
        let running = stage.session.call(call("write")).await.unwrap();
        let asked = stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
        let Event::PermissionRequested { request_id, .. } = asked.event() else { unreachable!() };
        let busy = stage.session.call(call("write")).await.unwrap_err();
        assert_eq!(busy, PromptError::Busy);
        let decision = if allowed {
            HumanDecision::Allow(Scope::Once)
        } else {
            HumanDecision::Deny { reason: None }
        };
        stage.session.answer(request_id.clone(), decision).await.unwrap();
        let outcome = soon("the call", running.outcome()).await.unwrap();
        assert_eq!((outcome.ending, outcome.turns), (Ending::Answered(String::new()), 0));
        assert_eq!(run_counter.began.load(Ordering::SeqCst), u32::from(allowed));
        assert!(bench.model.requests().is_empty(), "the model is asked nothing");
        play(&mut stage, "go", &[]).await.unwrap();
        let seen = end(&bench, stage).await;
        let said = users(&bench.model.requests()[0]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("I ran this myself."), "{said:?}");
        assert_eq!(said[0].contains("wrote a"), allowed, "{said:?}");
        assert_eq!(said[1], "go");
        let ended = if allowed { "tool.completed" } else { "tool.failed" };
        assert_eq!((count(&seen, "user.call"), count(&seen, ended)), (1, 1));
        assert_eq!(count(&seen, "message.delivered"), 1);
    }
}

#[tokio::test]
async fn model_is_not_told_of_a_private_user_call() {
    let bench = SessionBuilder::new(vec![ModelStep::say("fine")])
        .tool(WritingTool::new(RunCounter::default()));
    let mut stage = bench.start().await;
    let running = stage.session.call(UserCall { said: String::new(), ..call("write") });
    soon("the call", running.await.unwrap().outcome()).await.unwrap();
    play(&mut stage, "go", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(users(&bench.model.requests()[0]), ["go"]);
    assert_eq!((count(&seen, "user.call"), count(&seen, "message.queued")), (1, 0));
    // Nor after a restart of the process.
    let records = bench.journal.records();
    let ended = records.iter().position(|r| matches!(r.event, Event::ToolCompleted { .. }));
    let replayed = replay(&records[..=ended.unwrap()], None);
    assert!(!replayed.is_unfinished());
}

#[tokio::test]
async fn user_call_can_be_stopped() {
    let run_counter = RunCounter::default();
    let bench = SessionBuilder::new(Vec::new()).tool(HangingTool::new(run_counter.clone()));
    let mut stage = bench.start().await;
    let running = stage.session.call(call("hang")).await.unwrap();
    stage.until(|event| matches!(event, Event::ToolStarted { .. })).await;
    stage.session.interrupt();
    let outcome = soon("the call", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    let running = stage.session.call(call("hang")).await.unwrap();
    stage.until(|event| matches!(event, Event::ToolStarted { .. })).await;
    // The end of the session stops the call, too.
    let seen = soon("the end", stage.end()).await;
    assert_eq!(soon("the call", running.outcome()).await.unwrap().ending, Ending::Interrupted);
    assert_eq!(count(&seen, "tool.failed"), 2);
}

#[tokio::test]
async fn user_call_cut_off_by_process_end_is_reported() {
    let bench = SessionBuilder::new(Vec::new()).tool(WritingTool::new(RunCounter::default()));
    let mut stage = bench.start().await;
    let running = stage.session.call(call("write")).await.unwrap();
    soon("the call", running.outcome()).await.unwrap();
    stage.until(|event| matches!(event, Event::MessageQueued { .. })).await;
    let records = bench.journal.records();
    for cut in 1..=records.len() {
        let replayed = replay(&records[..cut], None);
        assert!(!replayed.is_unfinished(), "nobody asks for an answer: {cut} records");
        let called = records[..cut].iter().any(|r| matches!(r.event, Event::UserCall { .. }));
        let started = records[..cut].iter().any(|r| matches!(r.event, Event::ToolStarted { .. }));
        let ended = records[..cut].iter().any(|r| matches!(r.event, Event::ToolCompleted { .. }));
        let mut second = SessionBuilder::new(vec![ModelStep::say("fine")]);
        second.journal = Arc::new(MemoryStore::of(records[..cut].to_vec()));
        second.process = 2;
        second.resumption = Some(Resumption { replayed, ..Resumption::default() });
        let mut stage = second.start().await;
        play(&mut stage, "go", &[]).await.unwrap();
        let seen = stage.end().await;
        let said = users(&second.model.requests()[0]);
        assert_eq!(said.len(), 1 + usize::from(called), "{cut}: {said:?}");
        if called {
            let told = match (started, ended) {
                (_, true) => "wrote a",
                (true, false) => "is not known",
                (false, false) => "was not run",
            };
            assert!(said[0].contains(told), "{cut}: {said:?}");
        }
        let unknown = usize::from(started && !ended);
        assert_eq!(count(&seen, "tool.outcome_unknown"), unknown, "{cut} records");
        // A third process knows that the model was informed.
        let again = replay(&second.journal.records(), None);
        assert_eq!((again.own_call, again.queued), (None, Vec::new()));
        assert_eq!(users(&again.messages), said);
    }
}
