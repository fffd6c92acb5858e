//! Notifications about changed folders (inotify), so that a scan of a large workspace does not
//! examine every unchanged folder again.
//!
//! A notification only says that a folder has to be examined. Without notifications, or if some
//! were lost, every folder is examined.

#[cfg(target_os = "linux")]
pub(super) use linux::FolderWatch;
#[cfg(not(target_os = "linux"))]
pub(super) use none::FolderWatch;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{HashMap, HashSet};
    use std::fs::{self, File};
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};

    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
    use nix::sys::statfs::{
        BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs,
    };

    use crate::protect::place::Identity;

    /// Everything that changes the names in a folder, or the folder that a name leads to.
    const CHANGES: AddWatchFlags = AddWatchFlags::IN_CREATE
        .union(AddWatchFlags::IN_DELETE)
        .union(AddWatchFlags::IN_MOVED_FROM)
        .union(AddWatchFlags::IN_MOVED_TO)
        .union(AddWatchFlags::IN_ATTRIB)
        .union(AddWatchFlags::IN_DELETE_SELF)
        .union(AddWatchFlags::IN_MOVE_SELF)
        .union(AddWatchFlags::IN_ONLYDIR);

    /// File with the maximum number of watches of a user, which other programs use, too.
    const WATCHES_MAX_FILE: &str = "/proc/sys/fs/inotify/max_user_watches";

    /// File systems that report every change. Network file systems do not report those of other
    /// hosts, and layered ones not those of their lower layers.
    const REPORTING: [FsType; 4] =
        [BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC];

    /// Watches of the folders of one root.
    #[derive(Debug)]
    pub(in crate::protect) struct FolderWatch {
        inotify: Inotify,
        /// Mount table, polled for changes: a new mount is not reported as a change of a folder.
        mounts: File,
        folders: HashMap<WatchDescriptor, Identity>,
        descriptors: HashMap<Identity, WatchDescriptor>,
        /// Watched folders that may have changed since they were examined.
        changed: HashSet<Identity>,
        /// Number of folders that may still be watched.
        left: usize,
        /// By device number: true if the file system of the device reports every change.
        devices: HashMap<u64, bool>,
    }

    impl FolderWatch {
        /// Starts without a watched folder, and watches the mount table. `None` if the system
        /// offers no notifications.
        pub(in crate::protect) fn begin() -> Option<FolderWatch> {
            let limit: usize = fs::read_to_string(WATCHES_MAX_FILE).ok()?.trim().parse().ok()?;
            let mounts = File::open("/proc/self/mountinfo").ok()?;
            // The first poll reports changes before this point.
            has_changed(&mounts)?;
            Some(FolderWatch {
                inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?,
                mounts,
                folders: HashMap::new(),
                descriptors: HashMap::new(),
                changed: HashSet::new(),
                // The rest is for other programs.
                left: limit / 2,
                devices: HashMap::new(),
            })
        }

        /// Reads the notifications so far, and marks their folders as changed; all of them if
        /// notifications were lost or a mount changed. Later ones count for the next scan.
        pub(in crate::protect) fn update(&mut self) {
            let mut is_lost = has_changed(&self.mounts) != Some(false);
            loop {
                match self.inotify.read_events() {
                    Ok(events) => {
                        for event in events {
                            is_lost |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                            self.note(event.wd, event.mask);
                        }
                    }
                    Err(Errno::EAGAIN) => break,
                    Err(Errno::EINTR) => {}
                    Err(_) => {
                        is_lost = true;
                        break;
                    }
                }
            }
            if is_lost {
                self.changed.extend(self.descriptors.keys());
            }
        }

        fn note(&mut self, descriptor: WatchDescriptor, mask: AddWatchFlags) {
            let Some(identity) = self.folders.get(&descriptor).copied() else { return };
            // The end of a watch is a change, too.
            self.changed.insert(identity);
            if mask.intersects(AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_UNMOUNT) {
                self.folders.remove(&descriptor);
                self.descriptors.remove(&identity);
                self.left += 1;
            }
        }

        /// Watches `folder`, unless the limit is reached or its file system does not report every
        /// change. Must be called before the folder is examined.
        pub(in crate::protect) fn add(&mut self, folder: &OwnedFd, identity: Identity) {
            if self.left == 0 || self.descriptors.contains_key(&identity) {
                return;
            }
            let reports = *self.devices.entry(identity.device).or_insert_with(|| {
                fstatfs(folder).is_ok_and(|found| REPORTING.contains(&found.filesystem_type()))
            });
            if !reports {
                return;
            }
            let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
            match self.inotify.add_watch(path.as_str(), CHANGES) {
                Ok(descriptor) => {
                    self.folders.insert(descriptor, identity);
                    self.descriptors.insert(identity, descriptor);
                    self.left -= 1;
                }
                // Other programs have used up the limit.
                Err(Errno::ENOSPC) => self.left = 0,
                Err(_) => {}
            }
        }

        /// True if the folder is watched and has not changed since it was examined.
        pub(in crate::protect) fn is_unchanged(&self, identity: Identity) -> bool {
            self.descriptors.contains_key(&identity) && !self.changed.contains(&identity)
        }

        /// True if no watched folder has changed since the last [`FolderWatch::finish`].
        pub(in crate::protect) fn has_no_changes(&self) -> bool {
            self.changed.is_empty()
        }

        /// Records that all changed folders have been examined.
        pub(in crate::protect) fn finish(&mut self) {
            self.changed.clear();
        }

        /// Ends the watches of all folders that are not in `known`.
        pub(in crate::protect) fn keep_only(&mut self, known: &HashSet<Identity>) {
            let gone = self.descriptors.extract_if(|identity, _| !known.contains(identity));
            for (identity, descriptor) in gone {
                self.folders.remove(&descriptor);
                self.changed.remove(&identity);
                self.left += 1;
                // It fails for a removed folder, whose watch has ended.
                self.inotify.rm_watch(descriptor).ok();
            }
        }
    }

    /// True if the mount table has changed since the last call. `None` if this cannot be told.
    fn has_changed(mounts: &File) -> Option<bool> {
        let mut asked = [PollFd::new(mounts.as_fd(), PollFlags::POLLPRI)];
        poll(&mut asked, PollTimeout::ZERO).ok()?;
        asked[0].revents().map(|said| said.contains(PollFlags::POLLPRI))
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::collections::HashSet;
    use std::os::fd::OwnedFd;

    use crate::protect::place::Identity;

    /// Notifications do not exist here: every folder is examined.
    #[derive(Debug)]
    pub(in crate::protect) enum FolderWatch {}

    impl FolderWatch {
        pub(in crate::protect) fn begin() -> Option<FolderWatch> {
            None
        }

        pub(in crate::protect) fn update(&mut self) {}

        pub(in crate::protect) fn add(&mut self, _: &OwnedFd, _: Identity) {}

        pub(in crate::protect) fn is_unchanged(&self, _: Identity) -> bool {
            false
        }

        pub(in crate::protect) fn has_no_changes(&self) -> bool {
            false
        }

        pub(in crate::protect) fn finish(&mut self) {}

        pub(in crate::protect) fn keep_only(&mut self, _: &HashSet<Identity>) {}
    }
}
