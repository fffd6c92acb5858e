//! Reaches one account of a provider on behalf of every invocation: attempts, waits, breakers and
//! patience are here, and nowhere else.
//!
//! Nothing here waits for the provider: an attempt is a task that comes back as a message, and
//! dropping it ends the request. Who asks when is decided by the lane (`lane.rs`) of each model.

mod lane;
mod patience;
mod stream;
mod waits;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::task::JoinError;

use crate::conversation::InvocationId;
use crate::event::{Event, Origin};
use crate::ledger::{Answered, BudgetHandle, Gauge, Meter, MeterArgs, Price};
use crate::limits::Limits;
use crate::mailbox::{Beside, Handled, Report, Started, beside, tell};
use crate::ports::{Clock, Provider, ProviderError, Request};
use crate::testing_seam::FailPoints;
use crate::transcript_writer::Transcript;

use lane::{Bounds, Key, Lane, Turn};
use patience::{Attempts, Decision, decide};
pub(crate) use stream::Draft;
pub(crate) use waits::{Deadline, millis};

use stream::{Relay, relay};

/// Deltas between an adapter and its relay.
const DELTAS_IN_FLIGHT: usize = 64;

/// What every incarnation of the client is started with.
#[derive(Clone)]
pub(crate) struct Args {
    /// The models of the account.
    pub(crate) providers: Vec<Arc<dyn Provider>>,
    /// What they cost, in the same order.
    pub(crate) prices: Vec<Option<Price>>,
    /// The way to the session's ledger.
    pub(crate) purse: BudgetHandle,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transcript: Transcript,
    pub(crate) limits: Arc<Limits>,
    pub(crate) fail: FailPoints,
    /// An earlier incarnation crashed, and what it knew is lost: one asks first.
    pub(crate) wary: bool,
}

/// One request, however many attempts it takes.
pub(crate) struct Question {
    /// Which of the account's models is asked.
    pub(crate) model: usize,
    pub(crate) request: Request,
    pub(crate) origin: Arc<Origin>,
    /// Which reply of its invocation this is.
    pub(crate) turn: u32,
    /// When patience ends. It travels here, so that a crash does not reset it.
    pub(crate) deadline: Deadline,
    /// When whoever asks would rather ask somebody else (monotonic).
    pub(crate) until: Option<Duration>,
    /// What arrives of the reply.
    pub(crate) draft: Draft,
    /// What was counted of its history before.
    pub(crate) gauge: Gauge,
    pub(crate) report: Report<Result<Answered, Unanswered>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: ProviderError,
    /// When it is worth asking again (monotonic), if it is at all and that is known.
    pub(crate) next_try: Option<Duration>,
}

pub(crate) enum Msg {
    Complete(Question),
    /// The first of a reply has arrived.
    Alive(Key),
    AttemptEnded(Key, Result<Result<Answered, ProviderError>, JoinError>),
    /// A wait is over, or worth another word. Which alarm says so: one that was put off is heard
    /// of, too.
    WaitEnded(u64),
    /// The invocation wants nothing any more. What had arrived is kept as a partial reply.
    Cancel(InvocationId),
    /// The user asks for a try now, whatever was said about waiting: one is made.
    Relent,
}

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::Complete(_) => "Complete",
            Msg::Alive(_) => "Alive",
            Msg::AttemptEnded(..) => "AttemptEnded",
            Msg::WaitEnded(_) => "WaitEnded",
            Msg::Cancel(_) => "Cancel",
            Msg::Relent => "Relent",
        }
    }
}

pub(crate) struct ProviderClient {
    args: Args,
}

pub(crate) struct State {
    last_key: Key,
    open: BTreeMap<Key, Open>,
    /// One for each model, by its name.
    lanes: HashMap<String, Lane>,
    /// Why a lane is shut: class of the last refusal, and what was behind it.
    troubles: HashMap<String, (&'static str, String)>,
    alarm: Option<(Duration, Beside)>,
    /// Alarms that were set so far.
    alarms: u64,
}

struct Open {
    question: Question,
    lane: String,
    attempts: Attempts,
    /// The attempt that is out.
    work: Option<Beside>,
    /// Why the last one failed.
    error: Option<ProviderError>,
    /// A failure that nobody was told of yet.
    unsaid: bool,
    /// When the wait is worth a word.
    word_at: Option<Duration>,
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
        let now = self.args.clock.monotonic();
        let bounds = Bounds {
            failures_max: self.args.limits.breaker_failures,
            probe_interval: self.args.limits.probe_interval,
        };
        let lane = |provider: &Arc<dyn Provider>| {
            let lane = if self.args.wary { Lane::wary(bounds, now) } else { Lane::new(bounds) };
            (provider.info().model, lane)
        };
        Ok(State {
            last_key: 0,
            open: BTreeMap::new(),
            lanes: self.args.providers.iter().map(lane).collect(),
            troubles: HashMap::new(),
            alarm: None,
            alarms: 0,
        })
    }

