//! `posse plain`: line mode, and the sessions of a conversation. A session is assembled again after
//! the user selects another agent, provider or model.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::conversation::Prompt;
use posse_actors::event::PromptOverrides;
use posse_actors::ports::{AnswerSource, Thinking};
use posse_actors::root_session::UserCall;
use posse_base::secrets::mask::Mask;
use serde_json::{Value, json};

use crate::agents::AgentUse;
use crate::checkpoint::RestoreChoice;
use crate::cli::{self, PromptArg, Resume, RunArgs, Which};
use crate::commands::conversation::Conversation;
use crate::commands::net_changes::net_changes;
use crate::commands::notifications::notifications;
use crate::commands::offline_commands;
use crate::commands::reports::ReportSource;
use crate::commands::resume::{self, Resuming, of_project, row};
use crate::commands::run::{runtime, start_log};
use crate::commands::{
    colors, descriptors, first_start, notices, printing_notices, rewind, tree, undo, wrapped_lines,
};
use crate::config::preferences::{self, Preferences};
use crate::config::{Environment, Loaded, SettingOrigin};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::front::plain::{self, Options};
use crate::front::prompt::{self, Images};
use crate::frontend::remote_session::SessionServer;
use crate::frontend::session_records::Changes;
use crate::frontend::session_tree::TreeRow;
use crate::frontend::{
    self, BackgroundJob, ExportTarget, Listing, LoadedSession, OpenedSession, Report, Rewind,
    RewindExtent, Selectable, SelectionSources, SessionSelection, Task,
};
use crate::journal::{SessionSummary, StateDir};
use crate::known_secrets::secrets;
use crate::models::Catalog;
use crate::network;
use crate::provider::presets;
use crate::start_mode::no_checkpoints;
use crate::wiring::confinement::unenforced;
use crate::wiring::session::{JournalSettings, Setup, assemble_in, tape};
use crate::wiring::{
    WorkspaceContext, authority, model_price, place, provider, skills, subagents, tool_settings,
};

/// Runs line mode until the user leaves, the input ends, or a signal arrives.
pub(crate) fn run(args: &RunArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    start_log(args.flags.verbose);
    let interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
    let (mut sessions, first) = PlainSessions::prepare(args, environment, interactive)?;
    let options = Options {
        interactive,
        color: colors(io::stderr().is_terminal(), environment),
        forgotten: args.flags.no_transcript,
        resume_flags: resume::needed_flags(args, &sessions.found.cwd),
        yes: args.flags.yes,
        dry_run: args.flags.dry_run,
        clipboard: interactive && environment.get("TERM").is_some_and(|term| term != "dumb"),
        history: sessions.history(),
        notifications: notifications(
            &sessions.found.loaded.settings.notify,
            environment,
            interactive,
        ),
        folder: sessions.found.cwd.clone(),
        first,
    };
    let runtime = runtime()?;
    let exit = runtime.block_on(plain::run(&mut sessions, options));
    // A thread blocked on input must not keep the process alive.
    runtime.shutdown_background();
    exit
}

/// The first prompt, with images, if the arguments contain its text; otherwise `None`. Fails if
/// there are images without a prompt. Reads nothing from standard input.
fn first_prompt(
    args: &RunArgs,
    environment: &Environment,
    found: &WorkspaceContext,
) -> Result<Option<Prompt>, Vec<Failure>> {
    let settings = &found.loaded.settings;
    Ok(match &args.prompt {
        Some(PromptArg::Text(text)) => {
            if !args.flags.images.is_empty()
                && let Ok(model) = provider::choose(settings, environment, &found.cwd)
                && let Some(failure) = provider::vision_error(settings, &model.info())
            {
                return Err(failure.into());
            }
            let images = Images {
                named: &args.flags.images,
                cwd: &found.cwd,
                limits: tool_settings::image_limits(settings),
                detail: &settings.image_detail,
            };
            Some(prompt::of_text(text.clone(), &images)?)
        }
        Some(PromptArg::Stdin) | None if !args.flags.images.is_empty() => {
            let what = "--image needs a prompt on the command line here";
            return Err(Failure::new(ErrorCode::PromptMissing, Exit::Usage, what)
                .fix("add the prompt, or type or paste the path of the image into it later")
                .into());
        }
        // Standard input is read line by line anyway.
        Some(PromptArg::Stdin) | None => None,
    })
}

