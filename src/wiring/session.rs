//! Assembly of a session: workspace, model, tools, policy and settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::agent_invocation::RequestOptions;
use posse_actors::conversation::SessionId;
use posse_actors::delegation::{Delegation, Subagent};
use posse_actors::event::{PromptOverrides, SandboxTier};
use posse_actors::ports::{
    AnswerSource, CheckpointStore, JournalError, JournalStore, NoCheckpoints, Policy, Ports,
    Provider, ProviderInfo, Thinking, ToolSpec, Toolbox,
};
use posse_actors::root_session::SessionSettings;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::agents::{
    self, Agent, AgentUse, EnvironmentBlock, Instructions, Roster, SKILL_TOOL, Skills,
};
use crate::attach;
use crate::checkpoint::{self, Retention, SessionStore};
use crate::config::{Dirs, Environment, Settings};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::frontend::remote_session::SessionServer;
use crate::hex::hex;
use crate::hooks::{self, Masking};
use crate::journal::{self, FileJournal, MemoryJournal, StateDir};
use crate::known_secrets::secrets;
use crate::network;
use crate::permission::{
    NetworkMode, PolicySettings, RulePolicy, SandboxMode, command_deletions, command_outputs,
    command_paths, command_programs, denied_reads, dry_run_policy,
};
use crate::project;
use crate::provider::replay::Tape;
use crate::run_limits::limits;
use crate::sandbox::{GitReferences, Sandbox, marks_folder, record_workspaces};
use crate::start_mode::{no_checkpoints, start_mode};
use crate::stored_output;
use crate::tool_counter;
use crate::tools;
use crate::tools::workspace::Workspace;
use crate::tools::worktree::Worktrees;
use crate::tools::{CommandReader, DeniedReads, ToolEnvironment};
use crate::tools::{budget, present_plan};
use crate::unused_settings;
use crate::wiring::clock::{RealClock, RealIds, random, today};
use crate::wiring::confinement::{self};
use crate::wiring::hooks::hook_settings;
use crate::wiring::model_price;
use crate::wiring::{
    authority, contexts, fallback, isolated_workspaces, provider, roles, session_id, skills,
    subagents, tool_settings, workspace_roots,
};
use posse_base::remove_tree::remove_tree;

/// Truncated length of the system-prompt digest. Used for change detection, not security.
const DIGEST_BYTES: usize = 8;

/// Inputs for assembling a session.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Working directory: absolute, without symbolic links.
    pub cwd: &'a Path,
    /// Additional workspace roots, besides the setting `workspace.roots`.
    pub add_dirs: &'a [PathBuf],
    /// Folders of posse: configuration and state.
    pub dirs: &'a Dirs,
    /// Effective settings.
    pub settings: &'a Settings,
    /// Environment variables.
    pub environment: &'a Environment,
    /// Source of answers to permission requests.
    pub asking: AnswerSource,
    /// Use of the main agent: a conversation or a single task.
    pub used: AgentUse,
    /// Texts of the user for the system prompt of the main agent.
    pub prompt: &'a PromptOverrides,
    /// True if tools only describe their effects.
    pub dry_run: bool,
    /// Cassette that records model replies (`--record`). `None`: nothing is recorded.
    pub tape: Option<&'a Tape>,
    /// True if the session is stored; false if its journal is only in memory.
    pub keep: bool,
}

/// A session that is ready to start.
#[expect(missing_debug_implementations, reason = "it is taken apart at once")]
pub struct Assembled {
    /// Ports of the session.
    pub ports: Ports,
    /// Settings of the session.
    pub settings: SessionSettings,
    /// Folder of the session.
    pub dir: PathBuf,
    /// Temporary folder of a session that is not stored, removed on drop. `None` if it is stored.
    pub scratch: Option<TempDir>,
    /// Server for attached clients. Disabled if the session is not stored.
    pub session_server: SessionServer,
}

