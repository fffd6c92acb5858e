//! Questions and answers: each is answered once, and what runs is what was agreed to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use posse_actors::conversation::{Prompt, QuestionId};
use posse_actors::event::{Announcement, DecisionSource, Event, Grant, Scope};
use posse_actors::permission_coordinator::{AnswerError, HumanDecision};
use posse_actors::ports::{Action, AnswerSource, PermissionQuestion, Situation, Verdict};
use posse_actors::replay::replay;
use posse_actors::testing::{
    ChangingTool, EchoTool, ModelStep, PolicyFn, RunCounter, SessionBuilder, WritingTool, ask_all,
    test_confinement, types,
};

use crate::support::{Do, count, end, play, quick, soon};

fn writing(steps: Vec<ModelStep>, run_counter: &RunCounter) -> SessionBuilder {
    let mut bench = SessionBuilder::new(steps).tool(WritingTool::new(run_counter.clone()));
    bench.policy = ask_all();
    bench.limits = quick();
    bench
}

fn permissions(seen: &[Arc<Announcement>]) -> Vec<String> {
    types(seen).into_iter().filter(|kind| kind.starts_with("permission.")).collect()
}

#[tokio::test]
async fn each_permission_answer_has_its_effect() {
    for (asking, habit, runs, ends) in [
        (AnswerSource::Human, Do::Allow, 2, ["permission.granted", "permission.granted"]),
        (AnswerSource::Human, Do::Deny, 0, ["permission.denied", "permission.denied"]),
        (AnswerSource::Yes, Do::Deny, 2, ["permission.granted", "permission.granted"]),
        (AnswerSource::Nobody, Do::Allow, 0, ["permission.denied", "permission.denied"]),
    ] {
        let run_counter = RunCounter::default();
        let script = vec![ModelStep::calls("write", &["a", "b"]), ModelStep::say("done")];
        let mut bench = writing(script, &run_counter);
        bench.asking = asking;
        let mut stage = bench.start().await;
        let outcome = play(&mut stage, "go", &[("permission.requested", habit)]).await.unwrap();
        let seen = end(&bench, stage).await;
        assert_eq!(run_counter.began.load(Ordering::SeqCst), runs, "{asking:?} {habit:?}");
        let expected =
            ["permission.requested", ends[0], "permission.requested", ends[1]].map(str::to_owned);
        assert_eq!(permissions(&seen), expected, "{asking:?} {habit:?}");
        let unanswered = if asking == AnswerSource::Nobody { 2 } else { 0 };
        assert_eq!((outcome.unanswered, outcome.not_by_yes), (unanswered, 0));
        let nobody = |event: &Event| matches!(event, Event::PermissionDenied { by, .. } if *by == DecisionSource::Nobody);
        let denials = seen.iter().filter(|seen| nobody(seen.event())).count();
        assert_eq!(denials, unanswered as usize);
    }
}

#[tokio::test]
async fn yes_flag_does_not_cover_everything() {
    let run_counter = RunCounter::default();
    let mut bench =
        writing(vec![ModelStep::call("write", "{}"), ModelStep::say("done")], &run_counter);
    bench.asking = AnswerSource::Yes;
    bench.policy = Arc::new(PolicyFn(|_: &Action, _: &Situation<'_>| {
        Verdict::Ask(PermissionQuestion {
            reason: "a protected path".to_owned(),
            scopes: vec![Scope::Once],
            grant: None,
            grants_part: false,
            grant_text: Box::default(),
            yes_covers: false,
            rule: Some(serde_json::json!({"allow": "x"})),
            confinement: test_confinement(),
        })
    }));
    let mut stage = bench.start().await;
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    assert_eq!((outcome.unanswered, outcome.not_by_yes), (1, 1));
    let seen = end(&bench, stage).await;
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    assert_eq!(permissions(&seen), ["permission.requested", "permission.denied"]);
}

#[tokio::test]
async fn grant_answers_open_and_later_requests() {
    // Read-only calls ask side by side, so that several questions are open at once.
    let script = vec![
        ModelStep::calls("echo", &["a", "b", "c"]),
        ModelStep::call("echo", "{}"),
        ModelStep::say("done"),
    ];
    let mut bench = SessionBuilder::new(script);
    bench.policy = ask_all();
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..3 {
        let asked = stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
        let Event::PermissionRequested { request_id, .. } = asked.event() else { unreachable!() };
        open.push(request_id.clone());
    }
    let session = stage.session.clone();
    let answer = async |id: &QuestionId, scope| {
        session.answer(id.clone(), HumanDecision::Allow(scope)).await
    };
    let unknown = QuestionId::new("unknown");
    assert_eq!(answer(&unknown, Scope::Once).await, Err(AnswerError::NotPending(unknown.clone())));
    assert_eq!(
        answer(&open[1], Scope::Global).await,
        Err(AnswerError::ScopeNotOffered(Scope::Global)),
        "and the question stays open"
    );
    assert_eq!(answer(&open[1], Scope::Session).await, Ok(()));
    for id in &open {
        assert_eq!(answer(id, Scope::Once).await, Err(AnswerError::Answered(id.clone())));
    }
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.requested"), 3);
    assert_eq!(count(&seen, "permission.granted"), 1);
    assert_eq!(count(&seen, "permission.withdrawn"), 2);
    assert_eq!(count(&seen, "tool.completed"), 4);
}

