//! Captured output of a command: beginning and end in memory, and the whole output in a file if it
//! is long.
//!
//! Memory and file size are bounded for any output.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Keeps the first and last bytes of a stream in memory, and writes the whole stream to a file if
/// it is longer.
pub(crate) struct Capture {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    spill: Spill,
    spill_bytes_max: u64,
}

enum Spill {
    /// All bytes are still in memory. Contains the path of the file, which does not exist yet.
    NotYet(PathBuf),
    Open {
        path: PathBuf,
        file: File,
        bytes: u64,
    },
    /// The file could not be created or written, for this reason; the command continues without the
    /// file.
    Broken(String),
}

/// Captured output of a stream after its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// First bytes; all of them if `tail` is empty.
    pub head: Vec<u8>,
    /// Last bytes. Empty if the whole stream is in `head`.
    pub tail: Vec<u8>,
    /// Size of the stream in bytes.
    pub total: u64,
    /// File with the complete stream, up to its size limit. `None` if the stream fits in memory or
    /// the file could not be written.
    pub spill: Option<PathBuf>,
    /// Error of creating or writing the file. `None` if there was none.
    pub spill_failure: Option<String>,
}

impl Captured {
    /// Number of bytes between head and tail that are not in memory.
    pub fn cut(&self) -> u64 {
        self.total - self.head.len() as u64 - self.tail.len() as u64
    }
}

impl Capture {
    /// Captures at most `bytes_max` bytes in memory, half of them from the beginning. A longer
    /// stream is also written to `spill`. The stream may have up to `spill_bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize, spill: PathBuf, spill_bytes_max: u64) -> Capture {
        Capture {
            half: bytes_max / 2,
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            spill: Spill::NotYet(spill),
            spill_bytes_max,
        }
    }

    /// Adds bytes, and writes them to the file if the stream is long. Returns `false` if the stream
    /// has exceeded its size limit and the command must end. An error of the file is stored and
    /// does not count.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let fits = self.spill_part(bytes);
        self.total += bytes.len() as u64;
        let to_head = bytes.len().min(self.half - self.head.len());
        self.head.extend_from_slice(&bytes[..to_head]);
        let rest = &bytes[to_head..];
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
        fits
    }

    /// Writes the stream so far to the file, and all further bytes when they arrive. Does nothing if
    /// the file exists.
    pub(crate) fn spill_now(&mut self) {
        let Spill::NotYet(path) = &self.spill else { return };
        // Nothing was dropped so far, so head and tail are complete.
        self.tail.make_contiguous();
        let parts = [&self.head[..], self.tail.as_slices().0];
        self.spill = match create_output(path, &parts) {
            Ok(file) => Spill::Open { path: path.clone(), file, bytes: self.total },
            Err(error) => Spill::Broken(error.to_string()),
        };
    }

    /// Ends the stream and returns the captured output.
    pub(crate) fn finish(self) -> Captured {
        let (spill, spill_failure) = match self.spill {
            Spill::NotYet(_) => (None, None),
            Spill::Open { path, .. } => (Some(path), None),
            Spill::Broken(failure) => (None, Some(failure)),
        };
        Captured {
            head: self.head,
            tail: self.tail.into(),
            total: self.total,
            spill,
            spill_failure,
        }
    }

    fn spill_part(&mut self, bytes: &[u8]) -> bool {
        if matches!(self.spill, Spill::NotYet(_)) {
            if self.total + bytes.len() as u64 <= 2 * self.half as u64 {
                return true;
            }
            self.spill_now();
        }
        let Spill::Open { file, bytes: written, .. } = &mut self.spill else {
            // The size limit also applies without a file.
            return self.total + (bytes.len() as u64) < self.spill_bytes_max;
        };
        let room = self.spill_bytes_max.saturating_sub(*written);
        let part = &bytes[..usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len())];
        *written += part.len() as u64;
        if let Err(error) = file.write_all(part) {
            self.spill = Spill::Broken(error.to_string());
            return true;
        }
        part.len() == bytes.len()
    }
}

/// Creates the file `path`, and its folder if missing, and writes `parts` one after the other. Only
/// the user can read it. Fails if the file exists.
pub fn create_output(path: &Path, parts: &[&[u8]]) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // Never through an existing file, such as a link.
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(chunks: &[&[u8]], max: usize, cap: u64) -> (Captured, bool, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(max, folder.path().join("outputs/c.txt"), cap);
        let fits = chunks.iter().all(|chunk| capture.push(chunk));
        (capture.finish(), fits, folder)
    }

    #[test]
    fn short_output_stays_in_memory() {
        let (captured, fits, folder) = capture(&[b"abcde", b"fghij"], 10, 100);
        assert!(fits);
        assert_eq!((&captured.head[..], &captured.tail[..]), (&b"abcde"[..], &b"fghij"[..]));
        assert_eq!((captured.cut(), captured.spill), (0, None));
        assert!(!folder.path().join("outputs").exists());
    }

    #[test]
    fn long_output_keeps_both_ends_and_spills_all() {
        let (captured, fits, _folder) = capture(&[b"abc", b"defghi", b"jklmnop", b"q"], 10, 100);
        assert!(fits);
        assert_eq!((&captured.head[..], &captured.tail[..]), (&b"abcde"[..], &b"mnopq"[..]));
        assert_eq!((captured.total, captured.cut()), (17, 7));
        let spilled = std::fs::read(captured.spill.unwrap()).unwrap();
        assert_eq!(spilled, b"abcdefghijklmnopq");
    }

    #[test]
    fn chunk_larger_than_the_buffer_is_kept() {
        let chunk: Vec<u8> = (0..200u8).collect();
        let (captured, _, _folder) = capture(&[&chunk], 10, 1000);
        assert_eq!((&captured.head[..], &captured.tail[..]), (&chunk[..5], &chunk[195..]));
        assert_eq!(std::fs::read(captured.spill.unwrap()).unwrap(), chunk);
    }

    #[test]
    fn output_file_is_bounded() {
        let (captured, fits, _folder) = capture(&[&[b'x'; 30], &[b'y'; 30]], 10, 40);
        assert!(!fits);
        assert_eq!(std::fs::read(captured.spill.unwrap()).unwrap().len(), 40);
    }

    #[test]
    fn existing_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        let path = folder.path().join("c.txt");
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let mut capture = Capture::new(10, path, 100);
        assert!(capture.push(&[b'x'; 20]));
        let captured = capture.finish();
        assert!(captured.spill.is_none() && captured.spill_failure.is_some());
        assert!(!victim.exists());
    }
}
