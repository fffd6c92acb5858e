//! Entries of `network.allowedDomains` and `network.blockedDomains`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::destination::{Destination, DestinationHost, LOCALHOST, parse_port};

/// Ports that an entry without a port covers.
pub(crate) const USUAL_PORTS: [u16; 2] = [80, 443];

/// Entry of a list of domains: `example.org`, `*.example.org`, `example.org:8443`, `10.0.0.5:443`,
/// `[fd00::1]:443`, `localhost:3000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainPattern {
    hosts: Hosts,
    /// `None`: the ports 80 and 443 in a list of allowed domains, all ports in one of blocked ones.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    One(DestinationHost),
    /// All names below this one.
    Below(String),
}

/// Reason for which a text is not an entry of a list of domains.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It has a scheme or a path.
    #[error("write the host alone, without a scheme or a path: example.org or example.org:8443")]
    Url,
    /// Its wildcard is not the whole first part.
    #[error("a wildcard stands for the whole first part: *.example.org")]
    Wildcard,
    /// Its wildcard covers a whole top-level domain, or everything.
    #[error(
        "a wildcard needs at least two parts after it: *.example.org; for the whole network, set \
         sandbox.network to inherit"
    )]
    TooWide,
    /// The host or the port is invalid.
    #[error(
        "write example.org, *.example.org, example.org:8443 or an address such as 192.0.2.7:443"
    )]
    Invalid,
}

impl DomainPattern {
    /// Parses an entry.
    pub fn parse(text: &str) -> Result<DomainPattern, PatternError> {
        if text.contains("://") || text.contains('/') {
            return Err(PatternError::Url);
        }
        let (host, port) = split_port(text)?;
        let hosts = match host.strip_prefix('*') {
            None if host.contains('*') => return Err(PatternError::Wildcard),
            None => Hosts::One(DestinationHost::parse(host).map_err(|_| PatternError::Invalid)?),
            Some("") => return Err(PatternError::TooWide),
            Some(rest) => {
                let rest = rest.strip_prefix('.').ok_or(PatternError::Wildcard)?;
                if rest.contains('*') {
                    return Err(PatternError::Wildcard);
                }
                match DestinationHost::parse(rest) {
                    Ok(DestinationHost::Name(name)) if name.contains('.') => Hosts::Below(name),
                    Ok(DestinationHost::Name(_)) => return Err(PatternError::TooWide),
                    _ => return Err(PatternError::Invalid),
                }
            }
        };
        Ok(DomainPattern { hosts, port })
    }

    /// True if the entry allows `destination`: its host matches, and its port is that of the entry
    /// or, without one, 80 or 443.
    pub fn allows(&self, destination: &Destination) -> bool {
        let is_port = match self.port {
            Some(port) => port == destination.port,
            None => USUAL_PORTS.contains(&destination.port),
        };
        is_port && self.covers(&destination.host)
    }

    /// True if the entry blocks `destination`: its host matches, and its port if it has one.
    pub fn blocks(&self, destination: &Destination) -> bool {
        self.port.is_none_or(|port| port == destination.port) && self.covers(&destination.host)
    }

