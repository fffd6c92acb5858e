//! Files named like secrets that git tracks: commands see them as they are, or as they were
//! committed, so that git works; all other secrets stay hidden.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use posse::sandbox::{
    Backend, Directory, ProbeRequest, Sandbox, SecretView, Spawn, Surroundings, covered_lines,
};
use posse_actors::ports::{Confinement, NetworkAccess};

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, runs, says};
use crate::posse::{Machine, RunningPosse};
use crate::trials_before_answers::Driver;

/// Text that must never be printed.
const SECRET: &str = "KEY=s3cret-of-the-user\n";

const PUBLIC: &str = "KEY=public\n";

/// Backends that mount a file system.
const FULL: [Backend; 2] = [Backend::Namespaces, Backend::Bubblewrap];

/// Runs the user's git in `folder`.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]);
    command.args(arguments).current_dir(folder);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Repository in a folder, and a sandbox for commands in it.
struct TrackedFixture {
    folder: tempfile::TempDir,
    sandbox: Sandbox,
    profile: &'static str,
}

impl TrackedFixture {
    /// With files that are committed, an untracked secret that git ignores, and changed files.
    fn with(
        backend: Backend,
        committed: &[(&str, &str)],
        changed: &[(&str, &str)],
    ) -> TrackedFixture {
        // The build folder: a folder for temporary files would be masked.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let base = folder.path().canonicalize().unwrap();
        for name in ["ws", "home", "state/sessions/this"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        let ws = base.join("ws");
        git(&ws, &["init", "-q"]);
        write(&ws, ".gitignore", "/.env\ncredentials\n");
        for (path, text) in committed {
            write(&ws, path, text);
        }
        git(&ws, &["add", "-A"]);
        git(&ws, &["commit", "-qm", "first"]);
        write(&ws, ".env", SECRET);
        for (path, text) in changed {
            write(&ws, path, text);
        }
        let surroundings = Surroundings {
            roots: vec![ws],
            own: vec![base.join("state")],
            home: Some(base.join("home")),
            ..Surroundings::default()
        };
        let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
        let sandbox = Sandbox::with_helper(helper, Vec::new())
            .confined(ProbeRequest::Exactly(backend), surroundings);
        TrackedFixture { folder, sandbox, profile: "workspace-write" }
    }

    fn ws(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("ws")
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.ws().join(path)).unwrap()
    }

