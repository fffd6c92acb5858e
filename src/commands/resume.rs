//! `posse resume` and `-c`: selection of the stored session, its folder and configuration, and
//! differences to the earlier start.
//!
//! Agent, provider and model come from the journal unless a flag overrides them. Authority does not
//! come from the journal: permissions, sandbox and trust are the current ones.

mod picker;
mod schedule;
mod selection;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::conversation::{Message, SessionId, text_of};
use posse_actors::cost::{Amount, Budget, dollars};
use posse_actors::delegation::TOOLS;
use posse_actors::event::{Branch, PermissionMode, PromptOverrides};
use posse_actors::ledger::{Accounts, RecoveredUsage};
use posse_actors::ports::{JournalError, Ports, Provider};
use posse_actors::replay::{Replay, Replayed, StartedWith};
use posse_actors::root_session::{Resumption, SessionSettings};
use posse_actors::text::clipped;
use serde_json::{Value, json};

use crate::cli::{self, RunArgs, Which};
use crate::commands::{printing_notices, system_prompt, wrapped_lines};
use crate::config::{Dirs, Environment};
use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::journal::state::StoredSession;
use crate::journal::{self, FileJournal, StateDir};
use crate::project;
use crate::wiring::session::{Assembled, JournalSettings, Setup, assemble_in};
use crate::wiring::{isolated_workspaces, model_price};

pub(crate) use picker::in_columns;
pub(crate) use schedule::{again, needed_flags};
pub(crate) use selection::{of_project, row};

pub(crate) use selection::{is_there, pick};

use selection::{find, instead};

/// Maximum characters of each message in [`Resuming::last_words`], without the mark of a cut.
const WORDS_MAX: usize = 300;

/// A stored session that is being resumed.
pub(crate) struct Resuming {
    /// Arguments of the command. `place.cwd` is the folder in which the session continues.
    pub(crate) args: RunArgs,
    found: StoredSession,
    read: ReadSession,
    /// Notices that are printed when the session is assembled.
    notes: Vec<String>,
    /// Stored budget, without limits that a flag or variable overrides.
    budget: Budget,
}

impl Resuming {
    /// Finds the session that `args` select and reads it. Takes its lock, unless the session is
    /// forked. `None` if `args` ask for a new session.
    pub(crate) fn of(
        args: &RunArgs,
        environment: &Environment,
    ) -> Result<Option<Resuming>, Failure> {
        Resuming::before(args, environment, u64::MAX)
    }

    /// Finds the session like [`Resuming::of`]. A fork ends before the record with this number.
    pub(crate) fn before(
        args: &RunArgs,
        environment: &Environment,
        record: u64,
    ) -> Result<Option<Resuming>, Failure> {
        let Some(resume) = &args.resume else { return Ok(None) };
        if args.flags.no_transcript && !resume.fork {
            let what = "--no-transcript cannot be used with a stored session";
            return Err(Failure::new(ErrorCode::TranscriptRequired, Exit::Usage, what).fix(
                "add --fork: the continuation is not stored then, and the session stays unchanged",
            ));
        }
        let cwd = cli::working_directory(args.place.cwd.as_deref())?;
        let state = StateDir::new(Dirs::from_environment(environment)?.state);
        let mut notes = Vec::new();
        let found = find(resume, &state, &cwd, environment, &mut notes)?;
        let last = resume.which == Which::Last;
        let opened = ReadSession::of(&found, resume.fork, record).map_err(|failure| {
            let unusable =
                matches!(failure.code, ErrorCode::SessionEmpty | ErrorCode::SessionNotOpened);
            if unusable && last { instead(failure, &found, &state, &cwd) } else { failure }
        });
        let read = opened?;
        let dir = directory(&read.started, args, &cwd, &mut notes)?;
        let mut args = args.clone();
        args.place.cwd = Some(dir);
        let budget = remembered_budget(read.started.budget, &args, environment);
        Ok(Some(Resuming { args, found, read, notes, budget }))
    }

