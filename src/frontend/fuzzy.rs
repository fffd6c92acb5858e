//! Fuzzy search in lists: quality of the match of a typed text with a name.

/// Quality of the match of `query` with `text`, higher is better; `None` if the characters of
/// `query` do not occur in `text` in this order. Case is ignored. Of better quality, in this order:
/// the whole text, its beginning, the beginning of a word in it, a part of it, and characters with
/// gaps, of which fewer are better. Every text matches the empty query.
pub fn fuzzy_score(query: &str, text: &str) -> Option<u32> {
    let (query, text) = (query.to_lowercase(), text.to_lowercase());
    if query.is_empty() {
        return Some(0);
    }
    if text == query {
        return Some(5000);
    }
    if text.starts_with(&query) {
        return Some(4000);
    }
    let begins_word = |at: usize| !text[..at].ends_with(char::is_alphanumeric);
    if text.match_indices(&query).any(|(at, _)| begins_word(at)) {
        return Some(3000);
    }
    if text.contains(&query) {
        return Some(2000);
    }
    pieces(&query, &text).map(|pieces| 1000_u32.saturating_sub(pieces))
}

/// Quality of the match of all words of `query` with `text`: that of the worst one. `None` if a word
/// does not match.
pub fn fuzzy_words_score(query: &str, text: &str) -> Option<u32> {
    let scores = query.split_whitespace().map(|word| fuzzy_score(word, text));
    let scores: Option<Vec<u32>> = scores.collect();
    Some(scores?.into_iter().min().unwrap_or_default())
}

/// Number of pieces in which the characters of `query` occur in `text`, each as early as possible.
/// `None` if they do not occur in this order.
pub(crate) fn pieces(query: &str, text: &str) -> Option<u32> {
    let (mut rest, mut pieces, mut joined) = (text, 0, false);
    for wanted in query.chars() {
        let at = rest.find(wanted)?;
        if at > 0 || !joined {
            pieces += 1;
        }
        joined = true;
        rest = &rest[at + wanted.len_utf8()..];
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_matches_score_higher() {
        let best_first = ["mode", "mode-x", "permission-mode", "amodeb", "my-o-d-e"];
        let scores: Vec<u32> =
            best_first.iter().map(|text| fuzzy_score("MODE", text).unwrap()).collect();
        assert!(scores.windows(2).all(|pair| pair[0] > pair[1]), "{scores:?}");
        assert_eq!(fuzzy_score("srcpr", "src/price.js").map(|score| score / 10), Some(99));
        assert_eq!(fuzzy_score("edom", "mode"), None);
        assert_eq!(fuzzy_score("", "x"), Some(0));
        assert_eq!(fuzzy_score("é", "É"), Some(5000));
        assert!(fuzzy_words_score("lar mod", "model-large").is_some());
        assert_eq!(fuzzy_words_score("lar zzz", "model-large"), None);
        assert_eq!(fuzzy_words_score(" ", "x"), Some(0));
    }
}
