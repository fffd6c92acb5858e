//! `posse attach`: finds a running session and attaches to it as a client.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posse_actors::event::{AnnouncedEvent, Announcement, Event, PermissionMode};
use tokio::sync::mpsc;

use crate::attach::{self, AttachOptions, SocketAddress};
use crate::cli::{self, AttachArgs, PlaceArgs};
use crate::commands::conversation::Conversation;
use crate::commands::notifications::notifications;
use crate::commands::resume::{is_there, pick};
use crate::commands::run::runtime;
use crate::commands::{colors, rewind};
use crate::config::{self, Dirs, Environment, Sources};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::front::attached::{self, AttachDisplay, AttachOutcome};
use crate::frontend::BackgroundJob;
use crate::frontend::notifications::Notifications;
use crate::frontend::notifier::Notifier;
use crate::frontend::remote_session::{AttachAccepted, AttachRole, RemoteMessage, RemoteSession};
use crate::journal::state::{StoredSession, Within};
use crate::journal::{self, SOCKET, SessionSummary, StateDir};
use crate::project;
use crate::wiring::{WorkspaceContext, clock, place};

/// Number of latest records that a person sees after attaching.
const LAST: u64 = 200;

/// Maximum time to wait for a session that is starting or restarting.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);

/// Time for which the session's process must be stopped (as by Ctrl+Z) before this is an error.
const STOPPED_FOR: Duration = Duration::from_millis(900);

/// Number of checks during `STOPPED_FOR`.
const LOOKS: u32 = 3;

/// Pause between two tries to attach.
const PAUSE: Duration = Duration::from_millis(20);

/// Attaches to the session that `args` name, until the client detaches or the session ends.
pub(crate) fn run(args: &AttachArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    args.check()?;
    let cwd = cli::working_directory(args.cwd.as_deref())?;
    let dirs = Dirs::from_environment(environment)?;
    crate::sandbox::record_workspaces_in(&dirs.state);
    let state = StateDir::new(dirs.state.clone());
    let mut found = find(args.id.as_deref(), &state, &cwd, environment)?;
    let interactive =
        !args.prints_lines() && io::stdin().is_terminal() && io::stderr().is_terminal();
    // Without input there is no control.
    let controls = !args.observe && (args.reads_instructions() || interactive);
    let role = if controls { AttachRole::Controller } else { AttachRole::Observer };
    let permission_mode = args.permission_mode.as_deref().and_then(PermissionMode::named);
    if permission_mode.is_some() && !controls {
        let what = "--permission-mode needs a front end that controls the session";
        return Err(Failure::new(ErrorCode::FlagNeedsAnother, Exit::Usage, what)
            .fix("attach on a terminal, or pass --input-format stream-json")
            .into());
    }
    let last = (!args.prints_lines() && args.after.is_none()).then_some(LAST);
    let color = colors(io::stderr().is_terminal(), environment);
    let notifier = |found: &StoredSession| {
        if !interactive {
            return Notifier::new(Notifications::default());
        }
        // Errors of the configuration concern the process that owns the session.
        let notifications = config::load(environment, &dirs, &Sources::default())
            .map(|loaded| notifications(&loaded.settings.notify, environment, interactive))
            .unwrap_or_default();
        let mut notifier = Notifier::new(notifications);
        let folder = SessionSummary::of(found.clone()).cwd.map(PathBuf::from).unwrap_or_default();
        notifier.set_folder(&folder);
        notifier
    };
    let runtime = runtime()?;
    let visited = runtime.block_on(async {
        let after = args.after.unwrap_or_default();
        let mut joining = AttachOptions { role, after, last, permission_mode };
        let mut again = false;
        loop {
            let place = SocketAddress::new(dirs.state.clone(), found.dir.join(SOCKET));
            let remote = joined_soon(&state, &found, &place, (joining, again)).await?;
            let process = remote.accepted.process;
            let visit = if args.prints_lines() {
                attached::program(remote, args.reads_instructions()).await
            } else {
                let display = AttachDisplay { interactive, color, again };
                let points = || rewind_points(&found, environment);
                attached::person(remote, display, notifier(&found), &points).await
            };
            match visit {
                // The same journal continues, for example with another model.
                AttachOutcome::Switched(record) if !args.reads_instructions() => {
                    (joining.after, joining.last, again) = (record, None, true);
                    // Applied already; the mode may have changed since.
                    joining.permission_mode = None;
                }
                AttachOutcome::Moved => match successor(&state, &found, process).await {
                    Some(next) => {
                        found = next;
                        let last = (!args.prints_lines()).then_some(LAST);
                        joining = AttachOptions { role, after: 0, last, permission_mode: None };
                        again = false;
                    }
                    None => return Ok(AttachOutcome::Moved.finish().await),
                },
                visit => return Ok(visit.finish().await),
            }
        }
    });
    // A thread blocked on input must not keep the process alive.
    runtime.shutdown_background();
    visited
}

