//! Stub.
use crate::ports::ToolError;
use serde_json::Value;
pub(crate) struct Arguments {
    pub(crate) value: Value,
    pub(crate) coerced: Vec<String>,
}
pub(crate) fn validate(
    _schema: &Value,
    raw: &str,
    _bytes_max: usize,
) -> Result<Arguments, ToolError> {
    serde_json::from_str(raw)
        .map(|value| Arguments { value, coerced: vec![] })
        .map_err(|e| ToolError::new("ARG001", e.to_string()))
}
