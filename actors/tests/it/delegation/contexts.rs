//! Subagents with histories that exceed the context: the task stays, and background work is not
//! forgotten with the turn that started it.

use posse_actors::context::{ContextBudget, ContextSettings};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::ports::{Abilities, Fallback};
use posse_actors::root_session::PromptError;

use super::*;

/// A context of that many tokens, of which the last turn stays whole.
fn tiny(tokens: u64) -> ContextBudget {
    ContextBudget {
        tokens_max: Some(tokens),
        recent_turns: 2,
        recent_turns_min: 1,
        summary_tokens: tokens / 8,
        ..ContextBudget::child()
    }
}

fn words(nth: usize) -> String {
    format!("{nth} {}", "word ".repeat(200))
}

/// A whole request as one text.
fn whole(messages: &[Arc<Message>]) -> String {
    let of = |message: &Arc<Message>| match &**message {
        Message::System { content } => content.clone(),
        Message::User { content } | Message::Tool { content, .. } => text_of(content),
        Message::Assistant(said) => said.content.clone().unwrap_or_default(),
    };
    messages.iter().map(of).collect::<Vec<_>>().join("\n")
}

fn compacted(path: &'static str) -> impl Fn(&Arc<Announcement>) -> bool {
    move |one| {
        matches!(one.event(), Event::ContextCompacted { .. })
            && one.origin().is_some_and(|origin| origin.agent_path == path)
    }
}

#[tokio::test]
async fn subagent_keeps_rules_task_and_memory_through_compactions() {
    let findings = "Done.\n\n## Findings\n- the pool is small\n";
    let mut steps = vec![ModelStep::say(findings)];
    for nth in 0..40 {
        steps.push(ModelStep::calls("echo", &[&words(nth)]));
    }
    steps.push(ModelStep::say("It was the pool."));
    let scout = model("scout", steps);
    // Longer than the part of a prompt that is kept, and with background work that ends meanwhile.
    let helper = model("helper", vec![ModelStep::say("helped")]);
    let more = format!(
        r#","context":"{}","constraints":["never touch Cargo.lock"]"#,
        "what I know. ".repeat(200)
    );
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(vec![call("scout", "")]),
        ModelStep::Call(vec![call("scout", &more)]),
        ModelStep::say("fine"),
    ]);
    bench.limits = quick();
    bench.limits.turns_max = 60;
    bench.limits.context_child = tiny(5000);
    bench.delegation = Some(Delegation {
        remembers: true,
        turns_max: 60,
        ..delegation(vec![
            subagent("scout", &scout, &["echo"], &[]),
            subagent("helper", &helper, &[], &[]),
        ])
    });
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "Mend it, and sign every commit.", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("fine".to_owned()));
    let seen = end(&bench, stage).await;
    let times = seen.iter().filter(|one| compacted("build/scout")(one)).count();
    assert!((2..20).contains(&times), "{times}");
    let requests = scout.requests();
    assert_eq!(requests.len(), 42);
    for request in &requests[1..] {
        let text = whole(request);
        for part in [
            "You are scout.",
            "<task>\nlook\n</task>",
            "- never touch Cargo.lock",
            "Mend it, and sign every commit.",
            "findings:\n- the pool is small",
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
        assert_eq!(history_error(request), None);
    }
    assert!(results(&bench.model)[0].contains("It was the pool."));
}

