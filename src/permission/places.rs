//! What paths mean to the policy: secrets, places that control what runs later, vendored code.
//!
//! Names are compared without regard to case, because some file systems do.

/// Names that decide what runs later or steer who runs it: hooks, configuration, trust,
/// instructions, pipelines, what editors and shells start by themselves.
const CONTROL: [&str; 34] = [
    ".git",
    ".gitconfig",
    ".posse",
    ".agents",
    ".mcp.json",
    "AGENTS.md",
    "CLAUDE.md",
    ".envrc",
    ".vscode",
    ".husky",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".gitlab-ci.yml",
    ".gitlab-ci.yaml",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".xprofile",
    ".xsessionrc",
];
/// What decides it in one folder only.
const CONTROL_PAIRS: [(&str, &str); 4] = [
    (".github", "workflows"),
    (".cargo", "config.toml"),
    (".cargo", "config"),
    ("fish", "config.fish"),
];

/// Whether writing there decides what runs later: asked about each time.
pub fn is_protected(relative: &str) -> bool {
    let same = |known: &str, part: &str| known.eq_ignore_ascii_case(part);
    let mut above = "";
    relative.split('/').any(|part| {
        let folder = std::mem::replace(&mut above, part);
        CONTROL.iter().any(|name| same(name, part))
            || CONTROL_PAIRS.iter().any(|(outer, name)| same(outer, folder) && same(name, part))
    })
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
    fn protects_what_runs_or_steers_later() {
        let protected = [
            ".git/hooks/pre-commit",
            "AGENTS.md",
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
