//! Limits: refused by name or queued for, never exceeded, and free again after an end.

use std::time::Duration;

use posse_actors::limits::Limits;

use super::*;

/// Different arguments each time: repeating a failing call stops the run.
fn numbered(nth: usize) -> (String, String) {
    (DELEGATE.to_owned(), format!(r#"{{"agent":"scout","task":"look {nth}"}}"#))
}

fn live_at_most(seen: &[Arc<Announcement>]) -> usize {
    let (mut live, mut most) = (0_usize, 0);
    for one in seen {
        match one.event() {
            Event::InvocationRequested { .. } => live += 1,
            Event::DelegationEnded { .. } => live -= 1,
            _ => {}
        }
        most = most.max(live);
    }
    most
}

#[tokio::test]
async fn hundred_delegations_run_within_the_limit_and_in_turn() {
    let gate = Arc::new(Semaphore::new(0));
    let scout = model(
        "scout",
        (0..4)
            .map(|_| ModelStep::calls("gated", &["x"]))
            .chain((0..100).map(|_| ModelStep::say("so")))
            .collect(),
    );
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call((0..100).map(numbered).collect()),
        ModelStep::say("done"),
    ])
    .tool(GatedTool::new(RunCounter::default(), Arc::clone(&gate)));
    bench.limits.parallel_calls_max = 100;
    let limits = GovernorLimits { live_max: 4, ..GovernorLimits::default() };
    bench.delegation =
        Some(Delegation { limits, ..delegation(vec![subagent("scout", &scout, &["gated"], &[])]) });
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    for _ in 0..4 {
        let gated =
            |event: &Event| matches!(event, Event::ToolStarted { name, .. } if name == "gated");
        soon("a start", stage.until(gated)).await;
    }
    gate.add_permits(4);
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(live_at_most(&seen), 4);
    let results = results(&bench.model);
    assert_eq!(results.len(), 100);
    assert!(results.iter().all(|text| text.contains("): done\n")), "{results:?}");
    let tasks: Vec<String> = seen
        .iter()
        .filter_map(|one| match one.event() {
            Event::InvocationRequested { task, .. } => Some(task.clone()),
            _ => None,
        })
        .collect();
    let in_order: Vec<String> = (0..100).map(|nth| format!("look {nth}")).collect();
    assert_eq!(tasks, in_order);
    let waiting = |event: &Event| matches!(event, Event::ToolOutputDelta { text, .. } if text == "waiting for a place (limit 4)\n");
    assert_eq!(seen.iter().filter(|one| waiting(one.event())).count(), 96);
}

