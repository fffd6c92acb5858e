//! Walk through a configuration file: collects its settings and mistakes, with positions.

use std::collections::HashMap;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use posse_base::failure::{ErrorCode, Failure, nearest};
use serde_json::{Map, Number, Value};

use super::{check, clipped_name, mismatch};
use crate::file::{ConfigFile, newlines};
use crate::invalid;
use crate::layers::{Position, hint, removed};
use crate::schema::{self, ConfigKey, ValueKind};

/// Maximum number of mistakes that are collected for one file. At this number the walk stops, and
/// one more error says that the list is not complete.
const FAILURES_MAX: usize = 20;

/// One valid setting in a file. `path` is its dotted key. `position` is that of its value; for a
/// member of an open-ended object, that of its name.
pub(crate) struct ConfigLeaf {
    pub(crate) key: &'static ConfigKey,
    pub(crate) path: String,
    pub(crate) value: Value,
    pub(crate) position: Position,
    /// Positions of the members of a list; empty for another value.
    pub(crate) members: Vec<Position>,
}

/// Result of a walk through one file from top to bottom: its valid settings (`found`) and its
/// mistakes (`failures`).
pub(crate) struct Walk<'a> {
    pub(crate) source: &'a ConfigFile,
    pub(crate) found: Vec<ConfigLeaf>,
    pub(crate) failures: Vec<Failure>,
    /// Format version that the file states; the current one if it states none.
    pub(crate) version: i64,
    /// True if `version` is later than the version that this program knows.
    pub(crate) from_future: bool,
    /// Byte offset up to which lines and columns were counted, and the position of this offset.
    counted: (usize, Position),
}

