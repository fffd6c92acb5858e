//! Restoring the terminal: temporarily for a suspension or an editor, or at exit.

use posse_actors::event::SessionEndReason;
use posse_base::failure::Exit;
use posse_frontend::signals::Signals;

use crate::EditorDraft;
use crate::running::{INTERRUPTED_SHUTDOWN_MAX, SHUTDOWN_MAX, Tui, messages};
use crate::terminal;
use crate::theme::Role;

/// `text` without its last line break, with which editors end a file.
fn without_last_break(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

impl Tui<'_> {
    pub(super) async fn suspend(&mut self) {
        self.release().await;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP).ok();
        // SIGCONT has arrived.
        self.reacquire();
    }

    /// Edits the prompt in the user's editor, with long pastes in full. The event loop waits for
    /// the editor. If it fails, the error is shown and the prompt stays unchanged.
    pub(super) async fn edit(&mut self) {
        let draft = EditorDraft::markdown(self.app.composer.expanded_text());
        if let Some(text) = self.edited(draft).await {
            self.app.composer.set(without_last_break(&text));
        }
    }

    /// Edits the plan in question in the user's editor. If it fails, the plan stays unchanged.
    pub(super) async fn edit_plan(&mut self, plan: String) {
        if let Some(plan) = self.edited(EditorDraft::markdown(plan)).await {
            self.app.prompts.set_plan(without_last_break(&plan));
        }
    }

    /// Edits the hunk in question in the user's editor, and takes it with the new text. If the editor
    /// fails, the hunk stays open.
    pub(super) async fn edit_hunk(&mut self, draft: EditorDraft) {
        if let Some(text) = self.edited(draft).await
            && let Some((id, decision)) = self.app.set_hunk(text)
        {
            self.answer(id, decision);
        }
    }

    /// The text after the user has edited it. `None` after an error, which is shown.
    async fn edited(&mut self, draft: EditorDraft) -> Option<String> {
        let edit = self.environment.editor();
        self.reader.pause();
        self.release().await;
        // Events that arrive meanwhile are handled afterwards; none is lost.
        let edited = tokio::task::spawn_blocking(move || edit(draft)).await;
        self.reacquire();
        self.reader.resume();
        match edited {
            Ok(Ok(text)) => return Some(text),
            Ok(Err(failure)) => {
                // The rows above an open request do not change.
                let why = failure.why.as_deref().unwrap_or_default();
                self.app.prompts.show_hint(&format!("{}: {why}", failure.what));
                self.app.view.failures(&[failure]);
            }
            Err(died) => {
                self.app.view.note(Role::Bad, format!("the editor thread crashed: {died}"));
            }
        }
        None
    }

    async fn release(&mut self) {
        let last = self.withdraw_frame();
        self.terminal.release(last).await;
    }

    /// Returns the sequence that removes the live region and leaves the alternate screen.
    pub(super) fn withdraw_frame(&mut self) -> Vec<u8> {
        self.follow_size();
        let mut bytes = self.painter.withdraw();
        if self.terminal.alternate_screen {
            bytes.extend(self.switch(false));
            bytes.extend(self.painter.withdraw());
        }
        bytes
    }

    fn reacquire(&mut self) {
        self.terminal.reacquire();
        self.notifier.forget_title();
        self.window_size.set(terminal::size());
        self.invalidate();
    }

    pub(super) async fn exit(mut self) -> Exit {
        let exit = self.leaving.unwrap_or(Exit::Done);
        let signal = matches!(exit, Exit::Interrupt | Exit::Terminate | Exit::HangUp);
        let (reason, limit) = if signal || self.app.busy {
            (SessionEndReason::Interrupted, INTERRUPTED_SHUTDOWN_MAX)
        } else {
            (SessionEndReason::Completed, SHUTDOWN_MAX)
        };
        // The draft is kept only if a signal ended the process; drafts put aside are always kept.
        if !signal || exit == Exit::Interrupt {
            self.app.composer.set("");
        }
        let draft = self.app.drafts_text();
        std::mem::take(&mut self.drafts).close(&draft);
        let mut last = Vec::new();
        self.follow_size();
        if self.terminal.alternate_screen {
            last = self.switch(false);
        }
        self.app.scrollback = None;
        // Finished rows stay; the prompt is removed.
        let (columns, rows) = self.window_size.size;
        for _ in 0..64 {
            let shown = self.app.frame(columns, rows, self.started.elapsed());
            last.extend(self.painter.paint(&shown));
            if !shown.more {
                break;
            }
        }
        last.extend(self.painter.withdraw());
        let session = self.app.session.clone();
        let kept = self.options.kept && self.app.view.begun;
        self.terminal.restore(last).await;
        if let Some(message) = terminal::take_panic() {
            tracing::debug!(message, "recovered from a panic");
        }
        if let Some(mut current) = self.current.take() {
            let mut signals = Signals::listen();
            tokio::select! {
                () = current.end(reason, exit, limit) => (),
                _ = signals.next() => (),
            }
        }
        if kept && exit != Exit::HangUp {
            messages::print_resume_hint(&session, &self.options.resume_flags);
        }
        exit
    }
}
