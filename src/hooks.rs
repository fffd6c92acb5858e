//! Hooks: built-in guards and programs of the user, run one after the other.
//!
//! A guard that crashes denies. A user's program that fails causes a warning, or a denial if
//! configured. No hook can allow an action that the policy denies.

mod answer;
mod command;
mod guards;
mod hook_input;
mod masking;
mod settings;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use posse_actors::event::{HookEvent, SandboxTier};
use posse_actors::ports::{
    Confinement, Hook, HookInvocation, HookPayload, HookReport, HookResult, NoHooks, Policy,
    PortFuture,
};
use serde_json::Value;

use crate::failure::{ErrorCode, Failure};
use crate::sandbox::Sandbox;

use command::Runner;
use guards::Guards;
use settings::{CommandHook, MemberFailures};

pub use masking::Masking;

/// Time limit of all hooks together at the end of a session, because a person waits for the shell.
const END_MAX: Duration = Duration::from_secs(20);

/// Configuration and environment of all hooks of a session.
#[derive(Debug)]
pub struct HookSettings<'a> {
    /// Entries of `hooks` in the configuration as JSON: the user's, and those of a trusted project.
    pub entries: &'a [Value],
    /// Home folder, which replaces `~/` in commands. `None`: unknown; then a program that begins
    /// with `~/` is an error.
    pub home: Option<&'a Path>,
    /// Value of `PATH`, in which the programs of hooks are searched.
    pub path: OsString,
    /// Working directory of the hooks.
    pub cwd: PathBuf,
    /// Folder of the session.
    pub session_dir: PathBuf,
    /// Confinement of commands, which also applies to hooks.
    pub confinement: Confinement,
    /// Sandbox tier of commands.
    pub tier: SandboxTier,
    /// Configuration, grant and trust files of posse. A hook that changes one is reported.
    pub watched: Vec<PathBuf>,
}

/// Creates the hooks of a session: the built-in guards, and the hooks in `settings`. Without
/// entries there are no hooks, not even the guards. Fails with all mistakes of invalid entries.
pub fn hooks(
    settings: HookSettings<'_>,
    sandbox: Arc<Sandbox>,
    policy: Arc<dyn Policy>,
) -> Result<Arc<dyn Hook>, Vec<Failure>> {
    if settings.entries.is_empty() {
        return Ok(Arc::new(NoHooks));
    }
    let commands = settings::parse(settings.entries, settings.home)
        .map_err(|wrong| wrong.into_iter().map(|(_, failure)| failure).collect::<Vec<_>>())?;
    let HookSettings { path, cwd, session_dir, confinement, tier, watched, .. } = settings;
    let guards = Guards { policy, cwd: cwd.display().to_string(), tier };
    let count = AtomicU64::new(0);
    let runner = Runner { sandbox, cwd, session_dir, path, confinement, watched, count };
    Ok(Arc::new(Hooks(Arc::new(HookSet { commands, guards, runner }))))
}

/// One error for each invalid entry of `hooks`, with its index; empty if there is none. `home`:
/// home folder, as in [`HookSettings`].
pub(crate) fn check(entries: &[Value], home: Option<&Path>) -> MemberFailures {
    settings::parse(entries, home).err().unwrap_or_default()
}

struct Hooks(Arc<HookSet>);

struct HookSet {
    commands: Vec<CommandHook>,
    guards: Guards,
    runner: Runner,
}

impl Hook for Hooks {
    fn has_hook(&self, event: HookEvent, tool: Option<&str>) -> bool {
        self.0.commands.iter().any(|hook| hook.has_hook(event, tool))
    }

    fn fire(&self, occasion: HookInvocation) -> PortFuture<Vec<HookReport>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.fire(occasion).await })
    }
}

impl HookSet {
    async fn fire(&self, mut occasion: HookInvocation) -> Vec<HookReport> {
        let begin = Instant::now();
        let event = occasion.moment.event();
        let mut reports = Vec::new();
        if let Some(refused) = self.guard(&occasion) {
            return vec![refused];
        }
        for hook in &self.commands {
            let used = occasion.moment.call();
            if !hook.has_hook(event, used.map(|used| used.tool.as_str()))
                || used.is_some_and(|used| !hook.is_about(used))
            {
                continue;
            }
            let left = match event {
                HookEvent::SessionEnd => END_MAX.saturating_sub(begin.elapsed()),
                _ => Duration::MAX,
            };
            let asked = self.runner.ask(hook, &occasion, hook.timeout.min(left));
            let asked = AssertUnwindSafe(asked).catch_unwind().await;
            let said = asked.unwrap_or_else(|_| vec![crashed(&hook.name, hook.blocks)]);
            for report in &said {
                chain_input(&mut occasion.moment, &report.says);
            }
            let changed = said.iter().any(|report| matches!(report.says, HookResult::Input(_)));
            let blocked = said.iter().any(|report| report.says.blocks());
            reports.extend(said);
            if blocked {
                break;
            }
            if changed && let Some(refused) = self.guard(&occasion) {
                reports.push(refused);
                break;
            }
        }
        reports
    }

    fn guard(&self, occasion: &HookInvocation) -> Option<HookReport> {
        let HookPayload::PreToolUse(used) = &occasion.moment else { return None };
        let agent = occasion.origin.as_ref().map_or("", |origin| origin.agent_path.as_str());
        let judged = catch_unwind(AssertUnwindSafe(|| self.guards.judge(used, agent)));
        judged.unwrap_or_else(|_| Some(crashed("built-in", true)))
    }
}

/// Applies the changed arguments or the changed result that a hook returned to `moment`, which is
/// the input of the next hook.
fn chain_input(moment: &mut HookPayload, says: &HookResult) {
    match (moment, says) {
        (HookPayload::PreToolUse(used), HookResult::Input(input)) => used.input = input.clone(),
        (
            HookPayload::PostToolUse(_, content) | HookPayload::ToolError { content, .. },
            HookResult::Output(output),
        ) => content.clone_from(output),
        _ => {}
    }
}

fn crashed(hook: &str, blocks: bool) -> HookReport {
    let says = HookResult::Failed { code: ErrorCode::HookCrashed.to_string(), blocks };
    report(hook, says, Some("the part that asks this hook crashed".to_owned()))
}

/// Makes a report of `hook` without metadata and duration.
fn report(hook: &str, says: HookResult, message: Option<String>) -> HookReport {
    let hook = hook.to_owned();
    HookReport { hook, says, message, metadata: Value::Null, duration: Duration::ZERO }
}

#[cfg(test)]
mod tests;