    /// True if the session has unfinished work, which can continue without a new prompt.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.read.replayed.is_unfinished()
    }

    /// The error for a resume without a prompt if the session has no unfinished work.
    pub(crate) fn no_work_error(&self) -> Failure {
        let what = format!("session `{}` has no unfinished work to resume", self.found.id);
        Failure::new(ErrorCode::NothingToResume, Exit::Usage, what)
            .fix(format!("pass a prompt: posse resume {} \"...\"", self.found.id))
    }

    /// Settings from flags, and settings that the session stored and no flag overrides: key, value
    /// and source. The flag `--provider` also overrides the stored model.
    pub(crate) fn overrides(&self) -> Vec<(&'static str, Value, &'static str)> {
        const FROM: &str = "the resumed session";
        let (args, started) = (&self.args, &self.read.started);
        let mut overrides = args.flags.overrides();
        let mut recorded = |key, given: bool, name: &str| {
            if !given && !name.is_empty() {
                overrides.push((key, json!(name), FROM));
            }
        };
        recorded("agentMode", args.flags.agent_mode().is_some(), &started.mode);
        recorded("defaultAgent", args.flags.agent.is_some(), &started.agent);
        recorded("defaultProvider", args.flags.provider.is_some(), &started.provider);
        // A model belongs to its provider.
        recorded(
            "model",
            args.flags.model.is_some() || args.flags.provider.is_some(),
            &started.model,
        );
        for (key, _, value) in model_price::remembered(self.budget) {
            overrides.extend(value.map(|value| (key, json!(value), FROM)));
        }
        overrides
    }

    /// Assembles the session with `model`, and prints how it was resumed, with all notices and the
    /// differences to its earlier start, to standard error.
    pub(crate) fn assemble(
        self,
        setup: &Setup<'_>,
        model: Arc<dyn Provider>,
    ) -> Result<Assembled, Vec<Failure>> {
        let (kept, ports, settings) = self.assemble_kept(setup, model)?;
        let dir = kept.dir().to_owned();
        let session_server = kept.session_server(setup.dirs);
        Ok(Assembled { ports, settings, dir, scratch: kept.into_scratch(), session_server })
    }

    /// Assembles the session like `assemble`, but returns the journal settings, ports and session
    /// settings separately.
    pub(crate) fn assemble_kept(
        self,
        setup: &Setup<'_>,
        model: Arc<dyn Provider>,
    ) -> Result<(JournalSettings, Ports, SessionSettings), Vec<Failure>> {
        let Resuming { found, read, mut notes, budget, args } = self;
        let ReadSession { journal, replayed, started, damage, lost, salvaged } = read;
        let id = SessionId::new(found.id.clone());
        let (kept, branch) = if let Some(journal) = journal {
            isolated_workspaces::remove_incomplete(&found.dir, &replayed.delegated);
            (JournalSettings::again(id, journal, found.dir.clone()), None)
        } else {
            let kept = JournalSettings::new(setup)?;
            let copied = copy_outputs(&found.dir, kept.dir());
            kept.or_remove(copied.map_err(|error| copy_error(&found, &error).into()))?;
            (kept, Some(Branch { session: id, record: replayed.last_record }))
        };
        let made = printing_notices(|notices| assemble_in(&kept, setup, model, notices));
        let (ports, mut settings) = kept.or_remove(made)?;
        let info = ports.provider.info();
        let changed = changed(&started, &replayed, &settings, (&info.profile, &info.model));
        notes.extend(changed.iter().cloned());
        // The cost of a fork starts at zero.
        let resumption = Resumption { replayed, branch, changed, damage, lost, salvaged };
        let effective = combined_mode(&resumption, settings.permission_mode);
        let effective = kept.or_remove(effective.map_err(Into::into))?;
        if effective != settings.permission_mode {
            let about = effective.about();
            let change = if is_conversation(&args) {
                "/permission-mode changes it".to_owned()
            } else {
                mode_fix(&found.id)
            };
            notes.push(format!(
                "the permission mode is {effective}, as in the session: {about}; {change}"
            ));
            settings.permission_mode = effective;
        }
        let accounts = resumption.accounts();
        notes.extend(kept_budget(budget, accounts.spent(), resumption.lost));
        notes.extend(salvaged_text(&resumption.salvaged, &accounts));
        if !resumption.replayed.grants.is_empty()
            && resumption.grants(&settings.cwd, &settings.tier).is_empty()
        {
            notes.push("what was allowed until the end of the session is asked again".to_owned());
        }
        let records = resumption.replayed.last_record;
        let head = match &resumption.branch {
            Some(branch) => format!("fork of session {} at record {records}", branch.session),
            None => format!("resumed after {records} records"),
        };
        let mut text = printable(&head) + "\n";
        for note in &notes {
            text.extend(["note: ", &printable(note), "\n"]);
        }
        wrapped_lines::print(&text);
        settings.resumption = Some(Box::new(resumption));
        Ok((kept, ports, settings))
    }

    /// The last prompt and the last answer, shortened, as a reminder for the user.
    pub(crate) fn last_words(&self) -> String {
        let last = |said: fn(&Message) -> Option<String>| {
            self.read.replayed.messages.iter().rev().find_map(|message| said(message))
        };
        let asked = last(|message| match message {
            Message::User { content } => Some(text_of(content)),
            _ => None,
        });
        let answered = last(|message| match message {
            Message::Assistant(said) => said.content.clone().filter(|text| !text.is_empty()),
            _ => None,
        });
        let short = |text: &str| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            printable(&clipped(&text, WORDS_MAX, " …"))
        };
        let mut text = String::new();
        for (who, words) in [("you", asked), ("model", answered)] {
            if let Some(words) = words {
                text.extend(["… ", who, ": ", &short(&words), "\n"]);
            }
        }
        text
    }
}

