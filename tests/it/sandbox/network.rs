//! Network access of commands.

use super::{Proof, SandboxCase, Tiers, Twin};

const fn row(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase {
        name,
        tiers: Tiers::Both,
        proof: Proof::Denied,
        script,
        forbidden: "",
        allowed: "",
        twin: Twin::Network,
    }
}

const fn never(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase { twin: Twin::Unconfined, ..row(name, script) }
}

/// A separate network accepts every packet: it must not arrive.
const fn unheard(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase { proof: Proof::Nowhere, ..row(name, script) }
}

pub(super) fn rows() -> Vec<SandboxCase> {
    vec![
        row("a stream", "python3 -IS $PROBE tcp $TCP"),
        row("a stream on IPv6", "python3 -IS $PROBE tcp6 $TCP6"),
        row("a stream to a mapped address", "python3 -IS $PROBE mapped4 $TCP"),
        unheard("a datagram", "python3 -IS $PROBE udp $UDP"),
        unheard("a datagram on IPv6", "python3 -IS $PROBE udp6 $UDP6"),
        row("the shell's own streams", "(echo x > /dev/tcp/127.0.0.1/$TCP) && echo DONE"),
        unheard("the shell's own datagrams", "(echo x > /dev/udp/127.0.0.1/$UDP) && echo DONE"),
        row("perl", PERL),
        row("a program fetching", FETCH),
        never("a named socket", "python3 -IS $PROBE unix $STREAM"),
        never("a socket without a file", "python3 -IS $PROBE abstract posse-stream-$ID"),
        never("a datagram to a named socket", "python3 -IS $PROBE datagram $DATAGRAM"),
        never(
            "a datagram to a socket without a file",
            "python3 -IS $PROBE abstract_datagram posse-datagram-$ID",
        ),
        never("a datagram from one end of a pair", "python3 -IS $PROBE pair_datagram $DATAGRAM"),
        never(
            "a socket through a link",
            "ln -s $STREAM $WS/socket && python3 -IS $PROBE unix $WS/socket",
        ),
        never("the kernel's own messages", "python3 -IS $PROBE netlink"),
        never("the kernel's audit", "python3 -IS $PROBE audit"),
        never("the kernel's events", "python3 -IS $PROBE events"),
        never("raw packets", "python3 -IS $PROBE raw"),
        never("raw packets on IPv6", "python3 -IS $PROBE raw6"),
        never("packets of the link", "python3 -IS $PROBE packet"),
        never("the host of a virtual machine", "python3 -IS $PROBE vsock"),
        never("the kernel's cryptography", "python3 -IS $PROBE alg"),
        never("radio", "python3 -IS $PROBE bluetooth"),
        never("packets past the kernel", "python3 -IS $PROBE xdp"),
        never("clusters", "python3 -IS $PROBE tipc"),
        never("field buses", "python3 -IS $PROBE can"),
        never("the kernel's keys of the network", "python3 -IS $PROBE key"),
    ]
}

const PERL: &str = "perl -MIO::Socket::INET -e \
 'exit !IO::Socket::INET->new(PeerAddr => \"127.0.0.1\", PeerPort => $ENV{TCP}, Timeout => 3)' \
 && echo DONE";

/// It connects to a server that sends nothing, and checks the connection.
const FETCH: &str = "python3 -c \"
import http.client, os
c = http.client.HTTPConnection('127.0.0.1', int(os.environ['TCP']), timeout=3)
c.connect()
c.request('GET', '/?stolen=1')
\" && echo DONE";
