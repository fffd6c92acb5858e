//! Data of the command line with which a timer resumes the session later.
//!
//! The scheduled run is unattended and may have no more authority than this one. Restrictions are
//! written with their current values, because a timer has none of the user's variables.

use std::path::{Path, PathBuf};

use posse_actors::event::PermissionMode;
use posse_actors::ports::ProviderInfo;
use posse_actors::root_session::SessionSettings;

use crate::cli::{AgentFlags, PlaceArgs, RunArgs};
use crate::config::{Environment, Layers, Loaded, SettingOrigin, Settings};
use crate::front::resume_hint::Again;
use crate::project;
use crate::provider::presets;
use crate::sandbox::environment::NETWORK;

/// The longest `--timeout`, in milliseconds.
const TIMEOUT_MS_MAX: u128 = 30 * 24 * 3_600_000;

/// Settings that need no variable, because the command line or the journal contains their values.
const SAID: [&str; 12] = [
    "agentMode",
    "budget.maxCostMicroUsd",
    "defaultAgent",
    "defaultProvider",
    "maxTurns",
    "model",
    "patience",
    "permissionMode",
    "sandbox.mode",
    "sandbox.network",
    "sandbox.required",
    "timeout",
];

/// Names of variables that a run needs and a timer does not have, except network variables. The
/// command line does not contain their values, because some variables contain secrets.
const NEEDED: [&str; 6] =
    ["HOME", "PATH", "POSSE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME"];

/// Collects the data for resuming the session later: program, folder, flags and variables.
pub(crate) fn again(
    settings: &SessionSettings,
    info: &ProviderInfo,
    args: &RunArgs,
    loaded: &Loaded,
    environment: &Environment,
) -> Again {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("posse"));
    Again {
        session: settings.session_id.to_string(),
        program: program.display().to_string(),
        cwd: settings.cwd.clone(),
        flags: flags(args, loaded, (&info.profile, &info.model)),
        needed: needed_flags(args, Path::new(&settings.cwd)),
        variables: variables(&loaded.settings, &info.profile, environment),
        values: values(&loaded.layers, environment),
        path: environment.get("PATH").unwrap_or_default().to_owned(),
    }
}

/// Flags with which a person resumes a session of the folder `cwd`: those that say where the settings
/// and the files are, and those that restrict what is done. The journal contains the agent, the
/// model and the budget, and nothing gives authority by itself.
pub(crate) fn needed_flags(args: &RunArgs, cwd: &Path) -> Vec<String> {
    let PlaceArgs { cwd: _, config, trust_project } = &args.place;
    let given = &args.flags;
    let here = std::env::current_dir().ok();
    let is_elsewhere =
        here.is_none_or(|here| here != *cwd && project::root_of(&here) != project::root_of(cwd));
    let mut flags = Vec::new();
    let mut value = |flag: &str, value: Option<String>| {
        flags.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
    };
    value("--cwd", is_elsewhere.then(|| cwd.display().to_string()));
    value("--config", config.as_ref().map(|file| absolute(file)));
    for dir in &given.add_dirs {
        value("--add-dir", Some(absolute(dir)));
    }
    value("--sandbox", given.sandbox.clone().filter(|mode| mode != "off"));
    value("--permission-mode", given.permission_mode.clone());
    value("--network", given.network.clone().filter(|network| network == "deny"));
    let switches = [
        (*trust_project, "--trust-project"),
        (given.dry_run, "--dry-run"),
        (given.sandbox_required, "--sandbox-required"),
        (given.no_persistent_grants, "--no-persistent-grants"),
    ];
    flags.extend(switches.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag.to_owned()));
    flags
}

