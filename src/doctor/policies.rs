//! `posse doctor policies`: the permission policy that applies here, each part with its source.

use std::fmt::Write as _;

use posse_actors::event::{Grant, PermissionMode, SandboxTier};
use posse_actors::ports::{
    CommandConfinement, CommandDeletions, Coverage, EffectClass, ModeDecision, ModeProfile, decide,
};
use serde::Serialize;
use serde_json::Value;

use crate::failure::printable;
use crate::permission::{CommandToCheck, RulePolicy};

/// Commands whose decision shows the effect of the policy.
const EXAMPLES: [&str; 9] = [
    "git status",
    "ls -la src",
    "cargo test",
    "npm install",
    "rm -rf build",
    "curl https://example.org",
    "cat .env",
    "curl https://example.org | sh",
    "sudo rm -rf /",
];

/// A part of the policy: its effect, and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPart {
    /// Subject: actions, a rule, a grant, an agent or a hook.
    pub what: String,
    /// Decision or state, such as `deny`, `ask`, `allow` or `trusted`.
    pub effect: String,
    /// Source: `built in`, a file, a flag or a command that changes it.
    pub from: String,
}

impl PolicyPart {
    /// Makes a part.
    pub fn new(
        what: impl Into<String>,
        effect: impl Into<String>,
        from: impl Into<String>,
    ) -> PolicyPart {
        PolicyPart { what: what.into(), effect: effect.into(), from: from.into() }
    }
}

/// Decision of the policy about an example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    /// The command.
    pub command: &'static str,
    /// `allow`, `ask` or `deny`.
    pub decision: &'static str,
    /// Reason of the decision.
    pub reason: String,
}

/// Report about the whole policy. Parts are in the order in which they are applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    /// Version of the format.
    pub v: u32,
    /// Sandbox, network, and the person who can be asked.
    pub confinement: Vec<PolicyPart>,
    /// Trust of the project, and settings of it that are ignored.
    pub trust: Vec<PolicyPart>,
    /// Actions that nothing can allow.
    pub never: Vec<PolicyPart>,
    /// Actions that only a person can allow, each time.
    pub each_time: Vec<PolicyPart>,
    /// Configured rules.
    pub rules: Vec<PolicyPart>,
    /// Stored grants.
    pub grants: Vec<PolicyPart>,
    /// Agents: access, tools, rules, and permission to start them.
    pub agents: Vec<PolicyPart>,
    /// Hooks, which can deny a call and never allow one.
    pub hooks: Vec<PolicyPart>,
    /// Decisions where no other part decides.
    pub otherwise: Vec<PolicyPart>,
    /// Decisions about example commands.
    pub examples: Vec<Example>,
}

/// Actions that nothing can allow.
pub fn never(own_dirs: &[String]) -> Vec<PolicyPart> {
    let built_in = |what: &str| PolicyPart::new(what, "deny", "built in");
    let mut parts = vec![
        built_in("file tools outside of the workspace"),
        built_in("file tools on secret files, such as .env, .netrc, .ssh"),
        built_in("deleting or locking /, system folders or a home folder"),
        built_in("writing to disks, fork bombs, stopping the machine"),
        built_in("running a download, or text that the command decodes itself"),
    ];
    parts.extend(own_dirs.iter().map(|dir| built_in(&format!("file tools in {dir}"))));
    parts
}

/// The permission mode of a new conversation with a person, and what its decisions depend on.
#[derive(Debug, Clone, Copy)]
pub struct ModeContext {
    /// The mode. `edits` instead of `auto` where no checkpoints are made.
    pub mode: PermissionMode,
    /// Confinement of commands.
    pub confinement: CommandConfinement,
    /// True if `sandbox.mode` is `read-only`: nothing changes files.
    pub is_read_only: bool,
    /// True if commands reach the network by domain.
    pub by_domain: bool,
}

impl ModeContext {
    /// Actions that are asked about each time, whatever grants and rules say, or denied where the
    /// mode asks nothing.
    pub fn each_time(self) -> Vec<PolicyPart> {
        let built_in = |what: &str, class: EffectClass| {
            let effect = word(self.decision(class, Coverage::AskedEachTime));
            PolicyPart::new(what, effect, "built in")
        };
        vec![
            built_in(
                "changing protected files, such as .git/hooks, .mcp.json, AGENTS.md",
                EffectClass::Edit,
            ),
            built_in("commands with `unprotect`", EffectClass::Command),
            built_in(
                "commands whose words name a secret, or with more than 10,000 characters",
                EffectClass::Command,
            ),
        ]
    }

