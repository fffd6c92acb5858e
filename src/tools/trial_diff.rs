//! Text of the changes of a trial: one line for each change, and the unified diff of text files.

use std::fmt::Write as _;
use std::path::Path;

use posse_base::count;
use posse_base::failure::{printable, printable_lines};
use posse_sandbox::{
    ChangeKind, FileKind, FileState, TrialChange, TrialChanges, TrialContent, TriedCommand,
};

use crate::diff::unified;
use crate::text::is_binary;

/// Size in bytes of the text from which on changes are only named.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// Maximum number of changes that the text names.
const NAMES_MAX: usize = 2000;

/// Maximum size in bytes of a file whose content is compared line by line.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Formats the changes of a trial. Paths are relative to `base` if they are below it. Control
/// characters are escaped; values that look like secrets are not redacted. Reads files, which blocks.
pub fn text(tried: &TriedCommand, base: &Path) -> String {
    let contents = |change: &TrialChange| tried.contents(change, FILE_BYTES_MAX);
    describe(&tried.changes, base, contents)
}

/// Counts of a list of changes, such as `2 changed, 1 deleted`.
pub fn counts(changes: &[TrialChange]) -> String {
    let kinds = [
        (ChangeKind::Added, "added"),
        (ChangeKind::Changed, "changed"),
        (ChangeKind::Deleted, "deleted"),
        (ChangeKind::Mode, "with other permissions"),
    ];
    let counted = kinds.into_iter().filter_map(|(kind, word)| {
        let many = changes.iter().filter(|change| change.kind == kind).count();
        (many > 0).then(|| format!("{many} {word}"))
    });
    let counted: Vec<String> = counted.collect();
    if counted.is_empty() { "no file is changed".to_owned() } else { counted.join(", ") }
}

/// Path of a change as text for a person: relative to `base` if it is below it.
pub fn shown_path(change: &TrialChange, base: &Path) -> String {
    let path = change.absolute();
    printable(&path.strip_prefix(base).unwrap_or(&path).display().to_string())
}

/// Lines that name all changes, without their content. `None` if there are too many.
pub fn names(changes: &[TrialChange], base: &Path) -> Option<String> {
    let lines = || changes.iter().map(|change| heading(change, &shown_path(change, base)) + "\n");
    (changes.len() <= NAMES_MAX).then(|| lines().collect())
}

/// Names all changes, and then shows the content of those that have one. So a long content hides no
/// change.
fn describe(
    found: &TrialChanges,
    base: &Path,
    contents: impl Fn(&TrialChange) -> [TrialContent; 2],
) -> String {
    let shown = &found.changes[..found.changes.len().min(NAMES_MAX)];
    let mut text = names(shown, base).unwrap_or_default();
    let is_single = shown.len() == 1;
    if found.changes.len() > NAMES_MAX {
        let more = count(found.changes.len() - NAMES_MAX, "more change", "more changes");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[{more} not shown]");
    }
    if !found.is_complete {
        text.push_str("[there are more changes than are read; they cannot be kept]\n");
    }
    for change in shown {
        if text.len() >= TEXT_BYTES_MAX {
            break;
        }
        let name = shown_path(change, base);
        let body = body(change, &name, &contents(change));
        // A unified diff names its file.
        if !body.is_empty() && !is_single && !body.starts_with("--- ") {
            let _ = write!(text, "\n{}\n", heading(change, &name));
        }
        text.push_str(&body);
    }
    text
}

/// Line about one change.
fn heading(change: &TrialChange, name: &str) -> String {
    let word = match change.kind {
        ChangeKind::Added => "added",
        ChangeKind::Changed => "changed",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Mode => "mode",
    };
    let mut line = format!("{word:<8} {name}");
    if change.after.or(change.before).is_some_and(|state| state.kind == FileKind::Folder) {
        line.push('/');
    }
    match (change.before, change.after) {
        (Some(before), Some(after))
            if before.mode != after.mode && is_no_link(&[before, after]) =>
        {
            let _ = write!(line, " (mode {:03o} to {:03o})", before.mode, after.mode);
        }
        (None, Some(after)) if after.kind == FileKind::File && after.mode & 0o111 != 0 => {
            let _ = write!(line, " (mode {:03o})", after.mode);
        }
        (_, Some(after)) if after.kind == FileKind::Special => line.push_str(" (no regular file)"),
        _ => {}
    }
    if change.is_stale {
        line.push_str(" (also changed by another program meanwhile)");
    }
    line
}

fn is_no_link(states: &[FileState]) -> bool {
    states.iter().all(|state| state.kind != FileKind::Link)
}

