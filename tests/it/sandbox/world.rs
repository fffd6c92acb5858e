//! A machine in a folder: a workspace with files to attack, an outside, and servers that wait for
//! connections.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use posse::protected;
use posse::sandbox::{
    Backend, Directory, Exit, Finding, ProbeRequest, Sandbox, Spawn, Surroundings,
};
use posse_actors::ports::{Confinement, NetworkAccess};

/// Text that must never be printed.
pub(super) const SECRET: &str = "s3cret-of-the-user";

const PROBE: &str = include_str!("probe.py");

const TIMEOUT: Duration = Duration::from_secs(20);

static WORLDS: AtomicU32 = AtomicU32::new(0);

pub(super) struct SandboxFixture {
    _folder: tempfile::TempDir,
    base: PathBuf,
    /// One per backend, as a session has one for all of its commands.
    sandboxes: Vec<(Backend, Sandbox)>,
    id: String,
    tcp: TcpListener,
    tcp6: TcpListener,
    udp: UdpSocket,
    udp6: UdpSocket,
    stream: UnixListener,
    datagram: UnixDatagram,
    hidden_stream: UnixListener,
    hidden_datagram: UnixDatagram,
    protected: BTreeMap<PathBuf, Vec<u8>>,
}

/// Result of a run.
pub(super) struct Ran {
    pub(super) text: String,
    pub(super) was_killed: bool,
    pub(super) findings: Vec<Finding>,
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A repository like `git init` creates it, without running git.
fn repository(at: &Path) {
    write(at, "config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n");
    repository_around(at);
}

/// Like [`repository`], without settings.
pub(super) fn repository_around(at: &Path) {
    write(at, "HEAD", "ref: refs/heads/main\n");
    write(at, "hooks/pre-commit.sample", "#!/bin/sh\n");
    write(at, "info/exclude", "");
    for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags"] {
        fs::create_dir_all(at.join(folder)).unwrap();
    }
}

impl SandboxFixture {
    pub(super) fn new() -> SandboxFixture {
        // The build folder: a folder for temporary files would be masked.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let base = folder.path().canonicalize().unwrap();
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{number}", std::process::id());
        let hidden =
            |word: &str| SocketAddr::from_abstract_name(format!("posse-{word}-{id}")).unwrap();
        let mut world = SandboxFixture {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            tcp6: TcpListener::bind("[::1]:0").expect("these tests need IPv6 on loopback"),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            udp6: UdpSocket::bind("[::1]:0").unwrap(),
            // Socket paths are short, and test folders are not.
            stream: UnixListener::bind(short(&id, "s")).unwrap(),
            datagram: UnixDatagram::bind(short(&id, "d")).unwrap(),
            hidden_stream: UnixListener::bind_addr(&hidden("stream")).unwrap(),
            hidden_datagram: UnixDatagram::bind_addr(&hidden("datagram")).unwrap(),
            _folder: folder,
            sandboxes: Vec::new(),
            base,
            id,
            protected: BTreeMap::new(),
        };
        fs::create_dir(world.workspace()).unwrap();
        world.fill();
        world.tcp.set_nonblocking(true).unwrap();
        world.tcp6.set_nonblocking(true).unwrap();
        world.udp.set_nonblocking(true).unwrap();
        world.udp6.set_nonblocking(true).unwrap();
        world.stream.set_nonblocking(true).unwrap();
        world.datagram.set_nonblocking(true).unwrap();
        world.hidden_stream.set_nonblocking(true).unwrap();
        world.hidden_datagram.set_nonblocking(true).unwrap();
        world
    }

