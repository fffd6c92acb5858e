//! Enums for string fields of events with a fixed set of values. Journals of other versions may
//! contain further values.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines an enum that is a string in JSON. A string that is not listed becomes `Unknown` and is
/// written back unchanged.
macro_rules! word_enum {
    ($(#[$about:meta])* $name:ident { $($(#[$says:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name {
            $($(#[$says])* $variant,)+
            /// A value that this version does not know, as its text in JSON.
            Unknown(String),
        }

        impl $name {
            /// All values that this version knows.
            pub const KNOWN: &[$name] = &[$($name::$variant),+];

            /// The value as it is written in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Unknown(text) => text,
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                match text.as_str() {
                    $($text => $name::$variant,)+
                    _ => $name::Unknown(text),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        /// The values that this version knows; journals of other versions may contain further ones.
        #[cfg(feature = "testing")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let known: Vec<&str> = $name::KNOWN.iter().map($name::as_str).collect();
                schemars::json_schema!({ "type": "string", "enum": known })
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                String::deserialize(deserializer).map($name::from)
            }
        }
    };
}

word_enum! {
    /// Source of the answer to a permission request.
    DecisionSource {
        /// A person answered.
        User = "user",
        /// The policy denied the call when it judged the open request again, after a new grant.
        Policy = "policy",
        /// The flag `--yes` allowed the call.
        Yes = "--yes",
        /// The time for the answer to questions of the model has passed.
        Timeout = "timeout",
        /// No person could be asked, or too many requests were open: the call is denied.
        Nobody = "nobody",
    }
}

word_enum! {
    /// Kind of the target of a permission request.
    TargetType {
        /// A call of a tool.
        Tool = "tool",
        /// The start of an agent.
        Agent = "agent",
        /// A connection of a running command to a server.
        Connection = "connection",
    }
}

impl Default for TargetType {
    /// Tool: the target of most requests, and of those in journals that do not name it.
    fn default() -> TargetType {
        TargetType::Tool
    }
}

word_enum! {
    /// Reason why a call failed or did not run.
    ToolFailureClass {
        /// The arguments are invalid, or the tool could not prepare the call.
        Invalid = "invalid",
        /// A rule, a person or a hook denied the call, its permission request got no answer, or its
        /// effect kept changing while it was asked about.
        Denied = "denied",
        /// The tool reported a failure, or the intent could not be recorded, so that the tool did
        /// not run.
        Failed = "failed",
        /// The call was stopped, before or while it ran.
        Cancelled = "cancelled",
        /// The tool, the actor that ran it, or posse itself crashed.
        Crashed = "crashed",
        /// The call did not start: a message of the user or the end of the run came first, the
        /// session was interrupted, the reply was cut off, or the turn had too many calls.
        Skipped = "skipped",
        /// The agent sees no tool of that name.
        UnknownTool = "unknown_tool",
    }
}

word_enum! {
    /// Answer about a trial of a call that its permission request offers.
    TrialOffer {
        /// The call can run in a trial before it is allowed.
        Try = "try",
        /// The call ran in a trial, whose changes can be kept.
        Keep = "keep",
    }
}

/// Beginning of the result of a denied call.
const DENIED: &str = "Denied: ";

/// Beginnings of the result of a cancelled call: it had started, it had not.
const CANCELLED: [&str; 2] = ["Cancelled while it ran: ", "Cancelled before it ran: "];

/// End of the result of a call that was cancelled while it ran: advice for the model.
const PARTIAL: &str = ". Its effects may be partial; look before relying on them.";

/// Text before the output of a call that was cancelled while it ran.
const PRINTED: &str = "\n\nThe end of its output until then:\n";

impl ToolFailureClass {
    /// Result for the model of a cancelled call, with the reason and the end of its output.
    pub(crate) fn cancellation(started: bool, reason: &str, printed: &str) -> String {
        let [running, waiting] = CANCELLED;
        match (started, printed.trim().is_empty()) {
            (true, true) => format!("{running}{reason}{PARTIAL}"),
            (true, false) => format!("{running}{reason}{PARTIAL}{PRINTED}{printed}"),
            (false, _) => format!("{waiting}{reason}."),
        }
    }

    /// The output in the text `result` of a cancelled call; empty if there is none.
    pub fn output_in<'t>(&self, result: &'t str) -> &'t str {
        let printed = result.split_once(PRINTED).filter(|_| *self == ToolFailureClass::Cancelled);
        printed.map_or("", |(_, printed)| printed)
    }

    /// Result for the model of a denied call, with the reason and the rule.
    pub(crate) fn denial(reason: &str, rule: Option<&str>) -> String {
        match rule {
            Some(rule) => format!("{DENIED}{reason} (rule: {rule})"),
            None => format!("{DENIED}{reason}"),
        }
    }

    /// The reason in the text `result` of a denied or cancelled call, for the user: without the
    /// prefix and without advice for the model. Returns `result` unchanged for other classes, and
    /// if the prefix is missing.
    pub fn reason_in<'t>(&self, result: &'t str) -> &'t str {
        let reason = match self {
            ToolFailureClass::Denied => result.strip_prefix(DENIED),
            ToolFailureClass::Cancelled => CANCELLED
                .iter()
                .find_map(|begin| result.strip_prefix(begin))
                .map(|rest| rest.split(PARTIAL).next().unwrap_or(rest).trim_end_matches('.')),
            ToolFailureClass::Invalid
            | ToolFailureClass::Failed
            | ToolFailureClass::Crashed
            | ToolFailureClass::Skipped
            | ToolFailureClass::UnknownTool
            | ToolFailureClass::Unknown(_) => None,
        };
        reason.unwrap_or(result)
    }
}

