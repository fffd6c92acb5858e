//! Handoff packet for a subagent: labelled parts with maximum sizes. The subagent receives nothing
//! else of the conversation. Pure.

use serde::Deserialize;

use crate::delegation::conversation_digest::ConversationDigest;
use crate::text::clipped;

/// Maximum sizes of handoff packets and answers in bytes of text; about four bytes are a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Maximum size of the whole packet, without the text of references.
    pub handoff_bytes_max: usize,
    /// Maximum size of the caller's context in the packet, and also of the memory in it, each
    /// without the note about shortened text.
    pub context_bytes_max: usize,
    /// Maximum size of an answer in the result of the call or in the message about the end, without
    /// headings and notes.
    pub answer_bytes_max: usize,
    /// The same for answers in the main conversation, if it is lower.
    pub main_answer_bytes_max: usize,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps {
            handoff_bytes_max: 8000,
            context_bytes_max: 4000,
            answer_bytes_max: 4000,
            main_answer_bytes_max: 4000,
        }
    }
}

/// Arguments of `delegate_agent`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DelegateInput {
    pub(crate) agent: String,
    pub(crate) task: String,
    pub(crate) context: Option<String>,
    pub(crate) context_refs: Vec<String>,
    pub(crate) relevant_files: Vec<String>,
    pub(crate) constraints: Vec<String>,
    pub(crate) expected_output: Option<String>,
    pub(crate) return_mode: Option<String>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) wait: Option<bool>,
    pub(crate) resume: Option<String>,
    pub(crate) isolation: Option<String>,
}

/// Content of a packet besides the arguments of the call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandoffSources<'a> {
    /// Name of the calling agent.
    pub(crate) caller: &'a str,
    /// Latest prompt of the user.
    pub(crate) user_request: &'a str,
    /// Working directory of the subagent, in words.
    pub(crate) cwd: &'a str,
    /// Memory of earlier subagents of the name; empty if there is none.
    pub(crate) memory: &'a str,
    /// Summary of the main conversation, and findings and decisions of the caller.
    pub(crate) conversation: &'a ConversationDigest,
    /// Names of the tools that the subagent will see; empty if the packet does not list them.
    pub(crate) tools: &'a [String],
    /// True if the caller wants a brief answer.
    pub(crate) brief: bool,
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
/// Maximum bytes of the summary of the main conversation in a handoff packet, and of the findings
/// and decisions of the caller together.
const DIGEST_BYTES_MAX: usize = 1500;
/// Bytes of the note about shortened text, and of the brackets and line ends around a part.
const NOTE_BYTES: usize = 52;

/// Text that asks a subagent for a brief answer.
const BRIEF: &str = "brief: answer in at most ten lines. Begin with the result; leave out how you \
                     found it.";

impl Handoff {
    /// Builds the packet. Empty parts are left out, and a long part is shortened, except the task.
    /// `Err`: the task is too long; contains the number of bytes that it may have.
    pub(crate) fn new(
        input: &DelegateInput,
        sources: &HandoffSources<'_>,
        caps: &Caps,
    ) -> Result<Handoff, usize> {
        let HandoffSources { caller, user_request, cwd, memory, conversation, tools, brief } =
            sources;
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
        let said = if conversation.root.is_empty() {
            String::new()
        } else {
            format!(
                "What was said and done in the session before this task.\n{}",
                conversation.root
            )
        };
        // Binding parts come before helpful ones: the last parts are cut first.
        let parts = [
            ("constraints", list(&input.constraints), usize::MAX),
            ("expected-output", expected.to_owned(), usize::MAX),
            ("return-mode", if *brief { BRIEF.to_owned() } else { String::new() }, usize::MAX),
            ("tools", tools.join(", "), usize::MAX),
            ("context", context.to_owned(), caps.context_bytes_max),
            ("decisions", list(&conversation.decisions), DIGEST_BYTES_MAX / 2),
            ("findings", list(&conversation.findings), DIGEST_BYTES_MAX / 2),
            ("memory", remembered, caps.context_bytes_max),
            ("relevant-files", list(&input.relevant_files), usize::MAX),
            ("user-request", (*user_request).to_owned(), REQUEST_BYTES_MAX),
            ("conversation", said, DIGEST_BYTES_MAX),
        ];
        for (label, content, bytes_max) in parts {
            // Labels and truncation notices count as well.
            let around = text.len() + 2 * label.len() + NOTE_BYTES;
            let left = caps.handoff_bytes_max.saturating_sub(around);
            if content.trim().is_empty() || left == 0 {
                continue;
            }
            text.push_str(&labelled(label, &cut(&escaped(&content), bytes_max.min(left))));
        }
        Ok(Handoff { text, task: one_line(&input.task) })
    }
}

