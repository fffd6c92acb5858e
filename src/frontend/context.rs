//! Texts about the context: the token usage of its parts, and the effect of a compaction.

use std::fmt::Write as _;

use std::sync::Arc;

use posse_actors::compaction::{CompactedHistory, KeptMessages};
use posse_actors::conversation::Message;
use posse_actors::event::{CompactionCause, ContextUse, Event};

use crate::pluralize;

/// Table of the parts of a request, in tokens and percent, with the total, the limits and the
/// number of compactions below.
pub fn table(used: &ContextUse) -> String {
    let ContextUse { system, instructions, tools, messages, tool_results, total, .. } = *used;
    let mut text = String::new();
    let mut rows = vec![
        ("system prompt", system),
        ("instructions", instructions),
        ("tools", tools),
        ("messages", messages),
        ("tool results", tool_results),
    ];
    let rest = total.saturating_sub(rows.iter().map(|(_, tokens)| tokens).sum());
    if rest > 0 {
        // Tokens that the provider counts in addition to the text of messages.
        rows.push(("other", rest));
    }
    let shares = shares(&rows.iter().map(|(_, tokens)| *tokens).collect::<Vec<_>>(), total);
    for ((name, tokens), share) in rows.into_iter().zip(shares) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<14} {tokens:>9} tokens {share:>3} %");
    }
    let kind = if used.calibrated { "calibrated with the provider's counts" } else { "estimated" };
    let _ = writeln!(text, "{:<14} {total:>9} tokens, {kind}", "total");
    let _ = match used.compacts_at {
        Some(at) => writeln!(text, "compacted beyond {at} of {} tokens", used.tokens_max),
        None => writeln!(text, "of {} tokens; never compacted automatically", used.tokens_max),
    };
    let _ = match used.window {
        Some(window) => writeln!(text, "context window of the model: {window} tokens"),
        None => writeln!(text, "context window of the model: unknown"),
    };
    if used.compactions > 0 {
        let times = pluralize(used.compactions.into(), "time");
        let _ = writeln!(text, "compacted {times} since it was opened");
    }
    text
}

/// Percentages of `parts` in `total`, as whole numbers. The percentages with the largest remainders
/// are rounded up and the others down, so that they add up to 100 if the parts add up to `total`.
/// If the sum of the parts exceeds `total`, the sum replaces `total`. If all are 0, all percentages
/// are 0.
fn shares(parts: &[u64], total: u64) -> Vec<u64> {
    let total = u128::from(total).max(parts.iter().map(|part| u128::from(*part)).sum()).max(1);
    let percent = |part: u64| (u128::from(part) * 100 / total, u128::from(part) * 100 % total);
    let mut shares: Vec<u128> = parts.iter().map(|part| percent(*part).0).collect();
    let cut: u128 = parts.iter().map(|part| percent(*part).1).sum::<u128>() / total;
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(percent(parts[*at]).1));
    for at in order.into_iter().take(usize::try_from(cut).unwrap_or_default()) {
        shares[at] += 1;
    }
    shares.into_iter().map(|share| u64::try_from(share).unwrap_or_default()).collect()
}

/// Answer to a request for a compaction that would remove nothing, or less than a tenth.
pub const NOTHING_TO_COMPACT: &str =
    "there is nothing to remove yet, or less than a tenth of the history";

/// Result of a compaction that the user requested, in one line with its newline.
pub(crate) fn compact_summary(compacted: &CompactedHistory) -> String {
    let CompactedHistory { tokens_before, tokens_after, .. } = compacted;
    let CompactedHistory { turns_removed, outputs_removed, prompts_removed, .. } = compacted;
    format!(
        "about {tokens_before} tokens became {tokens_after}: {} removed; {}\n",
        removed(*turns_removed, *outputs_removed, *prompts_removed),
        kept(&compacted.history)
    )
}

/// Names the messages that stay, and the size of the summary.
fn kept(history: &[Arc<Message>]) -> String {
    let KeptMessages { messages, summary_tokens } = KeptMessages::of(history);
    let messages = pluralize(messages as u64, "message");
    let summary = summary_tokens
        .map(|tokens| format!(" and a summary of about {}", pluralize(tokens, "token")))
        .unwrap_or_default();
    format!("{messages}{summary} stay; the journal keeps everything")
}

fn removed(turns: usize, outputs: usize, prompts: usize) -> String {
    let (turns, outputs) = (pluralize(turns as u64, "turn"), pluralize(outputs as u64, "output"));
    match prompts {
        0 => format!("{turns} and {outputs}"),
        _ => format!("{turns}, {outputs} and {}", pluralize(prompts as u64, "unanswered prompt")),
    }
}

