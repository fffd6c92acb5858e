//! The shell judge against bash: every program that bash runs has to be in the judge's list.
//!
//! A generator writes command lines from a grammar. Each runs in a jail whose programs are stubs
//! that only write down their names. 20,000 lines run with the other tests; more on demand:
//! `POSSE_FUZZ_LINES=1000000 cargo test --release --test it judge_fuzz -- --nocapture`, with
//! `POSSE_FUZZ_SEED` for others and `POSSE_FUZZ_FROM` to begin at a later one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use posse::permission::{PolicySettings, RulePolicy};

/// Lines that one bash runs.
const BATCH: usize = 500;
/// Seconds that they may take; a busy machine needs some of them.
const SECONDS_MAX: &str = "120";
/// Lines in 10,000 that may not end by themselves.
const STUCK_MAX: usize = 2;
/// Percent of lines that the judge may say it does not understand.
const UNSURE_MAX: usize = 40;
/// Programs that do not exist: bash writes down that it was to run them.
const MISSING: [&str; 10] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"];
/// Programs that are there as stubs, for those that run others: harmless by another name, should
/// one not be a stub.
const STUBS: [&str; 4] = ["q1", "q6", "id", "git"];
/// Programs that are really there, because they run others.
const WRAPPERS: [&str; 9] =
    ["env", "nice", "timeout", "nohup", "xargs", "setsid", "stdbuf", "find", "bash"];

/// Ambiguous words.
const WORDS: [&str; 72] = [
    "a",
    "b",
    "-x",
    "--y=z",
    "'a b'",
    "\"a b\"",
    "'$(p1)'",
    "'`p2`'",
    "\"\\$(p3)\"",
    "a\\ b",
    "\\;",
    "';'",
    "\"&&\"",
    "'|'",
    "a#b",
    "'#'",
    "$x",
    "\"$x\"",
    "${x}",
    "${x:-a}",
    "\"${x%a}\"",
    "{a,b}",
    "*",
    "?x",
    "[a-z]",
    "~",
    "a=b",
    "'it'\\''s'",
    "\"\\\"\"",
    "\"'\"",
    "'\"'",
    "$'a\\'b'",
    "if",
    "then",
    "done",
    "}",
    "!",
    "time",
    "in",
    "esac",
    "p1",
    "a\\\nb",
    "$((1+2))",
    "${#x}",
    "$$",
    "$?",
    "@",
    "%",
    "^",
    "+",
    ":",
    ",",
    "{",
    "x{",
    "]]",
    "[[",
    "case",
    "function",
    "\\(",
    "')'",
    "\"(\"",
    "$",
    "\"$\"",
    "a$",
    "${x[0]}",
    "1",
    "2>1",
    "\"\"",
    "''",
    "-",
    "--",
    "\\\\",
];

/// A small generator of numbers: the same lines for the same seed, on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Writes lines.
struct Grammar {
    numbers: Numbers,
    /// Positions of line continuations; separate, so that a seed gives the same lines without them.
    breaks: Numbers,
    /// Remaining nesting depth.
    fuel: usize,
    heredocs: Vec<String>,
    names: usize,
}

impl Grammar {
    fn line(seed: u64) -> String {
        let mut grammar = Grammar {
            numbers: Numbers(seed),
            breaks: Numbers(!seed),
            fuel: 9,
            heredocs: Vec::new(),
            names: 0,
        };
        let mut line = grammar.list();
        line.push_str(&grammar.end_of_line());
        line
    }

    fn end_of_line(&mut self) -> String {
        let mut text = String::from("\n");
        for heredoc in std::mem::take(&mut self.heredocs) {
            text.push_str(&heredoc);
        }
        text
    }

    fn deeper<T>(&mut self, write: impl FnOnce(&mut Grammar) -> T) -> Option<T> {
        self.fuel = self.fuel.checked_sub(1)?;
        Some(write(self))
    }

    fn list(&mut self) -> String {
        let mut text = self.pipeline();
        while self.numbers.chance(35) {
            let Some(next) = self.deeper(Grammar::pipeline) else { break };
            let mut join = self.numbers.one(&[
                ";", " ; ", "&&", " && ", "||", " || ", " & ", "\n", " ;\n", "&&\n", " \\\n&& ",
            ]);
            if join.contains('\n') && !self.heredocs.is_empty() {
                join = ";";
            }
            write!(text, "{join}{next}").unwrap();
        }
        text
    }

