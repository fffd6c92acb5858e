//! Converts program output to text for a model: no control sequences, valid UTF-8, bounded length.

use posse_base::failure::printable_lines;

/// Converts the output of a program to text: removes terminal sequences, converts line ends to
/// `\n`, replaces invalid UTF-8, and escapes the other control characters except tabs.
pub(crate) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    // C1 control characters begin with 0xc2, as do some harmless characters.
    let may_begin = |byte: u8| (byte < b' ' && byte != b'\n' && byte != b'\t') || byte == 0xc2;
    if !text.bytes().any(may_begin) {
        return printable_lines(&text);
    }
    printable_lines(&without_sequences(&text))
}

/// Removes terminal sequences from `text`: escape sequences such as CSI, and control strings, such
/// as titles and clipboard contents, up to their terminator. Converts a run of CR, with the LF
/// after it, to one LF.
fn without_sequences(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' => {
                // Any kind of line end, including the rewinds of progress bars.
                while rest.next_if_eq(&'\r').is_some() {}
                rest.next_if_eq(&'\n');
                plain.push('\n');
            }
            '\u{1b}' => match rest.next_if(|next| matches!(next, ' '..='~')) {
                Some('[') => skip_parameters(&mut rest),
                Some(']' | 'P' | 'X' | '^' | '_') => skip_string(&mut rest),
                // For example the choice of a character set, which has one more byte.
                Some(' '..='/') => drop(rest.next_if(|next| matches!(next, '0'..='~'))),
                Some(_) | None => {}
            },
            '\u{9b}' => skip_parameters(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut rest),
            c => plain.push(c),
        }
    }
    plain
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_parameters(rest: &mut Rest<'_>) {
    while rest.next_if(|next| matches!(next, ' '..='?')).is_some() {}
    rest.next_if(|next| matches!(next, '@'..='~'));
}

/// Skips a control string and its terminator. A string without a terminator ends at the end of its
/// line.
fn skip_string(rest: &mut Rest<'_>) {
    while let Some(next) = rest.next_if(|next| !matches!(next, '\n' | '\r')) {
        match next {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                rest.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

/// Returns `bytes` without an incomplete UTF-8 code point at the end. Other invalid bytes stay.
pub(crate) fn whole_end(bytes: &[u8]) -> &[u8] {
    let is_cut = |length: &usize| {
        std::str::from_utf8(&bytes[bytes.len() - length..])
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    let cut = (1..=bytes.len().min(3)).find(is_cut).unwrap_or(0);
    &bytes[..bytes.len() - cut]
}

/// Returns `bytes` without UTF-8 continuation bytes at the start, at most 3: the rest of a code
/// point whose first byte is missing.
pub(crate) fn whole_start(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|&&byte| byte & 0xc0 == 0x80).count();
    &bytes[rest..]
}

/// Longest prefix of `text` with at most `max` bytes that ends between two code points.
pub(crate) fn prefix_within(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Longest suffix of `text` with at most `max` bytes that begins between two code points.
pub(crate) fn ending(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_left_out_and_text_stays() {
        for (bytes, text) in [
            (&b"\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m"[..], "red and bold"),
            (b"\x1b]0;title\x07a\x1b]52;c;aGVsbG8=\x1b\\b", "ab"),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"\x1bPq#0;2;0;0;0sixel\x1b\\after", "after"),
            (b"never ends\x1b]0;abc\nnext line", "never ends\nnext line"),
            (b"a\x1b[2J\x1b[1;1Hb\x1b(Bc\x1bM", "abc"),
            (b"10%\r20%\r\nend\r\r\n", "10%\n20%\nend\n"),
            (b"nul\0 bell\x07 back\x08", "nul\\u{0} bell\\u{7} back\\u{8}"),
            (b"\x9b31m \xff", "\u{fffd}31m \u{fffd}"),
            ("\u{9b}31mx\u{202e}y".as_bytes(), "x\\u{202e}y"),
            ("tab\tund ümlaut 😀\n".as_bytes(), "tab\tund ümlaut 😀\n"),
        ] {
            assert_eq!(clean(bytes), text, "{bytes:?}");
        }
    }

    #[test]
    fn cuts_are_between_code_points() {
        let text = "aé€😀".as_bytes();
        for cut in 0..=text.len() {
            assert!(std::str::from_utf8(whole_end(&text[..cut])).is_ok(), "end at {cut}");
            assert!(std::str::from_utf8(whole_start(&text[cut..])).is_ok(), "start at {cut}");
        }
        assert_eq!(whole_end(text), text);
        assert_eq!(whole_start(text), text);
        assert_eq!(whole_end(b"data\xff\xfe"), b"data\xff\xfe");
        assert_eq!((prefix_within("aé", 2), ending("éa", 2)), ("a", "a"));
    }
}
