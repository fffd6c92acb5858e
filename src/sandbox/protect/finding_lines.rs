//! Text of the findings of a check: one line each for a person and for the model, with a bound.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use posse_base::count;
use posse_base::failure::printable;
use posse_base::protected::{self, Class};

use crate::protect::finding::{Finding, ProtectAction, ProtectedChange};

/// Maximum number of files left in place that are reported one by one. The others are counted by
/// folder.
const LEFT_MAX: usize = 50;

/// Maximum number of folders by which the other files left in place are counted.
const LEFT_FOLDERS_MAX: usize = 10;

/// Maximum number of restored and moved files that are reported one by one.
const HANDLED_MAX: usize = 12;

/// Maximum number of paths that are listed of the other restored and moved files.
const NAMED_MAX: usize = 8;

/// Formats changes of protected files. Files that are as the command left them come first, of these
/// the ones that run programs at the least occasion, and each is reported by its path or counted
/// below a folder: a command must not hide one of them behind many others.
pub fn finding_lines(findings: &[Finding]) -> Vec<String> {
    let is_left = |finding: &&Finding| {
        matches!(finding.action, ProtectAction::Left | ProtectAction::Failed(_))
    };
    let (mut left, handled): (Vec<&Finding>, Vec<&Finding>) = findings.iter().partition(is_left);
    left.sort_by_key(|finding| urgency(finding));
    let (shown, rest) = left.split_at(left.len().min(LEFT_MAX));
    let mut lines: Vec<String> = shown.iter().map(|finding| left_line(finding)).collect();
    for (folder, below) in by_folder(rest) {
        if let [single] = &below[..] {
            lines.push(left_line(single));
            continue;
        }
        let files = count(below.len(), "more protected file", "more protected files");
        let folder = printable(&folder.display().to_string());
        lines.push(format!("SBX010 left in place: and {files} below {folder}"));
    }
    let (shown, rest) = handled.split_at(handled.len().min(HANDLED_MAX));
    lines.extend(shown.iter().map(|finding| format!("SBX010 {finding}")));
    if !rest.is_empty() {
        let named = rest.iter().take(NAMED_MAX);
        let named: Vec<String> =
            named.map(|finding| printable(&finding.path.display().to_string())).collect();
        let others = if rest.len() > NAMED_MAX { ", …" } else { "" };
        let files = count(
            rest.len(),
            "more protected file was touched and put right",
            "more protected files were touched and put right",
        );
        lines.push(format!("SBX010 {files}: {}{others}", named.join(", ")));
    }
    lines
}

/// Rank of a file that was left in place; the lowest is reported first: incomplete scans, then what
/// git obeys at each command, what other programs obey, and what only models read.
fn urgency(finding: &Finding) -> u8 {
    if is_of_a_root(finding) {
        return 0;
    }
    let mut above: &[u8] = b"";
    let classes = finding.path.iter().filter_map(|name| {
        let folder = std::mem::replace(&mut above, name.as_bytes());
        protected::class_of(folder, name.as_bytes())
    });
    // A path without a protected name is in a repository of another name, or settings point to it.
    let rank = |class| match class {
        Class::Git => 1,
        Class::Authority | Class::Start | Class::Editor | Class::Pipeline => 2,
        Class::Instructions => 3,
    };
    classes.map(rank).min().unwrap_or(1)
}

/// True if the finding is about the scan of a whole root.
fn is_of_a_root(finding: &Finding) -> bool {
    matches!(finding.what, ProtectedChange::TooMuch | ProtectedChange::KeepsChanging)
}

fn left_line(finding: &Finding) -> String {
    let left = if is_of_a_root(finding) { "" } else { "left in place: " };
    format!("SBX010 {left}{finding}")
}

