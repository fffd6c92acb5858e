//! Hooks at their ten events: what they may change, what they may not, and what the journal
//! records.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use posse_actors::conversation::{ContentPart, Message, Prompt, text_of};
use posse_actors::event::{Announcement, Event, HookEvent};
use posse_actors::outcome::Ending;
use posse_actors::ports::{
    Action, HookInvocation, HookPayload, HookResult, SideEffect, Situation, Verdict,
};
use posse_actors::replay::replay;
use posse_actors::root_session::SessionEnding;
use posse_actors::testing::{
    HookFn, ModelStep, PanickingTool, PolicyFn, RunCounter, RunningSession, SessionBuilder,
    WritingTool, ask_all, test_confinement, types,
};
use serde_json::json;

use crate::support::{Do, count, end, play, quick, soon};

fn hooked(
    script: Vec<ModelStep>,
    places: &'static [HookEvent],
    says: impl Fn(&HookInvocation) -> Option<HookResult> + Send + Sync + 'static,
) -> SessionBuilder {
    let mut bench = SessionBuilder::new(script);
    bench.limits = quick();
    bench.hooks = Arc::new(HookFn(places, says));
    bench
}

async fn run(bench: &SessionBuilder) -> (RunningSession, Ending) {
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[("permission.requested", Do::Allow)]).await;
    (stage, outcome.expect("the session lives").ending)
}

/// The results of the calls in the last request.
fn results(bench: &SessionBuilder) -> Vec<String> {
    let requests = bench.model.requests();
    let last = requests.last().cloned().unwrap_or_default();
    let result = |message: &Arc<Message>| match &**message {
        Message::Tool { content, .. } => Some(text_of(content)),
        _ => None,
    };
    last.iter().filter_map(result).collect()
}

fn hook_events(seen: &[Arc<Announcement>]) -> Vec<String> {
    let line = |announcement: &Arc<Announcement>| match announcement.event() {
        Event::HookFired { event, decision, .. } => {
            let decision = format!("{decision:?}").to_lowercase();
            Some(format!("{} {decision}", event.name()))
        }
        Event::HookFailed { event, code, blocked, .. } => {
            Some(format!("{} {code} {blocked}", event.name()))
        }
        _ => None,
    };
    seen.iter().filter_map(line).collect()
}

