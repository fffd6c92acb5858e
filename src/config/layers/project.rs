//! The configuration file of a repository: which of its settings apply, and why others do not.
//!
//! Harmless keys always apply. Other keys apply if the user trusts exactly these bytes, or the
//! project for this run. Even then, the API keys of the user's and the built-in providers are sent
//! to no other address, the value of another variable only if the user allowed it, and sandbox and
//! permission rules do not become less strict than the user's.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use posse_base::failure::ErrorCode;

use crate::Sources;
use crate::file::{ConfigFile, ReadPolicy};
use crate::layers::walk::ConfigLeaf;
use crate::layers::{
    LayerReader, Layers, Leaf, Position, SettingOrigin, Walk, from_future, member_places, names,
};
use crate::schema::{self, ConfigKey, Project};

/// The configuration key of permission rules.
const RULES: &str = "permissions";

/// A project's configuration file, with the decision about each valid setting.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectFile {
    /// Path of the file, printable.
    pub name: String,
    /// SHA-256 of the bytes of the file, in hex.
    pub digest: String,
    /// The valid settings of the file in its order, applied or not. A list of permission rules can
    /// be two entries: the rules that deny or ask, then the others.
    pub wanted: Vec<ProjectSetting>,
}

/// One setting in a project's configuration file.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectSetting {
    /// Dotted key of the setting.
    pub key: String,
    /// Value of the setting.
    pub value: Value,
    /// Line of the value, from 1. For a member of an object such as `headers` or `agents`, the line
    /// at which the object begins.
    pub line: usize,
    /// Decision whether the setting applies.
    pub fate: Fate,
}

/// Decision whether a project's setting applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The setting applies, for this reason, unless a later layer replaces it or it contradicts
    /// another setting.
    Counts(TrustClass),
    /// The project is not trusted. Once it is, the setting applies; an `apiKeyEnv` only if the user
    /// also allows its variable.
    Waits,
    /// The project is trusted, but the setting names an environment variable whose value the user
    /// has not allowed the project to receive.
    NotAllowed,
    /// The setting does not apply, whether the project is trusted or not. Contains the reason.
    Refused(&'static str),
}

/// Reason why a project's setting applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustClass {
    /// Every project may set the key.
    Harmless,
    /// The user trusts the file with its present content.
    Content,
    /// The user trusts the project for this run (`--trust-project`).
    ThisRun,
}

impl ProjectFile {
    /// Number of permission rules at the end of the effective list that come from this file. Zero
    /// if none of them applies, or if the list of a later file replaced them.
    pub(crate) fn rules_in(&self, layers: &Layers) -> usize {
        let origin = layers.get(RULES).map(|leaf| &leaf.origin);
        if !matches!(origin, Some(SettingOrigin::Project { .. })) {
            return 0;
        }
        let counts = |wanted: &&ProjectSetting| {
            wanted.key == RULES && matches!(wanted.fate, Fate::Counts(_))
        };
        let counted = self.wanted.iter().filter(counts);
        counted.filter_map(|wanted| wanted.value.as_array()).map(Vec::len).sum()
    }
}

impl fmt::Display for TrustClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrustClass::Harmless => "harmless project setting",
            TrustClass::Content => "trusted project",
            TrustClass::ThisRun => "project trusted for this run",
        })
    }
}

