//! Permission policy: a pure function of a call and its situation.
//!
//! `covered` fixes the order: denials, permission requests that only a person may answer, starts
//! of agents, grants and commands that only read, rules, denials by rules of agents if delegation is
//! enabled (as permission
//! requests), default decision of the agent, built-in decision. The first step that decides wins,
//! so no grant opens a secret file. The permission mode then decides about everything that is not
//! denied (`modes`). The policy reads no file and asks no person: it returns a
//! permission request as its verdict.

mod agents;
mod check;
mod commands;
mod denied_paths;
mod dry_run;
mod modes;
mod paths;
mod relocated;
mod rules;
mod shell;
mod tool_names;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use posse_actors::event::{Grant, PermissionMode, SandboxTier, Scope};
use posse_actors::ports::{
    Access, Action, AnswerSource, Caller, CommandOutput, CommandPath, CommandSecrets, Confinement,
    Coverage, NetworkAccess, Operation, PathLink, PermissionQuestion, Policy, Situation, Verdict,
};
use posse_base::failure::{Failure, printable};
use posse_base::secrets::is_secret;
use posse_base::secrets::readable::ReadableSecrets;
use serde_json::{Value, json};

use agents::AgentRules;
use commands::{is_command, linked_secret, secret_word};
use rules::{Rule, RuleDecision};
use shell::named::NamedPath;
use shell::{COMMAND_CHARS_MAX, Judged};

pub use agents::AgentPolicy;
pub use check::{Checked, CommandToCheck, Need, command_grant};
pub use denied_paths::denied_reads;
pub use dry_run::dry_run_policy;
pub use posse_base::protected::is_protected;
use posse_base::protected::is_protected_in;
pub use relocated::Relocated;

/// Returns the paths that `command` may name, without those known only at run time, and the folders
/// before each `..` in them; the caller resolves symbolic links in them for [`Operation::Execute`]. For
/// more than 1,024 named paths, returns only `/` with `usize::MAX` levels, which cannot be resolved.
/// `home`: home folder of the user; `None` means `/home/user`.
pub fn command_paths(command: &str, cwd: &str, home: Option<&str>) -> Vec<CommandPath> {
    shell::links::paths(command, cwd, home.unwrap_or(HOME_UNKNOWN))
}

/// Returns the programs that `command` runs, each with the words after it: wrappers such as `nice`,
/// and the programs behind them. A program that is known only at run time is missing or contains
/// `$…`.
pub fn command_programs(command: &str, cwd: &str, home: Option<&str>) -> Vec<Vec<String>> {
    let outline = shell::reader::read(command);
    let findings = shell::walk::walk(&outline, command, cwd, home.unwrap_or(HOME_UNKNOWN));
    let runs = findings.runs.iter();
    runs.flat_map(|run| run.programs.iter().filter_map(|at| Some(run.words.get(*at..)?.to_vec())))
        .collect()
}

/// Returns the paths that `command` may replace, as far as its words name them: targets of
/// redirections, and destinations of `cp`, `mv` and the like, also under the names that they had
/// before an earlier part of the command. The caller keeps those that exist for
/// [`Operation::Execute`]. With too many paths, or one that leads to an unknown place, `/` is one of
/// them. `links`: the links in the paths of [`command_paths`]. `home`: home folder of the user; `None`
/// means `/home/user`.
pub fn command_outputs(
    command: &str,
    cwd: &str,
    home: Option<&str>,
    links: &[PathLink],
) -> Vec<CommandOutput> {
    shell::outputs::outputs(command, cwd, home.unwrap_or(HOME_UNKNOWN), links)
}

/// Returns the absolute paths that `command` deletes. `None` if its words do not name all of them,
/// or if it destroys in another way as well. `home`: home folder of the user; `None` means
/// `/home/user`.
pub fn command_deletions(command: &str, cwd: &str, home: Option<&str>) -> Option<Vec<String>> {
    shell::deletions::deletions(command, cwd, home.unwrap_or(HOME_UNKNOWN))
}

