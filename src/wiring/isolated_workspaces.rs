//! Isolated workspaces for subagents: tools, policy and instructions for a worktree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use posse_actors::conversation::InvocationId;
use posse_actors::event::Origin;
use posse_actors::outcome::WorkspaceChanges;
use posse_actors::ports::{IsolatedWorkspace, IsolatedWorkspaces, PortFuture, Toolbox};
use posse_actors::replay::Delegated;
use posse_base::secrets::readable::ReadableSecrets;

use crate::agents;
use crate::hooks::Masking;
use crate::permission::{PolicySettings, Relocated, RulePolicy, dry_run_policy};
use crate::project;
use crate::sandbox::Sandbox;
use crate::tools::workspace::Workspace;
use crate::tools::worktree::{WorktreePaths, Worktrees};
use crate::tools::{self, ToolEnvironment, agent_diff, agent_merge, blocking, budget};

/// Placeholder for the working directory in system prompts. No real path contains it.
pub(crate) const ELSEWHERE: &str = "//elsewhere//";

/// Services that isolated workspaces share with the session.
pub(crate) struct WorkspaceServices {
    pub(crate) env: Arc<ToolEnvironment>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) masking: Masking,
    /// Policy settings of the session.
    pub(crate) policy: PolicySettings,
    /// System prompts by agent name, with [`ELSEWHERE`] for the working directory.
    pub(crate) prompts: BTreeMap<String, String>,
}

struct GitWorkspaces {
    worktrees: Arc<Worktrees>,
    shared: Arc<WorkspaceServices>,
}

impl fmt::Debug for GitWorkspaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitWorkspaces").field("worktrees", &self.worktrees).finish_non_exhaustive()
    }
}

/// Manager of the subagents' worktrees for the session that works in `cwd`. `None` outside a git
/// repository.
pub(crate) fn worktrees(
    session_dir: &Path,
    cwd: &Path,
    sandbox: &Arc<Sandbox>,
) -> Option<Arc<Worktrees>> {
    let git = project::root_of(cwd).join(".git");
    // Git itself is asked when the first worktree is needed.
    let is_there = !git.is_dir() || git.join("HEAD").symlink_metadata().is_ok();
    let is_there = is_there && git.symlink_metadata().is_ok();
    let sandbox = Arc::clone(sandbox);
    is_there.then(|| Arc::new(Worktrees::new(session_dir, cwd, sandbox, project::main_repository)))
}

/// Registers the tools that show and merge the changes in worktrees of subagents.
pub(crate) fn tools(toolbox: &mut Toolbox, env: &Arc<ToolEnvironment>, worktrees: &Arc<Worktrees>) {
    for tool in [agent_diff::tool, agent_merge::tool] {
        let tool = budget::within(&env.budgets, tool(Arc::clone(env), Arc::clone(worktrees)));
        let taken = toolbox.register(tool).is_err();
        debug_assert!(!taken, "built-in tools have names of their own");
    }
}

/// Factory of isolated workspaces for a session.
pub(crate) fn workspace_factory(
    worktrees: Arc<Worktrees>,
    shared: WorkspaceServices,
) -> Arc<dyn IsolatedWorkspaces> {
    Arc::new(GitWorkspaces { worktrees, shared: Arc::new(shared) })
}

/// Removes worktrees that belong to no subagent in `delegated`: a process was killed while it
/// created them.
pub(crate) fn remove_incomplete(session_dir: &Path, delegated: &[Delegated]) {
    let known: BTreeSet<&str> = delegated.iter().map(|one| one.id().as_str()).collect();
    Worktrees::remove_unknown(session_dir, &known);
}

