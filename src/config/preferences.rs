//! Saved preferences: the provider and the model that the user chose last.
//!
//! Stored in the state directory, which no tool may write, because a provider determines where a
//! conversation is sent.

use std::path::PathBuf;

use posse_base::failure::{ErrorCode, Failure, printable};
use serde_json::{Value, json};

use crate::file::{ConfigFile, ReadPolicy};
use crate::layers::{is_model, is_name};
use crate::{Dirs, Notice, invalid, write};

const VERSION: u64 = 1;

/// The saved choice of provider and model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preferences {
    /// Name of a configured or built-in provider. `None`: nothing is saved, and `model` is ignored.
    pub provider: Option<String>,
    /// The model. `None`: no model was chosen for this provider.
    pub model: Option<String>,
}

/// Path of the preferences file. The file may not exist.
pub fn path(dirs: &Dirs) -> PathBuf {
    dirs.state.join("preferences.json")
}

/// Reads the saved preferences. A missing file gives empty preferences. So does, with a notice, a
/// file that is invalid, unreadable, a symbolic link, of a later version, or owned or writable by
/// other users.
pub fn load(dirs: &Dirs) -> (Preferences, Option<Notice>) {
    match read(dirs) {
        Ok(preferences) => (preferences, None),
        Err((code, what)) => {
            let text = format!("the saved preferences were ignored: {what}");
            (Preferences::default(), Some(Notice { code, text }))
        }
    }
}

/// Replaces the preferences file. Fails if a name is invalid, if a later version of posse wrote the
/// existing file, or if the file cannot be written.
pub fn save(dirs: &Dirs, preferences: &Preferences) -> Result<(), Failure> {
    let path = path(dirs);
    if let Err((code @ ErrorCode::ConfigLaterVersion, why)) = read(dirs) {
        let failure = invalid(code, "the saved preferences were not changed");
        return Err(failure.at(path.display().to_string()).because(why));
    }
    let Preferences { provider, model } = preferences;
    if !provider.as_deref().is_none_or(is_name) || !model.as_deref().is_none_or(is_model) {
        let what = "the provider or model has an invalid name and cannot be saved";
        return Err(invalid(ErrorCode::ConfigInvalidValue, what));
    }
    let mut object = json!({ "version": VERSION });
    for (key, value) in [("provider", provider), ("model", model)] {
        if let Some(value) = value {
            object[key] = json!(value);
        }
    }
    write::replace(&path, &format!("{object:#}\n")).map_err(|error| {
        invalid(ErrorCode::ConfigUnwritable, "the choice cannot be saved")
            .at(path.display().to_string())
            .because(error.to_string())
    })
}

/// Deletes the preferences file, even if its content is invalid. Returns a message for the user,
/// also if there is no file. Fails if the file cannot be deleted.
pub fn forget(dirs: &Dirs) -> Result<String, Failure> {
    let path = path(dirs);
    let shown = printable(&path.display().to_string());
    let (before, _) = load(dirs);
    match std::fs::remove_file(&path) {
        Ok(()) => {
            let named = [("provider", before.provider), ("model", before.model)];
            let named =
                named.into_iter().filter_map(|(key, name)| Some(format!("{key} {}", name?)));
            let named: Vec<String> = named.collect();
            let colon = if named.is_empty() { "" } else { ": " };
            Ok(format!("removed the saved choice{colon}{}  ({shown})\n", named.join(", ")))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("no choice is saved  ({shown})\n"))
        }
        Err(error) => {
            let failure = invalid(ErrorCode::ConfigUnwritable, "the choice cannot be removed");
            Err(failure.at(shown).because(error.to_string()))
        }
    }
}

