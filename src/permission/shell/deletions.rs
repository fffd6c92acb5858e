//! Files that a command deletes with `rm` and `unlink`, if its words say completely which ones.

use crate::shell::effects::{destroys_only_with, moves_files, program_count};
use crate::shell::folders::{Folder, Folders};
use crate::shell::outline::{Scope, ShellEvent, SimpleCommand};
use crate::shell::outputs::gives_names;
use crate::shell::walk::{base, walk};
use crate::shell::word::{Word, resolve};
use crate::shell::{Names, reader};

/// Programs that delete exactly the files that their operands name.
const DELETES: Names = Names("rm unlink");
/// Builtins that change the folder of the commands after them.
const CHANGES_FOLDER: Names = Names("cd pushd popd");
/// Builtins that can change the folder of later commands, or what their words mean, in ways that the
/// words do not tell.
const CHANGES_MEANING: Names = Names("source . eval trap alias enable shopt");
/// Builtins that can set `CDPATH`, in which `cd` searches, under a name that only the run shows.
const SETS_VARIABLES: Names = Names(
    "declare typeset local export readonly read mapfile readarray getopts set unset let printf",
);

/// Absolute paths of the files and folders that `command` deletes, if it runs in `cwd` and the
/// user's home folder is `home`. A path that ends with `/` is a folder: if it is a link, the files in
/// the folder to which it leads are deleted. `None` if its words do not name all of them, or if it destroys in
/// another way as well. If a part may run in one of several folders, its files in each of them are
/// included.
pub(crate) fn deletions(command: &str, cwd: &str, home: &str) -> Option<Vec<String>> {
    let outline = reader::read(command);
    let findings = walk(&outline, command, cwd, home);
    let is_known = !findings.unsure
        && findings.unclear.is_none()
        && !outline.flaws.are_doubts()
        && destroys_only_with(&findings, DELETES)
        && program_count(&findings, CHANGES_MEANING) == 0
        && !command.contains("CDPATH");
    let is_in_order = |event: &ShellEvent| {
        !matches!(
            event,
            ShellEvent::Background | ShellEvent::Open(Scope::Control | Scope::Function(_))
        )
    };
    // A file that an earlier part gave another name is not at its path yet.
    let is_renamed = moves_files(&findings) || gives_names((&outline, &findings), cwd, home);
    if !is_known || is_renamed || !outline.events.iter().all(is_in_order) {
        return None;
    }
    let mut paths: Vec<String> = Vec::new();
    let (mut deleting, mut changing) = (0, 0);
    let mut folders = Folders::new(Some(cwd.to_owned()));
    for event in &outline.events {
        if let ShellEvent::Run(index) = event
            && let Some(command) = outline.commands.get(*index)
        {
            let program = command.words.first().and_then(Word::literal).map(base);
            let is = |names: Names| program.is_some_and(|program| names.has(program));
            changing += usize::from(is(CHANGES_FOLDER));
            if is(DELETES) {
                deleting += 1;
                for path in operands(command, folders.current())? {
                    if !paths.contains(&path) {
                        paths.push(path);
                    }
                }
            }
        }
        // With links, `..` may lead elsewhere.
        folders.step(event, &outline, |target, _| has_parent(target));
    }
    // Others run in nested scripts, behind another program, or through a function.
    let may_search = changing > 0 && program_count(&findings, SETS_VARIABLES) > 0;
    let are_all = !may_search
        && deleting == program_count(&findings, DELETES)
        && changing == program_count(&findings, CHANGES_FOLDER);
    are_all.then_some(paths)
}

/// Paths of the operands of a program that deletes them, in each of `folders`. `None` if one is not
/// known.
fn operands(command: &SimpleCommand, folders: &[Folder]) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    let mut options_ended = false;
    for word in command.words.iter().skip(1) {
        let text = word.literal()?;
        if !options_ended && text.starts_with('-') && text != "-" {
            options_ended = text == "--";
            continue;
        }
        if has_parent(text) || text.starts_with('~') {
            return None;
        }
        // Such a name deletes what a link leads to, and needs a folder.
        let follows = text.ends_with('/') || text.ends_with("/.");
        for folder in folders {
            let mut path = resolve(text, Some(folder.as_deref()?))?;
            if follows {
                path.push('/');
            }
            paths.push(path);
        }
    }
    Some(paths)
}

fn has_parent(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_name_all_files_are_read() {
        for (command, expected) in [
            ("rm a", Some("/w/a")),
            ("rm -rf -- a 'b c' /w/d/", Some("/w/a /w/b c /w/d/")),
            ("rm -rf d// e/.", Some("/w/d/ /w/e/")),
            ("rm -- -x", Some("/w/-x")),
            ("rm -f a && make && unlink sub/b", Some("/w/a /w/sub/b")),
            ("rm a a; rm a", Some("/w/a")),
            ("cd sub && rm a", Some("/w/sub/a")),
            ("cd sub; rm a", Some("/w/a /w/sub/a")),
            ("(cd sub && rm a); rm b", Some("/w/sub/a /w/b /w/sub/b")),
            ("rm a | cat", Some("/w/a")),
            ("echo $(rm a)", Some("/w/a")),
            ("echo a > b; rm b", Some("/w/b")),
            ("cp a b && rm b", Some("/w/b")),
            ("/bin/rm a", Some("/w/a")),
            ("make", Some("")),
            ("rm -rf", Some("")),
            ("export A=1; rm a", Some("/w/a")),
        ] {
            let found = deletions(command, "/w", "/home/u").map(|paths| paths.join(" "));
            assert_eq!(found.as_deref(), expected, "{command}");
        }
    }

    #[test]
    fn words_that_leave_files_open_are_not_read() {
        for command in [
            "rm *.o",
            "rm $x",
            "rm {a,b}",
            "rm ~/a",
            "rm '~'/a",
            "rm ../a",
            "rm sub/../a",
            "rm \"$(cat list)\"",
            "sudo rm a",
            "command rm a",
            "env -C sub rm a",
            "sh -c 'rm a'",
            "sh -c 'mv .env sub'; rm -r sub",
            "git mv a sub/a && rm -r sub",
            "find . -name x -exec rm {} ;",
            "echo a | xargs rm",
            "for f in a b; do rm a; done",
            "if true; then rm a; fi",
            "while rm a; do true; done",
            "f() { rm a; }; f",
            "rm() { make; }; rm a",
            "rm a &",
            "cd \"$x\" && rm a",
            "cd ../x && rm a",
            "printf -v \"CDP\"\"ATH\" ig; cd d1 && rm a",
            "declare CDP\\ATH=ig; cd d1 && rm a",
            "read CDP''ATH <<< ig; cd d1 && rm a",
            "cd - && rm a",
            "command cd sub && rm a",
            "eval 'cd sub' && rm a",
            ". ./x && rm a",
            "shopt -s cdable_vars; cd x && rm a",
            "CDPATH=/x; cd sub && rm a",
            "mv a b && rm b",
            "ln -s a b; rm c",
            "cp -a a b; rm -r b",
            "POSIXLY_CORRECT=1 rm a -r",
            "rm a; truncate -s 0 b",
            "rm a; git reset --hard",
            "rm a; git checkout -- 'b*'",
            "rm a; git clean -fd",
            "rm a; find . -delete",
            "rm a; $X",
            "shred a",
        ] {
            assert_eq!(deletions(command, "/w", "/home/u"), None, "{command}");
        }
    }
}