    /// Restores the original state.
    pub(super) fn reset(&mut self) {
        for folder in ["outside", "home", "state"] {
            fs::remove_dir_all(self.base.join(folder)).unwrap();
        }
        for entry in fs::read_dir(self.workspace()).unwrap() {
            let entry = entry.unwrap();
            let is_folder = entry.file_type().unwrap().is_dir();
            let path = entry.path();
            if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        while self.check_reached().is_err() {}
        self.fill();
    }

    fn fill(&mut self) {
        let base = &self.base;
        let outside = base.join("outside");
        workspace(&base.join("ws"));
        for area in [&outside, &base.join("ws/area")] {
            write(area, "file.txt", "keep\n");
            write(area, "dir/inner.txt", "keep\n");
            fs::create_dir(area.join("empty")).unwrap();
            symlink("file.txt", area.join("link")).unwrap();
        }
        write(base, "home/.ssh/id_ed25519", SECRET);
        write(base, "home/.aws/credentials", SECRET);
        write(base, "home/.config/gh/hosts.yml", SECRET);
        write(base, "home/.netrc", SECRET);
        write(base, "home/notes.txt", "notes\n");
        write(base, "state/sessions/other/session.jsonl", SECRET);
        write(base, "state/grants.json", SECRET);
        self.protected = self.control_files();
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.base.join("ws")
    }

    /// Runs a script in the workspace.
    pub(super) async fn run(
        &mut self,
        backend: Backend,
        network: bool,
        script: &str,
    ) -> Result<Ran, String> {
        if !self.sandboxes.iter().any(|(known, _)| *known == backend) {
            self.sandboxes.push((backend, self.sandbox(backend)));
        }
        let known = self.sandboxes.iter().find(|(known, _)| *known == backend);
        let sandbox = &known.unwrap().1;
        let session = self.base.join("state/sessions/this");
        let (program, arguments) = sandbox.shell_command(script);
        let spawn = Spawn {
            program,
            arguments,
            directory: Directory::Path(self.workspace()),
            environment: self.environment(),
            confinement: Confinement {
                profile: "workspace-write".to_owned(),
                writable_roots: vec![self.workspace().display().to_string()],
                network: if network { NetworkAccess::Host } else { NetworkAccess::Denied },
            },
            timeout: TIMEOUT,
            scratch: session.join("tmp"),
            spill: session.join("output"),
            output_bytes_max: 32 << 10,
            spill_bytes_max: 1 << 20,
            dialogue: None,
            stop: None,
            masks_keys: false,
            at_timeout: None,
        };
        let outcome = sandbox.run(spawn, |_| {}).await.map_err(|error| error.to_string())?;
        let text = [&outcome.output.head[..], &outcome.output.tail].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let was_killed = matches!(outcome.exit, Exit::Signal(_));
        if outcome.exit == Exit::TimedOut {
            return Err(format!("it took too long: {text}"));
        }
        Ok(Ran { text, was_killed, findings: outcome.findings })
    }

    pub(super) fn sandbox(&self, backend: Backend) -> Sandbox {
        let surroundings = Surroundings {
            roots: vec![self.workspace()],
            own: vec![self.base.join("state")],
            home: Some(self.base.join("home")),
            ..Surroundings::default()
        };
        let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
        Sandbox::with_helper(helper, Vec::new())
            .confined(ProbeRequest::Exactly(backend), surroundings)
    }

    fn environment(&self) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
        let ports = [
            ("TCP", self.tcp.local_addr().unwrap().port()),
            ("TCP6", self.tcp6.local_addr().unwrap().port()),
            ("UDP", self.udp.local_addr().unwrap().port()),
            ("UDP6", self.udp6.local_addr().unwrap().port()),
        ];
        let mut pairs: Vec<(String, String)> =
            ports.map(|(name, port)| (name.to_owned(), port.to_string())).into();
        for (name, path) in [
            ("WS", "ws"),
            ("OUT", "outside"),
            ("HOME", "home"),
            ("STATE", "state"),
            ("PROBE", "ws/probe.py"),
        ] {
            pairs.push((name.to_owned(), self.base.join(path).display().to_string()));
        }
        pairs.push(("STREAM".to_owned(), short(&self.id, "s").display().to_string()));
        pairs.push(("DATAGRAM".to_owned(), short(&self.id, "d").display().to_string()));
        pairs.push(("PARENT".to_owned(), std::process::id().to_string()));
        pairs.push(("ID".to_owned(), self.id.clone()));
        pairs.push(("E".to_owned(), "[alias]\n\tx = !evil".to_owned()));
        pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    /// Everything outside the workspace that a command may try to change.
    pub(super) fn outside(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        for folder in ["outside", "home", "state/sessions/other"] {
            describe(&self.base.join(folder), &mut found);
        }
        let names = ["home", "state", "ws", "outside"];
        let strange = fs::read_dir(&self.base).unwrap().filter_map(|entry| {
            let name = entry.unwrap().file_name();
            (!names.iter().any(|known| name == *known)).then_some(name)
        });
        for name in strange {
            found.insert(name.into(), "strange".to_owned());
        }
        found
    }

    /// Checks that the host is unchanged.
    pub(super) fn check_host(&self, before: &BTreeMap<PathBuf, String>) -> Result<(), String> {
        let after = self.outside();
        if after != *before {
            let changed: Vec<_> =
                after.iter().filter(|(path, what)| before.get(*path) != Some(*what)).collect();
            return Err(format!("the host was changed: {changed:?}"));
        }
        for folder in
            ["/", "/tmp", "/var/tmp", "/dev/shm", "/etc", "/usr", "/usr/local/bin", "/run"]
        {
            let path = Path::new(folder).join(format!("posse-escape-{}", self.id));
            if fs::symlink_metadata(&path).is_ok() {
                fs::remove_file(&path).ok();
                return Err(format!("{} was made", path.display()));
            }
        }
        self.check_reached()?;
        self.check_processes()
    }

    fn check_reached(&self) -> Result<(), String> {
        let mut bytes = [0; 64];
        let reached = [
            ("TCP", self.tcp.accept().map(|_| ())),
            ("TCP on IPv6", self.tcp6.accept().map(|_| ())),
            ("UDP", self.udp.recv(&mut bytes).map(|_| ())),
            ("UDP on IPv6", self.udp6.recv(&mut bytes).map(|_| ())),
            ("a stream socket", self.stream.accept().map(|_| ())),
            ("a datagram socket", self.datagram.recv(&mut bytes).map(|_| ())),
            ("an abstract stream socket", self.hidden_stream.accept().map(|_| ())),
            ("an abstract datagram socket", self.hidden_datagram.recv(&mut bytes).map(|_| ())),
        ];
        for (what, result) in reached {
            match result {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return Err(format!("{what} was reached: {other:?}")),
            }
        }
        Ok(())
    }

    /// Checks that no process with the mark of this world runs.
    fn check_processes(&self) -> Result<(), String> {
        let mark = format!("posse-survivor-{}", self.id);
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let is_dead = stat.rsplit(')').next().is_some_and(|s| s.trim().starts_with('Z'));
            if !is_dead && String::from_utf8_lossy(&line).contains(&mark) {
                return Err(format!("{} lives", entry.path().display()));
            }
        }
        Ok(())
    }

