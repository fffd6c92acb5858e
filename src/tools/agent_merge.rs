//! `agent_merge`: applies the changes of a subagent's worktree to the session's workspace.
//!
//! The policy judges a merge as an edit of all its files. A file that is unchanged in the workspace
//! gets the subagent's version; a file changed on both sides is merged line by line. If one file
//! has a conflict, no file is changed; the caller can then name the files without a conflict to
//! merge only these.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use posse_actors::ports::{
    Access, Action, CallContext, Prepared, RunContext, Tool, ToolAnnotations, ToolError, ToolOutput,
};
use posse_base::failure::printable;
use posse_base::secrets::is_secret;
use serde::Deserialize;
use serde_json::json;

use crate::agent_diff::{AgentWorktrees, found, of_left_out, opened, reads, unavailable};
use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::change::{ChangeTarget, FileChange};
use crate::text::{count, is_binary};
use crate::workspace::RepositoryParts;
use crate::worktree::{
    Changed, LeftOut, OpenWorktree, Side, Unavailable, WorktreeChanges, Worktrees, three_way,
};
use crate::{ToolEnvironment, blocking, digest, prepared, refusal, spec};
use posse_base::hex::sha256;

/// Name of the tool `agent_merge`.
const NAME: &str = posse_actors::delegation::MERGE;

/// Maximum total size of the diffs shown in a permission request, in bytes. A note of one line
/// replaces each file that does not fit.
const DETAIL_BYTES_MAX: usize = 256 << 10;
/// Maximum number of conflicts listed in an error. Further ones are only counted.
const CONFLICTS_MAX: usize = 50;

/// Creates the tool `agent_merge`.
pub fn tool(env: Arc<ToolEnvironment>, worktrees: Arc<Worktrees>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Takes what an agent that you started (if you are the main agent: any agent) has changed in \
         its worktree over into the workspace. If something was changed on both sides, nothing is taken and you are told where.",
        ToolAnnotations {
            // An agent that may not write a file cannot have it written by a merge either.
            restricted_by: ["Write", "write_file", "edit_file", "multi_edit"]
                .map(str::to_owned)
                .into(),
            ..ToolAnnotations::new(Access::Write).in_rules("Edit")
        },
        &json!({
            "id": { "type": "string" },
            "files": {
                "type": "array", "items": { "type": "string" },
                "description": "only these; default all",
            },
        }),
        &["id"],
    );
    let state = Arc::new(AgentWorktrees { env, worktrees });
    let mut tool = BuiltinTool::new(spec, state, prepare, run);
    tool.if_denied =
        Some("nothing was taken over; agent_merge with \"files\" takes over those that you name");
    Arc::new(tool)
}

#[derive(Deserialize)]
struct Arguments {
    id: String,
    files: Option<Vec<String>>,
}

/// Prepared merge of files from the worktree of subagent `id` into the session's workspace.
struct Merge {
    id: String,
    changes: Vec<FileChange>,
    /// Number of requested files that need no change: they were merged before, or contain the
    /// subagent's change already.
    already: usize,
    /// SHA-256 (hex) of each file's content after the merge, by path; `None` for a file that is
    /// removed.
    becoming: BTreeMap<String, Option<String>>,
    /// True if the merge covers all changed files of the worktree, possibly except those in
    /// `left_out`.
    is_whole: bool,
    left_out: LeftOut,
}

async fn prepare(
    tools: Arc<AgentWorktrees>,
    arguments: Arguments,
    call: CallContext,
) -> Result<Prepared, ToolError> {
    blocking(move || merge(&tools, arguments, &call)).await
}

async fn run(tools: Arc<AgentWorktrees>, merge: Merge, context: RunContext) -> RunResult {
    Ok(blocking(move || merge.apply(&tools, &context.call)).await)
}

fn merge(
    AgentWorktrees { env, worktrees }: &AgentWorktrees,
    Arguments { id, files }: Arguments,
    call: &CallContext,
) -> Result<Prepared, ToolError> {
    if worktrees.is_live(&id) {
        let what = format!("agent {} is still at work: wait for its end", printable(&id));
        return Err(ToolError::new("DLG006", what));
    }
    let tree = opened(worktrees, &id, &call.origin)?;
    let all = found(worktrees, &tree, &id);
    let (chosen, already) = match files.filter(|files| !files.is_empty()) {
        Some(files) => chosen(&tree, &id, &files, &worktrees.merged_files(&id))?,
        None => (all.clone()?.changed, 0),
    };
    // With too many files to list, the named ones can still be merged.
    let known = all.ok();
    let is_whole =
        known.as_ref().is_some_and(|all| all.changed.iter().all(|one| chosen.contains(one)));
    let left_out = known.map(|found| without(found, &chosen)).unwrap_or_default();
    let becoming = BTreeMap::new();
    let mut merge = Merge { changes: Vec::new(), already, becoming, is_whole, left_out, id };
    let (mut conflicts, mut clean) = (Vec::new(), Vec::new());
    for one in &chosen {
        let hash = match step(env, &tree, one).map_err(|why| unavailable(&merge.id, &why))? {
            MergeStep::Conflict(why) => {
                conflicts.push(format!("{}: {why}", printable(&one.path)));
                continue;
            }
            MergeStep::Already(hash) => {
                merge.already += 1;
                hash
            }
            MergeStep::Change(change) => {
                let hash = change.hash();
                merge.changes.push(change);
                hash
            }
        };
        merge.becoming.insert(one.path.clone(), hash);
        clean.push(one.path.as_str());
    }
    let looked = || reads(&env.workspace, &chosen);
    if !conflicts.is_empty() {
        let summary = format!("look at changes of agent {} that do not fit", merge.id);
        return Ok(refusal::prepared(NAME, looked(), summary, refused(&conflicts, &clean)));
    }
    if merge.changes.is_empty() {
        // Nothing is written, so only the reads are judged.
        let summary = format!("find nothing left to take over from agent {}", merge.id);
        let digest = digest::of(&[NAME.as_bytes(), b"nothing", merge.id.as_bytes()]);
        return Ok(prepared(NAME, looked(), (summary, String::new()), digest, merge));
    }
    Ok(Prepared { action: merge.action(), payload: Box::new(merge) })
}

