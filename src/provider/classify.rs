//! Classification of request failures by the next step of the caller.
//!
//! Error text from a server is untrusted: it is truncated and escaped, and the endpoint's secrets
//! are redacted.

mod connections;
mod resets;
mod wording;

use std::error::Error;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use posse_actors::ports::{BoxError, OverloadKind, ProviderError};
use posse_base::failure::printable;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER};

use crate::message_origin::MessageOrigin;

/// Maximum length of a server's message in bytes, without the ellipsis that marks a cut. A longer
/// message is cut.
const MESSAGE_BYTES_MAX: usize = 2048;

/// Longest wait that is accepted from a server. A longer wait is ignored as implausible.
const WAIT_MAX: Duration = Duration::from_hours(7 * 24);

/// A rate-limit error that mentions a quota is a rate limit if its wait is shorter than this;
/// otherwise the quota is exhausted.
const QUOTA_WAIT_MIN: Duration = Duration::from_mins(10);

/// Advice at the end of an error about an unknown path.
const WRONG_PATH: &str = "(the path may be wrong: check `type` and `baseURL` of the provider)";

/// Remark at the end of an error about tools that the server does not accept.
const NO_TOOLS: &str = "(the server, or the chat template of the model, does not pass tools on)";

/// Remark at the end of an error about a parameter that gateways to other protocols do not accept.
const NO_CACHE_KEY: &str = "(providers.NAME.quirks.noPromptCache leaves prompt_cache_key out)";

/// Cause of a failure, for the user and the log, with the profile's name.
#[derive(Debug, thiserror::Error)]
#[error("{profile}: {what}")]
pub(crate) struct Cause {
    profile: String,
    what: String,
}

impl Cause {
    pub(crate) fn boxed(origin: &MessageOrigin, what: impl Into<String>) -> BoxError {
        Box::new(Cause { profile: origin.profile.clone(), what: what.into() })
    }
}

/// Error that a server reports, in an error response or within the stream of a reply.
#[derive(Debug, Default, PartialEq, Eq)]
struct ServerError {
    message: String,
    /// Values of `code`, `type` and `status` of the error object in lower case, except numbers.
    codes: Vec<String>,
    /// HTTP status of the response, or a numeric code of the error object. `None`: neither is
    /// known.
    status: Option<u16>,
    retry_after: Option<Duration>,
}

/// Error with the cause `what`, which the user has to fix.
pub(crate) fn rejected(origin: &MessageOrigin, what: impl Into<String>) -> ProviderError {
    ProviderError::Rejected { source: Cause::boxed(origin, what) }
}

/// Error for an HTML page in place of a reply.
pub(crate) fn foreign_page(origin: &MessageOrigin) -> ProviderError {
    let what = "the reply is an HTML page (a login page of the network, or a wrong baseURL)";
    ProviderError::NotTheProvider { source: Cause::boxed(origin, what) }
}

/// Error for a server that has not answered for `limit`, the value of the setting `timeouts.` +
/// `setting` of the provider.
pub(crate) fn silent(origin: &MessageOrigin, limit: Duration, setting: &str) -> ProviderError {
    let via = connections::via(origin.proxy.as_ref());
    let what = format!(
        "no answer within {} s{via}: if the server needs longer to read the prompt, raise \
         timeouts.{setting} of the provider",
        limit.as_secs_f64()
    );
    ProviderError::Unreachable { source: Cause::boxed(origin, what) }
}

