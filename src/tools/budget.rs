//! Tool budgets of a run: calls per tool, and bytes of output per turn.
//!
//! A call beyond the budget of its tool is denied, or it runs and the model is informed. If a turn
//! has too much output, one note for the model is appended; output is not truncated here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use posse_actors::conversation::ContentPart;
use posse_actors::ports::{
    CallContext, PermittedCall, PortFuture, Prepared, RunContext, Tool, ToolError, ToolOutput,
    ToolSpec,
};
use serde_json::Value;

/// Effect of a call beyond the budget of its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExceed {
    /// The call does not run. Its result is an error for the model.
    Block,
    /// The call runs. The model is informed at the first such call.
    Steer,
}

/// Budget of one tool: its maximum number of calls in a run, and the effect of further calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallBudget {
    /// Maximum number of calls of the tool in one run.
    pub calls_max: u32,
    /// Effect of further calls of the tool in the same run.
    pub on_exceed: OnExceed,
}

/// Tool budgets of a run, and their usage so far.
#[derive(Debug, Default)]
pub struct Budgets {
    /// `tools.outputBudget`: bytes of output in one turn above which a note asks the model to
    /// request less at once; `None` is unlimited.
    pub turn_bytes_max: Option<usize>,
    /// `tools.budgets`: budgets of calls, by tool name. Tools without an entry are not limited.
    pub calls: BTreeMap<String, CallBudget>,
    spent: Mutex<CallUsage>,
}

/// Usage of the budgets so far.
#[derive(Debug, Default)]
struct CallUsage {
    /// Number of calls in this run, by tool name, including those that were denied for their
    /// budget.
    calls: BTreeMap<String, u32>,
    /// Bytes of output in this turn.
    bytes: usize,
    /// True if the model was informed in this turn that the limit of output is exceeded.
    told: bool,
}

impl Budgets {
    /// Creates budgets with a limit for the output of one turn, and with limits for the calls of
    /// some tools.
    pub fn new(
        turn_bytes_max: Option<usize>,
        calls: impl IntoIterator<Item = (String, CallBudget)>,
    ) -> Budgets {
        Budgets { turn_bytes_max, calls: calls.into_iter().collect(), spent: Mutex::default() }
    }

    /// Resets all usage at the start of a run.
    pub fn run_began(&self) {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner) = CallUsage::default();
    }

    /// Resets the count of output bytes at the start of a turn.
    pub fn turn_began(&self) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        (spent.bytes, spent.told) = (0, false);
    }

    /// Returns true if nothing is limited.
    fn is_unlimited(&self) -> bool {
        self.turn_bytes_max.is_none() && self.calls.is_empty()
    }

    /// Counts a call of `tool`. A call beyond the budget of the tool returns the text of its denial
    /// as an error (`Block`), or, if it is the first such call, a note for the model (`Steer`). Any
    /// other call returns `None`.
    fn call(&self, tool: &str) -> Result<Option<String>, String> {
        let Some(budget) = self.calls.get(tool) else { return Ok(None) };
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = spent.calls.entry(tool.to_owned()).or_default();
        *calls = calls.saturating_add(1);
        let max = budget.calls_max;
        match budget.on_exceed {
            _ if *calls <= max => Ok(None),
            OnExceed::Block => Err(format!(
                "LIM001 {tool} was called {max} times in this run, which is its limit; go on \
                 without it, or finish with what you have"
            )),
            OnExceed::Steer if *calls == max + 1 => Ok(Some(format!(
                "[{tool} was called more than {max} times in this run; use what you have]"
            ))),
            OnExceed::Steer => Ok(None),
        }
    }

    /// Counts `bytes` of output. Returns a note for the model when the limit of the turn is
    /// exceeded for the first time.
    fn output(&self, bytes: usize) -> Option<String> {
        let max = self.turn_bytes_max?;
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.bytes = spent.bytes.saturating_add(bytes);
        if spent.bytes <= max || std::mem::replace(&mut spent.told, true) {
            return None;
        }
        Some(format!(
            "[the outputs of this turn have {} bytes, more than {max}; note what matters, and ask \
             for less at once]",
            spent.bytes
        ))
    }
}

/// Wraps `tool` with `budgets`; returns `tool` itself if nothing is limited.
pub fn within(budgets: &Arc<Budgets>, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
    if budgets.is_unlimited() {
        return tool;
    }
    Arc::new(Budgeted { tool, budgets: Arc::clone(budgets) })
}