word_enum! {
    /// Reason for a compaction.
    CompactionCause {
        /// The user requested the compaction.
        Request = "request",
        /// The next request would have exceeded the threshold of the context budget.
        Threshold = "threshold",
        /// The provider rejected a request as too long for the model.
        Overflow = "overflow",
        /// Older results of subagents became entries of a ledger.
        Delegates = "delegates",
    }
}

word_enum! {
    /// Reason for the end of a session.
    SessionEndReason {
        /// The user ended it or opened another conversation, or a headless run gave its final
        /// answer.
        Completed = "completed",
        /// The last run failed.
        Failed = "failed",
        /// A signal or a person interrupted the session or its last run.
        Interrupted = "interrupted",
        /// A limit or the budget ended the last run.
        Limit = "limit",
        /// The last run was parked because its provider was unavailable for too long, or the
        /// session was parked because an actor crashed too often.
        Parked = "parked",
        /// The provider failed or rejected a request, and waiting does not help.
        Provider = "provider",
        /// The last run gave an answer, but a permission was needed and no person could be asked.
        Permission = "permission",
        /// The front end ended it to continue the same conversation with other settings.
        Switched = "switched",
    }
}

word_enum! {
    /// Sandbox tier: strength of the confinement of processes, the weakest first.
    SandboxTier {
        /// Processes are not confined.
        None = "none",
        /// Confinement by Landlock and seccomp; protected files are checked after each command.
        Reduced = "reduced",
        /// Confinement by namespaces, mounts, Landlock and seccomp.
        Full = "full",
    }
}

/// The tier of an event that names none: `Unknown` with an empty text.
impl Default for SandboxTier {
    fn default() -> SandboxTier {
        SandboxTier::Unknown(String::new())
    }
}

impl SandboxTier {
    pub(crate) fn is_unrecorded(&self) -> bool {
        self.as_str().is_empty()
    }

