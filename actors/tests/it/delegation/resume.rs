//! Sessions that break off with running subagents: they resume from any prefix of the journal, no
//! subagent is started twice, and every answer is delivered once.

use std::collections::BTreeMap;

use posse_actors::event::{Scope, StoredRecord};
use posse_actors::replay::{Delegated, replay};
use posse_actors::root_session::Resumption;
use posse_actors::testing::{GuardedTool, MemoryStore};

use crate::resuming::{RunCounts, agree, careful, started, users};
use crate::support::check_pairs;

use super::*;

const NAMES: [&str; 5] = ["explore", "review", "worker", "helper", "scout"];

/// A main agent with five subagents: two in parallel, one with a subagent of its own, and one in
/// the background. `scripts` in the order of [`NAMES`].
fn bench(
    main: Vec<ModelStep>,
    scripts: [Vec<ModelStep>; 5],
    runs: &RunCounts,
) -> (SessionBuilder, Vec<Arc<ScriptedModel>>) {
    let runs = Arc::clone(runs);
    let counted = move |id: &_| {
        *runs.lock().unwrap().entry(Clone::clone(id)).or_default() += 1;
    };
    let mut bench = SessionBuilder::new(main).tool(GuardedTool::with_effect(counted));
    bench.policy = careful();
    bench.limits = quick();
    let models: Vec<_> =
        NAMES.iter().zip(scripts).map(|(name, steps)| model(name, steps)).collect();
    let subagents = NAMES.iter().zip(&models).map(|(name, model)| {
        let calls: &[&str] = if *name == "worker" { &["helper"] } else { &[] };
        subagent(name, model, &["echo", "guarded"], calls)
    });
    let limits = GovernorLimits { depth_max: 2, live_max: 6, ..GovernorLimits::default() };
    let main_calls = NAMES.iter().filter(|name| **name != "helper").map(ToString::to_string);
    bench.delegation = Some(Delegation {
        main_calls: main_calls.collect(),
        limits,
        ..delegation(subagents.collect())
    });
    (bench, models)
}

