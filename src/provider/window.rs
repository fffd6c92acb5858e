//! Context window of a model, as its server reports it.
//!
//! The protocols have no such figure, but most servers that people run themselves report it: in the
//! list of models (`vLLM`, `LiteLLM`, `OpenRouter`, Together, Groq), or at a path of their own, which is
//! asked only if the list says that it is such a server (llama.cpp, LM Studio, Ollama). There are at
//! most two requests, bounded in time and size.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posse_actors::ports::ProviderInfo;
use reqwest::{Response, Url};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::body::bytes_of;
use crate::http::Endpoint;
use crate::profile::ProviderProfile;

/// Time limit for both requests together.
const LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of bytes read from a response.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Maximum number of models whose window is remembered.
const MODELS_MAX: usize = 64;

/// Plausible windows. A number outside is ignored.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 256..=100_000_000;

/// Members of an entry in a list of models that contain the window, the most precise first.
const LISTED: [&str; 7] = [
    // LM Studio: the window with which the model was loaded.
    "loaded_context_length",
    // vLLM
    "max_model_len",
    // OpenRouter, Together
    "context_length",
    // Groq
    "context_window",
    // LM Studio, if the model is not loaded, and Mistral
    "max_context_length",
    // LiteLLM
    "max_input_tokens",
    "context_size",
];

/// State of the question for one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedWindow {
    /// The server was asked and has not answered yet.
    Asking,
    /// The server reported this window in tokens.
    Tokens(u64),
    /// The server reported none, or could not be asked.
    Unknown,
}

/// Windows that servers reported. Clones share them. Each model is asked about once.
#[derive(Debug, Clone, Default)]
pub struct ReportedWindows(Arc<Mutex<Reports>>);

/// Reports by profile and model.
type Reports = BTreeMap<(String, String), ReportedWindow>;

impl ReportedWindows {
    /// The window of a model. The first call for a model asks its server in the background, with
    /// the profile that `profile` returns, and returns `Asking`. `Unknown` if `profile` returns
    /// `None`, or outside of a runtime; then a later call asks.
    pub fn of(
        &self,
        info: &ProviderInfo,
        profile: impl FnOnce() -> Option<ProviderProfile>,
    ) -> ReportedWindow {
        let key = (info.profile.clone(), info.model.clone());
        if let Some(known) = self.known(info) {
            return known;
        }
        let Ok(runtime) = Handle::try_current() else { return ReportedWindow::Unknown };
        let profile = profile();
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.len() >= MODELS_MAX {
            return ReportedWindow::Unknown;
        }
        let Some(profile) = profile else {
            reports.insert(key, ReportedWindow::Unknown);
            return ReportedWindow::Unknown;
        };
        reports.insert(key.clone(), ReportedWindow::Asking);
        drop(reports);
        let shared = Arc::clone(&self.0);
        runtime.spawn(async move {
            let window = reported_window(&profile).await;
            let report = window.map_or(ReportedWindow::Unknown, ReportedWindow::Tokens);
            shared.lock().unwrap_or_else(PoisonError::into_inner).insert(key, report);
        });
        ReportedWindow::Asking
    }

    /// State of the request for a model's window. `None`: its server was not asked.
    pub fn known(&self, info: &ProviderInfo) -> Option<ReportedWindow> {
        let reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reports.get(&(info.profile.clone(), info.model.clone())).copied()
    }
}

/// Asks the server of `profile` for the context window of its model in tokens. `None`: it reports
/// none, or not within 2 s; a profile with a login, whose server has no such list.
pub async fn reported_window(profile: &ProviderProfile) -> Option<u64> {
    if profile.login.is_some() {
        return None;
    }
    timeout(LIMIT, ask(profile)).await.ok().flatten()
}

