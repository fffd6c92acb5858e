//! Pieces of random trees: repositories, pointers, links, control files, moves and removals, each as
//! file operations that a test applies itself or a shell performs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use posse_base::shell_words::quoted as quote;
use proptest::prelude::*;
use proptest::sample::select;

/// Folders in which pieces are put. Some exist in [`user_tree`], in some a scan looks for less.
const FOLDERS: [&str; 33] = [
    "",
    "src",
    "src/deep",
    "src/objects",
    "src/objects/deep",
    "lib",
    "lib/sub",
    "new",
    "new/inner",
    "data/x",
    "vendor",
    "vendor/v",
    "node_modules/n",
    "target/t",
    "docs",
    "linked",
    "linked/sub",
    "store",
    "store/aa",
    ".git",
    ".git/objects",
    ".git/objects/aa",
    ".git/refs/heads",
    ".git/info",
    ".git/modules/m",
    ".git/worktrees/w",
    ".cargo",
    ".github",
    ".vscode",
    ".config",
    "lib/.git",
    "new/.git",
    "src/.git",
];

/// Names of links, and of files and folders that are moved.
const NAMES: [&str; 20] = [
    "l",
    "src",
    "deep",
    "objects",
    "refs",
    "HEAD",
    "config",
    "hooks",
    "commondir",
    "info",
    ".git",
    ".cargo",
    ".github",
    ".vscode",
    ".claude",
    ".mcp.json",
    ".envrc",
    "CLAUDE.md",
    "x",
    "workflows",
];

/// Files that a program reads by their name, below the folder in which it works.
pub(super) const CONTROL_FILES: [&str; 18] = [
    ".mcp.json",
    ".envrc",
    ".npmrc",
    "CLAUDE.md",
    "AGENTS.md",
    ".gitlab-ci.yml",
    ".cargo/config.toml",
    ".cargo/config",
    ".github/workflows/ci.yml",
    ".github/copilot-instructions.md",
    ".vscode/tasks.json",
    ".claude/settings.json",
    ".cursor/mcp.json",
    ".husky/pre-commit",
    ".hg/hgrc",
    ".config/fish/config.fish",
    ".bsp/server.json",
    "app.code-workspace",
];

/// Second parts of control files, which have their meaning from the folder around them.
const SECOND_PARTS: [&str; 5] =
    ["config.toml", "workflows/ci.yml", "tasks.json", "settings.json", "fish/config.fish"];

/// Settings of git that run a program. `%` is the planted value.
const SETTINGS: [&str; 7] = [
    "[core]\n\tfsmonitor = %\n",
    "[core]\n\tbare = false\n[alias]\n\tst = !%\n",
    "[filter \"f\"]\n\tclean = %\n",
    "[diff]\n\texternal = %\n",
    "[include]\n\tpath = %\n",
    "[extensions]\n\tworktreeConfig = true\n[core]\n\tpager = %\n",
    "[core]\n\tfsmonitor = %\n\tworktree = .\n",
];

/// One file operation. Paths are below the root of the workspace; in texts, `@ROOT@` is the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileOperation {
    Folder(String),
    /// Writes a file, and creates its folder.
    File {
        path: String,
        text: String,
        is_executable: bool,
    },
    Link {
        path: String,
        target: String,
    },
    HardLink {
        path: String,
        target: String,
    },
    Move {
        from: String,
        to: String,
    },
    Remove(String),
}

