//! Copies of the objects of repositories, from which a restore brings back objects that are gone.
//!
//! Files of objects never change, so a copy is made once. Copies are kept together for all
//! checkpoints; the refs, `HEAD` and the index of a repository are ordinary files of a checkpoint.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::fstat;
use posse_base::failure::printable;
use posse_base::hex::sha256;
use posse_tools::workspace::open_beneath;

use crate::entry::{Kind, Stamp};
use crate::writer;

/// Maximum size of the copied objects of one repository in bytes.
const BYTES_MAX: u64 = 512 << 20;

/// Maximum number of object files of one repository.
const FILES_MAX: usize = 200_000;

/// Copies the objects of the repository `path` below `root` that have no copy yet to `copies`.
/// `Err`: the reason, for a person, why not all objects are copied.
pub(crate) fn copy_objects(root: &OwnedFd, path: &Path, copies: &Path) -> Result<(), String> {
    let named = || match path.parent().filter(|top| !top.as_os_str().is_empty()) {
        Some(top) => printable(&top.to_string_lossy()),
        None => "the repository".to_owned(),
    };
    let failed = |error: io::Error| format!("the git objects of {} ({error})", named());
    let objects = path.join("objects");
    let found = object_files(root, &objects).map_err(failed)?;
    let known = copied_files(copies);
    let (mut bytes, mut missing, mut present) = (0, Vec::new(), HashSet::new());
    for (name, size) in found {
        bytes += size;
        if !known.contains(&name) {
            missing.push(name.clone());
        }
        present.insert(name);
    }
    let gone = || {
        let gone = known.iter().filter(|name| !present.contains(*name));
        let copies = gone.filter_map(|name| fs::metadata(copies.join(name)).ok());
        copies.map(|copy| copy.len()).sum::<u64>()
    };
    if !missing.is_empty() && gone() > BYTES_MAX {
        let named = named();
        return Err(format!(
            "new git objects of {named}, because copies of old ones fill the space"
        ));
    }
    if bytes > BYTES_MAX {
        return Err(format!("the git objects of {}, which are larger than 512 MiB", named()));
    }
    for name in missing {
        copy(root, &objects.join(&name), &copies.join(&name)).map_err(failed)?;
    }
    // The removal of old checkpoints finds the copies that none of the rest needs by this time.
    File::open(copies).and_then(|folder| folder.set_modified(SystemTime::now())).ok();
    Ok(())
}

fn copy(root: &OwnedFd, from: &Path, to: &Path) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
    let opened = match open_beneath(root, from, flags) {
        // Packed or removed meanwhile.
        Err(nix::Error::ENOENT) => return Ok(()),
        opened => opened?,
    };
    if Stamp::of(&fstat(&opened)?).is_none() {
        return Ok(());
    }
    if let Some(above) = to.parent() {
        fs::create_dir_all(above)?;
    }
    let unfinished = to.with_extension("unfinished");
    io::copy(&mut File::from(opened).take(BYTES_MAX), &mut File::create(&unfinished)?)?;
    fs::rename(unfinished, to)
}

/// Object files below `objects`, such as `ab/cdef` and `pack/pack-1.pack`, with their sizes.
fn object_files(root: &OwnedFd, objects: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for folder in names(root, objects)? {
        let name = folder.as_os_str().as_bytes();
        let is_pack = name == b"pack";
        let is_loose = name.len() == 2 && name.iter().all(u8::is_ascii_hexdigit);
        if !is_pack && !is_loose {
            continue;
        }
        let path = objects.join(&folder);
        // A file in the place of a folder holds no objects.
        for file in names(root, &path).unwrap_or_default() {
            if is_object(&file, is_pack) {
                let stamp = crate::walk::stamp_of(root, &path.join(&file));
                let stamp = stamp.filter(|stamp| stamp.kind != Kind::Link);
                files.extend(stamp.map(|stamp| (folder.join(&file), stamp.size)));
            }
            if files.len() > FILES_MAX {
                return Err(io::Error::other("more than 200,000 files"));
            }
        }
    }
    Ok(files)
}

