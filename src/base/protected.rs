//! Table of protected file names: files that configure or trigger later code execution, or instruct
//! agents (git, shells, editors, agents, CI). Used by the policy, which judges calls, and by the
//! sandbox, which guards commands.
//!
//! A name is included if a program acts on it without being told to: git, a shell, an editor, an
//! agent, a pipeline. Files that have to be invoked, such as makefiles and build scripts, are
//! ordinary work. `.gitattributes` is not included: it can only select settings of the git
//! configuration, which is protected.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;

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

/// Names that are protected in every folder, in lower case, sorted for binary search; each with its
/// class, and the programs that read it.
const NAMES: [(&str, Class, &str); 337] = [
    ("$irbrc", Start, "irb"),
    (".agent", Authority, "agents: project folder"),
    (".agents", Authority, "agents: project folder"),
    (".aiassistant", Instructions, "JetBrains AI Assistant"),
    (".aider.conf.yml", Authority, "aider"),
    (".aider.model.settings.yml", Authority, "aider"),
    (".amazonq", Authority, "Amazon Q"),
    (".amp", Authority, "Amp"),
    (".appveyor.yml", Pipeline, "AppVeyor"),
    (".arcconfig", Pipeline, "Arcanist"),
    (".augment", Authority, "Augment"),
    (".augment-guidelines", Instructions, "Augment"),
    (".autoenv.zsh", Start, "autoenv"),
    (".autoenv_leave.zsh", Start, "autoenv"),
    (".bash_aliases", Start, "bash"),
    (".bash_completion", Start, "bash-completion"),
    (".bash_login", Start, "bash"),
    (".bash_logout", Start, "bash"),
    (".bash_profile", Start, "bash"),
    (".bashrc", Start, "bash"),
    (".bazeliskrc", Start, "Bazelisk"),
    (".bazelversion", Start, "Bazelisk"),
    (".bsp", Editor, "Metals and other build servers"),
    (".build.yml", Pipeline, "SourceHut builds"),
    (".buildkite", Pipeline, "Buildkite"),
    (".builds", Pipeline, "SourceHut builds"),
    (".bunfig.toml", Pipeline, "Bun"),
    (".byebugrc", Start, "Ruby debuggers"),
    (".circleci", Pipeline, "CircleCI"),
    (".cirrus.star", Pipeline, "Cirrus CI"),
    (".cirrus.yml", Pipeline, "Cirrus CI"),
    (".claude", Authority, "Claude Code"),
    (".claude.json", Authority, "Claude Code"),
    (".cline", Authority, "Cline"),
    (".clinerules", Instructions, "Cline"),
    (".codebuddy", Authority, "CodeBuddy"),
    (".codesandbox", Editor, "CodeSandbox"),
    (".codex", Authority, "codex"),
    (".continue", Authority, "Continue"),
    (".continuerc.json", Authority, "Continue"),
    (".copilot", Authority, "GitHub Copilot CLI"),
    (".corepack.env", Pipeline, "Corepack"),
    (".crush", Authority, "Crush"),
    (".crush.json", Authority, "Crush"),
    (".cshrc", Start, "csh"),
    (".ctags", Start, "Universal Ctags"),
    (".ctags.d", Start, "Universal Ctags"),
    (".curlrc", Start, "curl"),
    (".cursor", Authority, "Cursor"),
    (".cursorrules", Instructions, "Cursor"),
    (".devcontainer", Editor, "dev containers"),
    (".devcontainer.json", Editor, "dev containers"),
    (".devenv", Start, "devenv, sourced by an allowed .envrc"),
    (".devfile.yaml", Pipeline, "devfile tools"),
    (".dir-locals-2.el", Editor, "Emacs"),
    (".dir-locals.el", Editor, "Emacs"),
    (".direnv", Start, "nix-direnv, sourced by an allowed .envrc"),
    (".direnvrc", Start, "direnv"),
    (".drone.jsonnet", Pipeline, "Drone CI"),
    (".drone.star", Pipeline, "Drone CI"),
    (".drone.yml", Pipeline, "Drone CI"),
    (".emacs", Editor, "Emacs"),
    (".emacs.d", Editor, "Emacs"),
    (".env.leave", Start, "autoenv"),
    (".envrc", Start, "direnv"),
    (".envrc.local", Start, "direnv"),
    (".envrc.private", Start, "direnv"),
    (".exrc", Editor, "vi"),
    (".externaltoolbuilders", Editor, "Eclipse"),
    (".factory", Authority, "Factory"),
    (".factorypath", Editor, "Eclipse"),
    (".flake8", Editor, "Flake8, and editors that run it"),
    (".fleet", Editor, "JetBrains Fleet"),
    (".fslckout", Git, "Fossil"),
    (".gdbearlyinit", Start, "gdb"),
    (".gdbinit", Start, "gdb"),
    (".gemini", Authority, "Gemini CLI"),
    (".gh-dash.yml", Start, "gh-dash"),
    (".ghci", Start, "GHCi"),
    (".git", Git, "git"),
    (".git-hooks", Pipeline, "Overcommit"),
    (".gitconfig", Git, "git"),
    (".githooks", Pipeline, "git, if core.hooksPath names it"),
    (".gitlab-ci.yaml", Pipeline, "GitLab CI"),
    (".gitlab-ci.yml", Pipeline, "GitLab CI"),
    (".gitlint", Pipeline, "gitlint"),
    (".gitmodules", Git, "git"),
    (".gitpod.yml", Editor, "Gitpod"),
    (".go-version", Start, "goenv"),
    (".goose", Authority, "goose"),
    (".goosehints", Instructions, "goose"),
    (".grok", Authority, "Grok CLI"),
    (".gutctags", Editor, "Vim with Gutentags"),
    (".gvimrc", Editor, "Vim"),
    (".helix", Editor, "Helix"),
    (".hgrc", Git, "Mercurial"),
    (".husky", Pipeline, "husky"),
    (".idea", Editor, "JetBrains IDEs"),
    (".idx", Editor, "Firebase Studio"),
    (".iex.exs", Start, "IEx"),
    (".iflow", Authority, "iFlow CLI"),
    (".inputrc", Start, "readline"),
    (".irbrc", Start, "irb"),
    (".java-version", Start, "jenv"),
    (".jedi", Editor, "Jedi, and editors that use it"),
    (".junie", Authority, "Junie"),
    (".jvmopts", Start, "Java tools"),
    (".kilocode", Authority, "Kilo Code"),
    (".kilocodemodes", Instructions, "Kilo Code"),
    (".kiro", Authority, "Kiro"),
    (".kshrc", Start, "ksh"),
    (".lapce", Editor, "Lapce"),
    (".latexmkrc", Start, "latexmk"),
    (".lazy.lua", Editor, "lazy.nvim"),
    (".lazygit.yml", Start, "lazygit"),
    (".lefthook", Pipeline, "lefthook"),
    (".lefthook-local.json", Pipeline, "lefthook"),
    (".lefthook-local.toml", Pipeline, "lefthook"),
    (".lefthook-local.yaml", Pipeline, "lefthook"),
    (".lefthook-local.yml", Pipeline, "lefthook"),
    (".lefthook.json", Pipeline, "lefthook"),
    (".lefthook.toml", Pipeline, "lefthook"),
    (".lefthook.yaml", Pipeline, "lefthook"),
    (".lefthook.yml", Pipeline, "lefthook"),
    (".lessfilter", Start, "lesspipe"),
    (".lesskey", Start, "less"),
    (".lfsconfig", Git, "Git LFS"),
    (".lintr", Editor, "lintr, and editors that run it"),
    (".lldbinit", Start, "lldb"),
    (".local.vimrc", Editor, "Vim with a local-vimrc plugin"),
    (".login", Start, "csh"),
    (".logout", Start, "csh"),
    (".luarc.json", Editor, "lua-language-server"),
    (".luarc.jsonc", Editor, "lua-language-server"),
    (".lvimrc", Editor, "Vim with a local-vimrc plugin"),
    (".mcp.json", Authority, "agents: MCP servers"),
    (".merlin", Editor, "Merlin"),
    (".mise", Start, "mise"),
    (".mise.local.toml", Start, "mise"),
    (".mise.toml", Start, "mise"),
    (".mkshrc", Start, "ksh"),
    (".mypy.ini", Editor, "mypy, and editors that run it"),
    (".nano-staged.json", Pipeline, "nano-staged"),
    (".neoconf.json", Editor, "Neovim with neoconf"),
    (".nlsp-settings", Editor, "Neovim with neoconf"),
    (".node-version", Start, "fnm, nodenv"),
    (".nova", Editor, "Nova"),
    (".npm-init.js", Pipeline, "npm"),
    (".npmrc", Pipeline, "npm"),
    (".nvim.lua", Editor, "Neovim"),
    (".nvimrc", Editor, "Neovim"),
    (".nvmrc", Start, "nvm, fnm"),
    (".obsidian", Editor, "Obsidian: plugins"),
    (".ocamlinit", Start, "OCaml"),
    (".octaverc", Start, "Octave"),
    (".onedev-buildspec.yml", Pipeline, "OneDev"),
    (".opencode", Authority, "opencode"),
    (".openhands", Authority, "OpenHands"),
    (".openhands_instructions", Instructions, "OpenHands"),
    (".opentofu-version", Start, "tofuenv"),
    (".overcommit.yml", Pipeline, "Overcommit"),
    (".p4config", Git, "Perforce"),
    (".pam_environment", Start, "PAM"),
    (".pdbrc", Start, "pdb"),
    (".pdm-python", Start, "PDM"),
    (".perl-version", Start, "plenv"),
    (".perldb", Start, "Perl debugger"),
    (".php-version", Start, "phpenv"),
    (".phpbrewrc", Start, "phpbrew"),
    (".pi", Authority, "pi"),
    (".pnpmfile.cjs", Pipeline, "pnpm"),
    (".pnpmfile.mjs", Pipeline, "pnpm"),
    (".posse", Authority, "posse"),
    (".pre-commit-config.yaml", Pipeline, "pre-commit"),
    (".pre-commit-config.yml", Pipeline, "pre-commit"),
    (".profile", Start, "login shells"),
    (".prototools", Start, "proto"),
    (".pryrc", Start, "Pry"),
    (".psqlrc", Start, "psql"),
    (".psysh.php", Start, "PsySH"),
    (".pylintrc", Editor, "Pylint, and editors that run it"),
    (".pylintrc.toml", Editor, "Pylint, and editors that run it"),
    (".python-version", Start, "uv, pyenv"),
    (".python-versions", Start, "uv"),
    (".qoder", Authority, "Qoder"),
    (".qwen", Authority, "Qwen Code"),
    (".rbenv-vars", Start, "rbenv-vars"),
    (".rdata", Start, "R"),
    (".rdbgrc", Start, "Ruby debuggers"),
    (".readthedocs.yaml", Pipeline, "Read the Docs"),
    (".readthedocs.yml", Pipeline, "Read the Docs"),
    (".renviron", Start, "R"),
    (".replit", Editor, "Replit"),
    (".repo", Git, "repo of Android"),
    (".reviewboardrc", Start, "RBTools"),
    (".roo", Authority, "Roo Code"),
    (".roomodes", Instructions, "Roo Code"),
    (".roorules", Instructions, "Roo Code"),
    (".rovodev", Authority, "Rovo Dev"),
    (".rprofile", Start, "R"),
    (".rtx.toml", Start, "mise"),
    (".rubocop.yml", Editor, "RuboCop, and editors that run it"),
    (".ruby-lsp", Editor, "Ruby LSP"),
    (".ruby-version", Start, "rbenv"),
    (".rules", Instructions, "Zed"),
    (".rust-analyzer.toml", Editor, "rust-analyzer"),
    (".rusty-hook.toml", Pipeline, "rusty-hook"),
    (".rvmrc", Start, "RVM"),
    (".sbtopts", Start, "Java tools"),
    (".screenrc", Start, "screen"),
    (".sdkmanrc", Start, "SDKMAN"),
    (".semaphore", Pipeline, "Semaphore"),
    (".shadowenv.d", Start, "shadowenv"),
    (".solargraph.yml", Editor, "Solargraph"),
    (".sqliterc", Start, "sqlite3"),
    (".standard.yml", Editor, "Standard, and editors that run it"),
    (".tclshrc", Start, "tclsh"),
    (".tcshrc", Start, "tcsh"),
    (".teamcity", Pipeline, "TeamCity"),
    (".tekton", Pipeline, "Tekton"),
    (".terraform-version", Start, "tfenv"),
    (".theia", Editor, "Theia"),
    (".tmux.conf", Start, "tmux"),
    (".tool-versions", Start, "asdf and mise"),
    (".trae", Authority, "Trae"),
    (".travis.yml", Pipeline, "Travis CI"),
    (".trunk", Pipeline, "Trunk"),
    (".vibe", Authority, "Mistral Vibe"),
    (".vim", Editor, "Vim"),
    (".vimrc", Editor, "Vim"),
    (".vimrc.local", Editor, "Vim with a local-vimrc plugin"),
    (".vs", Editor, "Visual Studio"),
    (".vscode", Editor, "VS Code"),
    (".wgetrc", Start, "wget"),
    (".windsurf", Authority, "Windsurf"),
    (".windsurfrules", Instructions, "Windsurf"),
    (".woodpecker", Pipeline, "Woodpecker CI"),
    (".woodpecker.yaml", Pipeline, "Woodpecker CI"),
    (".woodpecker.yml", Pipeline, "Woodpecker CI"),
    (".xinitrc", Start, "X sessions"),
    (".xprofile", Start, "X sessions"),
    (".xsession", Start, "X sessions"),
    (".xsessionrc", Start, "X sessions"),
    (".yarnrc", Pipeline, "Yarn"),
    (".yarnrc.yml", Pipeline, "Yarn"),
    (".ycm_extra_conf.py", Editor, "YouCompleteMe"),
    (".zed", Editor, "Zed"),
    (".zlogin", Start, "zsh"),
    (".zlogout", Start, "zsh"),
    (".zprofile", Start, "zsh"),
    (".zshenv", Start, "zsh"),
    (".zshrc", Start, "zsh"),
    (".zuul.d", Pipeline, "Zuul"),
    (".zuul.yaml", Pipeline, "Zuul"),
    ("_fossil_", Git, "Fossil"),
    ("_irbrc", Start, "irb"),
    ("_opam", Start, "opam, in its shell hook"),
    ("agent.md", Instructions, "agents: project folder"),
    ("agents.local.md", Instructions, "most agents"),
    ("agents.md", Instructions, "most agents"),
    ("agents.override.md", Instructions, "most agents"),
    ("ansible.cfg", Start, "Ansible"),
    ("appveyor.yml", Pipeline, "AppVeyor"),
    ("azure-pipelines.yaml", Pipeline, "Azure Pipelines"),
    ("azure-pipelines.yml", Pipeline, "Azure Pipelines"),
    ("bitbucket-pipelines.yml", Pipeline, "Bitbucket Pipelines"),
    ("buildkite.yml", Pipeline, "Buildkite"),
    ("buildspec.yml", Pipeline, "AWS CodeBuild"),
    ("bunfig.toml", Pipeline, "Bun"),
    ("captainhook.config.json", Pipeline, "CaptainHook"),
    ("captainhook.json", Pipeline, "CaptainHook"),
    ("claude.local.md", Instructions, "Claude Code"),
    ("claude.md", Instructions, "Claude Code"),
    ("cloudbuild.yaml", Pipeline, "Cloud Build"),
    ("cloudbuild.yml", Pipeline, "Cloud Build"),
    ("codebuff.json", Authority, "Codebuff"),
    ("codex.md", Instructions, "codex"),
    ("crush.json", Authority, "Crush"),
    ("crush.md", Instructions, "Crush"),
    ("devcontainer.json", Editor, "dev containers"),
    ("devfile.yaml", Pipeline, "devfile tools"),
    ("gemini.local.md", Instructions, "Gemini CLI"),
    ("gemini.md", Instructions, "Gemini CLI"),
    ("git~1", Git, "git"),
    ("global.json", Start, ".NET"),
    ("gptme.toml", Authority, "gptme"),
    ("grok.md", Instructions, "Grok CLI"),
    ("grumphp.yaml", Pipeline, "GrumPHP"),
    ("grumphp.yaml.dist", Pipeline, "GrumPHP"),
    ("grumphp.yml", Pipeline, "GrumPHP"),
    ("grumphp.yml.dist", Pipeline, "GrumPHP"),
    ("gtags.conf", Start, "GNU Global"),
    ("hie.yaml", Editor, "haskell-language-server"),
    ("hk.local.pkl", Pipeline, "hk"),
    ("hk.pkl", Pipeline, "hk"),
    ("iflow.md", Instructions, "iFlow CLI"),
    ("irb.rc", Start, "irb"),
    ("jenkinsfile", Pipeline, "Jenkins"),
    ("kls-classpath", Editor, "Kotlin language server"),
    ("knowledge.md", Instructions, "Codebuff"),
    ("kotlinlspclasspath.sh", Editor, "Kotlin language server"),
    ("latexmkrc", Start, "latexmk"),
    ("launchagents", Start, "launchd"),
    ("lefthook-local.json", Pipeline, "lefthook"),
    ("lefthook-local.toml", Pipeline, "lefthook"),
    ("lefthook-local.yaml", Pipeline, "lefthook"),
    ("lefthook-local.yml", Pipeline, "lefthook"),
    ("lefthook.json", Pipeline, "lefthook"),
    ("lefthook.toml", Pipeline, "lefthook"),
    ("lefthook.yaml", Pipeline, "lefthook"),
    ("lefthook.yml", Pipeline, "lefthook"),
    ("lsp.json", Editor, "GitHub Copilot CLI"),
    ("mise.local.toml", Start, "mise"),
    ("mise.toml", Start, "mise"),
    ("mypy.ini", Editor, "mypy, and editors that run it"),
    ("nuget.config", Pipeline, "NuGet"),
    ("opencode.json", Authority, "opencode"),
    ("opencode.jsonc", Authority, "opencode"),
    ("opencode.md", Instructions, "opencode"),
    ("pnpm-workspace.yaml", Pipeline, "pnpm"),
    ("posse.md", Instructions, "posse"),
    ("prek.toml", Pipeline, "prek"),
    ("pylintrc", Editor, "Pylint, and editors that run it"),
    ("pylintrc.toml", Editor, "Pylint, and editors that run it"),
    ("qwen.md", Instructions, "Qwen Code"),
    ("rust-analyzer.toml", Editor, "rust-analyzer"),
    ("rust-project.json", Editor, "rust-analyzer"),
    ("rust-toolchain", Start, "rustup"),
    ("rust-toolchain.toml", Start, "rustup"),
    ("sitecustomize.py", Start, "Python with its folder in PYTHONPATH"),
    ("skill.md", Instructions, "agents: skills"),
    ("startup.m", Start, "MATLAB, Octave"),
    ("usercustomize.py", Start, "Python with its folder in PYTHONPATH"),
    ("uv.toml", Pipeline, "uv"),
    ("warp.md", Instructions, "Warp"),
    ("zuul.d", Pipeline, "Zuul"),
    ("zuul.yaml", Pipeline, "Zuul"),
];

