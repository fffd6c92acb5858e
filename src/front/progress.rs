//! What a person sees on standard error while a run goes on: short lines. Only a countdown is
//! drawn over itself, on a terminal that can do so.

use posse_actors::conversation::{CallId, ContentPart, QuestionId, text_of};
use posse_actors::delegation::Outcome;
use posse_actors::event::{Announcement, Event, HookDecision};
use posse_actors::ports::HookEvent;
use serde_json::Value;

use crate::failure::{printable, printable_lines};
use crate::front::outcome::clock_time;

/// Characters of a line that are shown.
const RESULT_CHARS_MAX: usize = 160;

/// Lines of a command's output that are shown, the last ones.
const OUTPUT_LINES_MAX: usize = 5;

/// Lines of a diff that are shown, the first ones.
const DIFF_LINES_MAX: usize = 12;

/// Turns events into text for standard error.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "three are settings, two are what was shown")]
pub(crate) struct Progress {
    /// Whether deltas are shown as they arrive.
    live: bool,
    /// Whether colours may be used.
    color: bool,
    /// Whether tools only say what they would do.
    dry_run: bool,
    /// Text of the reply that is being streamed was shown, without its newline.
    mid_line: bool,
    /// A line is there that the next one replaces.
    drawn: bool,
    /// Questions that are open, and their calls.
    asked: Vec<(QuestionId, CallId)>,
    /// Calls that a person allowed, having seen what they would do.
    seen: Vec<CallId>,
    /// The whole text of the last reply was shown live.
    pub(crate) shown_live: bool,
}

impl Progress {
    pub(crate) fn new(live: bool, color: bool) -> Progress {
        Progress {
            live,
            color,
            dry_run: false,
            mid_line: false,
            drawn: false,
            asked: Vec::new(),
            seen: Vec::new(),
            shown_live: false,
        }
    }

    /// The same, for a run in which tools only say what they would do.
    pub(crate) fn of_dry_run(self, dry_run: bool) -> Progress {
        Progress { dry_run, ..self }
    }

    /// The text that an announcement adds: what agents do that work for others stands behind their
    /// path, and what they say is not shown as it arrives.
    pub(crate) fn follow(&mut self, announcement: &Announcement) -> String {
        let event = announcement.event();
        let below = announcement.origin().filter(|origin| origin.parent_invocation_id.is_some());
        let Some(origin) = below else { return self.show(event) };
        match event {
            Event::TextDelta { .. }
            | Event::ModelRequest { .. }
            | Event::ModelReply { .. }
            | Event::InvocationStarted { .. }
            | Event::ProviderWaiting { .. }
            | Event::ProviderSilent { .. } => return String::new(),
            _ => (),
        }
        let text = self.line(event);
        if text.is_empty() {
            return text;
        }
        let path = self.dim(&format!("[{}] ", printable(&origin.agent_path)));
        let mut shown = self.finish_line().to_owned();
        for line in text.lines() {
            shown.extend([path.as_str(), line, "\n"]);
        }
        shown
    }

    /// The text that `event` adds.
    pub(crate) fn show(&mut self, event: &Event) -> String {
        if let Event::TextDelta { text } = event {
            if !self.live {
                return String::new();
            }
            let start = self.wiped();
            self.mid_line = !text.ends_with('\n');
            self.shown_live = true;
            return format!("{start}{}", printable_lines(text));
        }
        if let Some(line) = self.passing(event) {
            let start = self.finish_line();
            self.drawn = true;
            return format!("{start}{}", self.dim(&line));
        }
        let line = self.line(event);
        if line.is_empty() {
            return line;
        }
        format!("{}{line}\n", self.finish_line())
    }

    /// What is true for a moment, and is drawn over when that has passed.
    fn passing(&self, event: &Event) -> Option<String> {
        if !(self.live && self.color) {
            return None;
        }
        match event {
            Event::ProviderWaiting { provider, wait_ms, patience_left_ms, .. } => Some(format!(
                "… {provider}: next try in {} (patience after that: {})",
                rough(*wait_ms),
                rough(*patience_left_ms)
            )),
            Event::ProviderSilent { provider, silent_ms } => {
                Some(format!("… {provider}: nothing heard for {}", rough(*silent_ms)))
            }
            _ => None,
        }
    }