/// Bytes that a part with the label `label` takes beside its content, with the note about shortened
/// text.
pub(super) fn bytes_around(label: &str) -> usize {
    2 * label.len() + NOTE_BYTES
}

/// A part of a packet between an opening and a closing label, in lines of their own. Each `</`
/// within the content is escaped, so that the content cannot end the part.
pub(super) fn part(label: &str, content: &str) -> String {
    labelled(label, &escaped(content))
}

/// `content` with each `</` escaped.
pub(super) fn escaped(content: &str) -> String {
    content.replace("</", "<\\/")
}

/// Escaped content between an opening and a closing label.
pub(super) fn labelled(label: &str, escaped: &str) -> String {
    format!("<{label}>\n{}\n</{label}>\n", escaped.trim_end())
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

    fn sources<'a>(request: &'a str, conversation: &'a ConversationDigest) -> HandoffSources<'a> {
        HandoffSources {
            caller: "build",
            user_request: request,
            cwd: "/w",
            memory: "",
            conversation,
            tools: &[],
            brief: false,
        }
    }

    fn packet(input: &DelegateInput, request: &str, caps: &Caps) -> Result<Handoff, usize> {
        Handoff::new(input, &sources(request, &ConversationDigest::default()), caps)
    }

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
        let packet = packet(&input, "Mend it", &Caps::default()).unwrap();
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
    fn handoff_contains_conversation_findings_and_tools() {
        let conversation = ConversationDigest {
            root: "The user asked: which parser?\n".into(),
            findings: vec!["src/a.rs:3 leaks".to_owned()],
            decisions: vec!["keep </decisions> the pool".to_owned()],
        };
        let tools = ["grep".to_owned(), "read_file".to_owned()];
        let sources =
            HandoffSources { tools: &tools, brief: true, ..sources("Mend it", &conversation) };
        let packet = Handoff::new(&input("Look.", ""), &sources, &Caps::default()).unwrap();
        insta::assert_snapshot!(packet.text, @r"
        The agent `build` gives you this task. It reads nothing but your last message.
        Working directory: /w

        <task>
        Look.
        </task>
        <return-mode>
        brief: answer in at most ten lines. Begin with the result; leave out how you found it.
        </return-mode>
        <tools>
        grep, read_file
        </tools>
        <decisions>
        - keep <\/decisions> the pool
        </decisions>
        <findings>
        - src/a.rs:3 leaks
        </findings>
        <user-request>
        Mend it
        </user-request>
        <conversation>
        What was said and done in the session before this task.
        The user asked: which parser?
        </conversation>
        ");
    }

    #[test]
    fn task_is_never_cut() {
        let caps = Caps { handoff_bytes_max: 400, ..Caps::default() };
        let room = packet(&input(&"x".repeat(500), ""), "", &caps).unwrap_err();
        assert!(packet(&input(&"x".repeat(room), ""), "", &caps).is_ok());
        assert!(packet(&input(&"x".repeat(room + 1), ""), "", &caps).is_err());
    }

    proptest! {
        /// For any content, the packet stays within its limit, contains each label once, and the
        /// complete task.
        #[test]
        fn handoff_stays_within_its_limit(
            task in "[a-z</> é\\n]{0,200}",
            context in "[a-z</>é\\n]{0,9000}",
            request in "(</|[a-z</>é]){0,4000}",
            files in proptest::collection::vec("[a-z/]{0,100}", 0..30),
        ) {
            let caps =
                Caps { handoff_bytes_max: 3000, context_bytes_max: 1000, ..Caps::default() };
            let input = DelegateInput { relevant_files: files, ..input(&task, &context) };
            let conversation = ConversationDigest {
                root: context.as_str().into(),
                findings: vec![request.clone()],
                decisions: vec![context.clone()],
            };
            let sources = HandoffSources { memory: &context, ..sources(&request, &conversation) };
            let packet = Handoff::new(&input, &sources, &caps).unwrap();
            prop_assert!(packet.text.len() <= caps.handoff_bytes_max, "{}", packet.text.len());
            for label in ["task", "context", "user-request", "findings", "conversation"] {
                let closed = packet.text.matches(&format!("</{label}>")).count();
                prop_assert!(closed <= 1, "{}: {}", label, closed);
            }
            prop_assert!(packet.text.contains(task.trim_end().replace("</", "<\\/").as_str()));
        }
    }
}
