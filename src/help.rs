//! The guides and references of posse as text for `posse help` and `/help TOPIC`: by topic, or one
//! entry of them. The texts are the files of `docs/`, part of the program.

use crate::failure::{ErrorCode, Exit, Failure, nearest, printable};
use crate::frontend::table::table;
use crate::tui::plain_text;

/// Maximum number of names that the error about an unknown topic suggests.
const SUGGESTIONS_MAX: usize = 5;

/// Minimum characters of a word for which names are suggested: a shorter one is similar to too many.
const SIMILAR_CHARS_MIN: usize = 4;

/// Maximum number of sections with a word in their heading that are shown; more are named.
const SECTIONS_MAX: usize = 2;

/// Maximum characters of a word that is looked up.
const WORD_CHARS_MAX: usize = 200;

/// A topic of the help: a document.
#[derive(Debug)]
struct Topic {
    /// Name, and other names.
    names: &'static [&'static str],
    /// Content in a few words.
    about: &'static str,
    /// The document, in Markdown.
    text: &'static str,
}

/// Defines a topic: names, content, file below `docs/`.
macro_rules! topic {
    ($names:expr, $about:literal, $file:literal) => {
        Topic { names: &$names, about: $about, text: include_str!(concat!("../docs/", $file)) }
    };
}

/// All topics: first those for new users, then references.
static TOPICS: &[Topic] = &[
    topic!(["install"], "build, check, update and remove", "guide/install.md"),
    topic!(["quickstart", "start"], "the first fifteen minutes", "guide/quickstart.md"),
    topic!(["coming-from", "claude-code", "codex"], "from another agent", "guide/coming-from.md"),
    topic!(["troubleshooting"], "something does not work", "guide/troubleshooting.md"),
    topic!(["faq", "questions"], "frequent questions", "guide/faq.md"),
    topic!(["concepts"], "terms: session, mode, tier, trust", "guide/concepts.md"),
    topic!(["cli", "commands", "flags"], "all commands and flags", "reference/cli.md"),
    topic!(["configuration"], "files and precedence", "guide/configuration.md"),
    topic!(["config-keys"], "configuration keys", "reference/configuration.md"),
    topic!(["providers"], "providers and models", "guide/providers.md"),
    topic!(["environment", "variables"], "environment variables", "reference/environment.md"),
    topic!(["exit-codes"], "exit codes", "reference/exit-codes.md"),
    topic!(
        ["errors", "error-codes"],
        "error codes, with the usual fix",
        "reference/error-codes.md"
    ),
    topic!(["events", "stream-json"], "lines of stream-json", "reference/events.md"),
    topic!(["instructions", "rpc"], "lines of --input-format", "reference/instructions.md"),
    topic!(["tools"], "tools of the model, with parameters", "reference/tools.md"),
    topic!(["keys"], "keys of the terminal UI", "reference/keys.md"),
    topic!(["slash-commands"], "slash commands", "reference/commands.md"),
    topic!(["tui"], "terminal UI", "guide/tui.md"),
    topic!(["agents"], "agents and subagents", "guide/agents.md"),
    topic!(["attach"], "attach to a running session", "guide/attach.md"),
    topic!(["checkpoints", "rewind"], "take back changes", "guide/checkpoints.md"),
    topic!(["ci"], "run in CI", "guide/ci.md"),
    topic!(["context"], "context and compaction", "guide/context.md"),
    topic!(["costs"], "costs and budgets", "guide/costs.md"),
    topic!(["embedding"], "use posse as a library", "guide/embedding.md"),
    topic!(["grants"], "stored permissions", "guide/grants.md"),
    topic!(["hooks"], "programs that watch a session", "guide/hooks.md"),
    topic!(["jobs"], "background jobs", "guide/jobs.md"),
    topic!(["journal"], "format of the journal", "JOURNAL.md"),
    topic!(["local-models", "ollama"], "models on your own machine", "guide/local-models.md"),
    topic!(["network"], "network of commands, by domain", "guide/network.md"),
    topic!(["permissions"], "permission modes and decisions", "guide/permissions.md"),
    topic!(["protected-files"], "files that posse guards", "reference/protected-files.md"),
    topic!(["resuming"], "resume a session", "guide/resuming.md"),
    topic!(["review"], "review a change", "guide/review.md"),
    topic!(["scripting"], "run posse from a program", "guide/scripting.md"),
    topic!(["rules"], "permission rules", "guide/rules.md"),
    topic!(["secrets"], "secret files", "guide/secrets.md"),
    topic!(["skills"], "skills: instructions for kinds of task", "guide/skills.md"),
    topic!(["trust"], "trust of a project", "guide/trust.md"),
    topic!(["trying", "try"], "try a command before it changes files", "guide/trying.md"),
];

