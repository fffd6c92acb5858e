//! `posse run`: assembles a session from arguments and settings, runs it, and returns the exit
//! code.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::agent_invocation::RequestOptions;
use posse_actors::context::ContextBudget;
use posse_actors::conversation::{Prompt, SessionId};
use posse_actors::delegation::Subagent;
use posse_actors::ledger::{Accounts, Budget};
use posse_actors::limits::Limits;
use posse_actors::ports::{
    AnswerSource, JournalError, JournalStore, Policy, Ports, Provider, ProviderInfo, Thinking,
    ToolSpec,
};
use posse_actors::root_session::{SessionHandle, SessionSettings};
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::agents::{self, Agent, EnvironmentBlock, Instructions, Roster, SKILL_TOOL, Skills};
use crate::cli::{InputFormat, OutputFormat, PromptArg, RunArgs};
use crate::config::{Dirs, Environment, Loaded, Settings};
use crate::failure::{ErrorCode, Exit, Failure, lines, printable};
use crate::front::headless::{self, OnHangup, RunFormat, RunOptions};
use crate::front::prompt::{self, Images, PromptSource};
use crate::frontend::Task;
use crate::frontend::remote_session::SessionServer;
use crate::hex::hex;
use crate::hooks::{self, Masking};
use crate::journal::{self, FileJournal, MemoryJournal, StateDir};
use crate::permission::{NetworkMode, PolicySettings, RulePolicy, SandboxMode};
use crate::project;
use crate::provider::replay::Tape;
use crate::tools;
use crate::tools::workspace::Workspace;
use crate::wiring::clock::{RealClock, RealIds, random, today};
use crate::wiring::confinement::{self, unenforced};
use crate::wiring::hooks::hook_settings;
use crate::wiring::model_price;
use crate::wiring::resume::{self, Resuming};
use crate::wiring::{
    WorkspaceContext, attach, authority, colors, contexts, descriptors, fallback,
    isolated_workspaces, notices, place, provider, roles, session_id, skills, stored_output,
    subagents, toolbox,
};

/// Parts of variable names whose values are secrets.
const SECRET_NAMES: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"];

/// Truncated length of the system-prompt digest. Used for change detection, not security.
const DIGEST_BYTES: usize = 8;

/// Minimum length of a redacted value: shorter ones are too common.
const SECRET_BYTES_MIN: usize = 8;

/// Inputs for assembling a session.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Working directory, resolved.
    pub cwd: &'a Path,
    /// Additional workspace roots.
    pub add_dirs: &'a [PathBuf],
    /// Configuration and state directories.
    pub dirs: &'a Dirs,
    /// Effective settings.
    pub settings: &'a Settings,
    /// The environment.
    pub environment: &'a Environment,
    /// Source of answers to permission requests.
    pub asking: AnswerSource,
    /// True if tools only describe their effects.
    pub dry_run: bool,
    /// Cassette that records provider and permission responses (`--record`).
    pub tape: Option<&'a Tape>,
    /// True if the session is stored.
    pub keep: bool,
}

/// A session that is ready to start.
#[expect(missing_debug_implementations, reason = "it is taken apart at once")]
pub struct Assembled {
    /// Its ports.
    pub ports: Ports,
    /// Its settings.
    pub settings: SessionSettings,
    /// Folder of the session.
    pub dir: PathBuf,
    /// Temporary folder for outputs of a session that is not stored.
    pub scratch: Option<TempDir>,
    /// Accepts attach clients, if the session is stored.
    pub session_server: SessionServer,
}

/// Output file of a run that lost its terminal, in the session's folder.
const LOG: &str = "run.log";

