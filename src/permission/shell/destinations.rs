//! Files that a program writes, and files to which it gives other names, as far as its words tell.
//! Source: the manuals of coreutils 9.1, sed 4.8, git 2.39, tar 1.34, curl 7.88, wget 1.21 and pandoc 2.17.

mod inner;
mod sed;

use crate::shell::Names;
use crate::shell::arguments::{Arguments, ValuedOptions};
use crate::shell::walk::base;
use crate::shell::wrappers::{folder_of, wrapper_named};

pub(crate) use inner::inner_commands;
pub(crate) use sed::files as sed_files;
pub(crate) use sed::runs_programs as sed_runs_programs;

/// Letters of the options of `tar` that have a value.
const TAR_VALUED: &str = "fbCFgHIKLNTVX";
/// Programs that copy, move or link their operands to a destination.
const TRANSFERS: Names = Names("cp mv install ln rsync scp");
/// Programs that write or create all their operands.
const WRITES_ALL: Names = Names("tee touch mkdir truncate");

/// Programs with an option, in its short and long form, whose value is a file that they replace.
/// Compilers are left out: their output is made again and again.
const OUTPUT_OPTIONS: [(&str, Option<char>, &str); 7] = [
    ("curl", Some('o'), "--output"),
    ("git", None, "--output"),
    ("iconv", Some('o'), "--output"),
    ("pandoc", Some('o'), "--output"),
    ("shuf", Some('o'), "--output"),
    ("sort", Some('o'), "--output"),
    ("wget", Some('O'), "--output-document"),
];

/// Long options of all programs here that have a value.
const VALUED: &[&str] = &[
    "--target-directory",
    "--suffix",
    "--mode",
    "--owner",
    "--group",
    "--date",
    "--reference",
    "--size",
    "--expression",
    "--file",
    "--output",
    "--output-document",
    "--export-marks",
];

/// Long options of `tar` that have a value.
const TAR_LONG: &[&str] = &[
    "--directory",
    "--exclude",
    "--exclude-from",
    "--file",
    "--files-from",
    "--strip-components",
    "--transform",
    "--use-compress-program",
];

/// Long options of `rsync` that have a value, as a rule in the next word.
const RSYNC_LONG: &[&str] = &[
    "--backup-dir",
    "--block-size",
    "--bwlimit",
    "--chmod",
    "--chown",
    "--compare-dest",
    "--compress-level",
    "--copy-dest",
    "--exclude",
    "--exclude-from",
    "--files-from",
    "--filter",
    "--groupmap",
    "--include",
    "--include-from",
    "--info",
    "--link-dest",
    "--log-file",
    "--max-delete",
    "--max-size",
    "--min-size",
    "--out-format",
    "--partial-dir",
    "--rsh",
    "--rsync-path",
    "--suffix",
    "--temp-dir",
    "--timeout",
    "--usermap",
];

/// Long options of `sed` that have a value.
const SED_LONG: &[&str] = &["--expression", "--file", "--line-length"];

/// Scripts of `sed` with the arguments `words`.
pub(crate) fn sed_scripts<'w>(words: &[&'w str]) -> Vec<&'w str> {
    sed::scripts(&read("sed", words))
}

/// Options of `cp` that keep symbolic links.
const KEEPS_LINKS: [(char, &str); 5] = [
    ('a', "--archive"),
    ('d', "--no-dereference"),
    ('P', "--no-dereference"),
    ('R', "--recursive"),
    ('r', "--recursive"),
];

/// Files that a program writes.
#[derive(Debug, Default)]
pub(crate) struct WrittenFiles<'w> {
    /// Copies, moves or links with their destination.
    pub(crate) transfer: Option<Transfer<'w>>,
    /// Other files that it writes.
    pub(crate) files: Vec<&'w str>,
    /// True if it replaces the content of `files`.
    pub(crate) replaces: bool,
    /// True if each of `files` may be a folder, whose content it replaces.
    pub(crate) may_be_folders: bool,
}

/// Copies, moves or links of files to one destination.
#[derive(Debug)]
pub(crate) struct Transfer<'w> {
    pub(crate) kind: TransferKind,
    pub(crate) sources: Vec<&'w str>,
    /// File, or folder, to which the sources go.
    pub(crate) to: &'w str,
    /// True if the words say that `to` is a folder.
    pub(crate) is_to_folder: bool,
    /// Names that the sources get in `to`, if it is a folder.
    pub(crate) naming: Naming,
    /// True if it replaces a file with the name of the destination.
    pub(crate) replaces: bool,
}

