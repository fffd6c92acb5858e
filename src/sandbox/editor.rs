//! Runs the user's editor and pager in the user's terminal.
//!
//! They are not confined: the user configured their command lines and types into them. No input of
//! a model or a project decides what runs here: programs in a workspace are not found (see
//! `unsandboxed`).

use std::env;
use std::io::{self, Write};
use std::path::Path;

use crate::unsandboxed;

/// Path of the shell that runs the editor command line.
const SHELL: &str = "/bin/sh";

/// Opens `file` with the editor command line `editor`, waits for it, and returns `true` if its exit
/// status is 0. An editor that does not exist gives `false`; the error is that of starting the
/// shell. The editor inherits the terminal and the environment of posse.
pub fn edit(editor: &str, file: &Path) -> io::Result<bool> {
    // The line may have arguments; the file name is passed separately.
    let script = format!("{editor} \"$1\"");
    let status = shell(&script)?.arg("sh").arg(file).status()?;
    Ok(status.success())
}

/// Shows `text` with the pager command line `pager`, and waits until the pager has exited. The pager
/// inherits the terminal and the environment of posse, and may end before it has read everything.
/// Returns `true` if its exit status is 0.
pub fn page(pager: &str, text: &str) -> io::Result<bool> {
    let mut child = shell(pager)?.stdin(std::process::Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A pager that was left early closes its input.
        input.write_all(text.as_bytes()).ok();
    }
    Ok(child.wait()?.success())
}

/// A shell that runs `script` in the working directory of posse.
#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn shell(script: &str) -> io::Result<std::process::Command> {
    let folder = env::current_dir()?;
    // The first word is looked up in PATH.
    let mut arguments = script.split_whitespace().skip(1).filter(|word| *word != "\"$1\"");
    let is_relative = |word: &&str| !word.starts_with(['/', '~', '$', '-']);
    if let Some(file) = arguments.find(|word| is_relative(word) && folder.join(word).is_file()) {
        let text =
            format!("its argument `{file}` is a file of the workspace, which commands can change");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let mut command = unsandboxed::command(&[SHELL, "-c", script].map(str::to_owned))?;
    command.current_dir(folder);
    Ok(command)
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

    #[test]
    fn pager_gets_the_text_and_may_end_early() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out");
        let text = "a line\n".repeat(100_000);
        assert!(page(&format!("cat > '{}'", file.display()), &text).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert!(page("head -n 1 > /dev/null", &text).unwrap());
        assert!(!page("no-such-pager 2>/dev/null", &text).unwrap());
    }
}
