//! Subagents in isolated workspaces: they work only there, the changes are known before the end is
//! reported, and without a workspace no subagent starts.

use std::sync::Mutex;

use posse_actors::conversation::InvocationId;
use posse_actors::event::{Origin, StoredRecord};
use posse_actors::outcome::{ChangedFile, WorkspaceChanges, WorktreeSummary};
use posse_actors::ports::{
    CallContext, IsolatedWorkspace, IsolatedWorkspaces, PermittedCall, PortFuture, Prepared,
    RunContext, SideEffect, Tool, ToolAnnotations, ToolError, ToolOutput, ToolSpec, Toolbox,
};
use posse_actors::replay::replay;
use posse_actors::root_session::Resumption;
use posse_actors::testing::{MemoryStore, allow_all};
use serde_json::{Value, json};

use super::*;

/// Workspaces that exist only as names, with a log of the operations.
#[derive(Debug, Default)]
struct FakeWorkspaces {
    said: Mutex<Vec<String>>,
    left: Option<WorkspaceChanges>,
    /// Reason why none can be created.
    failure: Option<&'static str>,
    /// All earlier workspaces are gone.
    gone: bool,
}

impl FakeWorkspaces {
    fn say(&self, what: &str, id: &InvocationId) {
        self.said.lock().unwrap().push(format!("{what} {id}"));
    }

    fn said(&self) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    fn place(&self, id: &InvocationId) -> PortFuture<Result<IsolatedWorkspace, String>> {
        let mut tools = Toolbox::default();
        tools.register(Arc::new(BoundEcho(BoundEcho::spec()))).ok();
        let place = IsolatedWorkspace {
            cwd: format!("/copies/{id}"),
            system_prompt: "You are elsewhere.".to_owned(),
            tools,
            policy: Arc::new(PolicyFn(|action: &Action, _: &Situation<'_>| {
                if action.summary == "forbidden" {
                    let (reason, rule) = ("not there".to_owned(), "r".to_owned());
                    return Verdict::Deny { reason, rule };
                }
                Verdict::Allow(test_confinement())
            })),
        };
        let place = self.failure.map_or(Ok(place), |why| Err(why.to_owned()));
        Box::pin(std::future::ready(place))
    }
}

impl IsolatedWorkspaces for FakeWorkspaces {
    fn open(
        &self,
        id: &InvocationId,
        agent: &str,
        caller: &Origin,
    ) -> PortFuture<Result<IsolatedWorkspace, String>> {
        let asked = (agent, caller.agent.as_str());
        assert!(asked == ("scout", "build") || asked == ("other", "scout"), "{asked:?}");
        self.say("open", id);
        self.place(id)
    }

    fn reopen(&self, id: &InvocationId, _: &str) -> PortFuture<Result<IsolatedWorkspace, String>> {
        self.say("reopen", id);
        self.place(id)
    }

    fn is_there(&self, _: &InvocationId) -> bool {
        !self.gone
    }

    fn close(&self, id: &InvocationId) -> PortFuture<Result<Option<WorkspaceChanges>, String>> {
        self.say("close", id);
        Box::pin(std::future::ready(Ok(self.left.clone())))
    }

    fn discard(&self, id: &InvocationId) {
        self.say("discard", id);
    }
}

/// `echo`, bound to such a workspace.
struct BoundEcho(ToolSpec);

impl BoundEcho {
    fn spec() -> ToolSpec {
        ToolSpec {
            name: "echo".to_owned(),
            description: "says where it is".to_owned(),
            parameters: json!({
                "type": "object", "properties": {"text": {"type": "string"}},
            }),
            side_effect: SideEffect::None,
            source: "test".to_owned(),
            annotations: ToolAnnotations::default(),
        }
    }
}

