//! Configured rules: `{tool, match: {pathGlob?, commandPrefix?}, decision, reason?, examples?}`.
//!
//! `tool` may be a pattern such as `Bash(git log:*)` or `Edit(src/**)`. Examples are checked when
//! rules are loaded: a rule that does not do what its examples say is an error.

use posse_actors::ports::{Action, Operation};
use posse_base::failure::{ErrorCode, Exit, Failure};
use posse_base::path_globs::PathGlob;
use serde::Deserialize;
use serde_json::Value;

use crate::commands::begins;
use crate::shell::{self, Judged};
use crate::tool_names::{self, tool_name};
use crate::{HOME_UNKNOWN, JudgedAction};

pub(crate) const GLOB_BYTES_MAX: usize = 512;
const RULES_MAX: usize = 1000;

/// Compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Name of a tool or of a group of tools; `*`: every tool.
    pub(crate) tool: String,
    pub(crate) glob: Option<PathGlob>,
    pub(crate) prefix: Option<Vec<String>>,
    /// True if the command must equal the prefix; false if it may continue.
    exact: bool,
    pub(crate) decision: RuleDecision,
    pub(crate) reason: Option<String>,
    /// The rule as JSON text, for error texts and reasons.
    pub(crate) text: String,
    /// True if the rule is from a trusted project; false if it is the user's or an agent's.
    pub(crate) from_project: bool,
}

/// Decision of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RuleDecision {
    Allow,
    Ask,
    Deny,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenRule {
    tool: String,
    #[serde(default, rename = "match")]
    matching: Matching,
    decision: RuleDecision,
    reason: Option<String>,
    #[serde(default)]
    examples: Examples,
}

/// Examples that a rule must match (`match`) or must not match (`noMatch`): commands, or, for a
/// rule with a glob, paths.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Examples {
    #[serde(default, rename = "match")]
    matching: Vec<String>,
    #[serde(default)]
    no_match: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Matching {
    path_glob: Option<String>,
    command_prefix: Option<String>,
}

/// Compiles all rules. `tools`: names of all tools, so that a rule for an unknown one is invalid; `None`:
/// any name is valid. Fails with an error for each invalid rule, and with one more if there are
/// more than [`RULES_MAX`]; the rules beyond that number are not checked. `home`: home folder of the
/// user; `None` means `/home/user`.
pub(crate) fn compile(
    written: &[Value],
    tools: Option<&[&str]>,
    home: Option<&str>,
) -> Result<Vec<Rule>, Vec<(usize, Failure)>> {
    let mut rules = Vec::with_capacity(written.len().min(RULES_MAX));
    let mut failures = Vec::new();
    for (index, value) in written.iter().enumerate() {
        if index == RULES_MAX {
            let what = format!("there are more than {RULES_MAX} rules");
            failures.push((index, refused(index, &what)));
            break;
        }
        match Rule::compile(value, tools, home.unwrap_or(HOME_UNKNOWN)) {
            Ok(rule) => rules.push(rule),
            Err(RuleFlaw { what, fix }) => {
                let failure = refused(index, &what);
                failures.push(match fix {
                    Some(fix) => (index, failure.fix(fix)),
                    None => (index, failure),
                });
            }
        }
    }
    if failures.is_empty() { Ok(rules) } else { Err(failures) }
}

/// The errors of [`compile`] without the indexes of their rules.
pub(crate) fn without_indexes(failures: Vec<(usize, Failure)>) -> Vec<Failure> {
    failures.into_iter().map(|(_, failure)| failure).collect()
}

fn refused(index: usize, why: &str) -> Failure {
    let what = format!("permissions[{index}] is not a rule: {why}");
    Failure::new(ErrorCode::RuleInvalid, Exit::Configuration, what).fix(
        "write {\"tool\": \"bash\", \"match\": {\"commandPrefix\": \"cargo test\"}, \
         \"decision\": \"allow\"}",
    )
}

/// Reason why a rule is invalid. `fix`: the advice; `None`: a correct rule as an example.
struct RuleFlaw {
    what: String,
    fix: Option<String>,
}

impl<T: Into<String>> From<T> for RuleFlaw {
    fn from(what: T) -> RuleFlaw {
        RuleFlaw { what: what.into(), fix: None }
    }
}

