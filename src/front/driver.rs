//! What another program wants: one JSON object a line on standard input.
//!
//! A line that makes no sense is answered and skipped. Lines are bounded, and so is how many wait.

use std::io::{self, BufRead};

use posse_actors::conversation::{ContentPart, QuestionId};
use posse_actors::event::Scope;
use posse_actors::permission_coordinator::Decision;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

/// Bytes of a line, images included.
const LINE_BYTES_MAX: usize = 4 << 20;

/// Instructions that wait to be followed.
const WAITING_MAX: usize = 16;

/// Characters of an error about a line: it may quote the line.
const ERROR_CHARS_MAX: usize = 300;

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Instruction {
    /// Start work.
    Message(Vec<ContentPart>),
    /// Say this at the next safe point.
    Steer(Vec<ContentPart>),
    /// Say this after the answer.
    FollowUp(Vec<ContentPart>),
    /// Stop the work, not the session: the turn, or every agent.
    Interrupt { all: bool },
    /// Make the history shorter; this is to be kept.
    Compact(Option<String>),
    /// Say what a request is made of.
    Context,
    /// A question was decided.
    Answer(QuestionId, Decision),
}

/// An instruction, or what is wrong with the line.
#[derive(Debug)]
pub(crate) struct Numbered {
    /// From 1.
    pub(crate) line: u64,
    pub(crate) what: Result<Instruction, String>,
}

/// Reads standard input on a thread of its own.
#[derive(Debug)]
pub(crate) struct Driver {
    lines: mpsc::Receiver<Numbered>,
}

impl Driver {
    /// Starts reading.
    pub(crate) fn start() -> Driver {
        let (sender, lines) = mpsc::channel(WAITING_MAX);
        std::thread::spawn(move || {
            read(io::stdin().lock(), |numbered| sender.blocking_send(numbered).is_ok());
        });
        Driver { lines }
    }

    /// The next instruction. `None` at the end of standard input. Dropping the future loses
    /// nothing.
    pub(crate) async fn next(&mut self) -> Option<Numbered> {
        self.lines.recv().await
    }
}

/// Hands on every line that is not blank, until nobody takes it.
fn read(mut input: impl BufRead, mut hand_on: impl FnMut(Numbered) -> bool) {
    for line in 1.. {
        let what = match next_line(&mut input) {
            Ok(None) => return,
            Ok(Some(Line::Whole(bytes))) if bytes.trim_ascii().is_empty() => continue,
            Ok(Some(Line::Whole(bytes))) => parse(&bytes),
            Ok(Some(Line::TooLong)) => Err(format!("is longer than {LINE_BYTES_MAX} bytes")),
            Err(error) => {
                let what = Err(format!("cannot be read: {error}"));
                hand_on(Numbered { line, what });
                return;
            }
        };
        if !hand_on(Numbered { line, what }) {
            return;
        }
    }
}

