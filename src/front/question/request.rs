//! Questions and plans of the model at a terminal, answered line by line.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use posse_actors::event::{
    PLAN_CHARS_MAX, PermissionMode, QuestionAnswer, UserQuestion, UserReply, UserRequest,
};
use posse_actors::permission_coordinator::HumanDecision;
use posse_base::failure::{printable, printable_lines};

use super::REASON_CHARS_MAX;
use super::pages::{QuestionPage, pages};

/// Maximum bytes of a plan that is read from its file.
const PLAN_BYTES_MAX: u64 = 4 * PLAN_CHARS_MAX as u64;

/// Meaning of a line that answers a request.
#[derive(Debug)]
pub(super) enum RequestLine {
    /// The request is answered.
    Decided(HumanDecision),
    /// The next question is shown.
    Next,
    /// The line is no answer: this text says why.
    Unclear(String),
}

/// Open request of the model, with the answers so far.
#[derive(Debug)]
pub(super) struct RequestForm {
    request: UserRequest,
    answers: Vec<QuestionAnswer>,
    /// File in which the user changes the plan; `None` before the user asks for it.
    file: Option<PlanFile>,
}

impl RequestForm {
    pub(super) fn new(request: UserRequest) -> RequestForm {
        RequestForm { request, answers: Vec::new(), file: None }
    }

    /// Pages of the plan, or of the current question. `summary`: heading of the first page of the
    /// request.
    pub(super) fn pages(&self, summary: Option<&str>) -> VecDeque<QuestionPage> {
        let head = summary.map(|summary| format!("\n? {}\n", printable(summary)));
        let mut all = match &self.request {
            UserRequest::Plan { plan, .. } => pages(plan),
            UserRequest::Questions { .. } => {
                let text = self.question().map(|(nth, question)| self.text_of(nth, question));
                VecDeque::from([QuestionPage { text: text.unwrap_or_default(), lines: 1 }])
            }
        };
        match all.front_mut() {
            Some(first) => first.text.insert_str(0, &head.unwrap_or_default()),
            None => all.push_back(QuestionPage { text: head.unwrap_or_default(), lines: 0 }),
        }
        all
    }

    /// The question that is answered next, with its index; `None` for a plan.
    fn question(&self) -> Option<(usize, &UserQuestion)> {
        match &self.request {
            UserRequest::Questions { questions, .. } => {
                let nth = self.answers.len();
                questions.get(nth).map(|question| (nth, question))
            }
            UserRequest::Plan { .. } => None,
        }
    }

    fn text_of(&self, nth: usize, question: &UserQuestion) -> String {
        let all = match &self.request {
            UserRequest::Questions { questions, .. } => questions.len(),
            UserRequest::Plan { .. } => 1,
        };
        let mut text = String::new();
        let position = if all > 1 { format!("({} of {all}) ", nth + 1) } else { String::new() };
        let shown = printable_lines(&question.question).replace('\n', "\n  ");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {position}{shown}");
        for (at, option) in question.options.iter().enumerate() {
            let about =
                option.description.as_deref().map(|about| format!(": {}", printable(about)));
            let _ = writeln!(
                text,
                "    {}. {}{}",
                at + 1,
                printable(&option.label),
                about.unwrap_or_default()
            );
        }
        text
    }

    /// The possible answers, for the line on which the user types one.
    pub(super) fn keys(&self) -> String {
        let UserRequest::Plan { modes, .. } = &self.request else {
            return self
                .question()
                .map(|(_, question)| question_keys(question))
                .unwrap_or_default();
        };
        let mut text = String::from("  accept?");
        for mode in modes {
            let (key, what) = mode_key(*mode);
            let _ = write!(text, " [{key}] {what} ");
        }
        text + " [o] change it in an editor  [n] no, or n and words for the model: "
    }

    /// Interprets a line as an answer.
    pub(super) fn line(&mut self, line: &str) -> RequestLine {
        let words = line.trim();
        match self.question() {
            None => self.plan_line(words),
            Some((_, question)) => match answer_of(question, words) {
                Ok(Some(answer)) => self.answered(answer),
                Ok(None) => RequestLine::Decided(refusal(words, "x")),
                Err(why) => RequestLine::Unclear(why),
            },
        }
    }

