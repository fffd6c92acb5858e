//! `/tree`: reads the branches of a conversation from the stored sessions of the project.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use posse_actors::event::{Event, StoredRecord};

use crate::commands::resume::of_project;
use crate::commands::{conversation, rewind};
use crate::failure::Failure;
use crate::frontend::session_tree::{TreePrompt, TreeRow, TreeSession, rows};
use crate::journal::{self, SessionSummary, StateDir};

/// Maximum number of sessions of a tree; of more, the most recently used ones are read.
pub(super) const SESSIONS_MAX: usize = 100;

/// Latest label of each prompt with its time: by session and number of the prompt.
type Labels = BTreeMap<(String, usize), (u64, String)>;

/// Rows of the tree that contains the session `current`; none if it is not stored.
pub(super) fn tree(state: &StateDir, cwd: &Path, current: &str) -> Result<Vec<TreeRow>, Failure> {
    let stored = of_project(state, cwd)?;
    let related = related(&stored, current);
    let mut labels = Labels::new();
    let (mut sessions, mut copied) = (Vec::new(), BTreeMap::new());
    let wanted = stored.into_iter().filter(|one| related.contains(&one.id)).take(SESSIONS_MAX);
    for summary in wanted {
        // A damaged session does not hide the others.
        let records = journal::whole_session(state, &summary.id).map(|(_, records)| records);
        let records = records.unwrap_or_default();
        add_labels(&mut labels, &records);
        let prompts = conversation::copied_prompts(&records);
        copied.extend(prompts.map(|prompts| (summary.id.clone(), prompts)));
        sessions.push(session(summary, &records));
    }
    number_prompts(&mut sessions, &copied);
    for session in &mut sessions {
        for prompt in &mut session.prompts {
            let label = labels.remove(&(session.id.clone(), prompt.number));
            prompt.label = label.map(|(_, label)| label).filter(|label| !label.is_empty());
        }
    }
    Ok(rows(&sessions, current))
}

fn session(summary: SessionSummary, records: &[StoredRecord]) -> TreeSession {
    let prompts = rewind::points_of(&summary.id, records, 0).into_iter().map(|point| TreePrompt {
        number: point.number,
        record: point.record,
        text: point.text,
        label: None,
    });
    TreeSession {
        prompts: prompts.collect(),
        id: summary.id,
        title: summary.title,
        parent: summary.forked_from.map(|from| (from.session.to_string(), from.record)),
        started_ms: summary.started_ms.unwrap_or_default(),
    }
}

/// Counts the prompts of copies from those that they have taken over, as a rewind does. `copied`: the
/// number of these by session, as far as the records of the copies say so.
fn number_prompts(sessions: &mut [TreeSession], copied: &BTreeMap<String, usize>) {
    let before: Vec<usize> =
        sessions.iter().map(|session| prompts_before(session, sessions, copied, 0)).collect();
    for (session, before) in sessions.iter_mut().zip(before) {
        session.prompts.iter_mut().for_each(|prompt| prompt.number += before);
    }
}

fn prompts_before(
    session: &TreeSession,
    sessions: &[TreeSession],
    copied: &BTreeMap<String, usize>,
    depth: usize,
) -> usize {
    if let Some(count) = copied.get(&session.id) {
        return *count;
    }
    // A damaged journal can name itself or its own copy.
    let Some((id, last)) = session.parent.as_ref().filter(|_| depth < SESSIONS_MAX) else {
        return 0;
    };
    let Some(parent) = sessions.iter().find(|one| one.id == *id) else { return 0 };
    let kept = parent.prompts.iter().filter(|prompt| prompt.record <= *last).count();
    kept + prompts_before(parent, sessions, copied, depth + 1)
}

fn add_labels(labels: &mut Labels, records: &[StoredRecord]) {
    for record in records {
        let Event::PromptLabelled { of, prompt, label } = &record.event else { continue };
        let Ok(number) = usize::try_from(*prompt) else { continue };
        let known = labels.entry((of.to_string(), number)).or_default();
        if record.ts >= known.0 {
            *known = (record.ts, label.clone());
        }
    }
}

/// Ids of the sessions that are copies of `current`, directly or through other copies, or of which it
/// is one.
pub(super) fn related(stored: &[SessionSummary], current: &str) -> BTreeSet<String> {
    let parent =
        |one: &SessionSummary| one.forked_from.as_ref().map(|from| from.session.to_string());
    let mut found = BTreeSet::from([current.to_owned()]);
    loop {
        let before = found.len();
        for one in stored {
            let Some(parent) = parent(one) else { continue };
            if found.contains(&one.id) || found.contains(&parent) {
                found.extend([one.id.clone(), parent]);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::SessionId;
    use posse_actors::event::Branch;

    use super::*;

    #[test]
    fn prompts_of_copies_are_counted_from_those_of_the_original() {
        let session = |id: &str, parent: Option<(&str, u64)>| TreeSession {
            id: id.to_owned(),
            parent: parent.map(|(id, last)| (id.to_owned(), last)),
            prompts: [2, 5]
                .map(|record| TreePrompt { number: 1, record, ..TreePrompt::default() })
                .into(),
            ..TreeSession::default()
        };
        let mut sessions = [
            session("a", None),
            session("b", Some(("a", 4))),
            session("c", Some(("b", 9))),
            session("gone", Some(("x", 9))),
            session("circle", Some(("circle", 9))),
        ];
        // Only the record of one of the copies counts the prompts.
        number_prompts(&mut sessions[..4], &BTreeMap::from([("gone".to_owned(), 7)]));
        let first = sessions.iter().map(|session| session.prompts[0].number).collect::<Vec<_>>();
        assert_eq!(first, [1, 2, 4, 8, 1]);
        number_prompts(&mut sessions[4..], &BTreeMap::new());
        assert!(sessions[4].prompts[0].number > 1);
    }

    #[test]
    fn related_sessions_are_found_through_copies_and_originals() {
        let summary = |id: &str, parent: Option<&str>| SessionSummary {
            id: id.to_owned(),
            forked_from: parent.map(|id| Branch { session: SessionId::new(id), record: 1 }),
            ..SessionSummary::default()
        };
        let stored = [
            summary("e", Some("d")),
            summary("d", Some("c")),
            summary("c", Some("a")),
            summary("b", Some("a")),
            summary("a", None),
            summary("x", None),
            summary("y", Some("x")),
        ];
        let found = |id| related(&stored, id).into_iter().collect::<Vec<_>>().concat();
        assert_eq!(found("a"), "abcde");
        assert_eq!(found("e"), "abcde");
        assert_eq!(found("y"), "xy");
        assert_eq!(found("not stored"), "not stored");
    }
}
