//! `posse config show` and `posse config path`: effective settings, redacted, with their sources.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use posse_base::failure::printable;
use serde_json::{Map, Value, json};

use crate::edit::parts_of;
use crate::schema::KEYS;
use crate::{
    Dirs, Fate, Layers, Leaf, ProjectFile, ProjectSetting, looks_like_key, masked, preferences,
    project_file, user_file,
};

/// Effective settings with secrets redacted, one per line, or with `as_json` as nested objects like
/// in a configuration file. As text, lines that begin with `#` describe the behaviour of keys
/// without a value. With `origin`, adds the source of each value and the project's settings
/// that do not apply; the JSON object then maps dotted keys to values with their sources.
pub fn show(layers: &Layers, project: Option<&ProjectFile>, origin: bool, as_json: bool) -> String {
    let layers = &layers.with_entry_defaults();
    if as_json {
        let object = if origin { with_origins(layers, project) } else { tree(layers) };
        return format!("{object:#}\n");
    }
    let mut text = String::new();
    for (key, leaf) in layers.iter() {
        let value = shown_value(key, &leaf.value);
        let line = printable(&format!("{key} = {value}"));
        let origin = if origin {
            format!("  ({})", printable(&leaf.origin.to_string()))
        } else {
            String::new()
        };
        // Writing to a string cannot fail.
        let _: std::fmt::Result = writeln!(text, "{line}{origin}");
    }
    for (key, default) in described_defaults(layers) {
        let _: std::fmt::Result = writeln!(text, "# {}", printable(&format!("{key}: {default}")));
    }
    for (file, wanted, why) in project.filter(|_| origin).into_iter().flat_map(ignored) {
        let value = shown_value(&wanted.key, &wanted.value);
        let line = format!("# {} = {value}  ({}:{}, {why})", wanted.key, file.name, wanted.line);
        let _: std::fmt::Result = writeln!(text, "{}", printable(&line));
    }
    text
}

/// Keys that have no value in `layers`, each with the text about its default in the description of
/// the key. Of keys with a name in them, such as those of providers, all with a configured name.
fn described_defaults(layers: &Layers) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for key in KEYS {
        let Some((_, default)) = key.about.split_once("Default: ") else { continue };
        let default = default.split_once(". ").map_or(default, |(default, _)| default);
        for path in instances(key.path, layers) {
            let below = format!("{path}.");
            if !layers.iter().any(|(set, _)| set == path || set.starts_with(&below)) {
                found.push((path, default.trim_end_matches('.')));
            }
        }
    }
    found
}

/// The key `path`, with each configured name in place of a `*`.
fn instances(path: &str, layers: &Layers) -> BTreeSet<String> {
    let Some((before, after)) = path.split_once('*') else { return [path.to_owned()].into() };
    let names = layers.iter().filter_map(|(set, _)| set.strip_prefix(before)?.split('.').next());
    names.map(|name| format!("{before}{name}{after}")).collect()
}

/// Settings of a project that do not apply, each with its file and the reason.
fn ignored(
    file: &ProjectFile,
) -> impl Iterator<Item = (&ProjectFile, &ProjectSetting, &'static str)> {
    file.wanted.iter().filter_map(move |wanted| match wanted.fate {
        Fate::Counts(_) => None,
        Fate::Waits => Some((file, wanted, "project not trusted: ignored")),
        Fate::NotAllowed => Some((file, wanted, "variable not allowed: ignored")),
        Fate::Refused(why) => Some((file, wanted, why)),
    })
}

/// Lists the configuration files and posse's folders, one per line. Marks files that are missing.
/// `project` is the root of the project, `file` the argument of `--config`.
pub fn paths(dirs: &Dirs, project: Option<&Path>, file: Option<&Path>) -> String {
    let mut rows = vec![("user", user_file(dirs))];
    rows.extend(project.map(|root| ("project", project_file(root))));
    rows.extend(file.map(|file| ("--config", file.to_owned())));
    rows.push(("saved", preferences::path(dirs)));
    let mut text = String::new();
    for (label, path) in rows {
        let missing = if path.exists() { "" } else { "  (none)" };
        let path = printable(&path.display().to_string());
        let _: std::fmt::Result = writeln!(text, "{label:<9} {path}{missing}");
    }
    for (label, path) in [("config", &dirs.config), ("state", &dirs.state)] {
        let path = printable(&path.display().to_string());
        let _: std::fmt::Result = writeln!(text, "{label:<9} {path}");
    }
    text
}

fn with_origins(layers: &Layers, project: Option<&ProjectFile>) -> Value {
    let entry = |(key, leaf): (&str, &Leaf)| {
        let value = shown_value(key, &leaf.value);
        (key.to_owned(), json!({ "value": value, "origin": leaf.origin.to_string() }))
    };
    let mut entries: Map<String, Value> = layers.iter().map(entry).collect();
    for (file, wanted, why) in project.into_iter().flat_map(ignored) {
        let entry = entries.entry(wanted.key.clone()).or_insert_with(|| json!({}));
        entry["ignored"] = json!({
            "value": shown_value(&wanted.key, &wanted.value),
            "origin": format!("{}:{}", file.name, wanted.line),
            "why": why,
        });
    }
    Value::Object(entries)
}

/// Effective settings as nested objects, like in a configuration file, with secrets redacted.
fn tree(layers: &Layers) -> Value {
    let mut root = Map::new();
    for (key, leaf) in layers.iter() {
        insert_value(&mut root, &parts_of(key), shown_value(key, &leaf.value));
    }
    Value::Object(root)
}

fn insert_value(group: &mut Map<String, Value>, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        group.insert(first.clone(), value);
    } else if let Value::Object(inner) =
        group.entry(first).or_insert_with(|| Value::Object(Map::new()))
    {
        insert_value(inner, rest, value);
    }
}

/// Copy of the value of `key`, with texts at any depth abbreviated if the name of their key is that
/// of a secret, or if they look like an API key.
pub fn shown_value(key: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if is_sensitive(key) || looks_like_key(text) => json!(masked(text)),
        Value::Array(items) => items.iter().map(|item| shown_value(key, item)).collect(),
        Value::Object(entries) => {
            let entry = |(name, value): (&String, &Value)| {
                (name.clone(), shown_value(&format!("{key}.{name}"), value))
            };
            Value::Object(entries.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}

fn is_sensitive(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    // The name of a variable is no secret.
    if matches!(name, "apiKeyEnv" | "readSecrets") || name.ends_with("Tokens") {
        return false;
    }
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "authorization", "cookie"]
        .iter()
        .any(|word| name.contains(word))
}
