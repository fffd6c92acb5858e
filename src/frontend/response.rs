//! Response to an instruction of a client program: one line with the id of the instruction.

use posse_actors::event::{FORMAT_VERSION, SessionError};
use posse_base::failure::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Result of an instruction: an object, empty if there is nothing to say; or the first error.
pub type InstructionResult = Result<Value, Failure>;

/// Response to one instruction, as a line.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "response", rename_all = "camelCase")]
pub struct Response {
    /// Version of the format.
    v: u32,
    /// Position in the output of this process, from 1; missing from `posse attach`.
    pub seq: Option<u64>,
    /// Time in milliseconds since 1970; missing from `posse attach`.
    pub ts: Option<u64>,
    /// Id of the session after the instruction.
    pub session_id: String,
    /// Number of the line of the instruction, from 1.
    pub line: u64,
    /// Id of the instruction, if it had one.
    pub id: Option<Value>,
    /// Type of the instruction; missing if its line has none.
    pub command: Option<String>,
    /// True if the instruction was carried out.
    pub ok: bool,
    /// Result of the instruction, if it was carried out.
    pub result: Option<Value>,
    /// Error of the instruction, if it was not carried out.
    pub error: Option<SessionError>,
}

/// Instruction that waits for its response.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// Number of its line, from 1.
    pub line: u64,
    /// Its id, if it has one.
    pub id: Option<Value>,
    /// Its type, if its line has one.
    pub command: Option<String>,
}

impl Response {
    /// Makes the response to `caller` from the session with the id `session`, without `seq` and
    /// `ts`.
    pub fn new(caller: Caller, session: &str, result: InstructionResult) -> Response {
        let Caller { line, id, command } = caller;
        let (result, error) = match result {
            Ok(value) => (Some(value), None),
            Err(failure) => (None, Some(error_of(&failure))),
        };
        Response {
            v: FORMAT_VERSION,
            seq: None,
            ts: None,
            session_id: session.to_owned(),
            line,
            id,
            command,
            ok: error.is_none(),
            result,
            error,
        }
    }

    /// The response as a line, without the final newline.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The response as a line, newline included.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = self.to_json();
        line.push(b'\n');
        line
    }
}

/// The error of a failure, as responses and events have it.
pub fn error_of(failure: &Failure) -> SessionError {
    SessionError {
        code: failure.code.to_string(),
        what: failure.what.clone(),
        r#where: failure.place.clone(),
        why: failure.why.clone(),
        fix: failure.fix.clone(),
    }
}

/// JSON Schema of a response.
#[cfg(feature = "testing")]
pub fn response_schema() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<Response>().into()
}

#[cfg(test)]
mod tests {
    use posse_base::failure::{ErrorCode, Exit};
    use serde_json::json;

    use super::*;

    #[test]
    fn response_has_either_a_result_or_an_error() {
        let caller =
            || Caller { line: 3, id: Some(json!("a")), command: Some("rename".to_owned()) };
        let done = Response::new(caller(), "s", Ok(json!({"title": "x"})));
        let failure = Failure::new(ErrorCode::InstructionInvalid, Exit::Usage, "no").fix("yes");
        let failed = Response::new(caller(), "s", Err(failure.at("line 3")));
        let json =
            |response: &Response| -> Value { serde_json::from_slice(&response.to_line()).unwrap() };
        assert_eq!(
            json(&done),
            json!({"type": "response", "v": 1, "sessionId": "s", "line": 3, "id": "a",
                "command": "rename", "ok": true, "result": {"title": "x"}})
        );
        assert_eq!(
            json(&failed)["error"],
            json!({"code": "RPC001", "what": "no", "where": "line 3", "fix": "yes"})
        );
        assert_eq!((&json(&failed)["ok"], json(&failed).get("result")), (&json!(false), None));
        let read: Response = serde_json::from_slice(&failed.to_line()).unwrap();
        assert_eq!(read, failed);
        assert!(done.to_line().starts_with(b"{\"type\":\"response\","));
    }
}
