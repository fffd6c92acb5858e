//! Ordinary use that must keep working: git, in a repository with protected control files.

use posse::sandbox::{Backend, ProtectAction, ProtectedChange};

use super::world::SandboxFixture;

/// Runs a script that must succeed, and returns the findings.
async fn works(
    world: &mut SandboxFixture,
    backend: Backend,
    script: &str,
) -> Vec<posse::sandbox::Finding> {
    let prelude = "set -e\ng() { git -c user.name=me -c user.email=me@example.org \"$@\"; }\n";
    let script = format!("{prelude}{script}\necho DONE\n");
    let ran = world.run(backend, false, &script).await.unwrap();
    assert!(ran.text.ends_with("DONE\n"), "{backend:?}: {} {:?}", ran.text, ran.findings);
    ran.findings
}

async fn everyday(backend: Backend) {
    let mut world = SandboxFixture::new();
    let findings = works(
        &mut world,
        backend,
        "g add -A src area; g commit -qm one
         g checkout -qb feature; echo 'fn other() {}' >> src/main.rs
         g stash -q; g stash pop -q; g commit -qam two
         g checkout -q main; g merge -q --no-edit feature; g tag v1
         g log --oneline | grep -q two; g gc -q; g fsck > /dev/null 2>&1
         g worktree list > /dev/null; g branch -D feature > /dev/null",
    )
    .await;
    assert_eq!(findings, [], "{backend:?}");
    let findings = works(
        &mut world,
        backend,
        "g clone -q . copies/clone; cd copies/clone
         echo more > more.txt; g add more.txt; g commit -qm three; g fetch -q origin
         git config user.name somebody; git checkout -qb pushed; git init -q ../fresh",
    )
    .await;
    // The instructions of the clone are reported, and left.
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].what, ProtectedChange::CameWithRepository);
    // A command may change and remove files that it created.
    let findings = works(
        &mut world,
        backend,
        "cd copies/clone; git config user.email somebody@example.org; g commit -q --allow-empty -m x
         echo x > src/nested/CLAUDE.md; rm -rf src; git checkout -q .
         cd ..; mv clone renamed; g -C renamed status > /dev/null; rm -rf fresh renamed",
    )
    .await;
    assert_eq!(findings, [], "{backend:?}");
}

#[tokio::test]
async fn git_works_with_mounts() {
    everyday(Backend::Namespaces).await;
}

#[tokio::test]
async fn git_works_with_landlock() {
    everyday(Backend::Landlock).await;
}

#[tokio::test]
async fn hostile_clone_is_reported_and_runs_nothing() {
    for backend in [Backend::Namespaces, Backend::Landlock] {
        let mut world = SandboxFixture::new();
        let findings = works(
            &mut world,
            backend,
            "git init -q made; cd made
             printf '#!/bin/sh\\ntouch $WS/ran\\n' > .git/hooks/post-checkout
             chmod +x .git/hooks/post-checkout
             git config core.fsmonitor 'touch $WS/ran; false'; git config alias.st '!touch ran'
             echo words > AGENTS.md",
        )
        .await;
        let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let has =
            |what: fn(&ProtectedChange) -> bool| findings.iter().any(|finding| what(&finding.what));
        assert!(has(|what| *what == ProtectedChange::Created), "{told:?}");
        assert!(has(|what| *what == ProtectedChange::CameWithRepository), "{told:?}");
        let settings = findings.iter().find_map(|finding| match (&finding.what, &finding.action) {
            (ProtectedChange::Settings(names), ProtectAction::Cleaned(kept)) => {
                Some((names.clone(), kept.clone()))
            }
            _ => None,
        });
        let (names, kept) = settings.expect("settings were taken out");
        assert_eq!(names, ["core.fsmonitor", "alias.st"]);
        assert!(std::fs::read_to_string(kept).unwrap().contains("fsmonitor"));
        // The user works there afterwards, and nothing of it runs.
        let made = world.workspace().join("made");
        let mut git = std::process::Command::new("git");
        git.current_dir(&made).args(["status", "--short"]);
        assert!(git.output().unwrap().status.success());
        assert!(!world.workspace().join("ran").exists() && !made.join("ran").exists());
    }
}

