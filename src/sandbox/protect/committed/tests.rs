//! Decisions about hidden files, without git: the tests say what the commit contains.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

const TEXT: &str = "KEY=public\n";

/// Workspace with a repository and secret files.
struct Workspace {
    root: PathBuf,
    session: PathBuf,
    protection: std::sync::Arc<Protection>,
    _folder: TempDir,
}

impl Workspace {
    fn with(files: &[(&str, &str)]) -> Workspace {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (root, session) = (base.join("ws"), base.join("session"));
        for (path, text) in
            [(".git/HEAD", "ref: refs/heads/main\n"), (".git/refs/heads/main", "1\n")]
                .iter()
                .chain(files)
        {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(root.join(".git/objects")).unwrap();
        let own = vec![root.join("own")];
        let quarantine = session.join("quarantine");
        let roots = std::slice::from_ref(&root);
        let protection = Protection::new(roots, own, None, Vec::new(), quarantine).unwrap();
        Workspace { root, session, protection: protection.into(), _folder: folder }
    }

    /// Replaces the file, as git and editors do.
    fn replace(&self, path: &str, text: &str) {
        let new = self.root.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.root.join(path)).unwrap();
    }

    fn survey(&self) -> HiddenPaths {
        let mut survey = self.protection.survey();
        let names = |path: &mut PathBuf| *path = path.strip_prefix(&self.root).unwrap().to_owned();
        let mut paths = HiddenPaths {
            identities: survey.identities.clone(),
            hidden: std::mem::take(&mut survey.hidden),
            replaced: std::mem::take(&mut survey.replaced),
            covered: std::mem::take(&mut survey.covered),
            undecided: std::mem::take(&mut survey.undecided),
        };
        self.protection.take_back(survey);
        paths.hidden.iter_mut().for_each(names);
        paths
    }