pub(crate) fn run(args: &RunArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let one = |error: Failure| vec![error];
    start_log(args.verbose);
    descriptors::check_free().map_err(one)?;
    let resuming = Resuming::of(args, environment).map_err(one)?;
    let args = &resuming.as_ref().map_or_else(|| args.clone(), |resuming| resuming.args.clone());
    let flags = resuming.as_ref().map_or_else(|| args.overrides(), Resuming::overrides);
    let WorkspaceContext { cwd, dirs, loaded } = place(&args.place, flags, environment)?;
    notices(&loaded);
    dirs.check_workspace(&cwd).map_err(one)?;
    let settings = &loaded.settings;
    // Created first: its certificates load on a separate thread.
    let model = provider::choose(settings, environment, &cwd).map_err(one)?;
    let tape = tape(args, &model.info(), &cwd, settings, environment).map_err(one)?;
    let driven = is_driven(args).map_err(one)?;
    if !args.images.is_empty()
        && let Some(failure) = provider::vision_error(settings, &model.info())
    {
        return Err(one(failure));
    }
    let prompt = read_prompt(args, settings, &cwd, driven).map_err(one)?;
    let load = || skills::load(&cwd, &dirs, settings, environment);
    let prompt = skills::with_requested_skills(prompt, &args.skills, load)?;
    let task = task(prompt, resuming.as_ref(), driven).map_err(one)?;
    let is_there = driven || (headless::can_ask() && !args.unattended);
    let asking = match (args.yes, is_there) {
        (true, _) => AnswerSource::Yes,
        (false, true) => AnswerSource::Human,
        (false, false) => AnswerSource::Nobody,
    };
    let setup = Setup {
        cwd: &cwd,
        add_dirs: &args.add_dirs,
        dirs: &dirs,
        settings,
        environment,
        asking,
        dry_run: args.dry_run,
        tape: tape.as_ref(),
        keep: !args.no_transcript,
    };
    let mut assembled = match resuming {
        Some(resuming) => resuming.assemble(&setup, model)?,
        None => assemble(&setup, model)?,
    };
    assembled.settings.noted = authority::ignored(&loaded);
    assembled.settings.own_budget = model_price::own_budget(&loaded.layers);
    print_header(&assembled, args, &loaded);
    let manner = manner(args, &assembled, &loaded, environment);
    let ended = match task {
        task if driven => {
            hold(assembled, async |session| headless::drive(session, task, manner).await)
        }
        Some(task) => perform(assembled, task, manner),
        // A run without a driver has a task, or failed before.
        None => Ok(Exit::Usage),
    };
    ended.map_err(one)
}

/// True if another program drives the session.
fn is_driven(args: &RunArgs) -> Result<bool, Failure> {
    let driven = args.input_format == InputFormat::StreamJson;
    if driven && args.output_format != OutputFormat::StreamJson {
        let what = "--input-format stream-json needs --output-format stream-json";
        let why = "questions and errors are events, and their answers need their ids";
        return Err(Failure::new(ErrorCode::FlagNeedsAnother, Exit::Usage, what)
            .because(why)
            .fix("pass both, or neither"));
    }
    Ok(driven)
}

/// First task. Only a driven session may start without one.
fn task(
    prompt: Option<Prompt>,
    resuming: Option<&Resuming>,
    driven: bool,
) -> Result<Option<Task>, Failure> {
    match (prompt, resuming) {
        (Some(prompt), _) => Ok(Some(Task::Prompt(prompt))),
        (None, Some(resuming)) if resuming.is_unfinished() => Ok(Some(Task::Continue)),
        (None, Some(resuming)) if !driven => Err(resuming.nothing_to_do()),
        (None, _) => Ok(None),
    }
}

/// Runs an assembled session to its end.
pub(crate) fn perform(
    assembled: Assembled,
    task: Task,
    manner: RunOptions,
) -> Result<Exit, Failure> {
    hold(assembled, async |session| headless::run(session, task, manner).await)
}

/// Runtime for sessions and front ends.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| {
        Failure::new(ErrorCode::InternalFailure, Exit::Internal, "no runtime")
            .because(error.to_string())
    })
}

/// Starts an assembled session and passes it to a front end until that returns.
fn hold(
    assembled: Assembled,
    front: impl AsyncFnOnce(SessionHandle) -> Exit,
) -> Result<Exit, Failure> {
    let internal = |what: String| Failure::new(ErrorCode::InternalFailure, Exit::Internal, what);
    let runtime = runtime()?;
    let Assembled { ports, settings, scratch, session_server, .. } = assembled;
    let exit = runtime.block_on(async {
        let session = SessionHandle::start(ports, settings).await;
        let session = session.map_err(|error| internal(error.to_string()))?;
        let mut attach_socket = session_server.start(&session);
        let exit = front(session).await;
        attach_socket.close().await;
        Ok(exit)
    });
    // A thread blocked in a system call must not keep the process alive.
    runtime.shutdown_background();
    drop(scratch);
    exit
}

/// Journal of a session and its lock.
pub(crate) struct JournalSettings {
    id: SessionId,
    journal: Arc<dyn JournalStore>,
    dir: PathBuf,
    scratch: Option<TempDir>,
    /// True if its folder was just created.
    is_new: bool,
}

