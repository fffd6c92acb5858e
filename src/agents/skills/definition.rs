//! Front matter of a `SKILL.md`: required and optional fields, and warnings.

use std::collections::BTreeMap;

use posse_base::failure::{ErrorCode, Exit, Failure, printable, printable_lines};
use serde_json::Value;

use crate::definition::one_line;
use crate::front_matter::{self, Parsed};
use crate::instructions::hidden;
use crate::skills::Skill;

/// Maximum length of the name of a skill in characters.
const NAME_CHARS_MAX: usize = 64;
/// Maximum length of the description of a skill in characters. A longer one is cut, with a warning.
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Maximum length of the field `compatibility` in characters. A longer text is cut, with a warning.
const COMPATIBILITY_CHARS_MAX: usize = 500;
/// Maximum number of body lines that the format recommends. More cause a warning only.
const BODY_LINES_MAX: usize = 500;

/// True if a skill may have this name: at most 64 of `a` to `z`, `0` to `9`, and single `-` between
/// them.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.len() <= NAME_CHARS_MAX
        && name.chars().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// Parses a `SKILL.md` in a folder called `folder`; `shown`: its path for messages. Returns a skill
/// with only the fields that come from the file, and warnings, which do not prevent its use.
pub(super) fn read(
    bytes: &[u8],
    folder: &str,
    shown: &str,
) -> Result<(Skill, Vec<Failure>), Failure> {
    let quoted = printable(folder);
    let refuse = |code: ErrorCode, line: usize, what: &str| {
        Failure::new(code, Exit::Configuration, format!("skill \"{quoted}\": {what}"))
            .at(format!("{shown}:{line}"))
            .fix("`posse help skills` shows what a skill looks like")
    };
    let (text, parsed) = front_matter::parse_bytes(bytes, "it is not UTF-8 text")
        .map_err(|flaw| refuse(ErrorCode::SkillUnreadable, flaw.line, &flaw.what))?;
    let line = |field: &str| parsed.lines.get(field).copied().unwrap_or(1);
    let mut remarks = Vec::new();
    let mut remark = |field: &str, what: &str| {
        let what = format!("skill \"{quoted}\": {what}");
        let failure = Failure::new(ErrorCode::SkillQuestionable, Exit::Configuration, what);
        remarks.push(failure.at(format!("{shown}:{}", line(field))));
    };
    let name = match word(&parsed, "name") {
        Some(name) if name != folder && is_name(name) => {
            remark("name", "its name is not that of its folder, and counts");
            name.to_owned()
        }
        Some(name) => name.to_owned(),
        None => {
            remark("", "it has no name; that of its folder counts");
            folder.to_owned()
        }
    };
    if !is_name(&name) {
        let what = format!(
            "its name is not usable: up to {NAME_CHARS_MAX} of a-z, 0-9 and single - between them"
        );
        return Err(refuse(ErrorCode::SkillInvalid, line("name"), &what));
    }
    let Some(description) = prose(&parsed, "description") else {
        let what = "it has no description: say what it is for, and when to use it";
        return Err(refuse(ErrorCode::SkillInvalid, line("description"), what));
    };
    let mut shortened = |field: &str, text: String, max: usize, end: &str| {
        let Some((at, _)) = text.char_indices().nth(max) else { return text };
        remark(field, &format!("its {field} is longer than {max} characters{end}"));
        format!("{}…", &text[..at])
    };
    let description = shortened("description", description, DESCRIPTION_CHARS_MAX, ", and cut");
    let compatibility = prose(&parsed, "compatibility")
        .map(|text| shortened("compatibility", text, COMPATIBILITY_CHARS_MAX, ""));
    if let Some(found) = hidden(&text) {
        remark("", &format!("hidden characters, shown as escapes: {found}"));
    }
    if parsed.body.is_empty() {
        return Err(refuse(ErrorCode::SkillInvalid, 1, "there is nothing below its front matter"));
    }
    if parsed.body.lines().count() > BODY_LINES_MAX {
        remark("", &format!("it has more than {BODY_LINES_MAX} lines: move details to files"));
    }
    let skill = Skill {
        name,
        description,
        license: prose(&parsed, "license"),
        compatibility,
        metadata: metadata(&parsed),
        allowed_tools: allowed_tools(&parsed),
        only_user: parsed.fields.get("disable-model-invocation") == Some(&Value::Bool(true)),
        body: printable_lines(&parsed.body),
        body_line: text.rfind(&parsed.body).map_or(1, |at| text[..at].matches('\n').count() + 1),
        ..Skill::default()
    };
    Ok((skill, remarks))
}

fn word<'p>(parsed: &'p Parsed, field: &str) -> Option<&'p str> {
    parsed.fields.get(field).and_then(Value::as_str)
}

/// Text of a field as one printable line. `None`: the field is missing, blank or not a text.
fn prose(parsed: &Parsed, field: &str) -> Option<String> {
    Some(one_line(word(parsed, field)?)).filter(|line| !line.is_empty())
}

fn metadata(parsed: &Parsed) -> BTreeMap<String, String> {
    let fields = parsed.fields.get("metadata").and_then(Value::as_object);
    let entry = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (printable(name), printable(&text))
    };
    fields.into_iter().flatten().map(entry).collect()
}

/// Names in `allowed-tools`: a list, or words separated by spaces or commas, such as `Read Bash(git
/// log:*)`.
fn allowed_tools(parsed: &Parsed) -> Vec<String> {
    match parsed.fields.get("allowed-tools") {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(printable).collect(),
        Some(Value::String(text)) => {
            let mut depth = 0_usize;
            let words = text.split(|c: char| {
                depth = match c {
                    '(' => depth + 1,
                    ')' => depth.saturating_sub(1),
                    _ => depth,
                };
                depth == 0 && (c.is_whitespace() || c == ',')
            });
            let mut tools: Vec<String> =
                words.filter(|word| !word.is_empty()).map(printable).collect();
            if depth > 0 {
                // The last one is not complete.
                tools.pop();
            }
            tools
        }
        _ => Vec::new(),
    }
}
