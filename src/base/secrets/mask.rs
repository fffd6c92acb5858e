//! Redaction of known secret values in a byte stream, including secrets split across chunks.

use std::sync::Arc;

use memchr::memmem::Finder;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Maximum number of secrets for which a substring search is run one by one. With more secrets,
/// every byte is checked as a possible beginning instead.
const SEARCHED_MAX: usize = 16;

/// Text that replaces a secret.
const HIDDEN: &[u8] = b"[secret]";

/// Minimum length of a secret in bytes: shorter values would redact ordinary text.
const SECRET_BYTES_MIN: usize = 6;

/// Redacts known secrets in one stream: replaces each by `[secret]`. Buffers less than the length
/// of the longest secret.
pub struct Mask {
    known: Arc<KnownSecrets>,
    /// Last bytes, which may be the beginning of a secret and were not passed on yet.
    held: Vec<u8>,
}

/// Secrets, prepared for searching.
struct KnownSecrets {
    /// Longest first, so that a secret with another one as prefix is redacted completely.
    secrets: Vec<SecretString>,
    /// Substring searchers that use the rarest bytes of each secret: text without secrets is cheap.
    /// Empty if there are more than [`SEARCHED_MAX`] secrets; then `begins` is used alone.
    finders: Vec<Finder<'static>>,
    /// For each byte value, true if a secret begins with it.
    begins: [bool; 256],
}

