//! `agent_diff`: shows the changes of a subagent in its worktree.

use std::fmt::Write as _;
use std::sync::Arc;

use posse_actors::event::Origin;
use posse_actors::ports::{
    Access, CallContext, Operation, Prepared, RunContext, Tool, ToolAnnotations, ToolError,
    ToolOutput,
};
use posse_base::failure::printable;
use posse_base::secrets::is_secret;
use serde::Deserialize;
use serde_json::json;

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::text::count;
use crate::workspace::Workspace;
use crate::worktree::{
    Changed, LeftOut, OpenWorktree, Side, Unavailable, WorktreeChanges, Worktrees,
};
use crate::{ToolEnvironment, blocking, diff, digest, prepared, spec};

/// Name of the tool `agent_diff`.
const NAME: &str = posse_actors::delegation::DIFF;

/// Maximum bytes of the list and diffs that one call returns. A note about the next page is added.
const PAGE_BYTES: usize = 24 << 10;
/// Maximum number of changed files in a worktree that are shown or merged at once. With more,
/// `agent_diff` fails, and `agent_merge` merges only files that it is given by name.
pub(crate) const FILES_MAX: usize = 2000;

/// Creates the tool `agent_diff`.
pub fn tool(env: Arc<ToolEnvironment>, worktrees: Arc<Worktrees>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Shows what an agent that you started (if you are the main agent: any agent) has changed in \
         its worktree, as a diff.",
        ToolAnnotations::new(Access::Read),
        &json!({
            "id": { "type": "string" },
            "from": { "type": "integer", "description": "byte to read from; default 0" },
        }),
        &["id"],
    );
    let state = Arc::new(AgentWorktrees { env, worktrees });
    Arc::new(BuiltinTool::new(spec, state, prepare, run))
}

/// State that the tools `agent_diff` and `agent_merge` share: the environment of the tools, and the
/// worktrees of the session.
pub(crate) struct AgentWorktrees {
    pub(crate) env: Arc<ToolEnvironment>,
    pub(crate) worktrees: Arc<Worktrees>,
}

#[derive(Deserialize)]
struct Arguments {
    id: String,
    from: Option<u64>,
}

/// Prepared result: the whole text of all pages, and the byte offset at which the returned page
/// begins.
struct DiffText {
    text: String,
    from: usize,
}

async fn prepare(
    tools: Arc<AgentWorktrees>,
    Arguments { id, from }: Arguments,
    call: CallContext,
) -> Result<Prepared, ToolError> {
    blocking(move || {
        let worktrees = &tools.worktrees;
        let tree = opened(worktrees, &id, &call.origin)?;
        let WorktreeChanges { changed, left_out } = found(worktrees, &tree, &id)?;
        let mut text = format_all(&tree, &changed, &id).map_err(|why| unavailable(&id, &why))?;
        text.push_str(&of_left_out(&left_out, worktrees, &id));
        let digest = digest::of(&[NAME.as_bytes(), id.as_bytes(), text.as_bytes()]);
        let from = usize::try_from(from.unwrap_or_default()).unwrap_or(usize::MAX);
        let operations = reads(&tools.env.workspace, &changed);
        let words = (format!("look at what agent {id} changed"), String::new());
        Ok(prepared(NAME, operations, words, digest, DiffText { text, from }))
    })
    .await
}

async fn run(
    _: Arc<AgentWorktrees>,
    DiffText { text, from }: DiffText,
    _: RunContext,
) -> RunResult {
    Ok(ToolOutput::text(page(&text, from)))
}

/// Opens the worktree of subagent `id` for comparison. Fails if it does not exist, was merged
/// completely, or if `origin` is a subagent that did not request subagent `id` itself. The main
/// agent may open all worktrees.
pub(crate) fn opened(
    worktrees: &Worktrees,
    id: &str,
    origin: &Origin,
) -> Result<OpenWorktree, ToolError> {
    if worktrees.is_merged(id) {
        let what = format!("what agent {id} changed was taken over, and its worktree removed");
        return Err(ToolError::new("DLG006", what));
    }
    worktrees.of_caller(id, asker(origin)).map_err(|why| unavailable(id, &why))
}

/// Finds the changes in the worktree of subagent `id`. Fails if there are too many to show or merge
/// at once.
pub(crate) fn found(
    worktrees: &Worktrees,
    tree: &OpenWorktree,
    id: &str,
) -> Result<WorktreeChanges, ToolError> {
    let too_many = |many: &str| {
        let what = format!(
            "agent {id} changed {many}, which is more than can be shown or taken over at once. They \
             are in {}; agent_merge with \"files\" takes over those that you name",
            at(worktrees, id)
        );
        Err(ToolError::new("DLG006", what))
    };
    match tree.all_changes() {
        Ok(found) if found.changed.len() > FILES_MAX => {
            too_many(&count(found.changed.len(), "file"))
        }
        Ok(found) => Ok(found),
        Err(Unavailable::TooLarge(files)) => too_many(&format!("more than {files}")),
        Err(why) => Err(unavailable(id, &why)),
    }
}

