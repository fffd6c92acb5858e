//! Merging: every leaf of every layer is checked against the schema and remembered with its
//! origin; a later layer replaces an earlier one's leaf.

mod check;

pub(crate) use check::duration;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use serde_json::{Map, Number, Value};

use crate::config::environment::Environment;
use crate::config::file::{Reading, Source, invalid, newlines};
use crate::config::schema::{self, Key, Kind, Project};
use crate::config::{Notice, looks_like_key};
use crate::failure::{Exit, Failure, nearest};

/// Mistakes of one file that are listed; the rest is counted.
const FAILURES_MAX: usize = 20;
/// Keys that are named in one notice.
const NAMES_MAX: usize = 8;
/// Characters of a message that a file's own words are part of.
const TEXT_CHARS_MAX: usize = 300;

/// Every leaf that counts, by its dotted key.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    leaves: BTreeMap<String, Leaf>,
}

/// A value and who set it.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// The value, as it was checked.
    pub value: Value,
    /// Who set it.
    pub origin: Origin,
}

/// Who set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody.
    BuiltIn,
    /// A file.
    File {
        /// Its path, printable.
        name: Arc<str>,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(&'static str),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::BuiltIn => f.write_str("built in"),
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Variable(name) => write!(f, "environment variable {name}"),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

impl Layers {
    /// The leaf at a dotted key.
    pub fn get(&self, key: &str) -> Option<&Leaf> {
        self.leaves.get(key)
    }

    /// Every leaf, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Leaf)> {
        self.leaves.iter().map(|(key, leaf)| (key.as_str(), leaf))
    }

    /// The leaves whose key begins with `beginning`, with the rest of their keys.
    pub(crate) fn below<'a>(
        &'a self,
        beginning: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Leaf)> {
        let leaves = self.leaves.range(beginning.to_owned()..);
        leaves.map_while(move |(key, leaf)| Some((key.strip_prefix(beginning)?, leaf)))
    }
}

/// Reads layer after layer, lowest first, and collects what is wrong.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    layers: Layers,
    notices: Vec<Notice>,
    failures: Vec<Failure>,
    inactive: BTreeSet<String>,
}

impl Reader {
    pub(crate) fn user_file(&mut self, path: &Path, reading: Reading) {
        match Source::read(path, reading) {
            Ok(None) => {}
            Err(failure) => self.failures.push(failure),
            Ok(Some(source)) => {
                self.judge_mode(&source);
                let mut walk = Walk::new(&source);
                walk.file();
                self.failures.append(&mut walk.failures);
                self.take(walk, |_| true);
            }
        }
    }

    /// A repository's file. What is wrong with it stops nobody unless it is trusted.
    pub(crate) fn project_file(&mut self, path: &Path, trusted: bool) {
        let source = match Source::read(path, Reading::Foreign) {
            Ok(None) => return,
            Ok(Some(source)) => source,
            Err(failure) if trusted => return self.failures.push(failure),
            Err(failure) => {
                let text = format!("{}; ignored ({})", failure.what, path.display());
                return self.notices.push(Notice { code: failure.code, text });
            }
        };
        let mut walk = Walk::new(&source);
        walk.file();
        if trusted {
            self.failures.append(&mut walk.failures);
        } else if let Some(first) = walk.failures.first() {
            let more = match walk.failures.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let text = format!("{}{more}; ignored ({})", first.what, source.name);
            self.notices.push(Notice { code: first.code, text });
        }
        let allowed = |key: &Key| match key.project {
            Project::Harmless => true,
            Project::Trusted => trusted,
            Project::Never => false,
        };
        let refused: BTreeSet<&str> = walk
            .found
            .iter()
            .filter(|found| !allowed(found.key))
            .map(|found| found.path.as_str())
            .collect();
        if !refused.is_empty() {
            let text = format!(
                "{} cannot be set by a repository; ignored ({})",
                names(refused.into_iter()),
                source.name
            );
            self.notices.push(Notice { code: "CFG005", text });
        }
        self.take(walk, allowed);
    }

    pub(crate) fn environment(&mut self, environment: &Environment) {
        const OTHERS: [&str; 2] = ["POSSE_HOME", "POSSE_CONFIG"];
        let known = || schema::KEYS.iter().filter_map(|key| key.variable);
        for name in environment.names("POSSE_") {
            if let Some(oddity) = environment.oddity(name) {
                let text = format!("environment variable {name} {oddity}");
                self.notices.push(Notice { code: "CFG018", text });
            }
            let Some(key) = schema::KEYS.iter().find(|key| key.variable == Some(name)) else {
                if !OTHERS.contains(&name) {
                    let meant = nearest(name, known());
                    let hint = meant.map(|meant| format!("; did you mean {meant}?"));
                    let hint = hint.unwrap_or_default();
                    let text = format!("environment variable {name} means nothing{hint}");
                    self.notices.push(Notice { code: "CFG002", text });
                }
                continue;
            };
            let (Some(text), Some(variable)) = (environment.get(name), key.variable) else {
                continue;
            };
            let value = check::from_text(key.kind, text);
            self.set(key, &value, Origin::Variable(variable));
        }
    }

