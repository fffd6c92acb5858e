//! Converts errors of clap to posse's form of errors: what failed, where, why, and a fix.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use posse_base::failure::{ErrorCode, Exit, Failure};

use crate::args::CheckpointIdError;
use crate::{habits, later};

/// Converts an error of clap about the command line `args`, which begins with the program name.
/// `command`: name of the subcommand, if there is one.
pub(crate) fn failure(error: &clap::Error, command: Option<&str>, args: &[OsString]) -> Failure {
    if let Some(failure) = later::explain(error) {
        return failure;
    }
    let help = match command {
        Some(command) => format!("see `posse {command} --help`"),
        None => "see `posse --help`".to_owned(),
    };
    let one = |kind| text(error, kind).unwrap_or_default();
    let argument = || one(ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let given = one(ContextKind::InvalidSubcommand);
            let what = format!("there is no command \"{given}\"");
            let fix = match (habits::instead_of_command(&given), command) {
                (Some(instead), None) => instead.to_owned(),
                (_, Some("config")) if given == "get" => {
                    "`posse config show KEY` shows it".to_owned()
                }
                (_, Some("config")) if given == "set" => {
                    "`posse config edit KEY VALUE` sets it".to_owned()
                }
                (_, Some(_)) => {
                    suggested_value(error, ContextKind::SuggestedSubcommand).unwrap_or(help)
                }
                (None, None) => suggested_value(error, ContextKind::SuggestedSubcommand)
                    .unwrap_or_else(|| format!("{help}; a task is given with {}", as_task(args))),
            };
            wrong(ErrorCode::CommandUnknown, what).fix(fix)
        }
        ErrorKind::UnknownArgument if command == Some("try") && words_of_try(args).is_some() => {
            let line = words_of_try(args).unwrap_or_default();
            let what = format!("\"{}\" is not expected here", argument());
            wrong(ErrorCode::FlagUnknown, what).fix(format!("write `posse try -- {line}`"))
        }
        ErrorKind::UnknownArgument => unknown(error, &argument(), &help),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::NoEquals => {
            value(error, &argument(), &one(ContextKind::InvalidValue), help)
        }
        ErrorKind::ArgumentConflict => {
            let (argument, other) = (argument(), one(ContextKind::PriorArg));
            let what = if argument == other || other.is_empty() {
                format!("{argument} is given multiple times")
            } else {
                format!("{argument} cannot be used with {other}")
            };
            wrong(ErrorCode::FlagsConflict, what).fix(format!("leave one out; {help}"))
        }
        ErrorKind::MissingRequiredArgument => {
            let what = format!("{} is missing", argument().replace(", ", " and "));
            wrong(ErrorCode::ArgumentMissing, what).fix(help)
        }
        ErrorKind::InvalidUtf8 => {
            wrong(ErrorCode::FlagValueInvalid, "an argument is not valid UTF-8")
                .fix("convert it to UTF-8")
        }
        _ => {
            // The first paragraph is the error; usage and help follow.
            let text = error.to_string();
            let what = text.lines().next().unwrap_or_default();
            wrong(ErrorCode::CommandLineInvalid, what.strip_prefix("error: ").unwrap_or(what))
                .fix(help)
        }
    }
}

/// The command in `posse try COMMAND`, whose `--` is missing. `None` if flags come before it, or if it
/// is not only letters, digits and plain punctuation.
fn words_of_try(args: &[OsString]) -> Option<String> {
    let words: Option<Vec<&str>> = args.iter().skip(2).map(|word| word.to_str()).collect();
    let line = words?.join(" ");
    let is_plain = |c: char| c.is_alphanumeric() || " .,-_/=".contains(c);
    (!line.starts_with('-') && !line.is_empty() && line.chars().all(is_plain)).then_some(line)
}

/// The command that runs the words of `args` as a task. `posse run "TASK"` if the words are not only
/// letters and digits, or long.
fn as_task(args: &[OsString]) -> String {
    const CHARS_MAX: usize = 60;
    let words: Option<Vec<&str>> = args.iter().skip(1).map(|word| word.to_str()).collect();
    let task = words.unwrap_or_default().join(" ");
    let is_plain = task.chars().all(|c| c.is_alphanumeric() || " .,-_/".contains(c));
    if is_plain && !task.is_empty() && task.chars().count() <= CHARS_MAX && !task.contains(" -") {
        format!("`posse run \"{task}\"`")
    } else {
        "`posse run \"TASK\"`".to_owned()
    }
}

fn unknown(error: &clap::Error, given: &str, help: &str) -> Failure {
    let what = if given.starts_with('-') {
        format!("there is no flag \"{given}\"")
    } else {
        format!("\"{given}\" is not expected here")
    };
    let instead = habits::instead_of_flag(given).map(str::to_owned);
    let fix = instead.or_else(|| suggested_value(error, ContextKind::SuggestedArg));
    wrong(ErrorCode::FlagUnknown, what).fix(fix.unwrap_or_else(|| help.to_owned()))
}

fn value(error: &clap::Error, argument: &str, given: &str, help: String) -> Failure {
    let flag = argument.split(' ').next().unwrap_or(argument);
    let failure = if given.is_empty() {
        wrong(ErrorCode::FlagValueInvalid, format!("{argument} has no value"))
    } else {
        wrong(ErrorCode::FlagValueInvalid, format!("{flag} cannot be \"{given}\""))
    };
    let failure = failure.caused_by(error);
    let source = std::error::Error::source(error);
    if source.is_some_and(<dyn std::error::Error>::is::<CheckpointIdError>) {
        return failure.fix("`posse checkpoints list` shows the checkpoints with their ids");
    }
    if flag == "--permission-mode"
        && let Some(mode) = habits::nearest_mode(given)
    {
        return failure.fix(format!("the nearest mode is `{mode}` (`posse help permissions`)"));
    }
    let valid = text(error, ContextKind::ValidValue).filter(|valid| !valid.is_empty());
    failure.fix(match (suggested_value(error, ContextKind::SuggestedValue), valid) {
        (Some(meant), _) => meant,
        (None, Some(valid)) => format!("use one of {valid}"),
        (None, None) => help,
    })
}

fn suggested_value(error: &clap::Error, kind: ContextKind) -> Option<String> {
    let meant = text(error, kind).filter(|meant| !meant.is_empty())?;
    Some(format!("did you mean \"{meant}\"?"))
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    }
}

fn wrong(code: ErrorCode, what: impl Into<String>) -> Failure {
    Failure::new(code, Exit::Usage, what)
}
