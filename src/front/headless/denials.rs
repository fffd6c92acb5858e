//! Permission requests that were denied because no person could be asked, for the result of a run.

use std::collections::HashMap;

use posse_actors::conversation::QuestionId;
use posse_actors::event::{DecisionSource, Event, PermissionTarget};
use serde::Serialize;
use serde_json::Value;

/// A request that was denied because no person could be asked, with its reason. Members that
/// `permission.requested` has as well have the same names and values.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Denial {
    tool: String,
    #[serde(flatten)]
    target: PermissionTarget,
    summary: String,
    /// The complete command or diff.
    detail: String,
    pub(super) reason: String,
    /// Rule that would have allowed the call, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rule: Option<Box<Value>>,
}

/// Denials of a run, in the order of the events.
#[derive(Debug, Default)]
pub(super) struct Denials {
    pub(super) list: Vec<Denial>,
    /// Tool, summary and detail of the open requests.
    open: HashMap<QuestionId, (String, String, String)>,
}

impl Denials {
    pub(super) fn follow(&mut self, event: &Event) {
        if let Event::PermissionRequested { request_id, tool, summary, detail, .. } = event {
            let shown = (tool.clone(), summary.clone(), detail.clone());
            self.open.insert(request_id.clone(), shown);
        }
        let Some(shown) = event.closed_question().and_then(|id| self.open.remove(id)) else {
            return;
        };
        if let Event::PermissionDenied { by, reason, rule, target, is_user_request: false, .. } =
            event
            && *by == DecisionSource::Nobody
        {
            let (tool, summary, detail) = shown;
            let (target, reason, rule) = (target.clone(), reason.clone(), rule.clone());
            self.list.push(Denial { tool, target, summary, detail, reason, rule });
        }
    }
}
