//! `bash`: runs a command in the workspace.
//!
//! A non-zero exit code is not a tool error: the model reads the output and the code.

mod background;
mod connections;
mod dry_run;
mod foreground;
pub mod links;
mod network;
mod refused_writes;
mod registries;
pub(crate) mod report;
mod secrets;
mod trial;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::stat::fstat;
use posse_actors::event::{Event, SandboxTier};
use posse_actors::ports::{
    Access, Action, BackgroundScope, CallContext, CallTrial, CommandDeletions, Confinement,
    Operation, OutputDelta, PathLink, PermittedCall, PortFuture, Prepared, RunContext, Tool,
    ToolAnnotations, ToolError, ToolOutput, ToolSpec,
};
use posse_base::failure::printable;
use posse_base::protected::is_protected;
use posse_egress::Destination;
use posse_sandbox::{Directory, Exemptions, RunError, Sandbox, Spawn, Update, cancelled_checks};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bash::background::JobStart;
use crate::bash::dry_run::DryRun;
use crate::bash::foreground::Foreground;
use crate::bash::trial::KeptCommand;
use crate::workspace::Located;
use crate::{CommandTimeouts, ToolEnvironment, digest, parsed, prepared, refusal, spec, spill};

/// Name of the tool `bash`.
pub const NAME: &str = "bash";

/// Maximum length of a command in bytes; a longer one is an error. Linux accepts no single argument
/// of 128 KiB or more.
const COMMAND_BYTES_MAX: usize = 100_000;

const TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Default and maximum time limit of a background job.
const JOB_TIMEOUT: (Duration, Duration) = (Duration::from_hours(24), Duration::from_hours(24));

/// Output size at which a command is killed, in bytes.
const SPILL_BYTES_MAX: u64 = 64 << 20;

/// Maximum time for which the end of a session waits until the effects of cancelled commands on
/// protected files are checked.
const CHECK_MAX: Duration = Duration::from_secs(10);

/// Maximum number of protected paths that one command may request to change.
const UNPROTECT_MAX: usize = 16;

/// Maximum number of characters of a command's first line in the summary of its call.
const SUMMARY_CHARS_MAX: usize = 100;

/// Creates the tool `bash`.
pub fn tool(env: Arc<ToolEnvironment>, sandbox: Arc<Sandbox>) -> Arc<dyn Tool> {
    let milliseconds = |time: Duration| time.as_millis();
    let CommandTimeouts { default, maximum } = env.timeouts;
    let (default, maximum) = (milliseconds(default), milliseconds(maximum));
    let limits = if env.jobs.is_closed() {
        format!("default {default}, at most {maximum}")
    } else {
        format!("max {maximum}; default: a job after {default}")
    };
    let mut properties = json!({
        "command": {"type": "string"},
        "workdir": {"type": "string", "description": "default: ."},
        "timeoutMs": {"type": "integer", "description": limits},
        "unprotect": {
            "type": "array", "items": {"type": "string"},
            "description": "protected paths, such as .git/config, that it must change; the user \
                            is asked",
        },
        "dryRun": {
            "type": "boolean",
            "description": "only show changes",
        },
    });
    if !env.jobs.is_closed() {
        properties["background"] = json!({
            "type": "boolean",
            "description": "return a job id at once: servers, long builds",
        });
    }
    let spec = spec(
        NAME,
        "Runs a command in a new bash without a terminal; returns its output. \
                      Processes left behind are killed.",
        ToolAnnotations::new(Access::Process).in_rules("Bash"),
        &properties,
        &["command"],
    );
    Arc::new(Bash { spec, env, sandbox })
}

struct Bash {
    spec: ToolSpec,
    env: Arc<ToolEnvironment>,
    sandbox: Arc<Sandbox>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    command: String,
    workdir: Option<String>,
    timeout_ms: Option<f64>,
    #[serde(default)]
    background: bool,
    #[serde(default)]
    unprotect: Vec<String>,
    #[serde(default)]
    dry_run: bool,
}

/// Payload of a call.
enum BashPayload {
    /// The command runs.
    Command(PreparedCommand),
    /// The changes of a trial of the command are kept.
    Kept(Box<KeptCommand>),
}

