//! Protected files whose content decides: an ordinary one, as programs create it, is harmless.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use posse_base::protected;

use crate::protect::check::name_of;
use crate::protect::gitconfig;
use crate::protect::place;
use crate::protect::references::{self, read};
use crate::protect::{GuardState, ProtectedPath};

/// True if files of this name, in lower case, are judged by their content.
pub(super) fn is_judged(name: &[u8]) -> bool {
    judge_of(name).is_some()
}

/// True if `bytes` are a harmless content of the file `name`, in lower case. False for other names.
pub(super) fn is_harmless(name: &[u8], bytes: &[u8]) -> bool {
    judge_of(name).is_some_and(|is_harmless| is_harmless(bytes))
}

/// True if programs replace files of this name, in lower case, in the course of ordinary work, so
/// that a mount over one would make them fail.
pub(super) fn is_replaced_in_place(name: &[u8]) -> bool {
    is_judged(name) && !matches!(name, b".gitmodules" | b"hgrc")
}

fn judge_of(name: &[u8]) -> Option<fn(&[u8]) -> bool> {
    match name {
        b".gitmodules" => Some(has_harmless_settings),
        b"hgrc" => Some(has_only_addresses),
        b"journal.backupfiles" | b"undo.backupfiles" => Some(restores_no_settings),
        b".bazelversion"
        | b".java-version"
        | b".node-version"
        | b".nvmrc"
        | b".go-version"
        | b".opentofu-version"
        | b".perl-version"
        | b".php-version"
        | b".ruby-version"
        | b".terraform-version" => Some(names_versions),
        b".python-version" | b".python-versions" => Some(names_python_versions),
        b"pnpm-workspace.yaml" => Some(runs_no_program),
        _ => None,
    }
}

fn has_harmless_settings(bytes: &[u8]) -> bool {
    gitconfig::clean(bytes, |_| false).is_some_and(|cleaned| cleaned.removed.is_empty())
}

/// Returns the paths in the Mercurial settings `bytes` that [`is_harmless`].
pub(super) fn local_addresses(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let values = text.lines().filter(|line| !line.starts_with(['#', ';', '[']));
    let values = values.filter_map(|line| Some(line.split_once('=')?.1.trim()));
    let paths = values.filter(|value| !value.contains("://"));
    // The name of a branch follows `#`.
    paths.map(|value| value.split('#').next().unwrap_or(value).to_owned()).collect()
}

/// True if the repository whose folder `.hg` is `folder` has no settings but addresses.
pub(super) fn has_only_addresses_in(folder: &Path) -> bool {
    let is_missing = |name: &str| folder.join(name).symlink_metadata().is_err();
    let settings = folder.join("hgrc");
    ["hgrc-not-shared", "sharedpath"].into_iter().all(is_missing)
        && (is_missing("hgrc")
            || read(&settings, gitconfig::BYTES_MAX)
                .is_some_and(|bytes| has_only_addresses(&bytes)))
}

/// True if the Mercurial settings `bytes` contain only addresses of repositories.
fn has_only_addresses(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    // Mercurial ends a line there, too.
    if text.replace("\r\n", "\n").contains(['\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}']) {
        return false;
    }
    let mut is_in_paths = false;
    text.lines().map(str::trim_end).all(|line| match line.split_once('=') {
        _ if line.is_empty() || line.starts_with(['#', ';']) => true,
        // A clone has the headers of further sections, without settings.
        _ if line.starts_with('[') => {
            is_in_paths = line == "[paths]";
            is_section(line)
        }
        // A name with a colon is an option of a path, such as `default:pushurl`.
        Some((name, value)) => {
            let value = value.trim_start();
            let is_remote =
                ["https://", "http://", "ssh://"].iter().any(|scheme| value.starts_with(scheme));
            // A value with another scheme, or one that is expanded, is no path.
            let is_path = !value.contains([':', '$']) && !value.starts_with(['-', '!', '~']);
            is_in_paths
                && name.trim_end().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && (is_remote || is_path)
                && !value.contains("://-")
        }
        None => false,
    })
}

/// True if the line is the header of a section. Mercurial takes other lines that begin with a
/// bracket for settings.
fn is_section(line: &str) -> bool {
    let name = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    name.is_some_and(|name| !name.is_empty() && !name.contains(['[', ']', '=']))
}

/// True if `hg recover` or `hg rollback` restores from this list only files of Mercurial itself,
/// but no settings. Format: a version in the first line, then lines of four parts that end with a
/// zero byte, of which the second and third are paths.
fn restores_no_settings(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let is_known = lines.next() == Some(b"2");
    let is_harmless = |path: &[u8]| {
        let path = path.to_ascii_lowercase();
        let settings = [&b"hgrc"[..], b"shared", b"requires", b"."];
        // A folder in the path may be a link.
        !path.contains(&b'/') && !settings.iter().any(|setting| path.starts_with(setting))
    };
    is_known
        && lines.filter(|line| !line.is_empty()).all(|line| {
            let parts: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            parts.len() >= 4 && is_harmless(parts[1]) && is_harmless(parts[2])
        })
}

