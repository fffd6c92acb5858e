//! Values of settings with facts, and previews of sessions, for the lists of the terminal UI.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::libc::{O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK};
use posse_actors::conversation::text_of;
use posse_actors::event::Event;

use crate::commands::plain::PlainSessions;
use crate::commands::run::runtime;
use crate::config::{Environment, Settings};
use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::frontend::end_line::count_text;
use crate::frontend::past_conversation::PastConversation;
use crate::frontend::{BackgroundJob, ListedValue, Selectable, Sessions as _};
use crate::journal::{self, LastPrompts, StateDir};
use crate::models::{Catalog, Facts, dollars};
use crate::provider::connectivity::listed_models;
use crate::provider::presets;
use crate::tui::plain_text;
use crate::wiring::provider;

/// Maximum time in which a provider lists its models.
const LIVE_MAX: Duration = Duration::from_secs(10);

/// Maximum bytes of the output of a job that are shown: its end.
const OUTPUT_BYTES_MAX: u64 = 256 << 10;

/// Maximum number of messages of a preview, and maximum characters of each.
const PREVIEW_MESSAGES: usize = 8;
const PREVIEW_CHARS: usize = 400;

/// Values of a setting with facts.
pub(super) fn listed(sessions: &PlainSessions<'_>, what: Selectable) -> Vec<ListedValue> {
    let names = sessions.names(what);
    let settings = &sessions.found.loaded.settings;
    match what {
        Selectable::Agent => {
            let about = sessions.agent_descriptions();
            let listed = |name: String| {
                let known = about.iter().find(|(known, _)| *known == name);
                let facts = known.map(|(_, about)| about.clone()).into_iter().collect();
                ListedValue { name, facts }
            };
            names.into_iter().map(listed).collect()
        }
        Selectable::Provider => {
            let environment = sessions.environment;
            let listed = |name: String| {
                let own = settings.providers.get(&name);
                let model = own.and_then(|own| own.model.clone());
                provider_row(name, own.is_some(), model, environment)
            };
            names.into_iter().map(listed).collect()
        }
        Selectable::Thinking => {
            names.into_iter().map(|name| ListedValue { name, facts: Vec::new() }).collect()
        }
        Selectable::Model => models(names, sessions.profile(), settings),
    }
}

/// Asks the current provider for its models. A name that the catalogue knows gets its facts.
pub(super) fn live_models(sessions: &PlainSessions<'_>) -> BackgroundJob<Vec<ListedValue>> {
    let (found, environment) = (Arc::clone(&sessions.found), sessions.environment.clone());
    let name = sessions.profile().to_owned();
    Box::new(move || {
        let settings = &found.loaded.settings;
        let profile = provider::profile(&name, settings, &environment)?;
        let runtime = runtime()?;
        let listed = runtime.block_on(listed_models(&profile, LIVE_MAX));
        runtime.shutdown_background();
        let names = listed.map_err(|why| {
            vec![Failure::new(ErrorCode::ProviderUnavailable, Exit::Provider, why)]
        })?;
        Ok(models(names, &name, settings))
    })
}

/// Models of a provider with window, prices and effort.
fn models(names: Vec<String>, provider: &str, settings: &Settings) -> Vec<ListedValue> {
    let catalog = Catalog::new(&settings.models);
    let own = settings.providers.get(provider);
    let listed = |name: String| {
        let mut known = catalog.find(provider, &name).map(|model| model.facts).unwrap_or_default();
        let is_own = |own: &&crate::config::ProviderSettings| own.model.as_ref() == Some(&name);
        let window = own.filter(is_own).and_then(|own| own.context_window);
        known.context_window = window.or(known.context_window);
        ListedValue { facts: model_facts(&known), name }
    };
    names.into_iter().map(listed).collect()
}

/// Window, prices of a million input and output tokens, and effort. Unknown facts are empty.
fn model_facts(facts: &Facts) -> Vec<String> {
    let window = facts.context_window.map(|tokens| format!("{} tokens", count_text(tokens)));
    let price = match (facts.input_price, facts.output_price) {
        (Some(input), Some(output)) => {
            Some(format!("${} in, ${} out", dollars(input), dollars(output)))
        }
        _ => None,
    };
    let effort = facts.reasoning.map(|reasons| if reasons { "thinks" } else { "does not think" });
    vec![
        window.unwrap_or_default(),
        price.unwrap_or_default(),
        effort.unwrap_or_default().to_owned(),
    ]
}

