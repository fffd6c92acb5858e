//! Commands that need no session: lists, the doctor, exports, packaging.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use jiff::tz::TimeZone;
use posse_actors::ports::{ToolSpec, Toolbox};
use posse_base::terminal::{self, TerminalWriter};

use crate::agents::{Agent, Instructions, Roster};
use crate::cli::{
    self, CompletionsArgs, DoctorArgs, ExportFormat, ListArgs, ManArgs, OutputFormat, ReplayArgs,
};
use crate::commands::{can_confirm, colors, confirmed, notices};
use crate::config::{Dirs, Environment};
use crate::doctor::{self, Examined, Streams};
use crate::failure::{ErrorCode, Exit, Failure, lines, printable};
use crate::journal::{SessionSummary, StateDir, export, remove};
use crate::project;
use crate::tools::workspace::Workspace;
use crate::tools::{self, ToolEnvironment};
use crate::wiring::{WorkspaceContext, confinement, place, roles, subagents};
use crate::{lists, packaging, replaying};

type CommandResult = Result<Exit, Vec<Failure>>;

fn stdout() -> BufWriter<TerminalWriter<io::Stdout>> {
    BufWriter::new(terminal::stdout())
}

pub(super) fn agents(args: &ListArgs, environment: &Environment) -> CommandResult {
    let WorkspaceContext { cwd, dirs, loaded } = place(&args.place, Vec::new(), environment)?;
    notices(&loaded);
    let settings = &loaded.settings;
    let names = names(&toolbox(&cwd, dirs.clone())?);
    let roster = subagents::roster(&cwd, &dirs, settings, &names);
    terminal::stderr().write_all(subagents::remarks(&roster).as_bytes()).ok();
    terminal::stderr().write_all(lines(&roles::remarks(settings, &roster)).as_bytes()).ok();
    let serving = |agent: &Agent| roles::serving(agent, settings);
    let (all, default) = (&roster.agents, &settings.default_agent);
    Ok(lists::agents(all, default, serving, args.json, &mut stdout())?)
}

/// Prints the instruction files that apply in the working directory.
pub(super) fn instructions(found: &WorkspaceContext, as_json: bool) -> CommandResult {
    let root = project::root_of(&found.cwd);
    let read = Instructions::read(&found.dirs.config.join("AGENTS.md"), &root, &found.cwd);
    terminal::stderr().write_all(lines(&read.notices).as_bytes()).ok();
    Ok(lists::instructions(&read, as_json, &mut stdout())?)
}

pub(super) fn tools(args: &ListArgs, environment: &Environment) -> CommandResult {
    let found = place(&args.place, Vec::new(), environment)?;
    notices(&found.loaded);
    let toolbox = toolbox(&found.cwd, found.dirs.clone())?;
    let roster = roster(&found, &toolbox);
    Ok(lists::tools(&toolbox, &roster.agents, args.json, &mut stdout())?)
}

/// All agents that are available in the workspace. Their definitions may name the tools of
/// `toolbox`.
pub(super) fn roster(found: &WorkspaceContext, toolbox: &Toolbox) -> Roster {
    subagents::roster(&found.cwd, &found.dirs, &found.loaded.settings, &names(toolbox))
}

pub(super) fn names(toolbox: &Toolbox) -> Vec<String> {
    toolbox.iter().map(|tool| tool.spec().name.clone()).collect()
}

/// The tools of a session in `cwd`, for display only. They are not meant to be called.
pub(super) fn toolbox(cwd: &Path, dirs: Dirs) -> Result<Toolbox, Failure> {
    let workspace = Workspace::open(cwd, &[])?;
    let sandbox = confinement::unconfined(Vec::new())?;
    let env = ToolEnvironment { dry_run: true, ..ToolEnvironment::new(workspace, dirs.state) };
    Ok(tools::builtin(Arc::new(env), Arc::new(sandbox)))
}

pub(super) fn replay(args: &ReplayArgs, environment: &Environment) -> CommandResult {
    let cwd = cli::working_directory(args.cwd.as_deref())?;
    let dirs = Dirs::from_environment(environment)?;
    let state = StateDir::new(dirs.state.clone());
    let toolbox = toolbox(&cwd, dirs)?;
    let specs: Vec<ToolSpec> = toolbox.iter().map(|tool| tool.spec().clone()).collect();
    let format = if args.json { OutputFormat::Json } else { args.output_format };
    Ok(replaying::run(&state, &args.id, &specs, format, &mut stdout())?)
}

pub(super) fn doctor(args: &DoctorArgs, environment: &Environment) -> CommandResult {
    let cwd = cli::working_directory(args.place.cwd.as_deref())?;
    let dirs = Dirs::from_environment(environment);
    let loaded = place(&args.place, Vec::new(), environment).map(|place| place.loaded);
    let examined = Examined {
        environment,
        cwd: &cwd,
        dirs: dirs.as_ref(),
        loaded: loaded.as_ref().map_err(Vec::as_slice),
        streams: Streams::of_process(colors(io::stderr().is_terminal(), environment)),
    };
    let color = colors(io::stdout().is_terminal(), environment);
    Ok(doctor::run(&examined, args.online, args.json, color, &mut stdout())?)
}

pub(super) fn completions(args: CompletionsArgs) -> CommandResult {
    Ok(packaging::completions(args.shell, &mut stdout())?)
}

pub(super) fn man(args: &ManArgs) -> CommandResult {
    Ok(packaging::man(args.dir.as_deref(), &mut stdout())?)
}

pub(super) fn export(
    state: &StateDir,
    id: &str,
    format: ExportFormat,
    file: Option<&Path>,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let format = match format {
        ExportFormat::Md => export::ExportFormat::Markdown,
        ExportFormat::Html => export::ExportFormat::Html,
    };
    export::export(state, id, format, file, &TimeZone::system(), out)
}

pub(super) fn remove(
    state: &StateDir,
    id: &str,
    yes: bool,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let mut agreed = |session: &SessionSummary| if yes { Ok(true) } else { ask(session) };
    remove::remove(state, id, &mut agreed, out)
}

/// Asks on the terminal if the session may be removed. Fails if there is no terminal.
fn ask(session: &SessionSummary) -> Result<bool, Failure> {
    if !can_confirm() {
        let what = "removing a session needs a confirmation, and there is no terminal to ask on";
        return Err(Failure::new(ErrorCode::RemovalUnconfirmed, Exit::Usage, what).fix("add --yes"));
    }
    let prompt = session.prompt.as_deref().unwrap_or("-").lines().next().unwrap_or_default();
    let prompt: String = prompt.chars().take(60).collect();
    let prompt = printable(&prompt);
    Ok(confirmed(&format!("remove {} ({prompt})", printable(&session.id))))
}
