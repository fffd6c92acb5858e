//! `posse checkpoints` and `posse undo`: lists, compares, restores and removes checkpoints.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::checkpoint::tool::verb;
use crate::checkpoint::{
    ChangedFile, Checkpoint, NewCheckpoint, RestoreChoice, RestorePlan, Restored, Retention, Store,
    StoreError, Trigger,
};
use crate::cli::{CheckpointsAction, CheckpointsArgs, PlaceArgs, RestoreFlags, UndoArgs};
use crate::commands::{can_confirm, checkpoint_store, confirmed, print};
use crate::config::{CheckpointSettings, Dirs, Environment};
use crate::failure::{ErrorCode, Exit, Failure, printable, printable_lines};
use crate::frontend::table::table;
use crate::journal::formatted_time;
use crate::tools::diff;
use crate::tools::workspace::Workspace;
use crate::wiring::{WorkspaceContext, place, workspace_roots};

/// Maximum number of files that a text names.
const NAMES_MAX: usize = 40;

/// Maximum number of characters of a title in the list.
const TITLE_CHARS: usize = 50;

pub(super) fn run(args: &CheckpointsArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let command = Command::open(args.cwd.as_deref(), args.json, environment)?;
    let ended = match &args.action {
        CheckpointsAction::List => command.list(),
        CheckpointsAction::Diff { id, run, patch } => command.diff(*id, *run, *patch),
        CheckpointsAction::Restore { id, flags } => command.restore(*id, *flags),
        CheckpointsAction::Prune { keep_days } => command.prune(*keep_days),
    };
    Ok(ended?)
}

/// Restores the checkpoint of the last run whose changes are still there.
pub(super) fn undo(args: &UndoArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let command = Command::open(args.cwd.as_deref(), args.json, environment)?;
    Ok(command.undo(args.flags)?)
}

struct Command {
    store: Store,
    folder: PathBuf,
    settings: CheckpointSettings,
    dirs: Dirs,
    json: bool,
}

impl Command {
    fn open(
        cwd: Option<&Path>,
        json: bool,
        environment: &Environment,
    ) -> Result<Command, Vec<Failure>> {
        let place_args = PlaceArgs { cwd: cwd.map(Path::to_owned), ..PlaceArgs::default() };
        let WorkspaceContext { cwd, dirs, loaded } = place(&place_args, Vec::new(), environment)?;
        let settings = loaded.settings.checkpoints.clone();
        let folder = checkpoint_store::folder(&cwd, &dirs);
        let workspace = workspace_roots::open(&cwd, &[], &loaded.settings)?;
        let store = checkpoint_store::store(&folder, workspace, &settings, &dirs)?;
        Ok(Command { store, folder, settings, dirs, json })
    }

    fn failed(&self, error: &StoreError) -> Failure {
        checkpoint_store::failure(error, &self.folder)
    }

    /// The checkpoint, and the store for the folders that it contains.
    fn open_checkpoint(&self, id: u64) -> Result<(Checkpoint, Store), Failure> {
        let record = self.store.get(id).map_err(|error| self.failed(&error))?;
        let (first, more) = record
            .roots()
            .split_first()
            .map_or((None, Vec::new()), |(one, more)| (Some(one.clone()), more.to_vec()));
        let first = first.ok_or_else(|| self.failed(&StoreError::NotFound(id)))?;
        let workspace = Workspace::open(&first, &more)?;
        let store = checkpoint_store::store(&self.folder, workspace, &self.settings, &self.dirs)?;
        Ok((record, store))
    }

