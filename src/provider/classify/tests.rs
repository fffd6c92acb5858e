//! Tables of statuses, headers and bodies, and the class of each.

use reqwest::header::{HeaderName, HeaderValue};

use super::*;
use crate::testing::{Server, answer};

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn origin() -> MessageOrigin {
    MessageOrigin::new("acme", "https://api.example/v1".to_owned())
}

/// Header lines.
type HeaderLines = [(&'static str, &'static str)];

fn headers(lines: &HeaderLines) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

fn sorted(code: u16, lines: &HeaderLines, body: &str) -> ProviderError {
    let code = StatusCode::from_u16(code).unwrap();
    status(&origin(), code, &headers(lines), body.as_bytes(), now())
}

fn wait_of(error: &ProviderError) -> Option<Duration> {
    match error {
        ProviderError::Overloaded { retry_after, .. }
        | ProviderError::RateLimited { retry_after, .. }
        | ProviderError::QuotaExhausted { retry_after, .. } => *retry_after,
        ProviderError::Unreachable { .. }
        | ProviderError::NoServer { .. }
        | ProviderError::Empty { .. }
        | ProviderError::Broken { .. }
        | ProviderError::Cut { .. }
        | ProviderError::Repeating { .. }
        | ProviderError::NotTheProvider { .. }
        | ProviderError::Filtered { .. }
        | ProviderError::ContextFull { .. }
        | ProviderError::Unauthorized { .. }
        | ProviderError::Rejected { .. }
        | ProviderError::Unasked { .. } => None,
    }
}

#[test]
fn status_codes_are_classified() {
    let table = [
        (400, "rejected"),
        (401, "unauthorized"),
        (402, "quota"),
        (403, "unauthorized"),
        (404, "rejected"),
        (405, "rejected"),
        (407, "rejected"),
        (408, "overloaded"),
        (409, "overloaded"),
        (413, "context_full"),
        (422, "rejected"),
        (429, "rate_limited"),
        (500, "overloaded"),
        (502, "overloaded"),
        (503, "overloaded"),
        (504, "overloaded"),
        (501, "not_the_provider"),
        (511, "not_the_provider"),
        (529, "overloaded"),
    ];
    for (code, class) in table {
        for body in ["", "<html>", "{}", "null", "oh no", r#"{"error":{"message":"m"}}"#] {
            assert_eq!(sorted(code, &[], body).class(), class, "{code} {body}");
        }
    }
}

#[test]
fn only_overload_is_called_overload() {
    let table = [
        (500, "{}", "server error: "),
        (502, "<html>", "server error: "),
        (504, "oh no", "server error: "),
        (408, "", "temporary error: "),
        (503, "", "the provider is overloaded: "),
        (529, "", "the provider is overloaded: "),
        (
            500,
            r#"{"error":{"message":"The engine is overloaded"}}"#,
            "the provider is overloaded: ",
        ),
        (
            500,
            r#"{"error":{"message":"m","type":"overloaded_error"}}"#,
            "the provider is overloaded: ",
        ),
    ];
    for (code, body, begin) in table {
        let said = sorted(code, &[], body).chain();
        assert!(said.starts_with(begin), "{code} {body}: {said}");
    }
}

