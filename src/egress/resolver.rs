//! Lookup of names.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

/// Future of a lookup.
pub type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Looks up names. Tests replace the system's.
pub trait NameResolver: Send + Sync + 'static {
    /// Returns the addresses of `name`, a domain name in canonical form, with the port to connect
    /// to.
    fn resolve(&self, name: &str, port: u16) -> ResolveFuture;
}

/// Resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl NameResolver for SystemResolver {
    fn resolve(&self, name: &str, port: u16) -> ResolveFuture {
        // The dot at the end keeps the resolver from trying the domains of the machine.
        let name = format!("{name}.");
        Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
    }
}
