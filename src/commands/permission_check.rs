//! `posse permissions check`: decisions of the policy about commands, one JSON object per line.

use std::io::{self, BufRead, BufWriter, Read, Write};

use posse_actors::event::{Grant, PermissionMode, SandboxTier};
use posse_base::terminal;
use serde::Deserialize;
use serde_json::json;

use crate::cli::PermissionsAction;
use crate::commands::notices;
use crate::config::Environment;
use crate::failure::{ErrorCode, Exit, Failure, all_or_failures};
use crate::permission::{
    Checked, CommandToCheck, NetworkMode, PolicySettings, RulePolicy, SandboxMode, command_grant,
    command_outputs, command_paths,
};
use crate::tools::bash::links;
use crate::wiring::{WorkspaceContext, place};

/// Maximum bytes of one input line, or of a command on standard input. A longer line counts as
/// invalid, a longer command is an error.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Error text for input above [`LINE_BYTES_MAX`].
const TOO_LONG: &str = "a command is longer than 16 MiB";

/// JSON object of an input line. Other members are ignored.
#[derive(Deserialize)]
struct CommandLine {
    command: String,
}

pub(super) fn check(
    action: &PermissionsAction,
    environment: &Environment,
) -> Result<Exit, Vec<Failure>> {
    let PermissionsAction::Check {
        command,
        grants: granted,
        jsonl,
        // The output is JSON in any case.
        json: _,
        exit_code,
        permission_mode,
        place: location,
    } = action;
    // Instead of a denial by `locked`, the question of the mode `ask` is shown.
    let mode =
        PermissionMode::named(permission_mode).filter(|mode| *mode != PermissionMode::Locked);
    let WorkspaceContext { cwd, dirs, loaded } = place(location, Vec::new(), environment)?;
    notices(&loaded);
    let grants = grants(granted)?;
    let sandbox = &loaded.settings.sandbox;
    let policy = RulePolicy::new(PolicySettings {
        roots: vec![cwd.display().to_string()],
        sandbox: SandboxMode::named(&sandbox.mode).unwrap_or_default(),
        network: NetworkMode::named(&sandbox.network).unwrap_or_default(),
        rules: loaded.settings.permissions.clone(),
        project_rules: loaded.settings.project_rules,
        own_dirs: dirs.own_folders().iter().map(|dir| dir.display().to_string()).collect(),
        home: environment.get("HOME").map(str::to_owned),
        ..PolicySettings::default()
    })?;
    let cwd = cwd.display().to_string();
    let home = environment.get("HOME");
    let judge = |command: &str| {
        let links = links::resolve(&command_paths(command, &cwd, home));
        let replaces = links::existing(command_outputs(command, &cwd, home));
        let (links, replaces) = (&links, &replaces);
        let tier = &SandboxTier::Full;
        policy.check_resolved(
            CommandToCheck { command, cwd: &cwd, links, replaces, tier, mode },
            &grants,
        )
    };
    let mut out = BufWriter::new(terminal::stdout());
    let mut strictest = Exit::Done;
    if *jsonl {
        let broken = lines(&judge, &mut strictest, &mut out).map_err(|error| io_error(&error))?;
        out.flush().map_err(|error| io_error(&error))?;
        if broken > 0 {
            let what = match broken {
                1 => "1 line of standard input is not a valid command".to_owned(),
                _ => format!("{broken} lines of standard input are not valid commands"),
            };
            return Err(vec![
                Failure::new(ErrorCode::CommandLinesInvalid, Exit::Usage, what)
                    .fix("write {\"command\": \"git status\"}, one object a line"),
            ]);
        }
    } else {
        let command = if command.is_empty() {
            let mut text = String::new();
            let mut input = io::stdin().take(LINE_BYTES_MAX + 1);
            input.read_to_string(&mut text).map_err(|e| io_error(&e))?;
            if text.len() as u64 > LINE_BYTES_MAX {
                return Err(io_error(&io::Error::other(TOO_LONG)));
            }
            text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)
        } else {
            command.join(" ")
        };
        print(&judge(&command), &mut strictest, &mut out).map_err(|error| io_error(&error))?;
        out.flush().map_err(|error| io_error(&error))?;
    }
    Ok(if *exit_code { strictest } else { Exit::Done })
}

fn io_error(error: &io::Error) -> Vec<Failure> {
    vec![
        Failure::new(
            ErrorCode::CommandsUnreadable,
            Exit::Usage,
            "cannot read the commands or write the answers",
        )
        .because(error.to_string()),
    ]
}

fn grants(prefixes: &[String]) -> Result<Vec<Grant>, Vec<Failure>> {
    let read = |prefix: &String| {
        command_grant(prefix).ok_or_else(|| {
            let what = format!("--grant {prefix} is not the beginning of one simple command");
            Failure::new(ErrorCode::GrantPrefixInvalid, Exit::Usage, what)
                .fix("pass the first words of a command: --grant 'git log'")
        })
    };
    all_or_failures(prefixes.iter().map(read))
}

/// Judges each line of standard input and prints the decisions to `out`. Raises `strictest` to the
/// strictest decision about a valid line. Returns the number of invalid lines, for which it prints
/// the decision `ask` and the error.
fn lines(
    judge: &dyn Fn(&str) -> Checked,
    strictest: &mut Exit,
    out: &mut dyn Write,
) -> io::Result<usize> {
    let mut input = io::stdin().lock();
    let mut broken = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(broken);
        }
        if line.len() as u64 > LINE_BYTES_MAX && !line.ends_with(b"\n") {
            broken += 1;
            writeln!(out, "{}", json!({ "decision": "ask", "error": TOO_LONG }))?;
            input.skip_until(b'\n')?;
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<CommandLine>(&line) {
            Ok(line) => print(&judge(&line.command), strictest, out)?,
            Err(error) => {
                broken += 1;
                let answer = json!({ "decision": "ask", "error": error.to_string() });
                writeln!(out, "{answer}")?;
            }
        }
    }
}

fn print(checked: &Checked, strictest: &mut Exit, out: &mut dyn Write) -> io::Result<()> {
    let exit = match checked.decision {
        "allow" => Exit::Done,
        "deny" => Exit::Failed,
        _ => Exit::Permission,
    };
    if exit == Exit::Failed || *strictest == Exit::Done {
        *strictest = exit;
    }
    let text = serde_json::to_string(checked).map_err(io::Error::other)?;
    writeln!(out, "{text}")
}
