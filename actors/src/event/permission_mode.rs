//! Permission modes: how much an agent may do without a permission request.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Permission mode of a session. Deny rules and commands that are always denied stand above every
/// mode. `plan`, `ask`, `edits` and `auto` are ordered, the strictest first; `locked` is apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PermissionMode {
    /// Nothing is changed: files are read, and commands run in a read-only sandbox without network.
    Plan,
    /// Every change and every command that does more than read is asked about.
    #[default]
    Ask,
    /// Changes of files in the workspace need no permission request.
    Edits,
    /// Nothing that stays inside the full sandbox needs a permission request, except commands
    /// that are known to delete or overwrite files, or to discard work of git.
    Auto,
    /// Only what rules and grants allow; everything else is denied, and nothing is asked.
    Locked,
}

impl PermissionMode {
    /// All modes: those of the cycle in its order, then `locked`.
    pub const KNOWN: [PermissionMode; 5] = [
        PermissionMode::Plan,
        PermissionMode::Ask,
        PermissionMode::Edits,
        PermissionMode::Auto,
        PermissionMode::Locked,
    ];

    /// Name of the mode in the configuration, in JSON and for people.
    pub fn as_str(self) -> &'static str {
        match self {
            PermissionMode::Plan => "plan",
            PermissionMode::Ask => "ask",
            PermissionMode::Edits => "edits",
            PermissionMode::Auto => "auto",
            PermissionMode::Locked => "locked",
        }
    }

    /// Parses the name of a mode. `None` for any other text.
    pub fn named(name: &str) -> Option<PermissionMode> {
        PermissionMode::KNOWN.into_iter().find(|mode| mode.as_str() == name)
    }

    /// The meaning of the mode in one line, for a person.
    pub fn about(self) -> &'static str {
        match self {
            PermissionMode::Plan => "nothing is changed; reading needs no approval",
            PermissionMode::Ask => {
                "changes need approval, and so do commands that do more than read"
            }
            PermissionMode::Edits => {
                "edits in the workspace are free, other commands need approval"
            }
            PermissionMode::Auto => {
                "commands and edits run in the sandbox without questions; what leaves it needs approval"
            }
            PermissionMode::Locked => "only what rules and grants allow runs; no questions",
        }
    }

    /// The next mode of the cycle `plan`, `ask`, `edits`, `auto`. `None` for `locked`, which is not
    /// part of the cycle.
    pub fn next(self) -> Option<PermissionMode> {
        match self {
            PermissionMode::Plan => Some(PermissionMode::Ask),
            PermissionMode::Ask => Some(PermissionMode::Edits),
            PermissionMode::Edits => Some(PermissionMode::Auto),
            PermissionMode::Auto => Some(PermissionMode::Plan),
            PermissionMode::Locked => None,
        }
    }

    /// The stricter one of two modes. `None` for `plan` and `locked`, each of which allows
    /// something that the other one denies.
    pub fn stricter(self, other: PermissionMode) -> Option<PermissionMode> {
        let rank = |mode| PermissionMode::KNOWN.iter().position(|known| *known == mode);
        match (self, other) {
            (PermissionMode::Locked, PermissionMode::Plan)
            | (PermissionMode::Plan, PermissionMode::Locked) => None,
            (PermissionMode::Locked, _) | (_, PermissionMode::Locked) => {
                Some(PermissionMode::Locked)
            }
            (one, other) => Some(if rank(one) <= rank(other) { one } else { other }),
        }
    }

    /// True if this mode allows nothing that `other` does not allow, or is the same mode.
    pub fn is_at_most(self, other: PermissionMode) -> bool {
        self.stricter(other) == Some(self)
    }
}

impl fmt::Display for PermissionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for PermissionMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A mode of another version is read as `locked`, so that it allows nothing by itself.
impl<'de> Deserialize<'de> for PermissionMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PermissionMode, D::Error> {
        let name = String::deserialize(deserializer)?;
        Ok(PermissionMode::named(&name).unwrap_or(PermissionMode::Locked))
    }
}

/// The names of the modes.
#[cfg(feature = "testing")]
impl schemars::JsonSchema for PermissionMode {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PermissionMode".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let known = PermissionMode::KNOWN.map(PermissionMode::as_str);
        schemars::json_schema!({ "type": "string", "enum": known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_has_its_name() {
        for mode in PermissionMode::KNOWN {
            assert_eq!(PermissionMode::named(mode.as_str()), Some(mode));
            let json = serde_json::to_string(&mode).unwrap();
            assert_eq!(json, format!("\"{mode}\""));
            assert_eq!(serde_json::from_str::<PermissionMode>(&json).unwrap(), mode);
        }
        assert_eq!(PermissionMode::named("yolo"), None);
        let strange: PermissionMode = serde_json::from_str("\"everything\"").unwrap();
        assert_eq!(strange, PermissionMode::Locked, "fails closed");
        assert_eq!(PermissionMode::default(), PermissionMode::Ask);
    }

    #[test]
    fn cycle_has_every_mode_but_locked() {
        let mut mode = PermissionMode::Plan;
        for expected in ["ask", "edits", "auto", "plan"] {
            mode = mode.next().unwrap();
            assert_eq!(mode.as_str(), expected);
        }
        assert_eq!(PermissionMode::Locked.next(), None);
    }

    #[test]
    fn stricter_mode_is_symmetric_and_never_wider() {
        for one in PermissionMode::KNOWN {
            assert_eq!(one.stricter(one), Some(one));
            for other in PermissionMode::KNOWN {
                assert_eq!(one.stricter(other), other.stricter(one));
                let Some(both) = one.stricter(other) else {
                    let names = [one.as_str(), other.as_str()];
                    assert!(names.contains(&"plan") && names.contains(&"locked"));
                    continue;
                };
                assert!(both == one || both == other);
                assert!(both.is_at_most(one) && both.is_at_most(other));
            }
        }
        assert!(PermissionMode::Plan.is_at_most(PermissionMode::Auto));
        assert!(!PermissionMode::Edits.is_at_most(PermissionMode::Ask));
        assert!(PermissionMode::Locked.is_at_most(PermissionMode::Ask));
        assert!(!PermissionMode::Ask.is_at_most(PermissionMode::Locked));
    }
}
