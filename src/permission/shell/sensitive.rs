//! Names of files that may hold secrets, in the text of commands. Files are not looked at here, so
//! more names count than those that file tools deny.

use std::sync::LazyLock;

use posse_base::secrets::{self, is_secret};

use crate::shell::Names;
use crate::shell::globs::NamePattern;
use crate::shell::word::{active, braces, is_glob, matches, shown};

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
const ENDINGS: [&str; 3] = [".tfvars", ".gpg", ".asc"];
/// Names of folders in which data files are sensitive.
const STORES: [&str; 3] = ["secrets", "secret", "credentials"];

/// Patterns of all sensitive names, without those that depend on the folder.
static PATTERNS: LazyLock<Vec<NamePattern>> = LazyLock::new(|| {
    let mut texts: Vec<String> = secrets::name_patterns().collect();
    texts.extend(NAMES.iter().map(str::to_owned));
    texts.extend(ENDINGS.iter().map(|ending| format!("*{ending}")));
    for word in WORDS.iter() {
        texts.extend(DATA.iter().map(|ending| format!("*{word}*.{ending}")));
        // Names without an extension, if they look like those of files.
        texts.extend([format!("*{word}*."), format!(".+{word}+"), format!("+{word}+s")]);
        texts.extend([format!("+{word}+_+"), format!("+_+{word}+"), format!("+{word}s")]);
    }
    texts.push("passwd".to_owned());
    texts.iter().map(|text| NamePattern::of_text(text)).collect()
});

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

/// True for the name of a folder in which data files are sensitive, in any case.
fn is_store(part: &str) -> bool {
    STORES.iter().any(|name| part.eq_ignore_ascii_case(name))
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
        is_sensitive(&shown(one)) || (!is_ordinary(name) && meets_sensitive(name, false, false))
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
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let Some((last, folders)) = parts.split_last() else { return false };
    let counts = |part: &&&str| is_glob(part) && (!lists || part.starts_with('.'));
    // A leading dot is matched by itself only.
    let meets = |part: &str, name: &str| {
        let is_visible = is_glob(part) && !part.starts_with('.');
        NamePattern::of_glob(part).meets(&NamePattern::of_text(name), is_visible)
    };
    let has_glob = parts.iter().any(|part| counts(&part));
    let is_pair = |pair: &[&str], folder: &str, name: &str| {
        pair.iter().any(|part| counts(&part)) && meets(pair[0], folder) && meets(pair[1], name)
    };
    let is_data = || DATA.iter().any(|ending| meets(last, &format!("*.{ending}")));
    // `*/Cargo.toml` means a file in each folder, not one in a folder of secrets.
    let is_any = |part: &str| part.chars().all(|c| c == active('*'));
    let names_store = |part: &&str| !is_any(part) && STORES.iter().any(|store| meets(part, store));
    (counts(&last) && meets_sensitive(last, !last.starts_with('.'), lists))
        || parts
            .iter()
            .filter(counts)
            .any(|part| secrets::SECRET_FOLDERS.iter().any(|folder| meets(part, folder)))
        || parts.windows(2).any(|pair| {
            let pairs = secrets::SECRET_PAIRS.iter().chain(&[(".git", "config")]);
            pairs.into_iter().any(|(folder, name)| is_pair(pair, folder, name))
        })
        || (has_glob && !lists && folders.iter().any(names_store) && is_data())
}

/// True if the glob `name` has a name in common with the sensitive ones. `lists`: only sensitive
/// names with a dot in front count.
fn meets_sensitive(name: &str, is_visible: bool, lists: bool) -> bool {
    let is_example = secrets::EXAMPLES.iter().any(|ending| shown(name).ends_with(ending));
    let pattern = NamePattern::of_glob(name);
    let mut known = PATTERNS.iter().filter(|known| !lists || known.is_hidden());
    !is_example && known.any(|known| pattern.meets(known, is_visible))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(text: &str) -> String {
        text.chars().map(|c| if "*?[".contains(c) { active(c) } else { c }).collect()
    }

    #[test]
    fn globs_that_match_a_sensitive_name_are_sensitive() {
        for path in [
            "dev.e*",
            "terraform.tfs*",
            "service-acc*.json",
            "secre?s/db.yml",
            "secrets/db.y?l",
            "head/dev.en?",
            "foo.pe?",
            ".git/c*",
            ".cargo/cred*",
            ".carg?/credentials",
            ".s?h/config",
            "x/[i]d_rsa",
            "*",
            "*.json",
        ] {
            assert!(may_be_sensitive(&glob(path), false), "{path}");
        }
        for path in ["*.rs", "src/*/main.rs", "*.md", "docs/*.txt.md", "*/Cargo.toml", "a?.c"] {
            assert!(!may_be_sensitive(&glob(path), false), "{path}");
        }
        for pattern in ["dev.e*", "*.tfstat?", "secret*"] {
            assert!(selects_sensitive(pattern), "{pattern}");
        }
    }

    proptest! {
        /// Compares with names that are sensitive one by one.
        #[test]
        fn no_glob_hides_a_sensitive_name(
            name in "(dev|a|x_)?(\\.env|\\.pem|secrets|token|id_rsa|\\.tfstate|password)(s|_b|\\.bak)?(\\.(json|yml|rs|txt))?",
            from in 0usize..24,
            length in 0usize..6,
            star: bool,
        ) {
            let (from, to) = (from.min(name.len()), (from + length).min(name.len()));
            let middle = if star { "*".to_owned() } else { "?".repeat(to - from) };
            let text = glob(&format!("{}{middle}{}", &name[..from], &name[to..]));
            let is_visible = !name.starts_with('.') || text.starts_with('.');
            if is_sensitive(&name) && is_visible && is_glob(&text) {
                prop_assert!(matches(&text, &name));
                prop_assert!(may_be_sensitive(&text, false), "{name} {}", shown(&text));
            }
        }
    }
}
