//! Many who ask one client, on a clock that is advanced by hand.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use super::*;
use crate::conversation::{AssistantMessage, SessionId, StopReason};
use crate::cost::Budget;
use crate::ports::{Completion, Delta, DeltaSender, PortFuture, ProviderInfo};
use crate::testing::{CountedIds, ManualClock};
use crate::transcript_writer::Outbox;

const SECOND: Duration = Duration::from_secs(1);

const MINUTE: Duration = Duration::from_mins(1);

/// Duration of a reply and time to its first text.
const REPLY: Duration = Duration::from_secs(4);
const FIRST_WORD: Duration = Duration::from_millis(500);

/// A provider that is away for a while.
struct FlakyProvider {
    clock: Arc<ManualClock>,
    storm: Range<Duration>,
    /// Time of each request.
    asked: Mutex<Vec<Duration>>,
}

impl FlakyProvider {
    fn new(clock: &Arc<ManualClock>, storm: Range<Duration>) -> Arc<FlakyProvider> {
        Arc::new(FlakyProvider { clock: Arc::clone(clock), storm, asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<Duration> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Provider for FlakyProvider {
    fn info(&self) -> ProviderInfo {
        let (profile, model) = ("weather".to_owned(), "w".to_owned());
        ProviderInfo { profile, model, endpoint: "nowhere".to_owned() }
    }

    fn complete(
        &self,
        _: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let now = self.clock.monotonic();
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(now);
        let is_away = self.storm.contains(&now);
        let clock = Arc::clone(&self.clock);
        Box::pin(async move {
            if is_away {
                let source = "529".into();
                return Err(ProviderError::Overloaded {
                    kind: crate::ports::OverloadKind::Overload,
                    retry_after: None,
                    source,
                });
            }
            clock.sleep(FIRST_WORD).await;
            deltas.send(Delta::Text("word".to_owned())).await.ok();
            clock.sleep(REPLY.saturating_sub(FIRST_WORD)).await;
            let content = Some("word".to_owned());
            Ok(Completion {
                message: AssistantMessage { content, ..AssistantMessage::default() },
                stop_reason: StopReason::EndTurn,
                usage: None,
                model: None,
            })
        })
    }
}

struct Fleet {
    clock: Arc<ManualClock>,
    client: ActorRef<Msg>,
}

impl Fleet {
    async fn start(clock: &Arc<ManualClock>, provider: Arc<dyn Provider>, limits: Limits) -> Fleet {
        let args = Args {
            providers: vec![provider],
            prices: vec![None],
            budget_handle: BudgetHandle::new(Budget::default(), 0, |_| ()),
            clock: Arc::clone(clock) as Arc<dyn Clock>,
            transcript: transcript(clock),
            limits: Arc::new(limits),
            fail: FailPoints::none(),
            half_open: false,
        };
        let (client, _) = Actor::spawn(None, ProviderClient, args).await.unwrap();
        Fleet { clock: Arc::clone(clock), client }
    }

    fn ask(&self, who: usize, patience: Duration) -> oneshot::Receiver<RequestResult> {
        let (sender, receiver) = oneshot::channel();
        let question = ModelRequest {
            model: 0,
            request: Request {
                messages: Vec::new(),
                tools: Arc::from([]),
                stream: true,
                tokens_max: None,
                temperature: None,
                thinking: None,
                session: None,
            },
            origin: origin(who),
            turn: 1,
            deadline: Deadline::at(self.clock.monotonic() + patience),
            until: None,
            draft: PartialReply::default(),
            calibration: TokenCalibration::default(),
            window_check: None,
            report: Report::call(move |answer: Result<_, _>| {
                // A cancelled request has no result.
                if let Ok(answer) = answer {
                    sender.send(answer).ok();
                }
            }),
        };
        tell(&self.client, Msg::Complete(question));
        receiver
    }

    /// Runs all tasks, then advances time to the next timer.
    async fn pass(&self) {
        for _ in 0..40 {
            tokio::task::yield_now().await;
        }
        if let Some(next) = self.clock.next_wake() {
            self.clock.advance(next);
        }
    }
}

/// Transcript without a journal.
fn transcript(clock: &Arc<ManualClock>) -> Transcript {
    let (_, nobody) = tokio::sync::watch::channel(None);
    let outbox = Arc::new(Outbox::new(SessionId::new("s")));
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Transcript::new(outbox, nobody, clock, Arc::new(CountedIds::default()))
}

type RequestResult = Result<MeteredReply, Unanswered>;

fn origin(who: usize) -> Arc<Origin> {
    Arc::new(Origin {
        invocation_id: InvocationId::new(format!("i{who}")),
        parent_invocation_id: None,
        agent: "build".to_owned(),
        agent_path: "build".to_owned(),
    })
}

/// `count` agents, each of which asks `turns` times, one after another. Returns when each of them
/// had each of its answers.
async fn work(
    fleet: &Arc<Fleet>,
    count: usize,
    turns: usize,
    patience: Duration,
) -> Vec<Result<Vec<Duration>, &'static str>> {
    let agent = |who: usize| {
        let fleet = Arc::clone(fleet);
        tokio::spawn(async move {
            let mut answers = Vec::new();
            for _ in 0..turns {
                match fleet.ask(who, patience).await.unwrap() {
                    Ok(_) => answers.push(fleet.clock.monotonic()),
                    Err(unanswered) => return Err(unanswered.error.class()),
                }
            }
            Ok(answers)
        })
    };
    let agents: Vec<_> = (0..count).map(agent).collect();
    while !agents.iter().all(tokio::task::JoinHandle::is_finished) {
        fleet.pass().await;
    }
    let mut all = Vec::new();
    for agent in agents {
        all.push(agent.await.unwrap());
    }
    all
}

fn unattended() -> Limits {
    Limits { delta_interval: Duration::ZERO, ..Limits::default() }
}

/// Requests while the provider is away, without those that found out about it.
fn probes(weather: &FlakyProvider, count: usize) -> Vec<Duration> {
    let mut away: Vec<_> = weather.asked();
    away.retain(|at| weather.storm.contains(at));
    away.split_off(away.len().min(count.max(3)))
}

fn are_rare(probes: &[Duration]) -> bool {
    probes.windows(2).all(|pair| pair[1].saturating_sub(pair[0]) >= 5 * SECOND)
}

#[tokio::test]
async fn eight_agents_survive_a_fifteen_minute_outage() {
    for seed in 0..4 {
        let clock = Arc::new(ManualClock::seeded(seed));
        // Forty replies take 160 seconds.
        let weather = FlakyProvider::new(&clock, 155 * SECOND..155 * SECOND + 15 * MINUTE);
        let provider = Arc::clone(&weather) as Arc<dyn Provider>;
        let fleet = Arc::new(Fleet::start(&clock, provider, unattended()).await);
        let done = work(&fleet, 8, 50, 24 * 60 * MINUTE).await;
        for answers in &done {
            assert_eq!(answers.as_ref().map(Vec::len), Ok(50), "seed {seed}");
        }
        let asked = weather.asked();
        let failed = asked.iter().filter(|at| weather.storm.contains(at)).count();
        assert_eq!(asked.len() - failed, 8 * 50, "no reply is asked for twice");
        assert!(are_rare(&probes(&weather, 8)), "seed {seed}: {:?}", probes(&weather, 8));
        assert!(failed < 24 + 15 * 12, "seed {seed}: {failed}");
        let last = done.iter().flatten().filter_map(|answers| answers.last()).max().unwrap();
        assert!(*last < weather.storm.end + 2 * MINUTE, "seed {seed}: back at work at once");
    }
}

#[tokio::test]
async fn hundred_agents_retry_spread_over_time() {
    let clock = Arc::new(ManualClock::seeded(7));
    let weather = FlakyProvider::new(&clock, Duration::ZERO..10 * MINUTE);
    let provider = Arc::clone(&weather) as Arc<dyn Provider>;
    let fleet = Arc::new(Fleet::start(&clock, provider, unattended()).await);
    let done = work(&fleet, 100, 1, 60 * MINUTE).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    assert!(are_rare(&probes(&weather, 100)), "{:?}", probes(&weather, 100));
    let after: Vec<_> =
        weather.asked().into_iter().filter(|at| !weather.storm.contains(at)).collect();
    assert_eq!(after.len(), 100);
    let first = after[0];
    let within = |time: Duration| after.iter().filter(|at| **at < first + time).count();
    assert_eq!(within(FIRST_WORD), 1, "one looks whether it is back");
    assert_eq!(within(2 * FIRST_WORD), 1 + 2);
    assert_eq!(within(3 * FIRST_WORD), 1 + 2 + 4);
    assert!(within(10 * SECOND) == 100, "and they are all back soon: {after:?}");
}

#[tokio::test]
async fn outage_of_a_day_is_waited_out() {
    let clock = Arc::new(ManualClock::seeded(3));
    let weather = FlakyProvider::new(&clock, SECOND..SECOND + 23 * 60 * MINUTE);
    let provider = Arc::clone(&weather) as Arc<dyn Provider>;
    let fleet = Arc::new(Fleet::start(&clock, provider, unattended()).await);
    let done = work(&fleet, 1, 2, 24 * 60 * MINUTE).await;
    assert_eq!(done[0].as_ref().map(Vec::len), Ok(2));
}

#[tokio::test]
async fn exhausted_patience_reports_the_next_attempt() {
    let clock = Arc::new(ManualClock::seeded(5));
    let weather = FlakyProvider::new(&clock, Duration::ZERO..60 * MINUTE);
    let provider = Arc::clone(&weather) as Arc<dyn Provider>;
    let fleet = Fleet::start(&clock, provider, unattended()).await;
    let mut answer = fleet.ask(0, 10 * MINUTE);
    let unanswered = loop {
        match answer.try_recv() {
            Ok(answer) => break answer.unwrap_err(),
            Err(_) => fleet.pass().await,
        }
    };
    assert_eq!(unanswered.error.class(), "overloaded");
    let (now, next) = (clock.monotonic(), unanswered.next_try.unwrap());
    assert!(now <= 10 * MINUTE && next > 10 * MINUTE && next <= now + 30 * SECOND);
}

/// Patience shorter than the probe interval is used to its end, and no request is sent after it.
#[tokio::test]
async fn last_attempt_is_at_the_end_of_patience() {
    for seed in 0..8 {
        let clock = Arc::new(ManualClock::seeded(seed));
        let weather = FlakyProvider::new(&clock, Duration::ZERO..60 * MINUTE);
        let provider = Arc::clone(&weather) as Arc<dyn Provider>;
        let fleet = Arc::new(Fleet::start(&clock, provider, unattended()).await);
        let patience = 4 * SECOND;
        assert_eq!(work(&fleet, 1, 1, patience).await, [Err("overloaded")], "seed {seed}");
        assert_eq!(weather.asked().last(), Some(&patience), "seed {seed}: {:?}", weather.asked());
        // The server recovers one second before patience ends.
        let clock = Arc::new(ManualClock::seeded(seed));
        let weather = FlakyProvider::new(&clock, Duration::ZERO..3 * SECOND);
        let provider = Arc::clone(&weather) as Arc<dyn Provider>;
        let fleet = Arc::new(Fleet::start(&clock, provider, unattended()).await);
        assert!(work(&fleet, 1, 1, patience).await[0].is_ok(), "seed {seed}");
        // Eight whose patience ends together do not knock eight times.
        let clock = Arc::new(ManualClock::seeded(seed));
        let weather = FlakyProvider::new(&clock, Duration::ZERO..60 * MINUTE);
        let provider = Arc::clone(&weather) as Arc<dyn Provider>;
        let fleet = Arc::new(Fleet::start(&clock, provider, unattended()).await);
        assert!(work(&fleet, 8, 1, 33 * SECOND).await.iter().all(Result::is_err));
        assert!(are_rare(&probes(&weather, 8)), "seed {seed}: {:?}", weather.asked());
        assert!(weather.asked().iter().all(|at| *at <= 33 * SECOND), "seed {seed}");
    }
}

#[tokio::test]
async fn cancelled_wait_leaves_no_state() {
    let clock = Arc::new(ManualClock::seeded(5));
    let weather = FlakyProvider::new(&clock, Duration::ZERO..60 * MINUTE);
    let provider = Arc::clone(&weather) as Arc<dyn Provider>;
    let fleet = Fleet::start(&clock, provider, unattended()).await;
    let waiting: Vec<_> = (0..8).map(|who| fleet.ask(who, 60 * MINUTE)).collect();
    for _ in 0..20 {
        fleet.pass().await;
    }
    for who in 0..8 {
        tell(&fleet.client, Msg::Cancel(InvocationId::new(format!("i{who}"))));
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(clock.sleepers(), 0);
    drop(waiting);
}

#[tokio::test]
async fn only_server_data_counts_as_success() {
    let notice = || Delta::Notice("an image was left out".to_owned());
    let text = || Delta::Text("word".to_owned());
    let table = [
        (vec![], false),
        (vec![notice()], false),
        (vec![notice(), text()], true),
        (vec![Delta::Alive], true),
        (vec![text(), Delta::Alive], true),
    ];
    for (deltas, expected) in table {
        let clock = Arc::new(ManualClock::seeded(1));
        let (sender, receiver) = mpsc::channel(4);
        for delta in deltas.clone() {
            sender.send(delta).await.unwrap();
        }
        drop(sender);
        let meter = RequestMeter::new(MeterArgs {
            budget_handle: BudgetHandle::new(Budget::default(), 0, |_| ()),
            transcript: transcript(&clock),
            origin: origin(0),
            turn: 1,
            attempt: 1,
            info: FlakyProvider::new(&clock, Duration::ZERO..SECOND).info(),
            price: None,
            calibration: TokenCalibration::default(),
        });
        let given = Relay {
            transcript: transcript(&clock),
            origin: origin(0),
            clock,
            interval: SECOND,
            pen: PartialReply::default().begin(meter.clone()),
            meter,
            profile: "weather".to_owned(),
            silence_hint: None,
        };
        let mut alive = false;
        forward_deltas(receiver, given, || alive = true).await.unwrap();
        assert_eq!(alive, expected, "{deltas:?}");
    }
}
