//! The tool `restore_checkpoint`, with which the user restores files in a session.
//!
//! No agent sees it: front ends start it as a call of the user, so a restore is judged, asked about
//! and recorded like every other effect.

use std::fmt::Write;
use std::sync::Arc;

use posse_actors::event::Event;
use posse_actors::ports::{
    Access, Action, CallContext, Operation, PermittedCall, PortFuture, Prepared, RunContext,
    SideEffect, Tool, ToolAnnotations, ToolError, ToolOutput, ToolSpec,
};
use posse_base::failure::printable;
use posse_base::hex::sha256;
use posse_base::protected::is_protected_in;
use posse_base::threads;
use posse_tools::reads::ReadTable;
use serde_json::{Value, json};

use crate::plan::{ChangeKind, ChangedFile, RestoreChoice, RestorePlan, USERS};
use crate::store::{NewCheckpoint, Restored, Store, StoreError};

/// Name of the tool.
pub const NAME: &str = "restore_checkpoint";

/// Maximum number of files that a question names.
const NAMES_MAX: usize = 100;

/// Maximum number of restored files, and of files that stay, that a result names.
const REPORTED_MAX: usize = 20;

/// Opens the store of a session, once.
pub type OpenStore = Arc<dyn Fn() -> Result<Arc<Store>, StoreError> + Send + Sync>;

/// The tool `restore_checkpoint`.
pub struct RestoreTool {
    spec: ToolSpec,
    store: OpenStore,
    reads: Arc<ReadTable>,
}

impl RestoreTool {
    /// Creates the tool for the store that `store` opens. It records restored files in `reads`.
    pub fn new(store: OpenStore, reads: Arc<ReadTable>) -> RestoreTool {
        let spec = ToolSpec {
            name: NAME.to_owned(),
            description: "Restores the files of a checkpoint.".to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "checkpoint": { "type": "integer", "minimum": 1 },
                    "keepMine": { "type": "boolean" },
                    "undo": { "type": "boolean" },
                },
                "required": ["checkpoint"],
                "additionalProperties": false,
            }),
            side_effect: SideEffect::Workspace,
            source: "builtin".to_owned(),
            annotations: ToolAnnotations::new(Access::Write),
        };
        RestoreTool { spec, store, reads }
    }
}

/// Arguments of a call that restores the checkpoint `id`, as JSON text. `is_undo`: true if it takes
/// back the last step, so that a further one takes back the step before and not the restore.
pub fn arguments(id: u64, choice: RestoreChoice, is_undo: bool) -> String {
    let keeps = choice == RestoreChoice::KeepUsers;
    json!({ "checkpoint": id, "keepMine": keeps, "undo": is_undo }).to_string()
}

/// True if a call with these arguments takes back the last step.
pub fn is_undo(arguments: &str) -> bool {
    let arguments: Option<Value> = serde_json::from_str(arguments).ok();
    arguments.is_some_and(|arguments| arguments["undo"].as_bool().unwrap_or_default())
}

/// Prepared restore.
struct WantedRestore {
    id: u64,
    choice: RestoreChoice,
}

impl Tool for RestoreTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn takes_checkpoint(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let store = Arc::clone(&self.store);
        let id = arguments["checkpoint"].as_u64().unwrap_or_default();
        let keeps = arguments["keepMine"].as_bool().unwrap_or_default();
        let choice = if keeps { RestoreChoice::KeepUsers } else { RestoreChoice::All };
        Box::pin(async move {
            let planned = threads::run(move || {
                let store = store()?;
                let plan = store.plan(id, choice)?;
                Ok((operations(&store, &plan), plan))
            });
            let planned = planned.await.unwrap_or_else(|_| Err(bug()));
            let (operations, plan) = planned.map_err(|error| explain(&error))?;
            if plan.files.is_empty() {
                let what = format!("no file differs from checkpoint {id}{}", kept(&plan.kept));
                return Err(ToolError::new("UND001", what));
            }
            let digest = digest(&plan);
            let action = Action {
                tool: NAME.to_owned(),
                operations,
                summary: summary(&plan),
                detail: detail(&plan),
                digest,
            };
            Ok(Prepared { action, payload: Box::new(WantedRestore { id, choice }) })
        })
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        let (store, reads) = (Arc::clone(&self.store), Arc::clone(&self.reads));
        let digest_permitted = call.action().digest.clone();
        let Ok(wanted) = call.into_payload().downcast::<WantedRestore>() else {
            return Box::pin(async { ToolOutput::error("The call was prepared by another tool.") });
        };
        let WantedRestore { id, choice } = *wanted;
        Box::pin(async move {
            let (session, invocation) =
                (context.call.session_id.clone(), context.call.origin.invocation_id.clone());
            let restored = threads::run(move || {
                let store = store()?;
                let title = format!("restore of checkpoint {id}");
                let new = NewCheckpoint {
                    session: session.as_str(),
                    invocation: invocation.as_str(),
                    title: &title,
                };
                store.restore_if(id, choice, new, |plan| digest(plan) == digest_permitted)
            });
            let restored = match restored.await.unwrap_or_else(|_| Err(bug())) {
                Ok(Some(restored)) => restored,
                Ok(None) => {
                    return ToolOutput::error(
                        "Files changed after the restore was prepared. Nothing was restored; look \
                         at the changes, and restore again.",
                    );
                }
                Err(error) => return ToolOutput::error(explain(&error).to_string()),
            };
            let event = Event::CheckpointRestored {
                checkpoint: id,
                undo: restored.undo.id,
                files: restored.files.len(),
                kept: restored.kept.len(),
            };
            context.facts.send(event).await.ok();
            for (path, content) in &restored.contents {
                reads.restored(&context.call, path, content.clone());
            }
            output(id, &restored)
        })
    }
}

