//! Checks of path texts from the model.

use posse_actors::ports::ToolError;
use posse_actors::text::clipped;
use posse_base::failure::printable;

/// Maximum length of a path in bytes. Longer paths cannot be opened anyway.
pub(super) const PATH_BYTES_MAX: usize = 4096;

/// Rejects a text that is no usable path: it is empty or too long, has control characters, begins
/// with `~`, or is a URL or a Windows path.
pub(super) fn check(path: &str) -> Result<(), ToolError> {
    let wrong = |why: &str| Err(ToolError::new("ARG002", format!("{}: {why}", shown(path))));
    if path.trim().is_empty() {
        return Err(ToolError::new("ARG002", "the path is empty; `.` is the working directory"));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(ToolError::new("ARG002", "the path is longer than 4096 bytes"));
    }
    if path.chars().any(char::is_control) {
        return wrong("a path has no NUL, newline or other control character");
    }
    if path.starts_with('~') {
        return wrong("`~` is not expanded; name the path below the working directory");
    }
    if is_url(path) {
        return wrong("is a URL; name the path itself");
    }
    if is_windows(path) {
        return Err(windows(path));
    }
    Ok(())
}

/// Creates the error for a Windows path.
pub(super) fn windows(path: &str) -> ToolError {
    ToolError::new("ARG002", format!("{}: folders are separated by `/`", shown(path)))
}

fn is_url(path: &str) -> bool {
    path.split_once("://").is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
    }) || path.starts_with("file:/")
}

fn is_windows(path: &str) -> bool {
    let bytes = path.as_bytes();
    let drive = bytes.len() > 2
        && bytes[0].is_ascii_alphabetic()
        && bytes[1] == b':'
        && matches!(bytes[2], b'\\' | b'/');
    drive || [r"\", r".\", r"..\"].iter().any(|start| path.starts_with(start))
}

/// Formats a path for an error: escaped and shortened.
fn shown(path: &str) -> String {
    clipped(&printable(path), 200, "…")
}
