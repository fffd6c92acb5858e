//! Walk through a script: finds the programs that it runs, also through the known wrappers, and
//! parts that are never allowed.
//!
//! Constants are not propagated through variables. Parts that are known only at run time make the
//! result unsure, which is reported.

mod coarse;
mod fed;
mod hidden;
mod runners;
mod taint;
mod written;

use std::collections::HashMap;
use std::rc::Rc;

use crate::shell::danger::{
    CommandLocation, Danger, FORK_BOMB, globbed_program, program_danger, written,
};
use crate::shell::outline::{Outline, Scope, ShellEvent, SimpleCommand};
use crate::shell::word::{
    Form, HOME, PWD, UNKNOWN, Word, braces, expand_home, is_glob, is_reserved, resolve, shown,
};
use crate::shell::wrappers::{folder_of, wrapper_named};
use crate::shell::{Names, reader};

use fed::SystemListing;
use taint::Taint;
pub(crate) use written::MovedFiles;

/// Maximum nesting of scripts in words. Deeper scripts get the coarse check.
const DEPTH_MAX: usize = 48;
/// Nested scripts are parsed up to a total of `AGAIN_MIN` + `AGAIN_TIMES` * the length of the
/// command, in bytes; beyond it they get the coarse check.
const AGAIN_MIN: usize = 1 << 16;
const AGAIN_TIMES: usize = 12;
/// Maximum size in bytes of the joined outputs of commands in a list, such as several `echo`. An
/// output that would exceed it is left out.
const TEXT_BYTES_MAX: usize = 1 << 14;
/// Maximum number of substitutions in a command whose output is used as names of files. Further
/// ones are ignored.
const SUBSTITUTIONS_MAX: usize = 8;
/// Maximum number of words of a command after brace expansion. Further words are left out, and the
/// result is unsure.
const WORDS_MAX: usize = 1 << 16;

/// Maximum number of nested scripts that are recorded.
const SCRIPTS_MAX: usize = 64;

/// Script in the words of a command, such as those of `sh -c` and `eval`.
#[derive(Debug)]
pub(crate) struct NestedScript {
    pub(crate) outline: Outline,
    /// Index in [`Outline::commands`] of the whole text of the command that contains the script.
    pub(crate) command: usize,
    /// Folder in which it runs. `None` if it is unknown.
    pub(crate) cwd: Option<String>,
}

/// Simple command, and the programs in its words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    /// Words of the command, without marks.
    pub(crate) words: Vec<String>,
    /// Indices in `words` of the programs: wrappers and the programs that they run.
    pub(crate) programs: Vec<usize>,
}

/// Commands, files and the first danger of a script, as far as the text shows.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// All simple commands that run.
    pub(crate) runs: Vec<Run>,
    /// Scripts in the words of commands, at most [`SCRIPTS_MAX`], inner ones before outer ones.
    pub(crate) scripts: Vec<NestedScript>,
    /// True if scripts are missing in `scripts`.
    pub(crate) lacks_scripts: bool,
    /// Redirection targets, and assignments `NAME=value`.
    pub(crate) files: Vec<String>,
    /// Files that the script writes, as its words name them.
    pub(crate) written: Vec<String>,
    /// Files that the script moves.
    pub(crate) moved: Vec<MovedFiles>,
    /// First danger, for which the command is never allowed. `None` if none was found.
    pub(crate) danger: Option<Danger>,
    /// True if programs that are not in `runs` may run.
    pub(crate) unsure: bool,
    /// First reason why a program may do something else than its words seem to say.
    pub(crate) unclear: Option<String>,
}

/// Walks through `outline`, which was parsed from `text`, and returns its findings.
pub(crate) fn walk(outline: &Outline, text: &str, cwd: &str, home: &str) -> Findings {
    let mut walker = Walker {
        findings: Findings::default(),
        home: home.to_owned(),
        cwd: Some(cwd.to_owned()),
        again: AGAIN_MIN + AGAIN_TIMES * text.len(),
        depth: 0,
        command: 0,
        functions: HashMap::new(),
        calls: Vec::new(),
    };
    if coarse::calls_itself(text) {
        walker.found(FORK_BOMB);
    }
    walker.script(outline, CommandInput::default());
    if walker.is_fork_bomb() {
        walker.found(FORK_BOMB);
    }
    walker.findings
}

