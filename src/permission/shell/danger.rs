//! Commands that no agent, grant or flag may run, as far as the text of one command shows.
//!
//! This is protection against accidents and crude attacks. The sandbox is the boundary.

use crate::shell::Names;
use crate::shell::arguments::{Arguments, ValuedOptions};
use crate::shell::word::{UNKNOWN, has_active, is_glob, matches, resolve, shown};

/// Rule by which a command is always denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Danger {
    /// Name of the rule, such as `fork-bomb`.
    pub(crate) rule: &'static str,
    /// Reason for the model and the user.
    pub(crate) reason: &'static str,
}

/// The command deletes, changes or moves away a whole system or home folder.
pub(crate) const DELETES: Danger = Danger {
    rule: "delete-everything",
    reason: "it would change or delete a whole system or home folder; name the folder you mean",
};
/// The command changes the access rights of a whole system or home folder.
pub(crate) const LOCKS: Danger = Danger {
    rule: "lock-everything",
    reason: "it would change who may use a whole system or home folder; name the folder you mean",
};
/// The command starts processes without end.
pub(crate) const FORK_BOMB: Danger =
    Danger { rule: "fork-bomb", reason: "it would start processes without end" };
/// The command overwrites or repartitions a disk, or overwrites the memory.
pub(crate) const DEVICE: Danger =
    Danger { rule: "raw-device", reason: "it would overwrite a disk or the memory" };
/// The command executes text that it downloads.
pub(crate) const DOWNLOADED: Danger = Danger {
    rule: "run-download",
    reason: "it would run what it downloads unseen; download to a file, read it, then run it",
};
/// The command executes text that it decodes.
pub(crate) const DECODED: Danger = Danger {
    rule: "run-decoded",
    reason: "it would run text that it decodes, whose content is not shown; decode to a file, read \
             it, then run it",
};
/// The command stops or crashes the machine, or ends all processes of the user.
pub(crate) const HOST: Danger = Danger {
    rule: "stop-machine",
    reason: "it would stop or crash the machine, or end every process of the user",
};

/// Working directory and home of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandLocation<'a> {
    /// Working directory. `None` if it is unknown.
    pub(crate) cwd: Option<&'a str>,
    /// Home folder of the user.
    pub(crate) home: &'a str,
}

/// Folders that a system and its users need in order to work.
const SYSTEM: Names = Names(
    "\
    /Applications /Library /System /Users /Volumes /bin /boot /boot/efi /dev /etc /home /lib \
    /lib32 /lib64 /libx32 /media /mnt /nix /nix/store /opt /private /private/etc /private/var \
    /proc /root /run /sbin /srv /sys /usr /usr/bin /usr/include /usr/lib /usr/lib32 /usr/lib64 \
    /usr/libexec /usr/local /usr/local/bin /usr/local/lib /usr/sbin /usr/share /var /var/lib \
    /var/lib/dpkg /var/log /vmlinuz",
);
/// Beginnings of the names of disks and similar devices in `/dev`.
const DISKS: [&str; 20] = [
    "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "dm-", "md", "loop", "mapper",
    "sr", "zd", "nbd", "ram", "zram", "pmem", "mtd", "vg",
];
const MEMORY: [&str; 4] = ["mem", "kmem", "port", "nvram"];
/// Names of disks against which globs are tested.
const SAMPLES: [&str; 8] = ["sda", "sda1", "vda", "hda", "nvme0n1", "mmcblk0", "xvda", "sdb"];
/// Files that act on the kernel at once when they are written.
const TRIGGERS: [&str; 4] =
    ["/proc/sysrq-trigger", "/sys/power/state", "/proc/kcore", "/sys/kernel/debug/provoke-crash"];

/// True if `text` names `/`, a system folder, a home folder or a parent of `place.home` (except
/// `/tmp`) as a whole, or all of its contents. False if the path is known only at run time.
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
        || (if globs { SYSTEM.iter().any(same) } else { SYSTEM.has(&whole) })
        || same(place.home.trim_end_matches('/'))
        || above_home.filter(|above| !above.is_empty() && *above != "/tmp").any(same)
}

fn part_matches(pattern: &str, name: &str) -> bool {
    if is_glob(pattern) { matches(pattern, name) } else { pattern == name }
}

/// True for a glob such as `*`, `.*`, `?*` or `.[!.]*`, which matches all names of a folder or all
/// hidden ones.
fn takes_all(part: &str) -> bool {
    is_glob(part)
        && (matches(part, "sample") && matches(part, "x.y") || matches(part, ".sample"))
        && !part.chars().any(|c| c.is_ascii_alphanumeric())
}

/// True if writing to the path `text` overwrites a disk or memory. False if the path is known only
/// at run time.
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

/// True if writing to the path `text` acts on the kernel at once. False if the path is known only
/// at run time.
pub(crate) fn is_trigger(text: &str, place: CommandLocation<'_>) -> bool {
    resolve(text, place.cwd).is_some_and(|path| TRIGGERS.contains(&path.as_str()))
}

