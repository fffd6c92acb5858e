//! Examples of the documents: configurations are accepted, and lines for a shell run.

use std::fs;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use posse::provider::presets;
use serde_json::json;

use super::{CodeBlock, pages};
use crate::model_server::{ModelServer, calls, says};
use crate::posse::{FinishedRun, Machine, RunningPosse, side_by_side};

/// Blocks of JSON that are no configuration: page, beginning, and the test that reads them.
const OTHER_JSON: [(&str, &str, &str); 4] = [
    ("docs/reference/events.md", "{", "the reference test writes and reads each of them"),
    ("docs/JOURNAL.md", "{\"v\":1,", "a record of a journal, cut"),
    ("docs/guide/permissions.md", "{\"command\":", "arguments of bash"),
    ("docs/guide/trying.md", "{\"command\":", "arguments of bash"),
];

const TERMINAL: &str = "opens the terminal UI, which tests/it/tui.rs tests";
const ATTACHES: &str = "attaches to a session that runs, which tests/it/attach.rs tests";
const BUILDS: &str = "builds or fetches for minutes";

/// Lines that this test does not run, without their comments, and the reason.
const NOT_RUN: [(&str, &str); 21] = [
    ("posse", TERMINAL),
    ("posse -c", TERMINAL),
    ("posse resume", TERMINAL),
    ("posse --permission-mode ask", TERMINAL),
    ("posse --permission-mode plan", TERMINAL),
    ("posse --provider llamacpp", TERMINAL),
    ("posse --system-prompt-file reviewer.md", TERMINAL),
    ("posse attach", ATTACHES),
    ("posse attach 20261122-0417", ATTACHES),
    ("posse attach --observe", ATTACHES),
    ("posse attach --permission-mode plan", ATTACHES),
    (
        "posse attach --observe --output-format stream-json | jq -r 'select(.type == \"tool.started\") | .summary'",
        ATTACHES,
    ),
    (
        "echo '{\"type\":\"steer\",\"content\":\"mind the tests\"}' |\n  posse attach --output-format stream-json --input-format stream-json",
        ATTACHES,
    ),
    ("posse resume 20261122-0417", "names a session that does not exist"),
    ("posse grants revoke g5e2c61aa", "names a grant that does not exist"),
    ("posse trust add", "asks at a terminal, which tests/it/untrusted_repo.rs tests"),
    ("exit \"$code\"", "ends the shell"),
    (
        "gh pr diff 12 | posse run --permission-mode plan \"review this pull request\"",
        "needs GitHub",
    ),
    ("cargo install --path . --locked", BUILDS),
    ("cargo install --path . --locked --profile dist", BUILDS),
    (
        "POSSE_FUZZ_LINES=1000000 POSSE_FUZZ_SEED=2 nice cargo test --test it judge_fuzz -- --nocapture",
        BUILDS,
    ),
];

/// Blocks of all pages in one of `languages`, with the page.
fn blocks(languages: &[&str]) -> Vec<(String, CodeBlock)> {
    let pages = pages().into_iter();
    let blocks = pages.flat_map(|(path, page)| {
        let path = path.display().to_string();
        page.blocks.into_iter().map(move |block| (path.clone(), block))
    });
    blocks.filter(|(_, block)| languages.contains(&block.language.as_str())).collect()
}

/// Shows the settings of a machine whose configuration is `text`.
fn show_settings(text: &str) -> FinishedRun {
    let machine = Machine::new();
    machine.write_config(text);
    // Programs of the example for hooks.
    fs::create_dir_all(machine.path("home/bin")).unwrap();
    machine.posse(&["config", "show"])
}

#[test]
fn configurations_in_documents_are_accepted() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for (path, block) in blocks(&["json", "jsonc"]) {
        let is_other =
            |(page, begin, _): &&(&str, &str, &str)| path == *page && block.text.starts_with(begin);
        if OTHER_JSON.iter().any(|other| is_other(&other)) {
            continue;
        }
        checked += 1;
        let ended = show_settings(&block.text);
        if ended.code != Some(0) || !ended.stderr.is_empty() {
            wrong.push(format!("{path}:{}: {}", block.line, ended.stderr));
        }
    }
    assert!(checked >= 15, "{checked} configurations were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(show_settings("{ \"maxTurn\": 1 }").code, Some(3), "the check can fail");
}

/// The lines of a block for a shell, each with its continuations: number and text. In a transcript
/// (`console`) only what follows the prompt.
fn command_lines(block: &CodeBlock) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (at, line) in block.text.lines().enumerate() {
        let text = match block.language.as_str() {
            "console" => line.strip_prefix("$ "),
            _ => Some(line),
        };
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { continue };
        match lines.last_mut().filter(|_| continues) {
            Some((_, before)) => *before = format!("{before}\n{text}"),
            None => lines.push((block.line + at, text.to_owned())),
        }
        continues = text.ends_with(['|', '\\']);
    }
    lines
}

/// A line without its comment.
fn without_comment(line: &str) -> &str {
    line.split("  #").next().unwrap_or(line).trim_end()
}

