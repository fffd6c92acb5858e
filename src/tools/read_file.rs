//! `read_file`: shows a slice of a text file of any size, with line numbers.

mod image;
mod page;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use posse_actors::conversation::{CallId, text_of};
use posse_actors::ports::{
    Access, Action, CallContext, PermittedCall, PortFuture, Prepared, RunContext, Tool,
    ToolAnnotations, ToolError, ToolOutput, ToolSpec,
};
use posse_base::failure::printable;
use posse_base::hex::hex;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::change::failed;
use crate::read_file::page::{FilePage, LINES_DEFAULT, LINES_MAX, Slice};
use crate::reads::FilePart;
use crate::refusal;
use crate::text::sha256;
use crate::workspace::{FileKind, FileStatus, refused};
use crate::{ToolEnvironment, blocking, parsed, sized, spec, timed};

const NAME: &str = "read_file";

/// Creates the tool.
pub fn tool(env: Arc<ToolEnvironment>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Reads a text file of any size, or shows a PNG, JPEG, GIF or WebP image. Lines come as \
         `number<TAB>text`; the end says how many there are and where to go on. \
         `output:<callId>` reads a long output that was cut or is not shown any more.",
        ToolAnnotations { opens_file: true, ..ToolAnnotations::new(Access::Read).in_rules("Read") },
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

/// An open file and the requested part.
struct OpenFile {
    file: File,
    size: u64,
    shown: String,
    slice: Slice,
    /// Its path, if it is in the workspace.
    path: Option<PathBuf>,
}

impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn history_shortened(&self) {
        self.env.reads.forget_shown();
    }

    fn prepare(
        &self,
        arguments: Value,
        context: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>> {
        let env = Arc::clone(&self.env);
        Box::pin(async move {
            let arguments = parsed(arguments)?;
            match prepare(&env, &arguments) {
                Err(missing) if missing.code == "FIL001" => {
                    remembered(&env, &arguments, context).await?.ok_or(missing)
                }
                prepared => prepared,
            }
        })
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        let env = Arc::clone(&self.env);
        Box::pin(async move {
            let reading = match refusal::payload::<OpenFile>(call) {
                Ok(reading) => reading,
                Err(refused) => return refused,
            };
            let stop = StopOnDrop(Arc::default());
            let stopped = Arc::clone(&stop.0);
            if image::is_image(&reading.file) {
                return blocking(move || timed(|| image::read(reading, &env, &context.call))).await;
            }
            let size = reading.size;
            let read = move || timed(|| reading.run(&env, &context.call, &stopped));
            sized(size, read).await
        })
    }
}

impl OpenFile {
    fn run(self, env: &ToolEnvironment, call: &CallContext, stopped: &AtomicBool) -> ToolOutput {
        let OpenFile { file, size, shown, slice, path } = self;
        let mut file = Hashing { file, hash: Sha256::new() };
        let page = match page::read(&mut file, size, slice, &|| stopped.load(Ordering::Relaxed)) {
            Ok(page) => page,
            Err(error) => return ToolOutput::error(failed(&shown, &error).to_string()),
        };
        if let FilePage::Binary { .. } = page
            && let Some(output) = image::other(&file.file, &shown)
        {
            return output;
        }
        let content = page.is_whole().then(|| hex(&file.hash.finalize()));
        let output = page.into_output(&shown);
        let Some(path) = path.filter(|_| !output.is_error) else { return output };
        let part = FilePart::Lines(slice.offset, slice.limit);
        let text = text_of(&output.content);
        match env.reads.read(call, &path, content, part, &text) {
            Some(earlier) if env.dedup_reads => unchanged(&shown, &earlier, output.metadata),
            _ => output,
        }
    }
}

/// Result for content that was shown before.
fn unchanged(shown: &str, earlier: &CallId, metadata: Value) -> ToolOutput {
    let text = format!(
        "{shown} has not changed: {earlier} has shown exactly this. (Asked once more, it is shown \
         again.)"
    );
    let mut metadata = metadata;
    metadata["unchangedSince"] = json!(earlier);
    ToolOutput::text(text).with_metadata(metadata)
}

/// Hashes a file while it is read.
struct Hashing {
    file: File,
    hash: Sha256,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.hash.update(&buffer[..length]);
        Ok(length)
    }
}