impl LayerReader {
    /// Reads a repository's file, applies its permitted settings, and stores the file in `project`.
    /// Mistakes in the file are errors if it is trusted, otherwise one notice. A file that cannot
    /// be read is an error with `--trust-project`, otherwise a notice.
    pub(crate) fn project_file(&mut self, path: &Path, sources: &Sources<'_>) {
        let source = match ConfigFile::read(path, ReadPolicy::Foreign) {
            Ok(None) => return,
            Ok(Some(source)) => source,
            Err(failure) if sources.trust_project => return self.failures.push(failure),
            Err(failure) => {
                let text = format!("{}; ignored ({})", failure.what, path.display());
                return self.notice(failure.code, text);
            }
        };
        let digest = source.digest.clone().unwrap_or_default();
        let trust = if sources.trust_project {
            Some(TrustClass::ThisRun)
        } else {
            (sources.trusted == Some(digest.as_str())).then_some(TrustClass::Content)
        };
        let is_trusted = trust.is_some();
        let mut walk = Walk::of(&source);
        self.mistakes(&mut walk, is_trusted);
        walk.found = walk.found.into_iter().flat_map(split_restricting).collect();
        let wanted: Vec<ProjectSetting> =
            walk.found.iter().map(|found| self.judge(found, trust, sources)).collect();
        self.note_ignored(&source.name, &wanted, !is_trusted && sources.trusted.is_some());
        let name: Arc<str> = source.name.as_str().into();
        for (found, wanted) in walk.found.into_iter().zip(&wanted) {
            if let Fate::Counts(trust) = wanted.fate {
                self.count(found, &name, trust, is_trusted);
            }
        }
        self.project = Some(ProjectFile { name: source.name.clone(), digest, wanted });
    }

    fn mistakes(&mut self, walk: &mut Walk<'_>, trusted: bool) {
        if walk.from_future {
            self.notices.push(from_future(walk));
        } else if trusted {
            self.failures.append(&mut walk.failures);
        } else if let Some(first) = walk.failures.first() {
            let more = match walk.failures.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let text = format!("{}{more}; ignored ({})", first.what, walk.source.name);
            self.notice(first.code, text);
        }
    }

    fn judge(
        &self,
        found: &ConfigLeaf,
        trust: Option<TrustClass>,
        sources: &Sources<'_>,
    ) -> ProjectSetting {
        let refused = match found.key.project {
            Project::Harmless | Project::Trusted => None,
            Project::OwnProvider => self.provider_refusal(found, sources),
            Project::Tighten => self.widening_reason(found),
            Project::Never => Some("a repository cannot set it"),
        };
        let fate = match (refused, found.key.project, trust) {
            (Some(why), _, _) => Fate::Refused(why),
            (None, Project::Harmless, _) => Fate::Counts(TrustClass::Harmless),
            (None, _, Some(_)) if !may_send(found, sources) => Fate::NotAllowed,
            (None, _, Some(trust)) => Fate::Counts(trust),
            (None, _, None) => Fate::Waits,
        };
        ProjectSetting {
            key: found.path.clone(),
            value: found.value.clone(),
            line: found.position.line,
            fate,
        }
    }

    /// Reason why the project cannot configure this provider or use this API key. `None` if it can.
    fn provider_refusal(&self, found: &ConfigLeaf, sources: &Sources<'_>) -> Option<&'static str> {
        let name = found.path.split('.').nth(1).unwrap_or_default();
        let preset = sources.presets.iter().any(|(preset, _)| *preset == name);
        if preset || self.layers.below(&format!("providers.{name}.")).next().is_some() {
            return Some("a repository cannot configure a provider that it did not add");
        }
        let variable = found.value.as_str().filter(|_| found.path.ends_with(".apiKeyEnv"))?;
        let of_preset = sources.presets.iter().any(|(_, key)| *key == Some(variable));
        let of_user = self.layers.below("providers.").any(|(rest, leaf)| {
            rest.ends_with(".apiKeyEnv") && leaf.value.as_str() == Some(variable)
        });
        (of_preset || of_user).then_some("a repository cannot send another provider's key")
    }

    /// Reason to refuse a setting that only may become stricter: a sandbox mode or network access
    /// that is less strict than the user's, a list with a permission rule that neither denies nor
    /// asks, or `false` for a switch, whatever the user has set. `None` for other values.
    fn widening_reason(&self, found: &ConfigLeaf) -> Option<&'static str> {
        const WIDER: &str = "a repository can only make it stricter";
        let order: &[&str] = match found.key.path {
            RULES => {
                let all = found.value.as_array().is_some_and(|rules| rules.iter().all(restricts));
                return (!all).then_some("a repository can only add rules that deny or ask");
            }
            "sandbox.mode" => &["off", "workspace-write", "read-only"],
            "sandbox.network" => &["inherit", "ask", "auto", "deny"],
            _ => return (found.value != true).then_some(WIDER),
        };
        let rank = |value: &Value| order.iter().position(|name| value == name);
        let now = match self.layers.get(found.key.path) {
            Some(leaf) => rank(&leaf.value),
            None => found.key.default_value().as_ref().and_then(rank),
        };
        (rank(&found.value) < now).then_some(WIDER)
    }

