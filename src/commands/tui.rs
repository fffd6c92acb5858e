//! `posse tui`: opens the terminal UI, and provides its sessions and services.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::conversation::ContentPart;
use posse_base::terminal;

use crate::cli::RunArgs;
use crate::commands::notifications::{self, notifications};
use crate::commands::plain::{self, PlainSessions};
use crate::commands::run::{runtime, start_log_file};
use crate::commands::{clipboard_image, pickers, resume, setup_facts, text_editor, themes};
use crate::config::{self, Environment};
use crate::failure::{Exit, Failure, printable};
use crate::front::prompt::Images;
use crate::frontend::past_conversation::PastConversation;
use crate::frontend::{BackgroundJob, ListedValue, Selectable};
use crate::help;
use crate::tui::{self, Editor, ImageReader, Options, SetupFacts};
use crate::wiring::{provider, tool_settings};

/// File in the state folder with the log of the terminal UI.
const LOG: &str = "tui.log";

/// Opens the terminal UI, or line mode with a message if the terminal is not usable for it.
pub(crate) fn run(args: &RunArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let variable = |name: &str| environment.get(name).map(str::to_owned);
    if let Err(why) = tui::usable(variable) {
        let text = format!("posse plain: {why}\n");
        terminal::stderr().write_all(text.as_bytes()).ok();
        return plain::run(args, environment);
    }
    let (mut sessions, first) = PlainSessions::prepare(args, environment, true)?;
    sessions.shows_past();
    let log = sessions.found.dirs.state.join(LOG);
    if !start_log_file(args.flags.verbose, &log) {
        let text = format!(
            "warning: the log {} cannot be written\n",
            printable(&log.display().to_string())
        );
        terminal::stderr().write_all(text.as_bytes()).ok();
    }
    let ui = sessions.found.loaded.settings.ui.clone();
    let (theme, own_themes, warnings) =
        themes::load(ui.theme.as_deref(), &sessions.found.dirs.config, environment);
    let features = notifications::features(environment);
    let options = Options {
        theme,
        own_themes,
        warnings,
        hyperlinks: features.strings,
        asks_background: features.strings,
        kept: !args.flags.no_transcript,
        resume_flags: resume::needed_flags(args, &sessions.found.cwd),
        yes: args.flags.yes,
        dry_run: args.flags.dry_run,
        mode_label: match (args.flags.dry_run, args.flags.yes) {
            (true, _) => Some("dry run"),
            (false, true) => Some("--yes"),
            (false, false) => None,
        },
        alternate: ui.alternate_screen,
        shows_thinking: ui.show_thinking,
        history: sessions.history(),
        drafts: sessions.drafts(),
        first,
        reflow: tui::reflow_mode(variable),
        keys: ui.keybindings,
        vim: ui.vim,
        notifications: notifications(&sessions.found.loaded.settings.notify, environment, true),
        keyboard_flags: features.keyboard_flags,
        guides: help::topic_names().collect(),
        command_uses: sessions.command_uses(),
        status_line: notifications::status_line(ui.status_line),
    };
    let runtime = runtime()?;
    let exit = runtime.block_on(tui::run(&mut sessions, options));
    // A thread blocked on input must not keep the process alive.
    runtime.shutdown_background();
    exit
}

/// Formats a path for display, with `~` for the home directory.
fn shown(path: &Path, home: Option<&str>) -> String {
    let in_home = home.and_then(|home| path.strip_prefix(home).ok());
    let text = match in_home {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    };
    printable(&text)
}

/// Fails if the configured model is known not to accept images.
fn check_vision(sessions: &PlainSessions<'_>) -> Result<(), Failure> {
    let PlainSessions { environment, found, .. } = sessions;
    let settings = &found.loaded.settings;
    let chosen = provider::choose(settings, environment, &found.cwd);
    let refused = chosen.ok().and_then(|model| provider::vision_error(settings, &model.info()));
    refused.map_or(Ok(()), Err)
}

impl tui::TuiEnvironment for PlainSessions<'_> {
    fn setup_facts(&self) -> BackgroundJob<SetupFacts> {
        let (found, environment) = (Arc::clone(&self.found), self.environment.clone());
        Box::new(move || Ok(setup_facts::found(&found, &environment)))
    }

    fn editor(&self) -> Editor {
        let PlainSessions { environment, found, .. } = self;
        let named = ["VISUAL", "EDITOR"].iter().filter_map(|name| environment.get(name));
        let editor = named.map(str::trim).find(|line| !line.is_empty()).unwrap_or("vi").to_owned();
        let dir = found.dirs.state.clone();
        Box::new(move |draft| text_editor::edited(&editor, &dir, &draft))
    }

    fn images(&self) -> Result<ImageReader, Failure> {
        check_vision(self)?;
        let found = &self.found;
        let settings = &found.loaded.settings;
        let limits = tool_settings::image_limits(settings);
        let (cwd, detail) = (found.cwd.clone(), settings.image_detail.clone());
        Ok(Box::new(move |name| {
            Images { named: &[], cwd: &cwd, limits, detail: &detail }.read(name)
        }))
    }

    fn clipboard_image(&self) -> Result<BackgroundJob<(ContentPart, String)>, Failure> {
        check_vision(self)?;
        let (found, environment) = (Arc::clone(&self.found), self.environment.clone());
        Ok(Box::new(move || {
            let settings = &found.loaded.settings;
            let limits = tool_settings::image_limits(settings);
            Ok(clipboard_image::read(&environment, &limits, &settings.image_detail)?)
        }))
    }

    fn job_output(&self, job: &str) -> BackgroundJob<String> {
        pickers::job_output(self, job)
    }

    fn listed(&self, what: Selectable) -> Vec<ListedValue> {
        pickers::listed(self, what)
    }

    fn save_keys(&self, changes: &[(String, String)]) -> BackgroundJob<()> {
        let file = self.configuration_file();
        let changes = changes.to_vec();
        Box::new(move || {
            // Actions that lose a key come first: a key of two actions is a mistake.
            for (name, keys) in changes.iter().rev() {
                let value = serde_json::Value::String(keys.clone()).to_string();
                config::edit(&file, &format!("ui.keybindings.{name}"), Some(&value))?;
            }
            Ok(())
        })
    }

    fn live_models(&self) -> BackgroundJob<Vec<ListedValue>> {
        pickers::live_models(self)
    }

    fn preview(&self, session: &str) -> BackgroundJob<Vec<String>> {
        pickers::preview(self, session)
    }

    fn past_conversation(&self, session: &str, last: u64) -> BackgroundJob<PastConversation> {
        pickers::past_conversation(self, session, last)
    }

    fn folder(&self) -> (String, PathBuf) {
        let PlainSessions { environment, found, .. } = self;
        (shown(&found.cwd, environment.get("HOME")), found.cwd.clone())
    }
}
