//! How much a model gets to read: budgets, what is used of them, and what it is made of.
//!
//! Tokens are estimated from bytes, and the estimate is corrected by what providers report. What
//! is done when a history no longer fits: [`compaction`](crate::compaction).

mod meter;
mod weights;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ports::{Fallback, ProviderInfo, Thinking};

pub(crate) use meter::{ContextMeter, ContextReading};
pub(crate) use weights::bytes_in;
pub use weights::tokens_of;

/// What is kept free of a window that is not known to be large: room for the reply.
const RESERVE_MAX: u64 = 16_384;

/// A budget of an agent where neither the user nor the model says one.
const UNKNOWN_TOKENS_MAX: u64 = 48_000;

/// How much of a context an agent uses before it is made smaller. Tokens, unless said otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextBudget {
    /// The whole of it. `None`: as much as the model's window holds, less room for a reply.
    pub tokens_max: Option<u64>,
    /// The part of it, 0 to 1, beyond which it is compacted.
    pub compact_at: f64,
    /// What the summary of removed turns may have.
    pub summary_tokens: u64,
    /// Latest replies that stay as they are, with the results of their calls.
    pub recent_turns: usize,
    /// The same if it does not fit otherwise.
    pub recent_turns_min: usize,
    /// What a tool's output may have when the provider refuses a request for its size: larger ones
    /// of the latest turns are masked then.
    pub inline_result_tokens: u64,
    /// Whether it is compacted without being asked.
    pub compacts: bool,
}

impl ContextBudget {
    /// That of a main agent: 48,000 tokens, at 0.7.
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

    /// That of an agent that works for another one: 12,000 tokens, at 0.7.
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

/// Says how large the window of a model is, if anybody knows. Called when it matters.
pub type Windows = dyn Fn(&ProviderInfo) -> Option<u64> + Send + Sync;

/// What a session is told about contexts besides budgets.
#[derive(Clone, Default)]
pub struct ContextSettings {
    /// How large windows are. `None`: nobody knows.
    pub windows: Option<Arc<Windows>>,
    /// The model that summarises what is removed (`roles.compact`), if one is wanted.
    pub compact: Option<Fallback>,
    /// How much that one thinks, if somebody says so.
    pub compact_thinking: Option<Thinking>,
    /// The model that gives the session a title (`roles.title`), if one is wanted.
    pub title: Option<Fallback>,
    /// How much that one thinks, if somebody says so.
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

/// What a request is made of, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContextUse {
    /// What the agent is told, without instructions of the user and the project.
    pub system: u64,
    /// Instructions of the user and the project.
    pub instructions: u64,
    /// Descriptions of tools.
    pub tools: u64,
    /// What was said, with the calls of tools.
    pub messages: u64,
    /// What tools returned.
    pub tool_results: u64,
    /// All of it.
    pub total: u64,
    /// Beyond this the history is made smaller. `None`: nothing is done by itself.
    pub compacts_at: Option<u64>,
    /// What there may be.
    pub tokens_max: u64,
    /// The model's window, if it is known.
    pub window: Option<u64>,
    /// Whether the estimate was corrected by what the provider counted.
    pub calibrated: bool,
    /// How often this history was made smaller in this process.
    pub compactions: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_fits_the_window() {
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
