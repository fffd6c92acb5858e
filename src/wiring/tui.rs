//! The terminal UI: sessions like those of line mode, and what it wants to know of the world.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use posse_actors::conversation::Prompt;
use posse_actors::ports::Asking;
use posse_actors::root_session::UserCall;

use crate::cli::RunArgs;
use crate::config::{self, Environment};
use crate::doctor::{self, Examined, Streams};
use crate::failure::{Exit, Failure, printable};
use crate::front::picker::Row;
use crate::front::prompt::Images;
use crate::journal::StateDir;
use crate::journal::export::{self, ExportFormat};
use crate::lists;
use crate::models::Catalog;
use crate::provider::presets;
use crate::talk::{self, Choice, Opened, Selected};
use crate::tui::{self, Editor, Found, ImageReader, Options, Report, Theme};
use crate::wiring::plain::{self, Sessions};
use crate::wiring::resuming::row;
use crate::wiring::run::{Setup, runtime};
use crate::wiring::{Place, authority, confinement, editing, errands, provider, toolbox, undoing};

/// Opens the terminal UI, or line mode where there is nothing to draw on.
pub(crate) fn run(args: &RunArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let variable = |name: &str| environment.get(name).map(str::to_owned);
    if let Err(why) = tui::usable(variable) {
        let text = format!("posse plain: {why}\n");
        io::stderr().write_all(text.as_bytes()).ok();
        return plain::run(args, environment);
    }
    let (sessions, first) = Sessions::prepare(args, environment, true)?;
    let options = Options {
        cwd: shown(&sessions.found.cwd, environment.get("HOME")),
        folder: sessions.found.cwd.clone(),
        theme: theme(&sessions, environment),
        kept: !args.no_transcript,
        yes: args.yes,
        dry_run: args.dry_run,
        manner: match (args.dry_run, args.yes) {
            (true, _) => Some("dry run"),
            (false, true) => Some("--yes"),
            (false, false) => None,
        },
        alternate: alternate(&sessions),
        history: sessions.history(),
        drafts: sessions.drafts(),
        first,
        folds: tui::folds(variable),
        keys: keys(&sessions),
    };
    let mut world = World { sessions };
    let runtime = runtime().map_err(|error| vec![error])?;
    let exit = runtime.block_on(tui::run(&mut world, options));
    // A thread that waits for a key must not keep the process.
    runtime.shutdown_background();
    exit
}

/// A path as people write it.
fn shown(path: &Path, home: Option<&str>) -> String {
    let in_home = home.and_then(|home| path.strip_prefix(home).ok());
    let text = match in_home {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    };
    printable(&text)
}

fn theme(sessions: &Sessions<'_>, environment: &Environment) -> Theme {
    if environment.get("NO_COLOR").is_some() {
        return Theme::Plain;
    }
    let leaf = sessions.found.loaded.layers.get("ui.theme");
    let named = leaf.and_then(|leaf| Theme::named(leaf.value.as_str().unwrap_or_default()));
    named.unwrap_or_default()
}

/// Whether it has a screen of its own (`ui.alternateScreen`).
fn alternate(sessions: &Sessions<'_>) -> bool {
    let leaf = sessions.found.loaded.layers.get("ui.alternateScreen");
    leaf.is_some_and(|leaf| leaf.value == true)
}

/// Other keys for what stands in the table of keys.
fn keys(sessions: &Sessions<'_>) -> Vec<(String, String)> {
    let leaves = sessions.found.loaded.layers.iter();
    let own = leaves.filter_map(|(key, leaf)| {
        let name = key.strip_prefix("ui.keybindings.")?;
        Some((name.to_owned(), leaf.value.as_str()?.to_owned()))
    });
    own.collect()
}

struct World<'a> {
    sessions: Sessions<'a>,
}