/// Error for a connection that failed or could not be established. The user has to fix TLS errors
/// and missing credentials of a proxy; other failures count as an unreachable server.
pub(crate) fn transport(origin: &MessageOrigin, error: reqwest::Error) -> ProviderError {
    let error = error.without_url();
    if let Some(tls) = causes(&error).find_map(|error| error.downcast_ref::<rustls::Error>()) {
        return rejected(origin, tls_text(tls, &origin.address));
    }
    let text = origin.masked(printable(&bounded(&chain(&error))));
    let lower = text.to_lowercase();
    if lower.contains("proxy auth") {
        return rejected(origin, connections::credentials_wanted(origin.proxy.as_ref()));
    }
    let known = connections::sentence(origin, &error, &lower);
    // Without a specific sentence, the innermost error is reported.
    let innermost = || text.rsplit(": ").next().unwrap_or(&text).to_owned();
    let what = known.unwrap_or_else(|| {
        let via = connections::via(origin.proxy.as_ref());
        format!("the connection to {}{via} failed: {}", origin.address, innermost())
    });
    let source = Cause::boxed(origin, what);
    if connections::is_absent(origin, &error, &lower) {
        ProviderError::NoServer { source }
    } else {
        ProviderError::Unreachable { source }
    }
}

/// Iterates over an error and its causes, outermost first. After an I/O error comes the error that
/// it wraps, which `source` would skip.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| {
        let error: &'e (dyn Error + 'static) = *error;
        match error.downcast_ref::<std::io::Error>() {
            Some(io) => io.get_ref().map(|inner| inner as &(dyn Error + 'static)),
            None => error.source(),
        }
    })
}

/// Text of an error and its causes, separated by colons. A cause that the text already ends with is
/// omitted. Line breaks in these texts are kept.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let piece = error.to_string();
        if !text.ends_with(&piece) {
            text.push_str(": ");
            text.push_str(&piece);
        }
        source = error.source();
    }
    text
}

fn tls_text(error: &rustls::Error, address: &str) -> String {
    match error {
        rustls::Error::InvalidCertificate(reason) => format!(
            "the certificate of {address} is not valid here: {reason} (check the clock and the \
             host name; behind a proxy that inspects TLS, its authority must be among the \
             system's certificates or in SSL_CERT_FILE)"
        ),
        other => format!("no secure connection to {address}: {other}"),
    }
}

/// Error for a response without success status. `body`: the bytes of its body that were read;
/// `now`: wall clock, for waits given as a time. A redirect is an error of its own.
pub(crate) fn status(
    origin: &MessageOrigin,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> ProviderError {
    if status.is_redirection() {
        let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
        let to = origin.masked(printable(&bounded(to)));
        let what = format!("refused to follow a redirect ({}) to {to}", status.as_u16());
        let source = Cause::boxed(origin, what);
        return ProviderError::Unasked { class: ProviderError::REDIRECTED, source };
    }
    let is_html = is_html(headers);
    let mut report = if is_html {
        ServerError { message: "an HTML page".to_owned(), ..ServerError::default() }
    } else {
        read_report(body)
    };
    report.retry_after = retry_after(headers, now).or(report.retry_after);
    report.status = Some(status.as_u16());
    // Every protocol names the model in the error about an unknown one.
    let names_model = String::from_utf8_lossy(body).to_lowercase().contains("model");
    if !is_html && !names_model && matches!(status.as_u16(), 404 | 405) {
        let gap = if report.message.is_empty() { "" } else { " " };
        report.message = format!("{}{gap}{WRONG_PATH}", report.message);
    }
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED && origin.proxy.is_some() {
        return rejected(origin, connections::credentials_wanted(origin.proxy.as_ref()));
    }
    let prefix = format!("answered {}{}", status.as_u16(), connections::relayed(origin));
    match classify_report(origin, &prefix, report) {
        // Such as the page of a web server that knows no such path.
        ProviderError::Rejected { source } if is_html => {
            ProviderError::Unasked { class: ProviderError::NOT_THE_PROVIDER, source }
        }
        ProviderError::RateLimited { retry_after: None, source }
            if header(headers, RETRY_AFTER.as_str()).is_none() =>
        {
            ProviderError::RateLimited { retry_after: resets::wait(headers, now), source }
        }
        error => error,
    }
}

/// True if the headers declare an HTML page.
pub(crate) fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"text/html"))
}

