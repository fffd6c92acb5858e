//! Title of the session for lists: given by the user, or written by the model of the role `title`
//! after the first answer. Runs never wait for it.

use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::task::JoinError;

use crate::agent_invocation::{AuxiliaryRequest, ModelRoutes};
use crate::conversation::{InvocationId, Message, text_of};
use crate::event::{Event, Origin, SessionEndReason};
use crate::mailbox::{OwnedTask, panic_text, spawn_task};
use crate::outcome::Ending;
use crate::provider_client;
use crate::root_session::supervised::clients::Clients;
use crate::root_session::{Msg, SessionBase, State};

/// Maximum bytes of the first prompt in the request, and of the answer in it.
const READ_BYTES_MAX: usize = 2000;
/// Maximum tokens of the reply: enough for a model that thinks first.
const TOKENS_MAX: u64 = 512;
const CHARS_MAX: usize = 80;
/// Time limit of the model request for a title, retries included.
const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum wait of an ending session for a title that is being written.
const LAST_MOMENT: Duration = Duration::from_secs(3);

const INSTRUCTION: &str = "You name conversations with a coding agent, for a list. Answer with the \
    name alone: one line of at most eight words, in the language of the conversation, about what is \
    to be done. No quotation marks, no full stop.";

/// Messages about the title.
#[derive(strum::IntoStaticStr)]
pub(super) enum TitlerMsg {
    /// The request for a title has ended, with the title or the reason of its failure.
    Titled(Result<Result<String, String>, JoinError>),
    /// The wait of the ending session for its title is over.
    Untitled,
    /// Give the session this title of the user. Replies with the title as it is recorded; `None`
    /// if nothing of it can be shown.
    Rename(String, RpcReplyPort<Option<String>>),
    /// Reply with the title of the session.
    Show(RpcReplyPort<Option<String>>),
}

/// Input of the state machine for the title.
#[derive(Debug)]
enum TitleInput<'a> {
    /// A run of the main agent has ended; `answer` is `None` if it has no answer.
    RunEnded { above: &'a Arc<Origin>, history: &'a [Arc<Message>], answer: Option<&'a str> },
    /// The request for a title has ended. `Err`: reason in words.
    Titled(Result<String, String>),
    /// The user has given this title, which is clean.
    Renamed(String),
    /// The session is about to write its last record. `completed`: true if it ends normally.
    Closing { completed: bool },
    /// The wait of the ending session for its title is over.
    Overdue,
}

/// Effect that the session performs for the title.
#[derive(Debug, PartialEq)]
enum TitleEffect {
    /// Send this text to the model, on behalf of this invocation.
    Ask(Arc<Origin>, String),
    /// Cancel the model request for a title.
    Cancel,
    Record(String),
    Warn(String),
    /// Set the timer for waiting for the request in flight.
    StartTimer,
    /// Continue to close the session.
    Close,
}

/// State machine for the title, without I/O.
#[derive(Default)]
struct TitleProgress {
    known: Option<String>,
    /// True if a model is configured and was not asked yet. It is asked at most once per process.
    may_ask: bool,
    /// True while a request is in flight.
    is_asking: bool,
    /// True while the ending session waits for its title.
    is_awaited: bool,
}

