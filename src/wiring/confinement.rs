//! Sandbox of a session: probing, requirements and messages.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use posse_actors::event::SandboxTier;
use posse_actors::ports::AnswerSource;
use secrecy::SecretString;

use crate::config::{Dirs, Environment, Layers, SandboxSettings, SettingOrigin, Settings};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::network;
use crate::sandbox::{Backend, ProbeRequest, Sandbox, Surroundings, ToolWrites};
use crate::secrets::files::SecretFiles;
use crate::wiring::session::Setup;

/// Environment variable that selects the sandbox backend, to test weaker ones.
const BACKEND: &str = "POSSE_SANDBOX_BACKEND";

/// Environment variable with the maximum number of folders in a workspace survey, for tests.
const SURVEY: &str = "POSSE_SANDBOX_SURVEY";

/// Registry of tool writes of all sessions of this process.
static WRITTEN: LazyLock<ToolWrites> = LazyLock::new(ToolWrites::default);

/// The sandbox of a session with writable `roots`. Redacts `secrets` in output. Fails if it is
/// required and not full, if [`BACKEND`] names no backend, or if the executable has no path.
pub(crate) fn sandbox(
    setup: &Setup<'_>,
    roots: Vec<PathBuf>,
    secrets: Vec<SecretString>,
) -> Result<Sandbox, Failure> {
    let settings = &setup.settings.sandbox;
    let wanted = wanted(setup)?;
    let surroundings = Surroundings {
        roots,
        also_writable: settings.writable_roots.clone(),
        own: own_paths(setup.dirs, setup.settings),
        home: setup.environment.home(),
        config_home: setup.environment.config_home(),
        runtime_dir: setup.environment.get("XDG_RUNTIME_DIR").map(PathBuf::from),
        readable_secrets: settings.readable_secrets.clone(),
        projects: Some(setup.dirs.state.join("projects")),
    };
    let mut sandbox = unconfined(secrets)?
        .confined(wanted, surroundings)
        .tracking(WRITTEN.clone())
        .registering(SecretFiles::of_process());
    if let Some(folders) = setup.environment.get(SURVEY).and_then(|folders| folders.parse().ok()) {
        sandbox = sandbox.with_scan_limit(folders);
    }
    if settings.required {
        check(&sandbox, settings)?;
    }
    Ok(sandbox)
}

/// Paths that belong to posse: its folders, and configuration files that contain a key. File tools
/// and commands of the full tier have no access to them.
pub(crate) fn own_paths(dirs: &Dirs, settings: &Settings) -> Vec<PathBuf> {
    let mut paths = dirs.own_folders();
    paths.extend(settings.key_files.iter().cloned());
    paths
}

/// A sandbox that does not confine. `secrets` are redacted in output.
pub(crate) fn unconfined(secrets: Vec<SecretString>) -> Result<Sandbox, Failure> {
    Sandbox::new(secrets).map_err(|error| {
        let what = "cannot determine the path of the posse executable";
        Failure::new(ErrorCode::ExecutableUnknown, Exit::Internal, what).because(error.to_string())
    })
}

/// Sandbox tier of commands under these settings, found by a trial whose result is stored. Fails as
/// [`probe_request`] does.
pub(crate) fn tier(
    dirs: &Dirs,
    settings: &Settings,
    environment: &Environment,
) -> Result<SandboxTier, Failure> {
    if settings.sandbox.mode == "off" {
        return Ok(SandboxTier::None);
    }
    let wanted = probe_request(environment, Some(&dirs.state))?;
    Ok(unconfined(Vec::new())?.confined(wanted, Surroundings::default()).tier())
}

fn wanted(setup: &Setup<'_>) -> Result<ProbeRequest, Failure> {
    if setup.settings.sandbox.mode == "off" {
        return Ok(ProbeRequest::Exactly(Backend::Nothing));
    }
    probe_request(setup.environment, Some(&setup.dirs.state))
}

/// Returns the request for the backend that [`BACKEND`] selects or, if the variable is not set, for
/// the strongest one, whose result is stored in the folder `kept_in`. Fails if the variable names no
/// backend.
pub(crate) fn probe_request(
    environment: &Environment,
    kept_in: Option<&Path>,
) -> Result<ProbeRequest, Failure> {
    let Some(name) = environment.get(BACKEND) else {
        return Ok(ProbeRequest::Strongest { kept_in: kept_in.map(Path::to_owned) });
    };
    let backend = Backend::ALL.into_iter().find(|backend| backend.as_str() == name);
    backend.map(ProbeRequest::Exactly).ok_or_else(|| {
        let names: Vec<&str> = Backend::ALL.iter().map(|backend| backend.as_str()).collect();
        let what = format!("{BACKEND}: there is no {name:?}");
        Failure::new(ErrorCode::SandboxBackendUnknown, Exit::Usage, what)
            .fix(format!("one of {}", names.join(", ")))
    })
}

