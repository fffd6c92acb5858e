//! Table of protected file names: files that configure or trigger later code execution, or instruct
//! agents (git, shells, editors, agents, CI). Used by the policy, which judges calls, and by the
//! sandbox, which guards commands.
//!
//! A name is included if a program acts on it without being told to: git, a shell, an editor, an
//! agent, a pipeline. Files that have to be invoked, such as makefiles and build scripts, are
//! ordinary work. `.gitattributes` is not included: it can only select settings of the git
//! configuration, which is protected.

use std::borrow::Cow;

/// Reason why a name is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Controls git, Mercurial or Sapling.
    Git,
    /// Configures the authority of an agent: trust, permissions, MCP servers, hooks.
    Authority,
    /// Read by agents as instructions.
    Instructions,
    /// Read by a shell, a debugger, another tool or a desktop session when it starts.
    Start,
    /// An editor runs its content.
    Editor,
    /// CI pipelines, git hook managers, package managers or build tools run or obey its content.
    Pipeline,
}

use Class::{Authority, Editor, Git, Instructions, Pipeline, Start};

/// Names that are protected in every folder, in lower case, sorted for binary search.
const NAMES: [(&str, Class); 186] = [
    (".agent", Authority),
    (".agents", Authority),
    (".aider.conf.yml", Authority),
    (".amazonq", Authority),
    (".amp", Authority),
    (".appveyor.yml", Pipeline),
    (".augment", Authority),
    (".augment-guidelines", Instructions),
    (".bash_aliases", Start),
    (".bash_login", Start),
    (".bash_logout", Start),
    (".bash_profile", Start),
    (".bashrc", Start),
    (".bsp", Editor),
    (".build.yml", Pipeline),
    (".buildkite", Pipeline),
    (".builds", Pipeline),
    (".circleci", Pipeline),
    (".cirrus.star", Pipeline),
    (".cirrus.yml", Pipeline),
    (".claude", Authority),
    (".claude.json", Authority),
    (".clinerules", Instructions),
    (".codesandbox", Editor),
    (".codex", Authority),
    (".continue", Authority),
    (".continuerc.json", Authority),
    (".crush", Authority),
    (".crush.json", Authority),
    (".cshrc", Start),
    (".cursor", Authority),
    (".cursorrules", Instructions),
    (".devcontainer", Editor),
    (".devcontainer.json", Editor),
    (".dir-locals-2.el", Editor),
    (".dir-locals.el", Editor),
    (".drone.jsonnet", Pipeline),
    (".drone.star", Pipeline),
    (".drone.yml", Pipeline),
    (".envrc", Start),
    (".envrc.local", Start),
    (".envrc.private", Start),
    (".exrc", Editor),
    (".factory", Authority),
    (".fleet", Editor),
    (".gdbinit", Start),
    (".gemini", Authority),
    (".ghci", Start),
    (".git", Git),
    (".gitconfig", Git),
    (".githooks", Pipeline),
    (".gitlab-ci.yaml", Pipeline),
    (".gitlab-ci.yml", Pipeline),
    (".gitmodules", Git),
    (".gitpod.yml", Editor),
    (".goose", Authority),
    (".goosehints", Instructions),
    (".helix", Editor),
    (".husky", Pipeline),
    (".idea", Editor),
    (".idx", Editor),
    (".iex.exs", Start),
    (".inputrc", Start),
    (".irbrc", Start),
    (".junie", Authority),
    (".kilocode", Authority),
    (".kiro", Authority),
    (".kshrc", Start),
    (".lefthook", Pipeline),
    (".lefthook-local.json", Pipeline),
    (".lefthook-local.toml", Pipeline),
    (".lefthook-local.yaml", Pipeline),
    (".lefthook-local.yml", Pipeline),
    (".lefthook.json", Pipeline),
    (".lefthook.toml", Pipeline),
    (".lefthook.yaml", Pipeline),
    (".lefthook.yml", Pipeline),
    (".lldbinit", Start),
    (".login", Start),
    (".logout", Start),
    (".lvimrc", Editor),
    (".mcp.json", Authority),
    (".mise", Start),
    (".mise.local.toml", Start),
    (".mise.toml", Start),
    (".mkshrc", Start),
    (".nova", Editor),
    (".npmrc", Pipeline),
    (".nvim.lua", Editor),
    (".nvimrc", Editor),
    (".ocamlinit", Start),
    (".octaverc", Start),
    (".opencode", Authority),
    (".openhands", Authority),
    (".overcommit.yml", Pipeline),
    (".pam_environment", Start),
    (".pdbrc", Start),
    (".pnpmfile.cjs", Pipeline),
    (".posse", Authority),
    (".pre-commit-config.yaml", Pipeline),
    (".pre-commit-config.yml", Pipeline),
    (".profile", Start),
    (".pryrc", Start),
    (".qwen", Authority),
    (".renviron", Start),
    (".roo", Authority),
    (".roorules", Instructions),
    (".rprofile", Start),
    (".rules", Instructions),
    (".rusty-hook.toml", Pipeline),
    (".screenrc", Start),
    (".semaphore", Pipeline),
    (".tcshrc", Start),
    (".teamcity", Pipeline),
    (".tekton", Pipeline),
    (".theia", Editor),
    (".tmux.conf", Start),
    (".tool-versions", Start),
    (".trae", Authority),
    (".travis.yml", Pipeline),
    (".vimrc", Editor),
    (".vs", Editor),
    (".vscode", Editor),
    (".windsurf", Authority),
    (".windsurfrules", Instructions),
    (".woodpecker", Pipeline),
    (".woodpecker.yaml", Pipeline),
    (".woodpecker.yml", Pipeline),
    (".xinitrc", Start),
    (".xprofile", Start),
    (".xsession", Start),
    (".xsessionrc", Start),
    (".yarnrc", Pipeline),
    (".yarnrc.yml", Pipeline),
    (".zed", Editor),
    (".zlogin", Start),
    (".zlogout", Start),
    (".zprofile", Start),
    (".zshenv", Start),
    (".zshrc", Start),
    ("agent.md", Instructions),
    ("agents.local.md", Instructions),
    ("agents.md", Instructions),
    ("agents.override.md", Instructions),
    ("appveyor.yml", Pipeline),
    ("azure-pipelines.yaml", Pipeline),
    ("azure-pipelines.yml", Pipeline),
    ("bitbucket-pipelines.yml", Pipeline),
    ("buildspec.yml", Pipeline),
    ("captainhook.json", Pipeline),
    ("claude.local.md", Instructions),
    ("claude.md", Instructions),
    ("cloudbuild.yaml", Pipeline),
    ("cloudbuild.yml", Pipeline),
    ("codex.md", Instructions),
    ("crush.json", Authority),
    ("crush.md", Instructions),
    ("devcontainer.json", Editor),
    ("gemini.local.md", Instructions),
    ("gemini.md", Instructions),
    ("git~1", Git),
    ("gptme.toml", Authority),
    ("grumphp.yml", Pipeline),
    ("hk.pkl", Pipeline),
    ("jenkinsfile", Pipeline),
    ("launchagents", Start),
    ("lefthook-local.json", Pipeline),
    ("lefthook-local.toml", Pipeline),
    ("lefthook-local.yaml", Pipeline),
    ("lefthook-local.yml", Pipeline),
    ("lefthook.json", Pipeline),
    ("lefthook.toml", Pipeline),
    ("lefthook.yaml", Pipeline),
    ("lefthook.yml", Pipeline),
    ("mise.local.toml", Start),
    ("mise.toml", Start),
    ("opencode.json", Authority),
    ("opencode.jsonc", Authority),
    ("opencode.md", Instructions),
    ("posse.md", Instructions),
    ("prek.toml", Pipeline),
    ("qwen.md", Instructions),
    ("rust-toolchain", Start),
    ("rust-toolchain.toml", Start),
    ("skill.md", Instructions),
    ("warp.md", Instructions),
];

