//! Names of tools and rule groups that a rule may contain.

use posse_base::claude_code::{TOOLS, counterparts};
use posse_base::failure::nearest;

/// Rule groups of tools. They have the names of tools of Claude Code.
const GROUPS: [&str; 7] = ["Bash", "Edit", "Glob", "Grep", "LS", "Read", "Write"];

/// Returns the name for which a rule with `tool` is: `tool` itself, or the tool of posse for a tool of
/// Claude Code that is no rule group.
pub(crate) fn tool_name(tool: &str) -> &str {
    match counterparts(tool) {
        [ours] if !GROUPS.contains(&tool) => ours,
        _ => tool,
    }
}

/// Error if no rule can be for `tool`: the name that is closest to it, if one is close. `tools`: names
/// of all tools of posse.
pub(crate) fn check<'t>(tool: &str, tools: &[&'t str]) -> Result<(), Option<&'t str>> {
    let known = || {
        let theirs = TOOLS.iter().map(|(theirs, _)| *theirs);
        tools.iter().copied().chain(GROUPS).chain(theirs)
    };
    if tool == "*" || known().any(|name| name == tool) {
        return Ok(());
    }
    Err(nearest(tool, known()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused_with_the_closest_one() {
        let table = [
            ("bash", Ok(())),
            ("Edit", Ok(())),
            ("*", Ok(())),
            ("MultiEdit", Ok(())),
            ("wrte_file", Err(Some("write_file"))),
            ("Bsh", Err(Some("bash"))),
            ("edit", Err(Some("Edit"))),
            ("WebFetch", Err(None)),
            // A name is no pattern.
            ("*_file", Err(None)),
            ("mcp__files__read", Err(None)),
        ];
        for (tool, expected) in table {
            assert_eq!(check(tool, &["bash", "write_file", "multi_edit"]), expected, "{tool}");
        }
    }

    #[test]
    fn tools_of_claude_code_without_a_group_have_a_counterpart() {
        assert_eq!(tool_name("MultiEdit"), "multi_edit");
        assert_eq!(tool_name("Edit"), "Edit");
        for (theirs, _) in TOOLS {
            let is_translated = tool_name(theirs) != theirs;
            assert!(is_translated || GROUPS.contains(&theirs), "{theirs}");
        }
    }
}
