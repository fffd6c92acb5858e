//! Deny rules with a glob: paths that the words of commands name behind links, in patterns of git and
//! outside of simple commands, and globs as paths are written.

use posse_actors::ports::PathLink;

use super::denied_paths::{EDIT, EVERY, READ};
use super::*;
use crate::command_paths;

/// Commands that name the folder by a path behind a link: the links of [`WORKSPACE_LINKS`].
const BEHIND_LINKS: &[&str] = &[
    "bash cat a/../lnk/x",
    "bash cat a/../lx",
    "bash grep . a/../lnk/x",
    "bash cat a/up/../private/x",
    "bash cat a/up/../../w/private/x",
    "bash cat < a/../lnk/x",
    "bash env -C a cat ../lnk/x",
    "bash env -C a cat in/x",
    "bash env -C a/up/.. cat private/x",
    "bash git -C a diff --no-index ../lnk ../b",
    "bash cd a && sh -c 'cat ../lnk/x'",
    "bash sh -c 'cd a && cat in/x'",
    "bash cd -P a/up && cd .. && cat private/x",
    "bash set -o physical; cd a/up; cd ..; cat private/x",
    "bash cat here/here/a/in/x",
    "bash cat */../lnk/x",
    "bash cat /dev/fd/../cwd/private/x",
    "bash cat /proc/self/cwd/a/../lnk/x",
    "bash cat --number=a/../lx",
    "bash ln -s a z; cat z/in/x",
    "bash cp -a a z && mv z y && cat y/in/x",
    "bash tar cf - -C a in/x",
    "bash tar cf - --directory=a in/x",
    "bash npm --prefix a run in/x",
];

/// Commands that change the folder by a path behind a link, or in a script.
const CHANGING_BEHIND_LINKS: &[&str] = &[
    "bash touch a/../lnk/q",
    "bash cp base.txt a/../lnk/n",
    "bash cp -t a/../lnk base.txt",
    "bash mv a/../lnk/x y",
    "bash echo x > a/../lnk/new",
    "bash tee a/../lnk/new2",
    "bash gzip a/../lnk/x",
    "bash cp base.txt a/up/../private/n",
    "bash install base.txt /dev/fd/../cwd/private/n",
    "bash sed -n 'w private/w' base.txt",
    "bash sed 's/a/b/w a/../lnk/w' base.txt",
];

/// Commands of git that name the folder by a pattern, or as a file of a version.
const PATTERNS_OF_GIT: &[&str] = &[
    "bash git log -p -- ':(top)private'",
    "bash git grep -h . -- ':/private'",
    "bash git show HEAD -- ':(literal)private/x'",
    "bash git -C a grep . ':/private'",
    "bash git ls-files -s ':/private'",
    "bash git log -p -- ':(top,attr:x)private/x'",
    "bash git diff -- ':/:private'",
    "bash git log -p -- 'pri\\vate/x'",
    "bash git show HEAD:./a,b@c/../private/x",
    "bash git -C a/b show HEAD:private/x",
    "bash git show :0:private/x",
    "bash git show -m HEAD:private/x",
    "bash git show --pretty HEAD:private/x",
    "bash git show --format HEAD:private/x",
    "bash git log -p -m private",
    "bash git diff -m HEAD:private/x base.txt",
    "bash git show -am HEAD:private/x",
    "bash git commit -F -m private/x",
    "bash git commit -- -m private/x",
    "bash git log -S --grep private/x",
];