    fn wiped(&mut self) -> &'static str {
        if std::mem::take(&mut self.drawn) { "\r\u{1b}[K" } else { "" }
    }

    /// What must follow before other text may start on a line of its own.
    pub(crate) fn finish_line(&mut self) -> &'static str {
        let wiped = self.wiped();
        if std::mem::take(&mut self.mid_line) && wiped.is_empty() { "\n" } else { wiped }
    }

    /// Text that is of less interest.
    pub(crate) fn dim(&self, text: &str) -> String {
        self.paint("2", text)
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
            Event::ToolStarted { summary, effect, .. } => {
                let would = if self.dry_run && *effect { "would " } else { "" };
                self.paint("2", &format!("• {would}{}", printable(summary)))
            }
            Event::ToolCompleted { call_id, content, metadata, duration_ms, .. } => {
                let seen = self.seen.contains(call_id);
                self.seen.retain(|call| call != call_id);
                self.completed(content, metadata, *duration_ms, seen)
            }
            Event::PermissionRequested { request_id, call_id, .. } => {
                self.asked.push((request_id.clone(), call_id.clone()));
                String::new()
            }
            Event::PermissionGranted { request_id, by, .. } => {
                self.decided(request_id, by == "user");
                String::new()
            }
            Event::PermissionWithdrawn { request_id, .. } => {
                self.decided(request_id, false);
                String::new()
            }
            Event::ToolFailed { content, name, class, .. } => {
                let line = first_line(content);
                // What the model is told begins with the class as well.
                let why = line.strip_prefix("Denied: ").filter(|_| class == "denied");
                let text = format!("  ✗ {name} {class}: {}", why.unwrap_or(&line));
                self.paint("31", &text)
            }
            Event::ToolOutcomeUnknown { content, .. } => {
                self.paint("31", &format!("  ✗ {}", first_line(content)))
            }
            Event::PermissionDenied { request_id, .. } => {
                self.decided(request_id, false);
                self.notice(event)
            }
            Event::InvocationRequested { target, provider, task, background, .. } => {
                let beside = if *background { " in the background" } else { "" };
                let line = format!("▸ {target} via {provider}{beside}: {task}");
                self.paint("36", &printable(&line))
            }
            Event::DelegationEnded { target, outcome, turns, .. } => {
                let line = format!("◂ {target}: {outcome}, {turns} replies");
                let color = if *outcome == Outcome::Done { "36" } else { "33" };
                self.paint(color, &printable(&line))
            }
            // What a run left open is not asked again.
            Event::InvocationStarted { .. } => {
                self.asked.clear();
                self.seen.clear();
                String::new()
            }
            other => self.notice(other),
        }
    }

    fn decided(&mut self, id: &QuestionId, allowed: bool) {
        let call = self.asked.iter().find(|(asked, _)| asked == id).map(|(_, call)| call.clone());
        self.asked.retain(|(asked, _)| asked != id);
        self.seen.extend(call.filter(|_| allowed));
    }

    /// How a command ended and its last lines, or what a change changed, unless that was `seen` in
    /// the question. Nothing for a look.
    fn completed(
        &self,
        content: &[ContentPart],
        metadata: &Value,
        duration_ms: u64,
        seen: bool,
    ) -> String {
        if metadata.get("exitCode").is_some() {
            let end = match (metadata["exitCode"].as_i64(), metadata["signal"].as_str()) {
                (Some(code), _) => format!("exit {code}"),
                (None, Some(signal)) => format!("ended by {}", printable(signal)),
                (None, None) => "ended".to_owned(),
            };
            let text = text_of(content);
            let mut lines = vec![self.paint("2", &format!("  {end}, {duration_ms} ms"))];
            lines.extend(last_lines(&text).into_iter().map(|line| self.paint("2", &line)));
            return lines.join("\n");
        }
        match metadata["diff"].as_str().filter(|diff| !diff.is_empty() && !seen) {
            Some(diff) => self.excerpt(diff),
            None => String::new(),
        }
    }

    /// The beginning of a unified diff.
    fn excerpt(&self, diff: &str) -> String {
        let is_header = |line: &&str| line.starts_with("--- ") || line.starts_with("+++ ");
        let all: Vec<&str> = diff.lines().skip_while(is_header).collect();
        let shown = all.iter().take(DIFF_LINES_MAX).map(|line| {
            let code = match line.as_bytes().first() {
                Some(b'+') => "32",
                Some(b'-') => "31",
                _ => "2",
            };
            self.paint(code, &format!("  {}", clipped(line)))
        });
        let mut lines: Vec<String> = shown.collect();
        if all.len() > DIFF_LINES_MAX {
            let more = format!("  … {} more lines", all.len() - DIFF_LINES_MAX);
            lines.push(self.paint("2", &more));
        }
        lines.join("\n")
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
            Event::ProviderSilent { provider, silent_ms } => {
                format!("! {provider}: nothing heard for {}", rough(*silent_ms))
            }
            Event::ProviderFailover { class, .. } => switch(event, class == "recovered"),
            Event::SessionParked { cause, next_try_ms, .. } => {
                let next = next_try_ms.map(|at| format!("; next try at {}", clock_time(at)));
                format!("! parked: {}{}", printable(cause), next.unwrap_or_default())
            }
            Event::Warning { message } => format!("! {}", printable(message)),
            Event::HookFired { .. } | Event::HookFailed { .. } => match of_hook(event) {
                Some(text) => text,
                None => return String::new(),
            },
            _ => return String::new(),
        };
        self.paint("33", &text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// What a person should know of what a hook did. What refuses a call or ends the run is told there.
fn of_hook(event: &Event) -> Option<String> {
    match event {
        Event::HookFired { hook, event, tool, decision, message, output, .. } => {
            let tool = tool.as_deref().unwrap_or_default();
            let what = match (decision, event) {
                (HookDecision::Warn, _) => "warns".to_owned(),
                (HookDecision::Patch, HookEvent::PreToolUse) => {
                    format!("changed the arguments of {tool}")
                }
                (HookDecision::Patch, _) => format!("changed what the model reads of {tool}"),
                (HookDecision::Block, HookEvent::Stop) => {
                    "does not accept the answer yet".to_owned()
                }
                (HookDecision::Block, _) if output.is_some() => {
                    format!("withheld the result of {tool}")
                }
                _ => return None,
            };
            let message = message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
            Some(format!("! hook {} {}", printable(hook), printable(&format!("{what}{message}"))))
        }
        Event::HookFailed { hook, event, code, cause, blocked, .. } => {
            let counts = if *blocked { "; that counts as a no" } else { "" };
            let (hook, event, cause) = (printable(hook), event.name(), printable(cause));
            Some(format!("! hook {hook} failed at {event}: {} {cause}{counts}", printable(code)))
        }
        _ => None,
    }
}

fn first_line(content: &[ContentPart]) -> String {
    let text = text_of(content);
    let line = text.lines().next().unwrap_or_default();
    let is_cut = line.chars().count() > RESULT_CHARS_MAX;
    let more = if line.len() < text.trim_end().len() && !is_cut { " …" } else { "" };
    format!("{}{more}", clipped(line))
}

/// The last lines that a command printed, without the tool's own remarks below them.
fn last_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    while lines.last().is_some_and(|line| line.starts_with('(') && line.ends_with(')')) {
        lines.pop();
    }
    let hidden = lines.len().saturating_sub(OUTPUT_LINES_MAX);
    let shown = lines[hidden..].iter().map(|line| format!("  │ {}", clipped(line)));
    let more = (hidden > 0).then(|| format!("  │ … {hidden} lines above"));
    more.into_iter().chain(shown).collect()
}

