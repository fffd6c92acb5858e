//! Texts about connections that failed, directly to the server or through a proxy.

use std::error::Error;
use std::io::ErrorKind as Kind;

use crate::classify::causes;
use crate::message_origin::MessageOrigin;
use crate::proxy::ProxyRoute;

/// True if no server listens at the address, or no proxy at its own: the name is not known, or the
/// connection was refused. `lower`: see [`sentence`].
pub(super) fn is_absent(origin: &MessageOrigin, error: &reqwest::Error, lower: &str) -> bool {
    let is_refused = io_kind(error) == Some(Kind::ConnectionRefused);
    let is_tunnel = lower.contains("tunnel error") && origin.proxy.is_none();
    is_unresolved(lower) || (is_refused && !is_tunnel)
}

/// True if the host of the address, or of the proxy, could not be resolved.
fn is_unresolved(lower: &str) -> bool {
    lower.contains("dns error") || lower.contains("failed to lookup")
}

/// One sentence with the cause of a failed connection and, if there is one, its fix. `None`: the
/// cause is not known. `lower`: the text of `error` and its causes in lower case. It identifies
/// unknown hosts and failed proxy tunnels, which have no error kind of their own.
pub(super) fn sentence(
    origin: &MessageOrigin,
    error: &reqwest::Error,
    lower: &str,
) -> Option<String> {
    let MessageOrigin { address, proxy, .. } = origin;
    let kind = io_kind(error);
    if let Some(proxy) = proxy {
        return at_proxy(proxy, address, kind, error.is_timeout(), lower);
    }
    if is_unresolved(lower) {
        return Some(format!(
            "the host of {address} is not known here: check the network, or correct baseURL"
        ));
    }
    if lower.contains("tunnel error") {
        return Some(format!(
            "the proxy opens no way to {address} ({}): check https_proxy, or name the host in \
             no_proxy",
            tunnel_error(lower)
        ));
    }
    Some(match kind {
        Some(Kind::ConnectionRefused) => format!(
            "nothing listens at {address} (connection refused): start the server, or correct \
             baseURL"
        ),
        Some(Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::NetworkDown) => {
            format!("there is no way to {address} from here: check the network")
        }
        _ if timed_out(kind, error.is_timeout()) => {
            format!("no connection to {address} in time: check the network, or a firewall")
        }
        _ if is_closed(kind, lower) => format!("{address} closed the connection without an answer"),
        _ => return None,
    })
}

/// The same for a connection through `proxy`: without a tunnel, only the proxy itself is reached.
fn at_proxy(
    proxy: &ProxyRoute,
    address: &str,
    kind: Option<Kind>,
    is_timeout: bool,
    lower: &str,
) -> Option<String> {
    let (words, setting) = (proxy.words(), proxy.setting());
    let fix = format!("correct {setting}, or name the server's host in NO_PROXY");
    Some(if is_unresolved(lower) {
        format!("the host of {words} is not known here: {fix}")
    } else if kind == Some(Kind::ConnectionRefused) {
        format!("nothing listens at {words} (connection refused): start the proxy, {fix}")
    } else if lower.contains("tunnel error") {
        let (why, kind) = (tunnel_error(lower), proxy.unsupported());
        format!("{words} opens no way to {address} ({why}){kind}: {fix}")
    } else if timed_out(kind, is_timeout) {
        format!("no connection to {address} through {words} in time: check the proxy, or {fix}")
    } else if is_closed(kind, lower) {
        let kind = proxy.unsupported();
        format!("{words} closed the connection to {address} without an answer{kind}: {fix}")
    } else {
        return None;
    })
}

/// Advice about a proxy that answers 407. `None`: the proxy is not known.
pub(super) fn credentials_wanted(proxy: Option<&ProxyRoute>) -> String {
    let words = proxy.map_or_else(|| "the proxy".to_owned(), ProxyRoute::words);
    let setting = proxy.and_then(|proxy| proxy.variable).unwrap_or("HTTPS_PROXY");
    format!(
        "{words} wants credentials (407): write them into {setting} as \
         http://user:password@host:port"
    )
}

/// ` through the proxy …`, or an empty text without a proxy.
pub(super) fn via(proxy: Option<&ProxyRoute>) -> String {
    proxy.map(|proxy| format!(" through {}", proxy.words())).unwrap_or_default()
}

/// Remark about an error status that a proxy passed on, and that can be its own. Empty without such
/// a proxy.
pub(super) fn relayed(origin: &MessageOrigin) -> String {
    let relay = origin.proxy.as_ref().filter(|proxy| proxy.is_relay);
    let remark = |proxy: &ProxyRoute| format!(" (this can be the answer of {})", proxy.words());
    relay.map(remark).unwrap_or_default()
}

fn tunnel_error(lower: &str) -> &str {
    lower.rsplit("tunnel error: ").next().unwrap_or_default()
}

fn timed_out(kind: Option<Kind>, is_timeout: bool) -> bool {
    kind == Some(Kind::TimedOut) || is_timeout
}

fn is_closed(kind: Option<Kind>, lower: &str) -> bool {
    matches!(
        kind,
        Some(
            Kind::ConnectionReset
                | Kind::ConnectionAborted
                | Kind::BrokenPipe
                | Kind::UnexpectedEof
        )
    ) || lower.contains("connection closed before")
}

/// Kind of the innermost I/O error among the causes of `error`.
fn io_kind(error: &(dyn Error + 'static)) -> Option<Kind> {
    causes(error)
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .last()
        .map(std::io::Error::kind)
}
