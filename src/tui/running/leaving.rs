//! How the terminal is given back: for a while, or for good.

use crate::failure::Exit;
use crate::talk::signals::Signals;
use crate::tui::running::{HURRIED_END, PATIENT_END, Tui, asking};
use crate::tui::terminal;
use crate::tui::theme::Role;

impl Tui<'_> {
    pub(super) async fn suspend(&mut self) {
        self.lend().await;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP).ok();
        // From here on somebody has sent SIGCONT.
        self.retake();
    }

    /// Opens what is written in the user's editor.
    pub(super) async fn edit(&mut self) {
        let edit = self.world.editor();
        let text = self.app.composer.whole();
        self.reader.pause();
        self.lend().await;
        // What happens meanwhile is followed afterwards: nothing of it is lost.
        let edited = tokio::task::spawn_blocking(move || edit(text)).await;
        self.retake();
        self.reader.resume();
        match edited {
            Ok(Ok(text)) => self.app.composer.set(&text),
            Ok(Err(failure)) => self.app.view.failures(&[failure]),
            Err(died) => self.app.view.note(Role::Bad, format!("the editor: {died}")),
        }
    }

    async fn lend(&mut self) {
        self.follow_size();
        let mut last = self.painter.withdraw();
        if self.terminal.apart {
            last = [self.switch(false), self.painter.withdraw()].concat();
        }
        self.terminal.lend(last).await;
    }

    fn retake(&mut self) {
        self.terminal.retake();
        self.sizing.set(terminal::size());
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
        // Whoever leaves has done with it; whoever was sent away has not.
        let draft = if signal && exit != Exit::Interrupt {
            self.app.composer.whole()
        } else {
            String::new()
        };
        std::mem::take(&mut self.drafts).close(&draft);
        let mut last = Vec::new();
        self.follow_size();
        if self.terminal.apart {
            last = self.switch(false);
        }
        self.app.past = None;
        // What is finished stays; the prompt does not.
        let (columns, rows) = self.sizing.size();
        for _ in 0..64 {
            let shown = self.app.frame(columns, rows, self.started.elapsed());
            last.extend(self.painter.paint(&shown.frame));
            if !shown.more {
                break;
            }
        }
        last.extend(self.painter.withdraw());
        let session = self.app.session.clone();
        let kept = self.options.kept && self.app.view.begun;
        self.terminal.give_back(last).await;
        if let Some(said) = terminal::take_panic() {
            tracing::debug!(said, "something panicked and was survived");
        }
        if let Some(mut current) = self.current.take() {
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
