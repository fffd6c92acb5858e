//! What commands leave in the folders of git.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::protect::baseline::GIT_MOUNTS_MAX;

/// An index of version 2 without entries.
const EMPTY_INDEX: &[u8] = b"DIRC\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[expect(clippy::disallowed_types, reason = "git is the reader")]
pub(super) fn git(folder: &Path, arguments: &[&str]) -> bool {
    let mut git = std::process::Command::new("git");
    git.current_dir(folder).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
    git.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
    git.env("HOME", folder).env("GIT_EDITOR", "true").env("GIT_CONFIG_NOSYSTEM", "1");
    git.output().unwrap().status.success()
}

/// Workspace with a repository of real git that has the branches `main` and `side`, which conflict.
fn conflicting() -> ProtectedWorkspace {
    ProtectedWorkspace::with(|root| {
        fs::remove_dir_all(root.join(".git")).unwrap();
        fs::remove_dir_all(root.join("a")).unwrap();
        assert!(git(root, &["init", "-q", "-b", "main"]));
        let commit = |text: &str| {
            write(root, "f", text);
            assert!(git(root, &["add", "f"]) && git(root, &["commit", "-qm", "c"]));
        };
        commit("one\n");
        assert!(git(root, &["checkout", "-qb", "side"]));
        commit("two\n");
        commit("three\n");
        assert!(git(root, &["checkout", "-q", "main"]));
        commit("four\n");
    })
}

#[test]
fn foreign_entries_of_a_git_folder_are_moved_aside() {
    for path in [
        ".git/MERGE_RR",
        ".git/rr-cache/aa/postimage",
        ".git/MERGE_AUTOSTASH",
        ".git/svn/.metadata",
        ".git/glab-cli/config.yml",
        ".git/refs/replace/aa",
        ".git/info/grafts",
        ".git/anything",
        "a/b/inner/.git/MERGE_RR",
        ".git/modules/sub/MERGE_RR",
        ".git/worktrees/wt/MERGE_RR",
        "bare/MERGE_RR",
        "bare/refs/replace/aa",
        "bare/unknown",
    ] {
        let world = ProtectedWorkspace::with(|root| {
            repository(&root.join(".git/modules/sub"));
            write(root, ".git/worktrees/wt/HEAD", "ref: refs/heads/wt\n");
            write(root, ".git/worktrees/wt/commondir", "../..\n");
            repository(&root.join("bare"));
        });
        let findings = world.after(|root| write(root, path, "evil\n"));
        assert_eq!(findings.len(), 1, "{path}: {findings:?}");
        assert!(!world.exists(path), "{path}");
        assert_eq!(world.after(|_| {}), [], "{path}");
    }
}

#[test]
fn foreign_entries_of_the_user_are_put_back() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".git/MERGE_RR", "");
        write(root, ".git/rr-cache/aa/postimage", "one\n");
        write(root, ".git/MERGE_AUTOSTASH", "0123\n");
    });
    let survey = world.protection.survey();
    let read_only = world.names(&survey.read_only);
    assert!(read_only.contains(&".git/MERGE_RR".to_owned()), "{read_only:?}");
    assert!(read_only.contains(&".git/rr-cache".to_owned()), "{read_only:?}");
    // git removes it at the end of the merge.
    assert!(!read_only.contains(&".git/MERGE_AUTOSTASH".to_owned()), "{read_only:?}");
    drop(survey);
    let findings = world.after(|root| {
        write(root, ".git/MERGE_RR", "aa\tx\0");
        write(root, ".git/rr-cache/aa/postimage", "two\n");
        write(root, ".git/MERGE_AUTOSTASH", "4567\n");
    });
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert_eq!(world.read(".git/rr-cache/aa/postimage"), "one\n");
    assert_eq!(world.read(".git/MERGE_AUTOSTASH"), "0123\n");
    let findings = world.after(|root| fs::remove_file(root.join(".git/MERGE_AUTOSTASH")).unwrap());
    assert_eq!(findings, []);
}

