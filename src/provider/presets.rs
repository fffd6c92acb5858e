//! Presets of well-known vendors, as data. A user can configure an equivalent provider without
//! code.
//!
//! Default models can be outdated: posse checks no model name, and a server that does not know the
//! model returns an error.

use crate::codex;
use crate::profile::{Protocol, Quirks};

/// Month in which the default models were chosen, as `YYYY-MM`.
pub const MODELS_DATED: &str = "2026-11";

/// Defaults for the profile of one vendor.
#[derive(Debug)]
pub struct Preset {
    /// Name of the preset, which is also the default name of a profile.
    pub name: &'static str,
    /// Protocol of the server.
    pub protocol: Protocol,
    /// Base URL of the vendor's API. `None`: it differs between users, who must configure it.
    pub base_url: Option<&'static str>,
    /// Name of the environment variable with the key. `None`: there is none. If no default provider
    /// is configured, posse selects the first preset whose variable is set. The variable must
    /// therefore belong to one model provider; general credentials such as `GITHUB_TOKEN` are not
    /// allowed here.
    pub key_variable: Option<&'static str>,
    /// Key that is sent if the user has none, for servers that accept any key. `None`: there is no
    /// such default.
    pub placeholder_key: Option<&'static str>,
    /// Default model, as of [`MODELS_DATED`]. `None`: the user must configure a model.
    pub model: Option<&'static str>,
    /// Returns the differences of the server from the protocol.
    pub quirks: fn() -> Quirks,
}

/// Base of all presets: Chat Completions, and no other data.
const CHAT: Preset = Preset {
    name: "",
    protocol: Protocol::ChatCompletions,
    base_url: None,
    key_variable: None,
    placeholder_key: None,
    model: None,
    quirks: Quirks::default,
};

const PRESETS: &[Preset] = &[
    Preset {
        name: "openai",
        base_url: Some("https://api.openai.com/v1"),
        key_variable: Some("OPENAI_API_KEY"),
        model: Some("gpt-5.1"),
        // Its reasoning models reject any temperature but the default.
        quirks: || Quirks {
            omit_temperature: true,
            reasoning_effort: true,
            max_tokens_field: Some("max_completion_tokens".to_owned()),
            ..Quirks::default()
        },
        ..CHAT
    },
    Preset {
        name: "anthropic",
        protocol: Protocol::Messages,
        base_url: Some("https://api.anthropic.com/v1"),
        key_variable: Some("ANTHROPIC_API_KEY"),
        model: Some("claude-sonnet-5-5"),
        // Its models reject any temperature but the default.
        quirks: || Quirks { omit_temperature: true, ..Quirks::default() },
        ..CHAT
    },
    Preset {
        name: "gemini",
        base_url: Some("https://generativelanguage.googleapis.com/v1beta/openai/"),
        key_variable: Some("GOOGLE_API_KEY"),
        model: Some("gemini-2.5-pro"),
        quirks: || Quirks { reasoning_effort: true, ..Quirks::default() },
        ..CHAT
    },
    Preset {
        name: "ollama",
        base_url: Some("http://localhost:11434/v1"),
        placeholder_key: Some("ollama"),
        model: Some("qwen3-coder:30b"),
        quirks: || Quirks { omit_temperature: true, ..Quirks::default() },
        ..CHAT
    },
    Preset {
        name: "lmstudio",
        base_url: Some("http://localhost:1234/v1"),
        placeholder_key: Some("lm-studio"),
        model: Some("qwen/qwen3-coder-30b"),
        ..CHAT
    },
    Preset {
        name: "vllm",
        base_url: Some("http://localhost:8000/v1"),
        placeholder_key: Some("vllm"),
        model: Some("Qwen/Qwen3-Coder-30B-A3B-Instruct"),
        ..CHAT
    },
    Preset {
        name: "llamacpp",
        base_url: Some("http://localhost:8080/v1"),
        placeholder_key: Some("llamacpp"),
        // It serves the model that it was started with, under any name.
        model: Some("default"),
        ..CHAT
    },
    Preset {
        name: "openrouter",
        base_url: Some("https://openrouter.ai/api/v1"),
        key_variable: Some("OPENROUTER_API_KEY"),
        model: Some("anthropic/claude-sonnet-4.5"),
        // It passes the marks on to those of its servers that have a cache.
        quirks: || Quirks { return_reasoning: true, cache_breakpoints: true, ..Quirks::default() },
        ..CHAT
    },
    Preset {
        name: "together",
        base_url: Some("https://api.together.xyz/v1"),
        key_variable: Some("TOGETHER_API_KEY"),
        model: Some("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"),
        ..CHAT
    },
    Preset {
        name: "groq",
        base_url: Some("https://api.groq.com/openai/v1"),
        key_variable: Some("GROQ_API_KEY"),
        model: Some("openai/gpt-oss-120b"),
        quirks: || Quirks {
            reasoning_effort: true,
            max_tokens_field: Some("max_completion_tokens".to_owned()),
            max_images: Some(5),
            max_image_bytes: Some(4_000_000),
            ..Quirks::default()
        },
        ..CHAT
    },
    Preset {
        name: "azure",
        // The address has the name of the user's resource, and a model is a deployment.
        key_variable: Some("AZURE_OPENAI_API_KEY"),
        quirks: || Quirks {
            omit_temperature: true,
            reasoning_effort: true,
            max_tokens_field: Some("max_completion_tokens".to_owned()),
            ..Quirks::default()
        },
        ..CHAT
    },
    Preset {
        // The same server as `openai`, which has the key's variable first.
        name: "openai-responses",
        protocol: Protocol::Responses,
        base_url: Some("https://api.openai.com/v1"),
        key_variable: Some("OPENAI_API_KEY"),
        model: Some("gpt-5.1"),
        quirks: || Quirks { omit_temperature: true, ..Quirks::default() },
        ..CHAT
    },
    Preset {
        // Uses the login of the Codex program. It has no variable, so it is never chosen
        // automatically.
        name: "codex",
        protocol: Protocol::Codex,
        base_url: Some(codex::BASE_URL),
        model: Some("gpt-5.1-codex"),
        quirks: || Quirks {
            omit_temperature: true,
            omit_max_tokens: true,
            one_call_at_a_time: true,
            effort: Some("medium".to_owned()),
            reasoning_summary: Some("auto".to_owned()),
            ..Quirks::default()
        },
        ..CHAT
    },
];