/// Describes a compaction event in one line without a newline: cause, sizes, removed parts, and the
/// model that wrote the summary. `None` for other events.
pub fn compacted(event: &Event) -> Option<String> {
    let Event::ContextCompacted {
        bytes_before,
        bytes_after,
        turns_removed,
        outputs_removed,
        prompts_removed,
        tokens_before,
        tokens_after,
        cause,
        summarised_by,
        history,
    } = event
    else {
        return None;
    };
    let sizes = match (tokens_before, tokens_after) {
        (Some(before), Some(after)) => format!("{before} → {after} tokens"),
        _ => format!("{bytes_before} → {bytes_after} bytes"),
    };
    let why = match cause {
        Some(CompactionCause::Overflow) => " after the provider rejected its size",
        Some(CompactionCause::Threshold) => " to stay within its budget",
        Some(CompactionCause::Delegates) => " by a ledger of older results of agents",
        _ => "",
    };
    let by = summarised_by.as_deref().map(|model| format!(", summarised by {model}"));
    Some(format!(
        "compacted the history{why}: {sizes}, {} removed{}; {}",
        removed(*turns_removed, *outputs_removed, *prompts_removed),
        by.unwrap_or_default(),
        kept(history)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_adds_up_and_names_unknown_values() {
        let used = ContextUse {
            system: 100,
            instructions: 50,
            tools: 250,
            messages: 100,
            tool_results: 500,
            total: 1000,
            compacts_at: Some(33_600),
            tokens_max: 48_000,
            window: None,
            calibrated: false,
            compactions: 2,
        };
        insta::assert_snapshot!(table(&used), @r"
        system prompt        100 tokens  10 %
        instructions          50 tokens   5 %
        tools                250 tokens  25 %
        messages             100 tokens  10 %
        tool results         500 tokens  50 %
        total               1000 tokens, estimated
        compacted beyond 33600 of 48000 tokens
        context window of the model: unknown
        compacted 2 times since it was opened
        ");
        assert!(table(&ContextUse::default()).contains("   0 tokens   0 %"));
    }

    #[test]
    fn shares_add_up_to_a_hundred() {
        let table: [(&[u64], u64, &[u64]); 5] = [
            (&[1, 1, 1], 3, &[34, 33, 33]),
            (&[999, 1], 1000, &[100, 0]),
            (&[0, 0], 0, &[0, 0]),
            (&[u64::MAX, u64::MAX], u64::MAX, &[50, 50]),
            (&[157, 61, 2893, 311, 9, 0], 3431, &[5, 2, 84, 9, 0, 0]),
        ];
        for (parts, total, expected) in table {
            assert_eq!(shares(parts, total), expected, "{parts:?}");
        }
        let used = ContextUse { messages: 60, total: 100, ..ContextUse::default() };
        assert!(super::table(&used).contains("other                 40 tokens  40 %"));
    }

    #[test]
    fn compaction_names_what_stays() {
        use posse_actors::compaction::{CompactionGoal, compact};
        use posse_actors::conversation::{AssistantMessage, ContentPart, Message};

        let word = "word ".repeat(400);
        let user = || Message::User { content: vec![ContentPart::text(&word)] };
        let said = || AssistantMessage { content: Some(word.clone()), ..Default::default() };
        let history: Vec<_> =
            (0..10).flat_map(|_| [user(), Message::Assistant(said())]).map(Into::into).collect();
        let compacted = compact(&history, &CompactionGoal::quarter(&history, 1, 100)).unwrap();
        let text = compact_summary(&compacted);
        assert!(text.contains(" messages and a summary of about "), "{text}");
        assert!(text.ends_with(" tokens stay; the journal keeps everything\n"), "{text}");
        let whole = KeptMessages::of(&history);
        assert_eq!(whole, KeptMessages { messages: 20, summary_tokens: None });
    }

    #[test]
    fn records_without_token_counts_are_described_in_bytes() {
        let json = r#"{"type":"context.compacted","bytesBefore":9,"bytesAfter":3,"turnsRemoved":1,
            "outputsRemoved":0,"history":[]}"#;
        let event: Event = serde_json::from_str(json).unwrap();
        let text = compacted(&event).unwrap();
        assert!(text.starts_with("compacted the history: 9 → 3 bytes, 1 turn and 0"), "{text}");
    }
}
