//! A panic in each actor at each kind of message: what the table in `docs/ARCHITECTURE.md` says,
//! and whatever else happens a valid history, every fact once, and no effect twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posse_actors::conversation::Prompt;
use posse_actors::event::{Event, HookEvent};
use posse_actors::outcome::Ending;
use posse_actors::ports::{
    Abilities, Fallback, Hook, HookInvocation, HookResult, ProviderError, SideEffect, Verdict,
};
use posse_actors::root_session::PromptError;
use posse_actors::testing::{
    GatedTool, HangingTool, HookFn, ManualClock, ModelStep, PanickingTool, PolicyFn, RunCounter,
    ScriptedModel, SessionBuilder, WritingTool, ask_all, test_confinement,
};

use crate::support::{Do, Habits, check, count, end, play, quick, soon};

/// Has nothing to say, but must be asked.
fn quiet() -> Arc<dyn Hook> {
    Arc::new(HookFn(HookEvent::ALL, |_: &HookInvocation| Some(HookResult::Pass)))
}

fn busy() -> ProviderError {
    ProviderError::Overloaded {
        kind: posse_actors::ports::OverloadKind::Overload,
        retry_after: None,
        source: "busy".into(),
    }
}

/// Questions for tools that write, none for others.
fn careful(mut bench: SessionBuilder) -> SessionBuilder {
    let asking = ask_all();
    bench.policy = Arc::new(PolicyFn(
        move |action: &posse_actors::ports::Action,
              situation: &posse_actors::ports::Situation<'_>| {
            match action.tool.as_str() {
                "write" | "hang" => asking.judge(action, situation),
                _ => Verdict::Allow(test_confinement()),
            }
        },
    ));
    bench
}

/// A run in which everything happens: a retry, parallel calls, a question, an effect, a follow-up.
const WORK: Habits<'_> = &[("permission.requested", Do::Allow), ("tool.requested", Do::FollowUp)];

