//! Tools of Claude Code and their counterparts in posse, for its agent files and for rules.

/// Tools of Claude Code and the tools of posse with the same authority.
pub const TOOLS: [(&str, &[&str]); 16] = [
    ("AskUserQuestion", &["ask_user"]),
    ("Bash", &["bash"]),
    ("BashOutput", &["job_output"]),
    ("Edit", &["edit_file", "multi_edit"]),
    ("ExitPlanMode", &["present_plan"]),
    ("Glob", &["glob"]),
    ("Grep", &["grep"]),
    ("KillBash", &["job_stop"]),
    ("KillShell", &["job_stop"]),
    ("LS", &["list_dir"]),
    ("MultiEdit", &["multi_edit"]),
    ("Read", &["read_file"]),
    ("Skill", &["skill"]),
    ("TaskStop", &["job_stop"]),
    ("TodoWrite", &["todo_write"]),
    ("Write", &["write_file"]),
];

/// Tools of posse for a tool of Claude Code; empty if there is none, also for a pattern.
pub fn counterparts(name: &str) -> &'static [&'static str] {
    let found = TOOLS.iter().find(|(theirs, _)| *theirs == name);
    found.map_or(&[], |(_, ours)| *ours)
}
