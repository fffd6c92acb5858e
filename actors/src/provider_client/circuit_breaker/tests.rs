//! Circuit breaker with random clocks and requests.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const NOBODY: [RequestKey; 0] = [];

const INTERVAL: Duration = Duration::from_secs(5);

fn lane() -> CircuitBreaker {
    CircuitBreaker::new(BreakerBounds { failures_max: 3, probe_interval: INTERVAL })
}

fn arrive(lane: &mut CircuitBreaker, key: RequestKey, now: Duration) {
    lane.wait(key, WaitLimits { not_before: now, until: now + 600 * SECOND, last: None });
}

fn asks(lane: &mut CircuitBreaker, now: Duration) -> Vec<RequestKey> {
    std::iter::from_fn(|| lane.turn(now))
        .map(|turn| match turn {
            Admission::Ask(key) => key,
            Admission::GiveUp(key, next) => panic!("{key} gives up until {next:?}"),
        })
        .collect()
}

/// Eight ask, and all are refused: the state shuts.
fn shut(now: Duration) -> CircuitBreaker {
    let mut lane = lane();
    for key in 1..=8 {
        arrive(&mut lane, key, now);
    }
    assert_eq!(asks(&mut lane, now).len(), 8, "as long as all is well, all ask at once");
    for key in 1..=8 {
        lane.refused(key, SECOND, None, now);
        arrive(&mut lane, key, now);
    }
    lane
}

#[test]
fn consecutive_failures_open_the_circuit_and_one_probe_runs() {
    let mut lane = shut(SECOND);
    assert_eq!(asks(&mut lane, SECOND), NOBODY);
    assert_eq!(lane.due(), Some(SECOND + INTERVAL));
    let at = SECOND + INTERVAL;
    assert_eq!(asks(&mut lane, at), [1], "the one that waits longest");
    assert_eq!(asks(&mut lane, at + 60 * SECOND), NOBODY, "the others wait for what it finds out");
    lane.refused(1, 8 * SECOND, None, at);
    arrive(&mut lane, 1, at);
    assert_eq!(asks(&mut lane, at + 7 * SECOND), NOBODY);
    assert_eq!(asks(&mut lane, at + 8 * SECOND), [1]);
}

#[test]
fn first_success_admits_waiting_requests_gradually() {
    let mut lane = shut(SECOND);
    let at = SECOND + INTERVAL;
    assert_eq!(asks(&mut lane, at), [1]);
    lane.alive(1);
    assert_eq!(asks(&mut lane, at), [2, 3]);
    lane.alive(2);
    assert_eq!(asks(&mut lane, at), [4, 5]);
    lane.alive(3);
    lane.alive(4);
    assert_eq!(asks(&mut lane, at), [6, 7, 8]);
    for key in 1..=8 {
        lane.answered(key);
    }
    for key in 10..=200 {
        arrive(&mut lane, key, at);
    }
    assert_eq!(asks(&mut lane, at).len(), 191, "it is open");
}

#[test]
fn single_failure_keeps_the_circuit_closed() {
    let mut lane = lane();
    arrive(&mut lane, 1, SECOND);
    assert_eq!(asks(&mut lane, SECOND), [1]);
    lane.refused(1, SECOND, None, SECOND);
    lane.wait(1, WaitLimits { not_before: 2 * SECOND, until: 600 * SECOND, last: None });
    arrive(&mut lane, 2, SECOND);
    assert_eq!(asks(&mut lane, SECOND), [2]);
    assert_eq!(asks(&mut lane, 2 * SECOND), [1]);
}

#[test]
fn retry_after_applies_to_all_requests() {
    let mut lane = lane();
    arrive(&mut lane, 1, SECOND);
    assert_eq!(asks(&mut lane, SECOND), [1]);
    lane.refused(1, SECOND, Some(40 * SECOND), SECOND);
    arrive(&mut lane, 1, SECOND);
    arrive(&mut lane, 2, SECOND);
    assert_eq!(asks(&mut lane, 40 * SECOND), NOBODY);
    assert_eq!(asks(&mut lane, 41 * SECOND), [1]);
}

#[test]
fn request_fails_at_once_if_the_wait_exceeds_its_patience() {
    let mut lane = lane();
    arrive(&mut lane, 1, SECOND);
    assert_eq!(asks(&mut lane, SECOND), [1]);
    lane.refused(1, SECOND, Some(40 * SECOND), SECOND);
    lane.wait(2, WaitLimits { not_before: SECOND, until: 30 * SECOND, last: None });
    assert_eq!(lane.turn(SECOND), Some(Admission::GiveUp(2, Some(41 * SECOND))));
}

