//! Interpretation of a hook's exit code and output. Pure.
//!
//! The exit code is evaluated first: 0 continues, 2 denies, others are failures. Output that begins
//! like a JSON object is parsed. A denial by the exit code or in the JSON object denies, whatever
//! the other says. A hook that was killed is a failure, whatever it printed.

use posse_actors::conversation::ContentPart;
use posse_actors::event::HookEvent;
use posse_actors::ports::{HookReport, HookResult};
use posse_actors::text::clipped;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::{ErrorCode, printable_lines};
use crate::hooks::report;
use crate::sandbox::Exit;

/// Exit code of a denial.
const SAYS_NO: i32 = 2;
/// Maximum length of a message in characters, before control characters are escaped and without the
/// `…` that marks a cut.
const MESSAGE_CHARS_MAX: usize = 2000;
/// Maximum bytes of a hook's metadata as JSON. More make the answer invalid.
const METADATA_BYTES_MAX: usize = 16 << 10;

/// Exit of a hook's process, with its standard output (`output`) and standard error (`errors`).
#[derive(Debug, Clone, Copy)]
pub(super) struct HookExit<'a> {
    pub(super) exit: Exit,
    pub(super) output: &'a [u8],
    pub(super) errors: &'a [u8],
    /// Number of processes that the hook left behind, and that were killed. If there are any, an
    /// answer that does not deny becomes a failure.
    pub(super) stragglers: usize,
    pub(super) timeout_ms: u128,
}

/// Name, event, call arguments and failure setting of a hook, on which the interpretation of its
/// answer depends.
#[derive(Debug, Clone, Copy)]
pub(super) struct HookInput<'a> {
    /// Name of the hook.
    pub(super) hook: &'a str,
    pub(super) event: HookEvent,
    /// Arguments of the call. `None`: the event is not about a call.
    pub(super) input: Option<&'a Value>,
    /// True if a failure counts as a denial.
    pub(super) blocks: bool,
}

