//! Background commands of `bash`.

use std::sync::Arc;
use std::time::Instant;

use posse_actors::conversation::ContentPart;
use posse_actors::event::{Event, JobEnd};
use posse_actors::ports::{PostCallMessage, PostCallSink, RunContext, ToolOutput};
use posse_base::count;
use posse_base::failure::printable;
use posse_egress::Destination;
use posse_sandbox::{
    CoveredSecret, Exemptions, ProcessOutcome, RunError, Sandbox, SecretView, Spawn, Update,
    covered_lines, finding_lines,
};
use tokio::sync::oneshot;

use crate::bash::connections::CommandNetwork;
use crate::bash::{refused, report};
use crate::jobs::{Job, JobExit, NewJob, begun};
use crate::{ToolEnvironment, spill};

/// A background job to start: its command, exemptions of protected files, summary and note.
pub(super) struct JobStart {
    pub(super) spawn: Spawn,
    pub(super) besides: Exemptions,
    /// Summary of the call: `run` and the first line of the command, shortened.
    pub(super) summary: String,
    /// Note for the model that `timeoutMs` was set to another value than requested; `None` if it
    /// was not.
    pub(super) note: Option<String>,
    /// Domains that a person has allowed with the command.
    pub(super) approved: Vec<Destination>,
}

/// Guard that stops the job on drop, without a notice of its end, unless its field is `None`: a
/// call that is cancelled before the model gets the job id leaves no job behind.
struct UntilKnown<'a>(Option<&'a Job>);

impl Drop for UntilKnown<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.0 {
            job.is_told();
            job.stop(JobEnd::Stopped);
        }
    }
}

/// Starts the command as a background job, and returns the result of the call when the command runs
/// or has failed to start. The result is an error if too many jobs run or the command did not
/// start; then no job is left.
pub(super) async fn start(
    env: &ToolEnvironment,
    sandbox: Arc<Sandbox>,
    start: JobStart,
    context: &RunContext,
) -> ToolOutput {
    let JobStart { mut spawn, besides, summary, note, approved } = start;
    let call = &context.call;
    let output = spill::path(&env.session_dir, &call.call_id);
    let (stop, told) = oneshot::channel();
    let new = NewJob { summary, output, stop, began: Instant::now() };
    let job = match env.jobs.admit(call, new, context.post_call.clone()) {
        Ok(admitted) => admitted,
        Err(refused) => return ToolOutput::error(refused),
    };
    spawn.stop = Some(told);
    // All output goes to the file, from which it is read.
    spawn.output_bytes_max = 0;
    let mut known = UntilKnown(Some(&job));
    let (enforced, runs) = oneshot::channel();
    let post_call = context.post_call.clone();
    let network = CommandNetwork::open(env, &sandbox, &mut spawn, approved, context);
    let command = AttendedCommand { sandbox, spawn, besides, network };
    let task = tokio::spawn(attend(Arc::clone(&job), command, post_call, enforced));
    job.runs_in(task.abort_handle());
    let runs = runs.await;
    known.0 = None;
    if runs.is_err() {
        env.jobs.forget(&job.id);
        return match task.await {
            Ok(Err(error)) => refused(&error),
            Ok(Ok(())) | Err(_) => ToolOutput::error("SH006 the command did not begin"),
        };
    }
    let mut output = begun(&job.id);
    output.content.extend(note.map(|note| ContentPart::text(format!("({note})"))));
    output
}

/// Command of a background job.
struct AttendedCommand {
    sandbox: Arc<Sandbox>,
    spawn: Spawn,
    besides: Exemptions,
    network: CommandNetwork,
}

/// Runs the command to its end, records its sandbox tier, start, output and end, and signals
/// `enforced` when the command runs. Returns an error only if the command did not start.
async fn attend(
    job: Arc<Job>,
    command: AttendedCommand,
    post_call: PostCallSink,
    enforced: oneshot::Sender<()>,
) -> Result<(), RunError> {
    let AttendedCommand { sandbox, spawn, besides, mut network } = command;
    let mut enforced = Some(enforced);
    let call_id = job.id.clone();
    let watch = |update| {
        let event = match update {
            Update::Enforced { tier, report } => {
                Event::SandboxEnforced { call_id: call_id.clone(), tier, report }
            }
            Update::Output(text) => Event::ToolOutputDelta { call_id: call_id.clone(), text },
        };
        post_call.send(PostCallMessage::Fact(Box::new(event)));
        if let Some(enforced) = enforced.take() {
            // Order in the journal: started, then known to the model, then ended.
            job.begun();
            enforced.send(()).ok();
        }
    };
    let late = Some(report::late_findings(post_call.clone()));
    let listeners = network.listeners.take();
    let ran = sandbox.run_judged(spawn, besides, late, listeners, watch).await;
    let refused = network.finish().await;
    match ran {
        Err(error) if enforced.is_some() => Err(error),
        ran => {
            end(&job, ran, refused);
            Ok(())
        }
    }
}

/// Records the end of a job whose command has ended. `refused`: lines about refused connections.
pub(super) fn end(job: &Job, ran: Result<ProcessOutcome, RunError>, refused: Vec<String>) {
    job.end(match ran {
        Ok(outcome) => job.sum_up(&outcome, [notes(&outcome), refused].concat()),
        Err(error) => JobExit {
            end: JobEnd::Killed,
            detail: format!("killed: {}", printable(&error.to_string())),
            exit_code: None,
            bytes: 0,
            duration: job.ran_for(),
            notes: Vec::new(),
        },
    });
}

fn notes(outcome: &ProcessOutcome) -> Vec<String> {
    let mut notes = finding_lines(&outcome.findings);
    // A command that the agent waits for names the untracked ones once.
    let is_tracked = |secret: &&CoveredSecret| secret.view != SecretView::Untracked;
    let tracked = outcome.covered_secrets.iter().filter(is_tracked).cloned();
    notes.extend(covered_lines(&tracked.collect::<Vec<_>>()));
    if outcome.stragglers > 0 {
        let left = count(outcome.stragglers, "process was", "processes were");
        notes.push(format!("{left} left behind and killed"));
    }
    if let Some(failure) = &outcome.output.spill_failure {
        notes.push(format!("what it printed could not all be kept: {}", printable(failure)));
    }
    notes
}
