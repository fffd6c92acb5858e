//! The terminal UI: shows a session in the terminal's own scrollback.
//!
//! It is a consumer of `SessionHandle` and its events. Events fold into a view, the view becomes
//! cells, and cells become bytes; keys become effects. All of that is pure: only `terminal`,
//! `running` and `inline` do I/O.

mod app;
mod completion;
mod composer;
mod diff;
mod dropped;
mod help_page;
mod highlight;
mod hunk_form;
mod inline;
mod input;
mod keymap;
mod links;
mod markdown;
mod painter;
mod permission_prompt;
mod request_form;
mod running;
mod scrollback;
mod selector;
mod sgr;
mod status;
mod terminal;
mod text;
mod theme;
mod view;
mod viewer;

#[cfg(test)]
mod guide;
#[cfg(test)]
mod testing;

use std::path::PathBuf;
use std::time::Duration;

use posse_actors::conversation::ContentPart;
use posse_base::failure::{Exit, Failure};
use posse_frontend::notifications::Notifications;
use posse_frontend::past_conversation::PastConversation;
use posse_frontend::status_line::StatusLineCommand;
use posse_frontend::{BackgroundJob, ListedValue, Selectable, Sessions, Task};

pub use inline::{Picked, pick};
pub use keymap::{KeybindingMistake, check_bindings};
pub use markdown::plain_text;
pub use text::wrapped_text;
pub use theme::{ColorDepth, OwnTheme, Theme};

/// Services of the environment besides sessions: facts for the first setup, the user's editor,
/// image files and the working directory.
pub trait TuiEnvironment: Sessions {
    /// Returns a closure that collects facts about this machine, for the screen that is shown if no
    /// session can be opened.
    fn setup_facts(&self) -> BackgroundJob<SetupFacts>;

    /// Returns a function that lets the user edit a text in an editor. The function blocks.
    fn editor(&self) -> Editor;

    /// Returns a function that reads an image by its file name. The function blocks. Fails if the
    /// configured model is known not to accept images.
    fn images(&self) -> Result<ImageReader, Failure>;

    /// Values to choose from for `what`, like [`Sessions::names`], with facts: for a model its window,
    /// price and effort; for a provider its state and default model; for an agent its description.
    fn listed(&self, what: Selectable) -> Vec<ListedValue>;

    /// Saves keys of the terminal UI in the user's configuration: name of each action, and its keys.
    fn save_keys(&self, changes: &[(String, String)]) -> BackgroundJob<()>;

    /// Returns a closure that asks the current provider for its models. The error is one line.
    fn live_models(&self) -> BackgroundJob<Vec<ListedValue>>;

    /// Returns a closure that reads the last messages of a stored session, as lines, the latest last.
    fn preview(&self, session: &str) -> BackgroundJob<Vec<String>>;

    /// Returns a closure that reads the end of a stored conversation: of the session up to its record
    /// `last`, and of those of which it is a copy.
    fn past_conversation(&self, session: &str, last: u64) -> BackgroundJob<PastConversation>;

    /// Returns a closure that reads the end of the output of a background job of the session.
    fn job_output(&self, job: &str) -> BackgroundJob<String>;

    /// Returns a closure that reads the image in the clipboard, with a description. Fails if the
    /// configured model is known not to accept images.
    fn clipboard_image(&self) -> Result<BackgroundJob<(ContentPart, String)>, Failure>;

    /// The working directory of the current session: for display, and as a path.
    fn folder(&self) -> (String, PathBuf);
}

/// Lets the user edit a text in an editor, and returns the edited text, as the editor has saved it.
pub type Editor = Box<dyn FnOnce(EditorDraft) -> Result<String, Failure> + Send>;

/// Text for an editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditorDraft {
    /// The text.
    pub text: String,
    /// Extension of the file that the editor opens, without the dot: letters and digits.
    pub extension: String,
}

impl EditorDraft {
    /// A text in Markdown.
    pub fn markdown(text: String) -> EditorDraft {
        EditorDraft { text, extension: "md".to_owned() }
    }
}

/// Reads the image with this file name, and returns it with a description.
pub type ImageReader = Box<dyn FnOnce(&str) -> Result<(ContentPart, String), Failure> + Send>;

/// Facts that help to set up a model: configured providers, set API keys, logins, local model
/// servers and the sandbox of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetupFacts {
    /// Each fact as text. The flag is true for something that works here, false for something
    /// missing.
    pub facts: Vec<(bool, String)>,
}