impl<'a> Walk<'a> {
    /// Collects the settings and mistakes of `source`.
    pub(crate) fn of(source: &'a ConfigFile) -> Walk<'a> {
        let mut walk = Walk {
            source,
            found: Vec::new(),
            failures: Vec::new(),
            version: schema::VERSION,
            from_future: false,
            counted: (0, Position { line: 1, column: 1 }),
        };
        match source.parse() {
            Err(failure) => walk.failures.push(failure),
            Ok(None) => {}
            Ok(Some(object)) => walk.object(&object, &mut Vec::new()),
        }
        if walk.is_full() {
            let what = format!("only the first {FAILURES_MAX} mistakes of this file are listed");
            let failure = invalid(ErrorCode::ConfigTooManyMistakes, what);
            walk.failures.push(failure.at(source.name.clone()));
        }
        walk
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
        if let Some(what) = misnamed(&parts) {
            return self.fail(ErrorCode::ConfigInvalidValue, &what, property, None);
        }
        if let Some(key) = schema::find(&parts) {
            return self.leaf(key, &parts.join("."), property);
        }
        if schema::children(&parts).next().is_some() {
            if let ast::Value::Object(group) = &property.value {
                return self.object(group, path);
            }
            let value = self.value(&property.value);
            let what = mismatch(&parts.join("."), "an object".into(), &value);
            return self.fail(ErrorCode::ConfigInvalidValue, &what, property, None);
        }
        if schema::was_key(&parts) {
            let place = self.source.place(property.range.start);
            self.failures.push(removed(&parts.join(".")).at(place));
            return;
        }
        let (name, above) = (parts[parts.len() - 1], &parts[..parts.len() - 1]);
        let nested: Vec<&str> = above.iter().copied().chain(name.split('.')).collect();
        let fix = if name.contains('.') && schema::find(&nested).is_some() {
            Some(format!("nest it: {}", check::nested(name)))
        } else {
            let known = schema::children(above).filter(|name| *name != "*");
            nearest(name, known).map(|meant| format!("did you mean \"{meant}\"?"))
        };
        self.fail(
            ErrorCode::ConfigUnknownKey,
            &format!("unknown key \"{}\"", parts.join(".")),
            property,
            fix,
        );
    }

    fn leaf(&mut self, key: &'static ConfigKey, path: &str, property: &ast::ObjectProp<'_>) {
        let value = self.value(&property.value);
        if let (ValueKind::ObjectMap, ast::Value::Object(object)) = (key.kind, &property.value)
            && self.other_than_objects(key, path, object)
        {
            return;
        }
        if let Err(expected) = check(key.kind, &value) {
            if let Some((nth, expected)) = check::first_wrong_member(key.kind, &value)
                && let ast::Value::Array(array) = &property.value
                && let Some(member) = array.elements.get(nth)
            {
                let what = mismatch(&format!("{path}[{nth}]"), expected, &value[nth]);
                return self.fail_at(
                    ErrorCode::ConfigInvalidValue,
                    &what,
                    member.range().start,
                    None,
                );
            }
            let fix = hint(key, path);
            return self.fail(
                ErrorCode::ConfigInvalidValue,
                &mismatch(path, expected, &value),
                property,
                Some(fix),
            );
        }
        if key.path == "providers.*.auth" && value.as_str().is_some_and(check::is_own_header) {
            let what = format!("{path}: posse sets the header {value} of each request itself");
            let fix = "name the header in which the server expects the key".to_owned();
            return self.fail(ErrorCode::ConfigInvalidValue, &what, property, Some(fix));
        }
        if matches!(key.kind, ValueKind::TextList | ValueKind::ObjectList)
            && let Some(bomb) = check::excessive_pattern(&value)
        {
            let bomb: String = bomb.chars().take(40).collect();
            let what = format!("{path}: the pattern \"{bomb}…\" expands to too many paths");
            let fix = "use ** or fewer alternatives in braces".to_owned();
            return self.fail(ErrorCode::PatternTooWide, &what, property, Some(fix));
        }
        if key.path == "version" {
            self.version = value.as_i64().unwrap_or(schema::VERSION);
            self.from_future = self.version > schema::VERSION;
            return;
        }
        let position = self.position(property.value.range().start);
        // Each member of an open-ended object is a separate setting, so that layers merge.
        if matches!(key.kind, ValueKind::TextMap | ValueKind::ObjectMap | ValueKind::Any)
            && let Value::Object(entries) = value
        {
            if let ast::Value::Object(object) = &property.value {
                self.unusable_headers(key, path, object);
            }
            let positions = self.member_positions(&property.value);
            self.found.extend(entries.into_iter().map(|(name, value)| {
                let position = positions.get(&name).copied().unwrap_or(position);
                let path = format!("{path}.{name}");
                ConfigLeaf { key, path, value, position, members: Vec::new() }
            }));
        } else {
            let members = match &property.value {
                ast::Value::Array(array) => {
                    let starts = array.elements.iter().map(|element| element.range().start);
                    starts.map(|start| self.position(start)).collect()
                }
                _ => Vec::new(),
            };
            self.found.push(ConfigLeaf { key, path: path.to_owned(), value, position, members });
        }
    }

    /// Reports the members of `object`, the value of `key`, that are not objects. True if there are
    /// any.
    fn other_than_objects(
        &mut self,
        key: &'static ConfigKey,
        path: &str,
        object: &ast::Object<'_>,
    ) -> bool {
        let mut any = false;
        for property in &object.properties {
            let value = self.value(&property.value);
            if !value.is_object() && !self.is_full() {
                any = true;
                let what = mismatch(
                    &format!("{path}.{}", property.name.as_str()),
                    "an object".into(),
                    &value,
                );
                let fix = hint(key, path);
                self.fail(ErrorCode::ConfigInvalidValue, &what, property, Some(fix));
            }
        }
        any
    }

    /// Reports the headers in `object`, the value of `key` if that is `providers.*.headers`, that
    /// posse sets itself.
    fn unusable_headers(&mut self, key: &'static ConfigKey, path: &str, object: &ast::Object<'_>) {
        if key.path != "providers.*.headers" {
            return;
        }
        for property in &object.properties {
            let name = property.name.as_str();
            if check::is_own_header(name) && !self.is_full() {
                let what = format!("{path}.{name}: posse sets this header of each request itself");
                let fix = "remove it; only other headers can be added".to_owned();
                self.fail(ErrorCode::ConfigInvalidValue, &what, property, Some(fix));
            }
        }
    }

    /// Position of each member of an object, by its name; empty for another value.
    fn member_positions(&mut self, value: &ast::Value<'_>) -> HashMap<String, Position> {
        let ast::Value::Object(object) = value else { return HashMap::new() };
        let mut positions = HashMap::with_capacity(object.properties.len());
        for property in &object.properties {
            let position = self.position(property.range.start);
            positions.insert(property.name.as_str().to_owned(), position);
        }
        positions
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
                let (line, _) = self.source.line_and_column(before);
                let what =
                    format!("\"{}\" is set twice; the first is on line {line}", all.join("."));
                let fix = "remove one; the later one would win".to_owned();
                self.fail(ErrorCode::ConfigDuplicateKey, &what, property, Some(fix));
            }
        }
    }

    /// True if [`FAILURES_MAX`] mistakes were collected. The number is limited because finding the
    /// line of a mistake costs a pass over the file.
    fn is_full(&self) -> bool {
        self.failures.len() >= FAILURES_MAX
    }

    /// The position of a byte offset. Counts on from the offset of the previous call, or from the
    /// beginning if that offset was larger.
    fn position(&mut self, offset: usize) -> Position {
        let beginning = (0, Position { line: 1, column: 1 });
        let (start, before) = if offset >= self.counted.0 { self.counted } else { beginning };
        let passed = self.source.text.get(start..offset).unwrap_or_default();
        let column = match passed.rfind('\n') {
            Some(end) => passed[end..].chars().count(),
            None => before.column + passed.chars().count(),
        };
        let position = Position { line: before.line + newlines(passed.as_bytes()), column };
        self.counted = (offset, position);
        position
    }

    fn fail(
        &mut self,
        code: ErrorCode,
        what: &str,
        property: &ast::ObjectProp<'_>,
        fix: Option<String>,
    ) {
        self.fail_at(code, what, property.range.start, fix);
    }

    fn fail_at(&mut self, code: ErrorCode, what: &str, offset: usize, fix: Option<String>) {
        let place = self.source.place(offset);
        let mut failure = invalid(code, clipped_name(what)).at(place);
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

/// Error message if `path` ends with an invalid name of a provider, tool or model; otherwise
/// `None`.
fn misnamed(path: &[&str]) -> Option<String> {
    match path {
        ["providers", name] if !check::is_name(name) => {
            Some(format!("\"{name}\" cannot name a provider: use letters, digits, - and _"))
        }
        ["tools", "budgets", name] if !check::is_name(name) => {
            Some(format!("\"{name}\" cannot name a tool: use letters, digits, - and _"))
        }
        ["models", name] if !check::is_model(name) => {
            Some(format!("\"{name}\" cannot name a model: use 1-200 characters without spaces"))
        }
        _ => None,
    }
}
