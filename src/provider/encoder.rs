//! Encoder of requests: the part that is the same in every protocol.
//!
//! Histories, tools and instructions are serialised once and cached.

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

/// One protocol: the form of its requests, and the type that assembles its replies.
pub(crate) trait Dialect: Sized + 'static {
    /// Name of the protocol in the owner of opaque parts of a reply (see `opaque.rs`). Journals
    /// contain it.
    const PROTOCOL: &'static str;

    /// Kind of the reasoning parameters of the protocol.
    const THINKING: ThinkingDialect;

    /// True if system messages at the beginning of a history are sent in a member of their own, not
    /// among the messages.
    const SYSTEM_APART: bool;

    /// Suffix that turns the path of the reply endpoint into that of the endpoint that counts
    /// tokens. `None`: the protocol has none.
    const COUNTING: Option<&'static str> = None;

    /// Type that assembles a reply.
    type Reply: Assembly;

    /// Serialisable form of a tool.
    fn tool(tool: &ToolSpec) -> impl Serialize;

    /// Text form of the system instructions `_messages`, for [`Dialect::write`]. Empty if there are
    /// none, or if they are sent as messages.
    fn system(_messages: &[Arc<Message>]) -> String {
        String::new()
    }

    /// True if `next` belongs to the group of the message before it.
    fn continues(next: &Message) -> bool {
        matches!(next, Message::Tool { .. })
    }

    /// Appends the messages of `group`, after a comma if `json` is not empty. Returns true if the
    /// protocol requires a user message after the group.
    fn write_group(json: &mut Vec<u8>, group: &[Arc<Message>], options: &GroupOptions<'_>) -> bool;

    /// Writes all members of the request body after `model`.
    fn write(encoder: &Encoder<Self>, parts: &RequestParts<'_>, body: &mut JsonObject);
}

/// Result that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyPurpose {
    /// The reply of the model.
    Reply {
        /// True if the reply is streamed.
        stream: bool,
    },
    /// The number of tokens of the request.
    Counting,
}

/// Parts of a request, some of them serialised.
#[derive(Debug)]
pub(crate) struct RequestParts<'r> {
    pub(crate) request: &'r Request,
    pub(crate) purpose: BodyPurpose,
    pub(crate) thinking: ThinkingParam,
    /// Messages, without the system messages that are sent apart ([`Dialect::SYSTEM_APART`]).
    pub(crate) messages: &'r [Arc<Message>],
    pub(crate) history: &'r EncodedHistory,
    /// Serialised list of the tools.
    pub(crate) tools: &'r [u8],
    /// Text form of the system messages that are sent apart, from [`Dialect::system`].
    pub(crate) system: &'r str,
}

/// Serialises the requests of one profile in the dialect `D`.
#[derive(Debug)]
pub(crate) struct Encoder<D> {
    pub(crate) profile: ProviderProfile,
    pub(crate) owner: Owner,
    /// Installation id for requests with a login. `None`: the profile has no login.
    pub(crate) installation: Option<String>,
    thoughts: ThinkingConfig,
    pub(crate) kept: Mutex<EncodedParts>,
    dialect: PhantomData<fn() -> D>,
}

/// Cache of serialised parts of earlier requests: up to [`HISTORIES_MAX`] histories and system
/// texts, and one list of tools.
#[derive(Debug, Default)]
pub(crate) struct EncodedParts {
    pub(crate) histories: Histories,
    tools: Option<(Arc<[ToolSpec]>, Vec<u8>)>,
    /// System messages with their text form, the most recently used last.
    pub(crate) systems: Vec<(Vec<Arc<Message>>, String)>,
}

impl<D: Dialect> Encoder<D> {
    /// Creates an encoder with an empty cache.
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

    /// Serialises `request`. Fails if the model accepts no images and a user message contains one;
    /// the error is the reason why the model accepts none.
    pub(crate) fn encode(&self, request: &Request, stream: bool) -> Result<Body, String> {
        self.write(request, BodyPurpose::Reply { stream })
    }

    /// Serialises `request` for the endpoint that counts its tokens. Errors: see
    /// [`Encoder::encode`].
    pub(crate) fn encode_for_counting(&self, request: &Request) -> Result<Body, String> {
        self.write(request, BodyPurpose::Counting)
    }

    /// Creates an encoder whose requests neither ask for thinking nor contain any, for a server that
    /// refuses the thinking of a history.
    pub(crate) fn without_thinking(mut profile: ProviderProfile) -> Encoder<D> {
        let quirks = &mut profile.quirks;
        quirks.no_reasoning = true;
        quirks.adaptive_thinking = false;
        quirks.return_reasoning = false;
        (quirks.thinking_budget, quirks.effort) = (None, None);
        // No reply has this owner.
        let owner = Owner::new(D::PROTOCOL, "", "");
        Encoder { owner, ..Encoder::new(profile) }
    }

    fn write(&self, request: &Request, purpose: BodyPurpose) -> Result<Body, String> {
        let ProviderProfile { quirks, sight, model, .. } = &self.profile;
        let without_tools;
        let request = if quirks.no_tools && !request.tools.is_empty() {
            without_tools = Request { tools: Arc::default(), ..request.clone() };
            &without_tools
        } else {
            request
        };
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

/// Returns the text form of the system messages `messages`, from the cache `kept` if possible.
/// Otherwise adds it to `kept`, which drops the entry that was not used for longest.
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

/// Returns the serialised list of `tools`, from the cache `kept` if possible. Otherwise replaces
/// the cached list.
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
