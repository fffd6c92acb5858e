//! Texts of `--system-prompt` and `--append-system-prompt`, from the command line or from files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use posse_actors::event::PromptOverrides;

use crate::cli::AgentFlags;
use crate::failure::{ErrorCode, Exit, Failure, printable};

/// Maximum size of each text in bytes.
const BYTES_MAX: usize = 128 << 10;

/// The texts of `flags`; an empty text stays a text. Fails if a file cannot be read, or if a text is
/// too long or not UTF-8.
pub(super) fn overrides(flags: &AgentFlags) -> Result<PromptOverrides, Failure> {
    let AgentFlags {
        system_prompt,
        system_prompt_file,
        append_system_prompt,
        append_system_prompt_file,
        ..
    } = flags;
    Ok(PromptOverrides {
        instructions: text(
            "--system-prompt",
            system_prompt.as_deref(),
            system_prompt_file.as_deref(),
        )?,
        append: text(
            "--append-system-prompt",
            append_system_prompt.as_deref(),
            append_system_prompt_file.as_deref(),
        )?,
    })
}

/// The text `given` with `flag`, or that of `file`, without white space at both ends.
fn text(flag: &str, given: Option<&str>, file: Option<&Path>) -> Result<Option<String>, Failure> {
    let text = match (given, file) {
        (None, None) => return Ok(None),
        (Some(text), _) if text.len() > BYTES_MAX => return Err(too_long(flag)),
        (Some(text), _) => text.to_owned(),
        (None, Some(path)) => read(&format!("{flag}-file"), path)?,
    };
    Ok(Some(text.trim().to_owned()))
}

fn read(flag: &str, path: &Path) -> Result<String, Failure> {
    let unusable = |why: String| {
        let what = format!("{flag} {} cannot be used", printable(&path.display().to_string()));
        Failure::new(ErrorCode::SystemPromptUnusable, Exit::Usage, what).because(why)
    };
    let mut bytes = Vec::new();
    let limit = BYTES_MAX as u64 + 1;
    File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|error| unusable(error.to_string()).fix("name a file that you may read"))?;
    if bytes.len() > BYTES_MAX {
        return Err(too_long(flag));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|error| unusable(error.to_string()).fix("save it as UTF-8 text"))?;
    Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}

fn too_long(flag: &str) -> Failure {
    let what = format!("the text of {flag} is longer than {} KiB", BYTES_MAX >> 10);
    Failure::new(ErrorCode::SystemPromptUnusable, Exit::Usage, what)
        .fix("shorten it; put material that is not always needed into a file that the agent reads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_files_are_bounded_utf_8() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let long = "x".repeat(BYTES_MAX + 1);
        let files = [
            (file("good", "\u{feff}Be brief.\n".as_bytes()), Ok("Be brief.")),
            (file("empty", b"\n"), Ok("")),
            (file("long", long.as_bytes()), Err("longer than 128 KiB")),
            (file("binary", b"\xff\xfe"), Err("cannot be used")),
            (dir.path().join("missing"), Err("cannot be used")),
            (dir.path().to_owned(), Err("cannot be used")),
        ];
        for (path, expected) in files {
            let flags =
                AgentFlags { append_system_prompt_file: Some(path), ..AgentFlags::default() };
            match (overrides(&flags), expected) {
                (Ok(texts), Ok(text)) => assert_eq!(texts.append.as_deref(), Some(text)),
                (Err(failure), Err(why)) => assert!(failure.what.contains(why), "{failure}"),
                (found, expected) => panic!("{found:?}, expected {expected:?}"),
            }
        }
        let flags = AgentFlags { system_prompt: Some(long), ..AgentFlags::default() };
        assert!(overrides(&flags).is_err());
        let none = overrides(&AgentFlags::default()).unwrap();
        assert_eq!(none, PromptOverrides::default());
    }
}
