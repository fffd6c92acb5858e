//! Recorded replies of compatible servers, and their results.

use std::fmt::Write as _;

use super::*;

macro_rules! fixture {
    ($name:literal) => {
        ($name, include_str!(concat!("../fixtures/", $name, ".sse")))
    };
}

#[tokio::test]
async fn decodes_recorded_replies() {
    let fixtures = [
        fixture!("text"),
        fixture!("thinking_and_calls"),
        fixture!("two_calls_at_once"),
        fixture!("max_tokens"),
        fixture!("content_filter"),
        fixture!("refusal"),
        fixture!("error"),
        fixture!("later_versions"),
    ];
    let mut all = replies::recorded(Protocol::ChatCompletions, &fixtures).await;
    let whole = include_str!("../fixtures/whole.json");
    let (reply, deltas) = once(answer("200 OK", "", whole)).await;
    writeln!(all, "== whole\n{}\n{}", replies::joined(&deltas), replies::shown(&reply)).unwrap();
    insta::assert_snapshot!(all);
}
