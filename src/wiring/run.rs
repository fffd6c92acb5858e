//! `posse run`: from arguments and settings to a session, and through it to an exit code.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::agent_invocation::RequestOptions;
use posse_actors::conversation::{Prompt, SessionId};
use posse_actors::limits::Limits;
use posse_actors::ports::{Asking, JournalError, JournalStore, NoHooks, Ports, Provider};
use posse_actors::root_session::{SessionHandle, SessionSettings};
use secrecy::SecretString;
use tempfile::TempDir;

use crate::agents::{self, Agent, EnvironmentBlock, Instructions};
use crate::cli::{OutputFormat, PromptArg, RunArgs};
use crate::config::{Dirs, Environment, Settings};
use crate::failure::{Exit, Failure, lines};
use crate::front::headless::{self, Format, Manner};
use crate::front::prompt::{self, Wanted};
use crate::journal::{FileJournal, MemoryJournal, StateDir};
use crate::permission::{Network, PolicySettings, RulePolicy, SandboxMode};
use crate::provider::replay;
use crate::sandbox::Sandbox;
use crate::tools::workspace::Workspace;
use crate::tools::{self, ToolEnvironment};
use crate::wiring::world::{RealClock, RealIds, random, today};
use crate::wiring::{Place, colors, notices, place, provider, session_id};

/// Names of variables whose values are secrets, in part.
const SECRET_NAMES: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"];

/// Values shorter than this are too common to be masked wherever they appear.
const SECRET_BYTES_MIN: usize = 8;

/// What a session is put together from.
#[derive(Debug)]
pub struct Setup<'a> {
    /// The working directory, resolved.
    pub cwd: &'a Path,
    /// Further roots.
    pub add_dirs: &'a [PathBuf],
    /// Our folders.
    pub dirs: &'a Dirs,
    /// What is configured.
    pub settings: &'a Settings,
    /// The environment.
    pub environment: &'a Environment,
    /// Who answers questions.
    pub asking: Asking,
    /// Whether tools only say what they would do.
    pub dry_run: bool,
    /// Whether the session is kept.
    pub keep: bool,
}

/// A session that is ready to start.
#[expect(missing_debug_implementations, reason = "it is taken apart at once")]
pub struct Assembled {
    /// What it needs of the world.
    pub ports: Ports,
    /// What it is.
    pub settings: SessionSettings,
    /// Where outputs of a session that is not kept lie until it ends.
    pub scratch: Option<TempDir>,
}

pub(crate) fn run(args: &RunArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let one = |error: Failure| vec![error];
    start_log(args.verbose);
    let Place { cwd, dirs, loaded } = place(&args.place, args.overrides(), environment)?;
    notices(&loaded);
    dirs.check_workspace(&cwd).map_err(one)?;
    let settings = &loaded.settings;
    // Made first: its certificates load on a thread of their own.
    let mut model = provider::choose(settings, environment, &cwd).map_err(one)?;
    if let Some(file) = &args.record {
        model = replay::recording(model, file, &cwd).map_err(one)?;
    }
    let prompt = read_prompt(args, settings).map_err(one)?;
    let asks = io::stdin().is_terminal() && io::stderr().is_terminal();
    let asking = match (args.yes, asks) {
        (true, _) => Asking::Yes,
        (false, true) => Asking::Human,
        (false, false) => Asking::Nobody,
    };
    let setup = Setup {
        cwd: &cwd,
        add_dirs: &args.add_dirs,
        dirs: &dirs,
        settings,
        environment,
        asking,
        dry_run: args.dry_run,
        keep: !args.no_transcript,
    };
    let assembled = assemble(&setup, model)?;
    introduce(&assembled, args.no_transcript);
    let manner = Manner {
        format: match args.output_format {
            OutputFormat::Text => Format::Text,
            OutputFormat::Json => Format::Json,
            OutputFormat::StreamJson => Format::StreamJson,
        },
        interactive: asking == Asking::Human,
        color: colors(io::stderr().is_terminal(), environment),
        quiet: false,
    };
    perform(assembled, prompt, manner).map_err(one)
}

