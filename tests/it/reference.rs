//! References that are written from the program: each file must be what the program would write.
//! `POSSE_WRITE_GUIDE=1 cargo test -p posse --test it reference` writes them.

mod commands;
mod events;
mod instructions;
mod tools;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use posse::config;
use posse::failure::{ErrorCode, Exit, RESULT_CODES};
use posse::provider::presets;

use crate::posse::Machine;

/// The second sentence of every reference.
const GENERATED: &str = "This page is written from the program: \
    POSSE_WRITE_GUIDE=1 cargo test -p posse --test it reference";

/// Compares a file below `docs/` with `expected`, or writes it on request.
#[track_caller]
fn check(file: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file);
    if std::env::var_os("POSSE_WRITE_GUIDE").is_some() {
        fs::write(&path, expected).unwrap();
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    let at = present.lines().zip(expected.lines()).position(|(now, then)| now != then);
    assert!(
        present == expected,
        "docs/{file} is not what the program writes, from line {:?} on. {GENERATED}",
        at.map(|at| at + 1)
    );
}

/// A rustdoc text as Markdown: one line for each paragraph, without links to items.
fn prose(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|lines| lines.replace('\n', " "));
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    text.replace("[`", "`").replace("`]", "`").replace("`None`", "`null` or missing")
}

#[test]
fn reference_of_commands_is_current() {
    check("reference/cli.md", &commands::page());
}

#[test]
fn reference_of_exit_codes_is_current() {
    let mut page = format!(
        "# Exit codes\n<!-- {GENERATED} -->\n\nThe exit code of posse tells programs how a command ended.\n\n"
    );
    for exit in Exit::ALL {
        writeln!(page, "- `{}`: {}", *exit as u8, exit.meaning()).unwrap();
    }
    page.push_str("\nError codes with their exit codes: [errors](error-codes.md).\n");
    check("reference/exit-codes.md", &page);
}

#[test]
fn reference_of_variables_is_current() {
    let mut page = format!(
        "# Environment variables\n<!-- {GENERATED} -->\n\nA value is used without white space and quotes around it; an \
         empty value counts as unset.\n\n## Settings\n\nEach sets a configuration key \
         and is stronger than files.\n\n"
    );
    let [keys, read, set] = config::variables();
    for variable in keys {
        let key = variable.key.unwrap();
        writeln!(page, "- `{}`: sets `{key}`. {}", variable.name, variable.about).unwrap();
    }
    page.push_str(
        "\n## API keys\n\nWithout a configured provider, the first of these that is set selects \
         the provider.\n\n",
    );
    for preset in presets::all() {
        if let Some(variable) = preset.key_variable {
            writeln!(page, "- `{variable}`: API key of `{}`.", preset.name).unwrap();
        }
    }
    page.push_str("\n## Other variables that posse reads\n\n");
    for variable in read {
        writeln!(page, "- `{}`: {}", variable.name, variable.about).unwrap();
    }
    page.push_str("\n## Variables that posse sets for the programs that it starts\n\n");
    for variable in set {
        writeln!(page, "- `{}`: {}", variable.name, variable.about).unwrap();
    }
    check("reference/environment.md", &page);
}

#[test]
fn reference_of_events_is_current() {
    check("reference/events.md", &events::page());
}

#[test]
fn reference_of_instructions_is_current() {
    check("reference/instructions.md", &instructions::page());
}

#[test]
fn reference_of_tools_is_current() {
    check("reference/tools.md", &tools::page());
}

#[test]
fn reference_of_errors_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/error-codes.md");
    let present = fs::read_to_string(path).unwrap();
    let (before, rest) = present.split_once("| `").unwrap();
    let mut page = before.to_owned();
    for code in ErrorCode::ALL {
        let [code, meaning, fix, exit] = code.reference();
        writeln!(page, "| `{code}` | {meaning} | {fix} | {exit} |").unwrap();
    }
    let (_, results) = rest.split_once("\n\n").unwrap();
    let (before, _) = results.split_once("| `").unwrap();
    write!(page, "\n{before}").unwrap();
    for [code, meaning, fix] in RESULT_CODES {
        writeln!(page, "| `{code}` | {meaning} | {fix} |").unwrap();
    }
    check("reference/error-codes.md", &page);
}

