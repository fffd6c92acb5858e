//! Limit of the restarts of an actor. When it is exceeded, the session parks.

use std::collections::VecDeque;
use std::time::Duration;

/// Limit of restarts within a sliding time window. Pure: the caller provides the time.
#[derive(Debug, Clone)]
pub(crate) struct RestartBudget {
    restarts_max: usize,
    window: Duration,
    spent: VecDeque<Duration>,
}

impl RestartBudget {
    pub(crate) fn new(restarts_max: u32, window: Duration) -> RestartBudget {
        let restarts_max = usize::try_from(restarts_max).unwrap_or(usize::MAX);
        RestartBudget { restarts_max, window, spent: VecDeque::new() }
    }

    /// Uses one restart at the monotonic time `now`. Returns the number of restarts in the window
    /// including this one. `None` if the limit is reached; then no restart is used.
    pub(crate) fn spend(&mut self, now: Duration) -> Option<u32> {
        while self.spent.front().is_some_and(|then| now.saturating_sub(*then) > self.window) {
            self.spent.pop_front();
        }
        if self.spent.len() >= self.restarts_max {
            return None;
        }
        self.spent.push_back(now);
        u32::try_from(self.spent.len()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_budget_recovers_after_the_window() {
        let second = Duration::from_secs(1);
        let mut budget = RestartBudget::new(2, 10 * second);
        assert_eq!(budget.spend(Duration::ZERO), Some(1));
        assert_eq!(budget.spend(9 * second), Some(2));
        assert_eq!(budget.spend(10 * second), None);
        assert_eq!(budget.spend(11 * second), Some(2));
    }
}
