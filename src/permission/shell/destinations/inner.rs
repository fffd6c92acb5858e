//! Commands that `find` and `xargs` run, with words that are known only at run time.

use crate::shell::Names;
use crate::shell::walk::base;
use crate::shell::word::UNKNOWN;
use crate::shell::wrappers::wrapper_named;

/// Actions of `find` and options of `fd` before a command that runs in the folder of the search.
const EXECUTES: Names = Names("-exec -ok -x -X --exec --exec-batch");
/// Actions of `find` before a command that runs in the folder of each file.
const EXECUTES_ELSEWHERE: Names = Names("-execdir -okdir");

/// Maximum number of programs that run each other. A command further in is [`UNKNOWN`] as a whole.
const DEPTH_MAX: usize = 4;

/// Command that another program runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InnerCommand {
    /// Its words. What the program puts in is [`UNKNOWN`].
    pub(crate) words: Vec<String>,
    /// True if it runs in a folder that is known only at run time.
    pub(crate) is_elsewhere: bool,
}

/// Commands that `find` or `xargs` at the beginning of `words`, or behind wrappers there, runs. Empty
/// for other programs.
pub(crate) fn inner_commands(words: &[&str]) -> Vec<InnerCommand> {
    inner_commands_at(words, 0)
}

fn inner_commands_at(words: &[&str], depth: usize) -> Vec<InnerCommand> {
    let mut rest = words;
    while let Some((name, after)) = rest.split_first() {
        let Some(wrapper) = wrapper_named(base(name)) else { break };
        let program = wrapper.program(after.iter().copied()).0.min(after.len());
        if base(name) == "xargs" {
            let (options, program) = after.split_at(program);
            return with_inner(of_xargs(options, program), false, depth);
        }
        rest = &after[program..];
    }
    match rest.split_first() {
        Some((name, after)) if Names("find gfind fd fdfind").has(base(name)) => {
            of_find(after, depth)
        }
        _ => Vec::new(),
    }
}

/// The commands that the command `words` runs, or else the command itself.
fn with_inner(words: Vec<String>, is_elsewhere: bool, depth: usize) -> Vec<InnerCommand> {
    if depth >= DEPTH_MAX {
        return vec![InnerCommand { words: vec![UNKNOWN.to_string()], is_elsewhere }];
    }
    let texts: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut inner = inner_commands_at(&texts, depth + 1);
    for command in &mut inner {
        command.is_elsewhere |= is_elsewhere;
    }
    if inner.is_empty() { vec![InnerCommand { words, is_elsewhere }] } else { inner }
}

/// Words of the command `program` that `xargs` runs. The words that it reads are at the end, or in the
/// place of a mark.
fn of_xargs(options: &[&str], program: &[&str]) -> Vec<String> {
    let mark = options.iter().enumerate().find_map(|(at, option)| {
        match option.strip_prefix("-I").or(option.strip_prefix("--replace=")) {
            Some("") => options.get(at + 1).copied(),
            None => matches!(*option, "-i" | "--replace").then_some("{}"),
            mark => mark,
        }
    });
    let unknown = UNKNOWN.to_string();
    if let Some(mark) = mark.filter(|mark| !mark.is_empty()) {
        return program.iter().map(|word| word.replace(mark, &unknown)).collect();
    }
    let known = program.iter().map(|word| (*word).to_owned());
    // The last of several words may mean something else than the others.
    known.chain([unknown.clone(), unknown]).collect()
}

/// Commands in the arguments `words` of `find` or `fd`.
fn of_find(words: &[&str], depth: usize) -> Vec<InnerCommand> {
    let mut found = Vec::new();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        let is_elsewhere = EXECUTES_ELSEWHERE.has(word);
        if !is_elsewhere && !EXECUTES.has(word) {
            continue;
        }
        let end = after.iter().position(|word| matches!(*word, ";" | "+"));
        let (command, after) = after.split_at(end.unwrap_or(after.len()));
        rest = after;
        let unknown = UNKNOWN.to_string();
        let mut words: Vec<String> =
            command.iter().map(|word| word.replace("{}", &unknown)).collect();
        let is_of_fd = Names("-x -X --exec --exec-batch").has(word);
        if is_of_fd && !words.iter().any(|word| word.contains(UNKNOWN)) {
            words.push(unknown);
        }
        found.extend(with_inner(words, is_elsewhere, depth));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_with_their_unknown_words() {
        for (line, expected) in [
            ("ls -l", ""),
            ("find . -name x", ""),
            ("find b -name c -exec ln -s {} l ;", "ln -s $ l"),
            ("find b -exec cp {} d/{}.bak ; -exec rm {} +", "cp $ d/$.bak|rm $"),
            ("find b -execdir mv {} x ;", "mv $ x elsewhere"),
            ("fd -x rm", "rm $"),
            ("xargs ln -s", "ln -s $ $"),
            ("nice xargs -n 2 ln -s", "ln -s $ $"),
            ("xargs -I % ln -s % l", "ln -s $ l"),
            ("xargs -i ln -s {} l", "ln -s $ l"),
            ("xargs -I{} find {} -exec rm {} ;", "rm $"),
            ("xargs xargs xargs xargs rm", "rm $ $ $ $ $ $ $ $"),
            ("xargs xargs xargs xargs xargs rm", "$"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let shown = inner_commands(&words).into_iter().map(|command| {
                let end = if command.is_elsewhere { " elsewhere" } else { "" };
                command.words.join(" ").replace(UNKNOWN, "$") + end
            });
            assert_eq!(shown.collect::<Vec<_>>().join("|"), expected, "{line}");
        }
    }
}