/// Value of a setting that takes precedence over files: key, value and source.
pub(super) type SettingOverride = (&'static str, Value, &'static str);

/// Opens the sessions of this process, one after the other.
pub(super) struct PlainSessions<'a> {
    args: RunArgs,
    pub(super) environment: &'a Environment,
    pub(super) asking: AnswerSource,
    /// Use of the main agent: a conversation, or the tasks of a program.
    used: AgentUse,
    /// True if a person sees the session. With `--yes`, permission requests are still not shown.
    interactive: bool,
    /// True if the front end shows the earlier conversation of a resumed session itself.
    shows_past: bool,
    /// Folders and settings of the current session.
    pub(super) found: Arc<WorkspaceContext>,
    /// Settings from command-line flags and from the resumed session: key, value and source.
    flags: Vec<SettingOverride>,
    /// Texts of the user for the system prompt, from flags and from the resumed session.
    prompts: PromptOverrides,
    /// Stored session that is opened next. `None` after it was opened, or for a new session.
    resuming: Option<Resuming>,
    /// Provider profile of the current session; empty before the first one.
    profile: String,
    /// Journal settings of the current session. `None` before the first one.
    kept: Option<JournalSettings>,
}

impl frontend::Sessions for PlainSessions<'_> {
    fn open(
        &mut self,
        choice: &SessionSelection,
        resumes: bool,
    ) -> Result<OpenedSession, Vec<Failure>> {
        let mut found = place(&self.args.place, self.overrides(choice), self.environment)?;
        if choice.provider.is_some() && choice.model.is_none() {
            // A model belongs to its provider, independent of its source.
            found.loaded.settings.model = None;
        }
        let WorkspaceContext { cwd, dirs, loaded } = &found;
        let settings = &loaded.settings;
        // Those of the first folder were printed at the start.
        if *cwd != self.found.cwd {
            notices(loaded);
        }
        let model = provider::choose(settings, self.environment, cwd)?;
        let info = model.info();
        let tape = tape(self.args.flags.record.as_deref(), &info, cwd, settings, self.environment)?;
        let setup = Setup {
            cwd,
            add_dirs: &self.args.flags.add_dirs,
            dirs,
            settings,
            environment: self.environment,
            asking: self.asking,
            used: self.used,
            prompt: &self.prompts,
            dry_run: self.args.flags.dry_run,
            tape: tape.as_ref(),
            keep: !self.args.flags.no_transcript,
        };
        let mut explained_mode = None;
        let (new, ports, mut session) = match (self.resuming.take(), &self.kept) {
            (Some(resuming), _) => {
                if self.used == AgentUse::Chat && !self.shows_past {
                    wrapped_lines::print(&resuming.last_words());
                }
                let (kept, ports, session) = resuming.assemble_kept(&setup, model)?;
                (Some(kept), ports, session)
            }
            (None, Some(kept)) if resumes => {
                let (ports, session) =
                    printing_notices(|notices| assemble_in(kept, &setup, model, notices))?;
                (None, ports, session)
            }
            (None, _) => {
                let kept = JournalSettings::new(&setup)?;
                let made = printing_notices(|notices| assemble_in(&kept, &setup, model, notices));
                let (ports, session) = kept.or_remove(made)?;
                if self.interactive && self.shows_past {
                    let is_first = first_start::is_first(&setup);
                    explained_mode = is_first.then_some(session.permission_mode);
                } else if self.interactive {
                    first_start::tell(&setup, session.permission_mode);
                }
                (Some(kept), ports, session)
            }
        };
        // A person sees the wait and can stop it.
        session.limits.outwaits_once = self.interactive;
        session.own_budget = model_price::own_budget(&loaded.layers);
        let sources = sources(loaded, &info.profile);
        let network = network::access(&settings.sandbox, &session.tier, self.asking);
        if !resumes {
            session.noted = authority::ignored(loaded);
            if self.used == AgentUse::Chat {
                let text = unenforced(&loaded.layers, &session.tier);
                wrapped_lines::print(&text);
            }
        }
        self.kept = new.or(self.kept.take());
        let server = self.kept.as_ref().map(|kept| kept.session_server(&found.dirs));
        let session_server = server.unwrap_or_else(SessionServer::disabled);
        self.found = Arc::new(found);
        self.profile = info.profile;
        let settings = session;
        Ok(OpenedSession { ports, settings, sources, network, explained_mode, session_server })
    }

    fn remember(&mut self, what: Selectable, name: &str) -> Result<(), Failure> {
        let name = Some(name.to_owned());
        let chosen = match what {
            // These are selected per conversation and not saved.
            Selectable::Agent | Selectable::Thinking => return Ok(()),
            Selectable::Provider => Preferences { provider: name, model: None },
            Selectable::Model => Preferences { provider: Some(self.profile.clone()), model: name },
        };
        preferences::save(&self.found.dirs, &chosen)
    }

    fn forget(&mut self, what: Selectable) -> Result<(), Failure> {
        let dirs = &self.found.dirs;
        let (saved, _) = preferences::load(dirs);
        match what {
            Selectable::Agent | Selectable::Thinking => Ok(()),
            // A saved model belongs to one provider.
            Selectable::Provider => preferences::forget(dirs).map(drop),
            Selectable::Model if saved.model.is_none() => Ok(()),
            Selectable::Model => preferences::save(dirs, &Preferences { model: None, ..saved }),
        }
    }

    fn skill(&self, name: &str, task: &str) -> Result<Prompt, Vec<Failure>> {
        let WorkspaceContext { cwd, dirs, loaded } = &*self.found;
        let skills = skills::load(cwd, dirs, &loaded.settings, self.environment);
        let task = if task.is_empty() {
            format!("Do what the skill {name} says.")
        } else {
            task.to_owned()
        };
        skills::with_skills(Prompt::text(task), &[name.to_owned()], &skills)
    }

    fn report(&self, what: Report, session: &str) -> BackgroundJob<String> {
        let (source, session) = (self.report_source(), session.to_owned());
        Box::new(move || source.report(&what, &session))
    }

    fn export(&self, target: ExportTarget, session: &str) -> BackgroundJob<PathBuf> {
        let (source, session) = (self.report_source(), session.to_owned());
        Box::new(move || Ok(source.export(&target, &session)?))
    }

    fn listing(&self, what: Listing) -> BackgroundJob<Value> {
        let (source, providers) = (self.report_source(), self.names(Selectable::Provider));
        Box::new(move || {
            let mut result = json!({});
            result[what.word()] = source.listing(what)?;
            if what == Listing::Models {
                result["providers"] = json!(providers);
                let levels = Thinking::ALL.iter().map(|level| level.name());
                result["thinking"] = json!(levels.collect::<Vec<_>>());
            }
            Ok(result)
        })
    }

    fn stored(&self) -> BackgroundJob<Vec<(String, String)>> {
        let found = Arc::clone(&self.found);
        Box::new(move || {
            let stored = stored(&found)?;
            let begun = stored.iter().filter(|session| session.prompt.is_some());
            Ok(resume::in_columns(begun.map(row).collect()))
        })
    }

    fn find_session(&self, id: &str, fork: bool) -> BackgroundJob<LoadedSession> {
        let (found, id) = (Arc::clone(&self.found), id.to_owned());
        let (mut args, environment) = (self.args.clone(), self.environment.clone());
        let own = self.kept.as_ref().and_then(|kept| kept.dir().file_name().map(OsStr::to_owned));
        Box::new(move || {
            let mut stored = stored(&found)?;
            if !fork {
                // The current session is not offered.
                stored.retain(|it| own.as_deref() != Some(OsStr::new(&it.id)) || it.id == id);
            }
            let meant = stored.iter().find(|session| session.id == id);
            let mut meant =
                meant.into_iter().chain(stored.iter().filter(|s| s.id.starts_with(&id)));
            let Some(session) = meant.next() else {
                let what = format!("there is no session `{id}` of this folder or its project");
                return Err(Failure::new(ErrorCode::SessionElsewhere, Exit::Session, what)
                    .fix("`posse sessions list --all` shows every session")
                    .into());
            };
            let which = Which::Id(session.id.clone());
            args.resume = Some(Resume { which, fork, headless: false });
            args.place.cwd = session.cwd.as_ref().map(PathBuf::from).or(args.place.cwd);
            let resuming = Resuming::of(&args, &environment)?;
            Ok(LoadedSession(Box::new(resuming)))
        })
    }

    fn resume(&mut self, ready: LoadedSession) -> Result<(OpenedSession, bool), Vec<Failure>> {
        let Some(resuming) = ready.0.downcast().ok().and_then(|it| *it) else {
            let what = "the selected item is not a session";
            return Err(vec![Failure::new(ErrorCode::InternalFailure, Exit::Internal, what)]);
        };
        let resuming: Resuming = resuming;
        let unfinished = resuming.is_unfinished();
        let prompts = resume::prompt_overrides(&resuming.args, Some(&resuming))?;
        let prompts = std::mem::replace(&mut self.prompts, prompts);
        let flags = std::mem::replace(&mut self.flags, resuming.overrides());
        let args = std::mem::replace(&mut self.args, resuming.args.clone());
        self.resuming = Some(resuming);
        let opened = frontend::Sessions::open(self, &SessionSelection::default(), false);
        if opened.is_err() {
            (self.flags, self.args, self.prompts) = (flags, args, prompts);
            self.resuming = None;
        }
        opened.map(|opened| (opened, unfinished))
    }

    fn undo(&self, session: &str, checkpoint: Option<u64>) -> BackgroundJob<UserCall> {
        let (found, session) = (Arc::clone(&self.found), session.to_owned());
        Box::new(move || {
            let state = StateDir::new(found.dirs.state.clone());
            let store = || rewind::store(&found.cwd, &found.dirs, &found.loaded.settings);
            if let Some(id) = checkpoint {
                return Ok(undo::to_checkpoint(id, &store()?)?);
            }
            Ok(undo::undo(&state, &session, &found.cwd, || store().ok())?)
        })
    }

    fn net_changes(&self, session: &str) -> BackgroundJob<Result<Changes, String>> {
        let (found, session) = (Arc::clone(&self.found), session.to_owned());
        let mask = Mask::new(&secrets(&found.loaded.settings, self.environment));
        Box::new(move || {
            let state = StateDir::new(found.dirs.state.clone());
            if let Some(why) = no_checkpoints(&found.loaded.settings) {
                return Ok(Err(why));
            }
            let read = Conversation::read(&state, &found.cwd, &session);
            let store = rewind::store(&found.cwd, &found.dirs, &found.loaded.settings);
            Ok(match (read, store) {
                (Ok(conversation), Ok(store)) => net_changes(&conversation, &store, &mask),
                (Err(failure), _) | (_, Err(failure)) => Err(failure.what),
            })
        })
    }

    fn rewind_points(&self, session: &str) -> BackgroundJob<Vec<(usize, String)>> {
        let (found, session) = (Arc::clone(&self.found), session.to_owned());
        Box::new(move || {
            let state = StateDir::new(found.dirs.state.clone());
            let conversation = Conversation::read(&state, &found.cwd, &session)?;
            let store = rewind::store(&found.cwd, &found.dirs, &found.loaded.settings);
            Ok(rewind::rows(rewind::points(&conversation), &store))
        })
    }

    fn tree(&self, session: &str) -> BackgroundJob<Vec<TreeRow>> {
        let (found, session) = (Arc::clone(&self.found), session.to_owned());
        Box::new(move || {
            let state = StateDir::new(found.dirs.state.clone());
            Ok(tree::tree(&state, &found.cwd, &session)?)
        })
    }

    fn rewind(&self, session: &str, prompt: usize, extent: RewindExtent) -> BackgroundJob<Rewind> {
        let (found, session) = (Arc::clone(&self.found), session.to_owned());
        let (mut args, environment) = (self.args.clone(), self.environment.clone());
        Box::new(move || {
            let state = StateDir::new(found.dirs.state.clone());
            let conversation = Conversation::read(&state, &found.cwd, &session)?;
            let point = rewind::find(rewind::points(&conversation), prompt)?;
            let restore = if extent == RewindExtent::Conversation {
                None
            } else {
                let store = rewind::store(&found.cwd, &found.dirs, &found.loaded.settings)?;
                let choice = match extent {
                    RewindExtent::All => RestoreChoice::All,
                    _ => RestoreChoice::KeepUsers,
                };
                rewind::call(&point, &store, choice)?
            };
            let (call, replaced) = restore.unzip();
            let replaced = replaced.flatten();
            if matches!(extent, RewindExtent::Files | RewindExtent::All) {
                return Ok(Rewind { session: None, call, prompt: String::new(), replaced });
            }
            // A prompt before a copy is in the records of the original.
            let which = Which::Id(point.session);
            args.resume = Some(Resume { which, fork: true, headless: false });
            let resuming = Resuming::before(&args, &environment, point.record)?;
            let session = Some(LoadedSession(Box::new(resuming)));
            Ok(Rewind { session, call, prompt: point.text, replaced })
        })
    }

    fn names(&self, what: Selectable) -> Vec<String> {
        let settings = &self.found.loaded.settings;
        match what {
            Selectable::Agent => {
                self.agent_descriptions().into_iter().map(|(name, _)| name).collect()
            }
            Selectable::Provider => {
                let mut names: Vec<String> = settings.providers.keys().cloned().collect();
                let presets = presets::all().iter().map(|preset| preset.name.to_owned());
                names.extend(presets.filter(|name| !settings.providers.contains_key(name)));
                names
            }
            Selectable::Thinking => {
                Thinking::ALL.iter().map(|level| level.name().to_owned()).collect()
            }
            Selectable::Model => {
                let is_current = |name: &str| self.profile.is_empty() || name == self.profile;
                let configured = settings.providers.iter().filter(|(name, _)| is_current(name));
                let configured = configured.filter_map(|(_, provider)| provider.model.clone());
                let mut names: Vec<String> = configured.collect();
                let known = Catalog::new(&settings.models).all().into_iter();
                let own = known.filter(|known| known.provider.as_deref() == Some(&*self.profile));
                names.extend(own.map(|known| known.model));
                names.sort_unstable();
                names.dedup();
                names
            }
        }
    }
}

