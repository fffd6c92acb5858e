//! Imports between the files of a crate, read from its source: which file uses an item of which.

use std::collections::{BTreeMap, BTreeSet};

/// Files of a crate by module path, such as `ports::tool`, each with the files that it imports.
pub(super) type Imports = BTreeMap<String, BTreeSet<String>>;

type Segments = Vec<String>;

/// Imports of the files in `sources`: pairs of module path and text.
///
/// An import is a path that begins with `crate`, `super` or `self`, in a `use` or inline. It counts
/// for the file that defines the item, also if other files re-export it. A module that declares or
/// names its own parts does not import them. Code and files under `#[cfg(test)]` do not count.
pub(super) fn imports<'s>(sources: impl IntoIterator<Item = (&'s str, &'s str)>) -> Imports {
    let mut files = BTreeMap::new();
    let mut test_modules = Vec::new();
    for (module, text) in sources {
        let mut reader = PathReader::new(module);
        reader.read(&tokens(text));
        test_modules.append(&mut reader.test_modules);
        files.insert(module.to_owned(), reader);
    }
    files.retain(|module, _| {
        let is_below = |test: &String| {
            module.strip_prefix(test).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        !test_modules.iter().any(is_below)
    });
    let of = |(module, reader): (&String, &PathReader)| {
        let targets = reader.paths.iter().filter_map(|path| definer(path, &files, 0));
        (module.clone(), targets.filter(|target| target != module).collect())
    };
    files.iter().map(of).collect()
}

/// Groups of files that import each other, directly or through others: Tarjan's algorithm.
pub(super) fn cycles(imports: &Imports) -> Vec<BTreeSet<&str>> {
    let mut search =
        CycleSearch { imports, found: BTreeMap::new(), open: Vec::new(), done: vec![] };
    for module in imports.keys() {
        if !search.found.contains_key(module.as_str()) {
            search.visit(module);
        }
    }
    search.done
}

struct CycleSearch<'i> {
    imports: &'i Imports,
    /// Order of discovery, from 0; `usize::MAX` for modules of a finished group.
    found: BTreeMap<&'i str, usize>,
    open: Vec<&'i str>,
    done: Vec<BTreeSet<&'i str>>,
}

impl<'i> CycleSearch<'i> {
    /// Returns the earliest open module that can be reached from `module`.
    fn visit(&mut self, module: &'i str) -> usize {
        let number = self.found.len();
        self.found.insert(module, number);
        self.open.push(module);
        let mut lowest = number;
        for target in &self.imports[module] {
            let reached = match self.found.get(target.as_str()) {
                Some(number) => *number,
                None => self.visit(target),
            };
            lowest = lowest.min(reached);
        }
        if lowest == number {
            let at = self.open.iter().rposition(|one| *one == module).expect("it is open");
            let group: BTreeSet<&str> = self.open.drain(at..).collect();
            self.found.extend(group.iter().map(|module| (*module, usize::MAX)));
            if group.len() > 1 {
                self.done.push(group);
            }
            return usize::MAX;
        }
        lowest
    }
}

/// The file that defines the item at `path`, without those that only re-export it.
fn definer(path: &[String], files: &BTreeMap<String, PathReader>, depth: usize) -> Option<String> {
    let (module, reader, rest) = (1..=path.len()).rev().find_map(|length| {
        let (module, rest) = path.split_at(length);
        let module = module.join("::");
        let reader = files.get(&module)?;
        Some((module, reader, rest))
    })?;
    let renamed = rest.first().and_then(|name| Some((name, reader.names.get(name)?)));
    match renamed {
        Some((_, target)) if depth < 8 => {
            let target: Segments = target.iter().chain(&rest[1..]).cloned().collect();
            definer(&target, files, depth + 1)
        }
        _ => Some(module),
    }
}