    fn list(&self) -> Result<Exit, Failure> {
        let mut records = self.store.list().map_err(|error| self.failed(&error))?;
        records.reverse();
        let mut listed = Vec::new();
        for record in records {
            let changes = if record.is_finished() {
                Some(self.store.changes_of_run(&record).map_err(|e| self.failed(&e))?)
            } else {
                None
            };
            listed.push((record, changes));
        }
        if self.json {
            let rows: Vec<Value> =
                listed.iter().map(|(record, changes)| row(record, changes.as_deref())).collect();
            return Ok(print(&format!("{}\n", json!(rows))));
        }
        if listed.is_empty() {
            return Ok(print("There are no checkpoints of this project.\n"));
        }
        let head = ["ID", "TAKEN", "FILES", "CHANGED", "BEFORE"].map(str::to_owned);
        let zone = TimeZone::system();
        let rows = listed.iter().map(|(record, changes)| {
            let changed = changes.as_ref().map_or("?".to_owned(), |files| files.len().to_string());
            let title = titled(record).chars().take(TITLE_CHARS).collect();
            let taken =
                formatted_time(record.taken_ms, &zone, "%Y-%m-%d %H:%M").unwrap_or_default();
            [record.id.to_string(), taken, record.files.to_string(), changed, title]
        });
        let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
        Ok(print(&table(&rows)))
    }

    fn diff(&self, id: u64, run: bool, patch: bool) -> Result<Exit, Failure> {
        let (record, store) = self.open_checkpoint(id)?;
        let files = if run { store.changes_of_run(&record) } else { store.changes_since(&record) };
        let files = files.map_err(|error| self.failed(&error))?;
        if self.json {
            return Ok(print(&format!("{}\n", json!(file_rows(&files)))));
        }
        if files.is_empty() {
            return Ok(print("No file differs.\n"));
        }
        let mut text = String::new();
        for file in &files {
            if !patch {
                writeln!(text, "{:<8} {}", file.kind.word(), printable(&file.name())).ok();
                continue;
            }
            let (before, after) = store.contents(file).map_err(|error| self.failed(&error))?;
            let name = printable(&file.name());
            let diff = diff::of_file(&name, before.as_deref(), after.as_deref());
            text.push_str(&printable_lines(&diff.text));
        }
        Ok(print(&text))
    }

    fn undo(&self, flags: RestoreFlags) -> Result<Exit, Failure> {
        let undoable = self.store.undoable().map_err(|error| self.failed(&error))?;
        let Some(last) = undoable.last() else {
            return Err(Failure::new(
                ErrorCode::NothingToUndo,
                Exit::Failed,
                "there is no change to undo",
            )
            .because("no run of this project has changed files since the last undo")
            .fix("`posse checkpoints list` shows all checkpoints"));
        };
        self.restore(last.id, flags)
    }

    fn restore(&self, id: u64, flags: RestoreFlags) -> Result<Exit, Failure> {
        let (_, store) = self.open_checkpoint(id)?;
        let choice = if flags.keep_mine { RestoreChoice::KeepUsers } else { RestoreChoice::All };
        let plan = store.plan(id, choice).map_err(|error| self.failed(&error))?;
        if plan.files.is_empty() {
            return Ok(print(&if self.json {
                format!("{}\n", json!({ "checkpoint": id, "files": [], "kept": kept(&plan.kept) }))
            } else {
                format!("Nothing to restore: no file differs.\n{}", kept_text(&plan.kept))
            }));
        }
        if !flags.yes && !Self::may_restore(&plan, self.json)? {
            return Ok(Exit::Failed);
        }
        let title = format!("restore of checkpoint {id}");
        let new = NewCheckpoint { session: "", invocation: "", title: &title };
        let restored = store.restore(id, choice, new).map_err(|error| self.failed(&error))?;
        let text = if self.json {
            let value = json!({
                "checkpoint": id, "undo": restored.undo.id,
                "files": file_rows(&restored.files), "kept": kept(&restored.kept),
            });
            format!("{value}\n")
        } else {
            restored_text(id, &restored)
        };
        Ok(print(&text))
    }

