//! Table of wrapper programs that run the rest of their words: their options with values, and the
//! number of operands before the program.

/// A program that runs what follows it.
#[derive(Debug)]
pub(crate) struct Wrapper {
    /// Its name.
    pub(crate) name: &'static str,
    /// Options without a value.
    pub(crate) flags: &'static str,
    /// Options whose value is the next word; short ones may have it attached.
    pub(crate) valued: &'static str,
    /// Operands before the program.
    pub(crate) operands: usize,
    /// True if `NAME=value` may precede the program.
    pub(crate) assigns: bool,
}

const fn wrapper(
    name: &'static str,
    flags: &'static str,
    valued: &'static str,
    operands: usize,
) -> Wrapper {
    Wrapper { name, flags, valued, operands, assigns: false }
}

const fn assigning(name: &'static str, flags: &'static str, valued: &'static str) -> Wrapper {
    Wrapper { name, flags, valued, operands: 0, assigns: true }
}

/// Sorted by name.
const WRAPPERS: [Wrapper; 71] = [
    wrapper("ash-exec", "", "", 0),
    wrapper("builtin", "", "", 0),
    wrapper("busybox", "", "", 0),
    wrapper("bwrap", "", "", 0),
    wrapper("caffeinate", "-d -i -m -s -u", "-t -w", 0),
    wrapper("catchsegv", "", "", 0),
    wrapper("cgexec", "--sticky", "-g", 0),
    wrapper("chpst", "-v -P -0 -1 -2", "-u -U -b -e -/ -n -l -L -m -d -o -p -f -c -r -t", 0),
    wrapper("chroot", "--skip-chdir", "--userspec --groups", 1),
    wrapper("chrt", "-a -b -f -i -m -o -r -R -v", "-T -P -D", 1),
    wrapper("command", "-p", "", 0),
    wrapper("cpulimit", "-f -z -i -v", "-l -p -e", 0),
    wrapper("dbus-run-session", "", "--config-file --dbus-daemon", 0),
    wrapper("doas", "-n -s -L", "-u -C -a", 0),
    wrapper("dumb-init", "-c -v", "-r", 0),
    wrapper("eatmydata", "", "", 0),
    assigning("env", "-i -0 -v - --ignore-environment --null --debug", "-u -C --unset --chdir"),
    wrapper("exec", "-c -l", "-a", 0),
    wrapper("fakeroot", "-u -b", "-l -s -i -b", 0),
    wrapper("faketime", "-m -p", "-f", 1),
    wrapper("firejail", "", "", 0),
    wrapper("gdb", "-q -batch", "-ex -x -p", 0),
    wrapper("gosu", "", "", 1),
    wrapper("gtimeout", "-v", "-k -s", 1),
    wrapper("i386", "-v -R", "", 0),
    wrapper("ionice", "-t", "-c -n -p -P -u --class --classdata", 0),
    wrapper("linux32", "-v -R", "", 0),
    wrapper("linux64", "-v -R", "", 0),
    wrapper("ltrace", "-f -c -C -S", "-e -o -p -s -u -l -n", 0),
    wrapper("nice", "", "-n --adjustment", 0),
    wrapper("noglob", "", "", 0),
    wrapper("nocorrect", "", "", 0),
    wrapper("nohup", "", "", 0),
    wrapper("npx", "-y --yes --no -q --quiet", "-p --package", 0),
    wrapper("nsenter", "-a -m -u -i -n -p -U -C -T -Z -F -w -r", "-t -S -G -W --target", 0),
    wrapper("numactl", "-a -l -s -H", "-i -N -m -C -p --interleave --membind --cpunodebind", 0),
    wrapper("perf", "", "", 1),
    wrapper("pkexec", "--disable-internal-agent", "--user", 0),
    wrapper("prlimit", "", "-p --pid", 0),
    wrapper("proot", "-0 -S", "-r -b -w -q -k -i", 0),
    wrapper("proxychains", "-q", "-f", 0),
    wrapper("proxychains4", "-q", "-f", 0),
    wrapper("rlwrap", "-a -c -r", "-f -H -s -p", 0),
    wrapper("run0", "", "-u -g -D --user", 0),
    wrapper("runuser", "-l -m -p", "-u -g -G -s -w --user", 0),
    wrapper("setarch", "-v -R -B", "-p", 1),
    wrapper("setpriv", "", "--reuid --regid --groups --inh-caps --bounding-set", 0),
    wrapper("setsid", "-c -f -w --ctty --fork --wait", "", 0),
    wrapper("setuidgid", "", "", 1),
    wrapper("softlimit", "", "-a -c -d -f -l -m -n -o -p -r -s -t", 0),
    wrapper("sshpass", "-e -v", "-p -f -d -P", 0),
    wrapper("stdbuf", "", "-i -o -e --input --output --error", 0),
    wrapper(
        "strace",
        "-f -ff -c -C -v -q -qq -t -tt -T -y -yy -k",
        "-e -o -p -s -u -O -S -E -P",
        0,
    ),
    wrapper("su-exec", "", "", 1),
    assigning(
        "sudo",
        "-A -b -E -H -K -k -n -P -S -s -i -v",
        "-u -g -h -p -C -T -r -t -D -R -U --user --group --host --prompt --chdir --chroot",
    ),
    wrapper("systemd-inhibit", "", "--what --who --why --mode", 0),
    wrapper(
        "systemd-run",
        "-t -P -q -d -G -S --user --scope --pty --wait --pipe",
        "-p -u -H -M -E",
        0,
    ),
    wrapper("taskset", "-a -c -p", "", 1),
    wrapper("time", "-a -p -q -v", "-f -o", 0),
    wrapper(
        "timeout",
        "-v --foreground --preserve-status --verbose",
        "-k -s --kill-after --signal",
        1,
    ),
    wrapper("tini", "-s -v -w -g", "-p -e", 0),
    wrapper("torsocks", "-i", "-u -p -a -P", 0),
    wrapper("toybox", "", "", 0),
    wrapper("trickle", "-s", "-u -d -p", 0),
    wrapper("unbuffer", "-p", "", 0),
    wrapper("unshare", "-m -u -i -n -p -U -C -T -f -r -c", "-S -G -R -w -l", 0),
    wrapper("valgrind", "", "", 0),
    wrapper("vglrun", "", "-d -c", 0),
    wrapper(
        "xargs",
        "-0 -p -r -t -x -o --null --no-run-if-empty --verbose --interactive --exit",
        "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-args --max-procs --max-lines --replace",
        0,
    ),
    wrapper("xvfb-run", "-a -l", "-e -f -n -p -s -w", 0),
    wrapper("zsh-exec", "", "", 0),
];

