//! Context budgets, token estimates of a history, and the composition of a request.
//!
//! Tokens are estimated from bytes and calibrated with the counts that providers report. The module
//! [`compaction`](crate::compaction) shortens a history that exceeds its budget.

mod meter;
mod weights;

use std::sync::Arc;

use crate::ports::{Fallback, ProviderError, ProviderInfo, Thinking};

pub(crate) use meter::{ContextMeter, ContextReading};
pub use weights::tokens_of;
pub(crate) use weights::{bytes_in, sent_bytes};

/// The reserve for the reply is a quarter of the context window, but at most this number of tokens.
const RESERVE_MAX: u64 = 16_384;

/// Context window in tokens that is assumed for an unknown model of a remote provider.
const REMOTE_WINDOW: u64 = 128_000;

/// Context window in tokens that is assumed for an unknown model of a server on this machine. Some
/// of them cut a longer prompt without an error.
const LOCAL_WINDOW: u64 = 32_000;

/// Context budget of an agent, and settings of its compaction. Sizes are in tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextBudget {
    /// Maximum size of a request; [`tokens_max`](ContextBudget::tokens_max) lowers it to the
    /// context window of the model. `None`: only the window limits it, or the assumed one if it is
    /// unknown.
    pub tokens_max: Option<u64>,
    /// Fraction of the maximum, 0 to 1, above which the history is compacted.
    pub compact_at: f64,
    /// Approximate maximum size of the summary of removed turns. Standing instructions of the user
    /// are kept beyond it.
    pub summary_tokens: u64,
    /// Number of latest model replies that compaction leaves unchanged, with the results of their
    /// calls.
    pub recent_turns: usize,
    /// Lower number of unchanged replies, used if the history does not fit otherwise.
    pub recent_turns_min: usize,
    /// Size above which a tool output in the latest turns is removed after a provider rejected a
    /// request for its size.
    pub inline_result_tokens: u64,
    /// True if the history is compacted automatically.
    pub compacts: bool,
    /// Ledger of older results of subagents; `None`: they stay until a compaction.
    pub ledger: Option<LedgerBudget>,
}

/// Bounds of the ledger of older results of subagents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerBudget {
    /// Number of newest results that stay as they are.
    pub raw_results: usize,
    /// Maximum size of all entries in tokens.
    pub tokens: u64,
}

impl Default for LedgerBudget {
    /// Two results and 1,200 tokens.
    fn default() -> LedgerBudget {
        LedgerBudget { raw_results: 2, tokens: 1200 }
    }
}

impl ContextBudget {
    /// Default budget of a main agent: the context window of its model, compacted at 70 %.
    pub fn main() -> ContextBudget {
        ContextBudget {
            tokens_max: None,
            compact_at: 0.7,
            summary_tokens: 3000,
            recent_turns: 6,
            recent_turns_min: 2,
            inline_result_tokens: 2000,
            compacts: true,
            ledger: Some(LedgerBudget::default()),
        }
    }

    /// Default budget of a subagent: the context window of its model, compacted at 70 %.
    pub fn child() -> ContextBudget {
        ContextBudget {
            summary_tokens: 1200,
            recent_turns: 3,
            recent_turns_min: 1,
            ledger: None,
            ..ContextBudget::main()
        }
    }

    /// Maximum size of a request in tokens for a model with the context window `window` (`None`:
    /// unknown): the field `tokens_max`, but at most `window - min(window / 4, 16,384)`. Without
    /// both, that of the window `assumed` ([`assumed_window`]).
    pub fn tokens_max(&self, window: Option<u64>, assumed: u64) -> u64 {
        let fits = |window: u64| window - (window / 4).min(RESERVE_MAX);
        match (self.tokens_max, window) {
            (Some(wanted), Some(window)) => wanted.min(fits(window)),
            (Some(wanted), None) => wanted,
            (None, window) => fits(window.unwrap_or(assumed)),
        }
    }

    /// Size of a request in tokens above which the history is compacted: the fraction `compact_at`
    /// of the maximum.
    pub fn threshold(&self, window: Option<u64>, assumed: u64) -> u64 {
        part(self.tokens_max(window, assumed), self.compact_at)
    }
}

/// Context window in tokens that is assumed for a model whose window is unknown: 32,000 for a server
/// on this machine, otherwise 128,000.
pub fn assumed_window(info: &ProviderInfo) -> u64 {
    let address = info.endpoint.split_once("://").map_or("", |(_, address)| address);
    let host = address.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let is_local = ["localhost", "127.", "[::1]"].iter().any(|local| host.starts_with(local));
    if is_local { LOCAL_WINDOW } else { REMOTE_WINDOW }
}

/// The fraction `ratio` of `tokens`, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a count of tokens is far below where a float becomes coarse, and never negative"
)]
pub(crate) fn part(tokens: u64, ratio: f64) -> u64 {
    (tokens as f64 * ratio.max(0.0)) as u64
}

/// Function that looks up the context window of a model in tokens; `None` if unknown. Called only
/// when the window is needed.
pub type Windows = dyn Fn(&ProviderInfo) -> Option<u64> + Send + Sync;