impl Mask {
    /// Creates a mask of these secrets; secrets shorter than 6 bytes are ignored.
    pub fn new(secrets: &[SecretString]) -> Mask {
        let mut secrets: Vec<SecretString> = secrets
            .iter()
            .filter(|secret| secret.expose_secret().len() >= SECRET_BYTES_MIN)
            .cloned()
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose_secret().len()));
        let mut begins = [false; 256];
        for secret in &secrets {
            begins[usize::from(secret.expose_secret().as_bytes()[0])] = true;
        }
        let finders = match secrets.len() {
            0..=SEARCHED_MAX => secrets.iter().map(|secret| finder(secret)).collect(),
            _ => Vec::new(),
        };
        Mask { known: Arc::new(KnownSecrets { secrets, finders, begins }), held: Vec::new() }
    }

    /// True if the mask has no secrets and changes nothing.
    pub fn is_idle(&self) -> bool {
        self.known.secrets.is_empty()
    }

    /// Creates a mask with the same secrets for another stream.
    #[must_use]
    pub fn for_new_stream(&self) -> Mask {
        Mask { known: Arc::clone(&self.known), held: Vec::new() }
    }

    /// Redacts a complete text. `None` if that changes nothing. More than half of a secret at the
    /// end of the text is redacted, too.
    pub fn text(&self, text: &str) -> Option<String> {
        if !self.may_contain_secret(text.as_bytes()) {
            return None;
        }
        let mut plain = Vec::with_capacity(text.len());
        let mut mask = self.for_new_stream();
        mask.push(text.as_bytes(), |bytes| plain.extend_from_slice(bytes));
        mask.finish(|bytes| plain.extend_from_slice(bytes));
        let plain = String::from_utf8(plain);
        // Secrets are text, so the rest of a text is text.
        Some(plain.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
            .filter(|plain| plain != text)
    }

    /// Redacts every string in a JSON value, but not the keys of objects.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(plain) = self.text(text) {
                    *text = plain;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(entries) => entries.values_mut().for_each(|value| self.value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// True if `bytes` may contain a secret, or end with the beginning of one; always true with
    /// more than [`SEARCHED_MAX`] secrets. False only if redaction would not change them.
    fn may_contain_secret(&self, bytes: &[u8]) -> bool {
        if self.known.secrets.is_empty() {
            return false;
        }
        self.known.finders.is_empty()
            || self.known.finders.iter().any(|finder| finder.find(bytes).is_some())
            || self.tail(bytes) < bytes.len()
    }

    /// Returns the first index at which a secret may begin that continues after `bytes`; the length
    /// of `bytes` if there is none.
    fn tail(&self, bytes: &[u8]) -> usize {
        // Sorted by length.
        let longest = self.known.secrets.first().map_or(0, |secret| secret.expose_secret().len());
        let from = bytes.len().saturating_sub(longest.saturating_sub(1));
        let begins = |at: &usize| {
            self.known.begins[usize::from(bytes[*at])]
                && matches!(self.found(&bytes[*at..]), MaskMatch::Perhaps)
        };
        (from..bytes.len()).find(begins).unwrap_or(bytes.len())
    }

    /// Redacts the held-back bytes and `chunk`, and passes the result to `out` in pieces. Holds
    /// back last bytes that may be the beginning of a secret.
    pub fn push(&mut self, chunk: &[u8], mut out: impl FnMut(&[u8])) {
        if self.known.secrets.is_empty() {
            out(chunk);
            return;
        }
        let joined;
        let bytes = if self.held.is_empty() {
            chunk
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(chunk);
            joined = held;
            &joined
        };
        if !self.known.finders.is_empty()
            && self.known.finders.iter().all(|finder| finder.find(bytes).is_none())
        {
            let (clean, held) = bytes.split_at(self.tail(bytes));
            if !clean.is_empty() {
                out(clean);
            }
            self.held = held.to_vec();
            return;
        }
        let mut clean_from = 0;
        let mut at = 0;
        while at < bytes.len() {
            if !self.known.begins[usize::from(bytes[at])] {
                at += 1;
                continue;
            }
            match self.found(&bytes[at..]) {
                MaskMatch::Secret(length) => {
                    out(&bytes[clean_from..at]);
                    out(HIDDEN);
                    at += length;
                    clean_from = at;
                }
                MaskMatch::Perhaps => {
                    out(&bytes[clean_from..at]);
                    self.held = bytes[at..].to_vec();
                    return;
                }
                MaskMatch::Nothing => at += 1,
            }
        }
        out(&bytes[clean_from..]);
    }

    /// Ends the stream: passes the held-back bytes to `out`, with complete secrets in them
    /// redacted.
    ///
    /// Held-back bytes that are the beginning and more than half of a secret are all redacted.
    pub fn finish(&mut self, mut out: impl FnMut(&[u8])) {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return;
        }
        let is_most = self.known.secrets.iter().any(|secret| {
            let secret = secret.expose_secret().as_bytes();
            secret.starts_with(&held) && held.len() * 2 > secret.len()
        });
        if is_most {
            out(HIDDEN);
            return;
        }
        // It may contain a shorter secret.
        let mut at = 0;
        while at < held.len() {
            let whole = self.known.secrets.iter().map(|secret| secret.expose_secret().as_bytes());
            if let Some(secret) = whole.into_iter().find(|secret| held[at..].starts_with(secret)) {
                out(HIDDEN);
                at += secret.len();
            } else {
                out(&held[at..=at]);
                at += 1;
            }
        }
    }

    fn found(&self, bytes: &[u8]) -> MaskMatch {
        let mut found = MaskMatch::Nothing;
        for secret in &self.known.secrets {
            let secret = secret.expose_secret().as_bytes();
            if bytes.starts_with(secret) {
                return MaskMatch::Secret(secret.len());
            }
            // A longer secret may still follow; a shorter one must wait for it.
            if bytes.len() < secret.len() && secret.starts_with(bytes) {
                found = MaskMatch::Perhaps;
                break;
            }
        }
        found
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mask").field("secrets", &self.known.secrets.len()).finish_non_exhaustive()
    }
}

fn finder(secret: &SecretString) -> Finder<'static> {
    Finder::new(secret.expose_secret().as_bytes()).into_owned()
}

