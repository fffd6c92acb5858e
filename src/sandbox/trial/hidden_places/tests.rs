//! Moves of hidden files that are noticed during a trial.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::fcntl::AT_FDCWD;

use super::*;
use crate::namespaces::MOVED;
use crate::protect::place::Stat;

#[test]
fn each_move_is_noticed_and_new_files_are_not() {
    type Change = fn(&Path);
    let changes: [(Change, bool); 7] = [
        (|root| fs::write(root.join("a/b/new"), "x").unwrap(), false),
        (|root| fs::rename(root.join("other"), root.join("o")).unwrap(), false),
        (|root| fs::write(root.join("a/b/.env"), "y").unwrap(), false),
        (
            |root| {
                fs::rename(root.join("a"), root.join("c")).unwrap();
                fs::rename(root.join("c"), root.join("a")).unwrap();
            },
            true,
        ),
        (|root| fs::rename(root.join("a/b/.env"), root.join("x")).unwrap(), true),
        (|root| fs::hard_link(root.join("a/b/.env"), root.join("x")).unwrap(), true),
        (|root| fs::remove_file(root.join("a/b/.env")).unwrap(), true),
    ];
    for (number, (change, is_noticed)) in changes.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("other")).unwrap();
        fs::write(root.join("a/b/.env"), "x").unwrap();
        let secret = root.join("a/b/.env");
        let identity = Stat::at(AT_FDCWD, &secret).unwrap().identity.numbers();
        // No later file gets its inode number, also if the change removes the file.
        let _held = fs::File::open(&secret).unwrap();
        let secrets = BTreeMap::from([(secret, identity)]);
        let roots = [root.clone()];
        let places = HiddenPlaces::of(&secrets, &roots).unwrap().unwrap();
        assert_eq!(places.changed(), None);
        change(&root);
        assert_eq!(places.changed().is_some(), is_noticed, "{number}");
        // One that is not there any more, or is another file, is an error.
        fs::rename(root.join("a"), root.join("z")).unwrap();
        assert!(HiddenPlaces::of(&secrets, &roots).unwrap_err().contains(MOVED));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/.env"), "x").unwrap();
        assert!(HiddenPlaces::of(&secrets, &roots).is_err());
    }
    assert!(HiddenPlaces::of(&BTreeMap::new(), &["/".into()]).unwrap().is_none());
}
