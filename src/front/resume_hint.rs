//! Hints for resuming a session: the command, and a line that schedules it. Pure.

use std::path::Path;
use std::time::Duration;

use posse_base::shell_words::quoted;
use posse_frontend::resume_line;

/// Delay that a scheduled resume adds to the wait, so that it does not come too early.
const SLACK: Duration = Duration::from_secs(30);

/// Values from which the resume command, and the line that schedules it, are made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Again {
    /// Id of the session that is resumed.
    pub session: String,
    /// Path of the posse executable, for a scheduled resume.
    pub program: String,
    /// Directory in which a scheduled resume runs.
    pub cwd: String,
    /// Flags of this run that a scheduled resume needs again.
    pub flags: Vec<String>,
    /// Flags of this run that a resume by the user needs again: those that say where the settings
    /// and files are, and those that restrict the run.
    pub needed: Vec<String>,
    /// Names of environment variables that the resumed run needs and that a scheduler does not pass
    /// on, such as those with API keys.
    pub variables: Vec<String>,
    /// Environment variables that are settings of this run, with their values.
    pub values: Vec<(String, String)>,
    /// Value of `PATH`, in whose absolute folders a scheduler is looked up.
    pub path: String,
}

/// Program that runs a command at a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// `systemd-run`, which is preferred and gets the variables with `-E`.
    Systemd,
    /// `at`, which keeps the variables of the shell that runs it, and counts in minutes.
    At,
}

impl Again {
    /// The last line for the user: the session, and the command that resumes it.
    pub(crate) fn last_line(&self) -> String {
        resume_line(&self.session, &self.needed)
    }

    /// Shell command that schedules an unattended resume after `wait` and [`SLACK`], with the flags
    /// and variables; `None` if there is no scheduler.
    pub(crate) fn later(&self, wait: Duration) -> Option<String> {
        Some(self.line(wait, Timer::of(&self.path)?))
    }

    fn line(&self, wait: Duration, timer: Timer) -> String {
        let seconds = wait.saturating_add(SLACK).as_secs();
        let words = [self.program.as_str(), "resume", &self.session, "--unattended"];
        let words = words.into_iter().map(str::to_owned).chain(self.flags.iter().cloned());
        let command = words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ");
        let cwd = quoted(&self.cwd);
        match timer {
            Timer::Systemd => {
                let names = self.variables.iter().map(|name| format!(" -E {name}"));
                let set = |(name, value): &(String, String)| {
                    format!(" -E {}", quoted(&format!("{name}={value}")))
                };
                let variables: Vec<String> = names.chain(self.values.iter().map(set)).collect();
                format!(
                    "systemd-run --user --on-active={seconds}s --working-directory={cwd}{} {command}",
                    variables.concat()
                )
            }
            Timer::At => {
                let minutes = seconds.div_ceil(60);
                // It keeps the variables of the shell that runs it.
                let set = |(name, value): &(String, String)| format!("{name}={} ", quoted(value));
                let values: Vec<String> = self.values.iter().map(set).collect();
                let line = format!("cd {cwd} && {}{command}", values.concat());
                format!("echo {} | at now + {minutes} minutes", quoted(&line))
            }
        }
    }
}

impl Timer {
    /// First scheduler whose program is in a folder of `path`; `None` if there is none.
    fn of(path: &str) -> Option<Timer> {
        let is_there = |name: &str| {
            let folders = path.split(':').filter(|folder| folder.starts_with('/'));
            folders.map(|folder| Path::new(folder).join(name)).any(|file| file.is_file())
        };
        [("systemd-run", Timer::Systemd), ("at", Timer::At)]
            .into_iter()
            .find_map(|(name, timer)| is_there(name).then_some(timer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again() -> Again {
        Again {
            session: "20260101-000000-aaaaaa".to_owned(),
            program: "/opt/my tools/posse".to_owned(),
            cwd: "/home/me/work".to_owned(),
            flags: vec!["--yes".to_owned()],
            needed: ["--config", "/etc/my posse.json"].map(str::to_owned).into(),
            variables: vec!["OPENAI_API_KEY".to_owned()],
            values: vec![("POSSE_BUDGET_TOKENS".to_owned(), "1000".to_owned())],
            path: String::new(),
        }
    }

    #[test]
    fn command_matches_the_available_timer() {
        let hour = Duration::from_hours(1);
        insta::assert_snapshot!(again().line(hour, Timer::Systemd), @"systemd-run --user --on-active=3630s --working-directory=/home/me/work -E OPENAI_API_KEY -E POSSE_BUDGET_TOKENS=1000 '/opt/my tools/posse' resume 20260101-000000-aaaaaa --unattended --yes");
        insta::assert_snapshot!(again().line(hour, Timer::At), @r#"echo 'cd /home/me/work && POSSE_BUDGET_TOKENS=1000 '"'"'/opt/my tools/posse'"'"' resume 20260101-000000-aaaaaa --unattended --yes' | at now + 61 minutes"#);
        assert_eq!(
            again().last_line(),
            "session 20260101-000000-aaaaaa · posse resume 20260101-000000-aaaaaa --config \
             '/etc/my posse.json'"
        );
    }

    #[test]
    fn first_timer_on_the_path_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("relative:{}", dir.path().display());
        assert_eq!(Timer::of(&path), None);
        assert_eq!(Again { path: path.clone(), ..again() }.later(Duration::ZERO), None);
        std::fs::write(dir.path().join("at"), "").unwrap();
        assert_eq!(Timer::of(&path), Some(Timer::At));
        std::fs::write(dir.path().join("systemd-run"), "").unwrap();
        assert_eq!(Timer::of(&path), Some(Timer::Systemd));
    }
}
