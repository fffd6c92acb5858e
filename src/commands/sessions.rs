//! `posse sessions`: lists, shows, verifies, exports and removes stored sessions.

use std::io::{self, IsTerminal};

use jiff::tz::TimeZone;
use posse_base::terminal;

use crate::cli::{self, SessionsAction, SessionsArgs};
use crate::commands::{colors, columns, offline_commands};
use crate::config::{Dirs, Environment};
use crate::failure::{Exit, Failure};
use crate::journal::commands::{self, OutputStyle};
use crate::journal::state::Within;
use crate::journal::{self, StateDir};
use crate::wiring::clock;

pub(super) fn run(args: &SessionsArgs, environment: &Environment) -> Result<Exit, Failure> {
    let cwd = cli::working_directory(args.cwd.as_deref())?;
    let dirs = Dirs::from_environment(environment)?;
    let state = StateDir::new(dirs.state);
    let json = match &args.action {
        SessionsAction::List { json, .. }
        | SessionsAction::Show { json, .. }
        | SessionsAction::Verify { json, .. } => *json,
        SessionsAction::Export { .. } | SessionsAction::Rm { .. } => false,
    };
    let view = OutputStyle {
        json,
        color: colors(io::stdout().is_terminal(), environment),
        columns: columns(environment),
        now_ms: clock::now_ms(),
        zone: TimeZone::system(),
    };
    let all = matches!(args.action, SessionsAction::List { all: true, .. });
    let within = if all { Within::Everywhere } else { Within::Project(&cwd) };
    let mut out = io::BufWriter::new(terminal::stdout());
    match &args.action {
        SessionsAction::List { .. } => commands::list(&state, within, &view, &mut out),
        SessionsAction::Show { id, cost: true, verbose, .. } => {
            journal::cost::show(&state, id, *verbose, &view, &mut out)
        }
        SessionsAction::Show { id, memory: true, .. } => {
            journal::remembered::show(&state, id, json, &mut out)
        }
        SessionsAction::Show { id, .. } => commands::show(&state, id, &view, &mut out),
        SessionsAction::Verify { id, .. } => {
            commands::verify(&state, id.as_deref(), within, &view, &mut out)
        }
        SessionsAction::Export { id, format, output } => {
            offline_commands::export(&state, id, *format, output.as_deref(), &mut out)
        }
        SessionsAction::Rm { id, yes } => offline_commands::remove(&state, id, *yes, &mut out),
    }
}
