//! `posse agents`, `posse tools`, `posse skills` and `posse config instructions`: lists with
//! sources and authority. Each function fails with `ErrorCode::ListOutput` if `out` cannot be
//! written, except to a closed pipe.

use std::io::{self, Write};

use posse_actors::ports::{SideEffect, Thinking, ToolSpec, Toolbox};
use serde_json::{Value, json};

use crate::agents::{Agent, FoundFile, Skill, Skills, ToolSelection};
use crate::failure::{ErrorCode, Exit, Failure, printable};

/// Configured model of an agent. `None` fields: the session's value applies; for `model`, only if
/// `profile` is `None` too, otherwise the default model of `profile`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Serving {
    /// Name of the provider profile.
    pub profile: Option<String>,
    /// Name of the model.
    pub model: Option<String>,
    /// Reasoning effort.
    pub thinking: Option<Thinking>,
}

impl Serving {
    /// The provider profile and the model as text.
    pub fn provider(&self) -> String {
        let profile = self.profile.as_deref().unwrap_or("the session's");
        match &self.model {
            Some(model) => format!("{profile}: {model}"),
            None => profile.to_owned(),
        }
    }
}

/// A tool with the names of the agents that see it.
#[derive(Debug, Clone)]
pub struct ListedTool {
    /// Description of the tool for models.
    pub spec: ToolSpec,
    /// Names of the agents that see it, without hidden ones.
    pub agents: Vec<String>,
    /// Condition that is missing if no agent sees it, such as `agentMode multi-agent`.
    pub needs: Option<&'static str>,
}

impl ListedTool {
    /// A tool that agents select by its name or see with another tool.
    pub fn selected(spec: &ToolSpec, agents: &[Agent]) -> ListedTool {
        let seeing = shown(agents).filter(|agent| agent.tools.sees(spec));
        let agents = seeing.map(|agent| agent.name.clone()).collect();
        ListedTool { spec: spec.clone(), agents, needs: None }
    }
}

/// Writes the agents that are not hidden to `out`, as a table or as JSON. `tools` are the tools from
/// which they select; `default` is the name of the default agent; `serving` returns an agent's
/// configured profile, model and reasoning effort.
pub fn agents(
    agents: &[Agent],
    tools: &Toolbox,
    default: &str,
    serving: impl Fn(&Agent) -> Serving,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let titles =
        ["AGENT", "SOURCE", "MODE", "PROVIDER", "THINKS", "COST", "MAY", "TOOLS", "WHAT IT IS FOR"];
    let row = |agent: &Agent| {
        let star = if agent.name == default { " (default)" } else { "" };
        let served = serving(agent);
        [
            format!("{}{star}", agent.name),
            if agent.from_claude_code {
                format!("{}, Claude Code", <&str>::from(&agent.source))
            } else {
                <&str>::from(&agent.source).to_owned()
            },
            <&str>::from(agent.mode).to_owned(),
            served.provider(),
            served.thinking.map_or("-", Thinking::name).to_owned(),
            agent.catalog.cost.map_or("-", <&str>::from).to_owned(),
            authority(agent, tools).join(", "),
            agent.tools.to_string(),
            agent.description.clone(),
        ]
    };
    let json = |agent: &Agent| {
        let mut shown = agent_json(agent, default, &serving(agent));
        shown["may"] = json!(authority(agent, tools));
        shown
    };
    ended(write_list(shown(agents), as_json, json, titles, row, out), out)
}

/// Side effects that an agent can have: those of its tools, unless its definition restricts it to
/// reading.
fn authority(agent: &Agent, tools: &Toolbox) -> Vec<&'static str> {
    let has = |effect: SideEffect| {
        let specs = tools.iter().map(|tool| tool.spec());
        let seen = |spec: &ToolSpec| spec.side_effect == effect && agent.tools.sees(spec);
        !agent.read_only && specs.into_iter().any(seen)
    };
    let effects = [
        (SideEffect::Workspace, "change"),
        (SideEffect::Process, "run"),
        (SideEffect::Network, "network"),
        (SideEffect::External, "anything"),
    ];
    let found = effects.into_iter().filter(|(effect, _)| has(*effect)).map(|(_, word)| word);
    std::iter::once("read").chain(found).collect()
}

