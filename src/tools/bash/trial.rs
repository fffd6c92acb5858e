//! Trials of commands that a person asks for before the answer to a permission request.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::conversation::{ContentPart, text_of};
use posse_actors::event::{Event, TriedChange};
use posse_actors::ports::{
    CallTrial, Confinement, PermittedCall, Prepared, RunContext, ToolOutput,
};
use posse_base::failure::printable;
use posse_sandbox::{Exit, KeptTrial, Sandbox, TriedCommand, Update, finding_lines};
use serde_json::json;

use crate::bash::{BashPayload, PreparedCommand, Process, announce, dry_run, report};
use crate::trial_diff::Named;
use crate::{ToolEnvironment, blocking, refusal, trial_diff};

/// Maximum size in bytes of the changes that are shown.
const CHANGES_BYTES_MAX: usize = 64 << 10;

/// Maximum number of changes in the list of the record.
const LISTED_MAX: usize = 2000;

/// Maximum number of changes that are named because they were not kept.
const REFUSED_MAX: usize = 40;

/// True if the prepared call can run in a trial: it is a command that may change the workspace, has
/// no exemptions and does not run in the background, and this machine can do it.
pub(super) fn can_try(
    env: &ToolEnvironment,
    sandbox: &Sandbox,
    prepared: &Prepared,
    confinement: &Confinement,
) -> bool {
    let is_plain = matches!(
        prepared.payload.downcast_ref(),
        Some(BashPayload::Command(PreparedCommand { background: false, dry_run: false, .. }))
    );
    // Others are exemptions from the protection of files.
    let is_alone = prepared.action.operations.len() == 1;
    let roots = &confinement.writable_roots;
    is_plain
        && is_alone
        && !env.dry_run
        && confinement.profile == "workspace-write"
        && !roots.is_empty()
        && dry_run::obstacle_of(env, sandbox, roots.iter().map(Path::new)).is_none()
}

/// Runs the command of the call in a trial. `Err`: nothing was run, for this reason.
pub(super) async fn run(
    env: &Arc<ToolEnvironment>,
    sandbox: &Sandbox,
    call: PermittedCall,
    context: &RunContext,
) -> Result<CallTrial, String> {
    let confinement = call.confinement().clone();
    let payload = refusal::payload(call).map_err(|error| error.to_string())?;
    let BashPayload::Command(command) = payload else {
        return Err("the command was tried already".to_owned());
    };
    let PreparedCommand { command, directory, timeout, note, .. } = command;
    let process = Process { command: &command, directory, timeout, confinement };
    let spawn = process.spawn(env, sandbox, context);
    let folder = dry_run::new_folder(env, context).await;
    let late = Some(report::late_findings(context.post_call.clone()));
    // The output is shown with the result.
    let watch = |update| match update {
        Update::Enforced { .. } => announce(context, update),
        Update::Output(_) => {}
    };
    let tried = sandbox.try_command(spawn, &folder, late, watch).await;
    let mut tried = tried.map_err(|error| printable(&error.to_string()))?;
    // The file is removed with the trial.
    tried.outcome.output.spill = None;
    let base = env.workspace.cwd().to_owned();
    let (tried, diff, are_named) = blocking(move || {
        let diff = dry_run::masked(&trial_diff::text(&tried, &base, Named::All));
        let mut diff = dry_run::bounded(&diff, CHANGES_BYTES_MAX);
        let names = trial_diff::names(&tried.changes.changes, &base);
        let are_named = names.is_some_and(|names| names.len() <= CHANGES_BYTES_MAX);
        if !are_named {
            diff.push_str("[too many changes to name, so they cannot be kept]\n");
        }
        (tried, diff, are_named)
    })
    .await;
    let notes = dry_run::notes(env, context, &tried.outcome, note).await;
    let result = report::output(&env.session_dir, context, &tried.outcome, notes, timeout);
    let counts = trial_diff::counts(&tried.changes.changes);
    let summary = format!("{counts} {}", report::footer(&tried.outcome, timeout, false));
    let output = text_of(&result.content);
    let changes = listed(&tried, env.workspace.cwd());
    let exit_code = match tried.outcome.exit {
        Exit::Code(code) => Some(code),
        _ => None,
    };
    let can_keep = are_named && tried.changes.is_complete && !tried.changes.changes.is_empty();
    let kept = KeptCommand { tried, result, base: env.workspace.cwd().to_owned() };
    let kept = can_keep.then(|| Box::new(BashPayload::Kept(Box::new(kept))) as Box<_>);
    Ok(CallTrial { summary, exit_code, output, changes, diff, kept })
}

/// Changes for the record of the trial: only the first ones if there are many.
fn listed(tried: &TriedCommand, base: &Path) -> Vec<TriedChange> {
    let changes = &tried.changes.changes;
    let changes = &changes[..changes.len().min(LISTED_MAX)];
    let mut bytes = 0;
    let fits = |change: &TriedChange| {
        bytes += change.path.len();
        bytes <= CHANGES_BYTES_MAX
    };
    trial_diff::list(changes, base, dry_run::masked).into_iter().take_while(fits).collect()
}

/// A tried command whose changes a person keeps.
pub(super) struct KeptCommand {
    tried: TriedCommand,
    /// Result of the command in the trial.
    result: ToolOutput,
    /// Working directory, to which shown paths are relative.
    base: PathBuf,
}

impl KeptCommand {
    /// Applies the changes to the workspace, and returns the result of the command in the trial.
    pub(super) async fn keep(self, sandbox: &Sandbox, context: &RunContext) -> ToolOutput {
        let KeptCommand { tried, mut result, base } = self;
        let kept = sandbox.keep_trial(&tried).await;
        // Removes files.
        blocking(move || drop(tried)).await;
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => {
                let error = printable(&error.to_string());
                return ToolOutput::error(format!(
                    "SH006 the command ran in a trial, and its changes could not be kept: {error}; \
                     nothing was changed"
                ));
            }
        };
        for message in finding_lines(&kept.findings) {
            context.facts.send(Event::Warning { message }).await.ok();
        }
        result.content.push(ContentPart::text(text(&kept, &base)));
        result.metadata["keptChanges"] = json!(kept.kept);
        result.metadata["refusedChanges"] = json!(kept.refused.len());
        result
    }
}

/// Text for the model about kept changes.
fn text(kept: &KeptTrial, base: &Path) -> String {
    let KeptTrial { kept, refused, findings } = kept;
    let mut text = format!(
        "\nthe command ran once, in a trial without network, and the user kept its changes: {kept} \
         of {}\n",
        kept + refused.len()
    );
    for change in refused.iter().take(REFUSED_MAX) {
        let path = change.path.strip_prefix(base).unwrap_or(&change.path);
        let (path, reason) = (path.display().to_string(), change.reason.to_string());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "not kept: {}: {}", printable(&path), printable(&reason));
    }
    if refused.len() > REFUSED_MAX {
        let _ = writeln!(text, "not kept: {} more", refused.len() - REFUSED_MAX);
    }
    for line in finding_lines(findings) {
        let _ = writeln!(text, "({line})");
    }
    text
}
