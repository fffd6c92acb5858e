//! `posse doctor policies`: collects the parts of the effective permission policy.

use std::collections::BTreeMap;

use posse_actors::event::{Grant, PermissionMode, SandboxTier};
use posse_actors::ports::{AnswerSource, CommandConfinement, NetworkAccess, Policy as _};
use serde_json::Value;

use crate::agents::{Agent, Roster, ToolSelection};
use crate::cli::ListArgs;
use crate::commands::{grants, notices, offline_commands, print};
use crate::config::{Environment, Fate, Settings};
use crate::doctor::policies::{self, ModeContext, PolicyPart, PolicyReport};
use crate::failure::{Exit, Failure};
use crate::network;
use crate::permission::{NetworkMode, PolicySettings, RulePolicy, SandboxMode};
use crate::start_mode::{conversation_mode, no_checkpoints};
use crate::wiring::{WorkspaceContext, confinement, place, skills, subagents};

/// Prints the report, as text or as JSON.
pub(super) fn run(args: &ListArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let found = place(&args.place, Vec::new(), environment)?;
    notices(&found.loaded);
    let report = report(&found, environment)?;
    Ok(print(&if args.json { report.json() } else { report.text() }))
}

fn report(
    found: &WorkspaceContext,
    environment: &Environment,
) -> Result<PolicyReport, Vec<Failure>> {
    let WorkspaceContext { cwd, dirs, loaded } = found;
    let settings = &loaded.settings;
    let tier = confinement::tier(dirs, settings, environment)?;
    let toolbox = offline_commands::toolbox(cwd, dirs.clone())?;
    let roster = offline_commands::roster(found, &toolbox);
    let invocations = subagents::invocations(&roster, settings);
    let own_dirs: Vec<String> = confinement::own_paths(dirs, settings)
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let sandbox = &settings.sandbox;
    let policy = PolicySettings {
        roots: vec![cwd.display().to_string()],
        sandbox: SandboxMode::named(&sandbox.mode).unwrap_or_default(),
        network: NetworkMode::named(&sandbox.network).unwrap_or_default(),
        rules: settings.permissions.clone(),
        project_rules: settings.project_rules,
        own_dirs: own_dirs.clone(),
        home: environment.get("HOME").map(str::to_owned),
        home_target: environment.home_target(),
        sandbox_off_given: sandbox.mode == "off",
        no_checkpoints: no_checkpoints(settings),
        ..PolicySettings::default()
    };
    let policy = RulePolicy::new(policy)?;
    let mode = mode(settings, &roster, &tier);
    let context = context(settings, mode, &tier);
    let restriction = policy.restriction(mode, &tier);
    let skills = skills::load(cwd, dirs, settings, environment);
    let grants = grants::rows(cwd, dirs, settings, environment)?;
    let applied = grants.iter().filter(|row| row["counts"] == true);
    let applied: Vec<Grant> =
        applied.filter_map(|row| serde_json::from_value(row.clone()).ok()).collect();
    Ok(PolicyReport {
        v: 1,
        confinement: confinement_parts(found, mode, restriction, &tier),
        trust: trust_parts(found, &roster.inert, &skills.inert),
        never: policies::never(&own_dirs),
        each_time: context.each_time(),
        rules: rule_parts(settings, context),
        grants: grants.iter().map(|row| grant_part(row, mode)).collect(),
        agents: roster
            .agents
            .iter()
            .filter(|agent| !agent.hidden)
            .map(|agent| agent_part(agent, &invocations, context))
            .collect(),
        hooks: hook_parts(found),
        otherwise: context.otherwise(),
        examples: policies::examples(&policy, &cwd.display().to_string(), &applied, mode, &tier),
    })
}

/// Permission mode of a new conversation of the configured main agent with a person.
fn mode(settings: &Settings, roster: &Roster, tier: &SandboxTier) -> PermissionMode {
    let mode = settings.permission_mode.unwrap_or_else(|| conversation_mode(settings, tier));
    roster.find(&settings.default_agent).map_or(mode, |agent| agent.first_mode(mode))
}

