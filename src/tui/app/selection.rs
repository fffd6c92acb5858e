//! Selectors and the effects of a choice.

use std::collections::HashSet;

use crossterm::event::KeyEvent;
use posse_actors::conversation::{CallId, MessageId};
use posse_actors::event::PermissionMode;
use posse_frontend::commands::{SessionSwitch, permission_mode_query};
use posse_frontend::remote_session::Revert;
use posse_frontend::{
    ListedValue, ReplacedChanges, RewindExtent, Selectable, missing_rewind_point, pluralize,
    replaced_heading, rewind_extents,
};

use crate::app::{App, Effect};
use crate::selector::{Selector, SelectorEntry, SelectorKind, SelectorOutcome, in_one_line};
use crate::text::sanitize;
use crate::theme::{Role, Theme};
use crate::view::QueuedMessage;
use crate::viewer::Viewer;

impl App {
    pub(super) fn handle_selector_key(&mut self, key: KeyEvent) {
        let Some(selector) = &mut self.selector else { return };
        match selector.key(key) {
            SelectorOutcome::Open => {
                let theme = selector.value().filter(|_| selector.subject == SelectorKind::Theme);
                self.preview_theme(theme);
                let preview = self.wanted_preview().map(Effect::Preview);
                self.effects.extend(preview);
            }
            SelectorOutcome::Closed => {
                let theme = selector.current().filter(|_| selector.subject == SelectorKind::Theme);
                let before = selector.before.take();
                self.preview_theme(theme);
                self.selector = before.map(|before| *before);
            }
            SelectorOutcome::Name(value) => {
                let subject = selector.subject;
                let before = self.selector.take();
                self.select(subject, value);
                if subject == SelectorKind::Rewind
                    && let Some(next) = &mut self.selector
                {
                    next.before = before.map(Box::new);
                }
            }
            SelectorOutcome::Labelled(value) => {
                self.selector = None;
                self.label_tree_row(&value);
            }
            SelectorOutcome::Deleted(value) if selector.subject == SelectorKind::Drafts => {
                self.delete_draft(&value);
            }
            SelectorOutcome::Deleted(value) => {
                let subject = selector.subject;
                if !selector.remove(&value) {
                    self.selector = None;
                }
                self.effects.push(match subject {
                    SelectorKind::Jobs => Effect::StopJob(CallId::new(value)),
                    _ => Effect::Withdraw { id: MessageId::new(value), back: false },
                });
            }
        }
    }

    fn select(&mut self, subject: SelectorKind, value: String) {
        let to = match subject {
            SelectorKind::History => return self.composer.set(&value),
            SelectorKind::Theme => {
                self.view.push_user_input(format!("/theme {value}"));
                return self.use_theme(&value);
            }
            SelectorKind::PermissionMode => {
                let mode = PermissionMode::named(&value).map(permission_mode_query);
                return self.effects.extend(mode.map(Effect::Query));
            }
            SelectorKind::Keymap => return self.await_key(&value),
            SelectorKind::Jobs => return self.effects.push(Effect::ViewJob(value)),
            SelectorKind::ConfirmKey(name) => return self.bind_key(name, &value),
            SelectorKind::Queue => {
                let id = MessageId::new(value);
                return self.effects.push(Effect::Withdraw { id, back: true });
            }
            SelectorKind::Name(what) => {
                self.view.push_user_input(format!("/{} {value}", what.word()));
                SessionSwitch::With(what, value)
            }
            SelectorKind::Rewind => {
                let number = value.parse().unwrap_or_default();
                return self.choose_rewind_extent(number);
            }
            SelectorKind::RewindExtent(number) => {
                let Some(extent) = RewindExtent::named(&value) else { return };
                return self.rewind(number, extent);
            }
            SelectorKind::Drafts => return self.take_up_draft(&value),
            SelectorKind::Tree => return self.go_to_tree_row(&value),
            SelectorKind::ConfirmRewind(number, extent) => {
                return match value.as_str() {
                    "restore" => {
                        let command = Revert::ToPrompt(number, extent).to_string();
                        self.view.push_user_input(command);
                        self.effects.push(Effect::ConfirmedRewind(number, extent));
                    }
                    _ => self.view.note(Role::Dim, "(nothing was restored)"),
                };
            }
            SelectorKind::Sessions | SelectorKind::Inline => {
                self.view.push_user_input(format!("/resume {value}"));
                SessionSwitch::Resume(value)
            }
        };
        self.effects.push(Effect::Switch(to));
    }

