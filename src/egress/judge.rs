//! Judgement of a connection: a pure function of the rules, the destination and its addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::addresses::{canonical, reserved};
use crate::destination::{Destination, DestinationHost, LOCALHOST};
use crate::patterns::{DomainPattern, USUAL_PORTS};

/// Endings of names that no public name server knows. Names without a dot are such names too.
const LOCAL_NAMES: [&str; 12] = [
    LOCALHOST,
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "localdomain",
    "home.arpa",
    "onion",
    "invalid",
];

/// Maximum number of addresses of a name that are judged and tried.
const ADDRESSES_MAX: usize = 32;

/// Rules of the user for the network of commands.
#[derive(Debug, Clone, Default)]
pub struct EgressPolicy {
    /// `network.allowedDomains`.
    pub allowed: Vec<DomainPattern>,
    /// `network.blockedDomains`. They win over allowed ones and answers.
    pub blocked: Vec<DomainPattern>,
    /// True if a person can be asked about a domain that is not listed.
    pub asks: bool,
}

/// Decision about a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressVerdict {
    /// The name is allowed; its addresses have to be looked up and judged.
    Resolve,
    /// The connection is allowed, to one of these addresses.
    Allow(Vec<SocketAddr>),
    /// A person decides.
    Ask,
    /// The connection is refused.
    Refuse(EgressRefusal),
}

/// Reason for which a connection is refused, for the model and the user. The text follows the
/// destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressRefusal {
    /// The domain is blocked.
    #[error("the user blocked it (network.blockedDomains)")]
    Blocked,
    /// The domain is not listed, and no person can be asked.
    #[error("it is not in network.allowedDomains, and no user can be asked")]
    NotListed,
    /// The port is neither 80 nor 443 and not listed.
    #[error(
        "ports other than 80 and 443 must be listed; the user can add \"{0}\" to \
         network.allowedDomains"
    )]
    Port(Destination),
    /// The host is a public address, which is not listed.
    #[error(
        "it is an address and not a domain; the user can add \"{0}\" to network.allowedDomains"
    )]
    Literal(Destination),
    /// The host is an address that is not public, and not listed.
    #[error("it is {kind}; the user can add \"{listed}\" to network.allowedDomains")]
    Reserved {
        /// Kind of the address, with its article.
        kind: &'static str,
        /// Entry that would allow it.
        listed: Destination,
    },
    /// The name leads to an address that is not public, and not listed.
    #[error(
        "its name leads to {address}, {kind}; the user can add \"{listed}\" to \
         network.allowedDomains if that is intended"
    )]
    Rebound {
        /// The address.
        address: IpAddr,
        /// Kind of the address, with its article.
        kind: &'static str,
        /// Entry that would allow the address.
        listed: Destination,
    },
    /// The name is one of a local network, and not listed.
    #[error(
        "it is a name of a local network; the user can add \"{0}\" and its address to \
         network.allowedDomains"
    )]
    LocalName(Destination),
    /// The name has no address.
    #[error("its name has no address")]
    NoAddress,
    /// The name could not be looked up.
    #[error("its name could not be looked up: {0}")]
    Lookup(String),
    /// The person refused, or did not answer in time.
    #[error("{0}")]
    Answered(String),
    /// The command has asked about too many domains and ports.
    #[error("this command has asked about {0} other domains and ports already")]
    TooManyQuestions(usize),
    /// More was sent to the domain than the user allows.
    #[error(
        "more than {0} bytes would be sent to it in this session (network.uploadLimitBytes), and \
         {1}"
    )]
    Upload(u64, String),
    /// The server did not accept the connection.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
}

impl EgressPolicy {
    fn lists(&self, destination: &Destination) -> bool {
        self.allowed.iter().any(|pattern| pattern.allows(destination))
    }

    fn blocks(&self, destination: &Destination) -> bool {
        self.blocked.iter().any(|pattern| pattern.blocks(destination))
    }

    /// Destination to which connections to a loopback port of a command are forwarded: `localhost`,
    /// which is 127.0.0.1 and `::1`, if the rules allow it, otherwise 127.0.0.1.
    pub(crate) fn forward(&self, port: u16) -> Destination {
        let localhost = Destination { host: DestinationHost::Name(LOCALHOST.to_owned()), port };
        if self.allows(&localhost) {
            return localhost;
        }
        Destination::at(Ipv4Addr::LOCALHOST.into(), port)
    }

