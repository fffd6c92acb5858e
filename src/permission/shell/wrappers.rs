//! Table of wrapper programs, which run the command in their last words: their options, and the
//! number of operands before that command.

use crate::shell::Names;
use crate::shell::arguments::{Arguments, ValuedOptions};

/// A program that runs the command in its arguments, such as `nice`.
#[derive(Debug)]
pub(crate) struct Wrapper {
    /// Names of the programs.
    names: &'static [&'static str],
    /// Options without a value.
    flags: Names,
    /// Options whose value is the next word; short ones may have it attached.
    valued: Names,
    /// Number of operands before the program to run.
    operands: usize,
    /// True if `NAME=value` may precede the program to run.
    assigns: bool,
}

const fn wrapper(
    names: &'static [&'static str],
    flags: &'static str,
    valued: &'static str,
    operands: usize,
) -> Wrapper {
    Wrapper { names, flags: Names(flags), valued: Names(valued), operands, assigns: false }
}

const fn assigning(
    names: &'static [&'static str],
    flags: &'static str,
    valued: &'static str,
) -> Wrapper {
    Wrapper { assigns: true, ..wrapper(names, flags, valued, 0) }
}

/// All wrappers. Programs with equal options share an entry.
const WRAPPERS: &[Wrapper] = &[
    wrapper(&["ash-exec", "builtin", "busybox", "bwrap", "catchsegv", "eatmydata"], "", "", 0),
    wrapper(&["firejail", "noglob", "nocorrect", "nohup", "toybox", "valgrind"], "", "", 0),
    wrapper(&["zsh-exec"], "", "", 0),
    wrapper(&["gosu", "perf", "setuidgid", "su-exec"], "", "", 1),
    wrapper(&["caffeinate"], "-d -i -m -s -u", "-t -w", 0),
    wrapper(&["cgexec"], "--sticky", "-g", 0),
    wrapper(&["chpst"], "-v -P -0 -1 -2", "-u -U -b -e -/ -n -l -L -m -d -o -p -f -c -r -t", 0),
    wrapper(&["chroot"], "--skip-chdir", "--userspec --groups", 1),
    wrapper(&["chrt"], "-a -b -f -i -m -o -r -R -v", "-T -P -D", 1),
    wrapper(&["command"], "-p", "", 0),
    wrapper(&["cpulimit"], "-f -z -i -v", "-l -p -e", 0),
    wrapper(&["dbus-run-session"], "", "--config-file --dbus-daemon", 0),
    wrapper(&["doas"], "-n -s -L", "-u -C -a", 0),
    wrapper(&["dumb-init"], "-c -v", "-r", 0),
    assigning(
        &["env"],
        "-i -0 -v - --ignore-environment --null --debug",
        "-u -C -a --unset --chdir --argv0",
    ),
    wrapper(&["exec"], "-c -l", "-a", 0),
    wrapper(&["fakeroot"], "-u -b", "-l -s -i -b", 0),
    wrapper(&["faketime"], "-m -p", "-f", 1),
    wrapper(&["gdb"], "-q -batch", "-ex -x -p", 0),
    wrapper(&["gtimeout"], "-v", "-k -s", 1),
    wrapper(&["ionice"], "-t", "-c -n -p -P -u --class --classdata", 0),
    wrapper(&["i386", "linux32", "linux64"], "-v -R", "", 0),
    wrapper(&["ltrace"], "-f -c -C -S", "-e -o -p -s -u -l -n", 0),
    wrapper(&["nice"], "", "-n --adjustment", 0),
    wrapper(&["npx"], "-y --yes --no -q --quiet", "-p --package", 0),
    wrapper(
        &["nsenter"],
        "-a -m -u -i -n -p -U -C -T -Z -F -w -r",
        "-t -S -G -W --target --wd --root",
        0,
    ),
    wrapper(&["numactl"], "-a -l -s -H", "-i -N -m -C -p --interleave --membind --cpunodebind", 0),
    wrapper(&["pkexec"], "--disable-internal-agent", "--user", 0),
    wrapper(&["prlimit"], "", "-p --pid", 0),
    wrapper(&["proot"], "-0 -S", "-r -b -w -q -k -i", 0),
    wrapper(&["proxychains", "proxychains4"], "-q", "-f", 0),
    wrapper(&["rlwrap"], "-a -c -r", "-f -H -s -p", 0),
    wrapper(&["run0"], "", "-u -g -D --user", 0),
    wrapper(&["runuser"], "-l -m -p", "-u -g -G -s -w --user", 0),
    wrapper(&["setarch"], "-v -R -B", "-p", 1),
    wrapper(&["setpriv"], "", "--reuid --regid --groups --inh-caps --bounding-set", 0),
    wrapper(&["setsid"], "-c -f -w --ctty --fork --wait", "", 0),
    wrapper(&["softlimit"], "", "-a -c -d -f -l -m -n -o -p -r -s -t", 0),
    wrapper(&["sshpass"], "-e -v", "-p -f -d -P", 0),
    wrapper(&["stdbuf"], "", "-i -o -e --input --output --error", 0),
    wrapper(
        &["strace"],
        "-f -ff -c -C -v -q -qq -t -tt -T -y -yy -k",
        "-e -o -p -s -u -O -S -E -P",
        0,
    ),
    assigning(
        &["sudo"],
        "-A -b -E -H -K -k -n -P -S -s -i -v",
        "-u -g -h -p -C -T -r -t -D -R -U --user --group --host --prompt --chdir --chroot",
    ),
    wrapper(&["systemd-inhibit"], "", "--what --who --why --mode", 0),
    wrapper(
        &["systemd-run"],
        "-t -P -q -d -G -S --user --scope --pty --wait --pipe",
        "-p -u -H -M -E",
        0,
    ),
    wrapper(&["taskset"], "-a -c -p", "", 1),
    wrapper(&["time"], "-a -p -q -v", "-f -o", 0),
    wrapper(
        &["timeout"],
        "-v --foreground --preserve-status --verbose",
        "-k -s --kill-after --signal",
        1,
    ),
    wrapper(&["tini"], "-s -v -w -g", "-p -e", 0),
    wrapper(&["torsocks"], "-i", "-u -p -a -P", 0),
    wrapper(&["trickle"], "-s", "-u -d -p", 0),
    wrapper(&["unbuffer"], "-p", "", 0),
    wrapper(
        &["unshare"],
        "-m -u -i -n -p -U -C -T -f -r -c",
        "-S -G -R -w -l --wd --root --setuid --setgid",
        0,
    ),
    wrapper(&["vglrun"], "", "-d -c", 0),
    wrapper(
        &["xargs"],
        "-0 -p -r -t -x -o --null --no-run-if-empty --verbose --interactive --exit --max-lines \
         --replace --eof",
        "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-args --max-procs --max-chars --process-slot-var",
        0,
    ),
    wrapper(&["xvfb-run"], "-a -l", "-e -f -n -p -s -w", 0),
];

