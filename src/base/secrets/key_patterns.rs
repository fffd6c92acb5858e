//! Redaction of text that looks like a key of a known service, in a byte stream.
//!
//! Services give their keys a fixed beginning so that programs can find them; the table lists these
//! beginnings, from the services' documentation. A key in another form is not recognised.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

/// Text that replaces a key after its beginning.
const HIDDEN: &[u8] = b"[key]";

/// Maximum length of a key in bytes. Longer runs are data, such as an encoded file, and stay.
const KEY_BYTES_MAX: usize = 512;

/// Number of bytes before a key that tell if it begins there: a colour of the terminal.
const BEFORE_BYTES: usize = 20;

/// Minimum length of a beginning that counts also after `_`, as in `TOKEN_ghp_…`.
const DISTINCT_BYTES_MIN: usize = 4;

/// Maximum length in bytes of the text of a private key.
const BLOCK_BYTES_MAX: usize = 16 << 10;

/// Maximum length in bytes of the kind of a private key, such as `RSA PRIVATE KEY`.
const KIND_BYTES_MAX: usize = 48;

const BLOCK: &[u8] = b"-----BEGIN ";
const BLOCK_END: &[u8] = b"-----END ";

/// Characters of a key after its beginning.
#[derive(Clone, Copy)]
enum Alphabet {
    Alphanumeric,
    /// Also `-` and `_`.
    Url,
    /// Also `-`, `_` and `.`.
    Dotted,
    Uppercase,
}

impl Alphabet {
    fn has(self, byte: u8) -> bool {
        match self {
            Alphabet::Alphanumeric => byte.is_ascii_alphanumeric(),
            Alphabet::Url => byte.is_ascii_alphanumeric() || b"-_".contains(&byte),
            Alphabet::Dotted => byte.is_ascii_alphanumeric() || b"-_.".contains(&byte),
            Alphabet::Uppercase => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        }
    }
}

/// Form of the keys of a service: their beginning, the minimum length of the rest, and its
/// characters.
struct KeyForm(&'static str, usize, Alphabet);

/// Known forms. A beginning that is the beginning of another one stands after it.
const FORMS: [KeyForm; 38] = [
    KeyForm("sk-ant-", 24, Alphabet::Url),
    KeyForm("sk-proj-", 24, Alphabet::Url),
    KeyForm("sk-svcacct-", 24, Alphabet::Url),
    KeyForm("sk-or-v1-", 32, Alphabet::Alphanumeric),
    KeyForm("sk-", 40, Alphabet::Alphanumeric),
    KeyForm("sk_live_", 16, Alphabet::Alphanumeric),
    KeyForm("rk_live_", 16, Alphabet::Alphanumeric),
    KeyForm("ghp_", 36, Alphabet::Alphanumeric),
    KeyForm("gho_", 36, Alphabet::Alphanumeric),
    KeyForm("ghu_", 36, Alphabet::Alphanumeric),
    KeyForm("ghs_", 36, Alphabet::Alphanumeric),
    KeyForm("ghr_", 36, Alphabet::Alphanumeric),
    KeyForm("github_pat_", 40, Alphabet::Url),
    KeyForm("glpat-", 20, Alphabet::Url),
    KeyForm("glrt-", 20, Alphabet::Url),
    KeyForm("AKIA", 16, Alphabet::Uppercase),
    KeyForm("ASIA", 16, Alphabet::Uppercase),
    KeyForm("AIza", 35, Alphabet::Url),
    KeyForm("ya29.", 40, Alphabet::Url),
    KeyForm("xoxb-", 20, Alphabet::Url),
    KeyForm("xoxp-", 20, Alphabet::Url),
    KeyForm("xoxa-", 20, Alphabet::Url),
    KeyForm("xoxr-", 20, Alphabet::Url),
    KeyForm("xoxs-", 20, Alphabet::Url),
    KeyForm("xapp-", 20, Alphabet::Url),
    KeyForm("npm_", 36, Alphabet::Alphanumeric),
    KeyForm("pypi-AgE", 40, Alphabet::Url),
    KeyForm("hf_", 34, Alphabet::Alphanumeric),
    KeyForm("gsk_", 40, Alphabet::Alphanumeric),
    KeyForm("r8_", 37, Alphabet::Alphanumeric),
    KeyForm("SG.", 60, Alphabet::Dotted),
    KeyForm("shpat_", 32, Alphabet::Alphanumeric),
    KeyForm("dop_v1_", 60, Alphabet::Alphanumeric),
    KeyForm("lin_api_", 32, Alphabet::Alphanumeric),
    KeyForm("tskey-", 24, Alphabet::Url),
    KeyForm("hvs.", 24, Alphabet::Url),
    KeyForm("AGE-SECRET-KEY-1", 50, Alphabet::Uppercase),
    KeyForm("dckr_pat_", 20, Alphabet::Url),
];

/// Search for all beginnings at once. The index after those of [`FORMS`] stands for a private key.
static BEGINNINGS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let forms = FORMS.iter().map(|form| form.0.as_bytes()).chain([BLOCK]);
    AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(forms).ok()
});

