//! All upper bounds of the kernel in one struct: everything that grows has one.

use std::time::Duration;

use crate::context::ContextBudget;

/// Bounds of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Model replies in one invocation (`maxTurns`).
    pub turns_max: u32,
    /// Wall time of one invocation, if limited.
    pub duration_max: Option<Duration>,
    /// Read-only calls of one turn that run in parallel.
    pub parallel_calls_max: usize,
    /// Maximum calls per turn; further calls get an error.
    pub calls_per_turn_max: usize,
    /// Bytes of one call's arguments.
    pub arguments_bytes_max: usize,
    /// Bytes of text that tools are asked to return. Each tool cuts longer text itself, or has a limit
    /// of its own.
    pub output_bytes_max: usize,
    /// Upper limit of the text from any tool, in bytes, enforced by `tool_call/pipeline.rs`: longer
    /// text keeps its head and tail.
    pub result_bytes_max: usize,
    /// Identical calls that fail in a row before the turn is stopped.
    pub repeated_failures_max: u32,
    /// Messages waiting for the next safe point.
    pub queued_messages_max: usize,
    /// Permission requests open at once.
    pub questions_max: usize,
    /// Events buffered for a slow reader; beyond, it re-reads durable ones from the journal.
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
    /// Upper bound of the first backoff; each further bound doubles.
    pub backoff_first: Duration,
    /// Upper bound of posse's own backoff.
    pub backoff_max: Duration,
    /// Maximum `Retry-After`; longer values are ignored.
    pub retry_after_max: Duration,
    /// Attempts after an unreadable reply.
    pub broken_replies_max: u32,
    /// Attempts after interrupted replies, in one turn.
    pub cut_replies_max: u32,
    /// Consecutive failures of all requests after which the circuit breaker opens.
    pub breaker_failures: u32,
    /// Shortest time between two probes of an open circuit breaker.
    pub probe_interval: Duration,
    /// Silence of a provider during a reply after which a notice is shown.
    pub silence_hint: Duration,
    /// Longest wait for a model while a fallback is available.
    pub failover_wait: Duration,
    /// Shortest time before a failed model is tried again while a fallback answers.
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
