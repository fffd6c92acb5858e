//! Parses the entries of `hooks` in the configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use posse_actors::event::HookEvent;
use posse_actors::ports::HookedCall;
use serde_json::{Map, Value};

use crate::failure::{ErrorCode, Exit, Failure, did_you_mean};

/// Mistakes of entries, each with the index of its entry.
pub(crate) type MemberFailures = Vec<(usize, Failure)>;

/// Maximum number of entries of `hooks` in the configuration. More are an error.
const HOOKS_MAX: usize = 64;
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const TIMEOUT_MS_MAX: u64 = 600_000;
const MEMBERS: [&str; 7] =
    ["name", "event", "match", "command", "timeoutMs", "onFailure", "network"];

/// Valid entry of `hooks`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CommandHook {
    pub(super) name: String,
    pub(super) event: HookEvent,
    filter: Filter,
    /// Absolute path of the program, or a name to look up in `PATH`.
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) timeout: Duration,
    /// True if a failure of the hook counts as a denial (`onFailure` is `block`).
    pub(super) blocks: bool,
    /// True if the hook may use the network, provided that commands in the sandbox may.
    pub(super) network: bool,
}

/// Filter for tool calls: one of `tools` and all of `input` must match. An empty list matches every
/// call.
#[derive(Debug, Clone, Default, PartialEq)]
struct Filter {
    tools: Vec<String>,
    /// Names of arguments, each with the pattern that its value, as text or JSON, must match.
    input: Vec<(String, String)>,
}

impl CommandHook {
    /// True if the hook is registered for `event`, and its filter names no tools or one that
    /// matches `tool` (`None`: the event is not about a tool call).
    pub(super) fn has_hook(&self, event: HookEvent, tool: Option<&str>) -> bool {
        let tools = &self.filter.tools;
        let of_tool = |tool: &str| tools.iter().any(|pattern| matches(pattern, tool));
        self.event == event && (tools.is_empty() || tool.is_some_and(of_tool))
    }

    /// True if every argument that the filter names matches its pattern. A missing or null argument
    /// does not match.
    pub(super) fn is_about(&self, used: &HookedCall) -> bool {
        self.filter.input.iter().all(|(name, pattern)| match &used.input[name] {
            Value::Null => false,
            Value::String(text) => matches(pattern, text),
            other => matches(pattern, &other.to_string()),
        })
    }
}

/// Parses all entries. `home` replaces `~/` in commands. The error contains the first mistake of
/// each invalid entry, with its index; with more than [`HOOKS_MAX`] entries, only that.
pub(super) fn parse(
    entries: &[Value],
    home: Option<&Path>,
) -> Result<Vec<CommandHook>, MemberFailures> {
    if entries.len() > HOOKS_MAX {
        let what = format!("there are {} hooks, at most {HOOKS_MAX} are allowed", entries.len());
        return Err(vec![(HOOKS_MAX, wrong(what).fix("remove some"))]);
    }
    let (mut hooks, mut failures) = (Vec::new(), Vec::new());
    for (nth, entry) in entries.iter().enumerate() {
        match hook(entry, nth, home) {
            Ok(hook) => hooks.push(hook),
            Err(failure) => {
                let what = format!("hooks[{nth}]: {}", failure.what);
                failures.push((nth, Failure { what, ..failure }));
            }
        }
    }
    if failures.is_empty() { Ok(hooks) } else { Err(failures) }
}

fn hook(entry: &Value, nth: usize, home: Option<&Path>) -> Result<CommandHook, Failure> {
    let entry = entry.as_object().ok_or_else(|| wrong("a hook is an object"))?;
    check_members(entry, &MEMBERS)?;
    let event = event(entry)?;
    let (program, arguments) = command(entry, home)?;
    let file_name = || program.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = text(entry, "name")?.map(str::to_owned).or_else(file_name);
    let name = name.unwrap_or_else(|| format!("hooks[{nth}]"));
    let blocks = match text(entry, "onFailure")? {
        None | Some("warn") => false,
        Some("block") if event.may_fail_closed() => true,
        Some("block") => {
            let why = "there is nothing left to block, or it means more work";
            let what = format!("onFailure cannot be \"block\" at {}", event.name());
            return Err(wrong(what).because(why));
        }
        Some(_) => return Err(wrong("onFailure must be \"warn\" or \"block\"")),
    };
    let timeout = match entry.get("timeoutMs") {
        None => TIMEOUT_DEFAULT,
        Some(value) => {
            let ms = value.as_u64().filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms));
            let what = || wrong(format!("timeoutMs must be a whole number 1–{TIMEOUT_MS_MAX}"));
            Duration::from_millis(ms.ok_or_else(what)?)
        }
    };
    let network = match entry.get("network") {
        None => false,
        Some(on) => on.as_bool().ok_or_else(|| wrong("network must be true or false"))?,
    };
    let filter = filter(entry, event)?;
    Ok(CommandHook { name, event, filter, program, arguments, timeout, blocks, network })
}

