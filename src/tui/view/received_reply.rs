//! Tracks the received part of a reply without storing it: lengths and hashes tell which part of
//! the complete reply is new.

/// Length and hash of a text, independent of how it was split (FNV-1a, 64 bit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TextHash {
    bytes: usize,
    sum: u64,
}

impl Default for TextHash {
    fn default() -> TextHash {
        TextHash { bytes: 0, sum: 0xcbf2_9ce4_8422_2325 }
    }
}

impl TextHash {
    fn add(&mut self, bytes: impl Iterator<Item = u8>) {
        for byte in bytes {
            self.bytes += 1;
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Length and hash of the part of a reply that was received as deltas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReceivedReply {
    all: TextHash,
    /// The text without white space, because complete replies may omit some of it.
    without_whitespace: TextHash,
}

impl ReceivedReply {
    pub(super) fn add(&mut self, text: &str) {
        self.all.add(text.bytes());
        self.without_whitespace.add(text.split_whitespace().flat_map(str::bytes));
    }

    /// The part of `whole` that was not received. `None` if `whole` does not start with the
    /// received text.
    pub(super) fn missing_part<'a>(&self, whole: &'a str) -> Option<&'a str> {
        let mut begin = TextHash::default();
        begin.add(whole.as_bytes().get(..self.all.bytes)?.iter().copied());
        (begin == self.all).then(|| &whole[self.all.bytes..])
    }

    /// Returns `true` if `whole` was received completely, apart from white space.
    pub(super) fn is(&self, whole: &str) -> bool {
        let mut received = ReceivedReply::default();
        received.add(whole);
        received.without_whitespace == self.without_whitespace
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn received(pieces: &[&str]) -> ReceivedReply {
        let mut received = ReceivedReply::default();
        for piece in pieces {
            received.add(piece);
        }
        received
    }

    #[test]
    fn finds_the_new_part() {
        assert_eq!(received(&["on", "e tw"]).missing_part("one two"), Some("o"));
        assert_eq!(received(&[]).missing_part("one"), Some("one"));
        assert_eq!(received(&["one"]).missing_part("two"), None);
        assert_eq!(received(&["one "]).missing_part("one"), None);
        assert!(received(&["one\n\n"]).is("one"));
        assert!(!received(&["one\n\n"]).is("on"));
    }

    proptest! {
        #[test]
        fn splitting_the_text_does_not_change_the_result(pieces in proptest::collection::vec(".{0,6}", 0..6), rest in ".{0,6}") {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let whole = pieces.concat() + &rest;
            prop_assert_eq!(received(&pieces).missing_part(&whole), Some(rest.as_str()));
            prop_assert!(received(&[&whole]).is(whole.trim()));
        }
    }
}
