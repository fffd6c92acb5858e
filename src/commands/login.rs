//! `posse login`: shows the keys, logins and local servers that posse can use, and how to add one.
//! posse has no login of its own and stores no keys.

use std::fmt::Write as _;

use crate::cli::LoginArgs;
use crate::commands::{notices, print, setup_facts};
use crate::config::Environment;
use crate::failure::{Exit, Failure};
use crate::provider::presets;
use crate::wiring::place;

/// Prints the ways to a model, and those that are available here.
pub(super) fn run(args: &LoginArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let place = place(&args.place, Vec::new(), environment)?;
    notices(&place.loaded);
    Ok(print(&text(&setup_facts::providers(&place, environment))))
}

fn text(found: &[setup_facts::UsableProvider]) -> String {
    let keys = presets::all().iter().filter_map(|preset| preset.key_variable).take(3);
    let mut text = format!(
        "posse stores no keys and has no login of its own. A model is reached with\n  \
         a key in the environment, such as {}\n  \
         a key in another variable: posse config edit providers.NAME.apiKeyEnv VARIABLE\n  \
         the login of the Codex program: codex login\n  \
         a model server on this machine, such as ollama\n\nfound here\n",
        keys.collect::<Vec<_>>().join(", ")
    );
    for setup_facts::UsableProvider { fact, name } in found {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {fact}: posse run --provider {name} \"TASK\"");
    }
    if found.is_empty() {
        text.push_str("  nothing; `posse demo` needs no model\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_a_model_are_listed() {
        let one = setup_facts::UsableProvider {
            fact: "OPENAI_API_KEY is set".to_owned(),
            name: "openai".to_owned(),
        };
        let shown = text(&[one]);
        assert!(shown.contains("OPENAI_API_KEY is set: posse run --provider openai"), "{shown}");
        assert!(shown.contains("codex login"), "{shown}");
        assert!(text(&[]).contains("`posse demo`"));
    }
}