/// A command that makes a repository of a folder with files of the user does not take them away.
#[test]
fn files_of_the_user_are_not_foreign() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, "src/objects/door.obj", "x");
        write(root, "src/refs/list", "x");
    });
    let findings = world.after(|root| {
        write(root, "src/HEAD", "ref: refs/heads/main\n");
        write(root, "src/config", "[core]\n\tbare = false\n");
        write(root, "src/MERGE_RR", "evil");
        // The loose objects are not foreign either.
        write(root, ".git/objects/ab/cd", "x");
        write(root, ".git/objects/HEAD", "ref: refs/heads/main\n");
        write(root, ".git/objects/config", "");
        write(root, ".git/objects/objects/x", "");
        write(root, ".git/objects/refs/x", "");
    });
    assert!(world.exists("src/main.rs") && world.exists("src/objects/door.obj"), "{findings:?}");
    assert!(!world.exists("src/MERGE_RR"), "{findings:?}");
    assert!(world.exists(".git/objects/ab/cd"), "{findings:?}");
    let findings = world.after(|root| {
        write(root, "src/main.rs", "changed");
        write(root, ".git/objects/ef/01", "x");
    });
    assert_eq!(findings, []);
    assert!(world.exists("src/main.rs") && world.exists(".git/objects/ef/01"));
}

/// A project with folders called `objects` and `refs` is an ordinary one if it has a `.git`.
#[test]
fn project_that_looks_like_a_repository_is_ordinary() {
    let world = ProtectedWorkspace::with(|root| {
        repository(&root.join("game/.git"));
        for name in ["HEAD", "objects/a", "refs/b", "config/c", "player.rs"] {
            write(root, &format!("game/{name}"), "x");
        }
    });
    let findings = world.after(|root| {
        write(root, "game/enemy.rs", "x");
        write(root, "game/player.rs", "y");
        fs::rename(root.join("game/.git"), root.join("game/old")).unwrap();
    });
    assert!(world.exists("game/enemy.rs") && world.exists("game/player.rs"), "{findings:?}");
}

#[test]
fn ordinary_git_work_is_not_undone() {
    let world = conflicting();
    let findings = world.after(|root| {
        assert!(!git(root, &["merge", "side"]), "there is a conflict");
        write(root, "f", "both\n");
        assert!(git(root, &["add", "f"]) && git(root, &["commit", "-qm", "merged"]));
        assert!(git(root, &["tag", "-a", "v1", "-m", "one"]));
        write(root, "f", "stashed\n");
        assert!(git(root, &["stash"]) && git(root, &["stash", "pop"]));
        assert!(git(root, &["commit", "-qam", "more"]));
        assert!(git(root, &["notes", "add", "-m", "note"]));
        assert!(git(root, &["bisect", "start", "HEAD", "HEAD~2"]));
        assert!(git(root, &["bisect", "reset"]));
        assert!(git(root, &["gc", "-q"]));
        assert!(git(root, &["sparse-checkout", "set", "src"]));
        assert!(git(root, &["sparse-checkout", "disable"]));
        assert!(git(root, &["worktree", "add", "-q", "wt", "-b", "w"]));
        assert!(git(root, &["clone", "-q", ".", "clone"]));
        assert!(git(root, &["clone", "-q", "--bare", ".", "bare.git"]));
        assert!(git(root, &["cherry-pick", "side"]) || git(root, &["cherry-pick", "--abort"]));
        assert!(!git(root, &["merge", "--no-such-option"]));
    });
    let moved: Vec<&Finding> =
        findings.iter().filter(|finding| !finding.path.ends_with(".git/config")).collect();
    assert!(moved.is_empty(), "{findings:?}");
    assert_eq!(world.after(|root| assert!(git(root, &["fsck"]))), []);
}

#[test]
fn steps_that_a_command_adds_to_an_operation_of_the_user_are_taken_out() {
    for (begin, list, end) in [
        (&["rebase", "side"][..], ".git/rebase-merge/git-rebase-todo", &["rebase", "--skip"][..]),
        (&["cherry-pick", "main..side"], ".git/sequencer/todo", &["cherry-pick", "--skip"]),
    ] {
        let world = conflicting();
        if begin[0] == "rebase" {
            write(&world.root, "f", "five\n");
            assert!(git(&world.root, &["commit", "-qam", "c"]));
        }
        assert!(!git(&world.root, begin), "there is a conflict");
        let before = world.read(list);
        assert!(before.contains("pick"), "{before}");
        let added = "reset 0123456789\npick 0123456789 evil\nexec ./evil\n";
        let findings = world.after(|root| write(root, list, &format!("{before}{added}")));
        assert_eq!(world.read(list), before, "{findings:?}");
        let expected: Vec<String> = added.lines().map(str::to_owned).collect();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].what, ProtectedChange::Steps(expected), "{findings:?}");
        assert!(matches!(findings[0].action, ProtectAction::Cleaned(_)), "{findings:?}");
        // git shortens the list step by step.
        let findings = world.after(|root| {
            git(root, end);
        });
        assert_eq!(findings, [], "{list}");
        assert_ne!(world.read(list), before);
    }
}

