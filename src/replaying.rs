//! `posse replay`: executes a session again in the real kernel, with model replies and tool results
//! from its journal, and compares the recorded session with the replay.
//!
//! No provider is contacted, no tool has an effect, and no file is written. Attempts fail as
//! recorded, and permission requests are answered as recorded. The journal does not contain
//! everything, such as the continuation of a killed process; such parts are not compared, and
//! neither are waiting times. Subagents are not executed: the result names all that was left out.

mod attempts;
mod context;
mod coverage;
mod questions;
mod recording;
mod steps;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::SessionId;
use posse_actors::event::{SessionEndReason, StoredRecord};
use posse_actors::limits::Limits;
use posse_actors::ports::{
    AnswerSource, Clock, Fallback, Ids, JournalStore, NoCheckpoints, NoGrants, NoHooks, Policy,
    Ports, ToolSpec, Toolbox,
};
use posse_actors::root_session::{SessionEnding, SessionHandle, SessionSettings};
use serde::Serialize;

use crate::cli::OutputFormat;
use crate::commands::runtime;
use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::journal::{MemoryJournal, StateDir, whole_session};
use context::{RecordedModel, RecordedTool, ReplayContext};
use coverage::NotReplayed;
use recording::Recording;
use steps::{Difference, ReplayStep};

/// Time limit of a whole replay, in real time. Recorded waits are only simulated.
const RUN_MAX: Duration = Duration::from_mins(5);
/// Maximum number of turns of a run in a replay, unless a recorded run reached its own limit: more
/// than any run has.
const TURNS_MAX: u32 = 1_000_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayReport<'a> {
    v: u32,
    r#type: &'static str,
    session_id: &'a str,
    /// True if the whole session was replayed without a difference.
    identical: bool,
    prompts: usize,
    replies: usize,
    calls: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<&'a Difference>,
    #[serde(skip_serializing_if = "NotReplayed::is_nothing")]
    not_replayed: NotReplayed,
}

/// Replays session `id` and writes the result to `out`. `specs`: definitions of the current tools.
/// As text the result is one sentence or, for a difference, its two sides; a JSON stream has the
/// records of the replay before the result. Returns [`Exit::Done`] if the replayed part has the same
/// steps as the recorded session, otherwise [`Exit::Failed`]. Fails if the session is damaged, has no
/// prompt, or takes longer than 5 minutes to replay. A closed pipe as `out` is not an error.
pub fn run(
    state: &StateDir,
    id: &str,
    specs: &[ToolSpec],
    format: OutputFormat,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let (found, records) = whole_session(state, id)?;
    let recorded = steps::steps(&records);
    if recorded.is_empty() {
        let what = format!("session `{}` has no prompt to replay", found.id);
        return Err(Failure::new(ErrorCode::ReplayWithoutPrompt, Exit::Session, what));
    }
    let not_replayed = NotReplayed::of(&records);
    let replayed_records = perform(&found.id, Recording::of(&records), specs)?;
    let replayed = steps::steps(&replayed_records);
    let difference = steps::difference(&recorded, &replayed);
    let count =
        |wanted: fn(&ReplayStep) -> bool| recorded.iter().filter(|step| wanted(step)).count();
    let report = ReplayReport {
        v: 1,
        r#type: "replay",
        session_id: &found.id,
        identical: difference.is_none() && not_replayed.is_nothing(),
        prompts: count(|step| matches!(step, ReplayStep::User { .. })),
        replies: count(|step| matches!(step, ReplayStep::Reply { .. })),
        calls: count(|step| matches!(step, ReplayStep::Result { .. })),
        difference: difference.as_ref(),
        not_replayed,
    };
    let written = write(&report, &replayed_records, format, out).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ErrorCode::ReplayOutput, Exit::Failed, "cannot write the output")
                .because(error.to_string()))
        }
        _ if difference.is_none() => Ok(Exit::Done),
        _ => Ok(Exit::Failed),
    }
}

