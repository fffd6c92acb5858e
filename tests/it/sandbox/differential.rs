//! Differential test: a model of the policy and the kernel agree for any policy and operation.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use posse::sandbox::{Backend, Directory, ProbeRequest, Sandbox, Spawn, Surroundings};
use posse_actors::ports::{Confinement, NetworkAccess};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const FOLDERS: [&str; 7] = ["r0", "r0/x", "r0/x/y", "r1", "r1/z", "o", "o/p"];
const ROOTS: [&str; 3] = ["r0", "r1", "r0/x"];

/// Confinement of a command, and the files around it.
#[derive(Debug, Clone)]
struct Policy {
    roots: Vec<&'static str>,
    /// For each folder: instructions, a secret, a repository.
    has: Vec<[bool; 3]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DifferentialTarget {
    Plain,
    Instructions,
    Secret,
    Settings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Append,
    Remove,
    Replace,
    Truncate,
    Create,
    MakeFolder,
    Link,
}

type DifferentialCase = (usize, DifferentialTarget, Operation);

fn policies() -> impl Strategy<Value = Policy> {
    let roots = proptest::sample::subsequence(ROOTS.to_vec(), 1..=ROOTS.len());
    let has = proptest::collection::vec(any::<[bool; 3]>(), FOLDERS.len());
    (roots, has).prop_map(|(roots, has)| Policy { roots, has })
}

fn cases() -> impl Strategy<Value = Vec<DifferentialCase>> {
    use DifferentialTarget::{Instructions, Plain, Secret, Settings};
    use Operation::{Append, Create, Link, MakeFolder, Read, Remove, Replace, Truncate};
    let target = proptest::sample::select(vec![Plain, Instructions, Secret, Settings]);
    let operations = vec![Read, Append, Remove, Replace, Truncate, Create, MakeFolder, Link];
    let operation = proptest::sample::select(operations);
    proptest::collection::vec((0..FOLDERS.len(), target, operation), 40)
}

impl Policy {
    fn exists(&self, folder: usize, target: DifferentialTarget) -> bool {
        let [instructions, secret, repository] = self.has[folder];
        match target {
            DifferentialTarget::Plain => true,
            DifferentialTarget::Instructions => instructions,
            DifferentialTarget::Secret => secret,
            DifferentialTarget::Settings => repository,
        }
    }

    fn is_writable(&self, folder: usize) -> bool {
        self.roots.iter().any(|root| Path::new(FOLDERS[folder]).starts_with(root))
    }

