//! Problems are reported with a fix, and no secret is ever shown.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::config::{self, Dirs, Sources};

/// Runs the checks with this configuration and these variables.
fn diagnose(home: &Path, configuration: &str, variables: &[(&str, &str)]) -> (Exit, Value, String) {
    fs::create_dir_all(home.join("config")).unwrap();
    fs::write(home.join("config/config.json"), configuration).unwrap();
    let home_text = home.display().to_string();
    let all =
        variables.iter().copied().chain([("POSSE_HOME", &*home_text), ("PATH", "/usr/bin:/bin")]);
    let environment: Environment = all.collect();
    let dirs = Dirs::from_environment(&environment);
    let loaded = match &dirs {
        Ok(dirs) => config::load(&environment, dirs, &Sources::default()),
        Err(failure) => Err(vec![failure.clone()]),
    };
    let examined = Examined {
        environment: &environment,
        cwd: home,
        dirs: dirs.as_ref(),
        loaded: loaded.as_ref().map_err(Vec::as_slice),
        streams: Streams { stderr: true, size: Some((30, 10)), ..Streams::default() },
    };
    let mut checks = configuration_of(&examined);
    checks.extend(terminal::checks(&environment, &examined.streams));
    let ok = checks.iter().all(|check| check.status != Status::Problem);
    let mut text = Vec::new();
    write_text(&checks, false, false, &mut text).unwrap();
    let exit = if ok { Exit::Done } else { Exit::Configuration };
    (exit, serde_json::to_value(&checks).unwrap(), String::from_utf8(text).unwrap())
}

/// Checks that start no process: the test program is not the posse executable.
fn configuration_of(examined: &Examined<'_>) -> Vec<Check> {
    let mut checks = configuration(examined);
    checks.extend(agents::checks(examined));
    checks.extend(providers::checks(examined));
    checks.extend(folders::checks(examined));
    checks
}

fn find<'a>(checks: &'a Value, name: &str) -> &'a Value {
    let checks = checks.as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{checks:?}"))
}

#[test]
fn key_sources_are_reported_and_never_their_values() {
    let home = tempfile::tempdir().unwrap();
    let configuration = r#"{"defaultProvider": "mine", "providers": {
        "mine": {"type": "openai-compatible", "baseURL": "https://h.example/v1", "model": "m",
                 "apiKeyEnv": "MINE_KEY"},
        "other": {"type": "openai-compatible", "baseURL": "https://o.example/v1", "model": "m",
                  "apiKey": "in-the-file-secret"}}}"#;
    let variables =
        [("MINE_KEY", "very-secret-value"), ("GROQ_API_KEY", "'gsk_another-secret-value'")];
    let (exit, checks, text) = diagnose(home.path(), configuration, &variables);
    assert_eq!(exit, Exit::Done, "{text}");
    assert_eq!(find(&checks, "mine")["detail"], "configured; MINE_KEY is set");
    assert_eq!(find(&checks, "other")["detail"], "configured; a key in the configuration");
    let quoted = "GROQ_API_KEY is set, but is quoted; the quotes were ignored";
    assert_eq!(find(&checks, "groq")["detail"], quoted);
    assert_eq!(find(&checks, "openai")["detail"], "OPENAI_API_KEY is not set");
    let run = find(&checks, "for a run");
    assert_eq!(run["status"], "good");
    assert!(run["detail"].as_str().unwrap().contains("https://h.example/v1/chat/completions"));
    for secret in ["very-secret-value", "another-secret-value", "in-the-file-secret"] {
        assert!(!text.contains(secret) && !checks.to_string().contains(secret), "{text}");
    }
    assert_eq!(find(&checks, "size")["status"], "warning");
}

#[test]
fn reports_every_configuration_error_with_position_and_fix() {
    let home = tempfile::tempdir().unwrap();
    let (exit, checks, text) = diagnose(home.path(), "{\"modle\": \"x\",\n \"maxTurns\": -1}", &[]);
    assert_eq!(exit, Exit::Configuration);
    let problems = checks.as_array().unwrap().iter().filter(|check| check["status"] == "problem");
    assert_eq!(problems.count(), 2, "{text}");
    assert!(text.contains("config.json:2:") && text.contains("did you mean"), "{text}");
    assert!(text.contains("2 problems prevent a run"), "{text}");
}