/// Names that are protected only directly in a folder of a certain name: name of the folder,
/// protected name, class, and the programs that read it.
const PAIRS: [(&str, &str, Class, &str); 67] = [
    (".bundle", "config", Pipeline, "Bundler"),
    (".cargo", "config", Pipeline, "Cargo"),
    (".cargo", "config.toml", Pipeline, "Cargo"),
    (".cargo", "env", Start, "shells that source it for Cargo"),
    (".chef", "config.rb", Start, "Chef"),
    (".chef", "knife.rb", Start, "Chef"),
    (".config", "autostart", Start, "desktop sessions"),
    (".config", "direnv", Start, "direnv"),
    (".config", "emacs", Editor, "Emacs"),
    (".config", "environment.d", Start, "systemd"),
    (".config", "fish", Start, "fish"),
    (".config", "gdb", Start, "gdb"),
    (".config", "git", Git, "git"),
    (".config", "helix", Editor, "Helix"),
    (".config", "hg", Git, "Mercurial"),
    (".config", "mise", Start, "mise"),
    (".config", "nushell", Start, "Nushell"),
    (".config", "nvim", Editor, "Neovim"),
    (".config", "starship.toml", Start, "Starship"),
    (".config", "systemd", Start, "systemd"),
    (".config", "tmux", Start, "tmux"),
    (".config", "vim", Editor, "Vim"),
    (".config", "zsh", Start, "zsh"),
    (".docker", "cli-plugins", Start, "Docker"),
    (".forgejo", "workflows", Pipeline, "Forgejo"),
    (".git", "lazygit.yml", Git, "lazygit"),
    (".gitea", "workflows", Pipeline, "Gitea"),
    (".github", "actions", Pipeline, "GitHub Actions"),
    (".github", "agents", Authority, "GitHub Copilot"),
    (".github", "chatmodes", Instructions, "GitHub Copilot"),
    (".github", "copilot", Authority, "GitHub Copilot"),
    (".github", "copilot-instructions.md", Instructions, "GitHub Copilot"),
    (".github", "extensions", Authority, "GitHub Copilot"),
    (".github", "hooks", Authority, "GitHub Copilot"),
    (".github", "instructions", Instructions, "GitHub Copilot"),
    (".github", "prompts", Instructions, "GitHub Copilot"),
    (".github", "workflows", Pipeline, "GitHub Actions"),
    (".gitlab", "duo", Authority, "GitLab Duo"),
    (".hg", "hgrc", Git, "Mercurial"),
    (".hg", "hgrc-not-shared", Git, "Mercurial"),
    (".hg", "journal.backupfiles", Git, "Mercurial"),
    (".hg", "sharedpath", Git, "Mercurial"),
    (".hg", "undo.backupfiles", Git, "Mercurial"),
    (".lsp", "config.edn", Editor, "clojure-lsp"),
    (".mvn", "extensions.xml", Start, "Maven"),
    (".mvn", "jvm.config", Start, "Maven"),
    (".mvn", "maven.config", Start, "Maven"),
    (".pijul", "config", Git, "Pijul"),
    (".sl", "config", Git, "Sapling"),
    (".sl", "sharedpath", Git, "Sapling"),
    (".sourcekit-lsp", "config.json", Editor, "sourcekit-lsp"),
    (".volta", "hooks.json", Start, "Volta"),
    (".yarn", "plugins", Pipeline, "Yarn"),
    (".yarn", "releases", Pipeline, "Yarn"),
    ("bin", "activate-hermit", Start, "Hermit"),
    ("cvs", "root", Git, "CVS"),
    ("fish", "conf.d", Start, "fish"),
    ("fish", "config.fish", Start, "fish"),
    ("mise", "conf.d", Start, "mise"),
    ("mise", "config.local.toml", Start, "mise"),
    ("mise", "config.toml", Start, "mise"),
    ("prefs", "defaults", Git, "darcs"),
    ("sl", "config", Git, "Sapling in a git repository"),
    ("sl", "sharedpath", Git, "Sapling in a git repository"),
    ("store", "journal.backupfiles", Git, "Mercurial"),
    ("store", "undo.backupfiles", Git, "Mercurial"),
    ("tools", "bazel", Start, "Bazelisk"),
];

