//! The end of conversations that are stored as one session or as several copies.

use std::path::Path;

use posse_actors::conversation::{AssistantMessage, ContentPart, InvocationId, text_of};
use posse_actors::event::{FORMAT_VERSION, Origin, RecordId};
use tempfile::TempDir;

use super::*;
use crate::format::{HashChain, append_line};
use crate::segments::ACTIVE;

fn user(text: &str) -> Event {
    Event::UserMessage { content: vec![ContentPart::text(text)], message_id: None }
}

fn reply(text: &str) -> AssistantMessage {
    AssistantMessage { content: Some(text.to_owned()), ..AssistantMessage::default() }
}

fn replied(text: &str) -> Event {
    let stop_reason = StopReason::EndTurn;
    Event::ModelReply { turn: 1, message: reply(text), stop_reason, model: None }
}

fn forked(parent: &str, parent_record: u64, history: Vec<Arc<Message>>) -> Event {
    Event::SessionForked {
        parent: SessionId::new(parent),
        parent_record,
        history,
        prompts: 1,
        memories: posse_actors::outcome::Memories::default(),
        todos: Vec::new(),
    }
}

struct Stored(TempDir);

impl Stored {
    fn new() -> Stored {
        Stored(tempfile::tempdir().unwrap())
    }

    fn state(&self) -> StateDir {
        StateDir::new(self.0.path())
    }

    fn add(&self, id: &str, events: &[Event]) {
        let dir = self.state().session_dir(Path::new("/nowhere/p"), &SessionId::new(id));
        std::fs::create_dir_all(&dir).unwrap();
        let (mut bytes, mut chain) = (Vec::new(), HashChain::start(id));
        let of = |parent: Option<&str>| Origin {
            invocation_id: InvocationId::new("i"),
            parent_invocation_id: parent.map(InvocationId::new),
            agent: "build".to_owned(),
            agent_path: "build".to_owned(),
        };
        for (event, record) in events.iter().zip(1..) {
            let is_of_child = matches!(event, Event::UserMessage { content, .. }
                if text_of(content).starts_with("task"));
            let record = StoredRecord {
                v: FORMAT_VERSION,
                record,
                ts: record,
                id: RecordId { process: 1, count: u32::try_from(record).unwrap() },
                session_id: SessionId::new(id),
                origin: Some(Arc::new(of(is_of_child.then_some("p")))),
                event: event.clone(),
            };
            chain = append_line(&mut bytes, &chain, &record).unwrap();
        }
        std::fs::write(dir.join(ACTIVE), bytes).unwrap();
    }

    /// The texts of messages, and the numbers of earlier prompts.
    fn last(&self, id: &str, last: u64) -> (String, usize, bool) {
        let found = last_prompts(&self.state(), id, last).unwrap();
        let text = |record: &StoredRecord| match &record.event {
            Event::UserMessage { content, .. } => text_of(content),
            Event::ModelReply { message, .. } => message.content.clone().unwrap(),
            _ => "?".to_owned(),
        };
        let texts: Vec<String> = found.records.iter().map(text).collect();
        (texts.join(" "), found.earlier, found.is_cut)
    }
}

#[test]
fn only_the_last_prompts_are_returned() {
    let stored = Stored::new();
    let mut events = vec![Event::Warning { message: "w".to_owned() }];
    for nth in 0..14 {
        events.extend([
            user(&format!("u{nth}")),
            user("task"),
            Event::UserMessage {
                content: vec![ContentPart::text("steer")],
                message_id: Some(posse_actors::conversation::MessageId::new("m")),
            },
            replied(&format!("a{nth}")),
        ]);
    }
    stored.add("s", &events);
    let (texts, earlier, is_cut) = stored.last("s", u64::MAX);
    assert!(texts.starts_with("u4 task steer a4 u5"), "{texts}");
    assert!(texts.ends_with("u13 task steer a13"), "{texts}");
    assert_eq!((earlier, is_cut), (4, false));
    // A conversation that is cut after its second prompt.
    assert_eq!(stored.last("s", 6), ("? u0 task steer a0 u1".to_owned(), 0, false));
}

#[test]
fn records_of_a_long_run_are_cut_at_its_beginning() {
    let stored = Stored::new();
    let mut events = vec![user("one"), user("two")];
    events.extend((0..RECORDS_MAX).map(|nth| replied(&nth.to_string())));
    stored.add("s", &events);
    let (texts, earlier, is_cut) = stored.last("s", u64::MAX);
    assert!(texts.starts_with("0 1 2") && texts.ends_with("2998 2999"));
    assert_eq!((earlier, is_cut), (2, true));
}

#[test]
fn copies_continue_with_their_originals() {
    let stored = Stored::new();
    let history = |texts: &[&str]| {
        let said =
            |text: &&str| Arc::new(Message::User { content: vec![ContentPart::text(*text)] });
        let mut messages: Vec<_> = texts.iter().map(said).collect();
        messages.push(Arc::new(Message::Assistant(reply("copied"))));
        messages
    };
    stored.add("a", &[user("a1"), replied("r1"), user("a2"), replied("r2"), user("a3")]);
    stored.add("b", &[forked("a", 4, history(&["a1", "a2"])), user("b1"), user("b2")]);
    stored.add("c", &[forked("b", 2, history(&["a1", "a2", "b1"])), user("c1")]);
    assert_eq!(stored.last("c", u64::MAX), ("a1 r1 a2 r2 b1 c1".to_owned(), 0, false));
    assert_eq!(stored.last("b", u64::MAX).0, "a1 r1 a2 r2 b1 b2");
    // Without the original, the messages of the copy remain.
    stored.add("d", &[forked("gone", 4, history(&["x", "y"])), user("d1")]);
    assert_eq!(stored.last("d", u64::MAX), ("x y copied d1".to_owned(), 0, false));
    // The originals have prompts that are not returned.
    let many: Vec<Event> = (0..10).map(|nth| user(&format!("e{nth}"))).collect();
    let copied = forked("a", 4, history(&["a1", "a2"]));
    stored.add("e", &[vec![copied], many].concat());
    assert_eq!(stored.last("e", u64::MAX).1, 2);
}
