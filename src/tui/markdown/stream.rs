//! Streamed Markdown: finished pieces are returned once, and the unfinished tail stays small.

use crate::highlight::Highlighter;

/// Maximum bytes of Markdown that is held back because it may still change. In a code block, only
/// the incomplete last line is held back, at any length.
const TAIL_BYTES_MAX: usize = 4 << 10;

/// A finished part of a text, or its unfinished tail as it is now.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    /// Whole blocks of Markdown, or a part of a block that is too long to be held back.
    Text(String),
    /// Lines of a block of code.
    Code {
        /// Language that is named after the opening fence; empty if none is named.
        language: String,
        /// Highlighter as it was before the first line.
        highlighter: Highlighter,
        /// Lines, without the newline of the last.
        lines: String,
        /// True if this is the first piece of the block.
        begins: bool,
    },
}

/// An open block of code.
#[derive(Debug, Clone)]
struct Fence {
    mark: char,
    length: usize,
    language: String,
    highlighter: Highlighter,
    begins: bool,
}

/// Splits a streamed Markdown text into pieces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stream {
    tail: String,
    fence: Option<Fence>,
}

impl Stream {
    /// Adds text. Returns the pieces that are finished now.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Piece> {
        self.tail.push_str(text);
        let mut pieces = Vec::new();
        loop {
            let before = self.tail.len();
            let piece = if self.fence.is_some() { self.code() } else { self.text() };
            let more = piece.is_some() || self.tail.len() < before;
            pieces.extend(piece);
            if !more {
                return pieces;
            }
        }
    }

    /// Ends the text. Returns the remaining pieces.
    pub(crate) fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = if self.tail.ends_with('\n') { Vec::new() } else { self.push("\n") };
        pieces.extend(self.unfinished_tail());
        *self = Stream::default();
        pieces
    }

    /// The unfinished tail; `None` if it is blank.
    pub(crate) fn unfinished_tail(&self) -> Option<Piece> {
        if self.tail.trim().is_empty() {
            return None;
        }
        let tail = self.tail.trim_end_matches('\n');
        Some(match &self.fence {
            Some(fence) => fence.piece(tail.to_owned()),
            None => Piece::Text(tail.to_owned()),
        })
    }

    /// Takes the complete lines of the open code block from the tail; `None` if there are none. A
    /// closing fence ends the block.
    fn code(&mut self) -> Option<Piece> {
        let fence = self.fence.as_mut()?;
        let (mut end, mut closed) = (0, false);
        for line in self.tail.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            if fence.is_closed_by(line) {
                closed = true;
                break;
            }
            end += line.len();
        }
        let lines = self.tail[..end].strip_suffix('\n').map(str::to_owned);
        self.tail.drain(..end);
        let piece = lines.map(|lines| {
            let piece = fence.piece(lines.clone());
            fence.begins = false;
            for line in lines.split('\n') {
                fence.highlighter.line(line);
            }
            piece
        });
        if closed {
            let end = self.tail.find('\n').map_or(self.tail.len(), |end| end + 1);
            self.tail.drain(..end);
            self.fence = None;
        }
        piece
    }

    /// Takes the complete blocks from the tail, except the last one, which may still change; `None`
    /// if there are none. An opening fence begins a code block.
    fn text(&mut self) -> Option<Piece> {
        let (mut at, mut cut, mut after_blank, mut in_list) = (0, 0, false, false);
        for line in self.tail.split_inclusive('\n') {
            let whole = line.ends_with('\n');
            let indented = line.starts_with([' ', '\t']);
            let blank = line.trim().is_empty();
            if whole
                && let Some(fence) = opened_by(line)
                && !(indented && in_list)
            {
                let piece = self.tail[..at].to_owned();
                self.tail.drain(..at + line.len());
                self.fence = Some(fence);
                return Some(Piece::Text(piece)).filter(has_text);
            }
            if after_blank && !blank && !indented {
                cut = at;
                in_list = false;
            }
            in_list |= is_item(line);
            after_blank = blank && whole;
            at += line.len();
        }
        if cut == 0 && self.tail.len() > TAIL_BYTES_MAX {
            // Cut at the end of a line or of a word, or anywhere if there is neither.
            let end = self.tail.rfind('\n').or_else(|| self.tail.rfind(' '));
            cut = end.map_or(self.tail.len(), |end| end + 1);
        }
        let piece: String = self.tail.drain(..cut).collect();
        Some(Piece::Text(piece)).filter(has_text)
    }
}

