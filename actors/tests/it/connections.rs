//! Questions about connections of a running call: asked in the queue of permission requests, never
//! answered by `--yes` or an earlier grant of another kind, withdrawn at their deadline.

use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::Prompt;
use posse_actors::delegation::{DELEGATE, Delegation, Subagent};
use posse_actors::event::{Announcement, Event, Scope, TargetType};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::ports::{
    Action, AnswerSource, CallContext, ConnectionAnswer, ConnectionRequest, PermittedCall,
    PortFuture, Prepared, Provider, RunContext, SideEffect, Tool, ToolAnnotations, ToolError,
    ToolOutput, ToolSpec,
};
use posse_actors::testing::{ModelStep, RunningSession, ScriptedModel, SessionBuilder, types};
use serde_json::{Value, json};

use crate::support::{count, end, quick, soon};

/// Tool that does the operation in its argument `text`, `connect` if it names none, at the target there,
/// twice, and says what was answered.
#[derive(Debug)]
struct ConnectingTool(ToolSpec);

impl ConnectingTool {
    fn new() -> ConnectingTool {
        ConnectingTool(ToolSpec {
            name: "connecting".to_owned(),
            description: "connects".to_owned(),
            parameters: json!({"type": "object", "properties": {"text": {"type": "string"}}}),
            side_effect: SideEffect::Process,
            source: "programmatic".to_owned(),
            annotations: ToolAnnotations::default(),
        })
    }
}

impl Tool for ConnectingTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let text = arguments["text"].as_str().unwrap_or_default().to_owned();
        let action = Action {
            tool: "connecting".to_owned(),
            operations: Vec::new(),
            summary: format!("fetch {}", operation_and_target(&text).1),
            detail: String::new(),
            digest: text.clone(),
        };
        Box::pin(async move { Ok(Prepared { action, payload: Box::new(text) }) })
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        Box::pin(async move {
            let text = call.into_payload().downcast::<String>().unwrap();
            let (operation, target) = operation_and_target(&text);
            let request = ConnectionRequest {
                operation: operation.to_owned(),
                summary: format!("{operation} to {target}"),
                reason: "it is new".to_owned(),
                target: target.to_owned(),
            };
            let mut said = Vec::new();
            for _ in 0..2 {
                said.push(match context.connections.ask(request.clone()).await {
                    ConnectionAnswer::Allowed { lasting } => format!("allowed {lasting}"),
                    ConnectionAnswer::Denied { reason } => reason,
                });
            }
            ToolOutput::text(said.join("; "))
        })
    }
}

fn operation_and_target(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or(("connect", text))
}

fn connecting(steps: Vec<ModelStep>) -> SessionBuilder {
    let mut bench = SessionBuilder::new(steps).tool(ConnectingTool::new());
    bench.limits = quick();
    bench
}

fn once() -> Vec<ModelStep> {
    vec![ModelStep::calls("connecting", &["a.example:443"]), ModelStep::say("done")]
}

/// Answers the next question, about an operation and its target.
async fn answer(stage: &mut RunningSession, decision: HumanDecision, about: &str) {
    let (operation, to) = operation_and_target(about);
    let asked = stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
    let Event::PermissionRequested { request_id, target, summary, detail, scopes, .. } =
        asked.event()
    else {
        unreachable!()
    };
    assert_eq!((&target.target_type, &*target.target_name), (&TargetType::Connection, to));
    assert_eq!(*summary, format!("{operation} to {to}"));
    assert!(detail.contains(&format!("fetch {to}")), "{detail}");
    let is_below = asked.origin().is_some_and(|origin| origin.parent_invocation_id.is_some());
    let offered: &[Scope] = if is_below {
        &[Scope::Once, Scope::Agent, Scope::Session]
    } else {
        &[Scope::Once, Scope::Session]
    };
    assert!(scopes.starts_with(offered), "{scopes:?}");
    stage.session.answer(request_id.clone(), decision).await.unwrap();
}