/// Returns one error for each invalid rule, with its index; an empty list if all are valid. `tools`:
/// names of all tools of posse.
pub fn check_rules(rules: &[Value], tools: &[&str]) -> Vec<(usize, Failure)> {
    rules::compile(rules, Some(tools), None).err().unwrap_or_default()
}

/// Assumed home folder if the real one is unknown.
const HOME_UNKNOWN: &str = "/home/user";
const COMMANDS: &str = "commands need approval";
/// Advice to the model in place of the content of a secret file.
const INSTEAD: &str = "work without its content, or ask the user for what is needed (they can list \
                       the file in sandbox.readSecrets)";

/// Settings of the policy.
#[derive(Debug, Clone, Default)]
pub struct PolicySettings {
    /// Absolute, resolved roots of the workspace.
    pub roots: Vec<String>,
    /// Confinement of commands (`sandbox.mode`).
    pub sandbox: SandboxMode,
    /// Network access of commands (`sandbox.network`).
    pub network: NetworkMode,
    /// `permissions` of the configuration, as JSON: the user's, then those of a trusted project,
    /// which only deny or ask.
    pub rules: Vec<Value>,
    /// Number of rules at the end of `rules` that come from the project.
    pub project_rules: usize,
    /// `sandbox.readSecrets`: absolute paths and patterns of files that file tools may read, but not
    /// change, although their names are those of secrets. A folder in it does not cover the files
    /// below.
    pub readable_secrets: Vec<String>,
    /// Absolute paths of posse's folders (configuration, state, login) and of configuration
    /// files with a key. File tools cannot access them or anything below. For commands, they count
    /// as outside of the workspace.
    pub own_dirs: Vec<String>,
    /// Names of read-only agents, such as `plan`. Agents that work for them are read-only as well.
    pub read_only_agents: Vec<String>,
    /// Rules and default decisions of agents.
    pub agents: Vec<AgentPolicy>,
    /// Name of the provider profile of the main agent.
    pub provider: String,
    /// Decision about starting an agent, by its name: `allow`, `ask` or `deny`; any other text
    /// denies. An agent without an entry cannot be started.
    pub invocations: BTreeMap<String, String>,
    /// True if delegation is enabled. A denial by rules of agents then becomes a permission
    /// request, because one person answers for all agents, and grants and configured rules take
    /// precedence over it.
    pub multi_agent: bool,
    /// Home folder of the user. `None`: unknown; `~` is then read as `/home/user`.
    pub home: Option<String>,
    /// The home folder with its links resolved, for which `~` in rules stands, because the paths of
    /// tools and commands are resolved. `None`: the same as `home`.
    pub home_target: Option<String>,
    /// True if the user turned the sandbox off, by a flag or in the user's own configuration. Only
    /// then `--yes`, grants and rules may allow unconfined commands.
    pub sandbox_off_given: bool,
    /// True if commands can read secret files of the workspace, because the sandbox cannot hide
    /// single files. Then every command needs approval on the reduced tier.
    pub secrets_in_reach: bool,
    /// Reason why no checkpoint stores the workspace before a change. The mode `auto` then allows
    /// what `edits` allows. `None`: checkpoints are made.
    pub no_checkpoints: Option<String>,
    /// Isolated workspace of a subagent, in which its actions happen. `None`: they happen in the
    /// workspace.
    pub relocated: Option<Relocated>,
}

/// Confinement of commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// Commands are not confined: they have all rights of the user.
    Off,
    /// Commands can write only below their temporary folder. File tools cannot write.
    ReadOnly,
    /// Commands can write below the workspace roots, their temporary folder, and the folders of
    /// `sandbox.writableRoots`.
    #[default]
    WorkspaceWrite,
}

