//! Commands in the background: which there are, whose they are, and how they end.
//!
//! A job has the name of the call that started it. It ends with its agent or with the session,
//! whatever else happens; what it printed stays with the session's outputs.

mod output_tool;
mod page;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use posse_actors::conversation::{CallId, ContentPart};
use posse_actors::event::{Event, JobEnd, Origin};
use posse_actors::ports::{After, CallContext, PostCallSink, Release};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::failure::printable;
use crate::sandbox::{Exit, ProcessOutcome};

pub(crate) use output_tool::{begun, tools};

/// Jobs that have ended and are still known. What earlier ones printed is still there to be read.
const ENDED_MAX: usize = 64;

/// How long those that are told to end may take: they are killed long before.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// The jobs of a session. Dropping it kills those that live.
#[derive(Debug)]
pub struct Jobs {
    live_max: usize,
    /// From the first to the last.
    all: Mutex<Vec<Arc<Job>>>,
}

/// One command.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: CallId,
    /// One line.
    pub(crate) summary: String,
    owner: Arc<Origin>,
    /// Everything that it prints, from the first byte.
    pub(crate) output: PathBuf,
    began: Instant,
    /// Tells its command to end.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Why it was told to.
    why: Mutex<Option<JobEnd>>,
    task: Mutex<Option<AbortHandle>>,
    ended: watch::Sender<Option<Arc<JobExit>>>,
    /// Up to where its agent has read.
    pub(crate) read_to: AtomicU64,
    /// Whether its agent knows that it has ended.
    told: AtomicBool,
    /// Calls that wait for its end, and will tell of it.
    waiting: AtomicUsize,
    aftermath: PostCallSink,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobExit {
    pub(crate) end: JobEnd,
    /// In words: `exit 1`.
    pub(crate) detail: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    /// What it did to protected files, and what else has to be known, a line each.
    pub(crate) notes: Vec<String>,
}

/// Somebody waits for the end of a job, and tells the agent of it.
#[derive(Debug)]
pub(crate) struct JobWaiter<'a>(&'a Job);

impl Jobs {
    /// As many as `live_max` at the same time; none at all if that is 0.
    pub fn new(live_max: usize) -> Jobs {
        Jobs { live_max, all: Mutex::default() }
    }

    /// Whether there are never any.
    pub(crate) fn is_closed(&self) -> bool {
        self.live_max == 0
    }

    /// A place for the command of `call`, and what tells it to end. An error says what the limit is.
    pub(crate) fn admit(
        &self,
        call: &CallContext,
        summary: String,
        output: PathBuf,
        aftermath: PostCallSink,
    ) -> Result<(Arc<Job>, oneshot::Receiver<()>), String> {
        let mut all = self.lock();
        let live: Vec<&str> =
            all.iter().filter(|job| job.is_live()).map(|job| job.id.as_str()).collect();
        if live.len() >= self.live_max {
            return Err(format!(
                "JOB001 {} commands run in the background ({}), and tools.bash.jobs is {}; nothing \
                 was run. One place is free when one of them ends: job_stop ends one",
                live.len(),
                live.join(", "),
                self.live_max
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
            aftermath,
        });
        let ended = all.iter().filter(|job| !job.is_live()).count();
        if ended >= ENDED_MAX
            && let Some(oldest) = all.iter().position(|job| !job.is_live())
        {
            all.remove(oldest);
        }
        all.push(Arc::clone(&job));
        Ok((job, told))
    }

    /// Forgets a job that never began.
    pub(crate) fn forget(&self, id: &CallId) {
        self.lock().retain(|job| job.id != *id);
    }

    /// The jobs that an agent may look at: its own; the main agent's are all of them.
    pub(crate) fn of(&self, origin: &Origin) -> Vec<Arc<Job>> {
        let is_main = origin.parent_invocation_id.is_none();
        let theirs = |job: &&Arc<Job>| is_main || job.owner.invocation_id == origin.invocation_id;
        self.lock().iter().filter(theirs).cloned().collect()
    }

    /// Ends those that `what` is about: told at once, over when the future is done.
    pub(crate) fn release(&self, what: &Release) -> impl Future<Output = ()> + Send + 'static {
        let (of_agent, why) = match what {
            Release::Session => (None, JobEnd::SessionEnded),
            Release::Invocation(id) => (Some(id), JobEnd::Stopped),
            Release::Call(_) | Release::All => (None, JobEnd::Stopped),
        };
        let reached = |job: &&Arc<Job>| {
            let is_this = !matches!(what, Release::Call(id) if *id != job.id);
            job.is_live() && is_this && of_agent.is_none_or(|id| job.owner.invocation_id == *id)
        };
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

    /// How it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Arc<JobExit>> {
        self.ended.borrow().clone()
    }

