//! Network access of commands: the settings, and the proxy of a session.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use posse_actors::event::SandboxTier;
use posse_actors::ports::{AnswerSource, NetworkAccess};

use crate::config::{Environment, Loaded, NetworkSettings, SandboxSettings, Settings};
use crate::egress::{
    DomainPattern, Egress, EgressLimits, EgressPolicy, NameResolver, ResolveFuture, SystemResolver,
};
use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::permission::NetworkMode;

/// Environment variable with names that lead to a server on this machine, for tests.
const NAMES: &str = "POSSE_NETWORK_NAMES";

/// Lists of domains in the configuration.
const LISTS: [&str; 2] = ["network.allowedDomains", "network.blockedDomains"];

/// Network access of commands that are not confined to reading.
pub(crate) fn access(
    settings: &SandboxSettings,
    tier: &SandboxTier,
    asking: AnswerSource,
) -> NetworkAccess {
    NetworkMode::named(&settings.network).unwrap_or_default().access(asking, tier)
}

/// Network access of hooks that request it. They are programs of the user and have no proxy.
pub(crate) fn access_of_hooks(settings: &SandboxSettings) -> NetworkAccess {
    if settings.network == "deny" { NetworkAccess::Denied } else { NetworkAccess::Host }
}

/// Two or three words about the access, for lists.
pub(crate) fn words(access: NetworkAccess) -> &'static str {
    match access {
        NetworkAccess::Host => "network",
        NetworkAccess::Domains => "network by domain",
        NetworkAccess::Denied => "no network",
    }
}

/// The access for the system prompt. `tier`: sandbox tier of commands.
pub(crate) fn briefing(access: NetworkAccess, tier: &SandboxTier) -> &'static str {
    match (access, tier) {
        (NetworkAccess::Host, _) => "the network is reachable",
        (NetworkAccess::Domains, _) => {
            "network through the HTTP and SOCKS5 proxy in HTTP_PROXY and HTTPS_PROXY alone, to \
             domains that the user allows; no DNS"
        }
        (NetworkAccess::Denied, SandboxTier::Full) => "no network but a loopback of their own",
        (NetworkAccess::Denied, _) => "no network, no sockets",
    }
}

/// Notice if domains are allowed and commands have no network, because `asking` is no person and
/// `sandbox.network` is `auto`. `None` otherwise, also without a sandbox.
pub(crate) fn unused_domains(
    settings: &Settings,
    tier: &SandboxTier,
    asking: AnswerSource,
) -> Option<String> {
    let is_unused = !settings.network.allowed_domains.is_empty()
        && settings.sandbox.mode != "off"
        && settings.sandbox.network == "auto"
        && access(&settings.sandbox, tier, asking) == NetworkAccess::Denied;
    is_unused.then(|| {
        format!(
            "warning[{}]: network.allowedDomains has no effect in this run: where no person answers, \
             commands have no network; `--network ask` lets them reach these domains",
            ErrorCode::ConfigContradiction
        )
    })
}

/// One error for each invalid entry of the lists of domains.
pub(crate) fn check(loaded: &Loaded) -> Vec<Failure> {
    let NetworkSettings { allowed_domains, blocked_domains, .. } = &loaded.settings.network;
    let of = |key: &'static str, entries: &[String]| -> Vec<Failure> {
        let leaf = loaded.layers.get(key);
        let wrong = check_entries(key, entries).into_iter();
        let placed = wrong.map(|(nth, failure)| match leaf {
            Some(leaf) => failure.at(leaf.member_place(nth)),
            None => failure,
        });
        placed.collect()
    };
    [of(LISTS[0], allowed_domains), of(LISTS[1], blocked_domains)].concat()
}

/// One error for each invalid entry of the list `key`, with its index. Empty if `key` is no list of
/// domains.
pub(crate) fn check_entries(key: &str, entries: &[String]) -> Vec<(usize, Failure)> {
    if !LISTS.contains(&key) {
        return Vec::new();
    }
    let wrong = entries.iter().enumerate().filter_map(|(nth, entry)| {
        let error = DomainPattern::parse(entry).err()?;
        let what = format!("{key}[{nth}]: \"{}\" is not a domain", printable(entry));
        let failure = Failure::new(ErrorCode::ConfigInvalidValue, Exit::Configuration, what);
        Some((nth, failure.fix(error.to_string())))
    });
    wrong.collect()
}

/// Creates the proxy of a session. `None` if its commands have none. Invalid entries, which
/// [`check`] reports, count as none.
pub(crate) fn egress(
    access: NetworkAccess,
    settings: &NetworkSettings,
    environment: &Environment,
    asking: AnswerSource,
) -> Option<Arc<Egress>> {
    if access != NetworkAccess::Domains {
        return None;
    }
    let parsed = |entries: &[String]| {
        entries.iter().filter_map(|entry| DomainPattern::parse(entry).ok()).collect()
    };
    let policy = EgressPolicy {
        allowed: parsed(&settings.allowed_domains),
        blocked: parsed(&settings.blocked_domains),
        asks: asking == AnswerSource::Human,
    };
    let upload_bytes = match settings.upload_bytes_max {
        0 => u64::MAX,
        limit => limit,
    };
    let limits = EgressLimits { upload_bytes, ..EgressLimits::default() };
    let resolver: Arc<dyn NameResolver> = match environment.get(NAMES) {
        Some(table) => Arc::new(TestNames::parse(table)),
        None => Arc::new(SystemResolver),
    };
    Some(Arc::new(Egress::new(policy, resolver, limits)))
}

/// Resolver of tests: names with one address each, `registry.example=127.0.0.1:4873,…`. Other names
/// do not exist.
#[derive(Debug, Default)]
struct TestNames(HashMap<String, SocketAddr>);

impl TestNames {
    fn parse(table: &str) -> TestNames {
        let rows = table.split(',').filter_map(|row| {
            let (name, address) = row.split_once('=')?;
            Some((name.to_owned(), address.parse().ok()?))
        });
        TestNames(rows.collect())
    }
}

impl NameResolver for TestNames {
    fn resolve(&self, name: &str, _: u16) -> ResolveFuture {
        let found = self.0.get(name).copied();
        Box::pin(std::future::ready(
            found.map(|found| vec![found]).ok_or_else(|| std::io::Error::other("no such name")),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_entries_are_reported_with_their_fix() {
        let entries = ["example.org", "*", "https://x.example"].map(str::to_owned);
        let failures = check_entries("network.allowedDomains", &entries);
        let fixes: Vec<&str> = failures.iter().filter_map(|(_, one)| one.fix.as_deref()).collect();
        assert_eq!(failures.iter().map(|(nth, _)| *nth).collect::<Vec<_>>(), [1, 2]);
        assert!(fixes[0].contains("*.example.org") && fixes[1].contains("the host alone"));
        assert!(check_entries("ui.history", &entries).is_empty());
    }

    #[test]
    fn a_proxy_exists_for_domains_alone() {
        let settings = NetworkSettings {
            allowed_domains: vec!["localhost:3000".to_owned(), "*".to_owned()],
            blocked_domains: Vec::new(),
            upload_bytes_max: 0,
        };
        let environment = Environment::default();
        let made = |access| egress(access, &settings, &environment, AnswerSource::Nobody);
        assert!(made(NetworkAccess::Denied).is_none() && made(NetworkAccess::Host).is_none());
        assert_eq!(made(NetworkAccess::Domains).unwrap().loopback_ports(), [3000]);
    }
}
