//! Questions and plans of the model at a terminal, answered line by line.

use std::collections::VecDeque;
use std::fmt::Write as _;

use posse_actors::event::{
    PLAN_CHARS_MAX, PermissionMode, QuestionAnswer, QuestionOption, REPLY_CHARS_MAX, UserQuestion,
    UserReply, UserRequest,
};
use posse_actors::permission_coordinator::HumanDecision;
use posse_base::failure::{printable, printable_lines};
use posse_frontend::plan_modes::mode_key;

use super::REASON_CHARS_MAX;
use super::draft_file::DraftFile;
use super::pages::{QuestionPage, pages};

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
    file: Option<DraftFile>,
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
        for (key, what) in modes.iter().filter_map(|mode| mode_key(*mode)) {
            let _ = write!(text, " [{key}] {what} ");
        }
        text + " [o] change it in an editor  [n] no, or n and words for the model: "
    }

    /// True if `line` looks like an answer to a request of this kind: a key or numbers. Text does
    /// not.
    pub(super) fn looks_like_answer(&self, line: &str) -> bool {
        let words = line.trim().to_ascii_lowercase();
        let is_numbers = |words: &str| numbers(words).is_some_and(|numbers| !numbers.is_empty());
        match &self.request {
            UserRequest::Plan { .. } => {
                matches!(words.as_str(), "y" | "e" | "a" | "o" | "n" | "no")
            }
            UserRequest::Questions { .. } => words == "x" || is_numbers(&words),
        }
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
                None => DraftFile::create("plan", "md", &format!("{plan}\n"), PLAN_CHARS_MAX),
            };
            return RequestLine::Unclear(match file {
                Ok(file) => {
                    let place = file.place();
                    self.file = Some(file);
                    format!("  change the plan in {place} and save it; then accept it here\n")
                }
                Err(error) => format!("  cannot create a file for the plan: {error}\n"),
            });
        }
        let is_key =
            |mode: &PermissionMode| mode_key(*mode).is_some_and(|(key, _)| word.chars().eq([key]));
        let Some(mode) = modes.iter().copied().find(is_key) else {
            return RequestLine::Unclear(
                "  that is no answer; type a key in brackets\n".to_owned(),
            );
        };
        let changed = match self.file.as_ref().map(DraftFile::saved) {
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

fn question_keys(question: &UserQuestion) -> String {
    let mut text = String::from(" ");
    match (question.options.len(), question.multiple) {
        (0, _) => {}
        (count, false) => drop(write!(text, " [1-{count}] choose")),
        (count, true) => drop(write!(text, " [1-{count}] choose, several as 1,2 or 1 2")),
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

/// The numbers in `words`, between which are commas or spaces. `None` if a part is no number.
fn numbers(words: &str) -> Option<Vec<usize>> {
    let parts = words.split([',', ' ']).filter(|part| !part.is_empty());
    parts.map(|part| part.parse().ok()).collect()
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
    let options = &question.options;
    let chosen = |option: &QuestionOption| {
        Ok(Some(QuestionAnswer { selected: vec![option.label.clone()], text: None }))
    };
    if let Some(option) = options.iter().find(|option| option.label == words) {
        // A number that is the label of another option is the number.
        let is_number = words.parse::<usize>().is_ok_and(|nth| (1..=options.len()).contains(&nth));
        if !is_number {
            return chosen(option);
        }
    }
    if is_x(words) {
        return Ok(None);
    }
    if let Some(mut numbers) = numbers(words).filter(|_| !options.is_empty()) {
        numbers.sort_unstable();
        numbers.dedup();
        let named = numbers.iter().map(|nth| nth.checked_sub(1).and_then(|at| options.get(at)));
        let named: Option<Vec<_>> = named.collect();
        return match named {
            Some(named) if named.len() == 1 || question.multiple => {
                let selected = named.into_iter().map(|option| option.label.clone()).collect();
                Ok(Some(QuestionAnswer { selected, text: None }))
            }
            Some(_) => Err("  only one option can be chosen\n".to_owned()),
            None => Err(format!("  the options are 1 to {}\n", options.len())),
        };
    }
    if let Some(option) = options.iter().find(|one| one.label.eq_ignore_ascii_case(words)) {
        return chosen(option);
    }
    if !question.free_text {
        return Err("  that is no option; type its number\n".to_owned());
    }
    if words.chars().count() > REPLY_CHARS_MAX {
        return Err(format!(
            "  the answer has more than {REPLY_CHARS_MAX} characters; make it shorter\n"
        ));
    }
    Ok(Some(QuestionAnswer { selected: Vec::new(), text: Some(words.to_owned()) }))
}

/// True for the refusal of a question: `x`, alone or before a blank and words.
fn is_x(words: &str) -> bool {
    words
        .strip_prefix(['x', 'X'])
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
          accept? [y] yes, and ask before each change  [e] yes, and edit files without asking  [a] yes, without questions in the sandbox  [o] change it in an editor  [n] no, or n and words for the model:
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
        for line in ["no", "7", "xylophone", "take x", "X.509 only", "x-ray"] {
            assert_eq!(text(line), own(line), "{line}");
        }
        let long = "a".repeat(REPLY_CHARS_MAX + 1);
        let unclear = form(vec![question(&[], false, None)]).line(&long);
        assert!(matches!(unclear, RequestLine::Unclear(text) if text.contains("shorter")));
        assert_eq!(text("x"), HumanDecision::Deny { reason: None });
        let reason = Some("look in the README".to_owned());
        assert_eq!(text("x look in the README"), HumanDecision::Deny { reason });
    }

    #[test]
    fn numbers_are_those_before_the_options_and_labels_come_next() {
        let chosen = |labels: &[&str], line: &str| match decided(
            form(vec![question(labels, false, None)]).line(line),
        ) {
            HumanDecision::Reply(UserReply::Questions { answers }) => answers[0].selected.join(" "),
            other => panic!("{other:?}"),
        };
        assert_eq!(chosen(&["2", "4", "8"], "2"), "4");
        assert_eq!(chosen(&["2", "4", "8"], "8"), "8");
        assert_eq!(chosen(&["A", "a"], "a"), "a");
        assert_eq!(chosen(&["x", "y"], "x"), "x");
        assert_eq!(chosen(&["Yes", "No"], "no"), "No");
        for line in ["2 1", "1,2", "1, 2", "2 , 1"] {
            let decision = decided(form(vec![question(&["a", "b"], true, None)]).line(line));
            let selected = vec!["a".to_owned(), "b".to_owned()];
            let answer = QuestionAnswer { selected, text: None };
            let reply = UserReply::Questions { answers: vec![answer] };
            assert_eq!(decision, HumanDecision::Reply(reply), "{line}");
        }
    }

    #[test]
    fn keys_and_numbers_look_like_answers() {
        let questions = form(vec![question(&["a", "b"], true, None)]);
        let plan =
            RequestForm::new(UserRequest::Plan { plan: "do".into(), modes: PLAN_MODES.to_vec() });
        for (line, of_questions, of_plan) in [
            ("1", true, false),
            ("1,2", true, false),
            ("2 1", true, false),
            ("1, 2", true, false),
            ("x", true, false),
            ("o", false, true),
            ("e", false, true),
            ("no", false, true),
            ("x marks it", false, false),
            ("edit it", false, false),
        ] {
            let looks = (questions.looks_like_answer(line), plan.looks_like_answer(line));
            assert_eq!(looks, (of_questions, of_plan), "{line}");
        }
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