/// Error for the text `error`, usually a JSON object, that arrived inside a reply with success
/// status.
pub(crate) fn in_reply(origin: &MessageOrigin, error: &str) -> ProviderError {
    classify_report(origin, "reported an error in its reply", read_report(error.as_bytes()))
}

fn classify_report(origin: &MessageOrigin, prefix: &str, report: ServerError) -> ProviderError {
    let ServerError { message, codes, status, retry_after } = report;
    let mut message = origin.masked(one_line(&message));
    let lower = message.to_lowercase();
    let takes_no_tools = wording::has(&lower, wording::NO_TOOLS);
    if takes_no_tools {
        message = format!("{message} {NO_TOOLS}");
    } else if lower.contains("prompt_cache_key") {
        message = format!("{message} {NO_CACHE_KEY}");
    }
    let source = Cause::boxed(
        origin,
        if message.is_empty() {
            prefix.to_owned()
        } else {
            format!("{prefix}: {}", printable(&bounded(&message)))
        },
    );
    let code =
        |known: &[&str]| codes.iter().any(|code| known.iter().any(|known| code.contains(known)));
    if code(wording::QUOTA_CODES) || status == Some(402) {
        return ProviderError::QuotaExhausted { retry_after, source };
    }
    let overload = || overload_kind(status, &codes, &lower);
    let is_rate = status == Some(429) || code(&["rate_limit", "resource_exhausted"]);
    if wording::has(&lower, wording::QUOTA) && matches!(status, None | Some(400 | 403 | 429)) {
        return match retry_after {
            Some(wait) if is_rate && wait < QUOTA_WAIT_MIN => {
                ProviderError::RateLimited { retry_after, source }
            }
            _ => ProviderError::QuotaExhausted { retry_after, source },
        };
    }
    let overflows = code(wording::OVERFLOW_CODES) || wording::has(&lower, wording::OVERFLOW);
    if status == Some(413) || (overflows && !is_rate) {
        return ProviderError::ContextFull { source };
    }
    if code(wording::FILTER_CODES)
        || (wording::has(&lower, wording::FILTER) && matches!(status, None | Some(400)))
    {
        return ProviderError::Filtered { source };
    }
    if code(wording::UNKNOWN_KEY_CODES) {
        return ProviderError::Unauthorized { source };
    }
    if takes_no_tools && status != Some(429) {
        return ProviderError::Rejected { source };
    }
    match status {
        Some(401 | 403) => ProviderError::Unauthorized { source },
        Some(429) => ProviderError::RateLimited { retry_after, source },
        // A server that knows no such request, such as one for files; a network that wants a login.
        Some(501 | 511) => ProviderError::NotTheProvider { source },
        Some(408 | 409 | 425 | 500..=599) => {
            ProviderError::Overloaded { kind: overload(), retry_after, source }
        }
        Some(_) => ProviderError::Rejected { source },
        None if code(wording::CREDENTIAL_CODES) => ProviderError::Unauthorized { source },
        None if code(wording::REQUEST_CODES) => ProviderError::Rejected { source },
        None if is_rate => ProviderError::RateLimited { retry_after, source },
        None => ProviderError::Overloaded { kind: overload(), retry_after, source },
    }
}

/// Name of a temporary failure: overload only by the status or in the words of the provider.
fn overload_kind(status: Option<u16>, codes: &[String], lower: &str) -> OverloadKind {
    let is_said = |text: &str| wording::OVERLOAD.iter().any(|word| text.contains(word));
    let is_overload = matches!(status, Some(429 | 503 | 529));
    if is_overload || is_said(lower) || codes.iter().any(|code| is_said(code)) {
        OverloadKind::Overload
    } else if matches!(status, None | Some(500..=599)) {
        OverloadKind::ServerError
    } else {
        OverloadKind::Temporary
    }
}

