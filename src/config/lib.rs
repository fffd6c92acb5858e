//! Effective settings: layers of JSON values, merged leaf by leaf, each with its source.
//!
//! Built-in < user < project < `--config` < saved preferences < environment < flags. A repository
//! can set harmless keys; its other settings have no effect until the user trusts it. All errors
//! are found in one pass and reported with their file and line.

mod describe;
mod edit;
mod environment;
mod file;
mod layers;
mod missing_paths;
pub mod preferences;
mod rule_links;
mod schema;
mod settings;
mod show;
mod variables;
mod write;

use std::path::{Path, PathBuf};

use posse_base::failure::{ErrorCode, Exit, Failure, printable};
use serde_json::Value;

pub use describe::{json_schema, reference};
pub use edit::{edit, explain};
pub use environment::{Dirs, Environment};
pub use layers::{
    Fate, Layers, Leaf, ProjectFile, ProjectSetting, SettingOrigin, TrustClass, key_variable,
};
pub use rule_links::resolved_rules;
pub use settings::{
    CallBudget, CheckpointSettings, ConfiguredAgent, ContextSize, ContextSizes, DelegationSettings,
    GrantKeeping, ModelSelection, NetworkSettings, NotifySettings, ProviderSettings,
    ProviderTimeouts, RoleSettings, SandboxSettings, Settings, SkillSettings, ToolSettings,
    UiSettings,
};
pub use show::{paths, show, shown_value};
pub use variables::{Variable, variables};

use file::ReadPolicy;
use layers::LayerReader;

/// Name of a configuration file: in the user's configuration folder, and in `.posse` of a project.
const FILE_NAME: &str = "config.json";

/// Sources of settings.
#[derive(Debug, Clone, Default)]
pub struct Sources<'a> {
    /// Root folder of the project; its `.posse/config.json` is read. `None`: no project file.
    pub project: Option<&'a Path>,
    /// Additional configuration file of the user (`--config`). It must exist.
    pub file: Option<&'a Path>,
    /// True with `--trust-project`: the project's file is trusted for this run.
    pub trust_project: bool,
    /// SHA-256, in hex, of the project file that the user trusts. A file with another hash is not
    /// trusted. `None`: the user trusts no file of this project.
    pub trusted: Option<&'a str>,
    /// Names of environment variables whose values the trusted project's providers may receive as
    /// API keys.
    pub trusted_variables: &'a [String],
    /// Built-in providers: the name, and the environment variable with the API key, if it has one.
    pub presets: &'a [(&'static str, Option<&'static str>)],
    /// Settings of the last layer: key, value, and source as text: a flag, a slash command, or the
    /// resumed session.
    pub flags: Vec<(&'static str, Value, &'static str)>,
}

/// Result of [`load`] and [`load_with`], if no layer has an error.
#[derive(Debug)]
pub struct Loaded {
    /// Effective settings.
    pub settings: Settings,
    /// Effective value of each key that is set or has a default, with its source.
    pub layers: Layers,
    /// Warnings for the user, each for one line on standard error. Empty if there are none.
    pub notices: Vec<Notice>,
    /// The project's file, with the decision about each setting. `None` if there is no project, or
    /// its file is missing or cannot be read.
    pub project: Option<ProjectFile>,
}

/// A warning about the configuration. It does not prevent the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Code of the warning, such as `CFG005`.
    pub code: ErrorCode,
    /// The problem, and how posse handles it.
    pub text: String,
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "warning[{}]: {}", self.code, printable(&self.text))
    }
}

/// Reads and merges all layers. Does not check permission rules, and accepts any saved provider.
/// Returns all errors together.
pub fn load(
    environment: &Environment,
    dirs: &Dirs,
    sources: &Sources<'_>,
) -> Result<Loaded, Vec<Failure>> {
    load_with(environment, dirs, sources, Outside { rules: &|_| Vec::new(), is_preset: &|_| true })
}

/// Errors about members of a list, each with the index of its member.
pub type MemberFailures = Vec<(usize, Failure)>;

/// Checks that need code of other crates.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "closures have no form to print")]
pub struct Outside<'a> {
    /// Returns the errors in a list of permission rules, each with the index of its rule.
    pub rules: &'a dyn Fn(&[Value]) -> MemberFailures,
    /// Returns true for the name of a built-in provider, which needs no configuration.
    pub is_preset: &'a dyn Fn(&str) -> bool,
}

