//! HTTP client of a profile: endpoint, credentials and silence limits.
//!
//! A redirect is never followed, so the key is sent to the configured host only. Secrets are
//! redacted in all error text from a server. Independent of the format of bodies.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use posse_actors::ports::ProviderError;
use posse_base::failure::{ErrorCode, Exit, Failure};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::codex::{Access, Trouble};
use crate::decode::Patience;
use crate::message_origin::MessageOrigin;
use crate::profile::{Auth, Protocol, ProviderProfile, TimeLimits};
use crate::proxy::ProxyRoute;
use crate::silence_timeout::within;
use crate::{classify, tls};

/// Minimum length in bytes of a key or header value that is redacted in error texts: redacting `1`
/// would only garble them.
const SECRET_BYTES_MIN: usize = 8;

/// Default of the header `anthropic-version`, the version of the Messages protocol.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Names of headers that can contain a key. If a profile has one of them, no key and no scheme, no
/// other authentication is added.
const KEY_HEADERS: [&str; 3] = ["authorization", "x-api-key", "api-key"];

/// One URL of a server, with headers, timeouts and HTTP client.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) origin: MessageOrigin,
    url: Url,
    headers: HeaderMap,
    timeouts: TimeLimits,
    client: OnceLock<Result<Client, String>>,
}

impl Endpoint {
    /// Creates the endpoint at `path` below the base URL, or at the base URL if that already ends
    /// with `path`. Fails if the address, a header or the key is invalid, or a required key is
    /// missing.
    pub(crate) fn new(profile: &ProviderProfile, path: &str) -> Result<Endpoint, Failure> {
        let url = parse_url(profile, path)?;
        let headers = headers(profile, &url)?;
        if url.scheme() == "https" {
            tls::warm();
        }
        let secrets = profile.api_key.iter().chain(profile.headers.iter().map(|(_, value)| value));
        let mut address = url.clone();
        address.set_query(None);
        let secrets = secrets
            .map(|secret| secret.expose_secret().trim())
            .filter(|secret| secret.len() >= SECRET_BYTES_MIN)
            .map(SecretString::from)
            .collect();
        let login = profile.login.clone();
        // Requests to loopback never go through a proxy.
        let proxy = if is_loopback(&url) { None } else { ProxyRoute::of(&url) };
        let origin = MessageOrigin {
            secrets,
            login,
            proxy,
            ..MessageOrigin::new(&profile.name, address.into())
        };
        let timeouts = TimeLimits::of(profile.timeouts, is_loopback(&url));
        let client = OnceLock::new();
        Ok(Endpoint { origin, url, headers, timeouts, client })
    }

    /// Identifies the account whose quota requests use: the server, and a hash of the headers and
    /// of the path of the login file. Contains no secrets.
    pub(crate) fn account(&self) -> String {
        let mut hash = Sha256::new();
        for (name, value) in &self.headers {
            hash.update(name.as_str());
            hash.update(value.as_bytes());
        }
        if let Some(login) = &self.origin.login {
            hash.update(login.file().as_os_str().as_encoded_bytes());
        }
        format!("{} {:02x?}", self.url.origin().ascii_serialization(), &hash.finalize()[..8])
    }

    /// Silence limits of a reply. A reply that is not streamed sends its first byte when it is
    /// complete, so its limit for bytes is at least `idle_ms`.
    pub(crate) fn patience(&self, stream: bool) -> Patience {
        let TimeLimits { silence_ms, idle_ms, .. } = self.timeouts;
        let silence_ms = if stream { silence_ms } else { silence_ms.max(idle_ms) };
        Patience {
            silence: Duration::from_millis(silence_ms),
            idle: Duration::from_millis(idle_ms),
        }
    }

