//! Effects of programs, as far as permission modes distinguish them: programs that destroy files or
//! work of git, and programs that need the network. An unknown program is in neither group.

use crate::shell::Names;
use crate::shell::arguments::{Arguments, ValuedOptions};
use crate::shell::walk::{Findings, Run, base};
use crate::shell::wrappers::SHELLS;

/// Programs that delete or overwrite the content of files, whatever their options.
const DESTROYS: Names = Names("rm unlink shred truncate srm wipe dd");
/// Programs that reach other machines, whatever their options.
const NETWORK: Names = Names(
    "\
    aria2c aws axel az bunx curl curlie dig doctl ftp gcloud gh ghcr glab hcloud heroku hg host http https \
    kubectl helm lftp links lynx mosh nc ncat netcat netlify nmap npx nslookup oc pipx ping rclone \
    rsh s3cmd scp sftp skopeo socat ssh svn telnet tracepath traceroute uvx vercel w3m wget whois \
    wrangler xh apt apt-get aptitude dnf yum apk pacman brew port zypper snap flatpak",
);
/// Programs with the subcommands that reach other machines. An empty word: also without a
/// subcommand.
const NETWORK_COMMANDS: &[(&str, Names)] = &[
    (
        "npm",
        Names(
            "access add adduser audit ci deprecate dist-tag exec fund i info in init install install-ci-test install-test it create login logout org outdated owner ping profile publish search show star team token unpublish up update upgrade v view whoami x",
        ),
    ),
    (
        "pnpm",
        Names(
            "add audit create dlx fetch i import info install install-test it outdated publish up update upgrade view",
        ),
    ),
    (
        "yarn",
        Names(
            "add audit create dlx info install npm outdated publish up upgrade upgrade-interactive",
        ),
    ),
    ("bun", Names("a add create i install outdated pm publish update upgrade x")),
    ("pip", Names("download index install search wheel")),
    ("uv", Names("add lock pip publish python run self sync tool")),
    ("poetry", Names("add install lock publish search self show update")),
    ("pdm", Names("add install lock publish sync update")),
    ("pipenv", Names("install lock sync update upgrade")),
    ("conda", Names("create install search update")),
    (
        "cargo",
        Names(
            "add binstall fetch generate-lockfile info install login logout owner package publish search update yank",
        ),
    ),
    ("rustup", Names("component install self target toolchain update")),
    ("go", Names("get install")),
    ("gem", Names("fetch install push search update")),
    ("bundle", Names("add install lock outdated update")),
    ("composer", Names("create-project install outdated require search update")),
    ("deno", Names("add install outdated publish upgrade")),
    ("docker", Names("build buildx compose login pull push run search")),
    ("podman", Names("build login pull push run search")),
    ("terraform", Names("apply destroy init login plan refresh")),
    (
        "git",
        Names(
            "clone fetch fetch-pack ls-remote pull push request-pull send-email send-pack svn p4",
        ),
    ),
    ("mvn", Names("deploy")),
    ("dotnet", Names("add nuget restore tool workload")),
];

/// Options of git before its command that have a value, from git(1) of version 2.39.
const GIT_VALUED: Names =
    Names("-C -c --git-dir --work-tree --namespace --super-prefix --config-env --attr-source");
/// Options of git before its command without a value, or with one after `=`.
const GIT_FLAGS: Names = Names(
    "\
    -p -P -v -h --paginate --no-pager --bare --no-replace-objects --literal-pathspecs --glob-pathspecs \
    --noglob-pathspecs --icase-pathspecs --no-optional-locks --no-lazy-fetch --no-advice --version \
    --help --html-path --man-path --info-path --exec-path --list-cmds",
);

/// Programs of [`NETWORK`] that fetch: what they reach is a domain that the proxy asks about.
const FETCHES: Names =
    Names("aria2c axel bunx curl curlie http https links lynx npx pipx uvx w3m wget xh");