    /// True if this tier is at least as strong as `other`. False if either is a tier of another
    /// version.
    pub fn is_at_least(&self, other: &SandboxTier) -> bool {
        let rank = |tier| SandboxTier::KNOWN.iter().position(|known| known == tier);
        rank(other).is_some_and(|other| rank(self).is_some_and(|rank| rank >= other))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;
    use serde_json::{from_str, to_string};

    use super::*;

    fn texts<T: Serialize + DeserializeOwned + Debug + PartialEq>(words: &[T]) -> Vec<String> {
        let text = |word: &T| {
            let json = to_string(word).unwrap();
            assert_eq!(&from_str::<T>(&json).unwrap(), word);
            json.trim_matches('"').to_owned()
        };
        words.iter().map(text).collect()
    }

    #[test]
    fn each_enum_value_has_its_journal_text() {
        assert_eq!(texts(DecisionSource::KNOWN), ["user", "policy", "--yes", "timeout", "nobody"]);
        let classes =
            ["invalid", "denied", "failed", "cancelled", "crashed", "skipped", "unknown_tool"];
        assert_eq!(texts(ToolFailureClass::KNOWN), classes);
        assert_eq!(
            texts(CompactionCause::KNOWN),
            ["request", "threshold", "overflow", "delegates"]
        );
        let reasons = [
            "completed",
            "failed",
            "interrupted",
            "limit",
            "parked",
            "provider",
            "permission",
            "switched",
        ];
        assert_eq!(texts(SessionEndReason::KNOWN), reasons);
        assert_eq!(texts(SandboxTier::KNOWN), ["none", "reduced", "full"]);
    }

    #[test]
    fn user_reads_the_reason_of_a_cancelled_call_without_advice_for_the_model() {
        let reason = |started| {
            let text = ToolFailureClass::cancellation(started, "the user stopped it", "tick\n");
            let printed = if started { "tick\n" } else { "" };
            assert_eq!(ToolFailureClass::Cancelled.output_in(&text), printed);
            assert_eq!(ToolFailureClass::Failed.output_in(&text), "");
            ToolFailureClass::Cancelled.reason_in(&text).to_owned()
        };
        assert_eq!(
            (reason(true).as_str(), reason(false).as_str()),
            ("the user stopped it", "the user stopped it")
        );
        assert_eq!(
            ToolFailureClass::Failed.reason_in("Cancelled while it ran: x"),
            "Cancelled while it ran: x"
        );
    }

    #[test]
    fn unknown_value_is_preserved() {
        for text in ["", "User", "someone new", "käse \"x\""] {
            let json = to_string(text).unwrap();
            let word: DecisionSource = from_str(&json).unwrap();
            assert_eq!(word, DecisionSource::Unknown(text.to_owned()));
            assert_eq!((word.to_string().as_str(), to_string(&word).unwrap()), (text, json));
        }
        assert!(from_str::<ToolFailureClass>("1").is_err());
    }

    #[test]
    fn tier_includes_every_weaker_tier() {
        let strange = SandboxTier::Unknown("fuller".to_owned());
        for (at, tier) in SandboxTier::KNOWN.iter().enumerate() {
            for (below, other) in SandboxTier::KNOWN.iter().enumerate() {
                assert_eq!(tier.is_at_least(other), at >= below, "{tier} {other}");
            }
            assert!(!tier.is_at_least(&strange) && !strange.is_at_least(tier));
        }
        assert!(!strange.is_at_least(&strange));
    }

    #[test]
    fn only_a_denial_has_a_prefix_to_remove() {
        let text = ToolFailureClass::denial("no", Some("r"));
        assert_eq!(text, "Denied: no (rule: r)");
        for (class, rest) in [
            (ToolFailureClass::Denied, "no (rule: r)"),
            (ToolFailureClass::Failed, text.as_str()),
            (ToolFailureClass::Unknown("x".to_owned()), text.as_str()),
        ] {
            assert_eq!(class.reason_in(&text), rest, "{class}");
        }
        assert_eq!(ToolFailureClass::Denied.reason_in("Blocked: x"), "Blocked: x");
    }
}
