//! Commands that may run without a permission request: lists and pipes of simple commands, each
//! covered by a grant or rule, whose further words are known to be harmless.

use posse_actors::ports::PathLink;

use crate::paths::is_below;
use crate::shell::Names;
use crate::shell::danger::CommandLocation;
use crate::shell::folders::Folders;
use crate::shell::links;
use crate::shell::options::{Reading, creates, spec_for};
use crate::shell::outline::{Flaw, Outline, Redirect, Scope, ShellEvent, SimpleCommand};
use crate::shell::pathspecs;
use crate::shell::sensitive::{is_sensitive, may_be_sensitive, selects_sensitive};
use crate::shell::word::{
    Form, Word, active, braces, expand_home, has_active, is_glob, is_reserved, resolve, shown,
};

/// Variables that a command may set to a plain value: they affect little but language, time zone,
/// colours and amount of output. Variables that begin with `LC_` count as well.
const INERT: [&str; 7] =
    ["TZ", "CI", "NO_COLOR", "FORCE_COLOR", "RUST_BACKTRACE", "RUST_LOG", "LANG"];

/// System files that describe the machine and never a user or a secret.
const SYSTEM_FILES: Names = Names(
    "\
    /etc/alpine-release /etc/arch-release /etc/centos-release /etc/debian_version \
    /etc/fedora-release /etc/issue /etc/lsb-release /etc/os-release /etc/redhat-release \
    /etc/system-release /etc/timezone /dev/null /proc/cpuinfo /proc/filesystems /proc/loadavg /proc/meminfo \
    /proc/uptime /proc/version /usr/lib/os-release",
);

/// Hidden folders that hold settings of services, without secrets.
const SERVICE_FOLDERS: Names = Names(".circleci .github .gitlab");

/// Access of a program to the files and folders in its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathAccess {
    /// The program reads the content of files.
    Content,
    /// The program shows names and metadata, of the entries of a folder as well.
    Names,
    /// The program shows names and metadata of everything below a folder, which outside of the
    /// workspace includes credential stores.
    Tree,
}

/// Simple command, with the results that decide if grants and rules cover it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlainCommand {
    /// Program and arguments, without transparent wrappers (`timeout TIME`, `nice -n LEVEL`) and
    /// without `--no-pager` of git.
    pub(crate) words: Vec<String>,
    /// Reason why no grant can cover the command. `None` if a grant can.
    pub(crate) barred: Option<String>,
    /// Reason why a granted prefix does not suffice: the words after it are not known to be
    /// harmless. `None` if they are, or if the program is not in the option table.
    pub(crate) acts: Option<String>,
    /// True if the option table contains the program or, for one with subcommands, program and
    /// subcommand.
    pub(crate) known: bool,
    /// Number of words that name the operation: program and subcommand, all words of a program
    /// whose operands are operations, such as `make`; 1 if `known` is false.
    pub(crate) named: usize,
    /// Number of words that name the program, if its operands name what it does, as the targets of
    /// `make`. A grant with a target then covers only further options.
    pub(crate) targets_from: Option<usize>,
    /// True if all words are literal.
    pub(crate) literal: bool,
    /// Effect of the command. [`Reading::No`] unless the tables know all its words and
    /// `barred` is `None`.
    pub(crate) reading: Reading,
    /// True if the command only creates, copies or moves files inside the workspace, and `barred`
    /// is `None`.
    pub(crate) creates: bool,
}

/// Folders and links against which the paths of a command are checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    /// The working directory and the home folder.
    pub(crate) place: CommandLocation<'a>,
    /// Roots of the workspace.
    pub(crate) roots: &'a [String],
    /// Posse's own folders. They count as outside of the workspace even if they are below a root.
    pub(crate) closed: &'a [String],
    /// Links in the paths of the command.
    pub(crate) links: &'a [PathLink],
    /// Files with the name of a secret that the command sees: absolute, resolved paths.
    pub(crate) shown: &'a [String],
}

/// End of the reason about a path with the name of a secret.
pub(crate) const MAY_HOLD_SECRETS: &str = "may hold secrets";

impl Ground<'_> {
    /// True if `path` names a file with the name of a secret that the command sees.
    fn shows(&self, path: &str) -> bool {
        let path = resolve(path, self.place.cwd);
        path.is_some_and(|path| self.shown.contains(&path))
    }
}