    /// Runs a script; returns what it prints, and the views of secrets below the workspace that git
    /// tracks or that have registry settings.
    async fn run(&self, script: &str) -> (String, Vec<(String, SecretView)>) {
        let prelude = "g() { git -c user.name=me -c user.email=me@example.org \"$@\"; }\n";
        let (program, arguments) = self.sandbox.shell_command(&format!("{prelude}{script}"));
        let session = self.folder.path().canonicalize().unwrap().join("state/sessions/this");
        let spawn = Spawn {
            program,
            arguments,
            directory: Directory::Path(self.ws()),
            environment: vec![("HOME".into(), self.folder.path().join("home").into())],
            confinement: Confinement {
                profile: self.profile.to_owned(),
                writable_roots: match self.profile {
                    "read-only" => Vec::new(),
                    _ => vec![self.ws().display().to_string()],
                },
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
        assert_eq!(outcome.findings, [], "{script}");
        let text = [&outcome.output.head[..], &outcome.output.tail].concat();
        let ws = self.ws();
        let covered = outcome.covered_secrets.iter();
        let views = covered.filter(|secret| secret.view != SecretView::Untracked).map(|secret| {
            (secret.path.strip_prefix(&ws).unwrap().display().to_string(), secret.view)
        });
        (String::from_utf8(text).unwrap(), views.collect())
    }

    /// Runs a script that must print exactly `expected`.
    async fn prints(&self, script: &str, expected: &str) -> Vec<(String, SecretView)> {
        let (text, views) = self.run(script).await;
        assert_eq!(text, expected, "{script}");
        views
    }
}

#[tokio::test]
async fn unchanged_file_is_shown_and_git_works() {
    for backend in FULL {
        let files = [
            (".env.development", PUBLIC),
            ("certs/test.pem", "key\n"),
            ("a\nb.key", "k\n"),
            ("f", "1\n"),
        ];
        let repo = TrackedFixture::with(backend, &files, &[]);
        let views = repo.prints("git status --porcelain; cat .env.development", PUBLIC).await;
        assert_eq!(views, [], "{backend:?}");
        repo.prints(
            "cat a*b.key certs/test.pem; cat .env 2> /dev/null || echo hidden",
            "k\nkey\nhidden\n",
        )
        .await;
        // A change by a command is an ordinary one until the next command.
        let script = "echo KEY=2 > .env.development; g stash -q; cat .env.development
            g stash pop -q; git diff --stat | tail -1; g commit -qam two; git status --porcelain";
        let changed = " 1 file changed, 1 insertion(+), 1 deletion(-)\n";
        repo.prints(script, &format!("{PUBLIC}{changed}")).await;
        repo.prints("git status --porcelain; cat .env.development", "KEY=2\n").await;
        assert_eq!(git(&repo.ws(), &["show", "HEAD:.env.development"]), "KEY=2\n");
        // The commit that is checked out moves, and the file with it.
        repo.prints("g checkout -q HEAD~1; cat .env.development", PUBLIC).await;
        repo.prints("cat .env.development; g checkout -q main; git status --porcelain", PUBLIC)
            .await;
        repo.prints("g mv .env.development sample; g commit -qm three", "").await;
        repo.prints("git status --porcelain; cat sample", "KEY=2\n").await;
    }
}

#[tokio::test]
async fn changed_file_is_seen_as_committed() {
    for backend in FULL {
        let committed = [(".env.development", PUBLIC), ("run.key", PUBLIC), ("f", "1\n")];
        let changed = [(".env.development", SECRET), ("run.key", SECRET)];
        let repo = TrackedFixture::with(backend, &committed, &changed);
        let script = "git status --porcelain; cat .env.development run.key; git diff
            (echo x > .env.development) 2> /dev/null || echo read-only";
        let views = repo.prints(script, &format!("{PUBLIC}{PUBLIC}read-only\n")).await;
        let expected = [".env.development", "run.key"]
            .map(|path| (path.to_owned(), SecretView::CommittedFile));
        assert_eq!(views, expected, "{backend:?}");
        let script = "echo 2 > f; g add -A; g stash -q; g stash pop -q; g commit -qam two
            echo 3 > f; g commit -qam three; git status --porcelain; git show --stat --format=%s | cat";
        let (text, _) = repo.run(script).await;
        assert!(text.starts_with("three\n") && text.contains("1 file changed"), "{text}");
        // The user's changes are still there, and no commit contains them.
        assert_eq!(repo.read(".env.development"), SECRET);
        assert_eq!(
            git(&repo.ws(), &["status", "--porcelain"]),
            " M .env.development\n M run.key\n"
        );
        assert_eq!(git(&repo.ws(), &["show", "HEAD:.env.development"]), PUBLIC);
        // A commit of a guess shows nothing of the file.
        let script = "blob=$(printf 'KEY=s3cret-of-the-user\\n' | git hash-object -w --stdin)
            g update-index --cacheinfo 100644,$blob,run.key; g commit -qm guess";
        repo.prints(script, "").await;
        let script = "(: >> run.key) 2> /dev/null && echo equal; git status --porcelain";
        repo.prints(script, "").await;
    }
}

#[tokio::test]
async fn other_secrets_stay_hidden() {
    for backend in FULL {
        let large = "x".repeat((1 << 20) + 1);
        let committed = [
            (".aws/config", "[default]\n"),
            (".aws/run", "one\n"),
            ("large.key", large.as_str()),
            ("inner.key", PUBLIC),
        ];
        let changed = [(".aws/credentials", SECRET), ("staged.key", SECRET), ("inner.key", SECRET)];
        let repo = TrackedFixture::with(backend, &committed, &changed);
        // Only in the index.
        git(&repo.ws(), &["add", "-f", "staged.key"]);
        git(&repo.ws(), &["mv", "-f", "inner.key", "renamed.key"]);
        let script = "for file in .env staged.key renamed.key .aws/credentials large.key; do
              cat $file 2> /dev/null && echo visible; done; ls -A .aws; cat .aws/*; git status --porcelain .aws";
        let views = repo.prints(script, "config\nrun\n[default]\none\n").await;
        let [aws, large] = &views[..] else { panic!("{views:?}") };
        assert_eq!(*aws, (".aws".to_owned(), SecretView::CommittedFolder));
        let SecretView::Nothing(reason) = large.1 else { panic!("{large:?}") };
        assert!(large.0 == "large.key" && reason.contains("larger"), "{large:?}");
        assert_eq!(repo.read(".aws/credentials"), SECRET);
    }
}

/// An untracked secret makes no command of git fail, and is not deleted or committed.
#[tokio::test]
async fn untracked_secrets_are_absent_for_git() {
    for backend in FULL {
        let secrets =
            ["dev.env", "certs/a [1].pem", ".aws/config", "new.key", "in/.env", "in/b.key"];
        let changed = secrets.map(|path| (path, SECRET));
        let repo = TrackedFixture::with(backend, &[("f", "1\n"), ("in/g", "1\n")], &changed);
        let ws = repo.ws();
        git(&ws.join("in"), &["init", "-q"]);
        write(&ws, ".git/info/exclude", "# no line end at the end\n*.own");
        for path in ["x.own", "other/dev.env.rs", "in/h"] {
            write(&ws, path, "1\n");
        }
        let script = "g status --porcelain; echo 2 > f; g add -A || echo failed
            git diff --cached --name-only; g commit -qam two; echo 3 > f; echo 1 > new
            g stash -qu || echo failed; cat f; g stash pop -q; g status --porcelain
            (cd in; g add -A || echo failed; g status --porcelain; g clean -fdx 2>/dev/null; ls .env)
            blob=$(echo x | git hash-object -w --stdin)
            git update-index --add --cacheinfo 100644,$blob,dev.env; g commit -qm three
            git update-index --force-remove dev.env; g commit -qm four
            g checkout -q HEAD~1 2>/dev/null";
        let expected = "?? in/h\n?? other/\nf\nin/h\nother/dev.env.rs\n2\n M f\n?? new\n\
                        A  g\nA  h\n.env\n";
        repo.prints(script, expected).await;
        for path in secrets {
            assert_eq!(repo.read(path), SECRET);
        }
        // The user's git and checkpoints see them.
        assert_eq!(repo.read(".git/info/exclude"), "# no line end at the end\n*.own");
        assert!(git(&ws, &["status", "--porcelain"]).contains("?? new.key\n"));
    }
}

/// A nested repository, a linked worktree, a missing object, and a repository with settings that run programs.
#[tokio::test]
async fn unusual_repositories_are_read_without_harm() {
    let committed = [(".env.development", PUBLIC), ("lost.key", "lost\n")];
    let repo =
        TrackedFixture::with(Backend::Namespaces, &committed, &[("nested/.env.test", SECRET)]);
    let ws = repo.ws();
    git(&ws, &["worktree", "add", "-q", "linked"]);
    write(&ws, "linked/.env.development", SECRET);
    let nested = ws.join("nested");
    git(&nested, &["init", "-q"]);
    git(&nested, &["add", "-f", ".env.test"]);
    git(&nested, &["commit", "-qm", "nested"]);
    let object = git(&ws, &["rev-parse", "HEAD:lost.key"]);
    let (folder, name) = object.trim().split_at(2);
    fs::remove_file(ws.join(".git/objects").join(folder).join(name)).unwrap();
    let touch = format!("touch {}; false", ws.join("ran").display());
    for (key, value) in [
        ("core.fsmonitor", &*touch),
        ("core.pager", &touch),
        ("core.sshCommand", &touch),
        ("remote.origin.url", "ssh://localhost/x"),
        ("remote.origin.promisor", "true"),
        ("extensions.partialClone", "origin"),
        ("filter.x.clean", &touch),
        ("filter.x.smudge", &touch),
    ] {
        git(&ws, &["config", key, value]);
    }
    write(&ws, ".git/info/attributes", "* filter=x\n");
    let script = "cat .env.development linked/.env.development nested/.env.test
        cat lost.key 2> /dev/null || echo hidden";
    let views = repo.prints(script, &format!("{PUBLIC}{PUBLIC}{SECRET}hidden\n")).await;
    assert!(!ws.join("ran").exists());
    let names: Vec<&str> = views.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["linked/.env.development", "linked/lost.key", "lost.key"]);
}

/// Secrets of the workspace cannot be hidden there, so git sees all files as they are. Commands need
/// permission as long as there are such secrets.
#[tokio::test]
async fn landlock_hides_no_file_from_git() {
    let committed = [(".env.development", PUBLIC), (".env.test", PUBLIC)];
    let mut repo = TrackedFixture::with(Backend::Landlock, &committed, &[(".env.test", SECRET)]);
    for profile in ["read-only", "workspace-write"] {
        repo.profile = profile;
        let script = "git status --porcelain; cat .env.development";
        assert_eq!(repo.prints(script, &format!(" M .env.test\n{PUBLIC}")).await, []);
    }
    let scratch = repo.ws().join("../state/sessions/this/tmp");
    assert_eq!(repo.sandbox.exposed_secrets(&scratch).unwrap().len(), 3);
}

#[test]
fn the_model_and_the_user_are_told_once() {
    let command = "git status --porcelain; git ls-files | xargs cat";
    let server = ModelServer::start(vec![runs(command), runs(command), says("done")]);
    let machine = Machine::with(&server);
    machine.write(".env.test", PUBLIC);
    machine.write(".env.development", PUBLIC);
    let ws = machine.path("work");
    git(&ws, &["init", "-q"]);
    git(&ws, &["add", "-A"]);
    git(&ws, &["commit", "-qm", "first"]);
    machine.write(".env.test", SECRET);
    let (ended, events) = machine.stream(&["--yes", "go"]);
    ended.assert_code(0);
    let results = server.tool_results();
    let told = "SBX011";
    assert_eq!(results.iter().map(|text| text.contains(told)).collect::<Vec<_>>(), [true, false]);
    assert!(results[0].contains(".env.test has the name of a secret"), "{results:?}");
    for result in &results {
        assert!(result.starts_with(&format!("{PUBLIC}{PUBLIC}")), "{result}");
        assert!(!result.contains("s3cret") && !result.contains(" M "), "{result}");
    }
    let warnings = events.iter().filter(|event| {
        event["type"] == "warning" && event["message"].as_str().unwrap_or_default().contains(told)
    });
    assert_eq!(warnings.count(), 1);
    machine.verify();
    // Nothing of the session's copies is left.
    let left = fs::read_dir(machine.session_dir()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(left.into_iter().all(|name| !name.starts_with("committed")));
    assert_eq!(covered_lines(&[]), Vec::<String>::new());
}

#[test]
fn untracked_secrets_are_named_once() {
    let command = "git add -A; git status --porcelain";
    let server = ModelServer::start(vec![runs(command), runs(command), says("done")]);
    let machine = Machine::with(&server);
    git(&machine.path("work"), &["init", "-q"]);
    for path in [".env", "keys/test.pem", "f"] {
        machine.write(path, SECRET);
    }
    let (ended, events) = machine.stream(&["--yes", "go"]);
    ended.assert_code(0);
    let results = server.tool_results();
    for result in &results {
        assert!(result.starts_with("A  f\n(exit 0"), "{result}");
    }
    assert_eq!(results[0].matches("SBX011").count(), 1, "{results:?}");
    for part in ["/.env, ", "/keys/test.pem; ", "sandbox.readSecrets"] {
        assert!(results[0].contains(part), "{results:?}");
    }
    assert!(!results[1].contains("SBX011"), "{results:?}");
    let warnings = events.iter().filter(|event| {
        let message = event["message"].as_str().unwrap_or_default();
        event["type"] == "warning" && message.contains("SBX011")
    });
    assert_eq!(warnings.count(), 1);
    machine.verify();
}

/// `read_file` and `grep` read a file with the name of a secret where commands see it as it is, and no
/// other one.
#[test]
fn file_tools_read_what_commands_see() {
    let read = |path: &str| calls(&[("read_file", json!({"path": path}))]);
    let grep = || calls(&[("grep", json!({"pattern": "=", "glob": "**/.env*"}))]);
    for (backend, is_full) in [("namespaces", true), ("landlock", false)] {
        let server = ModelServer::start(vec![
            grep(),
            read(".env.development"),
            read("a/.env.development"),
            read(".env.test"),
            read(".env"),
            calls(&[("grep", json!({"pattern": "=", "path": ".env.development"}))]),
            runs("echo Z=1 >> .env.development"),
            read(".env.development"),
            grep(),
            says("done"),
        ]);
        let machine = Machine::with(&server);
        for path in [".env.development", "a/.env.development", ".env.test"] {
            machine.write(path, PUBLIC);
        }
        let ws = machine.path("work");
        git(&ws, &["init", "-q"]);
        git(&ws, &["add", "-A"]);
        git(&ws, &["commit", "-qm", "first"]);
        machine.write(".env.test", SECRET);
        machine.write(".env", SECRET);
        let mut command = machine.command(&["run", "--yes", "go"]);
        command.env("POSSE_SANDBOX_BACKEND", backend);
        RunningPosse::start(command).end();
        let results = server.tool_results();
        let has_text = |index: usize| results[index].contains(PUBLIC.trim_end());
        let shown: Vec<usize> = (0..results.len()).filter(|&index| has_text(index)).collect();
        assert_eq!(shown, if is_full { &[0, 1, 2, 5, 8][..] } else { &[] }, "{results:?}");
        let is_denied = |index: usize| results[index].contains("holds secrets");
        let denied: Vec<usize> = (0..results.len()).filter(|&index| is_denied(index)).collect();
        let expected = if is_full { &[3, 4, 7][..] } else { &[1, 2, 3, 4, 5, 6, 7] };
        assert_eq!(denied, expected, "{results:?}");
        if is_full {
            assert!(results[0].contains("[2 secret files not searched]"), "{results:?}");
            let expected = "a/.env.development:1:";
            assert!(results[8].starts_with(expected), "{results:?}");
            assert!(results[8].contains("[3 secret files not searched]"), "{results:?}");
        }
        assert!(!results.iter().any(|result| result.contains(SECRET.trim_end())), "{results:?}");
        machine.verify();
    }
}

/// A command could commit guesses of a secret to test them, also in a new repository.
#[test]
fn guess_in_a_new_repository_is_not_confirmed() {
    let guess = "git init -q . && mkdir t && printf 'KEY=s3cret-of-the-user\\n' > t/x && \
        git update-index --add --cacheinfo 100644,$(git hash-object -w t/x),.env && \
        git -c user.name=a -c user.email=a@b commit -qm guess && rm -r t";
    let read = || calls(&[("read_file", json!({"path": ".env"}))]);
    let server = ModelServer::start(vec![
        read(),
        runs("true"),
        runs("sh guess.sh"),
        read(),
        runs("true"),
        read(),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    fs::remove_dir(machine.work(".git")).unwrap();
    machine.write(".env", SECRET);
    machine.write("guess.sh", guess);
    machine.posse(&["run", "--yes", "go"]);
    let results = server.tool_results();
    assert!(results[2].contains("(exit 0, "), "{results:?}");
    for index in [0, 3, 5] {
        assert!(results[index].contains("holds secrets"), "{results:?}");
    }
}

/// A link with the name of a secret hides the file to which it leads.
#[test]
fn file_behind_a_secret_link_stays_hidden() {
    let read = |path: &str| calls(&[("read_file", json!({"path": path}))]);
    let server = ModelServer::start(vec![
        read(".env"),
        runs("cat data/real.txt; mv data d2"),
        runs("cat d2/real.txt"),
        read("d2/real.txt"),
        runs("python3 -c \"import os; os.remove(chr(46) + 'env')\"; cat d2/real.txt"),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    machine.write("data/real.txt", SECRET);
    std::os::unix::fs::symlink("data/real.txt", machine.work(".env")).unwrap();
    machine.posse(&["run", "--yes", "go"]);
    let results = server.tool_results();
    assert_eq!(results.len(), 5, "{results:?}");
    assert!(results.iter().all(|text| !text.contains(SECRET.trim_end())), "{results:?}");
    assert!(results[0].contains("a link with the name of a secret"), "{results:?}");
}

/// The workspace is searched for such links before the first file is read, also without commands.
#[test]
fn file_behind_a_secret_link_is_closed_before_the_first_command() {
    let server = ModelServer::start(vec![
        calls(&[
            ("read_file", json!({"path": "data/real.txt"})),
            ("grep", json!({"pattern": "KEY", "path": "data"})),
        ]),
        calls(&[("read_file", json!({"path": "dk/config.json"}))]),
        calls(&[("read_file", json!({"path": ".env.d/../keep/x"}))]),
        calls(&[("read_file", json!({"path": "README"}))]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    for path in ["data/real.txt", "dk/config.json", "keep/x"] {
        machine.write(path, SECRET);
    }
    machine.write("README", "plain words");
    for (target, link) in [("data/real.txt", ".env"), ("dk", ".docker"), ("keep", ".aws")] {
        std::os::unix::fs::symlink(target, machine.work(link)).unwrap();
    }
    machine.posse(&["run", "--permission-mode", "plan", "go"]);
    let results = server.tool_results();
    assert_eq!(results.len(), 5, "{results:?}");
    assert!(results.iter().all(|text| !text.contains(SECRET.trim_end())), "{results:?}");
    assert!(results[4].contains("plain words"), "{results:?}");
}

/// An error about an edit that does not fit quotes the lines that are closest to it.
#[test]
fn file_behind_a_secret_link_is_closed_to_changes_before_the_first_command() {
    let edit = json!({"oldString": "API_KEY=x", "newString": "y"});
    let of = |path: &str| json!({"path": path, "oldString": "API_KEY=x", "newString": "y"});
    for (tool, arguments) in [
        ("edit_file", of("data/real.txt")),
        ("multi_edit", json!({"path": "data/real.txt", "edits": [edit]})),
        ("write_file", json!({"path": "data/real.txt", "content": "mine"})),
    ] {
        let server = ModelServer::start(vec![calls(&[(tool, arguments)]), says("done")]);
        let machine = Machine::with(&server);
        let secret = "API_KEY=z9z9z9z9z9z9\n";
        machine.write("data/real.txt", secret);
        std::os::unix::fs::symlink("data/real.txt", machine.work(".env")).unwrap();
        machine.posse(&["run", "--permission-mode", "auto", "go"]);
        let results = server.tool_results();
        assert!(results.iter().all(|text| !text.contains("z9z9")), "{tool}: {results:?}");
        assert_eq!(machine.read("data/real.txt"), secret, "{tool}: {results:?}");
    }
}

/// A file that the user changes while a call waits for permission is not read.
#[test]
fn file_that_changes_before_it_is_read_is_withheld() {
    let path = ".env.development";
    for (tool, arguments) in
        [("read_file", json!({"path": path})), ("grep", json!({"pattern": "=", "path": path}))]
    {
        let server = ModelServer::start(vec![calls(&[(tool, arguments)]), says("done")]);
        let rules = json!({"permissions": [{"tool": tool, "decision": "ask"}]});
        let machine = Machine::configured(&server, &rules, &json!({}));
        machine.write(path, PUBLIC);
        let ws = machine.path("work");
        git(&ws, &["init", "-q"]);
        git(&ws, &["add", "-A"]);
        git(&ws, &["commit", "-qm", "first"]);
        let mut driver = Driver::start(&machine, None);
        let asked = driver.asked();
        let mut file = fs::OpenOptions::new().append(true).open(machine.work(path)).unwrap();
        file.write_all(SECRET.as_bytes()).unwrap();
        driver.answer(&asked, "allow");
        drop(driver.stdin);
        driver.running.end();
        let results = server.tool_results();
        // The call is prepared again after the answer.
        assert!(results[0].contains("holds secrets"), "{results:?}");
        assert!(!results[0].contains(SECRET.trim_end()), "{results:?}");
    }
}

/// Sets `sandbox.readSecrets` of the user.
fn allow_reading(machine: &Machine, files: &[&str]) {
    let file = machine.path("posse/config/config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    config["sandbox"] = json!({"readSecrets": files});
    machine.write_config(&config.to_string());
}

/// Files that commands see are named without a question; those that they do not see are denied if
/// they would be printed, and asked about otherwise.
#[test]
fn commands_are_judged_by_the_files_that_they_see() {
    let commands = [
        ("cat .env.development", PUBLIC),
        ("cat listed/a/x.pem && git diff .env.development", PUBLIC),
        ("cat link", PUBLIC),
        ("for f in .env.development; do cat $f; done", "no user can be asked"),
        ("cat .env", "is hidden from commands; work without its content"),
        ("head -1 .env.test", "is hidden from commands; work without its content"),
        ("sh x .env", "and is hidden from commands (sandbox.readSecrets shows it)"),
        ("echo .env >> .gitignore", "names .env, which holds secrets and is hidden"),
    ];
    let mut replies: Vec<_> = commands.iter().map(|(command, _)| runs(command)).collect();
    replies.push(says("done"));
    let server = ModelServer::start(replies);
    let machine = Machine::with(&server);
    let ws = machine.path("work");
    let listed = ws.join("list*/**/*.p?m").display().to_string();
    allow_reading(&machine, &[&listed]);
    git(&ws, &["init", "-q"]);
    for path in [".env.development", ".env.test"] {
        machine.write(path, PUBLIC);
    }
    git(&ws, &["add", "-A"]);
    git(&ws, &["commit", "-qm", "first"]);
    machine.write("listed/a/x.pem", PUBLIC);
    std::os::unix::fs::symlink(".env.development", ws.join("link")).unwrap();
    for path in [".env", ".env.test"] {
        machine.write(path, SECRET);
    }
    machine.posse(&["run", "go"]).assert_code(4);
    let results = server.tool_results();
    for ((command, part), result) in commands.iter().zip(&results) {
        assert!(result.contains(part), "{command}: {result}");
    }
    assert_eq!(results.len(), commands.len());
}

/// A tracked `.npmrc` that names a registry is readable, so packages can be installed, also by the
/// first command.
#[test]
fn unchanged_npmrc_is_used_by_package_managers() {
    for (change, is_refused) in [("", false), ("//127.0.0.1:9/:_authToken=abc\n", true)] {
        let install = "npm install left-pad --fetch-retries=0 --no-audit";
        let server = ModelServer::start(vec![runs(install), says("done")]);
        let machine = Machine::with(&server);
        let npmrc = "registry=http://127.0.0.1:9/\n";
        machine.write(".npmrc", npmrc);
        let ws = machine.path("work");
        git(&ws, &["init", "-q"]);
        git(&ws, &["add", "-A"]);
        git(&ws, &["commit", "-qm", "first"]);
        machine.write(".npmrc", format!("{npmrc}{change}"));
        machine.stream(&["--yes", "go"]);
        let results = server.tool_results();
        assert_eq!(results[0].contains("SH008"), is_refused, "{results:?}");
        machine.verify();
    }
}

/// Commands see the registry of an `.npmrc` that git does not track, of the project and of the user,
/// but no credentials.
#[tokio::test]
async fn registry_of_a_hidden_npmrc_is_used_without_its_credentials() {
    for backend in FULL {
        let npmrc =
            "@ours:registry=http://me:s3cret@127.0.0.1:9/ours/\n//127.0.0.1:9/:_authToken=s3cret\n";
        let repo = TrackedFixture::with(backend, &[("a", "b\n")], &[(".npmrc", npmrc)]);
        let home = repo.folder.path().join("home/.npmrc");
        fs::write(&home, "registry=http://127.0.0.1:9/all/\n_auth=s3cret\n").unwrap();
        // Below a private /tmp, commands do not see the home folder of this test.
        let is_masked = ["/tmp", "/var/tmp"].iter().any(|folder| home.starts_with(folder));
        let of_home = if is_masked { "true" } else { "npm config get registry; cat ~/.npmrc" };
        let script = format!(
            "npm config get @ours:registry; cat .npmrc; {of_home}; echo x 2>&- >>.npmrc; \
             git status --porcelain --ignored"
        );
        let (text, views) = repo.run(&script).await;
        let of_home = "http://127.0.0.1:9/all/\nregistry=http://127.0.0.1:9/all/\n";
        let expected = format!(
            "http://127.0.0.1:9/ours/\n@ours:registry=http://127.0.0.1:9/ours/\n{}!! .env\n\
             !! .npmrc\n",
            if is_masked { "" } else { of_home }
        );
        assert_eq!(text, expected, "{backend:?}");
        assert_eq!(views, [(".npmrc".to_owned(), SecretView::WithoutCredentials)]);
        assert_eq!(repo.read(".npmrc"), npmrc);
        assert!(fs::read_to_string(home).unwrap().contains("s3cret"));
    }
}

/// An installation asks the registry of a hidden `.npmrc` and no other one, also in a script.
#[test]
fn installation_does_not_fall_back_to_another_registry() {
    let install = "npm install left-pad --fetch-retries=0 --no-audit --no-fund";
    let script = format!("sh -c 'exec {install}'");
    let server = ModelServer::start(vec![runs(install), runs(&script), says("done")]);
    let machine = Machine::with(&server);
    machine.write(".npmrc", "registry=http://127.0.0.1:9/\n//127.0.0.1:9/:_authToken=s3cret\n");
    machine.stream(&["--yes", "go"]);
    let results = server.tool_results();
    assert_eq!(results.len(), 2);
    assert!(results[0].contains("SBX011"), "{results:?}");
    for result in results {
        assert!(result.contains("request to http://127.0.0.1:9/left-pad failed"), "{result}");
    }
    machine.verify();
}
