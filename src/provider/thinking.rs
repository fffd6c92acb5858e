//! Reasoning levels in all protocols: support by model and server, names, and the notice if a level
//! is omitted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use posse_actors::ports::Thinking;

use crate::profile::{ModelFact, ProviderProfile, Quirks};

/// Reasoning parameter of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThinkingParam {
    /// The request sets no level: the profile's configuration applies.
    AsConfigured,
    /// No reasoning parameter is sent.
    Nothing,
    /// The model and the server support this level; the dialect sends it in its own form.
    Level(Thinking),
}

/// Protocol, as far as it affects reasoning levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThinkingDialect {
    /// Chat Completions: a level is sent only with [`Quirks::reasoning_effort`], and `Off` only as
    /// with `Responses`.
    Chat,
    /// Responses: accepts a level. `Off` is sent only if [`Quirks::effort_names`] has a value for
    /// it, because servers have no common one.
    Responses,
    /// Messages: accepts a level. Without a parameter the model does not think.
    Messages,
}

/// Support of reasoning levels by the protocol and the model of a profile.
#[derive(Debug)]
pub(crate) struct ThinkingConfig {
    tongue: ThinkingDialect,
    insight: ModelFact<Option<bool>>,
    model: String,
    /// True if the user was informed that the level is omitted: the notice is given once.
    heard: AtomicBool,
}

impl ThinkingConfig {
    pub(crate) fn of(profile: &ProviderProfile, tongue: ThinkingDialect) -> ThinkingConfig {
        let heard = AtomicBool::new(false);
        let (insight, model) = (profile.insight.clone(), profile.model.clone());
        ThinkingConfig { tongue, insight, model, heard }
    }

    /// Parameter for the requested level `wanted`. An unsupported level is omitted without a
    /// notice.
    pub(crate) fn unchecked(&self, wanted: Option<Thinking>, quirks: &Quirks) -> ThinkingParam {
        let judged =
            wanted.map(|wanted| self.judge(wanted, quirks).unwrap_or(ThinkingParam::Nothing));
        judged.unwrap_or(ThinkingParam::AsConfigured)
    }

    /// Parameter for the requested level `wanted`. The first time that a level has to be omitted,
    /// also returns a notice for the user.
    pub(crate) fn checked(
        &self,
        wanted: Option<Thinking>,
        quirks: &Quirks,
    ) -> (ThinkingParam, Option<String>) {
        let Some(wanted) = wanted else { return (ThinkingParam::AsConfigured, None) };
        match self.judge(wanted, quirks) {
            Ok(said) => (said, None),
            Err(why) => {
                let first = !self.heard.swap(true, Ordering::Relaxed);
                let notice = || {
                    let level = wanted.name();
                    format!("thinking \"{level}\" is left out of requests to {}: {why}", self.model)
                };
                (ThinkingParam::Nothing, first.then(notice))
            }
        }
    }

    fn judge(&self, wanted: Thinking, quirks: &Quirks) -> Result<ThinkingParam, &'static str> {
        let configured =
            quirks.adaptive_thinking || quirks.thinking_budget.is_some() || quirks.effort.is_some();
        let thinks = match *self.insight.get() {
            _ if quirks.no_reasoning => Some(false),
            None if configured => Some(true),
            known => known,
        };
        let named = quirks.effort_names.contains_key(wanted.name());
        match (wanted, self.tongue, thinks) {
            // Without a parameter the model does not think.
            (Thinking::Off, ThinkingDialect::Messages, _) | (Thinking::Off, _, Some(false)) => {
                Ok(ThinkingParam::Nothing)
            }
            (_, _, Some(false)) => Err("the model does not think"),
            (_, ThinkingDialect::Chat, _) if !quirks.reasoning_effort => {
                Err("the server is not known to take it (quirks.reasoningEffort says that it does)")
            }
            (Thinking::Off, ..) if !named => {
                Err("the server has no word for it (quirks.effortNames can name one), and its own \
                     default counts")
            }
            (_, _, None) => Err(
                "it is not known whether the model thinks (models.NAME.reasoning says that it does)",
            ),
            (level, _, Some(true)) => Ok(ThinkingParam::Level(level)),
        }
    }
}

/// The server's name of a level: the one in `names`, else `low`, `medium` or `high`.
pub(crate) fn effort(level: Thinking, names: &BTreeMap<String, String>) -> &str {
    names.get(level.name()).map_or_else(
        || match level {
            Thinking::Off | Thinking::Minimal | Thinking::Low => "low",
            Thinking::Medium => "medium",
            Thinking::High | Thinking::ExtraHigh => "high",
        },
        String::as_str,
    )
}