#[test]
fn implausible_limit_resets_are_ignored() {
    let seconds = |n| Some(Duration::from_secs(n));
    let limits: &[(&HeaderLines, Option<Duration>)] = &[
        // OpenAI, Groq: the one that is used up counts.
        (
            &[
                ("x-ratelimit-remaining-requests", "59"),
                ("x-ratelimit-reset-requests", "1s"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "1m6.5s"),
            ],
            Some(Duration::from_millis(66_500)),
        ),
        (&[("x-ratelimit-reset-requests", "20ms")], Some(Duration::from_millis(20))),
        (&[("x-ratelimit-reset-requests", "9s"), ("x-ratelimit-reset-tokens", "4s")], seconds(4)),
        // Anthropic: a moment for each; several may be used up.
        (
            &[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2026-11-21T12:00:10Z"),
                ("anthropic-ratelimit-input-tokens-remaining", "0"),
                ("anthropic-ratelimit-input-tokens-reset", "2026-11-21T12:00:50Z"),
                ("anthropic-ratelimit-output-tokens-remaining", "8000"),
                ("anthropic-ratelimit-output-tokens-reset", "2026-11-21T12:02:00Z"),
            ],
            seconds(50),
        ),
        (&[("llm_provider-x-ratelimit-reset-requests", "20ms")], Some(Duration::from_millis(20))),
        // Moments in seconds and milliseconds, and seconds.
        (&[("x-ratelimit-reset", "1795262407")], seconds(7)),
        (&[("x-ratelimit-reset", "1795262407000")], seconds(7)),
        (&[("ratelimit-reset", "30")], seconds(30)),
        // When a limit is whole again is not when one request fits.
        (&[("x-ratelimit-reset-requests", "23h59m0s")], seconds(300)),
        // `Retry-After` comes first, however little sense it makes.
        (&[("retry-after", "7"), ("x-ratelimit-reset-requests", "1s")], seconds(7)),
        (&[("retry-after", "soon"), ("x-ratelimit-reset-requests", "1s")], None),
        // Invalid values are ignored.
        (&[("x-ratelimit-reset-requests", "")], None),
        (&[("x-ratelimit-reset-requests", "0s")], None),
        (&[("x-ratelimit-reset-requests", "-5s")], None),
        (&[("x-ratelimit-reset-requests", "1e308")], None),
        (&[("x-ratelimit-reset-requests", "NaN")], None),
        (&[("x-ratelimit-reset-requests", "99999999999999999999h")], None),
        (&[("x-ratelimit-reset", "1795262399")], None),
        (&[("x-ratelimit-reset", "-1")], None),
        (&[("anthropic-ratelimit-requests-reset", "2026-11-21T11:00:00Z")], None),
        (&[("anthropic-ratelimit-requests-reset", "2036-11-21T12:00:00Z")], None),
        (&[("anthropic-ratelimit-requests-reset", "tomorrow")], None),
    ];
    for (lines, wait) in limits {
        assert_eq!(wait_of(&sorted(429, lines, "")), *wait, "{lines:?}");
        let busy = wait_of(&sorted(503, lines, ""));
        let told = lines.contains(&("retry-after", "7"));
        assert_eq!(busy, if told { seconds(7) } else { None }, "only of limits: {lines:?}");
    }
}

