//! Deny rules about absolute paths that lead through links. Tools and commands are judged by resolved
//! paths, so each such rule gets a second one with the resolved path.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Characters with a meaning in globs.
const SPECIAL: [char; 8] = ['*', '?', '[', ']', '{', '}', '\\', '!'];

/// Returns, for each deny rule in `rules` whose glob leads through a link, the same rule with the
/// resolved path. `home`: the folder for which `~` stands.
pub fn resolved_rules(rules: &[Value], home: Option<&Path>) -> Vec<Value> {
    rules.iter().filter_map(|rule| resolved_rule(rule, home)).collect()
}

fn resolved_rule(rule: &Value, home: Option<&Path>) -> Option<Value> {
    if rule["decision"] != "deny" {
        return None;
    }
    let mut resolved = rule.clone();
    if let Some(glob) = rule["match"]["pathGlob"].as_str() {
        resolved["match"]["pathGlob"] = Value::from(resolved_glob(glob, home)?);
    } else {
        let (tool, glob) = rule["tool"].as_str()?.strip_suffix(')')?.split_once('(')?;
        resolved["tool"] = Value::from(format!("{tool}({})", resolved_glob(glob, home)?));
    }
    Some(resolved)
}

/// `glob` with its links resolved, as far as no pattern is before them. `None` for a relative one, and
/// if there are no links.
fn resolved_glob(glob: &str, home: Option<&Path>) -> Option<String> {
    let (base, below) = match (glob.strip_prefix("~/"), home) {
        (Some(below), Some(home)) => (home, below.trim_start_matches('/')),
        _ if glob.starts_with('/') => (Path::new("/"), glob.trim_start_matches('/')),
        _ => return None,
    };
    let is_plain = |part: &&OsStr| !part.to_string_lossy().contains(SPECIAL);
    let plain = base.join(Path::new(below).iter().take_while(is_plain).collect::<PathBuf>());
    let mut existing = plain.ancestors().take_while(|path| path.starts_with(base));
    let found = existing.find(|path| path.symlink_metadata().is_ok())?;
    let target = found.canonicalize().ok().filter(|target| target != found)?;
    let escaped: String = target.to_str()?.chars().fold(String::new(), |mut text, c| {
        if SPECIAL.contains(&c) {
            text.push('\\');
        }
        text.push(c);
        text
    });
    let whole = base.join(below);
    let rest = whole.strip_prefix(found).ok()?.to_str()?;
    Some(if rest.is_empty() {
        escaped
    } else {
        format!("{}/{rest}", escaped.trim_end_matches('/'))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn rules_through_links_get_a_second_one() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let real = base.join("real[1]");
        fs::create_dir_all(real.join("private")).unwrap();
        symlink(&real, base.join("link")).unwrap();
        symlink(real.join("private"), real.join("alias")).unwrap();
        let at = |path: &str| format!("{}/{path}", base.display());
        let deny =
            |glob: &str| json!({"tool": "*", "match": {"pathGlob": glob}, "decision": "deny"});
        let rules = [
            deny(&at("link/private/**")),
            json!({"tool": format!("Read({})", at("link/new/*.txt")), "decision": "deny"}),
            deny("~/alias/**"),
            deny(&at("link")),
            // No link, a link behind a pattern, a relative glob, no glob, and no deny rule.
            deny(&at("*/private/**")),
            deny("link/**"),
            json!({"tool": "bash", "match": {"commandPrefix": "rm"}, "decision": "deny"}),
            json!({"tool": format!("Read({})", at("link/**")), "decision": "allow"}),
        ];
        let resolved = resolved_rules(&rules, Some(&real));
        assert_eq!(
            resolved,
            [
                deny(&at("real\\[1\\]/private/**")),
                json!({"tool": format!("Read({})", at("real\\[1\\]/new/*.txt")), "decision": "deny"}),
                deny(&at("real\\[1\\]/private/**")),
                deny(&at("real\\[1\\]")),
            ]
        );
    }
}
