//! Settings and variables with which posse runs git in repositories that it does not trust.

/// Harmless values for the git settings that start programs or reach other machines.
pub const HARMLESS: [&str; 8] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.sshCommand=false",
    "core.askPass=false",
    "core.pager=cat",
    "core.attributesFile=/dev/null",
    "credential.helper=",
    "protocol.allow=never",
];

/// Environment variables of git: no prompts, no optional locks, no network, no pager, English
/// messages.
pub const VARIABLES: [(&str, &str); 6] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_PAGER", "cat"),
    ("LC_ALL", "C"),
];

/// Folders in which git is looked for before those of `PATH`.
pub const PROGRAMS: [&str; 7] = [
    "/usr/bin/git",
    "/usr/local/bin/git",
    "/bin/git",
    "/run/current-system/sw/bin/git",
    "/run/current-system/profile/bin/git",
    "/opt/homebrew/bin/git",
    "/home/linuxbrew/.linuxbrew/bin/git",
];
