//! Random sequences of changes by posse and by the user, checkpoints and restores: after each
//! restore the tree equals a model, and nothing of the user's is lost.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::World;
use crate::plan::RestoreChoice;

/// Paths, some of which stand in the way of others.
const PATHS: [&str; 9] = ["a", "A", "a/b", "a/b/c", "d/e", "d/f", "d", "x y\"\n", "e"];

#[derive(Debug, Clone)]
enum WorldStep {
    /// Writes a file, after removing what stands in its way.
    Write(usize, String, bool),
    Link(usize, String),
    Remove(usize),
    Rename(usize, usize),
    /// Takes a checkpoint, as before the first effect of a run.
    Take,
    /// The run ends; what follows is done by the user.
    Finish,
    /// Restores one of the checkpoints so far.
    Restore(usize),
    /// Takes the last restore back.
    Undo,
}

fn step() -> impl Strategy<Value = WorldStep> {
    let path = || 0..PATHS.len();
    prop_oneof![
        4 => (path(), "[xyz]{0,3}", any::<bool>()).prop_map(|(at, text, exec)| WorldStep::Write(at, text, exec)),
        1 => (path(), "[ad]").prop_map(|(at, target)| WorldStep::Link(at, target)),
        2 => path().prop_map(WorldStep::Remove),
        1 => (path(), path()).prop_map(|(from, to)| WorldStep::Rename(from, to)),
        2 => Just(WorldStep::Take),
        1 => Just(WorldStep::Finish),
        2 => (0..6usize).prop_map(WorldStep::Restore),
        1 => Just(WorldStep::Undo),
    ]
}

type Tree = BTreeMap<String, (char, Vec<u8>)>;

/// All files below the folder: kind and content.
fn tree(folder: &Path) -> Tree {
    let mut found = Tree::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            let path = entry.path();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.insert(name, ('l', target.into_os_string().into_encoded_bytes()));
            } else {
                let mode = entry.metadata().unwrap().permissions().mode();
                let kind = if mode & 0o100 == 0 { 'f' } else { 'x' };
                found.insert(name, (kind, fs::read(&path).unwrap()));
            }
        }
    }
    found
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Makes the folder of `path`, and removes what stands in the way.
fn clear(world: &World, path: &str) {
    let mut folder = world.at("");
    let parts: Vec<&str> = path.split('/').collect();
    for part in &parts[..parts.len() - 1] {
        folder.push(part);
        if folder.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            fs::remove_file(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
    }
    remove(&world.at(path));
}

fn perform(world: &World, step: &WorldStep) {
    match step {
        WorldStep::Write(at, text, executable) => {
            clear(world, PATHS[*at]);
            let path = world.at(PATHS[*at]);
            fs::write(&path, text).unwrap();
            let mode = if *executable { 0o755 } else { 0o644 };
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        WorldStep::Link(at, target) => {
            clear(world, PATHS[*at]);
            symlink(target, world.at(PATHS[*at])).unwrap();
        }
        WorldStep::Remove(at) => {
            // The path may lead through a link, which stays.
            if world
                .at(PATHS[*at])
                .parent()
                .unwrap()
                .canonicalize()
                .is_ok_and(|above| above == world.at(PATHS[*at]).parent().unwrap())
            {
                remove(&world.at(PATHS[*at]));
            }
        }
        WorldStep::Rename(from, to) => {
            let from = world.at(PATHS[*from]);
            if from.is_file() && !from.is_symlink() {
                let content = fs::read(&from).unwrap();
                fs::remove_file(&from).unwrap();
                clear(world, PATHS[*to]);
                fs::write(world.at(PATHS[*to]), content).unwrap();
            }
        }
        WorldStep::Take | WorldStep::Finish | WorldStep::Restore(_) | WorldStep::Undo => {}
    }
}

fn run(steps: &[WorldStep]) {
    let world = World::new();
    let now = || tree(&world.at(""));
    // The tree at each checkpoint, by its id.
    let mut models: BTreeMap<u64, Tree> = BTreeMap::new();
    let (mut open, mut last_restore) = (None, None);
    for step in steps {
        match step {
            WorldStep::Take => {
                let checkpoint = world.take();
                models.insert(checkpoint.id, now());
                open = Some(checkpoint.id);
            }
            WorldStep::Finish => {
                if let Some(id) = open.take() {
                    world.store.finish(id).unwrap();
                }
            }
            WorldStep::Restore(_) | WorldStep::Undo if models.is_empty() => {}
            WorldStep::Restore(_) | WorldStep::Undo => {
                let id = match (step, last_restore) {
                    (WorldStep::Undo, Some(last)) => last,
                    (WorldStep::Restore(at), _) => *models.keys().nth(at % models.len()).unwrap(),
                    _ => continue,
                };
                let before = now();
                let restored = world.restore(id, RestoreChoice::All);
                assert_eq!(restored.kept, []);
                assert_eq!(now(), models[&id], "after the restore of {id}");
                // Nothing of the user's is lost: the state before is a checkpoint.
                models.insert(restored.undo.id, before);
                last_restore = Some(restored.undo.id);
                open = None;
            }
            change => perform(&world, change),
        }
    }
    for (id, model) in models.clone() {
        let restored = world.restore(id, RestoreChoice::All);
        assert_eq!((restored.kept, now()), (Vec::new(), model), "at the end, {id}");
    }
}

#[test]
fn empty_folder_in_place_of_a_file_is_replaced() {
    let empty = |at| WorldStep::Write(at, String::new(), false);
    run(&[empty(6), WorldStep::Take, empty(4), WorldStep::Remove(4)]);
}

/// `POSSE_REWINDS=10000` runs that many sequences.
#[test]
fn random_sequences_of_changes_and_restores_equal_a_model() {
    let count = std::env::var("POSSE_REWINDS").ok().and_then(|count| count.parse().ok());
    let cases = count.unwrap_or(12);
    let mut runner = TestRunner::new(Config { cases, ..Config::default() });
    let steps = prop::collection::vec(step(), 1..24);
    runner
        .run(&steps, |steps| {
            run(&steps);
            Ok(())
        })
        .unwrap();
}
