//! Address of an attachable session: its socket, and the token that clients must present.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::libc::{O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK};
use posse_base::hex::hex;

/// File name of the token in the state directory.
const TOKEN: &str = "attach.token";

/// Length of a token in bytes. The file contains twice as many hexadecimal digits.
const TOKEN_BYTES: usize = 32;

/// Maximum length of a socket path in bytes: `sun_path` without its terminating zero (`unix(7)`).
const ADDRESS_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Address of one attachable session: its socket, and the state directory with the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketAddress {
    /// State directory of the user.
    state: PathBuf,
    /// Socket in the folder of the session.
    socket: PathBuf,
}

/// Socket path that is short enough for the system. Valid only while this value exists.
pub(crate) struct Address {
    pub(crate) path: PathBuf,
    /// Open folder whose descriptor is part of `path`. `None`: `path` is the original path.
    _folder: Option<File>,
}

impl SocketAddress {
    /// Creates the address of the session with the socket `socket`. `state`: state directory, which
    /// contains the token.
    pub fn new(state: impl Into<PathBuf>, socket: impl Into<PathBuf>) -> SocketAddress {
        SocketAddress { state: state.into(), socket: socket.into() }
    }

    /// Returns the path to connect or bind to. If the socket's path is too long, the returned path
    /// refers to its folder by an open descriptor; then a folder that is missing or a link is an
    /// error. Systems other than Linux cannot do that, and a path that is too long is an error
    /// there.
    pub(crate) fn address(&self) -> io::Result<Address> {
        if self.socket.as_os_str().len() <= ADDRESS_BYTES_MAX {
            return Ok(Address { path: self.socket.clone(), _folder: None });
        }
        let too_long =
            || io::Error::other("the path of the attach socket is too long for this system");
        let name = self.socket.file_name().unwrap_or(OsStr::new(""));
        let folder = self.socket.parent().filter(|_| cfg!(target_os = "linux"));
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
            .open(folder.ok_or_else(too_long)?)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Address { path, _folder: Some(folder) })
    }

    /// Binds the socket with mode 0600 and returns the listener, which does not block. An existing
    /// socket is removed first, even one in use: the caller must hold the lock of the session.
    /// Another kind of file in its place is an error.
    pub(crate) fn listen(&self) -> io::Result<std::os::unix::net::UnixListener> {
        let address = self.address()?;
        self.remove_socket();
        let listener = std::os::unix::net::UnixListener::bind(&address.path)?;
        // The permissions of the folder already exclude other users.
        fs::set_permissions(&address.path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Removes the socket. Other kinds of files are left in place. Errors are ignored.
    pub(crate) fn remove_socket(&self) {
        let is_socket = |found: fs::Metadata| found.file_type().is_socket();
        if self.socket.symlink_metadata().is_ok_and(is_socket) {
            // It may be gone by now.
            fs::remove_file(&self.socket).ok();
        }
    }

    /// Returns the token of the state directory, and creates it if it is missing. A token file that
    /// is a link, belongs to another user, is accessible to others or is malformed is an error.
    pub(crate) fn token(&self) -> io::Result<String> {
        let path = self.state.join(TOKEN);
        match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            found => return found,
        }
        make(&path)?;
        read(&path)
    }
}

/// Reads the token file. A missing file is the error `NotFound`. A symbolic link, a file of another
/// user, a file that group or others can access and a malformed token are errors, too.
fn read(path: &Path) -> io::Result<String> {
    let flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let wrong = |what: &str| {
        let fix = "remove it; the next front end that attaches creates a new one";
        io::Error::other(format!("{} {what}: {fix}", path.display()))
    };
    if !found.is_file() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(wrong("is not a file of this user"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(wrong("can be read or changed by others"));
    }
    let mut text = String::new();
    file.take(2 * TOKEN_BYTES as u64 + 1).read_to_string(&mut text)?;
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if text.len() != 2 * TOKEN_BYTES || !text.chars().all(is_hex) {
        return Err(wrong("is damaged"));
    }
    Ok(text)
}

/// Creates the token file atomically. If another process has created it meanwhile, that file stays,
/// and this is no error.
fn make(path: &Path) -> io::Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut random = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let token = hex(&random);
    let nth = COUNT.fetch_add(1, Ordering::Relaxed);
    let unfinished = path.with_extension(format!("new-{}-{nth}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(O_CLOEXEC)
        .open(&unfinished)
        .and_then(|mut file| file.write_all(token.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| match fs::hard_link(&unfinished, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        });
    fs::remove_file(&unfinished).ok();
    written
}

/// Returns true if two tokens are equal. Compares in constant time, so that timing does not reveal
/// where they differ.
pub(crate) fn constant_time_eq(ours: &str, theirs: &str) -> bool {
    let differ = ours.bytes().zip(theirs.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    ours.len() == theirs.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: &Path) -> SocketAddress {
        SocketAddress::new(dir, dir.join("attach.sock"))
    }

    #[test]
    fn the_token_is_created_once_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let makers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| place(dir.path()).token().unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert_eq!(tokens[0].len(), 64);
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(names[0].metadata().unwrap().mode() & 0o7777, 0o600);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(place(other.path()).token().unwrap(), tokens[0]);
    }

    #[test]
    fn a_readable_or_damaged_token_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TOKEN);
        let token = place(dir.path()).token().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(place(dir.path()).token().is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(place(dir.path()).token().unwrap(), token);
        for text in ["", "ab", &"x".repeat(64), &"a".repeat(65)] {
            fs::write(&path, text).unwrap();
            assert!(place(dir.path()).token().is_err(), "{text:?}");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(place(dir.path()).token().is_err());
    }

    #[test]
    fn tokens_are_compared_completely() {
        for (a, b, same_) in
            [("", "", true), ("ab", "ab", true), ("ab", "ac", false), ("a", "ab", false)]
        {
            assert_eq!(constant_time_eq(a, b), same_, "{a} {b}");
        }
    }

    #[test]
    fn listens_on_long_paths_and_replaces_only_sockets() {
        let dir = tempfile::tempdir().unwrap();
        for depth in [0, 4] {
            let folder = dir.path().join(vec!["a-folder-with-a-long-name-in-it"; depth].join("/"));
            fs::create_dir_all(&folder).unwrap();
            let place = place(&folder);
            assert_eq!(place.socket.as_os_str().len() > ADDRESS_BYTES_MAX, depth > 0);
            drop(place.listen().unwrap());
            // A killed process leaves its socket behind.
            let listener = place.listen().unwrap();
            let mode = place.socket.metadata().unwrap().mode();
            assert_eq!(mode & 0o7777, 0o600);
            let address = place.address().unwrap();
            std::os::unix::net::UnixStream::connect(&address.path).unwrap();
            drop(listener);
            place.remove_socket();
            assert!(!place.socket.exists());
            fs::write(&place.socket, "mine").unwrap();
            assert!(place.listen().is_err());
            assert_eq!(fs::read_to_string(&place.socket).unwrap(), "mine");
            fs::remove_file(&place.socket).unwrap();
        }
    }
}
