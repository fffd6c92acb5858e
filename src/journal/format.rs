//! Line format of the journal: a record is one JSON object whose last member is the running hash.
//!
//! The hash covers the hash of the previous line and the raw bytes of this line before the member
//! `hash`. The member is at a fixed distance from the end of the line, so verification needs no
//! JSON parser.

use std::io;

use posse_actors::event::{RecordId, StoredRecord};
use sha2::{Digest, Sha256};

/// Number of hex digits of a hash: a SHA-256 truncated to 128 bits.
const HASH_LEN: usize = 32;
const OPENING: &[u8] = b",\"hash\":\"";
const CLOSING: &[u8] = b"\"}\n";
/// Number of bytes from the comma before the hash to the end of the line, newline included.
pub(crate) const SUFFIX_LEN: usize = OPENING.len() + HASH_LEN + CLOSING.len();
/// Maximum bytes of a line, newline included.
pub(crate) const LINE_BYTES_MAX: usize = 128 << 20;
/// Maximum bytes of a line up to the end of its [`Head`].
pub(crate) const HEAD_BYTES_MAX: usize = 160;

/// Hash of a line, as hex digits. The hash of the next line is computed from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashChain([u8; HASH_LEN]);

impl HashChain {
    /// Start value of the chain: the first line of `session` continues it.
    pub(crate) fn start(session: &str) -> HashChain {
        HashChain::of(Sha256::new().chain_update(b"posse journal 1\n").chain_update(session))
    }

    /// Computes the hash of the next line from this hash and the body of that line.
    pub(crate) fn next(&self, body: &[u8]) -> HashChain {
        HashChain::of(Sha256::new().chain_update(self.0).chain_update(body))
    }

    /// Converts hex digits to a hash. `None` if their number is wrong; the digits are not checked.
    pub(crate) fn parse(text: &str) -> Option<HashChain> {
        text.as_bytes().try_into().ok().map(HashChain)
    }

    /// The hash as hex digits.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    fn of(hasher: Sha256) -> HashChain {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digest = hasher.finalize();
        let mut hex = [0; HASH_LEN];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(digest.iter()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        HashChain(hex)
    }
}

impl std::fmt::Debug for HashChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Appends `record` to `buffer` as a line that continues `chain`. Returns the hash of the line. On
/// an error, such as a line of more than `LINE_BYTES_MAX`, `buffer` is unchanged.
pub(crate) fn append_line(
    buffer: &mut Vec<u8>,
    chain: &HashChain,
    record: &StoredRecord,
) -> io::Result<HashChain> {
    let start = buffer.len();
    if let Err(error) = record.append_json(buffer) {
        buffer.truncate(start);
        return Err(error.into());
    }
    // The closing brace is appended again after the hash.
    buffer.pop();
    if buffer.len() - start + SUFFIX_LEN > LINE_BYTES_MAX {
        buffer.truncate(start);
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a record of more than {} MiB", LINE_BYTES_MAX >> 20),
        ));
    }
    Ok(append_hash(buffer, start, chain))
}

/// Completes the line that begins at `start` in `buffer`: appends its hash, which continues
/// `chain`, and the closing brace with a newline. Returns the hash.
pub(crate) fn append_hash(buffer: &mut Vec<u8>, start: usize, chain: &HashChain) -> HashChain {
    let next = chain.next(&buffer[start..]);
    buffer.extend_from_slice(OPENING);
    buffer.extend_from_slice(&next.0);
    buffer.extend_from_slice(CLOSING);
    next
}

/// Splits a line, newline included, into its body and the hash that is written in it. `None` if it
/// does not end with a hash. The hash is not verified.
pub(crate) fn split(line: &[u8]) -> Option<(&[u8], HashChain)> {
    let (body, suffix) = line.split_at_checked(line.len().checked_sub(SUFFIX_LEN)?)?;
    let hash = suffix.strip_prefix(OPENING)?.strip_suffix(CLOSING)?;
    Some((body, HashChain(hash.try_into().ok()?)))
}

/// First members of a line: format version, record number, time in milliseconds since 1970, and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: u32,
    pub(crate) record: u64,
    pub(crate) ts: u64,
    pub(crate) id: RecordId,
}

