//! `read_file`: a slice of a text file of any size, with line numbers.

mod page;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use posse_actors::ports::{
    Action, CallContext, Operation, PortFuture, Prepared, RunContext, SideEffect, Tool, ToolError,
    ToolOutput, ToolSpec,
};
use posse_actors::tool_call::PermittedCall;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::printable;
use crate::tools::change::failed;
use crate::tools::read_file::page::{LINES_DEFAULT, LINES_MAX, Slice};
use crate::tools::text::sha256;
use crate::tools::workspace::{Entry, Kind, refused};
use crate::tools::{ToolEnvironment, parsed, payload, sized, spec, timed};

/// The tool.
pub fn tool(env: Arc<ToolEnvironment>) -> Arc<dyn Tool> {
    let spec = spec(
        "read_file",
        "Reads a text file of any size. Lines come as `number<TAB>text`; the end says how many \
         there are and where to go on. `output:<callId>` reads a long output that was cut.",
        SideEffect::None,
        &json!({
            "path": { "type": "string", "description": "Relative to the working directory" },
            "offset": { "type": "integer", "minimum": 1, "description": "First line, from 1" },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": LINES_MAX,
                "description": "Lines, default 2000",
            },
        }),
        &["path"],
    );
    Arc::new(ReadFile { spec, env })
}

struct ReadFile {
    spec: ToolSpec,
    env: Arc<ToolEnvironment>,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

/// A file that is open, and what is wanted of it.
struct Reading {
    file: File,
    size: u64,
    shown: String,
    slice: Slice,
}

impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let env = Arc::clone(&self.env);
        Box::pin(async move { prepare(&env, &parsed(arguments)?) })
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        Box::pin(async move {
            let reading = payload::<Reading>(call);
            let stop = StopOnDrop(Arc::default());
            let stopped = Arc::clone(&stop.0);
            sized(reading.size, move || timed(|| reading.run(&stopped))).await
        })
    }
}

impl Reading {
    fn run(self, stopped: &AtomicBool) -> ToolOutput {
        let Reading { file, size, shown, slice } = self;
        match page::read(file, size, slice, &|| stopped.load(Ordering::Relaxed)) {
            Ok(page) => page.into_output(&shown),
            Err(error) => ToolOutput::error(failed(&shown, &error).to_string()),
        }
    }
}

/// Ends the reading of a large file when nobody waits for it any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn prepare(env: &ToolEnvironment, arguments: &Arguments) -> Result<Prepared, ToolError> {
    let Arguments { path, offset, limit } = arguments;
    let slice = Slice {
        offset: offset.unwrap_or(1).max(1),
        limit: limit.unwrap_or(LINES_DEFAULT).clamp(1, LINES_MAX),
    };
    let (file, operation, shown) = if let Some(call) = path.strip_prefix("output:") {
        open_output(env, call)?
    } else {
        let place = env.workspace.locate(path)?;
        let file = File::from(place.open_file(OFlag::O_RDONLY)?);
        (file, place.read(), place.shown())
    };
    let entry = Entry::of(&file).map_err(|errno| refused(&shown, errno))?;
    let action = Action {
        tool: "read_file".to_owned(),
        digest: digest(&operation, &entry, &slice),
        operations: vec![operation],
        summary: format!("read {shown}"),
        detail: String::new(),
    };
    let size = entry.size;
    Ok(Prepared { action, payload: Box::new(Reading { file, size, shown, slice }) })
}

/// Opens the output that the call `call` of this session left behind.
fn open_output(env: &ToolEnvironment, call: &str) -> Result<(File, Operation, String), ToolError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if call.is_empty() || call.len() > 200 || !call.bytes().all(plain) {
        let why = "an output is named by `output:` and the id of its call";
        return Err(ToolError::new("ARG002", why));
    }
    let shown = format!("output:{call}");
    let root = env.session_dir.join("outputs");
    let relative = format!("{call}.txt");
    let path = root.join(&relative);
    let file = File::options()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(&path)
        .map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => {
                ToolError::new("FIL001", format!("there is no {}", printable(&shown)))
            }
            _ => failed(&shown, &error),
        })?;
    let entry = Entry::of(&file).map_err(|errno| refused(&shown, errno))?;
    entry.require(Kind::File, &shown)?;
    let operation = Operation::Read {
        path: path.display().to_string(),
        relative,
        root: root.display().to_string(),
    };
    Ok((file, operation, shown))
}

fn digest(operation: &Operation, entry: &Entry, slice: &Slice) -> String {
    let Operation::Read { path, .. } = operation else { return String::new() };
    let (dev, ino) = (entry.dev, entry.ino);
    let Slice { offset, limit } = slice;
    sha256(format!("read_file\0{path}\0{dev}\0{ino}\0{offset}\0{limit}").as_bytes())
}

#[cfg(test)]
mod tests;
