//! `posse try`: runs a command in a trial, shows its changes, and keeps or drops them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, BufRead, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use posse_actors::event::PromptOverrides;
use posse_actors::ports::{AnswerSource, Confinement, NetworkAccess};
use posse_base::secrets::mask::Mask;
use posse_base::shell_words::quoted;
use posse_base::{terminal, threads};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::checkpoint::{NewCheckpoint, Store, StoreError};
use crate::cli::TryArgs;
use crate::commands::{can_confirm, checkpoint_store, print, runtime};
use crate::config::Environment;
use crate::failure::{ErrorCode, Exit, Failure, printable, printable_lines};
use crate::journal::StateDir;
use crate::known_secrets::secrets;
use crate::sandbox::{
    self, Captured, Directory, FileKind, KeptTrial, ProcessOutcome, RunError, Sandbox, Spawn,
    TrialChange, TriedCommand, covered_lines, finding_lines, remove_abandoned_trials,
};
use crate::start_mode::no_checkpoints;
use crate::tools::trial_diff::{self, TrialPatch};
use crate::tools::workspace::Workspace;
use crate::wiring::{Setup, WorkspaceContext, confinement, place, session_id, workspace_roots};

/// Name of the folder of trials in that of the project.
const FOLDER: &str = "trials";

/// Time limit of a command: a person or a script waits for it.
const TIMEOUT: Duration = Duration::from_hours(24);

/// Size of the output in bytes that is shown, half of it from the beginning.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// Output size in bytes at which a command is killed.
const SPILL_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of refused changes that are named.
const REFUSED_MAX: usize = 40;

pub(super) fn run(args: &TryArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let place_args = crate::cli::PlaceArgs { cwd: args.cwd.clone(), ..Default::default() };
    let context = place(&place_args, Vec::new(), environment)?;
    let workspace = workspace_roots::open(&context.cwd, &[], &context.loaded.settings)?;
    let runtime = runtime()?;
    let command = TryCommand::new(args, &context, environment, workspace)?;
    let ended = runtime.block_on(command.run());
    // Dropped before the runtime: it waits for the temporary folder.
    drop(command);
    runtime.shutdown_background();
    Ok(ended?)
}

/// A command to try, and the place for it.
struct TryCommand<'a> {
    args: &'a TryArgs,
    context: &'a WorkspaceContext,
    workspace: Workspace,
    sandbox: Sandbox,
    mask: Mask,
    /// The command as one line for the shell.
    line: String,
    /// Folder of this trial. Dropped last: the sandbox removes its temporary folder in it.
    folder: TrialFolder,
}

/// Removes the folder of a trial on drop, when everything in it is removed.
struct TrialFolder(PathBuf);

impl Drop for TrialFolder {
    fn drop(&mut self) {
        // Not empty if it contains a quarantine.
        std::fs::remove_dir(&self.0).ok();
    }
}