impl Tool for BoundEcho {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let summary = arguments["text"].as_str().unwrap_or_default().to_owned();
        let action = Action {
            tool: "echo".to_owned(),
            operations: Vec::new(),
            detail: summary.clone(),
            digest: summary.clone(),
            summary,
        };
        Box::pin(std::future::ready(Ok(Prepared { action, payload: Box::new(()) })))
    }

    fn run(&self, _: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        Box::pin(std::future::ready(ToolOutput::text("elsewhere")))
    }
}

fn left() -> WorkspaceChanges {
    let file = |path: &str| ChangedFile { path: path.to_owned(), added: 2, removed: 1 };
    WorkspaceChanges {
        count: 3,
        files: vec![file("a"), file("b\nmine")],
        ..WorkspaceChanges::default()
    }
}

/// A main agent that delegates a task with these arguments.
fn bench(
    main: Vec<ModelStep>,
    scout: &Arc<ScriptedModel>,
    workspaces: &Arc<FakeWorkspaces>,
) -> SessionBuilder {
    let mut bench = SessionBuilder::new(main);
    bench.policy = allow_all();
    bench.limits = quick();
    let subagents =
        vec![subagent("scout", scout, &["echo"], &["other"]), subagent("other", scout, &[], &[])];
    bench.delegation = Some(Delegation {
        workplaces: Some(Arc::clone(workspaces) as Arc<dyn IsolatedWorkspaces>),
        limits: GovernorLimits { depth_max: 2, ..GovernorLimits::default() },
        ..delegation(subagents)
    });
    bench
}

