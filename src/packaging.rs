//! Shell completions and manual pages for packages, generated from the command line definition.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap_complete::Shell;

use crate::cli;
use crate::failure::{ErrorCode, Exit, Failure};

/// Writes the completion script for a shell to `out`.
pub fn completions(shell: cli::Shell, out: &mut dyn Write) -> Result<Exit, Failure> {
    let shell = match shell {
        cli::Shell::Bash => Shell::Bash,
        cli::Shell::Elvish => Shell::Elvish,
        cli::Shell::Fish => Shell::Fish,
        cli::Shell::PowerShell => Shell::PowerShell,
        cli::Shell::Zsh => Shell::Zsh,
    };
    // The generator panics if writing fails, which cannot happen in memory.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "posse", &mut text);
    written(out.write_all(&text).and_then(|()| out.flush()))
}

/// Writes the manual pages into the folder `dir`, one for each command; creates the folder if it
/// does not exist. Without `dir`, writes only the page of posse itself to `out`.
pub fn man(dir: Option<&Path>, out: &mut dyn Write) -> Result<Exit, Failure> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(cli::command()).render(&mut page);
        return written(rendered.and_then(|()| out.write_all(&page)).and_then(|()| out.flush()));
    };
    let made = fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(cli::command(), dir))
        .map(|()| Exit::Done);
    made.map_err(|error| {
        Failure::new(ErrorCode::PackagingOutput, Exit::Failed, "the manual pages cannot be written")
            .at(dir.display().to_string())
            .because(error.to_string())
    })
}

/// Writes the help of posse and of every command to `out`, as text for a person.
pub fn manual(out: &mut dyn Write) -> Result<Exit, Failure> {
    let mut root = cli::command();
    root.build();
    let mut text = root.render_long_help().to_string();
    add_commands(&mut root, &mut text);
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Adds the help of the visible subcommands of `parent`, at any depth, to `text`.
fn add_commands(parent: &mut clap::Command, text: &mut String) {
    // Commands with subcommands have a generated `help`, which describes nothing else.
    let is_generated = |command: &clap::Command| {
        command.get_name() == "help" && command.get_bin_name() != Some("posse help")
    };
    let is_shown = |command: &&mut clap::Command| !command.is_hide_set() && !is_generated(command);
    for command in parent.get_subcommands_mut().filter(is_shown) {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_uppercase();
        text.extend(["\n", name.as_str(), "\n\n", &command.render_long_help().to_string()]);
        add_commands(command, text);
    }
}

/// Converts the result of writing. A closed pipe is not an error.
fn written(written: io::Result<()>) -> Result<Exit, Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            ErrorCode::PackagingOutput,
            Exit::Failed,
            "the answer cannot be written",
        )
        .because(error.to_string())),
        _ => Ok(Exit::Done),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn completions_of_every_shell_list_every_command() {
        let commands: Vec<String> = cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name().to_owned())
            .collect();
        assert!(commands.len() >= 8, "{commands:?}");
        for shell in cli::Shell::value_variants() {
            let mut text = Vec::new();
            assert_eq!(completions(*shell, &mut text).unwrap(), Exit::Done);
            let text = String::from_utf8(text).unwrap();
            for command in &commands {
                assert!(text.contains(command.as_str()), "{shell:?} does not know {command}");
            }
            assert!(text.contains("output-format"), "{shell:?} knows no flags");
        }
    }

    #[test]
    fn every_command_has_a_man_page() {
        let dir = tempfile::tempdir().unwrap();
        let pages = dir.path().join("share/man/man1");
        man(Some(&pages), &mut Vec::new()).unwrap();
        for page in ["posse.1", "posse-run.1", "posse-sessions-export.1", "posse-doctor.1"] {
            let text = fs::read_to_string(pages.join(page)).unwrap_or_else(|_| panic!("{page}"));
            assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
        }
        let mut page = Vec::new();
        man(None, &mut page).unwrap();
        assert!(String::from_utf8(page).unwrap().contains("posse \\- "), "no name");
    }

    #[test]
    fn manual_is_text_about_every_command() {
        let mut text = Vec::new();
        assert_eq!(manual(&mut text).unwrap(), Exit::Done);
        let text = String::from_utf8(text).unwrap();
        for heading in ["\nPOSSE RUN\n", "\nPOSSE SESSIONS EXPORT\n", "\nPOSSE DOCTOR\n"] {
            assert_eq!(text.matches(heading).count(), 1, "{heading}");
        }
        assert!(!text.contains("\n.SH") && !text.contains('\u{1b}'), "{text}");
        assert!(!text.contains("HELP RUN"), "{text}");
    }

    #[test]
    fn folder_creation_error_names_the_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let failure = man(Some(&file.path().join("man")), &mut Vec::new()).unwrap_err();
        assert_eq!((failure.code.as_str(), failure.exit), ("PKG001", Exit::Failed));
    }
}