    fn covers(&self, host: &DestinationHost) -> bool {
        match (&self.hosts, host) {
            (Hosts::One(DestinationHost::Name(name)), DestinationHost::Address(address)) => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                name == LOCALHOST && loopback.contains(address)
            }
            (Hosts::One(listed), _) => listed == host,
            (Hosts::Below(parent), DestinationHost::Name(name)) => {
                name.strip_suffix(parent.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            (Hosts::Below(_), DestinationHost::Address(_)) => false,
        }
    }

    /// Port of an entry that names one and covers 127.0.0.1. `None` for other entries.
    pub(crate) fn loopback_port(&self) -> Option<u16> {
        self.port.filter(|_| self.covers(&DestinationHost::Address(Ipv4Addr::LOCALHOST.into())))
    }
}

/// Splits the port off. A bare IPv6 address has none.
fn split_port(text: &str) -> Result<(&str, Option<u16>), PatternError> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (text, None),
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port = port.map(|port| parse_port(port).ok_or(PatternError::Invalid)).transpose()?;
    Ok((host, port))
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::One(host) => host.fmt(f)?,
            Hosts::Below(name) => write!(f, "*.{name}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_allow_their_hosts_and_ports() {
        let table = [
            ("example.org", "example.org:443", true),
            ("example.org", "example.org:80", true),
            ("example.org", "example.org:8080", false),
            ("example.org", "example.org:22", false),
            ("example.org", "www.example.org:443", false),
            ("example.org", "notexample.org:443", false),
            ("Example.ORG.", "example.org:443", true),
            ("bücher.example", "xn--bcher-kva.example:443", true),
            ("example.org:8443", "example.org:8443", true),
            ("example.org:8443", "example.org:443", false),
            ("*.example.org", "www.example.org:443", true),
            ("*.example.org", "a.b.example.org:443", true),
            ("*.example.org", "example.org:443", false),
            ("*.example.org", "evilexample.org:443", false),
            ("*.example.org", "example.org.evil.example:443", false),
            ("*.example.org:8443", "www.example.org:8443", true),
            ("*.example.org:8443", "www.example.org:443", false),
            ("10.0.0.5", "10.0.0.5:443", true),
            ("10.0.0.5", "10.0.0.6:443", false),
            ("10.0.0.5:22", "10.0.0.5:22", true),
            ("0x7f.1:80", "127.0.0.1:80", true),
            ("localhost:3000", "localhost:3000", true),
            ("localhost:3000", "127.0.0.1:3000", true),
            ("localhost:3000", "[::1]:3000", true),
            ("localhost:3000", "127.0.0.2:3000", false),
            ("127.0.0.1:3000", "localhost:3000", false),
            ("[fd00::1]:443", "[fd00::1]:443", true),
            ("fd00::1", "[fd00::1]:443", true),
            ("[fd00::1]", "[fd00::2]:443", false),
        ];
        for (entry, destination, allowed) in table {
            let pattern = DomainPattern::parse(entry).unwrap();
            let destination = Destination::parse(destination).unwrap();
            assert_eq!(pattern.allows(&destination), allowed, "{entry} {destination}");
            assert_eq!(DomainPattern::parse(&pattern.to_string()), Ok(pattern), "{entry}");
        }
    }

    #[test]
    fn entries_block_all_ports_unless_they_name_one() {
        let blocks = |entry: &str, destination: &str| {
            let destination = Destination::parse(destination).unwrap();
            DomainPattern::parse(entry).unwrap().blocks(&destination)
        };
        assert!(blocks("example.org", "example.org:8080"));
        assert!(blocks("*.example.org", "a.example.org:22"));
        assert!(blocks("example.org:443", "example.org:443"));
        assert!(!blocks("example.org:443", "example.org:80"));
    }

    #[test]
    fn invalid_entries_are_refused() {
        let table = [
            ("", PatternError::Invalid),
            ("*", PatternError::TooWide),
            ("*.", PatternError::Invalid),
            ("*.org", PatternError::TooWide),
            ("*:443", PatternError::TooWide),
            ("**.example.org", PatternError::Wildcard),
            ("a*.example.org", PatternError::Wildcard),
            ("*example.org", PatternError::Wildcard),
            ("*.*.example.org", PatternError::Wildcard),
            ("www.*.org", PatternError::Wildcard),
            ("https://example.org", PatternError::Url),
            ("example.org/path", PatternError::Url),
            ("10.0.0.0/8", PatternError::Url),
            ("example.org:0", PatternError::Invalid),
            ("example.org:99999", PatternError::Invalid),
            ("example.org:https", PatternError::Invalid),
            ("example.org:", PatternError::Invalid),
            ("user@example.org", PatternError::Invalid),
            ("*.127.0.0.1", PatternError::Invalid),
        ];
        for (entry, error) in table {
            assert_eq!(DomainPattern::parse(entry), Err(error), "{entry}");
        }
    }
}
