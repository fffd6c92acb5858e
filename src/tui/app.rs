//! State of the terminal UI, without a terminal: takes events and keys, returns frames and effects.
//! It has no clock: the time is a parameter.

mod aside_drafts;
mod commands;
mod frame;
mod help;
mod input;
mod key_binding;
mod lookups;
mod selection;
mod shortcuts;
mod tree;

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use posse_actors::conversation::{CallId, MessageId, QuestionId};
use posse_actors::event::{Event, MessageKind, Origin};
use posse_actors::permission_coordinator::HumanDecision;
use posse_base::failure::Exit;
use posse_frontend::command_uses::CommandUses;
use posse_frontend::commands::{
    ReportRequest, SessionQuery, SessionSwitch, ShellCommand, next_permission_mode, parse,
};
use posse_frontend::jobs::Jobs;
use posse_frontend::{RewindExtent, Selectable, SelectionSources, pluralize};

use crate::EditorDraft;
use crate::app::key_binding::BindingChange;
use crate::completion::{Completion, written};
use crate::composer::{AsideDraft, Composer, may_be_image};
use crate::dropped::{DroppedFile, dropped_files};
use crate::help_page::{GuideTopic, HelpPage};
use crate::input::{InputEvent, character};
use crate::keymap::{EditAction, KeyAction, Keymap};
use crate::permission_prompt::{KeyOutcome, PermissionPrompts};
use crate::scrollback::Scrollback;
use crate::selector::Selector;
use crate::theme::{OwnTheme, Role, Theme};
use crate::view::View;
use crate::viewer::Viewer;

/// Time after a Ctrl+C within which a second one exits.
const CONFIRM_EXIT_WITHIN: Duration = Duration::from_secs(2);

/// Number of rows by which `PgUp` and `PgDn` scroll the scrollback.
const PAGE_ROWS: usize = 10;

/// Request of the UI to the code that holds the session and the terminal.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// Send a text with the images of the prompt: as a new task or, while a task runs, as a message
    /// of this kind.
    Say(String, MessageKind),
    /// Run a shell command of the user.
    Run(ShellCommand),
    /// Stop the running task and the subagents for which it waits.
    Interrupt,
    /// Stop the running task, all subagents and all background jobs.
    InterruptAll,
    /// Remove a queued message. With `back` its text returns to the prompt, otherwise it is
    /// deleted.
    Withdraw { id: MessageId, back: bool },
    /// Edit the prompt in the user's editor.
    Edit,
    /// Edit this plan, which is in question, in the user's editor.
    EditPlan(String),
    /// Edit this text of a hunk, which is in question, in the user's editor.
    EditHunk(EditorDraft),
    /// Attach the image file with this name. If it cannot be read, insert the name as text; if
    /// there are too many images, only show a note.
    Attach(String),
    /// Read the last messages of this stored session.
    Preview(String),
    /// Stop this background job.
    StopJob(CallId),
    /// Show the output of the background job with this id.
    ViewJob(String),
    /// Attach the image in the clipboard, or show why there is none.
    PasteImage,
    /// Find the names of files and folders for this completion query.
    Find(String),
    /// Send the user's decision on this permission request to the session.
    Answer(QuestionId, HumanDecision),
    /// Open the selector for a setting.
    Choose(Selectable),
    /// Query the session and show the answer, unless an event announces it as well.
    Query(SessionQuery),
    /// Render a report and show it.
    Report(ReportRequest),
    /// Save these keys in the user's configuration.
    SaveKeys(BindingChange),
    /// Show the file changes of the session.
    ShowChanges,
    /// Open the selector for stored sessions.
    ListSessions,
    /// Continue in another session.
    Switch(SessionSwitch),
    /// Run a task with a skill: name of the skill, and the task, which may be empty.
    RunSkill(String, String),
    /// Find the last step and start the call that takes it back; with a number, the call that
    /// restores this checkpoint.
    Undo(Option<u64>),
    /// Open the selector for the prompts to which the user can return.
    ListRewindPoints,
    /// Open the selector for the branches of the conversation.
    ListTree,
    /// Go to the place of the row with this number in the tree of branches, or give its prompt this
    /// label.
    Tree(usize, Option<String>),
    /// Look up the prompts, then open the selector of what returns to the state before the prompt
    /// with this number.
    ListRewindExtents(usize),
    /// Return to the state before the prompt with this number.
    Rewind(usize, RewindExtent),
    /// The same, after the user has confirmed that changes of the user may be replaced.
    ConfirmedRewind(usize, RewindExtent),
    /// Copy a text to the clipboard.
    Copy(String),
    /// Redraw the live region or the alternate screen. Rows in the terminal's scrollback stay.
    Redraw,
    /// Restore the terminal and suspend the process until `fg`.
    Suspend,
    /// Exit with this exit code.
    Leave(Exit),
}

