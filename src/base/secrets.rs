//! Names of secret files: one table for the policy, the sandbox, and searches, which skip secret
//! files.
//!
//! [`is_secret`] compares names case-insensitively, because some file systems do that. Secrets
//! known by value are redacted by a mask (`src/base/secrets/mask.rs`).

pub mod files;
pub mod key_patterns;
pub mod mask;
pub mod readable;

/// Folders whose whole content is secret.
pub const SECRET_FOLDERS: [&str; 7] =
    [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store", ".posse-login"];
/// Names of files that contain credentials, in any folder.
const SECRET_FILES: [&str; 23] = [
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
    "credentials.tfrc.json",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ecdsa_sk",
    "id_ed25519_sk",
    ".dev.vars",
    "client_secret.json",
    "service-account.json",
    "service_account.json",
    "serviceaccountkey.json",
];
/// Suffixes of files that contain keys or credentials.
const SECRET_ENDINGS: [&str; 11] = [
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".kdbx",
    ".jks",
    ".keystore",
    ".ppk",
    ".ovpn",
    ".tfstate",
    ".tfstate.backup",
];
/// Names of files and folders that are secret only directly in a folder of a certain name: name of
/// the folder, and secret name.
pub const SECRET_PAIRS: [(&str, &str); 9] = [
    (".codex", "auth.json"),
    (".docker", "config.json"),
    ("gh", "hosts.yml"),
    (".config", "gcloud"),
    ("share", "keyrings"),
    (".cargo", "credentials"),
    (".cargo", "credentials.toml"),
    (".gem", "credentials"),
    (".streamlit", "secrets.toml"),
];
/// Suffixes of copies that editors and people make of a file beside it: backups of Emacs, swap files
/// of Vim, and usual names.
const COPY_ENDINGS: [&str; 9] =
    ["~", ".bak", ".backup", ".old", ".orig", ".save", ".swn", ".swo", ".swp"];
/// Suffixes that make an `.env` file an example.
pub const EXAMPLES: [&str; 3] = [".example", ".sample", ".template"];

/// Paths of credential stores below the home folder: files, and folders with all their contents.
/// Paths that [`is_secret`] recognises are listed as well, because the sandbox does not scan the
/// home folder for them.
pub const HOME_STORES: [&str; 164] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".password-store",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".git-credentials",
    ".config/git/credentials",
    ".htpasswd",
    ".dockercfg",
    ".docker/config.json",
    ".config/containers/auth.json",
    ".vault-token",
    ".terraformrc",
    ".terraform.d/credentials.tfrc.json",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings-security.xml",
    ".streamlit/secrets.toml",
    ".config/composer/auth.json",
    ".composer/auth.json",
    ".config/pypoetry/auth.toml",
    ".authinfo",
    ".authinfo.gpg",
    // Commands that were typed often contain passwords and tokens.
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".local/share/fish/fish_history",
    ".config/gh/hosts.yml",
    ".config/hub",
    ".config/glab-cli",
    ".config/gcloud",
    ".config/doctl",
    ".config/heroku",
    ".config/flyctl",
    ".fly",
    ".config/rclone",
    ".config/op",
    ".config/1Password",
    ".config/Bitwarden",
    ".config/sops",
    ".config/age",
    ".oci",
    ".bluemix",
    ".boto",
    ".s3cfg",
    ".databrickscfg",
    ".snowflake",
    ".kaggle",
    ".huggingface/token",
    ".cache/huggingface/token",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    "snap/firefox",
    // The whole folder: a renewed login is a new file, which a mount over the old one does not
    // hide.
    ".codex",
    ".claude/.credentials.json",
    ".claude.json",
    ".gemini/oauth_creds.json",
    ".qwen/oauth_creds.json",
    ".local/share/opencode/auth.json",
    ".config/github-copilot",
    ".bitcoin",
    ".cloudflared",
    ".config/.wrangler",
    ".config/Code/User/globalStorage",
    ".config/Cursor/User/globalStorage",
    ".config/Signal",
    ".config/Slack",
    ".config/configstore/firebase-tools.json",
    ".config/discord",
    ".config/filezilla",
    ".config/goose/secrets.yaml",
    ".config/hcloud",
    ".config/io.datasette.llm",
    ".config/netlify",
    ".config/ngrok",
    ".config/scw",
    ".config/solana",
    ".config/stripe",
    ".config/wireguard",
    ".electrum",
    ".ethereum",
    ".lesshst",
    ".local/share/amp/secrets.json",
    ".local/share/atuin",
    ".local/share/com.vercel.cli",
    ".local/share/uv/credentials",
    ".netlify",
    ".ngrok2",
    ".pki",
    ".pulumi/credentials.json",
    ".railway",
    ".subversion/auth",
    ".supabase",
    ".vercel",
    ".viminfo",
    ".wrangler",
    ".config/Element",
    ".config/Mattermost",
    ".config/isyncrc",
    ".config/msmtp",
    ".config/zen",
    ".dbeaver4",
    ".fetchmailrc",
    ".floorp",
    ".librewolf",
    ".local/share/DBeaverData",
    ".local/share/TelegramDesktop",
    ".mbsyncrc",
    ".msmtprc",
    ".purple",
    ".var/app",
    ".waterfox",
    ".zen",
    ".Xauthority",
    ".acme.sh",
    ".cache/huggingface/stored_tokens",
    ".config/Code - Insiders/User/globalStorage",
    ".config/VSCodium/User/globalStorage",
    ".config/Windsurf/User/globalStorage",
    ".config/aerc",
    ".config/borg",
    ".config/fish/fish_variables",
    ".config/nushell/history.txt",
    ".config/syncthing",
    ".config/weechat",
    ".continue",
    ".cursor/mcp.json",
    ".doppler",
    ".irb_history",
    ".local/share/jupyter/runtime",
    ".local/state/nvim/shada",
    ".minikube",
    ".modal.toml",
    ".offlineimaprc",
    ".rediscli_history",
    ".sqlite_history",
    ".step",
    ".tsh",
    ".vscode-server/data/User/globalStorage",
    "Library/Keychains",
    "Library/Cookies",
    "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox",
    ".env",
];

