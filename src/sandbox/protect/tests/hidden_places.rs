//! Repositories and control files in places where a scan by names does not find them.

use super::*;

fn paths(findings: &[Finding], world: &ProtectedWorkspace) -> Vec<String> {
    let mut paths: Vec<_> = findings.iter().map(|finding| finding.path.clone()).collect();
    paths.sort();
    world.names(&paths)
}

fn init(root: &Path, folder: &str) {
    repository(&root.join(folder).join(".git"));
}

#[test]
fn pointer_to_a_repository_among_loose_objects_is_harmless() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        repository(&root.join(".git/objects/aa"));
        write(root, ".git/objects/aa/config", "[core]\n\tfsmonitor = ./evil\n");
        write(root, "src/.git", "gitdir: ../.git/objects/aa\n");
    });
    assert_eq!(paths(&findings, &world), [".git/objects/aa/config"]);
    assert_eq!(world.read(".git/objects/aa/config"), "[core]\n");
}

#[test]
fn repository_in_the_objects_folder_is_cleaned() {
    let world = ProtectedWorkspace::new();
    world.after(|root| {
        repository(&root.join(".git/objects"));
        write(root, ".git/objects/config", "[core]\n\tfsmonitor = ./evil\n");
        write(root, "src/.git", "gitdir: ../.git/objects\n");
    });
    assert!(!world.read(".git/objects/config").contains("fsmonitor"));
}

#[test]
fn link_to_loose_objects_is_scanned_through() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        repository(&root.join(".git/objects/aa"));
        write(root, ".git/objects/aa/config", "[core]\n\tfsmonitor = ./evil\n");
        symlink(".git/objects", root.join("store")).unwrap();
        write(root, "src/.git", "gitdir: ../store/aa\n");
    });
    assert!(!world.read(".git/objects/aa/config").contains("fsmonitor"), "{findings:?}");
}

#[test]
fn names_with_a_meaning_from_the_folder_are_never_exempt() {
    for folder in [".cargo", ".github"] {
        let path = if folder == ".cargo" { "config.toml" } else { "workflows/ci.yml" };
        let file = format!("{folder}/{path}");
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| {
            init(root, folder);
            write(root, &file, "planted");
        });
        assert!(!world.exists(&file), "{findings:?}");
    }
}

#[test]
fn folder_with_an_empty_git_folder_is_not_a_work_tree() {
    let world = ProtectedWorkspace::new();
    world.after(|root| {
        fs::create_dir_all(root.join("pk/.git")).unwrap();
        write(root, "pk/.mcp.json", "planted");
    });
    assert!(!world.exists("pk/.mcp.json"));
}

#[test]
fn replaced_folder_of_the_user_is_not_a_new_work_tree() {
    let world = ProtectedWorkspace::new();
    world.after(|root| {
        fs::rename(root.join("src"), root.join("old")).unwrap();
        init(root, "src");
        write(root, "src/.mcp.json", "planted");
    });
    assert!(!world.exists("src/.mcp.json"));
    // Also if it was created elsewhere, by an earlier command.
    let world = ProtectedWorkspace::new();
    world.after(|root| init(root, "clone"));
    world.after(|root| {
        fs::rename(root.join("src"), root.join("old")).unwrap();
        fs::rename(root.join("clone"), root.join("src")).unwrap();
        write(root, "src/.mcp.json", "planted");
    });
    assert!(!world.exists("src/.mcp.json"));
}

#[test]
fn exemption_does_not_move_with_the_git_folder() {
    let world = ProtectedWorkspace::new();
    world.after(|root| init(root, "clone"));
    world.after(|root| {
        fs::rename(root.join("clone/.git"), root.join("src/.git")).unwrap();
        write(root, "src/.mcp.json", "planted");
    });
    assert!(!world.exists("src/.mcp.json"));
}

#[test]
fn exemption_does_not_extend_to_moved_folders() {
    let world = ProtectedWorkspace::new();
    world.after(|root| {
        init(root, "clone");
        fs::rename(root.join("src"), root.join("clone/src")).unwrap();
        write(root, "clone/src/.mcp.json", "planted");
    });
    assert!(!world.exists("clone/src/.mcp.json"));
}

