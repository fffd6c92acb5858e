//! Session title for lists, written by the model with the role `title` after the first answer. Runs
//! never wait for it.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::task::JoinError;

use crate::agent_invocation::{AuxiliaryRequest, ModelRoutes};
use crate::conversation::{InvocationId, Message, text_of};
use crate::event::{Event, Origin};
use crate::mailbox::{OwnedTask, panic_text, spawn_task};
use crate::outcome::Ending;
use crate::provider_client;
use crate::root_session::supervised::clients::Clients;
use crate::root_session::{Msg, RootSession, State};

/// Bytes of the prompt, and of the answer, in the request.
const READ_BYTES_MAX: usize = 2000;
/// Most tokens of the reply: enough for a model that thinks first.
const TOKENS_MAX: u64 = 512;
const CHARS_MAX: usize = 80;
/// Maximum wait for the request.
const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum wait of an ended session for a title that is in flight.
const LAST_MOMENT: Duration = Duration::from_secs(3);

const INSTRUCTION: &str = "You name conversations with a coding agent, for a list. Answer with the \
    name alone: one line of at most eight words, in the language of the conversation, about what is \
    to be done. No quotation marks, no full stop.";

/// Messages about the title.
pub(super) enum TitlerMsg {
    /// Result of the title request.
    Titled(Result<Result<String, String>, JoinError>),
    /// The title did not arrive in time.
    Untitled,
}

impl TitlerMsg {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            TitlerMsg::Titled(_) => "Titled",
            TitlerMsg::Untitled => "Untitled",
        }
    }
}

/// State of the title.
#[derive(Default)]
pub(super) struct Titler {
    known: Option<String>,
    /// Model that writes it, if configured.
    namer: Option<ModelRoutes>,
    /// True after the request was made; it is made once per process.
    asked: bool,
    /// The request in flight, with its invocation id.
    asking: Option<(InvocationId, OwnedTask)>,
    /// Timer of an ended session that only waits for its title.
    last_moment: Option<OwnedTask>,
}

impl Titler {
    pub(super) fn new(namer: Option<ModelRoutes>, known: Option<String>) -> Titler {
        Titler { known, namer, ..Titler::default() }
    }
}

impl RootSession {
    pub(super) fn handle_titler(&self, me: &ActorRef<Msg>, msg: TitlerMsg, state: &mut State) {
        match msg {
            TitlerMsg::Titled(said) => self.titled(me, said, state),
            TitlerMsg::Untitled => self.untitled(me, state),
        }
    }

    /// Initial state, with the title of a resumed session.
    pub(super) fn titler(&self, clients: &Clients) -> Titler {
        let resumption = self.settings.resumption.as_ref();
        let known = resumption.filter(|resumption| resumption.branch.is_none());
        let known = known.and_then(|resumption| resumption.replayed.title.clone());
        Titler::new(clients.of_role(self.settings.context.title.as_ref()), known)
    }

    /// After a run of the main agent: requests a title if there is none, otherwise records it again
    /// near the end of the journal, where lists look for it.
    pub(super) fn name_session(
        &self,
        me: &ActorRef<Msg>,
        above: &Origin,
        ending: &Ending,
        state: &mut State,
    ) {
        self.record_title(state);
        let (Some(namer), Ending::Answered(answer)) = (&state.titler.namer, ending) else { return };
        if state.titler.known.is_some() || state.titler.asked {
            return;
        }
        let first = state.main_run.history().iter().find_map(|message| match &**message {
            Message::User { content } => Some(text_of(content)),
            Message::System { .. } | Message::Assistant(_) | Message::Tool { .. } => None,
        });
        let cut = |text: &str| text[..text.floor_char_boundary(READ_BYTES_MAX)].to_owned();
        let text =
            format!("USER: {}\n\nASSISTANT: {}", cut(&first.unwrap_or_default()), cut(answer));
        let thinking = self.settings.context.title_thinking;
        let aside =
            AuxiliaryRequest::new(&self.services, namer, above, "title", (TOKENS_MAX, thinking));
        let (id, clock) = (aside.id(), Arc::clone(&self.ports.clock));
        let asked = async move {
            let overdue = clock.sleep(PATIENCE);
            tokio::select! {
                biased;
                said = aside.ask(1, INSTRUCTION.to_owned(), text) => said,
                () = overdue => Err("it took too long".to_owned()),
            }
        };
        let titled = |said| Msg::Titler(TitlerMsg::Titled(said));
        state.titler.asked = true;
        state.titler.asking = Some((id, spawn_task(me, asked, titled)));
    }