/// Fails if the sandbox is off or has another tier than `full`.
fn check(sandbox: &Sandbox, settings: &SandboxSettings) -> Result<(), Failure> {
    let failed = |what: &str| Failure::new(ErrorCode::SandboxTooWeak, Exit::Sandbox, what);
    if settings.mode == "off" {
        return Err(failed("a sandbox is required, and sandbox.mode is off")
            .fix("remove one of --sandbox-required and --sandbox off"));
    }
    let tier = sandbox.tier();
    if tier == SandboxTier::Full {
        return Ok(());
    }
    let mut failure = failed("the required sandbox is not available")
        .fix("`posse doctor` shows what is missing and how to fix it");
    let mut why = format!("this machine gives the tier {tier}, not full");
    why.push_str(&failed_trials(sandbox));
    failure = failure.because(why);
    Err(failure)
}

/// Warning if the sandbox was full at an earlier start and is weaker now; otherwise `None`.
pub(crate) fn weakened(sandbox: &Sandbox) -> Option<String> {
    sandbox.is_weakened().then(|| {
        format!(
            "the sandbox was full at an earlier start and is {} now (see posse doctor){}",
            sandbox.tier(),
            failed_trials(sandbox)
        )
    })
}

/// Text with each backend that does not work on this machine, and the reason.
fn failed_trials(sandbox: &Sandbox) -> String {
    let tried = sandbox.tried().into_iter();
    tried
        .filter_map(|tried| Some(format!("; {}: {}", tried.backend.as_str(), tried.failure?)))
        .collect()
}

/// One line for the user that describes the sandbox and the network access of commands.
pub(crate) fn line(tier: &SandboxTier, settings: &SandboxSettings, asking: AnswerSource) -> String {
    if settings.mode == "off" {
        return "sandbox off: commands run with all of your rights\n".to_owned();
    }
    let network = network::words(network::access(settings, tier, asking));
    let mode = &settings.mode;
    match tier {
        SandboxTier::Full => format!("sandbox full: {mode}, {network}\n"),
        SandboxTier::Reduced => format!(
            "sandbox reduced: {mode}, {network}; protected files are checked after a command, \
             secret files can be read (see posse doctor)\n"
        ),
        _ => "sandbox none: commands run with all of your rights (see posse doctor)\n".to_owned(),
    }
}

/// Description of the sandbox for the system prompt.
pub(crate) fn briefing(
    tier: &SandboxTier,
    settings: &SandboxSettings,
    asking: AnswerSource,
) -> String {
    if settings.mode == "off" || *tier == SandboxTier::None {
        return "none; commands run with the user's rights".to_owned();
    }
    let writes = match settings.mode.as_str() {
        "read-only" => "commands write only below $TMPDIR",
        _ => "commands write only below the working directory, other roots and $TMPDIR",
    };
    let temporary = match tier {
        SandboxTier::Full => " (/tmp, kept for the session, 1 GiB)",
        _ => " (kept for the session)",
    };
    let network = network::briefing(network::access(settings, tier, asking), tier);
    format!("{tier}; {writes}{temporary}; {network}")
}

/// One line for each configured sandbox restriction that the tier `none` does not enforce. Empty
/// for other tiers.
pub(crate) fn unenforced(layers: &Layers, tier: &SandboxTier) -> String {
    if *tier != SandboxTier::None {
        return String::new();
    }
    let wishes = [
        ("sandbox.mode", &["read-only", "workspace-write"][..]),
        ("sandbox.network", &["deny"][..]),
    ];
    let mut text = String::new();
    for (key, confining) in wishes {
        let Some(leaf) = layers.get(key).filter(|leaf| leaf.origin != SettingOrigin::BuiltIn)
        else {
            continue;
        };
        let Some(value) = leaf.value.as_str().filter(|value| confining.contains(value)) else {
            continue;
        };
        let name = match &leaf.origin {
            SettingOrigin::Flag(flag) => flag,
            _ => key,
        };
        text.push_str("sandbox none: ");
        text.push_str(name);
        text.push(' ');
        text.push_str(value);
        text.push_str(" is not enforced on commands here\n");
    }
    text
}
