//! Unknown outcomes after damage: lost records may have contained the ends of open calls.

use std::sync::Arc;

use crate::conversation::{ContentPart, Message};
use crate::replay::Replayed;

/// Result of a call that may have run.
pub const LOST: &str = "Records of this session were lost to damage, and with them what became of \
                        this call. It may have run. Look before you do it again.";

impl Replayed {
    /// Records after this point are lost: every open call may have run, and none runs again.
    pub fn doubt(&mut self) {
        for open in &mut self.open_calls {
            if open.started && open.effect {
                continue;
            }
            (open.started, open.effect) = (true, true);
            let Some(place) = self.messages.get_mut(open.message) else { continue };
            *place = Arc::new(Message::Tool {
                tool_call_id: open.call.id.clone(),
                name: open.call.name.clone(),
                content: vec![ContentPart::text(LOST)],
                is_error: true,
            });
        }
    }
}