fn has_text(piece: &Piece) -> bool {
    match piece {
        Piece::Text(text) => !text.trim().is_empty(),
        Piece::Code { .. } => true,
    }
}

impl Fence {
    fn piece(&self, lines: String) -> Piece {
        Piece::Code {
            language: self.language.clone(),
            highlighter: self.highlighter.clone(),
            lines,
            begins: self.begins,
        }
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|c| c == self.mark)
    }
}

fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &line[digits..];
    let number = digits > 0 && (rest.starts_with(". ") || rest.starts_with(") "));
    number || ["- ", "* ", "+ "].iter().any(|mark| line.starts_with(mark))
}

fn opened_by(line: &str) -> Option<Fence> {
    let indent = line.bytes().take_while(|byte| *byte == b' ').count();
    let rest = &line[indent..];
    let mark = rest.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = rest.chars().take_while(|c| *c == mark).count();
    let language = rest[length..].trim();
    if indent > 3 || length < 3 || mark == '`' && language.contains('`') {
        return None;
    }
    let highlighter = Highlighter::of(language);
    Some(Fence { mark, length, language: language.to_owned(), highlighter, begins: true })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(pieces: &[Piece]) -> Vec<String> {
        let one = |piece: &Piece| match piece {
            Piece::Text(text) => text.trim_end().to_owned(),
            Piece::Code { language, lines, begins, .. } => {
                format!("{}{language}|{lines}", if *begins { "begin " } else { "" })
            }
        };
        pieces.iter().map(one).collect()
    }

    #[test]
    fn returns_finished_pieces() {
        let mut stream = Stream::default();
        assert!(stream.push("one\ntwo").is_empty());
        assert!(stream.push("\n\n").is_empty());
        assert_eq!(written(&stream.push("thr")), ["one\ntwo"]);
        assert_eq!(
            written(&stream.push("ee\n```rust\nfn a() {\n  b")),
            ["three", "begin rust|fn a() {"]
        );
        assert_eq!(written(&stream.push("()\n}\n```\nlast")), ["rust|  b()\n}"]);
        assert_eq!(written(&stream.finish()), ["last"]);
    }

    #[test]
    fn a_list_stays_together_with_what_is_indented() {
        let mut stream = Stream::default();
        let text = "- one\n\n  more\n\n  ```\n  code\n  ```\n- two\n\nafter";
        assert_eq!(written(&stream.push(text)), ["- one\n\n  more\n\n  ```\n  code\n  ```\n- two"]);
    }

    #[test]
    fn tail_is_bounded() {
        let mut stream = Stream::default();
        for _ in 0..100 {
            stream.push(&"word ".repeat(1000));
            assert!(stream.tail.len() <= TAIL_BYTES_MAX + 5000);
        }
        let mut stream = Stream::default();
        stream.push("```\n");
        stream.push(&"line\n".repeat(10_000));
        assert!(stream.tail.is_empty());
    }

    proptest! {
        #[test]
        fn splitting_the_text_does_not_change_the_result(text in "([a-z#`\\-> 0-9.]|\n){0,120}", cut in 0usize..120) {
            let mut whole_stream = Stream::default();
            let mut whole = whole_stream.push(&text);
            whole.extend(whole_stream.finish());
            let cut = cut.min(text.len());
            let mut stream = Stream::default();
            let mut pieces = stream.push(&text[..cut]);
            pieces.extend(stream.push(&text[cut..]));
            pieces.extend(stream.finish());
            // Lines of code may arrive in more pieces; their text is the same.
            let say = |pieces: &[Piece]| -> Vec<String> {
                pieces.iter().flat_map(|piece| match piece {
                    Piece::Text(text) => text.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
                    Piece::Code { lines, .. } => lines.split('\n').map(str::to_owned).collect(),
                }).collect()
            };
            prop_assert_eq!(say(&whole), say(&pieces));
        }
    }
}
