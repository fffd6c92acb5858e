//! `posse trust`: shows settings, agents and skills of a project, and stores the user's consent to
//! exactly this content.

mod contents;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agents::{CLAUDE_FOLDER, project_skills};
use crate::cli::{self, TrustAction, TrustArgs};
use crate::commands::{can_confirm, confirmed, print};
use crate::config::{self, Dirs, Environment, Fate, ProjectFile, ProjectSetting, Sources};
use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::hex::sha256;
use crate::project::{self, Identity};
use crate::signed_store::{SignedStore, TamperError};
use crate::trust::{TrustStore, Trusted, difference};
use crate::wiring::clock::now_ms;
use crate::wiring::{authority, subagents};

use contents::TrustContents;

type TrustResult = Result<Exit, Vec<Failure>>;
/// Selects the settings that are listed below a heading.
type SettingFilter = fn(&ProjectSetting) -> bool;

pub(super) fn run(args: &TrustArgs, environment: &Environment) -> TrustResult {
    let cwd = cli::working_directory(args.cwd.as_deref())?;
    let dirs = Dirs::from_environment(environment)?;
    let trust = TrustStore::new(SignedStore::new(&dirs.state));
    let root = project::root_of(&cwd);
    match &args.action {
        Some(TrustAction::List) => list(&trust, args.json),
        Some(TrustAction::Clear) => clear(&trust, args.json),
        Some(TrustAction::Revoke { path }) => {
            revoke(&trust, path.clone().unwrap_or(root), args.json)
        }
        None | Some(TrustAction::Show) => {
            let case = ProjectTrust::new(root, &trust, environment, &dirs)?;
            Ok(print(&if args.json { format!("{:#}\n", case.json()) } else { case.text() }))
        }
        Some(TrustAction::Add { accept, send_variable }) => {
            let case = ProjectTrust::new(root, &trust, environment, &dirs)?;
            let accept =
                accept.as_deref().map(|digest| Accepted { digest, variables: send_variable });
            add(&case, &trust, accept, args.json)
        }
    }
}

/// Consent given by flags.
struct Accepted<'a> {
    /// SHA-256 of the content that the user accepts, as [`ProjectTrust::digest`] computes it, in
    /// upper or lower case.
    digest: &'a str,
    /// Environment variables whose values the project's providers may receive.
    variables: &'a [String],
}

/// The files of a project that need trust, and `before`, the content that the user trusts already.
struct ProjectTrust {
    root: PathBuf,
    identity: Identity,
    file: Option<ProjectFile>,
    /// The project's agents: SHA-256 of each file, by name.
    agents: BTreeMap<String, String>,
    /// The project's skills: SHA-256 of each folder, by its path below the root.
    skills: BTreeMap<String, String>,
    /// Skills that cannot be trusted: path and reason.
    untrustable: Vec<(String, String)>,
    before: Option<Trusted>,
    notices: Vec<config::Notice>,
    /// Content of the project's agents and skills.
    contents: TrustContents,
}

impl ProjectTrust {
    fn new(
        root: PathBuf,
        trust: &TrustStore,
        environment: &Environment,
        dirs: &Dirs,
    ) -> Result<ProjectTrust, Vec<Failure>> {
        let identity = Identity::of(&root).map_err(|error| {
            let what = "cannot determine the project's folder";
            Failure::new(ErrorCode::ProjectUnidentified, Exit::Usage, what)
                .at(root.display().to_string())
                .because(error.to_string())
        })?;
        let before = trust.find(&identity).map_err(TamperError::failure)?;
        let presets = authority::presets();
        // Evaluated as untrusted: pending items would become active.
        let sources = Sources { project: Some(&root), presets: &presets, ..Sources::default() };
        let loaded = config::load(environment, dirs, &sources)?;
        let shown = |notice: &config::Notice| {
            !matches!(notice.code, ErrorCode::ConfigProjectForbidden | ErrorCode::ProjectNotTrusted)
        };
        let file = loaded.project;
        let contents = TrustContents::of(&root, dirs, &loaded.settings, file.as_ref())?;
        let notices = loaded.notices.into_iter().filter(shown).collect();
        let agents = subagents::digests(&root);
        let (mut skills, mut untrustable) = (BTreeMap::new(), Vec::new());
        for (path, digest) in project_skills(&root) {
            match digest {
                Ok(digest) => drop(skills.insert(path, digest)),
                Err(why) => untrustable.push((path, why)),
            }
        }
        Ok(ProjectTrust {
            root,
            identity,
            file,
            agents,
            skills,
            untrustable,
            before,
            notices,
            contents,
        })
    }

