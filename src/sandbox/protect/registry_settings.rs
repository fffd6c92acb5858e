//! The settings of `.npmrc` that a package manager needs to find its registry, without credentials.
//!
//! A package manager that cannot read this file uses the public registry without a word, and
//! installs packages of other people under the same names. So commands see a copy of a hidden `.npmrc` that contains
//! only lines of known harmless keys. A registry that needs a login then refuses the request.

use std::ffi::OsStr;

/// Maximum size in bytes of a file whose copy is made.
pub(super) const BYTES_MAX: u64 = 64 << 10;

/// Maximum length in bytes of a value that is no address.
const VALUE_BYTES_MAX: usize = 64;

/// Minimum length in bytes of letters and digits without a separator that count as a token: of
/// both, and of letters or digits alone.
const TOKEN_BYTES_MIN: (usize, usize) = (12, 20);

/// Parts of an address after which a token stands.
const BEFORE_TOKEN: [&str; 4] = ["auth", "basic", "token", "tokens"];

/// Address that stands for one that cannot be shown. It leads nowhere, so that the public registry is
/// not used instead.
const UNKNOWN: &str = "https://hidden.invalid/";

/// Keys whose values are switches, names and versions, from the manuals of npm and pnpm.
const PLAIN_KEYS: [&str; 26] = [
    "audit",
    "auto-install-peers",
    "engine-strict",
    "force",
    "fund",
    "hoist",
    "ignore-scripts",
    "include",
    "install-links",
    "install-strategy",
    "legacy-peer-deps",
    "link-workspace-packages",
    "lockfile-version",
    "loglevel",
    "node-linker",
    "offline",
    "omit",
    "package-lock",
    "prefer-offline",
    "prefer-workspace-packages",
    "progress",
    "save-exact",
    "save-prefix",
    "shamefully-hoist",
    "strict-peer-dependencies",
    "strict-ssl",
];

/// True if a file with this name has registry settings.
pub(super) fn is_registry_file(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(".npmrc")
}

/// Returns the lines of an `.npmrc` that contain no credentials: registries, of all packages and
/// of a scope, without user, query and parts that look like tokens, and harmless keys. Other lines
/// are left out.
pub(super) fn without_credentials(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut kept = String::new();
    for line in text.lines().map(str::trim) {
        // The keys of a section are not settings of npm.
        if line.starts_with('[') {
            break;
        }
        if line.starts_with([';', '#']) {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let (key, value) = (unquoted(key.trim()), value.trim());
        let value = if is_registry(key) {
            Some(address(value).unwrap_or_else(|| UNKNOWN.to_owned()))
        } else if PLAIN_KEYS.contains(&key) && is_plain(value) {
            Some(value.to_owned())
        } else {
            None
        };
        if let Some(value) = value {
            kept.extend([key, "=", &value, "\n"]);
        }
    }
    kept
}

/// The text without the quotes that may be around it.
fn unquoted(text: &str) -> &str {
    let between = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    between('"').or_else(|| between('\'')).unwrap_or(text)
}

/// True for `registry` and `@scope:registry`. A scope may contain any visible character.
fn is_registry(key: &str) -> bool {
    let scope = key.strip_suffix(":registry").and_then(|scope| scope.strip_prefix('@'));
    let is_name =
        |scope: &str| !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic());
    key == "registry" || scope.is_some_and(is_name)
}

fn is_plain(value: &str) -> bool {
    let is_harmless = |c: char| c.is_ascii_alphanumeric() || "-_.^~*\"".contains(c);
    value.len() <= VALUE_BYTES_MAX && value.chars().all(is_harmless)
}

/// The address of a registry without user, password, query and fragment, and with `hidden` in
/// place of parts of its path that look like tokens. A name of a variable stays. `None` for other
/// values.
fn address(value: &str) -> Option<String> {
    let value = unquoted(value);
    if let Some(name) = value.strip_prefix("${").and_then(|value| value.strip_suffix('}')) {
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        return is_name.then(|| value.to_owned());
    }
    let (scheme, rest) = value.split_once("://")?;
    // A password may contain a slash that should be encoded.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (host, path) = rest[..end].split_once('/').unwrap_or((&rest[..end], ""));
    let is_address = |c: char| c.is_ascii_alphanumeric() || "-._~:/[]".contains(c);
    let is_http = scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http");
    if !is_http || host.is_empty() || ![host, path].iter().all(|part| part.chars().all(is_address))
    {
        return None;
    }
    let mut before = "";
    let parts = path.split('/').map(|part| {
        let is_hidden = is_token(part) || (BEFORE_TOKEN.contains(&before) && !part.is_empty());
        before = part;
        if is_hidden { "hidden" } else { part }
    });
    Some(format!("{scheme}://{host}/{}", parts.collect::<Vec<_>>().join("/")))
}