/// The decisions of `mode` with these settings on the sandbox tier `tier`.
fn context(settings: &Settings, mode: PermissionMode, tier: &SandboxTier) -> ModeContext {
    let sandbox = &settings.sandbox;
    let confinement = match tier {
        _ if sandbox.mode == "off" => CommandConfinement::None,
        SandboxTier::Full => CommandConfinement::Full,
        SandboxTier::Reduced => CommandConfinement::Reduced,
        SandboxTier::None | SandboxTier::Unknown(_) => CommandConfinement::None,
    };
    let mode = match mode {
        PermissionMode::Auto if no_checkpoints(settings).is_some() => PermissionMode::Edits,
        mode => mode,
    };
    let access = network::access(sandbox, tier, AnswerSource::Human);
    ModeContext {
        mode,
        confinement,
        is_read_only: sandbox.mode == "read-only",
        by_domain: access == NetworkAccess::Domains,
    }
}

fn confinement_parts(
    found: &WorkspaceContext,
    mode: PermissionMode,
    restriction: Option<String>,
    tier: &SandboxTier,
) -> Vec<PolicyPart> {
    let loaded = &found.loaded;
    let sandbox = &loaded.settings.sandbox;
    let from = |key: &str| {
        let leaf = loaded.layers.get(key);
        leaf.map_or_else(|| "built in".to_owned(), |leaf| leaf.origin.to_string())
    };
    let reach = |asking| network::words(network::access(sandbox, tier, asking));
    let network = format!(
        "sandbox.network {}: {} with a person at the terminal, {} without",
        sandbox.network,
        reach(AnswerSource::Human),
        reach(AnswerSource::Nobody)
    );
    let required = if sandbox.required { "required" } else { "not required" };
    let when = match loaded.settings.permission_mode {
        None => " (without a person, and for a single task: ask)",
        Some(_) => "",
    };
    let mut parts = vec![
        PolicyPart::new(
            format!("permissionMode: {}{when}", mode.about()),
            mode.as_str(),
            from("permissionMode"),
        ),
        PolicyPart::new("sandbox.mode of commands", sandbox.mode.clone(), from("sandbox.mode")),
        PolicyPart::new(
            format!("sandbox tier of this machine, {required}"),
            tier.to_string(),
            "`posse doctor` shows why",
        ),
        PolicyPart::new(network, sandbox.network.clone(), from("sandbox.network")),
        PolicyPart::new(
            "requests without a person; --yes allows them, except those of step 3 and commands that \
             nothing confines",
            "deny",
            "built in",
        ),
    ];
    if let Some(restriction) = restriction {
        parts.insert(1, PolicyPart::new(restriction, "limited", "this machine and its settings"));
    }
    parts
}

fn trust_parts(found: &WorkspaceContext, agents: &[String], skills: &[String]) -> Vec<PolicyPart> {
    let settings = &found.loaded.settings;
    let mut parts = Vec::new();
    let file = found.loaded.project.as_ref();
    let wanted = file.map(|file| file.wanted.as_slice()).unwrap_or_default();
    let waits = |setting: &&crate::config::ProjectSetting| setting.fate == Fate::Waits;
    let inert = wanted.iter().any(|one| waits(&one)) || !agents.is_empty() || !skills.is_empty();
    let (state, from) = match (settings.trust_project, inert, file.is_some()) {
        (true, _, _) => ("trusted", "--trust-project"),
        (false, true, _) => ("not trusted", "`posse trust add` changes it"),
        (false, false, true) => ("nothing waits for trust", "`posse trust` shows it"),
        (false, false, false) => ("nothing to trust", "built in"),
    };
    parts.push(PolicyPart::new("settings, agents and skills of the project", state, from));
    for setting in wanted {
        let (effect, from) = match setting.fate {
            Fate::Counts(_) => ("applies", "project"),
            Fate::Waits => ("ignored", "project, not trusted"),
            Fate::NotAllowed => ("ignored", "project, variable not allowed"),
            Fate::Refused(why) => ("ignored", why),
        };
        parts.push(PolicyPart::new(format!("setting {}", setting.key), effect, from));
    }
    let mut ignored = |what: &str, names: &[String]| {
        for name in names {
            parts.push(PolicyPart::new(
                format!("{what} {name}"),
                "ignored",
                "project, not trusted",
            ));
        }
    };
    ignored("the agent", agents);
    ignored("the skill", skills);
    parts
}

