//! Permission requests, questions and plans at the terminal, one at a time, in order.
//!
//! The whole request is shown before a yes is accepted; a long one is shown page by page.

mod draft_file;
mod hunks;
pub(crate) mod keyboard;
mod pages;
mod request;

use std::borrow::Cow;
use std::collections::VecDeque;

use posse_actors::conversation::QuestionId;
use posse_actors::event::{Announcement, Event, Scope, TrialOffer};
use posse_actors::permission_coordinator::HumanDecision;
use posse_base::failure::printable;
use posse_frontend::hunk_walk::HunkWalk;
use posse_frontend::subagents::label_with_id;

pub(crate) use keyboard::can_ask;

use hunks::{HunkForm, HunkLine};
use keyboard::{Keyboard, KeyboardEvent};
use pages::{QuestionPage, pages};
use request::{RequestForm, RequestLine};

/// Open permission request, or request of the model.
#[derive(Debug)]
struct AskedQuestion {
    id: QuestionId,
    summary: String,
    /// Remaining pages, the next one first.
    left: VecDeque<QuestionPage>,
    /// Number of lines on the pages that were not shown yet.
    lines_left: usize,
    scopes: Vec<Scope>,
    /// Answer about a trial that is offered; `None` if none is.
    trial: Option<TrialOffer>,
    /// Hunks of an edit, which can be answered one by one; `None` if there are none.
    hunks: Option<HunkWalk>,
    /// Hunks that the person answers at the moment; `None` while the request is answered as a whole.
    hunk_form: Option<HunkForm>,
    /// Questions or plan of the model; `None` for a permission request.
    form: Option<RequestForm>,
    /// `true` for a request of a subagent, `false` for one of the main agent.
    below: bool,
}

impl AskedQuestion {
    /// Takes the next page and returns its text; empty if none is left. The possible answers follow
    /// after a quiet period.
    fn turn(&mut self) -> String {
        let Some(page) = self.left.pop_front() else { return String::new() };
        self.lines_left = self.left.iter().map(|page| page.lines).sum();
        page.text
    }

    fn is_seen(&self) -> bool {
        self.left.is_empty()
    }

    fn keys(&self) -> String {
        if let Some(hunks) = &self.hunk_form {
            return hunks.keys(self.is_seen());
        }
        let hunks = if self.hunks.is_some() { "  [h] hunk by hunk" } else { "" };
        if self.is_seen() {
            return match &self.form {
                Some(form) => form.keys(),
                None => keys(&self.scopes, self.trial.as_ref(), hunks),
            };
        }
        let lines = if self.lines_left == 1 { "line" } else { "lines" };
        format!("  [Enter] more ({} {lines} left){hunks}  [N] no: ", self.lines_left)
    }
}

/// Permission requests of one terminal. The first open one is the current request; the others
/// wait.
#[derive(Debug, Default)]
pub(crate) struct TerminalQuestions {
    open: VecDeque<AskedQuestion>,
    shown: bool,
    /// Number of decided requests since no request was open.
    decided: usize,
    /// True while input does not count as an answer, until the keyboard has been silent.
    deaf: bool,
    /// True if the global scope was chosen and needs confirmation.
    confirming: bool,
    keyboard: Option<Keyboard>,
}

impl TerminalQuestions {
    /// Returns an empty list of requests that reads answers from the terminal, even if standard
    /// input is a pipe.
    pub(crate) fn at_terminal() -> TerminalQuestions {
        TerminalQuestions {
            keyboard: Some(Keyboard::at_terminal()),
            ..TerminalQuestions::default()
        }
    }

    /// Updates the requests and returns the text to show, like
    /// [`follow`](TerminalQuestions::follow). The text of a subagent's request begins with the name
    /// of the subagent.
    pub(crate) fn follow_announced(&mut self, announcement: &Announcement) -> Option<String> {
        let below = announcement.origin().filter(|origin| origin.parent_invocation_id.is_some());
        let mut event = Cow::Borrowed(announcement.event());
        if let Some(origin) = below
            && matches!(*event, Event::PermissionRequested { .. })
            && let Event::PermissionRequested { summary, .. } = event.to_mut()
        {
            let who = label_with_id(&origin.agent_path.replace('/', " -> "), &origin.invocation_id);
            *summary = format!("{who}: {summary}");
        }
        let shown = self.follow(&event);
        if below.is_some()
            && let Event::PermissionRequested { request_id, .. } = &*event
            && let Some(open) = self.open.iter_mut().find(|open| open.id == *request_id)
        {
            open.below = true;
        }
        shown
    }

