//! Recognises commands that failed because the sandbox gave them no network.

use posse_sandbox::{Exit, ProcessOutcome};

/// Texts, in lower case, with which programs report that they cannot resolve a name or connect.
const SIGNS: &[&str] = &[
    "could not resolve",
    "couldn't resolve",
    "unable to resolve",
    "name resolution",
    "name or service not known",
    "nodename nor servname",
    "no address associated with hostname",
    "failed to lookup address",
    "no such host",
    "unknown host",
    "bad address '",
    "temporary failure resolving",
    "dns error",
    "getaddrinfo",
    "eai_again",
    "enotfound",
    "enetunreach",
    "network is unreachable",
    "network unreachable",
    "failed to connect to",
    "couldn't connect to server",
    "could not connect to",
    "newconnectionerror",
    "dial tcp",
    "connect: operation not permitted",
    "connect: permission denied",
    "socket: operation not permitted",
    "socket: permission denied",
];

/// Note for the model and the user about a command without network.
pub(super) const NO_NETWORK: &str = "the sandbox gave this command no network, not even the loopback of the host; the user can allow \
     it: start posse with `--network ask` for the domains in network.allowedDomains, or with `--network inherit` for all (setting: \
     sandbox.network)";

/// Names of the loopback in lower case.
const LOOPBACK_NAMES: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "::1"];

/// Maximum number of characters between a name of the loopback and its port.
const GAP_CHARS_MAX: usize = 12;

/// Connection that a failed command missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MissedConnection {
    /// Port of the loopback; `None` if another host was meant, or the output names no port.
    pub(super) loopback_port: Option<u16>,
    /// Line of the output about it, without digits.
    pub(super) line: String,
}

/// True if the command failed and its output says that it could not reach the network.
pub(super) fn is_missed(outcome: &ProcessOutcome) -> bool {
    missed(outcome).is_some()
}

/// The connection about which the output of a failed command says that it was not possible. `None` if
/// there is none.
pub(super) fn missed(outcome: &ProcessOutcome) -> Option<MissedConnection> {
    if matches!(outcome.exit, Exit::Code(0)) {
        return None;
    }
    [&outcome.output.tail, &outcome.output.head].into_iter().find_map(|bytes| {
        let text = String::from_utf8_lossy(bytes).to_lowercase();
        let line = text.lines().find(|line| SIGNS.iter().any(|sign| line.contains(sign)))?;
        let is_digit = |c: char| c.is_ascii_digit();
        Some(MissedConnection {
            loopback_port: loopback_port(line),
            line: line.replace(is_digit, ""),
        })
    })
}

/// Port of the loopback in a line such as `connect to 127.0.0.1 port 3000`.
fn loopback_port(line: &str) -> Option<u16> {
    LOOPBACK_NAMES.iter().find_map(|name| {
        let (_, after) = line.split_once(name)?;
        let gap = after.find(|c: char| c.is_ascii_digit()).filter(|gap| *gap <= GAP_CHARS_MAX)?;
        let is_between = |c: char| " :,='\"".contains(c) || "port".contains(c);
        let digits: String = after[gap..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().filter(|_| after[..gap].chars().all(is_between))
    })
}

/// Note for the model and the user about a port of the loopback to which a command with a proxy could
/// not connect.
pub(super) fn loopback_note(port: u16) -> String {
    format!(
        "nothing listens on port {port} of the loopback of the sandbox, which is not that of the \
         host; if a server on the host is meant, the user can add \"localhost:{port}\" to \
         network.allowedDomains"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use posse_sandbox::Captured;

    use super::*;

    fn outcome(exit: Exit, output: &str) -> ProcessOutcome {
        let head = output.as_bytes().to_vec();
        let total = head.len() as u64;
        let output = Captured { head, tail: Vec::new(), total, spill: None, spill_failure: None };
        ProcessOutcome {
            exit,
            output,
            errors: Vec::new(),
            duration: Duration::ZERO,
            quiet: Duration::ZERO,
            stragglers: 0,
            findings: Vec::new(),
            covered_secrets: Vec::new(),
        }
    }

    #[test]
    fn ports_of_the_loopback_are_read() {
        for (output, port) in [
            ("curl: (7) Failed to connect to 127.0.0.1 port 18777 after 0 ms: x", Some(18777)),
            ("curl: (7) Failed to connect to localhost port 3000: Connection refused", Some(3000)),
            ("Get \"http://localhost:8080/\": dial tcp [::1]:8080: connect: refused", Some(8080)),
            ("(host='localhost', port=8000): NewConnectionError", Some(8000)),
            ("curl: (7) Failed to connect to 127.0.0.1 port 99999: x", None),
            ("curl: (6) Could not resolve host: localhost.example.org after 3000 ms", None),
            ("curl: (6) Could not resolve host: example.org", None),
        ] {
            let missed = missed(&outcome(Exit::Code(1), output)).unwrap();
            assert_eq!(missed.loopback_port, port, "{output}");
            assert!(!missed.line.contains(|c: char| c.is_ascii_digit()));
        }
        assert!(loopback_note(3000).contains("\"localhost:3000\""));
    }

    #[test]
    fn failures_without_network_are_recognised() {
        for output in [
            "curl: (6) Could not resolve host: example.org",
            "curl: (7) Failed to connect to localhost port 3000: Connection refused",
            "wget: unable to resolve host address 'example.org'",
            "ssh: connect to host: Temporary failure in name resolution",
            "fatal: unable to access 'https://x/': Could not resolve host: x",
            "npm ERR! code ENOTFOUND",
            "getaddrinfo EAI_AGAIN registry",
            "socket.gaierror: [Errno -2] Name or service not known",
            "dial tcp: lookup x: no such host",
            "ping: socket: Operation not permitted",
        ] {
            assert!(is_missed(&outcome(Exit::Code(1), output)), "{output}");
            assert!(!is_missed(&outcome(Exit::Code(0), output)), "{output}");
        }
        for output in ["", "error: test failed", "cat: x: Permission denied", "unresolved name"] {
            assert!(!is_missed(&outcome(Exit::Code(1), output)), "{output}");
        }
        assert!(is_missed(&outcome(Exit::TimedOut, "network is unreachable")));
    }
}
