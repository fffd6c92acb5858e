//! Handoff packet for a subagent: labelled parts with maximum sizes. The subagent receives nothing
//! else of the conversation. Pure.

use crate::text::clipped;

use serde::Deserialize;

/// Maximum sizes of handoff packets and answers in bytes of text; about four bytes are a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Maximum size of the whole packet. Escapes of `</` and the note about shortened text can
    /// exceed it.
    pub handoff_bytes_max: usize,
    /// Maximum size of the caller's context in the packet, and also of the memory in it, each
    /// without the note about shortened text.
    pub context_bytes_max: usize,
    /// Maximum size of an answer in the result of the call or in the message about the end, without
    /// headings and notes.
    pub answer_bytes_max: usize,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps { handoff_bytes_max: 8000, context_bytes_max: 4000, answer_bytes_max: 4000 }
    }
}

/// Arguments of `delegate_agent`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DelegateInput {
    pub(crate) agent: String,
    pub(crate) task: String,
    pub(crate) context: Option<String>,
    pub(crate) relevant_files: Vec<String>,
    pub(crate) constraints: Vec<String>,
    pub(crate) expected_output: Option<String>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) wait: Option<bool>,
    pub(crate) resume: Option<String>,
    pub(crate) isolation: Option<String>,
}

/// A complete handoff packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handoff {
    /// Text of the packet: the first message for a new subagent, the next message for a resumed
    /// one.
    pub(crate) text: String,
    /// The task in one line, for lists.
    pub(crate) task: String,
}

/// Maximum characters of a task in lists, without the mark `…` of a shortened one.
const TASK_CHARS_MAX: usize = 120;
/// Maximum bytes of the user's prompt in a handoff packet, without the note about shortened text.
const REQUEST_BYTES_MAX: usize = 1500;

impl Handoff {
    /// Builds the packet. Empty parts are left out, and a long part is shortened, except the task.
    /// `Err`: the task is too long; contains the number of bytes that it may have.
    pub(crate) fn new(
        input: &DelegateInput,
        caller: &str,
        user_request: &str,
        (cwd, memory): (&str, &str),
        caps: &Caps,
    ) -> Result<Handoff, usize> {
        let head = format!(
            "The agent `{caller}` gives you this task. It reads nothing but your last message.\n\
             Working directory: {cwd}\n\n{}",
            part("task", &input.task)
        );
        let mut text = head;
        if text.len() > caps.handoff_bytes_max {
            let around = text.len() - input.task.len();
            return Err(caps.handoff_bytes_max.saturating_sub(around));
        }
        let list = |lines: &[String]| {
            lines.iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n")
        };
        let expected = input.expected_output.as_deref().unwrap_or_default();
        let context = input.context.as_deref().unwrap_or_default();
        let remembered = if memory.is_empty() {
            String::new()
        } else {
            format!(
                "What you have reported in this session before. Look before relying on it.\n{memory}"
            )
        };
        // Binding parts come before helpful ones: the last parts are cut first.
        let parts = [
            ("constraints", list(&input.constraints), usize::MAX),
            ("expected-output", expected.to_owned(), usize::MAX),
            ("context", context.to_owned(), caps.context_bytes_max),
            ("memory", remembered, caps.context_bytes_max),
            ("relevant-files", list(&input.relevant_files), usize::MAX),
            ("user-request", user_request.to_owned(), REQUEST_BYTES_MAX),
        ];
        for (label, content, bytes_max) in parts {
            if content.trim().is_empty() {
                continue;
            }
            // Labels and truncation notices count as well.
            let left = caps.handoff_bytes_max.saturating_sub(text.len() + 2 * label.len() + 48);
            text.push_str(&part(label, &cut(&content, bytes_max.min(left))));
        }
        Ok(Handoff { text, task: one_line(&input.task) })
    }
}