/// Names that are protected only directly in a folder of a certain name: name of the folder,
/// protected name, and class.
const PAIRS: [(&str, &str, Class); 26] = [
    (".bundle", "config", Pipeline),
    (".cargo", "config", Pipeline),
    (".cargo", "config.toml", Pipeline),
    (".config", "autostart", Start),
    (".config", "fish", Start),
    (".config", "git", Git),
    (".config", "mise", Start),
    (".config", "nushell", Start),
    (".config", "systemd", Start),
    (".forgejo", "workflows", Pipeline),
    (".gitea", "workflows", Pipeline),
    (".github", "actions", Pipeline),
    (".github", "agents", Authority),
    (".github", "chatmodes", Instructions),
    (".github", "copilot-instructions.md", Instructions),
    (".github", "hooks", Authority),
    (".github", "instructions", Instructions),
    (".github", "prompts", Instructions),
    (".github", "workflows", Pipeline),
    (".hg", "hgrc", Git),
    (".hg", "hgrc-not-shared", Git),
    (".hg", "sharedpath", Git),
    (".sl", "config", Git),
    ("fish", "conf.d", Start),
    ("fish", "config.fish", Start),
    ("mise", "config.toml", Start),
];

/// Suffixes of files that an editor executes when it opens them.
const ENDINGS: [(&str, Class); 2] = [(".code-workspace", Editor), (".sublime-project", Editor)];

