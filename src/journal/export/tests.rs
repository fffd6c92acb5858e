//! Documents of sessions with hostile contents and of every kind of event.

use std::sync::Arc;

use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, Message, QuestionId, Reasoning, SessionId, StopReason,
    ToolCall, Usage,
};
use posse_actors::event::{Event, PermissionTarget, RecordId, SandboxTier, Scope, StoredRecord};
use proptest::prelude::*;
use pulldown_cmark::{Event as Piece, Options, Parser, Tag};
use serde_json::json;

use super::*;
use crate::export::safe;

/// Text that a hostile model, repository or server could write.
const HOSTILE: &str = "<script>alert(1)</script> <img src=x onerror=alert(1)> \
    [a](javascript:alert(1)) ![p](https://tracker.example/p.png) <a href='data:text/html,x'>b</a> \
    \u{1b}]0;owned\u{7}\u{202e}gnp\u{2066} \"'><svg onload=alert(1)> </pre></details></style>\n\
    ```\n</code></pre><script>alert(2)</script>\n```\n\n<div onclick=\"alert(3)\">\n\
    [b]: javascript:alert(4)\n\n[b] [c][b] <javascript:alert(5)>\n";

fn record(number: u64, event: Event) -> StoredRecord {
    StoredRecord {
        v: 1,
        record: number,
        ts: 1_795_300_000_000 + number * 1500,
        id: RecordId { process: 7, count: u32::try_from(number).unwrap() },
        session_id: SessionId::new("s"),
        origin: None,
        event,
    }
}