    /// Opens a selector, or shows `nothing` if there are no entries.
    pub(super) fn open_selector(
        &mut self,
        subject: SelectorKind,
        title: &str,
        entries: Vec<SelectorEntry>,
        nothing: &str,
    ) {
        if entries.is_empty() {
            self.view.note(Role::Dim, nothing);
        } else {
            self.selector = Some(Selector::of(subject, title, entries));
        }
    }

    /// Opens the selector of the input history, newest entry first and each text once. The text in
    /// the prompt, if it is one line, is the first filter.
    pub(super) fn open_history(&mut self) {
        let mut seen = HashSet::new();
        let lines = self.composer.history.iter().rev().filter(|line| seen.insert(*line));
        let entry = |line: &String| SelectorEntry::new(line.clone(), in_one_line(line));
        let entries = lines.map(entry).collect();
        self.open_selector(SelectorKind::History, "history", entries, "(the history is empty)");
        // The text in the prompt is the first filter.
        if let Some(selector) = &mut self.selector
            && !self.composer.shown().contains('\n')
        {
            selector.filter_by(self.composer.shown());
        }
    }

    /// Opens the selector of running background jobs.
    pub(super) fn open_jobs(&mut self) {
        let entry = |(id, summary): (&CallId, &str)| {
            let label = format!("{}  {}", in_one_line(id.as_str()), in_one_line(summary));
            SelectorEntry::new(id.as_str(), label)
        };
        let entries = self.jobs.running().map(entry).collect();
        let nothing = "(no job runs in the background)";
        self.open_selector(SelectorKind::Jobs, "jobs in the background", entries, nothing);
    }

    /// Shows the output of a background job in the viewer.
    pub(crate) fn show_job(&mut self, job: &str, output: String) {
        self.viewer = Some(Viewer::of_job(job, output));
    }

    /// Id of the job whose output the viewer shows; `None` if it shows none.
    pub(crate) fn viewed_job(&self) -> Option<&str> {
        self.viewer.as_ref()?.job()
    }

    /// Replaces the output of a job in the viewer, if it still shows that job.
    pub(crate) fn update_job(&mut self, job: &str, output: String) {
        if let Some(viewer) = self.viewer.as_mut().filter(|viewer| viewer.job() == Some(job)) {
            viewer.update(output);
        }
    }

    /// Queued messages of the user.
    fn own_messages(&self) -> impl DoubleEndedIterator<Item = &QueuedMessage> {
        self.view.queue.iter().filter(|waiting| waiting.is_own())
    }

    /// Opens the selector of the user's queued messages.
    pub(super) fn open_queue(&mut self) {
        let entry = |waiting: &QueuedMessage| {
            let label = format!("{}: {}", waiting.timing(self.busy), in_one_line(&waiting.text));
            SelectorEntry::new(waiting.id.to_string(), label)
        };
        let entries: Vec<SelectorEntry> = self.own_messages().map(entry).collect();
        if entries.is_empty() {
            self.view.push_user_input("/queue".to_owned());
        }
        let nothing = "(no message is queued)";
        self.open_selector(SelectorKind::Queue, "queued messages", entries, nothing);
    }

    /// Deletes a queued message of the user. `number`: its position among these messages, counted
    /// from 1; any other text only shows a warning.
    pub(super) fn withdraw(&mut self, number: &str) {
        let nth = number.parse::<usize>().ok().and_then(|nth| nth.checked_sub(1));
        let waiting = nth.and_then(|nth| self.own_messages().nth(nth));
        if let Some(id) = waiting.map(|waiting| waiting.id.clone()) {
            return self.effects.push(Effect::Withdraw { id, back: false });
        }
        let text = format!("There is no queued message {number}; /queue lists them.");
        self.view.note(Role::Warn, text);
    }

