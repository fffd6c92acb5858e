//! Reasons for which a folder cannot have an overlay, as far as they can be known beforehand.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::statfs;

/// Types of network file systems by their magic number, as in `linux/magic.h`.
const NETWORK: [(u32, &str); 7] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
];

/// Magic number of an overlay.
const OVERLAY: u32 = 0x794c_7630;

/// Returns the reason for which commands cannot be tried in the workspace `root` with their changes
/// in `folder`. `None` if none is known; the kernel may still refuse.
pub fn obstacle(root: &Path, folder: &Path) -> Option<String> {
    let shown = root.display();
    if folder.starts_with(root) {
        return Some(format!("the state directory of posse is in the workspace {shown}"));
    }
    if let Some(network) = network_of(root) {
        return Some(format!("the workspace {shown} is on a network file system ({network})"));
    }
    let parent = folder.ancestors().find(|folder| folder.is_dir())?;
    let state = parent.display();
    if magic(parent) == Some(OVERLAY) {
        return Some(format!("the state directory {state} is on an overlay itself"));
    }
    if let Some(network) = network_of(parent) {
        let what = format!("the state directory {state} is on a network file system");
        return Some(format!("{what} ({network})"));
    }
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let inside = mount_inside(root, &mounts)?;
    Some(format!("another file system is mounted in the workspace, at {}", inside.display()))
}

/// First mount point below `root` in a text in the format of `/proc/PID/mountinfo`.
fn mount_inside(root: &Path, mounts: &[u8]) -> Option<PathBuf> {
    mount_points(mounts).find(|point| point != root && point.starts_with(root))
}

fn magic(folder: &Path) -> Option<u32> {
    let number = statfs(folder).ok()?.filesystem_type().0;
    // The type of the field differs between systems; the numbers have 32 bits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "32 bits are used")]
    Some(number as u32)
}

fn network_of(folder: &Path) -> Option<&'static str> {
    let magic = magic(folder)?;
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// Mount points of a text in the format of `/proc/PID/mountinfo`, the fifth field of each line, in
/// which some characters are written in octal.
fn mount_points(text: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = text.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    fields.map(|field| {
        let mut path = Vec::with_capacity(field.len());
        let mut rest = field;
        while let Some((first, more)) = rest.split_first() {
            let digits = more.get(..3).filter(|_| *first == b'\\');
            let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
            let byte = code.and_then(|code| u8::from_str_radix(code, 8).ok());
            path.push(byte.unwrap_or(*first));
            rest = if byte.is_some() { &more[3..] } else { more };
        }
        PathBuf::from(std::ffi::OsString::from_vec(path))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn mount_points_are_decoded() {
        let text = b"36 35 98:0 /mnt1 /a\\040b\\134c rw - ext3 /dev/root rw\n\
                     37 35 98:0 / /d\\9 rw\nshort line\n";
        let points: Vec<PathBuf> = mount_points(text).collect();
        assert_eq!(points, [Path::new("/a b\\c"), Path::new("/d\\9")]);
        assert_eq!(points[0].as_os_str().as_bytes(), b"/a b\\c");
    }

    #[test]
    fn places_without_a_trial_have_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("work");
        fs::create_dir(&root).unwrap();
        assert_eq!(obstacle(&root, &folder.path().join("state/trials/1")), None);
        let inside = obstacle(&root, &root.join("state")).unwrap();
        assert!(inside.contains("is in the workspace"), "{inside}");
        let mounts = b"36 35 98:0 / /w rw\n37 35 98:0 / /wx/y rw\n38 36 98:0 / /w/a/b rw\n";
        assert_eq!(mount_inside(Path::new("/w"), mounts), Some("/w/a/b".into()));
        assert_eq!(mount_inside(Path::new("/w/a/b"), mounts), None);
    }
}
