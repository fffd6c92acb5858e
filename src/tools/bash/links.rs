//! Resolution of the symbolic links in the paths that a command names.
//!
//! The policy judges text only, so links are resolved before the policy is asked. A link that
//! changes between this resolution and the run of the command is not noticed: the sandbox is the
//! boundary.

mod resolver;

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use globset::GlobBuilder;
use posse_actors::ports::{CommandDeletions, CommandOutput, CommandPath, EarlierName, PathLink};

use crate::workspace::Workspace;

use resolver::{PathResolver, is_missing};

/// Maximum number of folder entries that are read for the patterns of one command.
const ENTRIES_MAX: usize = 4096;
/// Maximum number of levels below a path that patterns may select.
const LEVELS_MAX: usize = 16;

/// Finds the paths that lead through a symbolic link: in `paths`, and among the entries that their
/// patterns may match. The target is `None` if a link leads nowhere or cannot be read. If a pattern
/// may match too many entries or levels, or a folder is unreadable, the result contains the path
/// before the pattern, with a slash at its end and without a target. A path with `usize::MAX` levels is
/// in the result as it is, without a target.
pub fn resolve(paths: &[CommandPath]) -> Vec<PathLink> {
    let mut found = FoundLinks { entries_left: ENTRIES_MAX, ..FoundLinks::default() };
    for named in paths {
        if named.levels == usize::MAX {
            // It stands for too many paths.
            found.push(named.path.clone(), None);
            continue;
        }
        let path = Path::new(&named.path);
        found.add(path);
        if named.levels > 0 && found.scan(path, named.levels).is_none() {
            found.push(format!("{}/", named.path), None);
        }
    }
    found.links
}

/// Links that were found so far.
#[derive(Debug, Default)]
struct FoundLinks {
    links: Vec<PathLink>,
    /// Paths of `links`.
    paths: HashSet<String>,
    resolver: PathResolver,
    /// Number of folder entries that may still be read for patterns.
    entries_left: usize,
}

