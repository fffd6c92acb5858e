//! Settings without an effect: quirks that no request of the provider's protocol contains, and names
//! of tools and skills that do not exist, also in permission rules.

use posse_actors::ports::Thinking;
use serde_json::Value;

use crate::agents::{SKILL_TOOL, Skills};
use crate::config::{Layers, Loaded, ProviderSettings, Settings};
use crate::failure::{ErrorCode, Exit, Failure, nearest, printable};
use crate::permission;
use crate::provider::presets;
use crate::provider::profile::{Protocol, Quirks};

/// One error for each quirk and each call budget that has no effect; empty if there is none.
pub(crate) fn check(loaded: &Loaded) -> Vec<Failure> {
    let Loaded { settings, layers, .. } = loaded;
    let quirks = settings.providers.values().flat_map(|profile| unused_quirks(profile, layers));
    let budgets = settings.tools.budgets.keys().filter_map(|tool| unused_budget(tool, layers));
    quirks.chain(budgets).collect()
}

fn unused_quirks(profile: &ProviderSettings, layers: &Layers) -> Vec<Failure> {
    let protocol = protocol(profile);
    let wrong = |(quirk, value): (&String, &Value)| {
        let key = format!("providers.{}.quirks.{quirk}", profile.name);
        let shown = printable(&key);
        let failure = match Quirks::protocols(quirk) {
            None => {
                let what = format!("unknown key \"{shown}\"");
                let names = Quirks::names();
                let fix = match nearest(quirk, names.iter().map(String::as_str)) {
                    Some(meant) => format!("did you mean \"{meant}\"?"),
                    None => "remove it; `posse help configuration` lists the quirks".to_owned(),
                };
                Failure::new(ErrorCode::ConfigUnknownKey, Exit::Configuration, what).fix(fix)
            }
            Some(readers) if protocol.is_some_and(|own| readers.contains(&own)) => {
                let what = format!("{shown}: {}", invalid_quirk(quirk, value)?);
                let fix = format!("correct it; `posse help {quirk}` describes it");
                Failure::new(ErrorCode::ConfigInvalidValue, Exit::Configuration, what).fix(fix)
            }
            Some(readers) => {
                let own = protocol.map_or("the type replay", Protocol::title);
                let readers: Vec<&str> = readers.iter().map(|one| one.title()).collect();
                let what = format!("{shown} has no effect with {own}");
                let why = format!("it is a quirk of {}", readers.join(", "));
                Failure::new(ErrorCode::ConfigContradiction, Exit::Configuration, what)
                    .because(why)
                    .fix(format!("remove it, or correct providers.{}.type", profile.name))
            }
        };
        Some(placed(failure, layers, &key))
    };
    profile.quirks.iter().filter_map(wrong).collect()
}

/// Reason why `value` is no value of `quirk`. `None` if it is one.
fn invalid_quirk(quirk: &str, value: &Value) -> Option<String> {
    let alone = Value::Object([(quirk.to_owned(), value.clone())].into_iter().collect());
    if let Err(error) = serde_json::from_value::<Quirks>(alone) {
        return Some(error.to_string());
    }
    // The members of these are levels.
    let members = value.as_object()?;
    let unknown = members.keys().find(|level| Thinking::named(level).is_none())?;
    let names: Vec<&str> = Thinking::ALL.iter().map(|level| level.name()).collect();
    Some(format!("there is no level \"{}\", only {}", printable(unknown), names.join(", ")))
}

/// Protocol of a profile. `None` for the type `replay`, which sends no request.
fn protocol(profile: &ProviderSettings) -> Option<Protocol> {
    match profile.kind.as_deref() {
        Some("openai-compatible") => Some(Protocol::ChatCompletions),
        Some("openai-responses") => Some(Protocol::Responses),
        Some("anthropic") => Some(Protocol::Messages),
        Some("codex") => Some(Protocol::Codex),
        Some(_) => None,
        None => Some(presets::preset(&profile.name).map(|own| own.protocol).unwrap_or_default()),
    }
}

/// The error for `tools.budgets.TOOL` if no calls of this name are counted. `None` if they are.
fn unused_budget(tool: &str, layers: &Layers) -> Option<Failure> {
    use posse_actors::delegation::{DELEGATE, RESULT, STATUS};
    let counted = || crate::tools::NAMES.into_iter().chain([SKILL_TOOL]);
    if counted().any(|name| name == tool) {
        return None;
    }
    let key = format!("tools.budgets.{tool}");
    let (what, fix) = if [DELEGATE, RESULT, STATUS].contains(&tool) {
        (
            format!("{key} has no effect: calls of {tool} are not limited by a budget"),
            "remove it; `delegation.maxTotal` limits the subagents of a session".to_owned(),
        )
    } else {
        let fix = match nearest(tool, counted()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "remove it; `posse tools` lists the tools".to_owned(),
        };
        (format!("{}: there is no tool \"{}\"", printable(&key), printable(tool)), fix)
    };
    let failure = Failure::new(ErrorCode::SettingNameUnknown, Exit::Configuration, what).fix(fix);
    let key = ["max", "onExceed"].map(|field| format!("{key}.{field}"));
    Some(placed(failure, layers, if layers.get(&key[0]).is_some() { &key[0] } else { &key[1] }))
}

/// One error for each invalid permission rule, with its index; empty if there is none.
pub(crate) fn check_rules(rules: &[Value]) -> Vec<(usize, Failure)> {
    let delegating = posse_actors::delegation::TOOLS;
    let tools = crate::tools::NAMES.into_iter().chain([SKILL_TOOL]).chain(delegating);
    permission::check_rules(rules, &tools.collect::<Vec<_>>())
}

/// Adds the origin of the setting `key` to `failure`.
fn placed(failure: Failure, layers: &Layers, key: &str) -> Failure {
    match layers.get(key) {
        Some(leaf) => failure.at(leaf.origin.place()),
        None => failure,
    }
}

/// Warnings about names in `skills.disabled` that no skill has, in one line each.
pub(crate) fn disabled_skills(settings: &Settings, skills: &Skills) -> Vec<String> {
    let place = settings.skills.disabled_from.as_deref();
    let place = place.map(|place| format!(" ({})", printable(place))).unwrap_or_default();
    let warning = |name: &String| {
        let fix = match nearest(name, skills.all().map(|skill| skill.name.as_str())) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "remove it, or, if it is a skill of another project, set it in that project"
                .to_owned(),
        };
        let code = ErrorCode::SkillNotFound;
        let name = printable(name);
        format!("warning[{code}]: skills.disabled: there is no skill \"{name}\"; {fix}{place}")
    };
    skills.unknown.iter().map(warning).collect()
}