/// Options of the terminal UI.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Options {
    /// Colour theme at the start; `/theme` changes it.
    pub theme: Theme,
    /// Themes of the user, for `/theme`.
    pub own_themes: Vec<&'static OwnTheme>,
    /// Warnings that are shown at the start.
    pub warnings: Vec<String>,
    /// True if links are made known to the terminal (OSC 8).
    pub hyperlinks: bool,
    /// True if the terminal is asked for its background colour, on which some themes depend.
    pub asks_background: bool,
    /// True if sessions are stored, so that they can be resumed.
    pub kept: bool,
    /// Flags that resuming a session needs again.
    pub resume_flags: Vec<String>,
    /// True if `--yes` was given; used for the advice in errors.
    pub yes: bool,
    /// True if tools only describe their effects.
    pub dry_run: bool,
    /// Label for the status bar that names the mode, dry run or `--yes`; `None` in normal mode.
    pub mode_label: Option<&'static str>,
    /// True if the UI uses the alternate screen instead of the terminal's scrollback.
    pub alternate: bool,
    /// True if the last line of the model's thinking is shown.
    pub shows_thinking: bool,
    /// File of the input history; `None`: the history ends with the process.
    pub history: Option<PathBuf>,
    /// Folder of drafts; `None`: drafts are not saved.
    pub drafts: Option<PathBuf>,
    /// Task that starts before any input, if there is one.
    pub first: Option<Task>,
    /// Reflow behaviour of the terminal.
    pub reflow: ReflowMode,
    /// Key bindings of the user: the name of a binding, and keys separated by white space.
    pub keys: Vec<(String, String)>,
    /// True if the prompt has vim keys.
    pub vim: bool,
    /// Notifications and window title.
    pub notifications: Notifications,
    /// True if the terminal has the keyboard protocol of kitty.
    pub keyboard_flags: bool,
    /// Guides: name and content of each, for the help.
    pub guides: Vec<(String, String)>,
    /// File of the numbers of uses of slash commands; `None`: they end with the process.
    pub command_uses: Option<PathBuf>,
    /// Status line command of the user; `None` if there is none.
    pub status_line: Option<StatusLineCommand>,
}

/// Checks that standard input and output are a terminal, and that `TERM` and the locale allow the
/// UI; the error names the obstacle. A locale that is not set counts as UTF-8. `variable`: returns
/// the value of an environment variable.
pub fn usable(variable: impl Fn(&str) -> Option<String>) -> Result<(), &'static str> {
    if !terminal::is_there() {
        return Err("standard input or output is no terminal");
    }
    match variable("TERM").as_deref() {
        None | Some("") => return Err("TERM is not set"),
        Some("dumb") => return Err("TERM is dumb"),
        Some(_) => (),
    }
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| variable(name).filter(|value| !value.is_empty()));
    let is_utf8 = locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    if is_utf8 { Ok(()) } else { Err("the locale is not UTF-8") }
}

/// Behaviour of a terminal when its width changes: whether it reflows lines, and how soon it
/// reports the new size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReflowMode {
    /// Lines are not reflowed; those that do not fit are cut.
    Never,
    /// Lines are reflowed, and each change is reported at once.
    #[default]
    Immediate,
    /// Lines are reflowed. A second change is reported a quarter of a second after the first (tmux,
    /// `server_client_check_pane_resize`).
    Delayed,
}

impl ReflowMode {
    /// Time that a size must stay unchanged before it counts as final.
    pub(crate) fn settle_time(self) -> Duration {
        Duration::from_millis(match self {
            ReflowMode::Never => 0,
            ReflowMode::Immediate => 60,
            ReflowMode::Delayed => 300,
        })
    }
}

/// Determines the reflow behaviour from `TERM`, `TMUX` and `XTERM_VERSION`: `Delayed` in tmux,
/// `Never` in screen, xterm and the Linux console, otherwise `Immediate`. `variable`: returns the
/// value of an environment variable.
pub fn reflow_mode(variable: impl Fn(&str) -> Option<String>) -> ReflowMode {
    let term = variable("TERM").unwrap_or_default();
    if variable("TMUX").is_some() {
        return ReflowMode::Delayed;
    }
    let never_reflows = term == "linux" || term.starts_with("screen");
    if never_reflows || variable("XTERM_VERSION").is_some() {
        ReflowMode::Never
    } else {
        ReflowMode::Immediate
    }
}

/// Runs the terminal UI until the user leaves or a signal arrives, and returns the exit code. Fails
/// if the terminal cannot be used.
pub async fn run(
    environment: &mut dyn TuiEnvironment,
    options: Options,
) -> Result<Exit, Vec<Failure>> {
    Box::pin(running::run(environment, options)).await
}
