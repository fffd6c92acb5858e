//! Test harness of the terminal UI: takes events and keys, returns the screen as text.

use std::time::Duration;

use crossterm::event::KeyEvent;
use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, InvocationId, QuestionId, StopReason, Usage,
};
use posse_actors::event::{Event, Origin, PermissionTarget, SandboxTier, Scope};
use posse_frontend::SelectionSources;
use serde_json::{Value, json};

use crate::app::{App, Effect};
use crate::input::InputEvent;
use crate::text::TextRow;
use crate::theme::Theme;

/// The UI of one session with a manual clock.
pub(crate) struct TestScreen {
    pub(crate) app: App,
    pub(crate) now: Duration,
    finished: Vec<String>,
}

pub(crate) fn text_of_row(row: &TextRow) -> String {
    row.spans.iter().map(|span| span.content.as_ref()).collect()
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl TestScreen {
    /// A new session without messages.
    pub(crate) fn new() -> TestScreen {
        let mut app = App::default();
        app.theme = Theme::PLAIN;
        app.session = "20261122-101500-abcdef".to_owned();
        app.sources = SelectionSources {
            thinking: "the agent or the model decides".to_owned(),
            provider: "ANTHROPIC_API_KEY is set".to_owned(),
            model: "its default".to_owned(),
            agent: "built in".to_owned(),
        };
        app.view.status.provider = "anthropic".to_owned();
        app.view.status.model = "large-5".to_owned();
        app.view.status.agent = "build".to_owned();
        app.view.status.cwd = "~/src/shop".to_owned();
        app.view.status.folder = "/home/me/src/shop".to_owned();
        app.view.status.tier = SandboxTier::Full;
        app.view.status.limit = Some(48_000);
        TestScreen { app, now: ms(1000), finished: Vec::new() }
    }

    /// A session with a running task.
    pub(crate) fn with_task() -> TestScreen {
        let mut stage = TestScreen::new();
        stage.app.busy = true;
        stage.happens(Event::InvocationStarted {
            provider: "anthropic".to_owned(),
            model: "large-5".to_owned(),
            tools: Vec::new(),
        });
        stage.happens(Event::UserMessage {
            content: vec![ContentPart::text(
                "Why does the total differ from the sum of its parts?",
            )],
            message_id: None,
        });
        stage.asks_model();
        stage
    }

    pub(crate) fn asks_model(&mut self) {
        self.happens(Event::ModelRequest {
            turn: 1,
            provider: "anthropic".to_owned(),
            model: "large-5".to_owned(),
            messages: 2,
        });
    }

    #[expect(clippy::needless_pass_by_value, reason = "it reads better where it is called")]
    pub(crate) fn happens(&mut self, event: Event) {
        let origin = origin("i1", None, "build");
        self.app.follow(&event, Some(&origin), self.now);
    }

    #[expect(clippy::needless_pass_by_value, reason = "it reads better where it is called")]
    pub(crate) fn happens_in(&mut self, origin: &Origin, event: Event) {
        self.app.follow(&event, Some(origin), self.now);
    }

    pub(crate) fn says(&mut self, text: &str) {
        self.happens(Event::TextDelta { text: text.to_owned() });
    }

    pub(crate) fn replied(&mut self, text: &str) {
        self.happens(Event::ModelReply {
            turn: 1,
            message: AssistantMessage {
                content: Some(text.to_owned()),
                reasoning: None,
                tool_calls: Vec::new(),
            },
            stop_reason: StopReason::EndTurn,
            model: None,
        });
        self.happens(Event::ModelUsage {
            turn: 1,
            usage: Usage {
                input_tokens: Some(24_000),
                output_tokens: Some(500),
                ..Usage::default()
            },
            billing: None,
        });
    }

    /// Runs a tool call from start to end.
    pub(crate) fn calls(&mut self, id: &str, summary: &str, text: &str, metadata: Value) {
        self.starts(id, summary);
        self.happens(Event::ToolCompleted {
            call_id: CallId::new(id),
            name: "tool".to_owned(),
            content: vec![ContentPart::text(text)],
            metadata,
            duration_ms: 42,
        });
    }

    pub(crate) fn starts(&mut self, id: &str, summary: &str) {
        self.happens(Event::ToolRequested {
            call_id: CallId::new(id),
            name: "tool".to_owned(),
            arguments: "{}".to_owned(),
        });
        self.happens(Event::ToolStarted {
            call_id: CallId::new(id),
            name: "tool".to_owned(),
            summary: summary.to_owned(),
            digest: String::new(),
            effect: true,
            coerced: Vec::new(),
        });
    }

    pub(crate) fn ends(&mut self) {
        self.happens(Event::InvocationCompleted {
            result: String::new(),
            turns: 1,
            usage: Usage::default(),
        });
        self.app.finish_task();
    }

    pub(crate) fn presses(&mut self, key: KeyEvent) -> Vec<Effect> {
        self.app.input(InputEvent::Key(key), self.now)
    }

    pub(crate) fn types(&mut self, text: &str) -> Vec<Effect> {
        use crossterm::event::KeyCode;
        text.chars()
            .flat_map(|c| {
                let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
                self.presses(KeyEvent::from(code))
            })
            .collect()
    }

    pub(crate) fn later(&mut self, by: u64) {
        self.now += ms(by);
        self.app.tick(self.now);
    }

    /// The finished rows, a separator, and the live region. `▏` marks the cursor.
    pub(crate) fn screen(&mut self, columns: u16, rows: u16) -> String {
        loop {
            let shown = self.app.frame(columns, rows, self.now);
            self.finished.extend(shown.finished.iter().map(text_of_row));
            if shown.more {
                continue;
            }
            let live = &shown.live;
            assert!(live.area.height <= rows, "{} rows on a screen of {rows}", live.area.height);
            let mut lines: Vec<String> = Vec::new();
            for y in 0..live.area.height {
                let mut drawn = String::new();
                let mut x = 0;
                while x < live.area.width {
                    if shown.cursor == Some((x, y)) {
                        drawn.push('▏');
                    }
                    let symbol = live[(x, y)].symbol();
                    drawn.push_str(symbol);
                    x += u16::try_from(crate::text::width(symbol).max(1)).unwrap();
                }
                lines.push(drawn.trim_end().to_owned());
            }
            let above = if shown.alternate_screen {
                String::new()
            } else {
                self.finished.join("\n") + "\n"
            };
            let edge = "═".repeat(usize::from(columns));
            let text = format!("{above}{edge}\n{}\n", lines.join("\n"));
            return text.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        }
    }

    /// The screen at three widths.
    pub(crate) fn screens(
        build: impl Fn(&mut TestScreen),
        begin: impl Fn() -> TestScreen,
    ) -> String {
        let one = |columns: u16| {
            let mut stage = begin();
            build(&mut stage);
            format!("{columns} columns\n{}", stage.screen(columns, 30))
        };
        [60, 100, 200].map(one).join("\n")
    }
}

pub(crate) fn origin(id: &str, parent: Option<&str>, path: &str) -> Origin {
    Origin {
        invocation_id: InvocationId::new(id),
        parent_invocation_id: parent.map(InvocationId::new),
        agent: path.rsplit('/').next().unwrap().to_owned(),
        agent_path: path.to_owned(),
    }
}

pub(crate) fn question(id: &str, detail: &str) -> Event {
    Event::PermissionRequested {
        target: PermissionTarget::default(),
        request_id: QuestionId::new(id),
        call_id: CallId::new(format!("call-{id}")),
        tool: "bash".to_owned(),
        summary: format!("run {}", detail.lines().next().unwrap_or_default()),
        detail: detail.to_owned(),
        reason: "commands that change files need approval".to_owned(),
        scopes: vec![Scope::Once, Scope::Session, Scope::Project, Scope::Global],
        user_request: None,
        trial: None,
        grant: None,
        grants_part: false,
        grant_text: String::new(),
        hunks: Vec::new(),
        digest: String::new(),
        cwd: "/home/me/src/shop".to_owned(),
        binding: String::new(),
    }
}

pub(crate) fn command_ended(code: i64) -> Value {
    json!({"exitCode": code})
}
