//! Trials: a person lets a call run in a throw-away view before the answer to its request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use posse_actors::conversation::{Prompt, QuestionId, text_of};
use posse_actors::event::{Event, Scope, TrialOffer};
use posse_actors::permission_coordinator::{AnswerError, HumanDecision};
use posse_actors::ports::{
    AnswerSource, CallContext, CallTrial, Confinement, PermittedCall, PortFuture, Prepared,
    RunContext, Tool, ToolError, ToolOutput, ToolSpec,
};
use posse_actors::testing::{
    ModelStep, RunCounter, RunningSession, SessionBuilder, WritingTool, ask_all,
};
use serde_json::Value;
use tokio::sync::Notify;

use crate::support::{count, end, quick, soon};

/// Counters of trials: begun, and dropped with their result.
#[derive(Clone, Default)]
struct TrialCounter {
    begun: Arc<AtomicU32>,
    dropped: Arc<AtomicU32>,
    /// If it is set, a trial waits for it.
    held: Option<Arc<Notify>>,
    fails: bool,
}

struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Payload that keeps a trial.
struct Kept(#[expect(dead_code, reason = "counts its drop")] Dropped);

/// The tool `write`, whose calls can be tried.
struct TriableTool {
    tool: WritingTool,
    counter: TrialCounter,
}

impl Tool for TriableTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn prepare(
        &self,
        arguments: Value,
        context: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>> {
        self.tool.prepare(arguments, context)
    }

    fn can_try(&self, _: &Prepared, _: &Confinement) -> bool {
        true
    }

    fn try_call(&self, _: PermittedCall, _: RunContext) -> PortFuture<Result<CallTrial, String>> {
        let counter = self.counter.clone();
        Box::pin(async move {
            let kept = Dropped(Arc::clone(&counter.dropped));
            counter.begun.fetch_add(1, Ordering::SeqCst);
            if let Some(held) = counter.held {
                held.notified().await;
            }
            if counter.fails {
                return Err("no view".to_owned());
            }
            Ok(CallTrial {
                summary: "1 modified (exit 0)".to_owned(),
                exit_code: Some(0),
                output: "said".to_owned(),
                changes: Vec::new(),
                diff: "modified a\n".to_owned(),
                kept: Some(Box::new(Kept(kept))),
            })
        })
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        let summary = call.action().summary.clone();
        let payload = call.into_payload();
        if payload.is::<Kept>() {
            return Box::pin(async move { ToolOutput::text(format!("kept: {summary}")) });
        }
        Box::pin(async { ToolOutput::text("ran") })
    }
}

fn bench(counter: &TrialCounter) -> SessionBuilder {
    let script = vec![ModelStep::calls("write", &["a"]), ModelStep::say("done")];
    let tool = WritingTool::new(RunCounter::default());
    let mut bench =
        SessionBuilder::new(script).tool(TriableTool { tool, counter: counter.clone() });
    bench.policy = ask_all();
    bench.limits = quick();
    bench
}

/// Waits for the next permission request: its id, detail and offer.
async fn asked(stage: &mut RunningSession) -> (QuestionId, String, Option<TrialOffer>) {
    let asked = stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
    let Event::PermissionRequested { request_id, detail, trial, .. } = asked.event() else {
        unreachable!()
    };
    (request_id.clone(), detail.clone(), trial.clone())
}

#[tokio::test]
async fn request_returns_under_its_id_with_the_result_of_the_trial() {
    for (decision, result, dropped_before_end) in [
        (HumanDecision::Keep, "kept: keep the trial: write a", 1),
        (HumanDecision::Allow(Scope::Once), "ran", 1),
        (HumanDecision::Deny { reason: None }, "Denied: the user said no", 1),
    ] {
        let counter = TrialCounter::default();
        let bench = bench(&counter);
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        let (id, detail, offer) = asked(&mut stage).await;
        assert_eq!((detail.as_str(), offer), ("a", Some(TrialOffer::Try)));
        let early = stage.session.answer(id.clone(), HumanDecision::Keep).await;
        assert!(matches!(early, Err(AnswerError::Invalid(_))), "{early:?}");
        stage.session.answer(id.clone(), HumanDecision::Try).await.unwrap();
        let (again, detail, offer) = asked(&mut stage).await;
        assert_eq!((&again, offer), (&id, Some(TrialOffer::Keep)));
        for part in [
            "1 modified (exit 0)\nmodified a\noutput of the command:\n| said\n",
            "can behave differently",
        ] {
            assert!(detail.contains(part), "{detail}");
        }
        let twice = stage.session.answer(id.clone(), HumanDecision::Try).await;
        assert!(matches!(twice, Err(AnswerError::Invalid(_))), "{twice:?}");
        stage.session.answer(id, decision.clone()).await.unwrap();
        soon("the run", running.outcome()).await.unwrap();
        assert_eq!(counter.dropped.load(Ordering::SeqCst), dropped_before_end, "{decision:?}");
        let seen = end(&bench, stage).await;
        assert_eq!(
            (count(&seen, "permission.requested"), count(&seen, "permission.tried")),
            (2, 1)
        );
        let result_of = |event: &Event| match event {
            Event::ToolCompleted { content, .. } | Event::ToolFailed { content, .. } => {
                Some(text_of(content))
            }
            _ => None,
        };
        let told = seen.iter().find_map(|seen| result_of(seen.event())).unwrap();
        assert!(told.starts_with(result), "{told}");
        let keeps = seen
            .iter()
            .any(|seen| matches!(seen.event(), Event::PermissionGranted { keeps_trial: true, .. }));
        assert_eq!(keeps, decision == HumanDecision::Keep);
    }
}

#[tokio::test]
async fn failed_trial_offers_no_other() {
    let counter = TrialCounter { fails: true, ..TrialCounter::default() };
    let bench = bench(&counter);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let (id, ..) = asked(&mut stage).await;
    stage.session.answer(id.clone(), HumanDecision::Try).await.unwrap();
    let (_, detail, offer) = asked(&mut stage).await;
    assert!(detail.contains("it could not be tried: no view"), "{detail}");
    assert_eq!(offer, None);
    stage.session.answer(id, HumanDecision::Allow(Scope::Once)).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    end(&bench, stage).await;
}

#[tokio::test]
async fn interrupt_drops_a_trial_and_answers_meanwhile_do_not_count() {
    let held = Some(Arc::<Notify>::default());
    let counter = TrialCounter { held, ..TrialCounter::default() };
    let bench = bench(&counter);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let (id, ..) = asked(&mut stage).await;
    stage.session.answer(id.clone(), HumanDecision::Try).await.unwrap();
    soon("the trial", async {
        while counter.begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let meanwhile = stage.session.answer(id, HumanDecision::Allow(Scope::Once)).await;
    assert!(matches!(meanwhile, Err(AnswerError::Invalid(_))), "{meanwhile:?}");
    stage.session.interrupt();
    soon("the run", running.outcome()).await;
    assert_eq!(counter.dropped.load(Ordering::SeqCst), 1);
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.withdrawn"), 1);
    assert_eq!(count(&seen, "tool.started"), 0);
}

#[tokio::test]
async fn nobody_is_offered_a_trial() {
    let counter = TrialCounter::default();
    let mut bench = bench(&counter);
    bench.asking = AnswerSource::Nobody;
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    assert_eq!(asked(&mut stage).await.2, None);
    soon("the run", running.outcome()).await.unwrap();
    end(&bench, stage).await;
    assert_eq!(counter.begun.load(Ordering::SeqCst), 0);
}
