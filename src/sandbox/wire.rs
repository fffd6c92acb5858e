//! Protocol between posse and a helper: posse sends binary messages with length prefixes, and the
//! helper answers with lines of JSON.
//!
//! Paths and arguments are bytes and need not be text. A request is read completely and every
//! length is checked before anything is done, so an invalid request never runs a command.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use posse_actors::event::SandboxTier;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::{Backend, Overlay, Plan, Replacement, TemporaryMount};

/// Header of a request. It contains the version, because a helper of another version must reject
/// it.
const MAGIC: &[u8] = concat!("posse-helper-5 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// Header of an expected plan, which is sent to a spare helper before the request.
const MAGIC_AHEAD: &[u8] = concat!("posse-expect-5 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// Maximum size in bytes of an expected plan: more might not fit into the socket buffer of a helper
/// that is not reading yet.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a request in bytes, without its header. The kernel accepts at most 2 MB of
/// arguments.
const REQUEST_BYTES_MAX: usize = 8 << 20;

/// Maximum number of descriptors in one message.
const DESCRIPTORS_MAX: usize = 4;

/// Request to a helper to execute `program` confined by `plan`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HelperRequest {
    pub(crate) plan: Plan,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Complete environment of the program.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Ports at which the helper listens for posse in the network namespace of the command.
    pub(crate) listen: Vec<u16>,
}

/// Descriptors that belong to a request.
#[derive(Debug)]
pub(crate) struct RequestDescriptors {
    /// Open working directory of the command.
    pub(crate) directory: OwnedFd,
    /// Streams of the command, if they are not those of the helper.
    pub(crate) streams: Option<CommandStreams>,
    /// Socket for the listeners of [`HelperRequest::listen`]. `None` if there are none.
    pub(crate) listeners: Option<OwnedFd>,
}

/// Message to a helper.
#[derive(Debug)]
pub(crate) enum HelperMessage {
    /// Plan that the next request will probably have, for preparation in advance.
    Expect(Plan),
    /// Request with its descriptors.
    Do(HelperRequest, RequestDescriptors),
}

/// Standard input and standard error of a command.
#[derive(Debug)]
pub(crate) struct CommandStreams {
    pub(crate) input: OwnedFd,
    pub(crate) errors: OwnedFd,
}

impl Plan {
    fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.tier.as_str().as_bytes());
        put(out, self.backend.as_str().as_bytes());
        put(out, if self.network { b"inherit" } else { b"deny" });
        put(out, self.processes_max.to_string().as_bytes());
        for list in self.lists() {
            put_items(out, list.iter().map(|path| path.as_os_str()));
        }
        let temporary = self.temporary.iter().flat_map(|mount| [&mount.source, &mount.target]);
        put_items(out, temporary.map(|path| path.as_os_str()));
        let replaced = self.replaced.iter().flat_map(|file| [&file.source, &file.target]);
        put_items(out, replaced.map(|path| path.as_os_str()));
        let overlays = self.overlays.iter();
        let layers = overlays.flat_map(|layer| [&layer.root, &layer.upper, &layer.work]);
        put_items(out, layers.map(|path| path.as_os_str()));
        let numbers = self.identities.values();
        let numbers: Vec<OsString> =
            numbers.map(|(device, inode)| format!("{device} {inode}").into()).collect();
        let identities = self.identities.keys().map(|path| path.as_os_str()).zip(&numbers);
        put_items(out, identities.flat_map(|(path, numbers)| [path, numbers]));
    }

    fn decode(from: &mut ByteReader<'_>) -> Option<Plan> {
        let tier = SandboxTier::from(from.text()?);
        let backend = Backend::parse(&from.text()?)?;
        let network = match &*from.text()? {
            "inherit" => true,
            "deny" => false,
            _ => return None,
        };
        let processes_max = from.text()?.parse().ok()?;
        let mut plan = Plan { tier, backend, network, processes_max, ..Plan::open() };
        for list in plan.lists_mut() {
            *list = from.list()?.into_iter().map(PathBuf::from).collect();
        }
        plan.temporary = match &from.list()?[..] {
            [] => None,
            [source, target] => {
                Some(TemporaryMount { source: source.into(), target: target.into() })
            }
            _ => return None,
        };
        let replaced = from.list()?;
        let (pairs, rest) = replaced.as_chunks::<2>();
        let pairs = pairs
            .iter()
            .map(|[source, target]| Replacement { source: source.into(), target: target.into() });
        plan.replaced = pairs.collect();
        let overlays = from.list()?;
        let (triples, left) = overlays.as_chunks::<3>();
        let layers = triples.iter().map(|[root, upper, work]| Overlay {
            root: root.into(),
            upper: upper.into(),
            work: work.into(),
        });
        plan.overlays = layers.collect();
        let identities = from.list()?;
        let (named, odd) = identities.as_chunks::<2>();
        let identity = |[path, numbers]: &[OsString; 2]| {
            let (device, inode) = numbers.to_str()?.split_once(' ')?;
            Some((PathBuf::from(path), (device.parse().ok()?, inode.parse().ok()?)))
        };
        plan.identities = named.iter().map(identity).collect::<Option<_>>()?;
        let is_whole = rest.is_empty() && left.is_empty() && odd.is_empty();
        (is_whole && plan.is_sound()).then_some(plan)
    }

    /// Sends this plan to a spare helper as the expected one. Returns false, and sends nothing, if
    /// the plan is too large.
    pub(crate) fn send_expected_plan(&self, to: &UnixStream) -> io::Result<bool> {
        let mut body = Vec::with_capacity(4096);
        self.encode(&mut body);
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= AHEAD_BYTES_MAX);
        let Some(length) = length else { return Ok(false) };
        let mut to = to;
        to.write_all(&[MAGIC_AHEAD, &length.to_le_bytes(), &body].concat())?;
        Ok(true)
    }
}

