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
use std::io;
use std::path::{Path, PathBuf};

use posse_base::failure::{ErrorCode, Exit, Failure, did_you_mean, printable};
use posse_base::hex::sha256;
use posse_base::secrets::{is_secret, way};

use definition::is_name;
use folder::{FILES_MAX, MAIN, MAIN_BYTES_MAX};

pub use tool::{Rights, tool};

/// Name of the tool that activates skills and reads their files.
pub const TOOL: &str = posse_actors::skills::TOOL;

/// Maximum size of the catalog of skills in bytes: about 2,000 tokens.
pub const SKILL_CATALOG_BYTES_MAX: usize = 8000;

/// Maximum number of skills that are read from one folder.
const SKILLS_MAX: usize = 200;

/// Folders below a project's root in which posse and other agent programs look for skills.
const PROJECT_FOLDERS: [&str; 3] = [".posse/skills", ".agents/skills", ".claude/skills"];

/// A usable skill.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skill {
    /// Name of the skill.
    pub name: String,
    /// One-line description.
    pub description: String,
    /// License. `None`: not stated.
    pub license: Option<String>,
    /// Requirements of the skill, such as programs: text of the field `compatibility`. `None`: not
    /// stated.
    pub compatibility: Option<String>,
    /// Entries of the field `metadata` of the front matter, value by name.
    pub metadata: BTreeMap<String, String>,
    /// Names of tools that the skill expects. They grant no permission.
    pub allowed_tools: Vec<String>,
    /// True if only the user can activate it.
    pub only_user: bool,
    /// Text below the front matter, with hidden characters as visible escapes.
    pub body: String,
    /// Line of the `SKILL.md` at which `body` begins, from 1.
    body_line: usize,
    /// Path of the skill's folder, in printable form.
    pub place: String,
    /// True if the skill belongs to the project.
    pub from_project: bool,
    /// True if the sandbox hides the skill's folder from commands.
    pub out_of_reach: bool,
    /// Path of the skill's folder, with symbolic links resolved.
    folder: PathBuf,
    /// SHA-256 of each file in hex, for a project's skill, which is trusted with exactly this
    /// content. `None`: a skill of the user, whose files are not verified.
    hashes: Option<BTreeMap<String, String>>,
}

impl Skill {
    /// Paths of the skill's files relative to its folder, each with the size in bytes, without
    /// `SKILL.md`, hidden files and secret files. Lists about 200 files at most; empty if the
    /// folder cannot be read.
    pub fn files(&self) -> Vec<(String, u64)> {
        let listing = folder::list(&self.folder, false, FILES_MAX).unwrap_or_default();
        let theirs = |(path, _): &(String, u64)| path != MAIN && !self.has_secret(path);
        listing.files.into_iter().filter(theirs).collect()
    }

