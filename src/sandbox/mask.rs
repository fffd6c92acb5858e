//! Hides known secret values in a stream of bytes, also where a secret is cut by a chunk's end.

use secrecy::{ExposeSecret, SecretString};

/// What stands where a secret was.
const HIDDEN: &[u8] = b"[secret]";

/// Shorter values would hide ordinary text.
const SECRET_BYTES_MIN: usize = 6;

/// Replaces secrets. Holds back no more than the longest of them.
pub(crate) struct Mask {
    /// Longest first, so that a secret that begins with another one is hidden whole.
    secrets: Vec<SecretString>,
    /// Whether some secret begins with this byte.
    begins: [bool; 256],
    /// A tail that may be the beginning of a secret.
    held: Vec<u8>,
}

impl Mask {
    pub(crate) fn new(secrets: &[SecretString]) -> Mask {
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
        Mask { secrets, begins, held: Vec::new() }
    }

    /// Hands what is certain of `chunk`, and of what was held back before, to `out`.
    pub(crate) fn push(&mut self, chunk: &[u8], mut out: impl FnMut(&[u8])) {
        if self.secrets.is_empty() {
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
        let mut clean_from = 0;
        let mut at = 0;
        while at < bytes.len() {
            if !self.begins[usize::from(bytes[at])] {
                at += 1;
                continue;
            }
            match self.found(&bytes[at..]) {
                Found::Secret(length) => {
                    out(&bytes[clean_from..at]);
                    out(HIDDEN);
                    at += length;
                    clean_from = at;
                }
                Found::Perhaps => {
                    out(&bytes[clean_from..at]);
                    self.held = bytes[at..].to_vec();
                    return;
                }
                Found::Nothing => at += 1,
            }
        }
        out(&bytes[clean_from..]);
    }

    /// The stream has ended: what was held back is not a whole secret.
    ///
    /// The beginning of a secret is hidden as well when it is more than half of one.
    pub(crate) fn finish(&mut self, mut out: impl FnMut(&[u8])) {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return;
        }
        let is_most = self.secrets.iter().any(|secret| {
            let secret = secret.expose_secret().as_bytes();
            secret.starts_with(&held) && held.len() * 2 > secret.len()
        });
        if is_most {
            out(HIDDEN);
            return;
        }
        // It may hold a shorter secret, whole.
        let mut at = 0;
        while at < held.len() {
            let whole = self.secrets.iter().map(|secret| secret.expose_secret().as_bytes());
            if let Some(secret) = whole.into_iter().find(|secret| held[at..].starts_with(secret)) {
                out(HIDDEN);
                at += secret.len();
            } else {
                out(&held[at..=at]);
                at += 1;
            }
        }
    }

    fn found(&self, bytes: &[u8]) -> Found {
        let mut found = Found::Nothing;
        for secret in &self.secrets {
            let secret = secret.expose_secret().as_bytes();
            if bytes.starts_with(secret) {
                return Found::Secret(secret.len());
            }
            // A longer secret may still be coming; a shorter one must wait for that.
            if bytes.len() < secret.len() && secret.starts_with(bytes) {
                found = Found::Perhaps;
                break;
            }
        }
        found
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mask").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

enum Found {
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
    fn hides_a_secret_wherever_it_is_cut() {
        let text = b"key=sk-abcdef123;sk-abc sk-abcdef123";
        for cut in 0..text.len() {
            let (a, b) = text.split_at(cut);
            let out = masked(&["sk-abcdef123"], &[a, b]);
            assert_eq!(out, "key=[secret];sk-abc [secret]", "cut at {cut}");
        }
    }

    #[test]
    fn hides_the_longer_of_two_that_begin_alike() {
        let secrets = ["token-1", "token-123456"];
        assert_eq!(masked(&secrets, &[b"token-1", b"23456 token-1x"]), "[secret] [secret]x");
    }

    #[test]
    fn a_short_value_is_no_secret() {
        assert_eq!(masked(&["abc", ""], &[b"abcabc"]), "abcabc");
    }

    #[test]
    fn most_of_a_secret_at_the_end_is_hidden() {
        assert_eq!(masked(&["sk-abcdef123"], &[b"x sk-abcdef"]), "x [secret]");
        assert_eq!(masked(&["sk-abcdef123"], &[b"x sk-"]), "x sk-");
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(text in "[ab-]{0,60}", cuts in prop::collection::vec(0usize..60, 0..6)) {
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