/// Names that are protected in every folder, by beginning and ending; each with its class, and the
/// programs that read it.
const PATTERNS: [(&str, &str, Class, &str); 10] = [
    ("", ".code-workspace", Editor, "VS Code"),
    ("", ".run.xml", Editor, "JetBrains IDEs"),
    ("", ".sublime-project", Editor, "Sublime Text"),
    (".clinerules-", "", Instructions, "Roo Code"),
    (".huskyrc", "", Pipeline, "husky 4"),
    (".lintstagedrc", "", Pipeline, "lint-staged"),
    (".mise.", ".toml", Start, "mise"),
    (".roorules-", "", Instructions, "Roo Code"),
    ("lint-staged.config.", "", Pipeline, "lint-staged"),
    ("mise.", ".toml", Start, "mise"),
];

/// Settings of direnv and mise, which may load `.env` files: paths below the folder of the project.
pub const ENVIRONMENT_LOADERS: [&str; 12] = [
    ".envrc",
    ".mise.toml",
    ".mise.local.toml",
    ".mise/config.toml",
    ".config/mise.toml",
    ".config/mise/config.toml",
    "mise.toml",
    "mise.local.toml",
    "mise/config.toml",
    ".config/mise/conf.d",
    ".mise/conf.d",
    "mise/conf.d",
];