/// Assembles a session with `model`.
pub fn assemble(setup: &Setup<'_>, model: Arc<dyn Provider>) -> Result<Assembled, Vec<Failure>> {
    let kept = JournalSettings::new(setup).map_err(|error| vec![error])?;
    let (ports, settings) = kept.or_remove(assemble_in(&kept, setup, model))?;
    let session_server = kept.session_server(setup.dirs);
    Ok(Assembled { ports, settings, dir: kept.dir, scratch: kept.scratch, session_server })
}

/// Assembles a session that is recorded in `kept`.
#[expect(
    clippy::too_many_lines,
    reason = "all that a session is made of, one part after the other"
)]
pub(crate) fn assemble_in(
    kept: &JournalSettings,
    setup: &Setup<'_>,
    model: Arc<dyn Provider>,
) -> Result<(Ports, SessionSettings), Vec<Failure>> {
    let one = |error: Failure| vec![error];
    let settings = setup.settings;
    let workspace = Workspace::open(setup.cwd, setup.add_dirs).map_err(one)?;
    for added in workspace.roots().skip(1) {
        setup.dirs.check_added(added).map_err(one)?;
    }
    let roots: Vec<String> = workspace.roots().map(|root| root.to_string_lossy().into()).collect();
    let folders = workspace.roots().map(Path::to_owned).collect();
    let secrets = secrets(settings, setup.environment);
    let masking = Masking::new(&secrets);
    let sandbox = confinement::sandbox(setup, folders, secrets).map_err(one)?;
    let tier = sandbox.tier().to_owned();
    let session_dir = kept.dir.clone();
    let mut env = toolbox::environment(settings, workspace, session_dir, setup.dry_run);
    env.written = sandbox.written();
    env.recall = stored_output::recall(&kept.journal, StateDir::new(setup.dirs.state.clone()));
    let budgets = Arc::clone(&env.budgets);
    let taped = |model| match setup.tape {
        Some(tape) => tape.recording(masking.model(model)),
        None => model,
    };
    let ready = |model| {
        let model = toolbox::counted(taped(model), &settings.tools, Arc::clone(&budgets));
        masking.model(model)
    };
    let fallbacks = fallback::all(settings, setup.environment, setup.cwd, ready).map_err(one)?;
    let model = ready(model);
    let sandbox = Arc::new(sandbox);
    let env = Arc::new(env);
    let mut toolbox = tools::builtin(Arc::clone(&env), Arc::clone(&sandbox));
    let specs: Vec<ToolSpec> = toolbox.iter().map(|tool| tool.spec().clone()).collect();
    let known: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let roster = known_agents(setup, &known);
    let agent = roster.choose(&settings.default_agent).map_err(one)?;
    let prompts = Prompts::read(setup, &roots, &tier);
    if let Some(tool) = skills::tool(&prompts.skills, &roster) {
        let taken = toolbox.register(tool).is_err();
        debug_assert!(!taken, "built-in tools have names of their own");
    }
    let worktrees = settings.multi_agent.then(|| {
        let worktrees = isolated_workspaces::worktrees(&kept.dir, setup.cwd, &sandbox)?;
        isolated_workspaces::tools(&mut toolbox, &env, &worktrees);
        Some(worktrees)
    });
    let root = project::root_of(setup.cwd);
    let toolbox = masking.tools(agents::noticing(&toolbox, &root, setup.cwd));
    let seen = specs.iter().filter(|spec| agent.tools.sees(spec));
    let mut names: Vec<String> = seen.map(|spec| spec.name.clone()).collect();
    names.extend(prompts.sees_skills(agent).then(|| SKILL_TOOL.to_owned()));
    let system_prompt = prompts.of(agent, &roster, settings.multi_agent);
    let digest = prompts.digest(agent, &roster, settings.multi_agent);
    let way = |name: &str| provider_of(setup, name).map(&ready);
    let served = |role: &str| {
        let served = roles::served(role, settings, setup.environment, setup.cwd)?;
        Ok(served.map(&ready))
    };
    let mut delegation =
        subagents::delegation(&roster, agent, &specs, settings, &prompts, way, served)
            .map_err(one)?;
    let hook_settings = hook_settings(setup, &kept.dir, &roots, &tier);
    // If the folder cannot be scanned, secrets are assumed.
    let exposed = sandbox.exposed_secrets(&kept.dir.join("tmp"));
    let secrets_in_reach = exposed.map_or(true, |exposed| !exposed.is_empty());
    let told = prompts.instructions.blocks.iter().map(|block| block.text.len()).sum();
    let context = contexts::settings(settings, setup.environment, setup.cwd, told, ready);
    let context = context.map_err(one)?;
    let policy_settings = policy_settings(setup, roots, secrets_in_reach, &roster);
    if let (Some(delegation), Some(worktrees)) = (&mut delegation, worktrees.flatten()) {
        let shared = isolated_workspaces::WorkspaceServices {
            env,
            sandbox: Arc::clone(&sandbox),
            masking: masking.clone(),
            policy: policy_settings.clone(),
            prompts: prompts.elsewhere(&roster, &delegation.subagents),
        };
        delegation.workplaces = Some(isolated_workspaces::workplaces(worktrees, shared));
    }
    let policy = rule_policy(setup, policy_settings)?;
    let hooks = hooks::hooks(hook_settings, sandbox, Arc::clone(&policy))?;
    let (price, budget) = model_price::affordable(settings, &model.info(), &fallbacks)?;
    let ports = Ports {
        provider: model,
        fallbacks,
        tools: Arc::new(toolbox),
        hooks,
        policy,
        grants: authority::grants(setup.cwd, setup.dirs, settings, &tier),
        journal: Arc::clone(&kept.journal),
        clock: Arc::new(RealClock::new()),
        ids: Arc::new(RealIds::new(process())),
    };
    let settings = SessionSettings {
        session_id: kept.id.clone(),
        posse: env!("CARGO_PKG_VERSION").to_owned(),
        cwd: setup.cwd.display().to_string(),
        agent: agent.name.clone(),
        system_prompt,
        tools: names,
        options: RequestOptions {
            stream: settings.streaming,
            thinking: thinking(agent, settings),
            ..RequestOptions::default()
        },
        asking: setup.asking,
        tier,
        limits: limits(settings),
        history: Vec::new(),
        resumption: None,
        instructions: digest,
        price: Some(price),
        budget,
        own_budget: Budget::default(),
        accounts: Accounts::default(),
        noted: Vec::new(),
        delegation,
        context,
        fail: posse_actors::root_session::FailPoints::none(),
    };
    Ok((ports, settings))
}