#[test]
fn files_of_a_work_tree_lose_the_exemption_with_its_git_folder() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        init(root, "clone");
        write(root, "clone/.mcp.json", "{}");
        write(root, "clone/deep/AGENTS.md", "words");
    });
    assert_eq!(paths(&findings, &world), ["clone/.mcp.json", "clone/deep/AGENTS.md"]);
    assert!(world.exists("clone/.mcp.json"));
    assert_eq!(world.after(|_| {}), []);
    // Moving the whole work tree is ordinary work.
    assert_eq!(world.after(|root| fs::rename(root.join("clone"), root.join("b")).unwrap()), []);
    let findings = world.after(|root| write(root, "b/.mcp.json", "{\"changed\": 1}"));
    assert_eq!(paths(&findings, &world), ["b/.mcp.json"], "a change is reported");
    assert!(world.exists("b/.mcp.json"));
    world.after(|root| fs::remove_dir_all(root.join("b/.git")).unwrap());
    assert!(!world.exists("b/.mcp.json") && !world.exists("b/deep/AGENTS.md"));
}

#[test]
fn linked_worktrees_and_submodules_keep_their_files() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        write(root, ".git/worktrees/wt/HEAD", "ref: refs/heads/wt\n");
        write(root, ".git/worktrees/wt/commondir", "../..\n");
        write(root, ".git/worktrees/wt/gitdir", &format!("{}/wt/.git\n", root.display()));
        write(root, "wt/.git", "gitdir: ../.git/worktrees/wt\n");
        write(root, "wt/AGENTS.md", "words");
        repository(&root.join(".git/modules/sub"));
        write(root, "sub/.git", "gitdir: ../.git/modules/sub\n");
        write(root, "sub/.github/workflows/ci.yml", "on: push");
    });
    assert_eq!(paths(&findings, &world), ["sub/.github/workflows", "wt/AGENTS.md"]);
    for path in ["wt/.git", "wt/AGENTS.md", "sub/.git", "sub/.github/workflows/ci.yml"] {
        assert!(world.exists(path), "{path}");
    }
}

#[test]
fn links_do_not_hide_control_files() {
    type Act = fn(&Path);
    let acts: [(&str, Act); 4] = [
        (".cargo/config.toml", |root| {
            write(root, "x/config.toml", "planted");
            symlink("x", root.join(".cargo")).unwrap();
        }),
        (".github/workflows/ci.yml", |root| {
            write(root, "x/workflows/ci.yml", "planted");
            symlink("x", root.join(".github")).unwrap();
        }),
        ("src/.mcp.json", |root| {
            fs::create_dir(root.join("vendor")).unwrap();
            fs::rename(root.join("src"), root.join("vendor/src")).unwrap();
            symlink("vendor/src", root.join("src")).unwrap();
            write(root, "vendor/src/.mcp.json", "planted");
        }),
        ("lib/AGENTS.md", |root| {
            write(root, ".git/refs/AGENTS.md", "planted");
            symlink(root.join(".git/refs"), root.join("lib")).unwrap();
        }),
    ];
    for (path, act) in acts {
        let world = ProtectedWorkspace::new();
        let findings = world.after(act);
        assert!(!world.exists(path), "{path}: {findings:?}");
        assert_eq!(handled(&findings), 1, "{path}: {findings:?}");
        assert_eq!(world.after(|_| {}), [], "{path}");
    }
}

#[test]
fn targets_of_existing_links_are_protected() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, "docs/rules.txt", "the user's words");
        symlink("docs/rules.txt", root.join("CLAUDE.md")).unwrap();
        fs::create_dir(root.join("shared")).unwrap();
        symlink("shared", root.join(".github")).unwrap();
    });
    let survey = world.protection.survey();
    assert!(world.names(&survey.read_only).contains(&"docs/rules.txt".to_owned()));
    drop(survey);
    let findings = world.after(|root| {
        write(root, "docs/rules.txt", "obey me");
        write(root, "shared/workflows/ci.yml", "planted");
        write(root, "shared/README.md", "ordinary");
    });
    assert_eq!(paths(&findings, &world), ["docs/rules.txt", "shared/workflows"]);
    assert_eq!(world.read("docs/rules.txt"), "the user's words");
    assert!(!world.exists("shared/workflows") && world.exists("shared/README.md"));
}