#[test]
fn changed_patches_of_an_operation_of_the_user_are_reported() {
    let world = conflicting();
    assert!(!git(&world.root, &["rebase", "--apply", "side"]), "there is a conflict");
    let findings = world.after(|root| write(root, ".git/rebase-apply/0001", "evil"));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].what, ProtectedChange::Interrupted);
}

#[test]
fn state_of_unfinished_operations_stays_and_is_reported_once() {
    let world = conflicting();
    let findings = world.after(|root| {
        assert!(!git(root, &["merge", "side"]), "there is a conflict");
    });
    assert_eq!(findings, []);
    world.after(|root| assert!(git(root, &["merge", "--abort"])));
    for (begin, folder, end) in [
        (&["rebase", "side"][..], ".git/rebase-merge", &["rebase", "--abort"][..]),
        (&["rebase", "--apply", "side"], ".git/rebase-apply", &["rebase", "--abort"]),
        (&["cherry-pick", "main..side"], ".git/sequencer", &["cherry-pick", "--abort"]),
    ] {
        let findings = world.after(|root| assert!(!git(root, begin), "there is a conflict"));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].path, world.root.join(folder));
        let (what, action) = (&findings[0].what, &findings[0].action);
        assert_eq!((what, action), (&ProtectedChange::Interrupted, &ProtectAction::Left));
        assert_eq!(world.after(|root| assert!(git(root, &["status"]))), [], "{folder}");
        let origin = if folder.ends_with("sequencer") { "head" } else { "orig-head" };
        let origin = format!("{folder}/{origin}");
        let before = world.read(&origin);
        let findings = world.after(|root| write(root, &origin, "0123\n"));
        assert_eq!(findings.len(), 1, "{findings:?}");
        write(&world.root, &origin, &before);
        assert_eq!(world.after(|root| assert!(git(root, end))), [], "{folder}");
    }
}

#[test]
fn stash_that_a_rebase_would_apply_is_moved_aside() {
    for path in [".git/rebase-merge/autostash", ".git/rebase-apply/autostash"] {
        let world = ProtectedWorkspace::with(|root| write(root, path, "0123\n"));
        let world_without = ProtectedWorkspace::with(|root| {
            write(root, &path.replace("autostash", "head-name"), "refs/heads/main\n");
        });
        let findings = world.after(|root| write(root, path, "4567\n"));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(world.read(path), "0123\n");
        let findings = world_without.after(|root| write(root, path, "4567\n"));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(!world_without.exists(path));
    }
}

#[test]
fn options_of_an_interrupted_am_write_no_other_file() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".git/rebase-apply/apply-opt", "'--whitespace=fix'\n");
    });
    let options = ".git/rebase-apply/apply-opt";
    assert_eq!(world.after(|root| write(root, options, "'-p2'\n")), []);
    let findings =
        world.after(|root| write(root, options, "'--build-fake-ancestor=/h/.profile'\n"));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(!world.exists(options));
}

#[test]
fn packed_references_that_replace_objects_are_taken_out() {
    let packed = "# pack-refs with: peeled fully-peeled sorted \n11 refs/heads/main\n\
                  22 refs/replace/33\n44 refs/tags/v1\n^55\n";
    let world = ProtectedWorkspace::with(|root| write(root, ".git/packed-refs", packed));
    let findings = world.after(|root| {
        write(root, ".git/packed-refs", &format!("{packed}66 refs/tags/v2\n"));
    });
    assert_eq!(findings, []);
    let findings = world.after(|root| {
        write(root, ".git/packed-refs", &packed.replace("44", "77 refs/replace/88\n^99\n44"));
    });
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(matches!(findings[0].action, ProtectAction::Cleaned(_)), "{findings:?}");
    assert_eq!(world.read(".git/packed-refs"), packed);
    // Those that the user had may be packed.
    let world = ProtectedWorkspace::with(|root| write(root, ".git/refs/replace/33", "22\n"));
    let findings = world.after(|root| {
        write(root, ".git/packed-refs", packed);
        fs::remove_dir_all(root.join(".git/refs/replace")).unwrap();
    });
    assert_eq!(findings, []);
}