    /// Opens the selector of stored sessions other than the current one. `stored`: pairs of id and
    /// description.
    pub(crate) fn choose_session(&mut self, stored: Vec<(String, String)>) {
        let others = stored.into_iter().filter(|(id, _)| *id != self.session);
        let entry = |(value, label): (String, String)| {
            let label = format!("{}  {}", in_one_line(&label), in_one_line(&value));
            SelectorEntry::new(value, label)
        };
        let entries = others.map(entry).collect();
        let nothing = "(there is no other session here)";
        self.open_selector(SelectorKind::Sessions, "sessions here", entries, nothing);
    }

    /// Opens the selector of the prompts to which the user can return. `points`: pairs of number
    /// and description.
    pub(crate) fn choose_rewind_point(&mut self, points: Vec<(usize, String)>) {
        let entry = |(number, what): (usize, String)| {
            let label = format!("{number:>3}  {}", in_one_line(&what));
            SelectorEntry::new(number.to_string(), label)
        };
        let entries = points.into_iter().map(entry).collect();
        let nothing = "(there is no prompt to return to)";
        let title = "return to the state before a prompt";
        self.open_selector(SelectorKind::Rewind, title, entries, nothing);
    }

    /// Opens the selector of what returns to the state before the prompt `number`; shows a note if
    /// there is no such prompt. `points`: as for [`App::choose_rewind_point`].
    pub(crate) fn choose_rewind_extent_of(&mut self, number: usize, points: &[(usize, String)]) {
        match missing_rewind_point(number, points) {
            Some(missing) => self.view.note(Role::Warn, missing),
            None => self.choose_rewind_extent(number),
        }
    }

    /// Opens the selector of what returns to the state before the prompt with this number.
    pub(super) fn choose_rewind_extent(&mut self, number: usize) {
        let entry = |(name, what, _): (&str, &str, RewindExtent)| SelectorEntry::new(name, what);
        let entries = rewind_extents().map(entry).collect();
        let title = format!("return to the state before prompt {number}");
        self.open_selector(SelectorKind::RewindExtent(number), &title, entries, "");
    }

    /// Lists the changes of the user that a return replaces, and opens a selector that asks for them.
    pub(crate) fn confirm_rewind(
        &mut self,
        number: usize,
        extent: RewindExtent,
        replaced: &ReplacedChanges,
    ) {
        self.view.note(Role::Warn, replaced_heading(&Revert::ToPrompt(number, extent)));
        for line in &replaced.lines {
            self.view.note(Role::Warn, format!("  {line}"));
        }
        let entry = |value: &str, label: &str| SelectorEntry::new(value, label);
        let entries = vec![
            entry("keep", "leave all files as they are"),
            entry("restore", "replace these files; a checkpoint keeps what they contain now"),
        ];
        let title = "replace the files that you have changed since?";
        self.open_selector(SelectorKind::ConfirmRewind(number, extent), title, entries, "");
    }

    /// Shows the command and starts to return to the state before a prompt.
    pub(super) fn rewind(&mut self, number: usize, extent: RewindExtent) {
        self.view.push_user_input(format!("/rewind {number} {}", extent.name()));
        self.effects.push(Effect::Rewind(number, extent));
    }

    /// Moves the last queued message of the user back into the prompt; shows a note if there is
    /// none.
    pub(super) fn take_back(&mut self) {
        let last = self.own_messages().next_back().map(|waiting| waiting.id.clone());
        match last {
            Some(id) => self.effects.push(Effect::Withdraw { id, back: true }),
            None => self.view.note(Role::Dim, "(no message is queued)"),
        }
    }

    /// Uses the theme of that name; shows a warning if there is none.
    pub(super) fn use_theme(&mut self, name: &str) {
        let Some(theme) = self.theme.switched(name, &self.own_themes) else {
            let names = Theme::names(&self.own_themes).join(", ");
            let text = format!("There is no theme \"{name}\"; themes: {names}.");
            return self.view.note(Role::Warn, text);
        };
        self.theme = theme;
        self.view.note(Role::Dim, format!("theme: {}", theme.name()));
    }