    /// Updates the requests from an event. Returns the text to show if there is a new current
    /// request; `None` otherwise.
    pub(crate) fn follow(&mut self, event: &Event) -> Option<String> {
        let known = match event {
            Event::PermissionRequested {
                request_id,
                summary,
                detail,
                reason,
                scopes,
                user_request,
                trial,
                hunks,
                ..
            } => {
                if self.open.iter().all(|open| open.id != *request_id) {
                    let form = user_request.as_deref().cloned().map(RequestForm::new);
                    let left = match &form {
                        Some(form) => form.pages(Some(summary)),
                        None => render(summary, detail, reason),
                    };
                    self.open.push_back(AskedQuestion {
                        id: request_id.clone(),
                        summary: summary.clone(),
                        left,
                        lines_left: 0,
                        scopes: scopes.clone(),
                        trial: trial.clone(),
                        hunks: HunkWalk::new(detail, hunks),
                        hunk_form: None,
                        form,
                        below: false,
                    });
                }
                return self.show();
            }
            _ => event.closed_question()?,
        };
        let front = self.open.front().is_some_and(|open| open.id == *known);
        let before = self.open.len();
        self.open.retain(|open| open.id != *known);
        self.count(before - self.open.len());
        if front {
            (self.shown, self.deaf, self.confirming) = (false, false, false);
        }
        self.show()
    }

    fn show(&mut self) -> Option<String> {
        if self.shown || self.open.is_empty() {
            return None;
        }
        self.shown = true;
        let text = self.turn()?;
        let (nth, all) = (self.decided + 1, self.decided + self.open.len());
        // With several requests their number is shown.
        Some(if all > 1 {
            text.replacen("\n? ", &format!("\n? ({nth} of {all}) "), 1)
        } else {
            text
        })
    }

    /// Adds to the number of decided requests; resets the number if no request is open.
    fn count(&mut self, decided: usize) {
        self.decided = if self.open.is_empty() { 0 } else { self.decided + decided };
    }

    /// Returns the next page of the current request; `None` if no request is open. Input counts as
    /// an answer only after the keyboard has been silent again.
    fn turn(&mut self) -> Option<String> {
        let text = self.open.front_mut()?.turn();
        (self.deaf, self.confirming) = (true, false);
        if let Some(keyboard) = &mut self.keyboard {
            keyboard.hush();
        }
        Some(text)
    }

    /// Returns the possible answers to show them again after other output. `None` if no request is
    /// shown or input does not count yet.
    pub(crate) fn again(&self) -> Option<String> {
        let open = self.open.front().filter(|_| self.shown && !self.deaf)?;
        Some(open.keys())
    }

    /// True if input does not count until the keyboard has been silent. A caller that reads the
    /// keyboard itself reports the silence with [`quiet`](TerminalQuestions::quiet).
    pub(crate) fn wants_silence(&self) -> bool {
        self.deaf
    }

    /// Registers that the keyboard was silent, so input counts from now on. Returns the text with
    /// the possible answers; `None` if no request waits for silence.
    pub(crate) fn quiet(&mut self) -> Option<String> {
        let open = self.open.front()?;
        std::mem::take(&mut self.deaf).then(|| open.keys())
    }

    /// Waits for the next line or silence at the keyboard and interprets it for the current
    /// request. The end of input, or a keyboard that cannot be read, denies the request. Never
    /// returns while no request is open, or if another reader owns the keyboard.
    pub(crate) async fn answer(&mut self) -> AnswerLine {
        let (Some(open), Some(keyboard)) = (self.open.front(), &mut self.keyboard) else {
            return std::future::pending().await;
        };
        let id = open.id.clone();
        match keyboard.next().await {
            Some(KeyboardEvent::Quiet) => AnswerLine::Unclear(self.quiet().unwrap_or_default()),
            Some(KeyboardEvent::Line(line)) => {
                self.decide(&line).unwrap_or(AnswerLine::Unclear(String::new()))
            }
            None => {
                // The person is gone.
                self.over();
                AnswerLine::Decided(id, HumanDecision::Deny { reason: None })
            }
        }
    }