impl HelperRequest {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4096);
        self.plan.encode(&mut out);
        put(&mut out, self.program.as_os_str().as_bytes());
        put_items(&mut out, self.arguments.iter().map(|argument| &**argument));
        put_items(&mut out, self.environment.iter().flat_map(|(name, value)| [&**name, &**value]));
        let ports: Vec<OsString> = self.listen.iter().map(|port| port.to_string().into()).collect();
        put_items(&mut out, ports.iter().map(|port| &**port));
        out
    }

    fn decode(bytes: &[u8]) -> Option<HelperRequest> {
        let mut from = ByteReader(bytes);
        let plan = Plan::decode(&mut from)?;
        let program = PathBuf::from(from.string()?);
        let arguments = from.list()?;
        let variables = from.list()?;
        let (pairs, rest) = variables.as_chunks::<2>();
        let environment = pairs.iter().map(|[name, value]| (name.clone(), value.clone())).collect();
        let ports = from.list()?.into_iter().map(|port| port.to_str()?.parse().ok());
        let listen: Vec<u16> = ports.collect::<Option<_>>()?;
        let is_whole = from.0.is_empty() && rest.is_empty() && program.is_absolute();
        is_whole.then_some(HelperRequest { plan, program, arguments, environment, listen })
    }

    /// Sends the request, and the working directory, the streams and the socket for listeners as
    /// descriptors. Fails if the request is larger than [`REQUEST_BYTES_MAX`] or the socket does not take it.
    pub(crate) fn send(
        &self,
        to: &UnixStream,
        directory: BorrowedFd<'_>,
        streams: Option<&CommandStreams>,
        listeners: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let body = self.encode();
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= REQUEST_BYTES_MAX);
        let Some(length) = length else {
            return Err(io::Error::other("the command and its environment are too long"));
        };
        let head = [MAGIC, &length.to_le_bytes()].concat();
        let mut descriptors = vec![directory.as_raw_fd()];
        descriptors.extend(
            streams
                .iter()
                .flat_map(|streams| [&streams.input, &streams.errors])
                .map(AsRawFd::as_raw_fd),
        );
        descriptors.extend(listeners.iter().map(AsRawFd::as_raw_fd));
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent =
            sendmsg::<UnixAddr>(to.as_raw_fd(), &[IoSlice::new(&head)], &rights, flags, None)?;
        let mut to = to;
        to.write_all(&head[sent..])?;
        to.write_all(&body)
    }
}

