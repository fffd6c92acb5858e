//! Computes the plan of a command from its permitted confinement.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use posse_actors::event::SandboxTier;
use posse_actors::ports::{Confinement, NetworkAccess};
use serde::Deserialize;

use crate::helper::folder_path;
use crate::plan::{Backend, Plan, TemporaryMount};
use crate::wire::is_plain;
use crate::{RunError, Sandbox};

/// Texts of all sandbox profiles, one TOML file per profile.
const PROFILES: [&str; 3] = [
    include_str!("../../sandbox-profiles/off.toml"),
    include_str!("../../sandbox-profiles/read-only.toml"),
    include_str!("../../sandbox-profiles/workspace-write.toml"),
];

const PLACES: &str = include_str!("../../sandbox-profiles/places.toml");

/// Folders of a session and its user, from which the plans of commands are computed.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Roots of the session: the workspace folders. Commands see them even inside masked and hidden
    /// folders.
    pub roots: Vec<PathBuf>,
    /// Additional folders that are writable for commands with write access. Missing ones are left
    /// out.
    pub also_writable: Vec<PathBuf>,
    /// Folders of posse, which a confined command must not read or change. On the reduced tier,
    /// those below its writable roots stay accessible.
    pub own: Vec<PathBuf>,
    /// Home directory of the user. `None` if unknown.
    pub home: Option<PathBuf>,
    /// Folder of the user's configuration (`XDG_CONFIG_HOME`). `None` means `.config` in `home`.
    pub config_home: Option<PathBuf>,
    /// Folder with the sockets of the user's services (`XDG_RUNTIME_DIR`). `None` if there is none.
    pub runtime_dir: Option<PathBuf>,
    /// Paths that commands may read, with their contents, although they are secret files or
    /// credential stores. Absolute, below `~`, or relative to the first root.
    pub readable_secrets: Vec<PathBuf>,
    /// Folder of posse in which sessions of all projects are stored, as
    /// `PROJECT/sessions/SESSION`. Temporary folders that killed processes left there are removed.
    /// `None`: none are removed.
    pub projects: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SandboxProfile {
    name: String,
    writes: Writes,
    #[cfg_attr(not(test), expect(dead_code, reason = "for those who read the file"))]
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Writes {
    Nowhere,
    Roots,
    Anywhere,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Places {
    processes_max: u32,
    masked: Vec<ProfilePath>,
    hidden: Vec<ProfilePath>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ProfilePath {
    path: Option<PathBuf>,
    variable: Option<String>,
    /// True if the path is masked or hidden on the full tier only, where it costs one mount. False
    /// if it applies to every tier.
    #[serde(default)]
    full_tier_only: bool,
    #[cfg_attr(not(test), expect(dead_code, reason = "for those who read the file"))]
    reason: String,
}

struct Data {
    profiles: Vec<SandboxProfile>,
    places: Places,
}

fn data() -> Result<&'static Data, RunError> {
    static DATA: OnceLock<Result<Data, String>> = OnceLock::new();
    let read = || {
        let profiles = PROFILES.iter().map(|text| toml::from_str(text));
        let profiles = profiles.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let places = toml::from_str(PLACES).map_err(|error| error.to_string())?;
        Ok(Data { profiles, places })
    };
    let data = DATA.get_or_init(read);
    data.as_ref().map_err(|error| not_prepared(format!("the sandbox profiles are broken: {error}")))
}

fn not_prepared(reason: String) -> RunError {
    RunError::NotPrepared { reason }
}

impl ProfilePath {
    fn resolve(&self, surroundings: &Surroundings) -> Option<PathBuf> {
        if self.variable.as_deref() == Some("XDG_RUNTIME_DIR") {
            return surroundings.runtime_dir.clone();
        }
        let path = self.path.as_ref()?;
        match path.strip_prefix("~") {
            Ok(below) => Some(surroundings.home.as_ref()?.join(below)),
            Err(_) => Some(path.clone()),
        }
    }
}

/// Returns `path` with symbolic links resolved. `None` if it does not exist or is `/`.
pub(crate) fn resolved(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok().filter(|path| is_plain(path) && path.parent().is_some())
}

impl Sandbox {
    /// Invalidates the cached probe result, because a command could not be confined as the result
    /// promised. The next process probes again; this one keeps its result.
    pub(crate) fn discard_probe_result(&self) {
        self.probe.discard_probe_result();
    }

    /// Computes the plan of a command with this `confinement`. `directory` is its open working
    /// directory, `scratch` the temporary folder of its session. The guard adds protected files and secrets later. The plan confines
    /// nothing if the profile is `off` or there is no sandbox. Fails if the profile is unknown, a
    /// writable root cannot be resolved, or a root or writable folder leads elsewhere than before.
    pub(crate) fn plan(
        &self,
        confinement: &Confinement,
        directory: BorrowedFd<'_>,
        scratch: &Path,
    ) -> Result<Plan, RunError> {
        let data = data()?;
        let name = confinement.profile.as_str();
        let Some(profile) = data.profiles.iter().find(|profile| profile.name == name) else {
            return Err(not_prepared(format!("there is no sandbox profile {name:?}")));
        };
        let backend = self.backend();
        if profile.writes == Writes::Anywhere || backend.tier() == SandboxTier::None {
            return Ok(Plan::open());
        }
        let mut writable = Vec::new();
        if profile.writes == Writes::Roots {
            for root in confinement.writable_roots.iter().map(PathBuf::from) {
                let why = || not_prepared(format!("{} cannot be opened", root.display()));
                writable.push(self.places.of(&root).map_err(not_prepared)?.ok_or_else(why)?);
            }
            // A missing folder cannot be written to.
            for folder in self.surroundings.also_writable.iter().filter(|folder| folder.is_dir()) {
                writable.extend(self.places.of(folder).map_err(not_prepared)?);
            }
        }
        let Surroundings { roots, own, .. } = &self.surroundings;
        let mut visible = Vec::new();
        for root in roots {
            visible.extend(self.places.of(root).map_err(not_prepared)?);
        }
        // A secret folder in a root stays hidden, also if the command is to run in it.
        let directory = folder_path(directory).ok();
        let is_outside = |path: &PathBuf| !visible.iter().any(|root| path.starts_with(root));
        visible.extend(directory.filter(|path| path.parent().is_some() && is_outside(path)));
        let of = |places: &[ProfilePath]| -> Vec<PathBuf> {
            let is_full = backend.tier() == SandboxTier::Full;
            let places = places.iter().filter(|place| is_full || !place.full_tier_only);
            let paths = places.filter_map(|place| place.resolve(&self.surroundings));
            paths.filter_map(|path| resolved(&path)).collect()
        };
        let mut hidden = of(&data.places.hidden);
        hidden.extend(own.iter().filter_map(|path| resolved(path)));
        let mut masked = of(&data.places.masked);
        masked.sort();
        masked.dedup();
        let temporary = temporary_mount(scratch, &masked, backend);
        if temporary.is_none() {
            writable.insert(0, scratch.to_owned());
        }
        Ok(Plan {
            tier: backend.tier(),
            backend,
            writable,
            visible,
            masked,
            read_only: Vec::new(),
            pinned: Vec::new(),
            hidden,
            identities: BTreeMap::new(),
            replaced: Vec::new(),
            temporary,
            overlays: Vec::new(),
            // Domains are reached through listeners of posse, without a route.
            network: confinement.network == NetworkAccess::Host,
            processes_max: data.places.processes_max,
        })
    }
}

/// Returns the mount of the temporary folder `scratch` over `/tmp`. `None` if the backend has no
/// mounts or `/tmp` is not an outermost folder of `masked`; then it is a writable root.
fn temporary_mount(scratch: &Path, masked: &[PathBuf], backend: Backend) -> Option<TemporaryMount> {
    let target = resolved(Path::new("/tmp")).filter(|target| target.is_dir())?;
    let is_outermost = !masked.iter().any(|mask| *mask != target && target.starts_with(mask));
    let is_mounted =
        backend.tier() == SandboxTier::Full && is_outermost && masked.contains(&target);
    is_mounted.then(|| TemporaryMount { source: scratch.to_owned(), target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_match_permission_tiers() {
        let data = data().unwrap();
        let names: Vec<&str> = data.profiles.iter().map(|profile| &*profile.name).collect();
        assert_eq!(names, ["off", "read-only", "workspace-write"]);
        assert!(data.profiles.iter().all(|profile| profile.reason.len() > 10));
        let places = data.places.masked.iter().chain(&data.places.hidden);
        for place in places {
            assert!(place.reason.len() > 4, "{place:?}");
            assert!(place.path.is_some() != place.variable.is_some(), "{place:?}");
        }
        assert!(data.places.processes_max > 301, "the kernel takes no smaller number");
    }
}
