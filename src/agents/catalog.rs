//! Catalog of callable agents for the system prompt of a caller, within a size budget.

use crate::agents::{Agent, Roster};

/// Maximum size of the catalog in bytes: about 2,000 tokens.
pub const CATALOG_BYTES_MAX: usize = 8000;

/// Part of the system prompt of `caller` with its callable agents; empty if there are none. Beyond
/// the budget, usage hints are omitted first, then descriptions, never a name.
pub fn catalog(roster: &Roster, caller: &Agent, bytes_max: usize) -> String {
    let callable: Vec<&Agent> = roster.callable_by(caller).collect();
    if callable.is_empty() {
        return String::new();
    }
    [Detail::All, Detail::Descriptions]
        .into_iter()
        .map(|detail| written(&callable, detail))
        .find(|text| text.len() <= bytes_max)
        .unwrap_or_else(|| written(&callable, Detail::Names))
}

#[derive(Clone, Copy, PartialEq)]
enum Detail {
    All,
    Descriptions,
    Names,
}

fn written(agents: &[&Agent], detail: Detail) -> String {
    let mut text =
        "\nAgents that you may call with delegate_agent. Each works alone with what you \
         give it, and gives back one answer. Call several in one turn to let them work side by \
         side.\n"
            .to_owned();
    for agent in agents {
        let facts: Vec<&str> = agent
            .catalog
            .category
            .as_deref()
            .into_iter()
            .chain(agent.catalog.cost.map(crate::agents::Cost::name))
            .collect();
        text.push_str("- ");
        text.push_str(&agent.name);
        if !facts.is_empty() {
            text.push_str(" (");
            text.push_str(&facts.join(", "));
            text.push(')');
        }
        if detail != Detail::Names {
            text.push_str(": ");
            text.push_str(&agent.description);
        }
        text.push('\n');
        if detail == Detail::All {
            let when =
                [("Use when", &agent.catalog.use_when), ("Avoid when", &agent.catalog.avoid_when)];
            for (label, lines) in when.into_iter().filter(|(_, lines)| !lines.is_empty()) {
                text.push_str("  ");
                text.push_str(label);
                text.push_str(": ");
                text.push_str(&lines.join("; "));
                text.push('\n');
            }
        }
    }
    text
}