impl HelperMessage {
    /// Waits for a message. `None` if the stream ends before it. An incomplete or invalid message,
    /// or one of another version, is an error.
    pub(crate) fn receive(from: &UnixStream) -> Result<Option<HelperMessage>, String> {
        let broken = |error: io::Error| format!("the request was cut off: {error}");
        let mut head = [0; MAGIC.len() + 4];
        let (read, descriptors) = receive_first(from, &mut head).map_err(broken)?;
        if read == 0 {
            return Ok(None);
        }
        let mut from = from;
        from.read_exact(&mut head[read..]).map_err(broken)?;
        let (magic, length) = head.split_at(MAGIC.len());
        let length = u32::from_le_bytes(length.try_into().unwrap_or_default()) as usize;
        let is_ahead = magic == MAGIC_AHEAD;
        if (magic != MAGIC && !is_ahead) || length > REQUEST_BYTES_MAX {
            return Err("the request is of another version, or none at all".to_owned());
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body).map_err(broken)?;
        if is_ahead {
            let mut body = ByteReader(&body);
            let plan = Plan::decode(&mut body).filter(|_| body.0.is_empty());
            return plan
                .map(HelperMessage::Expect)
                .map(Some)
                .ok_or("the plan makes no sense".to_owned());
        }
        let request = HelperRequest::decode(&body).ok_or("the request makes no sense")?;
        let mut descriptors = descriptors.into_iter();
        let directory = descriptors.next().ok_or("the request has no working directory")?;
        let listens = !request.listen.is_empty();
        let mut rest: Vec<OwnedFd> = descriptors.collect();
        let listeners = rest.pop_if(|_| listens);
        let mut rest = rest.into_iter();
        let streams = match (rest.next(), rest.next()) {
            (Some(input), Some(errors)) => Some(CommandStreams { input, errors }),
            (None, _) if listens == listeners.is_some() => None,
            _ => return Err("the request lacks a stream".to_owned()),
        };
        let descriptors = RequestDescriptors { directory, streams, listeners };
        Ok(Some(HelperMessage::Do(request, descriptors)))
    }
}

/// Sends `descriptors`, at most [`DESCRIPTORS_MAX`], with a message of one byte.
pub(crate) fn send_descriptors(to: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let parts = [IoSlice::new(b"d")];
    sendmsg::<UnixAddr>(to.as_raw_fd(), &parts, &rights, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Waits for the `N` descriptors that [`send_descriptors`] sent. Fails if the stream ends or brings
/// another number of them.
pub(crate) fn receive_descriptors<const N: usize>(from: &UnixStream) -> io::Result<[OwnedFd; N]> {
    let (_, received) = receive_first(from, &mut [0])?;
    received.try_into().map_err(|_| io::Error::other("no descriptors were sent"))
}

/// Receives bytes into `into`, and the descriptors that came with them.
pub(crate) fn receive_first(
    from: &impl AsRawFd,
    into: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; DESCRIPTORS_MAX]);
    let mut parts = [IoSliceMut::new(into)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<UnixAddr>(from.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Err(nix::errno::Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut received = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            for descriptor in descriptors {
                #[expect(unsafe_code, reason = "a received descriptor is a number")]
                // SAFETY: the kernel has just opened it for this process, and it has no other
                // owner.
                let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
                received.push(owned);
            }
        }
    }
    Ok((message.bytes, received))
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    // A longer item exceeds the request limit, which is checked when it is sent.
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_items<'a>(out: &mut Vec<u8>, items: impl Iterator<Item = &'a OsStr>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count: u32 = 0;
    for item in items {
        put(out, item.as_bytes());
        count += 1;
    }
    out[at..at + 4].copy_from_slice(&count.to_le_bytes());
}

struct ByteReader<'a>(&'a [u8]);

impl ByteReader<'_> {
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
}

/// Message from a helper to posse, sent as one line of JSON.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum HelperLine {
    /// Enforcement report. The helper executes the program next.
    Enforced(Value),
    /// Reason for which the helper does not run the command.
    Failed(String),
    /// Exit status of the command; its descendants may still run.
    Exited(CommandExit),
    /// No process of the command is left. Contains the number of processes that the init process
    /// killed.
    Cleared(usize),
}

/// Exit status of the command, as seen by its init process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CommandExit {
    Code(i32),
    Signal(i32),
}

impl HelperLine {
    /// Parses a line from a helper. `None` if the line is invalid.
    pub(crate) fn parse(line: &[u8]) -> Option<HelperLine> {
        serde_json::from_slice(line).ok()
    }

