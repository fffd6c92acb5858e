//! Queued messages as a fold over events, and the text of `/queue`.

use posse_actors::conversation::{MessageId, text_of};
use posse_actors::event::{Event, MessageKind};
use posse_actors::text::clipped;
use posse_base::failure::printable;
use serde_json::{Value, json};

/// Maximum characters of a message in the table, without the ellipsis of a longer one.
const TEXT_CHARS_MAX: usize = 200;

/// A queued message with its whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QueueEntry {
    id: MessageId,
    kind: MessageKind,
    text: String,
}

/// Queued messages, oldest first, without those about tool calls of the user
/// (`MessageKind::Aside`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue(Vec<QueueEntry>);

impl Queue {
    /// Adds a message that was queued and removes one that was delivered or withdrawn; ignores
    /// other events.
    pub fn follow(&mut self, event: &Event) {
        match event {
            // A call of the user's own is sent with their next task and was shown when it ran.
            Event::MessageQueued { kind: MessageKind::Aside, .. } => (),
            Event::MessageQueued { message_id, kind, content }
                if self.0.iter().all(|waiting| waiting.id != *message_id) =>
            {
                let (id, text) = (message_id.clone(), text_of(content));
                self.0.push(QueueEntry { id, kind: *kind, text });
            }
            Event::MessageDelivered { message_id }
            | Event::MessageWithdrawn { message_id }
            | Event::UserMessage { message_id: Some(message_id), .. } => {
                self.0.retain(|waiting| waiting.id != *message_id);
            }
            _ => (),
        }
    }

    /// The queued messages for programs, oldest first: id, kind and text of each.
    pub fn list(&self) -> Vec<Value> {
        let entry = |QueueEntry { id, kind, text }: &QueueEntry| json!({"messageId": id, "kind": kind, "text": text});
        self.0.iter().map(entry).collect()
    }

    /// Id of a queued message of the user. `number`: its position among the messages of the user,
    /// counted from 1. `None` if the text is no such number.
    pub fn own_message(&self, number: &str) -> Option<&MessageId> {
        let nth = number.parse::<usize>().ok()?.checked_sub(1)?;
        let own = self.0.iter().filter(|waiting| waiting.kind != MessageKind::Notice);
        own.map(|waiting| &waiting.id).nth(nth)
    }

    /// Table of the queued messages. Messages of the user have the number that `/queue drop` takes.
    /// `busy`: true if a run is active.
    pub fn table(&self, busy: bool) -> String {
        let (mut text, mut nth) = (String::new(), 0);
        for QueueEntry { kind, text: said, .. } in &self.0 {
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let said = clipped(&said, TEXT_CHARS_MAX, " …");
            let number = if *kind == MessageKind::Notice {
                "-".to_owned()
            } else {
                nth += 1;
                nth.to_string()
            };
            let line = format!("{number:>3}  {}: {said}", delivery_time(*kind, busy));
            text.extend([printable(&line).as_str(), "\n"]);
        }
        match (text.is_empty(), nth) {
            (true, _) => "No message is queued.\n".to_owned(),
            (false, 0) => text,
            (false, _) => text + "/queue drop N deletes one.\n",
        }
    }
}

/// Describes the time at which a message of this kind will be delivered; for a notice, its sender.
/// `busy`: true if a run is active.
pub fn delivery_time(kind: MessageKind, busy: bool) -> &'static str {
    match kind {
        MessageKind::Steer | MessageKind::FollowUp if !busy => "with your next message",
        MessageKind::Steer | MessageKind::Aside => "at the next step",
        MessageKind::FollowUp => "after the answer",
        MessageKind::Notice => "from posse to the model",
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::ContentPart;

    use super::*;

    fn queued(id: &str, kind: MessageKind, text: &str) -> Event {
        let content = vec![ContentPart::text(text)];
        Event::MessageQueued { message_id: MessageId::new(id), kind, content }
    }

    #[test]
    fn only_messages_of_the_user_are_numbered() {
        let mut queue = Queue::default();
        assert_eq!(queue.table(true), "No message is queued.\n");
        queue.follow(&queued("m1", MessageKind::Notice, "an agent has ended"));
        queue.follow(&queued("m2", MessageKind::Steer, "mind\nthe\u{1b}[2J gap"));
        queue.follow(&queued("m3", MessageKind::Aside, "I ran this"));
        queue.follow(&queued("m4", MessageKind::FollowUp, &"x".repeat(900)));
        queue.follow(&queued("m4", MessageKind::FollowUp, "again"));
        let table = queue.table(true);
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.contains("  -  from posse to the model: an agent"), "{table}");
        assert!(table.contains("  1  at the next step: mind the\\u{1b}[2J gap"), "{table}");
        assert!(table.chars().count() < 500 && !table.contains('\u{1b}'), "{table}");
        let idle = queue.table(false);
        assert!(idle.contains("  1  with your next message: mind"), "{idle}");
        assert_eq!(queue.own_message("2").map(MessageId::as_str), Some("m4"));
        assert_eq!(
            (queue.own_message("0"), queue.own_message("3"), queue.own_message("x")),
            (None, None, None)
        );
        queue.follow(&Event::MessageWithdrawn { message_id: MessageId::new("m2") });
        assert_eq!(queue.own_message("1").map(MessageId::as_str), Some("m4"));
    }
}
