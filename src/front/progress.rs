//! Progress of a run on standard error, in short lines. On a terminal with colours a countdown is
//! redrawn, and a reply that was cut off is erased.

mod lines;
mod live;

use posse_actors::conversation::{CallId, ContentPart, QuestionId, text_of};
use posse_actors::cost::dollars;
use posse_actors::event::{
    Announcement, CompactionCause, DecisionSource, Event, PermissionMode, ToolFailureClass,
};
use posse_actors::outcome::SubagentOutcome;
use posse_base::failure::{printable, printable_lines};
use posse_frontend::commands::permission_mode_changed;
use posse_frontend::context;
use posse_frontend::notices::{failover_notice, hook_notice, partial_reply_notice, unknown};
use posse_frontend::outcome::clock_time;
use posse_frontend::subagents::label_with_id;
use serde_json::Value;

use lines::{
    DIFF_LINES_MAX, OUTPUT_LINES_MAX, OWN_LINES_MAX, clipped, countdown_text, first_line,
    last_lines, of_job, of_worktree, seconds,
};
use live::{LiveText, ScreenSize, clip_to_row};

/// Turns events into text for standard error.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "three are settings, two are what was shown")]
pub(crate) struct ProgressPrinter {
    /// True if the text of replies is shown as it arrives.
    live: bool,
    /// True if colours may be used.
    color: bool,
    /// True if tools only describe their effects.
    dry_run: bool,
    /// True if the shown part of a streamed reply does not end with a newline.
    mid_line: bool,
    /// True if the current line is transient: the next text replaces it.
    drawn: bool,
    /// True if the last text is a permission request without a newline at its end.
    asks: bool,
    /// Shown part of the current streamed reply; `None` if nothing of it was shown.
    reply: Option<LiveText>,
    /// Function that returns the size of the screen; `None` if lines cannot be replaced on the
    /// screen.
    screen: Option<ScreenSize>,
    /// Name of this front end in records if it is attached; `None` in the owning process.
    name: Option<String>,
    /// Open permission requests and their calls.
    asked: Vec<(QuestionId, CallId)>,
    /// Calls that a person allowed after seeing their effect, whose diff is not shown again.
    seen: Vec<CallId>,
    /// Id of the last call that the user requested; `None` if there was none.
    own_call: Option<CallId>,
    /// True if text of the last reply of the main agent was shown as it arrived and not taken back.
    pub(crate) shown_live: bool,
}

impl ProgressPrinter {
    pub(crate) fn new(live: bool, color: bool) -> ProgressPrinter {
        ProgressPrinter {
            live,
            color,
            screen: (live && color).then_some(live::screen),
            ..ProgressPrinter::default()
        }
    }

    fn screen_size(&self) -> Option<(u16, u16)> {
        self.screen.and_then(|screen| screen())
    }

    /// Returns the printer of an attached front end. `name`: its name in records.
    pub(crate) fn named(self, name: &str) -> ProgressPrinter {
        ProgressPrinter { name: Some(name.to_owned()), ..self }
    }

    /// Returns the printer with this setting. `dry_run`: true if tools only describe their effects.
    pub(crate) fn of_dry_run(self, dry_run: bool) -> ProgressPrinter {
        ProgressPrinter { dry_run, ..self }
    }

