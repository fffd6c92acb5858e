//! Messages that wait to be said, as a fold over events, and the words for `/queue`.

use posse_actors::conversation::{MessageId, text_of};
use posse_actors::event::{Event, MessageKind};

use crate::failure::printable;

/// Characters of a message that are shown.
const TEXT_CHARS_MAX: usize = 200;

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    id: MessageId,
    kind: MessageKind,
    text: String,
}

/// All of them, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Queue(Vec<Waiting>);

impl Queue {
    /// Keeps up with what waits.
    pub(crate) fn follow(&mut self, event: &Event) {
        match event {
            // What the user did beside is told with their next task, and was seen.
            Event::MessageQueued { kind: MessageKind::Aside, .. } => (),
            Event::MessageQueued { message_id, kind, content }
                if self.0.iter().all(|waiting| waiting.id != *message_id) =>
            {
                let (id, text) = (message_id.clone(), text_of(content));
                self.0.push(Waiting { id, kind: *kind, text });
            }
            Event::MessageDelivered { message_id }
            | Event::MessageWithdrawn { message_id }
            | Event::UserMessage { message_id: Some(message_id), .. } => {
                self.0.retain(|waiting| waiting.id != *message_id);
            }
            _ => (),
        }
    }

    /// The user's own message of that number, from 1.
    pub(crate) fn own(&self, number: &str) -> Option<&MessageId> {
        let nth = number.parse::<usize>().ok()?.checked_sub(1)?;
        let own = self.0.iter().filter(|waiting| waiting.kind != MessageKind::Notice);
        own.map(|waiting| &waiting.id).nth(nth)
    }

    /// All of them, those of the user with the number by which they are dropped. `busy`: something
    /// runs.
    pub(crate) fn table(&self, busy: bool) -> String {
        let (mut text, mut nth) = (String::new(), 0);
        for Waiting { kind, text: said, .. } in &self.0 {
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let cut: String = said.chars().take(TEXT_CHARS_MAX).collect();
            let more = if cut.len() < said.len() { " …" } else { "" };
            let number = if *kind == MessageKind::Notice {
                "-".to_owned()
            } else {
                nth += 1;
                nth.to_string()
            };
            let line = format!("{number:>3}  {}: {cut}{more}", when(*kind, busy));
            text.extend([printable(&line).as_str(), "\n"]);
        }
        match (text.is_empty(), nth) {
            (true, _) => "No message waits.\n".to_owned(),
            (false, 0) => text,
            (false, _) => text + "/queue drop N deletes one.\n",
        }
    }
}

/// When a message is said, and by whom. `busy`: something runs.
pub(crate) fn when(kind: MessageKind, busy: bool) -> &'static str {
    match kind {
        MessageKind::Steer | MessageKind::FollowUp if !busy => "goes with your next message",
        MessageKind::Steer | MessageKind::Aside => "at the next step",
        MessageKind::FollowUp => "after the answer",
        MessageKind::Notice => "posse tells the model",
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
    fn only_the_users_own_messages_have_a_number() {
        let mut queue = Queue::default();
        assert_eq!(queue.table(true), "No message waits.\n");
        queue.follow(&queued("m1", MessageKind::Notice, "an agent has ended"));
        queue.follow(&queued("m2", MessageKind::Steer, "mind\nthe\u{1b}[2J gap"));
        queue.follow(&queued("m3", MessageKind::Aside, "I ran this"));
        queue.follow(&queued("m4", MessageKind::FollowUp, &"x".repeat(900)));
        queue.follow(&queued("m4", MessageKind::FollowUp, "again"));
        let table = queue.table(true);
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.contains("  -  posse tells the model: an agent"), "{table}");
        assert!(table.contains("  1  at the next step: mind the\\u{1b}[2J gap"), "{table}");
        assert!(table.chars().count() < 500 && !table.contains('\u{1b}'), "{table}");
        let idle = queue.table(false);
        assert!(idle.contains("  1  goes with your next message: mind"), "{idle}");
        assert_eq!(queue.own("2").map(MessageId::as_str), Some("m4"));
        assert_eq!((queue.own("0"), queue.own("3"), queue.own("x")), (None, None, None));
        queue.follow(&Event::MessageWithdrawn { message_id: MessageId::new("m2") });
        assert_eq!(queue.own("1").map(MessageId::as_str), Some("m4"));
    }
}