    /// The request has ended.
    pub(super) fn titled(
        &self,
        me: &ActorRef<Msg>,
        said: Result<Result<String, String>, JoinError>,
        state: &mut State,
    ) {
        let Some((id, _)) = state.titler.asking.take() else { return };
        let title = said.unwrap_or_else(|died| Err(panic_text(died)));
        match title.and_then(|said| clean(&said).ok_or_else(|| "it said nothing".to_owned())) {
            Ok(title) => {
                state.titler.known = Some(title);
                self.record_title(state);
            }
            Err(why) => {
                cancel_request(&id, state);
                let message = format!("no session title was generated ({why})");
                self.transcript.note(None, Event::Warning { message });
            }
        }
        if state.titler.last_moment.take().is_some() {
            self.close(me, state);
        }
    }

    /// True if the ended session still waits for its title: briefly, and only after a normal end.
    pub(super) fn awaits_title(&self, me: &ActorRef<Msg>, reason: &str, state: &mut State) -> bool {
        if state.titler.last_moment.is_some() {
            return true;
        }
        let Some((id, work)) = state.titler.asking.take() else { return false };
        if reason != "completed" {
            drop(work);
            cancel_request(&id, state);
            return false;
        }
        state.titler.asking = Some((id, work));
        let moment = self.ports.clock.sleep(LAST_MOMENT);
        state.titler.last_moment =
            Some(spawn_task(me, moment, |_| Msg::Titler(TitlerMsg::Untitled)));
        true
    }

    /// The title did not arrive in time.
    pub(super) fn untitled(&self, me: &ActorRef<Msg>, state: &mut State) {
        if let Some((id, _)) = state.titler.asking.take() {
            cancel_request(&id, state);
        }
        if state.titler.last_moment.take().is_some() {
            self.close(me, state);
        }
    }

    fn record_title(&self, state: &State) {
        if let Some(title) = &state.titler.known {
            self.transcript.note(None, Event::SessionTitled { title: title.clone() });
        }
    }
}

fn cancel_request(id: &InvocationId, state: &State) {
    if let Some(namer) = &state.titler.namer {
        namer.tell(|| provider_client::Msg::Cancel(id.clone()));
    }
}

/// One line, safe for display.
fn clean(said: &str) -> Option<String> {
    let line = said.lines().map(str::trim).find(|line| !line.is_empty())?;
    // Bidirectional controls and zero-width characters are removed, too.
    let shown = |c: &char| {
        (c.is_whitespace() || !c.is_control())
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let line: String = line.chars().filter(shown).collect();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let around = |c: char| matches!(c, ' ' | '"' | '\'' | '`' | '*' | '#' | '“' | '”');
    let line = line.trim_matches(around).trim_end_matches('.');
    let line: String = line.chars().take(CHARS_MAX).collect();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_one_bounded_line_without_control_characters() {
        let table = [
            ("Mend the login", Some("Mend the login")),
            ("\n\n  \"Mend\tthe  login.\"\nand more", Some("Mend the login")),
            ("\u{1b}]0;evil\u{7}Mend\u{202e} it", Some("]0;evilMend it")),
            ("# **Mend**", Some("Mend")),
            (" \n\t", None),
            ("\u{200b}\u{202e}", None),
        ];
        for (said, title) in table {
            assert_eq!(clean(said).as_deref(), title, "{said:?}");
        }
        assert_eq!(clean(&"ü".repeat(500)).unwrap().chars().count(), CHARS_MAX);
    }
}
