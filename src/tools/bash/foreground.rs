//! Commands of `bash` that the call waits for. A command without a requested time limit continues
//! as a background job when its default limit is over.

use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use posse_actors::conversation::ContentPart;
use posse_actors::event::{Event, SandboxTier};
use posse_actors::ports::{Confinement, NetworkAccess, PostCallMessage, RunContext, ToolOutput};
use posse_egress::Destination;
use posse_sandbox::{
    AtTimeout, Exemptions, ProcessOutcome, RunError, Sandbox, Spawn, Update, finding_lines,
};
use tokio::sync::oneshot;

use crate::bash::connections::{CommandNetwork, proxy_alone};
use crate::bash::network::MissedConnection;
use crate::bash::{JOB_TIMEOUT, announce, background, network, refused, refused_writes, report};
use crate::jobs::{Job, NewJob, continued};
use crate::{ToolEnvironment, spill};

/// Maximum number of missed connections of a session of which the user is told.
const TOLD_MAX: usize = 20;

/// A command to run, with its exemptions of protected files, and the summary of its call.
pub(super) struct Foreground {
    pub(super) spawn: Spawn,
    pub(super) besides: Exemptions,
    pub(super) summary: String,
    /// Note for the model that `timeoutMs` was set to another value than requested; `None` if it
    /// was not.
    pub(super) note: Option<String>,
    /// True if the command continues as a background job after its time limit. If no further job may
    /// run then, the command ends.
    pub(super) continues: bool,
    /// Domains that a person has allowed with the command.
    pub(super) approved: Vec<Destination>,
}

/// Runs the command and returns the result of its call: at its end, or when it has become a
/// background job.
pub(super) async fn run(
    env: &Arc<ToolEnvironment>,
    sandbox: Arc<Sandbox>,
    command: Foreground,
    context: &RunContext,
) -> ToolOutput {
    let Foreground { mut spawn, besides, summary, note, continues, approved } = command;
    let timeout = spawn.timeout;
    let Confinement { network, profile, writable_roots } = &spawn.confinement;
    let is_offline =
        *network != NetworkAccess::Host && profile != "off" && sandbox.tier() != SandboxTier::None;
    let may_write =
        profile != "off" && sandbox.tier() == SandboxTier::Full && !writable_roots.is_empty();
    let job: Arc<OnceLock<Arc<Job>>> = Arc::default();
    let (handed_over, continued_as_job) = oneshot::channel();
    if continues {
        let (stop, told) = oneshot::channel();
        spawn.stop = Some(told);
        let (env, context, job) = (Arc::clone(env), context.clone(), Arc::clone(&job));
        let began = Instant::now();
        spawn.at_timeout = Some(AtTimeout::new(move || {
            let output = spill::path(&env.session_dir, &context.call.call_id);
            let new = NewJob { summary, output, stop, began };
            let admitted = env.jobs.admit(&context.call, new, context.post_call.clone()).ok()?;
            admitted.begun();
            job.set(admitted).ok();
            handed_over.send(()).ok();
            Some(JOB_TIMEOUT.1)
        }));
    }
    let late = Some(report::late_findings(context.post_call.clone()));
    let mut network = CommandNetwork::open(env, &sandbox, &mut spawn, approved, context);
    let is_by_domain = network.is_open();
    let run = {
        let job = Arc::clone(&job);
        let watch = watcher(Arc::clone(&job), context.clone());
        async move {
            let listeners = network.listeners.take();
            let ran = sandbox.run_judged(spawn, besides, late, listeners, watch).await;
            let refused = network.finish().await;
            match job.get() {
                Some(job) => {
                    background::end(job, ran, refused);
                    None
                }
                None => Some((ran, refused)),
            }
        }
    };
    // It moves to a task of its own if the command becomes a job. Until then, dropping this call
    // ends the command.
    let mut run = Box::pin(run);
    let ended = tokio::select! {
        biased;
        ended = &mut run => ended,
        Ok(()) = continued_as_job => None,
    };
    match (ended, job.get()) {
        (Some((Ok(outcome), refused)), _) => {
            let network = NetworkNotes::of(&outcome, is_offline, is_by_domain, refused);
            let notes = refused_writes::notes(&outcome, may_write).chain(note).collect();
            result(env, context, &outcome, network, notes, timeout).await
        }
        (Some((Err(error), _)), _) => refused(&error),
        (None, Some(job)) => {
            if job.is_live() {
                job.runs_in(tokio::spawn(run).abort_handle());
            }
            let mut output = continued(job, timeout, context.output_bytes_max);
            output.content.extend(note.map(|note| ContentPart::text(format!("({note})"))));
            output
        }
        (None, None) => refused(&RunError::Start {
            source: std::io::Error::other("neither a result nor a job is left of it"),
        }),
    }
}