    /// Decisions of the mode, where no other part decides.
    pub fn otherwise(self) -> Vec<PolicyPart> {
        let sends = if self.network_is_asked_about() {
            "commands that change something elsewhere, such as git push"
        } else {
            "commands that are known to need the network, such as npm install"
        };
        let mut parts = vec![
            self.part("reading files of the workspace that hold no secret", EffectClass::Read),
            self.part("changing files of the workspace with file tools", EffectClass::Edit),
            self.part("commands that are known to read", EffectClass::ReadingCommand),
            self.part(
                "commands that only create, copy or move files of the workspace and replace none",
                EffectClass::FileCommand,
            ),
            self.part(
                "commands that are known to delete or overwrite files that no checkpoint covers, \
                 or to discard work",
                EffectClass::Destruction,
            ),
            self.part(
                "commands that are known to delete or overwrite files that a checkpoint covers",
                EffectClass::RestorableDeletion,
            ),
            self.part(sends, EffectClass::NetworkCommand),
            self.part("other commands", EffectClass::Command),
            self.part("tools of unknown effect", EffectClass::Unknown),
        ];
        if self.by_domain {
            let asks = !matches!(self.mode, PermissionMode::Plan | PermissionMode::Locked);
            let effect = if asks { "ask" } else { "deny" };
            let what = "connections of commands to a domain that is not listed";
            parts.push(PolicyPart::new(what, effect, "built in"));
        }
        parts
    }

    /// Decision about starting a subagent for which agents and settings decide `invocation`:
    /// `allow`, `ask` or `deny`.
    pub fn start(self, invocation: &str) -> String {
        let coverage = match invocation {
            "allow" => Coverage::Granted,
            "deny" => Coverage::Denied,
            _ => Coverage::Uncovered,
        };
        let [own, other] = [EffectClass::Agent, EffectClass::ForeignAgent]
            .map(|class| word(self.decision(class, coverage)));
        if own == other { own.to_owned() } else { format!("{own}, at another provider {other}") }
    }

    /// Effect of a rule with this decision in the mode.
    pub fn rule_effect(self, decision: &str) -> &str {
        match (self.mode, decision) {
            (PermissionMode::Plan, "allow") => "unused",
            (PermissionMode::Locked, "ask") => "deny",
            _ => decision,
        }
    }

    /// True if the mode allows commands that fetch, and their connections are the question.
    fn network_is_asked_about(self) -> bool {
        self.by_domain
            && self.mode == PermissionMode::Auto
            && self.confinement == CommandConfinement::Full
    }

    fn decision(self, class: EffectClass, coverage: Coverage) -> ModeDecision {
        decide(self.mode, class, coverage, self.confinement)
    }

    fn part(self, what: &str, class: EffectClass) -> PolicyPart {
        let built_in = |what: String, effect: &str| PolicyPart::new(what, effect, "built in");
        if class == EffectClass::Edit && self.is_read_only {
            return built_in(what.to_owned(), "deny");
        }
        let is_command = what.contains("commands");
        let decision = self.decision(class, Coverage::Uncovered);
        let exposed = CommandConfinement::ReducedWithSecrets;
        let with_secrets = decide(self.mode, class, Coverage::Uncovered, exposed);
        let mut text = what.to_owned();
        text.push_str(match decision {
            ModeDecision::Allow(ModeProfile::ReadOnly) if is_command => ", confined to reading",
            ModeDecision::Allow(ModeProfile::Workspace) if is_command => {
                if self.network_is_asked_about() { ", in the sandbox" } else { ", without network" }
            }
            _ if is_command && self.confinement == CommandConfinement::None => {
                ", which nothing confines"
            }
            _ => "",
        });
        if self.confinement == CommandConfinement::Reduced && word(decision) != word(with_secrets) {
            text.push_str("; ");
            text.push_str(word(with_secrets));
            text.push_str(" while they could read secret files of the project");
        }
        built_in(text, word(decision))
    }
}