/// The configured rules: denials first, then requests, then permissions.
fn rule_parts(settings: &Settings, context: ModeContext) -> Vec<PolicyPart> {
    let own = settings.permissions.len().saturating_sub(settings.project_rules);
    let user = settings.permissions_from.as_deref().unwrap_or("configuration");
    let mut parts: Vec<PolicyPart> = settings
        .permissions
        .iter()
        .enumerate()
        .map(|(nth, rule)| {
            let (what, decision) = policies::rule(rule);
            let from = if nth < own { user } else { "the trusted project" };
            PolicyPart::new(what, context.rule_effect(&decision), from)
        })
        .collect();
    let order = ["deny", "ask", "allow", "unused"];
    parts.sort_by_key(|part| order.iter().position(|effect| *effect == part.effect));
    parts
}

/// A stored grant, as `posse grants list --json` prints it.
///
/// In the mode `plan`, only a grant for starting a subagent counts.
fn grant_part(row: &Value, mode: PermissionMode) -> PolicyPart {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let what = format!("{} {} ({})", text("operation"), text("target"), text("scope"));
    let in_mode = mode != PermissionMode::Plan || text("operation") == "agent";
    let effect = if row["counts"] == true && in_mode { "allow" } else { "unused" };
    PolicyPart::new(what, effect, format!("`posse grants revoke {}` ends it", text("id")))
}

fn agent_part(
    agent: &Agent,
    invocations: &BTreeMap<String, String>,
    context: ModeContext,
) -> PolicyPart {
    let tools = match &agent.tools {
        ToolSelection::All => "all tools".to_owned(),
        ToolSelection::Only(names) => format!("tools {}", names.join(", ")),
        ToolSelection::AllBut(names) => format!("all tools but {}", names.join(", ")),
    };
    let mut what = format!("{}: {tools}", agent.name);
    if agent.read_only {
        what.push_str("; read-only, everything else is denied");
    }
    for rule in &agent.rules {
        let (rule, decision) = policies::rule(rule);
        what.extend(["; ", &decision, " ", &rule]);
    }
    if let Some(decision) = agent.default_decision {
        what.extend(["; otherwise ", <&str>::from(decision)]);
    }
    let start = invocations.get(&agent.name).map(String::as_str);
    let effect = match start {
        Some(decision) => format!("start: {}", context.start(decision)),
        None => "main only".to_owned(),
    };
    let from = agent.source.place().unwrap_or("built in");
    PolicyPart::new(what, effect, from)
}

fn hook_parts(found: &WorkspaceContext) -> Vec<PolicyPart> {
    let origin = found.loaded.layers.get("hooks").map(|leaf| leaf.origin.to_string());
    let from = origin.unwrap_or_else(|| "configuration".to_owned());
    let part = |hook: &Value| {
        let text = |key: &str| hook[key].as_str().unwrap_or_default();
        let command = hook["command"].as_array().into_iter().flatten();
        let command: Vec<&str> = command.filter_map(Value::as_str).collect();
        let name =
            if text("name").is_empty() { command.join(" ") } else { text("name").to_owned() };
        let fails =
            if text("onFailure") == "block" { "its failure denies" } else { "its failure warns" };
        PolicyPart::new(format!("{} {name}: {fails}", text("event")), "may deny", from.clone())
    };
    found.loaded.settings.hooks.iter().map(part).collect()
}
