//! Files with instructions, rules or settings for agents that exist in a project, and the use that
//! posse makes of each: those that it reads, and those of other programs that it does not.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use posse_base::failure::printable;
use serde_json::Value;

use crate::folder;
use crate::instructions::{FOLDERS_MAX, Instructions, NAMES};

/// Maximum bytes of a settings file that is searched for rules.
const SETTINGS_BYTES_MAX: usize = 256 << 10;

/// Maximum number of files that are counted in a folder.
const COUNTED_MAX: usize = 1000;

/// Reason for files of other programs that posse could read under another name.
const OTHER_NAME: &str =
    "instructions of another program; a link AGENTS.md to it makes posse read it";

/// Reason for settings of other programs.
const OTHER_SETTINGS: &str = "settings of another program";

/// Reason for folders that posse uses, but lists elsewhere.
const SKILLS: &str = "`posse skills` shows them";

/// Files and folders of a project that are not instruction files of posse, each with the reason why
/// it is not read here.
const OTHERS: [(&str, &str); 22] = [
    ("CLAUDE.local.md", OTHER_NAME),
    ("GEMINI.md", OTHER_NAME),
    ("QWEN.md", OTHER_NAME),
    ("CRUSH.md", OTHER_NAME),
    ("WARP.md", OTHER_NAME),
    (".cursorrules", OTHER_NAME),
    (".windsurfrules", OTHER_NAME),
    (".clinerules", OTHER_NAME),
    (".goosehints", OTHER_NAME),
    (".github/copilot-instructions.md", OTHER_NAME),
    (".junie/guidelines.md", OTHER_NAME),
    (".cursor/rules", "rules with conditions; move what matters into AGENTS.md"),
    (".claude/rules", "rules with conditions; move what matters into AGENTS.md"),
    (".github/instructions", "rules with conditions; move what matters into AGENTS.md"),
    (
        ".claude/commands",
        "prompts of Claude Code; a skill in .agents/skills/NAME/SKILL.md replaces one",
    ),
    (".claude/agents", AGENTS),
    (".claude/skills", SKILLS),
    (".agents/skills", SKILLS),
    (".mcp.json", "MCP servers are not available in this version"),
    (".cursor/mcp.json", "MCP servers are not available in this version"),
    (".gemini/settings.json", OTHER_SETTINGS),
    (".codex/config.toml", OTHER_SETTINGS),
];

/// Reason for agents of Claude Code, which are not instructions.
const AGENTS: &str = "`posse agents` shows them";

/// Settings files of Claude Code in a project. Their rules are counted.
const CLAUDE_SETTINGS: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];

/// Files below the home folder that other programs read.
const AT_HOME: [&str; 4] =
    [".claude/CLAUDE.md", ".gemini/GEMINI.md", ".codex/AGENTS.md", ".qwen/QWEN.md"];

/// Use that posse makes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum FileUse {
    /// It is part of the system prompt, as a whole.
    Read,
    /// It is part of the system prompt, up to a limit.
    Cut,
    /// posse reads files of this name, but not this one.
    Skipped,
    /// posse does not read files of this kind as instructions.
    Unused,
}

/// A file or folder that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// Path in printable form, relative to the root of the project; complete for files of the user.
    pub file: String,
    /// Use that posse makes of it.
    pub state: FileUse,
    /// Bytes that are part of the system prompt. `None`: none.
    pub bytes: Option<usize>,
    /// Reason, unless the file is read as a whole.
    pub reason: Option<String>,
}

/// Lists the instruction files that were `read`, in their order, and the other files with
/// instructions, rules or settings: of the user, and in the folders from `root` to `cwd`. `user`:
/// path of the user's instruction file; `home`: home folder, if it is known.
pub fn found_files(
    user: &Path,
    home: Option<&Path>,
    root: &Path,
    cwd: &Path,
    read: &Instructions,
) -> Vec<FoundFile> {
    let mut found = Vec::new();
    if exists(user) {
        found.push(instruction(shown(user), None, read));
    }
    for path in home.into_iter().flat_map(|home| AT_HOME.map(|name| home.join(name))) {
        if exists(&path) {
            let reason = format!("of another program; yours are read from {}", shown(user));
            found.push(unused(shown(&path), reason));
        }
    }
    let folders = cwd.ancestors().take_while(|folder| folder.starts_with(root));
    let folders: Vec<&Path> = folders.take(FOLDERS_MAX).collect();
    for folder in folders.into_iter().rev() {
        let relative = |path: &Path| shown(path.strip_prefix(root).unwrap_or(path));
        let mut first = None;
        for name in NAMES {
            let path = folder.join(name);
            if exists(&path) {
                found.push(instruction(relative(&path), first, read));
                first = first.or(Some(name));
            }
        }
        for (name, reason) in OTHERS {
            let path = folder.join(name);
            if exists(&path) {
                found.push(unused(relative(&path), counted(&path, reason)));
            }
        }
        for path in CLAUDE_SETTINGS.map(|name| folder.join(name)) {
            if exists(&path) {
                found.push(unused(relative(&path), settings(&path, root)));
            }
        }
    }
    found
}

