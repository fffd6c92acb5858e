//! Load time of the configuration: empty, and 200 keys of a user and a project.
//!
//! `cargo bench --bench config`. Exits with 1 if a promised figure is missed.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on has nothing to say")]

#[path = "support/table.rs"]
mod table;

use std::fs;
use std::process::ExitCode;

use posse::config::{self, Dirs, Environment, Sources};
use serde_json::{Map, Value, json};

/// Maximum time for loading the configuration, in milliseconds.
const MILLISECONDS_MAX: f64 = 2.0;

fn main() -> ExitCode {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("project");
    fs::create_dir_all(project.join(".posse")).unwrap();
    let environment: Environment =
        [("POSSE_HOME", dir.path().join("home").display().to_string())].into_iter().collect();
    let dirs = Dirs::from_environment(&environment).unwrap();
    let sources = Sources { project: Some(&project), ..Sources::default() };
    let load = || config::load(&environment, &dirs, &sources).unwrap();

    let empty = table::best(200, || drop(load()));
    table::fact("no configuration", empty.as_secs_f64() * 1e6, "us");

    fs::create_dir_all(&dirs.config).unwrap();
    let text = format!("{:#}", configuration());
    fs::write(config::user_file(&dirs), &text).unwrap();
    fs::write(config::project_file(&project), r#"{"maxTurns": 30, "defaultAgent": "build"}"#)
        .unwrap();
    assert!(load().layers.iter().count() >= 200, "fewer than 200 keys");
    let full = table::best(200, || drop(load()));
    let parsed = table::best(200, || drop(serde_json::from_str::<Value>(&text).unwrap()));
    let milliseconds = full.as_secs_f64() * 1e3;
    let good = table::at_most("200 keys and a project", milliseconds, MILLISECONDS_MAX, "ms");
    table::fact("  the same file parsed by serde_json", parsed.as_secs_f64() * 1e6, "us");
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A configuration with 25 providers of eight settings each.
fn configuration() -> Value {
    let providers: Map<String, Value> = (0..25)
        .map(|nth| {
            let profile = json!({
                "type": "openai-compatible",
                "baseURL": format!("https://models-{nth}.example/v1"),
                "model": format!("model-{nth}"),
                "auth": "none",
                "maxTokens": 8192,
                "contextWindow": 200_000,
                "patience": "30s",
                "timeouts": { "connect": "5s" },
            });
            (format!("server{nth}"), profile)
        })
        .collect();
    json!({ "defaultProvider": "server3", "maxTurns": 40, "providers": providers })
}
