//! Steps of an interrupted rebase, cherry-pick or revert, as git stores them (`git-rebase-todo` of
//! gitrepository-layout(7), `todo` of a sequencer).

use std::collections::{BTreeSet, HashMap};

/// Steps that apply the commit in them. Changing one into another applies the same.
const APPLIES: [&str; 10] = ["pick", "p", "reword", "r", "edit", "e", "squash", "s", "fixup", "f"];
/// Steps that change nothing.
const CHANGES_NOTHING: [&str; 5] = ["break", "b", "noop", "drop", "d"];
/// Length of the shortest abbreviation of a commit, and of the longest name of one.
const COMMIT_LETTERS: std::ops::RangeInclusive<usize> = 4..=64;

/// Divides the text of a list of steps into the lines that stay and those to be taken out: commands,
/// and steps that are not in `before`, the text before the command. `None`: the operation is new, and
/// only commands are taken out.
pub(super) fn divided(text: &str, before: Option<&str>) -> (String, Vec<String>) {
    let known = before.map(KnownSteps::new);
    let mut kept = String::with_capacity(text.len());
    let mut taken = Vec::new();
    for line in text.split_inclusive('\n') {
        let stays = match &known {
            Some(known) => is_harmless(line) || known.has(&Step::new(line)),
            None => command(line).is_none(),
        };
        if stays {
            kept.push_str(line);
        } else {
            taken.push(line.trim().to_owned());
        }
    }
    (kept, taken)
}

/// A step, divided into the commit in it and the rest.
struct Step<'a> {
    /// Words without the commit, or the command line of a step that runs one. Of a step that applies
    /// a commit, a word for its kind.
    rest: Vec<&'a str>,
    /// The commit, which git may abbreviate. Empty if there is none.
    commit: &'a str,
}

impl<'a> Step<'a> {
    fn new(line: &'a str) -> Step<'a> {
        if let Some(command) = command(line) {
            return Step { rest: vec!["exec", command], commit: "" };
        }
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let kind = match words.first() {
            Some(&"revert") => Some("revert"),
            Some(name) if APPLIES.contains(name) => Some("pick"),
            _ => None,
        };
        // The rest of the line is the subject of the commit.
        let applied = words.iter().skip(1).find(|word| !word.starts_with('-'));
        if let (Some(kind), Some(commit)) = (kind, applied) {
            return Step { rest: vec![kind], commit };
        }
        // A comment begins with this word. A name may begin with the letter.
        let end = words.iter().position(|word| *word == "#");
        words.truncate(end.unwrap_or(words.len()));
        let has_commit = matches!(words[..], ["merge" | "m", "-C" | "-c", _, ..]);
        let commit = if has_commit { words.remove(2) } else { "" };
        Step { rest: words, commit }
    }
}

/// Steps that an operation had: their commits by the rest of the step.
struct KnownSteps<'a>(HashMap<Vec<&'a str>, BTreeSet<&'a str>>);

impl<'a> KnownSteps<'a> {
    fn new(text: &'a str) -> KnownSteps<'a> {
        let mut steps: HashMap<Vec<&str>, BTreeSet<&str>> = HashMap::new();
        for Step { rest, commit } in text.lines().map(Step::new) {
            steps.entry(rest).or_default().insert(commit);
        }
        KnownSteps(steps)
    }

    /// True if one of the steps is `step`, or the same with a longer or shorter abbreviation.
    fn has(&self, step: &Step<'_>) -> bool {
        let Some(commits) = self.0.get(&step.rest) else { return false };
        let commit = step.commit;
        let is_hex = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex || !COMMIT_LETTERS.contains(&commit.len()) {
            return commits.contains(commit);
        }
        let is_shorter = || commits.range(commit..).next().is_some_and(|c| is_longer(c, commit));
        COMMIT_LETTERS
            .take_while(|length| *length <= commit.len())
            .any(|length| commits.contains(&commit[..length]))
            || is_shorter()
    }
}

/// True if `commit` is a commit that may be abbreviated as `short`.
fn is_longer(commit: &str, short: &str) -> bool {
    commit.starts_with(short) && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The command line of a step that runs one. git passes the whole rest of the line to the shell.
fn command(line: &str) -> Option<&str> {
    let (name, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    matches!(name, "exec" | "x").then(|| rest.trim())
}

/// True for comments, empty lines, and steps that change nothing.
fn is_harmless(line: &str) -> bool {
    let name = line.split_whitespace().next();
    name.is_none_or(|name| name.starts_with('#') || CHANGES_NOTHING.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_the_operation_did_not_have_are_taken_out() {
        let before = "pick 1111111 a b # one\nexec make\nlabel onto\nmerge -C 2222222 side # x\n";
        for (text, taken) in [
            ("pick 1111111 a b\nexec make\n", &[][..]),
            ("exec make\n\n# comment\nbreak\nedit 11111112345 other words\n", &[]),
            ("fixup -C 1111111 a\ndrop 3333333 x\n", &[]),
            ("merge -C 22222223456 side\nlabel onto\n", &[]),
            ("pick 3333333 a b\n", &["pick 3333333 a b"]),
            ("pick 1111111\nexec evil\n x evil\n", &["exec evil", "x evil"]),
            ("reset 1111111\n", &["reset 1111111"]),
            ("merge -C 2222222 other\n", &["merge -C 2222222 other"]),
            ("update-ref refs/heads/main", &["update-ref refs/heads/main"]),
            ("pick 111\n", &["pick 111"]),
            ("label x\n", &["label x"]),
            // git passes all of it to the shell.
            ("exec make #1; evil\n", &["exec make #1; evil"]),
            ("exec make \"# \"; evil\n", &["exec make \"# \"; evil"]),
            ("x make\n", &[]),
            // A parent, not a comment.
            ("merge -C 2222222 side #other\n", &["merge -C 2222222 side #other"]),
            ("#comment\n", &[]),
            ("revert 1111111\n", &["revert 1111111"]),
            ("pick 11111g\npick 1111\n", &["pick 11111g"]),
        ] {
            let (kept, found) = divided(text, Some(before));
            assert_eq!(found, taken, "{text}");
            assert_eq!(kept.len() < text.len(), !taken.is_empty(), "{text}");
        }
        assert_eq!(
            divided("reset 1\nexec a\n", None),
            ("reset 1\n".to_owned(), vec!["exec a".to_owned()])
        );
    }

    #[test]
    fn steps_of_one_kind_do_not_become_those_of_another() {
        let before = "drop 3333333 x\nrevert 4444444 y\nexec ./x dead\nreset beef\nmerge side #a\n";
        for line in [
            "pick 3333333",
            "pick 4444444",
            "exec ./x deadbeef",
            "reset beefdead",
            "merge side",
            "merge side #b",
        ] {
            assert_eq!(divided(line, Some(before)).1, [line]);
        }
        for line in ["revert 44444444", "exec ./x dead", "merge side #a # comment", "d 3333333"] {
            assert_eq!(divided(line, Some(before)), (line.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn long_lists_are_divided_in_time() {
        let list = |letter: char| -> String {
            let line = |number| format!("pick abcd{number:06x}{letter} subject");
            (0..20_000).map(line).collect::<Vec<_>>().join("\n")
        };
        let begin = std::time::Instant::now();
        let (kept, taken) = divided(&list('e'), Some(&list('f')));
        assert_eq!((kept.as_str(), taken.len()), ("", 20_000));
        assert!(begin.elapsed().as_secs() < 5);
    }
}
