//! Bounds of a session in one struct: sizes, counts, waits and times. Everything that grows has a
//! bound.

use std::time::Duration;

use crate::context::ContextBudget;

/// Bounds of a session. Sizes are in bytes unless stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Maximum model replies of one invocation (`maxTurns`); `u32::MAX`: no limit.
    pub turns_max: u32,
    /// Maximum running time of a run. Subagents that it starts get the rest of it. `None`: no
    /// limit.
    pub duration_max: Option<Duration>,
    /// Maximum calls of one turn that run in parallel; 0 counts as 1.
    pub parallel_calls_max: usize,
    /// True if a call with side effects waits for all earlier calls of its turn, and later calls
    /// wait for it. False: it runs in parallel with others.
    pub effects_run_alone: bool,
    /// Maximum calls in one reply. Further calls do not run and get an error as their result.
    pub calls_per_turn_max: usize,
    /// Maximum bytes of the arguments of one call. A call with longer ones is invalid and does not
    /// run.
    pub arguments_bytes_max: usize,
    /// Bytes of text that tools are asked to return. Each tool cuts or spills longer text itself,
    /// or has a limit of its own.
    pub output_bytes_max: usize,
    /// Maximum bytes of text in a tool result, without the note about a cut.
    /// `tool_call/pipeline.rs` enforces it: longer text keeps its head and tail.
    pub result_bytes_max: usize,
    /// Number of identical calls (name and arguments) that fail in a row after which the invocation
    /// ends.
    pub repeated_failures_max: u32,
    /// Number of waiting messages from which on an invocation accepts no further message of the
    /// user. Messages of posse are always accepted.
    pub queued_messages_max: usize,
    /// Number of queued messages that are delivered at once.
    pub delivery: QueueDelivery,
    /// Maximum permission requests that are open at once; further ones are denied.
    pub questions_max: usize,
    /// Maximum events buffered for a slow observer. It loses deltas beyond that and reads durable
    /// events back from the journal.
    pub events_buffered_max: usize,
    /// Maximum restarts of one actor within `restart_window`.
    pub restarts_max: u32,
    /// Length of the sliding time window for `restarts_max`.
    pub restart_window: Duration,
    /// Interval in which text deltas are combined into one event.
    pub delta_interval: Duration,
    /// Time limit of a request of a front end to the session, and of the stop of all actors at its
    /// end.
    pub ask_timeout: Duration,
    /// Maximum time for which a model request is repeated while its provider, with all fallbacks,
    /// is unavailable. Time in which a reply arrives does not count. Also the maximum wait for disk
    /// space.
    pub patience: Duration,
    /// Maximum attempts of a model request at one model, including the first attempt; 0 counts as
    /// 1. `None`: patience alone decides.
    pub attempts_max: Option<u32>,
    /// Upper bound of the first backoff; the bound doubles with each further failure. A
    /// `Retry-After` below it is ignored, except after an exhausted quota.
    pub backoff_first: Duration,
    /// Maximum of the doubled bound of a backoff. A longer wait that an overloaded provider
    /// requests is shortened to it.
    pub backoff_max: Duration,
    /// Longest wait that a provider may request with `Retry-After`. A longer one is ignored; after
    /// an exhausted quota, the request then fails without a retry.
    pub retry_after_max: Duration,
    /// Maximum consecutive attempts at an address where no server listens, or whose responses are
    /// not from the provider, for the first request of a run of the main agent; later ones are
    /// limited by `patience` alone, because the server was there. 0 counts as 1. `None`: patience
    /// alone decides, because the user has set it.
    pub absent_attempts_max: Option<u32>,
    /// Maximum time for the attempts that `absent_attempts_max` counts.
    pub absent_patience: Duration,
    /// Maximum retries of a model request after replies that were cut off.
    pub cut_replies_max: u32,
    /// Maximum number of retries of a model request whose reply repeated itself without end. Each
    /// costs a reply of at least some thousand bytes, and a model without randomness repeats it.
    pub repeating_replies_max: u32,
    /// Number of consecutive attempts at a model, over all model requests, that were refused or got
    /// no response, after which its circuit breaker opens. A wait that the server requests opens it
    /// earlier.
    pub breaker_failures: u32,
    /// Minimum time between two probes of an open circuit breaker.
    pub probe_interval: Duration,
    /// Duration of silence of a provider during a streamed attempt after which the user is
    /// informed; repeated in this interval.
    pub silence_hint: Duration,
    /// Maximum wait for an unavailable model while a fallback is available.
    pub failover_wait: Duration,
    /// Minimum time before a failed model is tried again while a fallback answers; doubles with
    /// each failure, up to 16 times as long.
    pub failback_after: Duration,
    /// Wait before the next attempt of a parked run if neither the provider nor the circuit breaker
    /// gives a time. Not used after an exhausted quota: then the time is unknown.
    pub parked_pause: Duration,
    /// True if a model request that exhausted its patience waits once for the next attempt, if its
    /// time is known, instead of ending the run at once.
    pub outwaits_once: bool,
    /// Maximum further permission requests for one call whose effect has changed each time it is
    /// prepared again after an answer.
    pub rejudgements_max: u32,
    /// Time for an answer about a connection, which waits for it.
    pub connection_wait: Duration,
    /// Maximum number of times that hooks can make an invocation continue after its final answer.
    pub holds_max: u32,
    /// Context budget of the main agent.
    pub context_main: ContextBudget,
    /// Context budget of a subagent.
    pub context_child: ContextBudget,
}

/// Number of queued messages of the user that are delivered at once, by kind. Notices of posse are
/// always delivered together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDelivery {
    /// True if each step delivers one steering message; false if it delivers all of them.
    pub one_steering_message: bool,
    /// True if an answer is followed by all queued follow-ups; false if by the oldest one.
    pub all_follow_ups: bool,
}

impl Default for QueueDelivery {
    /// All steering messages, one follow-up.
    fn default() -> QueueDelivery {
        QueueDelivery { one_steering_message: false, all_follow_ups: false }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            turns_max: u32::MAX,
            duration_max: None,
            parallel_calls_max: 8,
            effects_run_alone: true,
            calls_per_turn_max: 256,
            arguments_bytes_max: 16 << 20,
            output_bytes_max: 32 << 10,
            result_bytes_max: 1 << 20,
            repeated_failures_max: 3,
            queued_messages_max: 64,
            delivery: QueueDelivery::default(),
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
            absent_attempts_max: Some(3),
            absent_patience: Duration::from_secs(15),
            cut_replies_max: 5,
            repeating_replies_max: 2,
            breaker_failures: 3,
            probe_interval: Duration::from_secs(5),
            silence_hint: Duration::from_secs(20),
            failover_wait: Duration::from_secs(2),
            failback_after: Duration::from_mins(1),
            parked_pause: Duration::from_mins(15),
            outwaits_once: false,
            rejudgements_max: 3,
            connection_wait: Duration::from_mins(2),
            holds_max: 8,
            context_main: ContextBudget::main(),
            context_child: ContextBudget::child(),
        }
    }
}