fn event(entry: &Map<String, Value>) -> Result<HookEvent, Failure> {
    let names = || HookEvent::ALL.iter().map(|event| event.name());
    let given = text(entry, "event")?.unwrap_or_default();
    HookEvent::ALL.iter().copied().find(|event| event.name() == given).ok_or_else(|| {
        let what = format!("event must be one of {}", names().collect::<Vec<_>>().join(", "));
        Failure { fix: did_you_mean(given, names()), ..wrong(what) }
    })
}

/// Reads the program and the arguments of a hook, and replaces `~/` at their beginning by `home`. A
/// program that is a relative path with `/` is an error: it would depend on the working directory,
/// and the file could come from a repository.
fn command(
    entry: &Map<String, Value>,
    home: Option<&Path>,
) -> Result<(PathBuf, Vec<String>), Failure> {
    let words = entry.get("command").and_then(texts).unwrap_or_default();
    let Some((program, arguments)) = words.split_first().filter(|(first, _)| !first.is_empty())
    else {
        return Err(wrong("command must be a list of texts: the program and its arguments")
            .fix(r#"for a line of shell: ["sh", "-c", "…"]"#));
    };
    if words.iter().any(|word| word.contains('\0')) {
        return Err(wrong("command contains a NUL character"));
    }
    let at_home = |word: &str| match (word.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest).display().to_string(),
        _ => word.to_owned(),
    };
    let path = PathBuf::from(at_home(program));
    if program.starts_with("~/") && home.is_none() {
        return Err(wrong("there is no home for ~/ in command"));
    }
    if program.contains('/') && !path.is_absolute() {
        return Err(wrong(format!("the program of command is a relative path: {program}"))
            .because("which file that is would depend on the folder that posse works in")
            .fix("write an absolute path, ~/…, or a name that is on PATH"));
    }
    Ok((path, arguments.iter().map(|word| at_home(word)).collect()))
}

fn filter(entry: &Map<String, Value>, event: HookEvent) -> Result<Filter, Failure> {
    let Some(filter) = entry.get("match") else { return Ok(Filter::default()) };
    let filter = filter.as_object().ok_or_else(|| wrong("match must be an object"))?;
    check_members(filter, &["tools", "input"])?;
    if !event.is_of_tool() {
        return Err(wrong(format!("match is about tools, and {} is not", event.name())));
    }
    let tools = match filter.get("tools") {
        None => Vec::new(),
        Some(tools) => texts(tools)
            .filter(|tools| !tools.is_empty())
            .ok_or_else(|| wrong("match.tools must be a list of names; * stands for any part"))?,
    };
    let input = match filter.get("input") {
        None => Vec::new(),
        Some(input) => patterns(input).ok_or_else(|| {
            wrong("match.input must be an object of texts; * stands for any part")
        })?,
    };
    Ok(Filter { tools, input })
}

fn check_members(entry: &Map<String, Value>, members: &[&str]) -> Result<(), Failure> {
    entry.keys().find(|name| !members.contains(&name.as_str())).map_or(Ok(()), |name| {
        let all = || format!("its keys are {}", members.join(", "));
        let fix = did_you_mean(name, members.iter().copied()).unwrap_or_else(all);
        Err(wrong(format!("unknown key \"{name}\"")).fix(fix))
    })
}

fn text<'a>(entry: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Failure> {
    let is_line =
        |text: &&str| !text.is_empty() && text.len() <= 200 && !text.contains(char::is_control);
    let text = |value: &'a Value| {
        let text = value.as_str().filter(is_line);
        text.ok_or_else(|| wrong(format!("{name} must be a text of one line")))
    };
    entry.get(name).map(text).transpose()
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

