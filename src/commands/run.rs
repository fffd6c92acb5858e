//! `posse run`: runs one session from arguments and settings, and returns the exit code.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posse_actors::conversation::Prompt;
use posse_actors::event::PromptOverrides;
use posse_actors::ports::{AnswerSource, NetworkAccess, ProviderInfo};
use posse_actors::root_session::{SessionHandle, SessionSettings};
use posse_base::terminal;
use tokio::runtime::Runtime;

use crate::cli::{self, InputFormat, OutputFormat, PromptArg, RunArgs};
use crate::commands::notifications::notifications;
use crate::commands::plain::PlainSessions;
use crate::commands::resume::{self, Resuming};
use crate::commands::{colors, descriptors, first_start, notices, printing_notices};
use crate::config::{Environment, Loaded, Settings};
use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::front::headless::{self, OnHangup, RunOptions};
use crate::front::prompt::{self, Images};
use crate::frontend::{SessionSelection, Sessions, Task};
use crate::network;
use crate::wiring::confinement::{self, unenforced};
use crate::wiring::model_price;
use crate::wiring::session::tape;
use crate::wiring::{
    Assembled, Setup, WorkspaceContext, assemble, authority, place, provider, skills, tool_settings,
};

/// Name of the file in the session's folder to which a run writes after it has lost its terminal.
const LOG: &str = "run.log";

pub(crate) fn run(args: &RunArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    start_log(args.flags.verbose);
    descriptors::check_free()?;
    let resuming = Resuming::of(args, environment)?;
    let prompts = resume::prompt_overrides(args, resuming.as_ref())?;
    let args = &resuming.as_ref().map_or_else(|| args.clone(), |resuming| resuming.args.clone());
    let flags = resuming.as_ref().map_or_else(|| args.flags.overrides(), Resuming::overrides);
    let WorkspaceContext { cwd, dirs, loaded } = place(&args.place, flags, environment)?;
    notices(&loaded);
    dirs.check_workspace(&cwd)?;
    cli::check_added(&cwd, &args.flags.add_dirs)?;
    if is_driven(args)? {
        let found = WorkspaceContext { cwd, dirs, loaded };
        return run_driven(args, environment, found, (prompts, resuming));
    }
    let settings = &loaded.settings;
    // Created first: its certificates load on a separate thread.
    let model = provider::choose(settings, environment, &cwd)?;
    let tape = tape(args.flags.record.as_deref(), &model.info(), &cwd, settings, environment)?;
    if !args.flags.images.is_empty()
        && let Some(failure) = provider::vision_error(settings, &model.info())
    {
        return Err(failure.into());
    }
    let prompt = read_prompt(args, settings, &cwd, false)?;
    let load = || skills::load(&cwd, &dirs, settings, environment);
    let prompt = skills::with_requested_skills(prompt, &args.skills, load)?;
    let task = task(prompt, resuming.as_ref(), false)?;
    let setup = Setup {
        cwd: &cwd,
        add_dirs: &args.flags.add_dirs,
        dirs: &dirs,
        settings,
        environment,
        asking: answer_source(args),
        used: crate::agents::AgentUse::Task,
        prompt: &prompts,
        dry_run: args.flags.dry_run,
        tape: tape.as_ref(),
        keep: !args.flags.no_transcript,
    };
    let interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
    let mut assembled = if let Some(resuming) = resuming {
        resuming.assemble(&setup, model)?
    } else {
        let assembled = printing_notices(|notices| assemble(&setup, model, notices))?;
        if interactive {
            first_start::tell(&setup, assembled.settings.permission_mode);
        }
        assembled
    };
    assembled.settings.noted = authority::ignored(&loaded);
    assembled.settings.own_budget = model_price::own_budget(&loaded.layers);
    let started = StartedSession {
        settings: &assembled.settings,
        info: assembled.ports.provider.info(),
        dir: &assembled.dir,
    };
    print_header(&started, args, &loaded);
    let manner = output_options(args, &started, &loaded, environment, &cwd);
    Ok(match task {
        Some(task) => perform(assembled, task, manner)?,
        // A run without a driver has a task, or failed before.
        None => Exit::Usage,
    })
}

/// Source of answers to permission requests of a run without a driver.
fn answer_source(args: &RunArgs) -> AnswerSource {
    match (args.flags.yes, headless::can_ask() && !args.flags.unattended) {
        (true, _) => AnswerSource::Yes,
        (false, true) => AnswerSource::Human,
        (false, false) => AnswerSource::Nobody,
    }
}

/// A session that is ready to start, for its header and the options of its output.
struct StartedSession<'a> {
    settings: &'a SessionSettings,
    info: ProviderInfo,
    /// Folder of the session.
    dir: &'a Path,
}

