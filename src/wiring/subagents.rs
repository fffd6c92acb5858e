//! Loading of agents, with trust for those of a project, and settings of subagents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use posse_actors::delegation::{Caps, DIFF, Delegation, MERGE, Subagent, TOOLS};
use posse_actors::governor::GovernorLimits;
use posse_actors::ports::{Provider, Thinking, ToolSpec};

use crate::agents::{
    self, Agent, AgentDecision, AgentUse, CLAUDE_FOLDER, Folders, KnownNames, Roster, SKILL_TOOL,
    claude_trust_key,
};
use crate::config::{Dirs, Settings, resolved_rules};
use crate::failure::Failure;
use crate::hex::sha256;
use crate::permission::AgentPolicy;
use crate::project::{self, Identity};
use crate::provider::presets;
use crate::signed_store::SignedStore;
use crate::tools::present_plan::NAME as PRESENT_PLAN;
use crate::trust::TrustStore;
use crate::unused_settings;
use crate::warnings::{untrusted, warning_line};
use crate::wiring::model_price::price;
use crate::wiring::roles;
use crate::wiring::session::Prompts;

/// Loads all agents that apply in `cwd`. They may see `tools`, delegation tools and the skill tool.
pub(crate) fn roster(cwd: &Path, dirs: &Dirs, settings: &Settings, tools: &[String]) -> Roster {
    let root = project::root_of(cwd);
    let folder = project_folder(&root);
    // Files are not read before they are trusted, and most projects have none.
    let has_agents = folder.is_dir() || root.join(CLAUDE_FOLDER).is_dir();
    let trusted = has_agents.then(|| {
        let identity = Identity::of(&root).ok()?;
        TrustStore::new(SignedStore::new(&dirs.state)).find(&identity).ok().flatten()
    });
    let trusted = trusted.flatten().map(|trusted| trusted.agents).unwrap_or_default();
    let believes = |name: &str, bytes: &[u8]| {
        settings.trust_project || trusted.get(name).is_some_and(|known| *known == sha256(bytes))
    };
    let folders = Folders {
        user: Some(dirs.config.join("agents")),
        project: Some((folder, root)),
        home: dirs.home.clone(),
    };
    load(settings, tools, &folders, &believes)
}

fn load(
    settings: &Settings,
    tools: &[String],
    folders: &Folders,
    believes: &dyn Fn(&str, &[u8]) -> bool,
) -> Roster {
    // Always visible to agents that can delegate.
    let mut of_delegation = TOOLS.map(str::to_owned);
    of_delegation.sort();
    // Present with or without skills, so that a definition is valid on every machine.
    let always = of_delegation.into_iter().chain([SKILL_TOOL.to_owned()]);
    let tools: Vec<String> =
        tools.iter().filter(|name| *name != SKILL_TOOL).cloned().chain(always).collect();
    let known = KnownNames {
        tools: &tools,
        has_profile: &|name| {
            settings.providers.contains_key(name) || presets::preset(name).is_some()
        },
        check_rules: &|rules| {
            unused_settings::check_rules(rules).into_iter().map(|(_, wrong)| wrong).collect()
        },
        believes,
    };
    Roster::load(&settings.agents, folders, &known)
}

/// Agent folder of the project at `root`.
pub(crate) fn project_folder(root: &Path) -> PathBuf {
    root.join(".posse").join("agents")
}

/// SHA-256 of each agent file of the project at `root`, by the name of the agent; of an agent of
/// Claude Code, by the path of the file.
pub(crate) fn digests(root: &Path) -> BTreeMap<String, String> {
    let (own, claude) = (project_folder(root), root.join(CLAUDE_FOLDER));
    let own = agents::project_files(&own, root);
    let claude = agents::project_files(&claude, root);
    let claude = claude.map(|(name, bytes)| (claude_trust_key(&name), bytes));
    own.chain(claude).map(|(name, bytes)| (name, sha256(&bytes))).collect()
}

