//! Changes of a trial in events.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::event::TriedChange;

/// Reads a list of changes. Records of earlier versions have a text, which becomes an empty list.
pub(super) fn from_list_or_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<TriedChange>, D::Error> {
    let changes = Value::deserialize(deserializer)?;
    if changes.is_string() {
        return Ok(Vec::new());
    }
    serde_json::from_value(changes).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::event::Event;

    #[test]
    fn trials_of_earlier_versions_are_read() {
        let read = |changes| {
            let event = json!({
                "type": "permission.tried", "requestId": "q", "callId": "c", "summary": "1 added",
                "output": "said", "changes": changes, "isFailed": false,
            });
            let event = serde_json::from_value(event).unwrap();
            let Event::PermissionTried { changes, exit_code, diff, .. } = event else {
                panic!("{event:?}")
            };
            assert_eq!((exit_code, diff.as_str()), (None, ""));
            changes
        };
        assert_eq!(read(json!("added    a\n")), []);
        let change = json!({"path": "a", "change": "added", "type": "file", "bytesAfter": 2});
        let changes = read(json!([change]));
        assert_eq!((changes.len(), serde_json::to_value(&changes[0]).unwrap()), (1, change));
    }
}
