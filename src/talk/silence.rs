//! When a question begins to listen: after four tenths of a second in which no key was pressed.
//!
//! Whoever is typing when a question appears was not typing an answer to it.

use std::time::Duration;

/// How long no key must have been pressed.
pub(crate) const SILENCE: Duration = Duration::from_millis(400);

/// The wait for silence, from the appearance of a question on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    /// When the question appeared, or the last key after that was pressed.
    since: Duration,
}

impl Silence {
    /// The question appears.
    pub(crate) fn begin(now: Duration) -> Silence {
        Silence { since: now }
    }

    /// A key is pressed. Whether it counts; one that does not begins the wait anew.
    pub(crate) fn key(&mut self, now: Duration) -> bool {
        let counts = self.left(now).is_none();
        if !counts {
            self.since = now;
        }
        counts
    }

    /// How long until keys count, if none is pressed. `None`: they do.
    pub(crate) fn left(&self, now: Duration) -> Option<Duration> {
        let left = (self.since + SILENCE).saturating_sub(now);
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
    fn no_key_within_the_silence_counts_whenever_it_is_pressed() {
        for appeared in [0, 7, 1_000_000] {
            for after in 0..400 {
                let mut silence = Silence::begin(ms(appeared));
                let pressed = appeared + after;
                assert_eq!(silence.left(ms(pressed)), Some(ms(400 - after)));
                assert!(!silence.key(ms(pressed)), "{after} ms after it appeared");
                // It begins anew: a second key just as soon does not count either.
                for again in 0..400 {
                    let mut silence = silence;
                    assert!(!silence.key(ms(pressed + again)), "{after} and {again} ms");
                }
                assert!(silence.key(ms(pressed + 400)));
            }
            let mut silence = Silence::begin(ms(appeared));
            assert!(silence.key(ms(appeared + 400)));
            assert!(silence.key(ms(appeared + 401)), "from then on every key counts");
        }
    }

    #[test]
    fn who_goes_on_typing_never_answers() {
        let mut silence = Silence::begin(ms(0));
        let mut now = 0;
        for gap in (1..400).chain([399; 100]) {
            now += gap;
            assert!(!silence.key(ms(now)), "at {now} ms");
        }
        assert!(silence.key(ms(now + 400)));
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_lets_nothing_through() {
        let mut silence = Silence::begin(ms(1000));
        assert!(!silence.key(ms(1000)));
        assert!(!silence.key(ms(0)));
        assert!(!silence.key(ms(399)));
    }
}