impl FileOperation {
    /// Applies the operation. Like a command in a script, one that is not possible has no effect.
    pub(super) fn apply(&self, root: &Path) {
        let rooted = |text: &str| text.replace("@ROOT@", root.to_str().unwrap());
        let make_parent = |path: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).ok();
        };
        match self {
            FileOperation::Folder(path) => {
                fs::create_dir_all(root.join(path)).ok();
            }
            FileOperation::File { path, text, is_executable } => {
                make_parent(path);
                if fs::write(root.join(path), rooted(text)).is_ok() && *is_executable {
                    fs::set_permissions(root.join(path), fs::Permissions::from_mode(0o755)).ok();
                }
            }
            FileOperation::Link { path, target } => {
                make_parent(path);
                symlink(rooted(target), root.join(path)).ok();
            }
            FileOperation::HardLink { path, target } => {
                make_parent(path);
                fs::hard_link(root.join(target), root.join(path)).ok();
            }
            FileOperation::Move { from, to } => {
                make_parent(to);
                fs::rename(root.join(from), root.join(to)).ok();
            }
            FileOperation::Remove(path) => {
                let path = root.join(path);
                match fs::symlink_metadata(&path) {
                    Ok(found) if found.is_dir() => fs::remove_dir_all(path).ok(),
                    _ => fs::remove_file(path).ok(),
                };
            }
        }
    }

    /// The operation in shell, in the working directory of the root `root`.
    pub(super) fn shell(&self, root: &Path) -> String {
        let quoted = |text: &str| quote(&text.replace("@ROOT@", root.to_str().unwrap()));
        let at = |path: &str| quote(if path.is_empty() { "." } else { path });
        let above = |path: &str| match path.rsplit_once('/') {
            Some((above, _)) => format!("mkdir -p -- {}; ", quote(above)),
            None => String::new(),
        };
        match self {
            FileOperation::Folder(path) => format!("mkdir -p -- {}", at(path)),
            FileOperation::File { path, text, is_executable } => {
                let mode = if *is_executable {
                    format!("; chmod 755 -- {}", at(path))
                } else {
                    String::new()
                };
                format!("{}printf %s {} > {}{mode}", above(path), quoted(text), at(path))
            }
            FileOperation::Link { path, target } => {
                format!("{}ln -sT -- {} {}", above(path), quoted(target), at(path))
            }
            FileOperation::HardLink { path, target } => {
                format!("{}ln -T -- {} {}", above(path), at(target), at(path))
            }
            FileOperation::Move { from, to } => {
                format!("{}mv -T -- {} {}", above(to), at(from), at(to))
            }
            FileOperation::Remove(path) => format!("rm -rf -- {}", at(path)),
        }
    }
}

/// Form of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepositoryForm {
    DotGit,
    Bare,
    /// Only some of its parts, by bit.
    Half(u8),
}

/// Text of a reference to a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference {
    Relative,
    Absolute,
    /// With a detour that leaves the text of the path meaningless.
    Winding,
}

impl Reference {
    /// Reference from the folder `from` to `to`.
    fn text(self, from: &str, to: &str) -> String {
        let ups = "../".repeat(from.split('/').filter(|part| !part.is_empty()).count());
        match self {
            Reference::Relative if ups.is_empty() && to.is_empty() => ".".to_owned(),
            Reference::Relative => format!("{ups}{to}"),
            Reference::Absolute => format!("@ROOT@/{to}"),
            Reference::Winding => format!("{ups}src/../{to}"),
        }
    }
}

