//! References of a delegation call (`contextRefs`): earlier outputs, answers of agents and files, whose
//! text the subagent gets with its task.
//!
//! A file is read by the tool `read_file` on behalf of the caller. Its read operation belongs to the
//! delegation call and is judged with it, so a reference gives no access that the caller lacks.

use std::sync::Arc;

use serde_json::json;

use crate::conversation::text_of;
use crate::delegation::DelegationHandle;
use crate::delegation::handoff::{bytes_around, cut, escaped, labelled};
use crate::delegation::tool_names::READER;
use crate::delegation::tools::query_status;
use crate::digest::digest_of;
use crate::ports::{CallContext, Operation, Prepared, ReadPermit, RunContext, Tool, ToolError};

/// Maximum number of references of a call.
pub(super) const REFERENCES_MAX: usize = 8;

/// Maximum bytes of all referenced texts in a packet, also for a model with a large context.
pub(super) const REFERENCES_BYTES_MAX: usize = 64 << 10;

/// Minimum bytes of a reference's text. A shorter part would be useless and is left out.
const TEXT_BYTES_MIN: usize = 64;

/// Maximum bytes of the name of a reference.
const NAME_BYTES_MAX: usize = 1024;

/// A reference that exists and can be read.
pub(super) struct Reference {
    /// The reference as the caller wrote it.
    name: String,
    content: ReferenceContent,
}

enum ReferenceContent {
    /// Answer of an agent.
    Answer(String),
    /// Prepared call of the reader for a file or an earlier output.
    Readable(Prepared),
}

impl Reference {
    /// Prepares the references `names` of a call. Fails with `DLG008` if there are too many or one
    /// cannot be used, and with the error of the reader if it cannot be read.
    pub(super) async fn prepare(
        handle: &DelegationHandle,
        reader: Option<&Arc<dyn Tool>>,
        names: &[String],
        context: &CallContext,
    ) -> Result<Vec<Reference>, ToolError> {
        let unusable = |why: String| ToolError::new("DLG008", why);
        if names.len() > REFERENCES_MAX {
            return Err(unusable(format!(
                "contextRefs has {} entries, and may have {REFERENCES_MAX}; name other files in \
                 relevantFiles",
                names.len()
            )));
        }
        let mut all: Vec<Reference> = Vec::with_capacity(names.len());
        for name in names.iter().map(|name| name.trim()) {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                let why = "an entry of contextRefs is empty or too long; name a file, output:ID or \
                           agent:ID";
                return Err(unusable(why.to_owned()));
            }
            if all.iter().any(|known| known.name == name) {
                continue;
            }
            let referenced = if let Some(id) = name.strip_prefix("agent:") {
                ReferenceContent::Answer(answer(handle, id, context).await?)
            } else {
                let reader = reader.filter(|_| handle.may_read(&context.origin));
                let reader = reader.ok_or_else(|| {
                    unusable(format!(
                        "{name:?} needs the tool {READER}, which {} does not have; give the text \
                         in context",
                        context.agent
                    ))
                })?;
                let arguments = json!({"path": name});
                ReferenceContent::Readable(reader.prepare(arguments, context.clone()).await?)
            };
            all.push(Reference { name: name.to_owned(), content: referenced });
        }
        Ok(all)
    }

    /// Operations that are judged with the call.
    pub(super) fn operations(&self) -> &[Operation] {
        match &self.content {
            ReferenceContent::Answer(_) => &[],
            ReferenceContent::Readable(prepared) => &prepared.action.operations,
        }
    }

    /// Hash of the reference and of what is read.
    pub(super) fn digest(&self) -> String {
        match &self.content {
            ReferenceContent::Answer(text) => digest_of(&[&self.name, text]),
            ReferenceContent::Readable(prepared) => {
                digest_of(&[&self.name, &prepared.action.digest])
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The texts of the references `all` as parts of a packet, of at most `bytes_max` bytes
    /// together. Each has an equal share of what the earlier ones leave. `Err`: one cannot be read
    /// any more, in words.
    pub(super) async fn texts(
        all: Vec<Reference>,
        permit: &ReadPermit,
        reader: Option<&Arc<dyn Tool>>,
        context: &RunContext,
        bytes_max: usize,
    ) -> Result<String, String> {
        let mut text = String::new();
        let mut open = all.len();
        for Reference { name, content } in all {
            let label = "reference";
            let head = format!("{}\n", escaped(&name));
            let share = bytes_max.saturating_sub(text.len()) / open.max(1);
            open = open.saturating_sub(1);
            let room = share.saturating_sub(bytes_around(label) + head.len());
            if room < TEXT_BYTES_MIN {
                continue;
            }
            let found = match content {
                ReferenceContent::Answer(text) => text,
                ReferenceContent::Readable(prepared) => {
                    let unreadable = || format!("{name}: it cannot be read for this call.");
                    let reader = reader.ok_or_else(unreadable)?;
                    let call = permit.permit(prepared).ok_or_else(unreadable)?;
                    let context =
                        RunContext { output_bytes_max: room, room_bytes: room, ..context.clone() };
                    let output = reader.run(call, context).await;
                    let text = text_of(&output.content);
                    if output.is_error {
                        return Err(format!("{name} was not read: {text}"));
                    }
                    if text.is_empty() {
                        return Err(format!("{name} has no text that could be handed over."));
                    }
                    text
                }
            };
            text.push_str(&labelled(label, &format!("{head}{}", cut(&escaped(&found), room))));
        }
        Ok(text)
    }
}

/// Answer of the agent `id`, which the caller has started and which has ended with an answer.
async fn answer(
    handle: &DelegationHandle,
    id: &str,
    context: &CallContext,
) -> Result<String, ToolError> {
    let unusable = |why: String| ToolError::new("DLG008", why);
    let all = query_status(handle, &context.origin).await;
    let Some(seen) = all.into_iter().find(|seen| seen.id.as_str() == id) else {
        let why = format!("you have started no agent {id:?}; agent_status lists yours");
        return Err(unusable(why));
    };
    match seen.ended {
        Some(ended) if !ended.said.is_empty() => Ok(ended.said.clone()),
        Some(_) => Err(unusable(format!("agent {id} gave no answer"))),
        None => Err(unusable(format!("agent {id} is still at work: wait for its answer"))),
    }
}