/// Names of sources in the folder to which they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Their last part.
    Base,
    /// Their last part, but the content of a source with a slash at its end goes to the folder
    /// itself, as for `rsync`.
    BaseOrContent,
    /// Their whole path, as for `cp --parents`.
    Path,
    /// Their path behind `/./`, or else the whole, as for `rsync --relative`.
    PathBehindDot,
    /// The source takes the place of the folder, or its content goes there, as for `cp -T`.
    Content,
}

/// Kind of a [`Transfer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferKind {
    /// Copies content. Links in the sources are followed.
    Copy,
    /// Copies that keep symbolic links as they are.
    CopyWithLinks,
    Move,
    /// Symbolic links with the text of the source.
    Link,
    /// Hard links, and links with a path that is converted.
    LinkFromHere,
}

impl Transfer<'_> {
    /// True if the sources may lie directly in `to`: it may be a folder as far as its name tells.
    pub(crate) fn may_be_folder(&self) -> bool {
        self.is_to_folder || !base(self.to).trim_start_matches('.').contains('.')
    }

    /// Path of `source` relative to `to`, if that is a folder. `.`: the content of `source` goes to
    /// `to` itself.
    pub(crate) fn name_of<'s>(&self, source: &'s str) -> &'s str {
        match self.naming {
            Naming::BaseOrContent if source.ends_with('/') => ".",
            Naming::Base | Naming::BaseOrContent => match base(source.trim_end_matches('/')) {
                ".." => ".",
                name => name,
            },
            Naming::Path => source.trim_matches('/'),
            Naming::PathBehindDot => {
                let path = source.split_once("/./").map_or(source, |(_, path)| path);
                path.trim_matches('/')
            }
            Naming::Content => ".",
        }
    }
}

/// Files that the program at the beginning of `words`, or behind wrappers there, writes.
pub(crate) fn of_command<'w>(words: &[&'w str]) -> WrittenFiles<'w> {
    let mut rest = words;
    while let Some((name, after)) = rest.split_first() {
        let Some(wrapper) = wrapper_named(base(name)) else { return of_program(base(name), after) };
        rest = after.get(wrapper.program(after.iter().copied()).0..).unwrap_or_default();
    }
    WrittenFiles::default()
}

/// Folders to which wrappers and git at the beginning of `words` change, one after another, before the
/// program runs.
pub(crate) fn folders_of_command<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let mut folders = Vec::new();
    let mut rest = words;
    while let Some((name, after)) = rest.split_first() {
        let Some(wrapper) = wrapper_named(base(name)) else {
            if base(name) == "git" {
                folders.extend(git_folders(after).0);
            }
            break;
        };
        let options = wrapper.program(after.iter().copied()).0;
        folders.extend(folder_of(base(name), after.get(..options).unwrap_or_default()));
        rest = after.get(options..).unwrap_or_default();
    }
    folders
}

/// Values of the options `-C` before the command of git in `words`, and the words after them.
fn git_folders<'a, 'w>(mut words: &'a [&'w str]) -> (Vec<&'w str>, &'a [&'w str]) {
    let mut folders = Vec::new();
    while let ["-C", folder, rest @ ..] = words {
        folders.push(*folder);
        words = rest;
    }
    (folders, words)
}

/// Files that the program `name` with the arguments `words` writes.
pub(crate) fn of_program<'w>(name: &str, words: &[&'w str]) -> WrittenFiles<'w> {
    let words = if name == "git" { git_folders(words).1 } else { words };
    if name == "git" && words.first() == Some(&"mv") {
        let transfer = transfer("mv", &words[1..]);
        return WrittenFiles { transfer, ..WrittenFiles::default() };
    }
    // An operand may also be a branch or a commit. A file of the same name is an error then.
    if name == "git" && words.first() == Some(&"checkout") {
        let files = read(name, &words[1..]).operands;
        return WrittenFiles { files, replaces: true, may_be_folders: true, transfer: None };
    }
    if name == "git"
        && let Some(file) = written_by_git(words)
    {
        return WrittenFiles { files: vec![file], replaces: true, ..WrittenFiles::default() };
    }
    if TRANSFERS.has(name) {
        return WrittenFiles { transfer: transfer(name, words), ..WrittenFiles::default() };
    }
    let arguments = read(name, words);
    if name == "tar"
        && let Some(extracted) = extracted_members(words, &arguments)
    {
        return WrittenFiles { transfer: Some(extracted), ..WrittenFiles::default() };
    }
    if WRITES_ALL.has(name) {
        let appends = arguments.has(Some('a'), "--append");
        let replaces = name == "truncate" || (name == "tee" && !appends);
        let files = arguments.operands;
        return WrittenFiles { files, replaces, ..WrittenFiles::default() };
    }
    if let Some((_, short, long)) = OUTPUT_OPTIONS.iter().find(|(program, ..)| *program == name)
        && let Some(file) = arguments.value(*short, long)
    {
        return WrittenFiles { files: vec![file], replaces: true, ..WrittenFiles::default() };
    }
    if matches!(name, "sed" | "gsed") {
        return written_by_sed(&arguments);
    }
    let replaces = matches!(name, "tar" | "uniq" | "xxd");
    let files = match name {
        "tar" => created_archive(words, &arguments).into_iter().collect(),
        "uniq" => arguments.operands.into_iter().skip(1).collect(),
        "xxd" => operands_of_xxd(words).skip(1).collect(),
        "dd" => words.iter().filter_map(|word| word.strip_prefix("of=")).collect(),
        _ => Vec::new(),
    };
    WrittenFiles { files, replaces, ..WrittenFiles::default() }
}

