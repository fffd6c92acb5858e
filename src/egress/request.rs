//! Requests to the proxy: HTTP `CONNECT`, plain HTTP with an absolute URL, and SOCKS5.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::destination::{Destination, DestinationHost};

/// Maximum size in bytes of the head of an HTTP request.
pub(crate) const HEAD_BYTES_MAX: usize = 32 << 10;

/// Maximum number of header fields.
const FIELDS_MAX: usize = 128;

/// Fields that belong to the connection of the client with the proxy, and `Host`, which the proxy
/// sets itself.
const NOT_FORWARDED: [&str; 8] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
];

const SOCKS5: u8 = 5;

/// Request of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProxyRequest {
    pub(crate) destination: Destination,
    pub(crate) protocol: ClientProtocol,
    /// Bytes for the server: those that the client sent after its request, after the head of a plain
    /// request.
    pub(crate) first: Vec<u8>,
    /// Number of further bytes of the client that belong to the request. `None`: all.
    pub(crate) rest_bytes: Option<u64>,
}

/// Protocol in which the client expects the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    /// `CONNECT`: the client waits for an answer, then everything belongs to the server.
    Tunnel,
    /// Plain HTTP: the server answers.
    Plain,
    Socks,
    /// Connection to a forwarded loopback port: everything belongs to the server.
    Raw,
}

/// Reason for which the bytes of a client are not a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The client sent nothing, or not a whole request.
    #[error("the connection ended before the request")]
    Ended,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the head of the request is longer than {HEAD_BYTES_MAX} bytes or has too many fields")]
    TooLong,
    #[error("{0}")]
    Http(&'static str),
    /// SOCKS request that is not served, with the code of its answer.
    #[error("{1}")]
    Socks(u8, &'static str),
}

/// Reads the request of a client.
pub(crate) async fn read_request(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<ProxyRequest, RequestError> {
    let mut head = Vec::with_capacity(1024);
    loop {
        let length = stream.read_buf(&mut head).await?;
        match head.first() {
            None => return Err(RequestError::Ended),
            Some(&SOCKS5) => return read_socks(stream, head).await,
            Some(4) => return Err(RequestError::Http("SOCKS4 is not served: use SOCKS5")),
            Some(first) if !first.is_ascii_uppercase() => {
                return Err(RequestError::Http("it is neither HTTP nor SOCKS5"));
            }
            Some(_) => {}
        }
        if let Some(request) = parse_http(&head)? {
            return Ok(request);
        }
        if length == 0 {
            return Err(RequestError::Ended);
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(RequestError::TooLong);
        }
    }
}

/// Parses the head of an HTTP request. `None` if it is not complete.
pub(crate) fn parse_http(bytes: &[u8]) -> Result<Option<ProxyRequest>, RequestError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(RequestError::TooLong),
        Err(_) => return Err(RequestError::Http("it is not an HTTP request")),
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let after = &bytes[length..];
    if method == "CONNECT" {
        let destination = Destination::parse(target)
            .map_err(|_| RequestError::Http("CONNECT needs a host and a port: example.org:443"))?;
        return Ok(Some(ProxyRequest {
            destination,
            protocol: ClientProtocol::Tunnel,
            first: after.to_vec(),
            rest_bytes: None,
        }));
    }
    let (destination, path) = absolute(target)?;
    let body = body_bytes(request.headers)?;
    // A server answers a client of HTTP/1.0 without chunks.
    let minor = request.version.unwrap_or_default();
    let mut first = format!("{method} {path} HTTP/1.{minor}\r\nHost: ").into_bytes();
    first.extend_from_slice(shown_authority(&destination).as_bytes());
    first.extend_from_slice(b"\r\n");
    for field in request.headers.iter() {
        let is_forwarded = !NOT_FORWARDED.iter().any(|name| field.name.eq_ignore_ascii_case(name));
        if is_forwarded {
            first.extend_from_slice(field.name.as_bytes());
            first.extend_from_slice(b": ");
            first.extend_from_slice(field.value);
            first.extend_from_slice(b"\r\n");
        }
    }
    // The next request of the client may be for another server.
    first.extend_from_slice(b"Connection: close\r\n\r\n");
    let of_body = body
        .map_or(after.len(), |body| usize::try_from(body).unwrap_or(usize::MAX).min(after.len()));
    first.extend_from_slice(&after[..of_body]);
    let rest_bytes = body.map(|body| body - of_body as u64);
    let protocol = ClientProtocol::Plain;
    Ok(Some(ProxyRequest { destination, protocol, first, rest_bytes }))
}

/// Splits an absolute URL into its destination and its path with the query.
fn absolute(target: &str) -> Result<(Destination, String), RequestError> {
    let (scheme, rest) = target.split_once("://").ok_or(RequestError::Http(
        "this is a proxy, not a server: the request needs an absolute URL or CONNECT",
    ))?;
    if scheme.eq_ignore_ascii_case("https") {
        return Err(RequestError::Http("https needs CONNECT: the proxy does not look into TLS"));
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(RequestError::Http("only http URLs and CONNECT are served"));
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') || path.contains('#') {
        return Err(RequestError::Http("the URL has a user name or a fragment"));
    }
    let destination = match authority.rsplit_once(':') {
        Some((host, "")) => Destination::parse(&format!("{host}:80")),
        Some((_, port)) if !port.ends_with(']') => Destination::parse(authority),
        _ => Destination::new(authority, 80),
    };
    let destination = destination
        .map_err(|_| RequestError::Http("the host or the port of the URL is invalid"))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok((destination, format!("{slash}{path}")))
}

/// Value of the field `Host`.
fn shown_authority(destination: &Destination) -> String {
    if destination.port == 80 { destination.host.to_string() } else { destination.to_string() }
}

/// Length of the body. `None` if it is sent in chunks.
fn body_bytes(fields: &[httparse::Header<'_>]) -> Result<Option<u64>, RequestError> {
    let of = |name: &'static str| {
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name))
    };
    let is_chunked = of("transfer-encoding").next().is_some();
    let mut lengths = of("content-length").map(|field| {
        let text = std::str::from_utf8(field.value).unwrap_or_default().trim();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    });
    match (lengths.next(), lengths.next(), is_chunked) {
        (None, _, true) => Ok(None),
        (None, _, false) => Ok(Some(0)),
        (Some(Some(length)), None, false) => Ok(Some(length)),
        _ => Err(RequestError::Http("the length of the body is ambiguous")),
    }
}