    pub(crate) fn flag(&mut self, path: &'static str, value: &Value, flag: &str) {
        let parts: Vec<&str> = path.split('.').collect();
        match schema::find(&parts) {
            Some(key) => self.set(key, value, Origin::Flag(flag.to_owned())),
            None => self.failures.push(Failure::new(
                "CFG002",
                Exit::Internal,
                format!("{flag} sets the unknown key \"{path}\""),
            )),
        }
    }

    /// What counts, what should be said, and what is wrong.
    pub(crate) fn finish(mut self) -> (Layers, Vec<Notice>, Vec<Failure>) {
        for key in schema::KEYS {
            if let Some(value) = key.default_value() {
                let leaf = || Leaf { value, origin: Origin::BuiltIn };
                self.layers.leaves.entry(key.path.to_owned()).or_insert_with(leaf);
            }
        }
        if !self.inactive.is_empty() {
            let names = names(self.inactive.iter().map(String::as_str));
            let text = format!("{names}: accepted, but without effect in this version");
            self.notices.push(Notice { code: "CFG017", text });
        }
        (self.layers, self.notices, self.failures)
    }

    fn set(&mut self, key: &'static Key, value: &Value, origin: Origin) {
        match check::check(key.kind, value) {
            Ok(()) => self.insert(key, key.path.to_owned(), value.clone(), origin),
            Err(expected) => {
                let what = check::mismatch(key.path, expected, value);
                let usage = matches!(origin, Origin::Flag(_));
                let exit = if usage { Exit::Usage } else { Exit::Configuration };
                self.failures.push(Failure::new("CFG003", exit, what).at(origin.to_string()));
            }
        }
    }

    fn insert(&mut self, key: &'static Key, path: String, value: Value, origin: Origin) {
        let secret = matches!(key.kind, Kind::Secret | Kind::TextMap);
        if !secret && value.as_str().is_some_and(looks_like_key) {
            let text =
                format!("{path} looks like a secret ({origin}); name a variable in apiKeyEnv");
            self.notices.push(Notice { code: "CFG015", text });
        }
        let multi =
            key.path == "agentMode" && value.as_str().is_some_and(|mode| mode.starts_with("multi"));
        if !key.active || multi {
            self.inactive.insert(path.clone());
        }
        self.layers.leaves.insert(path, Leaf { value, origin });
    }

    fn take(&mut self, walk: Walk<'_>, allowed: impl Fn(&Key) -> bool) {
        let name: Arc<str> = walk.source.name.as_str().into();
        for found in walk.found {
            if allowed(found.key) {
                let origin = Origin::File { name: Arc::clone(&name), line: found.line };
                self.insert(found.key, found.path, found.value, origin);
            }
        }
    }

    /// Says so when others could change the file or read keys in it.
    fn judge_mode(&mut self, source: &Source) {
        let has_key = || source.text.split(['"', '\'']).any(looks_like_key);
        let text = if source.mode & 0o022 != 0 {
            "can be changed by other users"
        } else if source.mode & 0o044 != 0 && has_key() {
            "holds a secret and can be read by other users"
        } else {
            return;
        };
        let text = format!("{} {text}; run chmod 600 on it", source.name);
        self.notices.push(Notice { code: "CFG010", text });
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<String> = names.map(|name| format!("\"{}\"", shortened(name))).collect();
    let (shown, rest) = all.split_at(all.len().min(NAMES_MAX));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    format!("{}{more}", shown.join(", "))
}

/// Hostile names can be as long as the file.
fn shortened(text: &str) -> String {
    let cut = if text.chars().nth(TEXT_CHARS_MAX).is_some() { "…" } else { "" };
    text.chars().take(TEXT_CHARS_MAX).chain(cut.chars()).collect()
}

/// One leaf of a file.
struct Found {
    key: &'static Key,
    path: String,
    value: Value,
    line: usize,
}

/// Goes through one file from top to bottom.
struct Walk<'a> {
    source: &'a Source,
    found: Vec<Found>,
    failures: Vec<Failure>,
    /// Up to where lines were counted, and how many.
    counted: (usize, usize),
}

