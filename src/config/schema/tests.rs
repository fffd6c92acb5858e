//! Each key is parsed: a table with a value for each, and a search for the code that reads it. That
//! it acts in the running program is proved by `tests/it/every_setting.rs`.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use serde_json::{Value, json};

use super::KEYS;
use crate::tests::ConfigFolders;
use crate::{Loaded, schema};

/// A value for each key, other than its default and than that of [`base`]. `p` stands for `*`. A
/// row for a new key also needs code outside this crate that reads the setting.
#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "one line for each key")]
fn rows() -> Vec<(&'static str, Value)> {
    vec![
        ("agentMode", json!("multi-agent")),
        ("agents", json!({ "a": { "description": "d" } })),
        ("budget.maxCostMicroUsd", json!(5)),
        ("budget.maxTokens", json!(5)),
        ("checkpoints.enabled", json!(false)),
        ("checkpoints.keepDays", json!(9)),
        ("checkpoints.maxFileBytes", json!(2048)),
        ("checkpoints.maxStoreBytes", json!(2_000_000)),
        ("context.main.compactAtRatio", json!(0.5)),
        ("context.main.compression", json!("none")),
        ("context.main.keepRawDelegateResults", json!(5)),
        ("context.main.ledgerTargetTokens", json!(300)),
        ("context.main.maxContextTokens", json!(9000)),
        ("context.main.maxDelegateResultTokens", json!(300)),
        ("context.main.maxInlineToolResultTokens", json!(300)),
        ("context.main.minRecentTurns", json!(1)),
        ("context.main.recentTurns", json!(9)),
        ("context.main.summaryTargetTokens", json!(300)),
        ("context.subAgent.compactAtRatio", json!(0.5)),
        ("context.subAgent.compression", json!("none")),
        ("context.subAgent.maxContextTokens", json!(9000)),
        ("context.subAgent.maxDelegateContextTokens", json!(300)),
        ("context.subAgent.maxHandoffTokens", json!(300)),
        ("context.subAgent.maxResultTokensToMain", json!(300)),
        ("context.subAgent.memoryScope", json!("none")),
        ("context.subAgent.minRecentTurns", json!(2)),
        ("context.subAgent.recentTurns", json!(9)),
        ("context.subAgent.summaryTargetTokens", json!(300)),
        ("defaultAgent", json!("plan")),
        ("defaultProvider", json!("openai")),
        ("delegation.defaultInvocationDecision", json!("deny")),
        ("delegation.maxConcurrent", json!(9)),
        ("delegation.maxCostMicroUsd", json!(9)),
        ("delegation.maxDepth", json!(2)),
        ("delegation.maxDurationSeconds", json!(9)),
        ("delegation.maxTokens", json!(9)),
        ("delegation.maxTotal", json!(9)),
        ("delegation.subInvocationMaxTurns", json!(9)),
        ("hooks", json!([{ "event": "Stop", "command": "true" }])),
        ("maxTurns", json!(9)),
        ("mode", json!("multi")),
        ("model", json!("m")),
        ("models.*.cacheWritePrice", json!(9)),
        ("models.*.cachedInputPrice", json!(9)),
        ("models.*.contextWindow", json!(9000)),
        ("models.*.inputPrice", json!(9)),
        ("models.*.maxOutputTokens", json!(9)),
        ("models.*.outputPrice", json!(9)),
        ("models.*.reasoning", json!(true)),
        ("models.*.tools", json!(true)),
        ("models.*.vision", json!(true)),
        ("multiAgent.enabled", json!(true)),
        ("multimodal.detail", json!("low")),
        ("multimodal.maxImageBytes", json!(2048)),
        ("network.allowedDomains", json!(["example.org"])),
        ("network.blockedDomains", json!(["example.org"])),
        ("network.uploadLimitBytes", json!(4096)),
        ("notify.command", json!(["a"])),
        ("notify.method", json!("bell")),
        ("notify.title", json!(false)),
        ("notify.when", json!("always")),
        ("patience", json!("9s")),
        ("permissionMode", json!("locked")),
        ("permissions", json!([{ "tool": "bash", "decision": "deny" }])),
        ("persistentGrants.enabled", json!(false)),
        ("persistentGrants.scope", json!("session")),
        ("persistentGrants.ttlMs", json!(9)),
        ("providers.*.apiKey", json!("key")),
        ("providers.*.apiKeyEnv", json!("A_KEY")),
        ("providers.*.auth", json!("bearer")),
        ("providers.*.baseURL", json!("http://localhost:1/v1")),
        ("providers.*.contextWindow", json!(9000)),
        ("providers.*.fallback", json!(["openai"])),
        ("providers.*.headers", json!({ "X-A": "b" })),
        ("providers.*.maxTokens", json!(9)),
        ("providers.*.model", json!("m")),
        ("providers.*.patience", json!("9s")),
        ("providers.*.quirks", json!({ "noVision": true })),
        ("providers.*.temperature", json!(0.5)),
        ("providers.*.timeouts.connect", json!("9s")),
        ("providers.*.timeouts.firstByte", json!("9s")),
        ("providers.*.timeouts.idle", json!("9s")),
        ("providers.*.timeouts.silence", json!("9s")),
        ("providers.*.type", json!("anthropic")),
        ("retry.baseDelay", json!("9s")),
        ("retry.maxAttempts", json!(9)),
        ("retry.maxDelay", json!("9s")),
        ("roles.*.model", json!("m")),
        ("roles.*.profile", json!("groq")),
        ("roles.*.thinking", json!("high")),
        ("sandbox.mode", json!("read-only")),
        ("sandbox.network", json!("deny")),
        ("sandbox.readSecrets", json!(["/a"])),
        ("sandbox.required", json!(true)),
        ("sandbox.writableRoots", json!(["/a"])),
        ("skills.disabled", json!(["a"])),
        ("skills.enabled", json!(false)),
        ("skills.folders", json!(["/a"])),
        ("streaming.enabled", json!(false)),
        ("thinking", json!("high")),
        ("timeout", json!("9s")),
        ("tools.bash.jobs", json!(9)),
        ("tools.bash.maxTimeout", json!("9h")),
        ("tools.bash.timeout", json!("9s")),
        ("tools.budgets.*.max", json!(9)),
        ("tools.budgets.*.onExceed", json!("steer")),
        ("tools.edit.fuzzy", json!(true)),
        ("tools.edit.requireRead", json!(true)),
        ("tools.maxParallel", json!(9)),
        ("tools.outputBudget", json!(2048)),
        ("tools.parallel", json!("all")),
        ("tools.read.dedup", json!(false)),
        ("ui.alternateScreen", json!(true)),
        ("ui.history", json!(false)),
        ("ui.keybindings", json!({ "send": "Ctrl+S" })),
        ("ui.queue.followUp", json!("all")),
        ("ui.queue.steering", json!("one")),
        ("ui.showThinking", json!(false)),
        ("ui.statusLine", json!(["status", "-s"])),
        ("ui.vim", json!(true)),
        ("ui.theme", json!("light")),
        ("version", json!(2)),
        ("workspace.roots", json!(["/a"])),
    ]
}