impl SandboxMode {
    /// Parses `off`, `read-only` and `workspace-write`. `None` for any other text.
    pub fn named(name: &str) -> Option<SandboxMode> {
        [SandboxMode::Off, SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite]
            .into_iter()
            .find(|mode| mode.name() == name)
    }

    /// Name of the mode in the configuration, and of its sandbox profile.
    pub fn name(self) -> &'static str {
        match self {
            SandboxMode::Off => "off",
            SandboxMode::ReadOnly => "read-only",
            SandboxMode::WorkspaceWrite => "workspace-write",
        }
    }
}

/// Network access of commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NetworkMode {
    /// As `Domains` if a person answers permission requests
    /// ([`AnswerSource::Human`]).
    #[default]
    WithHuman,
    /// Commands reach domains that are decided one by one, on the full tier. On other tiers they
    /// have network access if a person answers permission requests.
    Domains,
    /// Commands have no network access, even if a person answers permission requests.
    Deny,
    /// Commands always have network access.
    Inherit,
}

impl NetworkMode {
    /// Parses `auto`, `ask`, `deny` and `inherit`. `None` for any other text.
    pub fn named(name: &str) -> Option<NetworkMode> {
        match name {
            "auto" => Some(NetworkMode::WithHuman),
            "ask" => Some(NetworkMode::Domains),
            "deny" => Some(NetworkMode::Deny),
            "inherit" => Some(NetworkMode::Inherit),
            _ => None,
        }
    }

    /// Network access of a command that is not confined to reading.
    pub fn access(self, asking: AnswerSource, tier: &SandboxTier) -> NetworkAccess {
        let is_person = asking == AnswerSource::Human;
        match (self, tier) {
            (NetworkMode::Inherit, _) => NetworkAccess::Host,
            (NetworkMode::Domains, SandboxTier::Full) => NetworkAccess::Domains,
            (NetworkMode::WithHuman, SandboxTier::Full) if is_person => NetworkAccess::Domains,
            (NetworkMode::WithHuman | NetworkMode::Domains, _) if is_person => NetworkAccess::Host,
            (NetworkMode::Deny | NetworkMode::WithHuman | NetworkMode::Domains, _) => {
                NetworkAccess::Denied
            }
        }
    }
}

/// Permission policy of built-in rules, configured rules and the rules of agents.
#[derive(Debug)]
pub struct RulePolicy {
    settings: PolicySettings,
    /// `settings.rules`, compiled.
    rules: Vec<Rule>,
    /// `settings.agents`, compiled.
    agents: Vec<AgentRules>,
    /// `settings.readable_secrets`, compiled.
    readable_secrets: ReadableSecrets,
}

/// Action with its situation, and a judgement of each shell command in it.
struct JudgedAction<'a> {
    action: &'a Action,
    situation: &'a Situation<'a>,
    scripts: Vec<Judged>,
    /// Paths that the commands name. Empty if no deny rule has a glob.
    paths: Vec<NamedPath>,
    /// True if the permission mode allows commands that only read.
    mode_reads: bool,
}

impl JudgedAction<'_> {
    /// Kind of access of the tool.
    fn access(&self) -> Access {
        self.situation.tool.access
    }

    /// Existing files with the name of a secret that the commands name. `None` without a command.
    fn named_secrets(&self) -> Option<&CommandSecrets> {
        self.action.operations.iter().find_map(|operation| match operation {
            Operation::Execute { secrets, .. } => Some(secrets),
            Operation::Read { .. } | Operation::Write { .. } | Operation::Invoke { .. } => None,
        })
    }

    /// True if all operations are reads and the tool accesses files or the session. A write tool
    /// reads only to report why its change does not fit; without operations, its call does not
    /// count as reading. Always false for tools that run commands, use the network, or are unknown.
    fn is_read(&self) -> bool {
        let operations = &self.action.operations;
        let reads = match self.access() {
            Access::Read | Access::Session => true,
            Access::Write => !operations.is_empty(),
            Access::Process | Access::Network | Access::Unknown => false,
        };
        reads && operations.iter().all(|operation| matches!(operation, Operation::Read { .. }))
    }
}

