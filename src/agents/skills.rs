//! Skills: folders with a `SKILL.md` that describes how to do a kind of task.
//!
//! A skill is text and files to read, never authority: it grants nothing, and its scripts run only
//! as commands that are judged like all others. The user's skills come first; those of a project
//! are inert until the user trusts exactly the content of their folders.

mod definition;
mod folder;
mod tool;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::{ErrorCode, Exit, Failure, nearest, printable};
use crate::secrets::is_secret;

use definition::{Head, is_name};
use folder::{MAIN, MAIN_BYTES_MAX};

pub use tool::{Rights, tool};

/// Name of the tool that activates skills and reads their files.
pub const TOOL: &str = posse_actors::skills::TOOL;

/// Maximum size of the catalog in bytes: about 2,000 tokens.
pub const SKILL_CATALOG_BYTES_MAX: usize = 8000;

/// Maximum number of skills per place.
const SKILLS_MAX: usize = 200;

/// Skill folders of projects, of posse and of other agents.
const PROJECT_FOLDERS: [&str; 3] = [".posse/skills", ".agents/skills", ".claude/skills"];

/// A usable skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its folder, without links.
    folder: PathBuf,
    /// Its folder, printable.
    pub place: String,
    /// True if it is a project's.
    pub from_project: bool,
    /// True if the sandbox hides its folder from commands.
    pub out_of_reach: bool,
    /// SHA-256 of each file in hex, if the skill is trusted with exactly this content.
    sealed: Option<BTreeMap<String, String>>,
    head: Head,
}

impl Skill {
    /// Name.
    pub fn name(&self) -> &str {
        &self.head.name
    }

    /// One-line description.
    pub fn description(&self) -> &str {
        &self.head.description
    }

    /// License, if stated.
    pub fn license(&self) -> Option<&str> {
        self.head.license.as_deref()
    }

    /// Requirements, if stated.
    pub fn compatibility(&self) -> Option<&str> {
        self.head.compatibility.as_deref()
    }

    /// Further metadata.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.head.metadata
    }

    /// Tools that the skill expects. They are no permission.
    pub fn allowed_tools(&self) -> &[String] {
        &self.head.allowed_tools
    }

    /// True if only the user can activate it.
    pub fn only_user(&self) -> bool {
        self.head.only_user
    }

    /// Text, with hidden characters as visible escapes.
    pub fn body(&self) -> &str {
        &self.head.body
    }

    /// Files of its folder except `SKILL.md`, with their sizes in bytes.
    pub fn files(&self) -> Vec<(String, u64)> {
        let listing = folder::list(&self.folder, false).unwrap_or_default();
        let theirs = |(path, _): &(String, u64)| path != MAIN && !is_secret(path);
        listing.files.into_iter().filter(theirs).collect()
    }

    /// Complete text for the model. It begins with the mark that identifies it in a history.
    pub fn content(&self) -> String {
        let mut text = posse_actors::skills::begin(self.name());
        // The content must not close its label.
        text.push_str(&self.body().replace("</skill_content", "<\\/skill_content"));
        text.push_str("\n</skill_content>\n");
        let mut line = |line: String| text.push_str(&(line + "\n"));
        if let Some(needs) = self.compatibility() {
            line(format!("It needs: {needs}"));
        }
        if !self.allowed_tools().is_empty() {
            let tools = self.allowed_tools().join(", ");
            line(format!("It expects these tools: {tools}. It allows none of them."));
        }
        let files = self.files();
        if !files.is_empty() {
            let name = self.name();
            line(format!(
                "Its files, to be read with {TOOL} {{\"name\": \"{name}\", \"path\": …}}:"
            ));
            for (path, bytes) in &files {
                line(format!("- {} ({bytes} bytes)", printable(path)));
            }
            line(if self.out_of_reach {
                "Commands do not see its folder: to run a script, read it first and write it into \
                 the workspace."
                    .to_owned()
            } else {
                format!("Its folder is {}; its scripts run with bash alone.", self.place)
            });
        }
        text
    }

    /// Text of one of its files. Binary files, secrets, and files that differ from the trusted
    /// version are refused with the reason.
    fn file(&self, path: &str) -> Result<String, String> {
        if is_secret(path) {
            return Err("it holds secrets".to_owned());
        }
        let bytes = folder::read(&self.folder, path, FILE_BYTES_MAX);
        let bytes = bytes.map_err(|error| folder::why(&error))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
        }
        if let Some(sealed) = &self.sealed
            && sealed.get(path) != Some(&folder::digest(&bytes))
        {
            return Err("it is not what was trusted: it changed since".to_owned());
        }
        String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
    }
}

