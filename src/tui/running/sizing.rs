//! Which size the terminal has, and whether that can be relied upon. Pure.
//!
//! Where our part begins after a change of width is computed from how rows are folded. A terminal
//! that is still being dragged, or that tells of its size late, has folded them in another way by
//! the time our bytes arrive: whoever draws then draws over what is finished. So nothing is drawn
//! until the size has been the same for a moment.

use std::time::Duration;

/// How long a size that keeps changing is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The size, and since when it is in question.
#[derive(Debug)]
pub(super) struct Sizing {
    size: (u16, u16),
    /// How long a size stays the same before it is believed.
    rest: Duration,
    changing: Option<Changing>,
}

#[derive(Debug, Clone, Copy)]
struct Changing {
    first: Duration,
    last: Duration,
}

impl Sizing {
    /// Columns and rows, and how long another size has to stay before it is believed.
    pub(super) fn new(size: (u16, u16), rest: Duration) -> Sizing {
        Sizing { size, rest, changing: None }
    }

    /// Columns and rows, as far as they are known.
    pub(super) fn size(&self) -> (u16, u16) {
        self.size
    }

    /// The terminal says that it has this size.
    pub(super) fn look(&mut self, size: (u16, u16), now: Duration) {
        if size != self.size {
            self.size = size;
            let first = self.changing.map_or(now, |changing| changing.first);
            self.changing = Some(Changing { first, last: now });
        }
    }

    /// How long to wait before anything is drawn; `None`: nothing is to be waited for.
    pub(super) fn left(&self, now: Duration) -> Option<Duration> {
        let Changing { first, last } = self.changing?;
        let until = (last + self.rest).min(first + PATIENCE);
        Some(until.saturating_sub(now)).filter(|left| !left.is_zero())
    }

    /// Whether the size is another one since this was asked last, and if so, whether that is sure.
    pub(super) fn adopt(&mut self, now: Duration) -> Option<bool> {
        let Changing { last, .. } = self.changing.take()?;
        Some(now.saturating_sub(last) >= self.rest)
    }

    /// Whatever was before, this is the size.
    pub(super) fn set(&mut self, size: (u16, u16)) {
        (self.size, self.changing) = (size, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_size_is_believed_when_it_stays() {
        let mut sizing = Sizing::new((100, 30), ms(300));
        assert_eq!((sizing.left(ms(0)), sizing.adopt(ms(0))), (None, None));
        sizing.look((100, 30), ms(10));
        assert_eq!(sizing.left(ms(10)), None);
        sizing.look((60, 20), ms(20));
        assert_eq!(sizing.left(ms(30)), Some(ms(290)));
        sizing.look((120, 40), ms(270));
        assert_eq!(sizing.left(ms(320)), Some(ms(250)));
        sizing.look((120, 40), ms(500));
        assert_eq!((sizing.left(ms(570)), sizing.size()), (None, (120, 40)));
        assert_eq!((sizing.adopt(ms(570)), sizing.adopt(ms(571))), (Some(true), None));
    }

    #[test]
    fn one_that_never_stays_is_not_waited_for_and_not_believed() {
        let mut sizing = Sizing::new((100, 30), ms(300));
        for nth in 0..=200_u16 {
            sizing.look((50 + nth % 2, 30), ms(u64::from(nth) * 10));
        }
        assert_eq!(sizing.left(ms(1999)), Some(ms(1)));
        assert_eq!((sizing.left(ms(2000)), sizing.adopt(ms(2000))), (None, Some(false)));
    }
}
