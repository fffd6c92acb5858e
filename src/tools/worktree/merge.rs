//! Three-way merge of texts by line. Pure.
//!
//! Changes at different lines are both applied, and a change that both sides have made is applied
//! once. Other changes that touch each other are a conflict, which is reported and never resolved
//! by guessing.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::diff::split_lines;

/// Maximum number of lines of the three texts together. Longer texts are neither compared nor
/// merged.
const LINES_MAX: usize = 100_000;

/// Replacement of some lines of the base (`base`) by lines of one side (`own`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hunk {
    base: Range<usize>,
    own: Range<usize>,
}

/// Merges the changes that `ours` and `theirs` make to `base`. If there are conflicts, the error
/// contains the base line, from 1, at which each begins. The error is empty if the texts are too
/// long.
pub(crate) fn three_way(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Vec<u8>, Vec<usize>> {
    let [base, ours, theirs] = [base, ours, theirs].map(split_lines);
    if base.len() + ours.len() + theirs.len() > LINES_MAX {
        return Err(Vec::new());
    }
    let (mut left, mut right) = (hunks(&base, &ours), hunks(&base, &theirs));
    left.reverse();
    right.reverse();
    let (mut merged, mut conflicts, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(region) = next_region(&mut left, &mut right) {
        merged.extend(base[at..region.base.start].concat());
        at = region.base.end;
        let left = patched(&region.base, &region.left, &base, &ours);
        let right = patched(&region.base, &region.right, &base, &theirs);
        if region.right.is_empty() || left == right {
            merged.extend(left);
        } else if region.left.is_empty() {
            merged.extend(right);
        } else {
            conflicts.push(region.base.start + 1);
        }
    }
    merged.extend(base[at..].concat());
    if conflicts.is_empty() { Ok(merged) } else { Err(conflicts) }
}

/// Adjacent or overlapping hunks of both sides, and their range of lines in the base.
struct Region {
    base: Range<usize>,
    left: Vec<Hunk>,
    right: Vec<Hunk>,
}

/// Takes the hunks of the next region from both lists, which are sorted from the last hunk to the
/// first. `None` if no hunk is left.
fn next_region(left: &mut Vec<Hunk>, right: &mut Vec<Hunk>) -> Option<Region> {
    let start = |hunks: &[Hunk]| hunks.last().map(|hunk| hunk.base.start);
    let first = [start(left), start(right)].into_iter().flatten().min()?;
    let mut region = Region { base: first..first, left: Vec::new(), right: Vec::new() };
    loop {
        let touches = |hunk: &mut Hunk| hunk.base.start <= region.base.end;
        // Adjacent hunks of one side alone stay separate.
        if let Some(hunk) = left.pop_if(touches) {
            region.base.end = region.base.end.max(hunk.base.end);
            region.left.push(hunk);
        } else if let Some(hunk) = right.pop_if(touches) {
            region.base.end = region.base.end.max(hunk.base.end);
            region.right.push(hunk);
        } else {
            return Some(region);
        }
    }
}

/// Returns the lines `region` of the base after the hunks `own` of one side were applied.
fn patched(region: &Range<usize>, own: &[Hunk], base: &[&[u8]], side: &[&[u8]]) -> Vec<u8> {
    let (mut text, mut at) = (Vec::new(), region.start);
    for hunk in own {
        text.extend(base[at..hunk.base.start].concat());
        text.extend(side[hunk.own.clone()].concat());
        at = hunk.base.end;
    }
    text.extend(base[at..region.end].concat());
    text
}

fn hunks(base: &[&[u8]], side: &[&[u8]]) -> Vec<Hunk> {
    let ops = capture_diff_slices(Algorithm::Myers, base, side);
    let changed = ops.into_iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    changed.map(|op| Hunk { base: op.old_range(), own: op.new_range() }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> Result<String, Vec<usize>> {
        let texts = [base, ours, theirs].map(|text| text.replace(' ', "\n") + "\n");
        let merged = three_way(texts[0].as_bytes(), texts[1].as_bytes(), texts[2].as_bytes());
        merged.map(|bytes| String::from_utf8(bytes).unwrap().trim_end().replace('\n', " "))
    }

    /// Base, ours, theirs, and the expected result.
    type Case = (&'static str, &'static str, &'static str, Result<&'static str, Vec<usize>>);

    #[test]
    fn merges_both_sides_and_names_conflicts() {
        let cases: [Case; 12] = [
            ("a b c d e", "A b c d e", "a b c d E", Ok("A b c d E")),
            ("a b c", "a b c", "a x c", Ok("a x c")),
            ("a b c", "a x c", "a b c", Ok("a x c")),
            ("a b c", "a x c", "a x c", Ok("a x c")),
            ("a b c", "a x c", "a y c", Err(vec![2])),
            // Adjacent changes are one region.
            ("a b c", "A b c", "a B c", Err(vec![1])),
            ("a b c d", "a c d", "a b c D", Ok("a c D")),
            ("a b c", "a c", "a x c", Err(vec![2])),
            ("a b c", "n a b c", "a b c m", Ok("n a b c m")),
            ("a b", "a n b", "a m b", Err(vec![2])),
            ("a b", "a n b", "a n b", Ok("a n b")),
            ("a b c d e f g", "A b c d e f G", "x b c d e f y", Err(vec![1, 7])),
        ];
        for (base, ours, theirs, expected) in cases {
            let expected = expected.map(str::to_owned);
            assert_eq!(merged(base, ours, theirs), expected, "{base} | {ours} | {theirs}");
        }
        assert_eq!(three_way(b"", b"a\n", b""), Ok(b"a\n".to_vec()));
        assert_eq!(three_way(b"a", b"a\nb", b"a"), Ok(b"a\nb".to_vec()));
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec("[abc]{0,1}\n", 0..12).prop_map(|lines| lines.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn one_sided_changes_merge_symmetrically(
            base in text(), ours in text(), theirs in text()
        ) {
            prop_assert_eq!(three_way(&base, &base, &theirs), Ok(theirs.clone()));
            prop_assert_eq!(three_way(&base, &ours, &base), Ok(ours.clone()));
            prop_assert_eq!(three_way(&base, &ours, &ours), Ok(ours.clone()));
            let (one, other) = (three_way(&base, &ours, &theirs), three_way(&base, &theirs, &ours));
            prop_assert_eq!(one, other);
        }
    }
}