/// `text` with a space for each group of white space, also of escaped line breaks (`\n`), which
/// gateways such as `LiteLLM` put into messages that they wrap. Before a lower-case letter, which may
/// continue the name of a file, `\n` is no line break.
fn one_line(text: &str) -> String {
    let mut broken = text.replace("\\r\\n", "\n");
    if broken.contains("\\n") {
        let mut pieces = broken.split("\\n");
        let mut joined = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let is_name = piece.starts_with(|c: char| c.is_ascii_lowercase());
            joined.push_str(if is_name { "\\n" } else { "\n" });
            joined.push_str(piece);
        }
        broken = joined;
    }
    broken.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True if the server refuses the request because a tool call of its history has no thinking before
/// it, or thinking with a signature of another provider.
pub(crate) fn is_missing_thought(error: &ProviderError) -> bool {
    matches!(error, ProviderError::Rejected { .. })
        && wording::has(&error.chain().to_lowercase(), wording::MISSING_THOUGHT)
}

/// Reads message, codes, status and wait from an error body, which is JSON in one of many shapes,
/// or text.
fn read_report(body: &[u8]) -> ServerError {
    let text = String::from_utf8_lossy(body);
    let Ok(json) = serde_json::from_str::<serde_json::Value>(&text) else {
        let message = if text.trim_start().starts_with('<') {
            "an HTML page".to_owned()
        } else {
            bounded(text.trim())
        };
        return ServerError { message, ..ServerError::default() };
    };
    // Some servers wrap the object in a list, some do not wrap the fields.
    let object = json.get(0).unwrap_or(&json);
    let error = object.get("error").filter(|error| !error.is_null()).unwrap_or(object);
    let message = ["message", "detail", "error", "error_description", "msg"]
        .into_iter()
        .filter_map(|key| error.get(key))
        .chain(object.get("message"))
        .chain(std::iter::once(error))
        .find_map(|value| value.as_str().map(str::to_owned))
        .unwrap_or_else(|| error.to_string());
    let mut report = ServerError { message: bounded(&message), ..ServerError::default() };
    for key in ["code", "type", "status"] {
        let number = match error.get(key) {
            Some(serde_json::Value::String(code)) => {
                let number = code.parse::<u64>().ok();
                if number.is_none() {
                    report.codes.push(code.to_lowercase());
                }
                number
            }
            Some(serde_json::Value::Number(code)) => code.as_u64(),
            _ => None,
        };
        let status = number.and_then(|number| u16::try_from(number).ok());
        let status = status.filter(|status| (400..600).contains(status));
        // The first status counts: servers put numbers of their own into the other fields.
        report.status = report.status.or(status);
    }
    let told = error.get("resets_in_seconds").and_then(serde_json::Value::as_f64);
    let told = told.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).filter(is_sane);
    report.retry_after = told.or_else(|| wording::wait_in(&text));
    report
}

/// Value of a header, or else of the same header of the server behind a gateway, which `LiteLLM`
/// passes on with a prefix. `None`: there is neither, or it is not a text.
fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let value = headers.get(name).or_else(|| headers.get(format!("llm_provider-{name}")));
    value.and_then(|value| value.to_str().ok()).map(str::trim)
}

/// Wait, counted from `now` (wall clock), that the server requests in the header `retry-after-ms`
/// or else in `Retry-After`. `None`: there is none, or it is implausible.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| header(headers, name);
    let wait = if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        Duration::try_from_secs_f64(ms / 1000.0).ok()
    } else {
        let value = text(RETRY_AFTER.as_str())?;
        match value.parse::<f64>() {
            Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Err(_) => DateTimeParser::new()
                .parse_timestamp(value)
                .ok()
                .and_then(|at| Duration::try_from(at.duration_since(now)).ok()),
        }
    };
    wait.filter(is_sane)
}

fn is_sane(wait: &Duration) -> bool {
    !wait.is_zero() && *wait <= WAIT_MAX
}

/// `text`, cut at a character boundary and marked with an ellipsis if it is longer than
/// [`MESSAGE_BYTES_MAX`].
pub(crate) fn bounded(text: &str) -> String {
    if text.len() <= MESSAGE_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)])
}

#[cfg(test)]
mod tests;
