//! Names of files that a program gets from the output of another one: `find / | xargs rm`.

use std::ops::{BitOr, BitOrAssign};

use super::{Arg, Call, CommandInput, Run, Walker, base};
use crate::shell::Names;
use crate::shell::danger::{CommandLocation, DELETES, is_system, program_danger};
use crate::shell::word::{UNKNOWN, active, resolve};
use crate::shell::wrappers::wrapper_named;

/// Tests of `find` that select by name or age.
const SELECTORS: Names = Names(
    "name path regex newer wholename lname empty size mtime mmin atime amin ctime cmin samefile",
);

/// Programs that delete, empty, move or lock the files they get.
pub(super) const REMOVES: Names =
    Names("rm shred unlink srm grm rmdir trash rimraf mv truncate chmod chown");
/// Programs that pass on names of files.
const FILTERS: Names = Names("cat cut head sort tac tail tee tr uniq");
/// Programs that pass on names of files which they select.
const SELECTING: Names = Names("grep egrep fgrep rg ag fzf awk sed");
/// Maximum number of names that are taken from a text.
const NAMES_MAX: usize = 256;
/// Maximum number of names for which the program of `xargs -I` is walked through.
const REPLACED_MAX: usize = 8;

/// Set of kinds of folders whose files a text names: the home folder, and system folders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SystemListing(u8);

impl SystemListing {
    const HOME: SystemListing = SystemListing(1);
    const SYSTEM: SystemListing = SystemListing(2);

    pub(super) fn is_empty(self) -> bool {
        self == SystemListing::default()
    }

    /// Listing of a selection. A selection of files of the home folder is not the whole folder.
    fn selected(self) -> SystemListing {
        SystemListing(self.0 & SystemListing::SYSTEM.0)
    }
}

impl BitOr for SystemListing {
    type Output = SystemListing;

    fn bitor(self, other: SystemListing) -> SystemListing {
        SystemListing(self.0 | other.0)
    }
}

impl BitOrAssign for SystemListing {
    fn bitor_assign(&mut self, other: SystemListing) {
        self.0 |= other.0;
    }
}

impl Walker {
    /// Whole system or home folders whose files the output of a program names.
    pub(super) fn listing(&self, call: &Call<'_>) -> SystemListing {
        let words = call.words;
        match call.name {
            "find" | "gfind" | "fd" | "fdfind" => self.searched(call.name, words),
            "ls" | "gls" | "du" | "tree" | "locate" => {
                let operands = words.iter().copied().filter(|word| !word.starts_with('-'));
                let operands: Vec<&str> = operands.collect();
                self.whole(if operands.is_empty() { &["."] } else { &operands })
            }
            name if SELECTING.has(name) => call.input.listing.selected(),
            name if FILTERS.has(name) => call.input.listing,
            _ => SystemListing::default(),
        }
    }

    /// Whole system or home folders at which a search with `find` or `fd` starts. A search by name
    /// or age may start at the home folder.
    pub(super) fn searched(&self, name: &str, words: &[&str]) -> SystemListing {
        // Options of find before its folders; `-D` has a value.
        let is_option =
            |word: &str| matches!(word, "-H" | "-L" | "-P" | "-D" | "--") || word.starts_with("-O");
        let starts = |word: &&str| !word.starts_with(['-', '(', '!']) || is_option(word);
        let roots = words.iter().copied().take_while(starts);
        let mut roots: Vec<&str> = roots.filter(|word| !word.starts_with('-')).collect();
        let has_value =
            words.iter().take_while(|word| word.starts_with('-')).any(|word| *word == "-D");
        if has_value && roots.len() > 1 {
            roots.remove(0);
        }
        if roots.is_empty() {
            roots.push(".");
        }
        if name != "find" && name != "gfind" && roots.len() > 1 {
            roots.remove(0);
        }
        let selects = words.iter().filter(|word| word.starts_with('-')).any(|word| {
            let test = word.trim_start_matches('-');
            SELECTORS.has(test.strip_prefix('i').unwrap_or(test))
        });
        let all = self.whole(&roots);
        if selects { all.selected() } else { all }
    }

    /// Folders in `words` that are whole system or home folders.
    fn whole(&self, words: &[&str]) -> SystemListing {
        let place = CommandLocation { cwd: self.cwd.as_deref(), home: &self.home };
        words.iter().filter(|word| is_system(word, place)).fold(
            SystemListing::default(),
            |all, word| {
                let is_home = resolve(word, place.cwd).is_some_and(|path| path == self.home);
                all | if is_home { SystemListing::HOME } else { SystemListing::SYSTEM }
            },
        )
    }

    /// Names in the text of `input`.
    fn names(&self, input: &CommandInput) -> Vec<String> {
        let text = input.text.as_deref().unwrap_or_default();
        let names = text.split(|c: char| c.is_whitespace() || c == '\0');
        // A pattern that `echo` was to expand.
        let marked = |name: &str| -> String {
            let name = name.replace("$HOME", &self.home);
            name.chars().map(|c| if "*?".contains(c) { active(c) } else { c }).collect()
        };
        names.filter(|name| !name.is_empty()).take(NAMES_MAX).map(marked).collect()
    }

    /// Records the danger of the innermost program in `words`, which gets further names of files
    /// from `input`.
    pub(super) fn fed_words(&mut self, words: &[Arg], input: &CommandInput) {
        let all: Vec<&str> = words.iter().map(|argument| argument.text.as_str()).collect();
        let mut words = all.as_slice();
        while let Some((name, rest)) = words.split_first() {
            let Some(wrapper) = wrapper_named(base(name)) else {
                return self.fed(base(name), rest, input);
            };
            let (skipped, _) = wrapper.program(rest.iter().copied());
            words = rest.get(skipped..).unwrap_or_default();
        }
    }

    /// Walks through the program of `xargs -I`, with the names in `input` in their places.
    /// `words` are those after `xargs`, and the program is at `skipped`.
    pub(super) fn replaced(&mut self, words: &[Arg], skipped: usize, input: &CommandInput) {
        let (options, program) = words.split_at(skipped.min(words.len()));
        let mark = options.iter().enumerate().find_map(|(at, option)| {
            let value = option.text.strip_prefix("-I").or(option.text.strip_prefix("--replace="));
            match value {
                Some("") => options.get(at + 1).map(|next| next.text.as_str()),
                None => matches!(option.text.as_str(), "-i" | "--replace").then_some("{}"),
                value => value,
            }
        });
        let Some(mark) = mark.filter(|mark| !mark.is_empty()) else { return };
        for name in self.names(input).iter().take(REPLACED_MAX) {
            let replaced: Vec<Arg> = program
                .iter()
                .map(|word| Arg { text: word.text.replace(mark, name), ..word.clone() })
                .collect();
            self.scoped(|walker| {
                walker.unwrap(&replaced, &mut Run::default(), &CommandInput::default())
            });
        }
    }

    /// Records the danger of the program `name` with the arguments `words`, which gets further
    /// names of files from `input`. Does nothing if the program is not in [`REMOVES`].
    pub(super) fn fed(&mut self, name: &str, words: &[&str], input: &CommandInput) {
        if !REMOVES.has(name) {
            return;
        }
        if !input.listing.is_empty() {
            self.found(DELETES);
        }
        let named = self.names(input);
        let known = words.iter().copied().filter(|word| !word.contains(UNKNOWN));
        let all: Vec<&str> = known.chain(named.iter().map(String::as_str)).collect();
        let place = CommandLocation { cwd: self.cwd.as_deref(), home: &self.home };
        if let Some(danger) = program_danger(name, &all, place) {
            self.found(danger);
        }
    }
}
