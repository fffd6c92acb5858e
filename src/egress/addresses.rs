//! Addresses that are not part of the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Blocks of IPv4 that are not public: first address, length of the prefix, and a name with its
/// article. More specific blocks come first.
const BLOCKS_V4: [(Ipv4Addr, u32, &str); 20] = [
    (Ipv4Addr::UNSPECIFIED, 8, "an address of this host"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 100, 100, 200), 32, "the address of a metadata service"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address of a carrier's network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    // Public by its number, but each virtual machine of Azure reaches its host there.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "the address of a metadata service"),
    (Ipv4Addr::new(169, 254, 169, 254), 32, "the address of a metadata service"),
    (Ipv4Addr::new(169, 254, 170, 2), 32, "the address of a metadata service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 192), 32, "the address of a metadata service"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "a reserved address"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "an address of documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "an address of a 6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "an address of test networks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "an address of documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "an address of documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved address"),
];

/// Blocks of IPv6 that have a name of their own. What is in none of them and not in `2000::/3` is
/// reserved as well.
const BLOCKS_V6: [(Ipv6Addr, u32, &str); 14] = [
    (Ipv6Addr::UNSPECIFIED, 128, "an address of this host"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback address"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "an address of a local translator"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "a reserved address"),
    // Teredo, ORCHID and benchmarks are in it.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "an address of a tunnel"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "an address of documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "an address of a tunnel"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "an address of documentation"),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, "the address of a metadata service"),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, "the address of a metadata service"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private address"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local address"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a private address"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast address"),
];

/// Prefix of 96 bits in front of the IPv4 addresses that a NAT64 translator reaches.
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// Returns `address` as an IPv4 address if it is one in the form of IPv6 (`::ffff:0:0/96`), which
/// the kernel treats as the same.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Names the kind of `address` if it is not part of the public internet: `a loopback address`.
/// `None` for a public address. An address that embeds another one, which a translator would reach,
/// counts as that.
pub fn reserved(address: IpAddr) -> Option<&'static str> {
    match canonical(address) {
        IpAddr::V4(address) => reserved_v4(address),
        IpAddr::V6(address) => reserved_v6(address),
    }
}

fn reserved_v4(address: Ipv4Addr) -> Option<&'static str> {
    let is_in = |first: Ipv4Addr, length: u32| {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        address.to_bits() & mask == first.to_bits()
    };
    BLOCKS_V4.iter().find(|(first, length, _)| is_in(*first, *length)).map(|(_, _, kind)| *kind)
}

fn reserved_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    if segments[..6] == NAT64 {
        let [.., high, low] = segments;
        return reserved_v4(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    }
    let is_in = |first: Ipv6Addr, length: u32| {
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        address.to_bits() & mask == first.to_bits()
    };
    let block = BLOCKS_V6.iter().find(|(first, length, _)| is_in(*first, *length));
    let is_global = segments[0] & 0xe000 == 0x2000;
    block.map(|(_, _, kind)| *kind).or_else(|| (!is_global).then_some("a reserved address"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_that_are_not_public_are_named() {
        let table = [
            ("0.0.0.0", "this host"),
            ("0.1.2.3", "this host"),
            ("10.0.0.1", "private"),
            ("10.255.255.255", "private"),
            ("100.64.0.1", "carrier"),
            ("100.127.255.255", "carrier"),
            ("100.100.100.200", "metadata"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "metadata"),
            ("169.254.1.1", "link-local"),
            ("169.254.169.254", "metadata"),
            ("169.254.170.2", "metadata"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "metadata"),
            ("192.0.0.8", "reserved"),
            ("192.0.2.7", "documentation"),
            ("192.88.99.1", "6to4"),
            ("192.168.1.1", "private"),
            ("198.18.0.1", "test networks"),
            ("198.19.255.255", "test networks"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.9", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.250", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "this host"),
            ("::1", "loopback"),
            ("::7f00:1", "reserved"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.0.0.1", "private"),
            ("::ffff:169.254.169.254", "metadata"),
            ("::ffff:0:127.0.0.1", "reserved"),
            ("64:ff9b::127.0.0.1", "loopback"),
            ("64:ff9b::10.1.2.3", "private"),
            ("64:ff9b::a9fe:a9fe", "metadata"),
            ("64:ff9b:1::8.8.8.8", "translator"),
            ("100::1", "reserved"),
            ("2001::1", "tunnel"),
            ("2001:0:53aa:64c::1", "tunnel"),
            ("2001:20::1", "tunnel"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::1", "tunnel"),
            ("2002:0808:0808::1", "tunnel"),
            ("3fff::1", "documentation"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
            ("fc00::1", "private"),
            ("fd12:3456::1", "private"),
            ("fd00:ec2::254", "metadata"),
            ("fd20:ce::254", "metadata"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "private"),
            ("ff02::1", "multicast"),
        ];
        for (address, kind) in table {
            let found = reserved(address.parse().unwrap());
            assert!(found.is_some_and(|found| found.contains(kind)), "{address}: {found:?}");
        }
    }

    #[test]
    fn public_addresses_are_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.17",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.255.255",
            "192.169.0.1",
            "198.17.255.255",
            "198.20.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2001:4860:4860::8888",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "3ffe::1",
        ] {
            assert_eq!(reserved(address.parse().unwrap()), None, "{address}");
        }
    }

    proptest! {
        #[test]
        fn an_embedded_address_counts_as_itself(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let [a, b, c, d] = address.octets();
            let high = u16::from_be_bytes([a, b]);
            let low = u16::from_be_bytes([c, d]);
            let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
            let own = reserved(address.into());
            prop_assert_eq!(reserved(address.to_ipv6_mapped().into()), own);
            prop_assert_eq!(reserved(nat64.into()), own);
        }

        #[test]
        fn public_addresses_of_ipv6_are_in_the_global_block(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            let is_mapped = address.to_ipv4_mapped().is_some();
            let is_nat64 = address.segments()[..6] == NAT64;
            if reserved(address.into()).is_none() && !is_mapped && !is_nat64 {
                prop_assert_eq!(bits >> 125, 1);
            }
        }
    }
}