/// Only a place is waited for, and only by callers that wait for the answer anyway.
#[tokio::test]
async fn limit_that_waiting_cannot_free_refuses_at_once() {
    let gate = Arc::new(Notify::new());
    let scout = model(
        "scout",
        vec![
            ModelStep::after(&gate, ModelStep::say("so")),
            ModelStep::say("so"),
            ModelStep::say("so"),
        ],
    );
    let background =
        (DELEGATE.to_owned(), r#"{"agent":"scout","task":"look aside","wait":false}"#.to_owned());
    let first = vec![numbered(0), numbered(1), background, numbered(2), numbered(3)];
    let mut bench = SessionBuilder::new(vec![ModelStep::Call(first), ModelStep::say("done")]);
    bench.limits = quick();
    let limits = GovernorLimits { live_max: 1, total_max: 3, ..GovernorLimits::default() };
    bench.delegation =
        Some(Delegation { limits, ..delegation(vec![subagent("scout", &scout, &[], &[])]) });
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    for _ in 0..2 {
        let refused =
            |event: &Event| matches!(event, Event::ToolFailed { name, .. } if name == DELEGATE);
        soon("a refusal", stage.until(refused)).await;
    }
    assert_eq!(scout.requests().len(), 1, "the others wait");
    gate.notify_one();
    soon("the run", running.outcome()).await.unwrap();
    end(&bench, stage).await;
    let results = results(&bench.model);
    for nth in [0, 1, 3] {
        assert!(results[nth].contains("): done\n"), "{}", results[nth]);
    }
    assert!(results[2].starts_with("refused(delegation.maxConcurrent)"), "{}", results[2]);
    assert!(results[4].starts_with("refused(delegation.maxTotal)"), "{}", results[4]);
}

/// Subagents use the places of their waiting callers.
#[tokio::test]
async fn one_place_is_enough_at_any_depth() {
    let names: Vec<String> = (1..=4).map(|nth| format!("a{nth}")).collect();
    let subagents = names.iter().enumerate().map(|(nth, name)| {
        let next = names.get(nth + 1).map(String::as_str);
        let all: Vec<ModelStep> = match next {
            // Two at once, on each request.
            Some(next) => (0..100)
                .map(|_| {
                    ModelStep::Computed(Box::new({
                        let next = next.to_owned();
                        move |messages| match messages.last().map(|last| &**last) {
                            Some(Message::User { .. }) => calls(&[&next, &next]),
                            _ => ModelStep::say("so"),
                        }
                    }))
                })
                .collect(),
            None => (0..100).map(|_| ModelStep::say("so")).collect(),
        };
        subagent(name, &model(name, all), &[], next.as_slice())
    });
    let mut bench = SessionBuilder::new(vec![calls(&["a1", "a1"]), ModelStep::say("done")]);
    bench.limits = quick();
    let limits = GovernorLimits { depth_max: 4, live_max: 1, ..GovernorLimits::default() };
    let main_calls = vec!["a1".to_owned()];
    bench.delegation = Some(Delegation { main_calls, limits, ..delegation(subagents.collect()) });
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!(outcomes(&seen), vec![SubagentOutcome::Done; 2 + 4 + 8 + 16]);
}

#[tokio::test]
async fn queued_subagent_is_listed_and_can_be_stopped() {
    let gate = Arc::new(Notify::new());
    let scout =
        model("scout", vec![ModelStep::after(&gate, ModelStep::say("so")), ModelStep::say("late")]);
    let background =
        (DELEGATE.to_owned(), r#"{"agent":"scout","task":"look aside","wait":false}"#.to_owned());
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(vec![background]),
        ModelStep::Call(vec![numbered(1), ("agent_status".to_owned(), "{}".to_owned())]),
        ModelStep::say("never"),
        ModelStep::say("fine"),
    ]);
    bench.limits = quick();
    let limits = GovernorLimits { live_max: 1, ..GovernorLimits::default() };
    bench.delegation =
        Some(Delegation { limits, ..delegation(vec![subagent("scout", &scout, &[], &[])]) });
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let looked = |event: &Event| matches!(event, Event::ToolCompleted { name, .. } if name == "agent_status");
    let status = soon("the status", stage.until(looked)).await;
    let Event::ToolCompleted { content, .. } = status.event() else { panic!() };
    let text = text_of(content);
    assert!(text.contains("build/scout  waiting for a place (limit 1), 0 s  look 1"), "{text}");
    stage.session.interrupt();
    let outcome = soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    // This end frees no place for a start.
    gate.notify_one();
    let ended = |event: &Event| matches!(event, Event::DelegationEnded { .. });
    soon("its end", stage.until(ended)).await;
    play(&mut stage, "and now?", &[]).await.unwrap();
    end(&bench, stage).await;
    assert_eq!(scout.requests().len(), 1);
    let request = format!("{:?}", bench.model.requests().pop().unwrap());
    assert!(request.contains("Cancelled before it ran: the run was stopped."), "{request}");
}

#[tokio::test]
async fn depth_limit_is_never_exceeded() {
    for depth_max in 0..=5_u32 {
        let names: Vec<String> = (1..=7).map(|nth| format!("a{nth}")).collect();
        let subagents: Vec<Subagent> = names
            .iter()
            .enumerate()
            .map(|(nth, name)| {
                let next = names.get(nth + 1).map_or("a1", String::as_str);
                let own = model(name, vec![calls(&[next]), ModelStep::say("so")]);
                subagent(name, &own, &[], &[next])
            })
            .collect();
        let mut bench = SessionBuilder::new(vec![calls(&["a1"]), ModelStep::say("done")]);
        bench.limits = quick();
        let limits = GovernorLimits { depth_max, live_max: 20, ..GovernorLimits::default() };
        bench.delegation =
            Some(Delegation { main_calls: vec!["a1".to_owned()], limits, ..delegation(subagents) });
        let mut stage = bench.start().await;
        play(&mut stage, "go", &[]).await.unwrap();
        let seen = end(&bench, stage).await;
        let requested = |event: &Event| matches!(event, Event::InvocationRequested { .. });
        assert_eq!(paths(&seen, requested).len(), depth_max as usize, "at {depth_max}");
        // An agent that may call no one has no delegation tool.
        let refused = seen.iter().filter(
            |one| matches!(one.event(), Event::ToolFailed { class, .. } if *class == ToolFailureClass::UnknownTool),
        );
        assert_eq!(refused.count(), 1, "at {depth_max}");
    }
}