/// Redacts text that looks like a key in one stream: the rest of a key after its beginning becomes
/// `[key]`. Buffers at most a key, or the beginning of one.
#[derive(Debug, Default)]
pub struct KeyMask {
    /// Last bytes, which may belong to a key and were not passed on yet.
    held: Vec<u8>,
    /// Last bytes that were passed on, at most [`BEFORE_BYTES`].
    before: Vec<u8>,
    /// Number of bytes of a private key that were left out so far. `None`: outside of one.
    block: Option<usize>,
}

/// What stands at a possible beginning of a key.
enum Found {
    /// A key: the first length stays, the second is left out.
    Key(usize, usize),
    /// The beginning of a private key of this length; its text follows.
    Block(usize),
    /// Only the following bytes can tell.
    Perhaps,
    /// No key, nor the beginning of one in this many bytes.
    Nothing(usize),
}

impl KeyMask {
    /// Redacts the held-back bytes and `chunk`, and passes the result to `out` in pieces.
    pub fn push(&mut self, chunk: &[u8], mut out: impl FnMut(&[u8])) {
        if self.held.is_empty() {
            self.redact(chunk, false, &mut out);
        } else {
            let mut bytes = std::mem::take(&mut self.held);
            bytes.extend_from_slice(chunk);
            self.redact(&bytes, false, &mut out);
        }
    }

    /// Ends the stream: redacts the held-back bytes, and passes the result to `out`.
    pub fn finish(&mut self, mut out: impl FnMut(&[u8])) {
        let bytes = std::mem::take(&mut self.held);
        self.redact(&bytes, true, &mut out);
    }

    fn redact(&mut self, mut bytes: &[u8], is_end: bool, out: &mut impl FnMut(&[u8])) {
        let Some(beginnings) = BEGINNINGS.as_ref() else { return self.pass(bytes, out) };
        let mut from = 0;
        loop {
            if self.block.is_some() {
                let Some(rest) = self.skip_block(bytes, is_end, out) else { return };
                (bytes, from) = (rest, 0);
            }
            let Some(found) = beginnings.find(&bytes[from..]) else { break };
            let (at, length) = (from + found.start(), found.len());
            let form = FORMS.get(found.pattern().as_usize());
            match self.examine(bytes, at, length, form, is_end) {
                Found::Nothing(skipped) => from = at + skipped,
                Found::Perhaps => {
                    self.pass(&bytes[..at], out);
                    self.held = bytes[at..].to_vec();
                    return;
                }
                Found::Key(kept, hidden) => {
                    self.pass(&bytes[..at + kept], out);
                    self.pass(HIDDEN, out);
                    (bytes, from) = (&bytes[at + kept + hidden..], 0);
                }
                Found::Block(length) => {
                    self.pass(&bytes[..at + length], out);
                    self.pass(HIDDEN, out);
                    self.block = Some(0);
                    (bytes, from) = (&bytes[at + length..], 0);
                }
            }
        }
        let held = if is_end { bytes.len() } else { self.tail(bytes) };
        self.pass(&bytes[..held], out);
        self.held = bytes[held..].to_vec();
    }

    /// What stands at `at`, where a beginning of `length` bytes was found: of `form`, or of a private
    /// key.
    fn examine(
        &self,
        bytes: &[u8],
        at: usize,
        length: usize,
        form: Option<&KeyForm>,
        is_end: bool,
    ) -> Found {
        let rest = &bytes[at + length..];
        let Some(KeyForm(_, least, alphabet)) = form else {
            let kind = &rest[..rest.len().min(KIND_BYTES_MAX)];
            let Some(end) = memchr::memmem::find(kind, b"-----") else {
                let may_follow = rest.len() < KIND_BYTES_MAX && !kind.contains(&b'\n') && !is_end;
                return if may_follow { Found::Perhaps } else { Found::Nothing(1) };
            };
            let is_private = memchr::memmem::find(&kind[..end], b"PRIVATE KEY").is_some()
                && !kind[..end].contains(&b'\n');
            return if is_private { Found::Block(length + end + 5) } else { Found::Nothing(1) };
        };
        let run = rest.iter().take_while(|byte| alphabet.has(**byte)).count();
        if run > KEY_BYTES_MAX {
            // All of it is skipped: otherwise each beginning in it would be counted again.
            return Found::Nothing(length + run);
        }
        if !self.begins(bytes, at, length) {
            return Found::Nothing(1);
        }
        if run == rest.len() && !is_end {
            return Found::Perhaps;
        }
        let run_bytes = &rest[..run];
        // A word of text has no digits.
        let is_random = run_bytes.iter().any(u8::is_ascii_digit)
            && run_bytes.iter().any(u8::is_ascii_alphabetic);
        if run >= *least && is_random { Found::Key(length, run) } else { Found::Nothing(1) }
    }

