//! Table of options that do nothing beyond the granted operation.
//!
//! An option that is not in this table leads to a permission request, and so does a value that
//! could name a file. Options that can run a program, write a file or change the target are omitted
//! on purpose; comments name them.

use Operands::{Data, Nothing, Paths, Pattern, Versions};

use crate::shell::allow::{self, Ground};
use crate::shell::sensitive::selects_sensitive;
use crate::shell::word::Word;

/// Options and operands of a program.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Program and subcommand.
    pub(crate) words: &'static [&'static str],
    operands: Operands,
    /// Lists of options with their kinds: `-s` has no value and may be combined with others of one
    /// letter, `-n:` ([`VALUE`]), `-S:text` ([`TEXT`]), `--stat?` ([`OPTIONAL`]), and the other kinds
    /// below. Sources: the manuals of git 2.47, coreutils 9.1, grep 3.8, ripgrep 14 and cargo 1.95.
    options: &'static [&'static str],
    /// True if a number such as `-5` is an option.
    numbers: bool,
    /// Options and operands after `--`. `None`: the words after `--` are operands, even if they
    /// begin with `-`.
    after: Option<&'static Spec>,
}

/// Kind of an option without a value. The text is the suffix of the option in the table.
const FLAG: &str = "";
/// Kind of an option with a value that is a number or a name, never a path.
const VALUE: &str = ":";
/// Kind of an option with a value that is data: a pattern, a date, a name of a person.
const TEXT: &str = ":text";
/// Kind of an option whose value is the pattern, so that every operand is a file.
const PATTERN: &str = ":pattern";
/// Kind of an option without a value, with which no operand is a pattern.
const NO_PATTERN: &str = "+";
/// Kind of an option whose value selects files by their names, hidden ones included.
const GLOB: &str = ":glob";
/// Kind of an option whose value is a format of git. Some formats run the program that checks
/// signatures.
const FORMAT: &str = ":format";
/// Kind of an option whose value may end in a file of the repository, as in `-L1,9:file`.
const LINES: &str = ":lines";
/// Kind of an option with an optional value after `=`, a number or a name.
const OPTIONAL: &str = "?";

/// Kind of the operands of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// No operands.
    Nothing,
    /// Files and folders of the workspace; globs are permitted for `ls` and `cat`. `lists`: the
    /// program shows their names, not their content.
    Paths { lists: bool },
    /// Versions of git, or files of the workspace.
    Versions,
    /// Any text.
    Data,
    /// A pattern first, then files of the workspace.
    Pattern,
}

/// Operands that are files, whose content is read.
const FILES: Operands = Paths { lists: false };
/// Operands that are files and folders, of which only the names and metadata are shown.
const NAMES: Operands = Paths { lists: true };

const fn spec(
    words: &'static [&'static str],
    operands: Operands,
    options: &'static [&'static str],
) -> Spec {
    Spec { words, operands, options, numbers: false, after: None }
}

// Left out of git: `--output` writes; `--ext-diff`, `--textconv`, `--show-signature` and `%G` run
// programs; `--no-index` leaves the repository.
/// Options of every command of git that shows changes.
const PATCH: &str = "\
    -p -u --patch -s --no-patch --raw --numstat --shortstat --summary -z --name-only --name-status \
    --check --minimal --patience --histogram -w -b --ignore-all-space --ignore-space-change \
    --ignore-space-at-eol --ignore-blank-lines --no-renames --full-index --binary -a --text \
    --no-ext-diff --no-textconv --cc -R --no-prefix --pickaxe-regex --pickaxe-all --no-color -W \
    --function-context -U: --unified: --diff-filter: --abbrev: --diff-algorithm: -S:text -G:text \
    --stat? --dirstat? --color? --word-diff? --color-words? --color-moved? -M? -C? --find-renames? \
    --find-copies? --relative?";
/// Further options of `git diff` and `git show`.
const DIFF: &str = "\
    --no-indent-heuristic --exit-code --quiet -l: --word-diff-regex: --abbrev? \
    --ws-error-highlight?";
