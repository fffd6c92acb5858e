//! Which files a search must not look into.
//!
//! The policy judges the folder that a search starts from; what lies below it is skipped here. The
//! names are those that the policy denies to every tool.

use std::path::Path;

/// Folders whose whole content is secret.
const FOLDERS: [&str; 9] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".password-store",
    "gcloud",
    ".vault-token",
    "keyrings",
];

/// Files that hold credentials, wherever they are.
const FILES: [&str; 17] = [
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".htpasswd",
    ".dockercfg",
    ".vault-token",
    ".terraformrc",
    "credentials.toml",
    "credentials.tfrc.json",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
];

/// Endings of key files.
const ENDINGS: [&str; 9] =
    [".pem", ".key", ".p12", ".pfx", ".kdbx", ".jks", ".keystore", ".ppk", ".asc.key"];

/// Files that are secret in one folder only.
const PAIRS: [(&str, &str); 4] = [
    (".docker", "config.json"),
    ("gh", "hosts.yml"),
    (".cargo", "credentials"),
    (".gem", "credentials"),
];

/// Endings that make an `.env` file an example.
const EXAMPLES: [&str; 3] = [".example", ".sample", ".template"];

/// Whether `relative`, a path below a workspace root, names a secret. Case does not matter, because
/// it does not to some file systems.
pub fn is_secret(relative: &Path) -> bool {
    let mut above = String::new();
    for part in relative.components() {
        let part = part.as_os_str().to_string_lossy().to_ascii_lowercase();
        let is_pair = PAIRS.iter().any(|(folder, file)| *folder == above && *file == part);
        if is_pair || FOLDERS.contains(&part.as_str()) {
            return true;
        }
        above = part;
    }
    is_environment_file(&above)
        || FILES.contains(&above.as_str())
        || ENDINGS.iter().any(|ending| above.ends_with(ending))
}

/// `.env` and its variants, but not its examples. `.envrc` is another word.
fn is_environment_file(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(".env") else { return false };
    let is_variant = rest.chars().next().is_none_or(|next| !next.is_alphanumeric());
    is_variant && !EXAMPLES.iter().any(|ending| rest.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_secrets_from_examples() {
        for secret in [
            ".env",
            "a/.env",
            ".env.local",
            ".ENV",
            "id_rsa",
            "k/server.pem",
            "tls.KEY",
            ".netrc",
            "a/.aws/credentials",
            ".docker/config.json",
            ".ssh/config",
        ] {
            assert!(is_secret(Path::new(secret)), "{secret}");
        }
        for open in [
            ".env.example",
            ".env.sample",
            ".env.template",
            ".envrc",
            ".environment",
            "env",
            "src/config.json",
            "keys.rs",
            "id_rsa.rs",
            "docker/config.json",
        ] {
            assert!(!is_secret(Path::new(open)), "{open}");
        }
    }
}
