//! Invalid replies and their errors.

use super::*;

#[tokio::test]
async fn garbage_ends_with_one_error() {
    let text = r#"{"choices":[{"delta":{"content":"abc"}}]}"#;
    let huge = format!("data: {}", "x".repeat(17 * 1024 * 1024));
    let table: Vec<(Vec<ServerStep>, &str)> = vec![
        (stream(""), "empty_reply: the reply is empty"),
        (stream("   \r\n\n"), "empty_reply: the reply is empty"),
        (stream(b"\0\xff\xfe garbage"), "cut: the stream ended at byte 11"),
        (stream("hello"), "cut: the stream ended at byte 5"),
        (
            stream(sse(&[text, "{\"choices\": [oops"])),
            "broken_reply: not a valid reply in the event at byte 49",
        ),
        (
            stream(sse(&[text, "{\"a\":\"\0\"}"])),
            "broken_reply: not a valid reply in the event at byte 49",
        ),
        (stream(sse(&[text])), "cut: the stream ended at byte 49"),
        (
            stream(sse(&["[DONE]"])),
            "empty_reply: the stream says that it is done, and nothing else",
        ),
        (stream(huge), "broken_reply: an event is larger than 16777216 bytes (the line at byte 0)"),
        (
            answer("200 OK", "", "{\"choices\":"),
            "broken_reply: not a valid reply in the event at byte 0",
        ),
        (answer("200 OK", "", "[]"), "broken_reply: the reply has no choices"),
        (answer("200 OK", "", "{}"), "broken_reply: the reply has no choices"),
        (answer("200 OK", "", "{\"choices\":[]}"), "broken_reply: the reply has no choices"),
        (answer("200 OK", "", ""), "empty_reply: the reply is empty"),
        (answer("204 No Content", "", ""), "empty_reply: the reply is empty"),
        (
            answer("200 OK", "content-type: text/html; charset=utf-8\r\n", "hi"),
            "not_the_provider: the reply is an HTML page",
        ),
        (answer("200 OK", "", "\n<!doctype html>"), "not_the_provider: the reply is an HTML page"),
        (
            vec![ServerStep::Send(b"SSH-2.0-OpenSSH\r\n".to_vec()), ServerStep::Close],
            "unreachable: ",
        ),
        (vec![ServerStep::Close], "unreachable: "),
        (vec![ServerStep::Reset], "unreachable: "),
        (
            stream(sse(&[r#"{"error":{"message":"down","code":502}}"#])),
            "overloaded: reported an error in its reply: down",
        ),
        (
            stream(sse(&[r#"{"choices":[{"error":{"message":"down","code":502}}]}"#])),
            "overloaded: reported",
        ),
        (stream("event: error\ndata: oh no\n\n"), "overloaded: reported an error in its reply: "),
        (
            answer("200 OK", "", r#"{"error":{"message":"maximum context length is 5"}}"#),
            "context_full: ",
        ),
        (
            answer("302 Found", "location: https://evil.example/v1\r\n", ""),
            "redirected: refused to follow a redirect (302) to https://evil.example/v1",
        ),
    ];
    for (script, expected) in table {
        let error = failed(script).await;
        let shown = class_and_cause(&error);
        assert!(shown.starts_with(expected), "{shown}\n{expected}");
        if let ProviderError::Broken { partial, .. } | ProviderError::Cut { partial, .. } = error {
            assert!(partial == "abc" || partial.is_empty(), "{partial}");
        }
    }
}

#[tokio::test]
async fn errors_contain_no_secret() {
    let body = r#"{"error":{"message":"bad key sk-test-0123456789\u001b[2J"}}"#;
    let error = failed(answer("401 Unauthorized", "", body)).await;
    assert_eq!(
        error.chain(),
        "the provider does not accept the credentials: mock: answered 401: bad key \
         [secret]\\u{1b}[2J"
    );
    assert!(!format!("{error:?}").contains("0123456789"));
}

#[tokio::test]
async fn unreachable_server_is_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let provider = connect(ProviderProfile::new("gone", &address, "m", None)).unwrap();
    let error = ask(&*provider, request("hi")).await.0.unwrap_err();
    assert_eq!(error.class(), "unreachable");
    assert_eq!(
        error.chain(),
        format!(
            "the provider is unreachable: gone: nothing listens at {address}/chat/completions \
             (connection refused): start the server, or correct baseURL"
        )
    );
}