/// Further options of `git log`.
const LOG: &str = "\
    --oneline --graph --all --follow --reverse --merges --no-merges --first-parent --abbrev-commit \
    --no-abbrev-commit -i --regexp-ignore-case -E --extended-regexp -F --fixed-strings -P \
    --perl-regexp --all-match --invert-grep --topo-order --date-order --author-date-order \
    --left-right --cherry --cherry-pick --cherry-mark --boundary --simplify-by-decoration \
    --full-history --ancestry-path --source --no-decorate -g --walk-reflogs --parents --children \
    --use-mailmap --no-mailmap --mailmap --relative-date --no-walk --not --no-notes --full-diff \
    --show-pulls --left-only --right-only --dense --sparse --no-graph --clear-decorations -c -m \
    -n: --max-count: --skip: --min-parents: --max-parents: --encoding: --since:text --until:text \
    --after:text --before:text --author:text --committer:text --grep:text --grep-reflog:text \
    --format:format --pretty:format -L:lines --decorate-refs:text --decorate-refs-exclude:text \
    --exclude:text --glob:text --since-as-filter:text --date:text --decorate? --branches? --tags? \
    --remotes? --no-walk? --pretty? --format?";
// Omitted for cargo: `--config` and `--manifest-path` change the target, `--target-dir` writes,
// `-Z` has arbitrary effects.
/// Options of the commands of cargo that compile.
const CARGO: &str = "\
    --workspace --all --release -r --lib --bins --tests --examples --benches --all-targets \
    --all-features --no-default-features -q --quiet -v --verbose --locked --offline --frozen \
    --keep-going -p: --package: --exclude: --bin: --test: --example: --bench: -F: --features: -j: \
    --jobs: --profile: --color: --message-format: --target:";
/// Further options of the commands of cargo that only compile.
const BUILD: &str = "--no-deps --document-private-items";
/// Further options of `cargo test`.
const TEST: &str = "--doc --no-run --no-fail-fast --ignore-rust-version --future-incompat-report";
/// Options of `cargo bench`.
const BENCH: &str = "\
    --workspace --lib --bins --benches --all-features --no-run --no-fail-fast -q --quiet -v \
    --locked --offline --frozen -p: --package: --bench: -F: --features: -j: --jobs: --color:";
// Omitted for npm: all configuration options, which can select another shell, project or
// registry.
const NPM: &str = "-s --silent --if-present --ignore-scripts";
/// Options of `head` and `tail`.
const ENDS: &str = "-q -v --quiet --verbose -n: -c: --lines: --bytes:";
// Left out of grep and rg: `-f` reads, `--pre` and `--hostname-bin` run, `-r` of rg is fine.
/// Options of `grep`.
const GREP: &str = "\
    -i -v -w -x -c -n -H -h -l -L -o -q -s -E -F -G -P -I -a --color --line-number --ignore-case \
    --invert-match --word-regexp --count --files-with-matches --only-matching -A: -B: -C: -m: \
    --max-count: --context: -e:pattern --include:text --exclude:text --exclude-dir:text \
    --regexp:pattern \
    --color?";