#[test]
fn packed_references_that_replace_objects_through_a_mapping_are_taken_out() {
    let packed = "# pack-refs with: peeled fully-peeled sorted \n11 refs/heads/main\n\
                  22 refs/tags/v1.0.0\n";
    let changed = packed.replace("refs/tags/v1.0.0", "refs/replace/333");
    assert_eq!(packed.len(), changed.len());
    let world = ProtectedWorkspace::with(|root| write(root, ".git/packed-refs", packed));
    // Only bytes that are older than the clock's resolution are stored.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(world.after(|_| {}), []);
    let times = fs::metadata(world.root.join(".git/packed-refs")).unwrap();
    let findings = world.after(|root| {
        write(root, ".git/packed-refs", &changed);
        // As if the kernel had not updated the times.
        let path = root.join(".git/packed-refs");
        world.protection.lock().reader.pretend_unchanged(&path, &times);
    });
    assert!(matches!(findings[0].action, ProtectAction::Cleaned(_)), "{findings:?}");
    assert!(!world.read(".git/packed-refs").contains("replace"));
}

#[test]
fn hard_links_of_protected_files_are_separated() {
    let links = |world: &ProtectedWorkspace, path: &str| {
        fs::metadata(world.root.join(path)).unwrap().nlink()
    };
    for held in [ProtectionMethod::ByCheck, ProtectionMethod::ByMounts] {
        let world = ProtectedWorkspace::new();
        let findings = world.after_held(held, |root| {
            fs::hard_link(root.join(".git/config"), root.join(".git/COMMIT_EDITMSG")).unwrap();
            fs::hard_link(root.join("AGENTS.md"), root.join("src/notes")).unwrap();
        });
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert_eq!(links(&world, ".git/config") + links(&world, "AGENTS.md"), 2);
        write(&world.root, ".git/COMMIT_EDITMSG", "[core]\nfsmonitor = evil\n");
        assert_eq!(world.read(".git/config"), "[core]\n\tbare = false\n");
    }
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        repository(&root.join("n/.git"));
        fs::hard_link(root.join("n/.git/config"), root.join("n/.git/COMMIT_EDITMSG")).unwrap();
        write(root, "h/.hg/hgrc", "[paths]\ndefault = https://a.example/b\n");
        fs::hard_link(root.join("h/.hg/hgrc"), root.join("n/.git/hooks/a.sample")).unwrap();
    });
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert_eq!(links(&world, "n/.git/config") + links(&world, "h/.hg/hgrc"), 2);
}

/// A mount does not protect a file that has a name without a mount.
#[test]
fn change_under_a_mount_through_another_name_is_undone() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, "d/x", "the user's words\n");
        fs::remove_file(root.join("AGENTS.md")).unwrap();
        fs::hard_link(root.join("d/x"), root.join("AGENTS.md")).unwrap();
    });
    let findings =
        world.after_held(ProtectionMethod::ByMounts, |root| write(root, "d/x", "obey me\n"));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(world.read("AGENTS.md"), "the user's words\n");
}

#[test]
fn names_of_mounted_files_are_found_in_folders_that_are_not_scanned() {
    let world = ProtectedWorkspace::with(|root| {
        fs::hard_link(root.join("AGENTS.md"), root.join(".git/hooks/a.sample")).unwrap();
        fs::create_dir(root.join("d")).unwrap();
        fs::hard_link(root.join("AGENTS.md"), root.join("d/x")).unwrap();
    });
    let read_only = |world: &ProtectedWorkspace| {
        let survey = world.protection.survey();
        world.names(&survey.read_only)
    };
    let before = read_only(&world);
    assert!(before.contains(&".git/hooks/a.sample".to_owned()), "{before:?}");
    assert!(before.contains(&"d/x".to_owned()), "{before:?}");
    // A renamed folder does not change the file.
    fs::rename(world.root.join("d"), world.root.join("e")).unwrap();
    let after = read_only(&world);
    assert!(after.contains(&"e/x".to_owned()), "{after:?}");
}

#[test]
fn files_whose_content_is_judged_do_not_use_up_the_mounts() {
    let world = ProtectedWorkspace::with(|root| {
        for number in 0..=MOUNTS_MAX {
            write(root, &format!(".{number:04}/.gitmodules"), "");
        }
    });
    let survey = world.protection.survey();
    let read_only = world.names(&survey.read_only);
    let is_of_git = |path: &&String| format!("/{path}").contains("/.git/");
    assert_eq!(read_only.iter().filter(|path| !is_of_git(path)).count(), MOUNTS_MAX);
    for path in [".git/config", ".git/hooks", "a/b/inner/.git/config", "AGENTS.md", ".vscode"] {
        assert!(read_only.contains(&path.to_owned()), "{path}");
    }
}