/// Subcommands of the programs in [`NETWORK_COMMANDS`] that change something elsewhere.
const SENDS: Names = Names(
    "\
    access add-user adduser apply compose deploy deprecate destroy dist-tag login logout nuget org owner \
    p4 profile publish push refresh request-pull run send-email send-pack star svn team token unpublish \
    yank",
);

/// Reasons why a permission mode does not allow a command by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hazards {
    /// Program that changes something on other machines, or reaches them in a way of its own.
    pub(crate) sends: Option<String>,
    /// Program that fetches from other machines.
    pub(crate) fetches: Option<String>,
    /// Reason why the command destroys something.
    pub(crate) destroys: Option<String>,
}

/// The first hazard of each kind in `findings`.
pub(crate) fn hazards(findings: &Findings) -> Hazards {
    let network = |wanted: bool| {
        let mut found = programs(findings).filter(|(name, words)| needs_network(name, words));
        let (name, _) = found.find(|(name, words)| fetches(name, words) == wanted)?;
        Some(name.to_owned())
    };
    let destroys = || destroying(findings).next().map(|(_, reason)| reason);
    let unknown = || {
        is_open(findings).then(|| "it runs programs that are known only when it runs".to_owned())
    };
    let destroys = destroys().or_else(unknown).or_else(|| findings.unclear.clone());
    Hazards { sends: network(false), fetches: network(true), destroys }
}

/// True if each program in `findings` that destroys is one of `names`, and all programs are known.
pub(crate) fn destroys_only_with(findings: &Findings, names: Names) -> bool {
    !is_open(findings) && destroying(findings).all(|(name, _)| names.has(name))
}

/// Programs in `findings` that destroy, with the reason.
fn destroying(findings: &Findings) -> impl Iterator<Item = (&str, String)> {
    findings.runs.iter().flat_map(programs_at).filter_map(|(at, name, words)| {
        let reason = destroys(name, words).or_else(|| {
            // Another program may add files to its words, or choose the folder.
            let is_behind = at > 0 && checks_out(name, words);
            is_behind.then(|| "`git checkout` can discard work".to_owned())
        })?;
        Some((name, reason))
    })
}

/// True for `git checkout`, which replaces the files that its words name.
pub(crate) fn checks_out(name: &str, words: &[String]) -> bool {
    name == "git" && matches!(git_command(words), Some((Some("checkout"), _)))
}

/// Number of the programs in `findings` that are one of `names`.
pub(crate) fn program_count(findings: &Findings, names: Names) -> usize {
    programs(findings).filter(|(name, _)| names.has(name)).count()
}

/// True if a program in `findings` moves files or gives them other names.
pub(crate) fn moves_files(findings: &Findings) -> bool {
    let is_git_move = |words| {
        git_command(words).is_none_or(|(command, _)| command.is_some_and(|name| name == "mv"))
    };
    programs(findings).any(|(name, words)| {
        Names("mv ln rename mmv").has(name) || (name == "git" && is_git_move(words))
    })
}

/// The programs of all runs, each with the words after it.
fn programs(findings: &Findings) -> impl Iterator<Item = (&str, &[String])> {
    findings.runs.iter().flat_map(programs_of)
}

/// True if some programs are known only when the command runs. A first word from a variable may be
/// nothing, so that the next one is the program.
fn is_open(findings: &Findings) -> bool {
    let mut first = findings.runs.iter().filter_map(|run| run.words.first());
    first.any(|word| word.contains('$'))
        || programs(findings).any(|(name, words)| is_unknown(name, words))
}

