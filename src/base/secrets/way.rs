//! Resolution of paths whose links may be named like secrets. A link such as `.env` makes the file to
//! which it leads a secret, whatever its name, so every name on the way is judged.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use nix::libc::{EINVAL, ELOOP};

use crate::paths::normalise;
use crate::secrets::is_secret;

/// Maximum number of symbolic links that are followed for one path, as in kernels.
const LINKS_MAX: usize = 40;

/// An existing path without symbolic links, and properties of the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedWay {
    /// The path without links.
    pub path: PathBuf,
    /// True if a link was followed.
    pub is_linked: bool,
    /// True if the path, a name on the way to it, or the text of a link is that of a secret. Folders
    /// above the root do not count.
    pub names_secret: bool,
}

/// Resolves `path`, which is absolute. `root`: folder without symbolic links in its path; names below
/// it are judged relative to it. The result may lie outside of it. Makes one system call for each name
/// below the root.
pub fn resolve(root: &Path, path: &Path) -> io::Result<ResolvedWay> {
    let mut way = Way { root, here: PathBuf::new(), rest: Vec::new(), names_secret: false };
    let mut links = 0;
    way.follow(path);
    while let Some(name) = way.rest.pop() {
        if name == ".." {
            way.here.pop();
            continue;
        }
        let next = way.here.join(name);
        match fs::read_link(&next) {
            Ok(_) if links == LINKS_MAX => return Err(io::Error::from_raw_os_error(ELOOP)),
            Ok(target) => {
                links += 1;
                way.follow(&target);
            }
            // It is no link.
            Err(error) if error.raw_os_error() == Some(EINVAL) => way.here = next,
            Err(error) => return Err(error),
        }
    }
    way.judge();
    Ok(ResolvedWay { path: way.here, is_linked: links > 0, names_secret: way.names_secret })
}

/// True if `path`, which may contain `..`, names a secret as it is written, or without `..`.
pub fn names_secret(path: &Path) -> bool {
    let has_parent = path.components().any(|part| part == Component::ParentDir);
    is_secret(&path.to_string_lossy())
        || (has_parent && is_secret(&normalise(path).to_string_lossy()))
}

/// State of a resolution.
struct Way<'a> {
    root: &'a Path,
    /// The resolved part of the path.
    here: PathBuf,
    /// Names that are still to be resolved, the next one last.
    rest: Vec<OsString>,
    names_secret: bool,
}

impl Way<'_> {
    /// Puts `path`, the first path or the text of a link, before the remaining names, and judges all
    /// of them.
    fn follow(&mut self, path: &Path) {
        let mut below = path;
        if path.is_absolute() {
            (self.here, below) = match path.strip_prefix(self.root) {
                Ok(inside) => (self.root.to_owned(), inside),
                Err(_) => (PathBuf::from("/"), path),
            };
        }
        let names = below.components().rev();
        let names =
            names.filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
        self.rest.extend(names.map(|part| part.as_os_str().to_owned()));
        self.judge();
    }

    fn judge(&mut self) {
        let whole: PathBuf =
            self.here.iter().chain(self.rest.iter().rev().map(|name| &**name)).collect();
        self.names_secret |= names_secret(whole.strip_prefix(self.root).unwrap_or(&whole));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_name_on_the_way_is_judged() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        // The names of folders above the root do not count.
        let root = base.join("my.env/root");
        let at = |name: &str| root.join(name);
        for folder in ["data/a", "docs", "real.env"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["data/real", "data/config.json", "docs/x.md", "real.env/x"] {
            fs::write(at(file), "").unwrap();
        }
        symlink(&root, base.join("alias")).unwrap();
        for (link, target) in [
            (".env", "data/real".into()),
            (".docker", "data".into()),
            ("to-env", ".env".into()),
            ("to-docker", "./.docker".into()),
            ("pair", "to-docker/config.json".into()),
            ("parent", ".docker/a/../config.json".into()),
            ("up", "../root/.env".into()),
            ("absolute", at(".env")),
            ("aliased", base.join("alias/.env")),
            ("folder", "real.env".into()),
            ("docs/link", "../docs/x.md".into()),
            ("plain", at("docs/link")),
            ("real", "data/real".into()),
            ("out", base.clone()),
            ("loop", "loop".into()),
        ] {
            symlink(target, at(link)).unwrap();
        }
        for secret in [
            ".env",
            "to-env",
            "pair",
            "parent",
            "up",
            "absolute",
            "aliased",
            "folder/x",
            "real.env/x",
            "folder/../docs/x.md",
        ] {
            assert!(resolve(&root, &at(secret)).unwrap().names_secret, "{secret}");
        }
        for (open, path, is_linked) in [
            ("docs/x.md", "docs/x.md", false),
            ("docs/link", "docs/x.md", true),
            ("plain", "docs/x.md", true),
            ("real", "data/real", true),
        ] {
            let path = at(path);
            assert_eq!(path.canonicalize().unwrap(), path);
            let expected = ResolvedWay { path, is_linked, names_secret: false };
            assert_eq!(resolve(&root, &at(open)).unwrap(), expected, "{open}");
        }
        assert_eq!(resolve(&root, &at("out")).unwrap().path, base);
        for missing in ["loop", "none", "docs/x.md/y"] {
            assert!(resolve(&root, &at(missing)).is_err(), "{missing}");
        }
    }
}