    /// Leaves out the text of a private key. Returns the bytes from the end of it on; `None` if it
    /// continues.
    fn skip_block<'b>(
        &mut self,
        bytes: &'b [u8],
        is_end: bool,
        out: &mut impl FnMut(&[u8]),
    ) -> Option<&'b [u8]> {
        let skipped = self.block.unwrap_or_default();
        let left = BLOCK_BYTES_MAX.saturating_sub(skipped);
        if let Some(end) = memchr::memmem::find(bytes, BLOCK_END).filter(|end| *end <= left) {
            self.block = None;
            self.pass(b"\n", out);
            return Some(&bytes[end..]);
        }
        if bytes.len() > left {
            self.block = None;
            return Some(&bytes[left..]);
        }
        // The end may be split.
        let kept = if is_end { 0 } else { bytes.len().min(BLOCK_END.len() - 1) };
        self.block = Some(skipped + bytes.len() - kept);
        self.held = bytes[bytes.len() - kept..].to_vec();
        None
    }

    /// True if a key whose beginning has `length` bytes can begin at `at`: what is before it does not
    /// belong to the same word.
    fn begins(&self, bytes: &[u8], at: usize, length: usize) -> bool {
        let joined;
        let before = if at >= BEFORE_BYTES || self.before.is_empty() {
            &bytes[at.saturating_sub(BEFORE_BYTES)..at]
        } else {
            joined = [&self.before[..], &bytes[..at]].concat();
            &joined
        };
        match before {
            [.., b'_'] => length >= DISTINCT_BYTES_MIN,
            // Escapes of JSON and of addresses.
            [] | [.., b'\\', b'n' | b'r' | b't'] => true,
            [.., b'%', one, other] if one.is_ascii_hexdigit() && other.is_ascii_hexdigit() => true,
            [.., last] => !last.is_ascii_alphanumeric() || is_after_colour(before),
        }
    }

    /// The first index at which the beginning of a key may stand that continues after `bytes`; the
    /// length of `bytes` if there is none.
    fn tail(&self, bytes: &[u8]) -> usize {
        let beginnings = || FORMS.iter().map(|form| form.0.as_bytes()).chain([BLOCK]);
        let longest = BLOCK.len().max("AGE-SECRET-KEY-1".len());
        let from = bytes.len().saturating_sub(longest - 1);
        let may_begin = |at: &usize| {
            (bytes[*at] == b'-' || self.begins(bytes, *at, DISTINCT_BYTES_MIN))
                && beginnings().any(|known| known.starts_with(&bytes[*at..]))
        };
        (from..bytes.len()).find(may_begin).unwrap_or(bytes.len())
    }

    fn pass(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) {
        if !bytes.is_empty() {
            self.before.extend_from_slice(&bytes[bytes.len().saturating_sub(BEFORE_BYTES)..]);
            let over = self.before.len().saturating_sub(BEFORE_BYTES);
            self.before.drain(..over);
            out(bytes);
        }
    }
}

