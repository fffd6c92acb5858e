//! Parser of one agent definition. Errors are reported with their location, and an invalid
//! definition is rejected as a whole.

mod groups;

use posse_actors::ports::Thinking;
use posse_base::failure::{ErrorCode, Exit, Failure, did_you_mean, printable, printable_lines};
use serde::Deserialize;
use serde_json::{Map, Value};
use strum::VariantArray as _;

use crate::roster::KnownNames;
use crate::{
    Agent, AgentDecision, AgentMode, AgentSource, CatalogEntry, Cost, Delegation, Limits,
    ToolSelection,
};

/// Maximum length of the name of an agent in characters.
const NAME_CHARS_MAX: usize = 40;
/// Maximum size of the instructions in bytes.
const PROMPT_BYTES_MAX: usize = 32 << 10;
/// Maximum length of a one-line field, such as the description, in bytes.
const LINE_BYTES_MAX: usize = 1000;

/// Fields of a provider profile. The group `provider` of a definition must not contain them: it can
/// only name a profile.
const OF_PROVIDERS: [&str; 11] = [
    "apiKey",
    "apiKeyEnv",
    "auth",
    "baseURL",
    "baseUrl",
    "endpoint",
    "headers",
    "model",
    "token",
    "type",
    "url",
];

/// Fields at the top level of a definition. Any other field is an error.
const FIELDS: [&str; 20] = [
    "authority",
    "catalog",
    "defaultDecision",
    "delegation",
    "description",
    "disallowedTools",
    "displayName",
    "hidden",
    "isolation",
    "limits",
    "mode",
    "modes",
    "name",
    "permissions",
    "prompt",
    "provider",
    "skills",
    "temperature",
    "thinking",
    "tools",
];

/// Fields that the group `delegation` may have.
const OF_DELEGATION: [&str; 6] =
    ["allowedAgents", "callable", "canDelegate", "deniedAgents", "invocationDecision", "maxDepth"];

/// A definition before validation.
pub(super) struct DefinitionSource<'a> {
    pub(super) name: &'a str,
    pub(super) fields: &'a Map<String, Value>,
    /// Text below the front matter. `None`: the definition is an entry of the configuration.
    pub(super) body: Option<&'a str>,
    pub(super) source: AgentSource,
    /// Returns the location of the field with a dotted path, for messages.
    pub(super) place: &'a dyn Fn(&str) -> String,
}

/// True if an agent may have this name: at most 40 of `a` to `z`, `0` to `9`, `-` and `_`,
/// beginning with a letter.
pub(super) fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && name.len() <= NAME_CHARS_MAX
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'))
}

/// Validates a definition. Returns the agent, or all errors.
pub(super) fn define(
    written: &DefinitionSource<'_>,
    known: &KnownNames<'_>,
) -> Result<Agent, Vec<Failure>> {
    let mut reader = DefinitionReader { written, flaws: Vec::new() };
    let agent = reader.agent(known);
    if reader.flaws.is_empty() { Ok(agent) } else { Err(reader.flaws) }
}

struct DefinitionReader<'a> {
    written: &'a DefinitionSource<'a>,
    flaws: Vec<Failure>,
}

/// Group of fields, with its path, which is empty at the top level. `fields`: `None` if the group
/// is missing or not an object.
struct FieldGroup<'a> {
    path: &'a str,
    fields: Option<&'a Map<String, Value>>,
}

impl FieldGroup<'_> {
    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

impl<'a> DefinitionReader<'a> {
    fn error(&mut self, path: &str, what: impl AsRef<str>, fix: impl Into<String>) {
        self.error_as(ErrorCode::AgentDefinitionInvalid, path, what, fix);
    }

    fn error_as(
        &mut self,
        code: ErrorCode,
        path: &str,
        what: impl AsRef<str>,
        fix: impl Into<String>,
    ) {
        let place = (self.written.place)(path);
        let what = format!("agent \"{}\": {}", printable(self.written.name), what.as_ref());
        self.flaws.push(Failure::new(code, Exit::Configuration, what).at(place).fix(fix));
    }

