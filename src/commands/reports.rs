//! Text reports for front ends: settings, tools, agents, permissions, sandbox, exported
//! conversation. A [`ReportSource`] owns its data, so it works on any thread; it prints nothing.

use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use posse_actors::event::SandboxTier;
use posse_actors::ports::{AnswerSource, NetworkAccess};
use posse_actors::text::clipped;
use serde_json::{Value, json};

use crate::agents::Agent;
use crate::commands::{grants, offline_commands};
use crate::config::{self, Environment, SandboxSettings};
use crate::doctor::{self, Examined, Streams};
use crate::failure::{ErrorCode, Exit, Failure, lines, printable};
use crate::frontend::git_branch::git_branch;
use crate::frontend::table::table;
use crate::frontend::{ExportTarget, Listing, Report};
use crate::help;
use crate::journal::StateDir;
use crate::journal::export::{self, ExportFormat};
use crate::journal::state::Within;
use crate::lists;
use crate::models::{self, Catalog};
use crate::network;
use crate::unused_settings;
use crate::wiring::{WorkspaceContext, confinement, roles, skills};

/// Maximum characters of the line that describes a rule, without the mark of a cut.
const RULE_CHARS_MAX: usize = 120;

/// Columns of a page of the help; a front end wraps it if its terminal is narrower.
const HELP_COLUMNS: usize = 80;

/// Configuration, environment and flags from which reports are made.
pub(super) struct ReportSource {
    pub(super) found: Arc<WorkspaceContext>,
    pub(super) environment: Environment,
    /// Source of answers to permission requests.
    pub(super) asking: AnswerSource,
    /// True if tools only describe their effects.
    pub(super) dry_run: bool,
}

