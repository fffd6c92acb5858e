//! Handshake and status lines of an attach connection, for both sides. Pure.

use posse_actors::event::PermissionMode;
use posse_base::failure::ErrorCode;
use posse_frontend::remote_session::{AttachAccepted, AttachRole, RemoteMessage};
use posse_frontend::response::Response;
use serde::{Deserialize, Serialize};

/// Version of the attach protocol.
const VERSION: u32 = 1;

/// Maximum length of the first line in bytes.
pub(crate) const HELLO_BYTES_MAX: usize = 4 << 10;

/// First line of a connection, sent by the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Hello {
    /// Always `attach`.
    r#type: String,
    v: u32,
    pub(crate) token: String,
    #[serde(rename = "as")]
    pub(crate) role: AttachRole,
    /// Records up to and including this number are skipped.
    #[serde(default)]
    pub(crate) after: u64,
    /// Limits the existing records to the last `last` ones, plus earlier ones about permission
    /// requests and about resuming the session. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<u64>,
    /// Permission mode of the start. The session gets the stricter one of it and its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permission_mode: Option<PermissionMode>,
}

impl Hello {
    pub(crate) fn new(token: String, role: AttachRole, after: u64, last: Option<u64>) -> Hello {
        let r#type = "attach".to_owned();
        Hello { r#type, v: VERSION, token, role, after, last, permission_mode: None }
    }

    /// Parses a first line and checks its type and version. The error never quotes the line,
    /// because it contains the token.
    pub(crate) fn read(line: &[u8]) -> Result<Hello, AttachRefusal> {
        let invalid = |message: &str| AttachRefusal::new(ErrorCode::AttachInvalidRequest, message);
        // The parse error is dropped: its text may quote the token.
        let hello: Hello = serde_json::from_slice(line)
            .map_err(|_| invalid("the first line is not a valid `attach` line"))?;
        if hello.r#type != "attach" {
            return Err(invalid("the first line must have the type `attach`"));
        }
        if hello.v != VERSION {
            let (theirs, ours) = (hello.v, VERSION);
            return Err(invalid(&format!(
                "protocol version {theirs} is not supported; the session uses version {ours}"
            )));
        }
        Ok(hello)
    }
}

/// Reason for rejecting an attach request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttachRefusal {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl AttachRefusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> AttachRefusal {
        AttachRefusal { code: code.as_str().to_owned(), message: message.into() }
    }
}

/// A line from the host that is not a session event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub(crate) enum HostReply {
    #[serde(rename = "attach.accepted")]
    Accepted {
        v: u32,
        #[serde(flatten)]
        accepted: AttachAccepted,
    },
    #[serde(rename = "attach.refused")]
    Refused { v: u32, code: String, message: String },
    #[serde(rename = "attach.done")]
    Done { v: u32, line: u64 },
    #[serde(rename = "attach.failed")]
    Failed { v: u32, line: u64, message: String },
    #[serde(rename = "attach.dropped")]
    Dropped { v: u32, message: String },
}

impl HostReply {
    pub(crate) fn accepted(accepted: AttachAccepted) -> HostReply {
        HostReply::Accepted { v: VERSION, accepted }
    }

    pub(crate) fn refused(AttachRefusal { code, message }: AttachRefusal) -> HostReply {
        HostReply::Refused { v: VERSION, code, message }
    }

    pub(crate) fn dropped(message: impl Into<String>) -> HostReply {
        HostReply::Dropped { v: VERSION, message: message.into() }
    }

    /// Makes the answer to the line number `line` of the client: `Done`, or `Failed` with the
    /// reason. Lines are counted from 1 after the first line of the connection.
    pub(crate) fn of(line: u64, result: Result<(), String>) -> HostReply {
        match result {
            Ok(()) => HostReply::Done { v: VERSION, line },
            Err(message) => HostReply::Failed { v: VERSION, line, message },
        }
    }
}

/// Serialises a value as one line, newline included.
pub(crate) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Beginning of a [`Response`] to an instruction.
const RESPONSE_PREFIX: &[u8] = b"{\"type\":\"response\",";