/// Storage of a session: id, journal with its lock, and folder.
pub(crate) struct JournalSettings {
    id: SessionId,
    journal: Arc<dyn JournalStore>,
    dir: PathBuf,
    scratch: Option<TempDir>,
    /// True if the session is new and stored: its folder was created for it.
    is_new: bool,
}

/// Assembles a session with `model`; removes its new folder if that fails. `notices` always
/// receives one-line warnings: about the state folder, sandbox, agents, roles, instructions and
/// skills.
pub fn assemble(
    setup: &Setup<'_>,
    model: Arc<dyn Provider>,
    notices: &mut Vec<String>,
) -> Result<Assembled, Vec<Failure>> {
    let kept = JournalSettings::new(setup)?;
    let (ports, settings) = kept.or_remove(assemble_in(&kept, setup, model, notices))?;
    let session_server = kept.session_server(setup.dirs);
    Ok(Assembled { ports, settings, dir: kept.dir, scratch: kept.scratch, session_server })
}

/// Assembles a session that `kept` stores, in steps: workspace, models, tools, policy, session.
pub(crate) fn assemble_in(
    kept: &JournalSettings,
    setup: &Setup<'_>,
    model: Arc<dyn Provider>,
    notices: &mut Vec<String>,
) -> Result<(Ports, SessionSettings), Vec<Failure>> {
    let settings = setup.settings;
    let space = ConfinedWorkspace::open(kept, setup)?;
    notices.extend(setup.dirs.state_warning().into_iter().chain(space.restrictions(setup)));
    let mut models = ModelStack { setup, space: &space, of_subagents: Ok(None) };
    models.select_for_subagents(&model.info(), notices);
    let wrap = |model| models.wrap(model);
    let fallbacks = fallback::all(settings, setup.environment, setup.cwd, wrap)?;
    let model = models.wrap(model);
    let builtin = tools::builtin(Arc::clone(&space.env), Arc::clone(&space.sandbox));
    let specs: Vec<ToolSpec> = builtin.iter().map(|tool| tool.spec().clone()).collect();
    let known: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let roster = known_agents(setup, &known, notices);
    let roster = subagents::with_main_agent(roster, settings, setup.used, notices)?;
    let agent = &roster.choose(&settings.default_agent)?.with_prompt(setup.prompt);
    let prompts = Prompts::read(setup, &space, model.info(), notices);
    let (toolbox, worktrees) = session_tools(kept, setup, &space, builtin, &prompts, &roster);
    let seen = specs.iter().filter(|spec| agent.tools.sees(spec));
    let mut names: Vec<String> = seen.map(|spec| spec.name.clone()).collect();
    names.extend(agent.sees_any_skill(&prompts.skills).then(|| SKILL_TOOL.to_owned()));
    let policy_settings = policy_settings(kept, setup, &space, &roster, model.info());
    let delegation =
        delegation(&models, agent, &specs, &roster, &prompts, worktrees, &policy_settings)?;
    let mut shown = names.clone();
    shown.extend(delegation.iter().flat_map(subagents::tools));
    let told = prompts.instructions.blocks.iter().map(|block| block.text.len()).sum();
    let context = contexts::settings(settings, setup.environment, setup.cwd, told, wrap)?;
    let policy = rule_policy(setup, policy_settings)?;
    let mode = start_mode(settings, setup.used, setup.asking, &space.tier);
    let mode = agent.first_mode(mode);
    notices.extend(policy.restriction(mode, &space.tier));
    let hook_settings = hook_settings(setup, &kept.dir, &space.roots, &space.tier);
    let hooks = hooks::hooks(hook_settings, Arc::clone(&space.sandbox), Arc::clone(&policy))?;
    let (price, budget) = model_price::affordable(settings, &model.info(), &fallbacks)?;
    let ports = Ports {
        provider: model,
        fallbacks,
        tools: Arc::new(toolbox),
        hooks,
        policy,
        grants: authority::grants(setup.cwd, setup.dirs, settings, &space.tier),
        checkpoints: space.checkpoint_store(),
        journal: Arc::clone(&kept.journal),
        clock: Arc::new(RealClock::new()),
        ids: Arc::new(RealIds::new(process())),
    };
    let session = SessionSettings {
        posse: env!("CARGO_PKG_VERSION").to_owned(),
        system_prompt: prompts.of(agent, &roster, lists(agent, settings), Some((None, &shown)))
            + present_plan::note(mode, &shown),
        tools: names,
        options: RequestOptions {
            stream: settings.streaming,
            thinking: thinking(agent, settings),
            temperature: agent.temperature,
            ..RequestOptions::default()
        },
        asking: setup.asking,
        permission_mode: mode,
        tier: space.tier,
        limits: agent.limits.of_session(limits(settings)),
        instructions: prompts.digest(agent, &roster, lists(agent, settings)),
        price: Some(price),
        budget,
        own_prompt: setup.prompt.clone(),
        delegation,
        context,
        ..SessionSettings::new(kept.id.clone(), setup.cwd.display().to_string(), agent.name.clone())
    };
    notices.extend(record_roots(&space.roots, settings));
    Ok((ports, session))
}

