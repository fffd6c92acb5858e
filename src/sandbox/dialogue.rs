//! A process that is asked something: its standard input is given, and its standard error does not
//! run into its answer.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::sandbox::mask::Mask;

/// Tells the helper what to open as standard input. Nothing else sets it: what commands get of our
/// environment is an allow-list.
pub(crate) const INPUT: &str = "POSSE_HOOK_INPUT";

/// What a process is asked.
#[derive(Debug, Clone, Default)]
pub struct Dialogue {
    /// Its standard input. A file of its temporary folder, so that a process that never reads it
    /// keeps nobody waiting.
    pub input: Vec<u8>,
    /// Bytes of standard error that are kept, from the beginning.
    pub errors_bytes_max: usize,
}

impl Dialogue {
    /// Writes the input below `scratch`, and returns the variable that leads the helper to it.
    pub(crate) fn variable(&self, scratch: &Path) -> io::Result<(OsString, PathBuf)> {
        let path = scratch.join("input.json");
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&self.input)?;
        Ok((INPUT.into(), path))
    }
}

/// The beginning of a stream, without secrets.
#[derive(Debug)]
pub(crate) struct Kept {
    mask: Mask,
    text: Vec<u8>,
    bytes_max: usize,
}

impl Kept {
    pub(crate) fn new(dialogue: Option<&Dialogue>, secrets: &[SecretString]) -> Kept {
        let bytes_max = dialogue.map_or(0, |dialogue| dialogue.errors_bytes_max);
        let secrets = if dialogue.is_some() { secrets } else { &[] };
        Kept { mask: Mask::new(secrets), text: Vec::new(), bytes_max }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let Kept { mask, text, bytes_max } = self;
        if text.len() < *bytes_max {
            mask.push(bytes, |bytes| text.extend_from_slice(bytes));
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let Kept { mask, text, bytes_max } = &mut self;
        mask.finish(|bytes| text.extend_from_slice(bytes));
        text.truncate(*bytes_max);
        self.text
    }
}
