//! Answers for one agent: they count for its later calls, also after a resume, and for no other
//! agent and no call of the user.

use posse_actors::event::{GrantedAgent, StoredRecord};
use posse_actors::permission_coordinator::AnswerError;
use posse_actors::replay::replay;
use posse_actors::root_session::{Resumption, UserCall};
use posse_actors::testing::{GuardedTool, MemoryStore};

use crate::resuming::careful;

use super::*;

const AGENT: HumanDecision = HumanDecision::Allow(Scope::Agent);
const ONCE: HumanDecision = HumanDecision::Allow(Scope::Once);

fn is_question(event: &Event) -> bool {
    matches!(event, Event::PermissionRequested { .. })
}

/// A session in which `main` may call the subagent `scout`, and that one the subagent `deep`; all
/// agents see the tool `guarded`, about which the policy asks.
fn bench(main: Vec<ModelStep>, scout: Vec<ModelStep>, deep: Vec<ModelStep>) -> SessionBuilder {
    let mut bench = SessionBuilder::new(main).tool(GuardedTool::with_effect(|_| ()));
    bench.policy = careful();
    bench.limits = quick();
    let limits = GovernorLimits { depth_max: 2, ..GovernorLimits::default() };
    bench.delegation = Some(Delegation {
        main_calls: vec!["scout".to_owned()],
        limits,
        ..delegation(vec![
            subagent("scout", &model("scout", scout), &["guarded"], &["deep"]),
            subagent("deep", &model("deep", deep), &["guarded"], &[]),
        ])
    });
    bench
}

fn writes(text: &str) -> ModelStep {
    ModelStep::calls("guarded", &[text])
}

/// Path of the agent that asks next, and the scopes that its request offers. Answers it.
async fn answer(stage: &mut RunningSession, decision: HumanDecision) -> (String, Vec<Scope>) {
    let asked = soon("a question", stage.until(is_question)).await;
    let Event::PermissionRequested { request_id, scopes, .. } = asked.event() else { panic!() };
    stage.session.answer(request_id.clone(), decision).await.unwrap();
    (asked.origin().unwrap().agent_path.clone(), scopes.clone())
}

#[tokio::test]
async fn a_grant_for_an_agent_leaves_its_subagents_siblings_and_parent_to_be_asked() {
    let bench = bench(
        vec![
            calls(&["scout"]),
            calls(&["scout"]),
            writes("e"),
            writes("f"),
            ModelStep::say("done"),
        ],
        vec![
            writes("a"),
            writes("b"),
            calls(&["deep"]),
            ModelStep::say("first"),
            writes("d"),
            ModelStep::say("second"),
        ],
        vec![writes("c"), ModelStep::say("deep")],
    );
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let mut asked = Vec::new();
    for decision in [AGENT, ONCE, ONCE, AGENT] {
        let (path, scopes) = answer(&mut stage, decision).await;
        assert_eq!(scopes, [Scope::Once, Scope::Agent, Scope::Session], "{path}");
        asked.push(path);
    }
    // The second call of the first scout, and that of the main agent, are not asked about.
    assert_eq!(asked, ["build/scout", "build/scout/deep", "build/scout", "build"]);
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.requested"), 4);
    let ran =
        |event: &Event| matches!(event, Event::ToolCompleted { name, .. } if name == "guarded");
    assert_eq!(seen.iter().filter(|one| ran(one.event())).count(), 6, "all calls ran");
    let grants = replay(&bench.journal.records(), None).grants;
    let scout = seen.iter().filter_map(|one| one.origin()).find(|one| one.agent == "scout");
    let agents: Vec<_> = grants.into_iter().map(|grant| (grant.scope, grant.agent)).collect();
    let main = GrantedAgent { agent_path: "build".to_owned(), invocation_id: None };
    let scout = GrantedAgent::of(scout.unwrap());
    assert!(scout.invocation_id.is_some(), "{scout:?}");
    assert_eq!(agents, [(Scope::Agent, Some(scout)), (Scope::Agent, Some(main))]);
}

#[tokio::test]
async fn open_questions_of_other_agents_stay_open() {
    // With an answer for the session, that of the other agent is withdrawn.
    for (decision, left) in [(AGENT, 1), (HumanDecision::Allow(Scope::Session), 0)] {
        // Two subagents, each with two calls at the same time.
        let names = ["left", "right"];
        let subagents = names.map(|name| {
            let steps = vec![ModelStep::calls("guarded", &["a", "b"]), ModelStep::say("so")];
            subagent(name, &model(name, steps), &["guarded"], &[])
        });
        let mut bench = SessionBuilder::new(vec![calls(&names), ModelStep::say("done")])
            .tool(GuardedTool::new(|_| ()));
        bench.policy = careful();
        bench.limits = quick();
        bench.delegation = Some(delegation(subagents.into()));
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        let mut open = Vec::new();
        for _ in 0..4 {
            let asked = soon("a question", stage.until(is_question)).await;
            let Event::PermissionRequested { request_id, .. } = asked.event() else { panic!() };
            open.push((asked.origin().unwrap().agent.clone(), request_id.clone()));
        }
        let (agent, first) = open.remove(0);
        stage.session.answer(first, decision).await.unwrap();
        let mut others = 0;
        for (whose, id) in open {
            let answered = stage.session.answer(id, ONCE).await;
            if whose == agent {
                assert!(matches!(answered, Err(AnswerError::Answered(_))), "{answered:?}");
            } else {
                others += usize::from(answered.is_ok());
            }
        }
        assert_eq!(others, 2 * left, "open questions of the other agent");
        soon("the run", running.outcome()).await.unwrap();
        end(&bench, stage).await;
    }
}

