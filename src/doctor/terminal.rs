//! Type and capabilities of the terminal.

use crate::config::Environment;
use crate::doctor::{Check, Status};

const AREA: &str = "terminal";

/// Properties of the standard streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a stream of its own")]
pub struct Streams {
    /// True if standard input is a terminal.
    pub stdin: bool,
    /// True if standard output is a terminal.
    pub stdout: bool,
    /// True if standard error is a terminal.
    pub stderr: bool,
    /// True if posse would use colours on standard error.
    pub colors: bool,
    /// Columns and rows of the terminal of standard error, else output, else input. `None`: there
    /// is no terminal, or its size is unknown.
    pub size: Option<(u16, u16)>,
}

impl Streams {
    /// Properties of the streams of this process.
    pub fn of_process(colors: bool) -> Streams {
        use std::io::IsTerminal;
        Streams {
            stdin: std::io::stdin().is_terminal(),
            stdout: std::io::stdout().is_terminal(),
            stderr: std::io::stderr().is_terminal(),
            colors,
            size: size(),
        }
    }
}

fn size() -> Option<(u16, u16)> {
    let sizes = [
        rustix::termios::tcgetwinsize(std::io::stderr()),
        rustix::termios::tcgetwinsize(std::io::stdout()),
        rustix::termios::tcgetwinsize(std::io::stdin()),
    ];
    sizes.into_iter().flatten().map(|size| (size.ws_col, size.ws_row)).find(|size| size.0 > 0)
}

pub(super) fn checks(environment: &Environment, streams: &Streams) -> Vec<Check> {
    let word = |terminal| if terminal { "terminal" } else { "no terminal" };
    let Streams { stdin, stdout, stderr, colors, size } = *streams;
    let mut checks = vec![Check::new(
        AREA,
        "streams",
        Status::Fact,
        format!("input {}, output {}, errors {}", word(stdin), word(stdout), word(stderr)),
    )];
    let asked = if stdin && stderr {
        "permission prompts are available"
    } else {
        "no user can be asked here: a run denies what needs approval, and then ends with code 4"
    };
    checks.push(Check::new(AREA, "questions", Status::Fact, asked));
    let why = match (environment.get("NO_COLOR"), environment.get("TERM")) {
        (Some(_), _) => "; NO_COLOR is set",
        (None, Some("dumb")) => "; TERM is dumb",
        _ => "",
    };
    let detail = format!("{}{why}", if colors { "on" } else { "off" });
    checks.push(Check::new(AREA, "colours", Status::Fact, detail));
    let (status, detail) = match size {
        None => (Status::Fact, "unknown".to_owned()),
        Some((columns, rows)) if columns < 40 => {
            (Status::Warning, format!("{columns}x{rows} is narrow"))
        }
        Some((columns, rows)) => (Status::Good, format!("{columns}x{rows}")),
    };
    checks.push(Check::new(AREA, "size", status, detail));
    checks.push(encoding(environment));
    checks
}

fn encoding(environment: &Environment) -> Check {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| environment.get(name).map(|value| (*name, value)));
    let utf8 = |value: &str| {
        let lower = value.to_ascii_lowercase();
        lower.contains("utf-8") || lower.contains("utf8")
    };
    match set {
        Some((name, value)) if utf8(value) => {
            Check::new(AREA, "encoding", Status::Good, format!("UTF-8 ({name}={value})"))
        }
        Some((name, value)) => {
            Check::new(AREA, "encoding", Status::Warning, format!("{name}={value} is not UTF-8"))
                .fix("export LC_ALL=C.UTF-8")
        }
        None => Check::new(AREA, "encoding", Status::Warning, "no locale is set")
            .fix("export LC_ALL=C.UTF-8"),
    }
}
