//! Prepared standard input and separate standard error of a process, such as a hook.

use std::io::{self, Seek, Write};
use std::path::Path;

use nix::unistd::{dup2_stderr, dup2_stdin};
use secrecy::SecretString;
use tokio::net::unix::pipe::Receiver;

use crate::Context as _;
use crate::mask::Mask;
use crate::wire::CommandStreams;

/// Standard input and separate standard error of a hook process.
#[derive(Debug, Clone, Default)]
pub struct Dialogue {
    /// Bytes for standard input. The process reads them from a file, so posse never waits for it.
    pub input: Vec<u8>,
    /// Maximum number of bytes of standard error to capture, from its beginning. Further bytes are
    /// discarded.
    pub errors_bytes_max: usize,
}

impl Dialogue {
    /// Creates the input, a file in `folder` that has no name any more, and the error pipe. Returns
    /// posse's end of the pipe and the streams of the process.
    pub(crate) fn prepare(&self, folder: &Path) -> io::Result<(Receiver, CommandStreams)> {
        let mut input = tempfile::tempfile_in(folder)?;
        input.write_all(&self.input)?;
        input.rewind()?;
        let (errors, errors_end) = io::pipe()?;
        // Tokio makes this end non-blocking; the end of the process stays blocking.
        let receiver = Receiver::from_owned_fd(errors.into())?;
        Ok((receiver, CommandStreams { input: input.into(), errors: errors_end.into() }))
    }
}

/// Makes `streams` the standard input and standard error of this process. Runs in the helper, just
/// before the report and the command.
pub(crate) fn redirect(streams: Option<CommandStreams>) -> Result<(), String> {
    if let Some(CommandStreams { input, errors }) = streams {
        dup2_stdin(&input).context("no standard input")?;
        dup2_stderr(&errors).context("no standard error")?;
    }
    Ok(())
}

/// Beginning of a stream, with secrets redacted. Bytes beyond `bytes_max` are discarded; without a
/// [`Dialogue`], all are.
#[derive(Debug)]
pub(crate) struct MaskedPrefix {
    mask: Mask,
    text: Vec<u8>,
    bytes_max: usize,
}

impl MaskedPrefix {
    pub(crate) fn new(dialogue: Option<&Dialogue>, secrets: &[SecretString]) -> MaskedPrefix {
        let bytes_max = dialogue.map_or(0, |dialogue| dialogue.errors_bytes_max);
        let secrets = if dialogue.is_some() { secrets } else { &[] };
        MaskedPrefix { mask: Mask::new(secrets), text: Vec::new(), bytes_max }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let MaskedPrefix { mask, text, bytes_max } = self;
        if text.len() < *bytes_max {
            mask.push(bytes, |bytes| text.extend_from_slice(bytes));
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let MaskedPrefix { mask, text, bytes_max } = &mut self;
        mask.finish(|bytes| text.extend_from_slice(bytes));
        text.truncate(*bytes_max);
        self.text
    }
}
