//! Lookup of names.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;

/// File with names of this machine and its network, which the user wrote.
const HOSTS: &str = "/etc/hosts";

/// Future of a lookup.
pub type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Looks up names. Tests replace the system's.
pub trait NameResolver: Send + Sync + 'static {
    /// Returns the addresses of `name`, a domain name in canonical form, with the port to connect
    /// to.
    fn resolve(&self, name: &str, port: u16) -> ResolveFuture;
}

/// Resolver of the operating system. Names of `/etc/hosts` have the addresses that stand there, other
/// names those of the name servers. A name without a dot, which the rules allow only if the user
/// listed it, is also looked up in the search domains of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl NameResolver for SystemResolver {
    fn resolve(&self, name: &str, port: u16) -> ResolveFuture {
        Box::pin(resolve(PathBuf::from(HOSTS), name.to_owned(), port))
    }
}

/// Resolves `name` with the file `hosts`, and otherwise with the name servers.
async fn resolve(hosts: PathBuf, name: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let task = tokio::task::spawn_blocking(move || {
        // Without the file no name stands in it.
        let text = std::fs::read(hosts).unwrap_or_default();
        let found = addresses_in(&String::from_utf8_lossy(&text), &name);
        (name, found)
    });
    let (name, found) = task.await?;
    if !found.is_empty() {
        return Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect());
    }
    // The dot at the end keeps the system from trying search domains, but also hides `/etc/hosts`.
    let name = if name.contains('.') { name + "." } else { name };
    Ok(tokio::net::lookup_host((name, port)).await?.collect())
}

/// Addresses of `name` in the text of a file like `/etc/hosts`, hosts(5): lines with an address and its
/// names, and comments behind `#`.
fn addresses_in(hosts: &str, name: &str) -> Vec<IpAddr> {
    let lines = hosts.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "127.0.0.1 localhost\n\
        10.1.2.3\tregistry.corp.example  Registry # 10.9.9.9 comment\n\
        #10.1.2.4 off.corp.example\n\
        fd00::1 registry.corp.example\r\n\
        10.1.2.5\nno-address registry.corp.example\n";

    #[test]
    fn names_have_the_addresses_of_the_hosts_file() {
        let table: [(&str, &[&str]); 7] = [
            ("registry.corp.example", &["10.1.2.3", "fd00::1"]),
            ("registry", &["10.1.2.3"]),
            ("corp.example", &[]),
            ("comment", &[]),
            ("off.corp.example", &[]),
            ("10.1.2.5", &[]),
            ("no-address", &[]),
        ];
        for (name, expected) in table {
            let found: Vec<String> =
                addresses_in(TEXT, name).iter().map(IpAddr::to_string).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[tokio::test]
    async fn a_name_of_the_hosts_file_needs_no_name_server() {
        let dir = tempfile::tempdir().unwrap();
        let hosts = dir.path().join("hosts");
        std::fs::write(&hosts, TEXT).unwrap();
        let found = resolve(hosts, "registry.corp.example".to_owned(), 443).await.unwrap();
        assert_eq!(found, ["10.1.2.3:443".parse().unwrap(), "[fd00::1]:443".parse().unwrap()]);
    }
}