    /// Verdict of the policy while the command runs.
    fn allows(&self, (folder, target, operation): DifferentialCase, backend: Backend) -> bool {
        let full = backend != Backend::Landlock;
        let inside = self.is_writable(folder);
        match operation {
            Operation::Read => !(full && inside && target == DifferentialTarget::Secret),
            // New names are allowed, and checked afterwards.
            Operation::Create | Operation::MakeFolder | Operation::Link => inside,
            Operation::Append | Operation::Remove | Operation::Replace | Operation::Truncate => {
                inside && (target == DifferentialTarget::Plain || !full)
            }
        }
    }
}

fn file(target: DifferentialTarget) -> &'static str {
    match target {
        DifferentialTarget::Plain => "plain.txt",
        DifferentialTarget::Instructions => "AGENTS.md",
        DifferentialTarget::Secret => ".env",
        DifferentialTarget::Settings => ".git/config",
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn build(base: &Path, policy: &Policy) {
    for (at, folder) in FOLDERS.iter().enumerate() {
        let folder = base.join(folder);
        for target in [
            DifferentialTarget::Plain,
            DifferentialTarget::Instructions,
            DifferentialTarget::Secret,
            DifferentialTarget::Settings,
        ] {
            if policy.exists(at, target) {
                write(&folder.join(file(target)), "[core]\n# the-content\n");
            }
        }
        if policy.exists(at, DifferentialTarget::Settings) {
            super::world::repository_around(&folder.join(".git"));
        }
    }
}

fn script(cases: &[DifferentialCase], base: &Path) -> String {
    let mut script = String::new();
    for (number, (folder, target, operation)) in cases.iter().enumerate() {
        let folder = base.join(FOLDERS[*folder]);
        let path = folder.join(file(*target));
        let (folder, path) = (folder.display(), path.display());
        let act = match operation {
            Operation::Read => format!("grep -q the-content {path}"),
            Operation::Append => format!("echo '# more' >> {path}"),
            Operation::Remove => format!("rm {path}"),
            Operation::Replace => {
                format!("echo '# other' > $TMPDIR/x && python3 -ISc \"{}\"", replace(&path))
            }
            Operation::Truncate => format!(": > {path}"),
            Operation::Create => format!("echo x > {folder}/new-{number}"),
            Operation::MakeFolder => format!("mkdir {folder}/made-{number}"),
            Operation::Link => format!("ln -s plain.txt {folder}/link-{number}"),
        };
        script
            .push_str(&format!("({act}) 2> /dev/null && echo {number} yes || echo {number} no\n"));
    }
    script
}

/// A rename over a file, in one folder: across two it is a copy.
fn replace(path: &std::path::Display<'_>) -> String {
    format!("import os; p='{path}'; open(p+'.new','w').write('x'); os.rename(p+'.new', p)")
}

async fn verdicts(
    base: &Path,
    policy: &Policy,
    backend: Backend,
    script: &str,
) -> BTreeMap<usize, bool> {
    let roots: Vec<PathBuf> = policy.roots.iter().map(|root| base.join(root)).collect();
    let surroundings = Surroundings { roots: roots.clone(), ..Surroundings::default() };
    let sandbox = Sandbox::with_helper(PathBuf::from(env!("CARGO_BIN_EXE_posse")), Vec::new())
        .confined(ProbeRequest::Exactly(backend), surroundings);
    let (program, arguments) = sandbox.shell_command(script);
    let spawn = Spawn {
        program,
        arguments,
        directory: Directory::Path(base.to_owned()),
        environment: Vec::new(),
        confinement: Confinement {
            profile: "workspace-write".to_owned(),
            writable_roots: roots.iter().map(|root| root.display().to_string()).collect(),
            network: NetworkAccess::Denied,
        },
        timeout: Duration::from_mins(2),
        scratch: base.join("session/tmp"),
        spill: base.join("session/output"),
        output_bytes_max: 64 << 10,
        spill_bytes_max: 1 << 20,
        dialogue: None,
        stop: None,
        masks_keys: false,
        at_timeout: None,
    };
    let outcome = sandbox.run(spawn, |_| {}).await.unwrap();
    let text = [&outcome.output.head[..], &outcome.output.tail].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let verdict = |line: &str| {
        let (number, word) = line.split_once(' ')?;
        Some((number.parse().ok()?, word == "yes"))
    };
    text.lines().filter_map(verdict).collect()
}

/// Only the first operation on a file, and only on existing files.
fn distinct(policy: &Policy, cases: Vec<DifferentialCase>) -> Vec<DifferentialCase> {
    let mut seen: Vec<(usize, DifferentialTarget)> = Vec::new();
    let mut kept = Vec::new();
    for (folder, target, operation) in cases {
        let is_new =
            matches!(operation, Operation::Create | Operation::MakeFolder | Operation::Link);
        let once = is_new || !seen.contains(&(folder, target));
        if policy.exists(folder, target) && once {
            seen.push((folder, target));
            kept.push((folder, target, operation));
        }
    }
    kept
}

fn compare(backend: Backend, runs: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config {
        cases: runs,
        max_shrink_iters: 30,
        failure_persistence: None,
        ..Config::default()
    });
    let compared = std::cell::Cell::new(0);
    let result = runner.run(&(policies(), cases()), |(policy, cases)| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let base = folder.path().canonicalize().unwrap();
        build(&base, &policy);
        let cases = distinct(&policy, cases);
        let script = script(&cases, &base);
        let got = runtime.block_on(verdicts(&base, &policy, backend, &script));
        for (number, case) in cases.iter().enumerate() {
            let said = policy.allows(*case, backend);
            prop_assert_eq!(got.get(&number), Some(&said), "{:?} in {:?}", case, policy);
        }
        // Protected files are unchanged after any operation.
        for at in (0..FOLDERS.len()).filter(|at| policy.is_writable(*at)) {
            for target in [DifferentialTarget::Instructions, DifferentialTarget::Settings] {
                if policy.exists(at, target) {
                    let path = base.join(FOLDERS[at]).join(file(target));
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    prop_assert_eq!(text, "[core]\n# the-content\n", "{}", path.display());
                }
            }
        }
        compared.set(compared.get() + cases.len());
        Ok(())
    });
    result.unwrap();
    assert!(compared.get() >= 100, "only {} operations were compared", compared.get());
}

#[test]
fn model_and_kernel_agree_with_mounts() {
    compare(Backend::Namespaces, 10);
}

#[test]
fn model_and_kernel_agree_with_landlock() {
    compare(Backend::Landlock, 10);
}