    /// Sends `body`; returns when the response begins, with any status. Time limit of each HTTP
    /// request: `header_ms`; if `stream` is false, the larger of `header_ms` and `idle_ms`. With a
    /// login there can be two requests and a renewal.
    pub(crate) async fn post(
        &self,
        body: Bytes,
        accept: &'static str,
        stream: bool,
    ) -> Result<Response, ProviderError> {
        let TimeLimits { header_ms, idle_ms, .. } = self.timeouts;
        let limit = if stream { header_ms } else { header_ms.max(idle_ms) };
        self.send(Method::POST, Some(body), accept, Duration::from_millis(limit)).await
    }

    /// Sends a GET request; returns when the response begins, with any status. Time limit of each
    /// HTTP request: `header_ms`.
    pub(crate) async fn get(&self, accept: &'static str) -> Result<Response, ProviderError> {
        let limit = Duration::from_millis(self.timeouts.header_ms);
        self.send(Method::GET, None, accept, limit).await
    }

    /// Sends a request. With a login, repeats it once with renewed credentials if the server
    /// answers 401: the token may have expired or been renewed elsewhere. `limit` applies to each
    /// request.
    async fn send(
        &self,
        method: Method,
        body: Option<Bytes>,
        accept: &'static str,
        limit: Duration,
    ) -> Result<Response, ProviderError> {
        let Some(login) = &self.origin.login else {
            return self.exchange(method, body, accept, limit, None).await;
        };
        let explain = |trouble: Trouble| trouble.explain(&self.origin);
        let access = login.access(None).await.map_err(explain)?;
        let asked = self.exchange(method.clone(), body.clone(), accept, limit, Some(&access));
        let response = asked.await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let access = login.access(Some(&access)).await.map_err(explain)?;
        self.exchange(method, body, accept, limit, Some(&access)).await
    }

    async fn exchange(
        &self,
        method: Method,
        body: Option<Bytes>,
        accept: &'static str,
        limit: Duration,
        access: Option<&Access>,
    ) -> Result<Response, ProviderError> {
        let client = self.client().map_err(|reason| classify::rejected(&self.origin, reason))?;
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if let Some(access) = access {
            add_access(&mut headers, access)
                .map_err(|what| classify::rejected(&self.origin, what))?;
        }
        let mut request = client.request(method, self.url.clone()).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        match within(limit, request.send()).await {
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) => Err(classify::transport(&self.origin, error)),
            None => {
                let first_byte = Duration::from_millis(self.timeouts.header_ms);
                let setting = if limit == first_byte { "firstByte" } else { "idle" };
                Err(classify::silent(&self.origin, limit, setting))
            }
        }
    }

    fn client(&self) -> Result<&Client, String> {
        self.client.get_or_init(|| self.build_client()).as_ref().map_err(Clone::clone)
    }

    fn build_client(&self) -> Result<Client, String> {
        let tls = tls::client_config().map_err(|error| error.to_string())?;
        let mut builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            .referer(false)
            .user_agent(concat!("posse/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_millis(self.timeouts.connect_ms))
            .tcp_nodelay(true);
        if is_loopback(&self.url) {
            builder = builder.no_proxy();
        }
        builder.build().map_err(|error| classify::chain(&error))
    }
}

/// Adds the headers with the credentials of a login. Returns the reason if a header cannot carry
/// one of them.
fn add_access(headers: &mut HeaderMap, access: &Access) -> Result<(), &'static str> {
    let odd = "the login has characters that no header can carry";
    let bearer = format!("Bearer {}", access.token.expose_secret());
    let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| odd)?;
    bearer.set_sensitive(true);
    headers.insert(AUTHORIZATION, bearer);
    if let Some(account) = &access.account {
        let account = HeaderValue::from_str(account).map_err(|_| odd)?;
        let mut account = account;
        account.set_sensitive(true);
        headers.insert("chatgpt-account-id", account);
    }
    if access.fedramp {
        headers.insert("x-openai-fedramp", HeaderValue::from_static("true"));
    }
    Ok(())
}

