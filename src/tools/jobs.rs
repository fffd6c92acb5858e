//! Background jobs: their owners, output and end.
//!
//! A job has the id of the call that started it. It ends at the latest with its agent or with the
//! session. Its output is stored as a spilled output of the session.

mod output_tool;
mod page;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use posse_actors::conversation::{CallId, ContentPart};
use posse_actors::event::{Event, JobEnd, Origin};
use posse_actors::ports::{BackgroundScope, CallContext, PostCallMessage, PostCallSink};
use posse_base::failure::printable;
use posse_sandbox::{Exit, ProcessOutcome};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::bash::report::{MEMORY_FULL, TEMPORARY_FULL};

pub(crate) use output_tool::{begun, continued, tools};

/// Maximum number of ended jobs that are listed. `read_file` can still read the output of older
/// jobs.
const ENDED_MAX: usize = 64;

/// Maximum wait for the end of stopped jobs; then their tasks are aborted. Usually a stopped job is
/// killed long before.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Background jobs of a session. Dropping this list kills the running jobs.
#[derive(Debug)]
pub struct Jobs {
    live_max: usize,
    /// Running and ended jobs, in the order in which they started.
    all: Mutex<Vec<Arc<Job>>>,
}

/// A background job: one command that continues after its call.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: CallId,
    /// Summary of the call: `run` and the first line of the command, shortened.
    pub(crate) summary: String,
    owner: Arc<Origin>,
    /// File with the whole output of the command.
    pub(crate) output: PathBuf,
    began: Instant,
    /// Sends the signal that stops the command; `None` after it was sent.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Reason of the stop; `None` if the job was not stopped.
    why: Mutex<Option<JobEnd>>,
    task: Mutex<Option<AbortHandle>>,
    ended: watch::Sender<Option<Arc<JobExit>>>,
    /// Offset up to which `job_output` or `job_stop` has shown the output, in bytes.
    pub(crate) read_to: AtomicU64,
    /// True if no notice of the job's end is to be sent to the agent any more: the agent was
    /// informed, or the call that starts the job was cancelled.
    told: AtomicBool,
    /// Number of calls that wait for the end of the job and will report it.
    waiting: AtomicUsize,
    post_call: PostCallSink,
}

/// A background job to add: the summary of its call, the file for its output, the sender of its stop
/// signal, and the start of its command.
#[derive(Debug)]
pub(crate) struct NewJob {
    pub(crate) summary: String,
    pub(crate) output: PathBuf,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) began: Instant,
}

/// End of a background job: its kind, description, exit code, bytes of output and duration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobExit {
    pub(crate) end: JobEnd,
    /// Description of the end for the model, such as `exit 1`.
    pub(crate) detail: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    /// Notes about the run, one line each: changes of protected files, killed processes, and output
    /// that could not be stored.
    pub(crate) notes: Vec<String>,
}

/// Guard of a call that waits for the end of a job and reports it to the agent. While it exists,
/// the agent gets no separate notice. When the last guard is dropped, an end that the agent does
/// not know is sent as a notice.
#[derive(Debug)]
pub(crate) struct JobWaiter<'a>(&'a Job);

impl Jobs {
    /// Creates an empty list for at most `live_max` running jobs; 0 disables jobs.
    pub fn new(live_max: usize) -> Jobs {
        Jobs { live_max, all: Mutex::default() }
    }

    /// Returns true if background jobs are disabled.
    pub(crate) fn is_closed(&self) -> bool {
        self.live_max == 0
    }

