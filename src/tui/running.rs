//! Event loop of the terminal UI: takes keys, events, signals and timers, produces frames and
//! requests to the session.
//!
//! The loop does not wait for the session or the terminal: requests run in asynchronous tasks, and
//! a frame is drawn only when the previous one is written. A slow terminal shows fewer frames, but
//! every event is handled. The loop waits only while a session is opened or replaced, and while an
//! editor or the shell uses the terminal.

mod attention;
mod commands;
mod effects;
mod job_output;
mod messages;
mod past;
mod session;
mod shutdown;
mod status_line;
mod tree;
mod window_size;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use posse_actors::conversation::{ContentPart, MessageId};
use posse_actors::event::AnnouncedEvent;
use posse_base::failure::{ErrorCode, Exit, Failure};
use posse_frontend::command_uses::CommandUses;
use posse_frontend::drafts::Drafts;
use posse_frontend::files::Finder;
use posse_frontend::history::History;
use posse_frontend::notifier::Notifier;
use posse_frontend::signals::Signals;
use posse_frontend::signals::received;
use posse_frontend::{
    LoadedSession, OpenedSession, RewindConfirmation, Selectable, SessionSelection,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::app::App;
use crate::composer::Composer;
use crate::painter::Painter;
use crate::scrollback::Scrollback;
use crate::terminal::{self, Reader, Terminal, TerminalModes};
use crate::theme::Role;
use crate::{Options, ReflowMode, TuiEnvironment};

use job_output::JobWatch;
use session::{CurrentSession, LookupResult, RequestResult, SessionUpdate};
use status_line::{BranchWatch, StatusLine};
use window_size::WindowSize;

/// Delay between an input and the save of the draft; a crash loses at most the input of this time.
const DRAFT_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval between two frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(16);

/// Maximum number of further events that are handled with one event before the next frame is
/// considered.
const EVENTS_AT_ONCE: usize = 256;

/// Maximum wait for the last events of a run after its outcome.
const LAST_EVENTS_MAX: Duration = Duration::from_secs(2);

/// Maximum duration of a session's shutdown, without closing its attach socket.
const SHUTDOWN_MAX: Duration = Duration::from_secs(30);

/// Maximum duration of the shutdown after a signal, or while a task runs, without closing the
/// attach socket.
const INTERRUPTED_SHUTDOWN_MAX: Duration = Duration::from_millis(500);

pub(super) struct Tui<'a> {
    environment: &'a mut dyn TuiEnvironment,
    app: App,
    terminal: Terminal,
    painter: Painter,
    window_size: WindowSize,
    started: Instant,
    drawn: Option<Duration>,
    dirty: bool,
    choice: SessionSelection,
    current: Option<CurrentSession>,
    history: History,
    options: Options,
    result_rx: mpsc::Receiver<RequestResult>,
    results: mpsc::Sender<RequestResult>,
    /// Exit code; `None` until the UI is to exit.
    leaving: Option<Exit>,
    /// Painter of the main screen while the alternate screen is active; otherwise `None`.
    main_screen: Option<Painter>,
    /// Messages that the session does not queue, because the task has just ended or is a command of
    /// the user, oldest first, with the ids of their queued forms in the view. They become the next
    /// tasks.
    undelivered: VecDeque<(MessageId, Vec<ContentPart>)>,
    /// Number of messages that were put there so far.
    undelivered_count: u32,
    /// The working directory of the current session.
    folder: PathBuf,
    /// File name finder for `folder`; `None` before the first query, or if it could not be started.
    finder: Option<Finder>,
    reader: Reader,
    drafts: Drafts,
    /// Time of the next save of the draft, counted from `started`; `None` if there was no input
    /// since the last save.
    draft_due: Option<Duration>,
    /// Number of lookups that were started so far.
    lookups: u64,
    /// Selected provider or model that is saved when it has answered; `None` if there is none.
    unsaved: Option<(Selectable, String)>,
    /// Copy of the session to which the UI switches when the running call has restored files, and the
    /// prompt that it puts back.
    follows_restore: Option<(LoadedSession, String)>,
    confirmation: RewindConfirmation,
    notifier: Notifier,
    branch: BranchWatch,
    status_line: StatusLine,
    job_watch: JobWatch,
    /// True while a stored session is read for its preview.
    is_previewing: bool,
    /// True if a task has ended and none was started since.
    is_task_over: bool,
    /// Notifications and window title that are written with the next frame.
    sequences: Vec<u8>,
}

