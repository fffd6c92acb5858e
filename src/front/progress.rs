//! What a person sees on standard error while a run goes on: short lines, nothing that draws.

use posse_actors::conversation::{ContentPart, text_of};
use posse_actors::event::Event;

use crate::failure::{printable, printable_lines};

/// Characters of a result that are shown.
const RESULT_CHARS_MAX: usize = 160;

/// Turns events into text for standard error.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "two are settings, two are what was shown")]
pub(crate) struct Progress {
    /// Whether deltas are shown as they arrive.
    live: bool,
    /// Whether colours may be used.
    color: bool,
    /// Text of the reply that is being streamed was shown, without its newline.
    mid_line: bool,
    /// The whole text of the last reply was shown live.
    pub(crate) shown_live: bool,
}

impl Progress {
    pub(crate) fn new(live: bool, color: bool) -> Progress {
        Progress { live, color, mid_line: false, shown_live: false }
    }

    /// The text that `event` adds.
    pub(crate) fn show(&mut self, event: &Event) -> String {
        if let Event::TextDelta { text } = event {
            if !self.live {
                return String::new();
            }
            self.mid_line = !text.ends_with('\n');
            self.shown_live = true;
            return printable_lines(text);
        }
        let line = self.line(event);
        if line.is_empty() {
            return line;
        }
        let start = if std::mem::take(&mut self.mid_line) { "\n" } else { "" };
        format!("{start}{line}\n")
    }

    /// What must follow before other text may start on a line of its own.
    pub(crate) fn finish_line(&mut self) -> &'static str {
        if std::mem::take(&mut self.mid_line) { "\n" } else { "" }
    }

    fn line(&mut self, event: &Event) -> String {
        match event {
            Event::ModelRequest { .. } => {
                self.shown_live = false;
                String::new()
            }
            Event::ModelReply { message, .. } => match &message.content {
                Some(text) if !self.live && !message.tool_calls.is_empty() => {
                    printable_lines(text.trim_end())
                }
                _ => String::new(),
            },
            Event::ToolStarted { summary, .. } => {
                self.paint("2", &format!("• {}", printable(summary)))
            }
            Event::ToolCompleted { metadata, duration_ms, .. } => {
                let exit = metadata.get("exitCode").and_then(serde_json::Value::as_i64);
                match exit {
                    Some(code) => self.paint("2", &format!("  exit {code}, {duration_ms} ms")),
                    None => String::new(),
                }
            }
            Event::ToolFailed { content, name, class, .. } => {
                let text = format!("  ✗ {name} {class}: {}", first_line(content));
                self.paint("31", &text)
            }
            Event::ToolOutcomeUnknown { content, .. } => {
                self.paint("31", &format!("  ✗ {}", first_line(content)))
            }
            other => self.notice(other),
        }
    }

    fn notice(&self, event: &Event) -> String {
        let text = match event {
            Event::ProviderRetry { provider, attempt, cause, wait_ms, .. } => {
                let wait = seconds(*wait_ms);
                let cause = printable(cause);
                format!("! {provider}: attempt {attempt} failed ({cause}); again in {wait}")
            }
            Event::PermissionDenied { by, reason, rule, .. } if by == "nobody" => {
                let rule = rule.as_deref().map(|rule| format!("\n  rule: {}", printable(rule)));
                format!("! denied: {}{}", printable(reason), rule.unwrap_or_default())
            }
            Event::ModelPartial { cause, .. } => {
                format!("! the reply broke off ({}); what had arrived is kept", printable(cause))
            }
            Event::ActorCrashed { actor, cause } => {
                format!("! {actor} crashed: {}", printable(cause))
            }
            Event::ActorRestarted { actor, .. } => format!("! {actor} runs again"),
            Event::SessionParked { cause } => format!("! parked: {}", printable(cause)),
            Event::Warning { message } => format!("! {}", printable(message)),
            _ => return String::new(),
        };
        self.paint("33", &text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn first_line(content: &[ContentPart]) -> String {
    let text = text_of(content);
    let line = text.lines().next().unwrap_or_default();
    let end = line.char_indices().nth(RESULT_CHARS_MAX).map_or(line.len(), |(at, _)| at);
    let more = if end < text.trim_end().len() { " …" } else { "" };
    format!("{}{more}", printable(&line[..end]))
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}