/// Commands with the folder in words that are no words of simple commands.
const ELSEWHERE: &[&str] = &[
    "bash for i in private/x; do cat $i; done",
    "bash for i in private; do cat $i/x; done",
    "bash select i in private/x; do cat $i; break; done <<< 1",
    "bash a=(private/x); cat ${a[0]}",
    "bash a=([0]=private/x other); cat $a",
    "bash a+=(base private/x)",
    "bash declare -a a=(private/x); cat $a",
    "bash cat ${X:-private/x}",
    "bash cat \"${X-private/x}\"",
    "bash cat ${X:=\"private/x\"}",
    "bash X=a; cat ${X/a/private/x}",
    "bash cat ${X:-${Y:-private/x}}",
    "bash [[ -f private/x ]]",
    "bash [[ a == b || -s private/x ]]",
    "bash case private/x in *) cat $_;; esac",
    "bash xargs cat <<< 'base private/x'",
    "bash sed -n 'r private/x' base.txt",
    "bash sed -e rprivate/x base.txt",
    "bash sed '$!N;R private/x' base.txt",
    "bash awk 'BEGIN { while (getline < \"private/x\") print }'",
    "bash python3 -c \"print(open('private/x').read())\"",
    "bash python3 - <<E\nprint(open('private/x').read())\nE",
    "bash echo \"print(open('private/x').read())\" | python3",
    "bash echo 'base private/x' | xargs cat",
    "bash alias p='cat private/x'",
    "bash cat private/$f",
    "bash cat $(pwd)/private/x",
    "bash cat \"$(git rev-parse --show-toplevel)/private/x\"",
    "bash (( x = 1 )) && cat ${a[@]:-private/x}",
];

/// Links of the workspace `/w`, which leave it alone.
const WORKSPACE_LINKS: &[(&str, &str)] = &[
    ("/w/lnk", "/w/private"),
    ("/w/lx", "/w/private/x"),
    ("/w/a/up", "/w/b"),
    ("/w/a/in", "/w/private"),
    ("/w/here", "/w"),
];

/// Links in the paths of `command`, as they are found if `links` are those that exist.
fn prepared(command: &str, home: Option<&str>, links: &[(&str, &str)]) -> Vec<PathLink> {
    let mut found = Vec::new();
    let mut add = |path: &str| {
        let target = behind(path, links);
        if target != path {
            found.push(PathLink { path: path.to_owned(), target: Some(target) });
        }
    };
    for named in command_paths(command, ROOT, home) {
        add(&named.path);
        if named.levels > 0 {
            let below = |link: &&&str| link.starts_with(&named.path);
            links.iter().map(|(link, _)| link).filter(below).for_each(|link| add(link));
        }
    }
    found
}

/// Path that the kernel opens for `path`.
fn behind(path: &str, links: &[(&str, &str)]) -> String {
    let mut at = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            at.truncate(at.rfind('/').unwrap_or(0));
        } else {
            at = format!("{at}/{part}");
        }
        if let Some((_, target)) = links.iter().find(|(link, _)| *link == at) {
            (*target).clone_into(&mut at);
        }
    }
    if at.is_empty() { "/".to_owned() } else { at }
}

/// Decision about the command `call` in a workspace with `links`.
fn with_links(policy: &RulePolicy, call: &str, links: &[(&str, &str)]) -> Verdict {
    let mut action = action(call);
    let Operation::Execute { command, links: place, .. } = &mut action.operations[0] else {
        panic!()
    };
    *place = prepared(command, policy.settings.home.as_deref(), links);
    judged(policy, &action, &situation("build", &[], AnswerSource::Human))
}

