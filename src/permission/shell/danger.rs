//! Commands that no agent, grant or flag may run, as far as the text of one command shows.
//!
//! This is protection against accidents and crude attacks. The sandbox is the boundary.

use crate::shell::word::{UNKNOWN, has_active, is_glob, matches, resolve, shown};

/// Why a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Danger {
    /// The name of the rule.
    pub(crate) rule: &'static str,
    /// For the model and the user.
    pub(crate) reason: &'static str,
}

/// Deletes or moves away a whole system or home folder.
pub(crate) const DELETES: Danger = Danger {
    rule: "delete-everything",
    reason: "it would change or delete a whole system or home folder; name the folder you mean",
};
/// Locks a whole system or home folder.
pub(crate) const LOCKS: Danger = Danger {
    rule: "lock-everything",
    reason: "it would change who may use a whole system or home folder; name the folder you mean",
};
/// Starts processes without end.
pub(crate) const FORK_BOMB: Danger =
    Danger { rule: "fork-bomb", reason: "it would start processes without end" };
/// Writes a disk.
pub(crate) const DEVICE: Danger =
    Danger { rule: "raw-device", reason: "it would overwrite a disk or the memory" };
/// Runs a download.
pub(crate) const DOWNLOADED: Danger = Danger {
    rule: "run-download",
    reason: "it would run what it downloads unseen; download to a file, read it, then run it",
};
/// Stops the machine.
pub(crate) const HOST: Danger = Danger {
    rule: "stop-machine",
    reason: "it would stop or crash the machine, or end every process of the user",
};

/// Working directory and home of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandLocation<'a> {
    /// The folder, if it is known.
    pub(crate) cwd: Option<&'a str>,
    /// The home folder.
    pub(crate) home: &'a str,
}

/// Folders that a system or its users do not survive without.
const SYSTEM: [&str; 46] = [
    "/Applications",
    "/Library",
    "/System",
    "/Users",
    "/Volumes",
    "/bin",
    "/boot",
    "/boot/efi",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/media",
    "/mnt",
    "/nix",
    "/nix/store",
    "/opt",
    "/private",
    "/private/etc",
    "/private/var",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/usr",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/lib/dpkg",
    "/var/log",
    "/vmlinuz",
];
/// Names of disks and equally critical devices.
const DISKS: [&str; 20] = [
    "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "dm-", "md", "loop", "mapper",
    "sr", "zd", "nbd", "ram", "zram", "pmem", "mtd", "vg",
];
const MEMORY: [&str; 4] = ["mem", "kmem", "port", "nvram"];
/// Samples for a glob.
const SAMPLES: [&str; 8] = ["sda", "sda1", "vda", "hda", "nvme0n1", "mmcblk0", "xvda", "sdb"];
/// Files that act on the kernel as soon as they are written.
const TRIGGERS: [&str; 4] =
    ["/proc/sysrq-trigger", "/sys/power/state", "/proc/kcore", "/sys/kernel/debug/provoke-crash"];

/// True if `text` names `/`, a system folder or a home folder as a whole, or all of its contents.
pub(crate) fn is_system(text: &str, place: CommandLocation<'_>) -> bool {
    let Some(path) = resolve(text, place.cwd) else { return false };
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    while parts.last().is_some_and(|part| takes_all(part)) {
        parts.pop();
    }
    if parts.is_empty() {
        return true;
    }
    let whole = format!("/{}", parts.join("/"));
    let globs = is_glob(&whole);
    let same = |known: &str| {
        if !globs {
            return known == whole;
        }
        let mut names = known.split('/').filter(|part| !part.is_empty());
        let matched =
            parts.iter().all(|part| names.next().is_some_and(|name| part_matches(part, name)));
        matched && names.next().is_none()
    };
    let users = parts.len() == 2 && matches!(parts[0], "home" | "Users");
    // Parents of the home folder count as well.
    let above_home = place.home.match_indices('/').map(|(at, _)| &place.home[..at]);
    users
        || SYSTEM.iter().any(|known| same(known))
        || same(place.home.trim_end_matches('/'))
        || above_home.filter(|above| !above.is_empty() && *above != "/tmp").any(same)
}