impl WorkspaceServices {
    /// Makes tools, policy and system prompt for `agent` in the worktree `place`.
    fn at(&self, place: &WorktreePaths, agent: &str) -> Result<IsolatedWorkspace, String> {
        let failed = |failure: crate::failure::Failure| failure.what;
        let workspace = Workspace::open(&place.cwd, &[]).map_err(failed)?;
        let workspace =
            workspace.with_secret_files(self.sandbox.secret_files(), ReadableSecrets::default());
        let copy = workspace.cwd().to_owned();
        let tree = place.tree.canonicalize().map_err(|error| error.to_string())?;
        // A command may have put a link there.
        if !copy.starts_with(&tree) {
            return Err("its working directory leads out of its worktree".to_owned());
        }
        let env = ToolEnvironment {
            workspace,
            readable_secrets: ReadableSecrets::default(),
            denied_reads: self.env.denied_reads.in_copy(&copy, self.env.workspace.cwd()),
            // Files read in the copy do not count as read in the workspace.
            reads: Arc::default(),
            ..(*self.env).clone()
        };
        let relocated = Relocated {
            workspace: self.env.workspace.cwd().display().to_string(),
            copy: copy.display().to_string(),
            writable: tree.display().to_string(),
        };
        let policy = PolicySettings { relocated: Some(relocated), ..self.policy.clone() };
        let policy = RulePolicy::new(policy)
            .map_err(|failures| failures.into_iter().map(failed).collect::<Vec<_>>().join("; "))?;
        let denied = env.denied_reads.read_file.clone();
        let toolbox = tools::builtin(Arc::new(env), Arc::clone(&self.sandbox));
        let toolbox = agents::with_nested_instructions(&toolbox, &tree, &copy, &denied);
        let prompt = self.prompts.get(agent).map(String::as_str).unwrap_or_default();
        let cwd = copy.display().to_string();
        Ok(IsolatedWorkspace {
            system_prompt: prompt.replace(ELSEWHERE, &cwd),
            tools: self.masking.tools(toolbox),
            policy: dry_run_policy(Arc::new(policy), self.env.dry_run),
            cwd,
        })
    }
}

impl IsolatedWorkspaces for GitWorkspaces {
    fn open(
        &self,
        id: &InvocationId,
        agent: &str,
        caller: &Origin,
    ) -> PortFuture<Result<IsolatedWorkspace, String>> {
        let (worktrees, shared) = (Arc::clone(&self.worktrees), Arc::clone(&self.shared));
        let (id, agent) = (id.clone(), agent.to_owned());
        // The main agent has a new invocation id with each prompt.
        let caller = caller.parent_invocation_id.as_ref().map(|_| caller.invocation_id.clone());
        Box::pin(async move {
            let caller = caller.as_ref().map(InvocationId::as_str);
            let place = worktrees.open(id.as_str(), caller).await;
            shared.at(&place.map_err(|why| why.to_string())?, &agent)
        })
    }

    fn reopen(
        &self,
        id: &InvocationId,
        agent: &str,
    ) -> PortFuture<Result<IsolatedWorkspace, String>> {
        let place = self.worktrees.reopen(id.as_str()).map_err(|why| why.to_string());
        let place = place.and_then(|place| self.shared.at(&place, agent));
        Box::pin(std::future::ready(place))
    }

    fn is_there(&self, id: &InvocationId) -> bool {
        self.worktrees.is_there(id.as_str())
    }

    fn close(&self, id: &InvocationId) -> PortFuture<Result<Option<WorkspaceChanges>, String>> {
        let (worktrees, id) = (Arc::clone(&self.worktrees), id.clone());
        Box::pin(async move {
            let left = blocking(move || worktrees.close(id.as_str())).await;
            left.map_err(|why| why.to_string())
        })
    }

    fn discard(&self, id: &InvocationId) {
        let (worktrees, id) = (Arc::clone(&self.worktrees), id.clone());
        // A copy may have many files, and nothing waits for its removal.
        let thread = std::thread::Builder::new().name("posse-worktree".into());
        if let Err(error) = thread.spawn(move || worktrees.discard(id.as_str())) {
            tracing::warn!(%error, "a worktree that nobody uses stays until the session is removed");
        }
    }
}