    /// Loopback ports that the user listed and did not block, without duplicates.
    pub fn loopback_ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> =
            self.allowed.iter().filter_map(DomainPattern::loopback_port).collect();
        ports.retain(|port| self.allows(&self.forward(*port)));
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// True if the rules allow `destination` without an answer and without a lookup.
    fn allows(&self, destination: &Destination) -> bool {
        matches!(judge(self, destination, false, None), EgressVerdict::Allow(_))
    }
}

/// Judges a connection to `destination`.
///
/// `approved`: a person has allowed the destination. `resolved`: addresses of its name; `None` if it
/// was not looked up yet. A name is looked up only after [`EgressVerdict::Resolve`], because a
/// lookup already sends the name to its owner. If any address is refused, the name is: a name that
/// leads to public and to private addresses is an attack or a mistake.
pub fn judge(
    policy: &EgressPolicy,
    destination: &Destination,
    approved: bool,
    resolved: Option<&[SocketAddr]>,
) -> EgressVerdict {
    use EgressVerdict::{Allow, Ask, Refuse, Resolve};
    if policy.blocks(destination) {
        return Refuse(EgressRefusal::Blocked);
    }
    let is_listed = policy.lists(destination);
    let name = match &destination.host {
        DestinationHost::Address(address) => {
            let listed = destination.clone();
            return match reserved(*address) {
                _ if is_listed => Allow(vec![SocketAddr::new(*address, destination.port)]),
                Some(kind) => Refuse(EgressRefusal::Reserved { kind, listed }),
                None => Refuse(EgressRefusal::Literal(listed)),
            };
        }
        DestinationHost::Name(name) => name,
    };
    if !is_listed {
        if is_local(name) {
            return Refuse(EgressRefusal::LocalName(destination.clone()));
        }
        if !USUAL_PORTS.contains(&destination.port) {
            return Refuse(EgressRefusal::Port(destination.clone()));
        }
        if !approved {
            return if policy.asks { Ask } else { Refuse(EgressRefusal::NotListed) };
        }
    }
    if name == LOCALHOST {
        let own = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]
            .map(|address| SocketAddr::new(address, destination.port));
        return judge_addresses(policy, &own).map_or_else(Refuse, Allow);
    }
    match resolved {
        None => Resolve,
        Some(addresses) => judge_addresses(policy, addresses).map_or_else(Refuse, Allow),
    }
}

fn judge_addresses(
    policy: &EgressPolicy,
    addresses: &[SocketAddr],
) -> Result<Vec<SocketAddr>, EgressRefusal> {
    let mut judged = Vec::new();
    for found in addresses {
        let address = canonical(found.ip());
        let at = Destination::at(address, found.port());
        if policy.blocks(&at) {
            return Err(EgressRefusal::Blocked);
        }
        if let Some(kind) = reserved(address)
            && !policy.lists(&at)
        {
            return Err(EgressRefusal::Rebound { address, kind, listed: at });
        }
        judged.push(SocketAddr::new(address, found.port()));
    }
    judged.truncate(ADDRESSES_MAX);
    if judged.is_empty() { Err(EgressRefusal::NoAddress) } else { Ok(judged) }
}

