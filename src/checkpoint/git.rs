//! Runs git on the private git folder of a store.
//!
//! Every call gets the git folder, and neither configuration of the system and the user nor
//! attributes. No call has the workspace as its working directory or reads from it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};
use std::thread::JoinHandle;

use posse_sandbox::git_settings::PROGRAMS;
use posse_sandbox::{find_program, private_git};

use crate::entry::Kind;
use crate::names;

/// Tree without files. git knows it without having stored it.
pub(crate) const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Folder of the refs of stored commits.
const REFS: &str = "refs/checkpoints/";

/// Maximum bytes of the error output of git that are kept.
const ERRORS_BYTES_MAX: u64 = 2000;

/// Capacity in bytes of the buffer for the input of git.
const BUFFER_BYTES: usize = 1 << 18;

/// Settings of the store. Speed counts more than size; nothing runs by itself.
const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
\tcompression = 1
\tprotectNTFS = false
\tprotectHFS = false
[pack]
\tcompression = 1
\tthreads = 2
[fastimport]
\tunpackLimit = 1
[gc]
\tauto = 0
[maintenance]
\tauto = false
";

/// Error of a call of git.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// The disk is full, or a quota is exhausted.
    #[error("no space is left on the disk")]
    Full,
    /// git failed. The text is the beginning of its error output.
    #[error("git failed: {0}")]
    Failed(String),
    /// git could not be run, or the pipe to it broke.
    #[error("git cannot be used: {0}")]
    Io(io::Error),
}

impl From<io::Error> for GitError {
    fn from(error: io::Error) -> GitError {
        if is_full(&error) { GitError::Full } else { GitError::Io(error) }
    }
}

/// True if the error means that the disk is full or a quota is exhausted.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Finds the program git. `None` if there is none.
pub(crate) fn program() -> Option<PathBuf> {
    find_program("git", &PROGRAMS)
}

/// Difference of one file between two trees. `None` instead of an object: the file is not in that
/// tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeChange {
    /// Folder name of the root.
    pub(crate) root: String,
    /// Path below the root.
    pub(crate) path: Vec<u8>,
    pub(crate) before: Option<(Kind, String)>,
    pub(crate) after: Option<(Kind, String)>,
}

/// Private git folder, and the program that works in it.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    program: PathBuf,
    dir: PathBuf,
}

impl Git {
    /// Opens the git folder `dir`, which is created if it is missing.
    pub(crate) fn open(program: PathBuf, dir: PathBuf) -> io::Result<Git> {
        if !dir.join("HEAD").exists() {
            for folder in ["objects/pack", "objects/info", "refs/checkpoints"] {
                DirBuilder::new().recursive(true).mode(0o700).create(dir.join(folder))?;
            }
            fs::write(dir.join("config"), CONFIG)?;
            // Last: with this file the folder is complete.
            fs::write(dir.join("HEAD"), "ref: refs/heads/none\n")?;
        }
        Ok(Git { program, dir })
    }

    fn spawn(&self, arguments: &[&str], has_input: bool) -> io::Result<Child> {
        private_git::spawn(&self.program, &self.dir, arguments, has_input)
    }

    /// Runs git and returns its output.
    fn output(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        let output = self.spawn(arguments, false)?.wait_with_output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(failure(&output.stderr))
    }

    /// True if the store contains the tree.
    pub(crate) fn has_tree(&self, tree: &str) -> bool {
        self.output(&["cat-file", "-e", &format!("{tree}^{{tree}}")]).is_ok()
    }

