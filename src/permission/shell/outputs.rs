//! Effects of a list of commands on files, as far as its words name them: files that it writes or may
//! replace, also under the names that they had before an earlier part of the list moved, copied or
//! linked them.

use std::collections::BTreeSet;
use std::path::Path;

use posse_actors::ports::{CommandOutput, EarlierName, PathLink};

use crate::shell::Names;
use crate::shell::destinations::{
    Transfer, TransferKind, WrittenFiles, folders_of_command, inner_commands, of_command,
    of_program,
};
use crate::shell::folders::Folders;
use crate::shell::name_effects::{NameEffects, made_folders, of_words};
use crate::shell::outline::{Outline, Scope, ShellEvent, SimpleCommand};
use crate::shell::places::{NewPlace, Place, Places, below, is_below_pattern, joined};
use crate::shell::reader;
use crate::shell::walk::{Findings, base, walk};
use crate::shell::word::{
    UNKNOWN, active, braces, expand_tildes, inactive_character, is_glob, names_earlier_folder,
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
    let findings = walk(&outline, command, cwd, home);
    let list = ListEffects::of((&outline, &findings), cwd, home, Places::resolved(links));
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

/// True if a part of `script` moves, links or copies files as links, so that they have other names
/// afterwards, or if it may do so.
pub(crate) fn gives_names(script: (&Outline, &Findings), cwd: &str, home: &str) -> bool {
    let list = ListEffects::of(script, cwd, home, Places::default());
    !list.names.is_empty() || list.places.names_anywhere || list.is_open()
}

/// Paths to which parts of `script` move, link or copy files as links, so that they may be links.
/// `places` tells where the paths of `script` lead.
pub(crate) fn named<'a>(
    script: (&Outline, &Findings),
    cwd: &'a str,
    home: &'a str,
    places: Places<'a>,
) -> Places<'a> {
    ListEffects::of(script, cwd, home, places).places
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