/// Writes the tools to `out`, as a table or as JSON, each with the names of the agents that see it.
pub fn tools(tools: &[ListedTool], as_json: bool, out: &mut dyn Write) -> Result<Exit, Failure> {
    let json = |ListedTool { spec, agents, needs }: &ListedTool| {
        let mut shown = json!({
            "name": spec.name,
            "description": spec.description,
            "source": spec.source,
            "sideEffect": spec.side_effect,
            "access": spec.annotations.access.name(),
            "ruleGroup": spec.annotations.rule_group,
            "agents": agents,
            "parameters": spec.parameters,
        });
        if let Some(needs) = needs {
            shown["needs"] = json!(needs);
        }
        shown
    };
    let row = |ListedTool { spec, agents, needs }: &ListedTool| {
        [
            spec.name.clone(),
            spec.source.clone(),
            effect_name(spec.side_effect).to_owned(),
            needs.map_or_else(|| agents.join(", "), |needs| format!("none: needs {needs}")),
            first_sentence(&spec.description).to_owned(),
        ]
    };
    let titles = ["TOOL", "SOURCE", "SIDE EFFECTS", "AGENTS", "DESCRIPTION"];
    ended(write_list(tools.iter(), as_json, json, titles, row, out), out)
}

/// Writes the files with instructions for agents to `out`, as a table or as JSON, with the use that
/// posse makes of each: state, bytes in the system prompt, estimated tokens (four bytes each), and
/// the reason if it is not read as a whole.
pub fn instructions(
    found: &[FoundFile],
    as_json: bool,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let tokens = |found: &FoundFile| found.bytes.map(|bytes| bytes.div_ceil(4));
    let json = |found: &FoundFile| {
        json!({
            "file": found.file,
            "state": <&str>::from(found.state),
            "bytes": found.bytes,
            "tokens": tokens(found),
            "reason": found.reason,
        })
    };
    let number = |number: Option<usize>| number.map_or("-".to_owned(), |number| number.to_string());
    let row = |found: &FoundFile| {
        [
            found.file.clone(),
            <&str>::from(found.state).to_owned(),
            number(found.bytes),
            number(tokens(found)),
            found.reason.clone().unwrap_or_default(),
        ]
    };
    let written = if found.is_empty() && !as_json {
        writeln!(out, "no instructions are read here")
    } else {
        let titles = ["FILE", "USE", "BYTES", "TOKENS (ABOUT)", "REASON"];
        write_list(found.iter(), as_json, json, titles, row, out)
    };
    ended(written, out)
}

/// Writes the skills to `out`, as a table or as JSON. Without skills, the table is replaced by a
/// hint.
pub fn skills(skills: &Skills, as_json: bool, out: &mut dyn Write) -> Result<Exit, Failure> {
    let row = |skill: &Skill| {
        [
            skill.name.clone(),
            source(skill).to_owned(),
            if skill.only_user { "you" } else { "you, the model" }.to_owned(),
            skill.description.clone(),
        ]
    };
    let written = if skills.is_empty() && !as_json {
        writeln!(
            out,
            "no skills: a skill is a folder with a SKILL.md in .agents/skills of the project or of your home"
        )
    } else {
        let titles = ["SKILL", "SOURCE", "ACTIVATED BY", "WHAT IT IS FOR"];
        write_list(skills.all(), as_json, skill_json, titles, row, out)
    };
    ended(written, out)
}

