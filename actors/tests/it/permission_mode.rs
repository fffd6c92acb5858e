//! Changes of the permission mode while a session runs: the record, open questions, later calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use posse_actors::conversation::Prompt;
use posse_actors::event::{Announcement, Event, PermissionMode, SandboxTier};
use posse_actors::permission_coordinator::{HumanDecision, ModeChange, ModeError};
use posse_actors::ports::{Action, Confinement, NetworkAccess, Policy, Situation, Verdict};
use posse_actors::testing::{
    ModelStep, RunCounter, RunningSession, SessionBuilder, WritingTool, ask_all, test_confinement,
};

use crate::support::{count, end, quick, soon};

/// Policy that asks in `ask` and in `edits`, where calls have another confinement, allows in `auto`,
/// and denies in the other modes.
struct ByMode(Arc<dyn Policy>);

impl Policy for ByMode {
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict {
        let asked = self.0.judge(action, situation);
        match (situation.mode, asked) {
            (PermissionMode::Auto, _) => Verdict::Allow(test_confinement()),
            (PermissionMode::Ask, asked) => asked,
            (PermissionMode::Edits, Verdict::Ask(mut question)) => {
                let network = NetworkAccess::Host;
                question.confinement = Confinement { network, ..test_confinement() };
                Verdict::Ask(question)
            }
            (mode, _) => {
                Verdict::Deny { reason: format!("not in {mode}"), rule: "mode".to_owned() }
            }
        }
    }

    fn restriction(&self, mode: PermissionMode, _: &SandboxTier) -> Option<String> {
        (mode == PermissionMode::Auto).then(|| "not everything".to_owned())
    }
}

fn bench(calls: usize, run_counter: &RunCounter) -> SessionBuilder {
    let steps = (0..calls).map(|_| ModelStep::call("write", "{}"));
    let steps = steps.chain([ModelStep::say("done")]).collect();
    let mut bench = SessionBuilder::new(steps).tool(WritingTool::new(run_counter.clone()));
    bench.policy = Arc::new(ByMode(ask_all()));
    bench.limits = quick();
    bench
}

async fn asked(stage: &mut RunningSession) -> Arc<Announcement> {
    stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await
}

/// The recorded changes: the mode before, the mode from then on, and who changed it.
fn changes(seen: &[Arc<Announcement>]) -> Vec<(PermissionMode, PermissionMode, Option<String>)> {
    let change = |seen: &Arc<Announcement>| match seen.event() {
        Event::PermissionModeChanged { from, mode, changed_by, .. } => {
            assert!(seen.record().is_some(), "a change is recorded");
            Some((*from, *mode, changed_by.clone()))
        }
        _ => None,
    };
    seen.iter().filter_map(change).collect()
}

#[tokio::test]
async fn wider_mode_decides_open_and_later_questions() {
    let run_counter = RunCounter::default();
    let bench = bench(2, &run_counter);
    let mut stage = bench.start().await;
    let session = stage.session.clone();
    assert_eq!(session.permission_mode(), PermissionMode::Ask);
    let running = session.prompt(Prompt::text("go")).await.unwrap();
    asked(&mut stage).await;
    let changed = session.set_permission_mode(PermissionMode::Auto, Some("b".to_owned())).await;
    let change = changed.unwrap();
    let restriction = Some("not everything".to_owned());
    assert_eq!(change, ModeChange { mode: PermissionMode::Auto, is_same: false, restriction });
    assert_eq!(session.permission_mode(), PermissionMode::Auto);
    let again = session.set_permission_mode(PermissionMode::Auto, None).await.unwrap();
    assert!(again.is_same);
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    let expected = (PermissionMode::Ask, PermissionMode::Auto, Some("b".to_owned()));
    assert_eq!(changes(&seen), [expected]);
    assert_eq!(count(&seen, "permission.requested"), 1);
    assert_eq!(count(&seen, "permission.withdrawn"), 1);
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 2);
    let ended = session.set_permission_mode(PermissionMode::Plan, None).await;
    assert!(matches!(ended, Err(ModeError::Ended | ModeError::Lost)), "{ended:?}");
}

#[tokio::test]
async fn stricter_mode_denies_open_questions() {
    let run_counter = RunCounter::default();
    let bench = bench(1, &run_counter);
    let mut stage = bench.start().await;
    let session = stage.session.clone();
    let running = session.prompt(Prompt::text("go")).await.unwrap();
    asked(&mut stage).await;
    session.set_permission_mode(PermissionMode::Plan, None).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.denied"), 1);
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    assert!(format!("{:?}", bench.model.requests()[1]).contains("Denied: not in plan"));
}

/// An answer is about the confinement that the question named.
#[tokio::test]
async fn question_with_another_confinement_is_asked_again() {
    let run_counter = RunCounter::default();
    let bench = bench(1, &run_counter);
    let mut stage = bench.start().await;
    let session = stage.session.clone();
    let running = session.prompt(Prompt::text("go")).await.unwrap();
    let first = asked(&mut stage).await;
    session.set_permission_mode(PermissionMode::Edits, None).await.unwrap();
    let second = asked(&mut stage).await;
    let (first, second) = (first.event().question().unwrap(), second.event().question().unwrap());
    assert_ne!(first, second);
    let allow = HumanDecision::Allow(posse_actors::event::Scope::Once);
    assert!(session.answer(first.clone(), allow.clone()).await.is_err());
    session.answer(second.clone(), allow).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.withdrawn"), 1);
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 1);
}

/// A wider mode that is not on disk allows nothing.
#[tokio::test]
async fn wider_mode_waits_for_its_record() {
    let run_counter = RunCounter::default();
    let bench = bench(0, &run_counter);
    let stage = bench.start().await;
    let session = stage.session.clone();
    bench.journal.block_writes();
    let changing = {
        let session = session.clone();
        tokio::spawn(async move { session.set_permission_mode(PermissionMode::Auto, None).await })
    };
    while session.requested_permission_mode() == PermissionMode::Ask {
        tokio::task::yield_now().await;
    }
    assert_eq!(session.permission_mode(), PermissionMode::Ask);
    bench.journal.release();
    soon("the change", changing).await.unwrap().unwrap();
    assert_eq!(session.permission_mode(), PermissionMode::Auto);
    end(&bench, stage).await;
}

/// A change that the coordinator loses in a crash is reported as lost, and can be made again.
#[tokio::test]
async fn change_that_is_lost_in_a_crash_can_be_made_again() {
    let run_counter = RunCounter::default();
    let bench = bench(1, &run_counter);
    bench.fail.arm("PermissionCoordinator", "SetMode", 1);
    let mut stage = bench.start().await;
    let session = stage.session.clone();
    let lost = session.set_permission_mode(PermissionMode::Auto, None).await;
    assert_eq!(lost, Err(ModeError::Lost));
    assert_eq!(session.permission_mode(), PermissionMode::Ask);
    soon("the restart", async {
        while session.set_permission_mode(PermissionMode::Auto, None).await.is_err() {}
    })
    .await;
    soon("the run", stage.play("go")).await;
    let seen = end(&bench, stage).await;
    assert_eq!(changes(&seen).len(), 1);
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 1);
}
