//! Paths that the words of a command name, and what the command does with them as far as its words
//! tell. For deny rules: a word counts as a path even if the program may take it for something else.

mod patterns;
mod texts;
mod values;

use std::collections::BTreeSet;
use std::rc::Rc;

use posse_actors::text::clipped;

use crate::shell::allow::Ground;
use crate::shell::danger::CommandLocation;
use crate::shell::destinations::{
    TransferKind, folders_of_command, inner_commands, of_command, sed_files, sed_scripts,
};
use crate::shell::effects::{checks_out, destroys};
use crate::shell::folders::Folders;
use crate::shell::links::rest_behind;
use crate::shell::options::spec_for;
use crate::shell::outline::{Outline, ShellEvent, SimpleCommand};
use crate::shell::pathspecs::PathspecSettings;
use crate::shell::places::{Place, Places, below, joined};
use crate::shell::walk::{Findings, Run, base};
use crate::shell::word::{UNKNOWN, active, braces, expand_home, is_glob, resolve, shown};
use crate::shell::wrappers::{is_interpreter, wrapper_named};
use crate::shell::{Judged, Names, outputs, pathspecs};

use values::{all_values, ancestors, home_paths, known_parts, path_ends, whole_values};

/// Programs whose operands name operations, texts or packages. An operand without a slash and a dot
/// is no path for them.
const NAMES_OPERATIONS: Names = Names(
    "\
    bazel bun cargo ctest deno docker dotnet echo go gradle jest just kill make mvn ninja npm npx pip \
    pip3 pnpm podman poetry printf rake tox type uv vitest which yarn meson",
);
/// Programs that print their words. In a word with blanks, only the whole is a path for them.
const NAMES_TEXTS: Names = Names("echo printf");
/// Maximum number of paths that a path had before a command gave files other names. Further ones are
/// left out.
const EARLIER_MAX: usize = 64;
/// Maximum number of characters that are shown of the word that names a path.
const WORD_CHARS_MAX: usize = 200;
/// Maximum length of a path, as on Linux.
const PATH_BYTES_MAX: usize = 4096;

/// Maximum number of folders in which the words of nested scripts are resolved.
const FOLDERS_MAX: usize = 32;

/// Options of these programs whose value, the next word, is a folder or file.
const PATH_OPTIONS: Names = Names("-C -f --cwd --dir --directory --file --prefix");
/// Options of programs whose value is the folder in which they open the other paths.
const FOLDER_OPTIONS: Names =
    Names("-C --chdir --cwd --dir --directory --manifest-dir --prefix --project-dir --workdir");
/// Programs whose option `-C` is a number of lines.
const SEARCHES: Names = Names("ack ag diff egrep fgrep grep rg zgrep");
/// Programs that change, delete or move files that their operands name, beside those that
/// [`destroys`] knows.
const CHANGES: Names = Names(
    "\
    bunzip2 bzip2 chattr chgrp chmod chown gunzip gzip patch rename rmdir setfacl setfattr unxz \
    unzstd xz zstd",
);
/// Maximum number of paths of a command. Instead of further ones, one of unknown use is added.
const PATHS_MAX: usize = 4096;

/// Use of a path by a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathUse {
    /// A word names it.
    Named,
    /// It is copied or linked, with everything in it.
    Copied,
    /// It is written or created.
    Written,
    /// It is moved, deleted or changed, with everything in it.
    Removed,
}

/// Certainty that a command uses a path as a [`NamedPath`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathCertainty {
    /// Its words say so.
    Certain,
    /// It uses a path that only the run shows, which may be this one.
    Possible,
    /// It uses a path that may be any one.
    AnyPath,
}

/// Path that a command names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedPath {
    /// Absolute path, with active characters as globs.
    pub(crate) path: String,
    /// The word that names it, for a person.
    pub(crate) word: String,
    pub(crate) usage: PathUse,
    pub(crate) certainty: PathCertainty,
    /// Roots of the workspace.
    pub(crate) roots: Rc<[String]>,
}

