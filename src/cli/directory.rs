//! Working directory of a command, checked before it is used.

use std::path::{Path, PathBuf};

use posse_base::failure::{ErrorCode, Exit, Failure};

/// The folder of `--cwd`, or the current directory without the flag: absolute and without symbolic
/// links. Fails if it does not exist; the folder of the flag must also be readable.
pub fn working_directory(flag: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(given) = flag else {
        return std::env::current_dir().and_then(|cwd| cwd.canonicalize()).map_err(|error| {
            Failure::new(
                ErrorCode::DirectoryUnusable,
                Exit::Usage,
                "the working directory cannot be used",
            )
            .because(error.to_string())
            .fix("change to a folder that exists, or name one with --cwd DIR")
        });
    };
    readable_folder(given, "--cwd", given)
}

/// Checks the folders of `--add-dir`, which are relative to `cwd` or absolute. Fails with the first
/// one that does not exist or cannot be read.
pub fn check_added(cwd: &Path, folders: &[PathBuf]) -> Result<(), Failure> {
    folders
        .iter()
        .try_for_each(|given| readable_folder(&cwd.join(given), "--add-dir", given).map(drop))
}

/// Returns `path` without symbolic links. Fails if it is no folder or cannot be read; the error
/// names the flag with its value `given`.
fn readable_folder(path: &Path, flag: &str, given: &Path) -> Result<PathBuf, Failure> {
    let refused = |why: String| {
        let what = format!("{flag} {} cannot be used", given.display());
        Failure::new(ErrorCode::DirectoryUnusable, Exit::Usage, what)
            .at(flag)
            .because(why)
            .fix("name a folder that exists and that you may read")
    };
    let resolved = path.canonicalize().map_err(|error| refused(error.to_string()))?;
    if !resolved.is_dir() {
        return Err(refused("it is not a folder".into()));
    }
    // Opening it is the only honest test of whether it can be read.
    std::fs::read_dir(&resolved).map_err(|error| refused(error.to_string()))?;
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_folder_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();

        let failure = working_directory(Some(&file)).unwrap_err();
        assert_eq!(
            (failure.exit, failure.why.as_deref()),
            (Exit::Usage, Some("it is not a folder"))
        );
        let failure = working_directory(Some(&dir.path().join("none"))).unwrap_err();
        assert_eq!((failure.code.as_str(), failure.exit), ("CLI001", Exit::Usage));
        std::fs::create_dir(dir.path().join("there")).unwrap();
        check_added(dir.path(), &["there".into(), dir.path().to_owned()]).unwrap();
        for name in ["file", "none"] {
            let failure = check_added(dir.path(), &["there".into(), name.into()]).unwrap_err();
            assert_eq!((failure.code.as_str(), failure.exit), ("CLI001", Exit::Usage));
            assert_eq!(failure.what, format!("--add-dir {name} cannot be used"));
        }
        let found = working_directory(Some(dir.path())).unwrap();
        assert_eq!(found, dir.path().canonicalize().unwrap());
    }
}