/// Standard input of a command.
#[derive(Debug, Clone, Default)]
struct CommandInput {
    /// Downloaded or decoded content in the input (see [`Taint`]).
    taint: Taint,
    /// Text of the input. `None` if it is unknown.
    text: Option<Rc<str>>,
    /// Whole system or home folders whose files the input names.
    listing: SystemListing,
}

/// Effects of a command on the commands around it: its output, and the execution of its input.
#[derive(Debug, Clone, Default)]
struct Effects {
    /// Downloaded or decoded content in the output (see [`Taint`]).
    taint: Taint,
    /// True if the command executes its standard input, and the text of it was not judged.
    runs_input: bool,
    /// Text of the output. `None` if it is unknown.
    text: Option<Rc<str>>,
    /// Whole system or home folders whose files the output names.
    listing: SystemListing,
}

/// Argument of a command, after brace and home expansion. Globs are still marked.
#[derive(Debug, Clone)]
struct Arg {
    text: String,
    /// Downloaded or decoded content in the argument (see [`Taint`]).
    taint: Taint,
    /// True if it may become several words, or none, at run time.
    splits: bool,
    /// True if it contains the variable with the folder for temporary files.
    is_temporary: bool,
}

/// A program with its arguments and its input.
struct Call<'a> {
    name: &'a str,
    rest: &'a [Arg],
    /// The texts of `rest`.
    words: &'a [&'a str],
    /// Index of the first of `rest` in the words of the command.
    at: usize,
    input: &'a CommandInput,
}

struct Walker {
    findings: Findings,
    home: String,
    /// Working directory. `None` if it is unknown.
    cwd: Option<String>,
    again: usize,
    depth: usize,
    /// Index of the current command of the whole text.
    command: usize,
    functions: HashMap<String, Effects>,
    /// Call graph of functions: caller, callee, and true for a call that multiplies processes.
    calls: Vec<(String, String, bool)>,
}

/// Working directory that a construct restores when it ends. `None` if it was unknown.
#[derive(Debug, Clone)]
struct KnownFolder(Option<String>);

/// Enclosing construct that the walk has entered and not left.
#[derive(Default)]
struct Level {
    scope: Option<Scope>,
    /// Effects of its commands so far.
    all: Effects,
    /// Effects of the current stage of a pipeline.
    stage: Effects,
    /// Output of the earlier stages of the current pipeline. `None` in the first stage.
    piped: Option<CommandInput>,
    input: CommandInput,
    /// Working directory to restore at the end. `None`: the construct does not restore it.
    back: Option<KnownFolder>,
    /// Indices in [`Walker::calls`] of the calls in the current pipeline.
    self_calls: Vec<usize>,
    /// Name of the function whose body contains the construct.
    function: Option<Rc<str>>,
}

impl Level {
    /// Returns the standard input of a command at this level.
    fn reads(&self) -> CommandInput {
        self.piped.clone().unwrap_or_else(|| self.input.clone())
    }

    fn end_stage(&mut self, pipes: bool) {
        let stage = std::mem::take(&mut self.stage);
        let before = self.piped.take();
        self.all.taint |= stage.taint;
        self.all.listing |= stage.listing;
        self.all.runs_input |= stage.runs_input && before.is_none();
        if pipes {
            let read = before.as_ref().unwrap_or(&self.input);
            let taint = stage.taint | read.taint;
            let listing = stage.listing;
            self.piped = Some(CommandInput { taint, text: stage.text, listing });
        } else {
            self.all.text = match (self.all.text.take(), stage.text) {
                (Some(before), Some(more)) if before.len() + more.len() <= TEXT_BYTES_MAX => {
                    Some(format!("{before}{more}").into())
                }
                (one, other) => one.or(other),
            };
        }
    }
}

