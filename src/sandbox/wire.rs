//! Protocol between posse and a helper: binary requests with length prefixes, answered by text
//! lines.
//!
//! Paths and arguments are bytes and need not be UTF-8. A request is read completely and every
//! length is checked before it is executed, so an invalid request runs no command.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};

use crate::sandbox::plan::{Backend, Plan, Tier};

/// Magic of a request: programs of different versions must not accept each other's requests.
const MAGIC: &[u8] = concat!("posse-helper-1 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// Magic of an expected plan, which is sent before the request.
const MAGIC_AHEAD: &[u8] = concat!("posse-expect-1 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// Maximum size of an expected plan: a larger one might not fit into the socket buffer of a helper
/// that has not begun to read.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a request in bytes. The kernel accepts at most 2 MB of arguments.
const REQUEST_BYTES_MAX: usize = 8 << 20;

/// Request to execute a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) plan: Plan,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// All variables.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// Message to a helper.
#[derive(Debug)]
pub(crate) enum Told {
    /// Expected plan of the next request.
    Expect(Plan),
    /// Request, and the working directory.
    Do(Request, OwnedFd),
}

impl Plan {
    fn encode(&self, out: &mut Vec<u8>) {
        let Plan {
            tier,
            backend,
            writable,
            visible,
            masked,
            read_only,
            pinned,
            hidden,
            network,
            processes_max,
        } = self;
        put(out, tier.as_str().as_bytes());
        put(out, backend.as_str().as_bytes());
        put(out, if *network { b"inherit" } else { b"deny" });
        put(out, processes_max.to_string().as_bytes());
        for list in [writable, visible, masked, read_only, pinned, hidden] {
            put_all(out, list.iter().map(|path| path.as_os_str()));
        }
    }

    fn decode(from: &mut Reader<'_>) -> Option<Plan> {
        let tier = Tier::parse(&from.text()?)?;
        let backend = Backend::parse(&from.text()?)?;
        let network = match &*from.text()? {
            "inherit" => true,
            "deny" => false,
            _ => return None,
        };
        let processes_max = from.text()?.parse().ok()?;
        let writable = from.paths()?;
        let visible = from.paths()?;
        let masked = from.paths()?;
        let read_only = from.paths()?;
        let pinned = from.paths()?;
        let hidden = from.paths()?;
        let plan = Plan {
            tier,
            backend,
            writable,
            visible,
            masked,
            read_only,
            pinned,
            hidden,
            network,
            processes_max,
        };
        plan.is_sound().then_some(plan)
    }

    /// Sends the expected plan to a waiting helper. Returns `false` if it is too large.
    pub(crate) fn send_ahead(&self, to: &UnixStream) -> io::Result<bool> {
        let mut body = Vec::with_capacity(4096);
        self.encode(&mut body);
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= AHEAD_BYTES_MAX);
        let Some(length) = length else { return Ok(false) };
        let mut to = to;
        to.write_all(&[MAGIC_AHEAD, &length.to_le_bytes(), &body].concat())?;
        Ok(true)
    }
}

impl Request {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4096);
        self.plan.encode(&mut out);
        put(&mut out, self.program.as_os_str().as_bytes());
        put_all(&mut out, self.arguments.iter().map(|argument| &**argument));
        put_all(&mut out, self.environment.iter().flat_map(|(name, value)| [&**name, &**value]));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Request> {
        let mut from = Reader(bytes);
        let plan = Plan::decode(&mut from)?;
        let program = PathBuf::from(from.string()?);
        let arguments = from.list()?;
        let variables = from.list()?;
        let (pairs, rest) = variables.as_chunks::<2>();
        let environment = pairs.iter().map(|[name, value]| (name.clone(), value.clone())).collect();
        let is_whole = from.0.is_empty() && rest.is_empty() && program.is_absolute();
        is_whole.then_some(Request { plan, program, arguments, environment })
    }

    /// Sends the request and the working directory.
    pub(crate) fn send(&self, to: &UnixStream, directory: BorrowedFd<'_>) -> io::Result<()> {
        let body = self.encode();
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= REQUEST_BYTES_MAX);
        let Some(length) = length else {
            return Err(io::Error::other("the command and its environment exceed the request size limit"));
        };
        let head = [MAGIC, &length.to_le_bytes()].concat();
        let descriptors = [directory.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent =
            sendmsg::<UnixAddr>(to.as_raw_fd(), &[IoSlice::new(&head)], &rights, flags, None)?;
        let mut to = to;
        to.write_all(&head[sent..])?;
        to.write_all(&body)
    }
}