/// Settings in which the entry `p` exists in each group of named entries.
fn base() -> Value {
    json!({
        "models": { "p": { "inputPrice": 1 } },
        "providers": { "p": { "model": "m0" } },
        "roles": { "p": { "profile": "openai", "model": "m0", "thinking": "low" } },
        "tools": { "budgets": { "p": { "max": 1 } } },
    })
}

/// Sets `value` at `path` in nested objects.
fn set(object: &mut Value, path: &str, value: Value) {
    match path.split_once('.') {
        Some((first, rest)) => set(&mut object[first], rest, value),
        None => object[path] = value,
    }
}

fn loaded(config: &Value) -> Loaded {
    let place = ConfigFolders::new().user(config.to_string());
    place.load().unwrap_or_else(|failures| panic!("{config}: {failures:?}"))
}

/// Settings and notices as text, without the temporary folder and without positions in the file,
/// which any change moves.
fn effect(config: &Value) -> String {
    let place = ConfigFolders::new().user(config.to_string());
    let loaded = place.load().unwrap_or_else(|failures| panic!("{config}: {failures:?}"));
    let text = place.tidy(&format!("{:?} {:?}", loaded.settings, loaded.notices));
    let mut parts = text.split("config.json:");
    let first = parts.next().unwrap_or_default().to_owned();
    let is_position = |c: char| c.is_ascii_digit() || c == ':';
    parts.fold(first, |text, part| text + "config.json" + part.trim_start_matches(is_position))
}

#[test]
fn changing_a_key_changes_the_effective_settings() {
    let rows = rows();
    let named: BTreeSet<&str> = rows.iter().map(|(path, _)| *path).collect();
    let known: BTreeSet<&str> = KEYS.iter().map(|key| key.path).collect();
    assert_eq!(named, known, "each key has one row");
    let before = effect(&base());
    for (path, value) in rows {
        let mut config = base();
        set(&mut config, &path.replace('*', "p"), value);
        assert_ne!(effect(&config), before, "{path} changes nothing");
    }
}

#[test]
fn values_of_a_choice_differ_in_effect() {
    // Names of one mode: an old and a new one, short and long.
    let synonyms = ["agentMode", "mode"];
    for key in KEYS {
        let schema::ValueKind::Choice(names) = key.kind else { continue };
        let effects: BTreeSet<String> = names
            .iter()
            .map(|name| {
                let mut config = base();
                set(&mut config, &key.path.replace('*', "p"), json!(name));
                effect(&config)
            })
            .collect();
        let expected = if synonyms.contains(&key.path) { 2 } else { names.len() };
        assert_eq!(effects.len(), expected, "{}", key.path);
    }
}

#[test]
fn default_of_a_key_is_what_counts_without_it() {
    let before = loaded(&json!({}));
    for key in KEYS.iter().filter(|key| !key.path.contains('*')) {
        let Some(default) = key.default_value() else { continue };
        let mut config = json!({});
        set(&mut config, key.path, default.clone());
        let (mut with, without) = (loaded(&config).settings, &before.settings);
        // The place is for messages alone.
        with.default_agent_from = None;
        assert_eq!(format!("{with:?}"), format!("{without:?}"), "{} = {default}", key.path);
    }
}

/// Text of all Rust files below `folder`, except this crate and tests.
fn sources(folder: &Path, text: &mut String) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "config" && name != "tests" {
            sources(&path, text)?;
        } else if path.extension().is_some_and(|end| end == "rs") && name != "tests.rs" {
            let file = fs::read_to_string(&path)?;
            text.push_str(file.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default());
        }
    }
    Ok(())
}

#[test]
fn code_outside_this_crate_reads_every_setting() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    sources(&root.join(".."), &mut code).unwrap();
    let words: BTreeSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let settings = fs::read_to_string(root.join("settings.rs")).unwrap();
    let fields = settings.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("    pub ")?.split_once(':')?;
        (!name.contains(char::is_whitespace)).then_some(name)
    });
    let fields: Vec<&str> = fields.collect();
    assert!(fields.len() > 80, "{fields:?}");
    for field in fields {
        assert!(words.contains(field), "no code outside src/config reads the setting `{field}`");
    }
}
