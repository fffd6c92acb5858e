//! Agents that the user names in a prompt with `@`: the model is told to give them the work.

/// The text with a sentence for the model at its end, if it names one of `agents` as a word that
/// begins with `@`; otherwise the unchanged text.
pub fn with_mentioned_agents(text: String, agents: &[String]) -> String {
    let mentioned = agents.iter().filter(|agent| is_mentioned(&text, agent));
    let mentioned: Vec<String> = mentioned.map(|agent| format!("@{agent}")).collect();
    match mentioned.as_slice() {
        [] => text,
        [one] => format!("{text}\n\n({one} is a subagent: let it do this work.)"),
        several => {
            format!("{text}\n\n({} are subagents: let them do this work.)", several.join(", "))
        }
    }
}

fn is_mentioned(text: &str, agent: &str) -> bool {
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix('@'));
    let mut names = words.map(|word| word.trim_end_matches(['.', ',', ':', ';', '!', '?', ')']));
    names.any(|name| name == agent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_agents_are_told_to_the_model() {
        let agents = ["explore", "review"].map(str::to_owned);
        let table = [
            ("@explore find the callers", "(@explore is a subagent: let it do this work.)"),
            ("find them, @explore.", "(@explore is a subagent: let it do this work.)"),
            (
                "@review what @explore: finds",
                "(@explore, @review are subagents: let them do this work.)",
            ),
        ];
        for (text, told) in table {
            let sent = with_mentioned_agents(text.to_owned(), &agents);
            assert_eq!(sent, format!("{text}\n\n{told}"));
        }
        for text in ["explore it", "me@explore", "@explore.rs", "@explorer", "@ explore", "@plan"] {
            assert_eq!(with_mentioned_agents(text.to_owned(), &agents), text);
        }
    }
}