impl talk::Sessions for World<'_> {
    fn open(&mut self, choice: &Choice, goes_on: bool) -> Result<Opened, Vec<Failure>> {
        self.sessions.open(choice, goes_on)
    }

    fn remember(&mut self, what: Selected, name: &str) -> Result<(), Failure> {
        self.sessions.remember(what, name)
    }

    fn skill(&self, name: &str, task: &str) -> Result<Prompt, Vec<Failure>> {
        self.sessions.skill(name, task)
    }

    fn skills(&self) -> String {
        self.sessions.skills()
    }

    fn names(&self, what: Selected) -> Vec<String> {
        self.sessions.names(what)
    }
}

impl tui::World for World<'_> {
    fn found(&self) -> Found {
        let Sessions { environment, found, .. } = &self.sessions;
        let mut facts = Vec::new();
        for name in found.loaded.settings.providers.keys() {
            facts.push((true, format!("provider {} is configured", printable(name))));
        }
        let keys = presets::all().iter().filter_map(|preset| preset.key_variable);
        let set: Vec<&str> = keys.filter(|key| environment.get(key).is_some()).collect();
        if set.is_empty() {
            facts.push((false, "no key of a provider is in the environment".to_owned()));
        }
        facts.extend(set.into_iter().map(|key| (true, format!("{key} is set"))));
        facts.extend(
            local_servers().into_iter().map(|name| {
                (true, format!("something listens where {name} does: /provider {name}"))
            }),
        );
        facts.push(self.confinement());
        Found { facts }
    }

    fn window(&self, provider: &str, model: &str) -> Option<u64> {
        let settings = &self.sessions.found.loaded.settings;
        Catalog::new(&settings.models).find(provider, model)?.facts.context_window
    }

    fn stored(&self) -> Result<Vec<(String, String)>, Vec<Failure>> {
        let line = |session| {
            let Row { id, age, state, spent, prompt } = row(session);
            (id, printable(&[age, state, spent, prompt].join("  ")))
        };
        let stored = self.sessions.stored().map_err(|failure| vec![failure])?;
        Ok(stored.iter().map(line).collect())
    }

    fn take_up(&mut self, id: &str, fork: bool) -> Result<(Opened, bool), Vec<Failure>> {
        self.sessions.take_up(id, fork)
    }

    fn undo(&self, session: &str) -> Result<UserCall, Failure> {
        let Place { cwd, dirs, .. } = &self.sessions.found;
        undoing::undo(&StateDir::new(dirs.state.clone()), session, cwd)
    }

    fn editor(&self) -> Editor {
        let Sessions { environment, found, .. } = &self.sessions;
        let named = ["VISUAL", "EDITOR"].iter().filter_map(|name| environment.get(name));
        let editor = named.map(str::trim).find(|line| !line.is_empty()).unwrap_or("vi").to_owned();
        let dir = found.dirs.state.clone();
        Box::new(move |text| editing::edited(&editor, &dir, &text))
    }

    fn images(&self) -> Result<ImageReader, Failure> {
        let Sessions { environment, found, .. } = &self.sessions;
        let settings = &found.loaded.settings;
        if let Ok(model) = provider::choose(settings, environment, &found.cwd)
            && let Some(failure) = provider::blindness(settings, &model.info())
        {
            return Err(failure);
        }
        let limits = toolbox::image_limits(settings);
        let (cwd, detail) = (found.cwd.clone(), settings.image_detail.clone());
        Ok(Box::new(move |name| {
            Images { named: &[], cwd: &cwd, limits, detail: &detail }.read(name)
        }))
    }

    fn folder(&self) -> (String, PathBuf) {
        let Sessions { environment, found, .. } = &self.sessions;
        (shown(&found.cwd, environment.get("HOME")), found.cwd.clone())
    }

    fn report(&mut self, what: &Report, session: &str) -> Result<String, Vec<Failure>> {
        let Sessions { environment, found, .. } = &self.sessions;
        let one = |failure: Failure| vec![failure];
        let mut out: Vec<u8> = Vec::new();
        match what {
            Report::Config => {
                let layers = &found.loaded.layers;
                return Ok(config::show(layers, found.loaded.project.as_ref(), true, false));
            }
            Report::Doctor | Report::Sandbox => {
                let examined = Examined {
                    environment,
                    cwd: &found.cwd,
                    dirs: Ok(&found.dirs),
                    loaded: Ok(&found.loaded),
                    streams: Streams::of_process(true),
                };
                // It tries commands, and has a runtime of its own for that.
                let look = || doctor::run(&examined, false, false, false, &mut out).map(drop);
                let looked = std::thread::scope(|scope| scope.spawn(look).join());
                looked.unwrap_or(Ok(())).map_err(one)?;
                let text = String::from_utf8_lossy(&out).into_owned();
                return Ok(match what {
                    Report::Sandbox => section(&text, "sandbox"),
                    _ => text,
                });
            }
            Report::Tools => {
                let toolbox = errands::toolbox(&found.cwd, found.dirs.clone()).map_err(one)?;
                let roster = errands::roster(found, &toolbox);
                lists::tools(&toolbox, roster.all(), false, &mut out).map_err(one)?;
            }
            Report::Skills => return Ok(talk::Sessions::skills(self)),
            Report::Permissions => {
                authority::grants_in(&found.cwd, &found.dirs, &found.loaded.settings, &mut out)
                    .map_err(one)?;
            }
            Report::Export(file) => {
                let state = StateDir::new(found.dirs.state.clone());
                let name = file.clone().unwrap_or_else(|| format!("{session}.md"));
                let path = found.cwd.join(&name);
                let html = path.extension().is_some_and(|end| end == "html" || end == "htm");
                let format = if html { ExportFormat::Html } else { ExportFormat::Markdown };
                let zone = TimeZone::system();
                export::export(&state, session, format, Some(&path), &zone, &mut out)
                    .map_err(one)?;
                return Ok(format!("written to {}", printable(&path.display().to_string())));
            }
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}

impl World<'_> {
    /// What would confine commands here.
    fn confinement(&self) -> (bool, String) {
        let Sessions { environment, found, .. } = &self.sessions;
        let setup = Setup {
            cwd: &found.cwd,
            add_dirs: &[],
            dirs: &found.dirs,
            settings: &found.loaded.settings,
            environment,
            asking: Asking::Human,
            dry_run: false,
            tape: None,
            keep: false,
        };
        let sandbox = confinement::sandbox(&setup, vec![found.cwd.clone()], Vec::new());
        match sandbox.map(|sandbox| sandbox.tier()) {
            Ok("full") => (true, "commands run in a full sandbox".to_owned()),
            Ok("reduced") => {
                (true, "commands run in a reduced sandbox (/doctor says why)".to_owned())
            }
            Ok(_) => {
                (false, "there is no sandbox here: commands run with all of your rights".to_owned())
            }
            Err(failure) => (false, printable(&failure.what)),
        }
    }
}

/// Presets whose usual port somebody listens on, as the kernel lists it: nobody is asked.
fn local_servers() -> Vec<&'static str> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let table: String =
        tables.iter().filter_map(|table| std::fs::read_to_string(table).ok()).collect();
    let listens = |port: u16| {
        table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (own, state) = (fields.next().unwrap_or_default(), fields.nth(1));
            state == Some("0A") && own.ends_with(&format!(":{port:04X}"))
        })
    };
    let port = |preset: &presets::Preset| {
        let rest = preset.base_url?.strip_prefix("http://localhost:")?;
        rest.split('/').next()?.parse().ok()
    };
    let local = presets::all().iter().filter(|preset| port(preset).is_some_and(listens));
    local.map(|preset| preset.name).collect()
}

/// The lines below a heading of a report.
fn section(text: &str, heading: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(heading));
    let within = |(at, line): &(usize, &str)| *at == 0 || line.starts_with(' ');
    let lines = lines.enumerate().take_while(within).map(|(_, line)| line);
    lines.collect::<Vec<_>>().join("\n")
}
