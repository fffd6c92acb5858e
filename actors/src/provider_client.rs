//! Client of one provider account for all invocations: attempts, retries, circuit breakers and
//! patience.
//!
//! No message handler waits for the provider: an attempt is an asynchronous task whose result
//! returns as a message, and dropping the task cancels the attempt. The circuit breaker of each
//! model decides about the order and time of attempts (`circuit_breaker.rs`).

mod backoff;
mod circuit_breaker;
mod repetition;
mod request_meter;
mod retry;
mod stream;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::task::JoinError;

use crate::context::WindowCheck;
use crate::conversation::InvocationId;
use crate::cost::PriceLookup;
use crate::event::{Event, Origin};
use crate::ledger::{BudgetHandle, TokenCalibration};
use crate::limits::Limits;
use crate::mailbox::{HandlerResult, OwnedTask, Report, StartResult, spawn_task, tell};
use crate::ports::{Clock, Provider, ProviderError, Request};
use crate::testing_seam::FailPoints;
use crate::transcript_writer::Transcript;

pub(crate) use backoff::{Deadline, millis};
use circuit_breaker::{Admission, BreakerBounds, CircuitBreaker, RequestKey, WaitLimits};
pub(crate) use request_meter::MeteredReply;
use request_meter::{MeterArgs, RequestMeter};
use retry::{Attempts, RetryDecision, absent_attempts_max, decide, overflow_if_near};
pub(crate) use stream::PartialReply;

use stream::{Relay, forward_deltas, repeating};

/// Capacity of the channel for deltas between an adapter and the relay of its attempt.
const DELTAS_IN_FLIGHT: usize = 64;

/// Arguments for starting the client.
#[derive(Clone)]
pub(crate) struct Args {
    /// The models of the account.
    pub(crate) providers: Vec<Arc<dyn Provider>>,
    /// Pricing of each provider, in the same order; `None` if unknown.
    pub(crate) prices: Vec<Option<PriceLookup>>,
    pub(crate) budget_handle: BudgetHandle,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transcript: Transcript,
    pub(crate) limits: Arc<Limits>,
    pub(crate) fail: FailPoints,
    /// True after a crash of the client, which lost the state of its circuit breakers: a single
    /// attempt probes each model first.
    pub(crate) half_open: bool,
}

/// A model request with all its attempts.
pub(crate) struct ModelRequest {
    /// Index of the model in `Args::providers`.
    pub(crate) model: usize,
    pub(crate) request: Request,
    pub(crate) origin: Arc<Origin>,
    /// Number of the requested reply within the invocation, from 1.
    pub(crate) turn: u32,
    /// End of patience. It is part of the request, so that a crash of the client does not extend
    /// it.
    pub(crate) deadline: Deadline,
    /// Time from which the invocation prefers a fallback (monotonic): a request whose next attempt
    /// would come later fails. `None`: patience alone decides.
    pub(crate) until: Option<Duration>,
    /// Text of the reply so far.
    pub(crate) draft: PartialReply,
    /// Token calibration for the history of the request.
    pub(crate) calibration: TokenCalibration,
    /// Check of the size of the request against the context window. `None`: the size is unknown.
    pub(crate) window_check: Option<WindowCheck>,
    pub(crate) report: Report<Result<MeteredReply, Unanswered>>,
}

/// Final failure of a model request.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: ProviderError,
    /// Earliest useful time of another attempt (monotonic); `None` if unknown or if a retry does
    /// not help; `Duration::MAX` if the client does not run any more.
    pub(crate) next_try: Option<Duration>,
    /// Number of attempts, if [`Limits::attempts_max`] ended them.
    pub(crate) attempts: Option<u32>,
}

#[derive(strum::IntoStaticStr)]
pub(crate) enum Msg {
    Complete(ModelRequest),
    /// The attempt's first sign of life from the server has arrived: a delta other than a notice.
    Alive(RequestKey),
    AttemptEnded(RequestKey, Result<Result<MeteredReply, ProviderError>, JoinError>),
    /// The timer with this number fired: a retry is due, or a notice about a wait should be
    /// repeated. A number other than the current one is ignored.
    WaitEnded(u64),
    /// Cancel the model request of this invocation. The text so far is recorded as a partial reply.
    Cancel(InvocationId),
    /// End the waits of all open circuit breakers, because the user wants an attempt. The backoff
    /// of a waiting request stays.
    RetryNow,
}

pub(crate) struct ProviderClient;

