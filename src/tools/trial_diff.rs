//! Text of the changes of a trial: lines that name changes, and the diff of their content. For
//! programs, a list of the changes and a patch.

mod patch;

use std::fmt::Write as _;
use std::path::Path;

use posse_base::count;
use posse_base::failure::{printable, printable_lines};
use posse_sandbox::{
    ChangeKind, FileKind, FileState, ProcessOutcome, TrialChange, TrialChanges, TrialContent,
    TriedCommand,
};

use patch::patch_of;
pub use patch::{TrialPatch, list, patch};

/// Size in bytes of the text from which on changes are only named.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// Maximum number of changes that the text names.
const NAMES_MAX: usize = 2000;

/// Maximum size in bytes of a file whose content is compared line by line.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Changes that have a line of their own, besides their diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// All changes: a text that is cut still names them all.
    All,
    /// Those that the diff does not show, or not completely.
    NotInDiff,
}

/// Formats the changes of a trial: lines that name changes, and then the diffs of those that have
/// one, in the format of `git diff`. Paths are relative to `base` if they are below it. Control
/// characters are escaped; values that look like secrets are not redacted. Reads files, which blocks.
pub fn text(tried: &TriedCommand, base: &Path, named: Named) -> String {
    let contents = |change: &TrialChange| tried.contents(change, FILE_BYTES_MAX);
    describe(&tried.changes, base, named, contents)
}

/// Note about the output of a command in a trial that names the error `EXDEV`: it may fail in a trial
/// only. `None` for other output. The exit code does not matter, since a later command of the line may
/// have succeeded.
pub fn rename_note(outcome: &ProcessOutcome) -> Option<&'static str> {
    let says = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).to_lowercase();
        text.contains("cross-device") || text.contains("exdev")
    };
    (says(&outcome.output.head) || says(&outcome.output.tail)).then_some(
        "a trial cannot rename a folder that existed before (EXDEV, \"Invalid cross-device link\"), so \
         this fails in a trial only; without one the command can do it",
    )
}

/// Counts of a list of changes, such as `2 modified, 1 deleted`.
pub fn counts(changes: &[TrialChange]) -> String {
    let kinds = [ChangeKind::Added, ChangeKind::Modified, ChangeKind::Deleted, ChangeKind::Mode];
    let counted = kinds.into_iter().filter_map(|kind| {
        let many = changes.iter().filter(|change| change.kind == kind).count();
        let word = if kind == ChangeKind::Mode { "with other permissions" } else { kind.word() };
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

fn describe(
    found: &TrialChanges,
    base: &Path,
    named: Named,
    contents: impl Fn(&TrialChange) -> [TrialContent; 2],
) -> String {
    let (mut lines, mut diffs) = (String::new(), String::new());
    let shown = &found.changes[..found.changes.len().min(NAMES_MAX)];
    for change in shown {
        let name = shown_path(change, base);
        let is_full = lines.len() + diffs.len() >= TEXT_BYTES_MAX;
        let content =
            if is_full { ShownContent::None } else { content(change, base, &contents(change)) };
        let is_named = named == Named::All || !content.is_complete(change);
        let mut line = if is_named { heading(change, &name) } else { String::new() };
        // Writing to a string cannot fail.
        let _ = match content {
            ShownContent::None => Ok(()),
            ShownContent::Diff(diff) => write!(diffs, "{diff}"),
            ShownContent::Sizes(sizes) if named == Named::All => {
                writeln!(diffs, "binary or large: {name}: {sizes}")
            }
            ShownContent::Sizes(sizes) => write!(line, " (binary or large: {sizes})"),
        };
        if is_named {
            let _ = writeln!(lines, "{line}");
        }
    }
    if found.changes.len() > NAMES_MAX {
        let more = count(found.changes.len() - NAMES_MAX, "more change", "more changes");
        let _ = writeln!(lines, "[{more} not shown]");
    }
    if !found.is_complete {
        lines.push_str("[there are more changes than are read; they cannot be kept]\n");
    }
    lines + &diffs
}

/// Content of a change for a person.
enum ShownContent {
    /// There is none, or no space for it.
    None,
    /// Diff in the format of git.
    Diff(String),
    /// Sizes of a file whose content is not shown.
    Sizes(String),
}

impl ShownContent {
    /// True if it shows everything that [`heading`] says about `change`.
    fn is_complete(&self, change: &TrialChange) -> bool {
        let is_diff = matches!(self, ShownContent::Diff(_));
        is_diff && !change.is_stale && patch::shows_permissions(change)
    }
}

fn content(change: &TrialChange, base: &Path, contents: &[TrialContent; 2]) -> ShownContent {
    match patch_of(change, base, contents) {
        Ok((diff, _)) => ShownContent::Diff(printable_lines(&diff)),
        Err(patch::NotInDiff::Binary | patch::NotInDiff::Large) => {
            ShownContent::Sizes(sizes(change))
        }
        Err(_) => ShownContent::None,
    }
}

/// Line about one change.
fn heading(change: &TrialChange, name: &str) -> String {
    let mut line = format!("{:<8} {name}", change.kind.word());
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

/// Sizes of a file whose content is not shown.
fn sizes(change: &TrialChange) -> String {
    let size = |state: Option<FileState>| {
        state.map_or("no file".to_owned(), |state| format!("{} bytes", state.size))
    };
    format!("{} before, {} after", size(change.before), size(change.after))
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
            change(ChangeKind::Modified, "a\u{1b}b", [file(0o644, 4), file(0o600, 4)]),
            change(ChangeKind::Modified, "pic", [file(0o644, 9), file(0o644, 12)]),
            change(ChangeKind::Mode, "tool", [file(0o644, 9), file(0o755, 9)]),
            change(ChangeKind::Added, "l", [None, link]),
            change(ChangeKind::Modified, "m", [link, file(0o644, 2)]),
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
        let text = describe(&found, Path::new("/w"), Named::All, contents);
        insta::assert_snapshot!(text);
        let text = describe(&found, Path::new("/w"), Named::NotInDiff, contents);
        insta::assert_snapshot!(text);
        assert_eq!(
            counts(&found.changes),
            "4 added, 3 modified, 1 deleted, 1 with other permissions"
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
        let text = describe(&found, Path::new("/"), Named::All, contents);
        assert!(text.len() < TEXT_BYTES_MAX + (64 << 10) + NAMES_MAX * 40, "{}", text.len());
        assert!(text.contains("w/f1999\n") && !text.contains("w/f2000"));
        assert!(text.contains(
            "[5 more changes not shown]\n[there are more changes than are read; they cannot be kept]\n"
        ));
    }
}