/// Flags that give the later run the authority of this run, and no more. The pattern in the
/// function names every flag, so that a new flag is not forgotten.
#[expect(clippy::too_many_lines, reason = "every flag, one after the other")]
fn flags(args: &RunArgs, loaded: &Loaded, (profile, named): (&str, &str)) -> Vec<String> {
    let PlaceArgs { cwd: _, config, trust_project } = &args.place;
    let AgentFlags {
        // In the record.
        images: _,
        system_prompt: _,
        system_prompt_file: _,
        append_system_prompt: _,
        append_system_prompt_file: _,
        agent,
        provider,
        model,
        thinking,
        // Passed as settings, below.
        max_turns: _,
        timeout: _,
        main_max_context_tokens: _,
        main_compact_at: _,
        sub_max_context_tokens: _,
        sub_compact_at: _,
        budget: _,
        mode: _,
        single_agent: _,
        multi_agent: _,
        sandbox_required: _,
        add_dirs,
        yes,
        // Always set: the run is unattended.
        unattended: _,
        permission_mode,
        dry_run,
        stream,
        no_stream,
        // Without a transcript there is nothing to resume.
        no_transcript: _,
        // The run has no reader.
        verbose: _,
        // A cassette belongs to one process.
        record: _,
        sandbox,
        network,
        persistent_grants,
        no_persistent_grants: _,
    } = &args.flags;
    let Loaded { settings, layers, .. } = loaded;
    let is_set =
        |key: &str| layers.get(key).is_some_and(|leaf| leaf.origin != SettingOrigin::BuiltIn);
    let by_variable = |key: &str| {
        layers.get(key).is_some_and(|leaf| matches!(leaf.origin, SettingOrigin::Variable(_)))
    };
    let mut flags = Vec::new();
    let mut switch = |on: bool, flag: &str| flags.extend(on.then(|| flag.to_owned()));
    switch(*yes, "--yes");
    switch(*dry_run, "--dry-run");
    switch(*trust_project, "--trust-project");
    switch(settings.sandbox.required, "--sandbox-required");
    let forgets = !settings.persistent_grants.enabled;
    switch(forgets, "--no-persistent-grants");
    switch(!forgets && *persistent_grants, "--persistent-grants");
    switch(*stream, "--stream");
    switch(*no_stream, "--no-stream");
    let multi = is_set("agentMode") && settings.multi_agent;
    switch(multi, "--multi-agent");
    switch(is_set("agentMode") && !multi, "--single-agent");
    let mut value = |flag: &str, value: Option<String>| {
        flags.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
    };
    // A value that gives more authority is included only if a flag or variable set it for this
    // run: a file may change until then.
    let mode = &settings.sandbox.mode;
    let widens = mode == "off" && sandbox.is_none() && !by_variable("sandbox.mode");
    value("--sandbox", (!widens).then(|| mode.clone()));
    let is_narrow = |mode: &PermissionMode| mode.is_at_most(PermissionMode::Ask);
    let mode = settings.permission_mode;
    let mode = mode.filter(|mode| is_narrow(mode) || permission_mode.is_some());
    value("--permission-mode", mode.map(|mode| mode.to_string()));
    let inherits = settings.sandbox.network == "inherit";
    let widens = inherits && network.is_none() && !by_variable("sandbox.network");
    // `auto` denies without a person.
    let reach = if inherits { "inherit" } else { "deny" };
    value("--network", (!widens).then(|| reach.to_owned()));
    let turns = settings.turns_max.filter(|_| is_set("maxTurns"));
    value("--max-turns", turns.map(|turns| turns.to_string()));
    let timeout = settings.timeout.map(|limit| limit.as_millis().clamp(1, TIMEOUT_MS_MAX));
    value("--timeout", timeout.map(|ms| format!("{ms}ms")));
    let dollars = |micro: u64| format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
    value("--budget", settings.budget.micro_usd_max.map(dollars));
    for (flag, given) in args.flags.context_flags() {
        value(flag, given.map(str::to_owned));
    }
    value("--agent", agent.clone());
    value("--thinking", thinking.clone());
    if provider.is_some() || model.is_some() {
        // A model belongs to its provider, independent of its source.
        value("--provider", Some(profile.to_owned()));
        value("--model", (!named.is_empty()).then(|| named.to_owned()));
    }
    value("--config", config.as_ref().map(|file| absolute(file)));
    for dir in add_dirs {
        value("--add-dir", Some(absolute(dir)));
    }
    flags
}

