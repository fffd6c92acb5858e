//! Error that ended a session, for programs that read events.

use serde::{Deserialize, Serialize};

/// Error that ended a session. The texts are not escaped.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct SessionError {
    /// Code, such as `PRV001`, which the reference of error codes explains.
    pub code: String,
    /// Error in one line.
    pub what: String,
    /// Location of the error: `file:line:column`, or a flag.
    pub r#where: Option<String>,
    /// Reason.
    pub why: Option<String>,
    /// Advice to the user.
    pub fix: Option<String>,
}
