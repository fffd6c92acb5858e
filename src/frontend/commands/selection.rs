//! `/model`, `/provider`, `/agent` and `/thinking`: select a value of a setting, or list the known ones.

use crate::Selectable;
use crate::commands::{
    Availability, COMMAND, Choice, Command, CommandContext, CommandGroup, SessionSwitch,
};

pub(super) const MODEL: Command = Command {
    name: "model",
    brief: "choose the model",
    argument: "[NAME]",
    help: "use another model of this provider, also next time once it has answered; `default` \
           resets; without NAME: choose one",
    group: CommandGroup::Model,
    when: Availability::Idle,
    run: |context, argument| select(context, Selectable::Model, argument),
    ..COMMAND
};

pub(super) const PROVIDER: Command = Command {
    name: "provider",
    brief: "choose the provider",
    argument: "[NAME]",
    help: "use another provider with its own model, also next time once it has answered; \
           `default` resets; without NAME: choose one",
    group: CommandGroup::Model,
    when: Availability::Idle,
    run: |context, argument| select(context, Selectable::Provider, argument),
    ..COMMAND
};

pub(super) const AGENT: Command = Command {
    name: "agent",
    brief: "choose the agent",
    argument: "[NAME]",
    help: "use another agent; without NAME: choose one",
    group: CommandGroup::Work,
    when: Availability::Idle,
    run: |context, argument| select(context, Selectable::Agent, argument),
    ..COMMAND
};

pub(super) const THINKING: Command = Command {
    name: "thinking",
    brief: "choose the reasoning effort",
    argument: "[EFFORT]",
    help: "let the model think more or less in this session; `default` resets; without EFFORT: \
           choose one",
    when: Availability::Idle,
    run: |context, argument| select(context, Selectable::Thinking, argument),
    ..COMMAND
};

fn select(context: &mut dyn CommandContext, what: Selectable, name: Option<&str>) {
    match name {
        None | Some("?") => context.choose(Choice::Setting(what)),
        Some(name) => context.switch(SessionSwitch::With(what, name.to_owned())),
    }
}