fn read(dirs: &Dirs) -> Result<Preferences, (ErrorCode, String)> {
    let path = path(dirs);
    let source = match ConfigFile::read(&path, ReadPolicy::Foreign) {
        Ok(None) => return Ok(Preferences::default()),
        Ok(Some(source)) => source,
        Err(failure) => {
            return Err((failure.code, format!("{} ({})", failure.what, path.display())));
        }
    };
    if source.is_foreign || source.mode & 0o022 != 0 {
        let why = format!("others can change {}; run chmod 600 on it", path.display());
        return Err((ErrorCode::FileNotTrusted, why));
    }
    let value: Value = serde_json::from_str(&source.text).map_err(|error| {
        (ErrorCode::ConfigInvalidJson, format!("{} is not valid JSON: {error}", path.display()))
    })?;
    let version = value.get("version").and_then(Value::as_u64).unwrap_or(VERSION);
    if version > VERSION {
        let why = format!("{} was written by a later version of posse", path.display());
        return Err((ErrorCode::ConfigLaterVersion, why));
    }
    let text = |key: &str, fits: fn(&str) -> bool| match value.get(key) {
        None => Ok(None),
        Some(Value::String(text)) if fits(text) => Ok(Some(text.clone())),
        Some(_) => Err((
            ErrorCode::ConfigInvalidValue,
            format!("\"{key}\" in {} is not valid", path.display()),
        )),
    };
    Ok(Preferences { provider: text("provider", is_name)?, model: text("model", is_model)? })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;
    use crate::Environment;

    fn dirs() -> (TempDir, Dirs) {
        let dir = tempfile::tempdir().unwrap();
        let home = [("POSSE_HOME", dir.path())].into_iter().collect::<Environment>();
        let dirs = Dirs::from_environment(&home).unwrap();
        (dir, dirs)
    }

    fn chosen(provider: &str, model: Option<&str>) -> Preferences {
        Preferences { provider: Some(provider.into()), model: model.map(str::to_owned) }
    }

    #[test]
    fn saved_choice_is_private() {
        let (_dir, dirs) = dirs();
        assert_eq!(load(&dirs), (Preferences::default(), None));
        save(&dirs, &chosen("openai", Some("gpt-5.1"))).unwrap();
        assert_eq!(load(&dirs), (chosen("openai", Some("gpt-5.1")), None));
        save(&dirs, &chosen("ollama", None)).unwrap();
        assert_eq!(load(&dirs), (chosen("ollama", None), None));
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(path(&dirs)), mode(dirs.state.clone())), (0o600, 0o700));
        assert_eq!(fs::read_dir(&dirs.state).unwrap().count(), 1);
    }

    #[test]
    fn unreadable_choice_can_be_reset() {
        let (_dir, dirs) = dirs();
        assert!(forget(&dirs).unwrap().starts_with("no choice is saved"));
        save(&dirs, &chosen("openai", Some("gpt-5.1"))).unwrap();
        let said = forget(&dirs).unwrap();
        assert!(said.starts_with("removed the saved choice: provider openai, model gpt-5.1"));
        assert!(!path(&dirs).exists());
        fs::write(path(&dirs), "{").unwrap();
        assert!(forget(&dirs).unwrap().starts_with("removed the saved choice  ("));
        assert!(!path(&dirs).exists());
    }

    #[test]
    fn unreadable_value_is_not_saved() {
        let (_dir, dirs) = dirs();
        for wrong in [chosen("a b", None), chosen("a", Some("b\nc")), chosen("", None)] {
            assert_eq!(save(&dirs, &wrong).unwrap_err().code, ErrorCode::ConfigInvalidValue);
        }
        assert!(!path(&dirs).exists());
    }

    #[test]
    fn damaged_or_foreign_preferences_are_ignored() {
        let (_dir, dirs) = dirs();
        let good = r#"{ "provider": "evil" }"#;
        let table = [
            ("", 0o600, "CFG001"),
            ("{", 0o600, "CFG001"),
            (r#"{ "provider": 3 }"#, 0o600, "CFG003"),
            (r#"{ "provider": "a\u001b[2J" }"#, 0o600, "CFG003"),
            (r#"{ "version": 2, "provider": "a" }"#, 0o600, "CFG012"),
            (good, 0o666, "CFG010"),
        ];
        fs::create_dir_all(&dirs.state).unwrap();
        for (text, mode, code) in table {
            fs::write(path(&dirs), text).unwrap();
            fs::set_permissions(path(&dirs), Permissions::from_mode(mode)).unwrap();
            let (preferences, notice) = load(&dirs);
            assert_eq!(
                (preferences, notice.unwrap().code.as_str()),
                (Preferences::default(), code)
            );
        }
        fs::remove_file(path(&dirs)).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", path(&dirs)).unwrap();
        assert_eq!(load(&dirs).1.unwrap().code, ErrorCode::ConfigUnreadable);
    }

    #[test]
    fn newer_file_version_is_not_overwritten() {
        let (_dir, dirs) = dirs();
        fs::create_dir_all(&dirs.state).unwrap();
        let text = r#"{ "version": 2, "provider": "a" }"#;
        fs::write(path(&dirs), text).unwrap();
        assert_eq!(
            save(&dirs, &chosen("b", None)).unwrap_err().code,
            ErrorCode::ConfigLaterVersion
        );
        assert_eq!(fs::read_to_string(path(&dirs)).unwrap(), text);
    }
}
