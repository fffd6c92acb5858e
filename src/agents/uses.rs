//! Uses of an agent in a session (conversation, single task, subagent), and its settings for one of
//! them. They narrow what the agent may do and never widen it.

use posse_actors::ports::Thinking;
use strum::{IntoStaticStr, VariantArray};

use crate::{Agent, Limits, ToolSelection};

/// Use of an agent in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum AgentUse {
    /// Main agent of a conversation with a person.
    Chat,
    /// Main agent of one task, as with `posse run`.
    Task,
    /// Agent that another agent has called.
    Subagent,
}

/// Settings of an agent for one use, beside those of its definition. `None`: the definition's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UseSettings {
    /// True if the agent cannot be used this way.
    pub disabled: bool,
    /// Provider profile; for subagents only.
    pub profile: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Reasoning effort.
    pub thinking: Option<Thinking>,
    /// Visible tools: of those of the definition, the ones that are named here as well.
    pub tools: Option<ToolSelection>,
    /// Limits. For a subagent they are added to those of the definition, and the lower one counts.
    pub limits: Limits,
    /// Text that follows the instructions; empty if there is none.
    pub append: String,
}

/// Settings of an agent by use. `None`: only the definition counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentUses {
    /// `modes.chat`.
    pub chat: Option<UseSettings>,
    /// `modes.task`.
    pub task: Option<UseSettings>,
    /// `modes.subagent`.
    pub subagent: Option<UseSettings>,
}

/// An agent with its settings for one use.
#[derive(Debug, Clone, PartialEq)]
pub struct UsedAgent {
    /// The agent.
    pub agent: Agent,
    /// Warning that other settings than those of the use count; `None` if they do not.
    pub warning: Option<String>,
}

impl Limits {
    /// The lower limit of each kind.
    fn lower(self, other: Limits) -> Limits {
        Limits {
            turns_max: [self.turns_max, other.turns_max].into_iter().flatten().min(),
            duration_max: [self.duration_max, other.duration_max].into_iter().flatten().min(),
        }
    }
}

impl Agent {
    /// The agent with its settings for `used`. The limits of the definition count for subagents only.
    /// A subagent without settings of its own, or whose settings are disabled, has those for a
    /// conversation. `Err`: it cannot be used this way, with the reason.
    pub fn for_use(&self, used: AgentUse) -> Result<UsedAgent, String> {
        let AgentUses { chat, task, subagent } = &self.uses;
        let name = &self.name;
        let disabled = |mode: &str| format!("{name}: modes.{mode}.enabled is false");
        let mut warning = None;
        let settings = match (used, subagent) {
            (AgentUse::Chat, _) => chat.as_ref(),
            (AgentUse::Task, _) => task.as_ref(),
            (AgentUse::Subagent, Some(own)) if !own.disabled => Some(own),
            (AgentUse::Subagent, other) => {
                if let Some(chat) = chat {
                    if chat.disabled {
                        return Err(format!("{}, and so is modes.subagent", disabled("chat")));
                    }
                    let why = if other.is_some() { "disabled" } else { "missing" };
                    warning = Some(format!(
                        "agent {name}: modes.subagent is {why}; as a subagent it has the settings \
                         of modes.chat"
                    ));
                } else if other.is_some() {
                    warning = Some(format!(
                        "agent {name}: modes.subagent is disabled; as a subagent it has the \
                         settings of its definition"
                    ));
                }
                chat.as_ref()
            }
        };
        if settings.is_some_and(|settings| settings.disabled) {
            return Err(disabled(used.into()));
        }
        let is_main = used != AgentUse::Subagent;
        let mut agent = self.clone();
        agent.uses = AgentUses::default();
        if is_main {
            agent.limits = Limits::default();
        }
        if let Some(settings) = settings {
            let UseSettings { profile, temperature, thinking, tools, limits, append, .. } =
                settings.clone();
            agent.limits = agent.limits.lower(limits);
            agent.temperature = temperature.or(agent.temperature);
            agent.thinking = thinking.or(agent.thinking);
            if profile.is_some() {
                (agent.profile, agent.inherits_root) = (profile, None);
            }
            if let Some(tools) = tools {
                let names = match &tools {
                    ToolSelection::All | ToolSelection::AllBut(_) => None,
                    ToolSelection::Only(names) => Some(names.as_slice()),
                };
                agent.tools = agent.tools.within(names);
            }
            if !append.is_empty() {
                agent.prompt = format!("{}\n\n{append}", agent.prompt);
            }
        }
        Ok(UsedAgent { agent, warning })
    }