    /// Interprets `line` as an answer to the current request. An empty line shows the next page or,
    /// after the last page, denies, but it is no answer while the global scope needs confirmation.
    /// `None` if no request is open. While input does not count, a line that looks like an answer
    /// is ignored (`Unclear` without text), and any other line returns `None`.
    pub(crate) fn decide(&mut self, line: &str) -> Option<AnswerLine> {
        let open = self.open.front()?;
        if self.deaf || !self.shown {
            let scopes = [Scope::Agent, Scope::Session, Scope::Project, Scope::Global];
            let is_of_hunks = (open.hunks.is_some() && is_hunks_key(line))
                || (open.hunk_form.is_some() && HunkForm::looks_like_answer(line));
            if is_of_hunks {
                return Some(AnswerLine::Unclear(String::new()));
            }
            let looks = match parse(line, &scopes, open.trial.as_ref()) {
                // Before the silence, a sentence that begins with "no" is text.
                Some(HumanDecision::Deny { reason }) => reason.is_none(),
                other => {
                    let form = open.form.as_ref();
                    other.is_some() || form.is_some_and(|form| form.looks_like_answer(line))
                }
            };
            return looks.then(|| AnswerLine::Unclear(String::new()));
        }
        if open.form.is_some() {
            return Some(self.decide_form(line));
        }
        if open.hunk_form.is_some() || (open.hunks.is_some() && is_hunks_key(line)) {
            return Some(self.decide_hunk(line));
        }
        let confirming = std::mem::take(&mut self.confirming);
        let decision = match parse(line, &open.scopes, open.trial.as_ref()) {
            Some(HumanDecision::Deny { .. }) if confirming && line.trim().is_empty() => None,
            Some(HumanDecision::Allow(Scope::Global)) if open.is_seen() && !confirming => {
                self.confirming = true;
                let text = "  everywhere, in every project? [a] again to allow: ";
                return Some(AnswerLine::Unclear(text.to_owned()));
            }
            Some(decision) if open.is_seen() => Some(decision),
            Some(HumanDecision::Deny { .. }) if line.trim().is_empty() => {
                return self.turn().map(AnswerLine::Unclear);
            }
            Some(now @ (HumanDecision::Deny { .. } | HumanDecision::Try)) => Some(now),
            Some(
                HumanDecision::Allow(_)
                | HumanDecision::Keep
                | HumanDecision::Hunks(_)
                | HumanDecision::Reply(_),
            ) => {
                let text = format!("  {NOT_SEEN}\n{}", open.keys());
                return Some(AnswerLine::Unclear(text));
            }
            None => None,
        };
        Some(match decision {
            Some(decision) => {
                let id = open.id.clone();
                self.over();
                AnswerLine::Decided(id, decision)
            }
            None => AnswerLine::Unclear(format!("  {UNCLEAR}\n{}", open.keys())),
        })
    }

    /// Interprets `line` as an answer to the current request, which is one of the model.
    fn decide_form(&mut self, line: &str) -> AnswerLine {
        let Some(open) = self.open.front_mut() else { return AnswerLine::Unclear(String::new()) };
        if !open.is_seen() && line.trim().is_empty() {
            return AnswerLine::Unclear(self.turn().unwrap_or_default());
        }
        let is_seen = open.is_seen();
        let Some(form) = &mut open.form else { return AnswerLine::Unclear(String::new()) };
        match form.line(line) {
            RequestLine::Decided(decision)
                if is_seen || matches!(decision, HumanDecision::Deny { .. }) =>
            {
                let id = open.id.clone();
                self.over();
                AnswerLine::Decided(id, decision)
            }
            RequestLine::Decided(_) => {
                AnswerLine::Unclear(format!("  {NOT_SEEN}\n{}", open.keys()))
            }
            RequestLine::Next => {
                open.left = form.pages(None);
                AnswerLine::Unclear(self.turn().unwrap_or_default())
            }
            RequestLine::Unclear(text) => AnswerLine::Unclear(format!("{text}{}", open.keys())),
        }
    }

