//! `posse sessions show ID --memory`: reports that agents of a session leave for later agents of
//! the same name, read from the session's records alone.

use std::io::Write;

use posse_actors::outcome::Memories;
use posse_base::failure::{Exit, Failure, printable, printable_lines};
use serde_json::json;

use crate::commands::{ended_at, write_json};
use crate::read;
use crate::state::{StateDir, Within};

/// Prints the agent memories of session `id`, which may be a unique prefix: reports that its agents
/// leave for later agents of the same name. If the journal is damaged, the result is an error after
/// the output.
pub fn show(state: &StateDir, id: &str, json: bool, out: &mut dyn Write) -> Result<Exit, Failure> {
    let found = state.find(Within::Everywhere, id)?;
    let (replayed, problem) = read::replayed(&found)?;
    let memories = Memories::of(&replayed);
    let written = if json {
        let value = json!({"sessionId": found.id, "memories": memories});
        write_json(&value, out)
    } else {
        out.write_all(text(&memories).as_bytes())
    };
    let meaning = "the records above are all that the journal still proves";
    ended_at(problem, meaning, &found, written, out)
}

/// Formats the memories as text.
fn text(memories: &Memories) -> String {
    if memories.all().is_empty() {
        return "no agent has reported anything\n".to_owned();
    }
    let mut text = String::new();
    for memory in memories.all() {
        let head = format!("{} ({}) in {}", memory.agent, memory.provider, memory.cwd);
        text.extend([printable(&head).as_str(), "\n"]);
        for line in printable_lines(&memory.text()).lines() {
            text.extend(["  ", line, "\n"]);
        }
    }
    text
}
