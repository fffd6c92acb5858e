//! Rules about the source that no compiler checks, each with the required action.

mod by_name;
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::posse::Machine;

/// Crates below `src/`, and the crates of posse that each may depend on beside the kernel.
const CRATES: [(&str, &[&str]); 16] = [
    ("agents", &["base", "config"]),
    ("attach", &["base", "frontend"]),
    ("base", &[]),
    ("checkpoint", &["base", "sandbox", "tools"]),
    ("cli", &["base"]),
    ("config", &["base"]),
    ("egress", &[]),
    ("front", &["base", "cli", "frontend", "images"]),
    ("frontend", &["base"]),
    ("images", &["base"]),
    ("journal", &["base"]),
    ("permission", &["base"]),
    ("provider", &["base"]),
    ("sandbox", &["base"]),
    ("tools", &["base", "egress", "images", "sandbox"]),
    ("tui", &["base", "frontend"]),
];

/// Modules of the root package, and the modules and crates that each may use. Modules that connect
/// others are not listed.
const MAY_USE: [(&str, &[&str]); 15] = [
    ("grants", &["failure", "hex", "project", "signed_store"]),
    ("hooks", &["failure", "sandbox", "secrets"]),
    ("known_secrets", &["config"]),
    ("models", &["failure", "hex"]),
    ("network", &["config", "egress", "failure", "permission"]),
    ("project", &[]),
    ("run_limits", &["config"]),
    (
        "setting_checks",
        &["config", "failure", "hooks", "network", "provider", "tui", "unused_settings"],
    ),
    ("signed_store", &["failure", "hex"]),
    ("start_mode", &["agents", "checkpoint", "config"]),
    ("stored_output", &["failure", "journal", "tools"]),
    // Its tests wrap it with the wrappers of all others.
    ("tool_counter", &["agents", "config", "hooks", "provider", "tools"]),
    ("trust", &["failure", "project", "signed_store"]),
    ("unused_settings", &["agents", "config", "failure", "permission", "provider", "tools"]),
    ("warnings", &["failure"]),
];

/// Modules that know all others.
const KNOW_ALL: [&str; 9] =
    ["commands", "doctor", "help", "lib", "lists", "main", "packaging", "replaying", "wiring"];

/// Layers of the kernel, lowest first. A module uses only modules before it, and its own parts.
const KERNEL_LAYERS: [(&str, &[&str]); 6] = [
    ("basis", &["digest", "guarded", "mailbox", "restarts", "testing_seam", "text"]),
    ("vocabulary", &["conversation", "cost", "outcome"]),
    ("events and records", &["event"]),
    ("ports", &["ports"]),
    (
        "logic without actors",
        &[
            "skills",
            "governor",
            "context",
            "limits",
            "compaction",
            "ledger",
            "delegation",
            "replay",
            "subscription",
        ],
    ),
    (
        "actors",
        &[
            "transcript_writer",
            "hook_events",
            "permission_coordinator",
            "provider_client",
            "tool_call",
            "agent_invocation",
            "root_session",
        ],
    ),
];

/// Maximum number of files that may import each other, all of them in one folder.
const CYCLE_MAX: usize = 3;

/// Permitted dependencies of the kernel.
const KERNEL_DEPENDENCIES: [&str; 11] = [
    "futures-util",
    "ractor",
    // Optional: the schema of the events, for their reference.
    "schemars",
    "serde",
    "serde_json",
    "serde_with_macros",
    "sha2",
    "strum",
    "thiserror",
    "tokio",
    "tracing",
];

/// Permitted tokio features of the kernel: no files, no network, no processes.
const KERNEL_TOKIO: [&str; 5] = ["io-util", "macros", "rt", "sync", "time"];