#[tokio::test]
async fn only_callable_agents_can_be_called() {
    let a = model(
        "a",
        vec![
            ModelStep::Call(vec![
                call("a", ""),
                call("build", ""),
                call("b", ""),
                call("c", ""),
                call("d", ""),
            ]),
            ModelStep::say("so"),
        ],
    );
    let b = model("b", vec![ModelStep::Call(vec![call("a", "")]), ModelStep::say("so")]);
    let other = model("other", vec![]);
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(vec![call("nobody", ""), call("c", ""), call("a", "")]),
        ModelStep::say("done"),
    ]);
    bench.limits = quick();
    let limits = GovernorLimits { depth_max: 5, live_max: 20, ..GovernorLimits::default() };
    bench.delegation = Some(Delegation {
        main_calls: vec!["a".to_owned()],
        limits,
        ..delegation(vec![
            subagent("a", &a, &[], &["a", "b", "build"]),
            subagent("b", &b, &[], &["a"]),
            subagent("c", &other, &[], &[]),
        ])
    });
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    end(&bench, stage).await;
    let main = results(&bench.model);
    assert!(main[0].starts_with("ARG001 agent: must be one of"), "{}", main[0]);
    assert!(
        main[1].contains("DLG001 \"c\" cannot be called from here; callable: a"),
        "{}",
        main[1]
    );
    let of_a = results(&a);
    assert!(of_a[0].contains("DLG002 a cannot call itself"), "{}", of_a[0]);
    assert!(of_a[2].contains("): done"), "{}", of_a[2]);
    assert!(of_a[3].contains("DLG001"), "{}", of_a[3]);
    let of_b = results(&b);
    assert!(of_b[0].contains("DLG002 a waits for you already: build/a/b -> a"), "{}", of_b[0]);
    assert_eq!(other.requests().len(), 0);
}

#[tokio::test]
async fn turn_token_and_time_limits_end_a_subagent_by_name() {
    for (limits, turns_max, duration_max, word) in [
        (GovernorLimits::default(), Some(2), None, "partial(2): the limit maxTurns ended it"),
        (
            GovernorLimits { tokens_max: Some(20), live_max: 1, ..GovernorLimits::default() },
            None,
            None,
            "partial(2): the limit delegation.maxTokens ended it",
        ),
    ] {
        let again = |text: &str| {
            let mut reply = posse_actors::conversation::AssistantMessage {
                content: Some(text.to_owned()),
                ..Default::default()
            };
            reply.tool_calls.push(posse_actors::conversation::ToolCall {
                id: posse_actors::conversation::CallId::new("1"),
                provider_id: None,
                name: "echo".to_owned(),
                arguments: "{}".to_owned(),
            });
            ModelStep::Reply(posse_actors::ports::Completion {
                message: reply,
                stop_reason: posse_actors::conversation::StopReason::ToolUse,
                usage: Some(posse_actors::conversation::Usage {
                    input_tokens: Some(10),
                    output_tokens: Some(2),
                    ..Default::default()
                }),
                model: None,
            })
        };
        let scout = model("scout", (0..9).map(|_| again("half")).collect());
        let mut bench = SessionBuilder::new(vec![calls(&["scout"]), ModelStep::say("done")]);
        bench.limits = quick();
        let one = Subagent { turns_max, duration_max, ..subagent("scout", &scout, &["echo"], &[]) };
        bench.delegation = Some(Delegation { limits, ..delegation(vec![one]) });
        let mut stage = bench.start().await;
        play(&mut stage, "go", &[]).await.unwrap();
        end(&bench, stage).await;
        let result = &results(&bench.model)[0];
        assert!(result.contains(word), "{result}");
    }
    let scout = model("scout", vec![ModelStep::Hang(String::new())]);
    let mut bench = SessionBuilder::new(vec![calls(&["scout"]), ModelStep::say("done")]);
    bench.limits = quick();
    let duration_max = Some(Duration::from_millis(50));
    let one = Subagent { duration_max, ..subagent("scout", &scout, &[], &[]) };
    bench.delegation = Some(delegation(vec![one]));
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    end(&bench, stage).await;
    assert!(results(&bench.model)[0].contains("failed(limit): the limit timeout (1 s)"));
}

