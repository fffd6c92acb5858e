//! Table of options that do nothing beyond the granted operation, as data.
//!
//! An option that is not in this table asks, and so does a value that could name a file. Options
//! that can run a program, write a file or change the target are omitted on purpose; comments name
//! them.

use crate::shell::word::Word;

/// Options and operands of a program.
#[derive(Debug)]
pub(crate) struct Spec {
    /// The program and its subcommand.
    pub(crate) words: &'static [&'static str],
    /// Options without a value. Short ones may be combined.
    flags: &'static str,
    /// Options with a value that is a number or a name, never a path.
    values: &'static str,
    /// Options with a value that is data: a pattern, a date, a name of a person.
    texts: &'static str,
    /// Options with an optional value after `=`.
    either: &'static str,
    /// True if `-5` is an option.
    numbers: bool,
    operands: Operands,
    /// Words after `--`.
    after: After,
}

/// Kind of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// There are none.
    None,
    /// Files and folders of the workspace, also as globs. A listing names them, without content.
    Paths { lists: bool },
    /// Versions, or files of the workspace.
    Versions,
    /// Data.
    Text,
    /// A pattern first, then files of the workspace.
    Pattern,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// Further operands, with any prefix.
    Operands,
    /// Options of Rust's test harness.
    Harness,
    /// Options of JavaScript's test programs.
    Runner,
}

const NONE: Spec = Spec {
    words: &[],
    flags: "",
    values: "",
    texts: "",
    either: "",
    numbers: false,
    operands: Operands::None,
    after: After::Operands,
};

// Left out of git: `--output` writes; `--ext-diff`, `--textconv`, `--show-signature` and `%G` run
// programs; `--no-index` leaves the repository.
const DIFF_FLAGS: &str = "-p -u --patch -s --no-patch --raw --numstat --shortstat --summary -z \
    --name-only --name-status --check --minimal --patience --histogram -w -b --ignore-all-space \
    --ignore-space-change --ignore-space-at-eol --ignore-blank-lines --no-renames --full-index \
    --binary -a --text --no-ext-diff --no-textconv --cc -R --no-prefix --pickaxe-regex \
    --pickaxe-all --no-color -W --function-context --no-indent-heuristic --exit-code --quiet";
const DIFF_VALUES: &str =
    "-U --unified --diff-filter --abbrev --diff-algorithm -l --word-diff-regex";
const DIFF_EITHER: &str = "--stat --dirstat --color --word-diff --color-words --color-moved -M -C \
    --find-renames --find-copies --relative --abbrev --ws-error-highlight";

const GIT_LOG: Spec = Spec {
    words: &["git", "log"],
    flags: "--oneline --graph --all --follow --reverse --merges --no-merges --first-parent \
        --abbrev-commit --no-abbrev-commit -i --regexp-ignore-case -E --extended-regexp -F \
        --fixed-strings -P --perl-regexp --all-match --invert-grep --topo-order --date-order \
        --author-date-order --left-right --cherry --cherry-pick --cherry-mark --boundary \
        --simplify-by-decoration --full-history --ancestry-path --source --no-decorate -g \
        --walk-reflogs --parents --children --use-mailmap --no-mailmap --mailmap \
        --relative-date --no-walk --not --no-notes --full-diff --show-pulls --left-only \
        --right-only --dense --sparse --graph --no-graph --clear-decorations -c -m \
        -p -u --patch -s --no-patch --raw --numstat --shortstat --summary -z --name-only \
        --name-status --check --minimal --patience --histogram -w -b --ignore-all-space \
        --ignore-space-change --ignore-space-at-eol --ignore-blank-lines --no-renames \
        --full-index --binary -a --text --no-ext-diff --no-textconv --cc -R --no-prefix \
        --pickaxe-regex --pickaxe-all --no-color -W --function-context",
    values: "-n --max-count --skip -U --unified --diff-filter --abbrev --diff-algorithm \
        --min-parents --max-parents --encoding",
    texts: "--since --until --after --before --author --committer --grep --grep-reflog -S -G \
        --format --pretty -L --decorate-refs --decorate-refs-exclude --exclude --glob \
        --since-as-filter --date",
    either: "--decorate --stat --dirstat --color --word-diff --color-words --color-moved -M -C \
        --find-renames --find-copies --relative --branches --tags --remotes --no-walk \
        --pretty --format",
    numbers: true,
    operands: Operands::Versions,
    after: After::Operands,
};

