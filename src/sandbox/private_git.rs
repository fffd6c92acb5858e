//! git as a store: a program that works in a git folder of posse, not in one of the workspace.
//!
//! It runs outside the sandbox, like posse itself: it reads only that folder and the pipe from
//! posse, and writes only that folder.

#![expect(clippy::disallowed_types, reason = "starts git for data of posse's own")]

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::git_settings::{HARMLESS, VARIABLES};

/// Variables besides the usual ones: no configuration and attributes of the system and the user, no
/// replaced objects, and paths that are no patterns.
const ISOLATION: [(&str, &str); 5] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_LITERAL_PATHSPECS", "1"),
];

/// Settings of the allocator of glibc; other allocators ignore them. git allocates and frees 270 KB
/// for each object that it compresses. By default glibc gives them back to the kernel each time,
/// which takes half of the CPU time of `git fast-import` of 50,000 small files.
const ALLOCATOR: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "67108864"), ("MALLOC_TOP_PAD_", "4194304")];

/// Starts the git program `program` with `arguments` in the bare git folder `dir`, which is also its
/// working directory, with no other environment. Output and error output are pipes; so is the
/// input if `has_input` is true, and else it is empty.
pub fn spawn(program: &Path, dir: &Path, arguments: &[&str], has_input: bool) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.env_clear().current_dir(dir).env("GIT_DIR", dir);
    for (name, value) in VARIABLES.into_iter().chain(ISOLATION).chain(ALLOCATOR) {
        command.env(name, value);
    }
    command.arg("--no-pager");
    for setting in HARMLESS {
        command.args(["-c", setting]);
    }
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if has_input { Stdio::piped() } else { Stdio::null() }).spawn()
}
