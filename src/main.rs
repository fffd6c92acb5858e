//! The executable: runs as a helper process of the sandbox, or runs a command of posse.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A process that is about to become a command does nothing else.
    if let Some(code) = posse::sandbox::helper_main() {
        return code;
    }
    posse::sandbox::survive_file_limits();
    posse::commands::catch_panics(|| posse::commands::main(std::env::args_os()))
}
