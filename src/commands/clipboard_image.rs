//! The image in the clipboard, read with the program of the platform.

use std::time::Duration;

use posse_actors::conversation::ContentPart;

use crate::config::Environment;
use crate::failure::{ErrorCode, Exit, Failure};
use crate::images::{ImageLimits, from_bytes};
use crate::sandbox;

/// Maximum bytes that a program may print.
const BYTES_MAX: usize = 32 << 20;

/// Time limit of a program.
const LIMIT: Duration = Duration::from_secs(5);

/// Prefix and suffix of the bytes that `osascript` prints in hexadecimal digits.
const APPLE_DATA: (&str, &str) = ("«data PNGf", "»");

/// Programs that print the image in the clipboard, and the variable that must be set for each; empty:
/// none.
const PROGRAMS: [(&str, &str, &[&str]); 4] = [
    ("WAYLAND_DISPLAY", "wl-paste", &["--no-newline", "--type", "image/png"]),
    ("DISPLAY", "xclip", &["-selection", "clipboard", "-t", "image/png", "-o"]),
    ("", "pngpaste", &["-"]),
    ("", "osascript", &["-e", "get the clipboard as «class PNGf»"]),
];

/// Reads the image in the clipboard. Returns it with a description. The error says that there is no
/// program for it, or no image.
pub(super) fn read(
    environment: &Environment,
    limits: &ImageLimits,
    detail: &str,
) -> Result<(ContentPart, String), Failure> {
    let found = commands(|name| environment.get(name).map(str::to_owned));
    if found.is_empty() {
        let what = "no program here reads images from the clipboard";
        return Err(unreadable(what).fix(
            "install wl-clipboard (Wayland), xclip (X11) or pngpaste (macOS), or paste the path of an \
             image file",
        ));
    }
    let mut last = String::new();
    for argv in found {
        match sandbox::run_clipboard_command(&argv, BYTES_MAX, LIMIT) {
            Ok(bytes) => {
                let bytes = apple_bytes(&bytes).unwrap_or(bytes);
                if bytes.is_empty() {
                    continue;
                }
                let image = from_bytes(bytes, limits)?;
                let about = format!("of the clipboard ({})", image.describe());
                let detail = Some(detail.to_owned());
                return Ok((ContentPart::ImageUrl { url: image.data_url(), detail }, about));
            }
            Err(why) => last = why,
        }
    }
    let failure = unreadable("the clipboard contains no image");
    Err(if last.is_empty() { failure } else { failure.because(last) })
}

fn unreadable(what: &str) -> Failure {
    Failure::new(ErrorCode::ImageUnreadable, Exit::Usage, what)
}

/// Commands of the programs that exist. `variable`: returns the value of an environment variable.
fn commands(variable: impl Fn(&str) -> Option<String>) -> Vec<Vec<String>> {
    let path = variable("PATH").unwrap_or_default();
    let usable = PROGRAMS.iter().filter(|(needed, ..)| {
        needed.is_empty() || variable(needed).is_some_and(|value| !value.is_empty())
    });
    let command = |(_, program, arguments): &(&str, &str, &[&str])| {
        let program = sandbox::find_trusted_program(program.as_ref(), path.as_ref())?
            .to_string_lossy()
            .into_owned();
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        Some(std::iter::once(program).chain(arguments).collect())
    };
    usable.filter_map(command).collect()
}

/// Bytes of an image that `osascript` has printed. `None` for any other output.
fn apple_bytes(output: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(output).ok()?.trim();
    let digits = text.strip_prefix(APPLE_DATA.0)?.strip_suffix(APPLE_DATA.1)?;
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_the_display_and_in_absolute_folders() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().canonicalize().unwrap();
        let bin = bin.to_str().unwrap();
        for program in ["xclip", "wl-paste"] {
            let program = dir.path().join(program);
            std::fs::write(&program, "").unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&program, executable).unwrap();
        }
        let found = |variables: &[(&str, &str)]| {
            let commands = commands(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            });
            let programs = commands.into_iter().map(|argv| argv[0].replace(bin, ""));
            programs.collect::<Vec<_>>()
        };
        assert_eq!(found(&[("PATH", bin), ("DISPLAY", ":0")]), ["/xclip"]);
        let both = [("PATH", bin), ("DISPLAY", ":0"), ("WAYLAND_DISPLAY", "w")];
        assert_eq!(found(&both), ["/wl-paste", "/xclip"]);
        assert!(found(&[("PATH", bin)]).is_empty());
        assert!(found(&[("PATH", ".:"), ("DISPLAY", ":0")]).is_empty());
        assert_eq!(apple_bytes("«data PNGf00ff»\n".as_bytes()), Some(vec![0, 255]));
        assert_eq!(apple_bytes("«data PNGf0g»".as_bytes()), None);
        assert_eq!(apple_bytes(b"\x89PNG"), None);
    }
}