    pub(crate) fn ran_for(&self) -> Duration {
        self.ended().map_or_else(|| self.began.elapsed(), |ended| ended.duration)
    }

    /// Its command runs in this task.
    pub(crate) fn runs_in(&self, task: AbortHandle) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// It has begun.
    pub(crate) fn begun(&self) {
        let (call_id, summary) = (self.id.clone(), self.summary.clone());
        let begun = Event::JobStarted { call_id, summary };
        self.aftermath.say(After::Fact(Box::new(begun)));
    }

    /// Tells its command to end. The first reason counts.
    pub(crate) fn stop(&self, why: JobEnd) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stop) = stop {
            self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            // Nobody hears it if it has just ended.
            stop.send(()).ok();
        }
    }

    fn abort(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    /// Its command has ended: recorded, then told to whoever waits, or else to its agent.
    pub(crate) fn end(&self, ended: JobExit) {
        let JobExit { end, detail, exit_code, bytes, duration, notes } = ended.clone();
        self.aftermath.say(After::Fact(Box::new(Event::JobEnded {
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
            self.tell();
        }
    }

    /// Tells its agent how it ended, if nobody has.
    fn tell(&self) {
        let Some(ended) = self.ended() else { return };
        if self.told.swap(true, Ordering::AcqRel) || ended.end == JobEnd::SessionEnded {
            return;
        }
        let Job { id, summary, .. } = self;
        let mut text = format!(
            "(from posse, not from the user) Background job {id} ({}) has ended: {}, after {:.1} s, \
             {} bytes printed; job_output {{\"id\": \"{id}\"}} reads what you have not seen.",
            printable(summary),
            ended.detail,
            ended.duration.as_secs_f64(),
            ended.bytes
        );
        for note in &ended.notes {
            text.extend(["\n(", note, ")"]);
        }
        self.aftermath.say(After::Notice(vec![ContentPart::text(text)]));
    }

    /// Its agent knows how it ended.
    pub(crate) fn is_told(&self) {
        self.told.store(true, Ordering::Release);
    }

    /// From now on the holder tells of its end.
    pub(crate) fn wait(&self) -> JobWaiter<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        JobWaiter(self)
    }

    /// Waits for its end.
    pub(crate) async fn over(&self) {
        // The sender is in here, so it is not gone.
        self.ended.subscribe().wait_for(Option::is_some).await.ok();
    }

    /// How a command ended that ran as this job.
    pub(crate) fn sum_up(&self, outcome: &ProcessOutcome, notes: Vec<String>) -> JobExit {
        let why = *self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let (end, detail) = match outcome.exit {
            Exit::Code(code) => (JobEnd::Exited, format!("exit {code}")),
            Exit::Signal(_) => {
                let signal = outcome.exit.signal_name().unwrap_or_default();
                (JobEnd::Exited, format!("ended by {signal}"))
            }
            Exit::TimedOut => (JobEnd::Killed, "killed when its time was up".to_owned()),
            Exit::OutputFull => (JobEnd::Killed, "killed: it printed more than 64 MiB".to_owned()),
            Exit::Stopped => match why {
                Some(JobEnd::SessionEnded) => {
                    (JobEnd::SessionEnded, "stopped: the session ended".to_owned())
                }
                _ => (JobEnd::Stopped, "stopped".to_owned()),
            },
        };
        let exit_code = match outcome.exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) | Exit::TimedOut | Exit::OutputFull | Exit::Stopped => None,
        };
        let (bytes, duration) = (outcome.output.total, outcome.duration);
        JobExit { end, detail, exit_code, bytes, duration, notes }
    }
}

impl Drop for JobWaiter<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Ordering::AcqRel) == 1 && !self.0.is_live() {
            self.0.tell();
        }
    }
}

#[cfg(test)]
mod tests;
