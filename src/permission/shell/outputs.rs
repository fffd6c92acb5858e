//! Effects of a list of commands on files, as far as its words name them: files that it writes or may
//! replace, also under the names that they had before an earlier part of the list moved, copied or
//! linked them.

use std::collections::BTreeSet;

use posse_actors::ports::{CommandOutput, EarlierName, PathLink};

use crate::shell::Names;
use crate::shell::destinations::{
    Transfer, TransferKind, WrittenFiles, folders_of_command, of_command, of_program,
};
use crate::shell::folders::Folders;
use crate::shell::outline::{Outline, Scope, ShellEvent, SimpleCommand};
use crate::shell::places::{
    NewPlace, Place, Places, below, joined, may_create_names, may_remove_names, program_of,
};
use crate::shell::reader;
use crate::shell::walk::base;
use crate::shell::word::{
    braces, expand_tildes, inactive_character, is_glob, names_earlier_folder,
};

/// Programs that are recognised at any word, because a program that is not known may run them.
const ANYWHERE: Names = Names("cp mv install ln tee");
/// Maximum number of paths. Further ones are left out, and the only path is then the root folder,
/// which always exists.
const PATHS_MAX: usize = 256;

/// Paths that `command` may replace, if it runs in `cwd` and the user's home folder is `home`. `links`
/// are those in its paths. Paths that are known only at run time are left out. With too many paths,
/// if a part moves its own working folder, so that `..` leads elsewhere afterwards, and if a path leads
/// to an unknown place, `/` is the only one.
pub(crate) fn outputs(
    command: &str,
    cwd: &str,
    home: &str,
    links: &[PathLink],
) -> Vec<CommandOutput> {
    let outline = reader::read(command);
    let list = ListEffects::of(&outline, cwd, home, Places::resolved(links));
    if list.is_open() {
        let path = "/".to_owned();
        let (pattern, unless_folders) = (None, Vec::new());
        return vec![CommandOutput { path, pattern, unless_folders, earlier: None }];
    }
    let replaced = list.paths.into_iter().filter(|path| path.is_replaced);
    let mut outputs: Vec<CommandOutput> = replaced.map(|path| with_pattern(path.output)).collect();
    outputs.sort();
    outputs.dedup();
    outputs
}

/// True if a part of `outline` moves, links or copies files as links, so that they have other names
/// afterwards, or if it may do so.
pub(crate) fn gives_names(outline: &Outline, cwd: &str, home: &str) -> bool {
    let list = ListEffects::of(outline, cwd, home, Places::default());
    !list.names.is_empty() || list.is_open()
}

/// Paths to which parts of `outline` move, link or copy files as links, so that they may be links.
/// `places` tells where the paths of `outline` lead.
pub(crate) fn named<'a>(
    outline: &Outline,
    cwd: &'a str,
    home: &'a str,
    places: Places<'a>,
) -> Places<'a> {
    ListEffects::of(outline, cwd, home, places).places
}

/// `output` with the folder before its first glob as path, and the rest as pattern.
fn with_pattern(output: CommandOutput) -> CommandOutput {
    let mut parts = output.path.split('/');
    let folder: Vec<&str> = parts.by_ref().take_while(|part| !is_glob(part)).collect();
    let Some(glob) = output.path.split('/').nth(folder.len()) else { return output };
    let path = match folder.join("/") {
        root if root.is_empty() => "/".to_owned(),
        folder => folder,
    };
    let pattern = match parts.collect::<Vec<_>>()[..] {
        [] => pattern_of(glob),
        ["."] => pattern_of(glob) + "/",
        // The files below are not looked for.
        _ => "*".to_owned(),
    };
    CommandOutput { path, pattern: Some(pattern), ..output }
}

/// The glob of a word as a pattern.
fn pattern_of(glob: &str) -> String {
    let mut pattern = String::new();
    let mut is_in_set = false;
    for c in glob.chars() {
        let plain = inactive_character(c);
        is_in_set = (is_in_set || plain == Some('[')) && c != ']';
        match plain {
            Some(plain) => pattern.push(plain),
            None if is_in_set || c == ']' => pattern.push(c),
            None if c.is_ascii_punctuation() && c != '-' => pattern.extend(['\\', c]),
            None => pattern.push(c),
        }
    }
    pattern
}