    fn waiting(&self) -> impl Iterator<Item = &ProjectSetting> {
        let wanted = self.file.iter().flat_map(|file| &file.wanted);
        wanted.filter(|wanted| wanted.fate == Fate::Waits)
    }

    /// Settings that apply only once the project is trusted, by key.
    fn settings(&self) -> BTreeMap<String, Value> {
        self.waiting().map(|wanted| (wanted.key.clone(), wanted.value.clone())).collect()
    }

    /// Environment variables whose values the project's providers would receive. Each comes with
    /// the addresses to which its value would be sent.
    fn variables(&self) -> BTreeMap<&str, Vec<String>> {
        let mut variables: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for wanted in self.waiting() {
            let Some(variable) = config::key_variable(&wanted.key, &wanted.value) else { continue };
            let address = wanted.key.replace(".apiKeyEnv", ".baseURL");
            let address = self.waiting().find(|wanted| wanted.key == address);
            let address = address.map_or("an address that is not set", |wanted| {
                wanted.value.as_str().unwrap_or_default()
            });
            variables.entry(variable).or_default().push(printable(address));
        }
        variables
    }

    /// SHA-256 of the configuration file; empty without one.
    fn config_digest(&self) -> &str {
        self.file.as_ref().map_or("", |file| file.digest.as_str())
    }

    /// SHA-256 of the content to trust: configuration file, agents and skills. Without agents and
    /// skills, it is the SHA-256 of the file. `None` if there is nothing to trust.
    fn digest(&self) -> Option<String> {
        if self.agents.is_empty() && self.skills.is_empty() {
            return self.file.as_ref().map(|file| file.digest.clone());
        }
        let mut all = format!("config {}\n", self.config_digest());
        for (name, digest) in &self.agents {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(all, "agent {digest} {name}");
        }
        for (path, digest) in &self.skills {
            let _: std::fmt::Result = writeln!(all, "skill {digest} {path}");
        }
        Some(sha256(all.as_bytes()))
    }

    /// True if trust would change anything.
    fn wants_trust(&self) -> bool {
        self.waiting().next().is_some() || !self.agents.is_empty() || !self.skills.is_empty()
    }

