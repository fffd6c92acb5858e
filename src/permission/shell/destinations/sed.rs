//! Files that a script of `sed` reads and writes. Source: the manual of GNU sed 4.8.

/// Options of `sed` whose value, the next word, is a script.
const SCRIPT_OPTIONS: [&str; 2] = ["-e", "--expression"];

/// Scripts of `sed` in its arguments `words`, of which `operands` are neither options nor values.
pub(super) fn scripts<'w>(words: &[&'w str], operands: &[&'w str]) -> Vec<&'w str> {
    let mut scripts = Vec::new();
    let mut has_file = false;
    for (at, word) in words.iter().enumerate() {
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        let attached = letters.and_then(|letters| letters.split_once('e'));
        let attached = attached.filter(|(flags, _)| flags.chars().all(|c| "nrEsuz".contains(c)));
        if SCRIPT_OPTIONS.contains(word) || attached.is_some_and(|(_, script)| script.is_empty()) {
            scripts.extend(words.get(at + 1));
        } else if let Some((_, script)) = attached {
            scripts.push(script);
        } else if let Some(script) = word.strip_prefix("--expression=") {
            scripts.push(script);
        } else {
            has_file |= *word == "-f" || word.starts_with("--file");
        }
    }
    if scripts.is_empty() && !has_file {
        scripts.extend(operands.first());
    }
    scripts
}

/// Files that `script` names, each with true if the script writes it.
pub(crate) fn files(script: &str) -> Vec<(bool, &str)> {
    let mut found = Vec::new();
    let mut rest = script;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            // Addresses.
            '/' => behind(after, '/'),
            '\\' => match after.chars().next() {
                Some(delimiter) => behind(&after[delimiter.len_utf8()..], delimiter),
                None => after,
            },
            's' | 'y' => {
                let Some(delimiter) = after.chars().next() else { break };
                let twice = behind(behind(&after[delimiter.len_utf8()..], delimiter), delimiter);
                let flags =
                    twice.trim_start_matches(|c: char| "gpiImMe".contains(c) || c.is_ascii_digit());
                match flags.strip_prefix('w').filter(|_| c == 's') {
                    Some(file) => named(true, file, &mut found),
                    None => flags,
                }
            }
            'r' | 'R' | 'w' | 'W' => named(matches!(c, 'w' | 'W'), after, &mut found),
            'a' | 'i' | 'c' | 'e' | '#' => behind(after, '\n'),
            'b' | 't' | 'T' | ':' => {
                let end = after.find([';', '\n', '}']).unwrap_or(after.len());
                &after[end..]
            }
            _ => after,
        };
    }
    found
}

/// Adds the file at the beginning of `text`, and returns the text behind its line.
fn named<'s>(is_written: bool, text: &'s str, found: &mut Vec<(bool, &'s str)>) -> &'s str {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    let file = line.trim_start();
    if !file.is_empty() {
        found.push((is_written, file));
    }
    rest
}

/// The text behind the next `delimiter` in `text` that no backslash quotes.
fn behind(text: &str, delimiter: char) -> &str {
    let mut is_quoted = false;
    for (at, c) in text.char_indices() {
        if c == delimiter && !is_quoted {
            return &text[at + c.len_utf8()..];
        }
        is_quoted = c == '\\' && !is_quoted;
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_script_are_read() {
        for (script, expected) in [
            ("s/a/b/", ""),
            ("s/a/w b/", ""),
            ("s/a/b/w out", ">out"),
            ("s|r x|b|gpw out", ">out"),
            ("w out", ">out"),
            ("wout", ">out"),
            ("r in", "<in"),
            ("/a\\/b/r in", "<in"),
            ("\\|a|,$ W out", ">out"),
            ("1,3{p;w out\n}", ">out"),
            ("$!N;R in\nw out", "<in >out"),
            ("s/r/w/;y/rw/wr/;b end; : end", ""),
            ("1i w text", ""),
            ("a\\\nw text", ""),
            ("# w text\n1d", ""),
            ("1d;$p", ""),
        ] {
            let found = files(script).into_iter();
            let found =
                found.map(|(written, file)| format!("{}{file}", if written { '>' } else { '<' }));
            assert_eq!(found.collect::<Vec<_>>().join(" "), expected, "{script}");
        }
    }

    #[test]
    fn scripts_are_told_from_files() {
        for (line, expected) in [
            ("p file", "p"),
            ("-n p file", "p"),
            ("-ne p file", "p"),
            ("-e p -e q file", "p q"),
            ("-ep file", "p"),
            ("--expression=p file", "p"),
            ("-f script file", ""),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let operands: Vec<&str> =
                words.iter().copied().filter(|word| !word.starts_with('-')).collect();
            assert_eq!(scripts(&words, &operands).join(" "), expected, "{line}");
        }
    }
}
