//! Cost of a small delta from bytes to event: 20,000 of them, each arriving alone, from memory.
//!
//! `cargo bench --bench stream`. Under `valgrind --tool=callgrind` it counts instructions: run it
//! with two values of `PIECES` and take the difference, which excludes start-up.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on has nothing to say")]

#[path = "support/table.rs"]
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posse::provider::replay;
use posse_actors::conversation::{ContentPart, Message};
use posse_actors::ports::{Request, ToolSpec};
use serde_json::json;
use tokio::sync::mpsc;

/// Number of pieces, unless set by `PIECES`.
const PIECES: u32 = 20_000;
/// Maximum time for a piece, in microseconds. A network delivers at most one piece in 20.
const MICROSECONDS_MAX: f64 = 5.0;

fn main() -> ExitCode {
    let pieces = std::env::var("PIECES").ok().and_then(|pieces| pieces.parse().ok());
    let pieces = pieces.unwrap_or(PIECES);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let took = runtime.block_on(read(pieces));
    let per_piece = took.as_secs_f64() * 1e6 / f64::from(pieces);
    let good = table::at_most("a piece of a reply", per_piece, MICROSECONDS_MAX, "us");
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads a reply of `pieces` pieces and receives its deltas. Returns the time.
async fn read(pieces: u32) -> Duration {
    let event = |delta: serde_json::Value, end: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": end});
        format!("data: {}\n\n", json!({"id": "x", "model": "m", "choices": [choice]}))
    };
    let mut chunks: Vec<String> =
        (0..pieces).map(|nth| event(json!({"content": format!("word {nth} ")}), None)).collect();
    chunks.push(event(json!({}), Some("stop")));
    chunks.push("data: [DONE]\n\n".to_owned());
    let request = json!({"tools": [], "messages": [{"user": "go"}]});
    let exchange = json!({"request": request, "reply": {"sse": chunks}});
    let cassette = format!("{}\n{exchange}\n", json!({"cassette": 1, "model": "m"}));
    let model = replay::from_text("replay", "bench", &cassette, Path::new("/w")).unwrap();
    let tools: [ToolSpec; 0] = [];
    let request = Request {
        messages: vec![Arc::new(Message::User { content: vec![ContentPart::text("go")] })],
        tools: Arc::new(tools),
        stream: true,
        tokens_max: None,
        temperature: None,
        thinking: None,
        session: None,
    };
    let (deltas, mut heard) = mpsc::channel(64);
    let start = Instant::now();
    let listener = async {
        let mut count = 0;
        while heard.recv().await.is_some() {
            count += 1;
        }
        count
    };
    let (reply, count) =
        futures_util::future::join(model.complete(request, deltas), listener).await;
    let took = start.elapsed();
    assert!(reply.unwrap().message.content.unwrap().ends_with(&format!("word {} ", pieces - 1)));
    // The last chunk has no text, but is announced as a sign of life.
    assert_eq!(count, pieces + 1, "each arrives alone");
    took
}
