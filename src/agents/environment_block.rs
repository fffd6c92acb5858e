//! Environment block of the system prompt. Determined from files, without running a program.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::printable;

const NAME_CHARS_MAX: usize = 200;
const ANCESTORS_MAX: usize = 128;

/// Environment of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentBlock {
    /// The working directory.
    pub cwd: String,
    /// Other folders that tools can access.
    pub other_roots: Vec<String>,
    /// `linux`, `macos`.
    pub os: String,
    /// Current date without the time, so that the prompt stays the same all day.
    pub date: String,
    /// The shell that runs commands.
    pub shell: String,
    /// The branch, or the commit if there is none; `None` outside a repository.
    pub git_branch: Option<String>,
    /// Sandbox of commands, in words.
    pub sandbox: String,
}

impl EnvironmentBlock {
    pub(crate) fn write_to(&self, prompt: &mut String) {
        prompt.push_str("<environment>\n");
        let git = self.git_branch.as_deref().map_or_else(
            || "not a repository".to_owned(),
            |branch| format!("repository, on {branch}"),
        );
        let others = self.other_roots.join(", ");
        let rows = [
            ("Working directory", self.cwd.as_str()),
            ("Also reachable", &others),
            ("System", &self.os),
            ("Shell", &self.shell),
            ("Git", &git),
            ("Sandbox", &self.sandbox),
            ("Date", &self.date),
        ];
        for (label, value) in rows {
            if !value.is_empty() {
                // A folder name must not imitate a line of the block.
                let value = printable(value).replace('<', "\\u{3c}");
                // Writing to a string cannot fail.
                let _: std::fmt::Result = writeln!(prompt, "{label}: {value}");
            }
        }
        prompt.push_str("</environment>\n");
    }
}

/// The nearest folder at or above `cwd` that has a `.git`.
pub fn repository_root(cwd: &Path) -> Option<PathBuf> {
    let above = cwd.ancestors().take(ANCESTORS_MAX);
    above
        .into_iter()
        .find(|folder| folder.join(".git").symlink_metadata().is_ok())
        .map(Path::to_owned)
}

/// The branch of the repository at `root`, or `commit 1a2b3c4` if HEAD is detached.
pub fn git_branch(root: &Path) -> Option<String> {
    let dot_git = root.join(".git");
    let folder = if dot_git.is_dir() {
        dot_git
    } else {
        // In a worktree or submodule, `.git` is a file with the path of the folder.
        let pointer = read_small(&dot_git)?;
        root.join(pointer.trim().strip_prefix("gitdir:")?.trim())
    };
    let head = read_small(&folder.join("HEAD"))?;
    let head = head.trim();
    let named = head.strip_prefix("ref:").map(|name| {
        let name = name.trim();
        name.strip_prefix("refs/heads/").unwrap_or(name).to_owned()
    });
    let commit = || {
        let digits = head.len() >= 40 && head.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| format!("commit {}", &head[..7]))
    };
    let name = named.or_else(commit)?;
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    (!name.is_empty()).then(|| printable(&name))
}

/// Text of a regular file of at most a page; opening it never blocks.
fn read_small(path: &Path) -> Option<String> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}
