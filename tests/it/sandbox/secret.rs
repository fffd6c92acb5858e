//! Reading secrets.

use super::{Proof, SandboxCase, Tiers, Twin};

/// Only mounts can hide a file in a readable folder: the reduced tier asks before it runs any
/// command where secrets exist.
const fn row(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase {
        name,
        tiers: Tiers::Full,
        proof: Proof::Silent,
        script,
        forbidden: "F=$WS/.env",
        allowed: "F=$WS/.env.example",
        twin: Twin::Inside,
    }
}

const SEEN: &str = "cat $F && echo DONE";

pub(super) fn rows() -> Vec<SandboxCase> {
    vec![
        row("an environment file", SEEN),
        row("a variant of it", SEEN).with_forbidden("F=$WS/.env.local"),
        row("a deep one", SEEN).with_forbidden("F=$WS/deep/er/.env.production"),
        row("a key", SEEN).with_forbidden("F=$WS/certs/server.key"),
        row("a key in a protected folder", SEEN).with_forbidden("F=$WS/.vscode/tls.key"),
        row("a key in a nested repository", SEEN).with_forbidden("F=$WS/d1/tls.key"),
        row("a key in a protected folder of it", SEEN)
            .with_forbidden("F=$WS/d1/.devcontainer/tls.key"),
        row("a folder behind a link with a secret name", SEEN).with_forbidden("F=$WS/.aws/config"),
        row("a file whose folder is behind a link", SEEN)
            .with_forbidden("F=$WS/.docker/config.json"),
        row("the target of this link", SEEN).with_forbidden("F=$WS/linked/cloud/config"),
        row("the shell's own reading", "echo \"$(< $F)\"; [ -s $F ] && echo DONE"),
        row("another program", "python3 -c \"print(open('$F').read())\" && echo DONE"),
        row("a copy", "cp $F $WS/copy && cat $WS/copy && echo DONE"),
        row("a new name", "mv -T $F $WS/renamed; cat $WS/renamed && echo DONE"),
        row("a second name", "ln $F $WS/second; cat $WS/second && echo DONE"),
        row("a link", "ln -s $F $WS/soft; cat $WS/soft && echo DONE"),
        row("an archive", "tar -cf - -C / ${F#/} | tr '\\0' '\\n' && echo DONE"),
        row("a search", "grep -rh . $F && echo DONE"),
        row("the root of a process", "cat /proc/self/root$F && echo DONE"),
        row("an object of git", "git hash-object --no-filters $F && cat $F && echo DONE"),
        row("a folder above renamed", "mv -T $D $D-x; cat $D-x/* && echo DONE")
            .with_forbidden("D=$WS/certs; rm -f $D/notes.txt")
            .with_twin(Twin::Inside, "D=$WS/area/dir"),
        row("a program that is given it", "head -c 100 < $F && echo DONE"),
        row("its bytes in hexadecimal", "od -c $F | head -2 && [ -s $F ] && echo DONE"),
        row("a private key of the home folder", SEEN).with_forbidden("F=$HOME/.ssh/id_ed25519"),
        row("credentials of a cloud", SEEN).with_forbidden("F=$HOME/.aws/credentials"),
        row("the token of a program", SEEN).with_forbidden("F=$HOME/.config/gh/hosts.yml"),
        row("passwords of machines", SEEN).with_forbidden("F=$HOME/.netrc"),
        row("what another session said", SEEN)
            .with_forbidden("F=$STATE/sessions/other/session.jsonl"),
        row("what was allowed", SEEN).with_forbidden("F=$STATE/grants.json"),
    ]
}