#[test]
fn patience_is_used_completely() {
    let until = 4 * SECOND;
    let waiting = |not_before| WaitLimits { not_before, until, last: Some(SECOND) };
    // Its own wait would be too long.
    let mut open = lane();
    open.wait(1, waiting(9 * SECOND));
    assert_eq!((open.turn(SECOND), open.due()), (None, Some(until)));
    assert_eq!(asks(&mut open, until), [1]);
    // So would be the pause between two that look.
    let mut shut = shut(SECOND);
    shut.wait(20, waiting(SECOND));
    assert_eq!((shut.turn(SECOND), shut.turn_of(20)), (None, Some(until)));
    assert_eq!(asks(&mut shut, until), [20]);
    assert_eq!(asks(&mut shut, until + SECOND), NOBODY, "the others wait for what it finds out");
    shut.refused(20, SECOND, None, until);
    // A recent probe of another request counts.
    shut.wait(21, WaitLimits { until: until + 3 * SECOND, ..waiting(until) });
    assert_eq!(shut.turn(until), Some(Admission::GiveUp(21, Some(until + INTERVAL))));
    // A wait requested by the server does not depend on patience.
    let mut asked = lane();
    arrive(&mut asked, 1, SECOND);
    assert_eq!(asks(&mut asked, SECOND), [1]);
    asked.refused(1, SECOND, Some(40 * SECOND), SECOND);
    asked.wait(2, waiting(SECOND));
    assert_eq!(asked.turn(SECOND), Some(Admission::GiveUp(2, Some(41 * SECOND))));
}

#[test]
fn lost_probe_is_replaced() {
    let mut lane = shut(SECOND);
    let at = SECOND + INTERVAL;
    assert_eq!(asks(&mut lane, at), [1]);
    lane.cancel(1, at + SECOND);
    assert_eq!(asks(&mut lane, at + SECOND), NOBODY);
    assert_eq!(asks(&mut lane, at + INTERVAL), [2]);
    lane.failed_alone(2, at + 2 * INTERVAL);
    assert_eq!(asks(&mut lane, at + 2 * INTERVAL), [3]);
}

#[test]
fn cautious_lane_sends_one_request_first() {
    let mut lane = CircuitBreaker::half_open(
        BreakerBounds { failures_max: 3, probe_interval: INTERVAL },
        SECOND,
    );
    for key in 1..=8 {
        arrive(&mut lane, key, SECOND);
    }
    assert_eq!(asks(&mut lane, SECOND), [1]);
}

/// Next random action.
#[derive(Debug, Clone)]
enum BreakerAction {
    Passes(u64),
    Arrives { patience: u64 },
    Alive(usize),
    Answered(usize),
    Refused { who: usize, wait: u64, asked: Option<u64> },
    Slipped { who: usize, wait: u64 },
    Cancelled(usize),
}

fn happens() -> impl Strategy<Value = BreakerAction> {
    prop_oneof![
        6 => (0_u64..20_000).prop_map(BreakerAction::Passes),
        4 => (0_u64..100_000).prop_map(|patience| BreakerAction::Arrives { patience }),
        1 => any::<usize>().prop_map(BreakerAction::Alive),
        1 => any::<usize>().prop_map(BreakerAction::Answered),
        6 => (any::<usize>(), 0_u64..30_000, prop::option::weighted(0.2, 0_u64..60_000))
            .prop_map(|(who, wait, asked)| BreakerAction::Refused { who, wait, asked }),
        1 => (any::<usize>(), 0_u64..3_000)
            .prop_map(|(who, wait)| BreakerAction::Slipped { who, wait }),
        1 => any::<usize>().prop_map(BreakerAction::Cancelled),
    ]
}

/// Model of all requests and their states.
#[derive(Debug, Default)]
struct BreakerModel {
    now: Duration,
    last_key: RequestKey,
    in_flight: Vec<RequestKey>,
    waiting: BTreeMap<RequestKey, Duration>,
    /// Time of the last probe.
    probed: Option<Duration>,
}

impl BreakerModel {
    fn turns(&mut self, lane: &mut CircuitBreaker) {
        loop {
            let shut = match lane.state {
                BreakerState::Open { round, .. } => Some(round),
                BreakerState::Closed { .. }
                | BreakerState::Probing { .. }
                | BreakerState::HalfOpen { .. } => None,
            };
            let Some(turn) = lane.turn(self.now) else { break };
            match turn {
                Admission::Ask(key) => {
                    let until = self.waiting.remove(&key).expect("who asks has waited");
                    assert!(self.now <= until, "nobody asks when patience is over");
                    self.in_flight.push(key);
                    // How soon the first one looks is the server's to say.
                    if let Some(round) = shut {
                        let before = self.probed.replace(self.now);
                        let apart = before.map(|before| self.now.saturating_sub(before));
                        assert!(round == 0 || apart >= Some(INTERVAL), "{apart:?}");
                    }
                }
                Admission::GiveUp(key, next) => {
                    let until = self.waiting.remove(&key).expect("who gives up has waited");
                    let too_late = next.is_some_and(|next| next > until);
                    assert!(too_late || until <= self.now, "nobody gives up who would have a turn");
                }
            }
        }
        assert!(
            !matches!(lane.state, BreakerState::Probing { key, .. } if !self.in_flight.contains(&key))
        );
        let due = lane.due();
        assert_eq!(due.is_some(), !self.waiting.is_empty(), "nobody is forgotten");
        assert!(due.is_none_or(|due| due > self.now), "whoever is due has had a turn");
    }

