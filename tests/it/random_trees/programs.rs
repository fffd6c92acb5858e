//! Programs of the host that are asked what they would read: git, cargo, npm, direnv, Mercurial.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host_model::{self, Reading};

/// Settings that npm reads, printed by its own module.
const NPM_SETTINGS: &str = include_str!("npm_settings.js");

/// The program `name`, in a folder of the PATH.
pub(super) fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|at| at.is_file());
    found.unwrap_or_else(|| panic!("this test needs {name}: ./check installs it"))
}

/// Everything planted below `root` that the programs read in any of its working directories. `home`
/// is an empty folder.
pub(super) fn readings(root: &Path, home: &Path) -> BTreeSet<Reading> {
    let directories = host_model::working_directories(root);
    let mut folders: Vec<PathBuf> =
        directories.into_iter().map(|folder| root.join(folder.real)).collect();
    folders.sort();
    folders.dedup();
    let host = Host { root, home };
    let mut found = BTreeSet::new();
    for folder in &folders {
        host.ask_git(folder, &mut found);
    }
    // Starting a program that has nothing to read would only take time.
    let with = |name: &str| {
        let has =
            |above: &Path| above.starts_with(root) && above.join(name).symlink_metadata().is_ok();
        folders.iter().filter(|folder| folder.ancestors().any(has)).collect::<Vec<_>>()
    };
    for folder in with(".cargo") {
        let output =
            host.run(&std::env::var_os("CARGO").unwrap_or("cargo".into()), folder, &["--list"]);
        // It does not say which file an alias is from.
        let files = folder
            .ancestors()
            .flat_map(|above| [".cargo/config.toml", ".cargo/config"].map(|name| above.join(name)));
        let files: Vec<PathBuf> = files.collect();
        for token in host_model::tokens(&output) {
            let has =
                |file: &&PathBuf| fs::read_to_string(file).is_ok_and(|text| text.contains(&token));
            let file = files.iter().find(has).expect("cargo reads the files of its manual");
            host.note(file, &token, "cargo", &mut found);
        }
    }
    for folder in with(".envrc") {
        let output = host.run(program("direnv").as_os_str(), folder, &["status"]);
        let lines = output.lines().filter_map(|line| line.strip_prefix("Found RC path "));
        for file in lines {
            host.note_all(Path::new(file), "direnv", &mut found);
        }
    }
    for folder in with(".hg") {
        let output = host.run(program("hg").as_os_str(), folder, &["config", "--source"]);
        for line in output.lines() {
            let Some((source, rest)) = line.split_once(": ") else { continue };
            let file = source.rsplit_once(':').map_or(source, |(file, _)| file);
            for token in host_model::tokens(rest) {
                host.note(&folder.join(file), &token, "hg", &mut found);
            }
        }
    }
    let folders = with(".npmrc");
    if !folders.is_empty() {
        host.ask_npm(&folders, &mut found);
    }
    found
}

/// The programs of a machine, with a home of their own.
struct Host<'a> {
    root: &'a Path,
    home: &'a Path,
}

impl Host<'_> {
    fn command(&self, program: &OsStr, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home)
            .env("PWD", folder)
            .env("CARGO_HOME", self.home.join("cargo"))
            .env("HGRCPATH", "")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            // The checkout of these tests is a repository, too.
            .env("GIT_CEILING_DIRECTORIES", self.root.parent().unwrap());
        command
    }

    /// Standard output. A program that finds its settings invalid ends with an error.
    fn run(&self, program: &OsStr, folder: &Path, arguments: &[&str]) -> String {
        let output = self.command(program, folder).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn ask_git(&self, folder: &Path, found: &mut BTreeSet<Reading>) {
        let git = program("git");
        let list = ["-c", "safe.directory=*", "config", "--list", "--null", "--show-origin"];
        let output = self.run(git.as_os_str(), folder, &list);
        let parts: Vec<&str> = output.split('\0').collect();
        for setting in parts.chunks_exact(2) {
            let Some(file) = setting[0].strip_prefix("file:") else { continue };
            for token in host_model::tokens(setting[1]) {
                self.note(&folder.join(file), &token, "git config", found);
            }
        }
        let hooks = ["-c", "safe.directory=*", "rev-parse", "--git-path", "hooks"];
        let hooks = self.run(git.as_os_str(), folder, &hooks);
        let hooks = hooks.trim_end_matches('\n');
        if hooks.is_empty() {
            return;
        }
        for hook in fs::read_dir(folder.join(hooks)).into_iter().flatten().flatten() {
            let path = hook.path();
            let is_sample = path.extension().is_some_and(|ending| ending == "sample");
            let runs =
                fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
            if runs && !is_sample {
                self.note_all(&path, "git hook", found);
            }
        }
    }

    fn ask_npm(&self, folders: &[&PathBuf], found: &mut BTreeSet<Reading>) {
        let mut node = self.command(program("node").as_os_str(), self.root);
        node.env("NPM", program("npm")).args(["-e", NPM_SETTINGS, "--"]).args(folders);
        let output = node.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let setting: serde_json::Value = serde_json::from_str(line).unwrap();
            for token in host_model::tokens(&setting["value"].to_string()) {
                self.note(Path::new(setting["file"].as_str().unwrap()), &token, "npm", found);
            }
        }
    }

    /// Notes all planted texts of a file.
    fn note_all(&self, file: &Path, reader: &str, found: &mut BTreeSet<Reading>) {
        for token in host_model::tokens(&fs::read_to_string(file).unwrap_or_default()) {
            self.note(file, &token, reader, found);
        }
    }

    fn note(&self, file: &Path, token: &str, reader: &str, found: &mut BTreeSet<Reading>) {
        let below = |path: &Path| path.strip_prefix(self.root).unwrap_or(path).to_owned();
        let real = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        found.insert(Reading {
            token: token.to_owned(),
            path: below(file),
            real_path: below(&real),
            reader: reader.to_owned(),
        });
    }
}