/// Reasoning effort of the main agent: a setting for this run takes precedence over the agent's.
fn thinking(agent: &Agent, settings: &Settings) -> Option<Thinking> {
    let insisted = settings.thinking.filter(|_| settings.thinking_insists);
    insisted.or(agent.thinking).or(settings.thinking)
}

/// Distinguishes ids of this process from those of others.
fn process() -> u32 {
    u32::try_from(random() & 0xffff_ffff).unwrap_or_default()
}

/// The provider of that name, with its own model.
fn provider_of(setup: &Setup<'_>, name: &str) -> Result<Arc<dyn Provider>, Failure> {
    let default_provider = Some(name.to_owned());
    let theirs = Settings { default_provider, model: None, ..setup.settings.clone() };
    provider::choose(&theirs, setup.environment, setup.cwd)
}

/// All agents; without delegation and with a built-in agent no files are searched.
fn known_agents(setup: &Setup<'_>, tools: &[String]) -> Roster {
    let settings = setup.settings;
    let built_in = Roster::built_in();
    if !settings.multi_agent && built_in.find(&settings.default_agent).is_some() {
        return built_in;
    }
    let roster = subagents::roster(setup.cwd, setup.dirs, settings, tools);
    io::stderr().write_all(subagents::remarks(&roster).as_bytes()).ok();
    io::stderr().write_all(lines(&roles::remarks(settings, &roster)).as_bytes()).ok();
    roster
}

/// Instructions common to all agents of a session.
pub(crate) struct Prompts {
    environment: EnvironmentBlock,
    instructions: Instructions,
    skills: Arc<Skills>,
}

impl Prompts {
    /// Instructions of `agent`, with the list of callable agents if it can delegate.
    pub(crate) fn of(&self, agent: &Agent, roster: &Roster, multi_agent: bool) -> String {
        let mut prompt = agents::system_prompt(agent, &self.environment, &self.instructions);
        if multi_agent {
            prompt.push_str(&agents::catalog(roster, agent, agents::CATALOG_BYTES_MAX));
        }
        prompt.push_str(&self.skills_of(agent));
        prompt
    }

