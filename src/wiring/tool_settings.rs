//! Settings for tools.

use std::path::PathBuf;
use std::sync::Arc;

use posse_base::secrets::readable::ReadableSecrets;

use crate::config::{Settings, ToolSettings};
use crate::images::ImageLimits;
use crate::tools::budget::{Budgets, CallBudget, OnExceed};
use crate::tools::jobs::Jobs;
use crate::tools::workspace::Workspace;
use crate::tools::{CommandTimeouts, ToolEnvironment};

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
        readable_secrets: ReadableSecrets::new(settings.sandbox.readable_secrets.clone()),
        images: image_limits(settings),
        budgets: Arc::new(budgets(&settings.tools)),
        jobs: Arc::new(Jobs::new(settings.tools.jobs_max)),
        timeouts: timeouts(&settings.tools),
        ..ToolEnvironment::new(workspace, session_dir)
    }
}

fn timeouts(settings: &ToolSettings) -> CommandTimeouts {
    let usual = CommandTimeouts::default();
    let default = settings.command_timeout.unwrap_or(usual.default);
    match settings.command_timeout_max {
        // A default that is not set follows a shorter maximum.
        Some(maximum) => CommandTimeouts { default: default.min(maximum), maximum },
        None => CommandTimeouts { default, maximum: usual.maximum.max(default) },
    }
}

/// Limits of an image that is sent to a model.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The configuration crate cannot see these defaults, and repeats them in its table of keys.
    #[test]
    fn defaults_in_the_table_of_keys_are_those_of_the_tools() {
        let reference = crate::config::reference();
        let commands = CommandTimeouts::default();
        let table =
            [("tools.bash.maxTimeout", commands.maximum), ("tools.bash.timeout", commands.default)];
        for (key, default) in table {
            let row = reference.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
            let said = row.and_then(|row| row.split(" | ").nth(2)).unwrap_or_default();
            let (minutes, seconds) = (default.as_secs() / 60, default.as_secs());
            let written = [format!("`\"{minutes}m\"`"), format!("`\"{seconds}s\"`")];
            let exact = if seconds.is_multiple_of(60) { &written[..] } else { &written[1..] };
            assert!(exact.iter().any(|text| text == said), "{key}: {said}, not {seconds} s");
        }
    }

    #[test]
    fn maximum_of_a_time_limit_also_bounds_the_default() {
        let seconds = |of: u64| Duration::from_secs(of);
        // Settings `timeout` and `maxTimeout`, and the limits.
        let table = [
            (None, None, (120, 600)),
            (None, Some(1), (1, 1)),
            (None, Some(300), (120, 300)),
            (Some(1200), None, (1200, 1200)),
            (Some(5), Some(10), (5, 10)),
        ];
        for (timeout, timeout_max, (default, maximum)) in table {
            let settings = ToolSettings {
                command_timeout: timeout.map(seconds),
                command_timeout_max: timeout_max.map(seconds),
                ..ToolSettings::default()
            };
            let limits = timeouts(&settings);
            assert_eq!(
                (limits.default, limits.maximum),
                (seconds(default), seconds(maximum)),
                "{timeout:?} {timeout_max:?}"
            );
        }
    }
}
