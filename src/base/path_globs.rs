//! Globs of deny rules that name paths, with the meaning that they have for files, folders and
//! everything in them.

use std::path::{Path, PathBuf};

use globset::{Error, GlobBuilder, GlobMatcher};

/// A name that no file has in practice. A glob that matches it in a folder matches every name there.
const ANY_NAME: &str = "\u{1}any\u{1}";

/// Compiled glob of a rule. `*` and `?` match within one name, `**` any number of folders. A glob
/// that begins with `/` is compared with absolute paths, any other with paths relative to the root of
/// the workspace.
#[derive(Debug, Clone)]
pub struct PathGlob {
    text: String,
    matcher: GlobMatcher,
}

impl PathGlob {
    /// Compiles `text`. Fails if it is no valid glob.
    pub fn new(text: String) -> Result<PathGlob, Error> {
        let glob = GlobBuilder::new(&text).literal_separator(true).build()?;
        Ok(PathGlob { matcher: glob.compile_matcher(), text })
    }

    /// The glob as it was compiled.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the glob is compared with absolute paths.
    pub fn is_absolute(&self) -> bool {
        self.text.starts_with('/')
    }

    /// True if the glob matches `path`, which is absolute if the glob is.
    pub fn is_match(&self, path: impl AsRef<Path>) -> bool {
        self.matcher.is_match(path)
    }

    /// True if the glob matches `path` or a folder above it.
    pub fn covers(&self, path: impl AsRef<Path>) -> bool {
        let named = |path: &&Path| !path.as_os_str().is_empty();
        path.as_ref().ancestors().filter(named).any(|path| self.is_match(path))
    }

    /// True if the glob matches every entry of the folder `path`, as `private/**` does for
    /// `private`.
    pub fn covers_entries(&self, path: impl AsRef<Path>) -> bool {
        self.covers(path.as_ref().join(ANY_NAME))
    }

    /// True if each path that the glob matches lies below the folder `path`: the names before the
    /// first pattern of the glob say so.
    pub fn is_below(&self, path: impl AsRef<Path>) -> bool {
        let is_plain = |name: &&str| !name.contains(['*', '?', '[', '{', '\\']);
        let fixed: PathBuf = self.text.split('/').take_while(is_plain).collect();
        let fixed = if self.is_absolute() { Path::new("/").join(fixed) } else { fixed };
        let path = path.as_ref();
        !path.as_os_str().is_empty() && fixed.starts_with(path)
    }
}

/// Globs of the paths that a tool must leave out.
#[derive(Debug, Clone, Default)]
pub struct PathGlobs {
    globs: Vec<PathGlob>,
    /// Folder of the tools, and the folder for which absolute globs are written instead. `None`: they
    /// are the same.
    moved: Option<(PathBuf, PathBuf)>,
}

impl PathGlobs {
    /// Creates a list of `globs`.
    pub fn new(globs: Vec<PathGlob>) -> PathGlobs {
        PathGlobs { globs, moved: None }
    }

    /// Returns the same list for tools that work in the folder `copy`, a copy of the folder
    /// `original`.
    #[must_use]
    pub fn in_copy(&self, copy: &Path, original: &Path) -> PathGlobs {
        let moved = Some((copy.to_owned(), original.to_owned()));
        PathGlobs { globs: self.globs.clone(), moved }
    }

    /// True if no path is left out.
    pub fn is_empty(&self) -> bool {
        self.globs.is_empty()
    }

    /// True if a glob matches the path or a folder above it. `relative`: the path relative to the
    /// root of the workspace.
    pub fn covers(&self, absolute: &Path, relative: &Path) -> bool {
        let original = || {
            let (copy, original) = self.moved.as_ref()?;
            Some(original.join(absolute.strip_prefix(copy).ok()?))
        };
        self.globs.iter().any(|glob| {
            if glob.is_absolute() {
                glob.covers(original().as_deref().unwrap_or(absolute))
            } else {
                glob.covers(relative)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> PathGlob {
        PathGlob::new(text.to_owned()).unwrap()
    }

    #[test]
    fn a_folder_covers_what_is_in_it() {
        for (text, covered, free) in [
            ("private/**", "private/x private/a/b", "private public/x sub/private/x"),
            ("private", "private private/x private/a/b", "privates sub/private"),
            ("private/*", "private/x private/a/b", "private"),
            ("**/*.key", "a.key a/b.key a/b.key/c", "a.keys"),
            ("/w/private/**", "/w/private/x", "private/x /x/private/x"),
        ] {
            for path in covered.split(' ') {
                assert!(glob(text).covers(path), "{text} {path}");
            }
            for path in free.split(' ') {
                assert!(!glob(text).covers(path), "{text} {path}");
            }
        }
    }

    #[test]
    fn folders_are_told_by_what_a_glob_matches_in_them() {
        let private = glob("sub/private/**");
        assert!(private.covers_entries("sub/private") && !private.covers_entries("sub"));
        assert!(private.is_below("sub") && private.is_below("sub/private"));
        assert!(!private.is_below("su") && !private.is_below("") && !private.is_below("sub/other"));
        assert!(!glob("sub/*.key").covers_entries("sub"));
        assert!(!glob("**/x").is_below("sub"));
        assert!(glob("/w/private/x").is_below("/w/private"));
    }

    #[test]
    fn absolute_globs_count_in_a_copy() {
        let globs = PathGlobs::new(vec![glob("/w/private/**"), glob("own/*")]);
        let covers = |globs: &PathGlobs, absolute: &str, relative: &str| {
            globs.covers(Path::new(absolute), Path::new(relative))
        };
        assert!(covers(&globs, "/w/private/x", "private/x"));
        assert!(!covers(&globs, "/copy/private/x", "private/x"));
        let copied = globs.in_copy(Path::new("/copy"), Path::new("/w"));
        assert!(covers(&copied, "/copy/private/x", "private/x"));
        assert!(covers(&copied, "/copy/own/x", "own/x"));
        assert!(!covers(&copied, "/copy/public/x", "public/x"));
    }
}
