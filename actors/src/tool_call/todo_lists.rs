//! Current task lists of the agents of a session, for compactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::conversation::InvocationId;
use crate::event::{Origin, TodoItem};
use crate::guarded::Guarded;

/// Task lists by agent: `None` is the main agent, whose invocation changes with each prompt.
#[derive(Clone, Default)]
pub(crate) struct TodoLists(Arc<Guarded<BTreeMap<Option<InvocationId>, Vec<TodoItem>>>>);

impl TodoLists {
    /// Replaces the list of the main agent.
    pub(crate) fn set_main(&self, todos: &[TodoItem]) {
        self.replace(None, todos);
    }

    /// Replaces the list of the agent `origin`.
    pub(crate) fn set(&self, origin: &Origin, todos: &[TodoItem]) {
        self.replace(key(origin), todos);
    }

    fn replace(&self, key: Option<InvocationId>, todos: &[TodoItem]) {
        let mut lists = self.0.lock();
        if todos.is_empty() {
            lists.remove(&key);
        } else {
            lists.insert(key, todos.to_vec());
        }
    }

    /// The list of the agent `origin`, one line for each task with its state; empty if it has none.
    pub(crate) fn lines(&self, origin: &Origin) -> Vec<String> {
        let line = |(nth, item): (usize, &TodoItem)| {
            format!("{}. {}: {}", nth + 1, item.status.words(), item.content)
        };
        let lists = self.0.lock();
        lists.get(&key(origin)).into_iter().flatten().enumerate().map(line).collect()
    }
}

fn key(origin: &Origin) -> Option<InvocationId> {
    origin.parent_invocation_id.as_ref().map(|_| origin.invocation_id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::TodoStatus;

    #[test]
    fn each_agent_has_a_list_and_the_main_agent_keeps_it_over_its_runs() {
        let origin = |id: &str, parent: Option<&str>| Origin {
            invocation_id: InvocationId::new(id),
            parent_invocation_id: parent.map(InvocationId::new),
            ..Origin::default()
        };
        let todo = |content: &str| {
            vec![TodoItem { content: content.to_owned(), status: TodoStatus::InProgress }]
        };
        let lists = TodoLists::default();
        lists.set(&origin("i1", None), &todo("main"));
        lists.set(&origin("i2", Some("i1")), &todo("child"));
        assert_eq!(lists.lines(&origin("i3", None)), ["1. in progress: main"]);
        assert_eq!(lists.lines(&origin("i2", Some("i1"))), ["1. in progress: child"]);
        assert!(lists.lines(&origin("i4", Some("i1"))).is_empty());
        lists.set(&origin("i3", None), &[]);
        assert!(lists.lines(&origin("i1", None)).is_empty());
    }
}