impl<'a> Walk<'a> {
    fn new(source: &'a Source) -> Walk<'a> {
        Walk { source, found: Vec::new(), failures: Vec::new(), counted: (0, 1) }
    }

    fn file(&mut self) {
        let source = self.source;
        match source.parse() {
            Err(failure) => self.failures.push(failure),
            Ok(None) => {}
            Ok(Some(object)) => self.object(&object, &mut Vec::new()),
        }
        if self.is_full() {
            let what = format!("only the first {FAILURES_MAX} mistakes of this file are listed");
            self.failures.push(invalid("CFG002", what).at(self.source.name.clone()));
        }
    }

    fn object(&mut self, object: &ast::Object<'_>, path: &mut Vec<String>) {
        self.find_duplicates(object, path);
        for property in &object.properties {
            if self.is_full() {
                return;
            }
            let name = property.name.as_str();
            if path.is_empty() && name == "$schema" {
                continue;
            }
            path.push(name.to_owned());
            self.property(property, path);
            path.pop();
        }
    }

    fn property(&mut self, property: &ast::ObjectProp<'_>, path: &mut Vec<String>) {
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        if let [group, name] = parts.as_slice()
            && *group == "providers"
            && !check::is_name(name)
        {
            let what = format!("\"{name}\" cannot name a provider: use letters, digits, - and _");
            return self.fail("CFG003", &what, property, None);
        }
        if let Some(key) = schema::find(&parts) {
            return self.leaf(key, &parts.join("."), property);
        }
        if schema::children(&parts).next().is_some() {
            if let ast::Value::Object(group) = &property.value {
                return self.object(group, path);
            }
            let value = self.value(&property.value);
            let what = check::mismatch(&parts.join("."), "an object".into(), &value);
            return self.fail("CFG003", &what, property, None);
        }
        let (name, above) = (parts[parts.len() - 1], &parts[..parts.len() - 1]);
        let nested: Vec<&str> = above.iter().copied().chain(name.split('.')).collect();
        let fix = if name.contains('.') && schema::find(&nested).is_some() {
            Some(format!("nest it: {}", check::nested(name)))
        } else {
            let known = schema::children(above).filter(|name| *name != "*");
            nearest(name, known).map(|meant| format!("did you mean \"{meant}\"?"))
        };
        self.fail("CFG002", &format!("unknown key \"{}\"", parts.join(".")), property, fix);
    }

    fn leaf(&mut self, key: &'static Key, path: &str, property: &ast::ObjectProp<'_>) {
        let value = self.value(&property.value);
        if let Err(expected) = check::check(key.kind, &value) {
            return self.fail("CFG003", &check::mismatch(path, expected, &value), property, None);
        }
        let line = self.line(property.value.range().start);
        // The parts of an open-ended object are leaves of their own, so that layers merge.
        if matches!(key.kind, Kind::TextMap | Kind::Any)
            && let Value::Object(entries) = value
        {
            self.found.extend(entries.into_iter().map(|(name, value)| Found {
                key,
                path: format!("{path}.{name}"),
                value,
                line,
            }));
        } else {
            self.found.push(Found { key, path: path.to_owned(), value, line });
        }
    }

    fn find_duplicates(&mut self, object: &ast::Object<'_>, path: &[String]) {
        let mut seen: HashMap<&str, usize> = HashMap::with_capacity(object.properties.len());
        for property in &object.properties {
            let at = property.range.start;
            if let Some(before) = seen.insert(property.name.as_str(), at)
                && !self.is_full()
            {
                let above = path.iter().map(String::as_str);
                let all: Vec<&str> = above.chain([property.name.as_str()]).collect();
                let line = self.source.line(before);
                let what =
                    format!("\"{}\" is set twice; the first is on line {line}", all.join("."));
                let fix = "remove one; the later one would win".to_owned();
                self.fail("CFG004", &what, property, Some(fix));
            }
        }
    }

    /// Finding a place costs a pass over the file, and a hostile one has as many mistakes as lines.
    fn is_full(&self) -> bool {
        self.failures.len() >= FAILURES_MAX
    }

    /// The line of an offset, counted on from the offset before, which is usually a smaller one.
    fn line(&mut self, offset: usize) -> usize {
        let text = self.source.text.as_bytes();
        let (start, line) = if offset >= self.counted.0 { self.counted } else { (0, 1) };
        let passed = text.get(start..offset).unwrap_or_default();
        let line = line + newlines(passed);
        self.counted = (offset, line);
        line
    }

    fn fail(
        &mut self,
        code: &'static str,
        what: &str,
        property: &ast::ObjectProp<'_>,
        fix: Option<String>,
    ) {
        let place = self.source.place(property.range.start);
        let mut failure = invalid(code, shortened(what)).at(place);
        failure.fix = fix;
        self.failures.push(failure);
    }

    fn value(&mut self, value: &ast::Value<'_>) -> Value {
        match value {
            ast::Value::StringLit(text) => Value::String(text.value.clone().into_owned()),
            ast::Value::NumberLit(number) => {
                number.value.parse::<Number>().map_or(Value::Null, Value::Number)
            }
            ast::Value::BooleanLit(on) => Value::Bool(on.value),
            ast::Value::NullKeyword(_) => Value::Null,
            ast::Value::Array(array) => {
                array.elements.iter().map(|element| self.value(element)).collect()
            }
            ast::Value::Object(object) => {
                self.find_duplicates(object, &[]);
                let mut entries = Map::new();
                for property in &object.properties {
                    let value = self.value(&property.value);
                    entries.insert(property.name.as_str().to_owned(), value);
                }
                Value::Object(entries)
            }
        }
    }
}