/// Architectures of setarch(8).
const ARCHITECTURES: Names = Names(
    "linux32 linux64 i386 i486 i586 i686 x86_64 athlon uname26 arm armv6l armv7l armv8l aarch64 ppc ppc32 \
    ppc64 ppcle ppc64le s390 s390x sparc sparc64 mips mips64 parisc parisc64 alpha ia64 riscv32 riscv64",
);

/// Options whose value can only follow `=`.
const OPTIONAL_VALUES: Names = Names("--max-lines --replace --eof");

/// Options of wrappers that change the working folder: program, letter and long form.
const FOLDERS: [(&str, &str, &[&str]); 7] = [
    ("env", "C", &["--chdir"]),
    ("nsenter", "w", &["--wd"]),
    ("proot", "w", &["--pwd"]),
    ("run0", "D", &["--chdir"]),
    ("sudo", "D", &["--chdir"]),
    ("systemd-run", "d", &["--working-directory"]),
    ("unshare", "w", &["--wd"]),
];

/// Folder to which the wrapper `name` with the options `words` changes before it runs its program.
pub(crate) fn folder_of<'w>(name: &str, words: &[&'w str]) -> Option<&'w str> {
    let (_, letters, long) = FOLDERS.iter().find(|(program, ..)| *program == name)?;
    let valued = ValuedOptions { letters, long, ..ValuedOptions::default() };
    let arguments = Arguments::read(words.iter().copied(), valued);
    arguments.value(letters.chars().next(), long[0])
}

