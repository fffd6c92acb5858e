//! Short text of what a grant covers, for the answers of a permission request.

use posse_actors::event::Grant;

/// Describes the calls that `grant` covers in a few words: the first words of a command, a folder relative to the working
/// directory `cwd`, an agent or a server.
pub fn grant_coverage(grant: &Grant, cwd: &str) -> String {
    let target = grant.target.as_str();
    match grant.operation.as_str() {
        "execute" => target.to_owned(),
        "write" => {
            let below = target.strip_prefix(cwd.trim_end_matches('/'));
            match below.map(|below| below.trim_matches('/')) {
                Some("") => "changes in the working directory and below".to_owned(),
                Some(folder) if below.is_some_and(|below| below.starts_with('/')) => {
                    format!("changes below {folder}/")
                }
                _ => format!("changes below {}/", target.trim_end_matches('/')),
            }
        }
        "agent" => {
            let (agent, provider) = target.split_once(':').unwrap_or((target, ""));
            format!("start {agent} with {provider}")
        }
        "connect" => format!("connect to {target}"),
        "upload" => format!("upload more than the limit to {target}"),
        operation => format!("{operation} {target}"),
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::event::Scope;

    use super::*;

    #[test]
    fn coverage_names_the_target() {
        let covers = |operation: &str, target: &str| {
            let (operation, target) = (operation.to_owned(), target.to_owned());
            let grant = Grant { operation, target, scope: Scope::Session, agent: None };
            grant_coverage(&grant, "/home/me/shop")
        };
        let table = [
            ("execute", "npm test", "npm test"),
            ("write", "/home/me/shop", "changes in the working directory and below"),
            ("write", "/home/me/shop/src", "changes below src/"),
            ("write", "/home/me/shopping", "changes below /home/me/shopping/"),
            ("write", "/", "changes below /"),
            ("agent", "review:anthropic", "start review with anthropic"),
            ("connect", "a.example:443", "connect to a.example:443"),
            ("upload", "a.example:443", "upload more than the limit to a.example:443"),
        ];
        for (operation, target, expected) in table {
            assert_eq!(covers(operation, target), expected);
        }
    }
}
