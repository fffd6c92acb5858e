//! Permission requests about edits, whose hunks a person answers one by one.

use std::any::Any;
use std::future::ready;
use std::sync::{Arc, Mutex};

use posse_actors::conversation::{Prompt, QuestionId, text_of};
use posse_actors::event::{EditHunk, Event, HUNKS_MAX, HunkAnswer, Scope, StoredRecord};
use posse_actors::permission_coordinator::{AnswerError, HumanDecision};
use posse_actors::ports::{
    AnswerSource, CallContext, ChosenHunks, PermittedCall, PortFuture, Prepared, RunContext, Tool,
    ToolError, ToolOutput, ToolSpec,
};
use posse_actors::replay::replay;
use posse_actors::root_session::Resumption;
use posse_actors::testing::{
    MemoryStore, ModelStep, RunCounter, RunningSession, SessionBuilder, WritingTool, ask_all,
};
use serde_json::Value;

use crate::support::{check_pairs, count, end, quick, soon};

/// Effects of all runs, in their order.
type Effects = Arc<Mutex<Vec<String>>>;

/// The tool `write`, whose calls have hunks.
struct HunkTool {
    tool: WritingTool,
    hunks: usize,
    effects: Effects,
    /// Number of the next preparations whose effect is another one.
    changes: Mutex<u32>,
}

/// Payload of a reduced call.
struct Chosen(Vec<HunkAnswer>);

impl Tool for HunkTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn prepare(
        &self,
        arguments: Value,
        context: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>> {
        let prepared = self.tool.prepare(arguments, context);
        let change = {
            let mut changes = self.changes.lock().unwrap();
            *changes = changes.saturating_sub(1);
            *changes
        };
        Box::pin(async move {
            let mut prepared = prepared.await?;
            prepared.action.digest = format!("{} {change}", prepared.action.digest);
            Ok(prepared)
        })
    }

    fn hunks(&self, _: &Prepared) -> Vec<EditHunk> {
        let hunk = |line| EditHunk { old_start: line, old_lines: 1, ..EditHunk::default() };
        (1..=self.hunks as u64).map(hunk).collect()
    }

    fn choose_hunks(
        &self,
        payload: Box<dyn Any + Send>,
        answers: Vec<HunkAnswer>,
    ) -> PortFuture<Result<ChosenHunks, ToolError>> {
        assert!(payload.is::<String>(), "the payload is that of the prepared call");
        let summary = format!("write {}", HunkAnswer::summary(&answers));
        Box::pin(ready(Ok(ChosenHunks { summary, payload: Box::new(Chosen(answers)) })))
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        let summary = call.action().summary.clone();
        let effect = match call.into_payload().downcast::<Chosen>() {
            Ok(chosen) => format!("{:?}", chosen.0),
            Err(_) => "whole".to_owned(),
        };
        self.effects.lock().unwrap().push(effect.clone());
        Box::pin(async move { ToolOutput::text(format!("{summary}: {effect}")) })
    }
}

fn bench(hunks: usize, changes: u32, effects: &Effects) -> SessionBuilder {
    let script = vec![ModelStep::calls("write", &["a"]), ModelStep::say("done")];
    let tool = WritingTool::new(RunCounter::default());
    let (effects, changes) = (Arc::clone(effects), Mutex::new(changes));
    let mut bench = SessionBuilder::new(script).tool(HunkTool { tool, hunks, effects, changes });
    bench.policy = ask_all();
    bench.limits = quick();
    bench
}

/// Waits for the next permission request: its id, and the number of hunks.
async fn asked(stage: &mut RunningSession) -> (QuestionId, usize) {
    let asked = stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
    let Event::PermissionRequested { request_id, hunks, .. } = asked.event() else {
        unreachable!()
    };
    (request_id.clone(), hunks.len())
}

fn result_of(event: &Event) -> Option<String> {
    match event {
        Event::ToolCompleted { content, .. } | Event::ToolFailed { content, .. } => {
            Some(text_of(content))
        }
        _ => None,
    }
}

fn some() -> Vec<HunkAnswer> {
    vec![HunkAnswer::Yes, HunkAnswer::No, HunkAnswer::Replace("mine".to_owned())]
}