/// True if a part of a path may be a token, as some registries expect it in the address.
fn is_token(part: &str) -> bool {
    let is_long = |run: &str| {
        let has = |class: fn(&u8) -> bool| run.as_bytes().iter().any(class);
        let (mixed, alike) = TOKEN_BYTES_MIN;
        let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
        run.len() >= if is_mixed { mixed } else { alike }
    };
    // The groups of a UUID are shorter.
    let groups: Vec<usize> = part.split('-').map(str::len).collect();
    part.contains([':', '[', ']'])
        || groups == [8, 4, 4, 4, 12]
        || part.split(['-', '_', '.', '~']).any(is_long)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn registries_stay_and_credentials_go() {
        let file = "\
; a comment
registry = https://packages.example/npm/
@team:registry=https://user:hunter2hunter2@team.example:8443/npm?token=hunter2hunter2
@entitled:registry=https://packages.example/0a1b2c3d4e5f6a7b8c9d/npm/
//packages.example/npm/:_authToken=hunter2hunter2
//packages.example/npm/:username=me
_auth=aHVudGVyMg==
_password=hunter2hunter2
email=me@example.com
key=\"-----BEGIN KEY-----\\nabc\"
https-proxy=http://me:hunter2hunter2@proxy.example:3128
save-exact=true
save-prefix=~
strict-ssl=\"false\"
ignore-scripts=sk-hunter2 hunter2
registry=file:///etc/passwd
registry=${REGISTRY}
@odd:registry=https://${HOST}/npm
@a b:registry=https://x.example/
\"@Team+x:registry\"='https://quoted.example/npm'
@feed:registry=https://f.example/F/corp/auth/0a1b2c3d-1111-2222-3333-444455556666/npm/
@short:registry=https://f.example/abcd1234efgh/npm/
@named:registry=https://f.example/auth/hunter2/abcdefghijklmnopqrstuv
@bare:registry
[section]
registry=https://section.example/
";
        insta::assert_snapshot!(without_credentials(file.as_bytes()), @r#"
        registry=https://packages.example/npm/
        @team:registry=https://team.example:8443/npm
        @entitled:registry=https://packages.example/hidden/npm/
        save-exact=true
        save-prefix=~
        strict-ssl="false"
        registry=https://hidden.invalid/
        registry=${REGISTRY}
        @odd:registry=https://hidden.invalid/
        @Team+x:registry=https://quoted.example/npm
        @feed:registry=https://f.example/F/corp/auth/hidden/npm/
        @short:registry=https://f.example/hidden/npm/
        @named:registry=https://f.example/auth/hidden/hidden
        @bare:registry=https://hidden.invalid/
        "#);
    }

    #[test]
    fn name_is_compared_without_case() {
        assert!(is_registry_file(OsStr::new(".NPMRC")));
        assert!(
            !is_registry_file(OsStr::new("npmrc")) && !is_registry_file(OsStr::new(".npmrc.old"))
        );
    }

    proptest! {
        /// No part of a secret that stands where npm reads credentials is kept.
        #[test]
        fn no_credential_is_kept(
            secret in "[a-zA-Z]{6}[0-9]{4}[a-zA-Z0-9+/=_-]{10,30}",
            host in "[a-z]{1,8}\\.example(:[1-9][0-9]{0,3})?",
            spaces in "[ \t]{0,2}",
        ) {
            for line in [
                format!("//{host}/:_authToken{spaces}={spaces}{secret}"),
                format!("_auth={secret}"),
                format!("registry={spaces}https://{secret}@{host}/"),
                format!("registry=https://u:{secret}@{host}/npm/?{secret}#{secret}"),
                format!("{secret}=true"),
                secret.clone(),
            ] {
                let kept = without_credentials(format!("fund=false\n{line}\n").as_bytes());
                prop_assert!(!kept.contains(&secret[..10]), "{line}: {kept}");
                prop_assert!(kept.starts_with("fund=false\n"));
            }
        }

        #[test]
        fn any_bytes_give_lines_of_known_keys(bytes in any::<Vec<u8>>()) {
            for line in without_credentials(&bytes).lines() {
                let key = line.split_once('=').unwrap().0;
                prop_assert!(is_registry(key) || PLAIN_KEYS.contains(&key), "{line}");
            }
        }
    }
}