async fn story() -> Vec<StoredRecord> {
    let main = vec![
        calls(&["explore", "review"]),
        ModelStep::Call(vec![call("scout", r#","wait":false"#), call("worker", "")]),
        ModelStep::say("all done"),
    ];
    let scripts = [
        vec![ModelStep::calls("echo", &["a"]), ModelStep::say("explored")],
        vec![ModelStep::say("reviewed")],
        vec![
            ModelStep::Call(vec![call("helper", "")]),
            ModelStep::calls("guarded", &["x"]),
            ModelStep::say("made"),
        ],
        vec![ModelStep::calls("guarded", &["y"]), ModelStep::say("helped")],
        vec![ModelStep::calls("echo", &["b"]), ModelStep::say("scouted")],
    ];
    let (bench, _) = bench(main, scripts, &RunCounts::default());
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    agree(&mut stage, running.outcome(), Scope::Once).await;
    stage.end().await;
    bench.journal.records()
}

/// Another process on the journal of `records`, whose models have nothing to add.
fn second(
    records: &[StoredRecord],
    process: u32,
    runs: &RunCounts,
) -> (SessionBuilder, Vec<Arc<ScriptedModel>>) {
    let (mut bench, models) = bench(Vec::new(), Default::default(), runs);
    bench.journal = Arc::new(MemoryStore::of(records.to_vec()));
    bench.process = process;
    bench.resumption =
        Some(Resumption { replayed: replay(records, None), ..Resumption::default() });
    (bench, models)
}

fn delegated(records: &[StoredRecord]) -> Vec<Delegated> {
    replay(records, None).delegated
}

/// Resumes, or sends a prompt if nothing is unfinished. Returns when all agents have ended.
async fn goes_on(bench: &SessionBuilder) -> RunningSession {
    let mut stage = bench.start().await;
    let begun = match stage.session.resume().await {
        Ok(running) => running,
        Err(_) => stage.session.prompt(Prompt::text("and now")).await.unwrap(),
    };
    agree(&mut stage, begun.outcome(), Scope::Once).await;
    while delegated(&bench.journal.records()).iter().any(|one| !one.announced) {
        let ended = |event: &Event| {
            matches!(event, Event::DelegationEnded { .. } | Event::PermissionRequested { .. })
        };
        let seen = soon("the others", stage.until(ended)).await;
        if let Event::PermissionRequested { request_id, .. } = seen.event() {
            use posse_actors::permission_coordinator::HumanDecision;
            let yes = HumanDecision::Allow(Scope::Once);
            // It may have been answered before it was seen here.
            stage.session.answer(request_id.clone(), yes).await.ok();
        }
    }
    stage
}

/// Invariants of all records of a session that broke off after `prefix`.
fn check_whole(prefix: &[StoredRecord], records: &[StoredRecord], runs: &RunCounts) {
    let at = prefix.len();
    assert!(records.starts_with(prefix), "{at}: what was written stays");
    let mut requested: BTreeMap<String, u32> = BTreeMap::new();
    let mut ended: BTreeMap<String, u32> = BTreeMap::new();
    for record in records {
        match &record.event {
            Event::InvocationRequested { call_id, .. } => {
                *requested.entry(call_id.to_string()).or_default() += 1;
            }
            Event::DelegationEnded { child_invocation_id, .. } => {
                *ended.entry(child_invocation_id.to_string()).or_default() += 1;
            }
            _ => {}
        }
    }
    assert!(requested.values().all(|times| *times == 1), "{at}: {requested:?}");
    assert_eq!(ended.len(), requested.len(), "{at}: everybody ends");
    assert!(ended.values().all(|times| *times == 1), "{at}: {ended:?}");
    let (ran_before, open) = started(prefix);
    for (id, times) in runs.lock().unwrap().iter() {
        assert!(!ran_before.contains(id) && *times == 1, "{at}: {id} ran {times} times");
    }
    for id in &open {
        let told = records.iter().filter(|record| {
            matches!(&record.event, Event::ToolOutcomeUnknown { call_id, .. } if call_id == id)
        });
        assert_eq!(told.count(), 1, "{at}: {id}");
    }
    // Each answer is read once: as the result of the call, or as a message.
    let after = replay(records, None);
    assert_eq!(history_error(&after.messages), None, "{at}");
    let texts: Vec<String> = after
        .messages
        .iter()
        .filter_map(|message| match &**message {
            Message::Tool { content, .. } => Some(text_of(content)),
            _ => None,
        })
        .chain(users(&after.messages))
        .chain(after.queued.iter().map(|queued| text_of(&queued.content)))
        .collect();
    for one in after.delegated.iter().filter(|one| one.called_by_main()) {
        let head =
            format!("agent {} ({}): {}", one.origin.agent, one.id(), one.ended.as_ref().unwrap());
        let times = texts.iter().filter(|text| text.contains(&head)).count();
        assert_eq!(times, 1, "{at}: {head}: {texts:#?}");
    }
    check_pairs(records);
}

#[tokio::test]
async fn resumes_delegations_from_every_prefix_and_starts_none_twice() {
    let whole = story().await;
    assert_eq!(delegated(&whole).len(), 5);
    for length in 0..=whole.len() {
        let prefix = &whole[..length];
        let runs = RunCounts::default();
        let (bench, models) = second(prefix, 2, &runs);
        let stage = goes_on(&bench).await;
        stage.end().await;
        let records = bench.journal.records();
        check_whole(prefix, &records, &runs);
        for model in models.iter().chain([&bench.model]) {
            for request in model.requests() {
                assert_eq!(history_error(&request), None, "{length}");
            }
        }
        // A subagent that was running resumes with its history, and receives its task once.
        for (one, model) in delegated(prefix).iter().filter_map(|one| {
            let nth = NAMES.iter().position(|name| *name == one.origin.agent)?;
            (one.ended.is_none() && one.briefed).then(|| (one, &models[nth]))
        }) {
            let requests = model.requests();
            let Some(first) = requests.first() else {
                // It had answered, and only its end was not recorded.
                let after = delegated(&records);
                let after = after.iter().find(|after| after.id() == one.id()).unwrap();
                assert_eq!(
                    after.ended,
                    Some(SubagentOutcome::Done),
                    "{length}: {}",
                    one.origin.agent
                );
                assert_eq!(after.said, one.said);
                continue;
            };
            assert_eq!(users(first).len(), 1, "{length}");
            let replies = first.iter().filter(|m| matches!(***m, Message::Assistant(_))).count();
            assert_eq!(replies, one.turns as usize, "{length}: with every reply that it had");
        }
    }
}

/// The records of a resumed run are cut, and it is resumed again.
#[tokio::test]
async fn resumes_delegations_from_every_prefix_of_a_resumed_session() {
    let whole = story().await;
    let wanted = |record: &StoredRecord| matches!(&record.event, Event::InvocationRequested { target, .. } if target == "helper");
    let cut = whole.iter().position(wanted).unwrap() + 4;
    let (first, _) = second(&whole[..cut], 2, &RunCounts::default());
    goes_on(&first).await.end().await;
    let resumed = first.journal.records();
    for length in cut..=resumed.len() {
        let prefix = &resumed[..length];
        let runs = RunCounts::default();
        let (bench, _) = second(prefix, 3, &runs);
        goes_on(&bench).await.end().await;
        check_whole(prefix, &bench.journal.records(), &runs);
    }
}

/// Index after the record that `wanted` accepts.
fn after(records: &[StoredRecord], wanted: impl Fn(&StoredRecord) -> bool) -> usize {
    records.iter().position(wanted).unwrap() + 1
}

fn said_by(agent: &'static str) -> impl Fn(&StoredRecord) -> bool {
    move |record| {
        let theirs = record.origin.as_ref().is_some_and(|origin| origin.agent == agent);
        theirs && matches!(record.event, Event::ModelReply { .. })
    }
}

#[tokio::test]
async fn new_prompt_stops_awaited_subagents() {
    let whole = story().await;
    let cut = after(&whole, said_by("worker"));
    let (bench, models) = second(&whole[..cut], 2, &RunCounts::default());
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("never mind")).await.unwrap();
    agree(&mut stage, running.outcome(), Scope::Once).await;
    stage.end().await;
    let records = bench.journal.records();
    let all = delegated(&records);
    let of = |name: &str| all.iter().find(|one| one.origin.agent == name).unwrap();
    assert_eq!(of("worker").ended, Some(SubagentOutcome::Cancelled));
    assert_eq!(models[2].requests().len(), 0);
    let request = format!("{:?}", bench.model.requests()[0]);
    assert!(request.contains("): cancelled") && request.contains("resume"), "{request}");
    check_pairs(&records);
}

#[tokio::test]
async fn unfinished_background_subagents_resume_alone() {
    let gate = Arc::new(Notify::new());
    let scripts = || {
        let scout = vec![ModelStep::after(&gate, ModelStep::say("scouted"))];
        [Vec::new(), Vec::new(), Vec::new(), Vec::new(), scout]
    };
    let main =
        vec![ModelStep::Call(vec![call("scout", r#","wait":false"#)]), ModelStep::say("so long")];
    let (first, _) = bench(main, scripts(), &RunCounts::default());
    let mut stage = first.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    // As a kill leaves it.
    let prefix = first.journal.records();
    assert!(replay(&prefix, None).is_unfinished());
    let (bench, models) = second(&prefix, 2, &RunCounts::default());
    let stage = goes_on(&bench).await;
    stage.end().await;
    assert_eq!(models[4].requests().len(), 1);
    let told = users(&bench.model.requests()[0]);
    assert!(told[1].contains("go on where they were") && told[1].contains("scout"), "{told:?}");
    check_whole(&prefix, &bench.journal.records(), &RunCounts::default());
    stage_end(first).await;
}

/// Ends the first process.
async fn stage_end(bench: SessionBuilder) {
    drop(bench);
    tokio::task::yield_now().await;
}

/// Resumes the subagent whose id the model read last.
fn resumes(agent: &'static str) -> ModelStep {
    ModelStep::Computed(Box::new(move |messages| {
        let text = format!("{messages:?}");
        let id = text.rsplit(&format!("agent {agent} (")).next().unwrap_or_default();
        let id = id.split(')').next().unwrap_or_default();
        ModelStep::Call(vec![call(agent, &format!(r#","resume":"{id}""#))])
    }))
}

#[tokio::test]
async fn stopped_subagent_resumes_with_its_history() {
    let runs = RunCounts::default();
    let worker = vec![
        ModelStep::calls("echo", &["a"]),
        ModelStep::Hang("half".to_owned()),
        ModelStep::calls("echo", &["b"]),
        ModelStep::say("made"),
    ];
    let scripts = [Vec::new(), Vec::new(), worker, Vec::new(), Vec::new()];
    let main =
        vec![calls(&["worker"]), resumes("worker"), resumes("worker"), ModelStep::say("good")];
    let (bench, models) = bench(main, scripts, &runs);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let half = |event: &Event| matches!(event, Event::TextDelta { text } if text == "half");
    soon("the worker", stage.until(half)).await;
    stage.session.interrupt();
    soon("stopping", running.outcome()).await.unwrap();
    let outcome = play(&mut stage, "go on with it", &[]).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("good".to_owned()));
    let seen = end(&bench, stage).await;
    assert_eq!(
        outcomes(&seen),
        [SubagentOutcome::Cancelled, SubagentOutcome::Done, SubagentOutcome::Done]
    );
    let ids: std::collections::BTreeSet<String> = seen
        .iter()
        .filter_map(|one| match one.event() {
            Event::InvocationRequested { child_invocation_id, .. } => {
                Some(child_invocation_id.to_string())
            }
            _ => None,
        })
        .collect();
    assert_eq!(ids.len(), 1, "it is the same agent");
    let third = &models[2].requests()[2];
    assert_eq!(users(third).len(), 3, "its first task, the note about the stop, and its next task");
    assert!(format!("{third:?}").contains(r#"{\"text\":\"a\"}"#), "{third:?}");
    let last = models[2].requests().pop().unwrap();
    assert_eq!(users(&last).len(), 4, "also one that was done can be asked for more");
    for request in models[2].requests() {
        assert_eq!(history_error(&request), None);
    }
}

#[tokio::test]
async fn running_or_foreign_subagent_cannot_be_resumed() {
    let gate = Arc::new(Notify::new());
    let scout = vec![ModelStep::after(&gate, ModelStep::say("scouted"))];
    let scripts = [Vec::new(), Vec::new(), Vec::new(), Vec::new(), scout];
    let main = vec![
        ModelStep::Call(vec![call("scout", r#","wait":false"#)]),
        ModelStep::Computed(Box::new(|messages| {
            let text = format!("{messages:?}");
            let id = text.split("It works as ").nth(1).unwrap().split('.').next().unwrap();
            ModelStep::Call(vec![
                call("scout", &format!(r#","resume":"{id}""#)),
                call("explore", r#","resume":"inv-99""#),
            ])
        })),
        ModelStep::say("good"),
    ];
    let (bench, models) = bench(main, scripts, &RunCounts::default());
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    gate.notify_one();
    let seen = end(&bench, stage).await;
    let results = results(&bench.model);
    assert!(results[0].contains("is still at work"), "{results:?}");
    assert!(results[1].starts_with("You have started no agent inv-99"), "{results:?}");
    assert_eq!(count(&seen, "agent.invocation.requested"), 1);
    assert!(models[0].requests().is_empty());
}
