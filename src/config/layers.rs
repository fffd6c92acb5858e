//! Merging of layers: each value is checked against the schema and stored with its origin. The
//! value of a later layer replaces the value of an earlier layer; lists of hooks, and the
//! permission rules of a project, are appended instead.

mod check;
mod conflicts;
mod project;
mod walk;

pub(crate) use check::{check, duration, example, from_text, hint, is_model, is_name, mismatch};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::text::clipped;

use posse_base::failure::{ErrorCode, Exit, Failure, nearest};
use serde_json::Value;

use crate::environment::Environment;
use crate::file::{ConfigFile, ReadPolicy};
use crate::preferences::Preferences;
use crate::schema::{self, ConfigKey, ValueKind};
use crate::variables;
use crate::{ModelSelection, Notice, looks_like_key};
pub use project::{Fate, ProjectFile, ProjectSetting, TrustClass, key_variable};
pub(crate) use walk::Walk;

/// Maximum number of keys that one notice names.
const NAMES_MAX: usize = 8;
/// Maximum length, in characters, of a text that quotes a name from a configuration file. A longer
/// text is cut there and ends with `…`.
const TEXT_CHARS_MAX: usize = 300;

/// The effective value of each key with its origin, by the dotted name of the key.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    leaves: BTreeMap<String, Leaf>,
}

/// The value of one key and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// The value, which is valid for the key.
    pub value: Value,
    /// Source of the value.
    pub origin: SettingOrigin,
    /// Places of the members of a list that comes from files, as `file:line:column`. Empty for
    /// another value or source.
    pub members: Vec<String>,
}

impl Leaf {
    fn new(value: Value, origin: SettingOrigin) -> Leaf {
        Leaf { value, origin, members: Vec::new() }
    }

    /// Place of the member `nth` of a list, else that of the value.
    pub fn member_place(&self, nth: usize) -> String {
        self.members.get(nth).cloned().unwrap_or_else(|| self.origin.place())
    }
}

/// Position in a file. Line and column count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// Built-in default.
    BuiltIn,
    /// A configuration file of the user, also the one given with `--config`.
    File {
        /// Path of the file, printable.
        name: Arc<str>,
        /// Position of the value. For a member of an object such as `headers`, that of its name.
        position: Position,
    },
    /// The configuration file of a project.
    Project {
        /// Path of the file, printable.
        name: Arc<str>,
        /// Position of the value. For a member of an object such as `headers`, that of its name.
        position: Position,
        /// Reason why the project's value applies.
        trust: TrustClass,
        /// True if the value is the user's list followed by the project's.
        joined: bool,
    },
    /// The saved choice of provider and model.
    Preferences,
    /// The environment variable of this name.
    Variable(&'static str),
    /// A command-line flag such as `--model`, a slash command such as `/model`, or the phrase "the
    /// resumed session".
    Flag(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::BuiltIn => f.write_str("built in"),
            SettingOrigin::File { name, position } => write!(f, "{name}:{}", position.line),
            SettingOrigin::Project { name, position, trust, joined } => {
                let joined = if *joined { ", added to your own" } else { "" };
                write!(f, "{name}:{}, {trust}{joined}", position.line)
            }
            SettingOrigin::Preferences => f.write_str("saved preferences"),
            SettingOrigin::Variable(name) => write!(f, "environment variable {name}"),
            SettingOrigin::Flag(flag) => f.write_str(flag),
        }
    }
}

impl SettingOrigin {
    /// Text of the origin for errors: path, line and column for a file. Unlike `Display`, it does
    /// not say why a project's value applies, or that it was added to the user's list.
    pub fn place(&self) -> String {
        match self {
            SettingOrigin::File { name, position }
            | SettingOrigin::Project { name, position, .. } => format!("{name}:{position}"),
            other => other.to_string(),
        }
    }
}

impl Layers {
    /// The effective value of a dotted key. `None` if no layer sets the key and it has no default.
    pub fn get(&self, key: &str) -> Option<&Leaf> {
        self.leaves.get(key)
    }

    /// All effective values with their dotted keys, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Leaf)> {
        self.leaves.iter().map(|(key, leaf)| (key.as_str(), leaf))
    }

    /// A copy with the defaults of keys with `*`, for each name that is configured, such as
    /// `providers.local.timeouts.connect`.
    pub(crate) fn with_entry_defaults(&self) -> Layers {
        let mut all = self.clone();
        for key in schema::KEYS {
            let Some((group, field)) = key.path.split_once(".*.") else { continue };
            let Some(value) = key.default_value() else { continue };
            let group = format!("{group}.");
            let names = self.below(&group).filter_map(|(rest, _)| Some(rest.split_once('.')?.0));
            for name in names {
                let leaf = || Leaf::new(value.clone(), SettingOrigin::BuiltIn);
                all.leaves.entry(format!("{group}{name}.{field}")).or_insert_with(leaf);
            }
        }
        all
    }

    /// The leaves whose key begins with `beginning`, each with the part of its key that follows.
    pub(crate) fn below<'a>(
        &'a self,
        beginning: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Leaf)> {
        let leaves = self.leaves.range(beginning.to_owned()..);
        leaves.map_while(move |(key, leaf)| Some((key.strip_prefix(beginning)?, leaf)))
    }
}

