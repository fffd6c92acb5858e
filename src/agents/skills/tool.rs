//! `skill`: activates a skill, or reads one of its files. Read-only.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use posse_actors::ports::{
    Access, Action, CallContext, PermittedCall, PortFuture, Prepared, RunContext, Tool,
    ToolAnnotations, ToolError, ToolOutput, ToolSpec,
};
use posse_base::failure::{nearest, printable, printable_lines};
use posse_base::hex::sha256;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::skills::{Skill, Skills, TOOL};

/// Maximum number of lines of a file that one call returns.
const LINES_MAX: usize = 1000;

/// Names of the visible skills by agent name. An agent without an entry sees all skills.
pub type Rights = BTreeMap<String, Vec<String>>;

const DESCRIPTION: &str = "Gives you the instructions of a skill, or with `path` the text of one of \
    its files. Nothing is changed or run, and nothing is allowed by it.";

/// Creates the tool `skill`, with which a model reads the instructions and files of those `skills`
/// that `rights` shows to its agent. It refuses skills that only the user may activate.
pub fn tool(skills: Arc<Skills>, rights: Rights) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        name: TOOL.to_owned(),
        description: DESCRIPTION.to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "The skill" },
                "path": { "type": "string", "description": "One of its files" },
                "offset": { "type": "integer", "minimum": 1, "description": "First line, from 1" },
            },
            "required": ["name"],
        }),
        side_effect: Access::Session.side_effect(),
        source: "builtin".to_owned(),
        annotations: ToolAnnotations::new(Access::Session),
    };
    Arc::new(SkillTool { spec, skills, rights })
}

struct SkillTool {
    spec: ToolSpec,
    skills: Arc<Skills>,
    rights: Rights,
}

#[derive(Deserialize)]
struct Arguments {
    name: String,
    path: Option<String>,
    offset: Option<usize>,
}

impl Tool for SkillTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(
        &self,
        arguments: Value,
        context: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>> {
        let prepared = self.prepared(arguments, &context.agent);
        Box::pin(std::future::ready(prepared))
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        // Exactly the text that was judged.
        let output = call.into_payload().downcast::<ToolOutput>();
        let output = output
            .map_or_else(|_| ToolOutput::error("the call is not of this tool"), |output| *output);
        Box::pin(std::future::ready(output))
    }
}

impl SkillTool {
    fn prepared(&self, arguments: Value, agent: &str) -> Result<Prepared, ToolError> {
        let Arguments { name, path, offset } = serde_json::from_value(arguments)
            .map_err(|error| ToolError::new("ARG001", error.to_string()))?;
        let skill = self.visible_skill(&name, agent)?;
        let (text, summary) = match &path {
            None => (skill.content(), format!("use skill {name}")),
            Some(path) => {
                let text = read(skill, path, offset.unwrap_or(1))?;
                (text, format!("read {} of skill {name}", printable(path)))
            }
        };
        let hashed = format!("{TOOL}\0{name}\0{}\0{text}", path.as_deref().unwrap_or_default());
        let action = Action {
            tool: TOOL.to_owned(),
            operations: Vec::new(),
            summary,
            detail: format!("{} ({})", skill.description, skill.place),
            digest: sha256(hashed.as_bytes()),
        };
        let output = ToolOutput::text(text).with_metadata(json!({ "skill": name, "path": path }));
        Ok(Prepared { action, payload: Box::new(output) })
    }

    fn visible_skill(&self, name: &str, agent: &str) -> Result<&Skill, ToolError> {
        let sees = |skill: &&Skill| {
            let named = self.rights.get(agent);
            named.is_none_or(|names| names.contains(&skill.name))
        };
        if let Some(skill) = self.skills.all().filter(sees).find(|skill| skill.name == name) {
            if skill.only_user {
                let what = format!("only the user activates {name}; continue without it");
                return Err(ToolError::new("SKL006", what));
            }
            return Ok(skill);
        }
        let names: Vec<&str> =
            self.skills.all().filter(sees).map(|skill| skill.name.as_str()).collect();
        let hint = match nearest(name, names.iter().copied()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("there are: {}", names.join(", ")),
        };
        Err(ToolError::new("SKL005", format!("there is no skill {}; {hint}", printable(name))))
    }
}

fn read(skill: &Skill, path: &str, offset: usize) -> Result<String, ToolError> {
    let refused = |why: &str| {
        let path = printable(path);
        ToolError::new("SKL007", format!("{path} of skill {} cannot be read: {why}", skill.name))
    };
    let text = skill.file(path).map_err(|why| {
        let files: Vec<String> = skill.files().into_iter().map(|(path, _)| path).collect();
        match nearest(path, files.iter().map(String::as_str)) {
            Some(meant) if meant != path => refused(&format!("{why}; did you mean {meant}?")),
            _ => refused(&why),
        }
    })?;
    let total = text.lines().count();
    if offset > total.max(1) {
        return Err(refused(&format!("it has {total} lines")));
    }
    let first = offset.max(1);
    let lines: Vec<&str> = text.lines().skip(first - 1).take(LINES_MAX).collect();
    let last = first - 1 + lines.len();
    let mut given = printable_lines(&lines.join("\n"));
    if last < total {
        let next = last + 1;
        // Writing to a string cannot fail.
        let _ = write!(given, "\n[lines {first} to {last} of {total}; offset {next} continues]");
    }
    Ok(given)
}
