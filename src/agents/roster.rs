//! Roster of all agents: built-in, configured, and from files.
//!
//! If several definitions have a name, the first one counts, in this order: built-in,
//! configuration, the user's files, the project's files; of the files, those of posse before those
//! of Claude Code. For a rejected definition the reason is
//! stored; the others load.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use posse_base::failure::{ErrorCode, Exit, Failure, did_you_mean, printable};
use posse_config::ConfiguredAgent;
use serde_json::Value;

use crate::claude_agent;
use crate::definition::{DefinitionSource, define};
use crate::folder::{self, AgentFile};
use crate::front_matter::{self, Flaw};
use crate::instructions::hidden;
use crate::{Agent, AgentMode, AgentSource, AgentUse, UsedAgent, built_in};

/// Folders with agent files. A folder need not exist.
#[derive(Debug, Clone, Default)]
pub struct Folders {
    /// Agent folder of the user. `None`: there is none.
    pub user: Option<PathBuf>,
    /// Agent folder of the project, and the project's root. `None`: there is none.
    pub project: Option<(PathBuf, PathBuf)>,
    /// Home folder of the user, below which the user's agents of Claude Code are. `None`: they are
    /// not read.
    pub home: Option<PathBuf>,
}

/// Folder with agents of Claude Code, below the home folder and below the root of a project.
pub const CLAUDE_FOLDER: &str = ".claude/agents";

/// Names of tools, and functions for provider profiles, permission rules and the user's trust,
/// against which agent definitions are checked.
#[expect(missing_debug_implementations, reason = "it is made of functions")]
pub struct KnownNames<'a> {
    /// Names of all tools.
    pub tools: &'a [String],
    /// Returns true if a provider profile of this name exists.
    pub has_profile: &'a dyn Fn(&str) -> bool,
    /// Returns the errors of permission rules.
    pub check_rules: &'a dyn Fn(&[Value]) -> Vec<Failure>,
    /// Returns true if the user trusts the project's agent file of this name with exactly these
    /// bytes.
    pub believes: &'a dyn Fn(&str, &[u8]) -> bool,
}

/// All usable agents, and rejected definitions.
#[derive(Debug, Clone)]
pub struct Roster {
    /// All usable agents in the order of precedence, beginning with the built-in agent `build`.
    pub agents: Vec<Agent>,
    refused: Vec<(String, Failure)>,
    /// Warnings about usable agents: unknown names in their lists of agents, and hidden characters.
    pub remarks: Vec<Failure>,
    /// Names of agents of the project that are not loaded, because the user does not trust them.
    pub inert: Vec<String>,
}

impl Roster {
    /// Roster of only the built-in agents.
    pub fn built_in() -> Roster {
        Roster { agents: built_in(), refused: Vec::new(), remarks: Vec::new(), inert: Vec::new() }
    }

    /// Loads all agents: built-in ones, those of the configuration, those in the user's files, and
    /// those in files of the project that the user trusts. Stores the reasons of rejected
    /// definitions, and the names of untrusted agents.
    pub fn load(
        configured: &[ConfiguredAgent],
        folders: &Folders,
        known: &KnownNames<'_>,
    ) -> Roster {
        let mut roster = Roster::built_in();
        for agent in configured {
            roster.configured(agent, known);
        }
        if let Some(folder) = &folders.user {
            for file in roster.files(folder, None) {
                let source = AgentSource::User(file.shown.clone());
                roster.file(&file, source, known);
            }
        }
        let mut foreign = ForeignFields::default();
        if let Some(home) = &folders.home {
            for file in roster.files(&home.join(CLAUDE_FOLDER), None) {
                let source = AgentSource::User(file.shown.clone());
                roster.claude_file(&file, source, known, &mut foreign);
            }
        }
        if let Some((folder, project)) = &folders.project {
            for file in roster.files(folder, Some(project)) {
                if (known.believes)(&file.name, &file.bytes) {
                    let source = AgentSource::Project(file.shown.clone());
                    roster.file(&file, source, known);
                } else {
                    roster.inert.push(file.name);
                }
            }
            for file in roster.files(&project.join(CLAUDE_FOLDER), Some(project)) {
                if (known.believes)(&claude_trust_key(&file.name), &file.bytes) {
                    let source = AgentSource::Project(file.shown.clone());
                    roster.claude_file(&file, source, known, &mut foreign);
                } else {
                    roster.inert.push(file.name);
                }
            }
        }
        roster.remarks.extend(foreign.remark());
        roster.warn_about_unknown_names();
        roster
    }

