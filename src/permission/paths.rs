//! Path predicates of the policy. Protected names are in `src/base/protected.rs`.

pub(crate) fn is_vendored(relative: &str) -> bool {
    relative.split('/').any(|part| part.eq_ignore_ascii_case("node_modules"))
}

/// True if `path` is `folder` or below it. Both are absolute and resolved; a path with `..` is
/// below nothing.
pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    let climbs = path.split('/').any(|part| part == ".." || part == ".");
    path.starts_with('/')
        && !climbs
        && path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use posse_base::protected::is_protected;

    use super::*;

    #[test]
    fn protects_what_runs_or_steers_later() {
        let protected = [
            ".git/hooks/pre-commit",
            "AGENTS.md",
            "GEMINI.md",
            ".claude/settings.json",
            ".idea/runConfigurations/a.xml",
            ".gitmodules",
            "deep/er/claude.md",
            ".envrc",
            ".vscode/tasks.json",
            ".github/workflows/ci.yml",
            "sub/.GitHub/Workflows/ci.yml",
            ".github/workflows",
            ".gitlab-ci.yml",
            ".husky/pre-push",
            ".pre-commit-config.yaml",
            ".bashrc",
            "home/.profile",
            ".zshrc",
            ".npmrc",
            ".pnpmfile.cjs",
            ".cargo/config.toml",
            "crate/.cargo/config",
        ];
        let open = [
            "src/main.rs",
            ".github/CODEOWNERS",
            "workflows/ci.yml",
            ".github/docs/workflows.md",
            "docs/AGENTS.md.txt",
            "agents/README.md",
            "Cargo.toml",
            "config.toml",
            ".cargo/audit.toml",
            ".gitignore",
            "profile",
            "bashrc",
            ".",
            "",
        ];
        for path in protected {
            assert!(is_protected(path), "{path}");
        }
        for path in open {
            assert!(!is_protected(path), "{path}");
        }
    }

    #[test]
    fn compares_paths_by_their_parts() {
        assert!(is_below("/w/a", "/w") && is_below("/w", "/w/") && is_below("/a", "/"));
        assert!(!is_below("/wx", "/w") && !is_below("/w/../x", "/w") && !is_below("w", ""));
    }
}