    /// Instructions for subagents with another working directory.
    fn elsewhere(&self, roster: &Roster, subagents: &[Subagent]) -> BTreeMap<String, String> {
        let cwd = isolated_workspaces::ELSEWHERE.to_owned();
        let environment =
            EnvironmentBlock { cwd, other_roots: Vec::new(), ..self.environment.clone() };
        let (instructions, skills) = (self.instructions.clone(), Arc::clone(&self.skills));
        let there = Prompts { environment, instructions, skills };
        let named = subagents.iter().filter_map(|subagent| roster.find(&subagent.name));
        // A subagent there cannot call agents.
        named.map(|agent| (agent.name.clone(), there.of(agent, roster, false))).collect()
    }

    /// The list of skills that `agent` sees; empty if there are none for it.
    fn skills_of(&self, agent: &Agent) -> String {
        self.skills.catalog(agents::SKILL_CATALOG_BYTES_MAX, |name| agent.sees_skill(name))
    }

    /// True if `agent` may activate any skill.
    pub(crate) fn sees_skills(&self, agent: &Agent) -> bool {
        self.skills.all().any(|skill| !skill.only_user() && agent.sees_skill(skill.name()))
    }

    /// Hash of its instructions without parts that change by themselves, such as the date.
    fn digest(&self, agent: &Agent, roster: &Roster, multi_agent: bool) -> String {
        let environment =
            EnvironmentBlock { date: String::new(), git_branch: None, ..self.environment.clone() };
        let (instructions, skills) = (self.instructions.clone(), Arc::clone(&self.skills));
        let lasting = Prompts { environment, instructions, skills };
        let digest = Sha256::digest(lasting.of(agent, roster, multi_agent).as_bytes());
        hex(&digest[..DIGEST_BYTES])
    }

    fn read(setup: &Setup<'_>, roots: &[String], tier: &str) -> Prompts {
        let repository = agents::repository_root(setup.cwd);
        let root = repository.as_deref().unwrap_or(setup.cwd);
        let user = setup.dirs.config.join("AGENTS.md");
        let instructions = Instructions::read(&user, root, setup.cwd);
        io::stderr().write_all(lines(&instructions.notices).as_bytes()).ok();
        let environment = EnvironmentBlock {
            cwd: setup.cwd.display().to_string(),
            other_roots: roots.iter().skip(1).cloned().collect(),
            os: std::env::consts::OS.to_owned(),
            date: today(setup.environment),
            shell: "bash".to_owned(),
            git_branch: repository.as_deref().and_then(agents::git_branch),
            sandbox: confinement::briefing(tier, &setup.settings.sandbox, setup.asking),
        };
        let skills = skills::load(setup.cwd, setup.dirs, setup.settings, setup.environment);
        io::stderr().write_all(skills::remarks(&skills).as_bytes()).ok();
        Prompts { environment, instructions, skills: Arc::new(skills) }
    }
}

impl JournalSettings {
    /// Storage of an existing session.
    pub(crate) fn again(id: SessionId, journal: FileJournal, dir: PathBuf) -> JournalSettings {
        JournalSettings { id, journal: Arc::new(journal), dir, scratch: None, is_new: false }
    }

    /// Folder of its outputs.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns `made`. On failure removes a folder that was created for the session, which never
    /// started.
    pub(crate) fn or_remove<T>(&self, made: Result<T, Vec<Failure>>) -> Result<T, Vec<Failure>> {
        if made.is_err() && self.is_new && !journal::has_begun(&self.dir) {
            // A folder that cannot be removed is listed as empty; `posse sessions rm` removes it.
            std::fs::remove_dir_all(&self.dir).ok();
        }
        made
    }

    /// Accepts attach clients, if the session is stored in the state directory.
    pub(crate) fn session_server(&self, dirs: &Dirs) -> SessionServer {
        match self.scratch {
            None => attach::session_server(&self.dir, dirs),
            Some(_) => SessionServer::disabled(),
        }
    }

    /// Resources with the lifetime of the session.
    pub(crate) fn into_scratch(self) -> Option<TempDir> {
        self.scratch
    }

