//! Tests of the subagent tree.

use posse_actors::conversation::{CallId, InvocationId, Usage};
use posse_actors::event::{Event, Origin};
use posse_actors::outcome::SubagentOutcome;

use crate::testing::{TestScreen, ms, origin, question};

fn requested(id: &str, target: &str, task: &str) -> Event {
    Event::InvocationRequested {
        child_invocation_id: InvocationId::new(id),
        target: target.to_owned(),
        call_id: CallId::new(format!("call-{id}")),
        provider: "anthropic".to_owned(),
        task: task.to_owned(),
        background: true,
        brief: false,
        workplace: None,
    }
}

fn runs(summary: &str) -> Event {
    Event::ToolStarted {
        call_id: CallId::new("x"),
        name: "tool".to_owned(),
        summary: summary.to_owned(),
        digest: String::new(),
        effect: false,
        coerced: Vec::new(),
    }
}

fn used(tokens: u64) -> Event {
    let usage = Usage { input_tokens: Some(tokens), ..Usage::default() };
    Event::ModelUsage { turn: 1, usage, billing: None }
}

fn ended(id: &str, target: &str, outcome: SubagentOutcome) -> Event {
    Event::DelegationEnded {
        child_invocation_id: InvocationId::new(id),
        target: target.to_owned(),
        outcome,
        turns: 3,
        usage: Usage::default(),
        cost_nano_usd: Some(20_000_000),
        workplace: None,
    }
}

fn main() -> Origin {
    origin("i1", None, "build")
}

#[test]
fn rows_show_task_activity_and_wait() {
    let build = |stage: &mut TestScreen| {
        let first = origin("inv-0007", Some("i1"), "build/worker");
        let second = origin("inv-0008", Some("i1"), "build/worker");
        let third = origin("inv-0009", Some("inv-0007"), "build/worker/explore");
        let fourth = origin("inv-0010", Some("inv-0009"), "build/worker/explore/reviewer");
        stage.happens_in(&main(), requested("inv-0007", "worker", "mend the parser of prices"));
        stage.happens_in(&main(), requested("inv-0008", "worker", "mend the parser of prices"));
        stage.happens_in(&first, requested("inv-0009", "explore", "find who calls the parser"));
        stage.happens_in(&third, requested("inv-0010", "reviewer", "look at the callers"));
        stage.later(5000);
        stage.happens_in(&first, used(45_300));
        stage.happens_in(&first, runs("run cargo test --workspace -- price"));
        stage.happens_in(&second, question("q9", "touch a"));
        stage.happens_in(
            &third,
            Event::ProviderWaiting {
                provider: "anthropic".to_owned(),
                wait_ms: 12_400,
                patience_left_ms: 1_500_000,
                class: "overloaded".to_owned(),
                cause: "503 Service Unavailable".to_owned(),
            },
        );
        let silent = Event::ProviderSilent { provider: "anthropic".to_owned(), silent_ms: 4_000 };
        stage.happens_in(&fourth, silent);
        stage.later(2000);
        // The permission prompt would hide the rows.
        stage.app.prompts = crate::permission_prompt::PermissionPrompts::default();
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn background_agent_outlives_the_run() {
    let mut stage = TestScreen::with_task();
    let child = origin("inv-0007", Some("i1"), "build/worker");
    stage.happens_in(&main(), requested("inv-0007", "worker", "mend it"));
    stage.happens_in(&child, runs("run cargo test"));
    stage.later(9000);
    stage.ends();
    stage.later(2000);
    let screen = stage.screen(100, 30);
    assert!(screen.contains("worker “mend it” · 11 s · run cargo test"), "{screen}");
    assert_eq!(stage.app.next_change(stage.now), Some(ms(1000)), "its age is followed");
    stage.happens_in(&child, used(2100));
    let over = Event::InvocationCompleted {
        result: "mended".to_owned(),
        turns: 3,
        usage: Usage::default(),
    };
    stage.happens_in(&child, over);
    stage.happens_in(&main(), ended("inv-0007", "worker", SubagentOutcome::Done));
    let screen = stage.screen(100, 30);
    let line = "• build/worker “mend it” · done · 11 s · 2.1k tokens · $0.02";
    assert!(screen.contains(line), "{screen}");
    assert!(!screen.contains("· run cargo test"), "{screen}");
    assert_eq!(stage.app.next_change(stage.now), None, "nobody is left");
}

#[test]
fn final_line_shows_the_outcome() {
    let failed = SubagentOutcome::Failed { class: "provider".into(), cause: "no\ncredit".into() };
    let table = [
        (SubagentOutcome::Cancelled, "✗ build/worker “t” · stopped · 0 s"),
        (failed, "✗ build/worker “t” · failed: no credit · 0 s"),
        (
            SubagentOutcome::Waiting { until_ms: None },
            "✗ build/worker “t” · its provider is unavailable · 0 s",
        ),
        (
            SubagentOutcome::Partial { turns: 8, limit: "maxTurns".into() },
            "• build/worker “t” · stopped by the limit maxTurns after 8 replies · 0 s",
        ),
    ];
    for (outcome, line) in table {
        let mut stage = TestScreen::with_task();
        stage.happens_in(&main(), requested("inv-0007", "worker", "t"));
        stage.happens_in(&main(), ended("inv-0007", "worker", outcome));
        let screen = stage.screen(100, 30);
        assert!(screen.contains(line), "{line}:\n{screen}");
    }
}

#[test]
fn excess_agents_are_counted_and_a_new_session_has_none() {
    let mut stage = TestScreen::with_task();
    for nth in 0..20 {
        stage.happens_in(&main(), requested(&format!("inv-{nth:04}"), "worker", "the same"));
    }
    let screen = stage.screen(60, 30);
    assert!(
        screen.contains("worker “the same” #0011") && screen.contains("… and 8 more"),
        "{screen}"
    );
    stage.app.view.begin();
    assert!(!stage.screen(60, 30).contains("worker"));
}