/// Runs sessions that another program drives, with instructions on standard input.
fn run_driven(
    args: &RunArgs,
    environment: &Environment,
    found: WorkspaceContext,
    (prompts, resuming): (PromptOverrides, Option<Resuming>),
) -> Result<Exit, Vec<Failure>> {
    let flags = resuming.as_ref().map_or_else(|| args.flags.overrides(), Resuming::overrides);
    let mut sessions =
        PlainSessions::of_program(args, environment, found, (flags, prompts), resuming);
    let found = Arc::clone(&sessions.found);
    let WorkspaceContext { cwd, dirs, loaded } = &*found;
    let settings = &loaded.settings;
    if !args.flags.images.is_empty()
        && let Some(failure) =
            provider::vision_error(settings, &provider::choose(settings, environment, cwd)?.info())
    {
        return Err(failure.into());
    }
    let prompt = read_prompt(args, settings, cwd, true)?;
    let load = || skills::load(cwd, dirs, settings, environment);
    let prompt = skills::with_requested_skills(prompt, &args.skills, load)?;
    let task = task(prompt, sessions.resuming(), true)?;
    let opened = sessions.open(&SessionSelection::default(), false)?;
    let started = StartedSession {
        settings: &opened.settings,
        info: opened.ports.provider.info(),
        dir: sessions.dir().unwrap_or(cwd),
    };
    print_header(&started, args, loaded);
    let manner = output_options(args, &started, loaded, environment, cwd);
    let runtime = runtime()?;
    let exit = runtime.block_on(headless::drive(&mut sessions, opened, task, manner));
    // A thread blocked in a system call must not keep the process alive.
    runtime.shutdown_background();
    Ok(exit?)
}

/// True if another program drives the session (`--input-format stream-json`). Fails if the output
/// format does not match.
fn is_driven(args: &RunArgs) -> Result<bool, Failure> {
    let driven = args.input_format == InputFormat::StreamJson;
    if driven && args.output_format != OutputFormat::StreamJson {
        let what = "--input-format stream-json needs --output-format stream-json";
        let why = "questions and errors are events, and their answers need their ids";
        return Err(Failure::new(ErrorCode::FlagNeedsAnother, Exit::Usage, what)
            .because(why)
            .fix("pass both, or neither"));
    }
    Ok(driven)
}

/// The first task: the prompt, or unfinished work of the resumed session. Only a driven session may
/// start without a task.
fn task(
    prompt: Option<Prompt>,
    resuming: Option<&Resuming>,
    driven: bool,
) -> Result<Option<Task>, Failure> {
    match (prompt, resuming) {
        (Some(prompt), _) => Ok(Some(Task::Prompt(prompt))),
        (None, Some(resuming)) if resuming.is_unfinished() => Ok(Some(Task::Continue)),
        (None, Some(resuming)) if !driven => Err(resuming.no_work_error()),
        (None, _) => Ok(None),
    }
}

/// Runs `task` in an assembled session without a user interface, until the session ends.
pub(crate) fn perform(
    assembled: Assembled,
    task: Task,
    manner: RunOptions,
) -> Result<Exit, Failure> {
    run_front_end(assembled, async |session| headless::run(session, task, manner).await)
}

/// Makes a single-threaded async runtime for sessions and front ends, with one thread for blocking
/// work. That thread never ends, so blocking work that starts when the system refuses further
/// threads waits for it. The runtime would panic if it had none.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let build = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().thread_keep_alive(Duration::MAX).build()?;
        runtime.spawn_blocking(|| ());
        Ok(runtime)
    };
    // Too few descriptors or threads are panics of the runtime as well as errors.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = std::panic::catch_unwind(build);
    std::panic::set_hook(hook);
    let why = match outcome {
        Ok(Ok(runtime)) => return Ok(runtime),
        Ok(Err(error)) => io::Error::to_string(&error),
        Err(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(_) => "it panicked".to_owned(),
        },
    };
    let what = "cannot start the async runtime";
    let failure = Failure::new(ErrorCode::InternalFailure, Exit::Internal, what).because(why);
    Err(failure.fix("raise the limits of open files (`ulimit -n`) and processes (`ulimit -u`)"))
}

/// Starts an assembled session, accepts attached clients, and runs the front end `front` until it
/// returns.
fn run_front_end(
    assembled: Assembled,
    front: impl AsyncFnOnce(SessionHandle) -> Exit,
) -> Result<Exit, Failure> {
    let internal = |what: String| Failure::new(ErrorCode::InternalFailure, Exit::Internal, what);
    let runtime = runtime()?;
    let Assembled { ports, settings, scratch, session_server, .. } = assembled;
    let exit = runtime.block_on(async {
        let session = SessionHandle::start(ports, settings).await;
        let session = session.map_err(|error| internal(error.to_string()))?;
        let mut attach_socket = session_server.start(&session);
        let exit = front(session).await;
        attach_socket.close().await;
        Ok(exit)
    });
    // A thread blocked in a system call must not keep the process alive.
    runtime.shutdown_background();
    drop(scratch);
    exit
}