/// A path longer than the kernel accepts in one call.
#[test]
fn very_deep_folders_are_scanned() {
    let world = ProtectedWorkspace::new();
    let name = "d".repeat(200);
    let findings = world.after(|root| {
        let mut folder = Root::open(root).unwrap().folder;
        for _ in 0..30 {
            folder = place::make_folder(&folder, Path::new(&name), 0o755).unwrap();
        }
        place::replace_file(&folder, Path::new(".mcp.json"), b"planted", 0o644).unwrap();
    });
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(matches!(findings[0].action, ProtectAction::MovedAside(_)), "{findings:?}");
}

#[test]
fn steps_of_a_rebase_that_run_commands_are_removed() {
    let todo = ".git/rebase-merge/git-rebase-todo";
    let world = ProtectedWorkspace::with(|root| write(root, todo, "pick 1 a\npick 2 b\n"));
    let findings =
        world.after(|root| write(root, todo, "pick 1 a\nexec ./evil\n x ./evil\npick 2 b\n"));
    assert_eq!(world.read(todo), "pick 1 a\npick 2 b\n", "{findings:?}");
    assert_eq!(findings.len(), 1, "{findings:?}");
    // Steps are done one after another, and then the folder is removed.
    assert_eq!(world.after(|root| write(root, todo, "pick 2 b\n")), []);
    assert_eq!(world.after(|root| fs::remove_dir_all(root.join(".git/rebase-merge")).unwrap()), []);
}

#[test]
fn settings_of_a_mercurial_clone_stay_if_they_only_name_other_repositories() {
    let world = ProtectedWorkspace::new();
    let findings = world
        .after(|root| write(root, "h/.hg/hgrc", "# example\n[paths]\ndefault = /srv/a\n[ui]\n"));
    assert_eq!(findings, []);
    for text in [
        "[hooks]\nupdate = ./evil\n",
        "[paths]\ndefault = ssh://-oProxyCommand=evil/\n",
        "[paths]\ndefault = x\n[extensions]\ne = ./evil.py\n",
        "%include ../x\n",
        "[paths]\ndefault = x\n  [hooks]\n",
    ] {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| write(root, "h/.hg/hgrc", text));
        assert!(!world.exists("h/.hg/hgrc"), "{text} {findings:?}");
    }
}

#[test]
fn protected_folder_that_is_a_repository_is_moved_aside() {
    for name in [".vscode", ".claude"] {
        let world = ProtectedWorkspace::with(|root| {
            fs::remove_dir_all(root.join(".vscode")).unwrap();
        });
        let findings = world.after(|root| {
            repository(&root.join(name));
            write(root, &format!("{name}/tasks.json"), "planted");
        });
        assert!(!world.exists(name), "{findings:?}");
    }
}

#[test]
fn names_count_in_the_folders_above_the_target_of_a_link() {
    for path in ["vendor/CLAUDE.md", "vendor/.cargo/config.toml", "vendor/a/.envrc"] {
        let world = ProtectedWorkspace::with(|root| {
            write(root, "vendor/a/b/x.c", "");
            symlink("vendor/a/b", root.join("b")).unwrap();
        });
        let findings = world.after(|root| write(root, path, "planted"));
        assert!(!world.exists(path), "{findings:?}");
    }
}

#[test]
fn objects_of_a_bare_repository_in_the_workspace_are_scanned() {
    let world = ProtectedWorkspace::with(|root| write(root, "src/objects/deep/main.c", ""));
    let findings = world.after(|root| {
        write(root, "src/HEAD", "ref: refs/heads/main\n");
        fs::create_dir(root.join("src/refs")).unwrap();
        write(root, "src/objects/deep/CLAUDE.md", "planted");
    });
    assert!(!world.exists("src/objects/deep/CLAUDE.md"), "{findings:?}");
}

#[test]
fn link_to_a_git_folder_is_scanned_through() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        symlink(".git", root.join("g")).unwrap();
        write(root, ".git/.mcp.json", "planted");
        write(root, ".git/sub/AGENTS.md", "planted");
    });
    assert!(!world.exists("g/.mcp.json") && !world.exists("g/sub/AGENTS.md"), "{findings:?}");
}