/// True if each line is a version, also after the name of an implementation, or a word that version
/// managers know: uv takes any other text for a folder with programs.
fn names_versions(bytes: &[u8]) -> bool {
    const WORDS: [&str; 5] = ["latest", "lts/*", "node", "stable", "system"];
    has_versions(bytes, |line| {
        let codename = line.strip_prefix("lts/").unwrap_or_default();
        let is_codename = !codename.is_empty() && codename.bytes().all(|c| c.is_ascii_lowercase());
        is_codename || WORDS.contains(&line) || is_version(line.strip_prefix('v').unwrap_or(line))
    })
}

/// True as [`names_versions`], but without the words, which uv takes for folders, too.
fn names_python_versions(bytes: &[u8]) -> bool {
    has_versions(bytes, is_version)
}

fn has_versions(bytes: &[u8], is_known: impl Fn(&str) -> bool) -> bool {
    const NAMES: [&str; 13] = [
        "cpython",
        "graalpy",
        "java",
        "jruby",
        "node",
        "openjdk",
        "openjdk64",
        "perl",
        "pypy",
        "ruby",
        "temurin",
        "temurin64",
        "truffleruby",
    ];
    let is_named = |line: &str| {
        NAMES.iter().any(|name| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| is_version(rest.strip_prefix(['-', '@']).unwrap_or(rest)))
        })
    };
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    text.lines().all(|line| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        line.is_empty() || line.starts_with('#') || is_named(line) || is_known(line)
    })
}

/// True for numbers with dots between them, and parts after `-` or `+` that are numbers of this kind
/// or name a kind of a release, such as `3.13t`, `3.12.0rc1`, `3.10-7.3.9` and `1.0.0-beta.2`.
fn is_version(text: &str) -> bool {
    const KINDS: [&str; 14] = [
        "a",
        "alpha",
        "b",
        "beta",
        "dev",
        "debug",
        "freethreaded",
        "next",
        "p",
        "pre",
        "preview",
        "rc",
        "snapshot",
        "t",
    ];
    let is_kind = |part: &str| {
        let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
        KINDS.contains(&name)
    };
    // A number, and the kind directly after it.
    let is_number = |part: &str| {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < part.len() && (rest.is_empty() || is_kind(rest))
    };
    let mut parts = text.split(['.', '-', '+']);
    parts.next().is_some_and(is_number)
        && parts.all(|part| is_number(part) || is_kind(part) || part == "*")
}

/// True if the settings of pnpm contain only packages, catalogs and versions. Settings such as
/// `pnpmfile` run a program at every command.
fn runs_no_program(bytes: &[u8]) -> bool {
    const KEYS: [&str; 12] = [
        "autoInstallPeers",
        "catalog",
        "catalogs",
        "linkWorkspacePackages",
        "neverBuiltDependencies",
        "nodeLinker",
        "overrides",
        "packageExtensions",
        "packages",
        "saveExact",
        "savePrefix",
        "strictPeerDependencies",
    ];
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    // Other line ends, anchors, tags and directives of YAML are not read here.
    if text.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}', '\t', '<', '%', '!'])
        || text.contains("---")
    {
        return false;
    }
    // With the first key further to the right, all of that column are.
    let mut is_begun = false;
    text.lines().all(|line| {
        if line.trim().is_empty() || line.starts_with('#') {
            return true;
        }
        if line.starts_with([' ', '-']) {
            return is_begun;
        }
        is_begun = true;
        line.split_once(':').is_some_and(|(key, _)| KEYS.contains(&key))
    })
}

impl GuardState {
    /// True if the content of the file at `key`, whose name [`is_judged`], is harmless.
    pub(super) fn is_harmless_text(&self, key: &ProtectedPath) -> bool {
        let Ok((folder, name)) = self.roots[key.0].root.open_parent(&key.1) else { return false };
        let bytes = place::read(&folder, name, gitconfig::BYTES_MAX).ok().flatten();
        let name = name_of(key);
        bytes.is_some_and(|bytes| {
            is_harmless(&name, &bytes)
                && (name != b"hgrc" || self.has_harmless_sources(key, &bytes))
        })
    }