/// Name and content of each topic.
pub fn topic_names() -> impl Iterator<Item = (String, String)> {
    TOPICS.iter().map(|topic| (topic.names[0].to_owned(), topic.about.to_owned()))
}

/// The list of topics, with lines of at most 80 columns.
pub fn topics() -> String {
    let mut rows = vec![["TOPIC".to_owned(), "CONTENT".to_owned()]];
    rows.extend(TOPICS.iter().map(|topic| [topic.names[0].to_owned(), topic.about.to_owned()]));
    format!(
        "{}\n`posse help TOPIC` prints one of them.\n\
         `posse help WORD` prints one entry: an error code, a configuration key, a flag,\n\
         an event, a tool, an environment variable or a slash command, such as\n\
         CFG003, sandbox.network, --yes, tool.completed, bash, POSSE_HOME or /undo.\n\
         `posse --help` lists the commands, `posse COMMAND --help` describes one.\n",
        table(&rows)
    )
}

/// The document of a topic as plain text with lines of at most `columns` columns. `None` if `name`
/// is no topic.
pub fn topic(name: &str, columns: usize) -> Option<String> {
    let topic = TOPICS.iter().find(|topic| topic.names.contains(&name))?;
    Some(plain_text(&without_links(topic.text), columns))
}

/// All entries about `word` as plain text with lines of at most `columns` columns: sections, list
/// items and table rows that begin with it. A part of a configuration key gives all keys below it.
/// `None` if there is none.
///
/// The beginning of the name of a single topic is that topic, if no entry has this name.
pub fn entries(word: &str, columns: usize) -> Option<String> {
    let named = entries_named(word, columns, false);
    let begun = || topic(topic_that_begins(word)?, columns);
    if named.is_empty()
        && let Some(begun) = begun()
    {
        return Some(begun);
    }
    // A section of this name, such as that of a tool, before sections that mention it.
    let (first, last): (Vec<_>, Vec<_>) =
        named.into_iter().partition(|(place, _)| place.is_empty());
    let sections = sections(word, columns).into_iter().map(|text| (String::new(), text));
    let mut found: Vec<_> = first.into_iter().chain(sections).chain(last).collect();
    if found.is_empty() {
        found = entries_named(word, columns, true);
    }
    let texts: Vec<String> = found.into_iter().map(|(_, text)| text).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Sections whose heading contains `word`, in any number, as text: the first [`SECTIONS_MAX`] of them,
/// then the names of the others. Empty if there is none, or if `word` is too short.
fn sections(word: &str, columns: usize) -> Vec<String> {
    if word.chars().count() < SIMILAR_CHARS_MIN {
        return Vec::new();
    }
    let wanted = singular(&word.to_lowercase());
    let mut found: Vec<(&str, &str, String)> = TOPICS
        .iter()
        .filter(|topic| !is_of_members(topic))
        .flat_map(|topic| {
            read_sections(topic.text).map(|(title, text)| (topic.names[0], title, text))
        })
        .filter(|(_, title, _)| words_of(title).any(|word| singular(&word) == wanted))
        .collect();
    found.sort_by_key(|(_, title, _)| !words_of(title).any(|one| one.eq_ignore_ascii_case(word)));
    let shown = found.iter().take(SECTIONS_MAX).map(|(topic, _, text)| {
        format!("From {topic}:\n{}", plain_text(&without_links(text), columns))
    });
    let more = found.iter().skip(SECTIONS_MAX).map(|(topic, title, _)| {
        format!("See also \"{}\" in `posse help {topic}`.\n", title.replace('`', ""))
    });
    shown.chain(more).collect()
}

/// A word of a heading without the ending of the plural.
fn singular(word: &str) -> String {
    match word.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => word.strip_suffix('s').unwrap_or(word).to_owned(),
    }
}