/// Folders that package managers and build tools fill. There the sandbox protects only
/// repositories, `.git`, `.posse` and `.agents`, unless a link in an ordinary folder leads there.
const VENDORED: [&str; 9] = [
    "node_modules",
    "bower_components",
    "site-packages",
    "dist-packages",
    ".venv",
    "venv",
    ".tox",
    "vendor",
    "target",
];

/// True if any component of `relative`, a path relative to a workspace root, has a protected name.
pub fn is_protected(relative: &str) -> bool {
    let mut above = "";
    relative.split('/').filter(|part| !part.is_empty()).any(|part| {
        let folder = std::mem::replace(&mut above, part);
        class_of(folder.as_bytes(), part.as_bytes()).is_some()
    })
}

/// Returns the class of `name` in a folder called `above`, comparing both in the form of [`fold`].
/// `None` if the name is not protected there.
pub fn class_of(above: &[u8], name: &[u8]) -> Option<Class> {
    let name = fold(name);
    if let Ok(at) = NAMES.binary_search_by(|(known, _)| known.as_bytes().cmp(&name)) {
        return Some(NAMES[at].1);
    }
    let ending = |&&(ending, _): &&(&str, Class)| name.ends_with(ending.as_bytes());
    if let Some((_, class)) = ENDINGS.iter().find(ending) {
        return Some(*class);
    }
    let mut candidates = PAIRS.iter().filter(|(_, known, _)| known.as_bytes() == &*name).peekable();
    candidates.peek()?;
    let above = fold(above);
    candidates.find(|(folder, ..)| folder.as_bytes() == &*above).map(|(.., class)| *class)
}

/// Returns the names, with their classes, that are protected only in a folder called `above`, which
/// must be in the form of [`fold`].
pub fn names_in(above: &[u8]) -> impl Iterator<Item = (&'static str, Class)> + use<'_> {
    let pairs = PAIRS.iter().filter(move |(folder, ..)| folder.as_bytes() == above);
    pairs.map(|(_, name, class)| (*name, *class))
}

/// True for `.git` in any spelling that a file system may treat as equal, such as `.GIT` or
/// `git~1`.
pub fn is_dot_git(name: &[u8]) -> bool {
    matches!(&*fold(name), b".git" | b"git~1")
}

/// True if git accepts a folder as a repository: it contains `head`, and either `commondir` or both
/// `objects` and `refs`. `has` tells if the folder contains a name, given in lower case.
pub fn is_repository(has: impl Fn(&str) -> bool) -> bool {
    has("head") && ((has("objects") && has("refs")) || has("commondir"))
}

/// True if `name` is exactly, with case, that of a folder that package managers or build tools fill
/// (`VENDORED`).
pub fn is_vendored(name: &[u8]) -> bool {
    VENDORED.iter().any(|known| known.as_bytes() == name)
}

/// Returns all protected names in lower case, each with the folder in which it is protected;
/// `None`: in every folder. A name that begins with `*` is a suffix.
pub fn all_names() -> impl Iterator<Item = (Option<&'static str>, String)> {
    let names = NAMES.iter().map(|(name, _)| (None, (*name).to_owned()));
    let pairs = PAIRS.iter().map(|(above, name, _)| (Some(*above), (*name).to_owned()));
    let endings = ENDINGS.iter().map(|(ending, _)| (None, format!("*{ending}")));
    names.chain(pairs).chain(endings)
}

/// Converts `name` to a canonical form that is equal for names which a file system may treat as
/// equal: ASCII letters, and others that fold to them, become lower case; ignored characters, a
/// suffix from `:` on (an NTFS stream), and dots and spaces at the end are removed.
pub fn fold(name: &[u8]) -> Cow<'_, [u8]> {
    let plain = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase() && byte != b':';
    let ends_plainly = !matches!(name.last(), Some(b'.' | b' '));
    if ends_plainly && name.iter().all(|&byte| plain(byte)) {
        return Cow::Borrowed(name);
    }
    let mut folded = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            fold_into(letter, &mut folded);
        }
        folded.extend_from_slice(chunk.invalid());
    }
    // `name:stream` and `name. ` are `name` on NTFS.
    if let Some(at) = folded.iter().position(|&byte| byte == b':') {
        folded.truncate(at);
    }
    while folded.len() > 1 && matches!(folded.last(), Some(b'.' | b' ')) {
        folded.pop();
    }
    Cow::Owned(folded)
}

