//! Refusal of installations that would use the public registry, because the file that names the
//! private registry is hidden from commands.
//!
//! A package manager that cannot read its `.npmrc` silently asks the public registry for packages
//! of the same names, which anyone can publish there (dependency confusion). Only commands that
//! name the package manager are recognised, not scripts that run one.

use std::io::Read;
use std::path::{Path, PathBuf};

use posse_actors::ports::ToolError;
use posse_base::failure::printable;
use posse_base::ignore_files::open_regular;
use posse_sandbox::Sandbox;

use crate::ToolEnvironment;

/// Error code of a refusal.
pub(super) const CODE: &str = "SH008";

/// Maximum number of bytes of a configuration file that are searched.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A package manager, and the arguments with which it fetches packages.
struct PackageManager {
    name: &'static str,
    /// Subcommands that fetch packages. If empty, all subcommands do.
    fetching: &'static [&'static str],
    /// True if a call without a subcommand fetches packages.
    fetches_alone: bool,
    /// Options with which the program fetches nothing.
    offline: &'static [&'static str],
}

/// Package managers, from the manuals of npm 11, pnpm 10, yarn 1 and 4, and bun 1.3.
const MANAGERS: [PackageManager; 8] = [
    PackageManager {
        name: "npm",
        fetching: &[
            "install",
            "i",
            "in",
            "ins",
            "inst",
            "insta",
            "instal",
            "isnt",
            "isnta",
            "isntal",
            "isntall",
            "add",
            "ci",
            "clean-install",
            "ic",
            "install-clean",
            "isntall-clean",
            "install-test",
            "it",
            "install-ci-test",
            "cit",
            "clean-install-test",
            "sit",
            "update",
            "up",
            "upgrade",
            "udpate",
            "exec",
            "x",
            "init",
            "create",
            "innit",
            "dedupe",
            "ddp",
        ],
        fetches_alone: false,
        offline: &["--offline", "--no"],
    },
    PackageManager {
        name: "npx",
        fetching: &[],
        fetches_alone: false,
        offline: &["--offline", "--no", "--no-install"],
    },
    PackageManager {
        name: "pnpm",
        fetching: &[
            "install",
            "i",
            "add",
            "update",
            "up",
            "upgrade",
            "dlx",
            "fetch",
            "import",
            "create",
            "dedupe",
            "ci",
            "install-test",
            "it",
        ],
        fetches_alone: false,
        offline: &["--offline"],
    },
    PackageManager { name: "pnpx", fetching: &[], fetches_alone: false, offline: &["--offline"] },
    PackageManager {
        name: "yarn",
        fetching: &[
            "install",
            "add",
            "up",
            "upgrade",
            "upgrade-interactive",
            "dlx",
            "create",
            "dedupe",
            "import",
            "global",
        ],
        fetches_alone: true,
        offline: &["--offline"],
    },
    PackageManager {
        name: "yarnpkg",
        fetching: &["install", "add", "up", "upgrade", "dlx", "create", "global"],
        fetches_alone: true,
        offline: &["--offline"],
    },
    PackageManager {
        name: "bun",
        fetching: &["install", "i", "add", "a", "update", "x", "create", "c"],
        fetches_alone: false,
        offline: &[],
    },
    PackageManager {
        name: "bunx",
        fetching: &[],
        fetches_alone: false,
        offline: &["--no-install"],
    },
];

impl PackageManager {
    /// Returns true if the program fetches packages when called with these arguments.
    fn fetches(&self, arguments: &[String]) -> bool {
        if arguments.iter().any(|argument| self.offline.contains(&argument.as_str())) {
            return false;
        }
        let Some(subcommand) = arguments.iter().find(|argument| !argument.starts_with('-')) else {
            return self.fetches_alone;
        };
        self.fetching.is_empty() || self.fetching.contains(&subcommand.as_str())
    }
}

