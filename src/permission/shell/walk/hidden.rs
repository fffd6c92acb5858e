//! Scripts and commands that hide in the arguments of a program.

use super::{Arg, CommandInput, Effects, Run, Walker, said};
use crate::shell::danger::{CommandLocation, DELETES, DOWNLOADED, is_system};
use crate::shell::word::{UNKNOWN, ansi_c};
use crate::shell::wrappers::{SHELLS, is_assignment, is_interpreter};

impl Walker {
    /// Effect of `name` with `rest`, whose first word is at `at` of `run`.
    pub(super) fn hidden(
        &mut self,
        name: &str,
        rest: &[Arg],
        run: &mut Run,
        at: usize,
        input: &CommandInput,
        cwd: &mut Option<String>,
    ) -> Effects {
        let words: Vec<&str> = rest.iter().map(|argument| argument.text.as_str()).collect();
        match name {
            name if SHELLS.has(name) => self.shell(rest, input, cwd),
            name if is_interpreter(name) => self.interpreter(rest, input),
            "eval" => self.joined(rest, input, cwd),
            "watch" | "ssh" | "rsh" | "parallel" | "mosh" => self.remote(name, rest, input, cwd),
            "su" | "script" | "sg" | "newgrp" | "flock" | "runuser" | "capsh" => {
                self.command_option(name, rest, run, at, input, cwd)
            }
            "trap" => {
                let text = rest.iter().find(|argument| argument.text != "--");
                self.texts(text, input, cwd)
            }
            // Runs an earlier command again.
            "fc" => {
                self.findings.unsure = true;
                Effects::default()
            }
            "history" if words.first() == Some(&"-s") => {
                self.findings.unsure = true;
                self.joined(&rest[1..], &CommandInput::default(), &mut cwd.clone())
            }
            "jobs" if words.first() == Some(&"-x") => {
                self.part(&rest[1..], run, at + 1, input, cwd)
            }
            "alias" => {
                self.findings.unsure = true;
                for argument in rest {
                    if let Some((_, text)) = argument.text.split_once('=') {
                        let text = said(text);
                        self.nested(&text, CommandInput::default(), &mut cwd.clone());
                    }
                }
                Effects::default()
            }
            "source" | "." => self.source(rest, input, cwd),
            "cd" | "pushd" | "chdir" => {
                self.change_folder(&words, cwd);
                Effects::default()
            }
            "popd" => {
                *cwd = None;
                Effects::default()
            }
            "find" | "gfind" | "fd" | "fdfind" => self.find(name, rest, run, at, cwd),
            "git" => self.git(rest, cwd),
            "at" | "batch" => match &input.text {
                Some(text) => self.nested(&text.clone(), CommandInput::default(), cwd),
                None => Effects { runs_input: true, ..Effects::default() },
            },
            "mapfile" | "readarray" | "complete" | "compgen" | "bind" => self.callbacks(rest, cwd),
            "enable" | "hash" | "shopt" | "set" | "unset" | "declare" | "typeset" | "local"
            | "export" | "readonly" | "let" | "test" | "[" | "read" | "printf" | "getopts"
            | "wait" => self.builtin(name, rest, input),
            "echo" => Effects { text: Some(echoed(&words).into()), ..Effects::default() },
            "cat" | "tee" => {
                let reads = words.iter().all(|word| word.starts_with('-')) || name == "tee";
                let text = if reads { input.text.clone() } else { None };
                Effects { text, ..Effects::default() }
            }
            _ => Effects::default(),
        }
    }

    /// Options of builtins whose next word is shell text.
    fn callbacks(&mut self, rest: &[Arg], cwd: &mut Option<String>) -> Effects {
        for (at, option) in rest.iter().enumerate() {
            let takes = matches!(option.text.as_str(), "-C" | "-c" | "-F" | "-W" | "-x");
            if takes && let Some(text) = rest.get(at + 1) {
                self.findings.unsure = true;
                // A list of words is parsed as if it were quoted.
                let words = if option.text == "-W" { ": " } else { "" };
                let text = format!("{words}{}", said(&text.text));
                self.nested(&text, CommandInput::default(), &mut cwd.clone());
            }
        }
        Effects::default()
    }