/// Paths that the kernel must not use. Its test support may: a test needs a timeout.
const OUTSIDE_THE_KERNEL: [&str; 7] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread::sleep",
    "SystemTime::now",
    "Instant::now",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(relative: &str) -> String {
    let path = root().join(relative);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Rust file below a folder, relative to the root. A folder that does not exist has none.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn all_files() -> Vec<(String, String)> {
    let folders = ["src", "actors/src", "actors/tests", "tests", "benches", "docs/examples"];
    let files = folders.into_iter().flat_map(rust_files);
    files.map(|path| path.display().to_string()).map(|path| (path.clone(), read(&path))).collect()
}

/// Fails with all of them, and with what to do.
#[track_caller]
fn assert_none(offences: &[String], rule: &str) {
    assert!(offences.is_empty(), "{rule}\n{}", offences.join("\n"));
}

/// The lines of code: without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    numbered.map(|(at, line)| (at, line.find("//").map_or(line, |comment| &line[..comment])))
}

#[test]
fn every_file_has_a_module_comment() {
    let files = all_files();
    assert!(files.len() > 100, "only {} files were found", files.len());
    let silent = files.iter().filter(|(_, text)| !text.starts_with("//! "));
    let silent: Vec<_> = silent.map(|(path, _)| path.clone()).collect();
    assert_none(&silent, "A file begins with `//!` and one sentence: what it is responsible for.");
}

