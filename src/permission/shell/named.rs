//! Paths that the words of a command name, and what the command does with them as far as its words
//! tell. For deny rules: a word counts as a path even if the program may take it for something else.

use std::rc::Rc;

use posse_base::path_globs::PathGlob;

use crate::paths::is_below;
use crate::shell::allow::Ground;
use crate::shell::destinations::{TransferKind, folders_of_command, of_command};
use crate::shell::effects::destroys;
use crate::shell::folders::Folders;
use crate::shell::globs::NamePattern;
use crate::shell::links::{attached_values, rest_behind};
use crate::shell::options::spec_for;
use crate::shell::outline::{ShellEvent, SimpleCommand};
use crate::shell::walk::{Findings, Run, base};
use crate::shell::word::{active, braces, expand_home, is_glob, resolve, shown};
use crate::shell::wrappers::wrapper_named;
use crate::shell::{Judged, Names, outputs};

/// Programs whose operands name operations, texts or packages. An operand without a slash and a dot
/// is no path for them.
const NAMES_OPERATIONS: Names = Names(
    "\
    bazel bun cargo ctest deno docker dotnet echo go gradle jest just kill make mvn ninja npm npx pip \
    pip3 pnpm podman poetry printf rake tox type uv vitest which yarn meson",
);
/// Options of git whose value is a text.
const GIT_TEXTS: Names =
    Names("-m --message -am --author --date --grep --trailer --format --pretty");

/// Maximum number of folders in which the words of nested scripts are resolved.
const FOLDERS_MAX: usize = 32;

/// Options of these programs whose value, the next word, is a folder or file.
const PATH_OPTIONS: Names = Names("-C -f --cwd --dir --directory --file --prefix");
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
    /// It stands for paths that are not known.
    Unknown,
}

/// Path that a command names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedPath {
    /// Absolute path, with active characters as globs.
    pub(crate) path: String,
    /// The word that names it, for a person.
    pub(crate) word: String,
    pub(crate) usage: PathUse,
    /// Roots of the workspace.
    pub(crate) roots: Rc<[String]>,
}

impl NamedPath {
    /// The path before its first name with a glob.
    pub(crate) fn without_pattern(&self) -> &str {
        let is_plain = |name: &&str| !is_glob(name);
        let length = self.path.split('/').take_while(is_plain).map(|name| name.len() + 1);
        let end = length.sum::<usize>().saturating_sub(1);
        self.path.get(..end).unwrap_or(&self.path)
    }

