//! Commands, flags and values of comparable programs, with what posse has instead.

/// Commands, and what to do instead.
const COMMANDS: [(&str, &str); 11] = [
    ("chat", "`posse` opens the terminal UI, `posse plain` line mode"),
    ("continue", "`posse -c` continues the last session of this folder"),
    ("diff", "`/diff` in the terminal UI shows the file changes of a session"),
    ("exec-server", "`posse run --input-format stream-json` is driven by a program"),
    ("export", "`posse sessions export ID` exports a session"),
    ("init", "`posse run \"write an AGENTS.md for this repository\"`"),
    ("interactive", "`posse` opens the terminal UI, `posse plain` line mode"),
    ("logout", "posse stores no keys: remove them from your environment"),
    ("review", "`posse run \"review the uncommitted changes\"`"),
    ("update", "posse does not update itself: install it again (`posse help install`)"),
    ("upgrade", "posse does not update itself: install it again (`posse help install`)"),
];

/// Advice for flags of other programs that approve everything.
const APPROVE: &str = "`--permission-mode auto` runs without questions what stays inside the sandbox; \
                       `--yes` approves what would be asked";

/// Flags, and what to do instead.
const FLAGS: [(&str, &str); 18] = [
    ("--add-directory", "`--add-dir DIR` adds a folder"),
    ("--allowed-tools", "rules in your configuration allow calls (`posse help rules`)"),
    ("--allowedTools", "rules in your configuration allow calls (`posse help rules`)"),
    ("--approval-mode", "`--permission-mode` sets the permission mode"),
    ("--ask-for-approval", "`--permission-mode` sets the permission mode"),
    ("--auto-approve", APPROVE),
    ("--cd", "`--cwd DIR` sets the working directory"),
    ("--dangerously-bypass-approvals-and-sandbox", APPROVE),
    ("--dangerously-skip-permissions", APPROVE),
    ("--directory", "`--cwd DIR` sets the working directory"),
    ("--disallowedTools", "rules in your configuration deny calls (`posse help rules`)"),
    ("--full-auto", APPROVE),
    ("--json", "`--output-format json` or `stream-json`"),
    (
        "--json-schema",
        "posse has no output schema; `--output-format json` gives the answer as JSON",
    ),
    ("--max-budget-usd", "`--budget DOLLARS` limits the cost"),
    (
        "--output-schema",
        "posse has no output schema; `--output-format json` gives the answer as JSON",
    ),
    ("--reasoning-effort", "`--thinking LEVEL` sets the reasoning effort"),
    ("--yolo", APPROVE),
];

/// Permission modes, and the nearest one of posse.
const MODES: [(&str, &str); 9] = [
    ("acceptEdits", "edits"),
    ("accept-edits", "edits"),
    ("auto_edit", "edits"),
    ("bypass", "auto"),
    ("bypassPermissions", "auto"),
    ("default", "ask"),
    ("dontAsk", "locked"),
    ("manual", "ask"),
    ("yolo", "auto"),
];

fn found(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == name).map(|(_, instead)| *instead)
}

/// Advice for the command `name` of another program; `None` if it is not known.
pub(crate) fn instead_of_command(name: &str) -> Option<&'static str> {
    found(&COMMANDS, name)
}

/// Advice for the flag `name` of another program; `None` if it is not known.
pub(crate) fn instead_of_flag(name: &str) -> Option<&'static str> {
    found(&FLAGS, name)
}

/// The permission mode that is nearest to the mode `name` of another program.
pub(crate) fn nearest_mode(name: &str) -> Option<&'static str> {
    found(&MODES, name)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The text behind a command or flag of posse would never be shown.
    #[test]
    fn names_are_none_of_posse() {
        let command = crate::args::Cli::command();
        for (name, _) in COMMANDS {
            assert!(command.find_subcommand(name).is_none(), "{name}");
        }
        let run = command.find_subcommand("run").unwrap();
        let mut flags = run.get_arguments().filter_map(|flag| flag.get_long());
        assert!(flags.all(|flag| found(&FLAGS, &format!("--{flag}")).is_none()));
        for (_, mode) in MODES {
            assert!(["plan", "ask", "edits", "auto", "locked"].contains(&mode));
        }
    }
}
