//! Events, errors and offsets of the parser, and the property that chunks do not matter.

use proptest::prelude::*;

use super::*;

type SseResult = (Vec<(String, String, u64)>, Result<(), SseError>);

/// Events of a stream that arrives in these chunks.
fn play<'c>(chunks: impl IntoIterator<Item = &'c [u8]>, bytes_max: usize) -> SseResult {
    let mut parser = SseParser::with_limit(bytes_max);
    let mut events = Vec::new();
    for chunk in chunks {
        let read = parser.feed(chunk, &mut |event| {
            events.push((event.name.into_owned(), event.data.into_owned(), event.offset));
        });
        if read.is_err() {
            return (events, read);
        }
    }
    (events, Ok(()))
}

fn data_of(stream: &[u8]) -> Vec<String> {
    let (events, read) = play([stream], EVENT_BYTES_MAX);
    assert_eq!(read, Ok(()));
    events.into_iter().map(|(_, data, _)| data).collect()
}

#[test]
fn follows_the_standard() {
    let table: &[(&[u8], &[&str])] = &[
        (b"data: a\n\n", &["a"]),
        (b"data:a\n\n", &["a"]),
        (b"data:  a\n\n", &[" a"]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", &["a", "b", "c"]),
        (b"\xef\xbb\xbfdata: a\n\n", &["a"]),
        (b"\n\xef\xbb\xbfdata: a\n\n", &[]),
        (b"data: a\n\xef\xbb\xbf\n\n", &["a"]),
        (b"data: a\ndata: b\n\n", &["a\nb"]),
        (b"data\n\n", &[""]),
        (b"data:\ndata\n\n", &["\n"]),
        (b": ping\n\n:\n\n", &[]),
        (b"event: x\n\ndata: a\n\n", &["a"]),
        (b"id: 1\nretry: soon\nwhatever\nfoo: bar\ndata: a\n\n", &["a"]),
        (b"DATA: a\n data: b\n\n", &[]),
        (b"data: \xff\xf0\x9f\n\n", &["\u{fffd}\u{fffd}"]),
        (b"data: a\x00b\n\n", &["a\0b"]),
        (b"data: a\n", &[]),
        (b"data: a", &[]),
        (b"\n\n\n\ndata: a\n\n\n\n", &["a"]),
        (b"", &[]),
    ];
    for (stream, expected) in table {
        assert_eq!(data_of(stream), *expected, "{:?}", String::from_utf8_lossy(stream));
    }
}

#[test]
fn events_have_names_and_offsets() {
    let stream = b"\xef\xbb\xbf: hi\n\nevent: error\r\ndata: a\r\ndata: b\r\n\r\ndata: c\n\n";
    let (events, _) = play([&stream[..]], EVENT_BYTES_MAX);
    assert_eq!(
        events,
        [("error".to_owned(), "a\nb".to_owned(), 23), (String::new(), "c".to_owned(), 43)]
    );
}

#[test]
fn endless_event_is_refused() {
    for endless in [&b"data: xxxx\n"[..], b"x", b"event:", b": "] {
        let stream = [b"data: ok\n\n".to_vec(), endless.repeat(100)].concat();
        let whole = play([&stream[..]], 64);
        let bytewise = play(stream.chunks(1), 64);
        assert_eq!(whole, bytewise);
        assert_eq!(whole.0.len(), 1);
        assert!(whole.1.is_err(), "{}", String::from_utf8_lossy(endless));
    }
}

#[test]
fn many_comments_are_skipped() {
    let stream = b": keep-alive\n\n".repeat(10_000);
    assert_eq!(play([&stream[..]], 64), (Vec::new(), Ok(())));
}

/// Bytes that mean something to the parser, mixed with some that do not.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"data: ",
        b"data:",
        b"data",
        b"event: x",
        b"id: 7",
        b": comment",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\xef\xbb\xbf",
        b"\xef",
        b"\xc3\xa9",
        b"\xf0\x9f\x98\x80",
        b"\xff",
        b"\0",
        b"text",
        b" ",
    ];
    let piece = prop::sample::select(pieces);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_events(
        stream in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        bytes_max in prop_oneof![Just(EVENT_BYTES_MAX), 1_usize..40],
    ) {
        let whole = play([&stream[..]], bytes_max);
        prop_assert_eq!(&whole, &play(stream.chunks(1), bytes_max));
        let mut cuts: Vec<usize> =
            cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in cuts {
            chunks.push(&stream[from..cut]);
            from = cut;
        }
        chunks.push(&stream[from..]);
        prop_assert_eq!(&whole, &play(chunks, bytes_max));
    }

    #[test]
    fn survives_any_bytes(stream in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(play([&stream[..]], 50), play(stream.chunks(1), 50));
    }
}
