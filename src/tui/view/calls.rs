//! Tracks tool calls: requested, started, printing, ended.

use std::time::Duration;

use posse_actors::conversation::{CallId, text_of};
use posse_actors::event::Event;

use crate::view::tool::{EARLIER_CALL, State, ToolCallView, USER_ANSWER};
use crate::view::{Block, View};

impl View {
    fn follow_own_call(&mut self, event: &Event, now: Duration) {
        match event {
            Event::UserCall { .. } => self.own_call_since = Some(now),
            Event::ToolCompleted { call_id, .. } | Event::ToolFailed { call_id, .. }
                if self.own_call.as_ref() == Some(call_id) =>
            {
                self.own_call_since = None;
            }
            _ => (),
        }
    }

    pub(super) fn follow_call(&mut self, event: &Event, now: Duration) {
        self.follow_own_call(event, now);
        match event {
            Event::ToolRequested { call_id, name, arguments } => {
                self.end_text();
                let mut tool = ToolCallView::asked(call_id.clone(), name, now);
                tool.set_arguments(arguments);
                self.blocks.push_back(Block::Tool(Box::new(tool)));
            }
            Event::ToolStarted { call_id, name, summary, effect, .. } => {
                let tool = self.tool(call_id, name, now);
                tool.summary = Some(summary.clone());
                tool.only_reads = !effect;
                (tool.state, tool.since) = (State::Running, now);
            }
            Event::ToolOutputDelta { call_id, text } => {
                if let Some(tool) = self.known(call_id) {
                    tool.printed(text);
                }
                return;
            }
            Event::ToolCompleted { call_id, name, content, metadata, duration_ms } => {
                let own = self.own_call.as_ref() == Some(call_id);
                let tool = self.tool(call_id, name, now);
                tool.completed(content, metadata, *duration_ms, own);
                let title = tool.title();
                self.outputs.add(title, &text_of(content), metadata["diff"].as_str());
            }
            Event::ToolFailed { call_id, name, content, class, .. } => {
                let tool = self.tool(call_id, name, now);
                tool.failed(class, content);
                let title = tool.title();
                self.outputs.add(title, &text_of(content), None);
            }
            Event::ToolOutcomeUnknown { call_id, name, begun, .. } => {
                self.tool(call_id, name, now).set_outcome_unknown(begun.as_ref());
            }
            Event::TodosUpdated { todos } | Event::SessionForked { todos, .. } => {
                self.todos_changed = matches!(event, Event::TodosUpdated { .. });
                return self.todos.clone_from(todos);
            }
            _ => return,
        }
        self.update_wait_reasons();
    }

    /// Updates the wait reasons of open calls after an event of a call or a permission request.
    pub(super) fn update_wait_reasons(&mut self) {
        let open = |block: &Block| matches!(block, Block::Tool(tool) if tool.is_open());
        let many = self.blocks.iter().filter(|block| open(block)).count() > 1;
        for block in &mut self.blocks {
            if let Block::Tool(tool) = block
                && tool.is_open()
            {
                let asked = self.asked.iter().any(|(_, call)| *call == tool.call);
                tool.waits = match tool.state {
                    State::Asked if asked => Some(USER_ANSWER),
                    State::Asked if many => Some(EARLIER_CALL),
                    _ => None,
                };
            }
        }
    }

    /// The call with that id; `None` if its block was already moved to the scrollback or never
    /// existed.
    pub(super) fn known(&mut self, call: &CallId) -> Option<&mut ToolCallView> {
        self.blocks.iter_mut().find_map(|block| match block {
            Block::Tool(tool) if tool.call == *call => Some(&mut **tool),
            _ => None,
        })
    }

    fn tool(&mut self, call: &CallId, name: &str, now: Duration) -> &mut ToolCallView {
        let at = self.blocks.iter().position(
            |block| matches!(block, Block::Tool(tool) if tool.call == *call && tool.is_open()),
        );
        let at = at.unwrap_or_else(|| {
            self.blocks.push_back(Block::Tool(Box::new(ToolCallView::asked(
                call.clone(),
                name,
                now,
            ))));
            self.blocks.len() - 1
        });
        match &mut self.blocks[at] {
            Block::Tool(tool) => tool,
            _ => unreachable!("the index belongs to a tool block"),
        }
    }
}
