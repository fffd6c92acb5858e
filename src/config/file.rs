//! Reading of one configuration file: bounded, non-blocking, with positions for errors.

use std::fmt::Write as _;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use posse_base::failure::{ErrorCode, Failure, printable};
use posse_base::hex::sha256;

use crate::invalid;

const BYTES_MAX: u64 = 2 << 20;
const EXCERPT_CHARS_MAX: usize = 80;

/// Rules for reading a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadPolicy {
    /// The file may be missing.
    Optional,
    /// A missing file is an error, because the user named the file.
    Required,
    /// The file may be missing. Neither the file nor the folder that contains it may be a symbolic
    /// link, so that a repository cannot make posse read another file.
    Foreign,
}

/// Text of a configuration file, with the name, permissions, owner and hash of the file.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) name: String,
    pub(crate) text: String,
    /// File type and permission bits (`st_mode`).
    pub(crate) mode: u32,
    /// True if the owner of the file is neither this user nor root.
    pub(crate) is_foreign: bool,
    /// True if the file begins with a byte order mark. `text` does not contain the mark.
    pub(crate) has_bom: bool,
    /// SHA-256 of the bytes of the file, in hex. `None` unless read with `ReadPolicy::Foreign`.
    pub(crate) digest: Option<String>,
}

impl ConfigFile {
    /// Reads a file. `None` if the file is missing and `reading` permits that. Fails unless the
    /// file is a regular file of at most 2 MiB with UTF-8 text and no NUL byte.
    pub(crate) fn read(path: &Path, reading: ReadPolicy) -> Result<Option<ConfigFile>, Failure> {
        let name = printable(&path.display().to_string());
        let refused = |code, what: String| {
            invalid(code, what)
                .at(name.clone())
                .fix("move the file away, or replace it by a text file with JSON")
        };
        // A folder that is a link leads out of the repository as well.
        let above = path.parent().and_then(|folder| folder.symlink_metadata().ok());
        if reading == ReadPolicy::Foreign && above.is_some_and(|above| above.is_symlink()) {
            return Err(refused(
                ErrorCode::ConfigUnreadable,
                "the folder of the configuration is a link".into(),
            ));
        }
        let mut flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
        if reading == ReadPolicy::Foreign {
            flags |= nix::libc::O_NOFOLLOW;
        }
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                use std::io::ErrorKind::{NotADirectory, NotFound};
                let missing = matches!(error.kind(), NotFound | NotADirectory);
                if missing && reading != ReadPolicy::Required {
                    return Ok(None);
                }
                let what = "the configuration cannot be read".to_owned();
                let fix = if missing { "name a file that exists" } else { "make it readable" };
                return Err(refused(ErrorCode::ConfigUnreadable, what)
                    .because(error.to_string())
                    .fix(fix));
            }
        };
        let (bytes, metadata) = bytes(file).map_err(|(code, what)| refused(code, what))?;
        let digest = (reading == ReadPolicy::Foreign).then(|| sha256(&bytes));
        let mut text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = 1 + newlines(&error.as_bytes()[..at]);
            refused(ErrorCode::ConfigNotUtf8, "the configuration is not UTF-8".into())
                .at(format!("{name}:{line}"))
        })?;
        if let Some(at) = text.find('\0') {
            let line = 1 + text[..at].matches('\n').count();
            let what = "the configuration contains a NUL byte".into();
            return Err(refused(ErrorCode::ConfigNulByte, what).at(format!("{name}:{line}")));
        }
        let has_bom = text.starts_with('\u{feff}');
        if has_bom {
            text.drain(..'\u{feff}'.len_utf8());
        }
        let (mode, owner) = (metadata.mode(), metadata.uid());
        let is_foreign = owner != 0 && owner != nix::unistd::geteuid().as_raw();
        Ok(Some(ConfigFile { name, text, mode, is_foreign, has_bom, digest }))
    }

    /// Represents a file that does not exist yet, with `text` as its content.
    pub(crate) fn of(name: &str, text: String) -> ConfigFile {
        ConfigFile { name: name.to_owned(), text, mode: 0o600, ..ConfigFile::default() }
    }

    /// Parses the text as a JSON object with comments and trailing commas. `None` if it contains
    /// only white space and comments. Fails for invalid JSON and for any value but an object.
    pub(crate) fn parse(&self) -> Result<Option<ast::Object<'_>>, Failure> {
        let parsed = parse_to_ast(&self.text, &CollectOptions::default(), &options());
        let parsed = parsed.map_err(|error| {
            let file = Path::new(&self.name).file_name();
            let file = file.map_or("it".into(), |name| name.to_string_lossy());
            let what = format!("{file} is not valid JSON: {}", error.kind());
            invalid(ErrorCode::ConfigInvalidJson, what)
                .at(self.place(error.range().start))
                .fix("fix the syntax there; comments and trailing commas are allowed")
        })?;
        match parsed.value {
            None => Ok(None),
            Some(ast::Value::Object(object)) => Ok(Some(object)),
            Some(other) => {
                let failure =
                    invalid(ErrorCode::ConfigInvalidJson, "the configuration is not an object");
                let place = self.place(other.range().start);
                Err(failure.at(place).fix("write { \"key\": value }"))
            }
        }
    }

    /// Describes a byte offset as `file:line:column`, and below it up to 80 characters of the line
    /// with a caret. Omits the line and the caret if the line could contain a secret.
    pub(crate) fn place(&self, offset: usize) -> String {
        let (line, column) = self.line_and_column(offset);
        let mut place = format!("{}:{line}:{column}", self.name);
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        if may_show(text) {
            let skipped = column.saturating_sub(EXCERPT_CHARS_MAX / 2);
            let shown: String = text.chars().skip(skipped).take(EXCERPT_CHARS_MAX).collect();
            let shown = printable(&shown).replace('\t', " ");
            let caret = " ".repeat((column - 1).saturating_sub(skipped));
            let margin = " ".repeat(line.to_string().len());
            let _: std::fmt::Result = write!(place, "\n{line} | {shown}\n{margin} | {caret}^");
        }
        place
    }

    pub(crate) fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = 1 + newlines(before.as_bytes());
        (line, before[start..].chars().count() + 1)
    }
}

/// Parser options: JSON with comments and trailing commas, and no other extension.
pub(crate) fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

#[expect(clippy::naive_bytecount, reason = "configuration files are small")]
pub(crate) fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// True if a line may be quoted on a terminal: it contains no word such as `key` or `token`, and
/// no text that looks like an API key.
fn may_show(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let words = ["key", "token", "secret", "passw", "auth", "cookie"];
    !words.iter().any(|word| lower.contains(word))
        && !line.split(['"', ' ', ',', '\t']).any(crate::looks_like_key)
}

fn bytes(file: File) -> Result<(Vec<u8>, Metadata), (ErrorCode, String)> {
    let unreadable = |error: std::io::Error| {
        (ErrorCode::ConfigUnreadable, format!("it cannot be read: {error}"))
    };
    let metadata = file.metadata().map_err(unreadable)?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let what = match () {
            () if kind.is_dir() => "a folder",
            () if kind.is_fifo() => "a pipe",
            () if kind.is_socket() => "a socket",
            () => "a device",
        };
        let what = format!("the configuration is {what}, not a file");
        return Err((ErrorCode::ConfigUnreadable, what));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(1 << 16)).unwrap_or(0));
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > BYTES_MAX {
        let found = metadata.len().max(BYTES_MAX + 1);
        let what = format!("the configuration is too large: {found} bytes, at most {BYTES_MAX}");
        return Err((ErrorCode::ConfigTooLarge, what));
    }
    Ok((bytes, metadata))
}