fn isolated() -> ModelStep {
    ModelStep::Call(vec![call("scout", r#","isolation":"worktree""#)])
}

#[tokio::test]
async fn isolated_subagent_works_in_its_worktree_and_reports_changes() {
    let workspaces = Arc::new(FakeWorkspaces { left: Some(left()), ..FakeWorkspaces::default() });
    let scout = model(
        "scout",
        vec![
            ModelStep::calls("echo", &["a", "forbidden"]),
            ModelStep::Call(vec![call("other", "")]),
            ModelStep::say("made"),
        ],
    );
    let bench = bench(vec![isolated(), ModelStep::say("done")], &scout, &workspaces);
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    let requests = scout.requests();
    let Message::System { content } = &*requests[0][0] else { panic!("{requests:?}") };
    assert_eq!(content, "You are elsewhere.");
    let Message::User { content } = &*requests[0][1] else { panic!("{requests:?}") };
    assert!(text_of(content).contains("a copy of /project as it is now"), "{content:?}");
    let tool = |nth: usize| match &*requests[2][nth] {
        Message::Tool { content, .. } => text_of(content),
        other => panic!("{other:?}"),
    };
    assert_eq!(tool(3), "elsewhere");
    assert!(tool(4).starts_with("Denied: not there"), "{}", tool(4));
    assert!(tool(6).contains("Unknown tool"), "nobody works for it there: {}", tool(6));
    let [result] = results(&bench.model).try_into().unwrap();
    let id = result.split(['(', ')']).nth(1).unwrap().to_owned();
    for part in [
        "and not in the workspace: a (+2 -1), b\\nmine (+2 -1), and 1 more.",
        &format!("agent_diff {{\"id\": \"{id}\"}} shows it; agent_merge {{\"id\": \"{id}\"}}"),
    ] {
        assert!(result.contains(part), "{part}: {result}");
    }
    assert_eq!(workspaces.said(), ["open", "close"]);
    let cwd = format!("/copies/{id}");
    let recorded: Vec<Option<WorktreeSummary>> = seen
        .iter()
        .filter_map(|one| match one.event() {
            Event::InvocationRequested { workplace, .. } => {
                assert_eq!(workplace.as_deref(), Some(cwd.as_str()));
                None
            }
            Event::DelegationEnded { workplace, .. } => Some(workplace.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(recorded, [Some(WorktreeSummary { cwd, kept: true, left: Some(left()) })]);
}

#[tokio::test]
async fn unchanged_worktree_is_reported_and_removed() {
    let workspaces = Arc::new(FakeWorkspaces::default());
    let scout = model("scout", vec![ModelStep::say("seen")]);
    let bench = bench(vec![isolated(), ModelStep::say("done")], &scout, &workspaces);
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    end(&bench, stage).await;
    let [result] = results(&bench.model).try_into().unwrap();
    assert!(result.contains("It changed nothing in its worktree, which was removed."), "{result}");
    assert!(!result.contains("agent_merge"), "{result}");
}

#[tokio::test]
async fn subagent_without_a_workspace_does_not_start() {
    // None can be created; one too many; none are available at all.
    for (failure, live_max, available, expected) in [
        (Some("no repository"), 3, true, "refused(isolation): no agent was started. DLG005"),
        (None, 0, true, "refused(delegation.maxConcurrent)"),
        (None, 3, false, "ARG001 unknown field \"isolation\""),
    ] {
        let workspaces = Arc::new(FakeWorkspaces { failure, ..FakeWorkspaces::default() });
        let scout = model("scout", vec![]);
        let mut bench = bench(vec![isolated(), ModelStep::say("done")], &scout, &workspaces);
        let delegation = bench.delegation.as_mut().unwrap();
        delegation.limits.live_max = live_max;
        if !available {
            delegation.workplaces = None;
        }
        let mut stage = bench.start().await;
        play(&mut stage, "go", &[]).await.unwrap();
        let seen = end(&bench, stage).await;
        let [result] = results(&bench.model).try_into().unwrap();
        assert!(result.starts_with(expected), "{result}");
        assert!(outcomes(&seen).is_empty(), "{expected}");
        // The workspace created for it is removed.
        let expected: &[&str] = if available { &["open", "discard"] } else { &[] };
        assert_eq!(workspaces.said(), expected);
    }
}

#[tokio::test]
async fn always_isolated_agent_never_uses_the_workspace() {
    let scout = model("scout", vec![]);
    let mut bench =
        SessionBuilder::new(vec![ModelStep::Call(vec![call("scout", "")]), ModelStep::say("done")]);
    let apart = Subagent { isolated: true, ..subagent("scout", &scout, &["echo"], &[]) };
    bench.delegation = Some(delegation(vec![apart]));
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    end(&bench, stage).await;
    let [result] = results(&bench.model).try_into().unwrap();
    assert!(result.starts_with("DLG005 there is no worktree for it"), "{result}");
    assert!(result.contains("scout always works in one"), "{result}");
    assert_eq!(scout.requests().len(), 0);
}

/// The records of a run, up to the first reply of the isolated subagent.
async fn broken_off() -> Vec<StoredRecord> {
    let workspaces = Arc::new(FakeWorkspaces { left: Some(left()), ..FakeWorkspaces::default() });
    let scout = model("scout", vec![ModelStep::calls("echo", &["a"]), ModelStep::say("made")]);
    let bench = bench(vec![isolated(), ModelStep::say("done")], &scout, &workspaces);
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    end(&bench, stage).await;
    let records = bench.journal.records();
    let done = |record: &StoredRecord| {
        let is_echo = matches!(&record.event, Event::ToolCompleted { name, .. } if name == "echo");
        is_echo && record.origin.as_ref().is_some_and(|origin| origin.agent == "scout")
    };
    let at = records.iter().position(done).unwrap();
    records[..=at].to_vec()
}

#[tokio::test]
async fn isolated_subagent_resumes_in_its_worktree_or_fails_with_the_reason() {
    let records = broken_off().await;
    for (failure, expected) in [
        (None, "): done\n<agent-answer>\nmade there"),
        (Some("gone"), "): failed(worktree): it cannot continue in its worktree: gone"),
    ] {
        let workspaces =
            Arc::new(FakeWorkspaces { left: Some(left()), failure, ..FakeWorkspaces::default() });
        let scout = model("scout", vec![ModelStep::say("made there")]);
        let mut bench = bench(vec![ModelStep::say("done")], &scout, &workspaces);
        bench.journal = Arc::new(MemoryStore::of(records.clone()));
        bench.process = 2;
        bench.resumption =
            Some(Resumption { replayed: replay(&records, None), ..Resumption::default() });
        let stage = bench.start().await;
        let running = stage.session.resume().await.unwrap();
        soon("the run", running.outcome()).await.unwrap();
        stage.end().await;
        let [result] = results(&bench.model).try_into().unwrap();
        assert!(result.contains(expected), "{result}");
        if failure.is_none() {
            let system = &scout.requests()[0][0];
            assert!(format!("{system:?}").contains("You are elsewhere."), "{system:?}");
            assert_eq!(workspaces.said(), ["reopen", "close"]);
        } else {
            assert_eq!((workspaces.said().len(), scout.requests().len()), (1, 0));
            assert!(result.contains("cannot go on: give the task to a new agent"), "{result}");
            for untrue in ["agent_diff", "by force", "\"resume\"", "is kept"] {
                assert!(!result.contains(untrue), "{untrue}: {result}");
            }
        }
    }
}

/// Resumes an ended subagent: the text about its workspace, and the operations.
async fn asked_again(gone: bool) -> (String, Vec<String>, Vec<String>) {
    let workspaces =
        Arc::new(FakeWorkspaces { left: Some(left()), gone, ..FakeWorkspaces::default() });
    let scout = model("scout", vec![ModelStep::say("made"), ModelStep::say("made again")]);
    let again = |request: &[Arc<Message>]| {
        let result = request.iter().rev().find_map(|message| match &**message {
            Message::Tool { content, .. } => Some(text_of(content)),
            _ => None,
        });
        let id = result.unwrap().split(['(', ')']).nth(1).unwrap().to_owned();
        ModelStep::Call(vec![call("scout", &format!(r#","resume":"{id}""#))])
    };
    let bench = bench(
        vec![isolated(), ModelStep::Computed(Box::new(again)), ModelStep::say("done")],
        &scout,
        &workspaces,
    );
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    end(&bench, stage).await;
    let last = scout.requests().pop().unwrap();
    let told = last.iter().rev().find_map(|message| match &**message {
        Message::User { content } => Some(text_of(content)),
        _ => None,
    });
    (told.unwrap(), workspaces.said(), results(&bench.model))
}

#[tokio::test]
async fn resumed_subagent_learns_of_its_worktree_and_gets_a_new_one_if_it_is_gone() {
    let (told, said, results) = asked_again(false).await;
    assert!(
        told.contains("Working directory: your copy of /project, with what you left"),
        "{told}"
    );
    assert!(told.contains("do not commit"), "{told}");
    assert_eq!(said, ["open", "close", "reopen", "close"]);
    assert!(results.last().unwrap().contains("made again"), "{results:?}");
    let (told, said, results) = asked_again(true).await;
    assert!(told.contains("a new copy of /project as it is now. The one that you had"), "{told}");
    assert_eq!(said, ["open", "close", "open", "close"]);
    assert!(results.last().unwrap().contains("made again"), "{results:?}");
}

#[tokio::test]
async fn unmerged_worktrees_of_nested_subagents_are_reported() {
    let workspaces = Arc::new(FakeWorkspaces { left: Some(left()), ..FakeWorkspaces::default() });
    let deeper = ModelStep::Call(vec![call("other", r#","isolation":"worktree""#)]);
    // One model plays both: the lead calls, the other answers, the lead answers.
    let scout = model("scout", vec![deeper, ModelStep::say("made"), ModelStep::say("led")]);
    let bench = bench(
        vec![ModelStep::Call(vec![call("scout", "")]), ModelStep::say("done")],
        &scout,
        &workspaces,
    );
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    end(&bench, stage).await;
    let [result] = results(&bench.model).try_into().unwrap();
    assert!(result.contains("\nled\n"), "{result}");
    let other = result.split("Agent other (").nth(1).unwrap_or_else(|| panic!("{result}"));
    assert!(other.contains("leaves a worktree that was not taken over"), "{result}");
    assert!(other.contains("/copies/"), "{result}");
}
