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

/// True if the command failed and its output says that it could not reach the network.
pub(super) fn is_missed(outcome: &ProcessOutcome) -> bool {
    if matches!(outcome.exit, Exit::Code(0)) {
        return false;
    }
    let says = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).to_lowercase();
        SIGNS.iter().any(|sign| text.contains(sign))
    };
    says(&outcome.output.tail) || says(&outcome.output.head)
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