#[test]
fn common_folder_is_guarded_also_without_a_head() {
    // The folder is none of git's, and its settings come later.
    let world = ProtectedWorkspace::new();
    world.after(|root| {
        fs::create_dir(root.join("store")).unwrap();
        write(root, "a/b/inner/.git/commondir", "../../../../store\n");
    });
    assert!(!world.exists("a/b/inner/.git/commondir"));
    // Also a repository must not replace the settings of another one.
    let world = ProtectedWorkspace::new();
    world.after(|root| {
        repository(&root.join("store"));
        write(root, "a/b/inner/.git/commondir", "../../../../store\n");
    });
    assert!(!world.exists("a/b/inner/.git/commondir"));
    // The user may have done so.
    let world = ProtectedWorkspace::with(|root| {
        repository(&root.join("store"));
        repository(&root.join("new/.git"));
        write(root, "new/.git/commondir", "../../store\n");
    });
    let findings = world.after(|root| {
        fs::remove_file(root.join("store/HEAD")).unwrap();
        write(root, "store/config", "[core]\n\tfsmonitor = ./evil\n");
        write(root, "store/hooks/post-checkout", "#!/bin/sh\n./evil\n");
    });
    assert!(!world.read("store/config").contains("fsmonitor"), "{findings:?}");
    assert!(!world.exists("store/hooks/post-checkout"), "{findings:?}");
}

/// A repository that the user's tree contains, with settings that run a program.
fn hostile_fixture(root: &Path) {
    repository(&root.join("fixtures/e.git"));
    write(root, "fixtures/e.git/config", "[core]\n\tfsmonitor = ./evil\n");
}

#[test]
fn pointer_to_an_existing_hostile_repository_is_moved_aside() {
    for (path, text) in [
        ("src/.git", "gitdir: ../fixtures/e.git\n"),
        (".git/commondir", "../fixtures/e.git\n"),
        ("a/b/inner/.git/commondir", "../../../../fixtures/e.git\n"),
    ] {
        let world = ProtectedWorkspace::with(hostile_fixture);
        let findings = world.after(|root| write(root, path, text));
        assert!(!world.exists(path), "{path} {findings:?}");
        assert_eq!(findings.len(), 1, "{findings:?}");
    }
    // A repository without such settings may be used.
    let world = ProtectedWorkspace::with(|root| repository(&root.join("fixtures/plain.git")));
    let pointer = "gitdir: ../fixtures/plain.git\n";
    assert_eq!(world.after(|root| write(root, "src/.git", pointer)), []);
    assert!(world.exists("src/.git"));
}

#[test]
fn repository_that_becomes_active_by_a_move_is_cleaned() {
    let world = ProtectedWorkspace::with(hostile_fixture);
    let findings = world.after(|root| {
        fs::rename(root.join("fixtures/e.git"), root.join("src/.git")).unwrap();
    });
    assert!(!world.read("src/.git/config").contains("fsmonitor"), "{findings:?}");
}

#[test]
fn folder_that_gives_names_their_meaning_is_moved_aside_elsewhere() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, "examples/.cargo/config.toml", "[build]\n");
        write(root, "examples/app/CLAUDE.md", "words");
    });
    let findings = world.after(|root| {
        fs::rename(root.join("examples/.cargo"), root.join(".cargo")).unwrap();
    });
    assert!(!world.exists(".cargo/config.toml"), "{findings:?}");
    // The folder above may be renamed with all that it contains.
    assert_eq!(
        world.after(|root| fs::rename(root.join("examples/app"), root.join("app")).unwrap()),
        []
    );
    assert!(world.exists("app/CLAUDE.md"));
}

#[test]
fn protected_files_return_to_a_folder_that_took_the_place_of_theirs() {
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".cargo/config.toml", "[registries]\n");
        write(root, "sub/.npmrc", "registry=https://example.org\n");
    });
    let findings = world.after(|root| {
        fs::rename(root.join(".cargo"), root.join("x")).unwrap();
        fs::rename(root.join("sub"), root.join("y")).unwrap();
        fs::create_dir(root.join("sub")).unwrap();
    });
    assert_eq!(paths(&findings, &world), [".cargo/config.toml", "sub/.npmrc"]);
    assert_eq!(world.read(".cargo/config.toml"), "[registries]\n");
    assert!(world.exists("sub/.npmrc"));
    // A folder that was removed stays removed.
    assert_eq!(world.after(|root| fs::remove_dir_all(root.join("sub")).unwrap()), []);
    assert!(!world.exists("sub"));
}