    fn pipeline(&mut self) -> String {
        let mut text = String::new();
        if self.numbers.chance(6) {
            text.push_str(self.numbers.one(&["! ", "time ", "time -p ", "! time "]));
        }
        text.push_str(&self.command());
        while self.numbers.chance(15) {
            let Some(next) = self.deeper(Grammar::command) else { break };
            let pipe = self.numbers.one(&["|", " | ", " |& ", "|&"]);
            write!(text, "{pipe}{next}").unwrap();
        }
        text
    }

    fn command(&mut self) -> String {
        if self.fuel == 0 || self.numbers.chance(68) {
            return self.simple();
        }
        self.fuel -= 1;
        let text = self.compound();
        let text = self.broken(text);
        if self.numbers.chance(15) {
            let redirect = self.redirect();
            return format!("{text} {redirect}");
        }
        text
    }

    /// Adds a line continuation after the first character, sometimes, and in the last word.
    fn broken(&mut self, mut text: String) -> String {
        let inside = |text: &str, at: usize| {
            text.is_char_boundary(at) && !text[..at].ends_with('\\') && !text.contains('#')
        };
        for at in [text.len().saturating_sub(1), 1] {
            if at > 0 && self.breaks.chance(5) && inside(&text, at) {
                text.insert_str(at, "\\\n");
            }
        }
        text
    }

    fn compound(&mut self) -> String {
        let name = format!("f{}", self.names);
        match self.numbers.below(17) {
            0 => format!("({})", self.list()),
            1 => format!("( {} )", self.list()),
            2 => format!("{{ {}; }}", self.list()),
            3 => format!("if {}; then {}; fi", self.list(), self.list()),
            4 => format!(
                "if {}; then {}; elif {}; then {}; else {}; fi",
                self.simple(),
                self.simple(),
                self.simple(),
                self.simple(),
                self.list()
            ),
            5 => format!("for x in {} {}; do {}; done", self.word(), self.word(), self.list()),
            6 => format!("while p5 {}; do {}; done", self.word(), self.list()),
            7 => format!("until p1; do {}; done", self.list()),
            8 => format!(
                "case {} in {}) {};; (b|c) {} ;; *) {};; esac",
                self.word(),
                self.numbers.one(&["a", "*", "'a)'", "x*"]),
                self.list(),
                self.simple(),
                self.simple()
            ),
            9 => format!("[[ {} == {} && -n {} ]]", self.word(), self.word(), self.word()),
            10 => format!("((1 + {}))", self.numbers.one(&["2", "$(p3)", "x[1]", "(3 << 1)"])),
            11 => {
                self.names += 1;
                format!("{name}() {{ {}; }}; {name} {}", self.list(), self.word())
            }
            12 => {
                self.names += 1;
                format!("function {name} {{ {}; }}\n{name}", self.simple())
            }
            // It reads from a pipe that is never closed: a reading program would wait for ever.
            13 => format!("coproc {} {}", self.program(), self.numbers.one(&["a", "'b c'", "-x"])),
            14 => format!("for ((i=0; i<1; i++)); do {}; done", self.list()),
            15 => format!("select x in {}; do {}; break; done <<< 1", self.word(), self.simple()),
            _ => format!("{{\n{}\n}}", self.simple()),
        }
    }

    fn program(&mut self) -> String {
        let name = self.numbers.one(&MISSING).to_owned();
        self.spelled(name)
    }

    /// An existing stub.
    fn stub(&mut self) -> String {
        let name = self.numbers.one(&STUBS).to_owned();
        self.spelled(name)
    }

    fn spelled(&mut self, name: String) -> String {
        match self.numbers.below(22) {
            0 => format!("'{name}'"),
            1 => format!("\"{name}\""),
            2 => format!("\\{name}"),
            3 => format!("{}''{}", &name[..1], &name[1..]),
            4 => format!("{}\\\n{}", &name[..1], &name[1..]),
            5 => format!("$'{name}'"),
            6 => format!("$'\\x{:02x}'{}", name.as_bytes()[0], &name[1..]),
            7 => format!("{}\"{}\"", &name[..1], &name[1..]),
            8 => format!("{{{name},a,b}}"),
            _ => name,
        }
    }