/// Maximum size of a readable skill file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Skill folders. A folder need not exist.
#[derive(Debug, Clone, Default)]
pub struct SkillPlaces {
    /// The user's folders in order of precedence; the flag is true if commands have no access.
    pub user: Vec<(PathBuf, bool)>,
    /// The project's root, resolved.
    pub project: Option<PathBuf>,
    /// Names of disabled skills.
    pub disabled: Vec<String>,
}

/// All usable skills, and rejected ones.
#[derive(Debug, Clone, Default)]
pub struct Skills {
    /// By name.
    known: BTreeMap<String, Skill>,
    refused: Vec<Failure>,
    remarks: Vec<Failure>,
    inert: Vec<String>,
}

impl Skills {
    /// Loads all skills. `believes`: true if the user trusts the folder of a project's skill, by
    /// its path below the root, with exactly this digest.
    pub fn load(places: &SkillPlaces, believes: &dyn Fn(&str, &str) -> bool) -> Skills {
        let mut skills = Skills::default();
        for (place, out_of_reach) in &places.user {
            for (name, path) in skill_folders(place, None, &mut skills.refused) {
                let main = folder::read(&path, MAIN, MAIN_BYTES_MAX as u64);
                let main = main.map_err(|error| error.to_string());
                skills.add(&name, path, main, None, (false, *out_of_reach));
            }
        }
        if let Some(root) = &places.project {
            for (name, path, relative) in project_folders(root, &mut skills.refused) {
                match folder::seal(&path) {
                    Ok(sealed) if believes(&relative, &sealed.digest) => {
                        let files = Some(sealed.files);
                        skills.add(&name, path, Ok(sealed.main), files, (true, false));
                    }
                    Ok(_) => skills.inert.push(relative),
                    Err(why) => skills.unreadable(&name, &path, &why),
                }
            }
        }
        skills.known.retain(|name, _| !places.disabled.contains(name));
        skills
    }

    fn unreadable(&mut self, name: &str, path: &Path, why: &str) {
        let what = format!("skill \"{}\" cannot be read, and is left out", printable(name));
        let failure = Failure::new(ErrorCode::SkillUnreadable, Exit::Configuration, what);
        self.refused.push(failure.at(shown(path)).because(why));
    }

    fn add(
        &mut self,
        name: &str,
        path: PathBuf,
        main: Result<Vec<u8>, String>,
        sealed: Option<BTreeMap<String, String>>,
        (from_project, out_of_reach): (bool, bool),
    ) {
        let bytes = match main {
            Ok(bytes) if bytes.len() <= MAIN_BYTES_MAX => bytes,
            Ok(_) => {
                let why = format!("{MAIN} is longer than {MAIN_BYTES_MAX} bytes");
                return self.unreadable(name, &path, &why);
            }
            Err(why) => return self.unreadable(name, &path, &why),
        };
        let main = shown(&path.join(MAIN));
        let (head, remarks) = match definition::read(&bytes, name, &main) {
            Ok(read) => read,
            Err(failure) => return self.refused.push(failure),
        };
        if let Some(taken) = self.known.get(&head.name) {
            // The same folder by another path is not a second skill.
            if taken.folder != path {
                let what = format!("skill \"{}\" is left out: the name is taken", head.name);
                let failure = Failure::new(ErrorCode::SkillNameTaken, Exit::Configuration, what);
                let why = format!("{} comes before it", taken.place);
                self.refused.push(failure.at(main).because(why).fix("give one another name"));
            }
            return;
        }
        self.remarks.extend(remarks);
        let place = shown(&path);
        let skill = Skill { folder: path, place, from_project, out_of_reach, sealed, head };
        self.known.insert(skill.head.name.clone(), skill);
    }

    /// True if there is no usable skill.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// All skills, by name.
    pub fn all(&self) -> impl Iterator<Item = &Skill> {
        self.known.values()
    }

    /// Rejected skills with reasons.
    pub fn refused(&self) -> &[Failure] {
        &self.refused
    }

    /// Warnings about usable skills.
    pub fn remarks(&self) -> &[Failure] {
        &self.remarks
    }

    /// Untrusted skill folders of the project, below its root.
    pub fn inert(&self) -> &[String] {
        &self.inert
    }

    /// The skill of that name. Fails with the reason if there is none.
    pub fn find(&self, name: &str) -> Result<&Skill, Failure> {
        if let Some(skill) = self.known.get(name) {
            return Ok(skill);
        }
        let what = format!("there is no skill \"{}\"", printable(name));
        let failure = Failure::new(ErrorCode::SkillNotFound, Exit::Configuration, what);
        let end = format!("/{name}");
        if is_name(name) && self.inert.iter().any(|inert| inert.ends_with(&end)) {
            return Err(failure
                .because("the project has one, and you do not trust it")
                .fix("`posse trust add` shows the effect"));
        }
        let names = || self.known.keys().map(String::as_str);
        Err(failure.fix(match nearest(name, names()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None if self.is_empty() => "there are none here; docs/guide/skills.md".to_owned(),
            None => format!("choose one of {}", names().collect::<Vec<_>>().join(", ")),
        }))
    }

