//! Instruction files: `AGENTS.md` of the user, and `AGENTS.md` or similar files of the project.
//!
//! The user's file comes first, then those of the repository from its root to the working
//! directory. They are read as text, with size limits, and not through symbolic links that lead out
//! of the repository.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use posse_base::failure::{printable, printable_lines};
use posse_base::path_globs::PathGlobs;

use crate::folder;

/// Maximum total size of all instructions in bytes.
const BYTES_MAX: usize = 32 << 10;
/// Maximum total size of the nested instruction files that are read for one touched file, in bytes.
const NESTED_BYTES_MAX: usize = 16 << 10;
/// Maximum number of folders that are read, the closest to the working directory.
pub(crate) const FOLDERS_MAX: usize = 64;
/// File names; the first that exists in a folder is used.
pub(crate) const NAMES: [&str; 4] = ["AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "AGENT.md"];
/// Maximum number of positions of hidden characters reported per file.
const POSITIONS_MAX: usize = 5;

/// Instruction files that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instructions {
    /// The files in the order of reading. Later ones take precedence; the closest folder is last.
    pub blocks: Vec<Instruction>,
    /// Warnings about files that were skipped or truncated, or contain hidden characters; one line
    /// each, for standard error.
    pub notices: Vec<String>,
}

/// One instruction file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Path of the file in printable form, relative to the repository; complete for the file of the
    /// user.
    pub source: String,
    /// Text of the file, with hidden characters as visible escapes.
    pub text: String,
}

impl Instruction {
    /// Appends the text to `prompt` as data, labelled with its source.
    pub(crate) fn write_to(&self, prompt: &mut String) {
        let Instruction { source, text } = self;
        // The content must not close its label.
        let text = text.replace("</instructions", "<\\/instructions");
        let ending = if text.ends_with('\n') { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _: std::fmt::Result =
            writeln!(prompt, "\n<instructions source=\"{source}\">\n{text}{ending}</instructions>");
    }
}

/// Place of the instruction files of a project, and the paths that are not read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstructionPlace<'a> {
    /// Root of the repository, without symbolic links in its path.
    pub(crate) root: &'a Path,
    /// Working directory, to which relative globs belong.
    pub(crate) cwd: &'a Path,
    /// Paths that deny rules of the user keep from `read_file`.
    pub(crate) denied: &'a PathGlobs,
}

impl InstructionPlace<'_> {
    fn denies(&self, path: &Path) -> bool {
        self.denied.covers(path, path.strip_prefix(self.cwd).unwrap_or(path))
    }
}

/// Size limit in bytes that several files share: `left` is what remains of `max`.
struct Space {
    left: usize,
    max: usize,
}

impl Instructions {
    /// Reads the instruction files of `folders`, which are below the root, in this order, up to 16
    /// KiB together. Skips a folder whose instruction file is `touched` itself. Notices report
    /// skipped or truncated files.
    pub(crate) fn in_folders(
        place: InstructionPlace<'_>,
        folders: &[PathBuf],
        touched: &Path,
    ) -> Instructions {
        let mut instructions = Instructions::default();
        let mut space = Space { left: NESTED_BYTES_MAX, max: NESTED_BYTES_MAX };
        for folder in folders {
            instructions.folder(place, folder, Some(touched), &mut space);
        }
        instructions
    }

    /// Reads the file `user`, if it exists, and the instruction files of the folders from the
    /// repository's root `root` down to `cwd`, up to 32 KiB together. `root` and `cwd` contain no
    /// symbolic links; without a repository, `root` is `cwd`. At most the 64 folders closest to
    /// `cwd` are read. Files that `denied` covers are skipped, and reported.
    pub fn read(user: &Path, root: &Path, cwd: &Path, denied: &PathGlobs) -> Instructions {
        let place = InstructionPlace { root, cwd, denied };
        let mut instructions = Instructions::default();
        let mut space = Space { left: BYTES_MAX, max: BYTES_MAX };
        instructions.add(user, None, &printable(&user.display().to_string()), &mut space);
        let folders = cwd.ancestors().take_while(|folder| folder.starts_with(root));
        let folders: Vec<&Path> = folders.take(FOLDERS_MAX).collect();
        for folder in folders.into_iter().rev() {
            instructions.folder(place, folder, None, &mut space);
        }
        instructions
    }

