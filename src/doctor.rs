//! `posse doctor`: diagnoses this machine and names the next step for problems that it can explain.
//!
//! It writes only temporary files, which it removes. It reports where a secret is configured, never
//! its value.

mod agents;
mod confinement;
mod folders;
mod online;
pub mod policies;
mod providers;
mod terminal;

use std::io::{self, Write};

use serde::Serialize;

use crate::config::Environment;
use crate::failure::{ErrorCode, Exit, Failure, printable};

pub use terminal::Streams;

/// Input of the checks.
#[derive(Debug)]
pub struct Examined<'a> {
    /// Environment variables.
    pub environment: &'a Environment,
    /// Working directory: absolute, without symbolic links.
    pub cwd: &'a std::path::Path,
    /// Folders of posse, or the failure to determine them.
    pub dirs: Result<&'a crate::config::Dirs, &'a Failure>,
    /// Loaded configuration, or all of its errors.
    pub loaded: Result<&'a crate::config::Loaded, &'a [Failure]>,
    /// Standard streams of the process.
    pub streams: Streams,
}

/// Status of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The examined part works as expected.
    Good,
    /// Information, neither good nor bad.
    Fact,
    /// Something is missing or insecure, but sessions can start.
    Warning,
    /// Sessions cannot start or work.
    Problem,
}

/// Result of one check, with an optional fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) area: &'static str,
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

impl Check {
    pub(crate) fn new(
        area: &'static str,
        name: impl Into<String>,
        status: Status,
        detail: impl Into<String>,
    ) -> Check {
        Check { area, name: name.into(), status, detail: detail.into(), fix: None }
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Check {
        self.fix = Some(fix.into());
        self
    }

    /// Makes a check with the status [`Status::Problem`] from a failure.
    pub(crate) fn of(area: &'static str, name: impl Into<String>, failure: &Failure) -> Check {
        let mut detail = format!("{}: {}", failure.code, failure.what);
        if let Some(place) = &failure.place {
            let first = place.lines().next().unwrap_or_default();
            detail.extend([" (", first, ")"]);
        }
        if let Some(why) = &failure.why {
            detail.extend(["; ", why]);
        }
        Check { fix: failure.fix.clone(), ..Check::new(area, name, Status::Problem, detail) }
    }
}

#[derive(Serialize)]
struct DoctorReport<'a> {
    v: u32,
    ok: bool,
    checks: &'a [Check],
}

/// Runs all checks and writes a report to `out`. With `online`, also contacts the configured
/// providers and the one that a run would use, at most 32.
///
/// Returns [`Exit::Done`] if no check is a problem, else [`Exit::Configuration`].
///
/// Errors: `DOC001` if the report cannot be written, except to a closed pipe; an internal failure
/// if a check cannot be prepared.
pub fn run(
    examined: &Examined<'_>,
    online: bool,
    as_json: bool,
    color: bool,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let mut checks = configuration(examined);
    checks.extend(agents::checks(examined));
    checks.extend(providers::checks(examined));
    if online {
        checks.extend(online::checks(examined)?);
    }
    checks.extend(folders::checks(examined));
    checks.extend(confinement::checks(examined)?);
    checks.extend(terminal::checks(examined.environment, &examined.streams));
    let ok = checks.iter().all(|check| check.status != Status::Problem);
    let written = if as_json {
        serde_json::to_writer_pretty(&mut *out, &DoctorReport { v: 1, ok, checks: &checks })
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        write_text(&checks, online, color, out)
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ErrorCode::DoctorOutput, Exit::Failed, "cannot write the output")
                .because(error.to_string()))
        }
        _ if ok => Ok(Exit::Done),
        _ => Ok(Exit::Configuration),
    }
}

fn configuration(examined: &Examined<'_>) -> Vec<Check> {
    const AREA: &str = "configuration";
    let mut checks = Vec::new();
    match &examined.loaded {
        Ok(loaded) => {
            let set = loaded
                .layers
                .iter()
                .filter(|(_, leaf)| leaf.origin != crate::config::SettingOrigin::BuiltIn)
                .count();
            let detail = match set {
                0 => "nothing is set; defaults apply".to_owned(),
                1 => "1 setting, no errors".to_owned(),
                many => format!("{many} settings, no errors"),
            };
            checks.push(Check::new(AREA, "settings", Status::Good, detail));
            checks.extend(loaded.notices.iter().map(|notice| {
                let detail = format!("{}: {}", notice.code, notice.text);
                Check::new(AREA, "notice", Status::Warning, detail)
            }));
        }
        Err(failures) => {
            checks.extend(failures.iter().map(|failure| Check::of(AREA, "settings", failure)));
        }
    }
    checks
}

fn write_text(checks: &[Check], online: bool, color: bool, out: &mut dyn Write) -> io::Result<()> {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or_default();
    let mut area = "";
    for check in checks {
        if check.area != area {
            let gap = if area.is_empty() { "" } else { "\n" };
            area = check.area;
            writeln!(out, "{gap}{area}")?;
        }
        let (mark, code) = match check.status {
            Status::Good => ("ok", "32"),
            Status::Fact => ("--", "2"),
            Status::Warning => ("!!", "33"),
            Status::Problem => ("XX", "31"),
        };
        let mark = if color { format!("\x1b[{code}m{mark}\x1b[0m") } else { mark.to_owned() };
        let (name, detail) = (printable(&check.name), printable(&check.detail));
        writeln!(out, "  {mark}  {name:<width$}  {detail}")?;
        if let Some(fix) = &check.fix {
            writeln!(out, "      {:<width$}  fix: {}", "", printable(fix))?;
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (problems, warnings) = (count(Status::Problem), count(Status::Warning));
    let end = match (problems, warnings) {
        (0, 0) => "no problems; runs can start".to_owned(),
        (0, 1) => "no problems; runs can start; 1 warning".to_owned(),
        (0, many) => format!("no problems; runs can start; {many} warnings"),
        (1, _) => "1 problem prevents a run".to_owned(),
        (many, _) => format!("{many} problems prevent a run"),
    };
    let asked = if online { "" } else { "; no server was contacted (use --online)" };
    writeln!(out, "\n{end}{asked}")
}

#[cfg(test)]
mod tests;