/// Sections of a document whose heading is plain text below the title: heading, and text with it.
fn read_sections(document: &str) -> impl Iterator<Item = (&str, String)> {
    let lines: Vec<&str> = document.lines().collect();
    let mut is_code = false;
    let mut sections = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        is_code ^= line.starts_with("```");
        let Some((marks, title)) = heading_of(line).filter(|(marks, _)| !is_code && *marks > 1)
        else {
            continue;
        };
        let mut code_block = false;
        let body = lines.iter().skip(at + 1).copied().take_while(|line| {
            code_block ^= line.starts_with("```");
            code_block || heading_of(line).is_none_or(|(below, _)| below > marks)
        });
        let text = std::iter::once(*line).chain(body).collect::<Vec<_>>().join("\n");
        sections.push((title, text));
    }
    sections.into_iter()
}

/// True for a document whose entries are members of records and arguments of tools: words like `plan`
/// mean something else elsewhere.
fn is_of_members(topic: &Topic) -> bool {
    matches!(topic.names[0], "events" | "instructions" | "tools")
}

/// Entries with the name `word`; with `below`, those of which `word` is the first part. Each with the
/// heading above it, which is empty for a section of the document.
fn entries_named(word: &str, columns: usize, below: bool) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let (last, first): (Vec<&Topic>, Vec<&Topic>) =
        TOPICS.iter().partition(|topic| is_of_members(topic));
    for topic in first.into_iter().chain(last) {
        for entry in read_entries(topic.text) {
            let is_wanted = |name: &String| matches(name, word, below) || ends_with(name, word);
            if entry.names.iter().any(is_wanted) {
                let place = entry.place.replace('`', "");
                let origin = format!("From {}: {place}", topic.names[0]);
                let text = plain_text(&without_links(&entry.text), columns);
                let block = format!("{}\n{text}", plain_text(&origin, columns).trim_end());
                if blocks.iter().all(|(_, known)| *known != block) {
                    blocks.push((entry.place, block));
                }
            }
        }
    }
    blocks
}

/// Name of the only topic that begins with `word`. `None` if there is none or are several, or if
/// `word` is too short to tell.
fn topic_that_begins(word: &str) -> Option<&'static str> {
    if word.chars().count() < SIMILAR_CHARS_MIN {
        return None;
    }
    let begins = |topic: &&Topic| topic.names.iter().any(|name| name.starts_with(word));
    let mut topics = TOPICS.iter().filter(begins);
    topics.next().filter(|_| topics.next().is_none()).map(|topic| topic.names[0])
}

/// The error about a word that is neither a topic nor an entry, with similar names. `commands` are
/// further names that can be meant.
pub fn unknown(word: &str, commands: &[&str]) -> Failure {
    let shown: String = word.chars().take(WORD_CHARS_MAX).collect();
    let fix = match similar(&shown, commands).as_slice() {
        [] => "`posse help` lists the topics".to_owned(),
        names => format!("did you mean {}?", names.join(", ")),
    };
    let what = format!("there is no help about \"{}\"", printable(&shown));
    Failure::new(ErrorCode::HelpTopicUnknown, Exit::Usage, what).fix(fix)
}

