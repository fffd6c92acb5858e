//! Effective settings: layers of JSON values, merged leaf by leaf, each with its source.
//!
//! Built-in < user < project < `--config` < saved preferences < environment < flags. A repository
//! can set harmless keys; the rest of its file is inert until the user trusts it. All errors are
//! found in one pass and reported with their place.

mod describe;
mod edit;
mod environment;
mod file;
mod layers;
pub mod preferences;
mod schema;
mod settings;
mod show;
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
pub use settings::{
    CallBudget, ConfiguredAgent, ContextSize, ContextSizes, DelegationSettings, GrantKeeping,
    ProviderSettings, RoleSettings, SandboxSettings, Settings, SkillSettings, Timeouts,
    ToolSettings,
};
pub use show::{paths, show, shown_value};

use file::ReadPolicy;
use layers::LayerReader;

/// The name of the configuration file in its folders.
const FILE_NAME: &str = "config.json";

/// Sources of settings.
#[derive(Debug, Clone, Default)]
pub struct Sources<'a> {
    /// The root of the project, whose `.posse/config.json` is read.
    pub project: Option<&'a Path>,
    /// `--config`.
    pub file: Option<&'a Path>,
    /// `--trust-project`: the project's file counts, for this run.
    pub trust_project: bool,
    /// SHA-256 of the project's file that the user trusts, in hex. Another one is not trusted.
    pub trusted: Option<&'a str>,
    /// Environment variables whose values providers of the trusted project may receive as keys.
    pub trusted_variables: &'a [String],
    /// Providers that exist without being configured, and the variables with their keys.
    pub presets: &'a [(&'static str, Option<&'static str>)],
    /// Settings from flags: key, value, flag.
    pub flags: Vec<(&'static str, Value, &'static str)>,
}

/// Result of loading.
#[derive(Debug)]
pub struct Loaded {
    /// Effective settings.
    pub settings: Settings,
    /// Source of each leaf.
    pub layers: Layers,
    /// Notices for the user; each is one line for standard error.
    pub notices: Vec<Notice>,
    /// The project's file, if there is one that can be read.
    pub project: Option<ProjectFile>,
}

/// A deviation that does not prevent the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `CFG005`, …
    pub code: ErrorCode,
    /// The deviation and its handling.
    pub text: String,
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "warning[{}]: {}", self.code, printable(&self.text))
    }
}

/// Reads all layers. All errors are reported together.
pub fn load(
    environment: &Environment,
    dirs: &Dirs,
    sources: &Sources<'_>,
) -> Result<Loaded, Vec<Failure>> {
    load_with(environment, dirs, sources, Outside { rules: &|_| Vec::new(), is_preset: &|_| true })
}

/// Validators from other modules.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "closures have no form to print")]
pub struct Outside<'a> {
    /// Errors of `permissions`.
    pub rules: &'a dyn Fn(&[Value]) -> Vec<Failure>,
    /// True if a provider of that name exists without a definition.
    pub is_preset: &'a dyn Fn(&str) -> bool,
}

/// Loads with validators: invalid rules are errors, and an unknown saved provider is ignored.
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
    for (key, value, flag) in &sources.flags {
        reader.flag(key, value, flag);
    }
    let missing = reader.finish(outside.is_preset);
    let LayerReader { layers, mut notices, mut failures, project, key_files, .. } = reader;
    notices.extend(notice);
    notices.extend(missing.map(|name| ignored_provider(&name, dirs)));
    let mut settings = Settings::from_layers(&layers, environment, &mut failures);
    settings.trust_project = sources.trust_project;
    settings.key_files = key_files;
    settings.project_rules = project.as_ref().map_or(0, |project| project.rules_in(&layers));
    let from = settings.permissions_from.as_deref();
    failures.extend((outside.rules)(&settings.permissions).into_iter().map(|failure| match from {
        Some(from) => failure.at(from),
        None => failure,
    }));
    if failures.is_empty() {
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

/// An error in the configuration.
pub(crate) fn invalid(code: ErrorCode, what: impl Into<String>) -> Failure {
    Failure::new(code, Exit::Configuration, what)
}

/// The user's configuration file, whether or not it exists.
pub fn user_file(dirs: &Dirs) -> PathBuf {
    dirs.config.join(FILE_NAME)
}

/// The configuration file of the project at `root`, whether or not it exists.
pub fn project_file(root: &Path) -> PathBuf {
    root.join(".posse").join(FILE_NAME)
}

/// Abbreviated secret for display: enough to distinguish two secrets.
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

/// True if a text has the form of a key of a well-known service.
pub(crate) fn looks_like_key(text: &str) -> bool {
    const BEGINNINGS: [&str; 9] =
        ["sk-", "ghp_", "gho_", "github_pat_", "AIza", "xoxb-", "xoxp-", "AKIA", "gsk_"];
    text.len() >= 20
        && !text.contains(char::is_whitespace)
        && BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
}

#[cfg(test)]
mod tests;
