//! What paths mean to the policy: secrets, places that control what runs later, vendored code.
//!
//! Names are compared without regard to case, because some file systems do.

/// Names that decide what runs later: hooks, configuration, trust.
const CONTROL: [&str; 4] = [".git", ".posse", ".agents", ".mcp.json"];

/// Whether writing there decides what runs later: asked about each time.
pub fn is_protected(relative: &str) -> bool {
    relative.split('/').any(|part| CONTROL.iter().any(|name| part.eq_ignore_ascii_case(name)))
}

pub(crate) fn is_vendored(relative: &str) -> bool {
    relative.split('/').any(|part| part.eq_ignore_ascii_case("node_modules"))
}

/// Whether `path` is `folder` or below it. Both are absolute and resolved; one that climbs is not
/// below anything.
pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    let climbs = path.split('/').any(|part| part == ".." || part == ".");
    path.starts_with('/')
        && !climbs
        && path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_paths_by_their_parts() {
        assert!(is_below("/w/a", "/w") && is_below("/w", "/w/") && is_below("/a", "/"));
        assert!(!is_below("/wx", "/w") && !is_below("/w/../x", "/w") && !is_below("w", ""));
    }
}
