//! Queries git about the user's repository: its location, and the files that belong to it.
//!
//! The repository is untrusted, and its settings can name programs. So git runs as a read-only
//! command without network, and the settings by which these queries could start other programs are
//! overridden.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use posse_actors::ports::{Confinement, NetworkAccess};
use posse_base::failure::printable;
use posse_sandbox::git_settings::{HARMLESS, PROGRAMS, VARIABLES};
use posse_sandbox::{Dialogue, Directory, Exit, ProcessOutcome, Sandbox, Spawn, find_program};

use crate::worktree::Unavailable;

/// Time limit of one query of git.
const GIT_MAX: Duration = Duration::from_secs(30);
/// Maximum size of the output of a query in bytes. It can contain the names of all files.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes of git's error output that are read.
const COMPLAINT_BYTES_MAX: usize = 2000;
/// Maximum number of characters of git's error output in a message.
const COMPLAINT_CHARS_MAX: usize = 200;

/// The user's git repository.
#[derive(Debug)]
pub(super) struct Repository {
    /// Root of the working tree.
    pub(super) top: PathBuf,
    /// Git folder of this working tree, which contains its index.
    pub(super) git_dir: PathBuf,
    /// Git folder that all working trees share: objects, branches, settings.
    pub(super) common: PathBuf,
    /// Hash of the commit that is checked out.
    pub(super) head: String,
}