/// Returns the wrapper called `name`. `None` if the program is not a wrapper.
pub(crate) fn wrapper_named(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&name))
}

impl Wrapper {
    /// Returns the index in `words` of the program to run (their number if there is no program),
    /// and true if everything before it was understood. `words` are the arguments of the wrapper.
    pub(crate) fn program<'a>(&self, words: impl Iterator<Item = &'a str>) -> (usize, bool) {
        let mut sure = true;
        let mut left = self.operands;
        let mut at = 0;
        let mut value = false;
        let mut options = true;
        for word in words {
            if value {
                value = false;
            } else if options && word == "--" {
                options = false;
            } else if options && word.starts_with('-') {
                value = self.takes_value(word);
                sure &= value || self.is_known(word);
            } else if self.assigns && is_assignment(word) {
            } else if left > 0 && self.names.contains(&"setarch") && !ARCHITECTURES.has(word) {
                // The architecture is optional.
                return (at, sure);
            } else if left > 0 {
                left -= 1;
                // Options of setarch may follow the architecture.
                options = self.names.contains(&"setarch");
            } else {
                return (at, sure);
            }
            at += 1;
        }
        (at, sure)
    }

    fn takes_value(&self, word: &str) -> bool {
        if self.valued.has(word) {
            return true;
        }
        // The last of several short ones.
        let mut letters = word.get(1..).unwrap_or_default().chars();
        let last = letters.next_back().filter(|_| !word.starts_with("--"));
        last.is_some_and(|last| has_letter(self.valued, last))
            && letters.all(|flag| has_letter(self.flags, flag))
    }

    fn is_known(&self, word: &str) -> bool {
        if self.flags.has(word) {
            return true;
        }
        if let Some((name, _)) = word.split_once('=') {
            return self.valued.has(name) || OPTIONAL_VALUES.has(name);
        }
        let short = word.strip_prefix('-').unwrap_or(word);
        if short.starts_with('-') {
            return false;
        }
        let attached = short.chars().next().is_some_and(|first| has_letter(self.valued, first));
        let digits = short.chars().all(|c| c.is_ascii_digit()) && self.names.contains(&"nice");
        attached || digits || short.chars().all(|flag| has_letter(self.flags, flag))
    }
}

/// True if `list` contains the short option `-letter`.
fn has_letter(list: Names, letter: char) -> bool {
    list.iter().any(|known| known.len() == 2 && known.ends_with(letter))
}

/// True for a word of the form `NAME=value`.
pub(crate) fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| super::reader::is_name(name))
}

/// Shells, which execute their standard input as commands.
pub(crate) const SHELLS: Names = Names("ash bash csh dash fish ksh mksh rbash sh tcsh yash zsh");

/// Other programs that execute their standard input.
const INTERPRETERS: Names = Names(
    "\
    bun deno elixir ghci guile irb lua luajit node nodejs osascript perl php pwsh python R ruby \
    tclsh",
);

/// True if `name` is an interpreter, with or without a version suffix.
pub(crate) fn is_interpreter(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.has(stem)
}

/// Programs that fetch from the network to standard output.
pub(crate) const DOWNLOADERS: Names = Names(
    "\
    nc ncat netcat socat aria2c axel curl curlie fetch ftp http https lwp-request lynx w3m wget xh",
);
