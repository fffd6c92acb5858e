//! Test that guide and reference list the keys and commands of the program.

use posse_frontend::commands::COMMANDS;

use crate::keymap::{ANSWERS, BINDINGS, shown};

/// The generated tables: file below `docs/`, the mark before the table, and the table.
fn tables() -> [(&'static str, &'static str, String); 3] {
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
        // A bar would end the cell.
        let argument = argument.replace('|', "\\|");
        format!("| `/{}{argument}` | {} | {} |\n", entry.name, aliases.join(", "), entry.help)
    });
    [
        ("guide/tui.md", "answers", letters(ANSWERS)),
        (
            "reference/keys.md",
            "keys",
            format!("| name | keys | does |\n|---|---|---|\n{}", keys.collect::<Vec<_>>().concat()),
        ),
        (
            "reference/commands.md",
            "commands",
            format!(
                "| command | also | does |\n|---|---|---|\n{}",
                commands.collect::<Vec<_>>().concat()
            ),
        ),
    ]
}

/// The page with the current table after its mark.
fn written(page: &str, name: &str, table: &str) -> String {
    let mark = format!("<!-- {name} -->\n");
    let at = page.find(&mark).unwrap_or_else(|| panic!("no mark for {name}")) + mark.len();
    let rest = page[at..].trim_start_matches('\n').lines().skip_while(|line| line.starts_with('|'));
    let rest = rest.collect::<Vec<_>>().join("\n");
    let text = format!("{}\n{table}\n{}", &page[..at], rest.trim_start_matches('\n'));
    format!("{}\n", text.trim_end())
}

#[test]
fn guide_and_reference_list_every_key_and_command() {
    for (file, name, table) in tables() {
        let path = format!("{}/../../docs/{file}", env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(&path).unwrap();
        let expected = written(&page, name, &table);
        if std::env::var_os("POSSE_WRITE_GUIDE").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        let fix = "POSSE_WRITE_GUIDE=1 cargo test -p posse-tui guide writes it";
        assert_eq!(page, expected, "docs/{file}: {fix}");
    }
}