#[test]
fn other_protected_names_do_not_use_up_the_mounts_of_git() {
    let world = ProtectedWorkspace::with(|root| {
        for number in 0..=MOUNTS_MAX {
            write(root, &format!(".huskyrc{number}"), "{}");
            write(root, &format!("r{number:03}/.git/HEAD"), "ref: refs/heads/main\n");
            write(root, &format!("r{number:03}/.git/config"), "[core]\n");
        }
    });
    let survey = world.protection.survey();
    assert!(survey.complete);
    let read_only = world.names(&survey.read_only);
    for path in [".git/config", ".git/hooks", "r000/.git/config", "r400/.git/config"] {
        assert!(read_only.contains(&path.to_owned()), "{path}");
    }
}

#[test]
fn more_repositories_than_mounts_can_hold_are_an_incomplete_scan() {
    let world = ProtectedWorkspace::with(|root| {
        for number in 0..=GIT_MOUNTS_MAX {
            write(root, &format!("r{number}/.git/HEAD"), "ref: refs/heads/main\n");
            write(root, &format!("r{number}/.git/config"), "[core]\n");
        }
    });
    let survey = world.protection.survey();
    assert!(!survey.complete);
    assert!(world.names(&survey.read_only).contains(&".git/config".to_owned()));
}

#[test]
fn emptied_repository_is_reported() {
    let object = ".git/objects/12/3456";
    for held in [ProtectionMethod::ByCheck, ProtectionMethod::ByMounts] {
        for emptied in ["objects", "objects/12", "refs", "HEAD"] {
            let world = ProtectedWorkspace::with(|root| {
                write(root, object, "x");
                write(root, ".git/refs/heads/main", "11\n");
            });
            let findings = world.after_held(held, |root| {
                let path = root.join(".git").join(emptied);
                if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
                    .unwrap();
            });
            let told: Vec<_> =
                findings.iter().map(|found| (found.what.clone(), &found.action)).collect();
            assert_eq!(told.len(), 1, "{emptied}: {told:?}");
            assert!(
                matches!(told[0], (ProtectedChange::Changed, ProtectAction::Failed(_))),
                "{told:?}"
            );
        }
    }
    // Without commits there is nothing to lose, and ordinary work deletes single files.
    let world = ProtectedWorkspace::with(|root| {
        write(root, object, "x");
        write(root, ".git/objects/34/56", "x");
        write(root, ".git/refs/heads/main", "11\n");
        write(root, ".git/refs/heads/other/deep", "11\n");
    });
    let findings = world.after(|root| {
        fs::remove_dir_all(root.join(".git/objects/34")).unwrap();
        fs::remove_file(root.join(".git/refs/heads/main")).unwrap();
    });
    assert_eq!(findings, []);
}

/// Workspace with a repository of real git: two commits, and the branches `main` and `side`. If
/// `is_packed`, objects and branches are packed, beside a loose object.
fn with_branches(is_packed: bool) -> ProtectedWorkspace {
    ProtectedWorkspace::with(|root| {
        fs::remove_dir_all(root.join(".git")).unwrap();
        let git = |arguments: &[&str]| assert!(git(root, arguments), "{arguments:?}");
        git(&["init", "-q", "-b", "main"]);
        for commit in ["first", "second"] {
            git(&["commit", "-qm", commit, "--allow-empty"]);
        }
        git(&["branch", "side"]);
        if is_packed {
            git(&["repack", "-adq"]);
            git(&["pack-refs", "--all"]);
            write(root, "loose", "loose");
            git(&["hash-object", "-w", "loose"]);
        }
    })
}

/// Replaces the content of the read-only file `path`.
fn overwrite(path: &Path, content: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
}

/// Path of the object of the commit that the branch `main` names.
fn main_object(root: &Path) -> PathBuf {
    let name = fs::read_to_string(root.join(".git/refs/heads/main")).unwrap();
    root.join(".git/objects").join(&name[..2]).join(name[2..].trim())
}