    /// Texts that the instructions get in some uses, with the name of the setting.
    pub fn appended(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let AgentUses { chat, task, subagent } = &self.uses;
        let all = [("modes.chat", chat), ("modes.task", task), ("modes.subagent", subagent)];
        all.into_iter()
            .filter_map(|(name, settings)| Some((name, settings.as_ref()?.append.as_str())))
            .filter(|(_, text)| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn only(names: &[&str]) -> ToolSelection {
        ToolSelection::Only(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn agent(uses: AgentUses) -> Agent {
        let limits = Limits { turns_max: Some(9), duration_max: None };
        let tools = only(&["read_file", "grep"]);
        Agent {
            name: "a".to_owned(),
            prompt: "Do.".to_owned(),
            limits,
            tools,
            uses,
            ..Agent::default()
        }
    }

    #[test]
    fn settings_of_a_use_narrow_the_definition() {
        let settings = UseSettings {
            temperature: Some(0.5),
            thinking: Some(Thinking::High),
            tools: Some(only(&["grep", "bash"])),
            limits: Limits { turns_max: Some(20), duration_max: Some(Duration::from_secs(5)) },
            append: "Be brief.".to_owned(),
            ..UseSettings::default()
        };
        for used in AgentUse::VARIANTS {
            let some = Some(settings.clone());
            let uses = match used {
                AgentUse::Chat => AgentUses { chat: some, ..AgentUses::default() },
                AgentUse::Task => AgentUses { task: some, ..AgentUses::default() },
                AgentUse::Subagent => AgentUses { subagent: some, ..AgentUses::default() },
            };
            let UsedAgent { agent: seen, warning } = agent(uses).for_use(*used).unwrap();
            assert_eq!(warning, None);
            assert_eq!((seen.temperature, seen.thinking), (Some(0.5), Some(Thinking::High)));
            assert_eq!(seen.tools, only(&["grep"]), "bash is not one of its tools");
            assert_eq!(seen.prompt, "Do.\n\nBe brief.");
            let turns = if *used == AgentUse::Subagent { 9 } else { 20 };
            assert_eq!(seen.limits.turns_max, Some(turns), "{used:?}");
            assert_eq!(seen.limits.duration_max, Some(Duration::from_secs(5)));
        }
        let plain = agent(AgentUses::default());
        assert_eq!(plain.for_use(AgentUse::Chat).unwrap().agent.limits, Limits::default());
        assert_eq!(plain.for_use(AgentUse::Subagent).unwrap().agent, plain);
    }

    #[test]
    fn subagent_falls_back_to_the_settings_of_a_conversation() {
        let disabled = || Some(UseSettings { disabled: true, ..UseSettings::default() });
        let with = |append: &str| {
            Some(UseSettings { append: append.to_owned(), ..UseSettings::default() })
        };
        let table = [
            (None, with("chat"), Ok("Do.\n\nchat"), "missing"),
            (disabled(), with("chat"), Ok("Do.\n\nchat"), "modes.subagent is disabled"),
            (disabled(), None, Ok("Do."), "settings of its definition"),
            (with("sub"), disabled(), Ok("Do.\n\nsub"), ""),
            (None, disabled(), Err("modes.chat.enabled is false"), ""),
            (disabled(), disabled(), Err("modes.chat.enabled is false"), ""),
        ];
        for (subagent, chat, expected, warning) in table {
            let agent = agent(AgentUses { chat, subagent, task: None });
            match (agent.for_use(AgentUse::Subagent), expected) {
                (Ok(seen), Ok(prompt)) => {
                    assert_eq!(seen.agent.prompt, prompt);
                    let said = seen.warning.unwrap_or_default();
                    assert!(said.contains(warning) && said.is_empty() == warning.is_empty());
                }
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (seen, expected) => panic!("{seen:?}, expected {expected:?}"),
            }
        }
        let off = agent(AgentUses { task: disabled(), ..AgentUses::default() });
        assert!(off.for_use(AgentUse::Task).unwrap_err().contains("modes.task.enabled"));
        assert!(off.for_use(AgentUse::Chat).is_ok());
    }
}