/// Programs with their harmless options and operands.
static SPECS: &[Spec] = &[
    spec(
        &["git", "status"],
        Versions,
        &["-s --short -b --branch --show-stash --long -v --verbose -z --no-column --ahead-behind \
            --no-ahead-behind --renames --no-renames --porcelain? -u? --untracked-files? \
            --ignored? --ignore-submodules? --column? --find-renames?"],
    ),
    Spec { numbers: true, ..spec(&["git", "log"], Versions, &[PATCH, LOG]) },
    spec(
        &["git", "shortlog"],
        Versions,
        &["-n -s -e -c --numbered --summary --email --since:text --until:text --author:text \
            --group:format"],
    ),
    spec(&["git", "diff"], Versions, &[PATCH, DIFF]),
    spec(&["git", "show"], Versions, &[PATCH, DIFF, "--format:format --pretty:format"]),
    spec(
        &["git", "blame"],
        Versions,
        &["-w -s -e -l -t -f -n -p -c --porcelain --line-porcelain --show-email --show-number \
            --root --abbrev: --date: -L:lines --since:text -M? -C?"],
    ),
    spec(
        &["git", "rev-parse"],
        Versions,
        &["--short --verify --abbrev-ref --show-toplevel --show-prefix --show-cdup \
            --is-inside-work-tree --git-dir --git-common-dir -q --quiet --all \
            --symbolic-full-name HEAD --short? --abbrev-ref?"],
    ),
    spec(
        &["git", "ls-files"],
        Versions,
        &["-c -d -m -o -i -s -u -k -t -v -z --cached --deleted --modified --others --ignored \
            --stage --unmerged --killed --exclude-standard --full-name --error-unmatch"],
    ),
    spec(
        &["git", "describe"],
        Versions,
        &["--all --tags --contains --long --always --exact-match --candidates: --match:text \
            --exclude:text --abbrev? --dirty? --broken?"],
    ),
    spec(&["git", "stash", "list"], Nothing, &["--oneline"]),
    spec(&["git", "remote", "-v"], Nothing, &[]),
    spec(&["git", "merge-base"], Versions, &["--all -a --octopus --is-ancestor --fork-point"]),
    spec(
        &["git", "add"],
        Versions,
        &["-A --all -u --update -n --dry-run -v --verbose -N --intent-to-add"],
    ),
    Spec { after: Some(&HARNESS), ..spec(&["cargo", "test"], Data, &[CARGO, TEST]) },
    Spec { after: Some(&HARNESS), ..spec(&["cargo", "bench"], Data, &[BENCH]) },
    spec(&["cargo", "build"], Nothing, &[CARGO, BUILD]),
    spec(&["cargo", "check"], Nothing, &[CARGO, BUILD]),
    spec(&["cargo", "doc"], Nothing, &[CARGO, BUILD]),
    spec(&["cargo", "fmt"], Nothing, &["--all --check -q --quiet -v --verbose -p: --package:"]),
    spec(
        &["cargo", "tree"],
        Data,
        &["--workspace -i --all-features --no-dedupe -d --duplicates --locked --offline --frozen \
            -p: --package: -e: --edges: --depth: -F: --features:"],
    ),
    Spec { after: Some(&RUNNER), ..spec(&["npm", "test"], FILES, &[NPM]) },
    Spec { after: Some(&RUNNER), ..spec(&["pnpm", "test"], FILES, &[NPM]) },
    Spec { after: Some(&RUNNER), ..spec(&["yarn", "test"], FILES, &[NPM]) },
    spec(
        &["go", "test"],
        FILES,
        &["-v -race -short -cover -failfast -json -benchmem -count: -timeout: -parallel: -cpu: \
            -p: -tags: -run:text -bench:text -skip:text"],
    ),
    spec(&["go", "vet"], FILES, &["-v"]),
    // Left out of pytest: `-p`, `-c`, `--rootdir`, `-o` and `--confcutdir` load or lead elsewhere.
    spec(
        &["pytest"],
        FILES,
        &["-v -vv -q -qq -x -s -l --lf --ff --nf --sw --exitfirst --verbose --quiet \
            --last-failed --failed-first --no-header --no-summary --collect-only --co \
            --strict-markers --maxfail: --durations: --tb: -r: --color: --capture: --verbosity: \
            -k:text -m:text"],
    ),
    spec(
        &["ls"],
        NAMES,
        &["-1 -A -a -B -C -c -d -F -f -G -g -H -h -i -k -L -l -m -N -n -o -p -Q -q -R -r -S -s \
            -t -U -u -v -X -x -Z --all --almost-all --author --escape --ignore-backups \
            --directory --dired --classify --file-type --full-time --group-directories-first \
            --no-group --human-readable --si --inode --kibibytes --dereference --literal \
            --numeric-uid-gid --hide-control-chars --show-control-chars --quote-name --reverse \
            --recursive --size --context --zero --help --version -w: --width: -T: --tabsize: \
            --block-size: --sort: --time: --format: --quoting-style: --indicator-style: -I:text \
            --ignore:text --hide:text --time-style:text --color? --hyperlink? --classify?"],
    ),
    spec(
        &["cat"],
        FILES,
        &["-A -b -e -E -n -s -t -T -u -v --show-all --number-nonblank --show-ends --number \
            --squeeze-blank --show-tabs --show-nonprinting --help --version"],
    ),
    Spec { numbers: true, ..spec(&["head"], FILES, &[ENDS]) },
    Spec { numbers: true, ..spec(&["tail"], FILES, &[ENDS]) },
    spec(&["wc"], FILES, &["-l -w -c -m -L --lines --words --bytes --chars"]),
    spec(&["stat"], NAMES, &["-L -t --dereference --terse -c:text --format:text"]),
    spec(&["file"], NAMES, &["-b -i -L --brief --mime --mime-type"]),
    spec(
        &["du"],
        NAMES,
        &["-a -c -h -s -b -k -m -x --all --total --human-readable --summarize --apparent-size \
            -d: --max-depth:"],
    ),
    spec(&["df"], NAMES, &["-h -k -T -i --human-readable --print-type --total"]),
    spec(&["tree"], NAMES, &["-a -d -f -i -s -h -D -F -r -t -L: -I:text -P:text"]),
    spec(&["pwd"], Nothing, &["-L -P"]),
    spec(&["true"], Nothing, &[]),
    spec(&["false"], Nothing, &[]),
    spec(&["whoami"], Nothing, &[]),
    spec(&["uname"], Nothing, &["-a -s -n -r -v -m -p -i -o --all"]),
    spec(&["which"], Data, &["-a"]),
    spec(&["echo"], Data, &["-n -e -E"]),
    Spec { numbers: true, ..spec(&["grep"], Pattern, &[GREP]) },
    spec(
        &["rg"],
        Pattern,
        &["-i -v -w -x -c -n -N -H -I -l -o -q -s -S -F -P -U --color --line-number \
            --ignore-case --smart-case --count --files-with-matches --only-matching --no-heading \
            --heading --files+ --json --stats --fixed-strings --no-line-number -A: -B: -C: -m: -t: \
            -T: --type: --type-not: --max-count: --max-depth: --context: --sort: --color: \
            -e:pattern --regexp:pattern -g:glob --glob:glob --iglob:glob"],
    ),
    spec(&["rustc", "--version"], Nothing, &[]),
    spec(&["cargo", "--version"], Nothing, &[]),
    spec(&["node", "--version"], Nothing, &[]),
    spec(&["npm", "--version"], Nothing, &[]),
    spec(&["git", "--version"], Nothing, &[]),
];