/// Returns the left-out files of the worktree, except those that `chosen` contains.
fn without(
    WorktreeChanges { changed, mut left_out }: WorktreeChanges,
    chosen: &[Changed],
) -> LeftOut {
    let named = chosen.iter().filter(|one| !changed.contains(one));
    for one in named {
        left_out.count = left_out.count.saturating_sub(1);
        left_out.named.retain(|path| *path != printable(&one.path));
    }
    left_out
}

/// Finds the changed files among `files`, and counts those that are unchanged since an earlier
/// merge; `taken` lists all files that were merged. A file that is neither is an error.
fn chosen(
    tree: &OpenWorktree,
    id: &str,
    files: &[String],
    taken: &BTreeSet<String>,
) -> Result<(Vec<Changed>, usize), ToolError> {
    let (mut chosen, mut already) = (Vec::new(), BTreeSet::new());
    for path in files {
        let path = path.strip_prefix("./").unwrap_or(path);
        if let Some(one) = tree.one(path).map_err(|why| unavailable(id, &why))? {
            chosen.push(one);
        } else if taken.contains(path) {
            already.insert(path);
        } else {
            let path = printable(path);
            let what = format!("it did not change {path}; agent_diff lists what it did");
            return Err(ToolError::new("DLG006", what));
        }
    }
    chosen.sort_by(|a, b| a.path.cmp(&b.path));
    chosen.dedup();
    Ok((chosen, already.len()))
}

fn refused(conflicts: &[String], clean: &[&str]) -> ToolError {
    let mut what = format!(
        "nothing was changed: {} cannot be taken over by itself",
        count(conflicts.len(), "file")
    );
    for conflict in conflicts.iter().take(CONFLICTS_MAX) {
        what.extend(["\n  ", conflict]);
    }
    if !clean.is_empty() {
        let clean = printable(&clean.join(", "));
        // Writing to a string cannot fail.
        let _ = write!(what, "\nagent_merge with \"files\" takes the others over: {clean}");
    }
    what.push_str("\nagent_diff shows what it made of them; edit those yourself.");
    ToolError::new("DLG007", what)
}

/// Result of merging one file, before anything is written.
#[expect(clippy::large_enum_variant, reason = "one at a time, and most are changes")]
enum MergeStep {
    /// The file in the workspace contains the subagent's change already. SHA-256 (hex) of the file
    /// in the workspace; `None` if it does not exist.
    Already(Option<String>),
    /// The change to apply to the file.
    Change(FileChange),
    /// The file cannot be merged. The reason, for the model.
    Conflict(String),
}