/// Paths that a list of commands writes.
#[derive(Debug)]
pub(crate) struct Written {
    /// Absolute paths.
    pub(crate) paths: Vec<String>,
    /// True if a written path leads to an unknown place.
    pub(crate) is_open: bool,
}

/// Paths that the commands of `outline` write, also behind `links`.
pub(crate) fn written(outline: &Outline, cwd: &str, home: &str, links: &[PathLink]) -> Written {
    let list = ListEffects::of(outline, cwd, home, Places::resolved(links));
    let is_open = list.writes_unknown;
    let mut paths = Vec::new();
    for path in list.paths.into_iter().filter(|path| path.is_certain) {
        let CommandOutput { path, earlier, .. } = path.output;
        paths.extend(links.iter().filter_map(|link| {
            let rest = below(&path, &link.path)?;
            Some(format!("{}{rest}", link.target.as_deref()?))
        }));
        // The file that was copied stays as it is.
        if !earlier.is_some_and(|earlier| earlier.is_copy) {
            paths.push(path);
        }
    }
    Written { paths, is_open }
}

/// A path that a list writes.
#[derive(Debug, Clone)]
struct WrittenPath {
    output: CommandOutput,
    /// True if a file at this path is replaced.
    is_replaced: bool,
    /// True if the words say that it is written. False for a name in a destination that may be no
    /// folder.
    is_certain: bool,
}

/// A name that a part of a list gave to a file or folder.
#[derive(Debug)]
struct NewName {
    /// The earlier name. `None` if it is unknown.
    from: Option<String>,
    to: String,
    /// Folder in which the file is instead, if it exists.
    unless_folder: Option<String>,
    is_copy: bool,
    /// Index of the event of the part.
    part: usize,
}

/// Effects of a list, part by part.
struct ListEffects<'a> {
    home: &'a str,
    /// Folder in which the list begins.
    cwd: &'a str,
    /// Folder in which the shell runs the current part.
    current: String,
    /// Folder for which `~-` and the like stand in the current part.
    previous: Option<String>,
    paths: Vec<WrittenPath>,
    names: Vec<NewName>,
    /// Links and new names in paths, after the parts so far.
    places: Places<'a>,
    /// True if a part moves the folder in which it runs, or one above it.
    moves_own_folder: bool,
    /// True if a part writes a path that leads to an unknown place.
    writes_unknown: bool,
}