fn reply(text: &str, calls: &[(&str, &str, &str)]) -> Event {
    let call = |(id, name, arguments): &(&str, &str, &str)| ToolCall {
        id: CallId::new(*id),
        provider_id: None,
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    Event::ModelReply {
        turn: 1,
        message: AssistantMessage {
            content: Some(text.to_owned()),
            reasoning: Some(Reasoning { text: text.to_owned(), ..Reasoning::default() }),
            tool_calls: calls.iter().map(call).collect(),
        },
        stop_reason: StopReason::ToolUse,
        model: None,
    }
}

/// A session in which every untrusted field contains `text`.
#[expect(clippy::too_many_lines, reason = "one of each kind of event, in order")]
fn session(text: &str) -> Vec<Event> {
    let owned = || text.to_owned();
    let content = || vec![ContentPart::text(text)];
    let id = CallId::new("c1");
    let question = QuestionId::new("q1");
    vec![
        Event::SessionStarted {
            posse: owned(),
            cwd: owned(),
            agent: owned(),
            provider: owned(),
            model: owned(),
            mode: owned(),
            tier: SandboxTier::default(),
            permission_mode: None,
            instructions: String::new(),
            budget: posse_actors::cost::Budget::default(),
            prompt: posse_actors::event::PromptOverrides::default(),
            forked_from: None,
        },
        Event::UserMessage { content: content(), message_id: None },
        reply(text, &[("c1", text, text), ("c2", "bash", "{}")]),
        Event::ModelUsage {
            turn: 1,
            usage: Usage { input_tokens: Some(5), output_tokens: Some(7), ..Usage::default() },
            billing: None,
        },
        Event::ToolRequested { call_id: id.clone(), name: owned(), arguments: owned() },
        Event::PermissionRequested {
            user_request: None,
            trial: None,
            grant: None,
            grants_part: false,
            grant_text: String::new(),
            hunks: Vec::new(),
            target: PermissionTarget::default(),
            request_id: question.clone(),
            call_id: id.clone(),
            tool: owned(),
            summary: owned(),
            detail: owned(),
            reason: owned(),
            scopes: vec![Scope::Once],
            digest: owned(),
            cwd: owned(),
            binding: owned(),
        },
        Event::PermissionGranted {
            reply: None,
            target: PermissionTarget::default(),
            request_id: question,
            by: owned().into(),
            scope: Scope::Session,
            grants_part: false,
            keeps_trial: false,
            hunks: Vec::new(),
            grant: None,
            binding: owned(),
            answered_by: None,
        },
        Event::ToolStarted {
            call_id: id.clone(),
            name: owned(),
            summary: format!("other {text}"),
            digest: owned(),
            effect: true,
            coerced: Vec::new(),
        },
        Event::SandboxEnforced {
            call_id: id.clone(),
            tier: SandboxTier::from(owned()),
            report: json!(null),
        },
        Event::ToolCompleted {
            call_id: id,
            name: owned(),
            content: content(),
            metadata: json!({ "diff": format!("--- a\n+++ b\n+{text}\n-{text}\n"), "exitCode": 3,
                              "signal": text }),
            duration_ms: 1234,
        },
        Event::ToolFailed {
            call_id: CallId::new("c2"),
            name: "bash".to_owned(),
            content: content(),
            class: owned().into(),
            metadata: json!(null),
            duration_ms: 0,
        },
        Event::ToolRequested {
            call_id: CallId::new("c3"),
            name: "bash".to_owned(),
            arguments: json!({ "command": text }).to_string(),
        },
        Event::ModelPartial { turn: 2, text: owned(), cause: owned(), in_history: false },
        Event::ActorCrashed { actor: "AgentInvocation".to_owned(), cause: owned() },
        Event::ActorRestarted { actor: "AgentInvocation".to_owned(), restarts: 1 },
        Event::ProviderRetry {
            provider: owned(),
            attempt: 1,
            cause: owned(),
            class: owned(),
            wait_ms: 1000,
        },
        Event::LimitReached { limit: owned(), value: 3, spent: None, needed: None },
        Event::Warning { message: owned() },
        Event::InvocationFailed {
            class: owned(),
            cause: owned(),
            turns: 1,
            usage: Usage::default(),
        },
        Event::Unknown,
        Event::SessionEnded {
            reason: owned().into(),
            exit_code: 1,
            usage: Usage::default(),
            cost_usd: None,
            cost_nano_usd: None,
            unpriced_requests: 0,
            turns: 1,
            result: None,
            error: None,
        },
    ]
}

fn documents(events: Vec<Event>) -> (String, String) {
    let mut story = Story::new("20260101-000000-aaaaaa");
    for (event, number) in events.into_iter().zip(1..) {
        story.add(record(number, event));
    }
    let (mut page, mut text) = (Vec::new(), Vec::new());
    html::write(&story, &TimeZone::UTC, &mut page).unwrap();
    markdown::write(&story, &TimeZone::UTC, &mut text).unwrap();
    (String::from_utf8(page).unwrap(), String::from_utf8(text).unwrap())
}

/// The tags of a page, without the angle brackets.
fn tags(page: &str) -> Vec<&str> {
    let body = page.split_once("</style>").unwrap().1;
    body.split('<').skip(1).map(|rest| rest.split_once('>').expect("a tag has an end").0).collect()
}

#[track_caller]
fn assert_harmless(page: &str) {
    const TAGS: [&str; 42] = [
        "html",
        "head",
        "title",
        "body",
        "main",
        "header",
        "section",
        "details",
        "summary",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "p",
        "div",
        "span",
        "b",
        "i",
        "em",
        "strong",
        "del",
        "code",
        "pre",
        "ul",
        "ol",
        "li",
        "dl",
        "dt",
        "dd",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "blockquote",
        "a",
        "br",
        "hr",
        "time",
    ];
    assert_eq!(page.matches("<style>").count(), 1);
    for tag in tags(page) {
        let bare = tag.trim_start_matches('/').trim_end_matches('/').trim();
        let (name, attributes) = bare.split_once(char::is_whitespace).unwrap_or((bare, ""));
        let input = name == "input" && attributes.contains("type=\"checkbox\"");
        assert!(TAGS.contains(&name) || input, "<{tag}>");
        for attribute in attributes.split_inclusive('"').collect::<Vec<_>>().chunks(2) {
            let name = attribute[0].trim().trim_end_matches("=\"");
            let value = attribute.get(1).copied().unwrap_or_default();
            let good = match name {
                "class" | "open" | "start" | "style" | "disabled" | "type" | "" => true,
                "href" => value.starts_with("http://") || value.starts_with("https://"),
                _ => input,
            };
            assert!(good, "<{tag}>: {name}");
        }
    }
    let odd =
        |c: &char| (c.is_control() && !"\n\t".contains(*c)) || "\u{202e}\u{2066}".contains(*c);
    assert_eq!(page.chars().find(odd), None);
}

#[test]
fn no_untrusted_text_becomes_markup_of_a_page() {
    let (page, text) = documents(session(HOSTILE));
    assert_harmless(&page);
    assert!(page.contains("default-src 'none'") && !page.contains("tracker.example/p.png\""));
    // The text itself stays readable.
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && page.contains("\\u{202e}"));
    assert_eq!(dangerous_pieces(&text), Vec::<String>::new());
    assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'));
}

