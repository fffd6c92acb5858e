//! Digest of a conversation for handoff packets: a summary of the main conversation, and findings and
//! decisions of the agent that delegates. Made by rules without a model. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compaction::conversation_summary;
use crate::conversation::{InvocationId, Message, text_of};
use crate::delegation::memory::{Points, keep_last, points};
use crate::delegation::tool_names::DELEGATE;
use crate::event::Origin;

/// Maximum number of findings, and of decisions: the latest ones.
const POINTS_MAX: usize = 12;

/// Number of latest messages that are read for a digest.
const MESSAGES_MAX: usize = 200;

/// Approximate maximum size of the summary of the main conversation in tokens.
const SUMMARY_TOKENS_MAX: u64 = 375;

/// Digest of a conversation at the time of a delegation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConversationDigest {
    /// Summary of the main conversation: standing instructions, prompts, answers and touched files.
    /// Empty if nothing was said before the current prompt.
    pub(crate) root: Arc<str>,
    /// Findings in replies of the caller and in reports to it, oldest first.
    pub(crate) findings: Vec<String>,
    /// Decisions in the same texts, oldest first.
    pub(crate) decisions: Vec<String>,
}

impl ConversationDigest {
    /// Digest of the history of a caller, with the summary `root` of the main conversation.
    fn of(history: &[Arc<Message>], root: Arc<str>) -> ConversationDigest {
        let (mut findings, mut decisions) = (Vec::new(), Vec::new());
        let recent = history.len().saturating_sub(MESSAGES_MAX);
        for message in &history[recent..] {
            let text = match &**message {
                Message::Assistant(said) => said.content.clone().unwrap_or_default(),
                Message::Tool { name, content, .. } if name == DELEGATE => text_of(content),
                Message::Tool { .. } | Message::User { .. } | Message::System { .. } => continue,
            };
            let Points { findings: found, decisions: decided, .. } = points(&text);
            for (kept, new) in [(&mut findings, found), (&mut decisions, decided)] {
                for point in new {
                    // A repeated point counts as the newest.
                    kept.retain(|known| *known != point);
                    kept.push(point);
                }
                keep_last(kept, POINTS_MAX);
            }
        }
        ConversationDigest { root, findings, decisions }
    }
}

/// Digests for the callers of a session. The digest of a caller stays the same during a turn, so that
/// a packet that is built again, after a permission request, has the same bytes.
#[derive(Debug, Default)]
pub(crate) struct ConversationDigests {
    /// Summary of the main conversation at the last delegation of the main agent.
    root: Arc<str>,
    callers: BTreeMap<InvocationId, CallerDigest>,
}

#[derive(Debug)]
struct CallerDigest {
    turn: u32,
    is_main: bool,
    digest: Arc<ConversationDigest>,
}

impl ConversationDigests {
    /// Updates the digest of the caller `origin`, whose reply number `turn` delegates, from its
    /// history. No effect if there is a digest for that reply.
    pub(crate) fn update(&mut self, origin: &Origin, turn: u32, history: &[Arc<Message>]) {
        let id = &origin.invocation_id;
        if self.callers.get(id).is_some_and(|known| known.turn == turn) {
            return;
        }
        let is_main = origin.parent_invocation_id.is_none();
        if is_main {
            // The main agent has a new invocation id with each prompt.
            self.callers.retain(|_, known| !known.is_main);
            let recent = history.len().saturating_sub(MESSAGES_MAX);
            self.root = conversation_summary(&history[recent..], SUMMARY_TOKENS_MAX).into();
        }
        let digest = Arc::new(ConversationDigest::of(history, Arc::clone(&self.root)));
        self.callers.insert(id.clone(), CallerDigest { turn, is_main, digest });
    }

    /// The digest of the caller; an empty one if there is none.
    pub(crate) fn of(&self, origin: &Origin) -> Arc<ConversationDigest> {
        let known = self.callers.get(&origin.invocation_id);
        known.map(|known| Arc::clone(&known.digest)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{AssistantMessage, ContentPart};

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::User { content: vec![ContentPart::text(text)] })
    }

    fn said(text: &str) -> Arc<Message> {
        let content = Some(text.to_owned());
        Arc::new(Message::Assistant(AssistantMessage { content, ..AssistantMessage::default() }))
    }

    #[test]
    fn digest_of_a_turn_stays_and_follows_the_next_one() {
        let main = Origin { invocation_id: InvocationId::new("m1"), ..Origin::default() };
        let child = Origin {
            invocation_id: InvocationId::new("c"),
            parent_invocation_id: Some(InvocationId::new("m1")),
            ..Origin::default()
        };
        let mut history = vec![
            user("Never touch docs. Which parser?"),
            said("src/a.rs:3 leaks\n\nDecisions:\n- keep the old one"),
            user("mend it"),
        ];
        let mut digests = ConversationDigests::default();
        digests.update(&main, 1, &history);
        let first = digests.of(&main);
        assert_eq!(first.decisions, ["keep the old one"]);
        assert_eq!(first.findings, ["src/a.rs:3 leaks"]);
        assert!(first.root.contains("standing instruction: Never touch docs."), "{}", first.root);
        assert!(!first.root.contains("mend it"), "the prompt is a part of its own: {}", first.root);
        history.push(said("Findings:\n- the pool is small"));
        digests.update(&main, 1, &history);
        assert_eq!(digests.of(&main), first, "the same reply");
        digests.update(&main, 2, &history);
        assert_eq!(digests.of(&main).findings.len(), 2);
        digests.update(&child, 1, &[user("task"), said("Findings:\n- other")]);
        assert_eq!(digests.of(&child).findings, ["other"]);
        assert_eq!(
            digests.of(&child).root,
            digests.of(&main).root,
            "that of the main conversation"
        );
        assert_eq!(*digests.of(&Origin::default()), ConversationDigest::default());
    }

    #[test]
    fn first_prompt_alone_has_no_summary() {
        assert_eq!(conversation_summary(&[user("mend it")], SUMMARY_TOKENS_MAX), "");
    }
}