    fn answered(&mut self, answer: QuestionAnswer) -> RequestLine {
        self.answers.push(answer);
        if self.question().is_some() {
            return RequestLine::Next;
        }
        let answers = std::mem::take(&mut self.answers);
        RequestLine::Decided(HumanDecision::Reply(UserReply::Questions { answers }))
    }

    fn plan_line(&mut self, words: &str) -> RequestLine {
        let UserRequest::Plan { plan, modes } = &self.request else {
            return RequestLine::Unclear(String::new());
        };
        let word = words.to_ascii_lowercase();
        if is_refusal(&word, "n") || is_refusal(&word, "no") {
            let key = if is_refusal(&word, "no") { "no" } else { "n" };
            return RequestLine::Decided(refusal(words, key));
        }
        if word == "o" {
            let file = match self.file.take() {
                Some(file) => Ok(file),
                None => PlanFile::create(plan),
            };
            return RequestLine::Unclear(match file {
                Ok(file) => {
                    let place = printable(&file.0.display().to_string());
                    self.file = Some(file);
                    format!("  change the plan in {place} and save it; then accept it here\n")
                }
                Err(error) => format!("  cannot create a file for the plan: {error}\n"),
            });
        }
        let Some(mode) = modes.iter().copied().find(|mode| mode_key(*mode).0 == word) else {
            return RequestLine::Unclear(
                "  that is no answer; type a key in brackets\n".to_owned(),
            );
        };
        let changed = match self.file.as_ref().map(PlanFile::read) {
            None => None,
            Some(Ok(text)) if text.trim() == plan.trim() => None,
            Some(Ok(text)) => Some(text),
            Some(Err(why)) => return RequestLine::Unclear(format!("  {why}\n")),
        };
        let reply = UserReply::Plan { mode, plan: changed };
        match self.request.check(&reply) {
            Ok(()) => RequestLine::Decided(HumanDecision::Reply(reply)),
            Err(why) => RequestLine::Unclear(format!("  {why}\n")),
        }
    }
}

/// Key and words for the acceptance of a plan into a mode.
fn mode_key(mode: PermissionMode) -> (&'static str, &'static str) {
    match mode {
        PermissionMode::Auto => ("a", "yes, mode auto"),
        PermissionMode::Edits => ("e", "yes, mode edits"),
        PermissionMode::Ask | PermissionMode::Plan | PermissionMode::Locked => {
            ("y", "yes, mode ask")
        }
    }
}

fn question_keys(question: &UserQuestion) -> String {
    let mut text = String::from(" ");
    match (question.options.len(), question.multiple) {
        (0, _) => {}
        (count, false) => drop(write!(text, " [1-{count}] choose")),
        (count, true) => drop(write!(text, " [1-{count}] choose, several as 1,2")),
    }
    if question.free_text {
        text += if question.options.is_empty() { " type your answer" } else { " or type your own" };
    }
    if let Some(default) = &question.default {
        let _ = write!(text, "  [Enter] {}", printable(default).replace('\n', " "));
    }
    text + "  [x] no answer, or x and words for the model: "
}