/// Reads the layers, lowest first, and collects errors.
#[derive(Debug, Default)]
pub(crate) struct LayerReader {
    /// Effective values so far.
    pub(crate) layers: Layers,
    /// Warnings so far.
    pub(crate) notices: Vec<Notice>,
    /// Errors so far.
    pub(crate) failures: Vec<Failure>,
    /// Earlier values of the keys that an untrusted repository set; `None` if a key had no value.
    displaced: BTreeMap<String, Option<Leaf>>,
    /// The repository's file, once it was read. `None` if it is missing or cannot be read.
    pub(crate) project: Option<ProjectFile>,
    /// Resolved paths of the user's configuration files that contain an API key.
    pub(crate) key_files: Vec<PathBuf>,
    saved: Option<Saved>,
    /// `defaultProvider` and `model` before flags or the resumed session selected others for the
    /// main agent. `None` if they did not.
    below_flags: Option<ModelSelection>,
}

/// The saved provider, and the values that saved preferences replaced.
#[derive(Debug)]
struct Saved {
    provider: String,
    provider_before: Option<Leaf>,
    model_before: Option<Leaf>,
}

impl LayerReader {
    pub(crate) fn user_file(&mut self, path: &Path, reading: ReadPolicy) {
        let source = match ConfigFile::read(path, reading) {
            Ok(None) => return,
            Err(failure) => return self.failures.push(failure),
            Ok(Some(source)) => source,
        };
        self.judge_mode(&source);
        if has_key(&source) {
            self.key_files.extend(path.canonicalize());
        }
        let mut walk = Walk::of(&source);
        if walk.from_future {
            self.notices.push(from_future(&walk));
        } else {
            self.failures.append(&mut walk.failures);
        }
        let name: Arc<str> = source.name.as_str().into();
        for found in walk.found {
            let members = member_places(&name, &found.members);
            let origin = SettingOrigin::File { name: Arc::clone(&name), position: found.position };
            self.insert(found.key, found.path, Leaf { value: found.value, origin, members });
        }
    }

    /// Applies the saved provider and its saved model. Does nothing without a saved provider. A
    /// `model` of earlier layers remains only if no model is saved and they select that provider.
    pub(crate) fn preferences(&mut self, saved: Preferences) {
        let Some(provider) = saved.provider else { return };
        let same = self.layers.get("defaultProvider").is_some_and(|leaf| leaf.value == provider);
        let model_before = self.layers.leaves.get("model").cloned();
        if !same || saved.model.is_some() {
            self.layers.leaves.remove("model");
        }
        let chosen = |text: &str| Leaf::new(text.into(), SettingOrigin::Preferences);
        let leaves = &mut self.layers.leaves;
        let provider_before = leaves.insert("defaultProvider".to_owned(), chosen(&provider));
        if let Some(model) = &saved.model {
            leaves.insert("model".to_owned(), chosen(model));
        }
        self.saved = Some(Saved { provider, provider_before, model_before });
    }

    /// Undoes the saved preferences if the saved provider is in effect but neither configured nor
    /// built in. Returns the name of this provider, else `None`.
    fn ignore_unknown_provider(&mut self, is_preset: impl Fn(&str) -> bool) -> Option<String> {
        let name = self.saved.as_ref()?.provider.clone();
        let chosen = self.layers.get("defaultProvider");
        let counts = chosen.is_some_and(|leaf| leaf.origin == SettingOrigin::Preferences);
        let defined = self.layers.below(&format!("providers.{name}.")).next().is_some();
        if !counts || defined || is_preset(&name) {
            return None;
        }
        let saved = self.saved.take()?;
        self.restore("defaultProvider", saved.provider_before);
        self.restore("model", saved.model_before);
        Some(name)
    }

    /// Undoes the saved model if a later layer selected another provider than the saved one.
    fn part_from_saved(&mut self) {
        let Some(saved) = self.saved.take() else { return };
        let provider = self.layers.get("defaultProvider");
        if provider.is_none_or(|leaf| leaf.value != saved.provider) {
            self.restore("model", saved.model_before);
        }
    }

