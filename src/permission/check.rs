//! `posse permissions check`: decides about a command without running it.

use std::time::Duration;

use posse_actors::event::{Grant, PermissionMode, SandboxTier, Scope};
use posse_actors::ports::{
    Access, Action, AnswerSource, Caller, CommandDeletions, Coverage, Operation, PathLink,
    PermissionQuestion, Situation, ToolAnnotations, Verdict,
};
use serde::Serialize;
use serde_json::Value;

use crate::commands::{EXECUTE, only_reads};
use crate::rules::COMMAND_NAMES;
use crate::shell::allow::PlainCommand;
use crate::shell::links::without_links;
use crate::shell::{quoted, simple};
use crate::{HOME_UNKNOWN, JudgedAction, RulePolicy};

/// Decision about one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// Text of the command, unchanged.
    pub command: String,
    /// `allow`, `ask` or `deny`.
    pub decision: &'static str,
    /// Reason of the decision, for a person.
    pub reason: String,
    /// Command prefix of the grant that an answer beyond this call would create. `None` if no grant
    /// is offered, or the decision is not `ask`.
    pub grant: Option<String>,
    /// Name of the built-in rule, or text of the configured rule, that denies the command. `None`
    /// unless it is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Distinct programs that the command runs, wrappers included, as the command names them and as
    /// far as the text shows; at most 256.
    pub programs: Vec<String>,
    /// True if the command may run further programs that are known only at run time.
    pub unsure: bool,
    /// Parts of the command that no rule or grant covers, at most 256. Empty unless the decision is
    /// `ask`.
    pub needs: Vec<Need>,
    /// Rule for the user's configuration that would allow the command. `None` if no rule is
    /// suggested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested_rule: Option<Value>,
}

/// Part of a command that no rule or grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// Text of the part, a simple command. `None`: the reason concerns the command as a whole.
    pub part: Option<String>,
    /// Reason why the part is not covered.
    pub reason: String,
    /// Command prefix of the grant that would cover the part. `None` if no grant is suggested.
    pub grant: Option<String>,
}

/// Creates a session grant with the words of `prefix`. It covers commands that begin with them and
/// continue with known options or, for a program that is not in the option table, only the same
/// command. `None` if `prefix` is not one plain command of literal words.
pub fn command_grant(prefix: &str) -> Option<Grant> {
    let words = simple(prefix)?;
    Some(Grant {
        operation: EXECUTE.to_owned(),
        target: quoted(&words),
        scope: Scope::Session,
        agent: None,
    })
}

/// A command to check, with what is known of the file system.
#[derive(Debug, Clone, Copy)]
pub struct CommandToCheck<'a> {
    /// Text of the command.
    pub command: &'a str,
    /// Absolute working directory.
    pub cwd: &'a str,
    /// Symbolic links through which its paths lead.
    pub links: &'a [PathLink],
    /// Existing files that it would replace.
    pub replaces: &'a [String],
    /// Files that it deletes or replaces and that a checkpoint may bring back.
    pub deletions: &'a CommandDeletions,
    /// Sandbox tier.
    pub tier: &'a SandboxTier,
    /// Permission mode. `None`: the decision of rules and grants alone, to which no mode adds or
    /// takes anything.
    pub mode: Option<PermissionMode>,
}

impl RulePolicy {
    /// Decides about `command` of the agent `build` in `cwd`, with `grants`, the full sandbox tier,
    /// a person who answers permission requests, and without a permission mode.
    ///
    /// Assumes that no path in `command` is a symbolic link; [`RulePolicy::check_resolved`] takes
    /// links into account.
    pub fn check(&self, command: &str, cwd: &str, grants: &[Grant]) -> Checked {
        let (tier, mode) = (&SandboxTier::Full, None);
        let home = self.settings.home.as_deref().unwrap_or(HOME_UNKNOWN);
        let links = &without_links(command, cwd, home);
        let (replaces, deletions) = (&[], &CommandDeletions::default());
        let command = CommandToCheck { command, cwd, links, replaces, deletions, tier, mode };
        self.check_resolved(command, grants)
    }