/// Checks that `rule` denies each of `calls` in a workspace with [`WORKSPACE_LINKS`] (`is_denied`), or
/// neither denies it nor lets it be asked about each time.
fn check_with_links(rule: &str, calls: &[&str], is_denied: bool) {
    let policy = policy(&[rule, r#"{"tool":"*","decision":"allow"}"#]);
    let mut wrong = Vec::new();
    for call in calls {
        let verdict = with_links(&policy, call, WORKSPACE_LINKS);
        let is_wrong = match verdict {
            Verdict::Deny { .. } => !is_denied,
            Verdict::Ask(question) => is_denied || question.reason.contains("may match a path"),
            Verdict::Allow(_) => is_denied,
        };
        if is_wrong {
            wrong.push(call);
        }
    }
    assert!(wrong.is_empty(), "{rule} {is_denied}: {wrong:#?}");
}

#[test]
fn paths_behind_links_are_those_of_the_kernel() {
    check_with_links(EVERY, BEHIND_LINKS, true);
    check_with_links(READ, BEHIND_LINKS, true);
    for rule in [EVERY, READ, EDIT] {
        check_with_links(rule, CHANGING_BEHIND_LINKS, true);
    }
    let free = [
        "bash cat a/../base.txt",
        "bash cat a/../b/x",
        "bash cat a/up/../base.txt",
        "bash cp ../lib/x y",
        "bash cd a/.. && make",
        "bash mkdir -p new/deep && cp base.txt new/deep/../y",
        "bash mkdir new && cd new && cmake ..",
        "bash rg \"from '../../lib'\" a",
        "bash cat /proc/self/status /dev/stdin",
        "bash node node_modules/.bin/../x/cli.js",
        "bash ls a/..",
        "bash cd a && git diff ../base.txt",
        "bash cd a && git add ../base.txt && git status",
        "bash cd a && git commit -m x -- ../base.txt",
        "bash ln -s ../b a/new",
        "bash tar czf out.tgz -C a .",
    ];
    check_with_links(EVERY, &free, false);
}

#[test]
fn name_that_the_line_makes_a_link_is_asked_about() {
    let policy = policy(&[EVERY, r#"{"tool":"*","decision":"allow"}"#]);
    for call in [
        "bash ln -s b/deep l; cat l/../../base.txt",
        "bash mv a/up u && cat u/../x",
        "bash cp -a a c; cat c/up/../x",
        "bash tar xf t.tar && cat new/../x",
        "bash echo x > /dev/fd/3/x",
        "bash cat pri$(true)vate/x",
        "bash cat \"${X}rivate/x\"",
        "bash shopt -s nocaseglob; cat PRIV*/x",
        "bash bash -O nocaseglob -c 'cat PRIV*/x'",
        "bash cat /proc/self/fd/3/../x",
    ] {
        let missing = |link: &mut PathLink| {
            let is_new = ["/w/l", "/w/u", "/w/c", "/w/new"]
                .iter()
                .any(|new| link.path.strip_prefix(new).is_some_and(|rest| rest.starts_with('/')));
            if is_new {
                link.target = None;
            }
        };
        let mut action = action(call);
        let Operation::Execute { command, links, .. } = &mut action.operations[0] else { panic!() };
        *links = prepared(command, None, WORKSPACE_LINKS);
        links.iter_mut().for_each(missing);
        let verdict = judged(&policy, &action, &situation("build", &[], AnswerSource::Human));
        let Verdict::Ask(question) = verdict else { panic!("{call}: {verdict:?}") };
        assert!(question.reason.contains("may match a path"), "{call}: {}", question.reason);
    }
}

#[test]
fn patterns_of_git_and_files_of_versions_name_paths() {
    check_with_links(EVERY, PATTERNS_OF_GIT, true);
    check_with_links(READ, PATTERNS_OF_GIT, true);
    let policy = policy(&[READ, r#"{"tool":"*","decision":"allow"}"#]);
    for call in [
        "bash git log -p -- ':(icase)PRIVATE'",
        "bash git --icase-pathspecs log -p PRIVATE",
        "bash GIT_ICASE_PATHSPECS=1 git log -p Private/x",
        "bash git log -p -- ':(glob)**/private/x'",
        "bash git log -p -- 'p*x'",
    ] {
        let verdict = with_links(&policy, call, WORKSPACE_LINKS);
        assert!(!matches!(verdict, Verdict::Allow(_)), "{call}: {verdict:?}");
    }
    check_with_links(
        EVERY,
        &[
            "bash git diff -- ':(glob)src/**/x.rs'",
            "bash git log -- ':!private'",
            "bash git grep x -- ':(exclude)private/x'",
            "bash git diff -- ':(top)public'",
            "bash git log -- ':(icase)README.md'",
            "bash git diff -- '*.rs'",
            "bash git log main..HEAD -- src/lib.rs",
            "bash git commit -am 'move private/x away'",
            "bash git commit --message='move private/x away' -m 'see private/x'",
            "bash git merge -m 'private/x' topic",
            "bash git tag -a v1 -m private/x",
            "bash git stash push -m private/x",
            "bash git notes add -m private/x",
            "bash git log --oneline -5 --grep private/x",
            "bash gh pr create --title private/x --body 'see private/x'",
        ],
        false,
    );
}

#[test]
fn words_of_loops_arrays_conditions_and_expansions_name_paths() {
    check_with_links(EVERY, ELSEWHERE, true);
    check_with_links(READ, ELSEWHERE, true);
    check_with_links(
        EVERY,
        &[
            "bash for i in a b; do cat $i; done",
            "bash for i in src/*.rs; do wc -l $i; done",
            "bash a=(public/x); cat ${a[0]}",
            "bash cat ${X:-public/x}",
            "bash [[ -f public/x && $y == private ]]",
            "bash sed -n 's/a/b/p' base.txt",
            "bash sed 's|r private|x|' base.txt",
            "bash echo 'see private/x for more'",
            "bash cat <<E > new\nsee private/x\nE",
            "bash cat $DIR/base.txt",
            "bash cat src/$NAME.rs v$VERSION.txt $DIR/$f",
            "bash python3 -c 'print(1 / 2)'",
            "bash awk -F/ '{ print $1 \"/\" $2 }' base.txt",
        ],
        false,
    );
}

#[test]
fn globs_of_deny_rules_are_written_as_paths() {
    let settings = |glob: &str| PolicySettings {
        rules: vec![json!({"tool": "*", "match": {"pathGlob": glob}, "decision": "deny"})],
        home: Some("/w/home [x]".to_owned()),
        ..PolicySettings::default()
    };
    for (glob, path) in [
        ("private//**", "private/x"),
        ("./private/./**", "private/x"),
        ("/w//private/**", "private/x"),
        ("private/.", "private/x"),
        ("~/private/**", "home [x]/private/x"),
        ("~", "home [x]/x"),
    ] {
        let policy = with(settings(glob));
        let action = action(&format!("read_file {path}"));
        let verdict = judged(&policy, &action, &situation("build", &[], AnswerSource::Human));
        assert!(matches!(verdict, Verdict::Deny { .. }), "{glob} {path}");
    }
    for (glob, expected) in [
        ("../private/**", "contains `..`"),
        ("a/../private", "contains `..`"),
        ("{a/..,b}/private", "contains `..`"),
        ("~user/private/**", "a name behind `~`"),
        ("{~/private,b}/**", "the beginning of an alternative"),
        ("{b,~/private}/**", "the beginning of an alternative"),
        ("{b,{c,~}}/private/**", "the beginning of an alternative"),
        ("{/w/private,b}/**", "the beginning of an alternative"),
        ("{{a,/w/b},c}/**", "the beginning of an alternative"),
    ] {
        let failures = RulePolicy::new(settings(glob)).unwrap_err();
        let text = failures[0].to_string();
        assert!(text.contains("permissions[0]") && text.contains(expected), "{glob}: {text}");
    }
    for glob in ["{a,b}/private/**", "a/{b,c}/{d/e,f}", "{a/b,c/{d,e/f}}/**", "a{b,/c}"] {
        assert!(RulePolicy::new(settings(glob)).is_ok(), "{glob}");
    }
}

#[test]
fn home_folder_that_is_a_link_is_denied_by_its_target() {
    let policy = with(PolicySettings {
        rules: vec![serde_json::from_str(&READ.replace("private", "~/private")).unwrap()],
        home: Some("/home/link".to_owned()),
        home_target: Some("/extra/u".to_owned()),
        ..PolicySettings::default()
    });
    let links = [("/home/link", "/extra/u")];
    for call in [
        "bash cat ~/private/x",
        "bash cat /home/link/private/x",
        "bash cat /extra/u/private/x",
        "bash cat ~/../u/private/x",
        "bash python3 -c \"open('$HOME/private/x')\"",
    ] {
        let verdict = with_links(&policy, call, &links);
        assert!(matches!(verdict, Verdict::Deny { .. }), "{call}: {verdict:?}");
    }
    let situation = situation("build", &[], AnswerSource::Human);
    let verdict = judged(&policy, &action("read_file /extra/u/private/x"), &situation);
    assert!(matches!(verdict, Verdict::Deny { .. }), "{verdict:?}");
}