    fn simple(&mut self) -> String {
        let mut text = String::new();
        if self.numbers.chance(8) {
            let assignment = self.assignment();
            write!(text, "{} ", self.broken(assignment)).unwrap();
        }
        if self.numbers.chance(4) {
            write!(text, "{} ", self.redirect()).unwrap();
        }
        let wrapped = self.numbers.below(100);
        let program = match wrapped {
            0..=8 => {
                let program = self.stub();
                format!("{} {program}", self.wrapper())
            }
            9..=18 => return text + &self.hidden(),
            19 => {
                let assignment = self.assignment();
                return self.broken(assignment);
            }
            _ => self.program(),
        };
        text.push_str(&program);
        for _ in 0..self.numbers.below(4) {
            let word = self.word();
            write!(text, " {word}").unwrap();
        }
        if self.numbers.chance(12) {
            let redirect = self.redirect();
            write!(text, " {redirect}").unwrap();
        }
        if self.numbers.chance(3) && self.heredocs.is_empty() && self.fuel > 4 {
            text.push_str(" # a comment; p1 && p2");
            text.push_str(&self.end_of_line());
            let next = self.program();
            text.push_str(&next);
        }
        text
    }

    fn wrapper(&mut self) -> String {
        let known = [
            "env",
            "env A=1",
            "env -u A B=2",
            "nice",
            "nice -n 3",
            "nice -5",
            "timeout 9",
            "timeout -s KILL 9",
            "timeout --signal=KILL 9s",
            "timeout -k 1 9",
            "nohup",
            "setsid",
            "setsid -w",
            "stdbuf -oL",
            "stdbuf -o L",
            "command",
            "command -p",
            "builtin command",
            "exec",
            "xargs",
            "xargs -n 1",
            "xargs -0",
            "xargs -I{}",
            "env nice timeout 9",
            "command command",
            "env env env",
            "exec -a x",
            "env --",
            "nice --",
        ];
        self.numbers.one(&known).to_owned()
    }

    /// Commands in the words of others.
    fn hidden(&mut self) -> String {
        self.fuel = self.fuel.saturating_sub(2);
        let simple = self.stub();
        let word = self.numbers.one(&["a", "b c", "-x"]);
        let inner = match self.numbers.below(4) {
            0 => format!("p1 {word}; p2"),
            1 => format!("p3 && p4 {word}"),
            2 => "(p5; p6 | p7)".to_owned(),
            _ => "p8".to_owned(),
        };
        match self.numbers.below(12) {
            0 => format!("eval '{inner}'"),
            1 => format!("eval p1 \\; p2 {word}"),
            2 => format!("bash -c '{inner}'"),
            3 => format!("bash -c \"{inner}\" x y"),
            4 => format!("bash --norc -ec '{inner}'"),
            5 => format!("bash <<< '{inner}'"),
            6 => format!("find . -maxdepth 0 -exec {simple} {{}} \\;"),
            7 => format!("find . -maxdepth 0 -exec {simple} a + -exec q1 ';'"),
            8 => format!("trap '{inner}' EXIT"),
            9 => format!("eval eval \"'{inner}'\""),
            10 => format!("echo '{inner}' | bash"),
            _ => format!("bash -c 'bash -c \"{inner}\"'"),
        }
    }

    fn assignment(&mut self) -> String {
        match self.numbers.below(5) {
            0 => format!("x={}", self.word()),
            1 => format!("x=({} {})", self.word(), self.word()),
            2 => format!("x+={}", self.word()),
            3 => "x='p1; p2'".to_owned(),
            _ => "x=".to_owned(),
        }
    }

    fn redirect(&mut self) -> String {
        let redirect = self.whole_redirect();
        self.broken(redirect)
    }

