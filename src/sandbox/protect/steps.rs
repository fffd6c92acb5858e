//! Steps of an interrupted rebase, cherry-pick or revert, as git stores them (`git-rebase-todo` of
//! gitrepository-layout(7), `todo` of a sequencer).

/// Steps with a commit that the operation applies. Changing one into another applies the same.
const APPLIES: [&str; 12] =
    ["pick", "p", "reword", "r", "edit", "e", "squash", "s", "fixup", "f", "revert", "drop"];
/// Steps that change nothing.
const CHANGES_NOTHING: [&str; 5] = ["break", "b", "noop", "drop", "d"];
/// Minimum length of the abbreviation of a commit.
const COMMIT_LETTERS_MIN: usize = 4;

/// Divides the text of a list of steps into the lines that stay and those to be taken out: commands,
/// and steps that are not in `before`, the text before the command. `None`: the operation is new, and
/// only commands are taken out.
pub(super) fn divided(text: &str, before: Option<&str>) -> (String, Vec<String>) {
    let known: Option<Vec<Vec<&str>>> = before.map(|before| before.lines().map(words).collect());
    let mut kept = String::with_capacity(text.len());
    let mut taken = Vec::new();
    for line in text.split_inclusive('\n') {
        let step = words(line);
        let stays = match &known {
            Some(known) => is_harmless(&step) || known.iter().any(|known| is_same(known, &step)),
            None => !is_exec(&step),
        };
        if stays {
            kept.push_str(line);
        } else {
            taken.push(line.trim().to_owned());
        }
    }
    (kept, taken)
}

/// Words of a step without its comment.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().take_while(|word| !word.starts_with('#')).collect()
}

fn is_exec(step: &[&str]) -> bool {
    matches!(step.first(), Some(&("exec" | "x")))
}

fn is_harmless(step: &[&str]) -> bool {
    step.first().is_none_or(|name| CHANGES_NOTHING.contains(name))
}

/// True if both steps apply the same commit, or are the same. git abbreviates commits.
fn is_same(known: &[&str], step: &[&str]) -> bool {
    let is_same_word = |a: &str, b: &str| {
        let is_commit = |word: &str| {
            word.len() >= COMMIT_LETTERS_MIN && word.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        a == b || (is_commit(a) && is_commit(b) && (a.starts_with(b) || b.starts_with(a)))
    };
    match (applied(known), applied(step)) {
        (Some(a), Some(b)) => is_same_word(a, b),
        (None, None) => {
            known.len() == step.len() && known.iter().zip(step).all(|(a, b)| is_same_word(a, b))
        }
        _ => false,
    }
}

/// The commit that a step applies. The rest of the line is its subject.
fn applied<'w>(step: &[&'w str]) -> Option<&'w str> {
    let (name, rest) = step.split_first()?;
    let commit = || rest.iter().find(|word| !word.starts_with('-'));
    APPLIES.contains(name).then(commit).flatten().copied()
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
}
