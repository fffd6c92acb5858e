//! Walks through a script: finds the programs that it runs through any wrapper, and parts that are
//! never allowed.
//!
//! Constants are not propagated through variables. Parts that are known only at run time make the
//! result unsure, which is reported.

mod coarse;
mod hidden;

use std::collections::HashMap;
use std::rc::Rc;

use crate::shell::danger::{
    CommandLocation, DOWNLOADED, Danger, FORK_BOMB, danger, globbed_program, written,
};
use crate::shell::outline::{Outline, Scope, ShellEvent, SimpleCommand};
use crate::shell::reader;
use crate::shell::word::{Form, HOME, PWD, UNKNOWN, Word, braces, homed, resolve, shown};
use crate::shell::wrappers::{DOWNLOADERS, wrapper_named};

/// Maximum nesting of scripts in words; deeper ones get the coarse check.
const DEPTH_MAX: usize = 48;
/// Characters that are read again because they hide a script, beyond a multiple of the whole.
const AGAIN_MIN: usize = 1 << 16;
const AGAIN_TIMES: usize = 12;
/// Bytes of output that are followed.
const TEXT_BYTES_MAX: usize = 1 << 14;
/// Words that one command may become by brace lists.
const WORDS_MAX: usize = 1 << 16;

/// A simple command with the names that it runs under.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    /// Its words.
    pub(crate) words: Vec<String>,
    /// Indices of the programs: wrappers and the programs they run.
    pub(crate) programs: Vec<usize>,
}

/// Effects of a script, as far as the text shows.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// All simple commands that run.
    pub(crate) runs: Vec<Run>,
    /// Redirection targets and assigned values.
    pub(crate) files: Vec<String>,
    /// Files that it writes by a redirection.
    pub(crate) written: Vec<String>,
    /// The first thing that is never allowed.
    pub(crate) danger: Option<Danger>,
    /// True if programs outside of `runs` may run.
    pub(crate) unsure: bool,
}

/// Looks through `outline`, the reading of `text`.
pub(crate) fn walk(outline: &Outline, text: &str, cwd: &str, home: &str) -> Findings {
    let mut walker = Walker {
        findings: Findings::default(),
        home: home.to_owned(),
        again: AGAIN_MIN + AGAIN_TIMES * text.len(),
        depth: 0,
        functions: HashMap::new(),
        calls: Vec::new(),
    };
    if coarse::calls_itself(text) {
        walker.found(FORK_BOMB);
    }
    walker.script(outline, CommandInput::default(), &mut Some(cwd.to_owned()));
    if walker.breeds() {
        walker.found(FORK_BOMB);
    }
    walker.findings
}

/// Standard input of a command.
#[derive(Debug, Clone, Default)]
struct CommandInput {
    /// Data from the network.
    tainted: bool,
    /// Known text.
    text: Option<Rc<str>>,
}

/// Output of a command.
#[derive(Debug, Clone, Default)]
struct Effects {
    /// Its output comes from the network.
    downloads: bool,
    /// It executes its input.
    runs_input: bool,
    /// Known text of its output.
    text: Option<Rc<str>>,
}

/// A word as an argument: homes and lists are in place, globs are marked.
#[derive(Debug, Clone)]
struct Arg {
    text: String,
    /// Contains downloaded data.
    tainted: bool,
    /// May be several words, or none.
    splits: bool,
}

struct Walker {
    findings: Findings,
    home: String,
    again: usize,
    depth: usize,
    functions: HashMap<String, Effects>,
    /// Call graph of functions; true for calls that multiply.
    calls: Vec<(String, String, bool)>,
}

/// A working directory, if it is known.
#[derive(Debug, Clone)]
struct KnownFolder(Option<String>);

/// Open construct of the walk.
struct Level {
    scope: Option<Scope>,
    /// The whole of it so far.
    all: Effects,
    /// The stage of a pipeline that is being walked.
    stage: Effects,
    /// Output of earlier pipeline stages.
    piped: Option<CommandInput>,
    input: CommandInput,
    /// The folder to go back to.
    back: Option<KnownFolder>,
    /// Calls of functions in the pipeline.
    self_calls: Vec<usize>,
    /// The function that it is part of.
    function: Option<Rc<str>>,
}

impl Level {
    fn new(scope: Option<Scope>, input: CommandInput, back: Option<KnownFolder>) -> Level {
        Level {
            scope,
            all: Effects::default(),
            stage: Effects::default(),
            piped: None,
            input,
            back,
            self_calls: Vec::new(),
            function: None,
        }
    }