fn part_matches(pattern: &str, name: &str) -> bool {
    if is_glob(pattern) { matches(pattern, name) } else { pattern == name }
}

/// `*`, `.*`, `?*`, `.[!.]*`: all of a folder, or all that is hidden in it.
fn takes_all(part: &str) -> bool {
    is_glob(part)
        && (matches(part, "sample") && matches(part, "x.y") || matches(part, ".sample"))
        && !part.chars().any(|c| c.is_ascii_alphanumeric())
}

/// True if writing to `text` overwrites a disk or memory.
pub(crate) fn is_disk(text: &str, place: CommandLocation<'_>) -> bool {
    let Some(path) = resolve(text, place.cwd) else { return false };
    let Some(device) = path.strip_prefix("/dev/") else { return false };
    let name = device.split('/').next().unwrap_or_default();
    if is_glob(name) {
        return SAMPLES.iter().any(|sample| matches(name, sample));
    }
    MEMORY.contains(&name)
        || DISKS.iter().any(|disk| {
            name.strip_prefix(disk).is_some_and(|rest| {
                let whole = matches!(*disk, "mapper" | "disk" | "vg");
                whole || rest.chars().next().is_some_and(char::is_alphanumeric) && rest.len() <= 12
            })
        })
}

/// True if writing there affects the kernel at once.
pub(crate) fn is_trigger(text: &str, place: CommandLocation<'_>) -> bool {
    resolve(text, place.cwd).is_some_and(|path| TRIGGERS.contains(&path.as_str()))
}

/// Danger of writing to `text`.
pub(crate) fn written(text: &str, place: CommandLocation<'_>) -> Option<Danger> {
    if is_disk(text, place) {
        Some(DEVICE)
    } else if is_trigger(text, place) {
        Some(HOST)
    } else {
        None
    }
}

/// The words of a command, taken apart as far as this needs.
struct Words<'a> {
    all: &'a [&'a str],
    place: CommandLocation<'a>,
}

impl<'a> Words<'a> {
    fn has(&self, word: &str) -> bool {
        self.all.contains(&word)
    }

    /// A short option, alone or with others, or a long one, or the beginning of one.
    fn option(&self, short: &[char], long: &str) -> bool {
        self.all.iter().any(|word| match word.strip_prefix("--") {
            Some(name) => name.len() >= 3 && !long.is_empty() && long.starts_with(name),
            None => word.strip_prefix('-').is_some_and(|letters| letters.contains(short)),
        })
    }

    fn operands(&self) -> impl Iterator<Item = &'a str> {
        self.all.iter().copied().filter(|word| !word.starts_with('-') || word.len() == 1)
    }

    fn system(&self) -> bool {
        self.all.iter().any(|word| is_system(word, self.place))
    }

    fn disk(&self) -> bool {
        self.all.iter().any(|word| is_disk(word, self.place))
    }
}

/// Danger of `program` with `arguments`, without wrappers.
pub(crate) fn danger(
    program: &str,
    arguments: &[&str],
    place: CommandLocation<'_>,
) -> Option<Danger> {
    let words = Words { all: arguments, place };
    deletes(program, &words)
        .then_some(DELETES)
        .or_else(|| locks(program, &words).then_some(LOCKS))
        .or_else(|| writes_disk(program, &words).then_some(DEVICE))
        .or_else(|| stops(program, &words).then_some(HOST))
        .or_else(|| forks(program, &words).then_some(FORK_BOMB))
}