#[test]
fn no_todo_without_an_issue() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), "todo!("];
    let mut offences = Vec::new();
    for (path, text) in all_files() {
        if path == "tests/it/tidy.rs" {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            let bare = |mark: &&str| {
                line.split_once(*mark).is_some_and(|(_, rest)| !rest.starts_with("(#"))
            };
            if marks.iter().any(bare) {
                offences.push(format!("{path}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    assert_none(&offences, "What is left to do has an issue: write its number behind it, as (#7).");
}

/// Names after `crate::`, in a path or in braces.
fn used(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let before = line[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &line[at + "crate::".len()..];
        let names = rest.strip_prefix('{').unwrap_or(rest);
        let many = rest.starts_with('{');
        let list = names.split('}').next().unwrap_or_default();
        for name in list.split(',').take(if many { usize::MAX } else { 1 }) {
            let name = name.trim();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            found.push(&name[..end]);
        }
    }
    found
}

#[test]
fn siblings_do_not_use_one_another() {
    let modules = MAY_USE.iter().map(|(name, _)| *name);
    let crates = CRATES.iter().map(|(name, _)| *name);
    let siblings: BTreeSet<&str> = modules.chain(crates).collect();
    let mut offences = Vec::new();
    for path in rust_files("src") {
        let path = path.display().to_string();
        let module = path["src/".len()..].split(['/', '.']).next().unwrap().to_owned();
        let is_crate = CRATES.iter().any(|(name, _)| *name == module);
        if is_crate || KNOW_ALL.contains(&module.as_str()) {
            continue;
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
            offences.push(format!("{path}: `{module}` is not in the table of tests/it/tidy.rs"));
            continue;
        };
        let text = read(&path);
        for (at, line) in code(&text) {
            for name in used(line) {
                let strange = siblings.contains(name) || KNOW_ALL.contains(&name);
                if strange && name != module && !allowed.contains(&name) {
                    offences.push(format!("{path}:{at}: {module} uses {name}"));
                }
            }
        }
    }
    assert_none(
        &offences,
        "Modules of src/ stand side by side and know only the kernel, `failure`, and what the \
         table in docs/ARCHITECTURE.md allows; what needs two of them belongs into `wiring`.",
    );
}

#[test]
fn crates_depend_on_the_listed_crates_alone() {
    let mut offences = Vec::new();
    for (name, allowed) in CRATES {
        let path = format!("src/{name}/Cargo.toml");
        let manifest = read(&path);
        for line in section(&manifest, "dependencies") {
            let dependency = line.split(['.', ' ', '=']).next().unwrap();
            let other = dependency.strip_prefix("posse-").filter(|other| *other != "actors");
            if other.is_some_and(|other| !allowed.contains(&other)) {
                offences.push(format!("{path}: {dependency}"));
            }
        }
    }
    let manifests = fs::read_dir(root().join("src")).unwrap();
    let manifests =
        manifests.filter(|entry| entry.as_ref().unwrap().path().join("Cargo.toml").exists());
    assert_eq!(manifests.count(), CRATES.len(), "every crate below src/ is in the table");
    assert_none(
        &offences,
        "Crates below src/ depend on the kernel and on the crates of the table.",
    );
}

#[test]
fn wiring_connects_in_few_lines_and_prints_nothing() {
    let files = rust_files("src/wiring").into_iter().map(|path| path.display().to_string());
    let mut lines = 0;
    let mut offences = Vec::new();
    for path in files.chain(["src/wiring.rs".to_owned()]) {
        let text = read(&path);
        lines += text.lines().count();
        for (at, line) in code(&text) {
            if ["stdout(", "stderr(", "println!", "print!("]
                .iter()
                .any(|print| line.contains(print))
            {
                offences.push(format!("{path}:{at}: {}", line.trim()));
            }
        }
    }
    assert_none(&offences, "`wiring` returns values; commands and front ends print.");
    assert!(lines <= 2600, "wiring has {lines} lines, more than 2,600: move a feature out of it");
}

#[test]
fn import_parser_finds_known_imports() {
    assert_eq!(used("use crate::failure::{Exit, Failure};"), ["failure"]);
    assert_eq!(used("use crate::{config, tools::text};"), ["config", "tools"]);
    assert_eq!(used("let x = crate::journal::f(crate::cli::y);"), ["journal", "cli"]);
    assert_eq!(used("pub(crate) fn f() {} // mycrate::x"), Vec::<&str>::new());
}

/// Imports between the files of the kernel.
fn kernel_imports() -> imports::Imports {
    let files = rust_files("actors/src").into_iter().map(|path| path.display().to_string());
    let files = files.filter(|path| path != "actors/src/lib.rs");
    let test_support = |path: &String| path.starts_with("actors/src/testing/");
    let files = files.filter(|path| path != "actors/src/testing.rs" && !test_support(path));
    let sources: Vec<(String, String)> = files
        .map(|path| {
            let module = path["actors/src/".len()..].trim_end_matches(".rs").replace('/', "::");
            (module, read(&path))
        })
        .collect();
    imports::imports(sources.iter().map(|(module, text)| (module.as_str(), text.as_str())))
}

/// The module of the kernel that a file belongs to.
fn top(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

#[test]
fn modules_of_the_kernel_use_lower_layers_only() {
    let order: Vec<&str> =
        KERNEL_LAYERS.iter().flat_map(|(_, modules)| *modules).copied().collect();
    let rank = |module: &str| order.iter().position(|known| *known == top(module));
    let imports = kernel_imports();
    assert!(imports.len() > 80, "only {} files were found", imports.len());
    let mut offences = Vec::new();
    for (module, targets) in &imports {
        if rank(module).is_none() {
            offences.push(format!("{module}: not in the table of tests/it/tidy.rs"));
        }
        for target in targets.iter().filter(|target| top(target) != top(module)) {
            if rank(target) >= rank(module) {
                offences.push(format!("{module} uses {target}"));
            }
        }
    }
    assert_none(
        &offences,
        "A module of the kernel uses lower layers only: move the shared type down, or the code \
         that needs both up.",
    );
}

#[test]
fn at_most_three_files_of_the_kernel_import_each_other() {
    let imports = kernel_imports();
    let is_small = |group: &BTreeSet<&str>| {
        let mut modules: BTreeSet<&str> = group.iter().map(|module| top(module)).collect();
        modules.pop_first();
        group.len() <= CYCLE_MAX && modules.is_empty()
    };
    let large = imports::cycles(&imports).into_iter().filter(|group| !is_small(group));
    let large: Vec<String> = large.map(|group| format!("{group:?}")).collect();
    assert_none(
        &large,
        "Files import each other in a circle: at most three may, in one folder. Move what they \
         share into a file of its own.",
    );
}

/// Files that write to the terminal themselves: the guards, and the painter's thread.
const WRITE_TO_THE_TERMINAL: [&str; 4] = [
    "src/base/terminal.rs",
    "src/front/output.rs",
    "src/tui/terminal.rs",
    "src/tui/running/commands.rs",
];

#[test]
fn output_passes_the_guard_of_the_terminal() {
    let streams = ["io::stdout()", "io::stderr()"];
    let mut offences = Vec::new();
    for (file, text) in all_files() {
        if !file.starts_with("src/") || WRITE_TO_THE_TERMINAL.contains(&&*file) {
            continue;
        }
        for (number, line) in code(&text) {
            let writes = |stream: &&str| {
                let makers = ["BufWriter::new(", "Some(", "write!(", "writeln!(", "write(", "let "];
                let calls = [".write", ".lock"];
                calls.iter().any(|call| line.contains(&format!("{stream}{call}")))
                    || makers.iter().any(|maker| line.contains(&format!("{maker}{stream}")))
                    || line.contains(&format!("= {stream};"))
            };
            if streams.iter().any(writes) {
                offences.push(format!("{file}:{number}: {}", line.trim()));
            }
        }
    }
    assert_none(&offences, "write with posse_base::terminal, which guards terminals");
}

/// Name of the command in a line of `src/frontend/commands/`.
fn command_name(line: &str) -> Option<&str> {
    line.trim().strip_prefix("name: \"")?.strip_suffix("\",")
}

/// True if a line of code decides by the name of a command: in a comparison or a pattern, or by a
/// literal of the typed name. An echo of the typed line decides nothing.
fn decides_by(line: &str, name: &str) -> bool {
    let literal = format!("\"{name}\"");
    let compared = [
        format!("== {literal}"),
        format!("!= {literal}"),
        format!("{literal} =="),
        format!("{literal} =>"),
        format!("{literal} |"),
        format!("| {literal}"),
    ];
    let typed = line.contains(&format!("\"/{name}\"")) && !line.contains("push_user_input");
    typed || compared.iter().any(|part| line.contains(part))
}

/// A slash command is one file and one row: nothing else knows it.
#[test]
fn no_front_end_knows_a_command_by_its_name() {
    let files = rust_files("src/frontend/commands");
    let texts: Vec<String> = files.iter().map(|path| read(&path.to_string_lossy())).collect();
    let names: Vec<&str> =
        texts.iter().flat_map(|text| text.lines()).filter_map(command_name).collect();
    let table = read("src/frontend/commands.rs");
    let rows = table.split("COMMANDS: &[Command] = &[").nth(1).unwrap().split("];").next().unwrap();
    assert_eq!(rows.lines().filter(|line| line.contains("::")).count(), names.len());
    assert!(names.len() > 30, "only {} commands were found", names.len());
    let mut offences = Vec::new();
    for path in
        ["src/attach", "src/front", "src/frontend", "src/tui"].into_iter().flat_map(rust_files)
    {
        let path = path.display().to_string();
        let text = read(&path);
        let uses_commands = text.contains("frontend::commands") || text.contains("crate::commands");
        let is_command = path.starts_with("src/frontend/commands/");
        if is_command || path.ends_with("tests.rs") || !uses_commands {
            continue;
        }
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (at, line) in code(text) {
            let known = names.iter().filter(|name| decides_by(line, name));
            offences.extend(known.map(|name| format!("{path}:{at}: /{name}")));
        }
    }
    assert_none(
        &offences,
        "A front end implements operations of `CommandContext`; what is special about a command \
         belongs into its file in src/frontend/commands/.",
    );
}

#[test]
fn comparisons_with_tool_names_are_found() {
    let table = [
        (r#"if name == "cost" {"#, true),
        (r#"        "cost" => self.cost(),"#, true),
        (r#"matches!(name, "cost" | "usage")"#, true),
        (r#"parse("/cost")"#, true),
        (r#"self.view.push_user_input("/cost".to_owned());"#, false),
        (r#"say("/cost shows it");"#, false),
        (r#"("cost", cost.clone()),"#, false),
    ];
    for (line, decides) in table {
        assert_eq!(decides_by(line, "cost"), decides, "{line}");
    }
}

/// Names at the first level of the item that begins with `head`: its fields or variants.
fn members<'t>(source: &'t str, head: &str) -> Vec<&'t str> {
    let body = source.lines().skip_while(|line| *line != head).skip(1);
    let body = body.take_while(|line| *line != "}").filter_map(|line| line.strip_prefix("    "));
    let named = body.filter(|line| line.starts_with(|c: char| c.is_alphabetic() || c == '_'));
    named.map(|line| line.split(['(', ':', ',', ' ']).next().unwrap_or_default()).collect()
}

#[test]
fn the_root_session_consists_of_few_components() {
    let source = read("actors/src/root_session.rs");
    let (messages, fields) = (members(&source, "enum Msg {"), members(&source, "struct State {"));
    for component in ["MainRun", "Subagents", "Budget", "Compactor", "Titler"] {
        assert!(messages.contains(&component), "{component}: not in {messages:?}");
    }
    assert!(fields.contains(&"main_run"), "{fields:?}");
    assert!(
        messages.len() <= 10 && fields.len() <= 8,
        "A new message or field of `RootSession` belongs to one of its components.\n\
         {messages:?}\n{fields:?}"
    );
}

/// The lines of a section of a manifest.
fn section<'t>(manifest: &'t str, name: &str) -> Vec<&'t str> {
    let begin = format!("[{name}]");
    let lines = manifest.lines().skip_while(|line| line.trim() != begin).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter(|line| line.contains('=')).collect()
}

#[test]
fn the_kernel_depends_on_little() {
    let manifest = read("actors/Cargo.toml");
    let mut offences = Vec::new();
    let dependencies = section(&manifest, "dependencies");
    assert!(!dependencies.is_empty());
    for line in dependencies {
        let name = line.split(['.', ' ', '=']).next().unwrap();
        if !KERNEL_DEPENDENCIES.contains(&name) {
            offences.push(format!("actors/Cargo.toml: {name}"));
        }
        if name == "tokio" {
            let features = line.split('"').skip(1).step_by(2);
            let strange = features.filter(|feature| !KERNEL_TOKIO.contains(feature));
            offences.extend(strange.map(|feature| format!("actors/Cargo.toml: tokio/{feature}")));
        }
    }
    for path in rust_files("actors/src") {
        let path = path.display().to_string();
        if path.starts_with("actors/src/testing") {
            continue;
        }
        let text = read(&path);
        for (at, line) in code(&text) {
            let known = OUTSIDE_THE_KERNEL.iter().filter(|name| line.contains(**name));
            offences.extend(known.map(|name| format!("{path}:{at}: {name}")));
        }
    }
    assert_none(
        &offences,
        "The kernel knows no HTTP, terminal, file system, environment, process or wall clock: \
         give it a port, and implement that in src/.",
    );
}

#[test]
fn the_profile_for_distribution_optimises_every_package() {
    let manifest = read("Cargo.toml");
    let names = |profile: &str, level: char| -> Vec<&str> {
        let lines = section(&manifest, profile).into_iter();
        let found =
            lines.filter(|line| line.contains(level)).filter_map(|line| line.split(' ').next());
        found.collect()
    };
    let slow = names("profile.release.package", '0');
    assert!(!slow.is_empty());
    assert_eq!(
        names("profile.dist.package", '3'),
        slow,
        "`dist` inherits the packages of `release`"
    );
}

#[test]
fn panics_unwind_in_every_profile() {
    let manifest = read("Cargo.toml");
    let release = section(&manifest, "profile.release");
    assert!(release.contains(&"panic = \"unwind\""), "the release profile says panic = \"unwind\"");
    let mut offences = Vec::new();
    for file in ["Cargo.toml", "actors/Cargo.toml", ".cargo/config.toml", ".cargo/config"] {
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        let aborts = text.lines().filter(|line| {
            (line.trim_start().starts_with("panic") || line.contains("panic=abort"))
                && !line.contains("unwind")
        });
        offences.extend(aborts.map(|line| format!("{file}: {line}")));
    }
    assert_none(&offences, "Supervision catches panics, so no profile may set panic = \"abort\".");
}

#[test]
fn every_test_file_is_part_of_the_binary() {
    let main = read("tests/it/main.rs");
    let files = rust_files("tests/it");
    let names = files.iter().filter(|path| path.components().count() == 3);
    let names = names.map(|path| path.file_stem().unwrap().to_string_lossy());
    let missing = names
        .filter(|name| *name != "main" && !main.contains(&format!("mod {name};")))
        .map(|name| format!("tests/it/{name}.rs"));
    assert_none(&missing.collect::<Vec<_>>(), "tests/it/main.rs declares every file beside it.");
}

#[test]
fn architecture_names_existing_paths_only() {
    let map = read("docs/ARCHITECTURE.md");
    let mut checked = 0;
    let mut offences = Vec::new();
    for quoted in map.split('`').skip(1).step_by(2) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let path = quoted.split(':').next().unwrap_or_default();
        let first = path.split('/').next().unwrap_or_default();
        let ours = ["src", "actors", "tests", "benches", "docs", ".ci", "sandbox-profiles"];
        if !path.contains('/') || !path.chars().all(plain) || !ours.contains(&first) {
            continue;
        }
        checked += 1;
        if !root().join(path).exists() {
            offences.push(path.to_owned());
        }
    }
    assert!(checked > 0, "docs/ARCHITECTURE.md names no path at all");
    assert_none(&offences, "docs/ARCHITECTURE.md names paths that do not exist: correct the page.");
}

/// Names in `page` that look like those of tests, and the ones of them that are none.
fn named_tests(page: &str) -> (usize, Vec<String>) {
    let sources: String = ["src", "actors", "tests"]
        .iter()
        .flat_map(|folder| rust_files(folder))
        .map(|path| read(&path.to_string_lossy()))
        .collect();
    let is_name = |word: &&str| {
        word.contains('_') && word.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
    };
    let names: Vec<&str> = page.split('`').skip(1).step_by(2).filter(is_name).collect();
    let missing = names.iter().filter(|name| !sources.contains(&format!("fn {name}(")));
    (names.len(), missing.map(|name| (*name).to_owned()).collect())
}

#[test]
fn the_threat_model_names_only_tests_that_exist() {
    let model = read("docs/THREAT-MODEL.md");
    let (_, table) = model.split_once("## Published weaknesses").expect("its table");
    let (count, missing) = named_tests(table);
    assert!(count > 20, "the table names tests");
    assert_none(&missing, "docs/THREAT-MODEL.md names tests that do not exist: correct the page.");
}

#[test]
fn every_fault_has_a_test_or_a_reason() {
    let page = read("docs/FAULTS.md");
    let (count, missing) = named_tests(&page);
    assert!(count > 80, "the tables name tests");
    assert_none(&missing, "docs/FAULTS.md names tests that do not exist: correct the page.");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let rows: Vec<(usize, &str)> =
        rows.filter_map(|(number, rest)| Some((number.parse().ok()?, rest))).collect();
    let numbers: Vec<usize> = rows.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=95).collect::<Vec<_>>(), "docs/FAULTS.md has each number once");
    let bare = rows.iter().filter(|(_, rest)| !rest.contains('`') && !rest.contains("Not yet"));
    let bare: Vec<String> = bare.map(|(number, _)| format!("row {number}")).collect();
    assert_none(&bare, "A row of docs/FAULTS.md names a test, or says why there is none yet.");
}

/// Rust files with their comment blocks: kind of the comment and joined text.
fn comment_blocks(text: &str) -> Vec<(&'static str, String)> {
    let mut blocks: Vec<(&'static str, String)> = Vec::new();
    let mut open = None;
    for line in text.lines().map(str::trim) {
        let kind = ["//!", "///", "//"].into_iter().find(|kind| line.starts_with(kind));
        if let Some(kind) = kind {
            if open != Some(kind) {
                blocks.push((kind, String::new()));
            }
            let last = blocks.last_mut().expect("it was just pushed");
            last.1.push_str(line[kind.len()..].trim());
            last.1.push(' ');
        }
        open = kind;
    }
    blocks
}

/// docs/STYLE.md: a doc comment defines, and names its subject.
#[test]
fn doc_comments_define_and_name_their_subject() {
    const QUESTIONS: [&str; 8] =
        ["What", "Whether", "Who", "Whose", "How", "Where", "When", "Which"];
    const NO_SUBJECT: [&str; 4] = [
        concat!("who", "ever"),
        concat!("some", "body"),
        concat!("no", "body"),
        concat!("any", "body"),
    ];
    let (mut docs, mut questions, mut no_subject) = (0, Vec::new(), Vec::new());
    for (path, text) in all_files() {
        for (kind, block) in comment_blocks(&text) {
            let first = block.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if kind != "//" {
                docs += 1;
                if QUESTIONS.contains(&first) {
                    questions.push(format!("{path}: {block}"));
                }
            }
            let lower = block.to_lowercase();
            let mut words = lower.split(|c: char| !c.is_alphanumeric());
            if words.any(|word| NO_SUBJECT.contains(&word)) {
                no_subject.push(format!("{path}: {block}"));
            }
        }
    }
    assert!(docs > 5_000, "only {docs} doc comments were found");
    let rule =
        "A doc comment defines its item and does not begin with a question word (5 % at most).";
    assert!(questions.len() * 20 <= docs, "{rule}\n{}", questions.join("\n"));
    let rule = "A comment names the client, user or actor instead (30 exceptions at most).";
    assert!(no_subject.len() <= 30, "{rule}\n{}", no_subject.join("\n"));
}

/// Names of types that are idiomatic within one module, however many modules have one.
const MODULE_TYPES: [&str; 4] = ["Args", "Arguments", "Msg", "State"];

#[test]
fn type_names_are_unambiguous() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in all_files() {
        for (at, line) in code(&text) {
            // Associated types repeat the name that their trait gives.
            if line.starts_with("    type ") {
                continue;
            }
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            let keyword = words.next().unwrap_or_default();
            if !["struct", "enum", "trait", "type", "union"].contains(&keyword) {
                continue;
            }
            let name = words.next().unwrap_or_default();
            let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
            if name[..end].starts_with(char::is_uppercase) {
                places.entry(name[..end].to_owned()).or_default().push(format!("{path}:{at}"));
            }
        }
    }
    assert!(places.len() > 1_000, "only {} types were found", places.len());
    let offences: Vec<_> = places
        .into_iter()
        .filter(|(name, places)| places.len() > 2 && !MODULE_TYPES.contains(&name.as_str()))
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert_none(&offences, "A type name is defined three times: say what each of them is.");
}

#[test]
fn the_glossary_names_identifiers_that_exist() {
    let glossary = read("docs/GLOSSARY.md");
    let code: String = all_files().into_iter().map(|(_, text)| text).collect();
    let words: BTreeSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut checked = 0;
    let mut offences = Vec::new();
    for row in glossary.lines().filter(|line| line.ends_with("` |")) {
        let identifier = row.rsplit('`').nth(1).unwrap_or_default();
        checked += 1;
        let is_there = if identifier.contains('/') {
            root().join(identifier).exists()
        } else {
            words.contains(identifier)
        };
        if !is_there {
            offences.push(identifier.to_owned());
        }
    }
    assert!(checked >= 60, "docs/GLOSSARY.md has {checked} terms only");
    assert_none(
        &offences,
        "docs/GLOSSARY.md names identifiers that do not exist: correct the page.",
    );
}

/// Places outside of the tools where the text of a tool's name is allowed, and why.
const TOOL_NAMES: [(&str, &[&str], &str); 18] = [
    (
        "actors/src/skills.rs",
        &["skill"],
        "defines the name, which the history of a session records",
    ),
    (
        "actors/src/delegation/tool_names.rs",
        &[
            "agent_diff",
            "agent_merge",
            "agent_result",
            "agent_status",
            "delegate_agent",
            "read_file",
        ],
        "defines the names; references are read with the tool that outputs are read with",
    ),
    ("src/permission/agents.rs", &["read_file"], "reads of references follow its rules"),
    (
        "src/agents/lib.rs",
        &["read_file", "grep", "glob", "list_dir", "ask_user", "todo_write"],
        "tools of built-in agents, as data",
    ),
    ("src/permission/rules.rs", &["bash"], "word of the rule language"),
    ("src/permission/commands.rs", &["bash"], "the program"),
    ("src/permission/shell/", &["bash", "grep"], "the programs"),
    ("src/sandbox/lib.rs", &["bash"], "the program"),
    ("src/doctor/", &["bash"], "the program"),
    ("src/tui/highlight/", &["bash"], "the language"),
    ("src/frontend/commands", &["skill"], "the slash command"),
    ("src/frontend/instruction", &["bash", "skill"], "instructions of programs"),
    ("src/cli/", &["skill"], "the flag"),
    ("src/lists.rs", &["skill"], "the label of a row"),
    (
        "src/base/claude_code.rs",
        &[
            "ask_user",
            "bash",
            "edit_file",
            "glob",
            "grep",
            "job_output",
            "job_stop",
            "list_dir",
            "multi_edit",
            "present_plan",
            "read_file",
            "skill",
            "todo_write",
            "write_file",
        ],
        "counterparts of the tools of another program",
    ),
    ("src/wiring/session.rs", &["bash"], "the shell"),
    ("src/base/protected.rs", &["bash"], "the shell that runs a file"),
    ("src/frontend/lib.rs", &["bash"], "the tool that a command of the user calls"),
];

#[test]
fn tool_names_occur_in_their_tool_only() {
    let listed = Machine::new().posse(&["tools", "--json"]);
    listed.assert_code(0);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    let names = listed.iter().map(|tool| tool["name"].as_str().unwrap());
    let names = names.chain(posse_actors::delegation::TOOLS);
    let names: Vec<&str> = names.chain([posse_actors::skills::TOOL]).collect();
    assert!(names.len() >= 14 && names.contains(&"bash"), "{names:?}");
    let is_test = |path: &str| path.contains("/tests") || path.contains("/testing");
    let is_tool = |path: &str| {
        let of_tool = ["src/tools", "src/agents/skills/tool.rs", "actors/src/delegation/tools.rs"];
        of_tool.iter().any(|place| path.starts_with(place)) || is_test(path)
    };
    let mut offences = Vec::new();
    for (path, text) in all_files() {
        if !path.contains("src/") || is_tool(&path) {
            continue;
        }
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (at, line) in code(product) {
            for name in names.iter().filter(|name| line.contains(&format!("\"{name}\""))) {
                let allows = |(place, allowed, _): &(&str, &[&str], &str)| {
                    path.starts_with(place) && allowed.contains(name)
                };
                if !TOOL_NAMES.iter().any(allows) {
                    offences.push(format!("{path}:{at}: {name}"));
                }
            }
        }
    }
    assert_none(
        &offences,
        "A tool is known by name: put the fact about it into its `ToolAnnotations`.",
    );
}
