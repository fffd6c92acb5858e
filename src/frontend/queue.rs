//! Queued messages as a fold over events, and the text of `/queue`.

use posse_actors::conversation::{ContentPart, MessageId, text_of};
use posse_actors::event::{Event, MessageKind};
use posse_actors::text::clipped;
use posse_base::failure::printable;
use serde_json::{Value, json};

/// Maximum characters of a message in the table, without the ellipsis of a longer one.
const TEXT_CHARS_MAX: usize = 200;

/// A queued message with its whole text.
#[derive(Debug, Clone, PartialEq)]
struct QueueEntry {
    id: MessageId,
    kind: MessageKind,
    content: Vec<ContentPart>,
}

/// Change of a queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueEdit {
    /// Replace its text. Images stay.
    Text(String),
    /// Move it to this position among the messages of the user, counted from 1. A position beyond
    /// the last one means the last one.
    MoveTo(usize),
}

/// Messages to withdraw, and those to queue instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Requeue {
    /// Ids of the messages from the first changed position on.
    pub old: Vec<MessageId>,
    /// The same messages after the change.
    pub new: Vec<(MessageKind, Vec<ContentPart>)>,
}

/// Queued messages, oldest first, without those about tool calls of the user
/// (`MessageKind::Aside`).
#[derive(Debug, Clone, Default, PartialEq)]
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
                let (id, content) = (message_id.clone(), content.clone());
                self.0.push(QueueEntry { id, kind: *kind, content });
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
        let entry = |QueueEntry { id, kind, content }: &QueueEntry| {
            let text = text_of(content);
            json!({"messageId": id, "kind": kind, "text": text})
        };
        self.0.iter().map(entry).collect()
    }

    /// Id of a queued message of the user. `number`: its position among the messages of the user,
    /// counted from 1. `None` if the text is no such number.
    pub fn own_message(&self, number: &str) -> Option<&MessageId> {
        let nth = number.parse::<usize>().ok()?.checked_sub(1)?;
        self.own().map(|waiting| &waiting.id).nth(nth)
    }

    /// Queued messages of the user.
    fn own(&self) -> impl Iterator<Item = &QueueEntry> {
        self.0.iter().filter(|waiting| waiting.kind != MessageKind::Notice)
    }

    /// Messages that have to be withdrawn and queued again, so that the message `id` of the user is
    /// changed. `None` if it is not queued. Without messages, if nothing changes.
    pub fn requeue(&self, id: &MessageId, edit: &QueueEdit) -> Option<Requeue> {
        let before: Vec<&QueueEntry> = self.own().collect();
        let at = before.iter().position(|waiting| waiting.id == *id)?;
        let mut after: Vec<QueueEntry> = self.own().cloned().collect();
        match edit {
            QueueEdit::Text(text) => {
                let is_image = |part: &ContentPart| !matches!(part, ContentPart::Text { .. });
                after[at].content.retain(is_image);
                after[at].content.insert(0, ContentPart::text(text));
            }
            QueueEdit::MoveTo(position) => {
                let entry = after.remove(at);
                after.insert(position.saturating_sub(1).min(after.len()), entry);
            }
        }
        let same = before.iter().zip(&after).take_while(|(before, after)| **before == *after);
        let same = same.count();
        let new = after.into_iter().skip(same).map(|entry| (entry.kind, entry.content));
        Some(Requeue {
            old: before.into_iter().skip(same).map(|entry| entry.id.clone()).collect(),
            new: new.collect(),
        })
    }

    /// Table of the queued messages. Messages of the user have the number that `/queue drop` takes.
    /// `busy`: true if a run is active.
    pub fn table(&self, busy: bool) -> String {
        let (mut text, mut nth) = (String::new(), 0);
        for QueueEntry { kind, content, .. } in &self.0 {
            let said = text_of(content);
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
            (false, _) => {
                text + "/queue drop N deletes one, edit N TEXT changes it, move N M moves it.\n"
            }
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

    #[test]
    fn changes_requeue_the_messages_from_the_first_changed_one_on() {
        let mut queue = Queue::default();
        for (id, kind) in [
            ("a", MessageKind::Steer),
            ("n", MessageKind::Notice),
            ("b", MessageKind::FollowUp),
            ("c", MessageKind::Steer),
        ] {
            queue.follow(&queued(id, kind, id));
        }
        let text = |text: &str| QueueEdit::Text(text.to_owned());
        let table = [
            ("b", text("x"), vec!["b", "c"], vec!["x", "c"]),
            ("c", QueueEdit::MoveTo(1), vec!["a", "b", "c"], vec!["c", "a", "b"]),
            ("a", QueueEdit::MoveTo(2), vec!["a", "b", "c"], vec!["b", "a", "c"]),
            ("b", QueueEdit::MoveTo(99), vec!["b", "c"], vec!["c", "b"]),
            ("b", QueueEdit::MoveTo(2), vec![], vec![]),
            ("a", QueueEdit::MoveTo(0), vec![], vec![]),
        ];
        for (id, edit, old, new) in table {
            let requeue = queue.requeue(&MessageId::new(id), &edit).unwrap();
            let ids: Vec<&str> = requeue.old.iter().map(MessageId::as_str).collect();
            let texts: Vec<String> =
                requeue.new.iter().map(|(_, content)| text_of(content)).collect();
            assert_eq!(
                (ids, texts),
                (old, new.into_iter().map(str::to_owned).collect()),
                "{id} {edit:?}"
            );
        }
        let kinds: Vec<MessageKind> = queue
            .requeue(&MessageId::new("c"), &QueueEdit::MoveTo(1))
            .unwrap()
            .new
            .iter()
            .map(|(kind, _)| *kind)
            .collect();
        assert_eq!(kinds, [MessageKind::Steer, MessageKind::Steer, MessageKind::FollowUp]);
        assert_eq!(queue.requeue(&MessageId::new("n"), &text("x")), None);
        // Images stay.
        let image =
            ContentPart::ImageUrl { url: "data:image/png;base64,".to_owned(), detail: None };
        let content = vec![ContentPart::text("see"), image.clone()];
        let message_id = MessageId::new("i");
        queue.follow(&Event::MessageQueued { message_id, kind: MessageKind::Steer, content });
        let requeue = queue.requeue(&MessageId::new("i"), &text("look")).unwrap();
        assert_eq!(requeue.new[0].1, [ContentPart::text("look"), image]);
    }
}
