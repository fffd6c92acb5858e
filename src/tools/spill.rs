//! Spilled outputs: files with the whole output of a call of which the model gets only a part.

use std::io;
use std::path::{Path, PathBuf};

use posse_actors::conversation::CallId;
use posse_sandbox::create_output;

/// Path of the file for the spilled output of `call`.
pub fn path(session_dir: &Path, call: &CallId) -> PathBuf {
    session_dir.join("outputs").join(format!("{}.txt", file_name(call.as_str())))
}

/// Name by which `read_file` reads the output of `call`: `output:` and its id.
pub fn name(call: &CallId) -> String {
    format!("output:{call}")
}

/// Stores `parts`, concatenated, as the spilled output of `call`. Returns the path of the file.
/// Fails if the file exists already.
pub(crate) fn store(session_dir: &Path, call: &CallId, parts: &[&[u8]]) -> io::Result<PathBuf> {
    let path = path(session_dir, call);
    create_output(&path, parts)?;
    Ok(path)
}

/// Converts a call id to a file name: its first 100 characters, with `_` for all but letters,
/// digits and `-`. A malformed id cannot leave the folder.
fn file_name(id: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    id.chars().take(100).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_id_cannot_escape_its_folder() {
        let at = |id: &str| path(Path::new("/s"), &CallId::new(id));
        assert_eq!(at("call-1a"), Path::new("/s/outputs/call-1a.txt"));
        assert_eq!(at("../../etc/x"), Path::new("/s/outputs/______etc_x.txt"));
        assert_eq!(at("").parent(), Some(Path::new("/s/outputs")));
    }

    #[test]
    fn stored_output_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let call = CallId::new("c1");
        let path = store(folder.path(), &call, &[b"a", b"b"]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"ab");
        assert!(store(folder.path(), &call, &[b"c"]).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"ab");
    }
}