/// The flaw of a rule whose tool has an unknown name. `meant`: the known name that is closest to it.
fn unknown_tool(tool: &str, meant: Option<&str>) -> RuleFlaw {
    let fix = match meant {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None if tool.contains(['*', '?', '[']) => {
            "write one rule for each tool; only `*` alone means every tool".to_owned()
        }
        None => "choose a name that `posse tools` lists, or `*` for every tool".to_owned(),
    };
    let what = format!("there is no tool {}", Value::from(tool));
    RuleFlaw { what, fix: Some(fix) }
}

/// Rule group and name of the tool that runs commands. In a pattern with one of these names, the
/// text in parentheses is a command or its beginning; with any other name it is a glob.
pub(crate) const COMMAND_NAMES: [&str; 2] = ["Bash", "bash"];

/// Splits a pattern such as `Bash(git log:*)` into the tool and the text in parentheses (`None`
/// without parentheses). Fails if the tool is empty, or if the parentheses are empty or not closed
/// at the end.
fn pattern(tool: &str) -> Result<(&str, Option<&str>), String> {
    let (name, inside) = match tool.split_once('(') {
        None => (tool, None),
        Some((name, rest)) => {
            let inside = rest.strip_suffix(')').filter(|inside| !inside.is_empty());
            (name, Some(inside.ok_or_else(|| format!("`{tool}` is not a pattern"))?))
        }
    };
    if name.is_empty() {
        return Err("tool is empty; `*` means every tool".into());
    }
    Ok((name, inside))
}

/// Compiles `glob` as paths are written elsewhere: `~/` at its beginning is the folder `home`, and `//`
/// and `/./` are `/`. The compared paths have none of these, and no `..`.
fn compiled_glob(glob: &str, decision: RuleDecision, home: &str) -> Result<PathGlob, RuleFlaw> {
    if glob.len() > GLOB_BYTES_MAX {
        return Err(format!("pathGlob is longer than {GLOB_BYTES_MAX} bytes").into());
    }
    let denies = decision == RuleDecision::Deny;
    let unusable = |why: &str, fix: &str| RuleFlaw {
        what: format!("the glob {} {why}, so that it matches no path", Value::from(glob)),
        fix: Some(fix.to_owned()),
    };
    if denies && glob.split(['/', '{', ',', '}']).any(|part| part == "..") {
        return Err(unusable("contains `..`", "write the path without `..`"));
    }
    if denies && (glob.contains("{~") || glob.contains(",~") || begins_with_some_absolute(glob)) {
        let why = "has `~` or `/` at the beginning of an alternative";
        return Err(unusable(why, "write one rule for each alternative"));
    }
    let (user, below_home) = glob.split_once('/').unwrap_or((glob, ""));
    let expanded = match user.strip_prefix('~') {
        Some("") => format!("{}/{below_home}", globset::escape(home)),
        Some(_) if denies && user.len() < glob.len() => {
            return Err(unusable("begins with a name behind `~`", "write the absolute path"));
        }
        _ => glob.to_owned(),
    };
    let begin = if expanded.starts_with('/') { "/" } else { "" };
    // For other rules, a slash at the end means a folder, which no path of a file matches.
    let end = if denies || !expanded.ends_with('/') { "" } else { "/" };
    let parts = expanded.split('/').filter(|part| !matches!(*part, "" | "."));
    let plain = format!("{begin}{}{end}", parts.collect::<Vec<_>>().join("/"));
    let plain = if plain.is_empty() { glob.to_owned() } else { plain };
    Ok(PathGlob::new(plain).map_err(|error| error.to_string())?)
}

/// True if `glob` begins with a list of alternatives of which one is an absolute path.
fn begins_with_some_absolute(glob: &str) -> bool {
    let mut depth = 0_usize;
    let mut is_start = true;
    for c in glob.chars() {
        match c {
            '{' if is_start => depth += 1,
            '/' if is_start && depth > 0 => return true,
            ',' if depth > 0 => {}
            '}' if depth < 2 => return false,
            '}' => depth -= 1,
            '{' => depth += 1,
            _ if depth == 0 => return false,
            _ => {}
        }
        is_start = matches!(c, '{' | ',');
    }
    false
}