    /// Protected files of the workspace with their content.
    fn control_files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        walk(&self.workspace(), &mut |path| {
            let relative = path.strip_prefix(self.workspace()).unwrap();
            if is_control(&self.workspace(), relative)
                && let Ok(content) = content(path)
            {
                files.insert(relative.to_owned(), content);
            }
        });
        files
    }

    /// New active files, and missing old ones.
    pub(super) fn planted(&self) -> Vec<String> {
        let root = self.workspace();
        let now = self.control_files();
        let mut planted = Vec::new();
        let known: Vec<&Vec<u8>> = self.protected.values().collect();
        for (path, content) in &now {
            let is_sample = path.extension().is_some_and(|ending| ending == "sample");
            let is_harmless = is_sample || !content.windows(4).any(|bytes| bytes == b"evil");
            let came_along = known.contains(&content) && !is_hook(path);
            match self.protected.get(path) {
                Some(before) if before == content => {}
                // It belongs to something new in the same place.
                Some(_) if is_harmless && !self.had_same(path.parent().unwrap()) => {}
                Some(_) => planted.push(format!("changed: {}", path.display())),
                None if came_along || is_sample || (is_harmless && !is_hook(path)) => {}
                None => planted.push(format!("planted: {}", path.display())),
            }
        }
        for (path, before) in self.protected.iter().filter(|(path, _)| !now.contains_key(*path)) {
            let is_new = |(other, content): (&PathBuf, &Vec<u8>)| {
                content == before && !self.protected.contains_key(other)
            };
            if now.iter().any(is_new) {
                continue;
            }
            // Renaming or removing a folder includes its content.
            let repository =
                path.ancestors().find(|path| path.file_name() == Some("hooks".as_ref()));
            let folder = repository.unwrap_or(path).parent().unwrap();
            if fs::symlink_metadata(root.join(folder)).is_ok_and(|found| found.is_dir())
                && self.had_same(folder)
            {
                planted.push(format!("gone: {}", path.display()));
            }
        }
        planted
    }

    /// Returns `true` if a folder is still the same repository or folder.
    fn had_same(&self, folder: &Path) -> bool {
        let is_repository = folder.file_name().is_some_and(|name| name == ".git");
        !is_repository || self.workspace().join(folder).join("refs/heads").is_dir()
    }
}

