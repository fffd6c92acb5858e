//! `posse permissions check`: decisions of the policy about commands, one JSON object per line.

use std::cell::OnceCell;
use std::io::{self, BufRead, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use posse_actors::event::{Grant, PermissionMode, SandboxTier};
use posse_actors::ports::CheckpointCoverage;
use posse_base::terminal;
use serde::Deserialize;
use serde_json::json;

use crate::checkpoint::{Retention, Store};
use crate::cli::PermissionsAction;
use crate::commands::{checkpoint_store, notices};
use crate::config::{Dirs, Environment, Settings};
use crate::failure::{ErrorCode, Exit, Failure, all_or_failures};
use crate::permission::{
    Checked, CommandToCheck, NetworkMode, PolicySettings, RulePolicy, SandboxMode,
    command_deletions, command_grant, command_outputs, command_paths,
};
use crate::start_mode::no_checkpoints;
use crate::tools::bash::links;
use crate::tools::workspace::Workspace;
use crate::wiring::{WorkspaceContext, place, workspace_roots};

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
    let context = place(location, Vec::new(), environment)?;
    notices(&context.loaded);
    let judge = CommandJudge::open(&context, grants(granted)?, mode, environment)?;
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
            if text.trim().is_empty() {
                let what = "there is no command to check";
                return Err(vec![
                    Failure::new(ErrorCode::ArgumentMissing, Exit::Usage, what)
                        .fix("write `posse permissions check git status`"),
                ]);
            }
            text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)
        } else {
            command.join(" ")
        };
        print(&judge.checked(&command), &mut strictest, &mut out)
            .map_err(|error| io_error(&error))?;
        out.flush().map_err(|error| io_error(&error))?;
    }
    Ok(if *exit_code { strictest } else { Exit::Done })
}

/// The policy of a session in a workspace, for commands that do not run.
struct CommandJudge<'a> {
    policy: RulePolicy,
    grants: Vec<Grant>,
    /// `None`: rules and grants alone decide.
    mode: Option<PermissionMode>,
    workspace: Workspace,
    cwd: &'a Path,
    home: Option<String>,
    dirs: &'a Dirs,
    settings: &'a Settings,
    /// Checkpoints of the workspace, opened for the first command that deletes or replaces files.
    /// `None` if they are not available.
    store: OnceCell<Option<Store>>,
}

impl<'a> CommandJudge<'a> {
    fn open(
        context: &'a WorkspaceContext,
        grants: Vec<Grant>,
        mode: Option<PermissionMode>,
        environment: &Environment,
    ) -> Result<CommandJudge<'a>, Vec<Failure>> {
        let WorkspaceContext { cwd, dirs, loaded } = context;
        let settings = &loaded.settings;
        let sandbox = &settings.sandbox;
        let shown = |path: &PathBuf| path.display().to_string();
        let workspace = workspace_roots::open(cwd, &[], settings).map_err(|error| vec![error])?;
        let home = environment.get("HOME").map(str::to_owned);
        let policy = RulePolicy::new(PolicySettings {
            roots: workspace.roots().map(|root| root.display().to_string()).collect(),
            sandbox: SandboxMode::named(&sandbox.mode).unwrap_or_default(),
            network: NetworkMode::named(&sandbox.network).unwrap_or_default(),
            rules: settings.permissions.clone(),
            project_rules: settings.project_rules,
            readable_secrets: sandbox.readable_secrets.iter().map(shown).collect(),
            own_dirs: dirs.own_folders().iter().map(|dir| dir.display().to_string()).collect(),
            home: home.clone(),
            home_target: environment.home_target(),
            no_checkpoints: no_checkpoints(settings),
            ..PolicySettings::default()
        })?;
        let store = OnceCell::new();
        Ok(CommandJudge { policy, grants, mode, workspace, cwd, home, dirs, settings, store })
    }

    fn checked(&self, command: &str) -> Checked {
        let (shown, home) = (self.cwd.display().to_string(), self.home.as_deref());
        let cwd = shown.as_str();
        let links = &links::resolve(&command_paths(command, cwd, home));
        let outputs = command_outputs(command, cwd, home, links);
        let deleted = command_deletions(command, cwd, home);
        let (replaces, mut deletions) = links::losses(outputs, deleted, &self.workspace);
        // Other modes ask about restorable deletions, too.
        if self.mode == Some(PermissionMode::Auto) {
            deletions.are_restorable = self.can_cover(&deletions.paths);
            deletions.replaced_are_restorable = self.can_cover(&deletions.replaced);
        }
        let (replaces, deletions, mode) = (&replaces, &deletions, self.mode);
        let tier = &SandboxTier::Full;
        let command = CommandToCheck { command, cwd, links, replaces, deletions, tier, mode };
        self.policy.check_resolved(command, &self.grants)
    }

    /// True if there are `paths`, and a checkpoint that is taken now covers all of them.
    fn can_cover(&self, paths: &[String]) -> bool {
        if paths.is_empty() {
            return false;
        }
        let store = self.store.get_or_init(|| {
            if no_checkpoints(self.settings).is_some() {
                return None;
            }
            let folder = checkpoint_store::folder(self.cwd, self.dirs);
            let workspace = self.workspace.clone();
            checkpoint_store::store(&folder, workspace, &self.settings.checkpoints, self.dirs).ok()
        });
        let Some(store) = store else { return false };
        let checkpoints = &self.settings.checkpoints;
        let retention = Retention::new(checkpoints.keep_days, checkpoints.store_bytes_max);
        store.can_hold(retention).unwrap_or_default()
            && store.coverage(paths, None).is_ok_and(|found| found != CheckpointCoverage::None)
    }
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
fn lines(judge: &CommandJudge<'_>, strictest: &mut Exit, out: &mut dyn Write) -> io::Result<usize> {
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
            Ok(line) => print(&judge.checked(&line.command), strictest, out)?,
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