/// Paths of those `outputs` that are files or symbolic links by now, of the root folder, of folders
/// whose path ends with `/.`, and of those to which a link leads under an earlier name. Of a pattern,
/// the first name that matches; the folder if it has too many names or cannot be read.
fn existing(outputs: impl IntoIterator<Item = CommandOutput>) -> Vec<String> {
    let exists = |path: &str| {
        let found = Path::new(path).symlink_metadata();
        found.is_ok_and(|data| !data.is_dir() || path == "/" || path.ends_with("/."))
    };
    let mut paths: Vec<String> = Vec::new();
    for CommandOutput { path, pattern, unless_folders, earlier } in outputs {
        if let Some(pattern) = pattern {
            paths.extend(matching(Path::new(&path), &pattern).filter(|path| !paths.contains(path)));
            continue;
        }
        let is_found = match &earlier {
            Some(earlier) if leads_through_link(&earlier.path, &path) => true,
            Some(EarlierName { is_copy: true, .. }) => false,
            _ => exists(&path),
        };
        let is_elsewhere = unless_folders.iter().any(|folder| Path::new(folder).is_dir());
        if is_found && !is_elsewhere && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Existing files below the roots of `workspace` that a command with these `outputs` would replace, as
/// far as its words name them, and what a checkpoint may take back: the replacements, and the
/// deletion of `deleted`.
pub fn losses(
    mut outputs: Vec<CommandOutput>,
    deleted: Option<Vec<String>>,
    workspace: &Workspace,
) -> (Vec<String>, CommandDeletions) {
    outputs.retain(|CommandOutput { path, .. }| {
        path == "/" || workspace.roots().any(|root| Path::new(path).starts_with(root))
    });
    let existing = existing(outputs.clone());
    let replaced = if are_known_files(&outputs, &existing) { existing.clone() } else { Vec::new() };
    let deletions = CommandDeletions::of(deleted.unwrap_or_default());
    (existing, CommandDeletions { replaced, ..deletions })
}

/// True if `replaced`, the existing paths of `outputs`, are all files that a command replaces: it names
/// each, none by a pattern or under a name that the command gives, and each is a regular file
/// without another name.
fn are_known_files(outputs: &[CommandOutput], replaced: &[String]) -> bool {
    let is_named = |output: &CommandOutput| output.pattern.is_none() && output.earlier.is_none();
    let is_file = |path: &String| {
        let found = Path::new(path).symlink_metadata();
        found.is_ok_and(|data| data.is_file() && data.nlink() == 1)
    };
    outputs.iter().all(is_named) && replaced.iter().all(is_file)
}

/// The first name in `folder` that matches `pattern`, as a path; `folder` itself if it has too many
/// names or cannot be read. `None` if no name matches.
fn matching(folder: &Path, pattern: &str) -> Option<String> {
    let unknown = || Some(folder.display().to_string());
    let (name, of_folders) =
        pattern.strip_suffix('/').map_or((pattern, false), |name| (name, true));
    let Ok(glob) = GlobBuilder::new(name).backslash_escape(true).build() else { return unknown() };
    let glob = glob.compile_matcher();
    let entries = match folder.read_dir() {
        Ok(entries) => entries,
        Err(error) if is_missing(error.kind()) => return None,
        Err(_) => return unknown(),
    };
    for (at, entry) in entries.enumerate() {
        let Some(entry) = entry.ok().filter(|_| at < ENTRIES_MAX) else { return unknown() };
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder == of_folders && glob.is_match(Path::new(&entry.file_name())) {
            return Some(entry.path().display().to_string());
        }
    }
    None
}

/// True if there is a symbolic link at `from`, at `path`, or between the two. `path` is below `from`.
fn leads_through_link(from: &str, path: &str) -> bool {
    let between = Path::new(path).ancestors().take_while(|above| above.starts_with(from));
    let mut between = between.map(Path::symlink_metadata);
    between.any(|found| found.is_ok_and(|data| data.is_symlink()))
}

impl FoundLinks {
    fn push(&mut self, path: String, target: Option<String>) {
        if self.paths.insert(path.clone()) {
            self.links.push(PathLink { path, target });
        }
    }

    /// Adds `path` with its target if it leads through a symbolic link. The target is `None` if the link
    /// leads nowhere or cannot be read.
    fn add(&mut self, path: &Path) {
        // Links of `/proc` are followed by the policy, which knows the folder of each program.
        let is_of_process = path.starts_with("/proc");
        let target =
            if is_of_process { path.canonicalize().ok() } else { self.resolver.target(path) };
        if target.as_deref() == Some(path) {
            return;
        }
        let text = |path: &Path| path.to_str().map(str::to_owned);
        // The command names paths in UTF-8, so that no other path matches it.
        let Some(name) = text(path) else { return };
        self.push(name, target.as_deref().and_then(text));
    }

    /// Adds the links below `folder`, `levels` deep, also below links to folders. A missing folder counts
    /// as empty. `None` if there are too many entries or levels, or if a folder cannot be read; links
    /// found before that stay.
    fn scan(&mut self, folder: &Path, levels: usize) -> Option<()> {
        if levels > LEVELS_MAX {
            return None;
        }
        let entries = match folder.read_dir() {
            Ok(entries) => entries,
            Err(error) => return is_missing(error.kind()).then_some(()),
        };
        for entry in entries {
            self.entries_left = self.entries_left.checked_sub(1)?;
            let entry = entry.ok()?;
            let kind = entry.file_type().ok()?;
            if kind.is_symlink() {
                self.add(&entry.path());
            }
            let is_folder = kind.is_dir() || (kind.is_symlink() && entry.path().is_dir());
            if levels > 1 && is_folder {
                self.scan(&entry.path(), levels - 1)?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn named(path: &Path, levels: usize) -> CommandPath {
        CommandPath { path: path.display().to_string(), levels }
    }

    #[test]
    fn links_are_resolved_to_what_the_kernel_would_open() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("src/deep")).unwrap();
        fs::create_dir_all(at("outside/folder")).unwrap();
        fs::write(at("src/plain.rs"), "").unwrap();
        symlink(at("outside/folder"), at("src/folder")).unwrap();
        symlink("plain.rs", at("src/second.rs")).unwrap();
        symlink("nowhere", at("src/dangling")).unwrap();
        symlink("loop", at("src/loop")).unwrap();
        symlink("/proc/self/cwd", at("src/own")).unwrap();
        symlink("own", at("src/chain")).unwrap();
        // From any depth, `..` ends at the root folder.
        symlink(format!("{}proc/self/cwd", "../".repeat(40)), at("src/relative")).unwrap();
        symlink("relative/..", at("src/behind")).unwrap();
        symlink("/proc/self/root", at("src/root")).unwrap();
        let target = |name: &str| -> Option<Option<String>> {
            let links = resolve(&[named(&at(name), 0)]);
            assert!(links.len() < 2, "{links:?}");
            let link = links.into_iter().next()?;
            assert_eq!(link.path, at(name).display().to_string());
            Some(link.target)
        };
        let leads = |name: &str| Some(Some(at(name).display().to_string()));
        assert_eq!(target("src/plain.rs"), None);
        assert_eq!(target("src/new/file"), None);
        assert_eq!(target("src/plain.rs/below"), None);
        assert_eq!(target("src/second.rs"), leads("src/plain.rs"));
        assert_eq!(target("src/folder"), leads("outside/folder"));
        assert_eq!(target("src/folder/new/x"), leads("outside/folder/new/x"));
        assert_eq!(target("src/folder/../x"), leads("outside/x"));
        assert_eq!(target("src/dangling"), Some(None));
        assert_eq!(target("src/loop/x"), Some(None));
        assert_eq!(target("src/own/x"), Some(None));
        assert_eq!(target("src/chain"), Some(None));
        assert_eq!(target("src/relative/x"), Some(None));
        assert_eq!(target("src/behind/x"), Some(None));
        assert_eq!(target("src/root/etc"), Some(None));
        assert_eq!(target("src/plain.rs/../x"), Some(None));
        assert_eq!(target("src/none/../x"), Some(None));
        assert_eq!(target("src/none/x"), None);
    }

    #[test]
    fn entries_that_a_pattern_may_match_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("/etc/hostname", root.join("a/b/link")).unwrap();
        symlink("a", root.join("to a")).unwrap();
        let paths = |levels| -> Vec<String> {
            let links = resolve(&[named(&root, levels)]);
            let mut paths: Vec<_> = links.into_iter().map(|link| link.path).collect();
            paths.sort();
            paths
        };
        let at = |name: &str| root.join(name).display().to_string();
        assert_eq!(paths(1), [at("to a")]);
        assert_eq!(paths(2), [at("to a")]);
        assert_eq!(paths(3), [at("a/b/link"), at("to a"), at("to a/b/link")]);
    }

    #[test]
    fn outputs_exist_also_by_an_earlier_name() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name).display().to_string();
        fs::create_dir_all(root.join("tree/folder")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        symlink("../file", root.join("tree/link")).unwrap();
        symlink("/nowhere", root.join("tree/out")).unwrap();
        let output = |path: &str, unless: &[&str], earlier: Option<(&str, bool)>| CommandOutput {
            path: at(path),
            pattern: None,
            unless_folders: unless.iter().map(|path| at(path)).collect(),
            earlier: earlier.map(|(path, is_copy)| EarlierName { path: at(path), is_copy }),
        };
        for (output, expected) in [
            (output("file", &[], None), true),
            (output("new", &[], None), false),
            (output("tree", &[], None), false),
            (output("tree/.", &[], None), true),
            (output("file", &["new"], Some(("file", false))), true),
            (output("file", &["tree"], Some(("file", false))), false),
            (output("file", &[], Some(("file", true))), false),
            (output("tree/link", &[], Some(("tree", true))), true),
            (output("tree/out/new", &[], Some(("tree", true))), true),
            (output("tree/out/new", &[], Some(("tree", false))), true),
            (output("tree/new", &[], Some(("tree", false))), false),
        ] {
            assert_eq!(!existing([output.clone()]).is_empty(), expected, "{output:?}");
        }
    }

    #[test]
    fn outputs_of_a_pattern_exist_if_a_name_matches() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for path in ["lib/a.rs", "lib/[x].c", "lib/sub/b.py"] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), "").unwrap();
        }
        for (folder, pattern, expected) in [
            ("lib", "*.rs", Some("lib/a.rs")),
            ("lib", "?.rs", Some("lib/a.rs")),
            ("lib", "*.py", None),
            ("lib", "\\[x\\].c", Some("lib/[x].c")),
            ("lib", "[", Some("lib")),
            ("lib", "s*", None),
            ("lib", "s*/", Some("lib/sub")),
            ("none", "*", None),
        ] {
            let output = CommandOutput {
                path: root.join(folder).display().to_string(),
                pattern: Some(pattern.to_owned()),
                unless_folders: Vec::new(),
                earlier: None,
            };
            let expected = expected.map(|path| root.join(path).display().to_string());
            assert_eq!(existing([output]), expected.into_iter().collect::<Vec<_>>(), "{pattern}");
        }
    }

    #[test]
    fn large_folders_are_not_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for at in 0..=ENTRIES_MAX {
            fs::write(root.join(at.to_string()), "").unwrap();
        }
        let path = root.display().to_string();
        let unknown = |path: String| PathLink { path, target: None };
        assert_eq!(resolve(&[named(&root, 1)]), [unknown(format!("{path}/"))]);
        assert_eq!(resolve(&[named(&root, usize::MAX)]), [unknown(path)]);
    }

    #[test]
    fn each_name_is_looked_up_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("a", root.join("l")).unwrap();
        let mut resolver = PathResolver::default();
        let depth = root.components().count() - 1;
        for _ in 0..3 {
            for name in ["a/b/x", "l/b/x", "l/b/../b/x", "none/x", "none/y"] {
                resolver.target(&root.join(name));
            }
        }
        // The folders above, `a`, `b`, `x`, the link and its text, and `none`.
        assert_eq!(resolver.lookups, depth + 6);
    }
}
