//! Processes that try to outlive the command.

use super::{Proof, SandboxCase, Tiers, Twin};

/// The script prints `DONE` when it runs; afterwards none of its processes may exist.
const fn row(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase {
        name,
        tiers: Tiers::Both,
        proof: Proof::Nowhere,
        script,
        forbidden: "N=posse-survivor-$ID",
        allowed: "N=something-else",
        twin: Twin::Inside,
    }
}

pub(super) fn rows() -> Vec<SandboxCase> {
    vec![
        row("a job left behind", "bash -c 'sleep 600; :' $N & echo DONE"),
        row(
            "a session of its own",
            "setsid bash -c 'sleep 600; :' $N > /dev/null 2>&1 & echo DONE",
        ),
        row(
            "forked twice",
            "(setsid bash -c 'bash -c \"sleep 600; :\" $0 &' $N &) > /dev/null 2>&1; echo DONE",
        ),
        row("without hanging up", "nohup bash -c 'sleep 600; :' $N > /dev/null 2>&1 & echo DONE"),
        row(
            "deaf to signals",
            "bash -c 'trap \"\" TERM INT HUP; while :; do sleep 600; done' $N & echo DONE",
        ),
        row("stopped", "bash -c 'kill -STOP $$; :' $N & echo DONE"),
        row("without an environment", "env -i setsid bash -c 'sleep 600; :' $N & echo DONE"),
        row(
            "one after the other",
            "bash -c 'f() { sleep 0.01; \"$0\" -c \"$1\" x \"$1\" $2 & }; sleep 600; f' $N & echo DONE",
        ),
        row(
            "a crowd",
            "for i in $(seq 1 60); do setsid bash -c 'sleep 600; :' $N & done; echo DONE",
        ),
        row("holding the output", "setsid bash -c 'sleep 600; :' $N 3>&1 4>&2 & disown; echo DONE"),
    ]
}
