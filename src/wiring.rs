//! Wiring: the only module that knows every adapter. It assembles a session and passes it to a
//! front end.

mod attach;
mod authority;
mod clock;
mod config_edit;
mod confinement;
mod contexts;
mod descriptors;
mod fallback;
mod hooks;
mod isolated_workspaces;
mod model_price;
mod offline_commands;
mod permission_check;
mod plain;
mod provider;
mod reports;
mod resume;
mod roles;
mod run;
mod setup_facts;
mod skills;
mod stored_output;
mod subagents;
mod toolbox;
mod trust_commands;
mod tui;
mod undo;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jiff::tz::TimeZone;

use crate::cli::{
    self, CliExit, ConfigArgs, ConfigEdit, Invocation, ListArgs, PlaceArgs, SessionsAction,
    SessionsArgs,
};
use crate::config::{self, Dirs, Environment, Loaded, SettingChange, SettingOrigin, Sources};
use crate::failure::{Exit, Failure, lines, printable};
use crate::journal::commands::{self, OutputStyle};
use crate::journal::state::Within;
use crate::journal::{self, StateDir};
use crate::models;
use crate::permission;
use crate::project;

pub(crate) use provider::{
    choose as choose_provider, name as provider_name, profile as provider_profile,
};
pub(crate) use run::perform;
pub use run::{Setup, assemble};

/// Default line width in characters.
const COLUMNS: usize = 100;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/embedding.md")]
struct EmbeddingGuide;

/// Runs `work` and turns a panic into an internal error. Resources such as the terminal have been
/// restored by then.
pub fn catch_panics(work: impl FnOnce() -> ExitCode) -> ExitCode {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or(ExitCode::from(Exit::Internal as u8))
}

/// Runs the program with these arguments, program name first.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    // If the panic message was visible, it is not repeated.
    let seen = io::stdout().is_terminal() || io::stderr().is_terminal();
    let invocation = match cli::parse(args, io::stdin().is_terminal() && seen) {
        Ok(invocation) => invocation,
        Err(exit) => return leave(&exit),
    };
    let environment = Environment::read();
    let ended: Result<Exit, Vec<Failure>> = match invocation {
        Invocation::Resume(args) if resume::is_conversation(&args) => tui::run(&args, &environment),
        Invocation::Run(args) | Invocation::Resume(args) => run::run(&args, &environment),
        Invocation::Attach(args) => attach::run(&args, &environment),
        Invocation::Demo(args) => crate::demo::run(&args, &environment),
        Invocation::Sessions(args) => sessions(&args, &environment).map_err(|error| vec![error]),
        Invocation::Config(args) => configuration(args, &environment),
        Invocation::Plain(args) => plain::run(&args, &environment),
        Invocation::Tui(args) => tui::run(&args, &environment),
        Invocation::Replay(args) => offline_commands::replay(&args, &environment),
        Invocation::Agents(args) => offline_commands::agents(&args, &environment),
        Invocation::Tools(args) => offline_commands::tools(&args, &environment),
        Invocation::Skills(args, name) => skills::list(&args, name.as_deref(), &environment),
        Invocation::Models(args) => list_models(&args, &environment),
        Invocation::Grants(args) => authority::run_grants(&args, &environment),
        Invocation::Trust(args) => trust_commands::run(&args, &environment),
        Invocation::Permissions(args) => permission_check::check(&args, &environment),
        Invocation::Doctor(args) => offline_commands::doctor(&args, &environment),
        Invocation::Completions(args) => offline_commands::completions(args),
        Invocation::Man(args) => offline_commands::man(&args),
    };
    match ended {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failures) => print_failures(&failures),
    }
}

fn leave(exit: &CliExit) -> ExitCode {
    let written = if exit.stderr {
        io::stderr().write_all(exit.text.as_bytes())
    } else {
        io::stdout().write_all(exit.text.as_bytes())
    };
    // Without a reader nothing can be reported.
    written.map_or(ExitCode::FAILURE, |()| ExitCode::from(exit.code))
}

/// Prints all failures and returns the first one's exit code. Interrupts are not printed.
fn print_failures(failures: &[Failure]) -> ExitCode {
    let wanted = |failure: &Failure| matches!(failure.exit, Exit::Done | Exit::Interrupt);
    if !failures.first().is_some_and(wanted) {
        io::stderr().write_all(lines(failures).as_bytes()).ok();
    }
    ExitCode::from(failures.first().map_or(Exit::Internal, |failure| failure.exit) as u8)
}