#[test]
fn a_document_contains_every_event() {
    let (page, text) = documents(session("Some words"));
    for wanted in [
        "Some words",
        "exit 3",
        "1.2 s",
        "allowed by Some words, for the session",
        "no recorded end",
        "cut off",
        "crash",
        "AgentInvocation, number 1",
        "waits 1s",
        "the limit Some words (3) was reached",
        "warning",
        "5 in, 7 out",
        "exit code 1",
        "20260101-000000-aaaaaa",
    ] {
        assert!(page.contains(wanted), "the page has no {wanted:?}: {page}");
        assert!(text.replace('\\', "").contains(wanted), "the text has no {wanted:?}: {text}");
    }
    assert!(page.contains("<span class=\"added\">+Some words</span>"));
    assert!(page.contains("<span class=\"removed\">-Some words</span>"));
    assert!(text.contains("```diff\n"));
    // Without an answer and without an end.
    let (page, text) = documents(session("x").into_iter().take(6).collect());
    assert!(page.contains("no answer") && text.contains("no answer"));
    assert!(page.contains("not ended") && text.contains("not ended"));
}

/// HTML, images, and links that do not lead to the web.
fn dangerous_pieces(markdown: &str) -> Vec<String> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let bad = |piece: Piece<'_>| match piece {
        Piece::Html(text) | Piece::InlineHtml(text) => Some(text.to_string()),
        Piece::Start(Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        Piece::Start(Tag::Link { dest_url, .. }) if !dest_url.starts_with("http") => {
            Some(dest_url.to_string())
        }
        _ => None,
    };
    Parser::new_ext(markdown, options).filter_map(bad).collect()
}

#[test]
fn text_cannot_close_its_fence() {
    assert_eq!(safe::fenced("a\n````\nb", "text"), "`````text\na\n````\nb\n`````\n");
    assert_eq!(safe::code("a`b"), "`` a`b ``");
    assert_eq!(safe::code("a"), "`a`");
    assert_eq!(safe::html_line("a\n<b>"), "a\\n&lt;b&gt;");
}

#[test]
fn long_texts_are_truncated() {
    let long = "é".repeat(2 << 20);
    let (page, _) = documents(vec![Event::Warning { message: long }]);
    assert!(page.len() < 3 << 20 && page.contains("more bytes"), "{}", page.len());
}

#[test]
fn many_brackets_are_sanitised_quickly() {
    let start = std::time::Instant::now();
    for text in ["<b>".repeat(100_000), "[".repeat(50_000), "![](x)".repeat(50_000)] {
        let (page, markdown) = documents(vec![reply(&text, &[])]);
        assert_harmless(&page);
        assert_eq!(dangerous_pieces(&markdown), Vec::<String>::new());
    }
    assert!(start.elapsed() < std::time::Duration::from_secs(30), "{:?}", start.elapsed());
}

fn markup() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        "[ -~\n\t]{0,12}",
        any::<char>().prop_map(String::from),
        prop::sample::select(vec![
            "<script>",
            "</pre>",
            "[x](javascript:a)",
            "![",
            "](",
            "]: ",
            "[a]",
            "<a:b>",
            "`",
            "```\n",
            "\n\n",
            "> ",
            "- ",
            "    ",
            "<!--",
            "-->",
            "<?",
            "&lt;",
            "\\",
            "|a|\n|-|\n",
            "[a]: data:x\n",
            "<x@y.z>",
            "http://h/",
            "\u{202e}",
            "\r\n",
            "\u{1b}",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_markdown_is_sanitised(text in markup()) {
        let (page, markdown) = documents(vec![
            Event::UserMessage { content: vec![ContentPart::text(text.as_str())], message_id: None },
            reply(&text, &[]),
        ]);
        assert_harmless(&page);
        prop_assert_eq!(dangerous_pieces(&markdown), Vec::<String>::new(), "{}", markdown);
    }
}

#[test]
fn a_record_of_a_subagent_names_the_subagent() {
    use posse_actors::conversation::InvocationId;
    use posse_actors::event::Origin;

    let mut story = Story::new("s");
    let mut record = record(1, reply("hello", &[]));
    record.origin = Some(Arc::new(Origin {
        invocation_id: InvocationId::new("i2"),
        parent_invocation_id: Some(InvocationId::new("i1")),
        agent: "plan".to_owned(),
        agent_path: "build/plan".to_owned(),
    }));
    story.add(record);
    let mut page = Vec::new();
    html::write(&story, &TimeZone::UTC, &mut page).unwrap();
    assert!(String::from_utf8(page).unwrap().contains("Model · build/plan"));
}

#[test]
fn task_of_a_subagent_is_headed_by_its_agent() {
    let origin = posse_actors::event::Origin {
        invocation_id: posse_actors::conversation::InvocationId::new("i2"),
        parent_invocation_id: Some(posse_actors::conversation::InvocationId::new("i1")),
        agent: "worker".to_owned(),
        agent_path: "build/worker".to_owned(),
    };
    let said = |text: &str| Event::UserMessage {
        content: vec![ContentPart::text(text)],
        message_id: None,
    };
    let mut story = Story::new("s");
    story.add(record(1, said("from the user")));
    story.add(StoredRecord { origin: Some(Arc::new(origin)), ..record(2, said("from an agent")) });
    let (mut page, mut document) = (Vec::new(), Vec::new());
    html::write(&story, &TimeZone::UTC, &mut page).unwrap();
    markdown::write(&story, &TimeZone::UTC, &mut document).unwrap();
    for (text, of_user, of_agent) in [
        (document, "## You (", "## Task of build/worker ("),
        (page, "<h2>You ", "<h2>Task of build/worker "),
    ] {
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches(of_user).count(), 1, "{text}");
        assert_eq!(text.matches(of_agent).count(), 1, "{text}");
    }
}