/// State of the terminal UI.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent states")]
pub(super) struct App {
    pub(super) view: View,
    pub(super) composer: Composer,
    pub(super) prompts: PermissionPrompts,
    pub(super) sources: SelectionSources,
    pub(super) session: String,
    pub(super) theme: Theme,
    /// Themes of the user.
    pub(super) own_themes: Vec<&'static OwnTheme>,
    pub(super) keymap: Keymap,
    /// Finished rows, if the UI uses the alternate screen, where the terminal keeps none; `None` if
    /// it does not.
    pub(super) scrollback: Option<Scrollback>,
    /// Output of the user's status line command; `None` if it has shown nothing.
    pub(super) status_line: Option<String>,
    selector: Option<Selector>,
    /// Drafts that were put aside, oldest first.
    aside: Vec<AsideDraft>,
    /// Open completion list; `None` if there is none.
    completion: Option<Completion>,
    /// True if the user has closed the completion list. It stays closed until the text before the
    /// cursor is no longer a query.
    dismissed: bool,
    /// First key of a chord whose second key is awaited; `None` if no chord has begun.
    prefix: Option<KeyEvent>,
    viewer: Option<Viewer>,
    /// Bindings of the user: name of the action, and its keys.
    pub(super) own_keys: Vec<(String, String)>,
    /// Name of the action whose new key is awaited; `None` if none is.
    awaits_key_for: Option<&'static str>,
    /// The open help; `None` if it is closed. It covers the viewer.
    help: Option<HelpPage>,
    /// Names and contents of the guides.
    pub(super) guides: Vec<GuideTopic>,
    /// Names of the subagents that the main agent may call.
    pub(super) agents: Vec<String>,
    /// Numbers of uses of the slash commands.
    pub(super) uses: CommandUses,
    /// True if the draft is a slash command that was begun while a permission request was open. Its
    /// characters are no answers.
    drafts_command: bool,
    /// Time of the last Ctrl+C after which a second one exits, counted from the start of the UI.
    /// `None` after other input, and if the Ctrl+C cancelled lookups or cleared the prompt.
    cancelled: Option<Duration>,
    /// Time of the last Ctrl+D on an empty prompt while a task ran, which does not exit, counted
    /// from the start of the UI; `None` if there was none.
    exit_refused: Option<Duration>,
    /// Time of the last Esc that had no other effect, after which a second one opens the selector of
    /// `/rewind`, counted from the start of the UI; `None` after other keys.
    escaped: Option<Duration>,
    /// True if the user was warned about background work; the next attempt exits. Another submitted
    /// line resets it.
    exit_warned: bool,
    /// True if the running task was asked to stop.
    pub(super) stopping: bool,
    /// True if a task runs or is being started.
    pub(super) busy: bool,
    /// Maximum number of rows that one frame adds to the scrollback. A value below
    /// [`ROWS_PER_FRAME_MIN`](crate::terminal::ROWS_PER_FRAME_MIN) counts as that.
    pub(super) rows_per_frame: usize,
    /// Rows above the open permission request, which stay unchanged so that the request does not
    /// move. `None` if no request is shown.
    frozen: Option<frame::FrozenRows>,
    /// Running lookups, see `lookups.rs`.
    lookups: Vec<lookups::PendingLookup>,
    /// Running background jobs.
    pub(super) jobs: Jobs,
    /// Effects of the input event that is being handled.
    effects: Vec<Effect>,
}