/// Records the folders that commands of a session with these roots may write. Returns a warning if
/// that fails; then commands do not start.
fn record_roots(roots: &[String], settings: &Settings) -> Option<String> {
    let writable = workspace_roots::writable(roots, settings);
    let error = record_workspaces(&writable).err()?;
    Some(format!("warning: the folders of the workspace are not recorded: {error}"))
}

/// Workspace of a session, and the sandbox and environment of its tools.
struct ConfinedWorkspace {
    roots: Vec<String>,
    /// Sandbox tier of commands.
    tier: SandboxTier,
    masking: Masking,
    sandbox: Arc<Sandbox>,
    env: Arc<ToolEnvironment>,
    checkpoints: Option<Arc<SessionStore>>,
}

impl ConfinedWorkspace {
    fn open(kept: &JournalSettings, setup: &Setup<'_>) -> Result<ConfinedWorkspace, Failure> {
        let git = GitReferences::new(setup.environment.home(), setup.environment.config_home());
        let workspace = workspace_roots::open(setup.cwd, setup.add_dirs, setup.settings)?
            .with_git_settings(git);
        for added in workspace.roots().skip(1) {
            setup.dirs.check_added(added)?;
        }
        let roots = workspace.roots().map(|root| root.to_string_lossy().into()).collect();
        let folders = workspace.roots().map(Path::to_owned).collect();
        let secrets = secrets(setup.settings, setup.environment);
        let masking = Masking::new(&secrets);
        let sandbox = confinement::sandbox(setup, folders, secrets)?;
        let readable = crate::secrets::readable::ReadableSecrets::new(
            setup.settings.sandbox.readable_secrets.clone(),
        );
        let workspace = workspace.with_secret_files(sandbox.secret_files(), readable);
        let tier = sandbox.tier();
        let session_dir = kept.dir.clone();
        let mut env =
            tool_settings::environment(setup.settings, workspace, session_dir, setup.dry_run);
        let (rules, home) = (&setup.settings.permissions, setup.environment.home_target());
        env.denied_reads =
            DeniedReads::new(|tool, group| denied_reads(rules, (tool, group), home.as_deref()))?;
        env.written = sandbox.written();
        env.commands = CommandReader::new(
            command_paths,
            command_programs,
            command_outputs,
            command_deletions,
            setup.environment.get("HOME").map(str::to_owned),
        );
        let access = network::access(&setup.settings.sandbox, &tier, setup.asking);
        let (network, variables) = (&setup.settings.network, setup.environment);
        env.egress = network::egress(access, network, variables, setup.asking);
        env.recall = stored_output::reader(&kept.journal, StateDir::new(setup.dirs.state.clone()));
        let checkpoints = kept.checkpoints(setup, &env.workspace);
        let (sandbox, env) = (sandbox.into(), env.into());
        Ok(ConfinedWorkspace { roots, tier, masking, sandbox, env, checkpoints })
    }