/// Returns the reason why no grant can cover the text as a whole: it does not parse, may be parsed
/// differently by bash, or is more than a list of simple commands. `None` if grants can.
pub(crate) fn outside(outline: &Outline) -> Option<&'static str> {
    let flaws = outline.flaws;
    if flaws.has(Flaw::Unclosed) || flaws.has(Flaw::Syntax) {
        return Some("it does not parse");
    }
    if flaws.are_doubts() {
        return Some("it can be read in more than one way");
    }
    if flaws.has(Flaw::Compound) || !outline.functions.is_empty() {
        return Some("it holds control flow, a function, a condition or arithmetic");
    }
    if flaws.has(Flaw::PipeBoth) {
        return Some("it joins errors to output");
    }
    let mut before: Option<&ShellEvent> = None;
    for event in &outline.events {
        match event {
            ShellEvent::Open(Scope::Subshell | Scope::Group)
            | ShellEvent::Close
            | ShellEvent::Run(_) => {}
            ShellEvent::Open(Scope::Substitution(_) | Scope::Reading(_) | Scope::Writing(_)) => {
                return Some("it runs a program inside of a word");
            }
            ShellEvent::Open(_) => return Some("it holds control flow"),
            ShellEvent::After(index) => {
                let redirects = outline.commands.get(*index).map(|command| &command.redirects);
                if redirects.into_iter().flatten().any(|redirect| !is_free(redirect)) {
                    return Some("it redirects a group of commands");
                }
            }
            ShellEvent::Timed if before == Some(&ShellEvent::Pipe) => {
                return Some("it times part of a pipe");
            }
            ShellEvent::Background => return Some("it leaves a program running"),
            _ => {}
        }
        if before == Some(&ShellEvent::Timed) && !matches!(event, ShellEvent::Run(_)) {
            return Some("it times no program that could be granted");
        }
        before = Some(event);
    }
    let runs = outline.events.iter().any(|event| matches!(event, ShellEvent::Run(_)));
    (!runs).then_some("it runs no program that could be granted")
}

/// Judges the simple commands of `outline`, in order.
pub(crate) fn parts(outline: &Outline, ground: Ground<'_>) -> Vec<PlainCommand> {
    let mut folders = Folders::new(ground.place.cwd.map(str::to_owned));
    let mut parts = Vec::with_capacity(outline.commands.len());
    for event in &outline.events {
        if let ShellEvent::Run(index) = event
            && let Some(command) = outline.commands.get(*index)
        {
            let judged = folders.current().iter().map(|folder| {
                let place = CommandLocation { cwd: folder.as_deref(), ..ground.place };
                part(command, Ground { place, ..ground })
            });
            // All of them have the same words; the strictest judgement counts.
            parts.extend(judged.max_by_key(|part| {
                let reads = part.reading == Reading::No;
                (part.barred.is_some(), part.acts.is_some(), reads, !part.creates)
            }));
        }
        folders.step(event, outline, |target, folder| {
            links::leads_elsewhere(target, folder, ground.links)
        });
    }
    parts
}

fn part(command: &SimpleCommand, ground: Ground<'_>) -> PlainCommand {
    let words = transparent(&command.words);
    let literals: Vec<&str> = words.iter().map_while(Word::literal).collect();
    let found = spec_for(&literals).map(|found| {
        let rest = words.get(found.spec.words.len()..).unwrap_or_default();
        (found, found.spec.judge(rest, ground).err())
    });
    // A table that only finds reading commands says nothing about others.
    let found = found.filter(|(found, acts)| found.decides || acts.is_none());
    let (spec, acts) = found.map_or((None, None), |(found, acts)| (Some(found.spec), acts));
    let mut barred = grant_obstacle(command, &words, ground);
    let named = spec.map_or(1, |spec| {
        // `make deploy` is another operation than `make test`.
        if spec.operands_are_operations() { words.len() } else { spec.words.len() }
    });
    if words.iter().take(named).any(|word| !word.is_evenly_quoted()) {
        barred.get_or_insert_with(|| "its name is not written plainly".to_owned());
    }
    let creates = spec.is_none() && barred.is_none() && creates(&words, ground);
    let goes_to_folder = spec.is_none() && is_plain_cd(&words, ground);
    let reading = match spec {
        _ if barred.is_some() || acts.is_some() => Reading::No,
        Some(spec) => spec.reading(),
        None if goes_to_folder => Reading::Plain,
        None if reads_other_repository(&words, ground) => Reading::Configured,
        None => Reading::No,
    };
    PlainCommand {
        literal: literals.len() == words.len(),
        words: words.iter().map(|word| shown(&word.text)).collect(),
        barred,
        acts,
        known: spec.is_some() || goes_to_folder,
        named: if goes_to_folder { words.len() } else { named },
        targets_from: spec
            .filter(|spec| spec.operands_are_operations())
            .map(|spec| spec.words.len()),
        reading,
        creates,
    }
}

