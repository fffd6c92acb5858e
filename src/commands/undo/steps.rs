//! Steps of a conversation that `/undo` takes back, read from its records.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use posse_actors::conversation::{CallId, InvocationId};
use posse_actors::event::{Event, StoredRecord};
use serde_json::Value;

use crate::checkpoint::tool;
use crate::tools::bash;

/// A change of one file by a file tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UndoableChange {
    /// Path as given to the tool.
    pub(super) path: String,
    /// SHA-256 of the content before the change, in hex. `None`: the file did not exist.
    pub(super) before: Option<String>,
    /// SHA-256 of the content after the change, in hex. `None`: the file was removed.
    pub(super) after: Option<String>,
    /// Checkpoint of the run; `None` without one.
    pub(super) checkpoint: Option<u64>,
    /// Folder of the session.
    pub(super) dir: PathBuf,
}

/// Beginning of the message for the model about a change that the user has taken back with `/undo`.
pub(super) const TOOK_BACK: &str = "I took back the last change of ";

/// A step that can be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UndoStep {
    /// A change of one file by a file tool.
    Change(UndoableChange),
    /// A command, in a run with this checkpoint before its first effect.
    Command(u64),
    /// A return of files to an earlier state that is no `/undo`, with the checkpoint of the state
    /// before it.
    Return(u64),
}

/// Fold of the records of a conversation: the steps that are still in effect.
#[derive(Debug, Default)]
pub(super) struct UndoSteps {
    /// Steps in effect, the oldest first.
    pub(super) steps: Vec<UndoStep>,
    /// The steps in effect at each checkpoint.
    at: BTreeMap<u64, Vec<UndoStep>>,
    /// Latest checkpoint of each run.
    of_runs: BTreeMap<InvocationId, u64>,
    /// Latest checkpoint of the run, or call of the user, that has begun last.
    last: Option<u64>,
    /// Last call with which `/undo` took back the change of a file. If it is a command, it is no step.
    take_back: Option<CallId>,
    /// Subagents whose files are not those of the workspace.
    elsewhere: BTreeSet<InvocationId>,
    /// True if the restore that was requested last is an `/undo`.
    is_undo: bool,
    /// First checkpoint of the conversation; `None` without one.
    pub(super) first: Option<u64>,
    /// True if file tools have changed files before it. A command before it only reads, unless
    /// checkpoints were off.
    pub(super) has_uncovered: bool,
    /// Files that file tools have changed, with the SHA-256 of the content before the first change;
    /// `None` if there was no file.
    pub(super) edited: BTreeMap<String, Option<String>>,
}

impl UndoSteps {
    /// Adds a record of a session with this folder.
    pub(super) fn add(&mut self, record: &StoredRecord, dir: &Path) {
        if self.note_elsewhere(record) {
            return;
        }
        self.begin_run(record);
        match &record.event {
            Event::CheckpointCreated { checkpoint, run, .. } => {
                self.at.insert(*checkpoint, self.steps.clone());
                self.first.get_or_insert(*checkpoint);
                self.of_runs.insert(run.clone(), *checkpoint);
                self.last = Some(*checkpoint);
            }
            Event::ToolRequested { name, arguments, .. } if name == tool::NAME => {
                self.is_undo = tool::is_undo(arguments);
            }
            Event::CheckpointRestored { checkpoint, undo, .. } => {
                self.at.insert(*undo, std::mem::take(&mut self.steps));
                self.first.get_or_insert(*undo);
                self.steps = self.at.get(checkpoint).cloned().unwrap_or_default();
                if !self.is_undo {
                    self.steps.push(UndoStep::Return(*undo));
                }
            }
            Event::ToolStarted { name, call_id, effect: true, .. }
                if name == bash::NAME && self.take_back.as_ref() != Some(call_id) =>
            {
                self.steps.extend(self.checkpoint_of(record).map(UndoStep::Command));
            }
            Event::UserCall { call_id, said, .. } if said.starts_with(TOOK_BACK) => {
                self.take_back = Some(call_id.clone());
            }
            Event::ToolCompleted { metadata, .. } => {
                self.add_changes(metadata, dir, self.checkpoint_of(record));
            }
            _ => {}
        }
    }

    /// Forgets the latest checkpoint when a run of the main agent, or a call of the user, begins. That
    /// one has no checkpoint if they were turned off meanwhile.
    fn begin_run(&mut self, record: &StoredRecord) {
        let begins = matches!(
            record.event,
            Event::UserMessage { .. } | Event::InvocationStarted { .. } | Event::UserCall { .. }
        );
        if begins
            && let Some(run) = main_run(record)
            && !self.of_runs.contains_key(run)
        {
            self.last = None;
        }
    }

    /// Checkpoint before the first effect of the run to which the record belongs; for a subagent, of
    /// the run that has begun last.
    fn checkpoint_of(&self, record: &StoredRecord) -> Option<u64> {
        main_run(record).map_or(self.last, |run| self.of_runs.get(run).copied())
    }

    /// Notes the invocation of a subagent that starts in an isolated workspace, or under one that
    /// works there. Returns true if the record belongs to such an invocation: its files are not those
    /// of the workspace.
    fn note_elsewhere(&mut self, record: &StoredRecord) -> bool {
        let Some(origin) = &record.origin else { return false };
        let is_elsewhere = self.elsewhere.contains(&origin.invocation_id);
        if let Event::InvocationRequested { child_invocation_id, workplace, .. } = &record.event
            && (is_elsewhere || workplace.is_some())
        {
            self.elsewhere.insert(child_invocation_id.clone());
        }
        is_elsewhere
    }

    /// Adds the file changes of a tool result, or removes the change that it reverts.
    fn add_changes(&mut self, metadata: &Value, dir: &Path, checkpoint: Option<u64>) {
        // A merge changes several files.
        let several = metadata["changes"].as_array();
        let one = std::slice::from_ref(metadata);
        for mut change in several.map_or(one, Vec::as_slice).iter().filter_map(change_of) {
            self.has_uncovered |= self.first.is_none();
            self.edited.entry(change.path.clone()).or_insert_with(|| change.before.clone());
            let takes_back =
                |last: &UndoableChange| last.before == change.after && change.before == last.after;
            let of_path = |step: &UndoStep| matches!(step, UndoStep::Change(last) if last.path == change.path);
            // Later changes of other files do not matter.
            let place = self.steps.iter().rposition(of_path);
            match place.map(|at| (at, &self.steps[at])) {
                Some((at, UndoStep::Change(last))) if takes_back(last) => {
                    self.steps.remove(at);
                }
                _ => {
                    change.checkpoint = checkpoint;
                    dir.clone_into(&mut change.dir);
                    self.steps.push(UndoStep::Change(change));
                }
            }
        }
    }
}

/// The invocation of the record if it is a run of the main agent or a call of the user.
fn main_run(record: &StoredRecord) -> Option<&InvocationId> {
    let origin = record.origin.as_ref().filter(|origin| origin.parent_invocation_id.is_none())?;
    Some(&origin.invocation_id)
}

/// Reads a file change from the metadata of a tool result. `None` if the metadata describe none.
fn change_of(metadata: &Value) -> Option<UndoableChange> {
    let text = |key: &str| metadata[key].as_str().map(str::to_owned);
    let after = match metadata["verdict"].as_str()? {
        "created" | "updated" => Some(text("after")?),
        "removed" => None,
        _ => return None,
    };
    let (path, before) = (text("path")?, text("before"));
    Some(UndoableChange { path, before, after, ..UndoableChange::default() })
}

#[cfg(test)]
mod tests;
