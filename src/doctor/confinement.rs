//! Tests the sandbox: reports the layers that were tried on this machine, and attempts forbidden
//! and permitted actions in the strongest one that works.
//!
//! Each forbidden action is also tried without a sandbox, so that an action that is impossible
//! anyway does not count as blocked. No advice switches a protection of the kernel off.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use posse_actors::ports::{Confinement, NetworkAccess};
use serde_json::Value;

use crate::commands::runtime;
use crate::doctor::{Check, Examined, Status};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::sandbox::{
    Backend, Directory, RunError, Sandbox, Spawn, Surroundings, Tried, Update, obstacle,
};
use crate::wiring::confinement::probe_request;

const AREA: &str = "sandbox";

/// Environment variable that lowers the maximum number of folders that a survey of protected files
/// visits.
const SURVEY: &str = "POSSE_SANDBOX_SURVEY";

/// Time limit of each run of [`SCRIPT`].
const TRIAL: Duration = Duration::from_secs(10);

/// Tested restrictions: name, text if it holds, text if it does not.
const RESTRICTIONS: [(&str, &str, &str); 5] = [
    (
        "outside",
        "files outside of the workspace cannot be changed",
        "files outside of the workspace can be changed",
    ),
    ("own", "posse's own files cannot be read", "posse's own files can be read"),
    (
        "network",
        "a command without network access cannot reach the network",
        "a command without network access can reach the network",
    ),
    ("signals", "other processes cannot be signalled", "other processes can be signalled"),
    ("namespaces", "no namespaces can be created inside", "namespaces can be created inside"),
];

/// Folders of the programs that the script uses. `PATH` may have folders of the workspace, with
/// programs that a model has written.
const PROGRAMS: &str = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin:/run/current-system/sw/bin";

/// Shell script that attempts one action after another and prints whether each one succeeded.
const SCRIPT: &str = r#"
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name yes"; else echo "$name no"; fi; }
try inside sh -c 'echo x > inside'
try temporary sh -c 'echo x > "$TMPDIR/x"'
try outside sh -c 'echo x > "$PLACE/outside/new"'
try own cat "$PLACE/own/file"
try network sh -c 'exec "$0" -c ": <>/dev/tcp/127.0.0.1/$PORT"' "$SHELL_USED"
try signals kill -0 "$RUNTIME"
try namespaces unshare -U true
"#;

/// Starts commands as a tool would and reports the restrictions that hold. Fails if the test files
/// or the async runtime cannot be made, or as [`probe_request`] does.
pub(super) fn checks(examined: &Examined<'_>) -> Result<Vec<Check>, Failure> {
    let problem = |detail: String| Ok(vec![Check::new(AREA, "helper", Status::Problem, detail)]);
    let sandbox = match Sandbox::new(Vec::new()) {
        Ok(sandbox) => sandbox,
        Err(error) => {
            return problem(format!("cannot determine the path of the posse executable: {error}"));
        }
    };
    let internal = |what: String| Failure::new(ErrorCode::InternalFailure, Exit::Internal, what);
    let trial = Trial::new()
        .map_err(|error| internal(format!("cannot prepare the sandbox test: {error}")))?;
    let wanted = probe_request(examined.environment, None)?;
    let mut sandbox = sandbox.confined(wanted, trial.surroundings(examined));
    if let Some(folders) = examined.environment.get(SURVEY).and_then(|most| most.parse().ok()) {
        sandbox = sandbox.with_scan_limit(folders);
    }
    let runtime = runtime()?;
    let (confined, report) = runtime.block_on(trial.run(&sandbox, "workspace-write"));
    let (open, _) = runtime.block_on(trial.run(&sandbox, "off"));
    let mut checks = Vec::new();
    match &confined {
        Ok(done) if done.get("temporary") == Some(&true) => {
            let detail = "a command was started and ended";
            checks.push(Check::new(AREA, "commands", Status::Good, detail));
        }
        Ok(_) => {
            let detail = "a trial command could not write to its temporary folder";
            checks.push(Check::new(AREA, "commands", Status::Problem, detail));
        }
        Err(error) => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            let detail = format!("{error}{}", cause.unwrap_or_default());
            let fix = "check the limits of processes and that TMPDIR can be written";
            checks.push(Check::new(AREA, "commands", Status::Problem, detail).fix(fix));
        }
    }
    checks.push(tier(sandbox.backend(), &report));
    checks.extend(sandbox.tried().iter().map(layer));
    if let (Ok(confined), Ok(open)) = (&confined, &open)
        && sandbox.backend() != Backend::Nothing
    {
        checks.extend(restrictions(confined, open, sandbox.backend()));
    }
    if sandbox.backend() != Backend::Nothing {
        checks.push(survey_coverage(sandbox.sees_all_of(examined.cwd, &trial.path("scratch"))));
        checks.push(runtime.block_on(trial.tried(&sandbox, examined)));
    }
    drop(sandbox);
    runtime.shutdown_background();
    Ok(checks)
}

/// Temporary files and a listener that the script tries to reach from inside the sandbox.
struct Trial {
    place: tempfile::TempDir,
    listener: TcpListener,
}

