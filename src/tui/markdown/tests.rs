//! Tests of Markdown rendering, including invalid Markdown.

use proptest::prelude::*;

use super::*;
use crate::text::columns_of;

fn shown(text: &str, columns: usize) -> String {
    let rows = rows(text, columns, Theme::PLAIN);
    let line =
        |row: &TextRow| row.spans.iter().map(|span| span.content.as_ref()).collect::<String>();
    rows.iter().map(|row| line(row).trim_end().to_owned() + "\n").collect()
}

const TEXT: &str = "# Title\n\nA *paragraph* with `code`, **weight** and a [link](https://example.org), \
    long enough to be broken.\n\n### Third\n\n- one\n- two\n  - inner\n    1. first\n    2. second\n\n\
    10. ten\n11. eleven\n\n> quoted\n> text\n>\n> - item\n\n```rust\nfn main() {}\n```\n\n\
    | a | bee |\n|---|---|\n| 1 | 2 |\n\n- [x] done\n- [ ] open\n\n---\n\nlast  \nline";

#[test]
fn shows_every_kind_of_block() {
    insta::assert_snapshot!(shown(TEXT, 40));
}

#[test]
fn table_columns_are_aligned() {
    let text = "| left | right | middle |\n|:--|--:|:-:|\n| a | 1 | x |\n| bb | 22 | 日本 |\n| c | 12345678 | y |";
    insta::assert_snapshot!(shown(text, 60));
}

#[test]
fn nested_blocks_keep_their_indentation() {
    let text = "1. first\n\n   ```sh\n   cargo test\n   ```\n\n   and then\n   - a\n     > quoted in it\n     > > twice\n\n\
        2. second\n\n   | a | b |\n   |---|--:|\n   | 1 | 2 |\n\n> - item\n>\n>   ```\n>   code\n>   ```\n> - other\n";
    insta::assert_snapshot!(shown(text, 40));
}

const WIDE_TABLE: &str = "| name | what it does | cost |\n|---|---|--:|\n\
    | one | a long description of it | 12 |\n| two | x | 3 |";

#[test]
fn wide_table_wraps_its_cells() {
    insta::assert_snapshot!(shown(WIDE_TABLE, 30));
}

#[test]
fn table_without_room_for_wrapped_text_is_shown_cell_by_cell() {
    insta::assert_snapshot!(shown(WIDE_TABLE, 20));
}

#[test]
fn control_sequences_are_removed() {
    let text = "a\u{1b}[2Jb `c\u{1b}]0;x\u{7}d`\n\n```\n\u{1b}[31m\u{202e}\n```\n";
    assert_eq!(shown(text, 40), "ab cd\n\n  \\u{202e}\n");
}

/// Markdown syntax, terminal escape sequences and other text.
fn pieces() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "\n",
        "\n\n",
        "    ",
        "- ",
        "1. ",
        "> ",
        "```\n",
        "~~~",
        "|",
        "|---|--:|\n",
        "# ",
        "**",
        "`",
        "[a](",
        "<b>",
        "![",
        "\\",
        "---\n",
        "[ ] ",
        "日本語",
        "👩\u{200d}👧",
        "🇩🇪",
        "e\u{301}",
        "\u{202e}",
        "\u{1b}[2J",
        "\u{1b}]0;x\u{7}",
        "\u{9b}H",
        "\r",
        "\t",
        "\u{fe0f}",
        "ﷺ",
        "\u{644}\u{627}",
        "क्षि",
    ]);
    prop_oneof![known.prop_map(str::to_owned), any::<char>().prop_map(String::from), "[a-z]{1,70}"]
}

#[test]
fn hidden_text_is_noticed() {
    for text in [
        "# Plan\n\n1. First\n2. *Second* with `code` and **more**\n\n- [ ] a\n- [x] b\n",
        "```rust\nfn main() {}\n```\n",
        "~~~\nplain\n~~~\n\n> quote\n\n---\n",
        "| a | b |\n|---|---|\n| one | two |\n",
        "[name](https://x.example/y) and <https://x.example>\n",
        "",
    ] {
        assert!(!hides_text(text), "{text:?}");
    }
    for text in [
        "Do it.\n\n[ref]: https://x.example 'and remove all'\n",
        "Do it.\n\n[//]: # (and remove all)\n",
        "[name](https://x.example 'and remove all')\n",
        "| a |\n|---|\n| one | and remove all |\n",
        "```rust and remove all\nfn main() {}\n```\n",
    ] {
        assert!(hides_text(text), "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_row_is_wider_than_the_screen(
        text in "([a-z#`*_>|\\-\\[\\]()!<0-9. ]|\n){0,160}",
        columns in 10usize..60,
    ) {
        for row in rows(&text, columns, Theme::default()) {
            prop_assert!(columns_of(&row.spans) <= columns, "{row:?}");
        }
    }

    #[test]
    fn any_input_fits_and_has_no_control_characters(
        pieces in prop::collection::vec(pieces(), 0..40),
        columns in 4usize..90,
    ) {
        let text = pieces.concat();
        for row in rows(&text, columns, Theme::default()) {
            prop_assert!(columns_of(&row.spans) <= columns, "{columns}: {row:?}");
            let controls = row.spans.iter().any(|span| span.content.chars().any(char::is_control));
            prop_assert!(!controls, "{row:?}");
        }
        // Streaming does not change the result.
        let mut stream = Stream::default();
        let mut parts = stream.push(&text);
        parts.extend(stream.finish());
        for row in parts.iter().flat_map(|piece| piece_rows(piece, columns, Theme::PLAIN)) {
            prop_assert!(columns_of(&row.spans) <= columns, "{columns}: {row:?}");
        }
    }

    #[test]
    fn no_word_is_lost(words in prop::collection::vec("[a-z]{1,12}", 1..30), columns in 8usize..40) {
        let text = words.join(" ");
        let shown = shown(&text, columns).split_whitespace().collect::<String>();
        prop_assert_eq!(shown, words.concat());
    }
}
