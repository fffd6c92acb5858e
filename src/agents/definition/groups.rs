//! Groups of a definition with settings for one use of the agent (`modes`), and with its authority.

use serde_json::{Map, Value};

use posse_actors::ports::Thinking;
use posse_base::failure::{ErrorCode, printable, printable_lines};
use strum::VariantArray as _;

use super::{DefinitionReader, FieldGroup};
use crate::roster::KnownNames;
use crate::uses::{AgentUse, AgentUses, UseSettings};
use crate::{AgentDecision, Limits, ToolSelection};

/// Maximum size of a text that follows the instructions in one use, in bytes.
const APPEND_BYTES_MAX: usize = 8 << 10;

/// Paths of the groups of one use: the use itself, and its groups.
struct UsePaths {
    used: AgentUse,
    own: &'static str,
    limits: &'static str,
    prompt: &'static str,
    provider: &'static str,
}

const USES: [UsePaths; 3] = [
    UsePaths {
        used: AgentUse::Chat,
        own: "modes.chat",
        limits: "modes.chat.limits",
        prompt: "modes.chat.prompt",
        provider: "modes.chat.provider",
    },
    UsePaths {
        used: AgentUse::Task,
        own: "modes.task",
        limits: "modes.task.limits",
        prompt: "modes.task.prompt",
        provider: "modes.task.provider",
    },
    UsePaths {
        used: AgentUse::Subagent,
        own: "modes.subagent",
        limits: "modes.subagent.limits",
        prompt: "modes.subagent.prompt",
        provider: "modes.subagent.provider",
    },
];

/// Fields of a use.
const FIELDS: [&str; 7] =
    ["enabled", "limits", "prompt", "provider", "temperature", "thinking", "tools"];

/// Fields of a use in other programs, each with its counterpart.
const COUNTERPARTS: [(&str, &str); 8] = [
    ("allowedAgents", "set delegation.allowedAgents of the agent"),
    ("autoLoadSkills", "name the skill in prompt.append"),
    ("disallowedTools", "set disallowedTools of the agent"),
    ("mcpServers", "this version has no MCP servers"),
    ("permissions", "set permissions of the agent"),
    ("reasoning", "set thinking"),
    ("skills", "set skills of the agent"),
    ("systemPrompt", "set prompt: { append: TEXT }"),
];

/// The parts of the group `authority`.
#[derive(Default)]
pub(super) struct Authority {
    pub(super) read_only: bool,
    /// Tools that the agent may use; `None`: all that it sees.
    pub(super) tools: Option<Vec<String>>,
    pub(super) rules: Vec<Value>,
    pub(super) default_decision: Option<AgentDecision>,
}

impl<'a> DefinitionReader<'a> {
    /// The group `modes`.
    pub(super) fn uses(&mut self, top: &FieldGroup<'a>, known: &KnownNames<'_>) -> AgentUses {
        let group = self.group(top, "modes");
        if group.fields.is_some_and(|fields| fields.contains_key("daemon")) {
            let what = "modes.daemon is not known: posse has no daemon";
            self.error("modes.daemon", what, "use task for runs without a person");
        }
        self.only(&group, &["chat", "daemon", "subagent", "task"]);
        let mut uses = AgentUses::default();
        for paths in USES {
            let place = match paths.used {
                AgentUse::Chat => &mut uses.chat,
                AgentUse::Task => &mut uses.task,
                AgentUse::Subagent => &mut uses.subagent,
            };
            *place = self.settings_of_use(&group, &paths, known);
        }
        uses
    }

    fn settings_of_use(
        &mut self,
        modes: &FieldGroup<'a>,
        paths: &UsePaths,
        known: &KnownNames<'_>,
    ) -> Option<UseSettings> {
        let name: &str = paths.used.into();
        let group = self.nested(modes, name, paths.own);
        let fields = group.fields?;
        for (field, counterpart) in COUNTERPARTS {
            if fields.contains_key(field) {
                let path = group.at(field);
                self.error(&path, format!("{path} is not known"), counterpart);
            }
        }
        if fields.contains_key("model") {
            let path = group.at("model");
            let counterpart = match paths.used {
                AgentUse::Subagent => "name a profile of `providers`: provider: { profile: NAME }",
                AgentUse::Chat | AgentUse::Task => {
                    "leave it out: the main agent has the model of the session, which `model` in \
                     the configuration or --model selects"
                }
            };
            self.error(&path, format!("{path} is not known"), counterpart);
        }
        let of_others = COUNTERPARTS.iter().map(|(field, _)| *field).chain(["model"]);
        self.only(&group, &FIELDS.into_iter().chain(of_others).collect::<Vec<_>>());
        let limits = self.nested(&group, "limits", paths.limits);
        self.only(&limits, &["maxDurationSeconds", "maxTurns"]);
        Some(UseSettings {
            disabled: self.flag(&group, "enabled") == Some(false),
            profile: self.profile_of_use(&group, paths, known),
            temperature: self.temperature(&group),
            thinking: self.choice(&group, "thinking", Thinking::ALL),
            tools: self.tools_of_use(&group, known),
            limits: self.limit_fields(&limits),
            append: self.append(&group, paths.prompt),
        })
    }