/// Runs an assembled session to its end.
pub(crate) fn perform(
    assembled: Assembled,
    prompt: Prompt,
    manner: Manner,
) -> Result<Exit, Failure> {
    let internal = |what: String| Failure::new("INT003", Exit::Internal, what);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| internal(format!("no runtime: {error}")))?;
    let Assembled { ports, settings, scratch } = assembled;
    let exit = runtime.block_on(async {
        let session = SessionHandle::start(ports, settings).await;
        let session = session.map_err(|error| internal(error.to_string()))?;
        Ok(headless::run(session, prompt, manner).await)
    });
    // A thread that hangs in a system call must not keep the process.
    runtime.shutdown_background();
    drop(scratch);
    exit
}

/// Puts a session together around `model`.
pub fn assemble(setup: &Setup<'_>, model: Arc<dyn Provider>) -> Result<Assembled, Vec<Failure>> {
    let one = |error: Failure| vec![error];
    let settings = setup.settings;
    let agent = agents::choose(&settings.default_agent).map_err(one)?;
    let workspace = Workspace::open(setup.cwd, setup.add_dirs).map_err(one)?;
    let roots: Vec<String> =
        workspace.roots().map(|root| root.to_string_lossy().into_owned()).collect();
    let id = session_id();
    let (journal, session_dir, scratch) = journal(setup, &id).map_err(one)?;
    let sandbox = Sandbox::new(secrets(setup)).map_err(|error| {
        one(Failure::new("SBX001", Exit::Internal, "the program cannot find itself")
            .because(error.to_string()))
    })?;
    let tier = sandbox.tier().to_owned();
    let env = ToolEnvironment { workspace, session_dir, dry_run: setup.dry_run };
    let toolbox = tools::builtin(Arc::new(env), Arc::new(sandbox));
    let names: Vec<String> = toolbox
        .iter()
        .map(|tool| tool.spec().name.clone())
        .filter(|name| agent.tools.sees(name))
        .collect();
    let system_prompt = system_prompt(agent, setup, &roots, &tier);
    let policy = RulePolicy::new(policy_settings(setup, roots))?;
    let process = u32::try_from(random() & 0xffff_ffff).unwrap_or_default();
    let ports = Ports {
        provider: model,
        tools: Arc::new(toolbox),
        hooks: Arc::new(NoHooks),
        policy: Arc::new(policy),
        journal,
        clock: Arc::new(RealClock::new()),
        ids: Arc::new(RealIds::new(process)),
    };
    let settings = SessionSettings {
        session_id: id,
        posse: env!("CARGO_PKG_VERSION").to_owned(),
        cwd: setup.cwd.display().to_string(),
        agent: agent.name.to_owned(),
        system_prompt,
        tools: names,
        options: RequestOptions { stream: settings.streaming, ..RequestOptions::default() },
        asking: setup.asking,
        tier,
        limits: limits(settings),
        history: Vec::new(),
        fail: posse_actors::root_session::FailPoints::none(),
    };
    Ok(Assembled { ports, settings, scratch })
}

fn system_prompt(agent: &Agent, setup: &Setup<'_>, roots: &[String], tier: &str) -> String {
    let repository = agents::repository_root(setup.cwd);
    let root = repository.as_deref().unwrap_or(setup.cwd);
    let user = setup.dirs.config.join("AGENTS.md");
    let instructions = Instructions::read(&user, root, setup.cwd);
    io::stderr().write_all(lines(&instructions.notices).as_bytes()).ok();
    let block = EnvironmentBlock {
        cwd: setup.cwd.display().to_string(),
        other_roots: roots.iter().skip(1).cloned().collect(),
        os: std::env::consts::OS.to_owned(),
        date: today(setup.environment),
        shell: "bash".to_owned(),
        git_branch: repository.as_deref().and_then(agents::git_branch),
        sandbox: match tier {
            "none" => "none; commands run with the user's rights".to_owned(),
            tier => tier.to_owned(),
        },
    };
    agents::system_prompt(agent, &block, &instructions)
}

type Kept = (Arc<dyn JournalStore>, PathBuf, Option<TempDir>);

