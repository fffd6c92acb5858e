//! Every upper bound of the kernel in one struct: nothing that grows is without one.

use std::time::Duration;

use crate::context::ContextBudget;

/// The bounds a session runs within.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Model replies in one invocation (`maxTurns`).
    pub turns_max: u32,
    /// Wall time of one invocation, if there is a limit.
    pub duration_max: Option<Duration>,
    /// Read-only calls of one turn that run side by side.
    pub parallel_calls_max: usize,
    /// Maximum calls per turn; further calls get an error.
    pub calls_per_turn_max: usize,
    /// Bytes of one call's arguments.
    pub arguments_bytes_max: usize,
    /// Bytes of text that a tool may hand to the model; above, head and tail are kept.
    pub output_bytes_max: usize,
    /// Maximum bytes of text from any tool; limits of single tools are lower.
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
    /// Interval at which text deltas become events.
    pub delta_interval: Duration,
    /// Time limit of a request between actors.
    pub ask_timeout: Duration,
    /// Maximum total wait for an overloaded or unavailable provider.
    pub patience: Duration,
    /// Maximum attempts per request, in addition to patience.
    pub attempts_max: Option<u32>,
    /// The first wait between attempts lasts up to this, each further one up to twice as long.
    pub backoff_first: Duration,
    /// The longest wait between attempts that is our own choice.
    pub backoff_max: Duration,
    /// Maximum `Retry-After`; longer values are ignored.
    pub retry_after_max: Duration,
    /// Attempts after a reply that made no sense.
    pub broken_replies_max: u32,
    /// Attempts after replies that broke off, in one turn.
    pub cut_replies_max: u32,
    /// Consecutive failures of all requests after which the circuit breaker opens.
    pub breaker_failures: u32,
    /// The shortest time between two of those tries.
    pub probe_interval: Duration,
    /// A provider that is silent for this long while it should reply is worth a word.
    pub silence_hint: Duration,
    /// A model is not waited for any longer than this while another may be asked.
    pub failover_wait: Duration,
    /// A model that was away is not asked again before this while another one answers.
    pub failback_after: Duration,
    /// Wait before the next attempt of a parked session if the provider gives no time.
    pub parked_pause: Duration,
    /// True if a run that exhausted its patience waits once for the next attempt instead of ending.
    pub outwaits_once: bool,
    /// Maximum repetitions of prepare and review after an answer, if the call keeps changing.
    pub rejudgements_max: u32,
    /// Maximum number of times that hooks can continue an invocation after its answer.
    pub holds_max: u32,
    /// Context budget of the main agent.
    pub context_main: ContextBudget,
    /// Context budget of a subagent.
    pub context_child: ContextBudget,
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
            patience: Duration::from_mins(10),
            attempts_max: None,
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
            retry_after_max: Duration::from_hours(7 * 24),
            broken_replies_max: 1,
            cut_replies_max: 5,
            breaker_failures: 3,
            probe_interval: Duration::from_secs(5),
            silence_hint: Duration::from_secs(20),
            failover_wait: Duration::from_secs(2),
            failback_after: Duration::from_mins(1),
            parked_pause: Duration::from_mins(15),
            outwaits_once: false,
            rejudgements_max: 3,
            holds_max: 8,
            context_main: ContextBudget::main(),
            context_child: ContextBudget::child(),
        }
    }
}
