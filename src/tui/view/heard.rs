//! What was heard of a reply so far, without the text itself: enough to know what of the whole
//! reply is new.

/// A sum over bytes that tells texts apart, whatever pieces they come in (FNV-1a, 64 bit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    bytes: usize,
    sum: u64,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum { bytes: 0, sum: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Sum {
    fn add(&mut self, bytes: impl Iterator<Item = u8>) {
        for byte in bytes {
            self.bytes += 1;
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// What was heard of a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Heard {
    all: Sum,
    /// Without what is blank: some of that is left out of whole replies.
    ink: Sum,
}

impl Heard {
    pub(super) fn add(&mut self, text: &str) {
        self.all.add(text.bytes());
        self.ink.add(text.split_whitespace().flat_map(str::bytes));
    }

    /// What of `whole` was not heard. `None`: it does not go on from what was.
    pub(super) fn rest<'a>(&self, whole: &'a str) -> Option<&'a str> {
        let mut begin = Sum::default();
        begin.add(whole.as_bytes().get(..self.all.bytes)?.iter().copied());
        (begin == self.all).then(|| &whole[self.all.bytes..])
    }

    /// Whether all of `whole` was heard, but for what is blank.
    pub(super) fn is(&self, whole: &str) -> bool {
        let mut heard = Heard::default();
        heard.add(whole);
        heard.ink == self.ink
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heard(pieces: &[&str]) -> Heard {
        let mut heard = Heard::default();
        for piece in pieces {
            heard.add(piece);
        }
        heard
    }

    #[test]
    fn knows_what_is_new() {
        assert_eq!(heard(&["on", "e tw"]).rest("one two"), Some("o"));
        assert_eq!(heard(&[]).rest("one"), Some("one"));
        assert_eq!(heard(&["one"]).rest("two"), None);
        assert_eq!(heard(&["one "]).rest("one"), None);
        assert!(heard(&["one\n\n"]).is("one"));
        assert!(!heard(&["one\n\n"]).is("on"));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(pieces in proptest::collection::vec(".{0,6}", 0..6), rest in ".{0,6}") {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let whole = pieces.concat() + &rest;
            prop_assert_eq!(heard(&pieces).rest(&whole), Some(rest.as_str()));
            prop_assert!(heard(&[&whole]).is(whole.trim()));
        }
    }
}
