//! The environment variables, read once and passed on as a value; and the folders of posse, which
//! they determine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use posse_base::failure::{ErrorCode, Exit, Failure, printable};

/// A copy of the environment variables. Settings are read from this value, so that tests can pass
/// their own variables.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
}

/// Prints only the names of the variables, because values may be secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl<N: Into<String>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Environment {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Environment { variables: variables.collect() }
    }
}

impl Environment {
    /// Copies the variables of this process, except those whose name is not UTF-8.
    pub fn read() -> Environment {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect()
    }

    /// The value of a variable, without surrounding white space and without one pair of quotes
    /// around it. `None` if the variable is unset, if nothing is left of its value, or if the value
    /// is not UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        let raw = self.variables.get(name)?.to_str()?.trim();
        let unquoted = ['"', '\'']
            .iter()
            .find_map(|quote| raw.strip_prefix(*quote)?.strip_suffix(*quote))
            .unwrap_or(raw)
            .trim();
        (!unquoted.is_empty()).then_some(unquoted)
    }

    /// True unless the variable is set and its value is not UTF-8.
    pub(crate) fn is_utf8(&self, name: &str) -> bool {
        self.variables.get(name).is_none_or(|raw| raw.to_str().is_some())
    }

    /// Describes how [`get`](Environment::get) changed or ignored the value of a variable. `None`
    /// if it did neither, or if the variable is unset.
    pub fn oddity_of(&self, name: &str) -> Option<&'static str> {
        let Some(raw) = self.variables.get(name)?.to_str() else {
            return Some("is not UTF-8 and was ignored");
        };
        match self.get(name) {
            None => Some("is empty and was ignored"),
            Some(clean) if clean.len() == raw.len() => None,
            Some(_) if raw.trim().len() == raw.len() => Some("is quoted; the quotes were ignored"),
            Some(_) => Some("has white space around it, which was ignored"),
        }
    }

    /// Sorted names of the variables whose name begins with `beginning`.
    pub fn names<'a>(&'a self, beginning: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self.variables.range(beginning.to_owned()..);
        names.map(|(name, _)| name.as_str()).take_while(move |name| name.starts_with(beginning))
    }

    /// The value of a variable as a path, which may be relative. A value in UTF-8 is cleaned as by
    /// [`get`](Environment::get); any other is taken as it is. `None` if the variable is unset or
    /// empty.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let raw = self.variables.get(name)?;
        match raw.to_str() {
            Some(_) => self.get(name).map(PathBuf::from),
            // Paths need not be UTF-8.
            None => Some(PathBuf::from(raw)),
        }
    }

    /// The home folder, from `HOME`. `None` if `HOME` is unset or not an absolute path.
    pub fn home(&self) -> Option<PathBuf> {
        self.path("HOME").filter(|home| home.is_absolute())
    }

    /// The home folder with its links resolved; as in `HOME` if it cannot be resolved. `None` if `HOME` is
    /// unset.
    pub fn home_target(&self) -> Option<String> {
        let home = self.get("HOME")?;
        let target = Path::new(home).canonicalize().ok();
        let target = target.as_deref().and_then(Path::to_str).map(str::to_owned);
        Some(target.unwrap_or_else(|| home.to_owned()))
    }

    /// The folder of the user's configuration, from `XDG_CONFIG_HOME`. `None` if that is unset or
    /// not an absolute path.
    pub fn config_home(&self) -> Option<PathBuf> {
        self.path("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute())
    }
}

/// Folders of posse and its user. All paths are absolute; the folders need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirs {
    /// Folder with configuration, agents, skills and instructions.
    pub config: PathBuf,
    /// Folder with journals, outputs, grants and trust.
    pub state: PathBuf,
    /// The user's home folder (`HOME`). `None` if the variable is unset or not an absolute path.
    pub home: Option<PathBuf>,
    /// Folder with the login of the Codex program, if `CODEX_HOME` is an absolute path other than
    /// the default `~/.codex`. `None` for the default, which is protected as a secret by its name.
    pub login: Option<PathBuf>,
}