    /// Warns about names in `allowedAgents` and `deniedAgents` that are not those of usable agents:
    /// they are misspelled, or their agents are rejected or not trusted.
    fn warn_about_unknown_names(&mut self) {
        let mut remarks = Vec::new();
        for agent in &self.agents {
            let lists = [
                ("allowedAgents", agent.delegation.allowed.as_deref().unwrap_or_default()),
                ("deniedAgents", &agent.delegation.denied),
            ];
            for (list, names) in lists {
                for name in names.iter().filter(|name| self.find(name).is_none()) {
                    remarks.push(self.unknown_name(agent, list, name));
                }
            }
        }
        self.remarks.extend(remarks);
    }

    fn unknown_name(&self, agent: &Agent, list: &str, name: &str) -> Failure {
        let why = if self.inert.iter().any(|inert| inert == name) {
            "the project has one, and you do not trust it"
        } else if self.refused.iter().any(|(refused, _)| refused == name) {
            "the one of that name is left out"
        } else {
            "there is no such agent"
        };
        let what = format!("agent \"{}\": {list} names \"{name}\"", agent.name);
        let fix = did_you_mean(name, self.agents.iter().map(|agent| agent.name.as_str()));
        invalid(ErrorCode::AgentListUnknown, what)
            .at(agent.source.place().unwrap_or_default())
            .because(why)
            .fix(fix.unwrap_or_else(|| "`posse agents` lists those there are".to_owned()))
    }

    /// Adds a warning if `text` of the agent `name` has hidden characters.
    fn remark_hidden(&mut self, name: &str, place: String, text: &str) {
        if let Some(found) = hidden(text) {
            let name = printable(name);
            let what = format!("agent \"{name}\": hidden characters, shown as escapes: {found}");
            self.remarks.push(invalid(ErrorCode::AgentHiddenCharacters, what).at(place));
        }
    }

    fn files(&mut self, folder: &Path, within: Option<&Path>) -> Vec<AgentFile> {
        let (files, flaws) = folder::read(folder, within);
        self.refused.extend(flaws.into_iter().map(|flaw| (String::new(), flaw)));
        files
    }

    fn configured(&mut self, configured: &ConfiguredAgent, known: &KnownNames<'_>) {
        let ConfiguredAgent { name, definition, place, project } = configured;
        let Value::Object(fields) = definition else {
            let what = format!("agents.{} is not an object", printable(name));
            let failure = invalid(ErrorCode::AgentDefinitionInvalid, what).at(place.clone());
            self.refused.push((name.clone(), failure));
            return;
        };
        let source = if *project { AgentSource::Project } else { AgentSource::Config };
        let source = source(place.clone());
        let at = |path: &str| match path {
            "" => place.clone(),
            path => format!("{place} ({path})"),
        };
        if self.add(&DefinitionSource { name, fields, body: None, source, place: &at }, known) {
            let prompt = &fields.get("prompt");
            let part = |part: &str| prompt.and_then(|prompt| prompt.get(part)?.as_str());
            let texts = [
                ("description", fields.get("description").and_then(Value::as_str)),
                ("prompt", prompt.and_then(Value::as_str)),
                ("prompt.system", part("system")),
                ("prompt.append", part("append")),
            ];
            for (path, text) in texts {
                self.remark_hidden(name, at(path), text.unwrap_or_default());
            }
        }
    }

