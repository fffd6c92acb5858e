//! What the user's own programs may say before and after a call.
//!
//! Their place in the pipeline is fixed: before the review, so that the policy judges exactly
//! what will run, and after the outcome was recorded.

use serde_json::Value;

use crate::conversation::ToolCall;
use crate::ports::{PortFuture, ToolOutput};

/// What a hook wants.
#[derive(Debug, Clone, PartialEq)]
pub enum HookOutcome {
    /// Nothing.
    Continue,
    /// Other arguments: they are validated and judged from zero.
    Replace(Value),
    /// The call must not run; the model is told why.
    Block(String),
}

/// Observes and gates calls.
pub trait Hook: Send + Sync + 'static {
    /// Before the review. `arguments` are valid for the tool's schema.
    fn before(&self, call: &ToolCall, arguments: &Value) -> PortFuture<HookOutcome>;

    /// Whether there is nothing to call at all.
    fn is_silent(&self) -> bool {
        false
    }

    /// After the outcome was recorded. What it changes is a second record.
    fn after(&self, call: &ToolCall, output: &ToolOutput) -> PortFuture<Option<ToolOutput>>;
}

/// No hooks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hook for NoHooks {
    fn is_silent(&self) -> bool {
        true
    }

    fn before(&self, _: &ToolCall, _: &Value) -> PortFuture<HookOutcome> {
        Box::pin(std::future::ready(HookOutcome::Continue))
    }

    fn after(&self, _: &ToolCall, _: &ToolOutput) -> PortFuture<Option<ToolOutput>> {
        Box::pin(std::future::ready(None))
    }
}
