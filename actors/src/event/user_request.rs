//! Questions and plans of the model for the user, and the replies to them.

use serde::{Deserialize, Serialize};

use super::PermissionMode;

/// Maximum characters of a text of the user in a reply.
pub const REPLY_CHARS_MAX: usize = 8000;

/// Maximum characters of a plan.
pub const PLAN_CHARS_MAX: usize = 40_000;

/// Modes into which the user can accept a plan, the strictest first.
pub const PLAN_MODES: [PermissionMode; 3] =
    [PermissionMode::Ask, PermissionMode::Edits, PermissionMode::Auto];

/// Request of a tool that only the user can answer. Nothing is permitted by the answer, except that
/// a plan is accepted into a permission mode.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum UserRequest {
    /// Questions of the model.
    Questions {
        /// The questions, in the order in which they are asked.
        questions: Vec<UserQuestion>,
        /// Seconds after which the questions count as not answered; `None`: they stay open.
        timeout_seconds: Option<u64>,
    },
    /// Plan of the model, which the user accepts, changes or refuses.
    Plan {
        /// The plan in Markdown.
        plan: String,
        /// Permission modes into which the plan can be accepted.
        modes: Vec<PermissionMode>,
    },
}

/// Question of the model.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct UserQuestion {
    /// The question.
    pub question: String,
    /// Possible answers; empty if the answer is a text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<QuestionOption>,
    /// True if several options can be chosen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multiple: bool,
    /// True if the user can answer with a text, instead of options or beside them.
    pub free_text: bool,
    /// Default answer: the label of an option, or a text. `None`: the question has no default.
    pub default: Option<String>,
}

/// Possible answer to a question.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QuestionOption {
    /// The answer in a few words.
    pub label: String,
    /// Explanation of the answer; `None` if the label says enough.
    pub description: Option<String>,
}

/// Answer to one question. If it is empty, the default of the question counts.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuestionAnswer {
    /// Labels of the chosen options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selected: Vec<String>,
    /// Text of the user; `None` if there is none.
    #[serde(default)]
    pub text: Option<String>,
}

/// Reply of the user to a request.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum UserReply {
    /// One answer for each question.
    Questions {
        /// The answers, in the order of the questions.
        answers: Vec<QuestionAnswer>,
    },
    /// The plan is accepted.
    Plan {
        /// Permission mode of the session from now on.
        mode: PermissionMode,
        /// The plan as the user has changed it; `None` if it is accepted as it is.
        plan: Option<String>,
    },
}

impl QuestionAnswer {
    /// True if nothing is chosen and no text is given.
    pub fn is_empty(&self) -> bool {
        self.selected.is_empty() && self.text.as_ref().is_none_or(|text| text.trim().is_empty())
    }
}

impl UserRequest {
    /// Checks that `reply` answers this request. The error names the place and the fix.
    pub fn check(&self, reply: &UserReply) -> Result<(), String> {
        match (self, reply) {
            (UserRequest::Questions { questions, .. }, UserReply::Questions { answers }) => {
                if answers.len() != questions.len() {
                    return Err(format!(
                        "answers: {} for {} questions; give one answer for each question, empty for \
                         its default",
                        answers.len(),
                        questions.len()
                    ));
                }
                let mut pairs = questions.iter().zip(answers).enumerate();
                pairs.try_for_each(|(nth, (question, answer))| question.check(answer, nth))
            }
            (UserRequest::Plan { modes, .. }, UserReply::Plan { mode, plan }) => {
                if !modes.contains(mode) {
                    let offered: Vec<&str> = modes.iter().map(|mode| mode.as_str()).collect();
                    return Err(format!("mode: {mode} is not offered; use {}", offered.join(", ")));
                }
                let plan = plan.as_deref().unwrap_or("-");
                if plan.trim().is_empty() {
                    return Err(
                        "plan: it is empty; leave it out to accept the plan as it is".into()
                    );
                }
                within("plan", plan, PLAN_CHARS_MAX)
            }
            (UserRequest::Questions { .. }, UserReply::Plan { .. }) => {
                Err("these are questions; answer with question.answer".to_owned())
            }
            (UserRequest::Plan { .. }, UserReply::Questions { .. }) => {
                Err("this is a plan; answer with plan.answer".to_owned())
            }
        }
    }
}

