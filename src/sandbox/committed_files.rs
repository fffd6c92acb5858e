//! Reads files of the commit that is checked out (`HEAD`), by running git.
//!
//! git runs before a command, at its place, and may read what the command may read: so its answer
//! contains nothing that the command could not find out itself, whatever the repository or the
//! program git does. Missing objects of a partial clone are not fetched.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use posse_actors::ports::{Confinement, NetworkAccess};

use crate::git_settings::{HARMLESS, PROGRAMS, VARIABLES};
use crate::protect::{Committed, CommittedFile, Undecided};
use crate::run::CommandPlace;
use crate::{Dialogue, Directory, Exit, ProcessOutcome, Sandbox, Spawn, find_program};

/// Time limit of one query of git.
const GIT_MAX: Duration = Duration::from_secs(5);

/// Maximum number of work trees that are queried before one command.
const TREES_MAX: usize = 16;

/// Maximum number of bytes of the list of files of one query.
const LIST_BYTES_MAX: usize = 4 << 20;

/// Maximum size of one file in bytes.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of bytes of all files of one query.
const FILES_BYTES_MAX: usize = 8 << 20;

/// Maximum number of files of one query, and of files in one folder.
const FILES_MAX: usize = 512;

/// Maximum number of bytes that git prints for one file in addition to its content.
const HEADER_BYTES_MAX: usize = 128;

/// Settings besides the harmless ones: a workspace of another user, as in a container, is read too.
const OWNER: &str = "safe.directory=*";

/// Variables besides the usual ones: no configuration of the system and the user, no replaced
/// objects, and paths that are no patterns.
const ISOLATION: [(&str, &str); 4] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_LITERAL_PATHSPECS", "1"),
];

const TOO_LARGE: &str = "its committed version is larger than 1 MiB";
const TOO_MUCH: &str = "it and other such files have more than 512 committed files, or 8 MiB";
const NO_FILE: &str = "it is no ordinary file in the commit";
const MISSING: &str = "its committed version is not in the repository, as in a partial clone";

/// File in the list of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ListedFile {
    /// Path below the root of the work tree.
    path: PathBuf,
    object: String,
    is_executable: bool,
    /// True if it is an ordinary file, not a link or a submodule.
    is_file: bool,
    /// Size in bytes. `None` if the object is missing.
    size: Option<usize>,
}

impl Sandbox {
    /// Reads what the commits that are checked out contain at the `paths`, for a command that is
    /// about to start at `place` and cannot read `hidden`.
    pub(crate) async fn committed(
        &self,
        paths: Vec<Undecided>,
        place: CommandPlace<'_>,
        hidden: &[PathBuf],
    ) -> Vec<(Undecided, Committed)> {
        let mut by_tree: BTreeMap<PathBuf, Vec<Undecided>> = BTreeMap::new();
        for path in paths {
            by_tree.entry(path.tree.clone()).or_default().push(path);
        }
        let mut answers = Vec::new();
        for (number, (tree, paths)) in by_tree.into_iter().enumerate() {
            let found = match number {
                0..TREES_MAX => self.committed_in(&tree, &paths, place, hidden).await,
                _ => None,
            };
            let mut found = found.unwrap_or_default().into_iter();
            answers.extend(paths.into_iter().map(|path| {
                let committed = found.next().unwrap_or(Committed::Unknown);
                (path, committed)
            }));
        }
        answers
    }

    /// Reads what the commit of one work tree contains at each of the `paths`. `None` if git fails,
    /// for example without a commit.
    async fn committed_in(
        &self,
        tree: &Path,
        paths: &[Undecided],
        place: CommandPlace<'_>,
        hidden: &[PathBuf],
    ) -> Option<Vec<Committed>> {
        let below = paths.iter().map(|path| path.path.strip_prefix(tree).ok());
        let below: Vec<&Path> = below.collect::<Option<_>>()?;
        let mut asked: Vec<OsString> =
            ["ls-tree", "-z", "-r", "-l", "--", "HEAD"].map(Into::into).into();
        asked.extend(below.iter().map(|path| path.as_os_str().to_owned()));
        let list = self.git(tree, asked, Vec::new(), LIST_BYTES_MAX, place, hidden).await?;
        let files = parse_list(&list)?;
        let at: Vec<Vec<&ListedFile>> = below
            .iter()
            .zip(paths)
            .map(|(below, path)| {
                files.iter().filter(|file| is_at(file, below, path.is_folder)).collect()
            })
            .collect();
        let usable: Vec<Result<(), &'static str>> = check(&at);
        let wanted = at.iter().zip(&usable).filter(|(_, usable)| usable.is_ok());
        let wanted: BTreeSet<&str> =
            wanted.flat_map(|(files, _)| files).map(|file| &*file.object).collect();
        let contents = if wanted.is_empty() {
            HashMap::new()
        } else {
            let input = wanted
                .iter()
                .flat_map(|object| [object.as_bytes(), b"\n"])
                .collect::<Vec<_>>()
                .concat();
            let max = FILES_BYTES_MAX + wanted.len() * HEADER_BYTES_MAX;
            let asked = ["cat-file", "--batch"].map(Into::into).into();
            parse_contents(&self.git(tree, asked, input, max, place, hidden).await?)?
        };
        let committed = at.iter().zip(usable).map(|(files, usable)| match usable {
            Ok(()) => with_contents(tree, files, &contents),
            Err(reason) => Committed::Unusable(reason),
        });
        Some(committed.collect())
    }

