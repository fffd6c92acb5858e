//! Input history of the user in a file: one JSON string per line, appended, readable only by the
//! user. A line that begins with a space is not added.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc::{O_CLOEXEC, O_NOFOLLOW};

/// Maximum number of lines in memory; the oldest are dropped.
const LINES_MAX: usize = 1000;

/// Maximum number of bytes that are read, counted from the end of the file.
const READ_BYTES_MAX: u64 = 1 << 20;

/// File size in bytes above which [`History::open`] rewrites the file with only the lines that it
/// has read.
const FILE_BYTES_MAX: u64 = 2 << 20;

/// Maximum bytes of a line without its trailing white space; a longer line is not added.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Submitted lines, oldest first.
#[derive(Debug, Default)]
pub struct History {
    lines: Vec<String>,
    /// File that stores the lines; `None`: the history ends with the process.
    file: Option<PathBuf>,
}

impl History {
    /// Reads the history from `file`, and shortens the file if it is longer than 2 MiB. An
    /// unreadable file counts as empty. `None` starts an empty history that is not stored.
    pub fn open(file: Option<PathBuf>) -> History {
        let lines = file.as_deref().and_then(|file| read(file).ok()).unwrap_or_default();
        History { lines, file }
    }

    /// All lines, oldest first.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Adds a line without its trailing white space, also to the file; write errors are ignored.
    /// Returns `false` if it was not added because it is empty or too long, begins with a space, or
    /// equals the previous line.
    pub fn add(&mut self, line: &str) -> bool {
        let kept = line.trim_end();
        let again = self.lines.last().is_some_and(|last| last == kept);
        if kept.is_empty() || kept.starts_with(' ') || kept.len() > LINE_BYTES_MAX || again {
            return false;
        }
        self.lines.push(kept.to_owned());
        if self.lines.len() > LINES_MAX {
            self.lines.remove(0);
        }
        if let Some(file) = &self.file {
            // A failed write must not disturb the session.
            append(file, kept).ok();
        }
        true
    }
}

/// Options to open a private file: a new file gets mode 0600, an existing one keeps its mode.
/// Opening fails if the path is a symbolic link.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(O_NOFOLLOW | O_CLOEXEC);
    options
}

fn append(file: &Path, line: &str) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    // One write for each line: several processes append to the same file.
    private_file().append(true).create(true).open(file)?.write_all(&encoded(line))
}

fn encoded(line: &str) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn read(path: &Path) -> io::Result<Vec<String>> {
    let mut file = private_file().read(true).open(path)?;
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(READ_BYTES_MAX)))?;
    let mut end = Vec::new();
    Read::by_ref(&mut file).take(READ_BYTES_MAX).read_to_end(&mut end)?;
    // A line that was cut off at the start is invalid JSON and is skipped, like any other damage.
    let parsed =
        end.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let mut lines: Vec<String> = parsed.collect();
    lines.drain(..lines.len().saturating_sub(LINES_MAX));
    if bytes > FILE_BYTES_MAX {
        // A file that cannot be shortened is read all the same.
        rewrite(path, &lines).ok();
    }
    Ok(lines)
}

fn rewrite(path: &Path, lines: &[String]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file: File = private_file().write(true).create(true).truncate(true).open(&new)?;
    let bytes: Vec<u8> = lines.iter().flat_map(|line| encoded(line)).collect();
    file.write_all(&bytes)?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn lines_are_available_in_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/history");
        let mut history = History::open(Some(file.clone()));
        for line in ["one", "two\nlines", "two\nlines", " secret", "", "\u{1b}[2J"] {
            history.add(line);
        }
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(History::open(Some(file)).lines(), ["one", "two\nlines", "\u{1b}[2J"]);
    }

    #[test]
    fn damaged_lines_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history");
        std::fs::write(&file, b"\"a\"\n\xff\xfe\n{}\n\"b\"\n\"torn").unwrap();
        assert_eq!(History::open(Some(file)).lines(), ["a", "b"]);
        assert!(History::open(Some(dir.path().to_owned())).lines().is_empty());
    }

    #[test]
    fn file_size_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history");
        let line = format!("\"{}\"\n", "x".repeat(1000));
        std::fs::write(&file, line.repeat(3000)).unwrap();
        assert_eq!(History::open(Some(file.clone())).lines().len(), LINES_MAX);
        assert!(std::fs::metadata(&file).unwrap().len() < FILE_BYTES_MAX);
        // The shorter file cannot be written, but the lines are there.
        std::fs::write(&file, line.repeat(3000)).unwrap();
        std::fs::create_dir(file.with_extension("new")).unwrap();
        assert_eq!(History::open(Some(file.clone())).lines().len(), LINES_MAX);
        std::os::unix::fs::symlink(&file, dir.path().join("link")).unwrap();
        assert!(History::open(Some(dir.path().join("link"))).lines().is_empty());
    }
}