/// Appends the canonical form of `letter` to `folded`. A letter outside ASCII is only converted if
/// it folds to ASCII letters or is ignored.
fn fold_into(letter: char, folded: &mut Vec<u8>) {
    let ascii: &[u8] = match letter {
        '\u{17f}' => b"s",
        '\u{212a}' => b"k",
        '\u{df}' | '\u{1e9e}' => b"ss",
        '\u{fb05}' | '\u{fb06}' => b"st",
        '\u{fb00}' => b"ff",
        '\u{fb01}' => b"fi",
        '\u{fb02}' => b"fl",
        '\u{fb03}' => b"ffi",
        '\u{fb04}' => b"ffl",
        ignored if is_ignored(ignored) => b"",
        other => {
            let mut bytes = [0; 4];
            let text = other.to_ascii_lowercase().encode_utf8(&mut bytes).len();
            folded.extend_from_slice(&bytes[..text]);
            return;
        }
    };
    folded.extend_from_slice(ascii);
}

/// True for characters that case-insensitive file systems ignore in comparisons.
fn is_ignored(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_lower_case() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        let folded = |name: &str| fold(name.as_bytes()) == name.as_bytes();
        assert!(NAMES.iter().all(|(name, _)| folded(name)));
        assert!(PAIRS.iter().all(|(above, name, _)| folded(above) && folded(name)));
    }

    #[test]
    fn protects_files_that_configure_or_trigger_execution() {
        let protected = [
            ".git/hooks/pre-commit",
            "AGENTS.md",
            "deep/er/claude.md",
            ".envrc",
            ".vscode/tasks.json",
            ".github/workflows/ci.yml",
            "sub/.GitHub/Workflows/ci.yml",
            ".gitlab-ci.yml",
            ".husky/pre-push",
            ".bashrc",
            ".cargo/config.toml",
            ".mcp.json",
            ".npmrc",
            "packages/a/.npmrc",
            ".yarnrc",
            ".Yarnrc.yml",
            ".pnpmfile.cjs",
            ".Claude/settings.json",
            "a/b.code-workspace",
            ".config/fish/config.fish",
            "GEMINI.md",
            ".claude/settings.json",
            ".idea/runConfigurations/a.xml",
            ".gitmodules",
            ".github/workflows",
            ".pre-commit-config.yaml",
            "home/.profile",
            ".zshrc",
            "crate/.cargo/config",
            "rust-toolchain.toml",
            ".envrc.local",
            "lefthook-local.yml",
            ".tool-versions",
            ".hg/sharedpath",
        ];
        let open = [
            "src/main.rs",
            ".github/CODEOWNERS",
            "workflows/ci.yml",
            "docs/AGENTS.md.txt",
            "agents/README.md",
            "Cargo.toml",
            "config.toml",
            "npmrc",
            "package.json",
            "pnpm-workspace.yaml",
            ".cargo/audit.toml",
            ".gitignore",
            ".gitattributes",
            "profile",
            "fish/shop.rs",
            ".",
            "",
            ".github/docs/workflows.md",
            "bashrc",
        ];
        for path in protected {
            assert!(is_protected(path), "{path}");
        }
        for path in open {
            assert!(!is_protected(path), "{path}");
        }
    }

    #[test]
    fn equivalent_names_match() {
        let twins = [
            ".GIT",
            ".Git",
            ".g\u{200c}it",
            ".git\u{feff}",
            ".git.",
            ".git ",
            ".git::$INDEX_ALLOCATION",
            "GIT~1",
            "AGENTS.MD",
            "AGENT\u{17f}.md",
            ".v\u{17f}code",
            ".hus\u{212a}y",
            ".\u{fb01}sh/../.mcp.json",
        ];
        for name in twins {
            assert!(is_protected(name), "{name}");
        }
        assert_eq!(&*fold("con\u{fb01}g".as_bytes()), b"config");
        assert_eq!(&*fold(b".git\xff"), b".git\xff");
    }
}
