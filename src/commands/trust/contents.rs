//! Describes the agents and skills of a project as they would be once trusted: authority, beginning
//! of the text, and errors.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::agents::{Agent, Roster, Skill, SkillPlaces, Skills};
use crate::commands::offline_commands;
use crate::config::{Dirs, Fate, ProjectFile, Settings};
use crate::failure::{ErrorCode, Failure, printable};
use crate::warnings;
use crate::wiring::subagents;

/// Maximum number of lines of a text, and of additional files of a skill, that are shown.
const LINES_MAX: usize = 8;
const BYTES_MAX: usize = 600;
/// Maximum number of rules of an agent that are shown.
const RULES_MAX: usize = 8;
/// Maximum number of characters of a rule that are shown.
const RULE_CHARS_MAX: usize = 200;

/// Agents and skills, loaded as if the project were trusted.
pub(super) struct TrustContents {
    root: PathBuf,
    roster: Roster,
    skills: Skills,
    /// True if the project adds providers. Then an agent's provider may be unknown until the
    /// project is trusted, which is not an error.
    brings_providers: bool,
}

impl TrustContents {
    /// Loads the agents and skills of the project at `root`. `settings` do not contain settings of
    /// the project; `file` does.
    pub(super) fn of(
        root: &Path,
        dirs: &Dirs,
        settings: &Settings,
        file: Option<&ProjectFile>,
    ) -> Result<TrustContents, Failure> {
        let settings = Settings { trust_project: true, ..settings.clone() };
        let tools = offline_commands::names(&offline_commands::toolbox(root, dirs.clone())?);
        let roster = subagents::roster(root, dirs, &settings, &tools);
        let project = Some(root.to_owned());
        let places = SkillPlaces { project, ..SkillPlaces::default() };
        let skills = Skills::load(&places, &|_, _| true);
        let mut wanted = file.iter().flat_map(|file| &file.wanted);
        let brings_providers =
            wanted.any(|wanted| wanted.fate == Fate::Waits && wanted.key.starts_with("providers."));
        Ok(TrustContents { root: root.to_owned(), roster, skills, brings_providers })
    }

    /// Text about the project's agent `name`: its authority, the beginning of its instructions, and
    /// errors.
    pub(super) fn agent(&self, name: &str) -> String {
        let place = self.agent_place(name);
        let mut text = String::new();
        if let Some(agent) = self.find_agent(&place) {
            for line in facts(agent) {
                push(&mut text, &line);
            }
            push_beginning(&mut text, agent.instructions());
            for (setting, appended) in agent.appended() {
                push(&mut text, &format!("{setting} adds:"));
                push_beginning(&mut text, appended);
            }
        }
        for flaw in self.agent_flaws(&place) {
            push(&mut text, &flaw);
        }
        text
    }

    /// Text about the skill in the folder `path` below the root: description, expected tools,
    /// files, beginning of its text, and errors.
    pub(super) fn skill(&self, path: &str) -> String {
        let place = self.skill_place(path);
        let mut text = String::new();
        if let Some(skill) = self.find_skill(&place) {
            push(&mut text, &skill.description);
            if !skill.allowed_tools.is_empty() {
                let tools = skill.allowed_tools.join(", ");
                push(&mut text, &format!("it expects these tools, and allows none: {tools}"));
            }
            if skill.only_user {
                push(&mut text, "only the user activates it");
            }
            let files: Vec<String> = skill.files().into_iter().map(|(path, _)| path).collect();
            if !files.is_empty() {
                let shown = files.iter().take(LINES_MAX).cloned().collect::<Vec<_>>().join(", ");
                push(&mut text, &format!("{} more files: {shown}", files.len()));
            }
            push_beginning(&mut text, &skill.body);
        }
        for flaw in self.skill_flaws(&place) {
            push(&mut text, &flaw);
        }
        text
    }

