//! Auxiliary requests: model requests outside the conversation, for summaries and titles.

use std::sync::Arc;

use crate::agent_invocation::failover::{ModelCall, ModelRoutes};
use crate::conversation::{ContentPart, InvocationId, Message};
use crate::event::Origin;
use crate::ledger::TokenCalibration;
use crate::outcome::{Ending, limit_text};
use crate::ports::{Request, Thinking};
use crate::provider_client::PartialReply;
use crate::tool_call::Services;

/// Maximum bytes of a reply that are used.
const BYTES_MAX: usize = 64 << 10;

/// Model routes, accounting and options of auxiliary requests for one purpose.
pub(crate) struct AuxiliaryRequest {
    model_routes: ModelRoutes,
    services: Arc<Services>,
    origin: Arc<Origin>,
    tokens_max: u64,
    thinking: Option<Thinking>,
}

impl AuxiliaryRequest {
    /// Creates the requests for the purpose `role`, on behalf of the agent `above`, with a maximum
    /// length of the reply in tokens and a reasoning effort.
    pub(crate) fn new(
        services: &Arc<Services>,
        model_routes: &ModelRoutes,
        above: &Origin,
        role: &str,
        (tokens_max, thinking): (u64, Option<Thinking>),
    ) -> AuxiliaryRequest {
        let origin = Origin {
            invocation_id: services.ids.invocation(),
            parent_invocation_id: Some(above.invocation_id.clone()),
            agent: role.to_owned(),
            agent_path: format!("{}/{role}", above.agent_path),
        };
        AuxiliaryRequest {
            model_routes: model_routes.clone(),
            services: Arc::clone(services),
            origin: Arc::new(origin),
            tokens_max,
            thinking,
        }
    }

    /// Invocation id of the requests.
    pub(crate) fn id(&self) -> InvocationId {
        self.origin.invocation_id.clone()
    }

    /// Sends `text` with the system prompt `system`, and returns the reply, cut to 64 KiB. `turn`:
    /// number of the request, from 1. `Err`: reason why there is no reply, or the reply is empty.
    pub(crate) async fn ask(
        &self,
        turn: u32,
        system: String,
        text: String,
    ) -> Result<String, String> {
        let request = Request {
            messages: vec![
                Arc::new(Message::System { content: system }),
                Arc::new(Message::User { content: vec![ContentPart::text(text)] }),
            ],
            tools: Arc::new([]),
            stream: false,
            tokens_max: Some(self.tokens_max),
            temperature: None,
            thinking: self.thinking,
            session: Some(self.services.session_id.clone()),
        };
        let model_call = ModelCall {
            services: Arc::clone(&self.services),
            origin: Arc::clone(&self.origin),
            request,
            turn,
            draft: PartialReply::default(),
            calibration: TokenCalibration::default(),
            size: None,
        };
        match self.model_routes.ask_once(&model_call).await {
            Err(ending) => Err(cause_of(&ending)),
            Ok(answered) => {
                let said = answered.completion.message.content.clone().unwrap_or_default();
                answered.receipt.file();
                let said = said.trim();
                if said.is_empty() {
                    return Err("it said nothing".to_owned());
                }
                Ok(said[..said.floor_char_boundary(BYTES_MAX)].to_owned())
            }
        }
    }
}

fn cause_of(ending: &Ending) -> String {
    match ending {
        Ending::Failed { cause, .. } | Ending::Parked { cause, .. } => cause.clone(),
        Ending::OverBudget(_) => "the budget is used up".to_owned(),
        Ending::Limited { limit, value, .. } => limit_text(limit, *value),
        Ending::Answered(_) | Ending::Interrupted => "it was stopped".to_owned(),
    }
}