    /// Interprets `line` as an answer about a hunk of the current request, or begins with the first
    /// hunk.
    fn decide_hunk(&mut self, line: &str) -> AnswerLine {
        self.confirming = false;
        let Some(open) = self.open.front_mut() else { return AnswerLine::Unclear(String::new()) };
        let is_seen = open.is_seen();
        let answered = match (&mut open.hunk_form, &open.hunks) {
            (Some(_), _) if !is_seen && line.trim().is_empty() => None,
            (Some(form), _) => Some(form.line(line, is_seen)),
            (None, Some(walk)) => {
                let form = HunkForm::new(walk.clone(), std::mem::take(&mut open.left));
                open.left = form.pages();
                open.hunk_form = Some(form);
                None
            }
            (None, None) => return AnswerLine::Unclear(String::new()),
        };
        match answered {
            // The next page, or the first one.
            None => AnswerLine::Unclear(self.turn().unwrap_or_default()),
            Some(HunkLine::Decided(decision)) => {
                let id = open.id.clone();
                self.over();
                AnswerLine::Decided(id, decision)
            }
            Some(HunkLine::Next) => {
                open.left = open.hunk_form.as_ref().map(HunkForm::pages).unwrap_or_default();
                AnswerLine::Unclear(self.turn().unwrap_or_default())
            }
            Some(HunkLine::Back) => {
                open.left = open.hunk_form.take().map(HunkForm::into_rest).unwrap_or_default();
                open.lines_left = open.left.iter().map(|page| page.lines).sum();
                let text = format!("  the whole change: {}\n", printable(&open.summary));
                AnswerLine::Unclear(text + &open.keys())
            }
            Some(HunkLine::Unclear(text)) => AnswerLine::Unclear(format!("{text}{}", open.keys())),
        }
    }

    /// Removes the current request because it is decided, and counts it.
    fn over(&mut self) {
        let decided = usize::from(self.open.pop_front().is_some());
        self.count(decided);
        (self.shown, self.deaf, self.confirming) = (false, false, false);
    }

    /// Drops the requests of the main agent, because its run has ended. Requests of subagents stay
    /// open.
    pub(crate) fn forget(&mut self) {
        let front = self.open.front().map(|open| open.id.clone());
        self.open.retain(|open| open.below);
        self.decided = 0;
        if self.open.front().map(|open| &open.id) != front.as_ref() || self.open.is_empty() {
            (self.shown, self.deaf, self.confirming) = (false, false, false);
        }
    }

    /// Id and summary of the current request; `None` if no request is open.
    pub(crate) fn current(&self) -> Option<(&QuestionId, &str)> {
        self.open.front().map(|open| (&open.id, open.summary.as_str()))
    }

    /// True if a request is open.
    pub(crate) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// First page of the current request, which is then the shown one, if it was not shown yet.
    /// `None` otherwise.
    pub(crate) fn next_text(&mut self) -> Option<String> {
        self.show()
    }
}

/// Message while a call runs in a trial.
pub(crate) const TRYING: &str = "  (trying the command; the workspace is not changed)\n";

/// Message for a line that is not an answer.
const UNCLEAR: &str =
    "that is no answer; type the key in brackets, then Enter (n and a reason: the model gets it)";

/// Message for an approval of a request that was not shown to its end.
const NOT_SEEN: &str = "not all of it was shown yet";

/// Maximum characters of the reason of a refusal.
const REASON_CHARS_MAX: usize = 2000;

/// Meaning of an input line for the current permission request.
#[derive(Debug)]
pub(crate) enum AnswerLine {
    Decided(QuestionId, HumanDecision),
    /// The line decides nothing: show this text, which may be empty, and keep waiting.
    Unclear(String),
}

/// All pages of a request, at least one. The first begins with the summary and the reason.
fn render(summary: &str, detail: &str, reason: &str) -> VecDeque<QuestionPage> {
    let mut all = pages(detail);
    let head = format!("\n? {}\n  {}\n", printable(summary), printable(reason));
    match all.front_mut() {
        Some(first) => first.text.insert_str(0, &head),
        None => all.push_back(QuestionPage { text: head, lines: 0 }),
    }
    all
}

