//! Questions and plans of the model: the queue, their answers, and what a plan changes.

use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::{Message, Prompt, QuestionId, text_of};
use posse_actors::event::{
    Announcement, DecisionSource, Event, PLAN_MODES, PermissionMode, QuestionAnswer,
    QuestionOption, Scope, UserQuestion, UserReply, UserRequest,
};
use posse_actors::permission_coordinator::{AnswerError, HumanDecision};
use posse_actors::ports::AnswerSource;
use posse_actors::replay::replay;
use posse_actors::root_session::Resumption;
use posse_actors::testing::{
    AskingTool, ManualClock, MemoryStore, ModelStep, RunningSession, SessionBuilder, types,
};

use crate::support::{count, end, play, quick, soon};

fn questions(timeout_seconds: Option<u64>) -> UserRequest {
    let option = |label: &str| QuestionOption { label: label.to_owned(), description: None };
    UserRequest::Questions {
        questions: vec![UserQuestion {
            question: "Which one?".to_owned(),
            options: vec![option("a"), option("b")],
            multiple: false,
            free_text: false,
            default: None,
        }],
        timeout_seconds,
    }
}

fn plan() -> UserRequest {
    UserRequest::Plan { plan: "1. do it".to_owned(), modes: PLAN_MODES.to_vec() }
}

fn bench(request: UserRequest) -> SessionBuilder {
    let steps = vec![ModelStep::call("ask", "{}"), ModelStep::say("done")];
    let mut bench = SessionBuilder::new(steps).tool(AskingTool::new(request));
    bench.limits = quick();
    bench
}

fn chosen(label: &str) -> HumanDecision {
    let answer = QuestionAnswer { selected: vec![label.to_owned()], text: None };
    HumanDecision::Reply(UserReply::Questions { answers: vec![answer] })
}

fn accepted(mode: PermissionMode) -> HumanDecision {
    HumanDecision::Reply(UserReply::Plan { mode, plan: None })
}

async fn asked(stage: &mut RunningSession) -> QuestionId {
    let asked = stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
    let Event::PermissionRequested { request_id, user_request, scopes, .. } = asked.event() else {
        unreachable!()
    };
    assert!(user_request.is_some() && scopes.is_empty());
    request_id.clone()
}

/// The result of the call, as the model reads it.
fn result(bench: &SessionBuilder) -> String {
    let requests = bench.model.requests();
    let text = |message: &Arc<Message>| match &**message {
        Message::Tool { content, .. } => Some(text_of(content)),
        _ => None,
    };
    requests.last().unwrap().iter().rev().find_map(text).unwrap()
}

fn requests(seen: &[Arc<Announcement>]) -> Vec<String> {
    types(seen).into_iter().filter(|kind| kind.starts_with("permission.")).collect()
}

