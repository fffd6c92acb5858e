//! Scripts and commands in the arguments of programs.

use super::fed::REMOVES;
use super::taint::{Taint, runs_decoded_text};
use super::{Arg, Call, CommandInput, Effects, Run, Walker, text_of};
use crate::shell::Names;
use crate::shell::danger::{DECODED, DELETES};
use crate::shell::word::{UNKNOWN, ansi_c};
use crate::shell::wrappers::{SHELLS, is_assignment, is_interpreter};

impl Walker {
    /// Walks through scripts and commands in the arguments of a program, and returns its effects.
    pub(super) fn hidden(&mut self, call: &Call<'_>, run: &mut Run) -> Effects {
        let Call { name, rest, words, at, input } = *call;
        if let Some(effects) = self.runner(call, run) {
            return effects;
        }
        match name {
            name if SHELLS.has(name) => return self.shell(rest, input),
            name if is_interpreter(name) => return self.interpreter(rest, input),
            "eval" => return self.joined(rest, input),
            "watch" | "ssh" | "rsh" | "parallel" | "mosh" => return self.remote(call),
            "su" | "script" | "sg" | "newgrp" | "flock" | "runuser" | "capsh" => {
                return self.command_option(call, run);
            }
            "trap" => return self.texts(rest.iter().find(|word| word.text != "--"), input),
            // Runs an earlier command again.
            "fc" => self.findings.unsure = true,
            "history" if words.first() == Some(&"-s") => {
                self.findings.unsure = true;
                return self.scoped(|walker| walker.joined(&rest[1..], &CommandInput::default()));
            }
            "jobs" if words.first() == Some(&"-x") => {
                return self.part(&rest[1..], run, at + 1, input);
            }
            "alias" => {
                self.findings.unsure = true;
                for (_, text) in words.iter().filter_map(|word| word.split_once('=')) {
                    self.nested_apart(&text_of(text), CommandInput::default());
                }
            }
            "source" | "." => return self.source(rest, input),
            "cd" | "pushd" | "chdir" => self.change_folder(words),
            "popd" => self.cwd = None,
            "find" | "gfind" | "fd" | "fdfind" => self.find(call, run),
            "git" => self.git(rest),
            "at" | "batch" => match &input.text {
                Some(text) => return self.nested(text, CommandInput::default()),
                None => return Effects { runs_input: true, ..Effects::default() },
            },
            "mapfile" | "readarray" | "complete" | "compgen" | "bind" => self.callbacks(words),
            "enable" | "hash" | "shopt" | "set" | "unset" | "declare" | "typeset" | "local"
            | "export" | "readonly" | "let" | "test" | "[" | "read" | "printf" | "getopts"
            | "wait" => self.builtin(name, words),
            _ => {}
        }
        let text = match name {
            "printf" => Some(formatted(words).into()),
            "echo" => Some(echoed(words).into()),
            "tee" => input.text.clone(),
            "cat" if words.iter().all(|word| word.starts_with('-')) => input.text.clone(),
            _ => None,
        };
        Effects { text, ..Effects::default() }
    }

    /// Walks through shell text whose `cd` does not affect the commands after it.
    pub(super) fn nested_apart(&mut self, text: &str, input: CommandInput) -> Effects {
        self.scoped(|walker| walker.nested(text, input))
    }

    /// Walks through the option values of `mapfile`, `complete`, `compgen` and `bind` that are
    /// shell text.
    fn callbacks(&mut self, words: &[&str]) {
        for (option, text) in words.iter().zip(words.iter().skip(1)) {
            if matches!(*option, "-C" | "-c" | "-F" | "-W" | "-x") {
                self.findings.unsure = true;
                // A list of words is parsed as if it were quoted.
                let words = if *option == "-W" { ": " } else { "" };
                self.nested_apart(&format!("{words}{}", text_of(text)), CommandInput::default());
            }
        }
    }

    /// Walks through an argument that is shell text as a whole, such as that of `sh -c`.
    pub(super) fn texts(&mut self, argument: Option<&Arg>, input: &CommandInput) -> Effects {
        let Some(argument) = argument else { return Effects::default() };
        self.runs_unknown(argument.taint);
        self.findings.unsure |= argument.text.contains(UNKNOWN);
        let mut effects = self.nested_apart(&text_of(&argument.text), input.clone());
        effects.taint |= argument.taint;
        effects
    }