/// True if a program that needs the network is known to fetch only.
fn fetches(name: &str, words: &[String]) -> bool {
    if words.iter().any(|word| word.contains("/dev/tcp/") || word.contains("/dev/udp/")) {
        return false;
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let has_subcommands = matches!(stem, "python" | "pypy")
        || NETWORK_COMMANDS.iter().any(|(program, _)| *program == stem);
    let mut subcommands = operands(name, words).take(2);
    FETCHES.has(name) || (has_subcommands && !subcommands.any(|word| SENDS.has(word)))
}

/// True if a program with these words reaches other machines and is not known to fetch only.
pub(crate) fn sends(name: &str, words: &[String]) -> bool {
    needs_network(name, words) && !fetches(name, words)
}

/// True if the text does not show which program runs: its name, or the shell text that it executes,
/// comes from a variable, a substitution or a glob.
fn is_unknown(name: &str, words: &[String]) -> bool {
    let open = |word: &str| word.contains(['$', '*', '?', '[']) && word != "[";
    let executes = SHELLS.has(name) || Names("eval source . xargs").has(name);
    open(name) || (executes && words.iter().any(|word| word.contains('$')))
}

/// The programs of `run`, each with the words after it.
fn programs_of(run: &Run) -> impl Iterator<Item = (&str, &[String])> {
    programs_at(run).map(|(_, name, words)| (name, words))
}

/// As [`programs_of`], with the index of the program in the words of the command.
fn programs_at(run: &Run) -> impl Iterator<Item = (usize, &str, &[String])> {
    run.programs.iter().filter_map(|at| {
        let (name, words) = run.words.get(*at..)?.split_first()?;
        Some((*at, base(name), words))
    })
}

fn needs_network(name: &str, words: &[String]) -> bool {
    if words.iter().any(|word| word.contains("/dev/tcp/") || word.contains("/dev/udp/")) {
        return true;
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if NETWORK.has(name) {
        return true;
    }
    let operands = || operands(name, words);
    match (stem, operands().next()) {
        // A bare `yarn` installs.
        ("yarn", None) => !words.iter().any(|word| matches!(&**word, "-v" | "--version")),
        ("rsync", _) => words.iter().any(|word| word.contains(':')),
        ("python" | "pypy", _) => {
            let module = words.iter().skip_while(|word| *word != "-m").nth(1);
            let rest = words.iter().skip_while(|word| *word != "-m").skip(2);
            let first = rest.map(String::as_str).find(|word| !word.starts_with('-'));
            module.is_some_and(|module| module == "pip")
                && first.is_some_and(|first| has_command("pip", first))
        }
        ("git", Some("remote")) => {
            operands().nth(1).is_some_and(|word| Names("show update prune").has(word))
        }
        ("git", Some("submodule")) => {
            operands().nth(1).is_some_and(|word| Names("add update").has(word))
        }
        ("git", Some("lfs")) => {
            operands().nth(1).is_some_and(|word| Names("fetch pull push clone").has(word))
        }
        ("git", Some("archive")) => words.iter().any(|word| word.starts_with("--remote")),
        ("go", Some("mod")) => {
            operands().nth(1).is_some_and(|word| Names("download tidy").has(word))
        }
        (stem, Some(first)) => has_command(stem, first),
        (_, None) => false,
    }
}

fn has_command(program: &str, command: &str) -> bool {
    NETWORK_COMMANDS.iter().any(|(name, commands)| *name == program && commands.has(command))
}

/// Words that are neither options nor the values of options before the subcommand.
fn operands<'w>(name: &str, words: &'w [String]) -> impl Iterator<Item = &'w str> {
    // Options before the subcommand whose value is the next word.
    let valued = match name {
        "git" => Names("-C -c --git-dir --work-tree --namespace --super-prefix --config-env"),
        "npm" | "pnpm" | "yarn" => Names("--prefix -C --dir --cwd -w --workspace --filter -F"),
        "cargo" => Names("-C --config --color -Z --manifest-path"),
        "docker" | "podman" => Names("-H --host -c --context --config -l --log-level"),
        "go" => Names("-C"),
        _ => Names(""),
    };
    let mut skips = false;
    words.iter().map(String::as_str).filter(move |word| {
        if std::mem::take(&mut skips) {
            return false;
        }
        skips = valued.has(word);
        !word.starts_with('-') && !word.starts_with('+')
    })
}