/// Groups findings by folder: by the deepest folders of which there are at most `LEFT_FOLDERS_MAX`.
fn by_folder<'a>(findings: &[&'a Finding]) -> BTreeMap<PathBuf, Vec<&'a Finding>> {
    let mut groups: BTreeMap<PathBuf, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        let folder = finding.path.parent().unwrap_or(&finding.path).to_owned();
        groups.entry(folder).or_default().push(finding);
    }
    while groups.len() > LEFT_FOLDERS_MAX {
        // All groups of the deepest level move up by one level, which ends at the root.
        let depth = |folder: &Path| folder.components().count();
        let deepest = groups.keys().map(|folder| depth(folder)).max().unwrap_or_default();
        for (folder, below) in std::mem::take(&mut groups) {
            let above = folder.parent().filter(|_| depth(&folder) == deepest);
            groups.entry(above.unwrap_or(&folder).to_owned()).or_default().extend(below);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(path: String, action: ProtectAction) -> Finding {
        Finding::new(path.into(), ProtectedChange::Created, action)
    }

    fn moved(number: usize) -> Finding {
        let path = format!("/w/{number:02}\n/.npmrc");
        finding(path, ProtectAction::MovedAside("/q/1".into()))
    }

    fn left(path: impl Into<String>) -> Finding {
        finding(path.into(), ProtectAction::Left)
    }

    #[test]
    fn summarised_paths_name_the_first() {
        let told = |many: usize| finding_lines(&(0..many).map(moved).collect::<Vec<_>>());
        assert_eq!(told(HANDLED_MAX).len(), HANDLED_MAX);
        let one = told(HANDLED_MAX + 1);
        let last = "SBX010 1 more protected file was touched and put right: /w/12\\n/.npmrc";
        assert_eq!(one.last().map(String::as_str), Some(last));
        let many = told(HANDLED_MAX + NAMED_MAX + 1);
        let last = many.last().unwrap();
        let begin = "SBX010 9 more protected files were touched and put right: /w/12";
        assert!(last.starts_with(begin), "{last}");
        assert!(
            last.contains("/w/19") && !last.contains("/w/20") && last.ends_with(", …"),
            "{last}"
        );
    }

    #[test]
    fn files_left_in_place_come_before_200_decoys() {
        let mut all: Vec<Finding> = (0..200).map(moved).collect();
        all.push(left("/w/z/.git"));
        all.push(finding("/w/z/x".into(), ProtectAction::Failed("no space".into())));
        let lines = finding_lines(&all);
        assert!(lines[0].starts_with("SBX010 left in place: /w/z/.git is protected"), "{lines:?}");
        assert!(lines[1].starts_with("SBX010 left in place: /w/z/x is protected"), "{lines:?}");
        assert!(lines[1].ends_with("no space"), "{lines:?}");
        assert_eq!(lines.len(), 2 + HANDLED_MAX + 1);
    }

    #[test]
    fn settings_of_git_that_were_left_come_before_decoys() {
        let mut all: Vec<Finding> =
            (0..61).map(|nr| left(format!("/w/a{nr:02}/AGENTS.md"))).collect();
        all.extend((0..61).map(|nr| left(format!("/w/a{nr:02}/.vscode"))));
        let paths = ["/w/z/.git/config", "/w/bare/hooks", "/w/z/.git/hooks/pre-commit"];
        all.extend(paths.iter().map(|path| left(*path)));
        all.push(Finding::new("/w".into(), ProtectedChange::TooMuch, ProtectAction::Left));
        let lines = finding_lines(&all);
        assert!(lines[0].starts_with("SBX010 /w has more folders"), "{lines:?}");
        for (line, path) in lines[1..].iter().zip(paths) {
            assert_eq!(*line, left_line(&left(path)));
        }
        assert!(lines[4].contains("/w/a00/.vscode"), "{lines:?}");
    }

    #[test]
    fn each_file_left_in_place_is_named_or_counted_below_a_folder() {
        let mut all: Vec<Finding> = (0..200).map(|nr| left(format!("/w/a/{nr:03}"))).collect();
        all.extend((0..100).map(|nr| left(format!("/w/b/d{nr:03}/.git"))));
        all.push(left("/w/z/.git"));
        let lines = finding_lines(&all);
        assert_eq!(
            lines[LEFT_MAX..],
            [
                "SBX010 left in place: and 150 more protected files below /w/a",
                "SBX010 left in place: and 100 more protected files below /w/b",
                &left_line(&left("/w/z/.git")),
            ]
        );
        let all: Vec<Finding> = (0..200).map(|nr| left(format!("/{nr:03}/a/.git"))).collect();
        let lines = finding_lines(&all);
        assert_eq!(
            lines[LEFT_MAX..],
            ["SBX010 left in place: and 150 more protected files below /"]
        );
    }
}
