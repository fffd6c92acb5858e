//! Sanitisation of data from models, tools and other servers into values that every server accepts.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::lenient_json::replace_surrogates;

/// Maximum length of a tool name that every server accepts, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Maximum length of a tool name in a reply, in bytes. A longer name is cut.
const CALLED_NAME_BYTES_MAX: usize = 128;

/// Maximum length of a call id that every server accepts, in bytes.
const ID_BYTES_MAX: usize = 64;

/// Media types of images that every server accepts.
const IMAGES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Replacement for an image that the provider would reject.
pub(crate) const ODD_IMAGE: &str = "[image left out: the provider takes no images of this kind]";
/// Text that is sent as the result of a call without a recorded result.
pub(crate) const NO_RESULT: &str =
    "error: this call has no recorded result; it may or may not have run";
/// Text that is sent as the result of a call that returned nothing.
pub(crate) const NO_OUTPUT: &str = "(no output)";
/// Replacement for an image if the model accepts none.
pub(crate) const NO_VISION: &str = "[image left out: this model takes no images]";

/// Replacement for an image beyond the limits of the provider.
pub(crate) const TOO_MANY: &str =
    "[image left out: the request has more images than the provider takes]";

/// Converts a tool name of the history, which may be an invention of a model, to one that every
/// server accepts: 1 to 64 ASCII letters, digits, `_` and `-`. Any other character becomes `_`, a
/// longer name is cut, and an empty one becomes `unnamed`.
pub(crate) fn tool_name(name: &str) -> Cow<'_, str> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_fine) {
        return name.into();
    }
    let tame: String =
        name.chars().take(NAME_BYTES_MAX).map(|c| if is_fine(c) { c } else { '_' }).collect();
    if tame.is_empty() { "unnamed".into() } else { tame.into() }
}

/// Converts the tool name of a reply to ASCII letters, digits, `_`, `.` and `-`, at most 128 bytes.
/// Any other character becomes `_`, so that the name is an unknown tool and cannot control a
/// terminal.
pub(crate) fn called_name(name: String) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.len() <= CALLED_NAME_BYTES_MAX && name.chars().all(is_fine) {
        return name;
    }
    let letters = name.chars().take(CALLED_NAME_BYTES_MAX);
    letters.map(|c| if is_fine(c) { c } else { '_' }).collect()
}

/// Converts the arguments of a call to a JSON object without lone surrogates, as servers require of
/// a history. Blank text becomes an empty object; another value, or invalid JSON, becomes a member
/// of an object.
pub(crate) fn arguments(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if text.is_empty() {
        return "{}".into();
    }
    let text = replace_surrogates(text).map_or(Cow::Borrowed(text), Cow::Owned);
    if text.starts_with('{') && serde_json::from_str::<IgnoredAny>(&text).is_ok() {
        return text;
    }
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(_) => format!("{{\"value\":{text}}}").into(),
        Err(_) => serde_json::json!({ "invalid_json": text }).to_string().into(),
    }
}

/// Converts a call id to one that every server accepts: 1 to 64 ASCII letters, digits, `_` and `-`.
/// An invalid id becomes its first 32 valid characters and a hash, so different ids stay different
/// unless hashes collide.
pub(crate) fn call_id(id: &str) -> Cow<'_, str> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.is_empty() && id.len() <= ID_BYTES_MAX && id.chars().all(is_fine) {
        return id.into();
    }
    let hash = fingerprint(id.bytes());
    let start: String = id.chars().filter(|c| is_fine(*c)).take(ID_BYTES_MAX / 2).collect();
    format!("{start}_{hash:016x}").into()
}

/// FNV-1a hash: distinguishes texts; not resistant to deliberate collisions.
pub(crate) fn fingerprint(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Media type and Base64 data of a `data:` URL, if it is an image of a type that every server
/// accepts. `None`: any other URL. The data is not validated, except that it is not empty.
pub(crate) fn inline_image(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let kind = head.strip_suffix(";base64")?.split(';').next()?;
    (IMAGES.contains(&kind) && !data.is_empty()).then_some((kind, data))
}

/// Cache breakpoint: a JSON member in the last block of a message or of a list, such as the tools.
/// The server may cache the request up to this block.
pub(crate) const CACHE_MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;

/// Appends `json`. If `marked`, inserts a cache breakpoint before the last `closing` bytes of
/// `json`, which close a block.
pub(crate) fn write_marked(body: &mut Vec<u8>, json: &[u8], closing: usize, marked: bool) {
    let (inner, end) = json.split_at(json.len() - closing);
    body.extend_from_slice(inner);
    if marked {
        body.extend_from_slice(CACHE_MARK);
    }
    body.extend_from_slice(end);
}

/// JSON text of an object to which members are appended one by one.
#[derive(Debug)]
pub(crate) struct JsonObject(Vec<u8>);

impl JsonObject {
    pub(crate) fn with_capacity(bytes: usize) -> JsonObject {
        JsonObject(Vec::with_capacity(bytes))
    }

    /// Appends the name of a member, and returns the buffer, to which the caller appends the value.
    pub(crate) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        write_json(&mut self.0, name);
        self.0.push(b':');
        &mut self.0
    }

    /// Appends a member.
    pub(crate) fn member(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        write_json(self.name(name), value);
    }

    /// Appends a member if it has a value.
    pub(crate) fn optional(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.member(name, &value);
        }
    }

    /// Closes the object and returns its JSON text. The object must have at least one member.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

/// Appends a comma, unless `json` is empty.
pub(crate) fn comma(json: &mut Vec<u8>) {
    if !json.is_empty() {
        json.push(b',');
    }
}

/// Appends `value` as JSON.
pub(crate) fn write_json(body: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    #[expect(clippy::expect_used, reason = "strings, numbers and trees always have a JSON form")]
    serde_json::to_writer(body, value).expect("writing to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn called_names_are_plain() {
        for name in ["bash", "mcp__server.tool-1", ""] {
            assert_eq!(called_name(name.to_owned()), name);
        }
        for (name, expected) in [
            ("ba\u{1b}]52;c;A\u{7}sh", "ba_52_c_A_sh".replace("_52", "__52")),
            ("bash\u{202e}", "bash_".to_owned()),
            ("b\u{9b}2J", "b_2J".to_owned()),
            (&"x".repeat(200), "x".repeat(128)),
        ] {
            assert_eq!(called_name(name.to_owned()), expected);
        }
    }
}