/// Path of the agent file of the project at `root` that [`digests`] knows by `name`.
pub(crate) fn agent_file(root: &Path, name: &str) -> PathBuf {
    if name.starts_with(CLAUDE_FOLDER) {
        return root.join(name);
    }
    project_folder(root).join(format!("{name}.md"))
}

/// Warnings about rejected, questionable and untrusted agents, one per line.
pub(crate) fn remarks(roster: &Roster) -> String {
    let refused = roster.refused().map(|failure| warning_line(failure, "; left out"));
    let odd = roster.remarks.iter().map(|failure| warning_line(failure, ""));
    refused.chain(odd).collect::<String>() + &untrusted("agents", &roster.inert)
}

/// Warnings about rejected agents of configuration files, one line each. Reads no agent files.
pub(crate) fn rejected(settings: &Settings, tools: &[String]) -> Vec<String> {
    let roster = load(settings, tools, &Folders::default(), &|_, _| false);
    roster.refused().map(|failure| warning_line(failure, "; left out").trim_end().into()).collect()
}

/// The roster of a session in which the agent of the settings is the main agent, used as `used`.
/// `notices` receives warnings about other agents. An error without a place gets that of
/// `defaultAgent`.
pub(crate) fn with_main_agent(
    roster: Roster,
    settings: &Settings,
    used: AgentUse,
    notices: &mut Vec<String>,
) -> Result<Roster, Failure> {
    let name = &settings.default_agent;
    let roster = roster.for_session(name, used, notices);
    let chosen = roster.and_then(|roster| roster.choose(name).map(drop).map(|()| roster));
    chosen.map_err(|failure| match &settings.default_agent_from {
        Some(place) if failure.place.is_none() => failure.at(place.clone()),
        _ => failure,
    })
}

/// Names of the agents that may only read.
pub(crate) fn readers(roster: &Roster) -> Vec<String> {
    roster.agents.iter().filter(|agent| agent.read_only).map(|agent| agent.name.clone()).collect()
}

/// Rules and default decision of each agent that has any.
pub(crate) fn policies(roster: &Roster, home: Option<&Path>) -> Vec<AgentPolicy> {
    let says = |agent: &&Agent| !agent.rules.is_empty() || agent.default_decision.is_some();
    let rules = |agent: &Agent| [resolved_rules(&agent.rules, home), agent.rules.clone()].concat();
    let policy = |agent: &Agent| AgentPolicy {
        name: agent.name.clone(),
        rules: rules(agent),
        default_decision: agent.default_decision.map(|decision| <&str>::from(decision).to_owned()),
    };
    roster.agents.iter().filter(says).map(policy).collect()
}

/// Decision (`allow`, `ask`, `deny`) about starting each callable, not hidden agent, by its name.
pub(crate) fn invocations(roster: &Roster, settings: &Settings) -> BTreeMap<String, String> {
    let default = match settings.delegation.invocation.as_str() {
        "allow" => AgentDecision::Allow,
        "deny" => AgentDecision::Deny,
        _ => AgentDecision::Ask,
    };
    let callable = roster.agents.iter().filter(|agent| agent.delegation.callable && !agent.hidden);
    callable
        .map(|agent| (agent.name.clone(), <&str>::from(agent.invocation(default)).to_owned()))
        .collect()
}

/// Reasoning effort of a subagent: from its definition, else its role, else the setting `thinking`.
pub(crate) fn thinking(agent: &Agent, settings: &Settings) -> Option<Thinking> {
    agent.thinking.or_else(|| roles::thinking(&agent.name, settings))
}

/// Names of the tools for delegation that the main agent sees with the settings `delegation`.
pub(crate) fn tools(delegation: &Delegation) -> Vec<String> {
    let isolates = delegation.workplaces.is_some();
    let seen = TOOLS.into_iter().filter(|name| isolates || ![DIFF, MERGE].contains(name));
    seen.map(str::to_owned).collect()
}