    /// Runs git in `tree` and returns its output. `None` if it fails, which is logged, or prints more than
    /// `bytes_max`.
    async fn git(
        &self,
        tree: &Path,
        asked: Vec<OsString>,
        input: Vec<u8>,
        bytes_max: usize,
        place: CommandPlace<'_>,
        hidden: &[PathBuf],
    ) -> Option<Vec<u8>> {
        let mut arguments: Vec<OsString> = vec!["--no-pager".into(), "-C".into(), tree.into()];
        for setting in HARMLESS.into_iter().chain([OWNER]) {
            arguments.extend(["-c".into(), setting.into()]);
        }
        arguments.extend(asked);
        let variables = VARIABLES.into_iter().chain(ISOLATION);
        let spill = place.scratch.with_file_name("committed.txt");
        let spawn = Spawn {
            program: find_program("git", &PROGRAMS)?,
            arguments,
            // Not used: git starts in the folder of the command, so that it sees no further one.
            directory: Directory::Path(tree.to_owned()),
            environment: variables.map(|(name, value)| (name.into(), value.into())).collect(),
            confinement: Confinement {
                profile: "read-only".to_owned(),
                writable_roots: Vec::new(),
                network: NetworkAccess::Denied,
            },
            timeout: GIT_MAX,
            scratch: place.scratch.to_owned(),
            spill,
            // Half of the limit applies to the beginning, and half to the end.
            output_bytes_max: bytes_max,
            spill_bytes_max: bytes_max as u64,
            dialogue: Some(Dialogue { input, errors_bytes_max: 1000 }),
            stop: None,
            masks_keys: false,
            at_timeout: None,
        };
        let ProcessOutcome { exit, output, errors, .. } =
            match self.run_before(spawn, place, hidden).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    tracing::debug!(%error, "git cannot tell what is committed");
                    return None;
                }
            };
        if let Some(spill) = &output.spill {
            // Too much output is an error; it is not needed.
            std::fs::remove_file(spill).ok();
        }
        if exit != Exit::Code(0) || output.cut() > 0 {
            let errors = String::from_utf8_lossy(&errors).into_owned();
            tracing::debug!(?exit, errors, "git does not tell what is committed");
            return None;
        }
        Some([output.head, output.tail].concat())
    }
}

/// True if `file` is the file at the path `below`, or below it if it is a folder.
fn is_at(file: &ListedFile, below: &Path, is_folder: bool) -> bool {
    if is_folder { file.path != below && file.path.starts_with(below) } else { file.path == below }
}

/// Says for the files at each path if all of them can be read, within the limits of one query.
fn check(paths: &[Vec<&ListedFile>]) -> Vec<Result<(), &'static str>> {
    let (mut count, mut bytes) = (0, 0);
    let check = |files: &Vec<&ListedFile>| {
        if files.iter().any(|file| !file.is_file) {
            return Err(NO_FILE);
        }
        let sizes: Option<Vec<usize>> = files.iter().map(|file| file.size).collect();
        let sizes = sizes.ok_or(MISSING)?;
        if sizes.iter().any(|size| *size > FILE_BYTES_MAX) {
            return Err(TOO_LARGE);
        }
        let sum = sizes.iter().sum::<usize>();
        if count + files.len() > FILES_MAX || bytes + sum > FILES_BYTES_MAX {
            return Err(TOO_MUCH);
        }
        count += files.len();
        bytes += sum;
        Ok(())
    };
    paths.iter().map(check).collect()
}

fn with_contents(
    tree: &Path,
    files: &[&ListedFile],
    contents: &HashMap<String, Vec<u8>>,
) -> Committed {
    let committed = files.iter().map(|file| {
        let bytes = contents.get(&file.object).filter(|bytes| Some(bytes.len()) == file.size)?;
        Some(CommittedFile {
            path: tree.join(&file.path),
            is_executable: file.is_executable,
            bytes: bytes.clone(),
        })
    });
    committed.collect::<Option<_>>().map_or(Committed::Unusable(MISSING), Committed::Files)
}

/// Parses the output of `git ls-tree -z -r -l`: `mode type object size<TAB>path`, each ended by a
/// zero byte. `None` if it is of another form, or leads out of the work tree.
fn parse_list(list: &[u8]) -> Option<Vec<ListedFile>> {
    let entries = list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    entries.map(parse_entry).collect()
}

fn parse_entry(entry: &[u8]) -> Option<ListedFile> {
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let mut words = std::str::from_utf8(&entry[..tab]).ok()?.split_ascii_whitespace();
    let (mode, kind) = (u32::from_str_radix(words.next()?, 8).ok()?, words.next()?);
    let (object, size) = (words.next()?.to_owned(), words.next()?);
    let path = PathBuf::from(OsString::from_vec(entry[tab + 1..].to_vec()));
    let is_below = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let is_object =
        matches!(object.len(), 40 | 64) && object.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_below && is_object).then(|| ListedFile {
        path,
        object,
        is_executable: mode & 0o111 != 0,
        is_file: kind == "blob" && mode >> 12 == 0o10,
        size: size.parse().ok(),
    })
}