fn deletes(program: &str, words: &Words<'_>) -> bool {
    match program {
        "rm" | "srm" | "grm" => {
            let recursive = words.option(&['r', 'R'], "recursive");
            let root = |word: &&str| {
                resolve(word, words.place.cwd).is_some_and(|path| {
                    is_glob(&path) && path.matches('/').count() == 1 && is_system(word, words.place)
                })
            };
            words.has("--no-preserve-root")
                || (recursive && words.system())
                || words.all.iter().any(root)
        }
        "rimraf" | "trash" | "trash-put" | "shred" | "wipe" | "del" => words.system(),
        "mv" => words.operands().any(|word| {
            is_system(word, words.place) && {
                // The last one is where it goes.
                let last = words.operands().last();
                last != Some(word) || words.operands().filter(|other| *other == word).count() > 1
            }
        }),
        "rsync" => {
            let removes = words
                .all
                .iter()
                .any(|word| word.starts_with("--del") || *word == "--remove-source-files");
            removes && words.operands().last().is_some_and(|word| is_system(word, words.place))
        }
        "tar" | "zip" => words.has("--remove-files") && words.system(),
        _ => false,
    }
}

fn locks(program: &str, words: &Words<'_>) -> bool {
    match program {
        "chmod" => {
            let recursive = words.option(&['R'], "recursive");
            let locked = words.all.iter().any(|word| {
                let octal = word.len() <= 4
                    && !word.is_empty()
                    && word.starts_with('0')
                    && word.chars().all(|c| c.is_digit(8));
                octal && word.trim_start_matches('0').len() <= 2
                    || matches!(
                        *word,
                        "a-rwx"
                            | "u-rwx"
                            | "-rwx"
                            | "a-x"
                            | "u-x"
                            | "-x"
                            | "ugo-rwx"
                            | "a="
                            | "u="
                            | "="
                            | "a-r"
                            | "u-r"
                            | "-r"
                    )
            });
            (recursive || locked) && words.system()
        }
        "chown" | "chgrp" | "chattr" | "setfacl" | "chcon" => {
            words.option(&['R'], "recursive") && words.system()
        }
        _ => false,
    }
}

fn writes_disk(program: &str, words: &Words<'_>) -> bool {
    match program {
        "dd" => words.all.iter().any(|word| {
            word.strip_prefix("of=").is_some_and(|target| is_disk(target, words.place))
        }),
        name if name.starts_with("mkfs") || name.starts_with("mke2fs") => words.disk(),
        "mkswap" | "blkdiscard" | "shred" | "wipe" | "scrub" | "newfs" | "mkntfs" | "mkdosfs"
        | "tee" | "truncate" | "pvcreate" | "pvremove" | "vgcreate" | "badblocks" | "ddrescue"
        | "dcfldd" | "fallocate" | "sponge" | "nwipe" => {
            let reads = program == "badblocks" && !words.option(&['w'], "");
            words.disk() && !reads
        }
        "vgremove" | "lvremove" => true,
        "wipefs" => words.disk() && (words.option(&['a', 'o'], "all")),
        "cp" | "mv" | "install" | "ln" | "rsync" | "scp" => {
            words.operands().last().is_some_and(|word| is_disk(word, words.place))
                && words.operands().nth(1).is_some()
        }
        _ => partitions(program, words),
    }
}

/// Programs that change how disks are divided.
fn partitions(program: &str, words: &Words<'_>) -> bool {
    let lists = |options: &[&str]| options.iter().any(|option| words.has(option));
    match program {
        "sgdisk" => {
            words.disk()
                && !words.all.iter().all(|word| {
                    !word.starts_with('-')
                        || matches!(*word, "-p" | "--print" | "-i" | "--info" | "-v" | "--verify")
                        || word.starts_with("--info=")
                        || word.starts_with("-i")
                })
        }
        "fdisk" | "gdisk" | "cfdisk" | "sfdisk" | "cgdisk" => {
            let only_lists = lists(&["-l", "--list", "-d", "--dump", "-J", "--json", "-s", "-x"]);
            words.disk() && !only_lists
        }
        "parted" => {
            let acts = [
                "mklabel",
                "mktable",
                "mkpart",
                "rm",
                "resizepart",
                "rescue",
                "set",
                "name",
                "disk_set",
            ];
            words.disk()
                && words
                    .all
                    .iter()
                    .flat_map(|word| word.split(' '))
                    .any(|word| acts.contains(&word))
        }
        _ => volumes(program, words),
    }
}