/// Words and signs of Rust code, without comments and literals of text.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            quoted(rest)
        } else if first == '\'' {
            character(rest)
        } else if let Some(length) = raw_text(rest) {
            length
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            found.push(&rest[..length]);
            length
        } else if rest.starts_with("::") {
            found.push(&rest[..2]);
            2
        } else {
            if !first.is_whitespace() {
                found.push(&rest[..first.len_utf8()]);
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    found
}

/// Bytes of the text literal at the start of `text`.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// Bytes of the character literal at the start of `text`, or of the `'` of a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escape))) => {
            let from = at + escape.len_utf8();
            text[from..].find('\'').map_or(text.len(), |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// Bytes of the raw text literal at the start of `text`, if there is one.
fn raw_text(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let marks = inner.bytes().take_while(|byte| *byte == b'#').count();
    let content = inner[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    let length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + length)
}

/// Reads the paths of one file.
struct PathReader {
    /// The file, and the modules within it around the current token.
    place: Segments,
    /// Number of open braces around each of these inner modules.
    inner: Vec<usize>,
    braces: usize,
    /// Paths that it imports, from the root of the crate.
    paths: Vec<Segments>,
    /// Names that a `use` brings into the file, with what they stand for.
    names: BTreeMap<String, Segments>,
    /// Files that it declares under `#[cfg(test)]`.
    test_modules: Vec<String>,
}

impl PathReader {
    fn new(module: &str) -> PathReader {
        PathReader {
            place: module.split("::").map(str::to_owned).collect(),
            inner: Vec::new(),
            braces: 0,
            paths: Vec::new(),
            names: BTreeMap::new(),
            test_modules: Vec::new(),
        }
    }

    fn read(&mut self, tokens: &[&str]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let rest = &tokens[at..];
            at += match (*token, rest) {
                ("#", ["#", "[", "cfg", "(", ..]) => self.attribute(rest),
                ("use", _) => self.import(rest),
                ("mod", ["mod", name, "{", ..]) => {
                    self.inner.push(self.braces);
                    self.place.push((*name).to_owned());
                    2
                }
                ("crate" | "super" | "self", [_, "::", ..]) => self.inline(rest),
                _ => {
                    self.brace(token);
                    1
                }
            };
        }
    }

    fn brace(&mut self, token: &str) {
        match token {
            "{" => self.braces += 1,
            "}" => {
                self.braces = self.braces.saturating_sub(1);
                if self.inner.last() == Some(&self.braces) {
                    self.inner.pop();
                    self.place.pop();
                }
            }
            _ => (),
        }
    }

    /// Skips an attribute and, if it is one for tests, the item behind it. Returns the tokens.
    fn attribute(&mut self, tokens: &[&str]) -> usize {
        let end = tokens.iter().position(|token| *token == "]").unwrap_or(tokens.len() - 1) + 1;
        let condition = &tokens[..end];
        if !condition.contains(&"test") || condition.contains(&"not") {
            return end;
        }
        let mut depth = 0_usize;
        let ends = |token: &&str| {
            match *token {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => (),
            }
            depth == 0 && matches!(*token, ";" | "}")
        };
        let item = &tokens[end..];
        let length = item.iter().position(ends).map_or(item.len(), |at| at + 1);
        let mut windows = item[..length].windows(3);
        let declared = windows.find_map(|three| match three {
            ["mod", name, ";"] => Some(*name),
            _ => None,
        });
        if let Some(name) = declared {
            self.test_modules.push(format!("{}::{name}", self.place.join("::")));
        }
        end + length
    }

    /// Reads a `use`. Returns its tokens.
    fn import(&mut self, tokens: &[&str]) -> usize {
        let length = tokens.iter().position(|token| *token == ";").unwrap_or(tokens.len());
        for (path, name) in leaves(&tokens[1..length]) {
            let is_import = matches!(path[0].as_str(), "crate" | "super" | "self");
            let Some(target) = self.absolute(&path) else { continue };
            if is_import {
                self.paths.push(target.clone());
            }
            if self.inner.is_empty() {
                self.names.insert(name, target);
            }
        }
        length
    }

    /// Reads a path. Returns its tokens.
    fn inline(&mut self, tokens: &[&str]) -> usize {
        let is_path = |pair: &&[&str]| pair[0] == "::" && is_name(pair[1]);
        let pairs = tokens[1..].chunks_exact(2).take_while(is_path).map(|pair| pair[1]);
        let path: Segments = std::iter::once(tokens[0]).chain(pairs).map(str::to_owned).collect();
        self.paths.extend(self.absolute(&path));
        2 * path.len() - 1
    }

    /// `path` from the root of the crate. A path that begins with another name is one of the parts
    /// of this module, or of another crate: then no file has it.
    fn absolute(&self, path: &[String]) -> Option<Segments> {
        let mut start = self.place.clone();
        let mut rest = path;
        while let Some((first, behind)) = rest.split_first() {
            match first.as_str() {
                "crate" => start.clear(),
                "super" => drop(start.pop()?),
                "self" => (),
                _ => break,
            }
            rest = behind;
        }
        start.extend_from_slice(rest);
        Some(start)
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Paths of a `use`, each with the name that it brings into the file.
fn leaves(tree: &[&str]) -> Vec<(Segments, String)> {
    let names = tree.iter().take_while(|token| **token != "{").copied();
    let names: Vec<&str> = names.collect();
    if names.len() < tree.len() {
        let prefix: Segments = path_of(&names);
        let inner = &tree[names.len() + 1..tree.len() - 1];
        let below = branches(inner).into_iter().flat_map(leaves);
        return below
            .map(|(path, name)| {
                let is_self = path == ["self"];
                let path = if is_self { Vec::new() } else { path };
                let last = prefix.last().filter(|_| is_self && name == "self").cloned();
                (prefix.iter().cloned().chain(path).collect(), last.unwrap_or(name))
            })
            .collect();
    }
    let (names, alias) = match names.as_slice() {
        [path @ .., "as", alias] => (path, Some((*alias).to_owned())),
        path => (path, None),
    };
    let path = path_of(names);
    let name = alias.or_else(|| path.last().cloned());
    name.map(|name| vec![(path, name)]).unwrap_or_default()
}

fn path_of(tokens: &[&str]) -> Segments {
    tokens.iter().filter(|token| is_name(token)).map(|token| (*token).to_owned()).collect()
}

/// The parts of a list in braces.
fn branches<'s, 't>(list: &'s [&'t str]) -> Vec<&'s [&'t str]> {
    let mut depth = 0_usize;
    let parts = list.split(|token| {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => (),
        }
        depth == 0 && *token == ","
    });
    parts.filter(|part| !part.is_empty()).collect()
}