#[test]
fn implausible_retry_after_is_ignored() {
    let seconds = |n| Some(Duration::from_secs(n));
    let table: &[(&HeaderLines, Option<Duration>)] = &[
        (&[], None),
        (&[("retry-after", "7")], seconds(7)),
        (&[("retry-after", " 7 ")], seconds(7)),
        (&[("retry-after", "0.5")], Some(Duration::from_millis(500))),
        (&[("retry-after", "0")], None),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "315360000")], None),
        (&[("retry-after", "1e400")], None),
        (&[("retry-after", "NaN")], None),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "")], None),
        (&[("retry-after", "Sat, 21 Nov 2026 12:01:30 GMT")], seconds(90)),
        (&[("retry-after", "Sat, 21 Nov 2026 11:00:00 GMT")], None),
        (&[("retry-after", "Thu, 21 Nov 2036 12:00:00 GMT")], None),
        (&[("retry-after-ms", "1500"), ("retry-after", "9")], Some(Duration::from_millis(1500))),
        (&[("retry-after-ms", "x"), ("retry-after", "9")], seconds(9)),
        // A gateway passes the header of its own provider on with a prefix.
        (&[("llm_provider-retry-after", "9")], seconds(9)),
        (&[("llm_provider-retry-after", "9"), ("retry-after", "7")], seconds(7)),
        (&[("llm_provider-retry-after-ms", "1500")], Some(Duration::from_millis(1500))),
    ];
    for (lines, wait) in table {
        for code in [429, 503] {
            assert_eq!(wait_of(&sorted(code, lines, "")), *wait, "{lines:?}");
        }
    }
    let bodies = [
        (r#"{"error":{"message":"Please try again in 1.5s."}}"#, Some(Duration::from_millis(1500))),
        (r#"{"error":{"message":"try again in 6m0s"}}"#, seconds(360)),
        (
            r#"{"error":{"message":"try again in 20 milliseconds"}}"#,
            Some(Duration::from_millis(20)),
        ),
        (r#"{"error":{"message":"try again in 900h"}}"#, None),
        (r#"{"error":{"message":"try again in a while"}}"#, None),
        (
            r#"[{"error":{"code":429,"message":"m","details":[{"retryDelay": "34s"}]}}]"#,
            seconds(34),
        ),
    ];
    for (body, wait) in bodies {
        assert_eq!(wait_of(&sorted(429, &[], body)), wait, "{body}");
    }
}

#[test]
fn distinguishes_a_quota_from_a_rate_limit() {
    let quota = [
        r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#,
        r#"{"error":{"message":"Your credit balance is too low to use the API"}}"#,
        r#"{"error":{"message":"x","type":"billing_hard_limit_reached"}}"#,
    ];
    for body in quota {
        assert_eq!(sorted(429, &[], body).class(), "quota", "{body}");
        assert_eq!(sorted(403, &[], body).class(), "quota", "{body}");
    }
    // Gemini reports its limits per minute in the same way, with a wait.
    let minute = r#"[{"error":{"code":429,"message":"You exceeded your current quota",
        "status":"RESOURCE_EXHAUSTED","details":[{"retryDelay": "34s"}]}}]"#;
    assert_eq!(sorted(429, &[], minute).class(), "rate_limited");
    let tokens = r#"{"error":{"message":"Rate limit reached: maximum context length of tokens per min","code":"rate_limit_exceeded"}}"#;
    assert_eq!(sorted(429, &[], tokens).class(), "rate_limited");
    let reset = sorted(429, &[("retry-after", "3600")], quota[0]);
    assert_eq!(wait_of(&reset), Some(Duration::from_hours(1)));
}

#[test]
fn recognises_context_overflow_of_each_vendor() {
    let messages = [
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Please reduce the length of the messages or completion.",
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "the input length exceeds the context length",
        "Your input exceeds the context window of this model.",
    ];
    for message in messages {
        let body = serde_json::json!({ "error": { "message": message } }).to_string();
        for code in [400, 413, 422, 500] {
            assert_eq!(sorted(code, &[], &body).class(), "context_full", "{message}");
        }
        assert_eq!(in_reply(&origin(), &body).class(), "context_full", "{message}");
    }
    let by_code = r#"{"error":{"message":"no","code":"context_length_exceeded"}}"#;
    assert_eq!(sorted(400, &[], by_code).class(), "context_full");
    let other = r#"{"error":{"message":"max_tokens is too large: this model supports 4096"}}"#;
    assert_eq!(sorted(400, &[], other).class(), "rejected");
}

#[test]
fn servers_without_tools_and_without_thinking_are_recognised() {
    let table = [
        (500, "tools param requires --jinja flag", "rejected", true, false),
        (400, "registry.ollama.ai/library/gemma does not support tools", "rejected", true, false),
        (404, "No endpoints found that support tool use.", "rejected", true, false),
        (400, "\"auto\" tool choice requires --enable-auto-tool-choice", "rejected", true, false),
        (429, "it does not support tools so often", "rate_limited", true, false),
        (500, "out of memory", "overloaded", false, false),
        (
            400,
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found \
             `tool_use`.",
            "rejected",
            false,
            true,
        ),
        (
            400,
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "rejected",
            false,
            true,
        ),
        (
            500,
            "expected `thinking` or `redacted_thinking`, but found x",
            "overloaded",
            false,
            false,
        ),
    ];
    for (code, message, class, without_tools, without_thinking) in table {
        let body = serde_json::json!({"error": {"message": message}}).to_string();
        let error = sorted(code, &[], &body);
        assert_eq!(error.class(), class, "{message}");
        assert_eq!(error.chain().contains(NO_TOOLS), without_tools, "{}", error.chain());
        assert_eq!(is_missing_thought(&error), without_thinking, "{message}");
    }
}

