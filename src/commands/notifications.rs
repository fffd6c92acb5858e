//! Notifications from the settings: condition and method at this terminal, and the commands of the
//! user for notifications and for the status line.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Environment, NotifySettings};
use crate::frontend::notifications::{
    NotificationMethod, Notifications, NotifyCommand, NotifyWhen,
};
use crate::frontend::status_line::StatusLineCommand;
use crate::frontend::terminal_features::TerminalFeatures;
use crate::sandbox;

/// Time limit of the user's command.
const COMMAND_MAX: Duration = Duration::from_secs(10);

/// Time limit of the status line command.
const STATUS_LINE_MAX: Duration = Duration::from_secs(5);

/// Features of the terminal that `environment` names.
pub(crate) fn features(environment: &Environment) -> TerminalFeatures {
    TerminalFeatures::of(|name| environment.get(name).map(str::to_owned))
}

/// Notifications by these settings. There are none if no terminal shows them: if `is_terminal` is
/// false, if `TERM` is not set or `dumb`, or if `CI` is set to anything but `false` or `0`.
pub(crate) fn notifications(
    settings: &NotifySettings,
    environment: &Environment,
    is_terminal: bool,
) -> Notifications {
    let is_ci = environment.get("CI").is_some_and(|ci| !matches!(ci, "" | "0" | "false"));
    let no_terminal = matches!(environment.get("TERM"), None | Some("" | "dumb"));
    if !is_terminal || no_terminal || is_ci {
        return Notifications::default();
    }
    let when = match settings.when.as_str() {
        "never" => NotifyWhen::Never,
        "always" => NotifyWhen::Always,
        _ => NotifyWhen::Unfocused,
    };
    let method = match settings.method.as_str() {
        "osc9" => Some(NotificationMethod::Osc9),
        "osc777" => Some(NotificationMethod::Osc777),
        "osc99" => Some(NotificationMethod::Osc99),
        "bell" => Some(NotificationMethod::Bell),
        "none" => Some(NotificationMethod::None),
        _ => None,
    };
    let command = (!settings.command.is_empty()).then(|| command(settings.command.clone()));
    Notifications::at_terminal(when, method, settings.title, command, features(environment))
}

/// The status line command with this program and arguments; `None` if they are empty.
pub(crate) fn status_line(argv: Vec<String>) -> Option<StatusLineCommand> {
    (!argv.is_empty()).then(|| {
        StatusLineCommand(Arc::new(move |json| {
            sandbox::run_status_command(&argv, &json, STATUS_LINE_MAX).map_err(|why| {
                let program = argv.first().map(String::as_str).unwrap_or_default();
                crate::failure::printable(&format!("`{program}`: {why}"))
            })
        }))
    })
}

fn command(argv: Vec<String>) -> NotifyCommand {
    NotifyCommand(Arc::new(move |json| {
        sandbox::run_notify_command(&argv, &json, COMMAND_MAX).map_err(|why| {
            let program = argv.first().map(String::as_str).unwrap_or_default();
            crate::failure::printable(&format!("`{program}`: {why}"))
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, variables: &[(&str, &str)], is_terminal: bool) -> Notifications {
        let settings = NotifySettings {
            command: vec!["notify-send".to_owned()],
            method: method.to_owned(),
            title: true,
            when: "unfocused".to_owned(),
        };
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        let variables: Vec<(String, std::ffi::OsString)> = variables.collect();
        notifications(&settings, &variables.into_iter().collect(), is_terminal)
    }

    #[test]
    fn nothing_is_sent_where_no_person_looks() {
        let kitty = [("TERM", "xterm-kitty")];
        let there = found("auto", &kitty, true);
        assert_eq!(there.method, Some(NotificationMethod::Osc99));
        assert!(there.titles && there.command.is_some() && there.needs_focus());
        let silent = [
            found("auto", &kitty, false),
            found("osc9", &[("TERM", "dumb")], true),
            found("osc9", &[], true),
            found("osc9", &[("TERM", "xterm"), ("CI", "true")], true),
        ];
        for silent in silent {
            assert_eq!((silent.when, silent.method), (NotifyWhen::Never, None));
            assert!(!silent.titles && silent.command.is_none());
        }
        let local = found("auto", &[("TERM", "xterm"), ("CI", "false")], true);
        assert_eq!(local.method, Some(NotificationMethod::Bell));
    }
}
