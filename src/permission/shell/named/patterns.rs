//! Comparison of named paths, which may be patterns, with the globs of rules.

use posse_base::path_globs::PathGlob;

use super::NamedPath;
use crate::paths::is_below;
use crate::shell::globs::NamePattern;
use crate::shell::word::{active, braces, is_glob};

impl NamedPath {
    /// The path before its first name with a glob.
    pub(crate) fn without_pattern(&self) -> &str {
        let is_plain = |name: &&str| !is_glob(name);
        let length = self.path.split('/').take_while(is_plain).map(|name| name.len() + 1);
        let end = length.sum::<usize>().saturating_sub(1);
        self.path.get(..end).unwrap_or(&self.path)
    }

    /// The forms of `path` that a glob is compared with: the absolute one, or those relative to the
    /// roots in which it lies.
    pub(crate) fn compared<'a>(
        &'a self,
        path: &'a str,
        is_absolute: bool,
    ) -> impl Iterator<Item = &'a str> {
        let relative = self.roots.iter().filter(move |_| !is_absolute).filter_map(|root| {
            let below = path.strip_prefix(root.trim_end_matches('/'));
            below.filter(|_| is_below(path, root)).map(|rest| rest.trim_start_matches('/'))
        });
        let is_root = self.roots.iter().any(|root| root == path);
        is_absolute.then_some(path).filter(|_| !is_root).into_iter().chain(relative)
    }

    /// True if the path is a pattern that may match a path which `glob` matches; `with_contents`: or
    /// a folder above such a path.
    pub(crate) fn may_match(&self, glob: &PathGlob, with_contents: bool) -> bool {
        if !is_glob(&self.path) {
            return false;
        }
        let path: Vec<&str> = parts(&self.path).collect();
        let roots: &[String] = if glob.is_absolute() { &[] } else { &self.roots };
        let bases: Vec<Vec<&str>> = if glob.is_absolute() {
            vec![Vec::new()]
        } else {
            roots.iter().map(|root| parts(root).collect()).collect()
        };
        let marked: String =
            glob.text().chars().map(|c| if "*?[{,}".contains(c) { active(c) } else { c }).collect();
        let alternatives = braces(&marked);
        bases.iter().any(|base| {
            alternatives.iter().any(|text| {
                let names: Vec<&str> = base.iter().copied().chain(parts(text)).collect();
                meets(&path, &names, with_contents)
            })
        })
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// True if the pattern `rule` matches every entry of a folder.
fn is_every_entry(rule: &[&str]) -> bool {
    matches!(rule, [name] if name.chars().all(|c| c == active('*')))
}

/// True if a path may match both patterns, or if one that matches `rule` is above the other;
/// `with_contents`: or below it.
fn meets(path: &[&str], rule: &[&str], with_contents: bool) -> bool {
    let Some((name, rest)) = rule.split_first() else { return true };
    let any_folders = active('*').to_string().repeat(2);
    let Some((part, below)) = path.split_first() else { return with_contents };
    if **name == *any_folders {
        let ends = rest.is_empty();
        return ends || meets(path, rest, with_contents) || meets(below, rule, with_contents);
    }
    let is_visible = is_glob(part) && !part.starts_with('.');
    if **part == *any_folders {
        return meets(path, rest, with_contents) || meets(below, rule, with_contents);
    }
    let matches = NamePattern::of_glob(part).meets(&NamePattern::of_glob(name), is_visible);
    // A name that is only a pattern means the whole folder, and not the one that the rule names.
    let is_named = !part.chars().all(|c| c == active('*') || c == active('?'));
    let is_whole = below.is_empty() && is_named && is_every_entry(rest);
    matches && (is_whole || meets(below, rest, with_contents))
}
