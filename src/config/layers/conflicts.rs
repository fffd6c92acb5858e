//! Checks for settings that are valid each by itself but contradict each other.

use std::borrow::Cow;

use posse_base::failure::{ErrorCode, Exit, Failure};
use serde_json::Value;

use super::{LayerReader, Leaf, SettingOrigin, TrustClass, duration};
/// Pairs of keys. The value of the first key must not exceed the value of the second.
const AT_MOST: [(&str, &str); 8] = [
    ("context.main.minRecentTurns", "context.main.recentTurns"),
    ("context.main.summaryTargetTokens", "context.main.maxContextTokens"),
    ("context.subAgent.minRecentTurns", "context.subAgent.recentTurns"),
    ("context.subAgent.summaryTargetTokens", "context.subAgent.maxContextTokens"),
    ("models.*.maxOutputTokens", "models.*.contextWindow"),
    ("providers.*.maxTokens", "providers.*.contextWindow"),
    ("retry.baseDelay", "retry.maxDelay"),
    ("tools.bash.timeout", "tools.bash.maxTimeout"),
];

impl LayerReader {
    pub(super) fn find_conflicts(&mut self) {
        for (less, more) in AT_MOST {
            for (less, more) in self.instances(less, more) {
                self.at_most(&less, &more);
            }
        }
        self.keyless();
        self.check_enforceable();
    }

    /// Expands a pair of keys with `*`: one pair for each name with which the first key is set. A
    /// pair without `*` is returned unchanged.
    fn instances(&self, less: &'static str, more: &str) -> Vec<(Cow<'static, str>, String)> {
        let Some((group, field)) = less.split_once(".*.") else {
            return vec![(less.into(), more.to_owned())];
        };
        let other = more.split_once(".*.").map_or(more, |(_, field)| field);
        let (beginning, end) = (format!("{group}."), format!(".{field}"));
        let names = self.layers.below(&beginning).filter_map(|(rest, _)| rest.strip_suffix(&end));
        names
            .map(|name| (format!("{group}.{name}{end}").into(), format!("{group}.{name}.{other}")))
            .collect()
    }

    fn at_most(&mut self, less: &str, more: &str) {
        // A default gives way to the value that is set.
        let said = |key| self.layers.get(key).filter(|leaf| leaf.origin != SettingOrigin::BuiltIn);
        let (Some(small), Some(large)) = (said(less), said(more)) else { return };
        // A word such as `auto` cannot be compared: its value depends on the model.
        let sizes = size(&small.value).zip(size(&large.value));
        if sizes.is_none_or(|(small, large)| small <= large) {
            return;
        }
        let what = format!(
            "{less} = {} conflicts with {more} = {}: the first must not exceed the second",
            small.value, large.value
        );
        self.refuse(&[less, more], what, "lower the first or raise the second");
    }

    /// Reports providers that have `apiKey` or `apiKeyEnv` although their `auth` is `none`.
    fn keyless(&mut self) {
        let sent_none: Vec<String> = self
            .layers
            .below("providers.")
            .filter(|(_, leaf)| leaf.value == "none")
            .filter_map(|(rest, _)| rest.strip_suffix(".auth").map(str::to_owned))
            .collect();
        for name in sent_none {
            let auth = format!("providers.{name}.auth");
            for key in ["apiKey", "apiKeyEnv"].map(|key| format!("providers.{name}.{key}")) {
                if self.layers.get(&key).is_some() {
                    let what = format!("{auth} = \"none\" conflicts with {key}: no key is sent");
                    self.refuse(&[&auth, &key], what, "remove one of them");
                }
            }
        }
    }

    /// Warns if the network is denied and the sandbox is off: the denial cannot be enforced.
    fn check_enforceable(&mut self) {
        let asked = |key: &str, value: &str| {
            self.layers
                .get(key)
                .is_some_and(|leaf| leaf.value == value && leaf.origin != SettingOrigin::BuiltIn)
        };
        if asked("sandbox.mode", "off") && asked("sandbox.network", "deny") {
            let text = "sandbox.network = \"deny\" conflicts with sandbox.mode = \"off\": \
                        without a sandbox, commands can use the network";
            self.notice(ErrorCode::ConfigContradiction, text);
        }
    }

    /// Reports a conflict between the values of `keys`. If an untrusted repository supplies some of
    /// the values, undoes those with a notice; otherwise adds an error with the places of all.
    fn refuse(&mut self, keys: &[&str], what: String, fix: &str) {
        let from_stranger = |leaf: &Leaf| {
            matches!(leaf.origin, SettingOrigin::Project { trust: TrustClass::Harmless, .. })
        };
        let foreign: Vec<&str> = keys
            .iter()
            .copied()
            .filter(|key| self.displaced.contains_key(*key))
            .filter(|key| self.layers.get(key).is_some_and(from_stranger))
            .collect();
        if !foreign.is_empty() {
            for key in &foreign {
                match self.displaced.remove(*key).flatten() {
                    Some(before) => self.layers.leaves.insert((*key).to_owned(), before),
                    None => self.layers.leaves.remove(*key),
                };
            }
            let text = format!("{what}; the project's value was ignored");
            return self.notice(ErrorCode::ConfigContradiction, text);
        }
        let leaves = keys.iter().filter_map(|key| self.layers.get(key));
        let origins: Vec<&SettingOrigin> = leaves.map(|leaf| &leaf.origin).collect();
        let usage = origins.iter().any(|origin| matches!(origin, SettingOrigin::Flag(_)));
        let exit = if usage { Exit::Usage } else { Exit::Configuration };
        let places: Vec<String> = origins.iter().map(|origin| origin.place()).collect();
        let failure = Failure::new(ErrorCode::ConfigContradiction, exit, what);
        self.failures.push(failure.at(places.join(" and ")).fix(fix));
    }
}

/// The value as a comparable number; a time is converted to milliseconds. `None` for other values.
fn size(value: &Value) -> Option<u128> {
    value.as_u64().map(u128::from).or_else(|| Some(duration(value.as_str()?)?.as_millis()))
}