#[tokio::test]
async fn non_utf8_names_are_protected() {
    use std::os::unix::ffi::OsStrExt;

    for backend in [Backend::Namespaces, Backend::Landlock] {
        let mut world = SandboxFixture::new();
        let odd = std::ffi::OsStr::from_bytes(b"a\nb \xff\"'");
        let folder = world.workspace().join(odd);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("AGENTS.md"), "words\n").unwrap();
        let script = "for f in */AGENTS.md; do echo evil > \"$f\"; done 2> /dev/null; echo DONE";
        let ran = world.run(backend, false, script).await.unwrap();
        assert_eq!(ran.text, "DONE\n");
        assert_eq!(std::fs::read_to_string(folder.join("AGENTS.md")).unwrap(), "words\n");
    }
}

#[tokio::test]
async fn cancelled_command_leaves_no_files() {
    for backend in [Backend::Namespaces, Backend::Landlock] {
        let mut world = SandboxFixture::new();
        let started = world.workspace().join("started");
        let planted = world.workspace().join("CLAUDE.md");
        let script = "echo evil > CLAUDE.md; touch started; sleep 600";
        {
            let run = world.run(backend, false, script);
            let seen = async {
                while !started.exists() {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                ran = run => panic!("it ended by itself: {:?}", ran.map(|ran| ran.text)),
                () = seen => {}
            }
        }
        // The next command finds it, unless the background check was faster.
        let ran = world.run(backend, false, "ls CLAUDE.md 2> /dev/null; echo DONE").await.unwrap();
        assert_eq!(ran.text, "DONE\n", "{backend:?}");
        assert!(!planted.exists());
        assert_eq!(ran.findings.len(), 1, "{:?}", ran.findings);
    }
}

#[tokio::test]
async fn unhidable_secrets_are_known_before_running() {
    let world = SandboxFixture::new();
    let scratch = world.workspace().join("../state/sessions/this/tmp");
    let exposed = world.sandbox(Backend::Landlock).exposed_secrets(&scratch).unwrap();
    let names: Vec<_> =
        exposed.iter().map(|path| path.strip_prefix(world.workspace()).unwrap()).collect();
    let wanted = [
        ".env",
        ".env.local",
        ".vscode/tls.key",
        "certs/server.key",
        "d1/.devcontainer/tls.key",
        "d1/tls.key",
        "deep/er/.env.production",
        "linked/cloud",
        "linked/registry/config.json",
    ];
    assert_eq!(names, wanted.map(std::path::Path::new));
    let hidden = world.sandbox(Backend::Namespaces).exposed_secrets(&scratch).unwrap();
    assert!(hidden.is_empty());
}

/// Mounts do not protect it, so it is searched for before its folder is removed.
#[tokio::test]
async fn repository_in_the_temporary_folder_is_restored_with_landlock() {
    let mut world = SandboxFixture::new();
    let head = world.workspace().join(".git/HEAD");
    let before = std::fs::read_to_string(&head).unwrap();
    let script = "g=.gi; mv ${g}t $TMPDIR/x; git init -q -b other .";
    let findings = works(&mut world, Backend::Landlock, script).await;
    let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), 1, "{told:?}");
    assert!(matches!(findings[0].action, ProtectAction::Restored(Some(_))), "{told:?}");
    assert_eq!(std::fs::read_to_string(&head).unwrap(), before);
    let findings = works(&mut world, Backend::Landlock, "rm -rf .git; git init -q .").await;
    let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.iter().any(|finding| finding.what == ProtectedChange::Replaced), "{told:?}");
}