/// Reads and merges all layers with the checks of `outside`: invalid permission rules are errors,
/// and a saved provider that is neither configured nor built in is ignored with a notice. Returns
/// all errors together.
pub fn load_with(
    environment: &Environment,
    dirs: &Dirs,
    sources: &Sources<'_>,
    outside: Outside<'_>,
) -> Result<Loaded, Vec<Failure>> {
    let mut reader = LayerReader::default();
    reader.user_file(&user_file(dirs), ReadPolicy::Optional);
    if let Some(project) = sources.project {
        reader.project_file(&project_file(project), sources);
    }
    if let Some(file) = sources.file {
        reader.user_file(file, ReadPolicy::Required);
    }
    let (saved, notice) = preferences::load(dirs);
    reader.preferences(saved);
    reader.environment(environment);
    reader.key_variables(environment, sources.presets);
    for (key, value, flag) in &sources.flags {
        reader.flag(key, value, flag);
    }
    let missing = reader.finish(outside.is_preset);
    let subagent_model = reader.subagent_model();
    let LayerReader { layers, mut notices, mut failures, project, key_files, .. } = reader;
    notices.extend(notice);
    notices.extend(missing.map(|name| ignored_provider(&name, dirs)));
    let mut settings = Settings::from_layers(&layers, environment, &mut failures);
    notices.extend(missing_paths::missing_paths(&settings, &layers));
    settings.trust_project = sources.trust_project;
    settings.key_files = key_files;
    settings.subagent_model = subagent_model;
    settings.project_rules = project.as_ref().map_or(0, |project| project.rules_in(&layers));
    let leaf = layers.get("permissions");
    let wrong = (outside.rules)(&settings.permissions).into_iter();
    failures.extend(wrong.map(|(nth, failure)| match leaf {
        Some(leaf) => failure.at(leaf.member_place(nth)),
        None => failure,
    }));
    if failures.is_empty() {
        let home = environment.home_target().map(PathBuf::from);
        let resolved = resolved_rules(&settings.permissions, home.as_deref());
        // The rules of the project are the last ones.
        settings.permissions.splice(0..0, resolved);
        Ok(Loaded { settings, layers, notices, project })
    } else {
        Err(failures)
    }
}

fn ignored_provider(provider: &str, dirs: &Dirs) -> Notice {
    let path = preferences::path(dirs);
    let text = format!(
        "the provider \"{provider}\" that was saved as your last choice ({}) is not defined here \
         and was ignored; choose another with /provider, or remove it with `posse config forget`",
        printable(&path.display().to_string())
    );
    Notice { code: ErrorCode::ProviderUnknown, text }
}

/// Makes an error with the exit code of configuration errors.
pub(crate) fn invalid(code: ErrorCode, what: impl Into<String>) -> Failure {
    Failure::new(code, Exit::Configuration, what)
}

/// Path of the user's configuration file. The file may not exist.
pub fn user_file(dirs: &Dirs) -> PathBuf {
    dirs.config.join(FILE_NAME)
}

/// Path of the configuration file of the project at `root`. The file may not exist.
pub fn project_file(root: &Path) -> PathBuf {
    root.join(".posse").join(FILE_NAME)
}

/// Abbreviates a secret for display: only `…` if it has fewer than 12 characters, else `…` and its
/// last four characters, after `sk-` if the secret begins with that.
pub(crate) fn masked(secret: &str) -> String {
    let count = secret.chars().count();
    let last: String = secret.chars().skip(count.saturating_sub(4)).collect();
    match count {
        // The last four letters of a short secret would be too much of it.
        0..12 => "…".to_owned(),
        _ if secret.starts_with("sk-") => format!("sk-…{last}"),
        _ => format!("…{last}"),
    }
}

/// True if a text looks like an API key of a well-known service: it begins like one, has at least
/// 20 bytes, and no white space.
pub(crate) fn looks_like_key(text: &str) -> bool {
    const BEGINNINGS: [&str; 9] =
        ["sk-", "ghp_", "gho_", "github_pat_", "AIza", "xoxb-", "xoxp-", "AKIA", "gsk_"];
    text.len() >= 20
        && !text.contains(char::is_whitespace)
        && BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
}

#[cfg(test)]
mod tests;