/// State of the UI with these options.
fn app_of(options: &mut Options, history: &History) -> App {
    let mut app = App::default();
    app.composer = Composer::new(history.lines());
    app.theme = options.theme;
    app.own_themes = std::mem::take(&mut options.own_themes);
    app.scrollback = options.alternate.then(Scrollback::default);
    app.view.hides_thinking = !options.shows_thinking;
    app.view.status.mode_label = options.mode_label;
    app.keymap.bind(&options.keys);
    app.own_keys = std::mem::take(&mut options.keys);
    app.composer.use_vim_keys(options.vim);
    app.view.status.vim_mode = app.composer.vim_mode();
    app.guides = std::mem::take(&mut options.guides);
    app.uses = CommandUses::open(options.command_uses.take());
    app
}

/// Runs the UI until the user exits, and returns the exit code. Fails if the terminal cannot be
/// used.
pub(super) async fn run(
    environment: &mut dyn TuiEnvironment,
    mut options: Options,
) -> Result<Exit, Vec<Failure>> {
    let history = History::open(options.history.take());
    let mut app = app_of(&mut options, &history);
    let folder;
    (app.view.status.cwd, folder) = environment.folder();
    app.view.status.folder = folder.to_string_lossy().into_owned();
    let failed = |error: io::Error| vec![internal(format!("the terminal cannot be used: {error}"))];
    let notifications = std::mem::take(&mut options.notifications);
    let modes = TerminalModes {
        keyboard_flags: options.keyboard_flags,
        focus_reports: notifications.needs_focus(),
        title: (notifications.save_title(), notifications.restore_title()),
        asks_background: options.asks_background && app.theme.depends_on_background(),
    };
    let terminal = Terminal::acquire(modes).map_err(failed)?;
    terminal::capture_panics();
    let (inputs, reader) = terminal::read().map_err(failed)?;
    let drafts = Drafts::of(options.drafts.take());
    let (results, result_rx) = mpsc::channel(64);
    let first = options.first.take();
    let mut tui = Tui {
        environment,
        app,
        terminal,
        painter: Painter::new(options.reflow != ReflowMode::Never)
            .with_hyperlinks(options.hyperlinks),
        window_size: WindowSize::new(terminal::size(), options.reflow.settle_time()),
        started: Instant::now(),
        drawn: None,
        dirty: true,
        choice: SessionSelection::default(),
        current: None,
        history,
        options,
        result_rx,
        results,
        leaving: None,
        main_screen: None,
        undelivered: VecDeque::new(),
        undelivered_count: 0,
        folder,
        finder: None,
        reader,
        drafts,
        draft_due: None,
        lookups: 0,
        unsaved: None,
        follows_restore: None,
        confirmation: RewindConfirmation::default(),
        notifier: Notifier::new(notifications),
        branch: BranchWatch::default(),
        status_line: StatusLine::default(),
        job_watch: JobWatch::default(),
        is_previewing: false,
        is_task_over: false,
        sequences: Vec::new(),
    };
    tui.notifier.set_folder(&tui.folder);
    // Keys are read from here on; slow work follows the first frame.
    if tui.app.scrollback.is_none() {
        tui.draw();
    }
    tui.begin().await;
    if let Some(task) = first {
        tui.work(task);
    }
    tui.run_loop(inputs).await;
    Ok(tui.exit().await)
}