    /// Starts a process that stores files.
    pub(crate) fn import(&self) -> Result<Import, GitError> {
        // Those of a process that was killed.
        remove_remains(&self.dir);
        let arguments = ["fast-import", "--quiet", "--done", "--depth=0", "--date-format=raw"];
        let mut child = self.spawn(&arguments, true)?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(GitError::Io(io::Error::other("no pipe")));
        };
        let errors = std::thread::Builder::new().spawn(move || {
            let mut text = Vec::new();
            errors.take(ERRORS_BYTES_MAX).read_to_end(&mut text).ok();
            text
        });
        let input = BufWriter::with_capacity(BUFFER_BYTES, input);
        let running = Running { child, is_done: false };
        let errors = errors?;
        let dir = self.dir.clone();
        Ok(Import { input: Some(input), output, errors: Some(errors), running, marks: 1, dir })
    }

    /// Compares two trees; an empty id means the tree without files. Entries that a store does not
    /// write are left out.
    pub(crate) fn diff(&self, from: &str, to: &str) -> Result<Vec<TreeChange>, GitError> {
        let [from, to] = [from, to].map(|tree| if tree.is_empty() { EMPTY_TREE } else { tree });
        if from == to {
            return Ok(Vec::new());
        }
        let arguments = [
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-renames",
            "--no-abbrev",
            "--no-ext-diff",
            from,
            to,
        ];
        let output = self.output(&arguments)?;
        parse_diff(&output).ok_or_else(|| GitError::Failed("its answer is unreadable".to_owned()))
    }

    /// Reads the contents of `objects`, and calls `each` with the index and the content of each.
    /// Stops at an error of `each`.
    pub(crate) fn contents<E: From<GitError>>(
        &self,
        objects: &[&str],
        mut each: impl FnMut(usize, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |error: io::Error| E::from(GitError::from(error));
        if objects.is_empty() {
            return Ok(());
        }
        let mut child = self.spawn(&["cat-file", "--batch"], true).map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut running = Running { child, is_done: false };
        let (Some(mut input), Some(output)) = (input, output) else {
            return Err(failed(io::Error::other("no pipe")));
        };
        let wanted = objects.iter().flat_map(|object| [object.as_bytes(), b"\n"]);
        let wanted = wanted.collect::<Vec<_>>().concat();
        let writer = std::thread::Builder::new().spawn(move || input.write_all(&wanted));
        let writer = writer.map_err(failed)?;
        let mut output = BufReader::with_capacity(BUFFER_BYTES, output);
        for (at, object) in objects.iter().enumerate() {
            let content = read_object(&mut output).map_err(failed)?;
            let missing = || GitError::Failed(format!("object {object} is missing in the store"));
            each(at, content.ok_or_else(missing)?)?;
        }
        drop(output);
        writer.join().ok();
        running.wait().map_err(failed)?;
        Ok(())
    }

    /// Number of packs, each with the files of one snapshot or of several.
    pub(crate) fn packs(&self) -> usize {
        let packs = fs::read_dir(self.dir.join("objects/pack"));
        let is_pack = |entry: &fs::DirEntry| entry.path().extension() == Some(OsStr::new("pack"));
        packs.map_or(0, |packs| packs.flatten().filter(is_pack).count())
    }

    /// Combines packs without removing anything.
    pub(crate) fn combine_packs(&self) -> Result<(), GitError> {
        self.output(&["repack", "--geometric=2", "-d", "-q", "-l"]).map(drop)
    }

    /// Removes the refs of commits for which `is_used` returns false, and everything that only
    /// these contain.
    pub(crate) fn remove_unused(&self, is_used: impl Fn(&str) -> bool) -> Result<(), GitError> {
        let list = self.output(&["for-each-ref", "--format=%(objectname) %(refname)", REFS])?;
        let mut is_any_left = false;
        for line in String::from_utf8_lossy(&list).lines() {
            let Some((commit, name)) = line.split_once(' ') else { continue };
            if is_used(commit) {
                is_any_left = true;
            } else {
                self.output(&["update-ref", "-d", name])?;
            }
        }
        if is_any_left {
            self.output(&["repack", "-a", "-d", "-q", "--window=0", "--depth=0"])?;
            self.output(&["prune", "--expire=now"])?;
        } else {
            for folder in ["objects", "refs"] {
                fs::remove_dir_all(self.dir.join(folder))?;
            }
            for folder in ["objects/pack", "objects/info", "refs/checkpoints"] {
                DirBuilder::new().recursive(true).mode(0o700).create(self.dir.join(folder))?;
            }
        }
        Ok(())
    }
}

/// A child process that is killed and awaited on drop.
struct Running {
    child: Child,
    is_done: bool,
}