#[test]
fn commit_that_head_named_is_missed_whatever_head_names_later() {
    let run = |root: &Path, command: &str| {
        assert!(git(root, &command.split(' ').collect::<Vec<_>>()), "{command}");
    };
    let delete_behind = |root: &Path, command: &str| {
        let object = main_object(root);
        run(root, command);
        fs::remove_file(object).unwrap();
    };
    let cut_packs = |root: &Path| {
        for entry in fs::read_dir(root.join(".git/objects/pack")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "pack") {
                overwrite(&path, b"");
            }
        }
    };
    let cases: [DeletionCase<'_>; 9] = [
        (false, &|root| delete_behind(root, "switch -q --detach side~1")),
        (false, &|root| delete_behind(root, "reset -q --hard HEAD~1")),
        (false, &|root| delete_behind(root, "symbolic-ref HEAD refs/heads/new")),
        (false, &|root| {
            delete_behind(root, "status");
            write(root, ".git/refs/heads/main", "ref: refs/heads/side\n");
        }),
        (false, &|root| overwrite(&main_object(root), b"")),
        // It begins like a compressed object.
        (false, &|root| overwrite(&main_object(root), b"\x78\x01 no commit")),
        (false, &|root| {
            run(root, "symbolic-ref HEAD refs/heads/new");
            run(root, "update-ref -d refs/heads/main");
        }),
        (true, &cut_packs),
        (true, &|root| {
            run(root, "reset -q --hard HEAD~1");
            run(root, "reflog expire --expire=now --all");
            run(root, "branch -D side");
            run(root, "gc -q --prune=now");
        }),
    ];
    for (number, (is_packed, damage)) in cases.into_iter().enumerate() {
        let world = with_branches(is_packed);
        let findings = world.after(damage);
        assert!(
            matches!(
                findings[..],
                [Finding { what: ProtectedChange::Changed, action: ProtectAction::Failed(_), .. }]
            ),
            "{number}: {findings:?}"
        );
    }
}

#[test]
fn branch_that_one_command_leaves_and_another_one_deletes_is_reported() {
    let world = with_branches(false);
    let object = main_object(&world.root);
    assert_eq!(world.after(|root| assert!(git(root, &["switch", "-q", "--detach", "side~1"]))), []);
    let delete = |_: &Path| fs::rename(&object, object.with_extension("away")).unwrap();
    let findings = world.after(delete);
    assert_eq!(findings.len(), 1, "{findings:?}");
    // It is reported once, and not what the user deletes between two commands.
    assert_eq!(world.after(|_| {}), []);
    fs::rename(object.with_extension("away"), &object).unwrap();
    for command in ["switch -q main", "switch -q --detach side~1"] {
        let arguments: Vec<&str> = command.split(' ').collect();
        assert_eq!(world.after(|root| assert!(git(root, &arguments))), []);
    }
    delete(&world.root);
    assert_eq!(world.after(|_| {}), []);
}

#[test]
fn removed_tables_of_references_are_reported() {
    // As git 2.47 makes it with `--ref-format=reftable`.
    let with_tables = || {
        ProtectedWorkspace::with(|root| {
            fs::remove_dir_all(root.join(".git/refs")).unwrap();
            write(root, ".git/HEAD", "ref: refs/heads/.invalid\n");
            write(root, ".git/refs/heads", "this repository uses the reftable format\n");
            write(root, ".git/reftable/one.ref", "REFT");
            write(root, ".git/reftable/two.ref", "REFT");
            write(root, ".git/reftable/tables.list", "one.ref\ntwo.ref\n");
        })
    };
    let findings = with_tables().after(|root| {
        write(root, ".git/reftable/three.ref", "REFT");
        write(root, ".git/reftable/tables.list", "three.ref\n");
        fs::remove_file(root.join(".git/reftable/one.ref")).unwrap();
    });
    assert_eq!(findings, []);
    for damage in [
        |root: &Path| fs::remove_file(root.join(".git/reftable/two.ref")).unwrap(),
        |root: &Path| write(root, ".git/reftable/one.ref", ""),
        |root: &Path| write(root, ".git/reftable/tables.list", ""),
        |root: &Path| fs::remove_dir_all(root.join(".git/reftable")).unwrap(),
    ] {
        let findings = with_tables().after(damage);
        assert_eq!(findings.len(), 1, "{findings:?}");
    }
}

/// True for a packed repository, and what the command deletes.
type DeletionCase<'a> = (bool, &'a dyn Fn(&Path));

