//! Configuration keys: type, range, default, and permitted sources.

mod keys;
mod removed;

use serde_json::{Value, json};

pub(crate) use keys::KEYS;
pub(crate) use removed::was_key;

/// Latest version of the configuration format that this program knows.
pub(crate) const VERSION: i64 = 1;

/// A configuration key, with its type, its default, and the sources that may set it.
#[derive(Debug)]
pub(crate) struct ConfigKey {
    /// Names separated by dots; `*` matches any name.
    pub(crate) path: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) default: BuiltIn,
    pub(crate) project: Project,
    /// Environment variable that sets the key, if there is one.
    pub(crate) variable: Option<&'static str>,
    /// One-sentence description.
    pub(crate) about: &'static str,
}

/// Type of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ValueKind {
    Bool,
    Text,
    /// A text that is redacted in output.
    Secret,
    /// The name of an environment variable.
    Variable,
    /// A URL with `http://` or `https://` and without user name and password, or with `file:///`.
    Address,
    Choice(&'static [&'static str]),
    Whole(i64, i64),
    /// A whole number between two inclusive bounds, or the text `auto`.
    WholeOrAuto(i64, i64),
    /// A number between two inclusive bounds.
    Number(f64, f64),
    /// A whole number with a unit, above zero and at most 720 hours: `90s`, `10m`, `2h`, `500ms`.
    Duration,
    TextList,
    /// A program with its arguments: a list of texts that is not empty.
    CommandLine,
    ObjectList,
    TextMap,
    /// An object of objects, whose members are not checked. Each object is a separate setting.
    ObjectMap,
    /// Any JSON value, not checked. Each member of an object is a separate setting.
    Any,
}

impl ValueKind {
    /// Two descriptions of valid values: for the reference of all keys, and for error messages.
    pub(crate) fn words(self) -> [String; 2] {
        let texts = match self {
            ValueKind::Bool => ["true or false", "true or false"],
            ValueKind::Text => ["text", "a text of one line"],
            ValueKind::Secret => ["text, a secret", "a text of one line"],
            ValueKind::Variable => [
                "name of a variable",
                "the name of an environment variable, such as \"OPENAI_API_KEY\"",
            ],
            ValueKind::Address => [
                "address: http://, https:// or file:///",
                "an address with http:// or https:// and without a password",
            ],
            ValueKind::Choice(names) => {
                let all = |mark: char| names.iter().map(move |name| format!("{mark}{name}{mark}"));
                let [short, long] = ['`', '"'].map(|mark| all(mark).collect::<Vec<_>>().join(", "));
                return [short, format!("one of {long}")];
            }
            ValueKind::Whole(least, most) => {
                let text = format!("whole number {least}–{most}");
                return [text.clone(), format!("a {text}")];
            }
            ValueKind::WholeOrAuto(least, most) => {
                let text = format!("whole number {least}–{most}, or ");
                return [format!("{text}`auto`"), format!("a {text}\"auto\"")];
            }
            ValueKind::Number(least, most) => {
                let text = format!("number {least}–{most}");
                return [text.clone(), format!("a {text}")];
            }
            ValueKind::Duration => [
                "time: `500ms`, `90s`, `10m`, `2h`",
                "a time such as \"90s\", \"10m\" or \"2h\", at most 720h",
            ],
            ValueKind::TextList => ["list of texts", "a list of texts"],
            ValueKind::CommandLine => {
                ["list of texts, not empty", "a list with a program and its arguments, not empty"]
            }
            ValueKind::ObjectList => ["list of objects", "a list of objects, and nothing else"],
            ValueKind::TextMap => ["object of texts", "an object of texts"],
            ValueKind::ObjectMap => ["object of objects", "an object of objects"],
            ValueKind::Any => ["anything", "any value"],
        };
        texts.map(str::to_owned)
    }
}

/// Default value of a key. `None`: the key has no default.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BuiltIn {
    None,
    Bool(bool),
    Whole(i64),
    Text(&'static str),
    /// A value of the kernel, which defines the default.
    Of(fn() -> Value),
}

/// Condition under which a repository may set a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Project {
    /// Always: the key can do no harm.
    Harmless,
    /// Once the user trusts the project.
    Trusted,
    /// Once the user trusts the project, and only for a provider that the project itself adds.
    /// So a repository cannot redirect the user's API keys.
    OwnProvider,
    /// Once the user trusts the project, and only to a stricter value: a sandbox mode or network
    /// access at least as strict as the user's, `true` for a switch, permission rules that deny or
    /// ask.
    Tighten,
    /// Never: only the user decides about the key.
    Never,
}

impl ConfigKey {
    const fn variable(mut self, name: &'static str) -> ConfigKey {
        self.variable = Some(name);
        self
    }

    pub(crate) fn default_value(&self) -> Option<Value> {
        match self.default {
            BuiltIn::None => None,
            BuiltIn::Bool(on) => Some(json!(on)),
            BuiltIn::Whole(number) => Some(json!(number)),
            BuiltIn::Text(text) => Some(json!(text)),
            BuiltIn::Of(value) => Some(value()),
        }
    }

    /// The names that follow `path` in this key's path; empty if the two are equal. Returns `None`
    /// if this key's path does not begin with `path`.
    fn strip(&self, path: &[&str]) -> Option<std::str::Split<'static, char>> {
        let mut parts = self.path.split('.');
        let mut path = path.iter();
        path.all(|given| parts.next().is_some_and(|part| part == "*" || part == *given))
            .then_some(parts)
    }
}

/// Finds the key whose whole path matches `path`; `*` in the path of a key matches any name. `None`
/// if there is no such key, also if `path` is only the beginning of one.
pub(crate) fn find(path: &[&str]) -> Option<&'static ConfigKey> {
    group(path).iter().find(|key| key.strip(path).is_some_and(|mut rest| rest.next().is_none()))
}

/// Names that may follow `path` in the path of a key, with repetitions; `*` stands for any name.
/// Empty if no key is below `path`.
pub(crate) fn children<'a>(path: &'a [&'a str]) -> impl Iterator<Item = &'static str> + 'a {
    group(path).iter().filter_map(|key| key.strip(path)?.next())
}

/// The keys whose path begins with the first name of `path`; all keys if `path` is empty.
fn group(path: &[&str]) -> &'static [ConfigKey] {
    let Some(first) = path.first() else { return KEYS };
    let part = |key: &ConfigKey| key.path.split('.').next().unwrap_or_default();
    let start = KEYS.partition_point(|key| part(key) < *first);
    let rest = KEYS.get(start..).unwrap_or_default();
    let end = rest.partition_point(|key| part(key) == *first);
    rest.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