    /// Restores the value `before` that a saved preference replaced; `None` removes the key. Does
    /// nothing if another layer supplies the current value.
    fn restore(&mut self, key: &str, before: Option<Leaf>) {
        if self.layers.get(key).is_none_or(|leaf| leaf.origin == SettingOrigin::Preferences) {
            self.layers.leaves.remove(key);
            self.layers.leaves.extend(before.map(|leaf| (key.to_owned(), leaf)));
        }
    }

    fn notice(&mut self, code: ErrorCode, text: impl Into<String>) {
        self.notices.push(Notice { code, text: text.into() });
    }

    pub(crate) fn environment(&mut self, environment: &Environment) {
        for name in environment.names("POSSE_") {
            if let Some(oddity) = environment.oddity_of(name) {
                let text = format!("environment variable {name} {oddity}");
                self.notice(ErrorCode::VariableUnusable, text);
            }
            let Some(key) = schema::KEYS.iter().find(|key| key.variable == Some(name)) else {
                if !variables::is_known(name) {
                    let meant = nearest(name, schema::KEYS.iter().filter_map(|key| key.variable));
                    let hint =
                        meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
                    let text = format!("environment variable {name} is unknown{hint}");
                    self.notice(ErrorCode::ConfigUnknownKey, text);
                }
                continue;
            };
            if let (Some(text), Some(variable)) = (environment.get(name), key.variable) {
                self.set(key, &from_text(key.kind, text), SettingOrigin::Variable(variable));
            }
        }
    }

    /// Warns about variables with API keys, those of `presets` and of `apiKeyEnv`, that are set but
    /// cannot be read.
    pub(crate) fn key_variables(
        &mut self,
        environment: &Environment,
        presets: &[(&'static str, Option<&'static str>)],
    ) {
        let configured = self.layers.below("providers.");
        let configured = configured.filter(|(rest, _)| rest.ends_with(".apiKeyEnv"));
        let configured = configured.filter_map(|(_, leaf)| leaf.value.as_str());
        let names: BTreeSet<String> = presets
            .iter()
            .filter_map(|(_, key)| *key)
            .chain(configured)
            .map(str::to_owned)
            .collect();
        for name in names.iter().filter(|name| !environment.is_utf8(name)) {
            let text = format!("environment variable {name} is not UTF-8 and was ignored");
            self.notice(ErrorCode::VariableUnusable, text);
        }
    }

    pub(crate) fn flag(&mut self, path: &'static str, value: &Value, flag: &str) {
        let parts: Vec<&str> = path.split('.').collect();
        match schema::find(&parts) {
            Some(key) => {
                self.note_selection(key.path, flag);
                self.set(key, value, SettingOrigin::Flag(flag.to_owned()));
            }
            None => self.failures.push(Failure::new(
                ErrorCode::ConfigUnknownKey,
                Exit::Internal,
                format!("{flag} sets the unknown key \"{path}\""),
            )),
        }
    }

    /// Stores the selection of provider and model before a flag or the resumed session changes it.
    /// A slash command selects for all agents.
    fn note_selection(&mut self, key: &str, flag: &str) {
        if !matches!(key, "defaultProvider" | "model") || flag.starts_with('/') {
            return;
        }
        let text = |key| Some(self.layers.get(key)?.value.as_str()?.to_owned());
        let selection = ModelSelection { provider: text("defaultProvider"), model: text("model") };
        self.below_flags.get_or_insert(selection);
    }

    /// Provider and model for subagents without a profile of their own. `None`: those of the main
    /// agent. They are, unless flags or the resumed session selected for the main agent: if the
    /// configuration selects a provider, or the flags selected only a model.
    pub(crate) fn subagent_model(&self) -> Option<ModelSelection> {
        let configured = self.below_flags.clone()?;
        let text = |key| self.layers.get(key).and_then(|leaf| leaf.value.as_str());
        let (provider, model) = (text("defaultProvider"), text("model"));
        let same = configured.provider.as_deref() == provider;
        match (&configured.provider, same) {
            (None, false) => None,
            _ if same && configured.model.as_deref() == model => None,
            _ => Some(configured),
        }
    }

    /// Completes the merge after the last layer: drops values of a project that could redirect the
    /// user's API keys, undoes saved preferences that do not fit, adds defaults and reports
    /// conflicts. Returns the name of a saved provider that was ignored because it is neither
    /// configured nor built in (`is_preset`); otherwise `None`.
    pub(crate) fn finish(&mut self, is_preset: impl Fn(&str) -> bool) -> Option<String> {
        self.keep_providers_apart();
        let missing = self.ignore_unknown_provider(is_preset);
        self.part_from_saved();
        for key in schema::KEYS.iter().filter(|key| !key.path.contains('*')) {
            if let Some(value) = key.default_value() {
                let leaf = || Leaf::new(value, SettingOrigin::BuiltIn);
                self.layers.leaves.entry(key.path.to_owned()).or_insert_with(leaf);
            }
        }
        self.find_conflicts();
        missing
    }