    /// The forms of `path` that a glob is compared with: the absolute one, or those relative to the
    /// roots in which it lies.
    pub(crate) fn compared<'a>(
        &'a self,
        path: &'a str,
        is_absolute: bool,
    ) -> impl Iterator<Item = &'a str> {
        let relative = self.roots.iter().filter(move |_| !is_absolute).filter_map(|root| {
            let below = path.strip_prefix(root.trim_end_matches('/'));
            below.filter(|_| is_below(path, root)).map(|rest| rest.trim_start_matches('/'))
        });
        let is_root = self.roots.iter().any(|root| root == path);
        is_absolute.then_some(path).filter(|_| !is_root).into_iter().chain(relative)
    }

    /// True if the path is a pattern that may match a path which `glob` matches; `with_contents`: or
    /// a folder above such a path.
    pub(crate) fn may_match(&self, glob: &PathGlob, with_contents: bool) -> bool {
        if !is_glob(&self.path) {
            return false;
        }
        let path: Vec<&str> = parts(&self.path).collect();
        let roots: &[String] = if glob.is_absolute() { &[] } else { &self.roots };
        let bases: Vec<Vec<&str>> = if glob.is_absolute() {
            vec![Vec::new()]
        } else {
            roots.iter().map(|root| parts(root).collect()).collect()
        };
        let marked: String =
            glob.text().chars().map(|c| if "*?[{,}".contains(c) { active(c) } else { c }).collect();
        let alternatives = braces(&marked);
        bases.iter().any(|base| {
            alternatives.iter().any(|text| {
                let names: Vec<&str> = base.iter().copied().chain(parts(text)).collect();
                meets(&path, &names, with_contents)
            })
        })
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// True if a path may match both patterns, or if one that matches `rule` is above the other;
/// `with_contents`: or below it.
fn meets(path: &[&str], rule: &[&str], with_contents: bool) -> bool {
    let Some((name, rest)) = rule.split_first() else { return true };
    let any_folders = active('*').to_string().repeat(2);
    let Some((part, below)) = path.split_first() else { return with_contents };
    if **name == *any_folders {
        let ends = rest.is_empty();
        return ends || meets(path, rest, with_contents) || meets(below, rule, with_contents);
    }
    let is_visible = is_glob(part) && !part.starts_with('.');
    let matches = NamePattern::of_glob(part).meets(&NamePattern::of_glob(name), is_visible);
    matches && meets(below, rest, with_contents)
}

/// Paths that the command `judged` names, if it runs in the working directory of `ground`.
pub(crate) fn paths(judged: &Judged, ground: Ground<'_>) -> Vec<NamedPath> {
    let cwd = ground.place.cwd.unwrap_or("/");
    let mut found = Finder { ground, cwd, paths: Vec::new() };
    found.add(cwd.to_owned(), cwd, PathUse::Named);
    let outline = &judged.outline;
    let mut folders = Folders::new(Some(cwd.to_owned()));
    for event in &outline.events {
        if let ShellEvent::Run(index) | ShellEvent::After(index) = event
            && let Some(command) = outline.commands.get(*index)
        {
            for folder in folders.current() {
                found.command(command, folder.as_deref().unwrap_or(cwd));
            }
        }
        folders.step(event, outline, |_, _| false);
    }
    for path in outputs::written(outline, cwd, ground.place.home, ground.links) {
        let path = path.trim_end_matches("/.").to_owned();
        found.add(path.clone(), &shown(&path), PathUse::Written);
    }
    found.nested(judged);
    found.paths
}

/// Paths found so far.
struct Finder<'a> {
    ground: Ground<'a>,
    cwd: &'a str,
    paths: Vec<NamedPath>,
}

