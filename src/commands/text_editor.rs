//! Editing a text in the user's editor, through a private file.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::sandbox;
use crate::tui::EditorDraft;

/// Maximum bytes accepted from the editor.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Lets the user edit `draft` in the program `editor`, and returns the edited text. Uses a temporary
/// file in the folder `dir`, and blocks until the editor has exited.
///
/// Errors: `EDR001` if the editor or its file failed, `EDR002` if the text is not UTF-8 or larger
/// than 4 MiB.
pub(crate) fn edited(editor: &str, dir: &Path, draft: &EditorDraft) -> Result<String, Failure> {
    let failed = |why: String| {
        let what = format!("cannot use the editor `{}`", printable(editor));
        Failure::new(ErrorCode::EditorFailed, Exit::Failed, what)
            .because(why)
            .fix("set VISUAL or EDITOR to another one; the text is unchanged")
    };
    let file = create(dir, draft).map_err(|error| failed(error.to_string()))?;
    match sandbox::edit(editor, file.path()) {
        Ok(true) => (),
        Ok(false) => return Err(failed("it ended with an error".to_owned())),
        Err(error) => return Err(failed(error.to_string())),
    }
    let bytes = read(file.path()).map_err(|error| failed(error.to_string()))?;
    let unusable = |why: &str| {
        Failure::new(ErrorCode::EditedTextUnusable, Exit::Failed, "cannot use the edited text")
            .because(why.to_owned())
    };
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(unusable("it is longer than 4 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| unusable("it is not valid UTF-8"))
}

fn create(dir: &Path, draft: &EditorDraft) -> io::Result<NamedTempFile> {
    fs::create_dir_all(dir)?;
    // The suffix tells the editor the file type.
    let suffix = format!(".{}", draft.extension);
    let mut file = tempfile::Builder::new().prefix("posse-").suffix(&suffix).tempfile_in(dir)?;
    file.write_all(draft.text.as_bytes())?;
    Ok(file)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edited_text_returns_and_the_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let draft = EditorDraft { text: "one\ntwo".to_owned(), extension: "rs".to_owned() };
        let code = |editor: &str| edited(editor, dir.path(), &draft).map_err(|f| f.code.as_str());
        assert_eq!(code("true"), Ok("one\ntwo".to_owned()));
        assert_eq!(code("sed -i '$a three'"), Ok("one\ntwo\nthree\n".to_owned()));
        assert_eq!(code("f() { case $1 in *.rs) echo > \"$1\";; esac; }; f"), Ok("\n".to_owned()));
        assert_eq!(code("false"), Err("EDR001"));
        assert_eq!(code("rm"), Err("EDR001"));
        assert_eq!(code("printf '\\377' >"), Err("EDR002"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