    /// Content of the named `agents` and of the `skills` with these paths, as a JSON object.
    pub(super) fn json<'a>(
        &self,
        agents: impl Iterator<Item = &'a String>,
        skills: impl Iterator<Item = &'a String>,
    ) -> Value {
        let agent = |name: &'a String| {
            let place = self.agent_place(name);
            let agent = self.find_agent(&place);
            let value = json!({
                "mode": agent.map(|agent| <&str>::from(agent.mode)),
                "tools": agent.map(|agent| agent.tools.to_string()),
                "defaultDecision": agent.and_then(|a| a.default_decision).map(<&str>::from),
                "readOnly": agent.map(|agent| agent.read_only),
                "begins": agent.map(|agent| first_lines(agent.instructions()).0),
                "remarks": self.agent_flaws(&place),
            });
            (name.clone(), value)
        };
        let skill = |path: &'a String| {
            let place = self.skill_place(path);
            let skill = self.find_skill(&place);
            let value = json!({
                "description": skill.map(|skill| &skill.description),
                "allowedTools": skill.map(|skill| &skill.allowed_tools),
                "begins": skill.map(|skill| first_lines(&skill.body).0),
                "remarks": self.skill_flaws(&place),
            });
            (path.clone(), value)
        };
        let agents: Map<String, Value> = agents.map(agent).collect();
        let skills: Map<String, Value> = skills.map(skill).collect();
        json!({ "agents": agents, "skills": skills })
    }

    fn agent_place(&self, name: &str) -> String {
        let file = subagents::agent_file(&self.root, name);
        printable(&file.display().to_string())
    }

    fn skill_place(&self, path: &str) -> String {
        let folder = self.root.join(path);
        printable(&folder.canonicalize().unwrap_or(folder).display().to_string())
    }

    fn find_agent(&self, place: &str) -> Option<&Agent> {
        self.roster.agents.iter().find(|agent| agent.source.place() == Some(place))
    }

    fn find_skill(&self, place: &str) -> Option<&Skill> {
        self.skills.all().find(|skill| skill.place == place)
    }

    fn agent_flaws(&self, place: &str) -> Vec<String> {
        // The providers are known when the project is trusted.
        let known = |failure: &&Failure| {
            !(self.brings_providers && failure.code == ErrorCode::AgentProfileUnknown)
        };
        let refused = self.roster.refused().filter(known).map(|flaw| (flaw, "left out: "));
        let odd = self.roster.remarks.iter().map(|flaw| (flaw, ""));
        about(refused.chain(odd), place)
    }

    fn skill_flaws(&self, place: &str) -> Vec<String> {
        let refused = self.skills.refused.iter().map(|flaw| (flaw, "left out: "));
        about(refused.chain(self.skills.remarks.iter().map(|flaw| (flaw, ""))), place)
    }
}

/// One line for each error about the file or folder at `place`, or about a file below it. The line
/// begins with the text that `flaws` pairs with the error.
fn about<'a>(flaws: impl Iterator<Item = (&'a Failure, &'static str)>, place: &str) -> Vec<String> {
    let theirs = |flaw: &Failure| {
        let rest = flaw.place.as_deref().and_then(|at| at.strip_prefix(place));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
    };
    flaws
        .filter(|(flaw, _)| theirs(flaw))
        .map(|(flaw, begin)| {
            let place = flaw.place.as_deref().map(printable).unwrap_or_default();
            format!("{begin}{}: {} ({place})", flaw.code, warnings::one_line(flaw))
        })
        .collect()
}

/// Lines about an agent: description, mode, tools, decisions, at most [`RULES_MAX`] rules,
/// delegation, provider.
fn facts(agent: &Agent) -> Vec<String> {
    let mut facts = vec![agent.description.clone()];
    let reads = if agent.read_only { ", and it only reads" } else { "" };
    facts.push(format!("mode {}; tools: {}{reads}", <&str>::from(agent.mode), agent.tools));
    let decision = agent.default_decision.map_or("as in every session", <&str>::from);
    facts.push(format!("where no rule decides: {decision}"));
    for rule in agent.rules.iter().take(RULES_MAX) {
        let rule: String = rule.to_string().chars().take(RULE_CHARS_MAX).collect();
        facts.push(format!("rule: {rule}"));
    }
    if agent.rules.len() > RULES_MAX {
        facts.push(format!("and {} more rules", agent.rules.len() - RULES_MAX));
    }
    if agent.delegation.can_delegate {
        let whom = agent.delegation.allowed.as_ref();
        let whom = whom.map_or_else(|| "every callable agent".to_owned(), |all| all.join(", "));
        facts.push(format!("it may call {whom}"));
    }
    if let Some(profile) = &agent.profile {
        facts.push(format!("its context is sent to provider {profile}"));
    }
    facts
}

fn push(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _: std::fmt::Result = writeln!(text, "      {}", printable(line));
}

/// The first lines of `all`, at most [`LINES_MAX`] lines and about [`BYTES_MAX`] bytes, and the
/// number of lines that are not shown completely.
fn first_lines(all: &str) -> (String, usize) {
    let (mut text, mut shown) = (String::new(), 0);
    for line in all.lines().take(LINES_MAX) {
        let left = BYTES_MAX.saturating_sub(text.len());
        let cut = &line[..line.floor_char_boundary(left)];
        text.extend([cut, "\n"]);
        if cut.len() < line.len() {
            break;
        }
        shown += 1;
    }
    (text, all.lines().count() - shown)
}

fn push_beginning(text: &mut String, all: &str) {
    let (begins, more) = first_lines(all);
    for line in begins.lines() {
        push(text, &format!("| {line}"));
    }
    if more > 0 {
        push(text, &format!("| … ({} bytes in all)", all.len()));
    }
}
