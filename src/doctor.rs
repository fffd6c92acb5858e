//! `posse doctor`: what works here, what does not, and the exact next step for each problem.
//!
//! Looks and tries; the only things it writes are a temporary file in the state directory, which
//! it removes, and nothing else. It says where a secret is and never what it is.

mod confinement;
mod folders;
mod online;
mod providers;
mod terminal;

use std::io::{self, Write};

use serde::Serialize;

use crate::config::Environment;
use crate::failure::{Exit, Failure, printable};

pub use terminal::Streams;

/// What is looked at.
#[derive(Debug)]
pub struct Examined<'a> {
    /// The environment.
    pub environment: &'a Environment,
    /// The working directory, resolved.
    pub cwd: &'a std::path::Path,
    /// Our folders, or why there are none.
    pub dirs: Result<&'a crate::config::Dirs, &'a Failure>,
    /// What is configured, or everything that is wrong with it.
    pub loaded: Result<&'a crate::config::Loaded, &'a [Failure]>,
    /// What the standard streams are.
    pub streams: Streams,
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// As it should be.
    Good,
    /// A fact, neither good nor bad.
    Fact,
    /// Something is missing; runs work.
    Warning,
    /// A run cannot work.
    Problem,
}

/// One thing that was looked at.
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

    /// What a failure says, as something that blocks a run.
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

/// Looks at everything and writes what it found. With `online` it also asks the servers that are
/// configured. Ends well exactly when nothing blocks a run.
pub fn run(
    examined: &Examined<'_>,
    online: bool,
    as_json: bool,
    color: bool,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let mut checks = configuration(examined);
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
            Err(Failure::new("DOC001", Exit::Failed, "the answer cannot be written")
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
                0 => "nothing is set; defaults count".to_owned(),
                1 => "1 setting, no mistakes".to_owned(),
                many => format!("{many} settings, no mistakes"),
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
        (0, 0) => "nothing is in the way of a run".to_owned(),
        (0, 1) => "nothing is in the way of a run; 1 warning".to_owned(),
        (0, many) => format!("nothing is in the way of a run; {many} warnings"),
        (1, _) => "1 problem is in the way of a run".to_owned(),
        (many, _) => format!("{many} problems are in the way of a run"),
    };
    let asked = if online { "" } else { "; no server was asked (--online does)" };
    writeln!(out, "\n{end}{asked}")
}

#[cfg(test)]
mod tests;
