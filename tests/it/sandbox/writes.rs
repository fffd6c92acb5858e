//! Writing to read-only places.

use super::{Proof, SandboxCase, Tiers, Twin};

const fn denied(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase {
        name,
        tiers: Tiers::Both,
        proof: Proof::Denied,
        script,
        forbidden: "T=$OUT",
        allowed: "T=$WS/area",
        twin: Twin::Inside,
    }
}

/// Operations that Landlock does not control: owner and times of a file.
const fn denied_by_mounts(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase { tiers: Tiers::Full, ..denied(name, script) }
}

/// A place of the host. A command may have its own under that name.
const fn nowhere(name: &'static str, forbidden: &'static str) -> SandboxCase {
    SandboxCase {
        name,
        tiers: Tiers::Both,
        proof: Proof::Nowhere,
        script: "echo x > $T/posse-escape-$ID && echo DONE",
        forbidden,
        allowed: "T=$WS/area",
        twin: Twin::Inside,
    }
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn rows() -> Vec<SandboxCase> {
    vec![
        denied("create a file", "echo x > $T/new && echo DONE"),
        denied("append to a file", "echo x >> $T/file.txt && echo DONE"),
        denied("empty a file", ": > $T/file.txt && echo DONE"),
        denied("truncate a file", "truncate -s 1 $T/file.txt && echo DONE"),
        denied("truncate by opening", "python3 -IS $PROBE truncating $T/file.txt"),
        denied("open for reading and writing", "python3 -IS $PROBE writing $T/file.txt"),
        denied("write through a mapping", "python3 -IS $PROBE mapped $T/file.txt"),
        denied("make a folder", "mkdir $T/made && echo DONE"),
        denied("remove a folder", "rmdir $T/empty && echo DONE"),
        denied("remove a file", "rm $T/file.txt && echo DONE"),
        denied("remove a tree", "rm -r $T/dir && echo DONE"),
        denied("rename a file", "mv -T $T/file.txt $T/other && echo DONE"),
        denied("rename into it", "echo x > $WS/moved && mv -T $WS/moved $T/in && echo DONE"),
        denied("rename out of it", "mv -T $T/file.txt $WS/stolen && echo DONE"),
        denied(
            "rename a folder out of it",
            "python3 -c \"import os; os.rename('$T/dir', '$WS/stolen')\" && echo DONE",
        ),
        denied(
            "exchange names",
            "echo x > $WS/mine; python3 -IS $PROBE exchange $WS/mine $T/file.txt",
        ),
        denied("link a file into it", "ln $WS/src/main.rs $T/hard && echo DONE"),
        denied("make a link", "ln -s file.txt $T/soft && echo DONE"),
        denied("replace a link", "ln -sfT /etc $T/link && echo DONE"),
        denied("write through a link in it", "echo x > $T/link && echo DONE"),
        denied("make a pipe", "mkfifo $T/pipe && echo DONE"),
        denied("bind a socket", "cd $T && python3 -IS $PROBE bound socket")
            .with_tiers(Tiers::Full)
            .with_twin(Twin::Unconfined, "T=$WS/area"),
        denied("make a device", "python3 -IS $PROBE device $T/null")
            .with_twin(Twin::Unconfined, "T=$WS/area"),
        denied("make a device in the workspace", "python3 -IS $PROBE device $WS/area/null")
            .with_twin(Twin::Unconfined, "T=$WS/area"),
        denied("name a file without a name", "python3 -IS $PROBE temporary $T"),
        denied("write beneath a descriptor", "python3 -IS $PROBE beneath $T"),
        denied("copy", "cp $WS/src/main.rs $T/copy && echo DONE"),
        denied("install", "install -m 755 $WS/src/main.rs $T/installed && echo DONE"),
        denied("tee", "echo x | tee $T/teed > $WS/teed && echo DONE"),
        denied("dd", "dd if=/dev/zero of=$T/file.txt bs=1 count=1 conv=notrunc && echo DONE"),
        denied("sed in place", "sed -i s/keep/lost/ $T/file.txt && echo DONE"),
        denied(
            "perl in place",
            "perl -pi -e s/keep/lost/ $T/file.txt; grep -q lost $T/file.txt && echo DONE",
        ),
        denied(
            "extract an archive",
            "tar -C $WS -cf $WS/x.tar src/main.rs && tar -C $T -xf $WS/x.tar && echo DONE",
        ),
        denied("make a repository", "git init -q $T/repository && echo DONE"),
        denied("grow a file", "fallocate -l 4096 $T/file.txt && echo DONE"),
        denied("copy in the kernel", COPY_FILE_RANGE),
        denied("through the parent", "cd $T/dir && echo x > ../up && echo DONE"),
        denied("through dots", "echo x > $WS/../ws/../${T##*/}/dots && echo DONE")
            .with_twin(Twin::Inside, "T=ws; cd $WS"),
        denied("through a new link", "ln -s $T $WS/way && echo x > $WS/way/new && echo DONE"),
        denied(
            "through two links",
            "ln -s $T $WS/one && ln -s one $WS/two && echo x > $WS/two/new && echo DONE",
        ),
        denied("through the root of a process", "echo x > /proc/self/root$T/new && echo DONE"),
        denied("through its folder", "cd $T && echo x > /proc/self/cwd/new && echo DONE"),
        denied("through a descriptor", "exec 7<$T && echo x > /proc/self/fd/7/new && echo DONE"),
        denied("through /dev/fd", "exec 7<$T/file.txt && echo x > /dev/fd/7 && echo DONE"),
        denied("through a thread", "echo x > /proc/thread-self/root$T/new && echo DONE"),
        denied("a name with a newline", "echo x > \"$T/a\"$'\\n'\"b\" && echo DONE"),
        denied("a long name", "echo x > $T/$(printf %0250d 0) && echo DONE"),
        denied("a background job", "(sleep 0.05; echo x > $T/later && echo DONE) & wait"),
        denied("code from memory", "python3 -IS $PROBE memfd $T/from-memory"),
        denied("the loader itself", LOADER),
        denied("a link swapped again and again", "python3 -IS $PROBE swap $T/swapped")
            .with_twin(Twin::Inside, "OUT=$WS/area/dir; export OUT; T=$WS/area")
            .with_forbidden("T=$WS/area"),
        denied_by_mounts("change a mode", "chmod 777 $T/file.txt && echo DONE"),
        denied_by_mounts("change an owner", "chown $(id -u) $T/file.txt && echo DONE"),
        denied_by_mounts("change times", "touch -d 2001-01-01 $T/file.txt && echo DONE"),
        denied_by_mounts("set an attribute", "python3 -IS $PROBE attribute $T/file.txt"),
        nowhere("the root", "T=/"),
        nowhere("shared memory", "T=/dev/shm"),
        nowhere("the folder for temporary files", "T=/tmp"),
        nowhere("the lasting folder for temporary files", "T=/var/tmp"),
        nowhere("the configuration of the system", "T=/etc"),
        nowhere("programs", "T=/usr/local/bin"),
        nowhere("what runs", "T=/run"),
        nowhere("devices", "T=/dev"),
        denied("the home folder", "echo x > $T/new && echo DONE").with_forbidden("T=$HOME"),
        denied("the state directory", "echo x > $T/grants.json && echo DONE")
            .with_forbidden("T=$STATE"),
        denied("another session", "echo x > $T/session.jsonl && echo DONE")
            .with_forbidden("T=$STATE/sessions/other"),
        denied("its own session", "echo x > $T/session.jsonl && echo DONE")
            .with_forbidden("T=$STATE/sessions/this"),
        denied("a new folder beside the workspace", "mkdir $T/ws-evil && echo DONE")
            .with_forbidden("T=$WS/.."),
        denied("the workspace itself renamed", "mv -T $T $T-moved && echo DONE")
            .with_forbidden("T=$WS"),
        denied("a setting of the kernel", "echo x > $T && echo DONE")
            .with_forbidden("T=/proc/sys/kernel/hostname")
            .with_twin(Twin::Inside, "T=/dev/null"),
        denied("a switch of the kernel", "echo 0 > $T && echo DONE")
            .with_forbidden("T=/proc/sysrq-trigger")
            .with_twin(Twin::Inside, "T=/dev/null"),
        denied("its own limits", "echo -17 > $T && echo DONE")
            .with_forbidden("T=/proc/$PPID/oom_score_adj")
            .with_twin(Twin::Inside, "T=/dev/null"),
        denied("a control group", "mkdir $T && echo DONE")
            .with_forbidden("T=/sys/fs/cgroup/posse-escape-$ID")
            .with_twin(Twin::Inside, "T=$WS/area/group"),
    ]
}

const COPY_FILE_RANGE: &str = "python3 -c \"
import os
source = os.open('$WS/src/main.rs', os.O_RDONLY)
target = os.open('$T/file.txt', os.O_WRONLY)
os.copy_file_range(source, target, 4)
\" && echo DONE";

const LOADER: &str = "for l in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do
  [ -e $l ] && $l /bin/cp $WS/src/main.rs $T/loaded && echo DONE
done";

impl SandboxCase {
    pub(super) const fn with_tiers(self, tiers: Tiers) -> SandboxCase {
        SandboxCase { tiers, ..self }
    }

    pub(super) const fn with_forbidden(self, forbidden: &'static str) -> SandboxCase {
        SandboxCase { forbidden, ..self }
    }

    pub(super) const fn with_twin(self, twin: Twin, allowed: &'static str) -> SandboxCase {
        SandboxCase { allowed, twin, ..self }
    }
}
