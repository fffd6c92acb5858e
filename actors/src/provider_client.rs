//! Reaches one provider on behalf of every invocation: attempts, waits and patience are here.
//!
//! Nothing here waits for the provider: an attempt is a task that comes back as a message, and
//! dropping it ends the request.

mod patience;
mod stream;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::task::JoinError;

use crate::conversation::InvocationId;
use crate::event::{Event, Origin};
use crate::limits::Limits;
use crate::mailbox::{Beside, Handled, Report, Started, beside};
use crate::ports::{Clock, Completion, Provider, ProviderError, Request};
use crate::testing_seam::FailPoints;
use crate::transcript_writer::Transcript;

use patience::{Attempts, Decision, decide};
pub(crate) use stream::Draft;

use stream::relay;

/// Deltas between an adapter and its relay.
const DELTAS_IN_FLIGHT: usize = 64;

/// Waits that are worth telling the user about.
const WAIT_WORTH_A_WORD: Duration = Duration::from_millis(500);

/// What every incarnation of the client is started with.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transcript: Transcript,
    pub(crate) limits: Arc<Limits>,
    pub(crate) fail: FailPoints,
}

/// One request, however many attempts it takes.
pub(crate) struct Question {
    pub(crate) request: Request,
    pub(crate) origin: Arc<Origin>,
    /// Which reply of its invocation this is.
    pub(crate) turn: u32,
    /// When patience ends (monotonic). It travels here, so that a crash does not reset it.
    pub(crate) deadline: Duration,
    /// What arrives of the reply.
    pub(crate) draft: Draft,
    pub(crate) report: Report<Result<Completion, ProviderError>>,
}

pub(crate) enum Msg {
    Complete(Question),
    AttemptEnded(u64, Result<Result<Completion, ProviderError>, JoinError>),
    WaitEnded(u64),
    /// The invocation wants nothing any more. What had arrived is kept as a partial reply.
    Cancel(InvocationId),
}

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::Complete(_) => "Complete",
            Msg::AttemptEnded(..) => "AttemptEnded",
            Msg::WaitEnded(_) => "WaitEnded",
            Msg::Cancel(_) => "Cancel",
        }
    }
}

pub(crate) struct ProviderClient {
    args: Args,
}

#[derive(Default)]
pub(crate) struct State {
    last_key: u64,
    open: HashMap<u64, Open>,
}

struct Open {
    question: Question,
    attempts: Attempts,
    /// The attempt, or the wait for the next one.
    work: Option<Beside>,
}

impl ProviderClient {
    pub(crate) fn new(args: Args) -> ProviderClient {
        ProviderClient { args }
    }
}

impl Actor for ProviderClient {
    type Msg = Msg;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Msg>, (): ()) -> Started<State> {
        Ok(State::default())
    }

    async fn handle(&self, me: ActorRef<Msg>, msg: Msg, state: &mut State) -> Handled {
        self.args.fail.hit("ProviderClient", msg.kind());
        match msg {
            Msg::Complete(question) => {
                state.last_key += 1;
                let open = Open { question, attempts: Attempts::default(), work: None };
                state.open.insert(state.last_key, open);
                self.attempt(&me, state.last_key, state);
            }
            Msg::WaitEnded(key) => self.attempt(&me, key, state),
            Msg::AttemptEnded(key, Ok(result)) => self.attempt_ended(&me, key, result, state),
            Msg::AttemptEnded(key, Err(died)) => return attempt_died(key, died, state),
            Msg::Cancel(invocation) => self.cancel(&invocation, state),
        }
        Ok(())
    }
}

impl ProviderClient {
    fn attempt(&self, me: &ActorRef<Msg>, key: u64, state: &mut State) {
        let Some(open) = state.open.get_mut(&key) else { return };
        open.attempts.made += 1;
        let (deltas_tx, deltas_rx) = mpsc::channel(DELTAS_IN_FLIGHT);
        let provider = Arc::clone(&self.args.provider);
        let request = open.question.request.clone();
        let completion = async move { provider.complete(request, deltas_tx).await };
        let relay = relay(
            deltas_rx,
            self.args.transcript.clone(),
            Arc::clone(&open.question.origin),
            Arc::clone(&self.args.clock),
            self.args.limits.delta_interval,
            open.question.draft.begin(),
        );
        // The relay ends after the last delta was handed on, so the reply never overtakes one.
        let work = async { futures_util::future::join(completion, relay).await.0 };
        open.work = Some(beside(me, work, move |ended| Msg::AttemptEnded(key, ended)));
    }

    fn attempt_ended(
        &self,
        me: &ActorRef<Msg>,
        key: u64,
        result: Result<Completion, ProviderError>,
        state: &mut State,
    ) {
        let Some(mut open) = state.open.remove(&key) else { return };
        let error = match result {
            Ok(completion) => return open.question.report.send(Ok(completion)),
            Err(error) => error,
        };
        if let ProviderError::Broken { partial, .. } = &error {
            open.question.draft.or(partial);
        }
        self.keep_partial(&open, error.class());
        open.attempts.broken += u32::from(matches!(error, ProviderError::Broken { .. }));
        let left = open.question.deadline.saturating_sub(self.args.clock.monotonic());
        let jitter = self.args.clock.jitter();
        match decide(&error, open.attempts, left, &self.args.limits, jitter) {
            Decision::GiveUp => open.question.report.send(Err(error)),
            Decision::Retry { wait } => {
                self.announce_wait(&open, &error, wait, left);
                let pause = self.args.clock.sleep(wait);
                open.work = Some(beside(me, pause, move |_| Msg::WaitEnded(key)));
                state.open.insert(key, open);
            }
        }
    }

    fn announce_wait(&self, open: &Open, error: &ProviderError, wait: Duration, left: Duration) {
        let provider = self.args.provider.info().profile;
        let wait_ms = millis(wait);
        let origin = Some(&open.question.origin);
        let retry = Event::ProviderRetry {
            provider: provider.clone(),
            attempt: open.attempts.made,
            cause: error.chain(),
            class: error.class().to_owned(),
            wait_ms,
        };
        self.args.transcript.note(origin, retry);
        if wait >= WAIT_WORTH_A_WORD {
            let patience_left_ms = millis(left.saturating_sub(wait));
            let waiting = Event::ProviderWaiting { provider, wait_ms, patience_left_ms };
            self.args.transcript.note(origin, waiting);
        }
    }

    fn cancel(&self, invocation: &InvocationId, state: &mut State) {
        let theirs = |_: &u64, open: &mut Open| open.question.origin.invocation_id == *invocation;
        for (_, mut open) in state.open.extract_if(theirs) {
            open.work = None;
            self.keep_partial(&open, "interrupted");
        }
    }

    fn keep_partial(&self, open: &Open, cause: &str) {
        let Question { draft, origin, turn, .. } = &open.question;
        keep_partial(draft, &self.args.transcript, origin, *turn, cause);
    }
}

/// Records what had arrived of a reply that ends here, if anything had.
pub(crate) fn keep_partial(
    draft: &Draft,
    transcript: &Transcript,
    origin: &Arc<Origin>,
    turn: u32,
    cause: &str,
) {
    let text = draft.take();
    if !text.is_empty() {
        let event = Event::ModelPartial { turn, text, cause: cause.to_owned() };
        transcript.note(Some(origin), event);
    }
}

/// A panicking adapter is a bug of ours: the client crashes with it, and is restarted.
fn attempt_died(key: u64, died: JoinError, state: &mut State) -> Result<(), ActorProcessingErr> {
    if died.is_panic() {
        return Err(crate::mailbox::panic_text(died).into());
    }
    state.open.remove(&key);
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