struct PreparedCommand {
    command: String,
    directory: OwnedFd,
    /// Name of `directory` for a message: its path, or `the working directory`.
    shown: String,
    timeout: Duration,
    note: Option<String>,
    background: bool,
    dry_run: bool,
    /// True if no time limit was requested.
    continues: bool,
    /// Domains that the detail of the call names.
    domains: Vec<Destination>,
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let prepared = prepare(&self.env, &self.sandbox, arguments.clone(), None);
        let is_undecided = match &prepared {
            Ok(prepared) => prepared.action.operations.iter().any(secrets::are_named),
            Err(error) => error.code == registries::CODE,
        };
        if !is_undecided || self.sandbox.tier() != SandboxTier::Full {
            return Box::pin(std::future::ready(prepared));
        }
        // It may be a tracked file, about which a command decides only when it starts.
        let (env, sandbox) = (Arc::clone(&self.env), Arc::clone(&self.sandbox));
        Box::pin(async move {
            let root = env.workspace.locate(".")?.absolute().to_owned();
            match sandbox.decide_tracked(root, &env.session_dir.join("tmp")).await {
                Ok(hidden) => prepare(&env, &sandbox, arguments, Some(&hidden)),
                Err(_) => prepared,
            }
        })
    }

    fn stop_background(&self, what: &BackgroundScope) -> PortFuture<()> {
        let released = self.env.jobs.release(what);
        let is_last = *what == BackgroundScope::Session;
        Box::pin(async move {
            released.await;
            if is_last {
                // A check may have begun with the stop that ends the session.
                cancelled_checks(CHECK_MAX).await;
            }
        })
    }

    fn can_try(&self, prepared: &Prepared, confinement: &Confinement) -> bool {
        trial::can_try(&self.env, &self.sandbox, prepared, confinement)
    }

    fn try_call(
        &self,
        call: PermittedCall,
        context: RunContext,
    ) -> PortFuture<Result<CallTrial, String>> {
        let (env, sandbox) = (Arc::clone(&self.env), Arc::clone(&self.sandbox));
        Box::pin(async move { trial::run(&env, &sandbox, call, &context).await })
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        let (env, sandbox) = (Arc::clone(&self.env), Arc::clone(&self.sandbox));
        Box::pin(async move {
            let confinement = call.confinement().clone();
            let besides = exemptions_of(call.action());
            let summary = call.action().summary.clone();
            let is_approved = call.is_approved();
            let payload = match refusal::payload(call) {
                Ok(BashPayload::Command(command)) => command,
                Ok(BashPayload::Kept(kept)) => return kept.keep(&sandbox, &context).await,
                Err(refused) => return ToolOutput::error(refused.to_string()),
            };
            let PreparedCommand { command, directory, shown, timeout, note, .. } = payload;
            let approved = if is_approved { payload.domains } else { Vec::new() };
            if env.dry_run {
                let text = format!("dry run: nothing was run. It would run in {shown}:\n{command}");
                return ToolOutput::text(text).with_metadata(json!({"dryRun": true}));
            }
            let process = Process { command: &command, directory, timeout, confinement };
            let spawn = process.spawn(&env, &sandbox, &context);
            if payload.dry_run {
                let command = DryRun { spawn, note };
                return dry_run::run(&env, &sandbox, command, &context).await;
            }
            if payload.background {
                let start = JobStart { spawn, besides, summary, note, approved };
                return background::start(&env, sandbox, start, &context).await;
            }
            let continues = payload.continues && !env.jobs.is_closed();
            let command = Foreground { spawn, besides, summary, note, continues, approved };
            foreground::run(&env, sandbox, command, &context).await
        })
    }
}

/// A command to start, and its place.
struct Process<'a> {
    command: &'a str,
    directory: OwnedFd,
    timeout: Duration,
    confinement: Confinement,
}

impl Process<'_> {
    fn spawn(self, env: &ToolEnvironment, sandbox: &Sandbox, context: &RunContext) -> Spawn {
        let (program, arguments) = sandbox.shell_command(self.command);
        Spawn {
            program,
            arguments,
            directory: Directory::Opened(self.directory),
            environment: Vec::new(),
            confinement: self.confinement,
            timeout: self.timeout,
            scratch: env.session_dir.join("tmp"),
            spill: spill::path(&env.session_dir, &context.call.call_id),
            output_bytes_max: context.output_bytes_max,
            spill_bytes_max: SPILL_BYTES_MAX,
            dialogue: None,
            stop: None,
            masks_keys: true,
            at_timeout: None,
        }
    }
}

/// Handles an update of the running command: records the sandbox tier that is enforced, or forwards
/// output to the observers of the call.
fn announce(context: &RunContext, update: Update) {
    match update {
        Update::Enforced { tier, report } => {
            let call_id = context.call.call_id.clone();
            record(context, Event::SandboxEnforced { call_id, tier, report });
        }
        // A slow observer loses output; the result is complete.
        Update::Output(text) => drop(context.output.try_send(OutputDelta { text })),
    }
}

fn record(context: &RunContext, event: Event) {
    if let Err(error) = context.facts.try_send(event) {
        tracing::warn!(%error, "a fact about a command could not be recorded");
    }
}

