//! `posse skills`: lists skills, or shows one.

use std::io::{BufWriter, Write as _};

use posse_base::terminal;

use crate::cli::{SkillsAction, SkillsArgs};
use crate::commands::notices;
use crate::config::Environment;
use crate::failure::{Exit, Failure};
use crate::lists;
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
    terminal::stderr().write_all(skills::remarks(&skills).as_bytes()).ok();
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