#[tokio::test]
async fn only_an_answer_that_fits_ends_a_question() {
    let bench = bench(questions(None));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let id = asked(&mut stage).await;
    for (decision, why) in [
        (HumanDecision::Allow(Scope::Once), "question.answer"),
        (chosen("c"), "no option"),
        (accepted(PermissionMode::Ask), "question.answer"),
    ] {
        match stage.session.answer(id.clone(), decision).await {
            Err(AnswerError::Invalid(text)) => assert!(text.contains(why), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    stage.session.answer(id.clone(), chosen("b")).await.unwrap();
    let again = stage.session.answer(id.clone(), chosen("a")).await;
    assert_eq!(again, Err(AnswerError::Answered(id)));
    soon("the run", running.outcome()).await.unwrap();
    assert!(result(&bench).contains(r#"selected: ["b"]"#), "{}", result(&bench));
    let seen = end(&bench, stage).await;
    assert_eq!(requests(&seen), ["permission.requested", "permission.granted"]);
    let reply = seen.iter().find_map(|seen| match seen.event() {
        Event::PermissionGranted { reply, by, .. } => Some((reply.clone(), by.clone())),
        _ => None,
    });
    let (reply, by) = reply.unwrap();
    assert_eq!((HumanDecision::Reply(*reply.unwrap()), by), (chosen("b"), DecisionSource::User));
}

#[tokio::test]
async fn refusal_carries_words_and_the_call_succeeds() {
    let bench = bench(questions(None));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let id = asked(&mut stage).await;
    let words = Some("look in the README".to_owned());
    stage.session.answer(id, HumanDecision::Deny { reason: words }).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    assert_eq!(result(&bench), r#"Some(Refused(Some("look in the README")))"#);
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "tool.completed"), 1);
}

#[tokio::test]
async fn nobody_is_asked_without_a_person_and_the_run_succeeds() {
    for asking in [AnswerSource::Nobody, AnswerSource::Yes] {
        for request in [questions(Some(60)), plan()] {
            let mut bench = bench(request);
            bench.asking = asking;
            let mut stage = bench.start().await;
            let outcome = play(&mut stage, "go", &[]).await.unwrap();
            assert_eq!(
                (outcome.unanswered, outcome.not_by_yes),
                (0, 0),
                "no permission is missing"
            );
            assert!(result(&bench).contains("no user can be asked"), "{}", result(&bench));
            let seen = end(&bench, stage).await;
            assert_eq!(requests(&seen), ["permission.requested", "permission.denied"]);
            assert_eq!(count(&seen, "tool.completed"), 1);
        }
    }
}

#[tokio::test]
async fn locked_mode_asks_nothing_and_ends_open_questions() {
    let bench = bench(questions(None));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    asked(&mut stage).await;
    // Another mode leaves the question open.
    stage.session.set_permission_mode(PermissionMode::Auto, None).await.unwrap();
    stage.session.set_permission_mode(PermissionMode::Locked, None).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    assert!(result(&bench).contains("the permission mode is locked"), "{}", result(&bench));
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.denied"), 1);
}

#[tokio::test]
async fn time_for_an_answer_passes() {
    let clock = Arc::new(ManualClock::default());
    let mut bench = bench(questions(Some(60)));
    bench.clock = Arc::clone(&clock) as Arc<dyn posse_actors::ports::Clock>;
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let id = asked(&mut stage).await;
    // The timer starts when the question is in the queue, shortly after the event.
    soon("the timer", async {
        while clock.next_wake() != Some(Duration::from_mins(1)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    clock.advance(Duration::from_secs(61));
    soon("the run", running.outcome()).await.unwrap();
    assert_eq!(result(&bench), "Some(TimedOut)");
    assert_eq!(stage.session.answer(id.clone(), chosen("a")).await, Err(AnswerError::Answered(id)));
    let seen = end(&bench, stage).await;
    let by = seen.iter().find_map(|seen| match seen.event() {
        Event::PermissionDenied { by, is_user_request, .. } => Some((by.clone(), *is_user_request)),
        _ => None,
    });
    assert_eq!(by, Some((DecisionSource::Timeout, true)));
}

#[tokio::test]
async fn accepted_plan_changes_the_mode_after_its_record() {
    let bench = bench(plan());
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let id = asked(&mut stage).await;
    let refused = stage.session.answer(id.clone(), accepted(PermissionMode::Locked)).await;
    assert!(matches!(refused, Err(AnswerError::Invalid(_))), "{refused:?}");
    assert_eq!(stage.session.permission_mode(), PermissionMode::Ask);
    let by = Some("process 7".to_owned());
    let answered = stage.session.answer_by(id, accepted(PermissionMode::Edits), by.clone());
    answered.await.unwrap();
    assert_eq!(stage.session.permission_mode(), PermissionMode::Edits);
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    let expected = ["permission.requested", "permission.granted", "permission.mode_changed"];
    assert_eq!(requests(&seen), expected);
    let changed = seen.iter().find_map(|seen| match seen.event() {
        Event::PermissionModeChanged { from, mode, changed_by, .. } => {
            Some((*from, *mode, changed_by.clone()))
        }
        _ => None,
    });
    assert_eq!(changed, Some((PermissionMode::Ask, PermissionMode::Edits, by)));
    let started = replay(&bench.journal.records(), None).started.unwrap();
    assert_eq!(started.permission_mode, Some(PermissionMode::Edits), "also after a resume");
}

#[tokio::test]
async fn question_of_a_killed_process_is_asked_again_under_its_id() {
    let first = bench(questions(None));
    let mut stage = first.start().await;
    let _running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let id = asked(&mut stage).await;
    // The journal of a killed process ends here.
    let records = first.journal.records();
    stage.session.interrupt();
    end(&first, stage).await;

    let mut second = bench(questions(None));
    second.model =
        Arc::new(posse_actors::testing::ScriptedModel::new(vec![ModelStep::say("done")]));
    second.journal = Arc::new(MemoryStore::of(records.clone()));
    second.process = 2;
    second.resumption =
        Some(Resumption { replayed: replay(&records, None), ..Resumption::default() });
    let mut stage = second.start().await;
    let running = stage.session.resume().await.unwrap();
    assert_eq!(asked(&mut stage).await, id);
    stage.session.answer(id, chosen("a")).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    assert!(result(&second).contains(r#"selected: ["a"]"#), "{}", result(&second));
}