/// A line that cannot draw, cut where it becomes long.
fn clipped(line: &str) -> String {
    match line.char_indices().nth(RESULT_CHARS_MAX) {
        Some((end, _)) => format!("{} …", printable(&line[..end])),
        None => printable(line),
    }
}

/// Who is asked from now on, and why.
fn switch(event: &Event, is_back: bool) -> String {
    let Event::ProviderFailover { from, from_model, to, to_model, cause, skipped, .. } = event
    else {
        return String::new();
    };
    let (from, to) = (format!("{from_model} via {from}"), format!("{to_model} via {to}"));
    let (from, to) = (printable(&from), printable(&to));
    if is_back {
        return format!("! {to} answers again, and is asked instead of {from}");
    }
    let skipped = skipped.iter().map(|why| format!("\n  passed over {}", printable(why)));
    let skipped: String = skipped.collect();
    format!("! {to} is asked while {from} is away ({}){skipped}", printable(cause))
}

/// A time, as exactly as somebody who waits wants to know it.
fn rough(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::CallId;
    use serde_json::json;

    use super::*;

    fn completed(text: &str, metadata: Value) -> Event {
        Event::ToolCompleted {
            call_id: CallId::new("c1"),
            name: "tool".to_owned(),
            content: vec![ContentPart::text(text)],
            metadata,
            duration_ms: 12,
        }
    }

    #[test]
    fn a_command_shows_its_last_lines_and_cannot_draw() {
        let text = "1\n2\n3\n4\n5\n\u{1b}[2Jsix\n(exit 1, 12 ms)\n(a note)";
        let shown = Progress::new(false, false).show(&completed(text, json!({"exitCode": 1})));
        insta::assert_snapshot!(shown, @r"
          exit 1, 12 ms
          │ … 1 lines above
          │ 2
          │ 3
          │ 4
          │ 5
          │ \u{1b}[2Jsix
        ");
    }

    #[test]
    fn a_command_that_was_killed_says_by_what() {
        let event =
            completed("(ended by SIGKILL, 3 ms)", json!({"exitCode": null, "signal": "SIGKILL"}));
        assert_eq!(Progress::new(false, false).show(&event), "  ended by SIGKILL, 12 ms\n");
    }

    #[test]
    fn a_change_shows_the_beginning_of_its_diff() {
        let added: Vec<String> = (1..=20).map(|nth| format!("+line {nth}")).collect();
        let diff = format!("--- a/x\n+++ b/x\n@@ -1 +1,20 @@\n-old\n{}\n", added.join("\n"));
        let shown = Progress::new(false, true).show(&completed("updated x", json!({"diff": diff})));
        assert_eq!(shown.lines().count(), DIFF_LINES_MAX + 1);
        assert!(
            shown.starts_with("\u{1b}[2m  @@ -1 +1,20 @@\u{1b}[0m\n\u{1b}[31m  -old"),
            "{shown}"
        );
        assert!(shown.ends_with("… 10 more lines\u{1b}[0m\n"), "{shown}");
    }

    #[test]
    fn what_was_shown_in_the_question_is_not_shown_again() {
        let id = QuestionId::new("q1");
        let asked = Event::PermissionRequested {
            request_id: id.clone(),
            call_id: CallId::new("c1"),
            tool: "write_file".to_owned(),
            summary: String::new(),
            detail: String::new(),
            reason: String::new(),
            scopes: Vec::new(),
            digest: String::new(),
            cwd: String::new(),
            binding: String::new(),
        };
        let granted = |by: &str| Event::PermissionGranted {
            request_id: id.clone(),
            by: by.to_owned(),
            scope: posse_actors::event::Scope::Once,
            grant: None,
            binding: String::new(),
        };
        let done = completed("updated x", json!({"diff": "@@ -1 +1 @@\n-a\n+b\n"}));
        for (by, lines) in [("user", 0), ("--yes", 3)] {
            let mut progress = Progress::new(false, false);
            assert_eq!(progress.show(&asked) + &progress.show(&granted(by)), "");
            assert_eq!(progress.show(&done).lines().count(), lines, "{by}");
        }
    }

    #[test]
    fn a_dry_run_says_what_would_be_done() {
        let started = |summary: &str, effect| Event::ToolStarted {
            call_id: CallId::new("c1"),
            name: "tool".to_owned(),
            summary: summary.to_owned(),
            digest: String::new(),
            effect,
            coerced: Vec::new(),
        };
        let mut progress = Progress::new(false, false).of_dry_run(true);
        assert_eq!(progress.show(&started("run make", true)), "• would run make\n");
        assert_eq!(progress.show(&started("read a.txt", false)), "• read a.txt\n");
        let mut progress = Progress::new(false, false);
        assert_eq!(progress.show(&started("run make", true)), "• run make\n");
    }

    fn waiting(wait_ms: u64) -> Event {
        Event::ProviderWaiting {
            provider: "local".to_owned(),
            wait_ms,
            patience_left_ms: 540_000,
            class: "overloaded".to_owned(),
            cause: "busy".to_owned(),
        }
    }

    #[test]
    fn a_countdown_is_drawn_over_itself_and_leaves_nothing() {
        let mut progress = Progress::new(true, true);
        let delta = |text: &str| Event::TextDelta { text: text.to_owned() };
        let shown = [
            progress.show(&delta("half")),
            progress.show(&waiting(12_345)),
            progress.show(&waiting(11_345)),
            progress.show(&delta("whole")),
            progress.show(&waiting(1000)),
            progress.finish_line().to_owned(),
        ];
        insta::assert_debug_snapshot!(shown, @r#"
        [
            "half",
            "\n\u{1b}[2m… local: next try in 12 s (patience after that: 9 min)\u{1b}[0m",
            "\r\u{1b}[K\u{1b}[2m… local: next try in 11 s (patience after that: 9 min)\u{1b}[0m",
            "\r\u{1b}[Kwhole",
            "\n\u{1b}[2m… local: next try in 1 s (patience after that: 9 min)\u{1b}[0m",
            "\r\u{1b}[K",
        ]
        "#);
        assert_eq!(Progress::new(true, false).show(&waiting(1000)), "", "where nothing draws");
    }

    #[test]
    fn a_switch_names_both_models() {
        let switch = |class: &str, skipped: &[&str]| Event::ProviderFailover {
            from: "one".to_owned(),
            from_model: "big".to_owned(),
            to: "two".to_owned(),
            to_model: "small".to_owned(),
            class: class.to_owned(),
            cause: "the provider is overloaded: busy".to_owned(),
            skipped: skipped.iter().map(|&why| why.to_owned()).collect(),
        };
        let mut progress = Progress::new(false, false);
        let shown = progress.show(&switch("overloaded", &["three: it sees no images"]))
            + &progress.show(&switch("recovered", &[]));
        insta::assert_snapshot!(shown, @r"
        ! small via two is asked while big via one is away (the provider is overloaded: busy)
          passed over three: it sees no images
        ! small via two answers again, and is asked instead of big via one
        ");
    }

    #[test]
    fn a_look_stays_one_line() {
        assert_eq!(
            Progress::new(true, true).show(&completed("much text", json!({"lines": 3}))),
            ""
        );
    }
}