    fn file(&mut self, file: &AgentFile, source: AgentSource, known: &KnownNames<'_>) {
        let AgentFile { name, shown, bytes } = file;
        let read = front_matter::parse_bytes(bytes, "the file is not UTF-8 text");
        let (text, parsed) = match read {
            Ok(read) => read,
            Err(Flaw { line, what }) => {
                let what = format!("agent \"{}\": {what}", printable(name));
                let failure = invalid(ErrorCode::AgentFileUnreadable, what)
                    .at(format!("{shown}:{line}"))
                    .fix("`posse help agents` shows what an agent file looks like");
                return self.refused.push((name.clone(), failure));
            }
        };
        let at = |path: &str| {
            // A missing field gets the line of its parent.
            let mut paths = std::iter::successors(Some(path), |path| {
                path.rfind(['.', '[']).map(|end| &path[..end])
            });
            let line = paths.find_map(|path| parsed.lines.get(path)).copied().unwrap_or(1);
            format!("{shown}:{line}")
        };
        let (fields, body) = (&parsed.fields, Some(parsed.body.as_str()));
        if self.add(&DefinitionSource { name, fields, body, source, place: &at }, known) {
            self.remark_hidden(name, shown.clone(), &text);
        }
    }

    /// Adds an agent of Claude Code. Fields without a counterpart are added to `foreign`.
    fn claude_file(
        &mut self,
        file: &AgentFile,
        source: AgentSource,
        known: &KnownNames<'_>,
        foreign: &mut ForeignFields,
    ) {
        let AgentFile { name, shown, .. } = file;
        let translated = match claude_agent::translate(file, known) {
            Ok(translated) => translated,
            Err(Flaw { line, what }) => {
                let what = format!("agent \"{}\": {what}", printable(name));
                let failure = invalid(ErrorCode::AgentFileUnreadable, what)
                    .at(format!("{shown}:{line}"))
                    .fix("begin with a line ---, fields such as `description: …`, and a line ---");
                return self.refused.push((name.clone(), failure));
            }
        };
        let claude_agent::Translated { name, fields, body, lines, ignored } = translated;
        let at = |path: &str| format!("{shown}:{}", lines.get(path).copied().unwrap_or(1));
        let written = DefinitionSource {
            name: &name,
            fields: &fields,
            body: Some(&body),
            source,
            place: &at,
        };
        if self.add(&written, known) {
            if let Some(agent) = self.agents.last_mut() {
                agent.from_claude_code = true;
            }
            let description = fields.get("description").and_then(Value::as_str).unwrap_or_default();
            self.remark_hidden(&name, shown.clone(), &format!("{description}{body}"));
            foreign.add(shown, ignored);
        }
    }

    /// Adds an agent, or stores the reason for rejecting it. Returns true if it was added.
    fn add(&mut self, written: &DefinitionSource<'_>, known: &KnownNames<'_>) -> bool {
        if let Some(taken) = self.agents.iter().find(|agent| agent.name == written.name) {
            let whose = match &taken.source {
                AgentSource::BuiltIn => "a built-in agent has that name".to_owned(),
                other => format!("it is taken by {}", other.place().unwrap_or_default()),
            };
            let what = format!("agent \"{}\" is left out: {whose}", printable(written.name));
            let failure = invalid(ErrorCode::AgentNameTaken, what)
                .at((written.place)("name"))
                .fix("give it another name");
            self.refused.push((String::new(), failure));
            return false;
        }
        let defined = define(written, known);
        let is_valid = defined.is_ok();
        match defined {
            Ok(agent) => self.agents.push(agent),
            Err(flaws) => {
                let name = written.name;
                self.refused.extend(flaws.into_iter().map(|flaw| (name.to_owned(), flaw)));
            }
        }
        is_valid
    }

    /// Reasons of all rejected definitions and unreadable files.
    pub fn refused(&self) -> impl Iterator<Item = &Failure> {
        self.refused.iter().map(|(_, failure)| failure)
    }