    /// Walks through arguments that form one shell text, as those of `eval` do. A `cd` in it
    /// affects the commands after it.
    fn joined(&mut self, rest: &[Arg], input: &CommandInput) -> Effects {
        // One that runs another needs no further reading, if that removes no quotes.
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let even = rest.iter().all(|argument| argument.text.chars().all(plain));
        let same = |argument: &&Arg| even && argument.text == "eval";
        let skipped = rest.iter().take_while(same).count();
        let rest = rest.get(skipped..).unwrap_or_default();
        self.runs_unknown(taint_of(rest));
        self.findings.unsure |= rest.iter().any(|argument| argument.text.contains(UNKNOWN));
        let text: Vec<String> = rest.iter().map(|argument| text_of(&argument.text)).collect();
        self.nested(&text.join(" "), input.clone())
    }

    /// Handles shells: `sh -c TEXT`, `sh FILE`, and `sh` that executes its input.
    fn shell(&mut self, rest: &[Arg], input: &CommandInput) -> Effects {
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
                at += usize::from(word.ends_with(['o', 'O']));
                self.findings.unsure |= word.contains(['i', 'l']);
            } else if !matches!(word, "--norc" | "--noprofile" | "--posix") {
                self.findings.unsure = true;
            }
        }
        let operand = rest.get(at);
        if takes_text {
            return self.texts(operand, input);
        }
        match operand {
            Some(file) if !reads && !is_input(&file.text) => {
                self.runs_unknown(file.taint);
                self.findings.unsure = true;
                Effects::default()
            }
            _ => self.run_input(input),
        }
    }

    /// Handles a program that executes its standard input.
    fn run_input(&mut self, input: &CommandInput) -> Effects {
        self.findings.unsure |= input.text.is_none();
        self.runs_unknown(input.taint);
        match &input.text {
            Some(text) => self.nested_apart(text, CommandInput::default()),
            None => Effects { runs_input: true, ..Effects::default() },
        }
    }

    /// Handles interpreters such as Python: records a danger if the program text is downloaded or
    /// decoded. Of the program text itself, it only checks if it runs text that it decodes.
    fn interpreter(&mut self, rest: &[Arg], input: &CommandInput) -> Effects {
        self.findings.unsure = true;
        let operand = rest.iter().find(|argument| {
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
        if given {
            // `python -c "$(curl …)"`.
            self.runs_unknown(taint_of(rest.get(..4).unwrap_or(rest)));
            if rest.iter().any(|argument| runs_decoded_text(&argument.text)) {
                self.found(DECODED);
            }
            return Effects::default();
        }
        match operand {
            Some(file) if !is_input(&file.text) => {
                self.runs_unknown(file.taint);
                Effects::default()
            }
            _ => {
                self.runs_unknown(input.taint);
                Effects { runs_input: true, ..Effects::default() }
            }
        }
    }

    fn source(&mut self, rest: &[Arg], input: &CommandInput) -> Effects {
        let file = rest.iter().find(|argument| !argument.text.starts_with("--"));
        if file.is_some_and(|file| is_input(&file.text)) {
            return self.run_input(input);
        }
        self.findings.unsure = true;
        self.runs_unknown(file.map_or_else(Taint::default, |file| file.taint));
        Effects::default()
    }

    /// Handles programs that pass their last words to a shell, after options and perhaps a host.
    fn remote(&mut self, call: &Call<'_>) -> Effects {
        self.findings.unsure = true;
        let (valued, has_host) = match call.name {
            "watch" => (Names("-n -q --interval"), false),
            "parallel" => (Names("-j -a -I --jobs --arg-file"), false),
            _ => (Names("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w"), true),
        };
        let mut at = 0;
        while let Some(word) =
            call.words.get(at).filter(|word| word.starts_with('-') && **word != "-")
        {
            at += 1 + usize::from(valued.has(word));
        }
        let rest = call.rest.get(at + usize::from(has_host)..).unwrap_or_default();
        let end = rest.iter().position(|argument| argument.text.starts_with(":::"));
        let rest = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        if call.name == "parallel" {
            self.fed_words(rest, call.input);
        }
        if rest.is_empty() {
            return Effects { runs_input: true, ..Effects::default() };
        }
        self.scoped(|walker| walker.joined(rest, call.input))
    }

    /// Handles `su -c TEXT`, `script -c TEXT` and `flock FILE PROGRAM`. Without a text, `su` and
    /// `newgrp` execute their input.
    fn command_option(&mut self, call: &Call<'_>, run: &mut Run) -> Effects {
        let Call { name, rest, words, at, input } = *call;
        self.findings.unsure = true;
        for (index, argument) in rest.iter().enumerate() {
            let word = argument.text.as_str();
            if let Some(text) = word.strip_prefix("--command=") {
                let text = Arg { text: text.to_owned(), ..argument.clone() };
                return self.texts(Some(&text), input);
            }
            let short = word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
            if short || word == "--command" || word == "--session-command" {
                return self.texts(rest.get(index + 1), input);
            }
        }
        if name == "flock" {
            let mut is_value = false;
            let operand = words.iter().position(|word| {
                let is_operand = !std::mem::take(&mut is_value) && !word.starts_with('-');
                let is_short = word.starts_with('-') && !word.starts_with("--");
                is_value = !is_operand
                    && (Names("--timeout --wait --conflict-exit-code").has(word)
                        || is_short && word.ends_with(['w', 'E']));
                is_operand
            });
            let program = operand.map_or(rest.len(), |operand| operand + 1);
            if let Some(inner) = rest.get(program..).filter(|inner| !inner.is_empty()) {
                return self.part(inner, run, at + program, input);
            }
        }
        if matches!(name, "su" | "newgrp") {
            return self.run_input(input);
        }
        Effects::default()
    }

    /// Walks through `inner`, a command within the words of another one, and adds its programs to
    /// `run`. `at` is the index of its first word there.
    pub(super) fn part(
        &mut self,
        inner: &[Arg],
        run: &mut Run,
        at: usize,
        input: &CommandInput,
    ) -> Effects {
        if self.depth >= super::DEPTH_MAX {
            let text: Vec<String> = inner.iter().map(|argument| text_of(&argument.text)).collect();
            self.scan_text(&text.join(" "));
            return Effects::default();
        }
        self.depth += 1;
        let mut part = Run::default();
        let effects = self.unwrap(inner, &mut part, input);
        self.depth -= 1;
        run.programs.extend(part.programs.into_iter().map(|program| program + at));
        effects
    }

    /// Handles `find … -delete`, `find … -exec PROGRAM … ;` and `fd … -x PROGRAM …`.
    fn find(&mut self, call: &Call<'_>, run: &mut Run) {
        const EXECUTES: Names = Names("-exec -execdir -ok -okdir -x -X --exec --exec-batch");
        let listing = self.searched(call.name, call.words);
        let whole = !listing.is_empty();
        let mut index = 0;
        while let Some(word) = call.words.get(index) {
            index += 1;
            if *word == "-delete" && whole {
                self.found(DELETES);
            }
            if !EXECUTES.has(word) {
                continue;
            }
            let tail = call.rest.get(index..).unwrap_or_default();
            let end = tail.iter().position(|argument| matches!(&*argument.text, ";" | "+"));
            let inner = tail.get(..end.unwrap_or(tail.len())).unwrap_or_default();
            let before = run.programs.len();
            let input = CommandInput { listing, ..CommandInput::default() };
            self.with_unknown_cwd(|walker| walker.part(inner, run, call.at + index, &input));
            let mut programs = run.programs.iter().skip(before).filter_map(|at| run.words.get(*at));
            if whole && programs.any(|program| REMOVES.has(super::base(program))) {
                self.found(DELETES);
            }
            index += inner.len();
        }
    }

    /// Handles git: options and aliases that are shell text, and subcommands that run the words
    /// after them.
    fn git(&mut self, rest: &[Arg]) {
        let mut texts: Vec<&str> = Vec::new();
        let mut tail: Option<usize> = None;
        for (at, argument) in rest.iter().enumerate() {
            let word = argument.text.as_str();
            if word.starts_with("alias.") || word.starts_with("core.") {
                texts.extend(word.split_once('=').map(|(_, text)| text.trim_start_matches('!')));
            }
            if Names("--exec -x --tree-filter --index-filter --msg-filter").has(word) {
                texts.extend(rest.get(at + 1).map(|argument| argument.text.as_str()));
            }
            texts.extend(word.strip_prefix("--exec="));
            if matches!(word, "foreach" | "run") && tail.is_none() && at > 0 {
                tail = Some(at + 1);
            }
        }
        for text in texts {
            self.findings.unsure = true;
            self.nested_apart(&text_of(text), CommandInput::default());
        }
        if let Some(tail) = tail {
            self.findings.unsure = true;
            let rest = rest.get(tail..).unwrap_or_default();
            let flags = rest.iter().take_while(|argument| argument.text.starts_with('-')).count();
            self.scoped(|walker| walker.joined(&rest[flags..], &CommandInput::default()));
        }
    }

    /// Handles builtins that change the meaning of names, or that execute substitutions in
    /// subscripts.
    fn builtin(&mut self, name: &str, words: &[&str]) {
        let subscript = |word: &&str| word.contains("$(") || word.contains('`');
        self.findings.unsure |= match name {
            "enable" | "hash" | "shopt" => !words.is_empty(),
            "set" => words.iter().any(|word| word.starts_with(['-', '+'])),
            "unset" => false,
            "export" | "declare" | "typeset" | "readonly" | "local" => {
                words.iter().any(|word| super::changes_names(word) || subscript(word))
            }
            _ => words.iter().any(subscript),
        };
        for word in words.iter().filter(|word| subscript(word)) {
            let text = format!(": \"{}\"", text_of(word));
            self.with_unknown_cwd(|walker| walker.nested(&text, CommandInput::default()));
        }
    }

    /// Handles `env -S 'PROGRAM …'`. `None` without that option.
    pub(super) fn split_string(&mut self, words: &[&str], input: &CommandInput) -> Option<Effects> {
        for (at, word) in words.iter().enumerate() {
            if !word.starts_with('-') && !is_assignment(word) {
                return None;
            }
            let separate = matches!(*word, "-S" | "--split-string");
            let text = if separate {
                words.get(at + 1).copied()
            } else {
                let options = ["--split-string=", "-S", "-vS", "-iS"];
                options.iter().find_map(|option| word.strip_prefix(option))
            };
            if let Some(text) = text {
                self.findings.unsure = true;
                let rest =
                    words.get(at + 1 + usize::from(separate)..).unwrap_or_default().join(" ");
                return Some(self.nested(&text_of(&format!("env {text} {rest}")), input.clone()));
            }
        }
        None
    }
}

/// Downloaded or decoded content in `arguments` (see [`Taint`]).
fn taint_of(arguments: &[Arg]) -> Taint {
    arguments.iter().fold(Taint::default(), |all, argument| all | argument.taint)
}

/// True if `word` names standard input.
fn is_input(word: &str) -> bool {
    matches!(word, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

/// Output of `printf` with these arguments, approximately.
fn formatted(words: &[&str]) -> String {
    let Some((format, rest)) = words.split_first() else { return String::new() };
    let format = ansi_c(&text_of(format));
    if !format.contains("%s") || rest.is_empty() {
        return format;
    }
    rest.iter().map(|word| format.replacen("%s", &text_of(word), 1)).collect()
}

/// Output of `echo` with these arguments.
fn echoed(words: &[&str]) -> String {
    let options = words.iter().take_while(|word| {
        word.len() > 1 && word.starts_with('-') && word[1..].chars().all(|c| "neE".contains(c))
    });
    let options = options.count();
    let escapes = words[..options].iter().any(|word| word.contains('e'));
    let text: Vec<String> = words[options..].iter().map(|word| text_of(word)).collect();
    let text = text.join(" ");
    let mut text = if escapes { ansi_c(&text) } else { text };
    text.push('\n');
    text
}