    /// True if the restore may begin. Asks at a terminal; elsewhere it may if it changes no file
    /// that the user has changed.
    fn may_restore(plan: &RestorePlan, json: bool) -> Result<bool, Failure> {
        let users: Vec<&ChangedFile> = plan.of_user().collect();
        if can_confirm() && !json {
            let text = plan_text(plan);
            return Ok(confirmed(&format!("{text}Restore these files")));
        }
        if users.is_empty() {
            return Ok(true);
        }
        let names: Vec<String> =
            users.iter().take(NAMES_MAX).map(|file| printable(&file.name())).collect();
        let what = "the restore would change files that you have changed since";
        Err(Failure::new(ErrorCode::CheckpointUnconfirmed, Exit::Permission, what)
            .because(names.join(", "))
            .fix("pass `--keep-mine` to leave them, or `--yes` to restore them as well"))
    }

    fn prune(&self, keep_days: Option<u64>) -> Result<Exit, Failure> {
        let CheckpointSettings { store_bytes_max, .. } = self.settings;
        let days = keep_days.unwrap_or(self.settings.keep_days);
        let removed = self.store.prune(Retention::new(days, store_bytes_max));
        let removed = removed.map_err(|error| self.failed(&error))?;
        let bytes = self.store.bytes();
        Ok(print(&if self.json {
            format!("{}\n", json!({ "removed": removed, "bytes": bytes }))
        } else {
            let (count, kib) = (removed.len(), bytes >> 10);
            format!("Removed {count} checkpoints. The others take {kib} KiB.\n")
        }))
    }
}

/// Files and changes of a plan as text for a person.
fn plan_text(plan: &RestorePlan) -> String {
    let mut text = format!("Checkpoint {}: {}\n", plan.checkpoint.id, titled(&plan.checkpoint));
    for file in plan.files.iter().take(NAMES_MAX) {
        let users = if file.is_users { "  (you changed it since)" } else { "" };
        writeln!(text, "  {:<8} {}{users}", verb(file), printable(&file.name())).ok();
    }
    if plan.files.len() > NAMES_MAX {
        writeln!(text, "  and {} more files", plan.files.len() - NAMES_MAX).ok();
    }
    text.push_str(&kept_text(&plan.kept));
    text
}

fn restored_text(id: u64, restored: &Restored) -> String {
    let mut text = String::new();
    for file in restored.files.iter().take(NAMES_MAX) {
        writeln!(text, "  {:<8} {}", file.kind.word(), printable(&file.name())).ok();
    }
    format!(
        "Restored {} of checkpoint {id}:\n{text}{}`posse checkpoints restore {}` takes this \
         back.\n",
        crate::frontend::pluralize(restored.files.len() as u64, "file"),
        kept_text(&restored.kept),
        restored.undo.id
    )
}

fn kept_text(kept: &[(String, String)]) -> String {
    let lines = kept
        .iter()
        .take(NAMES_MAX)
        .map(|(name, reason)| format!("  kept     {}: {}\n", printable(name), printable(reason)));
    lines.collect()
}

fn kept(kept: &[(String, String)]) -> Vec<Value> {
    kept.iter().map(|(path, reason)| json!({ "path": path, "reason": reason })).collect()
}

fn file_rows(files: &[ChangedFile]) -> Vec<Value> {
    let row = |file: &ChangedFile| json!({ "path": file.name(), "root": file.root, "change": file.kind.word() });
    files.iter().map(row).collect()
}

fn row(record: &Checkpoint, changes: Option<&[ChangedFile]>) -> Value {
    let trigger = match record.trigger {
        Trigger::Prompt => json!("prompt"),
        Trigger::Restore { checkpoint } => json!({ "restored": checkpoint }),
    };
    json!({
        "id": record.id, "session": record.session, "invocation": record.invocation,
        "trigger": trigger, "title": record.title, "takenMs": record.taken_ms,
        "files": record.files, "bytes": record.bytes, "leftOut": record.left_out.without_hashes(),
        "changes": changes.map(file_rows),
    })
}

/// Title of a checkpoint for a person.
fn titled(record: &Checkpoint) -> String {
    if record.title.is_empty() { "(no text)".to_owned() } else { printable(&record.title) }
}