/// True for `cd FOLDER` with a literal folder of the workspace.
fn is_plain_cd(words: &[Word], ground: Ground<'_>) -> bool {
    let [program, folder] = words else { return false };
    let is_folder = |text: &str| {
        !text.starts_with(['-', '+', '~']) && links::check(text, false, ground).is_ok()
    };
    program.literal() == Some("cd")
        && folder.literal().is_some_and(|text| !text.is_empty() && is_folder(text))
        && path(folder, PathAccess::Content, ground).is_ok()
}

/// Options of git with a file that is read. Links in it are resolved in the working directory of the
/// shell, which is another one with `git -C`.
const GIT_FILE_OPTIONS: [&str; 8] =
    ["--contents", "--exclude-from", "--ignore-revs-file", "--no-index", "-O", "-S", "-X", "-f"];

/// True for `git -C FOLDER` with a literal folder of the workspace and a command that only reads.
fn reads_other_repository(words: &[Word], ground: Ground<'_>) -> bool {
    let [program, option, folder, rest @ ..] = words else { return false };
    let is_git = program.literal() == Some("git") && option.literal() == Some("-C");
    let is_plain = option.is_written_plainly() && folder.is_written_plainly();
    let Some(text) = folder.literal().filter(|_| is_git && is_plain) else { return false };
    if text.starts_with(['-', '~']) || path(folder, PathAccess::Content, ground).is_err() {
        return false;
    }
    let Some(cwd) = resolve(text, ground.place.cwd) else { return false };
    let place = CommandLocation { cwd: Some(&cwd), ..ground.place };
    let words: Vec<Word> = std::iter::once(program).chain(rest).cloned().collect();
    let literals: Vec<&str> = words.iter().map_while(Word::literal).collect();
    let reads_file =
        |word: &Word| GIT_FILE_OPTIONS.iter().any(|option| word.text.starts_with(option));
    let Some(found) = spec_for(&literals).filter(|_| !rest.iter().any(reads_file)) else {
        return false;
    };
    let rest = words.get(found.spec.words.len()..).unwrap_or_default();
    found.spec.reading() == Reading::Configured
        && literals.len() == words.len()
        && words.iter().take(found.spec.words.len()).all(Word::is_evenly_quoted)
        && found.spec.judge(rest, Ground { place, ..ground }).is_ok()
}

/// Removes `timeout TIME`, `nice -n LEVEL` and `--no-pager` of git, which do not change the
/// operation.
fn transparent(words: &[Word]) -> Vec<Word> {
    let mut rest = words;
    loop {
        let word =
            |at: usize| rest.get(at).filter(|word| word.is_evenly_quoted()).and_then(Word::literal);
        rest = match (word(0), word(1), word(2)) {
            (Some("timeout"), Some(time), Some(_)) if is_duration(time) => &rest[2..],
            (Some("nice"), Some("-n"), Some(level))
                if !level.is_empty()
                    && level.len() < 3
                    && level.chars().all(|c| c.is_ascii_digit()) =>
            {
                &rest[3..]
            }
            (Some("git"), Some("--no-pager"), _) => {
                return rest.iter().take(1).chain(rest.iter().skip(2)).cloned().collect();
            }
            _ => return rest.to_vec(),
        };
    }
}

/// True for a duration such as `30`, `1.5` or `5m`.
fn is_duration(text: &str) -> bool {
    let number = text.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(text);
    number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_digit() || c == '.')
        && number.matches('.').count() < 2
}