impl ReportSource {
    /// Makes a report. `session` is the id of the current session. An export writes a file and
    /// returns its path as text.
    pub(super) fn report(&self, what: &Report, session: &str) -> Result<String, Vec<Failure>> {
        let WorkspaceContext { cwd, dirs, loaded } = &*self.found;
        let mut out: Vec<u8> = Vec::new();
        match what {
            Report::Config => {
                return Ok(config::show(&loaded.layers, loaded.project.as_ref(), true, false));
            }
            Report::Help(topic) => return Ok(help::about(topic, HELP_COLUMNS)?),
            Report::Doctor => return Ok(self.examined()?),
            Report::Sandbox => {
                let settings = &loaded.settings.sandbox;
                let trial = self.examined().map(|text| section(&text, "sandbox"))?;
                let tier = confinement::tier(dirs, &loaded.settings, &self.environment)?;
                let session = session_sandbox(settings, &tier, self.asking);
                return Ok(format!("{session}\n\n{trial}"));
            }
            Report::Tools => {
                let all = offline_commands::listed_tools(&self.found, &self.environment)?;
                lists::tools(&all, false, &mut out)?;
            }
            Report::Skills => {
                let skills = skills::load(cwd, dirs, &loaded.settings, &self.environment);
                let disabled = unused_settings::disabled_skills(&loaded.settings, &skills);
                out = (skills::remarks(&skills) + &lines(&disabled)).into_bytes();
                lists::skills(&skills, false, &mut out)?;
            }
            Report::Agents => return Ok(self.agents()?),
            Report::Permissions => return Ok(self.permissions()?),
            Report::Export(target) => {
                let path = self.export(target, session)?;
                let untracked = git_branch(cwd).is_some() && path.starts_with(cwd);
                let note =
                    if untracked { " (a file in the repository, not tracked yet)" } else { "" };
                return Ok(format!("written to {}{note}", printable(&path.display().to_string())));
            }
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    fn examined(&self) -> Result<String, Failure> {
        let WorkspaceContext { cwd, dirs, loaded } = &*self.found;
        let examined = Examined {
            environment: &self.environment,
            cwd,
            dirs: Ok(dirs),
            loaded: Ok(loaded),
            streams: Streams::of_process(true),
        };
        let mut out: Vec<u8> = Vec::new();
        // The doctor runs commands and has a runtime of its own.
        let look = || doctor::run(&examined, false, false, false, &mut out).map(drop);
        std::thread::scope(|scope| scope.spawn(look).join()).unwrap_or(Ok(()))?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    fn agents(&self) -> Result<String, Failure> {
        let WorkspaceContext { cwd, dirs, loaded } = &*self.found;
        let settings = &loaded.settings;
        let toolbox = offline_commands::toolbox(cwd, dirs.clone())?;
        let roster = offline_commands::roster(&self.found, &toolbox);
        let mut rows = vec![["AGENT", "SOURCE", "MODE", "PROVIDER", "COST"].map(str::to_owned)];
        rows.extend(roster.agents.iter().map(|agent| {
            let star = if agent.name == settings.default_agent { " (default)" } else { "" };
            let cell = |text: &str| printable(text);
            [
                cell(&format!("{}{star}", agent.name)),
                cell(<&str>::from(&agent.source)),
                <&str>::from(agent.mode).to_owned(),
                cell(&roles::serving(agent, settings).provider()),
                agent.catalog.cost.map_or("-", <&str>::from).to_owned(),
            ]
        }));
        Ok(table(&rows))
    }

    /// Report about permission settings with their sources, rules, and stored grants.
    fn permissions(&self) -> Result<String, Failure> {
        let WorkspaceContext { cwd, dirs, loaded } = &*self.found;
        let (settings, layers) = (&loaded.settings, &loaded.layers);
        let from = |key: &str| {
            let origin = layers.get(key).map(|leaf| leaf.origin.to_string());
            printable(&origin.unwrap_or_else(|| "built in".to_owned()))
        };
        let asks = match (self.dry_run, self.asking) {
            (true, _) => "dry run: nothing is written or run",
            (false, AnswerSource::Yes) => {
                "--yes: permission requests are allowed, except for protected paths"
            }
            (false, AnswerSource::Human) => "you are asked if no rule decides",
            (false, AnswerSource::Nobody) => "no user can be asked: permission requests are denied",
        };
        let mut text = format!("questions  {asks}\n");
        for (name, key, value) in [
            ("sandbox", "sandbox.mode", &settings.sandbox.mode),
            ("network", "sandbox.network", &settings.sandbox.network),
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<10} {} ({})", printable(value), from(key));
        }
        text.push_str(
            "built in   reading in the folder is allowed; the permission mode decides about the rest\n\n",
        );
        text.push_str("rules (deny rules take precedence)\n");
        let rules = &settings.permissions;
        let own = rules.len().saturating_sub(settings.project_rules);
        let user = settings.permissions_from.as_deref().unwrap_or("configuration");
        for (nth, rule) in rules.iter().enumerate() {
            let by = if nth < own { user } else { "the trusted project" };
            let _ = writeln!(text, "  {} ({})", described(rule), printable(by));
        }
        if rules.is_empty() {
            text.push_str("  none; `permissions` of your configuration has them\n");
        }
        text.push_str("\npersistent grants\n");
        let mut out: Vec<u8> = Vec::new();
        grants::list(cwd, dirs, settings, &mut out)?;
        let kept = String::from_utf8_lossy(&out).into_owned();
        for line in kept.lines() {
            let _ = writeln!(text, "  {line}");
        }
        text.push_str(
            "  `posse grants revoke ID` revokes one, `posse grants clear` all of them\n\n",
        );
        Ok(text)
    }

    /// Writes the session with this id as a document. Returns the path of the file.
    pub(super) fn export(&self, target: &ExportTarget, session: &str) -> Result<PathBuf, Failure> {
        let WorkspaceContext { cwd, dirs, .. } = &*self.found;
        let state = StateDir::new(dirs.state.clone());
        let (path, name) = match target {
            ExportTarget::File(name) => (cwd.join(name), name.clone()),
            ExportTarget::Markdown => {
                let name = format!("{session}.md");
                (cwd.join(&name), name)
            }
            ExportTarget::Html => {
                let name = format!("{session}.html");
                (export_file(&dirs.state, &name)?, name)
            }
        };
        let html = Path::new(&name).extension().is_some_and(|end| end == "html" || end == "htm");
        let format = if html { ExportFormat::Html } else { ExportFormat::Markdown };
        export::export(&state, session, format, Some(&path), &TimeZone::system(), &mut Vec::new())?;
        Ok(path)
    }

    /// A list for programs: the output of the command with `--json`.
    pub(super) fn listing(&self, what: Listing) -> Result<Value, Failure> {
        let WorkspaceContext { cwd, dirs, loaded } = &*self.found;
        let settings = &loaded.settings;
        let mut out: Vec<u8> = Vec::new();
        match what {
            Listing::Tools => {
                let all = offline_commands::listed_tools(&self.found, &self.environment)?;
                lists::tools(&all, true, &mut out)?;
            }
            Listing::Agents => {
                let toolbox = offline_commands::toolbox(cwd, dirs.clone())?;
                let agents = offline_commands::roster(&self.found, &toolbox).agents;
                let serving = |agent: &Agent| roles::serving(agent, settings);
                lists::agents(&agents, &toolbox, &settings.default_agent, serving, true, &mut out)?;
            }
            Listing::Models => {
                let catalog = Catalog::new(&settings.models);
                let list = models::list(&catalog.all(), true);
                let list: Value = serde_json::from_str(&list).unwrap_or_default();
                return Ok(list["models"].clone());
            }
            Listing::Skills => {
                let skills = skills::load(cwd, dirs, settings, &self.environment);
                lists::skills(&skills, true, &mut out)?;
            }
            Listing::Sessions => {
                let state = StateDir::new(dirs.state.clone());
                return Ok(json!(state.summaries(Within::Project(cwd))?));
            }
        }
        Ok(serde_json::from_slice(&out).unwrap_or_default())
    }
}

/// Path of a page that is shared without naming a file: in the state folder, because it does not
/// belong into the repository. An earlier page of the session is removed.
fn export_file(state: &Path, name: &str) -> Result<PathBuf, Failure> {
    let folder = state.join("exports");
    let path = folder.join(name);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    let ready = made.and_then(|()| match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    });
    ready.map_err(|error| {
        Failure::new(ErrorCode::DocumentUnwritable, Exit::Failed, "cannot write the document")
            .at(path.display().to_string())
            .because(error.to_string())
            .fix("name a file: /share FILE.html")
    })?;
    Ok(path)
}

/// Describes a permission rule in one line: decision, tool, pattern and reason.
fn described(rule: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let decision = text(&rule["decision"]).unwrap_or_else(|| "?".to_owned());
    let tool = text(&rule["tool"]).unwrap_or_else(|| "?".to_owned());
    let matching = &rule["match"];
    let about = [("commandPrefix", "begins with"), ("pathGlob", "of")]
        .into_iter()
        .filter_map(|(key, word)| Some(format!(" {word} `{}`", text(&matching[key])?)));
    let reason = text(&rule["reason"]).map(|reason| format!(": {reason}")).unwrap_or_default();
    let line = format!("{decision:<5} {tool}{}{reason}", about.collect::<String>());
    printable(&clipped(&line, RULE_CHARS_MAX, " …"))
}

/// Describes the sandbox mode and the network access of the commands of a session. The doctor's
/// trial, which has settings of its own, shows only which restrictions this machine can enforce.
fn session_sandbox(settings: &SandboxSettings, tier: &SandboxTier, asking: AnswerSource) -> String {
    let (mode, network) = (printable(&settings.mode), printable(&settings.network));
    if settings.mode == "off" {
        return "this session  sandbox.mode off: commands run with all of your rights".to_owned();
    }
    let reach = match network::access(settings, tier, asking) {
        NetworkAccess::Host => "can reach the network",
        NetworkAccess::Domains => "reach domains that you allow, through a proxy",
        NetworkAccess::Denied => "cannot reach the network",
    };
    format!("this session  sandbox.mode {mode}; sandbox.network {network}: commands {reach}")
}

/// The line of `text` that begins with `heading`, and the indented lines that follow it.
fn section(text: &str, heading: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(heading));
    let within = |(at, line): &(usize, &str)| *at == 0 || line.starts_with(' ');
    let lines = lines.enumerate().take_while(within).map(|(_, line)| line);
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_text_is_readable_and_escapes_control_characters() {
        let table = [
            (
                json!({"tool": "bash", "match": {"commandPrefix": "cargo test"}, "decision": "allow"}),
                "allow bash begins with `cargo test`",
            ),
            (
                json!({"tool": "Edit(src/**)", "decision": "ask", "reason": "look\u{1b}[2J first"}),
                "ask   Edit(src/**): look\\u{1b}[2J first",
            ),
            (
                json!({"tool": "*", "match": {"pathGlob": "*.pem"}, "decision": "deny"}),
                "deny  * of `*.pem`",
            ),
        ];
        for (rule, line) in table {
            assert_eq!(described(&rule), line);
        }
        let long = json!({"tool": "x".repeat(500), "decision": "deny"});
        assert!(described(&long).chars().count() <= RULE_CHARS_MAX + 2);
    }