type CheckResults = BTreeMap<String, bool>;

impl Trial {
    fn new() -> std::io::Result<Trial> {
        let place = tempfile::Builder::new().prefix("posse-doctor-").tempdir()?;
        for folder in ["work", "outside", "own"] {
            fs::create_dir(place.path().join(folder))?;
        }
        fs::write(place.path().join("own/file"), "own")?;
        Ok(Trial { place, listener: TcpListener::bind("127.0.0.1:0")? })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }

    fn surroundings(&self, examined: &Examined<'_>) -> Surroundings {
        Surroundings {
            roots: vec![self.path("work"), self.path("outside")],
            own: vec![self.path("own")],
            home: examined.environment.home(),
            runtime_dir: examined.environment.get("XDG_RUNTIME_DIR").map(Into::into),
            ..Surroundings::default()
        }
    }

    fn spawn(&self, sandbox: &Sandbox, profile: &str, script: &str) -> Spawn {
        let (program, arguments) = sandbox.shell_command(script);
        let port = self.listener.local_addr().map_or(0, |address| address.port());
        let environment = vec![
            ("PLACE".into(), self.place.path().into()),
            ("PORT".into(), port.to_string().into()),
            ("RUNTIME".into(), std::process::id().to_string().into()),
            ("SHELL_USED".into(), program.clone().into()),
            ("PATH".into(), PROGRAMS.into()),
        ];
        let work = self.path("work");
        Spawn {
            program,
            arguments,
            directory: Directory::Path(work.clone()),
            environment,
            confinement: Confinement {
                profile: profile.to_owned(),
                writable_roots: vec![work.display().to_string()],
                network: NetworkAccess::Denied,
            },
            timeout: TRIAL,
            scratch: self.path("scratch"),
            spill: self.path("outputs/trial.txt"),
            output_bytes_max: 4096,
            spill_bytes_max: 1 << 20,
            dialogue: None,
            stop: None,
            masks_keys: false,
            at_timeout: None,
        }
    }

    /// Runs the script. Returns, for each action, true if it succeeded; and the sandbox's report of
    /// the restrictions that it applied.
    async fn run(
        &self,
        sandbox: &Sandbox,
        profile: &str,
    ) -> (Result<CheckResults, RunError>, Value) {
        let spawn = self.spawn(sandbox, profile, SCRIPT);
        let mut report = Value::Null;
        let outcome = sandbox.run(spawn, |update| {
            if let Update::Enforced { report: enforced, .. } = update {
                report = enforced;
            }
        });
        let done = outcome.await.map(|outcome| {
            let text = String::from_utf8_lossy(&outcome.output.head).into_owned();
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.map(|(name, done)| (name.to_owned(), done == "yes")).collect()
        });
        (done, report)
    }

    /// Makes the check about `posse try`: tries a command whose changes are collected where those of
    /// real ones are, and looks for an obstacle in the working directory.
    async fn tried(&self, sandbox: &Sandbox, examined: &Examined<'_>) -> Check {
        let name = "trials";
        let no = |reason: String| {
            let detail = format!("`posse try` does not work here: {reason}");
            Check::new(AREA, name, Status::Fact, detail)
        };
        let Ok(dirs) = examined.dirs else { return no("there is no state directory".to_owned()) };
        let mut existing = dirs.state.ancestors().filter(|folder| folder.is_dir());
        let folder = existing.next().unwrap_or(Path::new("/"));
        let Ok(place) = tempfile::Builder::new().prefix(".posse-doctor-").tempdir_in(folder) else {
            return no(format!("{} is not writable", folder.display()));
        };
        if let Some(reason) = obstacle(examined.cwd, place.path()) {
            return no(reason);
        }
        let spawn = self.spawn(sandbox, "workspace-write", "echo x > tried");
        match sandbox.try_command(spawn, place.path(), None, |_| {}).await {
            Ok(tried) if tried.changes.changes.len() == 1 && !self.path("work/tried").exists() => {
                Check::new(
                    AREA,
                    name,
                    Status::Good,
                    "a command can be tried before it changes files",
                )
            }
            Ok(_) => no("the changes of a command were not collected".to_owned()),
            Err(RunError::NotPrepared { reason }) => no(reason),
            Err(error) => no(error.to_string()),
        }
    }
}

/// Makes the check about the survey of protected files. `covers_all`: true if the survey covers the
/// whole workspace.
fn survey_coverage(covers_all: std::io::Result<bool>) -> Check {
    let name = "protected files";
    match covers_all {
        Ok(true) => Check::new(AREA, name, Status::Good, "all of the workspace is monitored"),
        Ok(false) => {
            let detail = "the workspace has more folders than are checked before and after each \
                          command, so every command needs permission, even with --yes";
            Check::new(AREA, name, Status::Warning, detail)
                .fix("start posse in a folder below, or remove folders that are generated")
        }
        Err(error) => Check::new(AREA, name, Status::Problem, format!("not checked: {error}")),
    }
}