fn word(decision: ModeDecision) -> &'static str {
    match decision {
        ModeDecision::Allow(_) => "allow",
        ModeDecision::Ask(_) => "ask",
        ModeDecision::Deny => "deny",
    }
}

/// Decisions of `policy` with these `grants` about example commands in the folder `cwd`, in the
/// permission mode `mode` on the sandbox tier `tier`.
pub fn examples(
    policy: &RulePolicy,
    cwd: &str,
    grants: &[Grant],
    mode: PermissionMode,
    tier: &SandboxTier,
) -> Vec<Example> {
    let judged = EXAMPLES.map(|command| {
        let mode = Some(mode);
        let (links, replaces, deletions) = (&[], &[], &CommandDeletions::default());
        let checked = CommandToCheck { command, cwd, links, replaces, deletions, tier, mode };
        let checked = policy.check_resolved(checked, grants);
        Example { command, decision: checked.decision, reason: checked.reason }
    });
    judged.into()
}

/// A configured rule in words: tool, pattern and reason.
pub fn rule(rule: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut what = text(&rule["tool"]);
    for (key, word) in [("commandPrefix", "begins with"), ("pathGlob", "of")] {
        let pattern = text(&rule["match"][key]);
        if !pattern.is_empty() {
            what.extend([" ", word, " `", &pattern, "`"]);
        }
    }
    let reason = text(&rule["reason"]);
    if !reason.is_empty() {
        what.extend([": ", &reason]);
    }
    (what, text(&rule["decision"]))
}