fn is_object(name: &Path, is_pack: bool) -> bool {
    let text = name.as_os_str().as_bytes();
    if is_pack {
        text.starts_with(b"pack-") && !text.ends_with(b".keep")
    } else {
        text.len() >= 38 && text.iter().all(u8::is_ascii_hexdigit)
    }
}

fn names(root: &OwnedFd, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let opened = open_beneath(root, folder, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(opened)?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(PathBuf::from(std::ffi::OsStr::from_bytes(name)));
        }
    }
    Ok(names)
}

fn copied_files(copies: &Path) -> HashSet<PathBuf> {
    let mut found = HashSet::new();
    for folder in fs::read_dir(copies).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            found.insert(Path::new(&folder.file_name()).join(file.file_name()));
        }
    }
    found
}

/// Brings back the objects that have a copy and are missing in the repository `path` below `root`.
/// Does nothing if the repository has packs without a copy: then git has packed its objects again.
/// Returns the number of restored files.
pub(crate) fn restore_objects(root: &OwnedFd, path: &Path, copies: &Path) -> io::Result<usize> {
    let objects = path.join("objects");
    let present = object_files(root, &objects).unwrap_or_default();
    let present: HashSet<PathBuf> = present.into_iter().map(|(name, _)| name).collect();
    let stored = copied_files(copies);
    let is_new_pack = |name: &&PathBuf| name.starts_with("pack") && !stored.contains(*name);
    if present.iter().any(|name| is_new_pack(&name)) {
        return Ok(0);
    }
    let mut missing: Vec<&PathBuf> =
        stored.iter().filter(|name| !present.contains(*name)).collect();
    // The index of a pack after the pack.
    missing.sort_by_key(|name| (name.extension().is_some_and(|end| end == "idx"), *name));
    let mut restored = 0;
    for name in missing {
        let is_whole = name.extension().is_none_or(|extension| extension != "unfinished");
        if is_whole {
            let content = fs::read(copies.join(name))?;
            writer::write(root, &objects.join(name), Kind::File, &content, None)?;
            restored += 1;
        }
    }
    Ok(restored)
}

/// Name of the folder with the copies of the repository `path` below the root with the folder name
/// `root`.
pub(crate) fn copies_name(root: &str, path: &Path) -> String {
    let name = [root.as_bytes(), b"/", path.as_os_str().as_bytes()].concat();
    sha256(&name)[..24].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, content: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn lost_objects_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let (top, copies) = (dir.path().join("w"), dir.path().join("copies"));
        let loose = format!("ab/{}", "c".repeat(38));
        let objects = top.join(".git/objects");
        write(&objects.join(&loose), "loose");
        write(&objects.join("pack/pack-1.pack"), "pack");
        write(&objects.join("pack/tmp_pack"), "unfinished");
        write(&objects.join("info/alternates"), "/elsewhere\n");
        std::os::unix::fs::symlink("/etc", objects.join("cd")).unwrap();
        let root: OwnedFd = File::open(&top).unwrap().into();
        let git = Path::new(".git");
        for _ in 0..2 {
            copy_objects(&root, git, &copies).unwrap();
            assert_eq!(copied_files(&copies).len(), 2);
        }
        assert_eq!(restore_objects(&root, git, &copies).unwrap(), 0);
        fs::remove_dir_all(top.join(".git")).unwrap();
        assert_eq!(restore_objects(&root, git, &copies).unwrap(), 2);
        assert_eq!(fs::read_to_string(objects.join(&loose)).unwrap(), "loose");
        // git has packed everything again.
        fs::remove_file(objects.join(&loose)).unwrap();
        write(&objects.join("pack/pack-2.pack"), "new");
        assert_eq!(restore_objects(&root, git, &copies).unwrap(), 0);
    }

    #[test]
    fn repositories_have_copies_of_their_own() {
        let name = |root, path| copies_name(root, Path::new(path));
        assert_ne!(name("a", ".git"), name("b", ".git"));
        assert_ne!(name("a", ".git"), name("a", "x/.git"));
        assert_eq!(name("a", ".git"), name("a", ".git"));
    }
}