impl<'a> TryCommand<'a> {
    fn new(
        args: &'a TryArgs,
        context: &'a WorkspaceContext,
        environment: &Environment,
        workspace: Workspace,
    ) -> Result<TryCommand<'a>, Failure> {
        let settings = &context.loaded.settings;
        let setup = Setup {
            cwd: &context.cwd,
            add_dirs: &[],
            dirs: &context.dirs,
            settings,
            environment,
            asking: AnswerSource::Nobody,
            used: crate::agents::AgentUse::Task,
            prompt: &PromptOverrides::default(),
            dry_run: false,
            tape: None,
            keep: false,
        };
        let roots: Vec<PathBuf> = workspace.roots().map(Path::to_owned).collect();
        let writable = workspace_roots::writable(&roots, settings);
        sandbox::record_workspaces(&writable).map_err(|error| {
            let what = "the folders of the workspace cannot be recorded";
            Failure::new(ErrorCode::TrialFailed, Exit::Sandbox, what).because(error.to_string())
        })?;
        let known = secrets(settings, environment);
        let mask = Mask::new(&known);
        let sandbox = confinement::sandbox(&setup, roots, known)?;
        let state = StateDir::new(context.dirs.state.clone());
        let trials = state.project_dir(&context.cwd).join(FOLDER);
        remove_abandoned_trials(&trials);
        let folder = TrialFolder(trials.join(session_id().as_str()));
        let line = match &args.command[..] {
            [line] => line.clone(),
            words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        };
        Ok(TryCommand { args, context, workspace, sandbox, mask, line, folder })
    }

    async fn run(&self) -> Result<Exit, Failure> {
        let (stop, stopped) = oneshot::channel();
        let spawn = Spawn { stop: Some(stopped), ..self.spawn() };
        let mut trial = pin!(self.sandbox.try_command(spawn, &self.folder.0, None, |_| {}));
        let tried = tokio::select! {
            tried = &mut trial => tried.map_err(|error| {
                let fix = "`posse doctor` shows if commands can be tried on this machine";
                failure("the trial failed", &error).fix(fix)
            })?,
            _ = tokio::signal::ctrl_c() => {
                // Sending fails only if the command has ended.
                stop.send(()).ok();
                drop(trial.await);
                return Ok(Exit::Interrupt);
            }
        };
        let succeeded = tried.outcome.exit == sandbox::Exit::Code(0);
        // The sandbox has redacted it.
        let output = printable_lines(&output_text(&tried.outcome));
        let outcome = &tried.outcome;
        let hidden = covered_lines(&outcome.covered_secrets);
        let hint = trial_diff::rename_note(outcome);
        if !self.args.json {
            let named = trial_diff::Named::NotInDiff;
            let diff = self.masked(&trial_diff::text(&tried, &self.context.cwd, named));
            let counts = trial_diff::counts(&tried.changes.changes);
            let mut lines = hidden.clone();
            lines.extend(hint.map(|hint| format!("Note: {hint}")));
            lines.push(format!("{}; {counts}\n", exit_text(outcome)));
            print(&format!("{output}{diff}{}", lines.join("\n")));
        }
        let keeps = tokio::select! {
            keeps = self.keeps(&tried, succeeded) => keeps,
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupt),
        };
        // Keeping moves the files away.
        let mask = |text: &str| self.masked(text);
        let cwd = &self.context.cwd;
        let patch = self.args.json.then(|| trial_diff::patch(&tried, cwd, mask));
        let mut kept = if keeps { Some(self.keep(&tried).await?) } else { None };
        let is_whole = kept.as_ref().is_none_or(KeptChanges::is_whole);
        if self.args.json {
            let kept = kept.as_ref().map(KeptChanges::json);
            let TrialPatch { changes, diff } = patch.unwrap_or_default();
            let value = json!({
                "exitCode": exit_code(outcome), "output": output, "changes": changes,
                "diff": diff, "hidden": hidden, "hint": hint, "kept": kept,
            });
            print(&format!("{value}\n"));
        } else {
            print(&kept.as_ref().map_or("Dropped.\n".to_owned(), KeptChanges::text));
        }
        if let Some(failure) = kept.as_mut().and_then(|kept| kept.unfinished.take()) {
            return Err(failure);
        }
        Ok(if succeeded && is_whole { Exit::Done } else { Exit::Failed })
    }

    fn spawn(&self) -> Spawn {
        let (program, arguments) = self.sandbox.shell_command(&self.line);
        let roots = self.workspace.roots().map(|root| root.display().to_string());
        Spawn {
            program,
            arguments,
            directory: Directory::Path(self.context.cwd.clone()),
            environment: Vec::new(),
            confinement: Confinement {
                profile: "workspace-write".to_owned(),
                writable_roots: roots.collect(),
                network: NetworkAccess::Denied,
            },
            timeout: TIMEOUT,
            scratch: self.folder.0.join("tmp"),
            // The trial sets it.
            spill: PathBuf::new(),
            output_bytes_max: OUTPUT_BYTES_MAX,
            spill_bytes_max: SPILL_BYTES_MAX,
            dialogue: None,
            masks_keys: true,
            stop: None,
            at_timeout: None,
        }
    }

    fn masked(&self, text: &str) -> String {
        self.mask.text(text).unwrap_or_else(|| text.to_owned())
    }

    /// True if the changes are kept: as a flag says, or as the person answers. A flag keeps those of
    /// a command that succeeded only.
    async fn keeps(&self, tried: &TriedCommand, succeeded: bool) -> bool {
        let has_changes = !tried.changes.changes.is_empty() && tried.changes.is_complete;
        if self.args.keep {
            return succeeded;
        }
        let asks = !self.args.drop && !self.args.json && can_confirm();
        // On another thread, so that Ctrl+C ends the wait.
        has_changes && asks && threads::run(wants_to_keep).await.unwrap_or(false)
    }

    /// Keeps the changes, after a checkpoint.
    async fn keep(&self, tried: &TriedCommand) -> Result<KeptChanges, Failure> {
        let cwd = self.context.cwd.clone();
        if tried.changes.changes.is_empty() {
            let kept = KeptTrial { kept: 0, refused: Vec::new(), findings: Vec::new() };
            let (checkpoint, lasting) = (Ok(None), Vec::new());
            return Ok(KeptChanges { kept, cwd, checkpoint, lasting, unfinished: None });
        }
        let settings = &self.context.loaded.settings.checkpoints;
        let folder = checkpoint_store::folder(&cwd, &self.context.dirs);
        let failed = |error| checkpoint_store::failure(&error, &folder);
        let title = format!("try {}", self.line);
        let new = NewCheckpoint { session: "", invocation: "", title: &title };
        let checkpoint = if let Some(reason) = no_checkpoints(&self.context.loaded.settings) {
            Err(reason)
        } else {
            let workspace = self.workspace.clone();
            let store = checkpoint_store::store(&folder, workspace, settings, &self.context.dirs)?;
            let id = store.take(new, &|_, _| {}).map_err(failed)?.id;
            Ok((store, id))
        };
        let kept = self.sandbox.keep_trial(tried).await;
        // Also after a failure: a part may have been kept.
        let finished = checkpoint.as_ref().ok().map(|(store, id)| finish(store, *id));
        let finished = finished.transpose();
        let kept = kept.map_err(|error| {
            let failure = failure("the changes cannot be kept", &error);
            failure.fix("check the workspace, then try the command again")
        })?;
        let (covered, unfinished) = match finished {
            Ok(covered) => (covered, None),
            Err(error) => (None, Some(failed(error))),
        };
        let lasting = covered.map(|covered| lasting(tried, &kept, &covered)).unwrap_or_default();
        let checkpoint = checkpoint.map(|(_, id)| Some(id));
        Ok(KeptChanges { kept, cwd, checkpoint, lasting, unfinished })
    }
}

