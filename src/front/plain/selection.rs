//! Selection of model, provider and agent in line mode.

use posse_actors::event::{Announcement, Event};
use posse_base::failure::{ErrorCode, Exit, Failure, printable};
use posse_frontend::{Selectable, is_default};

use crate::plain::LineMode;

/// Maximum number of known names of a setting that are listed.
const NAMES_SHOWN_MAX: usize = 60;

impl LineMode<'_> {
    pub(super) async fn show_names(&mut self, what: Selectable) {
        let (name, source) = self.current.of(what);
        let mut text = format!("{} {} ({})\n", what.word(), printable(name), printable(source));
        let names = self.sessions.names(what);
        if !names.is_empty() {
            text.push_str("known: ");
            let shown = &names[..names.len().min(NAMES_SHOWN_MAX)];
            text.push_str(&printable(&shown.join(", ")));
            if shown.len() < names.len() {
                let more = (names.len() - shown.len()).to_string();
                text.extend([" and ", &more, " more"]);
            }
            text.push('\n');
        }
        self.print(&text).await;
    }

    pub(super) async fn select(&mut self, what: Selectable, name: String) {
        if name.contains(char::is_whitespace) {
            let what = format!("a name has no white space: \"{}\"", printable(&name));
            let failure = Failure::new(ErrorCode::ConfigInvalidValue, Exit::Configuration, what);
            self.failed(&[failure]).await;
            return;
        }
        let default = is_default(&name, || self.sessions.names(what));
        if default && let Err(failure) = self.sessions.forget(what) {
            self.failed(&[failure]).await;
            return;
        }
        let choice = self.choice.with(what, (!default).then(|| name.clone()));
        if !self.reopen(choice, true).await {
            return;
        }
        let mut text = self.selection();
        if what == Selectable::Thinking {
            text = format!("{:<9} {}\n", what.word(), self.current.of(what).0);
        }
        if what.is_saved() {
            self.unsaved = (!default).then_some((what, name));
        }
        if self.unsaved.is_some() {
            text.extend(["(saved for later starts once the ", what.word(), " has answered)\n"]);
        }
        self.print(&text).await;
    }

    /// Saves the selected provider or model if the event is its first answer.
    pub(super) async fn save_selection(&mut self, announcement: &Announcement) {
        let is_main =
            announcement.origin().is_some_and(|origin| origin.parent_invocation_id.is_none());
        if !matches!(announcement.event(), Event::ModelReply { .. }) || !is_main {
            return;
        }
        let current = &self.current;
        // After a failover another model has answered.
        let answered = |(what, name): &mut (Selectable, String)| *name == current.of(*what).0;
        if let Some((what, name)) = self.unsaved.take_if(answered)
            && let Err(failure) = self.sessions.remember(what, &name)
        {
            self.failed(&[failure]).await;
        }
    }
}