/// Writes one skill to `out`: its fields and the complete text for the model, or a JSON object with
/// the body of its `SKILL.md` instead of that text.
pub fn skill(skill: &Skill, as_json: bool, out: &mut dyn Write) -> Result<Exit, Failure> {
    let written = if as_json {
        let mut shown = skill_json(skill);
        shown["body"] = json!(skill.body);
        write_json(&shown, out)
    } else {
        let facts = [
            ("skill", skill.name.clone()),
            ("source", source(skill).to_owned()),
            ("place", skill.place.clone()),
            ("license", skill.license.clone().unwrap_or_default()),
            ("what for", skill.description.clone()),
        ];
        let own = skill.metadata.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let rows = facts.into_iter().chain(own).filter(|(_, value)| !value.is_empty());
        let text =
            rows.fold(String::new(), |text, (name, value)| text + &format!("{name:<10} {value}\n"));
        let tokens = skill.content().len().div_ceil(4);
        write!(out, "{text}tokens     about {tokens}\n\n{}", skill.content())
    };
    ended(written, out)
}

fn source(skill: &Skill) -> &'static str {
    if skill.from_project { "project" } else { "user" }
}

fn skill_json(skill: &Skill) -> Value {
    let file = |(path, bytes): (String, u64)| json!({ "path": path, "bytes": bytes });
    json!({
        "name": skill.name,
        "description": skill.description,
        "source": source(skill),
        "place": skill.place,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": skill.metadata,
        "allowedTools": skill.allowed_tools,
        "onlyUser": skill.only_user,
        "files": skill.files().into_iter().map(file).collect::<Vec<_>>(),
    })
}

/// The agents that are not hidden.
pub fn shown(agents: &[Agent]) -> impl Iterator<Item = &Agent> {
    agents.iter().filter(|agent| !agent.hidden)
}

fn agent_json(agent: &Agent, default: &str, serving: &Serving) -> Value {
    let tools = match &agent.tools {
        ToolSelection::All | ToolSelection::AllBut(_) => json!(["*"]),
        ToolSelection::Only(names) => json!(names),
    };
    let disallowed = match &agent.tools {
        ToolSelection::AllBut(names) => json!(names),
        ToolSelection::All | ToolSelection::Only(_) => json!([]),
    };
    json!({
        "name": agent.name,
        "description": agent.description,
        "displayName": agent.display_name,
        "source": <&str>::from(&agent.source),
        "place": agent.source.place(),
        "mode": <&str>::from(agent.mode),
        "provider": serving.profile,
        "model": serving.model,
        "thinking": serving.thinking.map(Thinking::name),
        "cost": agent.catalog.cost.map(<&str>::from),
        "category": agent.catalog.category,
        "callable": agent.delegation.callable,
        "canDelegate": agent.delegation.can_delegate,
        "isolation": if agent.isolated { "worktree" } else { "none" },
        "default": agent.name == default,
        "readOnly": agent.read_only,
        "tools": tools,
        "disallowedTools": disallowed,
        "fromClaudeCode": agent.from_claude_code,
    })
}

fn effect_name(effect: SideEffect) -> &'static str {
    match effect {
        SideEffect::None => "nothing",
        SideEffect::Workspace => "files",
        SideEffect::Process => "processes",
        SideEffect::Network => "network",
        SideEffect::External => "anything",
    }
}

/// The first sentence of `text`, without its full stop.
fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text[..end].trim_end_matches('.')
}

