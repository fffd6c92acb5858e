//! Time of a policy decision: typical commands of people and models, and hostile ones of 10 KB.
//!
//! `cargo bench --bench judge`. Exits with 1 if a promised figure is missed.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on has nothing to say")]

#[path = "support/table.rs"]
mod table;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use posse::permission::{PolicySettings, RulePolicy, command_grant};
use posse_actors::event::{Grant, PermissionMode};
use posse_actors::ports::{
    Access, Action, AnswerSource, Caller, CommandDeletions, Operation, Policy, Situation,
    ToolAnnotations,
};

/// Maximum of the median time of one judgement, in microseconds.
const MICROSECONDS_MAX: f64 = 50.0;
/// Maximum time for the slowest hostile text of 10 KB, in milliseconds.
const MILLISECONDS_MAX: f64 = 50.0;
const CORPUS: &str = include_str!("../tests/corpus/bash-commands.jsonl");
/// Texts that are repeated to make hostile commands with deep nesting, long lists or no end.
const HOSTILE: [&str; 24] = [
    "$(",
    "`",
    "\"$(",
    "((",
    "$((",
    "{",
    "(",
    "<(",
    "if ",
    "case x in ",
    "${x:-",
    "a|",
    "a;",
    "f(){ ",
    "[[ ",
    "x=(",
    "eval ",
    "sudo ",
    "env -S ",
    "{a,b}",
    "{a..z} ",
    "<<X\n",
    "eval sudo ",
    "find . -exec ",
];

fn main() -> ExitCode {
    let settings = PolicySettings { roots: vec!["/w".into()], ..PolicySettings::default() };
    let policy = RulePolicy::new(settings).unwrap();
    let granted = ["git status", "git log", "npm test", "cargo test", "ls", "cat"];
    let grants: Vec<Grant> = granted.iter().map(|prefix| command_grant(prefix).unwrap()).collect();
    let tool = ToolAnnotations::new(Access::Process).in_rules("Bash");
    let judged = |action: &Action| {
        let start = Instant::now();
        let situation = Situation {
            tool: &tool,
            caller: Caller::Agent,
            agent: "build",
            grants: &grants,
            asking: AnswerSource::Human,
            mode: PermissionMode::default(),
            now_ms: 0,
            uptime: Duration::ZERO,
            tier: &posse_actors::event::SandboxTier::Full,
        };
        drop(policy.judge(action, &situation));
        start.elapsed()
    };
    let mut times: Vec<Duration> = Vec::new();
    for line in CORPUS.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let action = action(row["command"].as_str().unwrap());
        times.extend((0..50).map(|_| judged(&action)));
    }
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64() * 1e6;
    let fast = table::at_most("one command of the corpus, median", median, MICROSECONDS_MAX, "us");
    let late = times[times.len() * 99 / 100].as_secs_f64() * 1e6;
    table::fact("  the slowest hundredth begins at", late, "us");
    let mut slowest = 0.0_f64;
    for seed in HOSTILE {
        let action = action(&seed.repeat(10_000 / seed.len()));
        let best = (0..5).map(|_| judged(&action)).min().unwrap_or_default();
        slowest = slowest.max(best.as_secs_f64() * 1e3);
    }
    let linear = table::at_most("10 KB of hostile text, slowest", slowest, MILLISECONDS_MAX, "ms");
    if fast && linear { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn action(command: &str) -> Action {
    Action {
        tool: "bash".into(),
        operations: vec![Operation::Execute {
            command: command.into(),
            cwd: "/w".into(),
            links: Vec::new(),
            replaces: Vec::new(),
            deletions: CommandDeletions::default(),
            in_trial: false,
            secrets: posse_actors::ports::CommandSecrets::default(),
        }],
        summary: String::new(),
        detail: String::new(),
        digest: String::new(),
    }
}