/// Prefix of lines from the host that are neither session events nor responses: the beginning of
/// every serialised [`HostReply`].
const CONNECTION_PREFIX: &[u8] = b"{\"type\":\"attach.";

/// Converts a line from the host to a message. Responses, and `Done`, `Failed`, `Dropped` and
/// `Refused` become messages of their own (`Refused` also as [`RemoteMessage::Dropped`]); every other line becomes
/// an event unchanged, even if it is not JSON.
pub(crate) fn classify_host_line(line: Vec<u8>) -> RemoteMessage {
    if line.starts_with(RESPONSE_PREFIX)
        && let Ok(response) = serde_json::from_slice::<Response>(&line)
    {
        return RemoteMessage::Response(Box::new(response));
    }
    if !line.starts_with(CONNECTION_PREFIX) {
        return RemoteMessage::Event(line);
    }
    match serde_json::from_slice(&line) {
        Ok(HostReply::Done { line, .. }) => RemoteMessage::Done(line),
        Ok(HostReply::Failed { line, message, .. }) => RemoteMessage::Failed(line, message),
        Ok(HostReply::Dropped { message, .. } | HostReply::Refused { message, .. }) => {
            RemoteMessage::Dropped(message)
        }
        // Unknown types of later versions are passed on as events.
        Ok(HostReply::Accepted { .. }) | Err(_) => RemoteMessage::Event(line),
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::SessionId;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_handshake_is_parsed_or_rejected_without_quoting_the_token() {
        let whole = Hello::new("t".repeat(64), AttachRole::Controller, 7, Some(200));
        assert_eq!(Hello::read(&line(&whole)), Ok(whole));
        let short = br#"{"type":"attach","v":1,"token":"x","as":"observer"}"#;
        assert_eq!(
            Hello::read(short),
            Ok(Hello::new("x".to_owned(), AttachRole::Observer, 0, None))
        );
        let table = [
            "",
            "nonsense",
            "{}",
            r#"{"type":"attach","v":1,"token":"SECRET","as":"owner"}"#,
            r#"{"type":"attach","v":1,"token":"SECRET","as":"observer","more":1}"#,
            r#"{"type":"attack","v":1,"token":"SECRET","as":"observer"}"#,
            r#"{"type":"attach","v":2,"token":"SECRET","as":"observer"}"#,
            r#"{"type":"attach","v":1,"token":"SECRET","as":"observer","after":-1}"#,
        ];
        for text in table {
            let refused = Hello::read(text.as_bytes()).unwrap_err();
            assert_eq!(refused.code, "ATT004", "{text}");
            assert!(!refused.message.contains("SECRET"), "{}", refused.message);
        }
    }

    #[test]
    fn host_lines_are_classified() {
        let accepted = AttachAccepted {
            session_id: SessionId::new("s"),
            process: 1,
            role: AttachRole::Observer,
            name: "process 2".to_owned(),
            records: 3,
            after: 0,
        };
        let text = line(&HostReply::accepted(accepted.clone()));
        assert_eq!(serde_json::from_slice(&text).ok(), Some(HostReply::accepted(accepted)));
        let of = |answer: &HostReply| {
            let mut text = line(answer);
            text.pop();
            classify_host_line(text)
        };
        assert_eq!(of(&HostReply::of(7, Ok(()))), RemoteMessage::Done(7));
        assert_eq!(
            of(&HostReply::of(7, Err("no".to_owned()))),
            RemoteMessage::Failed(7, "no".to_owned())
        );
        assert_eq!(of(&HostReply::dropped("slow")), RemoteMessage::Dropped("slow".to_owned()));
        let refused = HostReply::refused(AttachRefusal::new(ErrorCode::AttachRefused, "no"));
        assert_eq!(of(&refused), RemoteMessage::Dropped("no".to_owned()));
        let event = br#"{"v":1,"type":"attach.done","line":1}"#.to_vec();
        assert_eq!(
            classify_host_line(event.clone()),
            RemoteMessage::Event(event),
            "an event begins with its version"
        );
    }

    proptest! {
        #[test]
        fn reads_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Hello::read(&bytes).is_err());
            classify_host_line(bytes);
        }
    }
}