    /// Warnings about what the sandbox and the network of commands lack.
    fn restrictions(&self, setup: &Setup<'_>) -> Vec<String> {
        let unused = network::unused_domains(setup.settings, &self.tier, setup.asking);
        confinement::weakened(&self.sandbox).into_iter().chain(unused).collect()
    }

    /// Store of checkpoints, as a port of the kernel.
    fn checkpoint_store(&self) -> Arc<dyn CheckpointStore> {
        self.checkpoints.as_ref().map_or_else(NoCheckpoints::port, SessionStore::port)
    }

    /// True on the reduced tier if commands can read secret files or posse's folders below the
    /// roots, or the scan fails. False on other tiers, even without a sandbox.
    fn may_expose_secrets(&self, session_dir: &Path) -> bool {
        let exposed = self.sandbox.exposed_secrets(&session_dir.join("tmp"));
        exposed.map_or(true, |exposed| !exposed.is_empty())
    }
}

/// Wraps the providers of a session, and creates those of profiles and roles.
struct ModelStack<'a> {
    setup: &'a Setup<'a>,
    space: &'a ConfinedWorkspace,
    /// Wrapped provider of subagents without a profile and a role. `None`: that of the main agent.
    of_subagents: Result<Option<Arc<dyn Provider>>, Failure>,
}

impl ModelStack<'_> {
    /// Wraps a provider: redaction outside, then the reset of tool budgets, then the recorder of
    /// `--record`, which stores redacted text.
    fn wrap(&self, model: Arc<dyn Provider>) -> Arc<dyn Provider> {
        let masking = &self.space.masking;
        let model = match self.setup.tape {
            Some(tape) => tape.recording(masking.model(model)),
            None => model,
        };
        let budgets = Arc::clone(&self.space.env.budgets);
        masking.model(tool_counter::counted(model, &self.setup.settings.tools, budgets))
    }

    /// The wrapped provider of the profile `name`, with the profile's model.
    fn of_profile(&self, name: &str) -> Result<Arc<dyn Provider>, Failure> {
        provider_of(self.setup, name).map(|model| self.wrap(model))
    }

    /// Creates the provider of subagents if flags or the resumed session selected `main` for the
    /// main agent only. Adds a notice that names the model of subagents.
    fn select_for_subagents(&mut self, main: &ProviderInfo, notices: &mut Vec<String>) {
        let Setup { settings, environment, cwd, .. } = self.setup;
        let Some(selection) = settings.subagent_model.clone().filter(|_| settings.multi_agent)
        else {
            return;
        };
        let theirs = Settings {
            default_provider: selection.provider,
            model: selection.model,
            ..(*settings).clone()
        };
        let chosen = provider::choose(&theirs, environment, cwd);
        let chosen = chosen.map(|model| Some(model).filter(|model| model.info() != *main));
        match &chosen {
            Ok(None) => {}
            Ok(Some(model)) => {
                let ProviderInfo { profile, model, .. } = model.info();
                notices.push(format!(
                    "subagents use {profile}: {model}, as configured; --provider and --model select \
                     for the main agent only"
                ));
            }
            Err(failure) => notices.push(format!(
                "{}: subagents use the model of the main agent: {}",
                failure.code, failure.what
            )),
        }
        self.of_subagents = chosen.map(|chosen| chosen.map(|model| self.wrap(model)));
    }

    /// The wrapped provider of a subagent without a profile: that of its role, else the selected
    /// one. `None`: that of the main agent.
    fn of_subagent(&self, agent: &Agent) -> Result<Option<Arc<dyn Provider>>, Failure> {
        if let Some(served) = self.of_role(&agent.name)? {
            return Ok(Some(served));
        }
        match (agent.inherits_root, &self.of_subagents) {
            (Some(true), _) | (None, Err(_)) => Ok(None),
            (_, Ok(chosen)) => Ok(chosen.clone()),
            (Some(false), Err(failure)) => Err(failure.clone()),
        }
    }

    /// The wrapped provider of a role. `None` if no profile or model is configured for the role.
    fn of_role(&self, role: &str) -> Result<Option<Arc<dyn Provider>>, Failure> {
        let Setup { settings, environment, cwd, .. } = self.setup;
        let served = roles::served(role, settings, environment, cwd)?;
        Ok(served.map(|model| self.wrap(model)))
    }
}