enum MaskMatch {
    Secret(usize),
    Perhaps,
    Nothing,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(secrets: &[&str], chunks: &[&[u8]]) -> String {
        let secrets: Vec<SecretString> = secrets.iter().map(|s| SecretString::from(*s)).collect();
        let mut mask = Mask::new(&secrets);
        let mut all = Vec::new();
        for chunk in chunks {
            mask.push(chunk, |bytes| all.extend_from_slice(bytes));
        }
        mask.finish(|bytes| all.extend_from_slice(bytes));
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn secret_is_masked_across_any_chunk_boundary() {
        let text = b"key=sk-abcdef123;sk-abc sk-abcdef123";
        for cut in 0..text.len() {
            let (a, b) = text.split_at(cut);
            let out = masked(&["sk-abcdef123"], &[a, b]);
            assert_eq!(out, "key=[secret];sk-abc [secret]", "cut at {cut}");
        }
    }

    #[test]
    fn longest_of_overlapping_secrets_is_masked() {
        let secrets = ["token-1", "token-123456"];
        assert_eq!(masked(&secrets, &[b"token-1", b"23456 token-1x"]), "[secret] [secret]x");
    }

    #[test]
    fn short_values_are_not_masked() {
        assert_eq!(masked(&["abc", ""], &[b"abcabc"]), "abcabc");
    }

    #[test]
    fn partial_secret_at_the_end_is_masked() {
        assert_eq!(masked(&["sk-abcdef123"], &[b"x sk-abcdef"]), "x [secret]");
        assert_eq!(masked(&["sk-abcdef123"], &[b"x sk-"]), "x sk-");
    }

    #[test]
    fn text_without_secrets_is_unchanged() {
        let secrets: Vec<SecretString> =
            ["sk-abcdef123", "hunter2hunter2"].map(SecretString::from).into();
        let mask = Mask::new(&secrets);
        assert_eq!(mask.text("nothing here, s, sk-, hunter2"), None);
        assert_eq!(mask.text("a sk-abcdef123 b").as_deref(), Some("a [secret] b"));
        assert_eq!(mask.text("cut: hunter2hun").as_deref(), Some("cut: [secret]"));
        let mut value = serde_json::json!({"a": ["x", "hunter2hunter2"], "n": 1});
        mask.value(&mut value);
        assert_eq!(value, serde_json::json!({"a": ["x", "[secret]"], "n": 1}));
        assert!(Mask::new(&[]).is_idle() && Mask::new(&[]).text("hunter2hunter2").is_none());
    }

    #[test]
    fn many_secrets_are_found() {
        let all: Vec<String> = (100..200).map(|nth| format!("secret-{nth}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(masked(&all, &[b"a secret-1", b"57 b"]), "a [secret] b");
    }

    proptest! {
        #[test]
        fn search_matches_the_naive_search(text in "[ab-]{0,60}", cut in 0usize..60) {
            let secrets = ["aab-ab", "ab-abab-"].map(SecretString::from);
            let mut searching = Mask::new(&secrets);
            let mut looking = Mask::new(&secrets);
            Arc::get_mut(&mut looking.known).unwrap().finders.clear();
            let (a, b) = text.as_bytes().split_at(cut.min(text.len()));
            let mut outs = [Vec::new(), Vec::new()];
            for (mask, out) in [&mut searching, &mut looking].into_iter().zip(&mut outs) {
                for chunk in [a, b] {
                    mask.push(chunk, |bytes| out.extend_from_slice(bytes));
                }
                mask.finish(|bytes| out.extend_from_slice(bytes));
            }
            prop_assert_eq!(&outs[0], &outs[1]);
        }

        #[test]
        fn chunking_does_not_change_the_result(text in "[ab-]{0,60}", cuts in prop::collection::vec(0usize..60, 0..6)) {
            let secrets = ["aab-ab", "ab-abab-"];
            let whole = masked(&secrets, &[text.as_bytes()]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&text.as_bytes()[from..cut]);
                from = cut;
            }
            chunks.push(&text.as_bytes()[from..]);
            prop_assert_eq!(masked(&secrets, &chunks), whole);
        }
    }
}
