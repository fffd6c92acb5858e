//! Kinds of values of options, and their checks.

use crate::shell::Names;
use crate::shell::allow::{self, Ground, PathAccess};
use crate::shell::sensitive::{is_sensitive, selects_hidden, selects_sensitive};

use super::scripts::ScriptLanguage;

/// Kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionValue {
    /// A number, a name or a list of them: nothing that leads to a file.
    Plain,
    /// A name without dots. A name with dots may be a module, which the program loads.
    Word,
    /// Data: a pattern, a date, a name of a person.
    Text,
    /// Data that does not begin with `-`: the program may take such a word for an option.
    Data,
    /// The pattern, so that every operand is a file.
    Pattern,
    /// A file of patterns, so that every operand is a file.
    PatternFile,
    /// A pattern that limits the files by their names.
    Glob,
    /// A pattern that selects files by their names, hidden ones included.
    HiddenGlob,
    /// A type of ripgrep with its globs: `web:*.html`.
    TypeGlob,
    /// A format of git. Some formats run the program that checks signatures.
    Format,
    /// A range of lines, which may end in a file of the repository, as in `1,9:file`.
    Lines,
    /// A file or folder of the workspace, which is read.
    Path,
    /// A file that a build writes, in a folder for what builds write.
    Output,
    /// A reporter of a JavaScript test program that is part of it and prints text.
    Reporter,
    /// A plugin to disable: `no:name`.
    Disabled,
    /// Columns of `ps`, none of which is the environment of processes.
    Columns,
    /// A script of sed that only prints.
    SedScript,
}

/// Reporters of Jest, Mocha, Vitest and the runner of Node that print text. Any other name may be
/// a module that is loaded, or a file that is written.
const REPORTERS: Names = Names(
    "basic default dot json landing line list min nyan progress spec tap tap-flat tree verbose",
);

impl OptionValue {
    /// Returns the kind with this name in the tables. Unknown names are a mistake in a table, which
    /// a test finds; they accept the least.
    pub(super) fn named(name: &str) -> OptionValue {
        match name {
            "word" => OptionValue::Word,
            "text" => OptionValue::Text,
            "data" => OptionValue::Data,
            "pattern" => OptionValue::Pattern,
            "patterns" => OptionValue::PatternFile,
            "files" => OptionValue::Glob,
            "hidden" => OptionValue::HiddenGlob,
            "type" => OptionValue::TypeGlob,
            "format" => OptionValue::Format,
            "lines" => OptionValue::Lines,
            "path" => OptionValue::Path,
            "output" => OptionValue::Output,
            "reporter" => OptionValue::Reporter,
            "disabled" => OptionValue::Disabled,
            "columns" => OptionValue::Columns,
            "sed" => OptionValue::SedScript,
            _ => OptionValue::Plain,
        }
    }

    /// Checks a value of `option`. Fails with the reason.
    pub(super) fn check(self, option: &str, value: &str, ground: Ground<'_>) -> Result<(), String> {
        match self {
            OptionValue::Data if value.starts_with('-') => {
                Err(format!("the value {value} of {option} may be an option"))
            }
            OptionValue::Text | OptionValue::Data | OptionValue::Pattern => Ok(()),
            OptionValue::Word if value.contains('.') => {
                Err(format!("{option} {value} may load a module"))
            }
            OptionValue::Columns if value.to_ascii_lowercase().contains("env") => {
                Err(format!("{option} {value} may show the environment of processes"))
            }
            OptionValue::Plain | OptionValue::Word | OptionValue::Columns => plain(option, value),
            OptionValue::HiddenGlob if !value.starts_with('!') && selects_hidden(value) => {
                Err(format!("{option} {value} may select a hidden file with secrets"))
            }
            OptionValue::Glob | OptionValue::HiddenGlob => glob(option, value),
            OptionValue::TypeGlob => match value.split_once(':') {
                Some((_, globs)) if !globs.starts_with("include:") => {
                    OptionValue::HiddenGlob.check(option, globs, ground)
                }
                _ => Ok(()),
            },
            OptionValue::Format => format_value(option, value),
            OptionValue::Lines => lines(option, value),
            OptionValue::Path | OptionValue::PatternFile => {
                allow::path_text(value, PathAccess::Content, ground)
            }
            OptionValue::Output => output(value, ground),
            OptionValue::Reporter if REPORTERS.has(value) => Ok(()),
            OptionValue::Reporter => Err(format!("the reporter {value} may be a module")),
            OptionValue::Disabled if value.starts_with("no:") => Ok(()),
            OptionValue::Disabled => Err(format!("{option} {value} loads a plugin")),
            OptionValue::SedScript => ScriptLanguage::Sed.check(value),
        }
    }
}

fn plain(option: &str, value: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_alphanumeric() || "_-,:=+%@^ .".contains(c);
    let dotted = value.contains('.') && (option.starts_with("--target") || value.contains(".."));
    // `-5` is a number, `-x` may be an option.
    let number =
        value.strip_prefix('-').is_none_or(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    // The next word may be an operand to a version of the program in which the value is optional.
    if value.chars().all(allowed) && !dotted && number && !is_sensitive(value) {
        Ok(())
    } else {
        Err(format!("the value of {option} may lead elsewhere"))
    }
}

/// Folders that hold what builds write.
const BUILD_FOLDERS: Names = Names("_build bin build dist obj out target");

/// Accepts a file in one of [`BUILD_FOLDERS`] of the current directory, and `/dev/null`.
fn output(value: &str, ground: Ground<'_>) -> Result<(), String> {
    let path = value.strip_prefix("./").unwrap_or(value);
    let (folder, name) = path.split_once('/').unwrap_or((path, ""));
    let is_build =
        BUILD_FOLDERS.has(folder) && !name.is_empty() && allow::is_visible_part(path, ground);
    if value == "/dev/null" || is_build {
        return Ok(());
    }
    Err(format!("it writes {value}"))
}

/// Accepts a pattern that selects no file with secrets, or that excludes files.
fn glob(option: &str, value: &str) -> Result<(), String> {
    if !value.starts_with('!') && selects_sensitive(value) {
        return Err(format!("{option} {value} may select a file with secrets"));
    }
    Ok(())
}

/// Accepts a format or sort key of git without a field of a signature: `%(signature)`, or `%G`, also
/// with `+`, `-` or a space between.
fn format_value(option: &str, value: &str) -> Result<(), String> {
    let mut fields = value.split('%').skip(1);
    let checks = fields.any(|field| field.trim_start_matches(['+', '-', ' ']).starts_with('G'));
    if checks || value.contains("signature") {
        return Err(format!("{option} {value} runs the program that checks signatures"));
    }
    Ok(())
}

/// Accepts a range of lines, with a file that holds no secrets.
fn lines(option: &str, value: &str) -> Result<(), String> {
    if value.split(':').any(selects_sensitive) {
        return Err(format!("{option} {value} may read a file with secrets"));
    }
    Ok(())
}