#[tokio::test]
async fn asks_again_if_the_effect_of_the_call_changed() {
    for (changes, questions, runs) in [(0, 1, 1), (2, 3, 1), (100, 4, 0)] {
        let run_counter = RunCounter::default();
        let mut bench =
            SessionBuilder::new(vec![ModelStep::call("change", "{}"), ModelStep::say("done")])
                .tool(ChangingTool::new(run_counter.clone(), changes));
        bench.policy = ask_all();
        let mut stage = bench.start().await;
        play(&mut stage, "go", &[("permission.requested", Do::Allow)]).await.unwrap();
        let seen = end(&bench, stage).await;
        assert_eq!(count(&seen, "permission.requested"), questions, "{changes} changes");
        assert_eq!(run_counter.began.load(Ordering::SeqCst), runs, "{changes} changes");
        let digests: Vec<_> = seen
            .iter()
            .filter_map(|seen| match seen.event() {
                Event::PermissionRequested { digest, .. } => Some(digest.clone()),
                Event::ToolStarted { digest, .. } => Some(format!("runs {digest}")),
                _ => None,
            })
            .collect();
        if let [.., agreed, run] = &digests[..]
            && runs == 1
        {
            assert_eq!(*run, format!("runs {agreed}"), "what runs is what was agreed to");
        }
    }
}

#[tokio::test]
async fn approval_does_not_override_a_later_deny() {
    let run_counter = RunCounter::default();
    let mut bench =
        writing(vec![ModelStep::call("write", "{}"), ModelStep::say("done")], &run_counter);
    let (asking, judged) = (ask_all(), std::sync::atomic::AtomicU32::new(0));
    bench.policy = Arc::new(PolicyFn(move |action: &Action, situation: &Situation<'_>| {
        if judged.fetch_add(1, Ordering::SeqCst) == 0 {
            return asking.judge(action, situation);
        }
        Verdict::Deny { reason: "no longer".to_owned(), rule: "time".to_owned() }
    }));
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[("permission.requested", Do::Allow)]).await.unwrap();
    end(&bench, stage).await;
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    assert!(format!("{:?}", bench.model.requests()[1]).contains("Denied: no longer (rule: time)"));
}

#[tokio::test]
async fn excess_permission_requests_are_denied() {
    let mut bench = SessionBuilder::new(vec![
        ModelStep::calls("echo", &["a", "b", "c"]),
        ModelStep::say("done"),
    ])
    .tool(EchoTool::new());
    bench.policy = ask_all();
    bench.limits.questions_max = 2;
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    stage.until(|event| matches!(event, Event::PermissionDenied { .. })).await;
    stage.session.interrupt();
    soon("stopping", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.withdrawn"), 2);
}

#[tokio::test]
async fn grant_survives_a_crash_of_the_coordinator() {
    let script = vec![
        ModelStep::call("write", "{}"),
        ModelStep::call("write", "{}"),
        ModelStep::say("done"),
    ];
    let run_counter = RunCounter::default();
    let bench = writing(script, &run_counter);
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[("permission.requested", Do::Grant)]).await.unwrap();
    bench.fail.arm("PermissionCoordinator", "Answer", 1);
    let nothing =
        stage.session.answer(QuestionId::new("x"), HumanDecision::Deny { reason: None }).await;
    assert!(nothing.is_err());
    play(&mut stage, "again", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.requested"), 1);
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 2);
}

/// Answers with grants for one part of a call after the other: the call runs after the last one.
#[tokio::test]
async fn grants_for_parts_of_a_call_are_asked_for_one_after_the_other() {
    const PARTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let run_counter = RunCounter::default();
    let script = vec![
        ModelStep::call("write", "{}"),
        ModelStep::call("write", "{}"),
        ModelStep::say("done"),
    ];
    let mut bench = writing(script, &run_counter);
    bench.policy = Arc::new(PolicyFn(|_: &Action, situation: &Situation<'_>| {
        let is_granted = |part: &&str| situation.grants.iter().any(|grant| grant.target == **part);
        let mut missing = PARTS.into_iter().filter(|part| !is_granted(part));
        let Some(part) = missing.next() else { return Verdict::Allow(test_confinement()) };
        let grant = Grant {
            operation: "execute".to_owned(),
            target: part.to_owned(),
            scope: Scope::Session,
            agent: None,
        };
        Verdict::Ask(PermissionQuestion {
            reason: part.to_owned(),
            scopes: vec![Scope::Once, Scope::Session],
            grant: Some(grant),
            grants_part: missing.next().is_some(),
            grant_text: Box::default(),
            yes_covers: true,
            rule: None,
            confinement: test_confinement(),
        })
    }));
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[("permission.requested", Do::Grant)]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 2);
    let parts: Vec<bool> = seen
        .iter()
        .filter_map(|seen| match seen.event() {
            Event::PermissionGranted { grants_part, .. } => Some(*grants_part),
            _ => None,
        })
        .collect();
    assert_eq!(parts, [true, true, true, true, true, false]);
    // A session that is resumed after the first answers does not take them for the whole call.
    let records = bench.journal.records();
    let answered = |nth: usize| {
        let is_answer = |event: &Event| matches!(event, Event::PermissionGranted { .. });
        let mut answers = records.iter().filter(|record| is_answer(&record.event));
        let last = answers.nth(nth).unwrap().record;
        let replayed = replay(&records[..usize::try_from(last).unwrap()], None);
        (replayed.grants.len(), replayed.open_calls[0].approved.is_some())
    };
    assert_eq!((answered(0), answered(4), answered(5)), ((1, false), (5, false), (6, true)));
}
