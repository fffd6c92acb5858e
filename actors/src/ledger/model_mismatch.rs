//! Detection of replies that come from another model than the requested one. Pure.

/// Returns true if `answered` names a different model than `asked`. These differences are ignored:
/// case, a prefix up to the last `/`, a suffix from `:` or `@` on, `-latest`, and a date or
/// revision at the end.
pub(crate) fn is_another(asked: &str, answered: &str) -> bool {
    stem(asked) != stem(answered)
}

fn stem(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let name = name.split([':', '@']).next().unwrap_or_default();
    let name = name.strip_suffix("-latest").unwrap_or(name);
    undated(name).to_owned()
}

/// `name` without a date or revision at its end, such as `-2025-08-07`, `-20250807`, `-0613` or
/// `-001`. Numbers of fewer than three digits are versions and stay.
fn undated(name: &str) -> &str {
    let parts: Vec<&str> = name.rsplitn(4, '-').collect();
    let digits = |part: &str, count: usize| {
        part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    match parts.as_slice() {
        [day, month, year, rest] if digits(day, 2) && digits(month, 2) && digits(year, 4) => rest,
        [last, ..] if parts.len() > 1 && (3..=8).any(|count| digits(last, count)) => {
            &name[..name.len() - last.len() - 1]
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_another_model_from_an_alias() {
        let same = [
            ("gpt-5.1", "gpt-5.1"),
            ("gpt-5.1", "gpt-5.1-2025-11-13"),
            ("gpt-4", "gpt-4-0613"),
            ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
            ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022"),
            ("openai/gpt-5.1", "gpt-5.1"),
            ("models/gemini-2.5-pro", "gemini-2.5-pro-002"),
            ("Qwen3-Coder:30b", "qwen3-coder"),
            ("claude-opus-4-1", "claude-opus-4-1@20250805"),
        ];
        for (asked, answered) in same {
            assert!(!is_another(asked, answered), "{asked} {answered}");
            assert!(!is_another(answered, asked), "{asked} {answered}");
        }
        let another = [
            ("gpt-5.1", "gpt-5.1-mini"),
            ("gpt-5", "gpt-4"),
            ("claude-opus-4-5", "claude-opus-4-1"),
            ("claude-opus-4-1", "claude-sonnet-4-1"),
            ("a", ""),
            ("m-12", "m-13"),
        ];
        for (asked, answered) in another {
            assert!(is_another(asked, answered), "{asked} {answered}");
        }
        for odd in ["", "-", "--", "2025-08-07", "-2025-08-07", "é-123", "/", ":"] {
            assert!(!is_another(odd, odd), "{odd}");
        }
    }
}
