//! Truncation of texts for display.

/// Returns `text` unchanged if it has at most `chars_max` characters; otherwise its first
/// `chars_max` characters, followed by `mark`.
pub fn clipped(text: &str, chars_max: usize, mark: &str) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}{mark}", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let table =
            [("", 0, ""), ("ab", 2, "ab"), ("abc", 2, "ab…"), ("äöü", 1, "ä…"), ("a", 0, "…")];
        for (text, chars_max, short) in table {
            assert_eq!(clipped(text, chars_max, "…"), short);
        }
    }
}