/// Names of topics, `commands` and entries that can be meant by `word`: the one with a typo, and those
/// of which it is a word or the beginning. Empty if `word` is too short to tell.
fn similar(word: &str, commands: &[&str]) -> Vec<String> {
    let lower = word.to_lowercase();
    if lower.chars().count() < SIMILAR_CHARS_MIN {
        return Vec::new();
    }
    // Of the events, their types are names; their fields and the types of those are not.
    let entries = TOPICS.iter().flat_map(|topic| {
        let has_fields = matches!(topic.names[0], "events" | "instructions");
        let names = read_entries(topic.text).into_iter().flat_map(|entry| entry.names);
        names.filter(move |name| !has_fields || name.contains('.'))
    });
    let topics = TOPICS.iter().flat_map(|topic| topic.names).copied();
    let mut all: Vec<String> = topics.chain(commands.iter().copied()).map(str::to_owned).collect();
    let first = all.len();
    all.extend(entries.filter(|name| is_name(name)));
    // Few mistype the first letter: `cost` is not `lost`.
    let begins_alike = |name: &&String| name.to_lowercase().chars().next() == lower.chars().next();
    let typo = |names: &[String]| {
        nearest(word, names.iter().filter(begins_alike).map(String::as_str)).map(str::to_owned)
    };
    // A short word is one letter away from many others.
    let is_long = lower.chars().count() > SIMILAR_CHARS_MIN;
    let typo = typo(&all[..first]).or_else(|| typo(&all).filter(|_| is_long));
    let mut similar: Vec<String> = typo.into_iter().collect();
    let begins = |name: &String| words_of(name).next().is_some_and(|word| word.starts_with(&lower));
    let contains = |name: &String| words_of(name).any(|word| word == lower);
    // Names with the whole word before beginnings, short names before long ones.
    let mut matching: Vec<&String> =
        all.iter().filter(|name| contains(name) || begins(name)).collect();
    matching.sort_by_key(|name| (!contains(name), words_of(name).count()));
    for name in matching {
        if similar.len() < SUGGESTIONS_MAX && !similar.contains(name) {
            similar.push(name.clone());
        }
    }
    similar
}

/// True for the name of something, such as `sandbox.mode` or `--yes`; false for other code, such as
/// an example, and for a number.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    text.chars().all(is_part) && text.contains(|c: char| c.is_ascii_alphabetic())
}

/// The words of a name in lower case: `sandbox` and `mode` of `sandbox.mode`, `max` and `turns` of
/// `maxTurns`.
fn words_of(name: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
            spaced.push(' ');
        }
        spaced.push(if c.is_ascii_alphanumeric() { c } else { ' ' });
        before = c;
    }
    let words: Vec<String> = spaced.split_whitespace().map(str::to_lowercase).collect();
    words.into_iter()
}

/// The document or the entries about `word`, with lines of at most `columns` columns.
pub fn about(word: &str, columns: usize) -> Result<String, Failure> {
    // Documents name each other by file and section, such as `tui.md#task-list`.
    let file = word.split_once(".md").map_or(word, |(file, _)| file);
    let name = file.rsplit('/').next().unwrap_or(file);
    let found = topic(name, columns).or_else(|| entries(word, columns));
    found.ok_or_else(|| unknown(word, &[]))
}

/// An entry of a document.
#[derive(Debug)]
struct Entry {
    /// Names by which it is found.
    names: Vec<String>,
    /// Heading above it.
    place: String,
    /// The entry, in Markdown.
    text: String,
}

