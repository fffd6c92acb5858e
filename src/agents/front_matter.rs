//! Parser of Markdown with YAML front matter: values, their line numbers, and the text below.
//!
//! Values are those of JSON. Anchors, aliases, tags and further documents are rejected: a
//! definition needs none, and each can make a small file expand.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Value};

/// Maximum nesting depth of values in the front matter.
const DEPTH_MAX: usize = 16;
/// Maximum number of values, lists and mappings in the front matter.
const VALUES_MAX: usize = 2000;

/// A parsed file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) fields: Map<String, Value>,
    /// Line of each value, from 1, by its dotted path.
    pub(crate) lines: BTreeMap<String, usize>,
    /// Text below the front matter, trimmed.
    pub(crate) body: String,
}

/// An error in a file, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// Decodes a file as UTF-8 and parses it. Returns the text, with LF line ends and without a byte
/// order mark, and its parsed form. `no_text`: error for a file that is not UTF-8.
pub(crate) fn parse_bytes(bytes: &[u8], no_text: &str) -> Result<(String, Parsed), Flaw> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| Flaw { line: 1, what: no_text.to_owned() })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let parsed = parse(&text)?;
    Ok((text, parsed))
}

/// Parses `text`. Fails if its first line does not consist of three dashes, if no later line does,
/// or if the text between them is neither empty nor a mapping of the accepted form.
pub(crate) fn parse(text: &str) -> Result<Parsed, Flaw> {
    let flaw = |what: &str| Flaw { line: 1, what: what.to_owned() };
    let begun = text.split_once('\n').filter(|(first, _)| first.trim_end() == "---");
    let none = || flaw("there is no front matter: begin with a line ---");
    let (_, rest) = begun.ok_or_else(none)?;
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            let body = rest[end + line.len()..].trim().to_owned();
            let (fields, lines) = YamlReader::read(&rest[..end])?;
            return Ok(Parsed { fields, lines, body });
        }
        end += line.len();
    }
    Err(flaw("the front matter has no end: close it with a line ---"))
}

/// Line of each value, from 1, by its dotted path.
type LineNumbers = BTreeMap<String, usize>;

struct YamlReader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    lines: BTreeMap<String, usize>,
    values: usize,
    /// Current line of the file, from 1.
    line: usize,
}

impl<'a> YamlReader<'a> {
    fn read(text: &'a str) -> Result<(Map<String, Value>, LineNumbers), Flaw> {
        let parser = Parser::new_from_str(text);
        let mut reader = YamlReader { parser, lines: BTreeMap::new(), values: 0, line: 1 };
        let mut found = None;
        loop {
            match reader.next()? {
                Event::StreamEnd => break,
                Event::Nothing
                | Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
                event if found.is_none() => found = Some(reader.value(event, "", 0)?),
                _ => return Err(reader.error("there is a second document")),
            }
        }
        match found {
            Some(Value::Object(fields)) => Ok((fields, reader.lines)),
            None | Some(Value::Null) => Ok((Map::new(), reader.lines)),
            Some(_) => Err(Flaw { line: 2, what: "it is not a list of fields".to_owned() }),
        }
    }

    fn error(&self, what: &str) -> Flaw {
        Flaw { line: self.line, what: what.to_owned() }
    }

