//! A second front end: prompts from standard input, answers on standard output, permission
//! requests as questions of one line. Uses the same API as `posse run` and the terminal UI.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use posse::agents::AgentUse;
use posse::config::{self, Dirs, Environment, Sources};
use posse::failure::{lines, printable, printable_lines};
use posse::wiring::{Assembled, Setup, assemble, choose_provider};
use posse_actors::conversation::Prompt;
use posse_actors::event::{Event, PromptOverrides, Scope, SessionEndReason};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::ports::AnswerSource;
use posse_actors::root_session::{SessionEnding, SessionHandle};
use tokio::sync::mpsc;

fn main() -> ExitCode {
    // The sandbox starts this program as its helper process.
    if let Some(code) = posse::sandbox::helper_main() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let assembled = assembled()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(converse(assembled));
    // The thread that reads standard input must not keep the process alive.
    runtime.shutdown_background();
    ended
}

/// Assembles a session in the working directory, with the user's configuration.
fn assembled() -> Result<Assembled, Box<dyn Error>> {
    let workspace = std::env::current_dir()?.canonicalize()?;
    let environment = Environment::read();
    let dirs = Dirs::from_environment(&environment)?;
    dirs.check_workspace(&workspace)?;
    let loaded = config::load(&environment, &dirs, &Sources::default())
        .map_err(|failures| lines(&failures))?;
    let model = choose_provider(&loaded.settings, &environment, &workspace)?;
    let setup = Setup {
        cwd: &workspace,
        add_dirs: &[],
        dirs: &dirs,
        settings: &loaded.settings,
        environment: &environment,
        asking: AnswerSource::Human,
        prompt: &PromptOverrides::default(),
        dry_run: false,
        tape: None,
        keep: true,
        used: AgentUse::Chat,
    };
    let mut notices = Vec::new();
    let assembled = assemble(&setup, model, &mut notices);
    io::stderr().write_all(lines(&notices).as_bytes())?;
    Ok(assembled.map_err(|failures| lines(&failures))?)
}

/// Sends each line as a prompt until the end of standard input.
async fn converse(assembled: Assembled) -> Result<(), Box<dyn Error>> {
    let session = SessionHandle::start(assembled.ports, assembled.settings).await?;
    let mut socket = assembled.session_server.start(&session);
    let mut input = input();
    while let Some(line) = input.recv().await {
        if !line.trim().is_empty()
            && let Err(error) = turn(&session, line, &mut input).await
        {
            show(&format!("error: {error}\n"))?;
        }
    }
    session
        .end(SessionEnding {
            reason: SessionEndReason::Completed,
            exit_code: 0,
            result: None,
            error: None,
        })
        .await;
    socket.close().await;
    Ok(())
}

/// Runs one prompt: prints the reply as it arrives, and asks for permissions.
async fn turn(
    session: &SessionHandle,
    line: String,
    input: &mut mpsc::Receiver<String>,
) -> Result<(), Box<dyn Error>> {
    // Before the prompt, so that no event is missed.
    let mut events = session.subscribe();
    let running = session.prompt(Prompt::text(line)).await?;
    let invocation = running.invocation().clone();
    while let Some(announcement) = events.next().await {
        let of_this =
            announcement.origin().is_some_and(|origin| origin.invocation_id == invocation);
        match announcement.event() {
            Event::TextDelta { text, .. } if of_this => show(text)?,
            Event::ToolStarted { name, .. } => show(&format!("\n[{}]\n", printable(name)))?,
            Event::PermissionRequested { request_id, summary, .. } => {
                // A line that was typed before the question does not answer it.
                while input.try_recv().is_ok() {}
                show(&format!("\nallow {}? [y/N]\n", printable(summary)))?;
                let answer = input.recv().await.unwrap_or_default();
                let decision = match answer.trim() {
                    "y" | "yes" => HumanDecision::Allow(Scope::Once),
                    _ => HumanDecision::Deny { reason: None },
                };
                session.answer(request_id.clone(), decision).await?;
            }
            Event::InvocationFailed { cause, .. } if of_this => {
                show(&format!("\nfailed: {cause}"))?;
                break;
            }
            Event::InvocationCompleted { .. } | Event::InvocationCancelled { .. } if of_this => {
                break;
            }
            _ => {}
        }
    }
    running.outcome().await;
    show("\n")
}

/// Lines of standard input, read on a separate thread because reading blocks.
fn input() -> mpsc::Receiver<String> {
    let (lines, received) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                break;
            }
        }
    });
    received
}

/// Prints and flushes `text`. Escapes control characters, which a model or tool may have sent.
fn show(text: &str) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    out.write_all(printable_lines(text).as_bytes())?;
    Ok(out.flush()?)
}
