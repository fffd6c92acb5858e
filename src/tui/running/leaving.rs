//! How the terminal is given back: for a while, or for good.

use crate::failure::Exit;
use crate::talk::signals::Signals;
use crate::tui::running::{HURRIED_END, PATIENT_END, Tui, asking};
use crate::tui::terminal;

impl Tui<'_> {
    pub(super) async fn suspend(&mut self) {
        let mut last = self.painter.withdraw();
        if self.terminal.apart {
            last = [self.switch(false), self.painter.withdraw()].concat();
        }
        self.terminal.lend(last).await;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP).ok();
        // From here on somebody has sent SIGCONT.
        self.terminal.retake();
        self.size = terminal::size();
        self.distrust();
    }

    pub(super) async fn leave(mut self) -> Exit {
        let exit = self.leaving.unwrap_or(Exit::Done);
        let signal = matches!(exit, Exit::Interrupt | Exit::Terminate | Exit::HangUp);
        let (reason, limit) = if signal || self.app.busy {
            ("interrupted", HURRIED_END)
        } else {
            ("completed", PATIENT_END)
        };
        let mut last = Vec::new();
        if self.terminal.apart {
            last = self.switch(false);
        }
        // What is finished stays; the prompt does not.
        let (columns, rows) = self.size;
        for _ in 0..64 {
            let shown = self.app.frame(columns, rows, self.started.elapsed());
            last.extend(self.painter.paint(&shown.frame));
            if !shown.more {
                break;
            }
        }
        last.extend(self.painter.withdraw());
        let session = self.app.session.clone();
        let kept = self.options.kept && self.app.view.usage.output_tokens.is_some();
        self.terminal.give_back(last).await;
        if let Some(said) = terminal::take_panic() {
            tracing::debug!(said, "something panicked and was survived");
        }
        if let Some(current) = self.current.take() {
            let mut signals = Signals::listen();
            tokio::select! {
                () = current.end(reason, exit, limit) => (),
                _ = signals.next() => (),
            }
        }
        if kept && exit != Exit::HangUp {
            asking::farewell(&session);
        }
        exit
    }
}
