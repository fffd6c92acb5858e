//! Permission mode in which a session starts if no setting selects one.

use posse_actors::event::{PermissionMode, SandboxTier};
use posse_actors::ports::AnswerSource;

use crate::agents::AgentUse;
use crate::checkpoint;
use crate::config::Settings;

/// Permission mode of a session whose main agent has the use `used`, where commands have the sandbox
/// tier `tier` and `asking` answers permission requests.
pub(crate) fn start_mode(
    settings: &Settings,
    used: AgentUse,
    asking: AnswerSource,
    tier: &SandboxTier,
) -> PermissionMode {
    let is_followed = used == AgentUse::Chat && asking == AnswerSource::Human;
    let default =
        || if is_followed { conversation_mode(settings, tier) } else { PermissionMode::Ask };
    settings.permission_mode.unwrap_or_else(default)
}

/// Default permission mode of a conversation with a person, where commands have the sandbox tier
/// `tier`: `auto` if the sandbox confines commands completely and checkpoints can restore what they
/// change.
pub(crate) fn conversation_mode(settings: &Settings, tier: &SandboxTier) -> PermissionMode {
    if *tier == SandboxTier::Full && no_checkpoints(settings).is_none() {
        PermissionMode::Auto
    } else {
        PermissionMode::Ask
    }
}

/// Reason why sessions with these settings make no checkpoints; `None` if they make them.
pub(crate) fn no_checkpoints(settings: &Settings) -> Option<String> {
    let off = (!settings.checkpoints.enabled).then_some("`checkpoints.enabled` is false");
    off.or_else(checkpoint::unavailable).map(str::to_owned)
}