    fn whole_redirect(&mut self) -> String {
        match self.numbers.below(13) {
            0 => ">/dev/null".to_owned(),
            1 => "2>&1".to_owned(),
            2 => "> out".to_owned(),
            3 => ">>out".to_owned(),
            4 => "< /dev/null".to_owned(),
            5 => format!("<<< {}", self.word()),
            6 => "&> out".to_owned(),
            7 => ">| out".to_owned(),
            8 => "2>/dev/null".to_owned(),
            9 => ">&2".to_owned(),
            _ if self.fuel < 8 => "<&0".to_owned(),
            10 => {
                self.heredocs.push("a $(p1) `p2` ${x:-$(p3)} \\$(p4)\nEOF\n".to_owned());
                "<<EOF".to_owned()
            }
            11 => {
                self.heredocs.push("$(p1) ' \" ` p2\nE O\n".to_owned());
                "<<'E O'".to_owned()
            }
            _ => {
                self.heredocs.push("\tp1 $(p2)\n\tX\n".to_owned());
                "<<-X".to_owned()
            }
        }
    }

    fn word(&mut self) -> String {
        if self.fuel > 0 && self.numbers.chance(18) {
            self.fuel -= 1;
            return self.substitution();
        }
        self.numbers.one(&WORDS).to_owned()
    }

    fn substitution(&mut self) -> String {
        let heredocs = std::mem::take(&mut self.heredocs);
        let inner = if self.fuel < 3 { self.program() } else { self.list() };
        let own = std::mem::replace(&mut self.heredocs, heredocs);
        let end: String =
            if own.is_empty() { String::new() } else { format!("\n{}", own.concat()) };
        let plain = !inner.contains(['`', '\\', '"', '\'', '$']) && own.is_empty();
        match self.numbers.below(12) {
            0 => format!("$({inner}{end})"),
            1 => format!("\"$({inner}{end})\""),
            2 => format!("a$({inner}{end})b"),
            3 if plain => format!("`{inner}`"),
            4 if plain => format!("\"`{inner}`\""),
            5 => format!("${{x:-$({inner}{end})}}"),
            6 => format!("\"${{y:-$({inner}{end})}}\""),
            7 => format!("<({inner}{end})"),
            8 if plain => format!("$((1 + $({inner})))"),
            9 if plain => format!("`p1 \\`{inner}\\``"),
            10 => format!("$( ({inner}{end}) )"),
            _ => format!("\"a $({inner}{end}) b\""),
        }
    }
}

/// A folder with nothing but stubs to run.
struct Jail {
    folder: tempfile::TempDir,
}