    /// Standard input of a command at this level.
    fn reads(&self) -> CommandInput {
        self.piped.clone().unwrap_or_else(|| self.input.clone())
    }

    fn end_stage(&mut self, pipes: bool) {
        let stage = std::mem::take(&mut self.stage);
        let before = self.piped.take();
        self.all.downloads |= stage.downloads;
        self.all.runs_input |= stage.runs_input && before.is_none();
        if pipes {
            let read = before.as_ref().unwrap_or(&self.input);
            let tainted = stage.downloads || read.tainted;
            self.piped = Some(CommandInput { tainted, text: stage.text });
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

/// One outline being walked.
struct Pass<'a> {
    outline: &'a Outline,
    /// Substitutions that contain downloaded data.
    tainted: Vec<bool>,
    /// Process substitutions that execute their input.
    writing: Vec<bool>,
    levels: Vec<Level>,
}

impl Pass<'_> {
    fn open(&mut self, scope: &Scope, cwd: Option<&String>) {
        let Some(level) = self.levels.last() else { return };
        let substitution =
            matches!(scope, Scope::Substitution(_) | Scope::Reading(_) | Scope::Writing(_));
        let apart = substitution || matches!(scope, Scope::Function(_));
        let input = if apart { CommandInput::default() } else { level.reads() };
        let restores = substitution || *scope == Scope::Subshell;
        let back = restores.then(|| KnownFolder(cwd.cloned()));
        let function = match scope {
            Scope::Function(name) => Some(name.as_str().into()),
            _ => level.function.clone(),
        };
        self.levels.push(Level { function, ..Level::new(Some(scope.clone()), input, back) });
    }

    fn end_stage(&mut self, pipes: bool) {
        let Some(level) = self.levels.last_mut() else { return };
        level.end_stage(pipes);
        if !pipes {
            level.self_calls.clear();
        }
    }

    fn scene(&self) -> Scene<'_> {
        Scene { outline: self.outline, tainted: &self.tainted, writing: &self.writing }
    }
}

impl Walker {
    fn found(&mut self, danger: Danger) {
        self.findings.danger.get_or_insert(danger);
    }