#[test]
fn errors_of_gateways_name_the_key_and_the_setting() {
    let unknown = r#"{"error":{"message":"No connected db.","type":"no_db_connection","param":null,"code":"400"}}"#;
    assert_eq!(sorted(400, &[], unknown).class(), "unauthorized");
    let parameter =
        r#"{"error":{"message":"anthropic does not support parameters: ['prompt_cache_key']"}}"#;
    let error = sorted(400, &[], parameter);
    assert_eq!(error.class(), "rejected");
    assert!(error.chain().ends_with(NO_CACHE_KEY), "{}", error.chain());
}

#[test]
fn messages_of_gateways_are_one_line() {
    let table = [
        ("a\nReceived Model Group=m\n\nAvailable=None", "a Received Model Group=m Available=None"),
        (r#"OpenAIException - {\n  "error": 1}\r\n"#, r#"OpenAIException - { "error": 1}"#),
        (r"no file C:\new\notes", r"no file C:\new\notes"),
        ("\t one\u{a0}two  ", "one two"),
        ("", ""),
    ];
    for (text, expected) in table {
        assert_eq!(one_line(text), expected, "{text:?}");
    }
    let body = r#"{"error":{"message":"litellm.RateLimitError: slow\nReceived Model Group=m"}}"#;
    let chain = sorted(429, &[("llm_provider-retry-after", "7")], body).chain();
    assert!(chain.ends_with("slow Received Model Group=m"), "{chain}");
}

#[test]
fn errors_inside_a_reply_are_classified() {
    let table = [
        (r#"{"error":{"message":"m","code":429}}"#, "rate_limited"),
        (r#"{"error":{"message":"m","type":"rate_limit_error"}}"#, "rate_limited"),
        (r#"{"error":{"message":"m","code":"content_filter","status":400}}"#, "filtered"),
        (r#"{"error":{"message":"m","code":"503"}}"#, "overloaded"),
        (r#"{"error":{"message":"m","type":"overloaded_error"}}"#, "overloaded"),
        (r#"{"error":{"message":"m","code":400}}"#, "rejected"),
        // The first valid status counts, whatever numbers the other fields have.
        (r#"{"error":{"message":"m","code":401,"type":7,"status":0}}"#, "unauthorized"),
        (r#"{"error":{"message":"m","code":"401","type":"99","status":503}}"#, "unauthorized"),
        (r#"{"error":{"message":"m","code":7,"type":0,"status":401}}"#, "unauthorized"),
        (r#"{"error":{"message":"m","code":401,"status":700}}"#, "unauthorized"),
        (r#"{"error":{"message":"m","type":"invalid_request_error"}}"#, "rejected"),
        (r#"{"error":{"message":"m","code":401}}"#, "unauthorized"),
        (r#"{"error":{"message":"m","code":"invalid_api_key"}}"#, "unauthorized"),
        (r#"{"error":{"message":"m","code":"insufficient_quota"}}"#, "quota"),
        (r#"{"error":"plain words"}"#, "overloaded"),
        (r#"{"error":[1]}"#, "overloaded"),
        ("plain words", "overloaded"),
    ];
    for (body, class) in table {
        assert_eq!(in_reply(&origin(), body).class(), class, "{body}");
    }
}

#[test]
fn unknown_path_names_the_settings_that_determine_it() {
    let table = [
        (404, "", true),
        (404, r#"{"detail":"Not Found"}"#, true),
        (404, r#"{"error":"File Not Found"}"#, true),
        (405, r#"{"detail":"Method Not Allowed"}"#, true),
        (404, "404 page not found", true),
        (
            404,
            r#"{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}"#,
            false,
        ),
        (404, r#"{"error":{"type":"not_found_error","message":"model: x"}}"#, false),
        (400, r#"{"detail":"Bad Request"}"#, false),
    ];
    for (code, body, is_path) in table {
        let error = sorted(code, &[], body);
        assert_eq!(error.class(), "rejected", "{body}");
        let advice = "check `type` and `baseURL` of the provider";
        assert_eq!(error.chain().contains(advice), is_path, "{}", error.chain());
        assert!(!error.chain().contains("  "), "{}", error.chain());
    }
}

#[test]
fn finds_the_error_message_in_any_shape() {
    let table = [
        (r#"{"error":{"message":"m"}}"#, "m"),
        (r#"[{"error":{"message":"m"}}]"#, "m"),
        (r#"{"error":"m"}"#, "m"),
        (r#"{"message":"m","object":"error"}"#, "m"),
        (r#"{"detail":"m"}"#, "m"),
        (r#"{"error":{"message":"a\nb\u001b[0m"}}"#, r"a b\u{1b}[0m"),
        (r#"{"odd":1}"#, r#"{"odd":1}"#),
        ("m", "m"),
        ("<html><body>m", "an HTML page"),
    ];
    for (body, message) in table {
        let chain = sorted(400, &[], body).chain();
        assert_eq!(
            chain,
            format!("the provider rejected the request: acme: answered 400: {message}")
        );
    }
    let long = sorted(400, &[], &"ä".repeat(100_000)).chain();
    assert!(long.len() < 2200, "{}", long.len());
}

/// A resolver with a scripted result.
struct Resolver(Result<Vec<std::net::SocketAddr>, &'static str>);

impl reqwest::dns::Resolve for Resolver {
    fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let answer = self.0.clone();
        Box::pin(async move {
            let addresses = answer.map_err(std::io::Error::other)?;
            Ok(Box::new(addresses.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

/// Result of a request to a host with this resolver.
async fn resolved(
    answer: Result<Vec<std::net::SocketAddr>, &'static str>,
) -> Result<String, ProviderError> {
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(crate::tls::client_config().unwrap())
        .dns_resolver(std::sync::Arc::new(Resolver(answer)))
        .connect_timeout(Duration::from_secs(5))
        .no_proxy()
        .build()
        .unwrap();
    let origin = MessageOrigin::new("local", "http://api.provider.test".to_owned());
    let asked = client.get("http://api.provider.test/v1").send().await;
    let response = asked.map_err(|error| transport(&origin, error))?;
    Ok(response.text().await.unwrap())
}

#[tokio::test]
async fn unresolvable_names_and_first_reachable_address() {
    let error = resolved(Err("no such host")).await.unwrap_err();
    assert!(matches!(error, ProviderError::NoServer { .. }), "{error:?}");
    assert_eq!(error.class(), "unreachable");
    assert!(error.chain().contains("is not known here: check the network"), "{}", error.chain());
    // A name of this machine without a listener.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = resolved(Ok(vec![free])).await.unwrap_err();
    assert!(matches!(error, ProviderError::NoServer { .. }), "{error:?}");
    assert!(error.chain().contains("nothing listens at"), "{}", error.chain());
    // A silent address (RFC 6666) before one that responds.
    let server = Server::start([answer("200 OK", "", "here")]).await;
    let port = server.address.rsplit(':').next().unwrap().parse().unwrap();
    let black_hole = std::net::SocketAddr::new("100::1".parse().unwrap(), port);
    let here = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let began = std::time::Instant::now();
    assert_eq!(resolved(Ok(vec![black_hole, here])).await.unwrap(), "here");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}