/// State of the walk through one outline.
struct Pass<'a> {
    outline: &'a Outline,
    /// Downloaded or decoded content in each substitution (see [`Taint`]).
    taints: Vec<Taint>,
    /// Output of each substitution that has been walked through.
    outputs: Vec<CommandInput>,
    /// For each substitution, true if it is a `>(…)` that executes its input.
    writing: Vec<bool>,
    levels: Vec<Level>,
}

impl Pass<'_> {
    fn open(&mut self, scope: &Scope, cwd: Option<&str>) {
        let Some(level) = self.levels.last() else { return };
        let substitution =
            matches!(scope, Scope::Substitution(_) | Scope::Reading(_) | Scope::Writing(_));
        let apart = substitution || matches!(scope, Scope::Function(_));
        let input = if apart { CommandInput::default() } else { level.reads() };
        let restores = substitution || *scope == Scope::Subshell;
        let back = restores.then(|| KnownFolder(cwd.map(str::to_owned)));
        let function = match scope {
            Scope::Function(name) => Some(name.as_str().into()),
            _ => level.function.clone(),
        };
        self.levels.push(Level {
            scope: Some(scope.clone()),
            input,
            back,
            function,
            ..Level::default()
        });
    }

    fn end_stage(&mut self, pipes: bool) {
        let Some(level) = self.levels.last_mut() else { return };
        level.end_stage(pipes);
        if !pipes {
            level.self_calls.clear();
        }
    }

    /// Downloaded or decoded content in `word` (see [`Taint`]).
    fn taint(&self, word: &Word) -> Taint {
        let taints = word.substitutions.iter().filter_map(|id| self.taints.get(*id));
        taints.fold(Taint::default(), |all, taint| all | *taint)
    }

    /// Downloaded or decoded content that `command` reads by redirections (see [`Taint`]).
    fn taint_of_input(&self, command: &SimpleCommand) -> Taint {
        let redirects = command.redirects.iter().filter(|redirect| redirect.feeds());
        redirects.fold(Taint::default(), |all, redirect| all | self.taint(&redirect.target))
    }
}

impl Walker {
    fn found(&mut self, danger: Danger) {
        self.findings.danger.get_or_insert(danger);
    }

    /// Records the danger of executing text with this taint.
    fn runs_unknown(&mut self, taint: Taint) {
        if let Some(danger) = taint.danger() {
            self.found(danger);
        }
    }

    /// Runs `walk`, and restores the working directory afterwards.
    fn scoped<T>(&mut self, walk: impl FnOnce(&mut Walker) -> T) -> T {
        let cwd = self.cwd.clone();
        let result = walk(self);
        self.cwd = cwd;
        result
    }

    /// Runs `walk` in an unknown working directory.
    fn with_unknown_cwd<T>(&mut self, walk: impl FnOnce(&mut Walker) -> T) -> T {
        self.scoped(|walker| {
            walker.cwd = None;
            walk(walker)
        })
    }

    fn script(&mut self, outline: &Outline, input: CommandInput) -> Effects {
        if outline.flaws.are_doubts() {
            self.findings.unsure = true;
        }
        for text in &outline.unread {
            self.scan_text(text);
        }
        let mut pass = Pass {
            outline,
            taints: coarse::taints(outline),
            outputs: vec![CommandInput::default(); outline.substitutions],
            writing: vec![false; outline.substitutions],
            levels: vec![Level { input, ..Level::default() }],
        };
        for (at, event) in outline.events.iter().enumerate() {
            match event {
                ShellEvent::Open(scope) => pass.open(scope, self.cwd.as_deref()),
                ShellEvent::Close => self.closed(&mut pass),
                ShellEvent::Run(index) => self.run_simple_command(&mut pass, at, *index),
                ShellEvent::After(index) => self.redirected(&mut pass, *index),
                ShellEvent::Pipe => pass.end_stage(true),
                ShellEvent::And | ShellEvent::Or | ShellEvent::End | ShellEvent::Background => {
                    pass.end_stage(false);
                }
                ShellEvent::Timed | ShellEvent::Not => {}
            }
        }
        let Some(mut root) = pass.levels.into_iter().next() else { return Effects::default() };
        root.end_stage(false);
        root.all
    }

