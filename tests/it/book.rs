//! The documentation as a book: links lead somewhere, every page is in the table of contents, and
//! the examples of the pages work.

mod examples;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page, as far as it is checked.
#[derive(Debug, Default)]
struct Page {
    title: String,
    /// Anchors of its headings.
    anchors: BTreeSet<String>,
    /// Line and target of each link and image.
    links: Vec<(usize, String)>,
    blocks: Vec<CodeBlock>,
    /// Line and text of each piece of prose: no code.
    prose: Vec<(usize, String)>,
}

/// A fenced or indented block of code.
#[derive(Debug)]
struct CodeBlock {
    /// Number of its first line of code.
    line: usize,
    /// Empty for an indented block.
    language: String,
    text: String,
}

/// The anchor that GitHub and mdBook give to a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim().chars().flat_map(char::to_lowercase);
    let words = words.filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    words.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn page(text: &str) -> Page {
    let mut page = Page::default();
    let (mut heading, mut block) = (None::<String>, None::<CodeBlock>);
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let heading = heading.take().unwrap_or_default();
                let name = anchor(&heading);
                let repeated = (1..).map(|nth| format!("{name}-{nth}"));
                let mut names = std::iter::once(name.clone()).chain(repeated);
                let free = names.find(|name| !page.anchors.contains(name));
                page.anchors.extend(free);
                if page.title.is_empty() {
                    page.title = heading;
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push((line(range.start), dest_url.into_string()));
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                let (language, first) = match kind {
                    CodeBlockKind::Fenced(language) => (language.into_string(), 1),
                    CodeBlockKind::Indented => (String::new(), 0),
                };
                let line = line(range.start) + first;
                block = Some(CodeBlock { line, language, text: String::new() });
            }
            Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
            Event::Text(ref text) | Event::Code(ref text) => {
                if let Some(block) = &mut block {
                    block.text.push_str(text);
                    continue;
                }
                if let Some(heading) = &mut heading {
                    heading.push_str(text);
                }
                if matches!(event, Event::Text(_)) {
                    page.prose.push((line(range.start), text.to_string()));
                }
            }
            _ => {}
        }
    }
    page
}

/// README and all pages below `docs/`, by their path from `root`.
fn documents(root: &Path) -> BTreeMap<PathBuf, Page> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.join("docs")];
    let mut files = vec![root.join("README.md")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        found.insert(path.strip_prefix(root).unwrap().to_owned(), page(&text));
    }
    found
}

/// Pages of this repository.
fn pages() -> BTreeMap<PathBuf, Page> {
    documents(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// The path to which `target`, a path in a link, leads from a page. `None` if it leaves the
/// repository.
fn resolved(from: &Path, target: &str) -> Option<PathBuf> {
    let mut path = from.parent()?.to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// The reason why a link leads nowhere. `None` if it leads somewhere.
fn defect(
    root: &Path,
    pages: &BTreeMap<PathBuf, Page>,
    from: &Path,
    target: &str,
) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) =
        target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = if path.is_empty() { Some(from.to_owned()) } else { resolved(from, path) };
    let Some(path) = path else { return Some("leaves the repository") };
    if !root.join(&path).exists() {
        return Some("leads to no file");
    }
    let known = |anchor| pages.get(&path).is_some_and(|page| page.anchors.contains(anchor));
    if anchor.is_some_and(|anchor| !known(anchor)) {
        return Some("leads to no heading");
    }
    None
}

/// One line for each link that leads nowhere.
fn broken_links(root: &Path, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let links = pages
        .iter()
        .flat_map(|(path, page)| page.links.iter().map(move |(line, link)| (path, line, link)));
    let broken = links.filter_map(|(path, line, link)| {
        let defect = defect(root, pages, path, link)?;
        Some(format!("{}:{line}: {link} {defect}", path.display()))
    });
    broken.collect()
}

/// Pages that the table of contents does not have, or has twice.
fn not_listed_once(pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let summary = Path::new("docs/SUMMARY.md");
    let listed: Vec<PathBuf> =
        pages[summary].links.iter().filter_map(|(_, link)| resolved(summary, link)).collect();
    let book = pages.keys().filter(|path| path.starts_with("docs") && *path != summary);
    let counted = book.map(|path| (path, listed.iter().filter(|other| *other == path).count()));
    let wrong = counted.filter(|(_, count)| *count != 1);
    wrong.map(|(path, count)| format!("{}: listed {count} times", path.display())).collect()
}

/// Words that docs/STYLE.md replaces.
const REPLACED: [&str; 11] = [
    "anew",
    "anybody",
    "beside",
    "goes on with",
    "is told of",
    "lies",
    "mend",
    "nobody",
    "somebody",
    "whatever",
    "whoever",
];

/// The replaced words in `text`.
fn replaced_words(text: &str) -> Vec<&'static str> {
    let words = text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
    let words = format!(" {words} ");
    REPLACED.into_iter().filter(|word| words.contains(&format!(" {word} "))).collect()
}

