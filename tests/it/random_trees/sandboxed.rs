//! Random trees made by real commands in real sandboxes, and ordinary work that must stay.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use posse::sandbox::{
    Backend, Directory, Exit, Finding, ProbeRequest, ProtectAction, Sandbox, Spawn, Surroundings,
};
use posse_actors::ports::{Confinement, NetworkAccess};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{Reports, host_model, pieces, programs};

/// Number of trees per back end, without `POSSE_TREES`: with all cases of `POSSE_CASES`, and otherwise.
const TREES: [usize; 2] = [100, 10];

/// Number of sessions of ordinary work per back end.
const SESSIONS: [usize; 2] = [5, 2];

/// Steps of ordinary work, each with a script that tests that it is there. `$N` is a new name.
const ORDINARY: [(&str, &str); 9] = [
    (
        "git init -q $N; cd $N; echo a > a; g add a; g commit -qm one",
        "g -C $N fsck --strict; g -C $N log | grep -q one",
    ),
    ("git clone -q . $N", "test -z \"$(g -C $N status --porcelain)\"; test -f $N/AGENTS.md"),
    (
        "git worktree add -q $N -b $N",
        "test -z \"$(g -C $N status --porcelain)\"; test -f $N/AGENTS.md",
    ),
    (
        "g -c protocol.file.allow=always submodule add -q ./library $N; g commit -qm $N",
        "g submodule status $N; test -f $N/.mcp.json; g -C $N fsck",
    ),
    ("$CARGO new -q --vcs git $N", "test -f $N/src/main.rs; g -C $N status --porcelain"),
    (
        "mkdir $N; cd $N; npm init -y > made; npm install --offline --no-audit --no-fund ../package.tgz > made",
        "test -f $N/node_modules/sample/package.json; test -f $N/package-lock.json",
    ),
    (
        "hg init $N; cd $N; echo a > a; hg add -q a; hg commit -q -u me -m one",
        "hg -R $N log | grep -q one; hg -R $N verify",
    ),
    ("hg clone -q mercurial $N", "hg -R $N log | grep -q first; grep -q mercurial $N/.hg/hgrc"),
    (
        "mkdir -p src/$N; echo a > src/$N/a; g add src/$N; g commit -qm $N; g checkout -qb side-$N",
        "g log --oneline | grep -q $N; test -f src/$N/a",
    ),
];

/// Number for this run: with all cases of `POSSE_CASES`, or otherwise.
fn count(counts: [usize; 2]) -> usize {
    counts[usize::from(super::cases().is_none_or(|cases| cases < super::TREES_MAX))]
}

/// A workspace with a sandbox of one back end.
struct SandboxedWorkspace {
    _folder: tempfile::TempDir,
    base: PathBuf,
    sandbox: Sandbox,
}