/// Danger of writing to the path `text`. `None` if there is none.
pub(crate) fn written(text: &str, place: CommandLocation<'_>) -> Option<Danger> {
    let device = is_disk(text, place).then_some(DEVICE);
    device.or_else(|| is_trigger(text, place).then_some(HOST))
}

/// Arguments of a program.
struct Words<'a> {
    all: &'a [&'a str],
    place: CommandLocation<'a>,
}

impl<'a> Words<'a> {
    /// True if one of the words is in `list`.
    fn has(&self, list: &'static str) -> bool {
        self.all.iter().any(|word| Names(list).has(word))
    }

    /// True if one of the words begins with one of `beginnings`.
    fn begins(&self, beginnings: &[&str]) -> bool {
        self.all.iter().any(|word| beginnings.iter().any(|beginning| word.starts_with(beginning)))
    }

    /// True if an argument is one of the `short` options, alone or combined, or the option `long`,
    /// possibly abbreviated.
    fn option(&self, short: &[char], long: &str) -> bool {
        self.all.iter().any(|word| match word.strip_prefix("--") {
            Some(name) => name.len() >= 3 && !long.is_empty() && long.starts_with(name),
            None => word.strip_prefix('-').is_some_and(|letters| letters.contains(short)),
        })
    }

    fn first(&self) -> &'a str {
        self.all.first().copied().unwrap_or_default()
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

/// Rule: names of programs, their danger, and a test that is true for dangerous arguments.
type DangerRule = (&'static [&'static str], Danger, fn(&Words<'_>) -> bool);

/// All rules. The first one that applies counts.
static RULES: &[DangerRule] = &[
    (&["rm", "srm", "grm"], DELETES, removes_all),
    (&["rimraf", "trash", "trash-put", "shred", "wipe", "del"], DELETES, |words| words.system()),
    (&["mv"], DELETES, moves_away),
    (&["rsync"], DELETES, |words| {
        let removes = words.begins(&["--del"]) || words.has("--remove-source-files");
        removes && words.operands().last().is_some_and(|word| is_system(word, words.place))
    }),
    (&["tar", "zip"], DELETES, |words| words.has("--remove-files") && words.system()),
    (&["chmod"], LOCKS, |words| {
        let recursive = words.option(&['R'], "recursive");
        (recursive || words.all.iter().any(|word| is_locking(word))) && words.system()
    }),
    (&["chown", "chgrp", "chattr", "setfacl", "chcon"], LOCKS, |words| {
        words.option(&['R'], "recursive") && words.system()
    }),
    (&["dd"], DEVICE, |words| {
        let targets = words.all.iter().filter_map(|word| word.strip_prefix("of="));
        targets.into_iter().any(|target| is_disk(target, words.place))
    }),
    (&["mkswap", "newfs", "mkntfs", "mkdosfs", "pvcreate", "vgcreate"], DEVICE, |words| {
        words.disk()
    }),
    (&["blkdiscard", "shred", "wipe", "scrub", "pvremove", "nwipe"], DEVICE, |words| words.disk()),
    (&["tee", "truncate", "ddrescue", "dcfldd", "fallocate", "sponge"], DEVICE, |words| {
        words.disk()
    }),
    (&["badblocks"], DEVICE, |words| words.disk() && words.option(&['w'], "")),
    (&["vgremove", "lvremove"], DEVICE, |_| true),
    (&["wipefs"], DEVICE, |words| words.disk() && words.option(&['a', 'o'], "all")),
    (&["cp", "mv", "install", "ln", "rsync", "scp"], DEVICE, |words| {
        words.operands().nth(1).is_some()
            && words.operands().last().is_some_and(|word| is_disk(word, words.place))
    }),
    // Programs that change how disks are divided.
    (&["sgdisk"], DEVICE, |words| {
        let reads = |word: &&str| {
            Names("-p --print --info -v --verify").has(word)
                || word.starts_with("--info=")
                || word.starts_with("-i")
        };
        words.disk() && !words.all.iter().all(|word| !word.starts_with('-') || reads(word))
    }),
    (&["fdisk", "gdisk", "cfdisk", "sfdisk", "cgdisk"], DEVICE, |words| {
        words.disk() && !words.has("-l --list -d --dump -J --json -s -x")
    }),
    (&["parted"], DEVICE, |words| {
        let acts = Names("mklabel mktable mkpart rm resizepart rescue set name disk_set");
        let mut parts = words.all.iter().flat_map(|word| word.split(' '));
        words.disk() && parts.any(|word| acts.has(word))
    }),
    // Programs that make volumes, and those that erase a disk by its own means.
    (&["cryptsetup"], DEVICE, |words| {
        words.disk() && words.has("luksFormat erase luksErase reencrypt")
    }),
    (&["hdparm"], DEVICE, |words| {
        let acts = ["--security-erase", "--trim-sector", "--write-sector", "--make-bad"];
        words.disk() && words.begins(&acts)
    }),
    (&["nvme"], DEVICE, |words| words.disk() && words.has("format sanitize write-zeroes dsm")),
    (&["mdadm"], DEVICE, |words| words.disk() && words.has("--create -C --zero-superblock")),
    (&["zpool"], DEVICE, |words| {
        Names("destroy labelclear").has(words.first()) || words.first() == "create" && words.disk()
    }),
    (&["diskutil"], DEVICE, |words| {
        let verb = words.first().to_ascii_lowercase();
        Names("secureerase reformat").has(&verb)
            || ["erase", "partition", "zero", "random"].iter().any(|act| verb.starts_with(act))
    }),
    (&["shutdown", "reboot", "halt", "poweroff"], HOST, |words| !words.has("--help -c --version")),
    (&["init", "telinit"], HOST, |words| Names("0 6").has(words.first())),
    (&["systemctl", "loginctl"], HOST, stops_unit),
    (&["kexec"], HOST, |words| words.has("-e --exec")),
    // The first is the signal; it is the target elsewhere.
    (&["kill"], HOST, |words| words.all.iter().skip(1).any(|word| *word == "-1")),
    (&["killall5"], HOST, |_| true),
    (&["dbus-send", "busctl", "gdbus"], HOST, |words| {
        let mut verbs = words.all.iter().filter_map(|word| word.rsplit('.').next());
        verbs.any(|verb| Names("PowerOff Reboot Halt").has(verb))
    }),
    (&["tee", "cp", "dd", "mv", "install"], HOST, |words| {
        let mut targets = words.all.iter().map(|word| word.strip_prefix("of=").unwrap_or(word));
        targets.any(|target| is_trigger(target, words.place))
    }),
];

/// Danger of `program` with `arguments`; wrappers have been removed. `None` if there is none.
pub(crate) fn program_danger(
    program: &str,
    arguments: &[&str],
    place: CommandLocation<'_>,
) -> Option<Danger> {
    let words = Words { all: arguments, place };
    let rule = RULES.iter().find(|(names, _, applies)| names.contains(&program) && applies(&words));
    let formats = program.starts_with("mkfs") || program.starts_with("mke2fs");
    rule.map(|(_, danger, _)| *danger)
        .or_else(|| (formats && words.disk()).then_some(DEVICE))
        .or_else(|| forks(program, &words).then_some(FORK_BOMB))
}

fn removes_all(words: &Words<'_>) -> bool {
    let root = |word: &&str| {
        resolve(word, words.place.cwd).is_some_and(|path| {
            is_glob(&path) && path.matches('/').count() == 1 && is_system(word, words.place)
        })
    };
    words.has("--no-preserve-root")
        || (words.option(&['r', 'R'], "recursive") && words.system())
        || words.all.iter().any(root)
}

fn moves_away(words: &Words<'_>) -> bool {
    let (letters, long) = ("tS", &["--target-directory", "--suffix"] as &[&str]);
    let valued = ValuedOptions { letters, long, ..ValuedOptions::default() };
    let arguments = Arguments::read(words.all.iter().copied(), valued);
    // The last one is where it goes, unless an option says that.
    let has_target = arguments.has(Some('t'), "--target-directory");
    let operands = &arguments.operands[..];
    let sources = operands.len().saturating_sub(usize::from(!has_target));
    operands[..sources].iter().any(|word| is_system(word, words.place))
}

/// True for a mode of `chmod` that takes away the owner's access to a folder.
fn is_locking(mode: &str) -> bool {
    let octal = mode.len() <= 4 && mode.starts_with('0') && mode.chars().all(|c| c.is_digit(8));
    octal && mode.trim_start_matches('0').len() <= 2
        || Names("a-rwx u-rwx -rwx a-x u-x -x ugo-rwx a= u= = a-r u-r -r").has(mode)
}

fn stops_unit(words: &Words<'_>) -> bool {
    let units = Names("poweroff reboot halt rescue emergency shutdown");
    let stops = |unit: &str| units.has(unit.split('.').next().unwrap_or_default());
    words.operands().next().is_some_and(|verb| {
        Names("poweroff reboot halt kexec soft-reboot rescue emergency").has(verb)
            || Names("isolate start").has(verb) && words.operands().any(stops)
    })
}

/// True if an interpreter gets a well-known fork bomb as its program text.
fn forks(program: &str, words: &Words<'_>) -> bool {
    const BOMBS: [(&str, &str); 6] = [
        ("fork while fork", ""),
        ("fork while 1", ""),
        ("while 1", "fork()"),
        ("while True", "os.fork()"),
        ("loop { fork }", ""),
        ("loop{fork}", ""),
    ];
    super::wrappers::is_interpreter(program)
        && words.all.iter().any(|word| {
            let text = shown(word);
            BOMBS.iter().any(|(one, other)| text.contains(one) && text.contains(other))
        })
}

/// Returns a shell or a destructive program whose path the glob `word` can match. `None` if there
/// is none, or if `word` is no absolute path or is known only at run time.
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
