//! posse
use std::process::ExitCode;

fn main() -> ExitCode {
    posse::sandbox::helper_main().unwrap_or(ExitCode::SUCCESS)
}