/// A stored session as read for a resume: its fold, the settings of its start, and damage of its
/// journal.
struct ReadSession {
    /// The open journal, with its lock. `None` for a fork, which does not write to it.
    journal: Option<FileJournal>,
    replayed: Replayed,
    started: StartedWith,
    damage: Option<String>,
    lost: bool,
    salvaged: Vec<RecoveredUsage>,
}

impl ReadSession {
    /// A fork ends before the record with the number `before`.
    fn of(found: &StoredSession, fork: bool, before: u64) -> Result<ReadSession, Failure> {
        let journal = if fork { None } else { Some(take(found)?) };
        let (mut replayed, damage, lost, salvaged) = if let Some(journal) = &journal {
            let folded = journal.replayed().map_err(|error| unusable(found, &error))?;
            (folded.replay.finish(), folded.repaired, folded.lost, folded.salvaged)
        } else {
            let (replayed, damage) = if before == u64::MAX {
                journal::replayed(found)?
            } else {
                replayed_before(found, before)?
            };
            let lost = damage.is_some();
            // The cost of a fork starts at zero.
            (replayed, damage, lost, Vec::new())
        };
        if lost {
            replayed.mark_uncertain();
        }
        let Some(started) = replayed.started.clone() else {
            let what = format!("session `{}` has no records to resume from", found.id);
            let why = "it broke off before its first record was written";
            return Err(Failure::new(ErrorCode::SessionEmpty, Exit::Session, what)
                .because(damage.unwrap_or_else(|| why.to_owned()))
                .fix("start a new one with `posse run`"));
        };
        Ok(ReadSession { journal, replayed, started, damage, lost, salvaged })
    }
}

/// Folds the records before the one with the number `before`, as [`journal::replayed`] does.
fn replayed_before(
    found: &StoredSession,
    before: u64,
) -> Result<(Replayed, Option<String>), Failure> {
    let mut replay = Replay::default();
    let last = before.saturating_sub(1);
    let problem = journal::until(found, last, &|_| true, &mut |record| replay.push(&record))?;
    Ok((replay.finish(), problem))
}

/// Texts for the system prompt: those of the flags in `args`, else those that the resumed session
/// recorded. Fails if a text or its file cannot be used.
pub(crate) fn prompt_overrides(
    args: &RunArgs,
    resuming: Option<&Resuming>,
) -> Result<PromptOverrides, Failure> {
    let recorded = resuming.map(|resuming| resuming.read.started.prompt.clone());
    Ok(system_prompt::overrides(&args.flags)?.or(&recorded.unwrap_or_default()))
}

/// True if `args` resume a session for a conversation, and a person is at the terminal.
pub(crate) fn is_conversation(args: &RunArgs) -> bool {
    let wanted = args.resume.as_ref().is_some_and(|resume| !resume.headless);
    wanted && is_there()
}