    fn retry(
        &mut self,
        lane: &mut CircuitBreaker,
        key: RequestKey,
        wait: u64,
        asked: Option<Duration>,
    ) {
        let not_before = self.now + Duration::from_millis(wait);
        let until = self.now + Duration::from_millis(wait * 37 % 100_000);
        let last = (until > self.now && !wait.is_multiple_of(3))
            .then(|| self.now + asked.unwrap_or(Duration::from_millis(100)));
        lane.wait(key, WaitLimits { not_before, until, last });
        self.waiting.insert(key, until);
    }

    fn take(&mut self, who: usize) -> Option<RequestKey> {
        (!self.in_flight.is_empty()).then(|| self.in_flight.swap_remove(who % self.in_flight.len()))
    }

    fn happens(&mut self, lane: &mut CircuitBreaker, happens: &BreakerAction) {
        match *happens {
            // Time advances as an alarm would: never beyond the due time.
            BreakerAction::Passes(ms) => {
                let end = self.now + Duration::from_millis(ms);
                while let Some(due) = lane.due().filter(|due| *due <= end) {
                    self.now = due;
                    self.turns(lane);
                }
                self.now = end;
            }
            BreakerAction::Arrives { patience } => {
                self.last_key += 1;
                let until = self.now + Duration::from_millis(patience);
                let last = (patience > 0).then_some(self.now);
                lane.wait(self.last_key, WaitLimits { not_before: self.now, until, last });
                self.waiting.insert(self.last_key, until);
            }
            BreakerAction::Alive(who) => {
                if !self.in_flight.is_empty() {
                    lane.alive(self.in_flight[who % self.in_flight.len()]);
                }
            }
            BreakerAction::Answered(who) => {
                if let Some(key) = self.take(who) {
                    lane.answered(key);
                }
            }
            BreakerAction::Refused { who, wait, asked } => {
                if let Some(key) = self.take(who) {
                    let asked = asked.map(Duration::from_millis);
                    lane.refused(key, Duration::from_millis(wait), asked, self.now);
                    self.retry(lane, key, wait, asked);
                }
            }
            BreakerAction::Slipped { who, wait } => {
                if let Some(key) = self.take(who) {
                    lane.failed_alone(key, self.now);
                    self.retry(lane, key, wait, None);
                }
            }
            BreakerAction::Cancelled(who) => {
                let keys: Vec<RequestKey> =
                    self.in_flight.iter().chain(self.waiting.keys()).copied().collect();
                if !keys.is_empty() {
                    let key = keys[who % keys.len()];
                    self.in_flight.retain(|out| *out != key);
                    self.waiting.remove(&key);
                    lane.cancel(key, self.now);
                }
            }
        }
        self.turns(lane);
    }
}

proptest! {
    #[test]
    fn probes_are_rare_and_every_request_is_answered(
        all in prop::collection::vec(happens(), 1..200),
    ) {
        let (mut lane, mut world) = (lane(), BreakerModel::default());
        for happens in all {
            world.happens(&mut lane, &happens);
        }
        // When all requests in flight are answered, every waiting request gets a turn.
        for _ in 0..1000 {
            let Some(key) = world.in_flight.first().copied() else {
                match lane.due() {
                    Some(due) => world.happens(&mut lane, &BreakerAction::Passes(
                        u64::try_from((due.saturating_sub(world.now)).as_millis()).unwrap() + 1,
                    )),
                    None => break,
                }
                continue;
            };
            world.in_flight.retain(|out| *out != key);
            lane.answered(key);
            world.turns(&mut lane);
        }
        prop_assert!(world.waiting.is_empty() && world.in_flight.is_empty());
    }
}

#[test]
fn requested_retry_probes_at_once_and_its_result_counts() {
    let mut lane = lane();
    arrive(&mut lane, 1, SECOND);
    assert_eq!(asks(&mut lane, SECOND), [1]);
    lane.refused(1, SECOND, Some(3600 * SECOND), SECOND);
    for round in 1..=3 {
        let at = SECOND + round * SECOND;
        lane.retry_now(at);
        arrive(&mut lane, 10, at);
        arrive(&mut lane, 11, at);
        assert_eq!(asks(&mut lane, at), [10], "one looks, the other one waits");
        lane.refused(10, SECOND, Some(3600 * SECOND), at);
        lane.cancel(11, at);
        arrive(&mut lane, 12, at);
        assert_eq!(lane.turn_of(12), Some(at + 3600 * SECOND));
        lane.cancel(12, at);
    }
    lane.retry_now(10 * SECOND);
    arrive(&mut lane, 20, 10 * SECOND);
    assert_eq!(asks(&mut lane, 10 * SECOND), [20]);
    lane.alive(20);
    lane.retry_now(11 * SECOND);
    arrive(&mut lane, 21, 11 * SECOND);
    assert_eq!(asks(&mut lane, 11 * SECOND), [21], "what is open stays open");
}