/// Reason why a program with these words destroys something. `None` if it is not known to.
pub(crate) fn destroys(name: &str, words: &[String]) -> Option<String> {
    let has = |names: &str| words.iter().any(|word| names.split(' ').any(|name| name == word));
    if DESTROYS.has(name) {
        let told = has("--help --version");
        return (!told).then(|| format!("`{name}` deletes or overwrites files"));
    }
    match name {
        "find" | "gfind" if has("-delete -fprint -fprint0 -fprintf -fls") => {
            Some("`find` deletes or overwrites files with these actions".to_owned())
        }
        "git" => git(words),
        "rsync"
            if words
                .iter()
                .any(|word| word.starts_with("--del") || word == "--remove-source-files") =>
        {
            Some("`rsync` deletes files with this option".to_owned())
        }
        "docker" | "podman" => {
            let acts = Names("rm rmi prune kill");
            let first = operands(name, words).take(2).find(|word| acts.has(word))?;
            Some(format!("`{name} {first}` deletes containers or images"))
        }
        _ => None,
    }
}

/// Reason why a command of git discards work. `None` if it is not known to.
fn git(words: &[String]) -> Option<String> {
    let Some((command, rest)) = git_command(words) else {
        return Some("`git` has options that may change what its command does".to_owned());
    };
    let before = words.get(..words.len().saturating_sub(rest.len() + 1)).unwrap_or_default();
    let (command, words) = (command?, rest.iter().map(String::as_str));
    // The value of an option may look like another one.
    let valued = match command {
        "clean" => ValuedOptions { letters: "e", long: &["--exclude"], ..ValuedOptions::default() },
        "checkout" | "switch" => ValuedOptions { letters: "bBcC", ..ValuedOptions::default() },
        "restore" => {
            ValuedOptions { letters: "s", long: &["--source"], ..ValuedOptions::default() }
        }
        _ => ValuedOptions::default(),
    };
    let given = Arguments::read(words, valued);
    let second = given.operands.first().copied();
    // git permits abbreviations of long options.
    let may_be = |names: &str| names.split(' ').any(|name| given.has(None, name));
    let letter = |letter: char| given.has(Some(letter), "");
    let only = |letter: Option<char>, long: &str| given.has(letter, long) && !given.has_negation();
    let destroys = match command {
        "reset" => may_be("--hard --merge --keep"),
        "clean" => !only(Some('n'), "--dry-run"),
        // Files that it names and that exist are judged as destinations.
        "checkout" => {
            let creates = letter('b') && !letter('f') && !may_be("--force");
            !creates && !is_checkout_by_name(before, rest)
        }
        "switch" => {
            may_be("--force --discard-changes --force-create") || letter('f') || letter('C')
        }
        "restore" => !only(Some('S'), "--staged") || may_be("--worktree") || letter('W'),
        "rm" => !(only(None, "--cached") || only(Some('n'), "--dry-run")),
        "stash" => matches!(second, Some("drop" | "clear")),
        // Without force, it deletes only branches whose commits another one has.
        "branch" => may_be("--force --move") || ['D', 'f', 'M', 'C'].into_iter().any(letter),
        "tag" => may_be("--delete --force") || ['d', 'f'].into_iter().any(letter),
        "reflog" => matches!(second, Some("expire" | "delete")),
        "submodule" => matches!(second, Some("deinit")),
        "worktree" => matches!(second, Some("remove" | "prune")),
        "remote" => matches!(second, Some("remove" | "rm" | "prune")),
        "notes" => matches!(second, Some("remove" | "prune")),
        "maintenance" => {
            !matches!(second, None | Some("start" | "stop" | "register" | "unregister"))
        }
        "multi-pack-index" => matches!(second, Some("expire" | "repack")),
        "symbolic-ref" => letter('d') || may_be("--delete"),
        "repack" => ['a', 'A', 'd'].into_iter().any(letter) || may_be("--cruft --geometric"),
        "gc" | "prune" | "filter-branch" | "filter-repo" | "update-ref" | "read-tree"
        | "checkout-index" | "replace" => true,
        _ => false,
    };
    destroys.then(|| format!("`git {command}` can discard work"))
}