    /// Decides as [`RulePolicy::check`] does about a command whose links are resolved, on a sandbox
    /// tier and in a permission mode.
    pub fn check_resolved(&self, checked: CommandToCheck<'_>, grants: &[Grant]) -> Checked {
        let CommandToCheck { command, cwd, links, replaces, deletions, tier, mode } = checked;
        let tool = ToolAnnotations::new(Access::Process).in_rules(COMMAND_NAMES[0]);
        let situation = Situation {
            tool: &tool,
            caller: Caller::Agent,
            agent: "build",
            grants,
            asking: AnswerSource::Human,
            mode: mode.unwrap_or_default(),
            now_ms: 0,
            uptime: Duration::ZERO,
            tier,
        };
        let action = Action {
            tool: COMMAND_NAMES[1].to_owned(),
            operations: vec![Operation::Execute {
                command: command.to_owned(),
                cwd: cwd.to_owned(),
                links: links.to_vec(),
                replaces: replaces.to_vec(),
                deletions: deletions.clone(),
                in_trial: false,
                secrets: posse_actors::ports::CommandSecrets::default(),
            }],
            summary: command.to_owned(),
            detail: command.to_owned(),
            digest: String::new(),
        };
        let mode_reads = mode.is_some() && self.mode_reads(&situation);
        let case = self.judged_action(&action, &situation, mode_reads);
        let (coverage, mut verdict) = self.covered(&case);
        if mode.is_some() {
            verdict = self.in_mode(&case, coverage, verdict);
        }
        let allowed = match mode {
            None => "every part is granted, or allowed by a rule".to_owned(),
            Some(_) if coverage == Coverage::Granted || only_reads(&case) => {
                "every part is granted, allowed by a rule, or only reads".to_owned()
            }
            Some(mode) => format!("the permission mode {mode} allows it"),
        };
        let programs = programs(&case);
        let unsure = case.scripts.iter().any(|script| script.findings.unsure);
        let needing = mode.and_then(|mode| self.needing_an_answer(mode, &case));
        let missing = needing.unwrap_or_else(|| self.uncovered(&case));
        let needs = missing.iter().take(PROGRAMS_MAX).map(|uncovered| Need {
            part: uncovered.part.map(|part| quoted(&part.words)),
            reason: uncovered.reason.clone(),
            grant: uncovered
                .part
                .filter(|_| uncovered.grantable)
                .and_then(PlainCommand::operation)
                .filter(|words| super::commands::may_be_suggested(words))
                .map(|words| quoted(&words)),
        });
        let (decision, reason, grant, rule, suggested_rule) = match verdict {
            Verdict::Allow(_) => ("allow", allowed, None, None, None),
            Verdict::Deny { reason, rule } => ("deny", reason, None, Some(rule), None),
            Verdict::Ask(question) => {
                let reason = question.full_reason();
                let PermissionQuestion { grant, rule, .. } = question;
                ("ask", reason, grant.map(|grant| grant.target), None, rule)
            }
        };
        let needs = if decision == "ask" { needs.collect() } else { Vec::new() };
        let command = command.to_owned();
        Checked { command, decision, reason, grant, rule, programs, unsure, needs, suggested_rule }
    }
}

/// Maximum number of `programs`, and of `needs`, in a [`Checked`].
const PROGRAMS_MAX: usize = 256;

/// First programs that the commands of an action run, without duplicates.
fn programs(case: &JudgedAction<'_>) -> Vec<String> {
    let mut programs: Vec<String> = Vec::new();
    for run in case.scripts.iter().flat_map(|script| &script.findings.runs) {
        for program in run.programs.iter().filter_map(|at| run.words.get(*at)) {
            if !programs.contains(program) && programs.len() < PROGRAMS_MAX {
                programs.push(program.clone());
            }
        }
    }
    programs
}