/// Paths that the command `judged` names, if it runs in the working directory of `ground`.
pub(crate) fn paths(judged: &Judged, ground: Ground<'_>) -> Vec<NamedPath> {
    let (cwd, home) = (ground.place.cwd.unwrap_or("/"), ground.place.home);
    let script = (&judged.outline, &judged.findings);
    let places = outputs::named(script, cwd, home, Places::resolved(ground.links));
    let mut found = Finder::new(ground, cwd, places);
    found.script(&judged.outline, &judged.findings);
    found.paths
}

/// Makes `places` record the paths that must be resolved before [`paths`] finds all paths that
/// `outline` names. `place`: the working directory, and the home folder of the user.
pub(crate) fn ask(
    outline: &Outline,
    findings: &Findings,
    (cwd, home): (&str, &str),
    places: Places<'_>,
) {
    let place = CommandLocation { cwd: Some(cwd), home };
    let ground = Ground { place, roots: &[], closed: &[], links: &[], shown: &[] };
    let mut found = Finder::new(ground, cwd, places);
    found.script(outline, findings);
}

/// Paths found so far.
struct Finder<'a> {
    ground: Ground<'a>,
    cwd: &'a str,
    /// Links and new names in the paths of the command.
    places: Places<'a>,
    /// True if a program of the command may execute what another one prints.
    runs_output: bool,
    /// Settings of git for the whole command.
    pathspecs: PathspecSettings,
    /// True while the names that patterns match are not looked at for the words themselves.
    expands: bool,
    /// Use of the paths that variables and loops may give to commands: the strictest one of a path
    /// that only the run shows.
    unknown_use: PathUse,
    /// Path of the link that the current command makes. To name it there is no use of its target.
    own_link: Option<String>,
    /// True if a path that a command opens, or a part of it, is known only when the command runs.
    uses_variables: bool,
    /// Values of variables as paths. Only the run shows what they are used for.
    assigned: BTreeSet<String>,
    paths: Vec<NamedPath>,
    /// The same paths, each with its use and certainty.
    known: BTreeSet<(String, PathUse, PathCertainty)>,
}