/// Path of the working directory in the worktree of subagent `id`, escaped for a message; empty if
/// there is no worktree.
pub(crate) fn at(worktrees: &Worktrees, id: &str) -> String {
    let cwd = worktrees.cwd_of(id).unwrap_or_default();
    printable(&cwd.display().to_string())
}

/// Formats one line about the new files that a merge leaves out unless its caller names them (see
/// [`LeftOut`]): their number, the first paths except those of secrets, and the working directory
/// in the worktree. Empty if there are none.
pub(crate) fn of_left_out(left_out: &LeftOut, worktrees: &Worktrees, id: &str) -> String {
    if left_out.count == 0 {
        return String::new();
    }
    let named = left_out.named.iter().map(String::as_str).filter(|path| !is_secret(path));
    let named: Vec<&str> = named.collect();
    let more = if named.len() < left_out.count { ", …" } else { "" };
    format!(
        "left out, for git ignores it or its name cannot be written: {} ({}{more}) in {}; agent_merge \
         takes those over that \"files\" names\n",
        count(left_out.count, "new file"),
        named.join(", "),
        at(worktrees, id)
    )
}

/// Invocation id with which the caller `origin` asks for worktrees. `None` for the main agent,
/// which has another invocation for each prompt.
fn asker(origin: &Origin) -> Option<&str> {
    origin.parent_invocation_id.as_ref().map(|_| origin.invocation_id.as_str())
}

pub(crate) fn unavailable(id: &str, why: &Unavailable) -> ToolError {
    let id = printable(id);
    let what = match why {
        Unavailable::Gone => format!(
            "there is no worktree of an agent {id} of yours: it had none, or changed nothing, and \
             it was removed"
        ),
        Unavailable::NotYours(_) => format!("the worktree of agent {id} is not yours: {why}"),
        why => format!("the worktree of agent {id} cannot be looked at: {why}"),
    };
    ToolError::new("DLG006", what)
}

/// Creates the operations for the policy: reading each of `files` at its path in the workspace,
/// although its content comes from the worktree. Secret files are omitted, because only their
/// existence is reported.
pub(crate) fn reads(workspace: &Workspace, files: &[Changed]) -> Vec<Operation> {
    let root = workspace.cwd();
    let read = |file: &Changed| Operation::Read {
        path: root.join(&file.path).display().to_string(),
        relative: file.path.clone(),
        root: root.display().to_string(),
        is_committed: false,
        ways: Vec::new(),
    };
    files.iter().filter(|file| !is_secret(&file.path)).map(read).collect()
}

/// Formats a list of the changed files with their numbers of added and removed lines, followed by
/// their diffs. Secret files are only counted.
fn format_all(tree: &OpenWorktree, changed: &[Changed], id: &str) -> Result<String, Unavailable> {
    let (mut list, mut diffs, mut secrets) = (String::new(), String::new(), 0);
    for one in changed {
        if is_secret(&one.path) {
            secrets += 1;
            continue;
        }
        let (before, after) = (tree.before(one)?, tree.after(one)?);
        let diff = diff::unified(&one.path, before.as_deref(), &after.unwrap_or_default());
        let what = match (one.before, one.after) {
            (_, Side::Nothing) => "deleted",
            (_, Side::Link) => "a link",
            (_, Side::Other) => "no file any more",
            (Side::Nothing, Side::File { .. }) => "added",
            (_, Side::File { .. }) => "modified",
        };
        let (path, added, removed) = (printable(&one.path), diff.added, diff.removed);
        // Writing to a string cannot fail.
        let _ = writeln!(list, "{what} {path} (+{added} -{removed})");
        diffs.push_str(&diff.text);
    }
    let mut text = format!("agent {id} changed {}:\n{list}", count(changed.len(), "file"));
    if secrets > 0 {
        let _ = writeln!(text, "{} with the name of a secret not shown", count(secrets, "file"));
    }
    text.push_str(&diffs);
    Ok(text)
}

fn page(text: &str, from: usize) -> String {
    let from = text.ceil_char_boundary(from);
    let to = text.floor_char_boundary(from.saturating_add(PAGE_BYTES));
    let mut page = text[from..to].to_owned();
    if to < text.len() {
        // Writing to a string cannot fail.
        let _ = write!(page, "\n{to} of {} bytes; continue with \"from\": {to}", text.len());
    }
    page
}
