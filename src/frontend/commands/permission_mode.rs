//! `/permission-mode`: shows or changes the permission mode of the session. Also for the key that
//! goes to the next mode.

use std::fmt::Write as _;

use posse_actors::event::PermissionMode;
use posse_actors::permission_coordinator::ModeChange;
use posse_actors::root_session::SessionHandle;
use posse_base::failure::{nearest, printable};

use crate::commands::{
    ArgumentValues, Availability, COMMAND, Command, CommandContext, CommandGroup, QueryAnswer,
    SessionQuery,
};
use crate::instruction::Instruction;

pub(super) const PERMISSION_MODE: Command = Command {
    name: "permission-mode",
    brief: "choose the permission mode",
    argument: "[MODE]",
    help: "use the permission mode plan, ask, edits, auto or locked; without MODE: choose one",
    group: CommandGroup::Permissions,
    values: ArgumentValues::PermissionModes,
    when: Availability::Immediate,
    run: |context, argument| match argument {
        None => context.choose_permission_mode(),
        Some(name) => select(context, name),
    },
    ..COMMAND
};

/// Query that changes the session to the next mode of the cycle plan, ask, edits, auto.
pub fn next_permission_mode() -> SessionQuery {
    SessionQuery::new(|session| async move {
        match session.requested_permission_mode().next() {
            Some(next) => change(&session, next).await,
            None => QueryAnswer::Text(
                "the mode is locked: /permission-mode MODE leaves it\n".to_owned(),
            ),
        }
    })
}

fn select(context: &mut dyn CommandContext, name: &str) {
    let Some(mode) = PermissionMode::named(name) else {
        let names = PermissionMode::KNOWN.map(PermissionMode::as_str);
        let meant = nearest(name, names).map(|meant| format!(", did you mean {meant}?"));
        let text = format!(
            "There is no permission mode \"{}\"{}; modes: {}.\n",
            printable(name),
            meant.unwrap_or_default(),
            names.join(", ")
        );
        return context.query(SessionQuery::text(|_| async move { text }));
    };
    context.query(permission_mode_query(mode));
}

/// Query that changes the session to this mode.
pub fn permission_mode_query(mode: PermissionMode) -> SessionQuery {
    let query = SessionQuery::new(move |session| async move { change(&session, mode).await });
    query.with_instruction(Instruction::PermissionMode(mode))
}

/// Query for all modes with their meaning.
pub fn modes_query() -> SessionQuery {
    SessionQuery::text(|session| async move { modes(&session) })
}

async fn change(session: &SessionHandle, mode: PermissionMode) -> QueryAnswer {
    match session.set_permission_mode(mode, None).await {
        Ok(ModeChange { is_same: true, .. }) => {
            QueryAnswer::Text(format!("the permission mode is {mode} already\n"))
        }
        Ok(ModeChange { restriction, .. }) => {
            QueryAnswer::Announced(changed(mode, restriction.as_deref()) + "\n")
        }
        Err(error) => QueryAnswer::Text(format!("{error}\n")),
    }
}

/// Text about a change to `mode`, in one line. `restriction`: restriction of the mode on this
/// machine.
pub fn changed(mode: PermissionMode, restriction: Option<&str>) -> String {
    match restriction {
        Some(restriction) => printable(restriction),
        None => format!("permission mode {mode}: {}", mode.about()),
    }
}

/// All modes with their meaning; the current one is marked.
fn modes(session: &SessionHandle) -> String {
    let current = session.permission_mode();
    let mut text = String::new();
    for mode in PermissionMode::KNOWN {
        let mark = if mode == current { '>' } else { ' ' };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{mark} {:<7} {}", mode.as_str(), mode.about());
    }
    text
}