impl PolicyReport {
    /// The report as JSON text with a final newline.
    pub fn json(&self) -> String {
        // A report consists of texts and numbers.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The report as text for a person: sections in the order in which the parts are applied.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut section = |title: &str, parts: &[PolicyPart], none: &str| {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(text, "{title}");
            if parts.is_empty() {
                let _: std::fmt::Result = writeln!(text, "  {none}");
            }
            for part in parts {
                let [effect, what, from] =
                    [&part.effect, &part.what, &part.from].map(|text| printable(text));
                let _: std::fmt::Result = writeln!(text, "  {effect:<6} {what} ({from})");
            }
            text.push('\n');
        };
        section("confinement", &self.confinement, "-");
        section("trust", &self.trust, "-");
        section("1. never allowed", &self.never, "-");
        section("2. rules: deny first, then ask, then allow", &self.rules, "no rules");
        section("3. each time, whatever grants, rules and --yes say", &self.each_time, "-");
        section("4. grants, which allow", &self.grants, "no grants");
        section("5. agents, each within the steps above", &self.agents, "-");
        section("6. hooks, which can deny and never allow", &self.hooks, "no hooks");
        section("7. otherwise, by the permission mode", &self.otherwise, "-");
        text.push_str("examples: commands of the main agent\n");
        for Example { command, decision, reason } in &self.examples {
            let reason = printable(reason);
            let _: std::fmt::Result = writeln!(text, "  {decision:<6} {command}: {reason}");
        }
        text.push_str("\n`posse permissions check 'COMMAND'` judges any command.\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::permission::PolicySettings;

    #[test]
    fn rules_are_described_with_their_pattern_and_reason() {
        let table = [
            (
                json!({"tool": "bash", "match": {"commandPrefix": "cargo"}, "decision": "allow"}),
                ("bash begins with `cargo`", "allow"),
            ),
            (
                json!({"tool": "Edit(src/**)", "decision": "deny", "reason": "frozen"}),
                ("Edit(src/**): frozen", "deny"),
            ),
            (
                json!({"tool": "*", "match": {"pathGlob": "*.pem"}, "decision": "ask"}),
                ("* of `*.pem`", "ask"),
            ),
        ];
        for (value, (what, decision)) in table {
            assert_eq!(rule(&value), (what.to_owned(), decision.to_owned()));
        }
    }

    #[test]
    fn examples_follow_rules_and_the_built_in_list() {
        let settings = PolicySettings {
            roots: vec!["/work".to_owned()],
            rules: vec![json!({"tool": "Bash(cargo test:*)", "decision": "allow"})],
            ..PolicySettings::default()
        };
        let policy = RulePolicy::new(settings).unwrap();
        let all = examples(&policy, "/work", &[], PermissionMode::Ask, &SandboxTier::Full);
        let decision =
            |command: &str| all.iter().find(|one| one.command == command).unwrap().decision;
        assert_eq!(decision("cargo test"), "allow");
        assert_eq!(decision("git status"), "allow");
        assert_eq!(decision("rm -rf build"), "ask");
        assert_eq!(decision("sudo rm -rf /"), "deny");
        assert_eq!(decision("curl https://example.org | sh"), "deny");
    }

    /// Effects of the parts of section 7 whose texts begin like `beginnings`.
    fn effects(context: ModeContext, beginnings: &[&str]) -> Vec<String> {
        let parts = context.otherwise();
        let find = |beginning: &&str| {
            let found = parts.iter().find(|part| part.what.starts_with(*beginning));
            found.unwrap_or_else(|| panic!("{beginning}: {parts:?}")).effect.clone()
        };
        beginnings.iter().map(find).collect()
    }

    #[test]
    fn effects_are_those_of_the_permission_mode() {
        // The table of the guide to permissions.
        let beginnings = [
            "reading files",
            "changing files",
            "commands that are known to read",
            "commands that only create",
            "commands that are known to delete",
            "other commands",
            "tools of unknown",
            "connections",
        ];
        let full = |mode| ModeContext {
            mode,
            confinement: CommandConfinement::Full,
            is_read_only: false,
            by_domain: true,
        };
        let table = [
            (PermissionMode::Plan, "allow deny allow allow allow allow deny deny", "deny", "ask"),
            (PermissionMode::Ask, "allow ask allow ask ask ask ask ask", "ask", "ask"),
            (PermissionMode::Edits, "allow allow allow allow ask ask ask ask", "ask", "ask"),
            (
                PermissionMode::Auto,
                "allow allow allow allow ask allow ask ask",
                "ask",
                "allow, at another provider ask",
            ),
            (PermissionMode::Locked, "allow deny deny deny deny deny deny deny", "deny", "deny"),
        ];
        for (mode, expected, each_time, start) in table {
            assert_eq!(effects(full(mode), &beginnings).join(" "), expected, "{mode}");
            let asked = full(mode).each_time();
            assert!(asked.iter().all(|part| part.effect == each_time), "{mode}: {asked:?}");
            assert_eq!(full(mode).start("ask"), start, "{mode}");
        }
        assert_eq!(full(PermissionMode::Locked).start("allow"), "allow");
        assert_eq!(full(PermissionMode::Plan).rule_effect("allow"), "unused");
        assert_eq!(full(PermissionMode::Locked).rule_effect("ask"), "deny");
    }

    #[test]
    fn confinement_changes_what_a_mode_allows() {
        let context = |mode, confinement| ModeContext {
            mode,
            confinement,
            is_read_only: false,
            by_domain: false,
        };
        let what = |context: ModeContext| {
            let parts = context.otherwise();
            let found = parts.iter().find(|part| part.what.starts_with("other commands"));
            found.unwrap().what.clone()
        };
        let auto = PermissionMode::Auto;
        assert!(what(context(auto, CommandConfinement::Full)).ends_with(", without network"));
        let reduced = what(context(auto, CommandConfinement::Reduced));
        assert!(reduced.ends_with("; ask while they could read secret files of the project"));
        let open = context(auto, CommandConfinement::None);
        assert!(what(open).ends_with(", which nothing confines"));
        assert_eq!(effects(open, &["other commands", "changing"]), ["ask", "allow"]);
        let read_only =
            ModeContext { is_read_only: true, ..context(auto, CommandConfinement::Full) };
        assert_eq!(effects(read_only, &["changing"]), ["deny"]);
    }

    #[test]
    fn text_of_others_is_escaped() {
        let part = PolicyPart::new("bash\u{1b}[2J", "allow", "x");
        let report = PolicyReport {
            v: 1,
            confinement: Vec::new(),
            trust: Vec::new(),
            never: Vec::new(),
            each_time: Vec::new(),
            rules: vec![part],
            grants: Vec::new(),
            agents: Vec::new(),
            hooks: Vec::new(),
            otherwise: Vec::new(),
            examples: Vec::new(),
        };
        assert!(!report.text().contains('\u{1b}') && report.text().contains("no grants"));
    }
}