    /// Adds one notice about the settings of the file that do not apply, with at most `NAMES_MAX`
    /// names for each reason. Adds none if all settings apply. `changed`: the user trusted the file
    /// with other content.
    fn note_ignored(&mut self, name: &str, wanted: &[ProjectSetting], changed: bool) {
        let keys = |which: fn(&Fate) -> bool| {
            let keys = wanted.iter().filter(|wanted| which(&wanted.fate));
            keys.map(|wanted| wanted.key.as_str()).collect::<BTreeSet<&str>>()
        };
        let refused = keys(|fate| matches!(fate, Fate::Refused(_)));
        let waiting = keys(|fate| matches!(fate, Fate::Waits));
        let mut parts = Vec::new();
        // A list of rules can be refused in part.
        let split = refused.contains(RULES)
            && wanted
                .iter()
                .any(|wanted| wanted.key == RULES && !matches!(wanted.fate, Fate::Refused(_)));
        let whole = || refused.iter().copied().filter(|key| !(split && *key == RULES));
        if whole().next().is_some() {
            parts.push(format!("{} cannot be set by a repository", names(whole())));
        }
        if split {
            parts.push(format!(
                "rules of \"{RULES}\" that do not deny or ask cannot be set by a repository"
            ));
        }
        let unsent = keys(|fate| *fate == Fate::NotAllowed);
        if !unsent.is_empty() {
            parts.push(format!(
                "{} not used: `posse trust add` asks about each variable whose value the project \
                 may receive",
                names(unsent.iter().copied())
            ));
        }
        if !waiting.is_empty() {
            let names = names(waiting.iter().copied());
            let what = if changed {
                "changed since you trusted this project, `posse trust show` shows the changes"
            } else {
                "until you trust this project, `posse trust add` shows the effect"
            };
            let rules = if waiting.contains(RULES) {
                ", so its rules that deny or ask are not in force either"
            } else {
                ""
            };
            parts.push(format!("{names} not used{rules}: {what}"));
        }
        if !parts.is_empty() {
            let code = if refused.is_empty() {
                ErrorCode::ProjectNotTrusted
            } else {
                ErrorCode::ConfigProjectForbidden
            };
            let text = format!("{}; ignored ({name})", parts.join("; "));
            self.notice(code, text);
        }
    }

    fn count(&mut self, found: ConfigLeaf, name: &Arc<str>, trust: TrustClass, is_trusted: bool) {
        let ConfigLeaf { key, path, mut value, position, members } = found;
        let mut members = member_places(name, &members);
        let before = self.layers.leaves.get(&path).cloned();
        let mut joined = false;
        if is_merged_list(key)
            && let (Some(Value::Array(own)), Value::Array(theirs)) =
                (before.as_ref().map(|leaf| &leaf.value), &value)
        {
            // The user's own come first, and none is lost.
            value = own.iter().chain(theirs).cloned().collect();
            let own = before.as_ref().map(|leaf| leaf.members.clone()).unwrap_or_default();
            members = own.into_iter().chain(members).collect();
            joined = true;
        }
        if !is_trusted {
            self.displaced.insert(path.clone(), before);
        }
        let origin = SettingOrigin::Project { name: Arc::clone(name), position, trust, joined };
        self.insert(key, path, Leaf { value, origin, members });
    }