/// Working directory and its configuration.
pub(crate) struct WorkspaceContext {
    pub(crate) cwd: PathBuf,
    pub(crate) dirs: Dirs,
    pub(crate) loaded: Loaded,
}

pub(crate) fn place(
    args: &PlaceArgs,
    flags: Vec<(&'static str, serde_json::Value, &'static str)>,
    environment: &Environment,
) -> Result<WorkspaceContext, Vec<Failure>> {
    let cwd = cli::working_directory(args.cwd.as_deref()).map_err(|error| vec![error])?;
    let dirs = Dirs::from_environment(environment).map_err(|error| vec![error])?;
    let project = project::root_of(&cwd);
    let (trusted, notice) = authority::trusted(&project, &dirs);
    let presets = authority::presets();
    let sources = Sources {
        project: Some(&project),
        file: args.config.as_deref(),
        trust_project: args.trust_project,
        trusted: trusted.as_ref().map(|trusted| trusted.digest.as_str()),
        presets: &presets,
        flags,
    };
    let is_preset = |name: &str| provider::is_preset(name);
    let outside = config::Outside { rules: &permission::check_rules, is_preset: &is_preset };
    let mut loaded = config::load_with(environment, &dirs, &sources, outside)?;
    loaded.notices.extend(notice);
    let wrong = roles::check(&loaded);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(WorkspaceContext { cwd, dirs, loaded })
}

fn sessions(args: &SessionsArgs, environment: &Environment) -> Result<Exit, Failure> {
    let cwd = cli::working_directory(args.cwd.as_deref())?;
    let dirs = Dirs::from_environment(environment)?;
    let state = StateDir::new(dirs.state);
    let json = match &args.action {
        SessionsAction::List { json, .. }
        | SessionsAction::Show { json, .. }
        | SessionsAction::Verify { json, .. } => *json,
        SessionsAction::Export { .. } | SessionsAction::Rm { .. } => false,
    };
    let view = OutputStyle {
        json,
        color: colors(io::stdout().is_terminal(), environment),
        columns: columns(environment),
        now_ms: clock::now_ms(),
        zone: TimeZone::system(),
    };
    let all = matches!(args.action, SessionsAction::List { all: true, .. });
    let within = if all { Within::Everywhere } else { Within::Project(&cwd) };
    let mut out = io::BufWriter::new(io::stdout().lock());
    match &args.action {
        SessionsAction::List { .. } => commands::list(&state, within, &view, &mut out),
        SessionsAction::Show { id, cost: true, verbose, .. } => {
            journal::cost::show(&state, id, *verbose, &view, &mut out)
        }
        SessionsAction::Show { id, memory: true, .. } => {
            journal::remembered::show(&state, id, json, &mut out)
        }
        SessionsAction::Show { id, .. } => commands::show(&state, id, &view, &mut out),
        SessionsAction::Verify { id, .. } => {
            commands::verify(&state, id.as_deref(), within, &view, &mut out)
        }
        SessionsAction::Export { id, format, output } => {
            offline_commands::export(&state, id, *format, output.as_deref(), &mut out)
        }
        SessionsAction::Rm { id, yes } => offline_commands::remove(&state, id, *yes, &mut out),
    }
}