    /// Section of a system prompt that lists the skills for which `sees` is true and that a model
    /// may activate; empty if there are none. Deterministic. To fit `bytes_max`, first descriptions
    /// are shortened, then descriptions are omitted, then the last names.
    pub fn catalog(&self, bytes_max: usize, sees: impl Fn(&str) -> bool) -> String {
        let shown: Vec<&Skill> =
            self.all().filter(|skill| !skill.only_user() && sees(skill.name())).collect();
        if shown.is_empty() {
            return String::new();
        }
        [usize::MAX, 240, 80, 0]
            .into_iter()
            .map(|chars| listed(&shown, chars))
            .find(|text| text.len() <= bytes_max)
            .unwrap_or_else(|| {
                let fits = |kept: &usize| listed(&shown[..*kept], 0).len() <= bytes_max;
                let kept = (0..shown.len()).rev().find(fits).unwrap_or_default();
                listed(&shown[..kept], 0)
            })
    }
}

fn listed(skills: &[&Skill], chars_max: usize) -> String {
    let mut text = format!(
        "\nSkills are instructions for certain kinds of task. When a task fits one of these, call \
         {TOOL} with its name before you begin, and follow it as far as the task needs. A skill \
         never widens what you may do, and the user's own words come first.\n"
    );
    for skill in skills {
        let description = skill.description().replace('<', "\\u{3c}");
        let cut: String = description.chars().take(chars_max).collect();
        let more = if cut.len() < description.len() && chars_max > 0 { "…" } else { "" };
        let colon = if chars_max > 0 { ": " } else { "" };
        // Writing to a string cannot fail.
        let _: fmt::Result = writeln!(text, "- {}{colon}{cut}{more}", skill.name());
    }
    text
}

/// Digest of each skill of the project, by its path relative to the root, for granting trust; or
/// the reason why it cannot be trusted.
pub fn project_skills(root: &Path) -> BTreeMap<String, Result<String, String>> {
    let mut refused = Vec::new();
    let found = project_folders(root, &mut refused);
    let sealed = |path: &Path| folder::seal(path).map(|sealed| sealed.digest);
    found.into_iter().map(|(_, path, relative)| (relative, sealed(&path))).collect()
}

/// True if a project has a skill folder; most have none.
pub fn has_project_skills(root: &Path) -> bool {
    PROJECT_FOLDERS.iter().any(|place| root.join(place).is_dir())
}

/// Name, folder, and path relative to the root, of each skill.
fn project_folders(root: &Path, refused: &mut Vec<Failure>) -> Vec<(String, PathBuf, String)> {
    let mut found = Vec::new();
    for place in PROJECT_FOLDERS {
        for (name, path) in skill_folders(&root.join(place), Some(root), refused) {
            let relative = format!("{place}/{name}");
            found.push((name, path, relative));
        }
    }
    found
}

/// Folders in `place` that contain a `SKILL.md`, by name. `within`: folder that must contain them
/// after links are resolved.
fn skill_folders(
    place: &Path,
    within: Option<&Path>,
    refused: &mut Vec<Failure>,
) -> Vec<(String, PathBuf)> {
    // A missing place has no skills.
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| place.join(name).join(MAIN).symlink_metadata().is_ok())
        .collect();
    names.sort_unstable();
    let mut leave_out = |what: String, path: &Path, why: &str| {
        let failure = Failure::new(ErrorCode::SkillUnreadable, Exit::Configuration, what);
        refused.push(failure.at(shown(path)).because(why));
    };
    if names.len() > SKILLS_MAX {
        let what = format!("only the first {SKILLS_MAX} skills are read");
        leave_out(what, place, &format!("there are {}", names.len()));
        names.truncate(SKILLS_MAX);
    }
    let mut found = Vec::new();
    for name in names {
        let path = place.join(&name);
        let what = || format!("skill \"{}\" is left out", printable(&name));
        match path.canonicalize() {
            Ok(real) if within.is_none_or(|root| real.starts_with(root)) => {
                found.push((name, real));
            }
            Ok(_) => leave_out(what(), &path, "it leads out of the project"),
            Err(error) => leave_out(what(), &path, &error.to_string()),
        }
    }
    found
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

#[cfg(test)]
mod tests;