    /// Leaves an enclosing construct: restores the working directory, and passes its effects on.
    fn closed(&mut self, pass: &mut Pass<'_>) {
        let Some(mut closed) = pass.levels.pop() else { return };
        closed.end_stage(false);
        if let Some(KnownFolder(saved)) = closed.back.take() {
            self.cwd = saved;
        }
        match closed.scope {
            Some(Scope::Substitution(id) | Scope::Reading(id)) => {
                if let Some(taint) = pass.taints.get_mut(id) {
                    *taint |= closed.all.taint;
                }
                if let Some(output) = pass.outputs.get_mut(id) {
                    output.text = closed.all.text;
                    output.listing = closed.all.listing;
                }
            }
            Some(Scope::Writing(id)) => {
                if let Some(runs) = pass.writing.get_mut(id) {
                    *runs |= closed.all.runs_input;
                }
            }
            Some(Scope::Function(name)) => {
                self.functions.insert(name, closed.all);
            }
            _ => {
                let Some(level) = pass.levels.last_mut() else { return };
                level.stage.taint |= closed.all.taint;
                level.stage.runs_input |= closed.all.runs_input;
                level.stage.text = closed.all.text;
                level.stage.listing = closed.all.listing;
            }
        }
    }

    /// Walks through the simple command with this index; `at` is the index of its event.
    fn run_simple_command(&mut self, pass: &mut Pass<'_>, at: usize, index: usize) {
        let outline = pass.outline;
        let (Some(command), Some(level)) = (outline.commands.get(index), pass.levels.last()) else {
            return;
        };
        if self.depth == 0 {
            self.command = index;
        }
        let next = outline.events.get(at + 1);
        // Each stage of a pipeline has a working directory of its own.
        let piped = level.piped.is_some() || next == Some(&ShellEvent::Pipe);
        let input = level.reads();
        let effects = if piped {
            self.scoped(|walker| walker.command(command, pass, input))
        } else {
            self.command(command, pass, input)
        };
        let Some(level) = pass.levels.last_mut() else { return };
        if let Some(function) = level.function.clone() {
            let background = next == Some(&ShellEvent::Background);
            self.call(&function, command, level, piped, background);
        }
        level.stage = effects;
    }

    /// Handles the redirections after a compound command.
    fn redirected(&mut self, pass: &mut Pass<'_>, index: usize) {
        let outline = pass.outline;
        let (Some(command), Some(level)) = (outline.commands.get(index), pass.levels.last()) else {
            return;
        };
        if self.depth == 0 {
            self.command = index;
        }
        let input = level.reads();
        let effects = self.command(command, pass, input);
        let fed = pass.taint_of_input(command);
        let Some(level) = pass.levels.last_mut() else { return };
        if level.stage.runs_input || level.all.runs_input {
            self.runs_unknown(fed);
        }
        level.stage.taint |= effects.taint;
    }

    /// Records in [`Walker::calls`] that the function `from` calls the program of `command`. The
    /// call multiplies processes if it has no arguments and is in a pipeline or in the background,
    /// or if the pipeline calls the program twice.
    fn call(
        &mut self,
        from: &str,
        command: &SimpleCommand,
        level: &mut Level,
        piped: bool,
        background: bool,
    ) {
        let Some(program) = command.words.first() else { return };
        let bare = command.words.len() == 1;
        let more = bare && (piped || background);
        self.calls.push((from.to_owned(), program.text.clone(), more));
        level.self_calls.push(self.calls.len() - 1);
        let same =
            |call: &usize| self.calls.get(*call).is_some_and(|(_, to, _)| *to == program.text);
        // Twice in one pipeline: each makes two.
        if piped
            && level.self_calls.iter().filter(|call| same(call)).count() > 1
            && let Some(last) = self.calls.last_mut()
        {
            last.2 = true;
        }
    }