fn refused(error: &RunError) -> ToolOutput {
    tracing::debug!(?error, "no process");
    ToolOutput::error(match error {
        RunError::NoDirectory => {
            "SH005 the working directory was removed; nothing was run".to_owned()
        }
        RunError::Start { source } => {
            format!("SH006 the command could not be started: {source}; nothing was run")
        }
        RunError::NotPrepared { reason } => {
            format!("SH006 the command was not run: {}", printable(reason))
        }
        RunError::Withheld { .. } => format!("SH010 {error}; run the command again"),
    })
}

/// Converts the operations of `action` to the exemptions of its command: a write lifts the
/// protection of its path, a read lets the command run without a complete survey of the workspace.
/// The policy asks a person about each action with such operations.
fn exemptions_of(action: &Action) -> Exemptions {
    let mut besides = Exemptions::default();
    for operation in &action.operations {
        match operation {
            Operation::Write { path, .. } => besides.unprotected.push(PathBuf::from(path)),
            Operation::Read { .. } => besides.unsurveyed = true,
            Operation::Execute { .. } | Operation::Invoke { .. } => {}
        }
    }
    besides
}

/// `hidden`: paths that the command does not see as they are. `None`: not known yet.
fn prepare(
    env: &ToolEnvironment,
    sandbox: &Sandbox,
    arguments: Value,
    hidden: Option<&[PathBuf]>,
) -> Result<Prepared, ToolError> {
    let arguments: Arguments = parsed(arguments)?;
    check(&arguments.command)?;
    if arguments.dry_run {
        dry_run::check(env, sandbox, &arguments)?;
    }
    let Arguments { command, workdir, timeout_ms, background, unprotect, dry_run } = arguments;
    let has_lost_sight = sandbox.scan_incomplete();
    let unprotected = unprotected(env, &unprotect)?;
    let place = env.workspace.locate(workdir.as_deref().unwrap_or("."))?;
    let directory = place.open_dir()?;
    let bounds =
        if background { JOB_TIMEOUT } else { (env.timeouts.default, env.timeouts.maximum) };
    let continues = timeout_ms.is_none();
    let (timeout, note) = timeout(timeout_ms, bounds);
    let stat = fstat(&directory)
        .map_err(|errno| ToolError::new("FIL002", format!("{}: {errno}", place.shown())))?;
    let cwd = place.absolute().display().to_string();
    let programs = env.commands.programs(&command, &cwd);
    registries::check(env, sandbox, &programs, place.absolute())?;
    let paths = env.commands.paths(&command, &cwd);
    let links = links::resolve(&paths);
    let secrets = secrets::named(env, sandbox, &paths, hidden);
    let (replaces, deletions) = losses(env, (&command, &cwd, &links), background || dry_run);
    let mut operations = vec![Operation::Execute {
        command: command.clone(),
        cwd: cwd.clone(),
        links: links.clone(),
        replaces: replaces.clone(),
        deletions,
        in_trial: dry_run,
        secrets: secrets.clone(),
    }];
    let mut hashed = unprotected.iter().map(Located::absolute).collect::<Vec<_>>();
    hashed.sort();
    operations.extend(unprotected.iter().map(Located::write));
    if has_lost_sight {
        // Protected files in the rest of the workspace are not guarded either.
        operations.push(env.workspace.locate(".")?.read());
    }
    let mut parts: Vec<&[u8]> = vec![NAME.as_bytes(), command.as_bytes(), cwd.as_bytes()];
    let (device, inode) = (stat.st_dev.to_le_bytes(), stat.st_ino.to_le_bytes());
    let flags = [u8::from(has_lost_sight) | (u8::from(background) << 1) | (u8::from(dry_run) << 2)];
    let (milliseconds, sight) = (timeout.as_millis().to_le_bytes(), flags);
    parts.extend([&device[..], &inode, &milliseconds, &sight]);
    parts.extend(links.iter().flat_map(|link| {
        [link.path.as_bytes(), link.target.as_deref().unwrap_or_default().as_bytes()]
    }));
    parts.extend(replaces.iter().map(String::as_bytes));
    parts.extend(secrets.shown.iter().map(String::as_bytes));
    parts.extend(hashed.iter().map(|path| path.as_os_str().as_encoded_bytes()));
    // A dry run has no network.
    let domains = if dry_run { Vec::new() } else { connections::named_domains(env, &programs) };
    let detail = detail(&command, &unprotected, &domains);
    let verb = if dry_run { "try" } else { "run" };
    let words = (format!("{verb} {}", summary(&command, &place, &unprotected, background)), detail);
    let digest = digest::of(&parts);
    let shown = shown(&place);
    let payload = PreparedCommand {
        command,
        directory,
        shown,
        timeout,
        note,
        background,
        dry_run,
        continues,
        domains,
    };
    Ok(prepared(NAME, operations, words, digest, BashPayload::Command(payload)))
}