/// Attaches to a session. Tries again for up to `BEGINS_WITHIN` while the session does not accept
/// clients. `again`: true if the session is being restarted and may have no process for a moment.
async fn joined_soon(
    state: &StateDir,
    found: &StoredSession,
    place: &SocketAddress,
    (joining, again): (AttachOptions, bool),
) -> Result<RemoteSession, Failure> {
    let start = Instant::now();
    loop {
        let Some(owner) = journal::owner(&found.dir) else {
            if again && start.elapsed() < BEGINS_WITHIN {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            // This reads the whole journal, so it is done once and last.
            if again && let Some(remote) = ended_session(state, found, joining)? {
                return Ok(remote);
            }
            let what = format!("session `{}` is not running", found.id);
            let fix = format!("resume it with `posse resume {}`", found.id);
            return Err(Failure::new(ErrorCode::AttachNotRunning, Exit::Session, what).fix(fix));
        };
        let joined = tokio::select! {
            joined = attach::join(place, joining) => joined,
            pid = stopped(&found.dir) => Err(unanswered(pid)),
        };
        match joined {
            Err(failure)
                if failure.code == ErrorCode::AttachUnreachable
                    && start.elapsed() < BEGINS_WITHIN =>
            {
                tokio::time::sleep(PAUSE).await;
            }
            Err(failure) if failure.code == ErrorCode::AttachUnreachable => {
                let what =
                    format!("session `{}` runs in {owner} and does not accept clients", found.id);
                return Err(Failure { what, ..failure });
            }
            other => return other,
        }
    }
}

/// Another session than `before` that the process with this id owns, which goes on with a copy of
/// it. Waits up to `BEGINS_WITHIN` for it.
async fn successor(
    state: &StateDir,
    before: &StoredSession,
    process: u32,
) -> Option<StoredSession> {
    let owner = Some(format!("process {process}"));
    let start = Instant::now();
    while start.elapsed() < BEGINS_WITHIN {
        let mut sessions = state.sessions(Within::Everywhere).unwrap_or_default();
        sessions.retain(|other| other.id != before.id && journal::owner(&other.dir) == owner);
        if let Some(next) = sessions.pop() {
            return Some(next);
        }
        tokio::time::sleep(PAUSE).await;
    }
    None
}

/// Lists the prompts of a session, for `/rewind`.
fn rewind_points(
    found: &StoredSession,
    environment: &Environment,
) -> BackgroundJob<Vec<(usize, String)>> {
    let (found, environment) = (found.clone(), environment.clone());
    Box::new(move || {
        let cwd = SessionSummary::of(found.clone()).cwd.map(PathBuf::from);
        let location = PlaceArgs { cwd, config: None, trust_project: false };
        let WorkspaceContext { cwd, dirs, loaded } = place(&location, Vec::new(), &environment)?;
        let state = StateDir::new(dirs.state.clone());
        let conversation = Conversation::read(&state, &cwd, &found.id)?;
        let store = rewind::store(&cwd, &dirs, &loaded.settings);
        Ok(rewind::rows(rewind::points(&conversation), &store))
    })
}

/// Waits until the process that owns the session in `dir` has been stopped for `STOPPED_FOR`.
/// Returns its process id.
async fn stopped(dir: &Path) -> u32 {
    let mut looks = 0;
    loop {
        tokio::time::sleep(STOPPED_FOR / LOOKS).await;
        match journal::stopped_owner(dir) {
            Some(pid) if looks + 1 >= LOOKS => return pid,
            Some(_) => looks += 1,
            None => looks = 0,
        }
    }
}

fn unanswered(pid: u32) -> Failure {
    let what = format!("process {pid}, which owns the session, is stopped and does not respond");
    Failure::new(ErrorCode::AttachNoAnswer, Exit::Session, what)
        .fix(format!("continue it with `kill -CONT {pid}`, or `fg` in its terminal"))
}

/// Replacement for a session that ended before the client could attach again: delivers the records
/// of its journal after `joining.after`. `None` if the last record is not the end of the session.
fn ended_session(
    state: &StateDir,
    found: &StoredSession,
    joining: AttachOptions,
) -> Result<Option<RemoteSession>, Failure> {
    let (_, mut records) = journal::whole_session(state, &found.id)?;
    records.retain(|record| record.record > joining.after);
    let ended = records.last().filter(|last| matches!(last.event, Event::SessionEnded { .. }));
    let Some(last) = ended else { return Ok(None) };
    let accepted = AttachAccepted {
        session_id: last.session_id.clone(),
        process: std::process::id(),
        role: AttachRole::Observer,
        name: String::new(),
        records: last.record,
        after: joining.after,
    };
    let (out, heard) = mpsc::channel(records.len());
    for (record, seq) in records.into_iter().zip(1..) {
        let announcement = Announcement { seq, fact: AnnouncedEvent::Stored(Arc::new(record)) };
        let line = announcement.to_json();
        // The channel has capacity for each.
        out.try_send(RemoteMessage::Event(line)).ok();
    }
    let (voice, _) = mpsc::channel(1);
    Ok(Some(RemoteSession { accepted, messages: heard, commands: voice }))
}

/// Finds the session whose id is `id`, or the only one whose id begins with it. Without an id,
/// finds the session that runs in `cwd` or its project; if several run there, the user selects one,
/// which needs a terminal.
fn find(
    id: Option<&str>,
    state: &StateDir,
    cwd: &Path,
    environment: &Environment,
) -> Result<StoredSession, Failure> {
    if let Some(id) = id {
        return state.find(Within::Everywhere, id);
    }
    let runs = |found: &StoredSession| journal::owner(&found.dir).is_some();
    let mut live = state.sessions(Within::Project(cwd))?;
    live.retain(runs);
    if live.is_empty() {
        live = state.sessions(Within::Everywhere)?;
        live.retain(runs);
        let root = project::root_of(cwd);
        let elsewhere: Vec<String> = live.iter().map(|found| format!("`{}`", found.id)).collect();
        live.retain(|found| {
            let at = SessionSummary::of(found.clone()).cwd;
            at.is_some_and(|at| project::root_of(Path::new(&at)) == root)
        });
        if live.is_empty() {
            let what = "no session of this directory or its project is running";
            let failure = Failure::new(ErrorCode::AttachNotRunning, Exit::Session, what);
            return Err(match &elsewhere[..] {
                [] => failure.fix("resume an ended session with `posse resume`"),
                some => failure.fix(format!("elsewhere there is {}: give its id", some.join(", "))),
            });
        }
    }
    if live.len() == 1 {
        return Ok(live.remove(0));
    }
    if is_there() {
        let rows: Vec<SessionSummary> = live.iter().cloned().map(SessionSummary::of).collect();
        let nth = pick(&rows, environment)?;
        return Ok(live.remove(nth));
    }
    let now = clock::now_ms();
    let shown = |found: StoredSession| {
        let summary = SessionSummary::of(found);
        let begun = summary.started_ms;
        let age = begun.map_or_else(String::new, |at| journal::commands::relative(at, now));
        format!("`{}` ({age})", summary.id)
    };
    let ids: Vec<String> = live.into_iter().map(shown).collect();
    Err(Failure::new(ErrorCode::SelectionNotPossible, Exit::Usage, "attach to which session?")
        .because("several sessions are running here, and selecting one needs a terminal")
        .fix(format!("give one of {}", ids.join(", "))))
}
