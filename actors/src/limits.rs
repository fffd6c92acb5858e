//! Every upper bound of the kernel in one struct: nothing that grows is without one.

use std::time::Duration;

/// The bounds a session runs within.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Model replies in one invocation (`maxTurns`).
    pub turns_max: u32,
    /// Wall time of one invocation, if there is a limit.
    pub duration_max: Option<Duration>,
    /// Read-only calls of one turn that run side by side.
    pub parallel_calls_max: usize,
    /// Calls of one turn; what is above is answered with an error.
    pub calls_per_turn_max: usize,
    /// Bytes of one call's arguments.
    pub arguments_bytes_max: usize,
    /// Bytes of text that a tool may hand to the model; above, head and tail are kept.
    pub output_bytes_max: usize,
    /// Bytes of text that any tool may return at all; what it cuts itself is below this.
    pub result_bytes_max: usize,
    /// Identical calls that fail in a row before the turn is stopped.
    pub repeated_failures_max: u32,
    /// Messages waiting for the next safe point.
    pub queued_messages_max: usize,
    /// Questions open at once.
    pub questions_max: usize,
    /// Events held for a reader that lags; then it re-reads durable ones from the journal.
    pub events_buffered_max: usize,
    /// Restarts of one actor within `restart_window`.
    pub restarts_max: u32,
    /// The window of `restarts_max`.
    pub restart_window: Duration,
    /// How often text deltas become events.
    pub delta_interval: Duration,
    /// How long one question between actors may take.
    pub ask_timeout: Duration,
    /// How long a provider that is overloaded or away is waited for, in all.
    pub patience: Duration,
    /// Waits between attempts: 1, 2, 4, 8, 16 s by default.
    pub backoff_first: Duration,
    /// The longest wait between attempts, also when the provider asks for more.
    pub backoff_max: Duration,
    /// Attempts after a reply that made no sense or broke off.
    pub broken_replies_max: u32,
    /// How often a call is prepared and judged again after an answer, if it keeps changing.
    pub rejudgements_max: u32,
    /// How often hooks can make one invocation go on after its answer.
    pub holds_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            turns_max: 25,
            duration_max: None,
            parallel_calls_max: 8,
            calls_per_turn_max: 256,
            arguments_bytes_max: 16 << 20,
            output_bytes_max: 32 << 10,
            result_bytes_max: 1 << 20,
            repeated_failures_max: 3,
            queued_messages_max: 64,
            questions_max: 256,
            events_buffered_max: 4096,
            restarts_max: 3,
            restart_window: Duration::from_mins(1),
            delta_interval: Duration::from_millis(20),
            ask_timeout: Duration::from_secs(30),
            patience: Duration::from_mins(1),
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
            broken_replies_max: 1,
            rejudgements_max: 3,
            holds_max: 8,
        }
    }
}