    /// True if a function calls itself, directly or through others, in a way that multiplies
    /// processes. Calls through others are searched among the first 512 calls between functions.
    fn is_fork_bomb(&self) -> bool {
        const EDGES_MAX: usize = 512;
        let edges: Vec<_> = self
            .calls
            .iter()
            .filter(|(from, to, _)| {
                self.functions.contains_key(to) && self.functions.contains_key(from)
            })
            .collect();
        if edges.iter().any(|(from, to, more)| *more && from == to) {
            return true;
        }
        let Some(edges) = edges.get(..edges.len().min(EDGES_MAX)) else { return false };
        edges.iter().filter(|(_, _, more)| *more).any(|(from, to, _)| {
            let mut open = vec![to];
            let mut seen = vec![to];
            while let Some(here) = open.pop() {
                if here == from {
                    return true;
                }
                for (_, next, _) in edges.iter().filter(|(from, _, _)| from == here) {
                    if !seen.contains(&next) {
                        seen.push(next);
                        open.push(next);
                    }
                }
            }
            false
        })
    }

    /// Walks through one simple command with its standard input.
    fn command(
        &mut self,
        command: &SimpleCommand,
        pass: &Pass<'_>,
        mut input: CommandInput,
    ) -> Effects {
        let place = CommandLocation { cwd: self.cwd.as_deref(), home: &self.home };
        let mut taints = Taint::default();
        for redirect in &command.redirects {
            let taint = pass.taint(&redirect.target);
            let body = redirect.body.and_then(|body| pass.outline.bodies.get(body)?.as_ref());
            if redirect.feeds() && redirect.operator != "<&" {
                let taint = body.map_or(taint, |body| taint | pass.taint(body));
                let text = match redirect.operator {
                    "<<<" => Some(text_of(&redirect.target.text).into()),
                    "<<" | "<<-" => body.map(|body| text_of(&body.text).into()),
                    _ => None,
                };
                input = CommandInput { taint, text, listing: SystemListing::default() };
                taints |= taint;
            } else if redirect.writes() {
                self.findings.written.push(shown(&redirect.target.text));
                let text = expand_home(&redirect.target.text, place.home, place.cwd);
                if let Some(danger) = braces(&text).iter().find_map(|text| written(text, place)) {
                    self.findings.danger.get_or_insert(danger);
                }
            }
        }
        let mut arguments = Vec::new();
        for word in &command.words {
            let (taint, splits) = (pass.taint(word), word.form.has(Form::SPLITS));
            let is_temporary = word.form.has(Form::TEMPORARY);
            for text in braces(&word.text) {
                if arguments.len() >= WORDS_MAX {
                    self.findings.unsure = true;
                    break;
                }
                let text = expand_home(&text, place.home, place.cwd);
                arguments.push(Arg { text, taint, splits, is_temporary });
            }
        }
        let targets = command.redirects.iter().map(|redirect| &redirect.target);
        let named = targets.clone().chain(&command.assignments).map(|word| shown(&word.text));
        self.findings.files.extend(named);
        self.findings.unsure |= command.assignments.iter().any(|word| changes_names(&word.text));
        self.assigned(command.assignments.iter().map(|word| word.text.as_str()));
        let substitutions = command.words.iter().flat_map(|word| &word.substitutions);
        for output in substitutions.take(SUBSTITUTIONS_MAX) {
            if let Some(output) = pass.outputs.get(*output) {
                self.fed_words(&arguments, output);
            }
        }
        let mut effects = self.run(&arguments, &input);
        let feeds_runner = (command.words.iter().chain(targets))
            .flat_map(|word| &word.substitutions)
            .any(|id| pass.writing.get(*id).copied().unwrap_or_default());
        if feeds_runner {
            self.runs_unknown(effects.taint | input.taint);
        }
        effects.taint |= arguments.iter().fold(taints, |all, argument| all | argument.taint);
        effects
    }

