//! Keys with which a user accepts a plan of the model into a permission mode.

use posse_actors::event::PermissionMode;

/// Key and words for the acceptance of a plan into `mode`. `None` for modes that no plan begins.
pub fn mode_key(mode: PermissionMode) -> Option<(char, &'static str)> {
    match mode {
        PermissionMode::Auto => Some(('a', "yes, without questions in the sandbox")),
        PermissionMode::Edits => Some(('e', "yes, and edit files without asking")),
        PermissionMode::Ask => Some(('y', "yes, and ask before each change")),
        PermissionMode::Plan | PermissionMode::Locked => None,
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::event::PLAN_MODES;

    use super::*;

    #[test]
    fn every_mode_that_a_plan_can_begin_has_a_key() {
        assert!(PLAN_MODES.into_iter().all(|mode| mode_key(mode).is_some()));
    }
}