#[test]
fn provider_without_its_key_is_a_problem() {
    let home = tempfile::tempdir().unwrap();
    let (exit, checks, text) = diagnose(home.path(), r#"{"defaultProvider": "openai"}"#, &[]);
    assert_eq!(exit, Exit::Configuration);
    let run = find(&checks, "for a run");
    assert!(run["fix"].as_str().unwrap().contains("set OPENAI_API_KEY"), "{text}");
}

#[test]
fn missing_main_agent_is_a_problem_and_a_wrong_definition_a_warning() {
    let home = tempfile::tempdir().unwrap();
    let (_, checks, text) = diagnose(home.path(), "{}", &[]);
    assert_eq!(find(&checks, "main agent")["detail"], "build", "{text}");
    let wrong = r#"{"defaultProvider": "ollama", "defaultAgent": "bulid"}"#;
    let (exit, checks, text) = diagnose(home.path(), wrong, &[]);
    assert_eq!(exit, Exit::Configuration, "{text}");
    let check = find(&checks, "main agent");
    assert_eq!(check["status"], "problem", "{text}");
    assert!(check["detail"].as_str().unwrap().contains("config.json:1:47"), "{text}");
    assert!(check["fix"].as_str().unwrap().contains("build"), "{text}");
    let wrong = r#"{"defaultProvider": "ollama", "agents": {"x": {"mode": "foo"}}}"#;
    let (exit, checks, text) = diagnose(home.path(), wrong, &[]);
    assert_eq!(exit, Exit::Done, "{text}");
    assert_eq!(find(&checks, "left out")["status"], "warning", "{text}");
}

#[test]
fn missing_folder_of_the_workspace_is_a_problem() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().display().to_string();
    let (_, checks, text) = diagnose(home.path(), "{}", &[]);
    assert_eq!(find(&checks, "folders")["detail"], *place, "{text}");
    let with = format!(r#"{{"workspace": {{"roots": ["{place}/config", "{place}/gone"]}}}}"#);
    let (exit, checks, text) = diagnose(home.path(), &with, &[]);
    assert_eq!(exit, Exit::Configuration, "{text}");
    let check = find(&checks, "folders");
    assert_eq!(check["status"], "problem", "{text}");
    let detail = check["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("{place}/gone, of workspace.roots (")), "{detail}");
    assert!(check["fix"].as_str().unwrap().contains("workspace.roots"), "{text}");
}

#[test]
fn readable_state_directory_is_a_warning() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    let (_, checks, _) = diagnose(home.path(), "{}", &[]);
    let check = find(&checks, "permissions");
    assert_eq!(check["status"], "warning");
    assert_eq!(check["fix"], format!("chmod 700 {}", state.display()));
    assert_eq!(find(&checks, "directory")["status"], "good");
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn missing_checkpoints_are_a_warning() {
    let home = tempfile::tempdir().unwrap();
    let (_, checks, text) = diagnose(home.path(), "{}", &[]);
    let detail = "changes can be undone for 14 days, up to 2048 MiB a project";
    assert_eq!(find(&checks, "checkpoints")["detail"], detail, "{text}");
    let off = r#"{"checkpoints": {"enabled": false}}"#;
    let (_, checks, text) = diagnose(home.path(), off, &[]);
    let check = find(&checks, "checkpoints");
    assert_eq!(check["status"], "warning", "{text}");
    assert_eq!(check["fix"], "posse config edit checkpoints.enabled true");
}

#[test]
fn uncreatable_state_directory_is_a_problem() {
    let home = tempfile::tempdir().unwrap();
    // A file in place of the folder blocks even root.
    fs::write(home.path().join("state"), "").unwrap();
    let (exit, checks, text) = diagnose(home.path(), r#"{"defaultProvider": "ollama"}"#, &[]);
    assert_eq!(exit, Exit::Configuration, "{text}");
    assert!(find(&checks, "directory")["fix"].as_str().unwrap().contains("POSSE_HOME"));
}