fn write(
    report: &ReplayReport<'_>,
    records: &[StoredRecord],
    format: OutputFormat,
    out: &mut dyn Write,
) -> io::Result<()> {
    if format == OutputFormat::StreamJson {
        for record in records {
            serde_json::to_writer(&mut *out, record)?;
            writeln!(out)?;
        }
    }
    if format != OutputFormat::Text {
        serde_json::to_writer(&mut *out, report)?;
        return writeln!(out);
    }
    let ReplayReport { prompts, replies, calls, not_replayed, .. } = report;
    let result = if report.identical { "identical" } else { "no difference in what was replayed" };
    match report.difference {
        None => writeln!(
            out,
            "{result}: {}, {}, {}",
            counted(*prompts, "prompt", "prompts"),
            counted(*replies, "reply", "replies"),
            counted(*calls, "result", "results"),
        ),
        Some(Difference { step, recorded, replayed }) => writeln!(
            out,
            "different at step {step}\n  recorded: {}\n  replayed: {}",
            printable(recorded),
            printable(replayed)
        ),
    }?;
    if not_replayed.is_nothing() {
        return Ok(());
    }
    writeln!(out, "  not replayed: {}", not_replayed.text())
}

/// Replays the recording in the kernel, and returns the records of the replay. Fails after
/// [`RUN_MAX`].
fn perform(
    id: &str,
    recording: Recording,
    specs: &[ToolSpec],
) -> Result<Vec<StoredRecord>, Failure> {
    let runtime = runtime()?;
    let played = runtime.block_on(async {
        tokio::time::timeout(RUN_MAX, play(id, recording, specs)).await.unwrap_or_else(|_| {
            let what = "the replay did not finish within 5 minutes";
            Err(Failure::new(ErrorCode::ReplayTimedOut, Exit::Failed, what))
        })
    });
    runtime.shutdown_background();
    played
}

async fn play(
    id: &str,
    mut recording: Recording,
    specs: &[ToolSpec],
) -> Result<Vec<StoredRecord>, Failure> {
    let internal = |what: String| Failure::new(ErrorCode::InternalFailure, Exit::Internal, what);
    let turns = std::mem::take(&mut recording.turns);
    let settings = settings(id, &recording);
    let names = recording.tools.clone();
    let others: Vec<_> = recording.contacts.iter().map(|contact| contact.abilities).collect();
    let stage = Arc::new(ReplayContext::new(recording));
    let mut tools = Toolbox::default();
    for name in &names {
        let known = specs.iter().find(|spec| spec.name == *name);
        // A duplicate name is one tool.
        tools.register(Arc::new(RecordedTool::new(name, known, Arc::clone(&stage)))).ok();
    }
    let journal = Arc::new(MemoryJournal::default());
    let model = |who: usize| Arc::new(RecordedModel { who, stage: Arc::clone(&stage) });
    let fallback = |(who, abilities)| Fallback { provider: model(who), abilities, price: None };
    let ports = Ports {
        provider: model(0),
        fallbacks: others.into_iter().enumerate().skip(1).map(fallback).collect(),
        tools: Arc::new(tools),
        hooks: Arc::new(NoHooks),
        policy: Arc::clone(&stage) as Arc<dyn Policy>,
        grants: Arc::new(NoGrants),
        checkpoints: Arc::new(NoCheckpoints),
        journal: Arc::clone(&journal) as Arc<dyn JournalStore>,
        clock: Arc::clone(&stage) as Arc<dyn Clock>,
        ids: Arc::clone(&stage) as Arc<dyn Ids>,
    };
    let session = SessionHandle::start(ports, settings).await;
    let session = session.map_err(|error| internal(error.to_string()))?;
    stage.set_session(session.clone());
    for turn in turns {
        stage.begin(turn.attempts);
        let running = match turn.prompt {
            Some(prompt) => session.prompt(prompt).await,
            None => session.resume().await,
        };
        let running = running.map_err(|error| internal(error.to_string()))?;
        running.outcome().await;
    }
    let reason = SessionEndReason::Completed;
    session.end(SessionEnding { reason, exit_code: 0, result: None, error: None }).await;
    let records = journal.read(1, u64::MAX).await;
    records.map_err(|error| internal(error.to_string()))
}

fn settings(id: &str, recording: &Recording) -> SessionSettings {
    SessionSettings {
        posse: env!("CARGO_PKG_VERSION").to_owned(),
        tools: recording.tools.clone(),
        asking: AnswerSource::Human,
        limits: Limits {
            turns_max: recording.turns_max.unwrap_or(TURNS_MAX),
            result_bytes_max: usize::MAX,
            outwaits_once: recording.waited_when_parked,
            ..context::limits()
        },
        history: recording.history.clone(),
        ..SessionSettings::new(SessionId::new(id), recording.cwd.clone(), recording.agent.clone())
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests;