/// Parses the output of `git cat-file --batch`: `object type size`, a line end, the content, and
/// another line end; or `object missing`. `None` if it is of another form.
fn parse_contents(mut output: &[u8]) -> Option<HashMap<String, Vec<u8>>> {
    let mut contents = HashMap::new();
    while !output.is_empty() {
        let end = output.iter().position(|byte| *byte == b'\n')?;
        let header = std::str::from_utf8(&output[..end]).ok()?;
        output = &output[end + 1..];
        let words: Vec<&str> = header.split(' ').collect();
        match words[..] {
            [_, "missing"] => {}
            [object, "blob", size] => {
                let (content, rest) = output.split_at_checked(size.parse().ok()?)?;
                output = rest.strip_prefix(b"\n")?;
                contents.insert(object.to_owned(), content.to_vec());
            }
            _ => return None,
        }
    }
    Some(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(path: &str, size: Option<usize>) -> ListedFile {
        let object = "0123456789012345678901234567890123456789".to_owned();
        ListedFile { path: path.into(), object, is_executable: false, is_file: true, size }
    }

    #[test]
    fn lists_are_parsed_or_refused() {
        let object = "0123456789012345678901234567890123456789";
        let list = format!(
            "100644 blob {object}       7\ta/.env\0100755 blob {object} BAD\tb\n\tc.pem\0\
             120000 blob {object} 3\tlink.pem\0160000 commit {object}       -\tsub.pem\0"
        );
        let files = parse_list(list.as_bytes()).unwrap();
        let plain: Vec<_> =
            files.iter().map(|file| (file.path.to_str().unwrap(), file.is_file)).collect();
        let expected =
            [("a/.env", true), ("b\n\tc.pem", true), ("link.pem", false), ("sub.pem", false)];
        assert_eq!(plain, expected);
        assert_eq!((files[0].size, files[1].size), (Some(7), None));
        assert_eq!((files[0].is_executable, files[1].is_executable), (false, true));
        for wrong in [
            format!("100644 blob {object} 7 a\0"),
            format!("100644 blob {object} 7\t../a\0"),
            format!("100644 blob {object} 7\t/a\0"),
            "100644 blob --output=x 7\ta\0".to_owned(),
            "nonsense".to_owned(),
        ] {
            assert_eq!(parse_list(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn contents_are_parsed_or_refused() {
        let output = b"aa blob 3\na\nb\nbb missing\ncc blob 0\n\n";
        let contents = parse_contents(output).unwrap();
        assert_eq!(contents["aa"], b"a\nb");
        assert_eq!(contents["cc"], b"");
        assert_eq!(contents.len(), 2);
        for wrong in [&b"aa blob 9\na"[..], b"aa blob 1\nab", b"aa tree 0\n\n", b"aa", b"\xff\n"] {
            assert_eq!(parse_contents(wrong), None);
        }
    }

    #[test]
    fn unusable_files_have_a_reason() {
        let (small, large) = (listed("a", Some(1)), listed("b", Some(FILE_BYTES_MAX + 1)));
        let (missing, mut link) = (listed("c", None), listed("d", Some(1)));
        link.is_file = false;
        let large_sum = listed("e", Some(FILE_BYTES_MAX));
        let paths =
            [vec![&small], vec![&large], vec![&missing], vec![&link], vec![], vec![&large_sum; 9]];
        let expected = [Ok(()), Err(TOO_LARGE), Err(MISSING), Err(NO_FILE), Ok(()), Err(TOO_MUCH)];
        assert_eq!(check(&paths), expected);
        assert_eq!(check(&[vec![&small; FILES_MAX + 1]]), [Err(TOO_MUCH)]);
    }

    #[test]
    fn folder_contains_the_files_below_it() {
        let file = listed(".aws/a", Some(1));
        assert!(is_at(&file, Path::new(".aws"), true) && !is_at(&file, Path::new(".aws"), false));
        assert!(
            is_at(&file, Path::new(".aws/a"), false) && !is_at(&file, Path::new(".aws/a"), true)
        );
        assert!(!is_at(&file, Path::new(".aw"), true));
    }

    #[test]
    fn content_of_another_size_is_not_used() {
        let file = listed("a", Some(2));
        let contents = |bytes: &[u8]| HashMap::from([(file.object.clone(), bytes.to_vec())]);
        let tree = Path::new("/w");
        let with = |bytes: &[u8]| with_contents(tree, &[&file], &contents(bytes));
        assert_eq!(with(b"abc"), Committed::Unusable(MISSING));
        let path = "/w/a".into();
        let committed = CommittedFile { path, is_executable: false, bytes: b"ab".to_vec() };
        assert_eq!(with(b"ab"), Committed::Files(vec![committed]));
        assert_eq!(with_contents(tree, &[&file], &HashMap::new()), Committed::Unusable(MISSING));
    }
}