fn configuration(args: ConfigArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let mut remarks = String::new();
    let text = match args {
        ConfigArgs::Show { origin, json, place: args } => {
            let place = place(&args, Vec::new(), environment)?;
            notices(&place.loaded);
            config::show(&place.loaded.layers, place.loaded.project.as_ref(), origin, json)
        }
        ConfigArgs::Instructions(args) => {
            let place = place(&args.place, Vec::new(), environment)?;
            notices(&place.loaded);
            return offline_commands::instructions(&place, args.json);
        }
        ConfigArgs::Path { place: args } => {
            let cwd = cli::working_directory(args.cwd.as_deref()).map_err(|error| vec![error])?;
            let dirs = Dirs::from_environment(environment).map_err(|error| vec![error])?;
            config::paths(&dirs, Some(&project::root_of(&cwd)), args.config.as_deref())
        }
        ConfigArgs::Schema => config::json_schema(),
        ConfigArgs::Reference => config::reference(),
        ConfigArgs::Forget => {
            let dirs = Dirs::from_environment(environment).map_err(|error| vec![error])?;
            config::preferences::forget(&dirs).map_err(|error| vec![error])?
        }
        ConfigArgs::Edit { edit, place: args } => {
            let dirs = Dirs::from_environment(environment).map_err(|error| vec![error])?;
            let file = args.config.clone().unwrap_or_else(|| config::user_file(&dirs));
            match &edit {
                ConfigEdit::Explain => config::explain(&file),
                ConfigEdit::Set { key, value } => {
                    fitting_rules(key, value)?;
                    let said = config::edit(&file, SettingChange::Set { key, value })?;
                    remarks = match place(&args, Vec::new(), environment) {
                        Ok(place) => overriding_source(&place, key, &file).unwrap_or_default(),
                        // The change was saved, but is incomplete or conflicts with another
                        // setting.
                        Err(failures) => lines(&failures),
                    };
                    said
                }
                ConfigEdit::Unset { key } => config::edit(&file, SettingChange::Unset { key })?,
            }
        }
    };
    let written = io::stdout().write_all(text.as_bytes());
    io::stderr().write_all(remarks.as_bytes()).ok();
    Ok(written.map_or(Exit::Failed, |()| Exit::Done))
}

/// Refuses permission rules with which no run would start.
fn fitting_rules(key: &str, value: &str) -> Result<(), Vec<Failure>> {
    let rules: Vec<serde_json::Value> = match key {
        "permissions" => serde_json::from_str(value).unwrap_or_default(),
        _ => Vec::new(),
    };
    let wrong = permission::check_rules(&rules);
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Prints a notice if another source overrides the user's file for `key`.
fn overriding_source(place: &WorkspaceContext, key: &str, file: &Path) -> Option<String> {
    let Loaded { settings, layers, .. } = &place.loaded;
    let own = printable(&file.display().to_string());
    let provider = settings.default_provider.as_deref().unwrap_or_default();
    // A selected model takes precedence over the provider's.
    let chosen = (key == format!("providers.{provider}.model")).then_some("model");
    let (name, leaf) = std::iter::once(key)
        .chain(chosen)
        .filter_map(|key| Some((key, layers.get(key)?)))
        .find(|(name, leaf)| match &leaf.origin {
            SettingOrigin::BuiltIn => false,
            SettingOrigin::File { name: at, .. } => *name != key || **at != own,
            SettingOrigin::Project { .. }
            | SettingOrigin::Preferences
            | SettingOrigin::Variable(_)
            | SettingOrigin::Flag(_) => true,
        })?;
    let value = printable(&leaf.value.to_string());
    let saved = match leaf.origin {
        SettingOrigin::Preferences => "; `posse config forget` forgets it",
        _ => "",
    };
    Some(format!("note: {name} = {value} counts before it ({}){saved}\n", leaf.origin))
}

fn list_models(args: &ListArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let place = place(&args.place, Vec::new(), environment)?;
    notices(&place.loaded);
    let catalog = models::Catalog::new(&place.loaded.settings.models);
    let text = models::list(&catalog.all(), args.json);
    let written = io::stdout().write_all(text.as_bytes());
    Ok(written.map_or(Exit::Failed, |()| Exit::Done))
}

/// Prints configuration notices.
pub(crate) fn notices(loaded: &Loaded) {
    io::stderr().write_all(lines(&loaded.notices).as_bytes()).ok();
}

/// True if colours may be used on a stream.
pub(crate) fn colors(terminal: bool, environment: &Environment) -> bool {
    if environment.get("NO_COLOR").is_some() || environment.get("TERM") == Some("dumb") {
        return false;
    }
    terminal || environment.get("CLICOLOR_FORCE").is_some_and(|force| force != "0")
}

fn columns(environment: &Environment) -> usize {
    environment.get("COLUMNS").and_then(|columns| columns.parse().ok()).unwrap_or(COLUMNS)
}

/// Id of a session that starts now.
pub(crate) fn session_id() -> posse_actors::conversation::SessionId {
    let random = u32::try_from(clock::random() & 0xffff_ffff).unwrap_or_default();
    journal::new_session_id(clock::now_ms(), random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_exits_with_an_internal_error() {
        let code = |code: ExitCode| format!("{code:?}");
        assert_eq!(code(catch_panics(|| panic!("a bug"))), code(ExitCode::from(70)));
        assert_eq!(code(catch_panics(|| ExitCode::from(3))), code(ExitCode::from(3)));
    }
}