    /// Adds a job for the command of `call`. Drops the oldest ended job if `ENDED_MAX` are listed. If
    /// the maximum number of jobs runs already, returns an error for the model.
    pub(crate) fn admit(
        &self,
        call: &CallContext,
        new: NewJob,
        post_call: PostCallSink,
    ) -> Result<Arc<Job>, String> {
        let NewJob { summary, output, stop, began } = new;
        let mut all = self.lock();
        let live: Vec<&str> =
            all.iter().filter(|job| job.is_live()).map(|job| job.id.as_str()).collect();
        let (count, max) = (live.len(), self.live_max);
        if count >= max {
            return Err(format!(
                "JOB001 {count} commands run in the background ({}), and tools.bash.jobs is {max}; \
                 nothing was run. One place is free when one of them ends: job_stop ends one",
                live.join(", "),
            ));
        }
        let job = Arc::new(Job {
            id: call.call_id.clone(),
            summary,
            owner: Arc::clone(&call.origin),
            output,
            began,
            stop: Mutex::new(Some(stop)),
            why: Mutex::default(),
            task: Mutex::default(),
            ended: watch::Sender::new(None),
            read_to: AtomicU64::new(0),
            told: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            post_call,
        });
        let mut ended = (0..all.len()).filter(|nth| !all[*nth].is_live());
        if let Some(oldest) = ended.next()
            && ended.count() + 1 >= ENDED_MAX
        {
            all.remove(oldest);
        }
        all.push(Arc::clone(&job));
        Ok(job)
    }

    /// Removes the job `id` from the list without stopping it. For a job whose command could not be
    /// started.
    pub(crate) fn forget(&self, id: &CallId) {
        self.lock().retain(|job| job.id != *id);
    }

    /// Lists the jobs that the agent `origin` may see: its own, or for the main agent all.
    pub(crate) fn of(&self, origin: &Origin) -> Vec<Arc<Job>> {
        let is_main = origin.parent_invocation_id.is_none();
        let theirs = |job: &&Arc<Job>| is_main || job.owner.invocation_id == origin.invocation_id;
        self.lock().iter().filter(theirs).cloned().collect()
    }