    /// A whole word that is shell text.
    fn texts(
        &mut self,
        argument: Option<&Arg>,
        input: &CommandInput,
        cwd: &mut Option<String>,
    ) -> Effects {
        let Some(argument) = argument else { return Effects::default() };
        if argument.tainted {
            self.found(DOWNLOADED);
        }
        if argument.text.contains(UNKNOWN) {
            self.findings.unsure = true;
        }
        let text = said(&argument.text);
        let mut effects = self.nested(&text, input.clone(), &mut cwd.clone());
        effects.downloads |= argument.tainted;
        effects
    }

    /// `eval`: its words are one text, run here.
    fn joined(&mut self, rest: &[Arg], input: &CommandInput, cwd: &mut Option<String>) -> Effects {
        // One that runs another needs no further reading, if that removes no quotes.
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let even = rest.iter().all(|argument| argument.text.chars().all(plain));
        let same = |argument: &&Arg| even && argument.text == "eval";
        let skipped = rest.iter().take_while(same).count();
        let rest = rest.get(skipped..).unwrap_or_default();
        if rest.iter().any(|argument| argument.tainted) {
            self.found(DOWNLOADED);
        }
        if rest.iter().any(|argument| argument.text.contains(UNKNOWN)) {
            self.findings.unsure = true;
        }
        let text: Vec<String> = rest.iter().map(|argument| said(&argument.text)).collect();
        self.nested(&text.join(" "), input.clone(), cwd)
    }

    /// `sh -c TEXT`, `sh FILE`, and `sh` that executes its input.
    fn shell(&mut self, rest: &[Arg], input: &CommandInput, cwd: &mut Option<String>) -> Effects {
        let mut takes_text = false;
        let mut reads = false;
        let mut at = 0;
        while let Some(argument) = rest.get(at) {
            let word = argument.text.as_str();
            if word == "--" {
                at += 1;
                break;
            }
            let option = word.len() > 1 && word.starts_with(['-', '+']);
            if !option {
                break;
            }
            at += 1;
            if matches!(word, "--rcfile" | "--init-file") {
                at += 1;
                self.findings.unsure = true;
            } else if !word.starts_with("--") {
                takes_text |= word.contains('c');
                reads |= word.contains('s');
                if word.ends_with(['o', 'O']) {
                    at += 1;
                }
                if word.contains(['i', 'l']) {
                    self.findings.unsure = true;
                }
            } else if !matches!(word, "--norc" | "--noprofile" | "--posix") {
                self.findings.unsure = true;
            }
        }
        let operand = rest.get(at);
        if takes_text {
            return self.texts(operand, input, cwd);
        }
        match operand {
            Some(file) if !reads && !is_input(&file.text) => {
                if file.tainted {
                    self.found(DOWNLOADED);
                }
                self.findings.unsure = true;
                Effects::default()
            }
            _ => self.run_input(input, cwd),
        }
    }

    /// The input is executed.
    fn run_input(&mut self, input: &CommandInput, cwd: &mut Option<String>) -> Effects {
        self.findings.unsure |= input.text.is_none();
        if input.tainted {
            self.found(DOWNLOADED);
        }
        if let Some(text) = &input.text {
            return self.nested(&text.clone(), CommandInput::default(), &mut cwd.clone());
        }
        Effects { runs_input: true, ..Effects::default() }
    }

