//! Files that a script of `sed` reads and writes. Source: the manual of GNU sed 4.8.

use crate::shell::arguments::Arguments;

/// Scripts of `sed` with the arguments `given`.
pub(super) fn scripts<'w>(given: &Arguments<'w>) -> Vec<&'w str> {
    let scripts: Vec<&str> = given.values(Some('e'), "--expression").collect();
    let has_script = !scripts.is_empty() || given.has(Some('f'), "--file");
    if has_script { scripts } else { given.operands.first().copied().into_iter().collect() }
}

/// Files that `script` names, each with true if the script writes it. A bracket expression may hold
/// the delimiter, as in `s/[/]/x/`, or not, depending on the version of `sed`: both readings count.
pub(crate) fn files(script: &str) -> Vec<(bool, &str)> {
    let mut found = read(script, false).files;
    for file in read(script, true).files {
        if !found.contains(&file) {
            found.push(file);
        }
    }
    found
}

/// True if `script` runs programs: with the command `e`, or the flag `e` of `s`.
pub(crate) fn runs_programs(script: &str) -> bool {
    read(script, false).runs_programs || read(script, true).runs_programs
}

/// Effects of a script beyond the text that it prints.
#[derive(Debug, Default)]
struct ScriptEffects<'s> {
    files: Vec<(bool, &'s str)>,
    runs_programs: bool,
}

/// Reads `script`. `has_brackets`: true if a delimiter in a bracket expression does not end a pattern.
fn read(script: &str, has_brackets: bool) -> ScriptEffects<'_> {
    let mut found = ScriptEffects::default();
    let mut rest = script;
    let pattern = |text, delimiter| {
        if has_brackets { behind_pattern(text, delimiter) } else { behind(text, delimiter) }
    };
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            // Addresses.
            '/' => pattern(after, '/'),
            '\\' => match after.chars().next() {
                Some(delimiter) => pattern(&after[delimiter.len_utf8()..], delimiter),
                None => after,
            },
            's' | 'y' => {
                let Some(delimiter) = after.chars().next() else { break };
                let after = &after[delimiter.len_utf8()..];
                let once =
                    if c == 's' { pattern(after, delimiter) } else { behind(after, delimiter) };
                let twice = behind(once, delimiter);
                let is_flag = |c: char| "gpiImMe".contains(c) || c.is_ascii_digit();
                let flags = twice.trim_start_matches(is_flag);
                found.runs_programs |= twice[..twice.len() - flags.len()].contains('e') && c == 's';
                match flags.strip_prefix('w').filter(|_| c == 's') {
                    Some(file) => named(true, file, &mut found.files),
                    None => flags,
                }
            }
            'r' | 'R' | 'w' | 'W' => named(matches!(c, 'w' | 'W'), after, &mut found.files),
            'a' | 'i' | 'c' | 'e' | '#' => {
                found.runs_programs |= c == 'e';
                behind(after, '\n')
            }
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

/// The text behind the next `delimiter` in `text` that neither a backslash nor a bracket expression
/// quotes.
fn behind_pattern(text: &str, delimiter: char) -> &str {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if c == delimiter {
            return after;
        }
        rest = match c {
            '\\' => after.get(after.chars().next().map_or(0, char::len_utf8)..).unwrap_or(""),
            '[' => behind_bracket(after).unwrap_or(after),
            _ => after,
        };
    }
    ""
}

/// The text behind the bracket expression whose opening bracket is before `text`. `None` if it is not
/// closed.
fn behind_bracket(text: &str) -> Option<&str> {
    let mut rest = text.strip_prefix('^').unwrap_or(text);
    rest = rest.strip_prefix(']').unwrap_or(rest);
    loop {
        let c = rest.chars().next()?;
        let after = &rest[c.len_utf8()..];
        if c == ']' {
            return Some(after);
        }
        let class = after.chars().next().filter(|kind| c == '[' && ":.=".contains(*kind));
        let closed = class.and_then(|kind| after[1..].split_once(&format!("{kind}]")));
        rest = closed.map_or(after, |(_, after)| after);
    }
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
            ("/[/]/w out", ">out"),
            ("s/[/]/w a/w out/q", ">a/w out/q >out/q"),
            ("s/a[^]/]/b/w out", ">out"),
            ("s/[[:alpha:]/]/b/w out", ">out"),
            ("s/[/b/w out", ">out"),
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
            ("--exp=p file", "p"),
            ("--expr p file", "p"),
            ("-nbe p file", "p"),
            ("-Ezsep file", "p"),
            ("-l 5 p file", "p"),
            ("--line 5 p file", "p"),
            ("file -e p", "p"),
            ("--fil script file", ""),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let found = scripts(&super::super::read("sed", &words));
            assert_eq!(found.join(" "), expected, "{line}");
        }
    }

    #[test]
    fn scripts_that_run_programs_are_told_from_others() {
        for (script, expected) in [
            ("1e ln -s a b", true),
            ("s/a/b/e", true),
            ("s/a/ln -s/2ge", true),
            ("s/[/]/x/e", true),
            ("s/e/e/", false),
            ("y/e/f/", false),
            ("/e/d", false),
            ("a e text", false),
            ("b e", false),
        ] {
            assert_eq!(runs_programs(script), expected, "{script}");
        }
    }
}
