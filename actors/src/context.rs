//! Context budgets, their use, and the composition of a request.
//!
//! Tokens are estimated from bytes and calibrated with counts reported by providers. Reducing a
//! history that does not fit: [`compaction`](crate::compaction).

mod meter;
mod weights;

use std::sync::Arc;

use crate::ports::{Fallback, ProviderInfo, Thinking};

pub(crate) use meter::{ContextMeter, ContextReading};
pub use weights::tokens_of;
pub(crate) use weights::{bytes_in, sent_bytes};

/// Reserve for the reply within a window.
const RESERVE_MAX: u64 = 16_384;

/// Default budget of an agent if neither the user nor the model table has one.
const UNKNOWN_TOKENS_MAX: u64 = 48_000;

/// Context budget of an agent. Tokens, unless stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextBudget {
    /// Maximum. `None`: the window of the model minus a reserve for the reply.
    pub tokens_max: Option<u64>,
    /// The part of it, 0 to 1, beyond which it is compacted.
    pub compact_at: f64,
    /// Maximum size of the summary of removed turns.
    pub summary_tokens: u64,
    /// Latest replies that stay as they are, with the results of their calls.
    pub recent_turns: usize,
    /// Minimum number of recent turns, if the history does not fit otherwise.
    pub recent_turns_min: usize,
    /// Maximum size of a tool output after a provider rejected a request for its size; larger
    /// outputs of the latest turns are removed then.
    pub inline_result_tokens: u64,
    /// True if compaction is automatic.
    pub compacts: bool,
}

impl ContextBudget {
    /// Default budget of a main agent: 48,000 tokens, compacted at 70 %.
    pub fn main() -> ContextBudget {
        ContextBudget {
            tokens_max: Some(UNKNOWN_TOKENS_MAX),
            compact_at: 0.7,
            summary_tokens: 3000,
            recent_turns: 6,
            recent_turns_min: 2,
            inline_result_tokens: 2000,
            compacts: true,
        }
    }

    /// Default budget of a subagent: 12,000 tokens, compacted at 70 %.
    pub fn child() -> ContextBudget {
        ContextBudget {
            tokens_max: Some(12_000),
            summary_tokens: 1200,
            recent_turns: 3,
            recent_turns_min: 1,
            ..ContextBudget::main()
        }
    }

    /// Tokens that a request may have, for a model whose window is `window`.
    pub fn tokens_max(&self, window: Option<u64>) -> u64 {
        let fits = window.map(|window| window - (window / 4).min(RESERVE_MAX));
        match (self.tokens_max, fits) {
            (Some(wanted), Some(fits)) => wanted.min(fits),
            (Some(known), None) | (None, Some(known)) => known,
            (None, None) => UNKNOWN_TOKENS_MAX,
        }
    }

    /// Tokens beyond which it is compacted.
    pub fn threshold(&self, window: Option<u64>) -> u64 {
        part(self.tokens_max(window), self.compact_at)
    }
}

/// `ratio` of `tokens`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a count of tokens is far below where a float becomes coarse, and never negative"
)]
pub(crate) fn part(tokens: u64, ratio: f64) -> u64 {
    (tokens as f64 * ratio.max(0.0)) as u64
}

/// Looks up the context window of a model. Called when needed.
pub type Windows = dyn Fn(&ProviderInfo) -> Option<u64> + Send + Sync;

/// Context settings of a session besides budgets.
#[derive(Clone, Default)]
pub struct ContextSettings {
    /// Lookup of context windows, if there is one.
    pub windows: Option<Arc<Windows>>,
    /// Model for summaries (`roles.compact`), if configured.
    pub compact: Option<Fallback>,
    /// Reasoning effort of the summary model, if set.
    pub compact_thinking: Option<Thinking>,
    /// The model that gives the session a title (`roles.title`), if one is wanted.
    pub title: Option<Fallback>,
    /// Reasoning effort of the title model, if set.
    pub title_thinking: Option<Thinking>,
    /// Bytes of the system prompt that are instructions of the user and the project.
    pub instructions_bytes: usize,
}

impl std::fmt::Debug for ContextSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContextSettings").field("compact", &self.compact).finish_non_exhaustive()
    }
}

impl ContextSettings {
    /// The window of a model, if it is known.
    pub(crate) fn window(&self, info: &ProviderInfo) -> Option<u64> {
        self.windows.as_ref().and_then(|windows| windows(info)).filter(|window| *window > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_fits_the_window() {
        let main = ContextBudget::main();
        let auto = ContextBudget { tokens_max: None, ..ContextBudget::main() };
        let table = [
            (&main, None, 48_000, 33_600),
            (&main, Some(200_000), 48_000, 33_600),
            (&main, Some(8192), 6144, 4300),
            (&auto, Some(200_000), 183_616, 128_531),
            (&auto, Some(8000), 6000, 4200),
            (&auto, None, 48_000, 33_600),
            (&ContextBudget::child(), None, 12_000, 8400),
        ];
        for (budget, window, max, threshold) in table {
            let seen = (budget.tokens_max(window), budget.threshold(window));
            assert_eq!(seen, (max, threshold), "{window:?}");
        }
    }
}
