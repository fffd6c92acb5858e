//! Validity of prepared rules.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;
use crate::plan::Backend;

/// A home folder with a hidden file, and a workspace.
struct Home {
    folder: TempDir,
    plan: Plan,
}

impl Home {
    fn new() -> Home {
        let folder = tempfile::tempdir().unwrap();
        let at = |below: &str| folder.path().canonicalize().unwrap().join(below);
        for name in ["work", "state/tmp", "project", "notes"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for (name, text) in [("secret", "hidden"), ("other", "shown"), ("work/file", "x")] {
            fs::write(at(name), text).unwrap();
        }
        let plan = Plan {
            tier: SandboxTier::Reduced,
            backend: Backend::Landlock,
            writable: vec![at("state/tmp"), at("work")],
            visible: vec![at("project")],
            hidden: vec![at("secret"), at("state")],
            network: false,
            ..Plan::open()
        };
        Home { folder, plan }
    }

    fn at(&self, below: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(below)
    }

    /// Rules for this folder only, independent of other tests.
    fn ahead(&self) -> Made {
        let seen = Some(RuleSources::begin(SIBLINGS_MAX));
        make(RuleSubject::of(&self.plan), seen, &self.at("")).unwrap()
    }

    /// Rules made once the folder has been unchanged for long enough.
    fn made(&self) -> Made {
        let begin = Instant::now();
        loop {
            let made = self.ahead();
            if made.is_valid_for(&self.plan) {
                return made;
            }
            assert!(begin.elapsed() < Duration::from_mins(1), "no moment without a change");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Every change that makes rules invalid.
#[test]
fn change_of_an_inspected_folder_invalidates_prepared_rules() {
    type Change = fn(&Home);
    let changes: [(&str, Change); 12] = [
        ("a file came", |home| fs::write(home.at("new"), "x").unwrap()),
        ("a folder came", |home| fs::create_dir(home.at("new")).unwrap()),
        ("a file went", |home| fs::remove_file(home.at("other")).unwrap()),
        ("a file took the place of a hidden one", |home| {
            fs::rename(home.at("other"), home.at("secret")).unwrap();
        }),
        ("a hidden file took the place of another", |home| {
            fs::rename(home.at("secret"), home.at("other")).unwrap();
        }),
        ("the two changed places", |home| {
            for (from, to) in [("secret", "x"), ("other", "secret"), ("x", "other")] {
                fs::rename(home.at(from), home.at(to)).unwrap();
            }
        }),
        ("a second name for a hidden file", |home| {
            fs::hard_link(home.at("secret"), home.at("twin")).unwrap();
        }),
        ("a folder became a link", |home| {
            fs::remove_dir(home.at("notes")).unwrap();
            symlink(home.at("state"), home.at("notes")).unwrap();
        }),
        ("a folder may not be listed any more", |home| {
            fs::set_permissions(home.folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        }),
        ("the workspace is another folder", |home| {
            fs::rename(home.at("work"), home.at("project/work")).unwrap();
            fs::create_dir(home.at("work")).unwrap();
        }),
        ("what stays visible has gone", |home| fs::remove_dir(home.at("project")).unwrap()),
        ("what is written has become a link", |home| {
            fs::remove_dir(home.at("state/tmp")).unwrap();
            symlink(home.at("notes"), home.at("state/tmp")).unwrap();
        }),
    ];
    for (name, change) in changes {
        let home = Home::new();
        let made = home.made();
        change(&home);
        assert!(!made.is_valid_for(&home.plan), "{name}");
    }
}

#[test]
fn unrelated_changes_keep_prepared_rules() {
    let home = Home::new();
    let made = home.made();
    fs::write(home.at("work/file"), "y").unwrap();
    fs::write(home.at("work/new"), "y").unwrap();
    fs::write(home.at("state/tmp/new"), "y").unwrap();
    fs::write(home.at("notes/new"), "y").unwrap();
    fs::write(home.at("secret"), "another").unwrap();
    fs::write(home.at("other"), "another").unwrap();
    assert!(made.is_valid_for(&home.plan));
    assert_eq!(made.exposed, 0);
}

#[test]
fn different_plan_needs_different_rules() {
    let home = Home::new();
    let made = home.made();
    let plan = |change: &dyn Fn(&mut Plan)| {
        let mut plan = home.plan.clone();
        change(&mut plan);
        plan
    };
    let others = [
        ("more is hidden", plan(&|plan| plan.hidden.push(home.at("notes")))),
        ("less is hidden", plan(&|plan| drop(plan.hidden.remove(0)))),
        ("something inside is a secret", plan(&|plan| plan.hidden.push(home.at("work/.env")))),
        ("more is writable", plan(&|plan| plan.writable.push(home.at("notes")))),
        ("less is writable", plan(&|plan| drop(plan.writable.pop()))),
        ("more is visible", plan(&|plan| plan.visible.push(home.at("state")))),
        ("the network", plan(&|plan| plan.network = true)),
        ("the tier", plan(&|plan| plan.tier = SandboxTier::Full)),
    ];
    for (name, other) in others {
        assert_ne!(made.subject, RuleSubject::of(&other), "{name}");
        assert!(!made.is_valid_for(&other), "{name}");
    }
    // Paths that only mounts and the later scan protect do not affect the rules.
    let same = plan(&|plan| {
        plan.read_only.push(home.at("work/.git/hooks"));
        plan.pinned.push(home.at("work/.git"));
        plan.processes_max = 7;
    });
    assert_eq!(made.subject, RuleSubject::of(&same));
}

#[test]
fn no_rule_is_made_for_a_folder_behind_a_link() {
    let mut home = Home::new();
    fs::create_dir_all(home.at("above/work")).unwrap();
    fs::create_dir_all(home.at("notes/work")).unwrap();
    for is_writable in [true, false] {
        let plan = &mut home.plan;
        let list = if is_writable { &mut plan.writable } else { &mut plan.visible };
        list.push(home.folder.path().canonicalize().unwrap().join("above/work"));
        let rules = || make(RuleSubject::of(&home.plan), None, &home.at(""));
        assert!(rules().is_ok());
        // Another command puts a link there after the place of the root was examined.
        fs::rename(home.at("above"), home.at("moved")).unwrap();
        symlink(home.at("notes"), home.at("above")).unwrap();
        assert!(rules().is_err());
        fs::remove_file(home.at("above")).unwrap();
        assert!(rules().is_ok(), "a missing folder needs no rule");
        fs::rename(home.at("moved"), home.at("above")).unwrap();
        home.plan.writable.retain(|root| !root.ends_with("above/work"));
    }
}

#[test]
fn recently_changed_folder_is_not_trusted() {
    let home = Home::new();
    let mut seen = RuleSources::begin(SIBLINGS_MAX);
    fs::write(home.at("new"), "x").unwrap();
    seen.folder(&home.at(""));
    seen.add_listing(rule_sources::list(&home.at(""), SIBLINGS_MAX).unwrap().as_deref());
    assert!(!seen.is_unchanged());
}

#[test]
fn only_prepared_rules_are_reused() {
    let home = Home::new();
    assert!(!build(&home.plan).unwrap().is_valid_for(&home.plan));
}

/// A change during preparation is detected, also if it is reverted.
#[test]
fn concurrent_change_is_noticed() {
    let home = Home::new();
    home.made();
    let (other, moved) = (home.at("other"), home.at("moved"));
    let there_and_back = || {
        fs::rename(&other, &moved).unwrap();
        fs::rename(&moved, &other).unwrap();
    };
    let list = |seen: &mut RuleSources| {
        seen.add_listing(rule_sources::list(&home.at(""), SIBLINGS_MAX).unwrap().as_deref());
    };
    let mut before = RuleSources::begin(SIBLINGS_MAX);
    before.folder(&home.at(""));
    there_and_back();
    list(&mut before);
    assert!(!before.is_unchanged());
    home.made();
    let mut after = RuleSources::begin(SIBLINGS_MAX);
    after.folder(&home.at(""));
    list(&mut after);
    assert!(after.is_unchanged());
    there_and_back();
    assert!(!after.is_unchanged());
}

#[test]
fn large_folder_is_compared_up_to_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["a", "b", "c"] {
        fs::write(at(name), "").unwrap();
    }
    let list = |max| rule_sources::list(folder.path(), max).unwrap().unwrap().len();
    assert_eq!((list(1), list(2), list(3), list(9)), (2, 3, 3, 3));
    assert!(rule_sources::list(Path::new("/no/such/folder"), 3).unwrap().is_none());
}