    fn set(&mut self, key: &'static ConfigKey, value: &Value, origin: SettingOrigin) {
        let Err(expected) = check(key.kind, value) else {
            return self.insert(key, key.path.to_owned(), Leaf::new(value.clone(), origin));
        };
        let (exit, fix) = match &origin {
            SettingOrigin::Flag(flag) => {
                let fix = if flag.starts_with('/') {
                    format!("{flag} without an argument shows its values")
                } else {
                    format!("see {flag} in the help of the command")
                };
                (Exit::Usage, fix)
            }
            SettingOrigin::Variable(name) => {
                let sample = example(key);
                let fix = format!("correct it or leave it out; write it like {name}={sample}");
                (Exit::Configuration, fix)
            }
            _ => {
                let fix = format!("correct it or leave it out; {}", hint(key, key.path));
                (Exit::Configuration, fix)
            }
        };
        let what = mismatch(key.path, expected, value);
        let failure = Failure::new(ErrorCode::ConfigInvalidValue, exit, what);
        self.failures.push(failure.at(origin.to_string()).fix(fix));
    }

    fn insert(&mut self, key: &'static ConfigKey, path: String, leaf: Leaf) {
        let Leaf { value, origin, mut members } = leaf;
        let secret = matches!(key.kind, ValueKind::Secret | ValueKind::TextMap);
        if !secret && value.as_str().is_some_and(looks_like_key) {
            let text =
                format!("{path} looks like a secret ({origin}); name a variable in apiKeyEnv");
            self.notice(ErrorCode::ConfigPlainSecret, text);
        }
        // A file does not replace the hooks of another file. A project's hooks are joined already.
        let joins = key.path == "hooks" && !matches!(origin, SettingOrigin::Project { .. });
        let before = self.layers.get(&path).filter(|_| joins);
        let value = match (before.and_then(|before| before.value.as_array()), value) {
            (Some(values), Value::Array(more)) => {
                let earlier = before.map(|before| before.members.clone()).unwrap_or_default();
                members = earlier.into_iter().chain(members).collect();
                values.iter().cloned().chain(more).collect()
            }
            (_, value) => value,
        };
        self.layers.leaves.insert(path, Leaf { value, origin, members });
    }

    /// Warns if the file belongs to another user, or if other users can change the file or read an
    /// API key in it. The file is used in each case.
    fn judge_mode(&mut self, source: &ConfigFile) {
        let text = if source.is_foreign {
            "belongs to another user"
        } else if source.mode & 0o022 != 0 {
            "can be changed by other users"
        } else if source.mode & 0o044 != 0 && has_key(source) {
            "holds a secret and can be read by other users"
        } else {
            return;
        };
        let fix = if source.is_foreign { "run chown on it" } else { "run chmod 600 on it" };
        let text = format!("{} {text}; {fix}", source.name);
        self.notice(ErrorCode::FileNotTrusted, text);
    }
}

/// Places of list members at `positions` of the file `name`.
fn member_places(name: &str, positions: &[Position]) -> Vec<String> {
    positions.iter().map(|position| format!("{name}:{position}")).collect()
}

/// True if the file may contain an API key: the name `"apiKey"`, also in a comment, or a quoted
/// text that looks like a key of a well-known service.
fn has_key(source: &ConfigFile) -> bool {
    source.text.contains("\"apiKey\"") || source.text.split(['"', '\'']).any(looks_like_key)
}

/// Notice that a file has a later format version and that its unknown keys were skipped.
fn from_future(walk: &Walk<'_>) -> Notice {
    let skipped = match walk.failures.len() {
        0 => String::new(),
        count => format!("; {count} of its keys are unknown and were skipped"),
    };
    let name = &walk.source.name;
    let text = format!(
        "{name} was written for version {} of the format, this is version {}; opened read-only\
         {skipped}",
        walk.version,
        schema::VERSION
    );
    Notice { code: ErrorCode::ConfigLaterVersion, text }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<String> = names.map(|name| format!("\"{}\"", clipped_name(name))).collect();
    let (shown, rest) = all.split_at(all.len().min(NAMES_MAX));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    format!("{}{more}", shown.join(", "))
}

/// Error about a key that earlier versions accepted without effect.
pub(crate) fn removed(path: &str) -> Failure {
    let what = clipped_name(&format!("this version has no setting \"{path}\""));
    crate::invalid(ErrorCode::ConfigUnknownKey, what)
        .because("earlier versions accepted it without effect")
        .fix("remove it")
}

/// Cuts a text that quotes a name from a file after [`TEXT_CHARS_MAX`] characters and appends `…`,
/// because a name can be as long as the file.
fn clipped_name(text: &str) -> String {
    clipped(text, TEXT_CHARS_MAX, "…")
}

#[cfg(test)]
mod tests;