    /// Records a command, and walks through the programs in its words.
    fn run(&mut self, arguments: &[Arg], input: &CommandInput) -> Effects {
        let words = arguments.iter().map(|argument| shown(&argument.text)).collect();
        let mut run = Run { words, programs: Vec::new() };
        let effects = self.unwrap(arguments, &mut run, input);
        if !run.words.is_empty() {
            self.findings.runs.push(run);
        }
        effects
    }

    fn unwrap(&mut self, arguments: &[Arg], run: &mut Run, input: &CommandInput) -> Effects {
        let cwd = self.cwd.clone();
        let mut changes_folder = false;
        let effects = self.unwrapped(arguments, run, input, &mut changes_folder);
        if changes_folder {
            self.cwd = cwd;
        }
        effects
    }

    /// Like [`Walker::unwrap`]. Sets `changes_folder` if a wrapper has changed the working folder,
    /// which the caller restores.
    fn unwrapped(
        &mut self,
        arguments: &[Arg],
        run: &mut Run,
        input: &CommandInput,
        changes_folder: &mut bool,
    ) -> Effects {
        let mut at = 0;
        let mut feeds = false;
        let all: Vec<&str> = arguments.iter().map(|argument| argument.text.as_str()).collect();
        while let Some(first) = arguments.get(at) {
            if first.text.contains(UNKNOWN) {
                // The program itself may be downloaded or decoded.
                self.runs_unknown(first.taint);
            }
            if first.text.contains([UNKNOWN, HOME, PWD]) {
                self.findings.unsure = true;
                if first.splits && first.text.chars().all(|c| c == UNKNOWN) {
                    // Nothing may be left of it.
                    at += 1;
                    continue;
                }
            }
            run.programs.push(at);
            let text =
                globbed_program(&first.text).map_or_else(|| shown(&first.text), str::to_owned);
            self.findings.unsure |= is_glob(&first.text);
            let name = base(&text);
            let rest = arguments.get(at + 1..).unwrap_or_default();
            let words = all.get(at + 1..).unwrap_or_default();
            let Some(wrapper) = wrapper_named(name) else {
                if feeds {
                    self.fed(name, words, input);
                }
                return self.program(&Call { name, rest, words, at: at + 1, input }, run);
            };
            let looks_up = |word: &&str| word.starts_with('-') && word.contains(['v', 'V']);
            if name == "command" && words.first().is_some_and(looks_up) {
                break;
            }
            let (skipped, sure) = wrapper.program(words.iter().copied());
            if !sure {
                self.findings.unsure = true;
                self.findings.unclear.get_or_insert_with(|| {
                    format!(
                        "posse does not know all options of `{name}`, so it may run another program"
                    )
                });
            }
            self.assigned(words.get(..skipped).unwrap_or_default().iter().copied());
            if let Some(folder) = folder_of(name, words.get(..skipped).unwrap_or_default()) {
                *changes_folder = true;
                self.change_folder(&[folder]);
            }
            if name == "env"
                && let Some(effects) = self.split_string(words, input)
            {
                return effects;
            }
            if name == "xargs" {
                // The last words of the program are what it reads.
                let words = words.get(skipped..).unwrap_or_default();
                if coarse::is_open_shell(words) {
                    self.runs_unknown(input.taint);
                }
                self.findings.unsure |= words.first().is_none_or(|word| word.contains(UNKNOWN));
                feeds = true;
                self.replaced(&arguments[at + 1..], skipped, input);
            }
            at += 1 + skipped;
        }
        Effects::default()
    }