impl Told {
    /// Waits for a message. `None` if the sender closed the socket.
    pub(crate) fn receive(from: &UnixStream) -> Result<Option<Told>, String> {
        let broken = |error: io::Error| format!("cannot read the request: {error}");
        let mut head = [0; MAGIC.len() + 4];
        let (read, directory) = receive_first(from, &mut head).map_err(broken)?;
        if read == 0 {
            return Ok(None);
        }
        let mut from = from;
        from.read_exact(&mut head[read..]).map_err(broken)?;
        let (magic, length) = head.split_at(MAGIC.len());
        let length = u32::from_le_bytes(length.try_into().unwrap_or_default()) as usize;
        let is_ahead = magic == MAGIC_AHEAD;
        if (magic != MAGIC && !is_ahead) || length > REQUEST_BYTES_MAX {
            return Err("the request is invalid or of another version".to_owned());
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body).map_err(broken)?;
        if is_ahead {
            let mut body = Reader(&body);
            let plan = Plan::decode(&mut body).filter(|_| body.0.is_empty());
            return plan.map(Told::Expect).map(Some).ok_or("the plan is invalid".to_owned());
        }
        let request = Request::decode(&body).ok_or("the request is invalid")?;
        let directory = directory.ok_or("the request has no working directory")?;
        Ok(Some(Told::Do(request, directory)))
    }
}

fn receive_first(from: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
    let mut parts = [IoSliceMut::new(into)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<UnixAddr>(from.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Err(nix::errno::Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut directory = None;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            for descriptor in descriptors {
                #[expect(unsafe_code, reason = "a received descriptor is a number")]
                // SAFETY: the kernel has just opened it for us, and it has no other owner.
                let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
                directory = Some(owned);
            }
        }
    }
    Ok((message.bytes, directory))
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    // A longer item exceeds the request limit, which is checked when it is sent.
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_all<'a>(out: &mut Vec<u8>, items: impl Iterator<Item = &'a OsStr>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count: u32 = 0;
    for item in items {
        put(out, item.as_bytes());
        count += 1;
    }
    out[at..at + 4].copy_from_slice(&count.to_le_bytes());
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<usize> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number) as usize)
    }

    fn string(&mut self) -> Option<OsString> {
        let length = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        // The kernel would end the string there.
        (!bytes.contains(&0)).then(|| OsString::from_vec(bytes.to_vec()))
    }

    fn text(&mut self) -> Option<String> {
        self.string()?.into_string().ok()
    }

    fn list(&mut self) -> Option<Vec<OsString>> {
        let count = self.number()?;
        // Each item takes at least four bytes.
        (count <= self.0.len() / 4).then_some(())?;
        (0..count).map(|_| self.string()).collect()
    }

    fn paths(&mut self) -> Option<Vec<PathBuf>> {
        Some(self.list()?.into_iter().map(PathBuf::from).collect())
    }
}

/// Line written by a helper.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Confinement in force, as JSON text.
    Enforced(String),
    /// Reason why no command runs.
    Failed(String),
    /// Exit status of the command, while processes that it started may still run.
    Exited(Ended),
    /// All processes have ended; this many were killed.
    Cleared(usize),
}

/// Exit status of a command, as seen by its init process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(i32),
    Signal(i32),
}

/// Parses a line of a helper. `None` if it is invalid.
pub(crate) fn parse(line: &str) -> Option<Line> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "enforced" => Some(Line::Enforced(rest.to_owned())),
        "failed" => Some(Line::Failed(rest.to_owned())),
        "exited" => Some(Line::Exited(match rest.split_once(' ')? {
            ("code", code) => Ended::Code(code.parse().ok()?),
            ("signal", signal) => Ended::Signal(signal.parse().ok()?),
            _ => return None,
        })),
        "cleared" => Some(Line::Cleared(rest.parse().ok()?)),
        _ => None,
    }
}