#[test]
fn guides_use_plain_words() {
    let mut offences = Vec::new();
    for (path, page) in pages() {
        if path.starts_with("docs/guide") || path.ends_with("README.md") {
            for (line, text) in &page.prose {
                let found = replaced_words(text).into_iter();
                offences.extend(found.map(|word| format!("{}:{line}: {word}", path.display())));
            }
        }
    }
    assert!(offences.is_empty(), "docs/STYLE.md names other words:\n{}", offences.join("\n"));
    assert_eq!(
        replaced_words("Somebody goes on with it; it blends."),
        ["goes on with", "somebody"]
    );
}

#[test]
fn every_link_of_the_documents_resolves() {
    let pages = pages();
    let links: usize = pages.values().map(|page| page.links.len()).sum();
    assert!(pages.len() > 80 && links > 300, "{} pages, {links} links", pages.len());
    let broken = broken_links(Path::new(env!("CARGO_MANIFEST_DIR")), &pages);
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("docs/SUMMARY.md");
    let present = fs::read_to_string(&path).unwrap();
    let all = pages();
    // The last part lists the decision records by their titles.
    let end = present.find("  - [").unwrap();
    let records =
        all.iter().filter(|(path, _)| path.starts_with("docs/adr") && !path.ends_with("README.md"));
    let records = records.map(|(path, page)| {
        format!("  - [{}]({})\n", page.title, path.strip_prefix("docs").unwrap().display())
    });
    let expected = present[..end].to_owned() + &records.collect::<String>();
    if std::env::var_os("POSSE_WRITE_GUIDE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let present = fs::read_to_string(&path).unwrap();
    assert_eq!(
        present, expected,
        "the decision records of docs/SUMMARY.md: \
         POSSE_WRITE_GUIDE=1 cargo test -p posse --test it book writes them"
    );
    let wrong = not_listed_once(&pages());
    assert!(wrong.is_empty(), "docs/SUMMARY.md lists each page once:\n{}", wrong.join("\n"));
}

#[test]
fn broken_links_and_unlisted_pages_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "README.md",
        "# A\n\n[good](docs/a.md#two-words-1) [bad](docs/c.md) ![bad](docs/x.svg)\n",
    );
    write("docs/SUMMARY.md", "# Summary\n\n- [a](a.md)\n- [a](a.md)\n");
    write(
        "docs/a.md",
        "# A `code`, b\n\n## Two words\n\n## Two words\n\n[good](#a-code-b) [bad](#a-code)\n\n\
         [good](../src/x.rs) [bad](../src/x.rs#l1) [bad](../../x)\n\n\
         | a |\n|---|\n| [bad](z.md) |\n\n```text\n[no link](nowhere.md)\n```\n\n\
         `[no link](nowhere.md)` [good](https://example.org/x#y)\n",
    );
    write("docs/b/c.md", "# C\n");
    write("src/x.rs", "");
    let pages = documents(dir.path());
    assert_eq!(
        broken_links(dir.path(), &pages),
        [
            "README.md:3: docs/c.md leads to no file",
            "README.md:3: docs/x.svg leads to no file",
            "docs/a.md:7: #a-code leads to no heading",
            "docs/a.md:9: ../src/x.rs#l1 leads to no heading",
            "docs/a.md:9: ../../x leaves the repository",
            "docs/a.md:13: z.md leads to no file",
        ]
    );
    assert_eq!(
        not_listed_once(&pages),
        ["docs/a.md: listed 2 times", "docs/b/c.md: listed 0 times"]
    );
}
