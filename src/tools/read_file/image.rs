//! Reads an image file.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use posse_actors::conversation::ContentPart;
use posse_actors::ports::{CallContext, ToolError, ToolOutput};
use posse_base::failure::Failure;
use posse_images::{self as images, ImageFormat};
use serde_json::json;

use super::{OpenFile, unchanged};
use crate::ToolEnvironment;
use crate::builtin_tool::RunResult;
use crate::change::failed;
use crate::reads::FilePart;

/// Returns true if the file begins like an image of a supported format. False if it cannot be read.
pub(super) fn is_image(file: &File) -> bool {
    let mut start = [0; 16];
    let length = file.read_at(&mut start, 0).unwrap_or(0);
    ImageFormat::of(&start[..length]).is_some()
}

/// Creates the error for a file of a format that is recognised but not supported, such as SVG or
/// PDF; `None` for any other file.
pub(super) fn other(file: &File, shown: &str) -> Option<ToolError> {
    let mut start = [0; 512];
    let length = file.read_at(&mut start, 0).unwrap_or(0);
    let other = images::other(&start[..length])?;
    let what = "cannot be shown; convert it with bash, if there is a program for it";
    Some(ToolError::new("IMG003", format!("{shown}: {other} {what}")))
}

/// Reads the image and returns it as the result of the call, or a reference to the earlier call
/// that has shown it. Fails if the file is larger than the limit or cannot be converted.
pub(super) fn read(reading: OpenFile, env: &ToolEnvironment, call: &CallContext) -> RunResult {
    let OpenFile { file, shown, path, .. } = reading;
    let mut bytes = Vec::new();
    let read = file.take(env.images.file_bytes_max + 1).read_to_end(&mut bytes);
    read.map_err(|error| failed(&shown, &error))?;
    let content = posse_base::hex::sha256(&bytes);
    let image = images::from_bytes(bytes, &env.images);
    let image = image.map_err(|failure| placeholder(&shown, &failure))?;
    let url = image.data_url();
    let ((width, height), (sent_width, sent_height)) = (image.original, image.size);
    let metadata = json!({
        "format": image.format.name(),
        "width": width,
        "height": height,
        "sentWidth": sent_width,
        "sentHeight": sent_height,
        "sentBytes": url.len(),
        "animated": image.animated,
    });
    if let Some(path) = path {
        let earlier = env.reads.read(call, &path, Some(content), FilePart::Image, &url);
        if let Some(earlier) = earlier.filter(|_| env.dedup_reads) {
            return Ok(unchanged(&shown, &earlier, metadata));
        }
    }
    let text = format!("{shown}: {}", image.describe());
    let mut output = ToolOutput::text(text).with_metadata(metadata);
    output.content.push(ContentPart::ImageUrl { url, detail: None });
    Ok(output)
}

/// Creates the error for the model if an image cannot be shown.
fn placeholder(shown: &str, failure: &Failure) -> ToolError {
    let Failure { code, what, fix, .. } = failure;
    let fix = fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
    ToolError::new(code.as_str(), format!("{shown}: {what}{fix}"))
}
