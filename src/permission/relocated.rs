//! Policy for a subagent in an isolated workspace, a copy of the workspace: its actions are judged
//! as if they happened in the workspace, and are confined to the copy.
//!
//! Rules and grants of the workspace therefore mean the same in the copy. A write grant that a
//! person gives for the copy applies to the copy only; a grant for a command applies in the
//! workspace as well.

use posse_actors::event::{Grant, Scope};
use posse_actors::ports::{
    Action, Confinement, FilePath, Operation, PermissionQuestion, Situation, Verdict,
};

use crate::{RulePolicy, deny, paths};

/// Operation of grants for changing files ([`Grant::operation`]).
const WRITE: &str = "write";

/// Workspace, and the copy of it (the isolated workspace) in which a subagent works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocated {
    /// Root of the workspace: absolute and resolved.
    pub workspace: String,
    /// Root of the copy: absolute and resolved.
    pub copy: String,
    /// Folder that commands may write: the copy, or a folder above it if more than the root was
    /// copied.
    pub writable: String,
}

impl Relocated {
    /// Judges `action`, which happens in the copy, by the rules of `policy` for the workspace.
    /// Denies it if it leaves the copy.
    pub(super) fn judge(
        &self,
        policy: &RulePolicy,
        action: &Action,
        situation: &Situation<'_>,
    ) -> Verdict {
        let operations = action.operations.iter().map(|operation| self.in_workspace(operation));
        let Some(operations) = operations.collect::<Option<Vec<_>>>() else {
            return deny("hard-deny: worktree", "it is outside the worktree of this agent");
        };
        let moved = Action { operations, ..action.clone() };
        let mut grants = situation.grants.to_vec();
        grants.extend(situation.grants.iter().filter_map(|grant| {
            let target = moved_path(&grant.target, &self.copy, &self.workspace)?;
            (grant.operation == WRITE).then(|| Grant { target, ..grant.clone() })
        }));
        let verdict = policy.judge_here(&moved, &Situation { grants: &grants, ..*situation });
        match verdict {
            Verdict::Allow(confinement) => Verdict::Allow(self.confined(confinement)),
            Verdict::Ask(question) => Verdict::Ask(self.asked(question)),
            denied @ Verdict::Deny { .. } => denied,
        }
    }

    /// Translates an operation in the copy to the workspace. `None` if it is outside the copy.
    /// Commands are unchanged: their paths are resolved in the copy.
    fn in_workspace(&self, operation: &Operation) -> Option<Operation> {
        let moved = |path: &str| moved_path(path, &self.copy, &self.workspace);
        let moved_way = |way: &FilePath| {
            Some(FilePath { path: moved(&way.path)?, relative: way.relative.clone() })
        };
        let moved_ways = |ways: &[FilePath]| ways.iter().map(moved_way).collect::<Option<Vec<_>>>();
        Some(match operation {
            Operation::Read { path, relative, root, is_committed, ways } => {
                let (path, root, ways) = (moved(path)?, moved(root)?, moved_ways(ways)?);
                let (relative, is_committed) = (relative.clone(), *is_committed);
                Operation::Read { path, relative, root, is_committed, ways }
            }
            Operation::Write { path, relative, root, repository, ways } => {
                let (path, root, ways) = (moved(path)?, moved(root)?, moved_ways(ways)?);
                let (relative, repository) = (relative.clone(), repository.clone());
                Operation::Write { path, relative, root, repository, ways }
            }
            Operation::Execute { cwd, .. } => {
                moved(cwd)?;
                operation.clone()
            }
            Operation::Invoke { .. } => operation.clone(),
        })
    }

    /// Path in the workspace for a path in the copy. `None` if `path` is not in the copy.
    pub(super) fn original(&self, path: &str) -> Option<String> {
        moved_path(path, &self.copy, &self.workspace)
    }

    fn confined(&self, confinement: Confinement) -> Confinement {
        let writes = !confinement.writable_roots.is_empty();
        let writable_roots = if writes { vec![self.writable.clone()] } else { Vec::new() };
        Confinement { writable_roots, ..confinement }
    }

    /// Translates a permission request to the copy: the call may write only there, and an offered
    /// write grant names the folder in the copy and has at most the scope of the session. Other
    /// grants are unchanged.
    fn asked(&self, mut question: PermissionQuestion) -> PermissionQuestion {
        question.confinement = self.confined(question.confinement);
        if let Some(grant) = question.grant.as_mut().filter(|grant| grant.operation == WRITE) {
            if let Some(target) = moved_path(&grant.target, &self.workspace, &self.copy) {
                grant.target = target;
            } else {
                (question.grant, question.grant_text) = (None, Box::default());
            }
            let has_grant = question.grant.is_some();
            question
                .scopes
                .retain(|scope| *scope == Scope::Once || (has_grant && *scope == Scope::Session));
        }
        question
    }
}

/// Replaces the folder `from` at the beginning of `path` by `to`. `None` if `path` is not below
/// `from`.
fn moved_path(path: &str, from: &str, to: &str) -> Option<String> {
    if !paths::is_below(path, from) {
        return None;
    }
    let rest = path.strip_prefix(from.trim_end_matches('/'))?;
    Some(format!("{}{rest}", to.trim_end_matches('/')))
}

#[cfg(test)]
mod tests;
