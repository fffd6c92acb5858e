//! `posse skills`: lists skills, or shows one.

use std::io::{BufWriter, Write as _};

use posse_base::terminal;

use crate::cli::{SkillsAction, SkillsArgs};
use crate::commands::notices;
use crate::config::Environment;
use crate::failure::{Exit, Failure, lines};
use crate::lists;
use crate::unused_settings;
use crate::wiring::skills;
use crate::wiring::{WorkspaceContext, place};

/// Runs `posse skills` or `posse skills show NAME`: prints all skills or one.
pub(super) fn list(
    SkillsArgs { action, list }: &SkillsArgs,
    environment: &Environment,
) -> Result<Exit, Vec<Failure>> {
    let (name, args) = match action {
        None => (None, list),
        Some(SkillsAction::Show { name, list }) => (Some(name), list),
    };
    let WorkspaceContext { cwd, dirs, loaded } = place(&args.place, Vec::new(), environment)?;
    notices(&loaded);
    let skills = skills::load(&cwd, &dirs, &loaded.settings, environment);
    let disabled = unused_settings::disabled_skills(&loaded.settings, &skills);
    let remarks = skills::remarks(&skills) + &lines(&disabled);
    terminal::stderr().write_all(remarks.as_bytes()).ok();
    let mut out = BufWriter::new(terminal::stdout());
    let ended = match name {
        None => lists::skills(&skills, args.json, &mut out),
        Some(name) => {
            let skill = skills.find(name)?;
            lists::skill(skill, args.json, &mut out)
        }
    };
    Ok(ended?)
}