    fn state(&self) -> &'static str {
        let something = self.file.is_some() || !self.agents.is_empty() || !self.skills.is_empty();
        match &self.before {
            _ if !something => "nothing to trust",
            Some(before)
                if before.digest == self.config_digest()
                    && before.agents == self.agents
                    && before.skills == self.skills =>
            {
                "trusted"
            }
            Some(_) => "changed",
            None if self.wants_trust() => "not trusted",
            None => "nothing to trust",
        }
    }

    /// State of an agent or skill: `trusted`, `changed` or `new`. `kept` selects the digests of
    /// the trusted agents or skills, with which `digest` is compared.
    fn part_state(
        &self,
        kept: fn(&Trusted) -> &BTreeMap<String, String>,
        name: &str,
        digest: &str,
    ) -> &'static str {
        match self.before.as_ref().map(|before| kept(before).get(name)) {
            Some(Some(known)) if known == digest => "trusted",
            Some(Some(_)) => "changed",
            _ => "new",
        }
    }

    /// Text about the skills of the project, also about those that cannot be trusted.
    fn skills_text(&self) -> String {
        let mut text = String::new();
        if !self.skills.is_empty() {
            text.push_str("skills of the project; once trusted, models may follow them:\n");
        }
        for (path, digest) in &self.skills {
            let state = self.part_state(|before| &before.skills, path, digest);
            let line = format!("{path}  {state}  sha256 {digest}");
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(text, "  {}", printable(&line));
            text.push_str(&self.contents.skill(path));
        }
        if !self.untrustable.is_empty() {
            text.push_str("skills that cannot be trusted:\n");
        }
        for (path, why) in &self.untrustable {
            let _: std::fmt::Result = writeln!(text, "  {}", printable(&format!("{path}: {why}")));
        }
        text
    }

    /// Text about the agents of the project. Empty if it has none.
    fn agents_text(&self) -> String {
        let mut text = String::new();
        if self.agents.is_empty() {
            return text;
        }
        text.push_str(
            "agents of the project, in .posse/agents/ or .claude/agents/; once trusted, they can be used:\n",
        );
        for (name, digest) in &self.agents {
            let state = self.part_state(|before| &before.agents, name, digest);
            let file =
                if name.starts_with(CLAUDE_FOLDER) { name.clone() } else { format!("{name}.md") };
            let line = format!("{file}  {state}  sha256 {digest}");
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(text, "  {}", printable(&line));
            text.push_str(&self.contents.agent(name));
        }
        text
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |label: &str, value: &str| {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(text, "{label:<9} {}", printable(value));
        };
        row("project", &self.identity.path);
        if let Some(file) = &self.file {
            row("file", &file.name);
        }
        if let Some(digest) = self.digest() {
            row("sha256", &digest);
        }
        row("state", self.state());
        if let Some(before) = self.before.as_ref().filter(|before| !before.variables.is_empty()) {
            row("sends", &before.variables.join(", "));
        }
        if self.state() == "changed"
            && let Some(before) = &self.before
        {
            text.push_str("changes since you trusted it:\n");
            text.push_str(&difference(&before.settings, &self.settings(), shown));
        }
        let groups: [(&str, SettingFilter); 3] = [
            ("takes effect once trusted:", |wanted| wanted.fate == Fate::Waits),
            ("takes effect without trust:", |wanted| matches!(wanted.fate, Fate::Counts(_))),
            ("never takes effect:", |wanted| matches!(wanted.fate, Fate::Refused(_))),
        ];
        for (title, belongs) in groups {
            let all = self.file.iter().flat_map(|file| &file.wanted);
            let mut rows = all.filter(|wanted| belongs(wanted)).peekable();
            if rows.peek().is_some() {
                let _: std::fmt::Result = writeln!(text, "{title}");
            }
            for wanted in rows {
                let line = format!("{} = {}", wanted.key, shown(&wanted.key, &wanted.value));
                let _: std::fmt::Result = writeln!(text, "  {}", printable(&line));
                if let Some(effect) = setting_effect(wanted) {
                    let _: std::fmt::Result = writeln!(text, "      {effect}");
                }
            }
        }
        text.push_str(&self.agents_text());
        text.push_str(&self.skills_text());
        for notice in &self.notices {
            let _: std::fmt::Result = writeln!(text, "{notice}");
        }
        text
    }

    fn json(&self) -> Value {
        let wanted = self.file.iter().flat_map(|file| &file.wanted);
        let settings: Vec<Value> = wanted
            .map(|wanted| {
                let (fate, why) = match wanted.fate {
                    Fate::Counts(_) => ("counts", None),
                    Fate::Waits | Fate::NotAllowed => ("waits", None),
                    Fate::Refused(why) => ("refused", Some(why)),
                };
                json!({
                    "key": wanted.key,
                    "value": config::shown_value(&wanted.key, &wanted.value),
                    "line": wanted.line,
                    "fate": fate,
                    "why": why,
                })
            })
            .collect();
        json!({
            "project": self.identity.path,
            "file": self.file.as_ref().map(|file| &file.name),
            "sha256": self.digest(),
            "agents": self.agents,
            "skills": self.skills,
            "contents": self.contents.json(self.agents.keys(), self.skills.keys()),
            "state": self.state(),
            "trustedSha256": self.before.as_ref().map(|before| &before.digest),
            "trustedVariables": self.before.as_ref().map(|before| &before.variables),
            "settings": settings,
        })
    }
}

/// Explanation of a setting: the reason if it is refused, or the effect of some settings of
/// providers. `None` for any other setting.
fn setting_effect(wanted: &ProjectSetting) -> Option<&'static str> {
    if let Fate::Refused(why) = wanted.fate {
        return Some(why);
    }
    let field = wanted.key.strip_prefix("providers.")?.split('.').nth(1)?;
    Some(match field {
        "baseURL" => "prompts, replies and tool results are sent there",
        "apiKeyEnv" => "the value of this variable is sent to that provider, if you allow it",
        "headers" => "is sent with each request to that provider",
        "auth" => "how the key is sent to that provider",
        _ => return None,
    })
}

fn shown(key: &str, value: &Value) -> String {
    config::shown_value(key, value).to_string()
}

