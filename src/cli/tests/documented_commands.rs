//! Commands in the README and in the documents are accepted by the parser.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Words for which a document expects the reader to put something else, and an example of it.
const PLACEHOLDERS: [(&str, &str); 6] = [
    ("ID", "1"),
    ("N", "1"),
    ("FILE", "file"),
    ("NAME", "name"),
    ("SHELL", "bash"),
    ("DIR", "dir"),
];

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md")];
    for folder in ["docs", "docs/guide", "docs/reference"] {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        found.extend(entries.map(|entry| entry.unwrap().path()));
    }
    found.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    found.sort();
    found
}

/// Lines of blocks of shell code: those behind a fence with `sh` or `console`, and indented ones.
/// Without the prompt of a transcript.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<bool> = None;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(matches!(language, "sh" | "console")) };
            return None;
        }
        let is_code = fence.unwrap_or_else(|| line.starts_with("    "));
        let line = line.trim_start();
        is_code.then_some((at + 1, line.strip_prefix("$ ").unwrap_or(line)))
    })
}

/// The words of each simple command in `line`, without redirections and comments. A word that the
/// shell would expand stays as it is.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let end = |word: &mut Option<String>, commands: &mut Vec<Vec<String>>| {
        if let (Some(word), Some(last)) = (word.take(), commands.last_mut()) {
            last.push(word);
        }
    };
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | ';' | '&' | '(' | ')' | '{' | '}' | '<' | '>') => {
                end(&mut word, &mut commands);
                commands.push(Vec::new());
            }
            (None, ' ') => end(&mut word, &mut commands),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    end(&mut word, &mut commands);
    commands
}

#[test]
fn commands_in_documents_are_accepted() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for (at, line) in code_lines(&text) {
            for words in simple_commands(line) {
                // Variables of the command come first.
                let words = words.iter().skip_while(|word| word.contains('=')).map(|word| {
                    let known = PLACEHOLDERS.iter().find(|(name, _)| name == word);
                    known.map_or(word.as_str(), |(_, example)| *example)
                });
                let words: Vec<OsString> = words.map(OsString::from).collect();
                if words.first().is_none_or(|first| first != "posse") {
                    continue;
                }
                checked += 1;
                if let Err(exit) = parse(words.into_iter(), true)
                    && exit.code != 0
                {
                    wrong.push(format!("{}:{at}: {line}\n    {}", path.display(), exit.text));
                }
            }
        }
    }
    assert!(checked > 60, "{checked} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
