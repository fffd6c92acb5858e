//! Many questions, many who answer, and what crashes in between: each answer reaches its own
//! call, each question ends once, and nothing runs without a yes on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use posse_actors::conversation::{CallId, Prompt, QuestionId};
use posse_actors::event::{Announcement, DecisionSource, Event, Grant, Scope, StoredRecord};
use posse_actors::permission_coordinator::{AnswerError, HumanDecision};
use posse_actors::ports::{
    Action, ActiveGrants, BoxError, GrantStore, GrantTime, PortFuture, Situation, Verdict,
};
use posse_actors::testing::{
    GuardedTool, MemoryStore, ModelStep, PolicyFn, RunningSession, SessionBuilder, ask_all,
};
use proptest::prelude::*;

use crate::support::{check, count, end, quick, soon};

/// Orders of three.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn yes() -> HumanDecision {
    HumanDecision::Allow(Scope::Once)
}

fn no() -> HumanDecision {
    HumanDecision::Deny { reason: None }
}

/// A session whose model wants `calls` read-only calls at once, all of them asked about.
fn asking(calls: usize) -> (SessionBuilder, Arc<AtomicU32>) {
    let names: Vec<String> = (0..calls).map(|nth| format!("call {nth}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bench =
        SessionBuilder::new(vec![ModelStep::calls("guarded", &names), ModelStep::say("done")]);
    let unguarded = Arc::new(AtomicU32::new(0));
    let (journal, counted) = (Arc::clone(&bench.journal), Arc::clone(&unguarded));
    let mut bench = bench.tool(GuardedTool::new(move |call| {
        if !is_allowed(&journal, call) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    }));
    bench.policy = ask_all();
    bench.limits = quick();
    bench.limits.parallel_calls_max = calls;
    (bench, unguarded)
}

/// Whether a yes that covers the call is on the disk.
fn is_allowed(journal: &MemoryStore, call: &CallId) -> bool {
    let mut asked = BTreeSet::new();
    let synced = journal.synced();
    journal.records().iter().take_while(|record| record.record <= synced).any(
        |record| match &record.event {
            Event::PermissionRequested { request_id, call_id, .. } if call_id == call => {
                asked.insert(request_id.clone());
                false
            }
            Event::PermissionGranted { request_id, grant, .. } => {
                grant.is_some() || asked.contains(request_id)
            }
            _ => false,
        },
    )
}

/// Reads events until `count` questions are open: id and call, in the order in which they came.
async fn questions(stage: &mut RunningSession, count: usize) -> Vec<(QuestionId, CallId)> {
    let mut open = Vec::new();
    while open.len() < count {
        let asked = soon("a question", stage.until(is_question)).await;
        if let Event::PermissionRequested { request_id, call_id, .. } = asked.event() {
            open.push((request_id.clone(), call_id.clone()));
        }
    }
    open
}

fn is_question(event: &Event) -> bool {
    matches!(event, Event::PermissionRequested { .. })
}

/// Calls that ran, by id.
fn ran(seen: &[Arc<Announcement>]) -> BTreeSet<CallId> {
    let started = |event: &Event| match event {
        Event::ToolStarted { call_id, .. } => Some(call_id.clone()),
        _ => None,
    };
    seen.iter().filter_map(|seen| started(seen.event())).collect()
}

#[tokio::test]
async fn three_calls_all_orders_late_and_duplicate_answers() {
    // Which of the three is allowed, as bits, in every order.
    for order in ORDERS {
        for allowed in 0..8_u32 {
            let (bench, unguarded) = asking(3);
            let mut stage = bench.start().await;
            let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
            let open = questions(&mut stage, 3).await;
            let mut expected = BTreeSet::new();
            for nth in order {
                let (id, call) = &open[nth];
                let allow = allowed & (1 << nth) != 0;
                if allow {
                    expected.insert(call.clone());
                }
                let decision = |allow| if allow { yes() } else { no() };
                let (first, second) = tokio::join!(
                    stage.session.answer(id.clone(), decision(allow)),
                    stage.session.answer(id.clone(), decision(!allow)),
                );
                assert_eq!(first, Ok(()));
                assert_eq!(second, Err(AnswerError::Answered(id.clone())), "the other front end");
            }
            // Two that come late.
            for (id, _) in &open[..2] {
                let late = stage.session.answer(id.clone(), yes()).await;
                assert_eq!(late, Err(AnswerError::Answered(id.clone())));
            }
            soon("the run", running.outcome()).await.unwrap();
            let seen = end(&bench, stage).await;
            assert_eq!(ran(&seen), expected, "{order:?} {allowed:b}");
            assert_eq!(count(&seen, "permission.requested"), 3);
            assert_eq!(unguarded.load(Ordering::SeqCst), 0);
        }
    }
}

#[tokio::test]
async fn fifty_permission_requests_answered_out_of_order() {
    let (bench, unguarded) = asking(50);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let open = questions(&mut stage, 50).await;
    let calls: Vec<&CallId> = open.iter().map(|(_, call)| call).collect();
    let asked: Vec<CallId> = calls.iter().map(|call| (*call).clone()).collect();
    assert_eq!(asked.iter().collect::<BTreeSet<_>>().len(), 50);
    // 7 and 50 have no divisor in common, so every one comes once.
    let mut expected = BTreeSet::new();
    for nth in (0..50).map(|nth| nth * 7 % 50) {
        let (id, call) = &open[nth];
        let allow = nth % 3 != 0;
        if allow {
            expected.insert(call.clone());
        }
        let decision = if allow { yes() } else { no() };
        assert_eq!(stage.session.answer(id.clone(), decision).await, Ok(()));
    }
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(ran(&seen), expected);
    assert_eq!(unguarded.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn queue_keeps_its_order_across_a_crash() {
    let (bench, _) = asking(5);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let open = questions(&mut stage, 5).await;
    bench.fail.arm("PermissionCoordinator", "Answer", 1);
    let lost = stage.session.answer(open[0].0.clone(), yes()).await;
    assert_eq!(lost, Err(AnswerError::Lost));
    let again = questions(&mut stage, 5).await;
    let sorted = |open: &[(QuestionId, CallId)]| open.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(sorted(&again), sorted(&open), "the same questions under the same ids");
    for (id, _) in &open {
        assert_eq!(stage.session.answer(id.clone(), yes()).await, Ok(()));
    }
    soon("the run", running.outcome()).await.unwrap();
    assert_eq!(ran(&end(&bench, stage).await).len(), 5);
}

#[tokio::test]
async fn an_approval_after_cancel_is_ignored_and_logged_once() {
    let (bench, _) = asking(2);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let open = questions(&mut stage, 2).await;
    stage.session.interrupt();
    soon("the run", running.outcome()).await.unwrap();
    for (id, _) in &open {
        for _ in 0..2 {
            let late = stage.session.answer(id.clone(), yes()).await;
            assert_eq!(late, Err(AnswerError::Withdrawn(id.clone())));
        }
    }
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.withdrawn"), 2);
    assert_eq!(count(&seen, "permission.granted"), 0);
    assert_eq!(count(&seen, "warning"), 2, "each is logged, and once");
    assert!(ran(&seen).is_empty());
}

#[tokio::test]
async fn answer_takes_effect_only_after_it_is_durable() {
    let (bench, unguarded) = asking(1);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let open = questions(&mut stage, 1).await;
    bench.journal.block_writes();
    let mut first = Box::pin(stage.session.answer(open[0].0.clone(), yes()));
    let mut is_pending = async || {
        tokio::select! {
            biased;
            early = &mut first => panic!("nobody hears of it before: {early:?}"),
            () = tokio::task::yield_now() => (),
        }
    };
    is_pending().await;
    let second = stage.session.answer(open[0].0.clone(), no()).await;
    assert_eq!(second, Err(AnswerError::Answered(open[0].0.clone())));
    for _ in 0..100 {
        is_pending().await;
    }
    bench.journal.release();
    assert_eq!(first.await, Ok(()));
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(ran(&seen).len(), 1);
    assert_eq!(unguarded.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn unrecorded_answer_allows_nothing() {
    let (mut bench, _) = asking(1);
    bench.limits.restarts_max = 0;
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let open = questions(&mut stage, 1).await;
    bench.journal.fail(u32::MAX);
    let answered = stage.session.answer(open[0].0.clone(), yes()).await;
    assert!(matches!(answered, Err(AnswerError::Unrecorded(_))), "{answered:?}");
    soon("the run", running.outcome()).await.unwrap();
    let seen = soon("the end", stage.end()).await;
    assert!(ran(&seen).is_empty());
}

/// Keeps grants in memory, if it is told to.
#[derive(Debug, Default)]
struct Shelf {
    kept: std::sync::Mutex<Vec<Grant>>,
    refuses: bool,
    alarms: AtomicU32,
}

impl GrantStore for Shelf {
    fn active_grants(&self, _: GrantTime) -> ActiveGrants {
        let left = self.alarms.load(Ordering::SeqCst);
        self.alarms.store(left.saturating_sub(1), Ordering::SeqCst);
        ActiveGrants {
            grants: self.kept.lock().unwrap().clone().into(),
            alarm: (left > 0).then(|| "the grants were changed".to_owned()),
        }
    }

    fn widest_scope(&self) -> Scope {
        Scope::Global
    }

    fn keep(&self, grant: Grant, _: GrantTime) -> PortFuture<Result<(), BoxError>> {
        if self.refuses {
            return Box::pin(async { Err("the disk is full".into()) });
        }
        self.kept.lock().unwrap().push(grant);
        Box::pin(async { Ok(()) })
    }
}

/// [`asking`], with questions that can be answered for every scope.
fn widely_asking(calls: usize, shelf: &Arc<Shelf>) -> SessionBuilder {
    let (mut bench, _) = asking(calls);
    let narrow = ask_all();
    bench.policy = Arc::new(PolicyFn(move |action: &Action, situation: &Situation<'_>| {
        let mut verdict = narrow.judge(action, situation);
        if let Verdict::Ask(question) = &mut verdict {
            question.scopes = vec![Scope::Once, Scope::Session, Scope::Project, Scope::Global];
        }
        verdict
    }));
    bench.grants = Arc::clone(shelf) as Arc<dyn GrantStore>;
    bench
}

#[tokio::test]
async fn grant_is_stored_for_its_scope_and_applied_to_the_queue() {
    for scope in [Scope::Session, Scope::Project, Scope::Global] {
        let shelf = Arc::new(Shelf::default());
        let bench = widely_asking(4, &shelf);
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        let open = questions(&mut stage, 4).await;
        let answered = stage.session.answer(open[2].0.clone(), HumanDecision::Allow(scope)).await;
        assert_eq!(answered, Ok(()));
        for nth in [0, 1, 3] {
            let late = stage.session.answer(open[nth].0.clone(), no()).await;
            assert_eq!(late, Err(AnswerError::Answered(open[nth].0.clone())), "{scope:?}");
        }
        soon("the run", running.outcome()).await.unwrap();
        let seen = end(&bench, stage).await;
        assert_eq!(ran(&seen).len(), 4, "{scope:?}");
        let kept: Vec<Scope> = shelf.kept.lock().unwrap().iter().map(|kept| kept.scope).collect();
        let expected = if scope == Scope::Session { vec![] } else { vec![scope] };
        assert_eq!(kept, expected);
    }
}

#[tokio::test]
async fn unsaved_grant_applies_to_the_session_with_a_warning() {
    let shelf = Arc::new(Shelf { refuses: true, ..Shelf::default() });
    let bench = widely_asking(2, &shelf);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let open = questions(&mut stage, 2).await;
    let decision = HumanDecision::Allow(Scope::Project);
    assert_eq!(stage.session.answer(open[0].0.clone(), decision).await, Ok(()));
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(ran(&seen).len(), 2);
    let warned = |seen: &&Arc<Announcement>| matches!(seen.event(), Event::Warning { message } if message.contains("the disk is full"));
    assert_eq!(seen.iter().filter(warned).count(), 1);
}

#[tokio::test]
async fn stored_grant_allows_and_a_tampering_alarm_is_reported_once() {
    let grant = Grant {
        operation: "guarded".to_owned(),
        target: String::new(),
        scope: Scope::Project,
        agent: None,
    };
    let shelf = Shelf { alarms: AtomicU32::new(1), ..Shelf::default() };
    shelf.kept.lock().unwrap().push(grant);
    let bench = widely_asking(2, &Arc::new(shelf));
    let mut stage = bench.start().await;
    stage.play("go").await;
    let seen = end(&bench, stage).await;
    assert_eq!((ran(&seen).len(), count(&seen, "permission.requested")), (2, 0));
    assert_eq!(count(&seen, "warning"), 1);
}

#[tokio::test]
async fn only_supported_scopes_are_offered() {
    let (mut bench, _) = asking(1);
    bench.policy = widely_asking(1, &Arc::default()).policy;
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let asked = stage.until(is_question).await;
    let Event::PermissionRequested { scopes, request_id, .. } = asked.event() else {
        unreachable!()
    };
    assert_eq!(*scopes, [Scope::Once, Scope::Session]);
    stage.session.answer(request_id.clone(), no()).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    end(&bench, stage).await;
}

/// One step of somebody's day.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Allow(usize),
    Deny(usize),
    /// For the session: answers other questions as well.
    Grant(usize),
    /// Two front ends at once.
    Both(usize),
    Interrupt,
    /// The coordinator dies over its next message of this kind.
    Crash(&'static str),
    /// The writer dies over its next message.
    CrashWriter,
    /// The disk is slow, and then not any more.
    Hold,
    Release,
    /// The disk fails once.
    Fail,
    /// Let others do something.
    Wait(u8),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => (0..8_usize).prop_map(Deed::Allow),
        2 => (0..8_usize).prop_map(Deed::Deny),
        1 => (0..8_usize).prop_map(Deed::Grant),
        2 => (0..8_usize).prop_map(Deed::Both),
        1 => Just(Deed::Interrupt),
        2 => prop_oneof![
            Just("Ask"), Just("Answer"), Just("Withdraw"), Just("Settled"),
        ].prop_map(Deed::Crash),
        1 => Just(Deed::CrashWriter),
        1 => Just(Deed::Hold),
        1 => Just(Deed::Release),
        1 => Just(Deed::Fail),
        3 => (1..20_u8).prop_map(Deed::Wait),
    ]
}

/// What was asked so far.
fn seen_questions(journal: &MemoryStore) -> Vec<QuestionId> {
    let mut ids = Vec::new();
    for event in journal.events() {
        if let Event::PermissionRequested { request_id, .. } = event
            && !ids.contains(&request_id)
        {
            ids.push(request_id);
        }
    }
    ids
}

/// Does everything in `deeds`, then answers what is left, and checks what holds always.
async fn live(deeds: Vec<Deed>, calls: usize) {
    let (mut bench, unguarded) = asking(calls);
    bench.limits.restarts_max = 1000;
    let stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let mut outcome = Box::pin(running.outcome());
    let mut answers = Vec::new();
    for deed in deeds {
        let open = seen_questions(&bench.journal);
        let mut answer = |nth: usize, decision: HumanDecision| {
            let Some(id) = open.get(nth).cloned() else { return };
            let session = stage.session.clone();
            answers.push(tokio::spawn(async move { session.answer(id, decision).await }));
        };
        match deed {
            Deed::Allow(nth) => answer(nth, yes()),
            Deed::Deny(nth) => answer(nth, no()),
            Deed::Grant(nth) => answer(nth, HumanDecision::Allow(Scope::Session)),
            Deed::Both(nth) => {
                answer(nth, yes());
                answer(nth, no());
            }
            Deed::Interrupt => stage.session.interrupt(),
            Deed::Crash(kind) => bench.fail.arm("PermissionCoordinator", kind, 1),
            Deed::CrashWriter => bench.fail.arm("TranscriptWriter", "Committed", 1),
            Deed::Hold => bench.journal.block_writes(),
            Deed::Release => bench.journal.release(),
            Deed::Fail => bench.journal.fail(1),
            Deed::Wait(turns) => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    bench.journal.release();
    // Whoever is still asked is told no, again after each crash.
    let session = stage.session.clone();
    let outcome = soon("the run", async {
        loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => break outcome,
                () = tokio::task::yield_now() => {
                    for id in seen_questions(&bench.journal) {
                        session.answer(id, no()).await.ok();
                    }
                }
            }
        }
    })
    .await;
    assert!(outcome.is_some(), "the session lives");
    for answered in answers {
        soon("an answer", answered).await.unwrap().ok();
    }
    let seen = soon("the end", stage.end()).await;
    check(&bench, &seen);
    resolved_once(&bench.journal.records());
    assert_eq!(unguarded.load(Ordering::SeqCst), 0, "nothing runs without a yes on the disk");
}

/// Each question has exactly one end, and each call that ran has a yes before it: its own, or a
/// grant.
fn resolved_once(records: &[StoredRecord]) {
    let mut ends: BTreeMap<&QuestionId, u32> = BTreeMap::new();
    let (mut bindings, mut allowed, mut granted) = (BTreeMap::new(), BTreeSet::new(), false);
    for record in records {
        match &record.event {
            Event::PermissionRequested { request_id, call_id, binding, .. } => {
                ends.entry(request_id).or_default();
                bindings.insert(request_id, (call_id, binding));
            }
            Event::PermissionGranted { request_id, binding, grant, .. } => {
                *ends.entry(request_id).or_default() += 1;
                let (call, asked) = bindings[request_id];
                assert_eq!(binding, asked, "a yes is bound to what was asked");
                allowed.insert(call);
                granted |= grant.is_some();
            }
            Event::PermissionDenied { request_id, .. }
            | Event::PermissionWithdrawn { request_id, .. } => {
                *ends.entry(request_id).or_default() += 1;
            }
            Event::ToolStarted { call_id, .. } => {
                assert!(granted || allowed.contains(call_id), "{call_id} ran without a yes");
            }
            _ => {}
        }
    }
    assert!(ends.values().all(|ends| *ends == 1), "{ends:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn answers_hold_in_any_order(
        deeds in prop::collection::vec(deed(), 0..40),
        calls in 1..8_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(deeds, calls));
    }
}

#[tokio::test]
async fn first_front_end_to_answer_wins_and_the_other_is_informed() {
    let (bench, _) = asking(2);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let open = questions(&mut stage, 2).await;
    let by = |nth: u32| Some(format!("process {nth}"));
    let (session, id) = (&stage.session, &open[0].0);
    let (first, second, third) = tokio::join!(
        session.answer_by(id.clone(), yes(), by(1)),
        session.answer_by(id.clone(), no(), by(2)),
        session.answer(id.clone(), no()),
    );
    assert_eq!(first, Ok(()));
    for late in [second, third] {
        assert_eq!(late, Err(AnswerError::AnsweredBy(id.clone(), "process 1".to_owned())));
    }
    assert_eq!(session.answer(open[1].0.clone(), no()).await, Ok(()));
    let late = session.answer_by(open[1].0.clone(), yes(), by(2)).await;
    assert_eq!(late, Err(AnswerError::Answered(open[1].0.clone())));
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    let who = |event: &Event| match event {
        Event::PermissionGranted { by, answered_by, .. }
        | Event::PermissionDenied { by, answered_by, .. } => {
            Some((by.clone(), answered_by.clone()))
        }
        _ => None,
    };
    let who: Vec<_> = seen.iter().filter_map(|seen| who(seen.event())).collect();
    assert_eq!(who, [(DecisionSource::User, by(1)), (DecisionSource::User, None)]);
}