impl App {
    /// Updates view, permission requests, background jobs and context usage from an event.
    pub(super) fn follow(&mut self, event: &Event, origin: Option<&Origin>, now: Duration) {
        self.view.follow(event, origin, now);
        self.prompts.follow(event, origin);
        if let Event::ContextUsed { used } = event {
            self.set_context_usage(used);
        }
        self.jobs.follow(event);
        self.view.status.jobs = self.jobs.count();
    }

    /// Handles an input event and returns its effects.
    pub(super) fn input(&mut self, input: InputEvent, now: Duration) -> Vec<Effect> {
        match input {
            InputEvent::Key(key) => self.key(key, now),
            InputEvent::Paste(text) => {
                self.cancelled = None;
                self.prompts.restart_quiet_period(now);
                match &mut self.selector {
                    _ if self.prompts.paste(&text) => (),
                    _ if self.help.is_some() => {
                        self.help.iter_mut().for_each(|help| help.filter_by(&text));
                    }
                    Some(selector) => selector.filter_by(&text),
                    None if self.viewer.is_some() => (),
                    None if may_be_image(&text) => self.effects.push(Effect::Attach(text)),
                    None => self.paste(&text),
                }
            }
            InputEvent::Focus(_) => return Vec::new(),
            InputEvent::Background(color) => self.theme = self.theme.on_background(color),
            InputEvent::Gone => self.effects.push(Effect::Leave(Exit::HangUp)),
        }
        self.update_completion();
        self.view.status.vim_mode = self.composer.vim_mode();
        std::mem::take(&mut self.effects)
    }

    fn key(&mut self, key: KeyEvent, now: Duration) {
        if self.bind_pressed_key(key) {
            return;
        }
        let action = match self.prefix.take() {
            Some(first) => self.keymap.chord(first, key),
            None if self.keymap.begins(key) => {
                self.prefix = Some(key);
                return;
            }
            None => self.keymap.action(key),
        };
        if action != Some(KeyAction::Cancel) {
            self.cancelled = None;
        }
        // These work in every state.
        if let Some(action @ (KeyAction::Redraw | KeyAction::Suspend)) = action {
            return self.act(action, now);
        }
        if self.prompts.is_open() {
            return self.handle_prompt_key(key, action, now);
        }
        self.drafts_command = false;
        if self.help.is_some() {
            return self.handle_help_key(key);
        }
        if let Some(viewer) = &mut self.viewer {
            if !viewer.key(key) {
                self.viewer = None;
            }
            return;
        }
        if self.selector.is_some() {
            return self.handle_selector_key(key);
        }
        if let (Some(scrollback), KeyCode::PageUp | KeyCode::PageDown) =
            (&mut self.scrollback, key.code)
        {
            return scrollback.go(key.code == KeyCode::PageUp, PAGE_ROWS);
        }
        if self.handle_completion_key(key, action, now) {
            return;
        }
        if let Some(action) = action {
            return self.act(action, now);
        }
        self.composer.key(key);
    }

    fn handle_prompt_key(&mut self, key: KeyEvent, action: Option<KeyAction>, now: Duration) {
        match action {
            Some(KeyAction::Cancel) => return self.cancel(now),
            Some(action @ (KeyAction::StopAll | KeyAction::NextMode)) => {
                return self.act(action, now);
            }
            Some(KeyAction::Interrupt) if self.prompts.drop_text() => return,
            Some(KeyAction::Interrupt) if self.busy => return self.stop(),
            Some(KeyAction::Interrupt) => {
                if self.prompts.is_from_subagent() {
                    let how = "(a background agent asks: n denies, /stop all stops it)";
                    self.view.note(Role::Dim, how);
                }
                // A user's own command may also ask.
                return self.effects.push(Effect::Interrupt);
            }
            _ => (),
        }
        if self.is_command_beside_question(key) {
            return self.edit_beside_question(key, action);
        }
        match self.prompts.key(key, now) {
            KeyOutcome::Decided(id, decision) => {
                self.frozen = None;
                if decision == HumanDecision::Try {
                    self.view.note(Role::Dim, "(trying the command; the workspace is not changed)");
                }
                self.effects.push(Effect::Answer(id, decision));
            }
            KeyOutcome::EditPlan(plan) => self.effects.push(Effect::EditPlan(plan)),
            KeyOutcome::EditHunk(draft) => self.effects.push(Effect::EditHunk(draft)),
            KeyOutcome::Taken => (),
            // The user continues to write; the key belongs to the prompt.
            KeyOutcome::Passed => self.edit_beside_question(key, action),
            KeyOutcome::PassedAfter(before) => {
                self.composer.key(KeyEvent::from(KeyCode::Char(before)));
                self.edit_beside_question(key, action);
            }
        }
    }