    /// Sends the message as a single line.
    pub(crate) fn write_line(&self, to: &UnixStream) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut bytes = &*line;
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
}

/// True if `path` is absolute and contains no `..`. A `.` within it is not noticed, because
/// [`Path::components`] omits it.
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

    fn request() -> HelperRequest {
        HelperRequest {
            plan: Plan {
                tier: SandboxTier::Full,
                backend: Backend::Namespaces,
                writable: vec!["/w".into(), OsString::from_vec(b"/\xff\n".to_vec()).into()],
                visible: vec![],
                masked: vec!["/tmp".into()],
                read_only: vec!["/w/.git/hooks".into()],
                pinned: vec!["/w/.git".into()],
                hidden: vec!["/w/.env".into()],
                identities: [("/w/.env".into(), (7, 11))].into(),
                replaced: vec![Replacement {
                    source: "/s/committed/1".into(),
                    target: "/w/.env.test".into(),
                }],
                temporary: Some(TemporaryMount { source: "/s/tmp".into(), target: "/tmp".into() }),
                overlays: Vec::new(),
                network: false,
                processes_max: 7,
            },
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "".into()],
            environment: vec![("A".into(), "b=\nc".into())],
            listen: Vec::new(),
        }
    }

    #[test]
    fn request_round_trips_with_its_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let folder = std::fs::File::open("/").unwrap();
        let stream = || std::fs::File::open("/dev/null").unwrap().into();
        let streams = CommandStreams { input: stream(), errors: stream() };
        for streams in [None, Some(&streams)] {
            for listen in [vec![], vec![61_080, 8080]] {
                let sent = HelperRequest { listen, ..request() };
                let socket = (!sent.listen.is_empty()).then(|| folder.as_fd());
                sent.send(&ours, folder.as_fd(), streams, socket).unwrap();
                let Some(HelperMessage::Do(received, given)) =
                    HelperMessage::receive(&theirs).unwrap()
                else {
                    panic!()
                };
                assert_eq!(received, sent);
                assert_eq!(given.streams.is_some(), streams.is_some());
                assert_eq!(given.listeners.is_some(), socket.is_some());
            }
        }
        let listening = HelperRequest { listen: vec![1], ..request() };
        listening.send(&ours, folder.as_fd(), None, None).unwrap();
        HelperMessage::receive(&theirs).unwrap_err();
        request().send(&ours, folder.as_fd(), None, None).unwrap();
        let Some(HelperMessage::Do(_, given)) = HelperMessage::receive(&theirs).unwrap() else {
            panic!()
        };
        assert!(given.streams.is_none() && given.listeners.is_none());
        let link = format!("/proc/self/fd/{}", given.directory.as_raw_fd());
        assert_eq!(std::fs::read_link(link).unwrap(), Path::new("/"));
        drop(ours);
        assert!(HelperMessage::receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn overlays_cover_all_writable_roots_or_none() {
        let folder = std::fs::File::open("/").unwrap();
        let is_accepted = |plan: Plan| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let sent = HelperRequest { plan, ..request() };
            sent.send(&ours, folder.as_fd(), None, None).unwrap();
            match HelperMessage::receive(&theirs) {
                Ok(Some(HelperMessage::Do(received, _))) => received == sent,
                _ => false,
            }
        };
        let layer = |root: &PathBuf| Overlay {
            root: root.clone(),
            upper: "/s/trial/0/upper".into(),
            work: "/s/trial/0/work".into(),
        };
        let plan = request().plan;
        let overlays: Vec<Overlay> = plan.writable.iter().map(layer).collect();
        let covered = Plan { overlays: overlays.clone(), ..plan.clone() };
        assert!(is_accepted(covered.clone()));
        assert!(!is_accepted(Plan { overlays: overlays[..1].to_vec(), ..plan.clone() }));
        assert!(!is_accepted(Plan { writable: vec!["/other".into(); 2], ..covered.clone() }));
        assert!(!is_accepted(Plan { backend: Backend::Bubblewrap, ..covered }));
        let relative = Overlay { upper: "upper".into(), ..overlays[0].clone() };
        assert!(!is_accepted(Plan { overlays: vec![relative, overlays[1].clone()], ..plan }));
    }

    #[test]
    fn plan_may_precede_a_request() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let folder = std::fs::File::open("/").unwrap();
        assert!(request().plan.send_expected_plan(&ours).unwrap());
        request().send(&ours, folder.as_fd(), None, None).unwrap();
        let Some(HelperMessage::Expect(plan)) = HelperMessage::receive(&theirs).unwrap() else {
            panic!()
        };
        assert_eq!(plan, request().plan);
        assert!(matches!(HelperMessage::receive(&theirs), Ok(Some(HelperMessage::Do(..)))));
        let mut long = request().plan;
        long.hidden = vec!["/x".repeat(1000).into(); 40];
        assert!(!long.send_expected_plan(&ours).unwrap());
        let mut body = Vec::new();
        request().plan.encode(&mut body);
        body.push(0);
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        (&ours).write_all(&[MAGIC_AHEAD, &length, &body].concat()).unwrap();
        HelperMessage::receive(&theirs).unwrap_err();
    }

    #[test]
    fn descriptors_arrive_in_their_number() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let folder = std::fs::File::open("/").unwrap();
        send_descriptors(&ours, &[folder.as_fd(), theirs.as_fd()]).unwrap();
        receive_descriptors::<2>(&theirs).unwrap();
        send_descriptors(&ours, &[folder.as_fd()]).unwrap();
        receive_descriptors::<2>(&theirs).unwrap_err();
        drop(ours);
        receive_descriptors::<2>(&theirs).unwrap_err();
    }

    #[test]
    fn invalid_request_is_refused() {
        let body = request().encode();
        for cut in 0..body.len() {
            assert_eq!(HelperRequest::decode(&body[..cut]), None, "cut at {cut}");
        }
        assert_eq!(HelperRequest::decode(&[&body[..], b"x"].concat()), None);
        for sent in [&b"x"[..], b"posse-helper-1 0.0.0-other\n\0\0\0\0................"] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (&ours).write_all(sent).unwrap();
            drop(ours);
            HelperMessage::receive(&theirs).unwrap_err();
        }
        let mut strange = request();
        strange.plan.writable = vec!["/w/../etc".into()];
        assert_eq!(HelperRequest::decode(&strange.encode()), None);
        strange.plan.writable = vec!["w".into()];
        assert_eq!(HelperRequest::decode(&strange.encode()), None);
        strange.plan.writable = vec!["/".into()];
        assert_eq!(HelperRequest::decode(&strange.encode()), None);
    }

    proptest! {
        #[test]
        fn random_bytes_are_no_request(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(HelperRequest::decode(&bytes), None);
        }

        #[test]
        fn report_lines_parse_back(text in "\\PC{0,30}") {
            let line = HelperLine::Failed(text.clone());
            let written = serde_json::to_vec(&line).unwrap();
            prop_assert_eq!(HelperLine::parse(&written), Some(line));
            prop_assert_eq!(HelperLine::parse(format!("x{text}").as_bytes()), None);
        }
    }

    #[test]
    fn exit_status_is_a_number() {
        let parse = |line: &str| HelperLine::parse(line.as_bytes());
        let code = HelperLine::Exited(CommandExit::Code(3));
        assert_eq!(parse("{\"exited\":{\"code\":3}}\n"), Some(code));
        let signal = HelperLine::Exited(CommandExit::Signal(9));
        assert_eq!(parse("{\"exited\":{\"signal\":9}}"), Some(signal));
        assert_eq!(parse("{\"cleared\":2}"), Some(HelperLine::Cleared(2)));
        for strange in [
            "{\"exited\":3}",
            "{\"exited\":{\"code\":\"x\"}}",
            "{\"cleared\":-1}",
            "{\"cleared\":2",
            "\"cleared\"",
            "{\"exited\":\"signal\"}",
        ] {
            assert_eq!(parse(strange), None, "{strange}");
        }
    }

    #[test]
    fn line_ends_at_newline_only() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let line = HelperLine::Failed("two\nlines".to_owned());
        line.write_line(&ours).unwrap();
        drop(ours);
        let mut written = Vec::new();
        (&theirs).read_to_end(&mut written).unwrap();
        let lines = written.split(|byte| *byte == b'\n').count();
        assert_eq!(lines, 2, "one line, and nothing after it");
        assert_eq!(HelperLine::parse(&written), Some(line));
    }
}
