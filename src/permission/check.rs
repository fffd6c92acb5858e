//! `posse permissions check`: decision of the policy about a command without running it.

use std::time::Duration;

use posse_actors::event::{Grant, Scope};
use posse_actors::ports::{
    Access, Action, AnswerSource, Operation, Policy, Situation, ToolAnnotations, Verdict,
};
use serde::Serialize;

use crate::commands::EXECUTE;
use crate::rules::COMMAND_NAMES;
use crate::shell::allow::PlainCommand;
use crate::shell::{quoted, simple};
use crate::{JudgedAction, RulePolicy};

/// Decision about one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// The command.
    pub command: String,
    /// `allow`, `ask` or `deny`.
    pub decision: &'static str,
    /// Why, for people.
    pub reason: String,
    /// Grant that an answer beyond one call would create, if any.
    pub grant: Option<String>,
    /// The rule that denies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Programs that it runs, as far as the text shows.
    pub programs: Vec<String>,
    /// True if it may run further programs that are known only at run time.
    pub unsure: bool,
    /// Its parts that no rule or grant covers.
    pub needs: Vec<Need>,
    /// The rule for the user's configuration that would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested_rule: Option<String>,
}

/// A part of a command that nothing covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// The part; none where it is about the whole.
    pub part: Option<String>,
    /// Why it is not covered.
    pub reason: String,
    /// Grant that would cover it.
    pub grant: Option<String>,
}

/// A grant for commands that begin with the words of `prefix`; none if it is not the beginning of
/// one plain command.
pub fn command_grant(prefix: &str) -> Option<Grant> {
    let words = simple(prefix)?;
    Some(Grant { operation: EXECUTE.to_owned(), target: quoted(&words), scope: Scope::Session })
}

impl RulePolicy {
    /// Decision about `command` in `cwd` with these grants and a person to ask.
    pub fn check(&self, command: &str, cwd: &str, grants: &[Grant]) -> Checked {
        let tool = ToolAnnotations::new(Access::Process).in_rules(COMMAND_NAMES[0]);
        let situation = Situation {
            tool: &tool,
            agent: "build",
            grants,
            asking: AnswerSource::Human,
            now_ms: 0,
            uptime: Duration::ZERO,
            tier: "full",
        };
        let action = Action {
            tool: COMMAND_NAMES[1].to_owned(),
            operations: vec![Operation::Execute {
                command: command.to_owned(),
                cwd: cwd.to_owned(),
            }],
            summary: command.to_owned(),
            detail: command.to_owned(),
            digest: String::new(),
        };
        let verdict = Policy::judge(self, &action, &situation);
        let judged = self.judged(command, cwd);
        let mut programs: Vec<String> = Vec::new();
        for run in &judged.findings.runs {
            for program in run.programs.iter().filter_map(|at| run.words.get(*at)) {
                if !programs.contains(program) && programs.len() < PROGRAMS_MAX {
                    programs.push(program.clone());
                }
            }
        }
        let unsure = judged.findings.unsure;
        let case = JudgedAction { action: &action, situation: &situation, scripts: vec![judged] };
        let missing = self.uncovered(&case);
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
        let mut checked = Checked {
            command: command.to_owned(),
            decision: "allow",
            reason: "every part is granted, or allowed by a rule".to_owned(),
            grant: None,
            rule: None,
            programs,
            unsure,
            needs: Vec::new(),
            suggested_rule: None,
        };
        match verdict {
            Verdict::Allow(_) => {}
            Verdict::Deny { reason, rule } => {
                (checked.decision, checked.reason, checked.rule) = ("deny", reason, Some(rule));
            }
            Verdict::Ask(question) => {
                (checked.decision, checked.reason) = ("ask", question.reason);
                checked.grant = question.grant.map(|grant| grant.target);
                checked.suggested_rule = question.rule;
                checked.needs = needs.collect();
            }
        }
        checked
    }
}

/// Programs and parts that are listed; a person reads no more, and a machine has the verdict.
const PROGRAMS_MAX: usize = 256;