/// Writes one line to posse. Line breaks in `line` are replaced.
pub(crate) fn say(to: &UnixStream, line: &str) -> io::Result<()> {
    let line = format!("{}\n", line.replace(['\n', '\r'], " "));
    let mut bytes = line.as_bytes();
    while !bytes.is_empty() {
        let flags = MsgFlags::MSG_NOSIGNAL;
        match nix::sys::socket::send(to.as_raw_fd(), bytes, flags) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns `true` if `path` is absolute and has no `.` or `..` component.
pub(crate) fn is_plain(path: &Path) -> bool {
    use std::path::Component;
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;

    fn request() -> Request {
        Request {
            plan: Plan {
                tier: Tier::Full,
                backend: Backend::Namespaces,
                writable: vec!["/w".into(), OsString::from_vec(b"/\xff\n".to_vec()).into()],
                visible: vec![],
                masked: vec!["/tmp".into()],
                read_only: vec!["/w/.git/hooks".into()],
                pinned: vec!["/w/.git".into()],
                hidden: vec!["/w/.env".into()],
                network: false,
                processes_max: 7,
            },
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "".into()],
            environment: vec![("A".into(), "b=\nc".into())],
        }
    }

    #[test]
    fn a_request_arrives_as_it_was_sent_with_its_folder() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let folder = std::fs::File::open("/").unwrap();
        request().send(&ours, folder.as_fd()).unwrap();
        let Some(Told::Do(received, directory)) = Told::receive(&theirs).unwrap() else { panic!() };
        assert_eq!(received, request());
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        assert_eq!(std::fs::read_link(link).unwrap(), Path::new("/"));
        drop(ours);
        assert!(Told::receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn a_plan_may_come_first_and_is_no_request() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let folder = std::fs::File::open("/").unwrap();
        assert!(request().plan.send_ahead(&ours).unwrap());
        request().send(&ours, folder.as_fd()).unwrap();
        let Some(Told::Expect(plan)) = Told::receive(&theirs).unwrap() else { panic!() };
        assert_eq!(plan, request().plan);
        assert!(matches!(Told::receive(&theirs), Ok(Some(Told::Do(..)))));
        let mut long = request().plan;
        long.hidden = vec!["/x".repeat(1000).into(); 40];
        assert!(!long.send_ahead(&ours).unwrap());
        let mut body = Vec::new();
        request().plan.encode(&mut body);
        body.push(0);
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        (&ours).write_all(&[MAGIC_AHEAD, &length, &body].concat()).unwrap();
        Told::receive(&theirs).unwrap_err();
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let body = request().encode();
        for cut in 0..body.len() {
            assert_eq!(Request::decode(&body[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Request::decode(&[&body[..], b"x"].concat()), None);
        for sent in [&b"x"[..], b"posse-helper-1 0.0.0-other\n\0\0\0\0................"] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (&ours).write_all(sent).unwrap();
            drop(ours);
            Told::receive(&theirs).unwrap_err();
        }
        let mut strange = request();
        strange.plan.writable = vec!["/w/../etc".into()];
        assert_eq!(Request::decode(&strange.encode()), None);
        strange.plan.writable = vec!["w".into()];
        assert_eq!(Request::decode(&strange.encode()), None);
        strange.plan.writable = vec!["/".into()];
        assert_eq!(Request::decode(&strange.encode()), None);
    }

    proptest! {
        #[test]
        fn rubbish_is_no_request(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Request::decode(&bytes), None);
        }

        #[test]
        fn lines_are_read_as_they_were_meant(text in "\\PC{0,30}") {
            prop_assert_eq!(parse(&format!("failed {text}")), Some(Line::Failed(text.clone())));
            prop_assert_eq!(parse(&format!("x{text}")), None);
        }
    }

    #[test]
    fn ends_are_numbers() {
        assert_eq!(parse("exited code 3"), Some(Line::Exited(Ended::Code(3))));
        assert_eq!(parse("exited signal 9"), Some(Line::Exited(Ended::Signal(9))));
        assert_eq!(parse("cleared 2"), Some(Line::Cleared(2)));
        for strange in ["exited 3", "exited code x", "cleared -1", "cleared", "exited signal"] {
            assert_eq!(parse(strange), None, "{strange}");
        }
    }
}