    /// Notes an assignment among `words` that changes what the words of programs mean.
    fn assigned<'w>(&mut self, mut words: impl Iterator<Item = &'w str>) {
        if let Some(word) = words.find(|word| changes_meaning(word)) {
            let name = shown(word.split(['=', '+']).next().unwrap_or_default());
            let reason = format!("`{name}` changes what the words of programs mean");
            self.findings.unclear.get_or_insert(reason);
        }
    }

    /// Walks through a program that is not a wrapper.
    fn program(&mut self, call: &Call<'_>, run: &mut Run) -> Effects {
        let place = CommandLocation { cwd: self.cwd.as_deref(), home: &self.home };
        if let Some(danger) = program_danger(call.name, call.words, place) {
            self.found(danger);
        }
        if call.words.iter().any(|word| word.contains(UNKNOWN)) {
            // The loop around it may read the names: `while read`.
            self.fed(call.name, call.words, call.input);
        }
        if Names("export declare typeset readonly local").has(call.name) {
            self.assigned(call.words.iter().copied());
        }
        self.writes(call);
        let listing = self.listing(call);
        let mut taint = Taint::of_program(call.name, call.words.iter().copied());
        if let Some(effects) = self.functions.get(call.name) {
            taint |= effects.taint;
            if effects.runs_input {
                self.runs_unknown(call.input.taint);
            }
        }
        let mut effects = self.hidden(call, run);
        effects.taint |= taint;
        effects.listing |= listing;
        effects
    }

    /// Walks through shell text that a word contains. Text beyond the limits gets the coarse check.
    fn nested(&mut self, text: &str, input: CommandInput) -> Effects {
        if self.depth >= DEPTH_MAX || self.again < text.len() {
            self.findings.unsure = true;
            self.findings.lacks_scripts = true;
            self.scan_text(text);
            return Effects::default();
        }
        self.again -= text.len();
        self.depth += 1;
        let outline = reader::read(text);
        let cwd = self.cwd.clone();
        let effects = self.script(&outline, input);
        self.depth -= 1;
        if self.findings.scripts.len() < SCRIPTS_MAX {
            let command = self.command;
            self.findings.scripts.push(NestedScript { outline, command, cwd });
        } else {
            self.findings.lacks_scripts = true;
        }
        effects
    }

    fn scan_text(&mut self, text: &str) {
        self.findings.unsure = true;
        if let Some(danger) = coarse::text_danger(text, &self.home) {
            self.found(danger);
        }
    }

    /// Sets the working directory as `cd` does with the arguments `words`.
    fn change_folder(&mut self, words: &[&str]) {
        let target = words.iter().copied().find(|word| !word.starts_with('-') || *word == "-");
        self.cwd = match target {
            None => Some(self.home.clone()),
            Some("-") => None,
            Some(word) if is_glob(word) => None,
            Some(word) => resolve(word, self.cwd.as_deref()),
        };
    }
}

/// Converts the text of a word to shell text. Unknown parts become a variable.
fn text_of(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            UNKNOWN => out.push_str("${_}"),
            HOME => out.push_str("$HOME"),
            PWD => out.push_str("$PWD"),
            c => out.push(c),
        }
    }
    if out.chars().any(is_reserved) { shown(&out) } else { out }
}

/// True for an assignment after which the name of a program may mean another program.
fn changes_names(assignment: &str) -> bool {
    const NAMES: Names = Names(
        "PATH BASH_ENV ENV IFS SHELLOPTS BASHOPTS LD_PRELOAD LD_LIBRARY_PATH PROMPT_COMMAND PS4 \
        POSIXLY_CORRECT BASH_CMDS BASH_ALIASES",
    );
    let name = assignment.split(['=', '+']).next().unwrap_or_default();
    NAMES.has(name) || name.starts_with("BASH_FUNC_")
}

/// True if a word of the form `NAME=value` changes how programs read their options, gives git settings such
/// as aliases, or makes git read file names as patterns or work in another tree.
fn changes_meaning(assignment: &str) -> bool {
    const TREES: Names = Names("GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE GIT_PREFIX");
    let name = assignment.split(['=', '+']).next().unwrap_or_default();
    name == "POSIXLY_CORRECT"
        || name.starts_with("GIT_CONFIG")
        || name.starts_with("GIT_") && name.ends_with("_PATHSPECS")
        || TREES.has(name)
}

/// Returns the name of a program without its folder.
pub(crate) fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}
