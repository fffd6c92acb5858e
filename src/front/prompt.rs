//! Sources of a prompt: arguments, standard input, images.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use posse_actors::conversation::{ContentPart, Prompt};
use posse_base::failure::{ErrorCode, Exit, Failure, printable};
use posse_base::terminal;
use posse_cli::PromptArg;
use posse_images::ImageLimits;

/// Maximum size of standard input as prompt or context, in bytes.
pub const STDIN_BYTES_MAX: u64 = 4 << 20;

/// Maximum wait in milliseconds for the first piped byte if there is a prompt already. Without any
/// byte the input is ignored.
const FIRST_BYTE_MS: u16 = 1000;

/// Images of a prompt, as named by the user, and how to load them.
#[derive(Debug, Clone, Copy)]
pub struct Images<'a> {
    /// Names as given: paths or addresses.
    pub named: &'a [String],
    /// Base of relative paths.
    pub cwd: &'a Path,
    /// Limits of an image.
    pub limits: ImageLimits,
    /// Requested resolution: `detail` of the image in the model request.
    pub detail: &'a str,
}

/// Assembles the prompt of the command line with its images, as [`of_text`] does. Piped input is
/// added as context to a prompt that is given as text. With `Stdin` or without a prompt, standard
/// input is the prompt; without a prompt it must not be a terminal. Fails if the input is longer
/// than [`STDIN_BYTES_MAX`], binary or not UTF-8.
pub fn read(wanted: Option<PromptArg>, images: &Images<'_>) -> Result<Prompt, Failure> {
    let text = match wanted {
        Some(PromptArg::Text(text)) => match context()? {
            Some(context) => format!("{text}\n\n<stdin>\n{context}\n</stdin>"),
            None => text,
        },
        None if io::stdin().is_terminal() => {
            return Err(Failure::new(ErrorCode::PromptMissing, Exit::Usage, "there is no prompt")
                .fix("say what to do: posse run \"fix the failing test\""));
        }
        Some(PromptArg::Stdin) | None => stdin_text()?,
    };
    of_text(text, images)
}

/// Assembles a prompt from a text and the images, without standard input, and lists the images on
/// standard error. Fails if the text is blank or an image cannot be loaded.
pub fn of_text(text: String, images: &Images<'_>) -> Result<Prompt, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::new(ErrorCode::PromptMissing, Exit::Usage, "the prompt is empty")
            .fix("say what to do: posse run \"fix the failing test\""));
    }
    let mut content = vec![ContentPart::text(text)];
    let mut attached = String::new();
    for image in images.named {
        let (part, about) = images.read(image)?;
        content.push(part);
        // Writing to a string cannot fail.
        let _ = writeln!(attached, "image {}", printable(&about));
    }
    terminal::stderr().write_all(attached.as_bytes()).ok();
    Ok(Prompt { content })
}

/// Reads piped input to its end, in addition to a prompt. `None` if standard input is not a pipe,
/// file or socket, if nothing arrives within a second, or if the input is blank. Fails if it is too
/// long, binary or not UTF-8.
fn context() -> Result<Option<String>, Failure> {
    let stdin = io::stdin();
    let Ok(stat) = fstat(&stdin) else { return Ok(None) };
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    if kind != SFlag::S_IFIFO && kind != SFlag::S_IFREG && kind != SFlag::S_IFSOCK {
        return Ok(None);
    }
    let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let came = poll(&mut ready, PollTimeout::from(FIRST_BYTE_MS)).unwrap_or(0);
    if came == 0 {
        return Ok(None);
    }
    let text = stdin_text()?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

fn stdin_text() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes);
    let usage = |what: String| {
        let what = format!("standard input {what}");
        Failure::new(ErrorCode::PromptUnreadable, Exit::Usage, what)
    };
    read.map_err(|error| usage(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        let what = format!("is longer than {} MiB", STDIN_BYTES_MAX >> 20);
        return Err(usage(what).fix("put it into a file and name the file in the prompt"));
    }
    if bytes.contains(&0) {
        let what = format!("is binary ({} bytes)", bytes.len());
        return Err(usage(what).fix("pipe text, or name the file in the prompt"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        usage(format!("is not valid UTF-8 (byte {at})")).fix("convert it to UTF-8")
    })
}

impl Images<'_> {
    /// Loads an image; returns it with a description for display. An http(s) address is passed on
    /// and not loaded. Fails if a file cannot be read or exceeds the limits.
    pub fn read(&self, image: &str) -> Result<(ContentPart, String), Failure> {
        let detail = Some(self.detail.to_owned());
        if image.starts_with("https://") || image.starts_with("http://") {
            let part = ContentPart::ImageUrl { url: image.to_owned(), detail };
            return Ok((part, image.to_owned()));
        }
        let path = self.find(image);
        let loaded = posse_images::load(&path, &self.limits)?;
        let about = format!("{} ({})", path.display(), loaded.describe());
        Ok((ContentPart::ImageUrl { url: loaded.data_url(), detail }, about))
    }

    /// Path of an image: the name as given, or decoded from the form in which a terminal inserts a
    /// dropped file if only that path exists.
    fn find(&self, image: &str) -> PathBuf {
        let as_it_is = self.cwd.join(image);
        if as_it_is.symlink_metadata().is_ok() {
            return as_it_is;
        }
        let dropped = dropped(image).map(|path| self.cwd.join(path));
        dropped.filter(|path| path.symlink_metadata().is_ok()).unwrap_or(as_it_is)
    }
}

/// Decodes a dropped path with quotes, backslashes, or a `file://` address. `None` if a backslash
/// at the end escapes nothing.
fn dropped(text: &str) -> Option<PathBuf> {
    let text = text.trim();
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Some(PathBuf::from(inner));
        }
    }
    if let Some(path) = text.strip_prefix("file://") {
        let bytes = percent_encoding::percent_decode_str(path).collect();
        return Some(PathBuf::from(OsString::from_vec(bytes)));
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        plain.push(if c == '\\' { rest.next()? } else { c });
    }
    Some(PathBuf::from(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_error_names_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.png");
        std::fs::write(&file, b"not an image").unwrap();
        let code = |image: &Path, file_bytes_max| {
            let limits = ImageLimits { file_bytes_max, ..ImageLimits::default() };
            let images = Images { named: &[], cwd: Path::new("/"), limits, detail: "auto" };
            images.read(&image.to_string_lossy()).unwrap_err().code
        };
        assert_eq!(code(&dir.path().join("none.png"), 100), ErrorCode::ImageUnreadable);
        assert_eq!(code(dir.path(), 100), ErrorCode::ImageUnreadable);
        assert_eq!(code(&file, 3), ErrorCode::ImageTooManyBytes);
        assert_eq!(code(&file, 100), ErrorCode::ImageFormatUnknown);
    }

    #[test]
    fn finds_dropped_files() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("a b'c.png");
        std::fs::write(&name, b"").unwrap();
        let (limits, named) = (ImageLimits::default(), &[]);
        let images = Images { named, cwd: dir.path(), limits, detail: "auto" };
        let place = dir.path().display();
        let table = [
            "a b'c.png".to_owned(),
            "'a b'c.png'".to_owned(),
            "\"a b'c.png\" ".to_owned(),
            r"a\ b\'c.png".to_owned(),
            format!("file://{place}/a%20b%27c.png"),
            format!("{place}/a b'c.png"),
        ];
        for text in table {
            assert_eq!(images.find(&text), name, "{text}");
        }
        for text in ["'", "file://%", "file://%zz", "\\", "none.png"] {
            assert_eq!(images.find(text), dir.path().join(text), "{text}");
        }
    }
}
