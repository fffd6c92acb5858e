//! Servers that say nothing for too long, and users who do not wait.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// An event stream that begins with `text`, in one piece with its head.
fn begun(text: &str, then: ServerStep) -> Vec<ServerStep> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    vec![ServerStep::Send(format!("{head}{text}").into()), then]
}

#[tokio::test]
async fn silence_is_measured_between_content() {
    let text = sse(&[r#"{"choices":[{"delta":{"content":"abc"}}]}"#]);
    let again = |bytes: &str| ServerStep::Repeat(bytes.into(), Duration::from_millis(5));
    let scripts = [
        begun("", ServerStep::Stall),
        begun("", again("d")),
        begun("", again("\n")),
        begun(&text, ServerStep::Stall),
        begun(&text, again(": ping\n\n")),
        begun(&text, again("data: {\"type\":\"ping\"}\n\n")),
    ];
    let server = Server::start(scripts).await;
    let mut profile = server.profile();
    profile.timeouts.idle_ms = Some(100);
    let provider = connect(profile).unwrap();
    for expected in [None, None, None, Some("abc"), Some("abc"), Some("abc")] {
        let began = Instant::now();
        let error = ask(&*provider, request("hi")).await.0.unwrap_err();
        assert!(began.elapsed() >= Duration::from_millis(95));
        assert!(
            error.chain().ends_with("no content for 0.1 s (timeouts.idle)"),
            "{}",
            error.chain()
        );
        match (error, expected) {
            (ProviderError::Unreachable { .. }, None) => {}
            (ProviderError::Cut { partial, .. }, Some(text)) => assert_eq!(partial, text),
            (error, _) => panic!("{}", error.chain()),
        }
    }
}

#[tokio::test]
async fn pings_do_not_end_silence() {
    let text = sse(&[r#"{"choices":[{"delta":{"content":"abc"}}]}"#]);
    let pings = ServerStep::Repeat(": ping\n\n".into(), Duration::from_millis(5));
    let server = Server::start([begun(&text, ServerStep::Stall), begun(&text, pings)]).await;
    let mut profile = server.profile();
    (profile.timeouts.silence_ms, profile.timeouts.idle_ms) = (Some(500), Some(1000));
    let provider = connect(profile).unwrap();
    for expected in
        ["not a byte for 0.5 s (timeouts.silence)", "no content for 1 s (timeouts.idle)"]
    {
        let error = ask(&*provider, request("hi")).await.0.unwrap_err();
        assert!(error.chain().ends_with(expected), "{}", error.chain());
        assert_eq!(error.class(), "cut");
    }
}

#[tokio::test]
async fn first_byte_has_a_timeout() {
    let server = Server::start([vec![ServerStep::Stall]]).await;
    let mut profile = server.profile();
    profile.timeouts.header_ms = Some(50);
    let provider = connect(profile).unwrap();
    let error = ask(&*provider, request("hi")).await.0.unwrap_err();
    assert_eq!(error.class(), "unreachable");
    let advice = "no answer within 0.05 s: if the server needs longer to read the prompt, raise \
                  timeouts.firstByte of the provider";
    assert!(error.chain().ends_with(advice), "{}", error.chain());
}

#[test]
fn server_on_this_machine_has_longer_timeouts() {
    use crate::profile::{AttemptTimeouts, TimeLimits};
    let limits = |configured, is_loopback| {
        let limits = TimeLimits::of(configured, is_loopback);
        [limits.header_ms, limits.silence_ms, limits.idle_ms, limits.connect_ms]
    };
    let configured = AttemptTimeouts {
        header_ms: Some(90_000),
        silence_ms: Some(1),
        ..AttemptTimeouts::default()
    };
    let table = [
        (AttemptTimeouts::default(), false, [90_000, 90_000, 300_000, 10_000]),
        (AttemptTimeouts::default(), true, [600_000, 600_000, 600_000, 10_000]),
        // A configured value counts, also if it is the default of other servers.
        (configured, true, [90_000, 1, 600_000, 10_000]),
        (configured, false, [90_000, 1, 300_000, 10_000]),
    ];
    for (configured, is_loopback, expected) in table {
        assert_eq!(limits(configured, is_loopback), expected, "{configured:?} {is_loopback}");
    }
}

#[tokio::test]
async fn finished_reply_needs_no_end_of_stream() {
    let done = sse(HELLO);
    let finished = sse(&HELLO[..8]);
    let scripts = [done, finished].map(|body| begun(&body, ServerStep::Stall));
    let server = Server::start(scripts).await;
    let mut profile = server.profile();
    profile.timeouts.idle_ms = Some(200);
    let provider = connect(profile).unwrap();
    for _ in 0..2 {
        let reply = ask(&*provider, request("hi")).await.0.unwrap();
        assert_eq!(reply.stop_reason, StopReason::ToolUse);
    }
}

#[tokio::test]
async fn dropped_request_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let provider = connect(ProviderProfile::new("mock", &address, "m", None)).unwrap();
    let (deltas, mut heard) = tokio::sync::mpsc::channel(8);
    let attempt = tokio::spawn(provider.complete(request("hi"), deltas));
    let (mut connection, _) = listener.accept().await.unwrap();
    let body = sse(&HELLO[..4]);
    let start = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    connection.write_all(format!("{start}{body}").as_bytes()).await.unwrap();
    assert!(heard.recv().await.is_some());
    attempt.abort();
    assert!(attempt.await.unwrap_err().is_cancelled());
    let mut rest = Vec::new();
    // Ends when the client has left.
    connection.read_to_end(&mut rest).await.ok();
    assert!(String::from_utf8_lossy(&rest).starts_with("POST "));
}
