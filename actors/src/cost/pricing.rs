//! Prices of model tokens, and costs computed from them.

use std::sync::{Arc, LazyLock};

use crate::conversation::Usage;

/// Number of pico-USD in a nano-USD. A price in micro-USD per million tokens has the same number as
/// the price in pico-USD per token.
pub(crate) const PICO_IN_NANO: u128 = 1000;

/// Number of nano-USD in a dollar.
const NANO: u64 = 1_000_000_000;

/// Token prices of a model, in micro-USD per million tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRates {
    /// Price of input tokens.
    pub input: u64,
    /// Price of output tokens, including thinking.
    pub output: u64,
    /// Price of input tokens that are read from the provider's cache; `None`: the price of `input`.
    pub cached_input: Option<u64>,
    /// Price of input tokens that are written into the provider's cache; `None`: the price of
    /// `input`.
    pub cache_write: Option<u64>,
    /// Version of the price table that contains these prices.
    pub version: String,
}

impl TokenRates {
    /// Cost of `usage` in nano-USD, rounded up. `None` if the number of input or output tokens is
    /// unknown.
    pub fn cost(&self, usage: &Usage) -> Option<u64> {
        let (input, output) = (usage.input_tokens?, usage.output_tokens?);
        let cached = usage.cached_input_tokens.unwrap_or(0).min(input);
        let kept = usage.cache_write_tokens.unwrap_or(0).min(input - cached);
        let pico = part(input - cached - kept, self.input)
            .saturating_add(part(cached, self.cached_input.unwrap_or(self.input)))
            .saturating_add(part(kept, self.cache_write.unwrap_or(self.input)))
            .saturating_add(part(output, self.output));
        Some(nano(pico))
    }

    /// Highest price that an input token can have, in micro-USD per million tokens.
    pub(crate) fn input_max(&self) -> u64 {
        let others = [self.cached_input, self.cache_write];
        others.into_iter().flatten().fold(self.input, u64::max)
    }
}

/// Cost in pico-USD of `tokens` at `price` (micro-USD per million tokens).
pub(crate) fn part(tokens: u64, price: u64) -> u128 {
    u128::from(tokens) * u128::from(price)
}

/// Converts pico-USD to nano-USD, rounded up.
pub(crate) fn nano(pico: u128) -> u64 {
    u64::try_from(pico.div_ceil(PICO_IN_NANO)).unwrap_or(u64::MAX)
}

/// Prices of a model and the maximum length of its replies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelPricing {
    /// Token prices; `None` if unknown.
    pub rates: Option<TokenRates>,
    /// Maximum number of tokens of a reply; `None` if unknown.
    pub output_max: Option<u64>,
}

type FindPricing = Box<dyn FnOnce() -> ModelPricing + Send>;

/// Pricing of a model that is looked up on first use. Clones share the result.
#[derive(Debug, Clone)]
pub struct PriceLookup(Arc<LazyLock<ModelPricing, FindPricing>>);

impl PriceLookup {
    /// Pricing that `find` returns. `find` is called at most once, on first use.
    pub fn new(find: impl FnOnce() -> ModelPricing + Send + 'static) -> PriceLookup {
        PriceLookup(Arc::new(LazyLock::new(Box::new(find))))
    }

    /// Pricing with the prices `rates` and without a known maximum length of replies.
    pub fn fixed(rates: TokenRates) -> PriceLookup {
        PriceLookup::new(move || ModelPricing { rates: Some(rates), output_max: None })
    }

    /// The pricing; the first call looks it up.
    pub fn pricing(&self) -> &ModelPricing {
        &self.0
    }
}

/// Converts nano-USD to dollars, for clients that expect a float.
#[expect(clippy::cast_precision_loss, reason = "nobody has spent nine million dollars")]
pub fn usd(nano: u64) -> f64 {
    nano as f64 / 1e9
}

/// Formats nano-USD as dollars, such as `$1.25`: two to four decimals, up to nine for amounts below
/// $0.001. Further digits are cut off.
pub fn dollars(nano: u64) -> String {
    let (whole, rest) = (nano / NANO, nano % NANO);
    let digits = format!("{rest:09}");
    let digits = if whole == 0 && rest < NANO / 1000 { &digits[..] } else { &digits[..4] };
    format!("${whole}.{:0<2}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> TokenRates {
        TokenRates {
            input: 1_250_000,
            output: 10_000_000,
            cached_input: Some(125_000),
            cache_write: Some(1_562_500),
            version: "test".to_owned(),
        }
    }

    #[test]
    fn counts_each_kind_of_token_once() {
        let usage = |input, cached, kept, output| Usage {
            input_tokens: input,
            output_tokens: output,
            cached_input_tokens: cached,
            reasoning_tokens: Some(3),
            cache_write_tokens: kept,
        };
        let table = [
            (usage(Some(0), None, None, Some(0)), Some(0)),
            (usage(Some(1), None, None, Some(0)), Some(1250)),
            (usage(Some(0), None, None, Some(1)), Some(10_000)),
            // A token of the cache costs 125 nano-USD.
            (usage(Some(10), Some(10), None, Some(0)), Some(1250)),
            // 100 fresh, 800 cached, 100 kept.
            (usage(Some(1000), Some(800), Some(100), Some(0)), Some(125_000 + 100_000 + 156_250)),
            // More parts than there is: the whole counts.
            (usage(Some(5), Some(50), Some(50), Some(0)), Some(625)),
            (usage(None, None, None, Some(1)), None),
            (usage(Some(1), None, None, None), None),
            (usage(Some(u64::MAX), None, None, Some(u64::MAX)), Some(u64::MAX)),
        ];
        for (usage, expected) in table {
            assert_eq!(rates().cost(&usage), expected, "{usage:?}");
        }
        assert_eq!(rates().input_max(), 1_562_500);
    }

    #[test]
    fn fractions_are_rounded_up() {
        let cheap = TokenRates { input: 1, ..rates() };
        let one = Usage { input_tokens: Some(1), output_tokens: Some(0), ..Usage::default() };
        assert_eq!(cheap.cost(&one), Some(1));
    }

    #[test]
    fn dollar_amounts_are_short_and_never_rounded_to_zero() {
        let table = [
            (0, "$0.00"),
            (1, "$0.000000001"),
            (999_999, "$0.000999999"),
            (1_000_000, "$0.001"),
            (12_345_678, "$0.0123"),
            (500_000_000, "$0.50"),
            (1_000_000_000, "$1.00"),
            (1_234_567_890, "$1.2345"),
        ];
        for (nano, expected) in table {
            assert_eq!(dollars(nano), expected);
        }
    }
}