async fn ask(profile: &ProviderProfile) -> Option<u64> {
    let mut profile = profile.clone();
    profile.base_url = profile.base().to_owned();
    let endpoint = Endpoint::new(&profile, profile.protocol.list_path(&profile.base_url)).ok()?;
    let list = json_of(endpoint.get("application/json").await.ok()?).await?;
    let entry = entry_of(&list, &profile.model)?;
    if let Some(window) = listed(entry) {
        return Some(window);
    }
    // Below the root of the server, not below the path of the protocol.
    let mut native = profile.clone();
    native.base_url = Url::parse(&profile.base_url).ok()?.origin().ascii_serialization();
    match entry.get("owned_by").and_then(Value::as_str)? {
        "llamacpp" => {
            let endpoint = Endpoint::new(&native, "/props").ok()?;
            let props = json_of(endpoint.get("application/json").await.ok()?).await?;
            plausible(props.pointer("/default_generation_settings/n_ctx")?)
        }
        "organization_owner" => {
            let endpoint = Endpoint::new(&native, "/api/v0/models").ok()?;
            let list = json_of(endpoint.get("application/json").await.ok()?).await?;
            listed(entry_of(&list, &profile.model)?)
        }
        "library" => {
            let endpoint = Endpoint::new(&native, "/api/show").ok()?;
            let body = json!({"model": profile.model}).to_string().into();
            let shown = endpoint.post(body, "application/json", true).await.ok()?;
            ollama_window(&json_of(shown).await?)
        }
        _ => None,
    }
}

/// Body of a successful response as JSON. `None`: it is none, or larger than
/// [`ANSWER_BYTES_MAX`].
async fn json_of(response: Response) -> Option<Value> {
    if !response.status().is_success() {
        return None;
    }
    serde_json::from_slice(&bytes_of(response, ANSWER_BYTES_MAX, LIMIT).await).ok()
}

/// Entry of `model` in a list of models, or the only entry, because some servers have one model and
/// accept every name.
fn entry_of<'l>(list: &'l Value, model: &str) -> Option<&'l Value> {
    let entries = list.get("data").unwrap_or(list).as_array()?;
    let is_model = |entry: &&Value| entry.get("id").and_then(Value::as_str) == Some(model);
    match entries.as_slice() {
        [only] => Some(only),
        entries => entries.iter().find(is_model),
    }
}

/// Window in an entry of a list of models: the smaller one if its provider reports another one than
/// the model.
fn listed(entry: &Value) -> Option<u64> {
    let own = LISTED.iter().find_map(|key| plausible(entry.get(key)?));
    let served = entry.pointer("/top_provider/context_length").and_then(plausible);
    own.into_iter().chain(served).min()
}

/// Window of a model of Ollama: its parameter `num_ctx`. Without it, the server uses a default that
/// it does not report and that is smaller than the one of most models, so the model's own figure
/// counts only if that is small, too.
fn ollama_window(shown: &Value) -> Option<u64> {
    /// Smallest default of the server.
    const DEFAULT: u64 = 4096;
    let parameters = shown.get("parameters").and_then(Value::as_str).unwrap_or_default();
    let num_ctx = parameters.lines().find_map(|line| {
        let (name, value) = line.trim().split_once(char::is_whitespace)?;
        if name == "num_ctx" { value.trim().parse().ok() } else { None }
    });
    let own = shown.get("model_info").and_then(Value::as_object).and_then(|info| {
        let (_, value) = info.iter().find(|(key, _)| key.ends_with(".context_length"))?;
        plausible(value)
    });
    match num_ctx.filter(|tokens| PLAUSIBLE.contains(tokens)) {
        Some(set) => Some(own.map_or(set, |own| own.min(set))),
        None => own.filter(|own| *own <= DEFAULT),
    }
}