#[test]
fn reads_every_form_of_import() {
    let table = [
        ("use crate::b;", vec!["b"]),
        ("use crate::{b, c::d::E};", vec!["b", "c::d"]),
        ("use crate::{b::{self, X}, c::{d::{E, F}, Y as Z}};", vec!["b", "c", "c::d"]),
        ("use super::b::X; use self::e::Y;", vec!["a::e", "b"]),
        (
            "fn f(x: crate::b::X) -> Vec<crate::c::d::E> { super::c::f::<u8>(x) }",
            vec!["b", "c", "c::d"],
        ),
        ("mod inner { use super::super::b::X; }\nuse super::c::X;", vec!["b", "c"]),
        // A part of the module itself, another crate, and text.
        ("mod e;\npub use e::X;\nuse std::fmt;", vec![]),
        (
            "// crate::b\n/* crate::b */ const T: &str = \"\\\" crate::b\"; const C: char = '\"';",
            vec![],
        ),
        ("const T: &str = r#\"\" crate::b\"#; struct L<'a>(&'a str, crate::c::X<'a>);", vec!["c"]),
        ("#[cfg(test)]\nmod tests { use crate::b::X; }\nuse crate::c::Y;", vec!["c"]),
        (
            "#[cfg(any(test, feature = \"x\"))]\npub use crate::b::{X, Y};\nuse crate::c::Y;",
            vec!["c"],
        ),
        ("#[cfg(not(test))]\nuse crate::b::X;", vec!["b"]),
        // Through a module that re-exports.
        ("use crate::f::{B, G};", vec!["b", "f::g"]),
        ("use crate::f::Own;", vec!["f"]),
    ];
    for (text, expected) in table {
        let sources = [
            ("a", text),
            ("a::e", ""),
            ("b", ""),
            ("c", ""),
            ("c::d", ""),
            ("f", "mod g;\npub use crate::b::X as B;\npub(crate) use g::G;\npub struct Own;"),
            ("f::g", ""),
        ];
        let found = imports(sources);
        assert_eq!(found["a"].iter().collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn finds_cycles_and_nothing_else() {
    let sources = [
        ("a", "use crate::b::B;"),
        ("b", "use crate::c::{C, d::D};"),
        ("c", "mod d;\npub use d::D;"),
        ("c::d", "#[cfg(test)]\nmod tests;\nfn f(x: super::super::a::A) {}"),
        ("c::d::tests", "use crate::e::E;"),
        ("e", "use crate::a::A; use crate::c::D;"),
        ("g", "use crate::h::H;"),
        ("h", "use crate::g::G;"),
    ];
    let found = imports(sources);
    assert!(!found.contains_key("c::d::tests"));
    let expected = [BTreeSet::from(["a", "b", "c::d"]), BTreeSet::from(["g", "h"])];
    assert_eq!(cycles(&found), expected);
    let mut broken = found.clone();
    broken.get_mut("c::d").expect("it is there").clear();
    broken.get_mut("h").expect("it is there").clear();
    assert_eq!(cycles(&broken), Vec::<BTreeSet<&str>>::new());
}
