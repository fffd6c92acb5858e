//! The user's own rules: `{tool, match: {pathGlob?, commandPrefix?}, decision, reason?}`.

use globset::{GlobBuilder, GlobMatcher};
use posse_actors::ports::{Action, Operation};
use serde::Deserialize;
use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::permission::shell::Script;

pub(crate) const GLOB_BYTES_MAX: usize = 512;
const RULES_MAX: usize = 1000;

/// A rule, ready to be compared with.
#[derive(Debug)]
pub(crate) struct Rule {
    tool: String,
    glob: Option<(String, GlobMatcher)>,
    prefix: Option<Vec<String>>,
    pub(crate) decision: Decision,
    pub(crate) reason: Option<String>,
    /// As the user wrote it.
    pub(crate) text: String,
}

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    Allow,
    Ask,
    Deny,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    tool: String,
    #[serde(default, rename = "match")]
    matching: Matching,
    decision: Decision,
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Matching {
    path_glob: Option<String>,
    command_prefix: Option<String>,
}

/// Compiles all rules, or says what is wrong with each that makes no sense.
pub(crate) fn compile(written: &[Value]) -> Result<Vec<Rule>, Vec<Failure>> {
    let mut rules = Vec::with_capacity(written.len().min(RULES_MAX));
    let mut failures = Vec::new();
    for (index, value) in written.iter().enumerate() {
        if index == RULES_MAX {
            failures.push(refused(index, &format!("there are more than {RULES_MAX} rules")));
            break;
        }
        match Rule::compile(value) {
            Ok(rule) => rules.push(rule),
            Err(why) => failures.push(refused(index, &why)),
        }
    }
    if failures.is_empty() { Ok(rules) } else { Err(failures) }
}

fn refused(index: usize, why: &str) -> Failure {
    let what = format!("permissions[{index}] is not a rule: {why}");
    Failure::new("CFG013", Exit::Configuration, what).fix(
        "write {\"tool\": \"bash\", \"match\": {\"commandPrefix\": \"cargo test\"}, \
         \"decision\": \"allow\"}",
    )
}

impl Rule {
    fn compile(value: &Value) -> Result<Rule, String> {
        let written = Written::deserialize(value).map_err(|error| error.to_string())?;
        let glob = written.matching.path_glob.map(|glob| {
            if glob.len() > GLOB_BYTES_MAX {
                return Err(format!("pathGlob is longer than {GLOB_BYTES_MAX} bytes"));
            }
            let compiled = GlobBuilder::new(&glob).literal_separator(true).build();
            let matcher = compiled.map_err(|error| error.to_string())?.compile_matcher();
            Ok((glob, matcher))
        });
        let prefix = written.matching.command_prefix.map(|prefix| {
            let mut script = Script::read(&prefix);
            let words = script.commands.pop().map(|command| command.words).unwrap_or_default();
            if !script.plain || !script.commands.is_empty() || words.is_empty() {
                return Err("commandPrefix must be the beginning of one plain command".to_owned());
            }
            Ok(words)
        });
        if written.tool.is_empty() {
            return Err("tool is empty; `*` means every tool".into());
        }
        Ok(Rule {
            tool: written.tool,
            glob: glob.transpose()?,
            prefix: prefix.transpose()?,
            decision: written.decision,
            reason: written.reason,
            text: value.to_string(),
        })
    }

    /// Whether it denies the call: one part of it is enough.
    pub(crate) fn denies(&self, action: &Action, scripts: &[Script]) -> bool {
        self.decision == Decision::Deny && self.touches(action, scripts)
    }

    /// Whether it asks about or allows the call. To allow, it has to cover all of it.
    pub(crate) fn applies(&self, action: &Action, scripts: &[Script]) -> bool {
        match self.decision {
            Decision::Deny => false,
            Decision::Ask => self.touches(action, scripts),
            Decision::Allow => self.covers(action, scripts),
        }
    }

    /// How much it says about what it means.
    pub(crate) fn specificity(&self) -> (usize, bool) {
        let glob = self.glob.as_ref().map_or(0, |(glob, _)| glob.len());
        let prefix = self.prefix.iter().flatten().map(|word| word.len() + 1).sum::<usize>();
        (glob + prefix, self.tool != "*")
    }

    fn touches(&self, action: &Action, scripts: &[Script]) -> bool {
        if !self.is_for(&action.tool) {
            return false;
        }
        let named = self.glob.is_none() || paths(action).any(|path| self.matches(path));
        let commands = || scripts.iter().flat_map(|script| &script.commands);
        let begun = self.prefix.as_ref().is_none_or(|prefix| {
            commands().any(|command| {
                command.unwrapped().starts_with(prefix) || command.words.starts_with(prefix)
            })
        });
        named && begun
    }

    fn covers(&self, action: &Action, scripts: &[Script]) -> bool {
        if !self.is_for(&action.tool) {
            return false;
        }
        let executes = !scripts.is_empty();
        let touches_files = paths(action).next().is_some();
        let named = self.glob.is_none()
            || (touches_files && !executes && paths(action).all(|path| self.matches(path)));
        let begun = self.prefix.as_ref().is_none_or(|prefix| {
            executes
                && !touches_files
                && scripts.iter().all(|script| script.plain && script.begins_with(prefix))
        });
        named && begun
    }

    fn is_for(&self, tool: &str) -> bool {
        self.tool == "*" || self.tool == tool
    }

    fn matches(&self, (path, relative): (&str, &str)) -> bool {
        let Some((glob, matcher)) = &self.glob else { return true };
        matcher.is_match(if glob.starts_with('/') { path } else { relative })
    }
}

/// The path and the relative path of everything that is read or written.
fn paths(action: &Action) -> impl Iterator<Item = (&str, &str)> {
    action.operations.iter().filter_map(|operation| match operation {
        Operation::Read { path, relative, .. } | Operation::Write { path, relative, .. } => {
            Some((path.as_str(), relative.as_str()))
        }
        Operation::Execute { .. } => None,
    })
}