impl UserQuestion {
    fn check(&self, answer: &QuestionAnswer, nth: usize) -> Result<(), String> {
        let place = format!("answers[{nth}]");
        for (at, label) in answer.selected.iter().enumerate() {
            if answer.selected[..at].contains(label) {
                return Err(format!("{place}.selected: {label:?} is there twice; name it once"));
            }
            if self.options.iter().all(|option| option.label != *label) {
                let labels: Vec<&str> = self.options.iter().map(|o| o.label.as_str()).collect();
                return Err(format!(
                    "{place}.selected: {label:?} is no option; there are: {}",
                    labels.join(", ")
                ));
            }
        }
        if answer.selected.len() > 1 && !self.multiple {
            return Err(format!("{place}.selected: only one option can be chosen"));
        }
        match answer.text.as_deref().filter(|text| !text.trim().is_empty()) {
            Some(_) if !self.free_text => {
                Err(format!("{place}.text: this question is answered with an option only"))
            }
            Some(text) => within(&format!("{place}.text"), text, REPLY_CHARS_MAX),
            None => Ok(()),
        }
    }
}

fn within(place: &str, text: &str, chars_max: usize) -> Result<(), String> {
    let chars = text.chars().count();
    if chars <= chars_max {
        return Ok(());
    }
    Err(format!("{place}: {chars} characters, at most {chars_max} are allowed; make it shorter"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(labels: &[&str], multiple: bool, free_text: bool) -> UserQuestion {
        let option =
            |label: &&str| QuestionOption { label: (*label).to_owned(), description: None };
        let options = labels.iter().map(option).collect();
        let question = "Which one?".to_owned();
        UserQuestion { question, options, multiple, free_text, default: None }
    }

    fn answer(selected: &[&str], text: Option<&str>) -> QuestionAnswer {
        let selected = selected.iter().map(ToString::to_string).collect();
        QuestionAnswer { selected, text: text.map(str::to_owned) }
    }

    #[test]
    fn reply_answers_each_question_within_its_options() {
        let request = UserRequest::Questions {
            questions: vec![question(&["a", "b"], false, false), question(&["a", "b"], true, true)],
            timeout_seconds: None,
        };
        let long = "x".repeat(REPLY_CHARS_MAX + 1);
        let table = [
            (vec![answer(&["a"], None), answer(&["a", "b"], Some("and c"))], Ok(())),
            (vec![answer(&[], None), answer(&[], Some(" "))], Ok(())),
            (vec![answer(&["a"], None)], Err("answers: 1 for 2 questions")),
            (
                vec![answer(&["c"], None), answer(&[], None)],
                Err("answers[0].selected: \"c\" is no"),
            ),
            (
                vec![answer(&["a", "b"], None), answer(&[], None)],
                Err("answers[0].selected: only one"),
            ),
            (
                vec![answer(&[], Some("c")), answer(&[], None)],
                Err("answers[0].text: this question"),
            ),
            (vec![answer(&[], None), answer(&[], Some(&long))], Err("answers[1].text: 8001 char")),
        ];
        for (answers, expected) in table {
            let checked = request.check(&UserReply::Questions { answers: answers.clone() });
            match (checked, expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(part)) if error.contains(part) => {}
                (checked, _) => panic!("{answers:?}: {checked:?}"),
            }
        }
        let plan = UserReply::Plan { mode: PermissionMode::Ask, plan: None };
        assert!(request.check(&plan).unwrap_err().contains("question.answer"));
    }

    #[test]
    fn plan_is_accepted_into_an_offered_mode() {
        let request = UserRequest::Plan { plan: "1. do".into(), modes: PLAN_MODES.to_vec() };
        let reply = |mode, plan: Option<&str>| {
            let plan = plan.map(str::to_owned);
            request.check(&UserReply::Plan { mode, plan })
        };
        for mode in PLAN_MODES {
            assert_eq!(reply(mode, None), Ok(()));
        }
        assert_eq!(reply(PermissionMode::Auto, Some("1. do less")), Ok(()));
        for mode in [PermissionMode::Plan, PermissionMode::Locked] {
            assert!(reply(mode, None).unwrap_err().contains("is not offered"), "{mode}");
        }
        assert!(reply(PermissionMode::Ask, Some(" ")).unwrap_err().contains("it is empty"));
        let long = "x".repeat(PLAN_CHARS_MAX + 1);
        assert!(reply(PermissionMode::Ask, Some(&long)).unwrap_err().contains("40001 characters"));
        let answers = UserReply::Questions { answers: Vec::new() };
        assert!(request.check(&answers).unwrap_err().contains("plan.answer"));
    }
}