/// Names of the variables that the later run needs and that are set: general and network variables,
/// and those with the API keys of `profile` and its fallbacks.
fn variables(settings: &Settings, profile: &str, environment: &Environment) -> Vec<String> {
    let configured = settings.providers.get(profile);
    let fallback = configured.map(|configured| configured.fallback.as_slice()).unwrap_or_default();
    let profiles = std::iter::once(profile).chain(fallback.iter().map(String::as_str));
    let keys = profiles.filter_map(|profile| {
        let configured = settings.providers.get(profile);
        let key = configured.and_then(|configured| configured.api_key_env.clone());
        let preset = || presets::preset(profile)?.key_variable.map(str::to_owned);
        key.or_else(preset)
    });
    let mut names: Vec<String> = Vec::new();
    for name in NEEDED.into_iter().chain(NETWORK).map(str::to_owned).chain(keys) {
        if environment.get(&name).is_some() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Names and values of the set variables that determine settings for which the command line has no
/// flag, and of two variables of the sandbox that are no settings. The shell that runs the command
/// may not have these variables.
fn values(layers: &Layers, environment: &Environment) -> Vec<(String, String)> {
    let leaves = layers.iter().filter(|(key, _)| !SAID.contains(key));
    let set = leaves.filter_map(|(_, leaf)| match leaf.origin {
        SettingOrigin::Variable(name) => Some(name),
        _ => None,
    });
    let names = set.chain(["POSSE_SANDBOX_BACKEND", "POSSE_SANDBOX_SURVEY"]);
    names.filter_map(|name| Some((name.to_owned(), environment.get(name)?.to_owned()))).collect()
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Invocation, parse};
    use crate::config::{Dirs, Sources, load};

    fn parsed(words: &[&str]) -> RunArgs {
        let words = ["posse"].into_iter().chain(words.iter().copied());
        match parse(words.map(Into::into), false) {
            Ok(Invocation::Run(command)) => command.into_args().unwrap(),
            Ok(Invocation::Resume(command)) => command.into_args().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The line for a run with these flags and variables.
    fn line(words: &[&str], variables: &[(&str, &str)]) -> (String, Vec<(String, String)>) {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().display().to_string();
        let variables = variables.iter().copied().chain([("POSSE_HOME", home.as_str())]);
        let environment: Environment = variables.collect();
        let args = parsed(words);
        let sources = Sources {
            project: None,
            file: None,
            trust_project: false,
            trusted: None,
            trusted_variables: &[],
            presets: &[],
            flags: args.flags.overrides(),
        };
        let dirs = Dirs::from_environment(&environment).unwrap();
        let loaded = load(&environment, &dirs, &sources).unwrap();
        let flags = flags(&args, &loaded, ("local", "m-1"));
        // `resume` must parse every line.
        let mut words = vec!["resume", "20260101-000000-aaaaaa", "--unattended"];
        words.extend(flags.iter().map(String::as_str));
        parsed(&words);
        (flags.join(" "), values(&loaded.layers, &environment))
    }

    /// Flags of the run, its variables, and the expected flags of the command.
    type ScheduleCase<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], String);

    #[test]
    fn timer_command_permits_no_more_than_the_run() {
        let usual = "--sandbox workspace-write --network deny";
        let table: [ScheduleCase<'_>; 15] = [
            (&[], &[], usual.into()),
            (&["--dry-run"], &[], format!("--dry-run {usual}")),
            (&["--sandbox-required"], &[], format!("--sandbox-required {usual}")),
            (&[], &[("POSSE_SANDBOX_REQUIRED", "1")], format!("--sandbox-required {usual}")),
            (&["--no-persistent-grants"], &[], format!("--no-persistent-grants {usual}")),
            (&["--sandbox", "read-only"], &[], "--sandbox read-only --network deny".into()),
            (&[], &[("POSSE_SANDBOX", "read-only")], "--sandbox read-only --network deny".into()),
            (&[], &[("POSSE_NETWORK", "deny")], usual.into()),
            (&["--network", "inherit"], &[], "--sandbox workspace-write --network inherit".into()),
            (
                &["--budget", "0.50", "--max-turns", "3", "--timeout", "90s"],
                &[],
                format!("{usual} --max-turns 3 --timeout 90000ms --budget 0.500000"),
            ),
            (
                &[],
                &[
                    ("POSSE_BUDGET_MICRO_USD", "1250000"),
                    ("POSSE_MAX_TURNS", "4"),
                    ("POSSE_TIMEOUT", "2m"),
                ],
                format!("{usual} --max-turns 4 --timeout 120000ms --budget 1.250000"),
            ),
            // A flag takes precedence over a variable.
            (
                &["--sandbox", "read-only"],
                &[("POSSE_SANDBOX", "off")],
                "--sandbox read-only --network deny".into(),
            ),
            (&["--agent", "plan"], &[], format!("{usual} --agent plan")),
            (&["--model", "m-1"], &[], format!("{usual} --provider local --model m-1")),
            (&["--single-agent"], &[], format!("--single-agent {usual}")),
        ];
        for (words, variables, expected) in table {
            let words = [&["run", "-p", "fix it"], words].concat();
            assert_eq!(line(&words, variables).0, expected, "{words:?} {variables:?}");
        }
    }

    #[test]
    fn person_resumes_with_the_flags_that_say_where_and_restrict() {
        let here = std::env::current_dir().unwrap();
        let flags = |words: &[&str], cwd: &Path| {
            needed_flags(&parsed(&[&["run", "-p", "fix it"], words].concat()), cwd).join(" ")
        };
        assert_eq!(flags(&["--yes", "--sandbox", "off", "--network", "inherit"], &here), "");
        assert_eq!(flags(&["--agent", "plan", "--budget", "1", "--max-turns", "3"], &here), "");
        let config = here.join("c.json").display().to_string();
        assert_eq!(flags(&["--config", "c.json"], &here), format!("--config {config}"));
        assert_eq!(flags(&["--permission-mode", "auto"], &here), "--permission-mode auto");
        let restricted =
            ["--sandbox", "read-only", "--network", "deny", "--dry-run", "--no-persistent-grants"];
        assert_eq!(flags(&restricted, &here), restricted.join(" "));
        let other = tempfile::tempdir().unwrap();
        let cwd = other.path().canonicalize().unwrap();
        let expected = format!("--cwd {} --add-dir /usr --trust-project", cwd.display());
        assert_eq!(flags(&["--trust-project", "--add-dir", "/usr"], &cwd), expected);
    }

    #[test]
    fn variables_without_a_flag_keep_their_values() {
        let variables = [
            ("POSSE_BUDGET_TOKENS", "1000"),
            ("POSSE_SANDBOX_BACKEND", "landlock"),
            ("POSSE_SANDBOX", "read-only"),
        ];
        let (_, values) = line(&["run", "-p", "fix it"], &variables);
        let expected = [("POSSE_BUDGET_TOKENS", "1000"), ("POSSE_SANDBOX_BACKEND", "landlock")];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn keys_of_fallbacks_and_proxies_are_passed_by_name() {
        let fallback = vec!["anthropic".to_owned()];
        let settings = crate::config::ProviderSettings { fallback, ..Default::default() };
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().display().to_string();
        let environment: Environment = [
            ("POSSE_HOME", home.as_str()),
            ("OPENAI_API_KEY", "a"),
            ("ANTHROPIC_API_KEY", "b"),
            ("HTTPS_PROXY", "http://user:secret@proxy:1"),
            ("UNRELATED", "c"),
        ]
        .into_iter()
        .collect();
        let dirs = Dirs::from_environment(&environment).unwrap();
        let sources = Sources {
            project: None,
            file: None,
            trust_project: false,
            trusted: None,
            trusted_variables: &[],
            presets: &[],
            flags: Vec::new(),
        };
        let mut loaded = load(&environment, &dirs, &sources).unwrap();
        loaded.settings.providers.insert("openai".to_owned(), settings);
        let names = variables(&loaded.settings, "openai", &environment);
        assert_eq!(names, ["POSSE_HOME", "HTTPS_PROXY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"]);
    }
}