/// Answers of SOCKS5 servers.
pub(crate) mod socks_reply {
    pub(crate) const DONE: u8 = 0;
    pub(crate) const REFUSED_BY_RULES: u8 = 2;
    pub(crate) const UNREACHABLE: u8 = 4;
    pub(crate) const NO_SUCH_COMMAND: u8 = 7;
    pub(crate) const NO_SUCH_ADDRESS: u8 = 8;
}

/// Reads a SOCKS5 request after `head`, its first bytes. Leaves the answer to the caller.
async fn read_socks(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    head: Vec<u8>,
) -> Result<ProxyRequest, RequestError> {
    let mut bytes = Buffered { stream, bytes: head };
    let [_, methods] = bytes.take().await?;
    let methods = bytes.take_some(methods.into()).await?;
    if !methods.contains(&0) {
        // No acceptable method of authentication.
        bytes.stream.write_all(&[SOCKS5, 0xff]).await?;
        return Err(RequestError::Ended);
    }
    bytes.stream.write_all(&[SOCKS5, 0]).await?;
    let [version, command, _, kind] = bytes.take().await?;
    if version != SOCKS5 {
        return Err(RequestError::Http("it is not a SOCKS5 request"));
    }
    let host = match kind {
        1 => Some(DestinationHost::Address(Ipv4Addr::from(bytes.take::<4>().await?).into())),
        4 => {
            let address = Ipv6Addr::from(bytes.take::<16>().await?);
            Some(DestinationHost::Address(std::net::IpAddr::from(address).to_canonical()))
        }
        3 => {
            let [length] = bytes.take().await?;
            let name = bytes.take_some(length.into()).await?;
            std::str::from_utf8(&name).ok().and_then(|name| DestinationHost::parse(name).ok())
        }
        _ => None,
    };
    let Some(host) = host else {
        let what = "the address of the SOCKS request is invalid";
        return Err(RequestError::Socks(socks_reply::NO_SUCH_ADDRESS, what));
    };
    let port = u16::from_be_bytes(bytes.take().await?);
    if command != 1 {
        let what = "of SOCKS only CONNECT is served, not BIND and UDP";
        return Err(RequestError::Socks(socks_reply::NO_SUCH_COMMAND, what));
    }
    if port == 0 {
        let what = "the port of the SOCKS request is 0";
        return Err(RequestError::Socks(socks_reply::NO_SUCH_ADDRESS, what));
    }
    Ok(ProxyRequest {
        destination: Destination { host, port },
        protocol: ClientProtocol::Socks,
        first: bytes.bytes,
        rest_bytes: None,
    })
}

/// Stream with bytes that were read already.
struct Buffered<'a, S> {
    stream: &'a mut S,
    bytes: Vec<u8>,
}

impl<S: AsyncRead + Unpin> Buffered<'_, S> {
    async fn take_some(&mut self, length: usize) -> Result<Vec<u8>, RequestError> {
        while self.bytes.len() < length {
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                return Err(RequestError::Ended);
            }
        }
        let rest = self.bytes.split_off(length);
        Ok(std::mem::replace(&mut self.bytes, rest))
    }

    async fn take<const N: usize>(&mut self) -> Result<[u8; N], RequestError> {
        let taken = self.take_some(N).await?;
        taken.try_into().map_err(|_| RequestError::Ended)
    }
}