#[tokio::test]
async fn a_call_of_the_user_is_no_call_of_the_main_agent() {
    let steps = vec![writes("a"), ModelStep::say("done")];
    let bench = bench(steps, Vec::new(), Vec::new());
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    answer(&mut stage, AGENT).await;
    soon("the run", running.outcome()).await.unwrap();
    let arguments = r#"{"text":"b"}"#.to_owned();
    let call = UserCall { tool: "guarded".to_owned(), arguments, said: "mine".to_owned() };
    let running = stage.session.call(call).await.unwrap();
    let asked = soon("the question", stage.until(is_question)).await;
    let Event::PermissionRequested { request_id, scopes, .. } = asked.event() else { panic!() };
    assert_eq!(*scopes, [Scope::Once, Scope::Session]);
    let refused = stage.session.answer(request_id.clone(), AGENT).await;
    assert_eq!(refused, Err(AnswerError::ScopeNotOffered(Scope::Agent)));
    stage.session.answer(request_id.clone(), ONCE).await.unwrap();
    soon("the call", running.outcome()).await.unwrap();
    end(&bench, stage).await;
}

#[tokio::test]
async fn a_grant_for_the_main_agent_counts_for_its_next_prompt() {
    let steps = vec![writes("a"), ModelStep::say("one"), writes("b"), ModelStep::say("two")];
    let bench = bench(steps, Vec::new(), Vec::new());
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    answer(&mut stage, AGENT).await;
    soon("the run", running.outcome()).await.unwrap();
    play(&mut stage, "again", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.requested"), 1);
    assert_eq!(count(&seen, "tool.completed"), 2);
}

/// Records of a session that broke off after the first call of `scout`, which a grant for this agent
/// allowed.
async fn broken_off() -> Vec<StoredRecord> {
    let gate = Arc::new(Notify::new());
    let bench = bench(
        vec![calls(&["scout"]), ModelStep::say("done")],
        vec![writes("a"), ModelStep::after(&gate, ModelStep::say("never"))],
        Vec::new(),
    );
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    answer(&mut stage, AGENT).await;
    let ran = |event: &Event| matches!(event, Event::ToolCompleted { .. });
    soon("the call", stage.until(ran)).await;
    let records = bench.journal.records();
    gate.notify_one();
    soon("the run", running.outcome()).await.unwrap();
    stage.end().await;
    records
}

#[tokio::test]
async fn a_resumed_subagent_keeps_its_grant_in_the_same_place_only() {
    let records = broken_off().await;
    for moved in [false, true] {
        let mut bench = bench(
            vec![calls(&["scout"]), ModelStep::say("done")],
            vec![writes("b"), ModelStep::say("first"), writes("c"), ModelStep::say("second")],
            Vec::new(),
        );
        bench.journal = Arc::new(MemoryStore::of(records.clone()));
        bench.process = 2;
        let mut replayed = replay(&records, None);
        if moved {
            replayed.started.as_mut().unwrap().cwd = "/elsewhere".to_owned();
        }
        bench.resumption = Some(Resumption { replayed, ..Resumption::default() });
        let mut stage = bench.start().await;
        let running = stage.session.resume().await.unwrap();
        let mut asked = Vec::new();
        for _ in 0..=usize::from(moved) {
            let question = soon("a question", stage.until(is_question)).await;
            let Event::PermissionRequested { request_id, .. } = question.event() else { panic!() };
            asked.push(question.origin().unwrap().invocation_id.clone());
            stage.session.answer(request_id.clone(), ONCE).await.unwrap();
        }
        soon("the run", running.outcome()).await.unwrap();
        stage.end().await;
        let added = &bench.journal.records()[records.len()..];
        let is_asked = |record: &&StoredRecord| is_question(&record.event);
        assert_eq!(added.iter().filter(is_asked).count(), asked.len());
        // The last question is that of another invocation with the same path.
        let first = &replay(&records, None).delegated[0].origin.invocation_id;
        let of_first = asked.iter().filter(|id| *id == first).count();
        assert_eq!((of_first, asked.last() == Some(first)), (usize::from(moved), false));
    }
}
