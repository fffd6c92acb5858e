//! Catalog of callable agents for the system prompt of a caller, shortened towards a maximum size.

use crate::{Agent, CatalogEntry, Roster};

/// Size in bytes above which the catalog of agents is shortened: about 2,000 tokens.
pub const CATALOG_BYTES_MAX: usize = 8000;

/// Section of the system prompt of `caller` that lists the agents that it may call; empty if there
/// are none. To fit `bytes_max`, first usage hints are omitted, then descriptions, but never a
/// name: with many names the section is longer.
pub fn catalog(roster: &Roster, caller: &Agent, bytes_max: usize) -> String {
    let callable: Vec<&Agent> = roster.callable_by(caller).collect();
    if callable.is_empty() {
        return String::new();
    }
    [(true, true), (true, false)]
        .into_iter()
        .map(|(descriptions, hints)| written(&callable, descriptions, hints))
        .find(|text| text.len() <= bytes_max)
        .unwrap_or_else(|| written(&callable, false, false))
}

fn written(agents: &[&Agent], descriptions: bool, hints: bool) -> String {
    let mut text =
        "\nAgents that you may call with delegate_agent. Each works alone with what you \
         give it, and gives back one answer. Call several in one turn to let them work side by \
         side.\n"
            .to_owned();
    for agent in agents {
        let CatalogEntry { category, cost, use_when, avoid_when } = &agent.catalog;
        let facts: Vec<&str> =
            category.as_deref().into_iter().chain(cost.map(<&str>::from)).collect();
        text.extend(["- ", &agent.name]);
        if !facts.is_empty() {
            text.extend([" (", &facts.join(", "), ")"]);
        }
        if descriptions {
            text.extend([": ", &agent.description]);
        }
        text.push('\n');
        for (label, lines) in [("Use when", use_when), ("Avoid when", avoid_when)] {
            if hints && !lines.is_empty() {
                text.extend(["  ", label, ": ", &lines.join("; "), "\n"]);
            }
        }
    }
    text
}
