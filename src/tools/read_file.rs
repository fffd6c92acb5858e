//! `read_file`: shows a slice of a text file of any size with line numbers, an image, or a slice of
//! an earlier output of the session.

mod image;
mod page;
mod temporary;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use posse_actors::conversation::{CallId, text_of};
use posse_actors::ports::{
    Access, CallContext, Operation, Prepared, RunContext, Tool, ToolAnnotations, ToolError,
    ToolOutput,
};
use posse_base::failure::printable;
use posse_base::hex::hex;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::change::failed;
use crate::committed_secrets::{self, ReadingTool};
use crate::listing::Stop;
use crate::read_file::page::{LINES_DEFAULT, LINES_MAX, Slice};
use crate::reads::FilePart;
use crate::workspace::{FileKind, FileStatus, refused};
use crate::{ToolEnvironment, blocking, prepared, refusal, sized, spec};
use posse_base::hex::sha256;

pub(crate) const NAME: &str = "read_file";

/// Group of the tool in rules.
pub(crate) const GROUP: &str = "Read";

/// Creates the tool `read_file`.
pub fn tool(reading: Arc<ReadingTool>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Reads a text file of any size, or shows a PNG, JPEG, GIF or WebP image. Lines come as \
         `number<TAB>text`; the end says where to go on. \
         `output:<callId>` reads a long output that was cut or is not shown any more.",
        ToolAnnotations::new(Access::Read).in_rules(GROUP).opening_file(),
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
    let mut tool = BuiltinTool::new(spec, reading, prepare, run);
    tool.history_shortened = |tool| tool.env.reads.forget_shown();
    Arc::new(tool)
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

/// Prepared call: an open file and the requested lines.
struct OpenFile {
    file: File,
    size: u64,
    shown: String,
    slice: Slice,
    /// Absolute path of the file; `None` for an output of the session.
    path: Option<PathBuf>,
    /// True if the file has the name of a secret, and was as in the commit when it was opened.
    is_committed: bool,
}

async fn prepare(
    tool: Arc<ReadingTool>,
    Arguments { path, offset, limit }: Arguments,
    call: CallContext,
) -> Result<Prepared, ToolError> {
    let ReadingTool { env, committed } = &*tool;
    let name = path.strip_prefix("output:");
    let slice = Slice {
        offset: offset.unwrap_or(1).max(1),
        limit: limit.unwrap_or(LINES_DEFAULT).clamp(1, LINES_MAX),
        // An output may have the line numbers of a file. Numbers of the output before them would
        // be taken for those of the file, and edit_file could not remove both.
        bare: name.is_some(),
    };
    let Some(name) = name else {
        let place = match env.workspace.locate(&path) {
            Ok(place) => place,
            // Files of commands there are output of this session: there is no operation to judge.
            Err(outside) => {
                let (file, shown) = temporary::open(env, &path).ok_or(outside)??;
                return opened(file, shown, slice, None);
            }
        };
        if place.entry().is_none() {
            return Ok(refusal::missing(NAME, &place));
        }
        committed.search_once().await;
        if place.has_secret_name() {
            committed.decide().await;
        }
        let file = File::from(place.open_file(OFlag::O_RDONLY)?);
        let path = place.absolute().to_owned();
        let operation = place.read_open(&file, committed);
        return opened(file, place.shown(), slice, Some((path, operation)));
    };
    // Outputs of the session are not part of the workspace: there is no operation to judge.
    match open_output(env, name) {
        Ok((file, shown)) => opened(file, shown, slice, None),
        Err(missing) if missing.code == "FIL001" => {
            remembered(env, name, slice, call).await?.ok_or(missing)
        }
        Err(error) => Err(error),
    }
}

async fn run(tool: Arc<ReadingTool>, reading: OpenFile, context: RunContext) -> RunResult {
    let committed = reading.committed()?;
    let shown = reading.shown.clone();
    let output = read(Arc::clone(&tool.env), reading, context).await?;
    // The user may have written a secret into it since the call was judged.
    if committed.is_some_and(|(path, file)| !tool.committed.contain(&path, file.as_fd())) {
        return Err(committed_secrets::changed(&shown));
    }
    Ok(output)
}

async fn read(env: Arc<ToolEnvironment>, reading: OpenFile, context: RunContext) -> RunResult {
    // Stops reading a large file when the caller is gone.
    let (stop, _guard) = Stop::after(Duration::MAX);
    if image::is_image(&reading.file) {
        return blocking(move || image::read(reading, &env, &context.call)).await;
    }
    sized(reading.size, move || reading.run(&env, &context, &stop)).await
}

impl OpenFile {
    /// Path and descriptor of the file if it has the name of a secret, and was as in the commit
    /// when it was opened.
    fn committed(&self) -> Result<Option<(PathBuf, File)>, ToolError> {
        let Some(path) = self.path.as_ref().filter(|_| self.is_committed) else { return Ok(None) };
        let file = self.file.try_clone().map_err(|error| failed(&self.shown, &error))?;
        Ok(Some((path.clone(), file)))
    }

    fn run(self, env: &ToolEnvironment, context: &RunContext, stop: &Stop) -> RunResult {
        let OpenFile { file, size, shown, slice, path, .. } = self;
        let mut file = Hashing { file, hash: Sha256::new() };
        let bytes_max = context.room_bytes.min(page::PAGE_BYTES_MAX);
        let lines = page::read(&mut file, size, slice, bytes_max, stop);
        let Some(lines) = lines.map_err(|error| failed(&shown, &error))? else {
            let what = || {
                format!("{shown} is binary ({size} bytes); look at it with bash: `file` or `xxd`")
            };
            let image = image::other(&file.file, &shown);
            return Err(image.unwrap_or_else(|| ToolError::new("ARG003", what())));
        };
        let digest = lines.complete.then(|| hex(&file.hash.finalize()));
        let output = lines.into_output(&shown)?;
        let Some(path) = path else { return Ok(output) };
        let part = FilePart::Lines(slice.offset, slice.limit);
        let text = text_of(&output.content);
        Ok(match env.reads.read(&context.call, &path, digest, part, &text) {
            Some(earlier) if env.dedup_reads => unchanged(&shown, &earlier, output.metadata),
            _ => output,
        })
    }
}

/// Creates the result for content that the call `earlier` has shown already: a reference to that
/// call, which takes the place of the content.
fn unchanged(shown: &str, earlier: &CallId, mut metadata: Value) -> ToolOutput {
    let text = format!(
        "{shown} has not changed: {earlier} has shown exactly this. (Asked once more, it is shown \
         again.)"
    );
    metadata["unchangedSince"] = json!(earlier);
    ToolOutput::text(text).with_metadata(metadata)
}

/// Reader that computes the hash of a file while it is read.
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

/// Prepares a call that reads `slice` of an open file. `place` is the path of a file in the
/// workspace, with the operation to judge; `None` for an output of the session, which needs no
/// permission.
fn opened(
    file: File,
    shown: String,
    slice: Slice,
    place: Option<(PathBuf, Operation)>,
) -> Result<Prepared, ToolError> {
    let FileStatus { dev, ino, size, .. } =
        FileStatus::of(&file).map_err(|errno| refused(&shown, errno))?;
    let Slice { offset, limit, .. } = slice;
    let digest = format!("read_file\0{shown}\0{dev}\0{ino}\0{offset}\0{limit}");
    let digest = sha256(digest.as_bytes());
    let words = (format!("read {shown}"), String::new());
    let (path, operation) = place.unzip();
    let is_committed = matches!(operation, Some(Operation::Read { is_committed: true, .. }));
    let reading = OpenFile { file, size, shown, slice, path, is_committed };
    Ok(prepared(NAME, operation.into_iter().collect(), words, digest, reading))
}

/// Prepares a call that reads `name`, an earlier output or a page of the conversation, through
/// [`ToolEnvironment::recall`]. `None` if the name is unknown; `FIL001` if the lookup fails.
async fn remembered(
    env: &ToolEnvironment,
    name: &str,
    slice: Slice,
    call: CallContext,
) -> Result<Option<Prepared>, ToolError> {
    let shown = format!("output:{name}");
    let unread = |why: String| ToolError::new("FIL001", format!("{shown} cannot be read: {why}"));
    let Some(text) = env.recall.find(call, name).await.map_err(unread)? else {
        return Ok(None);
    };
    let Slice { offset, limit, .. } = slice;
    let said = sha256(text.as_bytes());
    let digest = sha256(format!("read_file\0{shown}\0{said}\0{offset}\0{limit}").as_bytes());
    let file = in_memory(text.as_bytes()).map_err(|error| failed(&shown, &error))?;
    let words = (format!("read {shown}"), String::new());
    let size = text.len() as u64;
    let reading = OpenFile { file, size, shown, slice, path: None, is_committed: false };
    Ok(Some(prepared(NAME, Vec::new(), words, digest, reading)))
}

/// Creates an anonymous in-memory file with the content `bytes`.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"output", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Opens the spilled output of the call `call` of this session. Returns it with its name for the
/// model. Fails with `FIL001` if there is none, and with `ARG002` if `call` cannot be an id.
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
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                ToolError::new("FIL001", format!("there is no {}", printable(&shown)))
            }
            _ => failed(&shown, &error),
        })?;
    let entry = FileStatus::of(&file).map_err(|errno| refused(&shown, errno))?;
    entry.require(FileKind::File, &shown)?;
    Ok((file, shown))
}

#[cfg(test)]
mod tests;