#[test]
fn change_through_a_mapping_is_found_although_no_time_changes() {
    let world = ProtectedWorkspace::new();
    world.after(|root| init(root, "clone"));
    let path = world.root.join("clone/.git/config");
    // Only bytes that are older than the clock's resolution are stored.
    std::thread::sleep(Duration::from_millis(100));
    // The check stores the bytes.
    assert_eq!(world.after(|_| {}), []);
    let times = fs::metadata(&path).unwrap();
    let findings = world.after(|root| {
        let text = fs::read_to_string(root.join("clone/.git/config")).unwrap();
        let evil = "[core]\n\tfsmonitor=e\n";
        assert!(evil.len() <= text.len());
        let changed = format!("{evil}{}", "\n".repeat(text.len() - evil.len()));
        write(root, "clone/.git/config", &changed);
        // As if the kernel had not updated the times.
        world.protection.lock().reader.pretend_unchanged(&path, &times);
    });
    assert!(!world.read("clone/.git/config").contains("fsmonitor"), "{findings:?}");
}

#[test]
fn links_in_a_git_folder_and_foreign_merge_strategies_are_moved_aside() {
    let world = ProtectedWorkspace::new();
    world.after(|root| {
        write(root, "src/rm/git-rebase-todo", "exec ./evil\n");
        symlink("../src/rm", root.join(".git/rebase-merge")).unwrap();
        write(root, ".git/sequencer/opts", "[options]\n\tstrategy = a/x\n");
    });
    assert!(!world.exists(".git/rebase-merge") && !world.exists(".git/sequencer/opts"));
    let world = ProtectedWorkspace::with(|root| {
        write(root, ".git/rebase-merge/done", "");
        write(root, ".git/sequencer/todo", "");
    });
    let findings = world.after(|root| {
        write(root, ".git/rebase-merge/strategy", "ort\n");
        write(root, ".git/sequencer/opts", "[options]\n\tsignoff = true\n\tstrategy = ort\n");
    });
    assert_eq!(findings, []);
    assert!(world.exists(".git/rebase-merge/strategy") && world.exists(".git/sequencer/opts"));
}

#[test]
fn what_stays_is_reported_beside_many_decoys() {
    let world = ProtectedWorkspace::new();
    let findings = world.after(|root| {
        for number in 0..300 {
            write(root, &format!("a{number}/.envrc"), "decoy");
        }
        init(root, "zz");
        write(root, "zz/.envrc", "planted");
    });
    assert!(findings[0].path.ends_with("zz/.envrc"), "{:?}", findings[0]);
    assert_eq!(findings[0].action, ProtectAction::Left);
}

#[test]
fn carriage_returns_do_not_hide_settings_of_mercurial() {
    let world = ProtectedWorkspace::new();
    world.after(|root| {
        write(root, "h/.hg/hgrc", "[paths]\ndefault = x\r[extensions]\rx = ./e.py\n");
    });
    assert!(!world.exists("h/.hg/hgrc"));
}

/// Runs `act` without capabilities, so that permissions apply to the super-user as well.
fn without_capabilities<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let ordinary = scope.spawn(|| {
            crate::kernel::drop_capabilities().unwrap();
            act()
        });
        ordinary.join().unwrap()
    })
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn folder_that_a_command_made_unreadable_hides_nothing() {
    without_capabilities(|| {
        // Folders that can be entered and not listed, neither, and listed and not entered.
        for (modes, closed) in
            [(0o311, &["pk", ""][..]), (0o000, &["pk/in/deep", "pk/in", "pk"]), (0o600, &["pk"])]
        {
            let world = ProtectedWorkspace::new();
            let findings = world.after(|root| {
                repository(&root.join("pk/in/deep/.git"));
                write(root, "pk/in/deep/.git/config", "[core]\n\tfsmonitor = ./evil\n");
                write(root, "pk/.mcp.json", "{}");
                for folder in closed {
                    set_mode(&root.join(folder), modes);
                }
            });
            assert!(!world.read("pk/in/deep/.git/config").contains("evil"), "{findings:?}");
            assert!(!world.exists("pk/.mcp.json"), "{modes:o}: {findings:?}");
            let paths = paths(&findings, &world);
            assert!(paths.contains(&"pk/.mcp.json".to_owned()), "{modes:o}: {paths:?}");
        }
    });
}

