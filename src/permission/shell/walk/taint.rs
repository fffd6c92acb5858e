//! Taint: marks text whose content is not known before a command runs, because it is downloaded or
//! decoded.

use std::ops::{BitOr, BitOrAssign};

use super::base;
use crate::shell::Names;
use crate::shell::danger::{DECODED, DOWNLOADED, Danger};
use crate::shell::wrappers::DOWNLOADERS;

/// Set of sources of unknown content: downloads, decoding. Empty: the text contains neither
/// downloaded nor decoded parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taint(u8);

impl Taint {
    const DOWNLOADED: Taint = Taint(1);
    const DECODED: Taint = Taint(2);

    /// Taint of the output of the program `name` with these arguments.
    pub(super) fn of_program<'a>(name: &str, mut words: impl Iterator<Item = &'a str>) -> Taint {
        if DOWNLOADERS.has(name) {
            return Taint::DOWNLOADED;
        }
        let decodes = match name {
            "base64" | "base32" | "basenc" | "gbase64" => words.any(|word| {
                let letters = word.strip_prefix('-').unwrap_or_default();
                "--decode".starts_with(word) && word.len() >= 3
                    || !letters.starts_with('-') && letters.contains(['d', 'D'])
            }),
            "xxd" => words.any(|word| word.starts_with("-r")),
            "openssl" => words.any(|word| word == "-d"),
            "uudecode" | "rev" | "rot13" | "caesar" => true,
            _ => false,
        };
        if decodes { Taint::DECODED } else { Taint::default() }
    }

    /// Taint of the output of a whole command, whose program may be behind wrappers: each of the
    /// first eight words counts as a program.
    pub(super) fn of_words(words: &[&str]) -> Taint {
        let mut taint = Taint::default();
        for (at, word) in words.iter().enumerate().take(8) {
            let rest = words.get(at + 1..).unwrap_or_default();
            taint |= Taint::of_program(base(word), rest.iter().copied());
        }
        taint
    }

    /// Danger of executing text with this taint. `None` if the taint is empty.
    pub(super) fn danger(self) -> Option<Danger> {
        match self {
            Taint(0) => None,
            taint if taint.0 & Taint::DOWNLOADED.0 != 0 => Some(DOWNLOADED),
            _ => Some(DECODED),
        }
    }
}

impl BitOr for Taint {
    type Output = Taint;

    fn bitor(self, other: Taint) -> Taint {
        Taint(self.0 | other.0)
    }
}

impl BitOrAssign for Taint {
    fn bitor_assign(&mut self, other: Taint) {
        self.0 |= other.0;
    }
}

/// True if `program`, the program text of an interpreter, decodes text and runs the result.
pub(super) fn runs_decoded_text(program: &str) -> bool {
    const RUNS: Names = Names("exec eval system popen spawn subprocess Function compile IEX iex");
    const DECODES: Names = Names(
        "\
        b64decode decodebytes a85decode b32decode b16decode unhexlify fromhex decode_base64 \
        base64_decode decode64 strict_decode64 atob hex2bin rot13 rot_13 str_rot13 \
        FromBase64String unpack",
    );
    let mut names = program.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut runs = false;
    let mut decodes = false;
    names.any(|name| {
        runs |= RUNS.has(name);
        decodes |= DECODES.has(name);
        runs && decodes
    }) || (runs && program.contains("Buffer.from") && program.contains("base64"))
}