fn tier(backend: Backend, report: &Value) -> Check {
    let name = "confinement";
    let (tier, by) = (backend.tier(), backend.as_str());
    match backend {
        Backend::Nothing => {
            let detail =
                "tier none: commands run with all of your rights, so each needs permission";
            Check::new(AREA, name, Status::Warning, detail)
                .fix("enable one of the layers below, or work in a virtual machine of its own")
        }
        Backend::Landlock => {
            let detail = format!(
                "tier {tier}, by {by} version {}: secret files inside the workspace can be read, \
                 protected ones are restored after a command, and the mode, owner and times of \
                 your files outside can be changed",
                report["landlock"]["version"]
            );
            Check::new(AREA, name, Status::Warning, detail)
                .fix("enable one of the layers below to get the tier full")
        }
        Backend::Namespaces | Backend::Bubblewrap => {
            let spaces = match report["namespaces"].as_array() {
                Some(spaces) => format!(
                    ": namespaces {}",
                    spaces.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
                ),
                None => String::new(),
            };
            let processes = match &report["ownProcesses"] {
                Value::Bool(false) => "; the names of all processes are visible in /proc",
                _ => "",
            };
            let detail = format!(
                "tier {tier}, by {by}{spaces}; Landlock version {}, {} system calls filtered{processes}",
                report["landlock"]["version"], report["seccomp"]["calls"]
            );
            Check::new(AREA, name, Status::Good, detail)
        }
    }
}

fn layer(tried: &Tried) -> Check {
    let name = format!("by {}", tried.backend.as_str());
    match &tried.failure {
        None => Check::new(AREA, name, Status::Good, "works"),
        Some(failure) => {
            let check = Check::new(AREA, name, Status::Fact, format!("does not work: {failure}"));
            match fix(tried.backend, failure) {
                Some(fix) => check.fix(fix),
                None => check,
            }
        }
    }
}

/// Advice for enabling a sandbox layer that does not work on this machine. It weakens no protection
/// of the machine. `None`: there is no advice.
fn fix(backend: Backend, failure: &str) -> Option<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    match backend {
        Backend::Namespaces if read(APPARMOR) == "1" => {
            let program = std::env::current_exe().ok()?;
            let program = program.display();
            Some(format!(
                "allow namespaces to this program and to no other: printf 'abi <abi/4.0>,\\n\
                 include <tunables/global>\\nprofile posse \"{program}\" flags=(unconfined) \
                 {{\\n  userns,\\n}}\\n' | sudo tee /etc/apparmor.d/posse && \
                 sudo apparmor_parser -r /etc/apparmor.d/posse"
            ))
        }
        Backend::Namespaces if read("/proc/sys/user/max_user_namespaces") == "0" => Some(
            "this machine's administrator has set user.max_user_namespaces to 0; ask them, \
                  or work in a virtual machine of its own"
                .to_owned(),
        ),
        Backend::Bubblewrap if failure.contains("not installed") => Some(install("bubblewrap")),
        Backend::Landlock => {
            let modules = read("/sys/kernel/security/lsm");
            let has_it = modules.split(',').any(|module| module == "landlock");
            let boot = "start the kernel with landlock in its lsm= parameter (see \
                        /sys/kernel/security/lsm for what it has now)";
            let newer = "it needs Linux 6.2 or newer, with Landlock built in";
            Some(if modules.is_empty() || has_it { newer } else { boot }.to_owned())
        }
        _ => None,
    }
}

/// File of the kernel setting that restricts user namespaces to programs with an `AppArmor`
/// profile.
const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

fn install(package: &str) -> String {
    let managers = [
        ("/usr/bin/apt-get", "apt-get install"),
        ("/usr/bin/dnf", "dnf install"),
        ("/usr/bin/pacman", "pacman -S"),
        ("/usr/bin/zypper", "zypper install"),
        ("/sbin/apk", "apk add"),
    ];
    let found = managers.iter().find(|(program, _)| Path::new(program).exists());
    found.map_or_else(
        || format!("install {package}"),
        |(_, command)| format!("sudo {command} {package}"),
    )
}

fn restrictions(confined: &CheckResults, open: &CheckResults, backend: Backend) -> Vec<Check> {
    let mut checks = Vec::new();
    if confined.get("inside") != Some(&true) {
        let detail = "a command cannot write to the workspace, although it is allowed to";
        checks.push(Check::new(AREA, "inside", Status::Problem, detail));
    }
    for (name, holds, broken) in RESTRICTIONS {
        let check = match (confined.get(name), open.get(name)) {
            (Some(false), Some(true)) => Check::new(AREA, name, Status::Good, holds),
            (Some(true), _) if name == "signals" && backend == Backend::Landlock => {
                Check::new(AREA, name, Status::Warning, broken).fix("it needs Linux 6.12 or newer")
            }
            (Some(true), _) => Check::new(AREA, name, Status::Problem, broken)
                .fix("do not run commands on this machine, and report this with the output of posse doctor --json"),
            _ => Check::new(
                AREA,
                name,
                Status::Fact,
                "not tested: the action fails even without a sandbox",
            ),
        };
        checks.push(check);
    }
    checks
}
