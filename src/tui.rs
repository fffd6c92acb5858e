//! The terminal UI: a calm view of a session, in the terminal's own scrollback.
//!
//! It is one more consumer of `SessionHandle` and its events. Events fold into a view, the
//! view becomes cells, cells become bytes; keys become commands. All of that is pure: only
//! `terminal` and `running` touch the world.

mod app;
mod commands;
mod completion;
mod composer;
mod diff;
mod highlight;
mod input;
mod keymap;
mod markdown;
mod painter;
mod past;
mod question;
mod running;
mod selector;
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
use posse_actors::root_session::UserCall;

use crate::failure::{Exit, Failure};
use crate::talk::{Opened, Sessions, Task};

pub use theme::Theme;

/// What the terminal UI needs of the world beyond sessions.
pub trait World: Sessions {
    /// What was found on this machine, for somebody who has no model yet.
    fn found(&self) -> Found;

    /// Tokens that fit into a request to a model and its reply, if that is known.
    fn window(&self, provider: &str, model: &str) -> Option<u64>;

    /// Stored sessions that can go on here, the newest first: their ids, and what is said of them.
    fn stored(&self) -> Result<Vec<(String, String)>, Vec<Failure>>;

    /// Puts a stored session together: itself, or with `fork` a new one that branches off it. With
    /// whether there is something to go on with that nobody needs to say anything for.
    fn take_up(&mut self, id: &str, fork: bool) -> Result<(Opened, bool), Vec<Failure>>;

    /// What takes back the last change of a file in the session of that id.
    fn undo(&self, session: &str) -> Result<UserCall, Failure>;

    /// What opens a text in the user's editor, and returns what became of it. It blocks.
    fn editor(&self) -> Editor;

    /// What reads an image by its name, with what is said of it. It blocks. `Err`: the model takes
    /// none.
    fn images(&self) -> Result<ImageReader, Failure>;

    /// The working directory of the session that goes on: as it is shown, and itself.
    fn folder(&self) -> (String, PathBuf);

    /// A text about something, for the session of that id.
    fn report(&mut self, what: &Report, session: &str) -> Result<String, Vec<Failure>>;
}

/// Opens a text in an editor.
pub type Editor = Box<dyn FnOnce(String) -> Result<String, Failure> + Send>;

/// Reads an image by its name.
pub type ImageReader = Box<dyn FnOnce(&str) -> Result<(ContentPart, String), Failure> + Send>;

/// What was found, each with whether it helps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// In words.
    pub facts: Vec<(bool, String)>,
}

/// Something to be told about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Settings with their sources.
    Config,
    /// What works here.
    Doctor,
    /// Tools.
    Tools,
    /// Skills.
    Skills,
    /// How permissions are decided.
    Permissions,
    /// What confines commands.
    Sandbox,
    /// The conversation as a document, in a file of that name.
    Export(Option<String>),
}

/// How the terminal UI behaves.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct Options {
    /// The working directory, as it is shown.
    pub cwd: String,
    /// The same folder itself.
    pub folder: PathBuf,
    /// How it looks.
    pub theme: Theme,
    /// Whether sessions are kept.
    pub kept: bool,
    /// Whether questions are answered with yes already.
    pub yes: bool,
    /// Whether tools only say what they would do.
    pub dry_run: bool,
    /// The same in a word, for the last row.
    pub manner: Option<&'static str>,
    /// Whether it has a screen of its own, instead of the end of the terminal's scrollback.
    pub alternate: bool,
    /// Where typed lines are kept, if they are.
    pub history: Option<PathBuf>,
    /// Where what is being written is kept, if it is.
    pub drafts: Option<PathBuf>,
    /// What is done before anything is typed.
    pub first: Option<Task>,
    /// Whether and when the terminal breaks lines anew.
    pub folds: Folds,
    /// Names of the table of keys with other keys for them, separated by white space.
    pub keys: Vec<(String, String)>,
}

/// Whether there is a terminal to draw on. `Err`: why not, in a few words.
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
    let speaks = locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    if speaks { Ok(()) } else { Err("the locale is not UTF-8") }
}

/// Whether a terminal breaks lines anew when it becomes narrower, and how soon we hear of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Folds {
    /// What does not fit is cut.
    Never,
    /// Whoever runs in it is told at once.
    #[default]
    Told,
    /// Whoever runs in it is told of a second change a quarter of a second after the first (tmux,
    /// `server_client_check_pane_resize`).
    ToldLate,
}

impl Folds {
    /// How long a size has to stay before it is the one that the terminal has.
    pub(crate) fn rest(self) -> Duration {
        Duration::from_millis(match self {
            Folds::Never => 0,
            Folds::Told => 60,
            Folds::ToldLate => 300,
        })
    }
}

/// How a terminal breaks lines anew: most do.
pub fn folds(variable: impl Fn(&str) -> Option<String>) -> Folds {
    let term = variable("TERM").unwrap_or_default();
    if variable("TMUX").is_some() {
        return Folds::ToldLate;
    }
    let stiff = term == "linux" || term.starts_with("screen");
    if stiff || variable("XTERM_VERSION").is_some() { Folds::Never } else { Folds::Told }
}

/// Talks until the user leaves.
pub async fn run(world: &mut dyn World, options: Options) -> Result<Exit, Vec<Failure>> {
    Box::pin(running::run(world, options)).await
}