fn call_and_say() -> Vec<ModelStep> {
    vec![ModelStep::call("echo", r#"{"text":"a"}"#), ModelStep::say("done")]
}

/// The journal contains the history that the session has.
async fn assert_replays(bench: &SessionBuilder, stage: &RunningSession) {
    let lived = stage.session.history().await;
    assert_eq!(replay(&bench.journal.records(), None).messages, lived);
}

#[tokio::test]
async fn every_hook_event_fires_once_in_order() {
    let script = vec![
        ModelStep::call("echo", r#"{"text":"a"}"#),
        ModelStep::call("write", r#"{"text":"b"}"#),
        ModelStep::call("nothing", "{}"),
        ModelStep::say("done"),
    ];
    let mut bench = hooked(script, HookEvent::ALL, |_| Some(HookResult::Pass))
        .tool(WritingTool::new(RunCounter::default()));
    let asks = ask_all();
    bench.policy =
        Arc::new(PolicyFn(move |action: &Action, situation: &Situation<'_>| {
            match action.tool.as_str() {
                "write" => asks.judge(action, situation),
                _ => Verdict::Allow(test_confinement()),
            }
        }));
    let (stage, ending) = run(&bench).await;
    assert_eq!(ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    let turn = ["BeforeModelRequest pass", "AfterModelResponse pass"];
    let echo = ["PreToolUse pass", "PostToolUse pass"];
    let write = ["PreToolUse pass", "PermissionRequest pass", "PostToolUse pass"];
    let expected = [
        &["SessionStart pass", "UserPromptSubmit pass"][..],
        &turn,
        &echo,
        &turn,
        &write,
        &turn,
        &["ToolError pass"],
        &turn,
        &["Stop pass", "SessionEnd pass"],
    ];
    assert_eq!(hook_events(&seen), expected.concat());
    assert_eq!(types(&seen).last().unwrap(), "session.ended");
}

#[tokio::test]
async fn events_without_hooks_fire_and_record_nothing() {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let bench = hooked(call_and_say(), &[], move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some(HookResult::Block)
    });
    let (stage, ending) = run(&bench).await;
    assert_eq!(ending, Ending::Answered("done".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!((asked.load(Ordering::SeqCst), hook_events(&seen)), (0, Vec::new()));
}

#[tokio::test]
async fn model_reads_the_reason_of_a_pre_tool_block() {
    let run_counter = RunCounter::default();
    let script = vec![ModelStep::call("write", r#"{"text":"a"}"#), ModelStep::say("done")];
    let bench = hooked(script, &[HookEvent::PreToolUse], |_| Some(HookResult::Block))
        .tool(WritingTool::new(run_counter.clone()));
    let (stage, _) = run(&bench).await;
    assert_eq!(results(&bench), ["Blocked: so says the test (hook: test)"]);
    assert_replays(&bench, &stage).await;
    let seen = end(&bench, stage).await;
    assert_eq!(hook_events(&seen), ["PreToolUse block"]);
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    assert_eq!(count(&seen, "tool.started"), 0);
}

#[tokio::test]
async fn warning_is_shown_and_does_not_block() {
    let bench = hooked(call_and_say(), &[HookEvent::PreToolUse], |_| Some(HookResult::Warn));
    let (stage, _) = run(&bench).await;
    assert_eq!(results(&bench), ["a\n(hook test: so says the test)"]);
    assert_replays(&bench, &stage).await;
    end(&bench, stage).await;
}

#[tokio::test]
async fn changed_arguments_are_judged_again_and_shown() {
    // The requested call would be allowed and the call changed by the hook is not, and the other
    // way round: the policy judges only what would run.
    for (asked, allowed) in [("fine", "fine"), ("rm", "changed")] {
        let script = vec![
            ModelStep::call("echo", &format!(r#"{{"text":"{asked}"}}"#)),
            ModelStep::say("done"),
        ];
        let mut bench = hooked(script, &[HookEvent::PreToolUse], |_| {
            Some(HookResult::Input(json!({"text": "changed"})))
        });
        bench.policy = Arc::new(PolicyFn(move |action: &Action, _: &Situation<'_>| {
            if action.detail == allowed {
                return Verdict::Allow(test_confinement());
            }
            Verdict::Deny { reason: "not that".to_owned(), rule: "test".to_owned() }
        }));
        let (stage, _) = run(&bench).await;
        let seen = end(&bench, stage).await;
        assert_eq!(hook_events(&seen), ["PreToolUse patch"]);
        let started = seen.iter().find_map(|seen| match seen.event() {
            Event::ToolStarted { summary, .. } => Some(summary.clone()),
            _ => None,
        });
        if allowed == "changed" {
            assert_eq!(started.as_deref(), Some("echo changed"));
            let note = "(hook test: so says the test; what ran: {\"text\":\"changed\"})";
            assert_eq!(results(&bench), [format!("changed\n{note}")]);
        } else {
            assert_eq!(started, None);
            // The model reads which arguments were denied.
            let note = "(hook test: so says the test; what ran: {\"text\":\"changed\"})";
            assert_eq!(results(&bench), [format!("Denied: not that (rule: test)\n{note}")]);
        }
    }
}

#[tokio::test]
async fn arguments_made_invalid_by_a_hook_do_not_run() {
    let bench = hooked(call_and_say(), &[HookEvent::PreToolUse], |_| {
        Some(HookResult::Input(json!(["not", "an", "object"])))
    });
    let (stage, _) = run(&bench).await;
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "tool.started"), 0);
    assert!(results(&bench)[0].starts_with("Blocked: a hook changed the arguments"));
}

#[tokio::test]
async fn hook_cannot_override_a_deny_rule_or_a_permission_request() {
    for (verdict, refused) in [("deny", 1), ("ask", 1)] {
        let mut bench = hooked(call_and_say(), HookEvent::ALL, |_| Some(HookResult::Pass));
        bench.asking = posse_actors::ports::AnswerSource::Nobody;
        if verdict == "ask" {
            bench.policy = ask_all();
        } else {
            bench.policy = Arc::new(PolicyFn(|_: &Action, _: &Situation<'_>| Verdict::Deny {
                reason: "no".to_owned(),
                rule: "test".to_owned(),
            }));
        }
        let (stage, _) = run(&bench).await;
        let seen = end(&bench, stage).await;
        assert_eq!(count(&seen, "tool.failed"), refused, "{verdict}");
        assert_eq!(count(&seen, "tool.started"), 0, "{verdict}");
    }
}

#[tokio::test]
async fn hook_denial_before_a_permission_request_is_final() {
    let mut bench =
        hooked(call_and_say(), &[HookEvent::PermissionRequest], |_| Some(HookResult::Block));
    bench.policy = ask_all();
    let (stage, _) = run(&bench).await;
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.requested"), 0);
    assert_eq!(results(&bench), ["Blocked: so says the test (hook: test)"]);
}

#[tokio::test]
async fn replaced_output_is_a_second_record() {
    let cases = [
        (HookResult::Output(vec![ContentPart::text("other")]), "other"),
        (HookResult::Block, "Result withheld: so says the test (hook: test)"),
        (
            HookResult::Failed { code: "HK001".to_owned(), blocks: true },
            "Result withheld: so says the test (hook: test)",
        ),
        (HookResult::Failed { code: "HK001".to_owned(), blocks: false }, "a"),
        (HookResult::Warn, "a"),
    ];
    for (says, read) in cases {
        let bench = hooked(call_and_say(), &[HookEvent::PostToolUse], move |_| Some(says.clone()));
        let (stage, _) = run(&bench).await;
        assert_eq!(results(&bench), [read]);
        assert_replays(&bench, &stage).await;
        let seen = end(&bench, stage).await;
        let recorded = seen.iter().find_map(|seen| match seen.event() {
            Event::ToolCompleted { content, .. } => Some(text_of(content)),
            _ => None,
        });
        assert_eq!(recorded.as_deref(), Some("a"), "the outcome stays as it was");
        assert_eq!(count(&seen, "tool.completed"), 1);
    }
}

#[tokio::test]
async fn failed_call_stays_failed_with_replaced_output() {
    let bench = hooked(
        vec![ModelStep::call("panic", "{}"), ModelStep::say("done")],
        &[HookEvent::ToolError],
        |occasion| match &occasion.moment {
            HookPayload::ToolError { class, .. } => {
                Some(HookResult::Output(vec![ContentPart::text(format!("it {class}"))]))
            }
            _ => None,
        },
    )
    .tool(PanickingTool::new(SideEffect::Process));
    let (stage, _) = run(&bench).await;
    assert_eq!(results(&bench), ["it crashed"]);
    assert_replays(&bench, &stage).await;
    end(&bench, stage).await;
}

#[tokio::test]
async fn crash_after_a_hook_change_loses_nothing() {
    let bench = hooked(call_and_say(), &[HookEvent::PostToolUse], |_| {
        Some(HookResult::Output(vec![ContentPart::text("other")]))
    });
    bench.fail.arm("ToolCallRun", "Hooked", 1);
    let (stage, _) = run(&bench).await;
    assert_eq!(results(&bench), ["other"]);
    assert_replays(&bench, &stage).await;
    end(&bench, stage).await;
    assert_eq!(bench.fail.left(), 0);
}

#[tokio::test]
async fn refused_prompt_is_in_no_history() {
    let bench = hooked(vec![ModelStep::say("hello")], &[HookEvent::UserPromptSubmit], |occasion| {
        match &occasion.moment {
            HookPayload::UserPromptSubmit { content } if text_of(content) == "secret" => {
                Some(HookResult::Block)
            }
            _ => Some(HookResult::Pass),
        }
    });
    let mut stage = bench.start().await;
    let refused = play(&mut stage, "secret", &[]).await.unwrap();
    let cause = "so says the test (hook: test)".to_owned();
    assert_eq!(refused.ending, Ending::Failed { class: "hook".to_owned(), cause });
    assert_eq!((refused.turns, bench.model.requests().len()), (0, 0));
    let next = play(&mut stage, "fine", &[]).await.unwrap();
    assert_eq!(next.ending, Ending::Answered("hello".to_owned()));
    assert_eq!(bench.model.requests()[0].len(), 2, "system and one prompt");
    assert_replays(&bench, &stage).await;
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "user.message"), 1);
}

#[tokio::test]
async fn prompt_waiting_for_hooks_can_be_interrupted() {
    for places in [&[HookEvent::UserPromptSubmit][..], &[HookEvent::SessionStart][..]] {
        for ends in [false, true] {
            let bench = hooked(vec![ModelStep::say("hello")], places, |_| None);
            let stage = bench.start().await;
            let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
            if ends {
                let session = stage.session.clone();
                let ending = SessionEnding {
                    reason: posse_actors::event::SessionEndReason::Interrupted,
                    exit_code: 130,
                    result: None,
                    error: None,
                };
                soon("the end", session.end(ending)).await;
            } else {
                stage.session.interrupt();
            }
            let outcome = soon("the run", running.outcome()).await.unwrap();
            assert_eq!(outcome.ending, Ending::Interrupted, "{places:?}");
            if !ends {
                end(&bench, stage).await;
            }
        }
    }
}

#[tokio::test]
async fn session_refused_by_a_hook_accepts_no_prompt() {
    let bench = hooked(vec![ModelStep::say("hello")], &[HookEvent::SessionStart], |_| {
        Some(HookResult::Failed { code: "HK002".to_owned(), blocks: true })
    });
    let (stage, ending) = run(&bench).await;
    assert!(matches!(&ending, Ending::Failed { class, .. } if class == "hook"), "{ending:?}");
    assert_eq!(bench.model.requests().len(), 0);
    let seen = end(&bench, stage).await;
    assert_eq!(hook_events(&seen), ["SessionStart HK002 true"]);
}

#[tokio::test]
async fn model_hook_block_ends_the_run() {
    for (place, requests, partial) in
        [(HookEvent::BeforeModelRequest, 0, 0), (HookEvent::AfterModelResponse, 1, 1)]
    {
        let run_counter = RunCounter::default();
        let script = vec![ModelStep::Reply(posse_actors::ports::Completion {
            message: posse_actors::conversation::AssistantMessage {
                content: Some("I write".to_owned()),
                reasoning: None,
                tool_calls: vec![posse_actors::conversation::ToolCall {
                    id: posse_actors::conversation::CallId::new("1"),
                    provider_id: None,
                    name: "write".to_owned(),
                    arguments: "{}".to_owned(),
                }],
            },
            stop_reason: posse_actors::conversation::StopReason::ToolUse,
            usage: None,
            model: None,
        })];
        let mut bench = hooked(script, HookEvent::ALL, move |occasion| {
            let says =
                if occasion.moment.event() == place { HookResult::Block } else { HookResult::Pass };
            Some(says)
        })
        .tool(WritingTool::new(run_counter.clone()));
        bench.limits = quick();
        let (stage, ending) = run(&bench).await;
        assert!(matches!(&ending, Ending::Failed { class, .. } if class == "hook"), "{place:?}");
        assert_eq!(bench.model.requests().len(), requests, "{place:?}");
        assert_eq!(run_counter.began.load(Ordering::SeqCst), 0, "{place:?}");
        assert_replays(&bench, &stage).await;
        let seen = end(&bench, stage).await;
        assert_eq!(count(&seen, "model.text.partial"), partial, "{place:?}");
        assert_eq!(count(&seen, "model.text"), 0, "{place:?}");
    }
}

#[tokio::test]
async fn stop_hook_can_continue_a_run_eight_times() {
    for (blocks, requests, warnings) in [(0, 1, 0), (2, 3, 0), (100, 9, 1)] {
        let script = (0..20).map(|nth| ModelStep::say(&format!("answer {nth}"))).collect();
        let holds = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&holds);
        let bench = hooked(script, &[HookEvent::Stop], move |occasion| {
            let HookPayload::Stop { holds, .. } = &occasion.moment else { return None };
            told.lock().unwrap_or_else(PoisonError::into_inner).push(*holds);
            Some(if *holds < blocks { HookResult::Block } else { HookResult::Pass })
        });
        let (stage, ending) = run(&bench).await;
        assert_eq!(ending, Ending::Answered(format!("answer {}", requests - 1)), "{blocks}");
        assert_eq!(bench.model.requests().len(), requests, "{blocks}");
        let expected: Vec<u32> = (0..u32::try_from(requests).unwrap()).collect();
        assert_eq!(*holds.lock().unwrap(), expected, "{blocks}");
        assert_replays(&bench, &stage).await;
        let seen = end(&bench, stage).await;
        assert_eq!(count(&seen, "warning"), warnings, "{blocks}");
    }
}

#[tokio::test]
async fn panic_in_a_hook_denies_where_denying_is_safe() {
    for place in HookEvent::ALL.iter().copied() {
        let mut bench = hooked(call_and_say(), HookEvent::ALL, move |occasion| {
            assert!(occasion.moment.event() != place, "the hook panics");
            Some(HookResult::Pass)
        })
        .tool(PanickingTool::new(SideEffect::None));
        bench.policy = ask_all();
        if place == HookEvent::ToolError {
            bench.policy = posse_actors::testing::allow_all();
        }
        let (stage, ending) = run(&bench).await;
        let answered = matches!(ending, Ending::Answered(_));
        let ran = results(&bench).contains(&"a".to_owned());
        let (goes_on, runs) = match place {
            HookEvent::SessionStart
            | HookEvent::UserPromptSubmit
            | HookEvent::BeforeModelRequest
            | HookEvent::AfterModelResponse => (false, false),
            HookEvent::PreToolUse | HookEvent::PermissionRequest | HookEvent::PostToolUse => {
                (true, false)
            }
            HookEvent::ToolError | HookEvent::Stop | HookEvent::SessionEnd => (true, true),
        };
        assert_eq!((answered, ran), (goes_on, runs), "{place:?}");
        let seen = end(&bench, stage).await;
        let failed = usize::from(place != HookEvent::ToolError);
        assert_eq!(count(&seen, "hook.failed"), failed, "{place:?}: {:?}", hook_events(&seen));
    }
}
