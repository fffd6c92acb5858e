//! Private file in which a person edits a text while a request is open.

use std::fs;
use std::io::{self, Read as _, Write as _};

use posse_base::failure::printable;
use tempfile::NamedTempFile;

/// File with a text, which is removed on drop.
#[derive(Debug)]
pub(super) struct DraftFile {
    file: NamedTempFile,
    /// Noun for messages: `plan`.
    what: &'static str,
    /// Maximum characters of the text.
    chars_max: usize,
}

impl DraftFile {
    /// Creates a file with `text` that only the user can read, below the folder for temporary files.
    pub(super) fn create(
        what: &'static str,
        extension: &str,
        text: &str,
        chars_max: usize,
    ) -> io::Result<DraftFile> {
        let mut file = tempfile::Builder::new()
            .prefix(&format!("posse-{what}-"))
            .suffix(&format!(".{extension}"))
            .tempfile()?;
        file.write_all(text.as_bytes())?;
        Ok(DraftFile { file, what, chars_max })
    }

    /// Path of the file, for display.
    pub(super) fn place(&self) -> String {
        printable(&self.file.path().display().to_string())
    }

    /// The text that the user has saved. The error says why it cannot be used.
    pub(super) fn saved(&self) -> Result<String, String> {
        let DraftFile { file, what, chars_max } = self;
        let bytes_max = 4 * *chars_max as u64;
        let mut bytes = Vec::new();
        // An editor may have replaced the file.
        let read = fs::File::open(file.path())
            .and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes));
        read.map_err(|error| format!("cannot read the {what}: {error}"))?;
        if bytes.len() as u64 > bytes_max {
            return Err(format!("the {what} is longer than {chars_max} characters"));
        }
        String::from_utf8(bytes).map_err(|_| format!("the {what} is not valid UTF-8"))
    }
}