    /// Python and its like: their text is not read, only where it comes from.
    fn interpreter(&mut self, rest: &[Arg], input: &CommandInput) -> Effects {
        self.findings.unsure = true;
        let mut words = rest.iter();
        let operand = words.find(|argument| {
            let word = argument.text.as_str();
            !word.starts_with('-') || word == "-"
        });
        let given = rest.iter().any(|argument| {
            let word = argument.text.as_str();
            let letters = word.strip_prefix('-').unwrap_or_default();
            let short =
                !letters.starts_with('-') && letters.contains(['c', 'e', 'm', 'n', 'p', 'r']);
            short || matches!(word, "--eval" | "--print" | "--version" | "--help" | "--run")
        });
        let tainted = |argument: &Arg| argument.tainted;
        if given {
            // `python -c "$(curl …)"`.
            if rest.iter().take(4).any(tainted) {
                self.found(DOWNLOADED);
            }
            return Effects::default();
        }
        match operand {
            Some(file) if !is_input(&file.text) => {
                if file.tainted {
                    self.found(DOWNLOADED);
                }
                Effects::default()
            }
            _ => {
                if input.tainted {
                    self.found(DOWNLOADED);
                }
                Effects { runs_input: true, ..Effects::default() }
            }
        }
    }

    fn source(&mut self, rest: &[Arg], input: &CommandInput, cwd: &mut Option<String>) -> Effects {
        let file = rest.iter().find(|argument| !argument.text.starts_with("--"));
        if file.is_some_and(|file| is_input(&file.text)) {
            return self.run_input(input, cwd);
        }
        self.findings.unsure = true;
        if file.is_some_and(|file| file.tainted) {
            self.found(DOWNLOADED);
        }
        Effects::default()
    }

    /// Programs that give the rest of their words to a shell, after options and perhaps a host.
    fn remote(
        &mut self,
        name: &str,
        rest: &[Arg],
        input: &CommandInput,
        cwd: &mut Option<String>,
    ) -> Effects {
        self.findings.unsure = true;
        let valued = match name {
            "watch" => "-n -q --interval",
            "parallel" => "-j -a -I --jobs --arg-file",
            _ => "-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w",
        };
        let mut at = 0;
        while let Some(word) = rest.get(at).map(|argument| argument.text.as_str()) {
            if !word.starts_with('-') || word == "-" {
                break;
            }
            at += 1 + usize::from(valued.split(' ').any(|known| known == word));
        }
        let at = at + usize::from(!matches!(name, "watch" | "parallel"));
        let rest = rest.get(at..).unwrap_or_default();
        let end = rest.iter().position(|argument| argument.text.starts_with(":::"));
        let rest = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        if rest.is_empty() {
            return Effects { runs_input: true, ..Effects::default() };
        }
        self.joined(rest, input, &mut cwd.clone())
    }

    /// `su -c TEXT`, `script -c TEXT`, `flock FILE PROGRAM`.
    fn command_option(
        &mut self,
        name: &str,
        rest: &[Arg],
        run: &mut Run,
        at: usize,
        input: &CommandInput,
        cwd: &mut Option<String>,
    ) -> Effects {
        self.findings.unsure = true;
        for (index, argument) in rest.iter().enumerate() {
            let word = argument.text.as_str();
            if let Some(text) = word.strip_prefix("--command=") {
                let text = Arg { text: text.to_owned(), ..argument.clone() };
                return self.texts(Some(&text), input, cwd);
            }
            let short = word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
            if short || word == "--command" || word == "--session-command" {
                return self.texts(rest.get(index + 1), input, cwd);
            }
        }
        if name == "flock" {
            let operand = rest.iter().position(|argument| !argument.text.starts_with('-'));
            let program = operand.map_or(rest.len(), |operand| operand + 1);
            if let Some(inner) = rest.get(program..)
                && !inner.is_empty()
            {
                return self.part(inner, run, at + program, input, cwd);
            }
        }
        if matches!(name, "su" | "newgrp") {
            return self.run_input(input, cwd);
        }
        Effects::default()
    }

    /// A command that is part of another's words.
    fn part(
        &mut self,
        inner: &[Arg],
        run: &mut Run,
        at: usize,
        input: &CommandInput,
        cwd: &mut Option<String>,
    ) -> Effects {
        if self.depth >= super::DEPTH_MAX {
            let text: Vec<String> = inner.iter().map(|argument| said(&argument.text)).collect();
            self.crudely(&text.join(" "));
            return Effects::default();
        }
        self.depth += 1;
        let mut part = Run::default();
        let effects = self.through(inner, 0, &mut part, input, cwd);
        self.depth -= 1;
        run.programs.extend(part.programs.into_iter().map(|program| program + at));
        effects
    }