impl Dirs {
    /// Determines posse's folders: below `POSSE_HOME`, else from the XDG variables, else below
    /// `HOME`. Ignores relative XDG paths. Fails if `POSSE_HOME` is relative, or if no variable
    /// determines a folder.
    pub fn from_environment(environment: &Environment) -> Result<Dirs, Failure> {
        let home = environment.home();
        let usual = home.as_ref().map(|home| home.join(".codex"));
        let login = environment.path("CODEX_HOME");
        let login = login.filter(|path| path.is_absolute() && Some(path) != usual.as_ref());
        let all = environment.path("POSSE_HOME");
        if let Some(all) = all.as_ref().filter(|all| !all.is_absolute()) {
            let what = format!("POSSE_HOME is not an absolute path: {}", all.display());
            return Err(Failure::new(ErrorCode::FoldersUnknown, Exit::Configuration, what)
                .at("environment variable POSSE_HOME")
                .fix("set POSSE_HOME to a path that begins with /"));
        }
        let place = |name: &str, variable: &str, default: &str| {
            if let Some(all) = &all {
                return Ok(all.join(name));
            }
            // The XDG specification has relative paths ignored.
            let given = environment.path(variable).filter(|path| path.is_absolute());
            let base = given.or_else(|| home.as_ref().map(|home| home.join(default)));
            base.map(|base| base.join("posse")).ok_or_else(|| {
                let unset = environment.path("HOME").is_none();
                let why = if unset { "HOME is not set" } else { "HOME is not an absolute path" };
                let what = "cannot determine the folders for configuration and state";
                Failure::new(ErrorCode::FoldersUnknown, Exit::Configuration, what)
                    .at("environment variable HOME")
                    .because(why)
                    .fix("set HOME, or POSSE_HOME=DIR to keep everything below one folder")
            })
        };
        Ok(Dirs {
            config: place("config", "XDG_CONFIG_HOME", ".config")?,
            state: place("state", "XDG_STATE_HOME", ".local/state")?,
            home: home.clone(),
            login,
        })
    }

    /// Rejects a workspace in which tools could change their own authority: a folder that is or
    /// contains the home folder or posse's state or configuration, and a folder that is or is
    /// inside one of posse's folders or the `login` folder. `workspace` must be a path without
    /// symbolic links.
    pub fn check_workspace(&self, workspace: &Path) -> Result<(), Failure> {
        self.check(workspace, "start in the folder of a project, or name one with --cwd DIR")
    }

    /// Applies the check of `check_workspace` to a folder that `--add-dir` adds.
    pub fn check_added(&self, folder: &Path) -> Result<(), Failure> {
        self.check(folder, "name the folder of a project with --add-dir DIR")
    }

    /// Paths of posse's own folders and of the `login` folder. A path that contains symbolic links
    /// is listed twice: resolved and as configured.
    pub fn own_folders(&self) -> Vec<PathBuf> {
        let named = [&self.config, &self.state].into_iter().chain(&self.login);
        let mut own = Vec::with_capacity(8);
        for folder in named {
            let real = resolved(folder);
            if real != *folder {
                own.push(real);
            }
            own.push(folder.clone());
        }
        own
    }

    /// Warning if the state folder, which holds journals, trust and grants, belongs to another user
    /// or can be changed by other users, or if every user may replace it in a folder above. Follows
    /// symbolic links. `None` also if the folder cannot be examined, for example because it does not
    /// exist.
    pub fn state_warning(&self) -> Option<String> {
        let found = fs::metadata(&self.state).ok()?;
        let mode = found.mode() & 0o7777;
        let why = if found.uid() != nix::unistd::geteuid().as_raw() {
            "belongs to another user; run chown on it".to_owned()
        } else if mode & 0o022 != 0 {
            format!("can be changed by other users (mode {mode:04o}); run chmod 700 on it")
        } else {
            let above = replaceable_folder(&self.state)?;
            let above = printable(&above.display().to_string());
            format!("can be replaced by other users in {above}; run chmod o-w on that folder")
        };
        Some(format!("the state folder {} {why}", printable(&self.state.display().to_string())))
    }