/// Stores the state after the changes in the checkpoint `id`. Returns the absolute paths of the files
/// that undoing it brings back.
fn finish(store: &Store, id: u64) -> Result<BTreeSet<PathBuf>, StoreError> {
    let changed = store.changes_of_run(&store.finish(id)?)?;
    let paths =
        changed.iter().filter_map(|file| Some(store.root(file.root)?.join(file.relative())));
    Ok(paths.collect())
}

/// Absolute paths of kept changes of files that are not `covered` by the checkpoint: git ignores them,
/// or they are too large.
fn lasting(tried: &TriedCommand, kept: &KeptTrial, covered: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let is_folder = |change: &TrialChange| {
        let mut states = change.before.iter().chain(&change.after);
        states.all(|state| state.kind == FileKind::Folder)
    };
    let refused: BTreeSet<&PathBuf> = kept.refused.iter().map(|change| &change.path).collect();
    let changes = tried.changes.changes.iter().filter(|change| !is_folder(change));
    let paths = changes.map(|change| change.root.join(&change.path));
    paths.filter(|path| !refused.contains(path) && !covered.contains(path)).collect()
}

/// Asks on standard error what to do with the changes. True for `k`; false for `n`, the end of the
/// input and an error.
fn wants_to_keep() -> bool {
    loop {
        let mut answer = String::new();
        let asked = terminal::stderr()
            .write_all(b"Keep these changes (k) or drop them (n)? ")
            .and_then(|()| io::stdin().lock().read_line(&mut answer));
        match (asked, answer.trim()) {
            (Ok(1..), "k" | "K" | "keep") => return true,
            (Ok(0) | Err(_), _) | (_, "n" | "N" | "no" | "drop") => return false,
            _ => {}
        }
    }
}

/// Result of keeping, for output.
struct KeptChanges {
    kept: KeptTrial,
    cwd: PathBuf,
    /// Number of the checkpoint, `None` if nothing was to be kept; or the reason for having none.
    checkpoint: Result<Option<u64>, String>,
    /// Absolute paths of the changed files that undoing does not bring back.
    lasting: Vec<PathBuf>,
    /// Failure to store the state after the changes in the checkpoint.
    unfinished: Option<Failure>,
}

