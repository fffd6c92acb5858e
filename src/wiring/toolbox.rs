//! Settings for tools, and counting of their calls.

use std::path::PathBuf;
use std::sync::Arc;

use posse_actors::conversation::Message;
use posse_actors::ports::{
    Completion, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo, Request,
};

use crate::config::{Settings, ToolSettings};
use crate::images::ImageLimits;
use crate::tools::ToolEnvironment;
use crate::tools::budget::{Budgets, CallBudget, OnExceed};
use crate::tools::jobs::Jobs;
use crate::tools::workspace::Workspace;

/// Environment shared by the tools of a session.
pub(crate) fn environment(
    settings: &Settings,
    workspace: Workspace,
    session_dir: PathBuf,
    dry_run: bool,
) -> ToolEnvironment {
    let ToolSettings { fuzzy_edit, require_read, dedup_reads, .. } = settings.tools;
    ToolEnvironment {
        dry_run,
        fuzzy_edit,
        require_read,
        dedup_reads,
        readable_secrets: settings.sandbox.readable_secrets.clone(),
        images: image_limits(settings),
        budgets: Arc::new(budgets(&settings.tools)),
        jobs: Arc::new(Jobs::new(settings.tools.jobs_max)),
        ..ToolEnvironment::new(workspace, session_dir)
    }
}

/// Limits of an image.
pub(crate) fn image_limits(settings: &Settings) -> ImageLimits {
    ImageLimits { file_bytes_max: settings.image_bytes_max, ..ImageLimits::default() }
}

fn budgets(settings: &ToolSettings) -> Budgets {
    let turn_bytes_max =
        settings.output_budget.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let calls = settings.budgets.iter().filter_map(|(tool, budget)| {
        let calls_max = u32::try_from(budget.max?).unwrap_or(u32::MAX);
        let on_exceed = if budget.steer { OnExceed::Steer } else { OnExceed::Block };
        Some((tool.clone(), CallBudget { calls_max, on_exceed }))
    });
    Budgets::new(turn_bytes_max, calls)
}

/// Wraps `model` so that the tool budgets are reset at the start of a task or a turn.
pub(crate) fn counted(
    model: Arc<dyn Provider>,
    settings: &ToolSettings,
    budgets: Arc<Budgets>,
) -> Arc<dyn Provider> {
    if settings.output_budget.is_none() && settings.budgets.is_empty() {
        return model;
    }
    Arc::new(ToolCounter { model, budgets })
}

struct ToolCounter {
    model: Arc<dyn Provider>,
    budgets: Arc<Budgets>,
}

impl Provider for ToolCounter {
    fn info(&self) -> ProviderInfo {
        self.model.info()
    }

    fn account(&self) -> String {
        self.model.account()
    }

    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        if begins_task(&request.messages) {
            self.budgets.run_began();
        } else {
            self.budgets.turn_began();
        }
        self.model.complete(request, deltas)
    }
}

/// True if the last message is a new task of the user.
fn begins_task(messages: &[Arc<Message>]) -> bool {
    let is_user = |message: &&Arc<Message>| matches!(***message, Message::User { .. });
    let said = messages.iter().rev().take_while(is_user).count();
    let before = messages.iter().rev().nth(said).map(|message| &**message);
    said > 0 && !matches!(before, Some(Message::Tool { .. }))
}