/// Takes the lock of the session and opens its journal. If another process has the lock, the error
/// names it.
fn take(found: &StoredSession) -> Result<FileJournal, Failure> {
    FileJournal::lock(&found.dir, SessionId::new(found.id.clone())).map_err(|error| match error {
        JournalError::Locked { owner } => {
            let what = format!("session `{}` is open in {owner}", found.id);
            Failure::new(ErrorCode::SessionOpen, Exit::Session, what).fix(format!(
                "attach to it with `posse attach {}`, or pass `--fork` to continue in a copy",
                found.id
            ))
        }
        error => unusable(found, &error),
    })
}

fn unusable(found: &StoredSession, error: &JournalError) -> Failure {
    if let JournalError::Damaged { .. } = error {
        return Failure::new(ErrorCode::SessionNotOpened, Exit::Session, error.to_string())
            .at(found.dir.display().to_string())
            .because("its remaining files are there, unchanged")
            .fix("start a new one with `posse run`");
    }
    Failure::new(ErrorCode::SessionNotOpened, Exit::Session, error.to_string())
        .at(found.dir.display().to_string())
        .caused_by(error)
        .fix("`--fork` continues in a new session from the verified records")
}

/// Working directory of the resumed session: the folder of `--cwd`, else the recorded folder, with
/// a remark in `notes` if it is not `cwd`. Fails if the recorded folder is needed, and does not
/// exist or belongs to another project than `cwd`.
fn directory(
    started: &StartedWith,
    args: &RunArgs,
    cwd: &Path,
    notes: &mut Vec<String>,
) -> Result<PathBuf, Failure> {
    let recorded = PathBuf::from(&started.cwd);
    if args.place.cwd.is_some() || cwd == recorded {
        return Ok(cwd.to_owned());
    }
    let refused = |why: String| {
        let what = format!("the session belongs to {}", started.cwd);
        Failure::new(ErrorCode::SessionOtherFolder, Exit::Usage, what)
            .because(why)
            .fix("change to that folder, or pass --cwd DIR")
    };
    let still_there = recorded.canonicalize().is_ok_and(|real| real == recorded);
    if !still_there {
        return Err(refused("that folder no longer exists".to_owned()));
    }
    if project::root_of(&recorded) != project::root_of(cwd) {
        return Err(refused(format!("{} is another project", cwd.display())));
    }
    notes.push(format!("resumed in {}", started.cwd));
    Ok(recorded)
}

/// Way to change the permission mode of the session `id`, for a run without a conversation.
fn mode_fix(id: &str) -> String {
    format!(
        "a resume takes the stricter mode of the session and the start, and a person changes it: run \
         `posse resume {id}` in a terminal and press Shift+Tab there, or send permission.mode with \
         --input-format stream-json"
    )
}

/// Permission mode of a session that is resumed with the mode `start`: the stricter one of `start`
/// and that of the session. Fails if they cannot be combined.
fn combined_mode(
    resumption: &Resumption,
    start: PermissionMode,
) -> Result<PermissionMode, Failure> {
    resumption.permission_mode(start).ok_or_else(|| {
        let recorded = resumption.replayed.started.as_ref();
        let recorded = recorded.and_then(|started| started.permission_mode).unwrap_or_default();
        let what = format!("the permission modes {recorded} and {start} cannot be combined");
        Failure::new(ErrorCode::FlagsConflict, Exit::Usage, what)
            .because(format!("the session ran in the mode {recorded}, which stays in force"))
            .fix(format!("resume it with --permission-mode {recorded}"))
    })
}

