//! What was asked for and is not done yet: commands run unconfined.

use crate::config::{Layers, Origin};

/// A line for each wish about the sandbox that `tier` does not fulfil, if the user made it.
pub(crate) fn unenforced(layers: &Layers, tier: &str) -> String {
    if tier != "none" {
        return String::new();
    }
    let wishes = [
        ("sandbox.mode", &["read-only", "workspace-write"][..]),
        ("sandbox.network", &["deny"][..]),
    ];
    let mut text = String::new();
    for (key, confining) in wishes {
        let Some(leaf) = layers.get(key).filter(|leaf| leaf.origin != Origin::BuiltIn) else {
            continue;
        };
        let Some(value) = leaf.value.as_str().filter(|value| confining.contains(value)) else {
            continue;
        };
        let name = match &leaf.origin {
            Origin::Flag(flag) => flag,
            _ => key,
        };
        text.push_str("sandbox none: ");
        text.push_str(name);
        text.push(' ');
        text.push_str(value);
        text.push_str(" is not enforced on commands yet\n");
    }
    text
}
