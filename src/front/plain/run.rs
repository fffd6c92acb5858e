//! One task in line mode: shows events as text and sends typed lines as steering messages. While a
//! permission request is open, a typed line answers it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posse_actors::conversation::{ContentPart, InvocationId, text_of};
use posse_actors::event::{Announcement, DecisionSource, Event, MessageKind};
use posse_actors::outcome::Ending;
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::root_session::{DeliverError, PromptError, RunningPrompt, TurnOutcome};
use posse_base::failure::Exit;
use posse_base::or_pending;
use posse_frontend::Task;
use posse_frontend::commands::{ParsedLine, parse, unknown};
use posse_frontend::end_line::end_line;
use posse_frontend::outcome::{PermissionHints, judge};
use tokio::time::sleep;

use crate::plain::LineMode;
use crate::plain::commands::HAS_TO_WAIT;
use crate::plain::terminal::TerminalInput;
use crate::question::{AnswerLine, TRYING};

/// Maximum wait for the last events of a run after its outcome.
const LAST_EVENTS: Duration = Duration::from_secs(2);

impl LineMode<'_> {
    /// Starts `task` and shows it to its end. If another front end has just started a task, the
    /// prompt becomes a steering message for that task. If the task cannot be started, prints the
    /// error and sets the exit code of the last task to `Exit::Failed`.
    pub(super) async fn work(&mut self, task: Task) {
        self.catch_up().await;
        self.rule_shown = false;
        let said = match &task {
            Task::Prompt(prompt) => Some(text_of(&prompt.content)),
            Task::Continue => None,
        };
        let running = match (task.begin(&self.current.session).await, said) {
            (Ok(running), _) => running,
            // Another front end started a task first: the prompt becomes a steering message.
            (Err(PromptError::Busy), Some(said)) => return self.steer(said).await,
            (Err(error), _) => {
                self.last = Exit::Failed;
                return self.print(&format!("{error}\n/clear starts over.\n")).await;
            }
        };
        self.show_task(running).await;
    }

    /// Shows a running task to its end, with its result. A signal stops the task; a second signal,
    /// or any signal but Ctrl+C, also ends line mode.
    pub(super) async fn show_task(&mut self, running: RunningPrompt) {
        let started = Instant::now();
        let invocation = running.invocation().clone();
        let mut outcome = std::pin::pin!(running.outcome());
        let (mut stops, mut over) = (0, false);
        self.watch();
        let outcome = loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    stops += 1;
                    if signal != Exit::Interrupt {
                        self.leaving = Some(signal);
                    }
                    if stops > 1 {
                        self.leaving = Some(signal);
                        break None;
                    }
                    self.leave_line().await;
                    self.stop().await;
                }
                announcement = self.current.events.next() => match announcement {
                    Some(announcement) => {
                        over |= is_last(&announcement, &invocation);
                        self.follow(&announcement).await;
                    }
                    None => break None,
                },
                input = self.terminal.next() => {
                    self.notifier.key();
                    self.typed(input).await;
                }
                () = or_pending(self.notifier.wait().map(sleep)) => self.notify().await,
                warning = self.notifier.failed() => self.notify_failed(&warning).await,
                outcome = &mut outcome => break outcome,
            }
            self.follow_attention("working").await;
            if self.stdout.is_broken() && self.leaving.is_none() {
                self.leaving = Some(Exit::Failed);
                self.current.session.interrupt();
            }
        };
        if outcome.is_some() && !over {
            self.follow_to_the_end(&invocation).await;
        }
        for input in self.terminal.unwatch().await {
            match input {
                TerminalInput::Line(line) => self.waiting.push_back(line),
                TerminalInput::End => self.exit_when_done(),
                TerminalInput::Quiet | TerminalInput::Interrupted | TerminalInput::Stopped => (),
            }
        }
        self.questions.forget();
        self.follow_attention("done").await;
        self.task_ended(outcome.as_ref(), started.elapsed()).await;
        self.finish_task(outcome, started).await;
    }

    /// Starts watching the terminal for lines, during a task or background work. If an open
    /// permission request waits for silence, the wait starts again.
    pub(super) fn watch(&mut self) {
        self.terminal.watch();
        if self.questions.wants_silence() {
            self.terminal.discard_input();
        }
    }

    pub(super) async fn stop(&mut self) {
        self.current.session.interrupt();
        self.print("(stopping; Ctrl+C again leaves at once)\n").await;
    }

    /// Ends the line that a permission request or the terminal's `^C` has left unfinished.
    async fn leave_line(&mut self) {
        if self.interactive {
            self.progress.finish_line();
            self.stderr.write(b"\n".to_vec()).await;
        }
    }

    pub(super) fn exit_when_done(&mut self) {
        self.leaving.get_or_insert(Exit::Done);
    }

    pub(super) async fn follow(&mut self, announcement: &Arc<Announcement>) {
        let event = announcement.event();
        self.notifier.follow(event);
        self.current.update(event);
        self.note_work(announcement);
        if let Event::PermissionDenied { by, rule: Some(_), .. } = event {
            self.rule_shown |= *by == DecisionSource::Nobody;
        }
        let asked = self.progress.asks();
        let text = self.progress.follow(announcement);
        let disturbed = asked && !text.is_empty();
        self.stderr.write(text.into_bytes()).await;
        self.save_selection(announcement).await;
        if self.interactive {
            let question = self.questions.follow_announced(announcement);
            let again = self.questions.again().filter(|_| disturbed);
            self.show_question(question.or(again)).await;
        }
    }

    pub(super) async fn show_question(&mut self, question: Option<String>) {
        if let Some(question) = question {
            self.print(&question).await;
            self.progress.asked(&question);
            if self.questions.wants_silence() {
                self.terminal.discard_input();
            }
        }
    }

    /// Shows the last events of a run, which arrive shortly after its outcome. Waits at most
    /// [`LAST_EVENTS`].
    async fn follow_to_the_end(&mut self, invocation: &InvocationId) {
        let mut limit = std::pin::pin!(sleep(LAST_EVENTS));
        loop {
            let announcement = tokio::select! {
                announcement = self.current.events.next() => announcement,
                () = &mut limit => return,
            };
            let Some(announcement) = announcement else { return };
            self.follow(&announcement).await;
            if is_last(&announcement, invocation) {
                return;
            }
        }
    }

    async fn typed(&mut self, input: TerminalInput) {
        let line = match input {
            TerminalInput::Line(line) => {
                self.progress.line_ended();
                line
            }
            TerminalInput::End => {
                self.exit_when_done();
                return self.print("(leaving when this is done; Ctrl+C stops it)\n").await;
            }
            TerminalInput::Quiet => {
                let keys = self.questions.quiet();
                return self.show_question(keys).await;
            }
            TerminalInput::Interrupted | TerminalInput::Stopped => return,
        };
        let typed = parse(&line);
        if !typed.is_immediate()
            && let Some(answered) = self.questions.decide(&line)
        {
            return self.answered(answered).await;
        }
        match typed {
            ParsedLine::Blank => (),
            ParsedLine::Text(text) => self.steer(text).await,
            ParsedLine::Shell(_) => self.print(HAS_TO_WAIT).await,
            ParsedLine::Command(command, argument) => {
                self.run_command(command, argument.as_deref(), true).await;
            }
            ParsedLine::Unknown(name, meant) => self.print(&(unknown(&name, meant) + "\n")).await,
        }
    }

    pub(super) async fn answered(&mut self, answered: AnswerLine) {
        match answered {
            AnswerLine::Unclear(text) => self.show_question(Some(text)).await,
            AnswerLine::Decided(id, decision) => {
                if decision == HumanDecision::Try {
                    self.print(TRYING).await;
                }
                if let Err(error) = self.current.session.answer(id, decision).await {
                    self.print(&format!("({error})\n")).await;
                }
                let next = self.questions.next_text();
                self.show_question(next).await;
            }
        }
    }

    async fn steer(&mut self, text: String) {
        let content = vec![ContentPart::text(text.clone())];
        match self.current.session.deliver(MessageKind::Steer, content).await {
            Ok(_) => self.print("(said at the next step)\n").await,
            // The run has just ended: this is the next task.
            Err(DeliverError::Idle) => self.waiting.push_back(text),
            Err(error @ DeliverError::Full) => self.print(&format!("({error})\n")).await,
        }
    }

    async fn finish_task(&mut self, outcome: Option<TurnOutcome>, started: Instant) {
        if outcome.is_none() && self.leaving.is_some() {
            return;
        }
        let outcome = outcome.map(|mut outcome| {
            // The session counts over all of its tasks.
            let before = std::mem::replace(&mut self.current.unanswered, outcome.unanswered);
            outcome.unanswered = outcome.unanswered.saturating_sub(before);
            let before = std::mem::replace(&mut self.current.not_by_yes, outcome.not_by_yes);
            outcome.not_by_yes = outcome.not_by_yes.saturating_sub(before);
            outcome
        });
        let is_own = outcome.as_ref().is_some_and(is_own_call);
        let advised =
            PermissionHints { yes: self.yes, rule: self.rule_shown, ..PermissionHints::default() };
        let verdict = judge(outcome.as_ref(), None, advised);
        self.last = verdict.exit;
        if let Some(result) = verdict.result.as_ref().filter(|_| !is_own) {
            self.last_reply.clone_from(result);
            let seen = self.progress.shown_live && self.stdout.is_terminal();
            let line = self.progress.finish_line();
            self.stderr.write(line.into()).await;
            if !seen {
                // A reader of both streams expects this order.
                self.stderr.flushed().await;
                let end = if result.ends_with('\n') { "" } else { "\n" };
                self.stdout.write(format!("{result}{end}").into_bytes()).await;
                self.stdout.flushed().await;
            }
        }
        if let Some(failure) = &verdict.failure {
            self.failed(std::slice::from_ref(failure)).await;
        }
        match outcome {
            // A call of the user reports its own end.
            Some(_) if is_own => (),
            Some(outcome) => self.count(&outcome, started.elapsed()).await,
            None => self.leaving = Some(verdict.exit),
        }
    }

    async fn count(&mut self, outcome: &TurnOutcome, took: Duration) {
        self.totals.prompts += 1;
        self.totals.turns += outcome.turns;
        self.totals.usage.add(&outcome.usage);
        if self.interactive {
            let spent = self.current.session.accounts().await.map(|accounts| accounts.total);
            let cost = spent.filter(|spent| spent.nano_usd > 0).map(|spent| spent.cost_text());
            let text = end_line(outcome, took, cost.as_deref());
            let line = format!("{}\n", self.progress.dim(&text));
            self.print(&line).await;
        }
    }
}

/// True for the outcome of a call of the user, which has no model reply; false for that of a task.
pub(super) fn is_own_call(outcome: &TurnOutcome) -> bool {
    outcome.turns == 0 && outcome.ending == Ending::Answered(String::new())
}

/// True for the last event of this invocation, or of a call of the user.
fn is_last(announcement: &Announcement, invocation: &InvocationId) -> bool {
    // The last message is the one that informs the model.
    if let Event::MessageQueued { kind: MessageKind::Aside, .. } = announcement.event() {
        return true;
    }
    let ours = announcement.origin().is_some_and(|origin| origin.invocation_id == *invocation);
    let last = matches!(
        announcement.event(),
        Event::InvocationCompleted { .. }
            | Event::InvocationFailed { .. }
            | Event::InvocationCancelled { .. }
    );
    ours && last
}
