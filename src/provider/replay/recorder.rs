//! Recording of cassettes: a provider that forwards to another one and records its replies.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join;
use posse_actors::conversation::{StopReason, Usage};
use posse_actors::ports::{
    Completion, Delta, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo, Request,
};
use posse_base::failure::{ErrorCode, Exit, Failure};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::replay::key::{CassetteKey, portable};
use crate::replay::{
    Exchange, Header, OpaqueReply, RecordedError, RecordedReply, VERSION, Voice, WORKSPACE,
};

/// Capacity of the channel for deltas.
const DELTAS_MAX: usize = 64;

/// Function that redacts secrets in every string of a value.
pub type Conceal = Box<dyn Fn(&mut Value) + Send + Sync>;

/// Cassette that is being written, by all providers of a session. Clones share the file.
#[derive(Clone)]
pub struct Tape(Arc<TapeState>);

struct TapeState {
    workspace: String,
    /// True if the session can use several models: then exchanges name the provider and model, and
    /// failures are recorded.
    several: bool,
    file: Mutex<File>,
    conceal: Conceal,
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tape").finish_non_exhaustive()
    }
}

/// Provider that forwards to `inner` and records the results on `tape`.
struct Recorder {
    inner: Arc<dyn Provider>,
    tape: Arc<TapeState>,
}

impl Tape {
    /// Creates the cassette `file`, which must not exist. `model`: name of the first model;
    /// `several`: true if there are fallback models.
    ///
    /// A cassette contains the conversation but no headers, and hence no keys. `conceal` redacts
    /// every exchange before it is written. Fails if the file exists or cannot be written.
    pub fn create(
        model: String,
        several: bool,
        file: &Path,
        workspace: &Path,
        conceal: Conceal,
    ) -> Result<Tape, Failure> {
        let unwritable = |error: std::io::Error| {
            Failure::new(
                ErrorCode::CassetteUnwritable,
                Exit::Configuration,
                format!("cannot write the cassette: {error}"),
            )
            .at(file.display().to_string())
            .fix("name a file that does not exist, in a folder that does")
        };
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        let mut opened = opened.map_err(unwritable)?;
        let header = Header { cassette: VERSION, model };
        writeln!(opened, "{}", json!(header)).map_err(unwritable)?;
        let workspace = workspace.to_string_lossy().into_owned();
        let file = Mutex::new(opened);
        Ok(Tape(Arc::new(TapeState { workspace, several, file, conceal })))
    }

    /// Provider that forwards to `inner` and records its replies.
    ///
    /// A reply is recorded as a stream of the deltas that `inner` sent, or, if they are not the
    /// text of the reply, as a stream of the whole reply. Errors are recorded only if there are
    /// fallback models, because they cause failovers; [`ProviderError::Unasked`] is never recorded.
    /// An exchange that cannot be written is logged and left out.
    pub fn recording(&self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(Recorder { inner, tape: Arc::clone(&self.0) })
    }
}

impl Provider for Recorder {
    fn info(&self) -> ProviderInfo {
        self.inner.info()
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.inner)
    }

    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let key = CassetteKey::of(&request, &self.tape.workspace);
        let (tap, mut tapped) = mpsc::channel(DELTAS_MAX);
        let answer = self.inner.complete(request, tap);
        let tape = Arc::clone(&self.tape);
        let ProviderInfo { profile: provider, model, endpoint: _ } = self.inner.info();
        let asked = tape.several.then_some(Voice { provider, model });
        Box::pin(async move {
            let relay = async {
                let mut seen = Vec::new();
                while let Some(delta) = tapped.recv().await {
                    seen.push(delta.clone());
                    deltas.send(delta).await.ok();
                }
                seen
            };
            let (answer, seen) = join(answer, relay).await;
            match &answer {
                Ok(completion) => tape.answered(asked, key, &seen, completion),
                // A request that was not sent did not fail.
                Err(ProviderError::Unasked { .. }) => {}
                Err(error) if asked.is_some() => {
                    let reply = RecordedReply::Error(RecordedError::of(error));
                    tape.write(&Exchange { asked, request: key, reply, kept: None });
                }
                Err(_) => {}
            }
            answer
        })
    }
}

impl TapeState {
    fn answered(
        &self,
        asked: Option<Voice>,
        request: CassetteKey,
        deltas: &[Delta],
        completion: &Completion,
    ) {
        let chunks = stream_of(deltas, completion);
        let chunks = chunks.iter().map(|chunk| portable(chunk, &self.workspace)).collect();
        let Completion { message, usage, .. } = completion;
        let kept = OpaqueReply { reasoning: message.reasoning.clone(), usage: *usage };
        let kept = match self.workspace.as_str() {
            workspace if workspace.len() > 1 => kept.with(workspace, WORKSPACE),
            _ => Some(kept),
        };
        self.write(&Exchange { asked, request, reply: RecordedReply::Sse(chunks), kept });
    }

    fn write(&self, exchange: &Exchange) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let line = serde_json::to_value(exchange).map(|mut exchange| {
            (self.conceal)(&mut exchange);
            exchange
        });
        let line = line.map_err(std::io::Error::other);
        if let Err(error) = line.and_then(|line| writeln!(file, "{line}")) {
            tracing::error!(%error, "an exchange is missing in the cassette");
        }
    }
}

/// Chunks of a Chat Completions stream with which a server would have sent this reply.
fn stream_of(deltas: &[Delta], completion: &Completion) -> Vec<String> {
    let message = &completion.message;
    let thinking_field = message
        .reasoning
        .as_ref()
        .and_then(|reasoning| reasoning.field.as_deref())
        .unwrap_or("reasoning_content");
    let said: String = deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Text(text) => Some(text.as_str()),
            Delta::Thinking(_) | Delta::Notice(_) | Delta::Usage(_) | Delta::Alive => None,
        })
        .collect();
    let mut pieces: Vec<Value> = Vec::new();
    if Some(said.as_str()) == message.content.as_deref() {
        pieces.extend(deltas.iter().filter_map(|delta| match delta {
            Delta::Text(text) => Some(json!({ "content": text })),
            Delta::Thinking(text) => Some(json!({ thinking_field: text })),
            Delta::Notice(_) | Delta::Usage(_) | Delta::Alive => None,
        }));
    } else {
        // Deltas were not requested.
        if let Some(reasoning) = &message.reasoning {
            pieces.push(json!({ thinking_field: reasoning.text }));
        }
        if let Some(text) = &message.content {
            pieces.push(json!({ "content": text }));
        }
    }
    pieces.extend(message.tool_calls.iter().enumerate().map(|(index, call)| {
        json!({ "tool_calls": [{
            "index": index,
            "id": call.provider_id.as_deref().unwrap_or(call.id.as_str()),
            "type": "function",
            "function": { "name": call.name, "arguments": call.arguments },
        }] })
    }));
    let finish = match completion.stop_reason {
        StopReason::EndTurn => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::ContentFilter => "content_filter",
        StopReason::Error => "error",
    };
    let model = completion.model.as_deref();
    let mut chunks: Vec<String> = pieces
        .into_iter()
        .map(|delta| event(&json!({ "model": model, "choices": [{ "delta": delta }] })))
        .collect();
    chunks.push(event(&json!({
        "model": model,
        "choices": [{ "delta": {}, "finish_reason": finish }],
        "usage": completion.usage.as_ref().map(usage),
    })));
    chunks.push("data: [DONE]\n\n".to_owned());
    chunks
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": { "cached_tokens": usage.cached_input_tokens },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
    })
}