    /// Surveys, answers all queries by `commit` (path, and text or reason), and surveys again.
    fn survey_with(&self, commit: &[(&str, Result<&str, &'static str>)]) -> HiddenPaths {
        let undecided = self.survey().undecided;
        let answers = undecided.into_iter().map(|path| {
            let mut files = Vec::new();
            for (name, content) in commit {
                let file = self.root.join(name);
                match content {
                    Ok(text) if file.starts_with(&path.path) => files.push(CommittedFile {
                        path: file,
                        is_executable: text.starts_with("#!"),
                        bytes: text.as_bytes().to_vec(),
                    }),
                    Err(reason) if file == path.path => return (path, Committed::Unusable(reason)),
                    _ => {}
                }
            }
            (path, Committed::Files(files))
        });
        let answers = answers.collect();
        self.protection.decide(answers);
        let survey = self.survey();
        assert!(survey.undecided.is_empty(), "{:?}", survey.undecided);
        survey
    }

    fn is_registered(&self, path: &str) -> bool {
        let metadata = fs::metadata(self.root.join(path)).unwrap();
        self.protection.secret_files.contains(&metadata)
    }

    fn views(&self, survey: &HiddenPaths) -> Vec<(String, SecretView)> {
        let name = |path: &Path| path.strip_prefix(&self.root).unwrap().display().to_string();
        survey.covered.iter().map(|secret| (name(&secret.path), secret.view)).collect()
    }
}

fn hidden(survey: &HiddenPaths) -> Vec<&str> {
    survey.hidden.iter().map(|path| path.to_str().unwrap()).collect()
}

#[test]
fn file_is_shown_only_with_the_bytes_of_the_commit() {
    let ws = Workspace::with(&[
        (".env.development", TEXT),
        (".env.test", "KEY=secret\n"),
        (".env", "KEY=secret\n"),
        ("large.key", "x"),
    ]);
    assert_eq!(ws.survey().hidden.len(), 4);
    let commit = [
        (".env.development", Ok(TEXT)),
        (".env.test", Ok("KEY=test\n")),
        ("large.key", Err("it is large")),
    ];
    let survey = ws.survey_with(&commit);
    assert_eq!(hidden(&survey), [".env", ".env.test", "large.key"]);
    assert!(!ws.is_registered(".env.development") && ws.is_registered(".env.test"));
    assert!(ws.protection.shows(&ws.root.join(".env.development")));
    assert!(!ws.protection.shows(&ws.root.join(".env.test")));
    let [replaced] = &survey.replaced[..] else { panic!("{:?}", survey.replaced) };
    assert_eq!(replaced.target, ws.root.join(".env.test"));
    assert!(replaced.source.starts_with(&ws.session));
    assert_eq!(fs::read_to_string(&replaced.source).unwrap(), "KEY=test\n");
    assert_eq!(fs::metadata(&replaced.source).unwrap().mode() & 0o777, 0o444);
    let views = ws.views(&survey);
    let expected = [
        (".env".to_owned(), SecretView::Untracked),
        (".env.test".to_owned(), SecretView::CommittedFile),
        ("large.key".to_owned(), SecretView::Nothing("it is large")),
    ];
    assert_eq!(views, expected);
    let lines = covered_lines(&survey.covered);
    assert!(lines[0].contains(".env.test") && lines[1].ends_with("it is large"), "{lines:?}");
    assert!(lines[2].contains("/.env may hold secrets"), "{lines:?}");
}

#[test]
fn decision_ends_with_a_change_of_the_file_or_the_commit() {
    let ws = Workspace::with(&[(".env.development", TEXT)]);
    let commit = [(".env.development", Ok(TEXT))];
    assert!(ws.survey_with(&commit).hidden.is_empty());
    ws.replace(".env.development", "KEY=secret\n");
    let survey = ws.survey();
    assert_eq!((hidden(&survey), survey.undecided.len()), (vec![".env.development"], 1));
    let survey = ws.survey_with(&commit);
    assert_eq!((hidden(&survey), survey.replaced.len()), (vec![".env.development"], 1));
    ws.replace(".env.development", TEXT);
    assert!(ws.survey_with(&commit).hidden.is_empty());
    for (file, text) in
        [(".git/refs/heads/main", "2\n"), (".git/HEAD", "3\n"), (".git/packed-refs", "# x\n")]
    {
        ws.replace(file, text);
        assert_eq!(ws.survey().undecided.len(), 1, "{file}");
        assert!(ws.survey_with(&commit).hidden.is_empty(), "{file}");
    }
    ws.replace(".git/HEAD", "4\n");
    assert_eq!(hidden(&ws.survey_with(&[])), [".env.development"]);
}

#[test]
fn guess_of_a_secret_is_not_confirmed_by_committing_it() {
    let ws = Workspace::with(&[(".env", "PIN=1234\n"), (".env.test", "PIN=1\n")]);
    let survey = ws.survey_with(&[(".env.test", Ok("PIN=2\n"))]);
    assert_eq!(hidden(&survey), [".env", ".env.test"]);
    ws.replace(".git/refs/heads/main", "2\n");
    // Both are in the commit now, and commands see its bytes, whether they are right or wrong.
    let guesses = [(".env", Ok("PIN=1234\n")), (".env.test", Ok("PIN=1\n"))];
    let survey = ws.survey_with(&guesses);
    assert_eq!((hidden(&survey).len(), survey.replaced.len()), (2, 2));
    // The user changed it, so it is compared again.
    ws.replace(".env", "PIN=1234\n");
    assert_eq!(hidden(&ws.survey_with(&guesses)), [".env.test"]);
}

#[test]
fn second_hard_link_and_another_kind_of_file_are_not_shown() {
    let ws = Workspace::with(&[("a.pem", TEXT), ("config/real", TEXT), ("own/b.pem", TEXT)]);
    fs::hard_link(ws.root.join("a.pem"), ws.root.join("other")).unwrap();
    symlink("config/real", ws.root.join("link.pem")).unwrap();
    let commit = [
        ("a.pem", Ok(TEXT)),
        ("other", Ok(TEXT)),
        ("config/real", Ok(TEXT)),
        ("own/b.pem", Ok(TEXT)),
    ];
    let survey = ws.survey_with(&commit);
    // The target of a link is a file like others; a folder of posse is hidden for another reason.
    assert_eq!(hidden(&survey), ["a.pem", "other", "own"]);
    let mut targets: Vec<_> = survey.replaced.iter().map(|file| file.target.clone()).collect();
    targets.sort();
    assert_eq!(targets, [ws.root.join("a.pem"), ws.root.join("other")]);
}

#[test]
fn secret_folder_contains_only_files_of_the_commit() {
    let ws = Workspace::with(&[(".aws/config", TEXT), (".aws/credentials", "KEY=secret\n")]);
    let survey = ws.survey_with(&[(".aws/config", Ok(TEXT)), (".aws/bin/run", Ok("#!/bin/sh\n"))]);
    assert_eq!(hidden(&survey), [".aws"]);
    let modes = survey.replaced.iter().map(|file| {
        let mode = fs::metadata(&file.source).unwrap().mode() & 0o777;
        (file.target.strip_prefix(&ws.root).unwrap().display().to_string(), mode)
    });
    let expected = [(".aws/config".to_owned(), 0o444), (".aws/bin/run".to_owned(), 0o555)];
    assert_eq!(modes.collect::<Vec<_>>(), expected);
    assert_eq!(ws.views(&survey), [(".aws".to_owned(), SecretView::CommittedFolder)]);
}

#[test]
fn without_a_repository_or_an_answer_files_stay_hidden() {
    let ws = Workspace::with(&[(".env", TEXT)]);
    let undecided = ws.survey().undecided;
    let unknown = undecided.into_iter().map(|path| (path, Committed::Unknown)).collect();
    ws.protection.decide(unknown);
    let survey = ws.survey();
    assert_eq!(
        (hidden(&survey), survey.undecided.len(), survey.covered.len()),
        (vec![".env"], 0, 1)
    );
    fs::remove_dir_all(ws.root.join(".git")).unwrap();
    let survey = ws.survey();
    assert_eq!((hidden(&survey), survey.undecided.len()), (vec![".env"], 0));
}

/// git is started only if there is an undecided path.
#[test]
fn without_secrets_nothing_is_asked() {
    let ws = Workspace::with(&[("src/main.rs", TEXT), (".env.example", TEXT), ("id.pub", TEXT)]);
    let survey = ws.survey();
    assert!(survey.hidden.is_empty() && survey.undecided.is_empty());
    let ws = Workspace::with(&[(".env", TEXT), ("a.pem", TEXT), (".aws/x", TEXT)]);
    assert_eq!(ws.survey().undecided.len(), 3);
    ws.survey_with(&[("a.pem", Ok(TEXT))]);
    assert!(ws.survey().undecided.is_empty());
}

#[test]
fn references_lead_to_files_below_the_repository_only() {
    let path = |text: &str| reference(text.as_bytes()).map(|path| path.display().to_string());
    assert_eq!(path("ref: refs/heads/a/b\n").as_deref(), Some("refs/heads/a/b"));
    assert_eq!(path("ref:refs/x").as_deref(), Some("refs/x"));
    for none in ["0123\n", "ref: ../x", "ref: /etc/passwd", "ref: a\0b", ""] {
        assert_eq!(path(none), None, "{none}");
    }
}

#[test]
fn number_of_reported_files_is_bounded() {
    let secret = |number| CoveredSecret {
        path: format!("/w/{number}.pem\u{1b}").into(),
        view: SecretView::CommittedFile,
    };
    let secrets: Vec<_> = (0..REPORTED_MAX + 3).map(secret).collect();
    let lines = covered_lines(&secrets);
    assert_eq!(lines.len(), REPORTED_MAX + 1);
    assert_eq!(
        lines[REPORTED_MAX],
        "SBX011 3 more tracked files are hidden from commands in this way"
    );
    let untracked = |secret: &CoveredSecret| {
        let view = SecretView::Untracked;
        CoveredSecret { view, ..secret.clone() }
    };
    let untracked = covered_lines(&secrets.iter().map(untracked).collect::<Vec<_>>());
    assert!(untracked.len() == 1 && untracked[0].contains("/w/4.pem"), "{untracked:?}");
    assert!(untracked[0].contains(" and 10 more; ") && !untracked[0].contains("/w/5.pem"));
    assert!(!lines.concat().contains('\u{1b}') && !untracked[0].contains('\u{1b}'));
    assert_eq!(covered_lines(&secrets[..0]), Vec::<String>::new());
}
