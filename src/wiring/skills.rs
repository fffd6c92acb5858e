//! Loading of skills, with trust for those of a project, and activation of skills by a prompt.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::conversation::{ContentPart, Prompt};
use posse_actors::ports::Tool;

use crate::agents::{self, Rights, Roster, SkillPlaces, Skills};
use crate::config::{Dirs, Environment, Settings};
use crate::failure::{ErrorCode, Exit, Failure, all_or_failures};
use crate::project::{self, Identity};
use crate::signed_store::SignedStore;
use crate::trust::TrustStore;
use crate::warnings::{untrusted, warning_line};

/// Loads all skills that apply in `cwd`: the user's, and trusted ones of the project. Loads no
/// skills if the setting `skills.enabled` is false.
pub(crate) fn load(
    cwd: &Path,
    dirs: &Dirs,
    settings: &Settings,
    environment: &Environment,
) -> Skills {
    if !settings.skills.enabled {
        return Skills::default();
    }
    let root = project::root_of(cwd);
    // Most projects have none, so trust is not queried.
    let there = agents::has_project_skills(&root);
    let trusted = there.then(|| {
        let identity = Identity::of(&root).ok()?;
        TrustStore::new(SignedStore::new(&dirs.state)).find(&identity).ok().flatten()
    });
    let trusted = trusted.flatten().map(|trusted| trusted.skills).unwrap_or_default();
    let believes = |path: &str, digest: &str| {
        settings.trust_project || trusted.get(path).is_some_and(|known| known == digest)
    };
    let places = SkillPlaces {
        user: user_folders(dirs, settings, environment),
        project: there.then_some(root),
        disabled: settings.skills.disabled.clone(),
    };
    Skills::load(&places, &believes)
}

/// Skill folders of the user. The flag is true if commands have no access to the folder, because it
/// is inside posse's own folders.
fn user_folders(
    dirs: &Dirs,
    settings: &Settings,
    environment: &Environment,
) -> Vec<(PathBuf, bool)> {
    let own = dirs.own_folders();
    let hidden = |folder: PathBuf| {
        let is_own = own.iter().any(|own| folder.starts_with(own));
        (folder, is_own)
    };
    let home = environment.home();
    let common =
        home.iter().flat_map(|home| [".agents/skills", ".claude/skills"].map(|f| home.join(f)));
    let further = settings.skills.folders.iter().cloned();
    further.chain([dirs.config.join("skills")]).chain(common).map(hidden).collect()
}

/// The tool with which a model activates skills. `None` if there are no skills.
pub(crate) fn tool(skills: &Arc<Skills>, roster: &Roster) -> Option<Arc<dyn Tool>> {
    if skills.is_empty() {
        return None;
    }
    let narrowed = roster.agents.iter().filter(|agent| agent.skills.is_some());
    let rights: Rights = narrowed
        .map(|agent| {
            let seen = skills.all().filter(|skill| agent.sees_skill(&skill.name));
            (agent.name.clone(), seen.map(|skill| skill.name.clone()).collect())
        })
        .collect();
    Some(agents::skill_tool(Arc::clone(skills), rights))
}

/// Warnings about rejected, questionable and untrusted skills, one per line.
pub(crate) fn remarks(skills: &Skills) -> String {
    let refused = skills.refused.iter().map(|failure| warning_line(failure, "; left out"));
    let odd = skills.remarks.iter().map(|failure| warning_line(failure, ""));
    refused.chain(odd).collect::<String>() + &untrusted("skills", &skills.inert)
}

/// Puts the text of the skills `names` before the prompt. Fails with one error per unknown name.
pub(crate) fn with_skills(
    prompt: Prompt,
    names: &[String],
    skills: &Skills,
) -> Result<Prompt, Vec<Failure>> {
    let found = all_or_failures(names.iter().map(|name| skills.find(name)))?;
    let requested = found.into_iter().map(|skill| ContentPart::text(skill.content()));
    Ok(Prompt { content: requested.chain(prompt.content).collect() })
}

/// Puts the text of the skills `names` (`--skill`) before the prompt; fails if there is no prompt.
/// If `names` is empty, returns `prompt` and does not call `load`.
pub(crate) fn with_requested_skills(
    prompt: Option<Prompt>,
    names: &[String],
    load: impl FnOnce() -> Skills,
) -> Result<Option<Prompt>, Vec<Failure>> {
    if names.is_empty() {
        return Ok(prompt);
    }
    let Some(prompt) = prompt else {
        let failure =
            Failure::new(ErrorCode::SkillNeedsPrompt, Exit::Usage, "--skill needs a prompt here");
        return Err(vec![failure.fix("say what is to be done with it")]);
    };
    with_skills(prompt, names, &load()).map(Some)
}
