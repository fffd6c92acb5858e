//! Names of files that may hold secrets, in the text of commands. Files are not looked at here, so
//! more names count than those that file tools deny.

use posse_base::secrets::is_secret;

use crate::shell::Names;
use crate::shell::word::{active, braces, matches, shown};

/// Names of files that often hold credentials.
const NAMES: Names = Names(
    "\
    .mcp.json .envrc .bash_history .zsh_history .history .python_history .psql_history \
    .mysql_history authorized_keys known_hosts shadow gshadow sudoers master.key environ",
);
/// Words that make the name of a data file sensitive.
const WORDS: Names =
    Names("service-account secret credential passwd password token apikey kubeconfig");
/// Extensions of data files.
const DATA: Names = Names("json yaml yml toml ini txt env conf cfg properties xml csv enc db");
/// Suffixes that make any name sensitive.
const ENDINGS: [&str; 6] = [".env", ".tfstate", ".tfvars", ".gpg", ".asc", ".ovpn"];
/// Sensitive names against which globs are tested.
const SAMPLES: Names = Names(
    "\
    prod.env .env .env.local .env.production .npmrc .netrc .envrc .git-credentials .pgpass .pypirc \
    id_rsa id_ed25519 server.pem server.key secrets.json credentials .ssh",
);

/// True if a path may name a secret.
pub(crate) fn is_sensitive(path: &str) -> bool {
    if is_secret(path) {
        return true;
    }
    let path = path.trim_end_matches('/');
    let lower = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let (stem, ending) = lower.rsplit_once('.').unwrap_or((&lower, ""));
    let data = ending.is_empty() || DATA.has(ending) || stem.is_empty();
    NAMES.has(&lower)
        || ENDINGS.iter().any(|known| lower.ends_with(known))
        || (data && WORDS.iter().any(|word| lower.contains(word)) && looks_like_file(&lower))
        || (data && !ending.is_empty() && path.split('/').rev().skip(1).any(is_store))
        || path.ends_with(".git/config")
}

/// True for the folder names `secrets`, `secret` and `credentials`, in any case. Data files in such
/// a folder are sensitive.
fn is_store(part: &str) -> bool {
    ["secrets", "secret", "credentials"].iter().any(|name| part.eq_ignore_ascii_case(name))
}

/// True if a name in lower case looks like that of a file: it contains `.` or `_`, ends with `s`,
/// or is `passwd`. A single word, such as `token`, may as well be a version or a test.
fn looks_like_file(lower: &str) -> bool {
    lower.contains(['.', '_']) || lower.ends_with('s') || lower == "passwd"
}

/// True if a pattern of file names may match a secret. Unlike in a shell, `*` matches a leading dot;
/// a backslash only quotes the next character.
pub(crate) fn selects_sensitive(pattern: &str) -> bool {
    // The magic words of git's patterns: `:(icase)name`.
    let pattern = pattern
        .strip_prefix(":(")
        .and_then(|rest| rest.split_once(')'))
        .map_or(pattern, |(_, rest)| rest);
    let marked: String = pattern
        .chars()
        .filter(|c| *c != '\\')
        .map(|c| if "*?[{,}".contains(c) { active(c) } else { c.to_ascii_lowercase() })
        .collect();
    braces(&marked).iter().any(|one| {
        let name = one.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
        let selects = |sample| !is_ordinary(name) && matches(name, sample);
        is_sensitive(&shown(one)) || SAMPLES.iter().any(selects)
    })
}

/// True if a pattern of file names can match `.mcp.json`, a hidden file that often holds
/// credentials although its extension is ordinary.
pub(crate) fn selects_hidden(pattern: &str) -> bool {
    let plain = pattern.chars().filter(|c| *c != '\\');
    let marked: String = plain.map(|c| if "*?[{,}".contains(c) { active(c) } else { c }).collect();
    braces(&marked).iter().any(|one| {
        let name = one.rsplit('/').next().unwrap_or_default();
        matches(name, ".mcp.json")
    })
}

/// True for a pattern such as `*.rs` or `*.json`: all files of an ordinary kind.
fn is_ordinary(name: &str) -> bool {
    let ending = name.strip_prefix(active('*')).and_then(|rest| rest.strip_prefix('.'));
    ending.is_some_and(is_ordinary_ending)
}

/// True if the extension makes no name sensitive: neither `x.EXTENSION` nor `.EXTENSION`.
fn is_ordinary_ending(ending: &str) -> bool {
    let sensitive = |before| is_sensitive(&format!("{before}{ending}"));
    ending.chars().all(|c| c.is_ascii_alphanumeric()) && !["x.", "."].into_iter().any(sensitive)
}

/// True if a glob in `path` may match a secret. `lists`: the program only lists names, so that only
/// globs which begin with a dot count.
pub(crate) fn may_be_sensitive(path: &str, lists: bool) -> bool {
    let parts = || path.split('/').filter(|part| !part.is_empty());
    // Files of such a kind are no secrets in any folder that is not hidden.
    let last = parts().next_back().unwrap_or_default();
    let ending = last.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default();
    let code = !ending.is_empty() && !DATA.has(ending) && is_ordinary_ending(ending);
    let folders = parts().count().saturating_sub(1);
    parts().enumerate().any(|(at, part)| {
        if !crate::shell::word::is_glob(part) {
            return false;
        }
        // A leading dot is matched by itself only, and a listing shows no content.
        let plain = !lists && (at == folders || !code);
        SAMPLES.iter().any(|sample| {
            (part.starts_with('.') || (plain && !sample.starts_with('.'))) && matches(part, sample)
        })
    })
}