/// Options of `git checkout` with which it discards nothing but files that it names.
const CHECKOUT_OPTIONS: Names = Names(
    "-- -q --quiet --progress --no-progress -t --track --no-track -d --detach --guess --no-guess",
);

/// True if the words after `git checkout` name each branch, commit and file as it is, without patterns, and
/// those `before` it only choose the folder. Then [`of_program`](crate::shell::destinations::of_program)
/// knows the files.
fn is_checkout_by_name(before: &[String], words: &[String]) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "._/@~^-".contains(c);
    let is_plain = |word: &str| !word.is_empty() && word.chars().all(is_letter);
    let is_here = |word: &str| word.split('/').all(|part| matches!(part, "" | "." | ".."));
    let names_commit =
        |word: &str| word == "-" || (!word.starts_with('-') && is_plain(word) && !is_here(word));
    let chooses_folder = |pair: &[String]| match pair {
        [option, folder] => option == "-C" && is_plain(folder),
        _ => false,
    };
    before.chunks(2).all(chooses_folder)
        && words.iter().all(|word| CHECKOUT_OPTIONS.has(word) || names_commit(word))
}

/// Command of git, if there is one, and the words after it. `None` if an option before it is not
/// known, so that another word may be the command, or is a setting that changes what commands do.
fn git_command(words: &[String]) -> Option<(Option<&str>, &[String])> {
    let (at, values) = git_options(words)?;
    // Settings of `gc` and reflogs let ordinary commands discard objects.
    let replaces =
        ["alias.", "core.logallrefupdates", "core.worktree", "gc.", "include", "maintenance."];
    let changes_commands = |value: &&str| {
        let value = value.to_ascii_lowercase();
        replaces.iter().any(|name| value.starts_with(name))
    };
    if values.iter().any(changes_commands) {
        return None;
    }
    Some((words.get(at).map(String::as_str), words.get(at + 1..).unwrap_or_default()))
}

/// Command of git in `words`, and the index of the word after it. `None` if there is none, or if an
/// option before it is not known.
pub(crate) fn git_words<'w>(words: &[&'w str]) -> Option<(&'w str, usize)> {
    let (at, _) = git_options(words)?;
    Some((words.get(at)?, at + 1))
}