#[test]
fn help_prints_topics_entries_and_commands_offline() {
    let machine = Machine::new();
    let topics = machine.posse(&["help"]);
    assert_eq!(topics.code, Some(0));
    let names: Vec<&str> =
        topics.stdout.lines().skip(1).map_while(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 20 && names.contains(&"exit-codes"), "{names:?}");
    for name in names {
        let page = machine.posse(&["help", name]);
        assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""), "{name}");
        let long = page.stdout.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "{name}");
    }
    for (words, expected) in [
        (&["help", "CFG003"][..], "usual fix"),
        (&["help", "sandbox.network"], "default"),
        (&["help", "--output-format"], "stream-json"),
        (&["help", "sessions", "list"], "Usage: posse sessions list"),
        (&["help", "run"], "Usage: posse run"),
    ] {
        let entry = machine.posse(words);
        assert_eq!(entry.code, Some(0), "{words:?}: {}", entry.stderr);
        assert!(entry.stdout.contains(expected), "{words:?}: {}", entry.stdout);
    }
    let unknown = machine.posse(&["help", "sandbox.netwrok"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("CLI015") && unknown.stderr.contains("sandbox.network"));
}

/// Codes in a text: two to four capital letters and three digits.
fn codes_in(text: &str) -> Vec<String> {
    let is_code = |word: &&str| {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
        word.len() == letters.len() + 3
            && (2..=4).contains(&letters.len())
            && letters.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(is_code).filter(|word| *word != "SHA256").map(str::to_owned).collect()
}

#[test]
fn every_code_in_the_source_has_help() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open = vec![root.join("src"), root.join("actors/src")];
    let mut codes = std::collections::BTreeSet::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" && name != "testing" {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !matches!(name, "tests.rs" | "testing.rs")
            {
                let text = fs::read_to_string(&path).unwrap();
                let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
                codes.extend(lines.flat_map(codes_in));
            }
        }
    }
    assert!(codes.len() > 180 && codes.contains("SBX010"), "{codes:?}");
    let page = fs::read_to_string(root.join("docs/reference/error-codes.md")).unwrap();
    let missing: Vec<&String> =
        codes.iter().filter(|code| !page.contains(&format!("| `{code}` |"))).collect();
    assert!(missing.is_empty(), "not in docs/reference/error-codes.md: {missing:?}");
    for code in &codes {
        assert!(posse::help::entries(code, 80).is_some(), "{code}");
    }
    let machine = Machine::new();
    for code in ["SBX010", "sbx011", "HK007", "EDT001", "CFG041"] {
        let found = machine.posse(&["help", code]);
        assert_eq!(found.code, Some(0), "{code}: {}", found.stderr);
    }
}

#[test]
fn unknown_help_topics_get_plausible_suggestions_only() {
    let fix = |word: &str| posse::help::unknown(word, &["sessions", "login"]).fix.unwrap();
    let none = "`posse help` lists the topics";
    for word in ["mcp", "log", "api", "git", "lst", "update", "plugin", "worktree"] {
        assert_eq!(fix(word), none, "{word}");
    }
    for (word, meant) in [
        ("cost", "costs"),
        ("theme", "/theme"),
        ("compact", "/compact"),
        ("sesions", "sessions"),
        ("logn", "login"),
        ("permission", "permissions"),
    ] {
        let fix = fix(word);
        let names = fix.strip_prefix("did you mean ").and_then(|names| names.strip_suffix('?'));
        let names: Vec<&str> = names.unwrap_or_default().split(", ").collect();
        assert!(names.contains(&meant), "{word}: {fix}");
        assert!(names.iter().all(|name| !name.contains([' ', '['])), "{word}: {fix}");
    }
}
