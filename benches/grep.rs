//! Searching a large tree, compared with ripgrep in the same run.
//!
//! `cargo bench --bench grep [-- FILES]` needs `rg` on the path. Fails if the matches differ.

#![expect(clippy::disallowed_types, reason = "another program is what it compares with")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot run should say where")]
#![expect(clippy::print_stdout, reason = "a table is what it makes")]

use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use grep_regex::RegexMatcherBuilder;
use posse::tools::grep::search::{self, Query};
use posse::tools::listing::Stop;

/// Number of runs per search; the fastest counts.
const ROUNDS: usize = 9;

const WORDS: [&str; 16] = [
    "let", "value", "return", "self", "match", "struct", "buffer", "length", "offset", "result",
    "state", "error", "write", "read", "index", "impl",
];

/// Searches: a name, a pattern, and true if case is ignored.
const SEARCHES: [(&str, &str, bool); 6] = [
    ("rare word", "needle_4711", false),
    ("common word", "marker", false),
    ("ignoring case", "MARKER_1", true),
    ("alternatives", "marker_11|needle_2|haystack", false),
    ("expression", r"fn \w+_7\d\(", false),
    ("no literal", r"\b[a-z]{3}_\d{4}\b", false),
];

fn main() {
    let given = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let files = given.unwrap_or(50_000);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let bytes = grow(&folder, files);
    println!("{files} files, {} MiB", bytes >> 20);
    println!("{:<14} {:>8} {:>10} {:>10} {:>6}", "search", "matches", "posse", "ripgrep", "ratio");
    let mut worst = 0.0_f64;
    for (name, pattern, ignore_case) in SEARCHES {
        let ours = || ours(&folder, pattern, ignore_case);
        let theirs = || theirs(&folder, pattern, ignore_case);
        let (expected, found) = (theirs(), ours());
        assert!(found == expected, "{pattern}: the matches differ");
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            best[0] = best[0].min(timed(&mut || drop(searched(&folder, pattern, ignore_case))));
            best[1] = best[1].min(timed(&mut || drop(ripgrep(&folder, pattern, ignore_case))));
        }
        let ratio = best[0].as_secs_f64() / best[1].as_secs_f64();
        worst = worst.max(ratio);
        let [posse, rg] = best.map(|time| format!("{:.1} ms", time.as_secs_f64() * 1e3));
        println!("{name:<14} {:>8} {posse:>10} {rg:>10} {ratio:>6.2}", found.len());
    }
    println!("worst ratio {worst:.2}; promised is 1.10");
}

fn timed(work: &mut dyn FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Creates files below `folder`, some ignored or binary. Returns their total size in bytes.
fn grow(folder: &Path, files: usize) -> usize {
    let mut seed = 1_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 33).unwrap() % below
    };
    fs::write(folder.join(".gitignore"), "*.log\n/generated/\n").unwrap();
    let mut bytes = 0;
    for number in 0..files {
        let folder = folder.join(format!("crate{}/src/part{}", number % 40, number / 40 % 25));
        if number < 1000 {
            fs::create_dir_all(&folder).unwrap();
        }
        let mut text = String::new();
        for line in 0..random(120) {
            for _ in 0..random(9) {
                text.push_str(WORDS[random(WORDS.len())]);
                text.push(' ');
            }
            match random(400) {
                0 => write!(text, "marker_{}", random(20)).unwrap(),
                1 => write!(text, "fn call_{}(x)", random(100)).unwrap(),
                2 if number % 97 == 0 => write!(text, "needle_{}", random(9000)).unwrap(),
                3 => write!(text, "abc_{line:04}").unwrap(),
                _ => {}
            }
            text.push('\n');
        }
        let ending = match number % 50 {
            0 => "log",
            1 => {
                text.insert(text.len() / 2, '\0');
                "bin"
            }
            _ => "rs",
        };
        bytes += text.len();
        fs::write(folder.join(format!("file{number}.{ending}")), text).unwrap();
    }
    fs::write(folder.join("crate0/needle.txt"), "needle_4711\n").unwrap();
    bytes
}

fn searched(folder: &Path, pattern: &str, ignore_case: bool) -> search::SearchResult {
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(ignore_case)
        .line_terminator(Some(b'\n'))
        .build(pattern)
        .unwrap();
    let query = Query {
        matcher,
        glob: None,
        context: 0,
        denied: posse_base::path_globs::PathGlobs::default(),
        ways: Vec::new(),
        readable_secrets: posse_base::secrets::readable::ReadableSecrets::default(),
        links: None,
        committed: None,
    };
    let directory = File::open(folder).unwrap().into();
    let (stop, _guard) = Stop::after(Duration::from_mins(1));
    search::tree(folder, &directory, Path::new(""), &query, usize::MAX, &stop)
}

/// Matches of posse as `path:line`, sorted.
fn ours(folder: &Path, pattern: &str, ignore_case: bool) -> Vec<String> {
    let found = searched(folder, pattern, ignore_case);
    assert!(!found.is_cut);
    let lines = found.files.iter().flat_map(|hits| {
        hits.lines.iter().map(|line| format!("{}:{}", hits.path.display(), line.number))
    });
    sorted(lines)
}

fn ripgrep(folder: &Path, pattern: &str, ignore_case: bool) -> Vec<u8> {
    let mut command = Command::new("rg");
    command.args([
        "--no-config",
        "--hidden",
        "--no-require-git",
        "--no-ignore-global",
        "--line-number",
        "--no-heading",
        "--color=never",
    ]);
    if ignore_case {
        command.arg("--ignore-case");
    }
    let output = command.args(["-e", pattern, "."]).current_dir(folder).output().unwrap();
    assert!(output.status.code() != Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Matches of ripgrep as `path:line`, sorted. Matches in binary files are dropped, because posse
/// does not report them.
fn theirs(folder: &Path, pattern: &str, ignore_case: bool) -> Vec<String> {
    let output = String::from_utf8(ripgrep(folder, pattern, ignore_case)).unwrap();
    let lines = output.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (path, number) = (parts.next()?.strip_prefix("./")?, parts.next()?);
        number.parse::<u64>().is_ok().then(|| format!("{path}:{number}"))
    });
    sorted(lines.filter(|line| !line.contains(".bin:")))
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort_unstable();
    lines
}