impl RulePolicy {
    /// Compiles the rules in `settings`. Fails with an error for each invalid rule of the
    /// configuration or, if those are valid, of the first agent that has invalid rules.
    pub fn new(settings: PolicySettings) -> Result<RulePolicy, Vec<Failure>> {
        let home = settings.home_target.as_deref().or(settings.home.as_deref());
        let mut rules =
            rules::compile(&settings.rules, None, home).map_err(rules::without_indexes)?;
        let users = rules.len().saturating_sub(settings.project_rules);
        for rule in rules.iter_mut().skip(users) {
            rule.from_project = true;
        }
        let agents = agents::compile(&settings.agents, home)?;
        let readable = settings.readable_secrets.iter().map(PathBuf::from);
        let readable_secrets = ReadableSecrets::new(readable);
        Ok(RulePolicy { settings, rules, agents, readable_secrets })
    }
}

impl Policy for RulePolicy {
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict {
        match &self.settings.relocated {
            None => self.judge_here(action, situation),
            Some(relocated) => relocated.judge(self, action, situation),
        }
    }

    fn restriction(&self, mode: PermissionMode, tier: &SandboxTier) -> Option<String> {
        self.restriction_of(mode, tier)
    }
}

impl RulePolicy {
    fn judge_here(&self, action: &Action, situation: &Situation<'_>) -> Verdict {
        if let Some((invocation, reads)) = agents::with_references(action) {
            return self.judge_references(&invocation, &reads, situation);
        }
        let situation = &Situation { mode: modes::of_action(action, situation.mode), ..*situation };
        let case = self.judged_action(action, situation, self.mode_reads(situation));
        let (coverage, verdict) = self.covered(&case);
        self.in_mode(&case, coverage, verdict)
    }

