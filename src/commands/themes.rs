//! Colour themes of the terminal UI: the configured one, and the files of the user.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Environment;
use crate::failure::printable;
use crate::tui::{ColorDepth, OwnTheme, Theme};

/// Folder of the user's themes in the configuration folder.
const THEMES: &str = "themes";

/// Maximum number of the user's themes.
const THEMES_MAX: usize = 64;

/// Maximum size of a theme file in bytes.
const THEME_BYTES_MAX: u64 = 64 << 10;

/// The theme at the start, the themes of the user, and warnings about those that cannot be used.
/// `name`: the setting `ui.theme`; `config`: the folder of the configuration.
pub(super) fn load(
    name: Option<&str>,
    config: &Path,
    environment: &Environment,
) -> (Theme, Vec<&'static OwnTheme>, Vec<String>) {
    let (own, mut warnings) = own_themes(config);
    let depth = ColorDepth::of(|name| environment.get(name).map(str::to_owned));
    if environment.get("NO_COLOR").is_some() {
        return (Theme::PLAIN, own, warnings);
    }
    let theme = Theme::of_terminal(depth);
    let name = name.unwrap_or("auto");
    let found = theme.switched(name, &own);
    if found.is_none() {
        warnings.push(format!(
            "`ui.theme`: there is no theme \"{}\"; themes: {}",
            printable(name),
            Theme::names(&own).join(", ")
        ));
    }
    (found.unwrap_or(theme), own, warnings)
}

/// Reads the themes in the folder `themes` of the configuration, at most [`THEMES_MAX`] files of at
/// most [`THEME_BYTES_MAX`] bytes each. They live as long as the process.
fn own_themes(config: &Path) -> (Vec<&'static OwnTheme>, Vec<String>) {
    let mut warnings = Vec::new();
    let Ok(files) = fs::read_dir(config.join(THEMES)) else { return (Vec::new(), warnings) };
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    paths.sort();
    let mut own: Vec<&'static OwnTheme> = Vec::new();
    for path in paths.into_iter().take(THEMES_MAX) {
        match read_theme(&path) {
            Ok(theme) => own.push(Box::leak(Box::new(theme))),
            Err(why) => {
                let path = printable(&path.display().to_string());
                warnings.push(format!("theme {path}: {}", printable(&why)));
            }
        }
    }
    (own, warnings)
}

fn read_theme(path: &Path) -> Result<OwnTheme, String> {
    let name = path.file_stem().and_then(OsStr::to_str).ok_or("the name is not valid UTF-8")?;
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > THEME_BYTES_MAX {
        return Err(format!("{size} bytes; a theme has at most {THEME_BYTES_MAX}"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    OwnTheme::parse(name, &text)
}