/// Text of an HTTP answer of the proxy itself.
pub(crate) fn answer_http(status: &str, reason: &str) -> Vec<u8> {
    let body = format!("posse: {reason}\n");
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         X-Posse-Proxy: refused\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Answer to a SOCKS5 request.
pub(crate) fn answer_socks(code: u8) -> [u8; 10] {
    [SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Option<ProxyRequest>, String> {
        parse_http(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn connect_is_a_tunnel() {
        let request = parsed("CONNECT Example.org:443 HTTP/1.1\r\nHost: x\r\n\r\nhello");
        let request = request.unwrap().unwrap();
        assert_eq!(request.destination.to_string(), "example.org:443");
        assert_eq!((&*request.first, request.rest_bytes), (&b"hello"[..], None));
        assert_eq!(request.protocol, ClientProtocol::Tunnel);
        assert!(parsed("CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n").unwrap().is_none());
        for target in ["example.org", "http://example.org/", "example.org:0", "*", "a@b:443"] {
            parsed(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")).unwrap_err();
        }
    }

    #[test]
    fn absolute_requests_are_rewritten_for_their_server() {
        let text = "POST http://Example.org:8080/a?b=c HTTP/1.1\r\nHost: other.example\r\n\
                    Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\n\
                    Connection: keep-alive\r\nUpgrade: h2c\r\nContent-Length: 5\r\nX-A: b\r\n\r\n\
                    12345GET http://second.example/ HTTP/1.1\r\n\r\n";
        let request = parsed(text).unwrap().unwrap();
        assert_eq!(request.destination.to_string(), "example.org:8080");
        assert_eq!(
            String::from_utf8(request.first).unwrap(),
            "POST /a?b=c HTTP/1.1\r\nHost: example.org:8080\r\nContent-Length: 5\r\nX-A: b\r\n\
             Connection: close\r\n\r\n12345"
        );
        assert_eq!(
            request.rest_bytes,
            Some(0),
            "the second request does not reach the first server"
        );
        let get = |url: &str| {
            let request = parsed(&format!("GET {url} HTTP/1.1\r\n\r\n")).unwrap().unwrap();
            String::from_utf8(request.first).unwrap().lines().take(2).collect::<Vec<_>>().join("|")
        };
        assert_eq!(get("http://a.example"), "GET / HTTP/1.1|Host: a.example");
        assert_eq!(get("HTTP://a.example?q"), "GET /?q HTTP/1.1|Host: a.example");
        assert_eq!(get("http://[::1]:81/"), "GET / HTTP/1.1|Host: [::1]:81");
        assert_eq!(get("http://a.example:/b"), "GET /b HTTP/1.1|Host: a.example");
        assert_eq!(get("http://[::1]:"), "GET / HTTP/1.1|Host: [::1]");
        let old = parsed("GET http://a.example/ HTTP/1.0\r\n\r\n").unwrap().unwrap();
        assert!(old.first.starts_with(b"GET / HTTP/1.0\r\n"), "an old client knows no chunks");
        let chunked = "POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        assert_eq!(parsed(chunked).unwrap().unwrap().rest_bytes, None);
    }

    #[test]
    fn rubbish_is_refused() {
        for text in [
            "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
            "GET https://example.org/ HTTP/1.1\r\n\r\n",
            "GET ftp://example.org/ HTTP/1.1\r\n\r\n",
            "GET http://user:pass@example.org/ HTTP/1.1\r\n\r\n",
            "GET http://example.org/#x HTTP/1.1\r\n\r\n",
            "GET http://example.org:x/ HTTP/1.1\r\n\r\n",
            "GET http:///path HTTP/1.1\r\n\r\n",
            "GET http://a.example:80:/ HTTP/1.1\r\n\r\n",
            "GET http://:/ HTTP/1.1\r\n\r\n",
            "GET http://::1:/ HTTP/1.1\r\n\r\n",
            "POST http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "POST http://a.example/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "POST http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nBad Field: x\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\n folded\r\n\r\n",
            "GET http://a.example/ HTTP/9.9\r\n\r\n",
            "\u{0}\u{1}\u{2}",
        ] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
        let long = format!("GET http://a.example/{} HTTP/1.1\r\n\r\n", "a".repeat(HEAD_BYTES_MAX));
        parsed(&long).unwrap_err();
        let fields = "X: y\r\n".repeat(FIELDS_MAX + 1);
        parsed(&format!("GET http://a.example/ HTTP/1.1\r\n{fields}\r\n")).unwrap_err();
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            drop(parse_http(&bytes));
            drop(parse_http(&[b"GET http://".as_slice(), &bytes].concat()));
            drop(parse_http(&[b"CONNECT ".as_slice(), &bytes].concat()));
        }
    }
}