/// True if `path` names a secret file, a secret folder or a path below one, judged by names alone.
/// No grant lets a file tool access it; only the setting `sandbox.readSecrets` permits reading.
///
/// Called for every file of a search, so it does not allocate.
pub fn is_secret(path: &str) -> bool {
    let same = |known: &str, part: &str| known.eq_ignore_ascii_case(part);
    let mut above = "";
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if SECRET_FOLDERS.iter().any(|folder| same(folder, part)) {
            return true;
        }
        if SECRET_PAIRS.iter().any(|(folder, file)| same(file, part) && same(folder, above)) {
            return true;
        }
        above = part;
    }
    is_secret_name(above) || copied_name(above).is_some_and(is_secret_name)
}

fn is_secret_name(name: &str) -> bool {
    is_environment_file(name)
        || SECRET_FILES.iter().any(|file| file.eq_ignore_ascii_case(name))
        || SECRET_ENDINGS.iter().any(|ending| ends_with(name, ending))
}

/// Name of the file of which `name` is a copy, such as `id_rsa` for `.id_rsa.swp` and `#id_rsa#`. `None`
/// if it is no copy.
fn copied_name(name: &str) -> Option<&str> {
    if let Some(inner) = name.strip_prefix('#').and_then(|rest| rest.strip_suffix('#')) {
        return Some(inner);
    }
    let ending = COPY_ENDINGS.iter().find(|ending| ends_with(name, ending))?;
    let original = &name[..name.len() - ending.len()];
    // Vim puts a dot before the name unless it begins with one.
    let without_dot = original.strip_prefix('.').filter(|_| ending.starts_with(".sw"));
    Some(without_dot.filter(|rest| is_secret_name(rest)).unwrap_or(original))
}

/// Returns patterns of the names of secret files, in lower case, in which `*` stands for any
/// characters. They may match further names, such as examples, but miss none.
pub fn name_patterns() -> impl Iterator<Item = String> {
    let names = SECRET_FOLDERS.iter().chain(&SECRET_FILES).map(|name| (*name).to_owned());
    let endings = SECRET_ENDINGS.iter().map(|ending| format!("*{ending}"));
    let names: Vec<String> = names.chain(endings).chain(["*.env".to_owned()]).collect();
    let copies: Vec<String> = names
        .iter()
        .flat_map(|name| {
            let copy = |ending: &&str| {
                let dot =
                    if ending.starts_with(".sw") && !name.starts_with('.') { "." } else { "" };
                format!("{dot}{name}{ending}")
            };
            COPY_ENDINGS.iter().map(copy).chain([format!("#{name}#")]).collect::<Vec<_>>()
        })
        .collect();
    names.into_iter().chain(copies).chain([".env*".to_owned()])
}

fn ends_with(name: &str, ending: &str) -> bool {
    let start = name.len().checked_sub(ending.len());
    start.and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(ending))
}

/// True for `.env` and its variants, such as `.env.local` and `dev.env`, but not for examples of
/// them. `.environment` and `.envrc` do not match.
fn is_environment_file(name: &str) -> bool {
    if ends_with(name, ".env") {
        let stem = &name[..name.len() - 4];
        return !EXAMPLES.iter().any(|word| ends_with(stem, &word[1..]));
    }
    let Some((start, rest)) = name.split_at_checked(4) else { return false };
    if !start.eq_ignore_ascii_case(".env") {
        return false;
    }
    let variant = rest.chars().next().is_none_or(|next| !next.is_alphanumeric());
    variant && !EXAMPLES.iter().any(|ending| ends_with(rest, ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_secrets_from_examples() {
        let secret = [
            ".env",
            "a/.env",
            ".env.local",
            ".ENV",
            ".env.production.local",
            ".env~",
            ".env-prod",
            "dev.env",
            "config/prod.ENV",
            "terraform.tfstate",
            "terraform.tfstate.backup",
            "service-account.json",
            "vpn.ovpn",
            "id_rsa",
            "/home/u/.ssh/known_hosts",
            "certs/server.pem",
            "tls.KEY",
            ".netrc",
            "a/.aws/config",
            ".docker/config.json",
            ".cargo/credentials.toml",
            ".npmrc",
            "/h/.codex/auth.json",
            "x/.posse-login/auth.json",
            ".netrc.swp",
            ".id_rsa.swo",
            "server.pem~",
            "server.key.BAK",
            "#id_ed25519#",
            "prod.env.old",
            ".npmrc.orig",
            "/h/.config/gcloud/a/b",
        ];
        let open = [
            ".env.example",
            ".env.sample",
            "a/.env.template",
            ".env.local.example",
            ".envrc",
            ".environment",
            "example.env",
            "dev.sample.env",
            "dev.env.rs",
            "main.tf",
            "env",
            "id_rsa.pub",
            "id_rsa.pub.bak",
            "main.rs~",
            "notes.bak",
            ".main.rs.swp",
            "#notes#",
            "~",
            "config.json",
            "docker/config.json",
            "src/key.rs",
            "monkey",
            "infra/gcloud/main.tf",
            "credentials.toml",
            "gh/x",
            ".codex/config.toml",
            ".",
            "",
        ];
        for path in secret {
            assert!(is_secret(path), "{path}");
        }
        for path in open {
            assert!(!is_secret(path), "{path}");
        }
    }
}
