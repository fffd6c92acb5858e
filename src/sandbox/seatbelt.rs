//! macOS confinement: generated profile text for `sandbox-exec`.
//!
//! Text and paths are separate: every path is a parameter, and the text contains only fixed words.
//! Later rules override earlier ones, so denials are at the end. The text is generated and tested
//! on every system; only macOS can run it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use posse_base::protected;

/// Absolute path of `sandbox-exec`, so that the program cannot be replaced through `PATH`.
pub(crate) const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// Lists of paths and network access of a plan, from which the profile is generated.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowed<'a> {
    pub(crate) writable: &'a [PathBuf],
    pub(crate) read_only: &'a [PathBuf],
    pub(crate) pinned: &'a [PathBuf],
    pub(crate) hidden: &'a [PathBuf],
    pub(crate) network: bool,
}

/// Profile text, and its parameters: names that the text uses, with their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeatbeltProfile {
    pub(crate) text: String,
    pub(crate) parameters: Vec<(String, PathBuf)>,
}

/// First rules of every profile. They deny by default, and allow reading of files and operations
/// that any program needs.
const BASE: &str = r#"(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow file-read*)
(allow file-write-data file-ioctl
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/dtracehelper")
  (literal "/dev/tty"))
(allow file-read-data file-write-data (subpath "/dev/fd"))
(allow sysctl-read
  (sysctl-name-prefix "hw.")
  (sysctl-name-prefix "machdep.cpu.")
  (sysctl-name "kern.argmax")
  (sysctl-name "kern.hostname")
  (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.maxproc")
  (sysctl-name "kern.osproductversion")
  (sysctl-name "kern.osrelease")
  (sysctl-name "kern.ostype")
  (sysctl-name "kern.osvariant_status")
  (sysctl-name "kern.osversion")
  (sysctl-name "kern.secure_kernel")
  (sysctl-name "kern.usrstack64")
  (sysctl-name "kern.version")
  (sysctl-name "sysctl.proc_cputype")
  (sysctl-name "vm.loadavg"))
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.trustd.agent"))
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow file-read* file-write* (literal "/dev/ptmx"))
(allow file-read* file-write* (regex #"^/dev/ttys[0-9]+$"))
"#;

/// Rules of a profile without network access. They deny name lookups as well, because a name can
/// carry data.
const NO_NETWORK: &str = r#"(deny network*)
(deny system-socket)
(deny network-outbound (literal "/private/var/run/mDNSResponder"))
(deny mach-lookup
  (global-name "com.apple.mDNSResponder")
  (global-name "com.apple.dnssd.service")
  (global-name "com.apple.networkd")
  (global-name "com.apple.nsurlsessiond")
  (global-name "com.apple.SystemConfiguration.configd"))
"#;

const NETWORK: &str = r#"(allow network*)
(allow system-socket)
(allow mach-lookup
  (global-name "com.apple.mDNSResponder")
  (global-name "com.apple.dnssd.service")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.SecurityServer"))
"#;

/// Regular expression for the protected files of a repository, relative to its git folder.
const CONTROL: &str = r"/([Hh][Oo][Oo][Kk][Ss]|[Cc][Oo][Nn][Ff][Ii][Gg](\.[Ww][Oo][Rr][Kk][Tt][Rr][Ee][Ee])?|[Cc][Oo][Mm][Mm][Oo][Nn][Dd][Ii][Rr]|[Ii][Nn][Ff][Oo]/[Aa][Tt][Tt][Rr][Ii][Bb][Uu][Tt][Ee][Ss])(/|$)";

impl SeatbeltProfile {
    /// Generates the profile of a command.
    pub(crate) fn of(allowed: &Allowed<'_>) -> SeatbeltProfile {
        let mut profile = SeatbeltProfile { text: BASE.to_owned(), parameters: Vec::new() };
        let roots = profile.name("WRITE", allowed.writable);
        for root in &roots {
            profile.line(format_args!("(allow file-write* (subpath (param \"{root}\")))"));
        }
        profile.text.push_str(if allowed.network { NETWORK } else { NO_NETWORK });
        for root in &roots {
            profile.deny_names(root);
        }
        let held = profile.name("HELD", allowed.read_only);
        for held in &held {
            profile.line(format_args!("(deny file-write* (subpath (param \"{held}\")))"));
        }
        let repositories = profile.name("GIT", &repositories(allowed.read_only));
        for repository in &repositories {
            profile.line(format_args!(
                "(deny file-write* (regex (string-append \"^\" (regex-quote (param \
                 \"{repository}\")) #\"{CONTROL}\")))"
            ));
        }
        // A rename is an unlink, and renaming a parent folder would release its contents.
        let pinned = profile.name("PIN", &pinned(allowed));
        for pinned in &pinned {
            profile.line(format_args!("(deny file-write-unlink (literal (param \"{pinned}\")))"));
        }
        let hidden = profile.name("HIDE", allowed.hidden);
        for hidden in &hidden {
            profile
                .line(format_args!("(deny file-read* file-write* (subpath (param \"{hidden}\")))"));
        }
        profile
    }

    /// Arguments of [`PROGRAM`] that run `program` under this profile. The caller appends the
    /// arguments of `program`.
    pub(crate) fn arguments(&self, program: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["-p".into(), self.text.clone().into()];
        for (name, path) in &self.parameters {
            let mut parameter = OsString::from(format!("-D{name}="));
            parameter.push(path);
            arguments.push(parameter);
        }
        arguments.extend(["--".into(), program.into()]);
        arguments
    }

    /// Adds `paths` as parameters with the names `word_0`, `word_1` and so on; returns the names.
    fn name(&mut self, word: &str, paths: &[PathBuf]) -> Vec<String> {
        let named =
            paths.iter().enumerate().map(|(at, path)| (format!("{word}_{at}"), canonical(path)));
        let begin = self.parameters.len();
        self.parameters.extend(named);
        self.parameters[begin..].iter().map(|(name, _)| name.clone()).collect()
    }

    /// Adds rules that deny writing to every protected name below the path of the parameter `root`,
    /// whether a file exists or not; except to `.git`, `git~1` and `.gitmodules`.
    fn deny_names(&mut self, root: &str) {
        for protected::ProtectedName { above, name, .. } in protected::all_names() {
            // Only parts of a `.git` are denied, and `git clone` creates one: its content is
            // checked afterwards.
            if matches!(name.as_str(), ".git" | "git~1" | ".gitmodules") {
                continue;
            }
            let above = above.map(|above| format!("{}/", without_case(above)));
            let name: Vec<String> = name.split('*').map(without_case).collect();
            let (above, name) = (above.unwrap_or_default(), name.join("[^/]*"));
            let pattern = format!("/(.*/)?{above}{name}(/|$)");
            self.line(format_args!(
                "(deny file-write* (regex (string-append \"^\" (regex-quote (param \"{root}\")) \
                 #\"{pattern}\")))"
            ));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = writeln!(self.text, "{line}");
    }
}

/// Parent folders of the paths in `read_only` that are named `config` or `hooks`. They are git
/// folders with a protected `config` or `hooks`, and some others, such as `.cargo`.
fn repositories(read_only: &[PathBuf]) -> Vec<PathBuf> {
    let controls = read_only
        .iter()
        .filter(|path| path.file_name().is_some_and(|name| name == "config" || name == "hooks"));
    let folders: std::collections::BTreeSet<&Path> =
        controls.filter_map(|path| path.parent()).collect();
    folders.into_iter().map(Path::to_owned).collect()
}

/// Paths that a command may not rename or remove: the pinned paths of the plan, protected and
/// hidden paths within writable roots, their parents there, and the roots.
fn pinned(allowed: &Allowed<'_>) -> Vec<PathBuf> {
    let mut pinned: std::collections::BTreeSet<PathBuf> = allowed.pinned.iter().cloned().collect();
    for path in allowed.read_only.iter().chain(allowed.hidden) {
        let above = path.ancestors();
        let below_a_root =
            |path: &&Path| allowed.writable.iter().any(|root| path.starts_with(root));
        pinned.extend(above.take_while(below_a_root).map(Path::to_owned));
    }
    pinned.extend(allowed.writable.iter().cloned());
    pinned.into_iter().collect()
}

/// Case-insensitive regular expression for a name. Protected names consist of lower-case letters,
/// digits and punctuation.
fn without_case(name: &str) -> String {
    let mut pattern = String::new();
    for letter in name.chars() {
        if letter.is_ascii_alphabetic() {
            pattern.extend(['[', letter.to_ascii_uppercase(), letter.to_ascii_lowercase(), ']']);
        } else if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '/') {
            pattern.push(letter);
        } else {
            pattern.extend(['[', letter, ']']);
        }
    }
    pattern
}

/// Replaces `/tmp`, `/var` and `/etc`, which are symbolic links on macOS, by their targets in
/// `/private`.
fn canonical(path: &Path) -> PathBuf {
    for linked in ["tmp", "var", "etc"] {
        if let Ok(below) = path.strip_prefix(Path::new("/").join(linked)) {
            let whole = Path::new("/private").join(linked);
            return if below.as_os_str().is_empty() { whole } else { whole.join(below) };
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    fn profile(network: bool) -> SeatbeltProfile {
        SeatbeltProfile::of(&Allowed {
            writable: &paths(&["/Users/u/ws", "/var/folders/t"]),
            read_only: &paths(&["/Users/u/ws/a/.git/hooks", "/Users/u/ws/AGENTS.md"]),
            pinned: &paths(&["/Users/u/ws/a", "/Users/u/ws/a/.git"]),
            hidden: &paths(&["/Users/u/.ssh", "/Users/u/ws/b/.env"]),
            network,
        })
    }

    /// Checks that parentheses outside strings are balanced.
    fn is_balanced(text: &str) -> bool {
        let mut depth = 0_i32;
        let mut in_string = false;
        for letter in text.chars() {
            match letter {
                '"' => in_string = !in_string,
                '(' if !in_string => depth += 1,
                ')' if !in_string => depth -= 1,
                _ => {}
            }
            if depth < 0 {
                return false;
            }
        }
        depth == 0 && !in_string
    }

    #[test]
    fn paths_are_parameters_for_any_name() {
        let hostile = "/Users/u/x\"))(allow default)(param (\"";
        let given = paths(&[hostile]);
        let profile = SeatbeltProfile::of(&Allowed {
            writable: &given,
            read_only: &given,
            pinned: &given,
            hidden: &given,
            network: false,
        });
        assert!(!profile.text.contains("/Users"));
        assert!(!profile.text.contains("allow default"));
        assert!(is_balanced(&profile.text));
        let values: Vec<_> = profile.parameters.iter().map(|(_, path)| path).collect();
        assert!(values.iter().all(|path| **path == given[0]));
        let names: Vec<&str> = profile.parameters.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["WRITE_0", "HELD_0", "PIN_0", "HIDE_0"]);
        let arguments = profile.arguments(Path::new("/bin/sh"));
        assert_eq!(arguments.len(), 2 + 4 + 2);
        assert_eq!(arguments[2], OsString::from(format!("-DWRITE_0={hostile}")));
        assert_eq!(PROGRAM, "/usr/bin/sandbox-exec");
    }

    #[test]
    fn denies_by_default_and_last() {
        for network in [false, true] {
            let text = profile(network).text;
            assert!(text.starts_with("(version 1)\n(deny default)\n"));
            assert!(is_balanced(&text));
            let last_allow = text.rfind("(allow ").unwrap();
            let first_held = text.find("(param \"HELD_0\")").unwrap();
            let first_name = text.find("regex-quote").unwrap();
            assert!(last_allow < first_held && last_allow < first_name);
        }
    }

    #[test]
    fn every_protected_name_is_denied_in_every_root() {
        let text = profile(false).text;
        let mut count = 0;
        for protected::ProtectedName { name, .. } in protected::all_names() {
            if matches!(name.as_str(), ".git" | "git~1" | ".gitmodules") {
                continue;
            }
            let parts: Vec<String> = name.split('*').map(without_case).collect();
            let pattern = parts.join("[^/]*");
            for root in ["WRITE_0", "WRITE_1"] {
                let line = |line: &&str| {
                    line.starts_with("(deny file-write*")
                        && line.contains(root)
                        && line.contains(&format!("{pattern}(/|$)"))
                };
                assert!(text.lines().any(|text| line(&text)), "{name} in {root}");
            }
            count += 1;
        }
        assert!(count > 100);
        assert!(text.contains("(regex-quote (param \"GIT_0\")) #\"/([Hh][Oo][Oo][Kk][Ss]|"));
    }

    #[test]
    fn protected_and_hidden_paths_and_parents_cannot_be_renamed() {
        let profile = profile(false);
        let pinned: Vec<&PathBuf> = profile
            .parameters
            .iter()
            .filter(|(name, _)| name.starts_with("PIN_"))
            .inspect(|(name, _)| {
                let line = format!("(deny file-write-unlink (literal (param \"{name}\")))\n");
                assert!(profile.text.contains(&line));
            })
            .map(|(_, path)| path)
            .collect();
        for path in [
            "/Users/u/ws",
            "/Users/u/ws/a",
            "/Users/u/ws/a/.git",
            "/Users/u/ws/a/.git/hooks",
            "/Users/u/ws/AGENTS.md",
            "/Users/u/ws/b",
            "/Users/u/ws/b/.env",
            "/private/var/folders/t",
        ] {
            assert!(pinned.contains(&&PathBuf::from(path)), "{path}");
        }
    }

    #[test]
    fn without_the_network_names_are_not_resolved_either() {
        let without = profile(false).text;
        assert!(without.contains("(deny network*)"));
        assert!(!without.contains("(allow network") && !without.contains("(allow system-socket"));
        let allowed = without.split("(deny network*)").next().unwrap();
        assert!(!allowed.contains("mDNSResponder") && !allowed.contains("configd"));
        assert!(profile(true).text.contains("(allow network*)"));
    }

    #[test]
    fn profile_text_matches_the_reviewed_one() {
        // Names are tested one by one; the rest is short enough to review.
        let text = profile(false).text;
        let shown: Vec<&str> = text.lines().filter(|line| !line.contains("WRITE_1")).collect();
        let is_name = |line: &&&str| line.contains("regex-quote (param \"WRITE_");
        let shown: Vec<&str> = shown.iter().filter(|line| !is_name(line)).copied().collect();
        insta::assert_snapshot!(shown.join("\n"));
    }

    #[test]
    fn links_of_the_root_are_resolved() {
        assert_eq!(canonical(Path::new("/tmp/x")), Path::new("/private/tmp/x"));
        assert_eq!(canonical(Path::new("/var")), Path::new("/private/var"));
        assert_eq!(canonical(Path::new("/variable")), Path::new("/variable"));
    }
}