/// The wrapper of that name.
pub(crate) fn wrapper_named(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}

impl Wrapper {
    /// Index of the program in `words` (without the wrapper's name), and whether everything before
    /// it was understood.
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
            } else if left > 0 {
                left -= 1;
                options = false;
            } else {
                return (at, sure);
            }
            at += 1;
        }
        (at, sure)
    }

    fn takes_value(&self, word: &str) -> bool {
        self.valued.split(' ').any(|known| known == word)
            || (!word.starts_with("--") && word.len() > 2 && {
                // The last of several short ones.
                let (flags, last) = word.split_at(word.len() - last_length(word));
                let last_valued =
                    self.valued.split(' ').any(|known| known[1.min(known.len())..] == *last);
                let known = |flag: char| self.has_flag(flag);
                last_valued && flags[1..].chars().all(known)
            })
    }

    fn has_flag(&self, flag: char) -> bool {
        self.flags.split(' ').any(|known| known.len() == 2 && known.ends_with(flag))
    }

    fn is_known(&self, word: &str) -> bool {
        if self.flags.split(' ').any(|known| known == word) {
            return true;
        }
        if let Some((name, _)) = word.split_once('=') {
            return self.valued.split(' ').any(|known| known == name);
        }
        let short = word.strip_prefix('-').unwrap_or(word);
        if short.starts_with('-') {
            return false;
        }
        let attached = short.chars().next().is_some_and(|first| {
            self.valued.split(' ').any(|known| known.len() == 2 && known.ends_with(first))
        });
        let digits = short.chars().all(|c| c.is_ascii_digit()) && self.name == "nice";
        attached || digits || short.chars().all(|flag| self.has_flag(flag))
    }
}

fn last_length(word: &str) -> usize {
    word.chars().next_back().map_or(0, char::len_utf8)
}

/// `NAME=value`.
pub(crate) fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| super::reader::is_name(name))
}

/// Shells: their input is commands.
pub(crate) const SHELLS: [&str; 12] =
    ["ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "sh", "tcsh", "yash", "zsh"];

/// Other programs that execute their input.
pub(crate) const INTERPRETERS: [&str; 18] = [
    "bun",
    "deno",
    "elixir",
    "ghci",
    "guile",
    "irb",
    "lua",
    "luajit",
    "node",
    "nodejs",
    "osascript",
    "perl",
    "php",
    "pwsh",
    "python",
    "R",
    "ruby",
    "tclsh",
];

/// True if `name` is an interpreter, with or without a version suffix.
pub(crate) fn is_interpreter(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&stem) || (stem == "python" && !stem.is_empty())
}

/// Programs that fetch from the network to standard output.
pub(crate) const DOWNLOADERS: [&str; 17] = [
    "nc",
    "ncat",
    "netcat",
    "socat",
    "aria2c",
    "axel",
    "curl",
    "curlie",
    "fetch",
    "ftp",
    "http",
    "https",
    "lwp-request",
    "lynx",
    "w3m",
    "wget",
    "xh",
];
