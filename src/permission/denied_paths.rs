//! Deny rules with a glob: the paths that they deny to tools that read, tools that change files, and
//! commands.
//!
//! A deny rule for one of the reading tools that open files counts for all tools that read, and one
//! for a changing tool for all tools that change files, so that no tool stands in for a denied one.
//! For a command, the paths count that its words name. What a program opens by itself is not known
//! here.

use posse_actors::ports::{Action, Operation};
use posse_base::failure::{Failure, printable};
use posse_base::path_globs::{PathGlob, PathGlobs};
use serde_json::Value;

use crate::agents::AgentRules;
use crate::rules::{self, COMMAND_NAMES, Rule, RuleDecision, named_paths};
use crate::shell::named::{self, NamedPath, PathCertainty, PathUse};
use crate::shell::{Judged, Names};
use crate::{JudgedAction, RulePolicy};

/// Tools and rule groups for which a deny rule with a glob covers every tool that reads files.
const READERS: Names = Names("Read read_file");
/// Tools and rule groups for which a deny rule with a glob covers every tool that changes files.
const CHANGERS: Names = Names("Edit Write edit_file multi_edit write_file");

/// Returns the globs of the paths that `tool` of the rule group `group` must not read, by the deny
/// rules in `written`. `home`: home folder of the user, with its links resolved; `None` means
/// `/home/user`. Fails with the error of the first invalid rule.
pub fn denied_reads(
    written: &[Value],
    (tool, group): (&str, &str),
    home: Option<&str>,
) -> Result<PathGlobs, Failure> {
    let first = |mut failures: Vec<(usize, Failure)>| failures.swap_remove(0).1;
    let rules = rules::compile(written, None, home).map_err(first)?;
    let is_for = |rule: &Rule| {
        let name = rule.tool.as_str();
        name == "*" || name == tool || name == group || READERS.has(name)
    };
    let denied = rules.into_iter().filter(|rule| rule.denies_paths() && is_for(rule));
    Ok(PathGlobs::new(denied.filter_map(|rule| rule.glob).collect()))
}

/// Answer of a rule about a path that a command names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PathMatch {
    No,
    /// The word is a pattern, which may match a denied path.
    Possible,
    Certain,
}

impl Rule {
    /// True for a deny rule about all calls with certain paths.
    fn denies_paths(&self) -> bool {
        self.decision == RuleDecision::Deny && self.glob.is_some() && self.prefix.is_none()
    }

    /// True if the rule denies the path of a tool that does the same as the tool which it names, or
    /// a path that a command names.
    pub(crate) fn denies_path(&self, case: &JudgedAction<'_>) -> bool {
        let is_denied = |operation: &Operation| {
            let is_for = match operation {
                Operation::Read { .. } => READERS.has(&self.tool),
                Operation::Write { .. } => CHANGERS.has(&self.tool),
                Operation::Execute { .. } | Operation::Invoke { .. } => false,
            };
            is_for && named_paths(operation).any(|path| self.matches(path))
        };
        self.denies_paths()
            && (case.action.operations.iter().any(is_denied)
                || case.paths.iter().any(|path| self.names(path) == PathMatch::Certain))
    }

    /// Answer of this deny rule about a path that a command names.
    fn names(&self, path: &NamedPath) -> PathMatch {
        let Some(glob) = self.glob.as_ref().filter(|_| self.denies_paths()) else {
            return PathMatch::No;
        };
        let reads = self.tool == "*"
            || READERS.has(&self.tool)
            || COMMAND_NAMES.contains(&self.tool.as_str());
        let (counts, with_contents) = match path.usage {
            PathUse::Named => (reads, false),
            PathUse::Copied => (reads, true),
            PathUse::Written => (reads || CHANGERS.has(&self.tool), false),
            PathUse::Removed => (reads || CHANGERS.has(&self.tool), true),
        };
        if !counts {
            return PathMatch::No;
        }
        let is_certain = is_certain(glob, path, with_contents);
        if is_certain && path.certainty == PathCertainty::Certain {
            PathMatch::Certain
        } else if path.certainty == PathCertainty::AnyPath
            || is_certain
            || path.may_match(glob, with_contents)
        {
            PathMatch::Possible
        } else {
            PathMatch::No
        }
    }
}

/// True if `glob` matches the path, a folder above it, or everything in it; `with_contents`: also if
/// all paths that it matches lie below.
fn is_certain(glob: &PathGlob, path: &NamedPath, with_contents: bool) -> bool {
    let matches = |path: &str| glob.covers(path) || glob.covers_entries(path);
    let contains = |path: &str| with_contents && glob.is_below(path);
    let fixed = path.without_pattern();
    let is_whole = fixed.len() == path.path.len();
    path.compared(fixed, glob.is_absolute())
        .any(|path| !path.is_empty() && (matches(path) || (is_whole && contains(path))))
}

impl RulePolicy {
    /// Paths that the commands in `scripts` name, as paths of the workspace. Empty if no deny rule has
    /// a glob.
    pub(super) fn named_paths(&self, action: &Action, scripts: &[Judged]) -> Vec<NamedPath> {
        let agents = self.agents.iter().flat_map(AgentRules::rules);
        if !self.rules.iter().chain(agents).any(Rule::denies_paths) {
            return Vec::new();
        }
        let commands = action.operations.iter().filter_map(|operation| match operation {
            Operation::Execute { cwd, links, .. } => Some((cwd, links)),
            _ => None,
        });
        let mut paths = Vec::new();
        for (script, (cwd, links)) in scripts.iter().zip(commands) {
            let ground = self.ground(cwd, links, &[]);
            for path in named::paths(script, ground) {
                paths.push(self.in_workspace(path));
            }
        }
        paths
    }

    /// `path`, which may lie in the copy of an isolated workspace, with the roots of the workspace.
    fn in_workspace(&self, path: NamedPath) -> NamedPath {
        let moved = self.settings.relocated.as_ref().and_then(|place| place.original(&path.path));
        NamedPath {
            path: moved.unwrap_or(path.path),
            roots: self.settings.roots.clone().into(),
            ..path
        }
    }

    /// Reason for asking about a command with a word that may mean a path which a rule denies: of the
    /// configuration, or of the calling agent and those above it. `None` if there is no such word.
    pub(super) fn may_be_denied(&self, case: &JudgedAction<'_>) -> Option<String> {
        let callers = case.situation.agent.split('/').filter_map(|name| self.agent_named(name));
        let of_agents = callers.flat_map(AgentRules::rules);
        self.rules.iter().chain(of_agents).find_map(|rule| {
            let is_possible = |path: &&NamedPath| rule.names(path) == PathMatch::Possible;
            let path = case.paths.iter().find(is_possible)?;
            Some(format!(
                "the command names {}, which may match a path that a rule denies: {}",
                printable(&path.word),
                rule.text
            ))
        })
    }
}
