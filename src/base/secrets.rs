//! Names of secret files: one table for the policy, the sandbox, and searches, which skip secret
//! files.
//!
//! [`is_secret`] compares names case-insensitively, because some file systems do that. Secrets
//! known by value are redacted by a mask (`src/base/secrets/mask.rs`).

pub mod files;
pub mod key_patterns;
pub mod mask;
pub mod readable;
pub mod way;

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
/// Last extensions of copies that people and programs make of a file beside it. Backups of Emacs
/// (`NAME~`, `NAME.~1~`, `#NAME#`) and of Terraform (`NAME.1652345678.backup`) come in addition.
const COPY_ENDINGS: [&str; 5] = ["bak", "backup", "old", "orig", "save"];
/// Last extensions of Vim's undo and swap files. Vim also puts a dot before the name, in swap files
/// unless it begins with one.
const VIM_ENDINGS: [&str; 4] = ["un~", "swn", "swo", "swp"];
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
/// Copies count like the original, and a folder with the name of a secret file, such as `.env/`, is a
/// secret folder. In an absolute path, only the last name counts as that of a file: a folder above
/// the workspace may have any name.
///
/// Called for every file of a search, so it does not allocate.
pub fn is_secret(path: &str) -> bool {
    let is_absolute = path.starts_with('/');
    let mut above = Names::default();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let names = Names::of(part);
        if names.are_secret_in(above) || (!is_absolute && names.are_of_secret_file()) {
            return true;
        }
        above = names;
    }
    is_absolute && above.are_of_secret_file()
}

/// A name, and the names of files of which it may be a copy, such as `id_rsa` for `.id_rsa.swp` and
/// `#id_rsa#`.
#[derive(Clone, Copy, Default)]
struct Names<'a>([Option<&'a str>; 3]);

impl<'a> Names<'a> {
    fn of(name: &'a str) -> Names<'a> {
        let ending = |endings: &[&str], ending: &str| {
            endings.iter().any(|known| known.eq_ignore_ascii_case(ending))
        };
        let (before, last) = name.rsplit_once('.').unwrap_or((name, ""));
        let (original, other) = if ending(&VIM_ENDINGS, last) {
            (Some(before), before.strip_prefix('.'))
        } else if ending(&COPY_ENDINGS, last) {
            (Some(before), without_number(before))
        } else if let Some(before) = name.strip_suffix('~') {
            let numbered = before.rsplit_once(".~").filter(|(_, number)| is_number(number));
            (Some(before), numbered.map(|(original, _)| original))
        } else {
            (name.strip_prefix('#').and_then(|rest| rest.strip_suffix('#')), None)
        };
        Names([Some(name), original, other])
    }

    fn all(self) -> impl Iterator<Item = &'a str> {
        self.0.into_iter().flatten()
    }

    /// True if one of the names, in a folder with the names `above`, is that of a secret folder or
    /// in [`SECRET_PAIRS`].
    fn are_secret_in(self, above: Names<'_>) -> bool {
        let same = |known: &str, name: &str| known.eq_ignore_ascii_case(name);
        let is_in = |folder: &str| above.all().any(|above| same(folder, above));
        self.all().any(|name| {
            SECRET_FOLDERS.iter().any(|folder| same(folder, name))
                || SECRET_PAIRS.iter().any(|(folder, file)| same(file, name) && is_in(folder))
        })
    }

    fn are_of_secret_file(self) -> bool {
        self.all().any(|name| {
            // Most names of folders end here.
            name.contains(['.', '_'])
                && (is_environment_file(name)
                    || SECRET_FILES.iter().any(|file| file.eq_ignore_ascii_case(name))
                    || SECRET_ENDINGS.iter().any(|ending| ends_with(name, ending)))
        })
    }
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
            let beside = COPY_ENDINGS.iter().chain(&VIM_ENDINGS);
            let beside = beside.map(|ending| format!("{name}.{ending}"));
            // A `*` stands for the dot, too.
            let dotted = VIM_ENDINGS.iter().filter(|_| !name.starts_with('*'));
            let dotted = dotted.map(|ending| format!(".{name}.{ending}"));
            let numbered = COPY_ENDINGS.iter().map(|ending| format!("{name}.*.{ending}"));
            let of_emacs = [format!("{name}~"), format!("{name}.~*~"), format!("#{name}#")];
            beside.chain(dotted).chain(numbered).chain(of_emacs).collect::<Vec<_>>()
        })
        .collect();
    names.into_iter().chain(copies).chain([".env*".to_owned()])
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `name` without an extension that is a number. `None` if it has none.
fn without_number(name: &str) -> Option<&str> {
    name.rsplit_once('.').filter(|(_, number)| is_number(number)).map(|(before, _)| before)
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
        check(&secret, &open);
    }

    fn check(secret: &[&str], open: &[&str]) {
        for path in secret {
            assert!(is_secret(path), "{path}");
        }
        for path in open {
            assert!(!is_secret(path), "{path}");
        }
    }

    #[test]
    fn names_of_secret_files_have_a_dot_or_an_underscore() {
        assert!(SECRET_FILES.iter().chain(&SECRET_ENDINGS).all(|name| name.contains(['.', '_'])));
    }

    #[test]
    fn copies_of_secrets_are_secrets() {
        let secret = [
            ".netrc.swp",
            ".id_rsa.swo",
            "server.pem~",
            "server.key.BAK",
            "#id_ed25519#",
            "prod.env.old",
            ".npmrc.orig",
            "id_rsa.un~",
            "id_rsa.~1~",
            "keys/key.pem.~12~",
            "terraform.tfstate.1652345678.backup",
            ".netrc.1.bak",
            ".id_rsa.un~",
            "key.pem.un~",
            "..env.un~",
            ".docker/config.json~",
            ".docker/.config.json.swp",
            ".docker/#config.json#",
            ".docker.bak/config.json",
            ".cargo/.credentials.toml.swp",
            ".streamlit/.secrets.toml.un~",
            "a/.aws.bak/config",
        ];
        let open = [
            "id_rsa.pub.bak",
            "id_rsa.pub.~1~",
            "main.tf.1652345678.backup",
            "id_rsa.~x~",
            "main.rs~",
            "notes.bak",
            ".main.rs.swp",
            "#notes#",
            "~",
            ".un~",
            "main.rs.un~",
            ".docker/daemon.json~",
            ".docker/a/config.json~",
            "docker/.config.json.swp",
        ];
        check(&secret, &open);
    }

    #[test]
    fn folder_with_the_name_of_a_secret_file_is_a_secret_folder() {
        let secret = [".env/real", "a/prod.env.old/x", "certs/server.pem/x/y", ".env/../x"];
        // A workspace may be below such a folder.
        let open = [".env.example/x", "env/x", "id_rsa.pub/x", "/home/u/my.env/src/main.rs"];
        check(&secret, &open);
    }
}
