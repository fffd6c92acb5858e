//! `/rewind`: returns files, the conversation or both to the time of an earlier prompt.

use crate::commands::{Availability, COMMAND, Choice, Command};
use crate::remote_session::Revert;
use crate::{ReplacedChanges, RewindExtent, rewind_extents};

pub(super) const REWIND: Command = Command {
    name: "rewind",
    brief: "return to the state before a prompt",
    argument: "[N [WHAT]]",
    help: "return to the state before prompt N; without N: choose one",
    when: Availability::Idle,
    run: |context, argument| {
        let Some(argument) = argument else { return context.choose(Choice::RewindPoint) };
        let mut words = argument.split_whitespace();
        let number = words.next().and_then(|number| number.parse().ok());
        let (extent, more) = (words.next(), words.next());
        match (number, extent.map(RewindExtent::named), more) {
            (Some(number), None, _) => context.choose(Choice::RewindExtent(number)),
            (Some(number), Some(Some(extent)), None) => context.rewind(number, extent),
            _ => {
                let names: Vec<&str> = rewind_extents().map(|(name, ..)| name).collect();
                let text = format!(
                    "write /rewind, /rewind N or /rewind N WHAT; WHAT is one of {}\n",
                    names.join(", ")
                );
                context.tell(text);
            }
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

/// Text for a person if there is no prompt `number`; `None` if there is one. `points`: the latest
/// prompts, as [`rewind_points_text`] takes them.
pub fn missing_rewind_point(number: usize, points: &[(usize, String)]) -> Option<String> {
    let last = points.iter().map(|(number, _)| *number).max().unwrap_or_default();
    let is_missing = !(1..=last).contains(&number);
    is_missing.then(|| format!("There is no prompt {number}; /rewind lists them."))
}

/// Text of the commands that return to the state before prompt `number`, or the reason why there is
/// none. `points`: as for [`missing_rewind_point`].
pub fn rewind_extents_text(number: usize, points: &[(usize, String)]) -> String {
    if let Some(missing) = missing_rewind_point(number, points) {
        return missing + "\n";
    }
    let mut text = String::new();
    for (name, what, _) in rewind_extents() {
        text.extend([&format!("/rewind {number} {name}"), "  ", what, "\n"]);
    }
    text
}

/// Text that asks a person to confirm that `revert` may replace changes of the user.
pub fn replaced_text(replaced: &ReplacedChanges, revert: &Revert) -> String {
    let mut text = replaced_heading(revert) + "\n";
    for line in &replaced.lines {
        text.extend(["  ", line, "\n"]);
    }
    text.extend(["Nothing was restored. ", &revert.to_string(), " again restores them.\n"]);
    text
}

/// Line above the list of the files whose changes `revert` replaces.
pub fn replaced_heading(revert: &Revert) -> String {
    format!("{revert} replaces what you have changed since in:")
}
