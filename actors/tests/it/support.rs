//! What holds for every session, and a hand that plays the user.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::{ContentPart, Prompt};
use posse_actors::event::{Announcement, Event, MessageKind, Scope, StoredRecord};
use posse_actors::limits::Limits;
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::replay::replay;
use posse_actors::root_session::{SessionHandle, TurnOutcome};
use posse_actors::testing::{RunningSession, SessionBuilder, history_error, types};

/// Longer than anything here takes; only a hang reaches it.
const HANG: Duration = Duration::from_mins(2);

/// Fails instead of hanging.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(HANG, work).await;
    done.unwrap_or_else(|_| panic!("{what} hangs"))
}

/// Bounds with which nothing waits for long.
pub(crate) fn quick() -> Limits {
    Limits {
        backoff_first: Duration::from_millis(1),
        backoff_max: Duration::from_millis(2),
        delta_interval: Duration::from_millis(1),
        ..Limits::default()
    }
}

/// What the user does about an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Do {
    Allow,
    Grant,
    Deny,
    Interrupt,
    Steer,
    FollowUp,
}

/// When the user does what: after the first event of this type, or each time for answers.
pub(crate) type Habits<'a> = &'a [(&'a str, Do)];

/// Prompts, and plays the user until the outcome. `None` if the session died.
pub(crate) async fn play(
    stage: &mut RunningSession,
    prompt: &str,
    habits: Habits<'_>,
) -> Option<TurnOutcome> {
    soon("the run", async {
        let session = stage.session.clone();
        let running = session.prompt(Prompt::text(prompt)).await.ok()?;
        let mut outcome = std::pin::pin!(running.outcome());
        let mut done = BTreeSet::new();
        loop {
            tokio::select! {
                biased;
                announcement = stage.events.next() => match announcement {
                    Some(announcement) => {
                        stage.seen.push(Arc::clone(&announcement));
                        react(&session, &announcement, habits, &mut done).await;
                    }
                    None => return outcome.await,
                },
                outcome = &mut outcome => return outcome,
            }
        }
    })
    .await
}

async fn react(
    session: &SessionHandle,
    announcement: &Arc<Announcement>,
    habits: Habits<'_>,
    done: &mut BTreeSet<usize>,
) {
    let kind = &types(std::slice::from_ref(announcement))[0];
    for (nth, (when, what)) in habits.iter().enumerate() {
        if when != kind {
            continue;
        }
        let decision = match what {
            Do::Allow => HumanDecision::Allow(Scope::Once),
            Do::Grant => HumanDecision::Allow(Scope::Session),
            Do::Deny => HumanDecision::Deny { reason: None },
            Do::Interrupt | Do::Steer | Do::FollowUp => {
                if done.insert(nth) {
                    act(session, *what).await;
                }
                continue;
            }
        };
        if let Event::PermissionRequested { request_id, .. } = announcement.event() {
            // A coordinator that crashed over the answer asks again.
            session.answer(request_id.clone(), decision).await.ok();
        }
    }
}

async fn act(session: &SessionHandle, what: Do) {
    let said = |text| vec![ContentPart::text(text)];
    match what {
        Do::Interrupt => session.interrupt(),
        Do::Steer => {
            session.deliver(MessageKind::Steer, said("steer")).await.ok();
        }
        Do::FollowUp => {
            session.deliver(MessageKind::FollowUp, said("follow-up")).await.ok();
        }
        Do::Allow | Do::Grant | Do::Deny => {}
    }
}

/// Ends the session and checks what holds for every one. Returns what was announced.
pub(crate) async fn end(bench: &SessionBuilder, stage: RunningSession) -> Vec<Arc<Announcement>> {
    let seen = soon("the end", stage.end()).await;
    check(bench, &seen);
    seen
}

/// What holds for every session, whatever crashed in it.
pub(crate) fn check(bench: &SessionBuilder, seen: &[Arc<Announcement>]) {
    let records = bench.journal.records();
    let numbers: Vec<u64> = records.iter().map(|record| record.record).collect();
    let expected: Vec<u64> = (1..=records.len() as u64).collect();
    assert_eq!(numbers, expected, "records are numbered in order");
    let ids: BTreeSet<_> = records.iter().map(|record| record.id).collect();
    assert_eq!(ids.len(), records.len(), "each fact is stored once");

    let announced: Vec<u64> = seen.iter().filter_map(|seen| seen.record()).collect();
    assert_eq!(announced, numbers, "each record is announced once, in order");
    assert!(seen.is_sorted_by(|a, b| a.seq < b.seq), "events are numbered in order");

    for (nth, request) in bench.model.requests().iter().enumerate() {
        assert_eq!(history_error(request), None, "request {nth} is one that a provider accepts");
    }
    let replayed = replay(&records, None);
    assert_eq!(history_error(&replayed.messages), None, "the journal holds a valid history");
    check_pairs(&records);
}

/// Everything that began in the journal ended once.
pub(crate) fn check_pairs(records: &[StoredRecord]) {
    let mut open: BTreeMap<String, i32> = BTreeMap::new();
    let mut count = |key: String, by: i32| *open.entry(key).or_default() += by;
    let mut asked = BTreeSet::new();
    for record in records {
        match &record.event {
            Event::ToolRequested { call_id, .. } => count(format!("call {call_id}"), 1),
            Event::ToolCompleted { call_id, .. }
            | Event::ToolFailed { call_id, .. }
            | Event::ToolOutcomeUnknown { call_id, .. } => count(format!("call {call_id}"), -1),
            // A question is shown again after a crash, under the same id.
            Event::PermissionRequested { request_id, .. } if asked.insert(request_id.clone()) => {
                count(format!("question {request_id}"), 1);
            }
            Event::PermissionGranted { request_id, .. }
            | Event::PermissionDenied { request_id, .. }
            | Event::PermissionWithdrawn { request_id, .. } => {
                count(format!("question {request_id}"), -1);
            }
            Event::InvocationStarted { .. } => count("invocation".to_owned(), 1),
            Event::InvocationCompleted { .. }
            | Event::InvocationFailed { .. }
            | Event::InvocationCancelled { .. } => count("invocation".to_owned(), -1),
            _ => {}
        }
    }
    open.retain(|_, count| *count != 0);
    assert_eq!(open, BTreeMap::new(), "began and ended as often");
}

/// How many of `seen` are of this type.
pub(crate) fn count(seen: &[Arc<Announcement>], kind: &str) -> usize {
    types(seen).iter().filter(|seen| *seen == kind).count()
}
