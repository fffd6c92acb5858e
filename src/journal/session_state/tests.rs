//! States of sessions, by their records.

use posse_actors::conversation::{CallId, ContentPart, QuestionId, SessionId, Usage};
use posse_actors::event::{Event, FORMAT_VERSION, PermissionTarget, RecordId, StoredRecord};
use posse_actors::replay::replay;

use super::*;
use crate::SessionState as State;

fn ended(reason: &str) -> Event {
    Event::SessionEnded {
        reason: reason.to_owned().into(),
        exit_code: 0,
        usage: Usage::default(),
        cost_usd: None,
        cost_nano_usd: None,
        unpriced_requests: 0,
        turns: 1,
        result: None,
        error: None,
    }
}

fn parked() -> Event {
    Event::SessionParked { cause: "busy".to_owned(), class: None, next_try_ms: Some(1) }
}

fn said() -> Event {
    Event::UserMessage { content: vec![ContentPart::text("go")], message_id: None }
}

fn asked(id: &str) -> Event {
    Event::PermissionRequested {
        user_request: None,
        trial: None,
        grant: None,
        grants_part: false,
        grant_text: String::new(),
        hunks: Vec::new(),
        target: PermissionTarget::default(),
        request_id: QuestionId::new(id),
        call_id: CallId::new(id),
        tool: "bash".to_owned(),
        summary: format!("run {id}"),
        detail: String::new(),
        reason: String::new(),
        scopes: Vec::new(),
        digest: String::new(),
        cwd: String::new(),
        binding: String::new(),
    }
}

fn withdrawn(id: &str) -> Event {
    let target = PermissionTarget::default();
    Event::PermissionWithdrawn { request_id: QuestionId::new(id), reason: String::new(), target }
}

fn resumed() -> Event {
    Event::SessionResumed { records: 1, with: None, changed: Vec::new() }
}

fn state_after(events: &[Event]) -> State {
    let records: Vec<StoredRecord> = events
        .iter()
        .zip(1..)
        .map(|(event, record)| StoredRecord {
            v: FORMAT_VERSION,
            record,
            ts: 0,
            id: RecordId { process: 1, count: u32::try_from(record).unwrap() },
            session_id: SessionId::new("s"),
            origin: None,
            event: event.clone(),
        })
        .collect();
    of_replayed(&replay(&records, None), false)
}

#[test]
fn describes_the_state_of_a_session() {
    let waits = State::Parked { cause: "busy".to_owned(), next_try_ms: Some(1), owner: None };
    let became = |reason: &str| State::ended(reason.to_owned());
    let question = |text: &str| State::Killed { question: Some(text.to_owned()) };
    let table = [
        (vec![said(), ended("completed")], State::Finished, "finished"),
        (vec![said(), ended("limit")], became("limit"), "ended at a limit"),
        (vec![said(), ended("interrupted")], became("interrupted"), "stopped"),
        (vec![said(), ended("failed")], became("failed"), "failed"),
        (vec![said(), ended("provider")], became("provider"), "failed: provider"),
        (vec![said(), parked(), ended("parked")], waits.clone(), "parked until 01-01 00:00"),
        // The process was killed while the session was parked.
        (vec![said(), parked()], waits, "parked until 01-01 00:00"),
        (vec![parked(), said(), ended("completed")], State::Finished, "finished"),
        (
            vec![ended("completed"), resumed()],
            State::Killed { question: None },
            "killed, can be resumed",
        ),
        (vec![said(), asked("a")], question("run a"), "killed, can be resumed"),
        (vec![said(), asked("a"), asked("b")], question("run a"), "killed, can be resumed"),
        (
            vec![said(), asked("a"), asked("b"), withdrawn("a")],
            question("run b"),
            "killed, can be resumed",
        ),
        (
            vec![said(), asked("a"), withdrawn("a")],
            State::Killed { question: None },
            "killed, can be resumed",
        ),
    ];
    for (events, state, short) in table {
        assert_eq!(state_after(&events), state, "{events:?}");
        assert_eq!(state.short_text(&TimeZone::UTC), short, "{events:?}");
    }
    let live = question("run a").owned("process 4711".to_owned());
    assert_eq!(live.long(&TimeZone::UTC), "waiting for an answer (process 4711): run a");
    let live = State::Finished.owned("process 4711".to_owned());
    assert_eq!(live.long(&TimeZone::UTC), "running (process 4711)");
}