    /// Text to write for an announcement; empty if there is none. Each line about a subagent begins
    /// with its path, and replies of subagents are not shown.
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
        let who = label_with_id(&origin.agent_path, &origin.invocation_id);
        let path = self.dim(&format!("[{}] ", printable(&who)));
        let mut shown = self.finish_line().to_owned();
        for line in text.lines() {
            shown.extend([path.as_str(), line, "\n"]);
        }
        shown
    }

    /// Text to write for an event of the main agent; empty if there is none.
    pub(crate) fn show(&mut self, event: &Event) -> String {
        match event {
            Event::TextDelta { text } => self.delta(text),
            Event::ProviderWaiting { .. }
            | Event::ProviderSilent { .. }
            | Event::CheckpointProgress { .. } => match self.transient_line(event) {
                Some(line) => self.draw(&line),
                None => self.print(event),
            },
            Event::ModelPartial { .. } if self.reply.is_some() => {
                let start = self.start_line();
                let text = format!("{start}{}\n", self.notice(event));
                if let Some(reply) = &mut self.reply {
                    reply.interrupt(&text);
                }
                text
            }
            Event::ProviderRetry { .. } | Event::ProviderFailover { .. } => {
                let back = self.take_back();
                format!("{back}{}", self.print(event))
            }
            _ => self.print(event),
        }
    }

    /// Text to write for a delta of a reply; empty if replies are not shown as they arrive.
    fn delta(&mut self, text: &str) -> String {
        if !self.live || text.is_empty() {
            return String::new();
        }
        let start = match self.reply {
            // A reply starts on a new line.
            None => self.start_line(),
            Some(_) => self.erase_transient(),
        };
        let shown = format!("{start}{}", printable_lines(text));
        let screen = self.screen;
        let reply = self.reply.get_or_insert_with(|| LiveText::new(screen.and_then(|size| size())));
        reply.add(&shown);
        self.mid_line = !text.ends_with('\n');
        self.shown_live = true;
        shown
    }

    /// Returns the text for a transient line, which the next text replaces.
    fn draw(&mut self, line: &str) -> String {
        let start = self.start_line();
        self.drawn = true;
        let text = format!("{start}{}", self.dim(clip_to_row(line, self.screen_size())));
        if let Some(reply) = &mut self.reply {
            reply.add(&text);
        }
        text
    }

    /// Returns the permanent lines for an event, with a newline; empty if there are none.
    fn print(&mut self, event: &Event) -> String {
        let line = self.line(event);
        if line.is_empty() {
            return line;
        }
        format!("{}{line}\n", self.finish_line())
    }

    /// Returns text that erases a reply that was cut off and is requested again. If the reply
    /// cannot be erased, the text is a line that declares it void. Empty if no reply was cut off.
    fn take_back(&mut self) -> String {
        let Some(reply) = self.reply.take().filter(LiveText::is_interrupted) else {
            return String::new();
        };
        let start = self.start_line();
        self.shown_live = false;
        reply.erase_sequence(self.screen_size()).unwrap_or_else(|| {
            let text = "! what stands above of the reply does not count";
            format!("{start}{}\n", self.paint("33", text))
        })
    }

    /// Text of a transient line about a wait for a provider (`ProviderWaiting` or
    /// `ProviderSilent`) or for a checkpoint; `None` for other events, or if the terminal cannot
    /// redraw lines.
    fn transient_line(&self, event: &Event) -> Option<String> {
        if !(self.live && self.color) {
            return None;
        }
        match event {
            Event::ProviderWaiting { provider, wait_ms, patience_left_ms, .. } => {
                // Rounded, and not zero before the end.
                let wait = countdown_text(wait_ms.saturating_add(500).max(1000));
                let then = match patience_left_ms {
                    0 => "the last one".to_owned(),
                    left => format!("then it waits {} at most", countdown_text(*left)),
                };
                Some(format!("… {provider}: next try in {wait} ({then})"))
            }
            Event::ProviderSilent { provider, silent_ms } => {
                Some(format!("… {provider}: nothing heard for {}", countdown_text(*silent_ms)))
            }
            Event::CheckpointProgress { files, total } => {
                Some(format!("… checkpoint: {files} of {total} files are stored"))
            }
            _ => None,
        }
    }

    fn erase_transient(&mut self) -> &'static str {
        match (std::mem::take(&mut self.drawn), std::mem::take(&mut self.asks)) {
            (true, _) => "\r\u{1b}[K",
            (false, true) => "\n",
            (false, false) => "",
        }
    }

    /// Registers that the text of a permission request was written. If it does not end with a
    /// newline, it is answered on the same line, and other text must start on a new line.
    pub(crate) fn asked(&mut self, text: &str) {
        self.asks = !text.ends_with('\n');
    }

    /// Registers that the user has typed a line. Returns true if it was typed behind a permission
    /// request.
    pub(crate) fn line_ended(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    /// True if the last text is a permission request that is answered on the same line.
    pub(crate) fn asks(&self) -> bool {
        self.asks
    }

    /// Returns text that must precede other output, so that the output starts on a new line. A
    /// streamed reply above it can no longer be erased.
    pub(crate) fn finish_line(&mut self) -> &'static str {
        // Later output of others is unknown, so nothing above it can be erased.
        if let Some(reply) = &mut self.reply {
            reply.make_permanent();
        }
        self.start_line()
    }

    fn start_line(&mut self) -> &'static str {
        let wiped = self.erase_transient();
        if std::mem::take(&mut self.mid_line) && wiped.is_empty() { "\n" } else { wiped }
    }

    /// Dims text of minor interest, if colours may be used.
    pub(crate) fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn line(&mut self, event: &Event) -> String {
        match event {
            Event::ModelRequest { .. } => {
                (self.shown_live, self.reply) = (false, None);
                String::new()
            }
            Event::ModelReply { message, .. } => {
                self.reply = None;
                match &message.content {
                    Some(text) if !self.live && !message.tool_calls.is_empty() => {
                        printable_lines(text.trim_end())
                    }
                    _ => String::new(),
                }
            }
            Event::ToolStarted { summary, effect, .. } => {
                let would = if self.dry_run && *effect { "would " } else { "" };
                self.paint("2", &format!("• {would}{}", printable(summary)))
            }
            Event::ToolCompleted { call_id, content, metadata, duration_ms, .. } => {
                let seen = self.seen.contains(call_id);
                self.seen.retain(|call| call != call_id);
                let own = self.own_call.as_ref() == Some(call_id);
                let lines_max = if own { OWN_LINES_MAX } else { OUTPUT_LINES_MAX };
                self.completed(content, metadata, (*duration_ms, lines_max), seen)
            }
            Event::UserCall { call_id, .. } => {
                self.own_call = Some(call_id.clone());
                String::new()
            }
            Event::PermissionModeChanged { mode, changed_by, restriction, .. } => {
                self.mode_changed(*mode, restriction.as_deref(), changed_by.as_ref())
            }
            event if event.question().is_some() => self.question(event),
            Event::ToolFailed { content, name, class, .. } => {
                let whole = text_of(content);
                // The reason of a denial may take several lines.
                let line = match whole.lines().next() {
                    Some(line)
                        if matches!(
                            class,
                            ToolFailureClass::Denied | ToolFailureClass::Cancelled
                        ) =>
                    {
                        printable(line)
                    }
                    _ => first_line(content),
                };
                let text = format!("  ✗ {name} {class}: {}", class.reason_in(&line));
                self.paint("31", &text)
            }
            Event::ToolOutcomeUnknown { name, content, begun, .. } => {
                let call = unknown(name, begun.as_ref());
                self.paint("31", &format!("  ✗ {call}\n    {}", first_line(content)))
            }
            Event::InvocationRequested { .. } | Event::DelegationEnded { .. } => {
                self.of_agents(event)
            }
            // Calls left open by an earlier run are not requested again.
            Event::InvocationStarted { .. } => {
                self.asked.clear();
                self.seen.clear();
                String::new()
            }
            Event::TodosUpdated { todos } => {
                let lines = todos.iter().map(|item| format!("  {}", printable(&item.line())));
                self.paint("2", &lines.collect::<Vec<_>>().join("\n"))
            }
            other => self.notice(other),
        }
    }

    /// Text for the start or end of a subagent; empty for other events.
    fn of_agents(&self, event: &Event) -> String {
        match event {
            Event::InvocationRequested {
                child_invocation_id,
                target,
                provider,
                task,
                background,
                ..
            } => {
                let beside = if *background { " in the background" } else { "" };
                let who = label_with_id(target, child_invocation_id);
                let line = format!("▸ {who} via {provider}{beside}: {task}");
                self.paint("36", &printable(&line))
            }
            Event::DelegationEnded {
                child_invocation_id,
                target,
                outcome,
                turns,
                cost_nano_usd,
                workplace,
                ..
            } => {
                let cost = cost_nano_usd.filter(|cost| *cost > 0);
                let cost = cost.map(|cost| format!(", {}", dollars(cost))).unwrap_or_default();
                let replies = if *turns == 1 { "reply" } else { "replies" };
                let who = label_with_id(target, child_invocation_id);
                let left = workplace.as_ref().map(of_worktree).unwrap_or_default();
                let line = format!("◂ {who}: {outcome}, {turns} {replies}{cost}{left}");
                let color = if *outcome == SubagentOutcome::Done { "36" } else { "33" };
                self.paint(color, &printable(&line))
            }
            _ => String::new(),
        }
    }

    fn question(&mut self, event: &Event) -> String {
        match event {
            Event::PermissionRequested { request_id, call_id, .. } => {
                self.asked.push((request_id.clone(), call_id.clone()));
                String::new()
            }
            Event::PermissionGranted { request_id, by, answered_by, reply, .. } => {
                self.decided(request_id, *by == DecisionSource::User);
                let what = if reply.is_some() { "answered" } else { "allowed" };
                self.by_another(what, answered_by.as_ref())
            }
            Event::PermissionWithdrawn { request_id, .. } => {
                self.decided(request_id, false);
                String::new()
            }
            Event::PermissionTried { request_id, tried_by, .. } => {
                self.decided(request_id, false);
                self.by_another("tried", tried_by.as_ref())
            }
            Event::PermissionDenied { request_id, answered_by, .. } => {
                self.decided(request_id, false);
                let by = self.by_another("denied", answered_by.as_ref());
                if by.is_empty() { self.notice(event) } else { by }
            }
            _ => String::new(),
        }
    }

    /// Text about a change of the permission mode. Empty if the front end that owns the session changed
    /// it, whose command has answered.
    fn mode_changed(
        &self,
        mode: PermissionMode,
        restriction: Option<&str>,
        by: Option<&String>,
    ) -> String {
        if by.is_some() && by == self.name.as_ref() {
            return self.paint("2", &format!("({})", permission_mode_changed(mode, restriction)));
        }
        self.by_another(&format!("permission mode {mode} selected"), by)
    }

    /// Text that says that another front end answered a permission request; empty if this front end
    /// did, or if no name is recorded.
    fn by_another(&self, what: &str, by: Option<&String>) -> String {
        match by.filter(|by| Some(*by) != self.name.as_ref()) {
            Some(by) => self.paint("33", &format!("! {what} by {}", printable(by))),
            None => String::new(),
        }
    }

    fn decided(&mut self, id: &QuestionId, allowed: bool) {
        let call = self.asked.iter().find(|(asked, _)| asked == id).map(|(_, call)| call.clone());
        self.asked.retain(|(asked, _)| asked != id);
        self.seen.extend(call.filter(|_| allowed));
    }

    /// Text for a completed call: exit status, duration and last `lines_max` output lines of a
    /// command, or the diff of a file change unless the user has `seen` it in the permission
    /// request. Empty for other calls.
    fn completed(
        &self,
        content: &[ContentPart],
        metadata: &Value,
        (duration_ms, lines_max): (u64, usize),
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
            lines.extend(
                last_lines(&text, lines_max).into_iter().map(|line| self.paint("2", &line)),
            );
            return lines.join("\n");
        }
        if let Some(report) = metadata["report"].as_array() {
            let lines = report.iter().filter_map(|line| line.as_str());
            let lines = lines.map(|line| self.paint("2", &format!("  {}", printable(line))));
            return lines.collect::<Vec<_>>().join("\n");
        }
        match metadata["diff"].as_str().filter(|diff| !diff.is_empty() && !seen) {
            Some(diff) => self.diff_excerpt(diff),
            None => String::new(),
        }
    }

    /// First [`DIFF_LINES_MAX`] lines of a unified diff, without the lines that name the files,
    /// coloured. If there are more, a line with their number follows.
    fn diff_excerpt(&self, diff: &str) -> String {
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
            Event::PermissionDenied { by, reason, is_user_request: true, .. }
                if *by != DecisionSource::User =>
            {
                format!("! not answered: {}", printable(reason))
            }
            Event::PermissionDenied {
                reason, is_user_request: true, answered_by: None, ..
            } => {
                format!("! refused: {}", printable(reason))
            }
            Event::PermissionDenied { by, reason, rule, .. } if *by == DecisionSource::Nobody => {
                let rule =
                    rule.as_ref().map(|rule| format!("\n  rule: {}", printable(&rule.to_string())));
                format!("! denied: {}{}", printable(reason), rule.unwrap_or_default())
            }
            Event::ModelPartial { cause, in_history, .. } => {
                partial_reply_notice(cause, *in_history)
            }
            Event::ActorCrashed { actor, cause } => {
                format!("! {actor} crashed: {}", printable(cause))
            }
            Event::ActorRestarted { actor, .. } => format!("! {actor} runs again"),
            Event::ProviderSilent { provider, silent_ms } => {
                format!("! {provider}: nothing heard for {}", countdown_text(*silent_ms))
            }
            Event::ProviderFailover { .. } => failover_notice(event),
            Event::SessionParked { cause, next_try_ms, .. } => {
                let next = next_try_ms.map(|at| format!("; next try at {}", clock_time(at)));
                format!("! parked: {}{}", printable(cause), next.unwrap_or_default())
            }
            // The front end that requested it was answered.
            Event::ContextCompacted { cause, .. } if *cause == Some(CompactionCause::Request) => {
                return String::new();
            }
            Event::ContextCompacted { .. } => {
                format!(
                    "({})",
                    context::compacted(event).as_deref().map(printable).unwrap_or_default()
                )
            }
            Event::Warning { message } => format!("! {}", printable(message)),
            Event::JobStarted { .. } | Event::JobEnded { .. } => of_job(event),
            Event::HookFired { .. } | Event::HookFailed { .. } => match hook_notice(event) {
                Some(text) => text,
                None => return String::new(),
            },
            _ => return String::new(),
        };
        self.paint("33", &text)
    }

    /// Escapes `text`, which may contain names from a model or a server. Colours it with the SGR
    /// parameter `code` if colours may be used.
    fn paint(&self, code: &str, text: &str) -> String {
        let text = printable_lines(text);
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text }
    }
}

#[cfg(test)]
mod tests;
