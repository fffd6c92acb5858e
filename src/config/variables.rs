//! Environment variables that posse reads besides those that set a configuration key, and variables
//! that it sets for the programs that it starts.

use crate::schema::KEYS;

/// An environment variable, for the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// The configuration key that it sets; `None` for a variable that sets none.
    pub key: Option<&'static str>,
    /// Description: one or more sentences.
    pub about: &'static str,
}

/// Variables that posse reads and that set no key.
#[rustfmt::skip] // One row a line.
const READ: &[(&str, &str)] = &[
    ("POSSE_HOME", "Absolute path of a folder for configuration and state, in place of the XDG folders."),
    ("POSSE_SANDBOX_BACKEND", "Forces a mechanism of the sandbox, for tests of posse: `namespaces`, `bubblewrap`, `landlock` or `nothing`. It can only weaken what `sandbox.required` then refuses."),
    ("POSSE_SANDBOX_SURVEY", "Maximum number of folders that the sandbox searches for protected files, for tests of posse."),
    ("POSSE_NETWORK_NAMES", "Names that lead to servers on this machine, for tests of posse: `registry.example=127.0.0.1:4873`. With it, commands reach no other name through the proxy."),
    ("POSSE_CODEX_LOOPBACK", "Lets the ChatGPT login use servers on this machine, for tests of posse."),
    ("HOME", "The home folder. Without it, `POSSE_HOME` must be set."),
    ("XDG_CONFIG_HOME", "Folder of configuration files, by default `~/.config`; posse uses `posse` in it. A relative path is ignored."),
    ("XDG_STATE_HOME", "Folder of state files, by default `~/.local/state`; journals, grants and trust are in `posse` in it."),
    ("XDG_RUNTIME_DIR", "Folder of sockets; the sandbox hides it from commands."),
    ("CODEX_HOME", "Folder with the login of the Codex program, by default `~/.codex`."),
    ("TMPDIR", "Folder of temporary files, by default `/tmp`."),
    ("PATH", "Folders in which programs such as `git` and `bwrap` are searched."),
    ("VISUAL", "Command line of the editor for prompts; used before `EDITOR`."),
    ("EDITOR", "Command line of the editor for prompts, if `VISUAL` is not set."),
    ("PAGER", "Command line through which `posse help` shows a long text at a terminal."),
    ("NO_COLOR", "If set to any text, output has no colours."),
    ("CLICOLOR_FORCE", "If set to another text than `0`, output has colours also without a terminal."),
    ("COLUMNS", "Width of lists and texts in columns, if the terminal does not tell it."),
    ("TERM", "Type of the terminal. `dumb` means: no colours and no terminal UI."),
    ("LC_ALL", "Locale; decides with `LC_CTYPE` and `LANG`, the first that is set, if the terminal shows UTF-8."),
    ("LC_CTYPE", "See `LC_ALL`."),
    ("LANG", "See `LC_ALL`."),
    ("TZ", "Time zone of times that are shown."),
    ("HTTP_PROXY", "Proxy for requests with `http://`; lower case counts too."),
    ("HTTPS_PROXY", "Proxy for requests with `https://`; lower case counts too."),
    ("ALL_PROXY", "Proxy for all requests without a proxy of their own; lower case counts too."),
    ("NO_PROXY", "Hosts that are reached without a proxy, separated by commas; lower case counts too."),
];

/// Variables that posse sets for the programs that it starts.
#[rustfmt::skip] // One row a line.
const SET: &[(&str, &str)] = &[
    ("POSSE_CALL", "Mark of the processes of a command, by which a stop finds them."),
    ("POSSE_HOOK_EVENT", "Name of the point of the session at which the hook runs."),
    ("POSSE_HOOK_INPUT", "Path of the input of a hook."),
    ("POSSE_HOOK_ERRORS", "Path of the errors of a hook."),
];

/// Environment variables in three groups: those that set a configuration key, further ones that
/// posse reads, and those that it sets for the programs that it starts.
pub fn variables() -> [Vec<Variable>; 3] {
    let keys = KEYS.iter().filter_map(|key| {
        let name = key.variable?;
        Some(Variable { name, key: Some(key.path), about: key.about })
    });
    let mut keys: Vec<Variable> = keys.collect();
    keys.sort_by_key(|variable| variable.name);
    let table = |rows: &[(&'static str, &'static str)]| {
        let rows = rows.iter();
        rows.map(|(name, about)| Variable { name, key: None, about }).collect::<Vec<_>>()
    };
    [keys, table(READ), table(SET)]
}

/// True for a variable that sets no configuration key, but is read or set by posse.
pub(crate) fn is_known(name: &str) -> bool {
    READ.iter().chain(SET).any(|(known, _)| *known == name)
}