    /// Usable agent with this name; `None` if there is none.
    pub fn find(&self, name: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// The roster of a session in which `main` is the main agent, used as `used`: it has its settings
    /// for this use, and all other agents those for subagents. An agent that cannot be a subagent
    /// is not callable; `notices` names it and other warnings. Fails if `main` cannot be used so.
    pub fn for_session(
        mut self,
        main: &str,
        used: AgentUse,
        notices: &mut Vec<String>,
    ) -> Result<Roster, Failure> {
        for agent in &mut self.agents {
            let is_main = agent.name == main;
            let used = if is_main { used } else { AgentUse::Subagent };
            match agent.for_use(used) {
                Ok(UsedAgent { agent: settled, warning }) => {
                    // Agents that can only talk to the user are never subagents.
                    let warning = warning.filter(|_| agent.mode != AgentMode::Primary);
                    notices.extend(warning);
                    *agent = settled;
                }
                Err(why) if is_main => {
                    let what = format!("agent {why}");
                    let fix = "enable it, or choose another agent with --agent";
                    return Err(invalid(ErrorCode::AgentNotPrimary, what).fix(fix));
                }
                Err(why) => {
                    if agent.delegation.callable {
                        notices.push(format!("agent {why}; no agent can call it"));
                    }
                    agent.delegation.callable = false;
                }
            }
        }
        Ok(self)
    }

    /// Agents that `caller` may call.
    pub fn callable_by<'a>(&'a self, caller: &'a Agent) -> impl Iterator<Item = &'a Agent> {
        self.agents.iter().filter(|agent| caller.may_call(agent))
    }

    /// Agents that can be the main agent, without hidden ones.
    pub fn primaries(&self) -> impl Iterator<Item = &Agent> {
        self.agents.iter().filter(|agent| agent.mode.is_primary() && !agent.hidden)
    }

    /// Agent with this name that can be the main agent, hidden or not. If there is none, the error
    /// states the reason.
    pub fn choose(&self, name: &str) -> Result<&Agent, Failure> {
        let names = || self.primaries().map(|agent| agent.name.as_str());
        let choose = || format!("choose one of {}", names().collect::<Vec<_>>().join(", "));
        if let Some(agent) = self.find(name) {
            let what = format!("the agent \"{name}\" works for other agents only");
            let failure = || invalid(ErrorCode::AgentNotPrimary, what).fix(choose());
            return agent.mode.is_primary().then_some(agent).ok_or_else(failure);
        }
        if let Some((_, why)) = self.refused.iter().find(|(refused, _)| refused == name) {
            return Err(why.clone());
        }
        let what = format!("there is no agent \"{}\"", printable(name));
        let failure = invalid(ErrorCode::AgentNotFound, what);
        Err(if self.inert.iter().any(|inert| inert == name) {
            failure
                .because("the project has one, and you do not trust it")
                .fix("`posse trust add` shows the effect")
        } else {
            failure.fix(did_you_mean(name, names()).unwrap_or_else(choose))
        })
    }
}

/// Name by which the trust store knows the file `name` of an agent of Claude Code in a project: its
/// path below the root, unlike that of any other agent.
pub fn claude_trust_key(name: &str) -> String {
    format!("{CLAUDE_FOLDER}/{name}.md")
}

/// Fields of agents of Claude Code that have no counterpart.
#[derive(Default)]
struct ForeignFields {
    names: BTreeSet<String>,
    /// Files with such fields.
    files: Vec<String>,
}

impl ForeignFields {
    fn add(&mut self, file: &str, ignored: Vec<String>) {
        if !ignored.is_empty() {
            self.files.push(file.to_owned());
            self.names.extend(ignored);
        }
    }

    /// One warning for all files. `None` if there are no such fields.
    fn remark(self) -> Option<Failure> {
        const NAMES_MAX: usize = 12;
        const CHARS_MAX: usize = 40;
        let first = self.files.first()?;
        let cut = |name: &String| printable(&name.chars().take(CHARS_MAX).collect::<String>());
        let mut names: Vec<String> = self.names.iter().take(NAMES_MAX).map(cut).collect();
        if self.names.len() > NAMES_MAX {
            names.push(format!("{} more", self.names.len() - NAMES_MAX));
        }
        let what = format!("agents of Claude Code: ignored, no counterpart: {}", names.join(", "));
        let place = match self.files.len() {
            1 => first.clone(),
            many => format!("{first} and {} more", many - 1),
        };
        Some(invalid(ErrorCode::AgentFieldIgnored, what).at(place))
    }
}

fn invalid(code: ErrorCode, what: impl Into<String>) -> Failure {
    Failure::new(code, Exit::Configuration, what)
}

#[cfg(test)]
mod tests;
