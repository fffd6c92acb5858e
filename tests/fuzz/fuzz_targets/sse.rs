//! Any bytes, cut anywhere, give the same events, and no panic.
//!
//! Run with `cargo +nightly fuzz run sse`. The first byte of the input seeds the cuts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use posse::provider::sse::{SseError, SseParser};

/// Small enough for the fuzzer to reach.
const EVENT_BYTES_MAX: usize = 256;

type Read = (Vec<(String, String, u64)>, Result<(), SseError>);

fn play<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Read {
    let mut parser = SseParser::with_limit(EVENT_BYTES_MAX);
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

fuzz_target!(|input: &[u8]| {
    let Some((seed, stream)) = input.split_first() else { return };
    let whole = play([stream]);
    assert_eq!(whole, play(stream.chunks(1)));
    assert_eq!(whole, play(stream.chunks(usize::from(*seed).max(1))));
});
