//! Numbers of uses of the slash commands, in a file of the state directory: the list of commands
//! shows frequent ones first.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::commands::{COMMANDS, Command};
use crate::history::private_file;

/// Maximum bytes of the file that are read.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Number of uses of one command at which all numbers are halved, so that habits can change.
const USES_MAX: u32 = 200;

/// Numbers of uses by the names of commands.
#[derive(Debug, Default)]
pub struct CommandUses {
    counts: BTreeMap<&'static str, u32>,
    /// File that stores the numbers; `None`: they end with the process.
    file: Option<PathBuf>,
    is_changed: bool,
}

impl CommandUses {
    /// Reads the numbers from `file`. An unreadable file counts as empty, and unknown names are
    /// dropped. `None`: nothing is stored.
    pub fn open(file: Option<PathBuf>) -> CommandUses {
        let stored = file.as_deref().and_then(|file| read(file).ok()).unwrap_or_default();
        let known = COMMANDS.iter().filter_map(|command| {
            let uses = *stored.get(command.name)?;
            Some((command.name, u32::try_from(uses).unwrap_or(USES_MAX).min(USES_MAX)))
        });
        CommandUses { counts: known.collect(), file, is_changed: false }
    }

    /// Number of uses of a command.
    pub fn of(&self, command: &Command) -> u32 {
        self.counts.get(command.name).copied().unwrap_or_default()
    }

    /// Counts a use.
    pub fn add(&mut self, command: &Command) {
        let count = self.counts.entry(command.name).or_default();
        *count += 1;
        if *count >= USES_MAX {
            self.counts.values_mut().for_each(|count| *count /= 2);
        }
        self.is_changed = true;
    }

    /// Returns a function that writes the file, if a use was counted since the last call. The
    /// function blocks; errors are ignored, because they must not disturb the session.
    pub fn save(&mut self) -> Option<impl FnOnce() + Send + 'static> {
        let is_changed = std::mem::take(&mut self.is_changed);
        let file = self.file.clone().filter(|_| is_changed)?;
        let counts = self.counts.clone();
        Some(move || {
            write(&file, &counts).ok();
        })
    }
}

fn read(file: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut bytes = Vec::new();
    let file = private_file().read(true).open(file)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn write(file: &Path, counts: &BTreeMap<&'static str, u32>) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    // A name of its own for each process: the last one that renames its file wins.
    let new = file.with_extension(format!("new-{}", std::process::id()));
    let mut open = private_file();
    open.write(true)
        .create(true)
        .truncate(true)
        .open(&new)?
        .write_all(&serde_json::to_vec(counts)?)?;
    std::fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str) -> &'static Command {
        COMMANDS.iter().find(|command| command.name == name).unwrap()
    }

    #[test]
    fn uses_are_stored_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/command-uses.json");
        let mut uses = CommandUses::open(Some(file.clone()));
        assert!(uses.save().is_none(), "nothing has changed");
        for _ in 0..3 {
            uses.add(command("cost"));
        }
        uses.save().unwrap()();
        assert!(uses.save().is_none());
        let mut uses = CommandUses::open(Some(file.clone()));
        assert_eq!((uses.of(command("cost")), uses.of(command("model"))), (3, 0));
        for _ in 0..250 {
            uses.add(command("model"));
        }
        assert_eq!(uses.of(command("cost")), 1, "older habits fade");
        assert!(uses.of(command("model")) < USES_MAX);
        assert_eq!(std::fs::read_dir(dir.path().join("state")).unwrap().count(), 1);
    }

    #[test]
    fn damaged_files_count_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("uses");
        for text in ["", "[]", "{\"cost\":-1}", "{\"cost\":\"x\"}"] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(CommandUses::open(Some(file.clone())).of(command("cost")), 0, "{text}");
        }
        std::fs::write(&file, "{\"cost\":99999999999,\"nosuch\":4}").unwrap();
        assert_eq!(CommandUses::open(Some(file.clone())).of(command("cost")), USES_MAX);
        std::os::unix::fs::symlink(&file, dir.path().join("link")).unwrap();
        assert_eq!(CommandUses::open(Some(dir.path().join("link"))).of(command("cost")), 0);
    }
}