/// A provider with its state and its default model. `configured` is true if the configuration has the
/// provider; `model`: its model there.
fn provider_row(
    name: String,
    configured: bool,
    model: Option<String>,
    environment: &Environment,
) -> ListedValue {
    let preset = presets::preset(&name);
    let variable = preset.and_then(|preset| preset.key_variable);
    let state = match (configured, variable) {
        (true, _) => "configured".to_owned(),
        (false, Some(variable)) if environment.get(variable).is_some() => {
            format!("{variable} is set")
        }
        (false, Some(variable)) => format!("needs {variable}"),
        (false, None) if preset.is_some_and(|preset| preset.placeholder_key.is_some()) => {
            "needs no key".to_owned()
        }
        (false, None) => String::new(),
    };
    let model = model.or_else(|| preset.and_then(|preset| preset.model).map(str::to_owned));
    ListedValue { name, facts: vec![state, model.unwrap_or_default()] }
}

/// The last messages of a stored session, as lines, the latest last.
pub(super) fn preview(sessions: &PlainSessions<'_>, session: &str) -> BackgroundJob<Vec<String>> {
    let (found, session) = (Arc::clone(&sessions.found), session.to_owned());
    Box::new(move || {
        let state = StateDir::new(found.dirs.state.clone());
        let (_, records) = journal::whole_session(&state, &session)?;
        let mut lines: Vec<String> = Vec::new();
        for record in records.iter().rev() {
            if record.origin.as_ref().is_some_and(|origin| origin.parent_invocation_id.is_some()) {
                continue;
            }
            let line = match &record.event {
                Event::UserMessage { content, .. } => line("you", &text_of(content)),
                Event::ModelReply { message, .. } => {
                    line("posse", message.content.as_deref().unwrap_or_default())
                }
                _ => None,
            };
            lines.extend(line);
            if lines.len() == PREVIEW_MESSAGES {
                break;
            }
        }
        lines.reverse();
        Ok(lines)
    })
}

/// The end of the conversation of a stored session, up to its record `last`.
pub(super) fn past_conversation(
    sessions: &PlainSessions<'_>,
    session: &str,
    last: u64,
) -> BackgroundJob<PastConversation> {
    let (state, session) = (sessions.found.dirs.state.clone(), session.to_owned());
    Box::new(move || {
        let LastPrompts { records, earlier, is_cut } =
            journal::last_prompts(&StateDir::new(state), &session, last)?;
        Ok(PastConversation { records, earlier_prompts: earlier, is_cut })
    })
}

/// The end of the output of a background job of the current session.
pub(super) fn job_output(sessions: &PlainSessions<'_>, job: &str) -> BackgroundJob<String> {
    let outputs = sessions.session_dir().map(|dir| dir.join("outputs"));
    let job = job.to_owned();
    Box::new(move || {
        let is_name = !job.is_empty()
            && job.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        let file = outputs.filter(|_| is_name).map(|outputs| outputs.join(format!("{job}.txt")));
        // A job that has printed nothing has no file.
        Ok(file.and_then(|file| end_of(&file).ok()).unwrap_or_default())
    })
}

/// The end of a regular file: its last [`OUTPUT_BYTES_MAX`] bytes.
fn end_of(file: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    let mut file =
        options.read(true).custom_flags(O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK).open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(OUTPUT_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A message in one line; `None` if it is empty.
fn line(who: &str, text: &str) -> Option<String> {
    // The marks of Markdown say nothing in one line.
    let start: String = text.chars().take(4 * PREVIEW_CHARS).collect();
    let text = plain_text(&start, 4 * PREVIEW_CHARS);
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(PREVIEW_CHARS).collect();
    (!text.is_empty()).then(|| format!("{who}: {}", printable(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_facts_are_columns() {
        let facts = Facts {
            context_window: Some(200_000),
            input_price: Some(3_000_000),
            output_price: Some(15_000_000),
            reasoning: Some(true),
            ..Facts::default()
        };
        assert_eq!(model_facts(&facts), ["200k tokens", "$3.00 in, $15.00 out", "thinks"]);
        assert_eq!(model_facts(&Facts::default()), ["", "", ""]);
        assert_eq!(line("you", " fix\n the\u{1b}[2J test "), Some("you: fix the test".into()));
        assert_eq!(line("posse", " \n "), None);
    }

    #[test]
    fn providers_show_what_they_need() {
        let row = |name: &str, variables: &[(&str, &str)]| {
            let variables = variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), std::ffi::OsString::from(*value)));
            provider_row(name.to_owned(), false, None, &variables.collect()).facts
        };
        let (needs, has) = (row("openai", &[]), row("openai", &[("OPENAI_API_KEY", "x")]));
        assert_eq!(
            (needs[0].as_str(), has[0].as_str()),
            ("needs OPENAI_API_KEY", "OPENAI_API_KEY is set")
        );
        assert!(!needs[1].is_empty(), "its default model");
    }
}