/// Its caller reads a message in between, which must not displace the task.
#[tokio::test]
async fn message_to_a_subagent_does_not_replace_its_task() {
    let helper = model("helper", vec![ModelStep::say("helped")]);
    let mut steps = vec![ModelStep::Call(vec![call("helper", r#","wait":false"#)])];
    steps.extend((0..30).map(|nth| ModelStep::calls("echo", &[&words(nth)])));
    steps.push(ModelStep::say("so"));
    let scout = model("scout", steps);
    let more = format!(r#","context":"{}""#, "what I know. ".repeat(200));
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Call(vec![call("scout", &more)]),
        ModelStep::say("fine"),
    ]);
    bench.limits = quick();
    bench.limits.context_child = tiny(5000);
    let limits = GovernorLimits { depth_max: 2, ..GovernorLimits::default() };
    bench.delegation = Some(Delegation {
        main_calls: vec!["scout".to_owned()],
        turns_max: 60,
        limits,
        ..delegation(vec![
            subagent("scout", &scout, &["echo"], &["helper"]),
            subagent("helper", &helper, &[], &[]),
        ])
    });
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert!(seen.iter().filter(|one| compacted("build/scout")(one)).count() > 1);
    let last = scout.requests().pop().unwrap();
    assert!(whole(&last).contains("helped"), "it has read the message");
    for request in scout.requests() {
        assert_eq!(whole(&request).matches("<task>\nlook\n</task>").count(), 1);
    }
}

#[tokio::test]
async fn compaction_keeps_a_line_about_running_background_work() {
    let gate = Arc::new(Notify::new());
    let hangs = vec![ModelStep::after(&gate, ModelStep::say("found"))];
    let scout = model("scout", hangs);
    let writer =
        model("writer", vec![ModelStep::calls("write", &["a.txt"]), ModelStep::say("written")]);
    let background = r#","wait":false"#;
    let mut steps =
        vec![ModelStep::Call(vec![call("scout", background), call("writer", background)])];
    steps.extend((0..20).map(|nth| ModelStep::calls("echo", &[&words(nth)])));
    steps.push(ModelStep::say("done"));
    steps.extend((0..12).map(|nth| ModelStep::calls("echo", &[&words(nth)])));
    steps.push(ModelStep::say("done again"));
    let mut bench = SessionBuilder::new(steps).tool(WritingTool::new(RunCounter::default()));
    bench.limits = quick();
    bench.limits.turns_max = 60;
    bench.limits.context_main = tiny(4000);
    bench.policy = Arc::new(PolicyFn(asks_about_writing));
    bench.delegation = Some(delegation(vec![
        subagent("scout", &scout, &[], &[]),
        subagent("writer", &writer, &["write"], &[]),
    ]));
    // The first compaction happens while the permission request is open.
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let asks = |event: &Event| matches!(event, Event::PermissionRequested { .. });
    let asked = soon("the question", stage.until(asks)).await;
    soon("the run", running.outcome()).await.unwrap();
    let text = whole(&bench.model.requests().pop().unwrap());
    let line = |text: &str, part: &str| {
        text.lines()
            .filter(|line| line.starts_with("Runs at the same time: ") && line.contains(part))
            .count()
    };
    assert_eq!(line(&text, "agent scout (inv-"), 1, "{text}");
    assert_eq!(line(&text, "build/writer waits for the user to answer: write a.txt"), 1, "{text}");

    let Event::PermissionRequested { request_id, .. } = asked.event() else { panic!() };
    stage.session.answer(request_id.clone(), HumanDecision::Allow(Scope::Once)).await.unwrap();
    let ended = |event: &Event| matches!(event, Event::DelegationEnded { target, .. } if target == "writer");
    soon("the writer", stage.until(ended)).await;
    let running = stage.session.prompt(Prompt::text("and?")).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    let text = whole(&bench.model.requests().pop().unwrap());
    assert_eq!(line(&text, "agent scout (inv-"), 1, "once, also after another time: {text}");
    assert_eq!(line(&text, "writer"), 0, "what has ended goes on no more: {text}");
    gate.notify_one();
    end(&bench, stage).await;
}

fn helper(steps: Vec<ModelStep>) -> (Arc<ScriptedModel>, ContextSettings) {
    let helper = model("helper", steps);
    let fallback = Fallback {
        provider: Arc::clone(&helper) as Arc<dyn posse_actors::ports::Provider>,
        abilities: Abilities::default(),
        price: None,
    };
    (helper, ContextSettings { compact: Some(fallback), ..ContextSettings::default() })
}

async fn talked(stage: &mut RunningSession) {
    for nth in 0..6 {
        play(stage, &format!("prompt {nth}"), &[]).await.unwrap();
    }
}

fn talk() -> Vec<ModelStep> {
    (0..7).map(|nth| ModelStep::say(&format!("answer {nth}: {}", "so ".repeat(300)))).collect()
}

#[tokio::test]
async fn summary_model_also_writes_a_requested_compaction() {
    let gate = Arc::new(Notify::new());
    let mut bench = SessionBuilder::new(talk());
    let (helper, context) =
        helper(vec![ModelStep::after(&gate, ModelStep::say("Goal: a red door"))]);
    bench.context = context;
    let mut stage = bench.start().await;
    talked(&mut stage).await;
    let session = stage.session.clone();
    let wanted =
        tokio::spawn(async move { session.compact_keeping(Some("doors".to_owned())).await });
    let asked = |event: &Event| matches!(event, Event::ModelRequest { provider, .. } if provider == "helper");
    soon("the helper", stage.until(asked)).await;
    let busy = stage.session.prompt(Prompt::text("meanwhile")).await;
    assert_eq!(busy.err(), Some(PromptError::Busy));
    gate.notify_one();
    let compacted = soon("the summary", wanted).await.unwrap().unwrap().unwrap();
    assert!(whole(&compacted.history).contains("Summary: Goal: a red door"));
    assert!(whole(&helper.requests()[0]).contains("doors"), "{}", whole(&helper.requests()[0]));
    let outcome = play(&mut stage, "and now?", &[]).await.unwrap();
    assert!(matches!(outcome.ending, Ending::Answered(_)));
    let seen = end(&bench, stage).await;
    let by = seen.iter().find_map(|one| match one.event() {
        Event::ContextCompacted { summarised_by, cause, .. } => {
            Some((summarised_by.clone(), cause.clone()))
        }
        _ => None,
    });
    assert_eq!(by, Some((Some("helper-1".to_owned()), Some(CompactionCause::Request))));
    assert!(whole(&bench.model.requests().pop().unwrap()).contains("Goal: a red door"));
}

#[tokio::test]
async fn failed_or_stopped_summary_falls_back_to_the_rules() {
    let fails = || {
        let source = "no such model".into();
        ModelStep::Fail(String::new(), posse_actors::ports::ProviderError::Rejected { source })
    };
    for (step, stops) in [(fails(), false), (ModelStep::Hang(String::new()), true)] {
        let mut bench = SessionBuilder::new(talk());
        bench.limits = quick();
        let (helper, context) = helper(vec![step]);
        bench.context = context;
        let mut stage = bench.start().await;
        talked(&mut stage).await;
        let session = stage.session.clone();
        let wanted = tokio::spawn(async move { session.compact().await });
        if stops {
            let asked = |event: &Event| matches!(event, Event::ModelRequest { provider, .. } if provider == "helper");
            soon("the helper", stage.until(asked)).await;
            stage.session.interrupt();
        }
        let compacted = soon("the rules", wanted).await.unwrap().unwrap().unwrap();
        assert!(whole(&compacted.history).contains("The user asked: prompt 0"));
        let outcome = play(&mut stage, "and now?", &[]).await.unwrap();
        assert!(matches!(outcome.ending, Ending::Answered(_)));
        let seen = end(&bench, stage).await;
        let said = if stops { "it was stopped" } else { "no such model" };
        assert!(seen.iter().any(|one| {
            matches!(one.event(), Event::Warning { message } if message.contains(said))
        }));
        assert_eq!(helper.requests().len(), 1);
    }
}