impl TitleProgress {
    fn on(&mut self, input: TitleInput<'_>) -> Vec<TitleEffect> {
        match input {
            TitleInput::RunEnded { above, history, answer } => match (&self.known, answer) {
                // Lists look for it near the end of the journal.
                (Some(title), _) => vec![TitleEffect::Record(title.clone())],
                (None, Some(answer)) if self.may_ask => {
                    (self.may_ask, self.is_asking) = (false, true);
                    vec![TitleEffect::Ask(Arc::clone(above), request_text(history, answer))]
                }
                (None, _) => Vec::new(),
            },
            TitleInput::Titled(said) if std::mem::take(&mut self.is_asking) => {
                let title =
                    said.and_then(|said| clean(&said).ok_or_else(|| "it said nothing".to_owned()));
                let mut effects = match title {
                    Ok(title) => {
                        self.known = Some(title.clone());
                        vec![TitleEffect::Record(title)]
                    }
                    Err(why) => {
                        let message = format!("no session title was generated ({why})");
                        vec![TitleEffect::Cancel, TitleEffect::Warn(message)]
                    }
                };
                effects.extend(self.stop_waiting());
                effects
            }
            // The request was cancelled.
            TitleInput::Titled(_) => Vec::new(),
            TitleInput::Renamed(title) => {
                self.may_ask = false;
                self.known = Some(title.clone());
                let asked = std::mem::take(&mut self.is_asking).then_some(TitleEffect::Cancel);
                let recorded = [TitleEffect::Record(title)];
                asked.into_iter().chain(recorded).chain(self.stop_waiting()).collect()
            }
            TitleInput::Closing { .. } if self.is_awaited || !self.is_asking => Vec::new(),
            TitleInput::Closing { completed: true } => {
                self.is_awaited = true;
                vec![TitleEffect::StartTimer]
            }
            TitleInput::Closing { completed: false } => {
                self.is_asking = false;
                vec![TitleEffect::Cancel]
            }
            TitleInput::Overdue => {
                let asked = std::mem::take(&mut self.is_asking).then_some(TitleEffect::Cancel);
                asked.into_iter().chain(self.stop_waiting()).collect()
            }
        }
    }

    fn stop_waiting(&mut self) -> Option<TitleEffect> {
        std::mem::take(&mut self.is_awaited).then_some(TitleEffect::Close)
    }
}

/// Text for the model that writes the title: the first prompt of `history` and the answer, both
/// shortened.
fn request_text(history: &[Arc<Message>], answer: &str) -> String {
    let first = history.iter().find_map(|message| match &**message {
        Message::User { content } => Some(text_of(content)),
        Message::System { .. } | Message::Assistant(_) | Message::Tool { .. } => None,
    });
    let cut = |text: &str| text[..text.floor_char_boundary(READ_BYTES_MAX)].to_owned();
    format!("USER: {}\n\nASSISTANT: {}", cut(&first.unwrap_or_default()), cut(answer))
}

/// State of the title with its request and timer.
pub(super) struct Titler {
    progress: TitleProgress,
    /// Route to the model that writes the title; `None`: no title is written.
    namer: Option<ModelRoutes>,
    /// Last request for a title, with its invocation id; `None` if there is none or it was
    /// cancelled.
    request: Option<(InvocationId, OwnedTask)>,
    /// Timer of an ending session that waits for its title; `None` if it does not wait.
    timer: Option<OwnedTask>,
}

impl State {
    pub(super) fn handle_titler(&mut self, msg: TitlerMsg) {
        let input = match msg {
            TitlerMsg::Titled(said) => {
                TitleInput::Titled(said.unwrap_or_else(|died| Err(panic_text(died))))
            }
            TitlerMsg::Untitled => TitleInput::Overdue,
            TitlerMsg::Rename(typed, reply) => {
                let title = one_line(&typed);
                reply.send(title.clone()).ok();
                let Some(title) = title else { return };
                TitleInput::Renamed(title)
            }
            TitlerMsg::Show(reply) => {
                reply.send(self.titler.progress.known.clone()).ok();
                return;
            }
        };
        let effects = self.titler.progress.on(input);
        self.perform_title_effects(effects);
    }

    /// Handles the end of a run of the main agent: records the known title again, or requests one
    /// if there is none, the run has an answer, and this process has not requested one.
    pub(super) fn name_session(&mut self, above: &Arc<Origin>, ending: &Ending) {
        let answer = if let Ending::Answered(answer) = ending { Some(&**answer) } else { None };
        let history = &self.main_run.history;
        let effects = self.titler.progress.on(TitleInput::RunEnded { above, history, answer });
        self.perform_title_effects(effects);
    }

    /// Returns true if the ending session must wait for its title: at most 3 seconds, and only
    /// after a normal end. After another end, a request for a title is cancelled.
    pub(super) fn awaits_title(&mut self, reason: &SessionEndReason) -> bool {
        let completed = *reason == SessionEndReason::Completed;
        let effects = self.titler.progress.on(TitleInput::Closing { completed });
        self.perform_title_effects(effects);
        self.titler.progress.is_awaited
    }