/// True if `name`, in the form of [`fold`], is `.env` or a variant such as `.env.local`, but not an
/// example.
pub fn is_environment_file(name: &[u8]) -> bool {
    let examples = crate::secrets::EXAMPLES;
    let is_variant = name.strip_prefix(b".env").is_some_and(|rest| matches!(rest, [] | [b'.', ..]));
    is_variant && !examples.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

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
    is_protected_below("", relative)
}

/// True if any component of `relative`, a path relative to the folder `root`, has a protected name,
/// or the name of `root` itself is protected. The folders above `root` do not count: a work tree may
/// be in a protected folder.
pub fn is_protected_in(root: &Path, relative: &str) -> bool {
    let name = root.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_root = relative.split('/').all(|part| matches!(part, "" | "."));
    (!is_root && class_of_folder(root).is_some()) || is_protected_below(name, relative)
}

/// Class of the name of `folder`, an absolute path, if everything in such a folder is protected.
/// `None` if the name is not protected, for a `.git`, in which only certain files are protected, and
/// for names of files that a project may have as well, such as `rust-toolchain`.
pub fn class_of_folder(folder: &Path) -> Option<Class> {
    let name = folder.file_name()?.as_encoded_bytes();
    let above = folder.parent().and_then(Path::file_name).unwrap_or_default().as_encoded_bytes();
    let is_folder = name.starts_with(b".")
        || above.starts_with(b".")
        || matches!(&*fold(name), b"launchagents" | b"conf.d");
    class_of(above, name).filter(|_| is_folder && !is_dot_git(name))
}