fn plausible(value: &Value) -> Option<u64> {
    value.as_u64().filter(|tokens| PLAUSIBLE.contains(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Server, ServerStep, answer};

    /// Answers to the two requests, by the beginning of the request line.
    async fn asked(list: &str, native: (&'static str, String)) -> (Option<u64>, Vec<String>) {
        let list = list.to_owned();
        let server = Server::answering(move |request| {
            let body = if request.head.starts_with("GET /v1/models ") {
                &list
            } else if request.head.starts_with(native.0) {
                &native.1
            } else {
                return Some(answer("404 Not Found", "", "{}"));
            };
            Some(answer("200 OK", "content-type: application/json\r\n", body))
        })
        .await;
        let window = reported_window(&server.profile()).await;
        let lines = server
            .seen()
            .into_iter()
            .map(|seen| seen.head.lines().next().unwrap().rsplit_once(' ').unwrap().0.to_owned());
        (window, lines.collect())
    }

    #[tokio::test]
    async fn each_server_is_asked_where_it_reports_the_window() {
        let list = |entry: &str| format!(r#"{{"data":[{{"id":"other"}},{entry}]}}"#);
        let model = |rest: &str| list(&format!(r#"{{"id":"some-model",{rest}}}"#));
        let none = || ("GET /none", String::new());
        let show = |info: &str, parameters: &str| {
            let shown = json!({"model_info": {"llama.context_length": info.parse::<u64>().unwrap()},
                "parameters": parameters});
            ("POST /api/show", shown.to_string())
        };
        let ollama = model(r#""owned_by":"library""#);
        let table = [
            (model(r#""max_model_len":16384"#), none(), Some(16_384), 1),
            (
                model(r#""context_length":200000,"top_provider":{"context_length":64000}"#),
                none(),
                Some(64_000),
                1,
            ),
            (model(r#""context_window":131072"#), none(), Some(131_072), 1),
            (
                model(r#""max_context_length":32768,"loaded_context_length":8192"#),
                none(),
                Some(8192),
                1,
            ),
            (model(r#""owned_by":"me""#), none(), None, 1),
            (model(r#""max_model_len":7"#), none(), None, 1),
            (model(r#""max_model_len":"many""#), none(), None, 1),
            (r#"[{"id":"another","context_length":4096}]"#.to_owned(), none(), Some(4096), 1),
            (list(r#"{"id":"third","context_length":4096}"#), none(), None, 1),
            ("<html>".to_owned(), none(), None, 1),
            (
                model(r#""owned_by":"llamacpp","meta":{"n_ctx_train":131072}"#),
                ("GET /props ", r#"{"default_generation_settings":{"n_ctx":8192}}"#.to_owned()),
                Some(8192),
                2,
            ),
            (
                model(r#""owned_by":"organization_owner""#),
                ("GET /api/v0/models ", model(r#""loaded_context_length":4096"#)),
                Some(4096),
                2,
            ),
            (ollama.clone(), show("131072", "stop \"x\"\nnum_ctx    16384"), Some(16_384), 2),
            (ollama.clone(), show("2048", "num_ctx 16384"), Some(2048), 2),
            (ollama.clone(), show("131072", ""), None, 2),
            (ollama, show("2048", ""), Some(2048), 2),
        ];
        for (row, (list, native, expected, requests)) in table.into_iter().enumerate() {
            let (window, lines) = asked(&list, native).await;
            assert_eq!((window, lines.len()), (expected, requests), "row {row}: {lines:?}");
        }
    }

    #[tokio::test]
    async fn answers_are_bounded_in_size() {
        let long = format!(r#"{{"data":[{{"id":"{}"}},"#, "x".repeat(2 << 20));
        let script = [answer("200 OK", "", &long)];
        let server = Server::start(script).await;
        assert_eq!(reported_window(&server.profile()).await, None);
    }

    #[tokio::test]
    async fn silent_server_is_waited_for_briefly_and_asked_once() {
        let server = Server::start([vec![ServerStep::Stall]]).await;
        let windows = ReportedWindows::default();
        let info = ProviderInfo {
            profile: "mock".to_owned(),
            model: "some-model".to_owned(),
            endpoint: server.address.clone(),
        };
        assert_eq!(windows.known(&info), None);
        let profile = server.profile();
        assert_eq!(windows.of(&info, || Some(profile)), ReportedWindow::Asking);
        timeout(Duration::from_mins(1), async {
            while windows.known(&info) == Some(ReportedWindow::Asking) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await
        .unwrap();
        assert_eq!(windows.of(&info, || panic!("asked again")), ReportedWindow::Unknown);
    }
}