/// Lines about the content of a change.
fn body(change: &TrialChange, name: &str, contents: &[TrialContent; 2]) -> String {
    let kind_of = |state: Option<FileState>| state.map(|state| state.kind);
    let (before, after) = (kind_of(change.before), kind_of(change.after));
    let is_kind = |kind| [before, after].contains(&Some(kind));
    if change.kind == ChangeKind::Mode || is_kind(FileKind::Folder) || is_kind(FileKind::Special) {
        return String::new();
    }
    let is_link = |kind| kind == Some(FileKind::Link);
    if is_link(before) || is_link(after) {
        return link_lines(contents, (is_link(before), is_link(after)));
    }
    match contents {
        [TrialContent::Unknown, _] | [_, TrialContent::Unknown] => sizes(change),
        [old, new] => {
            let (old, new) = (bytes(old), bytes(new));
            if [old, new].into_iter().flatten().any(is_binary) {
                return sizes(change);
            }
            let mut text = unified(name, old, new.unwrap_or_default()).text;
            if new.is_none() {
                // The header is the first place with this text.
                text = text.replacen(&format!("+++ b/{name}\n"), "+++ /dev/null\n", 1);
            }
            printable_lines(&text)
        }
    }
}

fn bytes(content: &TrialContent) -> Option<&[u8]> {
    match content {
        TrialContent::Bytes(bytes) => Some(bytes),
        TrialContent::Absent | TrialContent::Unknown => None,
    }
}

/// Targets of links before and after a change.
fn link_lines(contents: &[TrialContent; 2], (was_link, is_link): (bool, bool)) -> String {
    let mut text = String::new();
    for (sign, content, is_link) in [('-', &contents[0], was_link), ('+', &contents[1], is_link)] {
        match content {
            TrialContent::Absent => {}
            TrialContent::Bytes(target) if is_link => {
                let target = printable(&String::from_utf8_lossy(target));
                let _ = writeln!(text, "{sign}link to {target}");
            }
            _ => {
                let _ = writeln!(text, "{sign}another kind of file");
            }
        }
    }
    text
}

/// Sizes of a file whose content is not shown.
fn sizes(change: &TrialChange) -> String {
    let size = |state: Option<FileState>| {
        state.map_or("no file".to_owned(), |state| format!("{} bytes", state.size))
    };
    format!("binary or large: {} before, {} after\n", size(change.before), size(change.after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: ChangeKind, path: &str, states: [Option<FileState>; 2]) -> TrialChange {
        let [before, after] = states;
        TrialChange::new(kind, (Path::new("/w"), Path::new(path)), before, after)
    }

    #[test]
    fn changes_are_described_with_their_content() {
        let file = |mode, size| Some(FileState::new(FileKind::File, mode, size));
        let link = Some(FileState::new(FileKind::Link, 0o777, 3));
        let folder = Some(FileState::new(FileKind::Folder, 0o755, 0));
        let changes = vec![
            change(ChangeKind::Deleted, "gone", [file(0o644, 4), None]),
            change(ChangeKind::Added, "d", [None, folder]),
            change(ChangeKind::Added, "d/run.sh", [None, file(0o755, 4)]),
            change(ChangeKind::Changed, "a\u{1b}b", [file(0o644, 4), file(0o600, 4)]),
            change(ChangeKind::Changed, "pic", [file(0o644, 9), file(0o644, 12)]),
            change(ChangeKind::Mode, "tool", [file(0o644, 9), file(0o755, 9)]),
            change(ChangeKind::Added, "l", [None, link]),
            change(ChangeKind::Changed, "m", [link, file(0o644, 2)]),
            change(
                ChangeKind::Added,
                "pipe",
                [None, Some(FileState::new(FileKind::Special, 0o644, 0))],
            ),
        ];
        let bytes = |text: &[u8]| TrialContent::Bytes(text.to_vec());
        let contents = |change: &TrialChange| {
            let (old, new): (&[u8], &[u8]) = match change.path.to_str().unwrap() {
                "pic" => (b"\0old", b"\0new"),
                "l" | "m" => (b"../x", b"../x"),
                "pipe" => return [TrialContent::Absent, TrialContent::Unknown],
                _ => (b"old\n", b"new\x1b[2J\n"),
            };
            let of = |state: Option<FileState>, text| match state {
                Some(_) => bytes(text),
                None => TrialContent::Absent,
            };
            [of(change.before, old), of(change.after, new)]
        };
        let found = TrialChanges { changes, is_complete: true };
        let text = describe(&found, Path::new("/w"), contents);
        insta::assert_snapshot!(text);
        assert_eq!(
            counts(&found.changes),
            "4 added, 3 changed, 1 deleted, 1 with other permissions"
        );
        assert_eq!(counts(&[]), "no file is changed");
    }

    #[test]
    fn long_lists_are_bounded() {
        let file = Some(FileState::new(FileKind::File, 0o644, 1 << 19));
        let added = |at: usize| change(ChangeKind::Added, &format!("f{at}"), [None, file]);
        let changes = (0..NAMES_MAX + 5).map(added).collect();
        let found = TrialChanges { changes, is_complete: false };
        let line = b"a line of a generated file\n".repeat(1000);
        let contents = |_: &TrialChange| [TrialContent::Absent, TrialContent::Bytes(line.clone())];
        assert_eq!(names(&found.changes, Path::new("/")), None);
        let text = describe(&found, Path::new("/"), contents);
        assert!(text.len() < TEXT_BYTES_MAX + (64 << 10) + NAMES_MAX * 40, "{}", text.len());
        assert!(text.contains("w/f1999\n") && !text.contains("w/f2000"));
        assert!(text.contains(
            "[5 more changes not shown]\n[there are more changes than are read; they cannot be kept]\n"
        ));
    }
}