/// Options of `xxd` whose value is the next word. It does not read several letters behind one dash as
/// several options.
const XXD_VALUED: Names = Names("-c -cols -g -groupsize -l -len -n -name -o -s -seek -skip -R");

/// Operands of `xxd`: the file that it reads, and the one that it writes.
fn operands_of_xxd<'w>(words: &[&'w str]) -> impl Iterator<Item = &'w str> {
    let mut is_value = false;
    words.iter().copied().filter(move |word| {
        let is_operand = !std::mem::take(&mut is_value) && (!word.starts_with('-') || *word == "-");
        is_value = !is_operand && XXD_VALUED.has(word);
        is_operand
    })
}

/// File that a command of git, with the words after it, replaces. `None` for other commands, and for the
/// option `--output`, which many have.
fn written_by_git<'w>(words: &[&'w str]) -> Option<&'w str> {
    let (command, rest) = words.split_first()?;
    match *command {
        "archive" => read("git archive", rest).value(Some('o'), "--output"),
        "bundle" => read("git", rest).operands.get(1).copied().filter(|_| rest.contains(&"create")),
        "fast-export" => read("git", rest).value(None, "--export-marks"),
        _ => None,
    }
}

/// Files that `sed` writes: those in its scripts, which it replaces, or else those that it changes.
fn written_by_sed<'w>(arguments: &Arguments<'w>) -> WrittenFiles<'w> {
    let scripts = sed::scripts(arguments);
    let named = scripts.iter().flat_map(|script| sed_files(script));
    let named = named.filter(|(is_written, _)| *is_written).map(|(_, file)| file);
    let mut files: Vec<&str> = named.filter(|file| !file.starts_with("/dev/std")).collect();
    let replaces = !files.is_empty();
    if arguments.has(Some('i'), "--in-place") {
        let has_script = arguments.has(Some('e'), "--expression");
        let has_script = has_script || arguments.has(Some('f'), "--file");
        files.extend(arguments.operands.iter().skip(usize::from(!has_script)));
    }
    WrittenFiles { files, replaces, ..WrittenFiles::default() }
}

/// Archive that `tar` creates. `None` if it does something else.
fn created_archive<'w>(words: &[&'w str], arguments: &Arguments<'w>) -> Option<&'w str> {
    // The first word may be letters of options without a hyphen, whose values follow it.
    let bundle = words.first().filter(|first| !first.starts_with('-'));
    let creates = arguments.has(Some('c'), "--create");
    if !creates && !bundle.is_some_and(|first| first.contains('c')) {
        return None;
    }
    if let Some((before, _)) = bundle.and_then(|bundle| bundle.split_once('f')) {
        let values = before.chars().filter(|letter| TAR_VALUED.contains(*letter)).count();
        return words.get(1 + values).copied();
    }
    arguments.value(Some('f'), "--file")
}