/// Differences between the settings of the earlier start and those of now, as sentences.
fn changed(
    started: &StartedWith,
    replayed: &Replayed,
    now: &SessionSettings,
    (profile, model): (&str, &str),
) -> Vec<String> {
    let mut changed = Vec::new();
    let mut compare = |what: &str, then: &str, now: &str| {
        // Earlier versions did not record all of these.
        if !then.is_empty() && then != now {
            changed.push(format!("{what} is {now}; it was {then}"));
        }
    };
    compare("the directory", &started.cwd, &now.cwd);
    compare("the agent", &started.agent, &now.agent);
    compare("the provider", &started.provider, profile);
    compare("the model", &started.model, model);
    compare("the sandbox", started.tier.as_str(), now.tier.as_str());
    if !started.instructions.is_empty() && started.instructions != now.instructions {
        changed.push("the instructions have changed".to_owned());
    }
    changed.extend(other_budget(started.budget, now.budget));
    if let Some(tools) = replayed.last.as_ref().and_then(|last| last.tools.as_ref()) {
        let less = |a: &[String], b: &[String]| {
            a.iter().filter(|name| !b.contains(name)).cloned().collect::<Vec<_>>().join(", ")
        };
        let mut all = now.tools.clone();
        if now.delegation.is_some() {
            all.extend(TOOLS.map(str::to_owned));
        }
        let (new, gone) = (less(&now.tools, tools), less(tools, &all));
        if !new.is_empty() {
            changed.push(format!("there are new tools: {new}"));
        }
        if !gone.is_empty() {
            changed.push(format!("these tools no longer exist: {gone}"));
        }
    }
    changed
}

/// Limits of the stored budget `own` that neither a flag nor a variable overrides.
fn remembered_budget(own: Budget, args: &RunArgs, environment: &Environment) -> Budget {
    let [(_, money, _), (_, tokens, _)] = model_price::remembered(own);
    let unsaid = |variable: &str| environment.get(variable).is_none();
    let money = args.flags.budget.is_none() && unsaid(money);
    Budget {
        nano_usd: own.nano_usd.filter(|_| money),
        tokens: own.tokens.filter(|_| unsaid(tokens)),
    }
}

/// Notes about the stored limits that still apply, each with the amount already spent. `lost`:
/// records are lost, so the amount is a minimum.
fn kept_budget(kept: Budget, spent: Amount, lost: bool) -> Vec<String> {
    let least = if lost { "at least " } else { "" };
    let money = kept.nano_usd.map(|cap| {
        let spent = dollars(spent.nano_usd);
        format!("its budget of {} still applies; {least}{spent} spent", dollars(cap))
    });
    let tokens = kept.tokens.map(|cap| {
        format!("its budget of {cap} tokens still applies; {least}{} spent", spent.tokens)
    });
    money.into_iter().chain(tokens).collect()
}

/// Note about the cost that was recovered for attempts whose records are lost. `None` without such
/// attempts.
fn salvaged_text(salvaged: &[RecoveredUsage], accounts: &Accounts) -> Option<String> {
    if salvaged.is_empty() {
        return None;
    }
    let count = salvaged.len();
    let requests = if count == 1 { "request is" } else { "requests are" };
    let cost = accounts.total.cost_text();
    Some(format!("{count} {requests} counted whose records are lost; the session has cost {cost}"))
}

/// Notes about limits of the earlier start that have changed or no longer exist.
fn other_budget(then: Budget, now: Budget) -> Vec<String> {
    let none = || "none".to_owned();
    let said = |then: Option<u64>, now: Option<u64>, shown: &dyn Fn(u64) -> String| {
        let then = then.filter(|then| now != Some(*then))?;
        Some(format!("the budget is {}; it was {}", now.map_or_else(none, shown), shown(then)))
    };
    let money = said(then.nano_usd, now.nano_usd, &dollars);
    let tokens = said(then.tokens, now.tokens, &|tokens| format!("{tokens} tokens"));
    money.into_iter().chain(tokens).collect()
}

/// Copies the spilled outputs from the session folder `from` to `to`, by hard links if possible.
/// The history of a fork refers to them.
fn copy_outputs(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (from.join("outputs"), to.join("outputs"));
    let entries = match std::fs::read_dir(&from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        std::fs::create_dir_all(&to)?;
        // They are written once, so a hard link is as good as a copy.
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        if std::fs::hard_link(&old, &new).is_err() {
            std::fs::copy(&old, &new)?;
        }
    }
    Ok(())
}

fn copy_error(found: &StoredSession, error: &io::Error) -> Failure {
    let what = format!("the outputs of session `{}` cannot be copied", found.id);
    Failure::new(ErrorCode::OutputsNotCopied, Exit::Session, what)
        .at(found.dir.join("outputs").display().to_string())
        .because(error.to_string())
}