fn parse_url(profile: &ProviderProfile, path: &str) -> Result<Url, Failure> {
    let wrong = |what: &str| {
        Failure::new(
            ErrorCode::AddressInvalid,
            Exit::Configuration,
            format!("provider \"{}\": baseURL {what}", profile.name),
        )
        .at(format!("providers.{}.baseURL", profile.name))
    };
    let mut url = Url::parse(profile.base_url.trim()).map_err(|error| {
        wrong(&format!("is not an address: {error}")).fix("write it like \"https://host/v1\"")
    })?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("must begin with https:// or http:// and name a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("has credentials in it")
            .because("addresses end up in logs")
            .fix("use apiKey, apiKeyEnv or headers"));
    }
    url.set_fragment(None);
    let base = url.path().trim_end_matches('/').to_owned();
    if !base.ends_with(path) {
        url.set_path(&format!("{base}{path}"));
    }
    Ok(url)
}

fn headers(profile: &ProviderProfile, url: &Url) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if profile.protocol == Protocol::Messages {
        headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
    }
    for (name, value) in &profile.headers {
        headers.insert(header_name(profile, name)?, secret_value(profile, name, "", value)?);
    }
    let auth = profile.auth.clone().unwrap_or_else(|| infer_auth(profile, url));
    let (name, prefix) = match auth {
        Auth::None => return Ok(headers),
        Auth::Bearer => (AUTHORIZATION, "Bearer "),
        Auth::Header(name) => (header_name(profile, &name)?, ""),
    };
    // A header that the configuration names is meant, even if there is a key as well.
    if headers.contains_key(&name) {
        return Ok(headers);
    }
    let Some(key) = &profile.api_key else {
        return Err(Failure::new(
            ErrorCode::ProviderWithoutKey,
            Exit::Configuration,
            format!("provider \"{}\" has no key", profile.name),
        )
        .fix(format!(
            "set providers.{0}.apiKeyEnv to the variable that has it, or providers.{0}.auth to \
             \"none\" if the server wants none",
            profile.name
        )));
    };
    headers.insert(name.clone(), secret_value(profile, name.as_str(), prefix, key)?);
    Ok(headers)
}

/// Authentication scheme of a profile that configures none: no header if there is no key and a
/// header has the credentials or the server is a loopback address; `api-key` for Azure; `x-api-key`
/// for Messages; otherwise Bearer.
fn infer_auth(profile: &ProviderProfile, url: &Url) -> Auth {
    let host = url.host_str().unwrap_or_default();
    let brings_its_own = profile
        .headers
        .iter()
        .any(|(name, _)| KEY_HEADERS.iter().any(|key| name.eq_ignore_ascii_case(key)));
    if profile.api_key.is_none() && (brings_its_own || is_loopback(url)) {
        return Auth::None;
    }
    if host.ends_with(".openai.azure.com") || host.ends_with(".services.ai.azure.com") {
        return Auth::Header("api-key".to_owned());
    }
    if profile.protocol == Protocol::Messages {
        return Auth::Header("x-api-key".to_owned());
    }
    Auth::Bearer
}

fn header_name(profile: &ProviderProfile, name: &str) -> Result<HeaderName, Failure> {
    name.parse().map_err(|_| invalid(profile, &format!("\"{name}\" is not the name of a header")))
}

fn secret_value(
    profile: &ProviderProfile,
    name: &str,
    prefix: &str,
    secret: &SecretString,
) -> Result<HeaderValue, Failure> {
    let text = format!("{prefix}{}", secret.expose_secret().trim());
    let mut value = HeaderValue::from_str(&text).map_err(|_| {
        invalid(profile, &format!("the value of {name} has characters that no header can carry"))
            .fix("look for line breaks or quotes that were copied along")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn invalid(profile: &ProviderProfile, what: &str) -> Failure {
    let what = format!("provider \"{}\": {what}", profile.name);
    Failure::new(ErrorCode::ConfigInvalidValue, Exit::Configuration, what)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
