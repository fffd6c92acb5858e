//! Validity of grants: duration, place, and failed verification.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::failure::{ErrorCode, Exit};
use crate::grants::commands::GrantCommands;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
const T0: u64 = 1_800_000_000_000;

fn at(wall_ms: u64, uptime_ms: u64) -> GrantTime {
    GrantTime { wall_ms, uptime: Duration::from_millis(uptime_ms) }
}

fn grant(target: &str, scope: Scope) -> Grant {
    Grant { operation: "execute".to_owned(), target: target.to_owned(), scope, agent: None }
}

fn settings() -> GrantSettings {
    GrantSettings { widest: Scope::Global, ttl_ms: 7 * DAY, tier: SandboxTier::Reduced }
}

struct GrantFolders {
    dir: tempfile::TempDir,
}

impl GrantFolders {
    fn new() -> GrantFolders {
        let place = GrantFolders { dir: tempfile::tempdir().unwrap() };
        for project in ["a", "b"] {
            fs::create_dir(place.path(project)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> SignedStore {
        SignedStore::new(self.path("state"))
    }

    fn file(&self) -> PathBuf {
        self.store().path(FILE)
    }

    /// A process that works in `project`.
    fn process(&self, project: &str) -> Grants {
        self.process_with(project, settings())
    }

    fn process_with(&self, project: &str, settings: GrantSettings) -> Grants {
        let project = Identity::of(&self.path(project)).unwrap();
        Grants::new(self.store(), Some(project), settings)
    }

    fn desk(&self, now_ms: u64, json: bool) -> GrantCommands {
        let project = Identity::of(&self.path("a")).ok();
        GrantCommands { store: self.store(), project, settings: settings(), now_ms, json }
    }
}

fn keep(grants: &Grants, grant: Grant, now: GrantTime) -> Result<(), String> {
    grants.shared.keep(grant, now).map_err(|failure| in_one_line(&failure))
}

/// Targets of valid grants.
fn counts(grants: &Grants, now: GrantTime) -> Vec<String> {
    grants.active_grants(now).grants.iter().map(|grant| grant.target.clone()).collect()
}

#[test]
fn grant_applies_in_its_scope_only() {
    let place = GrantFolders::new();
    let (a, b) = (place.process("a"), place.process("b"));
    assert_eq!(a.active_grants(at(T0, 0)), ActiveGrants::default());
    assert!(!place.path("state").exists(), "looking makes nothing");
    keep(&a, grant("here", Scope::Project), at(T0, 0)).unwrap();
    keep(&a, grant("everywhere", Scope::Global), at(T0, 0)).unwrap();
    assert_eq!(counts(&a, at(T0, 0)), ["here", "everywhere"]);
    assert_eq!(counts(&b, at(T0, 0)), ["everywhere"]);
    // Another folder at the same path is another project.
    fs::rename(place.path("a"), place.path("old")).unwrap();
    fs::create_dir(place.path("a")).unwrap();
    assert_eq!(counts(&place.process("a"), at(T0, 0)), ["everywhere"]);
    let nowhere = Grants::new(place.store(), None, settings());
    assert_eq!(counts(&nowhere, at(T0, 0)), ["everywhere"]);
    assert!(keep(&nowhere, grant("x", Scope::Project), at(T0, 0)).is_err());
}

#[test]
fn grant_of_a_folder_does_not_apply_to_a_later_one_with_its_inode_number() {
    let place = GrantFolders::new();
    keep(&place.process("a"), grant("x", Scope::Project), at(T0, 0)).unwrap();
    let here = Identity::of(&place.path("a")).unwrap();
    let process = |birth_ns: Option<u64>| {
        let project = Identity { birth_ns, ..here.clone() };
        Grants::new(place.store(), Some(project), settings())
    };
    assert_eq!(counts(&process(here.birth_ns), at(T0, 0)), ["x"]);
    let later = here.birth_ns.map_or(Some(1), |birth| Some(birth + 1));
    if here.birth_ns.is_some() {
        assert_eq!(counts(&process(later), at(T0, 0)), [""; 0]);
    }
    // A grant of an earlier version, without the creation time of the folder.
    keep(&process(None), grant("old", Scope::Project), at(T0, 0)).unwrap();
    assert_eq!(counts(&process(Some(T0 * 1_000_000)), at(T0, 0)), ["old"]);
    assert_eq!(counts(&process(Some((T0 + 1) * 1_000_000)), at(T0, 0)), [""; 0]);
}

#[test]
fn repeated_grant_restarts_its_lifetime() {
    let place = GrantFolders::new();
    let a = place.process("a");
    keep(&a, grant("x", Scope::Project), at(T0, 0)).unwrap();
    keep(&a, grant("x", Scope::Project), at(T0 + 6 * DAY, 6 * DAY)).unwrap();
    assert_eq!(counts(&a, at(T0 + 8 * DAY, 8 * DAY)), ["x"]);
}

#[test]
fn expiry_uses_the_clock_that_is_ahead() {
    let fresh = || {
        let place = GrantFolders::new();
        let a = place.process("a");
        keep(&a, grant("x", Scope::Project), at(T0, 0)).unwrap();
        assert_eq!(counts(&a, at(T0 + 7 * DAY - 1, 0)), ["x"]);
        (place, a)
    };
    for (wall, uptime, why) in [
        (T0 + 7 * DAY, 0, "the wall clock says so"),
        (T0, 7 * DAY, "the wall clock stands still"),
        (T0 - DAY, 7 * DAY, "and it went back"),
    ] {
        let (_place, a) = fresh();
        assert!(counts(&a, at(wall, uptime)).is_empty(), "{why}");
    }
}

#[test]
fn clock_set_back_revives_nothing() {
    let place = GrantFolders::new();
    keep(&place.process("a"), grant("x", Scope::Project), at(T0, 0)).unwrap();
    let later = place.process("a");
    assert!(counts(&later, at(T0 + 8 * DAY, 0)).is_empty());
    for wall in [T0 + DAY, T0 + 8 * DAY, T0, T0 - DAY] {
        assert!(counts(&later, at(wall, 1)).is_empty());
        assert!(counts(&place.process("a"), at(wall, 0)).is_empty(), "nor in another process");
    }
}

#[test]
fn clock_before_the_last_change_is_an_alarm() {
    let place = GrantFolders::new();
    keep(&place.process("a"), grant("x", Scope::Project), at(T0, 0)).unwrap();
    let a = place.process("a");
    let standing = a.active_grants(at(T0 - DAY, 0));
    assert!(standing.grants.is_empty());
    assert!(standing.alarm.unwrap().contains("the clock is behind"));
    assert_eq!(a.active_grants(at(T0 - DAY, 1)).alarm, None, "said once");
    assert!(keep(&a, grant("y", Scope::Project), at(T0 - DAY, 2)).is_err());
    assert_eq!(counts(&place.process("a"), at(T0 - 60_000, 0)), ["x"], "clocks are not exact");
    place.desk(T0 - DAY, false).clear(&mut Vec::new()).unwrap();
    let a = place.process("a");
    keep(&a, grant("y", Scope::Project), at(T0 - DAY, 0)).unwrap();
    assert_eq!(counts(&a, at(T0 - DAY, 0)), ["y"]);
}

#[test]
fn stricter_settings_apply_to_stored_grants() {
    let place = GrantFolders::new();
    let a = place.process("a");
    keep(&a, grant("here", Scope::Project), at(T0, 0)).unwrap();
    keep(&a, grant("everywhere", Scope::Global), at(T0, 0)).unwrap();
    let short = place.process_with("b", GrantSettings { ttl_ms: HOUR, ..settings() });
    assert_eq!(counts(&short, at(T0, 0)), ["everywhere"]);
    let project = place.process_with("a", GrantSettings { widest: Scope::Project, ..settings() });
    assert_eq!(counts(&project, at(T0, 0)), ["here"]);
    for off in [
        GrantSettings { widest: Scope::Session, ..settings() },
        GrantSettings { ttl_ms: 0, ..settings() },
    ] {
        let off = place.process_with("a", off);
        assert_eq!(off.widest_scope(), Scope::Session);
        assert_eq!(off.active_grants(at(T0, 0)), ActiveGrants::default());
    }
    assert!(counts(&short, at(T0 + HOUR, 0)).is_empty());
}

#[test]
fn external_change_is_ignored_and_reported_once() {
    type Harm = fn(&Path);
    let table: [(&str, Harm); 5] = [
        ("more of it", |file| {
            let text = fs::read_to_string(file).unwrap().replace("\"x\"", "\"rm -rf\"");
            fs::write(file, text).unwrap();
        }),
        ("removed", |file| fs::remove_file(file).unwrap()),
        ("readable", |file| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }),
        ("replaced", |file| {
            fs::write(file.with_file_name("mine"), "{}").unwrap();
            fs::rename(file.with_file_name("mine"), file).unwrap();
        }),
        ("another name", |file| fs::hard_link(file, file.with_file_name("other")).unwrap()),
    ];
    for (name, harm) in table {
        let place = GrantFolders::new();
        let a = place.process("a");
        keep(&a, grant("x", Scope::Project), at(T0, 0)).unwrap();
        assert_eq!(counts(&a, at(T0, 0)), ["x"]);
        harm(&place.file());
        let kept = fs::read(place.file()).ok();
        let standing = a.active_grants(at(T0, 1));
        assert!(standing.grants.is_empty(), "{name}");
        let alarm = standing.alarm.expect(name);
        assert!(alarm.starts_with("CFG010: refusing to trust /"), "{name}: {alarm}");
        assert_eq!(a.active_grants(at(T0, 2)), ActiveGrants::default(), "{name}: reported once");
        assert!(keep(&a, grant("y", Scope::Project), at(T0, 3)).is_err(), "{name}");
        assert_eq!(fs::read(place.file()).ok(), kept, "{name}: it is left as it is");
    }
}

#[test]
fn older_version_is_rejected() {
    let place = GrantFolders::new();
    let (a, desk) = (place.process("a"), place.desk(T0 + 1, true));
    keep(&a, grant("x", Scope::Project), at(T0, 0)).unwrap();
    let old = fs::read(place.file()).unwrap();
    let id = a.shared.store.read(FILE).unwrap().text.unwrap();
    let id = GrantFile::parse(&id).unwrap().grants[0].id.clone();
    assert_eq!(counts(&a, at(T0, 0)), ["x"]);
    desk.revoke(&[id], &mut Vec::new()).unwrap();
    assert!(counts(&a, at(T0 + 2, 0)).is_empty(), "revoked in another process");
    fs::write(place.file(), old).unwrap();
    let standing = a.active_grants(at(T0 + 3, 0));
    assert!(standing.grants.is_empty());
    assert!(standing.alarm.unwrap().contains("an older version"));
    // Only the user ends that.
    desk.clear(&mut Vec::new()).unwrap();
    keep(&a, grant("y", Scope::Project), at(T0 + 4, 0)).unwrap();
    assert_eq!(counts(&a, at(T0 + 5, 0)), ["y"]);
}

#[test]
fn concurrent_processes_lose_no_grant() {
    let place = GrantFolders::new();
    std::thread::scope(|scope| {
        for nth in 0..8 {
            let (process, place) = (place.process("a"), &place);
            scope.spawn(move || {
                for more in 0..5 {
                    let target = format!("{nth}-{more}");
                    keep(&process, grant(&target, Scope::Project), at(T0, 0)).unwrap();
                    assert!(counts(&process, at(T0, 0)).contains(&target));
                    assert!(counts(&place.process("a"), at(T0, 0)).contains(&target));
                }
            });
        }
    });
    assert_eq!(counts(&place.process("a"), at(T0, 0)).len(), 40);
}

#[test]
fn sandbox_grant_does_not_apply_without_a_sandbox() {
    let place = GrantFolders::new();
    let a = place.process("a");
    keep(&a, grant("make", Scope::Project), at(T0, 0)).unwrap();
    let write = Grant { operation: "write".to_owned(), ..grant("/src", Scope::Project) };
    keep(&a, write, at(T0, 0)).unwrap();
    for (tier, expected) in [
        ("full", &["make", "/src"][..]),
        ("reduced", &["make", "/src"]),
        ("none", &["/src"]),
        ("of a later version", &["/src"]),
    ] {
        let there = GrantSettings { tier: SandboxTier::from(tier.to_owned()), ..settings() };
        assert_eq!(counts(&place.process_with("a", there.clone()), at(T0, 0)), expected, "{tier}");
        // The list says the same of each grant.
        let list = GrantCommands { settings: there, ..place.desk(T0, true) };
        let mut out = Vec::new();
        list.list(false, &mut out).unwrap();
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
        let rows = rows.iter().filter(|row| row["counts"] == true);
        let listed: Vec<&str> = rows.map(|row| row["target"].as_str().unwrap()).collect();
        assert_eq!(listed, expected, "{tier}");
    }
}

#[test]
fn sizes_are_bounded() {
    let place = GrantFolders::new();
    let a = place.process("a");
    let long = "x".repeat(20 << 10);
    assert!(keep(&a, grant(&long, Scope::Project), at(T0, 0)).is_err());
    let mut stored = GrantFile::default();
    for nth in 0..1000 {
        let kept = StoredGrant::new(grant(&nth.to_string(), Scope::Global), None, T0, &settings());
        stored.add(kept).unwrap();
    }
    let more = StoredGrant::new(grant("more", Scope::Global), None, T0, &settings());
    assert_eq!(stored.add(more).unwrap_err().code, ErrorCode::GrantsUnreadable);
}

type GrantCommand<'a> = dyn Fn(&GrantCommands, &mut Vec<u8>) -> Result<Exit, Failure> + 'a;

#[test]
fn commands_list_and_revoke_grants() {
    let place = GrantFolders::new();
    let run = |command: &GrantCommand<'_>, json| {
        let mut out = Vec::new();
        let ended = command(&place.desk(T0 + HOUR, json), &mut out);
        (ended, String::from_utf8(out).unwrap())
    };
    let list = |all| move |desk: &GrantCommands, out: &mut Vec<u8>| desk.list(all, out);
    assert_eq!(run(&list(false), false).1, "no grants for this project\n");
    keep(&place.process("a"), grant("git status", Scope::Project), at(T0, 0)).unwrap();
    keep(&place.process("a"), grant("cargo \u{1b}[2J", Scope::Global), at(T0, 0)).unwrap();
    keep(&place.process("b"), grant("make", Scope::Project), at(T0, 0)).unwrap();
    let shown = run(&list(false), false).1;
    let lines: Vec<_> = shown.lines().map(|line| &line[11..]).collect();
    assert_eq!(
        lines,
        ["project   6d 23h  execute git status", "global    6d 23h  execute cargo \\u{1b}[2J"]
    );
    assert_eq!(run(&list(true), false).1.lines().count(), 3);
    let rows: serde_json::Value = serde_json::from_str(&run(&list(true), true).1).unwrap();
    let counting: Vec<_> = rows.as_array().unwrap().iter().map(|row| &row["counts"]).collect();
    assert_eq!(counting, [true, true, false]);
    let id = rows[0]["id"].as_str().unwrap().to_owned();
    let (ended, _) = run(&|desk, out| desk.revoke(&[id.clone(), "g0".to_owned()], out), false);
    assert_eq!(ended.unwrap_err().code, ErrorCode::GrantUnknown, "and none is ended");
    let (_, text) = run(&|desk, out| desk.revoke(std::slice::from_ref(&id), out), false);
    assert_eq!(text, format!("revoked {id} execute git status\n"));
    assert_eq!(run(&|desk, out| desk.clear(out), false).1.lines().count(), 2);
    assert_eq!(run(&list(true), false).1, "no grants\n");
    fs::write(place.file(), "rubbish").unwrap();
    let (ended, _) = run(&list(true), false);
    assert_eq!(ended.unwrap_err().code, ErrorCode::FileNotTrusted);
    let (_, text) = run(&|desk, out| desk.clear(out), false);
    assert!(text.contains("/authority/grants.bad-"), "{text}");
    assert_eq!(run(&list(true), false).1, "no grants\n");
}