impl Drop for SandboxFixture {
    fn drop(&mut self) {
        for word in ["s", "d"] {
            fs::remove_file(short(&self.id, word)).ok();
        }
    }
}

fn short(id: &str, word: &str) -> PathBuf {
    PathBuf::from(format!("/var/tmp/posse-{word}-{id}"))
}

fn workspace(ws: &Path) {
    repository(&ws.join(".git"));
    for path in ["d1", "a/b", "1/2/3/4"] {
        repository(&ws.join(path).join(".git"));
    }
    repository(&ws.join(".git/modules/sub"));
    write(ws, "sub/.git", "gitdir: ../.git/modules/sub\n");
    write(ws, "AGENTS.md", "the user's words\n");
    write(ws, ".vscode/tasks.json", "{}\n");
    write(ws, ".mcp.json", "{}\n");
    write(ws, "src/main.rs", "fn main() {}\n");
    write(ws, "src/nested/CLAUDE.md", "more words\n");
    write(ws, ".env", SECRET);
    write(ws, ".env.local", SECRET);
    write(ws, "deep/er/.env.production", SECRET);
    write(ws, ".env.example", "example-value\n");
    write(ws, "certs/server.key", SECRET);
    write(ws, "linked/registry/config.json", SECRET);
    symlink("linked/registry", ws.join(".docker")).unwrap();
    write(ws, "linked/cloud/config", SECRET);
    symlink("linked/cloud", ws.join(".aws")).unwrap();
    for folder in [".vscode", "d1", "d1/.devcontainer"] {
        write(ws, &format!("{folder}/tls.key"), SECRET);
    }
    write(ws, "certs/notes.txt", "example-value\n");
    // The same without the files that make it a repository.
    write(ws, "plain/hooks/pre-commit.sample", "#!/bin/sh\n");
    write(ws, "plain/config", "[core]\n\tbare = false\n");
    write(ws, "plain/info/exclude", "");
    write(ws, "plain/notes.md", "notes\n");
    write(ws, "plain/folder/tasks.json", "{}\n");
    write(ws, "plain/x/b/part/config", "[core]\n");
    write(ws, "probe.py", PROBE);
}

fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    if fs::symlink_metadata(path)?.is_symlink() {
        return Ok(fs::read_link(path)?.as_os_str().as_bytes().to_vec());
    }
    fs::read(path)
}

fn walk(folder: &Path, act: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder { walk(&entry.path(), act) } else { act(&entry.path()) }
    }
}

/// Returns `true` for control files; written independently of the code under test.
fn is_control(root: &Path, relative: &Path) -> bool {
    let mut above: &[u8] = b"";
    let mut in_git = false;
    for part in relative.components() {
        let name = part.as_os_str().as_bytes();
        match protected::class_of(above, name) {
            Some(protected::Class::Git) if &*protected::fold(name) != b".gitmodules" => {
                in_git = true;
            }
            Some(_) if !in_git => return true,
            _ => {}
        }
        above = name;
    }
    let pointer = &*protected::fold(above) == b".git";
    let repository = relative.ancestors().skip(1).find(|folder| {
        let folder = root.join(folder);
        let dot_git =
            folder.file_name().is_some_and(|name| &*protected::fold(name.as_bytes()) == b".git");
        let has = |name: &str| fs::symlink_metadata(folder.join(name)).is_ok();
        dot_git || (has("HEAD") && has("objects") && has("refs"))
    });
    let Some(repository) = repository else { return pointer };
    let inner = relative.strip_prefix(repository).unwrap();
    let inner = protected::fold(inner.as_os_str().as_bytes()).into_owned();
    pointer
        || inner.starts_with(b"hooks/")
        || [&b"hooks"[..], b"config", b"config.worktree", b"commondir", b"info/attributes"]
            .contains(&&inner[..])
}

fn is_hook(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "hooks")
}

/// State of `path` and its content: kinds, modes, modification times, owners, bytes.
fn describe(path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let Ok(stat) = fs::symlink_metadata(path) else { return };
    let mode = stat.permissions().mode();
    let content = if stat.is_dir() { Vec::new() } else { content(path).unwrap_or_default() };
    let times = (stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec());
    let what = format!("{mode:o} {} {times:?} {}", stat.uid(), String::from_utf8_lossy(&content));
    found.insert(path.to_owned(), what);
    if stat.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            describe(&entry.path(), found);
        }
    }
}
