//! Quoting of words for a POSIX shell.

/// True if the character needs no quotes in a shell.
pub fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c)
}

/// Quotes `word` for a shell, if it contains characters that need quotes or is empty.
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