    /// Stops the running jobs in the scope of `what`: of one call, of one invocation, or all. The
    /// future resolves when they have ended, or after `RELEASE_MAX`, when it aborts their tasks.
    pub(crate) fn release(
        &self,
        what: &BackgroundScope,
    ) -> impl Future<Output = ()> + Send + 'static {
        let why = match what {
            BackgroundScope::Session => JobEnd::SessionEnded,
            _ => JobEnd::Stopped,
        };
        let is_in_scope = |job: &Job| match what {
            BackgroundScope::Call(id) => *id == job.id,
            BackgroundScope::Invocation(id) => *id == job.owner.invocation_id,
            BackgroundScope::All | BackgroundScope::Session => true,
        };
        let reached = |job: &&Arc<Job>| job.is_live() && is_in_scope(job);
        let jobs: Vec<Arc<Job>> = self.lock().iter().filter(reached).cloned().collect();
        for job in &jobs {
            job.stop(why);
        }
        async move {
            let over = async {
                for job in &jobs {
                    job.over().await;
                }
            };
            if tokio::time::timeout(RELEASE_MAX, over).await.is_err() {
                tracing::warn!("a command in the background does not end");
                for job in &jobs {
                    job.abort();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Job>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.lock().iter().for_each(|job| job.abort());
    }
}

impl Job {
    pub(crate) fn is_live(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Returns the end of the job; `None` while it runs.
    pub(crate) fn ended(&self) -> Option<Arc<JobExit>> {
        self.ended.borrow().clone()
    }

    pub(crate) fn ran_for(&self) -> Duration {
        self.ended().map_or_else(|| self.began.elapsed(), |ended| ended.duration)
    }

    /// Sets the task that runs the command, so that it can be aborted.
    pub(crate) fn runs_in(&self, task: AbortHandle) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Records that the job has started.
    pub(crate) fn begun(&self) {
        let (call_id, summary) = (self.id.clone(), self.summary.clone());
        let begun = Event::JobStarted { call_id, summary };
        self.post_call.send(PostCallMessage::Fact(Box::new(begun)));
    }

    /// Requests the stop of the command for the reason `why`, without waiting for its end. Only the
    /// first call has an effect.
    pub(crate) fn stop(&self, why: JobEnd) {
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            // The receiver is gone if the command has just ended.
            stop.send(()).ok();
        }
    }

    fn abort(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    /// Records that the command has ended. Then wakes the calls that wait, or informs the agent if
    /// no call waits.
    pub(crate) fn end(&self, ended: JobExit) {
        let JobExit { end, detail, exit_code, bytes, duration, notes } = ended.clone();
        self.post_call.send(PostCallMessage::Fact(Box::new(Event::JobEnded {
            call_id: self.id.clone(),
            summary: self.summary.clone(),
            end,
            detail,
            exit_code,
            bytes,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            findings: notes,
        })));
        self.ended.send_replace(Some(Arc::new(ended)));
        if self.waiting.load(Ordering::Acquire) == 0 {
            self.report_end();
        }
    }

    /// Sends the agent a notice of the job's end, unless the agent was informed before or the end
    /// of the session stopped the job.
    fn report_end(&self) {
        let Some(ended) = self.ended() else { return };
        if self.told.swap(true, Ordering::AcqRel) || ended.end == JobEnd::SessionEnded {
            return;
        }
        let Job { id, summary, .. } = self;
        let JobExit { detail, bytes, duration, notes, .. } = &*ended;
        let (summary, seconds) = (printable(summary), duration.as_secs_f64());
        let mut text = format!(
            "(from posse, not from the user) Background job {id} ({summary}) has ended: {detail}, \
             after {seconds:.1} s, {bytes} bytes printed; job_output {{\"id\": \"{id}\"}} reads \
             what you have not seen."
        );
        for note in notes {
            text.extend(["\n(", note, ")"]);
        }
        self.post_call.send(PostCallMessage::Notice(vec![ContentPart::text(text)]));
    }

    /// Marks the agent as informed of the end, so that it gets no notice.
    pub(crate) fn is_told(&self) {
        self.told.store(true, Ordering::Release);
    }

    /// Makes the holder of the returned guard responsible for reporting the end of the job. Does
    /// not wait itself; see [`Job::over`].
    pub(crate) fn wait(&self) -> JobWaiter<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        JobWaiter(self)
    }

    /// Waits until the job has ended.
    pub(crate) async fn over(&self) {
        // `self` holds the sender, so the channel is not closed.
        self.ended.subscribe().wait_for(Option::is_some).await.ok();
    }

    /// Creates the end of this job from the `outcome` of its command and from `notes`.
    pub(crate) fn sum_up(&self, outcome: &ProcessOutcome, notes: Vec<String>) -> JobExit {
        let why = *self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let (end, detail) = match (outcome.exit, why) {
            (Exit::Code(code), _) => (JobEnd::Exited, format!("exit {code}")),
            (Exit::Signal(_), _) => {
                let signal = outcome.exit.signal_name().unwrap_or_default();
                (JobEnd::Exited, format!("ended by {signal}"))
            }
            (Exit::TimedOut, _) => (JobEnd::Killed, "killed when its time was up".to_owned()),
            (Exit::OutputFull, _) => {
                (JobEnd::Killed, "killed: it printed more than 64 MiB".to_owned())
            }
            (Exit::MemoryFull, _) => (JobEnd::Killed, MEMORY_FULL.to_owned()),
            (Exit::TemporaryFull, _) => (JobEnd::Killed, TEMPORARY_FULL.to_owned()),
            (Exit::Stopped, Some(JobEnd::SessionEnded)) => {
                (JobEnd::SessionEnded, "stopped: the session ended".to_owned())
            }
            (Exit::Stopped, _) => (JobEnd::Stopped, "stopped".to_owned()),
        };
        let exit_code = if let Exit::Code(code) = outcome.exit { Some(code) } else { None };
        let (bytes, duration) = (outcome.output.total, outcome.duration);
        JobExit { end, detail, exit_code, bytes, duration, notes }
    }
}

impl Drop for JobWaiter<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Ordering::AcqRel) == 1 && !self.0.is_live() {
            self.0.report_end();
        }
    }
}

#[cfg(test)]
mod tests;
