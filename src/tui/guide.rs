//! Test that the guide lists the keys and commands of the program.

use posse_frontend::commands::COMMANDS;

use crate::keymap::{ANSWERS, BINDINGS, shown};

/// The generated tables by the marks before them in the guide.
fn tables() -> [(&'static str, String); 3] {
    let letters = |rows: &[(char, &str)]| {
        let rows = rows.iter().map(|(key, what)| format!("| `{key}` | {what} |\n"));
        format!("| key | does |\n|---|---|\n{}", rows.collect::<Vec<_>>().concat())
    };
    let keys = BINDINGS
        .iter()
        .map(|binding| format!("| `{}` | {} | {} |\n", binding.name, shown(binding), binding.what));
    let commands = COMMANDS.iter().map(|entry| {
        let argument =
            if entry.argument.is_empty() { String::new() } else { format!(" {}", entry.argument) };
        let aliases: Vec<String> = entry.aliases.iter().map(|name| format!("`/{name}`")).collect();
        format!("| `/{}{argument}` | {} | {} |\n", entry.name, aliases.join(", "), entry.help)
    });
    [
        ("answers", letters(ANSWERS)),
        (
            "keys",
            format!("| name | keys | does |\n|---|---|---|\n{}", keys.collect::<Vec<_>>().concat()),
        ),
        (
            "commands",
            format!(
                "| command | also | does |\n|---|---|---|\n{}",
                commands.collect::<Vec<_>>().concat()
            ),
        ),
    ]
}

/// The guide with the current tables.
fn written(guide: &str) -> String {
    let mut text = guide.to_owned();
    for (name, table) in tables() {
        let mark = format!("<!-- {name} -->\n");
        let at = text.find(&mark).unwrap_or_else(|| panic!("no mark for {name}")) + mark.len();
        let rest =
            text[at..].trim_start_matches('\n').lines().skip_while(|line| line.starts_with('|'));
        let rest = rest.collect::<Vec<_>>().join("\n") + "\n";
        text = format!("{}\n{table}\n{}", &text[..at], rest.trim_start_matches('\n'));
    }
    text
}

#[test]
fn the_guide_lists_every_key_and_command() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/tui.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let expected = written(&guide);
    if std::env::var_os("POSSE_WRITE_GUIDE").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    assert_eq!(guide, expected, "POSSE_WRITE_GUIDE=1 cargo test --lib tui::guide writes it");
}
