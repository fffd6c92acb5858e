//! Quiet period before a permission request accepts keys: 400 ms without a key press.
//!
//! A user who is typing when the request appears is not answering it.

use std::time::Duration;

/// Duration without a key press after which keys count.
pub(crate) const QUIET_PERIOD: Duration = Duration::from_millis(400);

/// The quiet period of one permission request. Times are durations since a fixed instant that the
/// caller chooses.
#[derive(Debug, Clone, Copy)]
pub struct QuietPeriod {
    /// Time at which the request appeared or, if later, of the latest key press that did not count.
    since: Duration,
}

impl QuietPeriod {
    /// Starts the quiet period. `now`: time at which the request appears.
    pub fn begin(now: Duration) -> QuietPeriod {
        QuietPeriod { since: now }
    }

    /// Registers a key press. Returns `true` if the key counts; otherwise the period starts again.
    pub fn key(&mut self, now: Duration) -> bool {
        let counts = self.left(now).is_none();
        if !counts {
            self.since = now;
        }
        counts
    }

    /// Time until keys count, provided that none is pressed; `None` if they count now.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        let left = (self.since + QUIET_PERIOD).saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn no_key_within_the_quiet_period_counts() {
        for appeared in [0, 7, 1_000_000] {
            for after in 0..400 {
                let mut silence = QuietPeriod::begin(ms(appeared));
                let pressed = appeared + after;
                assert_eq!(silence.left(ms(pressed)), Some(ms(400 - after)));
                assert!(!silence.key(ms(pressed)), "{after} ms after it appeared");
                // The period starts again: a second key just as soon does not count either.
                for again in 0..400 {
                    let mut silence = silence;
                    assert!(!silence.key(ms(pressed + again)), "{after} and {again} ms");
                }
                assert!(silence.key(ms(pressed + 400)));
            }
            let mut silence = QuietPeriod::begin(ms(appeared));
            assert!(silence.key(ms(appeared + 400)));
            assert!(silence.key(ms(appeared + 401)), "from then on every key counts");
        }
    }

    #[test]
    fn continuous_typing_never_answers() {
        let mut silence = QuietPeriod::begin(ms(0));
        let mut now = 0;
        for gap in (1..400).chain([399; 100]) {
            now += gap;
            assert!(!silence.key(ms(now)), "at {now} ms");
        }
        assert!(silence.key(ms(now + 400)));
    }

    #[test]
    fn stopped_or_reversed_clock_accepts_no_key() {
        let mut silence = QuietPeriod::begin(ms(1000));
        assert!(!silence.key(ms(1000)));
        assert!(!silence.key(ms(0)));
        assert!(!silence.key(ms(399)));
    }
}
