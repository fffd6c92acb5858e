//! Limits of runs and bounds of their context, from the settings.

use posse_actors::context::{ContextBudget, LedgerBudget};
use posse_actors::limits::Limits;

use crate::config::{ContextSize, Settings};

/// Limits of the runs of a session.
pub(crate) fn limits(settings: &Settings) -> Limits {
    let defaults = Limits::default();
    let provider = settings.default_provider.as_ref();
    let profile = provider.and_then(|name| settings.providers.get(name));
    let backoff_max = settings.retry.max_delay.unwrap_or(defaults.backoff_max);
    let patience = profile.and_then(|profile| profile.patience).or(settings.patience);
    Limits {
        turns_max: settings.turns_max.unwrap_or(defaults.turns_max),
        duration_max: settings.timeout,
        patience: patience.unwrap_or(defaults.patience),
        attempts_max: settings.retry.attempts_max,
        absent_attempts_max: defaults.absent_attempts_max.filter(|_| patience.is_none()),
        parallel_calls_max: match settings.tools.parallel.as_str() {
            "off" => 1,
            _ => settings.tools.parallel_max,
        },
        effects_run_alone: settings.tools.parallel != "all",
        delivery: settings.delivery,
        // A default gives way to a lower maximum that is set.
        backoff_first: settings.retry.base_delay.unwrap_or(defaults.backoff_first).min(backoff_max),
        backoff_max,
        context_main: budget(&settings.contexts.main, &ContextBudget::main()),
        context_child: budget(&settings.contexts.sub_agent, &ContextBudget::child()),
        ..defaults
    }
}

/// Context budget with the values of `size`, or of `usual` where `size` sets none. Limits a summary
/// to a quarter of `tokens_max`, if that is set, and `recent_turns_min` to `recent_turns`.
fn budget(size: &ContextSize, usual: &ContextBudget) -> ContextBudget {
    let tokens_max = if size.auto { None } else { size.tokens_max.or(usual.tokens_max) };
    let recent_turns = size.recent_turns.unwrap_or(usual.recent_turns);
    let fewest = size.recent_turns_min.unwrap_or(usual.recent_turns_min);
    let summary = size.summary_tokens.unwrap_or(usual.summary_tokens);
    ContextBudget {
        tokens_max,
        compact_at: size.compact_at.unwrap_or(usual.compact_at),
        // A small budget cannot hold a large summary.
        summary_tokens: summary.min(tokens_max.map_or(u64::MAX, |max| max / 4)),
        recent_turns,
        recent_turns_min: fewest.min(recent_turns),
        inline_result_tokens: size.inline_result_tokens.unwrap_or(usual.inline_result_tokens),
        compacts: !size.never_compacts,
        ledger: usual.ledger.map(|usual| LedgerBudget {
            raw_results: size.raw_delegate_results.unwrap_or(usual.raw_results),
            tokens: size.ledger_tokens.unwrap_or(usual.tokens),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_context_values_override_defaults() {
        let main = ContextBudget::main();
        assert_eq!(budget(&ContextSize::default(), &main), main);
        let auto = ContextSize { auto: true, ..ContextSize::default() };
        assert_eq!(budget(&auto, &main).tokens_max, None);
        let own = ContextSize {
            tokens_max: Some(4000),
            recent_turns: Some(1),
            never_compacts: true,
            compact_at: Some(0.5),
            raw_delegate_results: Some(5),
            ..ContextSize::default()
        };
        let own = budget(&own, &main);
        assert_eq!((own.recent_turns, own.recent_turns_min, own.compacts), (1, 1, false));
        assert_eq!(own.ledger, Some(LedgerBudget { raw_results: 5, tokens: 1200 }));
        assert_eq!(budget(&ContextSize::default(), &ContextBudget::child()).ledger, None);
        assert_eq!((own.summary_tokens, own.threshold(None, 0)), (1000, 2000));
    }
}