/// A part of a packet between an opening and a closing label, in lines of their own. Each `</`
/// within the content is escaped, so that the content cannot end the part.
pub(super) fn part(label: &str, content: &str) -> String {
    let content = content.replace("</", "<\\/");
    format!("<{label}>\n{}\n</{label}>\n", content.trim_end())
}

/// Returns `text` unchanged if it has at most `bytes_max` bytes; otherwise two thirds of
/// `bytes_max` from its beginning and one third from its end, with a note between them, which is
/// not counted.
pub(super) fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(bytes_max / 3 * 2);
    let tail = text.ceil_char_boundary(text.len() - bytes_max / 3);
    format!("{}\n… {} bytes cut …\n{}", &text[..head], tail - head, &text[tail..])
}

/// `text` in one line. Of a longer text only the first 120 characters, followed by `…`.
pub(super) fn one_line(text: &str) -> String {
    shortened(text, TASK_CHARS_MAX)
}

/// `text` in one line. Of a longer text only the first `chars_max` characters, followed by `…`.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    clipped(&line, chars_max, "…")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn input(task: &str, context: &str) -> DelegateInput {
        DelegateInput {
            task: task.to_owned(),
            context: Some(context.to_owned()),
            ..DelegateInput::default()
        }
    }

    #[test]
    fn handoff_contains_task_and_context() {
        let input = DelegateInput {
            relevant_files: vec!["src/a.rs".to_owned()],
            constraints: vec!["change nothing".to_owned()],
            expected_output: Some("a list".to_owned()),
            ..input("Look.\nClosely.", "It </task> fails.")
        };
        let packet =
            Handoff::new(&input, "build", "Mend it", ("/w", ""), &Caps::default()).unwrap();
        insta::assert_snapshot!(packet.text, @r"
        The agent `build` gives you this task. It reads nothing but your last message.
        Working directory: /w

        <task>
        Look.
        Closely.
        </task>
        <constraints>
        - change nothing
        </constraints>
        <expected-output>
        a list
        </expected-output>
        <context>
        It <\/task> fails.
        </context>
        <relevant-files>
        - src/a.rs
        </relevant-files>
        <user-request>
        Mend it
        </user-request>
        ");
        assert_eq!(packet.task, "Look. Closely.");
    }

    #[test]
    fn task_is_never_cut() {
        let caps = Caps { handoff_bytes_max: 400, ..Caps::default() };
        let room =
            Handoff::new(&input(&"x".repeat(500), ""), "b", "", ("/w", ""), &caps).unwrap_err();
        assert!(Handoff::new(&input(&"x".repeat(room), ""), "b", "", ("/w", ""), &caps).is_ok());
        assert!(
            Handoff::new(&input(&"x".repeat(room + 1), ""), "b", "", ("/w", ""), &caps).is_err()
        );
    }

    proptest! {
        /// For any content, the packet stays within its limit, contains each label once, and the
        /// complete task.
        #[test]
        fn handoff_stays_within_its_limit(
            task in "[a-z</> é\\n]{0,200}",
            context in "[a-z</>é\\n]{0,9000}",
            request in "[a-z</>é]{0,4000}",
            files in proptest::collection::vec("[a-z/]{0,100}", 0..30),
        ) {
            let caps = Caps { handoff_bytes_max: 3000, context_bytes_max: 1000, answer_bytes_max: 1 };
            let input = DelegateInput { relevant_files: files, ..input(&task, &context) };
            let packet = Handoff::new(&input, "build", &request, ("/w", &context), &caps).unwrap();
            // Each `</` becomes one byte longer, and a truncation notice contains the length.
            let quoted = packet.text.matches("<\\/").count();
            prop_assert!(packet.text.len() <= caps.handoff_bytes_max + quoted + 64);
            for label in ["task", "context", "user-request"] {
                let closed = packet.text.matches(&format!("</{label}>")).count();
                prop_assert!(closed <= 1, "{}: {}", label, closed);
            }
            prop_assert!(packet.text.contains(task.trim_end().replace("</", "<\\/").as_str()));
        }
    }
}