fn results(seen: &[Arc<Announcement>]) -> Vec<String> {
    let texts = seen.iter().filter_map(|seen| match seen.event() {
        Event::ToolCompleted { content, .. } => Some(format!("{content:?}")),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn a_person_answers_for_once_or_for_the_session() {
    let bench = connecting(vec![
        ModelStep::calls("connecting", &["a.example:443"]),
        ModelStep::calls("connecting", &["a.example:443"]),
        ModelStep::calls("connecting", &["b.example:443"]),
        ModelStep::say("done"),
    ]);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    answer(&mut stage, HumanDecision::Allow(Scope::Once), "a.example:443").await;
    answer(&mut stage, HumanDecision::Allow(Scope::Session), "a.example:443").await;
    let reason = Some("not there".to_owned());
    answer(&mut stage, HumanDecision::Deny { reason: reason.clone() }, "b.example:443").await;
    answer(&mut stage, HumanDecision::Deny { reason }, "b.example:443").await;
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    let said = results(&seen);
    assert!(said[0].contains("allowed false; allowed true"), "{said:?}");
    assert!(said[1].contains("allowed true; allowed true"), "{said:?}");
    assert!(said[2].contains("not there; not there"), "{said:?}");
    assert_eq!(count(&seen, "permission.requested"), 4);
}

#[tokio::test]
async fn a_grant_of_another_kind_answers_nothing() {
    let bench = connecting(vec![
        ModelStep::calls("connecting", &["upload a.example:443"]),
        ModelStep::calls("connecting", &["a.example:443"]),
        ModelStep::say("done"),
    ]);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    answer(&mut stage, HumanDecision::Allow(Scope::Session), "upload a.example:443").await;
    let deny = || HumanDecision::Deny { reason: Some("not there".to_owned()) };
    answer(&mut stage, deny(), "a.example:443").await;
    answer(&mut stage, deny(), "a.example:443").await;
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    let said = results(&seen);
    assert!(said[0].contains("allowed true; allowed true"), "{said:?}");
    assert!(said[1].contains("not there; not there"), "{said:?}");
    assert_eq!(count(&seen, "permission.requested"), 3);
}

#[tokio::test]
async fn without_a_person_nothing_is_asked_and_yes_answers_nothing() {
    for asking in [AnswerSource::Yes, AnswerSource::Nobody] {
        let mut bench = connecting(once());
        bench.asking = asking;
        let stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        let outcome = soon("the run", running.outcome()).await.unwrap();
        assert_eq!((outcome.unanswered, outcome.not_by_yes), (0, 0));
        let seen = end(&bench, stage).await;
        assert!(results(&seen)[0].contains("no user can be asked"), "{asking:?}");
        assert!(types(&seen).iter().all(|kind| !kind.starts_with("permission.")));
    }
}

#[tokio::test]
async fn a_question_without_an_answer_is_withdrawn_at_its_deadline() {
    let mut bench = connecting(once());
    bench.limits.connection_wait = Duration::from_millis(20);
    let stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert!(results(&seen)[0].contains("the user did not answer within 0 s"));
    let asked = |event: &Event| matches!(event, Event::PermissionRequested { .. });
    let asked = seen.iter().find(|announcement| asked(announcement.event())).unwrap();
    let Event::PermissionRequested { reason, .. } = asked.event() else { unreachable!() };
    assert_eq!(reason, "it is new; without an answer within 0 s it is refused");
    assert_eq!(count(&seen, "permission.requested"), 2);
    assert_eq!(count(&seen, "permission.withdrawn"), 2);
}

#[tokio::test]
async fn an_interrupted_call_withdraws_its_question() {
    let bench = connecting(once());
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    stage.until(|event| matches!(event, Event::PermissionRequested { .. })).await;
    stage.session.interrupt();
    soon("the run", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "permission.withdrawn"), 1);
}

#[tokio::test]
async fn an_answer_for_an_agent_allows_no_connection_of_another_agent() {
    for operation in ["", "upload "] {
        let about = format!("{operation}a.example:443");
        let steps = || vec![ModelStep::calls("connecting", &[&about]), ModelStep::say("done")];
        let scout: Arc<dyn Provider> =
            Arc::new(ScriptedModel::new([steps(), steps()].into_iter().flatten().collect()));
        let delegate = || ModelStep::call(DELEGATE, r#"{"agent":"scout","task":"look"}"#);
        let mut bench = connecting(vec![delegate(), delegate(), ModelStep::say("done")]);
        let subagent = Subagent {
            name: "scout".to_owned(),
            system_prompt: String::new(),
            tools: vec!["connecting".to_owned()],
            provider: Some(scout),
            thinking: None,
            temperature: None,
            price: None,
            calls: Vec::new(),
            turns_max: None,
            duration_max: None,
            depth_max: None,
            isolated: false,
        };
        bench.delegation = Some(Delegation {
            main_calls: vec!["scout".to_owned()],
            subagents: vec![subagent],
            turns_max: 10,
            ..Delegation::default()
        });
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        for scope in [Scope::Agent, Scope::Session] {
            let answered = answer(&mut stage, HumanDecision::Allow(scope), &about);
            soon("the question", answered).await;
        }
        soon("the run", running.outcome()).await.unwrap();
        let seen = end(&bench, stage).await;
        let said = results(&seen);
        // What counts for one agent must not be remembered for the session.
        assert!(said[0].contains("allowed false; allowed false"), "{said:?}");
        assert!(said[2].contains("allowed true; allowed true"), "{said:?}");
        assert_eq!(count(&seen, "permission.requested"), 2);
    }
}
