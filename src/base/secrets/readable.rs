//! Files in `sandbox.readSecrets`: secrets that tools and commands may read.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// Paths and patterns of secrets that may be read. In a pattern, `?` stands for one byte and `*`
/// for any characters of one name, `**` for any number of folders. All other characters stand for
/// themselves.
#[derive(Debug, Clone, Default)]
pub struct ReadableSecrets {
    paths: Vec<PathBuf>,
    patterns: Vec<GlobMatcher>,
}

impl ReadableSecrets {
    /// Sorts absolute paths and patterns. A pattern that cannot be compiled matches nothing.
    pub fn new(entries: impl IntoIterator<Item = PathBuf>) -> ReadableSecrets {
        let (patterns, paths): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| is_pattern(entry));
        let patterns = patterns.iter().filter_map(|pattern| matcher(&pattern.to_string_lossy()));
        ReadableSecrets { paths, patterns: patterns.collect() }
    }

    /// True if the resolved `path` is listed or matches a pattern. A listed folder does not cover its
    /// contents.
    pub fn contains(&self, path: &Path) -> bool {
        self.paths.iter().any(|listed| listed == path)
            || self.patterns.iter().any(|pattern| pattern.is_match(path))
    }

    /// True if the resolved `path`, or a folder above it, is listed or matches a pattern.
    pub fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|path| self.contains(path))
    }
}

/// True if `entry` has `*` or `?`, so that it is a pattern.
pub fn is_pattern(entry: &Path) -> bool {
    entry.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b'*' | b'?'))
}

/// Splits a pattern before its first name with `*` or `?`: the folder before it, and the rest.
pub fn split_pattern(pattern: &Path) -> (PathBuf, PathBuf) {
    let is_plain = |part: &std::path::Component<'_>| !is_pattern(Path::new(part.as_os_str()));
    let folder: PathBuf = pattern.components().take_while(is_plain).collect();
    (folder, pattern.components().skip_while(is_plain).collect())
}

fn matcher(pattern: &str) -> Option<GlobMatcher> {
    let mut escaped = String::with_capacity(pattern.len());
    for char in pattern.chars() {
        match char {
            '[' | ']' | '{' | '}' => escaped.extend(['[', char, ']']),
            '\\' => escaped.push_str("\\\\"),
            _ => escaped.push(char),
        }
    }
    let mut glob = GlobBuilder::new(&escaped);
    let glob = glob.literal_separator(true).backslash_escape(true).build();
    glob.ok().map(|glob| glob.compile_matcher())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_names_and_folders() {
        let readable = ReadableSecrets::new(
            ["/w/.env*", "/w/certs/**/*.pem", "/w/[a]{b}/?.key", "/w/plain/.env", "/w/d*"]
                .map(PathBuf::from),
        );
        for path in [
            "/w/.env",
            "/w/.env.local",
            "/w/certs/x.pem",
            "/w/certs/a/b/x.pem",
            "/w/[a]{b}/e.key",
            "/w/plain/.env",
        ] {
            assert!(readable.contains(Path::new(path)), "{path}");
        }
        for path in ["/w/a/.env", "/w/.env/x", "/x/certs/x.pem", "/w/ab/x.key", "/w/[a]{b}/xx.key"]
        {
            assert!(!readable.contains(Path::new(path)), "{path}");
        }
        assert!(readable.covers(Path::new("/w/dir/.env")) && !readable.covers(Path::new("/w/x")));
    }

    #[test]
    fn pattern_is_split_before_its_first_wildcard() {
        for (pattern, folder, rest) in
            [("/a/b/*.pem", "/a/b", "*.pem"), ("/**/x", "/", "**/x"), ("/a/x?/c", "/a", "x?/c")]
        {
            let (found, left) = split_pattern(Path::new(pattern));
            assert_eq!((found, left), (PathBuf::from(folder), PathBuf::from(rest)));
        }
    }
}