    /// True if a search starts at a whole system or home folder. A search by name or age may use
    /// the home folder.
    fn searches_all(&self, name: &str, rest: &[Arg], cwd: Option<&str>) -> bool {
        let starts = |argument: &&Arg| {
            let word = argument.text.as_str();
            !word.starts_with(['-', '(', '!']) || matches!(word, "-H" | "-L" | "-P")
        };
        let mut roots: Vec<String> = rest
            .iter()
            .take_while(starts)
            .map(|argument| argument.text.clone())
            .filter(|word| !word.starts_with('-'))
            .collect();
        if roots.is_empty() {
            roots.push(".".to_owned());
        }
        if name != "find" && name != "gfind" && roots.len() > 1 {
            roots.remove(0);
        }
        let place = CommandLocation { cwd, home: &self.home };
        let selects = rest.iter().any(|argument| {
            let word = argument.text.trim_start_matches('-');
            let word = word.strip_prefix('i').unwrap_or(word);
            argument.text.starts_with('-')
                && matches!(
                    word,
                    "name"
                        | "path"
                        | "regex"
                        | "newer"
                        | "wholename"
                        | "lname"
                        | "empty"
                        | "size"
                        | "mtime"
                        | "mmin"
                        | "atime"
                        | "amin"
                        | "ctime"
                        | "cmin"
                        | "samefile"
                )
        });
        let home = self.home.clone();
        roots.iter().any(|root| {
            let is_home = crate::shell::word::resolve(root, cwd).is_some_and(|path| path == home);
            is_system(root, place) && !(selects && is_home)
        })
    }

    /// `find … -delete`, `find … -exec PROGRAM … ;`, `fd … -x PROGRAM …`.
    fn find(
        &mut self,
        name: &str,
        rest: &[Arg],
        run: &mut Run,
        at: usize,
        cwd: &mut Option<String>,
    ) -> Effects {
        let whole = self.searches_all(name, rest, cwd.as_deref());
        let mut index = 0;
        while let Some(argument) = rest.get(index) {
            let word = argument.text.as_str();
            index += 1;
            if word == "-delete" && whole {
                self.found(DELETES);
            }
            let executes = matches!(
                word,
                "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec" | "--exec-batch"
            );
            if !executes {
                continue;
            }
            let tail = rest.get(index..).unwrap_or_default();
            let end = tail
                .iter()
                .position(|argument| matches!(argument.text.as_str(), ";" | "+"))
                .unwrap_or(tail.len());
            let inner = tail.get(..end).unwrap_or_default();
            let mut part = Run::default();
            let before = run.programs.len();
            self.part(inner, run, at + index, &CommandInput::default(), &mut None);
            part.programs.extend(run.programs.get(before..).unwrap_or_default());
            let removes = part.programs.iter().filter_map(|at| run.words.get(*at)).any(|program| {
                let name = super::base(program);
                matches!(
                    name,
                    "rm" | "shred" | "unlink" | "srm" | "mv" | "truncate" | "chmod" | "chown"
                )
            });
            if whole && removes {
                self.found(DELETES);
            }
            index += end;
        }
        Effects::default()
    }

    /// Aliases that are shell text, and subcommands that run what follows.
    fn git(&mut self, rest: &[Arg], cwd: &mut Option<String>) -> Effects {
        let mut texts: Vec<&str> = Vec::new();
        let mut tail: Option<usize> = None;
        for (at, argument) in rest.iter().enumerate() {
            let word = argument.text.as_str();
            let next = || rest.get(at + 1).map(|argument| argument.text.as_str());
            if word.starts_with("alias.") || word.starts_with("core.") {
                texts.extend(word.split_once('=').map(|(_, text)| text.trim_start_matches('!')));
            }
            if matches!(word, "--exec" | "-x" | "--tree-filter" | "--index-filter" | "--msg-filter")
            {
                texts.extend(next());
            }
            texts.extend(word.strip_prefix("--exec="));
            if matches!(word, "foreach" | "run") && tail.is_none() && at > 0 {
                tail = Some(at + 1);
            }
        }
        let texts: Vec<String> = texts.into_iter().map(said).collect();
        for text in texts {
            self.findings.unsure = true;
            self.nested(&text, CommandInput::default(), &mut cwd.clone());
        }
        if let Some(tail) = tail {
            self.findings.unsure = true;
            let rest = rest.get(tail..).unwrap_or_default();
            let flags = rest.iter().take_while(|argument| argument.text.starts_with('-')).count();
            self.joined(&rest[flags..], &CommandInput::default(), &mut cwd.clone());
        }
        Effects::default()
    }

