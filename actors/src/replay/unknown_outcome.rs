//! Unknown outcomes after damage: lost records may have contained the ends of open calls.

use crate::replay::Replayed;

/// Result of a call that may have run.
pub const LOST: &str = "Records of this session were lost to damage, and with them what became of \
                        this call. It may have run. Look before you do it again.";

impl Replayed {
    /// Records after this point are lost: every open call may have run, and none runs again.
    pub fn mark_uncertain(&mut self) {
        for open in &mut self.open_calls {
            if open.started && open.effect {
                continue;
            }
            (open.started, open.effect) = (true, true);
            open.set_result(&mut self.messages, LOST);
        }
    }
}