fn is_protected_below(root: &str, relative: &str) -> bool {
    let mut above = root;
    relative.split('/').filter(|part| !part.is_empty()).any(|part| {
        let folder = std::mem::replace(&mut above, part);
        class_of(folder.as_bytes(), part.as_bytes()).is_some()
    })
}

/// Returns the class of `name` in a folder called `above`, comparing both in the form of [`fold`].
/// `None` if the name is not protected there.
pub fn class_of(above: &[u8], name: &[u8]) -> Option<Class> {
    let name = fold(name);
    if let Ok(at) = NAMES.binary_search_by(|(known, ..)| known.as_bytes().cmp(&name)) {
        return Some(NAMES[at].1);
    }
    let mut patterns = PATTERNS.iter();
    let pattern = patterns.find(|(beginning, ending, ..)| {
        let rest = name.strip_prefix(beginning.as_bytes());
        rest.is_some_and(|rest| rest.ends_with(ending.as_bytes()))
    });
    if let Some((_, _, class, _)) = pattern {
        return Some(*class);
    }
    let mut candidates =
        PAIRS.iter().filter(|(_, known, ..)| known.as_bytes() == &*name).peekable();
    candidates.peek()?;
    let above = fold(above);
    candidates.find(|(folder, ..)| folder.as_bytes() == &*above).map(|(_, _, class, _)| *class)
}