    /// Drops address, authentication, headers and `apiKeyEnv` of a project's provider, with a
    /// notice, if the user configures a provider of this name. Also drops an `apiKeyEnv` that names
    /// the variable of a user's provider. So the user's keys are sent only to addresses that the
    /// user configured.
    pub(super) fn keep_providers_apart(&mut self) {
        let theirs = |leaf: &Leaf| matches!(leaf.origin, SettingOrigin::Project { .. });
        let name_of = |rest: &str| rest.split('.').next().unwrap_or_default().to_owned();
        let leaves = || self.layers.below("providers.");
        let users: BTreeSet<String> =
            leaves().filter(|(_, leaf)| !theirs(leaf)).map(|(rest, _)| name_of(rest)).collect();
        let variables: BTreeSet<&str> = leaves()
            .filter(|(rest, leaf)| rest.ends_with(".apiKeyEnv") && !theirs(leaf))
            .filter_map(|(_, leaf)| leaf.value.as_str())
            .collect();
        let own = |path: &str| {
            let parts: Vec<&str> = path.split('.').collect();
            let key = schema::find(parts.get(..3).unwrap_or(&parts));
            key.is_some_and(|key| key.project == Project::OwnProvider)
        };
        let clash = |path: &str, leaf: &Leaf| {
            let name = name_of(path.strip_prefix("providers.").unwrap_or_default());
            let key = path.ends_with(".apiKeyEnv")
                && leaf.value.as_str().is_some_and(|variable| variables.contains(variable));
            own(path) && (users.contains(&name) || key)
        };
        let gone: Vec<String> = self
            .layers
            .iter()
            .filter(|(path, leaf)| theirs(leaf) && clash(path, leaf))
            .map(|(path, _)| path.to_owned())
            .collect();
        if gone.is_empty() {
            return;
        }
        for path in &gone {
            self.layers.leaves.remove(path);
        }
        let names = names(gone.iter().map(String::as_str));
        let text = format!("{names} cannot be set by a repository: the provider is yours; ignored");
        self.notice(ErrorCode::ConfigProjectForbidden, text);
    }
}

/// True unless the setting is the `apiKeyEnv` of a provider, and the user has not allowed the
/// project to receive the value of the variable that it names.
fn may_send(found: &ConfigLeaf, sources: &Sources<'_>) -> bool {
    let Some(variable) = key_variable(&found.path, &found.value) else { return true };
    sources.trusted_variables.iter().any(|allowed| allowed == variable)
}

/// Name of the environment variable in `value`, if `key` is the dotted key of a provider's
/// `apiKeyEnv`. `None` for another key, or if `value` is not text.
pub fn key_variable<'a>(key: &str, value: &'a Value) -> Option<&'a str> {
    value.as_str().filter(|_| key.starts_with("providers.") && key.ends_with(".apiKeyEnv"))
}

/// True if the decision of a permission rule is `deny` or `ask`.
fn restricts(rule: &Value) -> bool {
    matches!(rule["decision"].as_str(), Some("deny" | "ask"))
}

/// Splits a list of permission rules into two lists: rules that deny or ask, then all other rules.
/// So a deny rule still applies if an allow rule beside it is refused. Returns any other setting
/// unchanged.
fn split_restricting(found: ConfigLeaf) -> Vec<ConfigLeaf> {
    let ConfigLeaf { key, path, value, position, members } = found;
    match value {
        Value::Array(rules) if key.path == RULES => {
            let placed = rules.into_iter().zip(members);
            let (narrow, wide): (Vec<_>, Vec<_>) = placed.partition(|(rule, _)| restricts(rule));
            let part = |rules: Vec<(Value, Position)>| {
                let (rules, members) = rules.into_iter().unzip();
                let value = Value::Array(rules);
                ConfigLeaf { key, path: path.clone(), value, position, members }
            };
            match (narrow.is_empty(), wide.is_empty()) {
                (_, true) => vec![part(narrow)],
                (true, false) => vec![part(wide)],
                (false, false) => vec![part(narrow), part(wide)],
            }
        }
        value => vec![ConfigLeaf { key, path, value, position, members }],
    }
}

/// True for the keys `permissions` and `hooks`: a project's list is appended to the user's list
/// instead of replacing it.
fn is_merged_list(key: &ConfigKey) -> bool {
    key.path == RULES || key.path == "hooks" || key.path.starts_with("hooks.")
}