    fn agent(&mut self, known: &KnownNames<'_>) -> Agent {
        let name = self.written.name;
        if !is_name(name) {
            let fix =
                format!("up to {NAME_CHARS_MAX} of a-z, 0-9, - and _, beginning with a letter");
            self.error("name", "its name is not usable", fix);
        }
        let top = FieldGroup { path: "", fields: Some(self.written.fields) };
        self.only(&top, &FIELDS);
        if self.text(&top, "name").is_some_and(|given| given != name) {
            let fix = format!("call it \"{name}\", or leave the name out");
            self.error("name", "its name is not that of its place", fix);
        }
        let description = self.line(&top, "description");
        if description.is_none() {
            self.error("", "it has no description", "say in one line what it is for");
        }
        let mode = self.choice(&top, "mode", AgentMode::VARIANTS).unwrap_or(AgentMode::Subagent);
        let default_decision = self.choice(&top, "defaultDecision", AgentDecision::VARIANTS);
        let authority = self.authority(&top, known);
        let agent = Agent {
            name: name.to_owned(),
            display_name: self.line(&top, "displayName"),
            description: description.unwrap_or_default(),
            source: self.written.source.clone(),
            mode,
            hidden: self.flag(&top, "hidden").unwrap_or_default(),
            profile: self.profile(&top, known),
            inherits_root: Self::inherits_root(&top),
            temperature: self.temperature(&top),
            thinking: self.choice(&top, "thinking", Thinking::ALL),
            tools: self.tools(&top, known).within(authority.tools.as_deref()),
            skills: self.names(&top, "skills"),
            read_only: authority.read_only,
            rules: self.rules(&top, known).into_iter().chain(authority.rules).collect(),
            default_decision: stricter(default_decision, authority.default_decision),
            delegation: self.delegation(&top, mode),
            catalog: self.catalog(&top),
            limits: self.limits(&top),
            isolated: self.choice(&top, "isolation", &["none", "worktree"]) == Some("worktree"),
            from_claude_code: false,
            prompt: self.prompt(&top),
            uses: self.uses(&top, known),
        };
        self.check_project_restrictions(&agent);
        agent
    }

    /// Reports the parts of a project's definition that would permit something: it may only narrow
    /// the user's authority.
    fn check_project_restrictions(&mut self, agent: &Agent) {
        const FIX: &str = "leave it out: a repository can only add rules that deny or ask";
        if !matches!(agent.source, AgentSource::Project(_)) {
            return;
        }
        if agent.default_decision == Some(AgentDecision::Allow) {
            let what = "a repository cannot allow what nothing else covers";
            self.error("defaultDecision", what, FIX);
        }
        if let Some(nth) = agent.rules.iter().position(|rule| rule["decision"] == "allow") {
            self.error(&format!("permissions[{nth}]"), "a repository cannot allow anything", FIX);
        }
        if agent.delegation.invocation == Some(AgentDecision::Allow) {
            let what = "a repository cannot allow itself to be called";
            self.error("delegation.invocationDecision", what, FIX);
        }
    }

    fn profile(&mut self, top: &FieldGroup<'a>, known: &KnownNames<'_>) -> Option<String> {
        let group = self.group(top, "provider");
        for field in group.fields.into_iter().flat_map(Map::keys) {
            if OF_PROVIDERS.contains(&field.as_str()) {
                let what = format!("provider.{field} does not belong into an agent");
                let fix = "name a profile: endpoint, model and key stand in `providers` of your \
                           configuration";
                let path = format!("provider.{field}");
                self.error_as(ErrorCode::AgentProviderField, &path, what, fix);
            }
        }
        let names: Vec<&str> = OF_PROVIDERS.into_iter().chain(["profile", "inheritRoot"]).collect();
        self.only(&group, &names);
        let profile = self.text(&group, "profile");
        if self.flag(&group, "inheritRoot") == Some(true) && profile.is_some() {
            let what = "it has a profile and inherits the session's";
            self.error("provider", what, "leave one of them out");
        }
        let profile = profile?;
        if !(known.has_profile)(profile) {
            let what = format!("there is no provider profile \"{}\"", printable(profile));
            let fix = "add it to `providers`, or leave it out";
            self.error_as(ErrorCode::AgentProfileUnknown, "provider.profile", what, fix);
        }
        Some(profile.to_owned())
    }