pub(crate) struct State {
    me: ActorRef<Msg>,
    args: Args,
    last_key: RequestKey,
    open: BTreeMap<RequestKey, InFlightRequest>,
    /// Circuit breakers by model name.
    breakers: HashMap<String, CircuitBreaker>,
    /// Class and cause of the last failure of each model that concerns all requests (see
    /// [`RetryDecision::Refused`]), by model name.
    open_causes: HashMap<String, (&'static str, String)>,
    alarm: Option<(Duration, OwnedTask)>,
    /// Number of timers set so far, which identifies the current one.
    alarms: u64,
}

struct InFlightRequest {
    question: ModelRequest,
    model_name: String,
    attempts: Attempts,
    /// Task of the attempt in flight; `None` while the request waits.
    work: Option<OwnedTask>,
    /// Error of the last attempt; `None` before the first failure.
    error: Option<ProviderError>,
    /// True if the attempt in flight, or else the last one, asks for a stream.
    streams: bool,
    /// Time (monotonic) of the first of the last consecutive attempts that did not reach the
    /// provider, if such attempts are limited; `None` otherwise.
    absent_since: Option<Duration>,
    /// True if the last failure is not announced yet.
    unannounced: bool,
    /// Time (monotonic) of the next notice about the wait; `None` if no further notice is planned.
    next_notice_at: Option<Duration>,
}

impl InFlightRequest {
    /// The request of the next attempt. After an empty reply to a streamed attempt, it asks for a
    /// reply in one piece: some servers report an error only then.
    fn next_request(&mut self) -> Request {
        let mut request = self.question.request.clone();
        let was_empty = matches!(self.error, Some(ProviderError::Empty { .. }));
        request.stream &= !(was_empty && self.streams);
        self.streams = request.stream;
        request
    }

    /// Updates `absent_since` after an attempt that failed at `now` with an error for which at most
    /// `absent_max` attempts are made.
    fn note_absence(&mut self, absent_max: Option<u32>, now: Duration) {
        match absent_max {
            Some(_) => _ = self.absent_since.get_or_insert(now),
            None => self.absent_since = None,
        }
    }

    /// Limits of the wait for the next attempt, see [`ModelRequest::waits`].
    fn waits(
        &self,
        now: Duration,
        (not_before, last): (Duration, Duration),
        limits: &Limits,
    ) -> WaitLimits {
        let waits = self.question.waits(now, not_before, last);
        match self.absent_since {
            Some(since) => {
                let until = waits.until.min(since.saturating_add(limits.absent_patience));
                WaitLimits { until, last: None, ..waits }
            }
            None => waits,
        }
    }

    fn keep_partial(&self, transcript: &Transcript, cause: &str) {
        let ModelRequest { draft, origin, turn, .. } = &self.question;
        keep_partial(draft, transcript, origin, *turn, cause, false);
    }
}

impl Actor for ProviderClient {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, me: ActorRef<Msg>, args: Args) -> StartResult<State> {
        let now = args.clock.monotonic();
        let bounds = BreakerBounds {
            failures_max: args.limits.breaker_failures,
            probe_interval: args.limits.probe_interval,
        };
        let breaker = |provider: &Arc<dyn Provider>| {
            let breaker = if args.half_open {
                CircuitBreaker::half_open(bounds, now)
            } else {
                CircuitBreaker::new(bounds)
            };
            (provider.info().model, breaker)
        };
        Ok(State {
            me,
            last_key: 0,
            open: BTreeMap::new(),
            breakers: args.providers.iter().map(breaker).collect(),
            open_causes: HashMap::new(),
            alarm: None,
            alarms: 0,
            args,
        })
    }

    async fn handle(&self, _: ActorRef<Msg>, msg: Msg, state: &mut State) -> HandlerResult {
        state.args.fail.hit("ProviderClient", (&msg).into());
        match msg {
            Msg::Complete(question) => state.request_arrived(question),
            Msg::Alive(key) => state.alive(key),
            Msg::WaitEnded(nth) if nth != state.alarms => return Ok(()),
            Msg::WaitEnded(_) => state.alarm = None,
            Msg::AttemptEnded(key, Ok(result)) => state.attempt_ended(key, result),
            Msg::AttemptEnded(_, Err(died)) => attempt_died(died)?,
            Msg::Cancel(invocation) => state.cancel(&invocation),
            Msg::RetryNow => {
                let now = state.now();
                state.breakers.values_mut().for_each(|breaker| breaker.retry_now(now));
            }
        }
        state.proceed();
        Ok(())
    }
}

impl State {
    fn now(&self) -> Duration {
        self.args.clock.monotonic()
    }