/// Reads the prompt from the arguments or standard input. `driven`: true if the prompt is optional
/// and standard input is not read. `None`: no prompt, in a driven or a resumed session.
fn read_prompt(
    args: &RunArgs,
    settings: &Settings,
    cwd: &Path,
    driven: bool,
) -> Result<Option<Prompt>, Failure> {
    let images = Images {
        named: &args.flags.images,
        cwd,
        limits: tool_settings::image_limits(settings),
        detail: &settings.image_detail,
    };
    match args.prompt.clone() {
        // Without a prompt the session continues; an accidental pipe does not matter.
        None if args.resume.is_some() && args.flags.images.is_empty() => Ok(None),
        Some(PromptArg::Text(text)) if driven => prompt::of_text(text, &images).map(Some),
        _ if driven && args.flags.images.is_empty() => Ok(None),
        _ if driven => {
            Err(Failure::new(ErrorCode::PromptMissing, Exit::Usage, "--image needs a prompt here")
                .fix("put the image into a message on standard input"))
        }
        wanted => prompt::read(wanted, &images).map(Some),
    }
}

/// Prints session, model and sandbox to standard error.
fn print_header(started: &StartedSession<'_>, args: &RunArgs, loaded: &Loaded) {
    let StartedSession { settings, info, .. } = started;
    let kept = if args.flags.no_transcript { " (not stored, cannot be resumed)" } else { "" };
    let mut text = format!(
        "session {}{kept} · {} · {} via {} · mode {}\n",
        settings.session_id, settings.agent, info.model, info.profile, settings.permission_mode
    );
    let sandbox = &loaded.settings.sandbox;
    text.push_str(&confinement::line(&settings.tier, sandbox, settings.asking));
    text.push_str(&unenforced(&loaded.layers, &settings.tier));
    if args.flags.dry_run {
        text.push_str("dry run: nothing is written or run\n");
    }
    if let OnHangup::GoesOn(Some(log)) = hangup_reaction(args, started.dir) {
        let log = printable(&log.display().to_string());
        let parts = ["unattended: continues without its terminal and then writes to ", &log, "\n"];
        text.extend(parts);
    }
    terminal::stderr().write_all(text.as_bytes()).ok();
}

/// Options of the run without a user interface: output, permission, and reaction to a hangup.
fn output_options(
    args: &RunArgs,
    started: &StartedSession<'_>,
    loaded: &Loaded,
    environment: &Environment,
    folder: &Path,
) -> RunOptions {
    RunOptions {
        format: args.output_format,
        interactive: started.settings.asking == AnswerSource::Human
            && args.input_format != InputFormat::StreamJson,
        color: colors(io::stderr().is_terminal(), environment),
        yes: args.flags.yes,
        dry_run: args.flags.dry_run,
        is_offline: network::access(
            &loaded.settings.sandbox,
            &started.settings.tier,
            started.settings.asking,
        ) == NetworkAccess::Denied,
        again: (!args.flags.no_transcript)
            .then(|| resume::again(started.settings, &started.info, args, loaded, environment)),
        hang_up: hangup_reaction(args, started.dir),
        worktrees: left_worktrees(started.settings),
        notifications: notifications(
            &loaded.settings.notify,
            environment,
            io::stderr().is_terminal() && args.input_format != InputFormat::StreamJson,
        ),
        folder: folder.to_owned(),
    }
}

/// Worktrees of subagents of the resumed session that had not ended. Empty for a new session.
fn left_worktrees(settings: &SessionSettings) -> Vec<String> {
    let resumption = settings.resumption.as_ref();
    let delegated = resumption.into_iter().flat_map(|resumption| &resumption.replayed.delegated);
    let at_work = delegated.filter(|one| one.ended.is_none());
    at_work.filter_map(|one| one.workplace.clone()).collect()
}

/// Reaction to the loss of the terminal: an unattended run continues, any other run ends.
fn hangup_reaction(args: &RunArgs, dir: &Path) -> OnHangup {
    if !args.flags.unattended {
        return OnHangup::Ends;
    }
    OnHangup::GoesOn((!args.flags.no_transcript).then(|| dir.join(LOG)))
}

/// Starts the log on standard error. `verbose` is the number of `-v` flags; 0: no log.
pub(crate) fn start_log(verbose: u8) {
    let Some(level) = log_level(verbose) else { return };
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
    // A closed standard error would make the report of the failed write panic.
    let log = log.log_internal_errors(false);
    log.with_writer(terminal::stderr).with_target(true).try_init().ok();
}

/// Starts the log in the file `path`, which replaces an earlier one and which only the user can
/// read. `verbose` is the number of `-v` flags; 0: no log. Returns false if the file cannot be
/// written.
pub(crate) fn start_log_file(verbose: u8, path: &Path) -> bool {
    let Some(level) = log_level(verbose) else { return true };
    // A new file, so that no link at this place is followed.
    std::fs::remove_file(path).ok();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let Ok(file) = file else { return false };
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
    log.with_writer(Mutex::new(file)).with_target(true).try_init().ok();
    true
}

fn log_level(verbose: u8) -> Option<tracing::Level> {
    match verbose {
        0 => None,
        1 => Some(tracing::Level::INFO),
        2 => Some(tracing::Level::DEBUG),
        _ => Some(tracing::Level::TRACE),
    }
}
