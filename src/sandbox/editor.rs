//! Runs the user's editor in the user's terminal.
//!
//! The editor is not confined: the user configured its command line and types into it. No input of
//! a model or a project decides what runs here.

use std::io;
use std::path::Path;

/// Path of the shell that runs the editor command line.
const SHELL: &str = "/bin/sh";

/// Opens `file` with the editor command line `editor`, waits for it, and returns `true` if its exit
/// status is 0. An editor that does not exist gives `false`; the error is that of starting the
/// shell. The editor inherits the terminal and the environment of posse.
#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
pub fn edit(editor: &str, file: &Path) -> io::Result<bool> {
    // The line may have arguments; the file name is passed separately.
    let script = format!("{editor} \"$1\"");
    let status =
        std::process::Command::new(SHELL).arg("-c").arg(script).arg("sh").arg(file).status()?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editor_may_have_arguments_and_any_file_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a; touch b $(c) 'd'");
        std::fs::write(&file, "before").unwrap();
        assert!(edit("sed -i s/before/after/", &file).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "after");
        assert!(!edit("false", &file).unwrap());
        assert!(!edit("no-such-editor 2>/dev/null", &file).unwrap());
    }
}