    fn request_arrived(&mut self, question: ModelRequest) {
        self.last_key += 1;
        let now = self.now();
        // A reply that was arriving when a client crashed is lost.
        question.deadline.resume(now);
        let Some(provider) = self.args.providers.get(question.model) else { return };
        let name = provider.info().model;
        if let Some(breaker) = self.breakers.get_mut(&name) {
            // The user may have started the server or connected the network before this prompt.
            let was_unreached = |(class, _): &(&str, _)| {
                ProviderError::of_class(class, String::new().into()).is_unreached()
            };
            if question.begins() && self.open_causes.get(&name).is_some_and(was_unreached) {
                breaker.reset_if_idle();
            }
            let waiting = question.waits(now, now, now);
            breaker.wait(self.last_key, waiting);
        }
        let open = InFlightRequest {
            question,
            model_name: name,
            attempts: Attempts::default(),
            work: None,
            error: None,
            streams: false,
            absent_since: None,
            unannounced: false,
            next_notice_at: Some(now),
        };
        self.open.insert(self.last_key, open);
    }

    fn alive(&mut self, key: RequestKey) {
        let Some(open) = self.open.get_mut(&key) else { return };
        open.question.deadline.suspend(self.args.clock.monotonic());
        if let Some(breaker) = self.breakers.get_mut(&open.model_name) {
            breaker.alive(key);
        }
    }

    /// Starts attempts and gives model requests up as the circuit breakers decide, announces waits,
    /// and sets the next timer.
    fn proceed(&mut self) {
        let now = self.now();
        let names: Vec<String> = self.breakers.keys().cloned().collect();
        for name in names {
            while let Some(turn) =
                self.breakers.get_mut(&name).and_then(|breaker| breaker.turn(now))
            {
                match turn {
                    Admission::Ask(key) => self.attempt(key),
                    Admission::GiveUp(key, next_try) => self.give_up(key, next_try),
                }
            }
        }
        self.announce_waits(now);
        let notices = self.open.values().filter_map(|open| open.next_notice_at);
        let due = self.breakers.values().filter_map(CircuitBreaker::due).chain(notices).min();
        match (due, &self.alarm) {
            (None, _) => self.alarm = None,
            (Some(due), Some((set, _))) if *set == due => {}
            (Some(due), _) => {
                let pause = self.args.clock.sleep(due.saturating_sub(now));
                self.alarms += 1;
                let nth = self.alarms;
                self.alarm = Some((due, spawn_task(&self.me, pause, move |_| Msg::WaitEnded(nth))));
            }
        }
    }

    fn attempt(&mut self, key: RequestKey) {
        let Some(open) = self.open.get_mut(&key) else { return };
        let Some(provider) = self.args.providers.get(open.question.model) else { return };
        // A wait that ended before it was announced: each failure is in the journal.
        if let Some(retry) = open.retry_event(&provider.info().profile, 0) {
            self.args.transcript.note(Some(&open.question.origin), retry);
        }
        open.attempts.made += 1;
        open.next_notice_at = None;
        let (deltas_tx, deltas_rx) = mpsc::channel(DELTAS_IN_FLIGHT);
        let provider = Arc::clone(provider);
        let request = open.next_request();
        let streams = request.stream;
        let info = provider.info();
        let profile = info.profile.clone();
        let name = profile.clone();
        let meter = RequestMeter::new(MeterArgs {
            budget_handle: self.args.budget_handle.clone(),
            transcript: self.args.transcript.clone(),
            origin: Arc::clone(&open.question.origin),
            turn: open.question.turn,
            attempt: open.attempts.made,
            info,
            price: self.args.prices.get(open.question.model).cloned().flatten(),
            calibration: open.question.calibration.clone(),
        });
        let me_too = self.me.clone();
        let relay = forward_deltas(
            deltas_rx,
            Relay {
                transcript: self.args.transcript.clone(),
                origin: Arc::clone(&open.question.origin),
                clock: Arc::clone(&self.args.clock),
                interval: self.args.limits.delta_interval,
                pen: open.question.draft.begin(meter.clone()),
                meter: meter.clone(),
                profile,
                // Without streaming, silence until the reply is normal.
                silence_hint: streams.then_some(self.args.limits.silence_hint),
            },
            move || tell(&me_too, Msg::Alive(key)),
        );
        let work = async move {
            let request = meter.admit(request).await?;
            let completion = provider.complete(request, deltas_tx);
            let completion = async { Ok(completion.await) };
            let warm = async {
                meter.warm();
                Ok(())
            };
            // The relay ends after the last delta was handed on, so the reply never overtakes one.
            // If it finds a repetition, the attempt is dropped, which closes its connection.
            let ended = futures_util::future::try_join3(completion, relay, warm).await;
            let result = match ended {
                Ok((result, (), ())) => result,
                Err(repetition) => Err(repeating(&name, repetition)),
            };
            match result.and_then(|completion| meter.nonempty(completion)) {
                Ok(completion) => Ok(meter.answered(completion)),
                Err(error) => {
                    meter.failed(&error);
                    Err(error)
                }
            }
        };
        open.work = Some(spawn_task(&self.me, work, move |ended| Msg::AttemptEnded(key, ended)));
    }