impl Tui<'_> {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Opens the first session and restores a draft. If no session can be opened, the UI is shown
    /// without a session, with the errors and facts for the setup.
    async fn begin(&mut self) {
        // Output that is printed meanwhile must not end up in the live region.
        self.follow_size();
        let nothing = self.painter.withdraw();
        self.terminal.write(nothing);
        self.terminal.write_finished().await;
        let opened = self.environment.open(&self.choice, false);
        match opened {
            Ok(opened) => {
                let explained = opened.explained_mode;
                self.enter(opened).await;
                let mut lines = messages::introduction(&self.app, &self.options);
                lines.extend(explained.into_iter().flat_map(messages::explained_mode));
                self.app.view.push_lines(lines);
            }
            Err(failures) => {
                self.app.view.push_lines(messages::first_run(&failures));
                let facts = self.environment.setup_facts();
                self.look_up(commands::COLLECTING, facts, LookupResult::Setup);
            }
        }
        self.forget_branch();
        for warning in std::mem::take(&mut self.options.warnings) {
            self.app.view.note(Role::Warn, format!("warning: {warning}"));
        }
        self.restore_draft();
        // Output that was printed meanwhile is above the live region.
        self.invalidate();
    }

    async fn enter(&mut self, opened: OpenedSession) {
        let settings = &opened.settings;
        let resumed = settings.resumption.as_ref();
        let title = resumed.and_then(|resumed| resumed.replayed.title.clone());
        let has_history = settings.resumption.is_some() || !settings.history.is_empty();
        let end = resumed.map(|resumed| (resumed.branch.clone(), resumed.replayed.last_record));
        match Box::pin(CurrentSession::start(opened, &mut self.app)).await {
            Ok(current) => {
                self.app.view.parked = None;
                self.current = Some(current);
                self.enter_notifier(title);
                if let Some((branch, last)) = end {
                    self.read_past(branch, last);
                }
                if has_history {
                    self.request(|session| async move {
                        let used = session.context().await?;
                        Some(RequestResult::Measured(session.id().clone(), used))
                    });
                }
            }
            Err(what) => {
                self.app.view.failures(&[internal(what)]);
                self.leaving = Some(Exit::Internal);
            }
        }
        self.dirty = true;
    }

    /// Puts the draft of an earlier process that crashed back into the prompt.
    fn restore_draft(&mut self) {
        if let Some(text) = self.drafts.left() {
            self.app.composer.restore_text(&text);
            let text = "(what you had not sent here before is back in the prompt)";
            self.app.view.note(Role::Dim, text);
        }
    }

    fn keep_draft(&mut self) {
        if self.draft_due.is_some_and(|due| due <= self.now()) {
            self.draft_due = None;
            self.drafts.keep(&self.app.drafts_text());
        }
    }

    async fn run_loop(&mut self, mut inputs: mpsc::Receiver<Vec<crate::input::InputEvent>>) {
        let mut signals = Signals::listen();
        let mut resized = signal(SignalKind::window_change()).ok();
        // The default action would leave the terminal in raw mode.
        let mut quit = signal(SignalKind::quit()).ok();
        let mut continued = signal(SignalKind::from_raw(nix::libc::SIGCONT)).ok();
        while self.leaving.is_none() {
            let now = self.now();
            self.app.tick(now);
            self.finish_task();
            self.finish_rewind().await;
            self.keep_draft();
            self.follow_attention();
            self.follow_branch();
            self.follow_status_line();
            self.follow_job();
            let wait = self.next_wait();
            tokio::select! {
                biased;
                exit = signals.next() => self.leaving = Some(exit),
                _ = received(&mut quit) => self.leaving = Some(Exit::Terminate),
                found = inputs.recv() => match found {
                    Some(found) => {
                        for input in found {
                            self.notice_input(&input);
                            let effects = self.app.input(input, self.now());
                            self.save_command_uses();
                            self.perform(effects).await;
                        }
                        self.draft_due.get_or_insert(now + DRAFT_INTERVAL);
                        self.dirty = true;
                    }
                    None => self.leaving = Some(Exit::HangUp),
                },
                _ = received(&mut resized) => {
                    self.window_size.observe(terminal::size(), self.now());
                    self.dirty = true;
                }
                _ = received(&mut continued) => {
                    self.terminal.reacquire();
                    self.notifier.forget_title();
                    self.invalidate();
                }
                result = self.result_rx.recv() => {
                    if let Some(result) = result {
                        self.apply_result(result).await;
                    }
                }
                happened = session::next(&mut self.current) => self.apply_update(happened),
                warning = self.notifier.failed() => self.notify_failed(&warning),
                () = self.terminal.write_finished(), if !self.terminal.is_write_finished() => (),
                () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => {
                    self.dirty = true;
                }
            }
            if self.terminal.is_broken() && self.leaving.is_none() {
                self.leaving = Some(Exit::HangUp);
            }
            self.draw_if_due();
        }
    }

    fn apply_update(&mut self, happened: SessionUpdate) {
        self.dirty = true;
        match happened {
            SessionUpdate::Event(announcement) => {
                self.follow(&announcement);
                for _ in 0..EVENTS_AT_ONCE {
                    let more = self.current.as_mut().and_then(|current| current.events.try_next());
                    let Some(announcement) = more else { break };
                    self.follow(&announcement);
                }
            }
            SessionUpdate::Outcome(outcome) => {
                let now = self.now();
                if let Some(current) = &mut self.current {
                    current.ended(outcome, now);
                }
            }
            SessionUpdate::Revert(request) => self.revert_elsewhere(request),
            SessionUpdate::Closed => {
                self.current = None;
                self.app.finish_task();
                self.app.view.forget_agents();
            }
        }
    }

    /// Time until the loop has work without an event; `None` if it has none.
    fn next_wait(&self) -> Option<Duration> {
        let now = self.now();
        let frame = (self.dirty && self.terminal.is_write_finished()).then(|| {
            let next = self
                .drawn
                .map_or(Duration::ZERO, |drawn| drawn + FRAME_INTERVAL)
                .saturating_sub(now);
            next.max(self.resize_wait(now).unwrap_or_default())
        });
        let last =
            self.current.as_ref().and_then(|current| current.waits_until(LAST_EVENTS_MAX, now));
        let draft = self.draft_due.map(|due| due.saturating_sub(now));
        let beside = [self.notification_wait(), self.status_line_wait(), self.job_wait()];
        [frame, self.app.next_change(now), last, draft].into_iter().chain(beside).flatten().min()
    }

    fn draw_if_due(&mut self) {
        let now = self.now();
        let due = self.drawn.is_none_or(|drawn| now.saturating_sub(drawn) >= FRAME_INTERVAL);
        if self.dirty && due && self.terminal.is_write_finished() {
            // The signal for a new size may not have arrived yet.
            self.window_size.observe(terminal::size(), now);
            if self.resize_wait(now).is_none() {
                self.draw();
            }
        }
    }

    /// Remaining wait for the final window size; `None` if no wait is needed. The alternate screen
    /// is never reflowed.
    fn resize_wait(&self, now: Duration) -> Option<Duration> {
        self.window_size.left(now).filter(|_| !self.terminal.alternate_screen)
    }

    /// Adopts the current window size and informs the painters of a change.
    fn follow_size(&mut self) {
        let now = self.now();
        self.window_size.observe(terminal::size(), now);
        if let Some(sure) = self.window_size.adopt(now) {
            let columns = self.window_size.size.0;
            self.painter.resized(columns, sure);
            if let Some(main_screen) = &mut self.main_screen {
                main_screen.resized(columns, true);
            }
        }
    }

    fn draw(&mut self) {
        self.follow_size();
        let now = self.now();
        let (columns, rows) = self.window_size.size;
        self.observe_status();
        let shown = self.app.frame(columns, rows, now);
        // Only a backlog is worth a larger frame.
        self.app.rows_per_frame =
            if shown.more { self.terminal.rows_per_frame(self.app.rows_per_frame) } else { 0 };
        let mut bytes = std::mem::take(&mut self.sequences);
        if shown.alternate_screen != self.terminal.alternate_screen {
            bytes.extend(self.switch(shown.alternate_screen));
        }
        bytes.extend(self.painter.paint(&shown));
        self.terminal.write(bytes);
        self.drawn = Some(now);
        self.dirty = shown.more;
    }

    /// Switches to the alternate screen or back to the main screen. Returns the bytes to write.
    fn switch(&mut self, alternate_screen: bool) -> Vec<u8> {
        let bytes = self.terminal.set_alternate_screen(alternate_screen);
        let other = Painter::new(self.options.reflow != ReflowMode::Never)
            .with_hyperlinks(self.options.hyperlinks);
        if alternate_screen {
            self.main_screen = Some(std::mem::replace(&mut self.painter, other));
        } else if let Some(main_screen) = self.main_screen.take() {
            self.painter = main_screen;
            self.painter.invalidate();
        }
        bytes
    }

    /// Marks the content of the terminal as unknown, so that the next frame is drawn completely.
    fn invalidate(&mut self) {
        self.painter.invalidate();
        self.dirty = true;
    }

    fn follow(&mut self, announcement: &posse_actors::event::Announcement) {
        let now = self.now();
        if let Some(current) = &mut self.current {
            current.notice(announcement);
        }
        self.app.view.wall_ms = match &announcement.fact {
            AnnouncedEvent::Stored(record) => record.ts,
            AnnouncedEvent::Ephemeral { ts, .. } => *ts,
        };
        self.app.follow(announcement.event(), announcement.origin(), now);
        self.notifier.follow(announcement.event());
        self.notice_branch(announcement.event());
        self.save_selection(announcement);
        if let Some(current) = &self.current {
            self.app.view.status.cost = current.cost();
        }
    }

    /// Finishes a task once its outcome is known and its last event was handled or
    /// [`LAST_EVENTS_MAX`] has passed: shows the outcome and starts the next undelivered message.
    /// Does nothing before.
    fn finish_task(&mut self) {
        let now = self.now();
        let Some(current) = &mut self.current else { return };
        let Some(concluded) = current.take_summary(LAST_EVENTS_MAX, now) else { return };
        if self.app.stopping {
            self.return_undelivered();
        }
        self.app.finish_task();
        self.task_ended(&concluded);
        messages::finish_task(&mut self.app, concluded, self.options.yes);
        if self.follows_restore.is_none() {
            self.submit_undelivered();
        }
        self.dirty = true;
    }
}

fn internal(what: String) -> Failure {
    Failure::new(ErrorCode::InternalFailure, Exit::Internal, what)
}