fn is_local(name: &str) -> bool {
    let ends = |ending: &&str| {
        name.strip_suffix(*ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !name.contains('.') || LOCAL_NAMES.iter().any(ends)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(allowed: &[&str], blocked: &[&str]) -> EgressPolicy {
        let parse = |entries: &[&str]| {
            entries.iter().map(|entry| DomainPattern::parse(entry).unwrap()).collect()
        };
        EgressPolicy { allowed: parse(allowed), blocked: parse(blocked), asks: true }
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// First word of the verdict, and of the reason.
    fn verdict(policy: &EgressPolicy, to: &str, approved: bool, found: Option<&[&str]>) -> String {
        let to = Destination::parse(to).unwrap();
        let found = found.map(addresses);
        let verdict = judge(policy, &to, approved, found.as_deref());
        let text = format!("{verdict:?}");
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
        match verdict {
            EgressVerdict::Refuse(_) => words[1].to_owned(),
            _ => words[0].to_owned(),
        }
    }

    #[test]
    fn names_are_judged_before_they_are_looked_up() {
        let policy = policy(
            &["example.org", "*.listed.example", "smtp.example:25", "intranet:8080"],
            &["bad.listed.example", "*.evil.example"],
        );
        let table = [
            ("example.org:443", "Resolve"),
            ("example.org:80", "Resolve"),
            ("EXAMPLE.ORG.:443", "Resolve"),
            ("example.org:22", "Port"),
            ("example.org:8443", "Port"),
            ("a.listed.example:443", "Resolve"),
            ("listed.example:443", "Ask"),
            ("bad.listed.example:443", "Blocked"),
            ("bad.listed.example:8443", "Blocked"),
            ("a.evil.example:443", "Blocked"),
            ("other.example:443", "Ask"),
            ("other.example:80", "Ask"),
            ("other.example:22", "Port"),
            ("other.example:25", "Port"),
            ("other.example:6379", "Port"),
            ("smtp.example:25", "Resolve"),
            ("smtp.example:443", "Ask"),
            ("intranet:8080", "Resolve"),
            ("intranet:80", "LocalName"),
            ("localhost:80", "LocalName"),
            ("foo.localhost:80", "LocalName"),
            ("metadata:80", "LocalName"),
            ("metadata.google.internal:80", "LocalName"),
            ("printer.local:80", "LocalName"),
            ("router.lan:443", "LocalName"),
            ("nas.home.arpa:443", "LocalName"),
            ("abc.onion:443", "LocalName"),
            ("1.1.1.1:443", "Literal"),
            ("[2606:4700:4700::1111]:443", "Literal"),
            ("127.0.0.1:80", "Reserved"),
            ("127.0.0.1:22", "Reserved"),
            ("0x7f.1:80", "Reserved"),
            ("2130706433:80", "Reserved"),
            ("0:80", "Reserved"),
            ("[::1]:80", "Reserved"),
            ("[::ffff:127.0.0.1]:80", "Reserved"),
            ("[64:ff9b::7f00:1]:80", "Reserved"),
            ("[2002:7f00:1::]:80", "Reserved"),
            ("10.0.0.1:443", "Reserved"),
            ("100.64.0.1:443", "Reserved"),
            ("169.254.169.254:80", "Reserved"),
            ("[fe80::1]:80", "Reserved"),
            ("[fd00:ec2::254]:80", "Reserved"),
            ("224.0.0.1:80", "Reserved"),
            ("255.255.255.255:80", "Reserved"),
        ];
        for (to, expected) in table {
            assert_eq!(verdict(&policy, to, false, None), expected, "{to}");
        }
    }

    #[test]
    fn an_answer_opens_the_usual_ports_of_a_name_alone() {
        let policy = policy(&[], &["*.evil.example"]);
        let table = [
            ("other.example:443", "Resolve"),
            ("other.example:22", "Port"),
            ("a.evil.example:443", "Blocked"),
            ("localhost:80", "LocalName"),
            ("10.0.0.1:443", "Reserved"),
            ("1.1.1.1:443", "Literal"),
        ];
        for (to, expected) in table {
            assert_eq!(verdict(&policy, to, true, None), expected, "{to}");
        }
    }

    #[test]
    fn without_a_person_only_listed_domains_are_open() {
        let alone = EgressPolicy { asks: false, ..policy(&["example.org"], &[]) };
        assert_eq!(verdict(&alone, "other.example:443", false, None), "NotListed");
        assert_eq!(verdict(&alone, "example.org:443", false, None), "Resolve");
    }

    #[test]
    fn addresses_are_judged_after_the_lookup() {
        let policy =
            policy(&["example.org", "registry.corp", "10.0.0.5", "localhost:3000"], &["9.9.9.9"]);
        let table: [(&str, &[&str], &str); 17] = [
            ("example.org:443", &["93.184.216.34:443"], "Allow"),
            ("example.org:443", &["[2606:2800:220:1::1]:443"], "Allow"),
            ("example.org:443", &["64.233.160.1:443", "[64:ff9b::8.8.8.8]:443"], "Allow"),
            ("example.org:443", &[], "NoAddress"),
            ("example.org:443", &["127.0.0.1:443"], "Rebound"),
            ("example.org:443", &["0.0.0.0:443"], "Rebound"),
            ("example.org:443", &["[::]:443"], "Rebound"),
            ("example.org:443", &["[::1]:443"], "Rebound"),
            ("example.org:443", &["[::ffff:10.0.0.1]:443"], "Rebound"),
            ("example.org:443", &["[64:ff9b::10.0.0.1]:443"], "Rebound"),
            ("example.org:443", &["169.254.169.254:443"], "Rebound"),
            ("example.org:443", &["93.184.216.34:443", "192.168.0.1:443"], "Rebound"),
            ("example.org:443", &["9.9.9.9:443"], "Blocked"),
            ("registry.corp:443", &["10.0.0.5:443"], "Allow"),
            ("registry.corp:443", &["10.0.0.6:443"], "Rebound"),
            ("registry.corp:443", &["[::ffff:10.0.0.5]:443"], "Allow"),
            // A port of this machine that is listed, at another port.
            ("example.org:443", &["127.0.0.1:3000"], "Allow"),
        ];
        for (to, found, expected) in table {
            assert_eq!(verdict(&policy, to, false, Some(found)), expected, "{to} {found:?}");
        }
        let localhost = Destination::parse("localhost:3000").unwrap();
        let allowed = addresses(&["127.0.0.1:3000", "[::1]:3000"]);
        assert_eq!(judge(&policy, &localhost, false, None), EgressVerdict::Allow(allowed));
        assert_eq!(policy.loopback_ports(), [3000]);
    }

    #[test]
    fn a_loopback_port_is_forwarded_if_its_server_is_allowed() {
        let table: [(&[&str], &[&str], &str); 12] = [
            (&["localhost:3000"], &[], "localhost:3000"),
            (&["127.0.0.1:3000"], &[], "127.0.0.1:3000"),
            (&["127.0.0.1:3000", "localhost:3000"], &[], "localhost:3000"),
            (&["localhost:9", "127.1:8"], &[], "127.0.0.1:8 localhost:9"),
            (&["localhost:3000"], &["[::1]"], "127.0.0.1:3000"),
            (&["localhost:3000"], &["127.0.0.1"], ""),
            (&["localhost:3000"], &["localhost"], ""),
            (&["[::1]:3000"], &[], ""),
            (&["127.0.0.2:3000"], &[], ""),
            (&["x.localhost:3000", "*.x.localhost:3000"], &[], ""),
            (&["localhost", "127.0.0.1"], &[], ""),
            (&["localhost", "example.org:80"], &[], ""),
        ];
        for (allowed, blocked, expected) in table {
            let policy = policy(allowed, blocked);
            let ports = policy.loopback_ports().into_iter();
            let found: Vec<_> = ports.map(|port| policy.forward(port).to_string()).collect();
            assert_eq!(found.join(" "), expected, "{allowed:?} {blocked:?}");
        }
    }

    #[test]
    fn a_blocked_loopback_address_closes_localhost() {
        for (blocked, expected) in
            [("127.0.0.1", "Blocked"), ("[::1]:3000", "Blocked"), ("[::1]:80", "Allow")]
        {
            let policy = policy(&["localhost:3000"], &[blocked]);
            assert_eq!(verdict(&policy, "localhost:3000", false, None), expected, "{blocked}");
        }
    }

    #[test]
    fn a_refusal_says_what_would_allow_it() {
        let refusal = |to: &str| match judge(
            &policy(&[], &[]),
            &Destination::parse(to).unwrap(),
            false,
            None,
        ) {
            EgressVerdict::Refuse(refusal) => refusal.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(
            refusal("127.1:5432")
                .contains("a loopback address; the user can add \"127.0.0.1:5432\"")
        );
        assert!(refusal("github.com:22").contains("add \"github.com:22\""));
    }

    proptest! {
        /// Whatever the host, the port and the answer: without an entry no reserved address is
        /// reached, and no port but 80 and 443.
        #[test]
        fn nothing_reserved_is_reached_without_an_entry(
            host in prop_oneof!["[a-z0-9.:\\[\\]-]{1,24}", "[a-z]{1,8}\\.example"],
            port in prop_oneof![Just(80), Just(443), 1..u16::MAX], approved: bool,
            found in prop::collection::vec((any::<u32>(), any::<u128>(), any::<bool>()), 0..4),
        ) {
            let Ok(to) = Destination::new(&host, port) else { return Ok(()) };
            let found: Vec<SocketAddr> = found.into_iter().map(|(v4, v6, is_v4)| {
                let ip: IpAddr = if is_v4 { Ipv4Addr::from_bits(v4).into() } else { Ipv6Addr::from_bits(v6).into() };
                SocketAddr::new(ip, port)
            }).collect();
            if let EgressVerdict::Allow(allowed) = judge(&policy(&[], &[]), &to, approved, Some(&found)) {
                prop_assert!(approved && [80, 443].contains(&port));
                prop_assert!(allowed.iter().all(|address| reserved(address.ip()).is_none()));
            }
        }
    }
}