impl<'a> ListEffects<'a> {
    fn of(
        outline: &Outline,
        cwd: &'a str,
        home: &'a str,
        mut places: Places<'a>,
    ) -> ListEffects<'a> {
        let programs = outline.commands.iter().map(program_of);
        places.may_appear = may_create_names(programs.clone());
        places.may_vanish = may_remove_names(programs);
        let mut list = ListEffects {
            home,
            cwd,
            current: cwd.to_owned(),
            previous: None,
            paths: Vec::new(),
            names: Vec::new(),
            places,
            moves_own_folder: false,
            writes_unknown: false,
        };
        let is_in_order = |event: &ShellEvent| {
            !matches!(event, ShellEvent::Pipe | ShellEvent::Background)
                && !matches!(event, ShellEvent::Open(Scope::Control | Scope::Function(_)))
        };
        list.pass(outline, cwd);
        // Of parts that run at the same time or again, the later ones may come first.
        if !list.names.is_empty() && !outline.events.iter().all(is_in_order) {
            list.pass(outline, cwd);
        }
        list
    }

    /// True if the list may write paths that are not in `paths`.
    fn is_open(&self) -> bool {
        self.paths.len() > PATHS_MAX || self.moves_own_folder || self.writes_unknown
    }

    fn pass(&mut self, outline: &Outline, cwd: &str) {
        let mut folders = Folders::new(Some(cwd.to_owned()));
        for (part, event) in outline.events.iter().enumerate() {
            if let ShellEvent::Run(index) | ShellEvent::After(index) = event
                && let Some(command) = outline.commands.get(*index)
            {
                self.in_folders(command, &folders, part);
                if self.paths.len() > PATHS_MAX {
                    return;
                }
            }
            folders.step(event, outline, |_, _| false);
        }
    }

    /// Adds the effects of `command` in each folder in which it may run. Instead of an unknown one, it
    /// may be any in which the shell was earlier. So may be what `~-` and the like stand for.
    fn in_folders(&mut self, command: &SimpleCommand, folders: &Folders, part: usize) {
        let mut current: BTreeSet<&str> =
            folders.current().iter().flatten().map(|f| &**f).collect();
        if folders.current().contains(&None) {
            current.extend(folders.earlier().chain([self.cwd]));
        }
        let targets = command.redirects.iter().map(|redirect| &redirect.target);
        let mut words = command.words.iter().chain(targets);
        let has_earlier = words.any(|word| names_earlier_folder(&word.text));
        let previous: Vec<Option<&str>> = if has_earlier {
            folders.earlier().chain([self.cwd]).map(Some).collect()
        } else {
            vec![None]
        };
        for folder in current {
            for previous in &previous {
                folder.clone_into(&mut self.current);
                self.previous = previous.map(str::to_owned);
                self.command(command, part);
            }
        }
    }

    /// Adds the effects of `command` in the folder `current`.
    fn command(&mut self, command: &SimpleCommand, part: usize) {
        let mut folder = Some(self.current.clone());
        let redirects = command.redirects.iter().filter(|one| one.writes());
        for redirect in redirects {
            let replaces = !matches!(redirect.operator, ">>" | "&>>");
            for target in braces(&redirect.target.text) {
                self.file(&target, folder.as_deref(), replaces, part);
            }
        }
        let words: Vec<_> = command.words.iter().flat_map(|word| braces(&word.text)).collect();
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        for to in folders_of_command(&words) {
            folder = joined(&self.expanded(to), folder.as_deref());
        }
        let folder = folder.as_deref();
        let found = of_command(&words);
        if found.transfer.is_some() || !found.files.is_empty() {
            self.program(&found, folder, part);
        } else if let Some(at) = words.iter().position(|word| ANYWHERE.has(base(word))) {
            let first = self.paths.len();
            self.program(&of_program(base(words[at]), &words[at + 1..]), folder, part);
            // The word may be anything.
            for path in &mut self.paths[first..] {
                path.is_certain = false;
            }
        }
    }

    fn program(&mut self, found: &WrittenFiles<'_>, folder: Option<&str>, part: usize) {
        for file in &found.files {
            self.file(file, folder, found.replaces, part);
            if found.makes_folders
                && let Some(Place::Path(path)) = self.place(file, folder)
            {
                self.places.made.insert(path);
            }
        }
        if let Some(transfer) = &found.transfer {
            self.transfer(transfer, folder, part);
        }
    }

    fn expanded(&self, name: &str) -> String {
        expand_tildes(name, self.home, Some(&self.current), self.previous.as_deref())
    }

    /// Place of the path `name` in `folder`. `None` if it is known only at run time.
    fn place(&self, name: &str, folder: Option<&str>) -> Option<Place> {
        let path = joined(&self.expanded(name), folder)?;
        // A folder may have the name, too, after `cd /proc/self/cwd`.
        let own = folder.filter(|folder| !folder.starts_with("/proc/")).unwrap_or(self.cwd);
        self.places.place(&path, own)
    }

    /// Absolute path of the file `name` in `folder`, which the part writes. `None` if it is known only
    /// at run time or unknown.
    fn target(&mut self, name: &str, folder: Option<&str>) -> Option<String> {
        match self.place(name, folder)? {
            Place::Path(path) => {
                self.places.opens(&path);
                Some(path)
            }
            Place::Descriptor(is_output) => {
                // Other descriptors may lead to any file.
                self.writes_unknown |= !is_output;
                None
            }
            Place::Unknown => {
                self.writes_unknown = true;
                None
            }
        }
    }

    fn file(&mut self, name: &str, folder: Option<&str>, is_replaced: bool, part: usize) {
        if let Some(path) = self.target(name, folder) {
            self.write(path, part, (is_replaced, true));
        }
    }

    /// Adds the destinations of `transfer`, then the new names of its sources.
    fn transfer(&mut self, transfer: &Transfer<'_>, folder: Option<&str>, part: usize) {
        let Some(to) = self.target(transfer.to, folder) else { return };
        let replaces = transfer.replaces;
        self.write(to.clone(), part, (replaces, true));
        let is_certain = transfer.may_be_folder();
        let mut names = Vec::new();
        for source in &transfer.sources {
            let name = self.expanded(source);
            let inside = joined(transfer.name_of(&name), Some(&to));
            let inside = inside.and_then(|inside| self.target(&inside, None));
            if let Some(inside) = &inside {
                self.write(format!("{inside}/."), part, (replaces, is_certain));
                self.write(inside.clone(), part, (replaces, is_certain));
            }
            let base = match transfer.kind {
                TransferKind::Link if transfer.is_to_folder => Some(to.as_str()),
                TransferKind::Link => to.rsplit_once('/').map(|(above, _)| above),
                _ => folder,
            };
            if transfer.kind == TransferKind::Copy {
                continue;
            }
            let from = match self.place(source, base) {
                Some(Place::Path(path)) => Some(path),
                Some(_) => None,
                None => continue,
            };
            let moves = transfer.kind == TransferKind::Move;
            let is_own = |from: &String| folder.is_some_and(|own| below(own, from).is_some());
            self.moves_own_folder |= moves && from.as_ref().is_some_and(is_own);
            names.extend(inside.map(|inside| (from.clone(), inside, None)));
            if transfer.sources.len() == 1 && !self.places.made.contains(&to) {
                names.push((from, to.clone(), Some(to.clone())));
            }
        }
        self.rename(names, transfer.kind, part);
    }

    /// Notes `names`, each of which was given to another one, and the folder in which it is instead.
    fn rename(
        &mut self,
        names: Vec<(Option<String>, String, Option<String>)>,
        kind: TransferKind,
        part: usize,
    ) {
        let is_copy = kind == TransferKind::CopyWithLinks;
        for (from, to, unless_folder) in names {
            if let (TransferKind::Move, Some(from)) = (kind, &from) {
                self.places.made.retain(|made| below(made, from).is_none());
            }
            // The folder of the list stays one.
            if below(self.cwd, &to).is_none() {
                let keeps_folder = unless_folder.is_some();
                let (from, to) = (from.clone(), to.clone());
                self.places.renamed.push(NewPlace { from, to, is_copy, keeps_folder });
            }
            self.names.push(NewName { from, to, unless_folder, is_copy, part });
        }
    }

    /// Adds `path`, which the part writes, also with its earlier names. The second argument: whether
    /// it is replaced, and whether that is certain.
    fn write(&mut self, path: String, part: usize, (is_replaced, is_certain): (bool, bool)) {
        let (pattern, unless_folders) = (None, Vec::new());
        let output = CommandOutput { path, pattern, unless_folders, earlier: None };
        let path = WrittenPath { output, is_replaced, is_certain };
        self.add(path, part, self.names.len());
    }

    /// Adds `path` as it was named before the first `count` of the new names, and before all of them.
    fn add(&mut self, path: WrittenPath, part: usize, count: usize) {
        for at in (0..count).rev() {
            if self.paths.len() > PATHS_MAX {
                return;
            }
            let name = &self.names[at];
            if name.part == part {
                continue;
            }
            let rest = match below(&path.output.path, &name.to) {
                Some(rest) => rest.to_owned(),
                // It is in a folder whose files are replaced.
                None if path
                    .output
                    .path
                    .strip_suffix("/.")
                    .is_some_and(|folder| below(&name.to, folder).is_some()) =>
                {
                    String::new()
                }
                None => continue,
            };
            let Some(from) = &name.from else {
                self.writes_unknown = true;
                continue;
            };
            let earlier = match &path.output.earlier {
                // A link below the copy is below the earlier name, too.
                Some(earlier) => EarlierName {
                    path: below(&earlier.path, &name.to)
                        .map_or_else(|| from.clone(), |rest| format!("{from}{rest}")),
                    is_copy: earlier.is_copy || name.is_copy,
                },
                None => EarlierName { path: from.clone(), is_copy: name.is_copy },
            };
            let mut unless_folders = path.output.unless_folders.clone();
            unless_folders.extend(name.unless_folder.clone());
            let path_before = format!("{from}{rest}");
            self.places.opens(&path_before);
            let output = CommandOutput {
                path: path_before,
                pattern: None,
                unless_folders,
                earlier: Some(earlier),
            };
            self.add(WrittenPath { output, ..path.clone() }, part, at);
        }
        self.paths.push(path);
    }
}

#[cfg(test)]
mod tests;