/// Members that `tar` extracts, if its words name them. `None` if it does something else.
fn extracted_members<'w>(words: &[&'w str], arguments: &Arguments<'w>) -> Option<Transfer<'w>> {
    let bundle = words.first().filter(|first| !first.starts_with('-'));
    let is_set = |letter: char, long: &str| {
        arguments.has(Some(letter), long) || bundle.is_some_and(|bundle| bundle.contains(letter))
    };
    let extracts = is_set('x', "--extract") || arguments.has(None, "--get");
    if !extracts || is_set('O', "--to-stdout") {
        return None;
    }
    // The values of the letters in the first word follow it.
    let valued = bundle.into_iter().flat_map(|bundle| bundle.chars());
    let valued: Vec<char> = valued.filter(|letter| TAR_VALUED.contains(*letter)).collect();
    let of_bundle = valued.iter().position(|letter| *letter == 'C');
    let of_bundle = of_bundle.and_then(|at| words.get(1 + at).copied());
    let to = arguments.value(Some('C'), "--directory").or(of_bundle).unwrap_or(".");
    let skipped = bundle.map_or(0, |_| 1 + valued.len());
    let sources: Vec<&str> = arguments.operands.iter().skip(skipped).copied().collect();
    let keeps = is_set('k', "--keep-old-files") || arguments.has(None, "--skip-old-files");
    let (kind, naming) = (TransferKind::Copy, Naming::Path);
    let is_extraction = !sources.is_empty();
    is_extraction.then_some(Transfer {
        kind,
        sources,
        to,
        is_to_folder: true,
        naming,
        replaces: !keeps,
    })
}

/// Names that the sources get in a folder, by the options of a program in [`TRANSFERS`].
fn naming(name: &str, arguments: &Arguments<'_>) -> Naming {
    match name {
        "cp" if arguments.has(None, "--parents") => Naming::Path,
        "rsync" if arguments.has(Some('R'), "--relative") => Naming::PathBehindDot,
        "rsync" => Naming::BaseOrContent,
        "cp" | "mv" | "ln" | "install" if arguments.has(Some('T'), "--no-target-directory") => {
            Naming::Content
        }
        _ => Naming::Base,
    }
}

/// Reads the operands of a program in [`TRANSFERS`]. `None` if there are too few.
fn transfer<'w>(name: &str, words: &[&'w str]) -> Option<Transfer<'w>> {
    let arguments = read(name, words);
    let mut sources = arguments.operands.clone();
    if matches!(name, "rsync" | "scp") && sources.len() < 2 {
        return None;
    }
    let is_set = |letter, long: &str| arguments.has(Some(letter), long);
    let has_folder_option = !matches!(name, "rsync" | "scp");
    let in_folder = arguments.value(Some('t'), "--target-directory").filter(|_| has_folder_option);
    let makes_folders = name == "install" && is_set('d', "--directory");
    let (to, is_to_folder) = match in_folder {
        Some(folder) => (folder, true),
        None if name == "ln" && sources.len() == 1 => (".", true),
        None => {
            let to = sources.pop()?;
            let is_named = to.ends_with('/') || matches!(base(to), "." | "..");
            (to, is_named || sources.len() > 1 || makes_folders)
        }
    };
    let kind = match name {
        "mv" => TransferKind::Move,
        "ln" if is_set('s', "--symbolic") && !is_set('r', "--relative") => TransferKind::Link,
        "ln" => TransferKind::LinkFromHere,
        "cp" if is_set('l', "--link") || is_set('s', "--symbolic-link") => {
            TransferKind::LinkFromHere
        }
        "rsync" if is_set('a', "--archive") || is_set('l', "--links") => {
            TransferKind::CopyWithLinks
        }
        "cp" if KEEPS_LINKS.into_iter().any(|(letter, long)| is_set(letter, long)) => {
            TransferKind::CopyWithLinks
        }
        _ => TransferKind::Copy,
    };
    let replaces = match name {
        // Of `-n`, `-f` and `-i`, the last one counts.
        "cp" | "mv" => {
            !is_set('n', "--no-clobber")
                || is_set('f', "--force")
                || is_set('i', "--interactive")
                || is_set('b', "--backup")
        }
        "rsync" => !is_set('n', "--dry-run") && !arguments.has(None, "--ignore-existing"),
        // It replaces with `-f` only, and `-n` means something else for it.
        "ln" => is_set('f', "--force"),
        _ => true,
    };
    let naming = naming(name, &arguments);
    Some(Transfer { kind, sources, to, is_to_folder, naming, replaces })
}