    fn next(&mut self) -> Result<Event<'a>, Flaw> {
        match self.parser.next() {
            None => Ok(Event::StreamEnd),
            Some(Ok((event, Span { start, .. }))) => {
                // Plus one for the line of dashes.
                self.line = start.line() + 1;
                Ok(event)
            }
            Some(Err(error)) => {
                self.line = error.marker().line() + 1;
                Err(self.error(error.info()))
            }
        }
    }

    fn value(&mut self, event: Event<'a>, path: &str, depth: usize) -> Result<Value, Flaw> {
        self.values += 1;
        if self.values > VALUES_MAX || depth > DEPTH_MAX {
            return Err(self.error("it is nested too deeply, or too long"));
        }
        self.lines.entry(path.to_owned()).or_insert(self.line);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if anchor != 0 || tag.is_some() {
                    return Err(self.error("anchors and tags are not understood here"));
                }
                Ok(scalar(&text, style))
            }
            Event::SequenceStart(0, None) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => return Ok(Value::Array(list)),
                        event => {
                            let path = format!("{path}[{}]", list.len());
                            list.push(self.value(event, &path, depth + 1)?);
                        }
                    }
                }
            }
            Event::MappingStart(0, None) => self.mapping(path, depth),
            Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_) => {
                Err(self.error("anchors, aliases and tags are not understood here"))
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => Err(self.error("it ends in the middle of a value")),
        }
    }

    fn mapping(&mut self, path: &str, depth: usize) -> Result<Value, Flaw> {
        let mut fields = Map::new();
        loop {
            let name = match self.next()? {
                Event::MappingEnd => return Ok(Value::Object(fields)),
                Event::Scalar(name, ..) => name.into_owned(),
                _ => return Err(self.error("the name of a field has to be one word")),
            };
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.lines.insert(below.clone(), self.line);
            if fields.contains_key(&name) {
                return Err(self.error(&format!("\"{name}\" is there twice")));
            }
            let event = self.next()?;
            let value = self.value(event, &below, depth + 1)?;
            fields.insert(name, value);
        }
    }
}

/// JSON value of a scalar. Unquoted text can be null, a boolean or an integer; other text is a
/// string.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match text.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => Value::String(text.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn error(text: &str) -> String {
        let Flaw { line, what } = parse(text).unwrap_err();
        format!("{line}: {what}")
    }

    #[test]
    fn parses_agent_fields_with_line_numbers() {
        let text = "---\r\nname: a # why\ntools:\n  visible: [read_file, \"*\"]\nmaxTurns: 3\n\
             hidden: false\npermissions:\n- { tool: bash, decision: deny }\n\
             description: |\n  two\n  lines\n---\n\n Do it.\n---\nmore\n";
        let parsed = parse(text).unwrap();
        assert_eq!(
            Value::Object(parsed.fields),
            json!({
                "name": "a", "tools": {"visible": ["read_file", "*"]}, "maxTurns": 3,
                "hidden": false, "permissions": [{"tool": "bash", "decision": "deny"}],
                "description": "two\nlines\n",
            })
        );
        assert_eq!(parsed.body, "Do it.\n---\nmore");
        let line = |path: &str| parsed.lines.get(path).copied();
        assert_eq!((line("name"), line("tools.visible[1]")), (Some(2), Some(4)));
        assert_eq!(line("permissions[0].decision"), Some(8));
    }

    #[test]
    fn unknown_syntax_is_reported_with_its_line() {
        assert_eq!(error("name: a\n"), "1: there is no front matter: begin with a line ---");
        assert_eq!(
            error("---\nname: a\n"),
            "1: the front matter has no end: close it with a line ---"
        );
        assert_eq!(
            error("---\na: 1\nb: &x 1\n---\n"),
            "3: anchors and tags are not understood here"
        );
        assert_eq!(
            error("---\na: 1\nb: *x\n---\n").split(':').next(),
            Some("3"),
            "an alias of nothing"
        );
        assert_eq!(error("---\na: 1\n\na: 2\n---\n"), "4: \"a\" is there twice");
        assert_eq!(error("---\n- a\n---\n"), "2: it is not a list of fields");
        assert!(error("---\na: [1, 2\n---\n").starts_with(['2', '3']));
        let deep = format!("---\na: {}1{}\n---\n", "[".repeat(40), "]".repeat(40));
        assert_eq!(error(&deep), "2: it is nested too deeply, or too long");
    }

    proptest! {
        /// For any input, the result is a value or an error with a line.
        #[test]
        fn parser_survives_any_text(text in "[-\\n a:\\[\\]{}'\"|>&*!#,0-9\\t\\u{1}é]{0,120}") {
            let lines = text.lines().count() + 2;
            if let Err(flaw) = parse(&format!("---\n{text}\n---\n")) {
                prop_assert!(flaw.line >= 1 && flaw.line <= lines + 1, "{flaw:?}");
            }
        }
    }
}