/// The tools of a session, wrapped: `builtin`, the tool for skills and, with delegation in a git
/// repository, the tools for worktrees. Also returns the manager of worktrees in that case.
fn session_tools(
    kept: &JournalSettings,
    setup: &Setup<'_>,
    space: &ConfinedWorkspace,
    mut builtin: Toolbox,
    prompts: &Prompts,
    roster: &Roster,
) -> (Toolbox, Option<Arc<Worktrees>>) {
    let budgets = &space.env.budgets;
    if let Some(tool) = skills::tool(&prompts.skills, roster) {
        let taken = builtin.register(budget::within(budgets, tool)).is_err();
        debug_assert!(!taken, "built-in tools have names of their own");
    }
    if let Some(checkpoints) = &space.checkpoints {
        builtin.register(checkpoints.tool(Arc::clone(&space.env.reads))).ok();
    }
    let multi_agent = setup.settings.multi_agent;
    let worktrees =
        multi_agent.then(|| isolated_workspaces::worktrees(&kept.dir, setup.cwd, &space.sandbox));
    let worktrees = worktrees.flatten();
    if let Some(worktrees) = &worktrees {
        isolated_workspaces::tools(&mut builtin, &space.env, worktrees);
    }
    let root = project::root_of(setup.cwd);
    let denied = &space.env.denied_reads.read_file;
    let tools = agents::with_nested_instructions(&builtin, &root, setup.cwd, denied);
    (space.masking.tools(tools), worktrees)
}

/// The delegation settings of a session. `None` in single-agent mode, or if the main agent can call
/// no agent.
fn delegation(
    models: &ModelStack<'_>,
    agent: &Agent,
    specs: &[ToolSpec],
    roster: &Roster,
    prompts: &Prompts,
    worktrees: Option<Arc<Worktrees>>,
    policy: &PolicySettings,
) -> Result<Option<Delegation>, Failure> {
    let ModelStack { setup, space, .. } = models;
    let of_profile = |name: &str| models.of_profile(name);
    let of_subagent = |agent: &Agent| models.of_subagent(agent);
    let settings = setup.settings;
    let made =
        subagents::delegation(roster, agent, specs, settings, prompts, of_profile, of_subagent)?;
    let Some(mut delegation) = made else { return Ok(None) };
    if let Some(worktrees) = worktrees {
        let shared = isolated_workspaces::WorkspaceServices {
            env: Arc::clone(&space.env),
            sandbox: Arc::clone(&space.sandbox),
            masking: space.masking.clone(),
            policy: policy.clone(),
            prompts: prompts.of_subagents(roster, &delegation.subagents),
        };
        delegation.workplaces = Some(isolated_workspaces::workspace_factory(worktrees, shared));
    }
    Ok(Some(delegation))
}

/// Reasoning effort of the main agent: from a flag or environment variable, else from the agent's
/// definition, else from a configuration file.
fn thinking(agent: &Agent, settings: &Settings) -> Option<Thinking> {
    let insisted = settings.thinking.filter(|_| settings.thinking_insists);
    insisted.or(agent.thinking).or(settings.thinking)
}

/// Random number that distinguishes ids of this process from those of other processes.
fn process() -> u32 {
    u32::try_from(random() & 0xffff_ffff).unwrap_or_default()
}

