//! Files that a command may replace, as far as its words name them: targets of redirections, and
//! destinations of programs that copy, move and write.

use crate::shell::Names;
use crate::shell::folders::Folders;
use crate::shell::outline::{ShellEvent, SimpleCommand};
use crate::shell::reader;
use crate::shell::walk::base;
use crate::shell::word::{Word, expand_home, resolve};

/// Programs whose last operand is the destination of all others.
const TO_LAST: Names = Names("cp mv install ln");
/// Maximum number of paths. Further ones are left out, and the first path is then the root folder,
/// which always exists.
const PATHS_MAX: usize = 256;

/// Absolute paths that `command` may replace, if it runs in `cwd` and the user's home folder is
/// `home`. A path that ends with `/.` stands for a folder whose files it may replace. Paths that are
/// known only at run time are left out. With too many paths, `/` is one of
/// them.
pub(crate) fn paths(command: &str, cwd: &str, home: &str) -> Vec<String> {
    let outline = reader::read(command);
    let mut folders = Folders::new(Some(cwd.to_owned()));
    let mut paths: Vec<String> = Vec::new();
    for event in &outline.events {
        if let ShellEvent::Run(index) | ShellEvent::After(index) = event
            && let Some(command) = outline.commands.get(*index)
        {
            let names = names(command);
            for folder in folders.current() {
                for ReplacedFile { name, is_below } in &names {
                    let name = expand_home(name, home, folder.as_deref());
                    let Some(path) = resolve(&name, folder.as_deref()) else { continue };
                    paths.extend(is_below.then(|| format!("{path}/.")));
                    paths.push(path);
                }
            }
            if paths.len() > PATHS_MAX {
                return vec!["/".to_owned()];
            }
        }
        folders.step(event, &outline, |_, _| false);
    }
    paths.sort();
    paths.dedup();
    paths
}

/// A file that a command may replace.
struct ReplacedFile {
    /// Its path as the words name it.
    name: String,
    /// True if it lies in the folder to which others are copied, so that it may be a folder whose
    /// files are replaced.
    is_below: bool,
}

/// What `command` may replace, as its words name it.
fn names(command: &SimpleCommand) -> Vec<ReplacedFile> {
    let whole = |name: &str| ReplacedFile { name: name.to_owned(), is_below: false };
    let truncates = |operator: &str| matches!(operator, ">" | ">|" | "&>" | ">&" | "<>");
    let redirects = command.redirects.iter().filter(|one| truncates(one.operator));
    let targets = redirects.filter(|one| !one.duplicates());
    let targets = targets.filter_map(|one| one.target.literal()).map(whole);
    let mut names: Vec<ReplacedFile> = targets.collect();
    let words: Vec<&str> = command.words.iter().map_while(Word::literal).collect();
    // Behind wrappers, the program is one of the next words.
    let program = |word: &&str| TO_LAST.has(base(word)) || base(word) == "tee";
    let Some(at) = words.iter().position(program) else { return names };
    let (name, rest) = (base(words[at]), &words[at + 1..]);
    let has = |letter: char, long: &str| {
        rest.iter().any(|word| {
            (word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
                || *word == long
        })
    };
    let operands: Vec<&str> = rest.iter().copied().filter(|word| !word.starts_with('-')).collect();
    if name == "tee" {
        names.extend(operands.into_iter().filter(|_| !has('a', "--append")).map(whole));
        return names;
    }
    // `ln` replaces with `-f` only, and `-n` means something else for it.
    let keeps = match name {
        "cp" | "mv" => has('n', "--no-clobber"),
        "ln" => !has('f', "--force"),
        _ => false,
    };
    if keeps {
        return names;
    }
    // With `-t DIR`, the folder is one of the operands, or the value of an option.
    let valued = rest.iter().filter_map(|word| word.strip_prefix("--target-directory="));
    let folders: Vec<&str> = if has('t', "--target-directory") {
        operands.clone()
    } else {
        operands.last().copied().into_iter().chain(valued).collect()
    };
    for folder in folders {
        names.push(whole(folder));
        let below = operands.iter().map(|source| base(source.trim_end_matches('/')));
        let below = below.map(|name| format!("{}/{name}", folder.trim_end_matches('/')));
        names.extend(below.map(|name| ReplacedFile { name, is_below: true }));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_replaced() {
        for (command, expected) in [
            ("echo a > b", "/w/b"),
            ("echo a >> b", ""),
            ("echo a 2>&1", ""),
            ("echo a &> b", "/w/b"),
            ("cd sub && echo a > b", "/w/sub/b"),
            ("echo a > \"$X\"", ""),
            ("cp a b", "/w/b /w/b/a /w/b/b"),
            ("cp -n a b", ""),
            ("mv x/a y/", "/w/y /w/y/a /w/y/y"),
            ("timeout 5 cp a b", "/w/b /w/b/a /w/b/b"),
            ("echo a | tee b c", "/w/b /w/c"),
            ("echo a | tee -a b", ""),
            ("cp --target-directory=d a", "/w/a /w/a/a /w/d /w/d/a"),
            ("ls -la", ""),
        ] {
            let mut found = paths(command, "/w", "/home/u");
            found.retain(|path| !path.ends_with("/."));
            assert_eq!(found.join(" "), expected, "{command}");
        }
        assert!(paths("cp -r a b", "/w", "/home/u").contains(&"/w/b/a/.".to_owned()));
        let many: Vec<String> = (0..300).map(|n| format!("echo > f{n}")).collect();
        assert_eq!(paths(&many.join("\n"), "/w", "/home/u"), ["/"]);
    }
}
