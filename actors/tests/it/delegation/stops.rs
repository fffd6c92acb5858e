//! Stopping: the run with the subagents it waits for, or all agents, the deepest first; a later
//! result does not wake a stopped agent.

use super::*;

/// A chain `a` → `b` whose last subagent hangs, and `side` in the background.
fn chained() -> (SessionBuilder, Arc<Notify>, Arc<ScriptedModel>) {
    let gate = Arc::new(Notify::new());
    let a = model("a", vec![calls(&["b"]), ModelStep::say("a is done")]);
    let b = model("b", vec![ModelStep::Hang("half".to_owned())]);
    let side = model("side", vec![ModelStep::after(&gate, ModelStep::say("side is done"))]);
    let first = ModelStep::Call(vec![call("side", r#","wait":false"#), call("a", "")]);
    let mut bench =
        SessionBuilder::new(vec![first, ModelStep::say("fine"), ModelStep::say("still fine")]);
    bench.limits = quick();
    let subagents = vec![
        subagent("a", &a, &[], &["b"]),
        subagent("b", &b, &[], &[]),
        subagent("side", &side, &[], &[]),
    ];
    let limits = GovernorLimits { depth_max: 2, ..GovernorLimits::default() };
    bench.delegation = Some(Delegation { limits, ..delegation(subagents) });
    (bench, gate, side)
}

fn cancelled(event: &Event) -> bool {
    matches!(event, Event::InvocationCancelled { .. })
}

#[tokio::test]
async fn foreground_stop_goes_deepest_first_and_leaves_the_background() {
    let (bench, gate, side) = chained();
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let deep = |event: &Event| matches!(event, Event::TextDelta { text } if text == "half");
    soon("the deepest", stage.until(deep)).await;
    stage.session.interrupt();
    let outcome = soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    assert_eq!(bench.model.requests().len(), 1);

    // A result that arrives now starts no run.
    gate.notify_one();
    let queued =
        |event: &Event| matches!(event, Event::MessageQueued { kind: MessageKind::Notice, .. });
    soon("the notice", stage.until(queued)).await;
    assert_eq!(bench.model.requests().len(), 1);
    play(&mut stage, "again", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(paths(&seen, cancelled), ["build/a/b", "build/a", "build"]);
    assert_eq!(side.requests().len(), 1);
    let second = bench.model.requests()[1].clone();
    let said: Vec<String> = second
        .iter()
        .rev()
        .map_while(|message| match &**message {
            Message::User { content } => Some(text_of(content)),
            _ => None,
        })
        .collect();
    assert_eq!(said[0], "again");
    assert!(said[1].contains("side is done"), "it is said before the next prompt: {said:?}");
    assert_eq!(said.len(), 2);
    // A stopped subagent can be resumed: the result of the call mentions it.
    let stopped = format!("{second:?}");
    assert!(stopped.contains("agent a (") && stopped.contains("): cancelled"), "{stopped}");
}

#[tokio::test]
async fn stop_all_stops_every_agent_and_starts_nothing_after() {
    let (bench, gate, _) = chained();
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let deep = |event: &Event| matches!(event, Event::TextDelta { text } if text == "half");
    soon("the deepest", stage.until(deep)).await;
    stage.session.interrupt_all();
    let outcome = soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    gate.notify_one();
    let seen = end(&bench, stage).await;
    let mut stopped = paths(&seen, cancelled);
    assert_eq!(stopped.remove(0), "build/a/b");
    assert_eq!(stopped.pop().unwrap(), "build");
    stopped.sort();
    assert_eq!(stopped, ["build/a", "build/side"]);
    assert_eq!(bench.model.requests().len(), 1);
    assert!(outcomes(&seen).iter().all(|outcome| *outcome == SubagentOutcome::Cancelled));
}

#[tokio::test]
async fn session_end_stops_background_subagents() {
    let scout = model("scout", vec![ModelStep::Hang("half".to_owned())]);
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(vec![call("scout", r#","wait":false"#)]),
        ModelStep::say("done"),
    ]);
    bench.limits = quick();
    bench.delegation = Some(delegation(vec![subagent("scout", &scout, &[], &[])]));
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(outcomes(&seen), [SubagentOutcome::Cancelled]);
    assert!(matches!(seen.last().unwrap().event(), Event::SessionEnded { .. }));
}

#[tokio::test]
async fn twenty_ends_after_a_stop_send_no_model_request() {
    let gate = Arc::new(Semaphore::new(0));
    let scout = model(
        "scout",
        (0..20)
            .flat_map(|_| [ModelStep::calls("gated", &["x"])])
            .chain((0..20).map(|_| ModelStep::say("so")))
            .collect(),
    );
    let all = (0..20).map(|_| call("scout", r#","wait":false"#)).collect();
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(all),
        ModelStep::Hang(String::new()),
        ModelStep::say("late"),
    ])
    .tool(GatedTool::new(RunCounter::default(), Arc::clone(&gate)));
    bench.limits = quick();
    let limits = GovernorLimits { live_max: 20, ..GovernorLimits::default() };
    bench.delegation =
        Some(Delegation { limits, ..delegation(vec![subagent("scout", &scout, &["gated"], &[])]) });
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let second = |event: &Event| matches!(event, Event::ModelRequest { turn: 2, provider, .. } if provider == "scripted");
    soon("the second request", stage.until(second)).await;
    stage.session.interrupt();
    soon("stopping", running.outcome()).await.unwrap();
    gate.add_permits(20);
    for _ in 0..20 {
        let ended = |event: &Event| matches!(event, Event::DelegationEnded { .. });
        soon("an end", stage.until(ended)).await;
    }
    let seen = end(&bench, stage).await;
    assert_eq!(bench.model.requests().len(), 2, "nobody was woken");
    assert_eq!(outcomes(&seen).len(), 20);
}

#[tokio::test]
async fn permission_request_of_a_stopped_subagent_is_withdrawn() {
    let scout = model("scout", vec![ModelStep::calls("write", &["x"])]);
    let run_counter = RunCounter::default();
    let mut bench = SessionBuilder::new(vec![calls(&["scout"]), ModelStep::say("late")])
        .tool(WritingTool::new(run_counter.clone()));
    bench.limits = quick();
    bench.policy = posse_actors::testing::ask_all();
    bench.delegation = Some(delegation(vec![subagent("scout", &scout, &["write"], &[])]));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let asks = |event: &Event| matches!(event, Event::PermissionRequested { .. });
    let first = soon("the first question", stage.until(asks)).await;
    let Event::PermissionRequested { request_id, tool, detail, .. } = first.event() else {
        panic!()
    };
    assert_eq!(tool, DELEGATE);
    assert!(detail.contains("provider: scout (scout-1, nowhere)"), "{detail}");
    assert!(detail.contains("<task>\nlook\n</task>"), "what is sent is shown: {detail}");
    let yes = HumanDecision::Allow(Scope::Once);
    stage.session.answer(request_id.clone(), yes.clone()).await.unwrap();
    let second = soon("the second question", stage.until(asks)).await;
    let Event::PermissionRequested { request_id, .. } = second.event() else { panic!() };
    stage.session.interrupt();
    soon("stopping", running.outcome()).await.unwrap();
    let late = stage.session.answer(request_id.clone(), yes).await;
    assert!(late.is_err(), "{late:?}");
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.withdrawn"), 1);
    assert_eq!(run_counter.began.load(std::sync::atomic::Ordering::SeqCst), 0);
}