/// Creates the provider of the profile `name`, with the profile's model.
fn provider_of(setup: &Setup<'_>, name: &str) -> Result<Arc<dyn Provider>, Failure> {
    let default_provider = Some(name.to_owned());
    let theirs = Settings { default_provider, model: None, ..setup.settings.clone() };
    provider::choose(&theirs, setup.environment, setup.cwd)
}

/// All agents. In single-agent mode with a built-in main agent, only built-in agents: files
/// are read only to check roles that no built-in agent has. Rejected agents of the configuration are
/// reported in each mode.
fn known_agents(setup: &Setup<'_>, tools: &[String], notices: &mut Vec<String>) -> Roster {
    let settings = setup.settings;
    let built_in = Roster::built_in();
    if !settings.multi_agent && built_in.find(&settings.default_agent).is_some() {
        // A role may belong to an agent of a file.
        if !roles::remarks(settings, &built_in).is_empty() {
            let roster = subagents::roster(setup.cwd, setup.dirs, settings, tools);
            notices.extend(roles::remarks(settings, &roster));
        }
        notices.extend(subagents::rejected(settings, tools));
        return built_in;
    }
    let roster = subagents::roster(setup.cwd, setup.dirs, settings, tools);
    notices.extend(subagents::remarks(&roster).lines().map(str::to_owned));
    notices.extend(roles::remarks(settings, &roster));
    roster
}

/// Environment description, instructions and skills for the system prompts of all agents.
#[derive(Clone)]
pub(crate) struct Prompts {
    environment: EnvironmentBlock,
    /// Provider and model of the main agent.
    main: ProviderInfo,
    instructions: Instructions,
    pub(crate) skills: Arc<Skills>,
}

impl Prompts {
    /// System prompt of `agent`. With `multi_agent`, it lists the agents that `agent` can call.
    /// `uses`: its own provider (`None`: that of the main agent) and the names of its tools, which the
    /// prompt names; `None` leaves them out.
    pub(crate) fn of(
        &self,
        agent: &Agent,
        roster: &Roster,
        multi_agent: bool,
        uses: Option<(Option<&ProviderInfo>, &[String])>,
    ) -> String {
        let mut environment = self.environment.clone();
        if let Some((own, tools)) = uses {
            let ProviderInfo { profile, model, .. } = own.unwrap_or(&self.main).clone();
            (environment.provider, environment.model) = (profile, model);
            environment.agent.clone_from(&agent.name);
            environment.tools = tools.to_vec();
        }
        let mut prompt = agents::system_prompt(agent, &environment, &self.instructions);
        if multi_agent {
            prompt.push_str(&agents::catalog(roster, agent, agents::CATALOG_BYTES_MAX));
        }
        prompt.push_str(&self.skills_of(agent));
        prompt
    }

    /// System prompts of `subagents` by name, with `ELSEWHERE` as the working directory.
    fn of_subagents(&self, roster: &Roster, subagents: &[Subagent]) -> BTreeMap<String, String> {
        let cwd = isolated_workspaces::ELSEWHERE.to_owned();
        let environment =
            EnvironmentBlock { cwd, other_roots: Vec::new(), ..self.environment.clone() };
        let there = Prompts { environment, ..self.clone() };
        let named = subagents.iter().filter_map(|one| Some((one, roster.find(&one.name)?)));
        let prompt = |(subagent, agent): (&Subagent, &Agent)| {
            let own = subagent.provider.as_ref().map(|provider| provider.info());
            let uses = Some((own.as_ref(), subagent.tools.as_slice()));
            // A subagent there cannot call agents.
            (agent.name.clone(), there.of(agent, roster, false, uses))
        };
        named.map(prompt).collect()
    }

    /// The list of skills that `agent` sees, as text; empty if it sees none.
    fn skills_of(&self, agent: &Agent) -> String {
        self.skills.catalog(agents::SKILL_CATALOG_BYTES_MAX, |name| agent.sees_skill(name))
    }

