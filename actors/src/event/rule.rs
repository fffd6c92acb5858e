//! Suggested rules in events.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a rule that is an object or, in records of earlier versions, JSON text. A text that is no
/// JSON stays a text.
pub(super) fn from_object_or_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<Value>>, D::Error> {
    let rule = Option::<Value>::deserialize(deserializer)?;
    let parsed = rule.as_ref().and_then(Value::as_str).map(serde_json::from_str);
    Ok(parsed.and_then(Result::ok).or(rule).map(Box::new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::event::Event;

    #[test]
    fn rules_of_earlier_versions_are_objects_as_well() {
        let object = json!({"decision": "allow", "match": {"commandPrefix": "ls"}, "tool": "bash"});
        let read = |rule| {
            let event = json!({
                "type": "permission.denied", "requestId": "q", "by": "nobody", "reason": "no",
                "rule": rule,
            });
            let event = serde_json::from_value(event).unwrap();
            let Event::PermissionDenied { rule, .. } = event else { panic!("{event:?}") };
            rule.map(|rule| *rule)
        };
        assert_eq!(read(object.clone()), Some(object.clone()));
        assert_eq!(read(json!(object.to_string())), Some(object));
        assert_eq!(read(json!("no rule")), Some(json!("no rule")));
        assert_eq!(read(json!(null)), None);
    }
}
