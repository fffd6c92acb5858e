//! Environment of a command that reaches the network through the proxy.

/// Port of the proxy on the loopback of a command's network namespace. It is above the ports that
/// the kernel gives to sockets without one, and is bound before the command starts.
pub const PROXY_PORT: u16 = 61_080;

/// Variables that make programs use the proxy, except for their own loopback. Names in both cases,
/// because programs differ.
///
/// `ALL_PROXY` names the HTTP proxy too, because some libraries refuse to start at a SOCKS address
/// for which they lack a package. The port speaks SOCKS5 as well.
pub fn proxy_environment() -> Vec<(&'static str, String)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let through =
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let mut variables: Vec<(&'static str, String)> =
        through.into_iter().map(|name| (name, proxy.clone())).collect();
    let besides = "localhost,127.0.0.1,::1";
    variables.extend(["NO_PROXY", "no_proxy"].map(|name| (name, besides.to_owned())));
    // Node reads the variables above only with this one.
    variables.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    // Otherwise npm asks its public registry for a newer version of itself in any command, and a
    // person is asked about that.
    variables.push(("npm_config_update_notifier", "false".to_owned()));
    variables
}