    fn script(
        &mut self,
        outline: &Outline,
        input: CommandInput,
        cwd: &mut Option<String>,
    ) -> Effects {
        if outline.flaws.are_doubts() {
            self.findings.unsure = true;
        }
        for text in &outline.unread {
            self.crudely(text);
        }
        let mut pass = Pass {
            outline,
            tainted: coarse::taints(outline),
            writing: vec![false; outline.substitutions],
            levels: vec![Level::new(None, input, None)],
        };
        for (at, event) in outline.events.iter().enumerate() {
            match event {
                ShellEvent::Open(scope) => pass.open(scope, cwd.as_ref()),
                ShellEvent::Close => self.closed(&mut pass, cwd),
                ShellEvent::Run(index) => self.ran(&mut pass, at, *index, cwd),
                ShellEvent::After(index) => self.redirected(&mut pass, *index, cwd),
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

    /// End of an enclosing construct.
    fn closed(&mut self, pass: &mut Pass<'_>, cwd: &mut Option<String>) {
        let Some(mut closed) = pass.levels.pop() else { return };
        closed.end_stage(false);
        if let Some(KnownFolder(saved)) = closed.back.take() {
            *cwd = saved;
        }
        match closed.scope {
            Some(Scope::Substitution(id) | Scope::Reading(id)) => {
                if let Some(tainted) = pass.tainted.get_mut(id) {
                    *tainted |= closed.all.downloads;
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
                level.stage.downloads |= closed.all.downloads;
                level.stage.runs_input |= closed.all.runs_input;
                level.stage.text = closed.all.text;
            }
        }
    }

    /// A simple command runs.
    fn ran(&mut self, pass: &mut Pass<'_>, at: usize, index: usize, cwd: &mut Option<String>) {
        let outline = pass.outline;
        let (Some(command), Some(level)) = (outline.commands.get(index), pass.levels.last()) else {
            return;
        };
        let next = outline.events.get(at + 1);
        // Each stage of a pipeline has a working directory of its own.
        let piped = level.piped.is_some() || next == Some(&ShellEvent::Pipe);
        let input = level.reads();
        let mut place = cwd.clone();
        let effects = self.command(command, &pass.scene(), input, &mut place);
        if !piped {
            *cwd = place;
        }
        let Some(level) = pass.levels.last_mut() else { return };
        if let Some(function) = level.function.clone() {
            let background = next == Some(&ShellEvent::Background);
            self.call(&function, command, level, piped, background);
        }
        level.stage = effects;
    }

    /// The redirections behind a compound command.
    fn redirected(&mut self, pass: &mut Pass<'_>, index: usize, cwd: &mut Option<String>) {
        let outline = pass.outline;
        let (Some(command), Some(level)) = (outline.commands.get(index), pass.levels.last()) else {
            return;
        };
        let input = level.reads();
        let effects = self.command(command, &pass.scene(), input, cwd);
        let Some(level) = pass.levels.last_mut() else { return };
        let runs = level.stage.runs_input || level.all.runs_input;
        if effects.downloads && runs && fed(command, &pass.tainted) {
            self.found(DOWNLOADED);
        }
        level.stage.downloads |= effects.downloads;
    }

    /// Remembers that a function calls another, or itself.
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

    /// True for a function that multiplies itself.
    fn breeds(&self) -> bool {
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

    /// One simple command with its input.
    fn command(
        &mut self,
        command: &SimpleCommand,
        scene: &Scene<'_>,
        mut input: CommandInput,
        cwd: &mut Option<String>,
    ) -> Effects {
        let here = cwd.clone();
        let place = CommandLocation { cwd: here.as_deref(), home: &self.home };
        let mut dangers: Vec<Danger> = Vec::new();
        let mut taints = false;
        for redirect in &command.redirects {
            let tainted = scene.is_tainted(&redirect.target);
            let body = redirect.body.and_then(|body| scene.outline.bodies.get(body)?.as_ref());
            if redirect.feeds() && redirect.operator != "<&" {
                let tainted = tainted || body.is_some_and(|body| scene.is_tainted(body));
                let text = match redirect.operator {
                    "<<<" => Some(said(&redirect.target.text).into()),
                    "<<" | "<<-" => body.map(|body| said(&body.text).into()),
                    _ => None,
                };
                input = CommandInput { tainted, text };
                taints |= tainted;
            } else if redirect.writes() {
                self.findings.written.push(shown(&redirect.target.text));
                let text = homed(&redirect.target.text, &self.home, cwd.as_deref());
                dangers.extend(braces(&text).iter().find_map(|text| written(text, place)));
            }
        }
        let mut arguments = Vec::new();
        for word in &command.words {
            let tainted = scene.is_tainted(word);
            for text in braces(&word.text) {
                if arguments.len() >= WORDS_MAX {
                    self.findings.unsure = true;
                    break;
                }
                arguments.push(Arg {
                    text: homed(&text, &self.home, cwd.as_deref()),
                    tainted,
                    splits: word.form.has(Form::SPLITS),
                });
            }
        }
        for danger in dangers {
            self.found(danger);
        }
        let targets = command.redirects.iter().map(|redirect| &redirect.target);
        let named = targets.chain(&command.assignments).map(|word| shown(&word.text));
        self.findings.files.extend(named);
        if command.assignments.iter().any(changes_resolution) {
            self.findings.unsure = true;
        }
        let mut effects = self.run(&arguments, &input, cwd);
        let words = command.words.iter();
        let writing =
            words.clone().chain(command.redirects.iter().map(|redirect| &redirect.target));
        let feeds_runner = writing
            .flat_map(|word| &word.substitutions)
            .any(|id| scene.writing.get(*id).copied().unwrap_or_default());
        if feeds_runner && (effects.downloads || input.tainted) {
            self.found(DOWNLOADED);
        }
        effects.downloads |= taints || arguments.iter().any(|argument| argument.tainted);
        effects
    }

    /// The words of a command, through all wrappers.
    fn run(
        &mut self,
        arguments: &[Arg],
        input: &CommandInput,
        cwd: &mut Option<String>,
    ) -> Effects {
        let mut run = Run {
            words: arguments.iter().map(|argument| shown(&argument.text)).collect(),
            programs: Vec::new(),
        };
        let effects = self.through(arguments, 0, &mut run, input, cwd);
        if !run.words.is_empty() {
            self.findings.runs.push(run);
        }
        effects
    }

    fn through(
        &mut self,
        arguments: &[Arg],
        from: usize,
        run: &mut Run,
        input: &CommandInput,
        cwd: &mut Option<String>,
    ) -> Effects {
        let mut at = from;
        let mut result = Effects::default();
        let all: Vec<&str> = arguments.iter().map(|argument| argument.text.as_str()).collect();
        while let Some(first) = arguments.get(at) {
            if first.tainted && first.text.contains(UNKNOWN) {
                // The program itself was downloaded.
                self.found(DOWNLOADED);
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
            if crate::shell::word::is_glob(&first.text) {
                self.findings.unsure = true;
            }
            let name = base(&text).to_owned();
            let rest = arguments.get(at + 1..).unwrap_or_default();
            let words = all.get(at + 1..).unwrap_or_default();
            let place = CommandLocation { cwd: cwd.as_deref(), home: &self.home };
            if let Some(wrapper) = wrapper_named(&name) {
                let looks_up = name == "command"
                    && words
                        .first()
                        .is_some_and(|word| word.starts_with('-') && word.contains(['v', 'V']));
                if looks_up {
                    return result;
                }
                let (skipped, sure) = wrapper.program(words.iter().copied());
                self.findings.unsure |= !sure;
                if name == "env"
                    && let Some(effects) = self.split_string(words, input, cwd)
                {
                    return effects;
                }
                if name == "xargs" {
                    self.fed_by_xargs(words.get(skipped..).unwrap_or_default(), input);
                }
                at += 1 + skipped;
                continue;
            }
            if let Some(danger) = danger(&name, words, place) {
                self.found(danger);
            }
            if DOWNLOADERS.has(name.as_str()) {
                result.downloads = true;
            }
            if let Some(effects) = self.functions.get(&name) {
                result.downloads |= effects.downloads;
                if effects.runs_input && input.tainted {
                    self.found(DOWNLOADED);
                }
            }
            let hidden = self.hidden(&name, rest, run, at + 1, input, cwd);
            result.downloads |= hidden.downloads;
            result.runs_input |= hidden.runs_input;
            result.text = hidden.text;
            break;
        }
        result
    }

    /// A program whose last words are what `xargs` reads.
    fn fed_by_xargs(&mut self, words: &[&str], input: &CommandInput) {
        if input.tainted && coarse::is_open_shell(words) {
            self.found(DOWNLOADED);
        }
        self.findings.unsure |= words.first().is_none_or(|word| word.contains(UNKNOWN));
    }

    /// Shell text inside of words.
    fn nested(&mut self, text: &str, input: CommandInput, cwd: &mut Option<String>) -> Effects {
        if self.depth >= DEPTH_MAX || self.again < text.len() {
            self.findings.unsure = true;
            self.crudely(text);
            return Effects::default();
        }
        self.again -= text.len();
        self.depth += 1;
        let outline = reader::read(text);
        let effects = self.script(&outline, input, cwd);
        self.depth -= 1;
        effects
    }

    fn crudely(&mut self, text: &str) {
        self.findings.unsure = true;
        if let Some(danger) = coarse::danger(text, &self.home) {
            self.found(danger);
        }
    }

    /// `cd` and its like.
    fn change_folder(&self, words: &[&str], cwd: &mut Option<String>) {
        let target = words.iter().copied().find(|word| !word.starts_with('-') || *word == "-");
        *cwd = match target {
            None => Some(self.home.clone()),
            Some("-") => None,
            Some(word) if crate::shell::word::is_glob(word) => None,
            Some(word) => resolve(word, cwd.as_deref()),
        };
    }
}

/// Context of a command's words.
struct Scene<'a> {
    outline: &'a Outline,
    tainted: &'a [bool],
    writing: &'a [bool],
}

impl Scene<'_> {
    fn is_tainted(&self, word: &Word) -> bool {
        word.substitutions.iter().any(|id| self.tainted.get(*id).copied().unwrap_or_default())
    }
}

/// True if standard input comes from a download.
fn fed(command: &SimpleCommand, tainted: &[bool]) -> bool {
    command.redirects.iter().filter(|redirect| redirect.feeds()).any(|redirect| {
        let ids = &redirect.target.substitutions;
        ids.iter().any(|id| tainted.get(*id).copied().unwrap_or_default())
    })
}

/// Text as a shell would read it, with unknown parts as a variable.
fn said(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            UNKNOWN => out.push_str("${_}"),
            HOME => out.push_str("$HOME"),
            PWD => out.push_str("$PWD"),
            c => out.push(c),
        }
    }
    if out.chars().any(crate::shell::word::is_reserved) { shown(&out) } else { out }
}

/// Assignments after which a name may mean another program.
fn changes_resolution(word: &Word) -> bool {
    let name = word.text.split(['=', '+']).next().unwrap_or_default();
    matches!(
        name,
        "PATH"
            | "BASH_ENV"
            | "ENV"
            | "IFS"
            | "SHELLOPTS"
            | "BASHOPTS"
            | "LD_PRELOAD"
            | "LD_LIBRARY_PATH"
            | "PROMPT_COMMAND"
            | "PS4"
            | "POSIXLY_CORRECT"
            | "BASH_CMDS"
            | "BASH_ALIASES"
    ) || name.starts_with("BASH_FUNC_")
}

/// The name of a program, without its folder.
pub(crate) fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}