    /// Adds the first instruction file of a folder, unless it is `touched`.
    fn folder(
        &mut self,
        place: InstructionPlace<'_>,
        folder: &Path,
        touched: Option<&Path>,
        space: &mut Space,
    ) {
        for name in NAMES {
            let path = folder.join(name);
            if touched == Some(path.as_path()) {
                return;
            }
            let shown = path.strip_prefix(place.root).unwrap_or(&path).display().to_string();
            if self.add(&path, Some(place), &printable(&shown), space) {
                return;
            }
        }
    }

    /// Adds a file. Returns true if it exists, even if it was skipped.
    fn add(
        &mut self,
        path: &Path,
        within: Option<InstructionPlace<'_>>,
        source: &str,
        space: &mut Space,
    ) -> bool {
        if path.symlink_metadata().is_err() {
            return false;
        }
        let is_denied = |path: &Path| within.is_some_and(|place| place.denies(path));
        let root = within.map(|place| (place.root, "repository"));
        let bytes = match folder::read_file(path, root, space.left, is_denied) {
            Ok(bytes) => bytes,
            Err(why) => {
                self.notices.push(format!("{source}: skipped, {why}"));
                return true;
            }
        };
        if space.left == 0 && !bytes.is_empty() {
            let max = space.max;
            self.notices
                .push(format!("{source}: skipped, the files before it use all {max} bytes"));
            return true;
        }
        let cut = bytes.len() > space.left;
        let Some(text) = text(&bytes, space.left) else {
            self.notices.push(format!("{source}: skipped, it is not UTF-8 text"));
            return true;
        };
        if cut {
            self.notices.push(format!(
                "{source}: cut after {} bytes; all that are read together may have {}",
                text.len(),
                space.max
            ));
        }
        // Nothing is read after a truncation: the beginning of a sentence is useless.
        space.left = if cut { 0 } else { space.left.saturating_sub(text.len()) };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
        if let Some(found) = hidden(&text) {
            self.notices.push(format!("{source}: hidden characters, shown as escapes: {found}"));
        }
        if !text.trim().is_empty() {
            let text = printable_lines(&text);
            self.blocks.push(Instruction { source: source.replace('"', "'"), text });
        }
        true
    }
}

/// Text of at most `limit` bytes, without a partial character at the end. `None`: it is not UTF-8,
/// or contains a NUL character.
fn text(bytes: &[u8], limit: usize) -> Option<&str> {
    let cut = bytes.len() > limit;
    let bytes = &bytes[..bytes.len().min(limit)];
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // Only the end may be incomplete, and only if the text was truncated.
        Err(error) if cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then_some(text)
}

/// Positions of characters that hide or reorder text, as line and column: `2:5 U+202E, …`. After
/// the first five, only the number of further ones. `None`: there are none.
pub(super) fn hidden(text: &str) -> Option<String> {
    let mut positions = Vec::new();
    let mut count = 0;
    for (line, content) in text.lines().enumerate() {
        let mut before = ' ';
        for (column, c) in content.chars().enumerate() {
            // Joined emoji are legitimate.
            let joins = c == '\u{200d}' && before >= '\u{2190}';
            if is_hidden(c) && !joins {
                count += 1;
                if positions.len() < POSITIONS_MAX {
                    positions.push(format!("{}:{} U+{:04X}", line + 1, column + 1, u32::from(c)));
                }
            }
            before = c;
        }
    }
    if count > positions.len() {
        positions.push(format!("{} more", count - positions.len()));
    }
    (count > 0).then(|| positions.join(", "))
}

fn is_hidden(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{3164}' | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}')
}