    async fn handle(&self, me: ActorRef<Msg>, msg: Msg, state: &mut State) -> Handled {
        self.args.fail.hit("ProviderClient", msg.kind());
        match msg {
            Msg::Complete(question) => self.arrived(question, state),
            Msg::Alive(key) => self.alive(key, state),
            Msg::WaitEnded(nth) if nth != state.alarms => return Ok(()),
            Msg::WaitEnded(_) => state.alarm = None,
            Msg::AttemptEnded(key, Ok(result)) => self.attempt_ended(key, result, state),
            Msg::AttemptEnded(_, Err(died)) => attempt_died(died)?,
            Msg::Cancel(invocation) => self.cancel(&invocation, state),
            Msg::Relent => state.lanes.values_mut().for_each(|lane| lane.relent(self.now())),
        }
        self.proceed(&me, state);
        Ok(())
    }
}

impl ProviderClient {
    fn now(&self) -> Duration {
        self.args.clock.monotonic()
    }

    fn arrived(&self, question: Question, state: &mut State) {
        state.last_key += 1;
        let now = self.now();
        // The reply that was arriving when a client crashed is not coming any more.
        question.deadline.resume(now);
        let Some(provider) = self.args.providers.get(question.model) else { return };
        let name = provider.info().model;
        if let Some(lane) = state.lanes.get_mut(&name) {
            let waiting = question.waits(now, now, now);
            lane.wait(state.last_key, waiting);
        }
        let open = Open {
            question,
            lane: name,
            attempts: Attempts::default(),
            work: None,
            error: None,
            unsaid: false,
            word_at: Some(now),
        };
        state.open.insert(state.last_key, open);
    }

    fn alive(&self, key: Key, state: &mut State) {
        let Some(open) = state.open.get_mut(&key) else { return };
        open.question.deadline.suspend(self.now());
        if let Some(lane) = state.lanes.get_mut(&open.lane) {
            lane.alive(key);
        }
    }

    /// Lets everybody do whose turn it is, tells who waits, and sets the alarm for the next.
    fn proceed(&self, me: &ActorRef<Msg>, state: &mut State) {
        let now = self.now();
        let names: Vec<String> = state.lanes.keys().cloned().collect();
        for name in names {
            while let Some(turn) = state.lanes.get_mut(&name).and_then(|lane| lane.turn(now)) {
                match turn {
                    Turn::Ask(key) => self.attempt(me, key, state),
                    Turn::GiveUp(key, next_try) => Self::give_up(key, next_try, state),
                }
            }
        }
        self.say_who_waits(now, state);
        let words = state.open.values().filter_map(|open| open.word_at);
        let due = state.lanes.values().filter_map(Lane::due).chain(words).min();
        match (due, &state.alarm) {
            (None, _) => state.alarm = None,
            (Some(due), Some((set, _))) if *set == due => {}
            (Some(due), _) => {
                let pause = self.args.clock.sleep(due.saturating_sub(now));
                state.alarms += 1;
                let nth = state.alarms;
                state.alarm = Some((due, beside(me, pause, move |_| Msg::WaitEnded(nth))));
            }
        }
    }

    fn attempt(&self, me: &ActorRef<Msg>, key: Key, state: &mut State) {
        let Some(open) = state.open.get_mut(&key) else { return };
        let Some(provider) = self.args.providers.get(open.question.model) else { return };
        open.attempts.made += 1;
        open.word_at = None;
        let (deltas_tx, deltas_rx) = mpsc::channel(DELTAS_IN_FLIGHT);
        let provider = Arc::clone(provider);
        let request = open.question.request.clone();
        let streams = request.stream;
        let info = provider.info();
        let profile = info.profile.clone();
        let meter = Meter::new(MeterArgs {
            purse: self.args.purse.clone(),
            transcript: self.args.transcript.clone(),
            origin: Arc::clone(&open.question.origin),
            turn: open.question.turn,
            attempt: open.attempts.made,
            info,
            price: self.args.prices.get(open.question.model).cloned().flatten(),
            gauge: open.question.gauge.clone(),
        });
        let me_too = me.clone();
        let relay = relay(
            deltas_rx,
            Relay {
                transcript: self.args.transcript.clone(),
                origin: Arc::clone(&open.question.origin),
                clock: Arc::clone(&self.args.clock),
                interval: self.args.limits.delta_interval,
                pen: open.question.draft.begin(meter.clone()),
                meter: meter.clone(),
                profile,
                // A reply that comes in one piece is silent until then.
                silence_hint: streams.then_some(self.args.limits.silence_hint),
            },
            move || tell(&me_too, Msg::Alive(key)),
        );
        let work = async move {
            let request = meter.admit(request).await?;
            let completion = provider.complete(request, deltas_tx);
            let warm = async { meter.warm() };
            // The relay ends after the last delta was handed on, so the reply never overtakes one.
            let (result, (), ()) = futures_util::future::join3(completion, relay, warm).await;
            match result {
                Ok(completion) => Ok(meter.answered(completion)),
                Err(error) => {
                    meter.failed(&error);
                    Err(error)
                }
            }
        };
        open.work = Some(beside(me, work, move |ended| Msg::AttemptEnded(key, ended)));
    }

