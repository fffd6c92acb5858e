//! `ask_user`: questions of the model for the user, with options or in the user's own words.

use std::fmt::Write as _;
use std::sync::Arc;

use posse_actors::event::{QuestionAnswer, QuestionOption, UserQuestion, UserReply, UserRequest};
use posse_actors::ports::{
    Access, CallContext, Prepared, RunContext, Tool, ToolAnnotations, ToolError, ToolOutput,
    UserAnswer,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::text::{capital, one_line};
use crate::{digest, prepared, spec};

/// Name of the tool.
pub const NAME: &str = "ask_user";

/// Maximum number of questions of a call.
const QUESTIONS_MAX: usize = 4;
/// Maximum number of options of a question.
const OPTIONS_MAX: usize = 8;
/// Maximum length of a question and of its default in characters.
const QUESTION_CHARS_MAX: usize = 1000;
/// Maximum length of a label in characters.
const LABEL_CHARS_MAX: usize = 80;
/// Maximum length of a description in characters.
const DESCRIPTION_CHARS_MAX: usize = 300;
/// Minimum time limit in seconds: a person has to read the questions.
const TIMEOUT_SECONDS_MIN: u64 = 10;
/// Maximum time limit in seconds: a day.
const TIMEOUT_SECONDS_MAX: u64 = 86_400;

/// Advice for the model if the user gave no answer.
const DECIDE: &str = "Decide with what you know, take the safer way, and say what you assumed.";

/// Creates the tool.
pub(crate) fn tool() -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Asks the user what only the user can decide. Not for permission.",
        ToolAnnotations::new(Access::Session),
        &json!({
            "questions": {
                "type": "array",
                "minItems": 1,
                "maxItems": QUESTIONS_MAX,
                "items": {
                    "type": "object",
                    "properties": {
                        "question": { "type": "string" },
                        "options": {
                            "type": "array",
                            "maxItems": OPTIONS_MAX,
                            "items": {
                                "type": "object",
                                "properties": {
                                    "label": { "type": "string" },
                                    "description": { "type": "string" },
                                },
                                "required": ["label"],
                            },
                        },
                        "multiple": { "type": "boolean" },
                        "freeText": { "type": "boolean", "default": true },
                        "default": { "type": "string" },
                    },
                    "required": ["question"],
                },
            },
            "timeoutSeconds": {
                "type": "integer",
                "minimum": TIMEOUT_SECONDS_MIN,
                "maximum": TIMEOUT_SECONDS_MAX,
            },
        }),
        &["questions"],
    );
    let mut tool = BuiltinTool::new(spec, Arc::new(()), prepare, run);
    tool.user_request = |arguments| {
        let arguments = serde_json::from_value(arguments.clone()).ok()?;
        request(arguments).ok()
    };
    Arc::new(tool)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    questions: Vec<AskedQuestion>,
    timeout_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedQuestion {
    question: String,
    #[serde(default)]
    options: Vec<QuestionOption>,
    #[serde(default)]
    multiple: bool,
    free_text: Option<bool>,
    default: Option<String>,
}

async fn prepare(_: Arc<()>, arguments: Arguments, _: CallContext) -> Result<Prepared, ToolError> {
    let request = request(arguments)?;
    let UserRequest::Questions { questions, .. } = &request else {
        return Err(ToolError::new("ARG001", "questions: there are none"));
    };
    let first = questions.first().map(|one| one_line(&one.question)).unwrap_or_default();
    let more = match questions.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let (summary, detail) = (format!("question: {first}{more}"), text_of(questions));
    let digest = digest::of(&[NAME.as_bytes(), detail.as_bytes()]);
    Ok(prepared(NAME, Vec::new(), (summary, detail), digest, request))
}

/// Checks the bounds of the arguments, and turns them into a request. The error names the place and
/// the fix.
fn request(arguments: Arguments) -> Result<UserRequest, ToolError> {
    let Arguments { questions, timeout_seconds } = arguments;
    let questions = questions.into_iter().enumerate();
    let questions = questions.map(|(nth, asked)| question(asked, &format!("questions[{nth}]")));
    let questions = questions.collect::<Result<_, ToolError>>()?;
    Ok(UserRequest::Questions { questions, timeout_seconds })
}