#[tokio::test]
async fn answered_hunks_alone_are_made_and_recorded_before() {
    let effects = Effects::default();
    let bench = bench(3, 0, &effects);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let (id, hunks) = asked(&mut stage).await;
    assert_eq!(hunks, 3);
    stage.session.answer(id, HumanDecision::Hunks(some())).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    assert_eq!(*effects.lock().unwrap(), [r#"[Yes, No, Replace("mine")]"#]);
    let seen = end(&bench, stage).await;
    let position = |wanted: &dyn Fn(&Event) -> bool| {
        seen.iter().position(|seen| wanted(seen.event())).unwrap()
    };
    let granted = position(&|event| {
        let Event::PermissionGranted { hunks, grant, scope, .. } = event else { return false };
        assert_eq!((hunks, grant, *scope), (&some(), &None, Scope::Once));
        true
    });
    let started = position(&|event| {
        let Event::ToolStarted { summary, .. } = event else { return false };
        assert_eq!(summary, "write 2 of 3 hunks, 1 of them changed");
        true
    });
    assert!(granted < started);
    let told = seen.iter().find_map(|seen| result_of(seen.event())).unwrap();
    assert!(told.starts_with("write 2 of 3 hunks"), "{told}");
}

#[tokio::test]
async fn wrong_answers_leave_the_request_open_and_only_no_denies() {
    let effects = Effects::default();
    let bench = bench(2, 0, &effects);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let (id, _) = asked(&mut stage).await;
    for (answers, place) in [
        (vec![], "hunks: 0 for 2 hunks"),
        (some(), "hunks: 3 for 2 hunks"),
        (vec![HunkAnswer::No, HunkAnswer::Replace("\0".to_owned())], "hunks[1].replace"),
    ] {
        let wrong = stage.session.answer(id.clone(), HumanDecision::Hunks(answers)).await;
        let Err(AnswerError::Invalid(why)) = wrong else { panic!("{wrong:?}") };
        assert!(why.starts_with(place), "{why}");
    }
    let none = HumanDecision::Hunks(vec![HunkAnswer::No, HunkAnswer::No]);
    stage.session.answer(id.clone(), none).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    let late = stage.session.answer(id, HumanDecision::Hunks(vec![HunkAnswer::Yes; 2])).await;
    assert!(matches!(late, Err(AnswerError::Answered(_))), "{late:?}");
    let seen = end(&bench, stage).await;
    assert_eq!((count(&seen, "permission.denied"), count(&seen, "tool.started")), (1, 0));
    let told = seen.iter().find_map(|seen| result_of(seen.event())).unwrap();
    assert_eq!(told, "Denied: the user said no to each of its 2 hunks");
    assert!(effects.lock().unwrap().is_empty());
}

#[tokio::test]
async fn hunks_are_offered_to_a_person_and_within_bounds_only() {
    for (asking, hunks, offered) in [
        (AnswerSource::Human, HUNKS_MAX, HUNKS_MAX),
        (AnswerSource::Human, HUNKS_MAX + 1, 0),
        (AnswerSource::Nobody, 2, 0),
        (AnswerSource::Yes, 2, 0),
    ] {
        let mut bench = bench(hunks, 0, &Effects::default());
        bench.asking = asking;
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        let (id, count) = asked(&mut stage).await;
        assert_eq!(count, offered, "{asking:?} {hunks}");
        if offered == 0 && asking == AnswerSource::Human {
            let answer = HumanDecision::Hunks(vec![HunkAnswer::Yes; hunks]);
            let refused = stage.session.answer(id.clone(), answer).await;
            assert!(matches!(refused, Err(AnswerError::Invalid(_))), "{refused:?}");
        }
        if asking == AnswerSource::Human {
            stage.session.answer(id, HumanDecision::Deny { reason: None }).await.unwrap();
        }
        soon("the run", running.outcome()).await.unwrap();
        end(&bench, stage).await;
    }
}

#[tokio::test]
async fn call_that_has_changed_since_the_answer_is_asked_about_again() {
    let effects = Effects::default();
    // The first preparation differs from the second.
    let bench = bench(3, 2, &effects);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let (first, _) = asked(&mut stage).await;
    stage.session.answer(first.clone(), HumanDecision::Hunks(some())).await.unwrap();
    let (second, hunks) = asked(&mut stage).await;
    assert_eq!((first == second, hunks), (false, 3));
    assert!(effects.lock().unwrap().is_empty());
    stage.session.answer(second, HumanDecision::Allow(Scope::Once)).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    assert_eq!(*effects.lock().unwrap(), ["whole"], "the first answer was about another effect");
    end(&bench, stage).await;
}

/// Resumes from `records` in a second process, in which `asking` answers.
async fn resumed(records: &[StoredRecord], asking: AnswerSource) -> Vec<String> {
    let effects = Effects::default();
    let mut bench = bench(3, 0, &effects);
    bench.model = Arc::new(posse_actors::testing::ScriptedModel::new(vec![ModelStep::say("done")]));
    bench.journal = Arc::new(MemoryStore::of(records.to_vec()));
    bench.process = 2;
    bench.asking = asking;
    bench.resumption =
        Some(Resumption { replayed: replay(records, None), ..Resumption::default() });
    let stage = bench.start().await;
    let running = stage.session.resume().await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    stage.end().await;
    let all = bench.journal.records();
    check_pairs(&all);
    assert!(effects.lock().unwrap().is_empty());
    all[records.len()..].iter().filter_map(|record| result_of(&record.event)).collect()
}

#[tokio::test]
async fn resume_between_answer_and_effect_makes_nothing() {
    let bench = bench(3, 0, &Effects::default());
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let (id, _) = asked(&mut stage).await;
    stage.session.answer(id, HumanDecision::Hunks(some())).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    end(&bench, stage).await;
    let records = bench.journal.records();
    let answered = |record: &StoredRecord| matches!(record.event, Event::PermissionGranted { .. });
    let cut = records.iter().position(answered).unwrap() + 1;
    assert!(!records[..cut].iter().any(|r| matches!(r.event, Event::ToolStarted { .. })));
    // Not even where everything else is allowed.
    for asking in [AnswerSource::Human, AnswerSource::Yes, AnswerSource::Nobody] {
        let told = resumed(&records[..cut], asking).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("after the user had chosen some of its hunks"), "{told:?}");
    }
}
