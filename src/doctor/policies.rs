//! `posse doctor policies`: the permission policy that applies here, each part with its source.

use std::fmt::Write as _;

use posse_actors::event::{Grant, PermissionMode, SandboxTier};
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, printable};
use crate::permission::{CommandToCheck, PolicySettings, RulePolicy};

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

/// Actions that are asked about each time, whatever grants and rules say.
pub fn each_time() -> Vec<PolicyPart> {
    let built_in = |what: &str| PolicyPart::new(what, "ask", "built in");
    vec![
        built_in("changing protected files, such as .git/hooks, .mcp.json, AGENTS.md"),
        built_in("commands with `unprotect`"),
        built_in("commands whose words name a secret, or with more than 10,000 characters"),
    ]
}

/// Decisions where no other part decides. `mode`: `sandbox.mode`.
pub fn otherwise(mode: &str, tier: &SandboxTier) -> Vec<PolicyPart> {
    let built_in = |what: &str, effect: &str| PolicyPart::new(what, effect, "built in");
    let writes = if mode == "read-only" { "deny" } else { "ask" };
    let confined = mode != "off" && *tier != SandboxTier::None;
    let commands = if confined { "commands" } else { "commands, which nothing confines" };
    let mut parts = vec![
        built_in("reading files of the workspace that hold no secret", "allow"),
        built_in("changing files of the workspace", writes),
    ];
    if confined {
        parts.push(built_in("commands that only read, confined to reading", "allow"));
    }
    parts.extend([built_in(commands, "ask"), built_in("tools of unknown effect", "ask")]);
    parts
}

/// Decisions of the policy `settings` with these `grants` about example commands in the first root,
/// in the permission mode `mode` on the sandbox tier `tier`.
pub fn examples(
    settings: PolicySettings,
    grants: &[Grant],
    mode: PermissionMode,
    tier: &SandboxTier,
) -> Result<Vec<Example>, Vec<Failure>> {
    let cwd = settings.roots.first().cloned().unwrap_or_default();
    let policy = RulePolicy::new(settings)?;
    let judged = EXAMPLES.map(|command| {
        let (cwd, mode) = (&*cwd, Some(mode));
        let checked = CommandToCheck { command, cwd, links: &[], replaces: &[], tier, mode };
        let checked = policy.check_resolved(checked, grants);
        Example { command, decision: checked.decision, reason: checked.reason }
    });
    Ok(judged.into())
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
        section("3. asked each time; only a person can allow it", &self.each_time, "-");
        section("4. grants, which allow", &self.grants, "no grants");
        section("5. agents, each within the steps above", &self.agents, "-");
        section("6. hooks, which can deny and never allow", &self.hooks, "no hooks");
        section("7. otherwise", &self.otherwise, "-");
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
        let mode = PermissionMode::Ask;
        let all = examples(settings, &[], mode, &SandboxTier::Full).unwrap();
        let decision =
            |command: &str| all.iter().find(|one| one.command == command).unwrap().decision;
        assert_eq!(decision("cargo test"), "allow");
        assert_eq!(decision("git status"), "allow");
        assert_eq!(decision("rm -rf build"), "ask");
        assert_eq!(decision("sudo rm -rf /"), "deny");
        assert_eq!(decision("curl https://example.org | sh"), "deny");
    }

    #[test]
    fn read_only_mode_denies_changes() {
        let effect = |mode: &str| otherwise(mode, &SandboxTier::Full)[1].effect.clone();
        assert_eq!((effect("read-only"), effect("workspace-write")), ("deny".into(), "ask".into()));
        let open = otherwise("off", &SandboxTier::None);
        assert!(open[2].what.contains("nothing confines"));
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
