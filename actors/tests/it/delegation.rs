//! Subagents: their handoff, their results, and their behaviour on stops, crashes and limits.

mod contexts;
mod faults;
mod grants;
mod isolated_workspaces;
mod limits;
mod memory;
mod results;
mod resume;
mod stops;

use std::sync::Arc;

use posse_actors::conversation::{ContentPart, Message, Prompt, text_of};
use posse_actors::delegation::{DELEGATE, Delegation, Subagent};
use posse_actors::event::{
    Announcement, CompactionCause, Event, MessageKind, Scope, ToolFailureClass,
};
use posse_actors::governor::GovernorLimits;
use posse_actors::outcome::{Ending, SubagentOutcome};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::ports::{Action, PermissionQuestion, Situation, Verdict};
use posse_actors::testing::{
    GatedTool, ModelStep, PolicyFn, RunCounter, RunningSession, ScriptedModel, SessionBuilder,
    WritingTool, history_error, test_confinement, types,
};
use tokio::sync::{Notify, Semaphore};

use crate::support::{count, end, play, quick, soon};

/// A subagent with its own model, which sees `tools` and may call `calls`.
fn subagent(name: &str, model: &Arc<ScriptedModel>, tools: &[&str], calls: &[&str]) -> Subagent {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Subagent {
        name: name.to_owned(),
        system_prompt: format!("You are {name}."),
        tools: texts(tools),
        provider: Some(Arc::clone(model) as Arc<dyn posse_actors::ports::Provider>),
        thinking: None,
        temperature: None,
        price: None,
        calls: texts(calls),
        turns_max: None,
        duration_max: None,
        depth_max: None,
        isolated: false,
    }
}

fn model(name: &str, steps: Vec<ModelStep>) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::new(steps).named(name))
}

fn delegation(subagents: Vec<Subagent>) -> Delegation {
    Delegation {
        main_calls: subagents.iter().map(|subagent| subagent.name.clone()).collect(),
        subagents,
        limits: GovernorLimits::default(),
        turns_max: 10,
        ..Delegation::default()
    }
}