impl Rule {
    fn compile(value: &Value, tools: Option<&[&str]>, home: &str) -> Result<Rule, RuleFlaw> {
        let written = WrittenRule::deserialize(value).map_err(|error| error.to_string())?;
        let Matching { path_glob, command_prefix } = written.matching;
        let (tool, inside) = pattern(&written.tool)?;
        if let Some(tools) = tools {
            tool_names::check(tool, tools).map_err(|meant| unknown_tool(tool, meant))?;
        }
        let tool = tool_name(tool);
        let commands = COMMAND_NAMES.contains(&tool);
        if command_prefix.is_some() && !commands && tool != "*" {
            let what = format!("`commandPrefix` is for commands, and {tool} runs none");
            let fix = "write \"tool\": \"bash\", or remove `commandPrefix`".to_owned();
            return Err(RuleFlaw { what, fix: Some(fix) });
        }
        let mut exact = false;
        let (mut glob, mut prefix) = (path_glob, command_prefix);
        if let Some(inside) = inside {
            let place = if commands { &mut prefix } else { &mut glob };
            if place.is_some() {
                return Err("the pattern is given twice, in `tool` and in `match`".into());
            }
            let begins = inside.strip_suffix(":*").or_else(|| inside.strip_suffix(" *"));
            exact = commands && begins.is_none();
            *place = match begins {
                Some(begins) if commands => Some(begins.to_owned()),
                _ => Some(inside.to_owned()),
            };
        }
        let prefix = prefix.map(|prefix| {
            shell::simple(&prefix).ok_or("commandPrefix must be the beginning of one plain command")
        });
        let rule = Rule {
            tool: tool.to_owned(),
            glob: glob.map(|glob| compiled_glob(&glob, written.decision, home)).transpose()?,
            prefix: prefix.transpose()?,
            exact,
            decision: written.decision,
            reason: written.reason,
            text: value.to_string(),
            from_project: false,
        };
        rule.check(&written.examples)?;
        Ok(rule)
    }

    /// Fails at the first example that the rule matches although it must not, or does not match
    /// although it must.
    fn check(&self, examples: &Examples) -> Result<(), String> {
        for (list, expected) in [(&examples.matching, true), (&examples.no_match, false)] {
            for example in list {
                if self.is_example(example) != expected {
                    let what = if expected { "does not match" } else { "matches" };
                    return Err(format!("it {what} its example `{example}`"));
                }
            }
        }
        Ok(())
    }

    fn is_example(&self, example: &str) -> bool {
        if let Some(glob) = &self.glob {
            return match self.decision {
                RuleDecision::Deny => glob.covers(example.trim_end_matches('/')),
                RuleDecision::Allow | RuleDecision::Ask => glob.is_match(example),
            };
        }
        let judged = shell::judge_example(example);
        let for_commands = self.tool == "*" || COMMAND_NAMES.contains(&self.tool.as_str());
        match self.decision {
            RuleDecision::Allow => {
                for_commands
                    && judged.outside.is_none()
                    && judged.parts.iter().all(|part| {
                        part.barred.is_none()
                            && part.acts.is_none()
                            && (part.known || part.literal)
                            && self.covers_command(&part.words)
                    })
            }
            RuleDecision::Ask | RuleDecision::Deny => self.runs(&[judged]),
        }
    }

    /// Returns the reason of a permission request by this rule, for a person.
    pub(crate) fn why(&self) -> String {
        let whose = if self.from_project { "a rule of the project" } else { "a rule" };
        self.reason.clone().unwrap_or_else(|| format!("{whose} asks: {}", self.text))
    }

    /// Returns the reason of a denial by this rule, for the model and the user.
    pub(crate) fn denial_reason(&self) -> &str {
        self.reason.as_deref().unwrap_or(if self.from_project {
            "the project's rules deny it"
        } else {
            "the user's rules deny it"
        })
    }

    /// True if the rule matches the simple command `words`: it begins with the prefix of the rule,
    /// or, if `exact`, equals it. A rule without a prefix matches every command; a rule with a
    /// glob, none.
    pub(crate) fn covers_command(&self, words: &[String]) -> bool {
        self.glob.is_none()
            && self.prefix.as_ref().is_none_or(|prefix| {
                words.starts_with(prefix) && (!self.exact || words.len() == prefix.len())
            })
    }

