//! Keys that earlier versions accepted without effect. They are errors or
//! warnings like unknown ones, with a text of their own.

/// Paths of the keys, as in [`KEYS`](super::KEYS).
const KEYS: &[&str] = &[
    "context.main.reserveForImagesTokens",
    "context.main.retrievalMaxTokens",
    "context.subAgent.maxInputTokens",
    "daemon",
    "mcpServers",
    "memory",
    "providers.*.abortPolicy",
    "providers.*.allowApiKeyFallback",
    "providers.*.allowSubagents",
    "providers.*.attachmentFallback",
    "providers.*.authPreflight",
    "providers.*.authStore",
    "providers.*.cliPath",
    "providers.*.cwdMode",
    "providers.*.defaultDecision",
    "providers.*.historyPolicy",
    "providers.*.onInvalidResume",
    "providers.*.permissionMode",
    "providers.*.promptCacheKey",
    "providers.*.responses",
    "providers.*.runtime",
    "providers.*.sanitizeApiKeyEnv",
    "providers.*.sessionLock",
    "providers.*.timeouts.total",
    "providers.*.usageLedgerScope",
    "providers.*.useBareMode",
    "server",
    "session.retentionDays",
    "session.rootLifetime",
    "tools.todo",
    "tools.web",
    "trust.project",
    "trust.userTools",
];

/// True if `path` is, or is below or above, a key that earlier versions accepted, and no key of this
/// version is below it.
pub(crate) fn was_key(path: &[&str]) -> bool {
    let matches = |key: &&str| {
        let mut pairs = key.split('.').zip(path);
        pairs.all(|(part, name)| part == "*" || part == *name)
    };
    super::children(path).next().is_none() && KEYS.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::find;

    #[test]
    fn no_removed_key_is_in_the_schema() {
        for key in KEYS {
            let path: Vec<&str> = key.split('.').collect();
            assert!(find(&path).is_none() && was_key(&path), "{key}");
        }
        for path in
            [&["session"][..], &["trust"], &["providers", "mine", "runtime"], &["memory", "x"]]
        {
            assert!(was_key(path), "{path:?}");
        }
        for path in [&["maxTurns"][..], &["context"], &["providers"], &["tools"], &["modle"]] {
            assert!(!was_key(path), "{path:?}");
        }
    }
}