#[test]
fn deleted_commit_and_branches_are_reported() {
    let main = ".git/refs/heads/main";
    let delete_commit = |root: &Path| {
        let name = fs::read_to_string(root.join(main)).unwrap();
        fs::remove_file(root.join(".git/objects").join(&name[..2]).join(name[2..].trim())).unwrap();
    };
    let delete_pack = |root: &Path| fs::remove_dir_all(root.join(".git/objects/pack")).unwrap();
    let delete_branch = |root: &Path| fs::remove_file(root.join(main)).unwrap();
    let garble_branch = |root: &Path| write(root, main, "none\n");
    let delete_packed_branch = |root: &Path| {
        let packed = fs::read_to_string(root.join(".git/packed-refs")).unwrap();
        let rest: Vec<_> = packed.lines().filter(|line| !line.ends_with("/main")).collect();
        write(root, ".git/packed-refs", &rest.join("\n"));
    };
    let delete_all_branches = |root: &Path| {
        write(root, ".git/HEAD", "ref: refs/heads/new\n");
        fs::remove_dir_all(root.join(".git/refs/heads")).unwrap();
        fs::create_dir(root.join(".git/refs/heads")).unwrap();
        fs::remove_file(root.join(".git/packed-refs")).ok();
    };
    let cases: [DeletionCase<'_>; 7] = [
        (false, &delete_commit),
        (true, &delete_pack),
        (false, &delete_branch),
        (false, &garble_branch),
        (true, &delete_packed_branch),
        (false, &delete_all_branches),
        (true, &delete_all_branches),
    ];
    for (number, (is_packed, delete)) in cases.into_iter().enumerate() {
        for is_known in [false, true] {
            let world = with_branches(is_packed);
            if is_known {
                // The next survey takes what it found before.
                std::thread::sleep(Duration::from_millis(30));
                assert_eq!(world.after(|_| {}), []);
            }
            let findings = world.after(delete);
            let told: Vec<_> = findings.iter().map(|found| (&found.what, &found.action)).collect();
            assert!(
                matches!(told[..], [(ProtectedChange::Changed, ProtectAction::Failed(_))]),
                "{number}: {told:?}"
            );
        }
    }
}

#[test]
fn ordinary_work_of_git_deletes_no_commit() {
    for is_packed in [false, true] {
        for commands in [
            &["commit -q --amend --allow-empty -m other"][..],
            &["reset -q --hard HEAD~1", "gc -q"],
            &["switch -q side", "merge -q main", "branch -d main"],
            &["pack-refs --all", "repack -adq"],
            &["branch -m main other", "branch -D side"],
            &["checkout -q --orphan new", "branch -D main side", "commit -qm new --allow-empty"],
            &["checkout -q --detach", "branch -D main"],
            &["rebase -q HEAD~1", "stash"],
        ] {
            let world = with_branches(is_packed);
            let findings = world.after(|root| {
                for command in commands {
                    let arguments: Vec<&str> = command.split(' ').collect();
                    assert!(git(root, &arguments), "{command}");
                }
            });
            assert_eq!(findings, [], "{commands:?}");
        }
    }
}

#[test]
fn index_of_an_unknown_object_format_is_moved_aside() {
    for (formats, is_known) in [
        ("", true),
        ("[extensions]\n\tobjectformat = sha1\n", true),
        ("[extensions]\n\tobjectformat = sha256\n\tobjectformat = sha1\n", false),
        ("[extensions]\n\tobjectformat = other\n", false),
    ] {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| {
            repository(&root.join("n/.git"));
            write(root, "n/.git/config", &format!("[core]\n\tbare = false\n{formats}"));
            fs::write(root.join("n/.git/index"), EMPTY_INDEX).unwrap();
        });
        assert_eq!(world.exists("n/.git/index"), is_known, "{formats} {findings:?}");
        assert_eq!(findings.is_empty(), is_known, "{formats} {findings:?}");
    }
}

#[test]
fn environment_that_direnv_or_mise_loads_is_protected() {
    let text = "PROMPT_COMMAND=evil\n";
    for loader in [".envrc", "mise.toml"] {
        for path in [".env", "sub/.env.local"] {
            let world = ProtectedWorkspace::with(|root| write(root, loader, "dotenv\n"));
            let findings = world.after(|root| write(root, path, text));
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(!world.exists(path));
            let world = ProtectedWorkspace::with(|root| {
                write(root, loader, "dotenv\n");
                write(root, path, "A=1\n");
            });
            // The order of both changes does not matter.
            let findings = world.after(|root| {
                write(root, path, text);
                fs::remove_file(root.join(loader)).unwrap();
            });
            assert_eq!(findings.len(), 2, "{findings:?}");
            assert_eq!(world.read(path), "A=1\n");
        }
    }
    // Settings above the root, such as those of the home folder, do not count.
    let world = ProtectedWorkspace::with(|root| write(root, "../mise.toml", ""));
    let findings = world.after(|root| {
        write(root, ".env", text);
        write(root, ".env.example", text);
    });
    assert_eq!(findings, []);
    assert_eq!(world.after(|root| write(root, ".env", "A=2\n")), []);
    assert_eq!(world.read(".env"), "A=2\n");
}