/// A piece of a tree.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Repository { folder: &'static str, form: RepositoryForm, setting: &'static str },
    Settings { folder: &'static str, name: &'static str, setting: &'static str },
    Hook { folder: &'static str, name: &'static str },
    Pointer { folder: &'static str, target: &'static str, reference: Reference },
    Commondir { folder: &'static str, target: &'static str, reference: Reference },
    Link { folder: &'static str, name: &'static str, target: &'static str, reference: Reference },
    LinkedFile { folder: &'static str, name: &'static str, is_hard: bool },
    ControlFile { folder: &'static str, name: &'static str },
    SecondPart { folder: &'static str, name: &'static str },
    Move { from: String, to: String },
    Remove(String),
}

impl Piece {
    /// Operations that make the piece. Each planted text contains a token of its own, numbered from
    /// `serial`.
    pub(super) fn operations(&self, serial: &mut usize) -> Vec<FileOperation> {
        let mut token = || {
            *serial += 1;
            format!("EVIL-{serial}-")
        };
        let file =
            |path: String, text: String| FileOperation::File { path, text, is_executable: false };
        let program =
            |path: String, text: String| FileOperation::File { path, text, is_executable: true };
        match self {
            Piece::Repository { folder, form, setting } => {
                let at = match form {
                    RepositoryForm::DotGit => join(folder, ".git"),
                    RepositoryForm::Bare | RepositoryForm::Half(_) => (*folder).to_owned(),
                };
                let parts = if let RepositoryForm::Half(parts) = form { *parts } else { 0x1f };
                let mut all = vec![
                    file(join(&at, "HEAD"), "ref: refs/heads/main\n".to_owned()),
                    FileOperation::Folder(join(&at, "objects")),
                    FileOperation::Folder(join(&at, "refs")),
                    file(join(&at, "config"), setting.replace('%', &token())),
                    program(join(&at, "hooks/post-checkout"), format!("#!/bin/sh\n{}\n", token())),
                ];
                let mut bit = 0;
                all.retain(|_| {
                    bit += 1;
                    parts >> (bit - 1) & 1 == 1
                });
                all
            }
            Piece::Settings { folder, name, setting } => {
                vec![file(join(folder, name), setting.replace('%', &token()))]
            }
            Piece::Hook { folder, name } => {
                vec![program(join(folder, name), format!("#!/bin/sh\n{}\n", token()))]
            }
            Piece::Pointer { folder, target, reference } => {
                let text = format!("gitdir: {}\n", reference.text(folder, target));
                vec![file(join(folder, ".git"), text)]
            }
            Piece::Commondir { folder, target, reference } => {
                vec![file(
                    join(folder, "commondir"),
                    format!("{}\n", reference.text(folder, target)),
                )]
            }
            Piece::Link { folder, name, target, reference } => {
                let (path, target) = (join(folder, name), reference.text(folder, target));
                vec![FileOperation::Link { path, target }]
            }
            Piece::LinkedFile { folder, name, is_hard } => {
                let token = token();
                let target = format!("data/{token}.txt");
                let path = join(folder, name);
                let link = if *is_hard {
                    FileOperation::HardLink { path, target: target.clone() }
                } else {
                    FileOperation::Link { path, target: format!("@ROOT@/{target}") }
                };
                vec![file(target, control_text(name, &token)), link]
            }
            Piece::ControlFile { folder, name } | Piece::SecondPart { folder, name } => {
                vec![file(join(folder, name), control_text(name, &token()))]
            }
            Piece::Move { from, to } => {
                vec![FileOperation::Move { from: from.clone(), to: to.clone() }]
            }
            Piece::Remove(path) => vec![FileOperation::Remove(path.clone())],
        }
    }
}

/// Text in the format of the program that reads the file, with `token`.
fn control_text(name: &str, token: &str) -> String {
    match name.rsplit('/').next() {
        Some("config.toml" | "config") => format!("[alias]\n{token} = \"build\"\n"),
        Some(".npmrc") => format!("script-shell={token}\n"),
        Some("hgrc") => format!("[hooks]\nupdate = {token}\n"),
        _ => format!("# {token}\n"),
    }
}

/// `name` in `folder`, which may be the root.
fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn folder() -> impl Strategy<Value = &'static str> {
    select(&FOLDERS[..])
}

fn reference() -> impl Strategy<Value = Reference> {
    select(&[Reference::Relative, Reference::Absolute, Reference::Winding][..])
}

/// A folder, or something in it.
fn path() -> impl Strategy<Value = String> {
    (folder(), prop::option::of(select(&NAMES[..]))).prop_map(|(folder, name)| match name {
        Some(name) => join(folder, name),
        // The root itself is neither moved nor removed.
        None if folder.is_empty() => "src".to_owned(),
        None => folder.to_owned(),
    })
}

