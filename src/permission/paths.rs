//! Path predicates of the policy. Protected names are in `src/base/protected.rs`.

/// True if a component of `relative` is `node_modules`, ignoring case. Other folders of package
/// managers do not count.
pub(crate) fn is_vendored(relative: &str) -> bool {
    relative.split('/').any(|part| part.eq_ignore_ascii_case("node_modules"))
}

/// True if `path` is `folder` or below it. Both are absolute and resolved; a path with `.` or `..`
/// is below nothing.
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
    fn paths_are_compared_by_component() {
        assert!(is_below("/w/a", "/w") && is_below("/w", "/w/") && is_below("/a", "/"));
        assert!(!is_below("/wx", "/w") && !is_below("/w/../x", "/w") && !is_below("w", ""));
    }
}