/// Returns the reason why no grant can cover a simple command. `None` if a grant can.
fn grant_obstacle(command: &SimpleCommand, words: &[Word], ground: Ground<'_>) -> Option<String> {
    if let Some(word) = command.assignments.iter().find(|word| !is_inert(word)) {
        let name = word.text.split('=').next().unwrap_or_default();
        return Some(format!("it sets {name}"));
    }
    let redirects = &command.redirects;
    if let Some(why) = redirects.iter().find_map(|redirect| redirected(redirect, ground).err()) {
        return Some(why);
    }
    let Some(program) = words.first() else {
        return Some("it runs no program that could be granted".to_owned());
    };
    let name = program.literal().unwrap_or_default();
    if program.literal().is_none() || name.is_empty() {
        return Some("which program it runs is known only when it runs".to_owned());
    }
    if name.contains('/') {
        return Some(format!("{name} is a path, not the program of that name"));
    }
    if !program.is_written_plainly() {
        return Some(format!("`{}` is not written plainly", shown(&program.text)));
    }
    for word in words {
        if word.form.has(Form::CODED) {
            return Some(format!("`{}` is written in codes", shown(&word.text)));
        }
        let is_home = has_active(&word.text, &['~']) && !is_home_path(word);
        if word.is_unknown() || is_home {
            return Some("part of it is known only when it runs".to_owned());
        }
        if word.form.has(Form::ARRAY) {
            return Some("it holds an array".to_owned());
        }
    }
    None
}

/// True for `~` and `~/path`: the home folder of the user, which is known.
fn is_home_path(word: &Word) -> bool {
    let mut rest = word.text.chars();
    let begins = rest.next() == Some(active('~'));
    begins && rest.clone().next().is_none_or(|c| c == '/') && !has_active(rest.as_str(), &['~'])
}

fn is_inert(word: &Word) -> bool {
    let Some(text) = word.literal() else { return false };
    let Some((name, value)) = text.split_once('=') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.,:@+-=".contains(c);
    let zone = name == "TZ";
    let value_is_plain = value.chars().all(|c| plain(c) || (zone && c == '/'))
        && !value.contains("..")
        && !value.starts_with(['/', ':'])
        && !word.form.has_backslash();
    (INERT.contains(&name) || name.starts_with("LC_")) && value_is_plain
}

/// True for a redirection that neither reads nor writes a file, except `/dev/null`.
fn is_free(redirect: &Redirect) -> bool {
    let number = redirect.descriptor.as_deref().is_none_or(|fd| matches!(fd, "0" | "1" | "2"));
    let Some(target) = redirect.target.literal() else { return false };
    if redirect.target.form.has_backslash() || !number {
        return false;
    }
    match redirect.operator {
        ">&" | "<&" => matches!(target, "0" | "1" | "2"),
        ">" | ">>" | "&>" | "&>>" | ">|" | "<" => target == "/dev/null",
        _ => false,
    }
}

fn redirected(redirect: &Redirect, ground: Ground<'_>) -> Result<(), String> {
    if is_free(redirect) {
        return Ok(());
    }
    let target = shown(&redirect.target.text);
    match redirect.operator {
        "<" if redirect.descriptor.as_deref().is_none_or(|fd| fd == "0") => {
            let word = &redirect.target;
            if word.literal().is_none() || word.form.has_backslash() {
                return Err("what it reads is known only when it runs".to_owned());
            }
            path(word, PathAccess::Content, ground)
        }
        "<<" | "<<-" => {
            let form = redirect.target.form;
            let quoted = form.has(Form::QUOTED)
                && !form.has_backslash()
                && !form.has(Form::DOLLAR_QUOTED)
                && redirect.descriptor.is_none();
            if quoted { Ok(()) } else { Err("the text it reads is expanded first".to_owned()) }
        }
        _ => Err(format!("it redirects ({} {target})", redirect.operator)),
    }
}

/// Checks an operand of git: a version, a file, a pattern of files, or a version and a file
/// separated by a colon. Fails with the reason if it may be a secret or outside of the workspace.
pub(crate) fn version(text: &str, ground: Ground<'_>) -> Result<(), String> {
    let Some(spec) = pathspecs::read(text) else {
        // It only excludes files.
        return Ok(());
    };
    let pattern = spec.pattern.unwrap_or(text);
    // git expands patterns itself, and a backslash in them quotes. A pattern for all files of a
    // folder is the same as the folder.
    let pattern = pattern.replace('\\', "");
    let (folder, last) = pattern.rsplit_once('/').unwrap_or(("", &pattern));
    let checked = if last.chars().all(|c| c == '*') { folder } else { &pattern };
    let mut names = text.split([':', '=', ',', '@', ')']).chain([text, &pattern, checked]);
    if names.any(|name| is_sensitive(name) && !ground.shows(name)) {
        return Err(format!("{text} {MAY_HOLD_SECRETS}"));
    }
    if checked.contains(['*', '?', '[']) && selects_sensitive(checked) {
        return Err(format!("{text} may match a file with secrets"));
    }
    let leaves = text.starts_with('/') || text.split('/').any(|part| part == "..");
    if leaves && !is_inside(text, ground) {
        return Err(format!("{text} is outside of the workspace"));
    }
    links::check(text, false, ground)
}

