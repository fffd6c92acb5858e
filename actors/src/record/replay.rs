//! Stub.
use std::sync::Arc;
/// Stub.
#[derive(Debug)]
pub struct OpenCall {
    /// .
    pub call: crate::conversation::ToolCall,
    /// .
    pub started: bool,
}
/// Stub.
#[derive(Debug)]
pub struct Replayed {
    /// .
    pub messages: Vec<Arc<crate::conversation::Message>>,
    /// .
    pub open_calls: Vec<OpenCall>,
    /// .
    pub turns: u32,
}
/// Stub.
pub fn replay(
    _r: &[crate::event::StoredRecord],
    _i: Option<&crate::conversation::InvocationId>,
) -> Replayed {
    Replayed { messages: vec![], open_calls: vec![], turns: 0 }
}
