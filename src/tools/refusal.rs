//! Prepared calls that can only fail. Their error reveals content of the workspace, so the policy
//! judges them as reads before the model gets the error.

use std::fmt::Write;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use posse_actors::ports::{Operation, PermittedCall, Prepared, ToolError};
use posse_base::failure::{nearest, printable};
use posse_base::secrets::is_secret;

use crate::digest;
use crate::workspace::{Located, refused};

/// Maximum number of folder entries that are compared with a missing name.
const NAMES_MAX: usize = 5000;

/// Payload of a call that can only fail: its error.
struct Refusal(ToolError);

/// Prepares a call of `tool` that is judged by `operations`, the reads that `error` reveals, and
/// then fails with `error`.
pub(crate) fn prepared(
    tool: &str,
    operations: Vec<Operation>,
    summary: String,
    error: ToolError,
) -> Prepared {
    let text = error.to_string();
    let digest = digest::of(&[tool.as_bytes(), b"refused", summary.as_bytes(), text.as_bytes()]);
    crate::prepared(tool, operations, (summary, String::new()), digest, Refusal(error))
}

/// Prepares a call of `tool` that fails because the file at `place` does not exist. If its folder
/// contains a similar name, the error suggests that name, and the call is also judged as a listing
/// of the folder.
pub(crate) fn missing(tool: &str, place: &Located) -> Prepared {
    let shown = place.shown();
    let mut operations = vec![place.read()];
    let mut error = refused(&shown, Errno::ENOENT);
    if let Some((folder, name)) = similar(place) {
        operations.push(folder);
        // Writing to a string cannot fail.
        let _ = write!(error.message, "; did you mean {}?", printable(&name));
    }
    prepared(tool, operations, format!("read {shown}, which does not exist"), error)
}

/// Returns the payload that the tool attached to a call, or the error of a call that can only fail.
#[expect(clippy::expect_used, reason = "a permitted call carries what its own tool prepared")]
pub(crate) fn payload<T: 'static>(call: PermittedCall) -> Result<T, ToolError> {
    match call.into_payload().downcast::<Refusal>() {
        Ok(refusal) => Err(refusal.0),
        Err(own) => Ok(*own.downcast().expect("the payload is of the tool that prepared it")),
    }
}

/// Finds the most similar name in the folder of a missing file. Returns the operation of listing
/// the folder, and the path with that name. `None` if no name is similar; names of secrets are not
/// suggested.
fn similar(place: &Located) -> Option<(Operation, String)> {
    let (folder, name) = place.open_parent(false).ok()?;
    let operation = place.read_parent()?;
    let above = Path::new(place.relative()).parent()?;
    let path_of = |name: &str| above.join(name).to_string_lossy().into_owned();
    let mut entries = Dir::from_fd(folder).ok()?;
    let names: Vec<String> = entries
        .iter()
        .take(NAMES_MAX)
        .filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned))
        .filter(|name| !matches!(name.as_str(), "." | "..") && !is_secret(&path_of(name)))
        .collect();
    let near = most_similar(name.to_str()?, &names)?;
    Some((operation, path_of(&near)))
}

/// Finds the name in `names` that is most similar to `wanted`; `None` if none is similar enough. An
/// equal extension does not count as similarity.
fn most_similar(wanted: &str, names: &[String]) -> Option<String> {
    let (stem, ending) = match wanted.rfind('.') {
        Some(dot) if dot > 0 => wanted.split_at(dot),
        _ => return nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned),
    };
    let stems = names.iter().filter_map(|name| name.strip_suffix(ending));
    if let Some(near) = nearest(stem, stems) {
        return Some(format!("{near}{ending}"));
    }
    let others = names.iter().map(String::as_str).filter(|name| !name.ends_with(ending));
    nearest(wanted, others).map(str::to_owned)
}
