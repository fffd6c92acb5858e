//! The line that ends a task: outcome, duration, turns, tokens and cost.

use std::time::Duration;

use posse_actors::outcome::Ending;
use posse_actors::root_session::TurnOutcome;

use crate::outcome::label;

/// Line about the end of a task that took `took`, such as
/// `Done in 7.5 s · 5 turns · 10.5k tokens in, 123 out`. `cost`: cost of the session as text, if it is
/// known.
pub fn end_line(outcome: &TurnOutcome, took: Duration, cost: Option<&str>) -> String {
    let label = label(&outcome.ending);
    let (first, rest) = label.split_at(1);
    let within = if matches!(outcome.ending, Ending::Answered(_)) { "in" } else { "after" };
    let took = duration_text(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    let turns = if outcome.turns == 1 { "turn" } else { "turns" };
    let is_empty = matches!(&outcome.ending, Ending::Answered(answer) if answer.trim().is_empty());
    let empty = if is_empty { ", and the last reply was empty" } else { "" };
    let usage = outcome.usage.input_tokens.zip(outcome.usage.output_tokens);
    let tokens =
        |(read, written)| format!("{} tokens in, {} out", count_text(read), count_text(written));
    let parts = [
        Some(format!("{}{rest} {within} {took}", first.to_uppercase())),
        Some(format!("{} {turns}{empty}", outcome.turns)),
        usage.map(tokens),
        cost.map(|cost| format!("{cost} so far")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// Formats a duration in milliseconds, such as `42 ms`, `1.5 s` or `2 min 5 s`.
pub fn duration_text(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..100_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

/// Formats a number of tokens briefly, such as `1.5k` or `2.0M`.
pub fn count_text(tokens: u64) -> String {
    match tokens {
        0..1000 => tokens.to_string(),
        1000..100_000 if tokens % 1000 / 100 == 0 => format!("{}k", tokens / 1000),
        1000..100_000 => format!("{}.{}k", tokens / 1000, tokens % 1000 / 100),
        100_000..1_000_000 => format!("{}k", tokens / 1000),
        _ => format!("{}.{}M", tokens / 1_000_000, tokens % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::Usage;

    use super::*;

    #[test]
    fn line_names_outcome_duration_turns_tokens_and_cost() {
        let line = |ending, turns, tokens: Option<u64>, ms, cost| {
            let usage = Usage { input_tokens: tokens, output_tokens: tokens, ..Usage::default() };
            let outcome = TurnOutcome { ending, turns, usage, unanswered: 0, not_by_yes: 0 };
            end_line(&outcome, Duration::from_millis(ms), cost)
        };
        let answered = |text: &str| Ending::Answered(text.to_owned());
        let table = [
            (
                line(answered("x"), 5, Some(10_500), 7500, Some("$0.02")),
                "Done in 7.5 s · 5 turns · 10.5k tokens in, 10.5k out · $0.02 so far",
            ),
            (
                line(answered(" "), 1, None, 9, None),
                "Done in 9 ms · 1 turn, and the last reply was empty",
            ),
            (
                line(Ending::Interrupted, 2, None, 125_000, None),
                "Stopped after 2 min 5 s · 2 turns",
            ),
        ];
        for (line, expected) in table {
            assert_eq!(line, expected);
        }
    }
}
