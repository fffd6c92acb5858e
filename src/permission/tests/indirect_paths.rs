//! Deny rules with a glob, and destinations: paths that a command names indirectly, through links which
//! it makes, variables, loops, nested scripts and settings of git.

use posse_actors::ports::PathLink;

use super::denied_paths::{EDIT, EVERY};
use super::*;
use crate::{command_outputs, command_paths};

/// Folders of the workspace.
const FOLDERS: [&str; 9] = [
    "/w",
    "/w/a",
    "/w/b",
    "/w/b/c",
    "/w/b/c/d",
    "/w/dirr",
    "/w/packages/p",
    "/w/private",
    "/home/user/private",
];
/// Links of the workspace.
const LINKS: [(&str, &str); 4] = [
    ("/w/own", "/proc/self/cwd"),
    ("/w/lnk", "/w/private"),
    ("/w/ln1", "/w/private"),
    ("/w/up", "/w/b/c"),
];

/// Path that the kernel opens for `path`. `None` if it does not know one.
fn target(path: &str) -> Option<String> {
    let mut at = String::new();
    let mut is_folder = true;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            at.truncate(at.rfind('/').filter(|_| is_folder)?);
            continue;
        }
        at = format!("{at}/{part}");
        if let Some((_, to)) = LINKS.iter().find(|(link, _)| *link == at) {
            (*to).clone_into(&mut at);
        }
        if at.starts_with("/proc") && !path.starts_with("/proc") {
            return None;
        }
        let below = format!("{at}/");
        is_folder = FOLDERS.iter().any(|folder| *folder == at || folder.starts_with(&below));
    }
    Some(if at.is_empty() { "/".to_owned() } else { at })
}

/// Links in the paths of `command`, as the preparation of the call finds them.
fn prepared(command: &str) -> Vec<PathLink> {
    let mut found: Vec<PathLink> = Vec::new();
    let mut add = |path: &str| {
        let target = target(path);
        if target.as_deref() != Some(path) && found.iter().all(|link| link.path != path) {
            found.push(PathLink { path: path.to_owned(), target });
        }
    };
    for named in command_paths(command, ROOT, None) {
        add(&named.path);
        if named.levels > 0 {
            let below = LINKS.iter().filter(|(link, _)| link.starts_with(&named.path));
            below.for_each(|(link, _)| add(link));
        }
    }
    found
}