// Options of Rust's test harness. Left out: `--logfile` writes.
static HARNESS: Spec = spec(
    &[],
    Data,
    &["--nocapture --no-capture --ignored --include-ignored --exact --list --show-output -q \
        --quiet --test --bench --help --test-threads: --color: --format: --skip:text"],
);
// Options of JavaScript's test programs. Left out: what loads a file, such as `--config`,
// `--require`, `--reporter` and `--setupFiles`.
static RUNNER: Spec = spec(
    &[],
    FILES,
    &["--coverage --no-coverage --runInBand -i --verbose --silent --ci --bail --run \
        --passWithNoTests --colors --no-color --watch=false --watchAll=false --forceExit \
        --detectOpenHandles --onlyChanged --no-watch --no-watchAll --failFast --maxWorkers: -w: \
        --testTimeout: --timeout: --retries: --shard: -t:text --testNamePattern:text -g:text \
        --grep:text --testPathPattern:text"],
);

/// Returns the most specific entry for a command. `None` if the table does not contain it.
pub(crate) fn spec_for(words: &[&str]) -> Option<&'static Spec> {
    SPECS.iter().filter(|spec| words.starts_with(spec.words)).max_by_key(|spec| spec.words.len())
}

impl Spec {
    /// Checks that all of `words`, which follow program and subcommand, are known to be harmless in
    /// `ground`. Fails with the reason.
    pub(crate) fn judge(&self, words: &[Word], ground: Ground<'_>) -> Result<(), String> {
        let mut at = 0;
        let mut operands = usize::from(self.operands == Pattern && self.has_pattern(words));
        while let Some(word) = words.get(at) {
            at += 1;
            if let Some(text) = word.literal().filter(|text| text.starts_with('-') && *text != "-")
            {
                if text == "--" {
                    return self.wrapped(words.get(at..).unwrap_or_default(), operands, ground);
                }
                if word.form.has_backslash() {
                    return Err(format!("{text} is written to look like something else"));
                }
                at += self.option(text, words.get(at))?;
                continue;
            }
            self.operand(word, operands, ground)?;
            operands += 1;
        }
        Ok(())
    }

    /// True if an option in `words` gives the pattern or excludes one. It may follow the operands.
    fn has_pattern(&self, words: &[Word]) -> bool {
        words.iter().filter_map(Word::literal).any(|text| {
            let name = text.split_once('=').map_or(text, |(name, _)| name);
            let is_given = |option: &str| self.has(option, PATTERN) || self.has(option, NO_PATTERN);
            let is_short = text.starts_with('-') && !text.starts_with("--");
            is_given(name) || (is_short && text.get(..2).is_some_and(is_given))
        })
    }

    fn wrapped(&self, words: &[Word], before: usize, ground: Ground<'_>) -> Result<(), String> {
        if let Some(after) = self.after {
            return after.judge(words, ground);
        }
        let mut words = words.iter().enumerate();
        words.try_for_each(|(index, word)| self.operand(word, before + index, ground))
    }

    fn operand(&self, word: &Word, index: usize, ground: Ground<'_>) -> Result<(), String> {
        let globs = matches!(self.words.first(), Some(&("ls" | "cat")));
        let Some(text) = word.literal() else {
            // A word with a glob or a list in it.
            return match self.operands {
                Paths { lists } if globs => allow::path(word, lists, ground),
                _ => Err("part of it is known only when it runs".to_owned()),
            };
        };
        match self.operands {
            Nothing => Err(format!("`{text}` is more than what is known of it")),
            Data => Ok(()),
            Pattern if index == 0 => Ok(()),
            Pattern => allow::path(word, false, ground),
            Paths { lists } => allow::path(word, lists, ground),
            Versions => allow::version(text, ground),
        }
    }