    /// The field `provider.inheritRoot`. `None` if it is not set.
    fn inherits_root(top: &FieldGroup<'a>) -> Option<bool> {
        let fields = top.fields.and_then(|fields| fields.get("provider")?.as_object());
        fields?.get("inheritRoot")?.as_bool()
    }

    fn temperature(&mut self, top: &FieldGroup<'a>) -> Option<f64> {
        let given = top.fields?.get("temperature")?;
        // The front matter has no decimal numbers: they arrive as texts.
        let number = given.as_f64().or_else(|| given.as_str()?.parse().ok());
        let number = number.filter(|number| (0.0..=2.0).contains(number));
        if number.is_none() {
            let (path, fix) = (top.at("temperature"), "write a number from 0 to 2");
            self.error(&path, format!("{path} is out of range"), fix);
        }
        number
    }

    fn tools(&mut self, top: &FieldGroup<'a>, known: &KnownNames<'_>) -> ToolSelection {
        const FIX: &str = "write tools: { visible: [read_file, grep] }; \"*\" for all, [] for none";
        let given = top.fields.and_then(|fields| fields.get("tools"));
        if let Some(names) = self.names(top, "disallowedTools") {
            if given.is_some() {
                let what = "it has both tools and disallowedTools";
                self.error("disallowedTools", what, "leave one of them out");
            }
            self.check_tools("disallowedTools", names.iter().map(String::as_str), known);
            return ToolSelection::AllBut(names);
        }
        let (path, list) = match given {
            Some(Value::Object(_)) => {
                let group = self.group(top, "tools");
                self.only(&group, &["visible"]);
                ("tools.visible", group.fields.and_then(|fields| fields.get("visible")))
            }
            other => ("tools", other),
        };
        if list.is_some_and(|list| list == "*") {
            return ToolSelection::All;
        }
        let Some(names) = list.and_then(|list| Vec::<&str>::deserialize(list).ok()) else {
            self.error(path, "it does not say which tools it sees", FIX);
            return ToolSelection::Only(Vec::new());
        };
        if names.contains(&"*") {
            return ToolSelection::All;
        }
        self.check_tools(path, names.iter().copied(), known);
        ToolSelection::Only(names.into_iter().map(str::to_owned).collect())
    }