/// True if `line` is the key of a refusal, alone or before words.
fn is_refusal(line: &str, key: &str) -> bool {
    line.strip_prefix(key).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// Refusal with the words that follow its key.
fn refusal(line: &str, key: &str) -> HumanDecision {
    let rest = line.get(key.len()..).unwrap_or_default();
    let words = rest.trim_start_matches([' ', '\t', ',', ':', '.', ';', '-', '–']).trim();
    let words: String = words.chars().take(REASON_CHARS_MAX).collect();
    HumanDecision::Deny { reason: (!words.is_empty()).then_some(words) }
}

/// Answer that `words` give to `question`; `None` for a refusal. The error is the text for a line
/// that is no answer.
fn answer_of(question: &UserQuestion, words: &str) -> Result<Option<QuestionAnswer>, String> {
    if words.is_empty() {
        return match &question.default {
            Some(_) => Ok(Some(QuestionAnswer::default())),
            None => Err("  this question has no default; type an answer, or x\n".to_owned()),
        };
    }
    if is_refusal(&words.to_ascii_lowercase(), "x") {
        return Ok(None);
    }
    let options = &question.options;
    let by_label = options.iter().find(|option| option.label.eq_ignore_ascii_case(words));
    if let Some(option) = by_label {
        let selected = vec![option.label.clone()];
        return Ok(Some(QuestionAnswer { selected, text: None }));
    }
    let numbers: Option<Vec<usize>> = words
        .split([',', ' '])
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect();
    if let Some(mut numbers) = numbers.filter(|_| !options.is_empty()) {
        numbers.sort_unstable();
        numbers.dedup();
        let chosen = numbers.iter().map(|nth| nth.checked_sub(1).and_then(|at| options.get(at)));
        let chosen: Option<Vec<_>> = chosen.collect();
        return match chosen {
            Some(chosen) if chosen.len() == 1 || question.multiple => {
                let selected = chosen.into_iter().map(|option| option.label.clone()).collect();
                Ok(Some(QuestionAnswer { selected, text: None }))
            }
            Some(_) => Err("  only one option can be chosen\n".to_owned()),
            None => Err(format!("  the options are 1 to {}\n", options.len())),
        };
    }
    if !question.free_text {
        return Err("  that is no option; type its number\n".to_owned());
    }
    Ok(Some(QuestionAnswer { selected: Vec::new(), text: Some(words.to_owned()) }))
}

/// Private file with a plan, which is removed on drop.
#[derive(Debug)]
struct PlanFile(PathBuf);

impl PlanFile {
    fn create(plan: &str) -> io::Result<PlanFile> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("posse-plan-{}-{:x}.md", std::process::id(), since.as_nanos());
        let path = std::env::temp_dir().join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let created = PlanFile(path);
        file.write_all(plan.as_bytes())?;
        file.write_all(b"\n")?;
        Ok(created)
    }

    /// The text of the file. The error says why it cannot be used.
    fn read(&self) -> Result<String, String> {
        let mut bytes = Vec::new();
        let read = fs::File::open(&self.0)
            .and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|error| format!("cannot read the plan: {error}"))?;
        if bytes.len() as u64 > PLAN_BYTES_MAX {
            return Err(format!("the plan is longer than {PLAN_CHARS_MAX} characters"));
        }
        String::from_utf8(bytes).map_err(|_| "the plan is not valid UTF-8".to_owned())
    }
}