    /// Checks the option `text` and its value. `next` is the following word. Returns 1 if `next` is
    /// the value, else 0. Fails with the reason.
    fn option(&self, text: &str, next: Option<&Word>) -> Result<usize, String> {
        let number = || self.numbers && text[1..].chars().all(|c| c.is_ascii_digit());
        let is_flag = self.has(text, FLAG) || self.has(text, NO_PATTERN);
        if is_flag || self.has(text, OPTIONAL) || number() {
            return Ok(0);
        }
        let unknown = || format!("the option {text} is not known to be harmless");
        let long = text.starts_with("--") || self.words.first() == Some(&"go");
        if long && let Some((name, value)) = text.split_once('=') {
            let check = self.attached(name).ok_or_else(unknown)?;
            return check(text, value).map(|()| 0);
        }
        if let Some(check) = self.separate(text) {
            let value = next.and_then(Word::literal);
            let value =
                value.ok_or_else(|| format!("the value of {text} is known only when it runs"))?;
            return check(text, value).map(|()| 1);
        }
        let first = text[1..].chars().next().filter(|_| !long).ok_or_else(unknown)?;
        let (option, value) = text.split_at(1 + first.len_utf8());
        if let Some(check) = self.attached(option) {
            return check(text, value).map(|()| 0);
        }
        let all = text[1..].chars().all(|letter| self.has(&format!("-{letter}"), FLAG));
        if all { Ok(0) } else { Err(unknown()) }
    }

    /// True if the entry has `option` with this kind of value.
    fn has(&self, option: &str, kind: &str) -> bool {
        let split = |known: &'static str| {
            known.find([':', '?', '+']).map_or((known, FLAG), |at| known.split_at(at))
        };
        let mut known = self.options.iter().flat_map(|list| list.split_ascii_whitespace());
        known.any(|known| split(known) == (option, kind))
    }

    /// Returns the check for a value of `option` in the next word. `None` if the option takes none
    /// there.
    fn separate(&self, option: &str) -> Option<ValueCheck> {
        let checks: [(&str, ValueCheck); 6] = [
            (TEXT, any_value),
            (PATTERN, any_value),
            (GLOB, glob_value),
            (FORMAT, format_value),
            (LINES, lines_value),
            (VALUE, plain_value),
        ];
        checks.into_iter().find(|(kind, _)| self.has(option, kind)).map(|(_, check)| check)
    }

    /// Returns the check for a value of `option` in the same word. `None` if the option takes none
    /// there.
    fn attached(&self, option: &str) -> Option<ValueCheck> {
        self.separate(option).or_else(|| self.has(option, OPTIONAL).then_some(plain_value))
    }
}

/// Check of a value. Gets the option and the value, and fails with the reason.
type ValueCheck = fn(&str, &str) -> Result<(), String>;

/// Accepts a number, a name or a list of them: nothing that leads to a file.
fn plain_value(option: &str, value: &str) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || "_-,:=+%@^ ".contains(c);
    let dotted = value.contains('.') && (option.starts_with("--target") || value.contains(".."));
    if value.chars().all(|c| plain(c) || c == '.') && !dotted && !value.starts_with('-') {
        Ok(())
    } else {
        Err(format!("the value of {option} may lead elsewhere"))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one check of a table")]
fn any_value(_: &str, _: &str) -> Result<(), String> {
    Ok(())
}

/// Accepts a pattern that selects no file with secrets, or that excludes files.
fn glob_value(option: &str, value: &str) -> Result<(), String> {
    if !value.starts_with('!') && selects_sensitive(value) {
        return Err(format!("{option} {value} may select a file with secrets"));
    }
    Ok(())
}

/// Accepts a format of git without a field of a signature: `%G`, also with `+`, `-` or a space
/// between.
fn format_value(option: &str, value: &str) -> Result<(), String> {
    let mut fields = value.split('%').skip(1);
    if fields.any(|field| field.trim_start_matches(['+', '-', ' ']).starts_with('G')) {
        return Err(format!("{option} with %G runs the program that checks signatures"));
    }
    Ok(())
}

/// Accepts a range of lines, with a file that holds no secrets.
fn lines_value(option: &str, value: &str) -> Result<(), String> {
    if value.split(':').any(selects_sensitive) {
        return Err(format!("{option} {value} may read a file with secrets"));
    }
    Ok(())
}