/// Merges the file `one` without writing anything. Changes on both sides that do not fit, a link, a
/// secret, and a file that cannot be changed in the workspace are conflicts. Fails if a side in the
/// worktree cannot be read.
fn step(
    env: &ToolEnvironment,
    tree: &OpenWorktree,
    one: &Changed,
) -> Result<MergeStep, Unavailable> {
    let conflict = |why: &str| Ok(MergeStep::Conflict(why.to_owned()));
    let is_odd = |side: Side| matches!(side, Side::Link | Side::Other);
    if is_odd(one.before) || is_odd(one.after) {
        return conflict("it is a link, or no file; do that with bash");
    }
    if is_secret(&one.path) {
        return conflict("it has the name of a secret, which only a person may take over");
    }
    let place = env.workspace.locate(&one.path);
    if place.as_ref().is_ok_and(|place| place.relative() != one.path) {
        return conflict("a link leads elsewhere here");
    }
    let target = match place.and_then(ChangeTarget::load) {
        Ok(target) => target,
        Err(error) => return Ok(MergeStep::Conflict(error.message)),
    };
    let (base, theirs) = (tree.before(one)?, tree.after(one)?);
    let ours = target.before.as_ref().map(|before| before.bytes.clone());
    let exec = |side: Side| matches!(side, Side::File { exec: true });
    let wanted = (exec(one.before) != exec(one.after)).then(|| exec(one.after));
    let is_so = wanted.is_none_or(|exec| target.is_executable() == exec);
    if ours == theirs && is_so {
        return Ok(MergeStep::Already(ours.as_deref().map(sha256)));
    }
    let after = match (base, ours, theirs) {
        (base, ours, None) if ours == base => {
            return Ok(MergeStep::Change(FileChange::new(target, None, Vec::new())));
        }
        (_, _, None) => return conflict("it was changed here, and removed there"),
        (base, ours, Some(theirs)) if ours == base || ours.as_ref() == Some(&theirs) => theirs,
        (_, None, _) => return conflict("it was removed here, and changed there"),
        (None, _, _) => return conflict("it was made here and there, not the same"),
        (Some(base), Some(ours), Some(theirs)) => {
            if [&base, &ours, &theirs].into_iter().any(|bytes| is_binary(bytes)) {
                return conflict("it was changed here and there, and is no text");
            }
            match three_way(&base, &ours, &theirs) {
                // The subagent's change is included here already.
                Ok(text) if text == ours && is_so => {
                    return Ok(MergeStep::Already(Some(sha256(&ours))));
                }
                Ok(text) => text,
                Err(lines) => {
                    let lines: Vec<_> = lines.iter().take(9).map(ToString::to_string).collect();
                    let at = lines.join(", ");
                    return conflict(&format!("it was changed here and there, around line {at}"));
                }
            }
        }
    };
    let mut change = FileChange::new(target, Some(after), Vec::new());
    change.exec = wanted;
    Ok(MergeStep::Change(change))
}

impl Merge {
    fn action(&self) -> Action {
        let (mut added, mut removed, mut detail) = (0, 0, String::new());
        for change in &self.changes {
            let diff = &change.diff;
            (added, removed) = (added + diff.added, removed + diff.removed);
            if detail.len() + diff.text.len() <= DETAIL_BYTES_MAX {
                detail.push_str(&diff.text);
            } else {
                detail.push_str("[a further file is not shown: the diff is too long]\n");
            }
        }
        let digests: Vec<String> = self.changes.iter().map(|change| change.digest(NAME)).collect();
        let mut parts: Vec<&[u8]> = vec![NAME.as_bytes(), self.id.as_bytes()];
        parts.push(if self.is_whole { b"whole" } else { b"part" });
        parts.extend(digests.iter().map(String::as_bytes));
        let files = count(self.changes.len(), "file");
        let written = RepositoryParts::of(self.changes.iter().map(FileChange::relative));
        Action {
            tool: NAME.to_owned(),
            operations: self.changes.iter().map(|change| change.write_with(&written)).collect(),
            summary: format!("take over {files} from agent {} (+{added} -{removed})", self.id),
            detail,
            digest: digest::of(&parts),
        }
    }

    fn apply(self, tools: &AgentWorktrees, call: &CallContext) -> ToolOutput {
        let AgentWorktrees { env, worktrees } = tools;
        if env.dry_run {
            let text = format!("dry run: nothing was written\n{}", self.action().detail);
            return ToolOutput::text(text);
        }
        // Every file is checked again before the first one is written.
        let ready = self.changes.iter().try_for_each(|change| change.check(env)).and_then(|()| {
            let announced = worktrees.store_merge_hashes(&self.id, self.becoming.clone());
            announced.map_err(|why| unavailable(&self.id, &why))
        });
        if let Err(error) = ready {
            return ToolOutput::error(format!("{error}\nnothing was changed"));
        }
        let (mut said, mut made) = (Vec::new(), Vec::new());
        for change in &self.changes {
            match change.apply(env, call) {
                Ok(output) => {
                    said.push(posse_actors::conversation::text_of(&output.content));
                    made.push(output.metadata);
                }
                Err(error) => {
                    said.push(error.to_string());
                    said.push(
                        "the rest is not taken over; call agent_merge again to continue".to_owned(),
                    );
                    // A failure here is repeated by the next caller.
                    worktrees.have_become(&self.id, true).ok();
                    let metadata = json!({ "agentId": self.id, "changes": made });
                    return ToolOutput::error(said.join("\n")).with_metadata(metadata);
                }
            }
        }
        if self.already > 0 {
            let files = count(self.already, "file");
            said.push(format!("{files} had been taken over already, or made the same here"));
        }
        // The worktree is removed, so its state is not stored any more.
        let goes = self.is_whole && self.left_out.count == 0;
        let settled =
            if goes { worktrees.merged(&self.id) } else { worktrees.have_become(&self.id, false) };
        let all = if self.is_whole { "everything that it changed is here now; " } else { "" };
        match settled {
            Ok(()) if goes => said.push(format!("{all}its worktree was removed")),
            Ok(()) if self.is_whole => {
                // All files that this call named are merged.
                said.push(format!("{all}its worktree is kept"));
                said.push(of_left_out(&self.left_out, worktrees, &self.id).trim_end().to_owned());
            }
            Ok(()) => {}
            Err(why) => said.push(format!("{all}{why}")),
        }
        let metadata = json!({ "agentId": self.id, "changes": made });
        ToolOutput::text(said.join("\n")).with_metadata(metadata)
    }
}