impl<'a> PlainSessions<'a> {
    /// Reads the settings and, if `args` select one, a stored session. Also returns the first task:
    /// the prompt in `args`, or the unfinished work of the session. `interactive`: true if a person
    /// is present.
    pub(super) fn prepare(
        args: &RunArgs,
        environment: &'a Environment,
        interactive: bool,
    ) -> Result<(PlainSessions<'a>, Option<Task>), Vec<Failure>> {
        descriptors::check_free()?;
        let resuming = Resuming::of(args, environment)?;
        let prompts = resume::prompt_overrides(args, resuming.as_ref())?;
        let (args, flags) = match &resuming {
            Some(resuming) => (resuming.args.clone(), resuming.overrides()),
            None => (args.clone(), args.flags.overrides()),
        };
        let found = place(&args.place, flags.clone(), environment)?;
        notices(&found.loaded);
        found.dirs.check_workspace(&found.cwd)?;
        cli::check_added(&found.cwd, &args.flags.add_dirs)?;
        let first = match first_prompt(&args, environment, &found)? {
            Some(prompt) => Some(Task::Prompt(prompt)),
            None => resuming.as_ref().filter(|r| r.is_unfinished()).map(|_| Task::Continue),
        };
        let asking = match (args.flags.yes, interactive) {
            (true, _) => AnswerSource::Yes,
            (false, true) => AnswerSource::Human,
            (false, false) => AnswerSource::Nobody,
        };
        let (profile, kept) = (String::new(), None);
        let sessions = PlainSessions {
            args,
            environment,
            asking,
            used: AgentUse::Chat,
            interactive,
            shows_past: false,
            found: Arc::new(found),
            flags,
            prompts,
            resuming,
            profile,
            kept,
        };
        Ok((sessions, first))
    }