/// Reads the first members of a line without parsing JSON: `StoredRecord` fixes their order. `None`
/// if the line does not begin with them.
pub(crate) fn head(line: &[u8]) -> Option<Head> {
    let (version, rest) = digits(line.strip_prefix(b"{\"v\":")?, 10)?;
    let (record, rest) = digits(rest.strip_prefix(b",\"record\":")?, 10)?;
    let (ts, rest) = digits(rest.strip_prefix(b",\"ts\":")?, 10)?;
    let (process, rest) = digits(rest.strip_prefix(b",\"id\":\"")?, 16)?;
    let (count, rest) = digits(rest.strip_prefix(b"-")?, 16)?;
    rest.strip_prefix(b"\"")?;
    let id = RecordId { process: process.try_into().ok()?, count: count.try_into().ok()? };
    Some(Head { version: version.try_into().ok()?, record, ts, id })
}

/// Splits off the number in base `radix` at the beginning of `text`. Returns the number and the
/// remaining bytes. `None` if there is no number, if it exceeds 64 bits, or if nothing follows it.
fn digits(text: &[u8], radix: u32) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !char::from(*byte).is_digit(radix))?;
    let (digits, rest) = text.split_at(end);
    Some((u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()?, rest))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use posse_actors::conversation::{ContentPart, InvocationId, SessionId};
    use posse_actors::event::{Event, FORMAT_VERSION, Origin};

    use super::*;

    /// Record `number` of session `s`: a prompt with `text`.
    pub(crate) fn record(number: u64, text: &str) -> StoredRecord {
        StoredRecord {
            v: FORMAT_VERSION,
            record: number,
            ts: 1_795_300_000_000 + number,
            id: RecordId { process: 7, count: u32::try_from(number).unwrap() },
            session_id: SessionId::new("s"),
            origin: Some(Arc::new(Origin {
                invocation_id: InvocationId::new("i1"),
                parent_invocation_id: None,
                agent: "build".to_owned(),
                agent_path: "build".to_owned(),
            })),
            event: Event::UserMessage { content: vec![ContentPart::text(text)], message_id: None },
        }
    }

    /// Number of newlines in `bytes`.
    pub(crate) fn newlines(bytes: &[u8]) -> usize {
        bytes.split(|byte| *byte == b'\n').count() - 1
    }

    #[test]
    fn writes_one_object_per_line_with_the_hash_last() {
        let mut buffer = Vec::new();
        let start = HashChain::start("s");
        let next = append_line(&mut buffer, &start, &record(1, "a\nb")).unwrap();
        let again = append_line(&mut buffer, &next, &record(2, "c")).unwrap();
        assert_ne!(next, again);
        insta::assert_snapshot!(String::from_utf8(buffer).unwrap(), @r#"
        {"v":1,"record":1,"ts":1795300000001,"id":"00000007-1","sessionId":"s","type":"user.message","content":[{"type":"text","text":"a\nb"}],"invocationId":"i1","agent":"build","agentPath":"build","hash":"3630eb5f11c7ff33db0e1206e42de8e8"}
        {"v":1,"record":2,"ts":1795300000002,"id":"00000007-2","sessionId":"s","type":"user.message","content":[{"type":"text","text":"c"}],"invocationId":"i1","agent":"build","agentPath":"build","hash":"163e065c83d2966f54a763018a8ba6d1"}
        "#);
    }

    #[test]
    fn lines_parse_back() {
        let mut line = Vec::new();
        let start = HashChain::start("s");
        let written = record(41, "héllo \u{2028} \u{0}");
        let next = append_line(&mut line, &start, &written).unwrap();
        let (body, claimed) = split(&line).unwrap();
        assert_eq!((claimed, start.next(body)), (next, next));
        let head = head(&line).unwrap();
        assert_eq!((head.version, head.record, head.id), (1, 41, written.id));
        assert_eq!(serde_json::from_slice::<StoredRecord>(&line).unwrap(), written);
        assert_eq!(newlines(&line), 1);
    }

    #[test]
    fn invalid_headers_are_refused() {
        for text in
            ["", "{}", "{\"v\":1", "{\"v\":99999999999,\"record\":1", "{\"v\":,\"record\":1"]
        {
            assert_eq!(head(text.as_bytes()), None, "{text}");
        }
        assert!(split(b"short\n").is_none());
    }
}