/// Programs with their harmless options and operands.
const SPECS: &[Spec] = &[
    Spec {
        words: &["git", "status"],
        flags: "-s --short -b --branch --show-stash --long -v --verbose -z --no-column \
            --ahead-behind --no-ahead-behind --renames --no-renames",
        either: "--porcelain -u --untracked-files --ignored --ignore-submodules --column \
            --find-renames",
        operands: Operands::Versions,
        ..NONE
    },
    GIT_LOG,
    Spec {
        words: &["git", "shortlog"],
        flags: "-n -s -e -c --numbered --summary --email",
        texts: "--since --until --author --group",
        operands: Operands::Versions,
        ..NONE
    },
    Spec {
        words: &["git", "diff"],
        flags: DIFF_FLAGS,
        values: DIFF_VALUES,
        texts: "-S -G",
        either: DIFF_EITHER,
        operands: Operands::Versions,
        ..NONE
    },
    Spec {
        words: &["git", "show"],
        flags: DIFF_FLAGS,
        values: DIFF_VALUES,
        texts: "-S -G --format --pretty",
        either: DIFF_EITHER,
        operands: Operands::Versions,
        ..NONE
    },
    Spec {
        words: &["git", "blame"],
        flags: "-w -s -e -l -t -f -n -p -c --porcelain --line-porcelain --show-email --show-number --root",
        texts: "-L --since",
        values: "--abbrev --date",
        either: "-M -C",
        operands: Operands::Versions,
        ..NONE
    },
    Spec {
        words: &["git", "rev-parse"],
        flags: "--short --verify --abbrev-ref --show-toplevel --show-prefix --show-cdup --is-inside-work-tree --git-dir --git-common-dir -q --quiet --all --symbolic-full-name HEAD",
        either: "--short --abbrev-ref",
        operands: Operands::Versions,
        ..NONE
    },
    Spec {
        words: &["git", "ls-files"],
        flags: "-c -d -m -o -i -s -u -k -t -v -z --cached --deleted --modified --others --ignored --stage --unmerged --killed --exclude-standard --full-name --error-unmatch",
        operands: Operands::Versions,
        ..NONE
    },
    Spec {
        words: &["git", "describe"],
        flags: "--all --tags --contains --long --always --exact-match",
        values: "--candidates",
        texts: "--match --exclude",
        either: "--abbrev --dirty --broken",
        operands: Operands::Versions,
        ..NONE
    },
    Spec { words: &["git", "stash", "list"], flags: "--oneline", ..NONE },
    Spec { words: &["git", "remote", "-v"], ..NONE },
    Spec {
        words: &["git", "merge-base"],
        flags: "--all -a --octopus --is-ancestor --fork-point",
        operands: Operands::Versions,
        ..NONE
    },
    Spec {
        words: &["git", "add"],
        flags: "-A --all -u --update -n --dry-run -v --verbose -N --intent-to-add",
        operands: Operands::Versions,
        ..NONE
    },
    // Omitted for cargo: `--config` and `--manifest-path` change the target, `--target-dir` writes,
    // `-Z` has arbitrary effects.
    Spec {
        words: &["cargo", "test"],
        flags: "--workspace --all --release -r --lib --bins --tests --examples --benches --doc \
            --all-targets --all-features --no-default-features --no-run --no-fail-fast -q --quiet \
            -v --verbose --locked --offline --frozen --keep-going --ignore-rust-version \
            --future-incompat-report",
        values: "-p --package --exclude --bin --test --example --bench -F --features -j --jobs \
            --profile --color --message-format --target",
        operands: Operands::Text,
        after: After::Harness,
        ..NONE
    },
    Spec {
        words: &["cargo", "bench"],
        flags: "--workspace --lib --bins --benches --all-features --no-run --no-fail-fast -q --quiet -v --locked --offline --frozen",
        values: "-p --package --bench -F --features -j --jobs --color",
        operands: Operands::Text,
        after: After::Harness,
        ..NONE
    },
    cargo(&["cargo", "build"]),
    cargo(&["cargo", "check"]),
    cargo(&["cargo", "doc"]),
    Spec {
        words: &["cargo", "fmt"],
        flags: "--all --check -q --quiet -v --verbose",
        values: "-p --package",
        ..NONE
    },
    Spec {
        words: &["cargo", "tree"],
        flags: "--workspace -i --all-features --no-dedupe -d --duplicates --locked --offline --frozen",
        values: "-p --package -e --edges --depth -F --features",
        operands: Operands::Text,
        ..NONE
    },
    // Omitted for npm: all configuration options, which can select another shell, project or
    // registry.
    npm(&["npm", "test"]),
    npm(&["pnpm", "test"]),
    npm(&["yarn", "test"]),
    Spec {
        words: &["go", "test"],
        flags: "-v -race -short -cover -failfast -json -benchmem",
        values: "-count -timeout -parallel -cpu -p -tags",
        texts: "-run -bench -skip",
        operands: Operands::Paths { lists: true },
        ..NONE
    },
    Spec { words: &["go", "vet"], flags: "-v", operands: Operands::Paths { lists: true }, ..NONE },
    // Left out of pytest: `-p`, `-c`, `--rootdir`, `-o` and `--confcutdir` load or lead elsewhere.
    Spec {
        words: &["pytest"],
        flags: "-v -vv -q -qq -x -s -l --lf --ff --nf --sw --exitfirst --verbose --quiet --last-failed --failed-first --no-header --no-summary --collect-only --co --strict-markers",
        values: "--maxfail --durations --tb -r --color --capture --verbosity",
        texts: "-k -m",
        operands: Operands::Paths { lists: false },
        ..NONE
    },
    Spec {
        words: &["ls"],
        flags: "-1 -A -a -B -C -c -d -F -f -G -g -H -h -i -k -L -l -m -N -n -o -p -Q -q -R -r -S \
            -s -t -U -u -v -X -x -Z --all --almost-all --author --escape --ignore-backups \
            --directory --dired --classify --file-type --full-time --group-directories-first \
            --no-group --human-readable --si --inode --kibibytes --dereference --literal \
            --numeric-uid-gid --hide-control-chars --show-control-chars --quote-name --reverse \
            --recursive --size --context --zero --help --version",
        values: "-w --width -T --tabsize --block-size --sort --time --format --quoting-style \
            --indicator-style",
        texts: "-I --ignore --hide --time-style",
        either: "--color --hyperlink --classify",
        operands: Operands::Paths { lists: true },
        ..NONE
    },
    Spec {
        words: &["cat"],
        flags: "-A -b -e -E -n -s -t -T -u -v --show-all --number-nonblank --show-ends --number \
            --squeeze-blank --show-tabs --show-nonprinting --help --version",
        operands: Operands::Paths { lists: false },
        ..NONE
    },
    Spec {
        words: &["head"],
        flags: "-q -v --quiet --verbose",
        values: "-n -c --lines --bytes",
        numbers: true,
        operands: Operands::Paths { lists: false },
        ..NONE
    },
    Spec {
        words: &["tail"],
        flags: "-q -v --quiet --verbose",
        values: "-n -c --lines --bytes",
        numbers: true,
        operands: Operands::Paths { lists: false },
        ..NONE
    },
    Spec {
        words: &["wc"],
        flags: "-l -w -c -m -L --lines --words --bytes --chars",
        operands: Operands::Paths { lists: false },
        ..NONE
    },
    Spec {
        words: &["stat"],
        flags: "-L -t --dereference --terse",
        texts: "-c --format",
        operands: Operands::Paths { lists: true },
        ..NONE
    },
    Spec {
        words: &["file"],
        flags: "-b -i -L --brief --mime --mime-type",
        operands: Operands::Paths { lists: true },
        ..NONE
    },
    Spec {
        words: &["du"],
        flags: "-a -c -h -s -b -k -m -x --all --total --human-readable --summarize --apparent-size",
        values: "-d --max-depth",
        operands: Operands::Paths { lists: true },
        ..NONE
    },
    Spec {
        words: &["df"],
        flags: "-h -k -T -i --human-readable --print-type --total",
        operands: Operands::Paths { lists: true },
        ..NONE
    },
    Spec {
        words: &["tree"],
        flags: "-a -d -f -i -s -h -D -F -r -t",
        values: "-L",
        texts: "-I -P",
        operands: Operands::Paths { lists: true },
        ..NONE
    },
    Spec { words: &["pwd"], flags: "-L -P", ..NONE },
    Spec { words: &["true"], ..NONE },
    Spec { words: &["false"], ..NONE },
    Spec { words: &["whoami"], ..NONE },
    Spec { words: &["uname"], flags: "-a -s -n -r -v -m -p -i -o --all", ..NONE },
    Spec { words: &["which"], flags: "-a", operands: Operands::Text, ..NONE },
    Spec { words: &["echo"], flags: "-n -e -E", operands: Operands::Text, ..NONE },
    // Left out of grep and rg: `-f` reads, `--pre` and `--hostname-bin` run, `-r` of rg is fine.
    Spec {
        words: &["grep"],
        flags: "-i -v -w -x -c -n -H -h -l -L -o -q -s -E -F -G -P -I -a --color --line-number --ignore-case --invert-match --word-regexp --count --files-with-matches --only-matching",
        values: "-A -B -C -m --max-count --context",
        texts: "-e --include --exclude --exclude-dir --regexp",
        either: "--color",
        numbers: true,
        operands: Operands::Pattern,
        ..NONE
    },
    Spec {
        words: &["rg"],
        flags: "-i -v -w -x -c -n -N -H -I -l -o -q -s -S -F -P -U --color --line-number --ignore-case --smart-case --count --files-with-matches --only-matching --no-heading --heading --files --json --stats --fixed-strings --no-line-number",
        values: "-A -B -C -m -t -T --type --type-not --max-count --max-depth --context --sort --color",
        texts: "-e -g --glob --iglob --regexp",
        operands: Operands::Pattern,
        ..NONE
    },
    Spec { words: &["rustc", "--version"], ..NONE },
    Spec { words: &["cargo", "--version"], ..NONE },
    Spec { words: &["node", "--version"], ..NONE },
    Spec { words: &["npm", "--version"], ..NONE },
    Spec { words: &["git", "--version"], ..NONE },
];

