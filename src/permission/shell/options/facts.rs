//! Programs that print facts about the machine, or compute with their arguments. Sources: the
//! manuals of coreutils 9.1, procps 4.0 (`ps`, `free`, `uptime`), util-linux 2.38 (`lscpu`),
//! hostname 3.23, glibc 2.36 (`getconf`, `locale`) and bash 5.2 (`command`, `printf`, `test`,
//! `type`).
//!
//! Left out: what changes something (`-s` of `date`, operands and `-F` of `hostname`, `-v` of
//! `printf`), the letter `e` of `ps`, which prints the environment of processes, programs that
//! print their own environment (`env`, `printenv`, `set`), `-f` of `date`, which prints the lines
//! of a file, and `-v` and `-R` of `test`, which evaluate a subscript.

use crate::shell::Names;
use crate::shell::allow::{self, Ground, PathAccess};
use crate::shell::word::{Word, shown};

use super::Operands::{Data, Formats, Listed, Nothing, Test};
use super::{NAMES, Spec, reads};

/// Operands of `ps` in the style of BSD.
const PROCESSES: Names = Names("a x u ax aux axu axf auxf auxw auxww axww f l");

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    reads(
        &["date"],
        Formats,
        &["-R -u --rfc-email --utc --universal --help --version -d:text --date:text -I? \
            --iso-8601? --rfc-3339: -r:path --reference:path"],
    ),
    reads(
        &["ps"],
        Listed(PROCESSES),
        &[
            "-A -a -d -e -f -F -H -j -l -L -M -T -w -y --forest --headers --no-headers --cumulative \
            --help --version -C:data -G: -g: -O:columns -o:columns -p: -q: -s: -t: -U: -u: --format:columns --pid: \
            --ppid: --sort:text --user: --group: --cols: --columns: --width: --rows: --lines:",
        ],
    ),
    reads(
        &["id"],
        Data,
        &["-a -G -g -n -r -u -z --groups --group --name --real --user --zero --help --version"],
    ),
    reads(&["groups"], Data, &["--help --version"]),
    reads(
        &["hostname"],
        Nothing,
        &["-A -d -f -i -I -s --all-fqdns --domain --fqdn --long --ip-address --all-ip-addresses \
            --short --help -h -V --version"],
    ),
    reads(&["arch"], Nothing, &["--help --version"]),
    reads(&["nproc"], Nothing, &["--all --ignore: --help --version"]),
    reads(&["tty"], Nothing, &["-s --silent --quiet --help --version"]),
    reads(&["logname"], Nothing, &["--help --version"]),
    reads(&["uptime"], Nothing, &["-p -s -h -V --pretty --since --help --version"]),
    reads(
        &["free"],
        Nothing,
        &["-b -k -m -g -h -l -t -v -w --bytes --kibi --mebi --gibi --human --lohi --total --wide \
            --si --help -V --version"],
    ),
    reads(&["lscpu"], Nothing, &["-a -b -c -J -x -y -h -V --all --json --help --version"]),
    reads(&["locale"], Nothing, &["-a -m -c -k --all-locales --charmaps --help --version"]),
    reads(&["getconf"], Data, &["-a"]),
    reads(
        &["seq"],
        Data,
        &["-w --equal-width --help --version -f:text --format:text -s:text --separator:text"],
    ),
    reads(&["basename"], Data, &["-a -z --multiple --zero --help --version -s:text --suffix:text"]),
    reads(&["dirname"], Data, &["-z --zero --help --version"]),
    reads(
        &["realpath"],
        NAMES,
        &["-e -m -L -P -q -s -z --canonicalize-existing --canonicalize-missing --logical \
            --physical --quiet --strip --no-symlinks --zero --help --version --relative-to:path \
            --relative-base:path"],
    ),
    reads(
        &["readlink"],
        NAMES,
        &["-e -f -m -n -q -s -v -z --canonicalize --canonicalize-existing \
            --canonicalize-missing --no-newline --quiet --silent --verbose --zero --help \
            --version"],
    ),
    reads(&["expr"], Data, &[]),
    reads(&["printf"], Data, &[]),
    reads(&["type"], Data, &["-a -f -p -P -t"]),
    reads(&["command", "-v"], Data, &[]),
    reads(&["command", "-V"], Data, &[]),
    reads(&["test"], Test, &[]),
];

/// Tests of one file.
const FILE_TESTS: Names = Names("-b -c -d -e -f -g -G -h -k -L -N -O -p -r -s -S -u -w -x");
/// Tests of one text.
const TEXT_TESTS: Names = Names("-n -z");

/// Checks the words after `test`: one test of a file or a text, with `!` or without. Fails with the
/// reason.
pub(super) fn judge_test(words: &[Word], ground: Ground<'_>) -> Result<(), String> {
    let unknown = || "the test is not known to be harmless".to_owned();
    let words = match words.split_first() {
        Some((first, rest)) if first.literal() == Some("!") => rest,
        _ => words,
    };
    let [test, operand] = words else { return Err(unknown()) };
    let test = test.literal().ok_or_else(unknown)?;
    if operand.literal().is_none() {
        return Err(format!("the operand {} is known only when it runs", shown(&operand.text)));
    }
    if FILE_TESTS.has(test) {
        return allow::path(operand, PathAccess::Names, ground);
    }
    if TEXT_TESTS.has(test) { Ok(()) } else { Err(unknown()) }
}
