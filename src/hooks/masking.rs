//! `mask-secrets`: redacts known secret values in model replies and tool output before they are
//! recorded or shown. The arguments of tool calls are not changed. Output of commands is redacted
//! where it is read.
//!
//! Only known values are redacted; this is no guarantee.

use std::sync::Arc;

use futures_util::future::join;
use posse_actors::conversation::ContentPart;
use posse_actors::ports::{
    CallContext, CallTrial, Completion, Delta, DeltaSender, PermittedCall, PortFuture, Prepared,
    Provider, ProviderError, ProviderInfo, Request, RunContext, Tool, ToolError, ToolOutput,
    ToolSpec, Toolbox,
};
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::secrets::mask::Mask;

/// Capacity of the channel between the model and the redaction.
const DELTAS_IN_FLIGHT: usize = 64;

/// Redaction of known secrets in model replies and tool output. Wraps nothing if no secrets are
/// known.
#[derive(Debug, Clone)]
pub struct Masking(Arc<Mask>);

impl Masking {
    /// Creates the redaction of the values `secrets`. Values shorter than 6 bytes are ignored.
    pub fn new(secrets: &[SecretString]) -> Masking {
        Masking(Arc::new(Mask::new(secrets)))
    }

    /// Wraps `model` with redaction of the text and thinking of its replies, complete or partial.
    /// Returns `model` itself if no secrets are known.
    pub fn model(&self, model: Arc<dyn Provider>) -> Arc<dyn Provider> {
        if self.0.is_idle() {
            return model;
        }
        Arc::new(MaskedModel { model, mask: Arc::clone(&self.0) })
    }

    /// Returns a function that redacts every string in a value, but not the keys of objects.
    pub fn redactor(&self) -> Box<dyn Fn(&mut Value) + Send + Sync> {
        let mask = Arc::clone(&self.0);
        Box::new(move |value| mask.value(value))
    }

    /// Wraps `tools` with redaction of the texts and metadata of their results. Returns `tools`
    /// unchanged if no secrets are known.
    pub fn tools(&self, tools: Toolbox) -> Toolbox {
        if self.0.is_idle() {
            return tools;
        }
        tools.map(|tool| Arc::new(MaskedTool { tool: Arc::clone(tool), mask: Arc::clone(&self.0) }))
    }
}

struct MaskedModel {
    model: Arc<dyn Provider>,
    mask: Arc<Mask>,
}

impl Provider for MaskedModel {
    fn info(&self) -> ProviderInfo {
        self.model.info()
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.model)
    }

    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let mask = Arc::clone(&self.mask);
        let (raw, mut arriving) = mpsc::channel(DELTAS_IN_FLIGHT);
        let reply = self.model.complete(request, raw);
        Box::pin(async move {
            let relay = async {
                let (text, thinking) = (mask.for_new_stream(), mask.for_new_stream());
                let mut streams = Streams { text, thinking, out: &deltas };
                while let Some(delta) = arriving.recv().await {
                    streams.push(delta).await;
                }
                streams.finish().await;
            };
            // The relay ends when the model's sender is dropped, after the reply.
            let (mut result, ()) = join(reply, relay).await;
            match &mut result {
                Ok(completion) => hide_in_reply(&mask, completion),
                Err(
                    ProviderError::Broken { partial, .. }
                    | ProviderError::Cut { partial, .. }
                    | ProviderError::Repeating { partial, .. },
                ) => {
                    redact(&mask, partial);
                }
                Err(_) => {}
            }
            result
        })
    }
}

fn hide_in_reply(mask: &Mask, completion: &mut Completion) {
    let message = &mut completion.message;
    let thinking = message.reasoning.as_mut().map(|reasoning| &mut reasoning.text);
    message.content.iter_mut().chain(thinking).for_each(|text| redact(mask, text));
}

fn redact(mask: &Mask, text: &mut String) {
    if let Some(plain) = mask.text(text) {
        *text = plain;
    }
}

/// Redaction of the two streams of a reply, text and thinking. Text that may begin a secret is held
/// back until more follows or the reply ends.
struct Streams<'a> {
    text: Mask,
    thinking: Mask,
    out: &'a DeltaSender,
}

impl Streams<'_> {
    async fn push(&mut self, delta: Delta) {
        let pushed = |mask: &mut Mask, piece: String| {
            let mut plain = Vec::new();
            mask.push(piece.as_bytes(), |bytes| plain.extend_from_slice(bytes));
            text_of(plain)
        };
        let delta = match delta {
            Delta::Text(piece) => Delta::Text(pushed(&mut self.text, piece)),
            Delta::Thinking(piece) => Delta::Thinking(pushed(&mut self.thinking, piece)),
            // Complete text of posse itself, or none.
            other @ (Delta::Notice(_) | Delta::Usage(_) | Delta::Alive) => other,
        };
        self.send(delta).await;
    }

    async fn finish(mut self) {
        let (mut text, mut thinking) = (Vec::new(), Vec::new());
        self.thinking.finish(|bytes| thinking.extend_from_slice(bytes));
        self.text.finish(|bytes| text.extend_from_slice(bytes));
        self.send(Delta::Thinking(text_of(thinking))).await;
        self.send(Delta::Text(text_of(text))).await;
    }

    async fn send(&self, delta: Delta) {
        let is_empty = match &delta {
            Delta::Text(text) | Delta::Thinking(text) | Delta::Notice(text) => text.is_empty(),
            Delta::Usage(_) | Delta::Alive => false,
        };
        if !is_empty {
            // Without a receiver the reply still completes.
            self.out.send(delta).await.ok();
        }
    }
}

/// Converts a piece of a stream to text. A piece ends where a secret may begin, which is a
/// character boundary.
fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

struct MaskedTool {
    tool: Arc<dyn Tool>,
    mask: Arc<Mask>,
}

impl Tool for MaskedTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn inner(&self) -> Option<&dyn Tool> {
        Some(&*self.tool)
    }

    fn prepare(
        &self,
        arguments: Value,
        context: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>> {
        self.tool.prepare(arguments, context)
    }

    fn try_call(
        &self,
        call: PermittedCall,
        context: RunContext,
    ) -> PortFuture<Result<CallTrial, String>> {
        let (tried, mask) = (self.tool.try_call(call, context), Arc::clone(&self.mask));
        Box::pin(async move {
            let mut tried = tried.await?;
            let CallTrial { summary, output, changes, diff, .. } = &mut tried;
            let paths = changes.iter_mut().map(|change| &mut change.path);
            for text in [summary, output, diff].into_iter().chain(paths) {
                redact(&mask, text);
            }
            Ok(tried)
        })
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        let (run, mask) = (self.tool.run(call, context), Arc::clone(&self.mask));
        Box::pin(async move {
            let mut output = run.await;
            for part in &mut output.content {
                if let ContentPart::Text { text } = part {
                    redact(&mask, text);
                }
            }
            mask.value(&mut output.metadata);
            output
        })
    }
}