#[test]
fn further_names_that_programs_read_are_moved_aside() {
    for path in [
        "_opam/.opam-switch/environment",
        ".corepack.env",
        "h/.hg/journal.backupfiles",
        ".rbenv-vars",
        ".jedi/project.json",
        ".ctags.d/a.ctags",
        ".venv",
        ".volta/hooks.json",
        "CVS/Root",
    ] {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| write(root, path, "evil\n"));
        assert_eq!(findings.len(), 1, "{path} {findings:?}");
        assert!(!world.exists(path), "{path}");
    }
    let world = ProtectedWorkspace::new();
    assert_eq!(world.after(|root| write(root, ".venv/bin/python", "x")), []);
}

const EXCLUDE: &str = ".git/info/exclude";

#[test]
fn patterns_of_excluded_files_are_put_back() {
    let user = "# comment\n*.local\n";
    let world = ProtectedWorkspace::with(|root| write(root, EXCLUDE, user));
    for act in [
        |path: &Path| fs::write(path, "# comment\n*.local\n*\n").unwrap(),
        |path: &Path| fs::write(path, "").unwrap(),
        |path: &Path| fs::remove_file(path).unwrap(),
        |path: &Path| {
            fs::remove_file(path).unwrap();
            symlink("../../src/main.rs", path).unwrap();
        },
    ] {
        let findings = world.after(|root| act(&root.join(EXCLUDE)));
        assert!(!findings.is_empty());
        assert!(findings.iter().all(|finding| finding.path == world.root.join(EXCLUDE)));
        assert!(
            findings.iter().any(|finding| matches!(finding.action, ProtectAction::Restored(_)))
        );
        assert_eq!(world.read(EXCLUDE), user);
    }
    let survey = world.protection.survey();
    assert!(survey.read_only.contains(&world.root.join(EXCLUDE)), "{:?}", survey.read_only);
}

#[test]
fn patterns_of_excluded_files_are_not_added_to_a_repository_of_the_user() {
    for (text, is_harmless) in
        [("# comment\n\n", true), ("", true), ("*\n", false), (" #\n", false), ("\u{feff}*", false)]
    {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| write(root, EXCLUDE, text));
        assert_eq!(findings.is_empty(), is_harmless, "{findings:?}");
        assert_eq!(world.exists(EXCLUDE), is_harmless, "{text:?}");
    }
}

#[test]
fn patterns_of_excluded_files_of_a_new_repository_are_reported() {
    let world = ProtectedWorkspace::new();
    let exclude = "new/.git/info/exclude";
    let findings = world.after(|root| {
        repository(&root.join("new/.git"));
        write(root, exclude, "*\n");
    });
    let left = |findings: &[Finding]| {
        let path = world.root.join(exclude);
        let change = ProtectedChange::Excludes;
        assert_eq!(findings, [Finding::new(path, change, ProtectAction::Left)]);
    };
    left(&findings);
    assert_eq!(world.after(|root| write(root, "x", "")), [], "it is reported once");
    left(&world.after(|root| write(root, exclude, "*\n!x\n")));
    assert_eq!(world.read(exclude), "*\n!x\n");
}

#[test]
fn new_repositories_of_git_have_no_patterns_of_excluded_files() {
    let world = conflicting();
    assert!(world.exists(EXCLUDE));
    for commands in [
        &[&["init", "-q", "."][..], &["init", "-q", "new"]][..],
        &[&["clone", "-q", ".", "copy"], &["init", "-q", "--bare", "bare"]],
        &[&["worktree", "add", "-q", "wt"]],
        &[&["-C", "copy", "sparse-checkout", "set", "--no-cone", "f"]],
        &[&["-C", "copy", "sparse-checkout", "disable"]],
    ] {
        let findings = world.after(|root| {
            for command in commands {
                assert!(git(root, command), "{command:?}");
            }
        });
        assert_eq!(findings, [], "{commands:?}");
    }
}