/// One call of a subagent.
fn call(agent: &str, more: &str) -> (String, String) {
    (DELEGATE.to_owned(), format!(r#"{{"agent":"{agent}","task":"look"{more}}}"#))
}

fn calls(agents: &[&str]) -> ModelStep {
    ModelStep::Call(agents.iter().map(|agent| call(agent, "")).collect())
}

/// Reads the answer of the subagent that the last message named.
fn reads(more: &'static str) -> ModelStep {
    ModelStep::Computed(Box::new(move |messages| {
        let text = format!("{messages:?}");
        // Ids end before a quote, a bracket or a dot.
        let id = text.rsplit("goes on as ").next().unwrap_or_default();
        let id = if text.contains("goes on as ") {
            id
        } else {
            text.split("It works as ").nth(1).unwrap_or_default()
        };
        let id: String =
            id.chars().take_while(|c| *c == '-' || c.is_ascii_alphanumeric()).collect();
        ModelStep::call("agent_result", &format!(r#"{{"id":"{id}"{more}}}"#))
    }))
}

/// The results of the model's last calls, in the order of the calls.
fn results(model: &ScriptedModel) -> Vec<String> {
    let last = model.requests().pop().unwrap();
    let result = |message: &Arc<Message>| match &**message {
        Message::Tool { content, .. } => Some(text_of(content)),
        _ => None,
    };
    let mut results: Vec<String> = last.iter().rev().map_while(result).collect();
    results.reverse();
    results
}

fn paths(seen: &[Arc<Announcement>], wanted: impl Fn(&Event) -> bool) -> Vec<String> {
    let path = |one: &Arc<Announcement>| one.origin().map(|origin| origin.agent_path.clone());
    seen.iter().filter(|one| wanted(one.event())).filter_map(path).collect()
}

fn outcomes(seen: &[Arc<Announcement>]) -> Vec<SubagentOutcome> {
    let outcome = |one: &Arc<Announcement>| match one.event() {
        Event::DelegationEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    };
    seen.iter().filter_map(outcome).collect()
}

#[tokio::test]
async fn delegates_a_task_and_reads_the_answer() {
    let scout = model(
        "scout",
        vec![ModelStep::calls("echo", &["a"]), ModelStep::say("It is in src/a.rs:3.")],
    );
    let with = r#","context":"It fails.","constraints":["change nothing"]"#;
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(vec![call("scout", with)]),
        ModelStep::say("Mended."),
    ]);
    bench.delegation = Some(delegation(vec![subagent("scout", &scout, &["echo"], &[])]));
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "Mend it", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("Mended.".to_owned()));
    let seen = end(&bench, stage).await;

    let first = &scout.requests()[0];
    let Message::System { content } = &*first[0] else { panic!("{first:?}") };
    assert_eq!(content, "You are scout.");
    let Message::User { content } = &*first[1] else { panic!("{first:?}") };
    let packet = text_of(content);
    for part in ["<task>\nlook\n</task>", "- change nothing", "It fails.", "Mend it", "/project"] {
        assert!(packet.contains(part), "{packet}");
    }
    assert_eq!(first.len(), 2, "nothing else of the conversation goes along");

    let [result] = results(&bench.model).try_into().unwrap();
    assert!(result.contains("): done\n<agent-answer>\nIt is in src/a.rs:3."), "{result}");

    let order = types(&seen);
    let at = |kind: &str| order.iter().position(|one| one == kind).unwrap();
    assert!(at("agent.invocation.requested") < at("agent.delegation.ended"));
    let of_child = |one: &&Arc<Announcement>| {
        one.origin().is_some_and(|origin| origin.agent_path == "build/scout")
    };
    let child: Vec<_> = seen.iter().filter(of_child).cloned().collect();
    let parent = seen.iter().find_map(|one| one.origin()).unwrap().invocation_id.clone();
    assert!(
        child
            .iter()
            .all(|one| { one.origin().unwrap().parent_invocation_id.as_ref() == Some(&parent) })
    );
    let begun = [
        "user.message",
        "agent.invocation.started",
        "agent.invocation.tool_policy.applied",
        "context.compiled",
        "model.request",
    ];
    assert_eq!(types(&child)[..5], begun);
    assert_eq!(types(&child).last().unwrap(), "agent.invocation.completed");
    assert_eq!(outcomes(&seen), [SubagentOutcome::Done]);
    let ended = seen.iter().find_map(|one| match one.event() {
        Event::SessionEnded { usage, turns, .. } => Some((usage.input_tokens, *turns)),
        _ => None,
    });
    assert_eq!(ended, Some((Some(40), 4)), "what the others used is part of the whole");
}

#[tokio::test]
async fn delegations_of_one_turn_run_in_parallel() {
    let gate = Arc::new(Semaphore::new(0));
    let run_counter = RunCounter::default();
    let scouts: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| model(name, vec![ModelStep::calls("gated", &["x"]), ModelStep::say(name)]))
        .collect();
    let mut bench = SessionBuilder::new(vec![calls(&["a", "b", "c"]), ModelStep::say("all")])
        .tool(GatedTool::new(run_counter.clone(), Arc::clone(&gate)));
    let subagents = ["a", "b", "c"].iter().zip(&scouts);
    let subagents = subagents.map(|(name, model)| subagent(name, model, &["gated"], &[]));
    bench.delegation = Some(delegation(subagents.collect()));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    for _ in 0..3 {
        // None of them can end before all have begun.
        let gated =
            |event: &Event| matches!(event, Event::ToolStarted { name, .. } if name == "gated");
        soon("a start", stage.until(gated)).await;
    }
    gate.add_permits(3);
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    let results = results(&bench.model);
    for (name, result) in ["a", "b", "c"].iter().zip(&results) {
        assert!(result.starts_with(&format!("agent {name} (")), "in the order of the calls");
    }
    assert_eq!(
        outcomes(&seen),
        [SubagentOutcome::Done, SubagentOutcome::Done, SubagentOutcome::Done]
    );
}