/// Finds the repository around `cwd`. Fails if a worktree cannot be made from it: if it is bare,
/// has no commit, stores its branches in the format `reftable`, or has settings that name another
/// working tree.
pub(super) async fn repository(
    sandbox: &Sandbox,
    session_dir: &Path,
    cwd: &Path,
    main_of: fn(&Path) -> Option<PathBuf>,
) -> Result<Repository, Unavailable> {
    let (top, common) = looked_up(cwd, main_of)?;
    let asked = [
        "rev-parse",
        "--is-bare-repository",
        "--path-format=absolute",
        "--git-common-dir",
        "--git-dir",
        "--show-toplevel",
        "HEAD^{commit}",
    ];
    let answer = ask(sandbox, session_dir, &top, &asked).await?;
    let mut lines = answer.said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut path = || lines.next().map(|line| PathBuf::from(OsString::from_vec(line.to_vec())));
    let bare = path().ok_or_else(|| answer.git_error())?;
    if bare == Path::new("true") {
        return Err(Unavailable::Bare);
    }
    let (Some(common_said), Some(git_dir), Some(top_said)) = (path(), path(), path()) else {
        return Err(answer.git_error());
    };
    // Its settings can name any folder of the machine.
    let same = |said: &Path, known: &Path| {
        said.canonicalize().ok().is_some_and(|said| Some(said) == known.canonicalize().ok())
    };
    let in_list = git_dir.strip_prefix(common_said.join("worktrees")).ok();
    let in_list = in_list.filter(|name| name.file_name() == Some(name.as_os_str()));
    let is_here = git_dir == common_said || in_list.is_some();
    if !same(&common_said, &common) || !same(&top_said, &top) || !is_here {
        return Err(Unavailable::Elsewhere);
    }
    // The paths that are used are those known without git: no link is on the way.
    let git_dir =
        in_list.map_or_else(|| common.clone(), |name| common.join("worktrees").join(name));
    let head = path().filter(|_| answer.is_success).ok_or(Unavailable::NoCommit)?;
    let head = head.to_str().filter(|head| head.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let head = head.ok_or(Unavailable::NoCommit)?.to_owned();
    if common.join("reftable").symlink_metadata().is_ok() {
        return Err(Unavailable::Format);
    }
    Ok(Repository { top, git_dir, common, head })
}

/// Finds the top folder of the repository around `cwd`, and the common git folder that git has to
/// report for it. Does not run git.
fn looked_up(
    cwd: &Path,
    main_of: fn(&Path) -> Option<PathBuf>,
) -> Result<(PathBuf, PathBuf), Unavailable> {
    let has_git = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
    let Some(top) = cwd.ancestors().find(has_git) else {
        let is_bare = ["HEAD", "objects", "refs"].iter().all(|name| cwd.join(name).exists());
        return Err(if is_bare { Unavailable::Bare } else { Unavailable::NoRepository });
    };
    let git = top.join(".git");
    let found = git.symlink_metadata().map_err(|_| Unavailable::NoRepository)?;
    if found.is_dir() {
        return Ok((top.to_owned(), git));
    }
    // A pointer file is accepted if the other end points back.
    let main = if found.is_file() { main_of(top) } else { None };
    let main = main.ok_or(Unavailable::Pointer)?;
    Ok((top.to_owned(), main.join(".git")))
}

/// Lists the files that a copy of the working tree contains, as paths relative to its top: tracked
/// files, and untracked files that git does not ignore. Secrets are not left out here. A submodule
/// or another repository in the list is an error.
pub(super) async fn files(
    sandbox: &Sandbox,
    session_dir: &Path,
    repository: &Repository,
) -> Result<Vec<PathBuf>, Unavailable> {
    let asked = ["ls-files", "-z", "-t", "-s", "--cached", "--others", "--exclude-standard"];
    let answer = ask(sandbox, session_dir, &repository.top, &asked).await?;
    if !answer.is_success {
        return Err(answer.git_error());
    }
    parse_list(&answer.said)
}

/// Parses the list of files from git: `? path` is untracked, `H mode object stage<TAB>path` is
/// tracked. A submodule or another repository in the list is an error.
fn parse_list(list: &[u8]) -> Result<Vec<PathBuf>, Unavailable> {
    let mut paths = Vec::new();
    for entry in list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let untracked = entry.strip_prefix(b"? ");
        let tab = entry.iter().position(|byte| *byte == b'\t');
        let Some(path) = untracked.or_else(|| Some(&entry[tab? + 1..])) else {
            return Err(Unavailable::Failed("git lists files in an unknown way".to_owned()));
        };
        if untracked.is_some() && path.ends_with(b"/") {
            return Err(Unavailable::Nested(shown(path)));
        }
        let mode = entry.split(|byte| *byte == b' ').nth(1);
        if untracked.is_none() && mode == Some(b"160000") {
            return Err(Unavailable::Submodule(shown(path)));
        }
        paths.push(PathBuf::from(OsStr::from_bytes(path)));
    }
    // Unmerged files are listed more than once.
    paths.sort_unstable();
    paths.dedup();
    Ok(paths)
}

fn shown(path: &[u8]) -> String {
    printable(&String::from_utf8_lossy(path))
}

struct GitOutput {
    is_success: bool,
    said: Vec<u8>,
    complained: Vec<u8>,
}

impl GitOutput {
    fn git_error(&self) -> Unavailable {
        let text = String::from_utf8_lossy(&self.complained);
        let line = text.lines().next().unwrap_or("it says nothing");
        let line: String = line.chars().take(COMPLAINT_CHARS_MAX).collect();
        Unavailable::Failed(format!("git: {}", printable(&line)))
    }
}