impl KeptChanges {
    fn is_whole(&self) -> bool {
        self.kept.refused.is_empty() && self.kept.findings.is_empty()
    }

    fn shown(&self, path: &Path) -> String {
        printable(&path.strip_prefix(&self.cwd).unwrap_or(path).display().to_string())
    }

    fn text(&self) -> String {
        let KeptTrial { kept, refused, findings } = &self.kept;
        let mut text = format!("Kept {kept} of {} changes.", kept + refused.len());
        match &self.checkpoint {
            Ok(Some(id)) => {
                let but = if self.lasting.is_empty() { "." } else { ", except:" };
                write!(text, " Checkpoint {id}: `posse undo` takes them back{but}").ok();
            }
            Ok(None) => {}
            Err(reason) => {
                write!(text, " They cannot be undone: {}.", printable(reason)).ok();
            }
        }
        text.push('\n');
        for path in self.lasting.iter().take(REFUSED_MAX) {
            let path = self.shown(path);
            writeln!(text, "  cannot be undone  {path}: git ignores it, or it is too large").ok();
        }
        if self.lasting.len() > REFUSED_MAX {
            writeln!(text, "  and {} more", self.lasting.len() - REFUSED_MAX).ok();
        }
        for change in refused.iter().take(REFUSED_MAX) {
            let (path, reason) = (self.shown(&change.path), printable(&change.reason.to_string()));
            writeln!(text, "  not kept  {path}: {reason}").ok();
        }
        if refused.len() > REFUSED_MAX {
            writeln!(text, "  and {} more", refused.len() - REFUSED_MAX).ok();
        }
        for line in finding_lines(findings) {
            writeln!(text, "  {line}").ok();
        }
        text
    }

    fn json(&self) -> Value {
        let refused = self.kept.refused.iter().map(|change| {
            let path = self.shown(&change.path);
            json!({ "path": path, "change": change.kind.word(), "reason": change.reason.to_string() })
        });
        json!({
            "changes": self.kept.kept,
            "refused": refused.collect::<Vec<_>>(),
            "findings": finding_lines(&self.kept.findings),
            "notUndone": self.lasting.iter().map(|path| self.shown(path)).collect::<Vec<_>>(),
            "checkpoint": self.checkpoint.as_ref().ok().copied().flatten(),
        })
    }
}

fn output_text(outcome: &ProcessOutcome) -> String {
    let Captured { head, tail, .. } = &outcome.output;
    let cut = outcome.output.cut();
    let mut text = String::from_utf8_lossy(head).into_owned();
    if cut > 0 {
        write!(text, "\n[{cut} bytes are not shown]\n").ok();
    }
    text.push_str(&String::from_utf8_lossy(tail));
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn exit_code(outcome: &ProcessOutcome) -> Option<i32> {
    match outcome.exit {
        sandbox::Exit::Code(code) => Some(code),
        _ => None,
    }
}

fn exit_text(outcome: &ProcessOutcome) -> String {
    match outcome.exit {
        sandbox::Exit::Code(0) => "The command succeeded".to_owned(),
        sandbox::Exit::Code(code) => format!("The command failed with exit code {code}"),
        sandbox::Exit::TimedOut => "The command was ended after its time limit".to_owned(),
        sandbox::Exit::OutputFull => "The command was killed: it printed too much".to_owned(),
        sandbox::Exit::MemoryFull => "The command was killed: it used too much memory".to_owned(),
        sandbox::Exit::TemporaryFull => {
            "The command was killed: the temporary folder became too large".to_owned()
        }
        sandbox::Exit::Stopped => "The command was stopped".to_owned(),
        other @ sandbox::Exit::Signal(_) => {
            format!("The command was killed by {}", other.signal_name().unwrap_or_default())
        }
    }
}

/// The failure `what` with the reason `error`.
fn failure(what: &str, error: &RunError) -> Failure {
    let reason = match error {
        RunError::NotPrepared { reason } => printable(reason),
        error => error.to_string(),
    };
    Failure::new(ErrorCode::TrialFailed, Exit::Sandbox, what).because(reason)
}