impl Drop for PlanFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::event::{PLAN_MODES, QuestionOption};

    use super::*;

    fn question(labels: &[&str], multiple: bool, default: Option<&str>) -> UserQuestion {
        let option = |label: &&str| QuestionOption {
            label: (*label).to_owned(),
            description: Some("about\u{1b}[2J it".to_owned()),
        };
        UserQuestion {
            question: "Which\u{1b}]0;x\u{7} one?".to_owned(),
            options: labels.iter().map(option).collect(),
            multiple,
            free_text: labels.is_empty() || multiple,
            default: default.map(str::to_owned),
        }
    }

    fn form(questions: Vec<UserQuestion>) -> RequestForm {
        RequestForm::new(UserRequest::Questions { questions, timeout_seconds: None })
    }

    fn decided(line: RequestLine) -> HumanDecision {
        match line {
            RequestLine::Decided(decision) => decision,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn text_of_the_model_is_escaped() {
        let form = form(vec![question(&["a", "b"], false, Some("a"))]);
        let pages = form.pages(Some("question: Which\u{1b} one?"));
        let text = format!("{}{}", pages[0].text, form.keys());
        insta::assert_snapshot!(text, @r"

        ? question: Which\u{1b} one?
          Which\u{1b}]0;x\u{7} one?
            1. a: about\u{1b}[2J it
            2. b: about\u{1b}[2J it
          [1-2] choose  [Enter] a  [x] no answer, or x and words for the model:
        ");
        let plan = UserRequest::Plan { plan: "# A\n\u{1b}[2J".into(), modes: PLAN_MODES.to_vec() };
        let form = RequestForm::new(plan);
        insta::assert_snapshot!(format!("{}{}", form.pages(Some("plan: A"))[0].text, form.keys()), @r"

        ? plan: A
          │ # A
          │ \u{1b}[2J
          accept? [y] yes, mode ask  [e] yes, mode edits  [a] yes, mode auto  [o] change it in an editor  [n] no, or n and words for the model:
        ");
    }

    #[test]
    fn lines_answer_one_question_after_the_other() {
        let mut form = form(vec![
            question(&["a", "b"], false, None),
            question(&["a", "b", "c"], true, None),
            question(&[], false, Some("none")),
        ]);
        for (line, why) in [
            ("", "no default"),
            ("3", "1 to 2"),
            ("1,2", "only one"),
            ("c", "no option"),
            ("0", "1 to 2"),
        ] {
            match form.line(line) {
                RequestLine::Unclear(text) => assert!(text.contains(why), "{line}: {text}"),
                other => panic!("{line}: {other:?}"),
            }
        }
        assert!(matches!(form.line("B"), RequestLine::Next));
        assert!(matches!(form.line("3, 1"), RequestLine::Next));
        let answer = |selected: &[&str], text: Option<&str>| QuestionAnswer {
            selected: selected.iter().map(ToString::to_string).collect(),
            text: text.map(str::to_owned),
        };
        let answers = vec![answer(&["b"], None), answer(&["a", "c"], None), answer(&[], None)];
        let expected = HumanDecision::Reply(UserReply::Questions { answers });
        assert_eq!(decided(form.line("")), expected);
    }

    #[test]
    fn own_words_and_refusals_are_told_apart() {
        let text = |line: &str| decided(form(vec![question(&[], false, None)]).line(line));
        let own = |text: &str| {
            let answer = QuestionAnswer { selected: Vec::new(), text: Some(text.to_owned()) };
            HumanDecision::Reply(UserReply::Questions { answers: vec![answer] })
        };
        for line in ["no", "7", "xylophone", "take x"] {
            assert_eq!(text(line), own(line), "{line}");
        }
        assert_eq!(text("x"), HumanDecision::Deny { reason: None });
        let reason = Some("look in the README".to_owned());
        assert_eq!(text("x look in the README"), HumanDecision::Deny { reason });
    }

    #[test]
    fn plan_is_accepted_into_a_mode_changed_or_refused() {
        let form = || {
            let (plan, modes) = ("1. do it".to_owned(), PLAN_MODES.to_vec());
            RequestForm::new(UserRequest::Plan { plan, modes })
        };
        let accepted = |mode, plan: Option<&str>| {
            HumanDecision::Reply(UserReply::Plan { mode, plan: plan.map(str::to_owned) })
        };
        for (key, mode) in
            [("y", PermissionMode::Ask), ("E", PermissionMode::Edits), ("a", PermissionMode::Auto)]
        {
            assert_eq!(decided(form().line(key)), accepted(mode, None));
        }
        assert!(matches!(form().line("yes"), RequestLine::Unclear(_)));
        assert!(matches!(form().line(""), RequestLine::Unclear(_)), "Enter decides nothing");
        let reason = Some("smaller steps".to_owned());
        assert_eq!(decided(form().line("no, smaller steps")), HumanDecision::Deny { reason });
        let mut edited = form();
        let RequestLine::Unclear(text) = edited.line("o") else { panic!("no file") };
        let path =
            text.split_whitespace().find(|word| word.contains("posse-plan-")).unwrap().to_owned();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1. do it\n");
        fs::write(&path, " ").unwrap();
        assert!(matches!(edited.line("y"), RequestLine::Unclear(text) if text.contains("empty")));
        fs::write(&path, "1. do less\n").unwrap();
        let expected = accepted(PermissionMode::Edits, Some("1. do less\n"));
        assert_eq!(decided(edited.line("e")), expected);
        drop(edited);
        assert!(!fs::exists(&path).unwrap(), "the file is removed");
    }
}