impl Finder<'_> {
    /// Adds `path`, and the path behind each link through which it leads.
    fn add(&mut self, path: String, word: &str, usage: PathUse) {
        let links = self.ground.links.iter().filter_map(|link| {
            let rest = rest_behind(&link.path, &path)?;
            let target = link.target.as_deref()?.trim_end_matches('/');
            Some(if rest.is_empty() { target.to_owned() } else { format!("{target}/{rest}") })
        });
        let mut all: Vec<String> = links.collect();
        all.push(path);
        for path in all {
            let word = word.to_owned();
            let named = NamedPath { path, word, usage, roots: Rc::default() };
            if self.paths.len() > PATHS_MAX || self.paths.contains(&named) {
                continue;
            }
            let is_full = self.paths.len() == PATHS_MAX;
            let usage = if is_full { PathUse::Unknown } else { usage };
            self.paths.push(NamedPath { usage, ..named });
        }
    }

    /// Adds the words and redirections of `command` in `folder`.
    fn command(&mut self, command: &SimpleCommand, folder: &str) {
        for redirect in &command.redirects {
            for target in braces(&redirect.target.text) {
                self.word(&target, folder, PathUse::Named, true);
            }
        }
        let assigned = command.assignments.iter().flat_map(|word| braces(&word.text));
        for text in assigned.collect::<Vec<_>>() {
            self.word(&text, folder, PathUse::Named, false);
        }
        let words: Vec<_> = command.words.iter().flat_map(|word| braces(&word.text)).collect();
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        self.words(&words, folder);
    }

    /// Adds the words of a command that begins in `folder`.
    fn words(&mut self, words: &[&str], folder: &str) {
        let mut inner = folder.to_owned();
        for to in folders_of_command(words) {
            self.word(to, &inner, PathUse::Named, true);
            let to = expand_home(to, self.ground.place.home, Some(&inner));
            inner = resolve(&to, Some(&inner)).unwrap_or(inner);
        }
        let at = program_at(words);
        let after = words.get(at..).unwrap_or_default();
        let Some((program, arguments)) = after.split_first() else { return };
        let name = base(program);
        let takes_names = !NAMES_OPERATIONS.has(name);
        let named = spec_for(after).map_or(1, |found| found.spec.words.len());
        let arguments: Vec<String> = arguments.iter().map(|word| shown(word)).collect();
        // `dd` changes only the file after `of=`, which counts as written.
        let is_changed = name != "dd" && destroys(name, &arguments).is_some();
        let is_changed = is_changed || CHANGES.has(name);
        let usage = if is_changed { PathUse::Removed } else { PathUse::Named };
        let roots: Vec<String> =
            if name == "git" { self.ground.roots.to_vec() } else { Vec::new() };
        for (index, word) in words.iter().enumerate() {
            let is_name = index >= at && index < at + named && !word.contains('/');
            let before = index.checked_sub(1).map(|before| words[before]);
            let is_text = name == "git" && before.is_some_and(|before| GIT_TEXTS.has(before));
            if is_name || is_text {
                continue;
            }
            // git expands patterns itself, and names files of a version from the root on.
            let marked: String = match name {
                "git" => {
                    word.chars().map(|c| if "*?[".contains(c) { active(c) } else { c }).collect()
                }
                _ => (*word).to_owned(),
            };
            let is_value = before.is_some_and(|before| PATH_OPTIONS.has(before));
            for folder in [folder, &inner].into_iter().chain(roots.iter().map(String::as_str)) {
                self.word(&marked, folder, usage, takes_names || is_value);
            }
        }
        if let Some(transfer) = of_command(words).transfer {
            let usage = match transfer.kind {
                TransferKind::Move => PathUse::Removed,
                _ => PathUse::Copied,
            };
            // The text of a symbolic link is read in the folder of the link.
            let to = expand_home(transfer.to, self.ground.place.home, Some(&inner));
            let to = resolve(&to, Some(&inner)).filter(|_| transfer.kind == TransferKind::Link);
            let above = to.as_deref().and_then(|to| to.rsplit_once('/')).map(|(above, _)| above);
            for source in &transfer.sources {
                for folder in [Some(inner.as_str()), to.as_deref(), above].into_iter().flatten() {
                    self.word(source, folder, usage, true);
                }
            }
        }
    }

    /// Adds the paths that the word `text` may name in `folder`, also behind `=`, `:`, `,` and `@`.
    /// `takes_names`: true if a word without a slash and a dot may be a path.
    fn word(&mut self, text: &str, folder: &str, usage: PathUse, takes_names: bool) {
        let word = shown(text);
        let is_option = text.starts_with('-') && text != "-";
        let whole = (!is_option).then_some(text);
        let behind = text.split(['=', ':', ',', '@']).skip(usize::from(is_option));
        let values = whole.into_iter().chain(attached_values(text)).chain(behind);
        for value in values {
            if value.is_empty() || !(takes_names || value.contains(['/', '.'])) {
                continue;
            }
            let value = expand_home(value, self.ground.place.home, Some(folder));
            if let Some(path) = resolve(&value, Some(folder)) {
                self.add(path, &word, usage);
            }
        }
    }

    /// Adds the words of commands in nested scripts, and what those write or move.
    fn nested(&mut self, judged: &Judged) {
        let commands = judged.outline.commands.iter();
        let plain = |words: &[crate::shell::word::Word]| -> Vec<String> {
            words.iter().flat_map(|word| braces(&word.text)).map(|text| shown(&text)).collect()
        };
        let outer: Vec<Vec<String>> = commands.map(|command| plain(&command.words)).collect();
        let findings = &judged.findings;
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
            let below = |above: &String| {
                let folder = expand_home(folder, self.ground.place.home, Some(above));
                resolve(&folder, Some(above))
            };
            let reached: Vec<String> = folders.iter().filter_map(below).collect();
            folders.extend(reached);
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
                Some(path) => self.add(path.clone(), source, PathUse::Removed),
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
