//! Permission policy of a dry run without a person: calls that only describe their effect run
//! without a permission request, because no person can answer one and the call changes nothing.

use std::sync::Arc;

use posse_actors::event::{PermissionMode, SandboxTier};
use posse_actors::ports::{Access, Action, AnswerSource, Operation, Policy, Situation, Verdict};

/// Policy that turns the questions of another one about changes and commands into permissions.
struct DryRunPolicy(Arc<dyn Policy>);

/// Returns `policy`. In a dry run, its permission requests about changes and commands become
/// permissions.
pub fn dry_run_policy(policy: Arc<dyn Policy>, is_dry_run: bool) -> Arc<dyn Policy> {
    if is_dry_run { Arc::new(DryRunPolicy(policy)) } else { policy }
}

impl Policy for DryRunPolicy {
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict {
        match self.0.judge(action, situation) {
            Verdict::Ask(question)
                if situation.asking == AnswerSource::Nobody
                    && only_describes(action, situation, question.yes_covers) =>
            {
                Verdict::Allow(question.confinement)
            }
            verdict => verdict,
        }
    }

    fn restriction(&self, mode: PermissionMode, tier: &SandboxTier) -> Option<String> {
        self.0.restriction(mode, tier)
    }
}

/// True if the tool reports the effect of the call without having it, and reveals nothing by that.
/// The description of a change contains the old content of the file, so a question that `--yes`
/// does not answer stays one. That of a command is its text.
fn only_describes(action: &Action, situation: &Situation<'_>, yes_covers: bool) -> bool {
    match situation.tool.access {
        Access::Write => yes_covers,
        Access::Process => {
            action.operations.iter().any(|one| matches!(one, Operation::Execute { .. }))
        }
        Access::Read | Access::Network | Access::Session | Access::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use posse_actors::event::Scope;
    use posse_actors::ports::{
        Caller, CommandDeletions, Confinement, NetworkAccess, PermissionQuestion, ToolAnnotations,
    };

    use super::*;

    /// Asks about everything.
    struct Asking {
        yes_covers: bool,
    }

    impl Policy for Asking {
        fn judge(&self, _: &Action, _: &Situation<'_>) -> Verdict {
            Verdict::Ask(PermissionQuestion {
                reason: "why".to_owned(),
                scopes: vec![Scope::Once],
                grant: None,
                grants_part: false,
                grant_text: Box::default(),
                yes_covers: self.yes_covers,
                rule: None,
                confinement: Confinement {
                    profile: "p".to_owned(),
                    writable_roots: Vec::new(),
                    network: NetworkAccess::Denied,
                },
            })
        }
    }

    #[test]
    fn only_calls_that_describe_their_effect_need_no_answer() {
        let (path, relative, root) = ("/w/a".to_owned(), "a".to_owned(), "/w".to_owned());
        let execute = Operation::Execute {
            command: "make".to_owned(),
            cwd: root.clone(),
            links: Vec::new(),
            replaces: Vec::new(),
            deletions: CommandDeletions::default(),
            in_trial: false,
            secrets: posse_actors::ports::CommandSecrets::default(),
        };
        let write = Operation::Write { path, relative, root, repository: None, ways: Vec::new() };
        for (access, operation, yes_covers, asking, runs) in [
            (Access::Process, &execute, true, AnswerSource::Nobody, true),
            (Access::Process, &execute, false, AnswerSource::Nobody, true),
            (Access::Process, &execute, true, AnswerSource::Human, false),
            (Access::Process, &execute, false, AnswerSource::Yes, false),
            (Access::Write, &write, true, AnswerSource::Nobody, true),
            (Access::Write, &write, false, AnswerSource::Nobody, false),
            (Access::Read, &write, true, AnswerSource::Nobody, false),
            (Access::Network, &execute, true, AnswerSource::Nobody, false),
            (Access::Unknown, &execute, true, AnswerSource::Nobody, false),
        ] {
            let action = Action {
                tool: "t".to_owned(),
                operations: vec![operation.clone()],
                summary: String::new(),
                detail: String::new(),
                digest: String::new(),
            };
            let situation = Situation {
                tool: &ToolAnnotations::new(access),
                caller: Caller::Agent,
                agent: "build",
                grants: &[],
                asking,
                mode: PermissionMode::default(),
                now_ms: 0,
                uptime: Duration::ZERO,
                tier: &SandboxTier::Full,
            };
            let judged = |is_dry_run| {
                let policy = dry_run_policy(Arc::new(Asking { yes_covers }), is_dry_run);
                matches!(policy.judge(&action, &situation), Verdict::Allow(_))
            };
            assert_eq!(judged(true), runs, "{access:?} {yes_covers} {asking:?}");
            assert!(!judged(false));
        }
    }
}