/// Refuses a command with [`CODE`] if one of its `programs` fetches packages and the sandbox hides a file `.npmrc` or
/// `.yarnrc.yml` that names a package registry, in `cwd`, in a folder above it or in the home
/// folder.
pub(super) fn check(
    env: &ToolEnvironment,
    sandbox: &Sandbox,
    programs: &[Vec<String>],
    cwd: &Path,
) -> Result<(), ToolError> {
    let Some(name) = programs.iter().find_map(|words| fetching_program(words)) else {
        return Ok(());
    };
    let home = env.commands.home.as_deref().map(Path::new);
    for file in configuration_files(cwd, home) {
        if names_registry(&file) && sandbox.hides_registry(&file) {
            let file = printable(&file.display().to_string());
            let message = format!(
                "{name} was not run: {file} names the package registry, but is hidden from commands \
                 because it may contain credentials, so that {name} would fetch packages of the same \
                 names from the public registry; the user can make it readable with \
                 `posse config edit sandbox.readSecrets '[\"{file}\"]'`"
            );
            return Err(ToolError::new(CODE, message));
        }
    }
    Ok(())
}

/// Returns the name of the package manager that `words`, a program with its arguments, call to
/// fetch packages; otherwise `None`.
fn fetching_program(words: &[String]) -> Option<&'static str> {
    let (program, arguments) = words.split_first()?;
    let name = program.rsplit('/').next()?;
    let manager = MANAGERS.iter().find(|manager| manager.name == name)?;
    manager.fetches(arguments).then_some(manager.name)
}

/// Paths of the files that may name the registry for package managers that run in `cwd`. The files
/// need not exist.
fn configuration_files(cwd: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let folders = cwd.ancestors().chain(home);
    folders.flat_map(|folder| [".npmrc", ".yarnrc.yml"].map(|name| folder.join(name))).collect()
}

/// Returns true if the first 64 KiB of `file` set a registry, for all packages or for a scope.
/// False if the file cannot be read or is not a regular file.
fn names_registry(file: &Path) -> bool {
    let mut text = Vec::new();
    let Some(opened) = open_regular(file) else { return false };
    if opened.take(FILE_BYTES_MAX).read_to_end(&mut text).is_err() {
        return false;
    }
    String::from_utf8_lossy(&text).lines().any(|line| {
        let key = line.split(['=', ':']).next().unwrap_or_default().trim();
        let is_scope = key.starts_with('@') && line.contains(":registry");
        is_scope || matches!(key, "registry" | "npmRegistryServer" | "npmScopes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_fetch_packages_are_recognised() {
        for (line, fetches) in [
            ("npm install", true),
            ("npm i left-pad", true),
            ("npm -s ci", true),
            ("/usr/bin/npm exec x", true),
            ("npx eslint .", true),
            ("pnpm add x", true),
            ("yarn", true),
            ("yarn add x", true),
            ("bunx x", true),
            ("npm test", false),
            ("npm run build", false),
            ("npm ls", false),
            ("npm", false),
            ("npx --no-install eslint .", false),
            ("npm ci --offline", false),
            ("pnpm lint", false),
            ("yarn test", false),
            ("cargo install x", false),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(fetching_program(&words).is_some(), fetches, "{line}");
        }
    }

    #[test]
    fn registries_are_found_in_configuration_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".npmrc");
        for (text, names) in [
            ("registry=http://127.0.0.1:4873/\n", true),
            ("save=true\n  registry = http://127.0.0.1:4873/", true),
            ("@our:registry=http://127.0.0.1:4873/", true),
            ("npmRegistryServer: http://127.0.0.1:4873/", true),
            ("npmScopes:\n  our:\n", true),
            ("//127.0.0.1:4873/:_authToken=abc", false),
            ("# registry=http://127.0.0.1:4873/", false),
            ("; registry=http://127.0.0.1:4873/", false),
            ("", false),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(names_registry(&file), names, "{text}");
        }
        assert!(!names_registry(dir.path()) && !names_registry(&dir.path().join("none")));
    }

    #[test]
    fn a_pipe_or_device_names_no_registry() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let link = dir.path().join(".npmrc");
        for target in [&pipe, Path::new("/dev/zero")] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert!(!names_registry(&link) && !names_registry(&pipe));
            std::fs::remove_file(&link).unwrap();
        }
    }
}