/// Source of what is known about the context window of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowSource {
    /// The configuration or a table of models, which may not have it.
    Settings,
    /// The server of the model reported it.
    Server,
    /// The server was asked and has not answered yet: a later lookup may find the window.
    Asking,
}

/// Function that returns the source of the context window of a model.
pub type WindowSources = dyn Fn(&ProviderInfo) -> WindowSource + Send + Sync;

/// Settings of a session for context windows, summaries and titles.
#[derive(Clone, Default)]
pub struct ContextSettings {
    /// Function that looks up context windows; `None`: no window is known. It is called again for a
    /// model whose window was unknown.
    pub windows: Option<Arc<Windows>>,
    /// Lookup of windows in the settings alone, without tables and servers, for small requests.
    pub configured_windows: Option<Arc<Windows>>,
    /// Function for the source of a window; `None`: the settings.
    pub window_sources: Option<Arc<WindowSources>>,
    /// Model that writes summaries for compaction (`roles.compact`); `None`: summaries are made by
    /// rules.
    pub compact: Option<Fallback>,
    /// Reasoning effort of the summary model; `None`: the provider's default.
    pub compact_thinking: Option<Thinking>,
    /// Model that writes the title of the session (`roles.title`); `None`: no title is written.
    pub title: Option<Fallback>,
    /// Reasoning effort of the title model; `None`: the provider's default.
    pub title_thinking: Option<Thinking>,
    /// Size of the instruction files (`AGENTS.md` and similar) in the system prompt, in bytes.
    pub instructions_bytes: usize,
}

impl std::fmt::Debug for ContextSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContextSettings").field("compact", &self.compact).finish_non_exhaustive()
    }
}

impl ContextSettings {
    /// Context window of a model in tokens; `None` if unknown.
    pub(crate) fn window(&self, info: &ProviderInfo) -> Option<u64> {
        self.windows.as_ref().and_then(|windows| windows(info)).filter(|window| *window > 0)
    }

    /// Context window of a model that the settings contain. `None` if they contain none.
    pub(crate) fn configured_window(&self, info: &ProviderInfo) -> Option<u64> {
        let windows = self.configured_windows.as_ref()?;
        windows(info).filter(|window| *window > 0)
    }

    /// Source of the context window of a model.
    pub(crate) fn window_source(&self, info: &ProviderInfo) -> WindowSource {
        self.window_sources.as_ref().map_or(WindowSource::Settings, |sources| sources(info))
    }
}

/// Size of a request, to be compared with the context window of a model.
#[derive(Clone)]
pub(crate) struct WindowCheck {
    /// Token estimate that has read the history of the request.
    pub(crate) meter: ContextMeter,
    pub(crate) settings: ContextSettings,
    /// The model that was asked.
    pub(crate) info: ProviderInfo,
}

impl WindowCheck {
    /// True if the window is known, and the request takes so much of it that a server may have no
    /// space for a reply. Looks the window up.
    pub(crate) fn is_near(&self) -> bool {
        self.meter.is_near_window(&self.settings, &self.info)
    }

    /// The error of a request that is not sent, because its estimated size exceeds a known window.
    /// `None` for any other request.
    pub(crate) fn overflow(&self) -> Option<ProviderError> {
        let (tokens, window) = self.meter.excess(&self.settings, &self.info)?;
        let ProviderInfo { model, profile, .. } = &self.info;
        let what = format!(
            "{profile}: the request was not sent: about {tokens} tokens by estimate, and the \
             context window of {model} has {window}"
        );
        Some(ProviderError::ContextFull { source: what.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_fits_the_window() {
        let auto = ContextBudget::main();
        let fixed = ContextBudget { tokens_max: Some(48_000), ..ContextBudget::main() };
        let table = [
            (&fixed, None, 48_000, 33_600),
            (&fixed, Some(200_000), 48_000, 33_600),
            (&fixed, Some(8192), 6144, 4300),
            (&auto, Some(200_000), 183_616, 128_531),
            (&auto, Some(8000), 6000, 4200),
            (&auto, None, 24_000, 16_800),
            (&ContextBudget::child(), Some(200_000), 183_616, 128_531),
        ];
        for (budget, window, max, threshold) in table {
            let seen =
                (budget.tokens_max(window, LOCAL_WINDOW), budget.threshold(window, LOCAL_WINDOW));
            assert_eq!(seen, (max, threshold), "{window:?}");
        }
    }

    #[test]
    fn unknown_window_is_smaller_on_this_machine() {
        let table = [
            ("http://127.0.0.1:8080/v1", LOCAL_WINDOW),
            ("http://localhost:11434", LOCAL_WINDOW),
            ("http://[::1]:1234/v1", LOCAL_WINDOW),
            ("https://api.example.com/v1", REMOTE_WINDOW),
            ("https://example.com/localhost", REMOTE_WINDOW),
            ("https://localhost.example@example.com/", REMOTE_WINDOW),
            ("", REMOTE_WINDOW),
        ];
        for (endpoint, window) in table {
            let info = ProviderInfo {
                profile: "p".to_owned(),
                model: "m".to_owned(),
                endpoint: endpoint.to_owned(),
            };
            assert_eq!(assumed_window(&info), window, "{endpoint}");
        }
    }
}
