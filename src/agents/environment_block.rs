//! Environment block of the system prompt. The branch of git is read from files, without running a
//! program.

use std::fmt::Write as _;
use std::path::Path;

use posse_base::failure::printable;

use crate::folder;

const NAME_CHARS_MAX: usize = 200;

/// Content of the environment block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentBlock {
    /// Working directory of the agent.
    pub cwd: String,
    /// Other folders that tools can access.
    pub other_roots: Vec<String>,
    /// Operating system: `linux` or `macos`.
    pub os: String,
    /// Current date without the time, so that the prompt stays the same all day.
    pub date: String,
    /// Shell that runs commands.
    pub shell: String,
    /// Branch of the repository, or the commit if none is checked out. `None`: no repository, or
    /// unreadable.
    pub git_branch: Option<String>,
    /// Description of the sandbox and network access of commands.
    pub sandbox: String,
    /// Name of the agent.
    pub agent: String,
    /// Provider profile that the agent is configured to use. Like the model, it stays the same if
    /// requests switch to a fallback, so that the prompt stays the same.
    pub provider: String,
    /// Model that the agent is configured to use.
    pub model: String,
    /// Names of the tools that the agent sees.
    pub tools: Vec<String>,
}

impl EnvironmentBlock {
    pub(crate) fn write_to(&self, prompt: &mut String) {
        prompt.push_str("<environment>\n");
        let git = match &self.git_branch {
            Some(branch) => format!("repository, on {branch}"),
            None => "not a repository".to_owned(),
        };
        let others = self.other_roots.join(", ");
        let tools = self.tools.join(", ");
        let model = match self.provider.as_str() {
            "" => self.model.clone(),
            provider => format!("{} (provider {provider})", self.model),
        };
        let rows = [
            ("Working directory", self.cwd.as_str()),
            ("Also reachable", &others),
            ("System", &self.os),
            ("Shell", &self.shell),
            ("Git", &git),
            ("Sandbox", &self.sandbox),
            ("Agent", &self.agent),
            ("Model", &model),
            ("Tools", &tools),
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

/// Branch of the repository at `root`, or `commit 1a2b3c4` if HEAD is detached. `None`: no
/// repository, or `HEAD` is unreadable or contains anything else than one name of a branch or one
/// hash. A `.git` file of the repository may lead to any file of the user called `HEAD`.
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
    let head = head.trim_end();
    let named = head.strip_prefix("ref:").map(|name| {
        let name = name.trim();
        name.strip_prefix("refs/heads/").unwrap_or(name)
    });
    if let Some(name) = named {
        return is_branch(name).then(|| printable(name));
    }
    // SHA-1 or SHA-256.
    let is_hash =
        matches!(head.len(), 40 | 64) && head.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| format!("commit {}", &head[..7]))
}

/// True for a name that git accepts for a branch, of at most [`NAME_CHARS_MAX`] characters.
fn is_branch(name: &str) -> bool {
    let is_refused = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    !name.is_empty()
        && name.chars().nth(NAME_CHARS_MAX).is_none()
        && !name.contains(is_refused)
        && !name.contains("..")
}

/// Reads the first 4,096 bytes of a regular file as text. `None`: the file is unreadable, or not
/// UTF-8.
fn read_small(path: &Path) -> Option<String> {
    String::from_utf8(folder::read_file(path, None, 4095, |_| false).ok()?).ok()
}