/// Writes `items` as JSON, or as a table with titles.
fn write_list<'a, T: 'a, const N: usize>(
    items: impl Iterator<Item = &'a T>,
    as_json: bool,
    json: impl Fn(&'a T) -> Value,
    titles: [&str; N],
    row: impl Fn(&'a T) -> [String; N],
    out: &mut dyn Write,
) -> io::Result<()> {
    if as_json {
        return write_json(&items.map(json).collect(), out);
    }
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(items.map(row));
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in &rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line.extend([format!("{:<width$}", printable(cell)), "  ".to_owned()]);
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn write_json(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Flushes `out` and converts the result of writing. A closed pipe is not an error.
fn ended(written: io::Result<()>, out: &mut dyn Write) -> Result<Exit, Failure> {
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ErrorCode::ListOutput, Exit::Failed, "the answer cannot be written")
                .because(error.to_string()))
        }
        _ => Ok(Exit::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::built_in;

    fn shown(list: impl FnOnce(&mut dyn Write) -> Result<Exit, Failure>) -> String {
        let mut out = Vec::new();
        assert_eq!(list(&mut out).unwrap(), Exit::Done);
        String::from_utf8(out).unwrap()
    }

    fn toolbox() -> Toolbox {
        let folder = tempfile::tempdir().unwrap();
        let workspace = crate::tools::workspace::Workspace::open(folder.path(), &[]).unwrap();
        let env = crate::tools::ToolEnvironment::new(workspace, folder.path().to_owned());
        let sandbox = crate::sandbox::Sandbox::new(Vec::new()).unwrap();
        crate::tools::builtin(std::sync::Arc::new(env), std::sync::Arc::new(sandbox))
    }

    #[test]
    fn lists_tools_of_each_agent() {
        let mut all = built_in();
        let tools = toolbox();
        let serving = |agent: &Agent| match agent.name.as_str() {
            "explore" => Serving {
                model: Some("small".to_owned()),
                thinking: Some(Thinking::Low),
                ..Serving::default()
            },
            _ => Serving::default(),
        };
        let text = shown(|out| agents(&all, &tools, "build", serving, false, out));
        insta::assert_snapshot!(text, @r"
        AGENT            SOURCE   MODE      PROVIDER              THINKS  COST      MAY                TOOLS                                                  WHAT IT IS FOR
        build (default)  builtin  primary   the session's         -       -         read, change, run  *                                                      Does coding tasks: reads, changes files, runs commands
        plan             builtin  primary   the session's         -       -         read               read_file, grep, glob, list_dir, ask_user, todo_write  Reads and plans; changes nothing
        explore          builtin  subagent  the session's: small  low     cheap     read               read_file, grep, glob, list_dir                        Finds things out in the repository and reports them with their places
        reviewer         builtin  subagent  the session's         -       cheap     read               read_file, grep, glob, list_dir                        Looks for what is wrong in code, and reports it with its places
        worker           builtin  subagent  the session's         -       standard  read, change, run  *                                                      Does one bounded change: reads, changes files, runs commands
        ");
        let json: Value =
            serde_json::from_str(&shown(|out| agents(&all, &tools, "plan", serving, true, out)))
                .unwrap();
        assert_eq!(json[0]["tools"], json!(["*"]));
        assert_eq!((&json[0]["default"], &json[1]["default"]), (&json!(false), &json!(true)));
        assert_eq!(json[1]["readOnly"], json!(true));
        assert_eq!(json[1]["source"], json!("builtin"));
        assert_eq!((&json[3]["mode"], &json[3]["cost"]), (&json!("subagent"), &json!("cheap")));
        all[3].hidden = true;
        assert!(
            !shown(|out| agents(&all, &tools, "build", serving, false, out)).contains("reviewer")
        );
    }

    #[test]
    fn authority_is_that_of_the_tools() {
        let tools = toolbox();
        let mut agent = built_in().remove(0);
        for (names, may) in [
            (["read_file", "grep"].as_slice(), ["read"].as_slice()),
            (&["read_file", "edit_file"], &["read", "change"]),
            (&["bash"], &["read", "run"]),
            (&[], &["read"]),
        ] {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            agent.tools = ToolSelection::Only(names);
            assert_eq!(authority(&agent, &tools), may, "{:?}", agent.tools);
        }
        agent.tools = ToolSelection::All;
        assert_eq!(authority(&agent, &tools), ["read", "change", "run"]);
        agent.read_only = true;
        assert_eq!(authority(&agent, &tools), ["read"]);
    }

    #[test]
    fn a_description_is_cut_after_its_first_sentence() {
        assert_eq!(first_sentence("Reads a.b. And more."), "Reads a.b");
        assert_eq!(first_sentence("Reads"), "Reads");
        assert_eq!(first_sentence(""), "");
    }
}
