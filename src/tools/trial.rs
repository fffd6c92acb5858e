//! A workspace to try one tool in.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use posse_actors::conversation::{CallId, SessionId, ToolCall, text_of};
use posse_actors::ports::{
    CallContext, Confinement, Prepared, RunContext, Tool, ToolError, ToolOutput,
};
use posse_actors::tool_call::permit_for_test;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::tools::ToolEnvironment;
use crate::tools::workspace::Workspace;

/// A temporary workspace and session folder.
pub(crate) struct Trial {
    folder: tempfile::TempDir,
    pub(crate) env: Arc<ToolEnvironment>,
}

impl Trial {
    /// A workspace with these files.
    pub(crate) fn new(files: &[(&str, &str)]) -> Trial {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("work");
        fs::create_dir(&root).unwrap();
        let workspace = Workspace::open(&root, &[]).unwrap();
        let session_dir = folder.path().join("session");
        let env = Arc::new(ToolEnvironment { workspace, session_dir, dry_run: false });
        let trial = Trial { folder, env };
        for (path, text) in files {
            trial.write(path, text);
        }
        trial
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("work")
    }

    /// Beside the workspace.
    pub(crate) fn outside(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn prepare(
        &self,
        tool: &Arc<dyn Tool>,
        arguments: Value,
    ) -> Result<Prepared, ToolError> {
        tool.prepare(arguments, call_context()).await
    }

    /// Prepares, permits and runs.
    pub(crate) async fn call(&self, tool: &Arc<dyn Tool>, arguments: Value) -> ToolOutput {
        let prepared = self.prepare(tool, arguments).await.unwrap();
        self.run(tool, prepared).await
    }

    pub(crate) async fn run(&self, tool: &Arc<dyn Tool>, prepared: Prepared) -> ToolOutput {
        let call = ToolCall {
            id: CallId::new("c1"),
            provider_id: None,
            name: tool.spec().name.clone(),
            arguments: String::new(),
        };
        let confinement =
            Confinement { profile: "none".to_owned(), writable_roots: Vec::new(), network: true };
        let (output, _deltas) = mpsc::channel(64);
        let (facts, _facts) = mpsc::channel(64);
        let context =
            RunContext { call: call_context(), output, facts, output_bytes_max: 32 << 10 };
        tool.run(permit_for_test(call, prepared, confinement), context).await
    }

    /// Like [`Trial::call`], only the text.
    pub(crate) async fn text(&self, tool: &Arc<dyn Tool>, arguments: Value) -> String {
        text_of(&self.call(tool, arguments).await.content)
    }
}

fn call_context() -> CallContext {
    CallContext {
        session_id: SessionId::new("s1"),
        call_id: CallId::new("c1"),
        agent: "build".to_owned(),
    }
}