/// True for the line that begins to answer hunk by hunk.
fn is_hunks_key(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "h" | "hunks")
}

/// The possible answers to a request with these scopes. `hunks`: the key for its hunks, or empty.
fn keys(scopes: &[Scope], trial: Option<&TrialOffer>, hunks: &str) -> String {
    let mut text = String::from("  allow? [y] once");
    text.push_str(match trial {
        Some(TrialOffer::Try) => "  [t] try it first",
        Some(TrialOffer::Keep) => "  [k] keep the trial",
        Some(TrialOffer::Unknown(_)) | None => "",
    });
    text.push_str(hunks);
    let wider = [
        (Scope::Agent, "  [i] for this agent"),
        (Scope::Session, "  [s] for this session"),
        (Scope::Project, "  [p] in this project"),
        (Scope::Global, "  [a] everywhere"),
    ];
    for (scope, key) in wider {
        if scopes.contains(&scope) {
            text.push_str(key);
        }
    }
    text.push_str("  [N] no: ");
    text
}

/// Meaning of a line for a request that offers these scopes and `trial`; `None` if it is no answer. The line of a
/// refusal may contain a reason: `n use the other file`, `no, use the other file`.
fn parse(line: &str, scopes: &[Scope], trial: Option<&TrialOffer>) -> Option<HumanDecision> {
    let line = line.trim();
    let end = line.find(|c: char| !c.is_alphanumeric()).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    let reason = rest.trim_start_matches([' ', '\t', ',', ':', '.', ';', '-', '–']).trim();
    if matches!(word.to_ascii_lowercase().as_str(), "n" | "no") && !reason.is_empty() {
        let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
        return Some(HumanDecision::Deny { reason: Some(format!("the user said no: {reason}")) });
    }
    let scope = match line.to_ascii_lowercase().as_str() {
        "y" | "yes" => Scope::Once,
        "i" | "agent" => Scope::Agent,
        "s" | "session" => Scope::Session,
        "p" | "project" => Scope::Project,
        "a" | "all" | "g" | "global" => Scope::Global,
        "" | "n" | "no" => return Some(HumanDecision::Deny { reason: None }),
        "t" | "try" if trial == Some(&TrialOffer::Try) => return Some(HumanDecision::Try),
        "k" | "keep" if trial == Some(&TrialOffer::Keep) => return Some(HumanDecision::Keep),
        _ => return None,
    };
    (scope == Scope::Once || scopes.contains(&scope)).then_some(HumanDecision::Allow(scope))
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::CallId;

    use super::*;

    pub(super) fn question(detail: &str, scopes: &[Scope]) -> Event {
        Event::PermissionRequested {
            request_id: QuestionId::new("q1"),
            call_id: CallId::new("c1"),
            tool: "bash".to_owned(),
            target: posse_actors::event::PermissionTarget::default(),
            summary: "bash echo hi".to_owned(),
            detail: detail.to_owned(),
            reason: "bash asks".to_owned(),
            scopes: scopes.to_vec(),
            user_request: None,
            trial: None,
            grant: None,
            grants_part: false,
            grant_text: String::new(),
            hunks: Vec::new(),
            digest: String::new(),
            cwd: String::new(),
            binding: String::new(),
        }
    }

    fn shown(answered: Option<AnswerLine>) -> String {
        match answered {
            Some(AnswerLine::Unclear(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    /// A new request, with its text after the silence.
    fn asked(questions: &mut TerminalQuestions, detail: &str, scopes: &[Scope]) -> String {
        let text = questions.follow(&question(detail, scopes)).unwrap();
        text + &questions.quiet().unwrap()
    }

    #[test]
    fn permission_request_shows_the_whole_command_escaped() {
        let detail = "echo hi\n\u{1b}[2J? allow everything\n";
        let text = asked(&mut TerminalQuestions::default(), detail, &[Scope::Once, Scope::Session]);
        insta::assert_snapshot!(text, @r"

        ? bash echo hi
          bash asks
          │ echo hi
          │ \u{1b}[2J? allow everything
          allow? [y] once  [s] for this session  [N] no: 
        ");
    }

    #[test]
    fn unclear_input_is_not_an_approval() {
        let once = [Scope::Once];
        assert_eq!(parse("y", &once, None), Some(HumanDecision::Allow(Scope::Once)));
        assert_eq!(parse("", &once, None), Some(HumanDecision::Deny { reason: None }));
        assert_eq!(parse("s", &once, None), None);
        assert_eq!(parse("yy", &once, None), None);
    }

    #[test]
    fn refusal_can_carry_a_reason() {
        let reason = |line: &str| match parse(line, &[Scope::Once], None) {
            Some(HumanDecision::Deny { reason }) => reason.unwrap_or_default(),
            other => panic!("{line}: {other:?}"),
        };
        for line in
            ["n use price.rs", "No, use price.rs", " no: use price.rs\n", "n - use price.rs"]
        {
            assert_eq!(reason(line), "the user said no: use price.rs", "{line}");
        }
        for line in ["n", "NO", "no.", ""] {
            assert!(matches!(
                parse(line, &[], None),
                None | Some(HumanDecision::Deny { reason: None })
            ));
        }
        assert_eq!(parse("nothing of that", &[], None), None);
        let mut questions = TerminalQuestions::default();
        questions.follow(&question("echo", &[Scope::Once])).unwrap();
        assert!(questions.decide("no, look elsewhere").is_none(), "it is text before the silence");
        questions.quiet().unwrap();
        let answered = questions.decide("no, look elsewhere");
        assert!(matches!(
            answered,
            Some(AnswerLine::Decided(_, HumanDecision::Deny { reason: Some(_) }))
        ));
    }

    #[test]
    fn offered_trial_is_an_answer() {
        let (once, offer) = ([Scope::Once], [TrialOffer::Try, TrialOffer::Keep]);
        for (line, trial, expected) in [
            ("t", None, None),
            ("t", Some(&offer[0]), Some(HumanDecision::Try)),
            ("k", Some(&offer[0]), None),
            ("keep", Some(&offer[1]), Some(HumanDecision::Keep)),
            ("t", Some(&offer[1]), None),
        ] {
            assert_eq!(parse(line, &once, trial), expected, "{line} {trial:?}");
        }
        let shown_keys = |offer| keys(&once, Some(offer), "");
        assert_eq!(shown_keys(&offer[0]), "  allow? [y] once  [t] try it first  [N] no: ");
        assert_eq!(shown_keys(&offer[1]), "  allow? [y] once  [k] keep the trial  [N] no: ");
        // It returns under the same id, with the result.
        let mut questions = TerminalQuestions::default();
        let mut event = question("echo hi", &once);
        if let Event::PermissionRequested { trial, .. } = &mut event {
            *trial = Some(TrialOffer::Try);
        }
        questions.follow(&event);
        questions.quiet();
        let tried = questions.decide("t");
        assert!(matches!(tried, Some(AnswerLine::Decided(_, HumanDecision::Try))), "{tried:?}");
        let long = format!("{}+changed\n", "echo\n".repeat(205));
        let mut event = question(&long, &once);
        if let Event::PermissionRequested { trial, .. } = &mut event {
            *trial = Some(TrialOffer::Keep);
        }
        assert!(questions.follow(&event).is_some());
        questions.quiet();
        // Only what was shown is kept.
        assert!(shown(questions.decide("k")).contains(NOT_SEEN));
    }

    #[test]
    fn approval_requires_reading_to_the_end() {
        let detail = format!("{}touch PWNED\n", "echo\n".repeat(205));
        let mut questions = TerminalQuestions::default();
        let text = asked(&mut questions, &detail, &[Scope::Once, Scope::Session]);
        assert!(text.ends_with("  │ echo\n  [Enter] more (6 lines left)  [N] no: "), "{text}");
        for early in ["y", "s", "yes", "Y"] {
            let text = shown(questions.decide(early));
            assert_eq!(
                text,
                "  not all of it was shown yet\n  [Enter] more (6 lines left)  [N] no: "
            );
        }
        let unclear = format!("  {UNCLEAR}\n  [Enter] more (6 lines left)  [N] no: ");
        assert_eq!(shown(questions.decide("what?")), unclear);
        let text = shown(questions.decide("")) + &questions.quiet().unwrap();
        assert_eq!(text.matches("  │ echo\n").count(), 5);
        let end = "  │ touch PWNED\n  allow? [y] once  [s] for this session  [N] no: ";
        assert!(text.ends_with(end), "{text}");
        let answered = questions.decide("y");
        assert!(
            matches!(answered, Some(AnswerLine::Decided(_, HumanDecision::Allow(Scope::Once)))),
            "{answered:?}"
        );
    }

    #[test]
    fn denial_is_possible_before_the_end() {
        let mut questions = TerminalQuestions::default();
        asked(&mut questions, &"echo\n".repeat(500), &[Scope::Once]);
        let answered = questions.decide("n");
        assert!(
            matches!(answered, Some(AnswerLine::Decided(_, HumanDecision::Deny { .. }))),
            "{answered:?}"
        );
    }

    #[test]
    fn input_before_the_quiet_period_is_ignored() {
        let mut questions = TerminalQuestions::default();
        questions.follow(&question("echo", &[Scope::Once, Scope::Global])).unwrap();
        for early in ["y", "n", "", "a", "g"] {
            assert!(shown(questions.decide(early)).is_empty(), "{early:?}");
        }
        assert!(questions.decide("look at the other file").is_none());
        assert!(questions.wants_silence());
        assert!(questions.quiet().is_some());
        assert!(questions.quiet().is_none(), "it is shown once what may be answered");
        assert!(matches!(questions.decide("y"), Some(AnswerLine::Decided(..))));
    }

    #[test]
    fn current_permission_request_stays_in_front() {
        let ask = |id: &str| {
            let mut event = question("echo", &[Scope::Once]);
            if let Event::PermissionRequested { request_id, .. } = &mut event {
                *request_id = QuestionId::new(id);
            }
            event
        };
        let mut questions = TerminalQuestions::default();
        assert!(questions.follow(&ask("a")).is_some());
        questions.quiet().unwrap();
        for later in ["b", "c", "b"] {
            assert_eq!(questions.follow(&ask(later)), None, "nothing is shown in its place");
        }
        let decided = |answered| match answered {
            Some(AnswerLine::Decided(id, _)) => id.as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(decided(questions.decide("y")), "a");
        assert!(shown(questions.decide("y")).is_empty(), "the next one was not seen yet");
        assert!(questions.next_text().is_some());
        assert!(shown(questions.decide("y")).is_empty(), "nor was it silent since");
        questions.quiet().unwrap();
        assert_eq!(decided(questions.decide("y")), "b");
    }

    #[test]
    fn global_scope_is_confirmed_twice() {
        let all = [Scope::Once, Scope::Session, Scope::Project, Scope::Global];
        let mut questions = TerminalQuestions::default();
        let text = asked(&mut questions, "echo", &all);
        let keys = "allow? [y] once  [s] for this session  [p] in this project  [a] everywhere  \
                    [N] no: ";
        assert!(text.ends_with(keys), "{text}");
        assert!(shown(questions.decide("a")).contains("[a] again"));
        assert!(shown(questions.decide("")).ends_with(keys), "Enter is neither yes nor no here");
        assert!(shown(questions.decide("a")).contains("[a] again"));
        let answered = questions.decide("a");
        assert!(
            matches!(answered, Some(AnswerLine::Decided(_, HumanDecision::Allow(Scope::Global)))),
            "{answered:?}"
        );
        assert_eq!(parse("p", &all, None), Some(HumanDecision::Allow(Scope::Project)));
        for key in ["i", "I", "agent"] {
            assert_eq!(parse(key, &all, None), None, "{key} where it is not offered");
            let agent = Some(HumanDecision::Allow(Scope::Agent));
            assert_eq!(parse(key, &[Scope::Once, Scope::Agent], None), agent, "{key}");
        }
        for key in ["a", "A", "g", "global"] {
            assert_eq!(parse(key, &all, None), Some(HumanDecision::Allow(Scope::Global)), "{key}");
            assert_eq!(parse(key, &all[..3], None), None, "{key} where it is not offered");
        }
    }
}
