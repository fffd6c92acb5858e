//! Dry runs of `bash`: a command runs in a trial, and its changes are shown and dropped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::conversation::ContentPart;
use posse_actors::event::Event;
use posse_actors::ports::{Confinement, NetworkAccess, RunContext, ToolError, ToolOutput};
use posse_base::secrets::key_patterns::KeyMask;
use posse_sandbox::{Backend, ProcessOutcome, Sandbox, Spawn, obstacle, remove_abandoned_trial};
use serde_json::json;

use crate::bash::{Arguments, announce, network, refused, report};
use crate::trial_diff::Named;
use crate::{ToolEnvironment, blocking, output, spill, trial_diff};

/// Code of the error about a dry run that is not possible.
const CODE: &str = "SH009";

/// Folder of trials in that of the session.
const FOLDER: &str = "trials";

/// A command to try.
pub(super) struct DryRun {
    pub(super) spawn: Spawn,
    /// Note for the model that `timeoutMs` was set to another value than requested; `None` if it
    /// was not.
    pub(super) note: Option<String>,
}

/// Refuses a dry run with arguments that it cannot have, and where commands cannot be tried.
pub(super) fn check(
    env: &ToolEnvironment,
    sandbox: &Sandbox,
    arguments: &Arguments,
) -> Result<(), ToolError> {
    let refused = |message: String| Err(ToolError::new(CODE, message));
    if arguments.background {
        return refused("dryRun cannot be combined with background".to_owned());
    }
    if !arguments.unprotect.is_empty() {
        return refused("dryRun cannot be combined with unprotect".to_owned());
    }
    let obstacle = obstacle_of(env, sandbox, env.workspace.roots());
    match obstacle {
        Some(reason) => refused(format!("no dry run is possible here: {reason}; nothing was run")),
        None => Ok(()),
    }
}

/// Reason for which no command can be tried with `roots` as views; `None` if none is known.
pub(super) fn obstacle_of<'a>(
    env: &ToolEnvironment,
    sandbox: &Sandbox,
    mut roots: impl Iterator<Item = &'a Path>,
) -> Option<String> {
    let backend = sandbox.backend();
    if backend != Backend::Namespaces {
        let by = backend.as_str();
        return Some(format!("a trial needs the namespaces of posse, and the sandbox is {by}"));
    }
    let folder = env.session_dir.join(FOLDER);
    roots.find_map(|root| obstacle(root, &folder))
}

/// Runs the command in a trial and returns its output and its changes, which are dropped.
pub(super) async fn run(
    env: &Arc<ToolEnvironment>,
    sandbox: &Sandbox,
    command: DryRun,
    context: &RunContext,
) -> ToolOutput {
    let DryRun { spawn, note } = command;
    // The output and the changes share the space.
    let context = RunContext { output_bytes_max: context.output_bytes_max / 2, ..context.clone() };
    let timeout = spawn.timeout;
    let spawn = Spawn {
        confinement: confinement(env, spawn.confinement),
        output_bytes_max: context.output_bytes_max,
        ..spawn
    };
    let folder = new_folder(env, &context).await;
    let late = Some(report::late_findings(context.post_call.clone()));
    let tried = sandbox.try_command(spawn, &folder, late, |update| announce(&context, update));
    let mut tried = match tried.await {
        Ok(tried) => tried,
        Err(error) => return refused(&error),
    };
    // The file is removed with the trial.
    tried.outcome.output.spill = None;
    let base = env.workspace.cwd().to_owned();
    let bytes_max = context.output_bytes_max;
    // Also drops the trial, which removes files.
    let (outcome, changes, number) = blocking(move || {
        let counts = trial_diff::counts(&tried.changes.changes);
        let diff = masked(&trial_diff::text(&tried, &base, Named::All));
        let number = tried.changes.changes.len();
        (tried.outcome, format!("{counts}\n{}", bounded(&diff, bytes_max)), number)
    })
    .await;
    let notes = notes(env, &context, &outcome, note).await;
    let mut result = report::output(&env.session_dir, &context, &outcome, notes, timeout);
    let text = format!("\ndry run: the workspace was not changed; in the trial: {changes}");
    result.content.push(ContentPart::text(text));
    result.metadata["dryRun"] = json!(true);
    result.metadata["changes"] = json!(number);
    result
}

/// Confinement of the command: all workspace folders are views that it can change. A command
/// without a sandbox is refused by the trial.
fn confinement(env: &ToolEnvironment, given: Confinement) -> Confinement {
    if given.profile == "off" {
        return given;
    }
    let roots = env.workspace.roots().map(|root| root.display().to_string());
    Confinement {
        profile: "workspace-write".to_owned(),
        writable_roots: roots.collect(),
        network: NetworkAccess::Denied,
    }
}

/// Returns the folder for the trial of a call, which does not exist. A process that was killed may
/// have left it.
pub(super) async fn new_folder(env: &ToolEnvironment, context: &RunContext) -> PathBuf {
    let name = spill::path(&env.session_dir, &context.call.call_id);
    let folder = env.session_dir.join(FOLDER).join(name.file_stem().unwrap_or_default());
    let old = folder.clone();
    blocking(move || remove_abandoned_trial(&old)).await;
    folder
}

/// Notes for the model about the differences of a trial. Tells the user about tracked secrets.
pub(super) async fn notes(
    env: &ToolEnvironment,
    context: &RunContext,
    outcome: &ProcessOutcome,
    note: Option<String>,
) -> Vec<String> {
    let missed = network::is_missed(outcome).then(|| "a trial has no network".to_owned());
    let renamed = trial_diff::rename_note(outcome).map(str::to_owned);
    let untold = report::untold_secrets(env, &context.call, &outcome.covered_secrets);
    for message in untold.clone() {
        context.facts.send(Event::Warning { message }).await.ok();
    }
    missed.into_iter().chain(renamed).chain(untold).chain(note).collect()
}

/// Redacts values that look like keys.
pub(super) fn masked(text: &str) -> String {
    let mut mask = KeyMask::default();
    let mut plain = Vec::with_capacity(text.len());
    mask.push(text.as_bytes(), |bytes| plain.extend_from_slice(bytes));
    mask.finish(|bytes| plain.extend_from_slice(bytes));
    String::from_utf8_lossy(&plain).into_owned()
}

/// The beginning of `text`, with a note if it has more than `bytes_max` bytes.
pub(super) fn bounded(text: &str, bytes_max: usize) -> String {
    let shown = output::prefix_within(text, bytes_max);
    match text.len() - shown.len() {
        0 => text.to_owned(),
        cut => format!("{shown}\n[… {cut} bytes of the changes are not shown …]\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_bounded_and_keys_are_redacted() {
        assert_eq!(bounded("short\n", 6), "short\n");
        let cut = bounded(&"é".repeat(10), 5);
        assert_eq!(cut, "éé\n[… 16 bytes of the changes are not shown …]\n");
        let key = format!("+token = ghp_{}\n", "a1B2c3D4e5".repeat(4).split_at(36).0);
        assert!(!masked(&key).contains("a1B2c3D4"), "{}", masked(&key));
        assert_eq!(masked("+plain\n"), "+plain\n");
    }
}
