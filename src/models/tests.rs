//! The snapshot, what comes over it, and what things cost.

use posse_actors::conversation::Usage;

use super::*;

fn catalog(own: &Value) -> Catalog {
    let entry = |(name, fields): (&String, &Value)| {
        (name.clone(), fields.as_object().cloned().unwrap_or_default())
    };
    Catalog::new(&own.as_object().unwrap().iter().map(entry).collect())
}

fn usage(input: Option<u64>, cached: Option<u64>, output: Option<u64>) -> Usage {
    Usage {
        input_tokens: input,
        output_tokens: output,
        cached_input_tokens: cached,
        ..Usage::default()
    }
}

#[test]
fn model_snapshot_is_complete_and_dated() {
    let snapshot: Snapshot = serde_json::from_str(SNAPSHOT).unwrap();
    assert_eq!(snapshot.dated.len(), "2025-11".len());
    assert!(snapshot.note.contains("out of date"));
    let raw: Value = serde_json::from_str(SNAPSHOT).unwrap();
    let fields = [
        "provider",
        "model",
        "contextWindow",
        "maxOutputTokens",
        "inputPrice",
        "cachedInputPrice",
        "cacheWritePrice",
        "outputPrice",
        "vision",
        "tools",
        "reasoning",
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (entry, model) in raw["models"].as_array().unwrap().iter().zip(&snapshot.models) {
        // A misspelt field would be unknown for ever.
        let entry = entry.as_object().unwrap();
        assert!(entry.keys().all(|key| fields.contains(&key.as_str())), "{entry:?}");
        assert!(seen.insert((model.provider.clone(), model.model.clone())), "{entry:?}");
        let facts = &model.facts;
        assert!(facts.context_window.is_some() && facts.tools.is_some(), "{entry:?}");
        assert!(facts.max_output_tokens <= facts.context_window, "{entry:?}");
        assert_eq!(facts.input_price.is_some(), facts.output_price.is_some(), "{entry:?}");
        assert!(facts.cached_input_price <= facts.input_price, "{entry:?}");
        // A thousand dollars for a million tokens would be a slip of the unit.
        assert!(facts.output_price.is_none_or(|price| price < 1_000_000_000), "{entry:?}");
    }
    assert!(seen.len() >= 30, "{}", seen.len());
}

#[test]
fn finds_a_model_by_provider_and_name_without_date() {
    let found = find("openai", "gpt-5.1").unwrap();
    assert_eq!((found.facts.input_price, found.configured), (Some(1_250_000), false));
    assert_eq!(find("openai", "gpt-5.1-2025-11-13").unwrap().facts, found.facts);
    for (provider, model) in [
        ("ollama", "gpt-5.1"),
        ("openai", "gpt-5.1-2025-1x-13"),
        ("openai", "-2025-11-13"),
        ("", ""),
    ] {
        assert_eq!(find(provider, model), None, "{provider} {model}");
    }
    assert_eq!(find("openai", "gpt-5.1ü2025-11-13"), None);
}

#[test]
fn configuration_overrides_model_facts_per_field() {
    let catalog = catalog(&json!({
        "gpt-5.1": { "inputPrice": 7, "vision": false },
        "openai/gpt-5.1": { "inputPrice": 8 },
        "mine.v2": { "contextWindow": 4096 },
    }));
    let found = catalog.find("openai", "gpt-5.1").unwrap();
    assert_eq!(
        (found.facts.input_price, found.facts.vision, found.facts.output_price, found.configured),
        (Some(8), Some(false), Some(10_000_000), true)
    );
    // A deployment of another name at another vendor.
    assert_eq!(catalog.find("azure", "gpt-5.1").unwrap().facts.input_price, Some(7));
    assert_eq!(catalog.find("any", "mine.v2").unwrap().facts.context_window, Some(4096));
    let all = catalog.all();
    assert_eq!(all.iter().filter(|model| model.provider.is_none()).count(), 1);
    assert_eq!(all.last().unwrap().model, "mine.v2");
}

#[test]
fn prices_name_their_table() {
    let built_in = rates(&find("openai", "gpt-5.1").unwrap()).unwrap();
    assert_eq!(built_in.version, dated());
    assert_eq!(built_in.cost(&usage(Some(1_000_000), None, Some(1_000_000))), Some(11_250_000_000));
    assert_eq!(built_in.cost(&usage(Some(10), Some(u64::MAX), Some(0))), Some(1250));
    let kept = Usage {
        cache_write_tokens: Some(400_000),
        ..usage(Some(1_000_000), Some(500_000), Some(0))
    };
    // 100,000 at $2, 500,000 at $0.10, 400,000 at $2.50.
    let keeps = rates(&find("anthropic", "claude-sonnet-5-5").unwrap()).unwrap();
    assert_eq!(keeps.cost(&kept), Some(1_250_000_000));
    assert_eq!(rates(&find("groq", "openai/gpt-oss-120b").unwrap()), None);
    let free = rates(&find("ollama", "qwen3-coder:30b").unwrap()).unwrap();
    assert_eq!(free.cost(&usage(Some(1), None, Some(1))), Some(0));
    let own = catalog(&json!({ "gpt-5.1": { "inputPrice": 7 }, "gpt-5": { "vision": false } }));
    let dear = rates(&own.find("openai", "gpt-5.1").unwrap()).unwrap();
    assert_eq!((dear.input, dear.output), (7, 10_000_000));
    assert!(dear.version.starts_with("own-") && dear.version.len() == 12, "{}", dear.version);
    let other = catalog(&json!({ "gpt-5.1": { "inputPrice": 8 } }));
    assert_ne!(rates(&other.find("openai", "gpt-5.1").unwrap()).unwrap().version, dear.version);
    assert_eq!(rates(&own.find("openai", "gpt-5").unwrap()).unwrap().version, dated());
}

#[test]
fn lists_models_as_text_and_json() {
    let own = json!({ "m\u{1b}[2J": { "inputPrice": 1, "outputPrice": 1_500_000 } });
    let mut models = vec![find("openai", "gpt-5.1").unwrap()];
    models.extend(catalog(&own).all().pop());
    insta::assert_snapshot!(list(&models, false));
    let parsed: Value = serde_json::from_str(&list(&models, true)).unwrap();
    assert_eq!(parsed["models"][0]["inputPrice"], 1_250_000);
    assert_eq!(parsed["models"][1]["provider"], Value::Null);
    assert_eq!(parsed["dated"], dated());
}
