//! `/new`, `/resume` and `/fork`: continue in another session.

use crate::RewindExtent;
use crate::commands::{Availability, COMMAND, Choice, Command, SessionSwitch};

pub(super) const NEW: Command = Command {
    name: "new",
    aliases: &["clear"],
    help: "start a new session",
    when: Availability::Idle,
    run: |context, _| context.switch(SessionSwitch::New),
    ..COMMAND
};

pub(super) const RESUME: Command = Command {
    name: "resume",
    brief: "resume a stored session",
    argument: "[ID]",
    help: "resume a stored session; without ID: choose one",
    when: Availability::Idle,
    run: |context, argument| match argument {
        Some(id) => context.switch(SessionSwitch::Resume(id.to_owned())),
        None => context.choose(Choice::StoredSession),
    },
    ..COMMAND
};

pub(super) const FORK: Command = Command {
    name: "fork",
    brief: "continue in a copy of this session",
    argument: "[N]",
    help: "continue in a copy of this session, which ends before prompt N; the original is kept",
    when: Availability::Idle,
    run: |context, argument| match argument.map(str::parse) {
        None => context.switch(SessionSwitch::Fork),
        // The conversation returns in a copy, and files stay.
        Some(Ok(number)) => context.rewind(number, RewindExtent::Conversation),
        Some(Err(_)) => {
            context.tell("write /fork or /fork N; /rewind lists the prompts\n".to_owned());
        }
    },
    ..COMMAND
};