/// Reads the entries of a document: sections whose heading is code, list items and table rows that
/// begin with code.
fn read_entries(document: &str) -> Vec<Entry> {
    // The line below the titles of a table.
    let is_rule = |next: &&str| {
        next.starts_with('|')
            && next.contains('-')
            && next.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
    };
    let lines: Vec<&str> = document.lines().collect();
    let mut entries = Vec::new();
    let mut heading = "";
    let mut is_code = false;
    let mut titles = "";
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let rest = || lines.iter().skip(at + 1).copied();
        if let Some((marks, title)) = heading_of(line) {
            if let Some(code) = leading_code(title) {
                let mut code_block = false;
                let body = rest().take_while(|line| {
                    if line.starts_with("```") {
                        code_block = !code_block;
                    }
                    code_block || heading_of(line).is_none_or(|(below, _)| below > marks)
                });
                let text = std::iter::once(*line).chain(body).collect::<Vec<_>>().join("\n");
                // The heading before a section of the same level says nothing about it.
                let place = if marks <= 2 { "" } else { heading };
                entries.push(Entry { names: names(code), place: place.to_owned(), text });
            }
            if marks <= 2 {
                heading = title;
            }
        } else if let Some(code) = line.strip_prefix("- ").and_then(leading_code) {
            let body = rest().take_while(|line| line.starts_with("  "));
            let text = std::iter::once(*line).chain(body).collect::<Vec<_>>().join("\n");
            entries.push(Entry { names: names(code), place: heading.to_owned(), text });
        } else if let Some(code) = line.strip_prefix("| ").and_then(only_code)
            && !lines.get(at + 1).is_some_and(is_rule)
        {
            let columns = titles.matches('|').count().saturating_sub(1).max(1);
            let text = format!("{titles}\n|{}\n{line}", "---|".repeat(columns));
            entries.push(Entry { names: names(code), place: heading.to_owned(), text });
        }
        if line.starts_with('|') && lines.get(at + 1).is_some_and(is_rule) {
            titles = line;
        }
    }
    entries
}

/// Number of the marks of a heading, and its text. `None` for any other line.
fn heading_of(line: &str) -> Option<(usize, &str)> {
    let marks = line.bytes().take_while(|byte| *byte == b'#').count();
    let title = line.get(marks..)?.strip_prefix(' ')?;
    (marks > 0).then_some((marks, title))
}

/// The code with which a text begins. `None` if it begins otherwise.
fn leading_code(text: &str) -> Option<&str> {
    text.strip_prefix('`')?.split('`').next()
}

/// The code of which the first cell of a table row consists, one or more pieces. `None` if the cell
/// has other text.
fn only_code(row: &str) -> Option<&str> {
    let (cell, _) = row.split_once(" |")?;
    cell.strip_prefix('`')?.strip_suffix('`')
}

/// Names in a piece of code: `-p, --prompt PROMPT` has `-p` and `--prompt`, `/resume [ID]` has
/// `/resume`, and any code has itself.
fn names(code: &str) -> Vec<String> {
    let parts = code.split(", ").map(|part| part.trim_matches('`'));
    let words = parts.filter_map(|part| part.split_whitespace().next());
    let mut names: Vec<String> = words.map(str::to_owned).collect();
    names.push(code.to_owned());
    names.dedup();
    names
}

/// True if `name`, in which `NAME` stands for any word between dots, is `word`; with `below`, if
/// `word` is the first part of it.
fn matches(name: &str, word: &str, below: bool) -> bool {
    let (names, words): (Vec<&str>, Vec<&str>) =
        (name.split('.').collect(), word.split('.').collect());
    let fits = if below { names.len() > words.len() } else { names.len() == words.len() };
    let is_part = |(name, word): (&&str, &&str)| {
        (*name == "NAME" && names.len() > 1) || name.eq_ignore_ascii_case(word)
    };
    fits && names.iter().zip(&words).all(is_part)
}

/// True if `word` is the last part of a configuration key: `allowedDomains` of
/// `network.allowedDomains`.
fn ends_with(name: &str, word: &str) -> bool {
    let is_key = word.chars().any(|c| c.is_ascii_uppercase()) && !word.contains('.');
    let last = name.rsplit_once('.').map(|(_, last)| last);
    is_key && last == Some(word)
}

/// The document without comments, with the text of a link in place of a link to another file, and with
/// headings of two levels: deeper ones would keep their marks as text.
fn without_links(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    let mut is_code = false;
    for line in document.lines().filter(|line| !line.starts_with("<!--")) {
        is_code ^= line.starts_with("```");
        let deep = heading_of(line).filter(|(marks, _)| !is_code && *marks > 2);
        let mut rest = deep.map_or(line, |(marks, _)| &line[marks - 2..]);
        while !is_code && let Some((before, label, after)) = relative_link(rest) {
            text.extend([before, label]);
            rest = after;
        }
        text.extend([rest, "\n"]);
    }
    text
}