fn bug() -> StoreError {
    StoreError::Git("restoring failed with a bug in posse".to_owned())
}

fn explain(error: &StoreError) -> ToolError {
    let code = match error {
        StoreError::NotFound(_) | StoreError::OtherRoots(..) => "CKP002",
        _ => "CKP003",
    };
    ToolError::new(code, error.to_string())
}

/// Writes of the plan, for the policy.
fn operations(store: &Store, plan: &RestorePlan) -> Vec<Operation> {
    let operations = plan.files.iter().filter_map(|file| {
        let root = store.root(file.root)?;
        let relative = file.name();
        // Protected files are only removed, which plants nothing.
        (!is_protected_in(root, &relative)).then(|| Operation::Write {
            path: root.join(&relative).display().to_string(),
            relative,
            root: root.display().to_string(),
            repository: None,
            ways: Vec::new(),
        })
    });
    operations.collect()
}

/// Digest of the changes of `plan`.
pub fn digest(plan: &RestorePlan) -> String {
    sha256(format!("{NAME}\n{}\n{:?}", plan.checkpoint.id, plan.files).as_bytes())
}

fn summary(plan: &RestorePlan) -> String {
    let users = plan.of_user().count();
    let mut text =
        format!("restore {} of checkpoint {}", count(plan.files.len()), plan.checkpoint.id);
    if users > 0 {
        write!(text, ", {users} of them changed by you since").ok();
    }
    if let Some((first, _)) = plan.kept.first() {
        write!(text, "; not restored: {}", printable(first)).ok();
        if plan.kept.len() > 1 {
            write!(text, " and {} more", plan.kept.len() - 1).ok();
        }
    }
    text
}

fn count(files: usize) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{files} files") }
}

/// Lines about each file, those that the user has changed first.
fn detail(plan: &RestorePlan) -> String {
    let others = plan.files.iter().filter(|file| !file.is_users);
    let mut text = format!("before: {}\n", printable(&plan.checkpoint.title));
    for file in plan.of_user().chain(others).take(NAMES_MAX) {
        let users = if file.is_users { "  (you changed it since)" } else { "" };
        writeln!(text, "{} {}{users}", verb(file), printable(&file.name())).ok();
    }
    if plan.files.len() > NAMES_MAX {
        writeln!(text, "and {}", count(plan.files.len() - NAMES_MAX)).ok();
    }
    text.push_str(&kept_lines(&plan.kept));
    text
}

/// Word for what a restore will do with a file: `add`, `modify` or `delete`.
pub fn verb(file: &ChangedFile) -> &'static str {
    match file.kind {
        ChangeKind::Added => "add",
        ChangeKind::Modified => "modify",
        ChangeKind::Deleted => "delete",
    }
}

fn kept(kept: &[(String, String)]) -> String {
    if kept.is_empty() { String::new() } else { format!("\n{}", kept_lines(kept)) }
}

fn kept_lines(kept: &[(String, String)]) -> String {
    let lines = kept.iter().take(NAMES_MAX).map(|(name, reason)| {
        format!("not restored: {}: {}\n", printable(name), printable(reason))
    });
    lines.collect()
}

fn output(id: u64, restored: &Restored) -> ToolOutput {
    let report = report(id, restored);
    let text = report.join("\n");
    let metadata = json!({
        "checkpoint": id, "undo": restored.undo.id,
        "files": restored.files.len(), "kept": restored.kept.len(), "report": report,
    });
    ToolOutput::text(text).with_metadata(metadata)
}

/// Lines about the result of a restore: the restored files, those that stay with the reason, and what
/// can be done next.
fn report(id: u64, restored: &Restored) -> Vec<String> {
    let name = |file: &ChangedFile| format!("{} {}", file.kind.word(), printable(&file.name()));
    let mut names: Vec<String> = restored.files.iter().take(REPORTED_MAX).map(name).collect();
    let more =
        |count: usize| (count > REPORTED_MAX).then(|| format!("{} more", count - REPORTED_MAX));
    names.extend(more(restored.files.len()));
    let count = count(restored.files.len());
    let mut lines = vec![format!("restored {count} of checkpoint {id}: {}", names.join(", "))];
    let kept = restored.kept.iter().take(REPORTED_MAX);
    lines.extend(
        kept.map(|(name, reason)| {
            format!("not restored: {}: {}", printable(name), printable(reason))
        }),
    );
    lines.extend(more(restored.kept.len()).map(|more| format!("not restored: {more}")));
    if restored.kept.iter().any(|(_, reason)| *reason == USERS) {
        lines.push(
            "`/rewind N all` restores also what the user has changed; `/rewind` lists N".to_owned(),
        );
    }
    lines.push(format!("`/undo {}` takes the restore back", restored.undo.id));
    lines
}

impl std::fmt::Debug for RestoreTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestoreTool").finish_non_exhaustive()
    }
}
