//! Files that the programs of a script write or move, as their words name them.

use super::{Call, Walker};
use crate::shell::destinations::{self, TransferKind};
use crate::shell::places::joined;
use crate::shell::word::{resolve, shown};

/// Files that a program moves.
#[derive(Debug, Clone)]
pub(crate) struct MovedFiles {
    /// The sources, as the words name them, each with its absolute path, if it is known.
    pub(crate) sources: Vec<(String, Option<String>)>,
    /// The destination.
    pub(crate) to: String,
    /// Absolute path of the destination, in which `..` is kept. `None` if it is known only at run time.
    pub(crate) path: Option<String>,
    /// True if the destination is in the folder for temporary files that a variable names.
    pub(crate) is_temporary: bool,
}

impl Walker {
    /// Records the files that a program writes or moves.
    pub(super) fn writes(&mut self, call: &Call<'_>) {
        let found = destinations::of_program(call.name, call.words);
        self.findings.written.extend(found.files.iter().map(|file| shown(file)));
        let Some(transfer) = found.transfer else { return };
        let to = shown(transfer.to);
        self.findings.written.push(to.clone());
        if transfer.may_be_folder() {
            let folder = to.trim_end_matches('/');
            let names = transfer.sources.iter().map(|source| shown(source));
            let inside = names.map(|name| format!("{folder}/{}", transfer.name_of(&name)));
            self.findings.written.extend(inside);
        }
        if transfer.kind == TransferKind::Move {
            let path = |word: &str| resolve(word, self.cwd.as_deref());
            let sources = transfer.sources.iter().map(|source| (shown(source), path(source)));
            let is_temporary =
                call.rest.iter().any(|word| word.is_temporary && word.text == transfer.to);
            let path = path(transfer.to).and_then(|_| joined(transfer.to, self.cwd.as_deref()));
            let sources = sources.collect();
            self.findings.moved.push(MovedFiles { sources, to, path, is_temporary });
        }
    }
}
