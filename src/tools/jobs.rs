//! Background jobs: their owners, output and end.
//!
//! A job has the id of the call that started it. It ends with its agent or with the session; its
//! output stays with the session's outputs.

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

pub(crate) use output_tool::{begun, tools};

/// Maximum number of ended jobs that are listed. Output of older ones can still be read.
const ENDED_MAX: usize = 64;

/// Maximum wait for stopped jobs, which are killed long before.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Jobs of a session. Kills running ones when dropped.
#[derive(Debug)]
pub struct Jobs {
    live_max: usize,
    /// In the order in which they started.
    all: Mutex<Vec<Arc<Job>>>,
}

/// One background command.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: CallId,
    /// The command in one line.
    pub(crate) summary: String,
    owner: Arc<Origin>,
    /// File with its whole output.
    pub(crate) output: PathBuf,
    began: Instant,
    /// Stops its command.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Reason of the stop.
    why: Mutex<Option<JobEnd>>,
    task: Mutex<Option<AbortHandle>>,
    ended: watch::Sender<Option<Arc<JobExit>>>,
    /// Offset up to which the agent has read the output, in bytes.
    pub(crate) read_to: AtomicU64,
    /// True if its agent is informed of its end.
    told: AtomicBool,
    /// Number of calls that wait for its end and will report it.
    waiting: AtomicUsize,
    post_call: PostCallSink,
}

/// End of a job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobExit {
    pub(crate) end: JobEnd,
    /// Description: `exit 1`.
    pub(crate) detail: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    /// Changes of protected files and other notes, one line each.
    pub(crate) notes: Vec<String>,
}

/// A call that waits for the end of a job and reports it to the agent.
#[derive(Debug)]
pub(crate) struct JobWaiter<'a>(&'a Job);

impl Jobs {
    /// Allows `live_max` running jobs; 0 disables jobs.
    pub fn new(live_max: usize) -> Jobs {
        Jobs { live_max, all: Mutex::default() }
    }

    /// True if jobs are disabled.
    pub(crate) fn is_closed(&self) -> bool {
        self.live_max == 0
    }

    /// Slot for the command of `call`, with its stop signal. The error names the limit.
    pub(crate) fn admit(
        &self,
        call: &CallContext,
        summary: String,
        output: PathBuf,
        post_call: PostCallSink,
    ) -> Result<(Arc<Job>, oneshot::Receiver<()>), String> {
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
        let (stop, told) = oneshot::channel();
        let job = Arc::new(Job {
            id: call.call_id.clone(),
            summary,
            owner: Arc::clone(&call.origin),
            output,
            began: Instant::now(),
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
        Ok((job, told))
    }

    /// Removes a job whose command could not be started.
    pub(crate) fn forget(&self, id: &CallId) {
        self.lock().retain(|job| job.id != *id);
    }

    /// Jobs visible to an agent: its own. The main agent sees all of them.
    pub(crate) fn of(&self, origin: &Origin) -> Vec<Arc<Job>> {
        let is_main = origin.parent_invocation_id.is_none();
        let theirs = |job: &&Arc<Job>| is_main || job.owner.invocation_id == origin.invocation_id;
        self.lock().iter().filter(theirs).cloned().collect()
    }

    /// Stops the jobs in the scope of `what`; the future resolves when they are gone.
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

    /// Its end, if it has ended.
    pub(crate) fn ended(&self) -> Option<Arc<JobExit>> {
        self.ended.borrow().clone()
    }

    pub(crate) fn ran_for(&self) -> Duration {
        self.ended().map_or_else(|| self.began.elapsed(), |ended| ended.duration)
    }

    /// Sets the task that runs the command.
    pub(crate) fn runs_in(&self, task: AbortHandle) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Marks it as started.
    pub(crate) fn begun(&self) {
        let (call_id, summary) = (self.id.clone(), self.summary.clone());
        let begun = Event::JobStarted { call_id, summary };
        self.post_call.send(PostCallMessage::Fact(Box::new(begun)));
    }

    /// Stops its command. The first reason counts.
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

    /// Its command has ended: records it, then informs waiting calls or its agent.
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

    /// Informs its agent of the end, if that has not happened.
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

    /// Marks the agent as notified of the end.
    pub(crate) fn is_told(&self) {
        self.told.store(true, Ordering::Release);
    }

    /// Makes the holder responsible for reporting the end.
    pub(crate) fn wait(&self) -> JobWaiter<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        JobWaiter(self)
    }

    /// Waits until the job has ended.
    pub(crate) async fn over(&self) {
        // `self` holds the sender, so the channel is not closed.
        self.ended.subscribe().wait_for(Option::is_some).await.ok();
    }

    /// End of the command of this job.
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