fn work(run_counter: &RunCounter) -> SessionBuilder {
    let calls = vec![
        ("echo".to_owned(), r#"{"text":"a"}"#.to_owned()),
        ("echo".to_owned(), r#"{"text":"b"}"#.to_owned()),
        ("write".to_owned(), r#"{"text":"c"}"#.to_owned()),
    ];
    let script = vec![
        ModelStep::Fail("half a re".to_owned(), busy()),
        ModelStep::Call(calls),
        ModelStep::say("nearly"),
        ModelStep::say("done"),
        ModelStep::say("again"),
    ];
    let mut bench =
        careful(SessionBuilder::new(script).tool(WritingTool::new(run_counter.clone())));
    bench.hooks = quiet();
    bench.limits = quick();
    bench
}

async fn works_after_a_crash(actor: &str, kind: &str, restarted: bool) {
    let run_counter = RunCounter::default();
    let bench = work(&run_counter);
    bench.fail.arm(actor, kind, 1);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", WORK).await.expect("the session lives");
    assert!(matches!(outcome.ending, Ending::Answered(_)), "{actor}::{kind}: {outcome:?}");
    let next = play(&mut stage, "again", WORK).await.expect("the session lives");
    assert!(matches!(next.ending, Ending::Answered(_)), "{actor}::{kind}: {next:?}");
    let seen = end(&bench, stage).await;
    assert_eq!(bench.fail.left(), 0, "{actor}::{kind} was hit");
    assert_eq!(count(&seen, "actor.crashed"), 1, "{actor}::{kind}");
    assert_eq!(count(&seen, "actor.restarted"), usize::from(restarted), "{actor}::{kind}");
    assert!(run_counter.began.load(Ordering::SeqCst) <= 1, "{actor}::{kind}: an effect twice");
    // A reply that was not recorded is asked for again, and here the next one wants no tools.
    if (actor, kind) == ("AgentInvocation", "Replied") {
        return;
    }
    let told = count(&seen, "tool.outcome_unknown") + count(&seen, "tool.completed");
    assert!(told + count(&seen, "tool.failed") >= 3, "{actor}::{kind}: every call ended");
}

#[tokio::test]
async fn run_continues_after_a_crash_of_any_actor() {
    for (actor, kinds, restarted) in [
        ("TranscriptWriter", &["Wake", "Opened", "Committed"][..], true),
        ("PermissionCoordinator", &["Ask", "Answer", "Settled"], true),
        ("ProviderClient", &["Complete", "AttemptEnded", "WaitEnded"], true),
        ("AgentInvocation", &["Cleared", "Replied", "CallEnded", "Deliver", "Settled"], true),
        ("ToolCallRun", &["Ended", "Hooked"], false),
    ] {
        for kind in kinds {
            works_after_a_crash(actor, kind, restarted).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_continues_after_a_crash_on_several_threads() {
    for (actor, kind, restarted) in [
        ("TranscriptWriter", "Committed", true),
        ("PermissionCoordinator", "Answer", true),
        ("ProviderClient", "AttemptEnded", true),
        ("AgentInvocation", "CallEnded", true),
        ("ToolCallRun", "Ended", false),
        ("ToolCallRun", "Hooked", false),
    ] {
        for _ in 0..10 {
            works_after_a_crash(actor, kind, restarted).await;
        }
    }
}

/// Interrupted while a question is open, beside a call that runs and one that waits.
async fn stops_although(actor: &str, kind: &str) {
    let run_counter = RunCounter::default();
    let mut bench = careful(
        SessionBuilder::new(vec![ModelStep::call("hang", "{}"), ModelStep::say("fine")])
            .tool(HangingTool::new(run_counter.clone())),
    );
    bench.limits = quick();
    bench.fail.arm(actor, kind, 1);
    let mut stage = bench.start().await;
    let habits: Habits<'_> = match kind {
        "Withdraw" => &[("permission.requested", Do::Interrupt)],
        _ => &[("permission.requested", Do::Allow), ("tool.output.delta", Do::Interrupt)],
    };
    let outcome = play(&mut stage, "go", habits).await.expect("the session lives");
    assert_eq!(outcome.ending, Ending::Interrupted, "{actor}::{kind}");
    let next = play(&mut stage, "again", &[]).await.expect("the session lives");
    assert_eq!(next.ending, Ending::Answered("fine".to_owned()), "{actor}::{kind}");
    let seen = end(&bench, stage).await;
    assert_eq!(bench.fail.left(), 0, "{actor}::{kind} was hit");
    assert_eq!(count(&seen, "actor.crashed"), 1, "{actor}::{kind}");
    let (began, dropped) = (&run_counter.began, &run_counter.dropped);
    assert_eq!(began.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst), "{actor}::{kind}");
}

#[tokio::test]
async fn stop_works_even_if_an_actor_crashes() {
    for (actor, kind) in [
        ("AgentInvocation", "Stop"),
        ("AgentInvocation", "CallEnded"),
        ("ToolCallRun", "Cancel"),
        ("ToolCallRun", "Ended"),
        ("PermissionCoordinator", "Withdraw"),
        ("ProviderClient", "Cancel"),
    ] {
        stops_although(actor, kind).await;
    }
}

#[tokio::test]
async fn time_limit_holds_even_if_the_invocation_crashes() {
    let run_counter = RunCounter::default();
    let steps = vec![ModelStep::call("hang", "{}"), ModelStep::Hang(String::new())];
    let mut bench = SessionBuilder::new(steps).tool(HangingTool::new(run_counter.clone()));
    bench.limits = quick();
    bench.limits.duration_max = Some(Duration::from_millis(20));
    bench.fail.arm("AgentInvocation", "TimeUp", 1);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.expect("the session lives");
    assert!(matches!(outcome.ending, Ending::Limited { limit: "timeout", .. }), "{outcome:?}");
    end(&bench, stage).await;
    assert_eq!(bench.fail.left(), 0);
    assert_eq!(run_counter.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn crash_does_not_extend_the_time_limit() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let mut bench =
        SessionBuilder::new(vec![ModelStep::call("gated", "{}"), ModelStep::Hang(String::new())])
            .tool(GatedTool::new(RunCounter::default(), Arc::clone(&gate)));
    let clock = Arc::new(ManualClock::default());
    bench.clock = Arc::clone(&clock) as Arc<dyn posse_actors::ports::Clock>;
    bench.limits.delta_interval = Duration::ZERO;
    bench.limits.duration_max = Some(Duration::from_secs(10));
    let mut stage = bench.start().await;
    let session = stage.session.clone();
    let running = session.prompt(Prompt::text("go")).await.unwrap();
    bench.fail.arm("AgentInvocation", "CallEnded", 1);
    clock.advance(Duration::from_secs(7));
    gate.add_permits(1);
    let restarted = |event: &Event| matches!(event, Event::ActorRestarted { .. });
    soon("the restart", stage.until(restarted)).await;
    let asked = |event: &Event| matches!(event, Event::ModelRequest { .. });
    soon("the next request", stage.until(asked)).await;
    clock.advance(Duration::from_secs(3));
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert!(matches!(outcome.ending, Ending::Limited { limit: "timeout", .. }), "{outcome:?}");
    end(&bench, stage).await;
}

#[tokio::test]
async fn crashed_writer_is_drained_again() {
    let mut bench =
        SessionBuilder::new(vec![ModelStep::call("echo", "{}"), ModelStep::say("done")]);
    bench.limits = quick();
    bench.fail.arm("AgentInvocation", "CallEnded", 1);
    bench.fail.arm("TranscriptWriter", "Drain", 1);
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    // With a slow disk the outbox is not empty when the history is read again.
    bench.journal.block_writes();
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("the drain", async {
        while bench.fail.left() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    bench.journal.release();
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "actor.restarted"), 2);
}

#[tokio::test]
async fn request_waits_for_journal_space_after_a_crash() {
    for crash in [false, true] {
        let texts: Vec<String> = (0..256).map(|nth| nth.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut script: Vec<ModelStep> = (0..3).map(|_| ModelStep::calls("echo", &texts)).collect();
        script.push(ModelStep::say("done"));
        let mut bench = SessionBuilder::new(script);
        bench.limits = quick();
        if crash {
            bench.fail.arm("AgentInvocation", "Cleared", 1);
        }
        let mut stage = bench.start().await;
        stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
        bench.journal.block_writes();
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        let (journal, model) = (Arc::clone(&bench.journal), Arc::clone(&bench.model));
        soon("the flood", async {
            while model.requests().len() < 2 {
                tokio::task::yield_now().await;
            }
            for _ in 0..20_000 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(model.requests().len(), 2, "no further request before there is room");
        journal.release();
        let outcome = soon("the run", running.outcome()).await.unwrap();
        assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
        end(&bench, stage).await;
        assert_eq!(bench.fail.left(), 0);
    }
}

/// An actor that crashes each time parks the session: the cause is reported, the run ends, and no caller hangs.
async fn parks(actor: &str, kind: &str) {
    let run_counter = RunCounter::default();
    let mut bench = work(&run_counter);
    if kind == "CallEnded" {
        bench.model = Arc::new(ScriptedModel::new(vec![
            ModelStep::call("echo", "{}"),
            ModelStep::call("echo", "{}"),
            ModelStep::call("echo", "{}"),
            ModelStep::call("echo", "{}"),
        ]));
    }
    bench.fail.arm(actor, kind, 100);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", WORK).await.expect("the session lives");
    let Ending::Failed { class, .. } = &outcome.ending else {
        panic!("{actor}::{kind}: {outcome:?}")
    };
    assert!(class == "parked" || class == "journal", "{actor}::{kind}: {outcome:?}");
    let refused = loop {
        match soon("the prompt", stage.session.prompt(Prompt::text("more"))).await {
            Err(PromptError::Parked(cause)) => break cause,
            Err(PromptError::Busy) => tokio::task::yield_now().await,
            other => panic!("{actor}::{kind}: {other:?}"),
        }
    };
    assert!(refused.contains(actor), "{actor}::{kind}: {refused}");
    let seen = soon("the end", stage.end()).await;
    assert_eq!(count(&seen, "session.parked"), 1, "{actor}::{kind}");
    assert_eq!(count(&seen, "session.ended"), 1, "{actor}::{kind}");
    assert_eq!(bench.fail.left(), 100 - 4, "{actor}::{kind}: once, and three restarts");
    assert!(run_counter.began.load(Ordering::SeqCst) <= 1, "{actor}::{kind}");
    if actor != "TranscriptWriter" {
        check(&bench, &seen);
    }
}

#[tokio::test]
async fn actor_that_always_crashes_parks_the_session() {
    for (actor, kind) in [
        ("TranscriptWriter", "Wake"),
        ("TranscriptWriter", "Opened"),
        ("TranscriptWriter", "Committed"),
        ("PermissionCoordinator", "Ask"),
        ("PermissionCoordinator", "Answer"),
        ("ProviderClient", "Complete"),
        ("ProviderClient", "AttemptEnded"),
        ("AgentInvocation", "Replied"),
        ("AgentInvocation", "CallEnded"),
    ] {
        parks(actor, kind).await;
    }
}

#[tokio::test]
async fn session_parks_without_its_model_although_another_account_is_left() {
    let run_counter = RunCounter::default();
    let mut bench = work(&run_counter);
    let namer = Arc::new(ScriptedModel::new(Vec::new()).named("namer"));
    let title = Fallback { provider: namer, abilities: Abilities::default(), price: None };
    bench.context.title = Some(title);
    bench.fail.arm("ProviderClient", "Complete", 4);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", WORK).await.expect("the session lives");
    assert!(
        matches!(&outcome.ending, Ending::Failed { class, .. } if class == "parked"),
        "{outcome:?}"
    );
    let seen = soon("the end", stage.end()).await;
    assert_eq!(count(&seen, "session.parked"), 1);
}

#[tokio::test]
async fn crashed_session_answers_every_caller() {
    for kind in ["Prompt", "Deliver", "Interrupt", "InvocationEnded", "End", "Closed"] {
        let run_counter = RunCounter::default();
        let step = if kind == "Interrupt" {
            ModelStep::call("hang", "{}")
        } else {
            ModelStep::say("done")
        };
        let bench = SessionBuilder::new(vec![step]).tool(HangingTool::new(run_counter.clone()));
        bench.fail.arm("RootSession", kind, 1);
        let mut stage = bench.start().await;
        let habits: Habits<'_> =
            &[("model.request", Do::FollowUp), ("tool.output.delta", Do::Interrupt)];
        play(&mut stage, "go", habits).await;
        let session = stage.session.clone();
        let seen = soon("the end", stage.end()).await;
        assert_eq!(bench.fail.left(), 0, "{kind}");
        assert_eq!(count(&seen, "actor.crashed"), usize::from(kind != "Closed"), "{kind}");
        let prompt = soon("a prompt", session.prompt(Prompt::text("more"))).await;
        assert!(matches!(prompt, Err(PromptError::Ended)), "{kind}: {prompt:?}");
        let id = posse_actors::conversation::QuestionId::new("none");
        let decision = posse_actors::permission_coordinator::HumanDecision::Deny { reason: None };
        assert!(soon("an answer", session.answer(id, decision)).await.is_err(), "{kind}");
        soon("the dropped work", async {
            while run_counter.dropped.load(Ordering::SeqCst)
                < run_counter.began.load(Ordering::SeqCst)
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn session_may_crash_during_replay() {
    let bench = work(&RunCounter::default());
    bench.fail.arm("AgentInvocation", "Replied", 1);
    bench.fail.arm("RootSession", "Reread", 1);
    let mut stage = bench.start().await;
    assert_eq!(play(&mut stage, "go", &[]).await, None);
    soon("the end", stage.end()).await;
    assert_eq!(bench.fail.left(), 0);
}

#[tokio::test]
async fn panicking_tool_fails_one_call() {
    for (side_effect, kind) in
        [(SideEffect::None, "tool.failed"), (SideEffect::Workspace, "tool.outcome_unknown")]
    {
        let script = vec![ModelStep::call("panic", "{}"), ModelStep::say("done")];
        let bench = SessionBuilder::new(script).tool(PanickingTool::new(side_effect));
        let mut stage = bench.start().await;
        let outcome = play(&mut stage, "go", &[]).await.unwrap();
        assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
        let seen = end(&bench, stage).await;
        assert_eq!((count(&seen, kind), count(&seen, "actor.crashed")), (1, 0));
    }
}

#[tokio::test]
async fn panicking_adapter_is_retried() {
    let bench = SessionBuilder::new(vec![ModelStep::Panic, ModelStep::say("done")]);
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    let panicked = |event: &Event| matches!(event, Event::ActorCrashed { cause, .. } if cause.contains("the scripted model"));
    assert!(seen.iter().any(|seen| panicked(seen.event())), "the cause is told");
}

#[tokio::test]
async fn partial_reply_survives_a_crash_of_the_client() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let mut bench = SessionBuilder::new(vec![
        ModelStep::Hang("half an answer".to_owned()),
        ModelStep::after(&gate, ModelStep::say("whole")),
    ]);
    bench.limits = quick();
    bench.fail.arm("ProviderClient", "Cancel", 1);
    let mut stage = bench.start().await;
    let habits: Habits<'_> = &[("model.text.delta", Do::Interrupt)];
    let outcome = play(&mut stage, "go", habits).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    let seen = end(&bench, stage).await;
    let partials: Vec<_> = seen
        .iter()
        .filter_map(|seen| match seen.event() {
            Event::ModelPartial { text, cause, .. } => Some((text.as_str(), cause.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(partials, [("half an answer", "interrupted")]);
}

#[tokio::test]
async fn running_effect_is_reported_as_unknown_after_a_crash() {
    let run_counter = RunCounter::default();
    let mut bench =
        SessionBuilder::new(vec![ModelStep::call("hang", "{}"), ModelStep::say("done")])
            .tool(HangingTool::new(run_counter.clone()));
    bench.limits = quick();
    bench.fail.arm("AgentInvocation", "Deliver", 1);
    let mut stage = bench.start().await;
    let habits: Habits<'_> = &[("tool.output.delta", Do::FollowUp)];
    let outcome = play(&mut stage, "go", habits).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!(bench.fail.left(), 0);
    assert_eq!(count(&seen, "tool.outcome_unknown"), 1);
    let (began, dropped) = (&run_counter.began, &run_counter.dropped);
    assert_eq!((began.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (1, 1));
    let told = format!("{:?}", bench.model.requests()[1]);
    assert!(told.contains(posse_actors::replay::OUTCOME_UNKNOWN), "{told}");
}