const fn cargo(words: &'static [&'static str]) -> Spec {
    Spec {
        words,
        flags: "--workspace --all --release -r --lib --bins --tests --examples --benches \
            --all-targets --all-features --no-default-features -q --quiet -v --verbose --locked \
            --offline --frozen --keep-going --no-deps --document-private-items",
        values: "-p --package --exclude --bin --test --example --bench -F --features -j --jobs \
            --profile --color --message-format --target",
        ..NONE
    }
}

const fn npm(words: &'static [&'static str]) -> Spec {
    Spec {
        words,
        flags: "-s --silent --if-present --ignore-scripts",
        operands: Operands::Paths { lists: false },
        after: After::Runner,
        ..NONE
    }
}

// Left out: `--logfile` writes.
const HARNESS: Spec = Spec {
    flags: "--nocapture --no-capture --ignored --include-ignored --exact --list --show-output -q \
        --quiet --test --bench --help",
    values: "--test-threads --color --format",
    texts: "--skip",
    operands: Operands::Text,
    ..NONE
};
// Left out: what loads a file, such as `--config`, `--require`, `--reporter` and `--setupFiles`.
const RUNNER: Spec = Spec {
    flags: "--coverage --no-coverage --runInBand -i --verbose --silent --ci --bail --run \
        --passWithNoTests --colors --no-color --watch=false --watchAll=false --forceExit \
        --detectOpenHandles --onlyChanged --no-watch --no-watchAll --failFast",
    values: "--maxWorkers -w --testTimeout --timeout --retries --shard",
    texts: "-t --testNamePattern -g --grep --testPathPattern",
    operands: Operands::Paths { lists: false },
    ..NONE
};

