//! Conflicts, later versions, saved preferences, variables, and settings of tools and models.

use posse_base::failure::ErrorCode;
use std::fs;

use serde_json::json;

use crate::tests::ConfigFolders;
use crate::{
    Dirs, Environment, Outside, SettingOrigin, Settings, Sources, load_with, preferences, show,
};

#[test]
fn contradictory_values_are_reported() {
    let place = ConfigFolders::new().user(
        r#"{
  "context": { "main": { "recentTurns": 2, "minRecentTurns": 6, "maxContextTokens": 4000, "summaryTargetTokens": 3000 } },
  "providers": {
    "a": { "maxTokens": 9000, "contextWindow": 8000, "auth": "none", "apiKeyEnv": "K" },
    "b": { "timeouts": { "connect": "10s", "idle": "90s" } }
  },
  "models": { "v/m.1": { "contextWindow": 1000, "maxOutputTokens": 2000 } }
}"#,
    );
    insta::assert_snapshot!(place.failures());
    let fine = ConfigFolders::new()
        .user(r#"{ "tools": { "bash": { "timeout": "10s", "maxTimeout": "10s" } } }"#);
    assert!(fine.load().is_ok());
}

#[test]
fn layer_conflict_names_both_places() {
    let place = ConfigFolders::new()
        .user(r#"{ "context": { "main": { "summaryTargetTokens": 3000 } } }"#)
        .variable("POSSE_MAIN_MAX_CONTEXT_TOKENS", "2000");
    insta::assert_snapshot!(place.failures());
}

#[test]
fn automatic_context_conflicts_with_no_number() {
    let place = ConfigFolders::new().user(
        r#"{ "context": { "main": { "maxContextTokens": "auto", "summaryTargetTokens": 3000 } } }"#,
    );
    assert!(place.load().is_ok());
}

#[test]
fn repository_conflict_does_not_prevent_start() {
    let place = ConfigFolders::new()
        .user(r#"{ "context": { "main": { "recentTurns": 4, "minRecentTurns": 2 } } }"#)
        .project(r#"{ "context": { "main": { "minRecentTurns": 900 } } }"#);
    let loaded = place.load().unwrap();
    let notices = place.notices(&loaded);
    assert!(notices.starts_with("warning[TRU001]: \"context.main.minRecentTurns\""), "{notices}");
    assert_eq!(loaded.layers.get("context.main.minRecentTurns").unwrap().value, json!(2));
    let failures = place.load_with(|sources| sources.trust_project = true).unwrap_err();
    assert_eq!(failures[0].code, ErrorCode::ConfigContradiction);
    // A value of the user replaces it.
    let over = place.variable("POSSE_MAIN_MAX_CONTEXT_TOKENS", "300");
    let over = over.user(r#"{ "context": { "main": { "summaryTargetTokens": 400 } } }"#);
    assert_eq!(over.load().unwrap_err()[0].code, ErrorCode::ConfigContradiction);
}

#[test]
fn unenforced_sandbox_setting_is_reported() {
    let place = ConfigFolders::new().user(r#"{ "sandbox": { "mode": "off", "network": "deny" } }"#);
    let loaded = place.load().unwrap();
    insta::assert_snapshot!(place.notices(&loaded));
}

#[test]
fn newer_file_version_is_read_as_far_as_possible() {
    let text =
        r#"{ "version": 2, "maxTurns": 3, "telepathy": true, "sandbox": { "mode": "astral" } }"#;
    let place = ConfigFolders::new().user(text);
    let loaded = place.load().unwrap();
    insta::assert_snapshot!(place.notices(&loaded));
    assert_eq!(
        (loaded.settings.turns_max, &*loaded.settings.sandbox.mode),
        (Some(3), "workspace-write")
    );
    assert!(ConfigFolders::new().user(r#"{ "version": 1, "telepathy": true }"#).load().is_err());
    assert!(ConfigFolders::new().user(r#"{ "version": "0.9" }"#).load().is_err());
    let project = ConfigFolders::new().project(text).load().unwrap();
    assert_eq!(project.notices[0].code, ErrorCode::ConfigLaterVersion);
}

#[test]
fn pattern_with_too_many_expansions_is_refused() {
    let bomb = "{a,b,c,d,e,f,g,h}".repeat(40);
    for text in [
        json!({ "permissions": [{ "tool": "read_file", "decision": "deny", "pathGlob": bomb }] }),
        json!({ "sandbox": { "readSecrets": [format!("/{bomb}")] } }),
    ] {
        let failures = ConfigFolders::new().user(text.to_string()).load().unwrap_err();
        assert_eq!((failures[0].code.as_str(), failures.len()), ("CFG028", 1));
        assert!(failures[0].to_string().len() < 600);
    }
    let fine = json!({ "sandbox": { "readSecrets": ["/{a,b}/{c,d}/}{"] } });
    assert!(ConfigFolders::new().user(fine.to_string()).load().is_ok());
}

#[test]
fn last_choice_ranks_between_files_and_environment() {
    let place = ConfigFolders::new()
        .user(r#"{ "defaultProvider": "openai", "model": "from-file" }"#)
        .file("home/state/preferences.json", r#"{ "provider": "ollama", "model": "saved" }"#);
    let seen = |place: &ConfigFolders, flags: &[(&'static str, &str)]| {
        let loaded = place
            .load_with(|sources| {
                let flag = |(key, value): &(&'static str, &str)| (*key, json!(value), "--flag");
                sources.flags = flags.iter().map(flag).collect();
            })
            .unwrap();
        let settings = &loaded.settings;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (text(&settings.default_provider), text(&settings.model))
    };
    let pair = |provider: &str, model: &str| (provider.to_owned(), model.to_owned());
    assert_eq!(seen(&place, &[]), pair("ollama", "saved"));
    assert_eq!(seen(&place, &[("model", "other")]), pair("ollama", "other"));
    // The saved model was chosen for the saved provider.
    assert_eq!(seen(&place, &[("defaultProvider", "openai")]), pair("openai", "from-file"));
    let both = [("defaultProvider", "groq"), ("model", "mine")];
    assert_eq!(seen(&place, &both), pair("groq", "mine"));
    let loaded = place.load().unwrap();
    let model = loaded.layers.get("model").unwrap();
    assert_eq!(
        (&model.origin, model.origin.to_string()),
        (&SettingOrigin::Preferences, "saved preferences".into())
    );

    let place = place.file("home/state/preferences.json", r#"{ "provider": "ollama" }"#);
    assert_eq!(seen(&place, &[]), pair("ollama", ""));
    let place = place.variable("POSSE_PROVIDER", "groq");
    assert_eq!(seen(&place, &[]), pair("groq", "from-file"));
}

#[test]
fn undefined_saved_provider_is_ignored() {
    let seen = |place: &ConfigFolders, provider: Option<&str>| {
        let environment: Environment =
            [("POSSE_HOME", place.dir.path().join("home"))].into_iter().collect();
        let dirs = Dirs::from_environment(&environment).unwrap();
        let flags = provider.map(|name| ("defaultProvider", json!(name), "--provider"));
        let sources = Sources { flags: flags.into_iter().collect(), ..Sources::default() };
        let is_preset = |name: &str| name == "openai";
        let outside = Outside { rules: &|_| Vec::new(), is_preset: &is_preset };
        let loaded = load_with(&environment, &dirs, &sources, outside).unwrap();
        let Settings { default_provider, model, .. } = loaded.settings;
        let said = loaded
            .notices
            .iter()
            .filter(|notice| notice.code == ErrorCode::ProviderUnknown)
            .count();
        (default_provider.unwrap_or_default(), model.unwrap_or_default(), said)
    };
    let pair = |provider: &str, model: &str, said| (provider.to_owned(), model.to_owned(), said);
    let saved = |provider: &str| json!({ "provider": provider, "model": "saved" }).to_string();
    let own = r#"{ "defaultProvider": "mine", "model": "m",
                   "providers": { "mine": { "baseURL": "http://localhost:1/v1" } } }"#;
    let table = [
        ("{}", "two", None, pair("", "", 1)),
        (own, "two", None, pair("mine", "m", 1)),
        (own, "mine", None, pair("mine", "saved", 0)),
        (own, "openai", None, pair("openai", "saved", 0)),
        // A flag's value is checked elsewhere, and the saved one does not apply.
        (own, "two", Some("three"), pair("three", "m", 0)),
    ];
    for (file, provider, flag, expected) in table {
        let place =
            ConfigFolders::new().user(file).file("home/state/preferences.json", saved(provider));
        assert_eq!(seen(&place, flag), expected, "{file} {provider} {flag:?}");
    }
    let place = ConfigFolders::new().file("home/state/preferences.json", saved("two"));
    let environment: Environment =
        [("POSSE_HOME", place.dir.path().join("home"))].into_iter().collect();
    let dirs = Dirs::from_environment(&environment).unwrap();
    let outside = Outside { rules: &|_| Vec::new(), is_preset: &|_| false };
    let loaded = load_with(&environment, &dirs, &Sources::default(), outside).unwrap();
    let text = place.notices(&loaded);
    assert!(text.contains("\"two\"") && text.contains("posse config forget"), "{text}");
    assert!(text.contains("preferences.json"), "{text}");
}

#[test]
fn damaged_preferences_are_ignored() {
    let place = ConfigFolders::new().file("home/state/preferences.json", "{");
    let loaded = place.load().unwrap();
    assert_eq!((loaded.notices.len(), loaded.notices[0].code.as_str()), (1, "CFG001"));
    assert_eq!(loaded.settings.default_provider, None);
}

#[test]
fn model_facts_are_read_and_dotted_names_quoted() {
    let place = ConfigFolders::new().user(
        r#"{ "models": { "gpt-5.1": { "inputPrice": 5 }, "a/b-1.2": { "vision": true, "inputPrice": 0 } } }"#,
    );
    let loaded = place.load().unwrap();
    assert_eq!(loaded.settings.models["a/b-1.2"]["vision"], json!(true));
    assert_eq!(loaded.settings.models["gpt-5.1"].len(), 1);
    let shown: serde_json::Value =
        serde_json::from_str(&show(&loaded.layers, None, false, true)).unwrap();
    assert_eq!(shown["models"]["gpt-5.1"]["inputPrice"], 5);
    let failures = ConfigFolders::new()
        .user(r#"{ "models": { "a b": {}, "c": { "inputPirce": 1 } } }"#)
        .failures();
    insta::assert_snapshot!(failures);
}

#[test]
fn tool_settings_are_read() {
    let place = ConfigFolders::new()
        .user(
            r#"{ "tools": { "edit": { "fuzzy": true, "requireRead": true }, "read": { "dedup": false },
                 "budgets": { "bash": { "max": 3, "onExceed": "steer" }, "grep": { "max": 0 } } } }"#,
        )
        .variable("POSSE_TOOL_OUTPUT_BUDGET", "65536");
    let tools = place.load().unwrap().settings.tools;
    assert_eq!((tools.fuzzy_edit, tools.require_read, tools.dedup_reads), (true, true, false));
    assert_eq!(tools.output_budget, Some(65_536));
    assert_eq!((tools.budgets["bash"].max, tools.budgets["bash"].steer), (Some(3), true));
    assert_eq!((tools.budgets["grep"].max, tools.budgets["grep"].steer), (Some(0), false));
}

#[test]
fn mode_names_resolve_in_order() {
    let table = [
        (r#"{ "mode": "multi" }"#, true),
        (r#"{ "multiAgent": { "enabled": true } }"#, true),
        (r#"{ "mode": "single", "multiAgent": { "enabled": true } }"#, false),
        (r#"{ "agentMode": "single-agent", "mode": "multi" }"#, false),
        ("{}", false),
    ];
    for (text, multi) in table {
        let loaded = ConfigFolders::new().user(text).load().unwrap();
        assert_eq!(loaded.settings.multi_agent, multi, "{text}");
    }
}

#[test]
fn every_documented_limit_has_a_variable() {
    let names = [
        "POSSE_MAIN_MAX_CONTEXT_TOKENS",
        "POSSE_MAIN_SUMMARY_TARGET_TOKENS",
        "POSSE_SUB_MAX_CONTEXT_TOKENS",
        "POSSE_SUB_SUMMARY_TARGET_TOKENS",
        "POSSE_SUB_RECENT_TURNS",
        "POSSE_SUB_MAX_HANDOFF_TOKENS",
        "POSSE_SUB_MAX_DELEGATE_CONTEXT_TOKENS",
        "POSSE_SUB_MAX_RESULT_TOKENS_TO_MAIN",
    ];
    let mut place = ConfigFolders::new()
        .variable("POSSE_MAIN_COMPACT_AT_RATIO", "0.25")
        .variable("POSSE_SUB_COMPACT_AT_RATIO", " 0.75\n");
    for name in names {
        place = place.variable(name, "300");
    }
    let loaded = place.load().unwrap();
    let set = |leaf: &super::Leaf| matches!(leaf.origin, SettingOrigin::Variable(_));
    assert_eq!(loaded.layers.iter().filter(|(_, leaf)| set(leaf)).count(), names.len() + 2);
    let ratio = loaded.layers.get("context.main.compactAtRatio").unwrap();
    assert_eq!(ratio.value, json!(0.25));
    // About the white space.
    assert_eq!(loaded.notices.len(), 1, "{:?}", loaded.notices);
    let loaded = ConfigFolders::new().variable("POSSE_CONFIG", "/x").load().unwrap();
    assert!(loaded.notices[0].text.contains("is unknown"));
}

#[test]
fn file_of_another_owner_is_reported() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = ConfigFolders::new().user("{}");
    let path = place.dir.path().join("home/config/config.json");
    std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
    let loaded = place.load().unwrap();
    assert_eq!((loaded.notices.len(), loaded.notices[0].code.as_str()), (1, "CFG010"));
    assert!(loaded.notices[0].text.contains("another user"));
}

#[test]
fn loading_writes_nothing() {
    let place = ConfigFolders::new().user("{ \"maxTurns\": 3 }");
    place.load().unwrap();
    let home = place.dir.path().join("home");
    assert!(!home.join("state").exists());
    let environment: Environment = [("POSSE_HOME", home.as_os_str())].into_iter().collect();
    let dirs = Dirs::from_environment(&environment).unwrap();
    assert_eq!(preferences::load(&dirs).1, None);
    assert_eq!(fs::read_dir(&home).unwrap().count(), 1);
}