/// Arguments of the program `name`.
fn read<'w>(name: &str, words: &[&'w str]) -> Arguments<'w> {
    let (letters, attached) = match name {
        "cp" | "mv" | "ln" => ("tS", ""),
        "install" => ("tSmog", ""),
        "mkdir" => ("m", ""),
        "touch" => ("drt", ""),
        "truncate" => ("sr", ""),
        "sed" | "gsed" => ("efl", "i"),
        "sort" => ("oktST", ""),
        "git archive" => ("o", ""),
        "shuf" => ("ino", ""),
        "curl" => ("oHdXuAebTFmwxr", ""),
        "wget" => ("OPoaitTwUQ", ""),
        "pandoc" => ("oftrwVMHBACcT", ""),
        "uniq" => ("fsw", ""),
        "iconv" => ("fto", ""),
        "tar" => (TAR_VALUED, ""),
        "rsync" => ("efBTM", ""),
        "scp" => ("cDFiJloPSX", ""),
        _ => ("", ""),
    };
    let long = match name {
        "tar" => TAR_LONG,
        "rsync" => RSYNC_LONG,
        "sed" | "gsed" => SED_LONG,
        _ => VALUED,
    };
    Arguments::read(words.iter().copied(), ValuedOptions { letters, attached, long })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_files_are_told_from_kept_ones() {
        for (command, expected) in [
            ("cp a b", true),
            ("cp -n a b", false),
            ("cp --no-clob a b", false),
            ("cp -- -n b d", true),
            ("cp -tn a", true),
            ("cp -t -n a", true),
            ("cp -S --no-clobber a b", true),
            ("mv -n --forc a b", true),
            ("mv -nf a b", true),
            ("tee -a x", false),
            ("tee -- -a", true),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            let found = of_command(&words);
            let replaces = found.transfer.map_or(found.replaces, |transfer| transfer.replaces);
            assert_eq!(replaces, expected, "{command}");
        }
    }

    #[test]
    fn written_files_are_read_from_the_words() {
        for (command, expected) in [
            ("cp a b", "a>b"),
            ("timeout 5 cp -a a b c/", "a,b>c/"),
            ("cp -t d a b", "a,b>d"),
            ("cp -ad a b", "a>b"),
            ("cp --target-directory=d a", "a>d"),
            ("mv -vtd a", "a>d"),
            ("install -m 755 a .git/hooks/pre-commit", "a>.git/hooks/pre-commit"),
            ("ln -sf ../x", "../x>."),
            ("git mv a b", "a>b"),
            ("git commit -m mv", ""),
            ("tee -a x y", "x y"),
            ("nice -n 5 tee x", "x"),
            ("touch -r ref x", "x"),
            ("mkdir -p -m 700 x/y", "x/y"),
            ("sed -i s/a/.git/ x", "x"),
            ("sed -i.bak -e s/a/.git/ x y", "x y"),
            ("sed -n 1p x", ""),
            ("sed -n wb x", "b"),
            ("sed s/a/b/wb x", "b"),
            ("sed -i s/a/b/wb x", "b x"),
            ("sed -e rb -e wc x", "c"),
            ("dd if=a of=b", "b"),
            ("rsync -a a b", "a>b"),
            ("rsync --exclude x a b", "a>b"),
            ("tar xzf a b", "b>."),
            ("tar --get --directory d -f a b", "b>d"),
            ("grep mv AGENTS.md", ""),
            ("sort a -o b", "b"),
            ("sort -uob a", "b"),
            ("sort --outp=b a", "b"),
            ("sort a b", ""),
            ("git diff --output b", "b"),
            ("git log --output=b -1", "b"),
            ("git diff -- --output", ""),
            ("git archive -o b HEAD", "b"),
            ("git -C d archive -vob HEAD", "b"),
            ("git bundle create -q b HEAD", "b"),
            ("git bundle verify b", ""),
            ("git fast-export --export-marks=b HEAD", "b"),
            ("git checkout -q main a", "main a"),
            ("shuf -n 3 -o b a", "b"),
            ("iconv -f latin1 -t utf-8 -o b a", "b"),
            ("iconv --output=b a", "b"),
            ("xxd -c 8 a b", "b"),
            ("xxd -ps a b", "b"),
            ("xxd -bits -seek 3 a b", "b"),
            ("xxd a", ""),
            ("curl -so b example.org", "b"),
            ("wget -O b example.org", "b"),
            ("uniq -c a b", "b"),
            ("uniq a", ""),
            ("tar -czf b a", "b"),
            ("tar czf b a", "b"),
            ("tar cCf d b a", "b"),
            ("tar --create --file=b a", "b"),
            ("tar xzf a", ""),
            ("tar -tf a", ""),
            ("cp a", ""),
            ("cp -- -t b", "-t>b"),
            ("cp -S -- -t d a", "a>d"),
            ("tee -- -a x", "-a x"),
            ("mv -- -t d", "-t>d"),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            let WrittenFiles { transfer, files, .. } = of_command(&words);
            let moved = transfer.filter(|one| !one.sources.is_empty());
            let moved = moved.map(|one| format!("{}>{}", one.sources.join(","), one.to));
            assert_eq!(moved.unwrap_or_else(|| files.join(" ")), expected, "{command}");
        }
    }
}
