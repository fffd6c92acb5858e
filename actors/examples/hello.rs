//! The kernel in another program: a scripted model, one custom tool, and a permission request that
//! the program answers. Writes no file and uses no network.
//!
//! `cargo run -p posse-actors --example hello`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::sync::Arc;

use posse_actors::conversation::{Prompt, SessionId};
use posse_actors::event::{Announcement, Event, Scope};
use posse_actors::outcome::Ending;
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::ports::{
    Action, AnswerSource, CallContext, CommandDeletions, NoCheckpoints, NoGrants, NoHooks,
    Operation, PermittedCall, PortFuture, Ports, Prepared, RunContext, SideEffect, Tool,
    ToolAnnotations, ToolError, ToolOutput, ToolSpec, Toolbox,
};
use posse_actors::root_session::{SessionEnding, SessionHandle, SessionSettings};
use posse_actors::testing::{
    CountedIds, MemoryStore, ModelStep, ScriptedModel, TokioClock, ask_all,
};
use serde_json::{Value, json};

/// Greets the person with the given name, after permission.
struct Greet(ToolSpec);

impl Greet {
    fn new() -> Greet {
        Greet(ToolSpec {
            name: "greet".to_owned(),
            description: "Greets a person".to_owned(),
            parameters: json!({
                "type": "object",
                "properties": { "name": { "type": "string" } },
                "required": ["name"],
            }),
            side_effect: SideEffect::External,
            source: "programmatic".to_owned(),
            annotations: ToolAnnotations::default(),
        })
    }
}

impl Tool for Greet {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    // What would happen, for the policy and the human. Nothing happens here.
    fn prepare(&self, arguments: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        Box::pin(async move {
            let name = arguments["name"].as_str().unwrap_or_default().to_owned();
            let action = Action {
                tool: "greet".to_owned(),
                operations: vec![Operation::Execute {
                    command: name.clone(),
                    cwd: "/".to_owned(),
                    links: Vec::new(),
                    replaces: Vec::new(),
                    deletions: CommandDeletions::default(),
                    in_trial: false,
                    secrets: posse_actors::ports::CommandSecrets::default(),
                }],
                summary: format!("greet {name}"),
                detail: name.clone(),
                // A real tool hashes exactly what it would do.
                digest: format!("greet:{name}"),
            };
            Ok(Prepared { action, payload: Box::new(name) })
        })
    }

    // Only what was permitted gets here, with what `prepare` found out.
    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        Box::pin(async move {
            match call.into_payload().downcast::<String>() {
                Ok(name) => ToolOutput::text(format!("Hello, {name}.")),
                Err(_) => ToolOutput::error("there is nobody to greet"),
            }
        })
    }
}

fn ports() -> Result<Ports, Box<dyn Error>> {
    let model = ScriptedModel::new(vec![
        ModelStep::call("greet", r#"{"name":"world"}"#),
        ModelStep::say("I have greeted the world."),
    ]);
    let mut tools = Toolbox::default();
    tools.register(Arc::new(Greet::new())).map_err(|_| "two tools with one name")?;
    Ok(Ports {
        provider: Arc::new(model),
        fallbacks: Vec::new(),
        tools: Arc::new(tools),
        hooks: Arc::new(NoHooks),
        policy: ask_all(),
        grants: Arc::new(NoGrants),
        checkpoints: Arc::new(NoCheckpoints),
        journal: Arc::new(MemoryStore::default()),
        clock: Arc::new(TokioClock::default()),
        ids: Arc::new(CountedIds::default()),
    })
}

fn settings() -> SessionSettings {
    SessionSettings {
        system_prompt: "You greet.".to_owned(),
        tools: vec!["greet".to_owned()],
        asking: AnswerSource::Human,
        ..SessionSettings::new(SessionId::new("hello"), "/", "greeter")
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let session = SessionHandle::start(ports()?, settings()).await?;
    // Before the first prompt, so that nothing is missed.
    let mut events = session.subscribe();
    let running = session.prompt(Prompt::text("Greet the world.")).await?;
    let mut outcome = std::pin::pin!(running.outcome());
    let outcome = loop {
        tokio::select! {
            biased;
            announcement = events.next() => match announcement.as_deref().map(Announcement::event) {
                Some(Event::PermissionRequested { request_id, summary, .. }) => {
                    println!("asked: {summary}? yes");
                    session.answer(request_id.clone(), HumanDecision::Allow(Scope::Once)).await?;
                }
                Some(Event::ToolCompleted { name, .. }) => println!("done: {name}"),
                Some(_) => (),
                None => return Err("the session died".into()),
            },
            outcome = &mut outcome => break outcome,
        }
    };
    match outcome.ok_or("the session died")?.ending {
        Ending::Answered(answer) => println!("answer: {answer}"),
        other => return Err(format!("no answer: {other:?}").into()),
    }
    let reason = posse_actors::event::SessionEndReason::Completed;
    session.end(SessionEnding { reason, exit_code: 0, result: None, error: None }).await;
    Ok(())
}