struct Budgeted {
    tool: Arc<dyn Tool>,
    budgets: Arc<Budgets>,
}

impl Tool for Budgeted {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn inner(&self) -> Option<&dyn Tool> {
        Some(&*self.tool)
    }

    fn prepare(
        &self,
        arguments: Value,
        context: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>> {
        self.tool.prepare(arguments, context)
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        let (tool, budgets) = (Arc::clone(&self.tool), Arc::clone(&self.budgets));
        Box::pin(async move {
            let note = match budgets.call(&tool.spec().name) {
                Ok(note) => note,
                Err(refused) => return ToolOutput::error(refused),
            };
            let mut output = tool.run(call, context).await;
            let more = budgets.output(bytes_of(&output));
            for note in note.into_iter().chain(more) {
                append(&mut output, &note);
            }
            output
        })
    }
}

/// Size of an output in bytes: its texts, and the URLs of its images.
fn bytes_of(output: &ToolOutput) -> usize {
    let size = |part: &ContentPart| match part {
        ContentPart::Text { text } => text.len(),
        ContentPart::ImageUrl { url, .. } => url.len(),
    };
    output.content.iter().map(size).sum()
}

/// Appends `note` to the first text of the output, or as a new text if it has none.
fn append(output: &mut ToolOutput, note: &str) {
    for part in &mut output.content {
        if let ContentPart::Text { text } = part {
            text.push('\n');
            text.push_str(note);
            return;
        }
    }
    output.content.push(ContentPart::text(note));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::ToolFixture;

    fn desk(turn_bytes_max: Option<usize>, on_exceed: OnExceed) -> (ToolFixture, Arc<Budgets>) {
        let calls = [("list_dir".to_owned(), CallBudget { calls_max: 2, on_exceed })];
        let budgets = Arc::new(Budgets::new(turn_bytes_max, calls));
        let desk = ToolFixture::set(|env| env.budgets = Arc::clone(&budgets));
        desk.put("f", "some text\n");
        (desk, budgets)
    }

    #[test]
    fn excess_calls_are_refused_or_noted_once() {
        let list = |desk: &ToolFixture| desk.ask("list_dir", &json!({}));
        let (refusing, budgets) = desk(None, OnExceed::Block);
        let usual = list(&refusing);
        assert_eq!(list(&refusing), usual);
        let refused = "LIM001 list_dir was called 2 times in this run, which is its limit; go on \
                       without it, or finish with what you have";
        assert_eq!(list(&refusing), refused);
        // Other tools continue, and so does the next run.
        assert!(refusing.ask("read_file", &json!({"path": "f"})).starts_with("1\tsome"));
        budgets.turn_began();
        assert_eq!(list(&refusing), refused);
        budgets.run_began();
        assert_eq!(list(&refusing), usual);

        let (telling, _) = desk(None, OnExceed::Steer);
        let said: Vec<String> = (0..4).map(|_| list(&telling)).collect();
        let note = "\n[list_dir was called more than 2 times in this run; use what you have]";
        assert_eq!(said, [&usual, &usual, &format!("{usual}{note}"), &usual].map(String::clone));
    }

    #[test]
    fn long_outputs_of_one_turn_are_noted_once() {
        let (desk, budgets) = desk(Some(60), OnExceed::Block);
        let read = |desk: &ToolFixture| desk.ask("read_file", &json!({"path": "f"}));
        let usual = read(&desk);
        assert_eq!(usual.len(), 28);
        let note = "\n[the outputs of this turn have 84 bytes, more than 60; note what matters, \
                    and ask for less at once]";
        assert_eq!(read(&desk), usual);
        assert_eq!(read(&desk), format!("{usual}{note}"));
        assert_eq!(read(&desk), usual);
        budgets.turn_began();
        for _ in 0..2 {
            assert_eq!(read(&desk), usual);
        }
        assert!(read(&desk).ends_with("at once]"));
    }

    #[test]
    fn without_limits_nothing_is_wrapped() {
        let tool = ToolFixture::new().tools().get("list_dir").unwrap().clone();
        let same = within(&Arc::default(), Arc::clone(&tool));
        assert!(Arc::ptr_eq(&tool, &same));
    }
}
