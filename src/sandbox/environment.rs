//! Environment variables of a command: an allow-list, plus settings that prevent prompts of
//! programs.
//!
//! Everything that is not on the list is excluded: keys, tokens, agent sockets, and variables that
//! make a program load code.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names of variables with network settings: proxies and TLS roots.
pub const NETWORK: [&str; 11] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NIX_SSL_CERT_FILE",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// Names of variables that are passed on to commands, in addition to [`NETWORK`] and `LC_*`.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "CI",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "GOMODCACHE",
    "GOFLAGS",
    "GOPROXY",
    "JAVA_HOME",
    "ANDROID_HOME",
    "GRADLE_USER_HOME",
    "MAVEN_HOME",
    "NVM_DIR",
    "NVM_BIN",
    "VOLTA_HOME",
    "FNM_DIR",
    "BUN_INSTALL",
    "PNPM_HOME",
    "DENO_DIR",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "RBENV_ROOT",
    "GEM_HOME",
    "GEM_PATH",
    "COMPOSER_HOME",
    "DOTNET_ROOT",
    "PKG_CONFIG_PATH",
];

/// Variables with a fixed value for every command. Most turn off prompts, editors, pagers and
/// colours, because no person sees or answers them. The last ones are settings of git.
const SET: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PAGER", "cat"),
    ("PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    // The recorded resolutions of conflicts in a repository are protected.
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "rerere.enabled"),
    ("GIT_CONFIG_VALUE_0", "false"),
];

/// Variables with the cache of a program that fails if it cannot write there, and the folder below
/// the home folder that the program uses without the variable.
const CACHES: &[(&str, &str)] = &[
    ("npm_config_cache", ".npm"),
    ("UV_CACHE_DIR", ".cache/uv"),
    ("BUN_INSTALL_CACHE_DIR", ".bun/install/cache"),
];

/// `PATH` of commands if posse itself has none.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Derives the environment of a command from `ours`, the environment of posse. Only variables of
/// the allow-list are passed on, without those that have a user name or password in a URL. Adds
/// `PATH` if it is missing, and the variables of `SET`.
pub(crate) fn of(ours: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<(OsString, OsString)> =
        ours.filter(|(name, value)| is_passed(name) && !carries_password(name, value)).collect();
    if !environment.iter().any(|(name, _)| name == "PATH") {
        environment.push(("PATH".into(), PATH_DEFAULT.into()));
    }
    environment.extend(SET.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    environment
}

/// Returns variables that move caches into `temporary`, the folder for temporary files of the session:
/// those of [`CACHES`] whose usual folder below `home` is not below one of the `writable` folders.
pub(crate) fn caches(
    home: &Path,
    writable: &[String],
    temporary: &Path,
) -> impl Iterator<Item = (OsString, OsString)> {
    CACHES.iter().filter_map(move |(variable, usual)| {
        let usual = home.join(usual);
        let is_writable = writable.iter().any(|root| usual.starts_with(root));
        let moved = temporary.join(".cache").join(variable);
        (!is_writable).then(|| (OsString::from(variable), moved.into_os_string()))
    })
}

fn is_passed(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        name.starts_with("LC_") || PASSED.contains(&name) || NETWORK.contains(&name)
    })
}

/// True if the value contains a URL with a user name or password (`user:password@host`). In a proxy
/// variable, an address without a scheme counts as well.
fn carries_password(name: &OsStr, value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    let is_proxy = name.to_ascii_lowercase().as_bytes().ends_with(b"_proxy");
    // The value may be a list of addresses, and a proxy needs no scheme.
    value.split([',', '|', ' ']).any(|address| {
        let (is_address, rest) = match address.split_once("://") {
            Some((_, rest)) => (true, rest),
            None => (is_proxy, address),
        };
        is_address && rest.split('/').next().is_some_and(|host| host.contains('@'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ours: &[(&str, &str)]) -> Vec<String> {
        let ours = ours.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        of(ours).into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn keeps_toolchains_and_drops_secrets_and_loaders() {
        let given = [
            ("PATH", "/bin"),
            ("CARGO_HOME", "/c"),
            ("LC_ALL", "C"),
            ("OPENAI_API_KEY", "k"),
            ("AWS_SECRET_ACCESS_KEY", "k"),
            ("GITHUB_TOKEN", "k"),
            ("LD_PRELOAD", "/x.so"),
            ("BASH_ENV", "/x"),
            ("ENV", "/x"),
            ("PROMPT_COMMAND", "x"),
            ("GIT_SSH_COMMAND", "x"),
            ("SSH_AUTH_SOCK", "/s"),
            ("NODE_OPTIONS", "--require x"),
            ("RUSTC_WRAPPER", "x"),
            ("XDG_RUNTIME_DIR", "/run"),
            ("COLORTERM", "truecolor"),
        ];
        let names = names(&given);
        let passed: Vec<&str> = given
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| names.iter().any(|n| n == name))
            .collect();
        assert_eq!(passed, ["PATH", "CARGO_HOME", "LC_ALL"]);
    }

    #[test]
    fn caches_outside_of_writable_folders_are_temporary() {
        let caches = |writable: &[&str]| {
            let writable: Vec<String> = writable.iter().map(|root| (*root).to_owned()).collect();
            let caches = caches(Path::new("/home/me"), &writable, Path::new("/tmp"));
            caches.map(|(name, _)| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        let all = ["npm_config_cache", "UV_CACHE_DIR", "BUN_INSTALL_CACHE_DIR"];
        assert_eq!(caches(&["/home/me/shop", "/home/me/.np"]), all);
        assert_eq!(caches(&["/home/me/.npm", "/home/me/.cache"]), ["BUN_INSTALL_CACHE_DIR"]);
        assert!(caches(&["/home/me"]).is_empty());
    }

    #[test]
    fn a_proxy_with_a_password_stays_out() {
        let with = names(&[("https_proxy", "http://user:secret@proxy:1")]);
        assert!(!with.contains(&"https_proxy".to_owned()));
        for (name, value) in [
            ("HTTP_PROXY", "user:secret@proxy:1"),
            ("GOPROXY", "https://a,https://user:secret@b/x|direct"),
        ] {
            assert!(!names(&[(name, value)]).contains(&name.to_owned()), "{name}");
        }
        let without = names(&[("https_proxy", "http://proxy:1")]);
        assert!(without.contains(&"https_proxy".to_owned()));
    }

    #[test]
    fn environment_disables_prompts_and_has_a_path() {
        let ours = std::iter::once(("PAGER".into(), "less".into()));
        let environment = of(ours);
        let get = |name: &str| {
            let found: Vec<_> = environment.iter().filter(|(n, _)| n == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            found[0].1.clone()
        };
        assert_eq!(get("PAGER"), "cat");
        assert_eq!(get("GIT_TERMINAL_PROMPT"), "0");
        assert_eq!(get("TERM"), "dumb");
        assert_eq!(get("PATH"), PATH_DEFAULT);
    }
}
