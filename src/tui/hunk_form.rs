//! Hunks of an edit in a permission request, about which the user answers one by one.

use crossterm::event::KeyEvent;
use posse_actors::event::EditHunk;
use posse_actors::permission_coordinator::HumanDecision;
use posse_frontend::hunk_walk::HunkWalk;

use crate::EditorDraft;
use crate::input::character;

/// Keys of a hunk, with their meaning.
pub(super) const KEYS: &[(char, &str)] = &[
    ('y', "take"),
    ('n', "leave"),
    ('e', "editor"),
    ('a', "take this and the rest"),
    ('q', "back"),
];

/// Effect of a key on the hunks.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum HunkKey {
    /// The next hunk is shown.
    Next,
    /// The request is answered as a whole.
    Back,
    /// All hunks are answered.
    Decided(HumanDecision),
    /// The user wants to change this text in an editor.
    Edit(EditorDraft),
    /// The key takes what was not shown yet.
    NotSeen,
    /// The key has no meaning here.
    NotOffered,
}

/// Hunks of a request, which the user can answer one by one instead of the whole.
#[derive(Debug, Clone)]
pub(super) struct HunkForm {
    first: HunkWalk,
    /// Hunks that are being answered; `None` while the request is answered as a whole.
    walk: Option<HunkWalk>,
    /// True if the whole change was shown before its hunks.
    whole_seen: bool,
}

impl HunkForm {
    /// `None` if the request has no hunks.
    pub(super) fn new(detail: &str, hunks: &[EditHunk]) -> Option<HunkForm> {
        let first = HunkWalk::new(detail, hunks)?;
        Some(HunkForm { first, walk: None, whole_seen: false })
    }

    /// Shows the first hunk. `whole_seen`: true if the whole change was shown.
    pub(super) fn begin(&mut self, whole_seen: bool) {
        (self.walk, self.whole_seen) = (Some(self.first.clone()), whole_seen);
    }

    /// Returns to the request as a whole, and drops the answers. Returns `None` if it is answered as
    /// a whole already, otherwise true if the whole change was shown.
    pub(super) fn leave(&mut self) -> Option<bool> {
        self.walk.take().map(|_| self.whole_seen)
    }

    /// The current hunk; `None` while the request is answered as a whole.
    pub(super) fn walk(&self) -> Option<&HunkWalk> {
        self.walk.as_ref()
    }

    /// Handles a key, which counts as an answer. `is_seen`: true if the whole hunk was shown.
    pub(super) fn key(&mut self, key: KeyEvent, is_seen: bool) -> HunkKey {
        let Some(walk) = &mut self.walk else { return HunkKey::NotOffered };
        let decided = |decision: Option<_>| decision.map_or(HunkKey::Next, HunkKey::Decided);
        match character(key).map(|letter| letter.to_ascii_lowercase()) {
            Some('n') => decided(walk.leave()),
            Some('q') => HunkKey::Back,
            Some('y' | 'e' | 'a') if !is_seen => HunkKey::NotSeen,
            Some('y') => decided(walk.take()),
            Some('e') => {
                let (text, extension) = (walk.draft().to_owned(), walk.extension().to_owned());
                HunkKey::Edit(EditorDraft { text, extension })
            }
            Some('a') if !self.whole_seen => HunkKey::NotSeen,
            Some('a') => HunkKey::Decided(walk.take_rest()),
            _ => HunkKey::NotOffered,
        }
    }

    /// Takes the current hunk with the text that the user has edited. `Err`: the text cannot be
    /// used, for this reason.
    pub(super) fn set_text(&mut self, text: String) -> Result<HunkKey, String> {
        let Some(walk) = &mut self.walk else { return Ok(HunkKey::NotOffered) };
        Ok(walk.replace(text)?.map_or(HunkKey::Next, HunkKey::Decided))
    }
}
