//! Working directories in which the simple commands of a list may run, after `cd`.

use crate::shell::outline::{Outline, Scope, ShellEvent, SimpleCommand};
use crate::shell::places::joined;
use crate::shell::word::{Word, resolve};

/// Maximum number of possible working directories. If there are more, the directory is unknown.
const FOLDERS_MAX: usize = 16;

/// Working directory. `None` if it is unknown.
pub(crate) type Folder = Option<String>;

/// Possible working directories at one point of a script.
///
/// A `cd` may fail, be skipped or run in a subshell. Only directly behind `cd … &&` the new
/// directory is certain.
#[derive(Debug)]
pub(crate) struct Folders {
    /// All directories that have been possible so far.
    possible: Vec<Folder>,
    /// Directories that are possible if the commands of the current `&&` list succeeded.
    current: Vec<Folder>,
    /// True while the current list consists of simple commands joined by `&&`.
    is_plain_list: bool,
    /// True if an earlier command made `cd` resolve `..` as the kernel does.
    is_physical: bool,
}

impl Folders {
    pub(crate) fn new(cwd: Folder) -> Folders {
        let (possible, current) = (vec![cwd.clone()], vec![cwd]);
        Folders { possible, current, is_plain_list: true, is_physical: false }
    }

    /// Returns the directories in which the next command may run.
    pub(crate) fn current(&self) -> &[Folder] {
        &self.current
    }

    /// Returns the known directories in which the shell may have been so far.
    pub(crate) fn earlier(&self) -> impl Iterator<Item = &str> {
        self.possible.iter().flatten().map(String::as_str)
    }

    /// Advances past `event` of `outline`. `is_link` returns true for a target of `cd` that leads
    /// through a symbolic link, where the shell and the programs that it runs disagree about `..`.
    pub(crate) fn step(
        &mut self,
        event: &ShellEvent,
        outline: &Outline,
        is_link: impl Fn(&str, Option<&str>) -> bool,
    ) {
        match event {
            ShellEvent::Run(index) => {
                let Some(command) = outline.commands.get(*index) else { return };
                // After `cd -P`, the shell knows its folder without links.
                let changes = changes_folder(command);
                self.is_physical |= sets_physical(command);
                self.is_physical |= changes && has_physical_option(command);
                if changes {
                    self.change(target(command), is_link);
                }
            }
            ShellEvent::And => {}
            ShellEvent::End => {
                self.current.clone_from(&self.possible);
                self.is_plain_list = true;
            }
            ShellEvent::Open(Scope::Subshell | Scope::Group) if self.is_plain_list => {}
            _ => {
                self.current.clone_from(&self.possible);
                self.is_plain_list = false;
            }
        }
    }

    /// Changes to `target`. If `..` in it is resolved as the kernel does, the folder with `..` in its
    /// path is possible as well.
    fn change(&mut self, target: Option<&str>, is_link: impl Fn(&str, Option<&str>) -> bool) {
        let changed = self.current.iter().map(|folder| {
            let target = target.filter(|target| !is_link(target, folder.as_deref()))?;
            resolve(target, folder.as_deref())
        });
        let mut changed: Vec<Folder> = changed.collect();
        if let Some(target) = target.filter(|_| self.is_physical) {
            let written = self.current.iter().map(|folder| joined(target, folder.as_deref()));
            let climbs = |path: &String| path.split('/').any(|part| part == "..");
            changed.extend(written.flatten().filter(climbs).map(Some).collect::<Vec<_>>());
        }
        changed.sort();
        changed.dedup();
        for folder in &changed {
            if !self.possible.contains(folder) {
                self.possible.push(folder.clone());
            }
        }
        if self.possible.len() > FOLDERS_MAX {
            self.possible = vec![None];
            self.current = vec![None];
        } else if self.is_plain_list {
            self.current = changed;
        } else {
            self.current.clone_from(&self.possible);
        }
    }
}

/// True if the program of `command` is `cd`, `pushd` or `popd`.
fn changes_folder(command: &SimpleCommand) -> bool {
    let program = command.words.first().and_then(Word::literal);
    program.is_some_and(|program| matches!(program, "cd" | "pushd" | "popd"))
}