/// Notes for the model about the network of a command.
struct NetworkNotes {
    /// Reason why the command failed without network, and the connection that it missed; `None` if it
    /// did not.
    missed: Option<(String, MissedConnection)>,
    /// Connections that were refused, one line each.
    refused: Vec<String>,
}

impl NetworkNotes {
    /// Notes for an ended command. `is_offline`: it had no network of the host; `is_by_domain`: it had
    /// a proxy.
    fn of(
        outcome: &ProcessOutcome,
        is_offline: bool,
        is_by_domain: bool,
        refused: Vec<String>,
    ) -> NetworkNotes {
        let missed = network::missed(outcome).filter(|_| is_offline);
        let missed = missed.and_then(|missed| {
            let note = match (is_by_domain, missed.loopback_port) {
                (true, Some(port)) => network::loopback_note(port),
                (true, None) if refused.is_empty() => proxy_alone(),
                (true, None) => return None,
                (false, _) => network::NO_NETWORK.to_owned(),
            };
            Some((note, missed))
        });
        NetworkNotes { missed, refused }
    }
}

/// Creates the result of an ended command, and tells the user about protected files, tracked secrets
/// and a missing network.
async fn result(
    env: &ToolEnvironment,
    context: &RunContext,
    outcome: &ProcessOutcome,
    NetworkNotes { missed, refused }: NetworkNotes,
    notes: Vec<String>,
    timeout: Duration,
) -> ToolOutput {
    // Changes of protected files, for the user and the journal. There may be more of them
    // than the channel holds.
    for message in finding_lines(&outcome.findings) {
        context.facts.send(Event::Warning { message }).await.ok();
    }
    if let Some((missed, connection)) = &missed
        && is_new(env, connection)
    {
        let message = format!("a command failed: {missed}");
        context.facts.send(Event::Warning { message }).await.ok();
    }
    let untold = report::untold_secrets(env, &context.call, &outcome.covered_secrets);
    for message in untold.clone() {
        context.facts.send(Event::Warning { message }).await.ok();
    }
    let missed = missed.map(|(note, _)| note);
    let notes = missed.into_iter().chain(refused).chain(untold).chain(notes);
    report::output(&env.session_dir, context, outcome, notes.collect(), timeout)
}

/// True if the user was not told of this missed connection yet; remembers it.
fn is_new(env: &ToolEnvironment, connection: &MissedConnection) -> bool {
    let key = match connection.loopback_port {
        Some(port) => port.to_string(),
        None => connection.line.clone(),
    };
    let mut told = env.told_offline.lock().unwrap_or_else(PoisonError::into_inner);
    told.len() < TOLD_MAX && told.insert(key)
}

/// Handles updates of the running command: for its call, and later for `job`.
fn watcher(job: Arc<OnceLock<Arc<Job>>>, context: RunContext) -> impl FnMut(Update) + Send {
    move |update| match (job.get(), update) {
        (Some(job), Update::Output(text)) => {
            let event = Event::ToolOutputDelta { call_id: job.id.clone(), text };
            context.post_call.send(PostCallMessage::Fact(Box::new(event)));
        }
        (_, update) => announce(&context, update),
    }
}
