//! `posse config edit`: changes one setting of a file, and keeps comments and formatting.

use std::path::Path;

use jsonc_parser::cst::{CstContainerNode, CstInputValue, CstObject, CstRootNode};
use posse_base::failure::{ErrorCode, Failure, nearest, printable};
use posse_base::shell_words::quoted;
use serde_json::{Value, json};

use crate::file::{ConfigFile, ReadPolicy, options};
use crate::layers::{self, Walk};
use crate::schema::{self, ConfigKey, ValueKind};
use crate::{invalid, looks_like_key, masked, write};

const HEADER: &str = "\
// The configuration of posse. Comments and trailing commas are allowed.
// Every key: posse config schema. What counts, and why: posse config show --origin.
";

/// Sets the dotted key `key` to `value` in the file at `path`, or removes the key if `value` is
/// `None`. `value` is JSON, or text without quotes. Creates a missing file to set a key. Returns a
/// message for the user, also if the key to remove is not set. Fails without a change if the key is
/// unknown, the value is invalid, the change would add a mistake, or the file is invalid JSON or of
/// a later format version.
pub fn edit(path: &Path, key: &str, value: Option<&str>) -> Result<String, Vec<Failure>> {
    let one = |failure: Failure| vec![failure];
    let source = ConfigFile::read(path, ReadPolicy::Optional).map_err(one)?;
    let name = printable(&path.display().to_string());
    let before = source.unwrap_or_else(|| ConfigFile::of(&name, HEADER.to_owned()));
    let old = existing_errors(&before)?;
    let root = CstRootNode::parse(&before.text, &options()).map_err(|error| {
        one(invalid(ErrorCode::ConfigInvalidJson, "the configuration cannot be edited")
            .because(error.to_string()))
    })?;
    let object = root.object_value_or_create().ok_or_else(|| {
        one(invalid(ErrorCode::ConfigInvalidJson, "the configuration is not an object")
            .at(name.clone()))
    })?;
    let said = match value {
        Some(value) => set(&object, key, value, &name).map_err(one)?,
        None if unset(&object, &parts_of(key)) => format!("removed {key} from {name}"),
        None => return Ok(format!("{} is not set in {name}\n", printable(key))),
    };
    let mut text = root.to_string();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let after = ConfigFile { text, ..before };
    let new = existing_errors(&after)?;
    if new.len() > old.len() {
        return Err(new);
    }
    let bom = if after.has_bom { "\u{feff}" } else { "" };
    write::replace(path, &format!("{bom}{}", after.text)).map_err(|error| {
        one(invalid(ErrorCode::ConfigUnwritable, "the configuration cannot be written")
            .at(name.clone())
            .because(error.to_string()))
    })?;
    Ok(format!("{}\n", printable(&said)))
}

/// Usage text of `posse config edit`. Begins with the path of the file.
pub fn explain(path: &Path) -> String {
    let missing = if path.exists() { "" } else { "  (none yet)" };
    format!(
        "{}{missing}\n\nposse config edit KEY VALUE    set a key and keep comments, for example: \
         sandbox.network deny\nposse config edit --unset KEY  remove a key\nposse config show \
         --origin     show the effective settings and their origin\nposse config schema          \
         \x20 print the JSON Schema of all keys, for editors\n",
        printable(&path.display().to_string())
    )
}

/// Returns the mistakes in a file as `Ok`. Returns `Err` if the file must not be edited: invalid
/// JSON, or a later format version.
fn existing_errors(source: &ConfigFile) -> Result<Vec<Failure>, Vec<Failure>> {
    let walk = Walk::of(source);
    if walk.from_future {
        let what = format!(
            "{} was written for version {} of the format, this is version {}",
            source.name,
            walk.version,
            schema::VERSION
        );
        return Err(vec![
            invalid(ErrorCode::ConfigLaterVersion, what).fix("use the later posse to change it"),
        ]);
    }
    if walk.failures.iter().any(|failure| failure.code == ErrorCode::ConfigInvalidJson) {
        return Err(walk.failures);
    }
    Ok(walk.failures)
}

fn set(object: &CstObject, key: &str, text: &str, file: &str) -> Result<String, Failure> {
    let parts = parts_of(key);
    let (known, inner) = resolve(&parts).ok_or_else(|| unknown(key))?;
    let kind = match (known.kind, inner) {
        (ValueKind::TextMap, true) => ValueKind::Text,
        (kind, _) => kind,
    };
    let value = value_of(kind, text);
    // What begins like JSON was meant as JSON, also where any text would do.
    if value.is_string() && matches!(kind, ValueKind::Any) && text.starts_with(['{', '[', '"']) {
        let quoted = serde_json::from_str::<String>(text);
        quoted.map_err(|error| {
            invalid(ErrorCode::ConfigInvalidValue, format!("{key}: it is not valid JSON: {error}"))
        })?;
    }
    layers::check(kind, &value).map_err(|expected| {
        let what = layers::mismatch(key, expected.clone(), &value);
        let fix = match kind {
            ValueKind::Choice(names) => nearest(text, names.iter().copied())
                .map(|meant| format!("did you mean \"{meant}\"?")),
            ValueKind::TextList | ValueKind::CommandLine => Some(list_fix(key, text)),
            _ => None,
        };
        let fix = fix.unwrap_or_else(|| format!("give a value that is {expected}"));
        invalid(ErrorCode::ConfigInvalidValue, what).at("the command line").fix(fix)
    })?;
    let Some((last, above)) = parts.split_last() else { return Err(unknown(key)) };
    let mut group = object.clone();
    for name in above {
        group = group.object_value_or_create(name).ok_or_else(|| {
            invalid(ErrorCode::ConfigInvalidValue, format!("\"{name}\" is not an object in {file}"))
                .fix(format!("remove it first: posse config edit --unset {name}"))
        })?;
    }
    let old = group.get(last).and_then(|property| {
        let old = property.value()?.to_serde_value();
        property.set_value(input(&value));
        old
    });
    if old.is_none() && group.get(last).is_none() {
        group.append(last, input(&value));
    }
    let shown = |value: &Value| shown(known.kind, key, value);
    let was = old.map(|old| format!(" (was {})", shown(&old))).unwrap_or_default();
    Ok(format!("set {key} = {} in {file}{was}", shown(&value)))
}

