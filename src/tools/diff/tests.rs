//! Diffs must be readable, and `patch` must accept them.

use proptest::prelude::*;

use super::*;

#[test]
fn shows_a_change_with_its_surroundings() {
    let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    let after = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n";
    insta::assert_snapshot!(unified("n", Some(before.as_bytes()), after.as_bytes()).text, @r"
    --- a/n
    +++ b/n
    @@ -2,7 +2,7 @@
     2
     3
     4
    -5
    +five
     6
     7
     8
    ");
}

#[test]
fn shows_a_new_file_and_a_last_line_that_does_not_end() {
    insta::assert_snapshot!(unified("n", None, b"a\nb").text, @r"
    --- /dev/null
    +++ b/n
    @@ -0,0 +1,2 @@
    +a
    +b
    \ No newline at end of file
    ");
}

#[test]
fn is_cut_when_it_is_long() {
    let after = "line\n".repeat(100_000);
    let diff = unified("n", None, after.as_bytes());
    assert_eq!((diff.added, diff.removed), (100_000, 0));
    assert!(diff.text.len() < TEXT_BYTES_MAX + 100);
    assert!(diff.text.ends_with("more lines of the diff are not shown]\n"));
}

#[test]
fn binary_difference_is_only_mentioned() {
    let diff = unified("n", Some(b"\0a"), b"b\n");
    assert_eq!(diff.text, "--- a/n\n+++ b/n\nbinary files differ\n");
}

/// Applies the hunks to `before`, as `patch` would.
fn patch(before: &str, diff: &str) -> String {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let mut after = String::new();
    let mut next = 0;
    let mut lines = diff.split_inclusive('\n').skip(2).peekable();
    while let Some(line) = lines.next() {
        if let Some(header) = line.strip_prefix("@@ -") {
            let range = header.split(' ').next().unwrap();
            let (start, length) = range.split_once(',').unwrap_or((range, "1"));
            let start: usize = start.parse().unwrap();
            let start = if length == "0" { start } else { start - 1 };
            after.extend(old[next..start].iter().copied());
            next = start;
            continue;
        }
        let (sign, text) = line.split_at(1);
        let unended = lines.next_if(|line| line.starts_with('\\')).is_some();
        let text = if unended { text.trim_end_matches('\n') } else { text };
        if sign != "+" {
            assert_eq!(old[next], text);
            next += 1;
        }
        if sign != "-" {
            after.push_str(text);
        }
    }
    after.extend(old[next..].iter().copied());
    after
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn diff_transforms_old_text_into_new_text(
        before in "([ab]\n){0,12}[ab]{0,2}",
        after in "([ab]\n){0,12}[ab]{0,2}",
    ) {
        let diff = unified("n", Some(before.as_bytes()), after.as_bytes());
        prop_assert_eq!(patch(&before, &diff.text), after);
    }
}