/// True if a command behind the event `open` of `outline`, and before the end of the construct that
/// it opens, may unpack links.
fn unpacks_before_close(outline: &Outline, open: usize) -> bool {
    let mut depth = 0_usize;
    for event in &outline.events[open..] {
        match event {
            ShellEvent::Open(_) => depth += 1,
            ShellEvent::Close => depth -= 1,
            ShellEvent::Run(index) => {
                let words = outline.commands.get(*index).map(|command| &command.words);
                let words: Vec<&str> =
                    words.into_iter().flatten().map(|word| word.text.as_str()).collect();
                if of_words(&words).0.unpacks {
                    return true;
                }
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    false
}

/// Paths that a list of commands writes.
#[derive(Debug)]
pub(crate) struct Written {
    /// Absolute paths.
    pub(crate) paths: Vec<String>,
    /// True if a written path leads to an unknown place.
    pub(crate) is_open: bool,
}

/// Paths that the commands of `script` write, also behind `links`.
pub(crate) fn written(
    script: (&Outline, &Findings),
    cwd: &str,
    home: &str,
    links: &[PathLink],
) -> Written {
    let list = ListEffects::of(script, cwd, home, Places::resolved(links));
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
    /// True if it may be a link to another path.
    is_link: bool,
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
    earlier: EarlierParts,
}

/// Effects of the parts of a list before the current one.
#[derive(Debug)]
struct EarlierParts {
    /// True if one makes links at places that only the run shows.
    have_links_anywhere: bool,
    /// True if one may have unpacked links.
    have_unpacked: bool,
    /// True if all of them have succeeded.
    have_succeeded: bool,
}

/// Returns the possible effects of a list of commands on names that its words do not tell.
fn effects_on_names<'o>(outlines: impl Iterator<Item = &'o Outline>) -> NameEffects {
    let (mut all, mut programs) = (NameEffects::default(), 0);
    for command in outlines.flat_map(|outline| &outline.commands) {
        let words: Vec<_> = command.words.iter().flat_map(|word| braces(&word.text)).collect();
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        let (effects, count) = of_words(&words);
        (all, programs) = (all.or(effects), programs + count);
    }
    // A single program has opened its files by then.
    if programs > 1 { all } else { NameEffects::default() }
}

impl<'a> ListEffects<'a> {
    fn of(
        (outline, findings): (&Outline, &Findings),
        cwd: &'a str,
        home: &'a str,
        mut places: Places<'a>,
    ) -> ListEffects<'a> {
        let nested = findings.scripts.iter().map(|script| &script.outline);
        let effects = effects_on_names(nested.chain([outline]));
        places.may_appear = effects.creates;
        places.may_vanish = effects.removes;
        let is_step = |event: &ShellEvent| matches!(event, ShellEvent::Run(_) | ShellEvent::And);
        let calls_functions = !outline.functions.is_empty();
        let mut list = ListEffects {
            home,
            cwd,
            current: cwd.to_owned(),
            previous: None,
            paths: Vec::new(),
            names: Vec::new(),
            places,
            moves_own_folder: false,
            writes_unknown: findings.lacks_scripts && effects.creates,
            earlier: EarlierParts {
                have_links_anywhere: false,
                have_unpacked: effects.unpacks && calls_functions,
                have_succeeded: outline.events.iter().all(is_step),
            },
        };
        let is_in_order = |event: &ShellEvent| {
            !matches!(event, ShellEvent::Pipe | ShellEvent::Background)
                && !matches!(event, ShellEvent::Open(Scope::Control | Scope::Function(_)))
        };
        list.pass(outline, findings, cwd);
        // Of parts that run at the same time or again, the later ones may come first.
        let gives_names = !list.names.is_empty() || list.places.names_anywhere;
        if gives_names && !outline.events.iter().all(is_in_order) {
            list.pass(outline, findings, cwd);
        }
        list
    }

    /// True if the list may write paths that are not in `paths`.
    fn is_open(&self) -> bool {
        self.paths.len() > PATHS_MAX || self.moves_own_folder || self.writes_unknown
    }

    fn pass(&mut self, outline: &Outline, findings: &Findings, cwd: &str) {
        let mut folders = Folders::new(Some(cwd.to_owned()));
        let mut depth = 0_usize;
        for (part, event) in outline.events.iter().enumerate() {
            match event {
                ShellEvent::Open(scope) => {
                    // The next turn of a loop comes after this one.
                    let is_outer = depth == 0 && matches!(scope, Scope::Control);
                    self.earlier.have_unpacked |= is_outer && unpacks_before_close(outline, part);
                    depth += 1;
                }
                ShellEvent::Close => depth = depth.saturating_sub(1),
                ShellEvent::Run(index) | ShellEvent::After(index) => {
                    let Some(command) = outline.commands.get(*index) else { continue };
                    let nested = findings.scripts.iter().filter(|script| script.command == *index);
                    for script in nested {
                        let mut own: BTreeSet<&str> =
                            folders.current().iter().flatten().map(String::as_str).collect();
                        own.extend(script.cwd.as_deref());
                        for folder in own {
                            self.nested(&script.outline, folder, part);
                        }
                    }
                    self.in_folders(command, &folders, part);
                    if self.paths.len() > PATHS_MAX {
                        return;
                    }
                }
                _ => {}
            }
            folders.step(event, outline, |_, _| false);
        }
    }

    /// Adds the effects of the nested script `outline`, which runs in the folder `cwd` as a part of the
    /// list.
    fn nested(&mut self, outline: &Outline, cwd: &str, part: usize) {
        let mut folders = Folders::new(Some(cwd.to_owned()));
        // The script may go on behind a part that failed.
        self.earlier.have_succeeded = false;
        for event in &outline.events {
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
        let inner = inner_commands(&words);
        for command in &inner {
            let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
            let folder = folder.as_deref().filter(|_| !command.is_elsewhere);
            self.words(&words, folder, part);
        }
        if inner.is_empty() {
            self.words(&words, folder.as_deref(), part);
        }
        self.earlier.have_unpacked |= of_words(&words).0.unpacks;
    }

    /// Adds the effects of the command `words`, whose program runs in `folder`.
    fn words(&mut self, words: &[&str], folder: Option<&str>, part: usize) {
        for made in made_folders(words) {
            // A link that was unpacked may be there, unless the program fails then.
            let may_be_link = self.earlier.have_unpacked || self.places.names_anywhere;
            if (!may_be_link || (made.is_new && self.earlier.have_succeeded))
                && let Some(Place::Path(path)) = self.place(made.path, folder)
            {
                self.places.opens(&format!("{path}/.."));
                self.places.made.insert(path);
            }
        }
        let found = of_command(words);
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
            let Some(path) = self.target(file, folder) else { continue };
            if found.may_be_folders {
                self.write(format!("{path}/."), part, (found.replaces, true));
                let named = joined(&self.expanded(file), folder);
                for path in named.iter().chain([&path]) {
                    // A file, or a link, in place of a folder is replaced by the folder.
                    let above = Path::new(path).ancestors().skip(1);
                    for above in above.take_while(|above| !Path::new(self.cwd).starts_with(above)) {
                        let above = above.to_string_lossy().into_owned();
                        self.write(above, part, (found.replaces, true));
                    }
                }
            }
            self.write(path, part, (found.replaces, true));
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
        let place = self.place(name, folder)?;
        self.writes_unknown |= self.earlier.have_links_anywhere && matches!(place, Place::Path(_));
        match place {
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
        let makes_links = matches!(transfer.kind, TransferKind::Link | TransferKind::LinkFromHere);
        let Some(to) = self.target(transfer.to, folder) else {
            self.places.names_anywhere |= transfer.kind != TransferKind::Copy;
            self.earlier.have_links_anywhere |= makes_links;
            return;
        };
        let replaces = transfer.replaces;
        self.write(to.clone(), part, (replaces, true));
        let mut names = Vec::new();
        for source in &transfer.sources {
            let inside = self.inside(transfer, source, &to, part);
            let base = match transfer.kind {
                TransferKind::Link if transfer.is_to_folder => Some(to.as_str()),
                TransferKind::Link => to.rsplit_once('/').map(|(above, _)| above),
                _ => folder,
            };
            if transfer.kind == TransferKind::Copy {
                continue;
            }
            let (from, is_link) = match self.place(source, base) {
                Some(Place::Path(path)) => (Some(path), makes_links),
                Some(_) => (None, true),
                None => (None, makes_links),
            };
            let moves = transfer.kind == TransferKind::Move;
            let is_own = |from: &String| folder.is_some_and(|own| below(own, from).is_some());
            self.moves_own_folder |= moves && from.as_ref().is_some_and(is_own);
            let is_copy = transfer.kind == TransferKind::CopyWithLinks;
            let name = |to: String, unless_folder| {
                let from = from.clone();
                NewName { from, to, unless_folder, is_copy, is_link, part }
            };
            names.extend(inside.map(|inside| name(inside, None)));
            if transfer.sources.len() == 1 && !self.places.made.contains(&to) {
                names.push(name(to.clone(), Some(to.clone())));
            }
        }
        self.rename(names, transfer.kind);
    }

    /// Adds the path of `source` in the folder `to` of `transfer`, and returns it. A name that only the
    /// run shows is a pattern in it. `None` if the path leads to an unknown place.
    fn inside(
        &mut self,
        transfer: &Transfer<'_>,
        source: &str,
        to: &str,
        part: usize,
    ) -> Option<String> {
        let name = self.expanded(source);
        let name = transfer.name_of(&name);
        let inside = joined(name, Some(to))?;
        if inside.contains(UNKNOWN) {
            let pattern = inside.chars().map(|c| if c == UNKNOWN { active('*') } else { c });
            return Some(pattern.collect());
        }
        let inside = self.target(&inside, None)?;
        let (replaces, is_certain) = (transfer.replaces, transfer.may_be_folder());
        self.write(format!("{inside}/."), part, (replaces, is_certain));
        self.write(inside.clone(), part, (replaces, is_certain));
        Some(inside)
    }

    /// Notes `names`, which a part of the `kind` gave to files.
    fn rename(&mut self, names: Vec<NewName>, kind: TransferKind) {
        for name in names {
            if let (TransferKind::Move, Some(from)) = (kind, &name.from) {
                self.places.made.retain(|made| below(made, from).is_none());
            }
            // The folder of the list stays one.
            if below(self.cwd, &name.to).is_none() {
                let NewName { from, to, is_copy, is_link, .. } = &name;
                self.places.renamed.push(NewPlace {
                    from: from.clone(),
                    to: to.clone(),
                    is_copy: *is_copy,
                    keeps_folder: name.unless_folder.is_some(),
                    is_link: *is_link,
                });
            }
            self.names.push(name);
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
                None => {
                    let leads_through = is_glob(&name.to) && name.is_link;
                    self.writes_unknown |=
                        leads_through && is_below_pattern(&path.output.path, &name.to);
                    continue;
                }
            };
            let Some(from) = &name.from else {
                self.writes_unknown |= name.is_link;
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