/// Index of the command of git in `words`, or their number if there is none, and the values of the
/// options before it. `None` if such an option is not known.
fn git_options<W: AsRef<str>>(words: &[W]) -> Option<(usize, Vec<&str>)> {
    let mut values = Vec::new();
    let mut rest = words.iter().map(AsRef::as_ref).enumerate();
    while let Some((at, word)) = rest.next() {
        if !word.starts_with('-') {
            return Some((at, values));
        }
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        if GIT_VALUED.has(name) {
            values.extend(value.or_else(|| rest.next().map(|(_, value)| value)));
        } else if !GIT_FLAGS.has(name) {
            return None;
        }
    }
    Some((words.len(), values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::{reader, walk};

    fn found(command: &str) -> Hazards {
        let outline = reader::read(command);
        hazards(&walk::walk(&outline, command, "/w", "/home/u"))
    }

    #[test]
    fn destruction_is_recognised_behind_wrappers_and_in_nested_scripts() {
        for command in [
            "rm -rf dist",
            "rm a",
            "sudo rm a",
            "/bin/rm a",
            "sh -c 'rm a'",
            "echo a | xargs rm",
            "find . -name x -delete",
            "find . -exec rm {} ;",
            "find . -exec rm {} +",
            "git reset --hard HEAD~1",
            "git -C sub reset --hard",
            "git clean -fd",
            "git reset --har",
            "git -c x=y reset --har HEAD~1",
            "git clean -fd -enope",
            "git restore -sS a.txt",
            "git restore -S --worktr b.txt",
            "git checkout -b x2 --forc",
            "git switch --discard main",
            "git branch --del --forc x",
            "git tag --del v1",
            "git submodule deinit --all -f",
            "git clean -fdx -- . --dry-run",
            "git clean -fd -e --dry-run",
            "git clean -n --no-dry-run -f",
            "git rm --cached --no-cached a",
            "git restore -- . --staged",
            "git restore --staged --no-staged a",
            "git checkout -- . -b",
            "git --attr-source HEAD reset --hard",
            "git --shallow-file x reset --hard",
            "git -c alias.z='reset --hard' z",
            "git -c Include.Path=x z",
            "flock -w 1 x rm -rf src",
            "flock --timeout 1 x rm -rf src",
            "echo a | xargs --replace rm -rf {}",
            "echo a | xargs --max-lines rm",
            "echo a | xargs --process-slot-var X rm",
            "env -a x rm a",
            "unshare --wd . rm -rf src",
            "prlimit --new 1 rm a",
            "POSIXLY_CORRECT=1 mv b.txt -n d3",
            "GIT_CONFIG_COUNT=1 git z",
            "export POSIXLY_CORRECT=1; cp b.txt -n d3",
            "env POSIXLY_CORRECT=1 cp b.txt -n d3",
            "setarch -R rm -rf src",
            "setarch x86_64 -R rm -rf src",
            "git checkout .",
            "git switch -f main",
            "git restore a",
            "git restore --staged --worktree a",
            "git stash drop",
            "git branch -D x",
            "git rm a",
            "truncate -s 0 a",
            "dd if=/dev/zero of=a",
            "make && rm a",
            "true; (cd x && rm y)",
            "for f in a b; do rm $f; done",
            "$X -rf a",
            "eval \"$X\"",
            "rsync --delete a b",
        ] {
            assert!(found(command).destroys.is_some(), "{command}: {:?}", found(command));
        }
    }

    #[test]
    fn checkout_by_pattern_force_or_of_another_tree_discards_work() {
        for command in [
            "git checkout -f main",
            "git checkout --ours a",
            "git checkout 'a*'",
            "git checkout :/",
            "git checkout ../",
            "git checkout $X",
            "git checkout -p",
            "git checkout -B x",
            "git --icase-pathspecs checkout A",
            "git --glob-pathspecs checkout a",
            "GIT_ICASE_PATHSPECS=1 git checkout A",
            "env GIT_GLOB_PATHSPECS=1 git checkout a",
            "export GIT_ICASE_PATHSPECS=1; git checkout A",
            "git checkout --pathspec-from-file=x",
            "git --work-tree=sub checkout a",
            "git --git-dir x/.git checkout a",
            "git -c core.worktree=sub checkout a",
            "GIT_WORK_TREE=sub git checkout a",
            "git -c a.b=c checkout main -- a",
            "git --no-pager checkout main -- a",
            "git -C '' checkout main -- a",
            "git -C sub -P checkout main -- a",
            "git -C $X checkout a",
            "echo a | xargs git checkout main --",
            "xargs -a l.txt git checkout main",
            "find . -name x -exec git checkout main -- {} +",
            "find . -name x -execdir git checkout a ;",
            "timeout 5 git checkout a",
        ] {
            assert!(found(command).destroys.is_some(), "{command}: {:?}", found(command));
        }
    }

    #[test]
    fn upkeep_of_git_that_discards_objects_is_recognised() {
        for command in [
            "git -c gc.pruneExpire=now commit -m x",
            "git -c core.logAllRefUpdates=false commit -m x",
            "git maintenance run --task=gc",
            "git repack -a -d",
            "git repack -Ad",
            "git notes remove",
            "git symbolic-ref -d HEAD",
            "git multi-pack-index expire",
        ] {
            assert!(found(command).destroys.is_some(), "{command}: {:?}", found(command));
        }
    }

    #[test]
    fn destruction_is_recognised_behind_runners() {
        for command in [
            "poetry run rm -rf src",
            "poetry -C sub run rm -rf src",
            "uv run --frozen rm -rf src",
            "uv run --unknown value rm -rf src",
            "uv run --with x -- rm -rf src",
            "uvx rm -rf src",
            "conda run -n env rm -rf src",
            "bundle exec rm -rf src",
            "npm exec -- rm -rf src",
            "npm exec -c 'rm -rf src'",
            "npm x -p rimraf rm -rf src",
            "pnpm --filter a exec rm -rf src",
            "yarn dlx rm a",
            "ls | entr -r rm -rf src",
            "ls | entr -s 'rm -rf src'",
            "hyperfine 'rm -rf src'",
            "hyperfine -w 3 true 'rm -rf src'",
            "hyperfine --prepare 'rm -rf src' true",
            "hyperfine --prepare='rm -rf src' true",
            "nice poetry run rm a",
        ] {
            assert!(found(command).destroys.is_some(), "{command}: {:?}", found(command));
        }
    }

    #[test]
    fn network_is_recognised() {
        for command in [
            "curl https://x.example",
            "npm install",
            "npm i left-pad",
            "npm --prefix x ci",
            "npx cowsay",
            "yarn",
            "yarn add x",
            "pip install x",
            "pip3 install x",
            "python3 -m pip install x",
            "cargo install x",
            "cargo +nightly fetch",
            "git clone https://x.example/x",
            "git push",
            "git push --force",
            "git -C sub pull",
            "git remote update",
            "git submodule update --init",
            "go get x",
            "go mod tidy",
            "ssh host",
            "rsync a host:b",
            "apt-get install x",
            "docker pull x",
            "timeout 5 curl x",
            "sh -c 'wget x'",
            "rm x && npm install",
        ] {
            let Hazards { sends, fetches, .. } = found(command);
            assert!(sends.is_some() || fetches.is_some(), "{command}");
        }
    }

    #[test]
    fn fetching_is_told_from_sending() {
        for command in [
            "npm install x",
            "cargo fetch",
            "git clone https://x.example/x",
            "git pull",
            "git submodule update --init",
            "curl -sS https://x.example",
            "pip install x",
            "go mod tidy",
        ] {
            assert_eq!(found(command).sends, None, "{command}");
            assert!(found(command).fetches.is_some(), "{command}");
        }
        for command in [
            "git push",
            "git lfs push",
            "npm publish",
            "npm dist-tag add x",
            "yarn npm publish",
            "cargo publish",
            "cargo yank",
            "docker push x",
            "terraform apply",
            "ssh host",
            "gh pr create",
            "aws s3 ls",
            "rsync a host:b",
            "cat /dev/tcp/1.2.3.4/80",
            "curl https://x.example && git push",
        ] {
            assert!(found(command).sends.is_some(), "{command}");
        }
        let both = found("rm -rf x && npm install");
        assert!(both.destroys.is_some() && both.fetches.is_some());
    }

    #[test]
    fn ordinary_commands_are_no_hazard() {
        for command in [
            "ls -la",
            "npm test",
            "npm run build",
            "cargo build",
            "poetry run pytest",
            "npm run rm",
            "bundle exec rspec",
            "hyperfine -N 'cargo build'",
            "cargo test --workspace",
            "node test.js",
            "node -e 'console.log(1)'",
            "make",
            "mkdir -p dist",
            "touch a",
            "sed -i s/a/b/ x",
            "git add -A && git commit -m x",
            "git status",
            "git log --oneline -5 | cat",
            "git diff --stat",
            "git checkout -b x",
            "git checkout main",
            "git checkout -q HEAD~1",
            "git -C sub checkout main",
            "git checkout -",
            "git checkout -- a",
            "git switch main",
            "git stash",
            "git reset",
            "git clean -n",
            "git rm --cached a",
            "git repack",
            "git notes add -m x",
            "git symbolic-ref HEAD",
            "git restore --staged a",
            "python3 x.py",
            "python3 -m pytest",
            "go build ./...",
            "rsync a b",
            "yarn --version",
            "echo rm -rf x",
            "grep -r curl src",
        ] {
            assert_eq!(found(command), Hazards::default(), "{command}");
        }
    }
}