/// Programs that make volumes, and those that erase a disk by its own means.
fn volumes(program: &str, words: &Words<'_>) -> bool {
    let says = |verbs: &[&str]| words.all.iter().any(|word| verbs.contains(word));
    match program {
        "cryptsetup" => words.disk() && says(&["luksFormat", "erase", "luksErase", "reencrypt"]),
        "hdparm" => {
            words.disk()
                && words.all.iter().any(|word| {
                    word.starts_with("--security-erase")
                        || word.starts_with("--trim-sector")
                        || word.starts_with("--write-sector")
                        || word.starts_with("--make-bad")
                })
        }
        "nvme" => words.disk() && says(&["format", "sanitize", "write-zeroes", "dsm"]),
        "mdadm" => words.disk() && says(&["--create", "-C", "--zero-superblock"]),
        "zpool" => {
            matches!(words.all.first(), Some(&("destroy" | "labelclear")))
                || (words.all.first() == Some(&"create") && words.disk())
        }
        "diskutil" => words.all.first().is_some_and(|verb| {
            let verb = verb.to_ascii_lowercase();
            verb.starts_with("erase")
                || verb.starts_with("partition")
                || verb.starts_with("zero")
                || verb.starts_with("random")
                || verb == "secureerase"
                || verb == "reformat"
        }),
        _ => false,
    }
}

fn stops(program: &str, words: &Words<'_>) -> bool {
    let asks = || words.all.iter().any(|word| matches!(*word, "--help" | "-c" | "--version"));
    match program {
        "shutdown" | "reboot" | "halt" | "poweroff" => !asks(),
        "init" | "telinit" => matches!(words.all.first(), Some(&("0" | "6"))),
        "systemctl" | "loginctl" => words.operands().next().is_some_and(|verb| {
            matches!(
                verb,
                "poweroff" | "reboot" | "halt" | "kexec" | "soft-reboot" | "rescue" | "emergency"
            ) || (matches!(verb, "isolate" | "start")
                && words.operands().any(|unit| {
                    let name = unit.split('.').next().unwrap_or_default();
                    matches!(
                        name,
                        "poweroff" | "reboot" | "halt" | "rescue" | "emergency" | "shutdown"
                    )
                }))
        }),
        "kexec" => words.has("-e") || words.has("--exec"),
        "kill" => words.all.iter().rposition(|word| *word == "-1").is_some_and(|at| {
            // The first is the signal; it is the target elsewhere.
            at > 0
        }),
        "killall5" => true,
        "dbus-send" | "busctl" | "gdbus" => words.all.iter().any(|word| {
            let verb = word.rsplit('.').next().unwrap_or_default();
            matches!(verb, "PowerOff" | "Reboot" | "Halt")
        }),
        "tee" | "cp" | "dd" | "mv" | "install" => words
            .all
            .iter()
            .any(|word| is_trigger(word.strip_prefix("of=").unwrap_or(word), words.place)),
        _ => false,
    }
}

/// The best known of those that are not written in a shell.
fn forks(program: &str, words: &Words<'_>) -> bool {
    super::wrappers::is_interpreter(program)
        && words.all.iter().any(|word| {
            let text = shown(word);
            text.contains("fork while fork")
                || text.contains("fork while 1")
                || text.contains("while 1") && text.contains("fork()")
                || text.contains("while True") && text.contains("os.fork()")
                || text.contains("loop { fork }")
                || text.contains("loop{fork}")
        })
}

/// Destructive program whose path a glob word can match.
pub(crate) fn globbed_program(word: &str) -> Option<&'static str> {
    if !is_glob(word)
        || !word.starts_with('/')
        || word.contains(UNKNOWN)
        || has_active(word, &['{'])
    {
        return None;
    }
    let name = word.rsplit('/').next()?;
    ["rm", "dd", "mkfs.ext4", "chmod", "chown", "shred", "mv", "sh", "bash"]
        .into_iter()
        .find(|known| matches(name, known))
}