    /// Reports names of tools in the list at `path` that do not exist.
    fn check_tools<'n>(
        &mut self,
        path: &str,
        names: impl Iterator<Item = &'n str>,
        known: &KnownNames<'_>,
    ) {
        for (nth, name) in names.enumerate() {
            if !known.tools.iter().any(|tool| tool == name) {
                let what = format!("there is no tool \"{}\"", printable(name));
                let fix = did_you_mean(name, known.tools.iter().map(String::as_str))
                    .unwrap_or_else(|| format!("choose from {}", known.tools.join(", ")));
                self.error_as(ErrorCode::AgentToolUnknown, &format!("{path}[{nth}]"), what, fix);
            }
        }
    }

    fn rules(&mut self, top: &FieldGroup<'a>, known: &KnownNames<'_>) -> Vec<Value> {
        let Some(given) = top.fields.and_then(|fields| fields.get("permissions")) else {
            return Vec::new();
        };
        let path = top.at("permissions");
        let Value::Array(rules) = given else {
            let fix = "write [{ tool: bash, decision: deny }]";
            self.error(&path, format!("{path} is not a list of rules"), fix);
            return Vec::new();
        };
        for (nth, rule) in rules.iter().enumerate() {
            for wrong in (known.check_rules)(std::slice::from_ref(rule)) {
                let at = format!("{path}[{nth}]");
                let what = wrong.what.replace("permissions[0]", &at);
                let fix = wrong.fix.unwrap_or_default();
                self.error(&at, what, fix);
            }
        }
        rules.clone()
    }

    fn delegation(&mut self, top: &FieldGroup<'a>, mode: AgentMode) -> Delegation {
        let group = self.group(top, "delegation");
        self.only(&group, &OF_DELEGATION);
        let callable = self.flag(&group, "callable").unwrap_or(mode != AgentMode::Primary);
        if callable && mode == AgentMode::Primary {
            let what = "a primary agent works for the user and cannot be called";
            self.error("delegation.callable", what, "set mode to all or subagent");
        }
        let allowed = self.names(&group, "allowedAgents");
        let denied = self.names(&group, "deniedAgents").unwrap_or_default();
        if allowed.is_some() && !denied.is_empty() {
            let what = "it has both allowedAgents and deniedAgents";
            self.error("delegation.deniedAgents", what, "leave one of them out");
        }
        Delegation {
            callable,
            can_delegate: self.flag(&group, "canDelegate").unwrap_or(false),
            allowed,
            denied,
            depth_max: self.whole(&group, "maxDepth", 0, 8),
            invocation: self.choice(&group, "invocationDecision", AgentDecision::VARIANTS),
        }
    }

    fn catalog(&mut self, top: &FieldGroup<'a>) -> CatalogEntry {
        let group = self.group(top, "catalog");
        self.only(&group, &["avoidWhen", "category", "cost", "triggers", "useWhen"]);
        let entry = CatalogEntry {
            category: self.line(&group, "category"),
            cost: self.choice(&group, "cost", Cost::VARIANTS),
            use_when: self.names(&group, "useWhen").unwrap_or_default(),
            avoid_when: self.names(&group, "avoidWhen").unwrap_or_default(),
        };
        // Keywords: checked, and not used.
        self.names(&group, "triggers");
        entry
    }

    fn limits(&mut self, top: &FieldGroup<'a>) -> Limits {
        let group = self.group(top, "limits");
        self.only(&group, &["maxDurationSeconds", "maxTurns"]);
        self.limit_fields(&group)
    }

    fn prompt(&mut self, top: &FieldGroup<'a>) -> String {
        let given = top.fields.and_then(|fields| fields.get("prompt"));
        let said = match given {
            Some(Value::Object(_)) => {
                let group = self.group(top, "prompt");
                self.only(&group, &["append", "system"]);
                let parts = [self.text(&group, "system"), self.text(&group, "append")];
                parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
            }
            _ => self.text(top, "prompt").unwrap_or_default().to_owned(),
        };
        let body = self.written.body.unwrap_or_default();
        let parts = [body, said.as_str()].into_iter().map(str::trim);
        let prompt = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n");
        if prompt.is_empty() {
            let fix = match self.written.body {
                Some(_) => "write instructions below the front matter",
                None => "give it a field `prompt` with instructions",
            };
            self.error("prompt", "it has no instructions", fix);
        } else if prompt.len() > PROMPT_BYTES_MAX {
            let what = format!("its instructions are longer than {PROMPT_BYTES_MAX} bytes");
            self.error("prompt", what, "make it shorter");
        }
        // Hidden characters become visible for the model as well.
        printable_lines(&prompt)
    }

    fn group<'g>(&mut self, above: &FieldGroup<'a>, name: &'g str) -> FieldGroup<'g>
    where
        'a: 'g,
    {
        let fields = match above.fields.and_then(|fields| fields.get(name)) {
            Some(Value::Object(fields)) => Some(fields),
            None | Some(Value::Null) => None,
            Some(_) => {
                self.error(name, format!("{name} is not a group of fields"), "nest them");
                None
            }
        };
        FieldGroup { path: name, fields }
    }

    fn only(&mut self, group: &FieldGroup<'_>, names: &[&str]) {
        for field in group.fields.into_iter().flat_map(Map::keys) {
            if !names.contains(&field.as_str()) {
                let path = group.at(field);
                let fix = did_you_mean(field, names.iter().copied())
                    .unwrap_or_else(|| format!("known are {}", names.join(", ")));
                let what = format!("unknown field \"{}\"", printable(&path));
                self.error(&path, what, fix);
            }
        }
    }

    /// Reads the field `name`; `None` if it is missing. If its value has another type, reports that
    /// the field is `is_not` (such as `not a text`), with the fix, and returns `None`.
    fn field<'g, T: Deserialize<'g>>(
        &mut self,
        group: &FieldGroup<'g>,
        name: &str,
        is_not: &str,
        fix: &str,
    ) -> Option<T> {
        let value = T::deserialize(group.fields?.get(name)?).ok();
        if value.is_none() {
            let path = group.at(name);
            self.error(&path, format!("{path} is {is_not}"), fix);
        }
        value
    }

    fn text<'g>(&mut self, group: &FieldGroup<'g>, name: &str) -> Option<&'g str> {
        self.field::<Option<&str>>(group, name, "not a text", "put it in quotes")?
    }

    fn line(&mut self, group: &FieldGroup<'_>, name: &str) -> Option<String> {
        let text = self.text(group, name)?.trim();
        if text.len() > LINE_BYTES_MAX {
            let path = group.at(name);
            let what = format!("{path} is longer than {LINE_BYTES_MAX} bytes");
            self.error(&path, what, "make it one line");
        }
        Some(one_line(text)).filter(|line| !line.is_empty())
    }

    fn flag(&mut self, group: &FieldGroup<'_>, name: &str) -> Option<bool> {
        self.field::<Option<bool>>(group, name, "not true or false", "write true or false")?
    }

    fn whole(&mut self, group: &FieldGroup<'_>, name: &str, least: u32, most: u32) -> Option<u32> {
        let given = group.fields?.get(name)?;
        let number = given.as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let path = group.at(name);
            let fix = format!("write a whole number from {least} to {most}");
            self.error(&path, format!("{path} is out of range"), fix);
        }
        number
    }

    fn names(&mut self, group: &FieldGroup<'_>, name: &str) -> Option<Vec<String>> {
        let names: Vec<&str> = self.field(group, name, "not a list of texts", "write [a, b]")?;
        Some(names.into_iter().map(one_line).collect())
    }

    fn choice<T: Copy + Into<&'static str>>(
        &mut self,
        group: &FieldGroup<'_>,
        name: &str,
        all: &[T],
    ) -> Option<T> {
        let text = self.text(group, name)?;
        let words: Vec<&str> = all.iter().map(|one| (*one).into()).collect();
        let chosen = words.iter().position(|word| *word == text).map(|nth| all[nth]);
        if chosen.is_none() {
            let path = group.at(name);
            let what = format!("{path} is \"{}\"", printable(text));
            self.error(&path, what, format!("one of {}", words.join(", ")));
        }
        chosen
    }
}

/// The stricter of two decisions; `None` if neither is set.
fn stricter(one: Option<AgentDecision>, other: Option<AgentDecision>) -> Option<AgentDecision> {
    let strictness = |decision: &AgentDecision| match decision {
        AgentDecision::Allow => 0,
        AgentDecision::Ask => 1,
        AgentDecision::Deny => 2,
    };
    [one, other].into_iter().flatten().max_by_key(strictness)
}

/// `text` as one printable line.
pub(super) fn one_line(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}