fn patterns(value: &Value) -> Option<Vec<(String, String)>> {
    let pattern =
        |(name, pattern): (&String, &Value)| Some((name.clone(), pattern.as_str()?.to_owned()));
    value.as_object()?.iter().map(pattern).collect()
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::HookSettingInvalid, Exit::Configuration, what)
}

/// True if the whole of `text` matches `pattern`, in which `*` stands for any text, also an empty
/// one.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::CallId;
    use serde_json::json;

    use super::*;

    fn one(entry: &Value) -> Result<CommandHook, String> {
        let parsed = parse(std::slice::from_ref(entry), Some(Path::new("/home/u")));
        parsed.map(|mut hooks| hooks.remove(0)).map_err(|failures| failures[0].1.to_string())
    }

    #[test]
    fn hook_defaults() {
        let hook = one(&json!({"event": "PreToolUse", "command": ["~/bin/check", "~/x"]})).unwrap();
        assert_eq!(hook.arguments, ["/home/u/x"]);
        assert_eq!((hook.name.as_str(), hook.timeout), ("check", TIMEOUT_DEFAULT));
        assert_eq!((hook.program.as_path(), hook.blocks), (Path::new("/home/u/bin/check"), false));
        assert!(!hook.network && hook.has_hook(HookEvent::PreToolUse, Some("bash")));
        assert!(!hook.has_hook(HookEvent::PostToolUse, Some("bash")));
    }

    #[test]
    fn filter_selects_calls() {
        let hook = one(&json!({
            "event": "PreToolUse", "command": ["sh"],
            "match": {"tools": ["bash", "*_file"], "input": {"path": "*.rs"}},
        }));
        let hook = hook.unwrap();
        for (tool, hears) in
            [("bash", true), ("write_file", true), ("bash2", false), ("grep", false)]
        {
            assert_eq!(hook.has_hook(HookEvent::PreToolUse, Some(tool)), hears, "{tool}");
        }
        let about = |input: Value| {
            hook.is_about(&HookedCall {
                call_id: CallId::new("c"),
                tool: "bash".to_owned(),
                annotations: posse_actors::ports::ToolAnnotations::default(),
                input,
            })
        };
        assert!(about(json!({"path": "src/a.rs"})));
        for input in [json!({"path": "a.txt"}), json!({}), json!({"path": 1}), json!("x")] {
            assert!(!about(input.clone()), "{input}");
        }
    }

    #[test]
    fn patterns_are_linear_and_anchored() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("*push*", "git push -f", true),
            ("git push", "git push -f", false),
            ("**a**", "bab", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
        assert!(!matches(&"*a".repeat(500), &"a".repeat(499)));
    }

    #[test]
    fn invalid_setting_is_reported_with_its_place() {
        let rows = [
            json!("x"),
            json!({"event": "PreToolUse"}),
            json!({"event": "PreToolUse", "command": "rm -rf /"}),
            json!({"event": "PreToolUse", "command": []}),
            json!({"event": "PreToolUse", "command": ["hooks/check.sh"]}),
            json!({"event": "PreToolUse", "command": ["./check.sh"]}),
            json!({"event": "preToolUse", "command": ["x"]}),
            json!({"event": "PreToolUse", "command": ["x"], "onFailure": "deny"}),
            json!({"event": "Stop", "command": ["x"], "onFailure": "block"}),
            json!({"event": "SessionEnd", "command": ["x"], "onFailure": "block"}),
            json!({"event": "PreToolUse", "command": ["x"], "timeoutMs": 0}),
            json!({"event": "PreToolUse", "command": ["x"], "timeoutMS": 10}),
            json!({"event": "Stop", "command": ["x"], "match": {"tools": ["bash"]}}),
            json!({"event": "PreToolUse", "command": ["x"], "match": {"tools": []}}),
            json!({"event": "PreToolUse", "command": ["x"], "match": {"tool": "bash"}}),
            json!({"event": "PreToolUse", "command": ["x"], "match": {"input": {"path": 1}}}),
            json!({"event": "PreToolUse", "command": ["x"], "network": "yes"}),
        ];
        let told: Vec<String> = rows.iter().map(|row| one(row).unwrap_err()).collect();
        insta::assert_snapshot!(told.join("\n"));
        let many = vec![json!({"event": "Stop", "command": ["x"]}); HOOKS_MAX + 1];
        assert!(parse(&many, None).is_err());
    }
}
