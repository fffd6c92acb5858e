//! Encoder of requests: the part that is the same in every protocol.
//!
//! Histories, tools and instructions are serialised once and kept.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use posse_actors::conversation::Message;
use posse_actors::ports::{Request, ToolSpec};
use serde::Serialize;

use crate::body::Body;
use crate::decode::Assembly;
use crate::encoded_history::{EncodedHistory, GroupOptions, HISTORIES_MAX, Histories};
use crate::images::ImageSelection;
use crate::opaque::Owner;
use crate::profile::ProviderProfile;
use crate::sanitize::{CACHE_MARK, JsonObject, write_json};
use crate::thinking::{ThinkingConfig, ThinkingDialect, ThinkingParam, joined};

/// Form of the requests of one protocol, and of its replies.
pub(crate) trait Dialect: Sized + 'static {
    /// Name of the protocol in opaque parts of a reply.
    const PROTOCOL: &'static str;

    /// Reasoning parameters of the protocol.
    const THINKING: ThinkingDialect;

    /// True if the instructions at the beginning of a history are not messages.
    const SYSTEM_APART: bool;

    /// Path suffix of the endpoint that counts tokens, if there is one.
    const COUNTING: Option<&'static str> = None;

    /// Puts a reply together.
    type Reply: Assembly;

    /// A tool as it is sent.
    fn tool(tool: &ToolSpec) -> impl Serialize;

    /// The system instructions as a member of the body. Empty if they are sent as messages.
    fn system(_messages: &[Arc<Message>]) -> String {
        String::new()
    }

    /// True if `next` belongs to the current group of messages.
    fn continues(next: &Message) -> bool {
        matches!(next, Message::Tool { .. })
    }

    /// Appends a group, after a comma if it is not the first. Returns true if a user message must
    /// follow.
    fn write_group(json: &mut Vec<u8>, group: &[Arc<Message>], options: &GroupOptions<'_>) -> bool;

    /// Writes the members of a body behind the model.
    fn write(encoder: &Encoder<Self>, parts: &RequestParts<'_>, body: &mut JsonObject);
}

/// Purpose of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyPurpose {
    /// A reply.
    Reply {
        /// The reply is streamed.
        stream: bool,
    },
    /// The number of tokens.
    Counting,
}

/// Parts of a request, partly serialised.
#[derive(Debug)]
pub(crate) struct RequestParts<'r> {
    pub(crate) request: &'r Request,
    pub(crate) purpose: BodyPurpose,
    pub(crate) thinking: ThinkingParam,
    /// Messages without the instructions that are not messages.
    pub(crate) messages: &'r [Arc<Message>],
    pub(crate) history: &'r EncodedHistory,
    /// List of the tools.
    pub(crate) tools: &'r [u8],
    /// Result of [`Dialect::system`].
    pub(crate) system: &'r str,
}

/// Writes the requests of one profile.
#[derive(Debug)]
pub(crate) struct Encoder<D> {
    pub(crate) profile: ProviderProfile,
    pub(crate) owner: Owner,
    /// Id of the installation, for requests with a login.
    pub(crate) installation: Option<String>,
    thoughts: ThinkingConfig,
    pub(crate) kept: Mutex<EncodedParts>,
    dialect: PhantomData<fn() -> D>,
}

/// Serialised parts of earlier requests.
#[derive(Debug, Default)]
pub(crate) struct EncodedParts {
    pub(crate) histories: Histories,
    tools: Option<(Arc<[ToolSpec]>, Vec<u8>)>,
    /// The latest last.
    pub(crate) systems: Vec<(Vec<Arc<Message>>, String)>,
}

impl<D: Dialect> Encoder<D> {
    /// An encoder that has seen nothing.
    pub(crate) fn new(profile: ProviderProfile) -> Encoder<D> {
        Encoder {
            owner: Owner::new(D::PROTOCOL, &profile.name, &profile.model),
            installation: profile.login.as_ref().map(|login| login.installation_id()),
            thoughts: ThinkingConfig::of(&profile, D::THINKING),
            kept: Mutex::default(),
            dialect: PhantomData,
            profile,
        }
    }

    /// The body of `request`; or why there is none, if the user shows images to a model that
    /// takes none.
    pub(crate) fn encode(&self, request: &Request, stream: bool) -> Result<Body, String> {
        self.write(request, BodyPurpose::Reply { stream })
    }

    /// The body that asks how large `request` is, where that can be asked.
    pub(crate) fn encode_for_counting(&self, request: &Request) -> Result<Body, String> {
        self.write(request, BodyPurpose::Counting)
    }

    fn write(&self, request: &Request, purpose: BodyPurpose) -> Result<Body, String> {
        let ProviderProfile { quirks, sight, model, .. } = &self.profile;
        let mut shown = ImageSelection::of(&request.messages, quirks, sight)?;
        let (thinking, notice) = match purpose {
            BodyPurpose::Reply { .. } => self.thoughts.checked(request.thinking, quirks),
            BodyPurpose::Counting => (self.thoughts.unchecked(request.thinking, quirks), None),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let EncodedParts { histories, tools, systems } = &mut *kept;
        let is_system = |message: &&Arc<Message>| {
            D::SYSTEM_APART && matches!(***message, Message::System { .. })
        };
        let (system, messages) =
            request.messages.split_at(request.messages.iter().take_while(is_system).count());
        let history = histories.of::<D>(messages, &mut shown, quirks, &self.owner);
        let tools = tools_json::<D>(tools, &request.tools);
        let system = kept_system::<D>(systems, system);
        let parts = RequestParts { request, purpose, thinking, messages, history, tools, system };
        let mut body = JsonObject::with_capacity(
            history.json.len() + tools.len() + system.len() + 4 * CACHE_MARK.len() + 512,
        );
        body.member("model", model);
        D::write(self, &parts, &mut body);
        Ok(Body { bytes: body.end(), notice: joined(shown.notice, notice) })
    }
}

/// The instructions in the form of the protocol.
fn kept_system<'k, D: Dialect>(
    kept: &'k mut Vec<(Vec<Arc<Message>>, String)>,
    messages: &[Arc<Message>],
) -> &'k str {
    let is_same = |known: &(Vec<Arc<Message>>, String)| {
        let mut pairs = known.0.iter().zip(messages);
        known.0.len() == messages.len() && pairs.all(|(known, new)| Arc::ptr_eq(known, new))
    };
    let entry = if let Some(at) = kept.iter().position(is_same) {
        kept.remove(at)
    } else {
        if kept.len() >= HISTORIES_MAX {
            kept.remove(0);
        }
        (messages.to_vec(), D::system(messages))
    };
    kept.push(entry);
    kept.last().map_or("", |(_, system)| system)
}

/// The list of the tools.
fn tools_json<'k, D: Dialect>(
    kept: &'k mut Option<(Arc<[ToolSpec]>, Vec<u8>)>,
    tools: &Arc<[ToolSpec]>,
) -> &'k [u8] {
    if !kept.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, tools)) {
        let mut json = Vec::new();
        write_json(&mut json, &tools.iter().map(D::tool).collect::<Vec<_>>());
        *kept = Some((Arc::clone(tools), json));
    }
    kept.as_ref().map_or(&[], |(_, json)| json)
}