    fn check(&self, workspace: &Path, fix: &str) -> Result<(), Failure> {
        let contains = |path: &Path| resolved(path).starts_with(workspace);
        let why = if self.home.as_deref().is_some_and(contains) {
            "it is your home folder, or contains it"
        } else if contains(&self.state) {
            "it contains the state of posse, which no tool may write"
        } else if contains(&self.config) {
            "it contains the configuration of posse, which no tool may write"
        } else if self.own_folders().iter().any(|own| workspace.starts_with(own)) {
            "it is inside a folder of posse, which no tool may write"
        } else {
            return Ok(());
        };
        let what = format!("{} cannot be a workspace", workspace.display());
        Err(Failure::new(ErrorCode::WorkspaceIsOwnFolder, Exit::Usage, what).because(why).fix(fix))
    }
}

/// The nearest folder above `path`, with symbolic links resolved, in which every user may rename the
/// entries of others. `None` if there is none.
fn replaceable_folder(path: &Path) -> Option<PathBuf> {
    const STICKY: u32 = 0o1000;
    let path = path.canonicalize().ok()?;
    let mut above = path.ancestors().skip(1);
    let found = above.find(|folder| {
        let mode = fs::metadata(folder).map_or(0, |found| found.mode());
        mode & 0o002 != 0 && mode & STICKY == 0
    });
    found.map(Path::to_owned)
}