    /// Takes the hunk in question with the text that the user has edited. Returns the answer to the
    /// request after the last hunk.
    pub(super) fn set_hunk(&mut self, text: String) -> Option<(QuestionId, HumanDecision)> {
        let KeyOutcome::Decided(id, decision) = self.prompts.set_hunk(text) else { return None };
        self.frozen = None;
        Some((id, decision))
    }

    /// Returns `true` if a key belongs to a slash command that is written while a permission
    /// request is open.
    fn is_command_beside_question(&mut self, key: KeyEvent) -> bool {
        let is_empty = self.composer.is_empty();
        let begins = is_empty && character(key) == Some('/') && !self.prompts.is_writing();
        self.drafts_command = begins || self.drafts_command && !is_empty;
        self.drafts_command
    }

    /// Edits the draft while a permission request is open. Only commands that run at any time can
    /// be submitted.
    fn edit_beside_question(&mut self, key: KeyEvent, action: Option<KeyAction>) {
        match action {
            None => self.composer.key(key),
            Some(KeyAction::Edit(edit)) if !matches!(edit, EditAction::Up | EditAction::Down) => {
                self.composer.edit(edit);
            }
            Some(KeyAction::Submit) if parse(self.composer.shown()).is_immediate() => {
                self.submit(MessageKind::Steer);
            }
            Some(KeyAction::Submit) if !self.composer.is_empty() => {
                self.prompts.show_hint(
                    "answer first; only /permission-mode, /stop and /exit work meanwhile",
                );
            }
            Some(_) => (),
        }
    }

    /// Cancels lookups. Without any and with an empty prompt, the second of two presses opens the
    /// selector of `/rewind`.
    fn escape(&mut self, now: Duration) {
        let had_lookups = self.cancel_lookups();
        if had_lookups || !self.composer.is_empty() {
            return;
        }
        if is_recent(self.escaped.take(), now) {
            self.effects.push(Effect::ListRewindPoints);
        } else {
            self.escaped = Some(now);
        }
    }

    fn act(&mut self, action: KeyAction, now: Duration) {
        if action != KeyAction::Interrupt {
            self.escaped = None;
        }
        match action {
            KeyAction::Submit if self.composer.continues() => (),
            KeyAction::Submit => self.submit(MessageKind::Steer),
            KeyAction::FollowUp if self.busy => self.submit(MessageKind::FollowUp),
            KeyAction::FollowUp => {
                self.composer.edit(EditAction::Newline);
            }
            KeyAction::Interrupt if self.composer.leave_insert_mode() => (),
            KeyAction::Interrupt if self.busy => self.stop(),
            KeyAction::Interrupt => self.escape(now),
            KeyAction::Cancel => self.cancel(now),
            KeyAction::Leave if !self.composer.is_empty() => {
                self.composer.edit(EditAction::Delete);
            }
            KeyAction::Leave if self.busy => self.exit_refused = Some(now),
            KeyAction::Leave => self.request_exit(),
            KeyAction::PasteImage => self.effects.push(Effect::PasteImage),
            KeyAction::Viewer if self.composer.paste_at_cursor().is_some() => self.view_paste(),
            KeyAction::Viewer => {
                self.viewer = Viewer::of(&self.view.outputs);
                if self.viewer.is_none() {
                    self.view.note(Role::Dim, "(there is no output yet)");
                }
            }
            KeyAction::Edit(edit) => {
                self.composer.edit(edit);
            }
            KeyAction::Search => self.open_history(),
            KeyAction::Editor => self.effects.push(Effect::Edit),
            KeyAction::TakeBack => self.take_back(),
            KeyAction::PutAside => self.put_aside(),
            KeyAction::StopAll => {
                self.stopping = self.busy;
                self.effects.push(Effect::InterruptAll);
            }
            KeyAction::Redraw => self.effects.push(Effect::Redraw),
            KeyAction::Suspend => self.effects.push(Effect::Suspend),
            KeyAction::NextMode => self.effects.push(Effect::Query(next_permission_mode())),
            KeyAction::Choose(what) if self.is_idle() => self.effects.push(Effect::Choose(what)),
            KeyAction::Choose(what) => self.refuse_while_busy(&format!("/{}", what.word())),
        }
    }

