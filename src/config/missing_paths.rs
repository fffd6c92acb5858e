//! Warnings about configured files and folders that do not exist.

use std::path::{Path, PathBuf};

use posse_base::failure::{ErrorCode, nearest};
use posse_base::secrets::readable::is_pattern;

use crate::layers::Layers;
use crate::{Notice, Settings};

/// Warnings about paths in lists of folders and secret files that do not exist, or are not folders.
/// They are no errors: a folder can be on a disk that is not mounted. The roots of the workspace are
/// checked when a session opens them.
pub(crate) fn missing_paths(settings: &Settings, layers: &Layers) -> Vec<Notice> {
    let lists = [
        ("sandbox.readSecrets", &settings.sandbox.readable_secrets, false),
        ("sandbox.writableRoots", &settings.sandbox.writable_roots, true),
        ("skills.folders", &settings.skills.folders, true),
    ];
    let mut notices = Vec::new();
    for (key, paths, are_folders) in lists {
        let from = layers.get(key).map(|leaf| leaf.origin.to_string()).unwrap_or_default();
        for path in paths {
            // A pattern also stands for files that appear later.
            if !are_folders && is_pattern(path) {
                continue;
            }
            let Some(problem) = problem(path, are_folders) else { continue };
            let fix = match similar(path) {
                Some(meant) => format!("did you mean \"{}\"?", meant.display()),
                None => "create it, or remove it from the list".to_owned(),
            };
            let text = format!("{key}: {} {problem}; {fix} ({from})", path.display());
            notices.push(Notice { code: ErrorCode::ConfigPathMissing, text });
        }
    }
    notices
}

/// Reason why `path` has no effect. `None`: it exists.
fn problem(path: &Path, is_folder: bool) -> Option<&'static str> {
    if !path.exists() {
        Some("does not exist")
    } else if is_folder && !path.is_dir() {
        Some("is not a folder")
    } else {
        None
    }
}

/// An existing path beside `path` with a similar name.
fn similar(path: &Path) -> Option<PathBuf> {
    const ENTRIES_MAX: usize = 1000;
    let (folder, name) = (path.parent()?, path.file_name()?.to_str()?);
    let entries = std::fs::read_dir(folder).ok()?.take(ENTRIES_MAX).flatten();
    let names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let meant = nearest(name, names.iter().map(String::as_str).filter(|known| *known != name))?;
    Some(folder.join(meant))
}
