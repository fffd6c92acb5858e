//! `/rewind`: returns files, the conversation or both to the time of an earlier prompt.

use crate::commands::{Availability, COMMAND, Choice, Command};
use crate::{RewindExtent, rewind_extents};

pub(super) const REWIND: Command = Command {
    name: "rewind",
    argument: "[N [WHAT]]",
    help: "return to the state before prompt N; without N: choose one",
    when: Availability::Idle,
    run: |context, argument| {
        let mut words = argument.unwrap_or_default().split_whitespace();
        let number = words.next().and_then(|number| number.parse().ok());
        match (number, words.next().map(RewindExtent::named)) {
            (Some(number), None) => context.choose(Choice::RewindExtent(number)),
            (Some(number), Some(Some(extent))) => context.rewind(number, extent),
            // A word that is no number or no extent.
            (None, _) | (Some(_), Some(None)) => context.choose(Choice::RewindPoint),
        }
    },
    ..COMMAND
};

impl RewindExtent {
    /// The extent with this name: `files`, `conversation`, `both` or `all`.
    pub fn named(name: &str) -> Option<RewindExtent> {
        rewind_extents().find(|(known, ..)| *known == name).map(|(.., extent)| extent)
    }

    /// Name of the extent.
    pub fn name(self) -> &'static str {
        rewind_extents().find(|(.., extent)| *extent == self).map_or("both", |(name, ..)| name)
    }
}

/// Text of a list of prompts for a person: pairs of number and description.
pub fn rewind_points_text(points: Vec<(usize, String)>) -> String {
    let mut text = String::new();
    for (number, what) in points {
        text.extend([&format!("{number:>3}"), "  ", &what, "\n"]);
    }
    text.push_str(if text.is_empty() {
        "There is no prompt to return to.\n"
    } else {
        "/rewind N files, /rewind N conversation or /rewind N both returns to the state before \
         prompt N.\n"
    });
    text
}

/// Text of the commands that return to the state before prompt `number`.
pub fn rewind_extents_text(number: usize) -> String {
    let mut text = String::new();
    for (name, what, _) in rewind_extents() {
        text.extend([&format!("/rewind {number} {name}"), "  ", what, "\n"]);
    }
    text
}
