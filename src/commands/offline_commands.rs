//! Commands that need no session: lists, the doctor, exports, packaging.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use jiff::tz::TimeZone;
use posse_actors::delegation;
use posse_actors::ports::{ToolSpec, Toolbox};
use posse_base::terminal::{self, TerminalWriter};

use crate::agents::{self, Agent, Instructions, Rights, Roster};
use crate::cli::{
    self, CompletionsArgs, DoctorArgs, ExportFormat, ListArgs, ManArgs, OutputFormat, ReplayArgs,
};
use crate::commands::{can_confirm, colors, confirmed, notices};
use crate::config::{Dirs, Environment};
use crate::doctor::{self, Examined, Streams};
use crate::failure::{ErrorCode, Exit, Failure, lines, printable};
use crate::journal::{SessionSummary, StateDir, export, remove};
use crate::lists::{self, ListedTool};
use crate::permission::denied_reads;
use crate::project;
use crate::tools::workspace::Workspace;
use crate::tools::worktree::Worktrees;
use crate::tools::{self, READ_FILE, ToolEnvironment};
use crate::wiring::{
    WorkspaceContext, confinement, isolated_workspaces, place, roles, skills, subagents,
};
use crate::{packaging, replaying};

type CommandResult = Result<Exit, Vec<Failure>>;

fn stdout() -> BufWriter<TerminalWriter<io::Stdout>> {
    BufWriter::new(terminal::stdout())
}

pub(super) fn agents(args: &ListArgs, environment: &Environment) -> CommandResult {
    let WorkspaceContext { cwd, dirs, loaded } = place(&args.place, Vec::new(), environment)?;
    notices(&loaded);
    let settings = &loaded.settings;
    let toolbox = toolbox(&cwd, dirs.clone())?;
    let roster = subagents::roster(&cwd, &dirs, settings, &names(&toolbox));
    terminal::stderr().write_all(subagents::remarks(&roster).as_bytes()).ok();
    terminal::stderr().write_all(lines(&roles::remarks(settings, &roster)).as_bytes()).ok();
    let serving = |agent: &Agent| roles::serving(agent, settings);
    let (all, default) = (&roster.agents, &settings.default_agent);
    Ok(lists::agents(all, &toolbox, default, serving, args.json, &mut stdout())?)
}

/// Prints the files with instructions for agents in the working directory, and the use of each.
pub(super) fn instructions(found: &WorkspaceContext, as_json: bool) -> CommandResult {
    let root = project::root_of(&found.cwd);
    let user = found.dirs.config.join("AGENTS.md");
    let home = found.dirs.home.as_ref().and_then(|home| home.canonicalize().ok());
    let home = home.as_deref().and_then(Path::to_str);
    let denied = denied_reads(&found.loaded.settings.permissions, READ_FILE, home);
    let denied = denied.map_err(|failure| vec![failure])?;
    let read = Instructions::read(&user, &root, &found.cwd, &denied);
    terminal::stderr().write_all(lines(&read.notices).as_bytes()).ok();
    let home = found.dirs.home.as_deref();
    let files = agents::found_files(&user, home, &root, &found.cwd, &read);
    Ok(lists::instructions(&files, as_json, &mut stdout())?)
}

pub(super) fn tools(args: &ListArgs, environment: &Environment) -> CommandResult {
    let found = place(&args.place, Vec::new(), environment)?;
    notices(&found.loaded);
    Ok(lists::tools(&listed_tools(&found, environment)?, args.json, &mut stdout())?)
}

/// All tools that a session can have, with the agents that see them under the current settings.
pub(super) fn listed_tools(
    found: &WorkspaceContext,
    environment: &Environment,
) -> Result<Vec<ListedTool>, Failure> {
    let WorkspaceContext { cwd, dirs, loaded } = found;
    let env = Arc::new(environment_of_tools(cwd, dirs.clone())?);
    let sandbox = Arc::new(confinement::unconfined(Vec::new())?);
    let toolbox = tools::builtin(Arc::clone(&env), Arc::clone(&sandbox));
    let roster = roster(found, &toolbox);
    let names = |wanted: &dyn Fn(&Agent) -> bool| -> Vec<String> {
        let agents = lists::shown(&roster.agents).filter(|agent| wanted(agent));
        agents.map(|agent| agent.name.clone()).collect()
    };
    let listed = |spec: ToolSpec, agents: &[String], needs: &'static str| {
        let needs = agents.is_empty().then_some(needs);
        ListedTool { spec, agents: agents.to_vec(), needs }
    };
    let mut all: Vec<ListedTool> =
        toolbox.iter().map(|tool| ListedTool::selected(tool.spec(), &roster.agents)).collect();
    let skills = skills::load(cwd, dirs, &loaded.settings, environment);
    let activating = names(&|agent| agent.sees_any_skill(&skills));
    let skill = agents::skill_tool(Arc::new(skills), Rights::default());
    all.push(listed(skill.spec().clone(), &activating, "a skill"));
    let multi = loaded.settings.multi_agent;
    let calling = names(&|agent| multi && roster.callable_by(agent).next().is_some());
    let callable = roster.agents.iter().filter(|agent| agent.delegation.callable && !agent.hidden);
    let callable: Vec<&str> = callable.map(|agent| agent.name.as_str()).collect();
    let worktrees = isolated_workspaces::worktrees(&dirs.state, cwd, &sandbox);
    let [status, result, delegate] = delegation::tool_specs(&callable, worktrees.is_some());
    let needs = "agentMode multi-agent";
    all.extend([delegate, status, result].map(|spec| listed(spec, &calling, needs)));
    let mut of_worktrees = Toolbox::default();
    let isolates = worktrees.is_some();
    let unused = || Arc::new(Worktrees::new(&dirs.state, cwd, sandbox, project::main_repository));
    isolated_workspaces::tools(&mut of_worktrees, &env, &worktrees.unwrap_or_else(unused));
    let (merging, needs) =
        if isolates { (&calling[..], needs) } else { (&[][..], "a git repository") };
    all.extend(of_worktrees.iter().map(|tool| listed(tool.spec().clone(), merging, needs)));
    Ok(all)
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
    let sandbox = confinement::unconfined(Vec::new())?;
    Ok(tools::builtin(Arc::new(environment_of_tools(cwd, dirs)?), Arc::new(sandbox)))
}

fn environment_of_tools(cwd: &Path, dirs: Dirs) -> Result<ToolEnvironment, Failure> {
    let workspace = Workspace::open(cwd, &[])?;
    Ok(ToolEnvironment { dry_run: true, ..ToolEnvironment::new(workspace, dirs.state) })
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
    if args.dir.is_none() && io::stdout().is_terminal() {
        return Ok(packaging::manual(&mut stdout())?);
    }
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