#[tokio::test]
async fn thousand_subagents_end_and_release_their_memory() {
    let scout = model("scout", (0..1000).map(|_| ModelStep::say("so")).collect());
    let mut steps: Vec<ModelStep> = (0..20).map(|_| calls(&["scout"; 50])).collect();
    steps.push(ModelStep::say("done"));
    let mut bench = SessionBuilder::new(steps);
    bench.limits = Limits { parallel_calls_max: 50, turns_max: 30, ..quick() };
    let limits = GovernorLimits { live_max: 50, total_max: 1000, ..GovernorLimits::default() };
    bench.delegation =
        Some(Delegation { limits, ..delegation(vec![subagent("scout", &scout, &[], &[])]) });
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert!(live_at_most(&seen) <= 50);
    let outcomes = outcomes(&seen);
    assert_eq!(outcomes.len(), 1000);
    assert!(outcomes.iter().all(|outcome| *outcome == SubagentOutcome::Done));
}

#[tokio::test]
async fn no_subagent_exceeds_its_share_and_its_cost_is_reported() {
    use posse_actors::cost::{ModelPricing, PriceLookup, TokenRates};
    // A reply has at most 100 tokens of 10 micro-USD, and actually two of them.
    let rates = TokenRates {
        input: 0,
        output: 10_000_000,
        cached_input: None,
        cache_write: None,
        version: "test".to_owned(),
    };
    let price = PriceLookup::new(move || ModelPricing {
        rates: Some(rates.clone()),
        output_max: Some(100),
    });
    let echo = |_| ModelStep::calls("echo", &["a"]);
    let scout = model("scout", (0..9).map(echo).collect());
    let mut bench = SessionBuilder::new(vec![
        calls(&["scout"]),
        ModelStep::Call(vec![numbered(1)]),
        ModelStep::call("agent_status", "{}"),
        ModelStep::say("done"),
    ]);
    bench.limits = quick();
    let one = Subagent { price: Some(price), ..subagent("scout", &scout, &["echo"], &[]) };
    let limits =
        GovernorLimits { live_max: 1, micro_usd_max: Some(1040), ..GovernorLimits::default() };
    bench.delegation = Some(Delegation { limits, ..delegation(vec![one]) });
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    // 20 each: with 60 spent, the worst case of another exceeds 1040.
    assert_eq!(scout.requests().len(), 3);
    let costs: Vec<Option<u64>> = seen
        .iter()
        .filter_map(|one| match one.event() {
            Event::DelegationEnded { cost_nano_usd, .. } => Some(*cost_nano_usd),
            _ => None,
        })
        .collect();
    assert_eq!(costs, [Some(60_000), None], "the second could not even ask");
    let texts: Vec<String> = bench
        .model
        .requests()
        .pop()
        .unwrap()
        .iter()
        .filter_map(|message| match &**message {
            Message::Tool { content, .. } => Some(text_of(content)),
            _ => None,
        })
        .collect();
    assert!(texts[0].contains("failed(limit): delegation.maxCostMicroUsd ($0.001"), "{texts:?}");
    assert!(texts[1].contains("delegation.maxCostMicroUsd ($0.00098"), "{texts:?}");
    assert!(texts[2].contains("$0.00006"), "{texts:?}");
    let refused = seen.iter().any(|one| {
        matches!(one.event(), Event::LimitReached { limit, value: 1040, spent: Some(60), .. }
            if limit == "delegation.maxCostMicroUsd")
    });
    assert!(refused, "{:?}", types(&seen));
}
