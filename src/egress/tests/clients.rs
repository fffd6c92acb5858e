//! Real programs through the proxy. A program that is not installed is left out.

#![expect(clippy::disallowed_types, reason = "programs of the tests, outside of the sandbox")]

use std::process::{Command, Output};

use super::{FileServer, Rig, Running};

/// Runs a program with the environment that makes it use the proxy. `None` if it is not installed.
fn run(running: &Running, program: &str, arguments: &[&str]) -> Option<Output> {
    let proxy = format!("http://{}", running.proxy);
    let mut command = Command::new(program);
    command.args(arguments).env_remove("NO_PROXY").env_remove("no_proxy");
    for (name, value) in crate::proxy_environment() {
        let value = if value.starts_with("http://") { &proxy } else { &value };
        command.env(name, value);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{program}: {error}"),
    }
}

/// Output of a program and its exit code. `None` if it is not installed.
fn text(running: &Running, program: &str, arguments: &[&str]) -> Option<(String, bool)> {
    let output = run(running, program, arguments)?;
    let text = [output.stdout, output.stderr].concat();
    Some((String::from_utf8_lossy(&text).into_owned(), output.status.success()))
}

fn rig(server: &FileServer) -> Running {
    Rig::new(&["ok.example"]).named("ok.example", server.address).run()
}

#[test]
fn curl_reaches_listed_domains_alone() {
    let server = FileServer::start(None);
    let running = rig(&server);
    let socks = format!("socks5h://{}", running.proxy);
    let curl = |arguments: &[&str]| {
        text(&running, "curl", &[&["-sS", "--max-time", "20"], arguments].concat())
    };
    let Some((plain, is_done)) = curl(&["http://ok.example/a"]) else { return };
    assert!(is_done && plain.contains("GET /a"), "{plain}");
    let tunnel = curl(&["--proxytunnel", "http://ok.example/b"]).unwrap();
    assert!(tunnel.1 && tunnel.0.contains("GET /b"), "{}", tunnel.0);
    let through_socks = curl(&["--proxy", &socks, "http://ok.example/c"]).unwrap();
    assert!(through_socks.1 && through_socks.0.contains("GET /c"), "{}", through_socks.0);
    let upload = curl(&["-d", "x=1", "-H", "Expect: 100-continue", "http://ok.example/d"]).unwrap();
    assert!(upload.0.contains("3 bytes for"), "{}", upload.0);
    let count = server.count();
    for arguments in [
        &["-f", "http://other.example/"][..],
        &["https://other.example/"],
        &["--proxytunnel", "http://other.example/"],
        &["--proxy", &socks, "http://other.example/"],
        &["-f", "http://169.254.169.254/latest/meta-data/"],
        &["-f", "http://2130706433/"],
        &["--proxytunnel", "telnet://ok.example:25"],
        &["-f", "--resolve", "ok.example:81:127.0.0.1", "http://ok.example:81/"],
    ] {
        let (text, is_done) = curl(arguments).unwrap();
        assert!(!is_done, "{arguments:?} {text}");
    }
    assert_eq!(server.count(), count);
    let (lines, _) = running.finish();
    assert!(
        lines.iter().any(|line| line.starts_with("other.example:443: it is not in")),
        "{lines:?}"
    );
}

#[test]
fn git_clones_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let server = FileServer::start(Some(root.to_owned()));
    let running = rig(&server);
    let path = |name: &str| root.join(name).display().to_string();
    let git = |arguments: &[&str]| text(&running, "git", arguments);
    let (work, bare) = (path("work"), path("bare.git"));
    if git(&["init", "-q", &work]).is_none() {
        return;
    }
    let config = ["-c", "user.name=a", "-c", "user.email=a@b", "-C", &work];
    git(&[&config[..], &["commit", "-q", "--allow-empty", "-m", "first"]].concat());
    git(&["clone", "-q", "--bare", &work, &bare]);
    git(&["-C", &bare, "update-server-info"]);
    let (said, is_done) =
        git(&["clone", "-q", "http://ok.example/bare.git", &path("copy")]).unwrap();
    assert!(is_done, "{said}");
    let (said, is_done) = git(&["clone", "http://other.example/bare.git", &path("b")]).unwrap();
    assert!(!is_done && said.contains("403"), "{said}");
}

#[test]
fn python_and_node_use_the_environment() {
    let server = FileServer::start(None);
    let running = rig(&server);
    let python =
        "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=20).read())";
    if let Some((said, is_done)) = text(&running, "python3", &["-c", python, "http://ok.example/p"])
    {
        assert!(is_done && said.contains("GET /p"), "{said}");
        let refused = text(&running, "python3", &["-c", python, "http://other.example/"]).unwrap();
        assert!(!refused.1 && refused.0.contains("403"), "{}", refused.0);
    }
    // Older releases of Node ignore the proxy, and reach nothing without it either.
    let node = "fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t), () => process.exit(3))";
    if let Some((said, is_done)) = text(&running, "node", &["-e", node, "http://ok.example/n"]) {
        assert!(!is_done || said.contains("GET /n"), "{said}");
        let refused = text(&running, "node", &["-e", node, "https://other.example/"]).unwrap();
        assert!(!refused.1, "{}", refused.0);
    }
}