fn question(asked: AskedQuestion, place: &str) -> Result<UserQuestion, ToolError> {
    let AskedQuestion { question, mut options, multiple, free_text, default } = asked;
    let question = text(&question, &format!("{place}.question"), QUESTION_CHARS_MAX)?;
    for (nth, option) in options.iter_mut().enumerate() {
        let at = format!("{place}.options[{nth}]");
        option.label = text(&one_line(&option.label), &format!("{at}.label"), LABEL_CHARS_MAX)?;
        if let Some(about) = option.description.take().filter(|about| !about.trim().is_empty()) {
            let about =
                text(&one_line(&about), &format!("{at}.description"), DESCRIPTION_CHARS_MAX)?;
            option.description = Some(about);
        }
    }
    for (nth, option) in options.iter().enumerate() {
        if options[..nth].iter().any(|before| before.label == option.label) {
            let what =
                format!("{place}.options[{nth}].label: is there twice; give it another name");
            return Err(wrong(what));
        }
    }
    let free_text = free_text.unwrap_or(true) || options.is_empty();
    if options.len() == 1 && !free_text {
        return Err(wrong(format!("{place}.options: one option is no choice; give two or more")));
    }
    if multiple && options.len() < 2 {
        return Err(wrong(format!("{place}.multiple: needs two or more options")));
    }
    let default = default.filter(|default| !default.trim().is_empty());
    let default = default
        .map(|default| text(&default, &format!("{place}.default"), QUESTION_CHARS_MAX))
        .transpose()?;
    if let Some(default) = &default
        && !free_text
        && options.iter().all(|option| option.label != *default)
    {
        return Err(wrong(format!("{place}.default: must be the label of an option")));
    }
    Ok(UserQuestion { question, options, multiple, free_text, default })
}

fn text(text: &str, place: &str, chars_max: usize) -> Result<String, ToolError> {
    let chars = text.chars().count();
    if text.trim().is_empty() {
        return Err(wrong(format!("{place}: is blank; write it, or leave it out")));
    }
    if chars > chars_max {
        let what = format!("{place}: has {chars} characters, at most {chars_max}; make it shorter");
        return Err(wrong(what));
    }
    Ok(text.trim().to_owned())
}

fn wrong(what: String) -> ToolError {
    ToolError::new("ARG002", what)
}

/// The questions as plain text.
fn text_of(questions: &[UserQuestion]) -> String {
    let mut text = String::new();
    for question in questions {
        text.push_str(&question.question);
        text.push('\n');
        for option in &question.options {
            let about = option.description.as_ref().map(|about| format!(": {about}"));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- {}{}", option.label, about.unwrap_or_default());
        }
        if let Some(default) = &question.default {
            let _ = writeln!(text, "default: {default}");
        }
    }
    text
}

async fn run(_: Arc<()>, request: UserRequest, context: RunContext) -> RunResult {
    let UserRequest::Questions { questions, timeout_seconds } = request else {
        return Err(ToolError::new("ARG001", "questions: there are none"));
    };
    let (text, metadata) = match context.answer {
        Some(UserAnswer::Replied(UserReply::Questions { answers })) => {
            (told(&questions, &answers), json!({ "answers": answers }))
        }
        Some(UserAnswer::Refused(words)) => {
            let words = words.map(|words| format!(" The user said: {words}"));
            let text = format!("The user did not answer.{}", words.unwrap_or_default());
            (text, Value::Null)
        }
        Some(UserAnswer::TimedOut) => {
            let nothing = vec![QuestionAnswer::default(); questions.len()];
            let seconds = timeout_seconds.unwrap_or_default();
            let text = format!(
                "There was no answer within {seconds} s.\n{}\n{DECIDE}",
                told(&questions, &nothing)
            );
            (text, Value::Null)
        }
        Some(UserAnswer::Unavailable(why)) => (format!("{}. {DECIDE}", capital(&why)), Value::Null),
        Some(UserAnswer::Replied(UserReply::Plan { .. })) | None => {
            (format!("No user can be asked. {DECIDE}"), Value::Null)
        }
    };
    Ok(ToolOutput::text(text).with_metadata(metadata))
}

/// The answers in words, one line for each question. An empty answer is the default.
fn told(questions: &[UserQuestion], answers: &[QuestionAnswer]) -> String {
    let line = |(question, answer): (&UserQuestion, &QuestionAnswer)| {
        let own = answer.text.as_deref().filter(|text| !text.trim().is_empty());
        let said = match (answer.selected.as_slice(), own, &question.default) {
            ([], None, Some(default)) => format!("no answer; the default is: {default}"),
            ([], None, None) => "no answer".to_owned(),
            ([], Some(own), _) => own.to_owned(),
            (chosen, None, _) => chosen.join(", "),
            (chosen, Some(own), _) => format!("{}; and: {own}", chosen.join(", ")),
        };
        format!("{} -> {said}", one_line(&question.question))
    };
    questions.iter().zip(answers).map(line).collect::<Vec<_>>().join("\n")
}
