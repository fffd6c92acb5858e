//! Binding of an answer to one call of one agent in one working directory, with exactly one effect.

use crate::conversation::CallId;
use crate::digest::digest_of;
use crate::event::Origin;

/// Hash that identifies the call, its effect, its working directory and its agent. An answer is
/// valid for this hash only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding(String);

impl Binding {
    /// Computes the hash. `digest`: hash of the exact effect; `cwd`: working directory of the call.
    pub(crate) fn of(call: &CallId, digest: &str, cwd: &str, origin: &Origin) -> Binding {
        let (path, invocation) = (&origin.agent_path, origin.invocation_id.as_str());
        Binding(digest_of(&[call.as_str(), digest, cwd, path, invocation]))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::InvocationId;

    #[test]
    fn binding_depends_on_every_part_and_its_length() {
        let of = |call: &str, digest: &str, cwd: &str, path: &str, invocation: &str| {
            let origin = Origin {
                invocation_id: InvocationId::new(invocation),
                parent_invocation_id: None,
                agent: "a".to_owned(),
                agent_path: path.to_owned(),
            };
            Binding::of(&CallId::new(call), digest, cwd, &origin).0
        };
        let all = [
            of("c", "d", "w", "p", "i"),
            of("c2", "d", "w", "p", "i"),
            of("c", "d2", "w", "p", "i"),
            of("c", "d", "w2", "p", "i"),
            of("c", "d", "w", "p2", "i"),
            of("c", "d", "w", "p", "i2"),
            of("cd", "", "w", "p", "i"),
            of("", "cd", "w", "p", "i"),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(of("c", "d", "w", "p", "i"), all[0]);
    }
}