    fn perform_title_effects(&mut self, effects: Vec<TitleEffect>) {
        for effect in effects {
            match effect {
                TitleEffect::Ask(above, text) => {
                    self.base.ask_title(&above, text, &mut self.titler);
                }
                TitleEffect::Cancel => self.titler.cancel(),
                TitleEffect::Record(title) => {
                    self.base.transcript.note(None, Event::SessionTitled { title });
                }
                TitleEffect::Warn(message) => {
                    self.base.transcript.note(None, Event::Warning { message });
                }
                TitleEffect::StartTimer => {
                    let moment = self.base.ports.clock.sleep(LAST_MOMENT);
                    let overdue = |_| Msg::Titler(TitlerMsg::Untitled);
                    self.titler.timer = Some(spawn_task(&self.base.me, moment, overdue));
                }
                TitleEffect::Close => {
                    self.titler.timer = None;
                    self.close();
                }
            }
        }
    }
}

impl SessionBase {
    /// Initial state of the title. A resumed session keeps its title; a fork does not take over
    /// that of the original session.
    pub(super) fn titler(&self, clients: &Clients) -> Titler {
        let resumption = self.settings.resumption.as_ref();
        let known = resumption.filter(|resumption| resumption.branch.is_none());
        let known = known.and_then(|resumption| resumption.replayed.title.clone());
        let known = known.or_else(|| self.settings.title.clone());
        let namer = clients.of_role(self.settings.context.title.as_ref());
        let progress =
            TitleProgress { known, may_ask: namer.is_some(), ..TitleProgress::default() };
        Titler { progress, namer, request: None, timer: None }
    }

    fn ask_title(&self, above: &Origin, text: String, titler: &mut Titler) {
        let Some(namer) = &titler.namer else { return };
        let thinking = self.settings.context.title_thinking;
        let aside =
            AuxiliaryRequest::new(&self.services, namer, above, "title", (TOKENS_MAX, thinking));
        let (id, clock) = (aside.id(), Arc::clone(&self.ports.clock));
        let work = async move {
            let overdue = clock.sleep(PATIENCE);
            tokio::select! {
                biased;
                said = aside.ask(1, INSTRUCTION.to_owned(), text) => said,
                () = overdue => Err("it took too long".to_owned()),
            }
        };
        let ended = |said| Msg::Titler(TitlerMsg::Titled(said));
        titler.request = Some((id, spawn_task(&self.me, work, ended)));
    }
}

impl Titler {
    fn cancel(&mut self) {
        if let (Some(namer), Some((id, _))) = (&self.namer, self.request.take()) {
            namer.send_to_all(|| provider_client::Msg::Cancel(id.clone()));
        }
    }
}

/// The answer `said` of a model as a title: its first non-empty line as [`one_line`] returns it,
/// without enclosing quotes or Markdown marks, and without final full stops. `None` if nothing is
/// left.
fn clean(said: &str) -> Option<String> {
    let line = said.lines().map(str::trim).find(|line| !line.is_empty())?;
    let line = visible(line);
    let around = |c: char| matches!(c, ' ' | '"' | '\'' | '`' | '*' | '#' | '“' | '”');
    one_line(line.trim_matches(around).trim_end_matches('.'))
}

/// `text` as a title of at most 80 characters on one line, without control characters. `None` if
/// nothing is left.
pub(super) fn one_line(text: &str) -> Option<String> {
    let line: String = visible(text).chars().take(CHARS_MAX).collect();
    (!line.is_empty()).then_some(line)
}

