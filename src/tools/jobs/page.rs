//! Reads the output of a background job in pages.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::output;

/// One page of a job's output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OutputPage {
    /// Text of the page for a model: escaped, and so possibly longer than the bytes read.
    pub(super) text: String,
    /// Offset at which the page begins, in bytes. If a character begins before it, the rest of that
    /// character is left out of the text.
    pub(super) from: u64,
    /// Offset at which the next page begins, in bytes.
    pub(super) next: u64,
    /// Size of the whole output so far, in bytes.
    pub(super) total: u64,
}

/// Reads a page of at most `bytes_max` bytes from the output file `path`; escaping can make its
/// text longer. A missing file counts as empty.
///
/// The page begins at offset `from`. Without `from` it contains the output after `read_to`, or only
/// the last `bytes_max` bytes if that is too long. An incomplete character at the end of the page
/// is left for the next page, except at the end of an output that does not grow (`grows` is false).
/// An offset beyond the end gives an empty page with `from` beyond `total`.
pub(super) fn read(
    path: &Path,
    from: Option<u64>,
    read_to: u64,
    bytes_max: usize,
    grows: bool,
) -> io::Result<OutputPage> {
    let file = match File::open(path) {
        // The command has not printed anything yet.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(OutputPage { from: from.unwrap_or(0), ..OutputPage::default() });
        }
        opened => opened?,
    };
    let total = file.metadata()?.len();
    let max = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let from = match from {
        Some(from) if from > total => {
            return Ok(OutputPage { from, total, ..OutputPage::default() });
        }
        Some(from) => from,
        None => read_to.max(total.saturating_sub(max)).min(total),
    };
    let length = usize::try_from((total - from).min(max)).unwrap_or(bytes_max);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, from)?;
    let whole = if from == 0 { &bytes[..] } else { output::whole_start(&bytes) };
    let skipped = bytes.len() - whole.len();
    let is_end = from + length as u64 == total;
    let mut used = if is_end && !grows { whole } else { output::whole_end(whole) };
    let mut text = output::clean(used);
    while text.len() > bytes_max {
        // Escaped control characters have made it longer.
        let fits = used.len() * bytes_max / text.len();
        used = output::whole_end(&used[..fits]);
        text = output::clean(used);
    }
    Ok(OutputPage { text, from, next: from + (skipped + used.len()) as u64, total })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_new_or_requested_output() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o");
        assert_eq!(read(&path, None, 0, 10, true).unwrap(), OutputPage::default());
        let beyond = |from, total| OutputPage { from, total, ..OutputPage::default() };
        assert_eq!(read(&path, Some(1), 0, 10, true).unwrap(), beyond(1, 0));
        std::fs::write(&path, "0123456789abcdef").unwrap();
        let at = |from, read_to, max| {
            let page = read(&path, from, read_to, max, true).unwrap();
            (page.text, page.from, page.next)
        };
        assert_eq!(at(None, 0, 100), ("0123456789abcdef".to_owned(), 0, 16));
        assert_eq!(at(None, 12, 100), ("cdef".to_owned(), 12, 16));
        assert_eq!(at(None, 0, 4), ("cdef".to_owned(), 12, 16));
        assert_eq!(at(Some(2), 12, 4), ("2345".to_owned(), 2, 6));
        assert_eq!(at(None, 16, 4), (String::new(), 16, 16));
        assert_eq!(read(&path, Some(17), 0, 4, true).unwrap(), beyond(17, 16));
    }

    #[test]
    fn escaped_characters_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o");
        std::fs::write(&path, "\u{1}".repeat(1000)).unwrap();
        let (mut from, mut shown) = (0, 0);
        while from < 1000 {
            let page = read(&path, Some(from), 0, 100, false).unwrap();
            assert!(page.text.len() <= 100 && page.next > from, "{page:?}");
            (from, shown) = (page.next, shown + page.text.len());
        }
        assert_eq!(shown, output::clean(&[1; 1000]).len());
    }

    proptest! {
        /// Consecutive pages form the whole text for any page size.
        #[test]
        fn pages_contain_all_output(text in "(a|é|€|😀|\n){0,60}", max in 4_usize..20) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("o");
            std::fs::write(&path, &text).unwrap();
            let (mut all, mut from) = (String::new(), 0);
            while from < text.len() as u64 {
                let page = read(&path, Some(from), 0, max, true).unwrap();
                prop_assert!(page.next > from);
                all.push_str(&page.text);
                from = page.next;
            }
            prop_assert_eq!(all, text);
        }
    }
}