/// Existing files that the command would replace, with the links in its paths, and what a checkpoint may take back: nothing of a
/// command that runs later, which can be long after the checkpoint before it.
fn losses(
    env: &ToolEnvironment,
    (command, cwd, links): (&str, &str, &[PathLink]),
    is_later: bool,
) -> (Vec<String>, CommandDeletions) {
    let outputs = env.commands.outputs(command, cwd, links);
    let deleted = env.commands.deletions(command, cwd);
    let (replaces, deletions) = links::losses(outputs, deleted, &env.workspace);
    (replaces, if is_later { CommandDeletions::default() } else { deletions })
}

fn check(command: &str) -> Result<(), ToolError> {
    if command.trim().is_empty() {
        return Err(ToolError::new("SH001", "command is empty"));
    }
    let bytes = command.len();
    if bytes > COMMAND_BYTES_MAX {
        let message = format!(
            "command has {bytes} bytes, the limit is {COMMAND_BYTES_MAX}: write a script with \
             write_file and run that"
        );
        return Err(ToolError::new("SH002", message));
    }
    if command.contains('\0') {
        return Err(ToolError::new("SH003", "command contains a NUL character"));
    }
    Ok(())
}

/// Returns the requested timeout, clamped between `TIMEOUT_MIN` and the given maximum, or the given
/// default without a request. Also returns a note for the model if the request was changed.
fn timeout(
    asked_ms: Option<f64>,
    (default, max): (Duration, Duration),
) -> (Duration, Option<String>) {
    let Some(asked_ms) = asked_ms else { return (default, None) };
    let (min, max) = (TIMEOUT_MIN.as_secs_f64(), max.as_secs_f64());
    let asked = asked_ms / 1000.0;
    let given = asked.clamp(min, max);
    let timeout = Duration::from_secs_f64(given);
    let is_other = (given - asked).abs() > f64::EPSILON * max;
    let note = is_other.then(|| format!("timeoutMs was set to {}", timeout.as_millis()));
    (timeout, note)
}

/// Resolves `paths` and removes duplicates. Fails if a path is not that of a protected file, or if
/// there are more than `UNPROTECT_MAX` paths.
fn unprotected(env: &ToolEnvironment, paths: &[String]) -> Result<Vec<Located>, ToolError> {
    if paths.len() > UNPROTECT_MAX {
        let count = paths.len();
        let message = format!("unprotect names {count} paths, the limit is {UNPROTECT_MAX}");
        return Err(ToolError::new("SH007", message));
    }
    let mut places: Vec<Located> = Vec::with_capacity(paths.len());
    for path in paths {
        let place = env.workspace.locate(path)?;
        if !is_protected(place.relative()) {
            let message = format!("{} is not protected: leave it out of unprotect", place.shown());
            return Err(ToolError::new("SH007", message));
        }
        if places.iter().all(|known| known.absolute() != place.absolute()) {
            places.push(place);
        }
    }
    Ok(places)
}

/// Formats the detail of a call for a person: the whole command, and all paths whose protection the
/// command asks to lift, and the domains that an approval allows.
fn detail(command: &str, unprotected: &[Located], domains: &[Destination]) -> String {
    let mut detail = command.to_owned();
    if !unprotected.is_empty() {
        detail.push_str(
            "\n\nprotected, and for this command it would not be, with all that is in it:",
        );
    }
    for place in unprotected {
        detail.extend(["\n  ", &printable(&place.absolute().display().to_string())]);
    }
    if !domains.is_empty() {
        detail.push_str("\n\na yes to this command also lets it connect to:");
    }
    for domain in domains {
        detail.extend(["\n  ", &domain.to_string()]);
    }
    detail
}

/// Summary of a call without its verb.
fn summary(command: &str, place: &Located, unprotected: &[Located], background: bool) -> String {
    let line = command.trim().lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(SUMMARY_CHARS_MAX).collect();
    if short.len() < command.trim().len() {
        short.push('…');
    }
    let mut text = printable(&short);
    if background {
        text.push_str(" in the background");
    }
    if place.shown() != "." {
        text.extend([" (in ", &shown(place), ")"]);
    }
    if !unprotected.is_empty() {
        let names: Vec<String> = unprotected.iter().map(Located::shown).collect();
        text.extend([", unprotecting ", &names.join(", ")]);
    }
    text
}

fn shown(place: &Located) -> String {
    if place.shown() == "." { "the working directory".to_owned() } else { place.shown() }
}

#[cfg(test)]
mod tests;