impl Running {
    fn wait(&mut self) -> io::Result<std::process::ExitStatus> {
        let status = self.child.wait();
        self.is_done = status.is_ok();
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_done {
            // It may have ended by itself.
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// Running `git fast-import`. Without [`Import::commit`] nothing of it remains in the store.
pub(crate) struct Import {
    input: Option<BufWriter<ChildStdin>>,
    output: ChildStdout,
    errors: Option<JoinHandle<Vec<u8>>>,
    running: Running,
    /// Number of marks used so far. Mark 1 is the commit.
    marks: u64,
    dir: PathBuf,
}

/// Change of one file in a commit that is written.
pub(crate) enum TreeStep {
    Remove(Vec<u8>),
    /// Set the file to the content with this mark of [`Import::blob`].
    Set(Vec<u8>, Kind, u64),
}

impl Import {
    /// Stores a content and returns its mark.
    pub(crate) fn blob(&mut self, content: &[u8]) -> Result<u64, GitError> {
        self.marks += 1;
        let mark = self.marks;
        let written = self.write(&[
            format!("blob\nmark :{mark}\ndata {}\n", content.len()).as_bytes(),
            content,
            b"\n",
        ]);
        written.map_err(|error| self.explain(error))?;
        Ok(mark)
    }

    /// Writes a commit without parents under the ref `name`: the tree `base` with `steps`. Returns
    /// the ids of commit and tree.
    pub(crate) fn commit(
        mut self,
        name: &str,
        seconds: u64,
        base: &str,
        steps: &[TreeStep],
    ) -> Result<(String, String), GitError> {
        let written = self.write_commit(name, seconds, base, steps);
        // Closes the pipe.
        let flushed = self.input.take().map_or(Ok(()), |mut input| input.flush());
        if let Err(error) = written.and(flushed) {
            return Err(self.explain(error));
        }
        let mut answer = String::new();
        let read = (&mut self.output).take(4096).read_to_string(&mut answer);
        let status = self.running.wait();
        match (read, status) {
            (Ok(_), Ok(status)) if status.success() => {}
            (Err(error), _) | (_, Err(error)) => return Err(self.explain(error)),
            _ => return Err(self.explain(io::Error::other("it failed"))),
        }
        let mut lines = answer.lines();
        let commit = lines.next().map(str::to_owned).filter(|id| is_id(id));
        let tree = lines.next().and_then(|line| line.strip_prefix("040000 tree "));
        let tree = tree.and_then(|line| line.split('\t').next());
        let tree = tree.map(str::to_owned).filter(|id| is_id(id));
        // Without files git has no tree to show.
        let tree = tree.unwrap_or_else(|| EMPTY_TREE.to_owned());
        let commit = commit.ok_or_else(|| GitError::Failed("it names no commit".to_owned()))?;
        Ok((commit, tree))
    }

    fn write_commit(
        &mut self,
        name: &str,
        seconds: u64,
        base: &str,
        steps: &[TreeStep],
    ) -> io::Result<()> {
        let head = format!(
            "commit {REFS}{name}\nmark :1\ncommitter posse <posse@localhost> {seconds} +0000\n\
             data 0\n"
        );
        self.write(&[head.as_bytes()])?;
        if !base.is_empty() && base != EMPTY_TREE {
            self.write(&[format!("M 040000 {base} \"\"\n").as_bytes()])?;
        }
        // A removed file may be in the place of a new folder.
        for step in steps {
            if let TreeStep::Remove(path) = step {
                self.write(&[b"D ", &names::quoted(path), b"\n"])?;
            }
        }
        for step in steps {
            if let TreeStep::Set(path, kind, mark) = step {
                let head = format!("M {} :{mark} ", kind.mode());
                self.write(&[head.as_bytes(), &names::quoted(path), b"\n"])?;
            }
        }
        self.write(&[b"\nget-mark :1\nls :1 \"\"\ndone\n"])
    }

    fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let Some(input) = &mut self.input else { return Err(io::ErrorKind::BrokenPipe.into()) };
        parts.iter().try_for_each(|part| input.write_all(part))
    }

    /// The cause of `error`: what git says, if it has ended.
    fn explain(&mut self, error: io::Error) -> GitError {
        self.input = None;
        // It may have ended by itself.
        self.running.child.kill().ok();
        self.running.wait().ok();
        let text = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        remove_remains(&self.dir);
        if text.is_empty() { error.into() } else { failure(&text) }
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        if !self.running.is_done {
            self.explain(io::Error::other("given up"));
        }
    }
}

/// Removes the reports and unfinished packs of failed imports.
fn remove_remains(dir: &Path) {
    let folders = [(dir.to_owned(), "fast_import_crash_"), (dir.join("objects/pack"), "tmp_")];
    for (folder, begin) in folders {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(begin) {
                // The next failure removes it.
                fs::remove_file(entry.path()).ok();
            }
        }
    }
}

fn failure(errors: &[u8]) -> GitError {
    let text = String::from_utf8_lossy(errors);
    if ["No space left on device", "Out of diskspace", "Disk quota exceeded", "File too large"]
        .iter()
        .any(|full| text.contains(full))
    {
        return GitError::Full;
    }
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("without a reason");
    GitError::Failed(line.chars().take(200).collect())
}

fn is_id(text: &str) -> bool {
    text.len() == EMPTY_TREE.len() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Parses the output of `git diff-tree -r -z --raw --no-abbrev`.
fn parse_diff(output: &[u8]) -> Option<Vec<TreeChange>> {
    let mut fields = output.split(|byte| *byte == 0);
    let mut changes = Vec::new();
    while let Some(head) = fields.next().filter(|head| !head.is_empty()) {
        let path = fields.next()?;
        let mut words = head.strip_prefix(b":")?.split(|byte| *byte == b' ');
        let (old_mode, new_mode) = (words.next()?, words.next()?);
        let side = |mode: &[u8], id: &[u8]| {
            let id = std::str::from_utf8(id).ok().filter(|id| is_id(id))?;
            Some((Kind::of_mode(mode)?, id.to_owned()))
        };
        let (before, after) = (side(old_mode, words.next()?), side(new_mode, words.next()?));
        let Some((root, path)) = names::split(path) else { continue };
        changes.push(TreeChange { root: root.to_owned(), path, before, after });
    }
    Some(changes)
}

/// Reads one object from the output of `git cat-file --batch`. `None` if it is missing.
fn read_object(output: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    output.take(256).read_until(b'\n', &mut head)?;
    let unreadable = || io::Error::other("the answer of git is unreadable");
    let head = std::str::from_utf8(&head).map_err(|_| unreadable())?;
    let words: Vec<&str> = head.trim_end().split(' ').collect();
    match words[..] {
        [_, "missing"] => Ok(None),
        [_, "blob", size] => {
            let size: u64 = size.parse().map_err(|_| unreadable())?;
            let mut content = Vec::new();
            output.take(size).read_to_end(&mut content)?;
            let mut end = [0];
            output.read_exact(&mut end)?;
            if content.len() as u64 == size { Ok(Some(content)) } else { Err(unreadable()) }
        }
        _ => Err(unreadable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(dir: &Path) -> Git {
        Git::open(program().unwrap(), dir.join("git")).unwrap()
    }

    #[test]
    fn files_are_stored_compared_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let git = git(dir.path());
        let mut import = git.import().unwrap();
        let one = import.blob(b"one\n").unwrap();
        let two = import.blob(b"two \0 \xff").unwrap();
        let path = |path: &str| names::tree_path("r", path.as_bytes());
        let steps = [
            TreeStep::Set(path("a\n\"b"), Kind::File, one),
            TreeStep::Set(path(".git/HEAD"), Kind::Executable, two),
        ];
        let (_, tree) = import.commit("1", 7, "", &steps).unwrap();
        assert!(git.has_tree(&tree) && !git.has_tree(&"1".repeat(40)));
        let mut import = git.import().unwrap();
        let other = import.blob(b"three").unwrap();
        // A file becomes a folder.
        let steps =
            [TreeStep::Set(path("a\n\"b/c"), Kind::Link, other), TreeStep::Remove(path("a\n\"b"))];
        let (_, next) = import.commit("2", 8, &tree, &steps).unwrap();
        let changes = git.diff(&tree, &next).unwrap();
        let said: Vec<_> = changes
            .iter()
            .map(|change| (&*change.path, change.before.is_some(), change.after.is_some()))
            .collect();
        assert_eq!(said, [(&b"a\n\"b"[..], true, false), (b"a\n\"b/c", false, true)]);
        assert_eq!(changes[1].after.as_ref().unwrap().0, Kind::Link);
        let all = git.diff("", &next).unwrap();
        let objects: Vec<&str> =
            all.iter().map(|change| &*change.after.as_ref().unwrap().1).collect();
        let mut found = Vec::new();
        git.contents::<GitError>(&objects, |_, content| {
            found.push(content);
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [&b"two \0 \xff"[..], b"three"]);
        let missing = "1".repeat(40);
        assert!(git.contents::<GitError>(&[&missing], |_, _| Ok(())).is_err());
    }

    #[test]
    fn imports_that_are_given_up_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let git = git(dir.path());
        let mut import = git.import().unwrap();
        import.blob(&vec![7; 1 << 20]).unwrap();
        drop(import);
        let mut import = git.import().unwrap();
        import.blob(b"x").unwrap();
        let error = import.commit("bad name~", 1, "", &[]).unwrap_err();
        assert!(matches!(error, GitError::Failed(_)), "{error}");
        assert_eq!(git.packs(), 0);
        let names = fs::read_dir(dir.path().join("git")).unwrap();
        let crashes = names
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().contains("crash"))
            .count();
        assert_eq!(crashes, 0);
    }

    #[test]
    fn full_disks_are_recognised() {
        for full in ["fatal: write: No space left on device\n", "write error. Out of diskspace\n"] {
            assert!(matches!(failure(full.as_bytes()), GitError::Full), "{full}");
        }
        assert!(
            matches!(failure(b"\nfatal: other\n"), GitError::Failed(text) if text == "fatal: other")
        );
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(matches!(GitError::from(full), GitError::Full));
    }

    #[test]
    fn answers_of_another_form_are_refused() {
        for wrong in [&b"x"[..], b":100644 100644 a b M", b":100644\0path\0"] {
            assert_eq!(parse_diff(wrong), None);
        }
        for wrong in [&b"a blob 9\nx"[..], b"a tree 0\n\n", b"\xff\n", b""] {
            assert!(read_object(&mut &*wrong).is_err());
        }
        assert_eq!(read_object(&mut &b"a missing\n"[..]).unwrap(), None);
    }
}