    /// New storage: in the state directory, or in memory if the session is not to be stored.
    pub(crate) fn new(setup: &Setup<'_>) -> Result<JournalSettings, Failure> {
        let id = session_id();
        if setup.keep {
            let state = StateDir::new(setup.dirs.state.clone());
            let dir = state.session_dir(setup.cwd, &id);
            let journal =
                FileJournal::lock(&dir, id.clone()).map_err(|error| unusable(&dir, &error))?;
            let journal = Arc::new(journal);
            return Ok(JournalSettings { id, journal, dir, scratch: None, is_new: true });
        }
        let scratch = tempfile::Builder::new().prefix("posse-").tempdir().map_err(|error| {
            Failure::new(
                ErrorCode::SessionFolderUnusable,
                Exit::Session,
                "cannot create a temporary directory",
            )
            .because(error.to_string())
        })?;
        let dir = scratch.path().to_owned();
        let journal = Arc::new(MemoryJournal::default());
        Ok(JournalSettings { id, journal, dir, scratch: Some(scratch), is_new: false })
    }
}

fn unusable(dir: &Path, error: &JournalError) -> Failure {
    let why = std::error::Error::source(error).map(ToString::to_string);
    let failure = Failure::new(ErrorCode::SessionFolderUnusable, Exit::Session, error.to_string())
        .at(dir.display().to_string())
        .fix("make the state directory writable, set POSSE_HOME, or pass --no-transcript");
    match why {
        Some(why) => failure.because(why),
        None => failure,
    }
}

/// Cassette of a run, without secrets, if requested. `info`: first provider.
pub(crate) fn tape(
    args: &RunArgs,
    info: &ProviderInfo,
    cwd: &Path,
    settings: &Settings,
    environment: &Environment,
) -> Result<Option<Tape>, Failure> {
    let Some(file) = &args.record else { return Ok(None) };
    let masking = Masking::new(&secrets(settings, environment));
    let chosen = settings.providers.get(&info.profile);
    let several = chosen.is_some_and(|chosen| !chosen.fallback.is_empty());
    let model = info.model.clone();
    Tape::create(model, several, file, cwd, masking.concealing()).map(Some)
}

/// Values to redact: provider keys and secrets of the environment.
fn secrets(settings: &Settings, environment: &Environment) -> Vec<SecretString> {
    let configured = settings.providers.values().filter_map(|p| p.api_key.clone());
    let secret = |name: &&str| SECRET_NAMES.iter().any(|part| name.contains(part));
    let named = environment
        .names("")
        .filter(secret)
        .filter_map(|name| environment.get(name))
        .filter(|value| value.len() >= SECRET_BYTES_MIN)
        // A path to a key is not a secret, and redacting it would break longer paths.
        .filter(|value| !(value.starts_with('/') && Path::new(value).exists()))
        .map(SecretString::from);
    configured.chain(named).collect()
}

/// Rule policy, or errors in the rules with their locations.
fn rule_policy(setup: &Setup<'_>, policy: PolicySettings) -> Result<Arc<dyn Policy>, Vec<Failure>> {
    let policy = RulePolicy::new(policy).map_err(|failures| {
        let from = setup.settings.permissions_from.as_deref();
        let placed = |failure: Failure| match from {
            Some(from) if failure.place.is_none() => failure.at(from),
            _ => failure,
        };
        failures.into_iter().map(placed).collect::<Vec<_>>()
    })?;
    Ok(Arc::new(policy))
}

fn policy_settings(
    setup: &Setup<'_>,
    roots: Vec<String>,
    secrets_in_reach: bool,
    roster: &Roster,
) -> PolicySettings {
    let Settings { sandbox, permissions, .. } = setup.settings;
    PolicySettings {
        roots,
        sandbox: SandboxMode::named(&sandbox.mode).unwrap_or_default(),
        network: NetworkMode::named(&sandbox.network).unwrap_or_default(),
        rules: permissions.clone(),
        project_rules: setup.settings.project_rules,
        readable_secrets: sandbox
            .readable_secrets
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        own_dirs: setup.dirs.own().iter().map(|dir| dir.display().to_string()).collect(),
        read_only_agents: subagents::readers(roster),
        agents: subagents::policies(roster),
        invocations: subagents::invocations(roster, setup.settings),
        multi_agent: setup.settings.multi_agent,
        home: setup.environment.get("HOME").map(str::to_owned),
        // From a flag or the user's own file: a project cannot set it.
        sandbox_off_given: sandbox.mode == "off",
        secrets_in_reach,
        relocated: None,
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
        attempts_max: settings.retry.attempts_max,
        backoff_first: settings.retry.base_delay.unwrap_or(defaults.backoff_first),
        backoff_max: settings.retry.max_delay.unwrap_or(defaults.backoff_max),
        context_main: contexts::budget(&settings.contexts.main, &ContextBudget::main()),
        context_child: contexts::budget(&settings.contexts.sub_agent, &ContextBudget::child()),
        ..defaults
    }
}