    /// Opens the selector of themes. The theme under the cursor is used meanwhile.
    pub(super) fn choose_theme(&mut self) {
        let current = self.theme.name();
        let entry = |name: &str| SelectorEntry::new(name, sanitize(name));
        let entries = Theme::names(&self.own_themes).into_iter().map(entry).collect();
        let title = format!("theme: {} (`ui.theme` sets it for later starts)", sanitize(current));
        let mut selector = Selector::of(SelectorKind::Theme, title, entries);
        selector.set_current(current);
        self.selector = Some(selector);
    }

    /// Uses the theme under the cursor of its selector; without a selector of themes, nothing.
    fn preview_theme(&mut self, name: Option<String>) {
        let themed = name.and_then(|name| self.theme.switched(&name, &self.own_themes));
        self.theme = themed.unwrap_or(self.theme);
    }

    /// Opens the selector of permission modes.
    pub(super) fn choose_permission_mode(&mut self) {
        let current = self.view.status.permission_mode.map_or("", PermissionMode::as_str);
        let entry = |mode: PermissionMode| SelectorEntry {
            value: mode.as_str().to_owned(),
            label: mode.as_str().to_owned(),
            facts: vec![mode.about().to_owned()],
        };
        let entries = PermissionMode::KNOWN.map(entry).to_vec();
        let title = format!("permission mode: {current}");
        let mut selector = Selector::of(SelectorKind::PermissionMode, title, entries);
        selector.set_current(current);
        self.selector = Some(selector);
    }

    /// Opens the selector of a setting. `names`: its known values.
    pub(crate) fn choose(&mut self, what: Selectable, names: Vec<ListedValue>) {
        let effort = self.view.status.effort.unwrap_or("default").to_owned();
        let (current, source) = match what {
            Selectable::Model => (&self.view.status.model, &self.sources.model),
            Selectable::Provider => (&self.view.status.provider, &self.sources.provider),
            Selectable::Agent => (&self.view.status.agent, &self.sources.agent),
            Selectable::Thinking => (&effort, &self.sources.thinking),
        };
        let source = self.view.status.short(source);
        self.selector = Some(Selector::new(what, names, current, &source));
    }

    /// Shows in the selector of models that the provider is being asked.
    pub(crate) fn expect_live_models(&mut self) {
        if let Some(selector) = &mut self.selector {
            "asking the provider for its models …".clone_into(&mut selector.remark);
        }
    }

    /// Adds the models that the provider lists to the selector of models, if it is still open.
    /// `provider`: the profile that was asked.
    pub(crate) fn add_live_models(
        &mut self,
        provider: &str,
        models: Result<Vec<ListedValue>, String>,
    ) {
        let is_current = self.view.status.provider == provider;
        let Some(selector) = &mut self.selector else { return };
        if selector.subject != SelectorKind::Name(Selectable::Model) || !is_current {
            return;
        }
        selector.remark = match models {
            Ok(models) if models.is_empty() => "the provider lists none".to_owned(),
            Ok(models) => {
                let count = models.len() as u64;
                selector.put_first(models);
                format!("{} listed by the provider", pluralize(count, "model"))
            }
            Err(why) => format!("the provider lists none: {}", in_one_line(&why)),
        };
    }

    /// Id of the selected session, if its preview is not shown.
    pub(crate) fn wanted_preview(&self) -> Option<String> {
        let selector = self.selector.as_ref()?;
        let wanted = selector.value().filter(|_| selector.subject == SelectorKind::Sessions);
        let shown = selector.preview.as_ref().map(|(value, _)| value);
        wanted.filter(|id| shown != Some(id))
    }

    /// Shows the last messages of the session `id`, if its selector is still open. Returns the id of
    /// the session that is selected, if it is another one.
    pub(crate) fn show_preview(&mut self, id: &str, lines: Vec<String>) -> Option<String> {
        let selector = self.selector.as_mut()?;
        if selector.subject != SelectorKind::Sessions {
            return None;
        }
        selector.preview = Some((id.to_owned(), lines));
        selector.value().filter(|selected| *selected != id)
    }
}