/// Checks that a command with a path that `rule` denies is denied or asked about (`is_closed`), or that
/// the rule lets it run.
#[track_caller]
fn check(rule: &str, commands: &[&str], is_closed: bool) {
    let policy = policy(&[rule, r#"{"tool":"*","decision":"allow"}"#]);
    let mut wrong = Vec::new();
    for command in commands {
        let mut action = action(&format!("bash {command}"));
        let Operation::Execute { links, .. } = &mut action.operations[0] else { panic!() };
        *links = prepared(command);
        let verdict = judged(&policy, &action, &situation("build", &[], AnswerSource::Human));
        let is_wrong = match &verdict {
            Verdict::Deny { .. } => !is_closed,
            Verdict::Ask(question) => question.reason.contains("may match a path") != is_closed,
            Verdict::Allow(_) => is_closed,
        };
        if is_wrong {
            wrong.push(format!("{command}: {verdict:?}"));
        }
    }
    assert!(wrong.is_empty(), "{rule} {is_closed}: {wrong:#?}");
}

/// Commands that may open a path in the folder `private`.
const NAMING: &[&str] = &[
    "ln -s $(pwd)/b/c l; cp y l/../f",
    "T=l; ln -s b/c $T; cp y l/../f",
    "find b -name c -exec ln -s {} l \\;; cp y l/../f",
    "awk 'BEGIN{system(\"ln -s b/c l\")}'; cp y l/../f",
    "tar xf a.tar; mkdir -p new; cp y new/../f",
    "echo b/c l | xargs ln -s; cp y l/../f",
    "cp y own/a",
    "for i in ln*/x; do cat $i; done",
    "bash -c 'cat ln*/x'",
    "R=.; cat $R/lnk/x",
    "X=$PWD/private/x; cat $X",
    "X=~+/private/x; cat $X",
    "export GIT_ICASE_PATHSPECS=1; git log -p PRIVATE",
    "env GIT_ICASE_PATHSPECS=1 git log -p PRIVATE",
    "export GIT_GLOB_PATHSPECS=1; git log -p '**/x'",
    "env GIT_LITERAL_PATHSPECS=1 git log -p ':!private'",
    "env GIT_NOGLOB_PATHSPECS=1 git log -p ':(glob)**/x'",
    "X=sub; ln -s private/$X l; cat l/../x",
    "python3 -c \"import os; os.symlink('b/c','l')\"; cat l/../f",
    "tar xzf a.tgz -C dirr; mkdir -p dirr/n; cat dirr/n/../x",
    "cat own/../x",
    "sh -c 'for i in l*/x; do cat $i; done'",
    "eval 'cat ln*/x'",
    "a=(ln*/x); cat ${a[0]}",
    "timeout 5 bash -c 'head ln*/x'",
    "perl -e 'open F, \"$ENV{PWD}/private/x\"'",
    "echo 'cat $PWD/private/x' | bash",
    "declare -x GIT_ICASE_PATHSPECS=true && git show HEAD -- PRIVATE/X",
    "bash -c 'GIT_ICASE_PATHSPECS=1 git grep . -- PRIVATE'",
    "nice env GIT_ICASE_PATHSPECS=1 nice git log -p Private/x",
    "gawk 'BEGIN { \"ln -s b/c l\" | getline }'; cat l/../f",
    "install -D y \"$Q\"; mv $Q l; cat l/../f",
    "for f in ln[0-9]/x; do head -1 \"$f\"; done",
    "bash <<< 'cat ln*/x'",
    "bash <<'X'\ncat ln*/x\nX",
    "env -S \"bash -c 'cat ln1/x'\"",
    "printf -v GIT_ICASE_PATHSPECS 1; export GIT_ICASE_PATHSPECS; git log -p PRIVATE",
    "cat ${A:-${B:-$PWD/private/x}}",
    "cat \"${A:+$PWD}\"/private/x",
    "D=private; cp -r \"$D\" /tmp/out",
];

/// Commands that may change a path in the folder `private`.
const CHANGING: &[&str] = &[
    "ln -s $(pwd)/b/c l; cp y l/../f",
    "T=l; ln -s b/c $T; cp y l/../f",
    "find b -name c -exec ln -s {} l \\;; cp y l/../f",
    "awk 'BEGIN{system(\"ln -s b/c l\")}'; cp y l/../f",
    "tar xf a.tar; mkdir -p new; cp y new/../f",
    "echo b/c l | xargs ln -s; cp y l/../f",
    "cp y own/private/new",
    "for i in ln*/x; do cp y $i; done",
    "bash -c 'cp y ln*/x'",
    "for i in ln*; do cp y $i/x; done",
    "R=.; cp y $R/lnk/x",
    "X=~+/private/x; cp y $X",
    "cp y ${X:-$PWD/private/x}",
    "cp y ${X:-~+/private/x}",
    "sed -n 's/[/]/w private/w private/q' f",
    "sed -n 's/a[/]b/c/w private/q' f",
    "sed -n '/[/]/w private/q' f",
    "sed -n --exp='w private/q' f",
    "sed -nbe 'w private/q' f",
    "sed -n --expr 'w private/q' f",
    "echo private/x | xargs rm",
    "bash -c 'rm \"$1\"' _ private/x",
    "for f in private/*; do truncate -s 0 \"$f\"; done",
    "find private -exec rm {} +",
    "set -- private/x; rm \"$1\"",
    "while read p; do rm $p; done <<< private/x",
    "echo x > own/lnk/q",
    "for d in ln?; do echo x > \"$d/x\"; done",
    "OUT=private; tee \"$OUT/x\" < y",
    "D=$(pwd); mv y $D/private/",
    "sed -nEe 's/x[^/]*/y/w private/q' f",
    "sed --null-data --expression 'w private/q' f",
    "sed -n -l 5 'w private/q' f",
    "sed -s -n -f /dev/null -e 'w private/q' f",
    "sed -n 's,[,],x,w private/q' f",
    "D=private; rm -rf \"$D\"",
    "D=lnk; cp y \"$D/q\"",
    "cp y $(git rev-parse --show-toplevel)/private/q",
    "echo x | tee -- \"${O:-private/q}\"",
    "gsed -n --in-place --expr='w private/q' f",
    "sed --exp 's/\\[/]/w private/q' f",
    "find private -name '*.x' -print0 | xargs -0 rm -f",
];

/// Commands that may open a path in the folder `private` of the home folder.
const NAMING_HOME: &[&str] = &[
    "cat ${X:-~/private/x}",
    "X=$HOME/private/x; cat $X",
    "X=~/private/x; cat $X",
    "cat ${X:-$HOME/private/x}",
    "cat \"${X:-$HOME/private/x}\"",
    "python3 -c \"open('$HOME/private/x')\"",
    "python3 -c \"import os; print(open(os.path.expanduser('~/private/x')).read())\"",
    "bash -c 'cat ~/private/x'",
    "bash -c \"cat $HOME/private/x\"",
    "echo \"cat $HOME/private/x\" | sh",
    "make FILE=$HOME/private/x",
    "F=${F:-$HOME/private/x}; cat \"$F\"",
    "cat ${1-~/private/x}",
    "cat ${X:=${HOME}/private/x}",
    "node -e \"require('fs').readFileSync(process.env.HOME+'/x'); '$HOME/private/x'\"",
    "python3 -c 'import os; print(open(os.path.expandvars(\"$HOME/private/x\")).read())'",
    "cat \"$HOME\"/private/x",
    "ruby -e 'puts File.read(File.expand_path(\"~/private/x\"))'",
    "D=~; cat $D/private/x",
];

/// Commands that may change a path in the folder `private` of the home folder.
const CHANGING_HOME: &[&str] = &[
    "cp y ${X:-~/private/x}",
    "X=$HOME/private/x; cp y $X",
    "X=~/private/x; cp y $X",
    "cp y ${X:-$HOME/private/x}",
    "sed -i s/a/b/ ${CFG:-~/private/x}",
    "cp y \"${DEST:-$HOME}/private/q\"",
];

/// Ordinary commands, which open no path in such a folder.
const FREE: &[&str] = &[
    "ln -sf \"$(which python3)\" a/python; make",
    "make; cd a && grep -C 3 err ../log",
    "tar xf a.tar; rg -C3 err a/../log",
    "mkdir -p build && cd build && cmake ..",
    "git clone https://x.example/r && cd r && make",
    "npm install && cd packages/p && npm test",
    "mkdir -p new && cp y new/../newfile",
    "bash -c 'mkdir -p build && cd build && cmake ..'",
    "cd a && grep -C 3 err ../log",
    "python3 -m venv env && cd env && echo x > ../log",
    "git clone https://x.example/r r && cd r && make > ../log",
    "GIT_ICASE_PATHSPECS=1 git log -p README.md",
    "bash -c 'mkdir build && cd build && cmake .. && make'",
    "sh -c \"cd a && make test\"",
    "mkdir -p build && cd build && cmake .. | tail -5",
    "if [ ! -d build ]; then mkdir build; fi; cd build && cmake ..",
    "virtualenv env && cd env && cat ../log",
    "cargo new x && cd x && cat ../Cargo.toml",
    "git init r && cd r && cp ../y .",
    "git worktree add ../wt && cd ../wt && cargo test",
    "for f in a/*.rs; do wc -l \"$f\"; done",
    "bash -c 'for f in src/*.rs; do echo $f; done'",
    "find . -name '*.pyc' -exec rm {} +",
    "find . -name '*.rs' | xargs grep -n todo",
    "cp y \"$OUT/z\" && ls a/..",
    "X=$HOME/other; ls $X",
    "sed 's/[/]/-/' f > newfile",
    "awk -F'|' '{print $2}' f; cat a/../log",
    "npm ci && npm run build && cp -r b/c dirr/",
    "for i in 1 2 3; do echo $i; done",
    "cd packages/p && npm test && cd ../..",
    "mkdir -p a/x && cp y a/x && cd a/x && cat ../../f",
    "tar czf out.tgz a b && ls ..",
    "git stash && git checkout main && cargo test",
    "bash -lc 'cd a && cargo build'",
    "uv venv && . .venv/bin/activate && pip install -r a/../req.txt",
    "cmake -B build -S . && cd build && make && cat ../y",
    "sed -n '/\\/usr\\/[a-z]*/p' f",
    "sed -E 's#[/]+#/#g' f",
    "rm -rf \"$TMPDIR/x\" && cat f",
    "xargs -n1 basename < f",
    "find a -type f -exec grep -l foo {} +",
    "node -e \"console.log(require('./package.json').version)\"",
    "echo \"path: $HOME/other/x\"",
];

/// Commands that do not change a path in the folder `private`, but may read one.
const FREE_TO_READ: &[&str] = &[
    "tar xf a.tar; mkdir -p new; cat new/../f",
    "git clone https://x.example/r r && cd r && mkdir -p build && cd build && cmake ..",
    "cat private/x | wc -l; rm -rf build",
    "mv \"$a\" \"$b\" && echo done",
    "D=private; cat \"$D/x\"",
    "rm -f *.tmp; cat private/x",
];

/// Commands that may replace files which their words do not name.
const OPEN_DESTINATIONS: &[&str] = &[
    "ln -s $(pwd)/b/c l; cp y l/../f",
    "T=l; ln -s b/c $T; cp y l/../f",
    "find b -name c -exec ln -s {} l \\;; cp y l/../f",
    "awk 'BEGIN{system(\"ln -s b/c l\")}'; cp y l/../f",
    "tar xf a.tar; mkdir -p new; cp y new/../f",
    "echo b/c l | xargs ln -s; cp y l/../f",
    "D=b/c; ln -s \"$D\" l && cp y l/../f",
    "ln -s `echo b/c` l; cp y l/../f",
    "fd -t d c b -x ln -s {} l; cp y l/../f",
    "find b -type d -exec sh -c 'ln -s \"$1\" l' _ {} \\; ; cp y l/../f",
    "for t in l m; do ln -s b/c $t; done; cp y m/../f",
    "printf 'b/c\\nl\\n' | xargs -n2 ln -s; cp y l/../f",
    "cp -rs \"$(pwd)/b\" l; cp y l/c/../f",
    "mkdir new; rmdir new; ln -s b/c $(echo new); cp y new/../f",
    "ln -s b/* dirr/; cp y dirr/c/f",
    "unzip -q a.zip; mkdir -p new/deep; echo x > new/deep/../f",
    "eval 'ln -s b/c l'; echo x > l/../f",
    "T=l; ln -s f $T; echo x > l",
    "find . -name y -exec ln -s b/c l \\; -exec cp {} l/../f \\;",
    "read t <<< l; ln -sf b/c \"$t\"; tee l/../f < y",
    "ls -d b/c | xargs -I X ln -s X l && cp y l/../f",
    "parallel ln -s b/c ::: l; cp y l/../f",
    "cp -d \"$LNK\" l; cp y l/../f",
    "bsdtar -xf a.tar && mkdir -p q && mv y q/../f",
    "ln -s \"${B:-b}/c\" dirr/l; echo > dirr/l/../f",
    "while read a b; do ln -s $a $b; done < y; cp y l/../f",
    "bash -c 'ln -s b/c l; cp y l/../f'",
    "git apply p.diff; mkdir -p z; cp y z/../f",
];

/// Commands whose words tell which files they replace.
const KNOWN_DESTINATIONS: &[&str] = &[
    "mkdir -p build && cd build && cmake ..",
    "git clone https://x.example/r && cd r && make",
    "npm install && cd packages/p && npm test",
    "grep -C 3 err a/../log",
    "bash -c 'mkdir -p build && cd build && cmake ..'",
    "python3 -m venv env && cd env && echo x > ../newlog",
    "git clone https://x.example/r r && cd r && make > ../newlog",
    "ls /*/*/* ; echo x > out.txt",
    "cargo build && cd a && echo x > ../newlog",
    "rm -rf build && mkdir build && cd build && echo x > ../newlog",
    "python3 -m venv .venv && . .venv/bin/activate && echo x > newlog",
    "bash -c 'mkdir -p out && echo x > out/new'",
    "find . -name '*.o' -exec cp {} dirr/ \\; && echo x > dirr/newfile",
    "mv \"$tmp\" out.txt && echo x > newlog",
    "ls */*/*/*; echo x > newlog",
    "git clone https://x.example/r && cd r && echo x > ../newlog",
    "mkdir -p dist && cp -r b/c dist/ && cd dist && echo x > ../newlog",
    "cd a && npm install && echo done > newlog",
    "bash -c 'cd a && echo x > newfile'",
    "cargo new x && cd x && echo y > ../newlog",
    "tar xf a.tar && cd a && echo x > ../newlog",
];

#[test]
fn paths_that_are_named_indirectly_are_denied_or_asked_about() {
    check(EVERY, NAMING, true);
    check(EVERY, CHANGING, true);
    check(EDIT, CHANGING, true);
    for (rule, commands) in [(EVERY, NAMING_HOME), (EDIT, CHANGING_HOME), (EVERY, CHANGING_HOME)] {
        check(&rule.replace("private", "~/private"), commands, true);
    }
}

#[test]
fn ordinary_commands_are_not_asked_about_because_of_deny_rules() {
    for rule in [EVERY, EDIT] {
        check(rule, FREE, false);
        check(&rule.replace("private", "~/private"), FREE, false);
    }
    check(EDIT, FREE_TO_READ, false);
}

#[test]
fn destinations_behind_links_of_the_command_are_unknown() {
    for (commands, is_open) in [(OPEN_DESTINATIONS, true), (KNOWN_DESTINATIONS, false)] {
        for command in commands {
            let outputs = command_outputs(command, ROOT, None, &prepared(command));
            let found = outputs.iter().any(|output| output.path == "/");
            assert_eq!(found, is_open, "{command}: {outputs:?}");
        }
    }
}

#[test]
fn files_in_scripts_of_sed_are_destinations() {
    for command in [
        "sed -n --exp='w f' y",
        "sed -nbe 'w f' y",
        "sed -n '/[/]/w f' y",
        "sed -n 's/a[/]b/c/w f' y",
        "bash -c 'echo x > f'",
        "eval 'cp y f'",
        "find b -name y -exec cp {} f \\;",
    ] {
        let outputs = command_outputs(command, ROOT, None, &prepared(command));
        assert!(outputs.iter().any(|output| output.path == "/w/f"), "{command}: {outputs:?}");
    }
}