/// A project with changes, as a reader of the documents may have it.
fn project(server: &ModelServer) -> Machine {
    let local = json!({ "baseURL": server.base_url(), "model": "scripted-1", "auth": "none" });
    let settings = json!({
        "defaultProvider": "local", "patience": "5s", "permissionMode": "edits",
        "providers": { "local": local, "ollama": local },
        "models": { "scripted-1": { "inputPrice": 1, "outputPrice": 1 } },
    });
    let machine = Machine::new();
    machine.write_config(&settings.to_string());
    fs::remove_dir_all(machine.work(".git")).unwrap();
    for (path, text) in [
        ("src/main.rs", "fn main() {}\n"),
        ("notes.txt", "old\n"),
        ("commands.jsonl", "{\"command\":\"ls\"}\n"),
        ("my-project/notes.txt", "old\n"),
    ] {
        machine.write(path, text);
    }
    let setup = "git init -q -b main && git config --global user.name A \
        && git config --global user.email a@example.org \
        && git add -A && git commit -qm first && git update-ref refs/remotes/origin/main HEAD \
        && echo changed > notes.txt && echo new > staged.txt && git add staged.txt";
    let ended = RunningPosse::start(machine.shell(setup)).end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    machine
}

/// Runs the lines of a block in one shell. An error is the number of the line that failed, with its
/// output.
fn run_lines(machine: &Machine, lines: &[(usize, String)]) -> Result<(), String> {
    let mut script = String::new();
    for (number, line) in lines {
        script += &format!(
            "{line}\nstatus=$?; [ $status = 0 ] || {{ echo \"line {number}: status $status\" >&2; exit 1; }}\n"
        );
    }
    let file = machine.path("tmp/script");
    fs::write(&file, script).unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_posse")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = machine.shell("exec bash \"$1\"");
    command.arg(&file).env("PATH", format!("{}:{path}", program.display())).stdin(Stdio::null());
    let ended = RunningPosse::start(command).for_at_most(Duration::from_mins(1)).end();
    if ended.code == Some(0) { Ok(()) } else { Err(ended.stderr + &ended.stdout) }
}

/// Runs the lines of a block in a project with a session and a checkpoint.
fn run_block(block: &CodeBlock) -> Result<(), String> {
    let write = calls(&[("write_file", json!({ "path": "made.txt", "content": "made\n" }))]);
    let server = ModelServer::start_and_repeat(vec![write, says("Done.")]);
    let machine = project(&server);
    machine.posse(&["run", "hello"]).assert_code(0);
    let id = machine.session_dir().file_name().unwrap().to_string_lossy().into_owned();
    let lines = command_lines(block).into_iter().filter(|(_, line)| !is_not_run(line));
    let lines: Vec<(usize, String)> = lines
        .map(|(number, line)| {
            (number, line.replace(" ID", &format!(" {id}")).replace(" N ", " 1 "))
        })
        .collect();
    run_lines(&machine, &lines)
}

fn is_not_run(line: &str) -> bool {
    NOT_RUN.iter().any(|(listed, _)| without_comment(line) == *listed)
}

#[test]
fn shell_lines_in_documents_run() {
    // A script of its own is run by the test of hooks.
    let mut blocks = blocks(&["sh", "console"]);
    blocks.retain(|(_, block)| !block.text.starts_with("#!"));
    let lines: Vec<String> = blocks
        .iter()
        .flat_map(|(_, block)| command_lines(block))
        .map(|(_, line)| without_comment(&line).to_owned())
        .collect();
    let unused = NOT_RUN.iter().filter(|(listed, _)| !lines.iter().any(|line| line == listed));
    let unused: Vec<_> = unused.collect();
    assert!(unused.is_empty(), "no document has these lines: {unused:?}");
    let run = lines.iter().filter(|line| !is_not_run(line)).count();
    assert!(run > 40, "{run} lines are run");
    blocks.retain(|(_, block)| command_lines(block).iter().any(|(_, line)| !is_not_run(line)));
    let wrong = Mutex::new(Vec::new());
    side_by_side(blocks, |(path, block)| {
        if let Err(error) = run_block(&block) {
            wrong.lock().unwrap().push(format!("{path}: {error}"));
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_line_that_fails_is_found() {
    let text = "true\nposse run --no-such-flag x\n".to_owned();
    let block = CodeBlock { line: 7, language: "sh".to_owned(), text };
    let error = run_block(&block).unwrap_err();
    assert!(error.contains("line 8: status 2"), "{error}");
}

/// Rows of the table of local servers: preset, address and default model.
fn local_servers() -> Vec<[String; 3]> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/local-models.md");
    let page = fs::read_to_string(path).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        [cells[0], cells[2], cells[3]].map(str::to_owned)
    })
    .collect()
}

#[test]
fn local_servers_of_the_guide_need_no_key() {
    let servers = local_servers();
    let keyless = presets::all().iter().filter(|preset| preset.placeholder_key.is_some());
    assert_eq!(servers.len(), keyless.count());
    for [name, address, model] in servers {
        let preset = presets::all().iter().find(|preset| preset.name == name).unwrap();
        assert_eq!(preset.base_url, Some(address.as_str()), "{name}");
        assert!(preset.model == Some(&*model) || name == "llamacpp", "{name}: {model}");
        let server = ModelServer::start(vec![says("Hello.")]);
        let machine = Machine::new();
        let local = json!({ "providers": { &*name: { "baseURL": server.base_url() } } });
        machine.write_config(&local.to_string());
        let ended = machine.posse(&["run", "--provider", &name, "hello"]);
        ended.assert_code(0);
        assert_eq!(ended.stdout, "Hello.\n");
        assert_eq!(server.requests()[0]["model"], preset.model.unwrap());
    }
}