impl HookInput<'_> {
    /// Makes the report of a failed hook: `code` and, cut and escaped, `message`. It denies if
    /// `blocks` is true.
    pub(super) fn failed(&self, code: ErrorCode, message: &str) -> HookReport {
        let says = HookResult::Failed { code: code.to_string(), blocks: self.blocks };
        report(self.hook, says, Some(shown(message)))
    }

    fn blocked(&self, message: Option<String>) -> HookReport {
        let message = message.filter(|text| !text.trim().is_empty()).map(|text| shown(&text));
        report(self.hook, HookResult::Block, message)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    #[serde(default)]
    decision: AnswerDecision,
    #[serde(default, alias = "reason")]
    message: Option<String>,
    #[serde(default)]
    patch: Option<Map<String, Value>>,
    #[serde(default)]
    metadata: Value,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AnswerDecision {
    #[default]
    Allow,
    Warn,
    #[serde(alias = "deny")]
    Block,
}

/// Makes the report of a hook from its exit and output.
pub(super) fn read(asked: &HookInput<'_>, ended: &HookExit<'_>) -> HookReport {
    let (code, text) = match ended.exit {
        Exit::Code(code) => {
            let answer = by_code(asked, code, ended);
            if ended.stragglers == 0 || answer.says.blocks() {
                return answer;
            }
            let left = ended.stragglers;
            let text = format!("it left {left} processes behind, which were killed");
            (ErrorCode::HookTimedOut, text)
        }
        Exit::Signal(_) => {
            let name = ended.exit.signal_name().unwrap_or_default();
            let text = with_last_error(&format!("it was ended by {name}"), ended.errors);
            (ErrorCode::HookFailed, text)
        }
        Exit::TimedOut => {
            let text = format!("it took longer than {} ms and was killed", ended.timeout_ms);
            (ErrorCode::HookTimedOut, text)
        }
        Exit::OutputFull => {
            (ErrorCode::HookAnswerInvalid, "it printed too much and was killed".to_owned())
        }
        Exit::MemoryFull => {
            let text = "its processes used more than three quarters of the memory and were killed";
            (ErrorCode::HookFailed, text.to_owned())
        }
        Exit::TemporaryFull => {
            let text = "the temporary folder of the session exceeded 1 GiB; it was killed";
            (ErrorCode::HookFailed, text.to_owned())
        }
        Exit::Stopped => (ErrorCode::HookFailed, "it was stopped".to_owned()),
    };
    asked.failed(code, &text)
}

fn by_code(asked: &HookInput<'_>, code: i32, ended: &HookExit<'_>) -> HookReport {
    let text = String::from_utf8_lossy(ended.output);
    let text = text.trim_start_matches('\u{feff}').trim();
    let json = text.starts_with('{').then(|| serde_json::from_str::<Json>(text));
    match (code, json) {
        (SAYS_NO, json) => {
            // The reason of a denial may be on either stream.
            let output = if json.is_some() { &[] } else { ended.output };
            let words = || [ended.errors, output].map(words).into_iter().find(|w| !w.is_empty());
            let message = json.and_then(Result::ok).and_then(|json| json.message);
            asked.blocked(message.or_else(words))
        }
        // A denial in JSON counts with any exit code.
        (_, Some(Ok(json))) if json.decision == AnswerDecision::Block => {
            asked.blocked(json.message)
        }
        (0, Some(Ok(json))) => from_json(asked, json).unwrap_or_else(|what| invalid(asked, what)),
        (0, Some(Err(error))) => invalid(asked, &error.to_string()),
        (0, None) if text.is_empty() => report(asked.hook, HookResult::Pass, None),
        (0, None) if asked.blocks => {
            asked.failed(ErrorCode::HookAnswerInvalid, "its answer is not JSON")
        }
        (0, None) => report(asked.hook, HookResult::Pass, Some(shown(text))),
        (code, _) => {
            let text = with_last_error(&format!("it exited with {code}"), ended.errors);
            asked.failed(ErrorCode::HookFailed, &text)
        }
    }
}

fn invalid(asked: &HookInput<'_>, what: &str) -> HookReport {
    asked.failed(ErrorCode::HookAnswerInvalid, &format!("its answer makes no sense: {what}"))
}

fn from_json(asked: &HookInput<'_>, json: Json) -> Result<HookReport, &'static str> {
    let Json { decision, message, patch, metadata } = json;
    if metadata.to_string().len() > METADATA_BYTES_MAX {
        return Err("metadata is too long");
    }
    let says = match patch {
        None if decision == AnswerDecision::Warn => HookResult::Warn,
        None => HookResult::Pass,
        Some(patch) => patched(asked, patch)?,
    };
    let message = message.map(|text| shown(&text));
    Ok(HookReport { metadata, ..report(asked.hook, says, message) })
}

fn patched(
    asked: &HookInput<'_>,
    mut patch: Map<String, Value>,
) -> Result<HookResult, &'static str> {
    match asked.event {
        HookEvent::PreToolUse => {
            let mut input = asked.input.cloned().unwrap_or_default();
            let entries = input.as_object_mut().ok_or("there are no arguments to change")?;
            for (name, value) in patch {
                if value.is_null() {
                    entries.remove(&name)
                } else {
                    entries.insert(name, value)
                };
            }
            Ok(HookResult::Input(input))
        }
        HookEvent::PostToolUse | HookEvent::ToolError => match patch.remove("toolOutput") {
            Some(Value::String(text)) if patch.is_empty() => {
                Ok(HookResult::Output(vec![ContentPart::text(text)]))
            }
            _ => Err("here a patch is {\"toolOutput\": \"a text\"}"),
        },
        _ => Err("there is nothing to patch here"),
    }
}

/// `what`, followed by the last line of a program's standard error, if there is one.
fn with_last_error(what: &str, errors: &[u8]) -> String {
    let words = words(errors);
    // Most languages print the error in the last line.
    let last = words.lines().next_back().unwrap_or_default();
    if last.is_empty() { what.to_owned() } else { format!("{what}: {last}") }
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Cuts a message to [`MESSAGE_CHARS_MAX`] characters, then escapes its control characters except
/// newlines and tabs.
pub(super) fn shown(text: &str) -> String {
    printable_lines(&clipped(text, MESSAGE_CHARS_MAX, "…"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer_of(event: HookEvent, blocks: bool, exit: Exit, out: &str, err: &str) -> HookReport {
        let input = json!({"command": "ls", "timeoutMs": 1});
        let asked = HookInput { hook: "h", event, input: Some(&input), blocks };
        let (output, errors) = (out.as_bytes(), err.as_bytes());
        read(&asked, &HookExit { exit, output, errors, stragglers: 0, timeout_ms: 10_000 })
    }

    fn word(answer: &HookReport) -> String {
        match &answer.says {
            HookResult::Pass => "pass".to_owned(),
            HookResult::Warn => "warn".to_owned(),
            HookResult::Block => "block".to_owned(),
            HookResult::Input(input) => input.to_string(),
            HookResult::Output(parts) => posse_actors::conversation::text_of(parts),
            HookResult::Failed { code, blocks } => format!("{code} {blocks}"),
        }
    }

    #[test]
    fn exit_code_precedes_json_and_a_contradiction_denies() {
        let deny = r#"{"decision":"deny","reason":"because"}"#;
        let table = [
            (Exit::Code(0), "", "", "pass", None),
            (Exit::Code(0), "  \n", "noise", "pass", None),
            (Exit::Code(0), "all fine", "", "pass", Some("all fine")),
            (Exit::Code(0), "{}", "", "pass", None),
            (Exit::Code(0), "\u{feff}{\"decision\":\"allow\"}\n", "", "pass", None),
            (Exit::Code(0), r#"{"decision":"warn","message":"m"}"#, "", "warn", Some("m")),
            (Exit::Code(0), deny, "", "block", Some("because")),
            (Exit::Code(1), deny, "", "block", Some("because")),
            (Exit::Code(2), r#"{"decision":"allow"}"#, "", "block", None),
            (Exit::Code(2), "", "no push\n", "block", Some("no push")),
            (Exit::Code(2), "out", "", "block", Some("out")),
            (Exit::Code(2), "", "", "block", None),
            (Exit::Code(2), "{broken", "err", "block", Some("err")),
            (Exit::Code(1), "", "", "HK003 false", Some("it exited with 1")),
            (
                Exit::Code(1),
                "{}",
                "Trace\nKeyError: x",
                "HK003 false",
                Some("it exited with 1: KeyError: x"),
            ),
            (Exit::Code(127), "", "", "HK003 false", Some("it exited with 127")),
            (Exit::Signal(11), deny, "", "HK003 false", Some("it was ended by SIGSEGV")),
            (
                Exit::TimedOut,
                deny,
                "",
                "HK002 false",
                Some("it took longer than 10000 ms and was killed"),
            ),
            (Exit::OutputFull, "", "", "HK004 false", Some("it printed too much and was killed")),
        ];
        for (exit, out, err, says, message) in table {
            let answer = answer_of(HookEvent::PreToolUse, false, exit, out, err);
            assert_eq!(
                (word(&answer).as_str(), answer.message.as_deref()),
                (says, message),
                "{out}"
            );
        }
    }

    #[test]
    fn invalid_hook_output_is_a_failure() {
        for out in [
            "{",
            "{\"decision\":\"block\"",
            r#"{"decision":"perhaps"}"#,
            r#"{"decision":1}"#,
            r#"{"permissionDecision":"deny"}"#,
            r#"{"message":{}}"#,
            r#"{"patch":[]}"#,
            r#"{"decision":"allow"} {"decision":"deny"}"#,
            r#"{"decision":"allow","decision":"warn"}"#,
            &format!("{{\"metadata\":\"{}\"}}", "x".repeat(METADATA_BYTES_MAX)),
            &format!("{{\"metadata\":{}", "[".repeat(100_000)),
        ] {
            for blocks in [false, true] {
                let answer = answer_of(HookEvent::PreToolUse, blocks, Exit::Code(0), out, "");
                assert_eq!(word(&answer), format!("HK004 {blocks}"), "{out:.80}");
            }
        }
        // A hook that must not be ignored has to agree in JSON, or print nothing.
        for out in ["yes", "\u{1b}[32m{\"decision\":\"allow\"}\u{1b}[0m", "[]", "null"] {
            let strict = answer_of(HookEvent::PreToolUse, true, Exit::Code(0), out, "");
            assert_eq!(word(&strict), "HK004 true", "{out}");
            let lax = answer_of(HookEvent::PreToolUse, false, Exit::Code(0), out, "");
            assert_eq!(word(&lax), "pass", "{out}");
        }
        let processes = HookExit {
            exit: Exit::Code(0),
            output: b"",
            errors: b"",
            stragglers: 2,
            timeout_ms: 1,
        };
        let asked =
            HookInput { hook: "h", event: HookEvent::PreToolUse, input: None, blocks: true };
        assert_eq!(word(&read(&asked, &processes)), "HK002 true");
    }

    #[test]
    fn patch_applies_to_its_event_only() {
        let at = |event, out: &str| word(&answer_of(event, false, Exit::Code(0), out, ""));
        let change = r#"{"patch":{"command":"ls -l","timeoutMs":null}}"#;
        assert_eq!(at(HookEvent::PreToolUse, change), r#"{"command":"ls -l"}"#);
        let output = r#"{"patch":{"toolOutput":"other"}}"#;
        assert_eq!(at(HookEvent::PostToolUse, output), "other");
        assert_eq!(at(HookEvent::ToolError, output), "other");
        assert_eq!(at(HookEvent::PostToolUse, change), "HK004 false");
        assert_eq!(at(HookEvent::PostToolUse, r#"{"patch":{"toolOutput":1}}"#), "HK004 false");
        for event in HookEvent::ALL.iter().copied().filter(|event| !event.is_of_tool()) {
            assert_eq!(at(event, change), "HK004 false", "{event:?}");
        }
        let refuses = r#"{"decision":"block","patch":{"command":"ls"}}"#;
        assert_eq!(at(HookEvent::PreToolUse, refuses), "block");
    }

    #[test]
    fn messages_are_escaped_and_bounded() {
        let out = format!(r#"{{"decision":"warn","message":"\u001b[2J{}"}}"#, "x".repeat(100_000));
        let answer = answer_of(HookEvent::Stop, false, Exit::Code(0), &out, "");
        let message = answer.message.unwrap();
        assert!(message.starts_with("\\u{1b}[2Jxx"), "{message:.40}");
        assert!(message.chars().count() <= MESSAGE_CHARS_MAX + 6);
    }
}