/// Settings of delegation, with all callable agents. `None` in single-agent mode, or if `main` can
/// call no agent. Agents select from `tools`. `way` creates the provider of a profile, `served`
/// that of an agent without one; `None`: the provider of the main agent.
pub(crate) fn delegation(
    roster: &Roster,
    main: &Agent,
    tools: &[ToolSpec],
    settings: &Settings,
    prompts: &Prompts,
    way: impl Fn(&str) -> Result<Arc<dyn Provider>, Failure>,
    served: impl Fn(&Agent) -> Result<Option<Arc<dyn Provider>>, Failure>,
) -> Result<Option<Delegation>, Failure> {
    if !settings.multi_agent {
        return Ok(None);
    }
    let names = |caller: &Agent| -> Vec<String> {
        roster.callable_by(caller).map(|agent| agent.name.clone()).collect()
    };
    let main_calls = names(main);
    if main_calls.is_empty() {
        return Ok(None);
    }
    let bounds = &settings.delegation;
    let mut subagents = Vec::new();
    let mut ways: BTreeMap<String, Arc<dyn Provider>> = BTreeMap::new();
    for agent in roster.agents.iter().filter(|agent| agent.delegation.callable && !agent.hidden) {
        let provider = match &agent.profile {
            None => served(agent)?,
            Some(name) => Some(if let Some(known) = ways.get(name) {
                Arc::clone(known)
            } else {
                let place = agent.source.place().unwrap_or_default().to_owned();
                let made = way(name).map_err(|failure| failure.at(place))?;
                ways.insert(name.clone(), Arc::clone(&made));
                made
            }),
        };
        let price = provider.as_ref().map(|provider| price(settings, &provider.info()));
        let skilled = agent.sees_any_skill(&prompts.skills).then_some(SKILL_TOOL);
        // A plan changes the mode of the session, so only the main agent presents one.
        let offered = tools.iter().filter(|tool| tool.name != PRESENT_PLAN);
        let seen = offered.filter(|tool| agent.tools.sees(tool));
        let seen = seen.map(|tool| tool.name.as_str()).chain(skilled);
        let seen: Vec<String> = seen.map(str::to_owned).collect();
        let info = provider.as_ref().map(|provider| provider.info());
        let uses = Some((info.as_ref(), seen.as_slice()));
        subagents.push(Subagent {
            name: agent.name.clone(),
            system_prompt: prompts.of(agent, roster, bounds.depth_max > 1, uses),
            tools: seen,
            provider,
            thinking: thinking(agent, settings),
            temperature: agent.temperature,
            price,
            calls: names(agent),
            turns_max: agent.limits.turns_max,
            duration_max: agent.limits.duration_max,
            depth_max: agent.delegation.depth_max,
            isolated: agent.isolated,
        });
    }
    let bytes = |tokens: u64| usize::try_from(tokens.saturating_mul(4)).unwrap_or(usize::MAX);
    Ok(Some(Delegation {
        main_calls,
        subagents,
        limits: GovernorLimits {
            depth_max: main.delegation.depth_max.unwrap_or(u32::MAX).min(bounds.depth_max),
            live_max: bounds.live_max,
            total_max: bounds.total_max,
            tokens_max: bounds.tokens_max,
            micro_usd_max: bounds.micro_usd_max,
            duration_max: bounds.seconds_max.map(Duration::from_secs),
        },
        caps: Caps {
            handoff_bytes_max: bytes(bounds.handoff_tokens_max),
            context_bytes_max: bytes(bounds.context_tokens_max),
            answer_bytes_max: bytes(bounds.result_tokens_max),
            main_answer_bytes_max: bytes(bounds.main_result_tokens_max),
        },
        turns_max: bounds.turns_max.unwrap_or(u32::MAX),
        remembers: bounds.remembers,
        workplaces: None,
    }))
}