    #[test]
    fn sandbox_report_says_if_the_session_has_the_network() {
        for (network, asking, reach) in [
            ("auto", AnswerSource::Human, "reach domains that you allow, through a proxy"),
            ("auto", AnswerSource::Yes, "cannot reach"),
            ("inherit", AnswerSource::Nobody, "can reach"),
            ("ask", AnswerSource::Nobody, "reach domains that you allow, through a proxy"),
            ("deny", AnswerSource::Human, "cannot reach"),
        ] {
            let settings = SandboxSettings {
                mode: "workspace-write".to_owned(),
                network: network.to_owned(),
                readable_secrets: Vec::new(),
                required: false,
                writable_roots: Vec::new(),
            };
            let text = session_sandbox(&settings, &SandboxTier::Full, asking);
            assert!(text.contains(&format!("network {network}: commands {reach}")), "{text}");
            let off = SandboxSettings { mode: "off".to_owned(), ..settings };
            assert!(
                session_sandbox(&off, &SandboxTier::Full, asking).ends_with("all of your rights")
            );
        }
    }

    #[test]
    fn section_ends_at_the_next_heading() {
        let text = "one\n  a\nsandbox  full\n  b\n  c\nthree\n  d";
        assert_eq!(section(text, "sandbox"), "sandbox  full\n  b\n  c");
    }
}