/// The text before the first link to a file in `line`, the link's text, and the text after it.
fn relative_link(line: &str) -> Option<(&str, &str, &str)> {
    for (middle, _) in line.match_indices("](") {
        let start = line[..middle].rfind('[')?;
        let end = middle + line[middle..].find(')')?;
        if !line[middle + 2..end].contains("://") {
            return Some((&line[..start], &line[start + 1..middle], &line[end + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_fits_in_eighty_columns() {
        for topic in TOPICS {
            let text = plain_text(&without_links(topic.text), 80);
            let long = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{}", topic.names[0]);
            assert!(text.len() > 500 && !text.contains("<!--") && !text.contains("]("));
            assert!(!text.lines().any(|line| line.starts_with("##")), "{}", topic.names[0]);
        }
        assert!(topics().lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn names_are_found_in_headings_items_and_tables() {
        let table = [
            ("CFG003", "wrong type"),
            ("cfg003", "wrong type"),
            ("sandbox.network", "network"),
            ("providers.local.model", "model"),
            ("--output-format", "Output format"),
            ("tool.completed", "durationMs"),
            ("read_file", "path"),
            ("POSSE_HOME", "Absolute path"),
            ("/undo", "take back"),
            ("124", "time limit"),
        ];
        for (word, expected) in table {
            let text = entries(word, 80).unwrap_or_else(|| panic!("{word}"));
            assert!(text.contains(expected), "{word}: {text}");
        }
        let below = entries("sandbox", 80).unwrap();
        assert!(below.contains("sandbox.mode") && below.contains("sandbox.network"), "{below}");
        assert_eq!(entries("no-such-thing", 80), None);
        let guide = entries("permission", 80).unwrap();
        assert_eq!(Some(guide), topic("permissions", 80));
        // `NAME` is a placeholder in keys only.
        assert!(!entries("124", 80).unwrap().contains("skills"));
    }

    #[test]
    fn headings_and_last_parts_of_keys_are_found() {
        for (word, expected) in [
            ("secrets", "Secrets that git tracks"),
            ("notifications", "Notifications"),
            ("policies", "posse doctor policies"),
            ("allowedDomains", "network.allowedDomains"),
            ("plan", "Questions and plans of the model"),
            ("edits", "Edits, hunk by hunk"),
            ("deny", "Deny rules about paths"),
        ] {
            let text = entries(word, 80).unwrap_or_else(|| panic!("{word}"));
            assert!(text.contains(expected), "{word}: {text}");
        }
        assert!(entries("edits", 80).unwrap().starts_with("From permissions:"));
        // Members of events follow what is written for people.
        let plan = entries("plan", 80).unwrap();
        assert!(plan.starts_with("From permissions:"), "{plan}");
        let last = plan.find("From events").unwrap();
        assert!(plan.find("\nplan ").is_some_and(|modes| modes < last), "{plan}");
    }

    #[test]
    fn tables_have_their_titles() {
        for word in ["locked", "edits"] {
            let text = entries(word, 80).unwrap();
            assert!(!text.contains("|---"), "{text}");
        }
        let modes = entries("locked", 80).unwrap();
        assert!(modes.contains("From permissions"), "{modes}");
    }

    #[test]
    fn unknown_word_names_similar_ones() {
        let fix = |word: &str| unknown(word, &["sessions"]).fix.unwrap();
        assert_eq!(fix("sesions"), "did you mean sessions?");
        assert!(fix("sandbox.netwrok").contains("sandbox.network"));
        assert!(fix("CFG03").contains("CFG0"));
        assert_eq!(fix("zzzzzzzzzzz"), "`posse help` lists the topics");
        assert_eq!(fix(&"x".repeat(1 << 20)), "`posse help` lists the topics");
        assert!(fix("timeout").contains("--timeout"), "{}", fix("timeout"));
        assert!(unknown("a\u{1b}[2J", &[]).to_string().contains("\\u{1b}"));
    }
}
