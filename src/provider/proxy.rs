//! The HTTP proxy of a request, for error messages: its address, and the variable that names it.

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;

/// The proxy that requests to a URL go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyRoute {
    /// Scheme, host and port, without credentials.
    pub(crate) address: String,
    /// Name of the environment variable that names the proxy. `None`: the settings of the system.
    pub(crate) variable: Option<&'static str>,
    /// True if the proxy passes requests and replies on itself, as for `http://`: an error status
    /// can be its own. False if it opens a tunnel to the server.
    pub(crate) is_relay: bool,
}

impl ProxyRoute {
    /// The proxy of requests to `url`, by the rules of the HTTP client: the variables of the
    /// process, upper case before lower case. `None` if requests go to the server directly.
    pub(crate) fn of(url: &Url) -> Option<ProxyRoute> {
        ProxyRoute::among(url, &Matcher::from_system(), &|name| std::env::var(name).ok())
    }

    fn among(
        url: &Url,
        system: &Matcher,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Option<ProxyRoute> {
        let uri = url.as_str().parse().ok()?;
        let route = system.intercept(&uri)?;
        let proxy = route.uri();
        let is_relay = url.scheme() == "http";
        let own =
            if is_relay { ["HTTP_PROXY", "http_proxy"] } else { ["HTTPS_PROXY", "https_proxy"] };
        let leads_there = |name: &&str| {
            let named = environment(name).map(|value| Matcher::builder().all(value).build());
            named.is_some_and(|named| {
                named.intercept(&uri).is_some_and(|named| named.uri() == proxy)
            })
        };
        let variable = own.into_iter().chain(["ALL_PROXY", "all_proxy"]).find(leads_there);
        let port = proxy.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        let scheme = proxy.scheme_str().unwrap_or("http");
        let host = proxy.host().unwrap_or_default();
        Some(ProxyRoute { address: format!("{scheme}://{host}{port}"), variable, is_relay })
    }

    /// Address and origin: `the proxy http://proxy:3128 of the variable HTTPS_PROXY`.
    pub(crate) fn words(&self) -> String {
        match self.variable {
            Some(name) => format!("the proxy {} of the variable {name}", self.address),
            None => format!("the proxy {} of the system's settings", self.address),
        }
    }

    /// The setting to correct: a variable, or the settings of the system.
    pub(crate) fn setting(&self) -> &'static str {
        self.variable.unwrap_or("the system's proxy settings")
    }

    /// A remark about a proxy of another kind, which the HTTP client does not support, or an empty
    /// text.
    pub(crate) fn unsupported(&self) -> &'static str {
        if self.address.starts_with("socks") {
            " (only http:// and https:// proxies are supported)"
        } else {
            ""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address and variable of the proxy of `url` with these variables.
    fn proxy(variables: &[(&str, &str)], url: &str) -> Option<(String, Option<&'static str>)> {
        let get = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let first = |names: [&str; 2]| names.into_iter().find_map(get).unwrap_or_default();
        let system = Matcher::builder()
            .all(first(["ALL_PROXY", "all_proxy"]))
            .http(first(["HTTP_PROXY", "http_proxy"]))
            .https(first(["HTTPS_PROXY", "https_proxy"]))
            .no(first(["NO_PROXY", "no_proxy"]))
            .build();
        let route = ProxyRoute::among(&url.parse().unwrap(), &system, &get)?;
        Some((route.address, route.variable))
    }

    #[test]
    fn variable_of_the_scheme_comes_before_the_general_one() {
        let all = [
            ("ALL_PROXY", "http://all:1"),
            ("https_proxy", "http://user:secret@tls:2"),
            ("no_proxy", "inside.test"),
        ];
        let named = |address: &str, variable| Some((address.to_owned(), Some(variable)));
        assert_eq!(proxy(&all, "http://a.test/v1"), named("http://all:1", "ALL_PROXY"));
        assert_eq!(proxy(&all, "https://a.test/v1"), named("http://tls:2", "https_proxy"));
        assert_eq!(proxy(&all, "https://inside.test/v1"), None);
        let both = [("HTTP_PROXY", "http://up:1"), ("http_proxy", "http://low:2")];
        assert_eq!(proxy(&both, "http://a.test/v1"), named("http://up:1", "HTTP_PROXY"));
        assert_eq!(proxy(&both, "https://a.test/v1"), None);
        assert_eq!(proxy(&[], "https://a.test/v1"), None);
    }
}
