//! Where a prompt comes from: arguments, standard input, images.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use posse_actors::conversation::{ContentPart, Prompt};

use crate::failure::{Exit, Failure};
use crate::images::{self, ImageLimits};

/// Bytes of standard input that may be a prompt or its context.
pub const STDIN_BYTES_MAX: u64 = 4 << 20;

/// How long piped input is awaited when there is a prompt already, in milliseconds.
const FIRST_BYTE_MS: u16 = 1000;

/// What the command line says about the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// It is this text; piped input is context.
    Text(String),
    /// It is standard input.
    Stdin,
    /// Nothing was said: standard input if it is no terminal.
    Nothing,
}

/// Puts the prompt together.
pub fn read(
    wanted: Wanted,
    images: &[String],
    image_limits: &ImageLimits,
    detail: &str,
) -> Result<Prompt, Failure> {
    let text = match wanted {
        Wanted::Text(text) => match context()? {
            Some(context) => format!("{text}\n\n<stdin>\n{context}\n</stdin>"),
            None => text,
        },
        Wanted::Nothing if io::stdin().is_terminal() => {
            return Err(Failure::new("CLI002", Exit::Usage, "there is no prompt")
                .fix("say what to do: posse run \"fix the failing test\""));
        }
        Wanted::Stdin | Wanted::Nothing => stdin_text()?,
    };
    of_text(text, images, image_limits, detail)
}

/// Puts the prompt together from a text alone.
pub fn of_text(
    text: String,
    images: &[String],
    image_limits: &ImageLimits,
    detail: &str,
) -> Result<Prompt, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::new("CLI002", Exit::Usage, "the prompt is empty")
            .fix("say what to do: posse run \"fix the failing test\""));
    }
    let mut content = vec![ContentPart::text(text)];
    for image in images {
        content.push(read_image(image, image_limits, detail)?);
    }
    Ok(Prompt { content })
}

/// Piped input beside a prompt, if something comes within a second.
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
    let usage = |what: String| Failure::new("CLI003", Exit::Usage, what).at("standard input");
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

fn read_image(image: &str, limits: &ImageLimits, detail: &str) -> Result<ContentPart, Failure> {
    let detail = Some(detail.to_owned());
    if image.starts_with("https://") || image.starts_with("http://") {
        return Ok(ContentPart::ImageUrl { url: image.to_owned(), detail });
    }
    let url = images::load(Path::new(image), limits)?.data_url();
    Ok(ContentPart::ImageUrl { url, detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_wrong_with_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.png");
        std::fs::write(&file, b"not an image").unwrap();
        let code = |image: &Path, file_bytes_max| {
            let limits = ImageLimits { file_bytes_max, ..ImageLimits::default() };
            read_image(&image.to_string_lossy(), &limits, "auto").unwrap_err().code
        };
        assert_eq!(code(&dir.path().join("none.png"), 100), "IMG001");
        assert_eq!(code(dir.path(), 100), "IMG001");
        assert_eq!(code(&file, 3), "IMG002");
        assert_eq!(code(&file, 100), "IMG003");
    }
}