#[test]
fn repository_in_an_unreadable_temporary_folder_is_moved_back() {
    without_capabilities(|| {
        for closed in [&["t1/x"][..], &["t1"], &["t1/x", "t1"]] {
            let world = ProtectedWorkspace::new();
            let temporary = world.root.with_file_name("tmp");
            world.protection.also_scan(temporary.clone());
            fs::create_dir_all(temporary.join("t1")).unwrap();
            let findings = world.after(|root| {
                fs::rename(root.join(".git"), temporary.join("t1/x")).unwrap();
                for folder in closed {
                    set_mode(&temporary.join(folder), 0o000);
                }
            });
            assert_eq!(world.read(".git/refs/heads/main"), "0000\n", "{closed:?} {findings:?}");
        }
    });
}

#[test]
fn read_only_folder_does_not_keep_planted_files() {
    without_capabilities(|| {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| {
            write(root, "ro/.mcp.json", "{}");
            write(root, "ro/.vscode/tasks.json", "{}");
            write(root, ".git/hooks/pre-commit", "evil");
            fs::remove_file(root.join("AGENTS.md")).unwrap();
            for folder in ["ro/.vscode", "ro", ".git/hooks", ".git", ""] {
                set_mode(&root.join(folder), 0o500);
            }
        });
        for planted in ["ro/.mcp.json", "ro/.vscode", ".git/hooks/pre-commit"] {
            assert!(!world.exists(planted), "{planted}: {findings:?}");
        }
        assert_eq!(world.read("AGENTS.md"), "the user's words\n");
        // Nothing else changes.
        let mode = fs::metadata(world.root.join("ro")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o500);
        set_mode(&world.root, 0o700);
        set_mode(&world.root.join("ro"), 0o700);
    });
}

#[test]
fn folder_that_was_unreadable_before_keeps_its_permissions() {
    without_capabilities(|| {
        let world = ProtectedWorkspace::with(|root| {
            write(root, "closed/app/.env", "KEY=1");
            set_mode(&root.join("closed"), 0o300);
        });
        let mode = |world: &ProtectedWorkspace| {
            fs::metadata(world.root.join("closed")).unwrap().permissions().mode() & 0o777
        };
        assert_eq!(world.after(|_| {}), []);
        assert_eq!(mode(&world), 0o300);
        // It may contain a secret.
        assert_eq!(world.names(&world.protection.survey().hidden), ["closed"]);
        // A command that changed it in between is treated like one that created it.
        let findings = world.after(|root| {
            write(root, "closed/.mcp.json", "{}");
            set_mode(&root.join("closed"), 0o700);
            set_mode(&root.join("closed"), 0o300);
        });
        assert!(!world.exists("closed/.mcp.json"), "{findings:?}");
        set_mode(&world.root.join("closed"), 0o700);
    });
}

#[test]
fn pointers_are_read_exactly_as_git_reads_them() {
    let evil = "[core]\n\tfsmonitor = ./evil\n";
    // Read loosely, each text leads to a repository without dangerous settings.
    for (file, text, dangerous) in [
        (".git/commondir", "gitdir:ok\n", ".git/gitdir:ok"),
        (".git/commondir", "evil\0/../ok\n", ".git/evil"),
        ("src/.git", "gitdir:  ../ok.git\n", "src/ ../ok.git"),
    ] {
        let world = ProtectedWorkspace::new();
        let findings = world.after(|root| {
            repository(&root.join(".git/ok"));
            repository(&root.join("ok.git"));
            for folder in ["objects", "refs"] {
                fs::create_dir_all(root.join(dangerous).join(folder)).unwrap();
            }
            write(root, &format!("{dangerous}/config"), evil);
            write(root, file, text);
        });
        assert!(!world.exists(file), "{file} {text:?}: {findings:?}");
    }
}
