//! Test workspace in a temporary folder, with helpers that call tools in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_actors::conversation::{ToolCall, text_of};
use posse_actors::event::{EditHunk, HunkAnswer};
use posse_actors::ports::permit_for_test;
use posse_actors::ports::{
    CallContext, ChosenHunks, Confinement, NetworkAccess, PostCallSink, Prepared, RunContext,
    ToolError, ToolOutput, Toolbox,
};
use posse_actors::tool_call::arguments;
use posse_sandbox::Sandbox;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::workspace::Workspace;
use crate::{ToolEnvironment, builtin};

/// A workspace `work`, a folder `outside`, and the session's folder `session`.
pub(crate) struct ToolFixture {
    folder: TempDir,
    tools: Toolbox,
}

impl ToolFixture {
    pub(crate) fn new() -> ToolFixture {
        ToolFixture::with(false)
    }

    pub(crate) fn with(dry_run: bool) -> ToolFixture {
        ToolFixture::set(|env| env.dry_run = dry_run)
    }

    /// Creates a fixture with the settings that `settings` changes.
    pub(crate) fn set(settings: impl FnOnce(&mut ToolEnvironment)) -> ToolFixture {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        for name in ["work", "outside", "session"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        let workspace = Workspace::open(&base.join("work"), &[]).unwrap();
        let mut env = ToolEnvironment::new(workspace, base.join("session"));
        settings(&mut env);
        // A test binary is not a helper, so no command runs here.
        let sandbox = Sandbox::with_helper("/bin/true".into(), Vec::new());
        ToolFixture { folder, tools: builtin(Arc::new(env), Arc::new(sandbox)) }
    }

    pub(crate) fn tools(&self) -> &Toolbox {
        &self.tools
    }

    /// Absolute path of `path` in the temporary folder, such as `work/a`.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    /// Writes a file in the workspace.
    pub(crate) fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("work").join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Content of a file of the workspace.
    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        fs::read(self.path("work").join(path)).unwrap()
    }

    pub(crate) fn prepare(&self, tool: &str, arguments: &Value) -> Result<Prepared, ToolError> {
        self.prepare_as(context("build", "call-1"), tool, arguments)
    }

    fn prepare_as(
        &self,
        context: CallContext,
        tool: &str,
        arguments: &Value,
    ) -> Result<Prepared, ToolError> {
        let tool = self.tools.get(tool).unwrap();
        let raw = arguments.to_string();
        let arguments = arguments::validate(&tool.spec().parameters, &raw, 16 << 20)?;
        block_on(tool.prepare(arguments.value, context))
    }

    pub(crate) fn run(&self, tool: &str, prepared: Prepared) -> ToolOutput {
        self.run_as(context("build", "call-1"), tool, prepared)
    }

    fn run_as(&self, context: CallContext, tool: &str, prepared: Prepared) -> ToolOutput {
        let call = ToolCall {
            id: context.call_id.clone(),
            provider_id: None,
            name: tool.to_owned(),
            arguments: String::new(),
        };
        let confinement = Confinement {
            profile: String::new(),
            writable_roots: vec![],
            network: NetworkAccess::Denied,
        };
        let (output, _output) = mpsc::channel(1);
        let (facts, _facts) = mpsc::channel(1);
        let run = RunContext {
            call: context,
            output,
            facts,
            post_call: PostCallSink::new(drop),
            connections: posse_actors::ports::ConnectionAsker::default(),
            output_bytes_max: 32 << 10,
            room_bytes: usize::MAX,
            answer: None,
        };
        let permitted = permit_for_test(call, prepared, confinement);
        block_on(self.tools.get(tool).unwrap().run(permitted, run))
    }

    /// Prepares and runs the call `id` of `agent`, and returns the text of its result or error.
    pub(crate) fn ask_as(&self, agent: &str, id: &str, tool: &str, arguments: &Value) -> String {
        match self.prepare_as(context(agent, id), tool, arguments) {
            Ok(prepared) => text_of(&self.run_as(context(agent, id), tool, prepared).content),
            Err(error) => error.to_string(),
        }
    }

    /// Prepares a call of `agent`.
    pub(crate) fn prepare_for(
        &self,
        agent: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<Prepared, ToolError> {
        self.prepare_as(context(agent, "w"), tool, arguments)
    }

    /// Runs a prepared call of `agent`, and returns the text of its result.
    pub(crate) fn run_for(&self, agent: &str, tool: &str, prepared: Prepared) -> String {
        text_of(&self.run_as(context(agent, "w"), tool, prepared).content)
    }

    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Result<ToolOutput, ToolError> {
        Ok(self.run(tool, self.prepare(tool, arguments)?))
    }

    /// Hunks of a prepared call.
    pub(crate) fn hunks(&self, tool: &str, prepared: &Prepared) -> Vec<EditHunk> {
        self.tools.get(tool).unwrap().hunks(prepared)
    }

    /// Reduces a prepared call to the hunks that `answers` choose.
    pub(crate) fn choose(
        &self,
        tool: &str,
        prepared: Prepared,
        answers: &[HunkAnswer],
    ) -> Result<Prepared, ToolError> {
        let Prepared { mut action, payload } = prepared;
        let chosen = self.tools.get(tool).unwrap().choose_hunks(payload, answers.to_vec());
        let ChosenHunks { summary, payload } = block_on(chosen)?;
        action.summary = summary;
        Ok(Prepared { action, payload })
    }

    /// Prepares and runs a call of the main agent, and returns the text of its result or error.
    pub(crate) fn ask(&self, tool: &str, arguments: &Value) -> String {
        match self.call(tool, arguments) {
            Ok(output) => text_of(&output.content),
            Err(error) => error.to_string(),
        }
    }
}

fn context(agent: &str, id: &str) -> CallContext {
    posse_actors::testing::call_of_main("session-1", id, agent)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Creates folders below `folder` whose ignore files are links to a device, pipes, or 200 GB large.
pub(crate) fn put_hostile_ignore_files(folder: &Path) {
    for (number, name) in [".gitignore", ".ignore", ".git/info/exclude"].iter().enumerate() {
        let file = |kind: &str| {
            let file = folder.join(format!("hostile/{kind}{number}")).join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            file
        };
        std::os::unix::fs::symlink("/dev/zero", file("device")).unwrap();
        nix::unistd::mkfifo(&file("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::File::create(file("large")).unwrap().set_len(200 << 30).unwrap();
    }
}

/// Exchanges two names atomically, so that both exist at every moment.
#[cfg(target_os = "linux")]
pub(crate) fn exchange(folder: &Path, a: &str, b: &str) {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    let (a, b) = (folder.join(a), folder.join(b));
    renameat2(AT_FDCWD, &a, AT_FDCWD, &b, RenameFlags::RENAME_EXCHANGE).unwrap();
}

/// Sets the flag on drop, so that a thread that waits for it ends even if the test fails.
#[cfg(target_os = "linux")]
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a std::sync::atomic::AtomicBool);

#[cfg(target_os = "linux")]
impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