/// Check of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check<'a> {
    /// A file or folder name; a listing shows names, not contents.
    Path { word: &'a Word, lists: bool },
    /// A version or a file, separated by colons.
    Version(&'a str),
}

/// The most specific entry for a command.
pub(crate) fn spec_for(words: &[&str]) -> Option<&'static Spec> {
    SPECS.iter().filter(|spec| words.starts_with(spec.words)).max_by_key(|spec| spec.words.len())
}

impl Spec {
    /// True if all of `words`, which follow program and subcommand, are known to be harmless. File
    /// names are passed to `check`.
    pub(crate) fn judge<'a>(
        &self,
        words: &'a [Word],
        check: &mut dyn FnMut(Check<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut at = 0;
        let mut operands = 0;
        while let Some(word) = words.get(at) {
            at += 1;
            let Some(text) = word.literal() else {
                self.pattern(word, check)?;
                operands += 1;
                continue;
            };
            if text == "--" {
                return self.behind(words.get(at..).unwrap_or_default(), operands, check);
            }
            if text.starts_with('-') && text.len() > 1 {
                if word.form.has_backslash() {
                    return Err(format!("{text} is written to look like something else"));
                }
                at += self.option(text, words.get(at))?;
                continue;
            }
            self.operand(word, text, operands, check)?;
            operands += 1;
        }
        Ok(())
    }