/// Returns the names, with their classes, that are protected only in a folder called `above`, which
/// must be in the form of [`fold`].
pub fn names_in(above: &[u8]) -> impl Iterator<Item = (&'static str, Class)> + use<'_> {
    let pairs = PAIRS.iter().filter(move |(folder, ..)| folder.as_bytes() == above);
    pairs.map(|(_, name, class, _)| (*name, *class))
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

/// A protected name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedName {
    /// Name of the folder in which it is protected. `None`: in every folder.
    pub above: Option<&'static str>,
    /// Name in lower case. A `*`, at most one, stands for any text.
    pub name: String,
    /// Reason why it is protected.
    pub class: Class,
    /// Programs that read it.
    pub readers: &'static str,
}

/// Returns all protected names.
pub fn all_names() -> impl Iterator<Item = ProtectedName> {
    let row = |above, name: String, class, readers| ProtectedName { above, name, class, readers };
    let names =
        NAMES.iter().map(move |(name, class, by)| row(None, (*name).to_owned(), *class, by));
    let pairs = PAIRS
        .iter()
        .map(move |(above, name, class, by)| row(Some(above), (*name).to_owned(), *class, by));
    let patterns = PATTERNS
        .iter()
        .map(move |(begin, end, class, by)| row(None, format!("{begin}*{end}"), *class, by));
    names.chain(pairs).chain(patterns)
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
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn table_is_sorted_and_lower_case() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        let folded = |name: &str| fold(name.as_bytes()) == name.as_bytes();
        assert!(NAMES.iter().all(|(name, ..)| folded(name)));
        assert!(PAIRS.iter().all(|(above, name, ..)| folded(above) && folded(name)));
        let lower = |text: &str| text.to_ascii_lowercase() == text;
        assert!(PATTERNS.iter().all(|(begin, end, ..)| lower(begin) && lower(end)));
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
        for path in protected {
            assert!(is_protected(path), "{path}");
        }
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
        for path in open {
            assert!(!is_protected(path), "{path}");
        }
    }

    #[test]
    fn name_of_the_root_counts() {
        for (root, path, expected) in [
            ("/home/u/.github", "workflows/ci.yml", true),
            ("/home/u/.github", "CODEOWNERS", false),
            ("/home/u/.config", "systemd/user/x.service", true),
            ("/home/u/.cargo", "config.toml", true),
            ("/home/u/.claude", "settings.json", true),
            ("/home/u/.config/git", "config", true),
            ("/home/u/.claude", ".", false),
            ("/home/u/.claude/worktrees/a", "src/main.rs", false),
            ("/home/u/w", "config.toml", false),
            ("/home/u/w/.git", "description", false),
            ("/home/u/.config/fish/conf.d", "x.fish", true),
            ("/home/u/rust-toolchain", "src/main.rs", false),
            ("/home/u/tools/bazel", "src/main.cc", false),
            ("/", "src", false),
        ] {
            assert_eq!(is_protected_in(Path::new(root), path), expected, "{root} {path}");
        }
    }

    #[test]
    fn protects_names_by_pattern_and_folder() {
        let protected = [
            ".direnv/flake-profile.rc",
            ".roorules-code",
            "mise.production.toml",
            ".vim/coc-settings.json",
            "tools/bazel",
            ".huskyrc.json",
        ];
        for path in protected {
            assert!(is_protected(path), "{path}");
        }
        for path in ["mise.md", "src/bazel", "maven.config", "docs/.lintstaged.md"] {
            assert!(!is_protected(path), "{path}");
        }
    }

    #[test]
    fn guide_lists_every_name() {
        let title = |class| match class {
            Git => "Version control",
            Authority => "Authority of agents",
            Instructions => "Instructions of agents",
            Start => "Shells, tools and sessions at their start",
            Editor => "Editors",
            Pipeline => "Pipelines, hooks, package managers and build tools",
        };
        let mut text = String::new();
        for class in [Git, Authority, Instructions, Start, Editor, Pipeline] {
            let mut readers: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for name in all_names().filter(|name| name.class == class) {
                let above = name.above.map(|above| format!("{above}/")).unwrap_or_default();
                let names = readers.entry(name.readers.to_owned()).or_default();
                names.push(format!("`{above}{}`", name.name));
            }
            text.extend(["## ", title(class), "\n\n| read by | names |\n|---|---|\n"]);
            for (reader, names) in readers {
                text.extend(["| ", &reader, " | ", &names.join(", "), " |\n"]);
            }
            text.push('\n');
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/protected-files.md");
        let guide = std::fs::read_to_string(path).unwrap();
        let mark = "<!-- from src/base/protected.rs -->\n\n";
        let (head, _) = guide.split_once(mark).unwrap();
        let expected = format!("{head}{mark}{}\n", text.trim_end());
        if std::env::var_os("POSSE_WRITE_GUIDE").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert_eq!(
            written, expected,
            "POSSE_WRITE_GUIDE=1 cargo test -p posse-base protected writes it"
        );
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