#[tokio::test]
async fn background_result_arrives_at_the_next_safe_point() {
    let (gate, scout_gate) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let run_counter = RunCounter::default();
    let scout = model("scout", vec![ModelStep::after(&scout_gate, ModelStep::say("found"))]);
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(vec![call("scout", r#","wait":false"#)]),
        ModelStep::calls("gated", &["x", "y"]),
        ModelStep::call("agent_status", "{}"),
        ModelStep::say("done"),
    ])
    .tool(GatedTool::new(run_counter.clone(), Arc::clone(&gate)));
    bench.limits.parallel_calls_max = 1;
    bench.delegation = Some(delegation(vec![subagent("scout", &scout, &[], &[])]));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let gated = |event: &Event| matches!(event, Event::ToolStarted { name, .. } if name == "gated");
    soon("the tool", stage.until(gated)).await;
    scout_gate.notify_one();
    let queued =
        |event: &Event| matches!(event, Event::MessageQueued { kind: MessageKind::Notice, .. });
    soon("the notice", stage.until(queued)).await;
    gate.add_permits(2);
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    let sent = bench.model.requests();
    assert!(results(&bench.model)[0].contains("build/scout  done"), "{:?}", results(&bench.model));
    let Message::User { content } = &**sent[2].last().unwrap() else { panic!("{:?}", sent[2]) };
    assert!(text_of(content).contains("found"));
    let Message::Tool { content, .. } = &*sent[1][sent[1].len() - 1] else { panic!() };
    assert!(text_of(content).starts_with("It works as inv-"), "{content:?}");
    assert_eq!(
        run_counter.began.load(std::sync::atomic::Ordering::SeqCst),
        2,
        "no call was skipped"
    );
    assert_eq!((count(&seen, "message.queued"), count(&seen, "message.delivered")), (1, 1));
}

#[tokio::test]
async fn result_can_be_awaited_and_read_in_pages() {
    let gate = Arc::new(Notify::new());
    let number = |nth: u32| format!("{nth:05}");
    let filler: String = (0..12_000).map(number).collect();
    let long = format!("begin {filler} end");
    let scout = model("scout", vec![ModelStep::after(&gate, ModelStep::Say(vec![long]))]);
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(vec![call("scout", r#","wait":false"#)]),
        reads(""),
        reads(r#","waitSeconds":20"#),
        reads(r#","from":50000"#),
        ModelStep::call("agent_result", r#"{"id":"inv-99"}"#),
        ModelStep::say("done"),
    ]);
    bench.delegation = Some(delegation(vec![subagent("scout", &scout, &[], &[])]));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let waits = |event: &Event| matches!(event, Event::ToolRequested { arguments, .. } if arguments.contains("waitSeconds"));
    soon("the wait", stage.until(waits)).await;
    gate.notify_one();
    soon("the run", running.outcome()).await.unwrap();
    end(&bench, stage).await;
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
    assert!(texts[1].ends_with("running"), "{}", texts[1]);
    assert!(texts[2].contains("begin ") && texts[2].contains("continue from "), "it is cut");
    assert!(texts[3].contains(" end\n</agent-answer>"), "{}", &texts[3][texts[3].len() - 80..]);
    assert!(texts[4].starts_with("You have started no agent"), "{}", texts[4]);
}

/// Waits for the scout's `turn`th request, crashes the receiver of its next `times` replies, and
/// lets the scout continue.
async fn crash_the_scout(
    bench: &SessionBuilder,
    stage: &mut RunningSession,
    turn: u32,
    times: u32,
    gate: &Notify,
) {
    let asked = |event: &Event| matches!(event, Event::ModelRequest { provider, turn: nth, .. } if provider == "scout" && *nth == turn);
    soon("the scout", stage.until(asked)).await;
    bench.fail.arm("AgentInvocation", "Replied", times);
    gate.notify_one();
}

#[tokio::test]
async fn crashed_subagent_is_rebuilt_and_answers() {
    let gate = Arc::new(Notify::new());
    let scout = model(
        "scout",
        vec![
            ModelStep::calls("echo", &["a"]),
            ModelStep::after(&gate, ModelStep::say("lost")),
            ModelStep::say("found"),
        ],
    );
    let mut bench = SessionBuilder::new(vec![calls(&["scout"]), ModelStep::say("done")]);
    bench.limits = quick();
    bench.delegation = Some(delegation(vec![subagent("scout", &scout, &["echo"], &[])]));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    crash_the_scout(&bench, &mut stage, 2, 1, &gate).await;
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!(outcomes(&seen), [SubagentOutcome::Done]);
    assert!(results(&bench.model)[0].contains("found"));
    assert_eq!(count(&seen, "actor.restarted"), 1);
    assert_eq!(count(&seen, "tool.started"), 2, "no tool runs twice");
    assert_eq!(history_error(&scout.requests()[2]), None);
}

#[tokio::test]
async fn subagent_that_always_crashes_only_fails_itself() {
    let gate = Arc::new(Notify::new());
    let first = ModelStep::after(&gate, ModelStep::say("never heard"));
    let steps = std::iter::once(first).chain((0..9).map(|_| ModelStep::say("never heard")));
    let scout = model("scout", steps.collect());
    let mut bench = SessionBuilder::new(vec![calls(&["scout"]), ModelStep::say("done")]);
    bench.limits = quick();
    bench.delegation = Some(delegation(vec![subagent("scout", &scout, &[], &[])]));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    crash_the_scout(&bench, &mut stage, 1, 4, &gate).await;
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()), "the session goes on");
    let seen = end(&bench, stage).await;
    assert!(
        matches!(&outcomes(&seen)[0], SubagentOutcome::Failed { class, .. } if class == "crashed")
    );
    assert!(results(&bench.model)[0].contains("failed(crashed)"), "{:?}", results(&bench.model));
}

#[tokio::test]
async fn rebuilt_caller_waits_again_for_its_subagents() {
    let gate = Arc::new(Notify::new());
    let scout = model("scout", vec![ModelStep::after(&gate, ModelStep::say("found"))]);
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(vec![call("scout", ""), ("echo".to_owned(), r#"{"text":"a"}"#.to_owned())]),
        ModelStep::say("done"),
    ]);
    bench.limits = quick();
    bench.delegation = Some(delegation(vec![subagent("scout", &scout, &[], &[])]));
    bench.fail.arm("AgentInvocation", "Deliver", 1);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let of_child = |event: &Event| matches!(event, Event::ModelRequest { provider, .. } if provider == "scout");
    soon("the child", stage.until(of_child)).await;
    let words = vec![ContentPart::text("hurry")];
    stage.session.deliver(MessageKind::FollowUp, words).await.unwrap_err();
    let again = |event: &Event| matches!(event, Event::ActorRestarted { .. });
    soon("the caller", stage.until(again)).await;
    gate.notify_one();
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!(scout.requests().len(), 1, "nobody was started again");
    assert_eq!(outcomes(&seen), [SubagentOutcome::Done]);
    assert_eq!(count(&seen, "message.queued"), 0, "its answer is the result of the call");
    let results = results(&bench.model);
    assert!(results[0].contains("): done\n<agent-answer>\nfound"), "{results:?}");
    assert_eq!(count(&seen, "tool.started"), 2, "no call begins again");
}

fn asks_about_writing(action: &Action, _: &Situation<'_>) -> Verdict {
    if action.tool != "write" {
        return Verdict::Allow(test_confinement());
    }
    Verdict::Ask(PermissionQuestion {
        reason: "it writes".to_owned(),
        scopes: vec![Scope::Once],
        grant: None,
        grants_part: false,
        grant_text: Box::default(),
        yes_covers: true,
        rule: None,
        confinement: test_confinement(),
    })
}

#[tokio::test]
async fn permission_request_of_any_depth_reaches_the_user_with_its_path() {
    // Its main agent waits for it, or has ended.
    for (depth, waits) in (1..=6_usize).flat_map(|depth| [(depth, true), (depth, false)]) {
        let gate = Arc::new(Notify::new());
        let run_counter = RunCounter::default();
        let names: Vec<String> = (1..=depth).map(|nth| format!("a{nth}")).collect();
        let subagents = names.iter().enumerate().map(|(nth, name)| {
            let next = names.get(nth + 1).map(String::as_str);
            let first = match next {
                Some(next) => calls(&[next]),
                None => ModelStep::after(&gate, ModelStep::calls("write", &["x"])),
            };
            let own = model(name, vec![first, ModelStep::say("so")]);
            subagent(name, &own, &["write"], next.as_slice())
        });
        let more = if waits { "" } else { r#","wait":false"# };
        let mut bench = SessionBuilder::new(vec![
            ModelStep::Call(vec![call("a1", more)]),
            ModelStep::say("done"),
        ])
        .tool(WritingTool::new(run_counter.clone()));
        bench.limits = quick();
        bench.policy = Arc::new(PolicyFn(asks_about_writing));
        let limits = GovernorLimits { depth_max: 6, live_max: 6, ..GovernorLimits::default() };
        bench.delegation = Some(Delegation {
            main_calls: vec!["a1".to_owned()],
            limits,
            ..delegation(subagents.collect())
        });
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        let mut outcome = Box::pin(running.outcome());
        if !waits {
            let ended = soon("the run", &mut outcome).await.unwrap();
            assert_eq!(ended.ending, Ending::Answered("done".to_owned()));
        }
        gate.notify_one();
        let wish =
            |event: &Event| matches!(event, Event::ToolRequested { name, .. } if name == "write");
        soon("the wish", stage.until(wish)).await;
        let wished = tokio::time::Instant::now();
        let asks = |event: &Event| matches!(event, Event::PermissionRequested { .. });
        let asked = soon("the question", stage.until(asks)).await;
        let took = wished.elapsed();
        assert!(took.as_millis() <= 200, "depth {depth}: {took:?}");
        let path = format!("build/{}", names.join("/"));
        assert_eq!(asked.origin().unwrap().agent_path, path);
        let Event::PermissionRequested { request_id, .. } = asked.event() else { panic!() };
        let yes = HumanDecision::Allow(Scope::Once);
        stage.session.answer(request_id.clone(), yes).await.unwrap();
        if waits {
            let ended = soon("the run", outcome).await.unwrap();
            assert_eq!(ended.ending, Ending::Answered("done".to_owned()));
        } else {
            let first = |event: &Event| matches!(event, Event::DelegationEnded { target, .. } if target == "a1");
            soon("the first", stage.until(first)).await;
        }
        let seen = end(&bench, stage).await;
        assert_eq!(outcomes(&seen), vec![SubagentOutcome::Done; depth]);
        assert_eq!(run_counter.began.load(std::sync::atomic::Ordering::SeqCst), 1);
    }
}
