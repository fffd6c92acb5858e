//! Names of tools and rule groups that a rule may contain.

use posse_actors::{delegation, skills};
use posse_base::failure::nearest;

/// Prefix of tools of MCP servers, whose names are not known when rules are loaded.
const SERVER_PREFIX: &str = "mcp__";

/// Tools of posse.
const TOOLS: [&str; 19] = [
    "ask_user",
    "bash",
    "edit_file",
    "glob",
    "grep",
    "job_output",
    "job_stop",
    "list_dir",
    "multi_edit",
    "present_plan",
    "read_file",
    "todo_write",
    "write_file",
    skills::TOOL,
    delegation::DELEGATE,
    delegation::STATUS,
    delegation::RESULT,
    delegation::DIFF,
    delegation::MERGE,
];

/// Rule groups of these tools. They have the names of tools of Claude Code.
const GROUPS: [&str; 7] = ["Bash", "Edit", "Glob", "Grep", "LS", "Read", "Write"];

/// Further tools of Claude Code, and the tool of posse for which a rule with that name is.
const ALIASES: [(&str, &str); 9] = [
    ("AskUserQuestion", "ask_user"),
    ("BashOutput", "job_output"),
    ("ExitPlanMode", "present_plan"),
    ("KillBash", "job_stop"),
    ("KillShell", "job_stop"),
    ("MultiEdit", "multi_edit"),
    ("Skill", skills::TOOL),
    ("TaskStop", "job_stop"),
    ("TodoWrite", "todo_write"),
];

/// Returns the name for which a rule with `tool` is: that of a tool or a rule group, or `*`. `Err`:
/// no tool has this name; the known name that is closest to it, if one is close.
pub(crate) fn tool_name(tool: &str) -> Result<&str, Option<&'static str>> {
    if let Some((_, ours)) = ALIASES.iter().find(|(theirs, _)| *theirs == tool) {
        return Ok(ours);
    }
    let is_known = tool == "*"
        || tool.len() > SERVER_PREFIX.len() && tool.starts_with(SERVER_PREFIX)
        || TOOLS.contains(&tool)
        || GROUPS.contains(&tool);
    if is_known {
        return Ok(tool);
    }
    let aliases = ALIASES.iter().map(|(theirs, _)| *theirs);
    Err(nearest(tool, TOOLS.into_iter().chain(GROUPS).chain(aliases)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused_with_the_closest_one() {
        let table = [
            ("bash", Ok("bash")),
            ("Edit", Ok("Edit")),
            ("*", Ok("*")),
            ("MultiEdit", Ok("multi_edit")),
            ("agent_merge", Ok("agent_merge")),
            ("mcp__files__read", Ok("mcp__files__read")),
            ("mcp__", Err(None)),
            ("wrte_file", Err(Some("write_file"))),
            ("Bsh", Err(Some("bash"))),
            ("edit", Err(Some("Edit"))),
            ("WebFetch", Err(None)),
            // A name is no pattern.
            ("*_file", Err(None)),
        ];
        for (tool, expected) in table {
            assert_eq!(tool_name(tool), expected, "{tool}");
        }
    }
}