/// The words of `text` on one line, without control characters, bidirectional controls and
/// zero-width characters.
fn visible(text: &str) -> String {
    let shown = |c: &char| {
        (c.is_whitespace() || !c.is_control())
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let text: String = text.chars().filter(shown).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::ContentPart;

    const TITLE: &str = "Mend the login";

    fn origin() -> Arc<Origin> {
        Arc::new(Origin {
            invocation_id: InvocationId::new("main"),
            parent_invocation_id: None,
            agent: "build".to_owned(),
            agent_path: "build".to_owned(),
        })
    }

    fn known() -> TitleProgress {
        TitleProgress { known: Some(TITLE.to_owned()), may_ask: true, ..TitleProgress::default() }
    }

    fn unknown() -> TitleProgress {
        TitleProgress { may_ask: true, ..TitleProgress::default() }
    }

    fn asking() -> TitleProgress {
        TitleProgress { is_asking: true, ..TitleProgress::default() }
    }

    fn awaited() -> TitleProgress {
        TitleProgress { is_asking: true, is_awaited: true, ..TitleProgress::default() }
    }

    #[test]
    fn title_is_requested_once_after_an_answer_and_recorded_again_later() {
        let above = origin();
        let content = vec![ContentPart::text("p".repeat(3000))];
        let history = [Arc::new(Message::User { content })];
        let text = format!("USER: {}\n\nASSISTANT: done", "p".repeat(READ_BYTES_MAX));
        let ask = TitleEffect::Ask(origin(), text);
        let table = [
            (unknown(), Some("done"), vec![ask]),
            (unknown(), None, Vec::new()),
            (asking(), Some("done"), Vec::new()),
            (TitleProgress::default(), Some("done"), Vec::new()),
            (known(), Some("done"), vec![TitleEffect::Record(TITLE.to_owned())]),
            (known(), None, vec![TitleEffect::Record(TITLE.to_owned())]),
        ];
        for (mut progress, answer, effects) in table {
            let ended = || TitleInput::RunEnded { above: &above, history: &history, answer };
            assert_eq!(progress.on(ended()), effects, "{answer:?}");
            let again = progress.on(ended());
            assert!(!again.iter().any(|effect| matches!(effect, TitleEffect::Ask(..))));
        }
    }

    #[test]
    fn end_of_the_session_waits_for_a_title_in_flight_after_a_normal_end_only() {
        let closing = |completed| TitleInput::Closing { completed };
        let said = |said: &str| TitleInput::Titled(Ok(said.to_owned()));
        let failed = || TitleInput::Titled(Err("no".to_owned()));
        let record = || TitleEffect::Record(TITLE.to_owned());
        let renamed = || TitleInput::Renamed(TITLE.to_owned());
        let warn = |why: &str| TitleEffect::Warn(format!("no session title was generated ({why})"));
        let table = [
            (unknown(), closing(true), vec![], false),
            (asking(), closing(true), vec![TitleEffect::StartTimer], true),
            (asking(), closing(false), vec![TitleEffect::Cancel], false),
            (awaited(), closing(true), vec![], true),
            (asking(), said(TITLE), vec![record()], false),
            (awaited(), said(TITLE), vec![record(), TitleEffect::Close], false),
            (asking(), said(" "), vec![TitleEffect::Cancel, warn("it said nothing")], false),
            (awaited(), failed(), vec![TitleEffect::Cancel, warn("no"), TitleEffect::Close], false),
            (unknown(), said(TITLE), vec![], false),
            (awaited(), TitleInput::Overdue, vec![TitleEffect::Cancel, TitleEffect::Close], false),
            (unknown(), TitleInput::Overdue, vec![], false),
            (unknown(), renamed(), vec![record()], false),
            (known(), renamed(), vec![record()], false),
            (asking(), renamed(), vec![TitleEffect::Cancel, record()], false),
            (awaited(), renamed(), vec![TitleEffect::Cancel, record(), TitleEffect::Close], false),
        ];
        for (at, (mut progress, input, effects, waits)) in table.into_iter().enumerate() {
            assert_eq!(progress.on(input), effects, "row {at}");
            assert_eq!(progress.is_awaited, waits, "row {at}");
        }
    }

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

    #[test]
    fn title_of_the_user_stays_as_typed_on_one_line() {
        let table = [
            ("\"Mend\tthe\nlogin.\"", Some("\"Mend the login.\"")),
            ("# 1\u{1b}[2J\u{202e}", Some("# 1[2J")),
            (" \u{200b}\n", None),
        ];
        for (typed, title) in table {
            assert_eq!(one_line(typed).as_deref(), title, "{typed:?}");
        }
        assert_eq!(one_line(&"ü".repeat(500)).unwrap().chars().count(), CHARS_MAX);
    }

    #[test]
    fn renamed_session_keeps_the_title_of_the_user() {
        let above = origin();
        let mut progress = unknown();
        progress.on(TitleInput::Renamed(TITLE.to_owned()));
        let ended = TitleInput::RunEnded { above: &above, history: &[], answer: Some("done") };
        assert_eq!(progress.on(ended), [TitleEffect::Record(TITLE.to_owned())]);
    }
}