/// Maximum number of tokens for thinking at `level`, for models that take a number: that in `own`,
/// else posse's, which is 0 for `Off`. At most three quarters (rounded up) of `reply`, the maximum
/// number of reply tokens: the rest is reserved for the answer.
pub(crate) fn budget(level: Thinking, reply: u64, own: &BTreeMap<String, u64>) -> u64 {
    let wanted = own.get(level.name()).copied().unwrap_or(match level {
        Thinking::Off => 0,
        Thinking::Minimal => 1024,
        Thinking::Low => 4096,
        Thinking::Medium => 10_240,
        Thinking::High => 16_384,
        Thinking::ExtraHigh => 32_768,
    });
    wanted.min(reply - reply / 4)
}

/// Joins two notices for the user, either of which may be absent.
pub(crate) fn joined(one: Option<String>, other: Option<String>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one}; {other}")),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thoughts(tongue: ThinkingDialect, thinks: Option<bool>) -> ThinkingConfig {
        let mut profile = ProviderProfile::new("p", "https://h/v1", "m", None);
        profile.insight = ModelFact::new(move || thinks);
        ThinkingConfig::of(&profile, tongue)
    }

    #[test]
    fn level_is_sent_where_supported_and_otherwise_warned_once() {
        use Thinking::{High, Off};
        use ThinkingDialect::{Chat, Messages, Responses};
        let plain = Quirks::default();
        let takes = Quirks { reasoning_effort: true, ..Quirks::default() };
        let adaptive = Quirks { adaptive_thinking: true, ..Quirks::default() };
        let never = Quirks { no_reasoning: true, ..takes.clone() };
        let names = [("off".to_owned(), "none".to_owned())].into();
        let knows_none = Quirks { effort_names: names, ..takes.clone() };
        let level = Ok(ThinkingParam::Level(High));
        let table = [
            (Messages, Some(true), High, &plain, level),
            (Messages, None, High, &adaptive, level),
            (Messages, None, High, &plain, Err("it is not known")),
            (Messages, Some(false), High, &plain, Err("the model does not think")),
            (Messages, Some(true), Off, &adaptive, Ok(ThinkingParam::Nothing)),
            (Responses, Some(true), High, &plain, level),
            (Responses, Some(true), High, &never, Err("the model does not think")),
            (Responses, Some(true), Off, &plain, Err("the server has no word for it")),
            (Responses, Some(true), Off, &knows_none, Ok(ThinkingParam::Level(Off))),
            (Responses, Some(false), Off, &plain, Ok(ThinkingParam::Nothing)),
            (Chat, Some(true), High, &plain, Err("the server is not known")),
            (Chat, Some(true), High, &takes, level),
            (Chat, None, High, &takes, Err("it is not known")),
            (Chat, Some(false), Off, &plain, Ok(ThinkingParam::Nothing)),
        ];
        for (tongue, thinks, wanted, quirks, expected) in table {
            let thoughts = thoughts(tongue, thinks);
            let (said, notice) = thoughts.checked(Some(wanted), quirks);
            match expected {
                Ok(expected) => {
                    assert_eq!((said, notice), (expected, None), "{tongue:?} {wanted:?}");
                }
                Err(why) => {
                    let notice = notice.unwrap();
                    assert_eq!(said, ThinkingParam::Nothing, "{tongue:?} {wanted:?}");
                    assert!(notice.contains(why) && notice.contains(wanted.name()), "{notice}");
                    assert_eq!(
                        thoughts.checked(Some(wanted), quirks),
                        (ThinkingParam::Nothing, None),
                        "once"
                    );
                }
            }
            assert_eq!(thoughts.checked(None, quirks), (ThinkingParam::AsConfigured, None));
        }
    }

    #[test]
    fn levels_have_names_and_increasing_budgets() {
        let none = BTreeMap::new();
        let own = [("xhigh".to_owned(), "max".to_owned())].into();
        let all = Thinking::ALL.iter().copied();
        let names: Vec<String> = all.clone().map(|level| effort(level, &none).to_owned()).collect();
        assert_eq!(names, ["low", "low", "low", "medium", "high", "high"]);
        assert_eq!(effort(Thinking::ExtraHigh, &own), "max");
        let usual = BTreeMap::new();
        let budgets: Vec<u64> = all.clone().map(|level| budget(level, 100_000, &usual)).collect();
        assert_eq!(budgets, [0, 1024, 4096, 10_240, 16_384, 32_768]);
        assert_eq!(budget(Thinking::ExtraHigh, 32_000, &usual), 24_000);
        assert_eq!(budget(Thinking::High, 0, &usual), 0);
        let own: BTreeMap<String, u64> =
            [("low".to_owned(), 6000), ("high".to_owned(), 90_000)].into();
        let of_own = |level| budget(level, 32_000, &own);
        assert_eq!(
            [Thinking::Low, Thinking::Medium, Thinking::High].map(of_own),
            [6000, 10_240, 24_000]
        );
        for level in all {
            assert_eq!(Thinking::named(level.name()), Some(level));
        }
    }
}