    /// True if no repository below a root whose path is in the Mercurial settings `bytes` has, or
    /// may get unnoticed, settings that run programs: Mercurial reads those of a repository on this
    /// machine that it pulls from.
    fn has_harmless_sources(&self, key: &ProtectedPath, bytes: &[u8]) -> bool {
        let whole = self.path(key);
        let Some(tree) = whole.parent().and_then(Path::parent) else { return false };
        let below_roots = |path: &Path| {
            let mut roots = self.roots.iter();
            roots.find_map(|watched| path.strip_prefix(&watched.root.path).ok().map(Path::to_owned))
        };
        local_addresses(bytes).into_iter().all(|address| {
            let address = Path::new(&address);
            let Some(named) = without_parents(tree, address) else { return false };
            let way = references::way(&tree.join(address));
            let end = way.last().cloned().unwrap_or_default();
            // A later command can put a folder in the place of a link.
            let mut places = way.iter().chain([&named]).filter_map(|path| below_roots(path));
            places.all(|below| below.iter().all(|part| is_scanned_for_settings(part.as_bytes())))
                && (below_roots(&end).is_none() || has_only_addresses_in(&end.join(".hg")))
        })
    }
}

/// The path `address`, relative to the folder `tree`, without `..`. `None` if `..` follows a name, which
/// a later command could replace by a link, so that `..` leads elsewhere.
fn without_parents(tree: &Path, address: &Path) -> Option<PathBuf> {
    let mut path = tree.to_owned();
    let mut has_name = false;
    for part in address.components() {
        match part {
            Component::ParentDir if has_name => return None,
            Component::ParentDir => {
                path.pop();
            }
            part => {
                has_name |= matches!(part, Component::Normal(_));
                path.push(part);
            }
        }
    }
    Some(path)
}

/// True if settings of Mercurial that a later command creates in a folder called `name` are found. In
/// the folders of package managers and of git they do not count.
fn is_scanned_for_settings(name: &[u8]) -> bool {
    !protected::is_vendored(name) && !protected::is_dot_git(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(name: &str, text: &str) -> bool {
        is_harmless(name.as_bytes(), text.as_bytes())
    }

    #[test]
    fn ordinary_files_are_harmless() {
        for (name, text) in [
            (".gitmodules", "[submodule \"a\"]\n\tpath = a\n\turl = ../a\n"),
            ("hgrc", "# a clone\n[paths]\ndefault = https://a.example/b\n[ui]\n"),
            ("journal.backupfiles", "2\n"),
            ("undo.backupfiles", "2\nplain\0dirstate\0undo.backup.dirstate.bck\x001\0\n"),
            (".python-version", "3.12.1\npypy3.10-7.3\n3.13t\n3.14.0rc2\ncpython@3.12\n3.12-dev\n"),
            (".java-version", "openjdk64-17.0.2\n"),
            (".ruby-version", "jruby-9.4.5.0\n"),
            (".node-version", "lts/*\n"),
            (".bazelversion", "7.1.0\n"),
            (".nvmrc", "lts/hydrogen\n"),
            (".node-version", "v20.1.0"),
            (".ruby-version", "ruby-3.2.1\n"),
            ("pnpm-workspace.yaml", "# all\npackages:\n  - 'packages/*'\ncatalog:\n  a: ^1\n"),
        ] {
            assert!(judged(name, text), "{name} {text:?}");
        }
    }

    #[test]
    fn files_that_run_programs_are_not() {
        for (name, text) in [
            (".gitmodules", "[submodule \"a\"]\n\tupdate = !evil\n"),
            ("hgrc", "[paths]\ndefault = file:node_modules/evil\n"),
            ("hgrc", "[paths]\ndefault = ssh://-oProxyCommand=x\n"),
            ("hgrc", "[extensions]\ne = e.py\n"),
            ("journal.backupfiles", "2\nplain\0hgrc\0x1\x000\0\n"),
            ("journal.backupfiles", "2\nplain\0../x\0x1\x000\0\n"),
            ("journal.backupfiles", "3\n"),
            ("hgrc", "[extensions]\n[a=e.py\n"),
            ("hgrc", "[paths]x\n"),
            (".python-version", "./py\n"),
            (".python-version", "3evil\n"),
            (".python-version", "cpythonevil\n"),
            (".python-version", "3.12.evil\n"),
            (".python-version", "3.12-evil\n"),
            (".python-version", "system\n"),
            (".python-version", "v3.12\n"),
            (".ruby-version", "ruby-evil\n"),
            (".python-version", ".."),
            (".bazelversion", "evil/7\n"),
            (".python-version", "env1\n"),
            (".ruby-version", "../../../ws/ev\n"),
            (".nvmrc", "lts/../x\n"),
            ("undo.backupfiles", "2\nplain\0lnk/.git/config\0x1\x000\0\n"),
            ("pnpm-workspace.yaml", " packages: []\n pnpmfile: x.cjs\n"),
            ("pnpm-workspace.yaml", "pnpmfile: ./x.cjs\n"),
            ("pnpm-workspace.yaml", "packages:\n\"pnpmfile\": x\n"),
            ("pnpm-workspace.yaml", "{packages: [a], pnpmfile: x}\n"),
            ("pnpm-workspace.yaml", "? pnpmfile\n: x\n"),
            (".envrc", ""),
        ] {
            assert!(!judged(name, text), "{name} {text:?}");
        }
    }
}
