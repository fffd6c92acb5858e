//! Second parser: compares the words of the shell reader with tree-sitter's bash grammar.
//!
//! Two independent parsers must agree on every word before grants, or rules with a command prefix,
//! allow a command. A rule for all commands needs only the shell reader. Only text that the shell
//! reader found small and plain is parsed here, so hostile nesting never reaches this parser.

use std::cell::RefCell;

use tree_sitter::{Node, Parser};

use crate::shell::Names;
use crate::shell::outline::Outline;

thread_local! {
    static PARSER: RefCell<Option<Parser>> = const { RefCell::new(None) };
}

/// Maximum number of words plus commands of a text. Longer text is not parsed here and counts as
/// read differently. Hand-written text has fewer, and the cost stays small.
const WORDS_MAX: usize = 1_000;

/// True if the grammar finds words at the same positions as `outline`. False if it reports an error
/// or anything besides simple commands, or if the text has more than [`WORDS_MAX`] words.
pub(crate) fn agrees(text: &str, outline: &Outline) -> bool {
    let count = outline.commands.iter().map(|command| command.words.len() + 1).sum::<usize>();
    if count > WORDS_MAX {
        return false;
    }
    let tree = PARSER.with_borrow_mut(|slot| {
        let parser = if let Some(parser) = slot {
            parser
        } else {
            let mut parser = Parser::new();
            parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
            slot.insert(parser)
        };
        parser.parse(text, None)
    });
    let Some(tree) = tree else { return false };
    let root = tree.root_node();
    if root.has_error() {
        return false;
    }
    let Some(mut theirs) = words(root) else { return false };
    let mut ours: Vec<(usize, usize)> = outline.timed.clone();
    for command in &outline.commands {
        ours.extend(command.assignments.iter().map(|word| word.span));
        ours.extend(command.words.iter().map(|word| word.span));
        let files = command.redirects.iter().filter(|redirect| redirect.body.is_none());
        ours.extend(files.map(|redirect| redirect.target.span));
    }
    ours.sort_unstable();
    theirs.sort_unstable();
    ours == theirs
}

/// Kinds of syntax nodes that are one word as a whole.
const WORDS: Names =
    Names("word string raw_string ansi_c_string concatenation number variable_assignment");
/// Kinds of syntax nodes whose children are examined instead.
const ENCLOSING: Names = Names(
    "program list pipeline subshell compound_statement negated_command redirected_statement \
    command command_name file_redirect variable_assignments",
);
/// Kinds of syntax nodes of which only the children in [`BEHIND`] are examined.
const BESIDE: Names = Names("heredoc_redirect comment heredoc_body file_descriptor");
const BEHIND: Names =
    Names("pipeline command list file_redirect word string raw_string ansi_c_string concatenation");
const OPERATORS: Names = Names("&& || ; | ( ) { } ! > >> < &> &>> >& <& >|");

/// Returns the positions (start and end in bytes) of the words of all commands. `None` if the text
/// contains anything besides simple commands.
fn words(root: Node<'_>) -> Option<Vec<(usize, usize)>> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let mut cursor = node.walk();
        let kind = node.kind();
        if WORDS.has(kind) {
            found.push((node.start_byte(), node.end_byte()));
        } else if ENCLOSING.has(kind) {
            open.extend(node.children(&mut cursor));
        } else if BESIDE.has(kind) {
            // A redirection after a here-document is a child of it.
            let counts = |child: &Node<'_>| BEHIND.has(child.kind());
            open.extend(node.children(&mut cursor).filter(counts));
        } else if kind != "\n" && !OPERATORS.has(kind) {
            return None;
        }
    }
    Some(found)
}