/// True if `text` ends with a sequence that sets a colour or clears the line.
fn is_after_colour(text: &[u8]) -> bool {
    let Some((b'm' | b'K', text)) = text.split_last() else { return false };
    let is_parameter = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b';' | b':');
    let parameters = text.iter().rev().take_while(is_parameter).count();
    text[..text.len() - parameters].ends_with(b"\x1b[")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(chunks: &[&[u8]]) -> String {
        let (mut mask, mut out) = (KeyMask::default(), Vec::new());
        for chunk in chunks {
            mask.push(chunk, |bytes| out.extend_from_slice(bytes));
        }
        mask.finish(|bytes| out.extend_from_slice(bytes));
        String::from_utf8(out).unwrap()
    }

    /// A key of this form, put together so that no file contains it.
    fn key_of(form: &KeyForm, length: usize) -> String {
        let random = if matches!(form.2, Alphabet::Uppercase) { "Q7Z2" } else { "q7Zk" };
        let rest: String = random.chars().cycle().take(length).collect();
        format!("{}{rest}", form.0)
    }

    #[test]
    fn keys_of_every_form_are_redacted() {
        for form in &FORMS {
            let key = key_of(form, form.1);
            for (before, after) in
                [("", ""), ("KEY=", "\n"), ("\"", "\","), ("x ", " y"), ("-", ")")]
            {
                let text = format!("{before}{key}{after}");
                let expected = format!("{before}{}[key]{after}", form.0);
                assert_eq!(masked(&[text.as_bytes()]), expected, "{text}");
            }
        }
    }

    #[test]
    fn ordinary_text_stays() {
        let least = |form: &KeyForm| key_of(form, form.1 - 1);
        let short = FORMS.iter().map(least).collect::<Vec<_>>().join("\n");
        let in_words = FORMS.iter().map(|form| format!("x{}", key_of(form, form.1)));
        let in_words = in_words.collect::<Vec<_>>().join("\n");
        for text in [
            &*short,
            &*in_words,
            "task-list-for-the-next-week-and-the-week-after-that-one sk-proj-",
            "npm_config_cache=/tmp/npm npm_abcdefghijklmnopqrstuvwxyzabcdefghijklmnop",
            "risk-free hf_ AKIA ghp_ -----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n",
            "-----BEGIN \nPRIVATE KEY-----\nabc",
            "........................................",
            "----------------------------------------",
        ] {
            assert_eq!(masked(&[text.as_bytes()]), text);
        }
        let data = format!("sk-{}", "a1".repeat(KEY_BYTES_MAX));
        assert_eq!(masked(&[data.as_bytes()]), data);
    }

    #[test]
    fn text_of_a_private_key_is_left_out() {
        for kind in ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"] {
            let text = format!("a\n-----BEGIN {kind}-----\nMII\nabc=\n-----END {kind}-----\nb\n");
            let expected = format!("a\n-----BEGIN {kind}-----[key]\n-----END {kind}-----\nb\n");
            assert_eq!(masked(&[text.as_bytes()]), expected);
            let cut = &text[..text.find("abc").unwrap()];
            assert_eq!(masked(&[cut.as_bytes()]), format!("a\n-----BEGIN {kind}-----[key]"));
        }
        let long = format!("-----BEGIN PRIVATE KEY-----{}rest", "a".repeat(BLOCK_BYTES_MAX));
        assert_eq!(masked(&[long.as_bytes()]), "-----BEGIN PRIVATE KEY-----[key]rest");
    }

    #[test]
    fn long_runs_cost_linear_time() {
        for (piece, before) in [("SG.", ""), ("sk-ant-", "x "), ("hvs.", "-")] {
            let text = before.to_owned() + &piece.repeat(1 << 20);
            let started = std::time::Instant::now();
            assert_eq!(masked(&[text.as_bytes()]).len(), text.len());
            // Quadratic time would be hours.
            assert!(started.elapsed() < std::time::Duration::from_mins(1));
        }
        let key = key_of(&FORMS[7], 36);
        assert_eq!(masked(&[format!("TOKEN_{key}").as_bytes()]), "TOKEN_ghp_[key]");
    }

    #[test]
    fn bytes_that_cannot_begin_a_key_are_passed_on_at_once() {
        let (mut mask, mut out) = (KeyMask::default(), Vec::new());
        for dots in ["....", "running 5 tests\n", "50% ", "ask"] {
            mask.push(dots.as_bytes(), |bytes| out.extend_from_slice(bytes));
        }
        assert_eq!(out, b"....running 5 tests\n50% ask");
    }

    proptest! {
        /// Chunks make no difference, and no key survives.
        #[test]
        fn any_split_gives_the_same_text(
            words in prop::collection::vec((0..FORMS.len(), 0_usize..80, "[ \n=a-z-]{0,3}"), 1..6),
            with_block in any::<bool>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let keys = words.iter().map(|(form, length, after)| key_of(&FORMS[*form], *length) + after);
            let mut text: String = keys.collect();
            if with_block {
                text += "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n";
            }
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let chunks: Vec<&[u8]> =
                places.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(masked(&chunks), masked(&[text.as_bytes()]));
        }

        #[test]
        fn other_bytes_are_never_lost(bytes in any::<Vec<u8>>()) {
            let (mut mask, mut out) = (KeyMask::default(), Vec::new());
            bytes.chunks(3).for_each(|chunk| mask.push(chunk, |bytes| out.extend_from_slice(bytes)));
            mask.finish(|bytes| out.extend_from_slice(bytes));
            prop_assert_eq!(out, bytes);
        }
    }
}