    /// True if any command in `scripts`, also one behind a wrapper, begins with the prefix (equals
    /// it, if `exact`), or if the rule has no prefix.
    fn runs(&self, scripts: &[Judged]) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| {
            begins(scripts, prefix).any(|words| !self.exact || words.len() == prefix.len())
        })
    }

    /// True if this is a deny rule that matches the call; one matching part suffices. A rule with a
    /// glob for one tool that reads or changes files counts for others as well (`denied_paths`).
    pub(crate) fn denies(&self, case: &JudgedAction<'_>) -> bool {
        self.decision == RuleDecision::Deny
            && (self.is_for(case) && self.applies_to(case) || self.denies_path(case))
    }

    /// True if this is an ask or allow rule that matches the call. An ask rule must match one path
    /// or command; an allow rule with a glob must match all paths of a call that runs no command.
    /// An allow rule with a command prefix never matches here: `RulePolicy::uncovered` applies it
    /// to each part of a command.
    pub(crate) fn applies(&self, case: &JudgedAction<'_>) -> bool {
        self.is_for(case)
            && match self.decision {
                RuleDecision::Deny => false,
                RuleDecision::Ask => self.applies_to(case),
                RuleDecision::Allow => self.covers(case),
            }
    }

    /// Sort key among matching rules; the largest is the most specific: bytes of the glob plus
    /// bytes of the prefix (one more for each of its words), then true if the rule names a tool and
    /// not `*`.
    pub(crate) fn specificity(&self) -> (usize, bool) {
        let glob = self.glob.as_ref().map_or(0, |glob| glob.text().len());
        let prefix = self.prefix.iter().flatten().map(|word| word.len() + 1).sum::<usize>();
        (glob + prefix, self.tool != "*")
    }

    fn applies_to(&self, case: &JudgedAction<'_>) -> bool {
        let is_named = |one| named_paths(one).any(|path| self.matches(path));
        let named = self.glob.is_none() || case.action.operations.iter().any(is_named);
        let executes = !case.scripts.is_empty();
        named && self.runs(&case.scripts) && (self.prefix.is_none() || executes)
    }

    fn covers(&self, case: &JudgedAction<'_>) -> bool {
        let mut paths = paths(case.action).peekable();
        let only_files = case.scripts.is_empty() && paths.peek().is_some();
        self.prefix.is_none()
            && (self.glob.is_none() || only_files && paths.all(|path| self.matches(path)))
    }

    /// True if the rule applies to the tool of the call: the rule names `*`, the tool, its rule
    /// group, or a name in its `restricted_by`. Allow rules ignore `restricted_by`.
    pub(crate) fn is_for(&self, case: &JudgedAction<'_>) -> bool {
        let tool = case.situation.tool;
        self.tool == "*"
            || self.tool == case.action.tool
            || tool.rule_group.as_ref() == Some(&self.tool)
            || self.decision != RuleDecision::Allow && tool.restricted_by.contains(&self.tool)
    }

    /// True if the glob of the rule matches a path or, in a deny rule, a folder above it.
    pub(crate) fn matches(&self, (path, relative): (&str, &str)) -> bool {
        let Some(glob) = &self.glob else { return true };
        let compared = if glob.is_absolute() { path } else { relative };
        match self.decision {
            RuleDecision::Deny => glob.covers(compared),
            RuleDecision::Allow | RuleDecision::Ask => glob.is_match(compared),
        }
    }
}

/// Absolute and relative path of each file that the action reads or writes.
fn paths(action: &Action) -> impl Iterator<Item = (&str, &str)> {
    action.operations.iter().filter_map(|operation| named_paths(operation).next())
}

/// Absolute and relative path of the file that the operation reads or writes, and those paths by
/// which links lead to it.
pub(crate) fn named_paths(operation: &Operation) -> impl Iterator<Item = (&str, &str)> {
    let (file, ways) = match operation {
        Operation::Read { path, relative, ways, .. }
        | Operation::Write { path, relative, ways, .. } => {
            (Some((path.as_str(), relative.as_str())), ways.as_slice())
        }
        Operation::Execute { .. } | Operation::Invoke { .. } => (None, [].as_slice()),
    };
    file.into_iter().chain(ways.iter().map(|way| (way.path.as_str(), way.relative.as_str())))
}
