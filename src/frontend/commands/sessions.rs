//! `/new`, `/resume` and `/fork`: continue in another session.

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
    help: "continue in a copy of this session; the original is kept",
    when: Availability::Idle,
    run: |context, _| context.switch(SessionSwitch::Fork),
    ..COMMAND
};