    fn behind<'a>(
        &self,
        words: &'a [Word],
        before: usize,
        check: &mut dyn FnMut(Check<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        match self.after {
            After::Harness => return HARNESS.judge(words, check),
            After::Runner => return RUNNER.judge(words, check),
            After::Operands => {}
        }
        for (index, word) in words.iter().enumerate() {
            match word.literal() {
                Some(text) => self.operand(word, text, before + index, check)?,
                None => self.pattern(word, check)?,
            }
        }
        Ok(())
    }

    /// A word with a glob or a list in it.
    fn pattern<'a>(
        &self,
        word: &'a Word,
        check: &mut dyn FnMut(Check<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        let globs = matches!(self.words.first(), Some(&("ls" | "cat")));
        match self.operands {
            Operands::Paths { lists } if globs => check(Check::Path { word, lists }),
            _ => Err("part of it is known only when it runs".to_owned()),
        }
    }

    fn operand<'a>(
        &self,
        word: &'a Word,
        text: &'a str,
        index: usize,
        check: &mut dyn FnMut(Check<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        match self.operands {
            Operands::None => Err(format!("`{text}` is more than what is known of it")),
            Operands::Text => Ok(()),
            Operands::Pattern if index == 0 => Ok(()),
            Operands::Pattern => check(Check::Path { word, lists: false }),
            Operands::Paths { lists } => check(Check::Path { word, lists }),
            Operands::Versions => check(Check::Version(text)),
        }
    }

    /// Number of words after the option `text` that are its value.
    fn option(&self, text: &str, next: Option<&Word>) -> Result<usize, String> {
        let unknown = || Err(format!("the option {text} is not known to be harmless"));
        let has = |list: &str, option: &str| list.split_whitespace().any(|known| known == option);
        if has(self.flags, text) || has(self.either, text) {
            return Ok(0);
        }
        if self.numbers && text[1..].chars().all(|c| c.is_ascii_digit()) {
            return Ok(0);
        }
        let long = text.starts_with("--") || self.words.first() == Some(&"go");
        if long && let Some((name, value)) = text.split_once('=') {
            if has(self.texts, name) {
                return safe_text(text, value).map(|()| 0);
            }
            if has(self.values, name) || has(self.either, name) {
                return plain_value(text, value).map(|()| 0);
            }
            return unknown();
        }
        if has(self.texts, text) || has(self.values, text) {
            let Some(value) = next.and_then(Word::literal) else {
                return Err(format!("the value of {text} is known only when it runs"));
            };
            let checked = if has(self.texts, text) {
                safe_text(text, value)
            } else {
                plain_value(text, value)
            };
            return checked.map(|()| 1);
        }
        if long {
            return unknown();
        }
        let mut letters = text.char_indices().skip(1);
        let Some((_, first)) = letters.next() else { return unknown() };
        let option = format!("-{first}");
        let value = &text[1 + first.len_utf8()..];
        if has(self.texts, &option) {
            return safe_text(text, value).map(|()| 0);
        }
        if has(self.values, &option) || has(self.either, &option) {
            return plain_value(text, value).map(|()| 0);
        }
        let all = text[1..].chars().all(|letter| has(self.flags, &format!("-{letter}")));
        if all { Ok(0) } else { unknown() }
    }
}

/// A number, a name or a list of them: nothing that leads to a file.
fn plain_value(option: &str, value: &str) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || "_-,:=+%@^ ".contains(c);
    let dotted = value.contains('.') && (option.starts_with("--target") || value.contains(".."));
    if value.chars().all(|c| plain(c) || c == '.') && !dotted && !value.starts_with('-') {
        Ok(())
    } else {
        Err(format!("the value of {option} may lead elsewhere"))
    }
}

/// Data, unless it is a format of git that runs a program.
fn safe_text(option: &str, value: &str) -> Result<(), String> {
    let formats = option.starts_with("--format") || option.starts_with("--pretty");
    if formats && value.contains("%G") {
        return Err(format!("{option} with %G runs the program that checks signatures"));
    }
    Ok(())
}