/// Resolves symbolic links in the existing part of `path`, and appends the names that do not exist.
fn resolved(path: &Path) -> PathBuf {
    let real = |above: &Path| {
        let rest = path.strip_prefix(above).ok()?;
        // Collected, because joining nothing leaves a slash at the end.
        Some(above.canonicalize().ok()?.join(rest).components().collect())
    };
    path.ancestors().find_map(real).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_normalised_with_a_notice() {
        let environment: Environment =
            [("A", "x"), ("B", " x\n"), ("C", "\"x\""), ("D", ""), ("E", "'' "), ("F", "\"")]
                .into_iter()
                .collect();
        let seen = |name| (environment.get(name), environment.oddity_of(name));
        assert_eq!(seen("A"), (Some("x"), None));
        assert_eq!(seen("B"), (Some("x"), Some("has white space around it, which was ignored")));
        assert_eq!(seen("C"), (Some("x"), Some("is quoted; the quotes were ignored")));
        assert_eq!(seen("D"), (None, Some("is empty and was ignored")));
        assert_eq!(seen("E"), (None, Some("is empty and was ignored")));
        assert_eq!(seen("F"), (Some("\""), None));
        assert_eq!(seen("G"), (None, None));
        assert_eq!(format!("{environment:?}"), r#"{"A", "B", "C", "D", "E", "F"}"#);
    }

    #[test]
    fn finds_state_and_config_folders() {
        let dirs = |variables: &[(&str, &str)]| {
            let environment = variables.iter().copied().collect();
            match Dirs::from_environment(&environment) {
                Ok(dirs) => {
                    let paths = [dirs.config, dirs.state];
                    paths.map(|path| path.display().to_string()).join(" ")
                }
                Err(failure) => failure.why.unwrap_or(failure.what),
            }
        };
        let table: [(&[(&str, &str)], &str); 6] = [
            (&[("HOME", "/h")], "/h/.config/posse /h/.local/state/posse"),
            (&[("HOME", "/h"), ("POSSE_HOME", "/p")], "/p/config /p/state"),
            (
                &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "s")],
                "/c/posse /h/.local/state/posse",
            ),
            (&[], "HOME is not set"),
            (&[("HOME", "h")], "HOME is not an absolute path"),
            (&[("POSSE_HOME", "p")], "POSSE_HOME is not an absolute path: p"),
        ];
        for (variables, expected) in table {
            assert_eq!(dirs(variables), expected);
        }
    }

    #[test]
    fn workspace_containing_posse_state_is_refused() {
        let environment = [("HOME", "/h/u"), ("XDG_STATE_HOME", "/v/s")].into_iter().collect();
        let dirs = Dirs::from_environment(&environment).unwrap();
        let inside = ["/v/s/posse/projects/p", "/h/u/.config/posse/a"];
        let above = ["/", "/h", "/h/u", "/v", "/v/s/posse", "/h/u/.config"];
        for refused in above.into_iter().chain(inside) {
            let failure = dirs.check_workspace(Path::new(refused)).expect_err(refused);
            assert_eq!((failure.code.as_str(), failure.exit), ("CFG016", Exit::Usage));
            let added = dirs.check_added(Path::new(refused)).expect_err(refused);
            assert_eq!(
                (added.code.as_str(), added.exit, added.why),
                ("CFG016", Exit::Usage, failure.why)
            );
            assert!(added.fix.is_some_and(|fix| fix.contains("--add-dir")));
        }
        for fine in ["/h/u/project", "/w", "/v/s/other", "/v/s/posse-not"] {
            assert_eq!(dirs.check_workspace(Path::new(fine)), Ok(()));
            assert_eq!(dirs.check_added(Path::new(fine)), Ok(()));
        }
    }

    #[test]
    fn state_folder_that_others_can_change_is_reported() {
        use std::os::unix::fs::PermissionsExt;

        let place = tempfile::tempdir().unwrap();
        let environment = [("POSSE_HOME", place.path())].into_iter().collect();
        let dirs = Dirs::from_environment(&environment).unwrap();
        assert_eq!(dirs.state_warning(), None, "it does not exist yet");
        let real = place.path().join("real");
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink("real", &dirs.state).unwrap();
        for (mode, is_reported) in [(0o700, false), (0o755, false), (0o777, true), (0o775, true)] {
            fs::set_permissions(&real, fs::Permissions::from_mode(mode)).unwrap();
            let warning = dirs.state_warning();
            assert_eq!(warning.is_some(), is_reported, "{mode:o} {warning:?}");
        }
        // A folder above, found through the link.
        fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
        for (mode, is_reported) in [(0o1777, false), (0o775, false), (0o777, true)] {
            fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
            let warning = dirs.state_warning();
            assert_eq!(warning.is_some(), is_reported, "{mode:o} {warning:?}");
        }
    }

    #[test]
    fn own_folders_are_resolved_through_links_before_creation() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        fs::create_dir(real.join("there")).unwrap();
        std::os::unix::fs::symlink("there", real.join("link")).unwrap();
        let environment = [("POSSE_HOME", real.join("link"))].into_iter().collect();
        let own = Dirs::from_environment(&environment).unwrap().own_folders();
        for below in ["config", "state"] {
            assert!(own.contains(&real.join("link").join(below)), "{own:?}");
            assert!(own.contains(&real.join("there").join(below)), "{own:?}");
        }
    }

    #[test]
    fn relocated_login_is_protected_like_posse_state() {
        let own = |home: &'static str| {
            let variables = [("HOME", "/h"), ("POSSE_HOME", "/p"), ("CODEX_HOME", home)];
            Dirs::from_environment(&variables.into_iter().collect()).unwrap().own_folders()
        };
        assert!(own("/elsewhere/codex").contains(&PathBuf::from("/elsewhere/codex")));
        for other in ["/h/.codex", "relative", ""] {
            assert_eq!(own(other).len(), 2, "{other}");
        }
    }
}