impl Jail {
    fn new() -> Jail {
        let jail = Jail { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(jail.path("bin")).unwrap();
        fs::create_dir(jail.path("cwd")).unwrap();
        let log = jail.path("log").display().to_string();
        let handler = format!(
            "command_not_found_handle() {{ echo \"$FUZZ_LINE ${{1##*/}}\" >>'{log}'; \
             case $1 in p[5-9]) return 1;; esac; }}\n"
        );
        fs::write(jail.path("handler"), handler).unwrap();
        for name in STUBS {
            let fails = u8::from(name == "q6");
            let text =
                format!("#!/bin/sh\necho \"$FUZZ_LINE ${{0##*/}}\" >>'{log}'\nexit {fails}\n");
            fs::write(jail.path("bin").join(name), text).unwrap();
            fs::set_permissions(jail.path("bin").join(name), Permissions::from_mode(0o755))
                .unwrap();
        }
        for name in WRAPPERS {
            let real = ["/usr/bin", "/bin"].iter().map(|folder| Path::new(folder).join(name));
            let real = real.into_iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(real, jail.path("bin").join(name)).unwrap();
        }
        jail
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Programs run by each of `lines`, the first of which is number `first`; and the number of
    /// lines that wait for themselves for ever, such as a coprocess with a reader that gets no
    /// input.
    fn run(&self, lines: &[String], first: usize) -> (Vec<BTreeSet<String>>, usize) {
        let (mut ran, mut stuck) = (Vec::new(), 0);
        while ran.len() < lines.len() {
            let (some, all) = self.run_some(&lines[ran.len()..], first + ran.len());
            ran.extend(some);
            stuck += usize::from(!all);
        }
        (ran, stuck)
    }

    /// As `run`, up to the first line that does not end; returns whether all did.
    fn run_some(&self, lines: &[String], first: usize) -> (Vec<BTreeSet<String>>, bool) {
        // Remaining processes report the line they belong to.
        let driver = "\
            export FUZZ_LINE=$3\n\
            while IFS= read -r -d '' line; do\n\
            echo \"$FUZZ_LINE\" >>\"$1\"\n\
            ( eval \"$line\"; wait ) </dev/null >/dev/null 2>&1\n\
            FUZZ_LINE=$((FUZZ_LINE+1))\n\
            done < \"$2\"\n";
        let mut input = Vec::new();
        for line in lines {
            input.extend_from_slice(line.as_bytes());
            input.push(0);
        }
        fs::write(self.path("lines"), input).unwrap();
        fs::write(self.path("log"), "").unwrap();
        let mut bash = Command::new("timeout");
        bash.args([
            "-k",
            "5",
            SECONDS_MAX,
            "bash",
            "--norc",
            "--noprofile",
            "-c",
            driver,
            "driver",
        ])
        .arg(self.path("log"))
        .arg(self.path("lines"))
        .arg(first.to_string())
        .env_clear()
        .env("BASH_ENV", self.path("handler"))
        .env("PATH", self.path("bin"))
        .env("HOME", self.path("cwd"))
        .current_dir(self.path("cwd"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
        let status = bash.status().unwrap();
        let log = fs::read_to_string(self.path("log")).unwrap();
        let mut ran = vec![BTreeSet::new(); lines.len()];
        let mut last = 0;
        for line in log.lines() {
            let (number, program) = line.split_once(' ').unwrap_or((line, ""));
            let Some(at) = number.parse().ok().and_then(|at: usize| at.checked_sub(first)) else {
                continue;
            };
            if program.is_empty() {
                last = last.max(at);
            } else if let Some(ran) = ran.get_mut(at) {
                ran.insert(program.to_owned());
            }
        }
        if status.code() == Some(124) {
            ran.truncate(last + 1);
            return (ran, false);
        }
        assert!(status.code().is_some_and(|code| code < 124), "{status} at {:?}", lines[last]);
        assert_eq!(last + 1, lines.len(), "not all lines ran");
        (ran, true)
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a run of an hour says how far it is")]
fn lists_every_program_that_bash_runs() {
    let asked = |name: &str| std::env::var(name).ok().map(|n| n.parse::<usize>().unwrap());
    let lines = asked("POSSE_FUZZ_LINES").unwrap_or(20_000);
    let from = asked("POSSE_FUZZ_FROM").unwrap_or(0);
    let seed = u64::try_from(asked("POSSE_FUZZ_SEED").unwrap_or(1)).unwrap();
    let policy =
        RulePolicy::new(PolicySettings { roots: vec!["/w".into()], ..PolicySettings::default() })
            .unwrap();
    let jail = Jail::new();
    let (mut unsure, mut ran_some, mut stuck, mut missed) = (0, 0, 0, Vec::new());
    for batch in 0..lines.div_ceil(BATCH) {
        let first = from + batch * BATCH;
        let texts: Vec<String> = (first..(from + lines).min(first + BATCH))
            .map(|at| Grammar::line((seed << 40) + u64::try_from(at).unwrap()))
            .collect();
        let (all, without_end) = jail.run(&texts, first);
        stuck += without_end;
        for (text, ran) in texts.iter().zip(all) {
            ran_some += usize::from(!ran.is_empty());
            let checked = policy.check(text, "/w", &[]);
            if checked.unsure {
                unsure += 1;
                continue;
            }
            let base = |program: &String| program.rsplit('/').next().unwrap_or("").to_owned();
            let listed: BTreeSet<String> = checked.programs.iter().map(base).collect();
            let unlisted: Vec<_> = ran.difference(&listed).collect();
            if !unlisted.is_empty() {
                let miss = format!("{text:?} ran {ran:?}; listed are {listed:?}");
                println!("missed {unlisted:?}: {miss}");
                missed.push(miss);
            }
        }
        if (batch + 1) % 20 == 0 {
            println!(
                "{} lines, {unsure} not understood, {stuck} without an end, {} missed",
                (batch + 1) * BATCH,
                missed.len()
            );
        }
        assert!(missed.len() < 20, "{}", missed.join("\n"));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    println!(
        "{lines} lines, {ran_some} ran something, {unsure} not understood, {stuck} without an end"
    );
    assert!(stuck <= 1 + lines * STUCK_MAX / 10_000, "{stuck} of {lines} did not end");
    assert!(unsure * 100 <= lines * UNSURE_MAX, "{unsure} of {lines} were not understood");
    assert!(ran_some * 100 >= lines * 80, "{ran_some} of {lines} ran anything");
}
