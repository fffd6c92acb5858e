//! What drives the terminal UI: keys, events, signals and time in, frames and requests out.
//!
//! Nothing here waits for the session or the terminal: requests are made beside, and a frame is
//! drawn only when the one before it is out. A slow terminal sees fewer frames, and every event
//! is followed.

mod asking;
mod errands;
mod leaving;
mod performing;
mod session;
mod sizing;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use posse_actors::conversation::ContentPart;
use posse_actors::event::Fact;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::{Exit, Failure};
use crate::talk::Choice;
use crate::talk::drafts::Drafts;
use crate::talk::files::Finder;
use crate::talk::history::History;
use crate::talk::signals::Signals;
use crate::tui::app::App;
use crate::tui::composer::Composer;
use crate::tui::painter::Painter;
use crate::tui::past::Past;
use crate::tui::terminal::{self, Reader, Terminal};
use crate::tui::theme::Role;
use crate::tui::{Folds, Options, World};

use session::{Current, Happened, Told};
use sizing::Sizing;

/// How long what was written may be lost by a crash.
const DRAFT: Duration = Duration::from_secs(1);

/// Between two frames.
const FRAME: Duration = Duration::from_millis(16);

/// Events that are followed before a frame is considered again.
const EVENTS_AT_ONCE: usize = 256;

/// How long the last events of a run are awaited.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// How long the end of a session may take.
const PATIENT_END: Duration = Duration::from_secs(30);

/// The same, for somebody who wants out.
const HURRIED_END: Duration = Duration::from_millis(500);

pub(super) struct Tui<'a> {
    world: &'a mut dyn World,
    app: App,
    terminal: Terminal,
    painter: Painter,
    sizing: Sizing,
    started: Instant,
    drawn: Option<Duration>,
    dirty: bool,
    choice: Choice,
    current: Option<Current>,
    history: History,
    options: Options,
    told: mpsc::Receiver<Told>,
    tells: mpsc::Sender<Told>,
    /// How the process ends, once that is decided.
    leaving: Option<Exit>,
    /// What is drawn below a screen of its own.
    beneath: Option<Painter>,
    /// Messages that came when nothing ran any more.
    unsaid: VecDeque<Vec<ContentPart>>,
    /// Who knows the names of files, once one was looked for.
    finder: Option<Finder>,
    reader: Reader,
    drafts: Drafts,
    /// When what is being written is kept.
    draft_due: Option<Duration>,
    /// How often something was looked up.
    lookups: u64,
}

/// Runs until the user leaves.
pub(super) async fn run(world: &mut dyn World, mut options: Options) -> Result<Exit, Vec<Failure>> {
    let internal = |what: String| vec![Failure::new("INT003", Exit::Internal, what)];
    let history = History::open(options.history.take());
    let mut app = App::default();
    app.composer = Composer::new(history.lines());
    app.theme = options.theme;
    app.past = options.alternate.then(Past::default);
    app.status.cwd.clone_from(&options.cwd);
    app.status.manner = options.manner;
    for wrong in app.keymap.bind(&options.keys) {
        app.view.note(Role::Warn, format!("! ui.keybindings: {wrong}"));
    }
    let failed = |error: std::io::Error| internal(format!("the terminal cannot be used: {error}"));
    let terminal = Terminal::take().map_err(failed)?;
    terminal::keep_panics();
    let (inputs, reader) = terminal::read().map_err(failed)?;
    let drafts = Drafts::of(options.drafts.take());
    let (tells, told) = mpsc::channel(64);
    let first = options.first.take();
    let mut tui = Tui {
        world,
        app,
        terminal,
        painter: Painter::new(options.folds != Folds::Never),
        sizing: Sizing::new(terminal::size(), options.folds.rest()),
        started: Instant::now(),
        drawn: None,
        dirty: true,
        choice: Choice::default(),
        current: None,
        history,
        options,
        told,
        tells,
        leaving: None,
        beneath: None,
        unsaid: VecDeque::new(),
        finder: None,
        reader,
        drafts,
        draft_due: None,
        lookups: 0,
    };
    // Keys are taken from here on; what takes longer comes behind the first frame.
    if tui.app.past.is_none() {
        tui.draw();
    }
    tui.begin().await;
    if let Some(task) = first {
        tui.work(task);
    }
    tui.talk(inputs).await;
    Ok(tui.leave().await)
}