    fn attempt_ended(&mut self, key: RequestKey, result: Result<MeteredReply, ProviderError>) {
        let now = self.now();
        let Some(mut open) = self.open.remove(&key) else { return };
        let Some(breaker) = self.breakers.get_mut(&open.model_name) else { return };
        open.work = None;
        let error = match result {
            Ok(answered) => {
                breaker.answered(key);
                return open.question.report.send(Ok(answered));
            }
            Err(error) => {
                overflow_if_near(error, open.streams, open.question.window_check.as_ref())
            }
        };
        if let ProviderError::Broken { partial, .. }
        | ProviderError::Cut { partial, .. }
        | ProviderError::Repeating { partial, .. } = &error
        {
            open.question.draft.or(partial);
        }
        open.keep_partial(&self.args.transcript, error.class());
        open.question.deadline.resume(now);
        open.attempts.count(&error);
        let absent_max = absent_attempts_max(&error, open.question.begins(), &self.args.limits);
        open.note_absence(absent_max, now);
        let jitter = self.args.clock.jitter();
        let decision =
            decide(&error, open.attempts, breaker.rounds() + 1, &self.args.limits, jitter);
        // There is one last attempt before giving up, but not before the shortest wait.
        let soonest = now + self.args.limits.backoff_first / 10;
        let (not_before, last) = match decision {
            RetryDecision::Final => {
                breaker.answered(key);
                let (next_try, attempts) = (None, None);
                return open.question.report.send(Err(Unanswered { error, next_try, attempts }));
            }
            RetryDecision::Again { wait } => {
                breaker.failed_alone(key, now);
                (now + wait, soonest)
            }
            RetryDecision::Refused { wait, asked } => {
                breaker.refused(key, wait, asked, now);
                let open_cause = (error.class(), error.reason());
                self.open_causes.insert(open.model_name.clone(), open_cause);
                for other in
                    self.open.values_mut().filter(|other| other.model_name == open.model_name)
                {
                    other.next_notice_at = other.work.is_none().then_some(now);
                }
                (now + asked.unwrap_or(wait), asked.map_or(soonest, |asked| now + asked))
            }
        };
        if open.attempts.are_spent(absent_max, &self.args.limits) {
            let (next_try, made) = (Some(not_before), open.attempts.made);
            let attempts = self.args.limits.attempts_max.filter(|max| made >= *max).and(Some(made));
            return open.question.report.send(Err(Unanswered { error, next_try, attempts }));
        }
        breaker.wait(key, open.waits(now, (not_before, last), &self.args.limits));
        open.error = Some(error);
        open.unannounced = true;
        self.open.insert(key, open);
    }

    fn give_up(&mut self, key: RequestKey, next_try: Option<Duration>) {
        let Some(open) = self.open.remove(&key) else { return };
        let error = open.error.unwrap_or_else(|| match self.open_causes.get(&open.model_name) {
            Some((class, cause)) => ProviderError::of_class(class, cause.clone().into()),
            None => ProviderError::of_class(
                "unreachable",
                "other requests are being tried first".into(),
            ),
        });
        let attempts = None;
        open.question.report.send(Err(Unanswered { error, next_try, attempts }));
    }

    fn cancel(&mut self, invocation: &InvocationId) {
        let now = self.now();
        let theirs = |_: &RequestKey, open: &mut InFlightRequest| {
            open.question.origin.invocation_id == *invocation
        };
        for (key, mut open) in self.open.extract_if(.., theirs) {
            open.work = None;
            open.keep_partial(&self.args.transcript, INTERRUPTED);
            if let Some(breaker) = self.breakers.get_mut(&open.model_name) {
                breaker.cancel(key, now);
            }
        }
    }
}

/// Cause recorded for a partial reply whose request was cancelled.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// Ends a reply that is not complete: takes the text so far, records it as a partial reply unless
/// it is empty, and ends the accounting of the attempt. Returns the text. `in_history`: true if the
/// caller adds it to the history.
pub(crate) fn keep_partial(
    draft: &PartialReply,
    transcript: &Transcript,
    origin: &Arc<Origin>,
    turn: u32,
    cause: &str,
    in_history: bool,
) -> String {
    let text = draft.take();
    if !text.is_empty() {
        let cause = cause.to_owned();
        let in_history = in_history && !text.trim().is_empty();
        let event = Event::ModelPartial { turn, text: text.clone(), cause, in_history };
        transcript.note(Some(origin), event);
    }
    if let Some(meter) = draft.take_meter() {
        meter.cut(cause);
    }
    text
}

/// Handles an attempt without a result. A panic of an adapter crashes the client, which is then
/// restarted; an attempt that the client aborted is ignored.
fn attempt_died(died: JoinError) -> Result<(), ActorProcessingErr> {
    if died.is_panic() {
        return Err(crate::mailbox::panic_text(died).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
