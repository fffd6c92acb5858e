//! The main agent, and agent definitions that posse leaves out.

use crate::agents::AgentUse;
use crate::doctor::{Check, Examined, Status};
use crate::wiring::subagents;

const AREA: &str = "agents";

/// Checks the main agent and all agent definitions. Empty without a configuration or folders.
pub(super) fn checks(examined: &Examined<'_>) -> Vec<Check> {
    let (Ok(dirs), Ok(loaded)) = (examined.dirs, examined.loaded) else { return Vec::new() };
    let settings = &loaded.settings;
    let tools = crate::tools::NAMES.map(str::to_owned);
    let roster = subagents::roster(examined.cwd, dirs, settings, &tools);
    let left_out = roster.refused().map(|failure| {
        let check = Check::of(AREA, "left out", failure);
        Check { status: Status::Warning, ..check }
    });
    let mut checks: Vec<Check> = left_out.collect();
    let chosen = subagents::with_main_agent(roster, settings, AgentUse::Task, &mut Vec::new());
    checks.push(match chosen {
        Ok(_) => Check::new(AREA, "main agent", Status::Good, &*settings.default_agent),
        Err(failure) => Check::of(AREA, "main agent", &failure),
    });
    checks
}