    /// Sessions of a program that drives them. `args`, `flags` and `prompts` contain the values of
    /// the session that is resumed first, if there is one.
    pub(super) fn of_program(
        args: &RunArgs,
        environment: &'a Environment,
        found: WorkspaceContext,
        (flags, prompts): (Vec<SettingOverride>, PromptOverrides),
        resuming: Option<Resuming>,
    ) -> PlainSessions<'a> {
        let asking = if args.flags.yes { AnswerSource::Yes } else { AnswerSource::Human };
        PlainSessions {
            args: args.clone(),
            environment,
            asking,
            used: AgentUse::Task,
            interactive: false,
            shows_past: false,
            found: Arc::new(found),
            flags,
            prompts,
            resuming,
            profile: String::new(),
            kept: None,
        }
    }

    /// Marks that the front end shows the earlier conversation of a resumed session itself.
    pub(super) fn shows_past(&mut self) {
        self.shows_past = true;
    }

    /// The stored session that is opened next, if there is one.
    pub(super) fn resuming(&self) -> Option<&Resuming> {
        self.resuming.as_ref()
    }

    /// Folder of the current session. `None` before the first one.
    pub(super) fn dir(&self) -> Option<&Path> {
        self.kept.as_ref().map(JournalSettings::dir)
    }

    /// Source of reports and lists under the current settings.
    fn report_source(&self) -> ReportSource {
        ReportSource {
            found: Arc::clone(&self.found),
            environment: self.environment.clone(),
            asking: self.asking,
            dry_run: self.args.flags.dry_run,
        }
    }

    /// Folder for drafts of prompts. `None` if typed lines are not stored.
    pub(super) fn drafts(&self) -> Option<PathBuf> {
        let state = StateDir::new(self.found.dirs.state.clone());
        self.history().map(|_| state.project_dir(&self.found.cwd).join("drafts"))
    }

    /// File for the history of typed lines. `None` if typed lines are not stored.
    pub(super) fn history(&self) -> Option<PathBuf> {
        let kept = self.found.loaded.settings.ui.history && !self.args.flags.no_transcript;
        kept.then(|| self.found.dirs.state.join("history"))
    }

    /// Name and description of each main agent that is not hidden. Empty if the agents cannot be
    /// read.
    pub(super) fn agent_descriptions(&self) -> Vec<(String, String)> {
        let WorkspaceContext { cwd, dirs, loaded } = &*self.found;
        let Ok(toolbox) = offline_commands::toolbox(cwd, dirs.clone()) else {
            return Vec::new();
        };
        let tools = offline_commands::names(&toolbox);
        let roster = subagents::roster(cwd, dirs, &loaded.settings, &tools);
        let row = |agent: &crate::agents::Agent| (agent.name.clone(), agent.description.clone());
        roster.primaries().map(row).collect()
    }

    /// File of the user's configuration that `posse config edit` would change.
    pub(super) fn configuration_file(&self) -> PathBuf {
        let named = self.args.place.config.clone();
        named.unwrap_or_else(|| crate::config::user_file(&self.found.dirs))
    }

    /// Folder of the current session; `None` before the first one.
    pub(super) fn session_dir(&self) -> Option<&Path> {
        self.kept.as_ref().map(JournalSettings::dir)
    }

    /// Provider profile of the current session; empty before the first one.
    pub(super) fn profile(&self) -> &str {
        &self.profile
    }

    /// File for the numbers of uses of slash commands. `None` if typed lines are not stored.
    pub(super) fn command_uses(&self) -> Option<PathBuf> {
        self.history().map(|_| self.found.dirs.state.join("command-uses.json"))
    }

    /// Settings from flags, then those of `choice`, which take precedence: key, value and source.
    fn overrides(&self, choice: &SessionSelection) -> Vec<SettingOverride> {
        let mut overrides = self.flags.clone();
        let chosen = [
            ("defaultAgent", &choice.agent, "/agent"),
            ("defaultProvider", &choice.provider, "/provider"),
            ("model", &choice.model, "/model"),
            ("thinking", &choice.thinking, "/thinking"),
        ];
        for (key, name, command) in chosen {
            overrides.extend(name.as_ref().map(|name| (key, json!(name), command)));
        }
        overrides
    }
}