    /// Text of the skill for the model. It begins with the mark that identifies the skill in a
    /// history. A body of more than 48 KiB is cut at the end of a line, with a statement how to read
    /// the rest.
    pub fn content(&self) -> String {
        let Skill { name, place, allowed_tools, .. } = self;
        let mut text = posse_actors::skills::begin(name);
        let (body, next_line) = self.first_page();
        // The content must not close its label.
        text.push_str(&body.replace("</skill_content", "<\\/skill_content"));
        text.push_str("\n</skill_content>\n");
        let mut line = |line: String| text.push_str(&(line + "\n"));
        if let Some(next) = next_line {
            line(format!(
                "This is the first part of it. Read the rest, as far as the task needs it, with \
                 {TOOL} {{\"name\": \"{name}\", \"path\": \"{MAIN}\", \"offset\": {next}}}."
            ));
        }
        if let Some(needs) = &self.compatibility {
            line(format!("It needs: {needs}"));
        }
        if !allowed_tools.is_empty() {
            let tools = allowed_tools.join(", ");
            line(format!("It expects these tools: {tools}. It allows none of them."));
        }
        let files = self.files();
        if !files.is_empty() {
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
                format!("Its folder is {place}; its scripts run with bash alone.")
            });
        }
        text
    }

    /// The beginning of the body up to [`PAGE_BYTES_MAX`], and the line of the `SKILL.md` at which
    /// the rest begins; `None` if there is no rest.
    fn first_page(&self) -> (&str, Option<usize>) {
        if self.body.len() <= PAGE_BYTES_MAX {
            return (&self.body, None);
        }
        let mut end = 0;
        let mut lines = 0;
        for line in self.body.split_inclusive('\n') {
            if end + line.len() > PAGE_BYTES_MAX {
                break;
            }
            end += line.len();
            lines += 1;
        }
        if lines == 0 {
            // A single long line. Its rest is in the next page once more.
            let end = self.body.floor_char_boundary(PAGE_BYTES_MAX);
            return (&self.body[..end], Some(self.body_line));
        }
        (self.body[..end].trim_end(), Some(self.body_line + lines))
    }

    /// True if the file `path` of the skill has the name of a secret, also together with that of the
    /// skill's folder.
    fn has_secret(&self, path: &str) -> bool {
        let folder = self.folder.file_name().unwrap_or_default();
        is_secret(&Path::new(folder).join(path).to_string_lossy())
    }

    /// Text of the file `path` of the skill. The error is the reason for refusing it, for example a
    /// binary, large or secret file, or a file that differs from the trusted version.
    fn file(&self, path: &str) -> Result<String, String> {
        if self.has_secret(path) {
            return Err("it holds secrets".to_owned());
        }
        let bytes = folder::read(&self.folder, path, FILE_BYTES_MAX);
        let bytes = bytes.map_err(|error| folder::why(&error))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
        }
        if let Some(hashes) = &self.hashes
            && hashes.get(path) != Some(&sha256(&bytes))
        {
            return Err("it is not what was trusted: it changed since".to_owned());
        }
        String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
    }
}

/// Maximum bytes of the body of a skill that its activation gives to the model. Less than what a
/// compaction keeps of active skills.
const PAGE_BYTES_MAX: usize = 48 << 10;

/// Maximum size of a readable skill file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Skill folders. A folder need not exist.
#[derive(Debug, Clone, Default)]
pub struct SkillPlaces {
    /// Skill folders of the user in order of precedence. The flag is true if the sandbox hides the
    /// folder from commands.
    pub user: Vec<(PathBuf, bool)>,
    /// Root of the project, with symbolic links resolved. `None`: skills of projects are not
    /// loaded.
    pub project: Option<PathBuf>,
    /// Names of disabled skills.
    pub disabled: Vec<String>,
}

/// All usable skills, and rejected ones.
#[derive(Debug, Clone, Default)]
pub struct Skills {
    /// Usable skills by name.
    known: BTreeMap<String, Skill>,
    /// Rejected skills with reasons.
    pub refused: Vec<Failure>,
    /// Warnings about usable skills.
    pub remarks: Vec<Failure>,
    /// Paths of the project's skill folders that the user does not trust, relative to its root.
    pub inert: Vec<String>,
    /// Names of [`SkillPlaces::disabled`] that no skill has.
    pub unknown: Vec<String>,
}

