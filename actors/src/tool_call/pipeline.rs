//! The way of a call: validate, hooks, prepare, review, question, intent, run.
//!
//! Each step changes the type, so none can be left out: arguments become a prepared call, a
//! prepared call becomes a permitted one, and only a permitted one runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::conversation::{SessionId, ToolCall};
use crate::event::{Event, Origin};
use crate::limits::Limits;
use crate::mailbox::Line;
use crate::permission_coordinator::{self as permission, Answer, Ask, GrantBook};
use crate::ports::{
    Action, Asking, CallContext, Clock, Hook, HookOutcome, Ids, OutputDelta, Policy, Prepared,
    Question, RunContext, SideEffect, Situation, Tool, ToolError, ToolOutput, Toolbox,
};
use crate::record::Durability;
use crate::testing_seam::FailPoints;
use crate::tool_call::arguments::{Arguments, validate};
use crate::tool_call::review::{PermittedCall, Review, review};
use crate::transcript_writer::Transcript;

/// Pieces of live output between a tool and its observers.
const OUTPUT_IN_FLIGHT: usize = 64;

/// What calls of one session share.
pub(crate) struct Services {
    pub(crate) session_id: SessionId,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) hooks: Arc<dyn Hook>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) transcript: Transcript,
    pub(crate) permissions: Line<permission::Msg>,
    pub(crate) book: GrantBook,
    pub(crate) asking: Asking,
    pub(crate) tier: String,
    pub(crate) limits: Arc<Limits>,
    pub(crate) fail: FailPoints,
}

/// Where a call got to.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It ran.
    Ran { output: ToolOutput, took: Duration },
    /// It did not: for one of the classes of [`Event::ToolFailed`].
    Refused { class: &'static str, output: ToolOutput },
}

pub(crate) struct Pipeline {
    pub(crate) services: Arc<Services>,
    pub(crate) origin: Arc<Origin>,
    pub(crate) call: ToolCall,
    /// Names the agent sees; anything else does not exist for it.
    pub(crate) visible: Arc<[String]>,
    /// Set once the intent is durable: from then on there may have been an effect.
    pub(crate) started: Arc<AtomicBool>,
}

type Refusal = Ended;

impl Pipeline {
    pub(crate) async fn run(self) -> Ended {
        match self.permit().await {
            Ok((tool, permitted, coerced)) => {
                let effect = tool.spec().side_effect != SideEffect::None;
                let intent = self.intent(effect, &permitted, coerced);
                match self.intend(effect, intent).await {
                    Ok(()) => self.perform(&*tool, permitted).await,
                    Err(refusal) => refusal,
                }
            }
            Err(refusal) => refusal,
        }
    }

    async fn permit(&self) -> Result<(Arc<dyn Tool>, PermittedCall, Vec<String>), Refusal> {
        let tool = self.tool()?;
        let (arguments, coerced) = self.arguments(&*tool).await?;
        let prepared = self.prepare(&*tool, &arguments).await?;
        let mut reviewed = self.review(prepared);
        for _ in 0..=self.services.limits.rejudgements_max {
            let pending = match reviewed {
                Review::Permitted(permitted) => return Ok((tool, permitted, coerced)),
                Review::Denied { reason, rule } => return Err(denied(&reason, Some(&rule))),
                Review::Pending(pending) => pending,
            };
            let (action, question) = (pending.action().clone(), pending.question().clone());
            self.question(action, question).await?;
            // The world may have changed while a human was thinking.
            let prepared = self.prepare(&*tool, &arguments).await?;
            match pending.approve(prepared) {
                Ok(permitted) => return Ok((tool, permitted, coerced)),
                Err(changed) => reviewed = self.review(changed),
            }
        }
        Err(denied("what it would do kept changing while it was asked about", None))
    }

    fn tool(&self) -> Result<Arc<dyn Tool>, Refusal> {
        let name = &self.call.name;
        let tool = self.services.tools.get(name).filter(|_| self.visible.contains(name));
        tool.cloned().ok_or_else(|| {
            let names = self.visible.join(", ");
            let text = format!("Unknown tool: {name:?}. Available tools: {names}");
            Ended::Refused { class: "unknown_tool", output: ToolOutput::error(text) }
        })
    }

    async fn arguments(&self, tool: &dyn Tool) -> Result<(Value, Vec<String>), Refusal> {
        let schema = &tool.spec().parameters;
        let bytes_max = self.services.limits.arguments_bytes_max;
        let checked = |raw: &str| validate(schema, raw, bytes_max).map_err(|error| invalid(&error));
        let Arguments { value, coerced } = checked(&self.call.arguments)?;
        if self.services.hooks.is_silent() {
            return Ok((value, coerced));
        }
        match self.services.hooks.before(&self.call, &value).await {
            HookOutcome::Continue => Ok((value, coerced)),
            HookOutcome::Replace(other) => {
                let Arguments { value, coerced } = checked(&other.to_string())?;
                Ok((value, coerced))
            }
            HookOutcome::Block(reason) => Err(Ended::Refused {
                class: "denied",
                output: ToolOutput::error(format!("Blocked: {reason}")),
            }),
        }
    }

