//! Marking of open calls after damage: lost records may contain their ends.

use crate::replay::Replayed;

/// Result for the model of an open call whose later records are lost.
pub const LOST: &str = "Records of this session were lost to damage, and with them what became of \
                        this call. It may have run. Look before you do it again.";

impl Replayed {
    /// Marks all open calls as started with side effects and an unknown outcome, because later
    /// records are lost. So none of them runs again. Their results for the model say so.
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
