//! Effects of programs on the names of files beyond those that their words tell: programs that may
//! create links, remove links and folders, or unpack links, and folders that programs create.

use crate::shell::Names;
use crate::shell::arguments::{Arguments, ValuedOptions};
use crate::shell::destinations::{inner_commands, sed_runs_programs, sed_scripts};
use crate::shell::effects::git_words;
use crate::shell::walk::base;
use crate::shell::word::{is_reserved, shown};
use crate::shell::wrappers::{SHELLS, wrapper_named};

/// Programs that make no links, or only those that the words of the command tell.
const MAKES_NO_OTHER_NAMES: Names = Names(
    "\
    : [ awk base64 basename break cat cd chmod cmp column comm continue cp cut date declare diff dirname echo \
    exit export false fd file find fold grep head hexdump install jq ln local ls mkdir mv nl od paste popd \
    printf pushd pwd read readlink readonly realpath return rev rg rm rmdir sed seq set shift sleep sort stat \
    strings tac tail tee test touch tr true truncate typeset uniq unset wc which xxd",
);

/// Programs of [`MAKES_NO_OTHER_NAMES`] that can remove links and folders. Moves are known by their
/// words.
const REMOVES_NAMES: Names = Names("rm rmdir");
/// Programs that put files into a folder as they were recorded elsewhere, links among them.
const UNPACKS: Names = Names(
    "\
    7z 7za 7zr bsdtar cpio git gtar hg jar patch pax rsync scp sftp star svn tar unar unrar unsquashfs unzip",
);
/// Interpreters of Python, without a version.
const PYTHON: Names = Names("python pypy");

/// Effects of a program on names that its words do not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NameEffects {
    /// It may create links and other names.
    pub(crate) creates: bool,
    /// It may remove links and folders.
    pub(crate) removes: bool,
    /// It may create links with places and targets that were recorded elsewhere.
    pub(crate) unpacks: bool,
}

impl NameEffects {
    const ALL: NameEffects = NameEffects { creates: true, removes: true, unpacks: false };

    /// The effects of both.
    pub(crate) fn or(self, other: NameEffects) -> NameEffects {
        NameEffects {
            creates: self.creates || other.creates,
            removes: self.removes || other.removes,
            unpacks: self.unpacks || other.unpacks,
        }
    }
}

/// Effects of the command `words`, and the number of programs in it that may open files.
pub(crate) fn of_words(words: &[&str]) -> (NameEffects, usize) {
    let inner = inner_commands(words);
    let own = of_program(words);
    if inner.is_empty() {
        return (own, 1);
    }
    inner.iter().fold((own, 0), |(effects, count), command| {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        (effects.or(of_program(&words)), count + 1)
    })
}

/// Effects of the program at the beginning of `words`, or behind wrappers there.
fn of_program(words: &[&str]) -> NameEffects {
    let Some((name, arguments)) = program(words) else { return NameEffects::default() };
    let name = base(name);
    if name.chars().any(is_reserved) && shown(name) != "[" {
        return NameEffects { unpacks: true, ..NameEffects::ALL };
    }
    if is_read_script(name, arguments) {
        // The commands of the script count.
        return NameEffects::default();
    }
    let runs_programs = match name {
        "awk" | "gawk" | "mawk" => arguments.iter().any(|word| runs_programs_of_awk(word)),
        "sed" | "gsed" => sed_scripts(arguments).into_iter().any(sed_runs_programs),
        "sort" => arguments.iter().any(|word| word.starts_with("--comp")),
        "rg" => arguments.iter().any(|word| word.starts_with("--pre")),
        _ => false,
    };
    let is_unknown = runs_programs || !MAKES_NO_OTHER_NAMES.has(&shown(name));
    let deletes = name == "find" && arguments.contains(&"-delete");
    NameEffects {
        creates: is_unknown,
        removes: is_unknown || deletes || REMOVES_NAMES.has(name),
        unpacks: UNPACKS.has(name),
    }
}

/// The program in `words` behind wrappers, and the words after it.
fn program<'a, 'w>(words: &'a [&'w str]) -> Option<(&'w str, &'a [&'w str])> {
    let mut rest = words;
    loop {
        let (name, after) = rest.split_first()?;
        let Some(wrapper) = wrapper_named(base(name)) else { return Some((name, after)) };
        rest = after.get(wrapper.program(after.iter().copied()).0..).unwrap_or_default();
    }
}

/// True if the program `name` runs commands that its `arguments` give as a known text.
fn is_read_script(name: &str, arguments: &[&str]) -> bool {
    let takes_text = |word: &&str| word.starts_with('-') && word.contains('c');
    let is_known = arguments.iter().all(|word| !word.chars().any(is_reserved));
    is_known && (name == "eval" || (SHELLS.has(name) && arguments.first().is_some_and(takes_text)))
}

/// True if `word` may be a program of `awk` that runs other programs: with `system`, or a pipe to or
/// from a command.
fn runs_programs_of_awk(word: &str) -> bool {
    let has_pipe = word.replace("||", "").contains('|') && word.contains('{');
    has_pipe || word.contains("system") || matches!(word, "-f" | "--file" | "-i" | "--include")
}

/// Folder that a program creates.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MadeFolder<'w> {
    pub(crate) path: &'w str,
    /// True if the program fails if the path exists.
    pub(crate) is_new: bool,
}