async fn ask(
    sandbox: &Sandbox,
    session_dir: &Path,
    top: &Path,
    asked: &[&str],
) -> Result<GitOutput, Unavailable> {
    let program = find_program("git", &PROGRAMS).ok_or(Unavailable::NoGit)?;
    let mut arguments: Vec<OsString> = vec!["--no-pager".into()];
    for setting in HARMLESS {
        arguments.extend(["-c".into(), setting.into()]);
    }
    arguments.extend(asked.iter().map(OsString::from));
    let variables = VARIABLES.map(|(name, value)| (name.into(), value.into()));
    let spawn = Spawn {
        program,
        arguments,
        directory: Directory::Path(top.to_owned()),
        environment: variables.to_vec(),
        confinement: Confinement {
            profile: "read-only".to_owned(),
            writable_roots: Vec::new(),
            network: NetworkAccess::Denied,
        },
        timeout: GIT_MAX,
        scratch: session_dir.join("tmp"),
        spill: session_dir.join("outputs").join("git.txt"),
        // Half of the limit applies to the beginning, and half to the end.
        output_bytes_max: ANSWER_BYTES_MAX,
        spill_bytes_max: ANSWER_BYTES_MAX as u64,
        dialogue: Some(Dialogue { input: Vec::new(), errors_bytes_max: COMPLAINT_BYTES_MAX }),
        stop: None,
        masks_keys: false,
        at_timeout: None,
    };
    let run = sandbox.run(spawn, |_| {}).await;
    let ProcessOutcome { exit, output, errors, .. } =
        run.map_err(|error| Unavailable::Failed(format!("git: {error}")))?;
    if let Some(spill) = &output.spill {
        // Too many files are an error; the list is not needed.
        std::fs::remove_file(spill).ok();
    }
    if output.cut() > 0 || exit == Exit::OutputFull {
        return Err(Unavailable::TooLarge("64 MiB of file names"));
    }
    if exit == Exit::TimedOut {
        return Err(Unavailable::TimedOut { action: "a query of git", limit: GIT_MAX });
    }
    let said = [&output.head[..], &output.tail].concat();
    Ok(GitOutput { is_success: exit == Exit::Code(0), said, complained: errors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_folders_of_a_repository() {
        let list = b"? new \xff\0H 100644 0123 0\ta\tb\0M 100644 01 1\tboth\0M 100644 02 2\tboth\0\
            S 120000 0123 0\tlink\0";
        let files = parse_list(list).unwrap();
        let paths: Vec<&[u8]> = files.iter().map(|path| path.as_os_str().as_bytes()).collect();
        assert_eq!(paths, [&b"a\tb"[..], b"both", b"link", b"new \xff"]);
        let refused = |list: &[u8]| parse_list(list).unwrap_err();
        let submodule = refused(b"H 100644 0 0\ta\0H 160000 0123 0\tvendor/x\0");
        assert_eq!(submodule, Unavailable::Submodule("vendor/x".to_owned()));
        assert_eq!(refused(b"? inner/\0"), Unavailable::Nested("inner/".to_owned()));
        assert!(matches!(refused(b"nonsense\0"), Unavailable::Failed(_)));
    }

    #[test]
    fn pointer_needs_a_matching_back_reference() {
        let dir = tempfile::tempdir().unwrap();
        let (top, below) = (dir.path().join("w"), dir.path().join("w/a"));
        std::fs::create_dir_all(&below).unwrap();
        let nobody: fn(&Path) -> Option<PathBuf> = |_| None;
        let main: fn(&Path) -> Option<PathBuf> = |_| Some(PathBuf::from("/main"));
        assert_eq!(looked_up(&below, nobody), Err(Unavailable::NoRepository));
        std::os::unix::fs::symlink("/etc", top.join(".git")).unwrap();
        assert_eq!(looked_up(&below, main), Err(Unavailable::Pointer));
        std::fs::remove_file(top.join(".git")).unwrap();
        std::fs::write(top.join(".git"), "gitdir: /elsewhere\n").unwrap();
        assert_eq!(looked_up(&below, nobody), Err(Unavailable::Pointer));
        assert_eq!(looked_up(&below, main), Ok((top.clone(), PathBuf::from("/main/.git"))));
        std::fs::remove_file(top.join(".git")).unwrap();
        std::fs::create_dir(top.join(".git")).unwrap();
        assert_eq!(looked_up(&below, nobody), Ok((top.clone(), top.join(".git"))));
        for name in ["HEAD", "objects", "refs"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(looked_up(dir.path(), nobody), Err(Unavailable::Bare));
    }
}