/// Checks that `word` names files and folders to which a program may have `access`; fails with the
/// reason.
pub(crate) fn path(word: &Word, access: PathAccess, ground: Ground<'_>) -> Result<(), String> {
    braces(&word.text).iter().try_for_each(|text| path_text(text, access, ground))
}

/// Checks one path as [`path`] does: it may hold no secrets, and must lie in the workspace, unless
/// it is `-` or one of [`SYSTEM_FILES`]. With [`PathAccess::Names`] it may lie outside, but not in
/// posse's own folders.
pub(crate) fn path_text(text: &str, access: PathAccess, ground: Ground<'_>) -> Result<(), String> {
    let text = expand_home(text, ground.place.home, ground.place.cwd);
    let said = shown(&text);
    if said == "-" {
        return Ok(());
    }
    if names_other_place(&said) {
        return Err(format!("{said} may be an address instead of a file"));
    }
    let resolved = resolve(&text, ground.place.cwd)
        .ok_or_else(|| format!("the path {said} is known only when it runs"))?;
    let is_shown = ground.shown.contains(&resolved);
    if !is_shown && (is_sensitive(&shown(&resolved)) || is_sensitive(&said)) {
        return Err(format!("{said} {MAY_HOLD_SECRETS}"));
    }
    if is_glob(&resolved) && may_be_sensitive(&resolved, access != PathAccess::Content) {
        return Err(format!("{said} may match a file with secrets"));
    }
    if SYSTEM_FILES.has(&resolved) {
        return Ok(());
    }
    // A listing outside of the workspace shows names and sizes, no content.
    let anywhere = access == PathAccess::Names;
    if !is_inside(&text, ground) && (!anywhere || is_closed(&text, ground)) {
        return Err(format!("{said} is outside of the workspace"));
    }
    links::check(&text, anywhere, ground)
}

/// True if `text` begins like an address, such as `https://x` or `npm:x`, which some programs fetch
/// where others open a file of this name. Schemes as in RFC 3986, section 3.1, without those that
/// contain a dot, because that is a file name with a line number.
fn names_other_place(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-'));
    text.contains("://") || (is_scheme && !rest.starts_with(':'))
}

/// True if the path `text` lies below a root of the workspace, contains no root, and has no hidden
/// part except [`SERVICE_FOLDERS`]. Commands may read all files below such a path.
pub(crate) fn is_visible_part(text: &str, ground: Ground<'_>) -> bool {
    let text = expand_home(text, ground.place.home, ground.place.cwd);
    let Some(path) = resolve(&text, ground.place.cwd) else { return false };
    let path = shown(&path);
    let is_visible = |part: &str| !part.starts_with('.') || SERVICE_FOLDERS.has(part);
    let is_part = |root: &String| {
        let rest = path.strip_prefix(root.trim_end_matches('/'));
        let rest = rest.and_then(|rest| rest.strip_prefix('/')).filter(|rest| !rest.is_empty());
        rest.is_some_and(|rest| rest.split('/').all(is_visible))
    };
    let encloses = |root: &String| is_below(root, &path);
    ground.roots.iter().any(is_part) && !ground.roots.iter().any(encloses)
}

/// True if a word ends in a literal extension, such as `*.rs`, and has no marked characters except
/// globs: it selects only files with that extension.
pub(crate) fn has_ordinary_ending(text: &str) -> bool {
    let name = text.rsplit('/').next().unwrap_or(text);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| {
        !ending.is_empty() && ending.chars().all(|c| c.is_ascii_alphanumeric())
    }) && !text.chars().any(|c| is_reserved(c) && !is_glob(&c.to_string()))
}

/// True if the path `text` lies in the workspace and not in a closed folder. Links are not
/// followed. False if the path is known only at run time.
pub(crate) fn is_inside(text: &str, ground: Ground<'_>) -> bool {
    let Some(path) = resolve(text, ground.place.cwd) else { return false };
    let path = shown(&path);
    ground.roots.iter().any(|root| is_below(&path, root)) && !is_closed(text, ground)
}

/// True if the path `text` is in a closed folder, or is known only at run time.
pub(crate) fn is_closed(text: &str, ground: Ground<'_>) -> bool {
    let Some(path) = resolve(text, ground.place.cwd) else { return true };
    let path = shown(&path);
    ground.closed.iter().any(|closed| is_below(&path, closed))
}