impl Tui<'_> {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Opens the first session. Without one there is a screen all the same.
    async fn begin(&mut self) {
        // What is said meanwhile would be said into the middle of our part.
        self.follow_size();
        let nothing = self.painter.withdraw();
        self.terminal.write(nothing);
        self.terminal.freed().await;
        let opened = self.world.open(&self.choice, false);
        match opened {
            Ok(opened) => {
                let started = Current::start(opened).await;
                self.enter(started);
                let lines = asking::introduction(&self.app, &self.options);
                self.app.view.lines(lines);
            }
            Err(failures) => {
                self.app.view.lines(asking::first_run(&failures));
                self.look_around();
            }
        }
        self.restore_draft();
        // Whatever was printed meanwhile is above.
        self.distrust();
    }

    fn enter(&mut self, started: Result<Current, String>) {
        match started {
            Ok(current) => {
                current.describe(&mut self.app);
                self.app.view.unpark();
                current.measure(&self.tells);
                self.current = Some(current);
            }
            Err(what) => {
                self.app.view.failures(&[Failure::new("INT003", Exit::Internal, what)]);
                self.leaving = Some(Exit::Internal);
            }
        }
        self.dirty = true;
    }

    /// Shows what was being written when an earlier process broke off.
    fn restore_draft(&mut self) {
        if let Some(text) = self.drafts.left() {
            self.app.composer.bring_back(&text);
            let text = "(what you were writing when posse broke off is back in the prompt)";
            self.app.view.note(Role::Dim, text);
        }
    }

    fn keep_draft(&mut self) {
        if self.draft_due.is_some_and(|due| due <= self.now()) {
            self.draft_due = None;
            self.drafts.keep(&self.app.composer.whole());
        }
    }

    async fn talk(&mut self, mut inputs: mpsc::Receiver<Vec<crate::tui::input::Input>>) {
        let mut signals = Signals::listen();
        let mut resized = signal(SignalKind::window_change()).ok();
        // It would leave the terminal as it is now.
        let mut quit = signal(SignalKind::quit()).ok();
        let mut continued = signal(SignalKind::from_raw(nix::libc::SIGCONT)).ok();
        while self.leaving.is_none() {
            let now = self.now();
            let due = self.app.tick(now);
            self.perform(due).await;
            self.conclude();
            self.keep_draft();
            let wait = self.next_wait();
            tokio::select! {
                biased;
                exit = signals.next() => self.leaving = Some(exit),
                () = received(&mut quit) => self.leaving = Some(Exit::Terminate),
                found = inputs.recv() => match found {
                    Some(found) => {
                        for input in found {
                            let effects = self.app.input(input, self.now());
                            self.perform(effects).await;
                        }
                        self.draft_due.get_or_insert(now + DRAFT);
                        self.dirty = true;
                    }
                    None => self.leaving = Some(Exit::HangUp),
                },
                () = received(&mut resized) => {
                    self.sizing.look(terminal::size(), self.now());
                    self.dirty = true;
                }
                () = received(&mut continued) => {
                    self.terminal.retake();
                    self.distrust();
                }
                told = self.told.recv() => {
                    if let Some(told) = told {
                        self.hear(told).await;
                    }
                }
                happened = session::next(&mut self.current) => self.happened(happened),
                () = self.terminal.freed(), if !self.terminal.is_free() => (),
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

    fn happened(&mut self, happened: Happened) {
        self.dirty = true;
        match happened {
            Happened::Event(announcement) => {
                self.follow(&announcement);
                for _ in 0..EVENTS_AT_ONCE {
                    let more = self.current.as_mut().and_then(|current| current.events.try_next());
                    let Some(announcement) = more else { break };
                    self.follow(&announcement);
                }
            }
            Happened::Outcome(outcome) => {
                let now = self.now();
                if let Some(current) = &mut self.current {
                    current.ended(outcome, now);
                }
            }
            Happened::Closed => {
                self.current = None;
                self.app.over();
                self.app.view.forget_agents();
            }
        }
    }

    /// When something has to be done without anybody asking.
    fn next_wait(&self) -> Option<Duration> {
        let now = self.now();
        let frame = (self.dirty && self.terminal.is_free()).then(|| {
            let next = self.drawn.map_or(Duration::ZERO, |drawn| drawn + FRAME).saturating_sub(now);
            next.max(self.unsettled(now).unwrap_or_default())
        });
        let last = self.current.as_ref().and_then(|current| current.waits_until(LAST_EVENTS, now));
        let draft = self.draft_due.map(|due| due.saturating_sub(now));
        [frame, self.app.next_change(now), last, draft].into_iter().flatten().min()
    }

    fn draw_if_due(&mut self) {
        let now = self.now();
        let due = self.drawn.is_none_or(|drawn| now.saturating_sub(drawn) >= FRAME);
        if self.dirty && due && self.terminal.is_free() {
            // The signal that tells of another size may be on its way.
            self.sizing.look(terminal::size(), now);
            if self.unsettled(now).is_none() {
                self.draw();
            }
        }
    }

    /// How long the size of the terminal is waited for. On a screen of its own nothing is folded.
    fn unsettled(&self, now: Duration) -> Option<Duration> {
        self.sizing.left(now).filter(|_| !self.terminal.apart)
    }

    /// From here on it is drawn for the size that the terminal has.
    fn follow_size(&mut self) {
        let now = self.now();
        self.sizing.look(terminal::size(), now);
        if let Some(sure) = self.sizing.adopt(now) {
            let columns = self.sizing.size().0;
            self.painter.resized(columns, sure);
            if let Some(beneath) = &mut self.beneath {
                beneath.resized(columns, true);
            }
        }
    }

    fn draw(&mut self) {
        self.follow_size();
        let now = self.now();
        let (columns, rows) = self.sizing.size();
        let shown = self.app.frame(columns, rows, now);
        // Only what waits is worth a larger frame.
        self.app.pace = if shown.more { self.terminal.pace(self.app.pace) } else { 0 };
        let mut bytes = Vec::new();
        if shown.apart != self.terminal.apart {
            bytes = self.switch(shown.apart);
        }
        bytes.extend(self.painter.paint(&shown.frame));
        self.terminal.write(bytes);
        self.drawn = Some(now);
        self.dirty = shown.more;
    }

    /// Between our part of the screen and a screen of its own.
    fn switch(&mut self, apart: bool) -> Vec<u8> {
        let bytes = self.terminal.set_apart(apart);
        let other = Painter::new(self.options.folds != Folds::Never);
        if apart {
            self.beneath = Some(std::mem::replace(&mut self.painter, other));
        } else if let Some(beneath) = self.beneath.take() {
            self.painter = beneath;
            self.painter.distrust();
        }
        bytes
    }

    /// What the terminal shows of our part is not known any more.
    fn distrust(&mut self) {
        self.painter.distrust();
        self.dirty = true;
    }

    fn follow(&mut self, announcement: &posse_actors::event::Announcement) {
        let now = self.now();
        if let Some(current) = &mut self.current {
            current.notice(announcement);
        }
        self.app.view.wall_ms = match &announcement.fact {
            Fact::Stored(record) => record.ts,
            Fact::Passing { ts, .. } => *ts,
        };
        self.app.follow(announcement.event(), announcement.origin(), now);
        if let Some(current) = &self.current {
            self.app.status.cost = current.cost();
        }
    }

    /// A task is over when its outcome is known and its last event was followed.
    fn conclude(&mut self) {
        let now = self.now();
        let Some(current) = &mut self.current else { return };
        let Some(concluded) = current.concluded(LAST_EVENTS, now) else { return };
        self.app.over();
        asking::conclude(&mut self.app, concluded, self.options.yes);
        self.say_unsaid();
        self.dirty = true;
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