/// Folders that the command `words` creates, if they do not exist.
pub(crate) fn made_folders<'w>(words: &[&'w str]) -> Vec<MadeFolder<'w>> {
    let Some((name, arguments)) = program(words) else { return Vec::new() };
    let read = |words: &[&'w str], letters, long| {
        let valued = ValuedOptions { letters, attached: "", long };
        Arguments::read(words.iter().copied(), valued)
    };
    let one = |path: Option<&'w str>| {
        path.map(|path| MadeFolder { path, is_new: false }).into_iter().collect::<Vec<_>>()
    };
    let stem = base(name).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match (stem, arguments) {
        ("mkdir", _) => {
            let given = read(arguments, "m", &["--mode"]);
            let is_new = !given.has(Some('p'), "--parents");
            given.operands.into_iter().map(|path| MadeFolder { path, is_new }).collect()
        }
        ("git", _) => one(of_git(arguments)),
        (stem, ["-m", "venv" | "virtualenv", rest @ ..]) if PYTHON.has(stem) => {
            one(read(rest, "", &["--prompt"]).operands.last().copied())
        }
        ("virtualenv", _) => one(read(arguments, "p", &["--python"]).operands.last().copied()),
        ("uv", ["venv", rest @ ..]) => {
            one(read(rest, "p", &["--python", "--prompt"]).operands.last().copied())
        }
        ("cargo", ["new" | "init", rest @ ..]) => {
            let long = &["--name", "--edition", "--vcs", "--registry"];
            one(read(rest, "", long).operands.first().copied())
        }
        ("cmake", _) => one(read(arguments, "BSDGCA", &[]).value(Some('B'), "")),
        _ => Vec::new(),
    }
}

/// Folder that a command of git with the arguments `words` creates: a clone, a repository or a work
/// tree.
fn of_git<'w>(words: &[&'w str]) -> Option<&'w str> {
    let (command, first) = git_words(words)?;
    let (letters, long): (_, &'static [&'static str]) = match command {
        "clone" => ("boucj", CLONE_VALUED),
        "init" => {
            ("b", &["--template", "--separate-git-dir", "--initial-branch", "--object-format"])
        }
        "worktree" => ("bB", &["--reason"]),
        _ => return None,
    };
    let valued = ValuedOptions { letters, attached: "", long };
    let given = Arguments::read(words.get(first..)?.iter().copied(), valued);
    match (command, given.operands.as_slice()) {
        ("clone", [url]) => {
            let url = url.trim_end_matches('/');
            let name = url.rsplit(['/', ':']).next().unwrap_or(url);
            Some(name.strip_suffix(".git").unwrap_or(name)).filter(|name| !name.is_empty())
        }
        ("clone", [_, folder]) | ("init", [folder]) | ("worktree", ["add", folder, ..]) => {
            Some(folder)
        }
        _ => None,
    }
}

/// Long options of `git clone` that have a value, from git-clone(1) of version 2.39.
const CLONE_VALUED: &[&str] = &[
    "--branch",
    "--bundle-uri",
    "--config",
    "--depth",
    "--filter",
    "--jobs",
    "--origin",
    "--reference",
    "--reference-if-able",
    "--separate-git-dir",
    "--server-option",
    "--shallow-exclude",
    "--shallow-since",
    "--template",
    "--upload-pack",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_on_names_are_told_by_words() {
        for (line, expected) in [
            ("cat a", ""),
            ("timeout 5 cat a", ""),
            ("rm a", "removes"),
            ("find . -name x", ""),
            ("find . -delete", "removes"),
            ("find . -exec rm {} ;", "removes"),
            ("find . -exec touch {} ;", ""),
            ("find . -exec make {} ;", "creates removes"),
            ("xargs rm", "removes"),
            ("make", "creates removes"),
            ("tar xf a.tar", "creates removes unpacks"),
            ("nice git pull", "creates removes unpacks"),
            ("awk {print}", ""),
            ("awk -F| {print}", ""),
            ("awk BEGIN{system(\"x\")}", "creates removes"),
            ("awk {print|\"x\"}", "creates removes"),
            ("sed s/a/b/e", "creates removes"),
            ("sed s/e/e/", ""),
            ("bash -c make", ""),
            ("eval make", ""),
            ("bash x.sh", "creates removes"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let (effects, _) = of_words(&words);
            let shown = [
                ("creates", effects.creates),
                ("removes", effects.removes),
                ("unpacks", effects.unpacks),
            ];
            let shown: Vec<&str> =
                shown.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect();
            assert_eq!(shown.join(" "), expected, "{line}");
        }
    }

    #[test]
    fn folders_that_programs_create_are_told_by_words() {
        for (line, expected) in [
            ("mkdir a b", "a! b!"),
            ("mkdir -pv -m 700 a/b", "a/b"),
            ("env X=1 mkdir --parents a", "a"),
            ("git clone https://x.example/r.git", "r"),
            ("git clone --depth 1 -b main git@x.example:o/r r2", "r2"),
            ("git -C x clone a:r", "r"),
            ("git init a", "a"),
            ("git init", ""),
            ("git worktree add -b t ../t main", "../t"),
            ("git worktree list", ""),
            ("python3.12 -m venv --clear env", "env"),
            ("python3 -m pytest env", ""),
            ("uv venv -p 3.12 .venv", ".venv"),
            ("cargo new --lib x", "x"),
            ("cmake -S . -B build", "build"),
            ("cmake -Bbuild", "build"),
            ("cmake ..", ""),
            ("make build", ""),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let shown = made_folders(&words)
                .into_iter()
                .map(|folder| format!("{}{}", folder.path, if folder.is_new { "!" } else { "" }));
            assert_eq!(shown.collect::<Vec<_>>().join(" "), expected, "{line}");
        }
    }
}