/// True if `command` is `set` with an option for physical folders: `-P`, `-o physical`.
fn sets_physical(command: &SimpleCommand) -> bool {
    let mut words = command.words.iter().map(Word::literal);
    let is_option = |word: Option<&str>| {
        let letters = |word: &str| word.starts_with('-') && word.contains('P');
        word.is_none_or(|word| word == "physical" || letters(word))
    };
    words.next() == Some(Some("set")) && words.any(is_option)
}

/// True if `command`, which changes the folder, has the option `-P`.
fn has_physical_option(command: &SimpleCommand) -> bool {
    let mut words = command.words.iter().skip(1).filter_map(Word::literal);
    words.any(|word| word.starts_with('-') && word.contains('P'))
}

/// Returns the directory that `command` changes to. `None` if it is unknown.
fn target(command: &SimpleCommand) -> Option<&str> {
    let (program, words) = command.words.split_first()?;
    let is_option = |word: &&Word| {
        let letters = word.literal().and_then(|word| word.strip_prefix('-'));
        letters.is_some_and(|letters| {
            !letters.is_empty() && letters.chars().all(|letter| "LPe@-".contains(letter))
        })
    };
    // `-P` differs from `-L` only behind links.
    let options = words.iter().take_while(is_option).count();
    let is_cd = program.literal() == Some("cd");
    let [target] = &words[if is_cd { options } else { 0 }..] else { return None };
    // `-` is the last directory, `+1` an entry of the stack.
    let target = target.literal().filter(|target| !target.starts_with(['-', '+']))?;
    (program.literal() != Some("popd")).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::reader;

    /// Directories in which the last command of `text` may run.
    fn last(text: &str) -> Vec<String> {
        let outline = reader::read(text);
        let mut folders = Folders::new(Some("/w".to_owned()));
        let mut last = Vec::new();
        for event in &outline.events {
            if matches!(event, ShellEvent::Run(_)) {
                last = folders.current().to_vec();
            }
            folders.step(event, &outline, |_, _| false);
        }
        last.into_iter().map(|folder| folder.unwrap_or_else(|| "?".to_owned())).collect()
    }

    #[test]
    fn directory_is_certain_only_directly_behind_a_successful_cd() {
        for (text, folders) in [
            ("ls", &["/w"] as &[&str]),
            ("cd a/b && ls", &["/w/a/b"]),
            ("cd a && cd b && ls", &["/w/a/b"]),
            ("true; cd a && ls", &["/w/a"]),
            ("(cd a && ls)", &["/w/a"]),
            ("cd a/b; ls", &["/w", "/w/a/b"]),
            ("cd a/b\nls", &["/w", "/w/a/b"]),
            ("cd a || ls", &["/w", "/w/a"]),
            ("true || cd a && ls", &["/w", "/w/a"]),
            ("true | cd a && ls", &["/w", "/w/a"]),
            ("cd a | ls", &["/w", "/w/a"]),
            ("! cd a && ls", &["/w", "/w/a"]),
            ("(cd a) && ls", &["/w", "/w/a"]),
            ("(cd a); ls", &["/w", "/w/a"]),
            ("{ true; cd a; } && ls", &["/w", "/w/a"]),
            ("cd a && cd - && ls", &["?"]),
            ("cd && ls", &["?"]),
            ("cd -P a && ls", &["/w/a"]),
            ("cd -P a/b && cd .. && ls", &["/w/a", "/w/a/b/.."]),
            ("cd -P a && cd -P ../b && ls", &["/w/a/../b", "/w/b"]),
            ("set -P; cd a && cd .. && ls", &["/w", "/w/a/.."]),
            ("set -o physical && cd a/.. && ls", &["/w", "/w/a/.."]),
            ("cd -Pe -- a && ls", &["/w/a"]),
            ("cd -P - && ls", &["?"]),
            ("cd -x a && ls", &["?"]),
            ("pushd a && popd && ls", &["?"]),
            ("cd $x && ls", &["?"]),
        ] {
            assert_eq!(last(text), folders, "{text}");
        }
    }

    #[test]
    fn many_directories_are_unknown() {
        let commands: Vec<String> = (0..20).map(|at| format!("cd d{at}")).collect();
        assert_eq!(last(&format!("{}; ls", commands.join("; "))), ["?"]);
    }
}
