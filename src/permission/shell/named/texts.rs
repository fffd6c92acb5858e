//! Words that are texts, by the options before them, and therefore name no paths.
//!
//! Source: the manuals of git 2.39 (git-commit(1) and so on, and "Commit limiting" in git-log(1)) and
//! of gh 2.23. Only options with a value in the next word count.

use crate::shell::Names;
use crate::shell::effects::git_words;
use crate::shell::walk::base;

/// Options whose value, the next word, is a text.
struct TextOptions {
    /// Program and its subcommands.
    commands: Names,
    /// Letters of such options. Before them in a word, there may be `flags`.
    letters: &'static str,
    long: Names,
    /// Letters of options without a value.
    flags: &'static str,
}

const HISTORY: TextOptions = TextOptions {
    commands: Names("log show shortlog rev-list reflog whatchanged"),
    letters: "",
    long: Names(
        "--grep --author --committer --grep-reflog --date --since --until --after --before",
    ),
    flags: "",
};

static OF_GIT: &[TextOptions] = &[
    TextOptions {
        commands: Names("commit"),
        letters: "m",
        long: Names("--message --author --date --trailer"),
        flags: "aeinopqsvz",
    },
    TextOptions { commands: Names("merge"), letters: "m", long: Names("--message"), flags: "eqnv" },
    TextOptions {
        commands: Names("tag"),
        letters: "m",
        long: Names("--message --format"),
        flags: "aefs",
    },
    TextOptions { commands: Names("notes"), letters: "m", long: Names("--message"), flags: "f" },
    TextOptions {
        commands: Names("stash"),
        letters: "m",
        long: Names("--message"),
        flags: "akpqSu",
    },
    TextOptions { commands: Names("commit-tree"), letters: "m", long: Names(""), flags: "" },
    TextOptions {
        commands: Names("branch for-each-ref"),
        letters: "",
        long: Names("--format"),
        flags: "",
    },
    HISTORY,
];

static OF_GH: TextOptions = TextOptions {
    commands: Names("pr issue release"),
    letters: "btn",
    long: Names("--body --title --notes"),
    flags: "",
};

/// Options without a value after which another option may follow. After any other one, a word that
/// looks like an option may be its value.
const FLAGS: Names = Names(
    "\
    --all --allow-empty --allow-empty-message --amend --annotate --decorate --draft --edit --ff-only \
    --first-parent --follow --force --graph --include-untracked --keep-index --merges --name-only \
    --name-status --no-edit --no-ff --no-merges --no-verify --oneline --only --patch --quiet --reverse \
    --sign --signoff --staged --stat --verbose -E -P -i -p",
);

/// Indices of those words of the program `name` that are texts.
pub(super) fn positions(name: &str, words: &[&str]) -> Vec<usize> {
    let (options, first) = match base(name) {
        "git" => {
            let Some((command, first)) = git_words(words) else { return Vec::new() };
            (OF_GIT.iter().find(|options| options.commands.has(command)), first)
        }
        "gh" => {
            let command = words.first().copied().unwrap_or_default();
            (Some(&OF_GH).filter(|options| options.commands.has(command)), 1)
        }
        _ => (None, 0),
    };
    options.map(|options| options.positions(words, first)).unwrap_or_default()
}

impl TextOptions {
    /// Indices of the texts in `words`, beginning with `first`.
    fn positions(&self, words: &[&str], first: usize) -> Vec<usize> {
        let mut texts = Vec::new();
        let mut at = first;
        // True if the word before may take the next one as its value.
        let mut may_be_value = false;
        while let Some(word) = words.get(at).filter(|word| **word != "--") {
            if may_be_value || !word.starts_with('-') {
                may_be_value = false;
            } else if self.has_attached_text(word) {
                texts.push(at);
            } else if self.takes_text(word) {
                at += 1;
                texts.push(at);
            } else {
                let has_value = word.contains('=') || FLAGS.has(word);
                let is_number = word[1..].chars().all(|c| c.is_ascii_digit());
                may_be_value = !has_value && !is_number && !self.are_flags(&word[1..]);
            }
            at += 1;
        }
        texts
    }

    fn are_flags(&self, letters: &str) -> bool {
        letters.chars().all(|letter| self.flags.contains(letter))
    }

    /// True if the next word is the text of the option `word`.
    fn takes_text(&self, word: &str) -> bool {
        if word.starts_with("--") {
            return self.long.has(word);
        }
        let letters = word.get(1..).and_then(|letters| letters.split_at_checked(letters.len() - 1));
        letters.is_some_and(|(flags, last)| self.letters.contains(last) && self.are_flags(flags))
    }

    /// True if the word `word` is an option with its text.
    fn has_attached_text(&self, word: &str) -> bool {
        if word.starts_with("--") {
            return word.split_once('=').is_some_and(|(name, _)| self.long.has(name));
        }
        let letters = word.get(1..).unwrap_or_default();
        let at = letters.find(|letter: char| !self.flags.contains(letter)).unwrap_or(letters.len());
        let is_text = letters[at..].chars().next().is_some_and(|c| self.letters.contains(c));
        is_text && letters.len() > at + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_values_of_options_that_take_one() {
        for (line, expected) in [
            ("git commit -m text path", "text"),
            ("git -C a commit -am text", "text"),
            ("git commit -sqm text -m more", "text more"),
            ("git commit --message text --amend -m more", "text more"),
            ("git commit --message=text", "--message=text"),
            ("git commit -mtext", "-mtext"),
            ("git commit -m --message path", "--message"),
            ("git commit -F -m path", ""),
            ("git commit -- -m path", ""),
            ("git commit -C -m path", ""),
            ("git merge -m text b", "text"),
            ("git merge -s -m b", ""),
            ("git tag -a v1 -m text", "text"),
            ("git tag -F -m b", ""),
            ("git notes add -m text", "text"),
            ("git stash push -m text path", "text"),
            ("git log --grep text path", "text"),
            ("git log --oneline -5 --author text -- path", "text"),
            ("git log -S --grep path", ""),
            ("git log -n --grep path", ""),
            ("git commit --squash -m path", ""),
            ("git log -p -m path", ""),
            ("git show -m HEAD:path", ""),
            ("git show --pretty path", ""),
            ("git show --format path", ""),
            ("git diff -m path", ""),
            ("git show -am path", ""),
            ("git add -m path", ""),
            ("gh pr create --title text --body text", "text text"),
            ("gh api -b path", ""),
            ("cat -m path", ""),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let found = positions(words[0], &words[1..]);
            let found: Vec<&str> = found.iter().map(|at| words[at + 1]).collect();
            assert_eq!(found.join(" "), expected, "{line}");
        }
    }
}