    async fn prepare(&self, tool: &dyn Tool, arguments: &Value) -> Result<Prepared, Refusal> {
        let prepared = tool.prepare(arguments.clone(), self.context()).await;
        prepared.map_err(|error| invalid(&error))
    }

    fn review(&self, prepared: Prepared) -> Review {
        let services = &self.services;
        let grants = services.book.grants();
        let situation = Situation {
            agent: &self.origin.agent,
            grants: &grants,
            asking: services.asking,
            now_ms: services.clock.wall_ms(),
            uptime: services.clock.monotonic(),
            tier: &services.tier,
        };
        review(self.call.clone(), prepared, &*services.policy, &situation)
    }

    async fn question(&self, action: Action, question: Question) -> Result<(), Refusal> {
        let id = self.services.ids.question();
        let ask = |reply| {
            permission::Msg::Ask(Ask {
                id: id.clone(),
                call_id: self.call.id.clone(),
                origin: Arc::clone(&self.origin),
                action: action.clone(),
                question: question.clone(),
                reply,
            })
        };
        match self.services.permissions.insist(ask).await {
            Some(Answer::Allowed) => Ok(()),
            Some(Answer::Denied { reason }) => Err(denied(&reason, None)),
            None => Err(denied("the part that asks the user has stopped", None)),
        }
    }

    fn intent(&self, effect: bool, permitted: &PermittedCall, coerced: Vec<String>) -> Event {
        Event::ToolStarted {
            call_id: self.call.id.clone(),
            name: self.call.name.clone(),
            summary: permitted.action().summary.clone(),
            digest: permitted.action().digest.clone(),
            effect,
            coerced,
        }
    }

    /// Records the intent. Where there may be an effect, returns when it is on the disk.
    async fn intend(&self, effect: bool, intent: Event) -> Result<(), Refusal> {
        let transcript = &self.services.transcript;
        if !effect {
            transcript.note(Some(&self.origin), intent);
            return Ok(());
        }
        let recorded = transcript.record(Some(&self.origin), intent, Durability::Synced).await;
        recorded.map_err(|unrecorded| Ended::Refused {
            class: "failed",
            output: ToolOutput::error(format!("Not started: {unrecorded}")),
        })?;
        self.started.store(true, Ordering::Release);
        Ok(())
    }

    async fn perform(&self, tool: &dyn Tool, permitted: PermittedCall) -> Ended {
        let began = self.services.clock.monotonic();
        let (output_tx, output_rx) = mpsc::channel(OUTPUT_IN_FLIGHT);
        let (facts_tx, facts_rx) = mpsc::channel(OUTPUT_IN_FLIGHT);
        let context = RunContext {
            call: self.context(),
            output: output_tx,
            facts: facts_tx,
            output_bytes_max: self.services.limits.output_bytes_max,
        };
        let run = tool.run(permitted, context);
        let (mut output, (), ()) =
            tokio::join!(run, self.watch_output(output_rx), self.watch_facts(facts_rx));
        cap(&mut output, self.services.limits.result_bytes_max);
        let took = self.services.clock.monotonic().saturating_sub(began);
        Ended::Ran { output, took }
    }

    async fn watch_output(&self, mut output: mpsc::Receiver<OutputDelta>) {
        while let Some(OutputDelta { mut text }) = output.recv().await {
            while let Ok(more) = output.try_recv() {
                text.push_str(&more.text);
            }
            let event = Event::ToolOutputDelta { call_id: self.call.id.clone(), text };
            self.services.transcript.note(Some(&self.origin), event);
        }
    }

    async fn watch_facts(&self, mut facts: mpsc::Receiver<Event>) {
        while let Some(fact) = facts.recv().await {
            self.services.transcript.note(Some(&self.origin), fact);
        }
    }

    fn context(&self) -> CallContext {
        CallContext {
            session_id: self.services.session_id.clone(),
            call_id: self.call.id.clone(),
            agent: self.origin.agent.clone(),
        }
    }
}

fn invalid(error: &ToolError) -> Refusal {
    Ended::Refused { class: "invalid", output: ToolOutput::error(error.to_string()) }
}

fn denied(reason: &str, rule: Option<&str>) -> Refusal {
    let text = match rule {
        Some(rule) => format!("Denied: {reason} (rule: {rule})"),
        None => format!("Denied: {reason}"),
    };
    Ended::Refused { class: "denied", output: ToolOutput::error(text) }
}

/// The backstop for tools that do not cut their own output: head and tail are kept.
fn cap(output: &mut ToolOutput, bytes_max: usize) {
    use crate::conversation::ContentPart;

    for part in &mut output.content {
        if let ContentPart::Text { text } = part
            && text.len() > bytes_max
        {
            let head = text.floor_char_boundary(bytes_max / 2);
            let tail = text.ceil_char_boundary(text.len() - bytes_max / 2);
            let cut = tail - head;
            *text = format!("{}\n… {cut} bytes cut …\n{}", &text[..head], &text[tail..]);
        }
    }
}