impl Skills {
    /// Warning in one line about rejected, questionable and untrusted skills, for the start of a
    /// session; `None` if there are none. `posse skills` shows the details.
    pub fn summary(&self) -> Option<String> {
        let count = |number: usize, what: &str| (number > 0).then(|| format!("{number} {what}"));
        let parts = [
            count(self.refused.len(), "left out"),
            count(self.remarks.len(), "with warnings"),
            count(self.inert.len(), "of the project not used, because you do not trust them"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let code = if self.inert.is_empty() { "SKL004" } else { "TRU001" };
        let line = format!("{code}: skills: {}; `posse skills` shows them", parts.join(", "));
        (!parts.is_empty()).then_some(line)
    }

    /// Loads all skills. Of several skills with one name, the first counts. Rejected and untrusted
    /// skills are recorded in the result, disabled ones are dropped. `believes`: returns true if
    /// the user trusts the project's skill folder at this path, relative to the root, with exactly
    /// this digest.
    pub fn load(places: &SkillPlaces, believes: &dyn Fn(&str, &str) -> bool) -> Skills {
        let mut skills = Skills { unknown: places.disabled.clone(), ..Skills::default() };
        for (place, out_of_reach) in &places.user {
            for (name, folder) in skill_folders(place, None, &mut skills.refused) {
                if skills.is_disabled(&name, places) {
                    continue;
                }
                let main = folder::read(&folder, MAIN, MAIN_BYTES_MAX as u64);
                let skill = Skill { folder, out_of_reach: *out_of_reach, ..Skill::default() };
                skills.add(&name, main.map_err(|error| error.to_string()), skill);
            }
        }
        if let Some(root) = &places.project {
            for (name, folder, relative) in project_folders(root, &mut skills.refused) {
                if skills.is_disabled(&name, places) {
                    continue;
                }
                match folder::hash_files(&folder) {
                    Ok(content) if believes(&relative, &content.digest) => {
                        let (hashes, main) = (Some(content.files), content.main);
                        let skill =
                            Skill { folder, hashes, from_project: true, ..Skill::default() };
                        skills.add(&name, Ok(main), skill);
                    }
                    Ok(_) => skills.inert.push(relative),
                    Err(why) => skills.refused.push(unreadable(&name, &folder, &why)),
                }
            }
        }
        let names: Vec<String> = skills.known.keys().cloned().collect();
        for name in names {
            if skills.is_disabled(&name, places) {
                skills.known.remove(&name);
            }
        }
        skills
    }

    /// True if the skill `name`, which exists, is disabled.
    fn is_disabled(&mut self, name: &str, places: &SkillPlaces) -> bool {
        let is_disabled = places.disabled.iter().any(|disabled| disabled == name);
        if is_disabled {
            self.unknown.retain(|unknown| unknown != name);
        }
        is_disabled
    }

    /// Adds `skill` with `main`, the content of its `SKILL.md`. If the content is invalid or the
    /// name is taken by another folder, stores the reason instead; a folder that is listed twice is
    /// ignored.
    fn add(&mut self, name: &str, main: Result<Vec<u8>, String>, skill: Skill) {
        let bytes = main.and_then(|bytes| match bytes.len() {
            ..=MAIN_BYTES_MAX => Ok(bytes),
            _ => Err(format!("{MAIN} is longer than {MAIN_BYTES_MAX} bytes")),
        });
        let place = shown(&skill.folder.join(MAIN));
        let read = bytes
            .map_err(|why| unreadable(name, &skill.folder, &why))
            .and_then(|bytes| definition::read(&bytes, name, &place));
        let (read, remarks) = match read {
            Ok(read) => read,
            Err(failure) => return self.refused.push(failure),
        };
        if let Some(taken) = self.known.get(&read.name) {
            // The same folder by another path is not a second skill.
            if taken.folder != skill.folder {
                let what = format!("skill \"{}\" is left out: the name is taken", read.name);
                let failure = Failure::new(ErrorCode::SkillNameTaken, Exit::Configuration, what);
                let why = format!("{} comes before it", taken.place);
                self.refused.push(failure.at(place).because(why).fix("give one another name"));
            }
            return;
        }
        self.remarks.extend(remarks);
        let Skill { folder, from_project, out_of_reach, hashes, .. } = skill;
        let place = shown(&folder);
        let skill = Skill { place, from_project, out_of_reach, folder, hashes, ..read };
        self.known.insert(skill.name.clone(), skill);
    }

    /// True if there is no usable skill.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// All usable skills, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = &Skill> {
        self.known.values()
    }

    /// Skill with this name. If there is none, the error states the reason.
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
        Err(failure.fix(match did_you_mean(name, names()) {
            Some(fix) => fix,
            None if self.is_empty() => {
                "there are none here; `posse help skills` shows how to write one".to_owned()
            }
            None => format!("choose one of {}", names().collect::<Vec<_>>().join(", ")),
        }))
    }

