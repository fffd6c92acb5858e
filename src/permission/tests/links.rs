//! Symbolic links in the paths of granted commands.

use posse_actors::ports::{CommandPath, PathLink};

use super::corpus::grants;
use super::*;
use crate::command_paths;

const GRANTS: [&str; 8] =
    ["cat", "head", "ls", "grep", "git diff", "pytest", "cd links", "cd src/deep"];

/// The links of the workspace; an empty target cannot be resolved.
const LINKS: [(&str, &str); 11] = [
    ("/w/dirlink", "/etc"),
    ("/w/dirlink/hosts", "/etc/hosts"),
    ("/w/src/deep/../../dirlink/hosts", "/etc/hosts"),
    ("/w/keys", "/home/user/.ssh"),
    ("/w/keys/notes", "/home/user/.ssh/notes"),
    ("/w/innocent.txt", "/w/.env"),
    ("/w/src/same.rs", "/w/src/main.rs"),
    ("/w/links", "/w/src"),
    ("/w/own", "/w/own/state"),
    ("/w/dangling", ""),
    ("/w/src/test_x.py", "/opt/test_x.py"),
];

fn links() -> Vec<PathLink> {
    let target = |target: &str| Some(target.to_owned()).filter(|target| !target.is_empty());
    LINKS.map(|(path, to)| PathLink { path: path.to_owned(), target: target(to) }).into()
}

#[track_caller]
fn decides(expected: &str, commands: &[&str]) {
    let (policy, granted, links) = (policy(&[]), grants(&GRANTS), links());
    for command in commands {
        let checked = policy.check_resolved(resolved(command, &links), &granted);
        assert_eq!(checked.decision, expected, "{command}: {}", checked.reason);
    }
}

#[test]
fn path_that_leads_out_of_the_workspace_or_to_a_secret_asks() {
    decides(
        "ask",
        &[
            "cat dirlink/hosts",
            "cat ./dirlink//hosts",
            "cat /w/dirlink/hosts",
            "cat dirlink/new",
            "ls keys",
            "ls own",
            "grep root dirlink/hosts",
            "cat keys/notes",
            "cat key?/notes",
            "cat dir*/hosts",
            "cat d{irlink,oc}/hosts",
            "cat < innocent.txt",
            "cat innocent.txt",
            "cat i*.txt",
            "head -n 1 innocent.txt",
            "cat own",
            "cat dangling",
            "pytest dirlink/x.py",
            "pytest src/test_x.py::test_a",
            "git diff dirlink/hosts README.md",
            "git diff -- innocent.txt",
            "cd links && cat README.md",
            "cd src/deep && cat ../../dirlink/hosts",
        ],
    );
    decides(
        "allow",
        &[
            "cat src/same.rs",
            "cat src/*.rs",
            "cat README.md dirlinks",
            "cat innocent.txt.md",
            "ls src",
            "ls dirlink",
            "ls dirlink/",
            "cat links/main.rs",
            "pytest src/test_y.py::test_a",
            "cd src/deep && cat ../main.rs",
        ],
    );
}

#[test]
fn directory_of_a_failed_or_finished_cd_counts_as_well() {
    decides(
        "ask",
        &[
            "(cd src/deep); cat ../x",
            "cd src/deep; cat ../../../x",
            "cd src/deep || cat ../x",
            "true | cd src/deep && cat ../x",
        ],
    );
}

#[test]
fn link_to_a_secret_is_asked_about_each_time() {
    let checked = policy(&[]).check_resolved(resolved("python3 innocent.txt", &links()), &[]);
    assert_eq!(
        checked.reason,
        "the command names innocent.txt, a link to /w/.env, which holds secrets"
    );
    assert_eq!(checked.grant, None);
}

#[test]
fn all_paths_that_words_may_name_are_resolved() {
    let paths = |command: &str| -> Vec<(String, usize)> {
        let paths = command_paths(command, ROOT, Some("/home/u"));
        paths.into_iter().map(|CommandPath { path, levels }| (path, levels)).collect()
    };
    let plain = |path: &str| (path.to_owned(), 0);
    assert_eq!(
        paths("cat a/./b ../c ~/d x.py::t < 'e f'"),
        [
            plain("/w/cat"),
            plain("/w/a/b"),
            plain("/w/../c"),
            plain("/home/u/d"),
            plain("/w/x.py::t"),
            plain("/w/x.py"),
            plain("/w/e f"),
            // Further paths that deny rules examine.
            plain("/c"),
            plain("/w"),
            plain("/w/.."),
            plain("/w/:t"),
            plain("/w/t"),
        ]
    );
    assert_eq!(paths("ls s*/b '*'"), [plain("/w/ls"), (ROOT.to_owned(), 2), plain("/w/*")]);
    assert_eq!(
        paths("cd a; cat b"),
        ["/w/cd", "/w/a", "/w/cat", "/w/a/cat", "/w/b", "/w/a/b"].map(plain)
    );
    let many: Vec<String> = (0..2000).map(|at| format!("f{at}")).collect();
    assert_eq!(paths(&format!("cat {}", many.join(" "))), [("/".to_owned(), usize::MAX)]);
}