/// The preset with this name, if there is one.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// All presets. For automatic selection, their key variables are checked in this order.
pub fn all() -> &'static [Preset] {
    PRESETS
}

/// Names of all presets, separated by commas, for an error message.
pub(crate) fn names() -> String {
    PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;
    use crate::connect;
    use crate::profile::{Auth, ProviderProfile, Settings};

    fn settings(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_preset_works_once_it_has_a_key() {
        // That with a login has no key.
        for preset in all().iter().filter(|preset| preset.protocol != Protocol::Codex) {
            let own = match preset.name {
                "azure" => r#"{"baseURL":"https://x.openai.azure.com/openai/v1","model":"d"}"#,
                _ => "{}",
            };
            let key = |variable: &str| {
                (Some(variable) == preset.key_variable).then(|| "key-of-the-user".to_owned())
            };
            let profile = ProviderProfile::resolve(preset.name, settings(own), key).unwrap();
            let info = connect(profile).unwrap().info();
            assert_eq!(info.profile, preset.name);
            let path = preset.protocol.call_path("/v1");
            assert!(info.endpoint.ends_with(path), "{}", info.endpoint);
            assert!(!info.endpoint[8..].contains("//"), "{}", info.endpoint);

            let without = ProviderProfile::resolve(preset.name, settings(own), |_| None);
            if let Some(key) = preset.placeholder_key {
                assert_eq!(without.unwrap().api_key.unwrap().expose_secret(), key);
            } else {
                let fix = without.unwrap_err().fix.unwrap();
                assert!(fix.contains(preset.key_variable.unwrap()), "{fix}");
            }
        }
    }

    #[test]
    fn a_configuration_overrides_a_preset() {
        let own = r#"{"preset":"openai","model":"other","quirks":{"noVision":true},"stream":false,
            "auth":"none","timeouts":{"idleMs":5}}"#;
        let profile = ProviderProfile::resolve("mine", settings(own), |_| None).unwrap();
        assert_eq!((&*profile.model, profile.stream), ("other", false));
        assert_eq!(profile.auth, Some(Auth::None));
        assert!(profile.quirks.no_vision && !profile.quirks.omit_temperature);
        assert_eq!((profile.timeouts.idle_ms, profile.timeouts.connect_ms), (Some(5), None));
        assert!(serde_json::from_str::<Settings>(r#"{"modle":"x"}"#).is_err());
    }

    #[test]
    fn invalid_profile_is_reported_before_any_request() {
        let key = Some("key".to_owned());
        let table = [
            (r#"{"preset":"opnai"}"#, "CFG003"),
            (r#"{"model":"m"}"#, "CFG021"),
            (r#"{"baseURL":"https://h/v1"}"#, "CFG021"),
            (r#"{"baseURL":"https://h/v1","model":"m","apiKeyEnv":"NO"}"#, "CFG020"),
            (r#"{"baseURL":"https://h/v1","model":"m"}"#, "CFG020"),
            (r#"{"baseURL":"h/v1","model":"m","apiKey":"k"}"#, "NET001"),
            (r#"{"baseURL":"file:///etc/passwd","model":"m","apiKey":"k"}"#, "NET001"),
            (r#"{"baseURL":"https://u:p@h/v1","model":"m","apiKey":"k"}"#, "NET001"),
            (r#"{"baseURL":"https://h/v1","model":"m","apiKey":"a\nb"}"#, "CFG003"),
            (
                r#"{"baseURL":"https://h/v1","model":"m","apiKey":"k","headers":{"a b":"c"}}"#,
                "CFG003",
            ),
        ];
        for (own, code) in table {
            let lookup = |name: &str| key.clone().filter(|_| name != "NO");
            let built = ProviderProfile::resolve("mine", settings(own), lookup)
                .and_then(connect)
                .map(|_| ());
            let failure = built.unwrap_err();
            assert_eq!(failure.code.as_str(), code, "{own}");
            assert!(!failure.to_string().contains("u:p"), "{failure}");
        }
    }
}