/// A line of bounded length.
pub(crate) enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// The next line with its newline, if it has one. `None` at the end.
pub(crate) fn next_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut bytes = Vec::new();
    let mut too_long = false;
    loop {
        let piece = match input.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = piece.iter().position(|byte| *byte == b'\n');
        let (taken, over) = match end {
            Some(end) => (end + 1, true),
            None => (piece.len(), piece.is_empty()),
        };
        if over && taken == 0 && bytes.is_empty() && !too_long {
            return Ok(None);
        }
        if bytes.len() + taken > LINE_BYTES_MAX {
            (bytes, too_long) = (Vec::new(), true);
        } else if !too_long {
            bytes.extend_from_slice(&piece[..taken]);
        }
        input.consume(taken);
        if over {
            return Ok(Some(if too_long { Line::TooLong } else { Line::Whole(bytes) }));
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase", deny_unknown_fields)]
enum Wire {
    #[serde(rename = "message")]
    Message { content: Value },
    #[serde(rename = "steer")]
    Steer { content: Value },
    #[serde(rename = "follow_up")]
    FollowUp { content: Value },
    #[serde(rename = "interrupt")]
    Interrupt {
        #[serde(default)]
        all: bool,
    },
    #[serde(rename = "compact")]
    Compact {
        #[serde(default)]
        keep: Option<String>,
    },
    #[serde(rename = "context")]
    Context {},
    #[serde(rename = "permission.answer")]
    Answer {
        request_id: QuestionId,
        decision: Verdict,
        #[serde(default)]
        scope: Option<Scope>,
        #[serde(default)]
        reason: Option<String>,
        /// The second key for the widest scope.
        #[serde(default)]
        confirm: Option<Scope>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Allow,
    Deny,
}

/// What a line means, or what is wrong with it.
fn parse(line: &[u8]) -> Result<Instruction, String> {
    let wire: Wire = serde_json::from_slice(line).map_err(|error| unfit(&error))?;
    Ok(match wire {
        Wire::Message { content } => Instruction::Message(parts(content)?),
        Wire::Steer { content } => Instruction::Steer(parts(content)?),
        Wire::FollowUp { content } => Instruction::FollowUp(parts(content)?),
        Wire::Interrupt { all } => Instruction::Interrupt { all },
        Wire::Compact { keep } => Instruction::Compact(keep),
        Wire::Context {} => Instruction::Context,
        Wire::Answer { decision: Verdict::Allow, scope: Some(Scope::Global), confirm, .. }
            if confirm != Some(Scope::Global) =>
        {
            return Err(r#"the scope global needs "confirm": "global" as well"#.to_owned());
        }
        Wire::Answer { request_id, decision: Verdict::Allow, scope, .. } => {
            Instruction::Answer(request_id, Decision::Allow(scope.unwrap_or(Scope::Once)))
        }
        Wire::Answer { request_id, decision: Verdict::Deny, reason, .. } => {
            Instruction::Answer(request_id, Decision::Deny { reason })
        }
    })
}

/// `content`: a text, or parts.
fn parts(content: Value) -> Result<Vec<ContentPart>, String> {
    let parts: Vec<ContentPart> = match content {
        Value::String(text) => vec![ContentPart::text(text)],
        Value::Array(parts) => {
            let part = |(nth, part): (usize, Value)| {
                let wrong = |error: serde_json::Error| short(&format!("content[{nth}]: {error}"));
                serde_json::from_value(part).map_err(wrong)
            };
            parts.into_iter().enumerate().map(part).collect::<Result<_, String>>()?
        }
        _ => return Err("content is neither a text nor a list of parts".to_owned()),
    };
    let says = |part: &ContentPart| match part {
        ContentPart::Text { text } => !text.trim().is_empty(),
        ContentPart::ImageUrl { .. } => true,
    };
    if !parts.iter().any(says) {
        return Err("content is empty".to_owned());
    }
    let address = |url: &str| {
        ["https://", "http://", "data:image/"].iter().any(|beginning| url.starts_with(beginning))
    };
    for (nth, part) in parts.iter().enumerate() {
        match part {
            ContentPart::ImageUrl { url, .. } if !address(url) => {
                return Err(format!("content[{nth}]: an image is an http(s) or data:image/ URL"));
            }
            ContentPart::ImageUrl { .. } | ContentPart::Text { .. } => (),
        }
    }
    Ok(parts)
}

/// What is wrong with a line. Its own number is said elsewhere, and here it would always be 1.
fn unfit(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let said = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    if error.is_data() {
        return short(said);
    }
    short(&format!("not valid JSON: {said} at column {}", error.column()))
}

fn short(error: &str) -> String {
    match error.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => format!("{} …", &error[..end]),
        None => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;

    fn all(input: impl Read) -> Vec<(u64, Result<Instruction, String>)> {
        let mut seen = Vec::new();
        read(BufReader::with_capacity(7, input), |Numbered { line, what }| {
            seen.push((line, what));
            true
        });
        seen
    }

    #[test]
    fn understands_every_instruction() {
        let text = |text: &str| vec![ContentPart::text(text)];
        let id = QuestionId::new("q1");
        let table = [
            (r#"{"type":"message","content":"hi"}"#, Instruction::Message(text("hi"))),
            (
                r#"{"type":"message","content":[{"type":"text","text":"hi"}]}"#,
                Instruction::Message(text("hi")),
            ),
            (r#"{"type":"steer","content":"left"}"#, Instruction::Steer(text("left"))),
            (r#"{"content":"more","type":"follow_up"}"#, Instruction::FollowUp(text("more"))),
            (r#"{"type":"context"}"#, Instruction::Context),
            (r#"{"type":"compact"}"#, Instruction::Compact(None)),
            (
                r#"{"type":"compact","keep":"the port"}"#,
                Instruction::Compact(Some("the port".to_owned())),
            ),
            (r#"{"type":"interrupt"}"#, Instruction::Interrupt { all: false }),
            (r#"{"type":"interrupt","all":true}"#, Instruction::Interrupt { all: true }),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"allow"}"#,
                Instruction::Answer(id.clone(), Decision::Allow(Scope::Once)),
            ),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"allow","scope":"session"}"#,
                Instruction::Answer(id.clone(), Decision::Allow(Scope::Session)),
            ),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"allow","scope":"global","confirm":"global"}"#,
                Instruction::Answer(id.clone(), Decision::Allow(Scope::Global)),
            ),
            (
                r#"{"type":"permission.answer","requestId":"q1","decision":"deny","reason":"no"}"#,
                Instruction::Answer(id, Decision::Deny { reason: Some("no".to_owned()) }),
            ),
        ];
        for (line, meant) in table {
            assert_eq!(parse(line.as_bytes()), Ok(meant), "{line}");
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_line() {
        let table = [
            ("nonsense", "not valid JSON: expected ident at column 2"),
            (r#"{"type":"interrupt""#, "not valid JSON: EOF while parsing an object at column 19"),
            ("[]", "missing field `type`"),
            (r#"{"type":"mesage","content":"x"}"#, "unknown variant `mesage`"),
            (r#"{"type":"message"}"#, "missing field `content`"),
            (r#"{"type":"message","content":" "}"#, "content is empty"),
            (r#"{"type":"message","content":[]}"#, "content is empty"),
            (r#"{"type":"message","content":7}"#, "neither a text"),
            (r#"{"type":"message","content":[{"type":"video"}]}"#, "content[0]: unknown variant"),
            (r#"{"type":"message","content":[{"type":"image_url","url":"/etc/x"}]}"#, "content[0]"),
            (r#"{"type":"permission.answer","requestId":"q","decision":"maybe"}"#, "`maybe`"),
            (r#"{"type":"permission.answer","decision":"allow"}"#, "requestId"),
            (
                r#"{"type":"permission.answer","requestId":"q","decision":"allow","scope":"global"}"#,
                "needs \"confirm\": \"global\"",
            ),
        ];
        for (line, part) in table {
            let error = parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
            assert!(!error.contains("at line"), "{line}: {error}");
        }
        let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(10_000));
        assert!(parse(long.as_bytes()).unwrap_err().chars().count() <= ERROR_CHARS_MAX + 2);
    }

    #[test]
    fn a_bad_line_is_skipped_and_counted() {
        let input = "{\"type\":\"interrupt\"}\n\n\u{fffd}\u{0}\n{\"type\":\"interrupt\"}";
        let seen = all(input.as_bytes());
        let lines: Vec<_> = seen.iter().map(|(line, what)| (*line, what.is_ok())).collect();
        assert_eq!(lines, [(1, true), (3, false), (4, true)]);
    }

    #[test]
    fn a_line_without_end_costs_no_more_than_the_bound() {
        let long = io::repeat(b'x').take(3 * LINE_BYTES_MAX as u64);
        let seen = all(long.chain(&b"\n{\"type\":\"interrupt\"}\n"[..]));
        assert_eq!(seen[0], (1, Err(format!("is longer than {LINE_BYTES_MAX} bytes"))));
        assert_eq!(seen[1], (2, Ok(Instruction::Interrupt { all: false })));
        assert_eq!(seen.len(), 2);
    }
}