fn add(
    case: &ProjectTrust,
    trust: &TrustStore,
    accepted: Option<Accepted<'_>>,
    as_json: bool,
) -> TrustResult {
    let Some(whole) = case.digest().filter(|_| case.wants_trust()) else {
        return Ok(print(&if as_json { format!("{:#}\n", case.json()) } else { case.text() }));
    };
    let variables = case.variables();
    let allowed: Vec<String> = match accepted {
        Some(accepted) if accepted.digest.eq_ignore_ascii_case(&whole) => {
            let unknown = |name: &&String| !variables.contains_key(name.as_str());
            if let Some(name) = accepted.variables.iter().find(unknown) {
                let what = format!("--send-variable {name}: no provider of the project uses it");
                let names: Vec<&str> = variables.keys().copied().collect();
                let fix = match names.join(", ") {
                    names if names.is_empty() => "leave it out".to_owned(),
                    names => format!("the project's providers use {names}"),
                };
                let code = ErrorCode::TrustVariableUnknown;
                return Err(Failure::new(code, Exit::Usage, what).fix(fix).into());
            }
            let accepts = |name: &&&str| accepted.variables.iter().any(|given| given == **name);
            variables.keys().filter(accepts).map(|name| (*name).to_owned()).collect()
        }
        Some(_) => {
            let what = "the file differs from the accepted one";
            let name = case.file.as_ref().map(|file| file.name.clone());
            return Err(Failure::new(ErrorCode::TrustStale, Exit::Usage, what)
                .at(name.unwrap_or_else(|| case.root.display().to_string()))
                .because(format!("its SHA-256 is {whole}"))
                .fix("review it again with `posse trust show`")
                .into());
        }
        None if !can_confirm() => {
            let what =
                "trusting a project needs a confirmation, and there is no terminal to ask on";
            return Err(Failure::new(ErrorCode::TrustUnconfirmed, Exit::Permission, what)
                .at(case.root.display().to_string())
                .fix("review `posse trust show`, then run `posse trust add --accept SHA256`")
                .into());
        }
        None if !confirmed(&format!("{}trust these settings", case.text())) => {
            return Ok(Exit::Failed);
        }
        // One question for each, because a key can be worth more than all other settings.
        None => {
            let allows = |(name, addresses): &(&&str, &Vec<String>)| {
                let addresses = addresses.join(" and ");
                confirmed(&format!("send the value of {} to {addresses}", printable(name)))
            };
            variables.iter().filter(allows).map(|(name, _)| (*name).to_owned()).collect()
        }
    };
    let trusted = Trusted {
        project: case.identity.clone(),
        digest: case.config_digest().to_owned(),
        trusted_ms: now_ms(),
        settings: case.settings(),
        variables: allowed.clone(),
        agents: case.agents.clone(),
        skills: case.skills.clone(),
    };
    trust.add(trusted)?;
    if as_json {
        let added = json!({ "trusted": case.identity.path, "sha256": whole, "variables": allowed });
        return Ok(print(&format!("{added:#}\n")));
    }
    let path = printable(&case.identity.path);
    let withheld = variables.keys().filter(|name| !allowed.iter().any(|given| given == **name));
    let withheld: Vec<String> = withheld
        .map(|name| format!("the value of {} is not sent to its providers\n", printable(name)))
        .collect();
    let trusted = format!("trusted {path} until its configuration changes\n");
    Ok(print(&(trusted + &withheld.concat())))
}

fn revoke(trust: &TrustStore, path: PathBuf, as_json: bool) -> TrustResult {
    // A folder that no longer exists is identified by its path.
    let path = path.canonicalize().unwrap_or(path).display().to_string();
    let found = trust.revoke(&path)?;
    if as_json {
        return Ok(print(&format!("{:#}\n", json!({ "revoked": found, "project": path }))));
    }
    let path = printable(&path);
    let text = if found { "no longer trusted" } else { "was not trusted" };
    Ok(print(&format!("{path} {text}\n")))
}

fn clear(trust: &TrustStore, as_json: bool) -> TrustResult {
    let aside = trust.clear(now_ms())?.map(|path| path.display().to_string());
    if as_json {
        return Ok(print(&format!("{:#}\n", json!({ "cleared": true, "movedAside": aside }))));
    }
    let aside = aside.map(|path| format!("; moved the untrusted file to {}", printable(&path)));
    Ok(print(&format!("no project is trusted any more{}\n", aside.unwrap_or_default())))
}

fn list(trust: &TrustStore, as_json: bool) -> TrustResult {
    let all = trust.all().map_err(TamperError::failure)?;
    if as_json {
        let row = |trusted: &Trusted| {
            json!({
                "project": trusted.project.path,
                "sha256": trusted.digest,
                "trustedMs": trusted.trusted_ms,
                "keys": trusted.settings.keys().collect::<Vec<_>>(),
            })
        };
        return Ok(print(&format!("{:#}\n", Value::Array(all.iter().map(row).collect()))));
    }
    let line = |trusted: &Trusted| {
        let path = printable(&trusted.project.path);
        format!("{}  {path}\n", &trusted.digest.get(..12).unwrap_or_default())
    };
    Ok(print(&if all.is_empty() {
        "no project is trusted\n".to_owned()
    } else {
        all.iter().map(line).collect::<String>()
    }))
}
