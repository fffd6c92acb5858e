//! Quoting of words for a POSIX shell.

/// True for ASCII letters, digits and `_-./:=@%+,`, which a POSIX shell takes literally without
/// quotes. False for all others, also harmless ones such as `ä`.
pub fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c)
}

/// Returns `word` as one word of a shell command: unchanged if it is not empty and all its
/// characters are plain ([`is_plain`]), otherwise in single quotes.
pub fn quoted(word: &str) -> String {
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\"'\"'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Within single quotes only the quote itself is special to a shell.
    #[test]
    fn quotes_for_a_shell() {
        let table = [
            ("plain/a.b-c_d:=@%+,", "plain/a.b-c_d:=@%+,"),
            ("", "''"),
            ("$HOME `x` \\ \"y\"", "'$HOME `x` \\ \"y\"'"),
            ("a\nb;c", "'a\nb;c'"),
            ("it's", r#"'it'"'"'s'"#),
        ];
        for (text, word) in table {
            assert_eq!(quoted(text), word);
        }
    }
}