    /// Returns `true` if the help or the viewer covers the screen.
    fn is_covered(&self) -> bool {
        self.help.is_some() || self.viewer.is_some()
    }

    /// Inserts a paste into the prompt: as text or, if it consists of the paths of several files, as
    /// images and names of files.
    fn paste(&mut self, text: &str) {
        let Some(files) = dropped_files(text) else { return self.composer.paste(text) };
        for file in files {
            match file {
                DroppedFile::Image(name) => self.effects.push(Effect::Attach(name)),
                DroppedFile::Other(name) => self.composer.paste(&format!("@{} ", written(&name))),
            }
        }
    }

    /// Opens the viewer with the paste on whose mark the cursor is.
    fn view_paste(&mut self) {
        if let Some((mark, text)) = self.composer.paste_at_cursor() {
            self.viewer = Some(Viewer::of_text(mark, text.to_owned()));
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.effects.push(Effect::Interrupt);
    }

    /// Handles Ctrl+C: stops the task, or else cancels lookups, or else clears the prompt. A second
    /// Ctrl+C soon afterwards exits, unless the first one cancelled lookups or cleared the prompt.
    fn cancel(&mut self, now: Duration) {
        let again = is_recent(self.cancelled, now);
        self.cancelled = Some(now);
        if again {
            self.effects.push(Effect::Leave(Exit::Interrupt));
        } else if self.busy {
            self.stop();
        } else if self.cancel_lookups() {
            self.cancelled = None;
        } else if !self.composer.is_empty() {
            self.composer.take();
            self.cancelled = None;
        }
    }

    /// Exits. If background work would end with the session, the first call only shows a warning.
    fn request_exit(&mut self) {
        let counts = [(self.view.tree.agents(), "agent"), (self.jobs.count(), "job")];
        let background: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| pluralize(*count as u64, what))
            .collect();
        if background.is_empty() || self.exit_warned {
            return self.effects.push(Effect::Leave(Exit::Done));
        }
        self.exit_warned = true;
        let text = format!(
            "! {} in the background would be stopped: Ctrl+D or /exit again exits",
            background.join(" and ")
        );
        self.view.note(Role::Warn, text);
    }

    /// Cancels overdue lookups.
    pub(super) fn tick(&mut self, now: Duration) {
        self.cancel_overdue_lookups(now);
    }

    /// Time until the screen changes without an event or a key, at least 1 ms; `None` if it does
    /// not change.
    pub(super) fn next_change(&self, now: Duration) -> Option<Duration> {
        let keys_ignored = self.prompts.quiet_period_left(now);
        // Nothing is animated behind a permission request.
        let seen = !self.prompts.is_open() && !self.is_covered();
        let moves = self.view.animation_interval().filter(|_| seen);
        let hint = |at: Option<Duration>| {
            let at = at.filter(|at| is_recent(Some(*at), now))?;
            Some((at + CONFIRM_EXIT_WITHIN).saturating_sub(now))
        };
        let (hint, refused) = (hint(self.cancelled), hint(self.exit_refused));
        [keys_ignored, moves, hint, refused, self.next_lookup_change(now)]
            .into_iter()
            .flatten()
            .min()
            .map(|left| left.max(Duration::from_millis(1)))
    }

    /// Marks the task as finished and removes the permission requests of the main agent.
    pub(super) fn finish_task(&mut self) {
        self.busy = false;
        self.stopping = false;
        self.prompts.remove_main_requests();
        self.frozen = None;
    }
}

/// Returns `true` if `at` is so recent that a second attempt to exit counts.
fn is_recent(at: Option<Duration>, now: Duration) -> bool {
    at.is_some_and(|at| now.saturating_sub(at) < CONFIRM_EXIT_WITHIN)
}

#[cfg(test)]
mod tests;
