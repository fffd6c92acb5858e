//! `posse attach`, as clap sees it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::{AttachArgs, CliExit, InputFormat, usage};
use crate::failure::{ErrorCode, Exit, Failure};

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The session, or an unambiguous beginning of its id [default: the one that runs here]
    id: Option<String>,
    /// Attach read-only: no input, no answers
    #[arg(long)]
    observe: bool,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output_format: AttachFormat,
    /// Format of standard input, with --output-format stream-json
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    input_format: InputFormat,
    /// Leaves out the records up to this one
    #[arg(long, value_name = "RECORD")]
    after: Option<u64>,
    /// The folder whose session is meant
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AttachFormat {
    /// Text for a person
    Text,
    /// One event a line
    StreamJson,
}

impl Attach {
    pub(crate) fn into_args(self) -> Result<AttachArgs, CliExit> {
        let Attach { id, observe, output_format, input_format, after, cwd } = self;
        let lines = output_format == AttachFormat::StreamJson;
        let drives = input_format == InputFormat::StreamJson;
        let wrong = |what: &str, fix: &str| {
            Err(usage(&Failure::new(ErrorCode::FlagNeedsAnother, Exit::Usage, what).fix(fix)))
        };
        if drives && !lines {
            let what = "--input-format stream-json needs --output-format stream-json";
            return wrong(what, "pass both, or neither");
        }
        if drives && observe {
            return wrong(
                "an observer gives no instructions",
                "leave out one of --observe and --input-format",
            );
        }
        Ok(AttachArgs { id, observe, lines, drives, after, cwd })
    }
}
