//! Destination of a connection in canonical form.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use url::Host;

use crate::addresses::canonical;

/// Name of the loopback addresses. It is not looked up.
pub(crate) const LOCALHOST: &str = "localhost";

/// Maximum length of a host in bytes, as it is written. A domain name has at most 253.
const HOST_BYTES_MAX: usize = 512;

/// Maximum length of a domain name in bytes.
const NAME_BYTES_MAX: usize = 253;

/// Maximum length of a part of a domain name in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Host of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DestinationHost {
    /// Domain name: ASCII, lower case, internationalised parts as `xn--…`, without the dot at the
    /// end.
    Name(String),
    /// Address. IPv4 addresses in the form of IPv6 are IPv4 addresses here.
    Address(IpAddr),
}

/// Host and port of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Destination {
    /// Host, in canonical form.
    pub host: DestinationHost,
    /// TCP port. Never 0.
    pub port: u16,
}

/// Reason for which a text is not the destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The host is empty, too long, or contains a character that no host has.
    #[error("it is not a valid host name or address")]
    Host,
    /// The port is missing, or not a number from 1 to 65535.
    #[error("its port is not a number from 1 to 65535")]
    Port,
}

impl DestinationHost {
    /// Parses a host as browsers do: internationalised names become `xn--…`, and every notation of
    /// an IPv4 address that a resolver would take for one (`0x7f.1`, `2130706433`, `0177.0.0.1`) is
    /// that address. An IPv6 address may stand in brackets. Zone indices and percent escapes are
    /// errors.
    pub fn parse(text: &str) -> Result<DestinationHost, DestinationError> {
        let is_strange = |c: char| c.is_control() || c.is_whitespace() || "%@/\\?#".contains(c);
        if text.is_empty() || text.len() > HOST_BYTES_MAX || text.contains(is_strange) {
            return Err(DestinationError::Host);
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(DestinationHost::Address(canonical(address.into())));
        }
        match Host::parse(text).map_err(|_| DestinationError::Host)? {
            Host::Ipv4(address) => Ok(DestinationHost::Address(address.into())),
            Host::Ipv6(address) => Ok(DestinationHost::Address(canonical(address.into()))),
            Host::Domain(name) => DestinationHost::of_name(&name),
        }
    }

    fn of_name(name: &str) -> Result<DestinationHost, DestinationError> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_label = |label: &str| {
            !label.is_empty() && label.len() <= LABEL_BYTES_MAX && label.bytes().all(is_plain)
        };
        if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
            return Err(DestinationError::Host);
        }
        Ok(DestinationHost::Name(name.to_ascii_lowercase()))
    }
}

impl Destination {
    /// Creates the destination `host` at `port`. Fails if the host is invalid or the port is 0.
    pub fn new(host: &str, port: u16) -> Result<Destination, DestinationError> {
        let host = DestinationHost::parse(host)?;
        if port == 0 { Err(DestinationError::Port) } else { Ok(Destination { host, port }) }
    }

    /// Parses `host:port`, the form that `CONNECT` has. An IPv6 address stands in brackets.
    pub fn parse(authority: &str) -> Result<Destination, DestinationError> {
        let (host, port) = authority.rsplit_once(':').ok_or(DestinationError::Port)?;
        let port = parse_port(port).ok_or(DestinationError::Port)?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(DestinationError::Host);
        }
        Destination::new(host, port)
    }

    /// Destination at an address.
    pub(crate) fn at(address: IpAddr, port: u16) -> Destination {
        Destination { host: DestinationHost::Address(canonical(address)), port }
    }
}

impl fmt::Display for DestinationHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DestinationHost::Name(name) => f.write_str(name),
            DestinationHost::Address(IpAddr::V4(address)) => address.fmt(f),
            DestinationHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Parses a port: decimal digits for a number from 1 to 65535.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_become_canonical() {
        let table = [
            ("example.org", "example.org"),
            ("EXAMPLE.Org", "example.org"),
            ("example.org.", "example.org"),
            ("BÜCHER.example", "xn--bcher-kva.example"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("_srv.example.org", "_srv.example.org"),
            ("faß.example", "xn--fa-hia.example"),
            ("example。org", "example.org"),
            ("ｅｘａｍｐｌｅ.org", "example.org"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("0X7F.0.0.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("017700000001", "127.0.0.1"),
            ("0177.0.0.01", "127.0.0.1"),
            ("１２７.0.0.1", "127.0.0.1"),
            ("①②⑦.0.0.1", "127.0.0.1"),
            ("0", "0.0.0.0"),
            ("[::1]", "[::1]"),
            ("::1", "[::1]"),
            ("[::ffff:127.0.0.1]", "127.0.0.1"),
            ("::ffff:7f00:1", "127.0.0.1"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
        ];
        for (text, expected) in table {
            let host = DestinationHost::parse(text).map(|host| host.to_string());
            assert_eq!(host.as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_hosts_are_refused() {
        let long = "a".repeat(64);
        let longer = format!("{}com", "a.".repeat(130));
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".example.org",
            "example.org..",
            "exa mple.org",
            "example.org\n",
            "example.org\0.evil.example",
            "user@example.org",
            "example.org/path",
            "example.org#a",
            "example.org?a",
            "example\\.org",
            "%6c%6f.example",
            "fe80::1%eth0",
            "[fe80::1%25eth0]",
            "[::1",
            "::1]",
            "[127.0.0.1]",
            "1.2.3.4.5",
            "256.1.1.1",
            "0x100000000",
            "example.org:80",
            "<script>",
            "*.example.org",
            &long,
            &longer,
        ] {
            assert_eq!(DestinationHost::parse(text), Err(DestinationError::Host), "{text:?}");
        }
    }

    #[test]
    fn authorities_need_a_port() {
        let parsed = |text: &str| Destination::parse(text).map(|found| found.to_string());
        assert_eq!(parsed("example.org:443").as_deref(), Ok("example.org:443"));
        assert_eq!(parsed("[::1]:8080").as_deref(), Ok("[::1]:8080"));
        assert_eq!(parsed("127.0.0.1:1").as_deref(), Ok("127.0.0.1:1"));
        for text in ["example.org", "example.org:", "example.org:0", "a:65536", "a:+80", "a:-1"] {
            assert_eq!(parsed(text), Err(DestinationError::Port), "{text}");
        }
        for text in [":80", "::1:80", "a b:80"] {
            assert_eq!(parsed(text), Err(DestinationError::Host), "{text}");
        }
    }

    proptest! {
        #[test]
        fn canonical_hosts_parse_to_themselves(text in "\\PC{0,40}") {
            if let Ok(host) = DestinationHost::parse(&text) {
                let written = host.to_string();
                prop_assert!(written.is_ascii());
                prop_assert_eq!(DestinationHost::parse(&written), Ok(host));
            }
        }

        #[test]
        fn every_notation_of_an_address_is_that_address(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let [a, b, c, d] = address.octets();
            let rest = u32::from(b) << 16 | u32::from(c) << 8 | u32::from(d);
            for text in [
                format!("{bits}"), format!("{bits:#x}"), format!("0{bits:o}"),
                format!("{a}.{rest}"), format!("{a:#x}.{b}.0{c:o}.{d}"),
                format!("::ffff:{address}"), format!("{address}."),
            ] {
                let expected = DestinationHost::Address(address.into());
                prop_assert_eq!(DestinationHost::parse(&text), Ok(expected), "{}", text);
            }
        }
    }
}