/// Stops reading a large file when the caller is gone.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Arguments {
    fn slice(&self) -> Slice {
        Slice {
            offset: self.offset.unwrap_or(1).max(1),
            limit: self.limit.unwrap_or(LINES_DEFAULT).clamp(1, LINES_MAX),
        }
    }
}

/// Output that the session remembers without a spilled file.
async fn remembered(
    env: &ToolEnvironment,
    arguments: &Arguments,
    context: CallContext,
) -> Result<Option<Prepared>, ToolError> {
    let Some(name) = arguments.path.strip_prefix("output:") else { return Ok(None) };
    let shown = format!("output:{name}");
    let unread = |why: String| ToolError::new("FIL001", format!("{shown} cannot be read: {why}"));
    let Some(text) = env.recall.find(context, name).await.map_err(unread)? else {
        return Ok(None);
    };
    let slice = arguments.slice();
    let Slice { offset, limit } = slice;
    let said = sha256(text.as_bytes());
    let digest = sha256(format!("read_file\0{shown}\0{said}\0{offset}\0{limit}").as_bytes());
    let file = in_memory(text.as_bytes()).map_err(|error| failed(&shown, &error))?;
    let action = Action {
        tool: NAME.to_owned(),
        digest,
        operations: Vec::new(),
        summary: format!("read {shown}"),
        detail: String::new(),
    };
    let size = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let reading = OpenFile { file, size, shown, slice, path: None };
    Ok(Some(Prepared { action, payload: Box::new(reading) }))
}

/// An anonymous in-memory file.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"output", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

fn prepare(env: &ToolEnvironment, arguments: &Arguments) -> Result<Prepared, ToolError> {
    let Arguments { path, .. } = arguments;
    let slice = arguments.slice();
    // Outputs of the session are not part of the workspace: there is no operation to judge.
    let (file, operation, shown, path) = if let Some(call) = path.strip_prefix("output:") {
        let (file, shown) = open_output(env, call)?;
        (file, None, shown, None)
    } else {
        let place = env.workspace.locate(path)?;
        if place.entry().is_none() {
            return Ok(refusal::missing(NAME, &place));
        }
        let file = File::from(place.open_file(OFlag::O_RDONLY)?);
        (file, Some(place.read()), place.shown(), Some(place.absolute().to_owned()))
    };
    let entry = FileStatus::of(&file).map_err(|errno| refused(&shown, errno))?;
    let action = Action {
        tool: NAME.to_owned(),
        digest: digest(&shown, &entry, &slice),
        operations: operation.into_iter().collect(),
        summary: format!("read {shown}"),
        detail: String::new(),
    };
    let size = entry.size;
    Ok(Prepared { action, payload: Box::new(OpenFile { file, size, shown, slice, path }) })
}

/// Opens the spilled output of the call `call` of this session.
fn open_output(env: &ToolEnvironment, call: &str) -> Result<(File, String), ToolError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if call.is_empty() || call.len() > 200 || !call.bytes().all(plain) {
        let why = "an output is named by `output:` and the id of its call";
        return Err(ToolError::new("ARG002", why));
    }
    let shown = format!("output:{call}");
    let path = env.session_dir.join("outputs").join(format!("{call}.txt"));
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
    let entry = FileStatus::of(&file).map_err(|errno| refused(&shown, errno))?;
    entry.require(FileKind::File, &shown)?;
    Ok((file, shown))
}

/// Digest of the file's identity and displayed name.
fn digest(shown: &str, entry: &FileStatus, slice: &Slice) -> String {
    let (dev, ino) = (entry.dev, entry.ino);
    let Slice { offset, limit } = slice;
    sha256(format!("read_file\0{shown}\0{dev}\0{ino}\0{offset}\0{limit}").as_bytes())
}

#[cfg(test)]
mod tests;