    fn attempt_ended(&self, key: Key, result: Result<Answered, ProviderError>, state: &mut State) {
        let now = self.now();
        let Some(mut open) = state.open.remove(&key) else { return };
        let Some(lane) = state.lanes.get_mut(&open.lane) else { return };
        open.work = None;
        let error = match result {
            Ok(answered) => {
                lane.answered(key);
                return open.question.report.send(Ok(answered));
            }
            Err(error) => error,
        };
        if let ProviderError::Broken { partial, .. } | ProviderError::Cut { partial, .. } = &error {
            open.question.draft.or(partial);
        }
        self.keep_partial(&open, error.class());
        open.question.deadline.resume(now);
        open.attempts.count(&error);
        let jitter = self.args.clock.jitter();
        let decision = decide(&error, open.attempts, lane.rounds() + 1, &self.args.limits, jitter);
        // Once more before giving up, but no sooner than after the shortest of waits.
        let soonest = now + self.args.limits.backoff_first / 10;
        let (not_before, last) = match decision {
            Decision::Final => {
                lane.answered(key);
                let next_try = None;
                return open.question.report.send(Err(Unanswered { error, next_try }));
            }
            Decision::Again { wait } => {
                lane.slipped(key, now);
                (now + wait, soonest)
            }
            Decision::Refused { wait, asked } => {
                lane.refused(key, wait, asked, now);
                let trouble = (error.class(), error.reason());
                state.troubles.insert(open.lane.clone(), trouble);
                for other in state.open.values_mut().filter(|other| other.lane == open.lane) {
                    other.word_at = other.work.is_none().then_some(now);
                }
                (now + asked.unwrap_or(wait), asked.map_or(soonest, |asked| now + asked))
            }
        };
        if open.attempts.are_spent(&self.args.limits) {
            let next_try = Some(not_before);
            return open.question.report.send(Err(Unanswered { error, next_try }));
        }
        lane.wait(key, open.question.waits(now, not_before, last));
        open.error = Some(error);
        open.unsaid = true;
        state.open.insert(key, open);
    }

    fn give_up(key: Key, next_try: Option<Duration>, state: &mut State) {
        let Some(open) = state.open.remove(&key) else { return };
        let error = open.error.unwrap_or_else(|| match state.troubles.get(&open.lane) {
            Some((class, cause)) => ProviderError::of_class(class, cause.clone().into()),
            None => ProviderError::of_class("unreachable", "others are being asked first".into()),
        });
        open.question.report.send(Err(Unanswered { error, next_try }));
    }

    fn cancel(&self, invocation: &InvocationId, state: &mut State) {
        let now = self.now();
        let theirs = |_: &Key, open: &mut Open| open.question.origin.invocation_id == *invocation;
        for (key, mut open) in state.open.extract_if(.., theirs) {
            open.work = None;
            self.keep_partial(&open, INTERRUPTED);
            if let Some(lane) = state.lanes.get_mut(&open.lane) {
                lane.cancel(key, now);
            }
        }
    }

    fn keep_partial(&self, open: &Open, cause: &str) {
        let Question { draft, origin, turn, .. } = &open.question;
        keep_partial(draft, &self.args.transcript, origin, *turn, cause);
    }
}

/// Why a reply broke off that nobody wanted any more.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// Records what had arrived of a reply that ends here, if anything had, and what it has cost.
/// Returns the text.
pub(crate) fn keep_partial(
    draft: &Draft,
    transcript: &Transcript,
    origin: &Arc<Origin>,
    turn: u32,
    cause: &str,
) -> String {
    let text = draft.take();
    if !text.is_empty() {
        let event = Event::ModelPartial { turn, text: text.clone(), cause: cause.to_owned() };
        transcript.note(Some(origin), event);
    }
    if let Some(meter) = draft.take_meter() {
        meter.cut(cause);
    }
    text
}

/// A panicking adapter is a bug of ours: the client crashes with it, and is restarted. Otherwise
/// the attempt was dropped by us.
fn attempt_died(died: JoinError) -> Result<(), ActorProcessingErr> {
    if died.is_panic() {
        return Err(crate::mailbox::panic_text(died).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