fn journal(setup: &Setup<'_>, id: &SessionId) -> Result<Kept, Failure> {
    if setup.keep {
        let state = StateDir::new(setup.dirs.state.clone());
        let dir = state.session_dir(setup.cwd, id);
        let journal =
            FileJournal::lock(&dir, id.clone()).map_err(|error| unusable(&dir, &error))?;
        return Ok((Arc::new(journal), dir, None));
    }
    let scratch = tempfile::Builder::new().prefix("posse-").tempdir().map_err(|error| {
        Failure::new("JRN002", Exit::Session, "there is no temporary directory")
            .because(error.to_string())
    })?;
    let dir = scratch.path().to_owned();
    Ok((Arc::new(MemoryJournal::default()), dir, Some(scratch)))
}

fn unusable(dir: &Path, error: &JournalError) -> Failure {
    let why = std::error::Error::source(error).map(ToString::to_string);
    let failure = Failure::new("JRN002", Exit::Session, error.to_string())
        .at(dir.display().to_string())
        .fix("make the state directory writable, set POSSE_HOME, or pass --no-transcript");
    match why {
        Some(why) => failure.because(why),
        None => failure,
    }
}

/// What must not be seen in any output: keys of providers, and what the environment calls a
/// secret.
fn secrets(setup: &Setup<'_>) -> Vec<SecretString> {
    let configured = setup.settings.providers.values().filter_map(|p| p.api_key.clone());
    let secret = |name: &&str| SECRET_NAMES.iter().any(|part| name.contains(part));
    let named = setup
        .environment
        .names("")
        .filter(secret)
        .filter_map(|name| setup.environment.get(name))
        .filter(|value| value.len() >= SECRET_BYTES_MIN)
        .map(SecretString::from);
    configured.chain(named).collect()
}

fn policy_settings(setup: &Setup<'_>, roots: Vec<String>) -> PolicySettings {
    let Settings { sandbox, permissions, .. } = setup.settings;
    let own = [&setup.dirs.config, &setup.dirs.state, &setup.dirs.cache];
    PolicySettings {
        roots,
        sandbox: SandboxMode::named(&sandbox.mode).unwrap_or_default(),
        network: Network::named(&sandbox.network).unwrap_or_default(),
        rules: permissions.clone(),
        readable_secrets: sandbox
            .readable_secrets
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        own_dirs: own.map(|dir| dir.display().to_string()).to_vec(),
        read_only_agents: agents::BUILT_IN
            .iter()
            .filter(|agent| agent.read_only)
            .map(|agent| agent.name.to_owned())
            .collect(),
    }
}

fn limits(settings: &Settings) -> Limits {
    let defaults = Limits::default();
    let provider = settings.default_provider.as_ref();
    let profile = provider.and_then(|name| settings.providers.get(name));
    let patience = profile.and_then(|profile| profile.patience).or(settings.patience);
    Limits {
        turns_max: settings.turns_max,
        duration_max: settings.timeout,
        patience: patience.unwrap_or(defaults.patience),
        ..defaults
    }
}

fn read_prompt(args: &RunArgs, settings: &Settings) -> Result<Prompt, Failure> {
    let wanted = match &args.prompt {
        Some(PromptArg::Text(text)) => Wanted::Text(text.clone()),
        Some(PromptArg::Stdin) => Wanted::Stdin,
        None => Wanted::Nothing,
    };
    prompt::read(wanted, &args.images, settings.image_bytes_max, &settings.image_detail)
}

/// Two lines on standard error: which session this is, and what confines it.
fn introduce(assembled: &Assembled, forgotten: bool) {
    let settings = &assembled.settings;
    let info = assembled.ports.provider.info();
    let kept = if forgotten { " (not kept, cannot be resumed)" } else { "" };
    let mut text = format!(
        "session {}{kept} · {} · {} via {}\n",
        settings.session_id, settings.agent, info.model, info.profile
    );
    if settings.tier == "none" {
        text.push_str("sandbox none: commands run with all of your rights\n");
    }
    io::stderr().write_all(text.as_bytes()).ok();
}

/// A log on standard error, if `-v` asks for one.
fn start_log(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
    log.with_target(true).try_init().ok();
}