    /// `action` with a judgement of each command in it.
    fn judged_action<'a>(
        &self,
        action: &'a Action,
        situation: &'a Situation<'a>,
        mode_reads: bool,
    ) -> JudgedAction<'a> {
        let scripts: Vec<Judged> = action
            .operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Execute { command, cwd, links, secrets, .. } => {
                    Some(self.judged(command, cwd, links, &secrets.shown))
                }
                Operation::Read { .. } | Operation::Write { .. } | Operation::Invoke { .. } => None,
            })
            .collect();
        let paths = self.named_paths(action, &scripts);
        JudgedAction { action, situation, scripts, paths, mode_reads }
    }

    /// Decision of denials, rules, grants and agents, without the permission mode, and the kind of
    /// step that decided.
    fn covered(&self, case: &JudgedAction<'_>) -> (Coverage, Verdict) {
        let denied = self
            .hard_deny(case)
            .or_else(|| self.global_deny(case))
            .or_else(|| self.agent_deny(case));
        if let Some(denied) = denied {
            return (Coverage::Denied, denied);
        }
        if let Some(asked) = self.ask_each_time(case) {
            return (Coverage::AskedEachTime, asked);
        }
        if let Some(verdict) = self.invoked(case) {
            let coverage = match verdict {
                Verdict::Allow(_) => Coverage::Granted,
                Verdict::Ask(_) => Coverage::Uncovered,
                Verdict::Deny { .. } => Coverage::Denied,
            };
            return (coverage, verdict);
        }
        if let Some(covered) = self.granted(case) {
            return covered;
        }
        let decided = self
            .matching_rule(case)
            .or_else(|| self.agent_asks(case))
            .or_else(|| self.agent_default(case));
        let Some(verdict) = decided else {
            return (Coverage::Uncovered, self.built_in(case));
        };
        let coverage = match verdict {
            Verdict::Allow(_) => Coverage::Granted,
            Verdict::Ask(_) => Coverage::AskedByRule,
            Verdict::Deny { .. } => Coverage::Denied,
        };
        (coverage, verdict)
    }

    fn hard_deny(&self, case: &JudgedAction<'_>) -> Option<Verdict> {
        for operation in &case.action.operations {
            match operation {
                Operation::Read { path, .. } | Operation::Write { path, .. } => {
                    if !self.settings.roots.iter().any(|root| paths::is_below(path, root)) {
                        return Some(deny("hard-deny: workspace", "it is outside the workspace"));
                    }
                    if self.settings.own_dirs.iter().any(|own| paths::is_below(path, own)) {
                        return Some(deny(
                            "hard-deny: own",
                            "it belongs to posse, whose configuration and records no tool may \
                             access",
                        ));
                    }
                }
                Operation::Execute { command, .. } if command.contains('\0') => {
                    return Some(deny("hard-deny: nul", "the command contains a NUL byte"));
                }
                Operation::Execute { .. } | Operation::Invoke { .. } => {}
            }
        }
        case.scripts
            .iter()
            .find_map(|script| script.findings.danger)
            .map(|danger| deny(&format!("hard-deny: {}", danger.rule), danger.reason))
    }

    fn global_deny(&self, case: &JudgedAction<'_>) -> Option<Verdict> {
        for operation in &case.action.operations {
            let (path, relative, reads) = match operation {
                // Commands see it, too.
                Operation::Read { is_committed: true, .. }
                | Operation::Execute { .. }
                | Operation::Invoke { .. } => continue,
                Operation::Read { path, relative, .. } => (path, relative, true),
                Operation::Write { path, relative, .. } => (path, relative, false),
            };
            let readable = reads && self.readable_secrets.contains(Path::new(path));
            if !readable && (is_secret(path) || is_secret(relative)) {
                let why = if reads {
                    INSTEAD
                } else {
                    "no setting permits changing it with a tool; ask the user to change it"
                };
                let why = format!("{relative} holds secrets; {why}");
                return Some(deny("global-deny: secrets", &why));
            }
            if !reads && self.settings.sandbox == SandboxMode::ReadOnly {
                return Some(deny("sandbox.mode: read-only", "this run is read-only"));
            }
        }
        if let Some(path) = commands::hidden_secret_that_is_read(case) {
            let why =
                format!("{} holds secrets and is hidden from commands; {INSTEAD}", printable(path));
            return Some(deny("global-deny: secrets", &why));
        }
        let rule = self.rules.iter().find(|rule| rule.denies(case))?;
        Some(deny(&format!("permissions: {}", rule.text), rule.denial_reason()))
    }

    fn agent_deny(&self, case: &JudgedAction<'_>) -> Option<Verdict> {
        let agent = case.situation.agent;
        // A read-only agent must not gain rights through another agent.
        let reader =
            |name: &&str| self.settings.read_only_agents.iter().any(|reader| reader == name);
        if let Some(reader) = agent.split('/').find(reader)
            && !case.is_read()
            && !agents::is_invocation(case.action)
        {
            let why = "this agent is read-only";
            return Some(deny(&format!("agent {reader}: read-only"), why));
        }
        if let Some(denied) = self.agent_denies(case).filter(|_| !self.settings.multi_agent) {
            return Some(denied);
        }
        let vendored = case.action.operations.iter().any(|operation| {
            matches!(operation, Operation::Write { relative, .. } if paths::is_vendored(relative))
        });
        vendored.then(|| deny(
            &format!("agent {agent}: node_modules/**"),
            "node_modules belongs to the package manager; change package.json and install instead",
        ))
    }

    /// Asks about actions that neither grants, nor rules, nor `--yes` may allow: changes of
    /// protected files and of files that control git; commands that are too long, name a secret
    /// file, have a pattern that a denied path may match, have exemptions, or run in a folder that is
    /// too large to be scanned. `None` for other actions.
    fn ask_each_time(&self, case: &JudgedAction<'_>) -> Option<Verdict> {
        let reason = exemption_reason(case.action)
            .or_else(|| RulePolicy::asked_each_time(case))
            .or_else(|| self.may_be_denied(case))?;
        Some(self.ask_once(case, reason))
    }

    /// Creates a permission request whose answer applies to this call only, and which `--yes` does
    /// not answer.
    fn ask_once(&self, case: &JudgedAction<'_>, reason: String) -> Verdict {
        Verdict::Ask(PermissionQuestion {
            reason,
            scopes: vec![Scope::Once],
            grant: None,
            grants_part: false,
            grant_text: Box::default(),
            yes_covers: false,
            rule: None,
            confinement: self.confinement(case.situation),
        })
    }

    fn asked_each_time(case: &JudgedAction<'_>) -> Option<String> {
        let reason = case.action.operations.iter().find_map(|operation| match operation {
            Operation::Write { relative, repository: Some(folder), .. } => Some(format!(
                "{relative} controls git, because the folder {folder} is a git repository to which it \
                 belongs or whose settings or hooks refer to it; it needs approval each time"
            )),
            Operation::Write { root, .. } => {
                let mut names = rules::named_paths(operation).map(|(_, relative)| relative);
                let protected = names.find(|name| is_protected_in(Path::new(root), name))?;
                Some(format!(
                    "{protected} is protected: it configures or triggers later code execution; it \
                     needs approval each time"
                ))
            }
            Operation::Execute { command, .. } => {
                (command.chars().nth(COMMAND_CHARS_MAX).is_some())
                    .then(|| format!("the command is longer than {COMMAND_CHARS_MAX} characters"))
            }
            Operation::Read { .. } | Operation::Invoke { .. } => None,
        });
        reason.or_else(|| {
            let named = case.named_secrets();
            if let Some(word) = case.scripts.iter().find_map(|script| secret_word(script, named)) {
                let is_hidden = named.is_some_and(|named| commands::names_one(word, &named.hidden));
                let hidden = if is_hidden {
                    " and is hidden from commands (sandbox.readSecrets shows it)"
                } else {
                    ""
                };
                let word = printable(word);
                return Some(format!("the command names {word}, which holds secrets{hidden}"));
            }
            if let Some((word, target)) = linked_secret(case) {
                let (word, target) = (printable(word), printable(target));
                return Some(format!(
                    "the command names {word}, a link to {target}, which holds secrets"
                ));
            }
            let planted = case.scripts.iter().find_map(|script| script.protected.as_deref())?;
            let planted = printable(planted);
            // A yes lets the command run, but its change is reverted.
            let undone = match case.situation.tier {
                SandboxTier::None => "",
                _ => {
                    ", and a command's change to it is undone when the command ends unless the \
                     call names it in unprotect"
                }
            };
            Some(format!(
                "{planted} is protected: it configures or triggers later code execution{undone}; \
                 it needs approval each time"
            ))
        })
    }

    fn granted(&self, case: &JudgedAction<'_>) -> Option<(Coverage, Verdict)> {
        let operations = &case.action.operations;
        let granted = |path: &str| {
            let grants = case.situation.grants.iter();
            grants
                .filter(|grant| grant.operation == "write")
                .any(|g| paths::is_below(path, &g.target))
        };
        let covered = match case.access() {
            Access::Process => {
                let commands = !case.scripts.is_empty() && operations.iter().all(is_command);
                let may_run = commands && self.allows_commands(case.situation).is_ok();
                return if may_run { self.commands_covered(case) } else { None };
            }
            Access::Write => {
                operations.iter().any(|operation| matches!(operation, Operation::Write { .. }))
                    && operations.iter().all(|operation| match operation {
                        Operation::Write { path, .. } => granted(path),
                        Operation::Read { .. } => true,
                        Operation::Execute { .. } | Operation::Invoke { .. } => false,
                    })
            }
            Access::Read | Access::Network | Access::Session | Access::Unknown => false,
        };
        covered.then(|| (Coverage::Granted, Verdict::Allow(self.confinement(case.situation))))
    }

    /// Applies the most specific matching allow or ask rule of the configuration and of the calling
    /// agent. An allow rule counts only if `may_allow`. Of two equally specific rules, the one that
    /// asks wins. `None` if no rule matches.
    fn matching_rule(&self, case: &JudgedAction<'_>) -> Option<Verdict> {
        let own = self.own_rules(case).filter(|rule| rule.decision != RuleDecision::Deny);
        let rule = self
            .rules
            .iter()
            .chain(own)
            .filter(|rule| rule.applies(case))
            .filter(|rule| rule.decision != RuleDecision::Allow || self.may_allow(case))
            .max_by_key(|rule| (rule.specificity(), rule.decision == RuleDecision::Ask))?;
        match rule.decision {
            RuleDecision::Allow => Some(Verdict::Allow(self.confinement(case.situation))),
            RuleDecision::Ask | RuleDecision::Deny => {
                let mut verdict = self.ask(case, rule.why());
                // The user wants to be asked: a rule against their own is nothing to suggest.
                if let Verdict::Ask(question) = &mut verdict {
                    question.rule = None;
                }
                Some(verdict)
            }
        }
    }

    /// True if a rule without a command prefix, or the default decision of an agent, may allow the
    /// call: its commands, if any, must be parsed without doubt, and commands may be allowed in
    /// this situation (`allows_commands`).
    fn may_allow(&self, case: &JudgedAction<'_>) -> bool {
        case.scripts.is_empty()
            || (self.allows_commands(case.situation).is_ok()
                && case.scripts.iter().all(|script| !script.doubtful))
    }

    fn built_in(&self, case: &JudgedAction<'_>) -> Verdict {
        if case.is_read() {
            return Verdict::Allow(reading_confinement());
        }
        let reason = match case.access() {
            Access::Process => COMMANDS.to_owned(),
            Access::Write => "changes to files need approval".to_owned(),
            Access::Read | Access::Network | Access::Session | Access::Unknown => {
                format!("no rule covers {}", case.action.tool)
            }
        };
        self.ask(case, reason)
    }

    fn ask(&self, case: &JudgedAction<'_>, reason: String) -> Verdict {
        if !case.scripts.is_empty() {
            let question = self.command_question(case);
            let known = if reason == COMMANDS { question.reason } else { reason };
            let rule = RulePolicy::rule_for(case);
            return Verdict::Ask(PermissionQuestion { reason: known, rule, ..question });
        }
        // A grant for one restore of the user would give the model every change there.
        let grant = grant_for(case).filter(|_| case.situation.caller != Caller::User);
        // Only a person can give a wider answer.
        let shown = grant.as_ref().filter(|_| case.situation.asking == AnswerSource::Human);
        let grant_text = shown.map_or_else(String::new, |grant| {
            format!("a saved answer allows every change {}", self.shown(&grant.target))
        });
        let mut scopes = vec![Scope::Once];
        if grant.is_some() {
            scopes.extend([Scope::Session, Scope::Project]);
        }
        Verdict::Ask(PermissionQuestion {
            reason,
            scopes,
            grant,
            grants_part: false,
            grant_text: grant_text.into(),
            yes_covers: true,
            rule: RulePolicy::rule_for(case),
            confinement: self.confinement(case.situation),
        })
    }

    /// Returns the narrowest rule for the user's configuration that would have allowed the call.
    /// `None` if no rule can express it, or if the rule would allow more than calls like this one.
    fn rule_for(case: &JudgedAction<'_>) -> Option<Value> {
        let matching = match (case.action.operations.as_slice(), case.scripts.as_slice()) {
            // The whole path: the rule counts in other projects as well.
            ([Operation::Write { path, .. }], []) => {
                let glob = globset::escape(path);
                // Nothing escapes a backslash.
                let sayable = glob.len() <= rules::GLOB_BYTES_MAX && !path.contains('\\');
                sayable.then(|| json!({ "pathGlob": glob }))?
            }
            ([Operation::Execute { .. }], [_]) => {
                json!({ "commandPrefix": RulePolicy::command_rule(case)? })
            }
            _ => return None,
        };
        Some(json!({ "tool": case.action.tool, "match": matching, "decision": "allow" }))
    }

    /// Describes the folder of a write grant for a person, relative to the first root if possible.
    fn shown(&self, target: &str) -> String {
        let cwd = self.settings.roots.first().map_or("", |root| root.trim_end_matches('/'));
        match target.strip_prefix(cwd) {
            Some("") => "in the working directory and below".to_owned(),
            Some(below) if below.starts_with('/') => format!("below {}/", printable(&below[1..])),
            _ => format!("below {}/", printable(target)),
        }
    }

    fn confinement(&self, situation: &Situation<'_>) -> Confinement {
        let writable = self.settings.sandbox != SandboxMode::ReadOnly;
        Confinement {
            profile: self.settings.sandbox.name().into(),
            writable_roots: if writable { self.settings.roots.clone() } else { Vec::new() },
            network: self.settings.network.access(situation.asking, situation.tier),
        }
    }
}