/// Reads the prompt. `driven`: standard input is not part of it, and it is optional.
fn read_prompt(
    args: &RunArgs,
    settings: &Settings,
    cwd: &Path,
    driven: bool,
) -> Result<Option<Prompt>, Failure> {
    let wanted = match &args.prompt {
        Some(PromptArg::Text(text)) => PromptSource::Text(text.clone()),
        Some(PromptArg::Stdin) => PromptSource::Stdin,
        None => PromptSource::Nothing,
    };
    let images = Images {
        named: &args.images,
        cwd,
        limits: toolbox::image_limits(settings),
        detail: &settings.image_detail,
    };
    match wanted {
        // Without a prompt the session continues; an accidental pipe does not matter.
        PromptSource::Nothing if args.resume.is_some() && args.images.is_empty() => Ok(None),
        PromptSource::Text(text) if driven => prompt::of_text(text, &images).map(Some),
        PromptSource::Nothing | PromptSource::Stdin if driven && args.images.is_empty() => Ok(None),
        PromptSource::Nothing | PromptSource::Stdin if driven => {
            Err(Failure::new(ErrorCode::PromptMissing, Exit::Usage, "--image needs a prompt here")
                .fix("put the image into a message on standard input"))
        }
        wanted => prompt::read(wanted, &images).map(Some),
    }
}

/// Prints the session and its sandbox to standard error.
fn print_header(assembled: &Assembled, args: &RunArgs, loaded: &Loaded) {
    let settings = &assembled.settings;
    let info = assembled.ports.provider.info();
    let kept = if args.no_transcript { " (not stored, cannot be resumed)" } else { "" };
    let mut text = format!(
        "session {}{kept} · {} · {} via {}\n",
        settings.session_id, settings.agent, info.model, info.profile
    );
    let sandbox = &loaded.settings.sandbox;
    text.push_str(&confinement::line(&settings.tier, sandbox, settings.asking));
    text.push_str(&unenforced(&loaded.layers, &settings.tier));
    if args.dry_run {
        text.push_str("dry run: nothing is written or run\n");
    }
    if let OnHangup::GoesOn(Some(log)) = hang_up(args, assembled) {
        let log = printable(&log.display().to_string());
        let parts = ["unattended: continues without its terminal and then writes to ", &log, "\n"];
        text.extend(parts);
    }
    io::stderr().write_all(text.as_bytes()).ok();
}

/// Output options of the run.
fn manner(
    args: &RunArgs,
    assembled: &Assembled,
    loaded: &Loaded,
    environment: &Environment,
) -> RunOptions {
    RunOptions {
        format: match args.output_format {
            OutputFormat::Text => RunFormat::Text,
            OutputFormat::Json => RunFormat::Json,
            OutputFormat::StreamJson => RunFormat::StreamJson,
        },
        interactive: assembled.settings.asking == AnswerSource::Human
            && args.input_format != InputFormat::StreamJson,
        color: colors(io::stderr().is_terminal(), environment),
        quiet: false,
        yes: args.yes,
        dry_run: args.dry_run,
        again: (!args.no_transcript).then(|| resume::again(assembled, args, loaded, environment)),
        hang_up: hang_up(args, assembled),
        worktrees: left_worktrees(assembled),
    }
}

/// Worktrees of subagents that were running when the session was interrupted.
fn left_worktrees(assembled: &Assembled) -> Vec<String> {
    let resumption = assembled.settings.resumption.as_ref();
    let delegated = resumption.into_iter().flat_map(|resumption| &resumption.replayed.delegated);
    let at_work = delegated.filter(|one| one.ended.is_none());
    at_work.filter_map(|one| one.workplace.clone()).collect()
}

/// Reaction to a hangup.
fn hang_up(args: &RunArgs, assembled: &Assembled) -> OnHangup {
    if !args.unattended {
        return OnHangup::Ends;
    }
    OnHangup::GoesOn((!args.no_transcript).then(|| assembled.dir.join(LOG)))
}

/// Starts a log on standard error, if `-v` requests one.
pub(crate) fn start_log(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
    log.with_target(true).try_init().ok();
}
