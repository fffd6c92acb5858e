//! Report about commands that were not checked, because posse was killed while they ran.

use std::path::Path;

use posse_base::protected::Class;

use crate::protect::baseline::{Baseline, BaselineItem};
use crate::protect::finding::{Finding, ProtectAction, ProtectedChange};
use crate::protect::running_marks::Stamp;
use crate::protect::sort::Sort;
use crate::protect::state::State;
use crate::protect::{GuardState, ProtectedPath, git_files};

/// True if the name of the folder around `item` gives it its meaning, as that of `.cargo`. The change
/// time of a folder of git is that of its last command.
fn is_named_by_folder(item: &BaselineItem) -> bool {
    item.above.is_some() && matches!(item.sort, Sort::Name(class) if class != Class::Git)
}

impl GuardState {
    /// Adds a finding for each item of `baseline` that may have been created or changed since `since`,
    /// to be reported by the next check. Their earlier state is unknown, so all are left as they are.
    pub(super) fn report_unchecked(&mut self, baseline: &Baseline, since: Stamp) {
        let changed = baseline.items.iter().filter(|item| self.may_be_unchecked(*item, since));
        let mut changed: Vec<&ProtectedPath> = changed.map(|(key, _)| key).collect();
        changed.sort();
        let finding = |key: &&ProtectedPath| {
            Finding::new(self.path(key), ProtectedChange::Unchecked, ProtectAction::Left)
        };
        let findings: Vec<Finding> = changed.iter().map(finding).collect();
        self.untold.extend(findings);
    }

    /// True if `item` may be the work of a command that started at `since`.
    fn may_be_unchecked(&self, (key, item): (&ProtectedPath, &BaselineItem), since: Stamp) -> bool {
        let root = &self.roots[key.0].root;
        let is_new = |path: &Path| root.stat(path).is_ok_and(|stat| stat.changed >= since);
        match (item.sort, &item.state) {
            // Ordinary commands of git change it.
            (Sort::Index, _) => {
                is_new(&key.1)
                    && root.open_parent(&key.1).is_ok_and(|(folder, name)| {
                        git_files::unsafe_index(&folder, name, &self.path(key)).is_some()
                    })
            }
            // The copy has the references that replace objects.
            (Sort::PackedRefs, Some(State::File { copy: Some(copy), .. })) => {
                !copy.is_empty() && is_new(&key.1)
            }
            (_, state) => {
                // A folder that was moved keeps the times of its files.
                let folder = key.1.parent().filter(|_| is_named_by_folder(item));
                is_new(&key.1)
                    || folder.is_some_and(is_new)
                    || state.as_ref().is_some_and(|state| state.has_changed_since(since))
            }
        }
    }
}