/// Confinement of calls that only read.
fn reading_confinement() -> Confinement {
    Confinement {
        profile: SandboxMode::ReadOnly.name().into(),
        writable_roots: Vec::new(),
        network: NetworkAccess::Denied,
    }
}

/// Reason for asking about a command that may change protected files (its exemptions), or that runs
/// in a folder too large to find all protected and secret files. `None` for any other action.
fn exemption_reason(action: &Action) -> Option<String> {
    let is_command = action.operations.iter().any(is_command);
    let mut unprotected = Vec::new();
    let mut unseen = None;
    for operation in action.operations.iter().filter(|_| is_command) {
        match operation {
            Operation::Write { relative, .. } => unprotected.push(printable(relative)),
            Operation::Read { path, .. } => unseen = Some(printable(path)),
            Operation::Execute { .. } | Operation::Invoke { .. } => {}
        }
    }
    let unseen = unseen.map(|path| {
        format!(
            "{path} has more folders than are scanned: protected and secret files in the rest \
             are not protected from the command. Start it in a subfolder to narrow the scan"
        )
    });
    if unprotected.is_empty() {
        return unseen;
    }
    let verb =
        if unprotected.len() == 1 { "configures or triggers" } else { "configure or trigger" };
    let names = unprotected.join(", ");
    let reason = format!(
        "the command would be free to change {names}, which {verb} later code execution; it needs approval each \
         time"
    );
    Some(unseen.map_or_else(|| reason.clone(), |unseen| format!("{reason}. {unseen}")))
}

fn deny(rule: &str, reason: &str) -> Verdict {
    Verdict::Deny { reason: reason.to_owned(), rule: rule.to_owned() }
}

/// Returns the grant for an answer beyond this call: writing below the folder of the written file.
/// `None` if the tool is no write tool, or if the call writes no file, writes into several folders,
/// or does anything but read and write files.
fn grant_for(case: &JudgedAction<'_>) -> Option<Grant> {
    if case.access() != Access::Write {
        return None;
    }
    let mut folder: Option<&str> = None;
    for operation in &case.action.operations {
        match operation {
            Operation::Write { path, .. } => {
                let (parent, _) = path.rsplit_once('/')?;
                if folder.is_some_and(|known| known != parent) {
                    return None;
                }
                folder = Some(parent);
            }
            Operation::Read { .. } => {}
            Operation::Execute { .. } | Operation::Invoke { .. } => return None,
        }
    }
    let target = folder?.to_owned();
    Some(Grant { operation: "write".into(), target, scope: Scope::Session, agent: None })
}

#[cfg(test)]
mod tests;
