//! The window size, and whether it is final. Pure.
//!
//! After a change of width, the start of the live region is computed from how the terminal reflowed
//! its rows. A terminal that is still being resized, or that reports its size late, has reflowed
//! them differently by the time the output arrives, and drawing would then overwrite finished rows.
//! So nothing is drawn until the size has been stable for a moment.

use std::time::Duration;

/// Maximum wait for a size that keeps changing.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// The latest size and its pending change.
#[derive(Debug)]
pub(super) struct WindowSize {
    /// Columns and rows of the latest size.
    pub(super) size: (u16, u16),
    /// Time that a size must stay unchanged before it is final.
    settle_time: Duration,
    changing: Option<SizeChange>,
}

#[derive(Debug, Clone, Copy)]
struct SizeChange {
    first: Duration,
    last: Duration,
}

impl WindowSize {
    /// Creates a `WindowSize` with a final size. `settle_time`: time that another size must stay
    /// unchanged before it is final.
    pub(super) fn new(size: (u16, u16), settle_time: Duration) -> WindowSize {
        WindowSize { size, settle_time, changing: None }
    }

    /// Registers the size that the terminal reports. If it differs from the latest one, it becomes
    /// the latest size, and the wait begins again.
    pub(super) fn observe(&mut self, size: (u16, u16), now: Duration) {
        if size != self.size {
            self.size = size;
            let first = self.changing.map_or(now, |changing| changing.first);
            self.changing = Some(SizeChange { first, last: now });
        }
    }

    /// Remaining wait before a frame may be drawn; `None` if no wait is needed.
    pub(super) fn left(&self, now: Duration) -> Option<Duration> {
        let SizeChange { first, last } = self.changing?;
        let until = (last + self.settle_time).min(first + SETTLE_MAX);
        Some(until.saturating_sub(now)).filter(|left| !left.is_zero())
    }

    /// Takes the pending change of the size: `true` if the new size is final, `false` if it may
    /// still change. `None` if nothing changed.
    pub(super) fn adopt(&mut self, now: Duration) -> Option<bool> {
        let SizeChange { last, .. } = self.changing.take()?;
        Some(now.saturating_sub(last) >= self.settle_time)
    }

    /// Sets a final size, and drops a pending change.
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
    fn size_is_final_when_it_stays() {
        let mut window_size = WindowSize::new((100, 30), ms(300));
        assert_eq!((window_size.left(ms(0)), window_size.adopt(ms(0))), (None, None));
        window_size.observe((100, 30), ms(10));
        assert_eq!(window_size.left(ms(10)), None);
        window_size.observe((60, 20), ms(20));
        assert_eq!(window_size.left(ms(30)), Some(ms(290)));
        window_size.observe((120, 40), ms(270));
        assert_eq!(window_size.left(ms(320)), Some(ms(250)));
        window_size.observe((120, 40), ms(500));
        assert_eq!((window_size.left(ms(570)), window_size.size), (None, (120, 40)));
        assert_eq!((window_size.adopt(ms(570)), window_size.adopt(ms(571))), (Some(true), None));
    }

    #[test]
    fn ever_changing_size_is_drawn_but_not_final() {
        let mut window_size = WindowSize::new((100, 30), ms(300));
        for nth in 0..=200_u16 {
            window_size.observe((50 + nth % 2, 30), ms(u64::from(nth) * 10));
        }
        assert_eq!(window_size.left(ms(1999)), Some(ms(1)));
        assert_eq!((window_size.left(ms(2000)), window_size.adopt(ms(2000))), (None, Some(false)));
    }
}