    /// Section of a system prompt that lists the skills for which `sees` is true and that a model
    /// may activate; empty if there are none. Deterministic. To fit `bytes_max`, first descriptions
    /// are shortened, then descriptions are omitted, then the last names.
    pub fn catalog(&self, bytes_max: usize, sees: impl Fn(&str) -> bool) -> String {
        let shown: Vec<&Skill> =
            self.all().filter(|skill| !skill.only_user && sees(&skill.name)).collect();
        if shown.is_empty() {
            return String::new();
        }
        [usize::MAX, 240, 80, 0]
            .into_iter()
            .map(|chars| catalog_lines(&shown, chars))
            .find(|text| text.len() <= bytes_max)
            .unwrap_or_else(|| {
                let fits = |kept: &usize| catalog_lines(&shown[..*kept], 0).len() <= bytes_max;
                let kept = (0..shown.len()).rev().find(fits).unwrap_or_default();
                catalog_lines(&shown[..kept], 0)
            })
    }
}

fn catalog_lines(skills: &[&Skill], chars_max: usize) -> String {
    let mut text = format!(
        "\nSkills are instructions for certain kinds of task. When a task fits one of these, call \
         {TOOL} with its name before you begin, and follow it as far as the task needs. A skill \
         never widens what you may do, and the user's own words come first.\n"
    );
    for skill in skills {
        let description = skill.description.replace('<', "\\u{3c}");
        let cut: String = description.chars().take(chars_max).collect();
        let more = if cut.len() < description.len() && chars_max > 0 { "…" } else { "" };
        let colon = if chars_max > 0 { ": " } else { "" };
        // Writing to a string cannot fail.
        let _: fmt::Result = writeln!(text, "- {}{colon}{cut}{more}", skill.name);
    }
    text
}

/// Digest of each skill of the project, by its path relative to the root, for granting trust; or
/// the reason why it cannot be trusted. Folders that lead out of the project are left out.
pub fn project_skills(root: &Path) -> BTreeMap<String, Result<String, String>> {
    let mut refused = Vec::new();
    let found = project_folders(root, &mut refused);
    let digest = |path: &Path| folder::hash_files(path).map(|hashed| hashed.digest);
    found.into_iter().map(|(_, path, relative)| (relative, digest(&path))).collect()
}

/// True if a project has a folder for skills; most have none.
pub fn has_project_skills(root: &Path) -> bool {
    PROJECT_FOLDERS.iter().any(|place| root.join(place).is_dir())
}

/// Name, folder, and path relative to `root`, of each skill of a project. Errors are added to
/// `refused`.
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

/// Names and resolved paths of the first 200 folders in `place` that contain a `SKILL.md`, sorted
/// by name. `within`: folder that must contain them after symbolic links are resolved. Errors are
/// added to `refused`.
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
    let mut leave_out =
        |what: String, path: &Path, why: &str| refused.push(left_out(what, path, why));
    if names.len() > SKILLS_MAX {
        let what = format!("only the first {SKILLS_MAX} skills are read");
        leave_out(what, place, &format!("there are {}", names.len()));
        names.truncate(SKILLS_MAX);
    }
    let mut found = Vec::new();
    for name in names {
        let path = place.join(&name);
        let what = || format!("skill \"{}\" is left out", printable(&name));
        match skill_folder(&path, within) {
            Ok(real) => found.push((name, real)),
            Err(why) => leave_out(what(), &path, &why),
        }
    }
    found
}

/// Resolves the links of `path`, a skill's folder. With `within`, fails if it leads out of that folder
/// or through a name of a secret.
fn skill_folder(path: &Path, within: Option<&Path>) -> Result<PathBuf, String> {
    let text = |error: io::Error| error.to_string();
    let Some(root) = within else { return path.canonicalize().map_err(text) };
    let way = way::resolve(root, path).map_err(text)?;
    if !way.path.starts_with(root) {
        return Err("it leads out of the project".to_owned());
    }
    if way.names_secret {
        return Err("it leads to secret files".to_owned());
    }
    Ok(way.path)
}

fn left_out(what: String, path: &Path, why: &str) -> Failure {
    Failure::new(ErrorCode::SkillUnreadable, Exit::Configuration, what).at(shown(path)).because(why)
}

fn unreadable(name: &str, path: &Path, why: &str) -> Failure {
    let what = format!("skill \"{}\" cannot be read, and is left out", printable(name));
    left_out(what, path, why)
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

#[cfg(test)]
mod tests;