fn user(text: &str, id: Option<&str>) -> Event {
    let message_id = id.map(posse_actors::conversation::MessageId::new);
    Event::UserMessage { content: vec![ContentPart::text(text)], message_id }
}

fn queued(id: &str, kind: posse_actors::event::MessageKind) -> Event {
    let message_id = posse_actors::conversation::MessageId::new(id);
    Event::MessageQueued { message_id, kind, content: Vec::new() }
}

fn started(model: &str) -> Event {
    let Event::SessionStarted { posse, cwd, agent, provider, mode, tier, .. } =
        session("x").swap_remove(0)
    else {
        unreachable!("the first event is the start")
    };
    Event::SessionStarted {
        model: model.to_owned(),
        permission_mode: None,
        instructions: String::new(),
        budget: posse_actors::cost::Budget::default(),
        prompt: posse_actors::event::PromptOverrides::default(),
        forked_from: None,
        posse,
        cwd,
        agent,
        provider,
        mode,
        tier,
    }
}

#[test]
fn title_author_and_end_are_those_of_the_session() {
    use posse_actors::event::MessageKind;
    let ended = session("switched").pop().unwrap();
    let events = vec![
        started("one"),
        user("first prompt", None),
        queued("m1", MessageKind::Steer),
        queued("m2", MessageKind::Notice),
        user("be quick", Some("m1")),
        user("(from posse, not from the user) a job ended", Some("m2")),
        Event::SessionTitled { title: "The port".to_owned() },
        ended,
        started("two"),
        user("go on", None),
    ];
    let (page, text) = documents(events);
    assert!(page.contains("<h1>The port</h1>") && text.contains("- Title: The port"), "{page}");
    assert!(page.contains("<h2>You · while it worked"), "{page}");
    let own = page.split_once("posse to the model").unwrap().1;
    assert!(own.contains("a job ended") && !own.contains("be quick"), "{page}");
    assert!(!page.contains("class=\"end") && text.contains("- End: not ended"), "{page}");
}

#[test]
fn copy_shows_the_records_of_its_original() {
    let history = vec![Arc::new(Message::User { content: vec![ContentPart::text("copied")] })];
    let forked = Event::SessionForked {
        parent: SessionId::new("a"),
        parent_record: 3,
        history,
        prompts: 1,
        memories: posse_actors::outcome::Memories::default(),
        todos: Vec::new(),
    };
    let titled = Event::SessionTitled { title: "The port".to_owned() };
    let original = [started("one"), user("first", None), titled, session("call").swap_remove(11)];
    let copy = [started("one"), forked, user("second", None)];
    let page = |reads_original: bool| {
        let mut story = Story::new("b");
        if reads_original {
            for (event, number) in original.iter().cloned().zip(1..) {
                story.add_original(record(number, event));
            }
            story.end_original();
        }
        for (event, number) in copy.iter().cloned().zip(1000..) {
            story.add(record(number, event));
        }
        let mut page = Vec::new();
        html::write(&story, &TimeZone::UTC, &mut page).unwrap();
        String::from_utf8(page).unwrap()
    };
    let whole = page(true);
    assert!(whole.contains("first") && whole.contains("second") && !whole.contains("copied"));
    assert!(whole.contains("class=\"call") && whole.contains("<h1>The port</h1>"), "{whole}");
    let times: Vec<&str> = whole.split("<h2>You <time>").skip(1).map(|rest| &rest[..8]).collect();
    assert_ne!(times[0], times[1], "each has its own time");
    assert!(page(false).contains("copied"), "without the original its messages are shown");
}