/// Stored sessions of the working directory, or of its project if the directory has none.
fn stored(found: &WorkspaceContext) -> Result<Vec<SessionSummary>, Failure> {
    of_project(&StateDir::new(found.dirs.state.clone()), &found.cwd)
}

/// Texts that name the source of the provider, the model and the agent.
fn sources(loaded: &Loaded, profile: &str) -> SelectionSources {
    let layers = &loaded.layers;
    let origin = |key: &str| layers.get(key).map(|leaf| &leaf.origin);
    let set = |key: &str| {
        origin(key).filter(|origin| **origin != SettingOrigin::BuiltIn).map(ToString::to_string)
    };
    let in_profile = || set(&format!("providers.{profile}.model"));
    let model = set("model").filter(|_| loaded.settings.model.is_some());
    let key = presets::preset(profile).and_then(|preset| preset.key_variable);
    SelectionSources {
        provider: set("defaultProvider").unwrap_or_else(|| match key {
            Some(key) => format!("{key} is set"),
            None => "built in".to_owned(),
        }),
        model: model.or_else(in_profile).unwrap_or_else(|| "its default".to_owned()),
        agent: set("defaultAgent").unwrap_or_else(|| "built in".to_owned()),
        thinking: set("thinking").unwrap_or_else(|| "the agent or the model decides".to_owned()),
    }
}