    /// Hash of the system prompt of `agent`, without the date, the git branch, and the provider, model
    /// and tools of the agent: 16 hex digits.
    fn digest(&self, agent: &Agent, roster: &Roster, multi_agent: bool) -> String {
        let environment =
            EnvironmentBlock { date: String::new(), git_branch: None, ..self.environment.clone() };
        let lasting = Prompts { environment, ..self.clone() };
        let digest = Sha256::digest(lasting.of(agent, roster, multi_agent, None).as_bytes());
        hex(&digest[..DIGEST_BYTES])
    }

    fn read(
        setup: &Setup<'_>,
        space: &ConfinedWorkspace,
        main: ProviderInfo,
        notices: &mut Vec<String>,
    ) -> Prompts {
        let (root, denied) = (project::root_of(setup.cwd), &space.env.denied_reads.read_file);
        let user = setup.dirs.config.join("AGENTS.md");
        let instructions = Instructions::read(&user, &root, setup.cwd, denied);
        notices.extend(instructions.notices.iter().cloned());
        let environment = EnvironmentBlock {
            cwd: setup.cwd.display().to_string(),
            other_roots: space.roots.iter().skip(1).cloned().collect(),
            os: std::env::consts::OS.to_owned(),
            date: today(setup.environment),
            shell: "bash".to_owned(),
            git_branch: agents::git_branch(&root),
            sandbox: confinement::briefing(&space.tier, &setup.settings.sandbox, setup.asking),
            ..EnvironmentBlock::default()
        };
        let skills = skills::load(setup.cwd, setup.dirs, setup.settings, setup.environment);
        notices.extend(skills.summary());
        notices.extend(unused_settings::disabled_skills(setup.settings, &skills));
        Prompts { environment, main, instructions, skills: Arc::new(skills) }
    }
}

impl JournalSettings {
    /// Storage of an existing session, whose journal is open.
    pub(crate) fn again(id: SessionId, journal: FileJournal, dir: PathBuf) -> JournalSettings {
        JournalSettings { id, journal: Arc::new(journal), dir, scratch: None, is_new: false }
    }

    /// Folder of the session.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns `made`. If it is an error, removes the folder that was created for the session,
    /// unless the journal has records.
    pub(crate) fn or_remove<T>(&self, made: Result<T, Vec<Failure>>) -> Result<T, Vec<Failure>> {
        if made.is_err() && self.is_new && !journal::has_begun(&self.dir) {
            // A folder that cannot be removed is listed as empty; `posse sessions rm` removes it.
            remove_tree(&self.dir).ok();
        }
        made
    }

    /// Checkpoints of the session, in the folder of the project, or in that of a session that is
    /// not stored. `None` if none are taken.
    fn checkpoints(&self, setup: &Setup<'_>, workspace: &Workspace) -> Option<Arc<SessionStore>> {
        let settings = &setup.settings.checkpoints;
        if setup.dry_run || no_checkpoints(setup.settings).is_some() {
            return None;
        }
        let state = StateDir::new(setup.dirs.state.clone());
        let project = || state.project_dir(setup.cwd);
        let folder = self.scratch.as_ref().map_or_else(project, |_| self.dir.clone());
        let retention = Retention::new(settings.keep_days, settings.store_bytes_max);
        let retention = Some(retention).filter(|_| self.scratch.is_none());
        let (folder, workspace) = (folder.join(checkpoint::FOLDER), workspace.clone());
        let marks = marks_folder(&setup.dirs.state);
        Some(SessionStore::new(folder, workspace, settings.file_bytes_max, retention, marks))
    }

    /// Server for attached clients. Disabled if the session is not stored.
    pub(crate) fn session_server(&self, dirs: &Dirs) -> SessionServer {
        match self.scratch {
            None => session_server(&self.dir, dirs),
            Some(_) => SessionServer::disabled(),
        }
    }