/// True if a file `name` holds instructions for agents or other text for people, by the ending of the
/// name or as the instruction file of another program.
pub(crate) fn is_instruction_name(name: Option<&OsStr>) -> bool {
    let Some(name) = name.and_then(OsStr::to_str) else { return false };
    let is_of_others = |(path, reason): &(&str, &str)| *path == name && *reason == OTHER_NAME;
    [".md", ".mdc", ".markdown"].iter().any(|ending| name.ends_with(ending))
        || OTHERS.iter().any(is_of_others)
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

fn unused(file: String, reason: String) -> FoundFile {
    FoundFile { file, state: FileUse::Unused, bytes: None, reason: Some(reason) }
}

/// An instruction file whose name posse knows. `first`: name of a file of the same folder that
/// comes before it.
fn instruction(file: String, first: Option<&str>, read: &Instructions) -> FoundFile {
    let source = file.replace('"', "'");
    let notice = |about: &str| {
        let begin = format!("{file}: {about}");
        read.notices.iter().find_map(|notice| notice.strip_prefix(&begin)).map(str::to_owned)
    };
    let block = read.blocks.iter().find(|block| block.source == source);
    let bytes = block.map(|block| block.text.len());
    let (state, reason) = match (block, first) {
        (Some(_), _) => match notice("cut ") {
            Some(limit) => (FileUse::Cut, Some(format!("cut {limit}"))),
            None => (FileUse::Read, None),
        },
        (None, Some(first)) => {
            (FileUse::Skipped, Some(format!("{first} of the same folder comes before it")))
        }
        (None, None) => {
            let why = notice("skipped, ").unwrap_or_else(|| "it is empty".to_owned());
            (FileUse::Skipped, Some(why))
        }
    };
    FoundFile { file, state, bytes, reason }
}

/// `reason`, with the number of files if `path` is a folder.
fn counted(path: &Path, reason: &str) -> String {
    let Ok(entries) = fs::read_dir(path) else { return reason.to_owned() };
    match entries.take(COUNTED_MAX).count() {
        1 => format!("1 entry: {reason}"),
        many => format!("{many} entries: {reason}"),
    }
}

/// Reason for a settings file of Claude Code, with the number of its permission rules.
fn settings(path: &Path, root: &Path) -> String {
    const KIND: &str = "settings of Claude Code, which posse does not use";
    let bytes =
        match folder::read_file(path, Some((root, "project")), SETTINGS_BYTES_MAX, |_| false) {
            Ok(bytes) if bytes.len() <= SETTINGS_BYTES_MAX => bytes,
            Ok(_) => return format!("{KIND}: longer than {SETTINGS_BYTES_MAX} bytes"),
            Err(why) => return format!("{KIND}: {why}"),
        };
    let Ok(settings) = serde_json::from_slice::<Value>(&bytes) else {
        return format!("{KIND}: it is not valid JSON");
    };
    let count = |decision: &str| settings["permissions"][decision].as_array().map_or(0, Vec::len);
    let rules = ["deny", "ask", "allow"].map(|decision| (count(decision), decision));
    let rules: Vec<String> = rules
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, decision)| format!("{count} {decision}"))
        .collect();
    let hooks = if settings["hooks"].is_object() { ", and its hooks do not run" } else { "" };
    if rules.is_empty() {
        return format!("{KIND}{hooks}");
    }
    format!(
        "{KIND}: its rules ({}) do not apply{hooks}; write them as `permissions` of your \
         configuration",
        rules.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_use_or_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("AGENTS.md", "Rules.");
        write("CLAUDE.md", "Others.");
        write("sub/GEMINI.md", "G.");
        write("sub/AGENT.md", &"x".repeat(40_000));
        write(".cursor/rules/a.mdc", "x");
        write(
            ".claude/settings.json",
            r#"{"permissions": {"deny": ["Read(.env)", "Bash(rm:*)"], "allow": ["Bash"]}}"#,
        );
        write(".claude/settings.local.json", "{");
        write("home/.claude/CLAUDE.md", "x");
        let cwd = root.join("sub");
        let user = root.join("config/AGENTS.md");
        let read =
            Instructions::read(&user, &root, &cwd, &posse_base::path_globs::PathGlobs::default());
        let home = root.join("home");
        let found = found_files(&user, Some(&home), &root, &cwd, &read);
        let lines: Vec<String> = found
            .iter()
            .map(|found| {
                let state: &str = found.state.into();
                let reason = found.reason.as_deref().unwrap_or("-");
                format!("{} {state} {reason}", found.file).replace(&root.display().to_string(), "")
            })
            .collect();
        assert_eq!(
            lines,
            [
                "/home/.claude/CLAUDE.md unused of another program; yours are read from \
                 /config/AGENTS.md",
                "AGENTS.md read -",
                "CLAUDE.md skipped AGENTS.md of the same folder comes before it",
                ".cursor/rules unused 1 entry: rules with conditions; move what matters into \
                 AGENTS.md",
                ".claude/settings.json unused settings of Claude Code, which posse does not use: \
                 its rules (2 deny, 1 allow) do not apply; write them as `permissions` of your \
                 configuration",
                ".claude/settings.local.json unused settings of Claude Code, which posse does not \
                 use: it is not valid JSON",
                "sub/AGENT.md cut cut after 32762 bytes; all that are read together may have 32768",
                "sub/GEMINI.md unused instructions of another program; a link AGENTS.md to it \
                 makes posse read it",
            ]
        );
    }
}
