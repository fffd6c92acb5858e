//! Task list of an agent.

use serde::{Deserialize, Serialize};

/// Item of the task list that an agent keeps with the tool `todo_write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TodoItem {
    /// The task in one line, as the model wrote it.
    pub content: String,
    /// State of the task.
    pub status: TodoStatus,
}

impl TodoItem {
    /// The task in one line behind a mark of its state: `[x] TASK`. The text is not escaped.
    pub fn line(&self) -> String {
        let mark = match self.status {
            TodoStatus::Pending => ' ',
            TodoStatus::InProgress => '>',
            TodoStatus::Completed => 'x',
            TodoStatus::Cancelled => '-',
        };
        format!("[{mark}] {}", self.content)
    }
}

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
    /// Not needed any more.
    Cancelled,
}

impl TodoStatus {
    /// The state in words.
    pub fn words(self) -> &'static str {
        match self {
            TodoStatus::Pending => "pending",
            TodoStatus::InProgress => "in progress",
            TodoStatus::Completed => "completed",
            TodoStatus::Cancelled => "cancelled",
        }
    }
}

/// Progress of a task list in one line: `2 of 5 tasks done; in progress: TASK`. Cancelled tasks are
/// not counted.
pub fn todo_progress(todos: &[TodoItem]) -> String {
    let count = |status| todos.iter().filter(|item| item.status == status).count();
    let all = todos.len() - count(TodoStatus::Cancelled);
    let done = count(TodoStatus::Completed);
    let tasks = if all == 1 { "task" } else { "tasks" };
    let current = todos.iter().find(|item| item.status == TodoStatus::InProgress);
    let current = current.map(|item| format!("; in progress: {}", item.content));
    format!("{done} of {all} {tasks} done{}", current.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_what_is_left_and_names_the_current_task() {
        let item = |content: &str, status| TodoItem { content: content.to_owned(), status };
        let table = [
            (vec![], "0 of 0 tasks done"),
            (vec![item("a", TodoStatus::Pending)], "0 of 1 task done"),
            (
                vec![
                    item("a", TodoStatus::Completed),
                    item("b", TodoStatus::InProgress),
                    item("c", TodoStatus::Pending),
                    item("d", TodoStatus::Cancelled),
                ],
                "1 of 3 tasks done; in progress: b",
            ),
        ];
        for (todos, expected) in table {
            assert_eq!(todo_progress(&todos), expected);
        }
    }
}
