//! Files that checkpoints leave out.

use std::fs;

use super::{Added, Deleted, Modified, World, names};
use crate::plan::RestoreChoice;

#[test]
fn restore_removes_nothing_that_the_checkpoint_left_out() {
    let world = World::new();
    world.put("large", &"too large".repeat(1000));
    let one = world.take();
    assert_eq!(one.left_out.large_names, ["large"]);
    world.put("large", "small by now");
    world.put("new", "n");
    world.store.finish(one.id).unwrap();
    let restored = world.restore(1, RestoreChoice::All);
    assert_eq!(names(&restored.files), [("new".to_owned(), Deleted)]);
    let kept: Vec<&str> = restored.kept.iter().map(|(name, _)| &**name).collect();
    assert_eq!((kept, world.text("large").as_deref()), (vec!["large"], Some("small by now")));
}

#[test]
fn file_with_a_new_link_that_is_called_like_a_secret_is_still_stored() {
    let world = World::new();
    world.put("file", "PRECIOUS");
    world.take();
    fs::hard_link(world.at("file"), world.at("x.pem")).unwrap();
    let two = world.take();
    assert_eq!((two.files, two.left_out.secrets), (1, 1));
    world.put("file", "REPLACED");
    fs::remove_file(world.at("x.pem")).unwrap();
    world.store.finish(two.id).unwrap();
    let restored = world.restore(two.id, RestoreChoice::All);
    assert_eq!(names(&restored.files), [("file".to_owned(), Modified)]);
    assert_eq!(world.text("file").unwrap(), "PRECIOUS");
}

#[test]
fn restore_removes_no_file_that_the_checkpoint_took_for_a_secret() {
    let world = World::new();
    // A name of a secret, and a file that has one beside its own.
    world.put("key.pem", "secret");
    world.put("file", "new, and never stored");
    fs::hard_link(world.at("file"), world.at("x.pem")).unwrap();
    let one = world.take();
    assert_eq!((one.files, one.left_out.secrets), (0, 3));
    fs::remove_file(world.at("x.pem")).unwrap();
    world.put("file", "changed");
    world.put("new", "n");
    world.store.finish(one.id).unwrap();
    let restored = world.restore(one.id, RestoreChoice::All);
    assert_eq!(names(&restored.files), [("new".to_owned(), Deleted)]);
    let kept: Vec<&str> = restored.kept.iter().map(|(name, _)| &**name).collect();
    assert_eq!((kept, world.text("file").as_deref()), (vec!["file"], Some("changed")));
    assert!(restored.kept[0].1.contains("taken for a secret"), "{:?}", restored.kept);
    assert_eq!(world.text("key.pem").as_deref(), Some("secret"));
}

#[test]
fn restore_that_is_taken_back_removes_nothing_that_its_checkpoint_left_out() {
    let world = World::new();
    world.put("a", "a");
    let one = world.take();
    world.put("a", "b");
    world.put("large", &"too large".repeat(1000));
    let undo = world.restore(one.id, RestoreChoice::All).undo;
    assert_eq!(undo.left_out.large_names, ["large"]);
    world.put("large", "small by now");
    let restored = world.restore(undo.id, RestoreChoice::All);
    assert_eq!(names(&restored.files), [("a".to_owned(), Modified)]);
    assert_eq!(world.text("large").as_deref(), Some("small by now"));
}

#[test]
fn restore_removes_no_file_that_the_checkpoint_ignored() {
    let world = World::new();
    world.put(".gitignore", "data/\n*.db\n");
    world.put("sub/.gitignore", "!b.db\n");
    world.put("data/precious", "p");
    world.put("x.db", "x");
    world.put("sub/b.db", "stored");
    let one = world.take();
    assert_eq!(one.files, 3);
    world.put(".gitignore", "");
    fs::remove_dir_all(world.at("sub")).unwrap();
    world.put("sub/b.db", "changed");
    world.put("sub/c.db", "created, or not");
    world.put("new/file", "n");
    world.store.finish(one.id).unwrap();
    let restored = world.restore(one.id, RestoreChoice::All);
    let expected = [
        (".gitignore", Modified),
        ("new/file", Deleted),
        ("sub/.gitignore", Added),
        ("sub/b.db", Modified),
    ];
    assert_eq!(names(&restored.files), expected.map(|(name, kind)| (name.to_owned(), kind)));
    let kept: Vec<&str> = restored.kept.iter().map(|(name, _)| &**name).collect();
    assert_eq!(kept, ["data/precious", "sub/c.db", "x.db"]);
    assert!(restored.kept[0].1.contains("ignore files name it"), "{:?}", restored.kept);
    assert_eq!(world.text("data/precious").as_deref(), Some("p"));
    // With the same rules nothing else is compared.
    let restored = world.restore(one.id, RestoreChoice::All);
    assert_eq!((restored.files, restored.kept), (Vec::new(), Vec::new()));
}