    /// Builtins that change the meaning of names, or that execute subscripts.
    fn builtin(&mut self, name: &str, rest: &[Arg], _input: &CommandInput) -> Effects {
        let words: Vec<&str> = rest.iter().map(|argument| argument.text.as_str()).collect();
        let subscript = |word: &&str| word.contains("$(") || word.contains('`');
        self.findings.unsure |= match name {
            "enable" | "hash" | "shopt" => !words.is_empty(),
            "set" => words.iter().any(|word| word.starts_with(['-', '+'])),
            "unset" => false,
            "export" | "declare" | "typeset" | "readonly" | "local" => words.iter().any(|word| {
                let named =
                    crate::shell::word::Word { text: (*word).to_owned(), ..Default::default() };
                super::changes_resolution(&named) || subscript(word)
            }),
            _ => words.iter().any(subscript),
        };
        for word in words.iter().filter(|word| subscript(word)) {
            let text = said(word);
            self.nested(&format!(": \"{text}\""), CommandInput::default(), &mut None);
        }
        if name == "printf" {
            let text = ansi_c(&said(words.first().copied().unwrap_or_default()));
            let rest: Vec<String> = words.iter().skip(1).map(|word| said(word)).collect();
            let text = if text.contains("%s") && !rest.is_empty() {
                let mut out = text.replacen("%s", rest.first().map_or("", String::as_str), 1);
                for more in rest.iter().skip(1) {
                    out.push_str(&text.replacen("%s", more, 1));
                }
                out
            } else {
                text
            };
            return Effects { text: Some(text.into()), ..Effects::default() };
        }
        Effects::default()
    }

    /// `env -S 'PROGRAM …'`.
    pub(super) fn split_string(
        &mut self,
        words: &[&str],
        input: &CommandInput,
        cwd: &mut Option<String>,
    ) -> Option<Effects> {
        for (at, word) in words.iter().enumerate() {
            if !word.starts_with('-') && !is_assignment(word) {
                return None;
            }
            let separate = matches!(*word, "-S" | "--split-string");
            let text = match *word {
                "-S" | "--split-string" => words.get(at + 1).copied(),
                word => word
                    .strip_prefix("--split-string=")
                    .or_else(|| word.strip_prefix("-S"))
                    .or_else(|| word.strip_prefix("-vS"))
                    .or_else(|| word.strip_prefix("-iS")),
            };
            if let Some(text) = text {
                self.findings.unsure = true;
                let rest =
                    words.get(at + 1 + usize::from(separate)..).unwrap_or_default().join(" ");
                let text = said(&format!("env {text} {rest}"));
                return Some(self.nested(&text, input.clone(), cwd));
            }
        }
        None
    }
}

/// Names of standard input.
fn is_input(word: &str) -> bool {
    matches!(word, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

/// Output of `echo`.
fn echoed(words: &[&str]) -> String {
    let options = words.iter().take_while(|word| {
        word.len() > 1 && word.starts_with('-') && word[1..].chars().all(|c| "neE".contains(c))
    });
    let options = options.count();
    let escapes = words[..options].iter().any(|word| word.contains('e'));
    let text: Vec<String> = words[options..].iter().map(|word| said(word)).collect();
    let text = text.join(" ");
    let mut text = if escapes { ansi_c(&text) } else { text };
    text.push('\n');
    text
}