/// Command that sets the key to a list of texts, with the words of `text` as an example.
fn list_fix(key: &str, text: &str) -> String {
    let list = |text: &str| text.starts_with(['[', '{', '"']);
    let words: Vec<&str> = text.split([',', ' ']).filter(|word| !word.is_empty()).collect();
    let words = if words.is_empty() || list(text) { vec!["TEXT"] } else { words };
    let example = quoted(&json!(words).to_string());
    format!("give a JSON list: posse config edit {key} {example}")
}

/// Removes the property at the path `parts`, and groups that become empty and have no comments.
/// Returns true if the property existed.
fn unset(object: &CstObject, parts: &[String]) -> bool {
    let Some((first, rest)) = parts.split_first() else { return false };
    if rest.is_empty() {
        let Some(property) = object.get(first) else { return false };
        property.remove();
        return true;
    }
    let Some(group) = object.object_value(first) else { return false };
    let removed = unset(&group, rest);
    let has_comment = || {
        let children = CstContainerNode::from(group.clone()).children();
        children.iter().any(jsonc_parser::cst::CstNode::is_comment)
    };
    // Removes a group that became empty.
    if removed
        && group.properties().is_empty()
        && !has_comment()
        && let Some(property) = object.get(first)
    {
        property.remove();
    }
    removed
}

/// Splits a dotted key into names. The name of a model or header may itself contain dots.
pub(crate) fn parts_of(key: &str) -> Vec<String> {
    if let Some(rest) = key.strip_prefix("models.")
        && let Some((name, field)) = rest.rsplit_once('.')
        && schema::find(&["models", name, field]).is_some()
    {
        return ["models", name, field].map(str::to_owned).to_vec();
    }
    let parts: Vec<&str> = key.split('.').collect();
    for (at, _) in parts.iter().enumerate().skip(1) {
        let (above, name) = parts.split_at(at);
        let open = schema::find(above);
        if open.is_some_and(|key| matches!(key.kind, ValueKind::TextMap)) {
            let name = name.join(".");
            return above.iter().copied().map(str::to_owned).chain([name]).collect();
        }
    }
    parts.into_iter().map(str::to_owned).collect()
}

/// Finds the configuration key for a path. The flag is true if the path names a member inside the
/// key's value, such as one header of `headers`. `None` if there is no such key, or if a name in
/// the path is empty. Members of `agents` are not found.
fn resolve(parts: &[String]) -> Option<(&'static ConfigKey, bool)> {
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    if parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    if let Some(key) = schema::find(&parts) {
        return Some((key, false));
    }
    (1..parts.len()).rev().find_map(|length| {
        let key = schema::find(parts.get(..length)?)?;
        matches!(key.kind, ValueKind::TextMap | ValueKind::Any).then_some((key, true))
    })
}

fn unknown(key: &str) -> Failure {
    if schema::was_key(&key.split('.').collect::<Vec<_>>()) {
        return layers::removed(key).at("the command line");
    }
    let shown: String = key.chars().take(100).collect();
    let failure = invalid(ErrorCode::ConfigUnknownKey, format!("unknown key \"{shown}\""))
        .at("the command line");
    let known = schema::KEYS.iter().map(|key| key.path).filter(|path| !path.contains('*'));
    match nearest(key, known) {
        Some(meant) => failure.fix(format!("did you mean \"{meant}\"?")),
        None => failure.fix("list them with posse config show, or posse config schema"),
    }
}

/// Converts command-line text to a JSON value for `kind`, or to a string if that is not possible.
/// Unlike [`layers::from_text`], also parses lists, objects and strings in quotes.
fn value_of(kind: ValueKind, text: &str) -> Value {
    let json = || serde_json::from_str(text).ok();
    let quoted = || json().filter(Value::is_string);
    let value = match kind {
        ValueKind::TextList
        | ValueKind::CommandLine
        | ValueKind::ObjectList
        | ValueKind::TextMap
        | ValueKind::Any => json(),
        ValueKind::Bool
        | ValueKind::Whole(..)
        | ValueKind::WholeOrAuto(..)
        | ValueKind::Number(..) => Some(layers::from_text(kind, text)),
        _ => quoted(),
    };
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// True if the value of `key` may be a secret, such as a header of a request.
fn is_secret(kind: ValueKind, key: &str) -> bool {
    match kind {
        ValueKind::Secret => true,
        ValueKind::TextMap => !key.starts_with("ui."),
        _ => false,
    }
}

fn shown(kind: ValueKind, key: &str, value: &Value) -> String {
    match value {
        Value::String(text) if is_secret(kind, key) || looks_like_key(text) => {
            format!("\"{}\"", masked(text))
        }
        Value::Object(_) | Value::Array(_) if key.starts_with("providers.") => "…".to_owned(),
        value => value.to_string(),
    }
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(on) => CstInputValue::Bool(*on),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(entries) => {
            let entry = |(name, value): (&String, &Value)| (name.clone(), input(value));
            CstInputValue::Object(entries.iter().map(entry).collect())
        }
    }
}

#[cfg(test)]
mod tests;