impl<'a> Finder<'a> {
    fn new(ground: Ground<'a>, cwd: &'a str, places: Places<'a>) -> Finder<'a> {
        Finder {
            ground,
            cwd,
            places,
            runs_output: false,
            pathspecs: PathspecSettings::default(),
            expands: false,
            unknown_use: PathUse::Named,
            own_link: None,
            uses_variables: false,
            assigned: BTreeSet::new(),
            paths: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Adds all paths that the words of `outline` name, with the `findings` in it.
    fn script(&mut self, outline: &Outline, findings: &Findings) {
        let cwd = self.cwd;
        // `xargs` is not the innermost program, and counts as well.
        let mut all = findings.runs.iter().flat_map(|run| {
            run.programs.iter().filter_map(|at| run.words.get(*at)).map(|name| base(name))
        });
        self.runs_output = all.any(|name| is_interpreter(name) || name == "xargs");
        let words = findings.runs.iter().flat_map(|run| &run.words);
        // An assignment may be exported later.
        let settings = words.clone().chain(&findings.files).map(String::as_str);
        let settings = settings.filter(|word| !word.starts_with('-'));
        self.pathspecs = PathspecSettings::default().with(settings);
        self.push(cwd.to_owned(), cwd, PathUse::Named, PathCertainty::Certain);
        if words.clone().any(|word| word.contains("nocaseglob")) {
            // Patterns of the shell then match names in upper and lower case.
            self.any_path("nocaseglob", PathUse::Removed);
        }
        self.outline(outline, cwd);
        self.expands = true;
        for script in &findings.scripts {
            let folders = BTreeSet::from([cwd, script.cwd.as_deref().unwrap_or(cwd)]);
            for folder in folders {
                self.outline(&script.outline, folder);
            }
        }
        self.expands = false;
        let links = self.ground.links;
        let written = outputs::written((outline, findings), cwd, self.ground.place.home, links);
        for path in &written.paths {
            let path = path.trim_end_matches("/.");
            self.add(path, cwd, &shown(path), PathUse::Written);
        }
        if written.is_open {
            self.any_path(cwd, PathUse::Written);
        }
        self.nested(outline, findings);
        self.guess();
    }

    /// Adds the words of the commands of `outline`, which begins in the folder `cwd`, and its other
    /// words.
    fn outline(&mut self, outline: &Outline, cwd: &str) {
        let mut folders = Folders::new(Some(cwd.to_owned()));
        for event in &outline.events {
            if let ShellEvent::Run(index) | ShellEvent::After(index) = event
                && let Some(command) = outline.commands.get(*index)
            {
                for folder in folders.current() {
                    let folder = folder.as_deref().unwrap_or(cwd);
                    self.command(command, folder);
                    self.bodies(command, outline, folder);
                }
            }
            folders.step(event, outline, |_, _| false);
        }
        let expands = std::mem::replace(&mut self.expands, true);
        for literal in &outline.literals {
            for text in braces(&literal.word.text) {
                for folder in folders.earlier().chain([cwd]) {
                    self.word(&text, folder, PathUse::Named, literal.is_value);
                }
            }
        }
        self.expands = expands;
    }

    /// Adds a possible use of each path that the command names: it uses a path like that, which only
    /// the run shows.
    fn guess(&mut self) {
        let usage = self.unknown_use;
        let named = self.paths.iter().filter(|path| path.usage < usage && path.path != self.cwd);
        let named: Vec<(String, String)> =
            named.map(|path| (path.path.clone(), path.word.clone())).collect();
        for (path, word) in named {
            self.push(path, &word, usage, PathCertainty::Possible);
        }
        let is_used = self.uses_variables;
        let usage = usage.max(PathUse::Copied);
        for path in std::mem::take(&mut self.assigned).into_iter().filter(|_| is_used) {
            let word = shown(&path);
            self.push(path, &word, usage, PathCertainty::Possible);
        }
    }

    /// Adds `path` as it is.
    fn push(&mut self, path: String, word: &str, usage: PathUse, certainty: PathCertainty) {
        if self.paths.len() > PATHS_MAX || !self.known.insert((path.clone(), usage, certainty)) {
            return;
        }
        let is_full = self.paths.len() == PATHS_MAX;
        let (usage, certainty) =
            if is_full { (PathUse::Removed, PathCertainty::AnyPath) } else { (usage, certainty) };
        let word = clipped(word, WORD_CHARS_MAX, "…");
        self.paths.push(NamedPath { path, word, usage, certainty, roots: Rc::default() });
    }

    /// Adds a use of a path that may be any one, which `word` names.
    fn any_path(&mut self, word: &str, usage: PathUse) {
        self.push(self.cwd.to_owned(), word, usage, PathCertainty::AnyPath);
    }

    /// Adds the absolute path `path`, in which `..` is kept, as its text says and as the kernel resolves
    /// it for a program in the folder `own`, with the paths behind the links through which it leads.
    fn add(&mut self, path: &str, own: &str, word: &str, usage: PathUse) {
        if self.paths.len() > PATHS_MAX {
            return;
        }
        let Some(place) = self.places.place(path, own) else { return };
        if self.expands {
            self.places.expands(path);
        } else {
            self.places.opens(path);
        }
        let by_text = resolve(path, None);
        let at = match place {
            Place::Descriptor(_) => return,
            Place::Path(at) => Some(at),
            Place::Unknown => {
                self.any_path(word, usage);
                None
            }
        };
        let mut all = self.behind_links(path);
        if let Some(at) = at.filter(|at| at != path) {
            self.places.opens(&at);
            all.extend(self.behind_links(&at));
            all.push(at);
        }
        if let Some(by_text) = by_text.filter(|text| text != path) {
            self.places.opens(&by_text);
            all.extend(self.behind_links(&by_text));
            all.push(by_text);
        }
        all.push(path.to_owned());
        // A file that is written under a new name is among the files that the list writes.
        if usage != PathUse::Written {
            self.add_earlier(&mut all, word, usage);
        }
        for path in all {
            self.push(path, word, usage, PathCertainty::Certain);
        }
    }

    /// Adds to `all` the paths of the same files before the command gave them other names.
    fn add_earlier(&mut self, all: &mut Vec<String>, word: &str, usage: PathUse) {
        let mut at = 0;
        while let Some(path) = all.get(at).cloned() {
            at += 1;
            for name in self.places.renamed.clone() {
                let Some(rest) = below(&path, &name.to) else { continue };
                let Some(from) = name.from else {
                    if name.is_link && self.own_link.as_deref() != Some(&path) {
                        self.any_path(word, usage);
                    }
                    continue;
                };
                let earlier = format!("{from}{rest}");
                if all.len() > EARLIER_MAX || all.contains(&earlier) {
                    continue;
                }
                self.places.opens(&earlier);
                all.extend(self.behind_links(&earlier));
                // A file that was copied stays as it is.
                if !(name.is_copy && usage == PathUse::Removed) {
                    all.push(earlier);
                }
            }
        }
    }

    /// Paths to which `path` leads through links behind which it has no `..`.
    fn behind_links(&self, path: &str) -> Vec<String> {
        if !is_glob(path) {
            return self.places.behind(path);
        }
        let behind = self.ground.links.iter().filter_map(|link| {
            let rest = rest_behind(&link.path, path)?;
            let target = link.target.as_deref()?.trim_end_matches('/');
            let climbs = rest.split('/').any(|part| part == "..");
            let whole = || if rest.is_empty() { target.into() } else { format!("{target}/{rest}") };
            (!climbs).then(whole)
        });
        behind.collect()
    }

    /// Adds the words and redirections of `command` in `folder`.
    fn command(&mut self, command: &SimpleCommand, folder: &str) {
        for redirect in &command.redirects {
            for target in braces(&redirect.target.text) {
                self.word(&target, folder, PathUse::Named, true);
                if redirect.writes() {
                    self.uses_unknown(&target, folder, PathUse::Written);
                }
            }
        }
        let assigned = command.assignments.iter().flat_map(|word| braces(&word.text));
        for text in assigned.collect::<Vec<_>>() {
            self.word(&text, folder, PathUse::Named, false);
            let value = text.split_once('=').map(|(_, value)| value);
            if let Some(path) = value.and_then(|value| joined(value, Some(folder))) {
                self.places.opens(&path);
                self.assigned.extend(self.behind_links(&path));
                self.assigned.insert(path);
            }
        }
        let words: Vec<_> = command.words.iter().flat_map(|word| braces(&word.text)).collect();
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        self.words(&words, folder);
        for inner in inner_commands(&words) {
            let words: Vec<&str> = inner.words.iter().map(String::as_str).collect();
            self.words(&words, folder);
        }
    }

    /// Notes that the command writes or removes the path `text`, if only the run shows it, and adds its
    /// known parts.
    fn uses_unknown(&mut self, text: &str, folder: &str, usage: PathUse) {
        if text.contains(UNKNOWN) {
            self.uses_variables = true;
            self.unknown_use = self.unknown_use.max(usage);
            self.values([text], text, folder, (usage, true));
        }
    }

    /// Adds the paths in the here-documents of `command`, if its program may execute them.
    fn bodies(&mut self, command: &SimpleCommand, outline: &Outline, folder: &str) {
        let numbers = command.redirects.iter().filter_map(|redirect| redirect.body);
        let bodies = numbers.filter_map(|number| outline.bodies.get(number)?.as_ref());
        for body in bodies.filter(|_| self.runs_output).collect::<Vec<_>>() {
            self.word(&body.text, folder, PathUse::Named, false);
        }
    }

    /// Adds the words of a command that begins in `folder`.
    fn words(&mut self, words: &[&str], folder: &str) {
        let mut inner = folder.to_owned();
        for to in folders_of_command(words) {
            self.word(to, &inner, PathUse::Named, true);
            let to = expand_home(to, self.ground.place.home, Some(&inner));
            inner = joined(&to, Some(&inner)).unwrap_or(inner);
        }
        let at = program_at(words);
        let after = words.get(at..).unwrap_or_default();
        let Some((program, arguments)) = after.split_first() else { return };
        let name = base(program);
        let takes_names = !NAMES_OPERATIONS.has(name);
        let named = spec_for(after).map_or(1, |found| found.spec.words.len());
        let shown_words: Vec<String> = arguments.iter().map(|word| shown(word)).collect();
        // `dd` changes only the file after `of=`, which counts as written.
        let is_changed = name != "dd" && destroys(name, &shown_words).is_some();
        let is_changed = is_changed || CHANGES.has(name) || checks_out(name, &shown_words);
        let usage = if is_changed { PathUse::Removed } else { PathUse::Named };
        let texts = texts::positions(name, arguments);
        let settings = self.pathspecs.with(words.iter().copied());
        let arguments_with_folders = if SEARCHES.has(name) { &[] } else { arguments };
        let folders = self.folders(arguments_with_folders, folder, &inner);
        self.own_link = self.made_link(words, &inner);
        for (index, word) in words.iter().enumerate() {
            let is_name = index >= at && index < at + named && !word.contains('/');
            let is_text = index.checked_sub(at + 1).is_some_and(|index| texts.contains(&index));
            if is_name || is_text {
                continue;
            }
            let before = index.checked_sub(1).map(|before| words[before]);
            let is_value = before.is_some_and(|before| PATH_OPTIONS.has(before));
            let takes_names = takes_names || is_value;
            self.uses_variables |= takes_names && word.contains(UNKNOWN);
            if name == "git" {
                self.git_word(word, [folder, &inner], (usage, takes_names), settings);
                continue;
            }
            for folder in folders.iter().map(String::as_str) {
                if NAMES_TEXTS.has(name) && !self.runs_output && word.contains(char::is_whitespace)
                {
                    self.values(whole_values(word), word, folder, (usage, takes_names));
                } else {
                    self.word(word, folder, usage, takes_names);
                }
                if matches!(name, "sed" | "gsed") {
                    let files = sed_files(word).into_iter().map(|(_, file)| file);
                    self.values(files, word, folder, (usage, true));
                }
            }
            if is_changed {
                self.uses_unknown(word, &inner, PathUse::Removed);
            }
        }
        if matches!(name, "sed" | "gsed") {
            for script in sed_scripts(arguments) {
                let files = sed_files(script).into_iter().map(|(_, file)| file);
                self.values(files, script, &inner, (usage, true));
            }
        }
        self.own_link = None;
        self.written(words, &inner);
        self.transfer(words, &inner);
    }

    /// Path of the link that the command `words` makes in the folder `inner`. `None` for other commands.
    fn made_link(&self, words: &[&str], inner: &str) -> Option<String> {
        let makes_links = |kind| matches!(kind, TransferKind::Link | TransferKind::LinkFromHere);
        let transfer = of_command(words).transfer.filter(|transfer| makes_links(transfer.kind))?;
        joined(&expand_home(transfer.to, self.ground.place.home, Some(inner)), Some(inner))
    }

    /// Adds what a command in the folder `inner` writes to paths that only the run shows.
    fn written(&mut self, words: &[&str], inner: &str) {
        let written = of_command(words);
        for file in &written.files {
            self.uses_unknown(file, inner, PathUse::Written);
        }
        let Some(transfer) = written.transfer else { return };
        self.uses_unknown(transfer.to, inner, PathUse::Written);
        for source in transfer.sources {
            if transfer.kind == TransferKind::Move {
                self.uses_unknown(source, inner, PathUse::Removed);
            }
        }
    }

    /// Folders to which the paths of a command with `arguments` may be relative, beside `folder` and
    /// `inner`: the values of options such as `-C`.
    fn folders(&self, arguments: &[&str], folder: &str, inner: &str) -> Vec<String> {
        let mut folders = vec![folder.to_owned(), inner.to_owned()];
        for (at, word) in arguments.iter().enumerate() {
            let value = match word.split_once('=') {
                Some((option, value)) => Some(value).filter(|_| FOLDER_OPTIONS.has(option)),
                None if FOLDER_OPTIONS.has(word) => arguments.get(at + 1).copied(),
                None => word.strip_prefix("-C"),
            };
            let value = value.map(|to| expand_home(to, self.ground.place.home, Some(inner)));
            let to = value.and_then(|to| joined(&to, Some(inner)));
            folders.extend(to.filter(|to| !folders.contains(to)));
        }
        folders
    }

    /// Adds the paths that a word of git may name in `folders`: of the shell, and of git.
    fn git_word(
        &mut self,
        word: &str,
        folders: [&str; 2],
        (usage, takes_names): (PathUse, bool),
        settings: PathspecSettings,
    ) {
        if settings.changes_meaning && pathspecs::is_special(word) {
            self.any_path(word, usage.max(PathUse::Copied));
        }
        let Some(spec) = pathspecs::read(word) else { return };
        let expands = std::mem::replace(&mut self.expands, false);
        // A path from the root of the work tree does not lead above it.
        let may_be_from_root = !word.starts_with("..");
        let from_root = self.ground.roots.iter().map(String::as_str).filter(|_| may_be_from_root);
        let mut places: Vec<String> =
            folders.into_iter().chain(from_root).map(str::to_owned).collect();
        if word.contains(':') {
            // Paths of a version are relative to the root of the repository, which may be above.
            let above = places.iter().flat_map(|folder| ancestors(folder)).map(str::to_owned);
            places.extend(above.collect::<Vec<_>>());
        }
        places.sort();
        places.dedup();
        let mut forms = pathspecs::forms(word);
        if let Some(pattern) = spec.pattern {
            forms.extend(pathspecs::forms(pattern));
        }
        for folder in &places {
            for form in &forms {
                self.word(form, folder, usage, takes_names);
                if let Some(pattern) = pathspecs::wider(form) {
                    let usage = usage.max(PathUse::Copied);
                    self.values([&*pattern], word, folder, (usage, takes_names));
                }
                if settings.ignores_case || spec.ignores_case {
                    let pattern = pathspecs::in_any_case(form);
                    self.values(all_values(&pattern), word, folder, (usage, takes_names));
                }
            }
        }
        self.expands = expands;
    }

    /// Adds what a command in the folder `inner` copies, moves or links.
    fn transfer(&mut self, words: &[&str], inner: &str) {
        let Some(transfer) = of_command(words).transfer else { return };
        let usage = match transfer.kind {
            TransferKind::Move => PathUse::Removed,
            _ => PathUse::Copied,
        };
        // The text of a symbolic link is read in the folder of the link.
        let to = expand_home(transfer.to, self.ground.place.home, Some(inner));
        let to = joined(&to, Some(inner)).filter(|_| transfer.kind == TransferKind::Link);
        let above = to.as_deref().and_then(|to| to.rsplit_once('/')).map(|(above, _)| above);
        // It is read before the link exists.
        let renamed = std::mem::take(&mut self.places.renamed);
        for source in &transfer.sources {
            for folder in [Some(inner), to.as_deref(), above].into_iter().flatten() {
                self.word(source, folder, usage, true);
            }
        }
        self.places.renamed = renamed;
    }

    /// Adds the paths that the word `text` may name in `folder`, also behind `=`, `:`, `,` and `@`, and
    /// in code. `takes_names`: true if a word without a slash and a dot may be a path.
    fn word(&mut self, text: &str, folder: &str, usage: PathUse, takes_names: bool) {
        self.values(all_values(text), text, folder, (usage, takes_names));
        for path in home_paths(text).into_iter().chain(path_ends(text)) {
            self.values([&*path], text, folder, (usage, true));
        }
    }

    /// Adds those of `values`, parts of the word `text`, that may be paths in `folder`.
    fn values<'t>(
        &mut self,
        values: impl IntoIterator<Item = &'t str>,
        text: &str,
        folder: &str,
        (usage, takes_names): (PathUse, bool),
    ) {
        let word = shown(text);
        for value in values {
            if self.paths.len() > PATHS_MAX {
                return;
            }
            let may_be_path = takes_names || value.contains(['/', '.']);
            if value.is_empty() || value.len() > PATH_BYTES_MAX || !may_be_path {
                continue;
            }
            let value = expand_home(value, self.ground.place.home, Some(folder));
            let Some(path) = joined(&value, Some(folder)) else { continue };
            self.add(&path, folder, &word, usage);
            if let Some(pattern) = values::mixed_pattern(&value)
                && let Some(path) = joined(&pattern, Some(folder))
            {
                self.places.expands(&path);
                self.add(&path, folder, &word, usage);
            }
            let (home, roots) = (self.ground.place.home, self.ground.roots);
            for (known, folder) in known_parts(&value, folder, home, roots) {
                if let Some(path) = joined(known, Some(folder)) {
                    self.add(&path, folder, &word, usage);
                }
            }
        }
    }

    /// Adds the words of commands in nested scripts, and what those write or move.
    fn nested(&mut self, outline: &Outline, findings: &Findings) {
        let commands = outline.commands.iter();
        let plain = |words: &[crate::shell::word::Word]| -> Vec<String> {
            words.iter().flat_map(|word| braces(&word.text)).map(|text| shown(&text)).collect()
        };
        let outer: Vec<Vec<String>> = commands.map(|command| plain(&command.words)).collect();
        let inner: Vec<_> =
            findings.runs.iter().filter(|run| !outer.contains(&run.words)).collect();
        if inner.is_empty() {
            return;
        }
        // A nested script runs in the folder of an earlier `cd`, and may change to another one.
        let mut folders = vec![self.cwd.to_owned()];
        for run in &findings.runs {
            let (Some(program), Some(folder)) = (run.words.first(), run.words.last()) else {
                continue;
            };
            if !Names("cd pushd").has(program) || folders.len() >= FOLDERS_MAX {
                continue;
            }
            let home = self.ground.place.home;
            let below = |above: &String| {
                let folder = expand_home(folder, home, Some(above));
                [resolve(&folder, Some(above)), joined(&folder, Some(above))]
            };
            let reached: Vec<String> = folders.iter().flat_map(below).flatten().collect();
            for folder in reached {
                if !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
            folders.truncate(FOLDERS_MAX);
        }
        for cwd in &folders {
            self.nested_in(cwd, &inner, findings);
        }
    }

    /// Adds the words of the runs `inner` of nested scripts in the folder `cwd`, and what `findings` has
    /// of them.
    fn nested_in(&mut self, cwd: &str, inner: &[&Run], findings: &Findings) {
        for run in inner {
            let marked = |word: &String| -> String {
                word.chars().map(|c| if "*?[".contains(c) { active(c) } else { c }).collect()
            };
            let words: Vec<String> = run.words.iter().map(marked).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.words(&words, cwd);
        }
        for file in &findings.files {
            self.word(file, cwd, PathUse::Named, true);
        }
        for file in &findings.written {
            self.word(file, cwd, PathUse::Written, true);
        }
        for (source, path) in findings.moved.iter().flat_map(|moved| &moved.sources) {
            match path {
                Some(path) => self.add(path, cwd, source, PathUse::Removed),
                None => self.word(source, cwd, PathUse::Removed, true),
            }
        }
    }
}

/// Index of the program in `words`, behind wrappers.
fn program_at(words: &[&str]) -> usize {
    let mut at = 0;
    while let Some(wrapper) = words.get(at).and_then(|name| wrapper_named(base(name))) {
        let after = words.get(at + 1..).unwrap_or_default();
        at += 1 + wrapper.program(after.iter().copied()).0;
    }
    at
}
