//! Prepared standard input and separate standard error of a process, such as a hook.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::{dup2_stderr, dup2_stdin, mkfifo};
use secrecy::SecretString;
use tokio::net::unix::pipe::Receiver;

use crate::Context as _;
use crate::mask::Mask;

/// Environment variable that tells the helper the path of the file for standard input. Users cannot
/// set it, because the environment of commands is an allow-list.
const INPUT: &str = "POSSE_HOOK_INPUT";
/// Environment variable that tells the helper the path of the pipe for standard error.
const ERRORS: &str = "POSSE_HOOK_ERRORS";

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
    /// Creates the input file and the error pipe below `scratch`. Returns posse's end of the pipe,
    /// and the variables that name file and pipe to the helper.
    pub(crate) fn prepare(
        &self,
        scratch: &Path,
    ) -> io::Result<(Receiver, [(OsString, OsString); 2])> {
        let input = scratch.join("input.json");
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&input)?;
        file.write_all(&self.input)?;
        let errors = scratch.join("errors");
        mkfifo(&errors, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Opened for writing as well: a pipe without a writer reports end of file.
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let receiver = Receiver::from_owned_fd(options.open(&errors)?.into())?;
        Ok((receiver, [(INPUT.into(), input.into()), (ERRORS.into(), errors.into())]))
    }
}

/// Connects standard input and standard error to the paths that `environment` names, if any. Runs
/// in the helper, just before the report and the command.
pub(crate) fn redirect(environment: &[(OsString, OsString)]) -> Result<(), String> {
    let place = |name: &str| {
        let found = environment.iter().find(|(given, _)| given == OsStr::new(name));
        found.map(|(_, path)| path)
    };
    if let Some(path) = place(INPUT) {
        let input = File::open(path).context("no standard input")?;
        dup2_stdin(&input).context("no standard input")?;
    }
    if let Some(path) = place(ERRORS) {
        let mut options = File::options();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        let errors = options.open(path).context("no standard error")?;
        // The reader reads continuously, and a full pipe is no error of the command.
        nix::fcntl::fcntl(&errors, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()))
            .context("no standard error")?;
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