    /// The temporary folder of a session that is not stored, removed on drop; else `None`.
    pub(crate) fn into_scratch(self) -> Option<TempDir> {
        self.scratch
    }

    /// New storage: in the state directory, or in memory and a temporary folder if the session is
    /// not to be stored.
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
    Failure::new(ErrorCode::SessionFolderUnusable, Exit::Session, error.to_string())
        .at(dir.display().to_string())
        .caused_by(error)
        .fix("make the state directory writable, set POSSE_HOME, or pass --no-transcript")
}

/// Creates the cassette `file` of a run, with secrets redacted. `None` if `file` is `None`. `info`
/// describes the selected provider.
pub(crate) fn tape(
    file: Option<&Path>,
    info: &ProviderInfo,
    cwd: &Path,
    settings: &Settings,
    environment: &Environment,
) -> Result<Option<Tape>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let masking = Masking::new(&secrets(settings, environment));
    let chosen = settings.providers.get(&info.profile);
    let several = chosen.is_some_and(|chosen| !chosen.fallback.is_empty());
    let model = info.model.clone();
    Tape::create(model, several, file, cwd, masking.redactor()).map(Some)
}

/// Creates the rule policy. Errors without a location get that of the setting `permissions`.
fn rule_policy(setup: &Setup<'_>, policy: PolicySettings) -> Result<Arc<dyn Policy>, Vec<Failure>> {
    let policy = RulePolicy::new(policy).map_err(|failures| {
        let from = setup.settings.permissions_from.as_deref();
        let placed = |failure: Failure| match from {
            Some(from) if failure.place.is_none() => failure.at(from),
            _ => failure,
        };
        failures.into_iter().map(placed).collect::<Vec<_>>()
    })?;
    Ok(dry_run_policy(Arc::new(policy), setup.dry_run))
}

fn policy_settings(
    kept: &JournalSettings,
    setup: &Setup<'_>,
    space: &ConfinedWorkspace,
    roster: &Roster,
    main: ProviderInfo,
) -> PolicySettings {
    let Settings { sandbox, permissions, .. } = setup.settings;
    let shown = |path: &PathBuf| path.display().to_string();
    PolicySettings {
        roots: space.roots.clone(),
        sandbox: SandboxMode::named(&sandbox.mode).unwrap_or_default(),
        network: NetworkMode::named(&sandbox.network).unwrap_or_default(),
        rules: permissions.clone(),
        project_rules: setup.settings.project_rules,
        readable_secrets: sandbox.readable_secrets.iter().map(shown).collect(),
        own_dirs: confinement::own_paths(setup.dirs, setup.settings).iter().map(shown).collect(),
        read_only_agents: subagents::readers(roster),
        agents: subagents::policies(
            roster,
            setup.environment.home_target().as_deref().map(Path::new),
        ),
        provider: main.profile,
        invocations: subagents::invocations(roster, setup.settings),
        multi_agent: setup.settings.multi_agent,
        home: setup.environment.get("HOME").map(str::to_owned),
        home_target: setup.environment.home_target(),
        // From a flag or the user's own file: a project cannot set it.
        sandbox_off_given: sandbox.mode == "off",
        secrets_in_reach: space.may_expose_secrets(&kept.dir),
        no_checkpoints: no_checkpoints(setup.settings),
        ..PolicySettings::default()
    }
}

/// Server that lets clients attach to the session in `dir`.
fn session_server(dir: &Path, dirs: &Dirs) -> SessionServer {
    let place = attach::SocketAddress::new(dirs.state.clone(), dir.join(journal::SOCKET));
    SessionServer::new(move |session, reverts| {
        Box::new(attach::Host::begin(session.clone(), place, reverts))
    })
}

/// True if `agent`, as the main agent, may call agents at all.
fn lists(agent: &Agent, settings: &Settings) -> bool {
    let depth_max = agent.delegation.depth_max.unwrap_or(u32::MAX);
    settings.multi_agent && depth_max.min(settings.delegation.depth_max) > 0
}