/// Any piece.
fn piece() -> impl Strategy<Value = Piece> {
    let form = prop_oneof![
        Just(RepositoryForm::DotGit),
        Just(RepositoryForm::Bare),
        (1_u8..0x20).prop_map(RepositoryForm::Half),
    ];
    let setting = || select(&SETTINGS[..]);
    let settings_files = ["config", "config.worktree", ".gitconfig", ".git/config"];
    let hooks = ["hooks/post-checkout", "post-checkout", ".git/hooks/pre-commit"];
    prop_oneof![
        4 => (folder(), form, setting())
            .prop_map(|(folder, form, setting)| Piece::Repository { folder, form, setting }),
        2 => (folder(), select(settings_files.to_vec()), setting())
            .prop_map(|(folder, name, setting)| Piece::Settings { folder, name, setting }),
        1 => (folder(), select(hooks.to_vec())).prop_map(|(folder, name)| Piece::Hook { folder, name }),
        3 => (folder(), folder(), reference())
            .prop_map(|(folder, target, reference)| Piece::Pointer { folder, target, reference }),
        2 => (folder(), folder(), reference())
            .prop_map(|(folder, target, reference)| Piece::Commondir { folder, target, reference }),
        4 => (folder(), select(&NAMES[..]), folder(), reference()).prop_map(
            |(folder, name, target, reference)| Piece::Link { folder, name, target, reference }),
        2 => (folder(), select(&CONTROL_FILES[..]), any::<bool>())
            .prop_map(|(folder, name, is_hard)| Piece::LinkedFile { folder, name, is_hard }),
        4 => (folder(), select(&CONTROL_FILES[..]))
            .prop_map(|(folder, name)| Piece::ControlFile { folder, name }),
        3 => (folder(), select(&SECOND_PARTS[..]))
            .prop_map(|(folder, name)| Piece::SecondPart { folder, name }),
        4 => (path(), path()).prop_map(|(from, to)| Piece::Move { from, to }),
        2 => path().prop_map(Piece::Remove),
    ]
}

/// Commands one after another, each of some pieces.
pub(super) fn commands() -> impl Strategy<Value = Vec<Vec<Piece>>> {
    prop::collection::vec(prop::collection::vec(piece(), 1..7), 1..4)
}

/// Tree of a user, before any command, of which the bits of `parts` choose.
pub(super) fn user_tree(parts: u16) -> Vec<FileOperation> {
    let file = |path: &str, text: &str| FileOperation::File {
        path: path.to_owned(),
        text: text.to_owned(),
        is_executable: path.contains("hooks/"),
    };
    let folder = |path: &str| FileOperation::Folder(path.to_owned());
    let repository = |at: &str| {
        vec![
            file(&join(at, "HEAD"), "ref: refs/heads/main\n"),
            file(&join(at, "config"), "[core]\n\trepositoryformatversion = 0\n"),
            folder(&join(at, "objects/info")),
            folder(&join(at, "refs/heads")),
            file(&join(at, "hooks/pre-commit.sample"), "#!/bin/sh\n"),
        ]
    };
    let link = |path: &str, target: &str| FileOperation::Link {
        path: path.to_owned(),
        target: target.to_owned(),
    };
    let mut tree = vec![folder("src/deep"), file("src/main.rs", "fn main() {}\n")];
    let choices: [Vec<FileOperation>; 11] = [
        repository(".git"),
        vec![file(".git/hooks/post-checkout", "#!/bin/sh\ntrue\n")],
        repository("lib/.git"),
        vec![folder("src/objects/deep"), folder("lib/sub")],
        vec![file("vendor/v/x.c", ""), file("node_modules/n/package.json", "{}\n")],
        vec![link("docs", "src/deep")],
        vec![file(".mcp.json", "{}\n"), file("src/AGENTS.md", "words of the user\n")],
        vec![file(".cargo/config.toml", "[build]\njobs = 2\n")],
        vec![file("rules/text.md", "words of the user\n"), link("CLAUDE.md", "rules/text.md")],
        [repository(".git/modules/m"), vec![file("sub/.git", "gitdir: ../.git/modules/m\n")]]
            .concat(),
        vec![
            link("linked", "vendor/v"),
            file("package.json", "{}\n"),
            file("src/package.json", "{}\n"),
        ],
    ];
    for (bit, choice) in choices.into_iter().enumerate() {
        if parts >> bit & 1 == 1 {
            tree.extend(choice);
        }
    }
    tree
}