impl SandboxedWorkspace {
    fn new(backend: Backend) -> SandboxedWorkspace {
        // The build folder: a folder for temporary files would be masked.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let base = folder.path().canonicalize().unwrap();
        for name in ["ws", "home", "state"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        let surroundings = Surroundings {
            roots: vec![base.join("ws")],
            own: vec![base.join("state")],
            home: Some(base.join("home")),
            ..Surroundings::default()
        };
        let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
        let sandbox = Sandbox::with_helper(helper, Vec::new())
            .confined(ProbeRequest::Exactly(backend), surroundings);
        SandboxedWorkspace { _folder: folder, base, sandbox }
    }

    fn root(&self) -> PathBuf {
        self.base.join("ws")
    }

    fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    /// Output, success and findings of a script.
    async fn run(&self, script: &str) -> (String, bool, Vec<Finding>) {
        let session = self.base.join("state/sessions/this");
        let (program, arguments) = self.sandbox.shell_command(script);
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let environment = vec![
            ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
            ("HOME".into(), self.home().into_os_string()),
            ("CARGO".into(), cargo),
        ];
        let spawn = Spawn {
            program,
            arguments,
            directory: Directory::Path(self.root()),
            environment,
            confinement: Confinement {
                profile: "workspace-write".to_owned(),
                writable_roots: vec![self.root().display().to_string()],
                network: NetworkAccess::Denied,
            },
            timeout: Duration::from_mins(1),
            scratch: session.join("tmp"),
            spill: session.join("output"),
            output_bytes_max: 32 << 10,
            spill_bytes_max: 1 << 20,
            dialogue: None,
            stop: None,
            masks_keys: false,
            at_timeout: None,
        };
        let outcome = self.sandbox.run(spawn, |_| {}).await.unwrap();
        let text = [&outcome.output.head[..], &outcome.output.tail].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (text, outcome.exit == Exit::Code(0), outcome.findings)
    }
}

async fn host_reads_nothing_unreported(backend: Backend) {
    let trees = std::env::var("POSSE_TREES").ok().and_then(|trees| trees.parse().ok());
    let mut runner = TestRunner::default();
    for number in 0..trees.unwrap_or(count(TREES)) {
        let strategy = (any::<u16>(), pieces::commands());
        let (parts, commands) = strategy.new_tree(&mut runner).unwrap().current();
        let session = SandboxedWorkspace::new(backend);
        let root = session.root();
        for operation in pieces::user_tree(parts) {
            operation.apply(&root);
        }
        let (mut reports, mut serial, mut log) = (Reports::default(), 0, Vec::new());
        for command in commands {
            let mut operations = Vec::new();
            for piece in command {
                operations.extend(piece.operations(&mut serial));
            }
            let lines: Vec<String> =
                operations.iter().map(|operation| operation.shell(&root)).collect();
            let script = format!("exec 2> /dev/null\n{}\ntrue\n", lines.join("\n"));
            let (output, ended, findings) = session.run(&script).await;
            assert!(ended, "{output} {script}");
            let mut readings = host_model::readings(&root);
            readings.extend(programs::readings(&root, &session.home()));
            reports.note(&root, &findings, &readings);
            log.extend(operations.iter().map(|operation| format!("{operation:?}")));
            log.extend(findings.iter().map(|finding| format!("-- {finding}")));
            let missed: Vec<_> =
                readings.iter().filter(|reading| !reports.cover(&root, reading)).collect();
            let log = || log.join("\n");
            assert!(
                missed.is_empty(),
                "tree {number}, {}, parts {parts}: {missed:#?}\n{}",
                backend.as_str(),
                log()
            );
        }
    }
}

#[tokio::test]
async fn host_reads_nothing_unreported_after_commands_with_mounts() {
    host_reads_nothing_unreported(Backend::Namespaces).await;
}

#[tokio::test]
async fn host_reads_nothing_unreported_after_commands_in_bubblewrap() {
    host_reads_nothing_unreported(Backend::Bubblewrap).await;
}

#[tokio::test]
async fn host_reads_nothing_unreported_after_commands_with_landlock() {
    host_reads_nothing_unreported(Backend::Landlock).await;
}

/// Runs a script outside of the sandbox, as the user does.
fn on_the_host(root: &Path, script: &str) {
    let script = format!("{PRELUDE}{script}");
    let output =
        std::process::Command::new("bash").current_dir(root).args(["-c", &script]).output();
    let output = output.unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&text));
}

/// Common beginning of the scripts of ordinary work.
const PRELUDE: &str = "set -e
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null HGRCPATH= GIT_AUTHOR_NAME=me GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=me GIT_COMMITTER_EMAIL=a@example.org npm_config_cache=${TMPDIR:-/tmp}/npm USER=me
g() { git -c safe.directory='*' \"$@\"; }
";

async fn ordinary_work_stays(backend: Backend) {
    for program in ["npm", "hg"] {
        programs::program(program);
    }
    for session in 0..count(SESSIONS) {
        let world = SandboxedWorkspace::new(backend);
        let root = world.root();
        on_the_host(
            &root,
            "git init -q -b main library; cd library; echo '{}' > .mcp.json; g add .; g commit -qm first; cd ..
             hg init mercurial; cd mercurial; echo a > a; hg add -q a; hg commit -q -u me -m first; cd ..
             mkdir sample; echo '{\"name\":\"sample\",\"version\":\"1.0.0\"}' > sample/package.json
             npm pack --silent ./sample; mv sample-1.0.0.tgz package.tgz; rm -r sample
             printf 'library\\nmercurial\\n' > .gitignore
             echo words > AGENTS.md; mkdir src; git init -q -b main; g add .; g commit -qm first",
        );
        let mut done: Vec<(String, &str)> = Vec::new();
        for step in 0..ORDINARY.len() {
            // Another order in each session.
            let at = (step * (1 + session % 2) * 4 + session) % ORDINARY.len();
            let (script, test) = ORDINARY[at];
            let name = format!("work{step}");
            let script = format!("{PRELUDE}N={name}\n{script}");
            let (output, ended, findings) = world.run(&script).await;
            assert!(ended, "{}: {script}: {output}", backend.as_str());
            let undone = findings.iter().filter(|finding| finding.action != ProtectAction::Left);
            let undone: Vec<String> = undone.map(ToString::to_string).collect();
            assert!(undone.is_empty(), "{}: {script}: {undone:?}", backend.as_str());
            done.push((name, test));
        }
        for (name, test) in done {
            on_the_host(&root, &format!("N={name}\n{test}"));
        }
    }
}

#[tokio::test]
async fn ordinary_work_stays_with_mounts() {
    ordinary_work_stays(Backend::Namespaces).await;
}

#[tokio::test]
async fn ordinary_work_stays_in_bubblewrap() {
    ordinary_work_stays(Backend::Bubblewrap).await;
}

#[tokio::test]
async fn ordinary_work_stays_with_landlock() {
    ordinary_work_stays(Backend::Landlock).await;
}