    fn profile_of_use(
        &mut self,
        group: &FieldGroup<'a>,
        paths: &UsePaths,
        known: &KnownNames<'_>,
    ) -> Option<String> {
        let provider = self.nested(group, "provider", paths.provider);
        self.only(&provider, &["profile"]);
        let profile = self.text(&provider, "profile")?;
        let path = provider.at("profile");
        if paths.used != AgentUse::Subagent {
            let what = format!("{path}: the main agent uses the provider of the session");
            self.error(&path, what, "set defaultProvider, or use --provider and --model");
        } else if !(known.has_profile)(profile) {
            let what = format!("there is no provider profile \"{}\"", printable(profile));
            let fix = "add it to `providers`, or leave it out";
            self.error_as(ErrorCode::AgentProfileUnknown, &path, what, fix);
        }
        Some(profile.to_owned())
    }

    fn tools_of_use(
        &mut self,
        group: &FieldGroup<'a>,
        known: &KnownNames<'_>,
    ) -> Option<ToolSelection> {
        let names = self.names(group, "tools")?;
        let tools = names.iter().map(String::as_str).filter(|name| *name != "*");
        self.check_tools(&group.at("tools"), tools, known);
        let all = names.iter().any(|name| name == "*");
        Some(if all { ToolSelection::All } else { ToolSelection::Only(names) })
    }

    fn append(&mut self, group: &FieldGroup<'a>, path: &'static str) -> String {
        let prompt = self.nested(group, "prompt", path);
        self.only(&prompt, &["append"]);
        let text = self.text(&prompt, "append").unwrap_or_default().trim();
        if text.len() > APPEND_BYTES_MAX {
            let what = format!("it is longer than {APPEND_BYTES_MAX} bytes");
            self.error(&prompt.at("append"), what, "make it shorter");
        }
        printable_lines(text)
    }

    /// The field or group `authority`.
    pub(super) fn authority(&mut self, top: &FieldGroup<'a>, known: &KnownNames<'_>) -> Authority {
        if !top.fields.is_some_and(|fields| fields.get("authority").is_some_and(Value::is_object)) {
            let word = self.choice(top, "authority", &["full", "read-only"]);
            return Authority { read_only: word == Some("read-only"), ..Authority::default() };
        }
        let group = self.group(top, "authority");
        self.only(&group, &["defaultDecision", "permissions", "tools"]);
        let tools = self.names(&group, "tools");
        let given = tools.iter().flatten().map(String::as_str).filter(|name| *name != "*");
        self.check_tools("authority.tools", given, known);
        let tools = tools.filter(|names| names.iter().all(|name| name != "*"));
        Authority {
            read_only: false,
            tools,
            rules: self.rules(&group, known),
            default_decision: self.choice(&group, "defaultDecision", AgentDecision::VARIANTS),
        }
    }

    /// The group `name` of the group `above`, which is not at the top level, with its whole path.
    fn nested(&mut self, above: &FieldGroup<'a>, name: &str, path: &'static str) -> FieldGroup<'a> {
        let fields = match above.fields.and_then(|fields: &Map<String, Value>| fields.get(name)) {
            Some(Value::Object(fields)) => Some(fields),
            None | Some(Value::Null) => None,
            Some(_) => {
                self.error(path, format!("{path} is not a group of fields"), "nest them");
                None
            }
        };
        FieldGroup { path, fields }
    }

    /// The limits in `group`.
    pub(super) fn limit_fields(&mut self, group: &FieldGroup<'_>) -> Limits {
        let seconds = self.whole(group, "maxDurationSeconds", 1, 7 * 24 * 3600);
        Limits {
            turns_max: self.whole(group, "maxTurns", 1, 10_000),
            duration_max: seconds.map(|seconds| std::time::Duration::from_secs(seconds.into())),
        }
    }
}
